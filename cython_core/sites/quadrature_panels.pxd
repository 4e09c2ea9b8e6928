"""The panel rule of sites by quadrature: for cavities so much wider than p that equally spaced nodes would be too many.

The range is cut into panels for Gauss-Legendre rules of 16 nodes, so short that a panel holds at most five standard
deviations of the local Gaussian and that the nearest pole of p is at least 4/3 half-widths from its middle.
"""

from libc.math cimport M_PI, NAN, fabs, frexp, ldexp, sqrt

from cavity._core.log_densities cimport Density, Slopes, evaluate_slopes, log_mean
from cavity._core.quadrature_nodes cimport NODES, gauss_nodes, gauss_weights
from cavity._core.normal cimport cv_standard_normal
from cavity._core.quadrature_steps cimport RANGE_NATS, gaussian_end
from cavity._core.simd cimport CV_LANES, cv_exp, cv_log_1p
from cavity._core.site_integrands cimport Node, Tile, density, evaluate_nodes, negative_binomial_node
from cavity._core.site_types cimport BINOMIAL, LOGIT, NEGATIVE_BINOMIAL, POISSON, PROBIT, STUDENT_T

cdef extern from *:
    """
    #define CV_MAX_PANEL_STEEPNESS 8.0
    #define CV_MIN_SCALED_RATE 1e-280
    """
    const double MAX_PANEL_STEEPNESS "CV_MAX_PANEL_STEEPNESS"
    const double MIN_SCALED_RATE "CV_MIN_SCALED_RATE"  # smaller exp(f0) or probabilities are not scaled to other f

cdef enum:
    MAX_PANELS = 20000                  # a dozen is typical


# ------------------------------------------------------------------------------------------------ range


cdef inline double fall(
    int kind, const Tile *t, const Density *p, double grow, double top, double x,
) noexcept nogil:
    """How far h + min(|x|, grow) is below its top."""
    cdef Slopes there
    evaluate_slopes(kind, p, t.f0[0] + x, &there)
    top -= fabs(x) if fabs(x) < grow else grow
    return t.l[0] - there.value + 0.5 * x * (x + 2.0 * t.from_mean[0]) / t.v[0] + top


cdef inline double find_end(int kind, const Tile *t, const Density *p, double side) noexcept nogil:
    """A distance on one side at which h + min(|x|, grow) is RANGE_NATS to 2 RANGE_NATS nats below its top."""
    cdef double d = sqrt(2.0 * RANGE_NATS / (1.0 / t.v[0] - t.l2[0])), near, middle
    cdef double grow = t.grow_left[0] if side < 0.0 else t.grow_right[0]
    cdef double top = t.top_left[0] if side < 0.0 else t.top_right[0], farthest = gaussian_end(t.v[0], grow, top)
    cdef double peak = grow if grow < t.v[0] else t.v[0]    # from there on it falls
    cdef int _step
    d = d if d > peak else peak
    d = d if d < farthest else farthest
    for _step in range(400):
        if not d < farthest or fall(kind, t, p, grow, top, side * d) >= RANGE_NATS:
            break
        d *= 1.5
    for _step in range(400):
        if 0.7 * d <= peak or fall(kind, t, p, grow, top, side * 0.7 * d) < RANGE_NATS:
            break
        d *= 0.7
    d = d if d < farthest else farthest
    near = 0.7 * d if 0.7 * d > peak else peak
    for _step in range(60):                                 # a bend far from the mode: there 0.7 d is too coarse
        if fall(kind, t, p, grow, top, side * d) <= 2.0 * RANGE_NATS:
            break
        middle = 0.5 * (near + d)
        if fall(kind, t, p, grow, top, side * middle) < RANGE_NATS:
            near = middle
        else:
            d = middle
    return d


# ------------------------------------------------------------------------------------------------ panels


cdef inline double pole_distance(int kind, const Density *p) noexcept nogil:
    if kind == PROBIT or kind == BINOMIAL:
        return 2.8 * p.b if kind == PROBIT else 2.8
    if kind == STUDENT_T:
        return sqrt(p.b)
    # exp(-exp(f)) has no pole, but grows without bound from Im f = pi/2 on, and so do high powers of the sigmoid
    return M_PI if kind == LOGIT else 0.5 * M_PI


cdef inline double pole_centre(int kind, const Density *p) noexcept nogil:
    if kind == STUDENT_T:
        return p.y
    return p.b if kind == NEGATIVE_BINOMIAL else 0.0


cdef inline double curvature(int kind, const Density *p, double f) noexcept nogil:
    """-l''(f)."""
    cdef Slopes at
    evaluate_slopes(kind, p, f, &at)
    return -at.l2


cdef inline double largest_curvature(int kind, const Density *p, double a, double b) noexcept nogil:
    """A bound of -l'' over [a, b]."""
    cdef double centre = pole_centre(kind, p), at_a, at_b
    if kind == POISSON:
        return p.power * cv_exp(b)
    if kind == PROBIT:
        return curvature(kind, p, a)
    if kind == BINOMIAL:
        at_a, at_b = cv_standard_normal(a).curvature, cv_standard_normal(-b).curvature
        return p.power * (p.y * at_a + p.a * at_b)
    if a <= centre <= b:
        return curvature(kind, p, centre)
    at_a, at_b = fabs(curvature(kind, p, a)), fabs(curvature(kind, p, b))
    return at_a if at_a > at_b else at_b


cdef inline double panel_width(int kind, const Density *p, double v, double f) noexcept nogil:
    """How far a panel that starts at f may reach."""
    cdef double pole = pole_distance(kind, p), d = f - pole_centre(kind, p), width, limit
    cdef int _step
    if d >= 0.0:
        width = 3.0 * (d if d > 0.5 * pole else 0.5 * pole)
    else:
        width = 1.5 * pole if d > -2.0 * pole else -0.75 * d
    limit = 5.0 * sqrt(v)
    width = width if width < limit else limit
    for _step in range(40):
        limit = 4.5 / sqrt(1.0 / v + largest_curvature(kind, p, f, f + width))
        if width <= limit:
            break
        width = limit if limit > 0.5 * width else 0.5 * width
    return width


cdef inline void far_node(int kind, const Tile *t, double x, Node *out) noexcept nogil:
    """For |x| > 64, where terms linear in x would swamp the rest, or exp(f0) x leave no digits of it."""
    cdef double e = t.power[0], y = t.y[0], pull = t.pull[0], half_precision = t.half_precision[0], u
    cdef double p = t.small[0] if t.side[0] > 0.0 else t.rest[0], q = t.rest[0] if t.side[0] > 0.0 else t.small[0]
    cdef Density density_of
    cdef Slopes at
    if kind == POISSON:
        u = -t.l2[0] * (cv_exp(x) - 1.0) if -t.l2[0] > MIN_SCALED_RATE else e * cv_exp(t.f0[0] + x)
        out.h = x * (e * y - pull - half_precision * x) - u
        out.change, out.l2 = -u, -(u - t.l2[0])
    elif kind == NEGATIVE_BINOMIAL and t.small[0] < MIN_SCALED_RATE:
        density(t, 0, &density_of)
        evaluate_slopes(kind, &density_of, t.f0[0] + x, &at)
        out.h = (at.value - t.l[0]) - x * (pull + half_precision * x)
        out.change, out.l2 = at.l1 - t.l1[0], at.l2
    else:
        negative_binomial_node(t, 0, x, out)
        out.h = x * (e * y - pull - half_precision * x) - e * (y + t.a[0]) * log_mean(p, q, x)


cdef inline void add_panel(int kind, Tile *t, double middle, double half) noexcept nogil:
    """Add a panel around f0 + middle to the integrals."""
    cdef double x[NODES]
    cdef double g[NODES]
    cdef double change[NODES]
    cdef double l2[NODES]
    cdef double total = 0.0, first = 0.0, second = 0.0, sum1 = 0.0, square = 0.0, bend = 0.0
    cdef Node at
    cdef int j, part, start
    for part in range(NODES // CV_LANES):
        start = part * CV_LANES
        for j in range(CV_LANES):
            x[start + j] = t.node_x[j] = middle + half * gauss_nodes[start + j]
        evaluate_nodes(kind, t, CV_LANES)
        for j in range(CV_LANES):
            g[start + j], change[start + j], l2[start + j] = t.node_h[j], t.node_change[j], t.node_l2[j]
    if (kind == POISSON or kind == NEGATIVE_BINOMIAL) and fabs(middle) + half > 64.0:
        for j in range(NODES):
            if fabs(x[j]) > 64.0:
                far_node(kind, t, x[j], &at)
                g[j], change[j], l2[j] = at.h, at.change, at.l2
    for j in range(NODES):
        g[j] = half / t.step[0] * gauss_weights[j] * cv_exp(g[j])
    for j in range(NODES):
        total += g[j]
        first += g[j] * x[j]
        second += g[j] * x[j] * x[j]
        sum1 += g[j] * change[j]
        square += g[j] * change[j] * change[j]
        bend += g[j] * l2[j]
    t.total[0] += total
    t.first[0] += first
    t.second[0] += second
    t.change[0] += sum1
    t.square[0] += square
    t.bend[0] += bend


cdef inline double away(double left, double right, double shift) noexcept nogil:
    """How far [left, right] + shift is from 0."""
    return left + shift if left + shift > 0.0 else (-(right + shift) if right + shift < 0.0 else 0.0)


cdef inline bint negligible(const Tile *t, double left, double right) noexcept nogil:
    """Whether Student's t times the cavity is below exp(-RANGE_NATS) of its value at the anchor on all of the panel."""
    cdef double from_y = away(left, right, t.f0[0] - t.y[0]), from_m = away(left, right, t.from_mean[0])
    cdef double top = -0.5 * t.power[0] * (t.a[0] + 1.0) * cv_log_1p(from_y * from_y / t.b[0])
    cdef double far = fabs(left) if fabs(left) > fabs(right) else fabs(right)
    top += cv_log_1p(far * far / t.b[0]) - 0.5 * from_m * from_m / t.v[0]   # its weight in the second moment
    return top < t.l[0] - 0.5 * t.from_mean[0] * t.from_mean[0] / t.v[0] - RANGE_NATS


cdef inline void add_panels(int kind, Tile *t) noexcept nogil:
    """The integrals of the site in all lanes; nan where more than MAX_PANELS panels would be needed."""
    cdef Density p
    cdef Slopes here
    cdef double left, right, steepness
    cdef int panels = 0, exponent
    frexp(sqrt(t.v[0]), &exponent)
    t.step[0] = ldexp(1.0, exponent)                        # else g x^2 underflows in small units of f
    density(t, 0, &p)
    if kind != STUDENT_T:
        t.left[0], t.right[0] = -find_end(kind, t, &p, -1.0), find_end(kind, t, &p, 1.0)
    left = t.left[0]
    while left < t.right[0]:
        panels += 1
        if panels > MAX_PANELS:                            # scales so far apart that no rule resolves them
            t.total[0] = t.l1[0] = t.l2[0] = NAN
            break
        right = panel_width(kind, &p, t.v[0], t.f0[0] + left)
        if kind != STUDENT_T:                               # over a panel h changes by 8 nats where it is straight
            evaluate_slopes(kind, &p, t.f0[0] + left, &here)
            steepness = fabs(here.l1 - (left + t.from_mean[0]) / t.v[0])
            right = right if right * steepness < MAX_PANEL_STEEPNESS else MAX_PANEL_STEEPNESS / steepness
        right = left + right if left + right < t.right[0] else t.right[0]
        if not right > left:                                # beyond the resolution of float64
            break
        if kind != STUDENT_T or not negligible(t, left, right):
            add_panel(kind, t, 0.5 * (left + right), 0.5 * (right - left))
        left = right
