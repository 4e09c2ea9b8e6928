"""How good the approximation of a mixed model is: corrections of EP, and importance sampling as an independent judge.

References
----------
.. [OPW] M. Opper, U. Paquet and O. Winther, "Perturbative corrections for approximate inference in Gaussian latent
   variable models", JMLR 14, 2013.
.. [VSG] A. Vehtari, D. Simpson, A. Gelman, Y. Yao and J. Gabry, "Pareto smoothed importance sampling", JMLR 25, 2024.
.. [ZS] J. Zhang and M. A. Stephens, "A new and efficient estimation method for the generalized Pareto distribution",
   Technometrics 51, 2009.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from cavity.base import arrays
from cavity.base.lazy_scipy import special
from cavity.base.observation_digest import ObservationDigest
from cavity.base.public_objects import ArrayLike, Data, Frozen, Seed
from cavity.base.results import format_table
from cavity.ep.corrections import find_tilted_cumulants
from cavity.models.integral import MAX_TRUSTED_CORRECTION, sum_over_pairs
from cavity.models.mixed.effect_layout import select_rows
from cavity.models.mixed.equal_rows import merge_equal_rows

MAX_RELIABLE_SHAPE = 0.7  # of the tail of importance weights [VSG]_
LARGE_SKEWNESS = 0.5  # of a row's tilted distribution
EQUAL_LOG_WEIGHTS = 1e-6  # draws of an exact posterior differ by rounding only
BLOCK_NUMBERS = 1 << 22


@dataclass(frozen=True, eq=False, repr=False)
class ApproximationCheck(Frozen):
    """What EP may miss in a fit, at the hyperparameters of the fit.

    Parameters
    ----------
    log_evidence : float
        EP's.
    correction : float
        R: what third and fourth cumulants of tilted distributions add to it [OPW]_.
    correction_error : float
        Standard error of R, where it is found by draws.
    sampled_log_evidence : float
        By importance sampling from the posterior.
    sampling_error : float
        Its standard error, which is too small where `tail_shape` is large.
    tail_shape : float
        Pareto k of the largest importance weights [VSG]_: below 0.7 the draws of the posterior can be weighted to be
        those of the exact one. It grows with the number of effects and says little about marginals.
    largest_skewness : float
        Of the tilted distributions of rows, in size.
    """

    log_evidence: float
    correction: float
    correction_error: float
    sampled_log_evidence: float
    sampling_error: float
    tail_shape: float
    largest_skewness: float

    @property
    def verdict(self) -> str:
        """What the numbers mean."""
        if abs(self.correction) > MAX_TRUSTED_CORRECTION:
            words = "EP may miss much: the correction is too large to be trusted itself"
        elif abs(self.correction) > 0.1 * MAX_TRUSTED_CORRECTION:
            words = "EP's evidence is off by about the correction: integrate= counts it"
        else:
            words = "EP's evidence is good"
        if self.tail_shape < MAX_RELIABLE_SHAPE:
            difference = self.log_evidence + self.correction - self.sampled_log_evidence
            agree = abs(difference) < 3.0 * max(self.sampling_error, self.correction_error, 0.01)
            words += "; importance sampling agrees" if agree else f"; importance sampling differs by {-difference:.2g}"
        else:
            words += "; its draws cannot be weighted to be exact, which says nothing about single effects"
        if self.largest_skewness > LARGE_SKEWNESS:
            words += "; some effects are skew: see marginal, with integrate='mode' or more"
        return words

    def __repr__(self) -> str:
        sampled = f"{self.sampled_log_evidence:.4f} (standard error {self.sampling_error:.2g})"
        error = f" (standard error {self.correction_error:.2g})" if self.correction_error else ""
        rows = [
            ("log_evidence", f"{self.log_evidence:.4f}"),
            ("correction", f"{self.correction:+.4f}{error}"),
            ("by sampling", sampled),
            ("tail shape k", f"{self.tail_shape:.2f}"),
            ("skewness", f"{self.largest_skewness:.2f} at most"),
            ("verdict", self.verdict),
        ]
        return format_table("ApproximationCheck", rows)


class ChecksApproximation:
    """Base of posteriors of mixed models that judge their approximation."""

    __slots__ = ()

    def check_approximation(
        self,
        X: Data,
        y: ArrayLike | None = None,
        *,
        groups: Any = None,
        event: ArrayLike | None = None,
        offset: ArrayLike | None = None,
        exposure: ArrayLike | None = None,
        draws: int = 4000,
        rng: Seed = 0,
    ) -> ApproximationCheck:
        """Return what EP may miss, at the hyperparameters of the fit; `check` is about the data.

        Parameters
        ----------
        X : data frame or array_like (N, D)
            The rows of the fit once more.
        y : array_like (N,) or str, optional
            Observations in the form of the likelihood; a formula says what they are.
        groups : dict of columns (N,), data frame, or one column, optional
            Labels of the groups; by default columns of X.
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
            For rows that are not as many as those of the fit; after `update`.
        """
        draws = arrays.check_integer(draws, "draws", low=100)
        if self._tau is None:
            raise ValueError("check_approximation needs the sites of the rows of one fit: an update has none")
        rows, values = self._observed_rows(X, y, groups, offset, exposure, self._row_weights, event)
        if rows.n != self.n_samples:
            raise ValueError(f"X must hold the {self.n_samples} rows of the fit, got {rows.n}")
        digest = ObservationDigest.of(rows.y, self.model.likelihood)
        if self.observation_digest is not None and digest.ordered != self.observation_digest.ordered:
            raise ValueError("y must hold the observations of the fit in their order, got others or another order")
        used, mask = rows.used(), rows.in_use
        matrix = self._layout.rows(used.X, [select_rows(each, mask) for each in values])
        merged = merge_equal_rows(self.model.likelihood, used, matrix)
        tau, rho = merged.gather(self._tau[mask], self._rho[mask])
        sites = merged.make_sites(self.model.likelihood)
        effects = self._mode_effects
        mean, variance = effects.predict(merged.matrix, merged.rows.offset)
        cumulants = find_tilted_cumulants(sites, mean, variance, tau, rho)
        sd = np.sqrt(variance)
        correction, _ = sum_over_pairs(cumulants, effects, merged.matrix, sd)
        gap = self._prior_gap()
        log_weights = _weigh_draws(effects, merged, sites, (tau, rho), mean, gap, draws, arrays.make_generator(rng))
        log_weights += merged.constant(self.model.likelihood)
        sampled = special.logsumexp(log_weights) - np.log(draws)
        relative = np.exp(log_weights - sampled)
        integration, log_evidence = self.integration, self.log_evidence
        if integration is not None and integration.names:  # of the first point, the maximum
            log_evidence = float(integration.log_density[0]) - self.hyperparameters.log_prior
        return ApproximationCheck(
            log_evidence,
            *correction,
            float(sampled),
            float(np.std(relative, ddof=1) / np.sqrt(draws)),
            estimate_tail_shape(log_weights),
            float(np.max(np.abs(cumulants.third), initial=0.0)),
        )

    def _prior_gap(self):
        """log of the posterior's density over the prior's, at the posterior mean of the mode."""
        layout, effects = self._layout, self._mode_effects
        prior = layout.precision(self.model.prior_variance, self._settings)
        rows, columns = layout.entries()
        step = effects.mean.copy()
        step[: len(self.mean)] -= self.model.prior_mean
        times = np.where(rows == columns, 1.0, 2.0)
        square = float(np.sum(times * prior.entries * step[rows] * step[columns]))
        return 0.5 * (square + effects.log_determinant - prior.log_determinant)


def _weigh_draws(effects, merged, sites, natural, centre, gap, draws, rng):
    """Return log prior + log likelihood - log posterior of draws; prior over posterior is a constant over the sites."""
    tau, rho = natural
    out = np.empty(draws)
    step = max(1, BLOCK_NUMBERS // max(1, len(centre)))
    y, weights = sites.y, sites.weights * sites.copies
    at_centre = np.sum(tau * centre - 0.5 * rho * centre**2)
    offset = np.zeros(len(centre)) if merged.rows.offset is None else merged.rows.offset
    for first in range(0, draws, step):
        some = slice(first, min(first + step, draws))
        a = effects.sample(some.stop - some.start, rng)
        f = merged.matrix @ a.T + offset[:, None]
        log_p = sites.likelihood.log_p(y[:, None] if y.ndim == 1 else y[:, None, :], f)
        in_sites = tau @ f - 0.5 * rho @ f**2
        out[some] = np.sum(np.reshape(weights, (-1, 1)) * log_p, axis=0) - in_sites + at_centre - gap
    return out


def estimate_tail_shape(log_weights):
    """Return the shape k of the generalised Pareto distribution of the largest weights [VSG]_, by [ZS]_."""
    if np.ptp(log_weights) < EQUAL_LOG_WEIGHTS:
        return 0.0
    n = len(log_weights)
    count = int(np.ceil(min(0.2 * n, 3.0 * np.sqrt(n))))
    ordered = np.sort(np.exp(log_weights - np.max(log_weights)))
    x = ordered[-count:] - ordered[-count - 1]
    if not x[0] > 0.0:
        return -np.inf if x[-1] == 0.0 else np.inf
    m = 30 + int(np.sqrt(count))
    theta = 1.0 / x[-1] + (1.0 - np.sqrt(m / (np.arange(1, m + 1) - 0.5))) / (3.0 * x[int(count / 4 + 0.5) - 1])
    shapes = -np.mean(np.log1p(-theta[:, None] * x), axis=1)
    profile = count * (np.log(theta / shapes) + shapes - 1.0)
    weights = special.softmax(profile)
    best = float(weights @ theta)
    k = float(np.mean(np.log1p(-best * x)))
    return (count * k + 5.0) / (count + 10.0)
