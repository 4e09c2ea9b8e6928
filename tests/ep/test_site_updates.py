"""Which sites are visited: the same for compiled sweeps and for likelihoods in plain Python."""

import numpy as np
import pytest
from scipy.special import log_ndtr
from support.tolerances import AT_REST, SOLVES

from cavity import likelihoods
from cavity.ep.site_updates import MIN_CAVITY_SHARE, find_cavities, kernel, renew_sites, visit_sites
from cavity.ep.sites import Sites

NOISE = 0.5


class Own(likelihoods.Likelihood):
    """Gaussian noise, with closed moments."""

    def log_p(self, y, f):
        return -0.5 * (y - f) ** 2 / NOISE

    def log_tilted(self, y, mean, variance):
        spread, apart = NOISE + variance, y - mean
        return -0.5 * (apart**2 / spread + np.log(spread)), apart / spread, -1.0 / spread


class OwnProbit(likelihoods.Likelihood):
    """Labels, with closed moments: their sites depend on the cavity, unlike those of Gaussian noise."""

    def log_p(self, y, f):
        return log_ndtr(y * f)

    def log_tilted(self, y, mean, variance):
        sd = np.sqrt(1.0 + variance)
        z = y * mean / sd
        slope = np.exp(-0.5 * z**2 - log_ndtr(z)) / np.sqrt(2.0 * np.pi)
        return log_ndtr(z), y * slope / sd, -slope * (z + slope) / sd**2


def skipped(way, tau, rho, variance):
    """How many of one site's visits leave it alone; the site and the cavity change in place."""
    sites = Sites(Own() if way == "python" else likelihoods.Gaussian(NOISE), np.array([0.3]))
    if way == "rows":
        base = np.zeros(1)
        state = np.zeros(1), np.array([[variance]])
        arguments = sites.arguments(slice(0, 1))
        return kernel.sweep_rows(*arguments, np.ones((1, 1)), base, *state, tau, rho, 1.0, 1.0)[0]
    return visit_sites(sites, slice(0, 1), np.zeros(1), np.array([[variance]]), tau, rho, 1.0, 1.0)[0]


@pytest.mark.parametrize("way", ["block", "rows", "python"])
@pytest.mark.parametrize("variance", [1e-6, 1e-3, 1.0])
@pytest.mark.parametrize(("share", "proper"), [(-0.1, False), (0.5, False), (2.0, True), (100.0, True), (1e12, True)])
def test_one_limit_of_improper_cavities(way, variance, share, proper):
    """A cavity with less than SMALLEST_SHARE of the posterior precision is left alone, whoever looks at it."""
    tau, rho = np.zeros(1), np.array([(1.0 - share * MIN_CAVITY_SHARE) / variance])
    assert find_cavities(np.zeros(1), np.array([variance]), tau, rho, np.ones(1))[2][0] == proper
    before = rho.copy()
    assert skipped(way, tau, rho, variance) == (not proper)
    assert (rho == before)[0] == (not proper)


@pytest.mark.parametrize("pair", [(Own(), likelihoods.Gaussian(NOISE)), (OwnProbit(), likelihoods.Probit())])
def test_a_block_in_python_is_the_compiled_one(pair):
    rng = np.random.default_rng(0)
    root = rng.normal(size=(5, 5))
    mean, joint, y = rng.normal(size=5), root @ root.T + np.eye(5), rng.choice([-1.0, 1.0], 5)
    results = []
    for likelihood in pair:
        tau, rho, f, v = 0.1 * mean, np.full(5, 0.1), mean.copy(), joint.copy()
        sites = Sites(likelihood, y, np.array([0.5, 1.0, 2.0, 1.0, 3.0]))
        missed, log_z = visit_sites(sites, slice(0, 5), f, v, tau, rho, 0.8, 0.5)
        assert missed == 0
        results.append((tau, rho, f, np.triu(v), np.isfinite(log_z)))
    for mine, theirs in zip(*results, strict=True):
        np.testing.assert_allclose(mine, theirs, rtol=AT_REST, atol=SOLVES)


def test_all_sites_of_a_block_are_renewed_in_python_as_compiled():
    """With less damping where precisions rise than where they fall, which some of these do."""
    rng = np.random.default_rng(1)
    mean, variance, y = rng.normal(size=6), rng.gamma(2.0, size=6), rng.normal(size=6)
    old = 0.1 * rng.normal(size=6), np.array([0.0, 0.1, 0.2, 2.5, 3.0, 0.5]) / np.maximum(variance, 2.0)
    results = []
    for likelihood in (Own(), likelihoods.Gaussian(NOISE)):
        sites = Sites(likelihood, y, np.array([0.5, 1.0, 2.0, 0.1, 0.1, 3.0]))
        tau, rho, missed = renew_sites(sites, slice(0, 6), mean, variance, *old, 0.8, 0.3)
        results.append((tau, rho, missed))
    rises = results[0][1] > old[1]
    assert rises.any()
    assert not rises.all()
    for mine, theirs in zip(*results, strict=True):
        np.testing.assert_allclose(mine, theirs, rtol=AT_REST, atol=SOLVES)
