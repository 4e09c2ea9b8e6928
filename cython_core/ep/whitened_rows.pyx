"""Sums over rows of a sparse Gaussian process: A = sum rho W W', r = sum tau W, W = L^-1 k(Z, x).

Design:
a) TILE_ROWS rows are in the cache from their covariances to their sums; a call needs memory for these rows and A.
b) After the substitution, whose bits are those of single rows, W stands in groups of SOLVE_ROWS columns, a group of all
   rows after the other, with zeros beyond the last column. So products read memory in its order.
c) PANEL_COLUMNS columns times up to CV_GROUPS registers of eight have their sums in registers together. What lies above
   the diagonal is left out, but for the triangles of panels.
d) An entry is the sum of its terms in the order of the rows: the bits depend neither on the instruction set nor on the
   size of tiles.
Measured on Zen 5, one thread, 256 rows, M = 100 and 300, D = 8: 83 and 510 us on AVX-512 (covariances 20 and 50, sums
36 and 245, where dsyrk of OpenBLAS takes 60 and 450), 142 and 940 us on AVX2.
"""

from libc.math cimport log1p
from libc.stdlib cimport free, malloc
from libc.string cimport memset

from cavity._core.lane_sums cimport aligned, sum_of_lanes
from cavity._core.lanes cimport cv8, cv8_add, cv8_load, cv8_mul, cv8_set, cv8_store, cv8_transpose, template
from cavity._core.reference_points cimport ReferencePoints, points_of
from cavity._core.simd cimport CV_LANES
from cavity._core.substitution cimport (
    CV_GROUPS, MAX_GROUPS, PANEL_COLUMNS, SOLVE_ROWS, exchange, solve_panels,
)

cdef enum:
    TILE_ROWS = 96              # a multiple of SOLVE_ROWS

cdef struct Tile:
    Py_ssize_t n_columns        # M
    Py_ssize_t n_groups         # of SOLVE_ROWS columns
    Py_ssize_t width            # n_groups SOLVE_ROWS
    double *rows                # (TILE_ROWS, M): covariances
    double *x                   # (width, SOLVE_ROWS): rows in columns
    double *W                   # (n_groups, TILE_ROWS, SOLVE_ROWS)
    double *scaled              # the same, times rho
    double *tau                 # (TILE_ROWS,): sites on g
    double *rho                 # (TILE_ROWS,)
    double *r                   # (width,)
    double *A                   # (width, width): (j, i), i >= j; more beyond


cdef bint open_tile(Tile *tile, Py_ssize_t n_columns, void **memory) noexcept nogil:
    """Allocate a tile, all sums and columns beyond M zero."""
    cdef Py_ssize_t size, each
    tile.n_columns, tile.n_groups = n_columns, (n_columns + SOLVE_ROWS - 1) // SOLVE_ROWS
    tile.width = tile.n_groups * SOLVE_ROWS
    each = TILE_ROWS * tile.width
    size = 3 * each + (SOLVE_ROWS + 1 + tile.width) * tile.width + 2 * TILE_ROWS
    memory[0] = malloc((size + CV_LANES) * sizeof(double))
    if memory[0] == NULL:
        return False
    tile.W = aligned(memory[0])
    tile.scaled, tile.rows = tile.W + each, tile.W + 2 * each
    tile.x = tile.W + 3 * each
    tile.A = tile.x + SOLVE_ROWS * tile.width
    tile.r = tile.A + tile.width * tile.width
    tile.tau, tile.rho = tile.r + tile.width, tile.r + tile.width + TILE_ROWS
    memset(tile.W, 0, each * sizeof(double))
    memset(tile.x, 0, (SOLVE_ROWS + 1 + tile.width) * tile.width * sizeof(double))
    return True


cdef void place(const Tile *tile, Py_ssize_t first, Py_ssize_t n_rows) noexcept nogil:
    """W = x, n_rows rows of the tile from `first` on, and rows of zeros up to SOLVE_ROWS."""
    cdef cv8 square[CV_LANES]
    cdef Py_ssize_t i, g, k
    cdef double *to
    for i in range((tile.n_columns + CV_LANES - 1) // CV_LANES):
        to = tile.W + (i // CV_GROUPS * TILE_ROWS + first) * SOLVE_ROWS + i % CV_GROUPS * CV_LANES
        for g in range(CV_GROUPS):
            for k in range(CV_LANES):
                square[k] = cv8_load(tile.x + ((i * CV_LANES + k) * CV_GROUPS + g) * CV_LANES)
            cv8_transpose(square)
            for k in range(CV_LANES):
                cv8_store(to + (g * CV_LANES + k) * SOLVE_ROWS, square[k])


cdef inline double sum_squares(const Tile *tile, Py_ssize_t row) noexcept nogil:
    """W'W of a row, in the order of cv_sum_squares."""
    cdef cv8 total = cv8_set(0.0), x
    cdef Py_ssize_t i
    for i in range((tile.n_columns + CV_LANES - 1) // CV_LANES):
        x = cv8_load(tile.W + (i // CV_GROUPS * TILE_ROWS + row) * SOLVE_ROWS + i % CV_GROUPS * CV_LANES)
        total = cv8_add(total, cv8_mul(x, x))
    return sum_of_lanes(total)


cdef void scale(const Tile *tile, Py_ssize_t n_rows) noexcept nogil:
    """scaled = rho W, r += tau W."""
    cdef cv8 total[MAX_GROUPS]
    cdef cv8 x, tau, rho
    cdef Py_ssize_t group, row, g, at
    for group in range(tile.n_groups):
        for g in range(CV_GROUPS):
            total[g] = cv8_load(tile.r + (group * CV_GROUPS + g) * CV_LANES)
        for row in range(n_rows):
            tau, rho = cv8_set(tile.tau[row]), cv8_set(tile.rho[row])
            at = (group * TILE_ROWS + row) * SOLVE_ROWS
            for g in range(CV_GROUPS):
                x = cv8_load(tile.W + at + g * CV_LANES)
                total[g] = cv8_add(total[g], cv8_mul(tau, x))
                cv8_store(tile.scaled + at + g * CV_LANES, cv8_mul(rho, x))
        for g in range(CV_GROUPS):
            cv8_store(tile.r + (group * CV_GROUPS + g) * CV_LANES, total[g])


cdef inline template add_products(Py_ssize_t count, const double *left, const double *right, Py_ssize_t n_rows,
                                  double *out, Py_ssize_t stride) noexcept nogil:
    """out (PANEL_COLUMNS, 8 count) += left' right, n_rows rows of groups of columns."""
    cdef cv8 total[PANEL_COLUMNS][MAX_GROUPS]
    cdef cv8 at[MAX_GROUPS]
    cdef cv8 factor
    cdef Py_ssize_t row, k, g
    for k in range(PANEL_COLUMNS):
        for g in range(count):
            total[k][g] = cv8_load(out + k * stride + g * CV_LANES)
    for row in range(n_rows):
        for g in range(count):
            at[g] = cv8_load(right + row * SOLVE_ROWS + g * CV_LANES)
        for k in range(PANEL_COLUMNS):
            factor = cv8_set(left[row * SOLVE_ROWS + k])
            for g in range(count):
                total[k][g] = cv8_add(total[k][g], cv8_mul(factor, at[g]))
    for k in range(PANEL_COLUMNS):
        for g in range(count):
            cv8_store(out + k * stride + g * CV_LANES, total[k][g])


cdef void add_squares(const Tile *tile, Py_ssize_t n_rows) noexcept nogil:
    """A += scaled' W on and above the diagonal (j, i)."""
    cdef Py_ssize_t group, panel, j, skipped, used
    cdef const double *left
    cdef const double *right
    cdef double *out
    for group in range(tile.n_groups):
        right = tile.W + group * TILE_ROWS * SOLVE_ROWS
        used = min((tile.n_columns - group * SOLVE_ROWS + CV_LANES - 1) // CV_LANES, <Py_ssize_t>CV_GROUPS)
        for panel in range(min((group + 1) * SOLVE_ROWS, tile.n_columns + PANEL_COLUMNS - 1) // PANEL_COLUMNS):
            j = panel * PANEL_COLUMNS
            left = tile.scaled + j // SOLVE_ROWS * TILE_ROWS * SOLVE_ROWS + j % SOLVE_ROWS
            out = tile.A + j * tile.width + group * SOLVE_ROWS
            skipped = max((j - group * SOLVE_ROWS) // CV_LANES, <Py_ssize_t>0) if j >= group * SOLVE_ROWS else 0
            if used - skipped >= 3:
                add_products(CV_GROUPS, left, right, n_rows, out, tile.width)
            elif used - skipped == 2:
                add_products(min(<Py_ssize_t>2, <Py_ssize_t>CV_GROUPS), left, right + skipped * CV_LANES, n_rows,
                             out + skipped * CV_LANES, tile.width)
            else:
                add_products(1, left, right + skipped * CV_LANES, n_rows, out + skipped * CV_LANES, tile.width)


cdef void close_sums(const Tile *tile, Py_ssize_t n, double[::1, :] A, double[::1] r) noexcept nogil:
    """Add the sums to A and r."""
    cdef Py_ssize_t i, j
    for j in range(n):
        r[j] += tile.r[j]
        for i in range(j, n):
            A[i, j] += tile.A[j * tile.width + i]


cdef void find_sites(const Tile *tile, Py_ssize_t n_rows, const double *tau, const double *rho, const double *fraction,
                     Py_ssize_t fractions, const double *residual, const double *y, double *numbers) noexcept nogil:
    """Sites on g of those on f: (tau, rho)/(1 + fraction rho residual), and the numbers that `add_rows` adds up."""
    cdef Py_ssize_t row
    cdef double f, extra, spread
    for row in range(n_rows):
        f = fraction[row * fractions]
        extra = f * rho[row] * residual[row]
        spread = 1.0 + extra
        tile.tau[row], tile.rho[row] = tau[row] / spread, rho[row] / spread
        if not spread > 0.0:
            numbers[4] += 1.0
            continue
        numbers[0] += rho[row] * residual[row] if f == 0.0 else log1p(extra) / f
        numbers[3] += rho[row] * residual[row]
        if y != NULL:
            numbers[1] += tile.rho[row] * y[row] * y[row]
            numbers[2] += rho[row] * y[row] * y[row]
        else:
            numbers[1] -= f * tile.tau[row] * tau[row] * residual[row]


cdef Py_ssize_t fill_tile(const ReferencePoints *points, const double *X, double *rows, Py_ssize_t n) noexcept nogil:
    """Covariances of n rows. Returns n, the first row that is refused, or -1 without memory."""
    return n if points == NULL else points.fill(points, X, n, rows)


cdef void whiten(const Tile *tile, const double *L, double *rows, Py_ssize_t n_rows, bint keep) noexcept nogil:
    """W of the tile from rows of covariances, which become W if `keep`; from rows of W if L is NULL."""
    cdef Py_ssize_t at = 0, present, n = tile.n_columns
    while at < n_rows:
        present = min(<Py_ssize_t>SOLVE_ROWS, n_rows - at)
        exchange(rows + at * n, present, n, tile.x, False)
        if L != NULL:
            solve_panels(L, n, tile.x)
            if keep:
                exchange(rows + at * n, present, n, tile.x, True)
        place(tile, at, present)
        at += SOLVE_ROWS


cdef inline const double *start_of(const double[::1] values) noexcept nogil:
    """The first of some numbers, NULL if there are none."""
    return &values[0] if values.shape[0] else NULL


def add_rows(target,                            # a Target, or None: then W are covariances, or W if `whitened`
             const double[:, ::1] X,            # in    (N, D); read if there is a target
             const double[::1, :] L,            # in    (M, M): lower triangle, zero above
             double[:, ::1] W,                  # inout (N, M): W in the end; without rows it is not kept
             bint whitened,                     # in    whether W and residual are known
             const double[::1] prior,           # in    (N,): k(x, x)
             double[::1] residual,              # out   (N,): prior - W'W, not below 0
             const double[::1] tau,             # in    (N,): sites on f
             const double[::1] rho,             # in    (N,)
             const double[::1] fraction,        # in    (N,) or (1,): on g (tau, rho)/(1 + fraction rho residual)
             const double[::1] y,               # in    (N,): tau/rho, or empty
             double[::1, :] A,                  # inout (M, M): its lower triangle
             double[::1] r,                     # inout (M,)
             double[::1] numbers, /):           # inout (5,)
    """Whiten rows and add their sites to the sums. Returns N, or a row that the target refuses: no sums then.

    To numbers are added log(1 + fraction rho residual)/fraction, rho residual where fraction is 0; rho_g y^2, or
    -fraction tau_g tau residual without y, with the site on g; rho y^2; rho residual; and the number of rows where
    1 + fraction rho residual is not positive, of which nothing else is added to them.
    """
    cdef Py_ssize_t n = residual.shape[0], size = L.shape[0], width = X.shape[1], start = 0, here, at, i
    cdef Py_ssize_t fractions = 1 if fraction.shape[0] > 1 else 0
    cdef const ReferencePoints *points = NULL
    cdef bint keep = W.shape[0] > 0
    cdef double left
    cdef double sums[5]
    cdef const double *triangle = NULL
    cdef const double *observed = start_of(y)
    cdef double *rows
    cdef void *memory = NULL
    cdef Tile tile
    if not whitened and size:
        triangle = &L[0, 0]
    if target is not None:
        points = points_of(target)
    memset(sums, 0, sizeof(sums))
    with nogil:
        if not open_tile(&tile, size, &memory):
            n = -1
        while start < n:
            here = min(<Py_ssize_t>TILE_ROWS, n - start)
            rows = &W[start, 0] if keep and size else tile.rows
            at = fill_tile(points, &X[start, 0] if width else NULL, rows, here)
            if at != here:
                n = -1 if at < 0 else start + at
                break
            whiten(&tile, triangle, rows, here, keep)
            for i in range(0 if whitened else here):
                left = prior[start + i] - sum_squares(&tile, i)
                residual[start + i] = 0.0 if left < 0.0 else left
            find_sites(&tile, here, &tau[start], &rho[start], &fraction[start * fractions], fractions,
                       &residual[start], observed + start if observed != NULL else NULL, sums)
            scale(&tile, here)
            add_squares(&tile, here)
            start += TILE_ROWS
        else:
            if n > 0:
                close_sums(&tile, size, A, r)
                for i in range(5):
                    numbers[i] += sums[i]
        free(memory)
    if n < 0:
        raise MemoryError
    return n
