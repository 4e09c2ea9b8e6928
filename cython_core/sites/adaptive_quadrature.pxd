"""The rule of cavities that are too wide for that of response_steps.pxd: its error is what refinement changes.

With h = l + log N(f; m, v), as in quadrature_steps.pxd:

1. Range: where h is within REACH_NATS of its top. It falls away from the mode for concave l; for others, which have
   one mode each or none, beyond the modes of h that are reached uphill from there and from m.
2. Equally spaced nodes. Each doubling of their number squares the error of the trapezoidal rule of an analytic
   integrand, so that where it changed the sums by less than 1e-8 what is left is rounding.
3. Where that takes more than MAX_NODES: panels of Gauss-Legendre rules, at first the wider the farther from these
   places, which are halved until halves agree with the whole.
"""

from libc.math cimport INFINITY, NAN, fabs, sqrt

from cavity._core.log_densities cimport Density, Slopes, evaluate_slopes
from cavity._core.quadrature_nodes cimport NODES, gauss_nodes, gauss_weights
from cavity._core.quadrature_steps cimport end_anchor, is_concave
from cavity._core.simd cimport CV_LANES, cv_exp, cv_log
from cavity._core.site_integrands cimport Tile, density, evaluate_nodes, spread
from cavity._core.site_types cimport BETA, BETA_BINOMIAL

cdef extern from *:
    """
    #define CV_REACH_NATS 46.0
    #define CV_ROUNDING 4e-15
    #define CV_MAX_UNRESOLVED_SHARE 1e-4
    #define CV_MIN_BEND 0.05
    """
    const double ROUNDING "CV_ROUNDING"
    const double MAX_UNRESOLVED_SHARE "CV_MAX_UNRESOLVED_SHARE"    # changed by halves that are a thousand times better
    const double MIN_BEND "CV_MIN_BEND"             # of a step uphill, in slopes: where l is a line, steps are of 20
    const double REACH_NATS "CV_REACH_NATS"         # so far that moments of order 2 are within rounding

cdef enum:
    MAX_NODES = 1024
    MAX_DEPTH = 48                       # of halvings
    MAX_HALVINGS = 500                   # of one panel: a dozen is typical
    MAX_CLIMB = 60
    SUMS = 6                             # total, first, second, change, square, bend

ctypedef double Sums[6]


cdef inline void add_nodes(int kind, Tile *t, const double *x, const double *weights, double *sums) noexcept nogil:
    """Add 16 nodes x from the anchor, of weights that are times the density over that at the anchor."""
    cdef double g[CV_LANES]
    cdef int j, part, start
    for part in range(NODES // CV_LANES):
        start = part * CV_LANES
        for j in range(CV_LANES):
            t.node_x[j] = x[start + j]
        evaluate_nodes(kind, t, CV_LANES)
        for j in range(CV_LANES):
            g[j] = weights[start + j] * cv_exp(t.node_h[j])
        for j in range(CV_LANES):
            if g[j] > 0.0:                                  # l' and l'' may be infinite beyond
                sums[0] += g[j]
                sums[1] += g[j] * t.node_x[j]
                sums[2] += g[j] * t.node_x[j] * t.node_x[j]
                sums[3] += g[j] * t.node_change[j]
                sums[4] += g[j] * t.node_change[j] * t.node_change[j]
                sums[5] += g[j] * t.node_l2[j]


cdef inline double evaluate_height(int kind, const Tile *t, const Density *p, double f) noexcept nogil:
    """l - (f - m)^2/(2 v)."""
    cdef Slopes at
    evaluate_slopes(kind, p, f, &at)
    return at.value - 0.5 * (f - t.m[0]) * ((f - t.m[0]) / t.v[0])


cdef inline bint agree(
    int kind, const Tile *t, const double *a, const double *b, double share,
) noexcept nogil:
    """Whether sums differ by less than a share of them, signs left out, or by rounding errors of l'."""
    cdef double noise = ROUNDING * fabs(t.l1[0]), change = share * sqrt(b[0] * b[4]), bend = share * (fabs(b[5]) + b[4])
    cdef double square = share * b[4]
    change = change if change > noise * b[0] else noise * b[0]
    square = square if square > noise * noise * b[0] else noise * noise * b[0]
    if kind == BETA or kind == BETA_BINOMIAL:               # whose l'' has a part in l'
        bend = bend if bend > noise * b[0] else noise * b[0]
    return (fabs(a[0] - b[0]) <= share * b[0] and fabs(a[1] - b[1]) <= share * sqrt(b[0] * b[2])
            and fabs(a[2] - b[2]) <= share * b[2] and fabs(a[3] - b[3]) <= change
            and fabs(a[4] - b[4]) <= square and fabs(a[5] - b[5]) <= bend)


cdef inline void put_sums(Tile *t, const double *sums) noexcept nogil:
    t.total[0], t.first[0], t.second[0] = sums[0], sums[1], sums[2]
    t.change[0], t.square[0], t.bend[0] = sums[3], sums[4], sums[5]
    t.step[0] = 1.0


# ------------------------------------------------------------------------------------------------ 1. range


cdef inline double estimate_mode(int kind, const Density *p) noexcept nogil:
    """Where l that is not concave is highest, roughly, or bends most."""
    cdef double odds = p.b - p.a
    if kind == BETA:
        return p.y - p.b
    if kind == BETA_BINOMIAL:
        return cv_log((p.y + 0.5) / (p.b + 0.5))
    return cv_log(odds if odds > 0.5 else 0.5)


cdef inline void move_anchor(Tile *t, const Density *p, int kind, double f) noexcept nogil:
    cdef Slopes at
    evaluate_slopes(kind, p, f, &at)
    t.f0[0], t.l[0], t.l1[0], t.l2[0] = f, at.value, at.l1, at.l2
    end_anchor(kind, t, 0)
    spread(t, 0, t)


cdef inline double climb(
    int kind, const Density *p, double m, double precision, double f, double *top,
) noexcept nogil:
    """A mode of l - precision (f - m)^2/2, roughly, and the value there: steps of Newton, uphill where it bends upward
    too, halved until it does not fall.
    """
    cdef Slopes at
    cdef double slope, step, next, height
    cdef int _step, _halving
    evaluate_slopes(kind, p, f, &at)
    top[0] = at.value - 0.5 * (f - m) * ((f - m) * precision)
    for _step in range(MAX_CLIMB):
        slope = at.l1 - (f - m) * precision
        step = slope / (precision + fabs(at.l2) + MIN_BEND * fabs(slope))
        if slope * step < 1e-2:
            return f + step
        for _halving in range(MAX_CLIMB):                   # l like -|f| far away sends the step as far beyond
            next = f + step
            evaluate_slopes(kind, p, next, &at)
            height = at.value - 0.5 * (next - m) * ((next - m) * precision)
            if height >= top[0]:
                break
            step *= 0.5
        f, top[0] = next, height
    return f


cdef inline double find_reach(
    int kind, const Tile *t, const Density *p, double top, double side,
) noexcept nogil:
    """A distance from the anchor at which h is REACH_NATS to 1.6 REACH_NATS, or so, below its value there."""
    cdef double farthest = sqrt(2.0 * REACH_NATS * t.v[0]), d = sqrt(2.0 * REACH_NATS / (1.0 / t.v[0] - t.l2[0]))
    cdef int _step
    d = d if d < farthest else farthest
    for _step in range(400):
        if d >= farthest or top - evaluate_height(kind, t, p, t.f0[0] + side * d) >= REACH_NATS:
            break
        d *= 1.25
    for _step in range(400):
        if top - evaluate_height(kind, t, p, t.f0[0] + side * 0.8 * d) < REACH_NATS:
            break
        d *= 0.8
    return d


cdef inline double bisect_end(
    int kind, const Tile *t, const Density *p, double top, double near, double far,
) noexcept nogil:
    """Where h is REACH_NATS below its top: between a far point and one from which on it falls."""
    cdef double middle, start = near
    cdef int _step
    if top - evaluate_height(kind, t, p, t.f0[0] + near) >= REACH_NATS:
        return near
    for _step in range(MAX_CLIMB):
        if _step >= 6 and near != start:                    # a sixty-fourth of the way, or less where ends are far
            break
        middle = 0.5 * (near + far)
        if top - evaluate_height(kind, t, p, t.f0[0] + middle) >= REACH_NATS:
            far = middle
        else:
            near = middle
    return far


# ------------------------------------------------------------------------------------------------ 2. equal steps


cdef inline bint integrate_by_doubling(int kind, Tile *t, double left, double right) noexcept nogil:
    """Whether equal steps reach the accuracy."""
    cdef double span = right - left, start = 0.0, step
    cdef double x[NODES]
    cdef double weights[NODES]
    cdef Sums old, sums
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
            add_nodes(kind, t, x, weights, sums)
            k += NODES
        if start > 0.0:
            count *= 2
            step *= 0.5
            if agree(kind, t, old, sums, 1e-8):
                for j in range(SUMS):
                    sums[j] *= step
                put_sums(t, sums)
                return True
            if count >= MAX_NODES:
                return False
        start = 0.5


# ------------------------------------------------------------------------------------------------ 3. panels


cdef inline void panel_sums(
    int kind, Tile *t, double left, double right, double *sums,
) noexcept nogil:
    cdef double x[NODES]
    cdef double weights[NODES]
    cdef double middle = 0.5 * (left + right), half = 0.5 * fabs(right - left)
    cdef int j
    for j in range(SUMS):
        sums[j] = 0.0
    for j in range(NODES):
        x[j], weights[j] = middle + half * gauss_nodes[j], half * gauss_weights[j]
    add_nodes(kind, t, x, weights, sums)


cdef inline double find_panel_noise(const Tile *t, double x) noexcept nogil:
    """The rounding error of h at a distance from the anchor, where l has fallen by no more than the Gaussian rises."""
    return 4e-16 * (fabs(t.l[0]) + fabs(x * t.pull[0]) + x * x * t.half_precision[0])


cdef inline void add_panel_by_halves(
    int kind, Tile *t, double near, double far, double *sums, double *unresolved,
) noexcept nogil:
    """Add a panel to the sums, halved until its halves agree with it, or it is negligible beside them.

    The half nearer to where sums began goes first: the farther one is the less by itself. Where halving ends
    before that, what is left of the total and the second moment is added to `unresolved`.
    """
    cdef double nears[MAX_DEPTH + 2]
    cdef double fars[MAX_DEPTH + 2]
    cdef Sums wholes[MAX_DEPTH + 2]
    cdef Sums both, first, second
    cdef double a, b, middle, share = find_panel_noise(t, near) + find_panel_noise(t, far)
    cdef int depth = 0, j, work = 0
    cdef bint small, exhausted
    share = share if share > 1e-12 else 1e-12
    nears[0], fars[0] = near, far
    panel_sums(kind, t, near, far, wholes[0])
    while depth >= 0:
        work += 1
        a, b = nears[depth], fars[depth]
        middle = 0.5 * (a + b)
        panel_sums(kind, t, a, middle, first)
        panel_sums(kind, t, middle, b, second)
        for j in range(SUMS):
            both[j] = first[j] + second[j]
        # what is smaller than the rounding errors of all sums so far need not agree with itself, nor what moves the
        # cavity by less than 1e-16 of an sd
        small = (fabs(both[0] - wholes[depth][0]) <= 1e-16 * sums[0]
                 and fabs(both[2] - wholes[depth][2]) <= 1e-16 * sums[2]
                 and fabs(both[4] - wholes[depth][4]) <= 1e-16 * sums[4] + 1e-32 * sums[0] / t.v[0]
                 and fabs(both[5] - wholes[depth][5]) <= 1e-16 * (fabs(sums[5]) + sums[4]) + 1e-24 * sums[0] / t.v[0])
        small = small or agree(kind, t, wholes[depth], both, share)
        exhausted = depth == MAX_DEPTH or middle == a or middle == b or work > MAX_HALVINGS
        if exhausted and not small:
            unresolved[0] += fabs(both[0] - wholes[depth][0])
            unresolved[1] += fabs(both[2] - wholes[depth][2])
        if small or exhausted:
            for j in range(SUMS):
                sums[j] += both[j]
            depth -= 1
        else:
            nears[depth], fars[depth] = middle, b
            nears[depth + 1], fars[depth + 1] = a, middle
            for j in range(SUMS):
                wholes[depth][j], wholes[depth + 1][j] = second[j], first[j]
            depth += 1


cdef inline void add_side(
    int kind, Tile *t, const Density *p, double centre, double end, double *sums,
    double *unresolved,
) noexcept nogil:
    """Add the integrals between a centre and an end, relative to the anchor: panels twice as wide each."""
    cdef Slopes at
    cdef double width, side = 1.0 if end > centre else -1.0, d = 0.0, next, full = fabs(end - centre)
    evaluate_slopes(kind, p, t.f0[0] + centre, &at)
    width = 2.0 / sqrt(1.0 / t.v[0] + fabs(at.l2))
    width = width if width < 2.0 else 2.0
    while d < full:
        next = d + width if d + 1.5 * width < full else full
        add_panel_by_halves(kind, t, centre + side * d, centre + side * next, sums, unresolved)
        d, width = next, 2.0 * width


cdef inline void integrate_adaptively(int kind, Tile *t) noexcept nogil:
    """The integrals of the site in all lanes; nan where they are not finite, or panels are not resolved."""
    cdef Density p
    cdef Sums sums
    cdef double centres[3]
    cdef double unresolved[2]
    cdef double ends[2]
    cdef double tops[2]
    cdef double peak, rise, reach, low, high, swap, lowest, highest, top
    cdef int count = 1, j, k, _pass
    density(t, 0, &p)
    centres[0] = 0.0
    if is_concave(kind):
        top = evaluate_height(kind, t, &p, t.f0[0])
        lowest, highest = -find_reach(kind, t, &p, top, -1.0), find_reach(kind, t, &p, top, 1.0)
    else:
        peak = estimate_mode(kind, &p)
        ends[0] = climb(kind, &p, t.m[0], 1.0 / t.v[0], t.m[0], &tops[0])
        ends[1] = climb(kind, &p, t.m[0], 1.0 / t.v[0], peak, &tops[1])
        j = 0 if tops[0] > tops[1] else 1
        move_anchor(t, &p, kind, ends[j])
        top = evaluate_height(kind, t, &p, t.f0[0])
        if tops[1 - j] < top - REACH_NATS:                  # negligible beside the other mode
            ends[1 - j] = ends[j]
        # beyond these modes h falls, the Gaussian by itself far enough to outweigh that l is higher at its own mode
        climb(kind, &p, 0.0, 0.0, peak, &tops[0])
        rise = tops[0] - t.l[0] + 0.5 * t.from_mean[0] * t.from_mean[0] / t.v[0]
        reach = sqrt(2.0 * (REACH_NATS + (rise if rise > 0.0 else 0.0)) * t.v[0]) + 2.0 * sqrt(t.v[0])
        low, high = ends[0] if ends[0] < ends[1] else ends[1], ends[0] if ends[0] > ends[1] else ends[1]
        low, high = low - t.f0[0], high - t.f0[0]
        low, high = low if low < 0.0 else 0.0, high if high > 0.0 else 0.0
        lowest, highest = -t.from_mean[0] - reach, -t.from_mean[0] + reach
        lowest = bisect_end(kind, t, &p, top, low if low > lowest else lowest, lowest)
        highest = bisect_end(kind, t, &p, top, high if high < highest else highest, highest)
        centres[1], centres[2] = -t.from_mean[0], peak - t.f0[0]
        count = 3
        for _pass in range(2):
            for k in range(2):
                if centres[k] > centres[k + 1]:
                    swap = centres[k]
                    centres[k], centres[k + 1] = centres[k + 1], swap
    if integrate_by_doubling(kind, t, lowest, highest):
        return
    for j in range(SUMS):
        sums[j] = 0.0
    unresolved[0] = unresolved[1] = 0.0
    for _pass in range(2):                                  # from the anchor first, beside which others may be little
        for j in range(count):
            if not lowest <= centres[j] <= highest or (centres[j] == 0.0) == (_pass == 1):
                continue
            low = lowest if j == 0 or centres[j - 1] < lowest else 0.5 * (centres[j - 1] + centres[j])
            high = highest if j == count - 1 or centres[j + 1] > highest else 0.5 * (centres[j] + centres[j + 1])
            add_side(kind, t, &p, centres[j], low, sums, unresolved)
            add_side(kind, t, &p, centres[j], high, sums, unresolved)
    put_sums(t, sums)
    # sites of wide cavities are made of moments of f
    if not (sums[0] < INFINITY and unresolved[0] <= MAX_UNRESOLVED_SHARE * sums[0]
            and unresolved[1] <= MAX_UNRESOLVED_SHARE * sums[2]):
        t.total[0] = t.l1[0] = t.l2[0] = NAN
