"""log p of the kinds whose sites are integrals, in what keeps its digits: l = e log p(y|f) with two derivatives in f.

Each function is inlined with a constant kind, and has no branches, so that a loop over sites or over nodes vectorises:
that of quadrature_nodes.pxd; all else calls `evaluate_slopes`.
e is the power, and a, b, c are

    LOGIT                sigmoid(f)
    PROBIT               Phi(f/b); c = 1/b
    POISSON              exp(y f - exp(f)), the rate exp(f)
    NEGATIVE_BINOMIAL    p^y (1 - p)^a, p = sigmoid(f - b)
    BINOMIAL             Phi(f)^y Phi(-f)^a over its maximum, 0 < y <= a; b, c = log(y/(y + a)), log(a/(y + a))
    STUDENT_T            (1 + (f - y)^2/b)^(-(a + 1)/2), a degrees of freedom; b, c = a scale^2, 1/b
    TRUNCATED            exp(y f - a x) (1 - exp(-x))^b, x = exp(f), b = 1 or -1; if y > 0, a = 1, c = log y, over the
                         maximum of exp(y f - x)
    ZERO_MIXTURE         exp(a) + exp(b) q, q = exp(-x), or if y > 0 (1 + x/y)^-y, c = log y
    LOGISTIC_INTERVAL    sigmoid(b - f) sigmoid(f - a)
    TWEEDIE              exp(-y (exp(-b f)/b + exp(a f)/a)) over its maximum, at f = 0; 0 < a < 1, b = 1 - a
    BETA                 the density of Beta(p a, (1 - p) a), p = sigmoid(f), at z; y, b = log z, log(1 - z)
    BETA_BINOMIAL        the probability of y successes and b failures, whose chance has that density, but for n over y
                         and for what `below_top` adds

Constants in f are left out. Labels are 1: those of -1 are mirror images.
"""

from libc.math cimport fabs

from cavity._core.lanes cimport template
from cavity._core.log_gamma cimport LogGamma, log_gamma
from cavity._core.normal cimport Normal, cv_standard_normal
from cavity._core.simd cimport cv_exp, cv_exp_rest, cv_log, cv_log_1p, cv_log_1p_known
from cavity._core.site_types cimport (
    BETA, BETA_BINOMIAL, BINOMIAL, LOGISTIC_INTERVAL, LOGIT, NEGATIVE_BINOMIAL, POISSON, PROBIT, STUDENT_T, TRUNCATED,
    TWEEDIE, ZERO_MIXTURE,
)

cdef extern from *:
    """
    #define CV_MIN_LARGE_COUNT 1e4
    #define CV_MAX_RATE_LOG 600.0
    """
    const double MAX_RATE_LOG "CV_MAX_RATE_LOG"        # of rates, which are as large beyond it
    const double MIN_LARGE_COUNT "CV_MIN_LARGE_COUNT"  # from which on the rounding error of log y shows in log p

cdef struct Density:
    double power, y, a, b, c

cdef struct Slopes:
    double value, l1, l2                 # l, l', l''

cdef struct Chance:
    double small, rest, side             # the smaller of p and 1 - p, the other, and 1 where p is the smaller, else -1


cdef inline template chance(double t, Chance *out) noexcept nogil:
    """p = sigmoid(t) and 1 - p."""
    cdef double u = cv_exp(-fabs(t)), r = 1.0 / (1.0 + u)
    out.small, out.rest, out.side = u * r, r, -1.0 if t > 0.0 else 1.0


cdef inline template logit_slopes(double power, double f, Slopes *out) noexcept nogil:
    cdef double u = cv_exp(-fabs(f))
    cdef double r = 1.0 / (1.0 + u)
    out.value = power * ((f if f < 0.0 else 0.0) - cv_log_1p_known(u, r))
    out.l1 = power * (u * r if f > 0.0 else r)
    out.l2 = -power * (u * r) * r


cdef inline template poisson_slopes(double power, double y, double f, Slopes *out) noexcept nogil:
    cdef double mean = cv_exp(f)
    out.value = power * (y * f - mean)
    out.l1 = power * (y - mean)
    out.l2 = -power * mean


cdef inline template negative_binomial_slopes(
    double power, double r, double log_r, double y, double f, Slopes *out,
) noexcept nogil:
    cdef double t = f - log_r
    cdef double u = cv_exp(-fabs(t))
    cdef double q = 1.0 / (1.0 + u)
    cdef double p = q if t > 0.0 else u * q                 # sigmoid(t)
    cdef double not_p = u * q if t > 0.0 else q
    out.value = power * (y * t - (y + r) * ((t if t > 0.0 else 0.0) + cv_log_1p_known(u, q)))
    out.l1 = power * (y * not_p - r * p)
    out.l2 = -power * (y + r) * (u * q) * q


cdef inline template probit_slopes(double power, double inv_sd, double f, Slopes *out) noexcept nogil:
    cdef Normal at = cv_standard_normal(f * inv_sd)
    out.value = power * at.log_cdf
    out.l1 = power * at.hazard * inv_sd
    out.l2 = -power * at.curvature * (inv_sd * inv_sd)


cdef inline template log_ratio_rest(double u, double log_ratio, double *out) noexcept nogil:
    """u - log(1 + u), where the log is known, and has no digits to spare if u is small."""
    cdef double near = cv_exp_rest(cv_log_1p(u if u > -0.4 else -0.4))
    out[0] = near if fabs(u) < 0.4 else u - log_ratio


cdef inline template binomial_probit_slopes(const Density *p, double f, Slopes *out) noexcept nogil:
    cdef Normal at = cv_standard_normal(f), other = cv_standard_normal(-f)
    cdef double y = p.y, r = p.a, power = p.power, above = at.log_cdf - p.b, below = other.log_cdf - p.c
    cdef double u = cv_exp(above) - 1.0, w = -u * (y / r)   # the terms y u and r w cancel: they are left out
    cdef double of_y, of_r, near
    log_ratio_rest(u, above, &of_y)
    log_ratio_rest(w, below, &of_r)
    near = -power * (y * of_y + r * of_r)
    out.value = near if fabs(u) < 0.4 else power * (y * above + r * below)
    out.l1 = power * (y * at.hazard - r * other.hazard)
    out.l2 = -power * (y * at.curvature + r * other.curvature)


cdef inline template student_slopes(const Density *p, double f, Slopes *out) noexcept nogil:
    cdef double n = p.power * (p.a + 1.0), d = f - p.y, u = d * d * p.c
    cdef double inv = 1.0 / (1.0 + u)
    out.value = -0.5 * n * cv_log_1p_known(u, inv)
    out.l1 = -n * p.c * d * inv
    out.l2 = -n * p.c * (1.0 - u) * inv * inv


cdef inline template truncated_slopes(const Density *p, double f, Slopes *out) noexcept nogil:
    """With q = x/(exp(x) - 1) and its rest 1 - q, each with all digits."""
    cdef double x = cv_exp(f if f < MAX_RATE_LOG else MAX_RATE_LOG), y = p.y, b = p.b
    cdef double near = x if x > 1e-300 else 1e-300, low = near if near < 700.0 else 700.0
    cdef double rest = cv_exp_rest(low), inv = 1.0 / (rest + low), q = low * inv, other = rest * inv
    # log(1 - exp(-x)): f and the log of (1 - exp(-x))/x, or that of 1 less something small
    cdef bint small = near < 0.7
    cdef double ratio = cv_exp_rest(-(near if small else 0.7)) / (near if small else 0.7)
    cdef double log_1p = cv_log_1p(-ratio if small else -cv_exp(-(near if near > 0.7 else 0.7)))
    cdef double count = -y * cv_exp_rest(f - p.c)
    out.value = p.power * ((count if y > 0.0 else -p.a * x) + b * (log_1p + (f if small else 0.0)))
    out.l1 = p.power * ((y if b > 0.0 else y - 1.0) - p.a * x + (q if b > 0.0 else other))
    out.l2 = p.power * (b * q * (other - low) - p.a * x)


cdef inline template zero_mixture_slopes(const Density *p, double f, Slopes *out) noexcept nogil:
    """From log q and its derivatives; w is the share of q."""
    cdef double t = f - (p.c if p.y > 0.0 else 0.0)
    cdef double x = cv_exp(t if t < 300.0 else 300.0)
    cdef double u = cv_exp(-fabs(t)), inv = 1.0 / (1.0 + u), r = p.y
    cdef double success = inv if t > 0.0 else u * inv, failure = u * inv if t > 0.0 else inv
    cdef double log_q = -r * ((t if t > 0.0 else 0.0) + cv_log_1p_known(u, inv)) if r > 0.0 else -x
    cdef double q1 = -r * success if r > 0.0 else -x, q2 = -r * success * failure if r > 0.0 else -x
    cdef double odds = p.b + log_q - p.a, small = cv_exp(-fabs(odds)), share = 1.0 / (1.0 + small)
    cdef double w = share if odds > 0.0 else small * share, rest = small * share if odds > 0.0 else share
    cdef double top = p.b + log_q if odds > 0.0 else p.a
    # l' = w q1, l'' = w (q2 + (1 - w) q1^2); powers of p^e multiply them
    out.value = p.power * (top + cv_log_1p_known(small, share))
    out.l1 = p.power * (w * q1)
    out.l2 = p.power * (w * (q2 + rest * q1 * q1))


cdef inline template logistic_interval_slopes(const Density *p, double f, Slopes *out) noexcept nogil:
    cdef Slopes below, above
    logit_slopes(p.power, p.b - f, &below)
    logit_slopes(p.power, f - p.a, &above)
    out.value, out.l1, out.l2 = below.value + above.value, above.l1 - below.l1, below.l2 + above.l2


cdef inline template tweedie_slopes(const Density *p, double f, Slopes *out) noexcept nogil:
    cdef double up = p.a * f, down = -p.b * f, e = p.power * p.y
    cdef double high = up if up < MAX_RATE_LOG else MAX_RATE_LOG, low = down if down < MAX_RATE_LOG else MAX_RATE_LOG
    cdef double of_up = cv_exp_rest(high), of_down = cv_exp_rest(low)
    out.value = -e * (of_up / p.a + of_down / p.b)
    out.l1 = -e * ((of_up + high) - (of_down + low))
    out.l2 = -e * (p.a * (1.0 + (of_up + high)) + p.b * (1.0 + (of_down + low)))


cdef inline template bernoulli_divergence(double p, double not_p, double x, double far, double *out) noexcept nogil:
    """KL(p || z) = log(p exp(x) + 1 - p) - p x, x = logit(z) - logit(p), to its last digits; `far` where |x| >= .35.

    With w the smaller of p and 1 - p, t = x or -x and u = w (exp(t) - 1) it is w (exp(t) - 1 - t) - (u - log(1 + u)).
    """
    cdef double w = p if p <= 0.5 else not_p, t = x if p <= 0.5 else -x
    cdef double near = t if fabs(t) < 0.35 else 0.35
    # exp(t) - 1 - t by Taylor's series; u - log(1 + u) = u s - 2 s^3 (1/3 + s^2/5 + ...), s = u/(2 + u)
    cdef double rest = near * near * (1.0 / 2.0 + near * (1.0 / 6.0 + near * (1.0 / 24.0 + near * (
        1.0 / 120.0 + near * (1.0 / 720.0 + near * (1.0 / 5040.0 + near * (1.0 / 40320.0 + near * (
            1.0 / 362880.0 + near * (1.0 / 3628800.0 + near * (1.0 / 39916800.0 + near * (
                1.0 / 479001600.0 + near / 6227020800.0)))))))))))
    cdef double u = w * (rest + near), s = u / (2.0 + u), z = s * s
    cdef double tail = z * s * (2.0 / 3.0 + z * (2.0 / 5.0 + z * (2.0 / 7.0 + z * (2.0 / 9.0 + z * (
        2.0 / 11.0 + z * (2.0 / 13.0 + z * (2.0 / 15.0)))))))
    out[0] = (w * rest - u * s) + tail if fabs(t) < 0.35 else far


cdef inline template beta_slopes(const Density *p, double f, Slopes *out) noexcept nogil:
    """By remainders of log Gamma, so that nothing cancels at high precisions: structured in logs of shares."""
    cdef double n = p.a, u = cv_exp(-fabs(f)), inv = 1.0 / (1.0 + u), half = cv_log_1p_known(u, inv)
    cdef double mean = inv if f > 0.0 else u * inv, rest = u * inv if f > 0.0 else inv
    cdef double log_mean = (f if f < 0.0 else 0.0) - half, log_rest = (-f if f > 0.0 else 0.0) - half
    cdef double log_n = p.c, from_odds = (p.y - p.b) - f, l1, divergence
    cdef LogGamma first, second
    log_gamma(mean * n, log_mean + log_n, &first)
    log_gamma(rest * n, log_rest + log_n, &second)
    # two terms that cancel would lose the digits that n magnifies
    bernoulli_divergence(mean, rest, from_odds, mean * (log_mean - p.y) + rest * (log_rest - p.b), &divergence)
    out.value = p.power * ((0.5 * (log_mean + log_rest) + cv_log(first.product * second.product))
                           - (first.rest + second.rest) - n * divergence)
    # d log p/df = w (log odds of y - f) + mean first(rest n) - rest first(mean n), w = n mean rest
    l1 = n * mean * rest * from_odds + (mean * second.first - rest * first.first)
    out.l1 = p.power * l1
    out.l2 = p.power * ((rest - mean) * l1 - n * mean * rest
                        - (mean * mean * second.second + rest * rest * first.second))


cdef inline template beta_binomial_slopes(const Density *p, double f, Slopes *out) noexcept nogil:
    """The same with Gamma(y + mean n)/Gamma(mean n) and its like, ratios of which keep their digits."""
    cdef double n = p.a, y = p.y, r = p.b, u = cv_exp(-fabs(f)), inv = 1.0 / (1.0 + u)
    cdef double mean = inv if f > 0.0 else u * inv, rest = u * inv if f > 0.0 else inv
    cdef double half = cv_log_1p_known(u, inv), log_n = p.c
    cdef double log_a = (f if f < 0.0 else 0.0) - half + log_n, log_b = (-f if f > 0.0 else 0.0) - half + log_n
    cdef double a = mean * n, b = rest * n, ya = y + a, rb = r + b, total = (y + r) + n
    # logs of y + a and r + b, which may be as small as a and b
    cdef double log_ya = cv_log(ya) if y > 0.0 else log_a, log_rb = cv_log(rb) if r > 0.0 else log_b
    cdef double log_total = cv_log(total), up, down, w = a * rest, of_a, of_b, l1
    # log((y + a)/a) and log((r + b)/b), the first also where y is small beside a
    cdef double ratio_a = cv_log_1p(y / a) if y < a else log_ya - log_a
    cdef double ratio_b = cv_log_1p(r / b) if r < b else log_rb - log_b
    cdef double ratio_n = cv_log_1p((y + r) / n) if y + r < n else log_total - log_n
    cdef LogGamma at_a, at_b, at_ya, at_rb
    log_gamma(a, log_a, &at_a)
    log_gamma(b, log_b, &at_b)
    log_gamma(ya, log_ya, &at_ya)
    log_gamma(rb, log_rb, &at_rb)
    up = y * (log_ya - log_total) + a * (ratio_a - ratio_n) - 0.5 * ratio_a + (at_ya.rest - at_a.rest)
    down = r * (log_rb - log_total) + b * (ratio_b - ratio_n) - 0.5 * ratio_b + (at_rb.rest - at_b.rest)
    out.value = p.power * ((up + down) + cv_log((at_a.product * at_b.product) / (at_ya.product * at_rb.product)))
    # w (psi(y + a) - psi(a)), w = n mean rest, and the same of b: w/a is rest, w/b is mean
    of_a = w * ratio_a + (at_ya.first * (w / ya if y > 0.0 else rest) - at_a.first * rest)
    of_b = w * ratio_b + (at_rb.first * (w / rb if r > 0.0 else mean) - at_b.first * mean)
    l1 = (of_a if y > 0.0 else 0.0) - (of_b if r > 0.0 else 0.0)
    # w^2 (psi'(y + a) - psi'(a)): psi' is 1/x and the remainder
    of_a = w / ya
    of_b = w / rb
    of_a = of_a * of_a * at_ya.second - rest * rest * at_a.second - rest * (y * (w / ya))
    of_b = of_b * of_b * at_rb.second - mean * mean * at_b.second - mean * (r * (w / rb))
    out.l1 = p.power * l1
    out.l2 = p.power * ((rest - mean) * l1 + ((of_a if y > 0.0 else 0.0) + (of_b if r > 0.0 else 0.0)))


cdef inline template slopes(int kind, const Density *p, double f, Slopes *out) noexcept nogil:
    if kind == LOGIT:
        logit_slopes(p.power, f, out)
    elif kind == POISSON:
        poisson_slopes(p.power, p.y, f, out)
    elif kind == NEGATIVE_BINOMIAL:
        negative_binomial_slopes(p.power, p.a, p.b, p.y, f, out)
    elif kind == PROBIT:
        probit_slopes(p.power, p.c, f, out)
    elif kind == BINOMIAL:
        binomial_probit_slopes(p, f, out)
    elif kind == STUDENT_T:
        student_slopes(p, f, out)
    elif kind == TRUNCATED:
        truncated_slopes(p, f, out)
    elif kind == ZERO_MIXTURE:
        zero_mixture_slopes(p, f, out)
    elif kind == LOGISTIC_INTERVAL:
        logistic_interval_slopes(p, f, out)
    elif kind == TWEEDIE:
        tweedie_slopes(p, f, out)
    elif kind == BETA:
        beta_slopes(p, f, out)
    else:
        beta_binomial_slopes(p, f, out)


cdef inline void evaluate_slopes(int kind, const Density *p, double f, Slopes *out) noexcept nogil:
    """Those of a kind that is known when it runs: compiled once."""
    slopes(kind, p, f, out)


cdef inline double log_mean(double p, double not_p, double x) noexcept nogil:
    """log(p exp(x) + 1 - p) for |x| > 64, without the linear part that log_mean_rest takes off."""
    cdef double u = cv_exp(-fabs(x))
    if x < 0.0:
        return cv_log_1p(p * (u - 1.0)) if p <= 0.5 else cv_log(not_p + p * u)
    return x + (cv_log_1p(not_p * (u - 1.0)) if not_p <= 0.5 else cv_log(p + not_p * u))


cdef inline template log_mean_rest(double p, double not_p, double x, double *out) noexcept nogil:
    """log(p exp(x) + 1 - p) - p x, which is not negative, to its last digits; not_p = 1 - p."""
    cdef double w = p if p <= 0.5 else not_p                # the same of 1 - p and -x
    cdef double t = x if p <= 0.5 else -x
    cdef double near = t if t < 700.0 else 700.0            # exp(t) may overflow
    cdef double rest = cv_exp_rest(near)
    cdef double log_1p = cv_log_1p(w * (rest + near)), at_0 = w * rest - cv_exp_rest(log_1p)
    out[0] = at_0 if fabs(t) < 0.35 else (log_1p + (t - near)) - w * t


cdef inline template above_log(double y, double f, double *out) noexcept nogil:
    """f - log y, y > 0; where they are close by exp(f) - y, whose rounding errors are those of 1, not of log y."""
    cdef double q = (cv_exp(f) - y) / y, log_ratio = f - cv_log(y), close = cv_log_1p(q if fabs(q) < 0.4 else 0.4)
    out[0] = close if fabs(q) < 0.4 else log_ratio


cdef inline template below_top(int kind, const Density *p, double f, double value, double *out) noexcept nogil:
    """For counts above 0 l(f) less its maximum, which the constant of log p holds; for all else l(f)."""
    cdef double y = p.y if p.y > 0.0 else 1.0, n = y + p.a, top = value, above, total
    cdef LogGamma at_n, at_total
    if kind == BETA_BINOMIAL:                               # log of Gamma(a)/Gamma(total) but for powers of a and total
        n, total = p.y + p.b, p.y + p.b + p.a
        above = cv_log(total)
        log_gamma(p.a, p.c, &at_n)
        log_gamma(total, above, &at_total)
        above = cv_log_1p(n / p.a) if n < p.a else above - p.c
        out[0] = value + p.power * (0.5 * above - (at_total.remainder - at_n.remainder))
        return
    if kind == POISSON:                                     # y f - exp(f) + y - y log y
        above_log(y, f, &above)
        top = f - cv_log(y)
        top = -(p.power * y * cv_exp_rest(above if y > MIN_LARGE_COUNT else top))
    elif kind == NEGATIVE_BINOMIAL:
        above_log(y if p.c == 0.0 else y / p.a, f, &above)
        log_mean_rest(y / n, p.a / n, above, &top)
        top = -(p.power * n * top)
    out[0] = top if p.y > 0.0 else value
