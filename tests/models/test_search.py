"""The search that all models with EP share."""

import numpy as np
import pytest

from cavity.blocks.job import Job
from cavity.models import search


@pytest.mark.parametrize("calls", range(1, 7))
def test_a_search_that_ends_where_ep_fails_does_not_say_that_it_came_to_rest(calls):
    """After some evaluations EP fails everywhere, which counts as a wall that is flat."""
    seen = []

    def objective(x):
        if len(seen) >= calls:
            return 1e3, np.zeros(2)
        curvature = np.array([1.0, 30.0])
        seen.append(0.5 * float(curvature @ (x - 5.0) ** 2))
        return seen[-1], curvature * (x - 5.0)

    value, x, slope = search.climb(objective, np.zeros(2), np.array([[-9.0, 9.0]] * 2))
    assert value == min(seen)
    assert value == 0.5 * float(np.array([1.0, 30.0]) @ (x - 5.0) ** 2)
    assert slope == pytest.approx(np.max(np.abs([1.0, 30.0] * (x - 5.0))), rel=1e-12)
    assert slope > 0.1


def test_a_callback_hears_of_every_evaluation_and_stops_at_the_best_so_far():
    seen, values = [], []

    def objective(x):
        values.append(float(x @ x))
        return values[-1], 2.0 * x

    def enough(event):
        seen.append((event.n_iter, event.objective))
        return event.n_iter == 3

    job, bounds = Job.checked(enough), np.array([[-9.0, 9.0]] * 2)
    value, x, slope = search.climb(objective, np.array([3.0, -4.0]), bounds, job=job)
    assert seen == [(n, -min(values[:n])) for n in (1, 2, 3)]
    assert len(values) == 3
    assert value == min(values) == x @ x
    assert slope == np.max(np.abs(2.0 * x))
    assert search.climb(objective, np.ones(2), bounds, job=job)[0] == 2.0  # what begins after a stop ends at once
    assert len(values) == 4
