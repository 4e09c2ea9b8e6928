"""Sparse Cholesky factors with selected inverses, beside SciPy's sparse LU and dense algebra of the same size.

Run by `python benchmarks/run.py`, or `pytest benchmarks/cases/bench_sparse_cholesky.py`. Every implementation is
compared with another one before it is timed.
"""

from functools import cache

import numpy as np
import pytest
from scipy import sparse
from scipy.linalg import lapack
from scipy.sparse.linalg import splu

from cavity.linalg.sparse_cholesky import SparseCholesky
from cavity.runs.executors import Threads, single_blas

STUDENTS, LECTURERS, RATINGS = 2972, 1128, 73_421


def grid():
    """Neighbours on a grid of 300 by 300; no order is given."""
    k = 300
    path = sparse.diags_array([-np.ones(k - 1), np.full(k, 2.1), -np.ones(k - 1)], offsets=[-1, 0, 1])
    return (sparse.kron(sparse.eye_array(k), path) + sparse.kron(path, sparse.eye_array(k))).tocsc(), None


def chain():
    """An autoregression in time, in its order."""
    n = 1_000_000
    beside = np.full(n - 1, -0.9)
    return sparse.diags_array([beside, np.full(n, 1.81), beside], offsets=[-1, 0, 1]).tocsc(), np.arange(n)


def crossed():
    """Ratings of lecturers by students: once the students are eliminated, the lecturers are a dense block."""
    rng = np.random.default_rng(0)
    pairs = np.stack([rng.integers(STUDENTS, size=RATINGS), STUDENTS + rng.integers(LECTURERS, size=RATINGS)], axis=1)
    n = STUDENTS + LECTURERS
    X = sparse.csr_array((np.ones(2 * RATINGS), pairs.ravel(), np.arange(0, 2 * RATINGS + 1, 2)), shape=(RATINGS, n))
    return (X.T @ X + 4.0 * sparse.eye_array(n)).tocsc(), np.arange(n)


@cache
def problem(make):
    """A matrix, its analysis and its numbers in the storage."""
    matrix, order = make()
    lower = sparse.tril(matrix).tocoo()
    by_columns = lower.tocsc()
    cholesky = SparseCholesky(by_columns.indptr, by_columns.indices, order)
    start = np.zeros(cholesky.n_entries)
    start[cholesky.positions(lower.row, lower.col)] = lower.data
    return matrix, cholesky, start


def lapack_inverse(block):
    """The inverse of a dense matrix from its factor."""
    factor, _ = lapack.dpotrf(block, lower=1)
    return lapack.dpotri(factor, lower=1)[0]


def sparse_lu(matrix):
    """SciPy's LU; its own minimum degree, which is part of every call, is some tenths of it."""
    options = {"SymmetricMode": True}
    return splu(matrix, permc_spec="MMD_AT_PLUS_A", diag_pivot_thresh=0.0, options=options)


RIVALS = {grid: "splu", chain: "splu", crossed: "lapack"}


@pytest.mark.parametrize("name", ["cavity", "rival"])
@pytest.mark.parametrize("make", RIVALS)
def test_factor_and_selected_inverse(measure, make, name):
    """Of LU only the factor is timed: SciPy has no selected inverse."""
    matrix, cholesky, start = problem(make)
    values = start.copy()

    def cavity():
        np.copyto(values, start)
        assert cholesky.factor(values, threads) == 0
        cholesky.invert(values, threads)

    block = np.eye(LECTURERS) * 5.0 + 1.0
    rival = (lambda: lapack_inverse(block)) if make is crossed else (lambda: sparse_lu(matrix))
    with single_blas(), Threads(1) as threads:
        cavity()
        unit = np.zeros(cholesky.n)
        unit[3] = 1.0
        assert cholesky.diagonal(values)[3] == pytest.approx(sparse_lu(matrix).solve(unit)[3], rel=1e-9)
        who = "cavity" if name == "cavity" else RIVALS[make]
        call = cavity if name == "cavity" else rival
        measure(f"sparse Cholesky, {make.__name__}: factor, inverse", who, call, cholesky.n, "row of the matrix")
