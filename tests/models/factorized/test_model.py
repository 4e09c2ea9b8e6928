"""Factorised Gaussians: the naive twin, exact divergences and contractions, blocks, equivariances, extremes, errors."""

import tracemalloc
import warnings

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from reference import factorized as reference
from scipy import stats
from support.events import writing
from support.examples import examples
from support.tolerances import AT_REST, INTEGRAL, LAST_BIT, LOSSES, PRINTED, ROOT_EPS, ROUNDING, SOLVES, SUMS

import cavity
from cavity import ConvergenceWarning, FactorizedGaussian, NotPositiveDefiniteError, _core

BLOCKS = [[4, 1], [0], [2, 6, 3], [5]]


def draw(size, seed=0, ridge=0.3):
    """A random precision with strong couplings, and a mean."""
    rng = np.random.default_rng(seed)
    root = rng.normal(size=(size, size))
    precision = root @ root.T / size + ridge * np.eye(size)
    return rng.normal(size=size), 0.5 * (precision + precision.T)


def singles(size):
    return [[i] for i in range(size)]


def correlated(correlation, first=2.0, second=3.0):
    coupling = correlation * np.sqrt(first * second)
    return np.array([[first, coupling], [coupling, second]])


# ---------------------------------------------------------------------------------------------- kernel


@pytest.mark.parametrize("variant", _core.variants("factorized"))
def test_kernel_equals_its_naive_twin(variant):
    for size in (1, 2, 3, 4, 5, 6, 7, 8, 9, 11, 12, 13, 31, 32, 33, 41, 70):
        _, precision = draw(size, seed=size)
        before = np.random.default_rng(1).normal(size=size)
        after = before.copy()
        energy = _core.load("factorized", variant).sweep(precision, after)
        np.testing.assert_allclose(after, reference.sweep(np.zeros(size), precision, before, singles(size)), atol=SUMS)
        assert energy == pytest.approx(0.5 * before @ precision @ before, rel=SUMS)


@pytest.mark.parametrize("variant", _core.variants("factorized")[1:])
@pytest.mark.parametrize("size", [1, 3, 8, 40, 77, 333])
def test_variants_return_the_same_bits(variant, size):
    _, precision = draw(size, seed=size)
    start = np.random.default_rng(2).normal(size=size)
    results = []
    for name in (_core.BASELINE_VARIANT, variant):
        e = start.copy()
        energies = [_core.load("factorized", name).sweep(precision, e) for _ in range(3)]
        results.append((energies, e.tolist()))
    assert results[0] == results[1]


@pytest.mark.parametrize("size", [1, 4, 6, 13, 40])
def test_kernel_reads_the_upper_triangle_only(size):
    _, precision = draw(size, seed=size)
    start = np.random.default_rng(3).normal(size=size)
    results = []
    for matrix in (precision, np.where(np.tri(size, k=-1, dtype=bool), np.nan, precision)):
        e = start.copy()
        results.append((_core.best("factorized").sweep(matrix, e), e.tolist()))
    assert results[0] == results[1]


def test_energy_is_never_below_what_the_sweep_gains():
    """A nearly singular matrix, whose quadratic form rounds to less than zero in its flat direction."""
    kernel = _core.best("factorized")
    precision = correlated(1 - 1e-16 * 4, 1.0, 1.0)
    rng = np.random.default_rng(0)
    for flat in rng.normal(size=(200, 1)) * [1.0, -1.0] + 1e-9 * rng.normal(size=(200, 2)):
        before = flat.copy()
        energy = kernel.sweep(precision, flat)
        assert energy >= 0.5 * np.sum((flat - before) ** 2) >= 0


@pytest.mark.parametrize("variant", _core.variants("factorized"))
def test_energy_covers_the_gain_of_every_coordinate(variant):
    """Nearly equal coordinates, of which the first and the last move: forms round to 0 where steps do not."""
    for size in range(2, 18):
        kernel, rng = _core.load("factorized", variant), np.random.default_rng(size)
        for _ in range(150):
            precision = np.full((size, size), 1 - 10.0 ** rng.uniform(-17, -12))
            np.fill_diagonal(precision, 1.0)
            before = np.zeros(size)
            before[[0, -1]] = [1.0, -1.0]
            before *= 1 + 10.0 ** rng.uniform(-16, -8) * rng.normal(size=size)
            after = before.copy()
            assert kernel.sweep(precision, after) >= (1 - 1e-12) * 0.5 * np.sum((after - before) ** 2)


# ---------------------------------------------------------------------------------------------- truth


@pytest.mark.parametrize("blocks", [None, BLOCKS, [[6, 5, 4, 3, 2, 1, 0]], [[3], [2], [1], [0], [4], [6], [5]]])
def test_sweeps_equal_the_naive_twin(blocks):
    mean, precision = draw(7)
    model = FactorizedGaussian(mean, precision, blocks)
    used = blocks or singles(7)
    m = start = np.arange(7.0)
    for n_iter in range(1, 6):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ConvergenceWarning)
            posterior = model.fit(initial_mean=start, max_iter=n_iter, tol=0)
        np.testing.assert_allclose(posterior.mean, m, rtol=SOLVES, atol=SOLVES)
        m = reference.sweep(mean, precision, m, used)


@pytest.mark.parametrize("blocks", [None, BLOCKS, [[0, 1, 2, 3, 4, 5, 6]]])
def test_divergences_equal_those_by_explicit_inverses(blocks):
    mean, precision = draw(7, seed=1)
    covariance, used = np.linalg.inv(precision), blocks or singles(7)
    model = FactorizedGaussian(mean, precision, blocks)
    q = reference.covariance_of_q(precision, used)
    truth = reference.true_marginals(precision, used)
    assert model.kl_minimum == pytest.approx(reference.kl(mean, q, mean, covariance), rel=SOLVES, abs=SUMS)
    assert model.marginals.kl == pytest.approx(reference.kl(mean, covariance, mean, truth), rel=SOLVES, abs=SUMS)
    reverse = reference.kl(mean, covariance, mean, q)
    assert model.marginals.kl_mean_field == pytest.approx(reverse, rel=SOLVES, abs=SUMS)
    np.testing.assert_allclose(model.marginals.variance, np.diag(covariance), rtol=SOLVES)
    for block, actual in zip(used, model.marginals.block_covariances, strict=True):
        np.testing.assert_allclose(actual, covariance[np.ix_(block, block)], rtol=LOSSES, atol=SUMS)
    posterior = model.fit()
    np.testing.assert_allclose(posterior.mean, mean, rtol=ROOT_EPS)
    np.testing.assert_allclose(posterior.variance, np.diag(q), rtol=SUMS)
    for block, actual in zip(used, posterior.block_covariances, strict=True):
        np.testing.assert_allclose(actual, q[np.ix_(block, block)], rtol=SOLVES, atol=SUMS)


@pytest.mark.parametrize("blocks", [None, BLOCKS])
def test_divergences_on_the_way(blocks):
    """Of a q that has not converged, both ways, from the kl of any two Gaussians."""
    mean, precision = draw(7, seed=2)
    covariance = np.linalg.inv(precision)
    q = reference.covariance_of_q(precision, blocks or singles(7))
    model = FactorizedGaussian(mean, precision, blocks)
    with pytest.warns(ConvergenceWarning):
        posterior = model.fit(initial_mean=3.0, max_iter=3, tol=0)
    kl = reference.kl(posterior.mean, q, mean, covariance)
    assert posterior.kl == -posterior.elbo == pytest.approx(kl, rel=SOLVES)
    assert posterior.trace["kl"][0] == pytest.approx(reference.kl(np.full(7, 3.0), q, mean, covariance), rel=SOLVES)
    assert posterior.kl_reverse == pytest.approx(reference.kl(mean, covariance, posterior.mean, q), rel=SOLVES)


@pytest.mark.parametrize("blocks", [None, BLOCKS])
def test_divergences_by_monte_carlo(blocks):
    """E_q[log q - log p] and E_p[log p - log q] over samples, with densities from scipy where there are any."""
    mean, precision = draw(7, seed=3)
    model = FactorizedGaussian(mean, precision, blocks)
    with pytest.warns(ConvergenceWarning):
        posterior = model.fit(initial_mean=0.0, max_iter=2, tol=0)
    n, p = 40000, stats.multivariate_normal(mean, np.linalg.inv(precision))
    z = posterior.sample(n, 0)
    gaps = posterior.log_density(z) - p.logpdf(z)
    assert abs(gaps.mean() - posterior.kl) < 4 * gaps.std() / np.sqrt(n)
    z = p.rvs(n, random_state=np.random.default_rng(1))
    gaps = p.logpdf(z) - posterior.log_density(z)
    assert abs(gaps.mean() - posterior.kl_reverse) < 4 * gaps.std() / np.sqrt(n)


@pytest.mark.parametrize("blocks", [None, BLOCKS])
def test_densities_entropy_and_samples(blocks):
    mean, precision = draw(7, seed=4)
    model = FactorizedGaussian(mean, precision, blocks)
    posterior = model.fit()
    q = stats.multivariate_normal(posterior.mean, reference.covariance_of_q(precision, blocks or singles(7)))
    z = np.random.default_rng(0).normal(size=(5, 7))
    np.testing.assert_allclose(posterior.log_density(z), q.logpdf(z), rtol=LOSSES)
    assert posterior.log_density(z[0]) == pytest.approx(q.logpdf(z[0]), rel=LOSSES)
    assert posterior.entropy() == pytest.approx(q.entropy(), rel=SOLVES)
    np.testing.assert_allclose(
        model.log_density(z), stats.multivariate_normal(mean, np.linalg.inv(precision)).logpdf(z), rtol=INTEGRAL
    )
    samples = posterior.sample(100000, np.random.default_rng(1))
    assert samples.shape == (100000, 7)
    np.testing.assert_allclose(np.cov(samples.T), q.cov, atol=0.03 * np.max(q.cov))
    np.testing.assert_array_equal(posterior.sample(2, 5), posterior.sample(2, 5))


@given(st.integers(1, 12), st.integers(0, 10**6), st.floats(0.01, 10.0))
def test_laws_of_random_targets(size, seed, ridge):
    """kl falls, both divergences are in order, q is too narrow, and the mean is found."""
    mean, precision = draw(size, seed, ridge)
    model = FactorizedGaussian(mean, precision)
    posterior = model.fit(accelerate=True, max_iter=5000)
    assert posterior.converged
    assert np.all(np.diff(posterior.trace["excess"]) <= 0)
    assert np.all(np.diff(posterior.trace["kl"]) <= 0)
    assert 0 <= model.kl_minimum <= posterior.kl
    assert 0 <= model.marginals.kl <= model.marginals.kl_mean_field * (1 + 1e-12) + 1e-15
    assert np.all(posterior.variance <= model.marginals.variance * (1 + 1e-15))
    assert np.all(np.abs(posterior.mean - mean) <= 1e-8 * np.sqrt(model.marginals.variance) + 1e-15 * np.abs(mean))
    assert 0 <= model.theoretical_contraction < 1


def test_nothing_is_lost_for_weak_correlations():
    """kl ~ correlation^2/2 down to 1e-200, where log|Lambda| itself is far below rounding."""
    for correlation in (1e-3, 1e-8, 1e-12, 1e-100):
        model = FactorizedGaussian(0.0, correlated(correlation))
        assert model.kl_minimum == pytest.approx(-0.5 * np.log1p(-(correlation**2)), rel=ROUNDING)
        assert model.marginals.kl == pytest.approx(-0.5 * np.log1p(-(correlation**2)), rel=ROUNDING)
        blocks = FactorizedGaussian(0.0, correlated(correlation), [[1], [0]])
        assert blocks.kl_minimum == pytest.approx(model.kl_minimum, rel=ROUNDING)
        assert blocks.marginals.kl == pytest.approx(model.kl_minimum, rel=ROUNDING)
        assert model.theoretical_contraction == pytest.approx(correlation**2, rel=ROUNDING)
        assert model.marginals.kl_mean_field == pytest.approx(0.5 * correlation**2, rel=2 * correlation**2 + ROUNDING)


# ---------------------------------------------------------------------------------------------- contraction


@pytest.mark.parametrize("correlation", [0.1, -0.5, 0.9, 0.99])
@pytest.mark.parametrize("units", [(2.0, 3.0), (1e-12, 1e9)])
def test_two_coordinates_contract_by_the_squared_correlation(correlation, units):
    model = FactorizedGaussian([3.0, -1.0], correlated(correlation, *units))
    posterior = model.fit(max_iter=5000)
    assert posterior.contraction == pytest.approx(correlation**2, rel=SOLVES)
    assert posterior.theoretical_contraction == pytest.approx(correlation**2, rel=4e-15)
    ratios = posterior.trace["excess"][2:5] / posterior.trace["excess"][1:4]
    np.testing.assert_allclose(ratios, correlation**4, rtol=AT_REST)


def test_two_blocks_contract_by_the_largest_squared_canonical_correlation():
    mean, precision = draw(6, seed=5)
    blocks = [[0, 1, 2], [3, 4, 5]]
    roots = [np.linalg.cholesky(precision[np.ix_(b, b)]) for b in blocks]
    coupling = np.linalg.solve(roots[0], precision[:3, 3:]) @ np.linalg.inv(roots[1]).T
    model = FactorizedGaussian(mean, precision, blocks)
    exact = np.linalg.svd(coupling)[1][0] ** 2
    assert model.theoretical_contraction == pytest.approx(exact, rel=SOLVES)
    assert model.fit().contraction == pytest.approx(exact, rel=AT_REST)


@pytest.mark.parametrize("blocks", [None, BLOCKS])
def test_contraction_of_several_blocks(blocks):
    mean, precision = draw(7, seed=6)
    model = FactorizedGaussian(mean, precision, blocks)
    exact = reference.contraction(mean, precision, blocks or singles(7))
    assert model.theoretical_contraction == pytest.approx(exact, rel=INTEGRAL)
    posterior = model.fit(max_iter=5000)
    assert posterior.contraction == pytest.approx(exact, rel=PRINTED)


@pytest.mark.long_cases("None")
@pytest.mark.parametrize("blocks", [None, [range(i, i + 3) for i in range(0, 600, 3)]])
def test_contraction_of_many_coordinates_by_arnoldi(blocks, set_sizes):
    """A chain, whose contraction is known; with blocks, against all eigenvalues."""
    precision = 2.01 * np.eye(600) - np.eye(600, k=1) - np.eye(600, k=-1)
    actual = FactorizedGaussian(0.0, precision, blocks).theoretical_contraction
    exact = (2 * np.cos(np.pi / 601) / 2.01) ** 2
    if blocks is not None:
        set_sizes(MAX_SIZE_FOR_ALL_EIGENVALUES=600)
        exact = FactorizedGaussian(0.0, precision, blocks).theoretical_contraction
    assert actual == pytest.approx(exact, rel=AT_REST)


def test_uncoupled_coordinates_have_no_contraction():
    model = FactorizedGaussian(0.0, np.diag(np.arange(1.0, 601.0)))
    assert model.theoretical_contraction == 0.0
    assert model.marginals.kl == model.marginals.kl_mean_field == model.kl_minimum == 0.0


# ---------------------------------------------------------------------------------------------- laws


@pytest.mark.parametrize("order", [[0, 1, 2, 3, 4], [3, 0, 4, 2, 1]])
def test_one_block_is_exact_after_one_sweep(order):
    mean, precision = draw(5, seed=7)
    model = FactorizedGaussian(mean, precision, [order])
    posterior = model.fit(initial_mean=100.0)
    assert posterior.n_iter == 2  # the second sees that nothing moves
    np.testing.assert_array_equal(posterior.mean, mean)
    assert posterior.kl == posterior.kl_reverse == model.kl_minimum == 0.0
    covariance = np.linalg.inv(precision)
    np.testing.assert_allclose(posterior.block_covariances[0], covariance[np.ix_(order, order)], rtol=LOSSES)
    np.testing.assert_allclose(posterior.variance, model.marginals.variance, rtol=SOLVES)


@pytest.mark.parametrize("size", [1, 4])
def test_uncoupled_coordinates_are_exact_after_one_sweep(size):
    mean = np.arange(1.0, size + 1)
    posterior = FactorizedGaussian(mean, np.diag(mean)).fit(initial_mean=-5.0)
    assert (posterior.n_iter, posterior.kl, posterior.contraction) == (2, 0.0, 0.0)
    np.testing.assert_array_equal(posterior.mean, mean)
    np.testing.assert_array_equal(posterior.variance, 1 / mean)


def test_permuted_coordinates_in_the_same_order_of_visits():
    mean, precision = draw(7, seed=8)
    place = np.random.default_rng(0).permutation(7)  # new coordinate a is the old coordinate place[a]
    where = np.argsort(place)
    moved = precision[np.ix_(place, place)]
    for blocks in (singles(7), BLOCKS):
        plain = FactorizedGaussian(mean, precision, blocks).fit(initial_mean=0.0)
        renamed = [[int(where[i]) for i in block] for block in blocks]
        other = FactorizedGaussian(mean[place], moved, renamed).fit(initial_mean=0.0)
        np.testing.assert_array_equal(other.mean, plain.mean[place])
        np.testing.assert_array_equal(other.trace["kl"], plain.trace["kl"])


def test_order_of_blocks_matters_on_the_way_only():
    mean, precision = draw(7, seed=8)
    first = FactorizedGaussian(mean, precision, BLOCKS).fit()
    second = FactorizedGaussian(mean, precision, BLOCKS[::-1]).fit()
    assert first.trace["excess"][1] != second.trace["excess"][1]
    assert first.kl == pytest.approx(second.kl, rel=SUMS)
    np.testing.assert_allclose(first.variance, second.variance, rtol=SUMS)


def test_single_coordinates_as_blocks_are_no_blocks():
    mean, precision = draw(9, seed=9)
    plain = FactorizedGaussian(mean, precision).fit(initial_mean=0.0, max_iter=5000)
    blocks = FactorizedGaussian(mean, precision, singles(9)).fit(initial_mean=0.0, max_iter=5000)
    np.testing.assert_allclose(plain.trace["kl"][:50], blocks.trace["kl"][:50], rtol=SUMS)
    np.testing.assert_allclose(plain.variance, blocks.variance, rtol=LAST_BIT)


@examples(30)
@given(st.lists(st.integers(-300, 300), min_size=4, max_size=4), st.booleans())
def test_units_of_powers_of_two_change_no_bit(exponents, blocked):
    """z -> a z with a different a for every coordinate: entries of the precision from 2^-600 to 2^600."""
    mean, precision = draw(4, seed=10)
    a = 2.0 ** np.array(exponents)
    blocks = [[2, 0], [3, 1]] if blocked else None
    plain = FactorizedGaussian(0.0, precision, blocks).fit(initial_mean=mean)
    scaled = FactorizedGaussian(0.0, precision / np.outer(a, a), blocks).fit(initial_mean=a * mean)
    np.testing.assert_array_equal(scaled.mean, a * plain.mean)
    np.testing.assert_array_equal(scaled.variance, a * (a * plain.variance))
    np.testing.assert_array_equal(scaled.trace["kl"], plain.trace["kl"])
    np.testing.assert_array_equal(scaled.marginals.variance, a * (a * plain.marginals.variance))
    assert scaled.theoretical_contraction == plain.theoretical_contraction


def test_shifts_of_the_target():
    mean, precision = draw(5, seed=11)
    plain = FactorizedGaussian(mean, precision).fit(initial_mean=mean + 1.0)
    shifted = FactorizedGaussian(mean + 8.0, precision).fit(initial_mean=mean + 9.0)
    np.testing.assert_allclose(shifted.trace["kl"], plain.trace["kl"], rtol=SOLVES)
    np.testing.assert_allclose(shifted.mean, plain.mean + 8.0, rtol=SUMS)


def test_default_start_is_one_standard_deviation_away():
    mean, precision = draw(5, seed=12)
    start = mean + 1 / np.sqrt(np.diag(precision))
    for blocks in (None, [[1, 2], [4, 0, 3]]):
        model = FactorizedGaussian(mean, precision, blocks)
        default, given_start = model.fit(), model.fit(initial_mean=start)
        np.testing.assert_allclose(default.trace["excess"][:20], given_start.trace["excess"][:20], rtol=INTEGRAL)


# ---------------------------------------------------------------------------------------------- fitting


@pytest.mark.long_cases("None-squarem")
@pytest.mark.sample(2)
@pytest.mark.parametrize("method", [True, "anderson", "squarem"])
@pytest.mark.parametrize("blocks", [None, [range(i, i + 2) for i in range(0, 100, 2)]])
def test_acceleration(method, blocks):
    precision = 2.01 * np.eye(100) - np.eye(100, k=1) - np.eye(100, k=-1)
    model = FactorizedGaussian(1.0, precision, blocks)
    plain, fast = model.fit(max_iter=5000), model.fit(accelerate=method, max_iter=5000)
    assert fast.converged
    assert 3 * fast.n_iter < plain.n_iter
    assert fast.trace["excess"][-1] < 1e-18
    assert np.all(np.diff(fast.trace["excess"]) <= 0)
    np.testing.assert_allclose(fast.mean, 1.0, rtol=ROOT_EPS)


def test_stopping_rules():
    mean, precision = draw(10, seed=14, ridge=0.01)
    model = FactorizedGaussian(mean, precision)
    loose = model.fit(tol=1e-6, max_iter=10**5)
    assert loose.converged
    assert loose.predicted_gap == loose.trace["excess"][-1] < 1e-6 < loose.trace["excess"][-2]
    with pytest.warns(ConvergenceWarning, match="max_iter"):
        assert not model.fit(max_iter=3).converged
    at_rest = model.fit(initial_mean=mean, tol=0)
    assert (at_rest.n_iter, at_rest.converged, at_rest.kl) == (1, True, model.kl_minimum)
    seen = []
    with pytest.warns(ConvergenceWarning, match="callback"):
        stopped = model.fit(callback=writing(seen, stop=4))
    assert [n for n, _ in seen] == [1, 2, 3, 4]
    np.testing.assert_array_equal([-elbo for _, elbo in seen], stopped.trace["kl"])
    assert stopped.n_iter == 4
    assert stopped.kl == stopped.trace["kl"][-1]


def test_deviations_keep_their_digits_far_below_rounding_of_the_mean():
    posterior = FactorizedGaussian(1e10, correlated(0.9)).fit(tol=1e-100, max_iter=5000)
    assert posterior.converged
    assert 0 < posterior.trace["excess"][-1] < 1e-100
    assert posterior.contraction == pytest.approx(0.81, rel=SOLVES)


@pytest.mark.parametrize("blocks", [None, [[0, 2], [1, 3]]])
def test_ill_conditioned_targets(blocks):
    """A Hilbert matrix (condition 1.6e4), and one close to the smallest pivot float64 can tell from zero."""
    hilbert = 1.0 / (np.arange(4)[:, None] + np.arange(4) + 1)
    posterior = FactorizedGaussian(0.0, hilbert, blocks).fit(accelerate=True, max_iter=10**5)
    assert posterior.converged
    assert np.all(np.abs(posterior.mean) < 1e-5)
    assert np.all(np.diff(posterior.trace["kl"]) <= 0)
    # log det by exact integers: det = 1/6048000
    kl = 0.5 * (np.sum(np.log(np.diag(hilbert))) + np.log(6048000.0))
    if blocks is not None:
        logs = sum(np.linalg.slogdet(hilbert[np.ix_(b, b)])[1] for b in blocks)
        kl = 0.5 * (logs + np.log(6048000.0))
    assert posterior.model.kl_minimum == pytest.approx(kl, rel=SOLVES)
    tight = FactorizedGaussian(0.0, correlated(1 - 1e-12))
    assert tight.kl_minimum == pytest.approx(-0.5 * np.log(-np.expm1(2 * np.log1p(-1e-12))), rel=PRINTED)
    with pytest.warns(ConvergenceWarning):  # although a sweep moves the mean by 1e-12 standard deviations only
        plain = tight.fit(max_iter=50, accelerate=False)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        fast = tight.fit(max_iter=50, accelerate=True)  # rounding decides whether it ends in time
    for posterior in (plain, fast):
        assert posterior.converged == (posterior.trace["excess"][-1] < 1e-13)
        assert np.all(posterior.trace["excess"] >= 0)
        assert np.all(np.diff(posterior.trace["kl"]) <= 1e-14)


# ---------------------------------------------------------------------------------------------- arrays


def test_layouts_and_dtypes():
    mean, precision = draw(6, seed=15)
    precision = np.round(precision, 4).astype(np.float32).astype(float)
    base = FactorizedGaussian(mean, precision).fit()
    strided = np.zeros((12, 18))
    strided[::2, ::3] = precision
    frozen = precision.copy()
    frozen.flags.writeable = False
    for other in (np.asfortranarray(precision), strided[::2, ::3], precision.astype(np.float32), frozen):
        for given_blocks in (None, [[1, 2], [0], [3, 5, 4]]):
            posterior = FactorizedGaussian(mean.tolist(), other, given_blocks).fit()
            expected = base if given_blocks is None else FactorizedGaussian(mean, precision, given_blocks).fit()
            np.testing.assert_array_equal(posterior.mean, expected.mean)
            assert posterior.kl == expected.kl
    assert FactorizedGaussian(mean, np.diag([1, 2, 3, 4, 5, 6])).fit().kl == 0.0


@pytest.mark.parametrize("order", ["C", "F"])
def test_the_matrix_is_not_copied_and_stays_writeable(order):
    mean, precision = draw(300, seed=16)
    precision = np.asarray(precision, order=order)
    before = precision.copy()
    tracemalloc.start()
    model = FactorizedGaussian(mean, precision)
    after, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert np.shares_memory(model.precision, precision)
    assert precision.flags.writeable
    assert not model.precision.flags.writeable
    assert after < 0.1 * precision.nbytes
    assert peak < 1.9 * precision.nbytes  # the copy that is factorised, and panels
    np.testing.assert_array_equal(precision, before)


def test_rounding_that_breaks_symmetry_is_averaged():
    mean, precision = draw(40, seed=17)
    crooked = precision.copy()
    crooked[3, 20] *= 1 + 1e-12
    model = FactorizedGaussian(mean, crooked)
    assert model.precision[3, 20] == model.precision[20, 3] == 0.5 * (crooked[3, 20] + crooked[20, 3])
    np.testing.assert_array_equal(np.delete(model.precision, 3, 0)[:, 4:20], np.delete(precision, 3, 0)[:, 4:20])
    inverse = np.linalg.inv(np.linalg.inv(precision))
    assert FactorizedGaussian(mean, inverse).kl_minimum == pytest.approx(model.kl_minimum, rel=INTEGRAL)


def test_results_are_frozen():
    mean, precision = draw(4, seed=18)
    posterior = FactorizedGaussian(mean, precision).fit()
    for array in (posterior.mean, posterior.variance, posterior.trace["kl"], posterior.marginals.variance):
        with pytest.raises(ValueError, match="read-only"):
            array[0] = 1.0
    with pytest.raises(AttributeError):
        posterior.mean = mean
    with pytest.raises(AttributeError):
        posterior.model.blocks = None
    assert "4 coordinates in 4 blocks" in repr(posterior)
    assert "converged" in repr(posterior)
    assert "kl_minimum" in repr(posterior.model)
    assert "kl_mean_field" in repr(posterior.marginals)


@pytest.mark.parametrize("blocks", [None, [[3, 1], [0], [2]]])
def test_save_and_load(tmp_path, blocks):
    mean, precision = draw(4, seed=19)
    posterior = FactorizedGaussian(mean, precision, blocks).fit(accelerate=True)
    posterior.save(tmp_path / "q.npz")
    restored = cavity.load(tmp_path / "q.npz")
    assert type(restored) is type(posterior)
    for name in ("mean", "variance"):
        np.testing.assert_array_equal(getattr(restored, name), getattr(posterior, name))
    for name in ("kl", "elbo", "converged", "status", "n_iter", "contraction", "predicted_gap", "kl_reverse"):
        assert getattr(restored, name) == getattr(posterior, name)
    assert restored.model.blocks == posterior.model.blocks
    assert restored.trace.keys() == posterior.trace.keys()
    for name, values in posterior.trace.items():
        np.testing.assert_array_equal(restored.trace[name], values)


def test_unknown_contraction_survives_a_file(tmp_path):
    with pytest.warns(ConvergenceWarning):
        posterior = FactorizedGaussian(0.0, correlated(0.5)).fit(max_iter=1)
    assert posterior.contraction is None
    assert "not measured" in repr(posterior)
    posterior.save(tmp_path / "q.npz")
    restored = cavity.load(tmp_path / "q.npz")
    assert restored.contraction is None
    assert restored.predicted_gap == posterior.predicted_gap == posterior.trace["excess"][0]


# ---------------------------------------------------------------------------------------------- errors


def broken(row, column, value):
    matrix = draw(5, seed=20)[1]
    matrix[row, column] = value
    return matrix


@pytest.mark.parametrize(
    ("precision", "error", "message"),
    [
        (np.eye(5)[:4], ValueError, r"precision must have shape \(n, n\) with n >= 1, got \(4, 5\)"),
        (np.ones(5), ValueError, "precision must have 2 dimension"),
        (np.zeros((0, 0)), ValueError, "precision must not be empty"),
        (np.eye(5) * 1j, TypeError, "precision must hold real numbers"),
        (np.ma.masked_array(np.eye(5)), TypeError, "precision must not be a masked array"),
        (broken(2, 3, np.nan), ValueError, r"precision\[2, 3\] = nan"),
        (broken(4, 0, -np.inf), ValueError, r"precision\[4, 0\] = -inf"),
        (broken(1, 3, 0.7), ValueError, r"symmetric, got precision\[1, 3\] = 0\.7 and"),
        (broken(3, 3, 0.0), NotPositiveDefiniteError, r"precision\[3, 3\] = 0\.0"),
        (broken(2, 2, -1.0), NotPositiveDefiniteError, r"precision\[2, 2\] = -1\.0"),
        (np.diag([1.0, 1e-310]), OverflowError, "variance of coordinate 1"),
    ],
)
def test_bad_matrices(precision, error, message):
    with pytest.raises(error, match=message):
        FactorizedGaussian(0.0, precision)


@pytest.mark.parametrize(
    ("blocks", "coordinate"), [(None, 2), ([[0], [2], [1]], 1), ([[2, 0], [1]], 1), ([[2, 1, 0]], 0)]
)
def test_the_failing_coordinate_is_named(blocks, coordinate):
    """Any two of the three coordinates are fine together, all three are not."""
    indefinite = 1.6 * np.eye(3) - 0.6
    with pytest.raises(NotPositiveDefiniteError, match=f"fails at coordinate {coordinate}$"):
        FactorizedGaussian(0.0, indefinite, blocks)
    with pytest.raises(NotPositiveDefiniteError, match="fails at coordinate 1$"):
        FactorizedGaussian(0.0, [[1e-300, 1e300], [1e300, 1e-300]])


def test_a_large_matrix_is_checked_everywhere():
    """Tiles and panels have edges."""
    mean, precision = draw(700, seed=21)
    for i, j in [(511, 512), (0, 699), (600, 530), (699, 698)]:
        crooked = precision.copy()
        crooked[i, j] += 1e-3
        with pytest.raises(ValueError, match=rf"precision\[({i}, {j}|{j}, {i})\]"):
            FactorizedGaussian(mean, crooked)
    indefinite = precision.copy()
    indefinite[650, 650] = 1e-3
    with pytest.raises(NotPositiveDefiniteError, match="fails at coordinate"):
        FactorizedGaussian(mean, indefinite)
    blocks = [np.arange(300)[::-1], np.arange(300, 699), [699]]
    model = FactorizedGaussian(mean, precision, blocks)
    logs = sum(np.linalg.slogdet(precision[np.ix_(b, b)])[1] for b in blocks)
    assert model.kl_minimum == pytest.approx(0.5 * (logs - np.linalg.slogdet(precision)[1]), rel=LOSSES)
    np.testing.assert_allclose(model.marginals.variance, np.diag(np.linalg.inv(precision)), rtol=INTEGRAL)


@pytest.mark.parametrize(
    ("blocks", "error", "message"),
    [
        ([[0, 1], [1, 2]], ValueError, r"coordinate 1 is in blocks\[0\] and blocks\[1\]"),
        ([[0, 0], [1, 2]], ValueError, r"coordinate 0 is in blocks\[0\] and blocks\[0\]"),
        ([[0], [2]], ValueError, "blocks must cover every coordinate: 1 is missing"),
        ([], ValueError, "blocks must cover every coordinate: 0 is missing"),
        ([[0], [], [1, 2]], ValueError, r"blocks\[1\] must be a list of one or more coordinates, got \[\]"),
        ([[0, 1], [2, 3]], ValueError, r"blocks\[1\] must hold coordinates in 0\.\.2, got 3"),
        ([[0, 1], [-1]], ValueError, r"blocks\[1\] must hold coordinates in 0\.\.2, got -1"),
        ([0, 1, 2], ValueError, r"blocks\[0\] must be a list of one or more coordinates, got 0"),
        ([[0.0, 1.0], [2.0]], ValueError, r"blocks\[0\] must be a list"),
        ([[True, False, True]], ValueError, r"blocks\[0\] must be a list"),
        (3, TypeError, "blocks must be a sequence of lists of coordinates, got 3"),
    ],
)
def test_bad_blocks(blocks, error, message):
    with pytest.raises(error, match=message):
        FactorizedGaussian(0.0, np.eye(3), blocks)


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({"initial_mean": [1.0, 2.0]}, ValueError, "initial_mean must be a number or have shape"),
        ({"initial_mean": [1.0, np.nan, 0.0]}, ValueError, r"initial_mean\[1\] = nan"),
        ({"initial_mean": [0.0, 1e145, 0.0]}, ValueError, r"standard deviations.*initial_mean\[1\] = 1e\+145"),
        ({"initial_mean": 1.7e308}, ValueError, r"standard deviations.*initial_mean\[0\]"),
        ({"max_iter": 0}, ValueError, "max_iter must be at least 1"),
        ({"max_iter": 2.5}, TypeError, "max_iter must be an integer"),
        ({"tol": -1.0}, ValueError, "tol must be in"),
        ({"accelerate": "nonsense"}, ValueError, "accelerate must be one of"),
    ],
)
def test_bad_options(options, error, message):
    with pytest.raises(error, match=message):
        FactorizedGaussian(-1.7e308 if options.get("initial_mean") == 1.7e308 else 0.0, np.eye(3)).fit(**options)


def test_bad_means_and_points():
    with pytest.raises(ValueError, match=r"mean must be a number or have shape \(3,\)"):
        FactorizedGaussian([0.0, 1.0], np.eye(3))
    posterior = FactorizedGaussian(0.0, np.eye(3)).fit()
    for function in (posterior.log_density, posterior.model.log_density):
        with pytest.raises(ValueError, match="z must be points of 3 coordinates"):
            function([1.0, 2.0])
    with pytest.raises(TypeError, match="rng"):
        posterior.sample(3, None)
    with pytest.raises(ValueError, match="n must be at least 0"):
        posterior.sample(-1, 0)


def test_starts_as_far_as_allowed():
    posterior = FactorizedGaussian(0.0, correlated(0.5)).fit(initial_mean=1e139)
    assert posterior.converged
    assert np.all(np.isfinite(posterior.trace["kl"]))
    np.testing.assert_allclose(posterior.mean, 0.0, atol=AT_REST)
