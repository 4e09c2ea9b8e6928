"""Rows in the sparse format of the kernel for independent weights.

Rows of arrays and files become sparse in chunks, in every pass, so that there is never a copy of all of them.
"""

from dataclasses import dataclass

import numpy as np
from scipy import sparse

from cavity import _core
from cavity.ep.sites import find_tilted_moments
from cavity.jobs.job import SILENT_JOB
from cavity.likelihoods.base import encode_observations, has_kernel, kernel_settings
from cavity.runs.merge import split_rows
from cavity.sources.dataset import IN_MEMORY
from cavity.sources.features import kind_of
from cavity.sources.read_ahead import iterate_blocks

kernel = _core.load("diagonal", _core.BASELINE_VARIANT)

KERNEL_ROWS = 1 << 16  # rows per kernel call, between which there are checks for interrupts
CHUNK_NUMBERS = 1 << 20  # most numbers of rows that are not sparse turned into CSR at a time


@dataclass(frozen=True, slots=True)
class Nonzeros:
    """Rows as CSR has them."""

    indptr: np.ndarray
    indices: np.ndarray
    data: np.ndarray


def to_canonical_csr(X):
    """Return CSR of float64 with sorted column indices, none twice, and no stored zeros; X is not changed."""
    rows = X.tocsr()
    if rows.data.dtype != np.float64:
        rows = rows.astype(np.float64)
    canonical = rows.has_canonical_format
    if not canonical or not rows.data.all():
        rows = rows.copy()
        rows.sum_duplicates()
        rows.eliminate_zeros()
    return rows


def split_chunks(X):
    """Yield (slice of rows, their Nonzeros) in order: CSR at once, other rows in chunks."""
    if sparse.issparse(X):
        yield slice(0, X.shape[0]), Nonzeros(X.indptr, X.indices, X.data)
        return
    size, width = max(1, min(KERNEL_ROWS, CHUNK_NUMBERS // max(X.shape[1], 1))), X.shape[1]
    indices = np.tile(np.arange(width, dtype=np.int32), min(size, X.shape[0]))  # of rows without zeros
    for part, x in iterate_blocks(X, size):
        mask = x != 0
        indptr = np.append(0, np.cumsum(np.count_nonzero(mask, axis=1)))
        if indptr[-1] == x.size:
            yield part, Nonzeros(indptr, indices[: x.size], x.reshape(-1))
        else:
            yield part, Nonzeros(indptr, indices[: x.size][mask.reshape(-1)], x[mask])


def make_kernel_rows(nonzeros, offset, *likelihood):
    """Return the `Rows` of the kernel, with the settings of a likelihood and its observations."""
    indptr = nonzeros.indptr.astype(np.int64, copy=False)
    widest = int(np.diff(indptr).max()) if len(indptr) > 1 else 0
    indices = nonzeros.indices.astype(np.int32, copy=False)
    work = np.zeros((2, max(widest, 1), 2))
    offset = None if offset is None or offset.size == 0 else offset
    return kernel.Rows(
        indptr, np.ascontiguousarray(indices), np.ascontiguousarray(nonzeros.data), offset, work, *likelihood
    )


def split_calls(n):
    """Return the (start, stop) of the rows of kernel calls for n rows."""
    return split_rows(n, KERNEL_ROWS)


def check_width(X):
    """Raise ValueError for more columns than 32 bits count."""
    if X.shape[1] > np.iinfo(np.int32).max:
        raise ValueError(f"X must have at most 2^31 - 1 columns, got {X.shape[1]}")


def is_small(X):
    """Whether an array is kept as sparse rows: it has few numbers, or its nonzeros and their sites, 28 bytes each, take
    at most twice its memory.
    """
    return kind_of(X) == IN_MEMORY and (X.size <= CHUNK_NUMBERS or 28 * np.count_nonzero(X) <= 2 * 8 * X.size)


class ChunkedRows:
    """Rows with their likelihood: compiled where the kernel has p^e, else in Python, one row at a time."""

    def __init__(self, likelihood, rows, job=SILENT_JOB):
        self.job = job
        self.likelihood, self.y, self.weights, self.offset = likelihood, rows.y, rows.weights, rows.offset
        self.X, (self.n, self.d) = rows.X, rows.X.shape
        self.compiled = has_kernel(likelihood)
        self.settings = kernel_settings(likelihood) if self.compiled else (0,)
        self.read = encode_observations(likelihood, rows.y) if self.compiled else ()
        self._cached_chunks = list(self._make_chunks()) if sparse.issparse(self.X) or is_small(self.X) else None

    def chunks(self):
        """Yield the `Chunk`s of rows, in order."""
        for chunk in self._make_chunks() if self._cached_chunks is None else self._cached_chunks:
            yield chunk
            self.job.report_share(chunk.part.stop, self.n, self.n)

    def _make_chunks(self):
        first = 0
        for part, nonzeros in split_chunks(self.X):
            chunk = Chunk(self, part, nonzeros, first)
            first += chunk.nnz
            yield chunk

    def part(self, values, rows):
        """Return the rows of something that is (N,), or (1,) where all are equal, or None."""
        return values if values is None or len(values) == 1 != self.n else values[rows]


class Chunk:
    """Consecutive rows, counted from the first of them."""

    def __init__(self, data, part, nonzeros, first):
        self.data, self.start, self.part = data, part.start, part
        self.n, self.nnz = part.stop - part.start, int(nonzeros.indptr[-1])
        self.sites = slice(first, first + self.nnz)  # of the nonzeros of all chunks
        self.empty = np.diff(nonzeros.indptr) == 0
        read = (data.part(column, part) for column in data.read)
        self.rows = make_kernel_rows(nonzeros, data.part(data.offset, part), *data.settings, *read)

    def of(self, values):
        """Return the rows of the chunk of values (N,) or (1,), or None."""
        return self.data.part(values, self.part)

    def runs(self, exponent):
        """Return (start, stop, is_compiled) of runs of rows in order; empty rows are left out.

        exponent : ndarray (n,) or (1,), exponents of the likelihood.
        """
        if self.nnz == 0:
            return []
        data = self.data
        if data.compiled and (data.likelihood.any_power or np.all((exponent == 0) | (exponent == 1))):
            return [(*part, True) for part in split_calls(self.n)]
        slow = ~self.empty & (exponent != 0)
        if data.compiled:
            slow &= exponent != 1
        index = np.flatnonzero(slow)
        edges = np.unique(np.concatenate([np.arange(0, self.n, KERNEL_ROWS), index, index + 1, [self.n]]))
        runs = zip(edges[:-1].tolist(), edges[1:].tolist(), (~slow[edges[:-1]]).tolist(), strict=True)
        return [run for run in runs if data.compiled or not run[2]]

    def log_p_empty(self):
        """Return the log likelihoods of the rows without features, whose latent value is the offset."""
        if not self.empty.any():
            return 0.0
        offset = self.of(self.data.offset)
        offset = np.zeros(self.n) if offset is None else offset
        return self.data.likelihood.log_p(self.of(self.data.y)[self.empty], offset[self.empty])

    def tilted(self, row, exponent, mean, variance):
        """log Z, d1, d2 and the precision of the site of p^exponent for one row, in Python."""
        y, moments = self.of(self.data.y)[row : row + 1], (np.array([mean]), np.array([variance]))
        log_z, d1, d2, shrink = (float(a[0]) for a in find_tilted_moments(self.data.likelihood, y, exponent, *moments))
        if not (np.isfinite([log_z, d1, d2]).all() and shrink > 0):
            self.refuse(row, mean, variance)
        return log_z, d1, d2, -d2 / shrink

    def refuse(self, row, mean, variance):
        """Raise OverflowError for a row whose latent value, or whose site, is out of range."""
        raise OverflowError(
            f"X: the latent value of row {self.start + row} has mean {mean:g} and variance {variance:g} before the row "
            f"is seen, which leads out of the range of float64; rescale the columns of X or the prior"
        )
