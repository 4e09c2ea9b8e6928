"""Expectation maximisation of Gaussian mixtures by scikit-learn's formulas: sums, estimates, the loop.

Rows are measured from the mean of the data, in their own units. An E-step leaves, for every component with mean m_k,

    N_k = sum_n w_n r_nk,    s_k = sum_n w_n r_nk (x_n - m_k),    S_k = sum_n w_n r_nk (x_n - m_k)(x_n - m_k)'.

Differences to the last means keep all digits wherever the data lie.

References
----------
.. [B] Christopher M. Bishop, "Pattern Recognition and Machine Learning", Springer, 2006, section 9.2.2.
"""

from dataclasses import dataclass, replace

import numpy as np

from cavity.base import arrays
from cavity.base.constants import LOG_2PI
from cavity.base.errors import warn
from cavity.base.triangles import invert_lower
from cavity.models.mixture.e_step import EStep
from cavity.models.mixture.factors import is_full
from cavity.models.mixture.rows import open_rows
from cavity.models.mixture.scaling import Scaling
from cavity.sklearn.base import UnfinishedWarning

COVARIANCE_TYPES = ("full", "tied", "diag", "spherical")
EMPTY_COUNT = 10 * np.finfo(np.float64).eps  # added to counts, so that an empty component has a mean


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
    data = open_rows(X, weight, threads, n_components, covariance_type)
    scaling = Scaling(data.scaling.origin, np.ones(data.source.n_features))
    return replace(data, scaling=scaling, log_scale=0.0)


@dataclass(frozen=True, slots=True)
class Moments:
    """Counts (K,), means (K, D) and covariances (the type's shape, regularised) of what components hold."""

    count: np.ndarray
    mean: np.ndarray
    covariance: np.ndarray


def estimate_moments(sums, mean, covariance_type, reg_covar, unclaimed=0.0):
    """Return the Moments that sums around `mean` stand for.

    A component that has lost all its rows stays where it was (in scikit-learn it moves to zero).
    """
    count = sums.counts + EMPTY_COUNT
    shift = sums.first / count[:, None]
    if is_full(covariance_type):
        scatter = sums.second - (count + EMPTY_COUNT)[:, None, None] * shift[:, :, None] * shift[:, None, :]
        if covariance_type == "tied":
            covariance = (scatter.sum(axis=0) + unclaimed) / count.sum()
        else:
            covariance = scatter / count[:, None, None]
        covariance[..., np.arange(mean.shape[1]), np.arange(mean.shape[1])] += reg_covar
    else:
        covariance = sums.second / count[:, None] - (1.0 + EMPTY_COUNT / count)[:, None] * shift**2 + reg_covar
        if covariance_type == "spherical":
            covariance = covariance.mean(axis=1)
    return Moments(count, mean + shift, covariance)


@dataclass(frozen=True, slots=True)
class Estimates:
    """Point estimates of a mixture: means are measured from the origin, `root` is as `factor_precisions` returns it."""

    covariance_type: str
    weights: np.ndarray
    mean: np.ndarray
    covariance: np.ndarray
    root: np.ndarray

    @classmethod
    def of(cls, moments, covariance_type):
        """Return the estimates of the largest likelihood [B]_, eqs. (9.24)-(9.26): the M-step."""
        count, mean, covariance = moments.count, moments.mean, moments.covariance
        return cls(
            covariance_type, count / np.sum(count), mean, covariance, factor_precisions(covariance, covariance_type)
        )

    def e_step(self, scaling):
        """Return the E-step: log pi_k + log N(x_n; mean_k, covariance_k) is height_k - |root_k'(x_n - mean_k)|^2/2."""
        k, dim = self.mean.shape
        with np.errstate(divide="ignore"):  # a given weight may be zero
            height = np.log(self.weights) - 0.5 * dim * LOG_2PI
        height = height + self._log_determinants()
        mean, root = np.ascontiguousarray(self.mean), self.root
        if is_full(self.covariance_type):
            lower = np.ascontiguousarray(np.broadcast_to(np.swapaxes(root, -1, -2), (k, dim, dim)))
            return EStep(scaling, mean, lower, height)
        precision = root**2 if self.covariance_type == "diag" else root[:, None] ** 2
        return EStep(scaling, mean, np.ascontiguousarray(np.broadcast_to(precision, (k, dim))), height)

    def _log_determinants(self):
        """Return half the log determinant of every component's precision, (K,); a number for the tied one."""
        if self.covariance_type == "spherical":
            return self.mean.shape[1] * np.log(self.root)
        diagonal = self.root if self.covariance_type == "diag" else np.diagonal(self.root, axis1=-2, axis2=-1)
        return np.log(diagonal).sum(axis=-1)


def factor_precisions(covariance, covariance_type):
    """Return scikit-learn's Cholesky factors of the precisions: U U' is the precision, U upper triangular."""
    try:
        if covariance_type == "full":
            return np.array([_factor_precision(matrix) for matrix in covariance])
        if covariance_type == "tied":
            return _factor_precision(covariance)
        arrays.check_positive_array(covariance, "covariance")
    except ValueError as error:
        raise CollapsedError(
            "Fitting the mixture model failed because some components have ill-defined empirical covariance (for "
            "instance caused by singleton or collapsed samples). Try to decrease the number of components, increase "
            "reg_covar, or scale the input data."
        ) from error
    return 1.0 / np.sqrt(covariance)


def _factor_precision(covariance):
    return invert_lower(arrays.cholesky(covariance, "covariance")).T


def factor_given_precisions(precision, covariance_type):
    """Return scikit-learn's factors of precisions: Cholesky's of the matrix read backwards, read backwards."""
    if not is_full(covariance_type):
        return np.sqrt(precision)
    matrices = precision.reshape(-1, *precision.shape[-2:])
    factors = [arrays.cholesky(matrix[::-1, ::-1], "precisions")[::-1, ::-1] for matrix in matrices]
    return np.array(factors).reshape(precision.shape)


def precisions_of(root, covariance_type):
    """Return the precisions of these factors."""
    return root @ np.swapaxes(root, -1, -2) if is_full(covariance_type) else root**2


def covariances_of(root, covariance_type):
    """Return the covariances of these factors."""
    if not is_full(covariance_type):
        return 1.0 / root**2
    lower = np.array([invert_lower(factor.T) for factor in root.reshape(-1, *root.shape[-2:])])
    return (lower @ np.swapaxes(lower, -1, -2)).reshape(root.shape)


@dataclass(frozen=True, slots=True)
class EMFit:
    """How expectation maximisation ended: `bounds` are the mean log likelihoods before every iteration."""

    estimates: Estimates
    bound: float
    bounds: list
    converged: bool
    reason: str  # why it stopped early, if it did


def maximise(data, threads, estimates, *, reg_covar, max_iter, tol, before, report):
    """Alternate E- and M-steps until the bound changes by less than tol, or until a component collapses.

    Parameters
    ----------
    data : MixtureRows
        The rows, see `open_unscaled`.
    threads : Threads
        That visit them.
    estimates : Estimates
        Where to start.
    reg_covar : float
        Added to variances.
    max_iter : int
        Most iterations.
    tol : float
        Stopping rule.
    before : float
        The bound of the estimates, if it is known, else -inf.
    report : callable
        Called as report(n_iter, bound) after every iteration.
    """
    bounds, bound, converged, reason = [], before, False, ""
    kind = estimates.covariance_type
    while len(bounds) < max_iter and not converged:
        e_step, last = estimates.e_step(data.scaling), bound
        sums, total = data.sums(e_step, threads)
        try:
            estimates = Estimates.of(estimate_moments(sums, e_step.mean, kind, reg_covar), kind)
        except CollapsedError as error:
            reason = f" It stopped before iteration {len(bounds) + 1}: {error}"
            break
        bound = total / data.n_samples
        bounds.append(bound)
        report(len(bounds), bound)
        converged = abs(bound - last) < tol
    return EMFit(estimates, bound, bounds, converged, reason)
