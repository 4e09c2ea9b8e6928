"""How a text file writes a table: what separates the columns, and whether decimals have a point or a comma.

Both are found from the first lines. Where these can be read in several ways nobody guesses: the file is refused.
"""

import csv
import io
import re
from dataclasses import dataclass
from itertools import islice

MISSING = {"", "na", "n/a", "nan", "null"}  # cells without a value, in lower case
SEPARATORS = {",": "commas", ";": "semicolons", "\t": "tabs", "|": "bars"}
SPACES = " "  # any number of them, where nothing else separates
SEEN = 100  # lines that are looked at
THOUSANDS = re.compile(r"[+-]?[1-9]\d{0,2}(,\d{3})+")


@dataclass(frozen=True, slots=True)
class Dialect:
    """What separates columns, and what decimals."""

    separator: str
    decimal: str = "."

    def rows(self, text):
        """Return a csv reader of a text."""
        if self.separator == SPACES:
            text = "\n".join(line.strip() for line in text.split("\n"))
        spaces = self.separator == SPACES
        return csv.reader(io.StringIO(text), delimiter=self.separator, skipinitialspace=spaces)

    def number(self, cell):
        """Return the number in a cell, None if there is none."""
        if "_" in cell:  # which Python would read
            return None
        if self.decimal == ",":
            cell = cell.replace(",", ".") if "." not in cell else "no number"
        try:
            return float(cell)
        except ValueError:
            return None

    def other_decimal(self, cell):
        """Return what would have to separate decimals for a number to be in a cell, None if nothing would."""
        other = "." if self.decimal == "," else ","
        return None if self.separator == other or Dialect(self.separator, other).number(cell) is None else other

    @property
    def words(self):
        """What it is called."""
        return {**SEPARATORS, SPACES: "spaces"}.get(self.separator, repr(self.separator))


def is_missing(cell):
    """Whether a cell without spaces around it stands for no value."""
    return cell.lower() in MISSING


def suggest_arguments(words, *arguments):
    """Return a ValueError that says which arguments help, each in the words as `name=`."""
    error = ValueError(words)
    error.advised = arguments
    return error


def detect_dialect(path, text, separator=None, decimal=None):
    """Return the Dialect of a text, its first whole lines; what is given is not looked for.

    Raises
    ------
    ValueError
        Naming the file, where there is more than one way to read it, and what to give.
    """
    if decimal not in (None, ".", ","):
        raise ValueError(f"decimal must be '.' or ',', got {decimal!r}")
    if separator is not None and (len(separator) != 1 or separator in '"\n\r.' or separator == decimal):
        raise ValueError(f"separator must be one character other than the decimal one, a quote or a dot: {separator!r}")
    if separator is None:
        separator = _separator(path, text, decimal)
    if decimal is None:
        decimal = "." if separator == "," else _decimal(path, _first_rows(text, separator))
    return Dialect(separator, decimal)


def _first_rows(text, separator):
    """Return the cells of the first rows that are not blank."""
    rows = Dialect(separator).rows(text)
    try:
        return list(islice((row for row in rows if any(cell.strip() for cell in row)), SEEN))
    except csv.Error:  # told with its line when the table is read
        return [[""]]


def _separator(path, text, decimal):
    """Return what separates the columns; a comma for a table of one column."""
    tables = {each: _first_rows(text, each) for each in SEPARATORS if each != decimal}
    first = {each: rows for each, rows in tables.items() if rows and len(rows[0]) > 1}
    even = {each: rows for each, rows in first.items() if all(len(row) == len(rows[0]) for row in rows)}
    if len(even) > 1:
        clear = [each for each, rows in even.items() if all(_is_number(cell, each) for row in rows for cell in row)]
        even = {each: even[each] for each in clear} if len(clear) == 1 else even
    found = list(even or first)
    if not found:
        found = [each for each, rows in tables.items() if any(len(row) > 1 for row in rows)]
        if not found and _divided_by_spaces(text):
            return SPACES
    if len(found) > 1:
        several = " or ".join(SEPARATORS[each] for each in found)
        raise suggest_arguments(
            f"{path}: its columns may be separated by {several}; give separator={found[0]!r}, for example", "separator"
        )
    return found[0] if found else ("\t" if decimal == "," else ",")


def _divided_by_spaces(text):
    """Whether spaces divide all lines alike, and a column then holds numbers: names have spaces, too."""
    rows = _first_rows(text, SPACES)
    if not rows or len(rows[0]) < 2 or any(len(row) != len(rows[0]) for row in rows):
        return False
    return any(all(_is_number(cell, SPACES) for cell in column) for column in zip(*rows[1:], strict=True))


def _is_number(cell, separator):
    """Whether a cell is a number with a decimal point or, if commas separate nothing, with a decimal comma."""
    decimals = "." if separator == "," else ".,"
    return is_missing(cell.strip()) or any(Dialect(separator, each).number(cell) is not None for each in decimals)


def _decimal(path, rows):
    """Return what separates decimals in the cells of a table, if its columns are not separated by commas."""
    cells = [cell.strip() for row in rows for cell in row]
    comma = [cell for cell in cells if "," in cell and Dialect(";", ",").number(cell) is not None]
    point = [cell for cell in cells if "." in cell and Dialect(";", ".").number(cell) is not None]
    if comma and point:
        raise suggest_arguments(
            f"{path}: there are decimal commas ({comma[0]}) and decimal points ({point[0]}); give decimal=',' or '.'",
            "decimal",
        )
    thousands = [cell for cell in cells if THOUSANDS.fullmatch(cell)]
    if thousands and len(thousands) >= len(comma):
        raise suggest_arguments(
            f"{path}: {thousands[0]} may be a number with a decimal comma, or one with commas between thousands; give "
            "decimal=',', or write it without",
            "decimal",
        )
    return "," if comma else "."
