"""Likelihoods of counts."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from cavity.base import arrays
from cavity.base.constants import LOG_2PI
from cavity.base.lazy_scipy import special
from cavity.base.public_objects import ArrayLike, FloatArray, FloatOrArray
from cavity.base.special import binet, gamma_probability, gap
from cavity.likelihoods import predictive
from cavity.likelihoods.base import BINOMIAL, NEGATIVE_BINOMIAL, POISSON, _Compiled
from cavity.likelihoods.parameters import check_closed

MAX_DRAWN_RATE = 9.2e18  # of counts that are drawn
MAX_SHAPE = 1e100  # beyond which a Gamma variable is its mean, and a Beta variable like a Gamma variable ...
MAX_OTHER_SHAPE = 1e40  # ... if its other shape is below this
NO_COUNTS_DISPERSION = 1e-8  # where a search starts, of counts that are all 0: their probability is nearly 1 then


def check_rows(good, y, message, hint=""):
    """Raise ValueError with the message, the first observation that is not good, its row, and what to do about it."""
    if not np.all(good):
        row = int(np.argmin(np.atleast_1d(good)))
        values = " and ".join(repr(float(value)) for value in y.reshape(np.size(good), -1)[row])
        raise ValueError(f"{message}; got {values} in row {row}{hint}")


def check_counts(y, name="y"):
    array = arrays.check_finite_array(y, name, ndim=(0, 1))
    hint = "; Gamma has positive numbers, Tweedie zeros too, and Gaussian or StudentT numbers of either sign"
    counts = (array >= 0) & (array == np.floor(array))
    check_rows(counts, array, f"{name} must hold whole numbers, not negative", hint if name == "y" else "")
    return array


class _Counts(_Compiled):
    """Whole numbers, whose mean is exp(f) or a part of that."""

    __slots__ = ()
    discrete = takes_exposure = True

    def check(self, y: Any) -> FloatArray:
        """Accept counts: whole numbers, not negative.

        Parameters
        ----------
        y : array_like, shape (N,)
            Counts.

        Returns
        -------
        ndarray, shape (N,)
            The counts, as float64.
        """
        return check_counts(y)

    def start(self, y: Any) -> FloatArray | None:
        """Logs of the counts and a half; see `Likelihood.start`."""
        return np.log(y + 0.5)


class _Count(_Counts):
    """Counts whose mean is exp(f)."""

    __slots__ = ()

    def conditional_mean(self, f: Any) -> FloatOrArray:
        """Mean exp(f); see `Likelihood.conditional_mean`."""
        return np.exp(f)

    def expected(self, mean: ArrayLike, variance: ArrayLike) -> FloatOrArray:
        """Mean of a new count, E exp(f); see `Likelihood.expected`."""
        return np.exp(mean + 0.5 * variance)

    def moments(self, mean: ArrayLike, variance: ArrayLike) -> tuple[Any, Any]:
        """Mean and variance of a new count, from those of exp(f); see `Likelihood.moments`."""
        rate = np.exp(mean + 0.5 * variance)  # E exp(f); E exp(2 f) is its square times exp(variance)
        return rate, rate + rate**2 * (np.expm1(variance) + self._overdispersion() * np.exp(variance))

    def _overdispersion(self):
        """What Var[y | f] is beyond exp(f), in units of exp(2 f)."""
        return 0.0


@dataclass(frozen=True, slots=True)
class Poisson(_Count):
    """Counts with mean exp(f): p(y|f) = exp(y f - exp(f))/y!."""

    _kind = POISSON
    _merges_by = "mean"

    def _encode(self, y):
        return y, -_tabulate(_log_stirling, y)

    def log_p(self, y: Any, f: Any) -> FloatOrArray:
        """Log probability; see `Likelihood.log_p`."""
        y = np.asarray(y, dtype=np.float64)
        positive_y = np.where(y > 0, y, 1.0)
        with np.errstate(over="ignore"):
            mean = np.exp(f)
            above = _log_ratio(positive_y, f, mean)  # log of mean/y
            below = positive_y * gap((mean - positive_y) / positive_y, above)
        return np.where(y > 0, -below - _log_stirling(y), -mean)

    def conditional_variance(self, f: Any) -> FloatOrArray:
        """Variance exp(f); see `Likelihood.conditional_variance`."""
        return np.exp(f)

    def cdf(self, y: Any, f: Any) -> FloatOrArray:
        """Probability of a count up to y; see `Likelihood.cdf`."""
        y = np.floor(y)
        shape = np.maximum(y, 0.0) + 1.0
        far = shape > MAX_SHAPE  # the count is its mean, to the last digit
        inside = gamma_probability(np.where(far, 1.0, shape), np.exp(f), above=True)
        return np.where(y < 0, 0.0, np.where(far, np.heaviside(np.log(shape) - f, 0.5), inside))

    def draw(self, f: Any, rng: np.random.Generator) -> FloatOrArray:
        """Draw counts; see `Likelihood.draw`."""
        return _draw_poisson(np.exp(f), rng)


@dataclass(frozen=True, slots=True)
class NegativeBinomial(_Count):
    """Counts with mean mu = exp(f) and variance mu + mu^2/dispersion.

    Parameters
    ----------
    dispersion : float or None, default None
        r > 0; the counts become Poisson as it grows. None for the fit to find it.
    """

    dispersion: float | None = None

    _kind = NEGATIVE_BINOMIAL
    _merges_by = "mean"
    parameters: ClassVar[Mapping[str, str]] = {"dispersion": "positive"}

    def starting_values(self, y: Any, fitted: Any) -> dict[str, Any]:
        """By the moments of y at means exp(fitted); see `Likelihood.starting_values`."""
        if not np.any(y):
            return {"dispersion": NO_COUNTS_DISPERSION}
        shape = np.exp(fitted - np.max(fitted))
        mean = shape * (max(float(np.sum(y)), 0.5) / float(np.sum(shape)))
        more = float(np.sum((y - mean) ** 2 - mean))  # than a Poisson variance
        squares = float(np.sum(mean**2))
        return {"dispersion": squares / max(more, 0.01 * squares)}

    def _parameters(self):
        return self.dispersion, np.log(self.dispersion)

    def _constant(self, y, dispersion=None):
        """The maximum of log p in f, by the remainders of log Gamma [L]_: nothing cancels at large dispersions."""
        r, positive_y = self.dispersion if dispersion is None else dispersion, np.where(y > 0, y, 1.0)
        n = r + positive_y
        remainder = binet(n) - binet(r) - _tabulate(binet, positive_y)
        return np.where(y > 0, remainder + 0.5 * (np.log(r / n) - np.log(2 * np.pi * positive_y)), 0.0)

    def _encode(self, y):
        return y, _tabulate(self._constant, y)

    def _encode_responses(self, y, free, vectors):
        if not free.names:
            return _Count._encode_responses(self, y, free, vectors)
        parameters = np.zeros((len(y), 6))
        parameters[:, 0] = np.exp(vectors[:, 0])
        parameters[:, 1] = np.log(parameters[:, 0])
        return parameters, y, self._constant(y, parameters[:, :1])

    def log_p(self, y: Any, f: Any) -> FloatOrArray:
        """Log probability; see `Likelihood.log_p`."""
        check_closed(self)
        y, r = np.asarray(y, dtype=np.float64), self.dispersion
        positive_y = np.where(y > 0, y, 1.0)
        n = r + positive_y
        with np.errstate(over="ignore"):
            above = _log_ratio(positive_y, f, np.exp(f))
        below = n * _log_mean_rest(positive_y / n, r / n, above)
        return np.where(y > 0, self._constant(y) - below, -r * np.logaddexp(0.0, f - np.log(r)))

    def conditional_variance(self, f: Any) -> FloatOrArray:
        """Variance mu + mu^2/dispersion; see `Likelihood.conditional_variance`."""
        check_closed(self)
        mean = np.exp(f)
        return mean + mean**2 / self.dispersion

    def _overdispersion(self):
        check_closed(self)
        return 1.0 / self.dispersion

    def cdf(self, y: Any, f: Any) -> FloatOrArray:
        """Probability of a count up to y; see `Likelihood.cdf`."""
        check_closed(self)
        y = np.floor(y)
        odds = f - np.log(self.dispersion)
        inside = _find_tail_probability(
            np.maximum(y, 0.0) + 1.0, self.dispersion, special.expit(odds), special.expit(-odds)
        )
        return np.where(y < 0, 0.0, inside)

    def draw(self, f: Any, rng: np.random.Generator) -> FloatOrArray:
        """Draw counts: those of Poisson, of a rate that is a Gamma variable; see `Likelihood.draw`."""
        check_closed(self)
        return _draw_poisson(rng.gamma(self.dispersion, np.exp(f) / self.dispersion), rng)


class _Trials:
    """Successes in numbers of trials."""

    __slots__ = ()
    _y_ndim = 2
    discrete = takes_trials = True

    def _encode(self, y):
        return np.ascontiguousarray(y[:, 0]), np.ascontiguousarray(y[:, 1] - y[:, 0])

    def check(self, y: Any) -> FloatArray:
        """Accept successes and trials.

        Parameters
        ----------
        y : array_like, shape (N, 2) or (2,)
            Successes and trials, whole numbers.

        Returns
        -------
        ndarray, shape (N, 2)
            The numbers, as float64.
        """
        array = arrays.check_finite_array(y, "y")
        if array.ndim not in (1, 2) or array.shape[-1] != 2:
            raise ValueError(f"y must have shape (N, 2), successes and trials each, got {array.shape}")
        good = np.all(array == np.floor(array), axis=-1) & (array[..., 0] >= 0) & (array[..., 0] <= array[..., 1])
        message = "y must hold successes and trials, whole numbers, at least 0 and at most as many successes as trials"
        check_rows(good, array, message)
        return array

    def expected(self, mean: ArrayLike, variance: ArrayLike, trials: Any = 1.0) -> FloatOrArray:
        """Mean of the successes; see `Likelihood.expected`."""
        return trials * predictive.integrate(lambda f, _: self.conditional_mean(f), mean, variance)

    def moments(self, mean: ArrayLike, variance: ArrayLike, trials: Any = 1.0) -> tuple[Any, Any]:
        """Mean and variance of the successes; see `Likelihood.moments`."""
        p, n = self.expected(mean, variance), np.broadcast_to(trials, np.shape(mean))

        def spread(f, i):
            difference = self.conditional_mean(f) - p[i, None]
            count = np.maximum(n[i, None], 1.0)
            return self.conditional_variance(f, count) / count + count * difference**2

        return n * p, n * predictive.integrate(spread, mean, variance)

    def quantile(self, q: Any, mean: ArrayLike, variance: ArrayLike, trials: Any = 1.0) -> FloatOrArray:
        """Quantiles of the successes; see `Likelihood.quantile`."""
        return predictive.find_quantiles(self, q, mean, variance, trials)


@dataclass(frozen=True, slots=True)
class Binomial(_Trials, _Compiled):
    """Numbers of successes in numbers of trials, each of which succeeds with a probability that f says.

    Observations have shape (N, 2), successes and trials each; a row without trials tells nothing. Where new ones are
    predicted, `trials` says of how many trials they are, by default of one: `expected` is then the probability.

    Parameters
    ----------
    link : {"logit", "probit"}, default "logit"
        Whether the probability is 1/(1 + exp(-f)) or Phi(f).

    Examples
    --------
    >>> import cavity, numpy as np
    >>> survived = cavity.likelihoods.Binomial()
    >>> log_z, d1, d2 = survived.log_tilted([[7, 10], [0, 3]], 0.5, 2.0)
    >>> log_z.round(6).tolist()
    [-2.16249, -1.864253]
    """

    link: str = "logit"

    _kind = BINOMIAL
    _merges_by = "trials"

    def __post_init__(self) -> None:
        arrays.check_choice(self.link, "link", ("logit", "probit"))

    def _parameters(self):
        return (float(self.link == "probit"),)

    def _log_odds(self, f):
        """Logs of the probabilities of success and failure."""
        if self.link == "probit":
            return special.log_ndtr(f), special.log_ndtr(-f)
        return -np.logaddexp(0.0, -f), -np.logaddexp(0.0, f)

    def log_p(self, y: Any, f: Any) -> FloatOrArray:
        """Log probability; see `Likelihood.log_p`. The last axis of y holds successes and trials."""
        y = np.asarray(y, dtype=np.float64)
        k, r = y[..., 0], y[..., 1] - y[..., 0]
        is_mixed = (k > 0) & (r > 0)
        a, b = np.where(is_mixed, k, 1.0), np.where(is_mixed, r, 1.0)
        success, failure = self._log_odds(np.asarray(f, dtype=np.float64))
        above, below = success - _log_share(a, b), failure - _log_share(b, a)
        # beside the maximum the terms a u + b w of the logs of 1 + u and 1 + w cancel
        u, w = np.expm1(np.minimum(above, 1.0)), np.expm1(np.minimum(below, 1.0))
        near = np.maximum(np.abs(u), np.abs(w)) < 0.4
        fall = np.where(near, -(a * gap(u, above) + b * gap(w, below)), a * above + b * below)
        top = binet(a + b) - binet(a) - binet(b) + 0.5 * (np.log((a + b) / a / b) - LOG_2PI)
        edge = np.where(k > 0, k * success, 0.0) + np.where(r > 0, r * failure, 0.0)
        return np.where(is_mixed, top + fall, edge)

    def conditional_mean(self, f: Any, trials: Any = 1.0) -> FloatOrArray:
        """Mean of the successes; see `Likelihood.conditional_mean`."""
        return trials * np.exp(self._log_odds(f)[0])

    def conditional_variance(self, f: Any, trials: Any = 1.0) -> FloatOrArray:
        """Variance of the successes; see `Likelihood.conditional_variance`."""
        success, failure = self._log_odds(f)
        return trials * np.exp(success + failure)

    def cdf(self, y: Any, f: Any, trials: Any = 1.0) -> FloatOrArray:
        """Probability of successes up to y; see `Likelihood.cdf`."""
        y, trials, f = np.broadcast_arrays(np.floor(y), trials, f)
        k = np.clip(y, 0.0, np.maximum(trials - 1.0, 0.0))
        success, failure = (np.exp(log_probability) for log_probability in self._log_odds(f))
        inside = _find_tail_probability(k + 1.0, np.maximum(trials - k, 1.0), success, failure)
        return np.where(y < 0, 0.0, np.where(y >= trials, 1.0, inside))

    def draw(self, f: Any, rng: np.random.Generator, trials: Any = 1) -> FloatOrArray:
        """Draw successes; see `Likelihood.draw`."""
        if np.any(np.asarray(trials) > MAX_DRAWN_RATE):
            raise OverflowError(f"trials must be below 2^63 to be drawn, got {float(np.max(trials)):.3g}")
        return rng.binomial(np.asarray(trials, dtype=np.int64), np.exp(self._log_odds(f)[0]))


def _log_share(a, b):
    """log a/(a + b) of positive numbers."""
    return np.where(a <= b, np.log(a / (a + b)), np.log1p(-b / (a + b)))


def _find_tail_probability(a, b, p, rest):
    """The probability that a Beta(a, b) variable is above p, where rest = 1 - p: the smaller one has its digits.

    For a far above b^2 what is missing of 1 is a Gamma(b) variable over a.
    """
    a, b, p, rest = np.broadcast_arrays(a, b, p, rest)
    far = (a > MAX_SHAPE) & (b < MAX_OTHER_SHAPE)
    small, out = ~far & (p < rest), np.empty(p.shape)
    large = ~far & ~small
    out[small] = special.betaincc(a[small], b[small], p[small])
    out[large] = special.betainc(b[large], a[large], rest[large])
    out[far] = gamma_probability(b[far], a[far] * rest[far])
    return out


def _draw_poisson(rate, rng):
    """Draw counts of given means."""
    if not np.all(rate <= MAX_DRAWN_RATE):
        largest = float(np.max(np.nan_to_num(rate, nan=np.inf, posinf=np.inf)))
        raise OverflowError(f"a count of mean {largest:.3g} cannot be drawn; the largest is 2^63 - 1")
    return rng.poisson(rate)


def _log_ratio(y, f, mean):
    """f - log y for y > 0; where they are close by mean = exp(f), whose rounding error is that of 1, not of log y."""
    q = (mean - y) / y
    near = np.abs(q) < 0.4
    return np.where(near, np.log1p(np.where(near, q, 0.0)), f - np.log(y))


def _log_mean_rest(p, not_p, x):
    """log(p exp(x) + 1 - p) - p x, which is not negative, to its last digits; not_p = 1 - p."""
    w, t = np.where(p <= 0.5, p, not_p), np.where(p <= 0.5, x, -x)
    bounded = np.minimum(t, 700.0)
    rise = np.expm1(bounded)
    log1p = np.log1p(w * rise)
    far = log1p + (t - bounded) - w * t
    return np.where(np.abs(t) < 0.35, w * gap(rise, bounded) - gap(w * rise, log1p), far)


def _tabulate(function, y):
    """function(y) of counts (N,), or of their means, by a table where all are whole and the largest is below N."""
    largest = np.max(y, initial=0.0)
    if largest >= y.size or np.any(y != np.floor(y)):
        return function(y)
    return function(np.arange(largest + 1.0))[y.astype(np.intp)]


def _log_stirling(y):
    """log(y!) - (y log y - y), for y > 0 without cancellation [L]_; 0 for y = 0."""
    x = np.maximum(y, 1.0)
    small = special.gammaln(x + 1.0) - x * np.log(x) + x
    inv = 1.0 / x
    series = inv * (1 / 12 - inv**2 * (1 / 360 - inv**2 * (1 / 1260 - inv**2 / 1680)))
    return np.where(y == 0, 0.0, np.where(x < 16, small, 0.5 * np.log(2 * np.pi * x) + series))
