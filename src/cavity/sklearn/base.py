"""What the estimators share: checks, what becomes of their arguments, and how predictions are computed.

Checks make their messages with `cavity.base.arrays`, like all others.
"""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from functools import cache
from typing import Any, TypeVar

import numpy as np
from scipy.special import logsumexp
from sklearn import exceptions
from sklearn.base import BaseEstimator, ClassifierMixin, RegressorMixin, is_classifier
from sklearn.utils import check_random_state, validation
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import check_is_fitted

from cavity.base import arrays
from cavity.base.argument_names import describe_way_out
from cavity.base.errors import ConvergenceWarning, NumericalWarning, warn
from cavity.base.public_objects import ArrayLike, FloatArray
from cavity.models.mixture.factors import is_full
from cavity.models.predictive_densities import integrate_both_log_densities
from cavity.sources import chunkwise
from cavity.sources.chunkwise import map_chunks
from cavity.sources.features import check_sparse

Kind = TypeVar("Kind")

# of `validate_data`, which change nothing about arrays of finite numbers
PLAIN_OPTIONS = {
    *("accept_sparse", "dtype", "ensure_all_finite", "ensure_min_samples", "multi_output", "reset", "y_numeric")
}
MAX_FEW_CLASSES = 20  # scikit-learn warns of more where rows are not twice as many
HINT_FOR_COLLECTIONS = (
    "collections of dask would be read whole: give X.compute() if that fits into memory; ProbitClassifier, "
    "LogitClassifier, cavity.GaussianMixture, GLM and LinearRegression take them as they are"
)


class UnfinishedWarning(ConvergenceWarning, exceptions.ConvergenceWarning):
    """An iteration stopped before its stopping rule was met: a warning of both libraries."""


def validate_data(estimator, X, *targets, **options):
    """Return rows, and targets if there are any, as scikit-learn checks them, which would load collections whole.

    What passes all of its checks as it is, arrays of finite numbers, is not handed to it: they take longer than a fit
    of a hundred rows.
    """
    if options.keys() <= PLAIN_OPTIONS and _are_plain(X, targets, options.get("ensure_min_samples", 1)):
        reset, has_names = options.get("reset", True), hasattr(estimator, "feature_names_in_")
        if reset or (not has_names and getattr(estimator, "n_features_in_", None) == X.shape[1]):
            estimator.n_features_in_ = X.shape[1]
            vars(estimator).pop("feature_names_in_", None)
            return (X, *targets) if targets else X
    chunkwise.refuse_collections(X, *targets, message=HINT_FOR_COLLECTIONS)
    # scikit-learn converts sparse matrices without a look at the indices
    return validation.validate_data(estimator, check_sparse(X, "X"), *targets, **options)


def _are_plain(X, targets, min_rows):
    """Whether rows are a matrix, and targets vectors of as many entries, all of finite numbers that need no copy."""
    return (
        (type(X) is np.ndarray and X.dtype == np.float64 and X.ndim == 2 and X.shape[1] > 0)
        and len(X) >= max(min_rows, 1)
        and all(_is_plain_target(y) and len(y) == len(X) for y in targets)
        and all(arrays.find_nonfinite(array) is None for array in (X, *targets))
    )


def _is_plain_target(y):
    """Whether a target is a vector of numbers in C order."""
    return type(y) is np.ndarray and y.dtype.kind in "iuf" and y.ndim == 1 and y.flags.c_contiguous


def check_per_row(value, name, n, expected):
    """Return a number for each of n rows, (n,), of a vector or a number for all."""
    array = arrays.check_finite_array(value, name, ndim=(0, 1))
    if array.ndim == 1 and len(array) != n:
        raise ValueError(f"{name} must have shape ({n},), one {expected} for each row, got {array.shape}")
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
    if is_classifier(estimator) and not _are_few_integers(y):
        check_classification_targets(y)
    return X, y, weight


def _are_few_integers(y):
    """Whether targets are whole numbers of few classes: scikit-learn's other checks take longer than many fits."""
    return y.dtype.kind in "iu" and y.ndim == 1 and len(y) > 0 and int(y.max()) - int(y.min()) < MAX_FEW_CLASSES


def open_remotely(estimator, X, y, sample_weight):
    """Return what `check_rows` does, the rows of a collection in a dask array, where they are; None for others."""
    source = chunkwise.open_array(X)
    if source is None:
        return None
    X, names = source
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
    unknown_labels = [label for label in class_weight if label not in classes]
    if unknown_labels:
        raise ValueError(f"class_weight has {unknown_labels[0]!r}, which is not among the classes {classes.tolist()}")
    weights_by_class = {
        label: arrays.check_number(value, f"class_weight[{label!r}]", low=0) for label, value in class_weight.items()
    }
    return weight * np.array([weights_by_class.get(label, 1.0) for label in classes.tolist()])[codes]


def check_shape(value, name, shape, shown):
    """Return finite float64 of the required shape; ValueError for another one, in scikit-learn's words."""
    array = arrays.check_finite_array(value, name)
    if array.shape != shape:
        raise ValueError(f"The parameter '{shown}' should have the shape of {shape}, but got {array.shape}")
    return array


def check_precision(value, covariance_type, shapes, name):
    """Return matrices or variances as finite float64 of the type's shape, symmetric and positive definite."""
    array = check_shape(value, name, shapes[covariance_type], f"{covariance_type} {name}")
    message = f"'{covariance_type} {name}' should be"
    if not is_full(covariance_type):
        if not np.all(array > 0):
            raise ValueError(f"{message} positive, got {float(np.min(array))!r}")
        return array
    matrices = array.reshape(-1, *array.shape[-2:])
    for matrix in matrices:
        try:
            arrays.cholesky(arrays.check_symmetric(matrix, name), name)
        except ValueError as error:
            raise ValueError(f"{message} symmetric, positive-definite ({error})") from error
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


def check_stream_classes(y, classes, first=None):
    """Return the classes of a stream, sorted: those of earlier batches or, in the first, those of `classes`.

    Raises ValueError if there are none or one, if they change, or if y holds another one.
    """
    if first is None and classes is None:
        raise ValueError("classes must be given in the first call of partial_fit, where later classes are unknown")
    all_classes = first if classes is None else np.unique(classes)
    if all_classes.size < 2:
        raise ValueError(f"classes holds one class ({all_classes.tolist()[0]!r}); two are needed")
    if first is not None and not np.array_equal(all_classes, first):
        raise ValueError(f"classes must be those of the first call, {first.tolist()}, got {all_classes.tolist()}")
    unknown = np.setdiff1d(y, all_classes)
    if unknown.size:
        raise ValueError(f"y holds {unknown.tolist()[0]!r}, which is not among the classes {all_classes.tolist()}")
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


FLOAT_DTYPES = [np.float64, np.float32]  # kept as they are where both are welcome, others become float64


_signature = cache(inspect.signature)


def is_verbose(estimator):
    """Return whether a fit of an estimator shows progress: its `verbose` is a bool, or an integer above 0."""
    verbose = estimator.verbose
    return (
        bool(verbose) if isinstance(verbose, bool | np.bool_) else arrays.check_integer(verbose, "verbose", low=0) > 0
    )


def share_docstring(kind, base):
    """Put the docstring of `base`, without its first paragraph, in place of "{settings}" in that of a subclass."""
    if kind.__doc__ is not None and base.__doc__ is not None:  # there is none under python -OO
        shared = inspect.cleandoc(base.__doc__).partition("\n\n")[2]
        kind.__doc__ = inspect.cleandoc(kind.__doc__).replace("{settings}", shared, 1)


def list_own_settings_first(kind: type[Kind]) -> type[Kind]:
    """Put inherited settings last in the signature of a dataclass, where its docstring has them."""

    def find_depth(parameter):
        return next(i for i, base in enumerate(kind.__mro__) if parameter.name in vars(base).get("__annotations__", ()))

    init: Any = kind.__init__
    self, *parameters = inspect.signature(init).parameters.values()
    init.__signature__ = inspect.Signature([self, *sorted(parameters, key=find_depth)])
    return kind


def predict_by_chunks(tail=lambda self: (), dtype=lambda self: np.float64):
    """Return a decorator as `map_chunks` does; an estimator that is not fitted is refused first."""

    def shape(self):
        check_is_fitted(self)
        return tail(self)

    return map_chunks(shape, dtype)


def class_shape(classifier):
    """Return the shape of what is said of a row class by class."""
    return (len(classifier.classes_),)


def label_dtype(classifier):
    """Return the dtype of labels."""
    return classifier.classes_.dtype


class Estimator(BaseEstimator):
    """Base of the estimators: unknown arguments are refused under their public name."""

    def __new__(cls, *args, **kwargs):
        """Return a new estimator, not yet initialised."""
        try:
            _signature(cls.__init__).bind_partial(None, *args, **kwargs)
        except TypeError as error:
            names = cls._get_param_names()
            unknown = next((name for name in kwargs if name not in names), None)
            way_out = describe_way_out(unknown, names) if unknown else f"; there are {', '.join(names)}"
            raise TypeError(f"{cls.__name__}: {error}{way_out}") from None
        return super().__new__(cls)

    def _settings(self, *names):
        """Return the arguments of these names as a dictionary."""
        return {name: getattr(self, name) for name in names}

    def _options(self, *names):
        """Return the arguments of these names, and whether the fit shows progress, as a fit of `cavity` takes them."""
        return self._settings(*names) | {"progress": is_verbose(self)}

    def _set_loo_score(self, log_density, weight):
        """Set the weighted mean of what log_density() returns; warn where it raises ValueError."""
        try:
            self.loo_score_ = float(np.average(log_density(), weights=weight))
        except ValueError as error:  # the posterior stands, only this is missing
            warn(f"no loo_score_: {error}", NumericalWarning)

    def _new_rows(self, X, dtype=np.float64, **options):
        """Return checked rows to predict; options of `validate_data`."""
        check_is_fitted(self)
        return validate_data(self, X, dtype=dtype, reset=False, **options)


class Classifier(ClassifierMixin):
    """Base of classifiers; a subclass has ``classes_`` and gives ``_log_probabilities(X)`` of rows as they come."""

    @predict_by_chunks(dtype=label_dtype)
    def predict(self, X: ArrayLike) -> Any:
        """Most probable class of each row.

        Parameters
        ----------
        X : array_like, shape (n, D)
            The rows.

        Returns
        -------
        ndarray, shape (n,)
            Labels, as in ``classes_``.
        """
        log_probabilities = self._log_probabilities(X)  # raises if there was no fit, before classes_ is read
        return self.classes_[np.argmax(log_probabilities, axis=1)]

    @predict_by_chunks(class_shape)
    def predict_proba(self, X: ArrayLike) -> FloatArray:
        """Probability of each class, integrated over the posterior.

        Parameters
        ----------
        X : array_like, shape (n, D)
            The rows.

        Returns
        -------
        ndarray, shape (n, K)
            One column per class, in the order of ``classes_``; rows sum to one.
        """
        return np.exp(self._log_probabilities(X))

    @predict_by_chunks(class_shape)
    def predict_log_proba(self, X: ArrayLike) -> FloatArray:
        """Log of `predict_proba`, accurate where a probability is too small for float64.

        Parameters
        ----------
        X : array_like, shape (n, D)
            The rows.

        Returns
        -------
        ndarray, shape (n, K)
            One column per class, in the order of ``classes_``.
        """
        return self._log_probabilities(X)


class Regressor(RegressorMixin):
    """Base of regressors; a subclass gives ``_moments(X, with_std, with_cov)`` of rows as they come: mean, and spread.

    The spread is None where neither is requested.
    """

    def predict(self, X: ArrayLike, return_std: bool = False, return_cov: bool = False) -> Any:
        """Mean of the predictive distribution and, on request, its standard deviations or covariances.

        Parameters
        ----------
        X : array_like, shape (n, D)
            The rows.
        return_std : bool, default False
            Whether to return standard deviations.
        return_cov : bool, default False
            Whether to return covariances; not both.

        Returns
        -------
        mean : ndarray, shape (n,), or (n, T) of T targets
            The means. `GaussianProcessRegressor` has those of the prior before `fit`.
        std : ndarray, shape (n,) or (n, T)
            Only with `return_std`. Those of the function, as in scikit-learn: a `WhiteKernel` is part of it, `alpha`
            is not.
        cov : ndarray, shape (n, n) or (n, n, T)
            Only with `return_cov`.

        Raises
        ------
        RuntimeError
            If both are requested.

        Warns
        -----
        NumericalWarning
            If rounding made variances negative; they are set to zero.
        """
        if return_std and return_cov:
            raise RuntimeError("At most one of return_std or return_cov can be requested.")
        mean, spread = self._moments(X, return_std, return_cov)
        return mean if spread is None else (mean, spread)

    def sample_y(self, X: ArrayLike, n_samples: int = 1, random_state: Any = 0) -> FloatArray:
        """Draw functions from the posterior at given rows.

        Parameters
        ----------
        X : array_like, shape (n, D)
            The rows.
        n_samples : int, default 1
            How many functions.
        random_state : int, RandomState or None, default 0
            Makes the draws repeatable.

        Returns
        -------
        ndarray, shape (n, n_samples), or (n, T, n_samples) of T targets
            Their values; a `WhiteKernel` is part of them, `alpha` is not. `GaussianProcessRegressor` draws from the
            prior before `fit`.
        """
        mean, covariance = self.predict(X, return_cov=True)
        rng = check_random_state(random_state)
        if mean.ndim == 1:
            return rng.multivariate_normal(mean, covariance, n_samples).T
        draws = [rng.multivariate_normal(mean[:, t], covariance[..., t], n_samples).T for t in range(mean.shape[1])]
        return np.stack(draws, axis=1)
