"""Rows that stay in files, for code that indexes arrays: slices are read, masks and changes wait until rows are."""

from bisect import bisect_right

import numpy as np

from cavity.jobs.job import SILENT_JOB
from cavity.runs.executors import Threads
from cavity.runs.merge import BlockTask
from cavity.runs.passes import reduce_runs
from cavity.sources.read_ahead import iterate_blocks
from cavity.sources.source_parts import DerivedRows, SourcePart
from cavity.sources.sources import Source

COUNTED_ROWS = 1 << 16  # rows between which it is known how many are picked


class StoredRows(Source):
    """A Source (N, D) that is indexed as an array of float64 is.

    A slice of step 1 is an array, the rows of a mask, or of indices that do not fall, are another `StoredRows`.

    Attributes
    ----------
    low, high : ndarray (D,) or None
        The ends of the columns, after `scan_columns`.
    least : float
        At most the largest magnitude in any row.
    """

    dtype = np.dtype(np.float64)
    low = high = None
    least = 0.0

    def __getitem__(self, index):
        if isinstance(index, slice):
            if index.step not in (None, 1):
                raise IndexError(f"rows of {self.name} are read in runs, without steps, got {index}")
            return self.rows(*index.indices(self.n_rows)[:2])
        if self.is_remote:
            raise ValueError(
                f"{self.name} is a collection of dask, of which all rows count, once in ADF: leave out those of weight "
                "0, and those that are zero in all columns"
            )
        index = np.asarray(index)
        times = index if index.dtype == bool else np.bincount(index, minlength=self.n_rows)
        picked = _stored([PickedRows(self, times)], self.name, self.low, self.high, self.least)
        picked.block_rows = self.block_rows
        return picked

    def __reduce__(self):
        return _stored, (self.parts, self.name, self.low, self.high, self.least)

    def __array__(self, dtype=None, copy=None):
        return self.rows().astype(np.float64 if dtype is None else dtype, copy=False)

    def min(self, axis=0):
        """Return `low`."""
        return self.low

    def max(self, axis=0):
        """Return `high`."""
        return self.high

    def map_rows(self, function, n_features, least=0.0):
        """Return the rows that function(rows) makes of some rows, with so many columns, none of which it turns round.

        `least` is known of them.
        """
        low, high = (None if end is None else function(end[None])[0] for end in (self.low, self.high))
        is_local = not self.is_remote
        part = ChangedRows(self, function, n_features) if is_local else self.parts[0].map_rows(function, n_features)
        return _stored([part], self.name, low, high, least)

    def scan_columns(self, weights=None, job=SILENT_JOB):
        """Check all numbers as `checked_blocks` does, and find out the ends of the columns; return the rows.

        Ends are those of rows of positive weight. The job hears how far that is.
        """
        if self.is_remote and weights is not None:
            if not np.all(weights > 0):
                self[weights > 0]  # which raises
            weights = None
        task = BlockTask(summarize_extents, add=merge_extents)
        with Threads(1, job) as thread:
            sums = reduce_runs(task, (self, weights), [self], thread, add=merge_extents, stage="reading")
        self.low, self.high, self.least = *sums[:2], float(sums[2])
        return self

    def checked_blocks(self, size=None):
        """Yield (slice, rows) of all rows; ValueError naming the first number that is nan or infinite."""
        for part, x in iterate_blocks(self, size or self.block_rows):
            self.check_finite(x, part.start)
            yield part, x


def summarize_extents(x, start, broadcast):
    """Return the ends of the columns of a block, and the least of the largest magnitudes of its rows.

    The broadcast is the source, by which numbers are checked, and the weights of its rows, or None.
    """
    source, weights = broadcast
    source.check_finite(x, start)
    least = np.min(np.maximum(np.max(x, axis=1), -np.min(x, axis=1)))
    counted = x if weights is None else x[weights[start : start + len(x)] > 0]
    return counted.min(axis=0, initial=np.inf), counted.max(axis=0, initial=-np.inf), least


def merge_extents(left, right):
    """Merge the extents of two runs of rows."""
    return np.minimum(left[0], right[0]), np.maximum(left[1], right[1]), np.minimum(left[2], right[2])


def _stored(parts, name, low, high, least):
    rows = StoredRows(parts, name)
    rows.low, rows.high, rows.least = low, high, least
    return rows


class PickedRows(DerivedRows):
    """Rows of a source, each as often as `times` says, (N,) of bool or int."""

    in_memory = False

    def __init__(self, source, times):
        super().__init__(source)
        self._times = times
        counts = [np.sum(times[low : low + COUNTED_ROWS]) for low in range(0, len(times), COUNTED_ROWS)]
        self._firsts = [0, *np.cumsum(counts, dtype=np.int64).tolist()]  # of the picked ones in each stretch of rows
        self.shape, self.columns = (self._firsts[-1], *source.shape[1:]), source.names

    def fill(self, out, start, state):
        """Read the picked rows from `start` on into out (n, d)."""
        done = 0
        while done < len(out):
            picked = self._picked(start + done)[: len(out) - done]
            first, last = int(picked[0]), int(picked[-1]) + 1
            rows = np.empty((last - first, *self.shape[1:]))
            self._source.fill(rows, first)
            np.take(rows, picked - first, axis=0, out=out[done : done + len(picked)])
            done += len(picked)

    def _picked(self, row):
        """Return which rows of the source a picked row and those after it are, up to the end of its stretch."""
        stretch = bisect_right(self._firsts, row) - 1
        low = stretch * COUNTED_ROWS
        times = self._times[low : low + COUNTED_ROWS]
        return np.repeat(np.arange(low, low + len(times)), times)[row - self._firsts[stretch] :]

    def _origin(self, row, *column):
        return int(self._picked(row)[0]), *column


class ChangedRows(DerivedRows):
    """What a function makes of the rows (n, D) of a source, (n, n_features)."""

    in_memory = False

    def __init__(self, source, function, n_features):
        super().__init__(source)
        self._function = function
        self.shape = (source.n_rows, n_features)

    def fill(self, out, start, state):
        """Read the rows from `start` on and change them."""
        rows = np.empty((len(out), *self._source.shape[1:]))
        self._source.fill(rows, start)
        out[...] = self._function(rows)

    def describe_row(self, row, *column):
        """Words for a row, for messages."""
        return self._source.describe_row(row)

    describe_value = SourcePart.describe_value
