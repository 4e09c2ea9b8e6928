"""Text files as numbers, in pieces of whole lines, as they are read.

A piece is parsed by pyarrow where that is installed, and in Python where pyarrow says no, which knows the line and the
value. Text is turned into the numbers of its different values.
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

from cavity.base.errors import naming
from cavity.base.frames import repeated
from cavity.sources.dialects import MISSING, detect_dialect, is_missing, suggest_arguments

FIRST_PIECE_BYTES = 1 << 16  # bytes; columns are looked for in it
FIRST_LINES = 10  # and in at least so many lines, if there are
PIECE_BYTES = 1 << 22
LONGEST_RECORD = 1 << 24  # characters without an end of a row, after which a quote is missing
MOST_VALUES = 1 << 16  # different values of a column of text that are kept
SPELLINGS = [*{each for word in MISSING for each in (word, word.upper(), word.title())}, "NaN", "N/A"]  # for pyarrow


@dataclass(slots=True)
class TextColumn:
    """What is known of a column so far; rows and lines are those of the first cell of its kind."""

    name: str
    named: bool = True  # or it has its number for a name
    number: tuple | None = None  # (row, line, cell) of the first number
    text: tuple | None = None  # and of the first cell that is none
    values: dict = field(default_factory=dict)  # of text, with their numbers in order of appearance; None if too many

    def kinds(self, row):
        """Return whether there were numbers, and text, before a row."""
        return [first is not None and first[0] < row for first in (self.number, self.text)]

    def code(self, cell):
        """Return the number that stands for a cell of text."""
        if self.values is None:
            return np.nan
        found = self.values.setdefault(cell, float(len(self.values)))
        if len(self.values) > MOST_VALUES:
            self.values, found = None, np.nan
        return found


class TextReader:
    """The rows of a text file in pieces, as they come: of a pipe, too.

    Parameters
    ----------
    file : path or binary file
        What to read.
    separator, decimal, encoding : str, optional
        What is not to be found from the first lines.

    Attributes
    ----------
    columns : list of Column
        What is known of them.
    dialect : Dialect
        What separates columns and decimals.
    share : float
        Of the file that has been read; 1 where nobody knows.
    """

    def __init__(self, file, *, separator=None, decimal=None, encoding=None):
        self.path = str(getattr(file, "name", "standard input") if hasattr(file, "read") else os.fspath(file))
        self.share, self._places = 0.0, []  # (row, how far its line is ahead of it), where that changes
        self._texts, self._line = self._whole_lines(file, encoding), 1
        with self._refusing():
            text, self._line = next(self._texts, (None, 1))
        if text is None:
            raise ValueError(f"{self.path}: the file holds no rows")
        self.dialect = detect_dialect(self.path, text, separator, decimal)
        self._guessed = separator is None
        self.columns, text = self._header(text)
        self._texts = chain([(text, self._line)], self._texts)
        self._count = 0

    def __iter__(self):
        """Yield arrays (n, D): numbers, nan for what is missing, and for text the numbers of its values."""
        with self._refusing():
            for text, line in self._texts:
                self._line = line
                rows = self._fast(text)
                rows = self._slow(text) if rows is None else rows
                self._count += len(rows)
                if len(rows):
                    yield rows

    def describe_row(self, row):
        """Return words for a row, for messages."""
        _, ahead = self._places[bisect_right(self._places, row, key=itemgetter(0)) - 1]
        return f"line {row + ahead} of {self.path}"

    def check_rows(self):
        """Raise ValueError if there was no row."""
        if not self._count:
            raise ValueError(f"{self.path}: the file holds a header and no rows")

    # ------------------------------------------------------------------------------------------ lines

    def _whole_lines(self, file, encoding):
        """Yield (text, number of its first line): whole lines, with none but closed quotes."""
        with naming(self.path), nullcontext(file) if hasattr(file, "read") else open(file, "rb") as raw:
            size = 0 if raw is file else os.fstat(raw.fileno()).st_size
            raw = raw if hasattr(raw, "peek") else io.BufferedReader(raw)
            head = raw.peek(4)[:4]
            stream = gzip.GzipFile(fileobj=raw) if head[:2] == b"\x1f\x8b" else raw
            first = stream.read1(FIRST_PIECE_BYTES)
            while len(first) < FIRST_PIECE_BYTES and (more := stream.read1(FIRST_PIECE_BYTES - len(first))):
                first += more  # pipes bring little at a time
            decoder = _decoder(self.path, first, encoding)
            waiting, line, piece = "", 1, first
            while True:
                text = waiting + self._decoded(decoder, piece, line + waiting.count("\n"))
                end = _end_of_rows(text) if piece else len(text)
                self.share = min(1.0, raw.tell() / size) if size and raw.seekable() else 1.0
                if end and (line > 1 or not piece or text.count("\n", 0, end) >= FIRST_LINES):
                    yield text[:end], line
                    line += text.count("\n", 0, end)
                    text = text[end:]
                waiting = text
                if not piece:
                    return
                if not end and len(waiting) > LONGEST_RECORD:
                    raise ValueError(f"{self.path}, line {line}: a row that does not end; is a quote missing?")
                piece = stream.read1(PIECE_BYTES)

    def _decoded(self, decoder, piece, line):
        """Return bytes as text with plain ends of lines."""
        try:
            text = decoder.decode(piece, final=not piece)
        except UnicodeDecodeError as error:
            line += error.object.count(b"\n", 0, error.start)
            raise suggest_arguments(
                f"{self.path}, line {line}: not readable as {error.encoding} ({error.reason} 0x"
                f"{error.object[error.start]:02x}); give encoding='cp1252' or what it is written in",
                "encoding",
            ) from error
        if "\0" in text:
            line += text.count("\n", 0, text.index("\0"))
            raise ValueError(f"{self.path}, line {line}: not readable as CSV (a byte 0, which no text has)")
        return text

    @contextmanager
    def _refusing(self):
        """Turn errors of what decompresses and of csv into a ValueError that names the file, and the line."""
        try:
            yield
        except csv.Error as error:
            raise ValueError(f"{self.path}, line {self._line}: not readable as CSV ({error})") from error
        except (EOFError, zlib.error, gzip.BadGzipFile) as error:
            raise ValueError(f"{self.path}: not a whole gzip file ({error})") from error

    # ------------------------------------------------------------------------------------------ header

    def _header(self, text):
        """Return the columns that the first line names, or their numbers, and the text of the rows."""
        reader = self.dialect.rows(text)
        first = next((row for row in reader if any(cell.strip() for cell in row)), None)
        if first is None:
            raise ValueError(f"{self.path}: the file holds no rows")
        names = [cell.strip() for cell in first]
        numbered = [str(j + 1) for j in range(len(names))]
        numeric = [name for name in names if self.dialect.number(name) is not None]
        if len(numeric) == len(names):
            return [TextColumn(name) for name in numbered], text
        if numeric and names != numbered:  # a table without header whose first row would be lost
            raise ValueError(
                f"{self.path}: the first line holds both numbers ({numeric[0]}) and text; put a line with column "
                "names above it"
            )
        columns = [TextColumn(name or number, bool(name)) for name, number in zip(names, numbered, strict=True)]
        twice = repeated(column.name for column in columns)
        if twice is not None:
            raise ValueError(f"{self.path}: two columns are called {twice!r}")
        used = reader.line_num
        self._line += used
        return columns, text.split("\n", used)[used] if text.count("\n") >= used else ""

    # ------------------------------------------------------------------------------------------ rows

    def _fast(self, text):
        """Return the rows of a piece by pyarrow; None if that is missing or finds anything out of the ordinary."""
        try:
            from pyarrow import ArrowInvalid
            from pyarrow import csv as arrow
        except ImportError:
            return None
        count = text.count("\n") + (not text.endswith("\n"))
        if not text or self.dialect.separator == " " or not self._begun():
            return None
        names = [column.name for column in self.columns]
        kinds = {c.name: "float64" if c.text is None else "string" for c in self.columns}
        try:
            table = arrow.read_csv(
                io.BytesIO(text.encode()),
                arrow.ReadOptions(use_threads=False, block_size=len(text) * 4 + 64, column_names=names),
                arrow.ParseOptions(delimiter=self.dialect.separator),
                arrow.ConvertOptions(
                    column_types=kinds, null_values=SPELLINGS, decimal_point=self.dialect.decimal, check_utf8=False
                ),
            )
        except ArrowInvalid:
            return None
        if table.num_rows != count:
            return None
        rows = np.empty((count, len(names)))
        for column, cells, out in zip(self.columns, table.columns, rows.T, strict=True):
            if kinds[column.name] == "float64":
                out[...] = cells.to_numpy()
                if column.number is None and not np.isnan(out).all():
                    return None
            elif not self._codes(column, cells, out):
                return None
        if np.isnan(rows).all(axis=1).any():  # blank, perhaps
            return None
        self._place(0, self._line)
        return rows

    def _place(self, i, line):
        """Note the line of a row, the i-th that is new, if it does not follow from those before."""
        row = self._count + i
        if not self._places or self._places[-1][1] != line - row:
            self._places.append((row, line - row))

    def _begun(self):
        """Whether every column has shown of which kind it is, and none of them is of both."""
        return all((column.number is None) != (column.text is None) for column in self.columns)

    def _codes(self, column, cells, out):
        """Write the numbers of the values of text to out; False if some are numbers."""
        coded = cells.combine_chunks().dictionary_encode()
        codes = []
        for value in coded.dictionary.to_pylist():
            value = value.strip()
            if is_missing(value):
                codes.append(np.nan)
            elif self.dialect.number(value) is not None:
                return False
            else:
                codes.append(column.code(value))
        out[...] = np.array(codes)[coded.indices.to_numpy()]
        return True

    def _slow(self, text):
        """Return the rows of a piece, cell by cell; ValueError names the line of a row that does not fit."""
        reader, width, lines, rows, start = self.dialect.rows(text), len(self.columns), [], [], self._line
        for row in reader:
            self._line = start + reader.line_num - 1
            if not any(cell.strip() for cell in row):
                continue
            if len(row) != width:
                raise self._ragged(len(row), width)
            lines.append(self._line)
            rows.append(row)
        for i, line in enumerate(lines):
            self._place(i, line)
        found = np.empty((len(rows), width))
        for j, column in enumerate(self.columns):
            self._fill(column, [row[j].strip() for row in rows], lines, found[:, j])
        return found

    def _ragged(self, found, wanted):
        words = f"{self.path}, line {self._line}: {found} fields where the first line has {wanted}"
        if not self._guessed:
            return ValueError(words)
        return suggest_arguments(f"{words} (between {self.dialect.words}; separator= says otherwise)", "separator")

    def _fill(self, column, cells, lines, out):
        """Write the numbers that cells hold, or that stand for them, to out."""
        for i, cell in enumerate(cells):
            value = self.dialect.number(cell)
            if is_missing(cell):
                value = np.nan
            elif value is None:
                value = column.code(cell)
                column.text = column.text or (self._count + i, lines[i], cell)
            elif column.number is None:
                column.number = (self._count + i, lines[i], cell)
            out[i] = value


def _decoder(path, first, encoding):
    """Return an incremental decoder with plain ends of lines; byte-order marks say what is not given."""
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


def _end_of_rows(text):
    """Return where the last whole line ends that is not inside of quotes; 0 if there is none."""
    end = text.rfind("\n") + 1
    while end and text.count('"', 0, end) % 2:
        end = text.rfind("\n", 0, text.rfind('"', 0, end)) + 1
    return end
