"""Rows of a sparse Gaussian process, one after the other, in whitened inducing variables.

With w ~ N(0, I), row n sees g_n = W_n'w, W_n = L^-1 k(Z, x_n), and f_n = g_n + N(0, residual_n). What is known is a
factor exp(-w'A w/2 + r'w): B = I + A = LB LB', c = LB^-1 r. A row with the site (tau, rho) on g adds rho W W' to A and
tau W to r, and turns LB by rotations [Gill1974]; c is turned with it as one more row of LB, as B is part of the matrix
[[B, r], [r', .]], which the row changes by (x, y)(x, y)' with x = sqrt(rho) W, y = tau/sqrt(rho). For rho < 0 the
rotations come from p = LB^-1 x [Stewart1979]: B - x x' is positive definite if and only if p'p < 1. In numbers, which
stand beside the lines that compute them:

    (1)  A += rho W W',  r += tau W
    (2)  l = sqrt(LB_kk^2 + x_k^2),  cos_k = LB_kk/l,  sin_k = x_k/l                            rho > 0, for each column
    (3)  (LB_ik, x_i) becomes (cos_k LB_ik + sin_k x_i, cos_k x_i - sin_k LB_ik), as does (c_k, y)
    (4)  gain = sum log cos_k - y^2/2                                                           rho > 0
    (5)  x = sqrt(-rho) W,  p = LB^-1 x,  alpha^2 = 1 - p'p                                     rho < 0
    (6)  gain = -log(1 - p'p)/2 + y^2/2                                                         rho < 0
    (7)  c += tau LB^-1 W,  gain = tau m + tau^2 v/2, or -rho (tau/rho - m)^2/2                 rho as good as 0
    (8)  m = t'c,  v = t't,  t = LB^-1 W                                                        moments of g

Design:
a) M x M matrices are in Fortran order and zero above the diagonal. PANEL_COLUMNS columns go together, so that the
   vector that goes along with them is loaded and stored once for all.
b) Rows are taken in lanes of eight counted from the last row, so that none are left over at the end. The first lanes of
   a panel then reach above it, where everything is zero and stays so; the triangle on the diagonal is put back.
c) The rotations of a panel are a chain of roots and divisions; the columns of A are added meanwhile.
d) A row is refused before anything of it is written: see `is_in_range`.
The same bits from every instruction set: all sums have a fixed order.
Measured on Zen 4 with AVX-512, M = 100 and 300: for one row solve_rows takes 2.0 and 6.5 us, marginals 1.7 and 5.3 us,
add_rows 4.2 and 18 us; of 1000 rows solve_rows takes 0.29 and 2.3 ms (dtrsm of OpenBLAS 0.65 and 4.0).

[Gill1974] P. E. Gill, G. H. Golub, W. Murray and M. A. Saunders, "Methods for modifying matrix factorizations",
Mathematics of Computation 28, 1974, section 5.
[Stewart1979] G. W. Stewart, "The effects of rounding error on an algorithm for downdating a Cholesky factorization",
Journal of the Institute of Mathematics and its Applications 23, 1979.
"""

from libc.math cimport fabs, log, log1p, sqrt
from libc.stdlib cimport free, malloc

from cavity._core.lanes cimport cv8, cv8_add, cv8_load, cv8_mul, cv8_set, cv8_store, cv8_sub
from cavity._core.lane_sums cimport aligned
from cavity._core.reference_points cimport ReferencePoints, points_of
from cavity._core.simd cimport CV_LANES, cv_combine, cv_sum_squares
from cavity._core.stream cimport cv_copy
from cavity._core.substitution cimport PANEL_COLUMNS, SOLVE_ROWS, first_lane, solve, solve_all, subtract_squares

cdef double MAX_TRACE_OF_A = 1e300          # entries of LB and their squares are finite
cdef double MAX_SUM_OF_R = 1e150            # of |r|: its square is finite
cdef double NEGLIGIBLE_CHANGE = 1e-32       # of x'x: B, at least 1 on its diagonal, keeps its value
cdef double LARGEST_RATIO = 1e300           # of squares and residuals to the noise, which are summed
cdef double MIN_DOWNDATE_PIVOT = 1e-12      # of 1 - p'p: less may be rounding


cdef inline double dot(const double *a, const double *b, Py_ssize_t n) noexcept nogil:
    """a'b, in lanes that are added in the order of cv_sum."""
    cdef double lanes[CV_LANES]
    cdef Py_ssize_t i, lane, whole = n // CV_LANES * CV_LANES
    for lane in range(CV_LANES):
        lanes[lane] = 0.0
    i = 0
    while i < whole:
        for lane in range(CV_LANES):
            lanes[lane] += a[i + lane] * b[i + lane]
        i += CV_LANES
    for lane in range(n - whole):
        lanes[lane] += a[whole + lane] * b[whole + lane]
    return cv_combine(lanes)


# ------------------------------------------------------------------------------------------------------------ new rows


cdef struct Posterior:              # of all rows so far
    Py_ssize_t n
    double *A                       # (n, n)
    double *r                       # (n,)
    double *LB                      # (n, n)
    double *c                       # (n,)

cdef struct Scratch:              # (n,) each
    double *rest                    # w, of which columns that A has got are zero
    double *along                   # the vector that goes along with the columns of LB
    double *cosine
    double *sine
    double *c                       # the new one


cdef inline bint is_in_range(const Posterior *q, const double *w, double tau, double rho, double *size) noexcept nogil:
    """Whether all sums stay in range, which no nan does; size = |rho| w'w."""
    cdef double trace = 0.0, sum_r = 0.0, squares = 0.0, change
    cdef Py_ssize_t i
    for i in range(q.n):
        change = rho * w[i] * w[i]
        squares += fabs(change)
        trace += fabs(q.A[i * (q.n + 1)] + change)
        sum_r += fabs(q.r[i] + tau * w[i])
    size[0] = squares
    return squares <= MAX_TRACE_OF_A and trace <= MAX_TRACE_OF_A and sum_r <= MAX_SUM_OF_R


cdef inline void add_panel(const Posterior *q, double rho, const double *w, Py_ssize_t j, Py_ssize_t width,
                           double *rest) noexcept nogil:
    """Add rho w w' to columns [j, j + width) of A; `rest` is w, zero before j, and then before j + width."""
    cdef Py_ssize_t n = q.n, i, k, first = first_lane(n, j + PANEL_COLUMNS)
    cdef double *column
    cdef double by[PANEL_COLUMNS]
    cdef cv8 a, b, c, d, x
    for k in range(width):
        by[k] = rho * w[j + k]
        column = q.A + (j + k) * n
        for i in range(j + k, j + width):
            column[i] += by[k] * w[i]                                           # (1)
        rest[j + k] = 0.0
    if j + PANEL_COLUMNS >= n:
        return
    column = q.A + j * n
    for k in range(PANEL_COLUMNS):
        for i in range(j + PANEL_COLUMNS, first):
            column[k * n + i] += by[k] * rest[i]
    a, b, c, d = cv8_set(by[0]), cv8_set(by[1]), cv8_set(by[2]), cv8_set(by[3])
    i = first
    while i < n:
        x = cv8_load(rest + i)
        cv8_store(column + i, cv8_add(cv8_load(column + i), cv8_mul(a, x)))
        cv8_store(column + n + i, cv8_add(cv8_load(column + n + i), cv8_mul(b, x)))
        cv8_store(column + 2 * n + i, cv8_add(cv8_load(column + 2 * n + i), cv8_mul(c, x)))
        cv8_store(column + 3 * n + i, cv8_add(cv8_load(column + 3 * n + i), cv8_mul(d, x)))
        i += CV_LANES


cdef inline void turn_one(double *a, double *b, double cosine, double sine) noexcept nogil:
    """(a, b) becomes (cosine a + sine b, cosine b - sine a)."""
    cdef double old = a[0]
    a[0] = cosine * old + sine * b[0]
    b[0] = cosine * b[0] - sine * old


cdef inline cv8 turn(double *a, cv8 b, cv8 cosine, cv8 sine) noexcept nogil:
    """The same for eight numbers; returns the new b."""
    cdef cv8 old = cv8_load(a)
    cv8_store(a, cv8_add(cv8_mul(cosine, old), cv8_mul(sine, b)))
    return cv8_sub(cv8_mul(cosine, b), cv8_mul(sine, old))


cdef void turn_rows(double *column, Py_ssize_t step, Py_ssize_t width, Py_ssize_t start, Py_ssize_t n,
                    const double *cosine, const double *sine, double *along) noexcept nogil:
    """Turn columns, `step` apart, and `along` in rows [start, n), and in up to seven above of whole panels."""
    cdef Py_ssize_t i, k, first = first_lane(n, start) if width == PANEL_COLUMNS else n
    cdef cv8 c0, c1, c2, c3, s0, s1, s2, s3, b
    for i in range(start, first):
        for k in range(width):
            turn_one(column + k * step + i, along + i, cosine[k], sine[k])
    if first >= n:
        return
    c0, c1, c2, c3 = cv8_set(cosine[0]), cv8_set(cosine[1]), cv8_set(cosine[2]), cv8_set(cosine[3])
    s0, s1, s2, s3 = cv8_set(sine[0]), cv8_set(sine[1]), cv8_set(sine[2]), cv8_set(sine[3])
    i = first
    while i < n:
        b = turn(column + i, cv8_load(along + i), c0, s0)
        b = turn(column + step + i, b, c1, s1)
        b = turn(column + 2 * step + i, b, c2, s2)
        cv8_store(along + i, turn(column + 3 * step + i, b, c3, s3))
        i += CV_LANES


cdef inline double update_panel(const Posterior *q, Py_ssize_t j, Py_ssize_t width, double *along,
                                double *y) noexcept nogil:
    """Turn columns [j, j + width) of LB so that `along`, zero before j, becomes zero before j + width.

    Returns the product of the cosines.
    """
    cdef double corner[PANEL_COLUMNS * PANEL_COLUMNS]
    cdef double own[PANEL_COLUMNS]
    cdef double cosine[PANEL_COLUMNS]
    cdef double sine[PANEL_COLUMNS]
    cdef double *columns = q.LB + j * q.n
    cdef double length, product = 1.0
    cdef Py_ssize_t i, k
    for k in range(width):
        own[k] = along[j + k]
        for i in range(width):
            corner[k * PANEL_COLUMNS + i] = columns[k * q.n + j + i]
    for k in range(width):
        length = sqrt(corner[k * PANEL_COLUMNS + k] * corner[k * PANEL_COLUMNS + k] + own[k] * own[k])     # (2)
        cosine[k], sine[k] = corner[k * PANEL_COLUMNS + k] / length, own[k] / length
        corner[k * PANEL_COLUMNS + k] = length
        product *= cosine[k]
        for i in range(k + 1, width):
            turn_one(&corner[k * PANEL_COLUMNS + i], &own[i], cosine[k], sine[k])                          # (3)
        turn_one(q.c + j + k, y, cosine[k], sine[k])
    if j + PANEL_COLUMNS < q.n:
        turn_rows(columns, q.n, PANEL_COLUMNS, j + PANEL_COLUMNS, q.n, cosine, sine, along)
    for k in range(width):
        along[j + k] = 0.0
        for i in range(width):
            columns[k * q.n + j + i] = corner[k * PANEL_COLUMNS + i]
    return product


cdef double update(const Posterior *q, const double *w, double tau, double rho, Scratch *work) noexcept nogil:
    """Add a row with rho > 0; returns its gain: the cosines are diagonals of LB, old over new, and y becomes
    (tau/rho - mean)/sqrt(1/rho + variance), from c'c + y^2 = constant.
    """
    cdef double root = sqrt(rho), y = tau / root, product = 1.0
    cdef Py_ssize_t n = q.n, i, j
    for i in range(n):
        work.along[i] = root * w[i]
        work.rest[i] = w[i]
    j = 0
    while j < n:
        product *= update_panel(q, j, min(<Py_ssize_t>PANEL_COLUMNS, n - j), work.along, &y)
        add_panel(q, rho, w, j, min(<Py_ssize_t>PANEL_COLUMNS, n - j), work.rest)
        j += PANEL_COLUMNS
    return log(product) - 0.5 * y * y                                           # (4)


cdef bint downdate(const Posterior *q, const double *w, double tau, double rho, Scratch *work,
                   double *gain) noexcept nogil:
    """Turn LB and c for a row with rho < 0, or nothing if B would not stay positive definite."""
    cdef double root = sqrt(-rho), y = -tau / root, alpha, length, sum_c = 0.0
    cdef double *p = work.along
    cdef Py_ssize_t n = q.n, i, j, width
    for i in range(n):
        p[i] = root * w[i]
    solve(q.LB, n, p)                                                         # (5)
    alpha = 1.0 - cv_sum_squares(p, n)
    if not alpha > MIN_DOWNDATE_PIVOT:
        return False
    gain[0] = -0.5 * log(alpha)
    alpha = sqrt(alpha)
    for i in range(n):                      # the rotations in the order of their use: from the last column on
        j = n - 1 - i
        length = sqrt(alpha * alpha + p[j] * p[j])
        work.cosine[i], work.sine[i] = alpha / length, -p[j] / length
        alpha = length
    for j in range(n):
        i = n - 1 - j
        work.c[j] = (q.c[j] + work.sine[i] * y) / work.cosine[i]
        y = work.cosine[i] * y + work.sine[i] * work.c[j]
        sum_c += fabs(work.c[j])
    if not sum_c <= MAX_SUM_OF_R:
        return False
    gain[0] += 0.5 * y * y                                                      # (6)
    for j in range(n):
        q.c[j] = work.c[j]
        work.along[j] = 0.0
    i = 0
    while i < n:
        width = min(<Py_ssize_t>PANEL_COLUMNS, n - i)
        turn_rows(q.LB + (n - 1 - i) * n, -n, width, n - i - width, n, work.cosine + i, work.sine + i, work.along)
        i += PANEL_COLUMNS
    return True


cdef bint shift(const Posterior *q, const double *w, double tau, double rho, Scratch *work,
                double *gain) noexcept nogil:
    """Turn c for a row whose rho changes nothing."""
    cdef double *t = work.along
    cdef double mean, variance, difference, sum_c = 0.0
    cdef Py_ssize_t i
    for i in range(q.n):
        t[i] = w[i]
    solve(q.LB, q.n, t)
    mean, variance = dot(t, q.c, q.n), cv_sum_squares(t, q.n)             # (8)
    for i in range(q.n):
        t[i] = q.c[i] + tau * t[i]                                            # (7)
        sum_c += fabs(t[i])
    if not sum_c <= MAX_SUM_OF_R:
        return False
    for i in range(q.n):
        q.c[i] = t[i]
    if rho == 0.0:
        gain[0] = tau * mean + 0.5 * tau * tau * variance
    else:
        difference = tau / rho - mean
        gain[0] = -0.5 * (rho * difference) * difference
    return True


cdef bint add_row(const Posterior *q, const double *w, double tau, double rho, Scratch *work,
                  double *gain) noexcept nogil:
    """Whether the row could be added."""
    cdef double size
    cdef Py_ssize_t i, j
    if not is_in_range(q, w, tau, rho, &size):
        return False
    if size >= NEGLIGIBLE_CHANGE and rho > 0.0:
        gain[0] = update(q, w, tau, rho, work)
    else:
        if not (downdate if size >= NEGLIGIBLE_CHANGE else shift)(q, w, tau, rho, work, gain):
            return False
        for i in range(q.n):
            work.rest[i] = w[i]
        j = 0
        while j < q.n:
            add_panel(q, rho, w, j, min(<Py_ssize_t>PANEL_COLUMNS, q.n - j), work.rest)
            j += PANEL_COLUMNS
    for i in range(q.n):
        q.r[i] += tau * w[i]                                                  # (1)
    return True


# ---------------------------------------------------------------------------------------------------------- operations


cdef double *allocate(Py_ssize_t n_numbers) except NULL:
    cdef double *work = <double *>malloc((n_numbers + 1) * sizeof(double))
    if work == NULL:
        raise MemoryError
    return work


cdef inline Scratch scratch_in(double *memory, Py_ssize_t n) noexcept nogil:
    """Five vectors of n numbers in some memory."""
    cdef Scratch work
    work.rest, work.along, work.cosine = memory, memory + n, memory + 2 * n
    work.sine, work.c = memory + 3 * n, memory + 4 * n
    return work


def solve_rows(const double[::1, :] L,      # in    (M, M): lower triangle, zero above
               double[:, ::1] rows,         # inout (N, M): k(x, Z), then W = rows L^-T
               const double[::1] prior,     # in    (N,): k(x, x)
               double[::1] residual, /):    # out   (N,): prior - W'W, not below 0
    """Whiten rows; what becomes of one does not depend on the others."""
    cdef Py_ssize_t n = rows.shape[0], size = rows.shape[1], together = 1 if n < CV_LANES else SOLVE_ROWS, i = 0
    cdef const double *factor = &L[0, 0] if size else NULL
    cdef double *memory = allocate(size * together + CV_LANES)
    with nogil:
        while size and i < n:
            solve_all(factor, size, &rows[i, 0], min(together, n - i), aligned(memory))
            i += together
        for i in range(n):
            residual[i] = subtract_squares(prior[i], &rows[i, 0] if size else NULL, size)
    free(memory)


def marginals(const double[::1, :] LB,      # in    (M, M): lower triangle, zero above
              const double[::1] c,          # in    (M,)
              const double[:, ::1] W,       # in    (N, M)
              double[::1] mean,             # out   (N,)
              double[::1] variance, /):     # out   (N,)
    """Posterior moments of g = W'w: t'c and t't with t = LB^-1 W; those of one row do not depend on the others."""
    cdef Py_ssize_t n = W.shape[0], size = W.shape[1], together = 1 if n < CV_LANES else SOLVE_ROWS, i = 0, j, present
    cdef const double *factor = &LB[0, 0] if size else NULL
    cdef double *memory = allocate(2 * size * together + CV_LANES)
    cdef double *t = aligned(memory)
    with nogil:
        while i < n:
            present = min(together, n - i)
            if size:
                cv_copy(t, &W[i, 0], present * size)
                solve_all(factor, size, t, present, t + together * size)
            for j in range(present):
                mean[i + j] = dot(t + j * size, &c[0] if size else NULL, size)  # (8)
                variance[i + j] = cv_sum_squares(t + j * size, size)
            i += together
    free(memory)


def add_rows(const double[:, ::1] W,        # in    (N, M)
             const double[::1] tau,         # in    (N,): sites on g
             const double[::1] rho,         # in    (N,)
             double[::1, :] A,              # inout (M, M): lower triangle, zero above
             double[::1] r,                 # inout (M,)
             double[::1, :] LB,             # inout (M, M): the Cholesky factor of I + A, zero above
             double[::1] c,                 # inout (M,): LB^-1 r
             double[::1] gain=None, /):     # out   (N,): log of the mean of the site, 1 at its mode, before it is added
    """Add rows until one cannot be: I + A would not be positive definite, or a sum leaves the range of numbers.

    Returns its index, or N. Of a row that is not added nothing is written. What a site of height one at its mode
    g = tau/rho (at g = 0 if rho = 0) adds to the log integral of all sites, c'c/2 - sum log diag LB, is found without
    the difference of such sums: -log(1 + rho v)/2 - (tau/rho - m)^2/(1/rho + v)/2 with the moments m, v of g.
    """
    cdef Py_ssize_t n = W.shape[0], size = W.shape[1], i = 0
    cdef double skipped
    cdef bint keep = gain is not None
    cdef double *memory
    cdef Posterior q
    cdef Scratch work
    if size == 0:
        for i in range(n if keep else 0):
            gain[i] = -0.5 * tau[i] / rho[i] * tau[i] if rho[i] else 0.0
        return n
    memory = allocate(5 * size)
    work = scratch_in(memory, size)
    q.n, q.A, q.r, q.LB, q.c = size, &A[0, 0], &r[0], &LB[0, 0], &c[0]
    with nogil:
        while i < n and add_row(&q, &W[i, 0], tau[i], rho[i], &work, &gain[i] if keep else &skipped):
            i += 1
    free(memory)
    return i


def add_observation(const double[:, ::1] W,     # in    (1, M)
                    double tau,                 # site on g
                    double rho,
                    double[::1, :] A,           # inout (M, M): lower triangle, zero above
                    double[::1] r,              # inout (M,)
                    double[::1, :] LB,          # inout (M, M): the Cholesky factor of I + A, zero above
                    double[::1] c,              # inout (M,): LB^-1 r
                    double[::1] sums,           # inout (5,): log scale or bound, weights, distances, residuals, which
                    double[::1] totals,         # inout (4,): rows, updates, log bound, its last increment
                    double first,               # the first of the sums, as it then is
                    double weight,              # what is added to the next three
                    double square,
                    double residual,
                    double increment,           # of the log bound, less the gain of a site of height one
                    bint matched, /):           # whether the increment is all, and `first` the log bound
    """Add one row as add_rows does, and what goes with it to all sums; False, and nothing written, if it cannot be.

    All is done when the call returns, so that nothing can come between.
    """
    cdef Py_ssize_t size = W.shape[1]
    cdef double gain = 0.0
    cdef double *memory
    cdef Posterior q
    cdef Scratch work
    cdef bint done
    if size == 0:
        return False
    memory = allocate(5 * size)
    work = scratch_in(memory, size)
    q.n, q.A, q.r, q.LB, q.c = size, &A[0, 0], &r[0], &LB[0, 0], &c[0]
    with nogil:
        done = add_row(&q, &W[0, 0], tau, rho, &work, &gain)
    free(memory)
    if done:
        sums[0] = first
        sums[1] += weight
        sums[2] += square
        sums[3] += residual
        sums[4] = matched
        totals[0] += 1.0
        totals[1] += 1.0
        totals[3] = increment if matched else increment + gain
        totals[2] += totals[3]
    return done


cdef class RowObserver:
    """Adds rows of Gaussian noise in place, one a call: Target.fill, solve_rows and add_observation, bit by bit."""

    cdef object target
    cdef const ReferencePoints *points
    cdef const double[::1, :] L
    cdef double[::1, :] A, LB
    cdef double[::1] r, c, sums, totals
    cdef double variance, mean, noise, alpha, limit, log_noise

    def __init__(self,
                 target,                        # a Target of M points
                 const double[::1, :] L,        # (M, M), M > 0
                 double[::1, :] A, double[::1] r, double[::1, :] LB, double[::1] c,     # as for add_rows
                 double[::1] sums, double[::1] totals,                                  # as for add_observation
                 double variance,               # k(x, x) of every row
                 double mean,                   # prior mean of every row
                 double noise,                  # its variance
                 double alpha,
                 double limit,                  # residuals above it are refused
                 double log_noise, /):          # log(2 pi noise)
        self.target, self.points, self.L = target, points_of(target), L
        self.A, self.r, self.LB, self.c, self.sums, self.totals = A, r, LB, c, sums, totals
        self.variance, self.mean, self.noise, self.alpha = variance, mean, noise, alpha
        self.limit, self.log_noise = limit, log_noise

    def observe(self, const double[:, ::1] X, double y, /):
        """Add a row X (1, D); False, and nothing written, if it takes more than that."""
        cdef Py_ssize_t size = self.r.shape[0]
        cdef double *memory = allocate(6 * size)
        cdef double *w = memory + 5 * size
        cdef double residual, spread, rho, loss, square, rest, first, target, gain = 0.0
        cdef Posterior q
        cdef Scratch work = scratch_in(memory, size)
        cdef bint done = False
        q.n, q.A, q.r, q.LB, q.c = size, &self.A[0, 0], &self.r[0], &self.LB[0, 0], &self.c[0]
        with nogil:
            if self.sums[4] == 0.0 and self.points.fill(self.points, &X[0, 0] if X.shape[1] else NULL, 1, w) == 1:
                solve(&self.L[0, 0], size, w)
                residual = subtract_squares(self.variance, w, size)
                target, rho = y - self.mean, 1.0 / self.noise
                spread = rho * residual
                square = rho * target * target
                loss = 0.5 * spread
                if self.alpha != 0.0:
                    loss = 0.5 * log1p(self.alpha * spread) / self.alpha
                    rho = rho / (1.0 + self.alpha * spread)
                rest = -0.5 * self.log_noise - loss
                first = self.sums[0] + rest - 0.5 * rho * target * target
                if residual <= self.limit and square <= LARGEST_RATIO and spread <= LARGEST_RATIO:
                    done = add_row(&q, w, rho * target, rho, &work, &gain)
            if done:
                self.sums[0] = first
                self.sums[1] += 1.0
                self.sums[2] += square
                self.sums[3] += spread
                self.totals[0] += 1.0
                self.totals[1] += 1.0
                self.totals[3] = rest + gain
                self.totals[2] += self.totals[3]
        free(memory)
        return done
