"""The algebra that `Gaussian` and `SphericalGaussian` share, written once for d dimensions.

References
----------
.. [H] Ralf Herbrich, "Efficient Operations on Gaussian Distributions and Factors", 2023: Theorem 3 (linear functions),
   Corollary 1 (observation). With log|a| for its log(a) in (10), so that negative slopes are right.
"""

from __future__ import annotations

from typing import Any, Self

import numpy as np

from cavity import _core
from cavity.base import arrays
from cavity.base.constants import LOG_2PI
from cavity.base.errors import check_within_range, raise_status
from cavity.base.public_objects import ArrayLike, FloatOrArray
from cavity.distributions.family import GaussianFamily
from cavity.distributions.wide_range import WideRangeArray, invert, log_abs, sum_last_axis, to_float64, widen_range

_kernel = _core.best("gaussian")

MIN_INVERTIBLE_VARIANCE = 1.0 / np.finfo(float).max  # below it the precision overflows


class ScaledGaussianAlgebra(GaussianFamily):
    """What `Gaussian` and `SphericalGaussian` share: all of it on tau (..., d), rho (...), gamma (...).

    A subclass gives `_parts()`, those three arrays, and `_make(tau, rho, gamma)`, its inverse.
    """

    __slots__ = ()

    @property
    def shape(self) -> tuple[int, ...]:
        """The batch shape."""
        return np.shape(self.rho)

    @property
    def is_proper(self) -> Any:
        """Whether the precision is positive (a point mass counts as proper)."""
        return np.asarray(self.rho) > 0 if self.shape else self.rho > 0

    @property
    def variance(self) -> FloatOrArray:
        """1/rho: 0 for a point mass, infinite for a uniform factor, negative for an improper one."""
        with np.errstate(divide="ignore", over="ignore"):
            return to_scalar(np.divide(1.0, self.rho))

    @property
    def mean(self) -> FloatOrArray:
        """tau/rho, or the location of a point mass; nan where the precision is zero. OverflowError beyond float64."""
        tau, rho, _ = self._parts()
        with np.errstate(invalid="ignore", divide="ignore", over="ignore"):
            mean = np.where(np.isinf(rho)[..., None], tau, tau / rho[..., None])
        mean[rho == 0] = 0.0
        check_within_range(mean, "mean: tau/rho")
        mean[rho == 0] = np.nan
        return self._points(mean)

    def normalized(self) -> Self:
        """Return the same Gaussians with `log_scale` zero."""
        tau, rho, gamma = self._parts()
        return self._make(tau, rho, np.zeros_like(gamma))

    def logpdf(self, x: ArrayLike) -> FloatOrArray:
        """Return the log of the scaled value: gamma + log N(x; mean, variance) for a proper factor.

        Parameters
        ----------
        x : array_like
            Points, broadcast against the batch.

        Returns
        -------
        float or ndarray
            A point mass has log value inf at its location and -inf elsewhere.
        """
        tau, rho, gamma = self._parts()
        x = self._vectors(x, "x")
        return to_scalar(evaluate_log(x, tau, rho, gamma))

    def prod(self, axis: int | tuple[int, ...] | None = None) -> Self:
        """Return the product over some axes, log scale included; empty products are uniform.

        Parameters
        ----------
        axis : None, int or tuple of int, default None
            Batch axes to multiply over; all of them by default.

        Returns
        -------
        same type
            The products, batch shape without these axes.

        Raises
        ------
        OverflowError
            If the result leaves the range of float64.

        Notes
        -----
        All factors are evaluated at one place among them and no intermediate product is formed, so that improper
        factors which nearly cancel in between cost no digits.
        """
        tau, rho, gamma = self._parts()
        ndim = rho.ndim
        axes = range(ndim) if axis is None else np.lib.array_utils.normalize_axis_tuple(axis, ndim)
        axes = tuple(axes)
        kept_axes = [i for i in range(ndim) if i not in axes]
        shape = [rho.shape[i] for i in kept_axes]
        n = int(np.prod([rho.shape[i] for i in axes], dtype=np.intp))
        rows, d = int(np.prod(shape, dtype=np.intp)), tau.shape[-1]
        order = (*kept_axes, *axes)
        results = np.empty((rows, d)), np.empty(rows), np.empty(rows)
        status, row = _kernel.prod(
            np.ascontiguousarray(tau.transpose(*order, ndim)).reshape(rows, n, d),
            np.ascontiguousarray(rho.transpose(order)).reshape(rows, n),
            np.ascontiguousarray(gamma.transpose(order)).reshape(rows, n),
            *results,
            np.empty((2, d)),
        )
        raise_status(status, row, "multiply")
        return self._make(results[0].reshape(*shape, d), results[1].reshape(shape), results[2].reshape(shape))

    def __pow__(self, power: float) -> Self:
        """Raise to a real power: all of the factor, its scale included."""
        tau, rho, gamma = self._parts()
        p = arrays.check_finite_array(power, "power")
        point = np.isinf(rho)
        if np.any(point & (p != 1)):
            raise ValueError("power: a point mass has no power other than 1")
        d = tau.shape[-1]
        with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
            log_terms = 0.5 * d * ((p - 1) * (np.log(np.abs(rho)) - LOG_2PI) - np.log(np.abs(p)))
            new_rho = p * rho
            new_tau = p[..., None] * tau
            scaled = (p != 0) & (rho != 0) & ~point
            new_gamma = np.where(p == 0, 0.0, p * gamma) + np.where(scaled, log_terms, 0.0)
            # a precision that underflows leaves a flat factor, whose log scale is the log value at 0
            at_zero = evaluate_log(np.zeros(d), tau, np.where(point, 1.0, rho), gamma)
            new_gamma = np.where(scaled & (new_rho == 0), p * at_zero, new_gamma)
        if not (np.all(np.isfinite(new_tau)) and np.all(np.isfinite(new_rho) | point)):
            raise OverflowError("power: the natural parameters leave the range of float64; rescale the variable")
        if not np.all(np.isfinite(new_gamma) | ~np.isfinite(gamma)):
            raise OverflowError("power: the log scale leaves the range of float64")
        return self._make(new_tau, new_rho, new_gamma)

    def pullback(self, a: ArrayLike, b: ArrayLike = 0.0) -> Self:
        """Return w -> g(a w + b), the factor as a function of w.

        Parameters
        ----------
        a : array_like
            Slope, not zero, of either sign; broadcast against the batch.
        b : array_like, default 0
            Offset, shaped like a point.

        Returns
        -------
        same type
            tau' = a (tau - rho b), rho' = a^2 rho, gamma' = gamma - d log|a| (Theorem 3 of Herbrich 2023).

        Raises
        ------
        ValueError
            If `a` is zero.
        OverflowError
            If the result leaves the range of float64.
        """
        tau, rho, gamma = self._parts()
        a, b = arrays.check_finite_array(a, "a"), self._vectors(b, "b")
        if np.any(a == 0):
            raise ValueError("a must not be zero: g(b) is a number, not a function of w")
        d = tau.shape[-1]
        new_tau, new_rho, at_zero = _pull_back(
            "pullback", rho, gamma, *widen_range(tau, np.where(np.isinf(rho), 0.0, rho), a, b)
        )
        return self._make(new_tau, new_rho, np.where(new_rho == 0, at_zero, gamma - d * np.log(np.abs(a))))

    def pushforward(self, a: ArrayLike, b: ArrayLike = 0.0) -> Self:
        """Return the density of a w + b for w distributed as this factor.

        The log scale stays, but for the flat rho = 0, whose log scale is not that of an integral.

        Parameters
        ----------
        a : array_like
            Slope, of either sign; 0 gives the point mass at `b` and needs proper factors.
        b : array_like, default 0
            Offset, shaped like a point.

        Returns
        -------
        same type
            mean' = a mean + b, variance' = a^2 variance.

        Raises
        ------
        ValueError
            If `a` is zero and a factor improper.
        OverflowError
            If the result leaves the range of float64.
        """
        a, b = arrays.check_finite_array(a, "a"), self._vectors(b, "b")
        tau, rho, gamma = self._parts()
        zero = a == 0
        if np.any(zero & ~(rho > 0)):
            raise ValueError("a must not be zero for an improper factor: its integral diverges")
        safe, d = np.where(zero, 1.0, a), tau.shape[-1]
        wide_tau, wide_rho, slope, offset = widen_range(tau, np.where(np.isinf(rho), 0.0, rho), safe, b)
        slope = invert(slope)
        new_tau, new_rho, at_zero = _pull_back(
            "pushforward", rho, gamma, wide_tau, wide_rho, slope, -offset * slope[..., None]
        )
        shape = np.broadcast_shapes(new_rho.shape, zero.shape)
        new_tau = np.where(zero[..., None], b, np.broadcast_to(new_tau, (*shape, d)))
        new_gamma = np.where(zero | (new_rho != 0), gamma, at_zero - d * np.log(np.abs(safe)))
        return self._make(new_tau, np.where(zero, np.inf, new_rho), np.broadcast_to(new_gamma, shape))

    def observe(
        self, y: ArrayLike, a: ArrayLike = 1.0, b: ArrayLike = 0.0, *, variance: ArrayLike
    ) -> tuple[Self, FloatOrArray]:
        """Condition on an observation y = a w + b + noise of w, which has this factor as its prior.

        Parameters
        ----------
        y : array_like
            Observation, shaped like a point.
        a : array_like, default 1
            Slope, any sign, zero included.
        b : array_like, default 0
            Offset, shaped like a point.
        variance : array_like
            Variance of the (spherical) noise, positive.

        Returns
        -------
        posterior : same type
            precision 1/v + a^2/variance; its log scale is that of the prior.
        log_evidence : float or ndarray
            log N(y; a mean + b, variance + a^2 v) under the normalised prior (Corollary 1 of Herbrich 2023).

        Raises
        ------
        ValueError
            If the prior is improper or `variance` not positive.
        """
        tau, rho, gamma = self._parts()
        if not np.all(rho > 0):
            raise ValueError("observe: the prior must be proper (rho > 0)")
        noise = arrays.check_finite_array(variance, "variance")
        if not np.all(noise > 0):
            raise ValueError(f"variance must be positive, got {np.min(noise)}")
        a, b, y = arrays.check_finite_array(a, "a"), self._vectors(b, "b"), self._vectors(y, "y")
        point, d = np.isinf(rho), tau.shape[-1]
        safe = np.where(point, 1.0, rho)
        wide_tau, precision, slope, offset, target, spread, keep = widen_range(tau, safe, a, b, y, noise, 1.0 - point)
        mean = wide_tau / precision[..., None]
        residual = target - (slope[..., None] * mean + offset)
        total = spread + (slope / precision) * slope * keep
        distance2 = sum_last_axis(residual * (residual / total[..., None]))
        log_evidence = -0.5 * (d * (LOG_2PI + log_abs(total)) + to_float64(distance2))
        gain = slope / spread
        new_rho = np.where(point, rho, to_float64(precision + slope * gain))
        new_tau = np.where(point[..., None], tau, to_float64(wide_tau + gain[..., None] * (target - offset)))
        if not (np.all(np.isfinite(new_tau)) and np.all(np.isfinite(new_rho) | point)):
            raise OverflowError("observe: the natural parameters leave the range of float64; rescale the variable")
        return self._make(new_tau, new_rho, np.broadcast_to(gamma, new_rho.shape)), to_scalar(log_evidence)

    def __getitem__(self, index: Any) -> Any:
        """Index the batch."""
        tau, rho, gamma = self._parts()
        index = index if isinstance(index, tuple) else (index,)
        trailing = (slice(None),) if any(i is Ellipsis for i in index) else ()
        return self._make(tau[index + trailing], rho[index], gamma[index])

    def __len__(self) -> int:
        if not self.shape:
            raise TypeError(f"a single {type(self).__name__} has no length")
        return self.shape[0]

    def __reduce__(self) -> Any:
        return type(self), (self.tau, self.rho, self.log_scale)

    def __repr__(self) -> str:
        name = type(self).__name__
        if self.shape:
            return f"<{name} batch of shape {self.shape}>"
        if not 0.0 < self.rho < np.inf:
            return f"{name}(tau={self.tau}, rho={self.rho}, log_scale={self.log_scale})"
        scale = f", log_scale {self.log_scale:g}" if self.log_scale else ""
        mean = np.asarray(self.mean)
        mean = np.array2string(mean, precision=6, threshold=8) if mean.ndim else f"{mean:g}"
        return f"<{name}: mean {mean}, sd {np.sqrt(self.variance):g}{scale}>"


def _pull_back(action, rho, gamma, tau, finite, a, b):
    """tau and rho of w -> g(a w + b), and its log value at 0; `finite` is rho or 0, the last four scaled."""
    point = np.isinf(rho)
    deviation, slope = tau - finite[..., None] * b, a[..., None]
    new_rho = np.where(point, rho, to_float64(finite * a * a))
    new_tau = np.where(point[..., None], to_float64((tau - b) / slope), to_float64(slope * deviation))
    if not (np.all(np.isfinite(new_tau)) and np.all(np.isfinite(new_rho) | point)):
        raise OverflowError(f"{action}: the natural parameters leave the range of float64; rescale the variable")
    if not np.any(new_rho == 0):
        return new_tau, new_rho, gamma
    if not isinstance(tau, WideRangeArray):
        return new_tau, new_rho, evaluate_log(b, tau, finite, gamma)
    flat, d = finite.m == 0, tau.m.shape[-1]
    safe = WideRangeArray(np.where(flat, 1.0, finite.m), np.where(flat, 0, finite.e))
    value = 0.5 * (d * (log_abs(safe) - LOG_2PI) - to_float64(sum_last_axis(deviation * (deviation / safe[..., None]))))
    return new_tau, new_rho, gamma + np.where(flat, to_float64(sum_last_axis(tau * b)), value)


def evaluate_log(x, tau, rho, gamma):
    """log of the scaled Gaussian at x (..., d), broadcasting, for every kind of precision."""
    d = tau.shape[-1]
    point, flat = np.isinf(rho), rho == 0
    safe = np.where(point | flat, 1.0, rho)
    with np.errstate(over="ignore"):
        deviation = safe[..., None] * x - tau
        quadratic = np.sum(deviation * (deviation / safe[..., None]), axis=-1)
        value = gamma + 0.5 * (d * (np.log(np.abs(safe)) - LOG_2PI) - quadratic)
        linear = gamma + np.sum(tau * x, axis=-1)
    at = np.where(np.all(x == tau, axis=-1), np.inf, -np.inf)
    return np.where(point, at, np.where(flat, linear, value))


def to_scalar(array):
    """Return a float for shape (), the array otherwise."""
    return array if np.ndim(array) else float(array)


def check_slots(tau, rho, log_scale):
    """Return tau (..., d), rho (...), log_scale (...) broadcast, after the checks both classes make."""
    rho, gamma = arrays.check_real_array(rho, "rho"), arrays.check_real_array(log_scale, "log_scale")
    if np.any(np.isnan(rho)) or np.any(rho == -np.inf):
        raise ValueError("rho must not be nan or -inf")
    if np.any(np.isnan(gamma)):
        raise ValueError("log_scale must not be nan")
    try:
        return broadcast(tau, rho, gamma)
    except ValueError:
        raise ValueError(
            f"tau, rho and log_scale must broadcast, got batch shapes {tau.shape[:-1]}, {rho.shape}, {gamma.shape}"
        ) from None


def broadcast(tau, rho, gamma):
    """Return tau (..., d), rho (...) and gamma (...) of one batch shape."""
    shape = np.broadcast_shapes(tau.shape[:-1], np.shape(rho), np.shape(gamma))
    return np.broadcast_to(tau, (*shape, tau.shape[-1])), np.broadcast_to(rho, shape), np.broadcast_to(gamma, shape)


def check_variance(variance):
    variance = arrays.check_real_array(variance, "variance")
    if not np.all(variance >= 0):
        raise ValueError(f"variance must be zero or positive, got {variance[~(variance >= 0)].flat[0]}")
    tiny = (variance > 0) & (variance < MIN_INVERTIBLE_VARIANCE)
    if np.any(tiny):
        raise ValueError(f"variance must be 0 or at least {MIN_INVERTIBLE_VARIANCE:.2g}, got {variance[tiny].flat[0]}")
    return variance


def resolve_slots(tau, rho, mean, variance, trailing=0):
    """Return tau and rho as given, or from moments; means have that many axes more. TypeError for anything between."""
    if mean is None and variance is None and tau is not None and rho is not None:
        return tau, rho
    if mean is None or variance is None or tau is not None or rho is not None:
        arguments = {"tau": tau, "rho": rho, "mean": mean, "variance": variance}
        present = " and ".join(name for name, value in arguments.items() if value is not None) or "neither"
        raise TypeError(f"give mean and variance, or tau (precision times mean) and rho (precision); got {present}")
    mean, rho = arrays.check_finite_array(mean, "mean"), check_variance(variance)
    with np.errstate(divide="ignore", over="ignore"):
        rho = 1.0 / rho
        wide = rho[..., None] if trailing else rho
        tau = mean * np.where(np.isinf(wide), 1.0, wide)
    if not np.all(np.isfinite(tau)):
        raise OverflowError("mean/variance leaves the range of float64; rescale the variable")
    return tau, rho
