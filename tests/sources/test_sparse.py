"""Sparse rows, filled into dense blocks."""

import numpy as np
import pytest

from cavity.sources.source_parts import ReadState, SparseRows

sparse = pytest.importorskip("scipy.sparse")
ROWS = np.where(np.random.default_rng(0).random((40, 6)) < 0.2, 1.5, 0.0)


@pytest.mark.parametrize("kind", ["csr", "csc", "coo", "lil"])
@pytest.mark.parametrize("dtype", ["f8", "f4", "i2", "?"])
def test_rows_are_those_of_the_dense_matrix(kind, dtype):
    dense = ROWS.astype(dtype)
    part = SparseRows(getattr(sparse, f"{kind}_array")(dense), "X")
    out = np.empty((17, 6))
    part.fill(out, 5, ReadState())
    np.testing.assert_array_equal(out, dense[5:22])
    assert (part.shape, part.view(0, 3), part.in_memory) == ((40, 6), None, True)


def test_entries_that_stand_twice_are_added():
    doubled = sparse.csr_array((np.ones(3), np.array([1, 1, 0]), np.array([0, 2, 3])), shape=(2, 2))
    out = np.empty((2, 2))
    SparseRows(doubled, "X").fill(out, 0, ReadState())
    assert out.tolist() == [[0.0, 2.0], [1.0, 0.0]]
