"""What the commands of `cavity fit` share: options as arguments, the lines about a fit, files, and the exit status."""

import os
import time
from functools import partial
from glob import glob
from pathlib import Path

import numpy as np

from cavity.base.persistence import check_output
from cavity.base.results import counted
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
    """Return what was typed of some Numbers, by the names that the arguments of the library have."""
    values = {KEYWORD_OF_OPTION.get(each.name, each.name): getattr(options, each.name) for each in numbers}
    return {name: value for name, value in values.items() if value is not None}


def collect_fit_options(options, *names):
    """Return the options of any `fit`, and those with the given names."""
    settings = {
        KEYWORD_OF_OPTION.get(name, name): getattr(options, name) for name in ("max_iter", "tol", "threads", *names)
    }
    watched = {name: getattr(options, name, None) for name in ("checkpoint", "checkpoint_every")}
    if watched["checkpoint"] is None and watched["checkpoint_every"] is not None:
        raise ValueError("--checkpoint-every needs --checkpoint, the file")
    return (
        settings
        | {"progress": is_progress_shown(options)}
        | {name: each for name, each in watched.items() if each is not None}
    )


def collect_site_options(options):
    """Return the options of a `fit` by expectation propagation."""
    return collect_fit_options(options, "method", "schedule", "damping", "power")


def collect_ascent_options(options):
    """Return the options of a `fit` by coordinate ascent."""
    if options.starts > 1 and options.seed is None:
        raise ValueError(f"--starts {options.starts} needs --seed, for the random ones")
    return collect_fit_options(options, "starts", "seed")


def time_call(function, *arguments, **options):
    """Return what a function returns, and the seconds it took."""
    started = time.perf_counter()
    return function(*arguments, **options), time.perf_counter() - started


def format_seconds(seconds):
    """Return a time as it is printed, in milliseconds or seconds."""
    if seconds < 0.9995:
        return f"{1e3 * seconds:.3g} ms"
    return f"{seconds:.3g} s" if seconds < 999.5 else f"{seconds:.0f} s"


def report_ascent(best, tried, seconds):
    """Yield the last lines of a printed result: how the best of the fits that were tried, or failed (None), ended."""
    passes = sum(posterior.n_iter for posterior in tried if posterior is not None)
    reached = f"  ELBO             {best.elbo:.6f} nats, predicted gap {best.predicted_gap:.2g}"
    yield from report_end("mean field", best, seconds, reached, more=f" ({passes} in all)")


def report_end(method, posterior, seconds, *reached, more=""):
    """Yield the lines that say how a fit ended: what was `reached`, and after how many passes."""
    done = "converged" if posterior.converged else f"NOT CONVERGED: {posterior.status}"
    yield from ("fit", *reached)
    yield f"  {method:<16} {done}, {counted(posterior.n_iter, 'pass')}{more}, {format_seconds(seconds)}"


def report_summary(posterior):
    """Yield the table of what was found, below a line that says what it is."""
    yield "coefficients, per unit of the column"
    yield from repr(posterior.summary()).splitlines()[1:]


def format_numbers(value):
    """Return words for a number or several."""
    return ", ".join(f"{each:.6g}" for each in np.ravel(value))


def check_paths(options):
    """Raise an error, before any work, if a file cannot be written, is among the data, or is to be written twice."""
    typed = {name: getattr(options, name, None) for name in ("output", "plot", "checkpoint")}
    targets = {name: Path(os.path.realpath(path)) for name, path in typed.items() if path is not None}
    for name, target in targets.items():
        path = typed[name]
        for source, what in ((options.data, "data"), (getattr(options, "posterior", None), "posterior's")):
            if source not in (None, "-") and _is_among(target, source):
                raise ValueError(f"--{name}: {path} is the {what} file; it would be overwritten")
        for other, another in targets.items():
            if other != name and another == target:
                raise ValueError(f"--{name} and --{other}: {path} would be written twice; give two files")
        check_output(path, f"--{name}: ", archive=options.command == "fit" and name != "plot")


def _is_among(path, source):
    """Whether a file is one of those that a path, a folder or a pattern stands for."""
    places = [Path(os.path.realpath(each)) for each in (source, *glob(source, recursive=True))]
    around = [place for place in places if place in path.parents]
    return path in places or (path.is_file() and any(is_store(place) or is_file_name(path.name) for place in around))


def fit_command(examples, drawn, *options, max_iter, tol, fit=()):
    """Return what makes a command of `cavity fit` of the function that fits, whose docstring is the description.

    `examples` are shipped data sets that suit it, `drawn` is what a picture shows; `max_iter` and `tol` are defaults,
    beside further options of the iteration.
    """
    passes = Number("--max-iter", "at least 1", help=f"most passes (default {max_iter})", default=max_iter)
    tolerance = Number("--tol", "at least 0", help=f"stopping rule (default {tol:g})", default=tol)
    iteration = OptionGroup("fit", passes, tolerance, THREADS_OPTION, *fit)
    data = Option("data", None, DATA_HELP.format(examples))
    save = Option("--output", "FILE", "save the posterior as .npz (read it with cavity.load)", alias=["--save"])
    output = OptionGroup("output", save, Option("--plot", "FILE", f"draw {drawn} (plot extra)"), *COMMON_OPTIONS)
    return lambda run: Command(partial(fit_and_deliver, run), run.__doc__, data, *options, iteration, output)


def fit_and_deliver(fit, options):
    """Run a command of `cavity fit`; return the exit status.

    `fit` takes the options and returns the posterior, the lines to print, and the arguments of plot.pictures.picture
    beside the posterior. That a file cannot be written or the plot extra is missing is found out before any work.
    """
    check_paths(options)
    picture = getattr(options, "plot", None)
    if picture is not None:
        from cavity.plot import posterior_figures as plot  # ImportError if matplotlib is missing

        plot.format_of(picture)
    (posterior, lines, drawn), seconds = time_call(fit, options)
    files = {}
    if options.output is not None:
        posterior.save(options.output)  # before anything else can fail
        files["saved"] = options.output
    lines = list(lines)
    if picture is not None:
        plot.save_figure(plot.make_figure(posterior, **drawn), picture)
        files["plot"] = picture
    lines += [f"  {what:<16} {file}" for what, file in files.items()]
    known = {"command": "fit", "model": options.model, "data": options.data, "seconds": seconds, **files}
    print_result(
        options, lines, lambda: known | describe(posterior)
    )  # at the end: a closed pipe must not cost the files
    return 0 if posterior.converged else 1
