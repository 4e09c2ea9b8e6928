"""Gaussian process regression with the interface of scikit-learn.

References
----------
.. [RW] C. E. Rasmussen and C. K. I. Williams, "Gaussian Processes for Machine Learning", MIT Press, 2006.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import KW_ONLY, dataclass
from typing import Any, Self

import numpy as np
from scipy.optimize import minimize
from sklearn.base import MultiOutputMixin
from sklearn.utils.validation import check_is_fitted

from cavity.base import arrays
from cavity.base.constants import LOG_2PI
from cavity.base.errors import NotPositiveDefiniteError, NumericalWarning, warn
from cavity.base.public_objects import ArrayLike
from cavity.covariances.base import compute_gram
from cavity.runs import merge
from cavity.runs.executors import single_blas
from cavity.sklearn.base import Regressor, validate_data
from cavity.sklearn.gp import exact, kernels
from cavity.sklearn.gp.learner import FittedRows, Learner, centre_and_scale, check_settings

BLOCK_ROWS = 1024  # rows predicted at a time


@dataclass(eq=False, repr=False)
class GaussianProcessRegressor(MultiOutputMixin, Regressor, Learner):
    """Gaussian process regression, with scikit-learn's settings, attributes and numbers.

    The same model, sooner and in less memory: compiled covariances and gradients that store no matrix for a parameter.
    New are ``log_evidence_``, ``loo_log_density_`` and the covariances of `cavity.covariances`.

    Parameters
    ----------
    kernel : kernel of scikit-learn or `cavity.covariances.Covariance`, optional
        The covariance; ``ConstantKernel() * RBF()`` if None. Its parameters are learnt if they are not fixed.
    alpha : float or array_like (N,), default 1e-10
        Variance of the noise, of all rows or of each: added to the diagonal of the covariance matrix.
    optimizer : "fmin_l_bfgs_b", callable or None, default "fmin_l_bfgs_b"
        How the parameters are learnt: by L-BFGS-B with the exact gradient, not at all (None), or by
        ``optimizer(loss, theta, bounds=bounds)``, which returns the best theta and its loss;
        ``loss(theta, eval_gradient=True)`` is minus the log evidence (with priors, times prior), and its gradient.
    n_restarts_optimizer : int, default 0
        Runs of the optimizer from random places between the bounds, besides the one from the kernel as it is.
    normalize_y : bool, default False
        Whether the targets are scaled to mean zero and variance one for the fit.
    copy_X_train : bool, default True
        Whether the training data are copied.
    n_targets : int, optional
        Number of targets, for samples of the prior; `fit` finds it.
    random_state : int, RandomState or None, default None
        Makes the restarts repeatable.
    verbose : int, default 0
        1 and above show progress on stderr: a bar where tqdm is installed, else lines.

    Attributes
    ----------
    kernel_ : kernel or covariance
        With the parameters that were learnt.
    X_train_, y_train_ : ndarray (N, D) and (N,) or (N, T)
        The training data, the targets scaled.
    L_ : ndarray (N, N)
        Lower Cholesky factor of the covariance matrix of the rows, noise included.
    alpha_ : ndarray (N,) or (N, T)
        That matrix's inverse times the targets.
    log_marginal_likelihood_value_ : float
        Log evidence of the scaled targets, the sum over all.
    log_evidence_ : float
        Log evidence of the targets as they were given.
    loo_log_density_ : ndarray (N,) or (N, T)
        Log density of each target given all *other* rows.
    n_features_in_ : int
        Columns of X.
    feature_names_in_ : ndarray (D,)
        Their names, if X had names.

    See Also
    --------
    GaussianProcessClassifier : For classes.
    cavity.GaussianProcess : With robust likelihoods, counts, weights, unknown means and updates.

    Notes
    -----
    Kernels of scikit-learn are translated; those without a counterpart (`PairwiseKernel`, `Matern` of other nu, powers
    that are not whole, your own) raise a ValueError that says what to use instead. Targets share the kernel.

    References
    ----------
    .. [RW] C. E. Rasmussen and C. K. I. Williams, "Gaussian Processes for Machine Learning", MIT Press, 2006.

    Examples
    --------
    >>> import numpy as np
    >>> from sklearn.gaussian_process.kernels import RBF, WhiteKernel
    >>> from cavity.sklearn import GaussianProcessRegressor
    >>> X = np.linspace(0, 6, 40)[:, None]
    >>> y = np.sin(X[:, 0]) + 0.1 * np.random.default_rng(0).normal(size=40)
    >>> model = GaussianProcessRegressor(1.0 * RBF() + WhiteKernel(0.1)).fit(X, y)
    >>> mean, sd = model.predict([[3.0], [9.0]], return_std=True)
    >>> mean.round(1).tolist(), sd.round(1).tolist()
    ([0.2, 0.2], [0.1, 0.8])
    """

    kernel: Any = None
    _: KW_ONLY
    alpha: ArrayLike = 1e-10
    optimizer: str | Callable[..., Any] | None = "fmin_l_bfgs_b"
    n_restarts_optimizer: int = 0
    normalize_y: bool = False
    copy_X_train: bool = True
    n_targets: int | None = None
    random_state: Any = None
    verbose: int = 0

    def __sklearn_tags__(self):
        tags = super().__sklearn_tags__()
        tags.requires_fit = False
        return tags

    # ------------------------------------------------------------------------------------------ fitting

    @single_blas()
    def fit(self, X: ArrayLike, y: ArrayLike) -> Self:
        """Learn the kernel's parameters, and condition on the data.

        Parameters
        ----------
        X : array_like, shape (N, D)
            The rows.
        y : array_like, shape (N,) or (N, T)
            The targets.

        Returns
        -------
        self : object
            The fitted estimator.

        Raises
        ------
        ValueError, TypeError
            For data or settings that make no sense, naming them, before any work.
        NotPositiveDefiniteError
            If rounding makes the covariance matrix indefinite: it needs more noise, `alpha`.

        Warns
        -----
        ConvergenceWarning
            If the search for the parameters ended early, or at their bounds.
        """
        self._check_settings()
        X, y = validate_data(self, X, y, multi_output=True, y_numeric=True, dtype=np.float64)
        self._keep_rows(X, y)
        self.kernel_ = self._own_kernel(fixed=False)
        self._work = exact.allocate_matrix(len(X))  # which the evaluations of a search share
        try:
            linked = self._learn(kernels.link_kernel(self.kernel_, X.shape[1]))
            regression = self._regression(linked.covariance)
        finally:
            del self._work
        self._fitted = FittedRows(self.kernel_, linked, self.X_train_)
        self.L_, self.alpha_ = regression.factor, regression.dual.reshape(self.y_train_.shape)
        self.log_marginal_likelihood_value_ = regression.log_evidence
        return self

    def _check_settings(self):
        check_settings(self)
        arrays.check_flag(self.normalize_y, "normalize_y")
        if self.n_targets is not None:
            arrays.check_integer(self.n_targets, "n_targets", low=1)

    def _keep_rows(self, X, y):
        """Set the attributes of the training data."""
        n_targets = y.shape[1] if y.ndim > 1 else 1
        if self.n_targets is not None and n_targets != self.n_targets:
            raise ValueError(
                "The number of targets seen in `y` is different from the parameter `n_targets`. "
                f"Got {n_targets} != {self.n_targets}."
            )
        noise = arrays.check_finite_array(self.alpha, "alpha", ndim=(0, 1))
        if noise.size not in (1, len(y)):
            raise ValueError(
                f"alpha must be a scalar or an array with same number of entries as y. ({noise.size} != {len(y)})"
            )
        if np.any(noise < 0):
            raise ValueError(f"alpha must not be negative, got {float(np.min(noise))!r}")
        self._noise = noise
        y = y.astype(np.float64, copy=False)
        self._y_train_mean, self._y_train_std = np.zeros(y.shape[1:]), np.ones(y.shape[1:])
        if self.normalize_y:
            self._y_train_mean, self._y_train_std = centre_and_scale(y)
            y = (y - self._y_train_mean) / self._y_train_std
        self.X_train_ = np.array(X) if self.copy_X_train else X
        self.y_train_ = np.array(y) if self.copy_X_train else y

    def _regression(self, covariance):
        """Return the fit of all T targets with such a covariance."""
        n = len(self.y_train_)
        buffer = self._work if hasattr(self, "_work") else exact.allocate_matrix(n)
        try:
            return exact.regress(covariance, self.X_train_, self._noise, self.y_train_.reshape(n, -1), buffer)
        except NotPositiveDefiniteError as error:
            raise NotPositiveDefiniteError(
                f"The kernel, {self.kernel_}, is not returning a positive definite matrix. Try gradually increasing "
                f"the 'alpha' parameter of your GaussianProcessRegressor estimator. ({error})"
            ) from error

    def _search(self, loss, start, bounds):
        """Search as scikit-learn does, so that the same place is found."""
        optimum = minimize(loss, start, method="L-BFGS-B", jac=True, bounds=bounds)
        return optimum.x, optimum.fun, "" if optimum.success else optimum.message

    def _evidence(self, covariance, eval_gradient):
        """Return the log evidence and, on request, its gradient; -inf where the matrix is not positive definite."""
        try:
            regression = self._regression(covariance)
        except NotPositiveDefiniteError:
            return -np.inf, np.zeros(len(covariance.parameter_names))
        return regression.log_evidence, regression.gradient(covariance, self.X_train_) if eval_gradient else None

    @property
    def log_evidence_(self) -> Any:
        """Log evidence of the targets as they were given."""
        check_is_fitted(self)
        return self.log_marginal_likelihood_value_ - len(self.y_train_) * float(np.sum(np.log(self._y_train_std)))

    @property
    def loo_log_density_(self) -> Any:
        """Log density of each target given all other rows [RW]_ (eq. 5.10 to 5.12)."""
        check_is_fitted(self)
        precision = exact.Regression(self.L_, self.alpha_, np.nan).inverse_diagonal()
        precision = precision.reshape(-1, *[1] * (self.alpha_.ndim - 1))
        return 0.5 * (np.log(precision) - LOG_2PI - self.alpha_**2 / precision) - np.log(self._y_train_std)

    # ------------------------------------------------------------------------------------------ predicting

    @single_blas()
    def _moments(self, X, with_std, with_cov):
        X = validate_data(self, X, dtype=np.float64, reset=False)
        if not hasattr(self, "X_train_"):
            return self._prior_moments(X, with_std, with_cov)
        fitted = self._fitted
        if self.kernel_ is not fitted.kernel:  # it was replaced
            fitted = FittedRows(self.kernel_, kernels.link_kernel(self.kernel_, X.shape[1]), self.X_train_)
        if with_cov:
            cross = arrays.allocate_matrix((len(X), len(self.X_train_)), "the matrix of covariances")
            fitted.cross(X, cross)
            mean = cross @ self.alpha_
            half = exact.solve_cross(self.L_, cross)
            return self._in_units(mean), self._per_target(compute_gram(fitted.linked.covariance, X) - half @ half.T)
        mean, variances = self._means_and_variances(fitted, X, with_std)
        return self._in_units(mean), np.sqrt(self._per_target(variances)) if with_std else None

    def _in_units(self, mean):
        """Return means of scaled targets in the units of the targets."""
        mean = self._y_train_mean + self._y_train_std * mean
        return mean[:, 0] if mean.ndim == 2 and mean.shape[1] == 1 else mean

    def _means_and_variances(self, fitted, X, with_variances):
        """Return the means of scaled targets and, on request, their variances, block by block."""
        means = np.empty((len(X), *self.alpha_.shape[1:]))
        variances = fitted.program.diagonal(X) if with_variances else None
        buffer = np.empty((min(len(X), BLOCK_ROWS), len(self.X_train_)))
        for start, stop in merge.split_rows(len(X), BLOCK_ROWS):
            cross = buffer[: stop - start]
            fitted.cross(X[start:stop], cross)
            means[start:stop] = cross @ self.alpha_
            if with_variances:
                half = exact.solve_cross(self.L_, cross)
                variances[start:stop] -= np.einsum("ij,ij->i", half, half)
        if not with_variances:
            return means, None
        if np.any(variances < 0):
            warn(
                f"rounding made {np.sum(variances < 0)} of {len(X)} predicted variances negative, down to "
                f"{variances.min():.2g}; they are set to 0. A larger alpha prevents that",
                NumericalWarning,
            )
        return means, np.maximum(variances, 0.0)

    def _per_target(self, values):
        """Return (co)variances of scaled targets in the units of every target, along a last axis if there are more."""
        scaled = values[..., None] * np.ravel(self._y_train_std) ** 2
        return scaled[..., 0] if scaled.shape[-1] == 1 else scaled

    def _prior_moments(self, X, with_std, with_cov):
        """Return what `predict` does before there are data."""
        self._check_settings()
        n_targets = 1 if self.n_targets is None else self.n_targets
        covariance = kernels.link_kernel(self._own_kernel(fixed=True), X.shape[1]).covariance
        shape = () if n_targets == 1 else (n_targets,)
        mean = np.zeros((len(X), *shape))
        if not (with_std or with_cov):
            return mean, None
        spread = compute_gram(covariance, X) if with_cov else np.sqrt(covariance.diagonal(X))
        return mean, np.repeat(spread[..., None], n_targets, axis=-1) if shape else spread
