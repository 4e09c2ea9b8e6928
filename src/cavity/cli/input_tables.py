"""Input tables of the commands: shipped data, standard input, and every file that the library opens."""

import io
import os
import sys
from contextlib import nullcontext
from importlib.resources import files
from itertools import chain, repeat
from pathlib import Path

import numpy as np

from cavity import data
from cavity.base import arrays
from cavity.cli import data_table
from cavity.cli.data_table import MOST_COLUMNS_LISTED, DataTable, add_columns_of_fit, drop_incomplete, list_first
from cavity.cli.options import CHECKPOINT_OPTIONS, Option, OptionGroup
from cavity.cli.standard_output import show_progress
from cavity.sources import formats, sources, text_rows
from cavity.sources.text_reader import TextReader

STANDARD_INPUT = "-"
MIN_BYTES_FOR_PROGRESS = 1 << 26  # smaller files are read without a progress bar
NAMED_SEPARATORS = {"\\t": "\t", "tab": "\t", "space": " ", "comma": ",", "semicolon": ";"}
TEXT_FILE_OPTIONS = OptionGroup(
    "text files",
    Option("--sep", "CHARACTER", "between columns: , ; | tab space or any other character"),
    Option("--decimal", (".", ","), "decimal point or comma"),
    Option("--encoding", "NAME", "for example cp1252 (default utf-8)"),
    description="found from the file unless given",
)
MISSING_HELP = "rows with missing values: leave them out, or refuse them and say where they are (default; also: error)"
MISSING_ALIASES = {"error": "raise"}


def read_missing(text):
    """Return the choice of --missing by the word that the library has for it."""
    return MISSING_ALIASES.get(text, text)


MISSING_OPTION = Option("--missing", ("drop", "raise"), MISSING_HELP, "raise", type=read_missing)
KEEP_HELP = f"{MISSING_HELP}, or keep them (default of --covariance diag and spherical)"
MISSING_OR_KEEP_OPTION = Option("--missing", ("drop", "raise", "keep"), KEEP_HELP, type=read_missing)
TABLE_OPTIONS = (MISSING_OPTION, TEXT_FILE_OPTIONS)
READING_OPTIONS = (CHECKPOINT_OPTIONS, *TABLE_OPTIONS)
MISSING_VALUES_HINT = (
    "; --missing drop leaves these rows out; a fit with --covariance diag or spherical can do with missing values"
)


def collect_text_settings(options):
    """Return the typed settings of text files as arguments of the library."""
    separator = getattr(options, "sep", None)
    return {
        "separator": NAMED_SEPARATORS.get(separator, separator),
        "decimal": getattr(options, "decimal", None),
        "encoding": getattr(options, "encoding", None),
    }


def open_table(options):
    """Return the table of the argument `data`."""
    source = options.data
    file, notes = find_text(source)
    if file is None:
        settings = collect_text_settings(options)
        is_typed = any(value is not None for value in settings.values())
        rows = sources.source(source, **settings) if is_typed else sources.open_unchecked(source, "the data")
        arrays.check_ndim(rows, f"the data ({source})", (1, 2))
        return DataTable(source, rows)
    large = file == source and os.path.getsize(file) > MIN_BYTES_FOR_PROGRESS
    with show_progress(options) if large else nullcontext() as show:
        report_share = None if show is None else lambda share: show(share, f"of {source} is read")
        part = text_rows.open_text(file, "the data", **collect_text_settings(options), report_share=report_share)
    return DataTable(source, sources.Source([part], "the data"), notes)


def read_batches(options, rows, skip=0, first=None):
    """Yield a table in batches of rows, each with the share of the table read so far.

    Parameters
    ----------
    options : namespace
        With `data`, and how text files are to be read.
    rows : int
        Rows in a batch; the last one may have fewer.
    skip : int
        Rows at the beginning that are left out.
    first : int, optional
        Rows in the first batch, if it is to have others.
    """
    sizes = chain([first or rows], repeat(rows))
    file, notes = find_text(options.data)
    if file is not None:
        reader = TextReader(file, **collect_text_settings(options))
        for part in text_rows.read_batches(reader, sizes, skip):
            yield DataTable(options.data, sources.Source([part], "the data"), notes), reader.share
        return
    table = open_table(options)
    total = len(table)
    while skip < total:
        start, skip = skip, min(skip + next(sizes), total)
        yield table.part(start, skip), skip / total


def find_text(source):
    """Return the path or file of a table of text, or None, and the description of a shipped data set."""
    if source == STANDARD_INPUT and sys.stdin is None:
        raise ValueError("standard input is closed; give a file, or what is to be read with < or |")
    if source == STANDARD_INPUT:
        return sys.stdin.buffer, {}
    path = Path(source)
    if path.exists():
        reader = next(
            (formats.OPENER_OF_SUFFIX[end] for end in formats.OPENER_OF_SUFFIX if source.lower().endswith(end)), None
        )
        if reader is None:
            formats.check_known(source, "the data")
        return (source if reader in (None, text_rows.open_text) and not path.is_dir() else None), {}
    if source in data.names():
        file = io.BytesIO((files(data) / f"{source}.csv").read_bytes())
        file.name = source
        return file, data.table(source)[1]
    if any(character in source for character in "*?[") or path.is_symlink():  # a link without a target
        return None, {}
    shipped = ", ".join(data.names())
    raise ValueError(f"{source}: no such file, and no such data set (there is {shipped})")


def read_points(options):
    """Return the columns --column (names or numbers from 1) of numbers: values (N, d), names, and a description.

    The description has a title (by default the name of the file) and a unit (by default "").
    """
    table = open_table(options)
    if options.column and len(table.names) == 1 and table.about:
        raise ValueError(f"--column has no meaning for the shipped data set {options.data!r}")
    names = table.select(options.column)
    if options.missing == "drop":
        table, _ = drop_incomplete(table, names, options)
    values = table.matrix(names)
    table.check_finite(names, values)
    return np.ascontiguousarray(values), names, {"title": Path(options.data).name, "unit": ""} | table.about


def read_columns(options, gaps, way_out=MISSING_VALUES_HINT, *, fitted=None, roles=None, also=()):
    """Return the columns of a table for a model that treats all alike, with names, description and notes.

    Parameters
    ----------
    options : namespace
        With `data`, `columns` (names or numbers from 1, separated by commas; all numeric columns if None), `missing`.
    gaps : bool
        Whether missing values are allowed, as nan.
    way_out : str
        Appended to messages about missing values.
    fitted : tuple of str or None
        Columns of a fit: the default of `columns`, and the order of the same columns. Columns of a .npy file, which
        have no names, are taken by position if their number agrees.
    roles : dict or None
        Those of the fit, with the base levels of columns of text.
    also : sequence of str
        Further columns, by names or numbers, with another role.

    Returns
    -------
    X : Source
        (N, d), and after these the further columns.
    names : list of str
        Of the d columns.
    about : dict
        Description of a shipped data set.
    notes : list of str
        What was left out, with the reason.
    """
    table = open_table(options)
    also = [table.select([name])[0] for name in also]
    fitted, levels = data_table.read_coded_columns(fitted, roles)
    table = add_columns_of_fit(table, fitted, levels)
    columns, available = options.columns, [*table.names, *table.made]
    if columns is None and fitted is not None and (table.rows.names is not None or len(available) != len(fitted)):
        columns = _match_fit_columns(options.data, available, fitted)
    names, notes = table.choose(columns, "--columns", also)
    names = data_table.reorder_as_fit(fitted, names)
    if not names:
        raise ValueError(f"{options.data}: there is no column of numbers")
    if table.made or options.missing == "drop":
        table, more = drop_incomplete(table, [*names, *also], options)
        notes += more
    elif not gaps:
        table.check_complete([*names, *also], way_out)
    X = table.of([*names, *also])
    X.check_numbers("the data")
    return X, names, table.about, notes


def _are_column_numbers(names):
    """Whether names are numbers from 1 with few gaps, as those of columns without names (unlike years)."""
    others = 3  # a target, an offset and weights, which may have stood among them
    return all(name.isdecimal() and 1 <= int(name) <= len(names) + others for name in names)


def _match_fit_columns(source, available, fitted):
    """Return the columns of a fit, which must all exist; None if they had numbers in place of names."""
    missing = [name for name in fitted if name not in available]
    if missing and _are_column_numbers(fitted):
        return None
    if missing:
        raise ValueError(
            f"{source}: no column {list_first([*map(repr, missing)], MOST_COLUMNS_LISTED)}, which the fit had; there "
            f"is {list_first(available, MOST_COLUMNS_LISTED)}; choose with --columns if they have other names"
        )
    return list(fitted)
