"""Parallel EP on f = x'a + base, a ~ N(mean, triangle' triangle): rows go through once, in groups of 128.

Design:
* The rows of a group stand side by side in columns, as in gaussian_mixture.pyx; include/cavity_tiles.h has the loops
  over coordinates. A group is in the cache from its moments to its sums, so that nothing is kept between steps.
* Only lower triangles are formed, of a root of the covariance and of X' R X.
* Sums are in eight lanes within a group (row i in lane i mod 8), and groups are added in their order: the result
  depends on the rows of a call alone.
"""

from libc.math cimport NAN
from libc.stdlib cimport free, malloc

from cavity._core.belief cimport find_posterior, measure_change
from cavity._core.lanes cimport CV_STEP, cv8, cv8_add, cv8_load, cv8_mul, cv8_set, cv8_store
from cavity._core.lane_sums cimport aligned
from cavity._core.simd cimport CV_LANES
from cavity._core.site_calls cimport connect
from cavity._core.site_rows cimport SITE_ROWS, Rows, note_pass, renew_tile, spread_out, unpack_rows
from cavity._core.tiles cimport (
    CV_STRIP, CV_TILE, CV_TILE_SUMS, cv_coordinates, cv_distance, cv_first_tile, cv_moments,
)

connect()

cdef enum:
    WHOLE_ROWS = 32             # a multiple of CV_STRIP and of CV_STEP lanes

cdef struct Design:
    Py_ssize_t n_rows, n_columns
    const double *x         # (N, D)
    const double *base      # (N,), or one number if bases is 0
    Py_ssize_t bases
    # scratch
    Py_ssize_t stride       # rows of a tile with those of zeros: whole strips
    double *z               # (D, stride): x in columns, 0 beyond the last row
    double *m               # (SITE_ROWS,)
    double *v               # (SITE_ROWS,)
    double *prior           # (SITE_ROWS,): prior means of f
    double *pull            # (SITE_ROWS,): tau less rho times these, 0 beyond the last row
    double *weight          # (SITE_ROWS,): rho, 0 beyond the last row
    double *rest            # (D + CV_TILE, SITE_ROWS), for the loops over coordinates
    double *zeros           # (D,)
    double *ones            # (D,)
    double *sums            # see cv_moments


cdef Py_ssize_t sums_of(Py_ssize_t n_columns) noexcept nogil:
    """Numbers in the tiles of a triangle."""
    cdef Py_ssize_t n_tiles = (n_columns + CV_TILE - 1) // CV_TILE
    return CV_TILE_SUMS * (n_tiles * (n_tiles + 1) // 2)


cdef void *scratch_for(Py_ssize_t d) noexcept nogil:
    """Memory for the scratch of a design of d columns, NULL where there is none."""
    return malloc(((2 * d + CV_TILE + 5) * SITE_ROWS + 2 * d + sums_of(d) + CV_LANES) * sizeof(double))


cdef Design design_of(const double[:, ::1] x, const double[::1] base, void *memory) noexcept nogil:
    """The rows of a call, with their scratch."""
    cdef Design design
    cdef Py_ssize_t d = x.shape[1], i
    design.n_rows, design.n_columns, design.x = x.shape[0], d, &x[0, 0]
    design.base, design.bases = &base[0], 1 if base.shape[0] > 1 else 0
    design.stride, design.z = SITE_ROWS, aligned(memory)
    design.rest = design.z + d * SITE_ROWS
    design.m = design.rest + (d + CV_TILE) * SITE_ROWS
    design.v = design.m + SITE_ROWS
    design.prior = design.v + SITE_ROWS
    design.pull = design.prior + SITE_ROWS
    design.weight = design.pull + SITE_ROWS
    design.sums = design.weight + SITE_ROWS
    design.zeros = design.sums + sums_of(d)
    design.ones = design.zeros + d
    for i in range(sums_of(d)):
        design.sums[i] = 0.0
    for i in range(d):
        design.zeros[i], design.ones[i] = 0.0, 1.0
    return design


cdef void load(Design *design, Py_ssize_t at, Py_ssize_t n) noexcept nogil:
    """z = the n rows from `at` on, in columns."""
    cdef Py_ssize_t i, j, d = design.n_columns
    design.stride = (n + WHOLE_ROWS - 1) // WHOLE_ROWS * WHOLE_ROWS
    cv_coordinates(False, design.x + at * d, d, n, (design.n_rows - at) * d, design.zeros, design.ones, design.z, NULL,
                   design.stride)
    for j in range(d):
        for i in range(n, design.stride):
            design.z[j * design.stride + i] = 0.0


cdef void project(const Design *design, const double *a, Py_ssize_t at, Py_ssize_t n, double *out) noexcept nogil:
    """out = x'a + base of the n rows from `at` on."""
    cdef cv8 total[CV_STEP]
    cdef cv8 factor
    cdef Py_ssize_t step, i, j, u
    for step in range((n + CV_STEP * CV_LANES - 1) // (CV_STEP * CV_LANES)):
        i = step * CV_STEP * CV_LANES
        for u in range(CV_STEP):
            total[u] = cv8_set(0.0)
        for j in range(design.n_columns):
            factor = cv8_set(a[j])
            for u in range(CV_STEP):
                total[u] = cv8_add(total[u], cv8_mul(factor, cv8_load(design.z + j * design.stride + i + u * CV_LANES)))
        for u in range(CV_STEP):
            cv8_store(out + i + u * CV_LANES, total[u])
    spread_out(design.base + at * design.bases, design.bases, n, design.rest)
    for i in range(n):
        out[i] += design.rest[i]


cdef void find_moments(const Design *design, const double *mean, const double *triangle, Py_ssize_t at,
                       Py_ssize_t n) noexcept nogil:
    """m and v of the n rows from `at` on."""
    cdef Py_ssize_t strip
    project(design, mean, at, n, design.m)
    for strip in range((n + CV_STRIP - 1) // CV_STRIP):
        cv_distance(design.n_columns, design.z + strip * CV_STRIP, design.stride, design.zeros, triangle, design.rest,
                    design.v + strip * CV_STRIP)


cdef void add_sites(const Design *design, const double *prior_mean, const double *tau, const double *rho, Py_ssize_t at,
                    Py_ssize_t n) noexcept nogil:
    """Add the sites of the n rows from `at` on to the sums. `prior_mean` is NULL where it is zero."""
    cdef Py_ssize_t i
    if prior_mean != NULL:
        project(design, prior_mean, at, n, design.prior)
    else:
        spread_out(design.base + at * design.bases, design.bases, n, design.prior)
    for i in range(n):
        design.weight[i], design.pull[i] = rho[i], tau[i] - rho[i] * design.prior[i]
    for i in range(n, design.stride):
        design.weight[i] = design.pull[i] = 0.0
    cv_moments(True, design.n_columns, design.z, 0, NULL, design.weight, design.pull, design.stride, NULL,
               design.rest + design.n_columns * SITE_ROWS, design.sums)


cdef inline void add_both(double *h, Py_ssize_t d, Py_ssize_t i, Py_ssize_t j, double value) noexcept nogil:
    """Add to entries (i, j) and (j, i) of a symmetric matrix."""
    h[i * d + j] += value
    if i != j:
        h[j * d + i] += value


cdef void unpack(const Design *design, double *h, double *g) noexcept nogil:
    """Add the sums in tiles to h (D, D) and g (D,)."""
    cdef const double *sums = design.sums
    cdef Py_ssize_t d = design.n_columns, first = cv_first_tile(d), top = 0, left, n = first, m, a, b
    while top < d:
        for a in range(n):
            for b in range(a + 1):
                add_both(h, d, top + a, top + b, sums[a * (a + 3) // 2 + b])
            g[top + a] += sums[a * (a + 3) // 2 + a + 1]
        sums += CV_TILE_SUMS
        left, m = 0, first
        while left < top:
            for a in range(CV_TILE):
                for b in range(m):
                    add_both(h, d, top + a, left + b, sums[a * m + b])
            sums += CV_TILE_SUMS
            left, m = left + m, CV_TILE
        top, n = top + n, CV_TILE


cdef inline const double *start_of(const double[::1] values) noexcept nogil:
    """The first of some numbers, NULL if there are none."""
    return &values[0] if values.shape[0] else NULL


def moments(const double[:, ::1] x,          # in  (n, D), n and D > 0
            const double[::1] base,          # in  (n,) or (1,)
            const double[::1] mean,          # in  (D,): of a
            const double[:, ::1] triangle,   # in  (D, D), lower: the covariance of a is triangle' triangle
            double[::1] m,                   # out (n,): of f
            double[::1] v, /):               # out (n,)
    """Means and variances of f."""
    cdef Design design
    cdef void *memory = scratch_for(x.shape[1])
    cdef Py_ssize_t group, at, i, n
    if memory == NULL:
        raise MemoryError
    with nogil:
        design = design_of(x, base, memory)
        for group in range((design.n_rows + SITE_ROWS - 1) // SITE_ROWS):
            at = group * SITE_ROWS
            n = min(<Py_ssize_t>SITE_ROWS, design.n_rows - at)
            load(&design, at, n)
            find_moments(&design, &mean[0], &triangle[0, 0], at, n)
            for i in range(n):
                m[at + i], v[at + i] = design.m[i], design.v[i]
        free(memory)


def add(const double[:, ::1] x, const double[::1] base,             # as for moments
        const double[::1] prior_mean,        # in    (D,), or empty where it is zero: of a
        const double[::1] tau,               # in    (n,)
        const double[::1] rho,               # in    (n,)
        double[:, ::1] h,                    # inout (D, D): plus X' R X
        double[::1] g, /):                   # inout (D,): plus X'(tau - rho c), c the prior means of f
    """Add sites to their sums."""
    cdef Design design
    cdef void *memory = scratch_for(x.shape[1])
    cdef const double *prior = start_of(prior_mean)
    cdef Py_ssize_t group, at, n
    if memory == NULL:
        raise MemoryError
    with nogil:
        design = design_of(x, base, memory)
        for group in range((design.n_rows + SITE_ROWS - 1) // SITE_ROWS):
            at = group * SITE_ROWS
            n = min(<Py_ssize_t>SITE_ROWS, design.n_rows - at)
            load(&design, at, n)
            add_sites(&design, prior, &tau[at], &rho[at], at, n)
        unpack(&design, &h[0, 0], &g[0])
        free(memory)


cdef Py_ssize_t renew_rows(
    Design *design, Rows *rows, const double *mean, const double *triangle, const double *prior_mean,
    const double *tau, const double *rho, double up, double down,
    double *new_tau, double *new_rho, double *h, double *g, Py_ssize_t *skipped,
) noexcept nogil:
    """Renew all sites from one posterior and add them to their sums. The first row that no rule resolves, or -1."""
    cdef Py_ssize_t group, at, n, bad
    for group in range((design.n_rows + SITE_ROWS - 1) // SITE_ROWS):
        at = group * SITE_ROWS
        n = min(<Py_ssize_t>SITE_ROWS, design.n_rows - at)
        load(design, at, n)
        find_moments(design, mean, triangle, at, n)
        bad = renew_tile(rows, at, n, design.m, design.v, tau + at, rho + at, up, down, new_tau + at, new_rho + at,
                         skipped)
        if bad >= 0:
            return bad + at
        add_sites(design, prior_mean, new_tau + at, new_rho + at, at, n)
    unpack(design, h, g)
    return -1


def renew(int kind, const double[::1] parameters,
          const double[::1] power, const double[::1] fraction, const double[::1] residual,
          const double[::1] y, const double[::1] extra,             # all as for ep.sweep
          const double[:, ::1] x, const double[::1] base,
          const double[::1] mean, const double[:, ::1] triangle,    # as for moments
          const double[::1] prior_mean,                             # as for add
          const double[::1] tau, const double[::1] rho, double up, double down,
          double[::1] new_tau, double[::1] new_rho,                 # as for ep.renew_all
          double[:, ::1] h, double[::1] g, /):                      # as for add
    """Renew all sites from one posterior and add them to their sums, which are complete where no row is bad.

    Returns the index of the first row whose tilted moments no rule resolves, or -1, and the number of sites left alone.
    """
    cdef Design design
    cdef void *memory = scratch_for(x.shape[1])
    cdef Rows rows = unpack_rows(kind, parameters, power, fraction, residual, y, extra)
    cdef Py_ssize_t bad, skipped = 0
    if memory == NULL:
        raise MemoryError
    with nogil:
        design = design_of(x, base, memory)
        bad = renew_rows(&design, &rows, &mean[0], &triangle[0, 0], start_of(prior_mean), &tau[0], &rho[0], up, down,
                         &new_tau[0], &new_rho[0], &h[0, 0], &g[0], &skipped)
        free(memory)
    return bad, skipped


cdef struct Posterior:           # of D weights, see belief.pxd; consecutive
    double *mean                 # (D,)
    double *u                    # (D,)
    double *g                    # (D,)
    double *factor               # (D, D), as all below
    double *triangle
    double *wide
    double *h


cdef inline Posterior posterior_at(double *numbers, Py_ssize_t d) noexcept nogil:
    cdef Posterior at
    at.mean, at.u, at.g, at.factor = numbers, numbers + d, numbers + 2 * d, numbers + 3 * d
    at.triangle, at.wide, at.h = at.factor + d * d, at.factor + 2 * d * d, at.factor + 3 * d * d
    return at


cdef double renew_posterior(
    Design *design, Rows *rows, const double *prior_mean, const double *root,
    const double *old_sites,     # in   (2, N): tau and rho
    double *sites,               # out  (2, N)
    const Posterior *old,        # in
    const Posterior *new,        # out
    double *work,                # work (2, D, D)
) noexcept nogil:
    """Renew all sites from a posterior without damping, and the posterior: its change, or nan where that is not a whole
    pass, as a site was left alone or there is no posterior."""
    cdef Py_ssize_t i, d = design.n_columns, n = design.n_rows, skipped = 0
    cdef double changes[2]
    for i in range(sums_of(d)):
        design.sums[i] = 0.0
    for i in range(d):
        new.g[i] = 0.0
    for i in range(d * d):
        new.h[i] = 0.0
    if renew_rows(design, rows, old.mean, old.triangle, prior_mean, old_sites, old_sites + n, 1.0, 1.0, sites,
                  sites + n, new.h, new.g, &skipped) >= 0 or skipped:
        return NAN
    if not find_posterior(d, new.h, new.g, root, new.factor, new.u, new.triangle, new.wide):
        return NAN
    for i in range(d):
        new.mean[i] = (0.0 if prior_mean == NULL else prior_mean[i]) + root[i] * new.u[i]
    measure_change(d, new.factor, new.u, old.factor, old.u, work, work + d * d, changes)
    if changes[0] != changes[0]:
        return NAN
    return changes[1] if not changes[0] > changes[1] else changes[0]


def converge(int kind, const double[::1] parameters,
             const double[::1] power, const double[::1] fraction, const double[::1] residual,
             const double[::1] y, const double[::1] extra, const double[:, ::1] x, const double[::1] base,
             const double[::1] prior_mean,        # all as for renew
             const double[::1] root,              # in    (D,): of the prior variances
             double[:, :, ::1] sites,             # inout (2, 2, N): tau and rho, now and then
             double[:, :, ::1] posteriors,        # inout (2, 3 + 4 D, D): mean, u, g; factor, triangle, wide, h
             double best, double progress,        # in    passes go on while changes are below progress times the best
             double tol,                          # in    ... and above it
             double[::1] changes, /):             # out   (n,): of passes, n of them at most
    """Do passes from sites[0] and posteriors[0] without damping. Returns their number k; the last is at k % 2.

    Only the last may be no progress. One that leaves a site alone does not count; it is for the caller to do it.
    """
    cdef Design design
    cdef Posterior pair[2]
    cdef Py_ssize_t d = x.shape[1], done = 0, now = 0
    cdef double change
    cdef bint goes_on = True
    cdef void *memory = scratch_for(d)
    cdef double *work = <double *>malloc(2 * d * d * sizeof(double))
    cdef Rows rows = unpack_rows(kind, parameters, power, fraction, residual, y, extra)
    if memory == NULL or work == NULL:
        free(memory)
        free(work)
        raise MemoryError
    with nogil:
        design = design_of(x, base, memory)
        pair[0], pair[1] = posterior_at(&posteriors[0, 0, 0], d), posterior_at(&posteriors[1, 0, 0], d)
        while goes_on and done < changes.shape[0]:
            change = renew_posterior(&design, &rows, start_of(prior_mean), &root[0], &sites[now, 0, 0],
                                     &sites[1 - now, 0, 0], &pair[now], &pair[1 - now], work)
            goes_on = note_pass(change, progress, tol, &best, &changes[0], &done)
            now = done % 2
        free(memory)
        free(work)
    return done
