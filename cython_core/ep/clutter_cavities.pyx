"""The cavities of given moments, for EP for clutter as a minimisation over the moments of the posterior.

[HZ]  T. Heskes and O. Zoeter, Expectation propagation for approximate inference in dynamic Bayesian networks, 2002.
[OW]  M. Opper and O. Winther, Expectation consistent approximate inference, JMLR 6, 2005.

EP's fixed points are the stationary points of F(mu) = sum_i A_i*(mu) - (N - 1) A_q*(mu) - lambda_0'mu over the mean
parameters mu of q, where A_i* is the conjugate of A_i(lambda) = log of the integral of p(x_i | theta) exp(lambda'phi).
p(x | theta) tends to a constant far out, so A_i blows up where a cavity turns flat: every A_i* has its maximiser, a
proper cavity, at every mu (in float64 as long as its precision is in range), and F grows without bound at the edges
(variance to 0 or infinity, mean to infinity). A minimum with all cavities proper therefore always exists; EP sweeps
may still not be attracted by it.

Everything is in coordinates y = theta - mean(q), with statistics (y, -|y|^2/2) and natural parameters (t, rho). The
cavity of point x lies on the line from the mean through x, so its two unknowns are t, rho times the position on that
line, and rho. `cavities` finds them by Newton's method on a convex function.
"""

from libc.math cimport fabs, isfinite, sqrt

from cavity._core.clutter cimport Clutter, base_odds, log_normaliser, signal_exponent, unpack
from cavity._core.constants cimport HALF_LOG_2PI
from cavity._core.simd cimport cv_exp, cv_log

cdef enum:
    MAX_NEWTON_STEPS = 200               # five to ten are typical


cdef struct LineMoments:              # of a tilted distribution, u the coordinate along the line
    double log_partition                 # A(t, rho), origin at the mean of q
    double mean, second                  # E u, E |y|^2
    double a, b, c                       # covariance of (u, -|y|^2/2): [[a, b], [b, c]]


cdef LineMoments tilt(Clutter *model, double d, double base, double place, double t, double rho) noexcept nogil:
    """Moments of p(x | theta) exp(t u - rho |y|^2/2) for x at position `place` on the line."""
    cdef LineMoments out
    cdef double v = 1.0 / rho, u0 = t / rho
    cdef double q = 1.0 / (1.0 + model.noise * rho)
    cdef double inv = v * q
    cdef double distance = place - u0
    cdef double exponent = signal_exponent(model, d, rho, inv, distance * distance)
    cdef double odds = base + exponent
    cdef double r = 1.0 / (1.0 + cv_exp(odds))
    cdef double w = r * cv_exp(odds) if odds < 0.0 else 1.0 - r
    cdef double u1 = u0 + q * distance, v1 = model.noise * q
    cdef double s0 = u0 * u0 + d * v, s1 = u1 * u1 + d * v1   # E |y|^2 of the two components
    out.log_partition = (log_normaliser(model, d, base, exponent) + 0.5 * t * u0
                         - d * (0.5 * cv_log(rho) - HALF_LOG_2PI))
    out.mean = w * u0 + r * u1
    out.second = w * s0 + r * s1
    # within plus between components; Cov(u, |y|^2) = 2 u v and Var |y|^2 = 2 d v^2 + 4 u^2 v for a Gaussian
    out.a = w * v + r * v1 + w * r * (u1 - u0) * (u1 - u0)
    out.b = -(w * u0 * v + r * u1 * v1) - 0.5 * w * r * (u1 - u0) * (s1 - s0)
    out.c = (w * (0.5 * d * v * v + u0 * u0 * v) + r * (0.5 * d * v1 * v1 + u1 * u1 * v1)
             + 0.25 * w * r * (s1 - s0) * (s1 - s0))
    return out


cdef bint solve(
    Clutter *model, double d, double base, double place, double v, double *t, double *rho, LineMoments *result,
) noexcept nogil:
    """The cavity (t, rho) whose tilted distribution has mean 0 and E |y|^2 = d v: minimise A + rho d v/2."""
    cdef LineMoments now = tilt(model, d, base, place, t[0], rho[0]), then
    cdef double target = d * v, g0, g1, det, dt, dr, slope, length, value, new_value, new_t, new_rho
    cdef int _step
    for _step in range(MAX_NEWTON_STEPS):
        g0 = now.mean
        g1 = 0.5 * (target - now.second)
        det = now.a * now.c - now.b * now.b
        if not det > 0.0:
            break
        dt = -(now.c * g0 - now.b * g1) / det
        dr = -(now.a * g1 - now.b * g0) / det
        slope = g0 * dt + g1 * dr        # minus the squared Newton decrement
        if not slope < -1e-30:
            break
        value = now.log_partition + 0.5 * rho[0] * target
        length = 1.0 if dr > -0.9 * rho[0] else -0.9 * rho[0] / dr
        while True:
            new_t, new_rho = t[0] + length * dt, rho[0] + length * dr
            then = tilt(model, d, base, place, new_t, new_rho)
            new_value = then.log_partition + 0.5 * new_rho * target
            # below 1e-8 the decrease drowns in rounding; Newton is then in its quadratic phase
            if new_value <= value + 0.1 * length * slope or slope > -1e-8 or length < 1e-12:
                break
            length *= 0.5
        t[0], rho[0], now = new_t, new_rho, then
    result[0] = now
    return (isfinite(now.log_partition) and fabs(now.mean) <= 1e-6 * sqrt(v)
            and fabs(now.second - target) <= 1e-6 * target)


def cavities(const double[::1] model,
             const double[:, ::1] x,     # in  (n, d)
             const double[::1] origin,   # in  (d,)
             double scale,
             const double[::1] centre,   # in  (d,): c0 in working units
             const double[::1] mean,     # in  (d,): of q, working units
             double v,                   # variance of q
             double[:, ::1] cavity_tau,  # inout (n, d): in the starting point, out the solution
             double[::1] cavity_rho, /):    # inout (n,)
    """The cavities at which all tilted distributions have moments (mean, v).

    Returns (sum of A_i*(mu), rows without a solution).
    """
    cdef Clutter setting = unpack(model)
    cdef Py_ssize_t n = x.shape[0], d = x.shape[1], i, j, failed = 0
    cdef double t, rho, place, xj, base, from_centre, total = 0.0
    cdef double[::1] line
    cdef LineMoments tilted
    import numpy

    line = numpy.empty(d)
    with nogil:
        for i in range(n):
            place = from_centre = 0.0
            for j in range(d):
                xj = (x[i, j] - origin[j]) * scale
                from_centre += (xj - centre[j]) * (xj - centre[j])
                line[j] = xj - mean[j]
                place += line[j] * line[j]
            place = sqrt(place)
            base = base_odds(&setting, <double> d, from_centre)
            t, rho = 0.0, cavity_rho[i]
            for j in range(d):           # a point at the mean: any direction will do
                line[j] = line[j] / place if place > 0.0 else (1.0 if j == 0 else 0.0)
                t += (cavity_tau[i, j] - rho * mean[j]) * line[j]
            if not solve(&setting, <double> d, base, place, v, &t, &rho, &tilted):
                failed += 1              # beyond float64: leave a cavity from which another mean can start
                t, rho = 0.0, 1.0 / v
            cavity_rho[i] = rho
            for j in range(d):
                cavity_tau[i, j] = t * line[j] + rho * mean[j]
            total -= 0.5 * rho * d * v + tilted.log_partition
    return total, failed
