"""Where the fit of a Gaussian mixture starts: labels of a sample become states, a few passes choose between them."""

from dataclasses import replace

import numpy as np

from cavity.blocks.executors import Threads
from cavity.mean_field import engine
from cavity.models.mixture import start
from cavity.models.mixture.sweep import State, Sweeps

TRIAL = 20  # passes over the sample that decide where to start


def starts(data, prior, given, init, n_init, generator, shared, max_iter=TRIAL + 1):
    """Yield the first state of every start, and the passes over all data that led there, a `Fit` or None.

    Parameters
    ----------
    data : Data
        The data, of which a sample is looked at.
    prior : State
        The prior.
    given : ndarray (K, D) or None
        Initial means in coordinates.
    init : str
        How to start without them: "auto", or a method of `start`.
    n_init : int
        How many starts; those after the first are drawn by `generator`.
    generator : numpy.random.Generator or None
        Source of randomness.
    shared : bool
        Whether all columns are in one unit; if not, they are standardised.
    max_iter : int
        Most passes over all data of a fit, of which trials leave one at least.
    """
    sample, k = data.sample(), len(prior.counts)
    points, weight = sample.points()
    spread = 1.0 if shared else _spread(points, weight)
    standard, options = points / spread, {"missing": data.missing}
    if given is not None:
        labels = [_nearest(standard, given / spread)]
    elif init == "auto":
        labels = start.candidates(standard, weight, k, **options)
    else:
        labels = [start.initial_labels(standard, weight, k, init, **options)]
    states = [state_of_labels(prior, points, weight, each) for each in labels]
    state, trial = _best(sample, prior, states, min(TRIAL, max_iter - 1) if sample is data else TRIAL)
    yield state, trial if sample is data else None
    for _ in range(n_init - 1):
        drawn = start.initial_labels(standard, weight, k, "random", generator, **options)
        yield state_of_labels(prior, points, weight, drawn), None


def _best(sample, prior, states, passes):
    """Return where passes over the sample lead from the best of the states, and how; the only one as it is."""
    if len(states) == 1 or passes < 1:
        return states[0], None
    options = engine.check_options(True, passes, 0.0)
    with Threads(1) as thread:
        sweeps = Sweeps(prior, sample.frame, sample.n_samples, sample, thread)
        trials = [engine.fit(sweeps, state, **options) for state in states]
    best = max(trials, key=lambda trial: trial.elbo)
    return best.state, best


def state_of_labels(prior, points, weight, labels):
    """Return the optimal state if the component of each point were known.

    Parameters
    ----------
    prior : State
        The prior.
    points : ndarray (n, D)
        In coordinates; nan where a value was not seen.
    weight : ndarray (n,) or None
        Their weights.
    labels : ndarray of int (n,)
        Their components.
    """
    k, dim = prior.factors.mean.shape
    full = prior.full
    weight = np.ones(len(points)) if weight is None else weight
    seen = ~np.isnan(points)
    values = np.where(seen, points, 0.0)
    member = np.zeros((k, len(points)))
    member[labels, np.arange(len(points))] = weight
    known = member @ seen
    with np.errstate(invalid="ignore"):
        mean = np.where(known > 0, member @ values / known, prior.factors.mean)
    second = np.zeros((k, dim, dim) if full else (k, dim))
    for j in range(k):
        d = np.where(seen, points - mean[j], 0.0)[labels == j]
        w = weight[labels == j, None]
        second[j] = (w * d).T @ d if full else np.sum(w * d * d, axis=0)
    counts = np.sum(member, axis=1)
    per_column = prior.factors.beta.shape[1] > 1
    about = replace(prior.factors, mean=mean)
    factors = about.renewed(prior.factors, known if per_column else counts[:, None], np.zeros((k, dim)), second)
    return State(prior.weights.renewed(prior.weights, counts), factors, counts)


def _spread(points, weight):
    """Return the standard deviations of the columns, 1 where they are constant, so that units do not matter."""
    weight = np.ones(len(points)) if weight is None else weight / np.max(weight)
    share = np.where(np.isnan(points), 0.0, weight[:, None])
    share /= np.maximum(np.sum(share, axis=0), np.finfo(float).tiny)
    mean = np.sum(share * np.nan_to_num(points), axis=0)
    spread = np.sqrt(np.sum(share * np.nan_to_num(points - mean) ** 2, axis=0))
    return np.where(spread > 0, spread, 1.0)


def _nearest(points, means):
    """Return which of the means (K, D) is nearest to each point (n, D), by the columns that were seen."""
    distances = np.stack([np.nansum((points - mean) ** 2, axis=1) for mean in means], axis=1)
    return np.argmin(distances, axis=1)
