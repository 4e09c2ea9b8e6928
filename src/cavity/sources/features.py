"""Features of rows, as linear models take them: an array, a CSR matrix, or rows of files and remote collections.

These are the operations that differ between the four kinds; whatever else is done is done with blocks of rows.
"""

from functools import partial

import numpy as np

from cavity.base import arrays, column_statistics
from cavity.base.rows import check_design_matrix
from cavity.base.sparse import to_csr
from cavity.jobs.job import SILENT_JOB
from cavity.runs.executors import Threads
from cavity.runs.merge import split_rows
from cavity.runs.passes import map_runs
from cavity.sources import formats
from cavity.sources.dataset import IN_FILES, IN_MEMORY, ON_WORKERS
from cavity.sources.read_ahead import iterate_blocks
from cavity.sources.source_parts import SparseRows
from cavity.sources.sources import Source
from cavity.sources.stored_rows import StoredRows

SPARSE_KIND = "sparse"
ROWS_PER_BLOCK = 8192  # rows that are converted, and worked on, at a time


def open_features(dataset, approximation):
    """Return the features of a dataset checked; numbers of rows in files are checked by `scan`.

    Fewer rows than columns are read: the full approximation works with them as a whole.

    Returns
    -------
    ndarray (N, D), CSR matrix, or StoredRows
    """
    X = dataset.X
    if dataset.kind == IN_MEMORY:
        return check_design_matrix(X, approximation)
    arrays.check_ndim(X, "X", (2,))
    matrix = X.view(0, X.n_rows)
    if isinstance(X.parts[0], SparseRows) and len(X.parts) == 1 and approximation == "diagonal":
        matrix = X.parts[0].matrix
    if matrix is not None:
        return check_design_matrix(matrix, approximation)
    stored = StoredRows(X.parts, "X")
    if X.n_rows >= X.n_features or approximation == "diagonal":
        return stored
    return np.concatenate([x.copy() for _, x in stored.checked_blocks()])


def kind_of(X):
    """Return MEMORY, SPARSE, FILES or REMOTE."""
    if isinstance(X, Source):
        return IN_FILES if not X.is_remote else ON_WORKERS
    return SPARSE_KIND if hasattr(X, "tocsr") else IN_MEMORY


def scan(X, weights, job=SILENT_JOB):
    """Check the numbers of rows in files and find the limits of their columns; the progress is reported to the job."""
    if isinstance(X, Source):
        X.scan_columns(weights, job)


def column_limits(X):
    """Return rows that have the largest and the least value of each column among them: X itself if it is in memory."""
    return np.stack([X.low, X.high]) if isinstance(X, Source) else X


def reach_of(X):
    """Return bounds of the largest magnitudes in the rows of X, of the least and of the largest of them.

    Where X is in memory nothing is known without a look: they are 0 and infinity.
    """
    return (X.least, max(*X.high, *-X.low)) if isinstance(X, Source) else (0.0, np.inf)


def iterate_checked_blocks(X):
    """Yield (slice, rows) of all rows; ValueError naming the first number in files that is not finite."""
    return X.checked_blocks(ROWS_PER_BLOCK) if isinstance(X, Source) else iterate_blocks(X, ROWS_PER_BLOCK)


def iterate_large_blocks(X):
    """Yield (slice, rows) of all rows, those in memory at once; ValueError as `checked_blocks`."""
    return X.checked_blocks() if isinstance(X, Source) else [(slice(None), X)]


def find_constant_columns(X, weights):
    """Return which columns of X have one value other than 0, a mask (D,)."""
    return (X.low == X.high) & (X.low != 0) if isinstance(X, Source) else column_statistics.constant_columns(X, weights)


def compute_column_scales(X, weights):
    """Return the mean and the standard deviation of each column of X, not of a sparse matrix."""
    return column_statistics.column_scales(
        X, weights, iterate_blocks, _remote_sums if kind_of(X) == ON_WORKERS else None
    )


def _remote_sums(X, step, *extra, weights):
    """Yield the sums of blocks of so many rows in order, of a collection of dask."""
    with Threads(1) as thread:
        for sums in map_runs(_sums_of, (*extra, weights), [Source(X.parts, X.name, step)], thread):
            yield from sums


def _sums_of(run, broadcast):
    """A task: the sums of the blocks of a run."""
    *extra, weights = broadcast
    parts = ((slice(start, start + len(x)), x) for start, (x,) in run.blocks())
    return [column_statistics.sum_block(x, *extra, None if weights is None else weights[part]) for part, x in parts]


def prepare_rows(X, centre, spread, intercept):
    """Return rows as the weights take them: divided by `spread` about `centre`, if there are any, ones put before them.

    Parameters
    ----------
    X : ndarray (n, D), scipy.sparse, or StoredRows
        Rows; sparse ones stay sparse where they are not scaled.
    centre, spread : ndarray (D,) or None
        What is subtracted from each column, and what it is then divided by.
    intercept : bool
        Whether there is a column of ones.

    Returns
    -------
    ndarray, CSR array, or StoredRows
        In memory of its own; rows in files are prepared whenever they are read.
    """
    kind = kind_of(X)
    if kind == SPARSE_KIND and centre is None:
        return _with_ones(X) if intercept else X
    if kind in (IN_FILES, ON_WORKERS):
        prepared = partial(prepare_rows, centre=centre, spread=spread, intercept=intercept)
        return X.map_rows(prepared, X.shape[1] + intercept, float(intercept))
    X = X.toarray() if kind == SPARSE_KIND else X
    out, first = np.empty((len(X), intercept + X.shape[1])), int(intercept)
    for start, stop in split_rows(len(X), ROWS_PER_BLOCK):  # Ctrl-C takes effect in between
        columns = out[start:stop, first:]
        out[start:stop, :first] = 1.0
        arrays.copy_real(X[start:stop], columns)
        if centre is not None:
            columns -= centre
            columns /= spread
    return out


def append_ones(X):
    """Return rows in memory, sparse ones as CSR, or a dask array of rows, with a column of ones after the others."""
    if formats.is_collection(X):
        return X.map_blocks(append_ones, chunks=(X.chunks[0], (X.shape[1] + 1,)), dtype=X.dtype)
    ones = np.ones((X.shape[0], 1), dtype=X.dtype)
    if kind_of(X) == IN_MEMORY:
        return np.hstack([X, ones])
    from scipy import sparse  # takes a while to load

    return sparse.hstack([X, ones], format="csr")


def check_sparse(X, name):
    """Return a sparse matrix as CSR, checked; anything else as it is."""
    return to_csr(X, name) if kind_of(X) == SPARSE_KIND else X


def _with_ones(X):
    """Return a CSR array with a column of ones before the others."""
    from scipy import sparse  # takes a while to load

    n, d = X.shape
    indptr = (X.indptr + np.arange(n + 1)).astype(np.int64 if X.nnz + n > np.iinfo(np.int32).max else np.int32)
    ones = np.zeros(X.nnz + n, dtype=bool)
    ones[indptr[:-1]] = True
    data, indices = np.ones(len(ones)), np.zeros(len(ones), dtype=indptr.dtype)
    data[~ones] = X.data
    indices[~ones] = X.indices
    indices[~ones] += 1
    return sparse.csr_array((data, indices, indptr), shape=(n, d + 1))
