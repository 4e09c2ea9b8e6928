"""The panel rule of sites by quadrature: for cavities so much wider than p that equally spaced nodes would be too many.

The range is cut into panels for Gauss-Legendre rules of 16 nodes, so short that a panel holds at most five standard
deviations of the local Gaussian and that the nearest pole of p is at least 4/3 half-widths from its middle.
"""

from libc.math cimport M_PI, NAN, fabs, sqrt

from cavity._core.lanes cimport template
from cavity._core.log_densities cimport Density, Slopes, log_mean, negative_binomial_slopes, slopes
from cavity._core.quadrature_nodes cimport NODES, gauss_nodes, gauss_weights
from cavity._core.normal cimport cv_standard_normal
from cavity._core.quadrature_steps cimport RANGE_NATS, Node, Tile, density, gaussian_end, node
from cavity._core.simd cimport cv_exp, cv_log_1p
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
    int kind, const Tile *t, Py_ssize_t i, const Density *p, double grow, double top, double x,
) noexcept nogil:
    """How far h + min(|x|, grow) is below its top."""
    cdef Slopes there
    slopes(kind, p, t.f0[i] + x, &there)
    top -= fabs(x) if fabs(x) < grow else grow
    return t.l[i] - there.value + 0.5 * x * (x + 2.0 * t.from_mean[i]) / t.v[i] + top


cdef inline double find_end(int kind, const Tile *t, Py_ssize_t i, const Density *p, double side) noexcept nogil:
    """A distance on one side at which h + min(|x|, grow) is RANGE_NATS to 2 RANGE_NATS nats below its top."""
    cdef double d = sqrt(2.0 * RANGE_NATS / (1.0 / t.v[i] - t.l2[i])), near, middle
    cdef double grow = t.grow_left[i] if side < 0.0 else t.grow_right[i]
    cdef double top = t.top_left[i] if side < 0.0 else t.top_right[i], farthest = gaussian_end(t.v[i], grow, top)
    cdef double peak = grow if grow < t.v[i] else t.v[i]    # from there on it falls
    cdef int _step
    d = d if d > peak else peak
    d = d if d < farthest else farthest
    for _step in range(400):
        if not d < farthest or fall(kind, t, i, p, grow, top, side * d) >= RANGE_NATS:
            break
        d *= 1.5
    for _step in range(400):
        if 0.7 * d <= peak or fall(kind, t, i, p, grow, top, side * 0.7 * d) < RANGE_NATS:
            break
        d *= 0.7
    d = d if d < farthest else farthest
    near = 0.7 * d if 0.7 * d > peak else peak
    for _step in range(60):                                 # a bend far from the mode: there 0.7 d is too coarse
        if fall(kind, t, i, p, grow, top, side * d) <= 2.0 * RANGE_NATS:
            break
        middle = 0.5 * (near + d)
        if fall(kind, t, i, p, grow, top, side * middle) < RANGE_NATS:
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
    slopes(kind, p, f, &at)
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


cdef inline template far_node(int kind, const Tile *t, Py_ssize_t i, double x, Node *out) noexcept nogil:
    """For |x| > 64, where terms linear in x would swamp the rest, or exp(f0) x leave no digits of it."""
    cdef double e = t.power[i], y = t.y[i], pull = t.pull[i], half_precision = t.half_precision[i], u
    cdef double p = t.small[i] if t.side[i] > 0.0 else t.rest[i], q = t.rest[i] if t.side[i] > 0.0 else t.small[i]
    cdef Slopes at
    if kind == POISSON:
        u = -t.l2[i] * (cv_exp(x) - 1.0) if -t.l2[i] > MIN_SCALED_RATE else e * cv_exp(t.f0[i] + x)
        out.h = x * (e * y - pull - half_precision * x) - u
        out.change, out.l2 = -u, -(u - t.l2[i])
    elif kind == NEGATIVE_BINOMIAL and t.small[i] < MIN_SCALED_RATE:
        negative_binomial_slopes(e, t.a[i], t.b[i], y, t.f0[i] + x, &at)
        out.h = (at.value - t.l[i]) - x * (pull + half_precision * x)
        out.change, out.l2 = at.l1 - t.l1[i], at.l2
    else:
        node(kind, t, i, x, out)
        if kind == NEGATIVE_BINOMIAL:
            out.h = x * (e * y - pull - half_precision * x) - e * (y + t.a[i]) * log_mean(p, q, x)


cdef inline template add_panel(int kind, Tile *t, Py_ssize_t i, double middle, double half) noexcept nogil:
    """Add a panel around f0 + middle to the integrals."""
    cdef double x[NODES]
    cdef double g[NODES]
    cdef double change[NODES]
    cdef double l2[NODES]
    cdef double total = 0.0, first = 0.0, second = 0.0, sum1 = 0.0, square = 0.0, bend = 0.0
    cdef Node at
    cdef int j
    for j in range(NODES):
        x[j] = middle + half * gauss_nodes[j]
        node(kind, t, i, x[j], &at)
        g[j], change[j], l2[j] = at.h, at.change, at.l2
    if (kind == POISSON or kind == NEGATIVE_BINOMIAL) and fabs(middle) + half > 64.0:
        for j in range(NODES):
            if fabs(x[j]) > 64.0:
                far_node(kind, t, i, x[j], &at)
                g[j], change[j], l2[j] = at.h, at.change, at.l2
    for j in range(NODES):
        g[j] = half * gauss_weights[j] * cv_exp(g[j])
    for j in range(NODES):
        total += g[j]
        first += g[j] * x[j]
        second += g[j] * x[j] * x[j]
        sum1 += g[j] * change[j]
        square += g[j] * change[j] * change[j]
        bend += g[j] * l2[j]
    t.total[i] += total
    t.first[i] += first
    t.second[i] += second
    t.change[i] += sum1
    t.square[i] += square
    t.bend[i] += bend


cdef inline double away(double left, double right, double shift) noexcept nogil:
    """How far [left, right] + shift is from 0."""
    return left + shift if left + shift > 0.0 else (-(right + shift) if right + shift < 0.0 else 0.0)


cdef inline bint negligible(const Tile *t, Py_ssize_t i, double left, double right) noexcept nogil:
    """Whether Student's t times the cavity is below exp(-RANGE_NATS) of its value at the anchor on all of the panel."""
    cdef double from_y = away(left, right, t.f0[i] - t.y[i]), from_m = away(left, right, t.from_mean[i])
    cdef double top = -0.5 * t.power[i] * (t.a[i] + 1.0) * cv_log_1p(from_y * from_y / t.b[i])
    cdef double far = fabs(left) if fabs(left) > fabs(right) else fabs(right)
    top += cv_log_1p(far * far / t.b[i]) - 0.5 * from_m * from_m / t.v[i]   # its weight in the second moment
    return top < t.l[i] - 0.5 * t.from_mean[i] * t.from_mean[i] / t.v[i] - RANGE_NATS


cdef inline template add_panels(int kind, Tile *t, Py_ssize_t i) noexcept nogil:
    """The integrals of lane i; nan where more than MAX_PANELS panels would be needed."""
    cdef Density p
    cdef Slopes here
    cdef double left, right, steepness
    cdef int panels = 0
    density(t, i, &p)
    if kind != STUDENT_T:
        t.left[i], t.right[i] = -find_end(kind, t, i, &p, -1.0), find_end(kind, t, i, &p, 1.0)
    left = t.left[i]
    while left < t.right[i]:
        panels += 1
        if panels > MAX_PANELS:                            # scales so far apart that no rule resolves them
            t.total[i] = t.l1[i] = t.l2[i] = NAN
            break
        right = panel_width(kind, &p, t.v[i], t.f0[i] + left)
        if kind != STUDENT_T:                               # over a panel h changes by 8 nats where it is straight
            slopes(kind, &p, t.f0[i] + left, &here)
            steepness = fabs(here.l1 - (left + t.from_mean[i]) / t.v[i])
            right = right if right * steepness < MAX_PANEL_STEEPNESS else MAX_PANEL_STEEPNESS / steepness
        right = left + right if left + right < t.right[i] else t.right[i]
        if not right > left:                                # beyond the resolution of float64
            break
        if kind != STUDENT_T or not negligible(t, i, left, right):
            add_panel(kind, t, i, 0.5 * (left + right), 0.5 * (right - left))
        left = right


cdef inline void by_panels(int kind, Tile *t, Py_ssize_t i) noexcept nogil:
    if kind == LOGIT:
        add_panels(LOGIT, t, i)
    elif kind == PROBIT:
        add_panels(PROBIT, t, i)
    elif kind == POISSON:
        add_panels(POISSON, t, i)
    elif kind == NEGATIVE_BINOMIAL:
        add_panels(NEGATIVE_BINOMIAL, t, i)
    elif kind == BINOMIAL:
        add_panels(BINOMIAL, t, i)
    else:
        add_panels(STUDENT_T, t, i)
