"""Likelihoods p(y|f) of a scalar latent value f: what models with EP are built from.

Every likelihood has one contract, `log_tilted(y, mean, variance)`: the log of the integral of p(y|f) N(f; mean,
variance) and its first and second derivative in `mean`. Those of this module are compiled. A likelihood of your own
derives from `Likelihood` and needs `log_p` only.

References
----------
.. [RW] C. E. Rasmussen and C. K. I. Williams, "Gaussian Processes for Machine Learning", MIT Press, 2006.
.. [M] Thomas Minka, "A family of algorithms for approximate Bayesian inference", PhD thesis, MIT, 2001.
.. [L] Catherine Loader, "Fast and accurate computation of binomial probabilities", 2000.
"""

from dataclasses import dataclass

import numpy as np

from cavity import _core
from cavity.base import arrays

_sites = _core.best("sites")

GAUSSIAN, PROBIT, INTERVAL, LAPLACE, CLUTTER, LOGIT, POISSON, NEGATIVE_BINOMIAL, STUDENT_T = range(9)  # site_types.pxd
ONE = np.ones(1)
ZERO = np.zeros(1)
LOG_2PI = float(np.log(2 * np.pi))
SMALLEST_VARIANCE = float(np.finfo(np.float64).tiny)  # of a cavity: its precision is within float64 and has all digits


class Likelihood:
    """Base of all likelihoods; derive from it to use your own in every model.

    A subclass needs `log_p`. It may override `log_tilted` where it knows a faster way than adaptive quadrature, `check`
    to accept its own kind of data, and `expected` to predict.

    Examples
    --------
    >>> import cavity, numpy as np
    >>> class Cauchy(cavity.likelihoods.Likelihood):
    ...     def log_p(self, y, f):
    ...         return -np.log(np.pi * (1 + (y - f) ** 2))
    >>> log_z, d1, d2 = Cauchy().log_tilted(3.0, 0.0, 4.0)
    >>> same = cavity.likelihoods.StudentT(degrees_of_freedom=1).log_tilted(3.0, 0.0, 4.0)
    >>> bool(np.allclose([log_z, d1, d2], same, rtol=1e-10))
    True
    """

    __slots__ = ()

    n_classes = None  # of classifiers: predict_proba has that many columns
    scales = ()  # names of the positive parameters that Gaussian processes learn, fields of a dataclass

    def log_p(self, y, f):
        """Log likelihood log p(y|f), elementwise.

        Parameters
        ----------
        y : ndarray
            Observations, of a shape that broadcasts against `f`.
        f : ndarray
            Latent values.

        Returns
        -------
        ndarray
            Of the shape of `f`; -inf is allowed where y is impossible.
        """
        raise NotImplementedError(f"{type(self).__name__} must define log_p(y, f)")

    def check(self, y):
        """Check observations before any work; the default wants finite real numbers.

        Parameters
        ----------
        y : array_like, shape (N,)
            Observations.

        Returns
        -------
        ndarray, shape (N,)
            What `log_p` gets.
        """
        return arrays.finite_array(y, "y", ndim=(0, 1))

    def expected(self, mean, variance):
        """Mean of a new observation whose latent value is N(mean, variance); not every likelihood has one.

        Parameters
        ----------
        mean, variance : ndarray
            Moments of the latent value.

        Returns
        -------
        ndarray
            E[y].
        """
        raise NotImplementedError(f"{type(self).__name__} does not define the mean of an observation")

    def log_tilted(self, y, mean, variance):
        """Log normaliser of p(y|f) N(f; mean, variance) and its derivatives in the mean.

        Parameters
        ----------
        y : array_like
            Observations, as `fit` takes them.
        mean, variance : array_like
            Moments of the cavity (or of any Gaussian belief about f), broadcast against y; variance > 0, and at least
            2.3e-308, below which numbers of float64 lose digits.

        Returns
        -------
        log_z, d1, d2 : ndarray
            log of the integral of p(y|f) N(f; mean, variance), its first and its second derivative in `mean`. The
            tilted mean is ``mean + variance * d1``, the tilted variance ``variance * (1 + variance * d2)``.

        Raises
        ------
        ValueError, TypeError
            For observations that the likelihood does not know, or moments that are not finite or not positive.
        ArithmeticError
            If the scales of cavity and likelihood are so far apart that no quadrature rule resolves both.
        """
        y = self.check(y)
        mean = arrays.finite_array(mean, "mean")
        variance = arrays.finite_array(variance, "variance")
        if not np.all(variance > 0):
            raise ValueError(f"variance must be positive, got {float(np.min(variance))!r}")
        if not np.all(variance >= SMALLEST_VARIANCE):
            raise ValueError(f"variance must be at least {SMALLEST_VARIANCE!r}, got {float(np.min(variance))!r}")
        trailing = y.shape[y.ndim - self._y_ndim + 1 :]
        shape = np.broadcast_shapes(y.shape[: y.ndim - len(trailing)], mean.shape, variance.shape)
        flat = np.ascontiguousarray(np.broadcast_to(y, shape + trailing)).reshape((-1, *trailing))
        m, v = (np.ascontiguousarray(np.broadcast_to(a, shape)).reshape(-1) for a in (mean, variance))
        if m.size == 0:
            return tuple(np.empty(shape) for _ in range(3))
        moments = self._tilted(flat, m, v)
        lost = np.isnan(moments[0]) | np.isnan(moments[1]) | np.isnan(moments[2])
        if lost.any():
            i = int(np.argmax(lost))
            raise ArithmeticError(
                f"the moments of a cavity of mean {m[i]:.3g} and variance {v[i]:.3g} cannot be integrated: "
                f"they are too far from the scale of the likelihood {type(self).__name__}"
            )
        return tuple(a.reshape(shape)[()] for a in moments)

    _y_ndim = 1  # dimensions of `check(y)` for N observations

    def _tilted(self, y, mean, variance):
        """`log_tilted` of checked vectors."""
        from cavity.likelihoods.quadrature import log_tilted

        return log_tilted(lambda f, index: self.log_p(y[index, None], f), mean, variance)[:3]


class _Compiled(Likelihood):
    """A likelihood with a kernel: `_kind`, `_parameters()` and `_encode(y) -> (numbers, extra)`."""

    __slots__ = ()
    _kind = None
    any_power = True  # whether the kernel knows p(y|f)^e for e other than 1

    def _parameters(self):
        return ()

    def _encode(self, y):
        """Return the numbers the kernel reads: y, and upper bounds or the part of log p(y|f) without f."""
        return y, ZERO

    def packed(self):
        """Return the six parameters of the kernel."""
        parameters = np.zeros(6)
        parameters[: len(self._parameters())] = self._parameters()
        return parameters

    def _tilted(self, y, mean, variance):
        out = tuple(np.empty(mean.size) for _ in range(3))
        _sites.evaluate(self._kind, self.packed(), ONE, *self._encode(y), mean, variance, False, *out)
        return out


def _labels(y, name="y"):
    """Return binary labels as -1.0 and 1.0; {-1, 1}, {0, 1} and bool are known."""
    array = arrays.finite_array(y, name, ndim=(0, 1))
    signs, bits = np.abs(array) == 1.0, (array == 0.0) | (array == 1.0)
    if not (signs.all() or bits.all()):
        row = int(np.argmax(~(signs | bits))) if not (signs | bits).all() else int(np.argmax(array == -1.0))
        raise ValueError(
            f"{name} must hold two classes, coded -1 and 1, 0 and 1, or False and True; "
            f"got {float(array.reshape(-1)[row])!r} in row {row}"
        )
    return array if signs.all() else 2.0 * array - 1.0


def _counts(y, name="y"):
    array = arrays.finite_array(y, name, ndim=(0, 1))
    bad = (array < 0) | (array != np.floor(array))
    if bad.any():
        row = int(np.argmax(bad))
        raise ValueError(
            f"{name} must hold whole numbers, not negative; got {float(array.reshape(-1)[row])!r} in row {row}"
        )
    return array


def _positive(likelihood, *names):
    for name in names:
        object.__setattr__(likelihood, name, arrays.number(getattr(likelihood, name), name, low=0))


class _Binary(_Compiled):
    __slots__ = ()
    n_classes = 2

    def check(self, y):
        """Accept labels coded -1 and 1, 0 and 1, or False and True.

        Parameters
        ----------
        y : array_like, shape (N,)
            Labels.

        Returns
        -------
        ndarray, shape (N,)
            Labels coded -1.0 and 1.0.
        """
        return _labels(y)


@dataclass(frozen=True, slots=True)
class Probit(_Binary):
    """Binary labels with p(y|f) = Phi(y f), y = -1 or 1 [RW]_ (eq. 3.82 to 3.85).

    log_z, d1 and 1 + variance d2 keep a relative accuracy of 1e-13 however far in the tail.

    Examples
    --------
    >>> import cavity
    >>> log_z, d1, d2 = cavity.likelihoods.Probit().log_tilted(1, 1.0, 0.5)
    >>> round(float(log_z), 9), round(float(d1), 9)
    (-0.232068371, 0.294364628)
    """

    _kind = PROBIT

    def _parameters(self):
        return 1.0, 1.0

    def log_p(self, y, f):
        """Log Phi(y f); see `Likelihood.log_p`."""
        from scipy.special import log_ndtr

        return log_ndtr(y * f)


@dataclass(frozen=True, slots=True)
class Logit(_Binary):
    """Binary labels with p(y|f) = 1/(1 + exp(-y f)), y = -1 or 1; moments by quadrature.

    Examples
    --------
    >>> import cavity
    >>> log_z, d1, d2 = cavity.likelihoods.Logit().log_tilted([0, 1], 0.5, 2.0)
    >>> log_z.round(6).tolist()
    [-0.891483, -0.527713]
    """

    _kind = LOGIT

    def log_p(self, y, f):
        """Log of the logistic function of y f; see `Likelihood.log_p`."""
        return -np.logaddexp(0.0, -y * f)


@dataclass(frozen=True, slots=True)
class Step(_Binary):
    """Binary labels without noise: p(y|f) = 1 if y f > 0, else 0 (the Bayes point machine's) [M]_ (section 5.2)."""

    _kind = PROBIT

    def _parameters(self):
        return 0.0, 1.0

    def log_p(self, y, f):
        """Zero where y f > 0, log 1/2 where f = 0, else -inf; see `Likelihood.log_p`."""
        margin = y * np.asarray(f)
        return np.where(margin > 0, 0.0, np.where(margin == 0, -np.log(2.0), -np.inf))


@dataclass(frozen=True, slots=True)
class Interval(_Compiled):
    """Censored or truncated observations: all that is known is a range, lower < f + noise < upper.

    Observations have shape (N, 2), a lower and an upper bound each; -inf and inf stand for no bound, two equal bounds
    for an exact observation (of which Tobit regression is made).

    Parameters
    ----------
    noise_variance : float, default 1.0
        Variance of the Gaussian noise on f; 0 for f itself in the range.

    Examples
    --------
    >>> import cavity, numpy as np
    >>> censored = cavity.likelihoods.Interval(noise_variance=0.25)
    >>> log_z, d1, d2 = censored.log_tilted([[2.0, np.inf], [1.3, 1.3]], 0.0, 1.0)
    >>> log_z.round(6).tolist()
    [-3.301738, -1.70651]
    """

    noise_variance: float = 1.0

    _kind = INTERVAL
    any_power = False
    _y_ndim = 2

    def __post_init__(self):
        value = arrays.number(self.noise_variance, "noise_variance", low=0, closed_low=True)
        object.__setattr__(self, "noise_variance", value)

    def _parameters(self):
        return (self.noise_variance,)

    def check(self, y):
        """Accept lower and upper bounds.

        Parameters
        ----------
        y : array_like, shape (N, 2) or (2,)
            Bounds; infinite ones stand for none.

        Returns
        -------
        ndarray, shape (N, 2)
            The bounds.
        """
        array = arrays.real_array(y, "y")
        if array.ndim not in (1, 2) or array.shape[-1] != 2:
            raise ValueError(f"y must have shape (N, 2), a lower and an upper bound each, got {array.shape}")
        lower, upper = array[..., 0], array[..., 1]
        exact = (lower == upper) & np.isfinite(lower) & (self.noise_variance > 0)
        good = (lower < upper) | exact
        if not good.all():
            row = int(np.argmin(np.atleast_1d(good)))
            low, high = np.atleast_2d(array)[row].tolist()
            hint = "; equal bounds need noise_variance > 0" if low == high else ""
            raise ValueError(f"y must hold lower < upper bounds, got {low!r} and {high!r} in row {row}{hint}")
        return array

    def _encode(self, y):
        return np.ascontiguousarray(y[:, 0]), np.ascontiguousarray(y[:, 1])

    def log_p(self, y, f):
        """Log probability of the range; see `Likelihood.log_p`. The last axis of y holds the bounds."""
        lower, upper = y[..., 0], y[..., 1]
        if self.noise_variance == 0:
            return np.where((f > lower) & (f < upper), 0.0, -np.inf)
        return _log_interval(self, lower, upper, f)


@dataclass(frozen=True, slots=True)
class OrderedProbit(_Compiled):
    """Ordered classes 0 to K - 1: y is the number of thresholds below f + noise, noise ~ N(0, 1).

    Parameters
    ----------
    thresholds : sequence of float
        The K - 1 thresholds, increasing.

    Examples
    --------
    >>> import cavity, numpy as np
    >>> grades = cavity.likelihoods.OrderedProbit([-1.0, 1.0])
    >>> np.exp(grades.log_tilted([0, 1, 2], 0.0, 1.0)[0]).round(4).tolist()
    [0.2398, 0.5205, 0.2398]
    """

    thresholds: tuple

    _kind = INTERVAL
    any_power = False

    def __post_init__(self):
        values = arrays.finite_array(self.thresholds, "thresholds", ndim=(1,))
        if values.size == 0 or not np.all(np.diff(values) > 0):
            raise ValueError(f"thresholds must be increasing and at least one, got {values.tolist()}")
        object.__setattr__(self, "thresholds", tuple(values.tolist()))

    @property
    def n_classes(self):
        """The number of classes K."""
        return len(self.thresholds) + 1

    def _parameters(self):
        return (1.0,)

    def check(self, y):
        """Accept class numbers from 0.

        Parameters
        ----------
        y : array_like, shape (N,)
            Class numbers.

        Returns
        -------
        ndarray, shape (N,)
            The class numbers, as float64.
        """
        array = _counts(y)
        if array.size and array.max() > len(self.thresholds):
            row = int(np.argmax(array))
            raise ValueError(
                f"y must be at most {len(self.thresholds)} for {len(self.thresholds)} thresholds, "
                f"got {array.reshape(-1)[row]:g} in row {row}"
            )
        return array

    def _bounds(self, y):
        edges = np.concatenate([[-np.inf], self.thresholds, [np.inf]])
        index = np.asarray(y).astype(np.intp)
        return edges[index], edges[index + 1]

    def _encode(self, y):
        return self._bounds(y)

    def log_p(self, y, f):
        """Log probability of the class; see `Likelihood.log_p`."""
        return _log_interval(self, *self._bounds(y), f)


@dataclass(frozen=True, slots=True)
class Gaussian(_Compiled):
    """Real observations with Gaussian noise: p(y|f) = N(y; f, noise_variance); EP is exact.

    Parameters
    ----------
    noise_variance : float, default 1.0
        Variance of the noise, in squared units of y.
    """

    noise_variance: float = 1.0

    _kind = GAUSSIAN
    scales = ("noise_variance",)

    def __post_init__(self):
        _positive(self, "noise_variance")

    def _parameters(self):
        return (self.noise_variance,)

    def log_p(self, y, f):
        """Log density; see `Likelihood.log_p`."""
        return -0.5 * ((y - f) ** 2 / self.noise_variance + LOG_2PI + np.log(self.noise_variance))

    def expected(self, mean, variance):
        """Mean of a new observation, which is that of f; see `Likelihood.expected`."""
        return mean


@dataclass(frozen=True, slots=True)
class Laplace(_Compiled):
    """Real observations with double-exponential noise: p(y|f) = exp(-|y - f|/scale)/(2 scale), the median's.

    Parameters
    ----------
    scale : float, default 1.0
        Mean absolute deviation of the noise, in units of y.
    """

    scale: float = 1.0

    _kind = LAPLACE
    scales = ("scale",)

    def __post_init__(self):
        _positive(self, "scale")

    def _parameters(self):
        return (self.scale,)

    def log_p(self, y, f):
        """Log density; see `Likelihood.log_p`."""
        return -np.abs(y - f) / self.scale - np.log(2 * self.scale)

    def expected(self, mean, variance):
        """Mean of a new observation, which is that of f; see `Likelihood.expected`."""
        return mean


@dataclass(frozen=True, slots=True)
class StudentT(_Compiled):
    """Real observations with heavy-tailed noise: outliers lose their influence (and get sites of negative precision).

    Parameters
    ----------
    degrees_of_freedom : float, default 4.0
        nu > 0; the smaller, the heavier the tails.
    scale : float, default 1.0
        Scale of the noise, in units of y; its variance is scale^2 nu/(nu - 2) for nu > 2.
    """

    degrees_of_freedom: float = 4.0
    scale: float = 1.0

    _kind = STUDENT_T
    scales = ("scale",)

    def __post_init__(self):
        _positive(self, "degrees_of_freedom", "scale")

    def _parameters(self):
        return self.degrees_of_freedom, self.degrees_of_freedom * self.scale**2

    def _constant(self):
        """log of the density at its top, from Gamma(a + 1/2)/Gamma(a), a = nu/2, by the remainders of log Gamma."""
        from cavity.base.special import binet, gap

        a = 0.5 * self.degrees_of_freedom
        ratio = binet(a + 0.5) - binet(a) - a * gap(0.5 / a, np.log1p(0.5 / a))
        return float(ratio - 0.5 * LOG_2PI - np.log(self.scale))

    def _encode(self, y):
        return y, np.array([self._constant()])

    def log_p(self, y, f):
        """Log density; see `Likelihood.log_p`."""
        nu, scale = self.degrees_of_freedom, self.scale
        return self._constant() - 0.5 * (nu + 1) * np.log1p(((y - f) / scale) ** 2 / nu)

    def expected(self, mean, variance):
        """Mean of a new observation, which is that of f (for nu > 1); see `Likelihood.expected`."""
        return mean


class _Count(_Compiled):
    __slots__ = ()

    def check(self, y):
        """Accept counts: whole numbers, not negative.

        Parameters
        ----------
        y : array_like, shape (N,)
            Counts.

        Returns
        -------
        ndarray, shape (N,)
            The counts, as float64.
        """
        return _counts(y)

    def expected(self, mean, variance):
        """Mean of a new count, E exp(f); see `Likelihood.expected`."""
        return np.exp(mean + 0.5 * variance)


@dataclass(frozen=True, slots=True)
class Poisson(_Count):
    """Counts with mean exp(f): p(y|f) = exp(y f - exp(f))/y!."""

    _kind = POISSON

    def _encode(self, y):
        return y, -_log_stirling(y)

    def log_p(self, y, f):
        """Log probability; see `Likelihood.log_p`."""
        from cavity.base.special import gap

        y = np.asarray(y, dtype=np.float64)
        some = np.where(y > 0, y, 1.0)
        with np.errstate(over="ignore"):
            mean = np.exp(f)
            above = _above_log(some, f, mean)  # log of mean/y
            below = some * gap((mean - some) / some, above)
        return np.where(y > 0, -below - _log_stirling(y), -mean)


@dataclass(frozen=True, slots=True)
class NegativeBinomial(_Count):
    """Counts with mean mu = exp(f) and variance mu + mu^2/dispersion.

    Parameters
    ----------
    dispersion : float, default 1.0
        r > 0; the counts become Poisson as it grows.
    """

    dispersion: float = 1.0

    _kind = NEGATIVE_BINOMIAL

    def __post_init__(self):
        _positive(self, "dispersion")

    def _parameters(self):
        return self.dispersion, np.log(self.dispersion)

    def _constant(self, y):
        """The maximum of log p in f, by the remainders of log Gamma [L]_: nothing cancels at large dispersions."""
        from cavity.base.special import binet

        r, some = self.dispersion, np.where(y > 0, y, 1.0)
        n = r + some
        remainder = binet(n) - binet(r) - binet(some)
        return np.where(y > 0, remainder + 0.5 * (np.log(r / n) - np.log(2 * np.pi * some)), 0.0)

    def _encode(self, y):
        return y, self._constant(y)

    def log_p(self, y, f):
        """Log probability; see `Likelihood.log_p`."""
        y, r = np.asarray(y, dtype=np.float64), self.dispersion
        some = np.where(y > 0, y, 1.0)
        n = r + some
        with np.errstate(over="ignore"):
            above = _above_log(some, f, np.exp(f))
        below = n * _log_mean_rest(some / n, r / n, above)
        return np.where(y > 0, self._constant(y) - below, -r * np.logaddexp(0.0, f - np.log(r)))


@dataclass(frozen=True, slots=True)
class Clutter(_Compiled):
    """Real observations of which some are clutter [M]_.

    p(y|f) = (1 - w) N(y; f, noise_variance) + w N(y; clutter_mean, clutter_variance).

    Parameters
    ----------
    clutter_weight : float, default 0.5
        w, in (0, 1).
    clutter_variance, noise_variance : float, default 10.0 and 1.0
        Variances of clutter and noise, in squared units of y.
    clutter_mean : float, default 0.0
        Mean of the clutter.
    """

    clutter_weight: float = 0.5
    clutter_variance: float = 10.0
    noise_variance: float = 1.0
    clutter_mean: float = 0.0

    _kind = CLUTTER
    any_power = False

    def __post_init__(self):
        object.__setattr__(self, "clutter_weight", arrays.number(self.clutter_weight, "clutter_weight", low=0, high=1))
        _positive(self, "clutter_variance", "noise_variance")
        object.__setattr__(self, "clutter_mean", arrays.number(self.clutter_mean, "clutter_mean"))

    def _parameters(self):
        w, c = self.clutter_weight, self.clutter_variance
        return self.noise_variance, 1 / c, np.log(c), np.log(w) - np.log1p(-w), np.log1p(-w), self.clutter_mean

    def log_p(self, y, f):
        """Log density; see `Likelihood.log_p`."""
        w, c, s = self.clutter_weight, self.clutter_variance, self.noise_variance
        signal = np.log1p(-w) - 0.5 * ((y - f) ** 2 / s + LOG_2PI + np.log(s))
        return np.logaddexp(signal, np.log(w) - 0.5 * ((y - self.clutter_mean) ** 2 / c + LOG_2PI + np.log(c)))


def _log_interval(likelihood, lower, upper, f):
    """log p of bounds by the kernel, which keeps the digits of narrow and of far intervals.

    f is a cavity of variance 0, to which the kernel adds that of the noise.
    """
    lower, upper, f = np.broadcast_arrays(*(np.asarray(a, dtype=np.float64) for a in (lower, upper, f)))
    if f.size == 0:
        return np.empty(f.shape)
    given = (np.ascontiguousarray(a).reshape(-1) for a in (lower, upper, f, np.zeros(f.shape)))
    out = [np.empty(f.size) for _ in range(3)]
    _sites.evaluate(likelihood._kind, likelihood.packed(), ONE, *given, False, *out)
    return out[0].reshape(f.shape)[()]


def _above_log(y, f, mean):
    """f - log y for y > 0; where they are close by mean = exp(f), whose rounding error is that of 1, not of log y."""
    q = (mean - y) / y
    near = np.abs(q) < 0.4
    return np.where(near, np.log1p(np.where(near, q, 0.0)), f - np.log(y))


def _log_mean_rest(p, not_p, x):
    """log(p exp(x) + 1 - p) - p x, which is not negative, to its last digits; not_p = 1 - p."""
    from cavity.base.special import gap

    w, t = np.where(p <= 0.5, p, not_p), np.where(p <= 0.5, x, -x)
    bounded = np.minimum(t, 700.0)
    rise = np.expm1(bounded)
    log1p = np.log1p(w * rise)
    far = log1p + (t - bounded) - w * t
    return np.where(np.abs(t) < 0.35, w * gap(rise, bounded) - gap(w * rise, log1p), far)


def _log_stirling(y):
    """log(y!) - (y log y - y), for y > 0 without cancellation [L]_; 0 for y = 0."""
    from scipy.special import gammaln

    x = np.maximum(y, 1.0)
    small = gammaln(x + 1.0) - x * np.log(x) + x
    inv = 1.0 / x
    series = inv * (1 / 12 - inv**2 * (1 / 360 - inv**2 * (1 / 1260 - inv**2 / 1680)))
    return np.where(y == 0, 0.0, np.where(x < 16, small, 0.5 * np.log(2 * np.pi * x) + series))
