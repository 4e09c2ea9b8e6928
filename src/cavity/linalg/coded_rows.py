"""Rows that are sums of a few parts, each with few different rows, and of the effect of one level among many.

With row i that of codes c_1i, ..., c_Ji, x_i = sum_j B_j[c_ji] + z_i e_(level of i), sums over rows are those over
pairs of codes [LW]_,

    X_j' diag(rho) X_k = B_j' T B_k,  T the sums of rho by pairs of codes,                                         (1)
    x_i' Z x_i = sum_jk (B_j Z B_k')[c_ji, c_ki] + ...,                                                            (2)

so that a row takes one addition for each pair of parts, however many columns they have.

References
----------
.. [LW] Z. Li and S. N. Wood, "Faster model matrix crossproducts for large generalized linear models with discretized
   covariates", Statistics and Computing 30, 2020.
"""

from itertools import combinations, pairwise

import numpy as np

from cavity.base.lazy_scipy import LazyModule, sparse
from cavity.linalg.row_pairs import RowPairs
from cavity.linalg.tiled import ONE_THREAD
from cavity.runs.executors import split_range

_kernel = LazyModule("cavity._core.coded_rows")

MAX_CODES = 1 << 10  # of a part: a table of pairs of codes stays near the cache
ROWS_PER_CALL = 1 << 18  # of the kernel: a table that another one takes the place of leaves the cache
LEVELS_PER_CALL = 1 << 10


class CodedRows:
    """The rows X (N, n) of a fit in parts.

    Parameters
    ----------
    codes : ndarray (J, N) of uint16
        The row of each part.
    parts : list of CSR array (m_j, n)
        The different rows of each part, whose columns no other part has.
    levels : ndarray (N,) of int, optional
        A column that no part has.
    z : ndarray (N,), optional
        What stands in it.
    """

    def __init__(self, codes, parts, levels=None, z=None):
        self.codes, self.parts, self.levels, self.z = codes, parts, levels, z
        self.shape = codes.shape[1], parts[0].shape[1]

    def __getitem__(self, index):
        levels, z = (None if a is None else a[index] for a in (self.levels, self.z))
        return CodedRows(np.ascontiguousarray(self.codes[:, index]), self.parts, levels, z)

    def tocsr(self):
        """Return the rows as a CSR array."""
        rows = sum(part[codes] for part, codes in zip(self.parts, self.codes, strict=True))
        if self.levels is None:
            return rows
        return sparse.csr_array(
            rows + sparse.csr_array((self.z, self.levels, np.arange(self.shape[0] + 1)), self.shape)
        )

    def keys(self):
        """Return a CSR array (N, k) whose rows are equal where those of X are."""
        columns = [*self.codes, *([] if self.levels is None else [self.levels, self.z])]
        N, k = self.shape[0], len(columns)
        indices = np.tile(np.arange(k, dtype=np.int32), N)
        return sparse.csr_array((np.column_stack(columns).astype(float).ravel(), indices, np.arange(N + 1) * k), (N, k))

    def count_entries(self):
        """Return how many entries each row has, (N,)."""
        counts = sum(np.diff(part.indptr)[codes] for part, codes in zip(self.parts, self.codes, strict=True))
        return counts if self.levels is None else counts + (self.z != 0.0)

    def pairs(self):
        """Return their sums, as `RowPairs` has them."""
        return CodedPairs(self)


class CodedPairs(RowPairs):
    """Sums over `CodedRows`, with the methods of `RowPairs`, of which only the order of rows is the same."""

    def __init__(self, rows):
        self.shape, self._parts, self._order = rows.shape, rows.parts, None
        self._codes, self._z, levels = np.ascontiguousarray(rows.codes), rows.z, rows.levels
        if levels is not None:
            # sorted by counting, as short numbers are
            short = levels if np.ptp(levels) >= 1 << 16 else (levels - np.min(levels)).astype(np.uint16)
            self._order = np.argsort(short, kind="stable")
            levels, self._z = levels[self._order], rows.z[self._order]
            self._codes = np.ascontiguousarray(self._codes[:, self._order])
            begins = np.flatnonzero(np.diff(levels, prepend=-1))
            self._level_columns, self._level_indptr = levels[begins], np.append(begins, len(levels))
        columns = [np.unique(part.indices) for part in self._parts]
        self._core = np.concatenate(columns)  # columns of parts, one part after the other
        self._own = [slice(*ends) for ends in pairwise(np.cumsum([0, *map(len, columns)]))]
        self._B = [sparse.csr_array(part[:, own]) for part, own in zip(self._parts, columns, strict=True)]
        self._couples = list(combinations(range(len(columns)), 2))
        self.products = self._find_products()

    def _find_products(self):
        """Return the lower triangle of the pattern of X'X."""
        n, core, own = self.shape[1], self._core, self._own
        inside = np.ones((len(core), len(core)), bool)
        for B, part in zip(self._B, own, strict=True):
            inside[part, part] = (abs(B).T @ abs(B)).toarray() > 0.0
        rows, columns = (core[index] for index in np.nonzero(inside))
        if self._order is not None:
            ones, levels = np.ones(self.shape[0], np.float32), self._level_columns
            level_rows = [
                sparse.csr_array((ones, codes.astype(np.int32), self._level_indptr), (len(levels), B.shape[0]))
                @ (B != 0).astype(np.float32)
                for B, codes in zip(self._B, self._codes, strict=True)
            ]
            pairs = sparse.coo_array(sparse.hstack(level_rows))
            rows = np.concatenate([rows, core[pairs.col], levels])
            columns = np.concatenate([columns, levels[pairs.row], levels])
        low, high = np.minimum(rows, columns), np.maximum(rows, columns)
        pattern = sparse.csc_array((np.ones(len(low), np.float32), (high, low)), (n, n))
        pattern.sum_duplicates()
        pattern.data[:] = 1.0
        return pattern

    def place_in(self, indptr, rows):
        """Find where the products are in a lower triangle by columns, rows in ascending order."""
        n, columns = self.shape[1], np.repeat(np.arange(self.shape[1]), np.diff(indptr))
        local = np.full(n, -1, np.int32)
        local[self._core] = np.arange(len(self._core))
        i, j = local[rows], local[columns]
        self._n_entries, self._core_places = len(rows), np.flatnonzero((i >= 0) & (j >= 0))
        self._core_entries = i[self._core_places], j[self._core_places]
        self._tables = [np.empty((self._B[j].shape[0], self._B[k].shape[0])) for j, k in self._couples]
        if self._order is None:
            return
        number = np.full(n, -1, np.int32)
        number[self._level_columns] = np.arange(len(self._level_columns))
        level = np.maximum(number[rows], number[columns])
        beside = np.flatnonzero((np.maximum(i, j) >= 0) & (np.minimum(i, j) < 0) & (level >= 0))
        beside = beside[np.argsort(level[beside], kind="stable")]
        entry_indptr = np.searchsorted(level[beside], np.arange(len(self._level_columns) + 1)).astype(np.int64)
        diagonal = np.flatnonzero((rows == columns) & (level >= 0)).astype(np.int64)
        sizes = np.array([B.shape[0] for B in self._B])
        first = np.concatenate([[0], *(np.diff(B.indptr) for B in self._B)]).cumsum().astype(np.int32)
        entries = [(B.indices + part.start, B.data) for B, part in zip(self._B, self._own, strict=True)]
        indices, values = (np.concatenate(parts) for parts in zip(*entries, strict=True))
        self._levels = (
            self._level_indptr.astype(np.int64), self._codes, (np.cumsum(sizes) - sizes).astype(np.int64), first,
            indices.astype(np.int32), values, self._z, entry_indptr, np.maximum(i, j)[beside].astype(np.int32),
            beside.astype(np.int64), diagonal,
        )  # fmt: skip

    def sum(self, rho, threads):
        """Return X' diag(rho) X, rho (N,), by the entries (m,) of the pattern."""
        rho, out = self._sort(rho), np.zeros(self._n_entries)
        codes, couples = self._codes, self._couples
        threads.run(
            _kernel.add_pairs, [(codes[j], codes[k], rho, T) for (j, k), T in zip(couples, self._tables, strict=True)]
        )
        self._call_by_level(threads, _kernel.add_levels, rho, out)
        core = np.zeros((len(self._core), len(self._core)))
        for (j, k), T in zip(couples, self._tables, strict=True):  # (1)
            product = (self._B[k].T @ (self._B[j].T @ T).T).T
            core[self._own[j], self._own[k]], core[self._own[k], self._own[j]] = product, product.T
        for B, part, weights in zip(self._B, self._own, self._add_codes(rho, threads), strict=True):
            core[part, part] = (B.T @ B.multiply(weights[:, None])).toarray()
        out[self._core_places] = core[self._core_entries]
        return out

    def variances(self, inverse, threads):
        """Return x_i' Z x_i, (N,), from the entries (m,) of Z on the pattern."""
        core, B, own, out = np.zeros((len(self._core), len(self._core))), self._B, self._own, np.zeros(self.shape[0])
        rows, columns = self._core_entries
        core[rows, columns] = core[columns, rows] = inverse[self._core_places]
        numbers = [np.asarray(b.multiply(b @ core[part, part]).sum(axis=1)) for b, part in zip(B, own, strict=True)]
        tables = [B[j] @ (B[k] @ (2.0 * core[own[k], own[j]])).T for j, k in self._couples]  # (2)
        self._look_up(numbers, threads, out, zip(self._couples, map(np.ascontiguousarray, tables), strict=True))
        self._call_by_level(threads, _kernel.add_level_variances, inverse, out)
        return self._unsort(out)

    def matvec(self, a, threads=ONE_THREAD):
        """Return X a, (N,)."""
        out = np.zeros(self.shape[0])
        if self._order is not None:
            out = self._z * np.repeat(a[self._level_columns], np.diff(self._level_indptr))
        self._look_up([part @ a for part in self._parts], threads, out)
        return self._unsort(out)

    def transposed(self, tau, threads):
        """Return X' tau, (n,)."""
        tau = self._sort(tau)
        out = sum(part.T @ sums for part, sums in zip(self._parts, self._add_codes(tau, threads), strict=True))
        if self._order is not None:
            out[self._level_columns] += np.add.reduceat(self._z * tau, self._level_indptr[:-1])
        return out

    def _add_codes(self, values, threads):
        """Return the sums of values of the stored rows by the codes of each part, a list."""
        sums = [np.zeros(part.shape[0]) for part in self._parts]
        threads.run(_kernel.add_codes, [(codes, values, out) for codes, out in zip(self._codes, sums, strict=True)])
        return sums

    def _look_up(self, numbers, threads, out, tables=()):
        """Add the numbers of the codes of each row, (m_j,) of each part, and those of pairs, to rows `out` (N,)."""
        tables = list(tables)

        def add(start, stop):
            for codes, of_codes in zip(self._codes, numbers, strict=True):
                _kernel.look_up(codes, of_codes, out, start, stop)
            for (j, k), table in tables:
                _kernel.look_up_pairs(self._codes[j], self._codes[k], table, out, start, stop)

        threads.run(add, split_range(self.shape[0], max(threads.count, -(-self.shape[0] // ROWS_PER_CALL))))

    def _call_by_level(self, threads, kernel, values, out):
        """Call a kernel for all levels, some of them at a time."""
        if self._order is None:
            return

        def call(start, stop):
            kernel(*self._levels, values, np.empty(len(self._core)), out, start, stop)

        n = len(self._level_columns)
        threads.run(call, split_range(n, -(-n // LEVELS_PER_CALL)))
