"""Likelihoods of labels: binary ones, ordered ones, and values known to lie in an interval."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from cavity.base import arrays
from cavity.base.lazy_scipy import special
from cavity.base.public_objects import FloatArray, FloatOrArray, set_fields
from cavity.base.special import log_logistic_interval, log_one_minus_exp
from cavity.likelihoods import base
from cavity.likelihoods.base import CLOGLOG, INTERVAL, LOGIT, ORDERED_LOGIT, PROBIT, _Compiled, estimate_spread
from cavity.likelihoods.counts import check_counts
from cavity.likelihoods.noise import _NormalNoise
from cavity.likelihoods.parameters import check_closed


class _BinaryLabels:
    __slots__ = ()
    n_classes = 2

    def check(self, y: Any) -> FloatArray:
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
        array = arrays.check_finite_array(y, "y", ndim=(0, 1))
        signs, bits = np.abs(array) == 1.0, (array == 0.0) | (array == 1.0)
        if not (signs.all() or bits.all()):
            row = int(np.argmax(~(signs | bits))) if not (signs | bits).all() else int(np.argmax(array == -1.0))
            raise ValueError(
                "y must hold two classes, coded -1 and 1, 0 and 1, or False and True; "
                f"got {float(array.reshape(-1)[row])!r} in row {row}"
            )
        return array if signs.all() else 2.0 * array - 1.0


class _Binary(_BinaryLabels, _Compiled):
    __slots__ = ()


@dataclass(frozen=True, slots=True)
class Probit(_Binary):
    """Binary labels with p(y|f) = Phi(y f), y = -1 or 1 [RW]_ (eq. 3.82 to 3.85).

    log_z, d1 and 1 + variance d2 keep a relative accuracy of 1e-13 however far in the tail; where log_z itself is below
    1e-200, as y is all but certain, of 4e-13.

    Examples
    --------
    >>> import cavity
    >>> log_z, d1, d2 = cavity.likelihoods.Probit().log_tilted(1, 1.0, 0.5)
    >>> round(float(log_z), 9), round(float(d1), 9)
    (-0.232068371, 0.294364628)
    """

    _kind = PROBIT
    _merges_by = "trials"

    def _parameters(self):
        return 1.0, 1.0

    def log_p(self, y: Any, f: Any) -> FloatOrArray:
        """Log Phi(y f); see `Likelihood.log_p`."""
        return special.log_ndtr(np.asarray(y) * np.asarray(f))


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
    _merges_by = "trials"

    def log_p(self, y: Any, f: Any) -> FloatOrArray:
        """Log of the logistic function of y f; see `Likelihood.log_p`."""
        return -np.logaddexp(0.0, -np.asarray(y) * np.asarray(f))


@dataclass(frozen=True, slots=True)
class Cloglog(_BinaryLabels, _Compiled):
    """Binary labels with p(1|f) = 1 - exp(-exp(f)): whether there was an event, of a process with rate exp(f).

    Coefficients are logs of ratios of hazards, as those of a model of survival that was looked at once.

    Examples
    --------
    >>> import cavity
    >>> cavity.likelihoods.Cloglog().log_tilted([1, 0], 0.4, 0.9)[0].round(6).tolist()
    [-0.325706, -1.280196]
    """

    _kind = CLOGLOG

    def log_p(self, y: Any, f: Any) -> FloatOrArray:
        """Log probability of the label; see `Likelihood.log_p`."""
        with np.errstate(over="ignore"):
            return np.where(np.asarray(y) > 0, log_one_minus_exp(f), -np.exp(f))


@dataclass(frozen=True, slots=True)
class Step(_Binary):
    """Binary labels without noise: p(y|f) = 1 if y f > 0, else 0 (the Bayes point machine's) [M]_ (section 5.2).

    Posteriors end at a plane for each row, far from a Gaussian: EP's standard deviations are about a quarter too small.
    """

    _kind = PROBIT
    _merges_by = None

    def _parameters(self):
        return 0.0, 1.0

    def log_p(self, y: Any, f: Any) -> FloatOrArray:
        """Zero where y f > 0, log 1/2 where f = 0, else -inf; see `Likelihood.log_p`."""
        margin = np.asarray(y) * np.asarray(f)
        return np.where(margin > 0, 0.0, np.where(margin == 0, -np.log(2.0), -np.inf))


@dataclass(frozen=True, slots=True)
class Interval(_NormalNoise):
    """Censored or truncated observations: all that is known is a range, lower < f + noise < upper.

    Observations have shape (N, 2), a lower and an upper bound each; -inf and inf stand for no bound, two equal bounds
    for an exact observation (of which Tobit regression is made). Predictions of new observations are those of the value
    f + noise itself, of which a range is known.

    Parameters
    ----------
    noise_variance : float or None, default 1.0
        Variance of the Gaussian noise on f; 0 for f itself in the range, None for the fit to find it.

    Examples
    --------
    >>> import cavity, numpy as np
    >>> censored = cavity.likelihoods.Interval(noise_variance=0.25)
    >>> log_z, d1, d2 = censored.log_tilted([[2.0, np.inf], [1.3, 1.3]], 0.0, 1.0)
    >>> log_z.round(6).tolist()
    [-3.301738, -1.70651]
    """

    noise_variance: float | None = 1.0

    _kind = INTERVAL
    any_power = False
    _y_ndim = 2
    takes_event = True
    parameters: ClassVar[Mapping[str, str]] = {"noise_variance": "positive"}

    def __post_init__(self) -> None:
        if self.noise_variance is not None:
            set_fields(
                self, noise_variance=arrays.check_number(self.noise_variance, "noise_variance", low=0, closed_low=True)
            )

    def check(self, y: Any) -> FloatArray:
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
        array = arrays.check_real_array(y, "y")
        if array.ndim not in (1, 2) or array.shape[-1] != 2:
            raise ValueError(f"y must have shape (N, 2), a lower and an upper bound each, got {array.shape}")
        lower, upper = array[..., 0], array[..., 1]
        exact = (lower == upper) & np.isfinite(lower) & (self.noise_variance != 0)
        good = (lower < upper) | exact
        if not good.all():
            row = int(np.argmin(np.atleast_1d(good)))
            low, high = np.atleast_2d(array)[row].tolist()
            hint = "; equal bounds need noise_variance > 0" if low == high else "; exchange them" if low > high else ""
            raise ValueError(f"y must hold lower < upper bounds, got {low!r} and {high!r} in row {row}{hint}")
        return array

    def starting_values(self, y: Any, fitted: Any) -> dict[str, Any]:
        """The square of the spread of what is known of y; see `Likelihood.starting_values`."""
        return {"noise_variance": estimate_spread(self.start(y), fitted) ** 2}

    def start(self, y: Any) -> FloatArray | None:
        """The middle of the bounds, or the finite one; see `Likelihood.start`."""
        bounds = np.where(np.isfinite(y), y, y[:, ::-1])
        return np.where(np.isfinite(bounds), bounds, 0.0).mean(axis=1)

    def _encode(self, y):
        return np.ascontiguousarray(y[:, 0]), np.ascontiguousarray(y[:, 1])

    def log_p(self, y: Any, f: Any) -> FloatOrArray:
        """Log probability of the range; see `Likelihood.log_p`. The last axis of y holds the bounds."""
        check_closed(self)
        y, f = np.asarray(y), np.asarray(f)
        lower, upper = y[..., 0], y[..., 1]
        if self.noise_variance == 0:
            return np.where((f > lower) & (f < upper), 0.0, -np.inf)
        return _log_interval(self, lower, upper, f)


class _Ordered:
    """Classes 0 to K - 1: y is the number of thresholds below f + noise, whose quantiles are `_noise_quantile`."""

    __slots__ = ()
    parameters: ClassVar[Mapping[str, str]] = {"thresholds": "increasing"}

    @property
    def n_classes(self) -> int:
        """The number of classes K; None while the thresholds are open."""
        return None if self.thresholds is None else len(self.thresholds) + 1

    def check(self, y: Any) -> FloatArray:
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
        array = check_counts(y)
        if self.thresholds is not None and array.size and array.max() > len(self.thresholds):
            row = int(np.argmax(array))
            raise ValueError(
                f"y must be at most {len(self.thresholds)} for {len(self.thresholds)} thresholds, "
                f"got {array.reshape(-1)[row]:g} in row {row}"
            )
        return array

    def starting_values(self, y: Any, fitted: Any) -> dict[str, Any]:
        """Quantiles of the noise at the shares of the classes; see `Likelihood.starting_values`."""
        counts = np.bincount(y.astype(np.intp))
        if len(counts) < 2:
            raise ValueError("y must hold at least two classes, to find thresholds between them; got class 0 only")
        if not counts.all():
            missing = int(np.argmin(counts > 0))
            raise ValueError(
                f"y has no row of class {missing}, so the thresholds about it cannot be found; number the classes "
                "that are there without gaps, or give thresholds"
            )
        shares = np.cumsum(counts)[:-1] / len(y)
        return {"thresholds": arrays.to_tuple(self._noise_quantile(shares) + float(np.mean(fitted)))}

    def start(self, y: Any) -> FloatArray | None:
        """None: a class says too little of f; see `Likelihood.start`."""
        return None

    def _find_edges(self, y):
        """Bounds of f + noise for each class."""
        check_closed(self)
        edges = np.concatenate([[-np.inf], self.thresholds, [np.inf]])
        index = np.asarray(y).astype(np.intp)
        return edges[index], edges[index + 1]


@dataclass(frozen=True, slots=True)
class OrderedProbit(_Ordered, _Compiled):
    """Ordered classes 0 to K - 1: y is the number of thresholds below f + noise, noise ~ N(0, 1).

    Parameters
    ----------
    thresholds : sequence of float or None, default None
        The K - 1 thresholds, increasing. None for the fit to find them: K is then the number of classes it sees.

    Examples
    --------
    >>> import cavity, numpy as np
    >>> grades = cavity.likelihoods.OrderedProbit([-1.0, 1.0])
    >>> np.exp(grades.log_tilted([0, 1, 2], 0.0, 1.0)[0]).round(4).tolist()
    [0.2398, 0.5205, 0.2398]
    """

    thresholds: Sequence[float] | None = None

    _kind = INTERVAL
    any_power = False

    def _parameters(self):
        return (1.0,)

    def _encode(self, y):
        return self._find_edges(y)

    def _noise_quantile(self, shares):
        return special.ndtri(shares)

    def log_p(self, y: Any, f: Any) -> FloatOrArray:
        """Log probability of the class; see `Likelihood.log_p`."""
        return _log_interval(self, *self._find_edges(y), f)


@dataclass(frozen=True, slots=True)
class OrderedLogit(_Ordered, _Compiled):
    """Ordered classes 0 to K - 1: y is the number of thresholds below f + noise, the noise logistic.

    Coefficients are logs of ratios of the odds of a class above any threshold (proportional odds).

    Parameters
    ----------
    thresholds : sequence of float or None, default None
        The K - 1 thresholds, increasing. None for the fit to find them: K is then the number of classes it sees.

    Examples
    --------
    >>> import cavity, numpy as np
    >>> grades = cavity.likelihoods.OrderedLogit([-1.0, 1.0])
    >>> np.exp(grades.log_tilted([0, 1, 2], 0.0, 1.0)[0]).round(4).tolist()
    [0.3033, 0.3935, 0.3033]
    """

    thresholds: Sequence[float] | None = None

    _kind = ORDERED_LOGIT

    def _parameters(self):
        return ()

    def _encode(self, y):
        return self._find_edges(y)

    def _noise_quantile(self, shares):
        return special.logit(shares)

    def log_p(self, y: Any, f: Any) -> FloatOrArray:
        """Log probability of the class; see `Likelihood.log_p`."""
        lower, upper = self._find_edges(y)
        return log_logistic_interval(lower - f, upper - f, upper - lower)


def _log_interval(likelihood, lower, upper, f):
    """log p of bounds by the kernel, which keeps the digits of narrow and of far intervals.

    f is a cavity of variance 0, to which the kernel adds that of the noise.
    """
    lower, upper, f = np.broadcast_arrays(*(np.asarray(a, dtype=np.float64) for a in (lower, upper, f)))
    if f.size == 0:
        return np.empty(f.shape)
    columns = (np.ascontiguousarray(a).reshape(-1) for a in (lower, upper, f, np.zeros(f.shape)))
    out = [np.empty(f.size) for _ in range(3)]
    base.site_kernel.evaluate(*base.kernel_settings(likelihood), base.SHARED_ONE, *columns, False, *out)
    return out[0].reshape(f.shape)[()]
