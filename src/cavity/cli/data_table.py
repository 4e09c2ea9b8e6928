"""The table of a command: columns by name, missing values, and indicator columns of categories."""

from dataclasses import dataclass, field, replace
from functools import cached_property

import numpy as np

from cavity.base.frames import LEVELS_ROLE
from cavity.base.results import format_count
from cavity.cli.standard_output import print_error
from cavity.runs import merge
from cavity.sources.sources import Source
from cavity.sources.text_reader import TextColumn
from cavity.sources.text_rows import RowBuffer, TextRows

MOST_ROWS_LISTED = 5  # in a message
MOST_COLUMNS_LISTED = 40  # in a message
MAX_LEVELS_UNASKED = 50  # columns of text with more levels are coded only if --categorical names them
MAX_ROWS_UNASKED = 1 << 22  # so are those of longer tables, as they are coded in memory
INDEX_NAMES = {"rownames", "id", "unnamed: 0"}  # of columns that number the rows, in lower case
INTERCEPT_NAME = "intercept"  # the name of a column of ones
BEFORE_ALL_ROWS = (-1, 0, "")  # marks a column that holds numbers, or text, from its first row on


@dataclass(frozen=True, eq=False)
class DataTable:
    """The columns of a source, or of a range of its rows, for models that use columns in different roles."""

    source: str  # as it was typed
    rows: Source  # including columns of text
    about: dict = field(default_factory=dict)
    start: int = 0
    stop: int | None = None
    made: dict = field(default_factory=dict)  # indicator columns to be made: (column of text, level) by name
    _opened: dict = field(default_factory=dict)  # Sources of columns, reused as they keep their position in the file

    def __len__(self):
        return (self.rows.n_rows if self.stop is None else self.stop) - self.start

    @cached_property
    def names(self):
        """The names of the columns, their numbers from 1 if they have none."""
        return list(self.rows.names or map(str, range(1, self.rows.n_features + 1)))

    @property
    def unnamed(self):
        """Columns without a name among others, called by their number."""
        return getattr(self.rows.parts[0], "unnamed", ())

    def part(self, start, stop):
        """Return the table of some of the rows."""
        return replace(self, start=self.start + start, stop=self.start + stop)

    def describe_row(self, row):
        """Describe a row for messages by its line in the file, or its number from 1."""
        line = self.rows.describe_row(self.start + row)
        return line.partition(" of ")[0] if line.startswith("line ") else f"row {self.start + row + 1}"

    # ------------------------------------------------------------------------------------------ choices

    def select(self, columns):
        """Return the names of columns given by names or by numbers from 1; by default the only column."""
        if not columns and len(self.names) > 1:
            raise ValueError(f"{self.source}: choose one or more columns with --column; there is {self.shown_names}")
        return [self._find_name(column) for column in columns] if columns else self.names

    def find(self, column):
        """Return the name of a column given by name or by number from 1, None if it is not there."""
        if column in self.names or column in self.made:
            return column
        return self.names[int(column) - 1] if column.isdigit() and 1 <= int(column) <= len(self.names) else None

    def _find_name(self, column):
        name = self.find(column)
        if name is None:
            raise ValueError(f"{self.source}: no column {column!r}; there is {self.shown_names}")
        return name

    def explain_omission(self, name):
        """Return why a column is no feature unless it is named, as a part of a sentence; None if it is one."""
        if name in self.unnamed:
            return "has no name"
        return "looks like an index" if name.lower() in INDEX_NAMES else self.about.get("left_out", {}).get(name)

    @property
    def shown_names(self):
        """The names, of many the first, for messages."""
        return list_first([repr(name)[1:-1] for name in self.names], MOST_COLUMNS_LISTED)

    def choose(self, typed, option, reserved=()):
        """Return the names of the columns in a comma-separated list, or of all numeric ones, and notes on others.

        `option` is the name of the option with the list, `reserved` are columns with another role. A sentence on
        standard error says which columns are left out as an index.
        """
        if typed is not None:
            names = [column for name in self.select(split_names(typed)) for column in self.made_of(name) or [name]]
            names = [*(column for column in self.made_of(None) if column not in names), *names]
            for name in names:
                self._check_chosen(name, names, option, reserved)
            return names, []
        names, notes = self.made_of(None), []
        for name in self.names:
            if name in reserved:
                continue
            if self.made_of(name):
                names += self.made_of(name)
            elif reason := self.explain_omission(name):
                notes.append(f"column {name} ({reason})")
                if name not in self.about.get("left_out", ()):
                    print_error(f"column {name!r} {reason} and is left out; name it in {option} to keep it")
            elif self.is_text(name):
                notes.append(f"{name} (text)")
            else:
                names.append(name)
        return names, notes

    def made_of(self, name):
        """Return the names of the indicator columns to be made of a column."""
        return [column for column, (origin, _) in self.made.items() if origin == name]

    def _check_chosen(self, name, names, option, reserved):
        """Raise ValueError for a column that has another role, is chosen twice, or holds text."""
        if name in reserved:
            raise ValueError(f"{option}: column {name!r} is already the target, the offset or the weights")
        if names.count(name) > 1:
            raise ValueError(f"{option}: column {name!r} is listed twice")
        if name not in self.made and self.is_text(name):
            way_out = f"code it with --categorical {name}, or " if option == "--features" else ""
            kinds = list_first(self.levels(name))
            raise ValueError(f"{self.source}: column {name!r} holds text ({kinds}); {way_out}leave it out of {option}")

    # ------------------------------------------------------------------------------------------ contents

    def of(self, names):
        """Return some columns as a Source (N, d) with all rows of the table; values are not checked."""
        key = tuple(names)
        if key not in self._opened:
            self._opened[key] = self.rows.columns([self.names.index(name) for name in names])
        return self._opened[key]

    def is_text(self, column):
        """Whether the column holds anything but numbers."""
        try:
            self.of([column]).check_numbers(column)
        except TypeError:
            return True
        except ValueError:  # numbers with an invalid cell
            return False
        return False

    def text(self, column):
        """Return a column as an array of strings, numbers by `format_number`, "" for missing values."""
        key = column, "text"
        if key not in self._opened:
            values = np.asarray(self.rows.values(self.names.index(column)))
            if values.dtype.kind != "U":
                format_value = format_number if not self.is_text(column) else str
                cells = values.tolist()
                values = np.array(["" if cell is None or cell != cell else format_value(cell) for cell in cells])
            self._opened[key] = values
        return self._opened[key][self.start : self.stop]

    def levels(self, column):
        """Return the different values of a column as text, sorted as text or as numbers, without missing ones."""
        levels = [value for value in encode_text(self.text(column))[0].tolist() if value]
        return levels if self.is_text(column) else sorted(levels, key=float)

    def count_levels(self, column):
        """Return the number of levels of a column of text, at least a number above MAX_LEVELS_UNASKED for more.

        Infinity stands for tables that are too long to look.
        """
        if len(self) > MAX_ROWS_UNASKED:
            return np.inf
        index = self.names.index(column)
        most = max((part.count_texts(index) for part in self.rows.parts if isinstance(part, TextRows)), default=0)
        return most if most > MAX_LEVELS_UNASKED else len(self.levels(column))

    def matrix(self, columns):
        """Return columns of numbers as an array (n, d); nan for missing values."""
        for column in columns:
            self._check_numbers(column)
        return self.of(columns).rows(self.start, self.start + len(self)) if columns else np.empty((len(self), 0))

    def _check_numbers(self, column):
        """Raise ValueError with the first cell of a column that holds text."""
        if self.is_text(column):
            text = self.text(column)
            row = int(np.argmax(text != ""))
            location = f"{self.source}, {self.describe_row(row)}"
            raise ValueError(f"{location}: column {column!r} is {str(text[row])!r}, not a finite number")
        self.of([column]).check_numbers(column)

    def check_complete(self, columns, way_out="; --missing drop leaves these rows out"):
        """Raise ValueError naming rows without a value in one of the columns; `way_out` is appended to the message."""
        gaps = []
        for column, (rows, count) in self._gaps(columns).items():
            shown = ", ".join(self.describe_row(row) for row in rows)
            gaps.append(f"{column!r} in {shown}" + (f" and {count - len(rows)} more" if count > len(rows) else ""))
        if gaps:
            raise ValueError(
                f"{self.source}: missing values in column {'; in column '.join(gaps)}; "
                f"fill them in or drop these rows, or leave the column out{way_out}"
            )

    def _gaps(self, columns):
        """Return the first rows without a value and their number, for each column that has such rows."""
        gaps = {column: ([], 0) for column in columns}
        numbers = [column for column in gaps if not self.is_text(column)]
        for column in gaps.keys() - numbers:
            rows = np.flatnonzero(self.text(column) == "")
            gaps[column] = rows[:MOST_ROWS_LISTED].tolist(), len(rows)
        for start, block in self.blocks(numbers):
            for column, missing in zip(numbers, np.isnan(block).T, strict=True):
                rows, count = gaps[column]
                new = start + np.flatnonzero(missing) if missing.any() else ()
                gaps[column] = [*rows, *new[: MOST_ROWS_LISTED - len(rows)]], count + len(new)
        return {column: gap for column, gap in gaps.items() if gap[1]}

    def blocks(self, columns):
        """Yield (first row, values (n, d)) of columns of numbers, block by block."""
        source = self.of(columns) if columns else self.rows
        for low, high in merge.split_rows(len(self), source.block_rows):
            yield low, self.part(low, high).matrix(columns)

    def ranges(self, columns):
        """Return the smallest and the largest value of columns (d,); ValueError for a number that is not finite."""
        low, high = np.full(len(columns), np.inf), np.full(len(columns), -np.inf)
        for first, block in self.blocks(columns) if columns else ():
            self.check_finite(columns, block, first=first)
            low, high = np.minimum(low, block.min(axis=0)), np.maximum(high, block.max(axis=0))
        return low, high

    def numbers(self, column):
        """Return a column as float64; ValueError names the line and the value that is no finite number."""
        values = self.matrix([column])
        self.check_finite([column], values)
        return values[:, 0]

    def check_finite(self, columns, values, *, first=0):
        """Raise ValueError at the first number of some rows that is infinite, or missing."""
        bad = ~np.isfinite(values)
        if bad.any():
            row, j = np.argwhere(bad)[0].tolist()
            value, location = values[row, j], f"{self.source}, {self.describe_row(first + row)}: column {columns[j]!r}"
            if np.isnan(value):
                raise ValueError(f"{location} has no value; fill it in, or leave such rows out with --missing drop")
            raise ValueError(f"{location} is {value:g}, not a finite number")


def format_number(value):
    """Return a number as a text that no other number has, of six digits if they are enough; -0 is 0."""
    texts = (f"{value + 0.0:.{digits}g}" for digits in (6, 15, 17))
    return next(text for text in texts if float(text) == value)


def rewrite_number(text):
    """Return what `format_number` makes of the number in a text; other text as it is."""
    try:
        return format_number(float(text))
    except (ValueError, StopIteration):  # no number, or not finite
        return text


def encode_text(text):
    """Return the distinct values of an array of strings, sorted, and the index of each entry among them.

    Block by block: sorting all entries would take several times their memory.
    """
    spans = merge.split_rows(len(text))
    kinds = np.unique(np.concatenate([np.unique(text[low:high]) for low, high in spans] or [text]))
    return kinds, np.concatenate([np.searchsorted(kinds, text[low:high]) for low, high in spans] or [np.zeros(0, int)])


def split_names(text):
    """Return the names in a comma-separated list, or those of a list as they are."""
    if not isinstance(text, str):
        return list(text)
    return [name.strip() for name in text.split(",") if name.strip()] or [""]


def reorder_as_fit(fitted, names):
    """Return the columns in the order of the fit if the names are the same; else the names unchanged."""
    return list(fitted) if fitted is not None and sorted(names) == sorted(fitted) else names


def list_first(items, count=MOST_ROWS_LISTED):
    """Join the first items by commas, with ", ..." if there are more."""
    return ", ".join(items[:count]) + (", ..." if len(items) > count else "")


def format_digits(value, sd):
    """Return a number with as many digits as its uncertainty leaves, at least 6."""
    figures = np.log10(max(abs(value) / sd, 1.0)) if value else 0.0
    return f"{value:.{int(np.clip(np.ceil(figures) + 2, 6, 17))}g}"


# ------------------------------------------------------------------------------------------ tables made of others


@dataclass(frozen=True, slots=True, eq=False)
class _Origin:
    """The origin of the rows of a derived table, with the interface of a reader of text files."""

    path: str
    columns: list
    table: DataTable
    rows: np.ndarray | None

    def describe_row(self, row):
        """Describe a row for messages."""
        return self.table.rows.describe_row(self.table.start + (row if self.rows is None else int(self.rows[row])))


def drop_incomplete(table, columns, options):
    """Return the table of some columns without missing values, and notes on the rows dropped by --missing drop.

    Indicator columns are made.

    Raises
    ------
    ValueError
        Naming rows without a value; or if all rows are without one.
    """
    origins = dict.fromkeys(table.made.get(name, (name,))[0] for name in columns)
    origins = [name for name in origins if name is not None]
    if options.missing != "drop":
        table.check_complete(origins)
        rows = None
    else:
        complete = np.ones(len(table), dtype=bool)
        text = [name for name in origins if table.is_text(name)]
        for name in text:
            complete &= table.text(name) != ""
        numbers = [name for name in origins if name not in text]
        for low, block in table.blocks(numbers) if numbers else ():
            complete[low : low + len(block)] &= ~np.isnan(block).any(axis=1)
        rows = None if complete.all() else np.flatnonzero(complete)
        if rows is not None and not len(rows):
            raise ValueError(f"{table.source}: every row has a missing value in one of {', '.join(origins)}")
    if rows is None:
        return (_write_part(table, columns) if table.made else table), []
    dropped = format_count(len(table) - len(rows), "row")
    return _write_part(table, columns, rows), [f"{dropped} with missing values"]


def _write_part(table, columns, rows=None):
    """Return the table of some columns and rows (default all)."""
    columns = [*dict.fromkeys(columns)]
    text = {name: encode_text(table.text(name)) for name in columns if name not in table.made and table.is_text(name)}
    codes = {name: code for name, (_, code) in text.items()}
    for name, (origin, value) in table.made.items():
        if name in columns:
            codes[name] = np.ones(len(table)) if origin is None else table.text(origin) == value
    plain = [name for name in columns if name not in codes]
    writer = RowBuffer(len(columns))
    for low, high in merge.split_rows(len(table), table.rows.block_rows):
        numbers = dict(zip(plain, table.part(low, high).matrix(plain).T, strict=True))
        values = [codes[name][low:high] if name in codes else numbers[name] for name in columns]
        block = np.stack(values, axis=1, dtype=np.float64)
        writer.add(block if rows is None else block[rows[(rows >= low) & (rows < high)] - low])
    writer.done()
    text_columns = [TextColumn(name, number=BEFORE_ALL_ROWS) for name in columns]
    for column in (column for column in text_columns if column.name in text):
        values = {value: float(k) for k, value in enumerate(text[column.name][0].tolist())}
        column.number, column.text, column.codes = None, BEFORE_ALL_ROWS, values
    part = TextRows(_Origin(table.source, text_columns, table, rows), writer)
    return DataTable(table.source, Source([part], "the data"), table.about)


def add_categories(table, names, levels_of_fit=None):
    """Return the table with indicator columns to be made of columns of text, and the base level of each of these.

    `names` are a list or separated by commas. With the levels of a fit, by columns, these are used and others are
    refused.
    """
    new_columns, base_levels = {}, {}
    for name in [table.select([name])[0] for name in split_names(names or [])]:
        text = table.text(name)
        levels = (levels_of_fit or {}).get(name) or table.levels(name)
        unknown = np.flatnonzero(~np.isin(text, ["", *levels]))
        if len(unknown):
            raise ValueError(
                f"{table.source}, {table.describe_row(unknown[0])}: column {name!r} is {str(text[unknown[0]])!r}, "
                f"which the fit did not have; it had {', '.join(levels)}"
            )
        if len(levels) < 2:
            raise ValueError(f"{table.source}: --categorical: column {name!r} has one value only")
        new = {f"{name}[{level}]": (name, level) for level in levels[1:]}
        clashes = [column for column in new if column in table.names and levels_of_fit is None]
        if clashes:
            raise ValueError(
                f"{table.source}: a column is called {clashes[0]!r}, as that of a level of {name!r}; rename one"
            )
        new_columns |= new
        base_levels[name] = levels[0]
    return replace(table, made=table.made | new_columns), base_levels


def add_columns_of_fit(table, columns, levels):
    """Return the table with the columns that the fit made: indicators of levels, and a column of ones."""
    table, _ = add_categories(table, [*levels], levels)
    if INTERCEPT_NAME in (columns or ()) and INTERCEPT_NAME not in table.names:
        return replace(table, made={INTERCEPT_NAME: (None, None)} | table.made)
    return table


def read_coded_columns(columns, roles):
    """Return the names of the columns of a fit, and the levels of those of text by columns, base levels first.

    Indicator columns called "colour: red vs blue", as in version 0.2, become "colour[red]".
    """
    levels, names = {}, []
    for role, coded in (roles or {}).items():
        name = role.removeprefix(LEVELS_ROLE)
        present = [text[len(name) + 1 : -1] for text in coded if text in (coded[0], *columns)]
        if name != role and len(present) > 1:
            levels[name] = present
    for column in columns or ():
        name, _, pair = column.partition(": ")
        level, _, base = pair.partition(" vs ")
        names.append(f"{name}[{level}]" if base else column)
        if base:
            levels.setdefault(name, [base]).append(level)
    return None if columns is None else tuple(names), levels
