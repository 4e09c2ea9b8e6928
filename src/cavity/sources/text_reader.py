"""Text files as numbers, in pieces of whole lines, as they are read.

Pyarrow splits a piece into cells where it is installed and meets nothing unusual, else the csv module, which gives the
line of each row. For both, the `Dialect` decides what cells mean. Text becomes the number of its value, counted in the
order of appearance.
"""

import codecs
import csv
import gzip
import io
import os
import zlib
from bisect import bisect_right
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field
from itertools import chain
from operator import itemgetter

import numpy as np

from cavity.base.errors import name_file_in_errors
from cavity.base.frames import find_repeated
from cavity.sources.dialects import SPACE_SEPARATOR, UNCLEAR_COMMA, detect_dialect, suggest_arguments

FIRST_PIECE_BYTES = 1 << 16  # columns and dialect are detected in it
MIN_FIRST_LINES = 10  # of the first piece, if the file has so many
PIECE_BYTES = 1 << 22
MAX_ROW_CHARACTERS = 1 << 24  # a longer row lacks a quote
MAX_TEXT_VALUES = 1 << 16  # different values of a column of text


@dataclass(slots=True)
class TextColumn:
    """State of a column: the first cell of each kind as (row, line, cell), and the values of text."""

    name: str
    named: bool = True  # or its number is its name
    number: tuple | None = None  # the first number
    text: tuple | None = None  # the first cell that is neither missing nor a number
    codes: dict = field(default_factory=dict)  # of the values of text in order of appearance; None if too many

    def kinds(self, row):
        """Return whether there were numbers, and text, before a row."""
        return [first is not None and first[0] < row for first in (self.number, self.text)]

    def encode(self, cells, indices, dialect, row, lines, path):
        """Return the numbers of the rows cells[indices], the first of which has this number; lines are of the rows.

        ValueError names the path and the line of a number that can be read in two ways.
        """

        def locate(i):
            first = int(np.argmax(indices == i))
            return row + first, int(lines[first]), cell

        values = np.empty(len(cells))
        for i, cell in enumerate(map(str.strip, cells)):
            value = dialect.value(cell)
            if value is None:
                if dialect.is_unclear(cell):
                    label = f"{path}, line {locate(i)[1]}, column {self.name!r}"
                    raise suggest_arguments(f"{label}: {UNCLEAR_COMMA.format(cell)}", "decimal")
                values[i] = self._code(cell)
                self.text = self.text or locate(i)
            else:
                values[i] = value
                if self.number is None and value == value:
                    self.number = locate(i)
        return values[indices]

    def _code(self, cell):
        """Return the number of a value of text, nan if there are too many of them."""
        if self.codes is None:
            return np.nan
        code = self.codes.setdefault(cell, len(self.codes))
        if len(self.codes) > MAX_TEXT_VALUES:
            self.codes, code = None, np.nan
        return code


class TextReader:
    """The rows of a text file or a pipe in pieces, as they come.

    Parameters
    ----------
    file : path or binary file
        What to read.
    separator, decimal, encoding : str, optional
        Detected from the first lines by default.

    Attributes
    ----------
    columns : list of TextColumn
        Their state after the rows read so far.
    dialect : Dialect
        Separators of columns and decimals.
    share : float
        Of the file that has been read; 1 where its size is unknown.
    """

    def __init__(self, file, *, separator=None, decimal=None, encoding=None):
        self.path = str(getattr(file, "name", "standard input") if hasattr(file, "read") else os.fspath(file))
        self.share, self._line_offsets = 0.0, []  # (row, its line less row), where the difference changes
        self._texts, self._line = self._read_whole_lines(file, encoding), 1
        with self._naming_errors():
            text, self._line = next(self._texts, (None, 1))
        if text is None:
            raise ValueError(f"{self.path}: the file holds no rows")
        self.dialect = detect_dialect(self.path, text, separator, decimal)
        self._is_detected = separator is None
        self.columns, text = self._split_header(text)
        self._texts = chain([(text, self._line)], self._texts)
        self._count = 0

    def __iter__(self):
        """Yield arrays (n, D): numbers, nan for what is missing, and for text the numbers of its values."""
        with self._naming_errors():
            for text, line in self._texts:
                self._line = line
                columns, lines = self._split_by_arrow(text) or self._split_by_csv(text)
                self._note_lines(lines)
                rows = np.empty((len(lines), len(self.columns)))
                for column, (cells, indices), out in zip(self.columns, columns, rows.T, strict=True):
                    if indices is not None:
                        cells = column.encode(cells, indices, self.dialect, self._count, lines, self.path)
                    out[...] = cells
                self._count += len(rows)
                if len(rows):
                    yield rows

    def describe_row(self, row):
        """Return the line of a row and the file, for messages."""
        _, offset = self._line_offsets[bisect_right(self._line_offsets, row, key=itemgetter(0)) - 1]
        return f"line {row + offset} of {self.path}"

    def check_rows(self):
        """Raise ValueError if there was no row."""
        if not self._count:
            raise ValueError(f"{self.path}: the file holds a header and no rows")

    def _read_whole_lines(self, file, encoding):
        """Yield (text, number of its first line): whole lines, in which all quotes are closed."""
        with name_file_in_errors(self.path), nullcontext(file) if hasattr(file, "read") else open(file, "rb") as raw:
            size = 0 if raw is file else os.fstat(raw.fileno()).st_size
            raw = raw if hasattr(raw, "peek") else io.BufferedReader(raw)
            head = raw.peek(4)[:4]
            stream = gzip.GzipFile(fileobj=raw) if head[:2] == b"\x1f\x8b" else raw
            piece = stream.read1(FIRST_PIECE_BYTES)
            while len(piece) < FIRST_PIECE_BYTES and (more := stream.read1(FIRST_PIECE_BYTES - len(piece))):
                piece += more  # a pipe returns few bytes at a time
            decoder = _make_decoder(self.path, piece, encoding)
            rest, line = "", 1
            while True:
                text = rest + self._decode(decoder, piece, line + rest.count("\n"))
                end = _find_end_of_rows(text) if piece else len(text)
                self.share = min(1.0, raw.tell() / size) if size and raw.seekable() else 1.0
                if end and (line > 1 or not piece or text.count("\n", 0, end) >= MIN_FIRST_LINES):
                    yield text[:end], line
                    line += text.count("\n", 0, end)
                    text = text[end:]
                rest = text
                if not piece:
                    return
                if not end and len(rest) > MAX_ROW_CHARACTERS:
                    raise ValueError(f"{self.path}, line {line}: a row that does not end; is a quote missing?")
                piece = stream.read1(PIECE_BYTES)

    def _decode(self, decoder, piece, line):
        """Return bytes as text whose lines end with a line feed."""
        try:
            text = decoder.decode(piece, final=not piece)
        except UnicodeDecodeError as error:
            line += error.object.count(b"\n", 0, error.start)
            message = (
                f"{self.path}, line {line}: not readable as {error.encoding} ({error.reason} 0x"
                f"{error.object[error.start]:02x}); give encoding='cp1252' or what it is written in"
            )
            raise suggest_arguments(message, "encoding") from error
        if "\0" in text:
            line += text.count("\n", 0, text.index("\0"))
            raise ValueError(f"{self.path}, line {line}: not readable as CSV (a byte 0, which no text has)")
        return text

    @contextmanager
    def _naming_errors(self):
        """Raise errors of the csv module and of decompression as ValueErrors that name the file, and the line."""
        try:
            yield
        except csv.Error as error:
            raise ValueError(f"{self.path}, line {self._line}: not readable as CSV ({error})") from error
        except (EOFError, zlib.error, gzip.BadGzipFile) as error:
            raise ValueError(f"{self.path}: not a whole gzip file ({error})") from error

    def _split_header(self, text):
        """Return the columns, by the names in the first line or by numbers, and the text of the rows."""
        reader = self.dialect.read_rows(text)
        first = next((row for row in reader if any(cell.strip() for cell in row)), None)
        if first is None:
            raise ValueError(f"{self.path}: the file holds no rows")
        names = [cell.strip() for cell in first]
        numbered = [str(j + 1) for j in range(len(names))]
        numeric = [name for name in names if self.dialect.number(name) is not None]
        if len(numeric) == len(names):
            return [TextColumn(name) for name in numbered], text
        if numeric and names != numbered:  # a table without header, whose first row would be lost
            raise ValueError(
                f"{self.path}: the first line holds both numbers ({numeric[0]}) and text; put a line with column "
                "names above it"
            )
        columns = [TextColumn(name or number, bool(name)) for name, number in zip(names, numbered, strict=True)]
        duplicate = find_repeated(column.name for column in columns)
        if duplicate is not None:
            raise ValueError(f"{self.path}: two columns are called {duplicate!r}")
        n_lines = reader.line_num
        self._line += n_lines
        return columns, text.split("\n", n_lines)[n_lines] if text.count("\n") >= n_lines else ""

    def _split_by_arrow(self, text):
        """Return what `_split_by_csv` returns, columns of numbers as (numbers, None); None for unusual text."""
        if not text or not self._count or self.dialect.separator == SPACE_SEPARATOR:  # the first piece may be all
            return None
        types = {c.name: "float64" if c.number and not c.text else "string" for c in self.columns}
        table = self.dialect.read_arrow_columns(text, types)
        n_rows = text.count("\n") + (not text.endswith("\n"))
        if table is None or len(table[0]) != n_rows:  # rows of several lines, or blank ones
            return None
        columns, is_blank = [], np.ones(n_rows, dtype=bool)
        for column, kind in zip(table, types.values(), strict=True):
            if kind == "float64":
                columns.append((column.to_numpy(), None))
                is_blank &= np.isnan(columns[-1][0])
            else:
                encoded = column.combine_chunks().dictionary_encode()
                cells, indices = encoded.dictionary.to_pylist(), encoded.indices.to_numpy()
                columns.append((cells, indices))
                is_blank &= np.array([not cell.strip() for cell in cells])[indices]
        return None if is_blank.any() else (columns, np.arange(self._line, self._line + n_rows))

    def _split_by_csv(self, text):
        """Return (different cells, their indices by rows) of each column, and the lines of the rows.

        Raises
        ------
        ValueError
            Naming the line of a row that has not as many cells as the first one.
        """
        reader, rows, lines, start = self.dialect.read_rows(text), [], [], self._line
        for row in reader:
            self._line = start + reader.line_num - 1
            if any(cell.strip() for cell in row):
                self._check_width(row)
                rows.append(row)
                lines.append(self._line)
        columns = []
        for column in zip(*rows, strict=True) if rows else [()] * len(self.columns):
            index_of = {}
            indices = [index_of.setdefault(cell, len(index_of)) for cell in column]
            columns.append(([*index_of], np.array(indices, dtype=int)))
        return columns, np.array(lines, dtype=int)

    def _check_width(self, row):
        """Raise ValueError unless a row has a cell for each column."""
        if len(row) == len(self.columns):
            return
        message = f"{self.path}, line {self._line}: {len(row)} fields where the first line has {len(self.columns)}"
        if not self._is_detected:
            raise ValueError(message)
        message = f"{message} (between {self.dialect.separator_name}; separator= says otherwise)"
        raise suggest_arguments(message, "separator")

    def _note_lines(self, lines):
        """Note the lines of new rows where they do not follow from those before."""
        rows = self._count + np.arange(len(lines))
        last = self._line_offsets[-1][1] if self._line_offsets else 0
        changes = np.flatnonzero(np.diff(lines - rows, prepend=last)).tolist()
        self._line_offsets += [(int(rows[i]), int(lines[i] - rows[i])) for i in changes]


def _make_decoder(path, first, encoding):
    """Return an incremental decoder that ends lines with a line feed; by default byte-order marks decide."""
    if encoding is None:
        marked = first[:2] in (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)
        encoding = "utf-16" if marked else "utf-8"
    try:
        mark = codecs.lookup(encoding).name == "utf-8" and first.startswith(codecs.BOM_UTF8)
        decoder = codecs.getincrementaldecoder("utf-8-sig" if mark else encoding)()
        decoder.decode(b"")
    except (LookupError, ValueError) as error:
        raise ValueError(f"{path}: there is no encoding {encoding!r}; try utf-8, cp1252, latin-1 or utf-16") from error
    return io.IncrementalNewlineDecoder(decoder, translate=True)


def _find_end_of_rows(text):
    """Return where the last whole line ends that is not inside quotes; 0 if there is none."""
    end = text.rfind("\n") + 1
    while end and text.count('"', 0, end) % 2:
        end = text.rfind("\n", 0, text.rfind('"', 0, end)) + 1
    return end
