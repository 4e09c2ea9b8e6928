"""Tables made of others: without rows that have gaps, and with columns of 0 and 1 for the values of one of text."""

from dataclasses import dataclass, replace

import numpy as np

from cavity.base.results import counted
from cavity.cli.table import Columns, coded, listed
from cavity.runs import merge
from cavity.sources.lines import Column
from cavity.sources.sources import Source
from cavity.sources.text import Kept, TextRows

AGAINST = " vs "  # between a value of text and the one that is left out, in the name of a column of 0 and 1
INTERCEPT = "intercept"  # the name of a column of ones
ALWAYS = (-1, 0, "")  # before every row


@dataclass(frozen=True, slots=True, eq=False)
class _Origin:
    """Where the rows of a table come from, as the reader of a text file knows it."""

    path: str
    columns: list
    table: Columns
    rows: np.ndarray | None

    def where(self, row):
        """Return words for a row, for messages."""
        return self.table.rows.where(self.table.start + (row if self.rows is None else int(self.rows[row])))


def complete(table, columns, options):
    """Return the table of some columns, all values there, and notes on the rows that --missing drop has left out.

    Columns of 0 and 1 that are to be made are made.

    Raises
    ------
    ValueError
        Naming rows without a value; or if all rows are without one.
    """
    origins = dict.fromkeys(table.made.get(name, (name,))[0] for name in columns)
    origins = [name for name in origins if name is not None]
    if options.missing != "drop":
        table.check_complete(origins)
        return (_derived(table, columns) if table.made else table), []
    good = np.ones(len(table), dtype=bool)
    text = [name for name in origins if table.is_text(name)]
    for name in text:
        good &= table.text(name) != ""
    numbers = [name for name in origins if name not in text]
    for low, block in table.blocks(numbers) if numbers else ():
        good[low : low + len(block)] &= ~np.isnan(block).any(axis=1)
    if good.all():
        return (_derived(table, columns) if table.made else table), []
    if not good.any():
        raise ValueError(f"{table.source}: every row has a missing value in one of {', '.join(origins)}")
    left = counted(int(np.sum(~good)), "row")
    return _derived(table, columns, np.flatnonzero(good)), [f"{left} with missing values"]


def _derived(table, columns, rows=None):
    """Return the table of some columns, of some rows if these are given."""
    columns = [*dict.fromkeys(columns)]
    text = {name: coded(table.text(name)) for name in columns if table.is_text(name)}
    made = {
        name: np.ones(len(table)) if origin is None else table.text(origin) == value
        for name, (origin, value) in table.made.items()
        if name in columns
    }
    plain = [name for name in columns if name not in text and name not in made]
    kept = Kept(len(columns))
    for low, high in merge.starts(len(table), table.rows.block_rows):
        block, numbers = np.empty((high - low, len(columns))), table.part(low, high).matrix(plain)
        for j, name in enumerate(columns):
            block[:, j] = (
                text[name][1][low:high]
                if name in text
                else made[name][low:high]
                if name in made
                else numbers[:, plain.index(name)]
            )
        kept.add(block if rows is None else block[rows[(rows >= low) & (rows < high)] - low])
    kept.done()
    known = [Column(name, number=ALWAYS) for name in columns]
    for column in (each for each in known if each.name in text):
        values = {value: float(k) for k, value in enumerate(text[column.name][0].tolist())}
        column.number, column.text, column.values = None, ALWAYS, values
    part = TextRows(_Origin(table.source, known, table, rows), kept)
    return Columns(table.source, Source([part], "the data"), table.about)


def with_categories(table, names, fitted=()):
    """Return the table with columns of 0 and 1 to be made of others, and notes on the values that are left out.

    `names` are a list or are separated by commas; `fitted` are the columns of a fit, if there was one: its values are
    taken then, and others refused.
    """
    made, notes = {}, []
    for name in [table.select([name])[0] for name in listed(names or [])]:
        text = table.text(name)
        levels = levels_of(name, fitted) or [each for each in coded(text)[0].tolist() if each]
        unknown = np.flatnonzero(~np.isin(text, ["", *levels]))
        if len(unknown):
            raise ValueError(
                f"{table.source}, {table.place(unknown[0])}: column {name!r} is {str(text[unknown[0]])!r}, which the "
                f"fit did not have; it had {', '.join(levels)}"
            )
        if len(levels) < 2:
            raise ValueError(f"{table.source}: --categorical: column {name!r} has one value only")
        made |= {f"{name}: {level}{AGAINST}{levels[0]}": (name, level) for level in levels[1:]}
        notes.append(f"{name} {levels[0]} (what its other values are compared with)")
    return replace(table, made=table.made | made), notes


def with_ones(table):
    """Return the table with a column of ones, to be made."""
    return replace(table, made={INTERCEPT: (None, None)} | table.made)


def levels_of(name, fitted):
    """Return the values of a column of text by the columns of a fit, the one that was left out first; or None."""
    pairs = [each.removeprefix(f"{name}: ").split(AGAINST) for each in fitted or () if each.startswith(f"{name}: ")]
    if not pairs or any(len(pair) != 2 or pair[1] != pairs[0][1] for pair in pairs):
        return None
    return [pairs[0][1], *(level for level, _ in pairs)]


def categories_of(fitted):
    """Return the columns of text that columns of a fit were made of."""
    found = dict.fromkeys(each.partition(": ")[0] for each in fitted or () if AGAINST in each and ": " in each)
    return [name for name in found if levels_of(name, fitted)]
