"""Sequential EP over a block of sites on jointly Gaussian values f.

[RW]  C. E. Rasmussen and C. K. I. Williams, Gaussian Processes for Machine Learning, 2006, section 3.6. Numbers of
equations in this file are those of the book, with a fraction f of the site in the place of the site.
"""

from libc.math cimport INFINITY, NAN, fabs, sqrt
from libc.stdlib cimport calloc, free
from libc.string cimport memcpy, memset

from cavity._core.lane_sums cimport aligned
from cavity._core.lanes cimport CV_STEP, cv8, cv8_add, cv8_load, cv8_mul, cv8_set, cv8_store, template
from cavity._core.simd cimport CV_LANES, cv_combine
from cavity._core.site_calls cimport connect, tilted
from cavity._core.site_rows cimport (
    SITE_ROWS, SMALLEST_SHARE, Rows, SiteTotals, assess_tile, note_pass, renew_tile, unpack_rows,
)
from cavity._core.site_types cimport Likelihood, Tilted

connect()

smallest_share = SMALLEST_SHARE

cdef struct Renewal:                         # of a site, damping included
    double log_z                             # of its tilted distribution
    double tau, rho                          # changes of the site
    double shift, shrink                     # the mean moves by shift V_i, the covariance by -shrink V_i V_i'


cdef inline Tilted match_with_noise(Likelihood *lik, double y, double extra, double m, double v,
                                    double residual) noexcept nogil:
    """The site of p(y|f) on g, f = g + N(0, residual), at the cavity N(g; m, v)."""
    cdef Tilted at = tilted(lik, y, extra, m, v + residual)
    cdef double spread
    if residual > 0.0:
        spread = 1.0 + at.rho * residual                      # 1/rho_g = 1/rho_f + residual, and equal tau/rho
        at.tau, at.rho = at.tau / spread, at.rho / spread
    return at


cdef inline bint is_finite(Tilted at) noexcept nogil:
    """Whether a site has moments: see quadrature_sites.pxd; it may have none where the posterior lost its digits."""
    return fabs(at.tau) < INFINITY and fabs(at.rho) < INFINITY and at.log_z == at.log_z


cdef inline bint renew(
    Rows *rows, Py_ssize_t i,
    double m, double v,                      # moments of f_i under the posterior
    double tau, double rho,                  # the site
    double up, double down,                  # damping of steps that raise and lower the precision of a site
    Renewal *new,                            # out
) noexcept nogil:
    """Whether the site can be renewed: its cavity is proper and has moments, and the posterior stays proper."""
    cdef double f = rows.fraction[i * rows.fractions], residual = rows.residual[i * rows.residuals]
    cdef double keep = 1.0 - f * rho * v, cavity_v, cavity_m, damping, scale      # cavity precision times v
    cdef Tilted at
    if not (keep > SMALLEST_SHARE and v + residual > 0.0):
        return False
    cavity_v = v / keep                                  # 1/cavity_v = 1/v - f rho             (3.56)
    cavity_m = m + cavity_v * f * (rho * m - tau)        # cavity_m = cavity_v (m/v - f tau)    (3.56)
    rows.likelihood.power = rows.power[i * rows.powers]
    # moments of the tilted distribution (3.58), as the site that has them (3.59)
    at = match_with_noise(&rows.likelihood, rows.y[i], rows.extra[i * rows.extras], cavity_m, cavity_v, residual)
    if not is_finite(at):                    # no moments, or none within float64
        return False
    new.log_z, new.tau, new.rho = at.log_z, at.tau / f - tau, at.rho / f - rho      # steps to the new site
    damping = up if new.rho >= 0.0 else down
    if f < 1.0 and damping > f and 1.0 + damping * new.rho * v < 0.5:
        damping = f                          # lands on the tilted moments
    new.tau, new.rho = damping * new.tau, damping * new.rho
    scale = 1.0 + new.rho * v
    if not scale > 0.0:
        return False
    new.shift, new.shrink = (new.tau - new.rho * m) / scale, new.rho / scale        # of mean and covariance (3.70)
    return True


def sweep(int kind, const double[::1] parameters,
          const double[::1] power,           # in    (n,) or (1,): e, see cavity/ep/sites.py
          const double[::1] fraction,        # in    (n,) or (1,): f
          const double[::1] residual,        # in    (n,) or (1,): of what the sites act on, see cavity/ep/sites.py
          const double[::1] y,               # in    (n,)
          const double[::1] extra,           # in    (n,) or (1,)
          double[::1] mean,                  # inout (n,): of f under the posterior
          double[:, ::1] covariance,         # inout (n, n); only what later sites need is kept up to date
          double[::1] tau,                   # inout (n,): sites
          double[::1] rho,                   # inout (n,)
          double up, double down, /):        # damping of steps that raise and lower the precision of a site
    """Visit the sites in order, each seeing the changes of those before.

    Returns the number of sites skipped, because their cavities are improper or have no moments, and the sum of the log
    normalisers of the others. A change (dtau, drho) of site i moves the mean by (dtau - drho m_i)/(1 + drho V_ii) V_i
    and the covariance by -drho/(1 + drho V_ii) V_i V_i' (3.70).
    """
    cdef Rows rows = unpack_rows(kind, parameters, power, fraction, residual, y, extra)
    cdef Py_ssize_t n = y.shape[0], i, j, k, skipped = 0
    cdef double total = 0.0, shift, shrink, c
    cdef Renewal new
    with nogil:
        for i in range(n):
            if not renew(&rows, i, mean[i], covariance[i, i], tau[i], rho[i], up, down, &new):
                skipped += 1
                continue
            total += new.log_z
            tau[i] += new.tau
            rho[i] += new.rho
            shift, shrink = new.shift, new.shrink        # local: no store below can change them
            for j in range(i + 1, n):                    # mean += shift V_i, V -= shrink V_i V_i'       (3.70)
                mean[j] += shift * covariance[i, j]
            for j in range(i + 1, n):
                c = shrink * covariance[i, j]
                for k in range(j, n):
                    covariance[j, k] -= c * covariance[i, k]
    return skipped, total


cdef struct Values:                          # of N function values; consecutive
    double *joint                            # (N, N): lower triangle of their covariance under the posterior
    double *mean                             # (N,): less their base
    double *variance                         # (N,)
    double *tau                              # (N,): sites
    double *rho                              # (N,)


cdef inline Values values_at(double *numbers, Py_ssize_t n) noexcept nogil:
    cdef Values at
    at.joint, at.mean, at.variance = numbers, numbers + n * n, numbers + n * n + n
    at.tau, at.rho = at.variance + n, at.variance + 2 * n
    return at


cdef double visit_values(
    Rows *rows, const double *base, const Values *old, const Values *new, Py_ssize_t n, double *work,
) noexcept nogil:
    """Visit all sites in order, without damping: the change of the marginals, or nan where that is not a whole pass, as
    a site was skipped or a variance lost its digits. `work` is (N,)."""
    cdef Py_ssize_t i, j, k
    cdef double largest = 0.0, change
    cdef double *row
    cdef Renewal step
    memcpy(new.joint, old.joint, (n * n + 4 * n) * sizeof(double))
    for i in range(n):
        new.mean[i] += base[i]
    for i in range(n):
        if not renew(rows, i, new.mean[i], new.joint[i * n + i], new.tau[i], new.rho[i], 1.0, 1.0, &step):
            return NAN
        new.tau[i] += step.tau
        new.rho[i] += step.rho
        for j in range(n):
            work[j] = new.joint[i * n + j] if j <= i else new.joint[j * n + i]      # V_i
        for j in range(n):                   # mean += shift V_i, V -= shrink V_i V_i'       (3.70)
            new.mean[j] += step.shift * work[j]
        for j in range(n):
            row, change = new.joint + j * n, step.shrink * work[j]
            for k in range(j + 1):
                row[k] -= change * work[k]
    for i in range(n):
        new.mean[i] -= base[i]
        new.variance[i] = new.joint[i * n + i]
        if not new.variance[i] > 0.0:
            return NAN
        # changes of marginals: of means in sd of the new ones, of variances relative
        change = fabs(new.mean[i] - old.mean[i]) / sqrt(new.variance[i])
        largest = change if not change <= largest else largest
        change = fabs(old.variance[i] / new.variance[i] - 1.0)
        largest = change if not change <= largest else largest
    return largest


def sweep_values(int kind, const double[::1] parameters,
                 const double[::1] power, const double[::1] fraction, const double[::1] residual,
                 const double[::1] y, const double[::1] extra,    # all as for sweep
                 const double[::1] base,       # in    (n,)
                 double[:, :, ::1] states,     # inout (2, n + 4, n): a posterior, see Values, and the next
                 double best, double progress,  # in    passes go on while changes are below progress times the best
                 double tol,                   # in    ... and above it
                 double[::1] changes, /):      # out   (m,): of passes, m of them at most
    """Do sweeps over all sites, each a rank-1 update of the covariance a site. Returns their number k; the last is in
    states[k % 2]. Only the last may be no progress; a sweep that is no whole pass does not count."""
    cdef Rows rows = unpack_rows(kind, parameters, power, fraction, residual, y, extra)
    cdef Py_ssize_t n = y.shape[0], done = 0
    cdef Values pair[2]
    cdef double change
    cdef bint goes_on = True
    cdef double *work = <double *>calloc(n, sizeof(double))
    if work == NULL:
        raise MemoryError
    with nogil:
        pair[0], pair[1] = values_at(&states[0, 0, 0], n), values_at(&states[1, 0, 0], n)
        while goes_on and done < changes.shape[0]:
            change = visit_values(&rows, &base[0], &pair[done % 2], &pair[1 - done % 2], n, work)
            goes_on = note_pass(change, progress, tol, &best, &changes[0], &done)
        free(work)
    return done


cdef enum:
    MAX_STEPS = 4                            # lanes of a panel: 32 numbers
    PANEL_LANES = CV_STEP

cdef struct Weights:                         # q(a) = N(mean, covariance), rows of whole lanes, 0 beyond the last column
    Py_ssize_t n_columns, width
    double *mean                             # (width,)
    double *covariance                       # panels (D, 8 PANEL_LANES), the last one narrower
    double *x                                # (SITE_ROWS, width): rows of the design
    double *spread                           # (width,): V x, V the covariance
    double *later                            # (width,): the same of the row after
    double *scaled                           # (width,): a multiple of spread
    double *lanes                            # (CV_LANES,), aligned: in one line of the cache


cdef inline double dot(const Weights *q, const double *a, const double *b) noexcept nogil:
    cdef cv8 total = cv8_set(0.0)
    cdef Py_ssize_t lane
    for lane in range(q.width // CV_LANES):
        total = cv8_add(total, cv8_mul(cv8_load(a + lane * CV_LANES), cv8_load(b + lane * CV_LANES)))
    cv8_store(q.lanes, total)
    return cv_combine(q.lanes)


cdef inline void copy_rows(double *to, Py_ssize_t to_width, const double *rows, Py_ssize_t width, Py_ssize_t n,
                           Py_ssize_t columns) noexcept nogil:
    cdef Py_ssize_t i, j
    for i in range(n):
        for j in range(columns):
            to[i * to_width + j] = rows[i * width + j]


cdef inline void copy_panels(const Weights *q, double *covariance, bint back) noexcept nogil:
    """Copy the covariance (D, D) into panels, or back."""
    cdef Py_ssize_t first = 0, wide, d = q.n_columns
    while first < d:
        wide = min(q.width - first, <Py_ssize_t>(PANEL_LANES * CV_LANES))
        if back:
            copy_rows(covariance + first, d, q.covariance + first * d, wide, d, min(wide, d - first))
        else:
            copy_rows(q.covariance + first * d, wide, covariance + first, d, d, min(wide, d - first))
        first += wide


cdef inline template pass_panel(Py_ssize_t count, const Weights *q, Py_ssize_t first, const double *x) noexcept nogil:
    """What pass_over does, in a panel of 8 count columns."""
    cdef double *row = q.covariance + first * q.n_columns
    cdef const double *scaled = q.scaled     # local: no store below can change it
    cdef Py_ssize_t n = q.n_columns
    cdef cv8 total[MAX_STEPS]
    cdef cv8 own[MAX_STEPS]
    cdef cv8 at
    cdef Py_ssize_t j, g
    for g in range(count):
        total[g], own[g] = cv8_set(0.0), cv8_load(q.spread + first + g * CV_LANES)
    for j in range(n):
        for g in range(count):
            at = cv8_add(cv8_load(row + g * CV_LANES), cv8_mul(cv8_set(scaled[j]), own[g]))
            cv8_store(row + g * CV_LANES, at)
            total[g] = cv8_add(total[g], cv8_mul(cv8_set(x[j]), at))
        row += count * CV_LANES
    for g in range(count):
        cv8_store(q.later + first + g * CV_LANES, total[g])


cdef void pass_over(Weights *q, const double *x) noexcept nogil:
    """covariance += scaled spread', then spread = covariance x: once through memory."""
    cdef Py_ssize_t first = 0, wide
    while first < q.width:
        wide = min((q.width - first) // CV_LANES, <Py_ssize_t>PANEL_LANES)
        if wide == 4:
            pass_panel(4, q, first, x)
        elif wide == 3:
            pass_panel(3, q, first, x)
        elif wide == 2:
            pass_panel(2, q, first, x)
        else:
            pass_panel(1, q, first, x)
        first += wide * CV_LANES
    q.spread, q.later = q.later, q.spread


cdef inline void add_scaled(double *a, double factor, const double *b, Py_ssize_t width) noexcept nogil:
    """a += factor b."""
    cdef Py_ssize_t lane
    for lane in range(width // CV_LANES):
        cv8_store(a + lane * CV_LANES,
                  cv8_add(cv8_load(a + lane * CV_LANES), cv8_mul(cv8_set(factor), cv8_load(b + lane * CV_LANES))))


cdef Py_ssize_t visit_rows(
    Weights *q, Rows *rows, Py_ssize_t at, Py_ssize_t n,             # rows at..at+n-1 of them, which are q.x
    const double *base, Py_ssize_t bases, double *tau, double *rho, double up, double down, double *total,
) noexcept nogil:
    """The loop of `sweep_rows`: how many sites are skipped; adds the log normalisers of the others to the total."""
    cdef Py_ssize_t i, j, skipped = 0
    cdef const double *x
    cdef Renewal new
    for i in range(at, at + n):
        x = q.x + (i - at) * q.width
        pass_over(q, x)
        if not renew(rows, i, base[i * bases] + dot(q, x, q.mean), dot(q, x, q.spread), tau[i], rho[i],
                     up, down, &new):
            skipped += 1
            memset(q.spread, 0, q.width * sizeof(double))
            continue
        total[0] += new.log_z
        tau[i] += new.tau
        rho[i] += new.rho
        add_scaled(q.mean, new.shift, q.spread, q.width)      # mean += shift V x, V -= shrink V x (V x)'  (3.70)
        for j in range(q.n_columns):
            q.scaled[j] = -new.shrink * q.spread[j]
    return skipped


def sweep_rows(int kind, const double[::1] parameters,
               const double[::1] power, const double[::1] fraction, const double[::1] residual,
               const double[::1] y, const double[::1] extra,    # all as for sweep
               const double[:, ::1] x,       # in    (n, d): f_i = x_i'a + base_i
               const double[::1] base,       # in    (n,) or (1,)
               double[::1] mean,             # inout (d,): of a
               double[:, ::1] covariance,    # inout (d, d)
               double[::1] tau, double[::1] rho, double up, double down, /):
    """The schedule of `sweep` with a rank-1 update of the covariance of a after each site, for few columns.

    Returns the number of skipped sites and the sum of the log normalisers of the others.
    """
    cdef Rows rows = unpack_rows(kind, parameters, power, fraction, residual, y, extra)
    cdef Py_ssize_t n = x.shape[0], d = x.shape[1], width = (d + CV_LANES - 1) // CV_LANES * CV_LANES
    cdef Py_ssize_t tile, at, size, skipped = 0, bases = 1 if base.shape[0] > 1 else 0
    cdef double total = 0.0
    cdef Weights q
    cdef void *memory = calloc((d + 4 + SITE_ROWS) * width + 2 * CV_LANES, sizeof(double))
    if memory == NULL:
        raise MemoryError
    q.n_columns, q.width, q.covariance = d, width, aligned(memory)
    q.mean = q.covariance + d * width
    q.spread, q.later, q.scaled = q.mean + width, q.mean + 2 * width, q.mean + 3 * width
    q.lanes = q.scaled + width
    q.x = q.lanes + CV_LANES
    with nogil:
        copy_rows(q.mean, width, &mean[0], d, 1, d)
        copy_panels(&q, &covariance[0, 0], False)
        for tile in range((n + SITE_ROWS - 1) // SITE_ROWS):
            at = tile * SITE_ROWS
            size = min(<Py_ssize_t>SITE_ROWS, n - at)
            copy_rows(q.x, width, &x[at, 0], d, size, d)     # before they are read in lanes
            skipped += visit_rows(&q, &rows, at, size, &base[0], bases, &tau[0], &rho[0], up, down, &total)
        pass_over(&q, q.x)                                   # what the last row has changed
        copy_rows(&mean[0], d, q.mean, width, 1, d)
        copy_panels(&q, &covariance[0, 0], True)
        free(memory)
    return skipped, total


def renew_all(int kind, const double[::1] parameters,
              const double[::1] power, const double[::1] fraction, const double[::1] residual,
              const double[::1] y, const double[::1] extra,     # all as for sweep
              const double[::1] mean,        # in    (n,): of f under the posterior
              const double[::1] variance,    # in    (n,)
              const double[::1] tau, const double[::1] rho, double up, double down,
              double[::1] new_tau,           # out   (n,)
              double[::1] new_rho, /):       # out   (n,)
    """Renew all sites from one posterior, none seeing the changes of another.

    Returns the index of the first row whose tilted moments no rule resolves, or -1, and the number of sites left alone.
    """
    cdef Rows rows = unpack_rows(kind, parameters, power, fraction, residual, y, extra)
    cdef Py_ssize_t n = y.shape[0], tile, at, bad = -1, skipped = 0
    with nogil:
        for tile in range((n + SITE_ROWS - 1) // SITE_ROWS):
            at = tile * SITE_ROWS
            bad = renew_tile(&rows, at, min(<Py_ssize_t>SITE_ROWS, n - at), &mean[at], &variance[at], &tau[at],
                             &rho[at], up, down, &new_tau[at], &new_rho[at], &skipped)
            if bad >= 0:
                bad += at
                break
    return bad, skipped


def assess_all(int kind, const double[::1] parameters,
               const double[::1] power, const double[::1] fraction, const double[::1] residual,
               const double[::1] y, const double[::1] extra,    # all as for sweep
               const double[::1] one,        # in    (n,), (1,), or empty if `fraction` leaves out one observation
               const double[::1] mean, const double[::1] variance,
               const double[::1] tau, const double[::1] rho,    # as for renew_all
               double[::1] log_density,      # out   (n,): of observations left out, nan where that is no distribution
               double[::1] moved, /):        # out   (n,): KL(cavity || q) of f
    """Contributions of sites to the evidence at the end of a fit, see cavity/ep/evidence.py.

    Returns the index of the first row whose tilted moments no rule resolves, or -1; the sum of the log values of sites;
    and their residual.
    """
    cdef Rows rows = unpack_rows(kind, parameters, power, fraction, residual, y, extra)
    cdef const double *leave = NULL
    cdef Py_ssize_t n = y.shape[0], ones = 1 if one.shape[0] > 1 else 0, tile, at, bad = -1
    cdef SiteTotals totals
    totals.total = totals.residual = 0.0
    if one.shape[0]:
        leave = &one[0]
    with nogil:
        for tile in range((n + SITE_ROWS - 1) // SITE_ROWS):
            at = tile * SITE_ROWS
            bad = assess_tile(&rows, leave, ones, at, min(<Py_ssize_t>SITE_ROWS, n - at), &mean[at], &variance[at],
                              &tau[at], &rho[at], &log_density[at], &moved[at], &totals)
            if bad >= 0:
                bad += at
                break
    return bad, totals.total, totals.residual
