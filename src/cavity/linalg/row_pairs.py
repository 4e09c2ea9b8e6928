"""Rows with few nonzeros over a sparse matrix: X' diag(rho) X into it, and x_i' Z x_i out of its selected inverse.

Where the products of each row go is found once. Sums over rows are those of a few parts of the rows, added up in their
order: how many parts depends on the rows alone, so the bits do not depend on the number of threads.
"""

from itertools import pairwise

import numpy as np

from cavity.base.lazy_scipy import LazyModule, sparse
from cavity.linalg.tiled import ONE_THREAD
from cavity.runs.executors import split_range

_kernel = LazyModule("cavity._core.row_pairs")

ROWS_PER_CALL = 1 << 15  # of the kernel
MAX_PARTS = 16  # each has sums of its own
MIN_TERMS_PER_SUM = 6  # for each of these sums, at least: adding the parts up takes as long for one as a term


def _parts(terms, sums, n_rows):
    """Ranges of rows that are summed on their own, a power of 2, so that two threads have equally many."""
    several = min(MAX_PARTS, terms // (MIN_TERMS_PER_SUM * max(sums, 1)))
    return split_range(n_rows, 1 << max(0, several.bit_length() - 1), ROWS_PER_CALL)


class RowPairs:
    """Rows x_i of a sparse X (N, n) over the pattern of a `SparseCholesky` (n, n), to which all entries of X'X belong.

    Parameters
    ----------
    indptr, indices, data : array_like (N + 1,), (m,), (m,)
        X by rows; entries of a row in the same column add up.
    cholesky : SparseCholesky

    Raises
    ------
    ValueError
        Where the pattern has no entry for two columns of a row.
    """

    def __init__(self, indptr, indices, data, cholesky):
        rows = sparse.csr_array((data, indices, indptr), shape=(len(indptr) - 1, cholesky.n), dtype=float)
        if not rows.has_canonical_format:
            rows = rows.copy()
            rows.sum_duplicates()
        self.shape = rows.shape
        self._indptr = np.ascontiguousarray(rows.indptr, np.int64)
        self._indices = np.ascontiguousarray(rows.indices, np.int32)
        self._data = np.ascontiguousarray(rows.data, float)
        self._number(cholesky)

    def _number(self, cholesky):
        """Find the entries of X'X and, for each pair of each row, which one it is."""
        N = self.shape[0]
        lengths = np.diff(self._indptr)
        counts = np.add.reduceat(lengths * (lengths + 1) // 2, range(0, N, ROWS_PER_CALL)) if N else []
        self._first_pair = np.concatenate([[0], np.cumsum(counts, dtype=np.int64)])
        total, count = int(self._first_pair[-1]), 0
        self._pairs = np.empty(total, np.int32)
        numbers, entries = (
            np.zeros(cholesky.n_entries, np.int32),
            np.empty(min(total, cholesky.n_entries), np.int64),
        )
        for start, (pair, end) in zip(range(0, N, ROWS_PER_CALL), pairwise(self._first_pair), strict=True):
            left, right = np.empty((2, end - pair), np.int64)
            _kernel.columns(self._indptr, self._indices, start, min(start + ROWS_PER_CALL, N), left, right)
            count = _kernel.number(cholesky.positions(left, right), numbers, entries, count, self._pairs[pair:end])
        self._entries = entries[:count].copy()
        self._parts = _parts(total, count, N)
        self._column_parts = _parts(len(self._data), self.shape[1], N)

    def add(self, rho, values, threads):
        """Add X' diag(rho) X, rho (N,), to the matrix that stands in `values` (n_entries,)."""
        m = len(self._entries)
        sums = np.zeros((max(1, len(self._parts)), m))
        tasks = [(*part, _kernel.add, (rho, part_sums)) for part, part_sums in zip(self._parts, sums, strict=False)]
        threads.run(self._with_pairs, tasks)
        parts = split_range(m, -(-m // (8 * ROWS_PER_CALL)))
        threads.run(_kernel.combine, [(sums, self._entries, values, *part) for part in parts])

    def variances(self, inverse, threads):
        """Return x_i' Z x_i, (N,), from the selected inverse Z (n_entries,)."""
        out = np.empty(self.shape[0])
        threads.run(self._with_pairs, self._ranges(_kernel.variances, (inverse[self._entries], out)))
        return out

    def matvec(self, a, threads=ONE_THREAD):
        """Return X a, (N,)."""
        out = np.empty(self.shape[0])
        threads.run(self._with_columns, self._ranges(_kernel.matvec, (a, out)))
        return out

    def transposed(self, tau, threads):
        """Return X' tau, (n,)."""
        sums = np.zeros((max(1, len(self._column_parts)), self.shape[1]))
        parts = zip(self._column_parts, sums, strict=False)
        threads.run(self._with_columns, [(*part, _kernel.transposed, (tau, part_sums)) for part, part_sums in parts])
        for other in sums[1:]:
            sums[0] += other
        return sums[0]

    def _ranges(self, kernel, arguments):
        """Tasks of ROWS rows."""
        N = self.shape[0]
        return [(at, min(at + ROWS_PER_CALL, N), kernel, arguments) for at in range(0, N, ROWS_PER_CALL)]

    def _with_pairs(self, start, stop, kernel, arguments):
        """Call a kernel for the pairs of a range of rows, ROWS at a time."""
        for at in range(start, stop, ROWS_PER_CALL):
            pair = int(self._first_pair[at // ROWS_PER_CALL])
            kernel(self._indptr, self._data, self._pairs, pair, *arguments, at, min(at + ROWS_PER_CALL, stop))

    def _with_columns(self, start, stop, kernel, arguments):
        """Call a kernel for the entries of a range of rows, ROWS at a time."""
        for at in range(start, stop, ROWS_PER_CALL):
            kernel(self._indptr, self._indices, self._data, *arguments, at, min(at + ROWS_PER_CALL, stop))
