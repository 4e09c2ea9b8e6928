"""Sparse factors, solves and selected inverses against dense algebra and closed forms; equal bits for all threads."""

import pickle
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from reference import sparse_cholesky as reference
from scipy import sparse
from support.tolerances import LAST_BIT, LOSSES, SOLVES, SUMS

from cavity import _core
from cavity.linalg import sparse_cholesky
from cavity.linalg.sparse_cholesky import SparseCholesky, fill_reducing_order
from cavity.runs.executors import Threads

EPS = np.finfo(float).eps


def laplacian(edges, n, ground):
    """Of a graph, plus something on the diagonal; weights from 1 to 2."""
    i, j = np.array(edges, int).reshape(-1, 2).T
    weight = np.random.default_rng(len(i)).uniform(1.0, 2.0, size=len(i))
    matrix = np.zeros((n, n))
    np.add.at(matrix, (i, j), -weight)
    matrix += matrix.T
    return matrix + np.diag(ground - matrix.sum(axis=1))


def grid(k):
    """Neighbours on a square grid."""
    at = np.arange(k * k).reshape(k, k)
    return np.concatenate(
        [np.stack([at[1:], at[:-1]], -1).reshape(-1, 2), np.stack([at[:, 1:], at[:, :-1]], -1).reshape(-1, 2)]
    )


def groups(n_rows, *levels, nested=False):
    """X'X of rows in groups, and of two more columns."""
    rng = np.random.default_rng(n_rows)
    first = rng.integers(levels[0], size=n_rows)
    chosen = [first, first % levels[1] if nested else rng.integers(levels[1], size=n_rows)]
    X = np.hstack([np.eye(size)[at] for size, at in zip(levels, chosen, strict=True)] + [rng.normal(size=(n_rows, 2))])
    return X.T @ X


def blocks(*sizes):
    """Dense blocks, each with the last one."""
    matrix = np.zeros((sum(sizes), sum(sizes)))
    edges = np.cumsum([0, *sizes])
    for start, stop in pairwise(edges):
        own = np.r_[start:stop, edges[-2] : edges[-1]]
        half = np.random.default_rng(start).normal(size=(len(own), len(own)))
        matrix[np.ix_(own, own)] += half @ half.T / len(own)
    return matrix + np.eye(len(matrix))


def random(n, density):
    half = sparse.random(n, n, density, "csr", None, np.random.default_rng(n)).toarray()
    return half @ half.T + np.eye(n)


MATRICES = {
    "one": np.array([[2.0]]),
    "diagonal": np.diag(np.arange(1.0, 6.0)),
    "random": random(60, 0.02),
    "less sparse": random(50, 0.1),
    "dense": random(40, 1.0),
    "banded": laplacian([(i, j) for i in range(80) for j in range(max(0, i - 3), i)], 80, 0.1),
    "arrow": laplacian([(59, j) for j in range(59)], 60, 0.1),
    "tree": laplacian([(i, (i - 1) // 2) for i in range(1, 63)], 63, 0.5),
    "grid": laplacian(grid(12), 144, 0.01),
    "nested": groups(300, 40, 7, nested=True) + np.eye(49),
    "crossed": groups(150, 60, 25) + np.eye(87),
    "nearly singular": laplacian(grid(9), 81, 1e-11),
    "badly scaled": np.diag(10.0 ** np.arange(-30, 30)) @ random(60, 0.03) @ np.diag(10.0 ** np.arange(-30, 30)),
}


def analysed(matrix, order=None):
    """The analysis of its pattern."""
    lower = sparse.csc_array(np.tril(matrix))
    return SparseCholesky(lower.indptr, lower.indices, order)


def stored(cholesky, matrix):
    """The matrix in the storage."""
    values = np.zeros(cholesky.n_entries)
    i, j = np.nonzero(np.tril(matrix))
    values[cholesky.positions(j, i)] = matrix[i, j]
    return values


def work(cholesky, matrix, n_threads, b):
    """What there is to be had: L, solutions for b, halves of them, the selected inverse."""
    values = stored(cholesky, matrix)
    with Threads(n_threads) as threads:
        assert cholesky.factor(values, threads) == 0
        inputs = b.copy()
        solutions = [cholesky.solve(values, b, threads, half=half) for half in ("both", "forward", "backward")]
        np.testing.assert_array_equal(b, inputs)
        inverse = values.copy()
        cholesky.invert(inverse, threads)
    return values, *solutions, inverse


def check(matrix, order=None):
    """All of it against dense algebra, with the same bits for one, two and three threads."""
    n = len(matrix)
    cholesky = analysed(matrix, order)
    assert np.array_equal(np.sort(cholesky.order), np.arange(n))
    b = np.random.default_rng(1).normal(size=(3, n))
    values, x, y, z, inverse = result = work(cholesky, matrix, 1, b)
    for n_threads in (2, 3):
        for one, other in zip(result, work(cholesky, matrix, n_threads, b), strict=True):
            np.testing.assert_array_equal(one, other)

    order = cholesky.order
    permuted = matrix[np.ix_(order, order)]
    i, j = np.array(reference.filled(matrix != 0, order)).T
    at = cholesky.positions(order[i], order[j])
    assert len(np.unique(at)) == len(at)
    L = np.zeros((n, n))
    L[i, j] = values[at]
    assert np.count_nonzero(values) <= len(at)  # nothing anywhere else
    size = np.sqrt(np.diag(permuted))
    assert np.max(np.abs(L @ L.T - permuted) / np.outer(size, size)) < n * EPS
    logs = 2.0 * np.log(np.diag(L))
    assert abs(cholesky.log_determinant(values) - np.sum(logs)) <= n * EPS * np.sum(np.abs(logs))
    np.testing.assert_allclose(y @ L.T, b[:, order], rtol=0, atol=4 * n * EPS * np.max(np.abs(y) @ np.abs(L.T)))
    np.testing.assert_allclose(z[:, order] @ L, b, rtol=0, atol=4 * n * EPS * np.max(np.abs(z[:, order]) @ np.abs(L)))
    bound = np.abs(x) @ np.abs(matrix) + np.abs(b)  # of the backward error, row by row
    assert np.max(np.abs(x @ matrix - b) / bound) < n * n * EPS

    expected = reference.selected_inverse(L, list(zip(i.tolist(), j.tolist(), strict=True)))
    expected = np.array([expected[pair] for pair in zip(i.tolist(), j.tolist(), strict=True)])
    spread = np.sqrt(cholesky.diagonal(inverse))[order]
    np.testing.assert_allclose(
        inverse[at] / (spread[i] * spread[j]), expected / (spread[i] * spread[j]), rtol=0, atol=LOSSES
    )
    return L, x, cholesky.diagonal(inverse)


@pytest.mark.parametrize("natural", [False, True])
@pytest.mark.parametrize("name", MATRICES)
def test_dense_algebra(name, natural):
    matrix = MATRICES[name]
    check(matrix, np.arange(len(matrix)) if natural else None)


@pytest.mark.sample(3)
@pytest.mark.parametrize("task", [1.0, 3e3])
@pytest.mark.parametrize("large", [0.0, 5e3, np.inf])
@pytest.mark.parametrize("name", ["random", "dense", "arrow", "grid", "crossed"])
def test_tasks_of_any_size(name, large, task, monkeypatch):
    """All supernodes are large, some, or none; trees are cut into many rounds."""
    monkeypatch.setattr(sparse_cholesky, "PRODUCTS_PER_TASK", task)
    monkeypatch.setattr(sparse_cholesky, "TASKS_PER_CALL", 1)
    monkeypatch.setattr(sparse_cholesky, "MIN_LARGE_PRODUCTS", large)
    monkeypatch.setattr(sparse_cholesky, "MIN_ROWS_PER_TILE", 2)
    check(MATRICES[name])


@pytest.mark.long_cases("inf")
@pytest.mark.parametrize("large", [0.0, np.inf])
def test_several_tiles(large, monkeypatch):
    """Supernodes above and below others, of more rows than a tile has."""
    monkeypatch.setattr(sparse_cholesky, "MIN_LARGE_PRODUCTS", large)
    matrix = blocks(260, 3, 270)
    n = len(matrix)
    cholesky = analysed(matrix)
    b = np.random.default_rng(1).normal(size=(2, n))
    result = work(cholesky, matrix, 1, b)
    for one, other in zip(result, work(cholesky, matrix, 3, b), strict=True):
        np.testing.assert_array_equal(one, other)
    inverse = np.linalg.inv(matrix)
    np.testing.assert_allclose(result[1], b @ inverse, rtol=0, atol=SOLVES)
    i, j = np.nonzero(matrix)
    np.testing.assert_allclose(result[-1][cholesky.positions(i, j)], inverse[i, j], rtol=0, atol=SOLVES)


@pytest.mark.parametrize("name", ["grid", "crossed", "dense"])
def test_one_right_hand_side_and_many(name, monkeypatch):
    matrix = MATRICES[name]
    cholesky = analysed(matrix)
    values = stored(cholesky, matrix)
    b = np.random.default_rng(2).normal(size=(7, len(matrix)))
    with Threads(2) as threads:
        cholesky.factor(values, threads)
        together = cholesky.solve(values, b, threads)
        for row, x in zip(b, together, strict=True):
            single = cholesky.solve(values, row, threads)
            assert single.shape == row.shape
            np.testing.assert_allclose(single, x, rtol=0, atol=SOLVES * np.max(np.abs(x)))
        assert cholesky.solve(values, b[:0], threads).shape == (0, len(matrix))
        monkeypatch.setattr(sparse_cholesky, "ENTRIES_PER_SOLVE", 50)  # a supernode or two in a call
        np.testing.assert_allclose(cholesky.solve(values, np.asfortranarray(b), threads), together, rtol=0, atol=LOSSES)


@given(st.integers(1, 14), st.data())
def test_any_pattern_in_any_order(n, data):
    pairs = st.tuples(st.integers(0, n - 1), st.integers(0, n - 1))
    edges = data.draw(st.lists(pairs.filter(lambda pair: pair[0] != pair[1]), max_size=25))
    order = data.draw(st.none() | st.permutations(range(n)))
    check(laplacian(edges, n, 0.5), order)


def test_pickles():
    matrix = MATRICES["crossed"]
    cholesky = analysed(matrix)
    b = np.ones(len(matrix))
    for one, other in zip(
        work(cholesky, matrix, 1, b), work(pickle.loads(pickle.dumps(cholesky)), matrix, 1, b), strict=True
    ):
        np.testing.assert_array_equal(one, other)


def test_patterns_in_either_triangle_and_twice():
    matrix = MATRICES["crossed"]
    full = sparse.csc_array(matrix)
    twice = SparseCholesky(full.indptr, full.indices, np.arange(len(matrix)))
    once = analysed(matrix, np.arange(len(matrix)))
    assert twice.n_entries == once.n_entries
    np.testing.assert_array_equal(stored(twice, matrix), stored(once, matrix))


def test_the_diagonal_need_not_be_said():
    cholesky = SparseCholesky(np.array([0, 1, 1, 1]), np.array([2]))
    with Threads(1) as threads:
        values = stored(cholesky, np.array([[2.0, 0.0, 1.0], [0.0, 3.0, 0.0], [1.0, 0.0, 2.0]]))
        assert cholesky.factor(values, threads) == 0
    np.testing.assert_allclose(cholesky.log_determinant(values), np.log(9.0), rtol=LAST_BIT)


def test_the_order_fills_as_little_as_that_of_superlu():
    matrix = laplacian(grid(20), 400, 0.1)
    lower = sparse.csc_array(np.tril(matrix))
    order = fill_reducing_order(lower.indptr, lower.indices)
    options = {"SymmetricMode": True}
    lu = sparse.linalg.splu(
        sparse.csc_array(matrix), permc_spec="MMD_AT_PLUS_A", diag_pivot_thresh=0.0, options=options
    )
    assert len(reference.filled(matrix != 0, order)) == lu.L.nnz


@pytest.mark.parametrize("budget", [1, 50, sparse_cholesky.STEPS_PER_CALL])
@pytest.mark.parametrize("name", [name for name, matrix in MATRICES.items() if len(matrix) > 1])
def test_the_order_of_least_fill(name, budget, monkeypatch):
    monkeypatch.setattr(sparse_cholesky, "STEPS_PER_CALL", budget)
    lower = sparse.csc_array(np.tril(MATRICES[name]))
    pattern = lower.indptr, lower.indices
    order = sparse_cholesky._order_by_fill(*pattern, len(MATRICES[name]) ** 2)
    assert order.tolist() == reference.order_by_fill(MATRICES[name] != 0)
    below = len(reference.filled(MATRICES[name] != 0, order)) - len(order)
    assert sparse_cholesky._order_by_fill(*pattern, max(below - 1, 0)) is None


def test_the_order_of_least_fill_is_taken_where_it_has_fewer_products(monkeypatch):
    """As in chains of which pairs meet at each time; and not where minimum degree is as good, or factors are small."""
    n_chains, n_times = 80, 20
    rng = np.random.default_rng(0)
    time, pairs = rng.integers(n_times, size=(8000, 1)), rng.integers(n_chains, size=(8000, 2))
    steps = np.arange(n_chains * n_times).reshape(n_chains, n_times)
    chains = np.stack([steps[:, 1:], steps[:, :-1]], -1).reshape(-1, 2)
    i, j = np.sort(np.concatenate([pairs * n_times + time, chains])).T
    matrix = np.eye(n_chains * n_times)
    matrix[j, i] = 1.0
    lower = sparse.csc_array(matrix)
    pattern = lower.indptr.astype(np.int64), lower.indices
    by_degree = sparse_cholesky._order_by_degree(*pattern)
    assert np.array_equal(fill_reducing_order(*pattern), by_degree)
    monkeypatch.setattr(sparse_cholesky, "MIN_FILL_PRODUCTS", 0.0)
    by_fill = fill_reducing_order(*pattern)
    products = [np.sum(sparse_cholesky._find_tree(*pattern, order)[-1] ** 2.0) for order in (by_degree, by_fill)]
    assert products[1] < 0.8 * products[0]
    banded = sparse.csc_array(np.tril(MATRICES["banded"]))
    pattern = banded.indptr, banded.indices
    assert np.array_equal(fill_reducing_order(*pattern), sparse_cholesky._order_by_degree(*pattern))


def test_columns_of_many_entries_come_last():
    """Two columns that all rows have; and a matrix that has no other columns."""
    matrix = laplacian(grid(16), 258, 1.0)
    matrix[100], matrix[:, 100] = 1.0, 1.0
    matrix[7], matrix[:, 7] = 1.0, 1.0
    matrix[20, 7] = matrix[7, 20] = 0.0
    lower = sparse.csc_array(np.tril(matrix))
    order = fill_reducing_order(lower.indptr, lower.indices)
    assert order[-2:].tolist() == [7, 100]
    assert np.array_equal(np.sort(order), np.arange(258))
    n = 200
    lower = sparse.csc_array(np.tri(n))
    assert np.array_equal(fill_reducing_order(lower.indptr, lower.indices), np.arange(n))


def test_orders_that_are_none():
    for order in ([0, 0, 1], [0, 1], [1, 2, 3]):
        with pytest.raises(ValueError, match="order must have each of the numbers 0 to 2 once"):
            analysed(np.eye(3), order)


def test_entries_outside_the_pattern_are_refused():
    cholesky = analysed(MATRICES["tree"])
    with pytest.raises(ValueError, match="the pattern has no entry in row 61, column 3"):
        cholesky.positions([1, 61, 5], [0, 3, 5])
    assert len(cholesky.positions([], [])) == 0


@pytest.mark.sample(3)
@pytest.mark.parametrize("task", [1.0, 3e3, sparse_cholesky.PRODUCTS_PER_TASK])
@pytest.mark.parametrize("bad", [[0], [59], [70, 31, 86], [5, 6, 7, 8]])
@pytest.mark.parametrize("natural", [False, True])
def test_the_pivot_that_is_not_positive_is_named(bad, natural, task, monkeypatch):
    """The first one in the requested order, as in dense algebra, in the numbers of the matrix."""
    monkeypatch.setattr(sparse_cholesky, "PRODUCTS_PER_TASK", task)
    monkeypatch.setattr(sparse_cholesky, "MIN_LARGE_PRODUCTS", task)
    matrix = MATRICES["crossed"].copy()
    matrix[bad, bad] -= 1.001 * np.linalg.eigvalsh(matrix)[0] + 1e-3 * np.diag(matrix)[bad] + 1.0
    cut = matrix.copy()
    cut[bad, bad] = -1.0
    n = len(matrix)
    for item in (matrix, cut):
        lower = sparse.csc_array(np.tril(item))
        order = np.arange(n) if natural else fill_reducing_order(lower.indptr, lower.indices)
        first = reference.factor(item[np.ix_(order, order)])[1]
        expected = order[first - 1] + 1 if first else 0
        cholesky = analysed(item, order)
        for n_threads in (1, 2, 3):
            with Threads(n_threads) as threads:
                assert cholesky.factor(stored(cholesky, item), threads) == expected


@pytest.mark.parametrize("n", [3, 40, 300])
def test_nan_is_no_pivot(n):
    """Neither in loops nor in BLAS nor in tiles."""
    matrix = np.eye(n) + 1.0
    matrix[1, 1] = np.nan
    cholesky = analysed(np.ones((n, n)), np.arange(n))
    with Threads(1) as threads:
        assert cholesky.factor(stored(cholesky, matrix), threads) == 2


@pytest.mark.parametrize("n", [10_000, pytest.param(1_000_000, marks=pytest.mark.long)])
@pytest.mark.parametrize("natural", [False, True])
def test_chains_in_closed_form(n, natural):
    """AR(1): variances 1 / (1 - phi^2), and phi times that next to the diagonal; random walk: min(i, j) + 1."""
    at, phi = np.arange(n), 0.9
    indptr = np.concatenate([2 * at, [2 * n - 1]])
    cholesky = SparseCholesky(indptr, np.repeat(at, 2)[1:], at if natural else None)
    diagonal, beside = cholesky.positions(at, at), cholesky.positions(at[1:], at[:-1])
    results = []
    for n_threads in (1, 2):
        with Threads(n_threads) as threads:
            values = np.zeros(cholesky.n_entries)
            values[diagonal] = 1.0 + phi**2
            values[diagonal[[0, -1]]] = 1.0
            values[beside] = -phi
            assert cholesky.factor(values, threads) == 0
            np.testing.assert_allclose(cholesky.log_determinant(values), np.log1p(-(phi**2)), rtol=0, atol=LAST_BIT * n)
            cholesky.invert(values, threads)
            results.append(values)
    np.testing.assert_array_equal(*results)
    np.testing.assert_allclose(results[0][diagonal], 1.0 / (1.0 - phi**2), rtol=SUMS)
    np.testing.assert_allclose(results[0][beside], phi / (1.0 - phi**2), rtol=SUMS)
    with Threads(1) as threads:
        values[:] = 0.0
        values[diagonal], values[diagonal[-1]], values[beside] = 2.0, 1.0, -1.0
        assert cholesky.factor(values, threads) == 0
        cholesky.invert(values, threads)
    rounding = 10.0 * n**1.5 * EPS  # the condition is n^2
    np.testing.assert_allclose(values[diagonal], at + 1.0, rtol=rounding)
    np.testing.assert_allclose(values[beside], at[1:], rtol=rounding)


@pytest.mark.parametrize(
    ("n_groups", "n_above"), [(10_000, 100), pytest.param(1_000_000, 1000, marks=pytest.mark.long)]
)
def test_nested_groups_in_closed_form(n_groups, n_above):
    """Groups of m rows within groups: after those below, each group above is on its own."""
    at = np.arange(n_groups)
    home = at % n_above
    m = 1.0 + at % 7
    low, high = 0.5, 2.0  # precisions of the priors
    i, j = np.concatenate([n_groups + home, at]), np.concatenate([at, at])
    lower = sparse.coo_array((np.ones(len(i)), (i, j)), shape=(n_groups + n_above,) * 2).tocsc()
    cholesky = SparseCholesky(lower.indptr, lower.indices)
    rest = high + np.bincount(home, m * low / (low + m))
    share = m / (low + m)
    with Threads(2) as threads:
        values = np.zeros(cholesky.n_entries)
        values[cholesky.positions(i[:n_groups], j[:n_groups])] = m
        values[cholesky.positions(at, at)] = low + m
        above = n_groups + np.arange(n_above)
        values[cholesky.positions(above, above)] = high + np.bincount(home, m)
        assert cholesky.factor(values, threads) == 0
        expected = np.sum(np.log(low + m)) + np.sum(np.log(rest))
        np.testing.assert_allclose(cholesky.log_determinant(values), expected, rtol=SOLVES)
        cholesky.invert(values, threads)
    diagonal = cholesky.diagonal(values)
    np.testing.assert_allclose(diagonal[n_groups:], 1.0 / rest, rtol=SOLVES)
    np.testing.assert_allclose(diagonal[:n_groups], 1.0 / (low + m) + share**2 / rest[home], rtol=SOLVES)
    beside = values[cholesky.positions(n_groups + home, at)]
    np.testing.assert_allclose(beside, -share / rest[home], rtol=SOLVES)


@pytest.mark.parametrize("k", [60, pytest.param(1000, marks=pytest.mark.long)])
def test_columns_of_the_inverse_of_a_grid(k):
    """Columns that are solved for agree with the selected inverse, and their residuals are rounding."""
    edges, n = grid(k), k * k
    matrix = sparse.coo_array((-np.ones(len(edges)), edges.T), shape=(n, n))
    matrix = matrix + matrix.T
    matrix = (matrix + sparse.diags_array(0.01 - matrix.sum(axis=1))).tocsc()
    lower = sparse.tril(matrix).tocoo()
    cholesky = SparseCholesky(sparse.csc_array(lower).indptr, sparse.csc_array(lower).indices)
    values = np.zeros(cholesky.n_entries)
    values[cholesky.positions(lower.row, lower.col)] = lower.data
    chosen = np.random.default_rng(0).integers(n, size=4)
    with Threads(2) as threads:
        assert cholesky.factor(values, threads) == 0
        columns = cholesky.solve(values, np.eye(1, n) * 0.0 + (np.arange(n) == chosen[:, None]), threads)
        residual = columns @ matrix - (np.arange(n) == chosen[:, None])
        cholesky.invert(values, threads)
    assert np.max(np.abs(residual)) < 1e-14
    for j, column in zip(chosen, columns, strict=True):
        i = matrix.indices[matrix.indptr[j] : matrix.indptr[j + 1]]
        inverse = values[cholesky.positions(i, np.full(len(i), j))]
        np.testing.assert_allclose(inverse, column[i], rtol=0, atol=SOLVES * column[j])


def test_tiles_are_those_of_the_kernel():
    assert _core.load("supernodal", _core.BASELINE_VARIANT).TILE == 256
