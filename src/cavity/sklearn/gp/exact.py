"""Gaussian-process regression by the Cholesky factor of K + noise, one for all targets.

The noise may be zero, which the sites of `cavity.GaussianProcess` cannot say. Large matrices are shared by as many
threads as the environment sets.

References
----------
.. [RW] C. E. Rasmussen and C. K. I. Williams, "Gaussian Processes for Machine Learning", MIT Press, 2006.
"""

from dataclasses import dataclass

import numpy as np
from scipy.linalg import lapack

from cavity.base import arrays
from cavity.base.constants import LOG_2PI
from cavity.base.errors import NotPositiveDefiniteError
from cavity.covariances.program import get_program
from cavity.covariances.slots import compute_gradient
from cavity.linalg import tiled
from cavity.models.gp.evidence import MANY_ROWS_ADVICE
from cavity.runs.executors import Threads, resolve_n_threads


@dataclass(frozen=True, slots=True, eq=False)
class Regression:
    """The fit of N rows with T targets: K + noise = L L', and alpha = (K + noise)^-1 Y."""

    factor: np.ndarray  # (N, N) lower: L
    dual: np.ndarray  # (N, T): alpha
    log_evidence: float  # the sum over the targets [RW]_ (eq. 5.8)

    def inverse_diagonal(self):
        """Return the diagonal of (K + noise)^-1, (N,)."""
        inverse = self.factor.copy()  # then L^-1 (N, N)
        with Threads(resolve_n_threads(None)) as threads:
            tiled.invert(inverse, threads)
        return np.einsum("ij,ij->j", inverse, inverse)

    def gradient(self, covariance, X):
        """Return the gradient of the log evidence in the logs of the free parameters; it takes the factor's memory."""
        weights, n_targets = self.factor, self.dual.shape[1]
        with Threads(resolve_n_threads(None)) as threads:
            tiled.invert(weights, threads)
            tiled.square(weights, threads)  # (L L')^-1 (N, N), the lower triangle
            weights *= -0.5 * n_targets
            # (alpha alpha' - T (L L')^-1)/2, (N, N) [RW]_ (eq. 5.9)
            tiled.add_squares(weights, np.sqrt(0.5) * self.dual.T, self.dual.T[:0], threads)
            return compute_gradient(covariance, X, weights, None, threads)


def allocate_matrix(n):
    """Return the matrix of n rows that `regress` needs; MemoryError if it is too large."""
    return arrays.allocate_matrix((n, n), "the covariance matrix", MANY_ROWS_ADVICE)


def regress(covariance, X, noise, Y, buffer):
    """Return the `Regression` of targets Y (N, T) on rows X with noise variances (N,) or one for all.

    The factor goes to `buffer` (N, N). Raises NotPositiveDefiniteError if rounding makes K + noise indefinite,
    OverflowError if the targets are too large.
    """
    with Threads(resolve_n_threads(None)) as threads:
        get_program(covariance, X.shape[1]).gram(X, buffer, threads)
        buffer.reshape(-1)[:: len(X) + 1] += noise
        failed = tiled.factor(buffer, threads)  # K + noise = L L', (N, N), L in its place
    if failed:
        raise NotPositiveDefiniteError(f"the Cholesky factorisation of the kernel fails at row {failed - 1}")
    tiled.clear(buffer)
    dual, _ = lapack.dpotrs(buffer.T, Y, lower=0)  # alpha = (L L')^-1 Y, (N, T)
    with np.errstate(over="ignore", invalid="ignore"):
        fit = -0.5 * float(np.sum(Y * dual))
    if not np.isfinite(fit):
        raise OverflowError("the log evidence leaves the range of float64; rescale y, for example by normalize_y=True")
    height = float(np.sum(np.log(np.diagonal(buffer)))) + 0.5 * len(X) * LOG_2PI
    return Regression(buffer, dual, fit - Y.shape[1] * height)


def solve_cross(factor, cross):
    """Return K L^-T for covariances of others with the N rows, (n, N), which it takes: its square is what is known."""
    with Threads(resolve_n_threads(None)) as threads:
        return tiled.solve(factor, cross, threads)
