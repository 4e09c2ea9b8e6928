"""Empirical Bayes across responses: priors of parameters and of coefficients that many responses have in common.

What is shared is N(c, sd^2) in all responses, but for dispersions, whose c depends on the level z of a response, the
log of its mean count: the dispersion falls from its limit where counts are few, as in the parametric trend of [L]_,

    c(z) = centre - log(1 + exp(rise - z)).                                                                         (1)

The log evidences of responses as functions of it count as Gaussian about where the last fits have ended, and centre,
rise and sd maximise the product of their likelihoods,

    sum_g log N(t_g; c(z_g), sd^2 + 1/h_g),                                                                         (2)

t_g and h_g the maximum and the curvature without the prior. Fits under the new prior follow, until it rests.

References
----------
.. [L] M. I. Love, W. Huber and S. Anders, "Moderated estimation of fold change and dispersion for RNA-seq data with
   DESeq2", Genome Biology 15, 2014.
"""

from dataclasses import dataclass
from functools import partial

import numpy as np

from cavity.base import arrays
from cavity.base.lazy_scipy import optimize
from cavity.base.loop import CONVERGED_STATUS
from cavity.models.many.batch import LogNormalPriors
from cavity.models.many.fits import fit_responses, list_spans

MAX_SHARED_RESPONSES = 2048  # that a prior is found from, every k-th batch: 1/sqrt(2 n) of an sd is 1.6 %
MAX_SHARED_PASSES = 12
SHARED_TOL = 1e-3  # of the log of an sd and, in sds, of a centre
MIN_SHARED_SD, MAX_SHARED_SD = 1e-3, 1e2  # of logs, and as factors on prior standard deviations
GRID_SIZE, MAXIMUM_ERROR = 61, 1e-9  # of the searches for sd and rise: the grid brackets, Brent's method narrows
LEVEL_MARGIN = 4.0  # of rises from the levels: beyond, dispersions depend on the level in proportion, or hardly
MAX_TREND_ROUNDS, TREND_TOL = 8, 1e-4  # of searches for sd and rise in turn, and of the change of their logs
MIN_INFORMATION = 1e-6  # of a response, relative to the largest; less counts as none
MIN_RESPONSES_TO_SHARE = 3


@dataclass(slots=True)
class SharedPriors:
    """What responses have in common.

    Parameters
    ----------
    n_free : int
        Number of free numbers of a response.
    parameters : list of int
        Numbers of the shared ones.
    n_weights : int
        Number of weights.
    weights : list of int
        Numbers of the shared ones.
    trends : list of int
        Numbers of the shared parameters that depend on the level.
    others : tuple of FreePrior
        Of those that are not shared.
    """

    n_free: int
    parameters: list
    n_weights: int
    weights: list
    trends: list
    others: tuple
    centre: np.ndarray = None  # (k,)
    rise: np.ndarray = None  # (k,): -inf for no trend
    sd: np.ndarray = None  # (k,)
    factors: np.ndarray = None  # (D,): on prior standard deviations

    def __post_init__(self):
        self.centre, self.sd = np.zeros(self.n_free), np.full(self.n_free, np.inf)
        self.rise, self.factors = np.full(self.n_free, -np.inf), np.ones(self.n_weights)

    def make_priors(self, levels):
        """Return the `LogNormalPriors` of the free numbers of responses by their levels (B,)."""
        return LogNormalPriors(self.centre - find_bend(self.rise, levels[:, None]), self.sd.copy(), self.others)

    def renew(self, fits):
        """Find what is shared from fits under the present priors; return the largest change."""
        good, change = fits.status == CONVERGED_STATUS, 0.0
        if np.count_nonzero(good) < MIN_RESPONSES_TO_SHARE:
            message = f"needs at least {MIN_RESPONSES_TO_SHARE} responses that converge, got {np.count_nonzero(good)}"
            raise arrays.error_of("share", message)
        old, before, levels = self.make_priors(fits.level[good]).mean, self.sd.copy(), fits.level[good]
        for j in self.parameters:
            weight = 1.0 / self.sd[j] ** 2
            free, information = fits.free[good, j], -fits.curvature[good, j] - weight
            pulled = (information + weight) * free - weight * old[:, j]
            self.centre[j], self.rise[j], self.sd[j] = fit_trend(pulled, information, levels, j in self.trends)
            gap = np.abs(self.make_priors(levels).mean[:, j] - old[:, j])
            change = max(change, np.max(gap) / self.sd[j], abs(np.log(self.sd[j]) - np.log(before[j])))
        for j in self.weights:
            diagonal, last = j * (j + 3) // 2, self.factors[j]
            sd = fits.prior_sd[good, j] / last
            precision = sd**2 / fits.covariance[good, diagonal]
            pulled = precision * (fits.mean[good, j] - fits.prior_mean[good, j]) / sd
            self.factors[j] = fit_normal(pulled, precision - 1.0 / last**2)
            change = max(change, abs(np.log(self.factors[j] / last)))
        return change


def find_bend(rise, level):
    """Return log(1 + exp(rise - level)) of (1)."""
    return np.logaddexp(0.0, rise - level)


class SharedEvidence:
    """(2) of responses of which h t and h are given, (G,) both; those without any information do not count."""

    def __init__(self, pulled, information, level=None):
        self.good = np.isfinite(information) & (information > 0)
        self.good &= information > MIN_INFORMATION * np.max(information[self.good], initial=0.0)
        self.variance, self.at = 1.0 / information[self.good], pulled[self.good] / information[self.good]
        self.level = None if level is None else level[self.good]

    def centre(self, rise, log_sd):
        """Return the best centre."""
        total = np.exp(2.0 * log_sd) + self.variance
        return np.sum((self.at + find_bend(rise, self.level)) / total) / np.sum(1.0 / total)

    def evaluate(self, rise, log_sd):
        """Return (2) at the best centre, or at 0 where there are no levels."""
        total = np.exp(2.0 * log_sd) + self.variance
        c = 0.0 if self.level is None else self.centre(rise, log_sd) - find_bend(rise, self.level)
        return -0.5 * np.sum((self.at - c) ** 2 / total + np.log(total))


def fit_normal(pulled, information):
    """Return the sd that maximises (2) with a centre of 0."""
    evidence = SharedEvidence(pulled, information)
    return float(np.exp(maximise(lambda x: evidence.evaluate(None, x), np.log(MIN_SHARED_SD), np.log(MAX_SHARED_SD))))


def fit_trend(pulled, information, level, has_trend):
    """Return centre, rise and sd that maximise (2); the rise is -inf where there is no trend."""
    evidence, rise, log_sd = SharedEvidence(pulled, information, level), -np.inf, np.inf
    low, high = (end(evidence.level, initial=0.0) for end in (np.min, np.max))
    for _ in range(MAX_TREND_ROUNDS):
        before = rise, log_sd
        log_sd = maximise(partial(evidence.evaluate, rise), np.log(MIN_SHARED_SD), np.log(MAX_SHARED_SD))
        if not has_trend:
            break
        rise = maximise(partial(evidence.evaluate, log_sd=log_sd), low - LEVEL_MARGIN, high + LEVEL_MARGIN)
        if max(abs(rise - before[0]), abs(log_sd - before[1])) <= TREND_TOL:
            break
    return evidence.centre(rise, log_sd), rise, float(np.exp(log_sd))


def maximise(evaluate, low, high):
    """Return where a function of a number is largest: the best point of a grid, by Brent's method about it."""
    grid = np.linspace(low, high, GRID_SIZE)
    best = int(np.argmax([evaluate(x) for x in grid]))
    bounds = grid[max(best - 1, 0)], grid[min(best + 1, GRID_SIZE - 1)]
    options = {"xatol": MAXIMUM_ERROR}
    return float(optimize.minimize_scalar(lambda x: -evaluate(x), bounds=bounds, method="bounded", options=options).x)


def check_share(share, problem, coefficient_names):
    """Return the `SharedPriors` of the argument `share`; ValueError or TypeError for what cannot be shared."""
    names = () if share is None else (share,) if isinstance(share, str) else share
    if not isinstance(names, tuple | list):
        raise arrays.error_of("share", f"must be a name or a tuple of names, got {share!r}", TypeError)
    there = (*problem.names, *coefficient_names)
    for name in names:
        arrays.check_choice(name, "share", there)
    parameters = [problem.names.index(name) for name in dict.fromkeys(names) if name in problem.names]
    for prior in problem.priors:
        if prior.number in parameters:
            name = problem.names[prior.number]
            raise arrays.error_of("share", f"must not have what has a prior in priors, got {name!r}")
    weights = [coefficient_names.index(name) for name in dict.fromkeys(names) if name not in problem.names]
    if weights and problem.prior.variance.ndim == 2:
        raise arrays.error_of("share", "of coefficients needs prior_variance as a number or a vector, got a matrix")
    trends = [j for j in parameters if problem.names[j] == "dispersion" and problem.likelihood.discrete]
    return SharedPriors(problem.n_free, parameters, problem.rows.X.shape[1], weights, trends, problem.priors)


def learn_shared_priors(shared, problem, inputs, threads, job):
    """Find the shared priors from some of the responses, in place, in passes over these."""
    spans = list_spans(problem, len(inputs.names))
    spans = spans[:: max(1, -(-len(inputs.names) // MAX_SHARED_RESPONSES))]
    if not (shared.parameters or shared.weights):
        return
    state = job.restore() or {"passes": 0, "change": np.inf}
    passes, change = state.pop("passes"), state.pop("change")
    for name, value in state.items():
        setattr(shared, name, value)
    while passes < MAX_SHARED_PASSES and change > SHARED_TOL:
        stage = job.substage(f"pass {passes}")
        fits = fit_responses(problem, inputs, threads, stage, shared.factors, shared.make_priors, spans)
        if job.stopped:
            break
        passes, change = passes + 1, shared.renew(fits)
        state = {name: getattr(shared, name).copy() for name in ("centre", "rise", "sd", "factors")}
        job.store(partial(dict, state, passes=passes, change=change))
