"""Bayesian Gaussian mixtures with the interface of scikit-learn.

References
----------
.. [B] Christopher Bishop, "Pattern recognition and machine learning", Springer, 2006, section 10.2.
.. [BJ] David Blei and Michael Jordan, "Variational inference for Dirichlet process mixtures", Bayesian Analysis 1,
   2006.
"""

from __future__ import annotations

import warnings
from dataclasses import dataclass, replace
from typing import Any, Literal, Self

import numpy as np

from cavity.base import arrays
from cavity.base.errors import ConvergenceWarning, check_within_range
from cavity.base.loop import MAX_ITER_STATUS
from cavity.base.public_objects import ArrayLike
from cavity.jobs.job import Job
from cavity.mean_field import engine
from cavity.mean_field.options import AscentOptions, check_room
from cavity.models.mixture.factors import is_full
from cavity.models.mixture.model import GaussianMixture
from cavity.models.mixture.posterior import build_posterior, draw, get_factors
from cavity.models.mixture.prior import build_prior_state
from cavity.models.mixture.rows import compute_moments, open_rows
from cavity.models.mixture.sweep import MixtureSweeps
from cavity.sklearn.base import check_precision, check_shape
from cavity.sklearn.mixture.base import MixtureEstimator
from cavity.sklearn.mixture.em import factor_precisions, warn_unfinished
from cavity.sklearn.mixture.responsibilities import initialise_responsibilities, sum_rows


def check_numbers(settings):
    """Raise ValueError or TypeError for a number outside its domain, whatever the rows."""
    for name in ("weight_concentration_prior", "mean_precision_prior", "degrees_of_freedom_prior"):
        if getattr(settings, name) is not None:
            arrays.check_number(getattr(settings, name), name, low=0)


def resolve_priors(settings, data, threads):
    """Return the priors of an estimator's settings for data, by the names that `cavity.GaussianMixture` gives them."""
    dim, kind = data.source.n_features, settings.covariance_type
    freedom, mean, square = settings.degrees_of_freedom_prior, settings.mean_prior, settings.covariance_prior
    if freedom is not None and not freedom > dim - 1:
        raise ValueError(
            f"The parameter 'degrees_of_freedom_prior' should be greater than {dim - 1}, but got {freedom:.3f}."
        )
    if mean is not None:
        mean = check_shape(mean, "mean_prior", (dim,), "means")
    if square is not None:
        shapes = {"full": (dim, dim), "tied": (dim, dim), "diag": (dim,), "spherical": ()}
        square = check_precision(square, kind, shapes, "covariance_prior")
    if mean is None or square is None:
        mean, square = _from_rows(mean, square, kind, data, threads)
    concentration, precision = settings.weight_concentration_prior, settings.mean_precision_prior
    return {
        "weight_concentration_prior": 1.0 / settings.n_components if concentration is None else concentration,
        "mean_precision_prior": 1.0 if precision is None else precision,
        "mean_prior": mean,
        "degrees_of_freedom_prior": dim if freedom is None else freedom,
        "covariance_prior": square if np.ndim(square) else float(square),
    }


def _from_rows(mean, square, kind, data, threads):
    """Return the mean and the covariance of the rows for those that are None."""
    found_mean, found_square = compute_moments(data, threads, is_full(kind))
    if square is None:
        if not data.n_samples > 1.0:
            raise ValueError(
                "covariance_prior=None is the covariance of X, which needs weights that sum to more than one, got "
                f"{data.n_samples:g}; give covariance_prior"
            )
        check_within_range(found_square, "the squares of X")
        square = np.mean(found_square) if kind == "spherical" else found_square
    return found_mean if mean is None else mean, square


WEIGHT_PRIORS = {"dirichlet_process": "stick_breaking", "dirichlet_distribution": "dirichlet"}


@dataclass(kw_only=True, eq=False, repr=False)
class BayesianGaussianMixture(MixtureEstimator):
    """A Gaussian mixture with priors, by variational inference [B]_, with scikit-learn's settings and attributes.

    It is `cavity.GaussianMixture`: the models that the covariance types promise, a lower bound with all constants,
    accelerated fits, predictive densities, streams. No array of N x K is made.

    Parameters
    ----------
    n_components : int, default 1
        K, the largest number of components; some stay empty.
    covariance_type : {"full", "tied", "diag", "spherical"}, default "full"
        A matrix for each component, one matrix for all, or variances: of every column, or one for all columns. With
        "diag" and "spherical" nan stands for a value that was not seen, in fits and predictions; starts have the mean
        of its column in its place.
    tol : float, default 1e-3
        Stopping rule: the predicted remaining gain of the lower bound is at most tol nats (of the sum over the rows).
        A fit that goes on from the last one (`warm_start`) stops, too, if the bound rose by less than tol since.
    reg_covar : float, default 1e-6
        Added to the diagonal of the prior's inverse scale, `covariance_prior`.
    max_iter : int, default 100
        Most passes over the rows; with 0, the mixture stays where it started.
    n_init : int, default 1
        Number of starts, of which the one with the largest bound counts.
    init_params : {"kmeans", "k-means++", "random", "random_from_data"}, default "kmeans"
        Responsibilities to start from: those of k-means clusters, of K rows that k-means++ or chance chose, or drawn.
    weight_concentration_prior_type : {"dirichlet_process", "dirichlet_distribution"}, default "dirichlet_process"
        Prior of the weights: broken from a stick [BJ]_, or a Dirichlet distribution.
    weight_concentration_prior : float, optional
        Its parameter: small ones leave more components empty; 1/K if None.
    mean_precision_prior : float, optional
        How many observations the prior means are worth; 1 if None.
    mean_prior : array_like (D,), optional
        Prior mean of the component means; the mean of X if None.
    degrees_of_freedom_prior : float, optional
        Of the precisions' prior, above D - 1; D if None.
    covariance_prior : float or array_like, optional
        Inverse scale of the precisions' prior: (D, D) full and tied, (D,) diag, a number spherical. The covariance of
        X, its diagonal or its mean diagonal if None.
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
    posterior_ : GaussianMixturePosterior
        What the attributes below are taken from.
    weights_ : ndarray (K,)
        Expected weights of the components.
    means_ : ndarray (K, D)
        Expected means.
    covariances_ : ndarray
        Inverses of the expected precisions: (K, D, D) full, (D, D) tied, (K, D) diag, (K,) spherical.
    precisions_, precisions_cholesky_ : ndarray
        The expected precisions U U' and their factors U (upper triangular), of the same shape.
    weight_concentration_ : ndarray (K,) or tuple of two
        Dirichlet parameters, or both Beta parameters of every stick. The last stick is all that is left, its second
        parameter 0.
    mean_precision_ : ndarray (K,)
        How many observations each mean is known from, prior included.
    degrees_of_freedom_ : ndarray (K,) or float
        Of the precisions; a number for tied ones.
    weight_concentration_prior_, mean_precision_prior_, mean_prior_, degrees_of_freedom_prior_, covariance_prior_
        The priors, given or from X, without `reg_covar`.
    lower_bound_ : float
        Lower bound on the log evidence in nats, with all constants: it compares across K, types and priors.
    lower_bounds_ : list of float
        The bound after every pass.
    n_iter_ : int
        Passes over the rows.
    converged_ : bool
        Whether the stopping rule was met.
    n_features_in_ : int
        Columns of X.
    feature_names_in_ : ndarray (D,)
        Their names, if X had names.

    See Also
    --------
    GaussianMixture : Maximum likelihood.
    cavity.GaussianMixture : The model underneath; it reads files larger than memory.

    Notes
    -----
    scikit-learn's "tied", "diag" and "spherical" fit a Wishart distribution for each component, with its mean held to
    the type; its degrees of freedom count rows where the models here count information about the precision: N rows
    for tied ones (scikit-learn: N/K), D times as many for spherical ones.

    References
    ----------
    .. [B] Christopher Bishop, "Pattern recognition and machine learning", Springer, 2006, section 10.2.
    .. [BJ] David Blei and Michael Jordan, "Variational inference for Dirichlet process mixtures", Bayesian Analysis 1,
       2006.

    Examples
    --------
    >>> import numpy as np
    >>> from cavity.sklearn import BayesianGaussianMixture
    >>> rng = np.random.default_rng(0)
    >>> X = rng.normal(size=(600, 2)) + rng.choice([-4.0, 4.0], size=(600, 1))
    >>> mixture = BayesianGaussianMixture(n_components=3, random_state=0).fit(X)
    >>> mixture.weights_.round(2).tolist(), mixture.converged_
    ([0.52, 0.48, 0.0], True)
    >>> mixture.predict([[-3, -3], [5, 4]]).tolist()
    [1, 0]
    """

    n_components: int = 1
    covariance_type: Literal["full", "tied", "diag", "spherical"] = "full"
    tol: float = 1e-3
    reg_covar: float = 1e-6
    max_iter: int = 100
    n_init: int = 1
    init_params: Literal["kmeans", "k-means++", "random", "random_from_data"] = "kmeans"
    weight_concentration_prior_type: Literal["dirichlet_process", "dirichlet_distribution"] = "dirichlet_process"
    weight_concentration_prior: float | None = None
    mean_precision_prior: float | None = None
    mean_prior: ArrayLike | None = None
    degrees_of_freedom_prior: float | None = None
    covariance_prior: ArrayLike | None = None
    random_state: Any = None
    warm_start: bool = False
    verbose: int = 0
    verbose_interval: int = 10
    n_threads: int | None = None

    def __sklearn_tags__(self):
        tags = super().__sklearn_tags__()
        tags.input_tags.allow_nan = self._takes_gaps()
        return tags

    def _takes_gaps(self):
        return self.covariance_type in ("diag", "spherical")

    def _check_settings(self):
        super()._check_settings()
        arrays.check_choice(
            self.weight_concentration_prior_type, "weight_concentration_prior_type", tuple(WEIGHT_PRIORS)
        )
        check_numbers(self)

    def _process(self):
        """Return whether the weights are broken from a stick."""
        return self.weight_concentration_prior_type == "dirichlet_process"

    # ------------------------------------------------------------------------------------------ fitting

    def _started(self):
        """Return whether the fit goes on from the last one, which had the same model."""
        if not super()._started():
            return False
        if isinstance(self.weight_concentration_, tuple) != self._process():
            raise ValueError(
                "warm_start goes on from the last fit, which had another weight_concentration_prior_type: use "
                "warm_start=False"
            )
        return True

    def _fit_rows(self, X, weight, random_state, threads):
        """Fit the model of `cavity.GaussianMixture` from scikit-learn's starts."""
        data = open_rows(X, weight, threads, self.n_components, self.covariance_type)
        resolved = resolve_priors(self, data, threads)
        vars(self).update({f"{name}_": value for name, value in resolved.items()})
        square = np.asarray(resolved["covariance_prior"])
        ridge = self.reg_covar * (np.eye(len(square)) if square.ndim == 2 else 1.0)
        kinds = self.covariance_type, WEIGHT_PRIORS[self.weight_concentration_prior_type]
        check_room(self.n_components, data.source.n_features)
        model = GaussianMixture(self.n_components, *kinds, **resolved | {"covariance_prior": square + ridge})
        prior = build_prior_state(model, data)
        sweeps = MixtureSweeps(prior, data, threads)
        started = self._started()

        def climb(report):
            if started:  # after the last sweep of the last fit, whose rows had another scaling
                start = self._next[0].rescale(self._next[1], data.scaling)
            else:
                start = self._first(prior, data, X, weight, random_state, threads)
            done = self._climb(sweeps, start, report)
            return done.elbo, done.converged, done

        _, converged, best = self._best_start(climb, started)
        last = self.lower_bound_ if started else -np.inf
        posterior = build_posterior(model, sweeps, best, **best.outcome())
        self._keep_posterior(posterior, X.dtype)
        self._next = best.image, data.scaling
        self.converged_ = converged or 0.0 <= self.lower_bound_ - last < self.tol
        return ""

    def _first(self, prior, data, X, weight, random_state, threads):
        """Return the state that initial responsibilities lead to, means of columns in place of missing values."""
        if data.missing:
            X = np.where(np.isnan(X), np.nanmean(X, axis=0), X)
            data = open_rows(X, weight, threads, self.n_components, self.covariance_type, scaling=data.scaling)
        resp = initialise_responsibilities(self.init_params, X, self.n_components, weight, random_state)
        mean, sums = sum_rows(data, resp, is_full(self.covariance_type))
        return replace(prior, factors=replace(prior.factors, mean=mean)).update(prior, sums)

    def _climb(self, sweeps, start, report):
        """Return how coordinate ascent ended; report(n_iter, bound) is called after every pass."""
        if self.max_iter == 0:
            nothing_done = dict(elbo=-np.inf, status=MAX_ITER_STATUS, n_iter=0, trace={"elbo": np.empty(0)})
            nothing_done |= dict(contraction=np.nan, predicted_gap=np.inf)
            return engine.MeanFieldFit(state=start, image=start, **nothing_done)
        tol = self.tol / sweeps.n_samples
        job = Job.checked((lambda event: report(event.n_iter, event.objective)) if self.verbose else None)
        options = AscentOptions(accelerate=True, max_iter=self.max_iter, tol=tol, job=job)
        return engine.ascend(sweeps, start, options)

    def _keep_posterior(self, posterior, dtype):
        """Set the attributes of a posterior."""
        self.posterior_ = posterior
        covariances = np.asarray(posterior.covariance)
        root = factor_precisions(covariances, self.covariance_type)
        self._set_mixture(dtype, posterior.weights, posterior.mean, covariances, root)
        self.mean_precision_ = posterior.mean_precision
        freedom = posterior.degrees_of_freedom
        self.degrees_of_freedom_ = freedom[:, 0] if np.ndim(freedom) == 2 else freedom
        self.weight_concentration_ = self._concentration(posterior)
        self.lower_bound_, self.lower_bounds_ = posterior.elbo, posterior.trace["elbo"].tolist()
        self.n_iter_, self.converged_ = posterior.n_iter, posterior.converged

    def _concentration(self, posterior):
        """Return the parameters of the weights as scikit-learn has them: of K sticks, the last one whole."""
        concentration = posterior.weight_concentration
        if not self._process():
            return concentration
        first, second = concentration.T
        last = second[-1] - self.weight_concentration_prior_ if len(second) else posterior.n_samples
        return np.append(first, 1.0 + last), np.append(second, 0.0)

    def partial_fit(self, X: ArrayLike, y: None = None, sample_weight: ArrayLike | None = None) -> Self:
        """Take in more rows: a fit with the posterior so far as the prior.

        Parameters
        ----------
        X : array_like, shape (N, D)
            The new rows; in the first call at least K.
        y : None
            Not used; there for pipelines.
        sample_weight : array_like, shape (N,), optional
            A row of weight w counts as w copies; 0 leaves it out.

        Returns
        -------
        self : object
            The estimator, fitted to the new rows too; ``lower_bound_`` is that of the new rows given the old.

        Raises
        ------
        ValueError, TypeError
            For data or settings that make no sense, naming them, before any work.

        Warns
        -----
        ConvergenceWarning
            If ``max_iter`` was reached first.

        Notes
        -----
        The first call is `fit`: it fixes the model and its priors, which later changes of settings leave as they are.
        """
        if not hasattr(self, "posterior_"):
            return self.fit(X, sample_weight=sample_weight)
        X, weight = self._checked_rows(X, sample_weight, least=1, reset=False)
        total = float(len(X) if weight is None else np.sum(weight))
        options = dict(max_iter=max(self.max_iter, 1), tol=self.tol / total, n_threads=self.n_threads)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ConvergenceWarning)  # it is said below
            posterior = self.posterior_.update(X, sample_weight=weight, **options)
        self._keep_posterior(posterior, X.dtype)
        self._next = get_factors(posterior)
        if not self.converged_:
            warn_unfinished()
        return self

    # ------------------------------------------------------------------------------------------ judging

    def _judge(self, X, criterion):
        return getattr(self.posterior_, criterion)(X)

    def _drawn(self, n_samples, rng):
        generator = np.random.default_rng(rng.randint(2**31 - 1))
        rows, component = draw(self.posterior_, n_samples, generator)
        order = np.argsort(component, kind="stable")
        return rows[order], component[order]
