"""Standard output and error of the commands: results as text or JSON, messages, and progress."""

import json
import os
import shutil
import sys
from contextlib import contextmanager
from dataclasses import fields, is_dataclass

import numpy as np

from cavity.base.errors import naming

STDOUT_NAME = "standard output"  # its name in messages
REPORTED_ATTRIBUTES = (  # attributes of a posterior in JSON
    *("converged", "status", "n_iter", "log_evidence", "elbo", "log_bound", "n_samples", "n_inducing", "columns"),
    *("classes", "roles", "weights", "counts", "mean", "variance", "noise_variance", "prior_variance"),
)


def prepare_streams():
    """Replace closed output streams by the null device; escape characters that an encoding lacks."""
    for name in ("stdout", "stderr"):
        stream = getattr(sys, name)
        if stream is None:
            setattr(sys, name, open(os.devnull, "w", encoding="utf-8"))  # noqa: SIM115  open until the process ends
        elif getattr(stream, "errors", None) in ("strict", "surrogateescape") and hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="backslashreplace")


def write_output(text=""):
    """Write text and buffered output to standard output; an OSError has its name as the file.

    If the reader has closed the pipe, as `head` does, the text is discarded.
    """
    try:
        with naming(STDOUT_NAME):
            print(text, end="", flush=True)
    except BrokenPipeError:
        discard_output(sys.stdout)


def print_error(message):
    """Print a line to standard error; failures are ignored."""
    try:
        print(f"cavity: {message}", file=sys.stderr, flush=True)
    except OSError:
        discard_output(sys.stderr)


def discard_output(stream):
    """Discard the buffered output of a stream, which Python would try to write again at exit."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())


def print_result(options, lines, make_object):
    """Print lines, or with --json the object that make_object() returns; return the exit status 0."""
    write_output(f"{json.dumps(make_object(), allow_nan=False)}\n" if options.json else "\n".join([*lines, ""]))
    return 0


def is_progress_shown(options):
    """Whether to show progress: on a terminal, without --quiet."""
    return sys.stderr.isatty() and not options.quiet


@contextmanager
def show_progress(options):
    """Yield a function show(fraction, message) that displays progress if standard error is a terminal."""
    if not is_progress_shown(options):
        yield lambda fraction, message: None
        return
    try:
        from tqdm import tqdm
    except ImportError:
        yield overwrite_line
        print(file=sys.stderr)
        return
    with tqdm(total=1.0, bar_format="{percentage:3.0f}%|{bar}| {elapsed}<{remaining} {postfix}") as bar:

        def show(fraction, message):
            bar.n = fraction
            bar.set_postfix_str(message)

        yield show


def overwrite_line(fraction, message):
    """Overwrite the last line."""
    width = shutil.get_terminal_size().columns - 1
    print(f"\r{f'{100 * fraction:3.0f} % {message}':<{width}.{width}}", end="", file=sys.stderr, flush=True)


def describe(posterior):
    """Return the content of a posterior for JSON; numbers that are not finite become null."""
    model = getattr(posterior, "model", None)
    settings = {field.name: getattr(model, field.name) for field in fields(model)} if is_dataclass(model) else {}
    description = {"posterior": type(posterior).__name__, "settings": as_json(settings)}
    values = {name: getattr(posterior, name, None) for name in REPORTED_ATTRIBUTES}
    description |= {name: as_json(value) for name, value in values.items() if value is not None}
    if hasattr(posterior, "summary"):
        description["summary"] = table_as_json(posterior.summary())
    return description


def table_as_json(table):
    """Return a Table, and the one below it, for JSON."""
    columns = {name: as_json(values) for name, values in table.columns.items()}
    description = {"title": table.title, "rows": list(table.names), "columns": columns, "notes": list(table.notes)}
    return description if table.below is None else description | {"below": table_as_json(table.below)}


def as_json(value):
    """Return a value for JSON; types that JSON does not have become their repr."""
    if isinstance(value, dict):
        return {str(name): as_json(item) for name, item in value.items()}
    if isinstance(value, list | tuple):
        return [as_json(item) for item in value]
    if isinstance(value, np.ndarray | np.generic):
        return as_json(value.tolist())
    if isinstance(value, float):
        return value if np.isfinite(value) else None
    return value if value is None or isinstance(value, str | bool | int) else repr(value)
