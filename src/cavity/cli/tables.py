"""Reading the tables people have: shipped data, .npy, .csv and .parquet files; errors name file, line and value."""

import csv
from dataclasses import dataclass, field
from itertools import chain
from pathlib import Path

import numpy as np

from .. import _arrays, _blocks, data
from ..errors import naming

MISSING = {"", "na", "n/a", "nan", "null"}  # cells without a value, in lower case
SHOWN = 5  # most rows named in a message
GAPS_POSSIBLE = "; a fit with --covariance diag or spherical can do with missing values"
MAD_TO_SD = 1.4826  # standard deviation of a normal distribution over its median absolute deviation


@dataclass(frozen=True, slots=True)
class Table:
    """Numbers (N, d), the names of the columns, and what is known about the data."""

    name: str
    values: np.ndarray
    columns: list
    about: dict = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Columns:
    """Columns by name, each a list of text or an array of numbers, for models that treat columns differently."""

    source: str
    cells: dict
    places: list  # where each row stands in the file: "line 7", "row 3"
    about: dict = field(default_factory=dict)
    unnamed: tuple = ()  # columns without a name in the header, called by their number
    _parsed: dict = field(default_factory=dict)

    def part(self, rows):
        """Return the columns of a slice of the rows."""
        cells = {name: column[rows] for name, column in self.cells.items()}
        return Columns(self.source, cells, self.places[rows], self.about, self.unnamed)

    def select(self, wanted):
        """Return the names of columns given by names or by numbers from 1."""
        names = list(self.cells)
        return [names[i] for i in _select(self.source, names, wanted)]

    def chosen(self, wanted, option, taken=()):
        """Return the names of the columns in a comma-separated list, or of all numeric ones, and notes on others.

        `option` is the one of the command line that holds the list, `taken` the columns that have another part.
        """
        if wanted is not None:
            names = self.select(_listed(wanted))
            for name in names:
                self._check_chosen(name, names, option, taken)
            return names, []
        names, notes = [], []
        for name in self.cells:
            if name in taken:
                continue
            if name in self.unnamed:
                notes.append(f"column {name} (has no name)")
            elif self.is_text(name):
                notes.append(f"{name} (text)")
            else:
                names.append(name)
        return names, notes

    def _check_chosen(self, name, names, option, taken):
        """Raise ValueError for a column that has another part, was chosen before, or holds text."""
        if name in taken:
            raise ValueError(f"{option}: column {name!r} is already the target, the offset or the weights")
        if names.count(name) > 1:
            raise ValueError(f"{option}: column {name!r} is there twice")
        if self.is_text(name):
            kinds = sorted(set(self.cells[name]))
            raise ValueError(
                f"{self.source}: column {name!r} holds text ({some(kinds)}); make one column of 0 and 1 "
                f"for each category but one, or leave it out of {option}"
            )

    def is_text(self, column):
        """Whether no cell of the column is a number (and not all are missing)."""
        values, missing = self._parse(column)
        return bool(np.isnan(values[~missing]).all() and not missing.all())

    def check_complete(self, columns, way_out=""):
        """Raise ValueError naming the rows in which one of the columns has no value; `way_out` says what else helps."""
        gaps = []
        for column in columns:
            rows = np.flatnonzero(self._parse(column)[1])
            if len(rows):
                shown = ", ".join(self.places[i] for i in rows[:SHOWN])
                gaps.append(f"{column!r} in {shown}" + (f" and {len(rows) - SHOWN} more" if len(rows) > SHOWN else ""))
        if gaps:
            raise ValueError(
                f"{self.source}: missing values in column {'; in column '.join(gaps)}; "
                f"fill them in or drop these rows, or leave the column out{way_out}"
            )

    def numbers(self, column, *, gaps=False):
        """Return a column as float64; ValueError names the line and the value that is no finite number.

        With `gaps`, values may be missing, and are nan.
        """
        values, missing = self._parse(column)
        bad = np.flatnonzero(~np.isfinite(values) & ~(missing & gaps))
        if len(bad):
            cell = self.cells[column][bad[0]]
            shown = repr(cell) if isinstance(cell, str) else f"{cell:g}"
            raise ValueError(f"{self.source}, {self.places[bad[0]]}: column {column!r} is {shown}, not a finite number")
        return values

    def _parse(self, column):
        """Return the numbers of a column, nan where there is none, and which cells are missing."""
        if column not in self._parsed:
            cells = self.cells[column]
            if isinstance(cells, np.ndarray):
                values = np.asarray(cells, dtype=np.float64)
                missing = np.isnan(values)
            else:
                numbers = (_number(cell) for cell in cells)
                values = np.array([np.nan if number is None else number for number in numbers])
                missing = np.array([cell.lower() in MISSING for cell in cells])
            self._parsed[column] = values, missing
        return self._parsed[column]


def check_paths(options):
    """Raise ValueError if a file to be written has no folder, or is the data."""
    for option in ("output", "plot"):
        path = getattr(options, option, None)
        if path is None:
            continue
        if not Path(path).absolute().parent.is_dir():
            raise ValueError(f"--{option}: the folder of {path} does not exist")
        for source, what in ((options.data, "data"), (getattr(options, "posterior", None), "posterior's")):
            if source is not None and Path(path).resolve() == Path(source).resolve():
                raise ValueError(f"--{option}: {path} is the {what} file; it would be overwritten")


def read(source, columns=None):
    """Read a shipped data set by name, or columns (names or numbers from 1) of a .csv, .npy or .parquet file."""
    shipped = _is_shipped(source)
    if shipped or Path(source).suffix == ".parquet":
        table = read_columns(source)
        if len(table.cells) > 1 or not shipped:
            chosen = table.select(columns)
            return Table(source, np.column_stack([table.numbers(column) for column in chosen]), chosen, table.about)
        if columns:
            raise ValueError(f"--column has no meaning for the shipped data set {source!r}")
        values, about = data.load(source)
        return Table(source, values[:, None], [about["column"]], about)
    path = Path(source)
    if path.suffix == ".npy":
        return _read_npy(source, columns)
    return _read_csv(path, columns)


def matrix(source, option, gaps, way_out=GAPS_POSSIBLE, *, columns=None, fitted=None):
    """Return the columns of a table, for a model that treats all the same, with their names and what is known of them.

    Parameters
    ----------
    source : str
        A shipped data set, a .csv, .npy or .parquet file.
    option : str
        The option that says which columns, for messages.
    gaps : bool
        Whether values may be missing: they are nan then.
    way_out : str
        What else to do about missing values, for messages.
    columns : str or None
        Names or numbers from 1, separated by commas; all numeric columns if None.
    fitted : tuple of str or None
        Those of a fit, which are taken where `columns` is None. Columns without names, of a .npy file, are taken by
        position, if they are as many.

    Returns
    -------
    X : ndarray or Source
        (N, D); the numbers of a .npy file are left there.
    names : list of str
        Of the D columns.
    about : dict
        What is known of a shipped data set.
    notes : list of str
        Columns that were left out, and why.
    """
    if Path(source).suffix == ".npy" and Path(source).exists():
        rows, names = open_npy(source)
        if columns is None and fitted is not None and len(names) != len(fitted):
            columns = _of_fit(source, names, fitted)
        index = _select(source, names, _listed(columns)) if columns is not None else range(len(names))
        if len(set(index)) < len(index):
            raise ValueError(f"{option}: a column is there twice in {columns!r}")
        return rows.columns(index), [names[j] for j in index], {}, []
    table = read_columns(source)
    if columns is None and fitted is not None:
        columns = _of_fit(source, list(table.cells), fitted)
    names, notes = table.chosen(columns, option)
    if not names:
        raise ValueError(f"{source}: there is no column of numbers")
    if not gaps:
        table.check_complete(names, way_out)
    return np.column_stack([table.numbers(name, gaps=gaps) for name in names]), names, table.about, notes


def _of_fit(source, there, fitted):
    """Return the columns of a fit, all of which must be there; None where they had no names, only numbers."""
    missing = [name for name in fitted if name not in there]
    if missing and _are_numbers_of_columns(fitted):
        return None
    if missing:
        raise ValueError(
            f"{source}: no column {', '.join(map(repr, missing))}, which the fit had; there is {', '.join(there)}; "
            "choose with --columns if they have other names"
        )
    return list(fitted)


def _are_numbers_of_columns(names):
    """Whether these are numbers from 1 without many gaps, as of columns without names; years, say, are names."""
    others = 3  # a target, an offset and weights, which may have stood among them
    return all(name.isdecimal() and 1 <= int(name) <= len(names) + others for name in names)


def _listed(text):
    """Return the names in a comma-separated list, or those of a list as they are."""
    if not isinstance(text, str):
        return list(text)
    return [name.strip() for name in text.split(",") if name.strip()] or [""]


def some(words, most=SHOWN):
    """Return the first of some words, separated by commas, and whether there are more."""
    return ", ".join(words[:most]) + (", ..." if len(words) > most else "")


def digits(value, sd):
    """Return a number with as many digits as its uncertainty leaves, at least 6."""
    known = np.log10(max(abs(value) / sd, 1.0)) if value else 0.0
    return f"{value:.{int(np.clip(np.ceil(known) + 2, 6, 17))}g}"


def read_columns(source):
    """Read all columns of a shipped data set, a .csv, .npy or .parquet file, as they are."""
    if _is_shipped(source):
        cells, about = data.table(source)
        cells = {name: array if array.dtype.kind == "f" else array.tolist() for name, array in cells.items()}
        return Columns(source, cells, _places("row", len(next(iter(cells.values())))), about)
    path = Path(source)
    if path.suffix == ".npy":
        rows, names = open_npy(source)
        values = _arrays.matrix((len(names), rows.n_rows), f"{source}: a table")  # a column is a row of it
        for block, (low, high) in enumerate(_blocks.starts(rows.n_rows, rows.block_rows)):
            values[:, low:high] = rows.read(block).reshape(high - low, -1).T
        return Columns(source, dict(zip(names, _arrays.read_only(values), strict=True)), _places("row", rows.n_rows))
    if path.suffix == ".parquet":
        from . import parquet

        return next(parquet.parts(path))[0]
    names, lines = _csv_lines(path)
    return text_columns(path, names, lines)


def text_columns(path, names, lines):
    """Return rows of text, as (line number, cells), as columns; ValueError for names or rows that do not fit."""
    numeric = [name for name in names if _number(name) is not None]
    if numeric and numeric != _places("", len(names)):  # a table without header whose first row would be lost
        raise ValueError(
            f"{path}: the first line holds both numbers ({numeric[0]}) and text; put a line with column names above it"
        )
    for line, row in lines:
        _check_length(path, line, row, names)
    unnamed = tuple(str(j + 1) for j, name in enumerate(names) if not name)
    names = [name or str(j + 1) for j, name in enumerate(names)]
    twice = next((name for name in names if names.count(name) > 1), None)
    if twice is not None:
        raise ValueError(f"{path}: two columns are called {twice!r}")
    cells = {name: [row[j].strip() for _, row in lines] for j, name in enumerate(names)}
    return Columns(str(path), cells, [f"line {line}" for line, _ in lines], unnamed=unnamed)


def _places(word, count):
    return [f"{word} {i + 1}".lstrip() for i in range(count)]


def _is_shipped(source):
    """Whether the source names a shipped data set; ValueError if it is neither that nor a file."""
    if Path(source).exists():
        return False
    if source in data.names():
        return True
    raise ValueError(f"{source}: no such file, and no such data set (there is {', '.join(data.names())})")


def open_npy(source):
    """Return the rows of a .npy file, which stay there, and the names of its columns.

    The file is not mapped: a map of one that is cut short meanwhile ends the process.
    """
    rows = _blocks.open_source(source, "the data", ndim=(1, 2))
    return rows, [str(j + 1) for j in range(rows.n_features)]


def _read_npy(source, columns):
    rows, names = open_npy(source)
    index = _select(source, names, columns)
    values = rows.columns(index).rows()
    bad = np.argwhere(~np.isfinite(values))
    if len(bad):
        row, column = bad[0]
        raise ValueError(f"{source}, row {row + 1}: column {names[index[column]]} is {values[row, column]}")
    return Table(Path(source).name, values, [names[i] for i in index])


def _csv_lines(path):
    """Return the names of the columns (their numbers without a header) and the rows as (line number, cells)."""
    with open_text(path) as file:
        names, lines = csv_reader(path, file)
        return names, list(lines)


def open_text(path):
    """Open a .csv file."""
    return open(path, newline="", encoding="utf-8-sig")


def csv_reader(path, file):
    """Return the names of the columns of an open file, and an iterator over its rows that are not blank."""
    lines = _filled_lines(path, csv.reader(file))
    first = next(lines, None)
    if first is None:
        raise ValueError(f"{path}: the file holds no rows")
    if all(_number(cell) is not None for cell in first[1]):
        return [str(i + 1) for i in range(len(first[1]))], chain([first], lines)
    second = next(lines, None)
    if second is None:
        raise ValueError(f"{path}: the file holds a header and no rows")
    return [cell.strip() for cell in first[1]], chain([second], lines)


def _filled_lines(path, reader):
    """Yield (line number, cells) of the rows that are not blank."""
    try:
        with naming(path):
            for row in reader:
                if any(cell.strip() for cell in row):
                    yield reader.line_num, row
    except (csv.Error, UnicodeDecodeError) as error:
        raise ValueError(f"{path}, line {reader.line_num + 1}: not readable as CSV ({error})") from error


def _check_length(path, line, row, names):
    if len(row) != len(names):
        raise ValueError(f"{path}, line {line}: {len(row)} fields where the first line has {len(names)}")


def _read_csv(path, columns):
    names, lines = _csv_lines(path)
    index = _select(path, names, columns)
    values = np.empty((len(lines), len(index)))
    for i, (line, row) in enumerate(lines):
        _check_length(path, line, row, names)
        for j, column in enumerate(index):
            value = _number(row[column])
            if value is None or not np.isfinite(value):
                hint = "; fill it in or drop the row" if row[column].strip().lower() in MISSING else ""
                raise ValueError(
                    f"{path}, line {line}: column {names[column]!r} is {row[column]!r}, not a finite number{hint}"
                )
            values[i, j] = value
    return Table(path.name, values, [names[i] for i in index])


def _number(text):
    try:
        return float(text)
    except ValueError:
        return None


def _select(path, names, columns):
    """Return the indices of the wanted columns; a file with one column needs no choice."""
    if not columns:
        if len(names) > 1:
            raise ValueError(f"{path}: choose one or more columns with --column; there is {', '.join(names)}")
        return [0]
    index = []
    for column in columns:
        if column in names:
            index.append(names.index(column))
        elif column.isdigit() and 1 <= int(column) <= len(names):
            index.append(int(column) - 1)
        else:
            raise ValueError(f"{path}: no column {column!r}; there is {', '.join(names)}")
    return index
