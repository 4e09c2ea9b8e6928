"""Checks that several estimators share; like all others they word their messages through `cavity.base.arrays`."""

from collections.abc import Mapping

import numpy as np
from scipy.special import logsumexp
from sklearn import exceptions
from sklearn.base import is_classifier
from sklearn.utils import validation
from sklearn.utils.multiclass import check_classification_targets

from cavity.base import arrays
from cavity.base.errors import ConvergenceWarning
from cavity.models.mixture.factors import is_full
from cavity.models.predictive_densities import integrate_both_log_densities
from cavity.sources import chunkwise
from cavity.sources.features import check_sparse

HINT_FOR_COLLECTIONS = (
    "collections of dask would be read whole: give X.compute() if that fits into memory; ProbitClassifier, "
    "LogitClassifier, cavity.GaussianMixture, GLM and LinearRegression take them as they are"
)


class UnfinishedWarning(ConvergenceWarning, exceptions.ConvergenceWarning):
    """An iteration stopped before its stopping rule was met: a warning of both libraries."""


def validate_data(estimator, X, *targets, **options):
    """Return rows, and targets if there are any, as scikit-learn checks them, which would load collections whole."""
    chunkwise.refuse_collections(X, *targets, words=HINT_FOR_COLLECTIONS)
    # scikit-learn converts sparse matrices without a look at the indices
    return validation.validate_data(estimator, check_sparse(X, "X"), *targets, **options)


def check_per_row(value, name, n, what):
    """Return a number for each of n rows, (n,), of a vector or a number for all."""
    array = arrays.check_finite_array(value, name, ndim=(0, 1))
    if array.ndim == 1 and len(array) != n:
        raise ValueError(f"{name} must have shape ({n},), one {what} for each row, got {array.shape}")
    return np.broadcast_to(array, (n,))


def drop_zero_weights(sample_weight, *rows):
    """Return arrays of rows, and then their weights (or None), without the rows of weight zero."""
    if sample_weight is None:
        return *rows, None
    weight = check_per_row(sample_weight, "sample_weight", rows[0].shape[0], "weight")
    if np.any(weight < 0):
        raise ValueError(f"sample_weight must not be negative, got {float(np.min(weight))!r}")
    if not np.any(weight):
        raise ValueError("sample_weight is zero for every row: no row is left")
    positive = weight > 0
    return *(rows if positive.all() else [array[positive] for array in rows]), weight[positive]


def check_rows(estimator, X, y, sample_weight=None, **options):
    """Return checked rows, targets and weights (or None) without rows of weight zero; options of `validate_data`."""
    X, y, weight = drop_zero_weights(sample_weight, *validate_data(estimator, X, y, **options))
    if is_classifier(estimator):
        check_classification_targets(y)
    return X, y, weight


def open_remotely(estimator, X, y, sample_weight):
    """Return what `counted_rows` does, the rows of a collection in a dask array, where they are; None for others."""
    opened = chunkwise.open_array(X)
    if opened is None:
        return None
    X, names = opened
    estimator.n_features_in_ = int(X.shape[1])
    vars(estimator).pop("feature_names_in_", None)
    if names is not None:
        estimator.feature_names_in_ = np.array(names, dtype=object)
    y, weight = map(chunkwise.load, (y, sample_weight))
    y = validation.column_or_1d(y, warn=True)
    check_classification_targets(y)
    return X, y, None if weight is None else arrays.check_finite_array(weight, "sample_weight", ndim=(1,))


def apply_class_weight(class_weight, y, weight):
    """Return weights of rows times those of their classes, None if there are neither.

    "balanced" gives all classes the same sum; a dictionary has 1 for labels that are not in it.
    """
    if class_weight is None:
        return weight
    classes, codes = np.unique(y, return_inverse=True)
    weight = np.ones(len(y)) if weight is None else weight
    if isinstance(class_weight, str):
        arrays.check_choice(class_weight, "class_weight", ("balanced",))
        return weight * (np.sum(weight) / len(classes) / np.bincount(codes, weight))[codes]
    if not isinstance(class_weight, Mapping):
        message = f"must be None, 'balanced' or a dict, got {type(class_weight).__name__}"
        raise arrays.error_of("class_weight", message, TypeError)
    strangers = [label for label in class_weight if label not in classes]
    if strangers:
        raise ValueError(f"class_weight has {strangers[0]!r}, which is not among the classes {classes.tolist()}")
    weights_by_class = {
        label: arrays.check_number(value, f"class_weight[{label!r}]", low=0) for label, value in class_weight.items()
    }
    return weight * np.array([weights_by_class.get(label, 1.0) for label in classes.tolist()])[codes]


def check_shape(value, name, wanted, shown):
    """Return finite float64 of the wanted shape; ValueError for another one, in scikit-learn's words."""
    array = arrays.check_finite_array(value, name)
    if array.shape != wanted:
        raise ValueError(f"The parameter '{shown}' should have the shape of {wanted}, but got {array.shape}")
    return array


def check_precision(value, covariance_type, shapes, name):
    """Return matrices or variances as finite float64 of the type's shape, symmetric and positive definite."""
    array = check_shape(value, name, shapes[covariance_type], f"{covariance_type} {name}")
    what = f"'{covariance_type} {name}' should be"
    if not is_full(covariance_type):
        if not np.all(array > 0):
            raise ValueError(f"{what} positive, got {float(np.min(array))!r}")
        return array
    matrices = array.reshape(-1, *array.shape[-2:])
    for matrix in matrices:
        try:
            arrays.cholesky(arrays.check_symmetric(matrix, name), name)
        except ValueError as error:
            raise ValueError(f"{what} symmetric, positive-definite ({error})") from error
    return array


def split_one_vs_rest(y, classes):
    """Labels -1.0 and 1.0 of each binary problem; of two classes there is one, the second."""
    return [np.where(y == label, 1.0, -1.0) for label in (classes[1:] if classes.size == 2 else classes)]


def normalise(inside):
    """Log probabilities of K classes from those of each against the rest, (n, K)."""
    return inside - logsumexp(inside, axis=1, keepdims=True)


def compute_log_probabilities(posteriors, X):
    """Log probabilities of the classes, (n, K), from the model of two or those of each against the rest."""
    if len(posteriors) == 1:
        return integrate_both_log_densities(posteriors[0].model.likelihood, *posteriors[0].predict(X))
    ones = np.ones(X.shape[0])
    return normalise(np.stack([posterior.log_density(X, ones) for posterior in posteriors], axis=1))


def check_stream_classes(y, classes, known=None):
    """Return the classes of a stream, sorted: those of earlier batches or, in the first, those that were announced.

    Raises ValueError if there are none or one, if they change, or if y holds another one.
    """
    if known is None and classes is None:
        raise ValueError("classes must be given in the first call of partial_fit, where later classes are unknown")
    all_classes = known if classes is None else np.unique(classes)
    if all_classes.size < 2:
        raise ValueError(f"classes holds one class ({all_classes.tolist()[0]!r}); two are needed")
    if known is not None and not np.array_equal(all_classes, known):
        raise ValueError(f"classes must be those of the first call, {known.tolist()}, got {all_classes.tolist()}")
    strangers = np.setdiff1d(y, all_classes)
    if strangers.size:
        raise ValueError(f"y holds {strangers.tolist()[0]!r}, which is not among the classes {all_classes.tolist()}")
    return all_classes


def find_classes(y):
    """Return the classes of all data, sorted; raise ValueError if there is but one."""
    classes = np.unique(y)
    if classes.size < 2:
        raise ValueError(f"y holds one class ({classes.tolist()[0]!r}) in {y.size} row(s); two are needed")
    return classes


def compute_loo_log_density(posteriors, labels):
    """Log probability that all other rows give to each row's own class, (N,); labels are the numbers of the classes."""
    loo = np.stack([posterior.loo_log_density for posterior in posteriors], axis=1)  # of "is it" or "is it not"
    if len(posteriors) == 1:
        return loo[:, 0]
    own = np.arange(len(posteriors)) == labels[:, None]
    with np.errstate(divide="ignore"):
        is_it = np.where(own, loo, np.log(-np.expm1(np.minimum(loo, 0.0))))  # rounding may lift a log of 1 above 0
    return normalise(is_it)[own]
