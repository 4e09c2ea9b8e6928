"""Many clutter problems in SIMD lanes: every lane and every chunk against the naive twin."""

import numpy as np
import pytest
from reference import clutter as reference
from support.clutters import draw, points_of
from support.tolerances import AT_REST, LOSSES, SOLVES

from cavity import _core


def problems_in_lanes(n, seed=0):
    """Two groups of problems in lanes, the last row of each far out: (model, x, centre, prior tau, sites of zero)."""
    x = np.moveaxis(draw((2, 32, n, 1), seed=seed)[..., 0], 1, 2).copy()
    x[:, -1] = 4.0 + 0.1 * np.arange(32)
    model = points_of(x.reshape(-1, 1)).units.model
    return model, x, np.zeros((2, 32)), np.linspace(-0.02, 0.02, 64).reshape(2, 32), np.zeros((2, 2, n, 32))


@pytest.mark.parametrize("variant", _core.variants("clutter_lanes"))
@pytest.mark.parametrize("n", [1, 2, 7, 8, 9])
def test_every_lane_of_a_sweep_equals_the_naive_twin(variant, n):
    """Lanes of the second group alone, each with a damping of its own, 0 for those that are done; in reversed order."""
    kernel, (model, x, centre, prior_tau, sites) = _core.load("clutter_lanes", variant), problems_in_lanes(n, seed=n)
    assert kernel.lanes == x.shape[-1] == 32
    tau, rho, skipped = np.empty((2, 32)), np.empty((2, 32)), np.zeros((2, 32))
    damping = np.tile(np.arange(32) / 31, (2, 1))
    order = np.arange(n)[::-1].copy()
    kernel.start_lanes(*sites, prior_tau, 0.5, tau, rho)
    np.testing.assert_array_equal(tau, prior_tau)
    np.testing.assert_array_equal(rho, 0.5)
    for _ in range(2):
        kernel.sweep_lanes(model, x, centre, prior_tau, 0.5, np.array([1]), order, *sites, tau, rho, damping, skipped)
    assert not sites[:, 0].any()
    for lane in range(32):
        m0 = 2.0 * prior_tau[1, lane]
        one = reference.ep(x[1, :, lane, None], 2, m0=m0, v0=2.0, order=order, damping=damping[1, lane])
        np.testing.assert_allclose(sites[0, 1, :, lane], one[4][:, 0], rtol=AT_REST, atol=SOLVES)
        np.testing.assert_allclose(sites[1, 1, :, lane], one[5], rtol=AT_REST, atol=SOLVES)
        assert tau[1, lane] / rho[1, lane] == pytest.approx(one[0][0], rel=AT_REST)
        assert 1 / rho[1, lane] == pytest.approx(one[1], rel=AT_REST)


@pytest.mark.parametrize("variant", _core.variants("clutter_lanes"))
def test_every_lane_skips_what_is_improper(variant):
    """A site that holds more than the posterior: it stays, and its lane alone counts it."""
    kernel, (model, x, centre, prior_tau, sites) = _core.load("clutter_lanes", variant), problems_in_lanes(3)
    for lane in range(32):
        sites[:] = 0.0
        sites[1, 1, 2, lane] = 1.0
        before, skipped, posterior = sites.copy(), np.full((2, 32), 5.0), [np.full((2, 32), x) for x in (0.0, 0.5)]
        kernel.sweep_lanes(
            model, x, centre, prior_tau, 0.01, np.arange(2), np.array([2, 0, 1]), *sites, *posterior,
            np.ones((2, 32)), skipped,
        )  # fmt: skip
        np.testing.assert_array_equal(np.argwhere(skipped != 5.0), [[1, lane]])
        assert skipped[1, lane] == 6.0
        np.testing.assert_array_equal(sites[:, 1, 2, lane], before[:, 1, 2, lane])
        assert np.all(sites[1, :, :2] != 0)


@pytest.mark.parametrize("variant", _core.variants("clutter_lanes"))
@pytest.mark.parametrize("n", [1, 2, 8191, 8192, 8193, 16385])
def test_every_lane_and_every_chunk_is_summed(variant, n):
    kernel, (model, x, centre, prior_tau, sites) = _core.load("clutter_lanes", variant), problems_in_lanes(n)
    rng, tau, rho, sums = np.random.default_rng(n), np.empty((2, 32)), np.empty((2, 32)), np.empty((2, 32))
    sites[:] = rng.uniform(0.1, 1.0, sites.shape)
    kernel.start_lanes(*sites, prior_tau, 0.01, tau, rho)
    np.testing.assert_allclose(tau, prior_tau + sites[0].sum(axis=1), rtol=SOLVES)
    np.testing.assert_allclose(rho, 0.01 + sites[1].sum(axis=1), rtol=SOLVES)
    values = x.copy()
    kernel.evaluate_lanes(model, centre, *sites, tau, rho, values, sums)
    np.testing.assert_allclose(sums, values.sum(axis=1), rtol=LOSSES)
    single, where = _core.load("clutter", variant), (np.zeros(1), 1.0, np.zeros(1))
    for g, lane in ((0, 0), (0, 31), (1, 17), (1, 31)):
        one = (np.ascontiguousarray(a[g, :, lane]) for a in (x, *sites))
        x_one, tau_one, rho_one = one
        out = [np.empty(n) for _ in range(3)]
        arguments = x_one[:, None], *where, tau_one[:, None], rho_one, tau[g, lane : lane + 1], rho[g, lane]
        chunks = np.empty(-(-n // 8192))
        single.evaluate(model, *arguments, *out, chunks)
        np.testing.assert_array_equal(values[g, :, lane], out[2])
        assert sums[g, lane] == np.cumsum(chunks)[-1]
