"""What all distributions share: natural parameters in, densities and samples out, checked once."""

from __future__ import annotations

from typing import Any, ClassVar, Self

import numpy as np

from cavity.base import arrays
from cavity.base.constants import LOG_2PI
from cavity.base.errors import check_within_range
from cavity.base.public_objects import ArrayLike, FloatArray, FloatOrArray, Frozen, Seed


def sum_log_densities(logs, ndim):
    """Sum log densities of independent variables over the last `ndim` axes; -inf if one of them is impossible."""
    axes = tuple(range(-ndim, 0))
    impossible = logs == -np.inf
    total = np.sum(np.where(impossible, 0.0, logs), axis=axes)
    return np.where(np.any(impossible, axis=axes), -np.inf, total)


class Distribution(Frozen):
    """A member of an exponential family; frozen.

    A subclass has `natural` and `statistics` (flat arrays in the same order, the exponent's expectation is their
    product), `entropy()`, and gives `event_shape`, `_from_natural(vector)`, `_log_density(points)`, `_sample(n, rng)`.
    """

    __slots__ = ()
    __eq__: ClassVar[Any] = object.__eq__
    __hash__: ClassVar[Any] = object.__hash__

    @classmethod
    def _of(cls, **parameters):
        """Wrap parameters that are known to fit together."""
        self = object.__new__(cls)
        self._set(**parameters)
        return self

    def with_natural(self, vector: ArrayLike) -> Self:
        """Return the distribution of this kind and shape with other natural parameters.

        Parameters
        ----------
        vector : array_like
            Natural parameters in the order of `natural`.

        Returns
        -------
        same type
            The distribution.

        Raises
        ------
        ValueError
            If the vector has another length, is not finite, or lies outside the domain of the family
            (`NotPositiveDefiniteError` for a matrix that must be positive definite).
        """
        vector = arrays.check_finite_array(vector, "vector", ndim=(1,))
        size = self.natural.size
        if vector.size != size:
            raise ValueError(f"vector must hold {size} natural parameters, got {vector.size}")
        return self._from_natural(vector)

    def log_density(self, x: ArrayLike) -> FloatOrArray:
        """Return the log of the normalised density; for a batch, of all its independent variables together.

        Parameters
        ----------
        x : array_like, shape (...) + event_shape
            Points.

        Returns
        -------
        float or ndarray, shape (...)
            Log densities, -inf outside the support.

        Raises
        ------
        ValueError
            If the shape does not end like `event_shape`, or a value is not finite.
        """
        x = arrays.check_finite_array(x, "x")
        event = self.event_shape
        if x.ndim < len(event) or x.shape[x.ndim - len(event) :] != event:
            shape = ", ".join(["...", *map(str, event)])
            raise ValueError(f"x must have shape ({shape}), got {x.shape}")
        value = self._log_density(x)
        return value if np.ndim(value) else float(value)

    def sample(self, n: int, rng: Seed) -> FloatArray:
        """Return independent samples.

        Parameters
        ----------
        n : int
            Number of draws.
        rng : seed or numpy.random.Generator
            Source of randomness; a seed gives the same bits again.

        Returns
        -------
        ndarray, shape (n,) + event_shape
            The samples.
        """
        return self._sample(arrays.check_integer(n, "n", low=1), arrays.make_generator(rng))


class GaussianFamily(Distribution):
    """`Distribution` for the scaled Gaussians: precision rho times the identity, the log scale left aside."""

    __slots__ = ()

    @property
    def event_shape(self) -> tuple[int, ...]:
        """The shape of one sample: the batch, and the vector if it is one."""
        return np.shape(self.tau)

    @property
    def natural(self) -> FloatArray:
        """tau and then rho, flattened: the exponent is tau'x - rho |x|^2/2."""
        return np.concatenate([np.ravel(self.tau), np.ravel(self.rho)])

    @property
    def statistics(self) -> FloatArray:
        """E x and then -E |x|^2/2, flattened, of the normalised Gaussians; all must be proper."""
        mean, rho = self._proper_parts("statistics")
        with np.errstate(over="ignore"):
            second = -0.5 * (np.sum(mean * mean, axis=-1) + mean.shape[-1] / rho)
            return check_within_range(np.concatenate([mean.ravel(), second.ravel()]), "statistics: the moments")

    def entropy(self) -> float:
        """Return the entropy of the normalised Gaussians in nats, summed over the batch.

        Returns
        -------
        float
            (1 + log(2 pi / rho)) d/2, summed.

        Raises
        ------
        ValueError
            If a factor is improper or a point mass.
        """
        mean, rho = self._proper_parts("entropy")
        return float(0.5 * mean.shape[-1] * np.sum(1.0 + LOG_2PI - np.log(rho)))

    def _proper_parts(self, action):
        """Mean (..., d) and rho (...), which must be proper and not a point mass."""
        tau, rho, _ = self._parts()
        if not np.all((rho > 0) & np.isfinite(rho)):
            raise ValueError(f"{action}: every factor must have a positive, finite precision")
        with np.errstate(over="ignore"):
            return tau / rho[..., None], rho

    def _from_natural(self, vector):
        tau, rho = vector[: np.size(self.tau)], vector[np.size(self.tau) :]
        if not np.all(rho > 0):
            raise ValueError(f"vector: the precisions must be positive, got {rho[~(rho > 0)][0]}")
        return type(self)(tau.reshape(np.shape(self.tau)), rho.reshape(np.shape(self.rho)))

    def _log_density(self, x):
        mean, rho = self._proper_parts("log_density")
        deviation = (x[..., None] if np.ndim(self.tau) == rho.ndim else x) - mean
        with np.errstate(over="ignore"):
            quadratic = np.sum((np.sqrt(rho)[..., None] * deviation) ** 2, axis=-1)
        value = 0.5 * (mean.shape[-1] * (np.log(rho) - LOG_2PI) - quadratic)
        return sum_log_densities(value, rho.ndim)

    def _sample(self, n, rng):
        mean, rho = self._proper_parts("sample")
        z = rng.standard_normal((n, *mean.shape))
        draws = (mean + z / np.sqrt(rho)[..., None]).reshape(n, *self.event_shape)
        return check_within_range(draws, "sample: the draws")
