"""Gaussian process classification with the interface of scikit-learn.

References
----------
.. [KR] Malte Kuss and Carl Rasmussen, "Assessing approximate inference for binary Gaussian process classification",
   JMLR 6, 2005.
.. [RW] C. E. Rasmussen and C. K. I. Williams, "Gaussian Processes for Machine Learning", MIT Press, 2006.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import KW_ONLY, dataclass
from inspect import signature
from typing import Any, Literal, Self

import numpy as np
from sklearn import config_context
from sklearn.multiclass import OneVsOneClassifier, OneVsRestClassifier
from sklearn.utils.metaestimators import available_if
from sklearn.utils.validation import check_is_fitted

from cavity.base import arrays
from cavity.base.public_objects import ArrayLike, FloatArray
from cavity.runs.executors import single_blas
from cavity.sklearn.base import Classifier, Estimator, check_rows, compute_log_probabilities, compute_loo_log_density
from cavity.sklearn.gp.binary import LIKELIHOOD_BY_NAME, BinaryClassifier
from cavity.sklearn.gp.kernels import join_kernels, theta_of
from cavity.sklearn.gp.learner import check_settings

BINARY_SETTINGS = tuple(signature(BinaryClassifier).parameters)
MULTI_CLASS = {"one_vs_rest": OneVsRestClassifier, "one_vs_one": OneVsOneClassifier}


def _has_probabilities(estimator):
    """Return True, or raise AttributeError for more than two classes in pairs."""
    if estimator.multi_class == "one_vs_one" and getattr(estimator, "n_classes_", 2) > 2:
        raise AttributeError("pairs of classes have no probabilities of all; use multi_class='one_vs_rest'")
    return True


@dataclass(eq=False, repr=False)
class GaussianProcessClassifier(Classifier, Estimator):
    """Gaussian process classification by expectation propagation, with scikit-learn's settings and attributes.

    scikit-learn's classifier has the same model and Laplace's approximation of its posterior. EP's is the closer one:
    better probabilities and a better evidence [KR]_. New are `likelihood`, ``loo_log_density_``, ``log_evidence_`` and
    the covariances of `cavity.covariances`.

    Parameters
    ----------
    kernel : kernel of scikit-learn or `cavity.covariances.Covariance`, optional
        The covariance; ``1.0 * RBF(1.0)``, fixed, if None. Its parameters are learnt if they are not fixed.
    likelihood : {"logit", "probit"}, default "logit"
        p(y|f) = 1/(1 + exp(-y f)), as in scikit-learn, or Phi(y f), which is faster.
    optimizer : "fmin_l_bfgs_b", callable or None, default "fmin_l_bfgs_b"
        How the parameters are learnt: by L-BFGS-B with the exact gradient, not at all (None), or by
        ``optimizer(loss, theta, bounds=bounds)``, which returns the best theta and its loss;
        ``loss(theta, eval_gradient=True)`` is minus the log evidence (with priors, times prior), and its gradient.
    n_restarts_optimizer : int, default 0
        Runs of the optimizer from random places between the bounds, besides the one from the kernel as it is.
    max_iter_predict : int, default 100
        Most sweeps of EP; of the steps of its double loop three times as many.
    warm_start : bool, default False
        Whether `log_marginal_likelihood` starts from the sites of its last call; the evaluations of a fit always do.
    copy_X_train : bool, default True
        Whether the training rows are copied.
    random_state : int, RandomState or None, default None
        Makes the restarts repeatable.
    multi_class : {"one_vs_rest", "one_vs_one"}, default "one_vs_rest"
        More than two classes: a model for each against the rest, or for each pair, which gives no probabilities.
    n_jobs : int, optional
        Processes for the models of several classes.
    verbose : int, default 0
        1 and above show progress on stderr: a bar where tqdm is installed, else lines.

    Attributes
    ----------
    classes_ : ndarray (K,)
        The labels, sorted.
    n_classes_ : int
        K.
    kernel_ : kernel or covariance
        With the parameters that were learnt. Of more than two classes a ``CompoundKernel``, or a tuple of covariances.
    base_estimator_ : estimator
        The classifier of two classes (with ``posterior_``, ``X_train_``, ``y_train_``), or scikit-learn's estimator of
        several of them.
    posteriors_ : list of GaussianProcessPosterior
        The posterior of each model: one for two classes.
    log_marginal_likelihood_value_ : float
        Log evidence; of more than two classes the mean over the models.
    log_evidence_ : float
        Log evidence; of more than two classes the sum over the models.
    loo_log_density_ : ndarray (N,)
        Log probability of each row's class given all *other* rows, which EP has for free. Not with pairs.
    converged_ : bool
        Whether EP met its stopping rule in all models.
    n_features_in_ : int
        Columns of X.
    feature_names_in_ : ndarray (D,)
        Their names, if X had names.

    See Also
    --------
    GaussianProcessRegressor : For numbers.
    cavity.GaussianProcess : With other likelihoods, weights, unknown means and updates.

    Notes
    -----
    Kernels of scikit-learn are translated; those without a counterpart (`PairwiseKernel`, `Matern` of other nu, powers
    that are not whole, your own) raise a ValueError that says what to use instead. EP sweeps until no posterior mean or
    variance moves by more than 1e-8 of itself. Restarts are drawn uniformly in the logs, between the bounds.

    References
    ----------
    .. [KR] Malte Kuss and Carl Rasmussen, "Assessing approximate inference for binary Gaussian process classification",
       JMLR 6, 2005.

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> from sklearn.gaussian_process.kernels import RBF, ConstantKernel
    >>> from cavity.sklearn import GaussianProcessClassifier
    >>> X, y = load_iris(return_X_y=True)
    >>> kernel = ConstantKernel(50.0, "fixed") * RBF(1.0)
    >>> classifier = GaussianProcessClassifier(kernel).fit(X, y)
    >>> round(classifier.score(X, y), 2), round(float(classifier.loo_log_density_.mean()), 2)
    (0.99, -0.09)
    """

    kernel: Any = None
    _: KW_ONLY
    likelihood: Literal["logit", "probit"] = "logit"
    optimizer: str | Callable[..., Any] | None = "fmin_l_bfgs_b"
    n_restarts_optimizer: int = 0
    max_iter_predict: int = 100
    warm_start: bool = False
    copy_X_train: bool = True
    random_state: Any = None
    multi_class: Literal["one_vs_rest", "one_vs_one"] = "one_vs_rest"
    n_jobs: int | None = None
    verbose: int = 0

    # ------------------------------------------------------------------------------------------ fitting

    @single_blas()
    def fit(self, X: ArrayLike, y: ArrayLike, sample_weight: ArrayLike | None = None) -> Self:
        """Learn the kernel's parameters, and find the posterior.

        Parameters
        ----------
        X : array_like, shape (N, D)
            The rows.
        y : array_like, shape (N,)
            Class labels of any kind, of at least two classes.
        sample_weight : array_like, shape (N,), optional
            A row of weight w counts as w copies; 0 leaves it out.

        Returns
        -------
        self : object
            The fitted estimator.

        Raises
        ------
        ValueError, TypeError
            For data or settings that make no sense, naming them, before any work.

        Warns
        -----
        ConvergenceWarning
            If EP or the search for the parameters ended early, or the search at their bounds.
        """
        self._check_settings()
        X, y, weight = check_rows(self, X, y, sample_weight, dtype=np.float64)
        self.classes_, labels = np.unique(y, return_inverse=True)
        self.n_classes_ = self.classes_.size
        if self.n_classes_ == 1:
            raise ValueError(
                f"GaussianProcessClassifier requires 2 or more distinct classes; got 1 class (only class "
                f"{self.classes_[0]!r} is present)"
            )
        self.base_estimator_ = BinaryClassifier(**self._settings(*BINARY_SETTINGS))
        weights = {} if weight is None else {"sample_weight": weight}
        with config_context(enable_metadata_routing=bool(weights)):  # or the weights do not get through
            if self.n_classes_ > 2:
                if weights:
                    self.base_estimator_.set_fit_request(sample_weight=True)
                self.base_estimator_ = MULTI_CLASS[self.multi_class](self.base_estimator_, n_jobs=self.n_jobs)
            self.base_estimator_.fit(np.array(X) if self.copy_X_train else X, y, **weights)
        self._labels = labels
        values = [model.log_marginal_likelihood_value_ for model in self._models()]
        self.log_marginal_likelihood_value_, self.log_evidence_ = np.mean(values), float(np.sum(values))
        self.posteriors_ = [model.posterior_ for model in self._models()]
        self.converged_: bool = all(posterior.converged for posterior in self.posteriors_)
        return self

    def _check_settings(self):
        check_settings(self)
        arrays.check_choice(self.likelihood, "likelihood", tuple(LIKELIHOOD_BY_NAME))
        arrays.check_integer(self.max_iter_predict, "max_iter_predict", low=1)
        arrays.check_flag(self.warm_start, "warm_start")
        arrays.check_choice(self.multi_class, "multi_class", tuple(MULTI_CLASS))

    def _models(self):
        """Return the classifiers of two classes."""
        return [self.base_estimator_] if self.n_classes_ == 2 else self.base_estimator_.estimators_

    @property
    def kernel_(self) -> Any:
        """The kernel with the parameters that were learnt, or those of several models."""
        return join_kernels([model.kernel_ for model in self._models()])

    @property
    def loo_log_density_(self) -> Any:
        """Log probability of each row's class given all other rows, (N,)."""
        check_is_fitted(self)
        _has_probabilities(self)
        return compute_loo_log_density(self.posteriors_, self._labels)

    def log_marginal_likelihood(
        self, theta: ArrayLike | None = None, eval_gradient: bool = False, clone_kernel: bool = True
    ) -> tuple[float, FloatArray]:
        """Log evidence of the training data, at other parameters of the kernel too.

        Parameters
        ----------
        theta : array_like, shape (n,) or (n K,), optional
            Logs of what is learnt, as in ``kernel_.theta`` (of a covariance of `cavity`, ``log_parameters``); those of
            the fit if None. Of more than two classes, for all models or for one after the other.
        eval_gradient : bool, default False
            Whether the gradient in theta is returned, too; of two classes only, and theta must be given.
        clone_kernel : bool, default True
            Whether ``kernel_`` stays as it is; otherwise it gets the parameters.

        Returns
        -------
        log_likelihood : float
            The log evidence in nats; of more than two classes the mean over the models.
        gradient : ndarray, shape (n,)
            Only if `eval_gradient`.

        Raises
        ------
        ValueError
            If theta has another length, or is None where the gradient is requested.
        NotImplementedError
            If the gradient is requested of more than two classes.
        """
        check_is_fitted(self)
        if self.n_classes_ == 2:
            return self.base_estimator_.log_marginal_likelihood(theta, eval_gradient, clone_kernel)
        if theta is None and not eval_gradient:
            return self.log_marginal_likelihood_value_
        if theta is None:
            raise ValueError("Gradient can only be evaluated for theta!=None; pass theta, such as kernel_.theta")
        if eval_gradient:
            raise NotImplementedError("Gradient of log-marginal-likelihood not implemented for multi-class GPC.")
        models, theta = self._models(), np.asarray(theta)
        size = theta_of(models[0].kernel_).size
        if theta.shape not in ((size,), (size * len(models),)):
            raise ValueError(
                f"Shape of theta must be either {size} or {size * len(models)}. Obtained theta with shape "
                f"{theta.shape[0]}."
            )
        parts = theta.reshape(-1, size) if theta.size > size else [theta] * len(models)
        pairs = zip(models, parts, strict=True)
        return np.mean([model.log_marginal_likelihood(part, clone_kernel=clone_kernel) for model, part in pairs])

    # ------------------------------------------------------------------------------------------ predicting

    @single_blas()
    def predict(self, X: ArrayLike) -> Any:
        """Most probable class of each row.

        Parameters
        ----------
        X : array_like, shape (n, D)
            The rows.

        Returns
        -------
        ndarray, shape (n,)
            Labels, as in ``classes_``; with pairs, the class with most votes.
        """
        check_is_fitted(self)
        if self.n_classes_ > 2 and self.multi_class == "one_vs_rest":
            return super().predict(X)
        return self.base_estimator_.predict(self._new_rows(X))

    predict_proba = available_if(_has_probabilities)(Classifier.predict_proba)
    predict_log_proba = available_if(_has_probabilities)(Classifier.predict_log_proba)

    @single_blas()
    def _log_probabilities(self, X):
        X = self._new_rows(X)
        return compute_log_probabilities(self.posteriors_, X)

    @single_blas()
    def latent_mean_and_variance(self, X: ArrayLike) -> tuple[FloatArray, FloatArray]:
        """Posterior mean and variance of the latent function; of two classes only.

        Parameters
        ----------
        X : array_like, shape (n, D)
            The rows.

        Returns
        -------
        mean, variance : ndarray, shape (n,)
            The moments.

        Raises
        ------
        ValueError
            If there are more than two classes.
        """
        check_is_fitted(self)
        if self.n_classes_ > 2:
            raise ValueError(
                "Returning the mean and variance of the latent function f is only supported for binary classification, "
                f"received {self.n_classes_} classes; each of posteriors_ has predict."
            )
        return self.base_estimator_.latent_mean_and_variance(self._new_rows(X))
