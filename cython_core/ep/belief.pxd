"""Beliefs over few weights from sums over sites, where calls of LAPACK take longer than the work.

C = diag(root) is the root of the prior covariance, L L' = I + C h C the precision of the whitened weights u. Triangles
are walked along their rows, so that inner loops go over numbers side by side and no sum is cut into lanes: all
instruction sets return the same bits.
"""
from libc.float cimport DBL_MAX
from libc.math cimport fabs, sqrt

cdef enum:
    BLOCK_ROWS = 8


cdef inline void take(double *row, double times, const double *other, Py_ssize_t n) noexcept nogil:
    """Take a multiple of another row off a row."""
    cdef Py_ssize_t j
    for j in range(n):
        row[j] -= times * other[j]


cdef inline void take_four(double *row, double a, double b, double c, double d, const double *other, Py_ssize_t step,
                           Py_ssize_t n) noexcept nogil:
    """Take multiples of four other rows, `step` numbers apart, off a row, one after the other."""
    cdef Py_ssize_t j
    for j in range(n):
        row[j] = (((row[j] - a * other[j]) - b * other[step + j]) - c * other[2 * step + j]) - d * other[3 * step + j]


cdef inline void take_rows(double *row, const double *factor, Py_ssize_t step, const double *other, Py_ssize_t width,
                           Py_ssize_t m, Py_ssize_t n) noexcept nogil:
    """Take multiples factor[k step] of m rows other (m, width) off a row of n numbers, in their order."""
    cdef Py_ssize_t k, whole = m // 4 * 4
    cdef const double *f
    for k in range(0, whole, 4):
        f = factor + k * step
        take_four(row, f[0], f[step], f[2 * step], f[3 * step], other + k * width, width, n)
    for k in range(whole, m):
        take(row, factor[k * step], other + k * width, n)


cdef inline bint factorised(double *upper, Py_ssize_t n) noexcept nogil:
    """Turn the upper triangle of a matrix into L', its factor; False if it is not positive definite."""
    cdef Py_ssize_t k, j
    cdef double pivot
    for k in range(n):
        take_rows(upper + k * n + k, upper + k, n, upper + k, n, k, n - k)
        pivot = upper[k * n + k]
        if not 0.0 < pivot <= DBL_MAX:
            return False
        pivot = sqrt(pivot)
        upper[k * n + k] = pivot
        for j in range(k + 1, n):
            upper[k * n + j] /= pivot
    return True


cdef inline void solve_triangle(Py_ssize_t n, const double *factor, double *x) noexcept nogil:
    """x = factor^-1 x of two lower triangles, zero above the diagonal."""
    cdef Py_ssize_t i, j, k
    for i in range(n):
        k = 0
        while k < i:                            # what is above the diagonal of a block of rows is taken as zeros
            take_rows(x + i * n, factor + i * n + k, 1, x + k * n, n, min(i - k, <Py_ssize_t>BLOCK_ROWS),
                      min(i, k + BLOCK_ROWS))
            k += BLOCK_ROWS
        for j in range(i + 1):
            x[i * n + j] /= factor[i * n + i]


cdef inline bint find_posterior(
    Py_ssize_t n,                               # M, at least 1
    const double *h, const double *g,           # in    (M, M): its lower triangle, and (M,)
    const double *root,                         # in    (M,)
    double *factor,                             # out   (M, M) lower: L
    double *u,                                  # out   (M,): L^-T L^-1 C g
    double *triangle,                           # out   (M, M) lower: L^-1 C
    double *wide,                               # out   (M, M) upper: C L^-T
) noexcept nogil:
    """Factorise the precision; return whether it is finite and positive definite."""
    cdef Py_ssize_t i, j, k
    cdef double a
    cdef bint finite = True
    for i in range(n):
        u[i] = root[i] * g[i]
        finite = finite and fabs(u[i]) <= DBL_MAX
        for j in range(i + 1):
            a = root[i] * h[i * n + j] * root[j] + (1.0 if i == j else 0.0)
            finite = finite and fabs(a) <= DBL_MAX
            wide[j * n + i] = a
    if not (finite and factorised(wide, n)):
        return False
    for i in range(n):
        for j in range(n):
            factor[i * n + j] = wide[j * n + i] if j <= i else 0.0
            triangle[i * n + j] = 1.0 if j == i else 0.0
    solve_triangle(n, factor, triangle)         # L^-1, row after row
    for k in range(n):                          # u = solve(L, C g)
        u[k] /= factor[k * n + k]
        take(u + k + 1, u[k], wide + k * n + k + 1, n - k - 1)
    for k in range(n - 1, -1, -1):              # u = solve(L', u)
        u[k] /= factor[k * n + k]
        take(u, u[k], factor + k * n, k)
    for i in range(n):
        for j in range(n):
            triangle[i * n + j] *= root[j]
            wide[j * n + i] = triangle[i * n + j]
    return True


cdef inline void measure_change(
    Py_ssize_t n,                               # M
    const double *factor, const double *u,              # in    (M, M) lower: L, and (M,)
    const double *old_factor, const double *old_u,      # in    those before
    double *ratio,                              # work  (M, M): R = L^-1 L_old
    double *squares,                            # work  (M, M): -R'R, which has the eigenvalues of -RR'
    double *changes,                            # out   (2,): |L'(u - u_old)| and |RR' - I|
) noexcept nogil:
    """The changes of means and variances, in the Frobenius norm; either may be infinite or nan."""
    cdef Py_ssize_t i, j
    cdef double shift = 0.0, norm = 0.0, a
    for i in range(n * n):
        ratio[i] = old_factor[i]
        squares[i] = 0.0
    solve_triangle(n, factor, ratio)
    for j in range(n):
        take_rows(squares + j * n, ratio + j * n + j, n, ratio + j * n, n, n - j, j + 1)
    for j in range(n):
        a = 0.0
        for i in range(j, n):
            a += factor[i * n + j] * (u[i] - old_u[i])
        shift += a * a
        a = -squares[j * n + j] - 1.0
        norm += a * a
        for i in range(j):
            norm += 2.0 * squares[j * n + i] * squares[j * n + i]
    changes[0], changes[1] = sqrt(shift), sqrt(norm)
