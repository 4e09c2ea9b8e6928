"""One inline `tilted` for every likelihood: what the sweeps call at each site."""

from cavity._core.binomial_site cimport binomial_site
from cavity._core.closed_sites cimport clutter_site, gaussian_site, interval_site, laplace_site, probit_site
from cavity._core.logit_site cimport WIDEST, logit_site
from cavity._core.quadrature_sites cimport quadrature_site
from cavity._core.site_types cimport BINOMIAL, CLUTTER, GAUSSIAN, INTERVAL, LAPLACE, LOGIT, PROBIT, Likelihood, Tilted


cdef inline Tilted tilted(Likelihood *lik, double y, double extra, double m, double v) noexcept nogil:
    """Moments of p(y|f)^power N(f; m, v); `extra`: upper bound of an interval, failures, or the constant of log p."""
    cdef Tilted out
    if lik.kind == PROBIT and (lik.power == 1.0 or lik.a == 0.0):
        return probit_site(lik.a, y, m, v)
    if lik.kind == GAUSSIAN:
        return gaussian_site(lik.a, lik.power, y, m, v)
    if lik.kind == INTERVAL:
        return interval_site(lik.a, y, extra, m, v)
    if lik.kind == LAPLACE:
        return laplace_site(lik.a, lik.power, y, m, v)
    if lik.kind == CLUTTER:
        return clutter_site(lik, y, m, v)
    if lik.kind == LOGIT and lik.power == 1.0 and v <= WIDEST:
        return logit_site(y, m, v)
    if lik.kind == LOGIT or lik.kind == PROBIT:             # the two labels are mirror images, to the last bit
        out = quadrature_site(lik, 1.0, extra, y * m, v)
        out.d1, out.tau = y * out.d1, y * out.tau
        return out
    if lik.kind == BINOMIAL:
        return binomial_site(lik, y, extra, m, v)
    return quadrature_site(lik, y, extra, m, v)
