"""What both Gaussian mixtures share: settings, weights, the best of several starts, and how rows are judged."""

from __future__ import annotations

import time
from typing import Any, Self

import numpy as np
from sklearn.base import DensityMixin
from sklearn.utils import check_random_state
from sklearn.utils.validation import check_is_fitted

from cavity.base import arrays
from cavity.base.public_objects import ArrayLike, FloatArray
from cavity.runs.executors import Threads, resolve_n_threads
from cavity.sklearn.base import FLOAT_DTYPES, Estimator, drop_zero_weights, predict_by_chunks, validate_data
from cavity.sklearn.mixture.em import COVARIANCE_TYPES, precisions_of, warn_unfinished
from cavity.sklearn.mixture.responsibilities import INIT_METHODS


class VerboseMessages:
    """What verbose fits print."""

    def __init__(self, verbose, interval):
        self._verbose, self._interval = int(verbose), interval
        self._begun = self._last = time.perf_counter()

    def begin(self, init, bound):
        """Say which initialization begins, from such a bound."""
        self._begun = self._last = time.perf_counter()
        self._bound = bound
        if self._verbose:
            print(f"Initialization {init}")

    def step(self, n_iter, bound):
        """Say that an iteration is done, and by how much the bound changed."""
        change, self._bound = bound - self._bound, bound
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


class MixtureEstimator(DensityMixin, Estimator):
    """Base of the mixtures.

    A subclass has `_fit_rows(X, weight, random_state, threads)`, which sets the fitted attributes and returns why the
    fit ended early, if it did; `_judge(X, criterion)` for the criteria "predict", "responsibilities" and "log_density";
    and `_drawn(n, random_state)`, rows with their components.
    """

    # ------------------------------------------------------------------------------------------ fitting

    def fit(self, X: ArrayLike, y: None = None, sample_weight: ArrayLike | None = None) -> Self:
        """Fit the mixture to rows.

        Parameters
        ----------
        X : array_like, shape (N, D)
            The rows; float64 and float32 are not copied as a whole.
        y : None
            Not used; there for pipelines.
        sample_weight : array_like, shape (N,), optional
            A row of weight w counts as w copies; 0 leaves it out.

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
        X, weight = self._checked_rows(X, sample_weight, least=self.n_components, ensure_min_samples=2)
        with Threads(resolve_n_threads(self.n_threads)) as threads:
            reason = self._fit_rows(X, weight, check_random_state(self.random_state), threads)
        if not self.converged_ and self.max_iter > 0:
            warn_unfinished(reason)
        return self

    def fit_predict(self, X: ArrayLike, y: None = None, sample_weight: ArrayLike | None = None) -> FloatArray:
        """Fit the mixture to rows, and return the most probable component of each.

        Parameters
        ----------
        X : array_like, shape (N, D)
            The rows.
        y : None
            Not used; there for pipelines.
        sample_weight : array_like, shape (N,), optional
            A row of weight w counts as w copies; 0 leaves it out.

        Returns
        -------
        ndarray, shape (N,)
            Indices of components, as `predict` gives them.
        """
        return self.fit(X, sample_weight=sample_weight).predict(X)

    def _takes_gaps(self):
        """Return whether rows may hold nan."""
        return False

    def _check_settings(self):
        """Raise ValueError or TypeError for a setting outside its domain."""
        arrays.check_choice(self.covariance_type, "covariance_type", COVARIANCE_TYPES)
        arrays.check_choice(self.init_params, "init_params", INIT_METHODS)
        resolve_n_threads(self.n_threads)
        for name in ("n_components", "max_iter", "n_init", "verbose_interval"):
            arrays.check_integer(getattr(self, name), name, low=0 if name == "max_iter" else 1)
        for name in ("tol", "reg_covar"):
            arrays.check_number(getattr(self, name), name, low=0, closed_low=True)

    def _checked_rows(self, X, sample_weight, least, **options):
        """Return X and weights (or None) without the rows of weight zero, after the settings; `least` rows or more."""
        self._check_settings()
        gaps = "allow-nan" if self._takes_gaps() else True
        X, weight = drop_zero_weights(
            sample_weight, validate_data(self, X, dtype=FLOAT_DTYPES, ensure_all_finite=gaps, **options)
        )
        if len(X) < least:
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
        fitted_shape, shape = self.precisions_cholesky_.shape, self._shapes()[self.covariance_type]
        if self.means_.shape != (self.n_components, self.n_features_in_) or fitted_shape != shape:
            raise ValueError(
                f"warm_start goes on from the last fit, which had means of shape {self.means_.shape} and covariances "
                f"of shape {fitted_shape}; now they are {(self.n_components, self.n_features_in_)} and {shape}: use "
                "warm_start=False"
            )
        return True

    def _shapes(self):
        """Return the shape of covariances, precisions and their factors, by type."""
        k, d = self.n_components, self.n_features_in_
        return {"full": (k, d, d), "tied": (d, d), "diag": (k, d), "spherical": (k,)}

    def _set_mixture(self, dtype, weights, means, covariances, root):
        """Set the attributes of a mixture whose precisions have the factors `root`."""
        converted = (np.asarray(array).astype(dtype) for array in (weights, means, covariances, root))
        self.weights_, self.means_, self.covariances_, self.precisions_cholesky_ = converted
        self.precisions_ = precisions_of(self.precisions_cholesky_, self.covariance_type)

    def _best_start(self, climb, started):
        """Return the best of `n_init` fits by climb(report), which returns its bound, whether it converged, and itself.

        It calls report(n_iter, bound) after each iteration. A fit that goes on from the last one has but one start.
        """
        progress = VerboseMessages(self.verbose, self.verbose_interval)
        best = None
        for init in range(1 if started else self.n_init):
            progress.begin(init, self.lower_bound_ if started else -np.inf)
            done = climb(progress.step)
            progress.end(*done[:2])
            best = done if best is None or done[0] > best[0] else best
        return best

    # ------------------------------------------------------------------------------------------ judging

    @predict_by_chunks(dtype=lambda self: np.intp)
    def predict(self, X: ArrayLike) -> Any:
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

    @predict_by_chunks(lambda self: (self.n_components,))
    def predict_proba(self, X: ArrayLike) -> FloatArray:
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

    @predict_by_chunks()
    def score_samples(self, X: ArrayLike) -> FloatArray:
        """Log density of each row; of a Bayesian mixture the posterior predictive one, of Student-t densities.

        Parameters
        ----------
        X : array_like, shape (N, D)
            The rows.

        Returns
        -------
        ndarray, shape (N,)
            The log densities, which integrate to one.
        """
        return self._judged(X, "log_density")

    def score(self, X: ArrayLike, y: None = None) -> float:
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

    def _judged(self, X, criterion):
        """Return what a subclass computes of new rows, checked, in their precision."""
        X = self._new_rows(X, FLOAT_DTYPES, ensure_all_finite="allow-nan" if self._takes_gaps() else True)
        values = self._judge(X, criterion)
        return values.astype(X.dtype, copy=False) if values.dtype.kind == "f" else values

    def sample(self, n_samples: int = 1) -> tuple[FloatArray, FloatArray]:
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
