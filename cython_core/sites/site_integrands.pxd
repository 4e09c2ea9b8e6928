"""The integrand of sites by quadrature, at a node or at as many as there are lanes.

h(f) - h(f0), l'(f) - l'(f0) and l''(f) at f = f0 + x, where f0 is the anchor of quadrature_steps.pxd. A loop over lanes
is compiled once for each kind, here: whatever needs nodes side by side calls `evaluate_nodes`, for sites of a tile, or
for nodes of one site, whose parameters are then in all lanes (`spread`). A lane does not look at others.
"""

from cavity._core.lanes cimport cv8_set, cv8_store, template
from cavity._core.log_densities cimport Density, Slopes, evaluate_slopes, slopes
from cavity._core.simd cimport CV_LANES, cv_exp, cv_exp_rest, cv_log_1p_known
from cavity._core.site_types cimport (
    BETA, BETA_BINOMIAL, BINOMIAL, LOGISTIC_INTERVAL, LOGIT, NEGATIVE_BINOMIAL, POISSON, PROBIT, STUDENT_T, TRUNCATED,
    TWEEDIE, ZERO_MIXTURE,
)

ctypedef double Lanes[CV_LANES]             # a number of each site

cdef struct Tile:                           # arrays of lanes and nothing else, see `spread`
    # what the integrand is made of: log p, see log_densities.pxd
    Lanes power, y, a, b, c
    # anchor, and l, l', l'' there
    Lanes f0, l, l1, l2
    Lanes pull, half_precision                                           # (f0 - m)/v, 1/(2 v)
    Lanes slope                                                          # h'(f0)
    Lanes small, rest, side                                              # of sigmoid(f0 - b), see Chance
    # and its nodes: left + H (j + 1/2), or the Gaussian's sd times those of rule - 1 where rule > 0
    Lanes left, step, count, rule
    Lanes narrow_step, narrow_weight                                     # that sd, and the log of 1; else 0 and -inf
    # the sites
    Lanes constant                                                       # the part of log p without f
    Lanes m, v                                                           # cavity of scale f + shift
    Lanes scale, unshifted                                               # and its mean without the shift
    # nodes: x = f - f0, or f alone; the integrand there, or l, l', l''
    Lanes node_x, node_f, node_h, node_change, node_l2
    Lanes log_weight                                                     # of a node, -1e308 or less in lanes without
    # 1. anchor
    Lanes low, high, next, moving
    Lanes from_mean                                                      # f0 - m
    # 2. range, relative to the anchor
    Lanes grow_left, grow_right, top_left, top_right                     # see tilt, and its `highest`
    Lanes right
    Lanes unit, is_curved                                                # 3., see find_unit
    # 3. to 5.: integrals of g = exp(h(f) - h(f0)) times 1, x, x^2, l' - l'(f0), its square, l''
    Lanes total, first, second, change, square, bend
    # 6. the results of the site
    Lanes min_change                                                     # if 0, l' and l'' are not needed
    Lanes top                                                            # see below_top
    Lanes log_z, d1, d2, tau, rho

cdef enum:
    INTEGRAND_FIELDS = 21                       # of Tile, the first ones

cdef struct Node:
    double h, change, l2                 # h(f) - h(f0), l'(f) - l'(f0), l''(f)


cdef inline template density(const Tile *t, Py_ssize_t i, Density *out) noexcept nogil:
    out.power, out.y, out.a, out.b, out.c = t.power[i], t.y[i], t.a[i], t.b[i], t.c[i]


cdef inline void spread(const Tile *t, Py_ssize_t i, Tile *out) noexcept nogil:
    """Put what the integrand is made of from lane i into all lanes of `out`, which may be t."""
    cdef int field
    for field in range(INTEGRAND_FIELDS):
        cv8_store(<double *> out + field * CV_LANES, cv8_set((<const double *> t)[field * CV_LANES + i]))


cdef inline void copy_lane(const Tile *t, Py_ssize_t i, Tile *out, Py_ssize_t j, int first_field) noexcept nogil:
    """Copy lane i to lane j of another tile, from a field on."""
    cdef int field
    for field in range(first_field, <int> (sizeof(Tile) // sizeof(Lanes))):
        (<double *> out)[field * CV_LANES + j] = (<const double *> t)[field * CV_LANES + i]


cdef inline template slopes_in_lanes(int kind, Tile *t) noexcept nogil:
    cdef Density p
    cdef Slopes at
    cdef Py_ssize_t i
    for i in range(CV_LANES):
        density(t, i, &p)
        slopes(kind, &p, t.node_f[i], &at)
        t.node_h[i], t.node_change[i], t.node_l2[i] = at.value, at.l1, at.l2


cdef inline template values_in_lanes(int kind, Tile *t) noexcept nogil:
    cdef Density p
    cdef Slopes at
    cdef Py_ssize_t i
    for i in range(CV_LANES):
        density(t, i, &p)
        slopes(kind, &p, t.f0[i] + t.node_x[i], &at)
        t.node_h[i] = (at.value - t.l[i]) - t.node_x[i] * (t.pull[i] + t.half_precision[i] * t.node_x[i])


cdef inline void evaluate_slopes_in_lanes(int kind, Tile *t) noexcept nogil:
    """l, l' and l'' at node_f."""
    if kind == LOGIT:
        slopes_in_lanes(LOGIT, t)
    elif kind == PROBIT:
        slopes_in_lanes(PROBIT, t)
    elif kind == POISSON:
        slopes_in_lanes(POISSON, t)
    elif kind == NEGATIVE_BINOMIAL:
        slopes_in_lanes(NEGATIVE_BINOMIAL, t)
    elif kind == BINOMIAL:
        slopes_in_lanes(BINOMIAL, t)
    elif kind == STUDENT_T:
        slopes_in_lanes(STUDENT_T, t)
    elif kind == TRUNCATED:
        slopes_in_lanes(TRUNCATED, t)
    elif kind == ZERO_MIXTURE:
        slopes_in_lanes(ZERO_MIXTURE, t)
    elif kind == LOGISTIC_INTERVAL:
        slopes_in_lanes(LOGISTIC_INTERVAL, t)
    elif kind == TWEEDIE:
        slopes_in_lanes(TWEEDIE, t)
    elif kind == BETA:
        slopes_in_lanes(BETA, t)
    else:
        slopes_in_lanes(BETA_BINOMIAL, t)


cdef inline template evaluate_slopes_of(int kind, Tile *t, int lanes) noexcept nogil:
    """The same in the first lane or in all; a site alone takes no more time than it needs."""
    cdef Density p
    cdef Slopes at
    if lanes == 1:
        density(t, 0, &p)
        evaluate_slopes(kind, &p, t.node_f[0], &at)
        t.node_h[0], t.node_change[0], t.node_l2[0] = at.value, at.l1, at.l2
    else:
        evaluate_slopes_in_lanes(kind, t)


cdef inline template poisson_node(const Tile *t, Py_ssize_t i, double x, Node *out) noexcept nogil:
    """The terms linear in x nearly cancel: their sum is the slope."""
    cdef double rate = -t.l2[i], u = rate * cv_exp_rest(x)
    out.h = x * (t.slope[i] - t.half_precision[i] * x) - u
    out.change = -(u + rate * x)
    out.l2 = -(u + rate * x + rate)


cdef inline template negative_binomial_node(const Tile *t, Py_ssize_t i, double x, Node *out) noexcept nogil:
    """In p and -p', or their complements, whichever are small: log(1 + p (exp(x) - 1)) is what log(1 - p) falls by."""
    cdef double e = t.power[i], y = t.y[i], r = t.a[i], n = e * (y + r), p = t.small[i], q = t.rest[i]
    cdef bint low = t.side[i] > 0.0
    cdef double of_q = e * (y if low else -r), of_p = e * (r if low else -y)
    cdef double to_there = t.side[i] * x
    cdef double near = to_there if to_there < 700.0 else 700.0          # exp may overflow
    cdef double rise = p * (cv_exp_rest(near) + near), inv = 1.0 / (1.0 + rise)
    cdef double log_one = cv_log_1p_known(rise, inv)
    out.h = x * (t.slope[i] - t.half_precision[i] * x) - n * ((log_one + (to_there - near)) - p * to_there)
    out.change = (of_q * (q * inv) - of_p * ((rise + p) * inv)) - t.l1[i]
    out.l2 = -n * (q * inv) * ((rise + p) * inv)


cdef inline template subtract_anchor(Tile *t, Py_ssize_t i) noexcept nogil:
    """The integrand from l, l' and l''."""
    t.node_h[i] = (t.node_h[i] - t.l[i]) - t.node_x[i] * (t.pull[i] + t.half_precision[i] * t.node_x[i])
    t.node_change[i] = t.node_change[i] - t.l1[i]


cdef inline template nodes_in_lanes(int kind, Tile *t, int lanes) noexcept nogil:
    cdef Node at
    cdef Py_ssize_t i
    if kind == POISSON or kind == NEGATIVE_BINOMIAL:
        for i in range(lanes):
            if kind == POISSON:
                poisson_node(t, i, t.node_x[i], &at)
            else:
                negative_binomial_node(t, i, t.node_x[i], &at)
            t.node_h[i], t.node_change[i], t.node_l2[i] = at.h, at.change, at.l2
    else:
        for i in range(lanes):
            t.node_f[i] = t.f0[i] + t.node_x[i]
        evaluate_slopes_of(kind, t, lanes)
        for i in range(lanes):
            subtract_anchor(t, i)


cdef inline void evaluate_nodes(int kind, Tile *t, int lanes) noexcept nogil:
    """The integrand at node_x, in the first lane or in all."""
    if lanes == 1:
        nodes_in_lanes(kind, t, 1)
    elif kind == POISSON:
        nodes_in_lanes(POISSON, t, CV_LANES)
    elif kind == NEGATIVE_BINOMIAL:
        nodes_in_lanes(NEGATIVE_BINOMIAL, t, CV_LANES)
    else:
        nodes_in_lanes(kind, t, CV_LANES)


cdef inline void evaluate_values(int kind, Tile *t) noexcept nogil:
    """h alone at node_x in all lanes, where that saves much: all else is as it was."""
    if kind == BETA:
        values_in_lanes(BETA, t)
    elif kind == BETA_BINOMIAL:
        values_in_lanes(BETA_BINOMIAL, t)
    else:
        evaluate_nodes(kind, t, CV_LANES)
