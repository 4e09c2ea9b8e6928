"""What both Gaussian mixtures share: settings, weights, the best of several starts, and how rows are judged."""

import time

import numpy as np
from sklearn.base import BaseEstimator, DensityMixin
from sklearn.utils import check_random_state
from sklearn.utils.validation import check_is_fitted, validate_data

from cavity.base import arrays
from cavity.blocks.executors import Threads
from cavity.sklearn.checks import NamesArguments, sample_weights
from cavity.sklearn.mixture.em import TYPES, warn_unfinished
from cavity.sklearn.mixture.responsibilities import METHODS

FLOATS = [np.float64, np.float32]  # kept as they are, others become float64


class Progress:
    """What verbose fits print."""

    def __init__(self, verbose, interval):
        self._verbose, self._interval = int(verbose), interval
        self._begun = self._last = time.perf_counter()

    def begin(self, init):
        """Say which initialization begins."""
        self._begun = self._last = time.perf_counter()
        if self._verbose:
            print(f"Initialization {init}")

    def step(self, n_iter, change):
        """Say that an iteration is done, and by how much the bound changed."""
        if self._verbose and n_iter % self._interval == 0:
            now = time.perf_counter()
            more = f"\t time {now - self._last:.5f}s\t change {change:.5f}" if self._verbose > 1 else ""
            print(f"  Iteration {n_iter}{more}")
            self._last = now

    def end(self, bound, converged):
        """Say how the initialization ended."""
        if self._verbose:
            more = f" time {time.perf_counter() - self._begun:.5f}s\t bound {bound:.5f}" if self._verbose > 1 else ""
            print(f"Initialization {'converged' if converged else 'did not converge'}.{more}")


class Mixture(DensityMixin, NamesArguments, BaseEstimator):
    """Base of the mixtures.

    A subclass has `_fit_rows(X, weight, random_state, threads)`, which sets the fitted attributes and returns why the
    fit ended early, if it did; `_judge(X, what)`, where `what` is "predict", "responsibilities" or "log_density"; and
    `_drawn(n, random_state)`, rows with their components.
    """

    # ------------------------------------------------------------------------------------------ fitting

    def fit(self, X, y=None, sample_weight=None):
        """Fit the mixture to rows.

        Parameters
        ----------
        X : array_like, shape (N, D)
            The rows; float64 and float32 are not copied as a whole.
        y : None
            Not used; there for pipelines.
        sample_weight : array_like, shape (N,), optional
            How many times a row counts, zero or more; a whole number is the same as that many copies of the row.

        Returns
        -------
        self : object
            The fitted estimator.

        Raises
        ------
        ValueError, TypeError
            For data or settings that make no sense, naming them, before any work; and if a covariance is not positive
            definite where the fit starts.

        Warns
        -----
        ConvergenceWarning
            If the stopping rule was not met; both scikit-learn's and `cavity.ConvergenceWarning`.
        """
        self._fit(X, sample_weight)
        return self

    def fit_predict(self, X, y=None, sample_weight=None):
        """Fit the mixture to rows, and return the most probable component of each.

        Parameters
        ----------
        X : array_like, shape (N, D)
            The rows.
        y : None
            Not used; there for pipelines.
        sample_weight : array_like, shape (N,), optional
            As in `fit`.

        Returns
        -------
        ndarray, shape (N,)
            Indices of components, as `predict` gives them.
        """
        self._fit(X, sample_weight)
        return self.predict(X)

    def _fit(self, X, sample_weight):
        self._check_settings()
        X = validate_data(self, X, dtype=FLOATS, ensure_min_samples=2)
        X, weight = self._weighted_rows(X, sample_weight)
        with Threads(self.n_threads) as threads:
            reason = self._fit_rows(X, weight, check_random_state(self.random_state), threads)
        if not self.converged_ and self.max_iter > 0:
            warn_unfinished(reason)

    def _check_settings(self):
        """Raise ValueError or TypeError for a setting outside its domain."""
        arrays.choice(self.covariance_type, "covariance_type", TYPES)
        arrays.choice(self.init_params, "init_params", METHODS)
        for name, low in (("n_components", 1), ("max_iter", 0), ("n_init", 1), ("verbose_interval", 1)):
            arrays.integer(getattr(self, name), name, low=low)
        arrays.integer(self.n_threads, "n_threads", low=1)
        for name in ("tol", "reg_covar"):
            arrays.number(getattr(self, name), name, low=0, closed_low=True)

    def _weighted_rows(self, X, sample_weight, least=None):
        """Return X and weights (or None) without the rows of weight zero; at least K rows, if not said otherwise."""
        weight = None
        if sample_weight is not None:
            weight = sample_weights(sample_weight, len(X))
            kept = weight > 0
            X, weight = (X, weight) if kept.all() else (X[kept], weight[kept])
        if len(X) < (self.n_components if least is None else least):
            raise ValueError(
                f"Expected n_samples >= n_components but got n_components = {self.n_components}, n_samples = {len(X)}"
            )
        return X, weight

    def __sklearn_is_fitted__(self):
        return hasattr(self, "means_")  # a fit that failed may have left the priors

    def _started(self):
        """Return whether the fit goes on from the last one."""
        if not (self.warm_start and hasattr(self, "converged_")):
            return False
        known, wanted = self.precisions_cholesky_.shape, self._shapes()[self.covariance_type]
        if self.means_.shape != (self.n_components, self.n_features_in_) or known != wanted:
            raise ValueError(
                f"warm_start goes on from the last fit, which had means of shape {self.means_.shape} and covariances "
                f"of shape {known}; now they are {(self.n_components, self.n_features_in_)} and {wanted}: use "
                "warm_start=False"
            )
        return True

    def _shapes(self):
        """Return the shape of covariances, precisions and their factors, by type."""
        k, d = self.n_components, self.n_features_in_
        return {"full": (k, d, d), "tied": (d, d), "diag": (k, d), "spherical": (k,)}

    def _best_start(self, climb, started):
        """Return the best of `n_init` fits by climb(report), which returns the bound, whether it converged, and more.

        A fit that goes on from the last one has but one start.
        """
        progress = Progress(self.verbose, self.verbose_interval)
        best = None
        for init in range(1 if started else self.n_init):
            progress.begin(init)
            done = climb(progress.step)
            progress.end(*done[:2])
            best = done if best is None or done[0] > best[0] else best
        return best

    # ------------------------------------------------------------------------------------------ judging

    def predict(self, X):
        """Most probable component of each row.

        Parameters
        ----------
        X : array_like, shape (N, D)
            The rows.

        Returns
        -------
        ndarray, shape (N,)
            Indices of components.
        """
        return self._judged(X, "predict")

    def predict_proba(self, X):
        """Probability of each component for each row.

        Parameters
        ----------
        X : array_like, shape (N, D)
            The rows.

        Returns
        -------
        ndarray, shape (N, K)
            The probabilities; rows sum to one.
        """
        return self._judged(X, "responsibilities")

    def score_samples(self, X):
        """Log density of each row.

        Parameters
        ----------
        X : array_like, shape (N, D)
            The rows.

        Returns
        -------
        ndarray, shape (N,)
            The log densities.
        """
        return self._judged(X, "log_density")

    def score(self, X, y=None):
        """Mean log density of the rows.

        Parameters
        ----------
        X : array_like, shape (N, D)
            The rows.
        y : None
            Not used; there for pipelines.

        Returns
        -------
        float
            The mean of `score_samples`.
        """
        return float(np.mean(self.score_samples(X)))

    def _judged(self, X, what):
        """Return what a subclass says about new rows, checked, in their precision."""
        check_is_fitted(self)
        X = validate_data(self, X, dtype=FLOATS, reset=False)
        values = self._judge(X, what)
        return values.astype(X.dtype, copy=False) if values.dtype.kind == "f" else values

    def sample(self, n_samples=1):
        """Draw rows, by `random_state`: of the estimates, or of the posterior predictive distribution.

        Parameters
        ----------
        n_samples : int, default 1
            How many.

        Returns
        -------
        X : ndarray, shape (n_samples, D)
            The rows, sorted by component.
        y : ndarray, shape (n_samples,)
            Their components.
        """
        check_is_fitted(self)
        if n_samples < 1:
            raise ValueError(f"Invalid value for 'n_samples': {n_samples}; at least one row can be drawn")
        return self._drawn(n_samples, check_random_state(self.random_state))
