"""Parts of a source: rows that lie together in one array, table or file.

A part has a `shape`, `columns` (their names, or None), `view` and `fill`, and the words for its rows: `where`, `found`.
Parts that are made of other rows, `DerivedRows`, take the words of these.
"""

from bisect import bisect_right

import numpy as np

from cavity.base import arrays, frames
from cavity.base.sparse import to_csr


def find_piece(ends, row):
    """Return the number of the piece that holds a row, and the row that it begins with; `ends` are those of pieces."""
    number = bisect_right(ends, row)
    return number, ends[number - 1] if number else 0


class ReadState:
    """What one thread reads with: memory to convert numbers in, and what it has open, by the part that opened it."""

    def __init__(self):
        self._bytes, self.part, self.open = np.empty(0, dtype=np.uint8), None, None

    def scratch(self, size):
        """Return that many bytes to work in, valid until the next call."""
        if len(self._bytes) < size:
            self._bytes = np.empty(size, dtype=np.uint8)
        return self._bytes[:size]


class SourcePart:
    """What a part is if it does not say otherwise."""

    __slots__ = ()
    columns = None  # names of the columns, if they have any
    in_memory = True  # whether reading does not wait for a disk
    is_remote = False  # whether passes go to the workers of dask that have the rows, see `runs.remote`

    @property
    def ndim(self):
        """Number of dimensions."""
        return len(self.shape)

    def view(self, start, stop):
        """The rows themselves, or None if they have to be read or converted."""
        return None

    def select_columns(self, index, vector=False):
        """The part with some of the columns, by their numbers; a vector of the only one."""
        return ColumnSubset(self, index, vector)

    def describe_value(self, value, *entry):
        """Words for a value that should not be there."""
        return f"{value} in {self.describe_row(*entry)}"

    def labels(self, index):
        """The values of a column that are no numbers, as an array or a column of a table; None if they are numbers."""
        return None

    def check_numbers(self, name):
        """Raise TypeError, naming the column, unless all columns hold numbers."""


class NamedRows(SourcePart):
    """Base of parts in memory: how messages name their rows, and of their columns if these have names."""

    def __init__(self, name, shape, columns):
        self.name, self.shape, self.columns = name, shape, columns

    def describe_row(self, *entry):
        """Words for a row, or for a row and a column, for messages."""
        return arrays.describe_entry(self.name, entry, self.columns)

    def describe_value(self, value, *entry):
        """Words for a value that should not be there."""
        return arrays.describe_bad_entry(value, self.name, entry, self.columns)


class ArrayRows(NamedRows):
    """Rows of an array in memory, or mapped to it; `columns` are their names, if they have any."""

    def __init__(self, array, name, columns=None):
        super().__init__(name, array.shape, columns)
        self.array = array
        self.direct = array.dtype == np.float64 and array.flags.c_contiguous and array.flags.aligned

    def view(self, start, stop):
        """The rows themselves, or None if they have to be converted."""
        return self.array[start:stop] if self.direct else None

    def fill(self, out, start, state):
        """Convert the rows from `start` on into out."""
        arrays.copy_real(self.array[start : start + len(out)], out)


class DerivedRows(SourcePart):
    """Base of rows that are made of those of a source, or of another part: messages name the place there."""

    def __init__(self, source):
        self._source = source

    def describe_row(self, *entry):
        """Words for a row, or for a row and a column, for messages."""
        return self._source.describe_row(*self._origin(*entry))

    def describe_value(self, value, *entry):
        """Words for a value that should not be there."""
        return self._source.describe_value(value, *self._origin(*entry))


class ReadRows(DerivedRows, ArrayRows):
    """Rows of a source that have been read, from row `first` on."""

    def __init__(self, array, source, first):
        DerivedRows.__init__(self, source)
        ArrayRows.__init__(self, array, source.name, source.names)
        self._first = first

    def _origin(self, row, *column):
        return self._first + row, *column


class ColumnSubset(DerivedRows):
    """The rows of another part with some of its columns, (N, d), or (N,) of the only one; of a part (N,) that is 0."""

    def __init__(self, part, index, vector=False):
        super().__init__(part)
        self._index = index
        self.shape = part.shape[:1] if vector else (part.shape[0], len(index))
        self.columns = None if part.columns is None else tuple(part.columns[j] for j in index)

    @property
    def in_memory(self):
        """Whether reading does not wait for a disk."""
        return self._source.in_memory

    def fill(self, out, start, state):
        """Pick the columns of the rows from `start` on into out (n, d) or (n,)."""
        columns = np.empty((len(out), *self._source.shape[1:]))
        self._source.fill(columns, start, state)
        out[...] = columns.reshape(len(out), -1)[:, self._index].reshape(out.shape)

    def _origin(self, row, *column):
        column = column or [0] * (self.ndim == 1)
        return row, *(self._index[j] for j in column if self._source.ndim > 1)


class FrameRows(NamedRows):
    """Rows of a table (N, D), or of one of its columns (N,), which stay where they are."""

    def __init__(self, table, name, columns=None):
        super().__init__(name, frames.shape_of(table), columns or frames.names_of(table))
        self.table = table

    def fill(self, out, start, state):
        """Convert the rows from `start` on into out."""
        frames.convert_rows(self.table, start, start + len(out), out)

    def select_columns(self, index, vector=False):
        """The rows of the table with some of its columns, by their numbers; a vector of the only one."""
        if self.ndim == 1:
            return super().select_columns(index, vector)
        table = frames.get_column_at(self.table, *index) if vector else frames.pick_columns(self.table, index)
        return FrameRows(table, self.name, tuple(self.columns[j] for j in index))

    def labels(self, index):
        """A column of the table that does not hold numbers; None if it does."""
        column = frames.get_column_at(self.table, index) if self.ndim > 1 else self.table
        return None if frames.has_numbers(column) else column

    def check_numbers(self, name):
        """Raise TypeError, naming the column, unless all columns hold numbers."""
        frames.check_numbers(self.table, name)


class SparseRows(NamedRows):
    """Rows of a sparse matrix (N, D), which is held by rows."""

    def __init__(self, matrix, name):
        super().__init__(name, matrix.shape, None)
        arrays.check_dtype(matrix.dtype, name)
        self.matrix = to_csr(matrix, name)

    def fill(self, out, start, state):
        """Write the rows from `start` on into out (n, d)."""
        arrays.copy_real(self.matrix[start : start + len(out)].toarray(), out)
