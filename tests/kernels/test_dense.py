"""The kernel of a pass over rows: against one row at a time, for all widths, and the same bits in every variant."""

from functools import partial

import numpy as np
import pytest
from reference import dense as reference
from scipy.special import log_ndtr
from support.kernels import same_bits
from support.tolerances import AT_REST, EARLY, SOLVES, SUMS

from cavity import _core, likelihoods
from cavity.ep.dense import Dense
from cavity.ep.site_updates import renew_sites
from cavity.ep.sites import Sites
from cavity.runs.executors import Threads

VARIANTS = _core.variants("dense")
KERNELS = {name: _core.load("dense", name) for name in VARIANTS}
SHAPES = [(1, 1), (5, 17), (130, 1), (127, 2), (128, 3), (129, 4), (300, 5), (33, 8), (200, 13), (140, 20), (70, 65)]
NOTHING = np.zeros(0)


def draw(n, d):
    """x, base, mean, triangle, prior mean, tau and rho of either sign, some zero; columns of very different scale."""
    rng = np.random.default_rng(100 * n + d)
    scale = 10.0 ** rng.uniform(-6, 6, d)
    x = rng.normal(size=(n, d)) * scale
    x[n // 2] = 0.0
    triangle = np.tril(rng.normal(size=(d, d))) / scale
    tau, rho = rng.normal(size=n), rng.normal(size=n)
    rho[rng.random(n) < 0.1] = 0.0
    return x, rng.normal(size=n), rng.normal(size=d) / scale, triangle, rng.normal(size=d) / scale, tau, rho


def moments(kernel, x, base, mean, triangle):
    """Means and variances by the kernel."""
    m, v = np.full(len(x), np.nan), np.full(len(x), np.nan)
    kernel.moments(x, base, mean, triangle, m, v)
    return m, v


def sums(kernel, x, base, prior_mean, tau, rho):
    """h and g by the kernel."""
    h, g = np.zeros((x.shape[1],) * 2), np.zeros(x.shape[1])
    kernel.add(x, base, prior_mean, tau, rho, h, g)
    return h, g


@pytest.mark.parametrize(("n", "d"), SHAPES)
def test_moments(n, d):
    x, base, mean, triangle, *_ = draw(n, d)
    m, v = same_bits([moments(kernel, x, base, mean, triangle) for kernel in KERNELS.values()])
    expected = reference.moments(x, base, mean, triangle.T @ triangle)
    size = np.abs(x) @ np.abs(mean) + np.abs(base)
    assert np.all(np.abs(m - expected[0]) <= (d + 1) * 2.0**-52 * size)
    # (sum_a (sum_b |F_ab x_b|)^2 bounds what rounding is relative to
    size = np.sum((np.abs(x) @ np.abs(triangle.T)) ** 2, axis=1)
    assert np.all(np.abs(v - expected[1]) <= 4 * (d + 1) * 2.0**-52 * size)
    assert v[n // 2] == 0.0


@pytest.mark.parametrize("variant", VARIANTS)
def test_moments_of_a_row_do_not_depend_on_others(variant):
    x, base, mean, triangle, *_ = draw(300, 7)
    m, v = moments(KERNELS[variant], x, base, mean, triangle)
    for part in (slice(0, 1), slice(100, 229), slice(299, 300)):
        mine = moments(KERNELS[variant], x[part], base[part], mean, triangle)
        np.testing.assert_array_equal(mine, (m[part], v[part]))


@pytest.mark.parametrize("shifted", [False, True])
@pytest.mark.parametrize(("n", "d"), SHAPES)
def test_sums(n, d, shifted):
    x, base, _, _, prior_mean, tau, rho = draw(n, d)
    values = prior_mean if shifted else NOTHING
    h, g = same_bits([sums(kernel, x, base, values, tau, rho) for kernel in KERNELS.values()])
    prior_mean = prior_mean * shifted
    expected = reference.sums(x, base, prior_mean, tau, rho)
    bound = (n + d + 4) * 2.0**-52
    assert np.all(np.abs(h - expected[0]) <= bound * (np.abs(x).T @ (np.abs(rho)[:, None] * np.abs(x))))
    pull = np.abs(tau) + np.abs(rho) * (np.abs(x) @ np.abs(prior_mean) + np.abs(base))
    assert np.all(np.abs(g - expected[1]) <= bound * (np.abs(x).T @ pull))


def test_sums_are_added_to_what_is_there_and_one_base_serves_all_rows():
    x, _, _, _, prior_mean, tau, rho = draw(150, 6)
    h, g = np.ones((6, 6)), np.ones(6)
    KERNELS[VARIANTS[-1]].add(x, np.array([0.3]), prior_mean, tau, rho, h, g)
    expected = sums(KERNELS[VARIANTS[-1]], x, np.full(150, 0.3), prior_mean, tau, rho)
    np.testing.assert_array_equal(h, 1.0 + expected[0])
    np.testing.assert_array_equal(g, 1.0 + expected[1])


def settings(likelihood, y, power, weighted, residual):
    """Sites of a likelihood, with weights and residual variances or without."""
    rng = np.random.default_rng(1)
    weights = rng.uniform(0.3, 2.0, len(y)) if weighted else None
    return Sites(likelihood, y, weights, power, rng.uniform(0.1, 1.0, len(y)) if residual else None)


CASES = {
    "probit": (likelihoods.Probit(), 1.0, False, False),
    "residual": (likelihoods.Probit(), 1.0, False, True),
    "power": (likelihoods.Logit(), 0.5, True, False),
    "counts": (likelihoods.Poisson(), 1.0, False, False),
    "heavy tails": (likelihoods.StudentT(4.0, 0.5), 1.0, True, True),
}


@pytest.mark.parametrize("case", CASES)
def test_a_pass_is_its_steps(case):
    """Moments, sites and sums in one call have the bits of three calls, in every variant."""
    likelihood, *rest = CASES[case]
    x, base, mean, triangle, prior_mean, tau, rho = draw(150, 5)
    x[75] = x[76]  # as sites need some variance
    y = np.where(tau > 0, 1.0, -1.0) if case != "counts" else np.round(np.abs(3 * tau))
    sites, rho = settings(likelihood, y, *rest), 0.02 * np.abs(rho)
    arguments = sites.arguments(slice(0, 150))

    def fused(kernel):
        h, g, new = np.zeros((5, 5)), np.zeros(5), np.full((2, 150), np.nan)
        result = kernel.renew(*arguments, x, base, 0.1 * mean, triangle, prior_mean, tau, rho, 0.9, 0.5, *new, h, g)
        assert result[0] == -1
        return *new, result[1], h, g

    new_tau, new_rho, skipped, h, g = same_bits([fused(kernel) for kernel in KERNELS.values()])
    kernel = KERNELS[VARIANTS[0]]
    m, v = moments(kernel, x, base, 0.1 * mean, triangle)
    steps = renew_sites(sites, slice(0, 150), m, v, tau, rho, 0.9, 0.5)
    for mine, theirs in zip((new_tau, new_rho, skipped), steps, strict=True):
        np.testing.assert_array_equal(mine, theirs)
    for mine, theirs in zip((h, g), sums(kernel, x, base, prior_mean, new_tau, new_rho), strict=True):
        np.testing.assert_array_equal(mine, theirs)


class Plain(likelihoods.Likelihood):
    """Probit without a kernel."""

    def log_p(self, y, f):
        return log_ndtr(y * f)


@pytest.mark.parametrize("residual", [False, True])
@pytest.mark.parametrize("likelihood", [likelihoods.Probit(), Plain()])
def test_renewed_sites(likelihood, residual):
    """Those of the integrals, row by row; rows without proper cavity are left alone, compiled or in Python."""
    rng = np.random.default_rng(3)
    y, m, v = np.array([1.0, -1.0, 1.0, -1.0, 1.0]), rng.normal(size=5), rng.uniform(0.2, 2.0, 5)
    tau, rho = rng.normal(size=5), np.array([0.1, -0.3, 5.0, 0.0, 1.0]) / v
    sites = settings(likelihood, y, 1.0, False, residual)
    result = renew_sites(sites, slice(0, 5), m, v, tau, rho, 0.9, 0.4)
    log_p = [partial(lambda y, f: log_ndtr(y * f), item) for item in y]
    residuals = np.broadcast_to(sites.residual, 5)
    expected = zip(
        *(reference.renew(log_p[i], m[i], v[i], tau[i], rho[i], 1.0, residuals[i], 0.9, 0.4) for i in range(5)),
        strict=True,
    )
    *expected, single = map(np.array, expected)
    assert result[2] == np.sum(single) == 2
    np.testing.assert_allclose(result[:2], expected, rtol=EARLY, atol=AT_REST)
    np.testing.assert_array_equal(result[0][single], tau[single])


@pytest.mark.parametrize("variant", VARIANTS)
def test_the_first_row_that_no_rule_resolves_is_named(variant):
    x, base = np.ones((140, 1)), np.zeros(140)
    x[131], base[131] = 6e3, -1.67e10
    sites = Sites(likelihoods.Poisson(), np.ones(140))
    new, h, g = np.zeros((2, 140)), np.zeros((1, 1)), np.zeros(1)
    state = np.zeros(1), np.eye(1), NOTHING, np.zeros(140), np.zeros(140)
    arguments = sites.arguments(slice(0, 140))
    assert KERNELS[variant].renew(*arguments, x, base, *state, 1.0, 1.0, *new, h, g)[0] == 131
    m, v = moments(KERNELS[variant], x, base, *state[:2])
    with pytest.raises(ArithmeticError, match="row 131 cannot be integrated"):
        renew_sites(sites, slice(0, 140), m, v, *state[3:], 1.0, 1.0)


@pytest.mark.parametrize("prior", ["vector", "matrix"])
def test_the_triangle_of_a_belief_is_a_root_of_its_covariance(prior):
    rng = np.random.default_rng(2)
    root = np.exp(rng.normal(size=6)) if prior == "vector" else rng.normal(size=(6, 6))
    X = rng.normal(size=(9, 6))
    geometry = Dense(X, None, np.zeros(6), root, Threads(1))
    belief = geometry.belief(*geometry.gather(np.ones(9), rng.uniform(0.1, 1.0, 9)))
    np.testing.assert_array_equal(belief.triangle, np.tril(belief.triangle))
    np.testing.assert_allclose(belief.triangle.T @ belief.triangle, belief.root @ belief.root.T, rtol=SOLVES, atol=SUMS)
