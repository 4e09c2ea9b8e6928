"""The clutter site: moments of a spherical Gaussian cavity times p(x | theta).

[M]  T. Minka, A family of algorithms for approximate Bayesian inference, 2001, section 3.2.1 (the clutter problem).

    p(x | theta) = (1 - w) N(x; theta, s I) + w N(x; c0, c I),     cavity N(theta; m, v I),  rho = 1/v

With S = v + s, g = 1/S, q = v g, delta = x - m, f = |delta|^2 g/d and r = 1/(1 + t) the probability that x is no
clutter,

    log Z   = log((1 - w) N(x; m, S I) + w N(x; c0, c I))
    d1      = r g delta,                d2 = -r g (1 - (1 - r) f)      (first, mean second derivative of log Z in m)
    m_new   = m + v d1,                 v_new = v (1 + v d2) =: v D

D > 0 is summed from positive parts, D = (1 - r) + r s g + r (1 - r) q f, and the site follows without differences of
precisions: rho_site = -d2/D, tau_site = d1/D + rho_site m. In terms of t one division serves both:

    rho_site = g (1 + t - t f)/E,  tau_site = g (1 + t)/E delta + rho_site m,  E = (1 + t)(t + s g) + t q f.

rho_site never exceeds 1/s; for outliers it is negative.
"""

from libc.math cimport fabs, sqrt

from cavity._core.constants cimport HALF_LOG_2PI
from cavity._core.simd cimport cv_exp, cv_log_normal

cdef extern from *:
    """
    #define CV_MAX_ODDS 1e130
    #define CV_MIN_CAVITY_SHARE 0x1p-20

    /* exp(x) for x <= 0 to be added to 1, where all below exp(-40) is nothing: one factor 2^n, and no subnormals. */
    static inline double cv_exp_beside_1(double x)
    {
        double xc = x < -40.0 ? -40.0 : x;
        double n = (xc * 0x1.71547652b82fep0 + CV_ROUND) - CV_ROUND;
        double r = (xc - n * 0x1.62e42fefa0000p-1) - n * 0x1.cf79abc9e3b3ap-40;
        double p = 1.0 + (r + r * r * cv_exp_quotient(r));
        return p * cv_double(cv_bits(n + (CV_ROUND + 1023.0)) << 52);
    }
    """
    double cv_exp_beside_1(double x) noexcept nogil
    const double MAX_ODDS "CV_MAX_ODDS"                  # of clutter at which a site still has information
    const double MIN_CAVITY_SHARE "CV_MIN_CAVITY_SHARE"  # of the posterior's precision: below it digits are lost

cdef enum:
    CHUNK_ROWS = 8192                    # rows per partial sum; the same for every problem and thread count

cdef struct Clutter:                     # the model in working units
    double noise                         # s
    double half_precision                # 1/(2 c)
    double half_log_clutter              # log(c)/2
    double log_inlier                    # log(1 - w)
    double log_ratio                     # log(w/(1 - w))

cdef struct Site:
    double rho                           # site precision
    double pull                          # tau_site = pull delta + rho m

cdef struct Density:
    double log_z                         # log density of a point under its cavity
    double odds                          # log odds that it is clutter
    double value                         # log of its scaled site at the posterior mean


cdef inline double base_odds(Clutter *model, double d, double from_centre) noexcept nogil:
    """log of w N(x; c0, c I) over (1 - w) (2 pi)^(-d/2); from_centre = |x - c0|^2. Off the chain of dependencies."""
    return (model.log_ratio - d * model.half_log_clutter) - from_centre * model.half_precision


cdef inline Site match(
    Clutter *model, double d, double base, double rho, double inv, double distance2,
) noexcept nogil:
    """The site that matches moments.

    rho is the precision of the cavity, inv = 1/(rho (1 + s rho)), so that v = (1 + s rho) inv and q = rho inv;
    distance2 = |x - m|^2, base from base_odds.
    """
    cdef Site site
    cdef double k = 1.0 + model.noise * rho
    cdef double q = rho * inv
    cdef double g = rho * q
    cdef double e = distance2 * g
    cdef double S = k * k * inv
    # t = (1 - r)/r: for d = 1 a square root, which is off the critical path, takes the place of a log
    cdef double t = (cv_exp(base + 0.5 * e) * sqrt(S) if d == 1.0
                     else cv_exp(base + 0.5 * (e + d * cv_log_normal(S))))
    cdef double f = e / d
    cdef double T = 1.0 + t
    cdef double scale = g / (T * (t + model.noise * g) + t * (f * q))
    # beyond MAX_ODDS the site is below 1e-100 of any prior: exactly no information, and no inf/inf
    site.pull = scale * T if t < MAX_ODDS else 0.0
    site.rho = scale * (T - t * f) if t < MAX_ODDS else 0.0
    return site


cdef inline double signal_exponent(
    Clutter *model, double d, double rho, double inv, double distance2,
) noexcept nogil:
    """-log N(x; m, S I) less d/2 log(2 pi); arguments as for match. The log odds of clutter are base plus this."""
    cdef double k = 1.0 + model.noise * rho
    return 0.5 * (distance2 * (rho * (rho * inv)) + d * cv_log_normal(k * (k * inv)))


cdef inline double log_normaliser(Clutter *model, double d, double base, double exponent) noexcept nogil:
    """log Z by log-sum-exp: nothing underflows at 300 sigma. Arguments from base_odds and signal_exponent.

    The larger term stands alone, so that a point far from the clutter keeps the digits of its signal term.
    """
    cdef double larger = base if base + exponent > 0.0 else -exponent
    return model.log_inlier - d * HALF_LOG_2PI + (larger + cv_log_normal(1.0 + cv_exp_beside_1(-fabs(base + exponent))))


cdef inline double log_site_value(
    double log_z, double d, double cavity_rho, double ratio, double shift2,
) noexcept nogil:
    """log of the scaled site Z q/cavity at the mean of the posterior q.

    ratio = rho/cavity_rho, shift2 = |mean - cavity mean|^2.

    The product of prior and sites integrates to its value at that mean times (2 pi/rho)^(d/2): no site needs a log
    scale of its own, which would lose digits where its precision is nearly zero.
    """
    return log_z + 0.5 * (d * cv_log_normal(ratio) + cavity_rho * shift2)


cdef inline Density density(
    Clutter *model, double d, double from_centre, double cavity_rho, double inv, double rho, double distance2,
    double shift2,
) noexcept nogil:
    """All three from squared distances: |x - c0|^2, |x - m|^2, and shift2 as in log_site_value; inv as for match."""
    cdef Density result
    cdef double base = base_odds(model, d, from_centre)
    cdef double exponent = signal_exponent(model, d, cavity_rho, inv, distance2)
    result.odds = base + exponent
    result.log_z = log_normaliser(model, d, base, exponent)
    result.value = log_site_value(
        result.log_z, d, cavity_rho, rho * ((1.0 + model.noise * cavity_rho) * inv), shift2)
    return result


cdef inline Clutter unpack(const double[::1] model) noexcept nogil:
    """The model from its vector: s, 1/(2 c), log(c)/2, log(1 - w), log(w/(1 - w))."""
    cdef Clutter result
    result.noise, result.half_precision, result.half_log_clutter = model[0], model[1], model[2]
    result.log_inlier, result.log_ratio = model[3], model[4]
    return result
