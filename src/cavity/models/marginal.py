"""Marginals: mixtures of skew-normal densities, one for each point of an integral, and tabulated distributions.

References
----------
.. [Az] A. Azzalini, "A class of distributions which includes the normal ones", Scandinavian Journal of Statistics 12,
   1985.
.. [FC] F. N. Fritsch and R. E. Carlson, "Monotone piecewise cubic interpolation", SIAM Journal on Numerical Analysis
   17, 1980.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from cavity.base import arrays
from cavity.base.constants import LOG_2PI
from cavity.base.lazy_scipy import interpolate, special
from cavity.base.public_objects import ArrayLike, FloatArray, FloatOrArray, Frozen
from cavity.base.scales import SCALES_BY_NAME
from cavity.base.summary import MarginalTable

MAX_SKEWNESS = 0.99  # of skew-normal densities, nearly
MAX_DEVIATIONS = 40.0  # from the mean of a component, where quantiles are searched for
N_BISECTIONS = 60
N_CELLS = 256  # of a tabulated distribution
N_REACH_SD = 5.0  # standard deviations on either side that a table of a skew-normal distribution has


class NumberMarginal(Frozen):
    """Base of the posteriors of one number: a subclass has `name`, `mean`, `sd`, `density`, `cdf` and `quantile`."""

    __slots__ = ()

    def __repr__(self) -> str:
        low, high = self.interval()
        moments = f"mean {self.mean:.4g}, sd {self.sd:.4g}"
        return f"{type(self).__name__} of {self.name}: {moments}, 95 % in [{low:.4g}, {high:.4g}]"

    def interval(self, level: float = 0.95) -> FloatArray:
        """Return the central interval of a probability.

        Parameters
        ----------
        level : float in (0, 1), default 0.95
            Probability of the intervals; as much is left out on either side.

        Returns
        -------
        ndarray (2,)
            Lower and upper end.
        """
        level = arrays.check_number(level, "level", low=0, high=1)
        return self.quantile([0.5 - 0.5 * level, 0.5 + 0.5 * level])


def check_probabilities(p):
    """Return probabilities inside (0, 1) as an array."""
    p = arrays.check_finite_array(p, "p", ndim=None)
    if not np.all((p > 0) & (p < 1)):
        raise arrays.error_of("p", f"must be in (0, 1), got {p.tolist()}")
    return p


@dataclass(frozen=True, eq=False, repr=False)
class Marginal(NumberMarginal):
    """The posterior of one number: a mixture of skew-normal densities [Az]_ with given moments.

    Parameters
    ----------
    name : str
        Of the number.
    weights : ndarray (P,)
        Of the components, which sum to one.
    means, sds : ndarray (P,)
        Their moments.
    skewness : float
        That of all components, below 0.99 in size.

    Examples
    --------
    >>> import numpy as np
    >>> from cavity import Marginal
    >>> marginal = Marginal("x", np.array([1.0]), np.array([0.0]), np.array([1.0]), 0.0)
    >>> marginal.interval(0.95).round(3).tolist()
    [-1.96, 1.96]
    """

    name: str
    weights: FloatArray
    means: FloatArray
    sds: FloatArray
    skewness: float

    @property
    def mean(self) -> float:
        """The mean."""
        return float(self.weights @ self.means)

    @property
    def sd(self) -> float:
        """The standard deviation."""
        return float(np.sqrt(self.weights @ (self.sds**2 + (self.means - self.mean) ** 2)))

    def _components(self):
        """Place, scale and slant of the components."""
        return find_skew_normal(self.means, self.sds, np.full(len(self.means), self.skewness))

    def density(self, x: ArrayLike) -> FloatOrArray:
        """Return the density.

        Parameters
        ----------
        x : float or array_like
            Where it is evaluated.

        Returns
        -------
        float or ndarray
            Of the shape of `x`.
        """
        location, scale, slant = self._components()
        z = (np.asarray(x, dtype=np.float64)[..., None] - location) / scale
        log_density = np.log(2.0 / scale) - 0.5 * (z * z + LOG_2PI) + special.log_ndtr(slant * z)
        return (np.exp(log_density) @ self.weights)[()]

    def cdf(self, x: ArrayLike) -> FloatOrArray:
        """Return the probability of smaller values.

        Parameters
        ----------
        x : float or array_like
            Where it is evaluated.

        Returns
        -------
        float or ndarray
            Of the shape of `x`.
        """
        location, scale, slant = self._components()
        return (
            evaluate_skew_normal_cdf(np.asarray(x, dtype=np.float64)[..., None], location, scale, slant) @ self.weights
        )[()]

    def quantile(self, p: ArrayLike) -> FloatOrArray:
        """Return quantiles.

        Parameters
        ----------
        p : float or array_like
            Probabilities in (0, 1).

        Returns
        -------
        float or ndarray
            Of the shape of `p`.

        Raises
        ------
        ValueError
            For probabilities outside (0, 1).
        """
        p = check_probabilities(p)
        table = tabulate_mixture_marginals(
            (self.name,), self.weights, self.means[:, None], self.sds[:, None], np.array([self.skewness])
        )
        return np.array([table.quantile(probability)[0] for probability in p.ravel()]).reshape(p.shape)[()]


@dataclass(frozen=True, eq=False, repr=False)
class TabulatedMarginal(NumberMarginal):
    """The posterior of one number by a table of its distribution function.

    Between entries the distribution function of the free number is the monotone cubic of Fritsch and Carlson (1980).

    Parameters
    ----------
    name : str
        Of the number.
    scale : str
        What its free number is: "log", "logit", "fisher z", or "" for the number itself.
    free : ndarray (M,)
        Free numbers, increasing.
    cumulative : ndarray (M,)
        Probabilities of smaller ones, from 0 to 1.
    mean, sd : float
        Moments of the number.

    Examples
    --------
    >>> import numpy as np
    >>> from cavity import TabulatedMarginal
    >>> marginal = TabulatedMarginal("sd", "log", np.log([1.0, 2.0, 4.0]), np.array([0.0, 0.5, 1.0]), 2.16, 0.87)
    >>> marginal.quantile([0.25, 0.5]).round(3).tolist()
    [1.414, 2.0]
    """

    name: str
    scale: str
    free: FloatArray
    cumulative: FloatArray
    mean: float
    sd: float

    @cached_property
    def _curve(self):
        return interpolate.PchipInterpolator(self.free, self.cumulative)

    def density(self, x: ArrayLike) -> FloatOrArray:
        """Return the density.

        Parameters
        ----------
        x : float or array_like
            Where it is evaluated.

        Returns
        -------
        float or ndarray
            Of the shape of `x`.
        """
        free, is_inside = self._find_free(x)
        slopes = np.maximum(self._curve.derivative()(free), 0.0)
        by_value = SCALES_BY_NAME[self.scale].volume(SCALES_BY_NAME[self.scale].value(free))[2]
        return np.where(is_inside, slopes * by_value, 0.0)[()]

    def cdf(self, x: ArrayLike) -> FloatOrArray:
        """Return the probability of smaller values.

        Parameters
        ----------
        x : float or array_like
            Where it is evaluated.

        Returns
        -------
        float or ndarray
            Of the shape of `x`.
        """
        free = self._find_free(x)[0]
        return np.where(free < self.free[-1], np.clip(self._curve(free), 0.0, 1.0), 1.0)[()]

    def _find_free(self, x):
        """Free numbers within the table, and which values have theirs there."""
        x, scale = np.asarray(x, dtype=np.float64), SCALES_BY_NAME[self.scale]
        with np.errstate(divide="ignore", invalid="ignore"):
            free = scale.free(np.clip(x, scale.low, scale.high))
        return np.clip(free, self.free[0], self.free[-1]), (free >= self.free[0]) & (free <= self.free[-1])

    def quantile(self, p: ArrayLike) -> FloatOrArray:
        """Return quantiles.

        Parameters
        ----------
        p : float or array_like
            Probabilities in (0, 1).

        Returns
        -------
        float or ndarray
            Of the shape of `p`.

        Raises
        ------
        ValueError
            For probabilities outside (0, 1).
        """
        p = check_probabilities(p)
        low, high = np.full(p.shape, self.free[0]), np.full(p.shape, self.free[-1])
        for _ in range(N_BISECTIONS):
            middle = 0.5 * (low + high)
            is_below = self._curve(middle) < p
            low, high = np.where(is_below, middle, low), np.where(is_below, high, middle)
        return SCALES_BY_NAME[self.scale].value(0.5 * (low + high))[()]


def tabulate_cells(name, scale, moments, free, weights, half):
    """Return the marginal of a number whose free number has some values, with weights that sum to one.

    Each stands for a triangular density as wide as two cells on either side, which interpolates linearly between cells;
    `half` are half the widths of cells, and `moments` are the mean and the sd of the number.
    """
    inside = weights > 0.0
    free, weights, half = free[inside], weights[inside], half[inside]
    edges = np.linspace(np.min(free - 2.0 * half), np.max(free + 2.0 * half), N_CELLS + 1)
    t = np.clip((edges[:, None] - free) / (2.0 * half), -1.0, 1.0)
    below = np.where(t < 0.0, 0.5 * (1.0 + t) ** 2, 1.0 - 0.5 * (1.0 - t) ** 2) @ weights
    below[0], below[-1] = 0.0, 1.0
    return TabulatedMarginal(name, scale, edges, below, *moments)


def tabulate_skew_normal(name, scale, moments, centre, spread, skewness):
    """Return the marginal of a number whose free number has a skew-normal density of three moments."""
    edges = np.linspace(centre - N_REACH_SD * spread, centre + N_REACH_SD * spread, N_CELLS + 1)
    below = evaluate_skew_normal_cdf(edges, *find_skew_normal(centre, spread, skewness))
    below[0], below[-1] = 0.0, 1.0
    return TabulatedMarginal(name, scale, edges, below, *moments)


def tabulate_density(name, x, log_density):
    """Return the marginal of a number by its log density, but for a constant, on a regular grid (M,)."""
    density = np.exp(log_density - np.max(log_density))
    curve = interpolate.CubicSpline(x, density)
    below = curve.antiderivative()(x)
    total, below = below[-1], np.maximum.accumulate(np.clip(below / below[-1], 0.0, 1.0))
    mean = float(interpolate.CubicSpline(x, x * density).integrate(x[0], x[-1]) / total)
    variance = float(interpolate.CubicSpline(x, (x - mean) ** 2 * density).integrate(x[0], x[-1]) / total)
    return TabulatedMarginal(name, "", x, below, mean, float(np.sqrt(variance)))


def find_skew_normal(mean, sd, skewness):
    """Return place, scale and slant of skew-normal densities with these moments, the skewness below 0.99 in size."""
    skewness = np.clip(skewness, -MAX_SKEWNESS, MAX_SKEWNESS)
    power = np.abs(skewness) ** (2.0 / 3.0)
    delta = np.sign(skewness) * np.sqrt(0.5 * np.pi * power / (power + (2.0 - 0.5 * np.pi) ** (2.0 / 3.0)))
    scale = sd / np.sqrt(1.0 - 2.0 * delta**2 / np.pi)
    return mean - scale * delta * np.sqrt(2.0 / np.pi), scale, delta / np.sqrt(1.0 - delta**2)


def evaluate_skew_normal_cdf(x, location, scale, slant):
    """Return the distribution functions of skew-normal densities, elementwise."""
    z = (x - location) / scale
    return np.clip(special.ndtr(z) - 2.0 * special.owens_t(z, slant), 0.0, 1.0)


def tabulate_mixture_marginals(names, weights, means, sds, skewness):
    """Return marginals of several numbers, mixtures of skew-normal densities.

    Parameters
    ----------
    names : tuple of str
        Of the numbers, D of them.
    weights : ndarray (P,)
        Of the components.
    means, sds : ndarray (P, D)
        Of the components.
    skewness : ndarray (D,)
        Of all components of a number.

    Returns
    -------
    MarginalTable
    """
    mean = weights @ means
    sd = np.sqrt(weights @ (sds**2 + (means - mean) ** 2))
    location, scale, slant = find_skew_normal(means, sds, np.broadcast_to(skewness, means.shape))

    def cdf(x):
        return weights @ evaluate_skew_normal_cdf(x, location, scale, slant)

    def quantile(p):
        low = np.min(means - MAX_DEVIATIONS * sds, axis=0)
        high = np.max(means + MAX_DEVIATIONS * sds, axis=0)
        for _ in range(N_BISECTIONS):
            middle = 0.5 * (low + high)
            is_below = cdf(middle) < p
            low, high = np.where(is_below, middle, low), np.where(is_below, high, middle)
        return 0.5 * (low + high)

    return MarginalTable(tuple(names), mean, sd, quantile, 1.0 - cdf(np.zeros(len(mean))))
