"""The engine of EP: damping of single steps, and how it adapts. Fits are tested with the models."""

import numpy as np
import pytest
from support.own_likelihoods import OwnGaussian
from support.tolerances import AT_REST

from cavity import likelihoods
from cavity.ep import dense
from cavity.ep.engine import Engine
from cavity.ep.options import Options
from cavity.ep.sites import Sites
from cavity.runs.executors import Threads


@pytest.mark.parametrize("way", ["rows", "blocks", "python", "parallel"])
def test_damping_of_steps_up_and_down(way, monkeypatch):
    """A step that raises the precision of a site goes `up` of the way, one that lowers it `down`."""
    up, down = 0.5, 0.25  # the square: what parallel sweeps do
    if way == "blocks":
        monkeypatch.setattr(dense, "MAX_RANK_ONE_COLUMNS", 0)
    likelihood = OwnGaussian() if way == "python" else likelihoods.Gaussian(0.5)
    X, y = np.ones((1, 1)), np.array([3.0])
    for tau, rho, step in ((1.0, 0.5, up), (20.0, 7.0, down)):
        with Threads(1) as threads:
            geometry = dense.Dense(X, None, np.zeros(1), np.ones(1), threads)
            sites = Sites(likelihood, y)
            start = np.array([tau]), np.array([rho])
            if way == "parallel":
                engine = Engine(geometry, sites, Options(max_iter=1), start)
                engine.damping.step = up
                engine._parallel()
                new = engine.tau, engine.rho
            else:
                new = start[0].copy(), start[1].copy()
                belief = geometry.belief(*geometry.gather(*start))
                geometry.sweep(sites, belief, slice(0, 1), *new, up, down)
        # the site of a Gaussian likelihood is (y, 1)/noise whatever the cavity
        assert new[0][0] == pytest.approx(tau + step * (6.0 - tau), rel=AT_REST)
        assert new[1][0] == pytest.approx(rho + step * (2.0 - rho), rel=AT_REST)
