"""The double loop of the clutter model: its geometry, its free energy, and that it always ends."""

import numpy as np
import pytest
from reference import clutter as reference
from support.clutters import draw, points_of, sweeper_of
from support.tolerances import AT_REST, EARLY, EXPANSION, LOSSES, ROOT_EPS, SLOPES, SOLVES

from cavity import Clutter
from cavity.jobs.job import SILENT_JOB
from cavity.models.clutter.geometry import Spherical


def test_double_loop_agrees_with_sweeps_where_they_settle():
    x = draw((60, 3), seed=8)
    swept, sweeper = Clutter().fit(x, tol=1e-12), sweeper_of(points_of(x), tol=1e-12)
    sweeper.visit_one_by_one(len(x))
    status, changes = sweeper.run_double_loop(SILENT_JOB)
    sites, units = sweeper.finish(), sweeper.points.units
    assert status == "converged"
    assert len(changes) < 30
    np.testing.assert_allclose(units.origin + sites.moments[0] / units.scale, swept.mean, rtol=AT_REST)
    assert sites.log_evidence + len(x) * units.log_jacobian == pytest.approx(swept.log_evidence, rel=LOSSES)


@pytest.mark.parametrize("n_problems", [100, pytest.param(4000, marks=pytest.mark.long)])
def test_the_double_loop_always_ends(n_problems):
    """Small vague problems, whose sweeps run away: the double loop must not start from where they got to."""
    rng = np.random.default_rng(1)
    x = rng.normal(size=(n_problems, 2, 1)) * 10.0 ** rng.uniform(-0.5, 1, size=(n_problems, 1, 1))
    for w, c in ((0.3, 100.0), (0.5, 10.0), (0.05, 30.0)):
        assert Clutter(clutter_weight=w, clutter_variance=c).fit(x).converged.all()
    truth = Clutter(clutter_weight=0.3, clutter_variance=100.0).fit([-0.38713708104042754, -3.5381857865017716])
    assert truth.converged
    assert truth.mean == pytest.approx(-1.926, abs=EXPANSION)


@pytest.mark.parametrize("n", [1, 2, 5, 8])
@pytest.mark.parametrize("d", [1, 2, 3])
def test_cavities_of_the_double_loop(n, d):
    """Each tilted distribution has the moments asked for; the gradient of F is that of its differences."""
    x = draw((n, d), seed=10 * n + d)
    x[-1] = 2.0 + 0.1 * np.arange(d)
    points = points_of(x)
    geometry, origin = Spherical(points), points.units.origin
    fixed, v = np.linspace(0.5, 1.0, d), 0.7

    def at(mean, v):
        rho = 1 / v
        return geometry.belief(rho - geometry.rho, rho * mean - geometry.tau)

    belief = at(fixed, v)
    value, tau, rho, (cavity_tau, cavity_rho) = geometry.free_energy(belief, None)
    for row, t, r in zip(x, cavity_tau, cavity_rho, strict=True):
        _, _, m, tilted_v = reference.tilted(row, t / r + origin, 1 / r, 0.5, 10.0, 1.0)
        np.testing.assert_allclose(m - origin, fixed, rtol=ROOT_EPS)
        assert tilted_v == pytest.approx(v, rel=ROOT_EPS)
    np.testing.assert_allclose(tau + cavity_tau, np.tile(fixed / v, (n, 1)), rtol=SOLVES)
    np.testing.assert_allclose(rho + cavity_rho, 1 / v, rtol=SOLVES)
    # in natural parameters of q the gradient of F is the Fisher matrix times (q - implied q)
    h, g = geometry.gather(tau, rho)
    gap = geometry.coordinates(belief, belief.h - h, belief.g - g)
    for j in range(d + 1):
        ends = []
        for step in (1e-5, -1e-5):
            moved = geometry.belief(belief.h + step * (j == d), belief.g + step * (np.arange(d) == j))
            ends.append(geometry.free_energy(moved, None)[0])
        along = geometry.coordinates(belief, float(j == d), 1.0 * (np.arange(d) == j))
        assert (ends[0] - ends[1]) / 2e-5 == pytest.approx(along @ gap, rel=SLOPES, abs=EARLY)
    assert np.isfinite(value)
    assert belief.change_from(belief) == 0
    assert geometry.belief(-2 * geometry.rho, np.zeros(d)) is None
    sharp = geometry.sharpen(belief, 4.0)
    np.testing.assert_allclose([*sharp.mean, sharp.variance], [*fixed, v / 4], rtol=SOLVES)
