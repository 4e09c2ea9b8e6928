"""The Gaussian posterior of the weights, and what it says about the latent values of rows."""

from dataclasses import dataclass
from functools import partial

import numpy as np

from cavity.base import arrays
from cavity.base.rows import check_moments
from cavity.blocks.merge import starts
from cavity.blocks.reading import each_block, is_stored
from cavity.ep.weights import WeightRoot

ROWS_TOGETHER = 8192  # rows that are converted, and worked on, at a time


@dataclass(frozen=True, slots=True, eq=False)
class Weights:
    """Moments of the weights; `covariance` is None where they are independent."""

    mean: np.ndarray  # (D,)
    variance: np.ndarray  # (D,)
    covariance: WeightRoot | None

    @classmethod
    def of(cls, mean, covariance):
        """Return weights that may depend on each other."""
        return cls(mean, covariance.variances(), covariance)

    def predict(self, X, offset, prepared=None):
        """Return means and variances of f = x'w + offset at checked rows X; OverflowError where they are not finite.

        `prepared` turns rows of X into those that the weights belong to, if it is given.
        """
        if self.covariance is None and (prepared is None or hasattr(X, "tocsr")):
            from cavity.models.glm import diagonal  # scipy.sparse takes a while to load

            X = X if prepared is None else prepared(X)
            mean, variance = diagonal.predict(X, self.mean, self.variance, offset)
        else:
            mean, variance = np.empty(X.shape[0]), np.empty(X.shape[0])
            with np.errstate(over="ignore", invalid="ignore"):
                blocks = X.checked_blocks(ROWS_TOGETHER) if is_stored(X) else each_block(X, ROWS_TOGETHER)
                for part, x in blocks:
                    x = x if prepared is None else prepared(x)
                    mean[part] = x @ self.mean
                    variance[part] = (x * x) @ self.variance if self.covariance is None else self.covariance.spread(x)
                mean += offset
        check_moments(mean, variance)
        return mean, variance

    def deviations(self, z):
        """Return rows of independent standard normal numbers as deviations of the weights from their mean."""
        return z * np.sqrt(self.variance) if self.covariance is None else self.covariance.colour(z)


def _with_ones(X):
    """Return a CSR array with a column of ones before the others."""
    from scipy import sparse  # takes a while to load

    n, d = X.shape
    indptr = (X.indptr + np.arange(n + 1)).astype(np.int64 if X.nnz + n > np.iinfo(np.int32).max else np.int32)
    ones = np.zeros(X.nnz + n, dtype=bool)
    ones[indptr[:-1]] = True
    data, indices = np.ones(len(ones)), np.zeros(len(ones), dtype=indptr.dtype)
    data[~ones] = X.data
    indices[~ones] = X.indices
    indices[~ones] += 1
    return sparse.csr_array((data, indices, indptr), shape=(n, d + 1))


def prepared_rows(X, centre, spread, intercept):
    """Return rows as the weights take them: divided by `spread` about `centre`, if there are any, ones put before them.

    Parameters
    ----------
    X : ndarray (n, D), scipy.sparse, or StoredRows
        Rows; sparse ones stay sparse where they are not scaled.
    centre, spread : ndarray (D,) or None
        What is subtracted from each column, and what it is then divided by.
    intercept : bool
        Whether there is a column of ones.

    Returns
    -------
    ndarray, CSR array, or StoredRows
        In memory of its own; rows in files are prepared whenever they are read.
    """
    if hasattr(X, "tocsr") and centre is None:
        return _with_ones(X) if intercept else X
    if is_stored(X):
        prepared = partial(prepared_rows, centre=centre, spread=spread, intercept=intercept)
        return X.changed(prepared, X.shape[1] + intercept, float(intercept))
    X = X.toarray() if hasattr(X, "toarray") else X
    out, first = np.empty((len(X), intercept + X.shape[1])), int(intercept)
    for start, stop in starts(len(X), ROWS_TOGETHER):  # Ctrl-C is heard in between
        columns = out[start:stop, first:]
        out[start:stop, :first] = 1.0
        arrays.copy_real(X[start:stop], columns)
        if centre is not None:
            columns -= centre
            columns /= spread
    return out
