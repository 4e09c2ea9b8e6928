"""Triangles of B = I + S^(1/2) K S^(1/2), the matrix that Gaussian processes factorise [RW, section 3.6].

Only lower triangles (j <= i) are read and written; LAPACK sees their transposes as upper ones.

[RW] C. E. Rasmussen and C. K. I. Williams, Gaussian Processes for Machine Learning, 2006.
"""


def scaled(const double[:, ::1] gram,            # in    (N, N)
           const double[::1] root,               # in    (N,)
           double[:, ::1] out,                   # out   (N, N): I + root gram root
           Py_ssize_t start, Py_ssize_t stop, /):
    """Write some rows of the lower triangle of B."""
    cdef Py_ssize_t i, j
    cdef double r
    with nogil:
        for i in range(start, stop):
            r = root[i]
            for j in range(i + 1):
                out[i, j] = r * gram[i, j] * root[j]
            out[i, i] += 1.0


def column_squares(const double[:, ::1] triangle,    # in    (N, N)
                   double[::1] out,                  # out   (N,)
                   Py_ssize_t start, Py_ssize_t stop, /):
    """Sums of squares of some columns of a lower triangular matrix: of the diagonal of its transpose times it."""
    cdef Py_ssize_t i, j
    cdef double a
    with nogil:
        for j in range(start, stop):
            out[j] = 0.0
        for i in range(start, out.shape[0]):
            for j in range(start, min(i + 1, stop)):
                a = triangle[i, j]
                out[j] += a * a


def evidence_weights(double[:, ::1] inverse,         # inout (N, N): B^-1, then the weights
                     const double[::1] root,         # in    (N,)
                     const double[::1] alpha,        # in    (N,)
                     Py_ssize_t start, Py_ssize_t stop, /):
    """Turn some rows of B^-1 into those of (alpha alpha' - root B^-1 root)/2.

    That is the derivative of the log evidence in K [RW, eq. (5.23)].
    """
    cdef Py_ssize_t i, j
    cdef double r, a
    with nogil:
        for i in range(start, stop):
            r, a = root[i], alpha[i]
            for j in range(i + 1):
                inverse[i, j] = 0.5 * (a * alpha[j] - r * inverse[i, j] * root[j])


def covariance(double[:, ::1] inverse,               # inout (N, N): B^-1, then S^(-1/2) (I - B^-1) S^(-1/2)
               const double[::1] scale,              # in    (N,): 1/root, or 0 for rows and columns to be left zero
               Py_ssize_t start, Py_ssize_t stop, /):
    """Turn some rows of B^-1 into those of the posterior covariance of the function values."""
    cdef Py_ssize_t i, j
    cdef double c
    with nogil:
        for i in range(start, stop):
            c = scale[i]
            for j in range(i):
                inverse[i, j] = -c * inverse[i, j] * scale[j]
            inverse[i, i] = c * (1.0 - inverse[i, i]) * c


def rows(const double[:, ::1] joint,                 # in    (N, N): lower triangle
         Py_ssize_t start, Py_ssize_t stop,
         double[:, ::1] out, /):                     # out   (stop - start, N)
    """Write some rows of a symmetric matrix."""
    cdef Py_ssize_t i, j, n = joint.shape[0]
    with nogil:
        for i in range(start, stop):
            for j in range(i + 1):
                out[i - start, j] = joint[i, j]
        for j in range(start, n):
            for i in range(start, min(j, stop)):
                out[i - start, j] = joint[j, i]
