"""Moves between local optima of a Gaussian mixture: components merged, emptied, and put in order.

Each is tried from the sums that the current optimum leads to, and kept only if its ELBO is larger. The model
stays what it is, so that ELBOs compare: a component that lost its data goes back to the prior and waits there.

References
----------
.. [UN] Naonori Ueda, Ryohei Nakano, Zoubin Ghahramani and Geoffrey Hinton, "SMEM algorithm for mixture models", Neural
   Computation 12, 2000.
.. [HS] Michael Hughes and Erik Sudderth, "Memoized online variational inference for Dirichlet process mixture models",
   Advances in Neural Information Processing Systems 26, 2013.
"""

from dataclasses import replace

import numpy as np

from cavity.base.loop import MAX_ITER, STOPPED
from cavity.mean_field import engine
from cavity.models.mixture.state import RowSums

OVERTAKING = 15  # passes that a move has to overtake the current optimum
TRIED_OF_A_KIND = 5  # of each kind and round
OCCUPIED = 0.5  # expected rows below which a component is empty


def improved(sweeps, fit, options):
    """Return the fit with all moves made that raise the ELBO; its passes and traces count those of the trials too.

    Parameters
    ----------
    sweeps : MixtureSweeps
        The model.
    fit : MeanFieldFit
        A fit of it.
    options : AscentOptions
        Of the fit; max_iter counts all passes.
    """
    accepted, options = [], replace(options, job=options.job.stage("moves"))
    tried = True
    while tried and fit.n_iter < options.max_iter and fit.status != STOPPED:
        tried = False
        fit = _revisited(fit)  # for the sums that candidates are made of
        for state in _candidates(sweeps, fit.state):
            left = options.max_iter - fit.n_iter
            if left < 1:
                break
            trial = engine.ascend(sweeps, state, replace(options.after(fit), max_iter=min(OVERTAKING, left)))
            better = trial.elbo > fit.elbo + _noise(fit.elbo)
            if better and trial.status == MAX_ITER and left > trial.n_iter:
                more = engine.ascend(sweeps, trial.image, options.after(fit, trial))
                trial = engine.joined(trial, more)
            fit = engine.joined(fit, trial, kept=better)
            if better:
                accepted.append(fit.n_iter)
            tried = better and trial.status != STOPPED
            if tried or trial.status == STOPPED:
                break
    return replace(fit, trace=fit.trace | {"moves": np.array(accepted, dtype=int)})


def _revisited(fit):
    """Return the fit after one more pass, which changed nothing."""
    last = {"elbo": fit.elbo, "change": fit.trace["change"][-1], "contraction": np.nan}
    trace = {name: np.append(fit.trace[name], value) for name, value in last.items()}
    return replace(fit, n_iter=fit.n_iter + 1, trace=trace)


def _noise(elbo):
    return 1e-9 * max(1.0, abs(elbo))


def _candidates(sweeps, state):
    """Yield states to try: in order of size, with two components merged, with one left out."""
    sums, _ = sweeps.sums(state)
    counts = sums.counts
    by_size = np.argsort(-counts, kind="stable")
    if state.weights.sticks and np.any(np.diff(by_size) < 0):
        yield replace(state, factors=state.factors.take(by_size)).renewed(sweeps.prior, sums.taken(by_size))
    occupied = np.flatnonzero(counts > OCCUPIED)
    if len(occupied) < 2:
        return
    for large, small in _closest(state, counts, occupied):
        yield state.renewed(sweeps.prior, _merged(sums, state.factors.mean, large, small))
    for k in occupied[np.argsort(counts[occupied], kind="stable")][:TRIED_OF_A_KIND]:
        yield state.renewed(sweeps.prior, _emptied(sums, k))


def _closest(state, counts, occupied):
    """Return pairs of components, the larger one first, those that are most alike before others."""
    contrasts = state.factors.contrasts(state.factors)
    pairs = [(i, j) for n, i in enumerate(occupied) for j in occupied[n + 1 :]]
    pairs.sort(key=lambda pair: contrasts[pair])
    return [pair if counts[pair[0]] >= counts[pair[1]] else pair[::-1] for pair in pairs[:TRIED_OF_A_KIND]]


def _merged(sums, mean, large, small):
    """Return the sums with the rows of component `small` given to `large`."""
    step = np.zeros_like(mean)
    step[small] = mean[small] - mean[large]
    moved = sums.moved(step)
    parts = [part.copy() for part in moved.parts()]
    for part in parts:
        part[large] += part[small]
    return _emptied(RowSums(*parts), small)


def _emptied(sums, k):
    """Return the sums without the rows of component k."""
    parts = [part.copy() for part in sums.parts()]
    for part in parts:
        part[k] = 0.0
    return RowSums(*parts)
