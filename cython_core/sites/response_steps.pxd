"""Steps 2 and 4 of quadrature_steps.pxd for the densities of responses, with bounds of their own.

2. Range, of l that may have modes far apart. An end is right where h is BOUND_NATS below its value at the anchor,
   there and all the way beyond. Beyond an end the Gaussian rises no more than up to m. If l is concave in some
   increasing function of f, as densities of shares are in p, it only falls where l' points inward; everywhere it is
   at most that of a probability. The first ends are those at which l may be highest and the Gaussian outweighs it; a
   nearer end is taken where these bounds hold there.
4. Growth: B(d) in (1) but for the part of the cavity. With s = -log cos(d), z = exp(f + i d), x = exp(f),

       |1 - exp(-z)| <= (1 - exp(-x cos(d)))/cos(d),     |exp(z) - 1| >= exp(x cos(d)) - 1,
       |exp(-z)| = exp(-x cos(d)),                        |1 + z/y| >= 1 + x cos(d)/y:

   p at f + i d is at most that at f - s, times exp(s y + s) or exp(s y), and as N(f + s) over N(f) is
   exp(-s (f - m)/v - s^2/(2 v)), B is at most s times what is left of these powers after (f0 - m)/v, the slope of
   l at a mode of h. |sigmoid(f + i d)| <= sigmoid(f)/cos(d/2), so that all polynomials of degree n in it, with roots
   at most 0, grow by cos(d/2)^-n. The density of shares is that at p' = Re sigmoid(f + i d), at most s from f, times
   the growth of 1/Gamma at u = n p' + i w, w = n Im sigmoid:

       |Gamma(Re u)/Gamma(u)|^2 = product of 1 + w^2/(Re u + k)^2 over k >= 0,

   of which the first factor is 1/cos(arg u)^2, and the others are less than the integral over k. The arguments of
   both shares add up to d, so that their logarithms are at most s and n ((d/2) tan(d/2) + log cos(d/2)), what they
   are at f = 0. Tweedie's exponentials are cos(a d) and cos(b d) times smaller; h with these is concave, so that a
   step of Newton bounds its mode.
"""

from libc.math cimport INFINITY, M_PI, fabs, sqrt

from cavity._core.lanes cimport template
from cavity._core.quadrature_steps cimport is_concave, log_secant, place_steps, widen_step
from cavity._core.simd cimport cv_exp
from cavity._core.site_integrands cimport Tile
from cavity._core.site_types cimport BETA, BETA_BINOMIAL, LOGISTIC_INTERVAL, TRUNCATED, TWEEDIE, ZERO_MIXTURE

cdef extern from *:
    """
    #define CV_BOUND_NATS 33.0
    #define CV_FAINT_RANGE_NATS 46.0
    #define CV_FAINT_BEND 0.1
    #define CV_AIM_NATS 1.5
    #define CV_MIN_ANCHOR_BEND 0.05
    #define CV_MAX_ZERO_SHARE 0.85
    """
    const double BOUND_NATS "CV_BOUND_NATS"              # in place of RANGE_NATS and ACCURACY_NATS
    # of v l'' at the anchor. If it is less, l' and l'' may be far larger at the ends, and they are looked at
    const double FAINT_BEND "CV_FAINT_BEND", FAINT_RANGE_NATS "CV_FAINT_RANGE_NATS"
    const double AIM_NATS "CV_AIM_NATS"                  # that ends which are tried have to spare
    const double MIN_ANCHOR_BEND "CV_MIN_ANCHOR_BEND"    # of a step uphill, in slopes: where l is a line it is 20
    const double MAX_ZERO_SHARE "CV_MAX_ZERO_SHARE"      # of the way to the zeros of p

cdef enum:
    ANCHOR_STEPS = 3
    END_STEPS = 3


# ------------------------------------------------------------------------------------------------ 1. anchor


cdef inline template move_curved_anchor(Tile *t, Py_ssize_t i) noexcept nogil:
    """Put a step uphill into node_f, where l bends upward; any place near the mass will do."""
    cdef double slope = t.l1[i] - (t.f0[i] - t.m[i]) / t.v[i]
    cdef double bend = 1.0 / t.v[i] + fabs(t.l2[i]) + MIN_ANCHOR_BEND * fabs(slope)
    t.node_f[i] = t.f0[i] + (slope / bend if t.is_curved[i] > 0.0 else 0.0)


cdef inline template keep_curved_anchor(Tile *t, Py_ssize_t i) noexcept nogil:
    cdef bint curved = t.is_curved[i] > 0.0
    t.f0[i], t.l[i] = t.node_f[i] if curved else t.f0[i], t.node_h[i] if curved else t.l[i]
    t.l1[i], t.l2[i] = t.node_change[i] if curved else t.l1[i], t.node_l2[i] if curved else t.l2[i]


# ------------------------------------------------------------------------------------------------ 2. range


cdef inline template bound_rise(int kind, const Tile *t, Py_ssize_t i, double value, double *out) noexcept nogil:
    """By how much l may be above a value: that of a probability is at most 0."""
    cdef double rise = -value - (t.power[i] * t.constant[i] if kind == BETA_BINOMIAL else 0.0)
    out[0] = rise if rise > 0.0 else 0.0


cdef inline template begin_ends(int kind, Tile *t, Py_ssize_t i) noexcept nogil:
    """The farthest ends, and nearer ones to try, in grow_left and grow_right; top_left is BOUND_NATS of the lane."""
    cdef double v = t.v[i], reach, centre = -t.from_mean[i], rise, near
    cdef bint faint = v * fabs(t.l2[i]) < FAINT_BEND
    cdef double nats = FAINT_RANGE_NATS if faint else BOUND_NATS
    if is_concave(kind):
        centre = fabs(v * t.slope[i])
        reach = sqrt(centre * centre + 2.0 * nats * v)
        t.left[i], t.right[i] = -centre - reach, centre + reach
    else:
        bound_rise(kind, t, i, t.l[i], &rise)
        reach = sqrt(centre * centre + 2.0 * v * (nats + rise))
        t.left[i], t.right[i] = centre - reach, centre + reach
    near = sqrt(2.0 * (nats + AIM_NATS) / (1.0 / v + fabs(t.l2[i])))
    t.grow_left[i], t.grow_right[i], t.top_left[i] = -near, near, nats
    if kind == BETA or kind == BETA_BINOMIAL:
        t.min_change[i] = t.min_change[i] if faint | (t.rule[i] > 0.0) else 0.0


cdef inline template move_end(int kind, Tile *t, Py_ssize_t i, double side, double *end, double *near) noexcept nogil:
    """Take the nearer end at node_x if it is right, and try another one, as if l went on as a line."""
    cdef double x = t.node_x[i], fall = -t.node_h[i], to_mean = -side * (t.from_mean[i] + x), rise, root, next
    cdef double steep = -side * (t.slope[i] + t.node_change[i] - 2.0 * t.half_precision[i] * x)
    root = steep * steep + 4.0 * t.half_precision[i] * (t.top_left[i] + AIM_NATS - fall)
    next = side * x + ((sqrt(root) if root > 0.0 else 0.0) - steep) * t.v[i]
    next = next if next > 0.0 else 0.25 * side * x
    if not is_concave(kind):
        bound_rise(kind, t, i, t.node_h[i] + x * (t.pull[i] + t.half_precision[i] * x) + t.l[i], &rise)
        fall = fall - (rise if side * (t.l1[i] + t.node_change[i]) > 0.0 else 0.0)
        fall = fall - (to_mean * to_mean * t.half_precision[i] if to_mean > 0.0 else 0.0)
        next = next if (to_mean <= 0.0) | (next > side * x + to_mean) else side * x + to_mean
    end[0] = x if (fall >= t.top_left[i]) & (side * x < side * end[0]) else end[0]
    near[0] = side * next


# ------------------------------------------------------------------------------------------------ 4. smooth rule


cdef inline template bound_strip(
    int kind, const Tile *t, Py_ssize_t i, double *slope, double *farthest, double *bend,
) noexcept nogil:
    """The largest |l'| at a mode of h, how far from the real line bounds hold, and about twice B over d^2."""
    cdef double e = t.power[i], odds = t.b[i] - t.a[i], steep = fabs(t.l1[i]), n = t.a[i], by_degree, reach = 1.45
    cdef bint curved = t.is_curved[i] > 0.0
    odds = odds if odds > 0.0 else 0.0
    if kind == LOGISTIC_INTERVAL:
        reach, bend[0] = 2.9, -t.l2[i]
    elif kind == TRUNCATED:
        steep = e * (t.y[i] + (1.0 if t.b[i] > 0.0 else 0.0)) - t.l1[i]
        bend[0] = steep
    elif kind == TWEEDIE:
        reach, bend[0] = 1.45 / (t.a[i] if t.a[i] > 0.5 else t.b[i]), -t.l2[i]
    elif kind == ZERO_MIXTURE:
        # zeros of p where exp(f) is the odds and i pi; p, p' and p'', of which sites are made, have no poles there
        steep = e * (odds + 2.0) if curved else steep
        reach = MAX_ZERO_SHARE * M_PI / (odds + 2.0)
        reach, bend[0] = reach if (reach < 1.45) & (e != 1.0) else 1.45, steep
    elif kind == BETA:
        odds = fabs(t.y[i] - t.b[i] - t.m[i])
        odds = (odds if odds > fabs(t.m[i]) else fabs(t.m[i])) / t.v[i]
        steep = odds if curved & (odds > steep) else steep
        bend[0] = e * (0.25 * n + 1.0) + steep
    else:
        steep = INFINITY if curved else steep
        by_degree, bend[0] = 0.25 * e * (t.y[i] + t.b[i]), e * (0.25 * n + 1.0) + steep
        reach = 2.9 if by_degree < bend[0] else reach
        bend[0] = by_degree if by_degree < bend[0] else bend[0]
    slope[0], farthest[0] = steep, reach


cdef inline double bound_shares(double d) noexcept nogil:
    """(d/2) tan(d/2) + log cos(d/2) for d <= 1.45, where it is exact, or a little more: its series."""
    cdef double z = 0.25 * d * d
    return ((((0.0252 * z + 17.0 / 360.0) * z + 1.0 / 9.0) * z + 0.25) * z + 0.5) * z


cdef inline template bound_growth(
    int kind, const Tile *t, Py_ssize_t i, double slope, double d, double *out,
) noexcept nogil:
    cdef double e = t.power[i], a = t.a[i], b = t.b[i], up, down, near = d if d < 1.45 else 1.45, by_degree, tilt, bend
    if kind == LOGISTIC_INTERVAL:
        out[0] = 2.0 * e * log_secant(0.5 * d)
    elif kind == TWEEDIE:
        up, down = 1.0 - cv_exp(-log_secant(a * d)), 1.0 - cv_exp(-log_secant(b * d))
        bend = 1.0 - (up if up > down else down)
        bend = 1.0 / t.v[i] - 0.5 * bend * t.l2[i]
        e = e * t.y[i]
        up, down = e * up * cv_exp(a * t.f0[i]), e * down * cv_exp(-b * t.f0[i])
        tilt = up - down
        out[0] = up / a + down / b + 0.5 * tilt * tilt / bend
    elif kind == BETA or kind == BETA_BINOMIAL:
        out[0] = e * a * bound_shares(near) + log_secant(near) * (e + slope)
        if kind == BETA_BINOMIAL:
            by_degree = e * (t.y[i] + b) * log_secant(0.5 * d)
            out[0] = out[0] if (d <= 1.45) & (out[0] < by_degree) else by_degree
    else:
        out[0] = log_secant(d) * slope


cdef inline template choose_response_rule(int kind, Tile *t, Py_ssize_t i) noexcept nogil:
    """As `choose_rule`."""
    cdef double widest = 0.0, slope, farthest, bend, d, grown
    cdef int _try
    bound_strip(kind, t, i, &slope, &farthest, &bend)
    d = sqrt(2.0 * BOUND_NATS / (1.0 / t.v[i] + bend))
    d = d if d < farthest else farthest
    for _try in range(3):
        bound_growth(kind, t, i, slope, d, &grown)
        widen_step(t, i, d, BOUND_NATS + grown, &widest)
        d = 0.75 * d
    place_steps(t, i, widest, False)
