"""Rows with few nonzeros over a sparse matrix: X' diag(rho) X into it, and x_i' Z x_i out of its selected inverse.

Where the products of each row go is found once, run by run of neighbouring columns. Sums over rows are those of a few
parts of the rows, added up in their order: how many parts depends on the rows alone, so the bits do not depend on the
number of threads.
"""

import numpy as np

from cavity.base.lazy_scipy import LazyModule, sparse
from cavity.linalg.tiled import ONE_THREAD
from cavity.runs.executors import split_range

_kernel = LazyModule("cavity._core.row_pairs")

ROWS_PER_CALL = 1 << 15  # of the kernel
MAX_PARTS = 16  # each has sums of its own
MIN_TERMS_PER_SUM = 6  # for each of these sums, at least: adding the parts up takes as long for one as a term
MAX_SUMS = 1 << 23  # of all parts
MAX_UNSORTED_SUMS = 1 << 16  # beyond which rows are sorted, as sums leave the cache
LOOKUPS_TO_KEEP = 1 << 16  # of places of pairs: 1 MB
ENTRIES_PER_CALL = 1 << 18  # of the pattern
MAX_TABLE = 4  # entries of a table of numbers for each key that is looked up in it


def _parts(terms, sums, n_rows):
    """Ranges of rows that are summed on their own, a power of 2, so that two threads have equally many."""
    several = min(MAX_PARTS, terms // (MIN_TERMS_PER_SUM * max(sums, 1)), MAX_SUMS // max(sums, 1))
    return split_range(n_rows, 1 << max(0, several.bit_length() - 1), ROWS_PER_CALL)


class RowPairs:
    """Rows x_i of a sparse X (N, n), and where the products of their entries stand in a pattern of X'X.

    Parameters
    ----------
    indptr, indices, data : array_like (N + 1,), (m,), (m,)
        X by rows; entries of a row in the same column add up.
    n : int
        Columns.
    has_sums : bool, default True
        Whether sums over rows will be needed, which decides on their order.

    Attributes
    ----------
    shape : tuple
        (N, n).
    products : CSC array (n, n)
        The lower triangle of the pattern of X'X, of ones.
    """

    def __init__(self, indptr, indices, data, n, has_sums=True):
        rows = sparse.csr_array((data, indices, indptr), shape=(len(indptr) - 1, n), dtype=float)
        if not rows.has_canonical_format:
            rows = rows.copy()
            rows.sum_duplicates()
        self.shape = rows.shape
        self._order, self._sums = None, None
        self._take(rows)
        self.products = self._find_products() if has_sums else None
        if has_sums and self.products.nnz > MAX_UNSORTED_SUMS:
            self._order = _sort_by_rarest_column(rows)
            self._take(rows[self._order])

    def _take(self, rows):
        self._indptr = np.ascontiguousarray(rows.indptr, np.int64)
        self._indices = np.ascontiguousarray(rows.indices, np.int32)
        self._data = np.ascontiguousarray(rows.data, float)

    def _find_products(self):
        """Return the pattern of X'X from that of the runs of its rows, which are far fewer than entries."""
        N, n = self.shape
        run_indptr, empty = np.empty(N + 1, np.int64), np.empty(0, np.int32)
        count = _kernel.runs(self._indptr, self._indices, run_indptr, empty, empty)[0]
        firsts, lengths = np.empty((2, count), np.int32)
        if count:
            _kernel.runs(self._indptr, self._indices, run_indptr, firsts, lengths)
        longest = int(np.max(lengths, initial=0)) + 1
        keys = firsts.astype(np.int64) * longest + lengths
        different, codes = find_distinct(keys, n * longest)
        runs = sparse.csr_array((np.ones(count, np.float32), codes, run_indptr), (N, len(different)))
        starts, sizes = different // longest, different % longest
        ends = np.cumsum(sizes)
        columns = np.arange(ends[-1] if len(ends) else 0) + np.repeat(starts - ends + sizes, sizes)
        members = sparse.csr_array((np.ones(len(columns), np.float32), columns, np.append(0, ends)), (len(ends), n))
        pattern = sparse.csc_array(sparse.tril(members.T @ ((runs.T @ runs) @ members)))
        pattern.data[:] = 1.0
        pattern.sort_indices()
        return pattern

    def place_in(self, indptr, rows):
        """Find where the products of each row are in a lower triangle by columns, rows in ascending order.

        Rows with two columns for which the pattern has no entry are marked in `is_missing`; where sums are needed,
        they are a ValueError.
        """
        N, indptr, rows = self.shape[0], np.ascontiguousarray(indptr, np.int32), np.ascontiguousarray(rows, np.int32)
        firsts = range(0, N, ROWS_PER_CALL)
        empty, run_indptr = np.empty(0, np.int32), np.empty(ROWS_PER_CALL + 1, np.int64)
        counts = [
            _kernel.runs(self._indptr[at : at + ROWS_PER_CALL + 1], self._indices, run_indptr, empty, empty)[1]
            for at in firsts
        ]
        self._first_pair = np.concatenate([[0], np.cumsum(counts, dtype=np.int64)])
        self.is_missing = np.zeros(N, bool)
        self._pairs, self._n_entries = np.empty(self._first_pair[-1], np.int32), len(rows)
        cache = np.full((LOOKUPS_TO_KEEP, 4), -1, np.int32)
        for pair, at in zip(self._first_pair, firsts, strict=False):
            arguments = self._pairs, int(pair), self.is_missing.view(np.int8), cache, at, min(at + ROWS_PER_CALL, N)
            row, column = _kernel.number(self._indptr, self._indices, indptr, rows, *arguments)
            if row >= 0 and self.products is not None:
                raise ValueError(f"the pattern has no entry in row {row}, column {column}")
        lengths = np.diff(self._indptr)
        self._longest = int(np.max(lengths, initial=1))
        if self.products is None:
            return
        self._parts = _parts(int(np.sum(lengths * (lengths + 1) // 2)), self.products.nnz, N)
        self._column_parts = _parts(len(self._data), self.shape[1], N)

    def sum(self, rho, threads):
        """Return X' diag(rho) X, rho (N,), by the entries (m,) of the pattern."""
        m = self._n_entries
        if self._sums is None:
            self._sums = np.empty((max(1, len(self._parts)), m))  # kept, as fresh memory takes as long as the sums
        rho, sums = self._sort(rho), self._sums
        sums.fill(0.0)
        tasks = [(*part, _kernel.add, (rho, part_sums)) for part, part_sums in zip(self._parts, sums, strict=False)]
        threads.run(self._with_pairs, tasks)
        if len(sums) == 1:
            return sums[0].copy()
        out, parts = np.empty(m), split_range(m, -(-m // (8 * ROWS_PER_CALL)))
        threads.run(_kernel.combine, [(sums, out, *part) for part in parts])
        return out

    def variances(self, inverse, threads):
        """Return x_i' Z x_i, (N,), from the entries (m,) of Z on the pattern."""
        out = np.empty(self.shape[0])
        threads.run(self._with_pairs, self._ranges(_kernel.variances, (inverse, out)))
        return self._unsort(out)

    def matvec(self, a, threads=ONE_THREAD):
        """Return X a, (N,)."""
        out = np.empty(self.shape[0])
        threads.run(self._with_columns, self._ranges(_kernel.matvec, (a, out)))
        return self._unsort(out)

    def transposed(self, tau, threads):
        """Return X' tau, (n,)."""
        tau, sums = self._sort(tau), np.zeros((max(1, len(self._column_parts)), self.shape[1]))
        parts = zip(self._column_parts, sums, strict=False)
        threads.run(self._with_columns, [(*part, _kernel.transposed, (tau, part_sums)) for part, part_sums in parts])
        for other in sums[1:]:
            sums[0] += other
        return sums[0]

    def _sort(self, values):
        """Put values of the rows into the order in which they are stored."""
        return values if self._order is None else values[self._order]

    def _unsort(self, values):
        """Put values of the stored rows into the order of the rows."""
        if self._order is None:
            return values
        out = np.empty_like(values)
        out[self._order] = values
        return out

    def _ranges(self, kernel, arguments):
        """Tasks of ROWS rows."""
        N = self.shape[0]
        return [(at, min(at + ROWS_PER_CALL, N), kernel, arguments) for at in range(0, N, ROWS_PER_CALL)]

    def _with_pairs(self, start, stop, kernel, arguments):
        """Call a kernel for the pairs of a range of rows, ROWS at a time."""
        rows = self._indptr, self._indices, self._data, self._pairs
        work = np.empty(self._longest)
        for at in range(start, stop, ROWS_PER_CALL):
            pair = int(self._first_pair[at // ROWS_PER_CALL])
            kernel(*rows, pair, work, *arguments, at, min(at + ROWS_PER_CALL, stop))

    def _with_columns(self, start, stop, kernel, arguments):
        """Call a kernel for the entries of a range of rows, ROWS at a time."""
        for at in range(start, stop, ROWS_PER_CALL):
            kernel(self._indptr, self._indices, self._data, *arguments, at, min(at + ROWS_PER_CALL, stop))


def subtract_products(indptr, rows, vectors, factors, entries, threads):
    """Subtract the sum of f u u' for vectors u, the rows of U (r, n), and their factors f from the entries (m,) of a
    lower triangle by columns.
    """
    n, u = len(indptr) - 1, np.ascontiguousarray(vectors.T)
    pattern = np.ascontiguousarray(indptr, np.int32), np.ascontiguousarray(rows, np.int32)
    parts = split_range(n, -(-len(entries) // ENTRIES_PER_CALL))
    threads.run(_kernel.subtract_products, [(*pattern, u, u * factors, entries, *part) for part in parts])


def _sort_by_rarest_column(rows):
    """Return an order of rows by the column of each that fewest rows have: neighbours then share most sums, which stay
    in the cache.
    """
    lengths, n = np.diff(rows.indptr), rows.shape[1]
    keys = np.bincount(rows.indices, minlength=n)[rows.indices] * n + rows.indices
    ends = rows.indptr[:-1][lengths > 0]
    rarest = np.full(len(lengths), -1, np.int64)
    rarest[lengths > 0] = np.minimum.reduceat(keys, ends) % n if len(ends) else -1
    return np.argsort(rarest, kind="stable")


def find_distinct(keys, size):
    """Return the different ones of whole numbers below `size` in ascending order, and the number of each key."""
    if size > MAX_TABLE * max(len(keys), 1):
        return np.unique(keys, return_inverse=True)
    is_there = np.zeros(size, bool)
    is_there[keys] = True
    different = np.flatnonzero(is_there)
    numbers = np.cumsum(is_there, dtype=np.int32)
    numbers -= 1
    return different, numbers[keys]
