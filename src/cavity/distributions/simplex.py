"""Distributions over K categories and over their probabilities."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np

from cavity.base import arrays
from cavity.base.errors import check_within_range
from cavity.base.lazy_scipy import special, stats
from cavity.base.public_objects import ArrayLike, FloatArray, FloatOrArray, set_fields
from cavity.base.special import excess, quiet, shape_entropy, stirling
from cavity.distributions.family import Distribution, sum_log_densities

SUM_TOLERANCE = 1e-8  # how far from 1 the sum of probabilities may be


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Dirichlet(Distribution):
    """A Dirichlet distribution over the probabilities of K categories, or a batch of independent ones.

    Parameters
    ----------
    concentration : array_like, shape (..., K)
        Positive parameters alpha.

    Attributes
    ----------
    concentration : ndarray (..., K)
        The parameters, read-only.

    Raises
    ------
    ValueError, TypeError
        For an empty array or values that are not positive and finite.

    Notes
    -----
    `natural` holds alpha - 1, `statistics` E log p = digamma(alpha) - digamma(sum alpha), both raveled. The density is
    that of the first K - 1 probabilities.

    Examples
    --------
    >>> from cavity.distributions import Dirichlet
    >>> q = Dirichlet([2.0, 1.0, 1.0])
    >>> q.mean.tolist(), round(q.entropy(), 6)
    ([0.5, 0.25, 0.25], -0.958426)
    """

    concentration: FloatOrArray

    def __post_init__(self) -> None:
        array = arrays.check_positive_array(self.concentration, "concentration")
        if array.ndim == 0 or array.size == 0:
            raise ValueError(f"concentration must have shape (..., K) with K >= 1, got {array.shape}")
        set_fields(self, concentration=arrays.copy_read_only(array))

    @property
    def event_shape(self) -> tuple[int, ...]:
        """The shape (..., K) of one sample."""
        return self.concentration.shape

    @property
    def total(self) -> FloatOrArray:
        """The sums of the concentrations, shape (...)."""
        return self.concentration.sum(axis=-1)

    def to_scipy(self) -> Any:
        """Return the distribution as a frozen one of scipy.stats; there is none of a batch.

        Returns
        -------
        scipy.stats distribution
            ``dirichlet``.
        """
        if self.concentration.ndim > 1:
            raise ValueError(f"to_scipy: needs one distribution, got a batch of shape {self.concentration.shape[:-1]}")
        return stats.dirichlet(self.concentration)

    @property
    def natural(self) -> FloatArray:
        """The concentrations minus 1, raveled."""
        return self.concentration.ravel() - 1.0

    @property
    def statistics(self) -> FloatArray:
        """E log p, raveled."""
        logs = special.digamma(self.concentration) - special.digamma(self.total)[..., None]
        return check_within_range(logs, "Dirichlet: the expected logarithms").ravel()

    @property
    def mean(self) -> FloatOrArray:
        """Expected probabilities, shape (..., K)."""
        return self.concentration / self.total[..., None]

    @property
    def variance(self) -> FloatOrArray:
        """Variances of the probabilities, shape (..., K)."""
        total = self.total[..., None]
        return self.mean * ((total - self.concentration) / total) / (total + 1.0)

    def entropy(self) -> float:
        """Return the differential entropy in nats, summed over the batch.

        Returns
        -------
        float
            log B(alpha) - sum (alpha - 1) E log p.
        """
        alpha, total = self.concentration, self.total
        return float(np.sum(shape_entropy(alpha)) - np.sum(shape_entropy(total)) + np.sum(self.statistics))

    def __repr__(self) -> str:
        return f"<Dirichlet of shape {self.concentration.shape}>"

    def _from_natural(self, vector):
        return Dirichlet(vector.reshape(self.concentration.shape) + 1.0)

    @quiet
    def _log_density(self, x):
        if np.any(x < 0) or np.any(np.abs(x.sum(axis=-1) - 1.0) > SUM_TOLERANCE):
            raise ValueError("x must hold probabilities: not negative, with sums of 1 over the last axis")
        alpha, inside = self.concentration, np.where(x > 0, x, 1.0)
        # sum alpha log x = sum alpha log m - sum alpha excess(x, m), for the mean m
        terms = stirling(alpha) - alpha * excess(inside, self.mean) - np.log(inside)
        # x^(alpha - 1) at 0: 1 for alpha = 1, else 0 or infinite
        flat = stirling(alpha) + alpha * (1.0 - np.log(self.mean))
        edge = np.where(alpha == 1, flat, np.where(alpha < 1, np.inf, -np.inf))
        value = sum_log_densities(np.where(x > 0, terms, edge), 1) - stirling(self.total)
        return sum_log_densities(value, self.total.ndim)

    def _sample(self, n, rng):
        # log of a gamma variable of shape alpha = that of shape alpha + 1 plus log(uniform)/alpha: nothing underflows
        shape = (n, *self.concentration.shape)
        logs = np.log(rng.standard_gamma(self.concentration + 1.0, shape))
        return special.softmax(logs - rng.standard_exponential(shape) / self.concentration, axis=-1)


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Categorical(Distribution):
    """A distribution over the categories 0, ..., K-1, or a batch of independent ones.

    Parameters
    ----------
    probabilities : array_like, shape (..., K)
        Probabilities, zero or positive, with sums of 1 over the last axis (to 1e-8; they are divided by their sum).

    Attributes
    ----------
    probabilities : ndarray (..., K)
        The probabilities, read-only.

    Raises
    ------
    ValueError, TypeError
        For an empty array, negative values, or sums that are not 1.

    Notes
    -----
    `natural` holds log probabilities and `statistics` probabilities, raveled. Natural parameters may be given without
    their normaliser, which is then subtracted. They are kept, so that a probability too small for float64 keeps a
    finite logarithm; only one given as 0 has the natural parameter -inf.

    Examples
    --------
    >>> from cavity.distributions import Categorical
    >>> q = Categorical([0.5, 0.25, 0.25])
    >>> round(q.entropy(), 6), round(q.log_density(0), 6)
    (1.039721, -0.693147)
    """

    probabilities: FloatOrArray
    _logits: FloatArray = field(init=False)

    def __post_init__(self) -> None:
        array = arrays.check_finite_array(self.probabilities, "probabilities")
        if array.ndim == 0 or array.size == 0:
            raise ValueError(f"probabilities must have shape (..., K) with K >= 1, got {array.shape}")
        if np.any(array < 0):
            raise ValueError(f"probabilities must not be negative, got {array[array < 0][0]}")
        total = array.sum(axis=-1, keepdims=True)
        if np.any(np.abs(total - 1.0) > SUM_TOLERANCE):
            worst = total.flat[np.argmax(np.abs(total - 1.0))]
            raise ValueError(f"probabilities must have sums of 1 over the last axis, got a sum of {worst}")
        array = array / total
        with np.errstate(divide="ignore"):
            self._set(array, np.log(array))

    def _set(self, probabilities, _logits):
        set_fields(self, probabilities=arrays.make_read_only(probabilities), _logits=arrays.make_read_only(_logits))

    @classmethod
    def from_logits(cls, logits: ArrayLike) -> Categorical:
        """Return the distribution with probabilities proportional to exp(logits).

        Parameters
        ----------
        logits : array_like, shape (..., K)
            Log probabilities up to a constant along the last axis.

        Returns
        -------
        Categorical
            The distribution; nothing overflows, and small probabilities keep their logarithms.
        """
        logits = arrays.check_finite_array(logits, "logits")
        if logits.ndim == 0 or logits.size == 0:
            raise ValueError(f"logits must have shape (..., K) with K >= 1, got {logits.shape}")
        logits = special.log_softmax(logits, axis=-1)
        probabilities = np.exp(logits)
        return cls._of(probabilities=probabilities / probabilities.sum(axis=-1, keepdims=True), _logits=logits)

    @property
    def event_shape(self) -> tuple[int, ...]:
        """The shape (...) of one sample."""
        return self.probabilities.shape[:-1]

    @property
    def natural(self) -> FloatArray:
        """Log probabilities, raveled."""
        return self._logits.ravel()

    @property
    def statistics(self) -> FloatArray:
        """Probabilities, raveled."""
        return self.probabilities.ravel()

    @property
    def mean(self) -> FloatOrArray:
        """The probabilities: the means of the indicators of the categories, shape (..., K)."""
        return self.probabilities

    @property
    def variance(self) -> FloatOrArray:
        """The variances of the indicators of the categories, shape (..., K)."""
        return self.probabilities * (1.0 - self.probabilities)

    def entropy(self) -> float:
        """Return the entropy in nats, summed over the batch.

        Returns
        -------
        float
            -sum p log p, where 0 log 0 is 0.
        """
        return float(-np.sum(self.probabilities * np.where(self.probabilities > 0, self._logits, 0.0)))

    def __repr__(self) -> str:
        return f"<Categorical of shape {self.probabilities.shape}>"

    def _from_natural(self, vector):
        return type(self).from_logits(vector.reshape(self._logits.shape))

    def _log_density(self, x):
        k = self.probabilities.shape[-1]
        index = x.astype(np.intp)
        if np.any(index != x) or np.any((index < 0) | (index >= k)):
            raise ValueError(f"x must hold categories, integers from 0 to {k - 1}")
        logits = np.broadcast_to(self._logits, (*x.shape, k))
        return sum_log_densities(np.take_along_axis(logits, index[..., None], axis=-1)[..., 0], len(self.event_shape))

    def _sample(self, n, rng):
        cumulative = np.cumsum(self.probabilities, axis=-1)
        cumulative /= cumulative[..., -1:]
        return np.sum(rng.random((n, *self.event_shape, 1)) >= cumulative[..., :-1], axis=-1)
