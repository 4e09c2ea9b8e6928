"""The iteration loop: when it stops and what it reports."""

import numpy as np
import pytest
from support.events import writing

from cavity import ConvergenceWarning
from cavity.base import loop
from cavity.ep.options import Options
from cavity.jobs.job import Job


def run(changes, complete=True, **options):
    """Run the loop over prescribed changes, one row per sweep."""
    rows = iter(np.atleast_2d(np.array(changes, dtype=float).T).T.reshape(len(changes), -1))
    size = np.reshape(changes, (len(changes), -1)).shape[1]
    seen = []

    def step(active):
        seen.append(active.copy())
        return next(rows), np.full(size, complete)

    return loop.iterate(step, Options(**(dict(max_iter=100, tol=1e-3) | options)), 3, size), seen


def test_converged():
    outcome, _ = run([1, 0.1, 1e-3, 1e-9])
    assert outcome.status[0] == loop.CONVERGED_STATUS
    assert outcome.n_iter[0] == 3
    assert outcome.changes[:, 0].tolist() == [1, 0.1, 1e-3]


def test_max_iter():
    outcome, _ = run([1, 0.4, 0.1, 0.04], max_iter=4)
    assert outcome.status[0] == loop.MAX_ITER_STATUS
    assert outcome.n_iter[0] == 4


def test_stuck_when_the_best_change_has_not_halved():
    outcome, _ = run([1, 0.4, 0.3, 0.25, 0.21, 0.1])
    assert outcome.status[0] == loop.STUCK_STATUS
    assert outcome.n_iter[0] == 5


def test_an_incomplete_sweep_is_neither_convergence_nor_progress():
    outcome, _ = run([0.0] * 6, complete=False)
    assert outcome.status[0] == loop.STUCK_STATUS
    assert outcome.n_iter[0] == 3


def test_problems_end_one_by_one():
    outcome, seen = run([[1, 1, 1], [1e-4, 0.4, 0.9], [5, 1e-4, 0.9], [5, 5, 0.9], [5, 5, 0.9]])
    assert outcome.status.tolist() == [loop.CONVERGED_STATUS, loop.CONVERGED_STATUS, loop.STUCK_STATUS]
    assert outcome.n_iter.tolist() == [2, 3, 4]
    assert [s.tolist() for s in seen] == [[True] * 3] * 2 + [[False, True, True], [False, False, True]]
    assert (outcome.changes[2:, 0] == 0).all()


def test_callback_can_stop():
    calls = []
    outcome, _ = run([[1, 2], [1, 1.5]], job=Job.checked(writing(calls, "change", stop=2)))
    assert calls == [(1, 2.0), (2, 1.5)]
    assert outcome.status.tolist() == [loop.STOPPED_STATUS] * 2


def test_nan_never_converges():
    outcome, _ = run([np.nan] * 5)
    assert outcome.status[0] == loop.STUCK_STATUS


def test_warning_names_the_numbers():
    with pytest.warns(
        ConvergenceWarning, match=r"not converged for 1 of 2 problems: no progress \(last change 0.5, tol 0.1"
    ):
        loop.warn_unconverged(np.array([loop.CONVERGED_STATUS, loop.STUCK_STATUS]), np.array([0.0, 0.5]), 0.1, 10)


def test_sweeps_that_are_left_follow_from_how_fast_changes_shrink():
    seen = []
    run([1.0, 0.5, 0.25, 0.125, 1e-9], job=Job.checked(writing(seen, "passes_left")))
    assert seen[0] == (1, None)
    assert [left for _, left in seen[1:4]] == pytest.approx([np.log2(change / 1e-3) for change in (0.5, 0.25, 0.125)])
    assert seen[4] == (5, 0.0)
    run([1.0, 2.0, 1.5, 1.0], job=Job.checked(writing(seen, "passes_left")), max_iter=4)
    assert [left for _, left in seen[5:]] == [None, None, None, None]
    run([1.0, 0.999, 0.998], job=Job.checked(writing(seen, "passes_left")), max_iter=3)
    assert [left for _, left in seen[9:]] == [None, None, None]  # max_iter ends it first


def test_passes_that_are_left():
    assert loop.estimate_passes_left(8.0, 1.0, 0.5, 100) == pytest.approx(3.0)
    assert loop.estimate_passes_left(1.0, 1.0, 0.5, 100) == 0.0
    assert loop.estimate_passes_left(8.0, 0.0, 0.5, 100) is None
    assert loop.estimate_passes_left(8.0, 1.0, 0.5, 2) is None
    assert [loop.estimate_passes_left(8.0, 1.0, rate, 9) for rate in (0.0, 1.0, 1.5, np.nan)] == [None] * 4
    assert loop.estimate_passes_left(np.inf, 1.0, 0.5, 9) is None
