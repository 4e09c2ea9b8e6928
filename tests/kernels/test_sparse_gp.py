"""The kernel of sparse Gaussian processes: extended precision, refusals, extremes, laws, equal bits in all variants."""

import mpmath as mp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from reference import sparse_gp as reference
from support.examples import examples
from support.tolerances import AT_REST, INTEGRAL, LAST_BIT, LOSSES, OPTIMUM, ROUNDING, SOLVES, SUMS

from cavity import _core

VARIANTS = _core.variants("sparse_gp")
MAIN = _core.best("sparse_gp")
SIZES = (1, 2, 7, 8, 9, 100, 130)
SMALL = (1, 2, 3, 4, 5, 7, 8, 9, 13, 20)


def triangle(n, seed=0):
    """A well-conditioned lower triangle in Fortran order."""
    rng = np.random.default_rng(seed)
    return np.asfortranarray(np.tril(rng.normal(size=(n, n)) / np.sqrt(n), -1) + np.diag(rng.uniform(0.5, 2.0, n)))


def prior(n):
    """(A, r, LB, c) without rows."""
    return np.zeros((n, n), order="F"), np.zeros(n), np.eye(n, order="F"), np.zeros(n)


def rows(n_rows, n, seed=0, negative=True):
    """(W, tau, rho): every third row takes half of the one before it away."""
    rng = np.random.default_rng(seed)
    W, tau, rho = rng.normal(size=(n_rows, n)), rng.normal(size=n_rows), rng.gamma(1.0, size=n_rows)
    for i in range(2, n_rows if negative else 0, 3):
        W[i], tau[i], rho[i] = W[i - 1], -0.5 * tau[i - 1], -0.5 * rho[i - 1]
    return W, tau, rho


def filled(n, n_rows=6, seed=1):
    """(A, r, LB, c) with some rows."""
    truth = prior(n)
    assert MAIN.add_rows(*rows(n_rows, n, seed), *truth) == n_rows
    return truth


def whole(A):
    """The symmetric matrix of its lower triangle, which is all there is of it."""
    assert not np.triu(A, 1).any()
    return A + np.tril(A, -1).T


def copies(arrays):
    """Copies in the same order of memory."""
    return tuple(a.copy(order="F") for a in arrays)


def assert_consistent(truth, rtol=1e-13):
    """LB LB' = I + A and LB c = r."""
    A, r, LB, c = truth
    B = np.eye(len(r)) + whole(A)
    assert not np.triu(LB, 1).any()
    assert np.all(np.diagonal(LB) > 0)
    np.testing.assert_allclose(LB @ LB.T, B, rtol=0, atol=rtol * np.max(np.abs(B)))
    scale = np.abs(LB) @ np.abs(c) + np.abs(r)
    assert np.all(np.abs(LB @ c - r) <= rtol * scale)


# ------------------------------------------------------------------------------------------------ truth


@pytest.mark.parametrize("variant", VARIANTS)
@pytest.mark.parametrize("n", SIZES)
def test_rows_are_whitened(n, variant):
    L, k = triangle(n), np.random.default_rng(2).normal(size=(3, n))
    expected = np.array([reference.solved(L, row) for row in k])
    squares = np.sum(expected**2, axis=1)
    above = np.array([0.5, 1e-3, 2.0]) * np.asarray(squares, dtype=float)
    W, residual = k.copy(), np.empty(3)
    _core.load("sparse_gp", variant).solve_rows(L, W, np.asarray(squares, dtype=float) + above, residual)
    np.testing.assert_allclose(W, np.asarray(expected, dtype=float), rtol=0, atol=2e-13 * np.max(np.abs(expected)))
    np.testing.assert_allclose(residual, above, rtol=INTEGRAL)


def test_residuals_are_not_negative():
    W, residual = np.array([[0.6, 0.8], [3.0, 4.0], [0.0, np.nan]]), np.empty(3)
    MAIN.solve_rows(np.eye(2, order="F"), W, np.array([1.0, 25.0 - 1e-14, 1.0]), residual)
    assert residual[1] == 0.0
    assert 0.0 <= residual[0] < 1e-15
    assert np.isnan(residual[2])  # rounding is taken away, not mistakes


@pytest.mark.parametrize("n", SIZES)
def test_marginals(n):
    A, r, LB, c = filled(n)
    W = rows(4, n, seed=3)[0]
    mean, variance = np.empty(4), np.empty(4)
    MAIN.marginals(LB, c, W, mean, variance)
    expected = np.array([reference.marginals(whole(A), r, w) for w in W[: 4 if n < 50 else 1]], dtype=float)
    np.testing.assert_allclose(mean[: len(expected)], expected[:, 0], rtol=0, atol=SOLVES * max(1, np.max(np.abs(c))))
    np.testing.assert_allclose(variance[: len(expected)], expected[:, 1], rtol=SOLVES)


@pytest.mark.parametrize("variant", VARIANTS)
@pytest.mark.parametrize("n", SIZES)
def test_rows_are_added_and_taken_away(n, variant):
    W, tau, rho = rows(12, n)
    truth = prior(n)
    assert _core.load("sparse_gp", variant).add_rows(W, tau, rho, *truth) == 12
    A, r = reference.added(np.zeros((n, n)), np.zeros(n), W, tau, rho)
    np.testing.assert_allclose(whole(truth[0]), np.asarray(A, dtype=float), rtol=0, atol=ROUNDING * float(np.max(A)))
    np.testing.assert_allclose(truth[1], np.asarray(r, dtype=float), rtol=0, atol=ROUNDING * float(np.max(np.abs(r))))
    assert_consistent(truth)


@pytest.mark.parametrize("n", SMALL)
def test_factor_equals_that_of_all_rows(n):
    W, tau, rho = rows(9, n, seed=4)
    truth = prior(n)
    MAIN.add_rows(W, tau, rho, *truth)
    A, r = reference.added(np.zeros((n, n)), np.zeros(n), W, tau, rho)
    L = reference.cholesky(np.eye(n) + A)
    np.testing.assert_allclose(truth[2], np.asarray(L, dtype=float), rtol=0, atol=SUMS * float(np.max(L)))
    c = np.asarray(reference.solved(L, r), dtype=float)
    np.testing.assert_allclose(truth[3], c, rtol=0, atol=SUMS * max(1.0, np.max(np.abs(c))))


@pytest.mark.parametrize("n", SMALL)
@pytest.mark.parametrize(("tau", "rho"), [(0.7, 1.3), (0.0, 0.4), (-2.0, 1e6), (0.02, -0.01), (1.5, 0.0), (0.3, 1e-9)])
def test_gain_is_the_mean_of_the_site(n, tau, rho):
    truth = filled(n)
    w, gain = rows(1, n, seed=6)[0], np.empty(1)
    expected = reference.gain(whole(truth[0]), truth[1], w[0], tau, rho)
    before = reference.log_z(whole(truth[0]), truth[1])
    assert MAIN.add_rows(w, np.array([tau]), np.array([rho]), *truth, gain) == 1
    assert gain[0] == pytest.approx(float(expected), rel=LOSSES, abs=SOLVES)
    height = tau**2 / (2 * rho) if rho else 0.0
    change = reference.log_z(whole(truth[0]), truth[1]) - before
    assert change - height == pytest.approx(gain[0], rel=INTEGRAL, abs=SOLVES + LAST_BIT * height)


def test_gain_by_integration():
    truth, gain = filled(2), np.empty(1)
    w, tau, rho = np.array([[0.8, -0.3]]), 1.7, 2.2
    m, v = (mp.mpf(float(x)) for x in reference.marginals(whole(truth[0]), truth[1], w[0]))
    site = mp.quad(
        lambda g: mp.npdf(g, m, mp.sqrt(v)) * mp.exp(-rho * (g - tau / rho) ** 2 / 2), [m - 12, m - 2, m, m + 2, m + 12]
    )
    assert MAIN.add_rows(w, np.array([tau]), np.array([rho]), *truth, gain) == 1
    assert gain[0] == pytest.approx(float(mp.log(site)), rel=SUMS)


def test_gain_is_not_a_difference_of_large_numbers():
    truth, gain = prior(1), np.empty(1)
    w = np.array([[1.0]])
    for y in (1e6, 1e6 + 1e-3):  # sites of height exp(tau^2/(2 rho)) = exp(5e17)
        assert MAIN.add_rows(w, np.array([y * 1e6]), np.array([1e6]), *truth, gain) == 1
    # the second observation is predicted with mean y/(1 + 1e-6) and variance 1e-6/(1 + 1e-6)
    mean = 1e12 * 1e6 / (1 + mp.mpf(10) ** 6) / 10**6
    variance = 1 / (1 + mp.mpf(10) ** 6)
    exact = -mp.log(1 + 10**6 * variance) / 2 - (mp.mpf(1e6 + 1e-3) - mean) ** 2 / (mp.mpf(10) ** -6 + variance) / 2
    assert gain[0] == pytest.approx(float(exact), rel=OPTIMUM)


# ------------------------------------------------------------------------------------------------ refusals


@pytest.mark.parametrize("variant", VARIANTS)
def test_rows_that_cannot_be_added_leave_no_trace(variant):
    for n in SMALL:
        kernel, truth = _core.load("sparse_gp", variant), filled(n)
        before = copies(truth)
        w = rows(1, n, seed=8)[0]
        v = float(reference.marginals(whole(truth[0]), truth[1], w[0])[1])
        bad = {
            "not positive definite": (w, 0.1, -1.001 / v),
            "singular": (w, 0.1, -1.0 / v * (1 - 1e-14)),
            "nan rho": (w, 0.1, np.nan),
            "nan tau": (w, np.nan, 1.0),
            "inf": (w, np.inf, 1.0),
            "inf rho": (w, 0.0, np.inf),
            "nan w": (np.full((1, n), np.nan), 0.1, 1.0),
            "large A": (1e155 * w, 0.0, 1.0),
            "large r": (1e100 * w, 1e100, 1.0),
            "large both": (w, 1e200, 1.0),
        }
        for name, (row, tau, rho) in bad.items():
            assert kernel.add_rows(row, np.array([tau]), np.array([rho]), *truth) == 0, name
            for a, b in zip(truth, before, strict=True):
                np.testing.assert_array_equal(a, b, err_msg=name)
        assert kernel.add_rows(w, np.array([0.1]), np.array([-0.5 / v]), *truth) == 1
        assert_consistent(truth, rtol=SOLVES)


@pytest.mark.parametrize("variant", VARIANTS)
def test_sums_beyond_reach_in_the_last_coordinate_are_seen(variant):
    """Those of A, of r and of c, where all rows but the last are harmless and name the last coordinate alone."""
    for n in range(1, 18):
        kernel, w = _core.load("sparse_gp", variant), np.zeros((2, n))
        w[:, -1] = 1.0
        trouble = {
            "A, together": ([0.0, 0.0], [6e299, 6e299]),
            "r, together": ([6e149, 6e149], [1.0, 1.0]),
            "c, as B falls to 1e-7": ([9e149, 0.0], [1.0, -2.0 + 1e-7]),
            "c, as B is 1e-7 and rho nothing": ([0.0, 1e149], [-1.0 + 1e-7, 0.0]),
        }
        for name, (tau, rho) in trouble.items():
            truth, expected = prior(n), prior(n)
            assert kernel.add_rows(w, np.array(tau), np.array(rho), *truth) == 1, name
            assert kernel.add_rows(w[:1], np.array(tau[:1]), np.array(rho[:1]), *expected) == 1, name
            for a, b in zip(truth, expected, strict=True):
                np.testing.assert_array_equal(a, b, err_msg=name)


def test_rows_before_a_bad_one_stay():
    W, tau, rho = rows(5, 6, negative=False)
    rho[3] = -1e9
    truth, expected = prior(6), prior(6)
    assert MAIN.add_rows(W, tau, rho, *truth) == 3
    assert MAIN.add_rows(W[:3], tau[:3], rho[:3], *expected) == 3
    for a, b in zip(truth, expected, strict=True):
        np.testing.assert_array_equal(a, b)


# ------------------------------------------------------------------------------------------------ extremes


@pytest.mark.parametrize("rho", [1e-300, 1e-40, 1e-20, 1e-8, 1e4, 1e12])
@pytest.mark.parametrize("scale", [1e-160, 1e-12, 1.0, 1e3])
def test_extreme_rows(rho, scale):
    n = 9
    W, tau, _ = rows(4, n, seed=9, negative=False)
    W, rho = scale * W, np.full(4, rho)
    tau = tau * np.sqrt(rho)
    truth, gain = prior(n), np.empty(4)
    assert MAIN.add_rows(W, tau, rho, *truth, gain) == 4
    assert np.all(np.isfinite(gain))
    assert_consistent(truth)
    A, r = reference.added(np.zeros((n, n)), np.zeros(n), W, tau, rho)
    L = reference.cholesky(np.eye(n) + A)
    c = np.asarray(reference.solved(L, r), dtype=float)
    rounding = np.finfo(float).eps * np.sqrt(np.max(truth[0]))  # of what four rows leave of nine directions
    np.testing.assert_allclose(truth[3], c, rtol=0, atol=SOLVES * np.max(np.abs(c)) + 10 * rounding)
    np.testing.assert_allclose(truth[1], np.asarray(r, dtype=float), rtol=SUMS, atol=1e-320)


def test_a_site_without_precision_moves_the_mean_alone():
    truth = filled(8)
    before = copies(truth)
    w = rows(1, 8, seed=10)[0]
    assert MAIN.add_rows(w, np.array([0.7]), np.array([0.0]), *truth) == 1
    np.testing.assert_array_equal(truth[0], before[0])
    np.testing.assert_array_equal(truth[2], before[2])
    np.testing.assert_allclose(truth[1], before[1] + 0.7 * w[0], rtol=LAST_BIT)
    assert_consistent(truth)


def test_a_long_stream_and_a_long_window():
    n = 12
    rng = np.random.default_rng(11)
    W, tau, rho = rng.normal(size=(100_000, n)), rng.normal(size=100_000), rng.gamma(1.0, size=100_000)
    truth = prior(n)
    assert MAIN.add_rows(W, tau, rho, *truth) == len(W)
    assert_consistent(truth, rtol=SOLVES)
    A = (W * rho[:, None]).T @ W
    np.testing.assert_allclose(whole(truth[0]), A, rtol=0, atol=LOSSES * np.max(A))
    # the last 30 rows of a stream: each that comes lets one go
    truth = prior(n)
    MAIN.add_rows(W[:30], tau[:30], rho[:30], *truth)
    pairs = np.repeat(np.arange(30, 20_030), 2)
    pairs[1::2] -= 30
    sign = np.tile([1.0, -1.0], 20_000)
    assert MAIN.add_rows(W[pairs], sign * tau[pairs], sign * rho[pairs], *truth) == len(pairs)
    last = slice(20_000, 20_030)
    A, r = reference.added(np.zeros((n, n)), np.zeros(n), W[last], tau[last], rho[last])
    B = np.eye(n) + np.asarray(A, dtype=float)
    np.testing.assert_allclose(truth[2] @ truth[2].T, B, rtol=0, atol=INTEGRAL * np.max(B))
    np.testing.assert_allclose(truth[2] @ truth[3], np.asarray(r, dtype=float), rtol=0, atol=INTEGRAL * np.max(B))


# ------------------------------------------------------------------------------------------------ laws and bits


@examples(60)
@given(n=st.integers(1, 24), seed=st.integers(0, 999), order=st.randoms(use_true_random=False))
def test_the_order_of_rows_does_not_matter(n, seed, order):
    W, tau, rho = rows(8, n, seed, negative=False)
    index = list(range(8))
    order.shuffle(index)
    a, b = prior(n), prior(n)
    assert MAIN.add_rows(W, tau, rho, *a) == MAIN.add_rows(W[index], tau[index], rho[index], *b) == 8
    for x, y in zip(a, b, strict=True):
        np.testing.assert_allclose(x, y, rtol=0, atol=SOLVES * max(1.0, np.max(np.abs(x))))


@examples(60)
@given(n=st.integers(1, 24), seed=st.integers(0, 999), rho=st.floats(1e-6, 1e3))
def test_what_is_added_can_be_taken_away(n, seed, rho):
    truth = filled(n, seed=seed)
    before = copies(truth)
    w, tau, rho = rows(1, n, seed + 1)[0], np.array([0.3]), np.array([rho])
    gain, back = np.empty(1), np.empty(1)
    assert MAIN.add_rows(w, tau, rho, *truth, gain) == 1
    assert MAIN.add_rows(w, -tau, -rho, *truth, back) == 1
    for a, b in zip(truth, before, strict=True):
        np.testing.assert_allclose(a, b, rtol=0, atol=SUMS * (1 + rho[0] * n) * max(1.0, np.max(np.abs(b))))
    assert gain[0] == pytest.approx(-back[0], rel=OPTIMUM, abs=AT_REST)


@pytest.mark.parametrize("n", SIZES)
def test_many_rows_are_single_rows(n):
    W, tau, rho = rows(9, n, seed=12)
    together, apart, gain, one = prior(n), prior(n), np.empty(9), np.empty(9)
    assert MAIN.add_rows(W, tau, rho, *together, gain) == 9
    for i in range(9):
        part = slice(i, i + 1)
        assert MAIN.add_rows(W[part], tau[part], rho[part], *apart, one[part]) == 1
    for a, b in zip((*together, gain), (*apart, one), strict=True):
        np.testing.assert_array_equal(a, b)


@pytest.mark.parametrize("n", SIZES)
@pytest.mark.parametrize("variant", VARIANTS)
def test_rows_do_not_depend_on_the_others(variant, n):
    for n_rows in (2, 7, 8, 9, 23, 24, 25, 31, 49):
        kernel, L, c = _core.load("sparse_gp", variant), triangle(n), np.linspace(-1, 1, n)
        k = np.random.default_rng(14).normal(size=(n_rows, n))
        together, single = [k.copy(), *np.empty((3, n_rows))], [k.copy(), *np.empty((3, n_rows))]
        kernel.solve_rows(L, together[0], np.full(n_rows, 1e6), together[1])
        kernel.marginals(L, c, k, *together[2:])
        for i in range(n_rows):
            part = slice(i, i + 1)
            kernel.solve_rows(L, single[0][part], np.full(1, 1e6), single[1][part])
            kernel.marginals(L, c, k[part], single[2][part], single[3][part])
        for a, b in zip(together, single, strict=True):
            np.testing.assert_array_equal(a, b)


@pytest.mark.parametrize("n", SIZES)
def test_all_variants_return_the_same_bits(n):
    results = []
    for variant in VARIANTS:
        kernel, truth, gain = _core.load("sparse_gp", variant), prior(n), np.empty(9)
        W, tau, rho = rows(9, n, seed=13)
        kernel.add_rows(W, tau, rho, *truth, gain)
        residual, mean, var = np.empty(9), np.empty(9), np.empty(9)
        kernel.marginals(truth[2], truth[3], W, mean, var)
        kernel.solve_rows(truth[2], W, np.full(9, 1e3), residual)
        single = W[:1].copy()
        kernel.solve_rows(truth[2], single, np.full(1, 1e3), np.empty(1))
        results.append([*truth, gain, W, single, residual, mean, var])
    for other in results[1:]:
        for a, b in zip(results[0], other, strict=True):
            np.testing.assert_array_equal(a, b)


def test_read_only_inputs_and_no_inducing_variables():
    truth = filled(9)
    W, tau, rho = rows(3, 9)
    out = [np.empty(3) for _ in range(3)]
    for array in (W, tau, rho):
        array.flags.writeable = False
    assert MAIN.add_rows(W, tau, rho, *truth) == 3
    for array in truth:
        array.flags.writeable = False
    MAIN.marginals(truth[2], truth[3], W, *out[:2])
    MAIN.solve_rows(truth[2], W.copy(), rho, out[2])
    nothing, empty = prior(0), np.empty((3, 0))
    assert MAIN.add_rows(empty, tau, rho, *nothing, out[0]) == 3
    np.testing.assert_allclose(out[0], -(tau**2) / (2 * rho))
    MAIN.solve_rows(nothing[2], empty, np.arange(3.0), out[0])
    np.testing.assert_array_equal(out[0], np.arange(3.0))
    MAIN.marginals(nothing[2], nothing[3], empty, *out[:2])
    assert not np.any(out[:2])
