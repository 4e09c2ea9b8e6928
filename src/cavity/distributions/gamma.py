"""The gamma distribution."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from cavity.base import arrays
from cavity.base.errors import check_within_range
from cavity.base.lazy_scipy import special, stats
from cavity.base.public_objects import FloatArray, FloatOrArray, set_fields
from cavity.base.special import excess, quiet, shape_entropy, stirling
from cavity.distributions.family import Distribution, sum_log_densities


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Gamma(Distribution):
    """A gamma distribution over x > 0, or a batch of independent ones.

    The density is rate^shape x^(shape - 1) exp(-rate x)/Gamma(shape).

    Parameters
    ----------
    shape : array_like
        Positive shape parameters.
    rate : array_like
        Positive rates (inverse scales), in inverse units of x; broadcast against `shape`.

    Attributes
    ----------
    shape, rate : float or ndarray
        The parameters, broadcast to one shape; read-only arrays unless that is ().

    Raises
    ------
    ValueError, TypeError
        For values that are not positive and finite, or shapes that do not broadcast.
    OverflowError
        If the mean shape/rate leaves the range of float64.

    Notes
    -----
    `natural` holds shape - 1 and then -rate, `statistics` E log x and then E x, raveled.

    Examples
    --------
    >>> from cavity.distributions import Gamma
    >>> q = Gamma(3.0, 2.0)
    >>> q.mean, q.variance, round(q.entropy(), 6)
    (1.5, 0.75, 1.154431)
    """

    shape: FloatOrArray
    rate: FloatOrArray

    def __post_init__(self) -> None:
        a, b = self.shape, self.rate
        if type(a) is type(b) is float and min(a, b) > 0.0 and max(a, b) < math.inf and 0.0 < a / b < math.inf:
            return  # as nearly always in sweeps of small models
        shape, rate = arrays.check_positive_array(self.shape, "shape"), arrays.check_positive_array(self.rate, "rate")
        try:
            parameters = np.broadcast_arrays(shape, rate)
        except ValueError:
            raise ValueError(f"shape and rate must broadcast, got shapes {shape.shape} and {rate.shape}") from None
        set_fields(self, shape=arrays.copy_read_only(parameters[0]), rate=arrays.copy_read_only(parameters[1]))
        with np.errstate(over="ignore", under="ignore"):
            mean = self.mean
        if not (np.all(np.isfinite(mean)) and np.all(mean > 0)):
            raise OverflowError("Gamma: the mean shape/rate leaves the range of float64; rescale the variable")

    @property
    def event_shape(self) -> tuple[int, ...]:
        """The shape of the batch and of one sample."""
        return np.shape(self.shape)

    def to_scipy(self) -> Any:
        """Return the distribution as a frozen one of scipy.stats, of a batch with arrays as parameters.

        Returns
        -------
        scipy.stats distribution
            ``gamma``.
        """
        return stats.gamma(self.shape, scale=np.divide(1.0, self.rate))

    @property
    def natural(self) -> FloatArray:
        """shape - 1 and then -rate, raveled."""
        if type(self.shape) is float:
            return np.array([self.shape - 1.0, -self.rate])
        return np.concatenate([np.ravel(self.shape) - 1.0, -np.ravel(self.rate)])

    @property
    def statistics(self) -> FloatArray:
        """E log x = digamma(shape) - log rate and then E x = shape/rate, raveled."""
        if type(self.shape) is float:
            return np.array([self._expected_log(), self.mean])
        return np.concatenate([np.ravel(self._expected_log()), np.ravel(self.mean)])

    @property
    def mean(self) -> FloatOrArray:
        """shape/rate."""
        return self.shape / self.rate

    @property
    def variance(self) -> FloatOrArray:
        """shape/rate^2."""
        return self.mean / self.rate

    def _expected_log(self):
        return check_within_range(special.digamma(self.shape) - np.log(self.rate), "Gamma: the expected logarithms")

    def entropy(self) -> float:
        """Return the differential entropy in nats, summed over the batch.

        Returns
        -------
        float
            shape - log rate + lgamma(shape) + (1 - shape) digamma(shape), summed.
        """
        return float(np.sum(shape_entropy(self.shape) + self._expected_log()))

    def __repr__(self) -> str:
        if self.event_shape:
            return f"<Gamma batch of shape {self.event_shape}>"
        return f"Gamma(shape={self.shape}, rate={self.rate})"

    def _from_natural(self, vector):
        if not self.event_shape:
            shape, negative = vector.tolist()
            return Gamma(shape + 1.0, -negative)
        shape, rate = vector[: vector.size // 2] + 1.0, -vector[vector.size // 2 :]
        return Gamma(shape.reshape(self.event_shape), rate.reshape(self.event_shape))

    @quiet
    def _log_density(self, x):
        a = self.shape
        inside = np.where(x > 0, x, 1.0)
        value = stirling(a) - a * excess(inside, self.mean) - np.log(inside)
        edge = np.where(np.equal(a, 1), np.log(self.rate), np.where(np.less(a, 1), np.inf, -np.inf))
        value = np.where(x > 0, value, np.where(x == 0, edge, -np.inf))
        return sum_log_densities(value, len(self.event_shape))

    def _sample(self, n, rng):
        return rng.standard_gamma(self.shape, (n, *self.event_shape)) / self.rate
