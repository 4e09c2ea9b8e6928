"""Rows in parts that follow each other, and their blocks: where each is, and how it is read."""

import numpy as np

from cavity.base import arrays
from cavity.base.errors import mark_missing
from cavity.base.public_objects import Public
from cavity.runs.merge import ROWS_PER_CALL
from cavity.sources.source_parts import ReadState, find_piece

BLOCK_NUMBERS = 8 * ROWS_PER_CALL  # most numbers in a block, 8 MB, unless that leaves fewer than LEAST_BLOCK_ROWS rows
LEAST_BLOCK_ROWS = 1 << 10


def rows_per_block(n_features):
    """Return the number of rows in a block: ROWS_PER_CALL, or a smaller power of two where rows are wide."""
    size = ROWS_PER_CALL
    while size * n_features > BLOCK_NUMBERS and size > LEAST_BLOCK_ROWS:
        size //= 2
    return size


class Blocks(Public):
    """Base of sources, which have `parts`, a `shape`, `block_rows`, and memory of each thread."""

    def __len__(self):
        return self.n_rows

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
    def in_memory(self):
        """Whether reading does not wait for a disk."""
        return all(part.in_memory for part in self.parts)

    @property
    def is_remote(self):
        """Whether workers of dask have the rows, and passes go to them."""
        return self.parts[0].is_remote

    def span(self, index):
        """Return where a block begins and ends.

        Parameters
        ----------
        index : int
            Its number.

        Returns
        -------
        start, stop : int
            Of its rows.
        """
        start = index * self.block_rows
        return start, min(start + self.block_rows, self.n_rows)

    def describe_row(self, row, *column):
        """Return words for a row, for messages: "y[17]", "row 17 of part-3.npy".

        Parameters
        ----------
        row : int
            Its number among all rows.
        *column : int
            A column, to name that too.

        Returns
        -------
        str
            Words, where rows are counted from the first of a file.
        """
        part, first = self._part(row)
        return part.describe_row(row - first, *column)

    def describe_value(self, value, row, *column):
        """Return words for a value that should not be there.

        Parameters
        ----------
        value : float
            The value.
        row : int
            Its row, among all.
        *column : int
            Its column, unless the source is a vector.

        Returns
        -------
        str
            Words.
        """
        part, first = self._part(row)
        return part.describe_value(value, row - first, *column)

    def view(self, start, stop):
        """Return rows where they lie, if they are float64 and C-contiguous there.

        Parameters
        ----------
        start, stop : int
            The first of them, and the one after the last.

        Returns
        -------
        ndarray or None
            None if they have to be filled in.
        """
        part, first = self._part(start)
        return part.view(start - first, stop - first) if stop - first <= part.shape[0] else None

    def fill(self, out, start):
        """Write rows into an array; fastest where a thread reads on from the last row that it read.

        Parameters
        ----------
        out : ndarray, shape (n,) or (n, D)
            Where they go: float64, C-contiguous.
        start : int
            The first of them.
        """
        if not hasattr(self._local, "state"):
            try:
                self._local.state = self._states.pop()
            except IndexError:
                self._local.state = ReadState()
        for part, low, high, first in self._overlaps(start, start + len(out)):
            part.fill(out[low - start : high - start], low - first, self._local.state)

    def hand_over_open_file(self):
        """Leave a file that this thread, which ends, has open to one of a later pass: it need not be opened again."""
        state = getattr(self._local, "state", None)
        if not self._states and getattr(getattr(state, "part", None), "stays_open", False):
            self._states.append(state)

    def read(self, index):
        """Return a block, which is valid until this thread reads again.

        A view of the data where they allow that; if not, each thread has a buffer for one block and uses it again.

        Parameters
        ----------
        index : int
            The number of the block.

        Returns
        -------
        ndarray, shape (n,) or (n, D)
            Float64, C-contiguous, read-only.
        """
        start, stop = self.span(index)
        block = self.view(start, stop)
        if block is None:
            block = self._buffer()[: stop - start]
            self.fill(block, start)
        block.flags.writeable = False
        return block

    def check_finite(self, rows, start):
        """Raise ValueError naming the first number of some rows that is nan or infinite.

        Parameters
        ----------
        rows : ndarray, shape (n,) or (n, D)
            The rows.
        start : int
            The number of the first.
        """
        bad = arrays.find_nonfinite(rows)
        if bad is not None:
            row, *column = bad
            message = f"{self.name} must be finite, got {self.describe_value(rows[bad], start + row, *column)}"
            raise mark_missing(ValueError(message), rows[bad])

    def check_numbers(self, name):
        """Raise TypeError, naming the column, unless all columns hold numbers.

        Parameters
        ----------
        name : str
            What the data are called in the message.
        """
        try:
            for part in self.parts:
                part.check_numbers(name)
        except TypeError as error:
            if self.names is None or self.ndim == 1 or not name.isidentifier():
                raise
            raise TypeError(f"{error}: cavity.source({name}).without([...]) is all but some columns") from None

    def _part(self, row):
        """Return the part that holds a row, and the row it begins with."""
        number, first = find_piece(self._ends, row)
        return self.parts[number], first

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
