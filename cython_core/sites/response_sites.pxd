"""Likelihoods whose sites are integrals of other kinds, in scale f + shift.

    GAMMA            y: log of the response; a, b, c = shape, its log, a log a - a - log Gamma(a): a count of
                     a in log(a y) - f
    WEIBULL          y, extra: logs of the bounds, equal for an event; a, b, c = shape, 1 or -1, log of the shape. The
                     cumulative hazard is the exponential of u = a log y + f, or a (log y - f) for b = -1: an event is a
                     count of 1, a survivor one of 0
    LOG_LOGISTIC     y, extra: the same; a, c = shape, log shape. The odds against survival are exp(a (log y - f))
    LOG_NORMAL       y, extra: the same; a = variance of the log: the interval of the log, see closed_form_sites.pxd
    TWEEDIE          y; extra: the part without f; a, b = dispersion, power
    BETA             y, extra: logs of the response and of 1 less it; a, b = precision, its log; c = the part of log p
                     that depends on these alone
    BETA_BINOMIAL    y, extra: successes and failures; a, b = precision, its log
    ZERO_INFLATED    y; extra: the largest log p of that count; a, b = dispersion and its log, of Poisson 0; c, d = logs
                     of the probability of a zero that is none of the count's, and of 1 less it
    HURDLE           y; extra: as above, of Poisson; c, d as above
    CLOGLOG          y: label
    ORDERED_LOGIT    y, extra: bounds
"""

from libc.math cimport INFINITY

from cavity._core.binomial_site cimport binomial_top
from cavity._core.simd cimport cv_exp, cv_exp_rest, cv_log, cv_log_1p
from cavity._core.site_types cimport (
    BETA, BETA_BINOMIAL, CLOGLOG, GAMMA, HURDLE, LOG_LOGISTIC, LOGISTIC_INTERVAL, LOGIT, NEGATIVE_BINOMIAL,
    ORDERED_LOGIT, POISSON, TRUNCATED, TWEEDIE, WEIBULL, ZERO_INFLATED, ZERO_MIXTURE, Form, Likelihood,
)


cdef inline bint is_response(int kind) noexcept nogil:
    return (kind == GAMMA or kind == WEIBULL or kind == LOG_LOGISTIC or kind == TWEEDIE or kind == BETA
            or kind == BETA_BINOMIAL or kind == ZERO_INFLATED or kind == HURDLE or kind == CLOGLOG
            or kind == ORDERED_LOGIT)


cdef inline bint is_constant(const Likelihood *lik, double y, double extra) noexcept nogil:
    """Whether p does not depend on f."""
    if lik.kind == WEIBULL or lik.kind == LOG_LOGISTIC or lik.kind == ORDERED_LOGIT:
        return y == -INFINITY and extra == INFINITY
    return lik.kind == HURDLE and y == 0.0 or lik.kind == BETA_BINOMIAL and y + extra == 0.0


cdef inline double find_log_rest(double x) noexcept nogil:
    """log(1 - exp(-x)), x > 0."""
    cdef double rest = cv_exp_rest(-x)
    return cv_log(x - rest) if x < 0.7 else cv_log_1p(-(1.0 - x + rest))


cdef inline void count_form(double y, double constant, Form *out) noexcept nogil:
    """exp(y u - exp(u)); `constant` is its part without u, with the maximum of log p for y > 0."""
    out.kind, out.y, out.constant = POISSON, y, constant


cdef inline void weibull_form(const Likelihood *lik, double lower, double upper, Form *out) noexcept nogil:
    """An event, a survivor, an event before `upper`, or one between the bounds."""
    cdef double k = lik.a, log_rise
    out.scale, out.shift = 1.0 if lik.b > 0.0 else -k, k * (upper if lower == -INFINITY else lower)
    if lower == upper:
        count_form(1.0, lik.c - lower - 1.0, out)
    elif upper == INFINITY:
        count_form(0.0, 0.0, out)
    else:
        out.kind, out.y, out.a, out.b = TRUNCATED, 0.0, 0.0, 1.0
        if lower != -INFINITY:                              # exp(-x) - exp(-x rise - x), x of the lower bound
            log_rise = k * (upper - lower)
            # log(exp(log_rise) - 1), in u + which 1 - exp(-exp(..)) is what it was without a lower bound
            out.shift += log_rise + find_log_rest(log_rise)
            out.a = 1.0 / (cv_exp_rest(log_rise) + log_rise)


cdef inline void logistic_form(double lower, double upper, double density, Form *out) noexcept nogil:
    """sigmoid(upper - u) - sigmoid(lower - u), or the density at equal bounds, whose log `density` is added to."""
    if lower == upper:                                      # a success and a failure: at their best 1/4
        out.kind, out.y, out.a, out.b, out.c = NEGATIVE_BINOMIAL, 1.0, 1.0, 0.0, 1.0
        out.shift, out.constant = -lower, density - 1.3862943611198906
    elif upper == INFINITY:
        out.kind, out.y, out.shift = LOGIT, 1.0, -lower
    elif lower == -INFINITY:
        out.kind, out.y, out.scale, out.shift = LOGIT, 1.0, -out.scale, upper
    else:
        out.kind, out.a, out.b = LOGISTIC_INTERVAL, lower, upper
        out.constant = find_log_rest(upper - lower)


cdef inline void tweedie_form(const Likelihood *lik, double y, double constant, Form *out) noexcept nogil:
    """Of power p: with g = f - log y a sum of two exponentials; without a response a rate in (2 - p) f."""
    cdef double a = 2.0 - lik.b, log_y
    if y == 0.0:
        count_form(0.0, 0.0, out)
        out.scale, out.shift = a, -cv_log(a * lik.a)
    else:
        log_y = cv_log(y)
        out.kind, out.a, out.b, out.constant = TWEEDIE, a, lik.b - 1.0, constant
        out.y, out.shift = cv_exp(a * log_y) / lik.a, -log_y


cdef inline Form response_form(const Likelihood *lik, double y, double extra) noexcept nogil:
    cdef Form out
    out.power, out.kind = lik.power, lik.kind
    out.y = out.a = out.b = out.c = out.constant = out.shift = 0.0
    out.scale = 1.0
    if lik.kind == GAMMA:
        count_form(lik.a, lik.c - y, &out)
        out.scale, out.shift = -1.0, lik.b + y
    elif lik.kind == WEIBULL:
        weibull_form(lik, y, extra, &out)
    elif lik.kind == LOG_LOGISTIC:
        out.scale = lik.a
        logistic_form(lik.a * y, lik.a * extra, lik.c - y, &out)
    elif lik.kind == ORDERED_LOGIT:
        logistic_form(y, extra, 0.0, &out)
    elif lik.kind == TWEEDIE:
        tweedie_form(lik, y, extra, &out)
    elif lik.kind == BETA:
        out.y, out.b, out.a, out.c, out.constant = y, extra, lik.a, lik.b, lik.c - (y + extra)
    elif lik.kind == BETA_BINOMIAL:
        out.y, out.b, out.a, out.c = y, extra, lik.a, lik.b
        if y > 0.0 and extra > 0.0:                         # n over y
            out.constant = binomial_top(y, extra) - y * cv_log(y / (y + extra)) - extra * cv_log(extra / (y + extra))
    elif lik.kind == ZERO_INFLATED and y > 0.0:
        count_form(y, extra + lik.d, &out)
        if lik.a > 0.0:
            out.kind, out.a, out.b = NEGATIVE_BINOMIAL, lik.a, lik.b
    elif lik.kind == ZERO_INFLATED:
        out.kind, out.y, out.a, out.b, out.c = ZERO_MIXTURE, lik.a, lik.c, lik.d, lik.b
    elif lik.kind == HURDLE:
        out.kind, out.y, out.a, out.b, out.c, out.constant = TRUNCATED, y, 1.0, -1.0, cv_log(y), extra + lik.d
    else:                                                   # cloglog
        if y > 0.0:
            out.kind, out.b = TRUNCATED, 1.0
        else:
            count_form(0.0, 0.0, &out)
    return out
