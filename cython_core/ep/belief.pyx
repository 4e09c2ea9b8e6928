"""Beliefs over few weights from sums over sites, where calls of LAPACK take longer than the work.

C = diag(root) is the root of the prior covariance, L L' = I + C h C the precision of the whitened weights u. Triangles
are walked along their rows, so that inner loops go over numbers side by side and no sum is cut into lanes: all
instruction sets return the same bits.
"""
from libc.float cimport DBL_MAX
from libc.math cimport fabs, sqrt


cdef inline void take(double *row, double times, const double *other, Py_ssize_t n) noexcept nogil:
    """Take a multiple of another row off a row."""
    cdef Py_ssize_t j
    for j in range(n):
        row[j] -= times * other[j]


cdef bint factorised(double *upper, Py_ssize_t n) noexcept nogil:
    """Turn the upper triangle of a matrix into L', its factor; False if it is not positive definite."""
    cdef Py_ssize_t k, i, j
    cdef double pivot
    for k in range(n):
        pivot = upper[k * n + k]
        if not 0.0 < pivot <= DBL_MAX:
            return False
        pivot = sqrt(pivot)
        upper[k * n + k] = pivot
        for j in range(k + 1, n):
            upper[k * n + j] /= pivot
        for i in range(k + 1, n):
            take(upper + i * n + i, upper[k * n + i], upper + k * n + i, n - i)
    return True


def posterior(const double[:, ::1] h,           # in    (M, M): its lower triangle
              const double[::1] g,              # in    (M,)
              const double[::1] root,           # in    (M,)
              double[:, ::1] factor,            # out   (M, M) lower: L
              double[::1] u,                    # out   (M,): L^-T L^-1 C g
              double[:, ::1] triangle,          # out   (M, M) lower: L^-1 C
              double[:, ::1] wide):             # out   (M, M) upper: C L^-T
    """Factorise the precision; return whether it is finite and positive definite."""
    cdef Py_ssize_t i, j, k, n = g.shape[0]
    cdef double *upper
    cdef double a
    cdef bint finite = True
    if n == 0:
        return True
    upper = &wide[0, 0]
    with nogil:
        for i in range(n):
            u[i] = root[i] * g[i]
            finite = finite and fabs(u[i]) <= DBL_MAX
            for j in range(i + 1):
                a = root[i] * h[i, j] * root[j] + (1.0 if i == j else 0.0)
                finite = finite and fabs(a) <= DBL_MAX
                upper[j * n + i] = a
        finite = finite and factorised(upper, n)
    if not finite:
        return False
    with nogil:
        for i in range(n):
            for j in range(n):
                factor[i, j] = upper[j * n + i] if j <= i else 0.0
                triangle[i, j] = 1.0 if j == i else 0.0
        for i in range(n):                      # L^-1, row after row
            for k in range(i):
                take(&triangle[i, 0], factor[i, k], &triangle[k, 0], k + 1)
            for j in range(i + 1):
                triangle[i, j] /= factor[i, i]
        for k in range(n):                      # u = solve(L, C g)
            u[k] /= factor[k, k]
            take(&u[0] + k + 1, u[k], upper + k * n + k + 1, n - k - 1)
        for k in range(n - 1, -1, -1):          # u = solve(L', u)
            u[k] /= factor[k, k]
            take(&u[0], u[k], &factor[k, 0], k)
        for i in range(n):
            for j in range(n):
                triangle[i, j] *= root[j]
                wide[j, i] = triangle[i, j]
    return True


def change(const double[:, ::1] factor,         # in    (M, M) lower: L
           const double[::1] u,                 # in    (M,)
           const double[:, ::1] old_factor,     # in    (M, M) lower: L_old
           const double[::1] old_u,             # in    (M,)
           double[:, ::1] ratio,                # work  (M, M): R = L^-1 L_old
           double[:, ::1] squares):             # work  (M, M): R'R, which has the eigenvalues of RR'
    """|L'(u - u_old)| and |RR' - I|, in the Frobenius norm; either may be infinite or nan."""
    cdef Py_ssize_t i, j, k, n = u.shape[0]
    cdef double shift = 0.0, norm = 0.0, a
    with nogil:
        for i in range(n):
            for j in range(n):
                ratio[i, j] = old_factor[i, j]
                squares[i, j] = 0.0
        for i in range(n):
            for k in range(i):
                take(&ratio[i, 0], factor[i, k], &ratio[k, 0], k + 1)
            for j in range(i + 1):
                ratio[i, j] /= factor[i, i]
            for j in range(i + 1):
                take(&squares[j, 0], -ratio[i, j], &ratio[i, 0], j + 1)
        for j in range(n):
            a = 0.0
            for i in range(j, n):
                a += factor[i, j] * (u[i] - old_u[i])
            shift += a * a
            a = squares[j, j] - 1.0
            norm += a * a
            for i in range(j):
                norm += 2.0 * squares[j, i] * squares[j, i]
    return sqrt(shift), sqrt(norm)
