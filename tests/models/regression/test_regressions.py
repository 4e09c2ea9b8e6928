"""Instances of the mean-field engine against the book, exact evidence and their laws."""

from concurrent.futures import ThreadPoolExecutor
from types import SimpleNamespace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from reference import regression as ref
from scipy import integrate, stats
from support.examples import examples
from support.tolerances import AT_REST, EARLY, EXPANSION, INTEGRAL, LOSSES, OPTIMUM, PRINTED, SLOPES, SOLVES, SUMS

import cavity
from cavity import data
from cavity.distributions import Gamma
from cavity.jobs.job import Job
from cavity.models.regression.logistic import NEAR_ZERO, find_curvature
from cavity.models.regression.newton import NewtonAscent, kernel
from cavity.models.regression.posterior import WeightPrior


def problem(seed, n=40, d=4, noise=0.5):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, d))
    return X, X @ np.where(np.arange(d) % 2, 0.0, rng.normal(0, 2, d)) + rng.normal(0, noise, n)


STACK_LOSSES = [
    *([80, 27, 89, 42], [80, 27, 88, 37], [75, 25, 90, 37], [62, 24, 87, 28], [62, 22, 87, 18], [62, 23, 87, 18]),
    *([62, 24, 93, 19], [62, 24, 93, 20], [58, 23, 87, 15], [58, 18, 80, 14], [58, 18, 89, 14], [58, 17, 88, 13]),
    *([58, 18, 82, 11], [58, 19, 93, 12], [50, 18, 89, 8], [50, 18, 86, 7], [50, 19, 72, 8], [50, 19, 79, 8]),
    *([50, 20, 80, 9], [56, 20, 82, 15], [70, 20, 91, 15]),
]  # Brownlee, Statistical Theory and Methodology in Science and Engineering, 1965


def test_rows_of_zeros_have_even_chances():
    """Their f is 0 without a doubt; one such row is no reason to refuse the others."""
    X, y = problem(5)
    posterior = cavity.LogisticRegression(intercept=False).fit(X, y > 0)
    rows = np.vstack([X[:2], np.zeros(4), 1e-170 * X[:1]])
    probabilities = posterior.predict_proba(rows)
    np.testing.assert_array_equal(probabilities[2:], 0.5)
    np.testing.assert_array_equal(probabilities[:2], posterior.predict_proba(X[:2]))


# ---- linear regression


@pytest.mark.parametrize("ard", [False, True])
def test_linear_fixed_point_and_elbo_are_those_of_the_book(ard):
    X, y = problem(2)
    model = cavity.LinearRegression(
        intercept=False, ard=ard, prior_shape=0.3, prior_rate=0.2, noise_shape=0.4, noise_rate=0.1
    )
    post = model.fit(X, y, tol=1e-16)
    assert post.converged
    tau = post.noise_precision.mean
    alpha = np.broadcast_to(post.alpha.mean, 4)
    m, S = ref.linear_q_w(X, y, alpha, tau)
    np.testing.assert_allclose(post.mean, m, atol=LOSSES)
    np.testing.assert_allclose(post.covariance, S, atol=SOLVES)
    second = m**2 + np.diag(S)
    misfit = np.sum((y - X @ m) ** 2) + np.trace(X.T @ X @ S)
    assert post.noise_precision.shape == pytest.approx(0.4 + 20)
    assert post.noise_precision.rate == pytest.approx(0.1 + misfit / 2, rel=EARLY)
    if ard:
        np.testing.assert_allclose(post.alpha.shape, 0.3 + 0.5)
        np.testing.assert_allclose(post.alpha.rate, 0.2 + second / 2, rtol=EARLY)
        q_alpha = list(zip(post.alpha.shape, post.alpha.rate, strict=True))
        noise = post.noise_precision.shape, post.noise_precision.rate
        elbo = ref.linear_elbo(X, y, m, S, q_alpha, noise, (0.3, 0.2), (0.4, 0.1))
        assert post.elbo == pytest.approx(elbo, rel=SOLVES)
    else:
        assert post.alpha.shape == pytest.approx(0.3 + 2)
        assert post.alpha.rate == pytest.approx(0.2 + second.sum() / 2, rel=EARLY)


@pytest.mark.parametrize("settings", [{}, {"ard": True}, {"ard": True, "intercept": 9.0}, {"noise_variance": 0.3}])
def test_newton_ends_where_sweeps_do(settings):
    """Also with callbacks, after each of which the compiled loop is entered anew: the same bits."""
    X, y = problem(21, n=30, d=6)
    model, events = cavity.LinearRegression(**{"intercept": False} | settings), []
    newton, sweeps = model.fit(X, y, tol=1e-13), model.fit(X, y, tol=1e-13, accelerate="anderson")
    np.testing.assert_allclose(newton.mean, sweeps.mean, atol=EARLY)
    np.testing.assert_allclose(newton.covariance, sweeps.covariance, atol=EARLY)
    assert abs(newton.elbo - sweeps.elbo) < LOSSES * abs(newton.elbo)
    reports = model.fit(X, y, tol=1e-13, callback=lambda event: events.append(event.n_iter))
    np.testing.assert_array_equal(reports.mean, newton.mean)
    assert (reports.elbo, events) == (newton.elbo, list(range(1, newton.n_iter + 1)))


@pytest.mark.parametrize("ard", [False, True])
def test_newton_derivatives_are_those_of_the_elbo(ard):
    """Gradient by differences of the ELBO of the book, Hessian by differences of the gradient."""
    X, y = problem(22, n=25, d=3)
    model = cavity.LinearRegression(ard=ard, intercept=False, prior_shape=0.3, prior_rate=0.2, noise_rate=0.1)
    R = np.linalg.qr(np.column_stack((X, y)), mode="r")
    prior = WeightPrior.of(model, 3)
    ascent = NewtonAscent(SimpleNamespace(model=model, prior=prior, n_samples=25), R[:, :3], R[:, 3])
    size = (3 if ard else 1) + 1

    def evaluate(theta):
        means = np.exp(theta)
        alpha = Gamma(np.ones(3), 1.0 / means[:3]) if ard else Gamma(1.0, 1.0 / float(means[0]))
        start = alpha, Gamma(1.0, 1.0 / float(means[-1]))
        arrays = ascent._restore(Job(), start, 1, 3)
        numbers = arrays["numbers"]
        problem = ascent._factor, ascent._target, ascent._group, ascent._fixed, ascent._shapes, ascent._rates, 0.0
        kernel.climb(*problem, numbers, arrays["mean"], arrays["root"], arrays["trace"], 1, 0.0)
        gradient = numbers[6 + 2 * size : 6 + 3 * size].copy()
        shapes, value = ascent._shapes, numbers[3] + ascent._find_constant(0.0)
        rates = np.broadcast_to(shapes[:-1] / means[:-1], 3)
        pairs = list(zip(np.broadcast_to(shapes[:-1], 3), rates, strict=True))[: size - 1]
        noise = shapes[-1], shapes[-1] / means[-1]
        m, S = ref.linear_q_w(X, y, np.broadcast_to(means[:-1], 3), means[-1])
        if ard:
            expected = ref.linear_elbo(X, y, m, S, pairs, noise, (0.3, 0.2), (1e-6, 0.1))
            assert abs(value - expected) < LOSSES * abs(expected)
        return value, gradient, numbers[6 + 3 * size :].reshape(size, size).copy()

    theta = np.random.default_rng(3).normal(size=size)
    _, gradient, hessian = evaluate(theta)
    steps = 1e-5 * np.eye(size)
    above, below = ([evaluate(theta + sign * step) for step in steps] for sign in (1.0, -1.0))
    for i, (high, low) in enumerate(zip(above, below, strict=True)):
        np.testing.assert_allclose((high[0] - low[0]) / 2e-5, gradient[i], rtol=OPTIMUM, atol=OPTIMUM)
        np.testing.assert_allclose((high[1] - low[1]) / 2e-5, hessian[i], rtol=OPTIMUM, atol=OPTIMUM)


def test_linear_with_known_precisions_is_exact():
    X, y = problem(3, n=12)
    variance = np.array([1.0, 2.0, 0.5, 4.0])
    post = cavity.LinearRegression(intercept=False, prior_variance=variance, noise_variance=0.3).fit(X, y)
    marginal = stats.multivariate_normal(np.zeros(12), 0.3 * np.eye(12) + X @ np.diag(variance) @ X.T)
    assert post.elbo == pytest.approx(marginal.logpdf(y), rel=SUMS)
    m, S = ref.linear_q_w(X, y, 1 / variance, 1 / 0.3)
    np.testing.assert_allclose(post.mean, m, rtol=SOLVES)
    np.testing.assert_allclose(post.variance, np.diag(S), rtol=SOLVES)
    latent = np.diag(X[:3] @ S @ X[:3].T)
    for noise, added in ((False, 0.0), (True, 0.3)):
        mean, spread = post.predict(X[:3], noise=noise)
        np.testing.assert_allclose(mean, X[:3] @ m, rtol=SOLVES)
        np.testing.assert_allclose(spread, added + latent, rtol=SOLVES)
    of_y = stats.norm(X[:3] @ m, np.sqrt(0.3 + latent))
    np.testing.assert_allclose(post.log_density(X[:3], y[:3]), of_y.logpdf(y[:3]), rtol=LOSSES)
    np.testing.assert_allclose(post.quantile(X[:3], 0.9), of_y.ppf(0.9), rtol=LOSSES)
    np.testing.assert_allclose(post.expected(X[:3], offset=1.0), 1.0 + X[:3] @ m, rtol=SOLVES)
    draws = post.sample_y(X[:3], 20_000, 0)
    np.testing.assert_allclose(np.cov(draws.T), 0.3 * np.eye(3) + X[:3] @ S @ X[:3].T, atol=0.05)
    assert np.all(np.abs(draws.mean(axis=0) - X[:3] @ m) < 5 * of_y.std() / np.sqrt(20_000))


def test_linear_elbo_is_below_the_evidence():
    """One column, both precisions unknown: log p(y) by quadrature over their logs."""
    X, y = problem(4, n=6, d=1)
    model = cavity.LinearRegression(intercept=False, prior_shape=2.0, prior_rate=1.0, noise_shape=2.0, noise_rate=1.0)
    post = model.fit(X, y)
    log_a, log_tau = np.meshgrid(np.linspace(-12.0, 5.0, 201), np.linspace(-12.0, 5.0, 201), indexing="ij")
    a, tau = np.exp(log_a), np.exp(log_tau)
    xx, xy, yy = X[:, 0] @ X[:, 0], X[:, 0] @ y, y @ y
    marginal = 6 * (log_tau - np.log(2 * np.pi)) - np.log1p(tau * xx / a) - tau * (yy - xy**2 * tau / (a + tau * xx))
    prior = stats.gamma(2.0, scale=1.0)
    log_joint = 0.5 * marginal + prior.logpdf(a) + prior.logpdf(tau) + log_a + log_tau
    evidence = np.log(np.sum(np.exp(log_joint)) * (17 / 200) ** 2)
    assert evidence - 0.5 < post.elbo < evidence


def test_relevance_finds_the_columns_that_count():
    X, y = problem(5, n=200, d=10)
    post = cavity.LinearRegression(intercept=False, ard=True).fit(X, y)
    assert np.all(post.relevance[::2] > 0.9)
    assert np.all(post.relevance[1::2] < 0.9)
    sklearn = pytest.importorskip("sklearn.linear_model")
    other = sklearn.ARDRegression(fit_intercept=False).fit(X, y)
    np.testing.assert_allclose(post.mean, other.coef_, atol=0.05)
    shared = cavity.LinearRegression(intercept=False).fit(X, y)
    ridge = sklearn.BayesianRidge(fit_intercept=False).fit(X, y)
    np.testing.assert_allclose(shared.mean, ridge.coef_, atol=EXPANSION)
    assert shared.noise_precision.mean == pytest.approx(ridge.alpha_, rel=0.02)


@examples(25)
@given(
    seed=st.integers(0, 2**32 - 1),
    n=st.integers(1, 30),
    d=st.integers(1, 6),
    ard=st.booleans(),
    accelerate=st.sampled_from([False, "anderson", "squarem"]),
)
def test_linear_elbo_never_falls(seed, n, d, ard, accelerate):
    X, y = problem(seed, n, d)
    if seed % 3 == 0:
        X[:, -1] = X[:, 0]  # collinear
    post = cavity.LinearRegression(
        intercept=False, ard=ard, prior_shape=0.1, prior_rate=0.1, noise_shape=0.1, noise_rate=0.1
    ).fit(X, y, accelerate=accelerate, max_iter=100_000, tol=1e-9)
    elbo = post.trace["elbo"]
    assert np.all(np.diff(elbo) >= -1e-12 * np.abs(elbo).max())
    assert np.all(np.isfinite(post.mean))


def test_linear_columns_of_any_scale():
    X, y = problem(6, n=100)
    scale = np.array([1e-9, 1.0, 1e9, 1e3])
    one = cavity.LinearRegression(intercept=False, prior_variance=4.0).fit(X, y)
    other = cavity.LinearRegression(intercept=False, prior_variance=4.0 / scale**2).fit(X * scale, y)
    np.testing.assert_allclose(other.mean * scale, one.mean, rtol=AT_REST)
    np.testing.assert_allclose(other.variance * scale**2, one.variance, rtol=AT_REST)
    assert other.elbo == pytest.approx(one.elbo, rel=SOLVES)
    base = dict(ard=True, prior_shape=0.1, noise_shape=0.1)
    one = cavity.LinearRegression(intercept=False, **base, prior_rate=0.1, noise_rate=0.1).fit(X, y, tol=1e-14)
    other = cavity.LinearRegression(intercept=False, **base, prior_rate=0.1e-12, noise_rate=0.1).fit(
        X * 1e6, y, tol=1e-14
    )
    np.testing.assert_allclose(other.mean * 1e6, one.mean, atol=OPTIMUM)


# ---- an intercept of the model


@pytest.mark.parametrize("ard", [False, True])
def test_linear_intercept_is_no_part_of_the_learnt_prior(ard):
    """The book with a column of ones whose prior N(m, v) is known: y - m, and the Gamma prior sees the others only."""
    X, y = problem(21)
    X, y = X + [3.0, 0.0, -2.0, 0.0], y + 40.0
    shapes = dict(prior_shape=0.3, prior_rate=0.2, noise_shape=0.4, noise_rate=0.1)
    post = cavity.LinearRegression(ard=ard, intercept=9.0, **shapes).fit(X, y, tol=1e-14)
    m, v = post.intercept_prior
    assert (m, v) == (np.median(y), 9.0)
    assert post.coefficient_names == ("intercept", "x1", "x2", "x3", "x4")
    ones, noise = np.column_stack([np.ones(len(X)), X]), (post.noise_precision.shape, post.noise_precision.rate)
    alpha = np.append(1 / v, np.broadcast_to(post.alpha.mean, 4))
    mean, S = ref.linear_q_w(ones, y - m, alpha, noise[0] / noise[1])
    np.testing.assert_allclose(post.mean - [m, 0, 0, 0, 0], mean, atol=EARLY)
    np.testing.assert_allclose(post.variance, np.diag(S), rtol=EARLY)
    np.testing.assert_allclose(post.relevance, 1 - alpha * np.diag(S), rtol=EARLY)
    second = (mean**2 + np.diag(S))[1:]
    if ard:
        np.testing.assert_allclose(post.alpha.shape, 0.8)
        np.testing.assert_allclose(post.alpha.rate, 0.2 + second / 2, rtol=OPTIMUM)
    else:
        assert post.alpha.shape == pytest.approx(0.3 + 2)
        assert post.alpha.rate == pytest.approx(0.2 + second.sum() / 2, rel=OPTIMUM)
    alphas = list(zip(*np.broadcast_arrays(post.alpha.shape, post.alpha.rate, np.ones(4)), strict=True))
    alphas = [item[:2] for item in alphas] if ard else [(post.alpha.shape, post.alpha.rate)]
    elbo = ref.linear_elbo_with_intercept(ones, y - m, mean, S, alphas, noise, (0.3, 0.2), (0.4, 0.1), v)
    assert post.elbo == pytest.approx(elbo, rel=AT_REST)
    trace = post.trace["elbo"]
    assert np.all(np.diff(trace) >= -1e-12 * np.abs(trace).max())


def test_linear_with_an_intercept_is_the_gaussian_evidence_and_the_glm():
    X, y = problem(22, n=15)
    X, y, variance = X + 3.0, y - 70.0, np.array([1.0, 2.0, 0.5, 4.0])
    post = cavity.LinearRegression(prior_variance=variance, noise_variance=0.3, intercept=True).fit(X, y)
    m, v = post.intercept_prior
    prior = 0.3 * np.eye(15) + X @ np.diag(variance) @ X.T + v
    assert post.elbo == pytest.approx(stats.multivariate_normal(np.full(15, m), prior).logpdf(y), rel=AT_REST)
    glm = cavity.GLM(cavity.likelihoods.Gaussian(0.3), prior_variance=variance, intercept=True).fit(X, y)
    np.testing.assert_allclose([m, v], [glm.model.prior_mean[0], glm.model.prior_variance[0]], rtol=SOLVES)
    np.testing.assert_allclose(post.mean, glm.mean, rtol=AT_REST)
    np.testing.assert_allclose(post.covariance, glm.covariance, rtol=EARLY, atol=SOLVES)
    for ours, theirs in zip(post.predict(X[:3], noise=True), glm.predict(X[:3], noise=True), strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=AT_REST)
    draws = post.sample_y(X[:2], 20_000, 0)
    np.testing.assert_allclose(draws.mean(axis=0), post.predict(X[:2])[0], atol=0.05)


def test_wide_priors_with_an_intercept_are_least_squares():
    """Brownlee's stack losses (airflow, water temperature, acid): acid is -0.152 by ordinary least squares."""
    X = np.array(STACK_LOSSES)
    X, y = X[:, :3], X[:, 3]
    least_squares = np.linalg.lstsq(np.column_stack([np.ones(21), X]), y, rcond=None)[0]
    assert least_squares[3] == pytest.approx(-0.152, abs=5e-4)
    post = cavity.LinearRegression(prior_variance=1e6, intercept=True).fit(X, y)
    np.testing.assert_allclose(post.mean, least_squares, rtol=SLOPES)
    with pytest.warns(cavity.SettingsWarning, match="X has no constant column, so there is no intercept"):
        assert cavity.LinearRegression(prior_variance=1e6).fit(X, y).mean[2] < -0.6


def test_logistic_sweeps_with_an_intercept_are_those_of_polya_gamma_variables():
    X, y = labels(23)
    X = X + [0.0, 2.0, -1.0]
    ones, variance = np.column_stack([np.ones(30), X]), np.array([1.0, 4.0, 0.5])
    model = cavity.LogisticRegression(prior_variance=variance, intercept=True)
    wide = 25.0**2 + variance @ X.mean(axis=0) ** 2
    precision = np.append(1 / wide, 1 / variance)
    S = np.linalg.inv(0.25 * ones.T @ ones + np.diag(precision))
    m = S @ ones.T @ y / 2
    for sweep in range(1, 8):
        with pytest.warns(cavity.ConvergenceWarning):
            post = model.fit(X, y, accelerate=False, max_iter=sweep, tol=0)
        np.testing.assert_allclose(post.mean, m, atol=LOSSES)
        np.testing.assert_allclose(post.covariance, S, atol=LOSSES)
        assert post.elbo == pytest.approx(ref.polya_gamma_elbo(ones, y, m, S, precision), rel=INTEGRAL)
        m, S = ref.polya_gamma_sweep(ones, y, m, S, precision)
    assert post.intercept_prior == (0.0, pytest.approx(wide, rel=SOLVES))
    learnt = cavity.LogisticRegression(prior_variance=None, ard=True, intercept=True).fit(X, y)
    assert learnt.alpha.shape.shape == (3,)
    trace = learnt.trace["elbo"]
    assert np.all(np.diff(trace) >= -1e-12 * np.abs(trace).max())
    np.testing.assert_allclose(learnt.predict_proba(X).sum(axis=1), 1.0, rtol=SOLVES)


@pytest.mark.sample(2)
@pytest.mark.parametrize("kind", [cavity.LinearRegression, cavity.LogisticRegression])
@pytest.mark.parametrize("settings", [{}, {"prior_variance": None, "ard": True}])
def test_posteriors_with_an_intercept_are_saved(kind, settings, tmp_path):
    X, y = problem(24)
    post = kind(intercept=True, **settings).fit(X, y > 0)
    post.save(tmp_path / "post.npz")
    back = cavity.load(tmp_path / "post.npz")
    assert (back.intercept_prior, back.model) == (post.intercept_prior, post.model)
    np.testing.assert_array_equal(back.relevance, post.relevance)
    np.testing.assert_array_equal(back.predict(X), post.predict(X))


def test_intercepts_of_many_rows_have_the_same_bits(tmp_path):
    rng = np.random.default_rng(25)
    X = rng.normal(size=(9000, 2)) + 1.0
    y = X @ [1.0, -2.0] + 5.0 + rng.normal(size=9000)
    np.save(tmp_path / "rows.npy", X)
    for model, target in (
        (cavity.LinearRegression(intercept=True), y),
        (cavity.LogisticRegression(intercept=True), y > 4),
    ):
        one, other = model.fit(X, target), model.fit(tmp_path / "rows.npy", target, n_threads=2)
        np.testing.assert_array_equal(one.mean, other.mean)
        assert one.elbo == other.elbo


@pytest.mark.parametrize("kind", [cavity.LinearRegression, cavity.LogisticRegression])
def test_settings_of_an_intercept(kind, tmp_path):
    X, y = problem(26, n=5000)
    ones = np.column_stack([X, np.ones(5000)])
    np.save(tmp_path / "ones.npy", ones)
    for rows in (ones, tmp_path / "ones.npy"):
        kind().fit(rows, y > 0)  # a constant column stands for an intercept
        with pytest.warns(cavity.SettingsWarning, match="column 4 .* of X is constant and intercept=True adds"):
            kind(intercept=True).fit(rows, y > 0)
    ones[4999, -1] = 2.0  # beyond the first block
    with pytest.warns(cavity.SettingsWarning, match="X has no constant column"):
        kind().fit(ones, y > 0)
    for wrong in ("yes", -1.0, 0.0):
        with pytest.raises((TypeError, ValueError), match="intercept must be"):
            kind(intercept=wrong)
    far = kind(intercept=True, prior_variance=None).fit(X + 1e3, y > 0)
    assert np.isfinite(far.elbo)


# ---- logistic regression


def labels(seed, n=30, d=3):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, d))
    return X, np.where(rng.random(n) < 1 / (1 + np.exp(-X @ rng.normal(0, 2, d))), 1.0, -1.0)


def test_logistic_sweeps_are_those_of_polya_gamma_variables():
    X, y = labels(7)
    variance = np.array([1.0, 4.0, 0.5])
    S = np.linalg.inv(0.25 * X.T @ X + np.diag(1 / variance))  # every omega_n at its prior mean
    m = S @ X.T @ y / 2
    for sweep in range(1, 8):
        with pytest.warns(cavity.ConvergenceWarning):
            post = cavity.LogisticRegression(intercept=False, prior_variance=variance).fit(
                X, y, accelerate=False, max_iter=sweep, tol=0
            )
        np.testing.assert_allclose(post.mean, m, atol=SUMS)
        np.testing.assert_allclose(post.covariance, S, atol=SUMS)
        assert post.elbo == pytest.approx(ref.polya_gamma_elbo(X, y, m, S, 1 / variance), rel=SOLVES)
        m, S = ref.polya_gamma_sweep(X, y, m, S, 1 / variance)


def test_logistic_elbo_is_below_the_evidence():
    X, y = labels(8, n=8, d=2)
    post = cavity.LogisticRegression(intercept=False, prior_variance=2.0).fit(X, y)

    def joint(b, a):
        return np.exp(-np.sum(np.logaddexp(0, -y * (X @ [a, b]))) - (a * a + b * b) / 4) / (4 * np.pi)

    evidence = np.log(integrate.dblquad(joint, -9, 9, -9, 9, epsabs=1e-6)[0])
    assert evidence - 0.4 < post.elbo < evidence  # the bound on the sigmoid costs 0.36
    by_ep = cavity.GLM(cavity.likelihoods.Logit(), prior_variance=2.0, intercept=False).fit(X, y)
    assert post.elbo < by_ep.log_evidence
    np.testing.assert_allclose(post.mean, by_ep.mean, atol=0.15)
    probability = post.predict_proba(X)
    np.testing.assert_allclose(probability.sum(axis=1), 1.0, rtol=SOLVES)
    x = X[0]
    spread = np.sqrt(x @ post.covariance @ x)
    inside = integrate.quad(lambda f: stats.norm(x @ post.mean, spread).pdf(f) / (1 + np.exp(-f)), -30, 30)[0]
    assert probability[0, 1] == pytest.approx(inside, abs=AT_REST)


@examples(20)
@given(
    seed=st.integers(0, 2**32 - 1),
    n=st.integers(1, 30),
    ard=st.booleans(),
    accelerate=st.sampled_from([False, "anderson", "squarem"]),
)
def test_logistic_elbo_never_falls(seed, n, ard, accelerate):
    X, y = labels(seed, n, 2)
    model = cavity.LogisticRegression(intercept=False, prior_variance=None, ard=ard, prior_shape=0.5, prior_rate=0.5)
    post = model.fit(X, y, accelerate=accelerate, max_iter=20_000, tol=1e-9)
    elbo = post.trace["elbo"]
    assert np.all(np.diff(elbo) >= -1e-12 * np.abs(elbo).max())
    np.testing.assert_allclose(model.fit(X, -y, tol=1e-12).mean, -model.fit(X, y, tol=1e-12).mean, atol=PRINTED)


def test_logistic_on_real_data():
    columns, _ = data.table("pima")
    names = [name for name in columns if columns[name].dtype.kind == "f"]
    X = np.column_stack([columns[name] for name in names])
    X = np.column_stack([np.ones(len(X)), (X - X.mean(axis=0)) / X.std(axis=0)])
    y = columns["type"] == "Yes"
    post = cavity.LogisticRegression(intercept=False, prior_variance=4.0).fit(X, y)
    by_ep = cavity.GLM(cavity.likelihoods.Logit(), prior_variance=4.0, intercept=False).fit(X, y)
    assert by_ep.log_evidence - 3 < post.elbo < by_ep.log_evidence
    np.testing.assert_allclose(post.mean, by_ep.mean, atol=0.03)
    learnt = cavity.LogisticRegression(intercept=False, prior_variance=None, ard=True).fit(X, y)
    assert learnt.relevance[names.index("glu") + 1] > 0.9


def test_separable_labels_and_a_column_of_zeros():
    X = np.column_stack([np.arange(-5.0, 6.0) + 0.5, np.zeros(11)])
    post = cavity.LogisticRegression(intercept=False, prior_variance=1e4).fit(X, X[:, 0] > 0, tol=1e-8)
    assert post.converged
    assert post.mean[1] == 0
    assert post.variance[1] == pytest.approx(1e4)


# ---- all


@pytest.mark.parametrize(
    "fit",
    [
        lambda: cavity.LinearRegression(intercept=False, ard=True).fit(*problem(9)),
        lambda: cavity.LinearRegression(intercept=False, prior_variance=[1, 2, 3, 4], noise_variance=2).fit(
            *problem(9)
        ),
        lambda: cavity.LogisticRegression(intercept=False, prior_variance=None).fit(*labels(10)),
    ],
)
def test_save_keeps_every_bit(fit, tmp_path):
    post = fit()
    post.save(tmp_path / "post.npz")
    back = cavity.load(tmp_path / "post.npz")
    assert repr(back) == repr(post)
    assert back.elbo == post.elbo
    assert back.model == post.model
    if hasattr(post, "relevance"):
        np.testing.assert_array_equal(back.relevance, post.relevance)
        np.testing.assert_array_equal(back.sample(3, 0), post.sample(3, 0))


def test_samples_have_the_moments():
    post = cavity.LinearRegression(intercept=False).fit(*problem(11))
    sample = post.sample(50_000, 1)
    np.testing.assert_allclose(sample.mean(axis=0), post.mean, atol=5 * np.sqrt(post.variance.max() / 50_000))
    np.testing.assert_allclose(np.cov(sample.T), post.covariance, atol=0.05 * post.variance.max())


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: cavity.LinearRegression(intercept=False, prior_variance=-1.0), "prior_variance"),
        (lambda: cavity.LinearRegression(intercept=False, prior_variance=1.0, ard=True), "leave prior_variance None"),
        (lambda: cavity.LinearRegression(intercept=False, noise_variance=0), "noise_variance must be in"),
        (lambda: cavity.LinearRegression(intercept=False, ard="yes"), "ard must be True or False"),
        (
            lambda: cavity.LinearRegression(intercept=False).fit([[1.0]], [1.0, 2.0]),
            "y must have one entry per row of X",
        ),
        (
            lambda: cavity.LinearRegression(intercept=False).fit([[np.nan]], [1.0]),
            r"X must be finite, got X\[0, 0\] = nan",
        ),
        (
            lambda: cavity.LinearRegression(intercept=False, prior_variance=[1.0, 2.0]).fit([[1.0]], [1.0]),
            "prior_variance must be",
        ),
        (lambda: cavity.LogisticRegression(intercept=False).fit([[1.0]], [3.0]), "y"),
        (
            lambda: cavity.LogisticRegression(intercept=False).fit([[1.0]], [1.0]).predict_proba([[1.0, 2.0]]),
            "X must have 1 columns",
        ),
    ],
)
def test_bad_input_is_named(make, message):
    with pytest.raises((ValueError, TypeError), match=message):
        make()


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (
            lambda: cavity.LinearRegression(intercept=False).fit([[1e100], [2e100]], [1e-100, 0]),
            "X, y: squares of the columns",
        ),
        (
            lambda: cavity.LinearRegression(intercept=False).fit([[1e-100], [2e-100]], [1e100, 0]),
            "X, y: squares of the columns",
        ),
        (
            lambda: cavity.LinearRegression(intercept=False, ard=True).fit([[1e160], [2e160]], [1, 0]),
            "X, y: squares of the columns",
        ),
        (
            lambda: cavity.LogisticRegression(intercept=False).fit([[1e160], [2e160]], [1, 0]),
            "X: squares of the columns",
        ),
    ],
)
def test_data_whose_squares_leave_the_range_are_named(make, message):
    with pytest.raises(OverflowError, match=message):
        make()


@pytest.mark.sample(3)
@pytest.mark.parametrize("scale", [1e-140, 1e-100, 1e100, 1e140])
def test_linear_extreme_scales_of_y(scale):
    """With priors in the units of y the fit is the same in any units."""
    X, y = problem(13)

    def fit(scale):
        model = cavity.LinearRegression(
            intercept=False, ard=True, prior_shape=0.1, prior_rate=0.1 * scale**2, noise_rate=scale**2
        )
        return model.fit(X, scale * y, tol=1e-13)

    np.testing.assert_allclose(fit(scale).mean / scale, fit(1.0).mean, rtol=SLOPES)
    np.testing.assert_allclose(fit(scale).relevance, fit(1.0).relevance, rtol=SLOPES)


@pytest.mark.long_cases("True")
@pytest.mark.parametrize("ard", [False, True])
def test_linear_fits_without_much_to_find(ard):
    """Exact fits, constants, zeros, one row, more columns than rows: they end, and the gap is finite and small."""
    X, y = problem(14, n=50, d=5)
    rng = np.random.default_rng(14)
    wide = rng.normal(size=(5, 100))
    data = [(X, 0 * y), (X, 0 * y + 3), (X, X @ np.ones(5)), (X[:, [0, 0, 1]], y), (X[:1], y[:1]), (wide, wide[:, 0])]
    for columns, target in data:
        post = cavity.LinearRegression(intercept=False, ard=ard).fit(columns, target)
        assert post.converged
        assert post.predicted_gap <= 1e-10 * len(target)
        assert np.all(np.isfinite(post.mean))


def test_any_kind_of_array_gives_the_same_bits():
    X, y = problem(15)
    X, y = X.astype(np.float32), np.round(y).astype(np.int16)
    frozen = np.asfortranarray(X)
    frozen.flags.writeable = False
    for model, target in (
        (cavity.LinearRegression(intercept=False), y),
        (cavity.LogisticRegression(intercept=False), y > 0),
    ):
        one, other = model.fit(X.astype(float), target), model.fit(frozen, target)
        np.testing.assert_array_equal(one.mean, other.mean)
        assert one.elbo == other.elbo


def test_fits_at_the_same_time_and_interrupted_ones():
    X, y = problem(16, n=200, d=6)
    single = cavity.LinearRegression(intercept=False, ard=True).fit(X, y)
    with ThreadPoolExecutor(2) as pool:
        for post in pool.map(lambda _: cavity.LinearRegression(intercept=False, ard=True).fit(X, y), range(6)):
            np.testing.assert_array_equal(post.mean, single.mean)

    def interrupt(event):
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        cavity.LinearRegression(intercept=False, ard=True).fit(X, y, callback=interrupt)
    assert cavity.LinearRegression(intercept=False, ard=True).fit(X, y).elbo == single.elbo


def test_gamma_prior_of_one_alpha_is_shared():
    X, y = problem(12)
    post = cavity.LinearRegression(intercept=False).fit(X, y)
    assert isinstance(post.alpha, Gamma)
    assert np.ndim(post.alpha.shape) == 0


@pytest.mark.long_cases("5-40-False")
@pytest.mark.parametrize(
    ("n", "d", "ard"),
    [(100, 20, True), (5, 40, False), (1, 1, False), pytest.param(5, 100, False, marks=pytest.mark.long)],
)
def test_logistic_with_surplus_columns_converges(n, d, ard):
    X, y = labels(n, n, d)
    post = cavity.LogisticRegression(intercept=False, prior_variance=None, ard=ard).fit(X, y)
    assert post.converged
    second = cavity.LogisticRegression(intercept=False, prior_variance=None, ard=ard).fit(
        X, y, tol=1e-13, max_iter=5000
    )
    assert second.elbo - post.elbo < 3e-10 * n + 1e-12 * abs(post.elbo)


def test_curvature_of_the_bound_at_zero_and_beside_it():
    """tanh(x/2)/(2 x), by its series where that is all its digits, is one function."""
    np.testing.assert_array_equal(find_curvature(np.zeros(1)), 0.25)
    x = np.array([1e-8, 0.999 * NEAR_ZERO, NEAR_ZERO, 1.0])
    np.testing.assert_allclose(find_curvature(x), np.tanh(0.5 * x) / (2.0 * x), rtol=SOLVES)


@pytest.mark.parametrize("kind", [cavity.LinearRegression, cavity.LogisticRegression])
def test_columns_without_room_for_their_covariance_are_refused_before_any_work(kind):
    with pytest.raises(MemoryError, match=r"of shape \(3000000, 3000000\) needs 72000000000000 bytes.*diagonal"):
        kind().fit(np.ones((2, 3_000_000)), [0, 1])


def test_columns_far_from_zero_keep_their_slopes():
    """The prior of the intercept is as wide as it takes: seconds since 1970 have a slope of their own size."""
    rng = np.random.default_rng(0)
    t = np.linspace(0.0, 100.0, 40)
    y = 0.05 * t + 0.1 * rng.normal(size=40)
    slope = np.polyfit(t, y, 1)[0]
    for start in (1e7, 1.6e9):
        post = cavity.LinearRegression(intercept=True).fit((t + start)[:, None], y)
        assert post.mean[1] == pytest.approx(slope, rel=1e-2)
