"""The rows a GLM is fitted to: checked design matrices and observations, and what becomes of special rows."""

from dataclasses import dataclass, replace

import numpy as np

from . import _arrays

MOST_COPIES = 1e7  # of rows, all together, in ADF


@dataclass(frozen=True, slots=True)
class Data:
    """Checked data: design matrix, observations, offsets, weights, the mask of rows used (None for all), idle rows."""

    X: object
    y: np.ndarray
    offset: np.ndarray | None
    weights: np.ndarray | None
    used: np.ndarray | None
    idle: "Idle | None"
    spare: "Spare | None"

    @property
    def n_rows(self):
        """Rows given, whether used or not."""
        return len(self.y) if self.used is None else len(self.used)

    def scatter(self, values, others=None):
        """Put values of the used rows into place; `others` fill the rest."""
        if self.used is None or values is None:
            return values
        full = np.full(len(self.used), np.nan) if others is None else others.copy()
        full[self.used] = values
        return full

    def repeated(self):
        """Rows of weight w > 1 repeated, whole ones first, and the weights that remain (None if all are 1)."""
        if self.weights is None:
            return self, None
        times = np.ceil(self.weights)
        if np.sum(times) > MOST_COPIES:
            raise ValueError(
                f"ADF takes in a row of weight w that many times; the weights ask for {np.sum(times):.3g} rows, "
                f"more than {MOST_COPIES:.0e}: use method='ep'"
            )
        times = times.astype(np.intp)
        index = np.repeat(np.arange(len(times)), times)
        weights = np.ones(len(index))
        weights[np.cumsum(times) - 1] = self.weights - (times - 1)
        offset = None if self.offset is None else self.offset[index]
        return replace(self, X=self.X[index], y=self.y[index], offset=offset), weights


@dataclass(frozen=True, slots=True)
class Idle:
    """Rows whose f does not depend on the weights: their log likelihoods (nan elsewhere) and the weighted sum."""

    log_p: np.ndarray
    total: float


@dataclass(frozen=True, slots=True)
class Spare:
    """Rows of weight zero: which they are, and their data."""

    mask: np.ndarray
    X: object
    y: np.ndarray
    offset: np.ndarray | None


def design_matrix(X, approximation):
    """Return X checked: an array, or CSR for the diagonal approximation."""
    if hasattr(X, "tocsr"):
        if approximation == "full":
            raise TypeError("X is sparse: use approximation='diagonal', or X.toarray() if it has few columns")
        X = X.tocsr()
        if X.shape[0] == 0 or X.shape[1] == 0:
            raise ValueError(f"X must not be empty, got shape {X.shape}")
        _arrays.check_finite(_arrays.check_real(X.data, "X"), "X.data")
        return X
    return _arrays.data_array(X, "X", ndim=(2,))


def check_moments(mean, variance):
    """Raise OverflowError naming the first row of X whose mean, variance, or row of a covariance is not finite."""
    good = np.isfinite(mean) & (np.isfinite(variance) if variance.ndim == 1 else np.isfinite(variance).all(axis=1))
    if not good.all():
        raise OverflowError(f"the latent value of row {int(np.argmin(good))} of X leaves the range of float64")


def row_vector(value, name, n):
    """Return n finite numbers, one per row of X."""
    array = _arrays.finite_array(value, name, ndim=(1,))
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
        raise ValueError(f"sample_weight must not be negative, got {float(weights[row])!r} in row {row}")
    if some and not np.any(weights > 0):
        raise ValueError("sample_weight must be positive in some row, got zeros only")
    return weights
