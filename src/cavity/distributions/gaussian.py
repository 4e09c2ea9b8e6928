"""Scaled Gaussians in natural parameters: batches of them, and their algebra.

References
----------
.. [H] Ralf Herbrich, "Efficient Operations on Gaussian Distributions and Factors", 2023: Theorems 1 (product),
   2 (quotient) and 3 (linear functions), Corollary 1 (observation). With log|a| for its log(a) in (10), so that
   negative slopes are right, and with absolute values in Theorems 1 and 2, so that improper factors are.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from cavity import _core
from cavity._core import scalar
from cavity.base import arrays
from cavity.base.errors import raise_status
from cavity.base.lazy_scipy import special, stats
from cavity.base.public_objects import ArrayLike
from cavity.distributions import algebra
from cavity.distributions.algebra import ScaledGaussianAlgebra, check_slots, check_variance, resolve_slots
from cavity.distributions.products import divide, multiply

_kernel = _core.best("gaussian")


class Gaussian(ScaledGaussianAlgebra, scalar.GaussianBase):
    """A batch of scaled Gaussians over one variable, made from mean and variance or from natural parameters.

    The natural parameters are ``rho``, the precision (1/variance), and ``tau``, precision times mean. The value at x is
    exp(kappa + tau x - rho x^2/2). `log_scale` is the log of the integral, extended so that ``*`` and ``/`` stay exact
    for improper factors (rho <= 0): kappa = log_scale + log(|rho|/(2 pi))/2 - tau^2/(2 rho), and kappa = log_scale
    where rho is 0. rho = inf is a point mass at ``tau``.

    Parameters
    ----------
    tau : array_like, optional
        Precision times mean (the location, for a point mass).
    rho : array_like, optional
        Precision; negative, zero and infinite values are legal.
    log_scale : array_like, default 0
        Log of the integral.
    mean, variance : array_like, optional
        In place of tau and rho; a variance of 0 makes a point mass, an infinite one the flat factor rho = 0.

    Attributes
    ----------
    tau, rho, log_scale : float or ndarray
        The slots, broadcast to one shape; read-only arrays unless the batch shape is ().
    mean, variance, is_proper, shape
        Derived quantities.

    Raises
    ------
    ValueError
        For nan, an infinite tau, rho = -inf, a negative variance, or shapes that do not broadcast.
    TypeError
        If not just one of the two pairs is given.

    References
    ----------
    .. [H] Ralf Herbrich, "Efficient Operations on Gaussian Distributions and Factors", 2023.

    Examples
    --------
    >>> import cavity
    >>> prior = cavity.Gaussian(mean=0.0, variance=100.0)
    >>> posterior = prior * cavity.Gaussian(mean=2.0, variance=1.0)
    >>> round(posterior.mean, 6), round(posterior.variance, 6)
    (1.980198, 0.990099)
    >>> likelihood = posterior / prior
    >>> round(likelihood.mean, 12), abs(round(likelihood.log_scale, 12))
    (2.0, 0.0)
    """

    __slots__ = ()

    def __new__(
        cls,
        tau: ArrayLike | None = None,
        rho: ArrayLike | None = None,
        log_scale: ArrayLike = 0.0,
        *,
        mean: ArrayLike | None = None,
        variance: ArrayLike | None = None,
    ) -> Gaussian:
        """Validate, broadcast and copy the slots."""
        tau, rho = resolve_slots(tau, rho, mean, variance)
        tau = arrays.check_finite_array(tau, "tau")
        tau, rho, gamma = check_slots(tau[..., None], rho, log_scale)
        return cls._make(tau.copy(), rho.copy(), gamma.copy())

    @classmethod
    def _make(cls, tau, rho, gamma):
        tau, rho, gamma = np.broadcast_arrays(tau[..., 0], rho, gamma)
        if rho.ndim == 0:
            return scalar.from_floats(cls, tau, rho, gamma)
        return scalar.from_arrays(cls, *(arrays.make_read_only(np.ascontiguousarray(a)) for a in (tau, rho, gamma)))

    def _parts(self):
        return np.asarray(self.tau)[..., None], np.asarray(self.rho), np.asarray(self.log_scale)

    @staticmethod
    def _points(vectors):
        return algebra.to_scalar(vectors[..., 0])

    @staticmethod
    def _vectors(points, name):
        return arrays.check_finite_array(points, name)[..., None]

    def _combine(self, other, sign):
        """Product or quotient of batches; called by the compiled ``*`` and ``/`` for anything but two singles."""
        operands = self.tau, self.rho, self.log_scale, other.tau, other.rho, other.log_scale
        tau, rho, gamma = (multiply if sign > 0 else divide)(*operands)
        return scalar.from_arrays(type(self), *map(arrays.make_read_only, (tau, rho, gamma)))

    @classmethod
    def from_moments(cls, mean: ArrayLike, variance: ArrayLike, log_scale: ArrayLike = 0.0) -> Gaussian:
        """Return Gaussians with given moments: the same as those made with ``mean=`` and ``variance=``.

        Parameters
        ----------
        mean : array_like
            Means.
        variance : array_like
            Variances; 0 makes a point mass, inf the flat factor rho = 0.
        log_scale : array_like, default 0
            Log of the integral.

        Returns
        -------
        Gaussian
            The batch, of the broadcast shape.
        """
        return cls(mean=mean, variance=variance, log_scale=log_scale)

    @classmethod
    def uniform(cls, shape: tuple[int, ...] = ()) -> Gaussian:
        """Return the constant function 1, the identity of multiplication.

        Parameters
        ----------
        shape : tuple of int, default ()
            Batch shape.

        Returns
        -------
        Gaussian
            tau = rho = log_scale = 0.
        """
        return cls(np.zeros(shape), 0.0)

    @classmethod
    def point_mass(cls, x: ArrayLike) -> Gaussian:
        """Return the point mass of weight 1 at x.

        Parameters
        ----------
        x : array_like
            Locations.

        Returns
        -------
        Gaussian
            tau = x, rho = inf.
        """
        return cls(x, np.inf)

    def to_scipy(self) -> Any:
        """Return the normalised distribution as a frozen `scipy.stats.norm`; all factors must be proper."""
        if not np.all((np.asarray(self.rho) > 0) & np.isfinite(self.rho)):
            raise ValueError("to_scipy: every factor must have a positive, finite precision")
        return stats.norm(self.mean, np.sqrt(self.variance))


class SphericalGaussian(ScaledGaussianAlgebra):
    """A batch of scaled Gaussians in d dimensions, the variance of all coordinates the same.

    The natural parameters are ``rho``, the precision (1/variance), and ``tau``, precision times mean. The value at x is
    exp(kappa + tau'x - rho |x|^2/2); everything else is as for `Gaussian`, with d/2 in front of logs and squared norms
    for squares.

    Parameters
    ----------
    tau : array_like, shape (..., d), optional
        Precision times mean (the location, for a point mass).
    rho : array_like, shape (...), optional
        Precision; negative, zero and infinite values are legal.
    log_scale : array_like, shape (...), default 0
        Log of the integral.
    mean : array_like, shape (..., d), optional
        With `variance`, in place of tau and rho.
    variance : array_like, shape (...), optional
        Of each coordinate; 0 makes a point mass, infinity the flat factor rho = 0.

    Examples
    --------
    >>> import cavity
    >>> prior = cavity.SphericalGaussian(mean=[0.0, 0.0], variance=100.0)
    >>> posterior, log_evidence = prior.observe([1.0, 2.0], variance=1.0)
    >>> posterior.mean.round(6).tolist(), round(log_evidence, 6)
    ([0.990099, 1.980198], -6.47775)
    """

    __slots__ = ("log_scale", "rho", "tau")

    def __init__(
        self,
        tau: ArrayLike | None = None,
        rho: ArrayLike | None = None,
        log_scale: ArrayLike = 0.0,
        *,
        mean: ArrayLike | None = None,
        variance: ArrayLike | None = None,
    ) -> None:
        """Validate, broadcast and copy the slots."""
        tau, rho = resolve_slots(tau, rho, mean, variance, trailing=1)
        tau = arrays.check_finite_array(tau, "tau")
        if tau.ndim == 0 or tau.shape[-1] == 0:
            raise ValueError(f"tau must have shape (..., d) with d >= 1, got {tau.shape}")
        tau, rho, gamma = check_slots(tau, rho, log_scale)
        self._set(tau.copy(), rho.copy(), gamma.copy())

    def _set(self, tau, rho, gamma):
        for name, slot in zip(("tau", "rho", "log_scale"), algebra.broadcast(tau, rho, gamma), strict=True):
            slot = arrays.make_read_only(np.ascontiguousarray(slot).reshape(slot.shape))
            object.__setattr__(self, name, slot if slot.ndim else float(slot))

    def __setattr__(self, name: str, value: Any) -> None:
        raise AttributeError(f"{type(self).__name__} is immutable; cannot set {name}")

    @classmethod
    def _make(cls, tau, rho, gamma):
        return cls._of(tau=tau, rho=rho, gamma=gamma)

    def _parts(self):
        return self.tau, np.asarray(self.rho), np.asarray(self.log_scale)

    @property
    def dim(self) -> int:
        """The dimension d of the variable."""
        return self.tau.shape[-1]

    @staticmethod
    def _points(vectors):
        return vectors

    def _vectors(self, points, name):
        points = arrays.check_finite_array(points, name)
        if points.ndim and points.shape[-1] != self.dim:
            raise ValueError(f"{name} must be a number or have shape (..., {self.dim}), got {points.shape}")
        return points if points.ndim else np.full(self.dim, points)

    def __mul__(self, other: SphericalGaussian) -> SphericalGaussian:
        return self._combine(other, 1.0)

    def __truediv__(self, other: SphericalGaussian) -> SphericalGaussian:
        return self._combine(other, -1.0)

    def _combine(self, other, sign):
        if not isinstance(other, SphericalGaussian):
            return NotImplemented
        if other.dim != self.dim:
            raise ValueError(f"the factors have different dimensions: {self.dim} and {other.dim}")
        shape, d = np.broadcast_shapes(self.shape, other.shape), self.dim
        operands = []
        for factor in (self, other):
            tau, rho, gamma = factor._parts()
            operands += [np.ascontiguousarray(np.broadcast_to(tau, (*shape, d))).reshape(-1, d)]
            operands += [np.ascontiguousarray(np.broadcast_to(a, shape)).reshape(-1) for a in (rho, gamma)]
        status, row, results = _kernel.combine_spherical(sign, *operands)
        raise_status(status, row, "multiply" if sign > 0 else "divide")
        return self._make(results[0].reshape(*shape, d), results[1].reshape(shape), results[2].reshape(shape))

    @classmethod
    def from_moments(cls, mean: ArrayLike, variance: ArrayLike, log_scale: ArrayLike = 0.0) -> SphericalGaussian:
        """Return Gaussians with given moments: the same as those made with ``mean=`` and ``variance=``.

        Parameters
        ----------
        mean : array_like, shape (..., d)
            Means.
        variance : array_like, shape (...)
            Variances per coordinate; 0 makes a point mass, inf the flat factor rho = 0.
        log_scale : array_like, default 0
            Log of the integral.

        Returns
        -------
        SphericalGaussian
            The batch, of the broadcast shape.
        """
        return cls(mean=mean, variance=variance, log_scale=log_scale)

    @classmethod
    def uniform(cls, dim: int, shape: tuple[int, ...] = ()) -> SphericalGaussian:
        """Return the constant function 1, the identity of multiplication.

        Parameters
        ----------
        dim : int
            Dimension d of the variable.
        shape : tuple of int, default ()
            Batch shape.

        Returns
        -------
        SphericalGaussian
            tau = 0, rho = log_scale = 0.
        """
        return cls(np.zeros((*np.atleast_1d(np.asarray(shape, dtype=int)), dim)), 0.0)

    @classmethod
    def point_mass(cls, x: ArrayLike) -> SphericalGaussian:
        """Return the point mass of weight 1 at x.

        Parameters
        ----------
        x : array_like, shape (..., d)
            Locations.

        Returns
        -------
        SphericalGaussian
            tau = x, rho = inf.
        """
        return cls(x, np.inf)

    def to_scipy(self) -> Any:
        """Return the normalised distribution as a frozen `scipy.stats.multivariate_normal` (batch shape () only)."""
        if self.shape or not 0 < self.rho < np.inf:
            raise ValueError("to_scipy: needs batch shape () and a positive, finite precision")
        return stats.multivariate_normal(self.mean, np.eye(self.dim) * self.variance)


def match_moments(log_weights: ArrayLike, means: ArrayLike, variances: ArrayLike) -> Gaussian:
    """Return the Gaussian with the mass, mean and variance of a mixture: its projection in forward KL.

    Parameters
    ----------
    log_weights : array_like, shape (..., K)
        Log of the (unnormalised) weights; -inf drops a component.
    means : array_like, shape (..., K)
        Means of the components.
    variances : array_like, shape (..., K)
        Variances of the components, zero or positive.

    Returns
    -------
    Gaussian
        Batch shape (...), log scale the log of the total weight.

    Notes
    -----
    mean = sum_k w_k m_k and variance = sum_k w_k (v_k + (m_k - mean)^2): the minimiser of KL(mixture || q) matches
    the expected sufficient statistics.

    Examples
    --------
    >>> import cavity, numpy as np
    >>> q = cavity.match_moments(np.log([0.5, 0.5]), [-1.0, 1.0], [1.0, 1.0])
    >>> q.mean, q.variance
    (0.0, 2.0)
    """
    log_weights = arrays.check_real_array(log_weights, "log_weights")
    means = arrays.check_finite_array(means, "means")
    variances = arrays.check_finite_array(check_variance(variances), "variances")
    if np.any(np.isnan(log_weights)) or np.any(log_weights == np.inf):
        raise ValueError("log_weights must not be nan or +inf")
    log_weights, means, variances = np.broadcast_arrays(log_weights, means, variances)
    if log_weights.ndim == 0 or log_weights.shape[-1] == 0:
        raise ValueError("log_weights, means and variances must have at least one component along the last axis")
    total = special.logsumexp(log_weights, axis=-1)
    if np.any(total == -np.inf):
        raise ValueError("log_weights: at least one component must have a positive weight")
    weights = np.exp(log_weights - total[..., None])
    weights = weights / weights.sum(axis=-1, keepdims=True)
    # differences from the heaviest component first: means far from zero lose nothing
    centre = np.take_along_axis(means, np.argmax(weights, axis=-1, keepdims=True), axis=-1)
    with np.errstate(over="ignore", invalid="ignore"):
        offsets = np.where(weights > 0, means - centre, 0.0)
        mean = np.sum(weights * offsets, axis=-1)
        variance = np.sum(weights * (variances + (offsets - mean[..., None]) ** 2), axis=-1)
    if not np.all(np.isfinite(variance)):
        raise OverflowError("match_moments: the variance of the mixture leaves the range of float64")
    return Gaussian.from_moments(mean + centre[..., 0], variance, total)
