"""Beliefs over few weights from sums over sites, where calls of LAPACK take longer than the work.

C = diag(root) is the root of the prior covariance, L L' = I + C h C the precision of the whitened weights u. Triangles
are walked along their rows, two at a time and in tiles of columns whose sums stay in registers: no sum is cut into
lanes, and all instruction sets return the same bits.
"""
from libc.float cimport DBL_MAX
from libc.math cimport fabs, sqrt

from cavity._core.lanes cimport CV_WIDTH, cv8, cv8_load, cv8_mul, cv8_set, cv8_store, cv8_sub, cv8_transpose, template
from cavity._core.simd cimport CV_LANES


cdef inline void take(double *row, double times, const double *other, Py_ssize_t n) noexcept nogil:
    """Take a multiple of another row off a row."""
    cdef Py_ssize_t j
    for j in range(n):
        row[j] -= times * other[j]


cdef inline template take_tile(
    int rows, int groups, Py_ssize_t n, const double *factor, Py_ssize_t between, Py_ssize_t step, const double *other,
    Py_ssize_t m, double *x,
) noexcept nogil:
    """`take_tiles` for 8 groups columns, numbers that the compiler knows."""
    cdef cv8 total[2][2]
    cdef cv8 at[2]
    cdef cv8 f
    cdef Py_ssize_t k
    cdef int r, g
    for r in range(rows):
        for g in range(groups):
            total[r][g] = cv8_load(x + r * n + g * CV_LANES)
    for k in range(m):
        for g in range(groups):
            at[g] = cv8_load(other + k * n + g * CV_LANES)
        for r in range(rows):
            f = cv8_set(factor[r * between + k * step])
            for g in range(groups):
                total[r][g] = cv8_sub(total[r][g], cv8_mul(f, at[g]))
    for r in range(rows):
        for g in range(groups):
            cv8_store(x + r * n + g * CV_LANES, total[r][g])


cdef inline void take_tiles(
    int rows, Py_ssize_t groups, Py_ssize_t columns, Py_ssize_t n, const double *factor, Py_ssize_t between,
    Py_ssize_t step, const double *other, Py_ssize_t m, double *x,
) noexcept nogil:
    """Take multiples factor[r between + k step] of m rows `other` off rows r < rows <= 2 of x, in their order.

    Rows of both are n apart, and have 8 groups columns, or a few if groups is 0.
    """
    cdef Py_ssize_t k
    cdef int r
    if groups == 2 and rows == 2:
        take_tile(2, 2, n, factor, between, step, other, m, x)
    elif groups == 2:
        take_tile(1, 2, n, factor, between, step, other, m, x)
    elif groups and rows == 2:
        take_tile(2, 1, n, factor, between, step, other, m, x)
    elif groups:
        take_tile(1, 1, n, factor, between, step, other, m, x)
    else:
        for r in range(rows):
            for k in range(m):
                take(x + r * n, factor[r * between + k * step], other + k * n, columns)


cdef inline Py_ssize_t groups_of(Py_ssize_t columns, Py_ssize_t room) noexcept nogil:
    """Groups of eight columns that a tile of at most so many columns takes, where there is room for so many.

    On the baseline the sums of two would not stay in registers.
    """
    return 2 if columns > CV_LANES and room >= 2 * CV_LANES and CV_WIDTH > 2 else 1 if room >= CV_LANES else 0


cdef inline void transpose(Py_ssize_t n, const double *a, double *out) noexcept nogil:
    """out = a' (n, n), in squares that registers hold."""
    cdef cv8 square[CV_LANES]
    cdef Py_ssize_t whole = n // CV_LANES * CV_LANES, top, left, i, j
    cdef int k
    for top in range(0, whole, 8):
        for left in range(0, whole, 8):
            for k in range(CV_LANES):
                square[k] = cv8_load(a + (top + k) * n + left)
            cv8_transpose(square)
            for k in range(CV_LANES):
                cv8_store(out + (left + k) * n + top, square[k])
    for i in range(n):
        for j in range(whole if i < whole else 0, n):
            out[j * n + i] = a[i * n + j]


cdef inline bint factorised(double *upper, Py_ssize_t n) noexcept nogil:
    """Turn the upper triangle of a matrix into L', its factor; False if it is not positive definite.

    What is below the triangle is overwritten.
    """
    cdef Py_ssize_t top, k, j, right, groups, width
    cdef int rows
    cdef double pivot
    for top in range(0, n, 2):
        rows = 2 if top + 1 < n else 1
        right = n
        while right > top:
            groups = groups_of(right - top, right)
            width = groups * CV_LANES if groups else right - top
            right -= width
            take_tiles(rows, groups, width, n, upper + top, 1, n, upper + right, top, upper + top * n + right)
        for k in range(top, top + rows):
            if k > top:
                take(upper + k * n + k, upper[top * n + k], upper + top * n + k, n - k)
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
    cdef Py_ssize_t top, i, j, left, groups, width
    cdef int rows
    for top in range(0, n, 2):
        rows = 2 if top + 1 < n else 1
        left = 0
        while left < top:                       # rows above `left` are zero in these columns
            groups = groups_of(top - left, n - left)
            width = groups * CV_LANES if groups else top - left
            take_tiles(rows, groups, width, n, factor + top * n + left, n, 1, x + left * n + left, top - left,
                       x + top * n + left)
            left += width
        for i in range(top, top + rows):
            if i > top:
                take(x + i * n, factor[i * n + top], x + top * n, i)
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
    cdef bint finite = True
    for i in range(n):
        u[i] = root[i] * g[i]
        finite = finite and fabs(u[i]) <= DBL_MAX
        for j in range(i + 1):
            triangle[i * n + j] = root[i] * h[i * n + j] * root[j]
        triangle[i * n + i] += 1.0
        for j in range(i + 1):
            finite &= fabs(triangle[i * n + j]) <= DBL_MAX
        for j in range(i + 1, n):
            triangle[i * n + j] = 0.0
    if not finite:
        return False
    transpose(n, triangle, wide)
    if not factorised(wide, n):
        return False
    transpose(n, wide, factor)
    for i in range(n):
        for j in range(i + 1, n):
            factor[i * n + j] = 0.0
        for j in range(n):
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
    transpose(n, triangle, wide)
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
    cdef Py_ssize_t i, j, left, groups, width
    cdef int rows
    cdef double shift = 0.0, norm = 0.0, a
    for i in range(n * n):
        ratio[i] = old_factor[i]
        squares[i] = 0.0
    solve_triangle(n, factor, ratio)
    for j in range(0, n, 2):
        rows = 2 if j + 1 < n else 1
        left = 0
        while left < j + rows:
            groups = groups_of(j + rows - left, n - left)
            width = groups * CV_LANES if groups else j + rows - left
            take_tiles(rows, groups, width, n, ratio + j * n + j, 1, n, ratio + j * n + left, n - j,
                       squares + j * n + left)
            left += width
    for j in range(n):
        ratio[j] = 0.0                          # L'(u - u_old) takes the place of its first row
    for i in range(n):
        take(ratio, old_u[i] - u[i], factor + i * n, i + 1)
    for j in range(n):
        shift += ratio[j] * ratio[j]
        a = -squares[j * n + j] - 1.0
        norm += a * a
        for i in range(j):
            norm += 2.0 * squares[j * n + i] * squares[j * n + i]
    changes[0], changes[1] = sqrt(shift), sqrt(norm)
