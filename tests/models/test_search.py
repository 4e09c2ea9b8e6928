"""The search that all models with EP share."""

import numpy as np
import pytest

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
