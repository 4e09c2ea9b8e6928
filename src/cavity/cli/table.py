"""A table as the commands see it: columns by name, numbers and text, and what to say of missing values."""

from dataclasses import dataclass, field, replace
from functools import cached_property

import numpy as np

from cavity.runs import merge
from cavity.sources.sources import Source

NAMED = 5  # most rows named in a message
MOST_COLUMNS_LISTED = 40  # most names of columns in a message


@dataclass(frozen=True, eq=False)
class Columns:
    """The columns of a source, or of some of its rows, for models that treat columns differently."""

    source: str  # as it was typed
    rows: Source  # those of text are columns too
    about: dict = field(default_factory=dict)
    start: int = 0
    stop: int | None = None
    made: dict = field(default_factory=dict)  # columns of 0 and 1 to be made: (column of text, value) by their names
    _opened: dict = field(default_factory=dict)  # of some columns, which know where they were reading

    def __len__(self):
        return (self.rows.n_rows if self.stop is None else self.stop) - self.start

    @cached_property
    def names(self):
        """The names of the columns, their numbers from 1 if they have none."""
        return list(self.rows.names or numbered(self.rows.n_features))

    @property
    def unnamed(self):
        """Columns without a name among others, called by their number."""
        return getattr(self.rows.parts[0], "unnamed", ())

    def part(self, start, stop):
        """Return the table of some of the rows."""
        return replace(self, start=self.start + start, stop=self.start + stop)

    def place(self, row):
        """Return words for a row, for messages: rows count from 1, as lines do."""
        words = self.rows.where(self.start + row)
        return words.partition(" of ")[0] if words.startswith("line ") else f"row {self.start + row + 1}"

    # ------------------------------------------------------------------------------------------ choices

    def select(self, wanted):
        """Return the names of columns given by names or by numbers from 1; of one column it needs no choice."""
        if not wanted and len(self.names) > 1:
            raise ValueError(f"{self.source}: choose one or more columns with --column; there is {self.listed}")
        return [self._found(column) for column in wanted] if wanted else self.names

    def _found(self, column):
        if column in self.names or column in self.made:
            return column
        if column.isdigit() and 1 <= int(column) <= len(self.names):
            return self.names[int(column) - 1]
        raise ValueError(f"{self.source}: no column {column!r}; there is {self.listed}")

    @property
    def listed(self):
        """The names, of many the first, for messages."""
        return some([repr(name)[1:-1] for name in self.names], MOST_COLUMNS_LISTED)

    def chosen(self, wanted, option, taken=()):
        """Return the names of the columns in a comma-separated list, or of all numeric ones, and notes on others.

        `option` is the one of the command line that holds the list, `taken` the columns that have another part.
        """
        if wanted is not None:
            names = [each for name in self.select(listed(wanted)) for each in self.made_of(name) or [name]]
            names = [*(each for each in self.made_of(None) if each not in names), *names]
            for name in names:
                self._check_chosen(name, names, option, taken)
            return names, []
        names, notes = self.made_of(None), []
        for name in self.names:
            if name in taken:
                continue
            if self.made_of(name):
                names += self.made_of(name)
            elif name in self.unnamed:
                notes.append(f"column {name} (has no name)")
            elif self.is_text(name):
                notes.append(f"{name} (text)")
            else:
                names.append(name)
        return names, notes

    def made_of(self, name):
        """Return the names of the columns of 0 and 1 to be made of one."""
        return [each for each, (origin, _) in self.made.items() if origin == name]

    def _check_chosen(self, name, names, option, taken):
        """Raise ValueError for a column that has another part, was chosen before, or holds text."""
        if name in taken:
            raise ValueError(f"{option}: column {name!r} is already the target, the offset or the weights")
        if names.count(name) > 1:
            raise ValueError(f"{option}: column {name!r} is there twice")
        if name not in self.made and self.is_text(name):
            kinds = sorted({*self.text(name)} - {""})
            raise ValueError(
                f"{self.source}: column {name!r} holds text ({some(kinds)}); make one column of 0 and 1 "
                f"for each category but one, as --categorical {name} does, or leave it out of {option}"
            )

    # ------------------------------------------------------------------------------------------ contents

    def of(self, names):
        """Return some columns as a Source (N, d), all rows of the table; whether they hold numbers is not yet known."""
        key = tuple(names)
        if key not in self._opened:
            self._opened[key] = self.rows.columns([self.names.index(name) for name in names])
        return self._opened[key]

    def is_text(self, column):
        """Whether the column holds text, or anything but numbers."""
        try:
            self.of([column]).check_numbers(column)
        except TypeError:
            return True
        except ValueError:  # numbers, and a cell that is none
            return False
        return False

    def text(self, column):
        """Return a column as an array of strings, numbers in six figures, "" for what is missing."""
        key = column, "text"
        if key not in self._opened:
            values = np.asarray(self.rows.values(self.names.index(column)))
            if values.dtype.kind != "U":
                words = "{:g}".format if not self.is_text(column) else str
                values = np.array(["" if each is None or each != each else words(each) for each in values.tolist()])
            self._opened[key] = values
        return self._opened[key][self.start : self.stop]

    def matrix(self, columns):
        """Return columns of numbers as an array (n, d); nan for what is missing."""
        for column in columns:
            self._check_numbers(column)
        return self.of(columns).rows(self.start, self.start + len(self)) if columns else np.empty((len(self), 0))

    def _check_numbers(self, column):
        """Raise ValueError with the first cell of a column that holds text."""
        if self.is_text(column):
            text = self.text(column)
            row = int(np.argmax(text != ""))
            where = f"{self.source}, {self.place(row)}"
            raise ValueError(f"{where}: column {column!r} is {str(text[row])!r}, not a finite number")
        self.of([column]).check_numbers(column)

    def check_complete(self, columns, way_out="; --missing drop leaves these rows out"):
        """Raise ValueError naming the rows in which one of the columns has no value; `way_out` says what else helps."""
        gaps = []
        for column, (rows, count) in self._gaps(columns).items():
            shown = ", ".join(self.place(row) for row in rows)
            gaps.append(f"{column!r} in {shown}" + (f" and {count - len(rows)} more" if count > len(rows) else ""))
        if gaps:
            raise ValueError(
                f"{self.source}: missing values in column {'; in column '.join(gaps)}; "
                f"fill them in or drop these rows, or leave the column out{way_out}"
            )

    def _gaps(self, columns):
        """Return the first rows without a value and how many there are, of those columns that have any."""
        found = {column: ([], 0) for column in columns}
        numbers = [column for column in found if not self.is_text(column)]
        for column in found.keys() - numbers:
            rows = np.flatnonzero(self.text(column) == "")
            found[column] = rows[:NAMED].tolist(), len(rows)
        for start, block in self.blocks(numbers):
            for column, missing in zip(numbers, np.isnan(block).T, strict=True):
                rows, count = found[column]
                new = start + np.flatnonzero(missing) if missing.any() else ()
                found[column] = [*rows, *new[: NAMED - len(rows)]], count + len(new)
        return {column: known for column, known in found.items() if known[1]}

    def blocks(self, columns):
        """Yield (first row, values (n, d)) of columns of numbers, block by block."""
        source = self.of(columns) if columns else self.rows
        for low, high in merge.starts(len(self), source.block_rows):
            yield low, self.part(low, high).matrix(columns)

    def ranges(self, columns):
        """Return the smallest and the largest value of columns (d,); ValueError for a number that is not finite."""
        low, high = np.full(len(columns), np.inf), np.full(len(columns), -np.inf)
        for first, block in self.blocks(columns) if columns else ():
            self.check_finite(columns, block, first=first)
            low, high = np.minimum(low, block.min(axis=0)), np.maximum(high, block.max(axis=0))
        return low, high

    def numbers(self, column, *, gaps=False):
        """Return a column as float64; ValueError names the line and the value that is no finite number.

        With `gaps`, values may be missing, and are nan.
        """
        values = self.matrix([column])[:, 0]
        self.check_finite([column], values[:, None], gaps=gaps)
        return values

    def check_finite(self, columns, values, *, gaps=False, first=0):
        """Raise ValueError at the first number of some rows that is infinite, or missing."""
        bad = np.isinf(values) if gaps else ~np.isfinite(values)
        if bad.any():
            row, j = np.argwhere(bad)[0].tolist()
            value, where = values[row, j], f"{self.source}, {self.place(first + row)}: column {columns[j]!r}"
            if np.isnan(value):
                raise ValueError(f"{where} has no value; fill it in, or leave such rows out with --missing drop")
            raise ValueError(f"{where} is {value:g}, not a finite number")


def numbered(count):
    """Return the names of columns that have none, their numbers."""
    return [str(j + 1) for j in range(count)]


def coded(text):
    """Return the different values of an array of strings, sorted, and for each entry the index of its own.

    Block by block: sorting all entries would take several times their memory.
    """
    spans = merge.starts(len(text))
    kinds = np.unique(np.concatenate([np.unique(text[low:high]) for low, high in spans] or [text]))
    return kinds, np.concatenate([np.searchsorted(kinds, text[low:high]) for low, high in spans] or [np.zeros(0, int)])


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
