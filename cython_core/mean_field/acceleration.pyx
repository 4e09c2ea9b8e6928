"""Products of the last points of a fixed-point iteration, with which its rate is measured and it is accelerated.

A point has natural parameters x and expected statistics s, its image gx and gs: an array (4, P). With m differences of
consecutive points, dx, ds, dgx, dgs, and the residuals r = gx - x and q = gs - s, whose differences are dr and dq:

    lengths   (m, m)  (dx_i ds_j + dx_j ds_i)/2
    moved     (m, m)  (dx_i dgs_j + ds_i dgx_j)/2
    residual  (m, m)  (dr_i dq_j + dr_j dq_i)/2
    right     (m,)    (dr_i q + dq_i r)/2, q and r of the last point

Sums are in CV_LANES lanes, whatever the instruction set.
"""

from libc.math cimport NAN, fabs, fmax, hypot, sqrt
from libc.stdlib cimport free, malloc
from scipy.linalg.cython_lapack cimport dgeev, dsyev

from cavity._core.simd cimport CV_LANES, cv_combine

cdef enum:
    MAX_POINTS = 16
    MAX_ENTRIES = MAX_POINTS * MAX_POINTS


cdef double dot(const double *a, const double *b, Py_ssize_t n) noexcept nogil:
    cdef double lanes[CV_LANES]
    cdef Py_ssize_t i, lane, whole = n // CV_LANES * CV_LANES
    for lane in range(CV_LANES):
        lanes[lane] = 0.0
    for i in range(n // CV_LANES):
        for lane in range(CV_LANES):
            lanes[lane] += a[i * CV_LANES + lane] * b[i * CV_LANES + lane]
    for lane in range(n - whole):
        lanes[lane] += a[whole + lane] * b[whole + lane]
    return cv_combine(lanes)


def products(list points,                   # in  (m + 1,) arrays (4, P): x, s, gx, gs, oldest first, m < MAX_POINTS
             double[:, ::1] lengths,        # out (m, m)
             double[:, ::1] moved,          # out (m, m)
             double[:, ::1] residual,       # out (m, m)
             double[::1] right, /):         # out (m,)
    """Fill in the products of the differences of consecutive points."""
    cdef Py_ssize_t m = len(points) - 1, size = 0, i, j, k
    cdef const double *at[MAX_POINTS]
    cdef const double[:, ::1] point
    cdef double *memory
    cdef double *d
    cdef double *e
    if m >= MAX_POINTS:
        raise ValueError(f"points must be at most {MAX_POINTS}, got {m + 1}")
    for i in range(m + 1):
        point = points[i]
        size = point.shape[1]
        at[i] = &point[0, 0]
    memory = <double *>malloc(max(6 * (m + 1) * size, 1) * sizeof(double))  # of each: dx, ds, dgx, dgs, dr, dq
    if memory == NULL:
        raise MemoryError
    with nogil:
        for i in range(m):
            d = memory + 6 * i * size
            for k in range(4 * size):
                d[k] = at[i + 1][k] - at[i][k]
            for k in range(2 * size):
                d[4 * size + k] = d[2 * size + k] - d[k]
        e = memory + 6 * m * size
        for k in range(2 * size):
            e[4 * size + k] = at[m][2 * size + k] - at[m][k]
        for i in range(m):
            d = memory + 6 * i * size
            right[i] = 0.5 * (dot(d + 4 * size, memory + (6 * m + 5) * size, size)
                              + dot(d + 5 * size, memory + (6 * m + 4) * size, size))
            for j in range(m):
                e = memory + 6 * j * size
                moved[i, j] = 0.5 * (dot(d, e + 3 * size, size) + dot(d + size, e + 2 * size, size))
                if j <= i:
                    lengths[i, j] = 0.5 * (dot(d, e + size, size) + dot(e, d + size, size))
                    residual[i, j] = 0.5 * (dot(d + 4 * size, e + 5 * size, size)
                                            + dot(e + 4 * size, d + 5 * size, size))
                    lengths[j, i], residual[j, i] = lengths[i, j], residual[i, j]
        free(memory)


def combine(list points,                    # in  (m + 1,) arrays (4, P)
            const double[::1] weights,      # in  (m,)
            double[::1] out, /):            # out (P,): the last gx less the sum of weights_i dgx_i
    """Take differences of images off the last image."""
    cdef Py_ssize_t m = len(points) - 1, size = out.shape[0], i, k
    cdef const double[:, ::1] point, before
    point = points[m]
    for k in range(size):
        out[k] = point[2, k]
    for i in range(m):
        before, point = points[i], points[i + 1]
        for k in range(size):
            out[k] -= weights[i] * (point[2, k] - before[2, k])


def lengths_of_step(const double[:, ::1] point,     # in (4, P)
                    double rounding, /):            # relative error of gx and gs
    """Half the squared length of the step to the image, and half of what rounding makes of it."""
    cdef Py_ssize_t k
    cdef double change = 0.0, noise = 0.0
    for k in range(point.shape[1]):
        change += (point[2, k] - point[0, k]) * (point[3, k] - point[1, k])
        noise += fabs(rounding * point[2, k]) * fabs(rounding * point[3, k])
    return fmax(0.5 * change, 0.0), 0.5 * noise


cdef int find_axes(const double[:, ::1] matrix,     # in  (m, m), symmetric, m < MAX_POINTS
                   double share,                    # of the largest eigenvalue, and a number, that others are above
                   double least,
                   double *values,                  # out (m,): the eigenvalues above both, ascending
                   double *vectors) noexcept nogil:  # out (m, m): their eigenvectors, one after the other
    """How many eigenvalues are large enough; -1 where LAPACK fails."""
    cdef double work[4 * MAX_POINTS]
    cdef double eigenvectors[MAX_ENTRIES]
    cdef double all_values[MAX_POINTS]
    cdef int m = <int>matrix.shape[0], size = 4 * MAX_POINTS, info = 0, i, j, count = 0
    for i in range(m):
        for j in range(m):
            eigenvectors[i * m + j] = matrix[i, j]
    dsyev(b"V", b"L", &m, eigenvectors, &m, all_values, work, &size, &info)
    if info:
        return -1
    for i in range(m):
        if all_values[i] > fmax(share * all_values[m - 1], least):
            values[count] = all_values[i]
            for j in range(m):
                vectors[count * m + j] = eigenvectors[i * m + j]
            count += 1
    return count


def largest_rate(const double[:, ::1] lengths, const double[:, ::1] moved,  # in (m, m) as products has them
                 double share, double least, /):                            # as for find_axes
    """The largest absolute Ritz value of the map in the axes of the differences; nan without any.

    Minus one where LAPACK fails.
    """
    cdef double values[MAX_POINTS]
    cdef double real[MAX_POINTS]
    cdef double imaginary[MAX_POINTS]
    cdef double vectors[MAX_ENTRIES]
    cdef double ritz[MAX_ENTRIES]
    cdef double work[4 * MAX_POINTS]
    cdef double none = 0.0, largest = 0.0, entry
    cdef int m = <int>lengths.shape[0], size = 4 * MAX_POINTS, one = 1, info = 0, n, i, j, a, b
    n = find_axes(lengths, share, least, values, vectors)
    if n <= 0:
        return NAN if n == 0 else -1.0
    for a in range(n):
        for b in range(n):
            entry = 0.0
            for i in range(m):
                for j in range(m):
                    entry += vectors[a * m + i] * moved[i, j] * vectors[b * m + j]
            ritz[a * n + b] = entry / sqrt(values[a] * values[b])
    dgeev(b"N", b"N", &n, ritz, &n, real, imaginary, &none, &one, &none, &one, work, &size, &info)
    if info:
        return -1.0
    for a in range(n):
        largest = fmax(largest, hypot(real[a], imaginary[a]))
    return largest


def shortest_residual(const double[:, ::1] residual, const double[::1] right,   # in  (m, m), (m,) as products has them
                      double share,                                             # as for find_axes
                      double[::1] weights, /):                                  # out (m,)
    """Weights of the differences with which the last residual, taken as linear, is shortest.

    Returns the number of axes, 0 for none, -1 where LAPACK fails.
    """
    cdef double values[MAX_POINTS]
    cdef double vectors[MAX_ENTRIES]
    cdef double entry
    cdef int m = <int>residual.shape[0], n, i, a
    n = find_axes(residual, share, 0.0, values, vectors)
    for i in range(m):
        weights[i] = 0.0
    for a in range(n):
        entry = 0.0
        for i in range(m):
            entry += vectors[a * m + i] * right[i]
        for i in range(m):
            weights[i] += vectors[a * m + i] * (entry / values[a])
    return n
