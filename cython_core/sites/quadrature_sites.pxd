"""Sites by quadrature: moments of a Gaussian cavity N(f; m, v) times p(y|f)^e, for smooth p.

The integrand is measured from an anchor f0 near its mode, h(f) - h(f0) with h = e log p + log N, which keeps its digits
where both terms are large. Its range ends where it has fallen by CUT nats. Where it is nearly Gaussian and no pole of p
is close, 32 equally spaced nodes do (the trapezoidal rule converges exponentially there). Elsewhere the range is cut
into panels for Gauss-Legendre rules of 16 nodes, so short that a panel holds at most five standard deviations of the
local Gaussian and that the nearest pole is at least 4/3 half-widths from its middle.

    E l', E l'', Var l' (l = e log p) give d1 = E l' and d2 = E l'' + Var l', exact in narrow cavities, where the moment
    forms d1 = (E f - m)/v, d2 = (Var f/v - 1)/v cancel; in wide ones it is the other way round.
"""

from libc.math cimport INFINITY, M_PI, NAN, fabs, sqrt

from cavity._core.nodes cimport NODES, even_nodes, even_weights, gauss_nodes, gauss_weights
from cavity._core.normal cimport Normal, cv_standard_normal
from cavity._core.simd cimport cv_exp, cv_exp_rest, cv_log, cv_log_1p
from cavity._core.site_types cimport (
    BINOMIAL, LOGIT, NEGATIVE_BINOMIAL, POISSON, PROBIT, STUDENT_T, Likelihood, Tilted, finish,
)

cdef extern from *:
    """
    #define CV_CUT 32.0
    #define CV_STEEPEST 8.0
    #define CV_HALF_LOG_TAU_Q 0.9189385332046727
    #define CV_MANY 1e4
    #define CV_LOST 1e-280
    """
    const double CUT "CV_CUT"
    const double STEEPEST "CV_STEEPEST"
    const double HALF_LOG_2PI "CV_HALF_LOG_TAU_Q"
    const double MANY "CV_MANY"          # counts from which on the rounding error of log y shows in log p
    const double LOST "CV_LOST"          # exp(f0) or probabilities there that are too small to be scaled to other f

cdef enum:
    MOST_PANELS = 20000                  # a dozen is typical

cdef struct Slopes:
    double value, l1, l2                 # l = e log p(y|f), constants in f left out, and its derivatives

cdef struct Problem:
    double y, m, v
    double anchor, from_mean             # f0 and f0 - m
    double l1                            # l'(f0)
    double slope                         # h'(f0), summed without cancellation where the kind allows
    double extra                         # of the kind: e exp(f0) for Poisson, else l(f0)
    double p, not_p                      # of the negative binomial: sigmoid(f0 - log r) and one less it

cdef struct Sums:
    double total, first, second, l1, l1_squared, l2


# ------------------------------------------------------------------------------------------------ log p, one node


cdef inline Slopes logit_slopes(double power, double y, double f) noexcept nogil:
    cdef double t = y * f
    cdef double u = cv_exp(-fabs(t))
    cdef double r = 1.0 / (1.0 + u)
    cdef double wrong = u * r if t > 0.0 else r             # 1 - p
    cdef Slopes out
    out.value = power * ((t if t < 0.0 else 0.0) - cv_log_1p(u))
    out.l1 = power * y * wrong
    out.l2 = -power * (u * r) * r
    return out


cdef inline Slopes poisson_slopes(double power, double y, double f) noexcept nogil:
    cdef double mean = cv_exp(f)
    cdef Slopes out
    out.value = power * (y * f - mean)
    out.l1 = power * (y - mean)
    out.l2 = -power * mean
    return out


cdef inline Slopes negative_binomial_slopes(double power, double r, double log_r, double y, double f) noexcept nogil:
    cdef double t = f - log_r
    cdef double u = cv_exp(-fabs(t))
    cdef double q = 1.0 / (1.0 + u)
    cdef double p = q if t > 0.0 else u * q                 # sigmoid(t)
    cdef double not_p = u * q if t > 0.0 else q
    cdef Slopes out
    out.value = power * (y * t - (y + r) * ((t if t > 0.0 else 0.0) + cv_log_1p(u)))
    out.l1 = power * (y * not_p - r * p)
    out.l2 = -power * (y + r) * (u * q) * q
    return out


cdef inline Slopes probit_slopes(double power, double sd, double y, double f) noexcept nogil:
    cdef Normal at = cv_standard_normal(y * f / sd)
    cdef Slopes out
    out.value = power * at.log_cdf
    out.l1 = power * y * at.hazard / sd
    out.l2 = -power * at.curvature / (sd * sd)
    return out


cdef inline double log_ratio_rest(double u, double log_ratio) noexcept nogil:
    """u - log(1 + u), where the log is known, and has no digits to spare if u is small."""
    return cv_exp_rest(cv_log_1p(u)) if fabs(u) < 0.4 else u - log_ratio


cdef inline Slopes binomial_probit_slopes(Likelihood *lik, double y, double f) noexcept nogil:
    """log of Phi(f)^y Phi(-f)^r less its maximum, 0 < y <= r; a, b, c = r, log(y/n), log(r/n)."""
    cdef Normal at = cv_standard_normal(f), other = cv_standard_normal(-f)
    cdef double r = lik.a, above = at.log_cdf - lik.b, below = other.log_cdf - lik.c
    cdef double u = cv_exp(above) - 1.0, w = -u * (y / r)   # the terms y u and r w cancel: they are left out
    cdef double power = lik.power
    cdef Slopes out
    if fabs(u) < 0.4:
        out.value = -power * (y * log_ratio_rest(u, above) + r * log_ratio_rest(w, below))
    else:
        out.value = power * (y * above + r * below)
    out.l1 = power * (y * at.hazard - r * other.hazard)
    out.l2 = -power * (y * at.curvature + r * other.curvature)
    return out


cdef inline Slopes student_slopes(double power, double nu, double scale2, double y, double f) noexcept nogil:
    """scale2 = nu times the squared scale."""
    cdef double d = f - y
    cdef double u = d * d / scale2
    cdef double inv = 1.0 / (scale2 + d * d)
    cdef Slopes out
    out.value = -0.5 * power * (nu + 1.0) * cv_log_1p(u)
    out.l1 = -power * (nu + 1.0) * d * inv
    out.l2 = -power * (nu + 1.0) * (scale2 - d * d) * inv * inv
    return out


cdef inline Slopes slopes(Likelihood *lik, double y, double f) noexcept nogil:
    if lik.kind == LOGIT:
        return logit_slopes(lik.power, y, f)
    if lik.kind == POISSON:
        return poisson_slopes(lik.power, y, f)
    if lik.kind == NEGATIVE_BINOMIAL:
        return negative_binomial_slopes(lik.power, lik.a, lik.b, y, f)
    if lik.kind == PROBIT:
        return probit_slopes(lik.power, lik.b, y, f)
    if lik.kind == BINOMIAL:
        return binomial_probit_slopes(lik, y, f)
    return student_slopes(lik.power, lik.a, lik.b, y, f)


cdef inline double log_mean_rest(double p, double not_p, double x) noexcept nogil:
    """log(p exp(x) + 1 - p) - p x, which is not negative, to its last digits; not_p = 1 - p."""
    cdef double w = p if p <= 0.5 else not_p                # the same of 1 - p and -x
    cdef double t = x if p <= 0.5 else -x
    cdef double near = t if t < 700.0 else 700.0            # exp(t) may overflow
    cdef double rest = cv_exp_rest(near)
    cdef double log_1p = cv_log_1p(w * (rest + near))
    return w * rest - cv_exp_rest(log_1p) if fabs(t) < 0.35 else (log_1p + (t - near)) - w * t


cdef inline double log_mean(double p, double not_p, double x) noexcept nogil:
    """log(p exp(x) + 1 - p) for |x| > 64, without the linear part that log_mean_rest takes off."""
    cdef double u = cv_exp(-fabs(x))
    if x < 0.0:
        return cv_log_1p(p * (u - 1.0)) if p <= 0.5 else cv_log(not_p + p * u)
    return x + (cv_log_1p(not_p * (u - 1.0)) if not_p <= 0.5 else cv_log(p + not_p * u))


cdef inline double above_log(double y, double f) noexcept nogil:
    """f - log y, y > 0; where they are close by exp(f) - y, whose rounding errors are those of 1, not of log y."""
    cdef double q = (cv_exp(f) - y) / y
    return cv_log_1p(q) if fabs(q) < 0.4 else f - cv_log(y)


cdef inline double below_top(Likelihood *lik, double y, double f, double value) noexcept nogil:
    """For counts above 0 l(f) less its maximum, which `constant` holds; for all else l(f), the given value."""
    cdef double n
    if lik.kind == POISSON and y > 0.0:                     # y f - exp(f) + y - y log y
        return -(lik.power * y * cv_exp_rest(above_log(y, f) if y > MANY else f - cv_log(y)))
    if lik.kind == NEGATIVE_BINOMIAL and y > 0.0:
        n = y + lik.a
        return -(lik.power * n * log_mean_rest(y / n, lik.a / n, above_log(y if lik.c == 0.0 else y / lik.a, f)))
    return value


# ------------------------------------------------------------------------------------------------ where the mass is


cdef inline double find_mode(Likelihood *lik, double y, double m, double v) noexcept nogil:
    """A point within a few hundredths of a standard deviation of the mode, for concave log p: Newton, bracketed."""
    cdef Slopes at = slopes(lik, y, m)
    cdef double low = m, high = m, f = m, g, step, last
    cdef int _step
    if at.l1 > 0.0:                                         # l' falls, so the mode is at most here
        high = m + v * at.l1
    else:
        low = m + v * at.l1
    if lik.kind == POISSON and at.l1 > 0.0:
        high = high if high < cv_log(y) else cv_log(y)
        f = high                                            # between the mode of p and the cavity's mean
    elif lik.kind == POISSON and (y > 0.0 or m > 0.0):      # exp(m) may have overflown
        low = cv_log(y) if y > 0.0 else (m - v if m < v else 0.0)
        if m > low:                                         # else log y and m are the same but for rounding
            f = cv_log(y + (m - low) / (v * lik.power))     # e exp(f) <= e y + (m - low)/v at the mode
        f = high = f if f < m else m
    for _step in range(200):
        at = slopes(lik, y, f)
        g = at.l1 - (f - m) / v
        if g > 0.0:
            low = f
        else:
            high = f
        step = g / (1.0 / v - at.l2)
        last = f + step
        if not high > low:
            f = last if low <= last <= high else f
            break
        if step * step * (1.0 / v - at.l2) < 1e-3:          # in a wide cavity l' may change over so short a step
            if not low <= last <= high:
                break
            if fabs(slopes(lik, y, last).l1 - (last - m) / v) <= fabs(g):
                f = last
                break
        f = last
        if not (f > low and f < high):
            f = 0.5 * (low + high)
    return f


cdef inline double student_anchor(Likelihood *lik, double y, double m, double v) noexcept nogil:
    """The better of two local modes of h, roughly: one is reached from y, one from m (each step raises h).

    It is at `near` from y, and as far from m as leaves digits where the cavity is narrower than float64 is spaced at y.
    """
    cdef double apart = m - y, near = 0.0, far = apart, s = lik.power * v * (lik.a + 1.0), h_near, h_far, pull
    cdef int _step
    for _step in range(10):
        near = apart / (1.0 + s / (lik.b + near * near))
        far = apart / (1.0 + s / (lik.b + far * far))
    h_near = student_slopes(lik.power, lik.a, lik.b, 0.0, near).value - 0.5 * (near - apart) * (near - apart) / v
    h_far = student_slopes(lik.power, lik.a, lik.b, 0.0, far).value - 0.5 * (far - apart) * (far - apart) / v
    near = near if h_near >= h_far else far
    pull = s / (lik.b + near * near)
    return y + near if pull > 1.0 else m - apart * (pull / (1.0 + pull))


cdef inline double fall(Likelihood *lik, Problem *at, double l0, double delta) noexcept nogil:
    """h(f0) - h(f0 + delta)."""
    cdef Slopes there = slopes(lik, at.y, at.anchor + delta)
    return l0 - there.value + 0.5 * delta * (delta + 2.0 * at.from_mean) / at.v


cdef inline double find_end(Likelihood *lik, Problem *at, double l0, double sd, double side) noexcept nogil:
    """A distance on one side of the mode at which h has fallen by CUT to 2 CUT nats, for concave log p."""
    cdef double farthest = sqrt(2.0 * CUT * at.v), d = sqrt(2.0 * CUT) * sd, near, middle
    cdef int _step
    d = d if d < farthest else farthest
    for _step in range(400):
        if not d < farthest or fall(lik, at, l0, side * d) >= CUT:
            break
        d *= 1.5
    for _step in range(400):
        if fall(lik, at, l0, side * 0.7 * d) < CUT:
            break
        d *= 0.7
    d = d if d < farthest else farthest
    near = 0.7 * d
    for _step in range(60):                                 # a bend far from the mode: there 0.7 d is too coarse
        if fall(lik, at, l0, side * d) <= 2.0 * CUT:
            break
        middle = 0.5 * (near + d)
        if fall(lik, at, l0, side * middle) < CUT:
            near = middle
        else:
            d = middle
    return d


cdef inline double pole_distance(Likelihood *lik) noexcept nogil:
    if lik.kind == PROBIT or lik.kind == BINOMIAL:
        return 2.8 * lik.b if lik.kind == PROBIT else 2.8
    if lik.kind == STUDENT_T:
        return sqrt(lik.b)
    # exp(-exp(f)) has no pole, but grows without bound from Im f = pi/2 on, and so do high powers of the sigmoid
    return M_PI if lik.kind == LOGIT else 0.5 * M_PI


cdef inline double pole_centre(Likelihood *lik, double y) noexcept nogil:
    if lik.kind == STUDENT_T:
        return y
    return lik.b if lik.kind == NEGATIVE_BINOMIAL else 0.0


cdef inline double largest_curvature(Likelihood *lik, double y, double a, double b) noexcept nogil:
    """A bound of -l'' over [a, b]."""
    cdef double centre, at_a, at_b
    if lik.kind == POISSON:
        return lik.power * cv_exp(b)
    centre = pole_centre(lik, y)
    if lik.kind == PROBIT:
        return -slopes(lik, y, a if y > 0.0 else b).l2
    if lik.kind == BINOMIAL:
        at_a, at_b = cv_standard_normal(a).curvature, cv_standard_normal(-b).curvature
        return lik.power * (y * at_a + lik.a * at_b)
    if a <= centre <= b:
        return -slopes(lik, y, centre).l2
    at_a, at_b = fabs(slopes(lik, y, a).l2), fabs(slopes(lik, y, b).l2)
    return at_a if at_a > at_b else at_b


cdef inline double panel_width(Likelihood *lik, double y, double v, double f) noexcept nogil:
    """How far a panel that starts at f may reach."""
    cdef double pole = pole_distance(lik), d = f - pole_centre(lik, y), width, limit
    cdef int _step
    if d >= 0.0:
        width = 3.0 * (d if d > 0.5 * pole else 0.5 * pole)
    else:
        width = 1.5 * pole if d > -2.0 * pole else -0.75 * d
    limit = 5.0 * sqrt(v)
    width = width if width < limit else limit
    for _step in range(40):
        limit = 4.5 / sqrt(1.0 / v + largest_curvature(lik, y, f, f + width))
        if width <= limit:
            break
        width = limit if limit > 0.5 * width else 0.5 * width
    return width


# ------------------------------------------------------------------------------------------------ the integrals


cdef inline void add_panel(
    Likelihood *lik, Problem *at, double middle, double half, const double *nodes, const double *weights, Sums *sums,
) noexcept nogil:
    """Add a panel around f0 + middle to the sums."""
    cdef double x[NODES]
    cdef double l[NODES]
    cdef double l1[NODES]
    cdef double l2[NODES]
    cdef double g, total = 0.0, first = 0.0, second = 0.0, sum1 = 0.0, square = 0.0, sum2 = 0.0
    cdef double power = lik.power, y = at.y, f0 = at.anchor, l0 = at.extra, a = lik.a, b = lik.b
    cdef double half_precision = 0.5 / at.v, pull = at.from_mean / at.v, tilt = power * y - pull
    cdef double slope = at.slope, u, t, near, rise
    # for the negative binomial: w is the smaller one of p = sigmoid(f0 - log r) and 1 - p
    cdef bint low = at.p <= 0.5
    cdef double w = at.p if low else at.not_p, rest = at.not_p if low else at.p, side = 1.0 if low else -1.0
    cdef double of_rest = power * (y if low else -a), of_w = power * (a if low else -y), n = power * (y + a)
    cdef Slopes s
    cdef int j
    for j in range(NODES):
        x[j] = middle + half * nodes[j]
    if lik.kind == LOGIT:
        for j in range(NODES):
            s = logit_slopes(power, y, f0 + x[j])
            l[j], l1[j], l2[j] = (s.value - l0) - x[j] * (pull + half_precision * x[j]), s.l1, s.l2
    elif lik.kind == POISSON:                               # the terms linear in x nearly cancel: their sum is `slope`
        for j in range(NODES):
            u = l0 * cv_exp_rest(x[j])                      # l0 = e exp(f0)
            l[j] = x[j] * (slope - half_precision * x[j]) - u
            l1[j] = at.l1 - (u + l0 * x[j])
            l2[j] = -(u + l0 * x[j] + l0)
        for j in range(NODES):
            if fabs(x[j]) > 64.0:                           # where l0 x would swamp the rest, or leave no digits of it
                u = l0 * (cv_exp(x[j]) - 1.0) if l0 > LOST else power * cv_exp(f0 + x[j])
                l[j] = x[j] * (tilt - half_precision * x[j]) - u
                l1[j], l2[j] = at.l1 - u, -(u + l0)
    elif lik.kind == NEGATIVE_BINOMIAL:
        for j in range(NODES):
            t = side * x[j]
            near = t if t < 700.0 else 700.0                # exp(t) may overflow
            rise = cv_exp_rest(near) + near                 # exp(t) - 1
            u = 1.0 / (1.0 + w * rise)
            l[j] = x[j] * (slope - half_precision * x[j])
            l[j] -= n * ((cv_log_1p(w * rise) + (t - near)) - w * t)
            l1[j] = of_rest * (rest * u) - of_w * ((w * rise + w) * u)
            l2[j] = -n * (rest * u) * ((w * rise + w) * u)
        for j in range(NODES):
            if fabs(x[j]) > 64.0 and w < LOST:
                s = negative_binomial_slopes(power, a, b, y, f0 + x[j])
                l[j], l1[j], l2[j] = (s.value - l0) - x[j] * (pull + half_precision * x[j]), s.l1, s.l2
            elif fabs(x[j]) > 64.0:                         # as for Poisson
                l[j] = x[j] * (tilt - half_precision * x[j]) - n * log_mean(at.p, at.not_p, x[j])
    elif lik.kind == PROBIT:
        for j in range(NODES):
            s = probit_slopes(power, b, y, f0 + x[j])
            l[j], l1[j], l2[j] = (s.value - l0) - x[j] * (pull + half_precision * x[j]), s.l1, s.l2
    elif lik.kind == BINOMIAL:
        for j in range(NODES):
            s = binomial_probit_slopes(lik, y, f0 + x[j])
            l[j], l1[j], l2[j] = (s.value - l0) - x[j] * (pull + half_precision * x[j]), s.l1, s.l2
    else:
        for j in range(NODES):
            s = student_slopes(power, a, b, y, f0 + x[j])
            l[j], l1[j], l2[j] = (s.value - l0) - x[j] * (pull + half_precision * x[j]), s.l1, s.l2
    for j in range(NODES):
        l[j] = half * weights[j] * cv_exp(l[j])
        l1[j] = l1[j] - at.l1
    for j in range(NODES):
        g = l[j]
        total += g
        first += g * x[j]
        second += g * x[j] * x[j]
        sum1 += g * l1[j]
        square += g * l1[j] * l1[j]
        sum2 += g * l2[j]
    sums.total += total
    sums.first += first
    sums.second += second
    sums.l1 += sum1
    sums.l1_squared += square
    sums.l2 += sum2


cdef inline double away(double left, double right, double shift) noexcept nogil:
    """How far [left, right] + shift is from 0."""
    return left + shift if left + shift > 0.0 else (-(right + shift) if right + shift < 0.0 else 0.0)


cdef inline bint negligible(Likelihood *lik, Problem *at, double left, double right) noexcept nogil:
    """Whether Student's t times the cavity is below exp(-CUT) of its value at the anchor on all of the panel."""
    cdef double from_y = away(left, right, at.anchor - at.y), from_m = away(left, right, at.from_mean)
    cdef double top = student_slopes(lik.power, lik.a, lik.b, 0.0, from_y).value - 0.5 * from_m * from_m / at.v
    cdef double far = fabs(left) if fabs(left) > fabs(right) else fabs(right)
    top += cv_log_1p(far * far / lik.b)                     # its weight in the second moment
    return top < at.extra - 0.5 * at.from_mean * at.from_mean / at.v - CUT


cdef inline Tilted quadrature_site(
    Likelihood *lik, double y, double constant, double m, double v,
) noexcept nogil:
    """`constant` is the part of log p(y|f) without f; for counts above 0 the maximum of log p, see likelihoods.py.

    All nan where more than MOST_PANELS panels would be needed.
    """
    cdef Problem at
    cdef Sums sums
    cdef Slopes here
    cdef double sd, ratio, low, high, left, right, h, log_z, d1, d2, mean, variance, change, curvature
    cdef double value, curvature_there, steepness
    cdef int panels = 0
    sums.total = sums.first = sums.second = sums.l1 = sums.l1_squared = sums.l2 = 0.0
    at.y, at.m, at.v = y, m, v
    if lik.kind == STUDENT_T:
        at.anchor = student_anchor(lik, y, m, v)
    else:
        at.anchor = find_mode(lik, y, m, v)
    here = slopes(lik, y, at.anchor)
    at.from_mean = at.anchor - m
    at.l1 = here.l1
    at.slope = here.l1 - at.from_mean / v
    at.extra = -here.l2 if lik.kind == POISSON else here.value
    at.p = at.not_p = 0.0
    if lik.kind == NEGATIVE_BINOMIAL:
        value = cv_exp(-fabs(at.anchor - lik.b))
        at.p = (1.0 if at.anchor > lik.b else value) / (1.0 + value)
        at.not_p = (value if at.anchor > lik.b else 1.0) / (1.0 + value)
    sd = sqrt(v)
    ratio = 1.0 - v * here.l2                               # cavity variance over that of the Gaussian at the mode
    if lik.kind == STUDENT_T:
        h = here.value - 0.5 * at.from_mean * at.from_mean / v  # log N falls by CUT more on the way to the ends
        right = sqrt(2.0 * (CUT - h)) * sd
        low, high = -at.from_mean - right, -at.from_mean + right    # measured from f0, as are all ends
        left = y - at.anchor
        ratio = 0.5 * lik.power * (lik.a + 1.0) - 1.0       # p^e (f - y)^2 falls like this power of (f - y)^-2
        if ratio > 0.0:
            right = sqrt(lik.b) * sqrt(cv_exp((CUT - h) / ratio) - 1.0)
            low = low if low > left - right else left - right   # and so does log p
            high = high if high < left + right else left + right
    else:
        high = sqrt(2.0 * CUT) * sd
        low = -high
        h = 0.5 * sd                                        # spacing of 32 nodes
        left = pole_distance(lik)
        if ratio < 2.0 and 2.0 * M_PI * left / h - 0.5 * left * left / v > 34.0:
            add_panel(lik, &at, 0.5 * low, 0.5 * high, even_nodes, even_weights, &sums)
            add_panel(lik, &at, 0.5 * high, 0.5 * high, even_nodes, even_weights, &sums)
            low = high
        else:
            left = sd / sqrt(ratio)
            low, high = -find_end(lik, &at, here.value, left, -1.0), find_end(lik, &at, here.value, left, 1.0)
    value, curvature_there = below_top(lik, y, at.anchor, here.value), here.l2
    left = low
    while left < high:
        panels += 1
        if panels > MOST_PANELS:                            # scales so far apart that no rule resolves them
            return finish(m, v, NAN, NAN, NAN, 1.0)
        right = panel_width(lik, y, v, at.anchor + left)
        if lik.kind != STUDENT_T:                           # over a panel h changes by 8 nats where it is straight
            here = slopes(lik, y, at.anchor + left)
            steepness = fabs(here.l1 - (left + at.from_mean) / v)
            right = right if right * steepness < STEEPEST else STEEPEST / steepness
        right = left + right if left + right < high else high
        if not right > left:                                # beyond the resolution of float64
            break
        if lik.kind != STUDENT_T or not negligible(lik, &at, left, right):
            add_panel(lik, &at, 0.5 * (left + right), 0.5 * (right - left), gauss_nodes, gauss_weights, &sums)
        left = right

    if not 0.0 < sums.total < INFINITY:                     # a cavity narrower than the spacing of float64 at its mean,
        ratio = 1.0 - v * curvature_there                   # or so far away: the Gaussian at the mode is all there is
        log_z = value - 0.5 * (at.from_mean * at.from_mean / v + cv_log(ratio)) + lik.power * constant
        return finish(m, v, log_z, at.l1, curvature_there / ratio, 1.0 / ratio)
    mean = sums.first / sums.total
    variance = sums.second / sums.total - mean * mean
    change = sums.l1 / sums.total
    curvature = sums.l1_squared / sums.total - change * change
    # `curvature` may be negative by rounding, and v large
    if (fabs(sums.l2) / sums.total + (curvature if curvature > 0.0 else 0.0)) * v < 0.5:
        d1 = at.l1 + change
        d2 = sums.l2 / sums.total + curvature
        variance = v * (1.0 + v * d2)
    else:
        d1 = (at.from_mean + mean) / v
        d2 = (variance / v - 1.0) / v
    log_z = cv_log(sums.total) - HALF_LOG_2PI - 0.5 * cv_log(v) - 0.5 * at.from_mean * at.from_mean / v
    return finish(m, v, (log_z + value) + lik.power * constant, d1, d2, variance / v)
