"""How much of each site change is made."""

import numpy as np
import pytest

from cavity.ep.damping import PARALLEL_PATIENCE, SEQUENTIAL_PATIENCE, BatchDamping, Damping


@pytest.mark.parametrize("wait", [SEQUENTIAL_PATIENCE, PARALLEL_PATIENCE])
def test_damping_adapts(wait):
    """It falls to 0.6 of itself without progress in so many sweeps, and grows by 1.2, up to the one asked for."""
    damping = Damping(0.9, wait)
    damping.adapt(1.0)
    for _ in range(wait - 1):
        damping.adapt(0.91)
        assert damping.step == damping.downward_step == 0.9  # not damped more than asked for
    damping.adapt(0.91)
    assert damping.step == pytest.approx(0.54)
    assert damping.downward_step == pytest.approx(0.54**2)
    damping.adapt(0.8)
    assert damping.step == pytest.approx(0.648)
    for _ in range(wait - 1):  # the count begins anew
        damping.adapt(0.75)
    assert damping.step == pytest.approx(0.648)
    for _ in range(100):
        damping.adapt(1.0)
    assert damping.step == 0.05
    for k in range(50):
        damping.adapt(0.5**k)
    assert damping.step == 0.9


def test_steps_that_grow_the_change_are_shortened_at_once():
    """Where all sites are renewed at once, a fit would be far away after a few sweeps that diverge."""
    damping = Damping(1.0, PARALLEL_PATIENCE)
    for change, step in ((10.0, 1.0), (60.0, 0.6), (300.0, 0.36), (200.0, 0.432)):
        damping.adapt(change)
        assert damping.step == pytest.approx(step)


def test_less_than_the_least_may_be_asked_for():
    damping = Damping(0.01, PARALLEL_PATIENCE)
    damping.shorten(0.5)
    for _ in range(9):
        damping.adapt(1.0)
    assert damping.step == 0.01


@pytest.mark.parametrize("wait", [SEQUENTIAL_PATIENCE, PARALLEL_PATIENCE])
def test_each_of_many_problems_has_its_own(wait):
    changes = np.random.default_rng(0).uniform(0.5, 1.5, (60, 3)) * 0.98 ** np.arange(60)[:, None]
    together, apart = BatchDamping(0.8, wait, 3), [Damping(0.8, wait) for _ in range(3)]
    for change in changes:
        together.adapt(change)
        for one, item in zip(apart, change, strict=True):
            one.adapt(item)
        np.testing.assert_array_equal(together.step, [one.step for one in apart])
    assert np.any(together.step != 0.8)
