"""Factors, inverses and products of large triangles against dense algebra, and with the same bits for all threads."""

import numpy as np
import pytest
from scipy.linalg import cholesky, solve_triangular
from support.kernels import lower
from support.tolerances import LAST_BIT, ROUNDING, SOLVES, SUMS

from cavity import _core
from cavity.linalg import tiled
from cavity.runs.executors import Threads, single_blas

SIZES = (1, 2, 127, 128, 129, *(k * tiled.TILE_ROWS + n for k, n in ((1, 0), (1, 1), (3, -1), (3, 0), (4, 37))))


@pytest.fixture(autouse=True)
def always_tiles(monkeypatch):
    monkeypatch.setattr(tiled, "MIN_TILED_ROWS", 1)
    monkeypatch.setattr(tiled, "FEW_FLOPS", 0.0)
    with single_blas():
        yield


def draw(n):
    """A positive definite matrix (n, n) and its factor."""
    half = np.random.default_rng(n).normal(size=(n, n + 5)) / np.sqrt(n)
    matrix = half @ half.T + np.diag(np.linspace(0.01, 1.0, n))
    return matrix, cholesky(matrix, lower=True)


def check(work, start, expected):
    """The lower triangle is right to rounding, the rest is left alone, and threads do not matter to any bit."""
    results = []
    for n_threads in (1, 2, 3):
        out = lower(start)
        with Threads(n_threads) as threads:
            work(out, threads)
        results.append(out)
    assert np.all(np.isnan(results[0][np.triu_indices(len(start), 1)]))
    np.testing.assert_allclose(np.tril(results[0]), np.tril(expected), rtol=0, atol=SUMS * np.max(np.abs(expected)))
    for other in results[1:]:
        np.testing.assert_array_equal(other, results[0])


def test_a_task_a_call_gives_the_same_bits(monkeypatch):
    """Kernels return between tasks, so that Ctrl-C takes effect."""
    matrix, _ = draw(3 * tiled.TILE_ROWS - 1)
    results = []
    for most in (tiled.MOST_FLOPS, 1e-3):
        monkeypatch.setattr(tiled, "MOST_FLOPS", most)
        with Threads(2) as threads:
            out = matrix.copy()
            assert tiled.factor(out, threads) == 0
            for work in (tiled.invert, tiled.square):
                work(out, threads)
            tiled.add_squares(out, matrix[:3], matrix[3:5], threads)
            tiled.stack(out, matrix[:, :300].copy(), threads)
            tiled.solve(out, out[:5], threads)
            results.append(out)
    np.testing.assert_array_equal(results[0], results[1])


def test_who_is_interrupted_ends_the_work_of_all():
    state = np.zeros(2, np.longlong)

    def interrupted(*_):
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        tiled._work(interrupted, (), state)
    assert state[1]
    tiled._work(interrupted, (), state)  # nobody calls any more


def test_tiles_are_those_of_the_kernel():
    kernel = _core.load("tiled", _core.BASELINE_VARIANT)
    assert (tiled.TILE_ROWS, tiled.LEAF_ROWS) == (kernel.TILE, kernel.LEAF)


@pytest.mark.parametrize("n", SIZES)
def test_factor(n):
    matrix, factor = draw(n)
    check(tiled.factor, matrix, factor)


@pytest.mark.parametrize("n", SIZES)
def test_inverse(n):
    _, factor = draw(n)
    check(tiled.invert, factor, solve_triangular(factor, np.eye(n), lower=True))


@pytest.mark.parametrize("n", SIZES)
def test_square(n):
    _, factor = draw(n)
    check(tiled.square, factor, factor.T @ factor)


@pytest.mark.sample(3)
@pytest.mark.parametrize("n", SIZES)
@pytest.mark.parametrize(("m", "k"), [(3, 5), (0, 2), (64, 0)])
def test_squares_of_rows_are_added(n, m, k):
    matrix, _ = draw(n)
    rng = np.random.default_rng(1)
    up, down = rng.normal(size=(m, n)), rng.normal(size=(k, n))
    check(lambda a, threads: tiled.add_squares(a, up, down, threads), matrix, matrix + up.T @ up - down.T @ down)


@pytest.mark.parametrize("triangular", [False, True])
@pytest.mark.parametrize(("n", "m"), [(1, 1), (3, 0), (127, 40), (129, 256), (270, 600)])
def test_rows_are_stacked_below_a_triangle(n, m, triangular):
    """As by the QR factorisation of all rows, but for signs."""
    _, factor = draw(n)
    columns = np.random.default_rng(3).normal(size=(n, n if triangular else m))
    columns = np.tril(columns) if triangular else columns
    expected = np.linalg.qr(np.concatenate([factor.T, columns.T]), mode="r").T
    results = []

    def work(a, threads):
        tiled.stack(a, columns.copy(), threads, triangular=triangular)
        results.append(np.diag(a))
        a *= np.sign(np.diag(a))

    check(work, factor, expected * np.sign(np.diag(expected)))
    assert np.all(results[0] == results[1])
    assert np.all(results[0] == results[2])


@pytest.mark.parametrize(("n", "d"), [(1, 1), (5, 9), (128, 130), (270, 290)])
def test_orthonormal_columns(n, d):
    """As by LAPACK, whether or not rows depend on each other."""
    rows = np.random.default_rng(5).normal(size=(n, d))
    rows[n // 2] = rows[0]
    rows[n // 3] = 0.0
    results = []
    for n_threads in (1, 2, 3):
        with Threads(n_threads) as threads:
            results.append(tiled.orthonormalize(rows, threads))
    columns, triangle = results[0]
    np.testing.assert_array_equal(triangle, np.tril(triangle))
    np.testing.assert_allclose(columns.T @ columns, np.eye(n), rtol=0, atol=ROUNDING)
    np.testing.assert_allclose(triangle @ columns.T, rows, rtol=0, atol=SUMS)
    for result in results[1:]:
        np.testing.assert_array_equal(result[0], columns)
        np.testing.assert_array_equal(result[1], triangle)


@pytest.mark.parametrize("scale", [1e-150, 1e150])
def test_stacked_rows_keep_the_digits_of_nearly_dependent_columns(scale):
    """|R'R - A'A| is rounding of A: singular values from 1 to 1e-12, whose squares float64 could not tell."""
    rng, n = np.random.default_rng(4), 150
    left, right = np.linalg.qr(rng.normal(size=(400, n)))[0], np.linalg.qr(rng.normal(size=(n, n)))[0]
    values = np.logspace(0, -12, n)
    triangle = np.zeros((n, n))
    tiled.stack(triangle, np.ascontiguousarray((scale * (left * values) @ right.T).T), tiled.ONE_THREAD)
    np.testing.assert_allclose(np.linalg.svd(triangle / scale, compute_uv=False), values, rtol=0, atol=LAST_BIT * 20)


@pytest.mark.parametrize("inverted", [False, True])
@pytest.mark.parametrize("transposed", [False, True])
@pytest.mark.parametrize(("n", "m"), [(1, 1), (130, 2), (40, tiled.TILE_ROWS + 3), (300, 2 * tiled.TILE_ROWS + 1)])
def test_solve(n, m, inverted, transposed):
    _, factor = draw(n)
    rows = np.random.default_rng(2).normal(size=(m, n))
    values = lower(solve_triangular(factor, np.eye(n), lower=True) if inverted else factor)
    values.flags.writeable = False
    expected = solve_triangular(factor, rows.T, lower=True, trans=int(transposed)).T
    results = []
    for n_threads in (1, 2, 3):
        with Threads(n_threads) as threads:
            out = rows.copy()
            assert tiled.solve(values, out, threads, inverted=inverted, transposed=transposed) is out
            results.append(out)
    np.testing.assert_allclose(results[0], expected, rtol=0, atol=SUMS * np.max(np.abs(expected)) * 10)
    np.testing.assert_array_equal(results[1], results[0])
    np.testing.assert_array_equal(results[2], results[0])


def test_solve_takes_rows_in_any_order():
    _, factor = draw(20)
    rows = np.asfortranarray(np.random.default_rng(2).normal(size=(7, 20)))
    np.testing.assert_allclose(
        tiled.solve(factor.copy(), rows), solve_triangular(factor, rows.T, lower=True).T, rtol=SOLVES
    )


@pytest.mark.parametrize("many", [1, 10**6])
@pytest.mark.parametrize("bad", [0, 5, tiled.TILE_ROWS - 1, tiled.TILE_ROWS, 2 * tiled.TILE_ROWS + 3])
def test_the_pivot_that_is_not_positive_is_named(bad, many, monkeypatch):
    """As by LAPACK: counted from 1."""
    monkeypatch.setattr(tiled, "MIN_TILED_ROWS", many)
    matrix, _ = draw(3 * tiled.TILE_ROWS)
    matrix[bad, bad] = -1.0
    for n_threads in (1, 2):
        with Threads(n_threads) as threads:
            assert tiled.factor(matrix.copy(), threads) == bad + 1


@pytest.mark.parametrize("scale", [1e-150, 1e150])
def test_backward_errors_at_extreme_scales(scale):
    """|A - L L'| is rounding of A, however badly conditioned: eigenvalues from 1 to 1e-14."""
    n = 2 * tiled.TILE_ROWS + 30
    vectors = np.linalg.qr(np.random.default_rng(3).normal(size=(n, n)))[0]
    matrix = scale * (vectors * np.logspace(0, -14, n)) @ vectors.T + scale * 1e-13 * np.eye(n)
    out = matrix.copy()
    with Threads(2) as threads:
        assert tiled.factor(out, threads) == 0
    L = np.tril(out)
    assert np.max(np.abs(L @ L.T - matrix)) < 1e-15 * n * scale


@pytest.mark.parametrize(("n", "entries"), [(1, 1), (5, 1), (5, 100), (1000, 1 << 16), (1000, 1 << 20)])
def test_ranges_of_rows_cover_all(n, entries, monkeypatch):
    monkeypatch.setattr(tiled, "ENTRIES_PER_TASK", entries)
    seen = []
    tiled.run_by_rows(tiled.ONE_THREAD, lambda start, stop: seen.extend(range(start, stop)), n)
    assert seen == list(range(n))
