"""EP for many one-dimensional clutter problems at once, one problem in each SIMD lane. Site: clutter.pxd.

Design: see clutter.pyx. Arrays are (groups, N, GROUP_LANES), so that a step of GROUP_LANES problems is one contiguous
row. A group of 32 is four AVX-512 vectors, whose chains of latencies hide each other. Operations come in the order in
which clutter.pyx does them: a problem in a batch has the bits of the problem alone.
"""

from libc.math cimport fabs

from cavity._core.clutter cimport (
    CHUNK_ROWS, MIN_CAVITY_SHARE, Clutter, Density, Site, base_odds, density, match, unpack,
)

cdef enum:
    GROUP_LANES = 32

lanes = GROUP_LANES


cdef void visit_lanes(
    Clutter *model,
    const double *x, const double *centre,       # in (N, GROUP_LANES), (GROUP_LANES,)
    const Py_ssize_t *order, Py_ssize_t n,       # in (N,) or NULL
    double *site_tau, double *site_rho,          # inout (N, GROUP_LANES)
    double *tau, double *rho,                    # inout (GROUP_LANES,)
    const double *damping,                       # in (GROUP_LANES,)
    double *skipped,                             # inout (GROUP_LANES,)
) noexcept nogil:
    """One sequential sweep of GROUP_LANES problems; lanes with damping 0 stay as they are."""
    cdef double t[GROUP_LANES]
    cdef double r[GROUP_LANES]
    cdef double next_tau[GROUP_LANES]
    cdef double next_rho[GROUP_LANES]
    cdef double bad[GROUP_LANES]
    cdef double cavity_tau, cavity_rho, least, k, inv, m, delta, from_centre
    cdef Site site
    cdef Py_ssize_t visited, i, lane
    for lane in range(GROUP_LANES):
        t[lane], r[lane], bad[lane] = tau[lane], rho[lane], 0.0
    for visited in range(n):
        i = (order[visited] if order != NULL else visited) * GROUP_LANES
        for lane in range(GROUP_LANES):
            cavity_rho = r[lane] - site_rho[i + lane]
            least = MIN_CAVITY_SHARE * fabs(r[lane])
            cavity_tau = t[lane] - site_tau[i + lane]
            k = 1.0 + model.noise * cavity_rho
            inv = 1.0 / (cavity_rho * k)
            m = cavity_tau * (k * inv)
            delta = x[i + lane] - m
            from_centre = x[i + lane] - centre[lane]
            site = match(model, 1.0, base_odds(model, 1.0, from_centre * from_centre), cavity_rho, inv,
                         delta * delta)
            next_tau[lane] = site_tau[i + lane] + damping[lane] * (
                site.pull * delta + site.rho * m - site_tau[i + lane])
            next_rho[lane] = site_rho[i + lane] + damping[lane] * (site.rho - site_rho[i + lane])
            # keep the site where its cavity is improper, or has lost its digits
            next_tau[lane] = next_tau[lane] if cavity_rho > least else site_tau[i + lane]
            next_rho[lane] = next_rho[lane] if cavity_rho > least else site_rho[i + lane]
            bad[lane] += 0.0 if cavity_rho > least else 1.0
            t[lane] = cavity_tau + next_tau[lane] if cavity_rho > least else t[lane]
            r[lane] = cavity_rho + next_rho[lane] if cavity_rho > least else r[lane]
        for lane in range(GROUP_LANES):
            site_tau[i + lane] = next_tau[lane]
            site_rho[i + lane] = next_rho[lane]
    for lane in range(GROUP_LANES):
        tau[lane], rho[lane] = t[lane], r[lane]
        skipped[lane] += bad[lane]


cdef void total_lanes(
    const double *site_tau, const double *site_rho, Py_ssize_t n,  # in (N, GROUP_LANES)
    double *tau, double *rho,                                      # inout (GROUP_LANES,): prior in, posterior out
) noexcept nogil:
    """Posterior from prior and sites, summed like `total` chunk by chunk."""
    cdef double part_tau[GROUP_LANES]
    cdef double part_rho[GROUP_LANES]
    cdef Py_ssize_t start = 0, i, lane
    while start < n:
        for lane in range(GROUP_LANES):
            part_tau[lane] = part_rho[lane] = 0.0
        for i in range(start, min(n, start + CHUNK_ROWS)):
            for lane in range(GROUP_LANES):
                part_tau[lane] += site_tau[i * GROUP_LANES + lane]
                part_rho[lane] += site_rho[i * GROUP_LANES + lane]
        for lane in range(GROUP_LANES):
            tau[lane] += part_tau[lane]
            rho[lane] += part_rho[lane]
        start += CHUNK_ROWS


def sweep_lanes(const double[::1] model,
                const double[:, :, ::1] x,       # in  (G, N, GROUP_LANES), working units
                const double[:, ::1] centre,     # in  (G, GROUP_LANES)
                const double[:, ::1] prior_tau,  # in  (G, GROUP_LANES)
                double prior_rho,
                const Py_ssize_t[::1] groups,    # in  (A,): the groups to sweep
                order,                           # in  (N,) intp, or None
                double[:, :, ::1] site_tau,      # inout (G, N, GROUP_LANES)
                double[:, :, ::1] site_rho,      # inout (G, N, GROUP_LANES)
                double[:, ::1] tau,              # inout (G, GROUP_LANES): of the posterior
                double[:, ::1] rho,              # inout (G, GROUP_LANES)
                const double[:, ::1] damping,    # in  (G, GROUP_LANES), 0 for problems that are done
                double[:, ::1] skipped, /):      # inout (G, GROUP_LANES)
    """One sequential EP sweep of the problems in `groups`."""
    cdef Clutter setting = unpack(model)
    cdef const Py_ssize_t[::1] indices
    cdef const Py_ssize_t *index = NULL
    cdef Py_ssize_t a, g, lane, n = x.shape[1]
    if order is not None:
        indices = order
        index = &indices[0]
    with nogil:
        for a in range(groups.shape[0]):
            g = groups[a]
            visit_lanes(&setting, &x[g, 0, 0], &centre[g, 0], index, n, &site_tau[g, 0, 0], &site_rho[g, 0, 0],
                        &tau[g, 0], &rho[g, 0], &damping[g, 0], &skipped[g, 0])
            for lane in range(GROUP_LANES):
                tau[g, lane], rho[g, lane] = prior_tau[g, lane], prior_rho
            total_lanes(&site_tau[g, 0, 0], &site_rho[g, 0, 0], n, &tau[g, 0], &rho[g, 0])


def start_lanes(const double[:, :, ::1] site_tau,  # in  (G, N, GROUP_LANES)
                const double[:, :, ::1] site_rho,  # in  (G, N, GROUP_LANES)
                const double[:, ::1] prior_tau,    # in  (G, GROUP_LANES)
                double prior_rho,
                double[:, ::1] tau,                # out (G, GROUP_LANES)
                double[:, ::1] rho, /):            # out (G, GROUP_LANES)
    """Posterior from given sites."""
    cdef Py_ssize_t g, lane
    with nogil:
        for g in range(site_tau.shape[0]):
            for lane in range(GROUP_LANES):
                tau[g, lane], rho[g, lane] = prior_tau[g, lane], prior_rho
            total_lanes(&site_tau[g, 0, 0], &site_rho[g, 0, 0], site_tau.shape[1], &tau[g, 0], &rho[g, 0])


def evaluate_lanes(const double[::1] model,
                   const double[:, ::1] centre,       # in (G, GROUP_LANES)
                   const double[:, :, ::1] site_tau,  # in (G, N, GROUP_LANES)
                   const double[:, :, ::1] site_rho,  # in (G, N, GROUP_LANES)
                   const double[:, ::1] tau,          # in (G, GROUP_LANES)
                   const double[:, ::1] rho,          # in (G, GROUP_LANES)
                   double[:, :, ::1] x,               # inout (G, N, GROUP_LANES): data in, log site values out
                   double[:, ::1] sums, /):           # out (G, GROUP_LANES): sums of the values
    """The values of `evaluate`, for the problems in all lanes."""
    cdef Clutter setting = unpack(model)
    cdef double part[GROUP_LANES]
    cdef double value[GROUP_LANES]
    cdef double cavity_rho, k, inv, m, mean, xi
    cdef Density row
    cdef Py_ssize_t g, i, lane, n = x.shape[1]
    with nogil:
        for g in range(x.shape[0]):
            for lane in range(GROUP_LANES):
                sums[g, lane] = part[lane] = 0.0
            for i in range(n):
                for lane in range(GROUP_LANES):
                    xi = x[g, i, lane]
                    cavity_rho = rho[g, lane] - site_rho[g, i, lane]
                    k = 1.0 + setting.noise * cavity_rho
                    inv = 1.0 / (cavity_rho * k)
                    m = (tau[g, lane] - site_tau[g, i, lane]) * (k * inv)
                    mean = tau[g, lane] / rho[g, lane]
                    row = density(&setting, 1.0, (xi - centre[g, lane]) * (xi - centre[g, lane]), cavity_rho, inv,
                                  rho[g, lane], (xi - m) * (xi - m), (mean - m) * (mean - m))
                    value[lane] = row.value
                for lane in range(GROUP_LANES):
                    x[g, i, lane] = value[lane]
                    part[lane] += value[lane]
                if (i + 1) % CHUNK_ROWS == 0 or i + 1 == n:
                    for lane in range(GROUP_LANES):
                        sums[g, lane] += part[lane]
                        part[lane] = 0.0
