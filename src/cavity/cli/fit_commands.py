"""Shared parts of the commands of `cavity fit`: options as arguments, the report of a fit, files, exit status."""

import os
import time
from functools import partial
from glob import glob
from pathlib import Path

import numpy as np

from cavity.base.persistence import check_output
from cavity.base.results import format_count
from cavity.cli.options import (
    COMMON_OPTIONS,
    DATA_HELP,
    KEYWORD_OF_OPTION,
    THREADS_OPTION,
    Command,
    Number,
    Option,
    OptionGroup,
)
from cavity.cli.standard_output import describe, is_progress_shown, print_result
from cavity.sources.formats import is_file_name, is_store


def collect_typed(options, numbers):
    """Return the typed values of some Numbers, by the names of the library's arguments."""
    values = {KEYWORD_OF_OPTION.get(number.name, number.name): getattr(options, number.name) for number in numbers}
    return {name: value for name, value in values.items() if value is not None}


def collect_fit_options(options, *names):
    """Return the arguments that every `fit` takes, and those of the options `names`."""
    names = ("max_iter", "tol", "threads", *names)
    arguments = {KEYWORD_OF_OPTION.get(name, name): getattr(options, name) for name in names}
    checkpoint = {name: getattr(options, name, None) for name in ("checkpoint", "checkpoint_every")}
    if checkpoint["checkpoint"] is None and checkpoint["checkpoint_every"] is not None:
        raise ValueError("--checkpoint-every needs --checkpoint, the file")
    arguments |= {name: value for name, value in checkpoint.items() if value is not None}
    return arguments | {"progress": is_progress_shown(options)}


def collect_site_options(options):
    """Return the arguments of a `fit` by expectation propagation."""
    return collect_fit_options(options, "method", "schedule", "damping", "power")


def collect_ascent_options(options):
    """Return the arguments of a `fit` by coordinate ascent."""
    if options.starts > 1 and options.seed is None:
        raise ValueError(f"--starts {options.starts} needs --seed, for the random ones")
    return collect_fit_options(options, "starts", "seed")


def time_call(function, *arguments, **options):
    """Return the result of a function, and the seconds it took."""
    started = time.perf_counter()
    return function(*arguments, **options), time.perf_counter() - started


def format_seconds(seconds):
    """Format a time in milliseconds or seconds."""
    if seconds < 0.9995:
        return f"{1e3 * seconds:.3g} ms"
    return f"{seconds:.3g} s" if seconds < 999.5 else f"{seconds:.0f} s"


def report_ascent(best, runs, seconds):
    """Yield the last lines of a report: how the best of the tried fits (None: failed) ended."""
    passes = sum(posterior.n_iter for posterior in runs if posterior is not None)
    objective = f"  ELBO             {best.elbo:.6f} nats, predicted gap {best.predicted_gap:.2g}"
    yield from report_end("mean field", best, seconds, objective, more=f" ({passes} in all)")


def report_end(method, posterior, seconds, *objective, more=""):
    """Yield the last lines of a report: the objective, the status and the number of passes."""
    done = "converged" if posterior.converged else f"NOT CONVERGED: {posterior.status}"
    yield from ("fit", *objective)
    yield f"  {method:<16} {done}, {format_count(posterior.n_iter, 'pass')}{more}, {format_seconds(seconds)}"


def report_summary(posterior):
    """Yield the summary of the coefficients below a heading."""
    yield "coefficients, per unit of the column"
    yield from repr(posterior.summary()).splitlines()[1:]


def format_numbers(values, digits=6):
    """Format a number or several, separated by commas."""
    return ", ".join(f"{value:.{digits}g}" for value in np.ravel(values))


def check_paths(options):
    """Raise an error if an output file cannot be written, is among the data, or would be written twice."""
    typed = {name: getattr(options, name, None) for name in ("output", "plot", "checkpoint")}
    targets = {name: Path(os.path.realpath(path)) for name, path in typed.items() if path is not None}
    for name, target in targets.items():
        path = typed[name]
        for source, role in ((options.data, "data"), (getattr(options, "posterior", None), "posterior's")):
            if source not in (None, "-") and _is_among(target, source):
                raise ValueError(f"--{name}: {path} is the {role} file; it would be overwritten")
        for other, another in targets.items():
            if other != name and another == target:
                raise ValueError(f"--{name} and --{other}: {path} would be written twice; give two files")
        check_output(path, f"--{name}: ", archive=options.command == "fit" and name != "plot")


def _is_among(path, source):
    """Whether a file is among those of a path, a folder or a pattern."""
    paths = [Path(os.path.realpath(pattern)) for pattern in (source, *glob(source, recursive=True))]
    folders = [folder for folder in paths if folder in path.parents]
    return path in paths or (path.is_file() and any(is_store(folder) or is_file_name(path.name) for folder in folders))


def fit_command(examples, plot_content, *options, max_iter, tol, fit=()):
    """Return a decorator that makes a Command of a function that fits; its docstring is the description.

    `examples` are suitable shipped data sets, `plot_content` describes the plot, `max_iter` and `tol` are defaults, and
    `fit` are further options of the iteration.
    """
    passes = Number("--max-iter", "at least 1", help=f"most passes (default {max_iter})", default=max_iter)
    tolerance = Number("--tol", "at least 0", help=f"stopping rule (default {tol:g})", default=tol)
    iteration = OptionGroup("fit", passes, tolerance, THREADS_OPTION, *fit)
    data = Option("data", None, DATA_HELP.format(examples))
    save = Option("--output", "FILE", "save the posterior as .npz (read it with cavity.load)", alias=["--save"])
    output = OptionGroup("output", save, Option("--plot", "FILE", f"draw {plot_content} (plot extra)"), *COMMON_OPTIONS)
    return lambda run: Command(partial(fit_and_deliver, run), run.__doc__, data, *options, iteration, output)


def fit_and_deliver(fit, options):
    """Run a command of `cavity fit`; return the exit status.

    `fit` takes the options and returns the posterior, the lines to print, and the arguments of `make_figure`
    after the posterior. Output paths and the plot extra are checked before any work.
    """
    check_paths(options)
    plot_path = getattr(options, "plot", None)
    if plot_path is not None:
        from cavity.plot import posterior_figures as plot  # ImportError if matplotlib is missing

        plot.format_of(plot_path)
    (posterior, lines, plot_arguments), seconds = time_call(fit, options)
    files = {}
    if options.output is not None:
        posterior.save(options.output)  # before anything else can fail
        files["saved"] = options.output
    lines = list(lines)
    if plot_path is not None:
        plot.save_figure(plot.make_figure(posterior, **plot_arguments), plot_path)
        files["plot"] = plot_path
    lines += [f"  {label:<16} {file}" for label, file in files.items()]
    summary = {"command": "fit", "model": options.model, "data": options.data, "seconds": seconds, **files}
    # printed last: the files are written also where the pipe is closed
    print_result(options, lines, lambda: summary | describe(posterior))
    return 0 if np.all(posterior.converged) else 1
