"""Reading the tables people have: shipped data, .npy, .csv and .parquet files; errors name file, line and value."""

import csv
from itertools import chain
from pathlib import Path

import numpy as np

from cavity import data
from cavity.base import arrays
from cavity.base.errors import naming
from cavity.blocks import merge, sources
from cavity.cli.table import Columns, as_number, listed, select

GAPS_POSSIBLE = "; a fit with --covariance diag or spherical can do with missing values"
MAD_TO_SD = 1.4826  # standard deviation of a normal distribution over its median absolute deviation


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


def read(source, columns):
    """Return columns (names or numbers from 1), all numbers, as (values (N, d), names, what is known of them).

    Of what is known there are a title and a unit, if nothing better the name of the file and nothing.
    """
    if Path(source).suffix == ".npy" and Path(source).exists():
        rows, names = open_npy(source)
        names = [names[i] for i in select(source, names, columns)]
        cells = dict(zip(names, rows.columns([int(name) - 1 for name in names]).rows().T, strict=True))
        table = Columns(source, cells, _places("row", rows.n_rows))
    else:
        table = read_columns(source)
        if columns and len(table.cells) == 1 and table.about:
            raise ValueError(f"--column has no meaning for the shipped data set {source!r}")
        names = table.select(columns)
    values = np.column_stack([table.numbers(name) for name in names])
    return values, names, {"title": Path(source).name, "unit": ""} | table.about


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
        index = select(source, names, listed(columns)) if columns is not None else range(len(names))
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


def _are_numbers_of_columns(names):
    """Whether these are numbers from 1 without many gaps, as of columns without names; years, say, are names."""
    others = 3  # a target, an offset and weights, which may have stood among them
    return all(name.isdecimal() and 1 <= int(name) <= len(names) + others for name in names)


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


def read_columns(source):
    """Read all columns of a shipped data set, a .csv, .npy or .parquet file, as they are."""
    if _is_shipped(source):
        cells, about = data.table(source)
        cells = {name: array if array.dtype.kind == "f" else array.tolist() for name, array in cells.items()}
        return Columns(source, cells, _places("row", len(next(iter(cells.values())))), about)
    path = Path(source)
    if path.suffix == ".npy":
        rows, names = open_npy(source)
        values = arrays.matrix((len(names), rows.n_rows), f"{source}: a table")  # a column is a row of it
        for block, (low, high) in enumerate(merge.starts(rows.n_rows, rows.block_rows)):
            values[:, low:high] = rows.read(block).reshape(high - low, -1).T
        return Columns(source, dict(zip(names, arrays.read_only(values), strict=True)), _places("row", rows.n_rows))
    if path.suffix == ".parquet":
        from cavity.cli import parquet

        return next(parquet.parts(path))[0]
    names, lines = _csv_lines(path)
    return text_columns(path, names, lines)


def text_columns(path, names, lines):
    """Return rows of text, as (line number, cells), as columns; ValueError for names or rows that do not fit."""
    numeric = [name for name in names if as_number(name) is not None]
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
    rows = sources.open_source(source, "the data", ndim=(1, 2))
    return rows, [str(j + 1) for j in range(rows.n_features)]


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
    if all(as_number(cell) is not None for cell in first[1]):
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
