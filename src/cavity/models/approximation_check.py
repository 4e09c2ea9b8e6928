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

import numpy as np

from cavity.base.errors import NumericalWarning, warn
from cavity.base.lazy_scipy import special
from cavity.base.observation_digest import ObservationDigest
from cavity.base.public_objects import Frozen
from cavity.base.results import format_table
from cavity.ep.corrections import find_tilted_cumulants
from cavity.models.integral import MAX_TRUSTED_CORRECTION, sum_over_pairs

MAX_RELIABLE_SHAPE = 0.7  # of the tail of importance weights [VSG]_
LARGE_SKEWNESS = 0.5  # of a row's tilted distribution
MAX_MOMENT_MISMATCH = 1e-5  # of tilted distributions, in sds of the posterior
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
        those of the exact one. It grows with the number of effects; marginals may be far better.
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
            text = "EP may miss much: the correction is too large to be trusted itself"
        elif abs(self.correction) > 0.1 * MAX_TRUSTED_CORRECTION:
            text = "EP's evidence is off by about the correction: integrate= counts it"
        else:
            text = "EP's evidence is good"
        if self.tail_shape < MAX_RELIABLE_SHAPE:
            difference = self.log_evidence + self.correction - self.sampled_log_evidence
            agree = abs(difference) < 3.0 * max(self.sampling_error, self.correction_error, 0.01)
            text += "; importance sampling agrees" if agree else f"; importance sampling differs by {-difference:.2g}"
        else:
            text += "; its draws cannot be weighted to be exact, which does not concern single effects"
        if self.largest_skewness > LARGE_SKEWNESS:
            text += "; some effects are skew: see marginal, with integrate='mode' or more"
        return text

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


def judge_approximation(moments, effects, gap, log_evidence, draws, rng, offset=0.0, constant=0.0):
    """Return the `ApproximationCheck` of a posterior of effects.

    Parameters
    ----------
    moments : SiteMoments
        Of its sites.
    effects : object
        The posterior, with `sample` and `cross`.
    gap : float
        log of the density of the posterior over that of the prior, at the posterior mean.
    log_evidence : float
        EP's.
    draws : int
        Of the posterior.
    rng : numpy.random.Generator
        Source of them.
    offset : float or ndarray (M,)
        Known part of f.
    constant : float
        The log evidence of the rows less that of the sites.
    """
    cumulants = find_tilted_cumulants(moments.sites, *moments[2:])
    if np.max(cumulants.mismatch, initial=0.0) > MAX_MOMENT_MISMATCH:
        row = int(np.argmax(cumulants.mismatch))
        warn(
            f"the correction holds for fits with power=1 that have converged: moments of site {row} are "
            f"{cumulants.mismatch[row]:.2g} sd off; importance sampling holds for any fit",
            NumericalWarning,
        )
    correction, _ = sum_over_pairs(cumulants, effects, moments.matrix, np.sqrt(moments.variance))
    log_weights = _weigh_draws(effects, moments, offset, draws, rng) - gap + constant
    sampled = special.logsumexp(log_weights) - np.log(draws)
    relative = np.exp(log_weights - sampled)
    return ApproximationCheck(
        float(log_evidence),
        *correction,
        float(sampled),
        float(np.std(relative, ddof=1) / np.sqrt(draws)),
        estimate_tail_shape(log_weights),
        float(np.max(np.abs(cumulants.third), initial=0.0)),
    )


def _weigh_draws(effects, moments, offset, draws, rng):
    """Return log likelihood - log sites of draws, plus log sites at the posterior means."""
    sites, matrix, centre, _, tau, rho = moments
    out = np.empty(draws)
    step = max(1, BLOCK_NUMBERS // max(1, len(centre)))
    y, weights = sites.y, sites.weights * sites.copies
    at_centre = np.sum(tau * centre - 0.5 * rho * centre**2)
    offset = np.broadcast_to(offset, centre.shape)
    for first in range(0, draws, step):
        part = slice(first, min(first + step, draws))
        a = effects.sample(part.stop - part.start, rng)
        f = matrix @ a.T + offset[:, None]
        log_p = sites.likelihood.log_p(y[:, None] if y.ndim == 1 else y[:, None, :], f)
        in_sites = tau @ f - 0.5 * rho @ f**2
        out[part] = np.sum(np.reshape(weights, (-1, 1)) * log_p, axis=0) - in_sites + at_centre
    return out


def find_plug_in_evidence(posterior):
    """Return EP's log evidence at the hyperparameters of the maximum."""
    integration = posterior.integration
    if integration is None or not integration.names:
        return posterior.log_evidence
    return float(integration.log_density[0]) - posterior.hyperparameters.log_prior  # of the first point, the maximum


def check_same_rows(posterior, rows):
    """Raise ValueError for rows that are not those of the fit."""
    if posterior._tau is None:
        raise ValueError("a correction needs the sites of the rows of one fit: an update has none")
    if rows.n != posterior.n_samples:
        raise ValueError(f"X must hold the {posterior.n_samples} rows of the fit, got {rows.n}")
    digest, own = ObservationDigest.of(rows.y, posterior.model.likelihood), posterior.observation_digest
    if own is not None and digest.ordered != own.ordered:
        raise ValueError("y must hold the observations of the fit in their order, got others or another order")


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
