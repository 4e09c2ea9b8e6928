"""Bayesian Gaussian mixtures with the interface of scikit-learn.

References
----------
.. [B] Christopher Bishop, "Pattern recognition and machine learning", Springer, 2006, section 10.2.
.. [BJ] David Blei and Michael Jordan, "Variational inference for Dirichlet process mixtures", Bayesian Analysis 1,
   2006.
"""

import numpy as np

from .. import _arrays
from . import _check
from ._mixture import Mixture
from ._steps import Belief, Constrained, mean_weights

WEIGHTS = {"dirichlet_process": "stick_breaking", "dirichlet_distribution": "dirichlet"}


class BayesianGaussianMixture(Mixture):
    """A Gaussian mixture with priors, by variational inference [B]_ [BJ]_: scikit-learn's settings and attributes.

    Parameters
    ----------
    n_components : int, default 1
        K, the largest number of components.
    """

    def __init__(
        self,
        *,
        n_components=1,
        covariance_type="full",
        tol=1e-3,
        reg_covar=1e-6,
        max_iter=100,
        n_init=1,
        init_params="kmeans",
        weight_concentration_prior_type="dirichlet_process",
        weight_concentration_prior=None,
        mean_precision_prior=None,
        mean_prior=None,
        degrees_of_freedom_prior=None,
        covariance_prior=None,
        random_state=None,
        warm_start=False,
        verbose=0,
        verbose_interval=10,
        parity=False,
        n_threads=1,
    ):
        self.n_components = n_components
        self.covariance_type = covariance_type
        self.tol = tol
        self.reg_covar = reg_covar
        self.max_iter = max_iter
        self.n_init = n_init
        self.init_params = init_params
        self.weight_concentration_prior_type = weight_concentration_prior_type
        self.weight_concentration_prior = weight_concentration_prior
        self.mean_precision_prior = mean_precision_prior
        self.mean_prior = mean_prior
        self.degrees_of_freedom_prior = degrees_of_freedom_prior
        self.covariance_prior = covariance_prior
        self.random_state = random_state
        self.warm_start = warm_start
        self.verbose = verbose
        self.verbose_interval = verbose_interval
        self.parity = parity
        self.n_threads = n_threads

    # ------------------------------------------------------------------------------------------ priors

    def _check_settings(self):
        super()._check_settings()
        _arrays.choice(self.weight_concentration_prior_type, "weight_concentration_prior_type", tuple(WEIGHTS))
        for name in ("weight_concentration_prior", "mean_precision_prior", "degrees_of_freedom_prior"):
            if getattr(self, name) is not None:
                _arrays.number(getattr(self, name), name, low=0)

    def _set_priors(self, rows):
        """Set the attributes of the priors: what is given, and what follows from the rows."""
        d, given = self.n_features_in_, self.weight_concentration_prior
        self.weight_concentration_prior_ = 1.0 / self.n_components if given is None else given
        self.mean_precision_prior_ = 1.0 if self.mean_precision_prior is None else self.mean_precision_prior
        freedom = self.degrees_of_freedom_prior
        if freedom is not None and not freedom > d - 1:
            raise ValueError(
                f"The parameter 'degrees_of_freedom_prior' should be greater than {d - 1}, but got {freedom:.3f}."
            )
        self.degrees_of_freedom_prior_ = d if freedom is None else freedom
        if self.mean_prior is not None:
            self.mean_prior_ = _arrays.finite_array(self.mean_prior, "mean_prior")
            _check.shape(self.mean_prior_, (d,), "means")
        if self.covariance_prior is not None:
            shapes = {"full": (d, d), "tied": (d, d), "diag": (d,), "spherical": ()}
            given = _check.precision(self.covariance_prior, self.covariance_type, shapes, "covariance_prior")
            self.covariance_prior_ = given if given.ndim else float(given)
        if self.mean_prior is None or self.covariance_prior is None:
            self._set_empirical_priors(rows)

    def _set_empirical_priors(self, rows):
        """Set the priors' mean and covariance, those not given, to those of the rows."""
        mean, scatter = rows.spread()
        if self.mean_prior is None:
            self.mean_prior_ = rows.origin + mean
        if self.covariance_prior is None:
            if not rows.total > 1.0:
                raise ValueError(
                    f"covariance_prior=None is the covariance of X, which needs weights that sum to more than one, got "
                    f"{rows.total:g}; give covariance_prior"
                )
            full = scatter / (rows.total - 1.0)
            kinds = {"full": full, "tied": full, "diag": np.diag(full), "spherical": float(np.mean(np.diag(full)))}
            self.covariance_prior_ = kinds[self.covariance_type]

    # ------------------------------------------------------------------------------------------ fitting

    def _fit_rows(self, X, weight, random_state, threads):
        self._ascend(X, weight, random_state, threads)

    def _step(self, rows):
        self._set_priors(rows)
        return self._constrained(rows.origin)

    def _constrained(self, origin):
        return Constrained(
            self.covariance_type,
            self.weight_concentration_prior_type == "dirichlet_process",
            self.weight_concentration_prior_,
            self.mean_prior_ - origin,
            self.mean_precision_prior_,
            self.degrees_of_freedom_prior_,
            self.covariance_prior_,
        )

    def _begin(self, step, rows, X, weight, random_state):
        return step.best(self._start(rows, X, weight, random_state))

    def _state(self, origin):
        """Return the fitted factors, means measured from an origin."""
        return Belief(
            self.weight_concentration_,
            self.mean_precision_,
            self.means_.astype(np.float64) - origin,
            self.degrees_of_freedom_,
            self.covariances_,
            self.precisions_cholesky_.astype(np.float64),
        )

    def _components(self, origin):
        return self._constrained(origin).components(self._state(origin))

    def _keep(self, state, origin, dtype):
        self.weight_concentration_ = state.concentration
        self.weights_ = mean_weights(state.concentration).astype(dtype)
        self.mean_precision_ = state.mean_precision
        self.degrees_of_freedom_ = state.degrees_of_freedom
        self._keep_gaussians(state, origin, dtype)
