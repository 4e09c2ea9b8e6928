"""Distributions: densities against SciPy, quadrature and mpmath; the exponential-family laws; samples; errors."""

import pickle
import re
from dataclasses import fields, is_dataclass

import mpmath as mp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from reference import divergence as reference
from scipy import integrate, special, stats
from support.tolerances import AT_REST, INTEGRAL, LAST_BIT, LOSSES, OPTIMUM, ROUNDING, SOLVES, SUMS

import cavity
from cavity import distributions
from cavity.distributions import (
    Categorical,
    Dirichlet,
    Gamma,
    Gaussian,
    MultivariateGaussian,
    NormalWishart,
    SphericalGaussian,
    Wishart,
    factors,
)

S = np.array([[2.0, 0.6, -0.3], [0.6, 1.0, 0.2], [-0.3, 0.2, 0.5]])
M = np.array([1.0, -2.0, 0.5])
EXAMPLES = {
    "gaussian": Gaussian.from_moments(1.5, 0.7),
    "gaussian batch": Gaussian.from_moments([[1.0, 2.0, -3.0]], [[0.5], [2.0]]),
    "spherical": SphericalGaussian.from_moments([1.0, -2.0], 3.0),
    "spherical batch": SphericalGaussian.from_moments([[1.0, -2.0], [0.0, 1.0]], [3.0, 0.1]),
    "multivariate": MultivariateGaussian(M, S),
    "multivariate precision": MultivariateGaussian(M, precision=S),
    "multivariate natural": MultivariateGaussian.from_natural(M, S),
    "gamma": Gamma(2.5, 3.0),
    "gamma batch": Gamma([0.5, 3.0, 40.0], [1.0, 0.1, 5.0]),
    "dirichlet": Dirichlet([0.7, 2.0, 5.0]),
    "dirichlet batch": Dirichlet([[0.7, 2.0, 5.0], [1.0, 1.0, 1.0]]),
    "categorical": Categorical([0.2, 0.5, 0.3]),
    "categorical batch": Categorical([[0.2, 0.5, 0.3], [0.1, 0.1, 0.8]]),
    "wishart": Wishart(5.5, S),
    "normal-wishart": NormalWishart(M, 1.5, 7.5, S),
}
FAMILIES = pytest.mark.parametrize("name", EXAMPLES)


def sufficient(q, x):
    """Sufficient statistics of samples x (n, ...), from the docstrings, as rows."""
    n = len(x)
    outer = np.einsum("...i,...j->...ij", x, x) if x.ndim > 1 else None
    match q:
        case Gaussian():
            parts = x, -0.5 * x**2
        case SphericalGaussian():
            parts = x, -0.5 * np.sum(x**2, axis=-1)
        case MultivariateGaussian():
            parts = x, -0.5 * outer
        case Gamma():
            parts = np.log(x), x
        case Dirichlet():
            parts = (np.log(x),)
        case Categorical():
            parts = (np.eye(q.probabilities.shape[-1])[x],)
        case Wishart():
            parts = np.linalg.slogdet(x)[1], x
        case NormalWishart():
            mu, L = x[:, 0], x[:, 1:]
            first = np.einsum("nij,nj->ni", L, mu)
            parts = first, np.einsum("ni,ni->n", mu, first), np.linalg.slogdet(L)[1], L
    return np.concatenate([np.reshape(part, (n, -1)) for part in parts], axis=1)


def within(samples, expected, errors=4.5):
    """Whether the mean over the first axis is within a number of standard errors of what is expected."""
    error = samples.std(axis=0, ddof=1) / np.sqrt(len(samples))
    return np.all(np.abs(samples.mean(axis=0) - expected) <= errors * error + 1e-13 * np.abs(expected))


# --- densities -------------------------------------------------------------------------------------------

DENSITIES = [
    (EXAMPLES["gaussian"], stats.norm(1.5, 0.7**0.5), [0.3, 2.0, -30.0]),
    (EXAMPLES["spherical"], stats.multivariate_normal([1.0, -2.0], 3.0), [[0.0, 1.0], [2.0, -9.0]]),
    (EXAMPLES["multivariate"], stats.multivariate_normal(M, S), [M, M + 1, [9.0, 0.0, 3.0]]),
    (EXAMPLES["multivariate precision"], stats.multivariate_normal(M, np.linalg.inv(S)), [M, M + 1]),
    (EXAMPLES["gamma"], stats.gamma(2.5, scale=1 / 3.0), [0.01, 1.0, 30.0, -1.0, 0.0]),
    (Gamma(0.3, 2.0), stats.gamma(0.3, scale=0.5), [1e-30, 1e-3, 5.0]),
]


@pytest.mark.parametrize(("ours", "theirs", "points"), DENSITIES)
def test_log_density_and_entropy_equal_scipy(ours, theirs, points):
    np.testing.assert_allclose(ours.log_density(points), theirs.logpdf(points), rtol=SOLVES)
    assert ours.entropy() == pytest.approx(float(theirs.entropy()), rel=SOLVES)


def test_dirichlet_and_wishart_equal_scipy():
    points = np.array([[0.2, 0.3, 0.5], [0.98, 0.01, 0.01]])
    theirs = stats.dirichlet([0.7, 2.0, 5.0])
    np.testing.assert_allclose(EXAMPLES["dirichlet"].log_density(points), theirs.logpdf(points.T), rtol=SOLVES)
    assert EXAMPLES["dirichlet"].entropy() == pytest.approx(theirs.entropy(), rel=SOLVES)
    theirs, L = stats.wishart(5.5, np.linalg.inv(S)), np.array([S, 3 * np.eye(3) - S])
    np.testing.assert_allclose(EXAMPLES["wishart"].log_density(L), theirs.logpdf(np.moveaxis(L, 0, -1)), rtol=SOLVES)
    assert EXAMPLES["wishart"].entropy() == pytest.approx(float(theirs.entropy()), rel=SOLVES)


@pytest.mark.long_cases("q2-0-inf")
@pytest.mark.parametrize(
    ("q", "low", "high"),
    [(EXAMPLES["gaussian"], -np.inf, np.inf), (EXAMPLES["gamma"], 0, np.inf), (Wishart(3.0, [[2.0]]), 0, np.inf)],
)
def test_densities_integrate_to_one_with_these_statistics(q, low, high):
    matrix = isinstance(q, Wishart)

    def moment(function):
        def integrand(x):
            point = np.full(q.event_shape, x)
            return np.exp(q.log_density(point)) * function(point)

        return integrate.quad(integrand, low, high, epsabs=1e-12, epsrel=1e-11)[0]

    assert moment(lambda x: 1.0) == pytest.approx(1.0, rel=INTEGRAL)
    assert moment(lambda x: -q.log_density(x)) == pytest.approx(q.entropy(), rel=AT_REST)
    for i, expected in enumerate(q.statistics):
        assert moment(lambda x, i=i: sufficient(q, x[None])[0, i]) == pytest.approx(expected, rel=AT_REST)
    if not matrix:
        assert moment(lambda x: (x - q.mean) ** 2) == pytest.approx(q.variance, rel=AT_REST)


def test_dirichlet_density_integrates_to_one():
    nodes, weights = np.polynomial.legendre.leggauss(12)
    nodes, weights = 0.5 * (nodes + 1), 0.5 * weights
    x, v = nodes[:, None], nodes  # the simplex as (x, (1 - x) v, rest), where this density is a polynomial
    points = np.stack(np.broadcast_arrays(x, (1 - x) * v, (1 - x) * (1 - v)), axis=-1)
    q = Dirichlet([2.0, 3.0, 4.0])
    mass = weights[:, None] * weights * (1 - x) * np.exp(q.log_density(points))
    assert mass.sum() == pytest.approx(1.0, rel=SOLVES)
    np.testing.assert_allclose(np.einsum("ij,ijk->k", mass, points), q.mean, rtol=SOLVES)
    np.testing.assert_allclose(np.einsum("ij,ijk->k", mass, (points - q.mean) ** 2), q.variance, rtol=SOLVES)


def test_normal_wishart_is_the_product_of_its_parts():
    q, x = EXAMPLES["normal-wishart"], EXAMPLES["normal-wishart"].sample(5, 0)
    for mu, L in zip(x[:, 0], x[:, 1:], strict=True):
        conditional = stats.multivariate_normal(M, np.linalg.inv(1.5 * L)).logpdf(mu)
        full = conditional + stats.wishart(7.5, np.linalg.inv(S)).logpdf(L)
        assert q.log_density(np.vstack([mu, L])) == pytest.approx(full, rel=INTEGRAL)


def test_wishart_of_one_dimension_is_gamma():
    w, g = Wishart(7.0, [[3.0]]), Gamma(3.5, 1.5)
    assert w.entropy() == pytest.approx(g.entropy(), rel=ROUNDING)
    assert w.log_density([[2.0]]) == pytest.approx(g.log_density(2.0), rel=ROUNDING)
    np.testing.assert_allclose(w.natural, g.natural, rtol=LAST_BIT)
    np.testing.assert_allclose(w.statistics, g.statistics, rtol=LAST_BIT)
    assert (w.mean[0, 0], w.variance[0, 0]) == pytest.approx((g.mean, g.variance), rel=ROUNDING)


def test_limits_at_the_edge_of_the_support():
    assert Gamma([1.0], [3.0]).log_density([0.0]) == pytest.approx(np.log(3.0), rel=LAST_BIT)
    assert Gamma(0.5, 1.0).log_density(0.0) == np.inf
    assert Gamma(2.0, 1.0).log_density([0.0, -1.0]).tolist() == [-np.inf, -np.inf]
    assert Gamma([0.5, 2.0], 1.0).log_density([0.0, 0.0]) == -np.inf
    assert Dirichlet([1.0, 1.0, 1.0]).log_density([0.0, 0.3, 0.7]) == pytest.approx(np.log(2.0), rel=ROUNDING)
    assert Dirichlet([2.0, 0.5, 1.0]).log_density([0.0, 0.0, 1.0]) == -np.inf
    assert Dirichlet([2.0, 0.5, 1.0]).log_density([0.5, 0.0, 0.5]) == np.inf
    assert Wishart(4.0, np.eye(2)).log_density([[1.0, 2.0], [2.0, 1.0]]) == -np.inf
    assert NormalWishart([0.0], 1.0, 1.0, [[1.0]]).log_density([[0.0], [-1.0]]) == -np.inf
    assert Categorical([0.0, 1.0]).log_density([0, 1]).tolist() == [-np.inf, 0.0]


# --- digits ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("shape", [1e-3, 0.1, 1.0, 3.0, 11.9, 12.1, 1e3, 1e8])
@pytest.mark.parametrize("rate", [1e-200, 1.0, 1e200])
def test_gamma_keeps_its_digits(shape, rate):
    with mp.workdps(50):
        a, b = mp.mpf(shape), mp.mpf(rate)
        entropy = a - mp.log(b) + mp.loggamma(a) + (1 - a) * mp.digamma(a)
        x = shape / rate * 1.5
        log_density = a * mp.log(b) - mp.loggamma(a) + (a - 1) * mp.log(x) - b * mp.mpf(x)
    q = Gamma(shape, rate)
    assert q.entropy() == pytest.approx(float(entropy), rel=ROUNDING, abs=2e-13)
    assert q.log_density(x) == pytest.approx(float(log_density), rel=ROUNDING, abs=2e-13)
    assert q.log_density(x * 1e-100) < q.log_density(x) + 200 * np.log(10)


@pytest.mark.parametrize("scale", [1e-2, 1.0, 1e8])
def test_dirichlet_keeps_its_digits(scale):
    alpha = np.array([0.5, 1.0, 2.5]) * scale
    x = np.array([0.25, 0.25, 0.5])
    with mp.workdps(50):
        a = [mp.mpf(v) for v in alpha]
        normaliser = mp.loggamma(sum(a)) - sum(map(mp.loggamma, a))
        log_density = normaliser + sum((v - 1) * mp.log(mp.mpf(p)) for v, p in zip(a, x, strict=True))
        entropy = -normaliser - sum((v - 1) * (mp.digamma(v) - mp.digamma(sum(a))) for v in a)
    q = Dirichlet(alpha)
    assert q.log_density(x) == pytest.approx(float(log_density), rel=ROUNDING)
    assert q.entropy() == pytest.approx(float(entropy), rel=SUMS)


@pytest.mark.parametrize("nu", [2.01, 5.0, 60.0, 1e8])
def test_wishart_keeps_its_digits(nu):
    L, d = S * nu / 2, 3
    with mp.workdps(50):
        V, X, n = reference.matrix(S), reference.matrix(L), mp.mpf(nu)
        normaliser = n * d / 2 * mp.log(2) - n / 2 * mp.log(mp.det(V)) + reference.log_multigamma(n / 2, d)
        log_density = (n - d - 1) / 2 * mp.log(mp.det(X)) - reference.trace(V * X) / 2 - normaliser
        entropy = normaliser - (n - d - 1) / 2 * reference.expected_log_determinant(n, V) + n * d / 2
    q = Wishart(nu, S)
    assert q.log_density(L) == pytest.approx(float(log_density), rel=SUMS)
    assert q.entropy() == pytest.approx(float(entropy), rel=SUMS)


def test_small_probabilities_keep_their_logarithms():
    q = Categorical.from_logits([0.0, -1000.0, 1.0])
    assert q.probabilities[1] == 0.0
    assert q.natural[1] == pytest.approx(-1000.0 - np.log1p(np.e), rel=LAST_BIT)
    assert q.with_natural(q.natural + 700.0).natural[1] == pytest.approx(q.natural[1], rel=LAST_BIT)
    assert np.isfinite(q.natural @ q.statistics)
    assert q.entropy() == pytest.approx(Categorical(q.probabilities).entropy(), rel=LAST_BIT)
    # samples of a tiny concentration stay on the simplex
    x = Dirichlet([1e-3, 1e-3, 1e-3]).sample(2000, 0)
    np.testing.assert_allclose(x.sum(axis=1), 1.0, rtol=ROUNDING)


# --- exponential-family laws -----------------------------------------------------------------------------


def symmetric_steps(q, h):
    """Directions in natural parameters that keep matrices symmetric."""
    size, d = q.natural.size, getattr(q, "dim", None)
    for i in range(size):
        step = np.zeros(size)
        step[i] = h
        if isinstance(q, MultivariateGaussian | Wishart | NormalWishart) and i >= size - d * d:
            block = step[size - d * d :].reshape(d, d)
            block[:] = 0.5 * (block + block.T)
        yield step


@FAMILIES
def test_log_density_is_natural_times_sufficient_statistics_minus_log_partition(name):
    q = EXAMPLES[name]
    x = q.sample(6, 1)
    other = q.with_natural(q.natural + sum(symmetric_steps(q, 0.01)))
    slope = sufficient(q, x) @ (other.natural - q.natural)
    partition = slope - (other.log_density(x) - q.log_density(x))
    if not isinstance(q, Categorical):
        np.testing.assert_allclose(partition, partition[0], rtol=INTEGRAL)
    else:
        np.testing.assert_allclose(q.log_density(x), sufficient(q, x) @ q.natural, rtol=ROUNDING)


@FAMILIES
def test_statistics_are_the_gradient_of_the_log_partition(name):
    q = EXAMPLES[name]
    x = q.sample(1, 2)
    scale = sufficient(q, x)[0]

    def log_partition(step):
        if isinstance(q, Categorical):
            return np.sum(special.logsumexp((q.natural + step).reshape(q.probabilities.shape), axis=-1))
        other = q.with_natural(q.natural + step)
        return scale @ step - (other.log_density(x)[0] - q.log_density(x)[0])

    for step in symmetric_steps(q, 1e-5):
        gradient = (log_partition(step) - log_partition(-step)) / 2
        assert gradient == pytest.approx(q.statistics @ step, rel=OPTIMUM, abs=SOLVES)


@FAMILIES
def test_with_natural_undoes_natural(name):
    q = EXAMPLES[name]
    second = q.with_natural(q.natural)
    assert type(second) is type(q)
    np.testing.assert_allclose(second.natural, q.natural, rtol=SUMS)
    np.testing.assert_allclose(second.statistics, q.statistics, rtol=LOSSES)
    assert second.entropy() == pytest.approx(q.entropy(), rel=LOSSES)
    for attribute in ("mean", "variance", "covariance"):
        if hasattr(q, attribute):
            np.testing.assert_allclose(getattr(second, attribute), getattr(q, attribute), rtol=LOSSES)


def test_natural_parameters_are_those_of_the_docstrings():
    np.testing.assert_array_equal(EXAMPLES["multivariate natural"].natural, [*M, *S.ravel()])
    np.testing.assert_allclose(MultivariateGaussian(M, precision=S).natural, [*(S @ M), *S.ravel()], rtol=LAST_BIT)
    np.testing.assert_allclose(EXAMPLES["gamma batch"].natural, [-0.5, 2.0, 39.0, -1.0, -0.1, -5.0], rtol=LAST_BIT)
    np.testing.assert_allclose(EXAMPLES["wishart"].natural, [0.75, *(-0.5 * S.ravel())], rtol=LAST_BIT)
    second = -0.5 * (S + 1.5 * np.outer(M, M))
    np.testing.assert_allclose(
        EXAMPLES["normal-wishart"].natural, [*(1.5 * M), -0.75, 2.25, *second.ravel()], rtol=LAST_BIT
    )
    np.testing.assert_array_equal(SphericalGaussian([[1.0, 2.0]], [3.0]).natural, [1.0, 2.0, 3.0])


@FAMILIES
def test_natural_parameters_outside_the_domain_are_refused(name):
    q = EXAMPLES[name]
    with pytest.raises(ValueError, match="must hold"):
        q.with_natural(q.natural[:-1])
    with pytest.raises(ValueError, match="vector must be finite"):
        q.with_natural(np.full(q.natural.size, np.nan))
    with pytest.raises(ValueError, match="dimension"):
        q.with_natural(q.natural[None])
    if isinstance(q, Categorical):
        assert q.with_natural(-q.natural).entropy() > 0  # every vector is in its domain
        return
    with pytest.raises(ValueError, match="positive|must be in"):
        q.with_natural(-np.abs(q.natural) * np.sign(q.natural) - 3.0 * np.sign(q.natural))


# --- moments and samples ---------------------------------------------------------------------------------


@FAMILIES
def test_samples_have_these_statistics_moments_and_entropy(name):
    q = EXAMPLES[name]
    x = q.sample(20_000, 3)
    assert x.shape == (20_000, *q.event_shape)
    assert within(sufficient(q, x), q.statistics)
    logs = q.log_density(x)
    assert logs.shape == (20_000,)
    assert within(-logs, q.entropy())
    if isinstance(q, NormalWishart):
        x = x[:, 0]
    elif isinstance(q, Categorical):
        x = np.eye(3)[x]
    assert within(x, q.mean)
    deviations = x - q.mean
    if hasattr(q, "covariance"):
        assert within(np.einsum("ni,nj->nij", deviations, deviations), q.covariance)
    elif isinstance(q, SphericalGaussian):
        assert within(deviations**2, np.broadcast_to(np.asarray(q.variance)[..., None], q.event_shape))
    else:
        assert within(deviations**2, q.variance)


@FAMILIES
def test_a_seed_gives_the_same_bits(name):
    q = EXAMPLES[name]
    np.testing.assert_array_equal(q.sample(7, 5), q.sample(7, np.random.default_rng(5)))
    assert not np.array_equal(q.sample(7, 5), q.sample(7, 6))


@pytest.mark.parametrize(
    ("batch", "parts"),
    [
        ("gaussian batch", lambda q: [q[i, j] for i in range(2) for j in range(3)]),
        ("spherical batch", lambda q: [q[0], q[1]]),
        ("gamma batch", lambda q: [Gamma(a, b) for a, b in zip(q.shape, q.rate, strict=True)]),
        ("dirichlet batch", lambda q: [Dirichlet(a) for a in q.concentration]),
        ("categorical batch", lambda q: [Categorical(p) for p in q.probabilities]),
    ],
)
def test_a_batch_is_a_product_of_independent_variables(batch, parts):
    q = EXAMPLES[batch]
    singles = parts(q)
    x = q.sample(4, 0)
    columns = x.reshape(4, len(singles), *singles[0].event_shape)
    total = sum(single.log_density(columns[:, i]) for i, single in enumerate(singles))
    np.testing.assert_allclose(q.log_density(x), total, rtol=SUMS)
    assert q.entropy() == pytest.approx(sum(single.entropy() for single in singles), rel=SUMS)
    assert q.log_density(x[0]) == pytest.approx(total[0], rel=SUMS)


def test_log_scale_is_left_aside():
    q = Gaussian.from_moments(1.0, 2.0, log_scale=5.0)
    assert q.log_density(0.3) == pytest.approx(q.logpdf(0.3) - 5.0, rel=ROUNDING)
    assert q.entropy() == Gaussian.from_moments(1.0, 2.0).entropy()
    assert q.with_natural(q.natural).log_scale == 0.0


def test_moments_in_other_forms():
    natural = MultivariateGaussian.from_natural(np.linalg.solve(S, M), np.linalg.inv(S))
    np.testing.assert_allclose(natural.mean, M, rtol=SOLVES)
    np.testing.assert_allclose(natural.covariance, S, rtol=SOLVES)
    moments = MultivariateGaussian.from_moments(M, S)
    np.testing.assert_allclose(moments.tau, np.linalg.solve(S, M), rtol=SOLVES)
    np.testing.assert_array_equal(moments.covariance, S)
    assert np.all(NormalWishart(M, 1.0, 4.0, S).covariance == np.inf)
    spherical = SphericalGaussian.from_moments(M, 2.0)
    full = MultivariateGaussian(M, 2.0 * np.eye(3))
    np.testing.assert_allclose(spherical.log_density(M + 1), full.log_density(M + 1), rtol=ROUNDING)


@given(st.integers(1, 6), st.integers(0, 2**31), st.floats(-6, 6))
def test_random_matrices_round_trip(d, seed, log_scale):
    rng = np.random.default_rng(seed)
    A = rng.normal(size=(d, d + 2)) * 10.0**log_scale
    q = MultivariateGaussian(rng.normal(size=d), A @ A.T)
    condition, tiny = np.linalg.cond(q.covariance), 1e-12 * np.abs(A).max() ** 2
    second = q.with_natural(q.natural)
    np.testing.assert_allclose(second.covariance, q.covariance, rtol=SOLVES + ROUNDING * condition, atol=tiny)
    np.testing.assert_allclose(q.covariance @ q.precision, np.eye(d), atol=ROUNDING * condition)


# --- objects and errors ----------------------------------------------------------------------------------


@FAMILIES
def test_distributions_are_frozen(name):
    q = EXAMPLES[name]
    names = [field.name for field in fields(q)] if is_dataclass(q) else ["tau", "rho", "log_scale"]
    for name in names:
        value = getattr(q, name)
        assert not (isinstance(value, np.ndarray) and value.flags.writeable)
        with pytest.raises(AttributeError):
            setattr(q, name, value)
    copy = pickle.loads(pickle.dumps(q))
    np.testing.assert_array_equal(copy.natural, q.natural)
    assert len(repr(q).splitlines()) == 1


@FAMILIES
def test_arrays_bring_back_every_bit(name, tmp_path):
    q = EXAMPLES[name] if name != "categorical" else Categorical.from_logits([0.0, -1000.0, 1.0])
    np.savez(tmp_path / "file.npz", **factors.to_arrays("q", q))
    with np.load(tmp_path / "file.npz", allow_pickle=False) as file:
        second = factors.from_arrays("q", type(q).__name__, file)
    np.testing.assert_array_equal(second.natural, q.natural)
    np.testing.assert_array_equal(second.statistics, q.statistics)
    assert second.entropy() == q.entropy()
    np.testing.assert_array_equal(second.sample(3, 0), q.sample(3, 0))
    assert np.all(cavity.kl(second, q) == 0.0)


def test_arguments_are_copied():
    alpha = np.array([1.0, 2.0])
    q = Dirichlet(alpha)
    alpha[0] = -1.0
    assert q.concentration.tolist() == [1.0, 2.0]


BAD = [
    (lambda: Gamma(0.0, 1.0), "shape must be positive, got 0.0"),
    (lambda: Gamma(1.0, [1.0, -2.0]), "rate must be positive, got -2.0"),
    (lambda: Gamma([1.0, 2.0], [1.0, 2.0, 3.0]), "shape and rate must broadcast"),
    (lambda: Gamma(np.nan, 1.0), "shape must be finite"),
    (lambda: Dirichlet(1.0), "concentration must have shape"),
    (lambda: Dirichlet([]), "concentration must have shape"),
    (lambda: Categorical([0.5, 0.6]), "probabilities must have sums of 1"),
    (lambda: Categorical([1.5, -0.5]), "probabilities must not be negative, got -0.5"),
    (lambda: Categorical(1.0), "probabilities must have shape"),
    (lambda: Categorical.from_logits([]), "logits must have shape"),
    (lambda: Wishart(1.0, np.eye(2)), "degrees_of_freedom must be in (1, inf), got 1.0"),
    (lambda: Wishart(np.inf, np.eye(2)), "degrees_of_freedom must be in"),
    (lambda: Wishart(3.0, [[1.0, 2.0], [2.0, 1.0]]), "fails at pivot 2"),
    (lambda: Wishart(3.0, [[1.0, 0.5], [0.4, 1.0]]), "inverse_scale[0, 1] = 0.5 and 0.4"),
    (lambda: Wishart(3.0, np.ones((2, 3))), "inverse_scale must have shape (n, n)"),
    (lambda: NormalWishart([0.0], 0.0, 1.0, [[1.0]]), "mean_precision must be in (0, inf), got 0.0"),
    (lambda: NormalWishart([0.0], np.inf, 1.0, [[1.0]]), "mean_precision must be"),
    (lambda: NormalWishart([0.0, 1.0], 1.0, 1.0, [[1.0]]), "inverse_scale must have shape (n, n) with n = 2"),
    (lambda: MultivariateGaussian([0.0, 0.0], np.eye(3)), "covariance must have shape (n, n) with n = 2"),
    (lambda: MultivariateGaussian([0.0, 0.0], precision=-np.eye(2)), "precision must be positive definite"),
    (lambda: MultivariateGaussian([], np.zeros((0, 0))), "covariance must not be empty"),
    (lambda: EXAMPLES["gamma batch"].log_density([1.0, 2.0]), "x must have shape (..., 3), got (2,)"),
    (lambda: EXAMPLES["wishart"].log_density(np.eye(2)), "x must have shape (..., 3, 3), got (2, 2)"),
    (lambda: EXAMPLES["dirichlet"].log_density([0.5, 0.6, 0.0]), "x must hold probabilities"),
    (lambda: EXAMPLES["categorical"].log_density(3), "x must hold categories, integers from 0 to 2"),
    (lambda: EXAMPLES["categorical"].log_density(0.5), "x must hold categories"),
    (lambda: EXAMPLES["gamma"].log_density(np.nan), "x must be finite"),
    (lambda: EXAMPLES["gamma"].sample(0, 0), "n must be at least 1, got 0"),
    (lambda: Gaussian(1.0, -1.0).entropy(), "entropy: every factor must have a positive, finite precision"),
    (lambda: Gaussian.point_mass(1.0).sample(2, 0), "sample: every factor must have"),
    (lambda: Gaussian.uniform().statistics, "statistics: every factor must have"),
    (lambda: SphericalGaussian.uniform(2).log_density([0.0, 0.0]), "log_density: every factor must have"),
]


@pytest.mark.parametrize(("action", "message"), BAD)
def test_bad_values_are_named(action, message):
    with pytest.raises(ValueError, match=re.escape(message)):
        action()


def test_other_errors():
    with pytest.raises(cavity.NotPositiveDefiniteError, match="inverse_scale"):
        EXAMPLES["wishart"].with_natural(np.abs(EXAMPLES["wishart"].natural))
    with pytest.raises(TypeError, match="exactly one of covariance and precision"):
        MultivariateGaussian([0.0])
    with pytest.raises(TypeError, match="exactly one of covariance and precision"):
        MultivariateGaussian([0.0], [[1.0]], precision=[[1.0]])
    with pytest.raises(TypeError, match="rng must be a seed"):
        EXAMPLES["gamma"].sample(2, None)
    with pytest.raises(OverflowError, match="Gamma: the mean"):
        Gamma(1e200, 1e-200)
    with pytest.raises(OverflowError, match="statistics"):
        _ = Gaussian.from_moments(1e200, 1.0).statistics
    with pytest.raises(OverflowError, match="Wishart: the means"):
        Wishart(2.0, [[1e-310]])
    for q in (Gamma(1e-310, 1e-300), Dirichlet([1e-310, 1.0])):
        with pytest.raises(OverflowError, match="expected logarithms"):
            q.entropy()
    with pytest.raises(OverflowError, match="MultivariateGaussian"):
        MultivariateGaussian([1.0], [[1e-310]])


def test_the_module_lists_all_families():
    assert distributions.Gaussian is cavity.Gaussian
    assert set(distributions.__all__) == {type(q).__name__ for q in EXAMPLES.values()}


def test_normal_wishart_samples_where_precisions_are_nearly_singular():
    law = NormalWishart([0.0, 1.0], 1.0, 1.1, np.eye(2))
    sample = law.sample(2000, 0)
    assert np.all(np.isfinite(sample))


@pytest.mark.parametrize("name", ["gamma", "gamma batch", "dirichlet", "wishart", "multivariate"])
def test_the_same_in_scipy(name):
    q = EXAMPLES[name]
    theirs = q.to_scipy()
    x = q.sample(3, np.random.default_rng(0))
    item = [theirs.logpdf(x[i]) for i in range(3)]
    np.testing.assert_allclose(np.reshape(item, (3, -1)).sum(axis=1), q.log_density(x), rtol=AT_REST)


def test_there_is_no_batch_of_dirichlets_in_scipy():
    with pytest.raises(ValueError, match=r"to_scipy: needs one distribution, got a batch of shape \(2,\)"):
        Dirichlet(np.ones((2, 3))).to_scipy()
