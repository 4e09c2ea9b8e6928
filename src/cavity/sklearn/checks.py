"""Checks that several estimators share; like all others they word their messages through `cavity.base.arrays`."""

import inspect

import numpy as np
from scipy.special import logsumexp
from sklearn.utils.validation import validate_data

from cavity.base import arrays
from cavity.models.mixture.factors import is_full


class NamesArguments:
    """Base of the estimators: arguments that they do not know are refused by the name that users call them by."""

    def __new__(cls, *args, **kwargs):
        """Return a new estimator, not yet initialised."""
        try:
            inspect.signature(cls.__init__).bind_partial(None, *args, **kwargs)
        except TypeError as error:
            raise TypeError(f"{cls.__name__}: {error}; its arguments are {', '.join(cls._get_param_names())}") from None
        return super().__new__(cls)

    def _keep(self, arguments):
        """Make attributes of the arguments of `__init__`, as they are; `arguments` are its locals()."""
        for name in self._get_param_names():
            setattr(self, name, arguments[name])


def sample_weights(value, n):
    """Return weights of n rows, zero or more and not all zero, as (n,) float64."""
    weight = arrays.finite_array(value, "sample_weight", ndim=(0, 1))
    if weight.ndim == 1 and weight.size != n:
        raise ValueError(f"sample_weight must have shape ({n},), one weight for each row, got {weight.shape}")
    if np.any(weight < 0):
        raise ValueError(f"sample_weight must not be negative, got {float(np.min(weight))!r}")
    if not np.any(weight):
        raise ValueError("sample_weight is zero for every row: no row is left")
    return np.broadcast_to(weight, (n,))


def weighted_rows(estimator, X, y, sample_weight, **options):
    """Return checked rows, targets and weights (or None) without rows of weight zero; options of `validate_data`."""
    X, y = validate_data(estimator, X, y, **options)
    if sample_weight is None:
        return X, y, None
    weight = sample_weights(sample_weight, y.size)
    kept = weight > 0
    return X[kept], y[kept], weight[kept]


def shape(array, wanted, name):
    """Raise ValueError unless an array has the wanted shape."""
    if array.shape != wanted:
        raise ValueError(f"The parameter '{name}' should have the shape of {wanted}, but got {array.shape}")


def precision(value, covariance_type, shapes, name):
    """Return matrices or variances as finite float64 of the type's shape, symmetric and positive definite."""
    array = arrays.finite_array(value, name)
    shape(array, shapes[covariance_type], f"{covariance_type} {name}")
    what = f"'{covariance_type} {name}' should be"
    if not is_full(covariance_type):
        if not np.all(array > 0):
            raise ValueError(f"{what} positive, got {float(np.min(array))!r}")
        return array
    matrices = array.reshape(-1, *array.shape[-2:])
    for matrix in matrices:
        try:
            arrays.cholesky(arrays.symmetric(matrix, name), name)
        except ValueError as error:
            raise ValueError(f"{what} symmetric, positive-definite ({error})") from error
    return array


def one_vs_rest(y, classes):
    """Labels -1.0 and 1.0 of each binary problem; of two classes there is one, the second."""
    return [np.where(y == label, 1.0, -1.0) for label in (classes[1:] if classes.size == 2 else classes)]


def normalised(inside):
    """Log probabilities of K classes from those of each against the rest, (n, K)."""
    return inside - logsumexp(inside, axis=1, keepdims=True)


def log_probabilities(posteriors, X):
    """Log probabilities of the classes, (n, K), from the model of two or those of each against the rest."""
    ones = np.ones(X.shape[0])
    inside = [posterior.log_density(X, ones) for posterior in posteriors]
    if len(posteriors) > 1:
        return normalised(np.stack(inside, axis=1))
    return np.stack([posteriors[0].log_density(X, -ones), *inside], axis=1)


def known_classes(y, classes, known=None):
    """Return the classes of a stream, sorted: those of earlier batches or, in the first, those that were announced.

    Raises ValueError if there are none or one, if they change, or if y holds another one.
    """
    if known is None and classes is None:
        raise ValueError("classes must be given in the first call of partial_fit, where later classes are unknown")
    given = known if classes is None else np.unique(classes)
    if given.size < 2:
        raise ValueError(f"classes holds one class ({given.tolist()[0]!r}); two are needed")
    if known is not None and not np.array_equal(given, known):
        raise ValueError(f"classes must be those of the first call, {known.tolist()}, got {given.tolist()}")
    strangers = np.setdiff1d(y, given)
    if strangers.size:
        raise ValueError(f"y holds {strangers.tolist()[0]!r}, which is not among the classes {given.tolist()}")
    return given


def classes_in(y):
    """Return the classes of all data, sorted; raise ValueError if there is but one."""
    classes = np.unique(y)
    if classes.size < 2:
        raise ValueError(f"y holds one class ({classes.tolist()[0]!r}) in {y.size} row(s); two are needed")
    return classes


def loo_log_density(posteriors, labels):
    """Log probability that all other rows give to each row's own class, (N,); labels are the numbers of the classes."""
    loo = np.stack([posterior.loo_log_density for posterior in posteriors], axis=1)  # of "is it" or "is it not"
    if len(posteriors) == 1:
        return loo[:, 0]
    own = np.arange(len(posteriors)) == labels[:, None]
    with np.errstate(divide="ignore"):
        is_it = np.where(own, loo, np.log(-np.expm1(np.minimum(loo, 0.0))))  # rounding may lift a log of 1 above 0
    return normalised(is_it)[own]
