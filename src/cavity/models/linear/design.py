"""The rows of X of a GLM: an array, a sparse matrix, or rows that stay in files."""

from functools import partial

import numpy as np

from cavity.base import arrays, scales
from cavity.base.rows import design_matrix
from cavity.jobs.job import QUIET
from cavity.runs.executors import Threads
from cavity.runs.merge import starts
from cavity.runs.runs import map_runs
from cavity.sources.reading import each_block, is_elsewhere, is_stored
from cavity.sources.sources import Source, opened
from cavity.sources.sparse import SparseRows
from cavity.sources.stored import StoredRows

ROWS_TOGETHER = 8192  # rows that are converted, and worked on, at a time
MATRICES = 6  # of dependent weights, or of rows if they are fewer: sums, factor and root, before a step and after it
COPIES = 2  # of rows that are fewer than the columns: divided by the prior's root, and the directions that they span


def check_room(X, weights):
    """Raise MemoryError, before anybody looks at the rows, if matrices of dependent weights do not fit into memory."""
    shape = (X.n_rows, X.n_features) if isinstance(X, Source) else getattr(X, "shape", ())
    if len(shape) != 2 or hasattr(X, "tocsr"):  # which `design_of` has words for, or little data
        return
    n, d = shape[0] if weights is None else np.count_nonzero(weights), shape[1]
    words = "; approximation='diagonal' takes many columns", "approximation"
    arrays.matrices(MATRICES, (min(n, d), min(n, d)), f"approximation='full': {MATRICES} matrices, each", *words)
    if n < d:
        arrays.matrices(COPIES, (n, d), f"approximation='full': {COPIES} copies of X, each", *words)


def design_of(X, approximation):
    """Return X checked, as an array or CSR matrix; rows of files, but for few, stay there, and nobody looked at them.

    Fewer rows than columns are read: they are worked with as a whole.
    """
    if hasattr(X, "__next__") and not hasattr(X, "__array__"):
        X = opened(X, "X")  # TypeError: it can be seen once
    if not isinstance(X, Source):
        return design_matrix(X, approximation)
    arrays.check_ndim(X, "X", (2,))
    known = X.view(0, X.n_rows)
    if isinstance(X.parts[0], SparseRows) and len(X.parts) == 1 and approximation == "diagonal":
        known = X.parts[0].matrix
    if known is not None:
        return design_matrix(known, approximation)
    stored = StoredRows(X.parts, "X")
    if X.n_rows >= X.n_features or approximation == "diagonal":
        return stored
    return np.concatenate([x.copy() for _, x in stored.checked_blocks()])


def look(X, weights, job=QUIET):
    """Check the numbers of rows in files, once what else is given is known to be right; a job hears how far that is."""
    if is_stored(X):
        X.look(weights, job)


def constant_columns(X, weights):
    """Return which columns of X have one value other than 0, a mask (D,)."""
    return (X.low == X.high) & (X.low != 0) if is_stored(X) else scales.constant_columns(X, weights)


def column_scales(X, weights):
    """Return the mean and the standard deviation of each column of X, not of a sparse matrix."""
    return scales.column_scales(X, weights, each_block, _sums_elsewhere if is_elsewhere(X) else None)


def _sums_elsewhere(X, step, *about, weights):
    """Yield the sums of blocks of so many rows in order, of a collection of dask."""
    with Threads(1) as thread:
        for sums in map_runs(_sums_of, (*about, weights), [Source(X.parts, X.name, step)], thread):
            yield from sums


def _sums_of(run, known):
    """A task: the sums of the blocks of a run."""
    *about, weights = known
    parts = ((slice(start, start + len(x)), x) for start, (x,) in run.blocks())
    return [scales.block_sum(x, *about, None if weights is None else weights[part]) for part, x in parts]


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


def prepared_rows(X, centre, spread, intercept):
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
    if hasattr(X, "tocsr") and centre is None:
        return _with_ones(X) if intercept else X
    if is_stored(X):
        prepared = partial(prepared_rows, centre=centre, spread=spread, intercept=intercept)
        return X.changed(prepared, X.shape[1] + intercept, float(intercept))
    X = X.toarray() if hasattr(X, "toarray") else X
    out, first = np.empty((len(X), intercept + X.shape[1])), int(intercept)
    for start, stop in starts(len(X), ROWS_TOGETHER):  # Ctrl-C is heard in between
        columns = out[start:stop, first:]
        out[start:stop, :first] = 1.0
        arrays.copy_real(X[start:stop], columns)
        if centre is not None:
            columns -= centre
            columns /= spread
    return out
