"""The logistic site: moments of N(f; m, v) times sigmoid(y f), by the trapezoidal rule.

The sites of the two labels are linked, Z(y) = 1 - Z(-y). So the moments are those of the label less probable,
which are integrals without cancellation, and those of the other one follow with all their digits, however small log Z
is. By symmetry its label is 1 and the cavity's mean t = -|m|. With l = log sigmoid(f), s = sigmoid(f) and r = 1 - s,

    l' = r,  l'' = -r s,  d1 = E[l'],  d2 = E[l''] + Var[l'],

expectations under sigmoid(f) N(f; t, v)/Z; these forms are precise up to variances of about MAX_LOGIT_VARIANCE.

Nodes spread from the anchor f0 = min(t + v, 0), about half an sd from the mode at most, in sd: f = f0 + sd x. There
    sigmoid(f) N(f; t, v) df = exp(f0 - p^2/2)/sqrt(2 pi) r(f) exp(x (sd - p) - x^2/2) dx,   p = (f0 - t)/sd.

For a function analytic in a strip the trapezoidal rule converges exponentially: with spacing h sd the error is about
exp(d^2/(2 v) - 2 pi d/(h sd)) for any d up to the distance pi of the poles. The spacing makes that exp(-ACCURACY_NATS),
which covers the factors that the poles of second and third order in the derivatives bring. Far below 0, where
sigmoid(f) is exp(f), what is averaged in d2 has its mass an sd above that of Z: nodes reach as much farther.
"""

from libc.math cimport M_PI, fabs, sqrt

from cavity._core.constants cimport HALF_LOG_2PI
from cavity._core.lanes cimport template
from cavity._core.simd cimport cv_exp, cv_log_normal
from cavity._core.site_types cimport Tilted

cdef extern from "cavity_logit.h" nogil:
    enum:
        CV_WIDTH, ODDS "CV_LOGIT_ODDS", RISE "CV_LOGIT_RISE", FALL "CV_LOGIT_FALL", UP "CV_LOGIT_UP"
        DOWN "CV_LOGIT_DOWN", BEND "CV_LOGIT_BEND", WRONG "CV_LOGIT_WRONG", PAIRS "CV_LOGIT_PAIRS"
    void cv_logit_sums(const double *site, Py_ssize_t stride, double *sums) noexcept

cdef extern from *:
    """
    #define CV_LOGIT_ACCURACY_NATS 36.0
    #define CV_LOGIT_REACH_SD 7.5
    #define CV_LOGIT_MAX_VARIANCE 16.0
    """
    const double ACCURACY_NATS "CV_LOGIT_ACCURACY_NATS"
    const double REACH_SD "CV_LOGIT_REACH_SD"          # sd from the anchor to the last nodes: half a one to spare
    const double MAX_LOGIT_VARIANCE "CV_LOGIT_MAX_VARIANCE"        # variance up to which the rule is used

cdef enum:
    LOGIT_TILE = 64

cdef struct LogitRule:
    double odds, rise, fall, up, down, bend, wrong, pairs    # as in cavity_logit.h
    double step                                  # spacing of the nodes over sd
    double scale                                 # log of what the sum of g is times, without 2 pi


cdef inline template logit_rule(double m, double v, LogitRule *out) noexcept nogil:
    """Where the nodes are, and the exponentials that all others are products of."""
    cdef double t = -fabs(m), f0 = t + v if t + v < 0.0 else 0.0, sd = sqrt(v), inv = 1.0 / sd
    cdef double pull = (f0 - t) * inv, below = -f0 * inv
    # the best d is 2 pi v/(h sd), if that is below pi
    cdef double nodes = (ACCURACY_NATS * v + 0.5 * M_PI * M_PI) * inv * (0.5 / (M_PI * M_PI))     # an sd
    cdef double rise, up, half
    nodes = sqrt(0.5 * ACCURACY_NATS) / M_PI if v < 0.5 * M_PI * M_PI / ACCURACY_NATS else nodes
    out.pairs = (REACH_SD + (sd if sd < below else below)) * nodes
    out.pairs = <double> (<int> out.pairs + 1)
    out.step = 1.0 / nodes
    out.odds = cv_exp(f0)
    out.wrong = 1.0 / (1.0 + out.odds)
    rise, up, half = cv_exp(sd * out.step), cv_exp((sd - pull) * out.step), cv_exp(-0.5 * out.step * out.step)
    inv = 1.0 / (rise * up)
    out.rise, out.fall = rise, up * inv
    out.up, out.down, out.bend = up * half, rise * inv * half, half * half
    out.scale = f0 - 0.5 * pull * pull


cdef inline template logit_finish(
    const LogitRule *rule, double total, double first, double second, double y, double m, double v, Tilted *out,
) noexcept nogil:
    """From the sums of g, g c and g (c^2 - r s), c = r - r(f0)."""
    cdef double inv = 1.0 / total
    cdef double change = first * inv, slope = rule.wrong + change, bend = second * inv - change * change
    cdef double mass = total * rule.step, shrink
    cdef bint likely = y * m > 0.0
    cdef double z = cv_exp(rule.scale - HALF_LOG_2PI) * mass
    cdef double other, odds, log_part
    z = z if z < 0.5 else 0.5
    other = 1.0 - z
    inv = 1.0 / other
    odds = z * inv
    log_part = cv_log_normal(other if likely else mass)
    # log(1 - z), whose rounding error is put back
    out.log_z = log_part - ((other - 1.0) + z) * inv if likely else (log_part - HALF_LOG_2PI) + rule.scale
    out.d1 = y * (odds * slope if likely else slope)
    out.d2 = -odds * (bend + slope * slope * (1.0 + odds)) if likely else bend
    shrink = 1.0 / (1.0 + v * out.d2)
    out.rho = -out.d2 * shrink
    out.tau = out.d1 * shrink + m * out.rho


cdef inline Tilted logit_site(double y, double m, double v) noexcept nogil:
    """One site, in all lanes: the bits are those of many."""
    cdef LogitRule rule
    cdef double site[8][8]
    cdef double sums[3][8]
    cdef Tilted out
    cdef int i
    logit_rule(m, v, &rule)
    for i in range(8):
        site[ODDS][i], site[RISE][i], site[FALL][i], site[UP][i] = rule.odds, rule.rise, rule.fall, rule.up
        site[DOWN][i], site[BEND][i], site[WRONG][i], site[PAIRS][i] = rule.down, rule.bend, rule.wrong, rule.pairs
    cv_logit_sums(&site[0][0], 8, &sums[0][0])
    logit_finish(&rule, sums[0][0], sums[1][0], sums[2][0], y, m, v, &out)
    return out


cdef inline void logit_tiles(
    Py_ssize_t n, const double *y, const double *mean, const double *variance, bint natural,
    double *log_z, double *first, double *second,
) noexcept nogil:
    """Many sites, CV_WIDTH side by side; those of cavities wider than MAX_LOGIT_VARIANCE are left out."""
    cdef double label[LOGIT_TILE]
    cdef double m[LOGIT_TILE]
    cdef double v[LOGIT_TILE]
    cdef double site[8][LOGIT_TILE]
    cdef double step[LOGIT_TILE]
    cdef double scale[LOGIT_TILE]
    cdef double sums[3][LOGIT_TILE]
    cdef double out[3][LOGIT_TILE]
    cdef LogitRule rule
    cdef Py_ssize_t tile, start, i, size
    cdef Tilted at
    for i in range(LOGIT_TILE):
        label[i], m[i], v[i] = 1.0, 0.0, 1e-300
    for tile in range((n + LOGIT_TILE - 1) // LOGIT_TILE):
        start = tile * LOGIT_TILE
        size = min(LOGIT_TILE, n - start)
        for i in range(size):
            label[i], m[i], v[i] = y[start + i], mean[start + i], variance[start + i]
            v[i] = v[i] if v[i] <= MAX_LOGIT_VARIANCE else 1e-300           # left to the scalar function
        for i in range(LOGIT_TILE):
            logit_rule(m[i], v[i], &rule)
            site[ODDS][i], site[RISE][i], site[FALL][i], site[UP][i] = rule.odds, rule.rise, rule.fall, rule.up
            site[DOWN][i], site[BEND][i], site[WRONG][i], site[PAIRS][i] = rule.down, rule.bend, rule.wrong, rule.pairs
            step[i], scale[i] = rule.step, rule.scale
        for i in range((size + CV_WIDTH - 1) // CV_WIDTH):
            cv_logit_sums(&site[0][i * CV_WIDTH], LOGIT_TILE, &sums[0][i * CV_WIDTH])
        for i in range(LOGIT_TILE):
            rule.wrong, rule.step, rule.scale = site[WRONG][i], step[i], scale[i]
            logit_finish(&rule, sums[0][i], sums[1][i], sums[2][i], label[i], m[i], v[i], &at)
            out[0][i] = at.log_z
            out[1][i] = at.tau if natural else at.d1
            out[2][i] = at.rho if natural else at.d2
        for i in range(size):
            if variance[start + i] <= MAX_LOGIT_VARIANCE:
                log_z[start + i], first[start + i], second[start + i] = out[0][i], out[1][i], out[2][i]
