"""Gaussian mixtures by scikit-learn's formulas, EM and its variational cousin: statistics, factors, the loop.

Rows are measured from the mean of the data, in their own units. An E-step leaves, for every component with mean m_k,

    N_k = sum_n w_n r_nk,    s_k = sum_n w_n r_nk (x_n - m_k),    S_k = sum_n w_n r_nk (x_n - m_k)(x_n - m_k)'.

Differences to the last means keep all digits wherever the data lie.
"""

from dataclasses import dataclass, replace

import numpy as np
from sklearn import exceptions

from cavity.base import arrays
from cavity.base.errors import ConvergenceWarning, warn
from cavity.base.triangles import inverse_lower
from cavity.models.mixture.data import open_data
from cavity.models.mixture.factors import is_full
from cavity.models.mixture.state import Frame, Statistics
from cavity.models.mixture.sweep import Expectation, block_rows

TYPES = ("full", "tied", "diag", "spherical")
NOTHING = 10 * np.finfo(np.float64).eps  # added to counts, so that an empty component has a mean


class UnfinishedWarning(ConvergenceWarning, exceptions.ConvergenceWarning):
    """An iteration stopped before its stopping rule was met: a warning of both libraries."""


class CollapsedError(ValueError):
    """A covariance is not positive definite."""


def warn_unfinished(reason=""):
    """Say that a fit did not converge, at the line that called it."""
    warn(
        "Best performing initialization did not converge. Try different init parameters, or increase max_iter, tol, "
        f"or check for degenerate data.{reason}",
        UnfinishedWarning,
    )


def open_unscaled(X, weight, threads, n_components, covariance_type):
    """Return checked data measured from their mean, in their own units."""
    full = is_full(covariance_type)
    data = open_data(
        X, weight, threads, block_rows=lambda _, dim: block_rows(n_components, dim, full), missing=False, shared=True
    )
    frame = Frame(data.frame.origin, np.ones(len(data.frame.origin)))
    return replace(data, frame=frame, log_scale=0.0)


@dataclass(frozen=True, slots=True)
class Moments:
    """Counts (K,), means (K, D) and covariances (the type's shape, regularised) of what components hold."""

    count: np.ndarray
    mean: np.ndarray
    covariance: np.ndarray


def moments(statistics, mean, covariance_type, reg_covar, unclaimed=0.0):
    """Return the Moments that statistics around `mean` stand for.

    A component that has lost all its rows stays where it was (in scikit-learn it moves to zero).
    """
    count = statistics.counts + NOTHING
    shift = statistics.first / count[:, None]
    if is_full(covariance_type):
        scatter = statistics.second - (count + NOTHING)[:, None, None] * shift[:, :, None] * shift[:, None, :]
        if covariance_type == "tied":
            covariance = (scatter.sum(axis=0) + unclaimed) / count.sum()
        else:
            covariance = scatter / count[:, None, None]
        covariance[..., np.arange(mean.shape[1]), np.arange(mean.shape[1])] += reg_covar
    else:
        covariance = statistics.second / count[:, None] - (1.0 + NOTHING / count)[:, None] * shift**2 + reg_covar
        if covariance_type == "spherical":
            covariance = covariance.mean(axis=1)
    return Moments(count, mean + shift, covariance)


@dataclass(frozen=True, slots=True)
class Gaussians:
    """log rho_nk = height_k - |root_k'(x_n - mean_k)|^2/2, root_k root_k' the precision, of the type's shape."""

    covariance_type: str
    mean: np.ndarray
    root: np.ndarray
    height: np.ndarray

    def expectation(self, frame):
        """Return what the kernels need."""
        k, dim = self.mean.shape
        mean, height = np.ascontiguousarray(self.mean), np.ascontiguousarray(self.height)
        if is_full(self.covariance_type):
            lower = np.ascontiguousarray(np.broadcast_to(np.swapaxes(self.root, -1, -2), (k, dim, dim)))
            return Expectation(frame, mean, lower, height)
        precision = self.root**2
        columns = precision if self.covariance_type == "diag" else precision[:, None]
        return Expectation(frame, mean, np.ascontiguousarray(np.broadcast_to(columns, (k, dim))), height)


def roots(covariance, covariance_type):
    """Return scikit-learn's Cholesky factors of the precisions: U U' is the precision, U upper triangular."""
    try:
        if covariance_type == "full":
            return np.array([_root(each) for each in covariance])
        if covariance_type == "tied":
            return _root(covariance)
        arrays.positive_array(covariance, "covariance")
    except ValueError as error:
        raise CollapsedError(
            "Fitting the mixture model failed because some components have ill-defined empirical covariance (for "
            "instance caused by singleton or collapsed samples). Try to decrease the number of components, increase "
            "reg_covar, or scale the input data."
        ) from error
    return 1.0 / np.sqrt(covariance)


def _root(covariance):
    return inverse_lower(arrays.cholesky(covariance, "covariance")).T


def roots_of_precisions(precision, covariance_type):
    """Return the same factors of precisions: Cholesky's of the matrix read backwards, read backwards."""
    if not is_full(covariance_type):
        return np.sqrt(precision)
    matrices = precision.reshape(-1, *precision.shape[-2:])
    found = [arrays.cholesky(each[::-1, ::-1], "precisions")[::-1, ::-1] for each in matrices]
    return np.array(found).reshape(precision.shape)


def precisions(root, covariance_type):
    """Return the precisions of these factors."""
    return root @ np.swapaxes(root, -1, -2) if is_full(covariance_type) else root**2


def covariances_of(root, covariance_type):
    """Return the covariances of these factors."""
    if not is_full(covariance_type):
        return 1.0 / root**2
    lower = np.array([inverse_lower(each.T) for each in root.reshape(-1, *root.shape[-2:])])
    return (lower @ np.swapaxes(lower, -1, -2)).reshape(root.shape)


def log_determinants(root, covariance_type, d):
    """Return half the log determinant of every component's precision, (K,); a number for the tied one."""
    if covariance_type == "spherical":
        return d * np.log(root)
    return np.log(root if covariance_type == "diag" else np.diagonal(root, axis1=-2, axis2=-1)).sum(axis=-1)


@dataclass(frozen=True, slots=True)
class Ascent:
    """How a fit ended."""

    state: object
    bound: float
    bounds: list
    n_iter: int
    converged: bool
    reason: str  # why it stopped early, if it did


def ascend(data, threads, step, state, *, covariance_type, reg_covar, max_iter, tol, before, report):
    """Alternate E- and M-steps until the bound changes by less than tol, or until a component collapses.

    Parameters
    ----------
    data : Data
        The rows, see `open_unscaled`.
    threads : Threads
        Who visits them.
    step : object
        The model: `gaussians(state)` for the E-step, `best(moments)` -> state, the M-step, and
        `bound(state, log_likelihood, entropy)` after it, of sums over the rows.
    state : object
        Where to start.
    covariance_type : str
        One of TYPES.
    reg_covar : float
        Added to variances.
    max_iter : int
        Most iterations.
    tol : float
        Stopping rule.
    before : float
        The bound of the state, if it is known, else -inf.
    report : callable
        Called as report(n_iter, change) after every iteration.
    """
    bounds, bound, converged, reason = [], before, False, ""
    while len(bounds) < max_iter and not converged:
        expectation, last = step.gaussians(state).expectation(data.frame), bound
        found, total = data.statistics(expectation, threads)
        statistics = Statistics.of(found, data.source.n_features, expectation.full)
        try:
            state = step.best(moments(statistics, expectation.mean, covariance_type, reg_covar))
        except CollapsedError as error:
            reason = f" It stopped before iteration {len(bounds) + 1}: {error}"
            break
        bound = step.bound(state, total, total - expectation.energy(statistics))
        bounds.append(bound)
        report(len(bounds), bound - last)
        converged = abs(bound - last) < tol
    return Ascent(state, bound, bounds, len(bounds), converged, reason)
