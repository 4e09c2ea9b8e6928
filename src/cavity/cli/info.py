"""`cavity info` and `cavity data`: what is in a saved file, and in the shipped data sets."""

import csv
import io
import json
from pathlib import Path

from cavity import data
from cavity.base import persistence
from cavity.base.field_descriptions import describe_fields
from cavity.base.persistence import open_whole_file
from cavity.base.results import format_count
from cavity.cli.options import COMMON_OPTIONS, Option, command
from cavity.cli.standard_output import describe, print_result
from cavity.jobs import checkpoint
from cavity.models.saved import REFUSED_KINDS, SAVED_KINDS, rebuild_from_file

MAX_ROWS_SHOWN = 5


@command(
    "say what a saved posterior or a checkpoint is: kind, version, settings, and the table of what was found",
    Option("posterior", None, "a .npz file that --output of `cavity fit` wrote, or save"),
    *COMMON_OPTIONS,
)
def show(options):
    """Say what is in a file."""
    about, arrays = persistence.read_with_header(options.posterior, (*SAVED_KINDS, checkpoint.FILE_KIND), REFUSED_KINDS)
    about = {name: value for name, value in about.items() if name != "arrays"}
    kind, settings = about["kind"], about.pop("settings")
    writer = about.get("build", f"cavity {about['cavity']}")
    lines = [f"{options.posterior}: {about['kind']}, written by {writer} (format {about['format']})"]
    if kind == checkpoint.FILE_KIND:
        stages = [", ".join(map(str, stage)) or "the fit as a whole" for stage, _ in settings["stages"]]
        lines += [*report_fit_settings(settings["fit"]), "stages that were kept", *(f"  {stage}" for stage in stages)]
        return print_result(
            options, lines, lambda: {"file": options.posterior} | about | settings["fit"] | {"stages": stages}
        )
    posterior = rebuild_from_file(options.posterior, kind, arrays, settings)
    lines += repr(posterior).splitlines()
    if hasattr(posterior, "summary"):
        lines += ["", *repr(posterior.summary()).splitlines()]
    fields = [*describe_fields(posterior)]
    lines += ["", "fields"] if fields else []
    lines += [f"  {name:<20} {'' if shape is None else shape!s:<12} {text}" for name, shape, text in fields]
    description = {"fields": {name: {"shape": shape, "description": text} for name, shape, text in fields}}
    return print_result(options, lines, lambda: {"file": options.posterior} | about | describe(posterior) | description)


def report_fit_settings(fit):
    """Yield what a fit is of, from its `fingerprint`."""
    settings = dict(fit["model"])
    yield f"  {'model':<16} {settings.pop('kind')}"
    for name, value in settings.items():
        yield f"    {name:<14} {json.dumps(value)}"
    for name, about in fit["data"].items():
        n, *width = about["shape"]
        yield f"  {name:<16} {', '.join([format_count(n, 'row'), *(format_count(size, 'column') for size in width)])}"


@command(
    "list the data sets that come with the package, or show one of them, or write it to a file",
    Option("data", "NAME", "the data set to show", nargs="?"),
    Option("--output", "FILE", "the .csv file to write it to"),
    *COMMON_OPTIONS,
)
def show_data(options):
    """List the data sets, or show one, or write it."""
    if options.data is None:
        if options.output is not None:
            raise ValueError("--output: say which data set to write, as in cavity data faithful --output faithful.csv")
        tables = {name: data.table(name) for name in data.names()}
        rows = {name: len(next(iter(columns.values()))) for name, (columns, _) in tables.items()}
        lines = [f"{name:<12} {rows[name]:>5} rows  {about['title']}" for name, (_, about) in tables.items()]
        return print_result(
            options, lines, lambda: {name: about | {"n": rows[name]} for name, (_, about) in tables.items()}
        )
    columns, about = data.table(options.data)
    rows = list(zip(*(column.tolist() for column in columns.values()), strict=True))
    if options.output is not None:
        if Path(options.output).suffix != ".csv":
            raise ValueError(f"--output: {options.output} must be a .csv file")
        with open_whole_file(options.output) as file:
            file.write(format_csv([[*columns], *rows]).encode())
    lines = [f"{options.data}: {format_count(len(rows), 'row')}", *report_dataset(about)]
    lines += ["first rows", *(f"  {line}" for line in format_csv([[*columns], *rows[:MAX_ROWS_SHOWN]]).splitlines())]
    lines += [] if options.output is None else [f"  saved            {options.output}"]
    return print_result(options, lines, lambda: about | {"rows": len(rows), "names": [*columns]})


def report_dataset(about):
    """Yield what is known of a data set, what is known of its columns one by one."""
    for name, value in about.items():
        if isinstance(value, dict):
            yield f"  {name}"
            yield from (f"    {column:<14} {description}" for column, description in value.items())
        else:
            yield f"  {name:<16} {value}"


def format_csv(rows):
    """Return rows as CSV, numbers with all their digits."""
    text = io.StringIO()
    csv.writer(text, lineterminator="\n").writerows(rows)
    return text.getvalue()
