"""Rows of codes against dense matrices."""

import numpy as np
import pytest
from scipy import sparse
from support.tolerances import SOLVES

from cavity.linalg.coded_rows import CodedRows
from cavity.runs.executors import Threads


def make_rows(rng, N, sizes, columns, levels, n):
    """Return rows whose parts have some rows and columns, in a random order of n columns."""
    order = rng.permutation(n).astype(np.int32)
    codes = np.array([rng.integers(m, size=N) for m in sizes], np.uint16)
    parts, start = [], levels
    for m, k in zip(sizes, columns, strict=True):
        values = rng.normal(size=(m, k)) * (rng.uniform(size=(m, k)) < 0.6)
        dense = np.zeros((m, n))
        dense[:, order[start : start + k]] = values
        parts.append(sparse.csr_array(dense))
        start += k
    if not levels:
        return CodedRows(codes, parts)
    return CodedRows(codes, parts, order[rng.integers(levels, size=N)], rng.normal(size=N))


@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize(
    ("N", "sizes", "columns", "levels"),
    [
        (1, [1], [1], 0),
        (300, [7], [4], 0),
        (300, [7, 5], [3, 2], 0),
        (500, [6, 1, 9], [4, 1, 3], 40),
        (40, [3], [2], 90),
    ],
)
def test_sums_over_rows_of_codes_are_those_of_the_dense_matrix(N, sizes, columns, levels, threads):
    rng = np.random.default_rng(0)
    rows = make_rows(rng, N, sizes, columns, levels, levels + sum(columns) + 2)
    X, pairs = rows.tocsr().toarray(), rows.pairs()
    pattern = sparse.csc_array(sparse.tril(pairs.products + sparse.eye_array(X.shape[1])))
    pattern.sort_indices()
    pairs.place_in(pattern.indptr, pattern.indices)
    i, j = pattern.indices, np.repeat(np.arange(X.shape[1]), np.diff(pattern.indptr))
    assert np.all((pairs.products.toarray() > 0) >= (np.tril(abs(X).T @ abs(X)) > 0))
    rho, tau, a = rng.uniform(size=N), rng.normal(size=N), rng.normal(size=X.shape[1])
    root = rng.normal(size=(X.shape[1], X.shape[1]))
    Z = root @ root.T
    with Threads(threads) as workers:
        product = X.T @ (rho[:, None] * X)
        np.testing.assert_allclose(pairs.sum(rho, workers), product[i, j], rtol=0, atol=SOLVES)
        np.testing.assert_allclose(pairs.transposed(tau, workers), X.T @ tau, rtol=0, atol=SOLVES)
        np.testing.assert_allclose(pairs.matvec(a, workers), X @ a, rtol=0, atol=SOLVES)
        there = np.zeros_like(Z)
        there[i, j] = there[j, i] = Z[i, j]
        expected = np.einsum("ni,ij,nj->n", X, there, X)
        np.testing.assert_allclose(pairs.variances(Z[i, j], workers), expected, rtol=0, atol=SOLVES)


def test_rows_of_codes_are_equal_where_their_keys_are():
    rng = np.random.default_rng(1)
    rows = make_rows(rng, 200, [2, 2], [2, 1], 5, 8)
    some = rows[np.array([3, 3, 7])]
    np.testing.assert_array_equal(some.tocsr().toarray(), rows.tocsr().toarray()[[3, 3, 7]])
    assert np.array_equal(some.keys().toarray()[0], some.keys().toarray()[1])
    assert not np.array_equal(some.keys().toarray()[0], some.keys().toarray()[2])
    np.testing.assert_array_equal(some.count_entries(), np.count_nonzero(some.tocsr().toarray(), axis=1))
