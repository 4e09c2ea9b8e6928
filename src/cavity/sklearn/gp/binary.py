"""Gaussian process classification of two classes, what the classifier of several is made of."""

from dataclasses import dataclass
from typing import Any

import numpy as np

from cavity.base.errors import warn
from cavity.base.rows import Rows
from cavity.ep.options import Options
from cavity.likelihoods import Logit, Probit
from cavity.models.gp.evidence import Evidence
from cavity.models.gp.model import GaussianProcess
from cavity.models.gp.posterior import build_posterior, compute_latent_means
from cavity.models.latent_posterior import AUTO_SCHEDULE
from cavity.models.process.model import add_prior_means
from cavity.models.process.settings import Settings
from cavity.models.search import SEARCH_TOL, choose_search_tol, climb, is_flat
from cavity.runs.executors import Threads, single_blas
from cavity.sklearn.base import Classifier, UnfinishedWarning, compute_log_probabilities
from cavity.sklearn.gp import kernels
from cavity.sklearn.gp.learner import Learner

LIKELIHOOD_BY_NAME = {"logit": Logit(), "probit": Probit()}
MIN_SEARCH_GAIN = 2.2e-9  # of the evidence, by a step, at which the search ends, as scikit-learn's does
EP_TOL = 1e-8  # stopping rule of EP, see `GaussianProcess.fit`


@dataclass(eq=False, repr=False)
class BinaryClassifier(Classifier, Learner):
    """A Gaussian process for two classes, on checked data; `GaussianProcessClassifier` describes what it does."""

    kernel: Any
    likelihood: Any
    optimizer: Any
    n_restarts_optimizer: Any
    max_iter_predict: Any
    warm_start: Any
    random_state: Any
    verbose: Any

    @single_blas()
    def fit(self, X, y, sample_weight=None):
        """Learn the kernel's parameters, and the posterior that goes with them."""
        self.kernel_ = self._own_kernel(fixed=True)
        self.classes_, labels = np.unique(y, return_inverse=True)
        self.X_train_, self.y_train_, self._weight = X, labels, sample_weight
        linked = kernels.link_kernel(self.kernel_, X.shape[1])
        with Threads(1) as threads:
            model, self._work = self._opened(linked.covariance, threads, None)
            self._slope = np.inf  # the largest entry of the last gradient
            try:
                covariance = self._learn(linked).covariance
                point = self._work.at(Settings(covariance, model.likelihood))
                self.posterior_ = build_posterior(model, self._work, point)
                self._sites = self._work.start
            finally:
                del self._work, self._slope
        self.log_marginal_likelihood_value_ = np.float64(self.posterior_.log_evidence)
        if not self.posterior_.converged:
            warn(f"EP did not converge: {self.posterior_.status}", UnfinishedWarning)
        return self

    def _search(self, loss, start, bounds):
        """Search with first steps that stay near: far away EP takes long."""
        value, theta, slope = climb(loss, start, bounds, MIN_SEARCH_GAIN)
        return theta, value, "" if is_flat(slope, value) else f"a slope of {slope:.2g} nats is left"

    def _opened(self, covariance, threads, start):
        """Return the model, and what evaluates the evidence of the training data."""
        model = GaussianProcess(covariance, LIKELIHOOD_BY_NAME[self.likelihood], mean=0.0)
        checked = Rows.checked(model.likelihood, self.X_train_, self.y_train_, None, self._weight)
        rows = add_prior_means(model, checked)
        options = Options(schedule=AUTO_SCHEDULE, max_iter=self.max_iter_predict, tol=EP_TOL)
        return model, Evidence(model.likelihood, rows, threads, options, start)

    def _evidence(self, covariance, eval_gradient):
        """Return the log evidence and, on request, its gradient; -inf where there is none."""
        if hasattr(self, "_work"):  # while it is fitted
            tol = SEARCH_TOL if callable(self.optimizer) else choose_search_tol(self._slope)
            value, gradient = self._evaluated(self._work, covariance, eval_gradient, tol)
            if eval_gradient:
                self._slope = np.max(np.abs(gradient))
            return value, gradient
        with Threads(1) as threads:
            _, work = self._opened(covariance, threads, self._sites if self.warm_start else None)
            evidence = self._evaluated(work, covariance, eval_gradient, EP_TOL)
            self._sites = work.start
        return evidence

    def _evaluated(self, work, covariance, eval_gradient, tol):
        try:
            point = work.at(Settings(covariance, LIKELIHOOD_BY_NAME[self.likelihood]), tol=tol)
        except (ArithmeticError, np.linalg.LinAlgError):
            return -np.inf, np.zeros(len(covariance.parameter_names))
        return point.log_evidence, work.gradient(point)[0] if eval_gradient else None

    def predict(self, X):
        """Most probable class of each row."""
        mean = compute_latent_means(self.posterior_, X)
        return self.classes_[(mean > 0).astype(np.intp)]

    def _log_probabilities(self, X):
        return compute_log_probabilities([self.posterior_], X)

    def latent_mean_and_variance(self, X):
        """Posterior mean and variance of the latent function."""
        return self.posterior_.predict(X)
