"""log p of the kinds whose sites are integrals, in what keeps its digits: l = e log p(y|f) with two derivatives in f.

Each function is inlined with a constant kind, and has no branches, so that a loop over sites or over nodes vectorises.
e is the power, and a, b, c are

    LOGIT                sigmoid(f)
    PROBIT               Phi(f/b); c = 1/b
    POISSON              exp(y f - exp(f)), the rate exp(f)
    NEGATIVE_BINOMIAL    p^y (1 - p)^a, p = sigmoid(f - b)
    BINOMIAL             Phi(f)^y Phi(-f)^a over its maximum, 0 < y <= a; b, c = log(y/(y + a)), log(a/(y + a))
    STUDENT_T            (1 + (f - y)^2/b)^(-(a + 1)/2), a degrees of freedom; b, c = a scale^2, 1/b

Constants in f are left out. Labels are 1: those of -1 are mirror images.
"""

from libc.math cimport fabs

from cavity._core.lanes cimport template
from cavity._core.normal cimport Normal, cv_standard_normal
from cavity._core.simd cimport cv_exp, cv_exp_rest, cv_log, cv_log_1p, cv_log_1p_known
from cavity._core.site_types cimport BINOMIAL, LOGIT, NEGATIVE_BINOMIAL, POISSON, PROBIT

cdef extern from *:
    """
    #define CV_MIN_LARGE_COUNT 1e4
    """
    const double MIN_LARGE_COUNT "CV_MIN_LARGE_COUNT"  # from which on the rounding error of log y shows in log p

cdef struct Density:
    double power, y, a, b, c

cdef struct Slopes:
    double value, l1, l2                 # l, l', l''

cdef struct Chance:
    double small, rest, side             # the smaller of p and 1 - p, the other, and 1 where p is the smaller, else -1


cdef inline template chance(double t, Chance *out) noexcept nogil:
    """p = sigmoid(t) and 1 - p."""
    cdef double u = cv_exp(-fabs(t)), r = 1.0 / (1.0 + u)
    out.small, out.rest, out.side = u * r, r, -1.0 if t > 0.0 else 1.0


cdef inline template logit_slopes(double power, double f, Slopes *out) noexcept nogil:
    cdef double u = cv_exp(-fabs(f))
    cdef double r = 1.0 / (1.0 + u)
    out.value = power * ((f if f < 0.0 else 0.0) - cv_log_1p_known(u, r))
    out.l1 = power * (u * r if f > 0.0 else r)
    out.l2 = -power * (u * r) * r


cdef inline template poisson_slopes(double power, double y, double f, Slopes *out) noexcept nogil:
    cdef double mean = cv_exp(f)
    out.value = power * (y * f - mean)
    out.l1 = power * (y - mean)
    out.l2 = -power * mean


cdef inline template negative_binomial_slopes(
    double power, double r, double log_r, double y, double f, Slopes *out,
) noexcept nogil:
    cdef double t = f - log_r
    cdef double u = cv_exp(-fabs(t))
    cdef double q = 1.0 / (1.0 + u)
    cdef double p = q if t > 0.0 else u * q                 # sigmoid(t)
    cdef double not_p = u * q if t > 0.0 else q
    out.value = power * (y * t - (y + r) * ((t if t > 0.0 else 0.0) + cv_log_1p_known(u, q)))
    out.l1 = power * (y * not_p - r * p)
    out.l2 = -power * (y + r) * (u * q) * q


cdef inline template probit_slopes(double power, double inv_sd, double f, Slopes *out) noexcept nogil:
    cdef Normal at = cv_standard_normal(f * inv_sd)
    out.value = power * at.log_cdf
    out.l1 = power * at.hazard * inv_sd
    out.l2 = -power * at.curvature * (inv_sd * inv_sd)


cdef inline template log_ratio_rest(double u, double log_ratio, double *out) noexcept nogil:
    """u - log(1 + u), where the log is known, and has no digits to spare if u is small."""
    cdef double near = cv_exp_rest(cv_log_1p(u if u > -0.4 else -0.4))
    out[0] = near if fabs(u) < 0.4 else u - log_ratio


cdef inline template binomial_probit_slopes(const Density *p, double f, Slopes *out) noexcept nogil:
    cdef Normal at = cv_standard_normal(f), other = cv_standard_normal(-f)
    cdef double y = p.y, r = p.a, power = p.power, above = at.log_cdf - p.b, below = other.log_cdf - p.c
    cdef double u = cv_exp(above) - 1.0, w = -u * (y / r)   # the terms y u and r w cancel: they are left out
    cdef double of_y, of_r, near
    log_ratio_rest(u, above, &of_y)
    log_ratio_rest(w, below, &of_r)
    near = -power * (y * of_y + r * of_r)
    out.value = near if fabs(u) < 0.4 else power * (y * above + r * below)
    out.l1 = power * (y * at.hazard - r * other.hazard)
    out.l2 = -power * (y * at.curvature + r * other.curvature)


cdef inline template student_slopes(const Density *p, double f, Slopes *out) noexcept nogil:
    cdef double n = p.power * (p.a + 1.0), d = f - p.y, u = d * d * p.c
    cdef double inv = 1.0 / (1.0 + u)
    out.value = -0.5 * n * cv_log_1p_known(u, inv)
    out.l1 = -n * p.c * d * inv
    out.l2 = -n * p.c * (1.0 - u) * inv * inv


cdef inline template slopes(int kind, const Density *p, double f, Slopes *out) noexcept nogil:
    if kind == LOGIT:
        logit_slopes(p.power, f, out)
    elif kind == POISSON:
        poisson_slopes(p.power, p.y, f, out)
    elif kind == NEGATIVE_BINOMIAL:
        negative_binomial_slopes(p.power, p.a, p.b, p.y, f, out)
    elif kind == PROBIT:
        probit_slopes(p.power, p.c, f, out)
    elif kind == BINOMIAL:
        binomial_probit_slopes(p, f, out)
    else:
        student_slopes(p, f, out)


cdef inline double log_mean(double p, double not_p, double x) noexcept nogil:
    """log(p exp(x) + 1 - p) for |x| > 64, without the linear part that log_mean_rest takes off."""
    cdef double u = cv_exp(-fabs(x))
    if x < 0.0:
        return cv_log_1p(p * (u - 1.0)) if p <= 0.5 else cv_log(not_p + p * u)
    return x + (cv_log_1p(not_p * (u - 1.0)) if not_p <= 0.5 else cv_log(p + not_p * u))


cdef inline template log_mean_rest(double p, double not_p, double x, double *out) noexcept nogil:
    """log(p exp(x) + 1 - p) - p x, which is not negative, to its last digits; not_p = 1 - p."""
    cdef double w = p if p <= 0.5 else not_p                # the same of 1 - p and -x
    cdef double t = x if p <= 0.5 else -x
    cdef double near = t if t < 700.0 else 700.0            # exp(t) may overflow
    cdef double rest = cv_exp_rest(near)
    cdef double log_1p = cv_log_1p(w * (rest + near)), at_0 = w * rest - cv_exp_rest(log_1p)
    out[0] = at_0 if fabs(t) < 0.35 else (log_1p + (t - near)) - w * t


cdef inline template above_log(double y, double f, double *out) noexcept nogil:
    """f - log y, y > 0; where they are close by exp(f) - y, whose rounding errors are those of 1, not of log y."""
    cdef double q = (cv_exp(f) - y) / y, apart = f - cv_log(y), close = cv_log_1p(q if fabs(q) < 0.4 else 0.4)
    out[0] = close if fabs(q) < 0.4 else apart


cdef inline template below_top(int kind, const Density *p, double f, double value, double *out) noexcept nogil:
    """For counts above 0 l(f) less its maximum, which the constant of log p holds; for all else l(f), the value."""
    cdef double y = p.y if p.y > 0.0 else 1.0, n = y + p.a, top = value, above
    if kind == POISSON:                                     # y f - exp(f) + y - y log y
        above_log(y, f, &above)
        top = f - cv_log(y)
        top = -(p.power * y * cv_exp_rest(above if y > MIN_LARGE_COUNT else top))
    elif kind == NEGATIVE_BINOMIAL:
        above_log(y if p.c == 0.0 else y / p.a, f, &above)
        log_mean_rest(y / n, p.a / n, above, &top)
        top = -(p.power * n * top)
    out[0] = top if p.y > 0.0 else value
