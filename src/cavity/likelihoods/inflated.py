"""Likelihoods of counts with more zeros, or other ones, than those of Poisson and negative binomial counts."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from cavity.base.lazy_scipy import special
from cavity.base.public_objects import ArrayLike, FloatArray, FloatOrArray
from cavity.base.special import gamma_probability, gap, log_one_minus_exp, quiet
from cavity.likelihoods.base import HURDLE, ZERO_INFLATED
from cavity.likelihoods.counts import NO_COUNTS_DISPERSION, NegativeBinomial, Poisson, _Counts, _draw_poisson
from cavity.likelihoods.parameters import check_closed
from cavity.likelihoods.predictive import integrate

MIN_ZERO_PROBABILITY = 0.01  # where a search for it starts, at least
MANY_ZEROS = 0.95  # a share of zeros of which half is inflation where a search starts
SMALLEST_NUMBER = float(np.finfo(np.float64).tiny)


class _CountWithZeros(_Counts):
    __slots__ = ()
    link = "log"

    def _parameters(self):
        pi = self.zero_probability
        return *(self._counts()._parameters() or (0.0, 0.0)), np.log(pi), np.log1p(-pi)

    def _encode(self, y):
        return self._counts()._encode(y)

    def _counts(self):
        """The likelihood of the counts that are not zero by inflation, or of which none is zero."""
        return Poisson()


class _ZeroInflated(_CountWithZeros):
    """Counts of `_counts()`, or zero with probability `zero_probability`."""

    __slots__ = ()
    _kind = ZERO_INFLATED

    def starting_values(self, y: Any, fitted: Any) -> dict[str, Any]:
        """By the moments of y at means exp(fitted); see `Likelihood.starting_values`."""
        dispersion, zeros = NegativeBinomial().starting_values(y, fitted)["dispersion"], float(np.mean(y == 0))
        # inflation alone makes a variance of mean + mean^2 odds
        share = zeros if zeros > MANY_ZEROS else min(1.0 / (1.0 + dispersion), zeros)
        start = max(0.5 * share, MIN_ZERO_PROBABILITY) if zeros < 1.0 else 1.0 - NO_COUNTS_DISPERSION
        values = {"dispersion": 2.0 * dispersion, "zero_probability": start}
        return {name: values[name] for name in self.parameters}

    @quiet
    def log_p(self, y: Any, f: Any) -> FloatOrArray:
        """Log probability; see `Likelihood.log_p`."""
        check_closed(self)
        y, pi = np.asarray(y, dtype=np.float64), self.zero_probability
        log_counts, log_rest = self._counts().log_p(y, f), np.log1p(-pi)
        # log(pi + (1 - pi) p): by what p lacks of 1 where that is little
        lack = (1.0 - pi) * np.expm1(np.minimum(log_counts, 0.0))
        zero = np.where(lack > -0.5, np.log1p(lack), np.logaddexp(np.log(pi), log_rest + log_counts))
        return np.where(y == 0, zero, log_rest + log_counts)

    def conditional_mean(self, f: Any) -> FloatOrArray:
        """Mean (1 - zero_probability) exp(f); see `Likelihood.conditional_mean`."""
        check_closed(self)
        return (1.0 - self.zero_probability) * np.exp(f)

    def conditional_variance(self, f: Any) -> FloatOrArray:
        """Variance of y given f; see `Likelihood.conditional_variance`."""
        return self.moments(np.asarray(f), 0.0)[1]

    def expected(self, mean: ArrayLike, variance: ArrayLike) -> FloatOrArray:
        """Mean of a new count, from E exp(f); see `Likelihood.expected`."""
        return self.conditional_mean(mean + 0.5 * variance)

    def moments(self, mean: ArrayLike, variance: ArrayLike) -> tuple[Any, Any]:
        """Mean and variance of a new count, from those of exp(f); see `Likelihood.moments`."""
        check_closed(self)
        pi, rate = self.zero_probability, np.exp(mean + 0.5 * variance)
        more = np.expm1(variance) + self._counts()._overdispersion() * np.exp(variance) + pi
        return (1.0 - pi) * rate, (1.0 - pi) * (rate + rate**2 * more)

    def cdf(self, y: Any, f: Any) -> FloatOrArray:
        """Probability of a count up to y; see `Likelihood.cdf`."""
        check_closed(self)
        pi = self.zero_probability
        return np.where(np.asarray(y) < 0, 0.0, pi + (1.0 - pi) * self._counts().cdf(y, f))

    def draw(self, f: Any, rng: np.random.Generator) -> FloatOrArray:
        """Draw counts; see `Likelihood.draw`."""
        check_closed(self)
        return np.where(rng.random(np.shape(f)) < self.zero_probability, 0, self._counts().draw(f, rng))


@dataclass(frozen=True, slots=True)
class ZeroInflatedPoisson(_ZeroInflated):
    """Counts that are zero with some probability, and else those of Poisson with mean exp(f).

    Zeros have log likelihoods in f that are not concave: a site of a zero
    may have a negative precision.

    Parameters
    ----------
    zero_probability : float or None, default None
        In (0, 1), one number for all rows. None for the fit to find it.

    Examples
    --------
    >>> import cavity
    >>> visits = cavity.likelihoods.ZeroInflatedPoisson(zero_probability=0.3)
    >>> visits.log_tilted([0, 4], 0.4, 0.9)[0].round(6).tolist()
    [-0.70403, -3.074507]
    """

    zero_probability: float | None = None

    parameters: ClassVar[Mapping[str, str]] = {"zero_probability": "share"}


@dataclass(frozen=True, slots=True)
class ZeroInflatedNegativeBinomial(_ZeroInflated):
    """Counts that are zero with some probability, and else those of `NegativeBinomial` with mean mu = exp(f).

    Of few rows the two parameters are hardly distinguished, as a small dispersion makes zeros too.

    Parameters
    ----------
    dispersion : float or None, default None
        r > 0; the counts become Poisson as it grows. None for the fit to find it.
    zero_probability : float or None, default None
        In (0, 1), one number for all rows. None for the fit to find it.

    Examples
    --------
    >>> import cavity
    >>> visits = cavity.likelihoods.ZeroInflatedNegativeBinomial(dispersion=2.0, zero_probability=0.3)
    >>> visits.log_tilted([0, 4], 0.4, 0.9)[0].round(6).tolist()
    [-0.60157, -3.276271]
    """

    dispersion: float | None = None
    zero_probability: float | None = None

    parameters: ClassVar[Mapping[str, str]] = {"dispersion": "positive", "zero_probability": "share"}

    def _counts(self):
        return NegativeBinomial(self.dispersion)


@dataclass(frozen=True, slots=True)
class HurdlePoisson(_CountWithZeros):
    """Counts that are zero with some probability, and else those of Poisson with rate exp(f) that are not zero.

    Zeros say nothing about f, and the probability is about the share of zeros: there may be fewer of them than in
    Poisson counts, as well as more.

    Parameters
    ----------
    zero_probability : float or None, default None
        In (0, 1), one number for all rows. None for the fit to find it.

    Examples
    --------
    >>> import cavity
    >>> visits = cavity.likelihoods.HurdlePoisson(zero_probability=0.3)
    >>> visits.log_tilted([0, 1], 0.4, 0.9)[0].round(6).tolist()
    [-1.203973, -1.21373]
    """

    zero_probability: float | None = None

    parameters: ClassVar[Mapping[str, str]] = {"zero_probability": "share"}

    _kind = HURDLE

    def starting_values(self, y: Any, fitted: Any) -> dict[str, Any]:
        """The share of zeros; see `Likelihood.starting_values`."""
        return {"zero_probability": (float(np.sum(y == 0)) + 0.5) / (len(y) + 1.0)}

    @quiet
    def log_p(self, y: Any, f: Any) -> FloatOrArray:
        """Log probability; see `Likelihood.log_p`."""
        check_closed(self)
        y, f = np.asarray(y, dtype=np.float64), np.asarray(f, dtype=np.float64)
        pi, count, rate = self.zero_probability, np.maximum(y, 1.0), np.exp(f)
        small = np.clip(rate, SMALLEST_NUMBER, 1.0)
        # exp(y f - rate)/y! over 1 - exp(-rate) = rate exp(-rate) (1 + (exp(rate) - 1 - rate)/rate)
        few = (count - 1.0) * f - special.gammaln(count + 1.0) - np.log1p(gap(np.expm1(small), small) / small)
        many = Poisson().log_p(count, f) - log_one_minus_exp(f)
        return np.where(y == 0, np.log(pi), np.log1p(-pi) + np.where(rate < 1.0, few, many))

    def conditional_mean(self, f: Any) -> FloatOrArray:
        """Mean of y given f; see `Likelihood.conditional_mean`."""
        check_closed(self)
        return (1.0 - self.zero_probability) * _truncated_mean(f)

    def conditional_variance(self, f: Any) -> FloatOrArray:
        """Variance of y given f; see `Likelihood.conditional_variance`."""
        check_closed(self)
        pi, own = self.zero_probability, 1.0 - self.zero_probability
        return own * _truncated_mean(f) * (1.0 + pi * np.exp(f) - own * _excess(f))

    def expected(self, mean: FloatArray, variance: FloatArray) -> FloatOrArray:
        """Mean of a new count, from E exp(f) and an integral of what is above it; see `Likelihood.expected`."""
        check_closed(self)
        excess = integrate(lambda f, _: _excess(f), mean, variance)
        return (1.0 - self.zero_probability) * (np.exp(mean + 0.5 * variance) + excess)

    @quiet
    def cdf(self, y: Any, f: Any) -> FloatOrArray:
        """Probability of a count up to y; see `Likelihood.cdf`."""
        check_closed(self)
        y, rate = np.floor(y), np.maximum(np.exp(f), SMALLEST_NUMBER)
        count = np.maximum(y, 0.0)
        above = np.where(count > 0, gamma_probability(count + 1.0, rate) / -np.expm1(-rate), 1.0)
        return np.where(y < 0, 0.0, 1.0 - (1.0 - self.zero_probability) * np.minimum(above, 1.0))

    def draw(self, f: Any, rng: np.random.Generator) -> FloatOrArray:
        """Draw counts: of those above zero the first event, and the others after it; see `Likelihood.draw`."""
        check_closed(self)
        rate, shape = np.exp(f), np.shape(f)
        first = -np.log1p(rng.random(shape) * np.expm1(-rate))
        count = 1 + _draw_poisson(np.maximum(rate - first, 0.0), rng)
        return np.where(rng.random(shape) < self.zero_probability, 0, count)


def _excess(f):
    """What Poisson counts above zero have beyond exp(f) in the mean: rate/(exp(rate) - 1), rate = exp(f)."""
    rate = np.clip(np.exp(f), SMALLEST_NUMBER, 700.0)  # from where on it is 0
    return rate / np.expm1(rate)


def _truncated_mean(f):
    """The mean of Poisson counts above zero, exp(f)/(1 - exp(-exp(f)))."""
    rate = np.maximum(np.exp(f), SMALLEST_NUMBER)
    return rate / -np.expm1(-rate)
