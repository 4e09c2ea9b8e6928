"""Sites of many rows at once, side by side in lanes where the kind allows; none depends on its neighbours."""

from cavity._core.closed_sites cimport probit_tiles
from cavity._core.logit_site cimport WIDEST, logit_tiles
from cavity._core.site_types cimport LOGIT, PROBIT, Likelihood, Tilted
from cavity._core.sites cimport tilted


cdef inline void match_tile(
    Likelihood *lik, Py_ssize_t n,
    const double *power, Py_ssize_t powers,              # in  (n,) if powers is 1; where 0, one number serves all rows
    const double *y,                                     # in  (n,)
    const double *extra, Py_ssize_t extras,              # in  (n,) if extras is 1: as in `tilted`
    const double *m, const double *v,                    # in  (n,): the cavities N(m, v)
    bint natural,
    double *log_z,                                       # out (n,)
    double *first,                                       # out (n,): d1, or tau if natural
    double *second,                                      # out (n,): d2, or rho if natural
) noexcept nogil:
    """Moments of p(y|f)^power N(f; m, v) of n rows, n > 0; `power` stands for lik.power."""
    cdef Likelihood form = lik[0]
    cdef bint by_tiles = False
    cdef Py_ssize_t i
    cdef Tilted at
    form.power = power[0]
    if form.kind == PROBIT and not powers and (form.power == 1.0 or form.a == 0.0):
        probit_tiles(form.a, n, y, m, v, natural, log_z, first, second)
        return
    if form.kind == LOGIT and not powers and form.power == 1.0:
        logit_tiles(n, y, m, v, natural, log_z, first, second)
        by_tiles = True
    for i in range(n):
        if by_tiles and v[i] <= WIDEST:
            continue
        form.power = power[i * powers]
        at = tilted(&form, y[i], extra[i * extras], m[i], v[i])
        log_z[i] = at.log_z
        first[i] = at.tau if natural else at.d1
        second[i] = at.rho if natural else at.d2
