"""The observations of a block of rows, and the renewal of all sites from one posterior; equations as in ep.pyx."""

from libc.math cimport INFINITY, NAN, fabs, sqrt

from cavity._core.simd cimport cv_log, cv_sum
from cavity._core.site_calls cimport match_tile
from cavity._core.site_types cimport Likelihood, unpack

cdef extern from *:
    """
    #define CV_SMALLEST_SHARE 1e-13
    #define CV_SITE_ROWS 128
    """
    const double SMALLEST_SHARE "CV_SMALLEST_SHARE"  # of a posterior precision that a cavity keeps: less is rounding
    enum: SITE_ROWS "CV_SITE_ROWS"                   # renewed together

cdef struct Rows:                            # the observations of a block; steps are 0 where one number serves all rows
    Likelihood likelihood
    const double *power                      # e, see cavity/ep/sites.py
    const double *fraction                   # f
    const double *residual                   # of what the sites act on
    const double *y
    const double *extra
    Py_ssize_t powers, fractions, residuals, extras


cdef inline Rows unpack_rows(int kind, const double[::1] parameters, const double[::1] power,
                             const double[::1] fraction, const double[::1] residual, const double[::1] y,
                             const double[::1] extra) noexcept nogil:
    """What the kernels read of their rows, from the arguments of Python."""
    cdef Rows rows
    rows.likelihood = unpack(kind, power[0], parameters)
    rows.power, rows.powers = &power[0], 1 if power.shape[0] > 1 else 0
    rows.fraction, rows.fractions = &fraction[0], 1 if fraction.shape[0] > 1 else 0
    rows.residual, rows.residuals = &residual[0], 1 if residual.shape[0] > 1 else 0
    rows.y = &y[0]
    rows.extra, rows.extras = &extra[0], 1 if extra.shape[0] > 1 else 0
    return rows


cdef inline void spread_out(const double *values, Py_ssize_t step, Py_ssize_t n, double *to) noexcept nogil:
    """to (n,) = values (n,), or n times the first of them where step is 0."""
    cdef Py_ssize_t i
    cdef double first = values[0]
    if step:
        for i in range(n):
            to[i] = values[i]
    else:
        for i in range(n):
            to[i] = first


cdef inline void cavity_tile(
    const double *f, Py_ssize_t n,                   # fractions of the sites that are left out, n <= SITE_ROWS
    const double *m, const double *v,                # in  (n,): moments of f under the posterior
    const double *tau, const double *rho,            # in  (n,): the sites
    double *cavity_m, double *cavity_v,              # out (n,): those of the posterior where no cavity is proper
    double *proper,                                  # out (n,): 1, or 0 where it is not
) noexcept nogil:
    cdef double keep, shift
    cdef Py_ssize_t i
    for i in range(n):
        keep = 1.0 - f[i] * rho[i] * v[i]            # cavity precision times v
        proper[i] = 1.0 if keep > SMALLEST_SHARE else 0.0
        keep = keep if keep > SMALLEST_SHARE else 1.0
        cavity_v[i] = v[i] / keep                    # 1/cavity_v = 1/v - f rho             (3.56)
        shift = cavity_v[i] * f[i] * (rho[i] * m[i] - tau[i])
        # cavity_m = cavity_v (m/v - f tau)                         (3.56)
        cavity_m[i] = m[i] + (shift if proper[i] > 0.0 else 0.0)


cdef inline Py_ssize_t match_rows(
    Rows *rows, const double *power, Py_ssize_t powers, Py_ssize_t at, Py_ssize_t n,     # rows at..at+n-1 of them
    const double *m, const double *v,                # in  (n,): the cavities
    double *log_z, double *tau, double *rho,         # out (n,): the sites of p^power on what they act on
) noexcept nogil:
    """The first row whose tilted moments no rule resolves, or -1."""
    cdef double s[SITE_ROWS]
    cdef double wide[SITE_ROWS]
    cdef double spread
    cdef Py_ssize_t i, unresolved = 0
    spread_out(rows.residual + at * rows.residuals, rows.residuals, n, s)
    for i in range(n):
        wide[i] = v[i] + s[i]
    match_tile(&rows.likelihood, n, power + at * powers, powers, rows.y + at, rows.extra + at * rows.extras,
               rows.extras, m, wide, True, log_z, tau, rho)
    for i in range(n):
        spread = 1.0 + rho[i] * s[i]
        tau[i], rho[i] = tau[i] / spread, rho[i] / spread     # 1/rho_g = 1/rho_f + residual, and equal tau/rho
        unresolved += log_z[i] != log_z[i]
    if unresolved:
        for i in range(n):
            if log_z[i] != log_z[i]:
                return i
    return -1


cdef inline Py_ssize_t renew_tile(
    Rows *rows, Py_ssize_t at, Py_ssize_t n,         # rows at..at+n-1 of them, n <= SITE_ROWS
    const double *m, const double *v,                # in  (n,): moments of f under the posterior
    const double *tau, const double *rho,            # in  (n,): the sites
    double up, double down,                          # damping of steps that raise and lower the precision of a site
    double *new_tau, double *new_rho,                # out (n,)
    Py_ssize_t *skipped,                             # inout: plus the number of sites left alone
) noexcept nogil:
    """Renew sites from one posterior. The first row whose tilted moments no rule resolves, or -1.

    Sites are left alone where the cavity is improper or what they should be leaves float64.
    """
    cdef double f[SITE_ROWS]
    cdef double cavity_m[SITE_ROWS]
    cdef double cavity_v[SITE_ROWS]
    cdef double proper[SITE_ROWS]
    cdef double log_z[SITE_ROWS]
    cdef double t[SITE_ROWS]
    cdef double r[SITE_ROWS]
    cdef double d_tau, d_rho, damping
    cdef Py_ssize_t i, bad, improper = 0
    spread_out(rows.fraction + at * rows.fractions, rows.fractions, n, f)
    cavity_tile(f, n, m, v, tau, rho, cavity_m, cavity_v, proper)
    # moments of the tilted distributions (3.58), as the sites that have them (3.59)
    bad = match_rows(rows, rows.power, rows.powers, at, n, cavity_m, cavity_v, log_z, t, r)
    for i in range(n):
        proper[i] = proper[i] if fabs(t[i]) < INFINITY and fabs(r[i]) < INFINITY else 0.0
        d_tau, d_rho = t[i] / f[i] - tau[i], r[i] / f[i] - rho[i]
        damping = up if d_rho >= 0.0 else down
        new_tau[i] = tau[i] + (damping * d_tau if proper[i] > 0.0 else 0.0)
        new_rho[i] = rho[i] + (damping * d_rho if proper[i] > 0.0 else 0.0)
    for i in range(n):
        improper += proper[i] == 0.0
    skipped[0] += improper
    return bad


cdef struct SiteTotals:                              # of the sites of rows, see evidence.py
    double total                                     # their log values at the means of the posterior
    double residual                                  # largest distance of the posterior from their moments


cdef inline Py_ssize_t assess_tile(
    Rows *rows, const double *one, Py_ssize_t ones,  # fractions that leave one observation out, NULL where all do
    Py_ssize_t at, Py_ssize_t n,                     # rows at..at+n-1 of them, n <= SITE_ROWS
    const double *m, const double *v,                # in  (n,): moments of f under the posterior
    const double *tau, const double *rho,            # in  (n,): the sites
    double *log_density, double *moved,              # out (n,): of observations left out, and what they do to f
    SiteTotals *totals,                              # inout: plus those of these rows
) noexcept nogil:
    """Contributions of sites. Returns the first row whose tilted moments no rule resolves, or -1."""
    cdef double f[SITE_ROWS]
    cdef double cavity_m[SITE_ROWS]
    cdef double cavity_v[SITE_ROWS]
    cdef double proper[SITE_ROWS]
    cdef double t[SITE_ROWS]
    cdef double r[SITE_ROWS]
    cdef double value[SITE_ROWS]
    cdef double far[SITE_ROWS]
    cdef double unit_power = 1.0, ratio, difference, tilted_rho, shift, narrowing
    cdef Py_ssize_t i, bad
    spread_out(rows.fraction + at * rows.fractions, rows.fractions, n, f)
    cavity_tile(f, n, m, v, tau, rho, cavity_m, cavity_v, proper)
    bad = match_rows(rows, rows.power, rows.powers, at, n, cavity_m, cavity_v, log_density, t, r)
    for i in range(n):
        tilted_rho, difference = 1.0 / cavity_v[i] + r[i], m[i] - cavity_m[i]
        shift = fabs((t[i] - r[i] * cavity_m[i]) / tilted_rho - difference) / sqrt(v[i])
        narrowing = fabs(1.0 / (tilted_rho * v[i]) - 1.0)
        far[i] = shift if shift > narrowing else narrowing
        far[i] = far[i] if fabs(t[i]) < INFINITY and fabs(r[i]) < INFINITY and shift == shift else INFINITY
        # log Z_i + log q_i(m) - log c_i(m): (1) and (2) of cavity/ep/evidence.py
        value[i] = (log_density[i] + 0.5 * (cv_log(cavity_v[i] / v[i]) + difference * difference / cavity_v[i])) / f[i]
    for i in range(n):
        totals.residual = far[i] if far[i] > totals.residual else totals.residual
    totals.total += cv_sum(value, n)
    if one != NULL:
        spread_out(one + at * ones, ones, n, f)
        cavity_tile(f, n, m, v, tau, rho, cavity_m, cavity_v, proper)
        i = match_rows(rows, &unit_power, 0, at, n, cavity_m, cavity_v, log_density, t, r)
        bad = bad if bad >= 0 else i
        for i in range(n):
            log_density[i] = log_density[i] if proper[i] > 0.0 else NAN
    for i in range(n):
        ratio, difference = cavity_v[i] / v[i], cavity_m[i] - m[i]
        # KL(c_i || q)
        moved[i] = 0.5 * (ratio - 1.0 - cv_log(ratio) + difference * difference / v[i])
    return bad


cdef inline bint note_pass(double change, double progress, double tol, double *best, double *changes,
                           Py_ssize_t *done) noexcept nogil:
    """Store the change of a pass, and return whether passes go on: while changes are above tol and below progress times
    the best. A pass that is none, whose change is nan, is not counted."""
    cdef bint goes_on = tol < change < progress * best[0]
    if change == change:
        changes[done[0]], best[0], done[0] = change, change, done[0] + 1
    return goes_on
