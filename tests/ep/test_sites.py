"""Sites that see f through something else, f = g + N(0, residual): against integration and EP by the book."""

import numpy as np
import pytest
from reference import gaussian_process as book
from reference import glm as reference
from scipy.special import logsumexp
from support.gaussian_processes import factors, problem
from support.tolerances import AT_REST, LOSSES

from cavity import _core
from cavity.ep.dense import Dense
from cavity.ep.engine import Engine
from cavity.ep.options import Options
from cavity.ep.sites import Sites
from cavity.runs.executors import Threads

NAMES = ("Probit", "Logit", "Poisson", "StudentT", "Cauchy", "Gaussian")
SCHEDULES = ("parallel", "sequential")
NODES, WEIGHTS = np.polynomial.hermite.hermgauss(80)


def through(log_p, residual):
    """log of the integral of exp(log_p(f)) N(f; g, residual) over f, as a function of g."""
    spread = np.sqrt(2 * residual) * NODES
    return lambda g: logsumexp(log_p(g[:, None] + spread) + np.log(WEIGHTS / np.sqrt(np.pi)), axis=1)


def sites_of(name, n, power, weighted):
    """(Sites, log of the matched functions of g) of a small problem; residuals differ from row to row."""
    likelihood, _, y = problem(name, n)
    rng = np.random.default_rng(5)
    residual, weights = rng.uniform(0.02, 0.5, n), rng.choice([0.5, 1.0, 2.0], n) if weighted else None
    sites = Sites(likelihood, likelihood.check(y), weights, power, residual)
    exponents = np.broadcast_to(sites.exponent, n)
    pairs = zip(factors(likelihood, y, exponents), residual, strict=True)
    return sites, [through(log_p, r) for log_p, r in pairs]


@pytest.mark.long_cases("Probit-1.0-False")
@pytest.mark.sample(3)
@pytest.mark.parametrize(("power", "weighted"), [(1.0, False), (0.5, True)])
@pytest.mark.parametrize("name", NAMES)
def test_matches_the_moments_of_the_integral(name, power, weighted):
    sites, functions = sites_of(name, 8, power, weighted)
    rng = np.random.default_rng(3)
    m, v = rng.normal(size=8), rng.uniform(0.3, 2.0, 8)
    log_z, tau, rho = sites.match(slice(0, 8), m, v)
    expected = np.array([reference.log_tilted(f, *cavity) for f, *cavity in zip(functions, m, v, strict=True)])
    precision = 1 / v + rho
    atol = 1e-6 if name in ("Cauchy", "StudentT") else 1e-9  # what 80 nodes leave of rational functions
    np.testing.assert_allclose(log_z, expected[:, 0], rtol=0, atol=atol)
    np.testing.assert_allclose((m / v + tau) / precision, expected[:, 1], rtol=0, atol=atol)
    np.testing.assert_allclose(1 / precision, expected[:, 2], rtol=atol, atol=0)
    some = sites.match(np.array([5, 2]), m[[5, 2]], v[[5, 2]])
    np.testing.assert_array_equal(some, np.array([log_z, tau, rho])[:, [5, 2]])


def run(sites, W, schedule):
    """EP on w ~ N(0, I) with g = W w."""
    with Threads(1) as threads:
        geometry = Dense(W, None, np.zeros(W.shape[1]), np.ones(W.shape[1]), threads)
        return Engine(geometry, sites, Options(schedule=schedule, tol=1e-11)).run()


@pytest.mark.long_cases("Probit-1.0-False-parallel")
@pytest.mark.sample(2)
@pytest.mark.parametrize("schedule", SCHEDULES)
@pytest.mark.parametrize(
    ("name", "power", "weighted"),
    [
        ("Probit", 1.0, False),
        ("Poisson", 0.5, True),
        pytest.param("Cauchy", 1.0, False, marks=pytest.mark.long),
        ("Logit", 1.0, True),
    ],
)
def test_ends_in_a_fixed_point_of_ep_by_the_book(name, power, weighted, schedule):
    n, size = 7, 3
    sites, functions = sites_of(name, n, power, weighted)
    W = np.random.default_rng(1).normal(size=(n, size)) / np.sqrt(size)
    fit = run(sites, W, schedule)
    assert fit.status == "converged"
    K, fraction = W @ W.T, np.broadcast_to(sites.fraction, n)  # of g; the reference takes K of any rank
    atol = 1e-6 if name == "Cauchy" else 1e-8
    assert book.residual(K, functions, fit.tau, fit.rho, fraction=fraction) < atol
    B = np.eye(n) + K * fit.rho
    S = np.linalg.solve(B, K)
    m = S @ fit.tau
    precision = 1 / np.diag(S) - fraction * fit.rho
    cavities = zip(functions, (m / np.diag(S) - fraction * fit.tau) / precision, 1 / precision, strict=True)
    log_z = [reference.log_tilted(f, *cavity)[0] for f, *cavity in cavities]
    evidence = book.evidence(K, np.zeros(n), fit.tau, fit.rho, log_z, m, S, fraction)
    assert fit.log_evidence == pytest.approx(evidence, abs=atol)


def test_schedules_agree_where_sites_are_visited_in_blocks():
    likelihood, _, y = problem("Probit", 70)
    rng = np.random.default_rng(2)
    W, residual = rng.normal(size=(70, 60)) / 8, rng.uniform(0, 0.5, 70)
    fits = [run(Sites(likelihood, likelihood.check(y), residual=residual), W, schedule) for schedule in SCHEDULES]
    np.testing.assert_allclose(fits[0].tau, fits[1].tau, rtol=0, atol=AT_REST)
    np.testing.assert_allclose(fits[0].rho, fits[1].rho, rtol=0, atol=AT_REST)
    assert fits[0].log_evidence == pytest.approx(fits[1].log_evidence, abs=AT_REST)


def test_residuals_of_zero_change_nothing():
    likelihood, _, y = problem("Logit", 20)
    W = np.random.default_rng(1).normal(size=(20, 3))
    for schedule in SCHEDULES:
        a, b = (run(Sites(likelihood, likelihood.check(y), residual=r), W, schedule) for r in (None, np.zeros(20)))
        np.testing.assert_array_equal(a.tau, b.tau)
        np.testing.assert_array_equal(a.rho, b.rho)
        assert a.log_evidence == b.log_evidence


@pytest.mark.parametrize("variant", _core.variants("ep"))
def test_one_compiled_visit_matches_the_integral(variant):
    kernel = _core.load("ep", variant)
    sites, functions = sites_of("Probit", 1, 1.0, False)
    _, m, v = reference.log_tilted(functions[0], 0.4, 1.7)
    rho = 1 / v - 1 / 1.7
    tau = m / v - 0.4 / 1.7
    arguments = sites.arguments(slice(0, 1))
    a, b = np.zeros(1), np.zeros(1)
    assert kernel.sweep(*arguments, np.array([0.4]), np.array([[1.7]]), a, b, 1.0, 1.0)[0] == 0
    np.testing.assert_allclose([a[0], b[0]], [tau, rho], rtol=LOSSES)
    c, d, base = np.zeros(1), np.zeros(1), np.array([0.1])
    x, mean = np.array([[1.0]]), np.array([0.3])
    assert kernel.sweep_rows(*arguments, x, base, mean, np.array([[1.7]]), c, d, 1.0, 1.0)[0] == 0
    np.testing.assert_allclose([c[0], d[0]], [tau, rho], rtol=LOSSES)
