"""A table in memory: cells by column, numbers, choices of columns, and what to say of missing values."""

from dataclasses import dataclass, field

import numpy as np

MISSING = {"", "na", "n/a", "nan", "null"}  # cells without a value, in lower case
NAMED = 5  # most rows named in a message


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
        return [names[i] for i in select(self.source, names, wanted)]

    def chosen(self, wanted, option, taken=()):
        """Return the names of the columns in a comma-separated list, or of all numeric ones, and notes on others.

        `option` is the one of the command line that holds the list, `taken` the columns that have another part.
        """
        if wanted is not None:
            names = self.select(listed(wanted))
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
                shown = ", ".join(self.places[i] for i in rows[:NAMED])
                gaps.append(f"{column!r} in {shown}" + (f" and {len(rows) - NAMED} more" if len(rows) > NAMED else ""))
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
            hint = "; fill it in or drop the row" if missing[bad[0]] else ""
            place = f"{self.source}, {self.places[bad[0]]}"
            raise ValueError(f"{place}: column {column!r} is {shown}, not a finite number{hint}")
        return values

    def _parse(self, column):
        """Return the numbers of a column, nan where there is none, and which cells are missing."""
        if column not in self._parsed:
            cells = self.cells[column]
            if isinstance(cells, np.ndarray):
                values = np.asarray(cells, dtype=np.float64)
                missing = np.isnan(values)
            else:
                numbers = (as_number(cell) for cell in cells)
                values = np.array([np.nan if number is None else number for number in numbers])
                missing = np.array([cell.lower() in MISSING for cell in cells])
            self._parsed[column] = values, missing
        return self._parsed[column]


def places(count, first=0):
    """Return where rows stand in a file that has no lines, from row number `first` on, which counts from 0."""
    return [f"row {first + i + 1}" for i in range(count)]


def numbered(count):
    """Return the names of columns that have none, their numbers."""
    return [str(j + 1) for j in range(count)]


def listed(text):
    """Return the names in a comma-separated list, or those of a list as they are."""
    if not isinstance(text, str):
        return list(text)
    return [name.strip() for name in text.split(",") if name.strip()] or [""]


def in_order_of(fitted, names):
    """Return the columns of a fit if these are the same ones, in any order; else the names as they are."""
    return list(fitted) if fitted is not None and sorted(names) == sorted(fitted) else names


def some(words, most=NAMED):
    """Return the first of some words, separated by commas, and whether there are more."""
    return ", ".join(words[:most]) + (", ..." if len(words) > most else "")


def digits(value, sd):
    """Return a number with as many digits as its uncertainty leaves, at least 6."""
    known = np.log10(max(abs(value) / sd, 1.0)) if value else 0.0
    return f"{value:.{int(np.clip(np.ceil(known) + 2, 6, 17))}g}"


def as_number(text):
    try:
        return float(text)
    except ValueError:
        return None


def select(path, names, columns):
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
