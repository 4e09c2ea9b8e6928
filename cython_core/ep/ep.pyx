"""Sequential EP over a block of sites on jointly Gaussian values f."""

from libc.math cimport INFINITY, fabs

from cavity._core.site_types cimport Likelihood, Tilted, unpack
from cavity._core.sites cimport tilted


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
          double up, double down,            # damping of steps that raise and lower the precision of a site
          double[::1] log_z):                # out   (n,): untouched for the skipped
    """Visit the sites in order, each seeing the changes of those before; return how many were skipped.

    A site is skipped when its cavity is improper or has no moments. A change (dtau, drho) of site i moves the mean by
    (dtau - drho m_i)/(1 + drho V_ii) V_i and the covariance by -drho/(1 + drho V_ii) V_i V_i' [RW, (3.65) onwards].
    """
    cdef Likelihood lik = unpack(kind, power[0], parameters)
    cdef Py_ssize_t n = y.shape[0], i, j, k
    cdef Py_ssize_t powers = 1 if power.shape[0] > 1 else 0, fractions = 1 if fraction.shape[0] > 1 else 0
    cdef Py_ssize_t extras = 1 if extra.shape[0] > 1 else 0, residuals = 1 if residual.shape[0] > 1 else 0, skipped = 0
    cdef double f, v, keep, cavity_v, cavity_m, dtau, drho, damping, scale, shift, c
    cdef Tilted at
    with nogil:
        for i in range(n):
            lik.power, f, v = power[i * powers], fraction[i * fractions], covariance[i, i]
            keep = 1.0 - f * rho[i] * v                      # cavity precision times v
            if not (keep > 1e-10 and v + residual[i * residuals] > 0.0):
                skipped += 1
                continue
            cavity_v = v / keep
            cavity_m = mean[i] + cavity_v * f * (rho[i] * mean[i] - tau[i])
            at = through(&lik, y[i], extra[i * extras], cavity_m, cavity_v, residual[i * residuals])
            if not finite(at):                               # no moments, or none within float64
                skipped += 1
                continue
            log_z[i] = at.log_z
            dtau, drho = at.tau / f - tau[i], at.rho / f - rho[i]
            damping = up if drho >= 0.0 else down
            if f < 1.0 and damping > f and 1.0 + damping * drho * v < 0.5:
                damping = f                                  # lands on the tilted moments
            dtau, drho = damping * dtau, damping * drho
            scale = 1.0 + drho * v
            if not scale > 0.0:
                skipped += 1
                continue
            tau[i] += dtau
            rho[i] += drho
            shift, c = (dtau - drho * mean[i]) / scale, drho / scale
            for j in range(i + 1, n):
                mean[j] += shift * covariance[i, j]
            for j in range(i + 1, n):
                f = c * covariance[i, j]
                for k in range(j, n):
                    covariance[j, k] -= f * covariance[i, k]
    return skipped


def sweep_rows(int kind, const double[::1] parameters,
               const double[::1] power, const double[::1] fraction, const double[::1] residual,
               const double[::1] y, const double[::1] extra,    # all as for sweep
               const double[:, ::1] x,       # in    (n, d): f_i = x_i'a + base_i
               const double[::1] base,       # in    (n,) or (1,)
               double[::1] mean,             # inout (d,): of a
               double[:, ::1] covariance,    # inout (d, d)
               double[::1] tau, double[::1] rho, double up, double down,
               double[::1] work):            # (d,)
    """The same with a rank-1 update of the covariance of a after each site, for few columns.

    Returns the number of skipped sites and the sum of the log normalisers of the others.
    """
    cdef Likelihood lik = unpack(kind, power[0], parameters)
    cdef Py_ssize_t n = x.shape[0], d = x.shape[1], i, j, k
    cdef Py_ssize_t powers = 1 if power.shape[0] > 1 else 0, fractions = 1 if fraction.shape[0] > 1 else 0
    cdef Py_ssize_t extras = 1 if extra.shape[0] > 1 else 0, residuals = 1 if residual.shape[0] > 1 else 0
    cdef Py_ssize_t bases = 1 if base.shape[0] > 1 else 0, skipped = 0
    cdef double f, v, m, keep, cavity_v, dtau, drho, damping, scale, shift, c, total = 0.0
    cdef Tilted at
    with nogil:
        for i in range(n):
            lik.power, f = power[i * powers], fraction[i * fractions]
            m, v = base[i * bases], 0.0
            for j in range(d):
                c = 0.0
                for k in range(d):
                    c += covariance[j, k] * x[i, k]
                work[j] = c
                v += c * x[i, j]
                m += mean[j] * x[i, j]
            keep = 1.0 - f * rho[i] * v
            if not (keep > 1e-10 and v + residual[i * residuals] > 0.0):
                skipped += 1
                continue
            cavity_v = v / keep
            at = through(&lik, y[i], extra[i * extras], m + cavity_v * f * (rho[i] * m - tau[i]), cavity_v,
                         residual[i * residuals])
            if not finite(at):                               # no moments, or none within float64
                skipped += 1
                continue
            dtau, drho = at.tau / f - tau[i], at.rho / f - rho[i]
            damping = up if drho >= 0.0 else down
            if f < 1.0 and damping > f and 1.0 + damping * drho * v < 0.5:
                damping = f
            dtau, drho = damping * dtau, damping * drho
            scale = 1.0 + drho * v
            if not scale > 0.0:
                skipped += 1
                continue
            total += at.log_z
            tau[i] += dtau
            rho[i] += drho
            shift, c = (dtau - drho * m) / scale, drho / scale
            for j in range(d):
                mean[j] += shift * work[j]
                f = c * work[j]
                for k in range(d):
                    covariance[j, k] -= f * work[k]
    return skipped, total
