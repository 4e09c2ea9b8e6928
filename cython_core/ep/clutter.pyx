"""ADF and EP sweeps for the clutter problem. The site itself: clutter.pxd.

Design:
a) Working units: data are shifted and scaled on the fly, (x - origin) scale, with a power of two for scale and an
   origin inside the data, so that natural parameters lose nothing to a far-away zero.
b) `sweep` visits sites one after the other: a chain of latencies (division, exp, division, division), scalar for d = 1;
   for larger d the loops over coordinates vectorise.
c) `sweep_parallel` computes all sites from one posterior. Its sums, and those of `evaluate`, are kept per CHUNK_ROWS
   rows and combined by the caller in that order.
d) A site whose cavity is improper (posterior precision not above the site's) is left alone in this sweep and counted;
   nothing is clamped. So is one that holds all but MIN_CAVITY_SHARE of the posterior's precision: the difference has
   too few digits, and the caller visits it from an exact sum of the others. The caller does not count a sweep that
   left any site alone as converged.
"""

from libc.math cimport fabs
from libc.stdint cimport int64_t

from cavity._core.clutter cimport (
    CHUNK_ROWS, MIN_CAVITY_SHARE, Clutter, Density, Site, base_odds, density, log_normaliser, log_site_value, match,
    signal_exponent, unpack,
)
from cavity._core.simd cimport cv_sum, cv_sum_squares

cdef enum:
    STAGED_NUMBERS = 128                 # rows or coordinates staged on the stack
    CONCURRENT_CHUNKS = 4                # that are summed at the same time

chunk_rows = CHUNK_ROWS
lost = MIN_CAVITY_SHARE


# ------------------------------------------------------------------------------------- one problem, site by site
# Coordinates are taken STAGED_NUMBERS at a time through a local array: nothing can alias it, so the loops vectorise.

cdef inline double from_centre2(
    const double *x, const double *origin, double scale, const double *centre, Py_ssize_t d,
) noexcept nogil:
    """|x - c0|^2 in working units."""
    cdef double t[STAGED_NUMBERS]
    cdef double total = 0.0
    cdef Py_ssize_t start = 0, j, n
    if d == 1:
        t[0] = (x[0] - origin[0]) * scale - centre[0]
        return t[0] * t[0]
    while start < d:
        n = min(STAGED_NUMBERS, d - start)
        for j in range(n):
            t[j] = (x[start + j] - origin[start + j]) * scale - centre[start + j]
        total += cv_sum_squares(t, n)
        start += STAGED_NUMBERS
    return total


cdef inline double from_cavity2(
    const double *x, const double *origin, double scale,   # in (d,)
    const double *tau, const double *site_tau, double v,   # in (d,): posterior, site; variance of the cavity
    Py_ssize_t d,
) noexcept nogil:
    """|x - m|^2 in working units, m the mean of the cavity."""
    cdef double t[STAGED_NUMBERS]
    cdef double total = 0.0
    cdef Py_ssize_t start = 0, j, n
    if d == 1:
        t[0] = (x[0] - origin[0]) * scale - (tau[0] - site_tau[0]) * v
        return t[0] * t[0]
    while start < d:
        n = min(STAGED_NUMBERS, d - start)
        for j in range(n):
            t[j] = (x[start + j] - origin[start + j]) * scale - (tau[start + j] - site_tau[start + j]) * v
        total += cv_sum_squares(t, n)
        start += STAGED_NUMBERS
    return total


cdef inline double new_tau(
    Site site, double x, double origin, double scale, double tau, double site_tau, double v, double damping,
) noexcept nogil:
    """One coordinate of the damped site."""
    cdef double m = (tau - site_tau) * v
    return site_tau + damping * (site.pull * ((x - origin) * scale - m) + site.rho * m - site_tau)


cdef inline void move(
    Site site, const double *x, const double *origin, double scale, double v, double damping,   # in (d,)
    double *tau, double *site_tau,                                                              # inout (d,)
    Py_ssize_t d,
) noexcept nogil:
    """Replace the tau of a site and of the posterior."""
    cdef double t[STAGED_NUMBERS]
    cdef Py_ssize_t start = 0, i, j, n
    if d == 1:
        t[0] = new_tau(site, x[0], origin[0], scale, tau[0], site_tau[0], v, damping)
        tau[0] = (tau[0] - site_tau[0]) + t[0]
        site_tau[0] = t[0]
        return
    while start < d:
        n = min(STAGED_NUMBERS, d - start)
        for j in range(n):
            i = start + j
            t[j] = new_tau(site, x[i], origin[i], scale, tau[i], site_tau[i], v, damping)
        for j in range(n):
            tau[start + j] = (tau[start + j] - site_tau[start + j]) + t[j]
        for j in range(n):
            site_tau[start + j] = t[j]
        start += STAGED_NUMBERS


cdef int64_t visit(
    Clutter *model, Py_ssize_t d,
    const double *x, const double *origin, double scale, const double *centre,  # in (n, d), (d,), (d,)
    const Py_ssize_t *order, Py_ssize_t start, Py_ssize_t n,                    # in (n,) or NULL
    double *site_tau, double *site_rho,                                         # inout (N, d), (N,)
    double *tau, double *posterior_rho, double damping,                         # inout (d,), scalar
) noexcept nogil:
    """EP updates of sites order[0..n) or start..start+n, whose data are the n rows of x; returns the number skipped."""
    cdef double rho, k, inv, base, distance2
    cdef int64_t skipped = 0
    cdef Site site
    cdef Py_ssize_t n_seen, i
    cdef const double *row
    for n_seen in range(n):
        i = order[n_seen] if order != NULL else start + n_seen
        row = x + n_seen * d
        rho = posterior_rho[0] - site_rho[i]
        if not rho > MIN_CAVITY_SHARE * fabs(posterior_rho[0]):
            skipped += 1
            continue
        k = 1.0 + model.noise * rho
        inv = 1.0 / (rho * k)
        base = base_odds(model, <double> d, from_centre2(row, origin, scale, centre, d))
        distance2 = from_cavity2(row, origin, scale, tau, site_tau + i * d, k * inv, d)
        site = match(model, <double> d, base, rho, inv, distance2)
        move(site, row, origin, scale, k * inv, damping, tau, site_tau + i * d, d)
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
          double damping, /):
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
                            &site_rho[0], &tau[0], &rho, damping)
        else:
            skipped = visit(&setting, d, &x[0, 0], &origin[0], scale, &centre[0], index, start, n, &site_tau[0, 0],
                            &site_rho[0], &tau[0], &rho, damping)
    return rho, skipped


cdef inline double value_at_origin(
    const double *tau, const double *site_tau, double site_rho, double v, Py_ssize_t d,
) noexcept nogil:
    """site_rho |mean|^2/2 - site_tau'mean with mean = v tau: what takes a log site value from the mean to 0."""
    cdef double t[STAGED_NUMBERS]
    cdef double total = 0.0, mean
    cdef Py_ssize_t start = 0, j, n
    while start < d:
        n = min(STAGED_NUMBERS, d - start)
        for j in range(n):
            mean = tau[start + j] * v
            t[j] = mean * (0.5 * site_rho * mean - site_tau[start + j])
        total += cv_sum(t, n)
        start += STAGED_NUMBERS
    return total


cdef void filter_rows(
    Clutter *model, Py_ssize_t d,
    const double *x, const double *origin, double scale, const double *centre,  # in (n, d), (d,), (d,)
    double *site_tau, double *site_rho, double *site_value,                     # out (n, d), (n,), (n,)
    double *tau, double *posterior_rho, double *log_z,                          # inout (d,), scalars
    Py_ssize_t n,
) noexcept nogil:
    """ADF: site i from the posterior of the rows before it."""
    cdef double rho = posterior_rho[0], new_rho, k, inv, v, new_v, base, distance2, z, shift2
    cdef Site site
    cdef Py_ssize_t i, j
    cdef const double *row
    cdef double *mine
    for i in range(n):
        row, mine = x + i * d, site_tau + i * d
        for j in range(d):
            mine[j] = 0.0
        k = 1.0 + model.noise * rho
        inv = 1.0 / (rho * k)
        v = k * inv
        base = base_odds(model, <double> d, from_centre2(row, origin, scale, centre, d))
        distance2 = from_cavity2(row, origin, scale, tau, mine, v, d)
        site = match(model, <double> d, base, rho, inv, distance2)
        z = log_normaliser(model, <double> d, base, signal_exponent(model, <double> d, rho, inv, distance2))
        move(site, row, origin, scale, v, 1.0, tau, mine, d)
        new_rho = rho + site.rho
        new_v = 1.0 / new_rho
        # tau_site - rho_site m = pull delta, so the mean moves by pull delta/new_rho
        shift2 = (site.pull * new_v) * (site.pull * new_v) * distance2
        site_value[i] = (log_site_value(z, <double> d, rho, new_rho * v, shift2)
                         + value_at_origin(tau, mine, site.rho, new_v, d))
        site_rho[i] = site.rho
        rho = new_rho
        log_z[0] += z
    posterior_rho[0] = rho


def assimilate(const double[::1] model,
               const double[:, ::1] x,   # in  (n, d)
               const double[::1] origin,  # in (d,)
               double scale,
               const double[::1] centre,  # in (d,)
               double[:, ::1] site_tau,  # out (n, d)
               double[::1] site_rho,     # out (n,)
               double[::1] site_value,   # out (n,): log value of each scaled site at the working origin
               double[::1] tau,          # inout (d,): of the posterior
               double rho,               # its precision before the pass
               double log_z, /):         # sum of log Z before the pass
    """One ADF pass over the rows of x. Returns (posterior precision, sum of log Z)."""
    cdef Clutter setting = unpack(model)
    cdef Py_ssize_t d = x.shape[1]
    with nogil:
        if d == 1:                       # compiled once more with d known
            filter_rows(&setting, 1, &x[0, 0], &origin[0], scale, &centre[0], &site_tau[0, 0], &site_rho[0],
                        &site_value[0], &tau[0], &rho, &log_z, x.shape[0])
        else:
            filter_rows(&setting, d, &x[0, 0], &origin[0], scale, &centre[0], &site_tau[0, 0], &site_rho[0],
                        &site_value[0], &tau[0], &rho, &log_z, x.shape[0])
    return rho, log_z


def total(const double[:, ::1] site_tau,   # in  (n, d), n <= CHUNK_ROWS
          const double[::1] site_rho,      # in  (n,)
          double[::1] tau, /):             # out (d,): sum of site_tau
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
    double *sums,                                                  # inout (2,): of site_tau and site_rho
    Py_ssize_t n,
) noexcept nogil:
    """At most STAGED_NUMBERS rows of a parallel sweep, d = 1; returns the number of sites without a proper cavity."""
    cdef double cavity_rho, k, inv, m, xi, delta, from_centre, t, r, least = MIN_CAVITY_SHARE * fabs(rho)
    cdef Site site
    cdef int64_t skipped = 0
    cdef Py_ssize_t i
    for i in range(n):
        xi = (x[i] - origin) * scale
        from_centre = xi - centre
        cavity_rho = rho - site_rho[i]
        k = 1.0 + model.noise * cavity_rho
        inv = 1.0 / (cavity_rho * k)
        m = (tau - site_tau[i]) * (k * inv)
        delta = xi - m
        site = match(model, 1.0, base_odds(model, 1.0, from_centre * from_centre), cavity_rho, inv, delta * delta)
        t = site_tau[i] + damping * (site.pull * delta + site.rho * m - site_tau[i])
        r = site_rho[i] + damping * (site.rho - site_rho[i])
        site_tau[i] = t if cavity_rho > least else site_tau[i]
        site_rho[i] = r if cavity_rho > least else site_rho[i]
        skipped += 0 if cavity_rho > least else 1
    sums[0] += cv_sum(site_tau, n)
    sums[1] += cv_sum(site_rho, n)
    return skipped


cdef int64_t rows_parallel(
    Clutter *model, Py_ssize_t d,
    const double *x, const double *origin, double scale, const double *centre,  # in (n, d), (d,), (d,)
    double *site_tau, double *site_rho,                                         # inout (n, d), (n,)
    const double *tau, double rho, double damping,                              # in (d,)
    double *sum_tau, double *sum_rho,                                           # inout (d,), scalar
    Py_ssize_t n,
) noexcept nogil:
    """Rows of a parallel sweep, any d."""
    cdef double cavity_rho, k, inv, base, distance2
    cdef Site site
    cdef int64_t skipped = 0
    cdef Py_ssize_t i, j
    cdef const double *row
    cdef double *mine
    for i in range(n):
        row, mine = x + i * d, site_tau + i * d
        cavity_rho = rho - site_rho[i]
        if cavity_rho > MIN_CAVITY_SHARE * fabs(rho):
            k = 1.0 + model.noise * cavity_rho
            inv = 1.0 / (cavity_rho * k)
            base = base_odds(model, <double> d, from_centre2(row, origin, scale, centre, d))
            distance2 = from_cavity2(row, origin, scale, tau, mine, k * inv, d)
            site = match(model, <double> d, base, cavity_rho, inv, distance2)
            for j in range(d):
                mine[j] = new_tau(site, row[j], origin[j], scale, tau[j], mine[j], k * inv, damping)
            site_rho[i] += damping * (site.rho - site_rho[i])
        else:
            skipped += 1
        for j in range(d):
            sum_tau[j] += mine[j]
        sum_rho[0] += site_rho[i]
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
                   double[:, ::1] sums, /):      # out (n_chunks, d + 1): sums of site_tau and site_rho
    """All sites from one posterior. Returns how many had no proper cavity and were left as they are."""
    cdef Clutter setting = unpack(model)
    cdef Py_ssize_t n = x.shape[0], d = x.shape[1], c, i, stop
    cdef int64_t skipped = 0
    sums[:] = 0.0
    with nogil:
        for c in range(sums.shape[0]):
            i = c * CHUNK_ROWS
            stop = min(n, i + CHUNK_ROWS)
            if d > 1:
                skipped += rows_parallel(&setting, d, &x[i, 0], &origin[0], scale, &centre[0], &site_tau[i, 0],
                                         &site_rho[i], &tau[0], rho, damping, &sums[c, 0], &sums[c, d], stop - i)
            else:
                while i < stop:
                    skipped += tile(&setting, &x[i, 0], origin[0], scale, centre[0], &site_tau[i, 0], &site_rho[i],
                                    tau[0], rho, damping, &sums[c, 0], min(STAGED_NUMBERS, stop - i))
                    i += STAGED_NUMBERS
    return skipped


# ------------------------------------------------------------------------------------- densities under the cavities

cdef void evaluate_tile(
    Clutter *model,
    const double *x, double origin, double scale, double centre,   # in  (n,)
    const double *site_tau, const double *site_rho,                # in  (n,)
    double tau, double rho,
    double *log_z, double *odds, double *value,                    # out (n,)
    Py_ssize_t n,
) noexcept nogil:
    """At most STAGED_NUMBERS rows, d = 1."""
    cdef double z[STAGED_NUMBERS]
    cdef double o[STAGED_NUMBERS]
    cdef double v[STAGED_NUMBERS]
    cdef double cavity_rho, k, inv, m, xi, mean = tau / rho
    cdef Density row
    cdef Py_ssize_t i
    for i in range(n):
        xi = (x[i] - origin) * scale
        cavity_rho = rho - site_rho[i]
        k = 1.0 + model.noise * cavity_rho
        inv = 1.0 / (cavity_rho * k)
        m = (tau - site_tau[i]) * (k * inv)
        row = density(model, 1.0, (xi - centre) * (xi - centre), cavity_rho, inv, rho, (xi - m) * (xi - m),
                      (mean - m) * (mean - m))
        z[i] = row.log_z
        o[i] = row.odds
        v[i] = row.value
    for i in range(n):
        log_z[i] = z[i]
        odds[i] = o[i]
        value[i] = v[i]


cdef inline double shift_of_mean2(
    const double *tau, double rho, const double *site_tau, double v, Py_ssize_t d,
) noexcept nogil:
    """Squared distance between the means of the posterior and of the cavity, whose variance is v."""
    cdef double t[STAGED_NUMBERS]
    cdef double total = 0.0, posterior_v = 1.0 / rho
    cdef Py_ssize_t start = 0, j, n
    while start < d:
        n = min(STAGED_NUMBERS, d - start)
        for j in range(n):
            t[j] = tau[start + j] * posterior_v - (tau[start + j] - site_tau[start + j]) * v
        total += cv_sum_squares(t, n)
        start += STAGED_NUMBERS
    return total


cdef void evaluate_rows(
    Clutter *model, Py_ssize_t d,
    const double *x, const double *origin, double scale, const double *centre,  # in  (n, d), (d,), (d,)
    const double *site_tau, const double *site_rho,                             # in  (n, d), (n,)
    const double *tau, double rho,                                              # in  (d,)
    double *log_z, double *odds, double *value,                                 # out (n,)
    Py_ssize_t n,
) noexcept nogil:
    """Any d."""
    cdef double cavity_rho, k, inv, from_centre, distance2
    cdef Density result
    cdef Py_ssize_t i
    cdef const double *mine
    for i in range(n):
        mine = site_tau + i * d
        cavity_rho = rho - site_rho[i]
        k = 1.0 + model.noise * cavity_rho
        inv = 1.0 / (cavity_rho * k)
        from_centre = from_centre2(x + i * d, origin, scale, centre, d)
        distance2 = from_cavity2(x + i * d, origin, scale, tau, mine, k * inv, d)
        result = density(model, <double> d, from_centre, cavity_rho, inv, rho, distance2,
                         shift_of_mean2(tau, rho, mine, k * inv, d))
        log_z[i] = result.log_z
        odds[i] = result.odds
        value[i] = result.value


cdef void sum_chunks(const double *value, double *sums, Py_ssize_t n) noexcept nogil:
    """Sums of at most CONCURRENT_CHUNKS chunks in the order of the rows; side by side, to hide latencies."""
    cdef double total[CONCURRENT_CHUNKS]
    cdef Py_ssize_t c, i, start
    if n == CONCURRENT_CHUNKS * CHUNK_ROWS:
        for c in range(CONCURRENT_CHUNKS):
            total[c] = 0.0
        for i in range(CHUNK_ROWS):
            for c in range(CONCURRENT_CHUNKS):
                total[c] += value[c * CHUNK_ROWS + i]
        for c in range(CONCURRENT_CHUNKS):
            sums[c] = total[c]
        return
    for c in range((n + CHUNK_ROWS - 1) // CHUNK_ROWS):
        start = c * CHUNK_ROWS
        sums[c] = 0.0
        for i in range(start, min(n, start + CHUNK_ROWS)):
            sums[c] += value[i]


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
             double[::1] sums, /):           # out (n_chunks,): sums of value in the order of the rows
    """Log densities under the cavities, all of which must be proper."""
    cdef Clutter setting = unpack(model)
    cdef Py_ssize_t n = x.shape[0], d = x.shape[1], c = 0, i, m, stop
    with nogil:
        while c < sums.shape[0]:
            i = c * CHUNK_ROWS
            stop = min(n, i + CONCURRENT_CHUNKS * CHUNK_ROWS)
            while i < stop:
                m = min(STAGED_NUMBERS, stop - i)
                if d == 1:
                    evaluate_tile(&setting, &x[i, 0], origin[0], scale, centre[0], &site_tau[i, 0], &site_rho[i],
                                  tau[0], rho, &log_z[i], &odds[i], &value[i], m)
                else:
                    evaluate_rows(&setting, d, &x[i, 0], &origin[0], scale, &centre[0], &site_tau[i, 0], &site_rho[i],
                                  &tau[0], rho, &log_z[i], &odds[i], &value[i], m)
                i += STAGED_NUMBERS
            sum_chunks(&value[c * CHUNK_ROWS], &sums[c], stop - c * CHUNK_ROWS)
            c += CONCURRENT_CHUNKS
