"""ADF and EP sweeps for the clutter problem. The site itself: clutter.pxd.

Design:
a) Working units: data are shifted and scaled on the fly, (x - origin) scale, with a power of two for scale and an origin
   inside the data, so that natural parameters lose nothing to a far-away zero.
b) `sweep` visits sites one after the other: a chain of latencies (division, exp, division, division), scalar for d = 1;
   for larger d the loops over coordinates vectorise.
c) `sweep_lanes` does the same for LANES independent problems at a time, one per SIMD lane, with the operations in the
   same order: a problem in a batch has the bits of the problem alone.
d) `sweep_parallel` computes all sites from one posterior. Its sums, and those of `evaluate`, are kept per CHUNK_ROWS rows
   and combined by the caller in that order.
e) A site whose cavity is improper (posterior precision not above the site's) is left alone in this sweep and counted;
   nothing is ever clamped. The caller sees to it that sweeps that count any do not pass for converged.
"""

from libc.math cimport fabs
from libc.stdint cimport int64_t

from cavity._core.clutter cimport (
    Clutter, Site, base_odds, log_normaliser, log_odds, log_site_value, match,
)
from cavity._core.simd cimport cv_sum

cdef enum:
    LANES = 16                           # problems side by side: two AVX-512 vectors hide each other's latency
    TILE = 128                           # rows staged on the stack
    CHUNK_ROWS = 8192                    # rows per partial sum

lanes = LANES
chunk_rows = CHUNK_ROWS


cdef Clutter unpack(const double[::1] model) noexcept nogil:
    """The model from its vector: s, c, log c, log(1 - w), log w."""
    cdef Clutter result
    result.noise, result.clutter, result.log_clutter_variance = model[0], model[1], model[2]
    result.log_inlier, result.log_clutter = model[3], model[4]
    return result


# ------------------------------------------------------------------------------------- one problem, site by site

cdef inline double subtract(
    const double *x, const double *y,    # in  (d,)
    double *difference,                  # out (d,)
    Py_ssize_t d,
) noexcept nogil:
    """difference = x - y; returns its squared norm, summed in eight lanes."""
    cdef double sums[8]
    cdef Py_ssize_t j = 0, l
    if d == 1:
        difference[0] = x[0] - y[0]
        return difference[0] * difference[0]
    for l in range(8):
        sums[l] = 0.0
    while j + 8 <= d:
        for l in range(8):
            difference[j + l] = x[j + l] - y[j + l]
            sums[l] += difference[j + l] * difference[j + l]
        j += 8
    for l in range(d - j):
        difference[j + l] = x[j + l] - y[j + l]
        sums[l] += difference[j + l] * difference[j + l]
    return ((sums[0] + sums[1]) + (sums[2] + sums[3])) + ((sums[4] + sums[5]) + (sums[6] + sums[7]))


cdef inline void to_working(
    const double *x, const double *origin, double scale,   # in (d,)
    double *row,                                           # out (d,)
    Py_ssize_t d,
) noexcept nogil:
    cdef Py_ssize_t j
    for j in range(d):
        row[j] = (x[j] - origin[j]) * scale


cdef int64_t visit(
    Clutter *model, Py_ssize_t d,
    const double *x, const double *origin, double scale, const double *centre,  # in (n, d), (d,), (d,)
    const Py_ssize_t *order, Py_ssize_t start, Py_ssize_t n,                    # in (n,) or NULL
    double *site_tau, double *site_rho,                                         # inout (N, d), (N,)
    double *tau, double *posterior_rho, double damping,                         # inout (d,), scalar
    double *work,                                                               # scratch (4, d)
) noexcept nogil:
    """EP updates of sites order[0..n) or start..start+n, whose data are the n rows of x; returns the number skipped."""
    cdef double *row = work
    cdef double *m = work + d
    cdef double *delta = work + 2 * d
    cdef double *from_centre = work + 3 * d
    cdef double *old
    cdef double rho, v, base, new
    cdef int64_t skipped = 0
    cdef Site site
    cdef Py_ssize_t k, i, j
    for k in range(n):
        i = order[k] if order != NULL else start + k
        old = site_tau + i * d
        rho = posterior_rho[0] - site_rho[i]
        if not rho > 0.0:
            skipped += 1
            continue
        to_working(x + k * d, origin, scale, row, d)
        base = base_odds(model, <double> d, subtract(row, centre, from_centre, d))
        v = 1.0 / rho
        for j in range(d):
            m[j] = (tau[j] - old[j]) * v
        site = match(model, <double> d, base, rho, v, subtract(row, m, delta, d))
        for j in range(d):
            new = old[j] + damping * (site.pull * delta[j] + site.rho * m[j] - old[j])
            tau[j] = (tau[j] - old[j]) + new
            old[j] = new
        site_rho[i] += damping * (site.rho - site_rho[i])
        posterior_rho[0] = rho + site_rho[i]
    return skipped


def sweep(const double[::1] model,
          const double[:, ::1] x,        # in  (n, d): data of the sites visited, in the order of the visits
          const double[::1] origin,      # in  (d,)
          double scale,
          const double[::1] centre,      # in  (d,): c0 in working units
          order,                         # in  (n,) intp, or None for start, start + 1, ...
          Py_ssize_t start,
          double[:, ::1] site_tau,       # inout (N, d)
          double[::1] site_rho,          # inout (N,)
          double[::1] tau,               # inout (d,): of the posterior
          double rho,                    # its precision before the pass
          double damping,
          double[:, ::1] work):          # scratch (4, d)
    """One sequential EP pass over the sites of x. Returns (posterior precision, sites skipped)."""
    cdef Clutter setting = unpack(model)
    cdef const Py_ssize_t[::1] indices
    cdef const Py_ssize_t *index = NULL
    cdef Py_ssize_t d = x.shape[1], n = x.shape[0]
    cdef int64_t skipped
    if order is not None:
        indices = order
        index = &indices[0]
    with nogil:
        if d == 1:                       # compiled once more with d known
            skipped = visit(&setting, 1, &x[0, 0], &origin[0], scale, &centre[0], index, start, n, &site_tau[0, 0],
                            &site_rho[0], &tau[0], &rho, damping, &work[0, 0])
        else:
            skipped = visit(&setting, d, &x[0, 0], &origin[0], scale, &centre[0], index, start, n, &site_tau[0, 0],
                            &site_rho[0], &tau[0], &rho, damping, &work[0, 0])
    return rho, skipped


def assimilate(const double[::1] model,
               const double[:, ::1] x,   # in  (n, d)
               const double[::1] origin, # in  (d,)
               double scale,
               const double[::1] centre, # in  (d,)
               double[:, ::1] site_tau,  # out (n, d)
               double[::1] site_rho,     # out (n,)
               double[::1] site_value,   # out (n,): log value of each scaled site at the working origin
               double[::1] tau,          # inout (d,)
               double[::1] state,        # inout (2,): posterior rho, sum of log Z
               double[:, ::1] work):     # scratch (4, d)
    """One ADF pass: each site from the posterior of those before it."""
    cdef Clutter setting = unpack(model)
    cdef Py_ssize_t d = x.shape[1], i, j
    cdef double *row = &work[0, 0]
    cdef double *m = &work[1, 0]
    cdef double *delta = &work[2, 0]
    cdef double rho = state[0], total = state[1], v, base, distance2, log_z, shift2, at_origin, mean
    cdef Site site
    with nogil:
        for i in range(x.shape[0]):
            to_working(&x[i, 0], &origin[0], scale, row, d)
            base = base_odds(&setting, <double> d, subtract(row, &centre[0], &work[3, 0], d))
            v = 1.0 / rho
            for j in range(d):
                m[j] = tau[j] * v
            distance2 = subtract(row, m, delta, d)
            site = match(&setting, <double> d, base, rho, v, distance2)
            log_z = log_normaliser(&setting, <double> d, base, log_odds(&setting, <double> d, base, rho, distance2))
            site_rho[i] = site.rho
            shift2 = at_origin = 0.0
            for j in range(d):
                site_tau[i, j] = site.pull * delta[j] + site.rho * m[j]
                tau[j] += site_tau[i, j]
                mean = tau[j] / (rho + site.rho)
                shift2 += (mean - m[j]) * (mean - m[j])
                at_origin += mean * (0.5 * site.rho * mean - site_tau[i, j])
            site_value[i] = at_origin + log_site_value(log_z, <double> d, rho, rho + site.rho, shift2)
            rho += site.rho
            total += log_z
    state[0], state[1] = rho, total


def total(const double[:, ::1] site_tau,   # in  (n, d), n <= CHUNK_ROWS
          const double[::1] site_rho,      # in  (n,)
          double[::1] tau):                # out (d,): sum of site_tau
    """Sums of site parameters in the order of the rows: (sum of site_rho, largest site_rho)."""
    cdef Py_ssize_t i, j
    cdef double rho = 0.0, top = -1e308
    with nogil:
        for j in range(site_tau.shape[1]):
            tau[j] = 0.0
        for i in range(site_tau.shape[0]):
            for j in range(site_tau.shape[1]):
                tau[j] += site_tau[i, j]
            rho += site_rho[i]
            top = max(top, site_rho[i])
    return rho, top


# ------------------------------------------------------------------------------------- one problem, all sites at once

cdef int64_t tile(
    Clutter *model,
    const double *x, double origin, double scale, double centre,   # in (n,)
    double *site_tau, double *site_rho,                            # inout (n,)
    double tau, double rho, double damping,
    double *sums,                                                  # inout (3,): tau, rho, largest rho
    Py_ssize_t n,
) noexcept nogil:
    """At most TILE rows of a parallel sweep, d = 1; returns how many sites had no proper cavity and were left."""
    cdef double new_tau[TILE]
    cdef double new_rho[TILE]
    cdef double cavity_rho, v, m, xi, delta, from_centre, t, r, top = sums[2]
    cdef Site site
    cdef int64_t skipped = 0
    cdef Py_ssize_t i
    for i in range(n):
        xi = (x[i] - origin) * scale
        from_centre = xi - centre
        cavity_rho = rho - site_rho[i]
        v = 1.0 / cavity_rho
        m = (tau - site_tau[i]) * v
        delta = xi - m
        site = match(model, 1.0, base_odds(model, 1.0, from_centre * from_centre), cavity_rho, v, delta * delta)
        t = site_tau[i] + damping * (site.pull * delta + site.rho * m - site_tau[i])
        r = site_rho[i] + damping * (site.rho - site_rho[i])
        new_tau[i] = t if cavity_rho > 0.0 else site_tau[i]
        new_rho[i] = r if cavity_rho > 0.0 else site_rho[i]
        skipped += 0 if cavity_rho > 0.0 else 1
    for i in range(n):
        site_tau[i] = new_tau[i]
        site_rho[i] = new_rho[i]
        top = new_rho[i] if new_rho[i] > top else top
    sums[0] += cv_sum(new_tau, n)
    sums[1] += cv_sum(new_rho, n)
    sums[2] = top
    return skipped


cdef int64_t rows_parallel(
    Clutter *model, Py_ssize_t d,
    const double *x, const double *origin, double scale, const double *centre,  # in (n, d), (d,), (d,)
    double *site_tau, double *site_rho,                                         # inout (n, d), (n,)
    const double *tau, double rho, double damping,                              # in (d,)
    double *sum_tau, double *sum_rho, double *top,                              # inout (d,), scalars
    double *work,                                                               # scratch (4, d)
    Py_ssize_t n,
) noexcept nogil:
    """Rows of a parallel sweep, any d."""
    cdef double *row = work
    cdef double *m = work + d
    cdef double *delta = work + 2 * d
    cdef double *old
    cdef double cavity_rho, v, base
    cdef Site site
    cdef int64_t skipped = 0
    cdef Py_ssize_t i, j
    for i in range(n):
        old = site_tau + i * d
        cavity_rho = rho - site_rho[i]
        if cavity_rho > 0.0:
            to_working(x + i * d, origin, scale, row, d)
            base = base_odds(model, <double> d, subtract(row, centre, work + 3 * d, d))
            v = 1.0 / cavity_rho
            for j in range(d):
                m[j] = (tau[j] - old[j]) * v
            site = match(model, <double> d, base, cavity_rho, v, subtract(row, m, delta, d))
            for j in range(d):
                old[j] += damping * (site.pull * delta[j] + site.rho * m[j] - old[j])
            site_rho[i] += damping * (site.rho - site_rho[i])
        else:
            skipped += 1
        for j in range(d):
            sum_tau[j] += old[j]
        sum_rho[0] += site_rho[i]
        top[0] = max(top[0], site_rho[i])
    return skipped


def sweep_parallel(const double[::1] model,
                   const double[:, ::1] x,       # in  (n, d)
                   const double[::1] origin,     # in  (d,)
                   double scale,
                   const double[::1] centre,     # in  (d,)
                   double[:, ::1] site_tau,      # inout (n, d)
                   double[::1] site_rho,         # inout (n,)
                   const double[::1] tau,        # in  (d,): of the posterior
                   double rho,
                   double damping,
                   double[:, ::1] sums,          # out (n_chunks, d + 2): sums of site_tau and site_rho, largest site_rho
                   double[:, ::1] work):         # scratch (4, d)
    """All sites from one posterior. Returns how many had no proper cavity and were left as they are."""
    cdef Clutter setting = unpack(model)
    cdef Py_ssize_t n = x.shape[0], d = x.shape[1], c, i, stop
    cdef int64_t skipped = 0
    sums[:] = 0.0
    with nogil:
        for c in range(sums.shape[0]):
            sums[c, d + 1] = -1e308
            i = c * CHUNK_ROWS
            stop = min(n, i + CHUNK_ROWS)
            if d > 1:
                skipped += rows_parallel(&setting, d, &x[i, 0], &origin[0], scale, &centre[0], &site_tau[i, 0],
                                         &site_rho[i], &tau[0], rho, damping, &sums[c, 0], &sums[c, d],
                                         &sums[c, d + 1], &work[0, 0], stop - i)
            else:
                while i < stop:
                    skipped += tile(&setting, &x[i, 0], origin[0], scale, centre[0], &site_tau[i, 0], &site_rho[i],
                                    tau[0], rho, damping, &sums[c, 0], min(TILE, stop - i))
                    i += TILE
    return skipped


# ------------------------------------------------------------------------------------- densities under the cavities

cdef struct Density:
    double log_z                         # log density of a point under its cavity
    double odds                          # log odds that it is clutter
    double value                         # log of its scaled site at the posterior mean


cdef inline Density density(
    Clutter *model, double d, double from_centre, double cavity_rho, double rho, double distance2, double shift2,
) noexcept nogil:
    cdef Density result
    cdef double base = base_odds(model, d, from_centre)
    result.odds = log_odds(model, d, base, cavity_rho, distance2)
    result.log_z = log_normaliser(model, d, base, result.odds)
    result.value = log_site_value(result.log_z, d, cavity_rho, rho, shift2)
    return result


cdef void evaluate_tile(
    Clutter *model,
    const double *x, double origin, double scale, double centre,   # in  (n,)
    const double *site_tau, const double *site_rho,                # in  (n,)
    double tau, double rho,
    double *log_z, double *odds, double *value,                    # out (n,)
    Py_ssize_t n,
) noexcept nogil:
    """At most TILE rows, d = 1."""
    cdef double z[TILE]
    cdef double o[TILE]
    cdef double v[TILE]
    cdef double cavity_rho, m, xi, mean = tau / rho
    cdef Density row
    cdef Py_ssize_t i
    for i in range(n):
        xi = (x[i] - origin) * scale
        cavity_rho = rho - site_rho[i]
        m = (tau - site_tau[i]) / cavity_rho
        row = density(model, 1.0, (xi - centre) * (xi - centre), cavity_rho, rho, (xi - m) * (xi - m),
                      (mean - m) * (mean - m))
        z[i] = row.log_z
        o[i] = row.odds
        v[i] = row.value
    for i in range(n):
        log_z[i] = z[i]
        odds[i] = o[i]
        value[i] = v[i]


cdef void evaluate_rows(
    Clutter *model, Py_ssize_t d,
    const double *x, const double *origin, double scale, const double *centre,  # in  (n, d), (d,), (d,)
    const double *site_tau, const double *site_rho,                             # in  (n, d), (n,)
    const double *tau, double rho,                                              # in  (d,)
    double *log_z, double *odds, double *value,                                 # out (n,)
    double *work,                                                               # scratch (4, d)
    Py_ssize_t n,
) noexcept nogil:
    """Any d."""
    cdef double *row = work
    cdef double *m = work + d
    cdef double cavity_rho, shift2, from_centre
    cdef Density result
    cdef Py_ssize_t i, j
    for i in range(n):
        cavity_rho = rho - site_rho[i]
        to_working(x + i * d, origin, scale, row, d)
        from_centre = subtract(row, centre, work + 3 * d, d)
        shift2 = 0.0
        for j in range(d):
            m[j] = (tau[j] - site_tau[i * d + j]) / cavity_rho
            shift2 += (tau[j] / rho - m[j]) * (tau[j] / rho - m[j])
        result = density(model, <double> d, from_centre, cavity_rho, rho, subtract(row, m, work + 2 * d, d), shift2)
        log_z[i] = result.log_z
        odds[i] = result.odds
        value[i] = result.value


def evaluate(const double[::1] model,
             const double[:, ::1] x,         # in  (n, d)
             const double[::1] origin,       # in  (d,)
             double scale,
             const double[::1] centre,       # in  (d,)
             const double[:, ::1] site_tau,  # in  (n, d)
             const double[::1] site_rho,     # in  (n,)
             const double[::1] tau,          # in  (d,): of the posterior
             double rho,
             double[::1] log_z,              # out (n,): log density of each point under its cavity
             double[::1] odds,               # out (n,): log odds that it is clutter
             double[::1] value,              # out (n,): log of its scaled site at the posterior mean
             double[::1] sums,               # out (n_chunks,): sums of value in the order of the rows
             double[:, ::1] work):           # scratch (4, d)
    """Log densities under the cavities, all of which must be proper."""
    cdef Clutter setting = unpack(model)
    cdef Py_ssize_t n = x.shape[0], d = x.shape[1], c, i = 0, m
    with nogil:
        while i < n:
            m = min(TILE, n - i)
            if d == 1:
                evaluate_tile(&setting, &x[i, 0], origin[0], scale, centre[0], &site_tau[i, 0], &site_rho[i], tau[0],
                              rho, &log_z[i], &odds[i], &value[i], m)
            else:
                evaluate_rows(&setting, d, &x[i, 0], &origin[0], scale, &centre[0], &site_tau[i, 0], &site_rho[i],
                              &tau[0], rho, &log_z[i], &odds[i], &value[i], &work[0, 0], m)
            i += TILE
        for c in range(sums.shape[0]):
            sums[c] = 0.0
            for i in range(c * CHUNK_ROWS, min(n, (c + 1) * CHUNK_ROWS)):
                sums[c] += value[i]


# ------------------------------------------------------------------------------------- many problems, one per lane

cdef void visit_lanes(
    Clutter *model,
    const double *x, const double *centre,       # in (N, LANES), (LANES,)
    const Py_ssize_t *order, Py_ssize_t n,       # in (N,) or NULL
    double *site_tau, double *site_rho,          # inout (N, LANES)
    double *tau, double *rho,                    # inout (LANES,)
    const double *damping,                       # in (LANES,)
    double *skipped,                             # inout (LANES,)
) noexcept nogil:
    """One sequential sweep of LANES problems; lanes with damping 0 stay as they are."""
    cdef double t[LANES]
    cdef double r[LANES]
    cdef double new_tau[LANES]
    cdef double new_rho[LANES]
    cdef double bad[LANES]
    cdef double cavity_tau, cavity_rho, v, m, delta, from_centre, f
    cdef Site site
    cdef Py_ssize_t k, i, l
    for l in range(LANES):
        t[l], r[l], bad[l] = tau[l], rho[l], 0.0
    for k in range(n):
        i = (order[k] if order != NULL else k) * LANES
        for l in range(LANES):
            cavity_rho = r[l] - site_rho[i + l]
            cavity_tau = t[l] - site_tau[i + l]
            v = 1.0 / cavity_rho
            m = cavity_tau * v
            delta = x[i + l] - m
            from_centre = x[i + l] - centre[l]
            site = match(model, 1.0, base_odds(model, 1.0, from_centre * from_centre), cavity_rho, v, delta * delta)
            new_tau[l] = site_tau[i + l] + damping[l] * (site.pull * delta + site.rho * m - site_tau[i + l])
            new_rho[l] = site_rho[i + l] + damping[l] * (site.rho - site_rho[i + l])
            # keep the site where its cavity is improper
            new_tau[l] = new_tau[l] if cavity_rho > 0.0 else site_tau[i + l]
            new_rho[l] = new_rho[l] if cavity_rho > 0.0 else site_rho[i + l]
            bad[l] += 0.0 if cavity_rho > 0.0 else 1.0
            t[l] = cavity_tau + new_tau[l]
            r[l] = cavity_rho + new_rho[l]
        for l in range(LANES):
            site_tau[i + l] = new_tau[l]
            site_rho[i + l] = new_rho[l]
    for l in range(LANES):
        tau[l], rho[l] = t[l], r[l]
        skipped[l] += bad[l]


cdef void total_lanes(
    const double *site_tau, const double *site_rho, Py_ssize_t n,  # in (N, LANES)
    double *tau, double *rho,                                      # inout (LANES,): prior in, posterior out
) noexcept nogil:
    """Posterior from prior and sites, summed like `total` chunk by chunk."""
    cdef double part_tau[LANES]
    cdef double part_rho[LANES]
    cdef Py_ssize_t start = 0, i, l
    while start < n:
        for l in range(LANES):
            part_tau[l] = part_rho[l] = 0.0
        for i in range(start, min(n, start + CHUNK_ROWS)):
            for l in range(LANES):
                part_tau[l] += site_tau[i * LANES + l]
                part_rho[l] += site_rho[i * LANES + l]
        for l in range(LANES):
            tau[l] += part_tau[l]
            rho[l] += part_rho[l]
        start += CHUNK_ROWS


def sweep_lanes(const double[::1] model,
                const double[:, :, ::1] x,       # in  (G, N, LANES), working units
                const double[:, ::1] centre,     # in  (G, LANES)
                const double[:, ::1] prior_tau,  # in  (G, LANES)
                double prior_rho,
                const Py_ssize_t[::1] groups,    # in  (A,): the groups to sweep
                order,                           # in  (N,) intp, or None
                double[:, :, ::1] site_tau,      # inout (G, N, LANES)
                double[:, :, ::1] site_rho,      # inout (G, N, LANES)
                double[:, ::1] tau,              # inout (G, LANES): of the posterior
                double[:, ::1] rho,              # inout (G, LANES)
                const double[:, ::1] damping,    # in  (G, LANES), 0 for problems that are done
                double[:, ::1] skipped):         # inout (G, LANES)
    """One sequential EP sweep of the problems in `groups`."""
    cdef Clutter setting = unpack(model)
    cdef const Py_ssize_t[::1] indices
    cdef const Py_ssize_t *index = NULL
    cdef Py_ssize_t a, g, l, n = x.shape[1]
    if order is not None:
        indices = order
        index = &indices[0]
    with nogil:
        for a in range(groups.shape[0]):
            g = groups[a]
            visit_lanes(&setting, &x[g, 0, 0], &centre[g, 0], index, n, &site_tau[g, 0, 0], &site_rho[g, 0, 0],
                        &tau[g, 0], &rho[g, 0], &damping[g, 0], &skipped[g, 0])
            for l in range(LANES):
                tau[g, l], rho[g, l] = prior_tau[g, l], prior_rho
            total_lanes(&site_tau[g, 0, 0], &site_rho[g, 0, 0], n, &tau[g, 0], &rho[g, 0])


def start_lanes(const double[:, :, ::1] site_tau,  # in  (G, N, LANES)
                const double[:, :, ::1] site_rho,  # in  (G, N, LANES)
                const double[:, ::1] prior_tau,    # in  (G, LANES)
                double prior_rho,
                double[:, ::1] tau,                # out (G, LANES)
                double[:, ::1] rho):               # out (G, LANES)
    """Posterior from given sites."""
    cdef Py_ssize_t g, l
    with nogil:
        for g in range(site_tau.shape[0]):
            for l in range(LANES):
                tau[g, l], rho[g, l] = prior_tau[g, l], prior_rho
            total_lanes(&site_tau[g, 0, 0], &site_rho[g, 0, 0], site_tau.shape[1], &tau[g, 0], &rho[g, 0])


def evaluate_lanes(const double[::1] model,
                   const double[:, ::1] centre,       # in (G, LANES)
                   const double[:, :, ::1] site_tau,  # in (G, N, LANES)
                   const double[:, :, ::1] site_rho,  # in (G, N, LANES)
                   const double[:, ::1] tau,          # in (G, LANES)
                   const double[:, ::1] rho,          # in (G, LANES)
                   double[:, :, ::1] x,               # inout (G, N, LANES): data in, log site values out
                   double[:, ::1] sums):              # out (G, LANES): sums of the values
    """The values of `evaluate`, for the problems in all lanes."""
    cdef Clutter setting = unpack(model)
    cdef double part[LANES]
    cdef double value[LANES]
    cdef double cavity_rho, m, mean, xi
    cdef Density row
    cdef Py_ssize_t g, i, l, n = x.shape[1]
    with nogil:
        for g in range(x.shape[0]):
            for l in range(LANES):
                sums[g, l] = part[l] = 0.0
            for i in range(n):
                for l in range(LANES):
                    xi = x[g, i, l]
                    cavity_rho = rho[g, l] - site_rho[g, i, l]
                    m = (tau[g, l] - site_tau[g, i, l]) / cavity_rho
                    mean = tau[g, l] / rho[g, l]
                    row = density(&setting, 1.0, (xi - centre[g, l]) * (xi - centre[g, l]), cavity_rho, rho[g, l],
                                  (xi - m) * (xi - m), (mean - m) * (mean - m))
                    value[l] = row.value
                for l in range(LANES):
                    x[g, i, l] = value[l]
                    part[l] += value[l]
                if (i + 1) % CHUNK_ROWS == 0 or i + 1 == n:
                    for l in range(LANES):
                        sums[g, l] += part[l]
                        part[l] = 0.0
