"""Gaussian mixtures by maximum likelihood, with the interface of scikit-learn.

References
----------
.. [B] Christopher Bishop, "Pattern recognition and machine learning", Springer, 2006, section 9.2.2.
"""

from __future__ import annotations

from dataclasses import KW_ONLY, dataclass
from typing import Any, Literal

import numpy as np

from cavity.base.public_objects import ArrayLike
from cavity.models.mixture.factors import is_full
from cavity.models.mixture.predictive import compute_log_sum, compute_shares
from cavity.models.mixture.scaling import Scaling
from cavity.runs import merge
from cavity.sklearn.base import check_precision, check_shape
from cavity.sklearn.mixture import em
from cavity.sklearn.mixture.base import MixtureEstimator
from cavity.sklearn.mixture.responsibilities import initialise_responsibilities, sum_rows, sum_unclaimed
from cavity.sources.read_ahead import read_rows

BLOCK_ROWS = 8192  # rows judged at a time
ROW_FUNCTIONS = {  # of log weights (rows, K)
    "predict": lambda logs: np.argmax(logs, axis=1),
    "responsibilities": compute_shares,
    "log_density": compute_log_sum,
}


@dataclass(eq=False, repr=False)
class GaussianMixture(MixtureEstimator):
    """A Gaussian mixture by maximum likelihood, by expectation maximisation [B]_: scikit-learn's, faster.

    Settings, attributes and numbers are those of ``sklearn.mixture.GaussianMixture``; what is new is `n_threads`,
    ``fit(X, sample_weight=...)``, and that no array of N x K is made.

    Parameters
    ----------
    n_components : int, default 1
        K, the number of components.
    covariance_type : {"full", "tied", "diag", "spherical"}, default "full"
        A matrix for each component, one matrix for all, or variances: of every column, or one for all columns.
    tol : float, default 1e-3
        Stopping rule: the mean log likelihood has changed by less than tol.
    reg_covar : float, default 1e-6
        Added to the variances of every component.
    max_iter : int, default 100
        Most passes over the rows; with 0, the mixture stays where it started.
    n_init : int, default 1
        Number of starts, of which the one with the largest bound counts.
    init_params : {"kmeans", "k-means++", "random", "random_from_data"}, default "kmeans"
        Responsibilities to start from: those of k-means clusters, of K rows that k-means++ or chance chose, or drawn.
    weights_init : array_like (K,), optional
        Weights to start from.
    means_init : array_like (K, D), optional
        Means to start from.
    precisions_init : array_like, optional
        Precisions to start from, of the shape of ``precisions_``.
    random_state : int, RandomState or None, default None
        Makes the starts and `sample` repeatable.
    warm_start : bool, default False
        Whether `fit` goes on from where the last one ended.
    verbose : int, default 0
        Whether to print progress; 2 prints times too.
    verbose_interval : int, default 10
        Print every so many iterations.
    n_threads : int, optional
        Threads; the result has the same bits for any number. -1 is all cores; by default as many as the process may
        use and the work is worth, at most CAVITY_NUM_THREADS.

    Attributes
    ----------
    weights_ : ndarray (K,)
        Weights of the components.
    means_ : ndarray (K, D)
        Their means.
    covariances_ : ndarray
        Their covariances: (K, D, D) full, (D, D) tied, (K, D) diag, (K,) spherical.
    precisions_, precisions_cholesky_ : ndarray
        The inverses U U' and their factors U (upper triangular), of the same shape.
    lower_bound_ : float
        Mean log likelihood of the rows, before the last iteration.
    lower_bounds_ : list of float
        The bound of every iteration.
    n_iter_ : int
        Number of iterations.
    converged_ : bool
        Whether the stopping rule was met.
    n_features_in_ : int
        Columns of X.
    feature_names_in_ : ndarray (D,)
        Their names, if X had names.

    See Also
    --------
    BayesianGaussianMixture : With priors; it finds how many components the data support.

    Notes
    -----
    All sums are over differences to the last means, so that data far from zero lose no digits. A component that has
    lost all rows stays where it is; scikit-learn moves it to zero. If a covariance ceases to be positive definite,
    which `reg_covar` prevents, the fit ends with what it had before, and warns; scikit-learn raises an error.

    References
    ----------
    .. [B] Christopher Bishop, "Pattern recognition and machine learning", Springer, 2006, section 9.2.2.

    Examples
    --------
    >>> import numpy as np
    >>> from cavity.sklearn import GaussianMixture
    >>> X = np.array([[1, 2], [1, 4], [1, 0], [10, 2], [10, 4], [10, 0]])
    >>> mixture = GaussianMixture(n_components=2, random_state=0).fit(X)
    >>> mixture.means_.round(6).tolist()
    [[10.0, 2.0], [1.0, 2.0]]
    >>> mixture.predict([[0, 0], [12, 3]]).tolist()
    [1, 0]
    """

    n_components: int = 1
    _: KW_ONLY
    covariance_type: Literal["full", "tied", "diag", "spherical"] = "full"
    tol: float = 1e-3
    reg_covar: float = 1e-6
    max_iter: int = 100
    n_init: int = 1
    init_params: Literal["kmeans", "k-means++", "random", "random_from_data"] = "kmeans"
    weights_init: ArrayLike | None = None
    means_init: ArrayLike | None = None
    precisions_init: ArrayLike | None = None
    random_state: Any = None
    warm_start: bool = False
    verbose: int = 0
    verbose_interval: int = 10
    n_threads: int | None = None

    def _fit_rows(self, X, weight, random_state, threads):
        data = em.open_unscaled(X, weight, threads, self.n_components, self.covariance_type)
        origin, started = data.scaling.origin, self._started()
        options = dict(reg_covar=self.reg_covar, max_iter=self.max_iter, tol=self.tol)

        def climb(report):
            start = self._estimates(origin) if started else self._first(data, X, weight, random_state)
            before = self.lower_bound_ if started else -np.inf
            done = em.maximise(data, threads, start, **options, before=before, report=report)
            return done.bound, done.converged, done

        bound, converged, done = self._best_start(climb, started)
        estimates = done.estimates
        self._set_mixture(X.dtype, estimates.weights, origin + estimates.mean, estimates.covariance, estimates.root)
        self.n_iter_, self.converged_ = len(done.bounds), converged
        self.lower_bound_, self.lower_bounds_ = bound, done.bounds
        return done.reason

    def _first(self, data, X, weight, random_state):
        """Return the first estimates: what was given, the rest from initial responsibilities."""
        weights, mean, root = self._check_starts(data.scaling.origin)
        covariance = None if root is None else em.covariances_of(root, self.covariance_type)
        if any(value is None for value in (weights, mean, root)):
            resp = initialise_responsibilities(self.init_params, X, self.n_components, weight, random_state)
            centre, sums = sum_rows(data, resp, is_full(self.covariance_type))
            rest = sum_unclaimed(data, resp) if self.covariance_type == "tied" else 0.0
            moments = em.estimate_moments(sums, centre, self.covariance_type, self.reg_covar, rest)
            weights = moments.count / data.n_samples if weights is None else weights
            mean = moments.mean if mean is None else mean
            if root is None:
                covariance, root = moments.covariance, em.factor_precisions(moments.covariance, self.covariance_type)
        return em.Estimates(self.covariance_type, weights, mean, covariance, root)

    def _check_starts(self, origin):
        """Return the given weights, means (from the origin) and factors of precisions, each None if it is not."""
        weights, mean, root = self.weights_init, self.means_init, self.precisions_init
        if weights is not None:
            weights = check_shape(weights, "weights_init", (self.n_components,), "weights")
            if np.any(weights < 0) or np.any(weights > 1):
                raise ValueError(
                    f"The parameter 'weights' should be in the range [0, 1], but got min value {np.min(weights):.5f}, "
                    f"max value {np.max(weights):.5f}"
                )
            if not np.isclose(np.sum(weights), 1.0, rtol=1e-6):  # of float32
                raise ValueError(
                    f"The parameter 'weights' should be normalized, but got sum(weights) = {np.sum(weights):.5f}"
                )
        if mean is not None:
            mean = check_shape(mean, "means_init", (self.n_components, self.n_features_in_), "means") - origin
        if root is not None:
            precision = check_precision(root, self.covariance_type, self._shapes(), "precision")
            root = em.factor_given_precisions(precision, self.covariance_type)
        return weights, mean, root

    def _estimates(self, origin):
        """Return the fitted estimates, means measured from an origin."""
        weights, means, root = (
            array.astype(np.float64) for array in (self.weights_, self.means_, self.precisions_cholesky_)
        )
        return em.Estimates(self.covariance_type, weights, means - origin, self.covariances_, root)

    def _judge(self, X, criterion):
        scaling = Scaling(np.mean(self.means_, axis=0, dtype=np.float64), np.ones(X.shape[1]))
        e_step = self._estimates(scaling.origin).e_step(scaling)
        parts = [
            ROW_FUNCTIONS[criterion](e_step.compute_log_weights(read_rows(X, slice(*span))))
            for span in merge.split_rows(len(X), BLOCK_ROWS)
        ]
        return np.concatenate(parts)

    def _drawn(self, n_samples, rng):
        counts = rng.multinomial(n_samples, np.asarray(self.weights_, dtype=np.float64))
        covariances = self.covariances_
        if self.covariance_type == "tied":
            covariances = np.broadcast_to(covariances, (len(counts), *covariances.shape))
        parts = [
            rng.multivariate_normal(mean, covariance, int(count))
            if np.ndim(covariance) == 2
            else mean + rng.standard_normal(size=(count, len(mean))) * np.sqrt(covariance)
            for mean, covariance, count in zip(self.means_, covariances, counts, strict=True)
        ]
        return np.vstack(parts), np.repeat(np.arange(len(counts)), counts)

    def _n_parameters(self):
        """Return the number of free parameters."""
        k, d = self.means_.shape
        covariances = {"full": k * d * (d + 1) // 2, "tied": d * (d + 1) // 2, "diag": k * d, "spherical": k}
        return covariances[self.covariance_type] + k * d + k - 1

    def bic(self, X: ArrayLike) -> float:
        """Bayesian information criterion of the mixture for rows.

        Parameters
        ----------
        X : array_like, shape (N, D)
            The rows.

        Returns
        -------
        float
            Minus twice the log likelihood, and log N for each parameter; the lower the better.
        """
        log_density = self.score_samples(X)
        return float(-2.0 * np.sum(log_density) + self._n_parameters() * np.log(len(log_density)))

    def aic(self, X: ArrayLike) -> float:
        """Akaike information criterion of the mixture for rows.

        Parameters
        ----------
        X : array_like, shape (N, D)
            The rows.

        Returns
        -------
        float
            Minus twice the log likelihood, and 2 for each parameter; the lower the better.
        """
        return float(-2.0 * np.sum(self.score_samples(X)) + 2.0 * self._n_parameters())
