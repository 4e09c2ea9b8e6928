"""The steps of a site by quadrature: moments of a Gaussian cavity N(f; m, v) times exp(l), l = e log p(y|f).

1. Anchor: f0 near the mode of h = l + log N. All is measured from there, f = f0 + x, as h(f) - h(f0) keeps its digits
   where both terms are large.
2. Range: where h has fallen by RANGE_NATS nats. Where l' and l'' are small, and grow like exp(|x|) on one side, they
   have their mass up to a cavity's variance beyond that of g: where h + |x| is RANGE_NATS below its top, as far as they
   grow.
3. Narrow rule, where the Gaussian at the anchor is so narrow beside p that what is left of exp(h) is nearly 1:
   Gauss-Hermite with as few nodes as its width and its skewness allow. What is left is exp(R), where derivatives of l
   over l'' are at most 1 in units of L, see `find_unit`. With s the sd of that Gaussian and k = -l'' s^2 the first
   terms of R are k (s/L) x^3/6 and k (s/L)^2 x^4/24. HERMITE_BOUNDS are the largest s/L and k s/L at which log Z, and
   d1 and d2 relative to what p adds to them, are right to 1e-11, as measured for rates and shares of all sizes. It
   takes the place of steps 2, 4 and 5.
4. Smooth rule: equally spaced nodes. With spacing H the trapezoidal rule for a function analytic in |Im f| <= d has a
   relative error of at most

       2 exp(B(d) - 2 pi d/H),     exp(B(d)) = the integral of exp(Re h(f + i d)) over that of exp(h(f))        (1)

   (Trefethen and Weideman, The exponentially convergent trapezoidal rule, SIAM Review 56, 2014, theorem 5.1). The
   cavity brings d^2/(2 v) to B, log p adds `growth`. Of a few d the one with the largest H is taken at which this
   is 2 exp(-ACCURACY_NATS).
5. Panel rule, where that takes more than MAX_NODES: see quadrature_panels.pxd.
6. Finish: E l', E l'', Var l' give d1 = E l' and d2 = E l'' + Var l', exact in narrow cavities, where the moment forms
   d1 = (E f - m)/v, d2 = (Var f/v - 1)/v cancel; in wide ones it is the other way round.

Each function is one step for lane i of a tile of sites side by side, without branches: a loop over lanes vectorises.
Templates that have a kind are inlined for it; all else, the integrand above all (site_integrands.pxd), is compiled
once. A lane does not look at others, so a site has the same bits in any company.
"""

from libc.math cimport INFINITY, M_PI, ceil, fabs, sqrt

from cavity._core.constants cimport HALF_LOG_2PI
from cavity._core.lanes cimport cv8, cv8_add, cv8_load, cv8_max, cv8_mul, cv8_set, cv8_store, cv8_sub, template
from cavity._core.log_densities cimport Chance, Density, Slopes, below_top, chance, slopes
from cavity._core.quadrature_nodes cimport HERMITE_RULES
from cavity._core.simd cimport CV_LANES, cv_exp, cv_log, cv_log_1p
from cavity._core.site_integrands cimport Tile, density
from cavity._core.site_types cimport (
    BETA, BETA_BINOMIAL, BINOMIAL, LOGISTIC_INTERVAL, LOGIT, NEGATIVE_BINOMIAL, POISSON, PROBIT, STUDENT_T, TRUNCATED,
    TWEEDIE, ZERO_MIXTURE,
)

cdef extern from *:
    """
    #define CV_RANGE_NATS 32.0
    #define CV_ACCURACY_NATS 34.0
    #define CV_MIN_NEWTON_GAIN 1e-3
    #define CV_FAINT_RATE 0.1
    #define CV_MAX_CURVED_SHARE 0.3
    #define CV_MIN_SHARE_ERROR 1e-12
    #define CV_NO_WEIGHT -1e308
    #define CV_MIN_CHANGE 0.5
    static const double CV_HERMITE_BOUNDS[6][4] = {
        {0.02, 3e-6, 3e-6, 0.0}, {0.1, 5e-4, 5e-4, 0.0},
        {0.15, 0.0019, 0.0025, 0.008}, {0.3, 0.014, 0.018, 0.0285},
        {0.5, 0.057, 0.078, 0.123}, {0.6, 0.17, 0.29, 0.38}};
    """
    const double RANGE_NATS "CV_RANGE_NATS"
    const double ACCURACY_NATS "CV_ACCURACY_NATS"
    const double FAINT_RATE "CV_FAINT_RATE"  # of rates, and of the smaller of p and 1 - p, that may grow a lot
    const double MAX_CURVED_SHARE "CV_MAX_CURVED_SHARE"  # of 1/v, of upward curvature of l that leaves h concave
    const double NO_WEIGHT "CV_NO_WEIGHT"               # log of a weight that stands for 0
    const double MIN_CHANGE "CV_MIN_CHANGE"             # of v l'' and v Var l', for the moment forms
    const double MIN_SHARE_ERROR "CV_MIN_SHARE_ERROR"  # of l'' in d2
    # bounds of s/L and of k s/L, which also is at most the third less s/L times the fourth
    const double HERMITE_BOUNDS "CV_HERMITE_BOUNDS"[6][4]
    const double MIN_NEWTON_GAIN "CV_MIN_NEWTON_GAIN"  # twice the nats that a Newton step may still gain at the anchor

cdef enum:
    MAX_NEWTON_STEPS = 4000                    # of Newton to the anchor; a handful is typical, or one a unit of f
    MAX_NODES = 256                     # of the smooth rule


cdef inline bint is_adaptive(int kind) noexcept nogil:
    """Whether steps 2 and 4 are those of response_steps.pxd, and 5 the rule of adaptive_quadrature.pxd."""
    return (kind == TRUNCATED or kind == ZERO_MIXTURE or kind == LOGISTIC_INTERVAL or kind == TWEEDIE or kind == BETA
            or kind == BETA_BINOMIAL)


cdef inline bint is_concave(int kind) noexcept nogil:
    """Whether log p is."""
    return not (kind == STUDENT_T or kind == ZERO_MIXTURE or kind == BETA or kind == BETA_BINOMIAL)


cdef inline template bound_upward_curvature(int kind, const Density *p, double *out) noexcept nogil:
    """A bound of |l''| for the kinds that are not concave, which l'' at its most positive does not pass."""
    cdef double odds
    if kind == STUDENT_T:
        out[0] = p.power * (p.a + 1.0) * p.c
    elif kind == ZERO_MIXTURE:                              # w (1 - w) q1^2, where w is about 1/2
        odds = p.b - p.a
        odds = (odds if odds > 0.0 else 0.0) + 2.0
        out[0] = p.power * odds * odds
    else:                                                   # that of logs of shares, mostly
        out[0] = p.power * (1.0 + 0.25 * (p.a if kind == BETA else p.y + p.b))


# ------------------------------------------------------------------------------------------------ 1. anchor


cdef inline template begin_anchor(int kind, Tile *t, Py_ssize_t i) noexcept nogil:
    """Where Newton starts, and a bracket of the mode, for concave log p: m and m + v l'(m), as l' falls.

    node_change and node_l2 are l' and l'' at m.
    """
    cdef Density p
    cdef double m = t.m[i], v = t.v[i], l1 = t.node_change[i], log_y, low, high, start, above, below, newton
    cdef bint rises = l1 > 0.0, far
    density(t, i, &p)
    if not is_concave(kind):                                # at most 1/(1 - 0.3) times as far, else no anchor is needed
        l1 = l1 if t.is_curved[i] == 0.0 else 0.0
    newton = m + l1 / (1.0 / v - t.node_l2[i])              # in narrow cavities that is the mode but for rounding
    l1 = l1 if is_concave(kind) else 1.5 * l1
    low, high = m if rises else m + v * l1, m + v * l1 if rises else m
    start = m
    if kind == POISSON:                                     # exp(m) may have overflown; the mode is below that of p
        log_y = cv_log(p.y if p.y > 0.0 else 1.0)
        high = log_y if rises & (log_y < high) else high
        far = (not rises) & ((p.y > 0.0) | (m > 0.0))
        below = m - v if m < v else 0.0
        below = log_y if p.y > 0.0 else below
        # e exp(f) <= e y + (m - below)/v at the mode; where m <= below they are the same but for rounding
        above = m - below if m > below else 0.0
        above = cv_log(p.y + above / (v * p.power))
        above = above if (above < m) & (m > below) else m
        low, high = below if far else low, above if far else high
        start = high if far | rises else m
        start = newton if (newton < start) & (newton > low) else start
    elif kind == TWEEDIE:
        # p is highest at 0; e y (exp(a f) - exp(-b f)) = (m - f)/v, at most m/v, if that is positive
        far = m > 0.0
        above = cv_log_1p(fabs(m) / (v * p.power * p.y)) / (p.a if far else p.b)
        below, above = 0.0 if far else -above, above if far else 0.0
        below, above = below if far | (below > m) else m, above if (above < m) | (not far) else m
        low, high = low if low > below else below, high if high < above else above
    elif kind == TRUNCATED and p.a > 0.0:
        # l' is above -a exp(f), so that t = m - f has t exp(t) < c, c = a v exp(m), and t < log(1 + c) at the mode; it
        # is below y, or 1, less a exp(f)
        above = cv_log(p.power * p.a * v) + m
        below = m - ((above if above > 0.0 else 0.0) + cv_log_1p(cv_exp(-fabs(above))))
        above = cv_log(((p.y if p.y > 1.0 else 1.0) + (0.0 if rises else (m - below) / (v * p.power))) / p.a)
        low = low if rises | (low > below) else below
        high = high if (above > high) | (above < low) else above
        start = high
    if kind != POISSON and kind != TRUNCATED:
        start = high if m > high else (low if m < low else m)
        start = newton if (newton > low) & (newton < high) else start
    t.next[i], t.low[i], t.high[i], t.moving[i] = start, low, high, 1.0 - t.is_curved[i]
    t.f0[i], t.l[i], t.l1[i], t.l2[i] = m, t.node_h[i], t.node_change[i], t.node_l2[i]


cdef inline template improve_anchor(Tile *t, Py_ssize_t i) noexcept nogil:
    """A step by Newton, bisection where that leaves the bracket; lanes that are there stay, to the last bit."""
    cdef double f = t.next[i], v = t.v[i], low = t.low[i], high = t.high[i], slope, bend, step, next
    cdef bint converged
    slope, bend = t.node_change[i] - (f - t.m[i]) / v, 1.0 / v - t.node_l2[i]
    low, high = f if slope > 0.0 else low, high if slope > 0.0 else f
    step = slope / bend
    converged = (slope * step < MIN_NEWTON_GAIN) | (high <= low)
    next = f + step
    next = next if (next > low) & (next < high) else 0.5 * (low + high)
    t.f0[i], t.l[i], t.l1[i], t.l2[i] = f, t.node_h[i], t.node_change[i], t.node_l2[i]
    t.low[i], t.high[i], t.next[i] = low, high, f if converged else next
    t.moving[i] = 0.0 if converged else 1.0


cdef inline template student_anchor(Tile *t, Py_ssize_t i) noexcept nogil:
    """The better of two local modes of h, roughly: one is reached from y, one from m (each step raises h).

    It is at `near` from y, and as far from m as leaves digits where the cavity is narrower than float64 is spaced at y.
    """
    cdef Density p
    cdef Slopes at
    cdef double y = t.y[i], m = t.m[i], v = t.v[i], half = 0.5 * t.power[i] * (t.a[i] + 1.0)
    cdef double offset = m - y, near = 0.0, far = offset, s = 2.0 * half * v, h_near, h_far, pull
    cdef int _step
    density(t, i, &p)
    for _step in range(6):
        near = offset / (1.0 + s / (p.b + near * near))
        far = offset / (1.0 + s / (p.b + far * far))
    h_near = -half * cv_log_1p(near * near * p.c) - 0.5 * (near - offset) * (near - offset) / v
    h_far = -half * cv_log_1p(far * far * p.c) - 0.5 * (far - offset) * (far - offset) / v
    near = near if h_near >= h_far else far
    pull = s / (p.b + near * near)
    t.f0[i] = y + near if pull > 1.0 else m - offset * (pull / (1.0 + pull))
    slopes(STUDENT_T, &p, t.f0[i], &at)
    t.l[i], t.l1[i], t.l2[i] = at.value, at.l1, at.l2


cdef inline template end_anchor(int kind, Tile *t, Py_ssize_t i) noexcept nogil:
    cdef Chance at
    t.from_mean[i] = t.f0[i] - t.m[i]
    t.pull[i], t.half_precision[i] = t.from_mean[i] / t.v[i], 0.5 / t.v[i]
    t.slope[i] = t.l1[i] - t.pull[i]
    at.small, at.rest, at.side = 0.0, 1.0, 1.0
    if kind == NEGATIVE_BINOMIAL or kind == LOGIT:
        chance(t.f0[i] - (t.b[i] if kind == NEGATIVE_BINOMIAL else 0.0), &at)
    t.small[i], t.rest[i], t.side[i] = at.small, at.rest, at.side


# ------------------------------------------------------------------------------------------------ 3. narrow rule


cdef inline template bound_curvature(int kind, Tile *t, Py_ssize_t i) noexcept nogil:
    """Whether l bends upward too much for an anchor and a narrow rule."""
    cdef Density p
    cdef double steepest
    t.is_curved[i] = 0.0
    if not is_concave(kind):
        density(t, i, &p)
        bound_upward_curvature(kind, &p, &steepest)
        t.is_curved[i] = 0.0 if t.v[i] * steepest < MAX_CURVED_SHARE else 1.0


cdef inline template find_unit(int kind, Tile *t, Py_ssize_t i) noexcept nogil:
    """L at f0, in units of which derivatives of log p are at most about as large as the second one."""
    cdef double odds                                        # or scale
    t.unit[i] = 1.0
    if kind == PROBIT or kind == BINOMIAL:                  # log Phi rises and falls like exp(f^2/2)
        odds = t.b[i] if kind == PROBIT else 1.0
        t.unit[i] = odds / (1.5 + fabs(t.f0[i]) / odds)
    elif kind == STUDENT_T:                                 # poles at y +- i sqrt(b), those of logistic kinds at pi
        t.unit[i] = sqrt(t.b[i]) / M_PI
    elif kind == TRUNCATED or kind == BETA or kind == BETA_BINOMIAL:
        t.unit[i] = 0.5
    elif kind == ZERO_MIXTURE:                              # zeros of p where exp(f) is the odds and i pi
        odds = t.b[i] - t.a[i]
        t.unit[i] = 0.5 / (1.0 + 0.5 * (odds if odds > 0.0 else 0.0))


cdef inline template choose_narrow_rule(Tile *t, Py_ssize_t i) noexcept nogil:
    """The rule with fewest nodes whose bounds hold; 0 where there is none."""
    cdef double local = 1.0 / (1.0 / t.v[i] - t.l2[i]), s = sqrt(local), relative, skew, rule = 0.0, most
    cdef double share = fabs(t.l2[i]) * local, tilt = fabs(t.slope[i]) * s, cube = tilt * tilt * tilt, moved
    cdef int k
    relative = s / t.unit[i]
    skew = share * relative
    moved = tilt * (0.25 * cube + skew)
    for k in range(HERMITE_RULES - 1, -1, -1):
        most = HERMITE_BOUNDS[k][2] - HERMITE_BOUNDS[k][3] * relative
        if k == 1:                                          # of few nodes: the slope at the anchor matters, too
            skew, most = skew + cube, most if share * moved * moved <= MIN_SHARE_ERROR else -1.0
        elif k == 0:
            most = most if share * moved <= MIN_SHARE_ERROR else -1.0
        rule = k + 1.0 if (relative <= HERMITE_BOUNDS[k][0]) & (skew <= HERMITE_BOUNDS[k][1]) & (skew <= most) else rule
    rule = rule if t.is_curved[i] == 0.0 else 0.0
    t.rule[i], t.count[i], t.step[i] = rule, 0.0, s if rule > 0.0 else 1.0
    t.narrow_step[i], t.narrow_weight[i] = s if rule > 0.0 else 0.0, 0.0 if rule > 0.0 else -INFINITY
    t.left[i] = t.right[i] = 0.0
    t.total[i] = t.first[i] = t.second[i] = t.change[i] = t.square[i] = t.bend[i] = 0.0
    t.min_change[i] = MIN_CHANGE


# ------------------------------------------------------------------------------------------------ 2. range


cdef inline template student_range(Tile *t, Py_ssize_t i) noexcept nogil:
    """Where neither log N nor l alone has fallen by RANGE_NATS from h(f0)."""
    cdef double fallen = RANGE_NATS - (t.l[i] - 0.5 * t.from_mean[i] * t.from_mean[i] / t.v[i])
    cdef double reach = sqrt(2.0 * fallen * t.v[i]), to_y = t.y[i] - t.f0[i]
    cdef double order = 0.5 * t.power[i] * (t.a[i] + 1.0) - 1.0         # p^e (f - y)^2 falls like (f - y)^(-2 order)
    cdef double low = -t.from_mean[i] - reach, high = -t.from_mean[i] + reach
    reach = sqrt(t.b[i]) * sqrt(cv_exp(fallen / (order if order > 0.0 else 1.0)) - 1.0)
    reach = reach if order > 0.0 else INFINITY
    t.left[i] = low if low > to_y - reach else to_y - reach
    t.right[i] = high if high < to_y + reach else to_y + reach


cdef inline template tilt(int kind, Tile *t, Py_ssize_t i) noexcept nogil:
    """How far on each side of the anchor l' or l'' may grow like exp(|x|), where so small that it matters."""
    cdef double far = -cv_log(-t.l2[i]), away = fabs(t.f0[i] - (t.b[i] if kind == NEGATIVE_BINOMIAL else 0.0))
    far = far if far < away else away                       # l'' may have underflown
    far = far if -t.l2[i] < FAINT_RATE else 0.0
    t.grow_left[i] = t.grow_right[i] = 0.0
    if kind == POISSON:
        t.grow_right[i] = far
    elif kind == NEGATIVE_BINOMIAL or kind == LOGIT:
        t.grow_left[i] = far if t.side[i] < 0.0 else 0.0
        t.grow_right[i] = far if t.side[i] > 0.0 else 0.0


cdef inline double highest(double v, double grow) noexcept nogil:
    """The largest min(x, grow) - x^2/(2 v)."""
    cdef double x = grow if grow < v else v
    return x - 0.5 * x * (x / v)


cdef inline double gaussian_end(double v, double grow, double top) noexcept nogil:
    """The x > 0 where -x^2/(2 v) + min(x, grow) = top - RANGE_NATS."""
    cdef double plain = sqrt(2.0 * v * (RANGE_NATS + (grow - top)))
    cdef double tilted = v + sqrt(v * v + 2.0 * v * (RANGE_NATS - top))
    return plain if plain < tilted else tilted


cdef inline template concave_range(int kind, Tile *t, Py_ssize_t i) noexcept nogil:
    """h falls at least as log N does, and on the side where l bends more at least as at the anchor."""
    cdef double v = t.v[i], local = 1.0 / (1.0 / v - t.l2[i]), steep
    tilt(kind, t, i)
    t.top_left[i], t.top_right[i] = highest(v, t.grow_left[i]), highest(v, t.grow_right[i])
    t.left[i] = -gaussian_end(local if kind == PROBIT else v, t.grow_left[i], t.top_left[i])
    t.right[i] = gaussian_end(local if kind == POISSON else v, t.grow_right[i], t.top_right[i])
    if kind == POISSON:                                     # exp(x) - 1 - x > exp(x)/3.8 from x = 1 on
        steep = cv_log(3.8 * (RANGE_NATS + t.grow_right[i]) / -t.l2[i])
        steep = steep if steep > 1.0 else 1.0
        t.right[i] = t.right[i] if t.right[i] < steep else steep


cdef inline double nearer(const Tile *t, Py_ssize_t i, double grow, double top, double side) noexcept nogil:
    """A step by Newton to where h + min(|x|, grow) is RANGE_NATS below the top. It is concave: ends stay beyond."""
    cdef double x = t.node_x[i], rise = 1.0 if side * x < grow else 0.0, grown = side * x if side * x < grow else grow
    cdef double fall = t.node_change[i] + rise * side + (t.slope[i] - 2.0 * t.half_precision[i] * x)
    return x - (t.node_h[i] + grown + (RANGE_NATS - top)) / fall


cdef inline template move_left_end(Tile *t, Py_ssize_t i) noexcept nogil:
    """A step nearer, from the integrand there."""
    cdef double x = t.left[i], next = nearer(t, i, t.grow_left[i], t.top_left[i], -1.0)
    t.left[i] = next if (next > x) & (next < 0.0) else x


cdef inline template move_right_end(Tile *t, Py_ssize_t i) noexcept nogil:
    cdef double x = t.right[i], next = nearer(t, i, t.grow_right[i], t.top_right[i], 1.0)
    t.right[i] = next if (next < x) & (next > 0.0) else x


# ------------------------------------------------------------------------------------------------ 4. smooth rule


cdef inline double log_secant(double d) noexcept nogil:
    """A bound of -log cos(d) for d <= 1.45 = BEND, where it is exact: its series, the last terms together."""
    cdef double z = d * d
    return ((((0.008717 * z + 17.0 / 2520.0) * z + 1.0 / 45.0) * z + 1.0 / 12.0) * z + 0.5) * z


cdef inline template growth(int kind, const Tile *t, Py_ssize_t i, double d, double *out) noexcept nogil:
    """A bound of B(d) in (1), without the part of the cavity.

    Poisson: with s = -log cos(d), h(f + i d) is h(f - s) but for terms linear in s, which add up to s exp(f0) and, the
    mean of f being within a standard deviation of f0, at most about a nat. The same holds for 1 + p (exp(x) - 1) of the
    logistic kinds, and for its mirror image; also it is, at distance d, at most cos(d/2) times smaller than on the real
    line. |Phi(f + i d)| <= exp(d^2/2) Phi(f), as the integral over its density shows; its zeros are beyond d = 2.8.
    Student's t, with poles at y +- i sqrt(b): 1 + (f - y)^2/b is smallest over f = y.
    """
    cdef double n = t.power[i], at_once, by_shift
    if kind == NEGATIVE_BINOMIAL or kind == BINOMIAL:
        n = n * (t.y[i] + t.a[i])
    if kind == POISSON:
        out[0] = -t.l2[i] * log_secant(d)
    elif kind == NEGATIVE_BINOMIAL or kind == LOGIT:
        at_once, by_shift = log_secant(0.5 * d), t.small[i] * log_secant(d)
        out[0] = n * (by_shift if (d <= 1.45) & (by_shift < at_once) else at_once)
    elif kind == PROBIT:
        out[0] = 0.5 * n * d * d * (t.c[i] * t.c[i])
    elif kind == BINOMIAL:
        out[0] = 0.5 * n * d * d
    else:
        out[0] = -0.5 * n * (t.a[i] + 1.0) * cv_log_1p(-d * d * t.c[i])


cdef inline template strip(int kind, const Tile *t, Py_ssize_t i, double *out) noexcept nogil:
    """The d at which H is largest as far as B is quadratic, or that which stays clear of the poles of p."""
    cdef double bend = -t.l2[i], farthest = 1.45, d
    if kind == NEGATIVE_BINOMIAL or kind == LOGIT:
        farthest = 2.9
    elif kind == PROBIT:
        bend, farthest = t.power[i] * (t.c[i] * t.c[i]), 2.5 * t.b[i]
    elif kind == BINOMIAL:
        bend, farthest = t.power[i] * (t.y[i] + t.a[i]), 2.5
    elif kind == STUDENT_T:
        bend, farthest = t.power[i] * (t.a[i] + 1.0) * t.c[i], 0.95 * sqrt(t.b[i])
    d = sqrt(2.0 * ACCURACY_NATS / (1.0 / t.v[i] + bend))
    out[0] = d if d < farthest else farthest


cdef inline template widen_step(const Tile *t, Py_ssize_t i, double d, double nats, double *widest) noexcept nogil:
    """To what (1) allows at d, with the nats of the accuracy and those by which p grows."""
    cdef double step = 2.0 * M_PI * d / (nats + 0.5 * d * d / t.v[i])
    widest[0] = step if step > widest[0] else widest[0]


cdef inline template place_steps(Tile *t, Py_ssize_t i, double widest, bint far) noexcept nogil:
    cdef double span = t.right[i] - t.left[i], count = ceil(span / widest), step
    count = count if (count <= MAX_NODES) & (not far) else 0.0
    step = span / count
    step = step if count > 0.0 else 1.0
    t.count[i], t.step[i] = 0.0 if t.rule[i] > 0.0 else count, t.step[i] if t.rule[i] > 0.0 else step


cdef inline template choose_rule(int kind, Tile *t, Py_ssize_t i) noexcept nogil:
    """Spacing and number of nodes: 0 where they would be more than MAX_NODES, or so far that terms lose digits.

    Lanes with a narrow rule keep it.
    """
    cdef double widest = 0.0, d, grown
    cdef bint far = (kind == POISSON or kind == NEGATIVE_BINOMIAL) and ((t.right[i] > 64.0) | (t.left[i] < -64.0))
    cdef int _try
    strip(kind, t, i, &d)
    for _try in range(2):
        growth(kind, t, i, d, &grown)
        widen_step(t, i, d, ACCURACY_NATS + grown, &widest)
        d = 0.75 * d
    place_steps(t, i, widest, far)


cdef inline template place_nodes(Tile *t, cv8 j) noexcept nogil:
    """Node j of each lane; beyond the last the last one again, without weight."""
    cdef cv8 least = cv8_max(cv8_sub(cv8_set(0.0), j), cv8_sub(cv8_set(1.0), cv8_load(t.count)))   # -min(j, last)
    cv8_store(t.node_x, cv8_add(cv8_load(t.left), cv8_mul(cv8_load(t.step), cv8_sub(cv8_set(0.5), least))))
    cv8_store(t.log_weight, cv8_mul(cv8_add(least, j), cv8_set(NO_WEIGHT)))


cdef inline template place_narrow_nodes(Tile *t, cv8 places, cv8 log_weights) noexcept nogil:
    """A node of the narrow rule; in a lane without one that is the anchor, without weight."""
    cv8_store(t.node_x, cv8_mul(cv8_load(t.narrow_step), places))
    cv8_store(t.log_weight, cv8_add(cv8_load(t.narrow_weight), log_weights))


cdef inline double weigh_node(const Tile *t, Py_ssize_t i) noexcept nogil:
    cdef double weight = cv_exp(t.node_h[i] + t.log_weight[i])
    return weight if t.log_weight[i] > NO_WEIGHT else 0.0


# ------------------------------------------------------------------------------------------------ 6. finish


cdef inline template find_top(int kind, Tile *t, Py_ssize_t i) noexcept nogil:
    cdef Density p
    density(t, i, &p)
    below_top(kind, &p, t.f0[i], t.l[i], &t.top[i])


cdef inline template finish_site(Tile *t, Py_ssize_t i) noexcept nogil:
    """The site from the integrals.

    Where there are none, the cavity is narrower than the spacing of float64 at its mean, or so far away: then the
    Gaussian at the anchor is all there is.
    """
    cdef double v = t.v[i], total = t.total[i], shift = t.from_mean[i]
    cdef bint some = (total > 0.0) & (total < INFINITY), steady
    cdef double inv = 1.0 / (total if some else 1.0), mean = t.first[i] * inv, change = t.change[i] * inv
    cdef double bend = t.bend[i] * inv, square = t.square[i] * inv - change * change
    cdef double variance = t.second[i] * inv - mean * mean, shrink, at_mode = 1.0 / (1.0 - v * t.l2[i])
    cdef double mass = cv_log(total * (t.step[i] / sqrt(v))) - HALF_LOG_2PI, nearly = 0.5 * cv_log(at_mode)
    cdef double log_mass = mass if some else nearly, d1, d2, rho
    # `square` may be negative by rounding, and v large
    steady = (fabs(bend) + (square if square > 0.0 else 0.0)) * v < t.min_change[i]
    d1 = t.l1[i] + change if steady else (shift + mean) / v
    d2 = bend + square if steady else (variance / v - 1.0) / v
    shrink = 1.0 + v * d2 if steady else variance / v
    d1, d2, shrink = d1 if some else t.l1[i], d2 if some else t.l2[i] * at_mode, shrink if some else at_mode
    rho = -d2 / shrink
    t.log_z[i] = ((log_mass - 0.5 * shift * shift / v) + t.top[i]) + t.power[i] * t.constant[i]
    t.d1[i], t.d2[i] = t.scale[i] * d1, t.scale[i] * t.scale[i] * d2
    t.tau[i], t.rho[i] = t.scale[i] * (d1 / shrink + t.unshifted[i] * rho), t.scale[i] * t.scale[i] * rho
