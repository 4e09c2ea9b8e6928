"""The posterior of the weights of a GLM: moments, predictions, updates."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any, ClassVar, Literal

import numpy as np

from cavity import likelihoods
from cavity.base import arrays
from cavity.base.errors import check_within_range
from cavity.base.lazy_scipy import linalg
from cavity.base.observation_digest import ObservationDigest, join_digests
from cavity.base.public_objects import ArrayLike, Data, FloatArray, Seed
from cavity.base.records import TRUTH_VALUE, Array, Nullable, Part, declare, names, one_of
from cavity.base.results import declare_common, format_count, format_table, list_name_rows
from cavity.base.rows import check_n_features
from cavity.distributions.gaussian import Gaussian
from cavity.ep.options import Options
from cavity.ep.weights import WeightRoot
from cavity.models.average_effects import AverageEffects
from cavity.models.coefficients import ColumnCoefficients, TermBayesFactors
from cavity.models.formula.design import Coding
from cavity.models.formula.evaluation import INTERCEPT_NAME
from cavity.models.formula.saved import CODING_SETTING
from cavity.models.formula.table import complete_new_rows, read_new_rows
from cavity.models.glm.integrated_weights import IntegratedWeights
from cavity.models.glm.problem import GLMProblem
from cavity.models.glm.saved import MODEL_SETTINGS, POSTERIOR_RECORD
from cavity.models.glm.scaled_columns import ScaledColumns
from cavity.models.glm.solution import match_weights, mix_weights, solve
from cavity.models.hyperparameters import format_hyperparameters_table
from cavity.models.integration import INTEGRATION_DESCRIPTION, INTEGRATION_PART, Integration
from cavity.models.latent_posterior import ROW_WEIGHTS, SitesPosterior
from cavity.models.linear.evidence import find_weight_gradient
from cavity.models.linear.prior import Prior
from cavity.models.linear.settings import describe_settings
from cavity.models.point_moments import PointMoments
from cavity.models.predictive_densities import integrate_log_density
from cavity.models.row_predictions import name_moments, predict_rows
from cavity.sources.features import open_features
from cavity.sources.scratch import MOST_IN_MEMORY, ScratchVector

if TYPE_CHECKING:
    from cavity.models.glm.model import GLM


FITS_WITHOUT_SITES = f"not ADF, not stochastic, not of more than {MOST_IN_MEMORY} rows in files"
NO_SITES = f"{FITS_WITHOUT_SITES}; not of fit_many, where a fit of that response alone has them"


def make_posterior(solution, method, before=None, **labels):
    """Return the posterior of a solution; `before` is the posterior that an update started from."""
    problem, fit, weights = solution.problem, solution.fit, solution.weights
    rows, likelihood = problem.rows, problem.model.likelihood
    log_p_known, total = rows.log_p_known(likelihood)
    loo = moved = tau = rho = None
    if method == "ep" and fit.loo is not None:
        moved = None if fit.influence is None else rows.scattered(fit.influence, 0.0)
        loo = rows.scattered(fit.loo, np.nan)
        if rows.f_known is not None:
            loo[rows.f_known] = log_p_known
        if rows.left_out.any():
            new = rows.part(rows.left_out)
            offset = np.zeros(new.n) if new.offset is None else new.offset
            loo[rows.left_out] = integrate_log_density(likelihood, new.y, *weights.predict(new.X, offset))
    if method == "ep" and fit.tau is not None and not isinstance(fit.tau, ScratchVector):
        tau, rho = rows.scattered(fit.tau, np.nan), rows.scattered(fit.rho, np.nan)
    digest, integration = ObservationDigest.of(rows.y, likelihood), solution.integration
    if integration is not None:
        weights = match_weights(mix_weights(integration))
    return GLMPosterior(
        model=problem.model,
        mean=weights.mean,
        variance=weights.variance,
        log_evidence=fit.log_evidence + (0.0 if before is None else before.log_evidence) + total,
        n_samples=rows.n + (0 if before is None else before.n_samples),
        method=method,
        trace=fit.trace,
        hyperparameters=solution.hyperparameters if before is None else before.hyperparameters,
        _covariance=weights.covariance,
        _loo=loo,
        _tau=tau,
        _rho=rho,
        _influence=moved,
        _row_weights=None if loo is None else rows.unequal_weights,
        observation_digest=digest if before is None else join_digests(before.observation_digest, digest),
        integration=integration,
        **fit.outcome(solution.searched, before),
        **labels,
    )


@dataclass(frozen=True, eq=False, repr=False)
class GLMPosterior(
    IntegratedWeights, ScaledColumns, AverageEffects, TermBayesFactors, ColumnCoefficients, SitesPosterior
):
    """The approximate posterior of the weights of a `GLM`.

    Notes
    -----
    With the settings of `model` a fit of the same rows gives the same posterior. Where an intercept was added they are
    of the weights, that of the intercept first, and rows are those that the weights apply to. `centre` and `spread` are
    None where the weights belong to the columns as they are. `hyperparameters` has standard errors.

    `residual` is the distance of the sites from their fixed point. In `trace`, "learning" has the log evidence of every
    fixed point of a search, and "seconds" when it was known, since the begin; files do not keep both.

    `predict`, `update` and all other methods with rows take columns like those of X and scale them as the fit did.
    """

    model: GLM = declare(Part(MODEL_SETTINGS), "The settings in numbers.")
    mean: FloatArray = declare(Array("D"), "Posterior mean of the weights.")
    variance: FloatArray = declare(Array("D", "nonnegative"), "Posterior variance of each weight.")
    method: str = declare(one_of("ep", "adf"), 'How the last rows were assimilated: "ep" or "adf".')
    _covariance: WeightRoot | None = declare(Part(WeightRoot, "covariance_"))
    columns: tuple[str, ...] | None = declare_common("columns", Nullable(names("C")))
    roles: dict[str, Any] | None = declare_common("roles")
    centre: FloatArray | None = declare(Array("C"), "What is subtracted from each column of new rows.", None)
    spread: FloatArray | None = declare(Array("C", "positive"), "What columns are then divided by.", None)
    intercept: bool = declare(TRUTH_VALUE, "Whether the first weight is that of a column of ones.", False)
    has_offset: bool = declare_common("has_offset")
    chosen: tuple[Any, ...] | None = declare_common("chosen")
    coding: Coding | None = declare(CODING_SETTING, "The formula, and the categories of its columns.", None)
    _row_weights: FloatArray | None = declare(ROW_WEIGHTS, default=None)
    observation_digest: ObservationDigest | None = declare_common("observation_digest")
    integration: Integration | None = declare(INTEGRATION_PART, INTEGRATION_DESCRIPTION, None)

    kind: ClassVar[str] = "glm"
    record: ClassVar[Any] = POSTERIOR_RECORD

    def __repr__(self) -> str:
        return format_table(
            f"GLMPosterior: {type(self.model.likelihood).__name__}, {format_count(len(self.mean), 'weight')}, "
            f"{format_count(self.n_samples, 'row')}",
            [
                *describe_settings(self),
                *list_name_rows(self),
                ("log_evidence", f"{self.log_evidence:.6f}"),
                *([] if self.integration is None else [("integration", self.integration.describe())]),
                ("mean", np.array2string(self.mean, precision=4, threshold=8)),
                ("sd", np.array2string(np.sqrt(self.variance), precision=4, threshold=8)),
                self._outcome_row(self.method.upper()),
            ],
        )

    def _below(self, level):
        if self._integrated_names:
            return self.integration.table(level)
        return format_hyperparameters_table(self.hyperparameters, self.model.likelihood, level, self.classes)

    @cached_property
    def covariance(self) -> FloatArray:
        """Posterior covariance of the weights, (D, D); only of the full approximation."""
        if self._covariance is None:
            raise AttributeError("approximation='diagonal' keeps variances only, no covariance")
        root = self._covariance.full_root()
        with np.errstate(over="ignore", invalid="ignore"):
            squares = np.diag(root**2) if root.ndim == 1 else root @ root.T
        return arrays.make_read_only(check_within_range(squares, "covariance: its entries"))

    @property
    def loo_log_density(self) -> FloatArray:
        """log p(y_i | the other rows) for every row, (N,): free with EP, from the cavities.

        A row of weight above one leaves one of its copies out; for a row of weight zero, which was not used, it is the
        predictive density.

        Raises
        ------
        ValueError
            If the fit has none (ADF, stochastic EP, `fit_many`), or if a cavity without a row is improper, naming
            the row.
        """
        if self._loo is None:
            raise ValueError(f"leave-one-out densities need a fit by EP with the sites kept ({NO_SITES})")
        return self._proper_loo()

    def _influences(self):
        """The influences of the rows, and the effective number of parameters, None if the likelihood is Gaussian."""
        if self._covariance is None:
            return None, len(self.mean)
        if isinstance(self.model.likelihood, likelihoods.Gaussian):
            return self._influence, None
        prior = Prior.of(self.model.prior_mean, self.model.prior_variance, len(self.mean))
        if prior.variance.ndim < 2:
            return self._influence, len(self.mean) - float(np.sum(self.variance / prior.variance))
        root = linalg.solve_triangular(prior.root, self._covariance.full_root(), lower=True)
        return self._influence, len(self.mean) - float(np.sum(root**2))

    @property
    def sites(self) -> Any:
        """The sites as a batch of Gaussians in f, (N,); negative precisions are legitimate."""
        if self._tau is None:
            raise ValueError(f"sites are kept by fits with EP and approximation='full' only ({NO_SITES})")
        return Gaussian(*(np.nan_to_num(values, nan=0.0) for values in (self._tau, self._rho)))  # 0 for rows not in use

    @property
    def log_evidence_gradient(self) -> Any:
        """Derivative of log_evidence in the log of the prior variance: (D,) if that is a vector, else a number."""
        if self._covariance is None or self.method != "ep":
            raise ValueError("the gradient needs a fit by EP with approximation='full'")
        prior = Prior.of(self.model.prior_mean, self.model.prior_variance, len(self.mean))
        difference = self.mean - prior.mean
        if prior.variance.ndim < 2:
            slopes = find_weight_gradient(prior.variance, difference, self.variance)
            return slopes if prior.variance.ndim else float(np.sum(slopes))
        # (|C^-1 B|^2 + |C^-1 (mean - prior mean)|^2 - D)/2, C and B the roots of prior and posterior
        spread = linalg.solve_triangular(prior.root, self._covariance.full_root(), lower=True)
        shift = linalg.solve_triangular(prior.root, difference, lower=True)
        return float(0.5 * (np.sum(spread**2) + np.sum(shift**2) - len(difference)))

    @predict_rows(lambda self, **_: (2,), pair=True, columns=name_moments)
    def predict(
        self,
        X: Data,
        *,
        offset: ArrayLike | None = None,
        exposure: ArrayLike | None = None,
        noise: bool = False,
        trials: ArrayLike | None = None,
        missing: Literal["raise", "nan"] = "raise",
        as_frame: bool = False,
    ) -> tuple[FloatArray, FloatArray]:
        """Predict the latent value f = x'w + offset of new rows, or a new observation y: mean and variance.

        Parameters
        ----------
        X : array_like (n, D), data frame, path, Source, or scipy.sparse for approximation="diagonal"
            Rows; those of files are read block by block. The columns of a table are found by their names, in whatever
            order. Where the posterior has `centre`, `spread` or `intercept`, they are the columns before scaling,
            without a column of ones.
        offset : float or array_like (n,), optional
            Known part of f; required where the fit had some, 0 for none.
        exposure : float or array_like (n,), optional
            For counts: what their mean is proportional to, as time or area. Its log is added to the offset.
        noise : bool, default False
            Whether to predict a new observation y instead of f.
        trials : int, array_like (n,) or str, optional
            For Binomial: the number of trials of each new observation, or the name of their column; by default 1.
        missing : {"raise", "nan"}, default "raise"
            What is done about rows without a value in a column that is read: refuse them, or return NaN in these rows.
        as_frame : bool, default False
            Whether to return a pandas data frame with the columns mean and sd, and the index of X.

        Returns
        -------
        mean, variance : ndarray (n,)
            Of f, or of y, under the posterior; or a pandas.DataFrame. Lazy dask arrays where X is a collection of dask.

        Raises
        ------
        ValueError, TypeError
            For bad rows; for columns that are missing or unknown, naming them; for noise=True where y has classes (see
            predict_proba), or no mean or variance.
        OverflowError
            If moments leave the range of float64.

        Examples
        --------
        >>> import cavity
        >>> posterior = cavity.GLM("poisson", prior_variance=1.0).fit([[1.0], [1.0], [1.0]], [3, 5, 4])
        >>> [round(float(moment[0]), 2) for moment in posterior.predict([[1.0]], noise=True)]
        [3.59, 4.75]
        """
        return self._observed(X, self._latent(X, offset, exposure), noise, trials)

    def _latent(self, X, offset, exposure):
        return self._latent_of(self._open(X, offset, exposure))

    def _latent_of(self, dataset):
        X = self._features(dataset)
        known_offset = self._known_offset(dataset)
        known_offset = np.zeros(X.shape[0]) if known_offset is None else known_offset
        arguments = known_offset, self._scale if self._scales_rows else None
        if not self._integrated_names:
            return self._weights.predict(X, *arguments)
        return PointMoments(
            self.integration.weights, self._point_likelihoods, *self._weights.predict_at_points(X, *arguments)
        )

    def _open_arguments(self, X, arguments, **options):
        if self.coding is None:
            return super()._open_arguments(X, arguments, **options)
        ones = {"intercept": INTERCEPT_NAME in self.columns, "n_features": self.n_features, "in_blocks": True}
        return read_new_rows(self.coding, X, arguments, self.roles, **ones)[0]

    def _complete_rows(self, X, arguments):
        if self.coding is None:
            return super()._complete_rows(X, arguments)
        return complete_new_rows(self.coding, X, arguments, self.roles)

    @property
    def _coding(self):
        return self.coding

    def _linear_rows(self, X, offset=None, exposure=None):
        dataset = self._open(X, offset, exposure).in_memory()
        features = self._features(dataset)
        return self._scale(features) if self._scales_rows else features, self._known_offset(dataset), None

    def _linear_moments(self, matrix, offset):
        return self._weights.predict(matrix, np.zeros(matrix.shape[0]) if offset is None else offset)

    def _features(self, dataset):
        X = open_features(dataset, self.model.approximation)
        check_n_features(X.shape[1], self.n_features)
        return X

    @property
    def _independent(self):
        return self._covariance is None

    def sample(self, n: int, rng: Seed) -> FloatArray:
        """Draw weights from the posterior.

        Parameters
        ----------
        n : int
            Number of draws.
        rng : seed or numpy.random.Generator
            Source of randomness; a seed gives the same bits again.

        Returns
        -------
        ndarray (n, D)
            The draws.
        """
        n, rng = arrays.check_integer(n, "n", low=0), arrays.make_generator(rng)
        with np.errstate(over="ignore", invalid="ignore"):
            return check_within_range(self._weights.sample(n, rng), "sample: the draws")

    def update(
        self,
        X: Data,
        y: ArrayLike | None = None,
        *,
        event: ArrayLike | None = None,
        offset: ArrayLike | None = None,
        exposure: ArrayLike | None = None,
        sample_weight: ArrayLike | None = None,
    ) -> GLMPosterior:
        """Update the posterior with new rows by ADF.

        Parameters
        ----------
        X : array_like (n, D), data frame, path, Source, or scipy.sparse for approximation="diagonal"
            Rows, as `predict` takes them.
        y : array_like (n,) or str, optional
            Their observations. What the fit took from columns of X, or its formula, is found there by its name,
            unless it is given.
        event : array_like (n,) or str, optional
            Of times y: 1 or True where the event was observed, 0 or False where it was not until then. Likelihoods of
            times take bounds (N, 2) as well, lower and upper, which need no events.
        offset : array_like (n,) or str, optional
            Known part of f.
        exposure : array_like (n,) or str, optional
            For counts: what their mean is proportional to, as time or area. Its log is added to the offset.
        sample_weight : array_like (n,) or str, optional
            A row of weight w counts as w copies; 0 leaves it out.

        Returns
        -------
        GLMPosterior
            A new posterior; this one stays as it is. Its log evidence is that of all rows.

        Notes
        -----
        With Gaussian noise this is exact. With other likelihoods the result depends on the order of the rows: next to
        nothing where they come in random order, but by posterior sds, and by tens of nats of log evidence, where
        coefficients drift or rows are sorted. Then shuffle the rows, or fit them all at once.
        """
        self._refuse_update()
        arguments = {"y": y, "event": event, "offset": offset, "exposure": exposure, "sample_weight": sample_weight}
        rows, observations = self._observe_rows(X, arguments)
        names = {"columns": self.columns or observations.names, "roles": observations.roles}
        root = np.sqrt(self.variance) if self._covariance is None else self._covariance.full_root()
        problem = GLMProblem.of(self.model, rows).with_prior(self.mean, self.variance, root)
        run = Options(n_threads=1)
        with run.open(self.model, {}) as threads:
            solution = solve(problem, "adf", run, threads, before=self._covariance)
        labels = {name: getattr(self, name) for name in ("classes", "centre", "spread", "intercept")}
        return make_posterior(solution, "adf", self, has_offset=self.has_offset or rows.has_offset, **names, **labels)
