"""Sources of blocks: fixed-size runs of rows, as contiguous float64, whatever the data are; and how results merge.

    source --blocks--> kernel(block) --statistics--> merge

Where blocks begin and end depends on the number of rows and columns alone, and their statistics are added up along a
fixed tree. So the result has the same bits for an array, a memory map or the files it was split into, whoever computes.
"""

import threading
from bisect import bisect_right
from itertools import accumulate

import numpy as np

from cavity.base import arrays, frames
from cavity.blocks import formats
from cavity.blocks.merge import ROWS_PER_CALL, starts
from cavity.blocks.parts import ArrayRows, Desk, ReadRows
from cavity.blocks.runs import by_blocks, reduce_runs
from cavity.blocks.tables import FrameRows

BLOCK_NUMBERS = 8 * ROWS_PER_CALL  # most numbers in a block, 8 MB, unless that leaves fewer than LEAST_BLOCK_ROWS rows
LEAST_BLOCK_ROWS = 1 << 10
SAMPLE_ROWS = 1 << 14  # rows of a sample to choose starting points from
FOLD = 128  # rows side by side in reductions over rows, for long inner loops and short sums
HUGE = 2.0**900  # sums of any number of smaller values are finite
SHRINK = 200  # 2^-200 times even the largest values can be summed


def rows(data, index):
    """Return data[index] as an aligned C-contiguous float64 array; a view where the data are that already."""
    return np.require(data[index], dtype=np.float64, requirements="CA")


def rows_per_block(n_features):
    """Return the number of rows in a block: ROWS_PER_CALL, or a smaller power of two where rows are wide."""
    size = ROWS_PER_CALL
    while size * n_features > BLOCK_NUMBERS and size > LEAST_BLOCK_ROWS:
        size //= 2
    return size


def open_source(data, name, *, ndim=(1,), block_rows=None):
    """Return data of any supported kind, with everything checked but the numbers themselves, as a Source.

    Parameters
    ----------
    data : array_like, table or column of one, path, list of paths, or Source
        Real numbers of any dtype, byte order and memory layout, (N,) or (N, D). They are not copied as a whole; a table
        of one column is taken for (N,) where nothing else is accepted. The files of a list follow each other. A Source
        is opened once more.
    name : str
        What the argument is called, for messages.
    ndim : tuple of int
        Which numbers of dimensions are accepted, of 1 and 2.
    block_rows : int, optional
        Rows in a block, if not `rows_per_block`.

    Raises
    ------
    TypeError
        For a one-shot iterator, a masked array, or anything but real numbers, by the name of its column if it has one.
    ValueError
        For empty data, a wrong number of dimensions, files that do not fit together, are cut short or cannot be read.
    FileNotFoundError
        If there is no such file.
    """
    stored = _stored(data, name)
    if stored is None:
        data = frames.only_column(data) if ndim == (1,) else data
        return Source([_table(data, name, ndim, block_rows)], name, block_rows)
    if ndim == (1,) and stored.names is not None and stored.shape[1:] == (1,):
        stored = stored.column(stored.names[0])
    for part in stored.parts:
        path = getattr(part, "path", None)
        arrays.check_ndim(part, name if path is None else f"{name} ({path})", ndim)
    stored.check_numbers(name)
    return Source(stored.parts, name, block_rows)


def source(data, columns=None):
    """Open a table of any size, which fits then read block by block instead of loading it.

    Every fit that can read files opens them by itself; this is for looking at them first, and for choosing columns.

    Parameters
    ----------
    data : array_like, data frame, path, or list of paths
        The table, (N,) or (N, D): numbers in memory or in ``.npy`` files. The files of a list follow each other.
    columns : str or list of str, optional
        Names of columns, or their numbers where they have no names; those of a list make a table, a single one makes a
        vector (N,). All by default.

    Returns
    -------
    Source
        With `shape`, the `names` of the columns, and `rows`, which returns some rows as an array. It can be given
        to a fit in place of the table, pickled, and read by any number of threads.

    Examples
    --------
    >>> import cavity
    >>> rows = cavity.source([[1.0, 2.0], [3.0, 4.0], [5.0, 6.0]])
    >>> rows.shape, rows.names
    ((3, 2), None)
    >>> cavity.source(rows, columns=1).rows(1)
    array([4., 6.])
    """
    found = opened(data, "data")
    if columns is None:
        return found
    if isinstance(columns, list | tuple):
        return found.columns([found.place(each) for each in columns])
    return found.column(columns)


def opened(data, name):
    """Return data of any supported kind as a Source; columns that hold no numbers are told when they are read."""
    stored = _stored(data, name)
    if stored is None:
        return Source([_table(data, name, (1, 2), 0, checked=False)], name)
    return Source(stored.parts, name)


def _stored(data, name):
    """Return data that have their place, in files or in a source, as a Source; None for what is in memory."""
    if hasattr(data, "__next__") and not hasattr(data, "__array__"):
        raise TypeError(
            f"the fit needs several passes over the data, but {name} is a one-shot iterator ({type(data).__name__}); "
            "give an array, a .npy file, Parquet files, or another table that can be read again"
        )
    if isinstance(data, Source):
        return data
    parts = formats.open_stored(data, name)
    return None if parts is None else Source(parts, name)


def _table(data, name, ndim, block_rows, checked=True):
    """Return data in memory as a part: tables of several blocks are converted when they are read, others at once."""
    columns = frames.names_of(data)
    if block_rows is None:
        block_rows = rows_per_block(len(columns or (0,)))
    if frames.is_table(data) and len(data) > block_rows:
        array = frames.own_array(data)
        if array is None:
            part = FrameRows(data, name)
            arrays.check_ndim(part, name, ndim, data)
            if checked:
                part.check_numbers(name)
            return part
        data = array
    return ArrayRows(arrays.unread_array(data, name, ndim), name, columns)


def _sums(block, huge):
    """Return the sums of the columns of a block: those that are not huge, and 2^-SHRINK times those that are."""
    if not huge.any():
        return _reduce_rows(np.add, block), np.zeros(len(huge))
    with np.errstate(over="ignore", invalid="ignore"):  # in the sums that are not used
        total, shrunk = _reduce_rows(np.add, block), _reduce_rows(np.add, np.ldexp(block, -SHRINK))
    return np.where(huge, 0.0, total), np.where(huge, shrunk, 0.0)


def _reduce_rows(ufunc, block):
    """Return ufunc.reduce over the rows of a block (rows,) or (rows, D), shape (1,) or (D,)."""
    block = block.reshape(len(block), -1)
    n_rows, width = block.shape
    whole = n_rows - n_rows % FOLD
    if whole:
        folded = ufunc.reduce(block[:whole].reshape(-1, FOLD * width), axis=0).reshape(FOLD, width)
        block = np.concatenate([folded, block[whole:]])
    return ufunc.reduce(block, axis=0)


def _join(left, right):
    """Merge the minima, maxima and sums of two runs of rows."""
    sums = (a + b for a, b in zip(left[2:], right[2:], strict=True))
    return np.fmin(left[0], right[0]), np.fmax(left[1], right[1]), *sums


def _summary(block, start, known):
    """Return the minima, maxima and sums of the columns of a block of a source, and how many numbers were seen."""
    source, missing = known
    low, high = _reduce_rows(np.fmin, block), _reduce_rows(np.fmax, block)
    gaps = np.isnan(_reduce_rows(np.minimum, block)).any()
    if np.isinf(low).any() or np.isinf(high).any() or (gaps and not missing):
        row, *column = at = tuple(np.argwhere(np.isinf(block) if missing else ~np.isfinite(block))[0].tolist())
        raise ValueError(f"{source.name} must be finite, got {source.found(block[at], start + row, *column)}")
    seen = np.full(len(low), float(len(block)))
    if gaps:
        seen -= np.sum(np.isnan(block), axis=0)
        block = np.nan_to_num(block)  # there are no infinities
    return low, high, *_sums(block, np.fmax(-low, high) > HUGE), seen


SUMMARY = by_blocks(_summary, add=_join)


class Source:
    """Rows in one or several parts that follow each other, in blocks that can be read again and again, by any thread.

    Blocks are over all rows, whatever the parts (`blocks/parts.py`), whose rows are counted from their own first.
    """

    def __init__(self, parts, name, block_rows=None):
        self.name, self.parts = name, parts
        self._ends = list(accumulate(part.shape[0] for part in parts))
        self.shape = (self._ends[-1], *parts[0].shape[1:])
        self.block_rows = rows_per_block(self.n_features) if block_rows is None else block_rows
        self._local = threading.local()

    def __len__(self):
        return self.n_rows

    def __reduce__(self):
        return Source, (self.parts, self.name, self.block_rows)

    @property
    def ndim(self):
        """Number of dimensions, 1 or 2."""
        return len(self.shape)

    @property
    def n_rows(self):
        """Number of rows N."""
        return self.shape[0]

    @property
    def n_features(self):
        """Number of columns D; 1 for a vector."""
        return self.shape[1] if len(self.shape) > 1 else 1

    @property
    def block_count(self):
        """Number of blocks."""
        return -(-self.n_rows // self.block_rows)

    @property
    def names(self):
        """Names of the columns, if they have any, else None."""
        return self.parts[0].columns

    @property
    def in_memory(self):
        """Whether reading does not wait for a disk."""
        return all(part.in_memory for part in self.parts)

    def place(self, name):
        """Return the number of a column, by its name or number; ValueError if there is none, or several."""
        if isinstance(name, int) and 0 <= name < self.n_features:
            return name
        names = self.names or ()
        if names.count(name) != 1:
            words = "two columns" if name in names else "no column"
            known = frames.some(names) if names else f"{self.n_features} columns without names"
            raise ValueError(f"{self.name} has {words} {name!r}; it has {known}")
        return names.index(name)

    def columns(self, index):
        """Return the Source (N, d) of some columns, by their numbers; of rows (N,) the only one is 0."""
        return Source([part.some(list(index)) for part in self.parts], self.name)

    def column(self, name):
        """Return the Source (N,) of a column, by its name or number."""
        index = [self.place(name)]
        return self if self.ndim == 1 else Source([part.some(index, vector=True) for part in self.parts], self.name)

    def values(self, name):
        """Return a whole column: numbers as an array of float64, others as an array or a column of a table."""
        index = self.place(name)
        labels = [part.labels(index) for part in self.parts]
        if labels[0] is None:
            return self.column(name).rows()
        return labels[0] if len(labels) == 1 else np.concatenate(labels)

    def without(self, names):
        """Return the Source of the columns but some, by their names or numbers."""
        out = {self.place(name) for name in names}
        return self.columns([j for j in range(self.n_features) if j not in out])

    def check_numbers(self, name):
        """Raise TypeError, naming the column, unless all columns hold numbers."""
        for part in self.parts:
            part.check_numbers(name)

    def check_finite(self, rows, start):
        """Raise ValueError naming the first number of some rows, from row `start` on, that is nan or infinite."""
        bad = arrays.first_nonfinite(rows)
        if bad is not None:
            row, *column = bad
            raise ValueError(f"{self.name} must be finite, got {self.found(rows[bad], start + row, *column)}")

    def span(self, index):
        """Return the (start, stop) of the rows of a block."""
        start = index * self.block_rows
        return start, min(start + self.block_rows, self.n_rows)

    def where(self, row, *column):
        """Return words for a row, for messages: "y[17]", "row 17 of part-3.npy"; both count from 0."""
        part, first = self._part(row)
        return part.where(row - first, *column)

    def found(self, value, row, *column):
        """Return words for a value that should not be there."""
        part, first = self._part(row)
        return part.found(value, row - first, *column)

    def view(self, start, stop):
        """Return the rows [start, stop) where they lie, float64 and C-contiguous; None if they have to be filled in."""
        part, first = self._part(start)
        return part.view(start - first, stop - first) if stop - first <= part.shape[0] else None

    def fill(self, out, start):
        """Write the rows from `start` on into out (n,) or (n, D); fastest where a thread reads on from its last row."""
        if not hasattr(self._local, "desk"):
            self._local.desk = Desk()
        for part, low, high, first in self._overlaps(start, start + len(out)):
            part.fill(out[low - start : high - start], low - first, self._local.desk)

    def read(self, index):
        """Return a block (rows,) or (rows, D): float64, C-contiguous, read-only, valid until this thread reads again.

        A view of the data where they are like that; if not, each thread has a buffer for one block and uses it again.
        """
        start, stop = self.span(index)
        block = self.view(start, stop)
        if block is None:
            block = self._buffer()[: stop - start]
            self.fill(block, start)
        block.flags.writeable = False
        return block

    def summary(self, threads, missing=False):
        """Check all numbers, and return their (minimum, maximum, mean): floats, or (D,) arrays for the columns.

        With `missing`, nan stands for a number that was not seen; how many were seen comes fourth, (D,).

        Raises
        ------
        ValueError
            Naming the first number, by rows, that is nan or infinite.
        """
        sums = reduce_runs(SUMMARY, (self, missing), [self], threads, add=_join)
        low, high, total, huge, seen = sums
        counts = np.maximum(seen, 1.0)
        with np.errstate(over="ignore"):
            mean = total / counts + np.ldexp(huge / counts, SHRINK)
        mean = np.clip(mean, low, high)  # where a mean is, but for rounding
        if len(self.shape) > 1:
            return (low, high, mean, seen) if missing else (low, high, mean)
        return float(low[0]), float(high[0]), float(mean[0])

    def rows(self, start=0, stop=None):
        """Return the rows [start, stop), all of them by default, as an array of its own."""
        stop = self.n_rows if stop is None else stop
        out = arrays.matrix((stop - start, self.n_features), f"{self.name}: an array")
        out = out.reshape(stop - start, *self.shape[1:])
        for low, high in starts(stop - start, self.block_rows):
            self.fill(out[low:high], start + low)
        return out

    def batches(self, size, *columns):
        """Yield the rows in batches, for models that take them in one after the other by `update`.

        Parameters
        ----------
        size : int
            Rows in a batch, but for the last one.
        *columns : str or int
            Columns that go apart, by their names or numbers: y, weights.

        Yields
        ------
        Source, or tuple of Source and arrays
            The rows, read into memory, without those columns; then what these hold.

        Examples
        --------
        >>> import cavity
        >>> table = cavity.source([[1.0, 5.0], [2.0, 7.0], [3.0, 9.0]])
        >>> for X, y in table.batches(2, 1):
        ...     print(X.rows().tolist(), y.tolist())
        [[1.0], [2.0]] [5.0, 7.0]
        [[3.0]] [9.0]
        """
        size = arrays.integer(size, "size", low=1)
        rest, values = self.without(columns) if columns else self, [self.values(name) for name in columns]
        rest.check_numbers(self.name)
        for start in range(0, self.n_rows, size):
            part = slice(start, min(start + size, self.n_rows))
            rows = Source([ReadRows(rest.rows(part.start, part.stop), rest, start)], self.name)
            yield (rows, *(value[part] for value in values)) if columns else rows

    def sample(self, size=None):
        """Return at most `size` rows (SAMPLE_ROWS) at equal distances, the first among them, as an array of its own."""
        step = -(-self.n_rows // (SAMPLE_ROWS if size is None else size))
        parts = []
        for index in range(self.block_count):
            start, stop = self.span(index)
            first = -start % step
            if first < stop - start:
                parts.append(self.read(index)[first::step].copy())
        return np.concatenate(parts)

    def _part(self, row):
        """Return the part that holds a row, and the row it begins with."""
        index = bisect_right(self._ends, row)
        return self.parts[index], self._ends[index - 1] if index else 0

    def _overlaps(self, start, stop):
        """Yield (part, low, high, first row of the part) for the parts of the rows [start, stop)."""
        while start < stop:
            part, first = self._part(start)
            high = min(stop, first + part.shape[0])
            yield part, start, high, first
            start = high

    def _buffer(self):
        """Return this thread's buffer for a block."""
        if not hasattr(self._local, "block"):
            self._local.block = np.empty((min(self.block_rows, self.n_rows), *self.shape[1:]))
        return self._local.block
