"""Sites of y successes in n trials: log p = log C(n, y) + y log F(f) + (n - y) log F(-f), F the link.

Successes and failures are mirror images, so there are at most as many of the ones as of the others, r. With the logit
link log p is that of the negative binomial of dispersion r, in f itself where that has f - log r. One trial is a label,
and without successes p is that of a label to the power n. Both know their tails better.
"""

from libc.math cimport M_PI

from cavity._core.logit_site cimport WIDEST, logit_site
from cavity._core.closed_sites cimport probit_site
from cavity._core.quadrature_sites cimport quadrature_site
from cavity._core.simd cimport cv_log, cv_log_1p
from cavity._core.site_types cimport BINOMIAL, NEGATIVE_BINOMIAL, PROBIT, Likelihood, Tilted

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


cdef inline Tilted binomial_half(Likelihood *lik, double y, double r, double m, double v) noexcept nogil:
    """The site of y successes and r failures, y <= r; a = 1 for the probit link."""
    cdef bint probit = lik.a == 1.0
    cdef double top = 0.0 if y == 0.0 else binomial_top(y, r)
    cdef Likelihood form = lik[0]
    if r == 1.0 and y == 0.0 and lik.power == 1.0:
        if probit:
            return probit_site(1.0, -1.0, m, v)
        if v <= WIDEST:
            return logit_site(-1.0, m, v)
    form.a, form.b, form.c = r, 0.0, 1.0
    if not probit:
        form.kind = NEGATIVE_BINOMIAL
    elif y == 0.0:
        form.kind, form.power, form.b = PROBIT, r * lik.power, 1.0
        return quadrature_site(&form, -1.0, 0.0, m, v)
    else:
        form.kind, form.b, form.c = BINOMIAL, cv_log(y / (y + r)), cv_log_1p(-y / (y + r))
    return quadrature_site(&form, y, top, m, v)


cdef inline Tilted binomial_site(Likelihood *lik, double y, double r, double m, double v) noexcept nogil:
    """The site of y successes and r failures."""
    cdef Tilted out
    if y + r == 0.0:                                        # no trial says nothing
        out.log_z = out.d1 = out.d2 = out.tau = out.rho = 0.0
        return out
    if y <= r:
        return binomial_half(lik, y, r, m, v)
    out = binomial_half(lik, r, y, -m, v)
    out.d1, out.tau = -out.d1, -out.tau
    return out
