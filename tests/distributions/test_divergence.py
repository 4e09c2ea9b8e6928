"""Divergences: every family against mpmath, quadrature and Monte Carlo; their laws; log p(y) = ELBO + KL; errors."""

import math
import re
import tracemalloc

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from reference import divergence as reference
from scipy import integrate, special, stats
from support import tolerances

import cavity
from cavity import Gaussian, SphericalGaussian
from cavity.distributions import Categorical, Dirichlet, Gamma, MultivariateGaussian, NormalWishart, Wishart

S = np.array([[2.0, 0.6, -0.3], [0.6, 1.0, 0.2], [-0.3, 0.2, 0.5]])
T = np.array([[1.0, -0.3, 0.0], [-0.3, 2.0, 0.4], [0.0, 0.4, 1.5]])
M = np.array([1.0, -2.0, 0.5])
PAIRS = {
    "gaussian": (Gaussian.from_moments(1.5, 0.7), Gaussian.from_moments(0.4, 2.0)),
    "spherical": (SphericalGaussian.from_moments([1.0, 2.0], 0.7), SphericalGaussian.from_moments([0.0, 1.5], 2.0)),
    "multivariate": (MultivariateGaussian(M, S), MultivariateGaussian(M + 0.3, T)),
    "multivariate natural": (MultivariateGaussian.from_natural(M, S), MultivariateGaussian.from_natural(M + 0.3, T)),
    "gamma": (Gamma(2.5, 3.0), Gamma(4.0, 2.0)),
    "dirichlet": (Dirichlet([0.7, 2.0, 5.0]), Dirichlet([1.0, 1.0, 4.0])),
    "categorical": (Categorical([0.2, 0.5, 0.3]), Categorical([0.6, 0.1, 0.3])),
    "wishart": (Wishart(5.5, S), Wishart(7.0, T)),
    "normal-wishart": (NormalWishart(M, 1.5, 7.5, S), NormalWishart(M + 0.3, 2.0, 6.5, T)),
}
FAMILIES = pytest.mark.parametrize("name", PAIRS)


def near(value, truth, rel):
    """Whether `value` has the relative digits of an mpmath number, zero included."""
    return abs(value - truth) <= rel * abs(truth)


# --- against the textbook in many digits -----------------------------------------------------------------

offsets = st.builds(lambda s, e: s * 10.0**e, st.sampled_from([-1.0, 1.0]), st.floats(-12, 1))
shapes = st.floats(-3, 8).map(lambda e: 10.0**e)
scales = st.floats(-200, 200).map(lambda e: 10.0**e)


@given(scales, st.floats(-1e4, 1e4), offsets, offsets)
def test_gaussian_keeps_relative_digits(rho, deviations, shift, ratio):
    # means up to 1e4 standard deviations from zero, whose shifts would vanish in a difference of means
    tau = deviations * math.sqrt(rho)
    p = tau, rho
    q = tau + shift * math.sqrt(rho), rho * math.exp(ratio)
    assert near(cavity.kl(Gaussian(*p), Gaussian(*q)), reference.gaussian(*p, *q), 2e-11)


@given(shapes, scales, offsets, offsets)
@example(10.0**7.375, 1.0, -1.0, -1.0045073642544624)  # means that are close though shapes and rates are not
@example(10396340.022591773, 1.0, -2.837304854842647, -2.839599198376795)
def test_gamma_keeps_relative_digits(shape, rate, s, r):
    p, q = (shape, rate), (shape * math.exp(s), rate * math.exp(r))
    assert near(cavity.kl(Gamma(*p), Gamma(*q)), reference.gamma(*p, *q), 1e-13)


@given(st.lists(st.tuples(shapes, offsets), min_size=2, max_size=5))
def test_dirichlet_keeps_relative_digits(parameters):
    a = np.array([shape for shape, _ in parameters])
    b = a * np.exp([shift for _, shift in parameters])
    value, truth = cavity.kl(Dirichlet(a), Dirichlet(b)), reference.dirichlet(a, b)
    # one concentration far above the others hides them: what is lost is their part in the whole
    assert near(value, truth, 1e-12 + 1e-14 * a.max() / np.sort(a)[-2])


@given(st.lists(st.tuples(st.integers(1, 2**30), st.integers(-(2**20), 2**20)), min_size=2, max_size=5))
def test_categorical_keeps_relative_digits(counts):
    n = 2.0**40  # dyadic probabilities: they and their sums are exact, so both sides see the same numbers
    p = np.array([c for c, _ in counts]) / n
    q = np.array([max(c + shift, 1) for c, shift in counts]) / n
    p, q = np.append(p, 1 - p.sum()), np.append(q, 1 - q.sum())
    assert near(cavity.kl(Categorical(p), Categorical(q)), reference.categorical(p, q), 1e-12)


@pytest.mark.sample(3)
@pytest.mark.parametrize("distance", [1e-9, 1e-6, 1e-3, 0.1, 1.0, 10.0])
@pytest.mark.parametrize("seed", range(4))
def test_matrix_families_keep_relative_digits(distance, seed):
    rng = np.random.default_rng(seed)
    d = seed + 1
    A, E = rng.normal(size=(d, d + 1)), rng.normal(size=(d, d))
    P = A @ A.T
    factor = np.eye(d) + distance * E @ E.T
    Q = np.tril(P) * np.tril(factor)  # entry by entry: as close to P as asked, and symmetric
    Q = Q + np.tril(Q, -1).T + (0.0 if distance < 0.5 else distance * np.abs(P).sum()) * np.eye(d)
    if np.linalg.eigvalsh(Q)[0] <= 0:
        Q = P * (1.0 + distance)
    m = rng.normal(size=d)
    k = m + distance * rng.normal(size=d)
    bound = 1e-13 * max(np.linalg.cond(P), np.linalg.cond(Q))
    value = cavity.kl(MultivariateGaussian(m, P), MultivariateGaussian(k, Q))
    assert near(value, reference.multivariate(m, P, k, Q), bound)
    value = cavity.kl(MultivariateGaussian.from_natural(m, P), MultivariateGaussian.from_natural(k, Q))
    assert near(value, reference.multivariate_natural(m, P, k, Q), bound)
    for nu in (d - 0.9, d + 30.0, 1e8):
        mu = d - 1 + (nu - d + 1) * (1.0 + distance)
        assert near(cavity.kl(Wishart(nu, P), Wishart(mu, Q)), reference.wishart(nu, P, mu, Q), bound)
        p, q = (m, 2.0, nu, P), (k, 2.0 + distance, mu, Q)
        assert near(cavity.kl(NormalWishart(*p), NormalWishart(*q)), reference.normal_wishart(*p, *q), bound)


@pytest.mark.parametrize("edge", [-0.4, 0.4, -0.25, 0.5, 1e-8, -1e-8])
def test_seams_between_the_branches_of_scalar_terms(edge):
    # KL of Gaussians of one mean is (r - 1 - log r)/2: here with r - 1 on both sides of the edge of the series
    for r in 1.0 + edge * np.array([1 - 1e-12, 1.0, 1 + 1e-12]):
        assert near(cavity.kl(Gaussian(0.0, 1.0), Gaussian(0.0, r)), reference.gaussian(0.0, 1.0, 0.0, r), 2e-15)


@pytest.mark.parametrize("a", [0.5, 6.0, 11.999999, 12.0, 12.000001, 24.0])
@pytest.mark.parametrize("ratio", [0.4999999, 0.5000001, 0.9, 1.0000001, 1.9999999, 2.0000001])
def test_seams_between_the_branches_of_log_gamma(a, ratio):
    # equal means: the part of the divergence that comes from the log-gamma function
    b = a * ratio
    assert near(cavity.kl(Gamma(a, a), Gamma(b, b)), reference.gamma(a, a, b, b), 5e-14)


EXTREMES = [
    (Gaussian.from_moments(0.0, 1e-200), Gaussian.from_moments(0.0, 1e200), 0.5 * (400 * math.log(10) - 1)),
    (Gaussian.from_moments(1e100, 1.0), Gaussian.from_moments(1e100, 1.0), 0.0),
    (Gaussian.from_moments(0.0, 1e200), Gaussian.from_moments(0.0, 1e-100), 0.5e300),
    (
        MultivariateGaussian([0.0, 0.0], np.diag([1e-200, 1e-200])),
        MultivariateGaussian([0.0, 0.0], np.diag([1e200, 1e-200])),
        0.5 * (400 * math.log(10) - 1),
    ),
    (Gamma(1e-3, 1e-200), Gamma(1e-3, 1e-200), 0.0),
]


@pytest.mark.parametrize(("p", "q", "expected"), EXTREMES)
def test_extreme_parameters_do_not_overflow(p, q, expected):
    assert cavity.kl(p, q) == pytest.approx(expected, rel=tolerances.SUMS)


@pytest.mark.parametrize(("a", "b"), [(1e-3, 1e8), (1e8, 1e-3), (1e-3, 2e-3), (1e8, 1e8 + 1), (5.0, 5.0 + 1e-9)])
def test_shapes_far_apart_and_close(a, b):
    for r in (1.0, 1.0 + 1e-8, 1e-150, 1e150):
        assert near(cavity.kl(Gamma(a, 1.0), Gamma(b, r)), reference.gamma(a, 1.0, b, r), 1e-14)
    x, y = np.array([a, 1.0, a]), np.array([b, 1.0, b])
    assert near(cavity.kl(Dirichlet(x), Dirichlet(y)), reference.dirichlet(x, y), 1e-13)


# --- against quadrature and Monte Carlo ------------------------------------------------------------------


@pytest.mark.parametrize(("name", "low"), [("gaussian", -np.inf), ("gamma", 0.0)])
@pytest.mark.parametrize("swap", [False, True])
def test_one_dimensional_families_against_quadrature(name, low, swap):
    p, q = PAIRS[name][::-1] if swap else PAIRS[name]

    def integrand(x):
        return np.exp(p.log_density(x)) * (p.log_density(x) - q.log_density(x))

    value, _ = integrate.quad(integrand, low, np.inf, epsabs=1e-12, epsrel=1e-10)
    assert cavity.kl(p, q) == pytest.approx(value, rel=tolerances.AT_REST)


def test_dirichlet_against_quadrature_in_two_dimensions():
    p, q = Dirichlet([3.0, 4.0, 2.0]), Dirichlet([1.5, 2.0, 5.0])
    nodes, weights = np.polynomial.legendre.leggauss(200)
    nodes, weights = 0.5 * (nodes + 1), 0.5 * weights
    x, v = nodes[:, None], nodes
    points = np.stack(np.broadcast_arrays(x, (1 - x) * v, (1 - x) * (1 - v)), axis=-1)
    log_p, log_q = p.log_density(points), q.log_density(points)
    value = np.sum(weights[:, None] * weights * (1 - x) * np.exp(log_p) * (log_p - log_q))
    assert cavity.kl(p, q) == pytest.approx(value, rel=tolerances.EARLY)


@pytest.mark.sample(3)
@FAMILIES
@pytest.mark.parametrize("swap", [False, True])
def test_every_family_against_monte_carlo(name, swap):
    p, q = PAIRS[name][::-1] if swap else PAIRS[name]
    x = p.sample(40_000, 11)
    logs = p.log_density(x) - q.log_density(x)
    assert abs(logs.mean() - cavity.kl(p, q)) < 4 * logs.std(ddof=1) / 200
    assert logs.std() / 200 < 0.05 * cavity.kl(p, q)  # enough samples to tell


# --- laws ------------------------------------------------------------------------------------------------


@FAMILIES
def test_zero_only_between_equals(name):
    p, q = PAIRS[name]
    assert cavity.kl(p, p) == 0.0
    assert cavity.kl(q, q) == 0.0
    assert cavity.kl(p, q) > 0.0
    assert cavity.kl(q, p) > 0.0
    assert cavity.kl(p, q) != cavity.kl(q, p)


@FAMILIES
def test_gradient_is_the_difference_of_statistics(name):
    # KL(p || q) is a Bregman divergence of the log partition: its slope in q's natural parameters is s_q - s_p
    p, q = PAIRS[name]
    d = getattr(q, "dim", 0) if isinstance(q, MultivariateGaussian | Wishart | NormalWishart) else 0
    for i in range(q.natural.size):
        step = np.zeros(q.natural.size)
        step[i] = 1e-5
        block = step[step.size - d * d :].reshape(d, d)
        block[:] = 0.5 * (block + block.T)
        slope = (cavity.kl(p, q.with_natural(q.natural + step)) - cavity.kl(p, q.with_natural(q.natural - step))) / 2
        assert slope == pytest.approx((q.statistics - p.statistics) @ step, rel=tolerances.SLOPES, abs=tolerances.SUMS)


@FAMILIES
def test_divergence_is_cross_entropy_minus_entropy(name):
    # -E_p log q = -E_p log p + KL, with E_p log q read off q's density at two points of known statistics
    p, q = PAIRS[name]
    if isinstance(p, Categorical):
        assert cavity.kl(p, q) == pytest.approx(-p.statistics @ q.natural - p.entropy(), rel=tolerances.SOLVES)
        return
    base = p.sample(1, 0)
    offset = (p.log_density(base) - q.log_density(base))[0]
    # log p - log q is affine in the sufficient statistics: from the point to their mean
    slope = p.natural - q.natural
    statistics = {
        "gaussian": lambda x: [x[0], -0.5 * x[0] ** 2],
        "spherical": lambda x: [*x[0], -0.5 * np.sum(x[0] ** 2)],
        "multivariate": lambda x: [*x[0], *(-0.5 * np.outer(x[0], x[0])).ravel()],
        "gamma": lambda x: [np.log(x[0]), x[0]],
        "dirichlet": lambda x: np.log(x[0]),
        "wishart": lambda x: [np.linalg.slogdet(x[0])[1], *x[0].ravel()],
        "normal-wishart": lambda x: [
            *(x[0, 1:] @ x[0, 0]),
            x[0, 0] @ x[0, 1:] @ x[0, 0],
            np.linalg.slogdet(x[0, 1:])[1],
            *x[0, 1:].ravel(),
        ],
    }[name.split(" ")[0]](base)
    assert cavity.kl(p, q) == pytest.approx(offset + slope @ (p.statistics - statistics), rel=tolerances.AT_REST)


@given(st.integers(1, 4), st.integers(0, 2**31))
def test_gaussians_do_not_see_affine_maps(d, seed):
    rng = np.random.default_rng(seed)
    A, B, C = rng.normal(size=(3, d, d))
    P, Q = A @ A.T + 0.1 * np.eye(d), B @ B.T + 0.1 * np.eye(d)
    m, k, shift = rng.normal(size=(3, d))
    C = C + 3 * np.eye(d)
    before = cavity.kl(MultivariateGaussian(m, P), MultivariateGaussian(k, Q))
    moved = [MultivariateGaussian(C @ x + shift, C @ V @ C.T) for x, V in ((m, P), (k, Q))]
    assert cavity.kl(*moved) == pytest.approx(before, rel=tolerances.AT_REST * np.linalg.cond(C) ** 2)
    wisharts = [Wishart(d + 1.5, P), Wishart(d + 3.0, Q)]
    congruent = [Wishart(w.degrees_of_freedom, C @ w.inverse_scale @ C.T) for w in wisharts]
    assert cavity.kl(*congruent) == pytest.approx(cavity.kl(*wisharts), rel=tolerances.AT_REST * np.linalg.cond(C) ** 2)


@given(shapes, shapes, st.floats(-2, 2), st.floats(-2, 2), st.floats(-100, 100))
def test_gammas_do_not_see_units(a, b, s, r, unit):
    p, q = (a, math.exp(s)), (b, math.exp(r))
    c = 10.0**unit
    scaled = cavity.kl(Gamma(p[0], p[1] * c), Gamma(q[0], q[1] * c))
    assert scaled == pytest.approx(cavity.kl(Gamma(*p), Gamma(*q)), rel=tolerances.INTEGRAL)


def test_independent_parts_add():
    block = np.zeros((5, 5))
    block[:3, :3], block[3:, 3:] = S, np.diag([0.7, 0.7])
    other = np.zeros((5, 5))
    other[:3, :3], other[3:, 3:] = T, np.diag([2.0, 2.0])
    full = cavity.kl(MultivariateGaussian([*M, 1.0, 2.0], block), MultivariateGaussian([*(M + 0.3), 0.0, 1.5], other))
    parts = cavity.kl(*PAIRS["multivariate"]) + cavity.kl(*PAIRS["spherical"])
    assert full == pytest.approx(parts, rel=tolerances.SUMS)
    spherical = cavity.kl(*PAIRS["spherical"])
    singles = cavity.kl(Gaussian.from_moments([1.0, 2.0], 0.7), Gaussian.from_moments([0.0, 1.5], 2.0))
    assert spherical == pytest.approx(singles.sum(), rel=tolerances.ROUNDING)


@given(st.lists(st.tuples(st.floats(0.01, 1e3), st.floats(0.01, 1e3)), min_size=1, max_size=6))
def test_gammas_are_a_dirichlet_and_their_sum(parameters):
    # independent Gamma(a_j, 1) are a Dirichlet direction and, independent of it, a Gamma(sum a, 1) total
    a, b = map(np.array, zip(*parameters, strict=True))
    product = cavity.kl(Gamma(a, 1.0), Gamma(b, 1.0)).sum()
    total = cavity.kl(Gamma(a.sum(), 1.0), Gamma(b.sum(), 1.0))
    assert cavity.kl(Dirichlet(a), Dirichlet(b)) + total == pytest.approx(product, rel=tolerances.LOSSES)


@given(st.lists(st.tuples(shapes, shapes), min_size=3, max_size=6))
def test_merging_categories_loses_information(parameters):
    a, b = map(np.array, zip(*parameters, strict=True))
    full = cavity.kl(Dirichlet(a), Dirichlet(b))
    merged = cavity.kl(Dirichlet([a[0] + a[1], *a[2:]]), Dirichlet([b[0] + b[1], *b[2:]]))
    assert 0 <= merged <= full * (1 + 1e-12)
    assert cavity.kl(Dirichlet(a[::-1]), Dirichlet(b[::-1])) == pytest.approx(full, rel=tolerances.SOLVES)
    p, q = Categorical(a / a.sum()), Categorical(b / b.sum())
    coarse = [Categorical([x.mean[0] + x.mean[1], *x.mean[2:]]) for x in (p, q)]
    assert 0 <= cavity.kl(*coarse) <= cavity.kl(p, q) * (1 + 1e-10) + 1e-15


def test_families_that_contain_each_other():
    gammas = cavity.kl(Gamma(2.5, 1.0), Gamma(4.0, 1.5))
    assert cavity.kl(Wishart(5.0, [[2.0]]), Wishart(8.0, [[3.0]])) == pytest.approx(gammas, rel=tolerances.ROUNDING)
    spherical, full = PAIRS["spherical"][0], MultivariateGaussian([0.0, 1.5], [[2.0, 0.5], [0.5, 1.0]])
    same = MultivariateGaussian([1.0, 2.0], 0.7 * np.eye(2))
    assert cavity.kl(spherical, full) == pytest.approx(cavity.kl(same, full), rel=tolerances.SUMS)
    assert cavity.kl(full, spherical) == pytest.approx(cavity.kl(full, same), rel=tolerances.SUMS)
    # a gamma of large shape is nearly Gaussian
    p, q = Gamma(1e10, 1e5), Gamma(1.00001e10, 1.00002e5)
    normal = cavity.kl(Gaussian.from_moments(p.mean, p.variance), Gaussian.from_moments(q.mean, q.variance))
    assert cavity.kl(p, q) == pytest.approx(normal, rel=tolerances.PRINTED)
    # known precision: as many degrees of freedom as it takes
    nu = 1e12
    p, q = (NormalWishart(m, beta, nu, nu * S) for m, beta in ((M, 2.0), (M + 0.3, 3.0)))
    given_precision = [MultivariateGaussian(x.mean, S / x.mean_precision) for x in (p, q)]
    assert cavity.kl(p, q) == pytest.approx(cavity.kl(*given_precision), rel=tolerances.SOLVES)


def test_batches_broadcast():
    p, q = Gaussian.from_moments([[0.0], [1.0]], 1.0), Gaussian.from_moments([0.0, 2.0, 3.0], [1.0, 2.0, 3.0])
    table = cavity.kl(p, q)
    assert table.shape == (2, 3)
    assert table[1, 2] == cavity.kl(Gaussian.from_moments(1.0, 1.0), Gaussian.from_moments(3.0, 3.0))
    assert isinstance(cavity.kl(p[0, 0], q[0]), float)
    assert cavity.kl(Gamma([1.0, 2.0], 1.0), Gamma(2.0, 1.0)).tolist()[1] == 0.0
    table = cavity.kl(Dirichlet([[[1.0, 2.0]], [[3.0, 4.0]]]), Dirichlet([[1.0, 1.0], [3.0, 4.0]]))
    assert table.shape == (2, 2)
    assert table[1, 1] == 0.0
    assert table[0, 1] == cavity.kl(Dirichlet([1.0, 2.0]), Dirichlet([3.0, 4.0]))
    table = cavity.kl(Categorical([[0.5, 0.5], [1.0, 0.0]]), Categorical([0.25, 0.75]))
    np.testing.assert_allclose(table, [-0.5 * np.log(0.75), np.log(4.0)], rtol=tolerances.LAST_BIT)
    spherical = SphericalGaussian([[1.0, 2.0], [0.0, 0.0]], [1.0, 2.0])
    assert cavity.kl(spherical, spherical).tolist() == [0.0, 0.0]


def test_categories_without_mass():
    assert cavity.kl(Categorical([0.5, 0.5, 0.0]), Categorical([0.25, 0.75, 0.0])) == pytest.approx(
        0.143841036, rel=tolerances.ROOT_EPS
    )
    assert cavity.kl(Categorical([1.0, 0.0]), Categorical([0.5, 0.5])) == pytest.approx(
        np.log(2), rel=tolerances.LAST_BIT
    )
    assert cavity.kl(Categorical([0.5, 0.5]), Categorical([1.0, 0.0])) == np.inf
    tiny = Categorical.from_logits([0.0, -2000.0])
    assert cavity.kl(Categorical([0.5, 0.5]), tiny) == pytest.approx(1000.0 - np.log(2.0), rel=tolerances.ROUNDING)


# --- Monte Carlo -----------------------------------------------------------------------------------------


@FAMILIES
def test_monte_carlo_kl_agrees_with_the_closed_form(name):
    p, q = PAIRS[name]
    estimate, error = cavity.monte_carlo_kl(p, q, 20_000, 4)
    assert abs(estimate - cavity.kl(p, q)) < 4 * error < cavity.kl(p, q)
    assert (estimate, error) == cavity.monte_carlo_kl(p, q, 20_000, np.random.default_rng(4))


def test_standard_error_is_that_of_the_mean():
    # log p - log q = 1/2 - x with x ~ N(0, 1): its standard deviation is 1
    p, q = Gaussian.from_moments(0.0, 1.0), Gaussian.from_moments(1.0, 1.0)
    runs = np.array([cavity.monte_carlo_kl(p, q, 500, seed) for seed in range(400)])
    assert runs[:, 1] == pytest.approx(1 / np.sqrt(500), rel=0.2)
    assert runs[:, 0].std() == pytest.approx(1 / np.sqrt(500), rel=0.15)
    assert abs(np.mean((runs[:, 0] - 0.5) / runs[:, 1])) < 4 / 20


@pytest.mark.parametrize("n", [2, 8192, 8193, 30_000])
def test_blocks_do_not_show(n):
    p, q = Gaussian.from_moments(1e6, 1.0), Gaussian.from_moments(1e6 + 1, 1.0)
    x = p.sample(n, 9)  # normal numbers come in the same order, drawn in blocks or at once
    logs = p.log_density(x) - q.log_density(x)
    estimate, error = cavity.monte_carlo_kl(p, q, n, 9)
    assert estimate == pytest.approx(logs.mean(), rel=tolerances.SOLVES)
    assert error == pytest.approx(logs.std(ddof=1) / np.sqrt(n), rel=tolerances.INTEGRAL)


def test_memory_does_not_grow_with_samples():
    p = SphericalGaussian.from_moments(np.zeros(50), 1.0)
    q = SphericalGaussian.from_moments(np.ones(50), 1.0)
    tracemalloc.start()
    cavity.monte_carlo_kl(p, q, 100_000, 0)  # 40 MB of samples
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 20e6


def test_any_sampler_and_density():
    p, q = PAIRS["gaussian"]
    theirs = stats.norm(p.mean, p.variance**0.5), stats.norm(q.mean, q.variance**0.5)
    truth = cavity.kl(p, q)
    pair = (lambda n, rng: rng.normal(p.mean, p.variance**0.5, n), p.log_density)
    for a, b in (
        (theirs[0], theirs[1]),
        (p, theirs[1]),
        (theirs[0], q.log_density),
        (pair, q),
        (p, (pair[0], q.log_density)),
    ):
        estimate, error = cavity.monte_carlo_kl(a, b, 20_000, 1)
        assert abs(estimate - truth) < 4 * error
    counts = stats.poisson(3.0), stats.poisson(4.0)
    estimate, error = cavity.monte_carlo_kl(*counts, 20_000, 1)
    assert abs(estimate - (1 - 3 * np.log(4 / 3))) < 4 * error
    full = PAIRS["multivariate"]
    theirs = stats.multivariate_normal(M, S), stats.multivariate_normal(M + 0.3, T)
    estimate, error = cavity.monte_carlo_kl(*theirs, 20_000, 1)
    assert abs(estimate - cavity.kl(*full)) < 4 * error


@pytest.mark.long_cases("wishart")
@pytest.mark.parametrize("name", ["dirichlet", "wishart"])
def test_scipy_families_with_points_along_the_last_axis(name):
    p, q = PAIRS[name]
    if name == "dirichlet":
        theirs = [stats.dirichlet(x.concentration) for x in (p, q)]
    else:
        theirs = [stats.wishart(x.degrees_of_freedom, np.linalg.inv(x.inverse_scale)) for x in (p, q)]
    for n in (3, 5000):  # 3: the number of samples equals the dimension
        estimate, error = cavity.monte_carlo_kl(*theirs, n, 1)
        assert abs(estimate - cavity.kl(p, q)) < 5 * error
        samples = theirs[0].rvs(size=n, random_state=np.random.default_rng(1))
        direct = p.log_density(samples) - q.log_density(samples)
        assert estimate == pytest.approx(direct.mean(), rel=tolerances.AT_REST)


def test_independent_factors_by_name():
    p = {"mean": PAIRS["gaussian"][0], "precision": PAIRS["gamma"][0]}
    q = {"mean": PAIRS["gaussian"][1], "precision": PAIRS["gamma"][1]}
    truth = cavity.kl(p["mean"], q["mean"]) + cavity.kl(p["precision"], q["precision"])
    estimate, error = cavity.monte_carlo_kl(p, q, 20_000, 1)
    assert abs(estimate - truth) < 4 * error
    estimate, error = cavity.monte_carlo_elbo(
        lambda z: q["mean"].log_density(z["mean"]) + q["precision"].log_density(z["precision"]), p, 20_000, 2
    )
    assert abs(estimate + truth) < 4 * error


# --- log p(y) = ELBO + KL(q || posterior) ----------------------------------------------------------------


def check_identity(q, posterior, log_joint, elbo, log_evidence):
    """ELBO + KL is the log evidence; the sampled ELBO agrees, and does not vary if q is the exact posterior."""
    assert elbo + cavity.kl(q, posterior) == pytest.approx(log_evidence, rel=tolerances.LOSSES)
    assert elbo < log_evidence
    estimate, error = cavity.monte_carlo_elbo(log_joint, q, 10_000, 5)
    assert abs(estimate - elbo) < 4 * error
    estimate, error = cavity.monte_carlo_elbo(log_joint, posterior, 200, 5)
    assert estimate == pytest.approx(log_evidence, rel=tolerances.LOSSES)
    assert error < 1e-11 * abs(log_evidence)


def test_identity_for_the_mean_of_a_gaussian():
    y, noise, prior = np.array([0.3, 1.9, 1.1]), 0.7, Gaussian.from_moments(0.5, 2.0)
    posterior = Gaussian(prior.tau + y.sum() / noise, prior.rho + 3 / noise)
    log_evidence = stats.multivariate_normal(np.full(3, 0.5), noise * np.eye(3) + 2.0).logpdf(y)
    q = Gaussian.from_moments(0.9, 0.4)

    def log_joint(z):
        return prior.log_density(z) + stats.norm(z[:, None], noise**0.5).logpdf(y).sum(axis=1)

    expected = np.sum((y - q.mean) ** 2 + q.variance) / noise
    elbo = -0.5 * (3 * np.log(2 * np.pi * noise) + expected) - cavity.kl(q, prior)
    check_identity(q, posterior, log_joint, elbo, log_evidence)


def test_identity_for_the_rate_of_counts():
    y, prior = np.array([3, 0, 5, 2]), Gamma(2.0, 0.5)
    posterior = Gamma(2.0 + y.sum(), 0.5 + len(y))
    log_evidence = (
        special.gammaln(12.0) - special.gammaln(2.0) + 2 * np.log(0.5) - 12 * np.log(4.5) - special.gammaln(y + 1).sum()
    )
    q = Gamma(9.0, 4.0)

    def log_joint(rate):
        return prior.log_density(rate) + stats.poisson(rate[:, None]).logpmf(y).sum(axis=1)

    expected_log, mean = q.statistics
    elbo = y.sum() * expected_log - len(y) * mean - special.gammaln(y + 1).sum() - cavity.kl(q, prior)
    check_identity(q, posterior, log_joint, elbo, log_evidence)


def test_identity_for_category_counts():
    counts, alpha = np.array([4, 0, 7]), np.array([0.5, 1.0, 2.0])
    prior, posterior = Dirichlet(alpha), Dirichlet(alpha + counts)
    coefficient = special.gammaln(12) - special.gammaln(counts + 1).sum()
    after, before = (special.gammaln(a).sum() - special.gammaln(a.sum()) for a in (counts + alpha, alpha))
    log_evidence = coefficient + after - before
    q = Dirichlet([4.0, 1.2, 9.5])

    def log_joint(p):
        return prior.log_density(p) + coefficient + np.log(p) @ counts

    elbo = coefficient + counts @ q.statistics - cavity.kl(q, prior)
    check_identity(q, posterior, log_joint, elbo, log_evidence)


def test_identity_for_mean_and_precision():
    rng = np.random.default_rng(0)
    y = rng.normal(size=(6, 2)) @ [[1.0, 0.4], [0.0, 0.7]] + [1.0, -1.0]
    n, m0, beta, nu, V = 6, np.zeros(2), 0.5, 3.0, np.array([[1.0, 0.2], [0.2, 2.0]])
    prior = NormalWishart(m0, beta, nu, V)
    mean, scatter = y.mean(axis=0), (y - y.mean(axis=0)).T @ (y - y.mean(axis=0))
    V_n = V + scatter + beta * n / (beta + n) * np.outer(mean - m0, mean - m0)
    posterior = NormalWishart((beta * m0 + n * mean) / (beta + n), beta + n, nu + n, V_n)
    log_evidence = (
        -n * np.log(np.pi)
        + special.multigammaln((nu + n) / 2, 2)
        - special.multigammaln(nu / 2, 2)
        + 0.5 * (nu * np.linalg.slogdet(V)[1] - (nu + n) * np.linalg.slogdet(V_n)[1])
        + np.log(beta / (beta + n))
    )
    q = NormalWishart(posterior.mean + 0.1, 5.0, 8.0, V_n)

    def log_joint(x):
        mu, L = x[:, 0], x[:, 1:]
        deviation = y - mu[:, None]
        quadratic = np.einsum("nki,nij,nkj->n", deviation, L, deviation)
        return prior.log_density(x) + 0.5 * (n * np.linalg.slogdet(L)[1] - quadratic) - n * np.log(2 * np.pi)

    L_mu, mu_L_mu, log_det, L = np.split(q.statistics, [2, 3, 4])
    quadratic = np.sum((y @ L.reshape(2, 2)) * y) - 2 * y.sum(axis=0) @ L_mu + n * mu_L_mu[0]
    elbo = 0.5 * (n * log_det[0] - quadratic) - n * np.log(2 * np.pi) - cavity.kl(q, prior)
    check_identity(q, posterior, log_joint, elbo, log_evidence)


# --- errors ----------------------------------------------------------------------------------------------

p, q = PAIRS["gaussian"]
BAD = [
    (lambda: cavity.kl(p, Gamma(1.0, 1.0)), TypeError, "one family, got Gaussian and Gamma"),
    (lambda: cavity.kl(1.0, p), TypeError, "one family, got float and Gaussian"),
    (lambda: cavity.kl(Gaussian(0.0, -1.0), p), ValueError, "kl: every factor must have a positive, finite precision"),
    (lambda: cavity.kl(p, Gaussian.uniform()), ValueError, "kl: every factor must have"),
    (lambda: cavity.kl(p, Gaussian.point_mass(0.0)), ValueError, "kl: every factor must have"),
    (lambda: cavity.kl(Dirichlet([1, 2]), Dirichlet([1, 2, 3])), ValueError, "2 and 3 categories"),
    (lambda: cavity.kl(Categorical([1]), Categorical([0.5, 0.5])), ValueError, "1 and 2 categories"),
    (lambda: cavity.kl(Wishart(4, S), Wishart(4, np.eye(2))), ValueError, "3 and 2 dimensions"),
    (lambda: cavity.kl(PAIRS["spherical"][0], PAIRS["multivariate"][0]), ValueError, "2 and 3 dimensions"),
    (lambda: cavity.kl(Gamma([1, 2], 1), Gamma([1, 2, 3], 1)), ValueError, "must broadcast, got shapes (2,) and (3,)"),
    (
        lambda: cavity.kl(SphericalGaussian([[1.0, 2.0]], [1.0]), MultivariateGaussian([0.0, 0.0], np.eye(2))),
        ValueError,
        "a single SphericalGaussian, got shape (1,)",
    ),
    (
        lambda: cavity.kl(Gaussian.from_moments(0, 1e200), Gaussian.from_moments(0, 1e-200)),
        OverflowError,
        "kl: the divergences leave the range",
    ),
    (
        lambda: cavity.kl(MultivariateGaussian([0.0], [[1e200]]), MultivariateGaussian([0.0], [[1e-200]])),
        OverflowError,
        "kl: the divergences leave the range",
    ),
    (lambda: cavity.monte_carlo_kl(p, q, 1, 0), ValueError, "n must be at least 2, got 1"),
    (lambda: cavity.monte_carlo_kl(p, q, 2.0, 0), TypeError, "n must be an integer"),
    (lambda: cavity.monte_carlo_kl(p, q, 2, None), TypeError, "rng must be a seed"),
    (lambda: cavity.monte_carlo_kl(p.log_density, q, 2, 0), TypeError, "p must be a distribution, a dict of them or a"),
    (lambda: cavity.monte_carlo_kl(p, 3.0, 2, 0), TypeError, "q must be a distribution, a dict of them"),
    (lambda: cavity.monte_carlo_kl({"a": 1}, q, 2, 0), TypeError, "p['a'] must be a distribution"),
    (lambda: cavity.monte_carlo_elbo(3.0, q, 2, 0), TypeError, "log_joint must be a callable, got 3.0"),
    (lambda: cavity.monte_carlo_elbo(lambda z: 0.0, q, 9, 0), ValueError, "one value per sample, shape (9,), got ()"),
    (lambda: cavity.monte_carlo_elbo(lambda z: z[:, None], q, 9, 0), ValueError, "shape (9,), got (9, 1)"),
    (lambda: cavity.monte_carlo_elbo(lambda z: z + 1j, q, 9, 0), TypeError, "log_joint must hold real numbers"),
    (
        lambda: cavity.monte_carlo_kl(Gamma(1.0, 1.0), lambda x: np.where(x > 9, -np.inf, -x), 10**5, 0),
        ValueError,
        "of p: KL(p || q) is infinite",
    ),
    (
        lambda: cavity.monte_carlo_kl(Gamma(1e-4, 1.0), Gamma(1e-4, 2.0), 100, 0),
        ValueError,
        "the log density of p must be finite, got inf at sample",
    ),
]


@pytest.mark.parametrize(("action", "kind", "message"), BAD)
def test_bad_arguments_are_named(action, kind, message):
    with pytest.raises(kind, match=re.escape(message)):
        action()


@pytest.mark.parametrize("where", [0, 5, 9000])
@pytest.mark.parametrize(
    ("value", "message"), [(np.nan, "got nan"), (-np.inf, "where q has mass"), (np.inf, "got inf")]
)
def test_the_bad_sample_is_named(where, value, message):
    seen = []

    def log_joint(z):
        logs = np.zeros(len(z))
        start = sum(seen)
        seen.append(len(z))
        if start <= where < start + len(z):
            logs[where - start :] = value
        return logs

    with pytest.raises(ValueError, match=rf"at sample {where}\b|at sample {where},") as caught:
        cavity.monte_carlo_elbo(log_joint, p, 10_000, 0)
    assert message in str(caught.value)


def test_one_sample_more_than_blocks_hold():
    law = stats.multivariate_normal([0.0, 1.0], [[2.0, 0.5], [0.5, 1.0]])
    ours = cavity.distributions.MultivariateGaussian([0.0, 1.0], [[2.0, 0.5], [0.5, 1.0]])
    estimate, error = cavity.monte_carlo_kl(law, ours, 8193, 0)
    assert abs(estimate) < 1e-12
    assert error < 1e-12


@pytest.mark.long
def test_large_samples_are_taken_few_at_a_time():
    many = cavity.Gaussian.from_moments(np.zeros(200_000), 1.0)  # 8192 samples would take 13 GB
    estimate, _ = cavity.monte_carlo_kl(many, many, 50, 0)
    assert estimate == 0.0


def test_monte_carlo_kl_wants_the_same_variables():
    normal = cavity.Gaussian.from_moments(0.0, 1.0)
    with pytest.raises(TypeError, match="p and q must both be dicts or neither, got dict and Gaussian"):
        cavity.monte_carlo_kl({"a": normal}, normal, 10, rng=0)
    with pytest.raises(ValueError, match=r"same variables, got \['a'\] and \['b'\]"):
        cavity.monte_carlo_kl({"a": normal}, {"b": normal}, 10, rng=0)
    with pytest.raises(TypeError, match=r"a pair \(sample, log_density\) or a log density, got tuple"):
        cavity.monte_carlo_kl((1, 2), normal, 10, rng=0)
    assert cavity.monte_carlo_kl({"a": normal}, lambda z: -0.5 * z["a"] ** 2 - 0.5 * np.log(2 * np.pi), 10, rng=0)[
        0
    ] == pytest.approx(0.0)
