"""Likelihoods of times, observed exactly or censored."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from cavity.base import arrays
from cavity.base.constants import HALF_LOG_2PI
from cavity.base.lazy_scipy import special
from cavity.base.public_objects import ArrayLike, FloatArray, FloatOrArray, set_fields
from cavity.base.special import log_logistic_interval, log_one_minus_exp, quiet
from cavity.likelihoods.base import LOG_LOGISTIC, LOG_NORMAL, WEIBULL, _Compiled, estimate_spread
from cavity.likelihoods.counts import _log_ratio, check_rows
from cavity.likelihoods.labels import Interval, _log_interval
from cavity.likelihoods.parameters import check_closed, check_fields
from cavity.likelihoods.positive import _Scaled

GUMBEL_SD = np.pi / np.sqrt(6.0)  # of the log of an exponential variable
LOGISTIC_SD = np.pi / np.sqrt(3.0)
SMALL_INVERSE_SHAPE, SERIES_TERMS = 0.02, 14  # below which the moments of Weibull's are series


class _Times(_Scaled, _Compiled):
    """Times whose log has a distribution of location `_slope` f: u = _rate (log y - _slope f) has a fixed one.

    Of that fixed one there are `_log_density(u)`, `_log_cdf(u)`, `_log_survival(u)`, `_log_between(u, width)` and
    `_draw_standard(shape, rng)`.
    """

    __slots__ = ()
    takes_event = True
    _y_ndim = 2
    _encodes_alone = True
    _noise_sd = 1.0

    @property
    def _rate(self):
        return self.shape

    def check(self, y: Any) -> FloatArray:
        """Accept times, or lower and upper bounds of times.

        Parameters
        ----------
        y : array_like, shape (N,) or (N, 2)
            Times; or bounds: two equal ones for a time that was observed, an upper bound of infinity for one that is
            right-censored, a lower bound of 0 for one that is left-censored.

        Returns
        -------
        ndarray, shape (N, 2)
            Bounds.
        """
        array, kind = arrays.check_real_array(y, "y"), type(self).__name__
        arrays.check_finite(np.where(np.isinf(array), 0.0, array), "y", arrays.names_of(y))
        if array.ndim > 2 or (array.ndim == 2 and array.shape[1] != 2):
            raise ValueError(f"y must have shape (N,), times, or (N, 2), lower and upper bounds, got {array.shape}")
        bounds = np.stack([array, array], axis=-1) if array.ndim < 2 else array
        lower, upper = np.where(bounds[..., 0] == -np.inf, 0.0, bounds[..., 0]), bounds[..., 1]
        exact = lower == upper
        message = f"y must hold positive, finite times for {kind}"
        hint = "; a time that is known to be below t has the bounds 0 and t, one above t the bounds t and infinity"
        check_rows(~exact | ((lower > 0) & np.isfinite(lower)), array, message, hint)
        message = "the lower bounds of times must not be above the upper ones"
        check_rows(exact | (lower < upper), array, message, "; exchange them; times and events are y and event=")
        check_rows(lower >= 0, array, f"the bounds of times must not be negative for {kind}", hint)
        return np.stack([lower, upper], axis=-1)

    def start(self, y: Any) -> FloatArray | None:
        """Logs of times, or of the bounds that are there; see `Likelihood.start`."""
        return self._slope_or_one() * self._find_logs(y)

    def _encode(self, y):
        with np.errstate(divide="ignore"):
            return tuple(np.ascontiguousarray(bound) for bound in np.log(y).T)

    def _locate(self, lower, upper):
        """Logs of times, or of the one bound that there is; None for times between two bounds."""
        exact, has_lower = lower == upper, lower > -np.inf
        if self._slope != 1.0 or np.any(~exact & has_lower & (upper < np.inf)):
            return None
        centre = np.where(has_lower, lower, upper)
        return np.where(centre < np.inf, centre, 0.0), exact

    def _find_logs(self, y):
        """Logs of the times, of bounds that are there, else the median of the others."""
        logs = np.log(np.where((y > 0) & np.isfinite(y), y, np.nan))
        logs = np.where(np.isnan(logs), logs[:, ::-1], logs).mean(axis=1)
        return np.where(np.isnan(logs), np.nanmedian(logs) if not np.isnan(logs).all() else 0.0, logs)

    def _slope_or_one(self):
        return self._slope

    def starting_values(self, y: Any, fitted: Any) -> dict[str, Any]:
        """By the spread of log times about fitted values; see `Likelihood.starting_values`."""
        spread = estimate_spread(self._find_logs(y), np.asarray(fitted) / self._slope_or_one())
        return {name: spread if name == "sd" else float(self._noise_sd / spread) for name in self.parameters}

    def _standardise(self, y, f):
        return -self._rate * _log_ratio(y, f, np.exp(f))

    @quiet
    def log_p(self, y: Any, f: Any) -> FloatOrArray:
        """Log density of a time, or log probability of a range; see `Likelihood.log_p`.

        The last axis of y holds the bounds.
        """
        check_closed(self)
        y, f = np.asarray(y, dtype=np.float64), np.asarray(f, dtype=np.float64)
        lower, upper = y[..., 0], y[..., 1]
        has_lower, has_upper, exact = lower > 0, upper < np.inf, lower == upper
        low, high = np.where(has_lower, lower, 1.0), np.where(has_upper, upper, 1.0)

        def density():
            return np.log(self._rate) - np.log(low) + self._log_density(self._standardise(low, f))

        def between():
            ratio = np.where(high < 2.0 * low, np.log1p((high - low) / low), np.log(high) - np.log(low))
            return self._log_between(self._standardise(low, f), self._rate * ratio)

        out = np.zeros(np.broadcast_shapes(lower.shape, f.shape))
        for rows, method in (
            (exact, density),
            (has_lower & ~has_upper, lambda: self._log_survival(self._standardise(low, f))),
            (~has_lower & has_upper, lambda: self._log_cdf(self._standardise(high, f))),
            (has_lower & has_upper & ~exact, between),
        ):
            if rows.any():
                out = np.where(rows, method(), out)
        return out[()]

    @quiet
    def cdf(self, y: Any, f: Any) -> FloatOrArray:
        """Probability of a time up to y; see `Likelihood.cdf`."""
        check_closed(self)
        y, f = np.asarray(y, dtype=np.float64), np.asarray(f, dtype=np.float64)
        inside = (y > 0) & (y < np.inf)
        return np.where(
            inside, np.exp(self._log_cdf(self._standardise(np.where(inside, y, 1.0), f))), np.where(y > 0, 1.0, 0.0)
        )

    def draw(self, f: Any, rng: np.random.Generator) -> FloatOrArray:
        """Draw times; see `Likelihood.draw`."""
        check_closed(self)
        return np.exp(self._slope * np.asarray(f) + self._draw_standard(np.shape(f), rng) / self._rate)


@dataclass(frozen=True, slots=True)
class LogNormal(_Times):
    """Times, or positive numbers, whose log is normal with mean f.

    Observations have shape (N,), or (N, 2) as those of `Weibull`.

    Parameters
    ----------
    sd : float or None, default None
        Standard deviation of log y; None for the fit to find it.

    Examples
    --------
    >>> import cavity, numpy as np
    >>> times = cavity.likelihoods.LogNormal(sd=0.5)
    >>> times.log_tilted([[1.5, 1.5], [1.5, np.inf]], 0.4, 0.9)[0].round(6).tolist()
    [-1.394298, -0.697222]
    """

    sd: float | None = None

    parameters: ClassVar[Mapping[str, str]] = {"sd": "positive"}
    _log_scales: ClassVar[Mapping[str, float]] = {"sd": 1.0}

    _kind = LOG_NORMAL
    any_power = False

    def _parameters(self):
        return (self.sd**2,)

    @property
    def _rate(self):
        return 1.0 / self.sd

    def _spread(self, order=1):
        check_closed(self)
        return 0.5 * self.sd**2, np.expm1(self.sd**2)

    def quantile(self, q: Any, mean: ArrayLike, variance: ArrayLike) -> FloatOrArray:
        """Those of a log-normal variable; see `Likelihood.quantile`."""
        check_closed(self)
        return np.exp(mean + np.sqrt(np.asarray(variance) + self.sd**2) * special.ndtri(q))

    def _log_density(self, u):
        return -0.5 * u * u - HALF_LOG_2PI

    def _log_cdf(self, u):
        return special.log_ndtr(u)

    def _log_survival(self, u):
        return special.log_ndtr(-u)

    def _log_between(self, u, width):
        return _log_interval(Interval(1.0), 0.0, width, -u)

    def _draw_standard(self, shape, rng):
        return rng.standard_normal(shape)


class _ExponentialPower(_Times):
    """Times t whose power t^shape is exponential, of a scale (`effect` "time") or of a rate ("hazard") that f says."""

    __slots__ = ()
    _kind = WEIBULL
    _noise_sd = GUMBEL_SD

    def __post_init__(self) -> None:
        check_fields(self)
        set_fields(self, effect=arrays.check_choice(self.effect, "effect", ("time", "hazard")))

    def _parameters(self):
        return self.shape, 1.0 if self.effect == "hazard" else -1.0, np.log(self.shape)

    @property
    def _slope(self):
        return 1.0 if self.effect == "time" else -1.0 / self.shape

    def _slope_or_one(self):
        return self._slope if self.shape is not None else 1.0 if self.effect == "time" else -1.0

    def _spread(self, order=1):
        check_closed(self)
        h = 1.0 / self.shape
        return float(special.gammaln(1.0 + h)), _find_weibull_variance_ratio(h)

    def _standardise(self, y, f):
        return _Times._standardise(self, y, f) if self.effect == "time" else self.shape * np.log(y) + f

    def _log_density(self, u):
        return u - np.exp(u)

    def _log_cdf(self, u):
        return log_one_minus_exp(u)

    def _log_survival(self, u):
        return -np.exp(u)

    def _log_between(self, u, width):
        log_width = np.where(width < 1.0, np.log(np.expm1(np.minimum(width, 1.0))), width + np.log1p(-np.exp(-width)))
        return -np.exp(u) + log_one_minus_exp(u + log_width)

    def _draw_standard(self, shape, rng):
        return np.log(rng.standard_exponential(shape))


@dataclass(frozen=True, slots=True)
class Weibull(_ExponentialPower):
    """Times of which (t/scale)^shape is exponential: the hazard rises with time for shape > 1 and falls for shape < 1.

    Observations have shape (N,), times; or (N, 2), lower and upper bounds: two equal ones for a time that was observed,
    an upper bound of infinity for one that is right-censored, a lower bound of 0 for one that is left-censored, others
    for one between two inspections.

    Parameters
    ----------
    shape : float or None, default None
        Positive. None for the fit to find it.
    effect : {"time", "hazard"}, default "time"
        What f acts on. "time": scale = exp(f), so coefficients are logs of factors of time (the accelerated failure
        times of R's survreg and of lifelines). "hazard": the cumulative hazard is t^shape exp(f), so coefficients are
        log hazard ratios; those are -shape times the others.

    Examples
    --------
    >>> import cavity, numpy as np
    >>> times = cavity.likelihoods.Weibull(shape=1.3, effect="hazard")
    >>> log_z = times.log_tilted([[1.5, 1.5], [1.5, np.inf], [0.0, 1.5], [1.5, 2.0]], 0.4, 0.9)[0]
    >>> log_z.round(6).tolist()
    [-1.824515, -1.806983, -0.179305, -2.800551]
    """

    shape: float | None = None
    effect: str = "time"

    parameters: ClassVar[Mapping[str, str]] = {"shape": "positive"}
    _log_scales: ClassVar[Mapping[str, float]] = {"shape": -1.0}


@dataclass(frozen=True, slots=True)
class Exponential(_ExponentialPower):
    """Times with a constant hazard: `Weibull` of shape 1.

    Observations have shape (N,), or (N, 2) as those of `Weibull`.

    Parameters
    ----------
    effect : {"time", "hazard"}, default "time"
        What f acts on. "time": scale = exp(f), so coefficients are logs of factors of time (the accelerated failure
        times of R's survreg and of lifelines). "hazard": the cumulative hazard is t^shape exp(f), so coefficients are
        log hazard ratios; those are -shape times the others.

    Examples
    --------
    >>> import cavity, numpy as np
    >>> cavity.likelihoods.Exponential().log_tilted([[2.0, np.inf]], 0.4, 0.9)[0].round(6).tolist()
    [-1.189701]
    """

    effect: str = "time"

    shape = 1.0


@dataclass(frozen=True, slots=True)
class LogLogistic(_Times):
    """Times whose log is logistic with median f: the odds of an end by time t are (t/exp(f))^shape.

    Observations have shape (N,), or (N, 2) as those of `Weibull`. The hazard rises and falls again for shape > 1, for
    which the time has a mean.

    Parameters
    ----------
    shape : float or None, default None
        Positive. None for the fit to find it.

    Examples
    --------
    >>> import cavity, numpy as np
    >>> times = cavity.likelihoods.LogLogistic(shape=2.0)
    >>> times.log_tilted([[1.5, 1.5], [1.5, np.inf]], 0.4, 0.9)[0].round(6).tolist()
    [-1.56896, -0.696568]
    """

    shape: float | None = None

    _noise_sd = LOGISTIC_SD
    parameters: ClassVar[Mapping[str, str]] = {"shape": "positive"}
    _log_scales: ClassVar[Mapping[str, float]] = {"shape": -1.0}

    _kind = LOG_LOGISTIC

    def _parameters(self):
        return self.shape, 0.0, np.log(self.shape)

    def _spread(self, order=1):
        """Moments, up to some order, which have to be there."""
        check_closed(self)
        if self.shape <= order:
            noun = "mean" if order == 1 else "finite variance"
            raise ValueError(
                f"times of LogLogistic with shape = {self.shape:g} have no {noun}, only with > {order}; quantiles exist"
            )
        x = np.pi / self.shape
        log_mean = float(np.log(x / np.sin(x)))
        if order == 1:
            return log_mean, None
        return log_mean, float(np.tan(x) / x - 1.0 if x > 0.01 else x**2 * (1 / 3 + x**2 * (2 / 15 + x**2 * 17 / 315)))

    def _log_density(self, u):
        return -np.logaddexp(0.0, u) - np.logaddexp(0.0, -u)

    def _log_cdf(self, u):
        return -np.logaddexp(0.0, -u)

    def _log_survival(self, u):
        return -np.logaddexp(0.0, u)

    def _log_between(self, u, width):
        return log_logistic_interval(u, u + width, width)

    def _draw_standard(self, shape, rng):
        return rng.logistic(size=shape)


def _find_weibull_variance_ratio(h):
    """Gamma(1 + 2 h)/Gamma(1 + h)^2 - 1."""
    if h >= SMALL_INVERSE_SHAPE:
        return float(np.expm1(special.gammaln(1.0 + 2.0 * h) - 2.0 * special.gammaln(1.0 + h)))
    k = np.arange(2, SERIES_TERMS)  # of log Gamma(1 + h) = -gamma h + sum zeta(k) (-h)^k/k
    return float(np.expm1(np.sum(special.zeta(k) * (-h) ** k * (2.0**k - 2.0) / k)))
