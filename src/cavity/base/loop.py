"""The one iteration loop: when to stop, what to store, what to report.

It drives any number of independent problems at once, so that a batch and a single fit stop by the same rule.
"""

from dataclasses import dataclass
from functools import partial

import numpy as np

from cavity.base.errors import ConvergenceWarning, warn

CONVERGED_STATUS, MAX_ITER_STATUS, STUCK_STATUS, STOPPED_STATUS = (
    "converged",
    "max_iter reached",
    "no progress",
    "stopped by callback",
)

SWEEPS_OF_TREND = 5  # sweeps whose mean rate predicts how many are left
ROUNDING_CHANGE = 1e-9  # changes below it may have stopped halving because of rounding: no reason to look elsewhere


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """How a fit ended.

    Attributes
    ----------
    status : str
        Why the iteration ended: CONVERGED, or what kept it from that.
    n_iter : int
        Passes over the data.
    trace : dict of ndarray
        What happened in each of them.
    """

    status: str
    n_iter: int
    trace: dict

    @property
    def converged(self):
        """Whether the stopping rule was met."""
        return self.status == CONVERGED_STATUS


@dataclass(frozen=True, slots=True)
class Iteration:
    """How the loop ended, per problem: `status` and `n_iter` have shape (B,), `changes` (n_sweeps, B)."""

    status: np.ndarray
    n_iter: np.ndarray
    changes: np.ndarray


def iterate(step, options, patience, n_problems=1, n_rows=None, holder=None):
    """Call `step(active)` until every problem has converged, is stuck, or max_iter sweeps are done.

    Parameters
    ----------
    step : callable
        Does one sweep of the problems marked in the boolean array it gets. Returns, for each, its change and whether
        the sweep was complete, both (B,); an incomplete sweep does not count as converged however small its change.
        Of a single problem it may do several sweeps, none of them after one that ends the iteration.
    options : cavity.ep.options.Options
        Of these `max_iter`, the most sweeps; `tol`: a problem has converged when its change in a complete sweep is at
        most that; `job`, whose `after` hears of each sweep and its largest change, and stops the loop by a true
        result; `damping`, see `patience`.
    patience : float
        A problem is stuck when its smallest change has not halved in that many sweeps, more where they are damped, and
        is above rounding.
    n_problems : int
        B.
    n_rows : int, optional
        Rows of a sweep.
    holder : object, optional
        The object that the sweeps change, if they can be continued from a checkpoint: `checkpoint_state()` returns all
        that decides how they continue, and `restore(state)` puts it back.
    """
    patience = patience / options.damping
    status = np.full(n_problems, MAX_ITER_STATUS, dtype=object)
    n_iter = np.zeros(n_problems, dtype=np.intp)
    best, waited = np.full(n_problems, np.inf), np.zeros(n_problems)
    active = np.ones(n_problems, dtype=bool)
    changes = []
    job = options.job
    last = job.restore(holder.checkpoint_state()) if job.has_checkpoint and holder is not None else None
    if last is not None:
        holder.restore(last["holder"])
        status, changes = last["status"].astype(object), [*last["changes"]]
        n_iter, best, waited = (last[name].copy() for name in ("n_iter", "best", "waited"))
        active = status == MAX_ITER_STATUS
    while True:
        if changes and job.has_receivers:  # reported again after a kill: the last report may not have arrived
            sweeps_left = partial(_estimate_sweeps_left, changes, options)
            if job.report(len(changes), change=changes[-1].max, rows=n_rows, left=sweeps_left):
                status[active] = STOPPED_STATUS
                break
        if not (active[0] if n_problems == 1 else active.any()) or len(changes) >= options.max_iter:
            break
        change, complete = step(active)
        if n_problems == 1:
            for sweep_change, is_complete in zip(change, complete, strict=True):
                changes.append(np.array([sweep_change]))
                _judge_one(float(sweep_change), bool(is_complete), options.tol, patience, status, n_iter, best, waited)
            active[0] = status[0] == MAX_ITER_STATUS
        else:
            changes.append(np.where(active, change, 0.0))
            _judge_all(changes[-1], complete, options.tol, patience, status, n_iter, best, waited)
            active = status == MAX_ITER_STATUS
        if holder is not None and job.has_checkpoint:
            counters = {"n_iter": n_iter, "best": best, "waited": waited}
            job.store(partial(_checkpoint_state, status, changes, counters, holder))
    return Iteration(status, n_iter, np.array(changes).reshape(-1, n_problems))


def _judge_all(change, complete, tol, patience, status, n_iter, best, waited):
    """Update the status and the counters of problems after a sweep."""
    active = status == MAX_ITER_STATUS
    n_iter += active
    halved = complete & (change < 0.5 * best)
    best[:] = np.where(halved, change, best)
    waited[:] = np.where(halved, 0, waited + 1)
    done = (change <= tol) & complete
    status[active & done] = CONVERGED_STATUS
    status[active & ~done & (waited >= patience) & ~(complete & (change <= ROUNDING_CHANGE))] = STUCK_STATUS


def _judge_one(change, complete, tol, patience, status, n_iter, best, waited):
    """Do what `_judge_all` does for the only problem, which is active: numbers take less time than arrays of one."""
    n_iter[0] += 1
    if complete and change < 0.5 * best[0]:
        best[0], waited[0] = change, 0
    else:
        waited[0] += 1
    if complete and change <= tol:
        status[0] = CONVERGED_STATUS
    elif waited[0] >= patience and not (complete and change <= ROUNDING_CHANGE):
        status[0] = STUCK_STATUS


def _checkpoint_state(status, changes, counters, holder):
    """Return what `iterate` goes on with: copies, as it changes its own."""
    counters = {name: array.copy() for name, array in counters.items()}
    return counters | {"status": status.astype(str), "changes": np.array(changes), "holder": holder.checkpoint_state()}


def estimate_passes_left(gap, tol, rate, most):
    """Return how many passes bring a gap that shrinks by `rate` in each to tol; None if unknown, or if above `most`."""
    if not (0.0 < rate < 1.0 and np.isfinite(gap)):
        return None
    if gap <= tol:
        return 0.0
    passes = float(np.log(gap / tol) / -np.log(rate)) if tol > 0 else np.inf
    return passes if passes <= most else None


def _estimate_sweeps_left(changes, options):
    """Return how many sweeps are left if the largest changes go on shrinking as they did in the last ones."""
    steps = min(SWEEPS_OF_TREND, len(changes) - 1)
    last, before = float(changes[-1].max()), float(changes[-1 - steps].max())
    if steps == 0 or not before > 0:
        return None
    return estimate_passes_left(last, options.tol, (last / before) ** (1.0 / steps), options.max_iter - len(changes))


def warn_unconverged(status, change, tol, max_iter):
    """Issue the ConvergenceWarning for problems whose status is not CONVERGED, at the line that called `fit`."""
    status = np.atleast_1d(status)
    failed = status != CONVERGED_STATUS
    if failed.any():
        many = f" for {failed.sum()} of {failed.size} problems" if failed.size > 1 else ""
        warn(
            f"not converged{many}: {status[failed][0]} (last change {np.max(np.atleast_1d(change)[failed]):.3g}, "
            f"tol {tol:.3g}, max_iter {max_iter})",
            ConvergenceWarning,
        )
