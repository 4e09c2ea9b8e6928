"""Posteriors of weights that may be mixtures over the points of an integral, and checks of their approximation."""

from __future__ import annotations

from dataclasses import replace
from functools import cached_property
from types import SimpleNamespace

import numpy as np

from cavity.base import arrays
from cavity.base.errors import check_within_range
from cavity.base.public_objects import ArrayLike, Data, Seed
from cavity.ep.sites import Sites
from cavity.models.approximation_check import (
    ApproximationCheck,
    check_same_rows,
    find_plug_in_evidence,
    judge_approximation,
)
from cavity.models.corrected_marginal import RowsAtMaximum, check_rows_are_there
from cavity.models.glm.solution import Weights, measure_prior_gap, mix_weights
from cavity.models.integral import SiteMoments
from cavity.models.integrated_effects import IntegratedEffects
from cavity.models.linear.prior import Prior
from cavity.models.marginal import tabulate_mixture_marginals
from cavity.models.observations import Observations
from cavity.models.posterior_mixture import PosteriorMixture
from cavity.sources.features import column_limits, iterate_large_blocks, scan


class IntegratedWeights(IntegratedEffects):
    """Base of the posterior of a GLM, which may have an `integration`."""

    @cached_property
    def _weights(self):
        if self.integration is not None:
            return mix_weights(self.integration)
        return Weights(self.mean, self.variance, self._covariance)

    @property
    def _effect_posterior(self):
        """The posterior of the coefficients of the columns as they are."""
        if self.centre is None:
            return self._weights
        if self.integration is None:
            _, mean, variance = self._per_column()
            return SimpleNamespace(mean=mean, variance=variance)
        points = [point.combine(self._unscaling) for point in self._weights.points]
        return PosteriorMixture(points, self._weights.weights)

    def _components(self, index):
        weights, means, sds, skewness = super()._components(index)
        if self.integration is not None and self.centre is not None and self.intercept:
            is_first = index == 0  # a combination of all weights, of which corrections are not known
            sds = np.where(is_first, sds / self.integration.sd_factors[index], sds)
            skewness = np.where(is_first, 0.0, skewness)
        return weights, means, sds, skewness

    def _find_index(self, effect):
        return self.coefficient_names.index(arrays.check_choice(effect, "effect", self.coefficient_names))

    def _marginals(self):
        if self.integration is None:
            return super()._marginals()
        return self._effect_marginals(self.coefficient_names, np.arange(len(self.mean)))

    def _weight_marginals(self):
        if self.integration is None:
            return super()._weight_marginals()
        parts = IntegratedEffects._components(replace(self, centre=None, spread=None), np.arange(len(self.mean)))
        return tabulate_mixture_marginals(self.coefficient_names, *parts)

    def _drawn_by_point(self, X, n, rng, offset, exposure):
        dataset = self._open(X, offset, exposure)
        X, known_offset = self._features(dataset), self._known_offset(dataset)
        parts = self._choose_points(n, rng, self._weights, lambda number: self._weights.points[number])
        for draws, likelihood, count, posterior in parts:
            with np.errstate(over="ignore", invalid="ignore"):
                weights = check_within_range(posterior.sample(count, rng), "sample: the draws")
                blocks = [(self._scale(x) if self._scales_rows else x) @ weights.T for _, x in iterate_large_blocks(X)]
                f = np.concatenate([block.T for block in blocks], axis=1)  # (draws, D) (D, n)
                f = check_within_range(f if known_offset is None else f + known_offset, "sample_y: the draws of f")
            yield draws, likelihood, f

    def check_approximation(
        self,
        X: Data,
        y: ArrayLike | None = None,
        *,
        event: ArrayLike | None = None,
        offset: ArrayLike | None = None,
        exposure: ArrayLike | None = None,
        draws: int = 4000,
        rng: Seed = 0,
    ) -> ApproximationCheck:
        """Return what EP may miss, at the hyperparameters of the fit; `check` is about the data.

        Parameters
        ----------
        X : array_like (N, D), data frame, path, list of paths, Source, or scipy.sparse for approximation="diagonal"
            The rows of the fit once more.
        y : array_like (N,) or str, optional
            Observations in the form of the likelihood; a formula names them.
        event : array_like (N,) or str, optional
            Of times y: 1 or True where the event was observed, 0 or False where it was not until then. Likelihoods of
            times take bounds (N, 2) as well, lower and upper, which need no events.
        offset : array_like (N,) or str, optional
            Known part of f.
        exposure : array_like (N,) or str, optional
            For counts: what their mean is proportional to, as time or area. Its log is added to the offset.
        draws : int, default 4000
            Draws of the posterior that are weighted.
        rng : seed or numpy.random.Generator, default 0
            Source of randomness; a seed gives the same bits again.

        Returns
        -------
        ApproximationCheck
            It shows itself, with a verdict in words.

        Raises
        ------
        ValueError
            For rows that are not those of the fit; without sites, as after `update`.
        """
        draws, likelihood = arrays.check_integer(draws, "draws", low=100), self.model.likelihood
        rows, weights, moments = self._find_sites(X, y, event=event, offset=offset, exposure=exposure)
        keep, offset = ~np.isnan(self._tau), np.zeros(rows.n) if rows.offset is None else rows.offset
        f_known = ~keep & ~rows.left_out  # rows of zeros
        times = np.broadcast_to(rows.weight(), (rows.n,))[f_known]
        constant = float(np.sum(times * likelihood.log_p(rows.y[f_known], offset[f_known])))
        prior = Prior.of(self.model.prior_mean, self.model.prior_variance, len(self.mean))
        arguments = measure_prior_gap(weights, prior), find_plug_in_evidence(self), draws, arrays.make_generator(rng)
        return judge_approximation(moments, weights, *arguments, offset[keep], constant)

    def _find_sites(self, X, y=None, **arguments):
        """The rows of the fit once more, the weights and the `SiteMoments` at the maximum."""
        rows, _ = self._observe_rows(X, arguments | {"y": y, "sample_weight": self._row_weights})
        check_same_rows(self, rows)
        weights, keep = self._weights if self.integration is None else self._weights.points[0], ~np.isnan(self._tau)
        offset, part = np.zeros(rows.n) if rows.offset is None else rows.offset, rows.part(keep)
        matrix = np.concatenate([x for _, x in iterate_large_blocks(part.X)])
        sites, natural = Sites(self.model.likelihood, part.y, part.weights), (self._tau[keep], self._rho[keep])
        return rows, weights, SiteMoments(sites, matrix, *weights.predict(matrix, offset[keep]), *natural)

    def _find_fitted_rows(self, X=None, y=None, *, event=None, offset=None, exposure=None):
        rows, weights, moments = self._find_sites(
            check_rows_are_there(X), y, event=event, offset=offset, exposure=exposure
        )
        keep = ~np.isnan(self._tau)
        offset = np.zeros(rows.n) if rows.offset is None else rows.offset
        return RowsAtMaximum(moments, weights, moments.matrix, offset[keep], keep)

    @property
    def _combined_posterior(self):
        return self._weights

    def _find_combination(self, effect):
        index = self._find_index(effect)
        return self._unscaling[index] if self.centre is not None else np.eye(len(self.mean))[index]

    def _observe_rows(self, X, arguments):
        """The checked `Rows` of new observations, as the weights take them, and the `Observations`."""
        dataset = self._open_arguments(X, arguments, remote=True)
        observations = Observations.of(self.model.likelihood, dataset, fitted=self)
        X = self._features(dataset)
        scan(X, None)
        if self._scales_rows:
            with np.errstate(over="ignore", invalid="ignore"):
                X = self._scale(X)
            if self.centre is not None:
                check_within_range(column_limits(X), "X: columns divided by spread")
        return observations.rows(X), observations
