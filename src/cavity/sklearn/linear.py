"""Linear classifiers with the interface of scikit-learn.

References
----------
.. [M] Thomas Minka, "A family of algorithms for approximate Bayesian inference", PhD thesis, MIT, 2001.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, Literal, Self

import numpy as np
from scipy import sparse

from cavity.base import arrays
from cavity.base.errors import check_within_range
from cavity.base.public_objects import ArrayLike, Data, FloatArray
from cavity.base.rows import Rows, check_row_weights
from cavity.likelihoods import Logit, Probit
from cavity.models.defaults import find_prior_scale
from cavity.models.glm.model import GLM
from cavity.models.linear.defaults import INTERCEPT_VARIANCE_RATIO, resolve_defaults
from cavity.models.predictive_densities import integrate_both_log_densities
from cavity.sklearn import base
from cavity.sklearn.base import FLOAT_DTYPES, Classifier, Estimator, check_rows, predict_by_chunks, split_one_vs_rest
from cavity.sources.dataset import Dataset
from cavity.sources.features import append_ones, open_features, scan

__all__ = ["LogitClassifier", "ProbitClassifier"]

# up to so many columns approximation="auto" keeps all covariances: 32 MB, N D^2 operations a pass; of sparse rows the
# zeros count too then, at most 800 bytes a row. Whatever the number of rows: batches could choose differently.
FULL_COLUMNS, FULL_COLUMNS_SPARSE = 2000, 100
ROW_CHECKS = dict(accept_sparse="csr", dtype=FLOAT_DTYPES)  # what is taken for rows, in words of scikit-learn
BLOCK_ROWS = 8192  # rows predicted at a time, so that no copy of the whole of X is made


@dataclass(kw_only=True, eq=False, repr=False)
class _LinearClassifier(Classifier, Estimator):
    """What both classifiers share; a subclass sets `_likelihood` and `_decision(posterior, design)`.

    The weights have independent priors N(0, prior_variance), the intercept N(0, intercept_variance); the posterior is
    that of `cavity.GLM`, and so are the priors by default. Of more than two classes each has a model of its own against
    the rest, and their probabilities are normalised.

    Parameters
    ----------
    prior_variance : float, optional
        Variance of the prior of each weight. By default (c/s_j)^2 for column j as in `cavity.GLM`, whatever its unit:
        s_j is its standard deviation, or half the distance of its two values, and c is 2.5 for `LogitClassifier`,
        2.5/1.7 for `ProbitClassifier`. In `partial_fit`, which has no scales, s_j counts as 1. For the diagonal
        approximation the variance is 1.
    intercept_variance : float, optional
        Variance of the prior of the intercept, by default (10 c)^2 and what the means of the columns add where their
        weights have the default prior, as in `cavity.GLM`; they add nothing in `partial_fit` and for the diagonal
        approximation.
    fit_intercept : bool, default True
        Whether there is an intercept.
    approximation : {"auto", "full", "diagonal"}, default "auto"
        The posterior: "full" with all covariances (sparse rows become dense ones), "diagonal" with independent weights,
        for very many columns. "auto" is "full" up to 2000 columns (100 if X is sparse), else "diagonal".
    learn_prior_variance : bool, default False
        Whether `fit` takes `prior_variance` for a start only and maximises the evidence over a factor on it, for each
        of the models; about ten times the work. Not with the diagonal approximation.
    schedule : {"parallel", "sequential", "stochastic"}, default "parallel"
        See `cavity.GLM.fit`; "stochastic" needs the full approximation.
    power : float, default 1.0
        Exponent of power EP; 1 is EP.
    max_iter : int, default 200
        Most sweeps.
    tol : float, default 1e-8
        Stopping rule, see `cavity.GLM.fit`.
    class_weight : dict or "balanced", optional
        Factors of the weights of rows by their class, of `fit` only; "balanced" gives all classes the same sum.
    n_threads : int, optional
        Threads; the result has the same bits for any number. -1 is all cores; by default as many as the process may
        use and the work is worth, at most CAVITY_NUM_THREADS.
    verbose : int, default 0
        1 and above show progress on stderr: a bar where tqdm is installed, else lines.

    Attributes
    ----------
    classes_ : ndarray (K,)
        The labels, sorted.
    coef_, coef_sd_ : ndarray (1, D) or (K, D)
        Posterior means and standard deviations of the weights. Two classes make one row, for the second label.
    intercept_ : ndarray (1,) or (K,)
        Posterior mean of the intercept; 0 if there is none.
    prior_variance_ : ndarray (1, D) or (K, D)
        Prior variances of the weights, learned, given or by default.
    log_evidence_ : float
        Log probability of the labels, integrated over the weights; of more than two classes the sum over the models.
    loo_score_ : float
        Mean over the rows (weighted) of the log probability of a row's class given all other rows, which EP has for
        free. Only after `fit`, not with the stochastic schedule, and not where power EP or a fit that did not converge
        leaves a row without a proper cavity. Of more than two classes, what the models of the others give counts as
        zero below 1e-16.
    n_iter_ : int
        Most sweeps of any model.
    converged_ : bool
        Whether all models met the stopping rule.
    posteriors_ : list of GLMPosterior
        The posterior of each model: one for two classes, else K. In their vectors the intercept comes last.
    n_features_in_ : int
        Columns of X.
    feature_names_in_ : ndarray (D,)
        Their names, if X had names.
    """

    prior_variance: float | None = None
    intercept_variance: float | None = None
    fit_intercept: bool = True
    approximation: Literal["auto", "full", "diagonal"] = "auto"
    learn_prior_variance: bool = False
    schedule: Literal["parallel", "sequential", "stochastic"] = "parallel"
    power: float = 1.0
    max_iter: int = 200
    tol: float = 1e-8
    class_weight: Mapping[Any, float] | Literal["balanced"] | None = None
    n_threads: int | None = None
    verbose: int = 0

    def __init_subclass__(cls, **options):
        """Put what both classifiers share into a docstring, in place of its line "{settings}"."""
        super().__init_subclass__(**options)
        base.share_docstring(cls, _LinearClassifier)

    def __sklearn_tags__(self):
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        return tags

    # ------------------------------------------------------------------------------------------ fitting

    def fit(self, X: Data, y: ArrayLike, sample_weight: ArrayLike | None = None) -> Self:
        """Fit by expectation propagation, from the prior.

        Parameters
        ----------
        X : array_like, sparse matrix, dask array or data frame, shape (N, D)
            The rows. Columns are best scaled where one `prior_variance` is given for all of them. Those of dask are
            worked on where they are.
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
            If the stopping rule of `cavity.GLM.fit` was not met; ``converged_`` is False then.
        NumericalWarning
            If there is no ``loo_score_`` because a row has no proper cavity.
        """
        remote = base.open_remotely(self, X, y, sample_weight)
        X, y, weight = check_rows(self, X, y, sample_weight, **ROW_CHECKS) if remote is None else remote
        classes, weight = base.find_classes(y), base.apply_class_weight(self.class_weight, y, weight)
        model = self._model(X, weight)
        if self.learn_prior_variance and model.approximation == "diagonal":
            raise ValueError("learn_prior_variance=True needs the full approximation; here it is the diagonal one")
        options = self._options("schedule", "power", "max_iter", "tol", "n_threads") | {"sample_weight": weight}
        design = self._design(X, model.approximation)
        if self.learn_prior_variance:  # that of the intercept, the last one, stays
            groups = np.where(np.arange(len(model.prior_variance)) < X.shape[1], 0, -1)
            options |= {"learn": "prior_variance", "prior_groups": groups}
        self._set_posteriors(classes, [model.fit(design, signs, **options) for signs in split_one_vs_rest(y, classes)])
        if self.schedule != "stochastic":  # which keeps no sites
            self._set_loo_score(
                lambda: base.compute_loo_log_density(self.posteriors_, np.searchsorted(classes, y)), weight
            )
        return self

    def partial_fit(
        self, X: Data, y: ArrayLike, classes: ArrayLike | None = None, sample_weight: ArrayLike | None = None
    ) -> Self:
        """Take in more rows by assumed-density filtering, each once, on top of what is known.

        Parameters
        ----------
        X : array_like or sparse matrix, shape (N, D)
            The new rows.
        y : array_like, shape (N,)
            Their labels; a batch may lack some of the classes.
        classes : array_like, shape (K,), optional
            All classes there will be. Needed in the first call, unless `fit` came before.
        sample_weight : array_like, shape (N,), optional
            A row of weight w counts as w copies; 0 leaves it out.

        Returns
        -------
        self : object
            The estimator, fitted to the new rows too.

        Raises
        ------
        ValueError, TypeError
            For data or settings that make no sense, naming them, before any work.

        Notes
        -----
        The result depends on the order of the rows, not on how they are cut into batches, whose first one gives no
        scales to the prior for this reason. The prior variance stays as it is, whatever `learn_prior_variance` is,
        and there is no ``loo_score_``.
        """
        first = not hasattr(self, "posteriors_")
        X, y, weight = check_rows(self, X, y, sample_weight, reset=first, **ROW_CHECKS)
        classes = base.check_stream_classes(y, classes, None if first else self.classes_)
        model = self._model(X, several_batches=True) if first else self.posteriors_[0].model
        design, problems = self._design(X, model.approximation), split_one_vs_rest(y, classes)
        begin = partial(model.fit, method="adf", n_threads=self.n_threads)
        takers = [begin] * len(problems) if first else [posterior.update for posterior in self.posteriors_]
        posteriors = [take(design, signs, sample_weight=weight) for take, signs in zip(takers, problems, strict=True)]
        self._set_posteriors(classes, posteriors)
        return self

    def _model(self, X, weight=None, several_batches=False):
        """Return the GLM of every one-vs-rest problem; the scales of X count unless there will be several batches."""
        arrays.check_choice(self.approximation, "approximation", ("auto", "full", "diagonal"))
        most = FULL_COLUMNS_SPARSE if sparse.issparse(X) else FULL_COLUMNS
        automatic = "full" if X.shape[1] <= most else "diagonal"
        approximation = automatic if self.approximation == "auto" else self.approximation
        columns = {"prior_variance": slice(X.shape[1]), "intercept_variance": slice(X.shape[1], X.shape[1] + 1)}
        if several_batches or approximation == "diagonal" or None not in self._settings(*columns).values():
            effect = find_prior_scale(self._likelihood) ** 2
            variance = np.full(X.shape[1] + 1, 1.0 if approximation == "diagonal" else effect)
            variance[-1] = INTERCEPT_VARIANCE_RATIO * effect
        else:
            design = open_features(Dataset.open(self._design(X, approximation), remote=True), approximation)
            weight = None if weight is None else check_row_weights(weight, design.shape[0])
            scan(design, weight)
            rows = Rows(design, None, weights=weight)
            variance = np.array(resolve_defaults(GLM(self._likelihood, intercept=False), rows).model.prior_variance)
        for name, part in columns.items():
            if getattr(self, name) is not None:
                variance[part] = arrays.check_number(getattr(self, name), name, low=0)
        variance = variance[: X.shape[1] + bool(self.fit_intercept)]
        return GLM(self._likelihood, prior_variance=variance, approximation=approximation, intercept=False)

    def _design(self, X, approximation):
        """Append the column of ones of the intercept; dense for the full approximation, which has no use for zeros."""
        if sparse.issparse(X) and approximation == "full":
            X = X.toarray()
        return append_ones(X) if self.fit_intercept else X

    def _set_posteriors(self, classes, posteriors):
        """Set the attributes of a fit."""
        self.__dict__.pop("loo_score_", None)  # that of an earlier fit
        self.classes_ = classes
        self.posteriors_ = posteriors
        mean = np.stack([posterior.mean for posterior in posteriors])
        sd = np.sqrt(np.stack([posterior.variance for posterior in posteriors]))
        d = self.n_features_in_
        self.coef_, self.coef_sd_ = mean[:, :d].copy(), sd[:, :d].copy()
        self.intercept_ = mean[:, d].copy() if self.fit_intercept else np.zeros(len(mean))
        self.prior_variance_ = np.array([posterior.model.prior_variance[:d] for posterior in posteriors])
        self.n_iter_ = max(posterior.n_iter for posterior in posteriors)
        self.converged_ = all(posterior.converged for posterior in posteriors)
        self.log_evidence_ = float(arrays.add_in_order(posterior.log_evidence for posterior in posteriors))

    # --------------------------------------------------------------------------------------- predicting

    @predict_by_chunks(lambda self: base.class_shape(self) if len(self.classes_) > 2 else ())
    def decision_function(self, X: Data) -> FloatArray:
        """Latent value that stands for the predictive probability: 0 stands for one half.

        Parameters
        ----------
        X : array_like or sparse matrix, shape (N, D)
            The rows.

        Returns
        -------
        ndarray, shape (N,) or (N, K)
            The f with p(1|f) equal to the probability integrated over the posterior: of the second of two classes, or
            of each of more against the rest. It ranks rows and classes as `predict_proba` does, which the posterior
            mean ``X @ coef_.T + intercept_`` does not: it does not depend on the variance of the posterior.
        """
        values = self._evaluate(X, self._decisions)
        return values[:, 0] if self.classes_.size == 2 else values

    @predict_by_chunks(dtype=base.label_dtype)
    def predict(self, X: Data) -> FloatArray:
        """Most probable class under `predict_proba`.

        Parameters
        ----------
        X : array_like or sparse matrix, shape (N, D)
            The rows.

        Returns
        -------
        ndarray, shape (N,)
            Labels, as in ``classes_``.
        """
        most_probable = self._evaluate(X, self._most_probable)
        return self.classes_[most_probable]

    def _log_probabilities(self, X):
        return self._evaluate(X, base.compute_log_probabilities)

    def _evaluate(self, X, function):
        """Return function(posteriors, design matrix) of new rows, taken block by block."""
        X = self._new_rows(X, **ROW_CHECKS)
        approximation = self.posteriors_[0].model.approximation
        blocks = (X[start : start + BLOCK_ROWS] for start in range(0, X.shape[0], BLOCK_ROWS))
        return np.concatenate([function(self.posteriors_, self._design(block, approximation)) for block in blocks])

    def _most_probable(self, posteriors, design):
        """Return the number of the most probable class of each row."""
        if len(posteriors) > 1:
            return np.argmax(self._decisions(posteriors, design), axis=1)
        # of two classes the mean of f decides, whatever its variance: both links are symmetric
        with np.errstate(over="ignore", invalid="ignore"):
            mean = check_within_range(design @ posteriors[0].mean, "moments of f")
        return (mean > 0).astype(np.intp)

    def _decisions(self, posteriors, design):
        """Return the decision values of every model, (n, models)."""
        return np.stack([self._decision(posterior, design) for posterior in posteriors], axis=1)


class ProbitClassifier(_LinearClassifier):
    """Bayesian linear classifier with the probit link, p(y|f) = Phi(y f), by expectation propagation [M]_.

    {settings}

    See Also
    --------
    LogitClassifier : Its link is the logistic one; slower.
    cavity.GLM : The model underneath, which has other likelihoods.

    Examples
    --------
    >>> from cavity.sklearn import ProbitClassifier
    >>> classifier = ProbitClassifier().fit([[-2.0], [-1.0], [0.5], [2.0]], ["no", "no", "yes", "yes"])
    >>> classifier.predict([[1.0]]).tolist(), classifier.predict_proba([[1.0]]).round(2).tolist()
    (['yes'], [[0.18, 0.82]])
    """

    _likelihood = Probit()

    @staticmethod
    def _decision(posterior, design):
        mean, variance = posterior.predict(design)
        return mean / np.sqrt(1.0 + variance)


class LogitClassifier(_LinearClassifier):
    """Bayesian linear classifier with the logistic link, p(y|f) = 1/(1 + exp(-y f)), by EP [M]_.

    {settings}

    See Also
    --------
    ProbitClassifier : Its link is the probit; faster.
    cavity.GLM : The model underneath, which has other likelihoods.

    Notes
    -----
    scikit-learn's ``LogisticRegression(C=prior_variance)`` finds the mode of nearly the same posterior (its intercept
    has a flat prior). The probabilities here allow for what the data leave open, and are less extreme.

    Examples
    --------
    >>> from cavity.sklearn import LogitClassifier
    >>> classifier = LogitClassifier().fit([[-2.0], [-1.0], [0.5], [2.0]], ["no", "no", "yes", "yes"])
    >>> classifier.predict([[1.0]]).tolist(), classifier.predict_proba([[1.0]]).round(2).tolist()
    (['yes'], [[0.18, 0.82]])
    """

    _likelihood = Logit()

    @staticmethod
    def _decision(posterior, design):
        return np.diff(integrate_both_log_densities(posterior.model.likelihood, *posterior.predict(design)))[:, 0]
