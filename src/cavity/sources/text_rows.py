"""Rows of text files (.csv, .tsv, .txt, also gzipped): parsed once, kept as numbers, read again and again.

What does not fit into MAX_BYTES_IN_MEMORY goes to a scratch file without a name.
"""

import os

import numpy as np

from cavity.runs.merge import split_rows
from cavity.sources.dialects import suggest_arguments
from cavity.sources.files import FileState
from cavity.sources.scratch import ScratchFile
from cavity.sources.source_parts import SourcePart
from cavity.sources.text_reader import MAX_TEXT_VALUES, TextReader

MAX_BYTES_IN_MEMORY = 1 << 26  # bytes of a table that stay in memory


class RowBuffer:
    """Rows (N, D), in memory or in a scratch file."""

    def __init__(self, width):
        self.width, self.count = width, 0
        self._arrays, self._file, self._written = [], None, 0

    def add(self, rows):
        """Append rows."""
        self.count += len(rows)
        self._arrays.append(rows)
        if self.count * self.width * 8 > MAX_BYTES_IN_MEMORY:
            self._file = self._file or ScratchFile()
            for array in self._arrays:
                self._file.write(np.ascontiguousarray(array), self._written)
                self._written += array.size * 8
            self._arrays = []

    def done(self):
        """Everything is there."""
        if self._file is None:
            self._arrays = self._arrays if len(self._arrays) == 1 else [np.concatenate(self._arrays)]

    def view(self, start, stop):
        """Return the rows themselves if they are in memory, else None."""
        return self._arrays[0][start:stop] if self._file is None else None

    def read(self, start, stop):
        """Return rows, (stop - start, D)."""
        if self._file is None:
            return self._arrays[0][start:stop]
        out = np.empty((stop - start, self.width))
        self._file.read(out, start * self.width * 8)
        return out


class TextRows(SourcePart):
    """Rows of a text file as a part of a source: numbers (N, D), or (N,), and text for labels.

    Attributes
    ----------
    columns : tuple of str
        The names.
    text : tuple of bool
        Which columns hold text.
    unnamed : tuple of str
        Columns without a name in the header, called by their number.
    """

    def __init__(self, reader, buffer, *, first=0, index=None, vector=False, state=None):
        self._reader, self._buffer, self._first, self._state = reader, buffer, first, state
        self._index = list(range(buffer.width)) if index is None else list(index)
        self._columns_read = [reader.columns[j] for j in self._index]
        self.path, self.shape = reader.path, (buffer.count,) if vector else (buffer.count, len(self._index))
        self.columns = tuple(column.name for column in self._columns_read)
        self.in_memory = buffer.view(0, 0) is not None
        self._kinds = [column.kinds(first + buffer.count) for column in self._columns_read]
        self.text = tuple(text and not number for number, text in self._kinds)
        self.unnamed = tuple(column.name for column in self._columns_read if not column.named)

    def __reduce__(self):
        if self._state is None:
            raise TypeError(f"{self.path} can be read once only, so another process cannot have it")
        return _opened_again, (self._state, self._index, self.ndim == 1)

    def select_columns(self, index, vector=False):
        """The part with some of the columns, by their numbers; a vector of the only one."""
        index = [self._index[j] for j in index]
        return TextRows(self._reader, self._buffer, first=self._first, index=index, vector=vector, state=self._state)

    def describe_row(self, row, column=None):
        """Words for a row, or for a row and a column, for messages."""
        description = self._reader.describe_row(self._first + row)
        if column is None and self.ndim == 2:
            return description
        return f"{description}, column {self.columns[column or 0]!r}"

    def check_numbers(self, name):
        """Raise ValueError or TypeError if a column holds text, naming line and value; `name` is the argument's."""
        for column, (number, text) in zip(self._columns_read, self._kinds, strict=True):
            if text and number:
                raise self._mixed(column)
            if text:
                raise TypeError(
                    f"{name} must hold real numbers, got text in column {column.name!r} of {self.path} (line "
                    f"{column.text[1]}: {column.text[2]!r}); make one column of 0 and 1 for each value but one, or "
                    "leave it out"
                )

    def _mixed(self, column):
        """The error about a column of numbers with text in it."""
        _, line, cell = column.text
        message = f"{self.path}, line {line}: column {column.name!r} is {cell!r}, not a finite number"
        other = self._reader.dialect.other_decimal(cell)
        return (
            ValueError(message)
            if other is None
            else suggest_arguments(f"{message}; decimal={other!r} takes it for one", "decimal")
        )

    def labels(self, index):
        """The text in a column, None for what is missing; None if it holds numbers."""
        column, (number, text) = self._columns_read[index], self._kinds[index]
        if not text:
            return None
        if number:
            raise self._mixed(column)
        if column.codes is None:
            raise ValueError(f"{self.path}: column {column.name!r} holds more than {MAX_TEXT_VALUES} different texts")
        names = np.array([*column.codes])
        codes = np.concatenate([self._buffer.read(*span)[:, self._index[index]] for span in split_rows(self.shape[0])])
        missing = np.isnan(codes)
        values = names[np.where(missing, 0, codes).astype(int)]
        if missing.any():
            values = values.astype(object)
            values[missing] = None
        return values

    def count_texts(self, index):
        """Return how many different texts a column of the file has, MAX_TEXT_VALUES + 1 for more than these."""
        codes = self._columns_read[index].codes
        return MAX_TEXT_VALUES + 1 if codes is None else len(codes)

    def view(self, start, stop):
        """The rows themselves if they are in memory and whole, else None."""
        is_whole = self.ndim == 2 and self._index == list(range(self._buffer.width))
        return self._buffer.view(start, stop) if is_whole and not any(text for _, text in self._kinds) else None

    def fill(self, out, start, state=None):
        """Copy the rows from `start` on into out (n, D) or (n,)."""
        self.check_numbers("X")
        out[...] = self._buffer.read(start, start + len(out))[:, self._index].reshape(out.shape)


def open_text(file, name="the data", *, separator=None, decimal=None, encoding=None, report_share=None):
    """Return a text file as TextRows, parsed as a whole.

    Parameters
    ----------
    file : path or binary file
        A file, gzipped or not.
    name : str
        What the argument is called, for messages.
    separator, decimal, encoding : str, optional
        What separates columns and decimals and how characters are written, if that is not to be found from the file.
    report_share : callable, optional
        Called as report_share(share) with the share of the file that has been read.

    Raises
    ------
    ValueError
        Naming file and line.
    FileNotFoundError
        If there is no such file.
    """
    settings = {"separator": separator, "decimal": decimal, "encoding": encoding}
    state = None
    if not hasattr(file, "read"):
        file = os.fspath(file)
        state = FileState.of_path(file) if os.path.isfile(file) else None  # pipes are read once
    reader = TextReader(file, **settings)
    buffer = RowBuffer(len(reader.columns))
    for rows in reader:
        buffer.add(rows)
        if report_share is not None:
            report_share(reader.share)
    reader.check_rows()
    buffer.done()
    restored = None if state is None else (os.path.abspath(file), state, settings)
    return TextRows(reader, buffer, state=restored)


def _opened_again(saved, index, vector):
    """Return the same part in another process."""
    path, state, settings = saved
    state.check_path(path)
    return open_text(path, **settings).select_columns(index, vector)


def read_batches(reader, sizes, skip=0):
    """Yield the rows of a TextReader in batches, TextRows in memory, as they are read.

    Parameters
    ----------
    reader : TextReader
        The file.
    sizes : iterator of int or None
        Rows of each batch; None for all that are left.
    skip : int
        Rows at the beginning that are left out.
    """
    pieces, first, waiting = iter(reader), 0, np.empty((0, len(reader.columns)))
    while first < skip and (piece := next(pieces, None)) is not None:
        waiting = piece[skip - first :]
        first += len(piece) - len(waiting)
    for size in sizes:
        pieces_read, count = [waiting], len(waiting)
        while (size is None or count < size) and (piece := next(pieces, None)) is not None:
            pieces_read.append(piece)
            count += len(piece)
        if not count:
            break
        rows = np.concatenate(pieces_read) if len(pieces_read) > 1 else waiting
        buffer = RowBuffer(rows.shape[1])
        buffer.add(rows[:size])
        buffer.done()
        yield TextRows(reader, buffer, first=first)
        waiting, first = rows[buffer.count :], first + buffer.count
    reader.check_rows()
