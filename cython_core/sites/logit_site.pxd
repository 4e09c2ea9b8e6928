"""The logistic site: moments of N(f; m, v) times sigmoid(y f), by the trapezoidal rule.

The sites of the two labels know each other, as Z(y) = 1 - Z(-y). So the moments are those of the label less probable,
which are integrals without cancellation, and those of the other one follow with all their digits, however small log Z
is. By symmetry its label is 1 and the cavity's mean t = -|m| (`t` and the mode f0 are measured so).

For a function analytic in a strip the trapezoidal rule converges exponentially: with spacing h the error is about
exp(d^2/(2 v) - 2 pi d/h) for any d up to the distance pi of the poles. The spacing makes that exp(-ACCURACY), and
ACCURACY covers the factors that the poles of second and third order in the derivatives bring.
    E l' and E l'' + Var l' are d1 and d2; they are precise up to variances of about WIDEST.
"""

from libc.math cimport M_PI, ceil, fabs, sqrt

from cavity._core.simd cimport cv_exp, cv_log_1p, cv_log_normal
from cavity._core.site_types cimport Tilted

cdef extern from *:
    """
    #define CV_LOGIT_HALF_LOG_TAU 0.9189385332046727
    #define CV_LOGIT_ACCURACY 36.0
    #define CV_LOGIT_REACH 8.25
    #define CV_LOGIT_WIDEST 16.0
    """
    const double HALF_LOG_2PI "CV_LOGIT_HALF_LOG_TAU"
    const double ACCURACY "CV_LOGIT_ACCURACY"
    const double REACH "CV_LOGIT_REACH"          # sd from the anchor to the last nodes, with a quarter of one to spare
    const double WIDEST "CV_LOGIT_WIDEST"        # variance up to which the rule is used

cdef enum:
    LOGIT_LANES = 16

cdef struct LogitRule:
    double sd
    double f0, wrong                             # the anchor and 1 - sigmoid(f0)
    double pull                                  # (f0 - t)/sd
    double step                                  # spacing of the nodes over sd
    double count                                 # of nodes

cdef struct LogitNode:
    double g, change, curvature                  # weight, l' - l'(f0), l'' + (l' - l'(f0))^2


cdef inline LogitRule logit_rule(double m, double v) noexcept nogil:
    """Where the nodes are: around the mode, to which three steps by Newton lead from any t < 0 and v < WIDEST."""
    cdef LogitRule out
    cdef double t = -fabs(m), f = t, u, r, wrong, wide
    cdef int _step
    out.sd = sqrt(v)
    for _step in range(3):
        u = cv_exp(-fabs(f))
        r = 1.0 / (1.0 + u)
        wrong = u * r if f > 0.0 else r
        f = f + (v * wrong - (f - t)) / (1.0 + v * u * r * r)
    u = cv_exp(-fabs(f))
    r = 1.0 / (1.0 + u)
    out.wrong = u * r if f > 0.0 else r
    out.f0, out.pull = f, (f - t) / out.sd
    # the best d is 2 pi v/h, if that is below pi
    wide = 2.0 * M_PI * M_PI / ((ACCURACY + 0.5 * M_PI * M_PI / v) * out.sd)
    out.step = M_PI * sqrt(2.0 / ACCURACY) if v < 0.5 * M_PI * M_PI / ACCURACY else wide
    out.count = ceil(2.0 * REACH / out.step)
    return out


cdef inline LogitNode logit_node(LogitRule rule, double index) noexcept nogil:
    cdef double xi = (index - 0.5 * (rule.count - 1.0)) * rule.step
    cdef double x = rule.sd * xi, f = rule.f0 + x, to_zero = -rule.f0
    cdef double u = cv_exp(-fabs(f))
    cdef double r = 1.0 / (1.0 + u)
    cdef double small = u * r
    # min(f, 0) - min(f0, 0), which is x far below 0
    cdef double rise = (x if x < to_zero else to_zero) + (rule.f0 if rule.f0 > 0.0 else 0.0)
    cdef double g = r * cv_exp(rise - xi * (rule.pull + 0.5 * xi))
    cdef LogitNode out
    out.g = g if index < rule.count else 0.0
    out.change = (small if f > 0.0 else r) - rule.wrong
    out.curvature = out.change * out.change - small * r
    return out


cdef inline Tilted logit_finish(
    LogitRule rule, double total, double first, double second, double y, double m, double v,
) noexcept nogil:
    """From the sums of g, g change and g curvature."""
    cdef double change = first / total, slope = rule.wrong + change
    cdef double d2 = second / total - change * change
    cdef double log_z = cv_log_normal(total * rule.step) - HALF_LOG_2PI
    cdef double z, odds, shrink
    cdef bint likely = y * m > 0.0
    cdef Tilted out
    log_z += (rule.f0 if rule.f0 < 0.0 else 0.0) - 0.5 * rule.pull * rule.pull
    z = cv_exp(log_z)
    z = z if z < 0.5 else 0.5
    odds = z / (1.0 - z)
    out.log_z = cv_log_1p(-z) if likely else log_z
    out.d1 = y * (odds * slope if likely else slope)
    out.d2 = -odds * (d2 + slope * slope * (1.0 + odds)) if likely else d2
    shrink = 1.0 / (1.0 + v * out.d2)
    out.rho = -out.d2 * shrink
    out.tau = out.d1 * shrink + m * out.rho
    return out


cdef inline Tilted logit_site(double y, double m, double v) noexcept nogil:
    """One site; sums run from node to node, as they do where sites are lanes, so that the bits are the same."""
    cdef LogitRule rule = logit_rule(m, v)
    cdef LogitNode node
    cdef double g[16]
    cdef double change[16]
    cdef double curvature[16]
    cdef double total = 0.0, first = 0.0, second = 0.0
    cdef int start, j
    for start in range(0, <int> rule.count, 16):
        for j in range(16):
            node = logit_node(rule, start + j)
            g[j], change[j], curvature[j] = node.g, node.g * node.change, node.g * node.curvature
        for j in range(16):
            total += g[j]
            first += change[j]
            second += curvature[j]
    return logit_finish(rule, total, first, second, y, m, v)


cdef inline void logit_tiles(
    Py_ssize_t n, const double *y, const double *mean, const double *variance, bint natural,
    double *log_z, double *first, double *second,
) noexcept nogil:
    """A site in each of 16 lanes; those of cavities wider than WIDEST are left out.

    A lane out of nodes adds zeros, so its bits do not depend on others.
    """
    cdef double label[LOGIT_LANES]
    cdef double m[LOGIT_LANES]
    cdef double v[LOGIT_LANES]
    cdef double sd[LOGIT_LANES]
    cdef double f0[LOGIT_LANES]
    cdef double wrong[LOGIT_LANES]
    cdef double pull[LOGIT_LANES]
    cdef double step[LOGIT_LANES]
    cdef double count[LOGIT_LANES]
    cdef double total[LOGIT_LANES]
    cdef double change[LOGIT_LANES]
    cdef double curvature[LOGIT_LANES]
    cdef double out[5][LOGIT_LANES]
    cdef LogitRule rule
    cdef LogitNode node
    cdef Py_ssize_t tile, start, i, size
    cdef double most
    cdef int j
    cdef Tilted at
    for i in range(LOGIT_LANES):
        label[i], m[i], v[i] = 1.0, 0.0, 1e-300
    for tile in range((n + LOGIT_LANES - 1) // LOGIT_LANES):
        start = tile * LOGIT_LANES
        size = min(LOGIT_LANES, n - start)
        for i in range(size):
            label[i], m[i], v[i] = y[start + i], mean[start + i], variance[start + i]
            v[i] = v[i] if v[i] <= WIDEST else 1e-300           # left to the scalar function
        for i in range(LOGIT_LANES):
            rule = logit_rule(m[i], v[i])
            sd[i], f0[i], wrong[i] = rule.sd, rule.f0, rule.wrong
            pull[i], step[i], count[i] = rule.pull, rule.step, rule.count
            total[i] = change[i] = curvature[i] = 0.0
        most = 0.0
        for i in range(LOGIT_LANES):
            most = count[i] if count[i] > most else most
        for j in range(<int> most):
            for i in range(LOGIT_LANES):
                rule.sd, rule.f0, rule.wrong = sd[i], f0[i], wrong[i]
                rule.pull, rule.step, rule.count = pull[i], step[i], count[i]
                node = logit_node(rule, j)
                total[i] += node.g
                change[i] += node.g * node.change
                curvature[i] += node.g * node.curvature
        for i in range(LOGIT_LANES):
            rule.sd, rule.f0, rule.wrong = sd[i], f0[i], wrong[i]
            rule.pull, rule.step, rule.count = pull[i], step[i], count[i]
            at = logit_finish(rule, total[i], change[i], curvature[i], label[i], m[i], v[i])
            out[0][i], out[1][i], out[2][i], out[3][i], out[4][i] = at.log_z, at.d1, at.d2, at.tau, at.rho
        for i in range(size):
            if variance[start + i] <= WIDEST:
                log_z[start + i] = out[0][i]
                first[start + i] = out[3 if natural else 1][i]
                second[start + i] = out[4 if natural else 2][i]
