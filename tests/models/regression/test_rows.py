"""Rows of regressions: what they are made of, and the check of their numbers in the first pass."""

import numpy as np
import pytest
from scipy import sparse

from cavity.models.regression.rows import RegressionRows, open_rows
from cavity.runs.executors import Threads
from cavity.sources.dataset import Dataset


def products(X, y, start, _):
    return X.T @ X, y @ X


@pytest.mark.parametrize("n_threads", [1, 2])
@pytest.mark.parametrize("kind", [np.array, np.asfortranarray, sparse.csr_matrix], ids=["rows", "columns", "sparse"])
def test_totals_are_those_of_all_rows(kind, n_threads):
    X = np.random.default_rng(0).integers(-3, 4, (23, 3)).astype(float)
    rows = RegressionRows.of(open_rows(Dataset.open(kind(X)), 4), np.arange(23.0))
    with Threads(n_threads) as threads:
        squares, sums = rows.total(products, None, threads)
    np.testing.assert_array_equal(squares, X.T @ X)
    np.testing.assert_array_equal(sums, np.arange(23.0) @ X)
    assert rows.n == 23


def test_what_is_not_finite_is_found_in_the_sums():
    X = np.ones((10, 2))
    rows = RegressionRows.of(open_rows(Dataset.open(X), 4), np.ones(10))
    X[6, 1] = np.inf
    with Threads(1) as thread, pytest.raises(ValueError, match=r"X must be finite, got X\[6, 1\] = inf"):
        rows.total(products, None, thread)
    X[6, 1] = 1e200
    with Threads(1) as thread, np.errstate(over="ignore"):
        squares, _ = rows.total(products, None, thread)
    assert np.isinf(squares[1, 1])
