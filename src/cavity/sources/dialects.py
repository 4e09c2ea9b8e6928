"""The dialect of a text file: what separates its columns, whether decimals have a point or a comma, what is missing.

A dialect is detected from the first lines. Where these can be read in several ways, the file is refused. Both ways of
splitting text into cells, by pyarrow and by the csv module, and the numbers in cells follow the same dialect.
"""

import csv
import io
import re
from dataclasses import dataclass
from itertools import islice
from math import nan

MISSING_CELLS = {"", "na", "n/a", "nan", "null"}  # cells without a value, in lower case
MISSING_SPELLINGS = [*{s for cell in MISSING_CELLS for s in (cell, cell.upper(), cell.title())}, "NaN", "N/A"]
UNCLEAR_COMMA = "{} may be a number with a decimal comma, or one with commas between thousands; give decimal=',' or '.'"
SEPARATOR_NAMES = {",": "commas", ";": "semicolons", "\t": "tabs", "|": "bars"}
SPACE_SEPARATOR = " "  # any number of spaces, where no other character separates
MAX_DETECTION_ROWS = 100
THOUSANDS_PATTERN = re.compile(r"[+-]?[1-9]\d{0,2}(,\d{3})+(\.\d*)?")


@dataclass(frozen=True, slots=True)
class Dialect:
    """The separator of columns, that of decimals, and whether commas may stand between thousands."""

    separator: str
    decimal: str = "."
    has_thousands: bool = False  # only where no comma can be that of decimals

    def read_rows(self, text):
        """Return a csv reader of a text."""
        has_spaces = self.separator == SPACE_SEPARATOR
        if has_spaces:
            text = "\n".join(line.strip() for line in text.split("\n"))
        return csv.reader(io.StringIO(text), delimiter=self.separator, skipinitialspace=has_spaces)

    def read_arrow_columns(self, text, types):
        """Return the columns of a text by pyarrow, types by name; None where pyarrow is missing or cannot read it."""
        try:
            from pyarrow import ArrowInvalid
            from pyarrow import csv as arrow
        except ImportError:
            return None
        try:
            return arrow.read_csv(
                io.BytesIO(text.encode()),
                arrow.ReadOptions(use_threads=False, block_size=len(text) * 4 + 64, column_names=[*types]),
                arrow.ParseOptions(delimiter=self.separator),
                arrow.ConvertOptions(
                    column_types=types, null_values=MISSING_SPELLINGS, decimal_point=self.decimal, check_utf8=False
                ),
            ).columns
        except ArrowInvalid:
            return None

    def number(self, cell):
        """Return the number in a cell, None if there is none."""
        if "_" in cell:  # accepted by float()
            return None
        if self.has_thousands and THOUSANDS_PATTERN.fullmatch(cell):
            cell = cell.replace(",", "")
        if self.decimal == ",":
            cell = cell.replace(",", ".") if "." not in cell else "no number"
        try:
            return float(cell)
        except ValueError:
            return None

    def value(self, cell):
        """Return the number in a cell without spaces around it, nan for a missing value, None for text."""
        return nan if cell.lower() in MISSING_CELLS else self.number(cell)

    def is_unclear(self, cell):
        """Whether the comma in a cell like 1,234 may be that of decimals, or one between thousands."""
        return self.decimal == "." and not self.has_thousands and THOUSANDS_PATTERN.fullmatch(cell) is not None

    def other_decimal(self, cell):
        """Return the other separator of decimals if a cell holds a number with it, else None."""
        other = "." if self.decimal == "," else ","
        return None if self.separator == other or Dialect(self.separator, other).number(cell) is None else other

    @property
    def separator_name(self):
        """Name of the separator, for messages."""
        return {**SEPARATOR_NAMES, SPACE_SEPARATOR: "spaces"}.get(self.separator, repr(self.separator))


def suggest_arguments(message, *arguments):
    """Return a ValueError whose attribute `advised` lists the arguments that help, each in the message as `name=`."""
    error = ValueError(message)
    error.advised = arguments
    return error


def detect_dialect(path, text, separator=None, decimal=None):
    """Return the Dialect of a text, its first whole lines; a separator that is given is not detected.

    Raises
    ------
    ValueError
        Naming the file, where there is more than one way to read it, and the argument to give.
    """
    if decimal not in (None, ".", ","):
        raise ValueError(f"decimal must be '.' or ',', got {decimal!r}")
    if separator is not None and (len(separator) != 1 or separator in '"\n\r.' or separator == decimal):
        raise ValueError(f"separator must be one character other than the decimal one, a quote or a dot: {separator!r}")
    if separator is None:
        separator = _detect_separator(path, text, decimal)
    if decimal is not None or separator == ",":
        return Dialect(separator, decimal or ".", decimal != ",")
    return Dialect(separator, *_detect_decimal(path, _read_first_rows(text, separator)))


def _read_first_rows(text, separator):
    """Return the cells of the first rows that are not blank."""
    rows = Dialect(separator).read_rows(text)
    try:
        return list(islice((row for row in rows if any(cell.strip() for cell in row)), MAX_DETECTION_ROWS))
    except csv.Error:  # raised again, with its line, when the table is read
        return [[""]]


def _detect_separator(path, text, decimal):
    """Return the separator of columns; a comma for a table of one column."""
    tables = {separator: _read_first_rows(text, separator) for separator in SEPARATOR_NAMES if separator != decimal}
    several = {separator: rows for separator, rows in tables.items() if rows and len(rows[0]) > 1}
    even = {separator: rows for separator, rows in several.items() if all(len(row) == len(rows[0]) for row in rows)}
    if len(even) > 1:
        numeric = [s for s, rows in even.items() if all(_is_number(cell, s) for row in rows for cell in row)]
        even = {numeric[0]: even[numeric[0]]} if len(numeric) == 1 else even
    candidates = list(even or several)
    if not candidates:
        candidates = [separator for separator, rows in tables.items() if any(len(row) > 1 for row in rows)]
        if not candidates and _is_divided_by_spaces(text):
            return SPACE_SEPARATOR
    if len(candidates) > 1:
        names = " or ".join(SEPARATOR_NAMES[separator] for separator in candidates)
        message = f"{path}: its columns may be separated by {names}; give separator={candidates[0]!r}, for example"
        raise suggest_arguments(message, "separator")
    return candidates[0] if candidates else ("\t" if decimal == "," else ",")


def _is_divided_by_spaces(text):
    """Whether spaces divide all lines alike, and a column then holds numbers: names have spaces, too."""
    rows = _read_first_rows(text, SPACE_SEPARATOR)
    if not rows or len(rows[0]) < 2 or any(len(row) != len(rows[0]) for row in rows):
        return False
    return any(all(_is_number(cell, SPACE_SEPARATOR) for cell in column) for column in zip(*rows[1:], strict=True))


def _is_number(cell, separator):
    """Whether a cell is missing, or a number with a decimal point or, if commas do not separate, a decimal comma."""
    decimals = "." if separator == "," else ".,"
    return any(Dialect(separator, decimal).value(cell.strip()) is not None for decimal in decimals)


def _detect_decimal(path, rows):
    """Return the separator of decimals in cells that commas do not separate, and whether it is surely the point."""
    cells = [cell.strip() for row in rows for cell in row]
    comma = [cell for cell in cells if "," in cell and Dialect(";", ",").number(cell) is not None]
    point = [cell for cell in cells if "." in cell and Dialect(";", ".", True).number(cell) is not None]
    if comma and point:
        message = f"there are decimal commas ({comma[0]}) and decimal points ({point[0]}); give decimal=',' or '.'"
        raise suggest_arguments(f"{path}: {message}", "decimal")
    thousands = [cell for cell in cells if THOUSANDS_PATTERN.fullmatch(cell)]
    if thousands and not point and len(thousands) >= len(comma):
        raise suggest_arguments(f"{path}: {UNCLEAR_COMMA.format(thousands[0])}", "decimal")
    return "," if comma else ".", bool(point)
