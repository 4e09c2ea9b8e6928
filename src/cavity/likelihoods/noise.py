"""Likelihoods of real numbers: f with noise."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from cavity.base import arrays
from cavity.base.constants import LOG_2PI
from cavity.base.lazy_scipy import special
from cavity.base.public_objects import ArrayLike, FloatOrArray, set_fields
from cavity.base.special import binet, gap
from cavity.likelihoods.base import (
    CLUTTER,
    GAUSSIAN,
    LAPLACE,
    STUDENT_T,
    _Compiled,
    estimate_spread,
)
from cavity.likelihoods.parameters import check_closed, check_fields

MAX_STUDENT_T_SCALES = 1e100  # scales from the centre


class _LinearMean:
    """The mean of observations given f is linear in f, by default f itself with noise around it."""

    __slots__ = ()

    def _locate(self, numbers, extra):
        """Return c and n of observations as kernels read them, see `_log_scales`; None where p has no such form."""
        return numbers, 1.0

    def conditional_mean(self, f: Any) -> FloatOrArray:
        """Mean of y given f, which is f; see `Likelihood.conditional_mean`."""
        return f

    def expected(self, mean: ArrayLike, variance: ArrayLike) -> FloatOrArray:
        """Mean of a new observation, that of y given the mean of f; see `Likelihood.expected`."""
        return self.conditional_mean(mean)

    def moments(self, mean: ArrayLike, variance: ArrayLike) -> tuple[Any, Any]:
        """Those of f, and the noise; see `Likelihood.moments`."""
        return self.conditional_mean(mean), variance + self.conditional_variance(mean)


class _Noisy(_LinearMean, _Compiled):
    __slots__ = ()


class _NormalNoise(_Noisy):
    """Observations, or what is known of them, of f with normal noise of variance `noise_variance`."""

    __slots__ = ()
    _is_normal = True  # observations are normal variables, whose moments are those of `moments`

    def conditional_variance(self, f: Any) -> FloatOrArray:
        """The noise variance; see `Likelihood.conditional_variance`."""
        check_closed(self)
        return np.full(np.shape(f), self.noise_variance)

    def cdf(self, y: Any, f: Any) -> FloatOrArray:
        """Normal distribution function, a step without noise; see `Likelihood.cdf`."""
        check_closed(self)
        if self.noise_variance == 0:
            return np.where(y >= f, 1.0, 0.0)
        return special.ndtr((y - f) / np.sqrt(self.noise_variance))

    def draw(self, f: Any, rng: np.random.Generator) -> FloatOrArray:
        """Draw f and noise; see `Likelihood.draw`."""
        check_closed(self)
        return f + np.sqrt(self.noise_variance) * rng.standard_normal(np.shape(f))

    def quantile(self, q: Any, mean: ArrayLike, variance: ArrayLike) -> FloatOrArray:
        """Those of a normal variable; see `Likelihood.quantile`."""
        check_closed(self)
        return mean + np.sqrt(variance + self.noise_variance) * special.ndtri(q)


@dataclass(frozen=True, slots=True)
class Gaussian(_NormalNoise):
    """Real observations with Gaussian noise: p(y|f) = N(y; f, noise_variance); EP is exact.

    Parameters
    ----------
    noise_variance : float or None, default 1.0
        Variance of the noise, in squared units of y; None for the fit to find it.
    """

    noise_variance: float | None = 1.0

    _kind = GAUSSIAN
    _merges_by = "mean"
    parameters: ClassVar[Mapping[str, str]] = {"noise_variance": "scale"}
    _log_scales: ClassVar[Mapping[str, float]] = {"noise_variance": 0.5}
    _encodes_alone = True

    def starting_values(self, y: Any, fitted: Any) -> dict[str, Any]:
        """The square of the spread of y - fitted; see `Likelihood.starting_values`."""
        return {"noise_variance": estimate_spread(y, fitted) ** 2}

    def _encode_responses(self, y, free, vectors):
        parameters = np.zeros((len(y), 6))
        parameters[:, 0] = np.exp(vectors[:, 0]) if free.names else self.noise_variance
        return parameters, y, np.zeros((len(y), 1))

    def log_p(self, y: Any, f: Any) -> FloatOrArray:
        """Log density; see `Likelihood.log_p`."""
        check_closed(self)
        y, f = np.asarray(y), np.asarray(f)
        return -0.5 * ((y - f) ** 2 / self.noise_variance + LOG_2PI + np.log(self.noise_variance))


@dataclass(frozen=True, slots=True)
class Laplace(_Noisy):
    """Real observations with double-exponential noise: p(y|f) = exp(-|y - f|/scale)/(2 scale), the median's.

    Parameters
    ----------
    scale : float or None, default 1.0
        Mean absolute deviation of the noise, in units of y; None for the fit to find it.
    """

    scale: float | None = 1.0

    _kind = LAPLACE
    _merges_by = None  # kinks
    _log_scales: ClassVar[Mapping[str, float]] = {"scale": 1.0}
    _encodes_alone = True
    parameters: ClassVar[Mapping[str, str]] = {"scale": "scale"}

    def _parameters(self):
        return 1.0 / self.scale, 1.0 / self.scale, -np.log(2.0 * self.scale)

    def log_p(self, y: Any, f: Any) -> FloatOrArray:
        """Log density; see `Likelihood.log_p`."""
        check_closed(self)
        y, f = np.asarray(y), np.asarray(f)
        return -np.abs(y - f) / self.scale - np.log(2 * self.scale)

    def conditional_variance(self, f: Any) -> FloatOrArray:
        """Variance 2 scale^2 of the noise; see `Likelihood.conditional_variance`."""
        check_closed(self)
        return np.full(np.shape(f), 2.0 * self.scale**2)

    def cdf(self, y: Any, f: Any) -> FloatOrArray:
        """Distribution function of Laplace; see `Likelihood.cdf`."""
        check_closed(self)
        x = (y - f) / self.scale
        tail = 0.5 * np.exp(-np.abs(x))
        return np.where(x < 0, tail, 1.0 - tail)

    def draw(self, f: Any, rng: np.random.Generator) -> FloatOrArray:
        """Draw f and noise; see `Likelihood.draw`."""
        check_closed(self)
        return rng.laplace(f, self.scale, np.shape(f))


@dataclass(frozen=True, slots=True)
class AsymmetricLaplace(_LinearMean, _Compiled):
    """Real observations of which f is a quantile: p(y|f) = q (1 - q)/scale exp(-u (q - [u < 0])), u = (y - f)/scale.

    The density is a means to regressions of quantiles, and no model of the observations: f is about the quantile q of y
    as the "check loss" has it, but the widths of intervals depend on the scale and are not calibrated. Intervals that
    are need the bootstrap, or predictions of a likelihood that describes y.

    Parameters
    ----------
    quantile_level : float, default 0.5
        q, in (0, 1): which quantile.
    scale : float or None, default None
        Mean of the check loss, in units of y; None for the fit to find it.

    Examples
    --------
    >>> import cavity
    >>> upper = cavity.likelihoods.AsymmetricLaplace(0.9, scale=0.5)
    >>> upper.log_tilted([1.0, -1.0], 0.4, 0.9)[0].round(6).tolist()
    [-2.531522, -2.026726]
    """

    quantile_level: float = 0.5
    scale: float | None = None

    link = "identity"
    parameters: ClassVar[Mapping[str, str]] = {"scale": "scale"}

    def __post_init__(self) -> None:
        check_fields(self)
        set_fields(self, quantile_level=arrays.check_number(self.quantile_level, "quantile_level", low=0, high=1))

    _kind = LAPLACE
    _merges_by = None  # kinks
    _log_scales: ClassVar[Mapping[str, float]] = {"scale": 1.0}
    _encodes_alone = True

    def _parameters(self):
        q, constant = self.quantile_level, self._find_constant()
        return (1.0 - q) / self.scale, q / self.scale, constant

    def _find_constant(self):
        return np.log(self.quantile_level) + np.log1p(-self.quantile_level) - np.log(self.scale)

    def starting_values(self, y: Any, fitted: Any) -> dict[str, Any]:
        """The scale whose standard deviation is the spread of y - fitted; see `Likelihood.starting_values`."""
        return {"scale": estimate_spread(y, fitted) / self._find_sd()}

    def _find_sd(self):
        """The standard deviation of the noise in scales."""
        return float(np.hypot(1.0 / self.quantile_level, 1.0 / (1.0 - self.quantile_level)))

    def log_p(self, y: Any, f: Any) -> FloatOrArray:
        """Log density; see `Likelihood.log_p`."""
        check_closed(self)
        q, scale = self.quantile_level, self.scale
        u = (np.asarray(y) - np.asarray(f)) / scale
        return self._find_constant() - u * np.where(u < 0, q - 1.0, q)

    def conditional_mean(self, f: Any) -> FloatOrArray:
        """Mean of y given f, which is f for the median only; see `Likelihood.conditional_mean`."""
        check_closed(self)
        return f + self.scale * (1.0 / self.quantile_level - 1.0 / (1.0 - self.quantile_level))

    def conditional_variance(self, f: Any) -> FloatOrArray:
        """Variance of the noise; see `Likelihood.conditional_variance`."""
        check_closed(self)
        return np.full(np.shape(f), (self.scale * self._find_sd()) ** 2)

    def cdf(self, y: Any, f: Any) -> FloatOrArray:
        """Distribution function, q at f; see `Likelihood.cdf`."""
        check_closed(self)
        q, u = self.quantile_level, (y - f) / self.scale
        return np.where(
            u < 0, q * np.exp(np.minimum(u, 0.0) * (1.0 - q)), 1.0 - (1.0 - q) * np.exp(-np.maximum(u, 0.0) * q)
        )

    def draw(self, f: Any, rng: np.random.Generator) -> FloatOrArray:
        """Draw f and noise, a difference of exponential variables; see `Likelihood.draw`."""
        check_closed(self)
        above, below = rng.standard_exponential((2, *np.shape(f)))
        return f + self.scale * (above / self.quantile_level - below / (1.0 - self.quantile_level))


@dataclass(frozen=True, slots=True)
class StudentT(_Noisy):
    """Real observations with heavy-tailed noise: outliers lose their influence (and get sites of negative precision).

    Parameters
    ----------
    degrees_of_freedom : float or None, default 4.0
        nu > 0; the smaller, the heavier the tails. None for the fit to find it.
    scale : float or None, default 1.0
        Scale of the noise, in units of y; its variance is scale^2 nu/(nu - 2) for nu > 2. None for the fit to find it.
    """

    degrees_of_freedom: float | None = 4.0
    scale: float | None = 1.0

    _kind = STUDENT_T
    parameters: ClassVar[Mapping[str, str]] = {"degrees_of_freedom": "positive", "scale": "scale"}
    _log_scales: ClassVar[Mapping[str, float]] = {"scale": 1.0}

    def starting_values(self, y: Any, fitted: Any) -> dict[str, Any]:
        """The spread of most of y - fitted, however far the others are; see `Likelihood.starting_values`."""
        return {"degrees_of_freedom": 4.0, "scale": estimate_spread(y, fitted, robust=True)}

    def _parameters(self):
        return self.degrees_of_freedom, self.degrees_of_freedom * self.scale**2

    def _constant(self):
        """log of the density at its top, from Gamma(a + 1/2)/Gamma(a), a = nu/2, by the remainders of log Gamma."""
        a = 0.5 * self.degrees_of_freedom
        ratio = binet(a + 0.5) - binet(a) - a * gap(0.5 / a, np.log1p(0.5 / a))
        return float(ratio - 0.5 * LOG_2PI - np.log(self.scale))

    def _encode(self, y):
        return y, np.array([self._constant()])

    def log_p(self, y: Any, f: Any) -> FloatOrArray:
        """Log density; see `Likelihood.log_p`."""
        check_closed(self)
        nu, scale, y, f = self.degrees_of_freedom, self.scale, np.asarray(y), np.asarray(f)
        return self._constant() - 0.5 * (nu + 1) * np.log1p(((y - f) / scale) ** 2 / nu)

    def conditional_mean(self, f: Any) -> FloatOrArray:
        """Mean of y given f, which is f; ValueError for nu <= 1, where there is none."""
        check_closed(self)
        nu = self.degrees_of_freedom
        if nu <= 1:
            raise ValueError(f"observations of StudentT with degrees_of_freedom = {nu:g} have no mean, only with > 1")
        return f

    def conditional_variance(self, f: Any) -> FloatOrArray:
        """Variance of the noise; ValueError for nu <= 2, where it is infinite."""
        check_closed(self)
        nu = self.degrees_of_freedom
        if nu <= 2:
            raise ValueError(
                f"observations of StudentT with degrees_of_freedom = {nu:g} have no finite variance, only with > 2"
            )
        return np.full(np.shape(f), self.scale**2 * nu / (nu - 2.0))

    def cdf(self, y: Any, f: Any) -> FloatOrArray:
        """Student's distribution function; see `Likelihood.cdf`."""
        check_closed(self)
        nu, x = self.degrees_of_freedom, (y - f) / self.scale
        # tails are powers of x there, whose square overflows
        below = special.stdtr(nu, -np.minimum(np.abs(x), MAX_STUDENT_T_SCALES))
        below = below * (np.maximum(np.abs(x), MAX_STUDENT_T_SCALES) / MAX_STUDENT_T_SCALES) ** -nu
        return np.where(x < 0, below, 1.0 - below)

    def draw(self, f: Any, rng: np.random.Generator) -> FloatOrArray:
        """Draw f and noise; see `Likelihood.draw`."""
        check_closed(self)
        return f + self.scale * rng.standard_t(self.degrees_of_freedom, np.shape(f))


@dataclass(frozen=True, slots=True)
class Clutter(_Noisy):
    """Real observations of which some are clutter [M]_.

    p(y|f) = (1 - w) N(y; f, noise_variance) + w N(y; clutter_mean, clutter_variance).

    Parameters
    ----------
    clutter_weight : float or None, default 0.5
        w, in (0, 1). This and the others may be None for the fit to find them.
    clutter_variance, noise_variance : float or None, default 10.0 and 1.0
        Variances of clutter and noise, in squared units of y.
    clutter_mean : float or None, default 0.0
        Mean of the clutter.
    """

    clutter_weight: float | None = 0.5
    clutter_variance: float | None = 10.0
    noise_variance: float | None = 1.0
    clutter_mean: float | None = 0.0

    _kind = CLUTTER
    _merges_by = None
    any_power = False
    parameters: ClassVar[Mapping[str, str]] = {
        "clutter_weight": "share",
        "clutter_variance": "positive",
        "noise_variance": "positive",
        "clutter_mean": "real",
    }

    def starting_values(self, y: Any, fitted: Any) -> dict[str, Any]:
        """Clutter as wide as y; see `Likelihood.starting_values`."""
        noise, centre = estimate_spread(y, fitted), float(np.median(y))
        wide = max(float(np.max(np.abs(y - centre))), noise)
        values = {"clutter_variance": wide**2, "noise_variance": noise**2, "clutter_mean": centre}
        return {"clutter_weight": 0.5} | values

    def _parameters(self):
        w, c = self.clutter_weight, self.clutter_variance
        return self.noise_variance, 1 / c, np.log(c), np.log(w) - np.log1p(-w), np.log1p(-w), self.clutter_mean

    def log_p(self, y: Any, f: Any) -> FloatOrArray:
        """Log density; see `Likelihood.log_p`."""
        check_closed(self)
        w, c, s = self.clutter_weight, self.clutter_variance, self.noise_variance
        y, f = np.asarray(y), np.asarray(f)
        signal = np.log1p(-w) - 0.5 * ((y - f) ** 2 / s + LOG_2PI + np.log(s))
        return np.logaddexp(signal, np.log(w) - 0.5 * ((y - self.clutter_mean) ** 2 / c + LOG_2PI + np.log(c)))

    def conditional_mean(self, f: Any) -> FloatOrArray:
        """Mean of y given f; see `Likelihood.conditional_mean`."""
        check_closed(self)
        w = self.clutter_weight
        return (1.0 - w) * f + w * self.clutter_mean

    def conditional_variance(self, f: Any) -> FloatOrArray:
        """Variance of y given f; see `Likelihood.conditional_variance`."""
        check_closed(self)
        w = self.clutter_weight
        within = (1.0 - w) * self.noise_variance + w * self.clutter_variance
        return within + w * (1.0 - w) * (f - self.clutter_mean) ** 2

    def cdf(self, y: Any, f: Any) -> FloatOrArray:
        """Distribution function of the mixture; see `Likelihood.cdf`."""
        check_closed(self)
        w = self.clutter_weight
        signal = special.ndtr((y - f) / np.sqrt(self.noise_variance))
        return (1.0 - w) * signal + w * special.ndtr((y - self.clutter_mean) / np.sqrt(self.clutter_variance))

    def draw(self, f: Any, rng: np.random.Generator) -> FloatOrArray:
        """Draw from clutter or signal; see `Likelihood.draw`."""
        check_closed(self)
        is_clutter = rng.random(np.shape(f)) < self.clutter_weight
        sd = np.sqrt(np.where(is_clutter, self.clutter_variance, self.noise_variance))
        return np.where(is_clutter, self.clutter_mean, f) + sd * rng.standard_normal(np.shape(f))

    def moments(self, mean: ArrayLike, variance: ArrayLike) -> tuple[Any, Any]:
        """Mean and variance of a new observation; see `Likelihood.moments`."""
        return self.conditional_mean(mean), self.conditional_variance(mean) + (1.0 - self.clutter_weight) * variance
