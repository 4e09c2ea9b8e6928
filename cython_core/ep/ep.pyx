"""Sequential EP over a block of sites on jointly Gaussian values f.

[RW]  C. E. Rasmussen and C. K. I. Williams, Gaussian Processes for Machine Learning, 2006.
"""

from libc.math cimport INFINITY, fabs

from cavity._core.site_rows cimport SITE_ROWS, SMALLEST_SHARE, Rows, renew_tile, unpack_rows
from cavity._core.site_types cimport Likelihood, Tilted
from cavity._core.sites cimport tilted

smallest_share = SMALLEST_SHARE

cdef struct Renewal:                         # of a site, damping included
    double log_z                             # of its tilted distribution
    double tau, rho                          # changes of the site
    double shift, shrink                     # the mean moves by shift V_i, the covariance by -shrink V_i V_i'


cdef inline Tilted through(Likelihood *lik, double y, double extra, double m, double v,
                           double residual) noexcept nogil:
    """What p(y|f) says of g, f = g + N(0, residual), at the cavity N(g; m, v)."""
    cdef Tilted at = tilted(lik, y, extra, m, v + residual)
    cdef double spread
    if residual > 0.0:
        spread = 1.0 + at.rho * residual
        at.tau, at.rho = at.tau / spread, at.rho / spread
    return at


cdef inline bint finite(Tilted at) noexcept nogil:
    """Whether a site has moments: see quadrature_sites.pxd; where the posterior lost its digits it may have none."""
    return fabs(at.tau) < INFINITY and fabs(at.rho) < INFINITY and at.log_z == at.log_z


cdef inline bint renew(
    Rows *rows, Py_ssize_t i,
    double m, double v,                      # moments of f_i under the posterior
    double tau, double rho,                  # the site
    double up, double down,                  # damping of steps that raise and lower the precision of a site
    Renewal *new,                            # out
) noexcept nogil:
    """Whether the site can be renewed: its cavity is proper and has moments, and the posterior stays proper.

    `visits.visit` is the same in Python.
    """
    cdef double f = rows.fraction[i * rows.fractions], residual = rows.residual[i * rows.residuals]
    cdef double keep = 1.0 - f * rho * v, cavity_v, damping, scale                # cavity precision times v
    cdef Tilted at
    if not (keep > SMALLEST_SHARE and v + residual > 0.0):
        return False
    cavity_v = v / keep
    rows.likelihood.power = rows.power[i * rows.powers]
    at = through(&rows.likelihood, rows.y[i], rows.extra[i * rows.extras], m + cavity_v * f * (rho * m - tau), cavity_v,
                 residual)
    if not finite(at):                       # no moments, or none within float64
        return False
    new.log_z, new.tau, new.rho = at.log_z, at.tau / f - tau, at.rho / f - rho
    damping = up if new.rho >= 0.0 else down
    if f < 1.0 and damping > f and 1.0 + damping * new.rho * v < 0.5:
        damping = f                          # lands on the tilted moments
    new.tau, new.rho = damping * new.tau, damping * new.rho
    scale = 1.0 + new.rho * v
    if not scale > 0.0:
        return False
    new.shift, new.shrink = (new.tau - new.rho * m) / scale, new.rho / scale
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
          double up, double down):           # damping of steps that raise and lower the precision of a site
    """Visit the sites in order, each seeing the changes of those before.

    Returns the number of sites skipped, because their cavities are improper or have no moments, and the sum of the log
    normalisers of the others. A change (dtau, drho) of site i moves the mean by (dtau - drho m_i)/(1 + drho V_ii) V_i
    and the covariance by -drho/(1 + drho V_ii) V_i V_i' [RW, (3.65) onwards].
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
            for j in range(i + 1, n):
                mean[j] += shift * covariance[i, j]
            for j in range(i + 1, n):
                c = shrink * covariance[i, j]
                for k in range(j, n):
                    covariance[j, k] -= c * covariance[i, k]
    return skipped, total


def sweep_rows(int kind, const double[::1] parameters,
               const double[::1] power, const double[::1] fraction, const double[::1] residual,
               const double[::1] y, const double[::1] extra,    # all as for sweep
               const double[:, ::1] x,       # in    (n, d): f_i = x_i'a + base_i
               const double[::1] base,       # in    (n,) or (1,)
               double[::1] mean,             # inout (d,): of a
               double[:, ::1] covariance,    # inout (d, d)
               double[::1] tau, double[::1] rho, double up, double down,
               double[::1] work):            # (d,)
    """The schedule of `sweep` with a rank-1 update of the covariance of a after each site, for few columns.

    Returns the number of skipped sites and the sum of the log normalisers of the others.
    """
    cdef Rows rows = unpack_rows(kind, parameters, power, fraction, residual, y, extra)
    cdef Py_ssize_t n = x.shape[0], d = x.shape[1], i, j, k, bases = 1 if base.shape[0] > 1 else 0, skipped = 0
    cdef double v, m, c, shift, shrink, total = 0.0
    cdef Renewal new
    with nogil:
        for i in range(n):
            m, v = base[i * bases], 0.0
            for j in range(d):
                c = 0.0
                for k in range(d):
                    c += covariance[j, k] * x[i, k]
                work[j] = c
                v += c * x[i, j]
                m += mean[j] * x[i, j]
            if not renew(&rows, i, m, v, tau[i], rho[i], up, down, &new):
                skipped += 1
                continue
            total += new.log_z
            tau[i] += new.tau
            rho[i] += new.rho
            shift, shrink = new.shift, new.shrink
            for j in range(d):
                mean[j] += shift * work[j]
                c = shrink * work[j]
                for k in range(d):
                    covariance[j, k] -= c * work[k]
    return skipped, total


def renew_all(int kind, const double[::1] parameters,
              const double[::1] power, const double[::1] fraction, const double[::1] residual,
              const double[::1] y, const double[::1] extra,     # all as for sweep
              const double[::1] mean,        # in    (n,): of f under the posterior
              const double[::1] variance,    # in    (n,)
              const double[::1] tau, const double[::1] rho, double up, double down,
              double[::1] new_tau,           # out   (n,)
              double[::1] new_rho):          # out   (n,)
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
