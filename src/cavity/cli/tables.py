"""What the commands ask of a table: its columns of numbers, for models that treat all of them the same."""

from pathlib import Path

import numpy as np

from cavity.cli import derived, readers
from cavity.cli.table import MOST_COLUMNS_LISTED, in_order_of, some

GAPS_POSSIBLE = (
    "; --missing drop leaves these rows out; a fit with --covariance diag or spherical can do with missing values"
)


def read(options):
    """Return the columns --column (names or numbers from 1), all numbers: values (N, d), names, what is known of them.

    Of what is known there are a title and a unit, if nothing better the name of the file and nothing.
    """
    table = readers.whole(options)
    if options.column and len(table.names) == 1 and table.about:
        raise ValueError(f"--column has no meaning for the shipped data set {options.data!r}")
    names = table.select(options.column)
    if options.missing == "drop":
        table, _ = derived.complete(table, names, options)
    values = table.matrix(names)
    table.check_finite(names, values)
    return np.ascontiguousarray(values), names, {"title": Path(options.data).name, "unit": ""} | table.about


def matrix(options, gaps, way_out=GAPS_POSSIBLE, *, fitted=None, also=()):
    """Return the columns of a table, for a model that treats all the same, with their names and what is known of them.

    Parameters
    ----------
    options : namespace
        With `data`, `columns` (names or numbers from 1, separated by commas; all numeric columns if None), `missing`.
    gaps : bool
        Whether values may be missing: they are nan then.
    way_out : str
        What else to do about missing values, for messages.
    fitted : tuple of str or None
        Those of a fit, which are taken where `columns` is None, and whose order wins where it has the same ones.
        Columns without names, of a .npy file, are taken by position, if they are as many.
    also : sequence of str
        Further columns, by names or numbers, which have another part.

    Returns
    -------
    X : Source
        (N, d), and after these the further columns.
    names : list of str
        Of the d columns.
    about : dict
        What is known of a shipped data set.
    notes : list of str
        What was left out, and why.
    """
    table = readers.whole(options)
    also = [table.select([name])[0] for name in also]
    table, _ = derived.with_categories(table, derived.categories_of(fitted), fitted)
    if derived.INTERCEPT in (fitted or ()) and derived.INTERCEPT not in table.names:
        table = derived.with_ones(table)
    columns, there = options.columns, [*table.names, *table.made]
    if columns is None and fitted is not None and (table.rows.names is not None or len(there) != len(fitted)):
        columns = _of_fit(options.data, there, fitted)
    names, notes = table.chosen(columns, "--columns", also)
    names = in_order_of(fitted, names)
    if not names:
        raise ValueError(f"{options.data}: there is no column of numbers")
    if table.made or options.missing == "drop":
        table, more = derived.complete(table, [*names, *also], options)
        notes += more
    elif not gaps:
        table.check_complete([*names, *also], way_out)
    X = table.of([*names, *also])
    X.check_numbers("the data")
    return X, names, table.about, notes


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
            f"{source}: no column {some([*map(repr, missing)], MOST_COLUMNS_LISTED)}, which the fit had; there is "
            f"{some(there, MOST_COLUMNS_LISTED)}; "
            "choose with --columns if they have other names"
        )
    return list(fitted)
