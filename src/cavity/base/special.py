"""Logs and log-gamma functions where their textbook forms cancel: parts of entropies, densities and divergences.

Two decompositions do all the work. Every divergence here is a sum of terms y/x - 1 - log(y/x) >= 0, computed to full
relative accuracy by `excess`. And lgamma(a) = (a - 1/2) log a - a + log(2 pi)/2 + R(a) with Binet's remainder R, which
is small and smooth, so that the large terms can be taken together by hand.

References
----------
.. [DLMF] NIST Digital Library of Mathematical Functions, sections 5.5 (recurrence) and 5.11 (asymptotic expansions).
.. [D] Theodorus Dekker, "A floating-point technique for extending the available precision", Numerische Mathematik 18,
   1971.
.. [T] N. M. Temme, "Uniform asymptotic expansions of the incomplete gamma functions and the incomplete beta function",
   Mathematics of Computation 29, 1975.
"""

from functools import lru_cache

import numpy as np

from cavity.base.constants import LOG_2, LOG_2PI
from cavity.base.lazy_scipy import special

LARGE_SHAPE = 12.0  # from here on eight terms of the expansion of R, and of its curvature, are exact
# R(a) = sum_k B_2k / (2k (2k - 1) a^(2k-1)), [DLMF] 5.11.1
BINET_COEFFICIENTS = (1 / 12, -1 / 360, 1 / 1260, -1 / 1680, 1 / 1188, -691 / 360360, 1 / 156, -3617 / 122400)
MAX_SERIES_ARGUMENT = 0.4  # |u| up to which u - log(1 + u) is summed as a series
LARGE_GAMMA_SHAPE = 1e5  # from here on two terms are exact; SciPy's series ends early from 1e6 on, beyond 4.5 sd
MAX_GAMMA_RATIO = 0.9  # of |x - a|/a, beyond which the smaller probability is 0
LARGE_BETA_SHAPE = 1e6  # from here on the relative error of one term is some 1e-11, that of SciPy 1e-9 at 1e7
SMALL_ETA = 1e-8  # up to which the term is what it is at 0: its slope is about one, and its factor less than 1e-3
LOG_NEGLIGIBLE_SQUARE = -18.0  # exp(2 u)/24 is below the last digit
N_GAP_TERMS = 12  # z <= 1/16 there: z^12/27 is below the last digit

quiet = np.errstate(over="ignore", under="ignore", divide="ignore", invalid="ignore")


@quiet
def gap(u, log1p_u):
    """u - log(1 + u) >= 0 without cancellation; `log1p_u` is used where |u| is not small.

    With s = u/(2 + u), log(1 + u) = 2 (s + s^3/3 + ...) and u - 2 s = s u.
    """
    u = u if type(u) is float else np.asarray(u, dtype=np.float64)
    s = u / (2.0 + u)
    z = s * s
    tail = 0.0
    for k in reversed(range(N_GAP_TERMS)):
        tail = tail * z + 1.0 / (2 * k + 3)
    return np.where(abs(u) <= MAX_SERIES_ARGUMENT, s * (u - 2.0 * z * tail), u - log1p_u)


@quiet
def gamma_probability(a, x, above=False):
    """The probability that a Gamma(a) variable is below x >= 0, or above; by the expansion [T]_ for large a."""
    a, x = np.broadcast_arrays(np.asarray(a, dtype=np.float64), x)
    large, sign = a > LARGE_GAMMA_SHAPE, -1.0 if above else 1.0
    small_a = np.where(large, 1.0, a)
    out = np.asarray((special.gammaincc if above else special.gammainc)(small_a, x))
    a, u = a[large], np.clip((x[large] - a[large]) / a[large], -MAX_GAMMA_RATIO, MAX_GAMMA_RATIO)
    square = gap(u, np.log1p(u))
    eta = np.copysign(np.sqrt(2.0 * square), u)
    first = -1 / 3 + eta * (1 / 12 - eta * (2 / 135 - eta * (1 / 864 + eta * (1 / 2835 - eta * (139 / 777600)))))
    second = -1 / 540 - eta * (1 / 288 - eta / 378)
    rest = np.exp(-a * square) / np.sqrt(2.0 * np.pi * a) * (first + second / a)
    out[large] = 0.5 * special.erfc(-sign * eta * np.sqrt(0.5 * a)) - sign * rest
    return out[()]


@quiet
def log_ratio(y, x):
    """log(y/x) of positive numbers whose ratio may leave the range of float64."""
    ratio = np.divide(y, x)
    inside = (ratio > 1e-300) & (ratio < 1e300)
    return np.where(inside, np.log(ratio), np.log(y) - np.log(x))


@quiet
def log_one_minus_exp(u):
    """log(1 - exp(-exp(u))), to the last digits in both tails."""
    h = np.exp(u)
    middle = np.where(h < LOG_2, np.log(-np.expm1(-h)), np.log1p(-np.exp(-h)))
    return np.where(np.asarray(u) < LOG_NEGLIGIBLE_SQUARE, u - 0.5 * h, middle)


@quiet
def log_logistic_interval(lower, upper, width):
    """Log probability that a logistic variable is between bounds, whose distance is `width`."""
    return log_one_minus_exp(np.log(width)) - np.logaddexp(0.0, -upper) - np.logaddexp(0.0, lower)


@quiet
def excess(y, x, u=None):
    """y/x - 1 - log(y/x) >= 0 of positive numbers; `u` is y/x - 1, where the caller has it more exactly near zero."""
    if not type(y) is type(x) is float:
        y, x = np.asarray(y, dtype=np.float64), np.asarray(x, dtype=np.float64)
    rough = (y - x) / x
    u = rough if u is None else np.where(abs(rough) <= MAX_SERIES_ARGUMENT, u, rough)
    return gap(u, log_ratio(y, x))


@quiet
def quotient_difference(y1, x1, y2, x2, difference=None):
    """(y1/x1)/(y2/x2) - 1 of positive numbers, to the last digits for close quotients of whatever numbers.

    It is (y1 x2 - y2 x1)/(y2 x1), the products with what rounding leaves of them; or, where the difference x2 - x1 is
    known better than from the two, from differences of like numbers.
    """
    if difference is not None:
        return difference / x1 * (y1 / y2) + (y1 - y2) / y2
    (y1, i), (x2, j), (y2, k), (x1, m) = (np.frexp(number) for number in (y1, x2, y2, x1))
    first, first_rest = exact_product(y1, x2)
    second, second_rest = exact_product(y2, x1)
    exponents = i + j - k - m  # the exponents of the products
    return (np.ldexp(first, exponents) - second + (np.ldexp(first_rest, exponents) - second_rest)) / second


def exact_product(a, b):
    """The product of numbers of size one as a rounded number and what rounding left of it [D]_."""
    (a_high, a_low), (b_high, b_low) = _halves(a), _halves(b)
    product = a * b
    return product, a_high * b_high - product + a_high * b_low + a_low * b_high + a_low * b_low


def _halves(a):
    """The upper and the lower half of the digits."""
    shifted = (2.0**27 + 1.0) * a
    high = shifted - (shifted - a)
    return high, a - high


@quiet
def binet(a):
    """R(a) = lgamma(a) - (a - 1/2) log a + a - log(2 pi)/2."""
    a = np.asarray(a, dtype=np.float64)
    high, is_small = 1.0 / np.maximum(a, LARGE_SHAPE), a < LARGE_SHAPE
    out = np.asarray(high * np.polynomial.polynomial.polyval(high * high, BINET_COEFFICIENTS))
    low = a[is_small]
    out[is_small] = special.gammaln(low) - (low - 0.5) * np.log(low) + low - 0.5 * LOG_2PI
    return out[()]


@quiet
def binet_slope(a):
    """The derivative of R: digamma(a) - log a + 1/(2 a)."""
    low, high = np.minimum(a, LARGE_SHAPE), 1.0 / np.maximum(a, LARGE_SHAPE)
    coefficients = [-(2 * k + 1) * c for k, c in enumerate(BINET_COEFFICIENTS)]
    series = high * high * np.polynomial.polynomial.polyval(high * high, coefficients)
    return np.where(np.asarray(a) < LARGE_SHAPE, special.digamma(low) - np.log(low) + 0.5 / low, series)


@quiet
def log_gamma_ratio(a, b):
    """lgamma(a + b) - lgamma(a) for b >= 0."""
    a, b = np.asarray(a, dtype=np.float64), np.asarray(b, dtype=np.float64)
    direct = special.gammaln(a + b) - special.gammaln(a)
    series = b * (np.log(a) - 1.0) + (a + b - 0.5) * np.log1p(b / a) + (binet(a + b) - binet(a))
    return np.where(a < LARGE_SHAPE, direct, series)


def stirling(a):
    """a log a - a - lgamma(a)."""
    return 0.5 * (np.log(a) - LOG_2PI) - binet(a)


def shape_entropy(a):
    """lgamma(a) - a digamma(a) + a."""
    low = np.minimum(a, LARGE_SHAPE)
    direct = special.gammaln(low) - low * special.digamma(low) + low
    series = 0.5 * (1.0 + LOG_2PI - np.log(a)) + binet(a) - a * binet_slope(a)
    return np.where(np.asarray(a) < LARGE_SHAPE, direct, series)


@quiet
def binet_divergence(b, a, difference=None):
    """R(b) - R(a) - (b - a) R'(a) >= 0, the Bregman divergence of R; `difference` is b - a, where known better."""
    b, a, difference = np.broadcast_arrays(b, a, np.subtract(b, a) if difference is None else difference)
    result = np.asarray(binet(b) - binet(a) - (b - a) * binet_slope(a))
    near = (b <= 2.0 * a) & (a <= 2.0 * b)
    large = np.minimum(a, b) >= LARGE_SHAPE
    for rows, method in ((near & large, _expanded), (near & ~large, _shifted)):
        if np.any(rows):
            result[rows] = method(b[rows], a[rows], difference[rows])
    return result


def _expanded(b, a, difference):
    """The divergence term by term: with s = a/b, b^-n - a^-n + n (b - a) a^(-n-1) is positive in every factor.

    It is a^-n (1 - s)^2/s times the sum over j < n of 1 + s + ... + s^j.
    """
    s, inverse = a / b, 1.0 / a
    geometric, double, power, total = np.zeros_like(s), np.zeros_like(s), np.ones_like(s), np.zeros_like(s)
    for j in range(2 * len(BINET_COEFFICIENTS) - 1):
        geometric = geometric * s + 1.0
        double = double + geometric
        power = power * inverse
        if j % 2 == 0:
            total = total + BINET_COEFFICIENTS[j // 2] * power * double
    return (difference / b) ** 2 / s * total


def _shifted(b, a, difference):
    """The divergence below `LARGE_SHAPE`, moved there by lgamma(a) = lgamma(a + 1) - log a: all terms positive."""
    steps = np.arange(LARGE_SHAPE)
    low = a[..., None] + steps
    total = np.sum(excess(b[..., None] + steps, low, difference[..., None] / low), axis=-1)
    B, A = b + LARGE_SHAPE, a + LARGE_SHAPE
    total += B * excess(A, B, -difference / B) + 0.5 * excess(B, A, difference / A) + _expanded(B, A, difference)
    return total - b * excess(a, b, -difference / b) - 0.5 * excess(b, a, difference / a)


def shape_divergence(a, b, difference=None):
    """KL between Gamma variables of one mean and shapes a, b; the last argument is b - a where known better."""
    if type(b) is float and difference is None:  # one pair of shapes, as in most sweeps of a fit
        if type(a) is float:
            return _shape_divergence_once(a, b)
        if np.size(a) and (a == a.flat[0]).all():
            return np.full(a.shape, _shape_divergence_once(float(a.flat[0]), b))
    return _shape_divergence(a, b, difference)


@lru_cache(maxsize=128)
def _shape_divergence_once(a, b):
    return float(_shape_divergence(a, b, None))


def _shape_divergence(a, b, difference):
    u = None if difference is None else difference / a
    return 0.5 * excess(b, a, u) + binet_divergence(b, a, difference)


def wishart_shape_divergence(nu_p, nu_q, dim):
    """KL between Wishart variables of one mean and dim x dim, from their degrees of freedom, (...)."""
    # the gamma factors have shapes nu/2 - step; with x = nu_p/2, y = nu_q/2 their means add
    # (y - s) excess(x - s, y - s) - y excess(x, y) = s excess(y - s, x - s) - y excess((y - s)/y, (x - s)/x)
    nu_p, nu_q, steps = np.asarray(nu_p)[..., None], np.asarray(nu_q)[..., None], 0.5 * np.arange(dim)
    a, b, difference = 0.5 * nu_p - steps, 0.5 * nu_q - steps, 0.5 * (nu_q - nu_p)
    u = difference / a
    shifted = steps * excess(b, a, u) - 0.5 * nu_q * excess(b / (0.5 * nu_q), a / (0.5 * nu_p), 2.0 * steps * u / nu_q)
    return np.sum(shape_divergence(a, b, difference) + shifted, axis=-1)


@quiet
def beta_cdf(a, b, x):
    """The distribution function I_x(a, b) of Beta(a, b) variables, a, b > 0 and x in [0, 1].

    Of large shapes the first term of a uniform expansion [T]_, as SciPy's takes a time there that grows with their
    root, and loses digits: up to 1e-3 at shapes of 1e14.
    """
    a, b, x = np.broadcast_arrays(a, b, x)
    large = np.minimum(a, b) > LARGE_BETA_SHAPE
    out = np.asarray(special.betainc(np.where(large, 1.0, a), np.where(large, 1.0, b), x))
    if not large.any():
        return out
    a, b, x = a[large], b[large], x[large]
    n, mu = a + b, a / (a + b)
    d = x - mu
    u, v, s = d / mu, -d / (1.0 - mu), np.sqrt(mu * (1.0 - mu))
    eta = np.copysign(np.sqrt(2.0 * (mu * gap(u, np.log1p(u)) + (1.0 - mu) * gap(v, np.log1p(v)))), d)
    term = np.where(np.abs(eta) < SMALL_ETA, (1.0 - 2.0 * mu) / (3.0 * s), 1.0 / eta - s / d)
    out[large] = special.ndtr(eta * np.sqrt(n)) + np.exp(-0.5 * n * eta**2) / np.sqrt(2.0 * np.pi * n) * term
    return out
