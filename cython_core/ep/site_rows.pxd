"""The observations of a block of rows, and the renewal of all their sites from one posterior."""

from libc.math cimport INFINITY, fabs

from cavity._core.site_tiles cimport match_tile
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
    cdef double s[SITE_ROWS]
    cdef double cavity_m[SITE_ROWS]
    cdef double cavity_v[SITE_ROWS]
    cdef double proper[SITE_ROWS]
    cdef double log_z[SITE_ROWS]
    cdef double t[SITE_ROWS]
    cdef double r[SITE_ROWS]
    cdef double keep, shift, spread, d_tau, d_rho, damping
    cdef Py_ssize_t i, alone = 0, unresolved = 0
    spread_out(rows.fraction + at * rows.fractions, rows.fractions, n, f)
    spread_out(rows.residual + at * rows.residuals, rows.residuals, n, s)
    for i in range(n):
        keep = 1.0 - f[i] * rho[i] * v[i]            # cavity precision times v
        proper[i] = 1.0 if keep > SMALLEST_SHARE else 0.0
        keep = keep if keep > SMALLEST_SHARE else 1.0
        cavity_v[i] = v[i] / keep
        shift = cavity_v[i] * f[i] * (rho[i] * m[i] - tau[i])
        cavity_m[i] = m[i] + (shift if proper[i] > 0.0 else 0.0)
        cavity_v[i] += s[i]
    match_tile(&rows.likelihood, n, rows.power + at * rows.powers, rows.powers, rows.y + at,
               rows.extra + at * rows.extras, rows.extras, cavity_m, cavity_v, True, log_z, t, r)
    for i in range(n):
        spread = 1.0 + r[i] * s[i]
        t[i], r[i] = t[i] / spread, r[i] / spread
        proper[i] = proper[i] if fabs(t[i]) < INFINITY and fabs(r[i]) < INFINITY else 0.0
        d_tau, d_rho = t[i] / f[i] - tau[i], r[i] / f[i] - rho[i]
        damping = up if d_rho >= 0.0 else down
        new_tau[i] = tau[i] + (damping * d_tau if proper[i] > 0.0 else 0.0)
        new_rho[i] = rho[i] + (damping * d_rho if proper[i] > 0.0 else 0.0)
    for i in range(n):
        alone += proper[i] == 0.0
        unresolved += log_z[i] != log_z[i]
    skipped[0] += alone
    if unresolved:
        for i in range(n):
            if log_z[i] != log_z[i]:
                return i
    return -1
