"""Likelihoods of shares: numbers between 0 and 1, and successes that vary more than those of `Binomial`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from cavity.base import arrays
from cavity.base.constants import LOG_2PI
from cavity.base.lazy_scipy import special
from cavity.base.public_objects import FloatArray, FloatOrArray
from cavity.base.special import beta_cdf, binet, gap, quiet, stirling
from cavity.likelihoods.base import BETA, BETA_BINOMIAL, _Compiled
from cavity.likelihoods.counts import MAX_DRAWN_RATE, _log_mean_rest, _log_stirling, _Trials, check_rows
from cavity.likelihoods.parameters import check_closed

SMALLEST_SHAPE = 1e-300  # below which log Gamma(a) is -log a and a log a is 0 to the last digit
START_SHARE = 0.25  # of the precision by moments, from which a search goes upward: EP converges from there
STEPS_AT_ONCE = 256  # of sums of probabilities, after which they may end
MAX_TERMS_AT_ONCE = 1 << 18  # of all sums together
MIN_SQUARES = 1e-280  # of shares about their mean, in quotients
MIN_START, MAX_START = 0.1, 1e4  # precisions that searches start from


class _BetaShares:
    """Shares of a Beta variable with mean 1/(1 + exp(-f)) and the sum of shapes `precision`."""

    __slots__ = ()
    link = "logit"
    parameters: ClassVar[Mapping[str, str]] = {"precision": "positive"}

    def _shapes(self, f):
        """Shares mu and 1 - mu, the shapes of the Beta variable, and logs of the shares."""
        check_closed(self)
        f, phi = np.asarray(f, dtype=np.float64), self.precision
        mu, rest = special.expit(f), special.expit(-f)
        return mu, rest, mu * phi, rest * phi, -np.logaddexp(0.0, -f), -np.logaddexp(0.0, f)

    def _find_stirling(self, shape, log_share):
        """a log a - a - log Gamma(a) of a shape, which is log a where a is hardly above 0."""
        log_shape = np.log(self.precision) + log_share
        return np.where(shape > SMALLEST_SHAPE, stirling(np.maximum(shape, SMALLEST_SHAPE)), log_shape)

    def _parameters(self):
        log_precision = np.log(self.precision)
        return self.precision, log_precision, binet(self.precision) + 0.5 * (log_precision - LOG_2PI)

    def _limit_start(self, precision):
        return {"precision": float(np.clip(START_SHARE * precision, MIN_START, MAX_START))}


@dataclass(frozen=True, slots=True)
class Beta(_BetaShares, _Compiled):
    """Shares in (0, 1) with mean mu = 1/(1 + exp(-f)) and variance mu (1 - mu)/(1 + precision).

    p(y|f) is the density of a Beta variable of shapes precision mu and precision (1 - mu). Its log is not concave in f.

    Parameters
    ----------
    precision : float or None, default None
        Positive; the larger, the closer are shares to their mean. None for the fit to find it.

    Examples
    --------
    >>> import cavity
    >>> yields = cavity.likelihoods.Beta(precision=4.0)
    >>> log_z, d1, d2 = yields.log_tilted(0.8, 0.4, 0.9)
    >>> round(float(log_z), 9), round(float(0.4 + 0.9 * d1), 9)
    (0.171767213, 0.765102148)
    """

    precision: float | None = None

    _kind = BETA
    _merges_by = "logit mean"

    def _encode(self, y):
        return np.log(y), np.log1p(-y)

    def check(self, y: Any) -> FloatArray:
        """Accept numbers between 0 and 1, both excluded.

        Parameters
        ----------
        y : array_like, shape (N,)
            Shares.

        Returns
        -------
        ndarray, shape (N,)
            The shares, as float64.
        """
        array = arrays.check_finite_array(y, "y", ndim=(0, 1))
        hint = (
            "; for shares of counts use BetaBinomial, with successes and trials, which has 0 and 1; of others move 0 "
            "and 1 inside, for example to (y (N - 1) + 0.5)/N of N rows"
        )
        hint = hint if np.all((array >= 0) & (array <= 1)) else "; divide percentages by 100"
        check_rows((array > 0) & (array < 1), array, "y must hold shares in (0, 1) for Beta", hint)
        return array

    def starting_values(self, y: Any, fitted: Any) -> dict[str, Any]:
        """A part of what the variance of y about the shares of `fitted` says; see `Likelihood.starting_values`."""
        mu = special.expit(fitted)
        squares = max(float(np.sum((y - mu) ** 2)), MIN_SQUARES)
        return self._limit_start(float(np.sum(mu * (1.0 - mu))) / squares - 1.0)

    @quiet
    def log_p(self, y: Any, f: Any) -> FloatOrArray:
        """Log density; see `Likelihood.log_p`."""
        y, f = np.asarray(y, dtype=np.float64), np.asarray(f, dtype=np.float64)
        mu, rest, a, b, log_mu, log_rest = self._shapes(f)
        phi, log_y, log_other = self.precision, np.log(y), np.log1p(-y)
        t = special.logit(y) - f
        near = np.abs(t) < 0.35
        # the divergence mu log(mu/y) + (1 - mu) log((1 - mu)/(1 - y))
        relative_entropy = mu * (log_mu - log_y) + rest * (log_rest - log_other)
        divergence = np.where(near, _log_mean_rest(mu, rest, np.where(near, t, 0.0)), relative_entropy)
        top = self._find_stirling(a, log_mu) + self._find_stirling(b, log_rest) - stirling(phi)
        return top - log_y - log_other - phi * divergence

    def conditional_mean(self, f: Any) -> FloatOrArray:
        """Mean 1/(1 + exp(-f)); see `Likelihood.conditional_mean`."""
        return special.expit(f)

    def conditional_variance(self, f: Any) -> FloatOrArray:
        """Variance of y given f; see `Likelihood.conditional_variance`."""
        mu, rest, *_ = self._shapes(f)
        return mu * rest / (1.0 + self.precision)

    def cdf(self, y: Any, f: Any) -> FloatOrArray:
        """Distribution function; see `Likelihood.cdf`."""
        _, _, a, b, _, _ = self._shapes(f)
        return beta_cdf(np.maximum(a, SMALLEST_SHAPE), np.maximum(b, SMALLEST_SHAPE), np.clip(y, 0.0, 1.0))

    def draw(self, f: Any, rng: np.random.Generator) -> FloatOrArray:
        """Draw shares; see `Likelihood.draw`."""
        _, _, a, b, _, _ = self._shapes(f)
        return rng.beta(np.maximum(a, SMALLEST_SHAPE), np.maximum(b, SMALLEST_SHAPE))


@dataclass(frozen=True, slots=True)
class BetaBinomial(_BetaShares, _Trials, _Compiled):
    """Numbers of successes whose probabilities vary: those of `Beta` with mean mu = 1/(1 + exp(-f)).

    Observations have shape (N, 2), successes and trials each. The variance of n trials is
    n mu (1 - mu) (1 + (n - 1)/(1 + precision)); one trial is a label, and does not show it.

    Parameters
    ----------
    precision : float or None, default None
        Positive; the larger, the closer are shares to their mean. None for the fit to find it.

    Examples
    --------
    >>> import cavity
    >>> survived = cavity.likelihoods.BetaBinomial(precision=2.0)
    >>> survived.log_tilted([[3, 10], [0, 3]], 0.4, 0.9)[0].round(6).tolist()
    [-2.711901, -1.530672]
    """

    precision: float | None = None

    _kind = BETA_BINOMIAL

    def starting_values(self, y: Any, fitted: Any) -> dict[str, Any]:
        """A part of what the variance of y about the shares of `fitted` says; see `Likelihood.starting_values`."""
        mu, n = special.expit(fitted), y[:, 1]
        single = n * mu * (1.0 - mu)
        more = float(np.sum((y[:, 0] - n * mu) ** 2 - single))  # than that of binomial variables
        return self._limit_start(
            min(float(np.sum((n - 1.0) * single)) / max(more, 1e-8 * float(np.sum(single))), 1e300)
        )

    def start(self, y: Any) -> FloatArray | None:
        """Logits of the shares of half a success and half a failure more; see `Likelihood.start`."""
        return np.log((y[:, 0] + 0.5) / (y[:, 1] - y[:, 0] + 0.5))

    @quiet
    def log_p(self, y: Any, f: Any) -> FloatOrArray:
        """Log probability; see `Likelihood.log_p`. The last axis of y holds successes and trials."""
        y = np.asarray(y, dtype=np.float64)
        k, n = y[..., 0], y[..., 1]
        phi, (mu, rest, a, b, log_mu, log_rest) = self.precision, self._shapes(f)
        top = _log_stirling(n) - _log_stirling(k) - _log_stirling(n - k) + stirling(phi + n) - stirling(phi)
        for share, shape, log_share, part in ((mu, a, log_mu, k), (rest, b, log_rest, n - k)):
            top = top + self._compare_part(share, shape, log_share, part, n)
        return np.where(n == 1, np.where(k > 0, log_mu, log_rest), top)

    def _compare_part(self, share, shape, log_share, part, n):
        """What log p has of the successes, or of the failures.

        m = (shape + part)/(phi + n) is between the shares `share` and part/n. Of the divergences from these to m,
        phi KL(share || m) + n KL(part/n || m), each part has terms that are not negative; then log Gamma functions.
        """
        phi, total = self.precision, shape + part
        positive_part, trials = np.where(part > 0, part, 1.0), np.maximum(n, 1.0)
        log_m = np.log(total) - np.log(phi + n)
        difference = (part / trials - share) / (phi + n)  # m - share is n times this, part/n - m phi times
        u, log_ratio = n * difference / share, np.where(part > 0, log_m - log_share, -np.log1p(n / phi))
        above = np.where(np.abs(u) < 0.4, shape * gap(u, log_ratio), phi * n * difference - shape * log_ratio)
        v = -phi * difference * trials / positive_part
        below = np.where(part > 0, part * gap(v, log_m - np.log(positive_part / trials)), n * total / (phi + n))
        return np.where(part > 0, self._find_stirling(shape, log_share) - stirling(total), 0.0) - above - below

    def conditional_mean(self, f: Any, trials: Any = 1.0) -> FloatOrArray:
        """Mean of the successes; see `Likelihood.conditional_mean`."""
        return trials * special.expit(f)

    def conditional_variance(self, f: Any, trials: Any = 1.0) -> FloatOrArray:
        """Variance of the successes; see `Likelihood.conditional_variance`."""
        mu, rest, *_ = self._shapes(f)
        return trials * mu * rest * ((self.precision + trials) / (self.precision + 1.0))

    @quiet
    def cdf(self, y: Any, f: Any, trials: Any = 1.0) -> FloatOrArray:
        """Probability of successes up to y, a sum over the numbers on its side of the mean; see `Likelihood.cdf`."""
        y, n, f = np.broadcast_arrays(
            np.floor(y), np.asarray(trials, dtype=np.float64), np.asarray(f, dtype=np.float64)
        )
        k = np.clip(y, 0.0, np.maximum(n - 1.0, 0.0))
        low = k <= n * special.expit(f)
        # above the mean the failures that are fewer than n - k are summed, downwards too
        j, sign = np.where(low, k, np.maximum(n - k - 1.0, 0.0)), np.where(low, 1.0, -1.0)
        _, _, a, b, _, _ = self._shapes(sign * f)
        a, log_first = np.maximum(a, SMALLEST_SHAPE), self.log_p(np.stack([j, n], axis=-1), sign * f)
        term, total = np.ones(y.shape), np.ones(y.shape)
        steps = np.arange(int(np.clip(MAX_TERMS_AT_ONCE // max(y.size, 1), 1, STEPS_AT_ONCE)))
        while np.any((j > 0) & ((term * j > 1e-17 * total) | (a < 1.0))):
            below = np.maximum(j[..., None] - steps, 0.0)
            down = below / np.where(below > 0, a[..., None] + below - 1.0, 1.0)
            up = ((b + n)[..., None] - below) / ((n + 1.0)[..., None] - below)
            terms = term[..., None] * np.cumprod(down * up, axis=-1)  # of P(j - 1)/P(j)
            total, term, j = total + np.sum(terms, axis=-1), terms[..., -1], np.maximum(j - len(steps), 0.0)
        part = np.minimum(np.exp(log_first + np.log(total)), 1.0)
        return np.where(y < 0, 0.0, np.where(y >= n, 1.0, np.where(low, part, 1.0 - part)))

    def draw(self, f: Any, rng: np.random.Generator, trials: Any = 1) -> FloatOrArray:
        """Draw successes; see `Likelihood.draw`."""
        if np.any(np.asarray(trials) > MAX_DRAWN_RATE):
            raise OverflowError(f"trials must be below 2^63 to be drawn, got {float(np.max(trials)):.3g}")
        return rng.binomial(np.asarray(trials, dtype=np.int64), Beta(self.precision).draw(f, rng))
