"""Empirical Bayes across responses: priors of parameters and of coefficients that many responses have in common.

What is shared is N(centre, sd^2) in all responses. Their log evidences as functions of it count as Gaussian about where
the last fits have ended, and centre and sd maximise the product of what each of them says,

    sum_g log N(t_g; centre, sd^2 + 1/h_g),                                                                         (1)

t_g and h_g the maximum and the curvature without the prior. Fits under the new prior follow, until it rests.
"""

from dataclasses import dataclass
from functools import partial

import numpy as np

from cavity.base import arrays
from cavity.base.loop import CONVERGED_STATUS
from cavity.models.many.batch import LogNormalPriors
from cavity.models.many.fits import fit_responses, list_spans

MAX_SHARED_RESPONSES = 2048  # that a prior is found from, every k-th batch: 1/sqrt(2 n) of an sd is 1.6 %
MAX_SHARED_PASSES = 12
SHARED_TOL = 1e-3  # of the log of an sd and, in sds, of a centre
MIN_SHARED_SD, MAX_SHARED_SD = 1e-3, 1e2  # of logs, and as factors on prior standard deviations
GRID_SIZE, GOLDEN_STEPS = 61, 40  # of the search for an sd: the grid brackets, golden section narrows
GOLDEN_RATIO = 0.5 * (np.sqrt(5.0) - 1.0)
MIN_INFORMATION = 1e-6  # of a response, relative to the largest: less says nothing
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
    """

    n_free: int
    parameters: list
    n_weights: int
    weights: list
    centre: np.ndarray = None  # (k,)
    sd: np.ndarray = None  # (k,)
    factors: np.ndarray = None  # (D,): on prior standard deviations

    def __post_init__(self):
        self.centre, self.sd = np.zeros(self.n_free), np.full(self.n_free, np.inf)
        self.factors = np.ones(self.n_weights)

    @property
    def priors(self):
        """Those of free numbers."""
        return LogNormalPriors(self.centre.copy(), self.sd.copy())

    def renew(self, fits):
        """Find what is shared from fits under the present priors; return the largest change."""
        good, change = fits.status == CONVERGED_STATUS, 0.0
        if np.count_nonzero(good) < MIN_RESPONSES_TO_SHARE:
            message = f"needs at least {MIN_RESPONSES_TO_SHARE} responses that converge, got {np.count_nonzero(good)}"
            raise arrays.error_of("share", message)
        for j in self.parameters:
            before, weight = self.sd[j], 1.0 / self.sd[j] ** 2
            change = change if np.isfinite(before) else np.inf
            free, information = fits.free[good, j], -fits.curvature[good, j] - weight
            pulled = (information + weight) * free - weight * self.centre[j]
            centre, self.sd[j] = fit_normal(pulled, information, True)
            change = max(change, abs(centre - self.centre[j]) / self.sd[j], abs(np.log(self.sd[j]) - np.log(before)))
            self.centre[j] = centre
        for j in self.weights:
            diagonal, before = j * (j + 3) // 2, self.factors[j]
            sd = fits.prior_sd[good, j] / before
            precision = sd**2 / fits.covariance[good, diagonal]
            pulled = precision * (fits.mean[good, j] - fits.prior_mean[good, j]) / sd
            self.factors[j] = fit_normal(pulled, precision - 1.0 / before**2, False)[1]
            change = max(change, abs(np.log(self.factors[j] / before)))
        return change


def fit_normal(pulled, information, has_centre):
    """Return the centre and the sd that maximise (1).

    Parameters
    ----------
    pulled : ndarray (G,)
        h t.
    information : ndarray (G,)
        h; responses without any do not count.
    has_centre : bool
        Whether the centre is found; else it is 0.
    """
    good = np.isfinite(information) & (information > 0)
    good &= information > MIN_INFORMATION * np.max(information[good], initial=0.0)
    variance, at = 1.0 / information[good], pulled[good] / information[good]

    def evaluate(log_sd):
        total = np.exp(2.0 * log_sd) + variance
        centre = np.sum(at / total) / np.sum(1.0 / total) if has_centre else 0.0
        return -0.5 * np.sum((at - centre) ** 2 / total + np.log(total)), centre

    grid = np.linspace(np.log(MIN_SHARED_SD), np.log(MAX_SHARED_SD), GRID_SIZE)
    best = int(np.argmax([evaluate(log_sd)[0] for log_sd in grid]))
    low, high = grid[max(best - 1, 0)], grid[min(best + 1, GRID_SIZE - 1)]
    for _ in range(GOLDEN_STEPS):
        left, right = high - GOLDEN_RATIO * (high - low), low + GOLDEN_RATIO * (high - low)
        if evaluate(left)[0] >= evaluate(right)[0]:
            high = right
        else:
            low = left
    log_sd = 0.5 * (low + high)
    return evaluate(log_sd)[1], float(np.exp(log_sd))


def check_share(share, problem, coefficient_names):
    """Return the `SharedPriors` of the argument `share`; ValueError or TypeError for what cannot be shared."""
    names = () if share is None else (share,) if isinstance(share, str) else share
    if not isinstance(names, tuple | list):
        raise arrays.error_of("share", f"must be a name or a tuple of names, got {share!r}", TypeError)
    there = (*problem.names, *coefficient_names)
    for name in names:
        arrays.check_choice(name, "share", there)
    parameters = [problem.names.index(name) for name in dict.fromkeys(names) if name in problem.names]
    weights = [coefficient_names.index(name) for name in dict.fromkeys(names) if name not in problem.names]
    if weights and problem.prior.variance.ndim == 2:
        raise arrays.error_of("share", "of coefficients needs prior_variance as a number or a vector, got a matrix")
    return SharedPriors(problem.n_free, parameters, problem.rows.X.shape[1], weights)


def learn_shared_priors(shared, problem, responses, offsets, threads, job):
    """Find the shared priors from some of the responses, in place, in passes over these."""
    spans = list_spans(problem, responses.shape[1])
    spans = spans[:: max(1, -(-responses.shape[1] // MAX_SHARED_RESPONSES))]
    if not (shared.parameters or shared.weights):
        return
    state = job.restore() or {"passes": 0, "change": np.inf}
    passes, change = state.pop("passes"), state.pop("change")
    for name, value in state.items():
        setattr(shared, name, value)
    while passes < MAX_SHARED_PASSES and change > SHARED_TOL:
        stage = job.substage(f"pass {passes}")
        fits = fit_responses(problem, responses, offsets, threads, stage, shared.factors, shared.priors, spans)
        if job.stopped:
            break
        passes, change = passes + 1, shared.renew(fits)
        state = {name: getattr(shared, name).copy() for name in ("centre", "sd", "factors")}
        job.store(partial(dict, state, passes=passes, change=change))
