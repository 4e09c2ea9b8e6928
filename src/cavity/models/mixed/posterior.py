"""The posterior of a mixed model: effects, variance components, predictions, rows or groups left out."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from cavity import likelihoods
from cavity.base.errors import check_within_range
from cavity.base.labels import encode_new_labels
from cavity.base.observation_digest import ObservationDigest, join_digests
from cavity.base.public_objects import ArrayLike, Data, FloatArray
from cavity.base.records import FINITE_REAL, Array, Nullable, Part, declare, integer
from cavity.base.results import declare_common, format_count, format_table, list_name_rows, shorten_repr
from cavity.base.rows import check_observations
from cavity.distributions.gaussian import Gaussian
from cavity.ep.options import Options
from cavity.models.average_effects import AverageEffects
from cavity.models.coefficients import TermBayesFactors
from cavity.models.integration import INTEGRATION_DESCRIPTION, INTEGRATION_PART, Integration
from cavity.models.latent_posterior import ROW_WEIGHTS, SitesPosterior
from cavity.models.mixed.arviz_draws import DrawsForArviz
from cavity.models.mixed.checked_sites import ChecksApproximation
from cavity.models.mixed.effect_layout import select_rows
from cavity.models.mixed.effect_tables import NamedEffects
from cavity.models.mixed.effects import Effects, EffectsMixture
from cavity.models.mixed.groups_out import OF_ROWS, LeavesGroupsOut
from cavity.models.mixed.level_predictions import LevelPredictions
from cavity.models.mixed.row_readers import RowReader
from cavity.models.mixed.saved import MODEL_SETTINGS, POSTERIOR_RECORD
from cavity.models.mixed.solution import update_effects
from cavity.models.observations import Observations
from cavity.models.point_moments import PointMoments
from cavity.models.predictive_densities import integrate_log_density

if TYPE_CHECKING:
    from cavity.models.mixed.model import MixedGLM


def make_posterior(solution, reader, **labels):
    """Return the posterior of a solution; new rows are read by the `Reader`."""
    problem, fit, effects = solution.problem, solution.fit, solution.weights
    rows = problem.rows
    loo = rows.scattered(fit.loo, np.nan)
    if rows.left_out.any():
        out = rows.part(rows.left_out)
        values = [term.values(rows.left_out) for term in problem.terms]
        moments = effects.predict(problem.layout.rows(out.X, values), out.offset)
        loo[rows.left_out] = integrate_log_density(problem.model.likelihood, out.y, *moments)
    covariances = {
        term.name: term.describe_setting(setting) for term, setting in zip(problem.terms, problem.settings, strict=True)
    }
    posterior = MixedGLMPosterior(
        model=replace(problem.model, effect_covariances=covariances),
        log_evidence=fit.log_evidence,
        n_samples=rows.n,
        effective_parameters=fit.belief.trace,
        trace=fit.trace,
        hyperparameters=solution.hyperparameters,
        has_offset=rows.has_offset,
        _reader=reader,
        _loo=loo,
        _tau=rows.scattered(fit.tau, 0.0),
        _rho=rows.scattered(fit.rho, 0.0),
        _influence=rows.scattered(fit.influence, 0.0),
        _loo_mean=None if fit.loo_moments is None else rows.scattered(fit.loo_moments[0], np.nan),
        _loo_variance=None if fit.loo_moments is None else rows.scattered(fit.loo_moments[1], np.nan),
        _row_weights=rows.unequal_weights,
        n_sites=problem.sites.rows.n,
        observation_digest=ObservationDigest.of(rows.y, problem.model.likelihood),
        **collect_moments(solution.joint, problem.layout.n_fixed),
        _mode_effects=effects,
        integration=solution.integration,
        **fit.outcome(solution.searched),
        **labels,
    )
    vars(posterior).update(_effects=solution.joint)  # a cached property
    return posterior


def mix_effects(integration, mode):
    """Return the mixture of effects at the points of an integral, on the pattern of those at the mode."""
    points = []
    for number in range(len(integration.weights)):
        pins = {} if integration.pin_precisions is None else {"pin_precisions": integration.pin_precisions[number]}
        points.append(replace(mode, mean=integration.means[number], entries=integration.entries[number], **pins))
    return EffectsMixture(points, integration.weights)


def collect_moments(effects, d):
    """Return the moments of the fixed effects, the first d, by the names of a posterior's fields."""
    mean, variance = effects.mean[:d], effects.variance[:d]
    return {"mean": mean, "variance": variance, "covariance": effects.covariance(np.arange(d))}


@dataclass(frozen=True, eq=False, repr=False)
class MixedGLMPosterior(
    LevelPredictions,
    AverageEffects,
    TermBayesFactors,
    LeavesGroupsOut,
    ChecksApproximation,
    DrawsForArviz,
    NamedEffects,
    SitesPosterior,
):
    """The approximate posterior of all effects of a `MixedGLM`.

    Notes
    -----
    As that of `GLMPosterior`, `model` gives the same posterior of the same rows unless an intercept was added. The
    evidence has fixed and random effects integrated out; `covariance` takes the uncertainty of the random effects into
    account.

    `effective_parameters` is the trace of X'RX times the posterior covariance, R the precisions of the sites, at most
    the number of effects. It is that number less the trace of the precision of the prior of the fit times the
    posterior covariance, which is what it is after updates, too; negative where outliers under heavy tails make the
    posterior wider than the prior.

    `hyperparameters` are standard deviations, correlations and parameters of the likelihood, with standard errors from
    the curvature of the log evidence; see `variance_components`. In `trace`, "learning" has the log
    evidence plus log prior of every fixed point of the search, and "seconds" when it was known, since the begin; files
    do not keep both.
    """

    model: MixedGLM = declare(Part(MODEL_SETTINGS), "The settings in numbers: `effect_covariances` of all terms.")
    mean: FloatArray = declare(Array("d"), "Posterior mean of the fixed effects.")
    variance: FloatArray = declare(Array("d", "nonnegative"), "Posterior variance of each fixed effect.")
    covariance: FloatArray = declare(Array("d d", "symmetric"), "Posterior covariance of the fixed effects.")
    effective_parameters: float = declare(FINITE_REAL, "How many of all effects the data have determined.")
    _mode_effects: Effects = declare(Part(Effects, "effects_"))
    _reader: RowReader
    has_offset: bool = declare_common("has_offset")
    chosen: tuple[Any, ...] | None = declare_common("chosen")
    _loo_mean: FloatArray | None = declare(Array("N", "any"), default=None)
    _loo_variance: FloatArray | None = declare(Array("N", "any"), default=None)
    _row_weights: FloatArray | None = declare(ROW_WEIGHTS, default=None)
    observation_digest: ObservationDigest | None = declare_common("observation_digest")
    n_sites: int | None = declare(Nullable(integer(1)), "Rows that differ: equal ones have one site together.", None)
    integration: Integration | None = declare(INTEGRATION_PART, INTEGRATION_DESCRIPTION, None)

    kind: ClassVar[str] = "mixed"
    record: ClassVar[Any] = POSTERIOR_RECORD

    def __repr__(self) -> str:
        lines = [("likelihood", shorten_repr(self.model.likelihood))]
        for term in self._reader.terms:
            sd = np.sqrt(np.diagonal(self.model.effect_covariances[term.name]))
            sds = ", ".join(f"{value:.4g}" for value in sd)
            lines.append((term.name, f"{format_count(len(term.levels), 'level')}, sd {sds}"))
        for term in self._reader.structured:
            values = self.model.effect_covariances[term.name].items()
            shown = ", ".join(f"{name} {value:.4g}" for name, value in values)
            lines.append((term.name, f"{format_count(term.size, 'effect')}, {shown}"))
        return format_table(
            f"MixedGLMPosterior: {type(self.model.likelihood).__name__}, {format_count(len(self.mean), 'fixed effect')}"
            f", {format_count(self._layout.size - len(self.mean), 'random effect')}, "
            f"{format_count(self.n_samples, 'row')}",
            [
                *lines,
                *list_name_rows(self),
                ("log_evidence", f"{self.log_evidence:.6f}"),
                *([] if self.integration is None else [("integration", self.integration.describe())]),
                ("mean", np.array2string(self.mean, precision=4, threshold=8)),
                ("sd", np.array2string(self.sd, precision=4, threshold=8)),
                self._outcome_row("EP"),
            ],
        )

    @cached_property
    def _effects(self):
        """The joint posterior of all effects: `Effects`, or a mixture of them."""
        return self._mode_effects if self.integration is None else mix_effects(self.integration, self._mode_effects)

    # ------------------------------------------------------------------------------------------ rows

    @property
    def loo_log_density(self) -> FloatArray:
        """log p(y_i | the other rows) for every row, (N,): free with EP, from the cavities.

        Raises
        ------
        ValueError
            After `update`, of `fit_many`, or if a cavity without a row is improper, naming the row.
        """
        if self._loo is None:
            raise ValueError(f"leave-one-out densities are {OF_ROWS}")
        return self._proper_loo()

    def _influences(self):
        if isinstance(self.model.likelihood, likelihoods.Gaussian):
            return self._influence, None
        return self._influence, self.effective_parameters

    @property
    def sites(self) -> Gaussian:
        """The sites as a batch of Gaussians in f, (N,); negative precisions are legitimate."""
        if self._tau is None:
            raise ValueError(f"sites are {OF_ROWS}")
        return Gaussian(self._tau, self._rho)

    def _read(self, X, **others):
        """Return rows of all effects as CSR, the known part of f, variances of new levels at the points of the
        integral (P, n), one without, and the `Dataset`.
        """
        rows = self.rows(X)
        n_random = len(self._reader.terms)
        mode = self._settings[n_random:]
        dataset, values, table = self._reader.read(rows.X, rows.groups, rows.levels, others, mode)
        n = dataset.n_rows
        extras = [self._find_extra_variance(rows, values, table, setting, n) for _, setting in self._weighted_settings]
        matrix = self._leave_out(self._layout.rows(dataset.X, values), rows.without)
        return matrix, self._known_offset(dataset), np.stack(extras), dataset

    def _find_extra_variance(self, rows, values, table, settings, n):
        """Return the variance of f in rows that the effects of the fit do not have, at settings of the terms, (n,)."""
        extra, n_random = np.zeros(n), len(self._reader.terms)
        for term, (codes, Z), covariance in zip(self._reader.terms, values, settings, strict=False):
            if term.name in rows.without:
                continue
            new = np.zeros(len(codes), dtype=bool) if rows.levels == "zero" else codes < 0
            extra[new] += np.einsum("ij,jk,ik->i", Z[new], covariance, Z[new])
        blocks = self._layout.blocks[n_random:]
        for term, block, setting in zip(self._reader.structured, blocks, settings[n_random:], strict=True):
            variance = None
            if term.name not in rows.without:
                variance = term.extra_variance(table, block.free(setting), rows.levels)
            extra += 0.0 if variance is None else variance
        return extra

    @property
    def _coding(self):
        return getattr(self._reader, "coding", None)

    def _linear_rows(self, X, offset=None, exposure=None, groups=None, levels="known"):
        matrix, offsets, extras, _ = self._read(self.rows(X, groups, levels), offset=offset, exposure=exposure)
        return matrix, offsets, np.array([weight for weight, _ in self._weighted_settings]) @ extras

    def _effect_draws(self, n, rng):
        return self._effects.sample(n, rng)

    def _linear_moments(self, matrix, offset):
        from scipy.sparse import csr_array  # takes a while to load

        return self._effects.predict(csr_array(matrix), offset)

    def _latent(self, X, offset, exposure):
        return self._moments(*self._read(X, offset=offset, exposure=exposure)[:3])

    def _moments(self, rows, offset, extras):
        """The means and variances of f of rows as `_read` has them."""
        if not self._integrated_names:
            mean, variance = self._effects.predict(rows, offset)
            return mean, variance + extras[0]
        means, variances = self._effects.predict_at_points(rows, offset)
        return PointMoments(self.integration.weights, self._point_likelihoods, means, variances + extras)

    def _shared_loo_moments(self):
        return None if self._loo_mean is None else (self._loo_mean, self._loo_variance)

    def _drawn_by_point(self, X, n, rng, offset, exposure):
        rows, base, extras, _ = self._read(X, offset=offset, exposure=exposure)
        mode = self._mode_effects, extras[0]
        parts = self._choose_points(n, rng, mode, lambda k: (self._effects.points[k], extras[k]))
        for draws, likelihood, count, (effects, extra) in parts:
            f = (rows @ effects.sample(count, rng).T).T
            f += rng.standard_normal(f.shape) * np.sqrt(extra)
            yield draws, likelihood, check_within_range(f if base is None else f + base, "sample_y: the draws of f")

    def _observe_new_rows(self, X, y, offset, exposure):
        *read, dataset = self._read(X, y=y, offset=offset, exposure=exposure)
        y = encode_new_labels(dataset.column("y"), self.model.likelihood, self.classes)
        return check_observations(self.model.likelihood, y, dataset.n_rows), self._moments(*read)

    def _observed_rows(self, X, y, groups, offset, exposure, sample_weight, event=None):
        """Checked rows with observations, (codes, Z) or rows of each term, and the columns of structured terms."""
        arguments = {"y": y, "event": event, "offset": offset, "exposure": exposure, "sample_weight": sample_weight}
        dataset, values, table = self._reader.read(X, groups, "known", arguments)
        return Observations.of(self.model.likelihood, dataset, fitted=self).rows(dataset.X), values, table

    def update(
        self,
        X: Data,
        y: ArrayLike | None = None,
        *,
        groups: Any = None,
        event: ArrayLike | None = None,
        offset: ArrayLike | None = None,
        exposure: ArrayLike | None = None,
        sample_weight: ArrayLike | None = None,
    ) -> MixedGLMPosterior:
        """Take in new rows by EP on top of what is known, at the same covariances and parameters of the likelihood.

        Parameters
        ----------
        X : data frame or array_like (n, D)
            New rows, of levels of the fit.
        y : array_like (n,) or str, optional
            Observations in the form of the likelihood; a formula names them.
        groups : dict of columns (n,), data frame, or one column, optional
            Labels of the groups; by default columns of X.
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
        MixedGLMPosterior
            A new posterior; this one stays as it is. Its log evidence is that of all rows, which depends on their order
            as of `GLMPosterior.update`, unless noise is Gaussian. It has no sites and no leave-one-out densities.

        Raises
        ------
        ValueError
            For a level that the fit had not, naming it; if hyperparameters were integrated.
        """
        self._refuse_update()
        rows, values, _ = self._observed_rows(X, y, groups, offset, exposure, sample_weight, event)
        values_in_use = [select_rows(value, rows.in_use) for value in values]
        matrix = self._layout.rows(rows.used().X, values_in_use)
        fit, effects = update_effects(self.model.likelihood, rows.used(), matrix, self._effects, Options.checked())
        fit.warn(Options.checked())
        digest, layout = ObservationDigest.of(rows.y, self.model.likelihood), self._layout
        prior = layout.precision(self.model.prior_variance, self._settings)
        return replace(
            self,
            log_evidence=self.log_evidence + fit.log_evidence,
            n_samples=self.n_samples + rows.n,
            n_sites=None,
            effective_parameters=layout.n_free - effects.trace_with(*layout.entries(), prior.entries),
            trace=fit.trace,
            has_offset=self.has_offset or rows.has_offset,
            observation_digest=join_digests(self.observation_digest, digest),
            **collect_moments(effects, len(self.mean)),
            _mode_effects=effects,
            **fit.outcome(before=None if self.converged else self),
            **dict.fromkeys(("_loo", "_tau", "_rho", "_influence", "_loo_mean", "_loo_variance", "_row_weights")),
        )
