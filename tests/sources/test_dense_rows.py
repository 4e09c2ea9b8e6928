"""Rows of numbers as Gaussian processes take them: the same from memory, from files and from tables."""

import re

import numpy as np
import pandas
import pytest
from scipy import sparse

from cavity.sources.dataset import Dataset
from cavity.sources.dense_rows import in_blocks, open_dense, read_dense, sample_dense
from cavity.sources.stored_rows import StoredRows

X = np.random.default_rng(0).normal(size=(50, 3))
BLOCK = 8


def table():
    """Return rows as a table with columns of several types, and as an array."""
    frame = pandas.DataFrame({"a": X[:, 0], "b": np.arange(50), "c": X[:, 2] > 0})
    return frame, frame.to_numpy(dtype=np.float64)


def mapped(folder):
    """Return rows mapped from a file."""
    np.save(folder / "X.npy", X)
    return np.load(folder / "X.npy", mmap_mode="r")


def test_arrays_are_not_copied():
    dataset = Dataset.open(X)
    assert read_dense(dataset, 3) is open_dense(dataset, BLOCK, 3) is sample_dense(dataset) is X
    blocks = in_blocks(X, BLOCK)
    assert (blocks.block_count, blocks.block_rows) == (7, BLOCK)
    assert np.shares_memory(blocks.read(1), X)


@pytest.mark.parametrize("kind", ["file", "mapped"])
def test_rows_in_files_are_read_in_blocks(tmp_path, kind):
    rows = mapped(tmp_path)
    dataset = Dataset.open(rows if kind == "mapped" else tmp_path / "X.npy")
    stored = open_dense(dataset, BLOCK, 3)
    assert isinstance(stored, StoredRows)
    assert in_blocks(stored, BLOCK) is stored
    mask = np.arange(50) % 3 > 0
    picked = stored[mask]
    assert picked.block_rows == stored.block_rows == BLOCK
    for result, expected in ((stored.rows(), X), (picked.rows(), X[mask]), (read_dense(dataset), X)):
        np.testing.assert_array_equal(result, expected)
    np.testing.assert_array_equal(sample_dense(dataset), X)
    with pytest.raises(ValueError, match="X must have 2 columns like the data of the fit, got 3"):
        open_dense(dataset, BLOCK, 2)


def test_tables_of_several_blocks_are_converted_block_by_block():
    frame, array = table()
    dataset = Dataset.open(frame)
    assert isinstance(open_dense(dataset, 49), StoredRows)
    for rows in (open_dense(dataset, 49).rows(), open_dense(dataset, 50), read_dense(dataset), sample_dense(dataset)):
        assert isinstance(rows, np.ndarray)
        assert rows.flags.c_contiguous
        np.testing.assert_array_equal(rows, array)


def test_dates_are_days():
    days = np.arange(np.datetime64("1970-01-02"), np.datetime64("1970-01-12"))
    frame = pandas.DataFrame({"day": days, "size": np.arange(10.0)})
    expected = np.column_stack([np.arange(1.0, 11.0), np.arange(10.0)])
    for rows in (open_dense(Dataset.open(frame), BLOCK), read_dense(Dataset.open(frame))):
        np.testing.assert_array_equal(rows, expected)


def test_what_is_refused(tmp_path):
    with pytest.raises(TypeError, match=re.escape("X is sparse, which Gaussian processes have no use for")):
        read_dense(Dataset.open(sparse.csr_array(X)))
    with pytest.raises(ValueError, match=re.escape("got shape (3,); X[None, :] makes it one row")):
        read_dense(Dataset.open(X[0]), 3)
    for n_features in (None, 1, 2):
        with pytest.raises(ValueError, match=re.escape("got shape (3,); X[:, None] makes numbers one column")):
            read_dense(Dataset.open(X[0]), n_features)
    with pytest.raises(ValueError, match="X must have 2 columns like the data of the fit, got 3"):
        read_dense(Dataset.open(X), 2)
    bad = X.copy()
    bad[4, 1] = np.nan
    np.save(tmp_path / "bad.npy", bad)
    for read in (read_dense, sample_dense):
        for data in (bad, tmp_path / "bad.npy"):
            with pytest.raises(ValueError, match=r"X must be finite, got (nan in row 4|X\[4, 1\] = nan)"):
                read(Dataset.open(data))
