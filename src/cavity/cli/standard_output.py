"""Standard output and error of the commands: results as text or JSON, messages, and how far the work is."""

import json
import os
import shutil
import sys
from contextlib import contextmanager
from dataclasses import fields, is_dataclass

import numpy as np

from cavity.base.errors import naming

STDOUT_NAME = "standard output"  # where results go, for messages
REPORTED_ATTRIBUTES = (
    "converged",
    "status",
    "n_iter",
    "log_evidence",
    "elbo",
    "log_bound",
    "n_samples",
    "n_inducing",
    "columns",
)
REPORTED_ATTRIBUTES += ("classes", "roles", "weights", "counts", "mean", "variance", "noise_variance", "prior_variance")


def prepare_streams():
    """Replace output streams that the caller closed by the null device; escape what an encoding does not have."""
    for name in ("stdout", "stderr"):
        stream = getattr(sys, name)
        if stream is None:
            setattr(sys, name, open(os.devnull, "w", encoding="utf-8"))  # noqa: SIM115  for as long as the process
        elif getattr(stream, "errors", None) in ("strict", "surrogateescape") and hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="backslashreplace")


def write_output(text=""):
    """Write text, and what was printed before, to standard output; OSError where it cannot, with its name as the file.

    Where its reader has closed it, as `head` does when it has seen enough, the text is thrown away.
    """
    try:
        with naming(STDOUT_NAME):
            print(text, end="", flush=True)
    except BrokenPipeError:
        discard_output(sys.stdout)


def print_error(words):
    """Print a line to standard error; that it cannot be printed changes nothing about how a command ends."""
    try:
        print(f"cavity: {words}", file=sys.stderr, flush=True)
    except OSError:
        discard_output(sys.stderr)


def discard_output(stream):
    """Throw away what a stream did not take, which Python would try to write once more at the end."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())


def print_result(options, lines, known):
    """Print lines, or with --json the object that known() returns; return the exit status of what went well."""
    write_output(f"{json.dumps(known(), allow_nan=False)}\n" if options.json else "\n".join([*lines, ""]))
    return 0


def is_progress_shown(options):
    """Whether to show how far the work is: on a terminal, unless told otherwise."""
    return sys.stderr.isatty() and not options.quiet


@contextmanager
def show_progress(options):
    """Give a function show(fraction, words) that tells how far the work is, if somebody looks at standard error."""
    if not is_progress_shown(options):
        yield lambda fraction, words: None
        return
    try:
        from tqdm import tqdm
    except ImportError:
        yield overwrite_line
        print(file=sys.stderr)
        return
    with tqdm(total=1.0, bar_format="{percentage:3.0f}%|{bar}| {elapsed}<{remaining} {postfix}") as bar:

        def show(fraction, words):
            bar.n = fraction
            bar.set_postfix_str(words)

        yield show


def overwrite_line(fraction, words):
    """Write over the last line."""
    width = shutil.get_terminal_size().columns - 1
    print(f"\r{f'{100 * fraction:3.0f} % {words}':<{width}.{width}}", end="", file=sys.stderr, flush=True)


def describe(posterior):
    """Return what a posterior says of itself, as JSON has it; numbers that are not finite are null."""
    model = getattr(posterior, "model", None)
    settings = {field.name: getattr(model, field.name) for field in fields(model)} if is_dataclass(model) else {}
    found = {"posterior": type(posterior).__name__, "settings": as_json(settings)}
    found |= {
        name: as_json(getattr(posterior, name))
        for name in REPORTED_ATTRIBUTES
        if getattr(posterior, name, None) is not None
    }
    if hasattr(posterior, "summary"):
        found["summary"] = table_as_json(posterior.summary())
    return found


def table_as_json(table):
    """Return a Table as JSON has it, and the one below it."""
    columns = {name: as_json(values) for name, values in table.columns.items()}
    known = {"title": table.title, "rows": list(table.names), "columns": columns, "notes": list(table.notes)}
    return known if table.below is None else known | {"below": table_as_json(table.below)}


def as_json(value):
    """Return a value as JSON has it: what is nothing JSON knows by its repr."""
    if isinstance(value, dict):
        return {str(name): as_json(each) for name, each in value.items()}
    if isinstance(value, list | tuple):
        return [as_json(each) for each in value]
    if isinstance(value, np.ndarray | np.generic):
        return as_json(value.tolist())
    if isinstance(value, float):
        return value if np.isfinite(value) else None
    return value if value is None or isinstance(value, str | bool | int) else repr(value)
