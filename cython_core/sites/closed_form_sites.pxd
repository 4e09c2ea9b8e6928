"""Sites with closed forms: moments of a Gaussian cavity N(f; m, v) times p(y|f).

[RW]  C. E. Rasmussen and C. K. I. Williams, Gaussian Processes for Machine Learning, 2006, section 3.6 (probit).
[M]   T. Minka, A family of algorithms for approximate Bayesian inference, 2001 (step, clutter).

With S^2 = v + s, s the variance of the noise on f, every one of them is written in quantities that keep their digits in
the tails: the variance V of a truncated standard normal, its mean excess over the nearer bound, and w = 1 - V, so that
    d1 = mu/S,  d2 = -w/S^2,  rho = w/(s + v V),  tau = (mu S + m w)/(s + v V).
"""

from libc.math cimport INFINITY, fabs, sqrt

from cavity._core.constants cimport HALF_LOG_2PI
from cavity._core.lanes cimport template
from cavity._core.quadrature_nodes cimport NODES, gauss_nodes, gauss_weights
from cavity._core.normal cimport (
    Normal,
    cv_mills,
    cv_normal_density,
    cv_normal_distance,
    cv_normal_of_parts,
    cv_standard_normal,
    cv_tail_variance,
)
from cavity._core.simd cimport cv_exp, cv_log
from cavity._core.site_types cimport Likelihood, Tilted, finish

cdef enum:
    PROBIT_TILE = 128


cdef inline Tilted gaussian_site(double noise, double power, double y, double m, double v) noexcept nogil:
    """N(y; f, noise)^power: a Gaussian of variance noise/power, and a constant."""
    cdef double s = noise / power, g = 1.0 / (v + s), delta = y - m
    cdef Tilted out
    out.d1, out.d2 = delta * g, -g
    out.rho = 1.0 / s
    out.tau = y * out.rho
    # log N(y; m, v + s) + log[(2 pi s)^(1/2) (2 pi noise)^(-power/2)]
    out.log_z = -0.5 * delta * delta * g + 0.5 * cv_log(s * g) - power * (HALF_LOG_2PI + 0.5 * cv_log(noise))
    return out


cdef inline template probit_from(
    Normal at, double noise, double y, double m, double v, double S, Tilted *out,
) noexcept nogil:
    """From log Phi and its derivatives at y m/S. [RW] eq. (3.82) to (3.85)."""
    cdef double inv = 1.0 / S, scale = 1.0 / (noise + v * at.variance)
    out.log_z = at.log_cdf
    out.d1 = y * at.hazard * inv
    out.d2 = -at.curvature * inv * inv
    out.rho = at.curvature * scale
    out.tau = y * at.pull * S * scale


cdef inline Tilted probit_site(double noise, double y, double m, double v) noexcept nogil:
    """Phi(y f/sqrt(noise)), y = 1 or -1; noise 0 is the step."""
    cdef double S = sqrt(v + noise)
    cdef Tilted out
    probit_from(cv_standard_normal(y * m * (1.0 / S)), noise, y, m, v, S, &out)
    return out


cdef inline void probit_tiles(
    double noise, Py_ssize_t n, const double *y, const double *mean, const double *variance, bint natural,
    double *log_z, double *first, double *second,
) noexcept nogil:
    """The same of many sites, in loops over local arrays, which vectorise; each is short, as chains of operations as
    long as a site would keep the processor waiting."""
    cdef double label[PROBIT_TILE]
    cdef double m[PROBIT_TILE]
    cdef double v[PROBIT_TILE]
    cdef double S[PROBIT_TILE]
    cdef double z[PROBIT_TILE]
    cdef double x[PROBIT_TILE]
    cdef double t[PROBIT_TILE]
    cdef double inv[PROBIT_TILE]
    cdef double mills[PROBIT_TILE]
    cdef double tail[PROBIT_TILE]
    cdef double density[PROBIT_TILE]
    cdef double out[3][PROBIT_TILE]
    cdef Py_ssize_t tile, start, i, size
    cdef Tilted at
    for i in range(PROBIT_TILE):
        label[i], m[i], v[i] = 1.0, 0.0, 1.0
    for tile in range((n + PROBIT_TILE - 1) // PROBIT_TILE):
        start = tile * PROBIT_TILE
        size = min(PROBIT_TILE, n - start)
        for i in range(size):
            label[i], m[i], v[i] = y[start + i], mean[start + i], variance[start + i]
        for i in range(PROBIT_TILE):
            S[i] = sqrt(v[i] + noise)
            z[i] = label[i] * m[i] * (1.0 / S[i])
        for i in range(PROBIT_TILE):
            x[i] = cv_normal_distance(z[i])
            inv[i] = 1.0 / (x[i] + 4.0)
            t[i] = (x[i] - 4.0) * inv[i]
        for i in range(PROBIT_TILE):
            mills[i] = cv_mills(t[i], inv[i])
        for i in range(PROBIT_TILE):
            tail[i] = cv_tail_variance(t[i], inv[i])
        for i in range(PROBIT_TILE):
            density[i] = cv_normal_density(x[i])
        if natural:
            for i in range(PROBIT_TILE):
                probit_from(cv_normal_of_parts(z[i], x[i], mills[i], tail[i], density[i]),
                            noise, label[i], m[i], v[i], S[i], &at)
                out[0][i], out[1][i], out[2][i] = at.log_z, at.tau, at.rho
        else:
            for i in range(PROBIT_TILE):
                probit_from(cv_normal_of_parts(z[i], x[i], mills[i], tail[i], density[i]),
                            noise, label[i], m[i], v[i], S[i], &at)
                out[0][i], out[1][i], out[2][i] = at.log_z, at.d1, at.d2
        for i in range(size):
            log_z[start + i], first[start + i], second[start + i] = out[0][i], out[1][i], out[2][i]


cdef struct Truncated:                   # a standard normal variable x in [alpha, beta]
    double log_z                         # log of its probability
    double mean
    double pull                          # mean - alpha w = (mean - alpha) + alpha V
    double variance, curvature           # V and w = 1 - V


cdef inline Truncated truncated_narrow(double alpha, double width) noexcept nogil:
    """By Gauss-Legendre: where the density falls by less than exp(-8) over the interval."""
    cdef double top = alpha if alpha > 0.0 else 0.0
    cdef double half = 0.5 * width, g, x, total = 0.0, first = 0.0, second = 0.0
    cdef Truncated out
    cdef int j
    for j in range(NODES):
        x = half * (1.0 + gauss_nodes[j])                   # from alpha
        g = gauss_weights[j] * cv_exp(-0.5 * (x + (alpha - top)) * (x + (alpha + top)))
        x = half * gauss_nodes[j]                           # from the middle
        total += g
        first += g * x
        second += g * x * x
    first = first / total
    out.variance = second / total - first * first
    out.log_z = cv_log(total * half) - HALF_LOG_2PI - 0.5 * top * top
    first += half                                           # mean excess over alpha
    out.mean = alpha + first
    out.curvature = 1.0 - out.variance
    out.pull = first + alpha * out.variance
    return out


cdef inline Truncated truncated_tail(double alpha, double beta, double width) noexcept nogil:
    """0 <= alpha, density at beta at most exp(-8) of that at alpha: differences of infinite tails."""
    cdef double ia = 1.0 / (alpha + 4.0), ib = 1.0 / (beta + 4.0)
    cdef double Ma = cv_mills((alpha - 4.0) * ia, ia), Va = cv_tail_variance((alpha - 4.0) * ia, ia)
    cdef double Mb = cv_mills((beta - 4.0) * ib, ib), Vb = cv_tail_variance((beta - 4.0) * ib, ib)
    cdef double ea = (1.0 - Va) * Ma, eb = (1.0 - Vb) * Mb  # mean excess over each bound
    cdef double E = cv_exp(-0.5 * width * (alpha + beta)) * Mb
    cdef double total = Ma - E
    cdef double first = (ea * Ma - E * (eb + width)) / total
    cdef double second = ((Va + ea * ea) * Ma - E * (Vb + (eb + width) * (eb + width))) / total
    cdef Truncated out
    out.log_z = cv_log(total) - HALF_LOG_2PI - 0.5 * alpha * alpha
    out.mean = alpha + first
    out.variance = second - first * first
    out.curvature = 1.0 - out.variance
    out.pull = first + alpha * out.variance
    return out


cdef inline Truncated truncated_wide(double alpha, double beta) noexcept nogil:
    """alpha < 0 < beta, more than four apart: nothing cancels."""
    cdef double pa = cv_normal_density(alpha), pb = cv_normal_density(beta)
    cdef double ia = 1.0 / (4.0 - alpha), ib = 1.0 / (beta + 4.0)
    cdef double outside = pa * cv_mills((-alpha - 4.0) * ia, ia) + pb * cv_mills((beta - 4.0) * ib, ib)
    cdef double rest = 1.0 - outside
    cdef Truncated out
    out.log_z = cv_log(rest) - (outside - (1.0 - rest)) / rest
    out.mean = (pa - pb) / rest
    out.curvature = out.mean * out.mean + (beta * pb - alpha * pa) / rest
    out.variance = 1.0 - out.curvature
    out.pull = out.mean - alpha * out.curvature
    return out


cdef inline Truncated truncated(double alpha, double beta, double width) noexcept nogil:
    """Moments of a standard normal variable in [alpha, beta], |alpha| <= |beta|, 0 < beta <= inf; width is exact."""
    cdef Normal at
    cdef Truncated out
    if beta == INFINITY:
        at = cv_standard_normal(-alpha)
        out.log_z, out.mean, out.pull = at.log_cdf, at.hazard, at.pull
        out.variance, out.curvature = at.variance, at.curvature
        return out
    if (width <= 4.0) if alpha < 0.0 else (0.5 * width * (alpha + beta) <= 8.0):
        return truncated_narrow(alpha, width)
    if alpha < 0.0:
        return truncated_wide(alpha, beta)
    return truncated_tail(alpha, beta, width)


cdef inline Tilted interval_site(double noise, double lower, double upper, double m, double v) noexcept nogil:
    """P(lower < f + eps < upper), eps ~ N(0, noise); equal bounds are an exact observation."""
    cdef double S2 = v + noise
    cdef double S = sqrt(S2), scale, sign, bound
    cdef double alpha = (lower - m) / S, beta = (upper - m) / S
    cdef Truncated at
    cdef Tilted out
    if lower == upper:
        return gaussian_site(noise, 1.0, lower, m, v)
    sign = 1.0 if alpha + beta >= 0.0 else -1.0             # measured from the bound nearer to the cavity's mean
    if sign < 0.0:
        alpha, beta = -beta, -alpha
    bound = lower if sign > 0.0 else upper
    if alpha == -INFINITY:                                  # no bound at all
        out.log_z = out.d1 = out.d2 = out.tau = out.rho = 0.0
        return out
    at = truncated(alpha, beta, (upper - lower) / S)
    scale = 1.0 / (noise + v * at.variance)
    out.log_z = at.log_z
    out.d1 = sign * at.mean / S
    out.d2 = -at.curvature / S2
    out.rho = at.curvature * scale
    out.tau = (sign * S * at.pull + bound * at.curvature) * scale
    return out


cdef inline Tilted laplace_site(
    double above_rate, double below_rate, double constant, double power, double y, double m, double v,
) noexcept nogil:
    """exp(constant - rate |f - y|)^power, of one rate where f is above y, one below: two truncated Gaussians."""
    cdef double sd = sqrt(v), up = power * above_rate, down = power * below_rate, delta = y - m
    cdef double x = delta / sd, up_shift = up * sd, down_shift = down * sd
    cdef Normal above = cv_standard_normal(-(x + up_shift)), below = cv_standard_normal(x - down_shift)
    # log of either part of Z: in the upper tail without -x^2/2, which would cancel
    cdef double log_a = (above.log_cdf + 0.5 * up_shift * (up_shift + 2.0 * x) if x + up_shift < 0.0
                         else above.log_mills - 0.5 * x * x - HALF_LOG_2PI)
    cdef double log_b = (below.log_cdf + 0.5 * down_shift * (down_shift - 2.0 * x) if x - down_shift > 0.0
                         else below.log_mills - 0.5 * x * x - HALF_LOG_2PI)
    cdef double small = cv_exp(-fabs(log_a - log_b))
    cdef double larger = log_a if log_a > log_b else log_b
    cdef double a = (1.0 if log_a > log_b else small) / (1.0 + small)    # probability of f above y
    cdef double b = (small if log_a > log_b else 1.0) / (1.0 + small)
    cdef double width = above.excess + below.excess
    cdef double density = a * above.hazard if a > b else b * below.hazard   # of f at y, times sd
    cdef double shrink = a * above.variance + b * below.variance + a * b * width * width
    # Var l' + E l'', where l' jumps by the sum of the rates at y; where the variance is small it has the digits
    cdef double both = up + down
    cdef double d1 = down * b - up * a, d2 = both * both * a * b - both * density / sd
    if shrink < 0.5:
        d1, d2 = (delta + sd * (a * above.excess - b * below.excess)) / v, (shrink - 1.0) / v
    return finish(m, v, larger + cv_log(1.0 + small) + power * constant, d1, d2, shrink)


cdef inline Tilted clutter_site(Likelihood *lik, double y, double m, double v) noexcept nogil:
    """(1 - w) N(y; f, s) + w N(y; c0, c); a, b, c, d, e = s, 1/c, log c, log(w/(1 - w)), log(1 - w), f = c0. [M]."""
    cdef double S2 = v + lik.a, delta = y - m, from_centre = y - lik.f
    cdef double g = 1.0 / S2
    cdef double signal = 0.5 * (delta * delta * g + cv_log(S2))          # -log N(y; m, S2), without 2 pi
    cdef double base = lik.d - 0.5 * (from_centre * from_centre * lik.b + lik.c)
    cdef double odds = base + signal                                     # log odds of clutter
    cdef double larger = base if odds > 0.0 else -signal
    cdef double small = cv_exp(-fabs(odds))
    cdef double r = (small if odds > 0.0 else 1.0) / (1.0 + small)       # probability of signal
    cdef double not_r = (1.0 if odds > 0.0 else small) / (1.0 + small)
    cdef double f = delta * delta * g
    cdef double log_z = lik.e - HALF_LOG_2PI + (larger + cv_log(1.0 + small))
    cdef double shrink = not_r + r * lik.a * g + r * not_r * (v * g) * f
    return finish(m, v, log_z, r * g * delta, -r * g * (1.0 - not_r * f), shrink)
