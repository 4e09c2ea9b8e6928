"""Sites of y successes in n trials: log p = log C(n, y) + y log F(f) + (n - y) log F(-f), F the link.

Successes and failures are mirror images, so there are at most as many of the ones as of the others, r. With the logit
link log p is that of the negative binomial of dispersion r, in f itself where that has f - log r. One trial is a label,
and without successes p is that of a label to the power n. Both know their tails better.
"""

from libc.math cimport M_PI

from cavity._core.simd cimport cv_log, cv_log_1p
from cavity._core.site_types cimport BINOMIAL, NEGATIVE_BINOMIAL, PROBIT, Form, Likelihood

cdef extern from *:
    """
    static const double CV_FACTORIAL_RESTS[16] = {
        0.0, 0.08106146679532726, 0.0413406959554093, 0.02767792568499834,
        0.020790672103765093, 0.016644691189821193, 0.013876128823070748, 0.01189670994589177,
        0.010411265261972096, 0.009255462182712733, 0.00833056343336287, 0.007573675487951841,
        0.00694284010720953, 0.006408994188004207, 0.0059513701127588475, 0.005554733551962801};
    """
    const double FACTORIAL_RESTS "CV_FACTORIAL_RESTS"[16]


cdef inline double factorial_rest(double x) noexcept nogil:
    """log x! - (x log x - x + log(2 pi x)/2) of a whole number, from 1 on: by a table, or Stirling's series."""
    cdef double inv = 1.0 / x, z = inv * inv
    if x < 16.0:
        return FACTORIAL_RESTS[<int> x]
    return inv * (1.0 / 12.0 - z * (1.0 / 360.0 - z * (1.0 / 1260.0 - z * (1.0 / 1680.0 - z / 1188.0))))


cdef inline double binomial_top(double y, double r) noexcept nogil:
    """log p at its maximum in f, F(f) = y/(y + r), for y, r > 0."""
    cdef double n = y + r
    return factorial_rest(n) - factorial_rest(y) - factorial_rest(r) + 0.5 * cv_log(n / (2.0 * M_PI * y) / r)


cdef inline Form binomial_form(const Likelihood *lik, double successes, double failures) noexcept nogil:
    """lik.a = 1 for the probit link."""
    cdef double y = successes if successes <= failures else failures
    cdef double r = failures if successes <= failures else successes
    cdef Form out
    out.power, out.y, out.a, out.b, out.c = lik.power, y, r, 0.0, 1.0
    out.constant = 0.0 if y == 0.0 else binomial_top(y, r)
    out.scale, out.shift = 1.0 if successes <= failures else -1.0, 0.0
    if lik.a != 1.0:
        out.kind = NEGATIVE_BINOMIAL
    elif y == 0.0:                                          # Phi(-f)^r
        out.kind, out.power, out.b, out.scale = PROBIT, r * lik.power, 1.0, -out.scale
    else:
        out.kind, out.b, out.c = BINOMIAL, cv_log(y / (y + r)), cv_log_1p(-y / (y + r))
    return out
