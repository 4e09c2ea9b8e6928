"""Reading the tables people have: shipped data sets, .npy arrays and .csv files; errors name file, line and value."""

import csv
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from .. import data


@dataclass(frozen=True, slots=True)
class Table:
    """Numbers (N, d), the names of the columns, and what is known about the data."""

    name: str
    values: np.ndarray
    columns: list
    about: dict = field(default_factory=dict)


def read(source, columns=None):
    """Read a shipped data set by name, or the columns (names or numbers from 1) of a .csv or .npy file."""
    if source in data.names() and not Path(source).exists():
        if columns:
            raise ValueError(f"--column has no meaning for the shipped data set {source!r}")
        values, about = data.load(source)
        return Table(source, values[:, None], [about["column"]], about)
    path = Path(source)
    if not path.exists():
        raise ValueError(f"{source}: no such file, and no such data set (there is {', '.join(data.names())})")
    if path.suffix == ".npy":
        return _read_npy(path, columns)
    return _read_csv(path, columns)


def _read_npy(path, columns):
    try:
        array = np.load(path, mmap_mode="r", allow_pickle=False)
    except (ValueError, EOFError) as error:
        raise ValueError(f"{path}: not a readable .npy file ({error})") from error
    if array.dtype.kind not in "biuf" or array.ndim not in (1, 2) or array.size == 0:
        raise ValueError(f"{path}: expected numbers of shape (N,) or (N, d), got {array.dtype} of shape {array.shape}")
    array = array[:, None] if array.ndim == 1 else array
    names = [str(i + 1) for i in range(array.shape[1])]
    index = _select(path, names, columns)
    values = np.array(array[:, index], dtype=np.float64)
    bad = np.argwhere(~np.isfinite(values))
    if len(bad):
        row, column = bad[0]
        raise ValueError(f"{path}, row {row + 1}: column {names[index[column]]} is {values[row, column]}")
    return Table(path.name, values, [names[i] for i in index])


def _read_csv(path, columns):
    with open(path, newline="", encoding="utf-8-sig") as file:
        reader = csv.reader(file)
        try:
            lines = [(reader.line_num, row) for row in reader if any(cell.strip() for cell in row)]
        except (csv.Error, UnicodeDecodeError) as error:
            raise ValueError(f"{path}, line {reader.line_num + 1}: not readable as CSV ({error})") from error
    if not lines:
        raise ValueError(f"{path}: the file holds no rows")
    header = lines[0][1] if any(_number(cell) is None for cell in lines[0][1]) else None
    names = [cell.strip() for cell in header] if header else [str(i + 1) for i in range(len(lines[0][1]))]
    lines = lines[1:] if header else lines
    if not lines:
        raise ValueError(f"{path}: the file holds a header and no rows")
    index = _select(path, names, columns)
    values = np.empty((len(lines), len(index)))
    for i, (line, row) in enumerate(lines):
        if len(row) != len(names):
            raise ValueError(f"{path}, line {line}: {len(row)} fields where the first line has {len(names)}")
        for j, column in enumerate(index):
            value = _number(row[column])
            if value is None or not np.isfinite(value):
                raise ValueError(
                    f"{path}, line {line}: column {names[column]!r} is {row[column]!r}, not a finite number"
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
