"""Posteriors of Gaussian processes that are mixtures over the points of an integral over hyperparameters."""

from __future__ import annotations

from dataclasses import replace
from functools import cached_property
from types import SimpleNamespace

import numpy as np

from cavity.base import arrays
from cavity.base.lazy_scipy import sparse
from cavity.base.public_objects import Seed
from cavity.ep.sites import Sites
from cavity.models.approximation_check import ApproximationCheck, find_plug_in_evidence, judge_approximation
from cavity.models.corrected_marginal import RowsAtMaximum
from cavity.models.gp.integral import LatentValues, factorise_point, put_values_in
from cavity.models.integral import SiteMoments
from cavity.models.integrated_effects import WITHOUT_COMBINATION, IntegratedEffects
from cavity.models.point_moments import PointMoments
from cavity.models.posterior_mixture import PosteriorMixture, mix_covariances, mix_moments

MAX_HELD_NUMBERS = 1 << 25  # of the triangles of the points of an integral, which are else made for each prediction


class IntegratedProcess(IntegratedEffects):
    """Base of the posterior of a Gaussian process that may have an `integration`."""

    _row_arguments = ()  # of `marginal`

    def _integrated(self, integration, log_evidence, loo):
        """This posterior, at the maximum, with an integral over hyperparameters; as it is where there is none."""
        if integration is None:
            return self
        used, D = self._rows.in_use, len(integration.skewness)
        mean, variance, every_loo = (values.copy() for values in (self.mean, self.variance, self._loo))
        moments = integration.means, integration.entries[:, 2 * D : 3 * D]
        mean[used], variance[used] = mix_moments(integration.weights, *moments)
        every_loo[used] = loo
        value = self.log_evidence if log_evidence is None else log_evidence
        fields = {"mean": mean, "variance": variance, "_loo": every_loo, "log_evidence": value}
        out = replace(self, **fields, integration=integration)
        return out if used.all() else out._completed()

    @property
    def _points(self):
        """The posteriors at the points of the integral, which are held where they are small."""
        if len(self.integration.weights) * len(self._alpha) ** 2 <= MAX_HELD_NUMBERS:
            return self._held_points
        return (self._make_point(number) for number in range(len(self.integration.weights)))

    @cached_property
    def _held_points(self):
        return [self._make_point(number) for number in range(len(self.integration.weights))]

    def _make_point(self, number):
        """The posterior at a point of the integral."""
        rho, alpha, variance, _ = np.split(
            self.integration.entries[number], np.arange(1, 4) * self.integration.means.shape[1]
        )
        model, f = put_values_in(self.model, self.integration, number), self.integration.means[number]
        shift = model.prior_mean(self.X) - self.model.prior_mean(self.X)
        rows = replace(self._rows, offset=self._rows.offset + shift)
        return replace(
            self,
            model=model,
            mean=rows.scattered(f, rows.offset),
            variance=rows.scattered(variance, 0.0),
            integration=None,
            _rows=rows,
            _alpha=alpha,
            _tau=rows.scattered(alpha + rho * f, 0.0),
            _rho=rows.scattered(rho, 0.0),
            _solver=factorise_point(model.covariance, self._X_in_use, rho),
        )

    def _combine_new_rows(self, fitted, new_rows):
        raise arrays.error_of("method", f"must be left out {WITHOUT_COMBINATION}")

    @property
    def _effect_posterior(self):
        """Moments of f at the rows in use, at the points."""
        n = len(self._alpha)
        if self.integration is None:
            return SimpleNamespace(mean=self.mean[self._rows.in_use], variance=self.variance[self._rows.in_use])
        moments = zip(self.integration.means, self.integration.entries[:, 2 * n : 3 * n], strict=True)
        points = [SimpleNamespace(mean=mean, variance=variance) for mean, variance in moments]
        return PosteriorMixture(points, self.integration.weights)

    def check_approximation(self, *, draws: int = 4000, rng: Seed = 0) -> ApproximationCheck:
        """Return what EP may miss, at the hyperparameters of the fit; `check` is about the data.

        Parameters
        ----------
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
            For chains, and where every row had a noise_variance of its own.
        """
        draws = arrays.check_integer(draws, "draws", low=100)
        plug_in, values, moments = self._find_sites("check_approximation")
        latent_mean = moments.mean - plug_in._rows.offset[self._rows.in_use]
        gap = 0.5 * (float(latent_mean @ plug_in._alpha) + plug_in._solver.log_determinant)
        constant, evidence = self._rows.log_p_known(plug_in.model.likelihood)[1], find_plug_in_evidence(self)
        return judge_approximation(moments, values, gap, evidence, draws, arrays.make_generator(rng), constant=constant)

    def _find_sites(self, user):
        """The posterior, f at the rows in use and the `SiteMoments` at the maximum; `user` is what needs them."""
        if not hasattr(self, "_solver"):
            raise ValueError(f"{user} needs the covariance of all rows: fit with method='dense'")
        self._check_noise_is_known(user)
        keep, rows, plug_in = self._rows.in_use, self._rows.used(), self._make_point(0) if self.integration else self
        mean, variance = plug_in.mean[keep], plug_in.variance[keep]
        values = LatentValues(mean, variance, lambda: plug_in.covariance[np.ix_(keep, keep)])
        sites = Sites(plug_in.model.likelihood, rows.y, rows.weights)
        identity = sparse.eye_array(rows.n, format="csr")
        return plug_in, values, SiteMoments(sites, identity, mean, variance, plug_in._tau[keep], plug_in._rho[keep])

    def _find_fitted_rows(self, X=None):
        if X is not None:
            raise arrays.error_of("X", "must be left out: the posterior of a process has the rows of its fit")
        _, values, moments = self._find_sites("marginal with a method")
        return RowsAtMaximum(moments, values, moments.matrix, np.zeros(len(values.mean)), self._rows.in_use)

    def _find_index(self, effect):
        if isinstance(effect, str):
            raise arrays.error_of("effect", f"must be a row or one of {self._integrated_names}, got {effect!r}")
        row = arrays.check_integer(effect, "effect", low=0)
        if row >= self.n_samples or not self._rows.in_use[row]:
            raise arrays.error_of("effect", f"must be a row that is in use, below {self.n_samples}, got {row}")
        return int(np.sum(self._rows.in_use[:row]))

    def _latent(self, X, offset, exposure, n_threads=None, **options):
        if not self._integrated_names:
            return super()._latent(X, offset, exposure, n_threads, **options)
        moments = [point._latent(X, offset, exposure, n_threads) for point in self._points]
        means, variances = (np.stack(part) for part in zip(*moments, strict=True))
        return PointMoments(self.integration.weights, self._point_likelihoods, means, variances)

    def _predict_jointly(self, X, offset, exposure):
        if not self._integrated_names:
            return super()._predict_jointly(X, offset, exposure)
        moments = [point._predict_jointly(X, offset, exposure) for point in self._points]
        means, covariances = (np.stack(part) for part in zip(*moments, strict=True))
        return mix_covariances(self.integration.weights, means, covariances)

    def _drawn(self, X, n, rng, offset, exposure):
        if not self._integrated_names or not n:
            return super()._drawn(X, n, rng, offset, exposure)
        parts = [(index, f) for index, _, f in self._drawn_by_point(X, n, rng, offset, exposure)]
        draws = np.empty((n, parts[0][1].shape[1]))
        for index, f in parts:
            draws[index] = f
        return draws

    def _drawn_by_point(self, X, n, rng, offset, exposure):
        if not self._integrated_names or not n:
            yield slice(None), self._likelihood, self._drawn(X, n, rng, offset, exposure)
            return
        get_point = self._points.__getitem__ if isinstance(self._points, list) else self._make_point
        for index, likelihood, count, posterior in self._choose_points(n, rng, self, get_point):
            yield index, likelihood, posterior._drawn(X, count, rng, offset, exposure)
