"""What the commands ask of a table: its columns of numbers, for models that treat all of them the same."""

from pathlib import Path

import numpy as np

from cavity.cli.readers import open_npy, whole
from cavity.cli.table import Columns, in_order_of, listed, places, select

GAPS_POSSIBLE = "; a fit with --covariance diag or spherical can do with missing values"


def read(source, columns):
    """Return columns (names or numbers from 1), all numbers, as (values (N, d), names, what is known of them).

    Of what is known there are a title and a unit, if nothing better the name of the file and nothing.
    """
    if Path(source).suffix == ".npy" and Path(source).exists():
        rows, names = open_npy(source)
        names = [names[i] for i in select(source, names, columns)]
        cells = dict(zip(names, rows.columns([int(name) - 1 for name in names]).rows().T, strict=True))
        table = Columns(source, cells, places(rows.n_rows))
    else:
        table = whole(source)
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
        Those of a fit, which are taken where `columns` is None, and whose order wins where it has the same ones.
        Columns without names, of a .npy file, are taken by position, if they are as many.

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
        names = in_order_of(fitted, [names[j] for j in index])
        return rows.columns([int(name) - 1 for name in names]), names, {}, []
    table = whole(source)
    if columns is None and fitted is not None:
        columns = _of_fit(source, list(table.cells), fitted)
    names, notes = table.chosen(columns, option)
    names = in_order_of(fitted, names)
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
