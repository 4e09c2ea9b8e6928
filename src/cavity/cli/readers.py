"""Tables of the command line: shipped data, standard input, and every file that the library opens."""

import io
import os
import sys
from contextlib import nullcontext
from importlib.resources import files
from itertools import chain, repeat
from pathlib import Path

from cavity import data
from cavity.base import arrays
from cavity.cli import options as shared
from cavity.cli.table import Columns
from cavity.sources import formats, sources, text
from cavity.sources.lines import TextReader

STANDARD_INPUT = "-"
LARGE = 1 << 26  # bytes of a file whose reading is shown
DATA = "a shipped data set ({}), or a table: .csv, .tsv, .txt (also .gz), .parquet, .npy; - is standard input"
NAMED_SEPARATORS = {"\\t": "\t", "tab": "\t", "space": " ", "comma": ",", "semicolon": ";"}


def add_options(command):
    """Add the options that say how a text file is to be read."""
    group = command.add_argument_group("text files", "found from the file unless given")
    group.add_argument("--sep", metavar="CHARACTER", help="between columns: , ; | tab space or any other character")
    group.add_argument("--decimal", choices=(".", ","), help="decimal point or comma")
    group.add_argument("--encoding", metavar="NAME", help="for example cp1252 (default utf-8)")


def add_missing(command, keep=False):
    """Add what to do about missing values; add_options comes with it."""
    words = "rows with missing values: leave them out, or say where they are (default)"
    choices = ("drop", "error")
    if keep:
        choices, words = (*choices, "keep"), f"{words}, or keep them (default of --covariance diag and spherical)"
    command.add_argument("--missing", choices=choices, default=None if keep else "error", help=words)
    add_options(command)


def model_group(command, keep=False):
    """Add the options of checkpoints, missing values and text files; return the group of those of the model."""
    shared.checkpoints(command)
    add_missing(command, keep)
    return command.add_argument_group("model")


def add_categories(columns):
    """Add the option that turns columns of text into numbers."""
    words = "columns of text to turn into columns of 0 and 1, one for each value but the first"
    columns.add_argument("--categorical", metavar="A,B", help=words)


def settings(options):
    """Return what the options say of a text file, as the library calls it."""
    separator = getattr(options, "sep", None)
    return {
        "separator": NAMED_SEPARATORS.get(separator, separator),
        "decimal": getattr(options, "decimal", None),
        "encoding": getattr(options, "encoding", None),
    }


def whole(options):
    """Return the table that a command was given."""
    source = options.data
    file, about = text_file(source)
    if file is None:
        given = any(value is not None for value in settings(options).values())
        rows = sources.source(source, **settings(options)) if given else sources.opened(source, "the data")
        arrays.check_ndim(rows, f"the data ({source})", (1, 2))
        return Columns(source, rows)
    large = file == source and os.path.getsize(file) > LARGE
    with shared.progress(options) if large else nullcontext() as show:
        tell = None if show is None else lambda share: show(share, f"of {source} is read")
        part = text.open_text(file, "the data", **settings(options), tell=tell)
    return Columns(source, sources.Source([part], "the data"), about)


def batches(options, rows, skip=0, first=None):
    """Yield a table in batches of rows, each with the share of the table that has been read.

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
    file, about = text_file(options.data)
    if file is not None:
        reader = TextReader(file, **settings(options))
        for part in text.batches(reader, sizes, skip):
            yield Columns(options.data, sources.Source([part], "the data"), about), reader.share
        return
    table = whole(options)
    total = len(table)
    while skip < total:
        start, skip = skip, min(skip + next(sizes), total)
        yield table.part(start, skip), skip / total


def text_file(source):
    """Return what holds the text of a table (a path, a file), None for another kind, and what is known of the data."""
    if source == STANDARD_INPUT and sys.stdin is None:
        raise ValueError("standard input is closed; give a file, or what is to be read with < or |")
    if source == STANDARD_INPUT:
        return sys.stdin.buffer, {}
    path = Path(source)
    if path.exists():
        reader = next((formats.OPENERS[end] for end in formats.OPENERS if source.lower().endswith(end)), None)
        if reader is None:
            formats.check_known(source, "the data")
        return (source if reader in (None, text.open_text) and not path.is_dir() else None), {}
    if source in data.names():
        file = io.BytesIO((files(data) / f"{source}.csv").read_bytes())
        file.name = source
        return file, data.table(source)[1]
    if any(each in source for each in "*?[") or path.is_symlink():  # whose target is not there
        return None, {}
    shipped = ", ".join(data.names())
    raise ValueError(f"{source}: no such file, and no such data set (there is {shipped})")
