"""The Gaussian with a full covariance matrix, kept with the Cholesky factor of that matrix."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from cavity.base import arrays
from cavity.base.constants import LOG_2PI
from cavity.base.errors import check_within_range
from cavity.base.lazy_scipy import stats
from cavity.base.public_objects import ArrayLike, FloatArray
from cavity.base.triangles import invert_lower, solve_lower
from cavity.distributions.family import Distribution


@dataclass(frozen=True, slots=True, eq=False, repr=False, init=False)
class MultivariateGaussian(Distribution):
    """A Gaussian over D variables with a full covariance matrix.

    Parameters
    ----------
    mean : array_like, shape (D,)
        Mean.
    covariance : array_like, shape (D, D), optional
        Covariance matrix, positive definite.
    precision : array_like, shape (D, D), optional
        Its inverse. Exactly one of the two must be given.

    Attributes
    ----------
    mean, tau : ndarray (D,)
        Mean, and precision times mean.
    covariance, precision : ndarray (D, D)
        One as it was given, the other its inverse.

    Raises
    ------
    ValueError, TypeError
        For wrong shapes, values that are not finite, a matrix that is not symmetric, or both matrices or none.
    NotPositiveDefiniteError
        If the matrix is not positive definite.
    OverflowError
        If a parameter that follows from the given ones leaves the range of float64.

    Notes
    -----
    `natural` holds tau and the precision, raveled; `statistics` E x and -E xx'/2. The lower Cholesky factor of the
    covariance is kept: samples are mean + factor z, and log determinants are sums over its diagonal.

    Examples
    --------
    >>> from cavity.distributions import MultivariateGaussian
    >>> q = MultivariateGaussian([1.0, 2.0], [[2.0, 1.0], [1.0, 2.0]])
    >>> (q.tau.round(12) + 0.0).tolist(), round(q.entropy(), 6)
    ([0.0, 1.0], 3.387183)
    >>> q.with_natural(q.natural).mean.round(12).tolist()
    [1.0, 2.0]
    """

    mean: FloatArray
    tau: FloatArray
    covariance: FloatArray
    precision: FloatArray
    _factor: FloatArray  # lower Cholesky factor of the covariance
    _given: str  # what is exact: mean and "covariance", mean and "precision", or "natural" parameters

    def __init__(
        self, mean: ArrayLike, covariance: ArrayLike | None = None, *, precision: ArrayLike | None = None
    ) -> None:
        """Validate, and factorise the matrix."""
        mean = arrays.check_finite_array(mean, "mean", ndim=(1,))
        if (covariance is None) == (precision is None):
            raise TypeError("exactly one of covariance and precision must be given")
        if covariance is None:
            matrices = _from_precision(precision, len(mean))
        else:
            matrices = _from_covariance(covariance, len(mean))
        with np.errstate(over="ignore", invalid="ignore"):
            tau = matrices["precision"] @ mean
        self._set(mean=mean, tau=tau, **matrices)

    def _set(self, _given, **given_arrays):
        for name, array in given_arrays.items():
            check_within_range(array, "MultivariateGaussian: the parameters")
            object.__setattr__(self, name, arrays.make_read_only(np.array(array)))
        object.__setattr__(self, "_given", str(_given))

    @classmethod
    def from_moments(cls, mean: ArrayLike, covariance: ArrayLike) -> MultivariateGaussian:
        """Return the Gaussian with given moments.

        Parameters
        ----------
        mean : array_like, shape (D,)
            Mean.
        covariance : array_like, shape (D, D)
            Covariance, positive definite.

        Returns
        -------
        MultivariateGaussian
            The distribution.
        """
        return cls(mean, covariance)

    @classmethod
    def from_natural(cls, tau: ArrayLike, precision: ArrayLike) -> MultivariateGaussian:
        """Return the Gaussian with given natural parameters.

        Parameters
        ----------
        tau : array_like, shape (D,)
            Precision times mean.
        precision : array_like, shape (D, D)
            Precision, positive definite.

        Returns
        -------
        MultivariateGaussian
            The distribution.
        """
        tau = arrays.check_finite_array(tau, "tau", ndim=(1,))
        matrices = _from_precision(precision, len(tau))
        factor = matrices["_factor"]
        with np.errstate(over="ignore", invalid="ignore"):
            mean = factor @ (factor.T @ tau)
        return cls._of(mean=mean, tau=tau, **matrices | {"_given": "natural"})

    @property
    def dim(self) -> int:
        """The number D of variables."""
        return len(self.mean)

    @property
    def event_shape(self) -> tuple[int, ...]:
        """The shape (D,) of one sample."""
        return self.mean.shape

    def to_scipy(self) -> Any:
        """Return the distribution as a frozen one of scipy.stats.

        Returns
        -------
        scipy.stats distribution
            ``multivariate_normal``.
        """
        return stats.multivariate_normal(self.mean, self.covariance, allow_singular=True)

    @property
    def natural(self) -> FloatArray:
        """tau and then the precision, raveled."""
        return np.concatenate([self.tau, self.precision.ravel()])

    @property
    def statistics(self) -> FloatArray:
        """E x and then -E xx'/2, raveled."""
        with np.errstate(over="ignore"):
            second = -0.5 * (self.covariance + np.outer(self.mean, self.mean))
        return check_within_range(np.concatenate([self.mean, second.ravel()]), "statistics: the moments")

    def entropy(self) -> float:
        """Return the entropy in nats.

        Returns
        -------
        float
            D (1 + log 2 pi)/2 + log|covariance|/2.
        """
        return float(0.5 * self.dim * (1.0 + LOG_2PI) + np.sum(np.log(np.diag(self._factor))))

    def __repr__(self) -> str:
        return f"<MultivariateGaussian in {self.dim} dimension(s)>"

    def _from_natural(self, vector):
        return type(self).from_natural(vector[: self.dim], vector[self.dim :].reshape(self.dim, self.dim))

    def _log_density(self, x):
        deviation = (x - self.mean).reshape(-1, self.dim)
        with np.errstate(over="ignore"):
            scaled = solve_lower(self._factor, deviation.T)
            quadratic = np.sum(scaled * scaled, axis=0).reshape(x.shape[:-1])
        return -0.5 * (self.dim * LOG_2PI + quadratic) - np.sum(np.log(np.diag(self._factor)))

    def _sample(self, n, rng):
        return self.mean + rng.standard_normal((n, self.dim)) @ self._factor.T


def _from_covariance(covariance, size):
    covariance = arrays.check_symmetric(covariance, "covariance", size)
    factor = arrays.cholesky(covariance, "covariance")
    with np.errstate(over="ignore", invalid="ignore"):
        inverse = invert_lower(factor)
        precision = inverse.T @ inverse
    return dict(covariance=covariance, precision=precision, _factor=factor, _given="covariance")


def _from_precision(precision, size):
    """The precision is U U' with U upper triangular; the lower factor of its inverse is then the inverse of U'."""
    precision = arrays.check_symmetric(precision, "precision", size)
    upper = arrays.cholesky(precision[::-1, ::-1], "precision")[::-1, ::-1]
    with np.errstate(over="ignore", invalid="ignore"):
        factor = invert_lower(upper.T)
        covariance = factor @ factor.T
    return dict(covariance=covariance, precision=precision, _factor=factor, _given="precision")


def covariance_root(q):
    """Return the lower triangular L of a `MultivariateGaussian` with the covariance L L'."""
    return q._factor
