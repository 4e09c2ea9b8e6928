"""Scaled Gaussians in natural parameters: batches of them, and their algebra.

References
----------
.. [H] Ralf Herbrich, "Efficient Operations on Gaussian Distributions and Factors", 2023: Theorems 1 (product),
   2 (quotient) and 3 (linear functions), Corollary 1 (observation). With log|a| for its log(a) in (10), so that
   negative slopes are right, and with absolute values in Theorems 1 and 2, so that improper factors are.
"""

import numpy as np

from . import _arrays, _core
from ._core import scalar
from ._executors import Threads, spans
from .errors import raise_status

_kernel = _core.best("gaussian")

LOG_2PI = float(np.log(2 * np.pi))
SMALLEST_VARIANCE = 1.0 / np.finfo(float).max  # below it the precision overflows
THREADED = 1 << 17  # elements from which threads are worth their start


def multiply(tau1, rho1, gamma1, tau2, rho2, gamma2, out=None, n_threads=1):
    """Multiply scaled Gaussians given as raw arrays, log scale included.

    Parameters
    ----------
    tau1, rho1, gamma1, tau2, rho2, gamma2 : array_like
        Precision times mean, precision and log scale of the factors; any real dtype, broadcast against each other.
        Precisions may be negative, zero (``gamma`` is then the log value at 0) or infinite (point mass at ``tau``).
    out : tuple of three ndarrays, optional
        Where to write tau, rho and log scale. They may be the inputs themselves (in place).
    n_threads : int, default 1
        Threads for large arrays of equal shape; the result has the same bits for any number.

    Returns
    -------
    tau, rho, gamma : ndarray or float
        ``out`` if it was given; floats if all inputs are scalars.

    Raises
    ------
    OverflowError
        If tau or rho of a product of finite factors leaves the range of float64 (``out`` is then partly written).

    Notes
    -----
    gamma = gamma1 + gamma2 + log|rho1 rho2/(2 pi rho)|/2 - (tau1 rho2 - tau2 rho1)^2/(2 rho1 rho2 rho) [H]_, Theorem 1,
    in one fused pass without temporaries. nan in an operand gives nan; the product of two point masses at one place
    has no log scale and gives nan, at different places -inf.

    Examples
    --------
    >>> import cavity
    >>> tau, rho, gamma = cavity.multiply(1.0, 2.0, 0.0, 3.0, 2.0, 0.0)
    >>> tau, rho, round(gamma, 6)
    (4.0, 4.0, -1.418939)
    """
    if n_threads == 1:
        done = _kernel.multiply(tau1, rho1, gamma1, tau2, rho2, gamma2, out)
        if done is not None and done[0] == 0:
            return done[2]
    return _raw(1.0, (tau1, rho1, gamma1, tau2, rho2, gamma2), out, n_threads)


def divide(tau1, rho1, gamma1, tau2, rho2, gamma2, out=None, n_threads=1):
    """Divide scaled Gaussians given as raw arrays, log scale included; the result may be improper.

    Parameters
    ----------
    tau1, rho1, gamma1, tau2, rho2, gamma2 : array_like
        Dividend and divisor, as for `multiply`.
    out : tuple of three ndarrays, optional
        Where to write tau, rho and log scale. They may be the inputs themselves (in place).
    n_threads : int, default 1
        Threads for large arrays of equal shape; the result has the same bits for any number.

    Returns
    -------
    tau, rho, gamma : ndarray or float
        ``out`` if it was given; floats if all inputs are scalars.

    Raises
    ------
    OverflowError
        If tau or rho of a quotient of finite factors leaves the range of float64 (``out`` is then partly written).
    ZeroDivisionError
        If a divisor is a point mass.

    Notes
    -----
    gamma = gamma1 - gamma2 - log|rho rho2/(2 pi rho1)|/2 + (tau1 rho2 - tau2 rho1)^2/(2 rho rho1 rho2):
    [H]_, Theorem 2.

    Examples
    --------
    >>> import cavity
    >>> tau, rho, gamma = cavity.divide(4.0, 4.0, -1.4189385332046727, 3.0, 2.0, 0.0)
    >>> tau, rho, round(abs(gamma), 12)
    (1.0, 2.0, 0.0)
    """
    if n_threads == 1:
        done = _kernel.divide(tau1, rho1, gamma1, tau2, rho2, gamma2, out)
        if done is not None and done[0] == 0:
            return done[2]
    return _raw(-1.0, (tau1, rho1, gamma1, tau2, rho2, gamma2), out, n_threads)


NAMES = ("tau1", "rho1", "gamma1", "tau2", "rho2", "gamma2")


def _raw(sign, operands, out, n_threads):
    """Multiply or divide what the kernel did not do at once: threads, broadcasting, casting, errors."""
    kernel, action = (_kernel.multiply, "multiply") if sign > 0 else (_kernel.divide, "divide")
    n_threads = _arrays.integer(n_threads, "n_threads", low=1)
    arrays = [np.asarray(operand) for operand in operands]
    for name, array in zip(NAMES, arrays, strict=True):
        if array.dtype.kind not in "biuf":
            raise TypeError(f"{name} must hold real numbers, got dtype {array.dtype}")
    if out is not None:
        out = _check_out(out, arrays)
    if n_threads > 1 and arrays[0].size >= THREADED and len({a.shape for a in arrays}) == 1:
        done = _threads(kernel, action, arrays, out, n_threads)
        if done is not None:
            return done
    return _blocks(kernel, action, arrays, out)


def _check_out(out, arrays):
    """Return `out` as a tuple of three writeable arrays of the broadcast shape that do not overlap each other."""
    if not isinstance(out, tuple) or len(out) != 3 or not all(isinstance(a, np.ndarray) for a in out):
        raise TypeError(f"out must be a tuple of three arrays (tau, rho, gamma), got {type(out).__name__}")
    shape = np.broadcast_shapes(*(a.shape for a in arrays))
    for name, a in zip(("tau", "rho", "gamma"), out, strict=True):
        if a.shape != shape or not a.flags.writeable or a.dtype.kind != "f":
            raise ValueError(
                f"out: {name} must be a writeable float array of shape {shape}, "
                f"got shape {a.shape}, dtype {a.dtype}, writeable={a.flags.writeable}"
            )
    if any(np.may_share_memory(out[i], out[j]) for i, j in ((0, 1), (0, 2), (1, 2))):
        raise ValueError("out: the three arrays must not share memory")
    return out


def _threads(kernel, action, arrays, out, n_threads):
    """Split equal-shaped contiguous float64 arrays among threads; None if they are not that."""
    shape, size = arrays[0].shape, arrays[0].size
    if out is None:
        out = tuple(np.empty(shape) for _ in range(3))
    whole = (*arrays, *out)
    if not all(a.dtype == np.float64 and a.flags.c_contiguous and a.flags.aligned for a in whole):
        return None
    flat = [a.reshape(-1) for a in whole]
    if any(np.may_share_memory(o, a) and o.ctypes.data != a.ctypes.data for o in flat[6:] for a in flat[:6]):
        return None
    parts = spans(size, n_threads, multiple=1 << 12)

    def task(start, stop):
        part = [a[start:stop] for a in flat]
        return kernel(*part[:6], tuple(part[6:]), size)

    with Threads(n_threads) as threads:
        results = threads.run(task, parts)
    for (start, _), (status, row, _) in zip(parts, results, strict=True):
        raise_status(status, start + row, action)
    return out


def _blocks(kernel, action, arrays, out):
    """Let numpy's iterator broadcast and cast in cache-sized buffers and feed them to the kernel."""
    inputs, outputs = ["readonly", "contig", "aligned"], ["writeonly", "contig", "aligned", "allocate", "no_broadcast"]
    iterator = np.nditer(
        [*arrays, *(out or (None, None, None))],
        flags=["external_loop", "buffered", "delay_bufalloc", "copy_if_overlap", "zerosize_ok"],
        op_flags=[inputs] * 6 + [outputs] * 3,
        op_dtypes=[np.float64] * 9,
        casting="same_kind",
        order="C",
    )
    with iterator:
        iterator.reset()
        done = 0
        for part in iterator:
            status, row, _ = kernel(*part[:6], tuple(part[6:]))
            raise_status(status, done + row, action)
            done += part[0].size
        results = iterator.operands[6:] if out is None else out
    return tuple(a[()] for a in results) if out is None else out


class _Algebra:
    """What `Gaussian` and `SphericalGaussian` share: all of it on tau (..., d), rho (...), gamma (...).

    A subclass gives `_parts()`, those three arrays, and `_make(tau, rho, gamma)`, its inverse.
    """

    __slots__ = ()

    @property
    def shape(self):
        """The batch shape."""
        return np.shape(self.rho)

    @property
    def is_proper(self):
        """Whether the precision is positive (a point mass counts as proper)."""
        return np.asarray(self.rho) > 0 if self.shape else self.rho > 0

    @property
    def variance(self):
        """1/rho: 0 for a point mass, infinite for a uniform factor, negative for an improper one."""
        with np.errstate(divide="ignore"):
            return _plain(np.divide(1.0, self.rho))

    @property
    def mean(self):
        """tau/rho, or the location of a point mass; nan where the precision is zero."""
        tau, rho, _ = self._parts()
        with np.errstate(invalid="ignore", divide="ignore"):
            mean = np.where(np.isinf(rho)[..., None], tau, tau / rho[..., None])
        mean[rho == 0] = np.nan
        return self._points(mean)

    def normalized(self):
        """Return the same Gaussians with `log_scale` zero."""
        tau, rho, gamma = self._parts()
        return self._make(tau, rho, np.zeros_like(gamma))

    def logpdf(self, x):
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
        return _plain(_log_value(x, tau, rho, gamma))

    def prod(self, axis=None):
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
        All factors are evaluated at the mean of the product, so that improper factors which nearly cancel in
        between cost no digits.
        """
        tau, rho, gamma = self._parts()
        ndim = rho.ndim
        axes = range(ndim) if axis is None else np.lib.array_utils.normalize_axis_tuple(axis, ndim)
        axes = tuple(axes)
        kept = [i for i in range(ndim) if i not in axes]
        shape = [rho.shape[i] for i in kept]
        n = int(np.prod([rho.shape[i] for i in axes], dtype=np.intp))
        rows, d = int(np.prod(shape, dtype=np.intp)), tau.shape[-1]
        order = (*kept, *axes)
        results = np.empty((rows, d)), np.empty(rows), np.empty(rows)
        status, row = _kernel.prod(
            np.ascontiguousarray(tau.transpose(*order, ndim)).reshape(rows, n, d),
            np.ascontiguousarray(rho.transpose(order)).reshape(rows, n),
            np.ascontiguousarray(gamma.transpose(order)).reshape(rows, n),
            *results,
            np.empty(d),
        )
        raise_status(status, row, "multiply")
        return self._make(results[0].reshape(*shape, d), results[1].reshape(shape), results[2].reshape(shape))

    def __pow__(self, power):
        """Raise to a real power: all of the factor, its scale included."""
        tau, rho, gamma = self._parts()
        p = _arrays.finite_array(power, "power")
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
        if not (np.all(np.isfinite(new_tau)) and np.all(np.isfinite(new_rho) | point)):
            raise OverflowError("power: the natural parameters leave the range of float64; rescale the variable")
        if not np.all(np.isfinite(new_gamma) | ~np.isfinite(gamma)):
            raise OverflowError("power: the log scale leaves the range of float64")
        return self._make(new_tau, new_rho, new_gamma)

    def pullback(self, a, b=0.0):
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
        a, b = _arrays.finite_array(a, "a"), self._vectors(b, "b")
        if np.any(a == 0):
            raise ValueError("a must not be zero: g(b) is a number, not a function of w")
        d, point = tau.shape[-1], np.isinf(rho)
        finite = np.where(point, 0.0, rho)
        with np.errstate(over="ignore"):
            new_rho = np.where(point, rho, finite * a * a)
            new_tau = np.where(point[..., None], (tau - b) / a[..., None], a[..., None] * (tau - finite[..., None] * b))
        if not (np.all(np.isfinite(new_tau)) and np.all(np.isfinite(new_rho) | point)):
            raise OverflowError("pullback: the natural parameters leave the range of float64; rescale the variable")
        new_gamma = np.where(new_rho == 0, _log_value(b, tau, finite, gamma), gamma - d * np.log(np.abs(a)))
        return self._make(new_tau, new_rho, new_gamma)

    def pushforward(self, a, b=0.0):
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
        a, b = _arrays.finite_array(a, "a"), self._vectors(b, "b")
        tau, rho, gamma = self._parts()
        zero = a == 0
        if np.any(zero & ~(rho > 0)):
            raise ValueError("a must not be zero for an improper factor: its integral diverges")
        safe = np.where(zero, 1.0, a)
        d = tau.shape[-1]
        inverse = 1.0 / safe
        moved = self._make(tau, rho, gamma).pullback(inverse, self._points(-b * inverse[..., None]))
        new_tau, new_rho, new_gamma = moved._parts()
        new_gamma = new_gamma - d * np.log(np.abs(safe))
        shape = np.broadcast_shapes(new_rho.shape, zero.shape)
        new_tau = np.where(zero[..., None], b, np.broadcast_to(new_tau, (*shape, d)))
        return self._make(
            new_tau, np.where(zero, np.inf, new_rho), np.where(zero, np.broadcast_to(gamma, shape), new_gamma)
        )

    def observe(self, y, a=1.0, b=0.0, *, variance):
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
        noise = _arrays.finite_array(variance, "variance")
        if not np.all(noise > 0):
            raise ValueError(f"variance must be positive, got {np.min(noise)}")
        a, b, y = _arrays.finite_array(a, "a"), self._vectors(b, "b"), self._vectors(y, "y")
        point, d = np.isinf(rho), tau.shape[-1]
        mean = np.where(point[..., None], tau, tau / np.where(point, 1.0, rho)[..., None])
        residual = y - (a[..., None] * mean + b)
        total = noise + a * a / rho
        log_evidence = -0.5 * (d * (LOG_2PI + np.log(total)) + np.sum(residual**2, axis=-1) / total)
        new_rho = rho + a * a / noise
        new_tau = np.where(point[..., None], tau, tau + (a / noise)[..., None] * (y - b))
        return self._make(new_tau, new_rho, np.broadcast_to(gamma, new_rho.shape)), _plain(log_evidence)

    def __getitem__(self, index):
        """Index the batch."""
        tau, rho, gamma = self._parts()
        index = index if isinstance(index, tuple) else (index,)
        trailing = (slice(None),) if any(i is Ellipsis for i in index) else ()
        return self._make(tau[index + trailing], rho[index], gamma[index])

    def __len__(self):
        if not self.shape:
            raise TypeError(f"a single {type(self).__name__} has no length")
        return self.shape[0]

    def __repr__(self):
        name = type(self).__name__
        if self.shape:
            return f"<{name} batch of shape {self.shape}>"
        return f"{name}(tau={self.tau}, rho={self.rho}, log_scale={self.log_scale})"


class Gaussian(_Algebra, scalar.GaussianBase):
    """A batch of scaled Gaussians over one variable, in natural parameters.

    The value at x is exp(kappa + tau x - rho x^2/2). `log_scale` is the log of the integral, extended so that ``*`` and
    ``/`` stay exact for improper factors (rho <= 0): kappa = log_scale + log(|rho|/(2 pi))/2 - tau^2/(2 rho), and
    kappa = log_scale where rho is 0. rho = inf is a point mass at ``tau``.

    Parameters
    ----------
    tau : array_like
        Precision times mean (the location, for a point mass).
    rho : array_like
        Precision; negative, zero and infinite values are legal.
    log_scale : array_like, default 0
        Log of the integral.

    Attributes
    ----------
    tau, rho, log_scale : float or ndarray
        The slots, broadcast to one shape; read-only arrays unless the batch shape is ().
    mean, variance, is_proper, shape
        Derived quantities.

    Raises
    ------
    ValueError
        For nan, an infinite tau, rho = -inf, or shapes that do not broadcast.

    References
    ----------
    .. [H] Ralf Herbrich, "Efficient Operations on Gaussian Distributions and Factors", 2023.

    Examples
    --------
    >>> import cavity
    >>> prior = cavity.Gaussian.from_moments(0.0, 100.0)
    >>> posterior = prior * cavity.Gaussian.from_moments(2.0, 1.0)
    >>> round(posterior.mean, 6), round(posterior.variance, 6)
    (1.980198, 0.990099)
    >>> likelihood = posterior / prior
    >>> round(likelihood.mean, 12), abs(round(likelihood.log_scale, 12))
    (2.0, 0.0)
    """

    __slots__ = ()

    def __new__(cls, tau, rho, log_scale=0.0):
        """Validate, broadcast and copy the slots."""
        tau = _arrays.finite_array(tau, "tau")
        return cls._make_checked(tau[..., None], rho, log_scale)

    @classmethod
    def _make_checked(cls, tau, rho, log_scale):
        tau, rho, gamma = _slots(tau, rho, log_scale)
        return cls._make(tau.copy(), rho.copy(), gamma.copy())

    @classmethod
    def _make(cls, tau, rho, gamma):
        tau, rho, gamma = np.broadcast_arrays(tau[..., 0], rho, gamma)
        if rho.ndim == 0:
            return scalar.from_floats(cls, tau, rho, gamma)
        return scalar.from_arrays(cls, *(_arrays.read_only(np.ascontiguousarray(a)) for a in (tau, rho, gamma)))

    def _parts(self):
        return np.asarray(self.tau)[..., None], np.asarray(self.rho), np.asarray(self.log_scale)

    @staticmethod
    def _points(vectors):
        return _plain(vectors[..., 0])

    @staticmethod
    def _vectors(points, name):
        return _arrays.finite_array(points, name)[..., None]

    def _combine(self, other, sign):
        """Product or quotient of batches; called by the compiled ``*`` and ``/`` for anything but two singles."""
        operands = self.tau, self.rho, self.log_scale, other.tau, other.rho, other.log_scale
        tau, rho, gamma = (multiply if sign > 0 else divide)(*operands)
        return scalar.from_arrays(type(self), *map(_arrays.read_only, (tau, rho, gamma)))

    @classmethod
    def from_moments(cls, mean, variance, log_scale=0.0):
        """Return Gaussians with given moments.

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
        mean, variance = _arrays.finite_array(mean, "mean"), _variance(variance)
        tau, rho = _natural(mean, variance)
        return cls(tau, rho, log_scale)

    @classmethod
    def uniform(cls, shape=()):
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
    def point_mass(cls, x):
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

    def to_scipy(self):
        """Return the normalised distribution as a frozen `scipy.stats.norm`; all factors must be proper."""
        from scipy import stats

        if not np.all((np.asarray(self.rho) > 0) & np.isfinite(self.rho)):
            raise ValueError("to_scipy: every factor must have a positive, finite precision")
        return stats.norm(self.mean, np.sqrt(self.variance))

    def __reduce__(self):
        return type(self), (self.tau, self.rho, self.log_scale)


class SphericalGaussian(_Algebra):
    """A batch of scaled Gaussians in d dimensions with precision rho times the identity.

    The value at x is exp(kappa + tau'x - rho |x|^2/2); everything else is as for `Gaussian`, with d/2 in front of logs
    and squared norms for squares.

    Parameters
    ----------
    tau : array_like, shape (..., d)
        Precision times mean (the location, for a point mass).
    rho : array_like, shape (...)
        Precision; negative, zero and infinite values are legal.
    log_scale : array_like, shape (...), default 0
        Log of the integral.

    Examples
    --------
    >>> import cavity
    >>> prior = cavity.SphericalGaussian([0.0, 0.0], 0.01)
    >>> posterior, log_evidence = prior.observe([1.0, 2.0], variance=1.0)
    >>> posterior.mean.round(6).tolist(), round(log_evidence, 6)
    ([0.990099, 1.980198], -6.47775)
    """

    __slots__ = ("log_scale", "rho", "tau")

    def __init__(self, tau, rho, log_scale=0.0):
        """Validate, broadcast and copy the slots."""
        tau = _arrays.finite_array(tau, "tau")
        if tau.ndim == 0 or tau.shape[-1] == 0:
            raise ValueError(f"tau must have shape (..., d) with d >= 1, got {tau.shape}")
        tau, rho, gamma = _slots(tau, rho, log_scale)
        self._set(tau.copy(), rho.copy(), gamma.copy())

    def _set(self, tau, rho, gamma):
        shape = np.broadcast_shapes(tau.shape[:-1], np.shape(rho), np.shape(gamma))
        slots = (
            np.broadcast_to(tau, (*shape, tau.shape[-1])),
            np.broadcast_to(rho, shape),
            np.broadcast_to(gamma, shape),
        )
        for name, slot in zip(("tau", "rho", "log_scale"), slots, strict=True):
            slot = _arrays.read_only(np.ascontiguousarray(slot).reshape(slot.shape))
            object.__setattr__(self, name, slot if slot.ndim else float(slot))

    def __setattr__(self, name, value):
        raise AttributeError(f"{type(self).__name__} is immutable; cannot set {name}")

    @classmethod
    def _make(cls, tau, rho, gamma):
        self = object.__new__(cls)
        self._set(tau, rho, gamma)
        return self

    def _parts(self):
        return self.tau, np.asarray(self.rho), np.asarray(self.log_scale)

    @property
    def dim(self):
        """The dimension d of the variable."""
        return self.tau.shape[-1]

    @staticmethod
    def _points(vectors):
        return vectors

    def _vectors(self, points, name):
        points = _arrays.finite_array(points, name)
        if points.ndim and points.shape[-1] != self.dim:
            raise ValueError(f"{name} must be a number or have shape (..., {self.dim}), got {points.shape}")
        return points if points.ndim else np.full(self.dim, points)

    def __mul__(self, other):
        return self._combine(other, 1.0)

    def __truediv__(self, other):
        return self._combine(other, -1.0)

    def _combine(self, other, sign):
        if not isinstance(other, SphericalGaussian):
            return NotImplemented
        if other.dim != self.dim:
            raise ValueError(f"the factors live in different dimensions: {self.dim} and {other.dim}")
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
    def from_moments(cls, mean, variance, log_scale=0.0):
        """Return Gaussians with given moments.

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
        mean, variance = _arrays.finite_array(mean, "mean"), _variance(variance)
        tau, rho = _natural(mean, variance[..., None])
        return cls(tau, rho[..., 0], log_scale)

    @classmethod
    def uniform(cls, dim, shape=()):
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
    def point_mass(cls, x):
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

    def to_scipy(self):
        """Return the normalised distribution as a frozen `scipy.stats.multivariate_normal` (batch shape () only)."""
        from scipy import stats

        if self.shape or not 0 < self.rho < np.inf:
            raise ValueError("to_scipy: needs batch shape () and a positive, finite precision")
        return stats.multivariate_normal(self.mean, np.eye(self.dim) * self.variance)

    def __reduce__(self):
        return type(self), (self.tau, self.rho, self.log_scale)


def _plain(array):
    """Return a float for shape (), the array otherwise."""
    return array if np.ndim(array) else float(array)


def _slots(tau, rho, log_scale):
    """Return tau (..., d), rho (...), log_scale (...) broadcast, after the checks both classes make."""
    rho, gamma = _arrays.real_array(rho, "rho"), _arrays.real_array(log_scale, "log_scale")
    if np.any(np.isnan(rho)) or np.any(rho == -np.inf):
        raise ValueError("rho must not be nan or -inf")
    if np.any(np.isnan(gamma)):
        raise ValueError("log_scale must not be nan")
    try:
        shape = np.broadcast_shapes(tau.shape[:-1], rho.shape, gamma.shape)
    except ValueError:
        raise ValueError(
            f"tau, rho and log_scale must broadcast, got batch shapes {tau.shape[:-1]}, {rho.shape}, {gamma.shape}"
        ) from None
    return np.broadcast_to(tau, (*shape, tau.shape[-1])), np.broadcast_to(rho, shape), np.broadcast_to(gamma, shape)


def _variance(variance):
    variance = _arrays.real_array(variance, "variance")
    if not np.all(variance >= 0):
        raise ValueError(f"variance must be zero or positive, got {variance[~(variance >= 0)].flat[0]}")
    tiny = (variance > 0) & (variance < SMALLEST_VARIANCE)
    if np.any(tiny):
        raise ValueError(f"variance must be 0 or at least {SMALLEST_VARIANCE:.2g}, got {variance[tiny].flat[0]}")
    return variance


def _natural(mean, variance):
    """Return tau and rho from moments."""
    with np.errstate(divide="ignore", over="ignore"):
        rho = 1.0 / variance
        tau = mean * np.where(np.isinf(rho), 1.0, rho)
    if not np.all(np.isfinite(tau)):
        raise OverflowError("from_moments: mean/variance leaves the range of float64; rescale the variable")
    return tau, rho


def match_moments(log_weights, means, variances):
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
    from scipy.special import logsumexp

    log_weights = _arrays.real_array(log_weights, "log_weights")
    means, variances = _arrays.finite_array(means, "means"), _arrays.finite_array(_variance(variances), "variances")
    if np.any(np.isnan(log_weights)) or np.any(log_weights == np.inf):
        raise ValueError("log_weights must not be nan or +inf")
    log_weights, means, variances = np.broadcast_arrays(log_weights, means, variances)
    if log_weights.ndim == 0 or log_weights.shape[-1] == 0:
        raise ValueError("log_weights, means and variances must have at least one component along the last axis")
    total = logsumexp(log_weights, axis=-1)
    if np.any(total == -np.inf):
        raise ValueError("log_weights: at least one component must have a positive weight")
    weights = np.exp(log_weights - total[..., None])
    weights = weights / weights.sum(axis=-1, keepdims=True)
    centre = means[..., :1]  # differences first: means far from zero lose nothing
    mean = np.sum(weights * (means - centre), axis=-1)
    variance = np.sum(weights * (variances + (means - centre - mean[..., None]) ** 2), axis=-1)
    return Gaussian.from_moments(mean + centre[..., 0], variance, total)


def _log_value(x, tau, rho, gamma):
    """log of the scaled Gaussian at x (..., d), broadcasting, for every kind of precision."""
    d = tau.shape[-1]
    point, flat = np.isinf(rho), rho == 0
    safe = np.where(point | flat, 1.0, rho)
    deviation = safe[..., None] * x - tau
    with np.errstate(over="ignore"):
        quadratic = np.sum(deviation * (deviation / safe[..., None]), axis=-1)
        value = gamma + 0.5 * (d * (np.log(np.abs(safe)) - LOG_2PI) - quadratic)
        linear = gamma + np.sum(tau * x, axis=-1)
    at = np.where(np.all(x == tau, axis=-1), np.inf, -np.inf)
    return np.where(point, at, np.where(flat, linear, value))
