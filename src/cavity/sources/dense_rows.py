"""Rows of numbers as Gaussian processes take them: an array in memory, or blocks of rows of anything else."""

import numpy as np

from cavity.base import arrays
from cavity.base.frames import convert_dates, names_of
from cavity.base.rows import check_design_matrix, check_n_features
from cavity.runs.executors import Threads
from cavity.sources.source_parts import ArrayRows
from cavity.sources.sources import Source, open_source
from cavity.sources.stored_rows import StoredRows


class FiniteBlocks(Source):
    """Blocks of rows of an array that was checked."""

    def check_finite(self, rows, start):
        """Pass: all numbers are finite."""


def read_dense(dataset, n_features=None):
    """Return the features of a dataset checked, float64 in C order and aligned, of so many columns if that is known.

    Those of a Source are read, and dates become days.
    """
    X = convert_dates(dataset.X)
    if isinstance(X, Source):
        X = _check_finite(X).rows()
    if hasattr(X, "tocsr"):
        raise TypeError("X is sparse, which Gaussian processes have no use for: pass X.toarray()")
    if n_features != 1 and np.shape(X) == (n_features,):
        raise ValueError(f"X must have 2 dimension(s), got shape ({n_features},); X[None, :] makes it one row")
    if isinstance(X, np.ndarray) and X.ndim == 2 and not (X.dtype == np.float64 and X.flags.c_contiguous):
        arrays.allocate_matrix(X.shape, "X as float64 numbers")
    X = np.require(check_design_matrix(X, "full"), dtype=np.float64, requirements="CA")
    arrays.check_finite(X, "X")
    check_n_features(X.shape[1], n_features)
    return X


def open_dense(dataset, block_rows, n_features=None):
    """Return the features of a dataset: those of a table of several blocks, or not in memory, as `StoredRows`.

    Others are as `read_dense` returns them, a table of one block among them: it is converted once.
    """
    X = convert_dates(dataset.X)
    if not _is_stored(X) and (names_of(X) is None or len(X) <= block_rows):
        return read_dense(dataset, n_features)
    stored = StoredRows(open_source(X, "X", ndim=(2,), block_rows=block_rows).parts, "X", block_rows)
    check_n_features(stored.n_features, n_features)
    return stored


def sample_dense(dataset):
    """Return checked rows by which settings can be scaled: all of those in memory, of others some."""
    if not _is_stored(dataset.X):
        return read_dense(dataset)
    rows = open_source(dataset.X, "X", ndim=(2,))
    sample = rows.sample()
    if not np.isfinite(sample).all():
        _check_finite(rows)
    return sample


def in_blocks(X, block_rows):
    """Return what `open_dense` returned as a Source."""
    return X if isinstance(X, Source) else FiniteBlocks([ArrayRows(X, "X")], "X", block_rows)


def _is_stored(X):
    """Whether rows are in files, or mapped from one."""
    return isinstance(X, Source | np.memmap)


def _check_finite(X):
    """Return a Source; ValueError naming the first number in it that is not finite."""
    with Threads(1) as thread:
        X.summary(thread)
    return X
