"""The rows a GLM is fitted to: checked design matrices and observations, and what becomes of special rows."""

import numpy as np

from cavity.base import arrays


def design_matrix(X, approximation):
    """Return X checked: an array, or CSR for the diagonal approximation."""
    if hasattr(X, "tocsr"):
        if approximation == "full":
            raise TypeError("X is sparse: use approximation='diagonal', or X.toarray() if it has few columns")
        X = X.tocsr()
        if X.shape[0] == 0 or X.shape[1] == 0:
            raise ValueError(f"X must not be empty, got shape {X.shape}")
        arrays.check_finite(arrays.check_real(X.data, "X"), "X.data")
        return X
    return arrays.data_array(X, "X", ndim=(2,))


def check_moments(mean, variance):
    """Raise OverflowError naming the first row of X whose mean, variance, or row of a covariance is not finite."""
    good = np.isfinite(mean) & (np.isfinite(variance) if variance.ndim == 1 else np.isfinite(variance).all(axis=1))
    if not good.all():
        raise OverflowError(f"the latent value of row {int(np.argmin(good))} of X leaves the range of float64")


def row_vector(value, name, n):
    """Return n finite numbers, one per row of X."""
    array = arrays.finite_array(value, name, ndim=(1,))
    if array.shape != (n,):
        raise ValueError(f"{name} must have one entry per row of X, that is {n}, got {array.shape[0]}")
    return np.ascontiguousarray(array)


def observations(likelihood, y, n):
    """Return n observations as the likelihood wants them."""
    if isinstance(y, np.ma.MaskedArray):
        raise TypeError("y must not be a masked array; drop the masked rows first")
    array = np.asarray(y)
    if array.ndim == 0 or len(array) != n:
        raise ValueError(f"y must have one entry per row of X, that is {n}, got shape {array.shape}")
    checked = likelihood.check(y)
    if len(checked) != n:
        raise ValueError(f"y must have one entry per row of X, that is {n}, got {len(checked)}")
    return np.ascontiguousarray(checked)  # kernels want rows side by side; y may be a column of a table


def row_weights(value, n, *, some=True):
    """Return n weights, one per row of X: none negative and, unless `some` is False, not all zero."""
    weights = row_vector(value, "sample_weight", n)
    if np.any(weights < 0):
        row = int(np.argmax(weights < 0))
        raise arrays.wrong("sample_weight", f"must not be negative, got {float(weights[row])!r} in row {row}")
    if some and not np.any(weights > 0):
        raise arrays.wrong("sample_weight", "must be positive in some row, got zeros only")
    return weights
