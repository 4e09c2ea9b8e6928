"""Likelihoods of positive numbers: the mean is exp(f)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from cavity.base import arrays
from cavity.base.constants import LOG_2PI
from cavity.base.lazy_scipy import special
from cavity.base.public_objects import ArrayLike, FloatArray, FloatOrArray
from cavity.base.special import binet, gamma_probability, gap, quiet, stirling
from cavity.likelihoods import predictive
from cavity.likelihoods.base import GAMMA, SHARED_ZERO, TWEEDIE, _Compiled
from cavity.likelihoods.counts import _draw_poisson, _log_ratio, _log_stirling, check_rows
from cavity.likelihoods.parameters import check_closed

MIN_VARIANCE_RATIO = 1e-8  # of observations over their squared mean, at which a search for it starts
MAX_EXPONENT = 600.0  # of exp(x) in products
# sd of the number of terms' sum: up to here terms are added one by one, above by the trapezoidal rule
MAX_SUMMED_SD, SUMMED_TERMS = 8.0, 161
TRAPEZOIDAL_NODES = np.linspace(-9.0, 9.0, 41)  # in sd
MIN_SKIPPED_TERMS = 100.0  # mean number of terms above which there are always some
MAX_STEPS_POWER = 0.03  # of power - 1, below which few numbers of terms leave a sum's side of y open
MAX_SKIPPED_SHARE = 1e-3  # of the variance of the number of terms, in the square of a step over 0.6
MAX_LOG_TERMS = 60.0  # log of the number of terms beyond which their sum is its limit


class _Scaled:
    """Observations that are exp(slope f) times a variable that does not depend on f.

    `_spread()` returns the log of the mean of that variable and its variance over its squared mean.
    """

    __slots__ = ()
    link = "log"
    _slope = 1.0

    def conditional_mean(self, f: Any) -> FloatOrArray:
        """Mean of y given f; see `Likelihood.conditional_mean`."""
        return np.exp(self._spread()[0] + self._slope * np.asarray(f))

    def conditional_variance(self, f: Any) -> FloatOrArray:
        """Variance of y given f; see `Likelihood.conditional_variance`."""
        return self._spread(2)[1] * self.conditional_mean(f) ** 2

    def expected(self, mean: ArrayLike, variance: ArrayLike) -> FloatOrArray:
        """Mean of a new observation, from that of exp(slope f); see `Likelihood.expected`."""
        return np.exp(self._spread()[0] + self._slope * np.asarray(mean) + 0.5 * self._slope**2 * np.asarray(variance))

    def moments(self, mean: ArrayLike, variance: ArrayLike) -> tuple[Any, Any]:
        """Mean and variance of a new observation; see `Likelihood.moments`."""
        total, v = self.expected(mean, variance), self._slope**2 * np.asarray(variance)
        return total, total**2 * (np.expm1(v) + self._spread(2)[1] * np.exp(v))

    def quantile(self, q: Any, mean: ArrayLike, variance: ArrayLike) -> FloatOrArray:
        """Quantiles, found on the log scale; see `Likelihood.quantile`."""
        check_closed(self)
        return np.exp(predictive.find_quantiles(_Logs(self), q, mean, variance))


class _Logs:
    """The logs of observations as observations of their own, for the search for quantiles."""

    discrete = False

    def __init__(self, likelihood):
        self.likelihood = likelihood

    def cdf(self, y, f):
        with np.errstate(over="ignore"):
            return self.likelihood.cdf(np.exp(y), f)

    def conditional_mean(self, f):
        return self.likelihood._slope * f

    def conditional_variance(self, f):
        return np.ones(np.shape(f))


@dataclass(frozen=True, slots=True)
class Gamma(_Scaled, _Compiled):
    """Positive numbers with mean mu = exp(f) and variance mu^2/shape.

    p(y|f) = (shape y/mu)^shape exp(-shape y/mu)/(y Gamma(shape)).

    Parameters
    ----------
    shape : float or None, default None
        shape > 0; 1 is the exponential distribution, and the standard deviation is mu/sqrt(shape). None for the fit to
        find it.

    Examples
    --------
    >>> import cavity
    >>> prices = cavity.likelihoods.Gamma(shape=2.0)
    >>> log_z, d1, d2 = prices.log_tilted(1.7, 0.4, 0.9)
    >>> round(float(log_z), 9), round(float(0.4 + 0.9 * d1), 9)
    (-1.67824564, 0.583918514)
    """

    shape: float | None = None

    _kind = GAMMA
    _merges_by = "mean"
    _encodes_alone = True
    parameters: ClassVar[Mapping[str, str]] = {"shape": "positive"}

    def _parameters(self):
        return self.shape, np.log(self.shape), stirling(self.shape)

    def _encode(self, y):
        return np.log(y), SHARED_ZERO

    def check(self, y: Any) -> FloatArray:
        """Accept positive numbers.

        Parameters
        ----------
        y : array_like, shape (N,)
            Observations.

        Returns
        -------
        ndarray, shape (N,)
            The numbers, as float64.
        """
        array = arrays.check_finite_array(y, "y", ndim=(0, 1))
        hint = "; Tweedie has zeros too, and Gaussian or StudentT numbers of either sign"
        check_rows(array > 0, array, "y must hold positive numbers for Gamma", hint)
        return array

    def starting_values(self, y: Any, fitted: Any) -> dict[str, Any]:
        """By the variance of y at means exp(fitted); see `Likelihood.starting_values`."""
        return {"shape": 1.0 / _measure_variance_ratio(np.log(y) - fitted)}

    def _spread(self, order=1):
        check_closed(self)
        return 0.0, 1.0 / self.shape

    def log_p(self, y: Any, f: Any) -> FloatOrArray:
        """Log density; see `Likelihood.log_p`."""
        check_closed(self)
        y, f = np.asarray(y, dtype=np.float64), np.asarray(f, dtype=np.float64)
        with np.errstate(over="ignore", divide="ignore", invalid="ignore"):
            below = -_log_ratio(y, f, np.exp(f))  # log of y/mean
            # a log(a x) - a x - log Gamma(a) = a (log x - x + 1) + (a log a - a - log Gamma(a))
            return stirling(self.shape) - np.log(y) - self.shape * gap(np.expm1(below), below)

    def cdf(self, y: Any, f: Any) -> FloatOrArray:
        """Distribution function; see `Likelihood.cdf`."""
        check_closed(self)
        return gamma_probability(self.shape, self.shape * _divide_by_exp(np.maximum(y, 0.0), f))

    def draw(self, f: Any, rng: np.random.Generator) -> FloatOrArray:
        """Draw positive numbers; see `Likelihood.draw`."""
        check_closed(self)
        return np.exp(f) * (rng.gamma(self.shape, size=np.shape(f)) / self.shape)


@dataclass(frozen=True, slots=True)
class Tweedie(_Compiled):
    """Numbers that are zero or positive, with mean mu = exp(f) and variance dispersion mu^power, 1 < power < 2.

    They are sums of Poisson many Gamma variables, of none with probability
    exp(-mu^(2 - power)/(dispersion (2 - power))): rain, costs of a year, catches. The likelihood of a zero
    rises as f falls, without a maximum.

    Parameters
    ----------
    power : float or None, default None
        In (1, 2): close to 1 y has the lattice of a count, close to 2 it is Gamma's. None for the fit to find it.
    dispersion : float or None, default None
        Positive; in units of y to the power of 2 - power. None for the fit to find it.

    References
    ----------
    P. K. Dunn and G. K. Smyth, "Series evaluation of Tweedie exponential dispersion model densities", Statistics and
    Computing 15, 2005.

    Examples
    --------
    >>> import cavity
    >>> rain = cavity.likelihoods.Tweedie(power=1.5, dispersion=2.0)
    >>> rain.log_tilted([0.0, 3.0], 0.4, 0.9)[0].round(6).tolist()
    [-1.190238, -2.6383]
    """

    power: float | None = None
    dispersion: float | None = None

    _kind = TWEEDIE
    _merges_by = "mean"
    link = "log"
    _slope = 1.0
    parameters: ClassVar[Mapping[str, str]] = {"power": "between 1 and 2", "dispersion": "positive"}

    def _parameters(self):
        return self.dispersion, self.power

    def _encode(self, y):
        constant = np.zeros(y.size)
        constant[y > 0] = self._constant(y[y > 0])
        return y, constant

    def check(self, y: Any) -> FloatArray:
        """Accept zeros and positive numbers.

        Parameters
        ----------
        y : array_like, shape (N,)
            Observations.

        Returns
        -------
        ndarray, shape (N,)
            The numbers, as float64.
        """
        array = arrays.check_finite_array(y, "y", ndim=(0, 1))
        hint = "; Gaussian or StudentT have numbers of either sign"
        check_rows(array >= 0, array, "y must hold zeros and positive numbers for Tweedie", hint)
        return array

    def starting_values(self, y: Any, fitted: Any) -> dict[str, Any]:
        """By the variance of y at means exp(fitted); see `Likelihood.starting_values`."""
        power = 1.5 if self.power is None else self.power
        size = float(np.max(y)) or 1.0
        mean = np.exp(fitted - np.max(fitted))
        mean *= max(float(np.sum(y / size)), MIN_VARIANCE_RATIO) / float(np.sum(mean))
        ratio = float(np.mean((y / size - mean) ** 2)) / float(np.mean(mean**power))
        return {"power": power, "dispersion": max(ratio, MIN_VARIANCE_RATIO) * size ** (2.0 - power)}

    def _split_power(self):
        """2 - p and p - 1."""
        check_closed(self)
        return 2.0 - self.power, self.power - 1.0

    def _log_terms(self, f):
        """Log of the mean number of terms, exp((2 - p) f)/(dispersion (2 - p))."""
        b = self._split_power()[0]
        return b * f - np.log(self.dispersion) - np.log(b)

    def _constant(self, y):
        """log p(y|f) at f = log y, where it is highest, for y > 0.

        With n = y^(2-p)/(dispersion (2-p)) terms of shape a = (2-p)/(p-1) it is -log y + log(a)/2 - log(2 pi) and the
        log of the sum over j of exp(-(1 + a) j (n/j - 1 - log n/j) - R(j) - R(j a)), R Binet's remainder: the terms
        have no large parts that cancel, and the trapezoidal rule adds them where they are many.
        """
        (b, c), log_y = self._split_power(), np.log(y)
        log_n, a = self._log_terms(log_y), b / c
        n = np.exp(np.minimum(log_n, MAX_LOG_TERMS))[..., None]
        sd = np.sqrt(n * c)  # of the number of terms given their sum; 1 + a = 1/c
        many = sd > MAX_SUMMED_SD
        single = np.maximum(np.floor(n) - SUMMED_TERMS // 2, 1.0) + np.arange(SUMMED_TERMS)
        deviation = sd * np.resize(TRAPEZOIDAL_NODES, SUMMED_TERMS)
        j = np.where(many, np.maximum(n + deviation, 1.0), single)
        u = np.where(many & (j > 1.0), -deviation, n - j) / j  # n/j - 1
        exponent = -j / c * gap(u, np.log(n / j)) - binet(j) - binet(j * a)
        unused = many & ((np.arange(SUMMED_TERMS) >= TRAPEZOIDAL_NODES.size) | (n + deviation < 1.0))
        total = special.logsumexp(np.where(unused, -np.inf, exponent), axis=-1)
        step = sd[..., 0] * (TRAPEZOIDAL_NODES[1] - TRAPEZOIDAL_NODES[0])
        total = total + np.where(many[..., 0], np.log(step), 0.0)
        limit = -0.5 * (LOG_2PI + np.log(self.dispersion) + self.power * log_y)
        return np.where(log_n < MAX_LOG_TERMS, 0.5 * np.log(a) - LOG_2PI - log_y + total, limit)

    @quiet
    def cdf(self, y: Any, f: Any) -> FloatOrArray:
        """Distribution function, a sum over the number of terms; see `Likelihood.cdf`."""
        (b, c), y, f = self._split_power(), np.asarray(y, dtype=np.float64), np.asarray(f, dtype=np.float64)
        n, a = np.exp(np.minimum(self._log_terms(f), MAX_LOG_TERMS)), b / c
        # y in means of the Gamma variables: beyond four times the expected number the probability is 1
        terms = np.where(n > 0, np.minimum(n * _divide_by_exp(np.maximum(y, 0.0), f), 4.0 * n + 1e3), 1e3)
        terms = np.where(y > 0, terms, 0.0)
        total = _sum_steps(n, terms, a, c) if c < MAX_STEPS_POWER else np.exp(-n) + _sum_terms(n, terms * a, a, c)
        return np.where(y < 0, 0.0, np.minimum(total, 1.0))

    def quantile(self, q: Any, mean: ArrayLike, variance: ArrayLike) -> FloatOrArray:
        """Quantiles, zero up to the probability of it; see `Likelihood.quantile`."""
        q, mean, variance = np.broadcast_arrays(q, mean, variance)
        out, columns = np.zeros(q.size), (q.ravel(), mean.ravel(), variance.ravel())
        zero = predictive.integrate(lambda f, _: np.exp(-np.exp(self._log_terms(f))), *columns[1:])
        rows = columns[0] > zero
        out[rows] = np.exp(predictive.find_quantiles(_Logs(self), *(column[rows] for column in columns)))
        return out.reshape(q.shape)[()]

    @quiet
    def log_p(self, y: Any, f: Any) -> FloatOrArray:
        """Log density, at zero log probability; see `Likelihood.log_p`."""
        y, f = np.asarray(y, dtype=np.float64), np.asarray(f, dtype=np.float64)
        b, c = self._split_power()
        positive_y = np.where(y > 0, y, 1.0)
        d = _log_ratio(positive_y, f, np.exp(f))  # log of mean/y
        log_scale = b * np.log(positive_y) - np.log(self.dispersion)
        deviance = _grow(log_scale, b * d) / b + _grow(log_scale, -c * d) / c
        return np.where(y > 0, self._constant(positive_y) - deviance, -np.exp(self._log_terms(f)))

    def conditional_mean(self, f: Any) -> FloatOrArray:
        """Mean exp(f); see `Likelihood.conditional_mean`."""
        return np.exp(f)

    def conditional_variance(self, f: Any) -> FloatOrArray:
        """Variance dispersion mu^power; see `Likelihood.conditional_variance`."""
        check_closed(self)
        return self.dispersion * np.exp(self.power * np.asarray(f))

    def expected(self, mean: ArrayLike, variance: ArrayLike) -> FloatOrArray:
        """Mean of a new observation, E exp(f); see `Likelihood.expected`."""
        return np.exp(mean + 0.5 * variance)

    def moments(self, mean: ArrayLike, variance: ArrayLike) -> tuple[Any, Any]:
        """Mean and variance of a new observation, from those of exp(f); see `Likelihood.moments`."""
        total, p = self.expected(mean, variance), self.power
        return total, self.conditional_variance(mean + 0.5 * p * variance) + total**2 * np.expm1(variance)

    def draw(self, f: Any, rng: np.random.Generator) -> FloatOrArray:
        """Draw sums of Poisson many Gamma variables; see `Likelihood.draw`."""
        b, c = self._split_power()
        count = _draw_poisson(np.exp(self._log_terms(f)), rng)
        scale = np.exp(np.log(self.dispersion * c) + c * np.asarray(f))
        return np.where(count > 0, scale * rng.gamma(np.where(count > 0, count * (b / c), 1.0)), 0.0)


def _poisson_density(n, j):
    """exp(-n) n^j/Gamma(j + 1) for j > 0."""
    return np.exp(-j * gap((n - j) / j, np.log(n / j)) - _log_stirling(j))


def _sum_terms(n, scaled, a, c):
    """The probability of sums in (0, scaled] of Poisson(n) many Gamma(a) variables, over the number of terms."""
    # their number given the sum has sd sqrt(n c), far wider than a step: every step-th is enough
    step = np.where(n > MIN_SKIPPED_TERMS, np.maximum(np.floor(0.6 * np.sqrt(n * c)), 1.0), 1.0)
    half = np.ceil((9.5 * np.sqrt(n) + 12.0) / step)
    first, total = np.maximum(np.floor(n) - step * half, 1.0), np.zeros(np.broadcast_shapes(n.shape, scaled.shape))
    for k in range(2 * int(np.max(half, initial=0.0)) + 1):
        j = first + k * step
        total = total + _poisson_density(n, j) * gamma_probability(j * a, scaled)
    return step * total


def _sum_steps(n, terms, a, c):
    """The probability that Poisson(n) many Gamma(a) variables of mean 1 add up to at most `terms`, for large a.

    It is E H(J), J the number of such variables that fit into `terms` and H the distribution function of their
    number: J has sd sqrt(terms/a), far less than the sqrt(n) of the number, and no other J is visited. With
    G(j) = P(J >= j) and H(j + 1/2) = (1/D) p(j) for the Poisson density p and D the derivative it is, for any step s,
    the sum over j of every s-th G(j - s/2) - G(j + s/2) times (s/2)/sinh(s D/2) p(j), whose series in s D is cut
    after the fourth power: what is left is below 1e-12 for the steps that are taken.
    """
    step = np.maximum(np.floor(0.6 * np.sqrt(terms * min(c, MAX_SKIPPED_SHARE))), 1.0)
    half = np.ceil(10.0 * np.sqrt(terms / a) / step + 3.0)
    edge, total = np.maximum(np.floor(terms) - step * half, 0.0), 0.0
    reached = np.ones(np.broadcast_shapes(n.shape, terms.shape))
    for _ in range(2 * int(np.max(half, initial=0.0)) + 1):
        j = edge + 0.5 * step
        edge = edge + step
        reached_next = gamma_probability(edge * a, terms * a)
        ratio = np.log(n / j)  # (log p)' = ratio - 1/(2 j) + ...
        slope = -(step**2 - 1.0) / 24.0 * (ratio - 0.5 / j)
        slope = slope + 7.0 * (step**4 - 1.0) / 5760.0 * (ratio**2 - 3.0 / j) * ratio
        skipped = np.where((step > 1.0) & (n > 0.0), _poisson_density(n, j) * slope, 0.0)
        total = total + (reached - reached_next) * (gamma_probability(j + 0.5, n, above=True) + skipped)
        reached = reached_next
    return total


def _measure_variance_ratio(log_ratio):
    """The variance of exp(log_ratio) over its squared mean, or what a search may start from."""
    ratio = np.exp(log_ratio - np.max(log_ratio))
    ratio /= np.mean(ratio)
    return max(float(np.mean((ratio - 1.0) ** 2)), MIN_VARIANCE_RATIO)


def _divide_by_exp(y, f):
    """y/exp(f) for y >= 0, also where exp(f) leaves the range of float64."""
    with np.errstate(over="ignore", divide="ignore"):
        return np.where(np.abs(f) < MAX_EXPONENT, y * np.exp(-np.asarray(f)), np.exp(np.log(y) - f))


def _grow(log_scale, x):
    """exp(log_scale) (exp(x) - 1 - x), which may leave the range of float64 as a whole only."""
    bounded = np.minimum(x, MAX_EXPONENT)
    inside = np.exp(np.minimum(log_scale, MAX_EXPONENT)) * gap(np.expm1(bounded), bounded)
    return np.where(x < MAX_EXPONENT, inside, np.exp(log_scale + x))
