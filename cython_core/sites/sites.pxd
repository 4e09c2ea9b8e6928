"""One inline `tilted` for every likelihood: what the sweeps call at each site."""

from cavity._core.binomial_site cimport binomial_form
from cavity._core.closed_form_sites cimport clutter_site, gaussian_site, interval_site, laplace_site, probit_site
from cavity._core.logit_site cimport MAX_LOGIT_VARIANCE, logit_site
from cavity._core.quadrature_sites cimport quadrature_site
from cavity._core.response_sites cimport is_response, response_form, is_constant
from cavity._core.site_types cimport (
    BINOMIAL, CLUTTER, GAUSSIAN, HURDLE, INTERVAL, LAPLACE, LOG_NORMAL, LOGIT, PROBIT, STUDENT_T, Form, Likelihood,
    Tilted,
)


cdef inline bint is_integral(const Likelihood *lik, double y, double extra, double v) noexcept nogil:
    """Whether the site has no closed form, nor the rule of logit_site.pxd; one trial is a label."""
    cdef bint label = lik.kind == BINOMIAL and y + extra == 1.0
    if (lik.kind == GAUSSIAN or lik.kind == INTERVAL or lik.kind == LAPLACE or lik.kind == CLUTTER
            or lik.kind == LOG_NORMAL):
        return False
    if is_response(lik.kind):
        return not is_constant(lik, y, extra)
    if lik.kind == BINOMIAL and y + extra == 0.0:
        return False
    if lik.kind == PROBIT and lik.a == 0.0:
        return False
    if lik.kind == PROBIT or label and lik.a == 1.0:
        return lik.power != 1.0
    if lik.kind == LOGIT or label:
        return lik.power != 1.0 or v > MAX_LOGIT_VARIANCE
    return True


cdef inline Form form_of(const Likelihood *lik, double y, double extra) noexcept nogil:
    """The integral; labels are mirror images, to the last bit."""
    cdef Form out
    if lik.kind == BINOMIAL:
        return binomial_form(lik, y, extra)
    if is_response(lik.kind):
        return response_form(lik, y, extra)
    out.kind, out.power, out.y, out.a, out.b, out.c = lik.kind, lik.power, y, lik.a, lik.b, lik.c
    out.constant, out.scale, out.shift = extra, 1.0, 0.0
    if lik.kind == LOGIT or lik.kind == PROBIT:
        out.y, out.scale = 1.0, y
    if lik.kind == PROBIT or lik.kind == STUDENT_T:
        out.c = 1.0 / lik.b
    return out


cdef inline Tilted tilted(const Likelihood *lik, double y, double extra, double m, double v) noexcept nogil:
    """Moments of p(y|f)^power N(f; m, v); `extra`: upper bound of an interval, failures, or the constant of log p."""
    cdef Tilted out
    cdef Form form
    if is_integral(lik, y, extra, v):
        form = form_of(lik, y, extra)
        return quadrature_site(&form, m, v)
    if lik.kind == PROBIT:
        return probit_site(lik.a, y, m, v)
    if lik.kind == LOGIT:
        return logit_site(y, m, v)
    if lik.kind == GAUSSIAN:
        return gaussian_site(lik.a, lik.power, y, m, v)
    if lik.kind == INTERVAL:
        return interval_site(lik.a, y, extra, m, v)
    if lik.kind == LOG_NORMAL:                              # of the log, whose density is that of y over y
        out = interval_site(lik.a, y, extra, m, v)
        out.log_z -= y if y == extra else 0.0
        return out
    if lik.kind == LAPLACE:
        return laplace_site(lik.a, lik.b, lik.c, lik.power, y, m, v)
    if lik.kind == CLUTTER:
        return clutter_site(<Likelihood *> lik, y, m, v)
    if is_response(lik.kind) or y + extra == 0.0:           # p does not depend on f
        out.log_z = lik.power * lik.c if lik.kind == HURDLE else 0.0
        out.d1 = out.d2 = out.tau = out.rho = 0.0
        return out
    return probit_site(1.0, y - extra, m, v) if lik.a == 1.0 else logit_site(y - extra, m, v)
