"""The parameters of a likelihood in kernels, and the results of a site."""

cdef enum Kind:
    # likelihoods
    GAUSSIAN, PROBIT, INTERVAL, LAPLACE, CLUTTER, LOGIT, POISSON, NEGATIVE_BINOMIAL, STUDENT_T, BINOMIAL
    GAMMA, WEIBULL, LOG_LOGISTIC, LOG_NORMAL, TWEEDIE, BETA, BETA_BINOMIAL, ZERO_INFLATED, HURDLE, CLOGLOG
    ORDERED_LOGIT
    # integrands that only come from others, see log_densities.pxd
    TRUNCATED, ZERO_MIXTURE, LOGISTIC_INTERVAL

cdef struct Likelihood:                  # passed by value or pointer; the meaning of a, b, ... depends on the kind
    int kind
    double power                         # e: sites are those of p(y|f)^e
    double a, b, c, d, e, f

cdef struct Form:                        # one site that is an integral, see log_densities.pxd
    int kind
    double power, y, a, b, c
    double constant                      # the part of log p without f; for counts above 0 the maximum of log p
    double scale, shift                  # the integral is over scale f + shift

cdef struct Tilted:
    double log_z                         # log of the integral of p(y|f)^e N(f; m, v)
    double d1, d2                        # its derivatives in m
    double tau, rho                      # natural parameters of the site


cdef inline Likelihood unpack(int kind, double power, const double[::1] parameters) noexcept nogil:
    """The likelihood from its six numbers."""
    cdef Likelihood result
    result.kind, result.power = kind, power
    result.a, result.b, result.c = parameters[0], parameters[1], parameters[2]
    result.d, result.e, result.f = parameters[3], parameters[4], parameters[5]
    return result


cdef inline Tilted finish(double m, double v, double log_z, double d1, double d2, double shrink) noexcept nogil:
    """The site from the derivatives; shrink = 1 + v d2 is the tilted variance over that of the cavity."""
    cdef Tilted out
    out.log_z, out.d1, out.d2 = log_z, d1, d2
    out.rho = -d2 / shrink
    out.tau = d1 / shrink + m * out.rho
    return out
