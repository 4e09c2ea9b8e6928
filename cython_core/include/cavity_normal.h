/* The standard normal distribution in its tails, portable and branch-free (see cavity_math.h for the rules).
 *
 * Everything rests on two functions of x >= 0, the Mills ratio M(x) = Phi(-x)/phi(x) and the variance V(x) of a
 * standard normal variable known to exceed x, as polynomials in t = (x - 4)/(x + 4) over all of [0, inf):
 *     z <= 0, x = -z:  log Phi(z) = -z^2/2 - log(2 pi)/2 + log M,  h = phi/Phi = 1/M,  w = h (h + z) = 1 - V
 *     z > 0, x = z:    log Phi(z) = log1p(-phi M),  h = phi/(1 - phi M),  w = h (h + z)
 * so no difference of nearly equal numbers is formed at any z. Measured against mpmath in tests/test_normal.py:
 * log Phi and h 5 eps from z = -1e5 to 37, V 1e-14. The polynomials come from tests/golden/make_normal_coefficients.py.
 */
#ifndef CAVITY_NORMAL_H
#define CAVITY_NORMAL_H

#include "cavity_constants.h"
#include "cavity_math.h"

typedef struct {
    double log_cdf;     /* log Phi(z) */
    double hazard;      /* h = phi(z)/Phi(z) */
    double curvature;   /* w = h (h + z) = -(log Phi)''(z), in (0, 1) */
    double variance;    /* V = 1 - w: the variance of a standard normal variable known to be below z */
    double excess;      /* h + z: how far below z that variable is on average */
    double pull;        /* h + z w */
    double log_mills;   /* log(Phi(z)/phi(z)) */
} cv_normal;

/* M(x) for x >= 0; t = (x - 4)/(x + 4), inv = 1/(x + 4). */
CV_INLINE double cv_mills(double t, double inv)
{
    double t2 = t * t, t4 = t2 * t2, t8 = t4 * t4, t16 = t8 * t8;
    return inv * (
        ((8.812534041624495e-10 * t8 + (((-2.9433098761634534e-10 * t + -9.520279114401458e-09) * t2 +
        (-1.509241818614183e-09 * t + 5.4154267181159925e-08)) * t4 + ((4.482320698500524e-08 * t +
        -2.1840990663360633e-07) * t2 + (-4.006262909600915e-07 * t + 6.836016680202922e-07)))) * t16 +
        ((((2.5688741365377523e-06 * t + -1.5791693622508298e-06) * t2 + (-1.4843347253192145e-05 * t +
        1.7965666540766273e-06)) * t4 + ((8.809575792458322e-05 * t + -4.7833112184110975e-06) * t2 +
        (-0.0005792693112383798 * t + 0.00033424462447582926))) * t8 + (((0.00408785568219404 * t +
        -0.008722295275113486) * t2 + (-0.01890045086179461 * t + 0.1513917623124891)) * t4 +
        ((-0.46754096299832926 * t + 0.9704095548675874) * t2 + (-1.5237709108199835 * t +
        1.8932190633084853))))));
}

/* V(x) for x >= 0. */
CV_INLINE double cv_tail_variance(double t, double inv)
{
    double t2 = t * t, t4 = t2 * t2, t8 = t4 * t4, t16 = t8 * t8;
    return inv * inv * (
        ((((3.1668152813931515e-07 * t + -8.912813932370075e-07) * t2 + (-2.3520827266358783e-06 * t +
        9.351314841850433e-06)) * t8 + (((5.536502791771343e-06 * t + -5.0606317284731545e-05) * t2 +
        (1.5356986587662064e-05 * t + 0.0001921787474184984)) * t4 + ((-0.0001945824547835182 * t +
        -0.0005728438193175494) * t2 + (0.0010338317671500172 * t + 0.001346559418004267)))) * t16 +
        ((((-0.0040846606434661375 * t + -0.002083760508740213) * t2 + (0.013367428888860118 * t +
        -0.0009185281796467817)) * t4 + ((-0.03696787386446551 * t + 0.023234314911665988) * t2 +
        (0.08334998592391236 * t + -0.11205001576442782))) * t8 + (((-0.13049491677703132 * t +
        0.36719887313836547) * t2 + (0.012282841057460667 * t + -0.8596407956859695)) * t4 + ((0.82296967760585
        * t + 1.0033163276507848) * t2 + (-3.168322410651016 * t + 2.9870616574350466))))));
}

/* exp(-z^2/2)/sqrt(2 pi) to 2 eps: the square of the leading bits is exact, the rest is small. */
CV_INLINE double cv_normal_density(double z)
{
    double a = fabs(z) < 40.0 ? fabs(z) : 40.0;
    double head = cv_double(cv_bits(a) & 0xfffffffff8000000u);
    double rest = -0.5 * (a - head) * (a + head);
    return CV_INV_SQRT_2PI * cv_exp(-0.5 * head * head) * (1.0 + rest * (1.0 + rest * (0.5 + rest * (1.0 / 6.0))));
}

/* |z|, less than inf. */
CV_INLINE double cv_normal_distance(double z)
{
    return fabs(z) < 1e300 ? fabs(z) : 1e300;
}

/* All of it from x = cv_normal_distance(z) with M(x), V(x) and phi(x). */
CV_INLINE cv_normal cv_normal_of_parts(double z, double x, double mills, double tail, double density)
{
    cv_normal out;
    int lower = z <= 0.0;
    double upper = density * mills;                     /* Phi(-x), used for z > 0 */
    double rest = 1.0 - upper;                          /* and 1 - Phi(-x), whose rounding error is put back */
    double part = lower ? mills : rest, inv = 1.0 / part;
    double log_part = cv_log_normal(part);
    out.log_cdf = lower ? (log_part - CV_HALF_LOG_2PI) - 0.5 * x * x : log_part - (upper - (1.0 - rest)) * inv;
    out.hazard = lower ? inv : density * inv;
    double direct = out.hazard * (out.hazard + x);
    out.curvature = lower ? 1.0 - tail : direct;
    out.variance = lower ? tail : 1.0 - direct;
    out.excess = lower ? out.curvature * mills : out.hazard + x;
    out.pull = lower ? out.excess + x * tail : out.hazard + x * direct;
    out.log_mills = lower ? log_part : out.log_cdf + (CV_HALF_LOG_2PI + 0.5 * x * x);
    return out;
}

/* All of it at once; what the caller does not use costs nothing once inlined. z finite or infinite. */
CV_INLINE cv_normal cv_standard_normal(double z)
{
    double x = cv_normal_distance(z), inv = 1.0 / (x + 4.0), t = (x - 4.0) * inv;
    return cv_normal_of_parts(z, x, cv_mills(t, inv), cv_tail_variance(t, inv), cv_normal_density(x));
}

#endif
