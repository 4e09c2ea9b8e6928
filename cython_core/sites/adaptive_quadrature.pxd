"""The rule of wide cavities for kinds without a bound of their own: its error is what refinement changes.

With h = l + log N(f; m, v), as in quadrature_steps.pxd:

1. For concave l: equally spaced nodes over where h is within REACH_NATS of its top. Each doubling of their number
   squares the error of the trapezoidal rule of an analytic integrand, so that where it changed the sums by less than
   1e-8 what is left is rounding.
2. Where that takes more than MAX_NODES, and for l that is not concave, whose modes are between m and the mode of l:
   panels of Gauss-Legendre rules, at first the wider the farther from these places, which are halved until halves
   agree with the whole.
"""

from libc.math cimport INFINITY, NAN, fabs, sqrt

from cavity._core.log_densities cimport Density, Slopes, slopes
from cavity._core.quadrature_nodes cimport NODES, gauss_nodes, gauss_weights
from cavity._core.quadrature_steps cimport Tile, density, is_concave
from cavity._core.simd cimport cv_exp, cv_log
from cavity._core.site_types cimport (
    BETA, BETA_BINOMIAL, LOGISTIC_INTERVAL, TRUNCATED, TWEEDIE, ZERO_MIXTURE,
)

cdef extern from *:
    """
    #define CV_REACH_NATS 46.0
    """
    const double REACH_NATS "CV_REACH_NATS"         # so far that moments of order 2 are within rounding

cdef enum:
    MAX_NODES = 512
    MAX_DEPTH = 48                       # of halvings
    SUMS = 6                             # total, first, second, change, square, bend

ctypedef double Sums[6]


cdef inline void slopes_of(int kind, const Density *p, double f, Slopes *out) noexcept nogil:
    """Those of a kind that is known when it runs."""
    if kind == TRUNCATED:
        slopes(TRUNCATED, p, f, out)
    elif kind == ZERO_MIXTURE:
        slopes(ZERO_MIXTURE, p, f, out)
    elif kind == LOGISTIC_INTERVAL:
        slopes(LOGISTIC_INTERVAL, p, f, out)
    elif kind == TWEEDIE:
        slopes(TWEEDIE, p, f, out)
    elif kind == BETA:
        slopes(BETA, p, f, out)
    else:
        slopes(BETA_BINOMIAL, p, f, out)


cdef inline void add_nodes(
    int kind, const Tile *t, Py_ssize_t i, const double *x, const double *weights, double *sums,
) noexcept nogil:
    """Add 16 nodes x from the anchor, of weights that are times the density over that at the anchor."""
    cdef Density p
    cdef Slopes at
    cdef double g, change
    cdef int j
    density(t, i, &p)
    for j in range(NODES):
        slopes_of(kind, &p, t.f0[i] + x[j], &at)
        g = weights[j] * cv_exp((at.value - t.l[i]) - x[j] * (t.pull[i] + t.half_precision[i] * x[j]))
        change = at.l1 - t.l1[i]
        if g > 0.0:
            sums[0] += g
            sums[1] += g * x[j]
            sums[2] += g * x[j] * x[j]
            sums[3] += g * change
            sums[4] += g * change * change
            sums[5] += g * at.l2


cdef inline double height(int kind, const Tile *t, Py_ssize_t i, const Density *p, double f) noexcept nogil:
    """l - (f - m)^2/(2 v)."""
    cdef Slopes at
    slopes_of(kind, p, f, &at)
    return at.value - 0.5 * (f - t.m[i]) * ((f - t.m[i]) / t.v[i])


cdef inline bint agree(const double *a, const double *b, double share) noexcept nogil:
    """Whether sums differ by less than a share of them, signs left out."""
    cdef double change = sqrt(b[0] * b[4]), bend = fabs(b[5]) + b[4]
    return (fabs(a[0] - b[0]) <= share * b[0] and fabs(a[1] - b[1]) <= share * sqrt(b[0] * b[2])
            and fabs(a[2] - b[2]) <= share * b[2] and fabs(a[3] - b[3]) <= share * change
            and fabs(a[4] - b[4]) <= share * b[4] and fabs(a[5] - b[5]) <= share * bend)


cdef inline void put_sums(Tile *t, Py_ssize_t i, const double *sums) noexcept nogil:
    t.total[i], t.first[i], t.second[i] = sums[0], sums[1], sums[2]
    t.change[i], t.square[i], t.bend[i] = sums[3], sums[4], sums[5]
    t.step[i] = 1.0


# ------------------------------------------------------------------------------------------------ 1. equal steps


cdef inline double find_reach(
    int kind, const Tile *t, Py_ssize_t i, const Density *p, double top, double side,
) noexcept nogil:
    """A distance from the anchor at which h is REACH_NATS to 1.6 REACH_NATS, or so, below its value there."""
    cdef double farthest = sqrt(2.0 * REACH_NATS * t.v[i]), d = sqrt(2.0 * REACH_NATS / (1.0 / t.v[i] - t.l2[i]))
    cdef int _step
    d = d if d < farthest else farthest
    for _step in range(400):
        if d >= farthest or top - height(kind, t, i, p, t.f0[i] + side * d) >= REACH_NATS:
            break
        d *= 1.25
    for _step in range(400):
        if top - height(kind, t, i, p, t.f0[i] + side * 0.8 * d) < REACH_NATS:
            break
        d *= 0.8
    return d


cdef inline bint by_doubling(int kind, Tile *t, Py_ssize_t i, const Density *p) noexcept nogil:
    """Whether equal steps reach the accuracy."""
    cdef double top = height(kind, t, i, p, t.f0[i]), left = -find_reach(kind, t, i, p, top, -1.0), step
    cdef double span = find_reach(kind, t, i, p, top, 1.0) - left, start = 0.0, total
    cdef double x[NODES]
    cdef double weights[NODES]
    cdef Sums old, sums, scaled
    cdef int count = NODES, j, k
    for j in range(SUMS):
        sums[j] = 0.0
    for j in range(NODES):
        weights[j] = 1.0
    step = span / count
    while True:
        for j in range(SUMS):
            old[j] = 2.0 * sums[j]                          # as of twice as many nodes
        k = 0
        while k < count:
            for j in range(NODES):
                x[j] = left + step * (k + j + start)
            add_nodes(kind, t, i, x, weights, sums)
            k += NODES
        if start > 0.0:
            count *= 2
            step *= 0.5
            if agree(old, sums, 1e-8):
                for j in range(SUMS):
                    scaled[j] = step * sums[j]
                put_sums(t, i, scaled)
                return True
            if count >= MAX_NODES:
                return False
        start = 0.5


# ------------------------------------------------------------------------------------------------ 2. panels


cdef inline void panel_sums(
    int kind, const Tile *t, Py_ssize_t i, double left, double right, double *sums,
) noexcept nogil:
    cdef double x[NODES]
    cdef double weights[NODES]
    cdef double middle = 0.5 * (left + right), half = 0.5 * (right - left)
    cdef int j
    for j in range(SUMS):
        sums[j] = 0.0
    for j in range(NODES):
        x[j], weights[j] = middle + half * gauss_nodes[j], half * gauss_weights[j]
    add_nodes(kind, t, i, x, weights, sums)


cdef inline void add_panel_by_halves(
    int kind, const Tile *t, Py_ssize_t i, double left, double right, double *sums,
) noexcept nogil:
    """Add a panel to the sums, halved until its halves agree with it, or it is negligible beside them."""
    cdef double lefts[MAX_DEPTH + 2]
    cdef double rights[MAX_DEPTH + 2]
    cdef Sums wholes[MAX_DEPTH + 2]
    cdef Sums both, first, second
    cdef double a, b, middle
    cdef int depth = 0, j, work = 0
    cdef bint small
    lefts[0], rights[0] = left, right
    panel_sums(kind, t, i, left, right, wholes[0])
    while depth >= 0:
        work += 1
        a, b = lefts[depth], rights[depth]
        middle = 0.5 * (a + b)
        panel_sums(kind, t, i, a, middle, first)
        panel_sums(kind, t, i, middle, b, second)
        for j in range(SUMS):
            both[j] = first[j] + second[j]
        # what is smaller than the rounding errors of all sums so far need not agree with itself
        small = (fabs(both[0] - wholes[depth][0]) <= 1e-16 * sums[0]
                 and fabs(both[2] - wholes[depth][2]) <= 1e-16 * sums[2]
                 and fabs(both[4] - wholes[depth][4]) <= 1e-16 * sums[4]
                 and fabs(both[5] - wholes[depth][5]) <= 1e-16 * (fabs(sums[5]) + sums[4]))
        if small or agree(wholes[depth], both, 1e-12) or depth == MAX_DEPTH or not (a < middle < b) or work > 20000:
            for j in range(SUMS):
                sums[j] += both[j]
            depth -= 1
        else:
            lefts[depth], rights[depth] = middle, b
            lefts[depth + 1], rights[depth + 1] = a, middle
            for j in range(SUMS):
                wholes[depth][j], wholes[depth + 1][j] = second[j], first[j]
            depth += 1


cdef inline double mode_of_density(int kind, const Density *p, double m) noexcept nogil:
    """Where l is highest, roughly, or where it bends most."""
    cdef double odds
    if kind == BETA:
        return p.y - p.b
    if kind == BETA_BINOMIAL:
        return cv_log((p.y + 0.5) / (p.b + 0.5))
    if kind == ZERO_MIXTURE:
        odds = p.b - p.a
        return cv_log(odds if odds > 0.5 else 0.5)
    return m


cdef inline void move_anchor(Tile *t, Py_ssize_t i, const Density *p, int kind, double f) noexcept nogil:
    cdef Slopes at
    slopes_of(kind, p, f, &at)
    t.f0[i], t.l[i], t.l1[i], t.l2[i] = f, at.value, at.l1, at.l2
    t.from_mean[i] = f - t.m[i]
    t.pull[i] = t.from_mean[i] / t.v[i]
    t.slope[i] = at.l1 - t.pull[i]


cdef inline double find_top(int kind, const Tile *t, Py_ssize_t i, const Density *p, double peak) noexcept nogil:
    """The highest of points that are the closer to m and to the peak the nearer they are, then by golden section."""
    cdef double m = t.m[i], best = m, at_best = -INFINITY, around = 1.0, f, here, a, b, c, d
    cdef double far = fabs(peak - m) + 1.0
    cdef int k, side
    for k in range(-24, 40):
        for side in range(4):
            d = cv_exp(0.34657359027997264 * k)
            if d > far:
                continue
            f = (m if side < 2 else peak) + (d if side & 1 else -d)
            here = height(kind, t, i, p, f)
            if here > at_best:
                at_best, best, around = here, f, d
    for side in range(2):
        f = peak if side else m
        here = height(kind, t, i, p, f)
        if here > at_best:
            at_best, best, around = here, f, 1e-4
    a, b = best - around, best + around
    for k in range(60):
        c, d = a + 0.381966 * (b - a), a + 0.618034 * (b - a)
        if height(kind, t, i, p, c) >= height(kind, t, i, p, d):
            b = d
        else:
            a = c
    f = 0.5 * (a + b)
    return f if height(kind, t, i, p, f) >= at_best else best


cdef inline void add_side(
    int kind, const Tile *t, Py_ssize_t i, const Density *p, double centre, double end, double *sums,
) noexcept nogil:
    """Add the integrals between a centre and an end, relative to the anchor: panels twice as wide each."""
    cdef Slopes at
    cdef double width, side = 1.0 if end > centre else -1.0, d = 0.0, next, full = fabs(end - centre)
    slopes_of(kind, p, t.f0[i] + centre, &at)
    width = 2.0 / sqrt(1.0 / t.v[i] + fabs(at.l2))
    width = width if width < 2.0 else 2.0
    while d < full:
        next = d + width if d + 1.5 * width < full else full
        if side > 0.0:
            add_panel_by_halves(kind, t, i, centre + d, centre + next, sums)
        else:
            add_panel_by_halves(kind, t, i, centre - next, centre - d, sums)
        d, width = next, 2.0 * width


cdef inline void by_bisection(int kind, Tile *t, Py_ssize_t i) noexcept nogil:
    """The integrals of lane i."""
    cdef Density p
    cdef Sums sums
    cdef double centres[3]
    cdef double peak, reach, low, high, swap, lowest, highest
    cdef int count = 1, j, k
    density(t, i, &p)
    if is_concave(kind):
        if by_doubling(kind, t, i, &p):
            return
        lowest, highest = -sqrt(2.0 * REACH_NATS * t.v[i]), sqrt(2.0 * REACH_NATS * t.v[i])
        centres[0] = 0.0
        low = -find_reach(kind, t, i, &p, height(kind, t, i, &p, t.f0[i]), -1.0)
        high = find_reach(kind, t, i, &p, height(kind, t, i, &p, t.f0[i]), 1.0)
        lowest, highest = low if low > lowest else lowest, high if high < highest else highest
    else:
        peak = mode_of_density(kind, &p, t.m[i])
        move_anchor(t, i, &p, kind, find_top(kind, t, i, &p, peak))
        # beyond both m and the mode of l both fall, the Gaussian by itself far enough
        reach = sqrt(2.0 * (REACH_NATS + 0.5 * t.from_mean[i] * t.from_mean[i] / t.v[i]) * t.v[i])
        lowest = -t.from_mean[i] - reach - 2.0 * sqrt(t.v[i])
        highest = -t.from_mean[i] + reach + 2.0 * sqrt(t.v[i])
        centres[0], centres[1], centres[2] = 0.0, -t.from_mean[i], peak - t.f0[i]
        count = 3
        for j in range(2):
            for k in range(2):
                if centres[k] > centres[k + 1]:
                    swap = centres[k]
                    centres[k], centres[k + 1] = centres[k + 1], swap
    for j in range(SUMS):
        sums[j] = 0.0
    for j in range(count):
        if not lowest <= centres[j] <= highest:
            continue
        low = lowest if j == 0 or centres[j - 1] < lowest else 0.5 * (centres[j - 1] + centres[j])
        high = highest if j == count - 1 or centres[j + 1] > highest else 0.5 * (centres[j] + centres[j + 1])
        add_side(kind, t, i, &p, centres[j], low, sums)
        add_side(kind, t, i, &p, centres[j], high, sums)
    if not (sums[0] > 0.0 and sums[0] < INFINITY):
        sums[0] = NAN
    put_sums(t, i, sums)
