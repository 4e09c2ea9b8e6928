"""The definitions of the Gaussian mixture, against each other, sampling, quadrature and known values."""

import itertools

import numpy as np
import pytest
from reference import gaussian_mixture as ref
from scipy import integrate, special, stats
from support.tolerances import EARLY, OPTIMUM, SOLVES, SUMS

from cavity import data

COVARIANCES = ("full", "tied", "diag", "spherical")
KINDS = list(itertools.product(COVARIANCES, ("dirichlet", "stick_breaking")))
every_kind = pytest.mark.parametrize(("covariance", "weights"), KINDS)


def draw_prior(rng, covariance, weights, dims):
    root = rng.normal(size=(dims, dims)) + 2 * np.eye(dims)
    V0 = {"diag": rng.uniform(0.5, 2.0, size=dims), "spherical": rng.uniform(0.5, 2.0)}.get(covariance, root @ root.T)
    return {
        "covariance": covariance,
        "weights": weights,
        "alpha": rng.uniform(0.3, 2.0),
        "m0": rng.normal(size=dims),
        "beta0": rng.uniform(0.3, 2.0),
        "nu0": dims + rng.uniform(0.2, 2.0),
        "V0": V0,
    }


def draw_points(rng, covariance, n, dims):
    """Points, of which some entries are missing where the model allows it."""
    X = rng.normal(size=(n, dims)) + 3.0 * rng.integers(0, 2, size=(n, 1))
    if covariance in ("diag", "spherical"):
        X[rng.random(X.shape) < 0.25] = np.nan
    return X


def draw_q(rng, X, prior, k):
    """Any q of the family: the best one for responsibilities that have nothing to do with the data, and shaken."""
    w = rng.uniform(0.2, 2.0, size=len(X))
    q = ref.m_step(X, w, prior, rng.dirichlet(np.full(k, 0.7), size=len(X)))
    shake = rng.uniform(0.8, 1.3)
    q |= {"mean": q["mean"] + 0.3 * rng.normal(size=q["mean"].shape), "beta": shake * q["beta"], "V": shake * q["V"]}
    return q | {"nu": q["nu"] + 0.4}


def converged(X, w, prior, r, tol=1e-11, most=2000):
    """q, r and the ELBO of every step of coordinate ascent."""
    elbos, q = [], ref.m_step(X, w, prior, r)
    while len(elbos) < most and (len(elbos) < 2 or elbos[-1] - elbos[-2] > tol):
        r = ref.e_step(X, prior, q)
        elbos.append(ref.elbo(X, w, prior, q, r))
        q = ref.m_step(X, w, prior, r)
    return q, r, elbos


@pytest.mark.sample(3)
@every_kind
@pytest.mark.parametrize("seeds", [(0,), pytest.param((1, 2), marks=pytest.mark.long)])
def test_elbo_is_below_the_exact_evidence(covariance, weights, seeds):
    for seed, k in itertools.product(seeds, (2, 3)):
        rng = np.random.default_rng(seed)
        n = 7 - k  # of which there are k^n assignments
        prior, X = draw_prior(rng, covariance, weights, 2), draw_points(rng, covariance, n, 2)
        exact, w = ref.log_evidence(X, prior, k), np.ones(n)
        q, r = draw_q(rng, X, prior, k), rng.dirichlet(np.ones(k), size=n)
        for pair in ((q, r), (q, ref.e_step(X, prior, q)), ref.cavi_step(X, w, prior, q)):
            assert ref.elbo(X, w, prior, *pair) < exact
        assert exact - converged(X, w, prior, r, tol=1e-4)[2][-1] < 8.0


@every_kind
def test_elbo_is_the_exact_evidence_of_one_component(covariance, weights):
    rng = np.random.default_rng(1)
    for dims in (1, 3):
        prior, X = draw_prior(rng, covariance, weights, dims), draw_points(rng, covariance, 7, dims)
        q, r = ref.cavi_step(X, np.ones(7), prior, draw_q(rng, X, prior, 1))
        exact = ref.log_evidence(X, prior, 1)
        assert ref.elbo(X, np.ones(7), prior, q, r) == pytest.approx(exact, rel=SOLVES)


@pytest.mark.long
@every_kind
def test_elbo_is_the_expectation_under_samples_of_q(covariance, weights):
    rng = np.random.default_rng(2)
    prior, X = draw_prior(rng, covariance, weights, 2), draw_points(rng, covariance, 6, 2)
    w, q, r = rng.uniform(0.5, 2.0, size=6), draw_q(rng, X, prior, 3), rng.dirichlet(np.ones(3), size=6)
    values = [log_ratio(rng, X, w, prior, q, r) for _ in range(400)]
    error = np.std(values) / np.sqrt(len(values))
    assert error < 0.5
    assert ref.elbo(X, w, prior, q, r) == pytest.approx(np.mean(values), abs=4.0 * error)


def log_ratio(rng, X, w, prior, q, r):
    """log p(X, Z, pi, mu, L) - log q for one draw of (pi, mu, L), Z averaged over."""
    pi, log_pi = draw_pi(rng, prior, q)
    precision, log_precision = draw_precision(rng, prior, q)
    total = log_pi + log_precision - np.sum(w[:, None] * special.xlogy(r, r))
    for k, L in enumerate(precision):
        mean, P = draw_mean(rng, q, k, L)
        total += normal(mean, prior["m0"], prior["beta0"] * L) - normal(mean, q["mean"][k], P)
        for n, x in enumerate(X):
            seen = ~np.isnan(x)
            inside = normal(x[seen], mean[seen], L[np.ix_(seen, seen)])
            total += w[n] * r[n, k] * (np.log(pi[k]) + inside)
    return total


def normal(x, mean, precision):
    log_det = np.linalg.slogdet(precision)[1]
    return 0.5 * (log_det - len(x) * ref.LOG_2PI - (x - mean) @ precision @ (x - mean))


def draw_mean(rng, q, k, L):
    """A draw of mu_k given its precision matrix, and the precision of mu_k."""
    root = np.sqrt(np.broadcast_to(q["beta"][k], len(L)))
    P = np.outer(root, root) * L
    return q["mean"][k] + np.linalg.solve(np.linalg.cholesky(P).T, rng.normal(size=len(L))), P


def draw_pi(rng, prior, q):
    """pi, and log p(pi) - log q(pi)."""
    if prior["weights"] == "dirichlet":
        pi = rng.dirichlet(q["alpha"])
        alpha0 = np.full(len(pi), prior["alpha"])
        return pi, stats.dirichlet.logpdf(pi, alpha0) - stats.dirichlet.logpdf(pi, q["alpha"])
    a, b = q["sticks"].T
    v = rng.beta(a, b)
    pi = np.append(v, 1.0) * np.append(1.0, np.cumprod(1 - v))
    return pi, np.sum(stats.beta.logpdf(v, 1, prior["alpha"]) - stats.beta.logpdf(v, a, b))


def draw_precision(rng, prior, q):
    """The precision matrix of every component, and log p - log q of what they are made of."""
    nu, V, V0 = map(np.array, zip(*ref.precisions(prior, q), strict=True))
    if ref.by_matrix(prior):
        own, at_first = np.linalg.inv(V), np.linalg.inv(V0[0])
        drawn = [stats.wishart.rvs(n, W, random_state=rng) for n, W in zip(nu, own, strict=True)]
        total = sum(stats.wishart.logpdf(L, prior["nu0"], at_first) for L in drawn)
        total -= sum(stats.wishart.logpdf(L, n, W) for L, n, W in zip(drawn, nu, own, strict=True))
    else:
        drawn = rng.gamma(nu / 2, 2 / V)
        log_p = stats.gamma.logpdf(drawn, prior["nu0"] / 2, scale=2 / V0)
        total = np.sum(log_p - stats.gamma.logpdf(drawn, nu / 2, scale=2 / V))
    k = len(q["mean"])
    shaped = {
        "full": lambda: drawn,
        "tied": lambda: drawn * k,
        "diag": lambda: [np.diag(row) for row in np.reshape(drawn, (k, -1))],
        "spherical": lambda: [item * np.eye(2) for item in drawn],
    }
    return shaped[prior["covariance"]](), total


@pytest.mark.long_cases("tied-stick_breaking")
@pytest.mark.sample(3)
@every_kind
def test_a_step_never_lowers_the_elbo_and_each_half_is_the_best(covariance, weights):
    rng = np.random.default_rng(3)
    prior, X = draw_prior(rng, covariance, weights, 2), draw_points(rng, covariance, 12, 2)
    w, q = rng.uniform(0.0, 2.0, size=12), draw_q(rng, X, prior, 3)
    before = -np.inf
    for _ in range(15):
        r = ref.e_step(X, prior, q)
        middle = ref.elbo(X, w, prior, q, r)
        assert middle >= before - 1e-11 * abs(middle)
        q, same = ref.cavi_step(X, w, prior, q)
        np.testing.assert_array_equal(same, r)
        before = ref.elbo(X, w, prior, q, r)
        assert before >= middle - 1e-11 * abs(middle)
    for name, value in q.items():  # a maximum in every parameter: the ELBO falls both ways
        for step in (-1e-2, 1e-2):
            assert ref.elbo(X, w, prior, q | {name: value * (1 + step)}, r) < before
    other = r * rng.uniform(0.9, 1.1, size=r.shape)
    r = ref.e_step(X, prior, q)
    assert ref.elbo(X, w, prior, q, other / other.sum(axis=1, keepdims=True)) < ref.elbo(X, w, prior, q, r)


@every_kind
def test_elbo_after_an_e_step_is_the_sum_of_log_normalisers_less_two_divergences(covariance, weights):
    rng = np.random.default_rng(4)
    prior, X = draw_prior(rng, covariance, weights, 3), draw_points(rng, covariance, 9, 3)
    w, q = rng.uniform(0.5, 2.0, size=9), draw_q(rng, X, prior, 3)
    log_rho = ref.expected_log_pi(prior, q) + ref.expected_log_density(X, prior, q)
    result = ref.terms(X, w, prior, q, ref.e_step(X, prior, q))
    of_points = result["x"] + result["z"] + result["q(z)"]
    assert of_points == pytest.approx(w @ special.logsumexp(log_rho, axis=1), rel=SUMS)
    assert result["pi"] + result["q(pi)"] < 0.0
    assert result["mu"] + result["q(mu)"] + result["L"] + result["q(L)"] < 0.0


@every_kind
def test_whole_weights_are_repetitions(covariance, weights):
    rng = np.random.default_rng(5)
    prior, X = draw_prior(rng, covariance, weights, 2), draw_points(rng, covariance, 6, 2)
    times = np.array([1, 0, 3, 2, 1, 2])
    q = draw_q(rng, X, prior, 2)
    one, r = ref.cavi_step(X, times.astype(float), prior, q)
    other, repeated = ref.cavi_step(np.repeat(X, times, axis=0), np.ones(9), prior, q)
    for name in one:
        np.testing.assert_allclose(one[name], other[name], rtol=SOLVES)
    elbo = ref.elbo(X, times.astype(float), prior, one, r)
    assert elbo == pytest.approx(ref.elbo(np.repeat(X, times, axis=0), np.ones(9), prior, other, repeated), rel=SOLVES)


@every_kind
def test_the_evidence_is_the_product_of_predictive_densities(covariance, weights):
    """log p(X, Z), one point after the other: expected weights and Student t densities given those before."""
    rng = np.random.default_rng(6)
    prior, X = draw_prior(rng, covariance, weights, 2), draw_points(rng, covariance, 6, 2)
    hard = np.eye(3)[[0, 2, 2, 0, 1, 2]]
    total = 0.0
    for n, x in enumerate(X):
        q, k = ref.m_step(X[:n], np.ones(n), prior, hard[:n]), np.argmax(hard[n])
        total += np.log(ref.expected_pi(prior, q)[k]) + ref.log_component(x, prior, q, k)
    values = ref.log_p_given(X, prior, hard, ref.log_constant_before(X, prior, 3))
    assert ref.log_p_assigned(hard, prior) + values == pytest.approx(total, rel=SOLVES)
    q = ref.m_step(X[:0], np.ones(0), prior, np.zeros((0, 3)))
    assert ref.log_evidence(X[:1], prior, 3) == pytest.approx(ref.log_predictive(X[0], prior, q), rel=SOLVES)


@pytest.mark.sample(2)
@pytest.mark.parametrize("covariance", COVARIANCES)
def test_evidence_and_bound_of_one_dimension_against_quadrature(covariance):
    """p(y) of one component by integrals over mu and the precision, as the model is written."""
    y, m0, beta0, nu0, V0 = np.array([0.3, -1.1, 0.8]), 0.2, 0.7, 2.5, 1.3
    shaped = {"diag": np.array([V0]), "spherical": V0}.get(covariance, np.array([[V0]]))
    prior = {"covariance": covariance, "weights": "dirichlet", "alpha": 1.0, "m0": np.array([m0])}
    prior |= {"beta0": beta0, "nu0": nu0, "V0": shaped}

    mu, t = np.linspace(-25, 25, 2001)[:, None], np.linspace(-9, 5, 401)
    values = np.exp(
        stats.gamma.logpdf(np.exp(t), nu0 / 2, scale=2 / V0)
        + t
        + stats.norm.logpdf(mu, m0, np.exp(-t / 2) / np.sqrt(beta0))
        + sum(stats.norm.logpdf(item, mu, np.exp(-t / 2)) for item in y)
    )
    exact = np.log(integrate.trapezoid(integrate.trapezoid(values, t, axis=1), mu[:, 0]))
    X = y[:, None]
    assert ref.log_evidence(X, prior, 1) == pytest.approx(exact, abs=OPTIMUM)
    q, r = ref.cavi_step(X, np.ones(3), prior, ref.m_step(X, np.ones(3), prior, np.ones((3, 1))))
    assert ref.elbo(X, np.ones(3), prior, q, r) == pytest.approx(exact, abs=OPTIMUM)


@pytest.mark.long_cases("diag")
@pytest.mark.parametrize("covariance", ["diag", "spherical"])
def test_missing_entries_are_integrated_out(covariance):
    """p(x) of points with holes is the integral of p(x) over what could be there."""
    rng = np.random.default_rng(7)
    prior, X = draw_prior(rng, covariance, "dirichlet", 2), rng.normal(size=(4, 2))
    holed = X.copy()
    holed[1, 0] = np.nan

    def density(x):
        return np.exp(ref.log_evidence(np.array([X[0], [x, X[1, 1]], X[2], X[3]]), prior, 2))

    total = integrate.quad(density, -np.inf, np.inf, epsrel=1e-8)[0]
    assert ref.log_evidence(holed, prior, 2) == pytest.approx(np.log(total), abs=EARLY)


@pytest.mark.long
@every_kind
def test_predictive_density_is_the_average_over_samples_of_q(covariance, weights):
    rng = np.random.default_rng(8)
    prior, X = draw_prior(rng, covariance, weights, 2), draw_points(rng, covariance, 20, 2)
    q, x = ref.m_step(X, np.ones(20), prior, rng.dirichlet(np.ones(2), size=20)), np.array([0.7, 1.2])
    values = []
    for _ in range(250):
        pi, _ = draw_pi(rng, prior, q)
        precision, _ = draw_precision(rng, prior, q)
        means = [draw_mean(rng, q, k, L)[0] for k, L in enumerate(precision)]
        values.append(sum(p * np.exp(normal(x, m, L)) for p, m, L in zip(pi, means, precision, strict=True)))
    error = np.std(values) / np.sqrt(len(values))
    assert error < 0.1 * np.mean(values)
    assert np.exp(ref.log_predictive(x, prior, q)) == pytest.approx(np.mean(values), abs=4.0 * error)


GOLDEN = [(1e-3, 1, -561.674795), (1e-3, 2, -442.174563), (1e-3, 3, -442.586205), (1.0, 2, -436.047327)]
GOLDEN += [(1.0, 3, -440.909008)]


@pytest.mark.parametrize(("alpha", "k", "elbo"), GOLDEN)
def test_golden_elbos_of_old_faithful(alpha, k, elbo):
    """Standardised with ddof=0; m0 = 0, beta0 = 1, nu0 = 2, V0 = I: the best of all starts that were tried."""
    columns, _ = data.table("faithful")
    X = np.column_stack([columns["eruptions"], columns["waiting"]])
    X = (X - X.mean(axis=0)) / X.std(axis=0)
    prior = {"covariance": "full", "weights": "dirichlet", "alpha": alpha, "m0": np.zeros(2), "beta0": 1.0, "nu0": 2.0}
    rank = np.argsort(np.argsort(X[:, 0]))
    labels = np.minimum(k * rank // 272, k - 1)
    *_, elbos = converged(X, np.ones(272), prior | {"V0": np.eye(2)}, np.eye(k)[labels])
    assert np.all(np.diff(elbos) > -1e-10)
    assert elbos[-1] == pytest.approx(elbo, abs=OPTIMUM)
