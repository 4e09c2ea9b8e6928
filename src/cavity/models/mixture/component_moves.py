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
from itertools import islice

import numpy as np

from cavity.base.loop import MAX_ITER_STATUS, STOPPED_STATUS
from cavity.mean_field import engine
from cavity.mean_field.engine import MeanFieldFit
from cavity.models.mixture.state import RowSums

MAX_TRIAL_PASSES = 15  # passes that a move has to overtake the current optimum
MAX_TRIALS_PER_KIND = 5  # of each kind and round
ELBO_ROUNDING = 1e-9  # relative difference of two ELBOs that rounding may make
OCCUPIED_ROWS = 0.5  # expected rows below which a component is empty


def ascend_with_moves(sweeps, moves, start, options):
    """Return the fit from a start, with moves if they are requested.

    Parameters
    ----------
    sweeps : MixtureSweeps
        The model.
    moves : bool
        Whether to try moves.
    start : tuple
        The first state, and the passes that led there or None, see `start.generate_states`.
    options : AscentOptions
        Of the fit; max_iter counts all passes.
    """
    if moves:
        inner = replace(options, job=options.job.substage("climb"))
        return improve_by_moves(sweeps, lambda: ascend_with_moves(sweeps, False, start, inner), options, start)
    state, trial = start
    if trial is None:
        return engine.ascend(sweeps, state, options)
    return engine.join_fits(trial, engine.ascend(sweeps, state, options.after(trial)))


def improve_by_moves(sweeps, climb, options, like=()):
    """Return a fit with all moves made that raise the ELBO; its passes and traces count those of the trials too.

    Parameters
    ----------
    sweeps : MixtureSweeps
        The model.
    climb : callable
        Returns a fit of it, without arguments.
    options : AscentOptions
        Of the fit; max_iter counts all passes.
    like : object
        What the state is like that the fit begins with.
    """
    saved = options.job.restore(MeanFieldFit, like) or {"fit": climb(), "accepted": [], "tried": None}
    fit, accepted, before = (
        saved["fit"],
        saved["accepted"],
        saved["tried"],
    )  # None before a round
    while fit.n_iter < options.max_iter and fit.status != STOPPED_STATUS:
        if before is None:
            fit, before = _repeat_last_pass(fit), 0  # for the sums that candidates are made of
        better = False
        for number, state in islice(enumerate(_propose_moves(sweeps, fit.state), 1), before, None):
            passes = options.max_iter - fit.n_iter
            if passes < 1:
                break
            more = options.after(fit)
            more = replace(more, max_iter=min(MAX_TRIAL_PASSES, passes), job=more.job.stage("moves").substage("trial"))
            trial = engine.ascend(sweeps, state, more)
            better = trial.elbo > fit.elbo + ELBO_ROUNDING * max(1.0, abs(fit.elbo))
            if better and trial.status == MAX_ITER_STATUS and passes > trial.n_iter:
                more = options.after(fit, trial)
                rest = engine.ascend(sweeps, trial.image, replace(more, job=more.job.stage("moves").substage("rest")))
                trial = engine.join_fits(trial, rest)
            fit = engine.join_fits(fit, trial, accepted=better)
            if better:
                accepted = [*accepted, fit.n_iter]
            if trial.status == STOPPED_STATUS:
                better = False
            else:
                now = {"fit": fit, "accepted": accepted, "tried": None if better else number}
                options.job.store(lambda now=now: now)
            if better or trial.status == STOPPED_STATUS:
                break
        before = None
        if not better:
            break
    return replace(fit, trace=fit.trace | {"moves": np.array(accepted, dtype=int)})


def _repeat_last_pass(fit):
    """Return the fit after one more pass, which changed nothing."""
    last = {"elbo": fit.elbo, "change": fit.trace["change"][-1], "contraction": np.nan}
    trace = {name: np.append(fit.trace[name], value) for name, value in last.items()}
    return replace(fit, n_iter=fit.n_iter + 1, trace=trace)


def _propose_moves(sweeps, state):
    """Yield states to try: in order of size, with two components merged, with one left out."""
    sums, _ = sweeps.sums(state)
    counts = sums.counts
    by_size = np.argsort(-counts, kind="stable")
    if state.weights.sticks and np.any(np.diff(by_size) < 0):
        yield replace(state, factors=state.factors.take(by_size)).update(sweeps.prior, sums.take(by_size))
    occupied = np.flatnonzero(counts > OCCUPIED_ROWS)
    if len(occupied) < 2:
        return
    for large, small in _find_closest_pairs(state, counts, occupied):
        yield state.update(sweeps.prior, _merge_components(sums, state.factors.mean, large, small))
    for k in occupied[np.argsort(counts[occupied], kind="stable")][:MAX_TRIALS_PER_KIND]:
        yield state.update(sweeps.prior, _empty_component(sums, k))


def _find_closest_pairs(state, counts, occupied):
    """Return pairs of components, the larger one first, those that are most alike before others."""
    contrasts = state.factors.contrasts(state.factors)
    pairs = [(i, j) for n, i in enumerate(occupied) for j in occupied[n + 1 :]]
    pairs.sort(key=lambda pair: contrasts[pair])
    return [pair if counts[pair[0]] >= counts[pair[1]] else pair[::-1] for pair in pairs[:MAX_TRIALS_PER_KIND]]


def _merge_components(sums, mean, large, small):
    """Return the sums with the rows of component `small` given to `large`."""
    step = np.zeros_like(mean)
    step[small] = mean[small] - mean[large]
    moved = sums.shift(step)
    parts = [part.copy() for part in moved.parts()]
    for part in parts:
        part[large] += part[small]
    return _empty_component(RowSums(*parts), small)


def _empty_component(sums, k):
    """Return the sums without the rows of component k."""
    parts = [part.copy() for part in sums.parts()]
    for part in parts:
        part[k] = 0.0
    return RowSums(*parts)
