"""The base class of likelihoods: p(y|f), its checks and its tilted distributions, built-in or user-defined."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import MISSING, fields
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from cavity import _core
from cavity.base import arrays
from cavity.base.public_objects import ArrayLike, FloatArray, FloatOrArray, Public
from cavity.likelihoods import predictive, quadrature
from cavity.likelihoods.parameters import check_closed, check_fields
from cavity.likelihoods.starts import estimate_spread, transform_by_link

site_kernel = _core.best("sites")

# Kind in site_types.pxd
GAUSSIAN, PROBIT, INTERVAL, LAPLACE, CLUTTER, LOGIT, POISSON, NEGATIVE_BINOMIAL, STUDENT_T, BINOMIAL = range(10)
GAMMA, WEIBULL, LOG_LOGISTIC, LOG_NORMAL, TWEEDIE, BETA, BETA_BINOMIAL = range(10, 17)
ZERO_INFLATED, HURDLE, CLOGLOG, ORDERED_LOGIT = range(17, 21)
SHARED_ONE = np.ones(1)
SHARED_ZERO = np.zeros(1)
# of a cavity: its precision is within float64 and has all digits
MIN_CAVITY_VARIANCE = float(np.finfo(np.float64).tiny)


class Likelihood(Public):
    """Base of all likelihoods; derive from it to use your own in every model.

    A subclass needs `log_p`. It may override `log_tilted` by a faster method than adaptive quadrature, and
    `check` to accept its own kind of data.

    `log_p` is called with many observations at a time, y (n, 1) and f (n, k), by `log_tilted` and by passes of the
    schedule "parallel", the default of most models. Those match a thousand sites by one call at k = 51 points; cavities
    that a site makes narrower by a tenth or more cost a second call with k = 67. The spectrum of what is integrated
    tells for each site if that is exact to 1e-9. Where not, at kinks and jumps above all, adaptive quadrature takes
    over, ten times as slow. The schedule "sequential" calls `log_p` for each site alone, hundreds of times as slow.

    What observations are like given f, `conditional_mean`, `conditional_variance`, `cdf` and `draw`, is what new ones
    are predicted from, each by its own methods of a posterior; `expected`, `moments` and `quantile` integrate it over a
    Gaussian belief about f, by quadrature, and may be overridden where there is a closed form.

    Attributes
    ----------
    n_classes : int or None
        Of classifiers: `predict_proba` has that many columns.
    discrete : bool
        Whether observations are whole numbers, which `quantile` then returns.
    takes_exposure : bool
        Whether exp(f) is a rate, which an exposure multiplies.
    takes_trials : bool
        Whether observations are successes in a number of trials, which predictions then have to know.
    takes_event : bool
        Whether observations are times that may be censored, which `fit` then takes as bounds or with ``event``.
    link : {None, "identity", "log", "logit"}
        What f is of a typical observation: the number itself, its log or its logit. Default priors and the values where
        searches begin are in these units, so that with "log" they follow y to other units. By default f is in units of
        y, and of counts and labels in units of its own.

    A frozen dataclass may declare parameters that fits can learn, in the class attribute `parameters`: a dictionary
    from names of fields to one of "scale" (positive, in the scale of the observations), "positive", "real", "share" (in
    (0, 1)), "between 1 and 2" and "increasing" (a tuple of numbers). A field that is None is open: the fit finds it.

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

    n_classes = None
    discrete = False
    takes_exposure = takes_trials = takes_event = False
    link: ClassVar[str | None] = None
    parameters: ClassVar[Mapping[str, str]] = {}  # what fits may learn: fields of a dataclass, and their domains

    if TYPE_CHECKING:

        def __getattr__(self, name: str) -> Any: ...  # which likelihood a model holds is known when it runs

    def log_p(self, y: Any, f: Any) -> FloatOrArray:
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
        raise self._undefined("log_p(y, f)")

    def check(self, y: Any) -> FloatArray:
        """Check observations before any work; the default requires finite real numbers.

        Parameters
        ----------
        y : array_like, shape (N,)
            Observations.

        Returns
        -------
        ndarray, shape (N,)
            What `log_p` gets.
        """
        return arrays.check_finite_array(y, "y", ndim=(0, 1))

    def conditional_mean(self, f: Any) -> FloatOrArray:
        """Mean of an observation given f, elementwise.

        Parameters
        ----------
        f : ndarray
            Latent values.

        Returns
        -------
        ndarray
            E[y | f], of the shape of `f`.
        """
        raise self._undefined("conditional_mean(f), the mean of y given f")

    def conditional_variance(self, f: Any) -> FloatOrArray:
        """Variance of an observation given f, elementwise.

        Parameters
        ----------
        f : ndarray
            Latent values.

        Returns
        -------
        ndarray
            Var[y | f], of the shape of `f`.
        """
        raise self._undefined("conditional_variance(f), the variance of y given f")

    def cdf(self, y: Any, f: Any) -> FloatOrArray:
        """Probability that an observation is at most y given f, elementwise.

        Parameters
        ----------
        y : ndarray
            Numbers, of a shape that broadcasts against `f`.
        f : ndarray
            Latent values.

        Returns
        -------
        ndarray
            The probabilities, of the shape of `f`.
        """
        raise self._undefined("cdf(y, f), the probability of an observation up to y given f")

    def draw(self, f: Any, rng: np.random.Generator) -> FloatOrArray:
        """Draw an observation for each latent value; the numbers of classes for classifiers.

        Parameters
        ----------
        f : ndarray
            Latent values.
        rng : numpy.random.Generator
            Source of randomness.

        Returns
        -------
        ndarray
            The draws, of the shape of `f`.
        """
        if self.n_classes is None:
            raise self._undefined("draw(f, rng), which draws y given f")
        f = np.asarray(f, dtype=np.float64)
        labels = [float(self.check(np.float64(k))) for k in range(self.n_classes - 1)]
        p = np.exp(np.stack([self.log_p(np.full(f.shape, label), f) for label in labels]))
        return np.sum(rng.random(f.shape) >= np.cumsum(p, axis=0), axis=0)

    def expected(self, mean: FloatArray, variance: FloatArray) -> FloatOrArray:
        """Mean of a new observation whose latent value is N(mean, variance), where it exists.

        Parameters
        ----------
        mean, variance : ndarray
            Moments of the latent value.

        Returns
        -------
        ndarray
            E[y].
        """
        return predictive.predict_mean(self, mean, variance)

    def moments(self, mean: FloatArray, variance: FloatArray) -> tuple[Any, Any]:
        """Mean and variance of a new observation whose latent value is N(mean, variance), where they exist.

        Parameters
        ----------
        mean, variance : ndarray
            Moments of the latent value.

        Returns
        -------
        mean, variance : ndarray
            E[y] and Var[y].
        """
        return predictive.predict_moments(self, mean, variance)

    def quantile(self, q: Any, mean: FloatArray, variance: FloatArray) -> FloatOrArray:
        """Quantiles of a new observation whose latent value is N(mean, variance).

        Parameters
        ----------
        q : ndarray
            Probabilities in (0, 1), of a shape that broadcasts against the moments.
        mean, variance : ndarray
            Moments of the latent value.

        Returns
        -------
        ndarray
            The quantiles; of a `discrete` likelihood the smallest numbers whose probability up to there is at least q.
        """
        return predictive.find_quantiles(self, q, mean, variance)

    def log_tilted(
        self, y: ArrayLike, mean: ArrayLike, variance: ArrayLike
    ) -> tuple[FloatArray, FloatArray, FloatArray]:
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
            For observations that the likelihood does not take, or moments that are not finite or not positive.
        ArithmeticError
            If the scales of cavity and likelihood are so far apart that no quadrature rule resolves both.
        """
        check_closed(self)
        y = self.check(y)
        mean = arrays.check_finite_array(mean, "mean")
        variance = arrays.check_finite_array(variance, "variance")
        if not np.all(variance > 0):
            raise ValueError(f"variance must be positive, got {float(np.min(variance))!r}")
        if not np.all(variance >= MIN_CAVITY_VARIANCE):
            raise ValueError(f"variance must be at least {MIN_CAVITY_VARIANCE!r}, got {float(np.min(variance))!r}")
        trailing = y.shape[y.ndim - self._y_ndim + 1 :]
        shape = np.broadcast_shapes(y.shape[: y.ndim - len(trailing)], mean.shape, variance.shape)
        flat = np.ascontiguousarray(np.broadcast_to(y, shape + trailing)).reshape((-1, *trailing))
        m, v = (np.ascontiguousarray(np.broadcast_to(a, shape)).reshape(-1) for a in (mean, variance))
        if m.size == 0:
            return tuple(np.empty(shape) for _ in range(3))
        moments = self._tilted(flat, m, v)
        is_undefined = np.isnan(moments[0]) | np.isnan(moments[1]) | np.isnan(moments[2])
        if is_undefined.any():
            i = int(np.argmax(is_undefined))
            raise ArithmeticError(
                f"the moments of a cavity of mean {m[i]:.3g} and variance {v[i]:.3g} cannot be integrated: "
                f"they are too far from the scale of the likelihood {type(self).__name__}"
            )
        return tuple(a.reshape(shape)[()] for a in moments)

    def _undefined(self, method):
        return NotImplementedError(f"{type(self).__name__} must define {method}")

    def start(self, y: Any) -> FloatArray | None:
        """Rough values of f, one for each observation, by which searches begin; they need not be good.

        The default is y, its log or its logit, as `link` says.

        Parameters
        ----------
        y : ndarray (N,) or as `check` returns it
            Observations, checked.

        Returns
        -------
        ndarray (N,) or None
            None where an observation alone says too little of f.
        """
        if y.ndim > 1 or self.n_classes is not None:
            return None
        return transform_by_link(y, self.link)

    def starting_values(self, y: Any, fitted: Any) -> dict[str, Any]:
        """Values of the parameters that data suggest: where a search begins for those that are open.

        The default takes the spread of y - fitted for the domain "scale", for others the default of the field or else 1
        for "positive", 0 for "real", 0.5 for "share" and 1.5 for "between 1 and 2".

        Parameters
        ----------
        y : ndarray (N,)
            Observations, checked.
        fitted : ndarray (N,)
            Rough values of f.

        Returns
        -------
        dict of str to float or tuple
            By names in `parameters`.
        """
        defaults = {field.name: field.default for field in fields(self)} if self.parameters else {}
        return {name: self._first_value(name, defaults[name], y, fitted) for name in self.parameters}

    def _first_value(self, name, default, y, fitted):
        domain = self.parameters[name]
        if domain == "scale":
            return estimate_spread(y, fitted)
        if default is None or default is MISSING:
            default = {"positive": 1.0, "real": 0.0, "share": 0.5, "between 1 and 2": 1.5}.get(domain)
        if default is None:
            kind = type(self).__name__
            raise ValueError(
                f"{name} of {kind} is open, and how many there are is not known: give values to start from"
            )
        return default

    # how rows of one f are one site (`models/mixed/merged_sites.py`): "trials", "mean", "logit mean", "factors" or None
    _merges_by: ClassVar[str | None] = "factors"
    _y_ndim = 1  # dimensions of `check(y)` for N observations

    def _tilted(self, y, mean, variance):
        """`log_tilted` of checked vectors."""
        return quadrature.log_tilted(lambda f, index: self.log_p(y[index, None], f), mean, variance)[:3]


class _Compiled(Likelihood):
    """A likelihood with a kernel: `_kind`, `_parameters()` and `_encode(y) -> (numbers, extra)`."""

    __slots__ = ()
    _kind = None
    any_power = True  # whether the kernel supports p(y|f)^e for e other than 1
    _encodes_alone = False  # whether `_encode` is the same whatever the parameters
    # of p = g((f - c)/s)/s^n: the derivative of log s in the log of a parameter, by name; see `_locate`
    _log_scales: ClassVar[Mapping[str, float]] = {}

    def __post_init__(self) -> None:
        check_fields(self)

    def _parameters(self):
        """Return what the kernel reads, by default the fields."""
        return tuple(getattr(self, field.name) for field in fields(self))

    def _encode(self, y):
        """Return the numbers the kernel reads: y, and upper bounds or the part of log p(y|f) without f."""
        return y, SHARED_ZERO

    def _encode_responses(self, y, free, vectors):
        """Return kernel parameters (A, 6), numbers (A, N) and extra numbers (A, N) or (A, 1) of several responses."""
        encoded = []
        for numbers, vector in zip(y, vectors, strict=True):
            likelihood = free.unpack(vector, self)
            encoded.append((kernel_settings(likelihood)[1], *encode_observations(likelihood, numbers)))
        return tuple(np.array(part) for part in zip(*encoded, strict=True))

    def _tilted(self, y, mean, variance):
        out = tuple(np.empty(mean.size) for _ in range(3))
        site_kernel.evaluate(
            *kernel_settings(self), SHARED_ONE, *encode_observations(self, y), mean, variance, False, *out
        )
        return out


# The interface between likelihoods and engines, beside the public methods.


def refuse_classes(likelihood, name):
    """Raise ValueError for a likelihood of classes, whose observations are no numbers."""
    if likelihood.n_classes is not None:
        raise ValueError(
            f"{name} needs observations that are numbers, {type(likelihood).__name__} has classes: see predict_proba"
        )


def has_kernel(likelihood):
    """Return whether compiled sweeps support p(y|f)."""
    return isinstance(likelihood, _Compiled)


def has_kernel_for(likelihood, exponent):
    """Return whether compiled sweeps support these powers of p(y|f)."""
    return has_kernel(likelihood) and (likelihood.any_power or bool(np.all(exponent == 1.0)))


def kernel_settings(likelihood):
    """Return the kernels' description of a likelihood: its kind, and six parameters."""
    check_closed(likelihood)
    values, parameters = likelihood._parameters(), np.zeros(6)
    parameters[: len(values)] = values
    return likelihood._kind, parameters


def encode_observations(likelihood, y):
    """Return the numbers that kernels read of checked observations: (N,), and (N,) or (1,)."""
    return likelihood._encode(y)


def encode_responses(likelihood, y, free, vectors):
    """Return what kernels read of responses that differ in parameters of their likelihood.

    Parameters
    ----------
    likelihood : Likelihood
        With a kernel, and a number for each parameter.
    y : ndarray (A, N)
        Checked observations.
    free : FreeParameters
        Those that differ.
    vectors : ndarray (A, k)
        Their free numbers.

    Returns
    -------
    parameters, numbers, extra : ndarray
        (A, 6), (A, N), and (A, N) or (A, 1).
    """
    return likelihood._encode_responses(y, free, vectors)


def evaluate_tilted(likelihood, y, mean, variance):
    """`log_tilted` of checked vectors: the user's own if there is one."""
    own = not has_kernel(likelihood) and type(likelihood).log_tilted is not Likelihood.log_tilted
    return (likelihood.log_tilted if own else likelihood._tilted)(y, mean, variance)
