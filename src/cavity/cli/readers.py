"""Readers of the tables people have: shipped data, .npy, .csv and .parquet files, whole or in batches of their rows.

Files are read in order and never in memory as a whole if batches are wanted. Errors name file, line and value.
"""

import csv
import os
from itertools import chain, islice, repeat
from pathlib import Path

import numpy as np

from cavity import data
from cavity.base.errors import naming
from cavity.blocks import sources
from cavity.cli.table import Columns, as_number, numbered, places


def whole(source):
    """Return all columns of a table as they are."""
    return next(parts(source, repeat(None)))[0]


def batches(source, rows, skip=0, first=None):
    """Yield a table in batches of rows, each with the share of the table that has been read.

    Parameters
    ----------
    source : str
        A shipped data set, a .csv, .npy or .parquet file.
    rows : int
        Rows in a batch; the last one may have fewer.
    skip : int
        Rows at the beginning that are left out.
    first : int, optional
        Rows in the first batch, if it is to have others.
    """
    return parts(source, chain([first or rows], repeat(rows)), skip)


def parts(source, sizes, skip=0):
    """Yield a table in parts, each with the share that has been read; `sizes` yields their rows for ever, None for all.

    A reader of one kind of table has these arguments too.
    """
    path = Path(source)
    if not path.exists():
        return shipped_parts(source, sizes, skip)
    if path.suffix == ".npy":
        return npy_parts(source, sizes, skip)
    if path.suffix == ".parquet":
        from cavity.cli import parquet

        return parquet.parts(path, sizes, skip)
    return csv_parts(path, sizes, skip)


def spans(total, sizes, skip):
    """Yield the (start, stop) of the parts of so many rows."""
    while skip < total:
        start, skip = skip, min(skip + (next(sizes) or total), total)
        yield start, skip


# ------------------------------------------------------------------------------------------ shipped data


def shipped_parts(source, sizes, skip):
    """Yield the parts of a shipped data set; ValueError if there is none of that name."""
    if source not in data.names():
        shipped = ", ".join(data.names())
        raise ValueError(f"{source}: no such file, and no such data set (there is {shipped})")
    cells, about = data.table(source)
    cells = {name: array if array.dtype.kind == "f" else array.tolist() for name, array in cells.items()}
    table = Columns(source, cells, places(len(next(iter(cells.values())))), about)
    for start, stop in spans(len(table.places), sizes, skip):
        yield table.part(slice(start, stop)), stop / len(table.places)


# ------------------------------------------------------------------------------------------ .npy


def open_npy(source):
    """Return the rows of a .npy file, which stay there, and the names of its columns.

    The file is not mapped: a map of one that is cut short meanwhile ends the process.
    """
    rows = sources.open_source(source, "the data", ndim=(1, 2))
    return rows, numbered(rows.n_features)


def npy_parts(source, sizes, skip):
    """Yield the parts of a .npy file."""
    rows, names = open_npy(source)
    for start, stop in spans(rows.n_rows, sizes, skip):
        columns = np.ascontiguousarray(rows.rows(start, stop).reshape(stop - start, -1).T)  # read one at a time
        yield Columns(source, dict(zip(names, columns, strict=True)), places(stop - start, start)), stop / rows.n_rows


# ------------------------------------------------------------------------------------------ .csv


def csv_parts(path, sizes, skip):
    """Yield the parts of a .csv file; rows that are blank do not count."""
    size = os.path.getsize(path)
    with open(path, newline="", encoding="utf-8-sig") as file:
        lines = filled_lines(path, csv.reader(file))
        names, lines = header(path, lines)
        lines = islice(lines, skip, None)
        while part := list(islice(lines, next(sizes))):
            yield text_columns(path, names, part), file.buffer.tell() / size if size else 1.0  # a pipe has no size


def filled_lines(path, reader):
    """Yield (line number, cells) of the rows that are not blank."""
    try:
        with naming(path):
            for row in reader:
                if any(cell.strip() for cell in row):
                    yield reader.line_num, row
    except (csv.Error, UnicodeDecodeError) as error:
        raise ValueError(f"{path}, line {reader.line_num + 1}: not readable as CSV ({error})") from error


def header(path, lines):
    """Return the names of the columns, their numbers where the first line has none, and the lines with rows."""
    first = next(lines, None)
    if first is None:
        raise ValueError(f"{path}: the file holds no rows")
    if all(as_number(cell) is not None for cell in first[1]):
        return numbered(len(first[1])), chain([first], lines)
    second = next(lines, None)
    if second is None:
        raise ValueError(f"{path}: the file holds a header and no rows")
    return [cell.strip() for cell in first[1]], chain([second], lines)


def text_columns(path, names, lines):
    """Return rows of text, as (line number, cells), as columns; ValueError for names or rows that do not fit."""
    numeric = [name for name in names if as_number(name) is not None]
    if numeric and numeric != numbered(len(names)):  # a table without header whose first row would be lost
        raise ValueError(
            f"{path}: the first line holds both numbers ({numeric[0]}) and text; put a line with column names above it"
        )
    for line, row in lines:
        if len(row) != len(names):
            raise ValueError(f"{path}, line {line}: {len(row)} fields where the first line has {len(names)}")
    unnamed = tuple(number for number, name in zip(numbered(len(names)), names, strict=True) if not name)
    names = [name or number for number, name in zip(numbered(len(names)), names, strict=True)]
    twice = next((name for name in names if names.count(name) > 1), None)
    if twice is not None:
        raise ValueError(f"{path}: two columns are called {twice!r}")
    cells = {name: [row[j].strip() for _, row in lines] for j, name in enumerate(names)}
    return Columns(str(path), cells, [f"line {line}" for line, _ in lines], unnamed=unnamed)
