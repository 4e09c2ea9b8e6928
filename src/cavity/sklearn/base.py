"""What the faces share: what becomes of their arguments, and how predictions are asked for."""

from __future__ import annotations

import inspect
from functools import cache
from typing import Any

import numpy as np
from sklearn.base import BaseEstimator, ClassifierMixin, RegressorMixin
from sklearn.utils import check_random_state
from sklearn.utils.validation import check_is_fitted

from cavity.base import arrays
from cavity.base.argument_names import describe_way_out
from cavity.base.errors import NumericalWarning, warn
from cavity.base.types import ArrayLike, FloatArray
from cavity.sklearn.checks import validate_data
from cavity.sources.chunkwise import map_chunks

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
    """Base of the estimators: arguments that they do not know are refused by the name that users call them by."""

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

    The spread is None where neither is wanted.
    """

    def predict(self, X: ArrayLike, return_std: bool = False, return_cov: bool = False) -> Any:
        """Mean of the predictive distribution and, if wanted, its standard deviations or covariances.

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
            If both are wanted.

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
