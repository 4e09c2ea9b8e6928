"""Checks that several estimators share; like all others they word their messages through `cavity.base.arrays`."""

import inspect

import numpy as np
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
