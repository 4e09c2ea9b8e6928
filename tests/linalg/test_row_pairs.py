"""Sums over sparse rows against dense algebra, and with the same bits for all threads."""

import numpy as np
import pytest
from scipy import sparse
from support.tolerances import ROUNDING, SOLVES, SUMS

from cavity.linalg import row_pairs
from cavity.linalg.row_pairs import RowPairs
from cavity.linalg.sparse_cholesky import SparseCholesky
from cavity.runs.executors import Threads

SHAPES = {  # rows, columns, nonzeros of a row, parts of the rows that are summed on their own
    "one": (1, 1, 1, 1),
    "many rows an entry": (3000, 9, 3, 16),
    "few rows an entry": (3000, 300, 4, 1),
    "some": (5000, 30, 3, 8),
    "empty rows": (500, 4, 0, 1),
}


def draw(N, n, k):
    """Rows with k entries, some of them in the same column, and others with fewer."""
    rng = np.random.default_rng(N)
    keep = rng.uniform(size=N * k) < 0.9
    indptr = np.concatenate([[0], np.cumsum(keep.reshape(N, k).sum(axis=1))])
    return indptr, rng.integers(n, size=N * k)[keep], rng.normal(size=N * k)[keep], rng


def over(indptr, indices, data, n):
    """The rows, densely, and over the pattern of X'X and the diagonal."""
    X = sparse.csr_array((data, indices, indptr), shape=(len(indptr) - 1, n), copy=True)
    lower = sparse.csc_array(sparse.tril(abs(X).T @ abs(X) + sparse.eye_array(n)))
    lower.sort_indices()
    pairs = RowPairs(indptr, indices, data, n)
    assert np.array_equal(pairs.products.toarray(), np.tril((abs(X).T @ abs(X)).toarray() != 0))
    pairs.place_in(lower.indptr, lower.indices)
    return X.toarray(), lower, pairs


@pytest.mark.parametrize("is_sorted", [False, True])
@pytest.mark.parametrize("name", SHAPES)
def test_dense_algebra(name, is_sorted, monkeypatch):
    """Rows in their order, and those of one column together, as where sums are many."""
    monkeypatch.setattr(row_pairs, "ROWS_PER_CALL", 64)
    monkeypatch.setattr(row_pairs, "MAX_UNSORTED_SUMS", -1 if is_sorted else 1000)
    N, n, k, parts = SHAPES[name]
    indptr, indices, data, rng = draw(N, n, k)
    X, lower, pairs = over(indptr, indices, data, n)
    assert len(pairs._parts) == parts
    assert pairs.shape == (N, n)
    rho, tau, a = rng.normal(size=N), rng.normal(size=N), rng.normal(size=n)
    u, factors = rng.normal(size=(3, n)), np.array([1.0, -1.0, 2.0])
    i, j = lower.indices, np.repeat(np.arange(n), np.diff(lower.indptr))
    results = []
    for n_threads in (1, 2, 3):
        with Threads(n_threads) as threads:
            inverse = np.cos(i + j)  # any symmetric matrix
            variances = pairs.variances(inverse, threads)
            less = inverse.copy()
            row_pairs.subtract_products(lower.indptr, lower.indices, u, factors, less, threads)
            results.append(
                (pairs.sum(rho, threads), variances, pairs.matvec(a, threads), pairs.transposed(tau, threads), less)
            )
    for other in results[1:]:
        for one, two in zip(results[0], other, strict=True):
            np.testing.assert_array_equal(one, two)
    values, variances, Xa, sums, less = results[0]
    Z = np.zeros((n, n))
    Z[i, j] = Z[j, i] = np.cos(i + j)
    scale = np.abs(X).T @ (np.abs(rho)[:, None] * np.abs(X)) + 2.0
    expected = X.T @ (rho[:, None] * X)
    np.testing.assert_allclose(values / scale[i, j], expected[i, j] / scale[i, j], rtol=0, atol=ROUNDING)
    np.testing.assert_allclose(less, (Z - u.T @ (factors[:, None] * u))[i, j], rtol=0, atol=SUMS)
    np.testing.assert_allclose(variances, np.sum((X @ Z) * X, axis=1), rtol=0, atol=SOLVES)
    np.testing.assert_allclose(Xa, X @ a, rtol=0, atol=SUMS)
    np.testing.assert_allclose(sums, X.T @ tau, rtol=0, atol=ROUNDING * np.sum(np.abs(X).T @ np.abs(tau)))


def test_variances_of_rows_from_the_selected_inverse():
    indptr, indices, data, rng = draw(400, 60, 3)
    X, lower, pairs = over(indptr, indices, data, 60)
    rho, cholesky = rng.uniform(size=400), SparseCholesky(lower.indptr, lower.indices)
    values, columns = np.zeros(cholesky.n_entries), np.repeat(np.arange(60), np.diff(lower.indptr))
    at = cholesky.positions(lower.indices, columns)
    with Threads(2) as threads:
        values[at] = pairs.sum(rho, threads) + 0.1 * (lower.indices == columns)
        assert cholesky.factor(values, threads) == 0
        cholesky.invert(values, threads)
        result = pairs.variances(values[at], threads)
    covariance = np.linalg.inv(0.1 * np.eye(60) + X.T @ (rho[:, None] * X))
    np.testing.assert_allclose(result, np.sum((X @ covariance) * X, axis=1), rtol=SOLVES)


def test_the_rows_of_the_caller_stay_as_they_are():
    indptr, indices, data = np.array([0, 3]), np.array([1, 0, 1]), np.array([1.0, 2.0, 3.0])
    _, _, pairs = over(indptr, indices, data, 2)
    np.testing.assert_array_equal(indices, [1, 0, 1])
    np.testing.assert_array_equal(data, [1.0, 2.0, 3.0])
    np.testing.assert_array_equal(pairs.matvec(np.array([10.0, 1.0])), [24.0])


def test_columns_that_the_pattern_does_not_join():
    pairs = RowPairs(np.array([0, 1, 3]), np.array([1, 0, 2]), np.ones(3), 3)
    with pytest.raises(ValueError, match="the pattern has no entry in row 2, column 0"):
        pairs.place_in(np.arange(4), np.arange(3))


@pytest.mark.parametrize("N", [10_000, pytest.param(1_000_000, marks=pytest.mark.long)])
def test_memory(N):
    """A million rows of five nonzeros, groups nested in groups and three numbers, take less than 250 MB."""
    at = np.arange(N) % (N // 10)
    columns = [at, N // 10 + at % (N // 1000), *(np.full(N, N // 10 + N // 1000 + k) for k in range(3))]
    n = N // 10 + N // 1000 + 3
    pairs, diagonal = over_groups(np.column_stack(columns), n)
    held = sum(a.nbytes for a in vars(pairs).values() if isinstance(a, np.ndarray))
    assert held < 250 * N
    with Threads(2) as threads:
        sums = pairs.sum(np.ones(N), threads)[diagonal]
    np.testing.assert_array_equal(sums, np.bincount(np.column_stack(columns).ravel(), minlength=n))


def over_groups(columns, n):
    """Rows of ones in these columns, and the places of the diagonal among the sums."""
    N, k = columns.shape
    pairs = RowPairs(np.arange(0, N * k + 1, k), columns.ravel(), np.ones(N * k), n)
    pairs.place_in(pairs.products.indptr, pairs.products.indices)
    return pairs, pairs.products.indptr[:-1]
