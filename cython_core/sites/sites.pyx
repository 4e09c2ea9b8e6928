"""Sites of a likelihood over arrays."""

from cavity._core.closed_sites cimport probit_site
from cavity._core.logit_site cimport WIDEST, LogitNode, LogitRule, logit_finish, logit_node, logit_rule
from cavity._core.site_types cimport LOGIT, PROBIT, Likelihood, Tilted, unpack
from cavity._core.sites cimport tilted

cdef enum:
    TILE = 128
    LANES = 16


def evaluate(int kind, const double[::1] parameters,
             const double[::1] power,        # in  (N,) or (1,)
             const double[::1] y,            # in  (N,)
             const double[::1] extra,        # in  (N,) or (1,): upper bounds or constants of log p
             const double[::1] mean,         # in  (N,): of the cavities
             const double[::1] variance,     # in  (N,)
             bint natural,
             double[::1] log_z,              # out (N,)
             double[::1] first,              # out (N,): d1, or tau if natural
             double[::1] second):            # out (N,): d2, or rho if natural
    """log_z with its derivatives d1, d2, or with the natural parameters tau, rho of the sites."""
    cdef Likelihood lik = unpack(kind, power[0], parameters)
    cdef Py_ssize_t n = y.shape[0], i
    cdef bint powers = power.shape[0] > 1, extras = extra.shape[0] > 1
    cdef Tilted at
    with nogil:
        if kind == PROBIT and not powers and (lik.power == 1.0 or lik.a == 0.0):
            probit_tiles(lik.a, n, &y[0], &mean[0], &variance[0], natural, &log_z[0], &first[0], &second[0])
        elif kind == LOGIT and not powers and lik.power == 1.0:
            logit_tiles(&lik, n, &y[0], &mean[0], &variance[0], natural, &log_z[0], &first[0], &second[0])
        else:
            for i in range(n):
                if powers:
                    lik.power = power[i]
                at = tilted(&lik, y[i], extra[i if extras else 0], mean[i], variance[i])
                log_z[i] = at.log_z
                first[i] = at.tau if natural else at.d1
                second[i] = at.rho if natural else at.d2


cdef void probit_tiles(
    double noise, Py_ssize_t n, const double *y, const double *mean, const double *variance, bint natural,
    double *log_z, double *first, double *second,
) noexcept nogil:
    """The closed form in tiles of local arrays, which vectorise."""
    cdef double label[TILE]
    cdef double m[TILE]
    cdef double v[TILE]
    cdef double out[5][TILE]
    cdef Py_ssize_t tile, start, i, size
    cdef Tilted at
    for i in range(TILE):
        label[i], m[i], v[i] = 1.0, 0.0, 1.0
    for tile in range((n + TILE - 1) // TILE):
        start = tile * TILE
        size = min(TILE, n - start)
        for i in range(size):
            label[i], m[i], v[i] = y[start + i], mean[start + i], variance[start + i]
        for i in range(TILE):
            at = probit_site(noise, label[i], m[i], v[i])
            out[0][i], out[1][i], out[2][i], out[3][i], out[4][i] = at.log_z, at.d1, at.d2, at.tau, at.rho
        for i in range(size):
            log_z[start + i] = out[0][i]
            first[start + i] = out[3 if natural else 1][i]
            second[start + i] = out[4 if natural else 2][i]


cdef void logit_tiles(
    Likelihood *lik, Py_ssize_t n, const double *y, const double *mean, const double *variance, bint natural,
    double *log_z, double *first, double *second,
) noexcept nogil:
    """A site in each of 16 lanes. A lane out of nodes adds zeros, so its bits do not depend on others."""
    cdef double label[LANES]
    cdef double m[LANES]
    cdef double v[LANES]
    cdef double sd[LANES]
    cdef double f0[LANES]
    cdef double wrong[LANES]
    cdef double pull[LANES]
    cdef double step[LANES]
    cdef double count[LANES]
    cdef double total[LANES]
    cdef double change[LANES]
    cdef double curvature[LANES]
    cdef double out[5][LANES]
    cdef LogitRule rule
    cdef LogitNode node
    cdef Py_ssize_t tile, start, i, size
    cdef double most
    cdef int j
    cdef Tilted at
    for i in range(LANES):
        label[i], m[i], v[i] = 1.0, 0.0, 1e-300
    for tile in range((n + LANES - 1) // LANES):
        start = tile * LANES
        size = min(LANES, n - start)
        for i in range(size):
            label[i], m[i], v[i] = y[start + i], mean[start + i], variance[start + i]
            v[i] = v[i] if v[i] <= WIDEST else 1e-300           # left to the scalar function
        for i in range(LANES):
            rule = logit_rule(m[i], v[i])
            sd[i], f0[i], wrong[i] = rule.sd, rule.f0, rule.wrong
            pull[i], step[i], count[i] = rule.pull, rule.step, rule.count
            total[i] = change[i] = curvature[i] = 0.0
        most = 0.0
        for i in range(LANES):
            most = count[i] if count[i] > most else most
        for j in range(<int> most):
            for i in range(LANES):
                rule.sd, rule.f0, rule.wrong = sd[i], f0[i], wrong[i]
                rule.pull, rule.step, rule.count = pull[i], step[i], count[i]
                node = logit_node(rule, j)
                total[i] += node.g
                change[i] += node.g * node.change
                curvature[i] += node.g * node.curvature
        for i in range(LANES):
            rule.sd, rule.f0, rule.wrong = sd[i], f0[i], wrong[i]
            rule.pull, rule.step, rule.count = pull[i], step[i], count[i]
            at = logit_finish(rule, total[i], change[i], curvature[i], label[i], m[i], v[i])
            out[0][i], out[1][i], out[2][i], out[3][i], out[4][i] = at.log_z, at.d1, at.d2, at.tau, at.rho
        for i in range(size):
            at.log_z, at.d1, at.d2, at.tau, at.rho = out[0][i], out[1][i], out[2][i], out[3][i], out[4][i]
            if variance[start + i] > WIDEST:
                at = tilted(lik, label[i], 0.0, m[i], variance[start + i])
            log_z[start + i] = at.log_z
            first[start + i] = at.tau if natural else at.d1
            second[start + i] = at.rho if natural else at.d2
