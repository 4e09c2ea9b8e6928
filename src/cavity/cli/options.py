"""What the models of the command line share: options of the fit and of the output, and the end of every run."""

import argparse
import json
import os
import shutil
import sys
import time
from collections.abc import Callable
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from glob import glob
from pathlib import Path

import numpy as np

from cavity.base import arrays
from cavity.base.persistence import check_output
from cavity.base.results import counted
from cavity.cli.described import described
from cavity.cli.streams import write_out
from cavity.runs.executors import THREADS_VARIABLE, threads_of
from cavity.sources.formats import is_file_name, is_store

KEYWORDS = {  # options that the library knows by other names
    "components": "n_components",
    "inducing": "n_inducing",
    "seed": "rng",
    "sep": "separator",
    "starts": "n_init",
    "threads": "n_threads",
    "weights": "sample_weight",
}
ARGUMENTS = {keyword: option for option, keyword in KEYWORDS.items()} | {"n_starts": "starts"}
NO_OPTIONS = ("command", "data", "model", "posterior", "run")


# ------------------------------------------------------------------------------------------ numbers


class OptionError(Exception):
    """A number outside of the domain of its option; argparse lets it pass."""


@dataclass(frozen=True, slots=True)
class Domain:
    """What numbers there may be: in words, and as the library checks it."""

    words: str
    check: Callable
    kind: type = float


POSITIVE = Domain("positive", partial(arrays.number, name="", low=0))
NONNEGATIVE = Domain("at least 0", partial(arrays.number, name="", low=0, closed_low=True))
INSIDE = Domain("between 0 and 1", partial(arrays.number, name="", low=0, high=1))
SHARE = Domain("above 0 and at most 1", partial(arrays.number, name="", low=0, high=1, closed_high=True))
FROM_0_TO_1 = Domain("from 0 to 1", partial(arrays.number, name="", low=0, high=1, closed_low=True, closed_high=True))
BELOW_1 = Domain("at least 0 and below 1", partial(arrays.number, name="", low=0, high=1, closed_low=True))
FINITE = Domain("finite", partial(arrays.number, name=""))
COUNT = Domain("at least 1", partial(arrays.integer, name="", low=1), int)
INDEX = Domain("at least 0", partial(arrays.integer, name="", low=0), int)


@dataclass(frozen=True, slots=True)
class Number:
    """An option that is a number of a domain, or several separated by commas, or one of some words."""

    option: str
    domain: Domain
    metavar: str | None = None
    help: str | None = None
    default: object = None
    several: bool = False
    words: tuple = ()

    @property
    def name(self):
        """What argparse calls it."""
        return self.option[2:].replace("-", "_")

    def __call__(self, text):
        """Return what was typed; OptionError, before any work, for a number outside of the domain."""
        if text in self.words:
            return text
        try:
            found = [self.domain.kind(part) for part in (text.split(",") if self.several else [text])]
        except ValueError:
            several = f"{', '.join(self.words)} or numbers" if self.words else "numbers, one or several"
            wanted = f"{several} separated by commas," if self.several else self.domain.kind.__name__
            raise argparse.ArgumentTypeError(f"invalid {wanted} value: {text!r}") from None
        for each in found:
            try:
                self.domain.check(each)
            except ValueError as error:
                shown = str(each).removesuffix(".0")
                raise OptionError(f"{self.option} must be {self.domain.words}, got {shown}") from error
        return found if self.several else found[0]


def add(group, *numbers):
    """Add Numbers to a group of a command."""
    for each in numbers:
        group.add_argument(each.option, type=each, metavar=each.metavar, default=each.default, help=each.help)


def given(options, numbers):
    """Return what was typed of some Numbers, by the names that the arguments of the library have."""
    values = {KEYWORDS.get(each.name, each.name): getattr(options, each.name) for each in numbers}
    return {name: value for name, value in values.items() if value is not None}


def typed(name):
    """Return an option as it is typed."""
    return f"--{name.replace('_', '-')}"


def as_typed(error, options):
    """Return the words of an error, the arguments it is about called as the options of the command are."""
    words = str(error)
    for name in getattr(error, "arguments", ()):
        option = ARGUMENTS.get(name, name)
        if option in NO_OPTIONS or getattr(options, option, None) is None:
            continue  # it was not typed
        before, said, after = words.partition(name)
        if after.startswith("="):  # as it is written in Python
            after = f" {after[1:]}" if after[1] != "'" else f" {after[2:].replace(chr(39), '', 1)}"
        words = f"{before}{typed(option)}{after}" if said else words
    for name in getattr(error, "advised", ()):  # what the library calls otherwise
        words = words.replace(f"{name}=", f"{typed(ARGUMENTS.get(name, name))} ")
    return words


# ------------------------------------------------------------------------------------------ options of a fit

CORES = Domain("at least 1, or -1 for all cores", threads_of, int)
THREADS_WORDS = f"-1 for all cores; same result for any number (default ${THREADS_VARIABLE}, or 1)"
THREADS = Number("--threads", CORES, help=THREADS_WORDS)
DAMPING = Number("--damping", SHARE, default=1.0)


def iteration(command, *, max_iter, tol):
    """Add the options of every iterative fit; return their group."""
    fit = command.add_argument_group("fit")
    passes = Number("--max-iter", COUNT, help=f"most passes (default {max_iter})", default=max_iter)
    add(fit, passes, Number("--tol", NONNEGATIVE, help=f"stopping rule (default {tol:g})", default=tol), THREADS)
    return fit


def checkpoints(command):
    """Add the options of fits that go on where they were killed."""
    group = command.add_argument_group("killed and resumed")
    words = "keep in this file how far the fit is; the same command goes on there, and ends in the same bits"
    group.add_argument("--checkpoint", metavar="FILE", help=words)
    words = "from one writing of the checkpoint to the next (default 60)"
    add(group, Number("--checkpoint-every", NONNEGATIVE, "S", f"seconds {words}"))


def site_updates(fit, power, schedules):
    """Add the options of expectation propagation and of assumed-density filtering; the first schedule is the default.

    `power` is the range of the power, for the help.
    """
    fit.add_argument("--method", choices=("ep", "adf"), default="ep")
    add(fit, DAMPING, Number("--power", SHARE, help=f"power of power EP, in {power}; 1 is EP", default=1.0))
    fit.add_argument("--schedule", choices=schedules, default=schedules[0])


def ascent(fit):
    """Add the options of coordinate ascent."""
    add(fit, Number("--starts", COUNT, "S", "starts for each K; more need --seed", 1))
    add(fit, Number("--seed", INDEX, help="seed of the random starts"))


def fit_options(options, *names):
    """Return the options of any `fit`, and those with the given names."""
    given = {KEYWORDS.get(name, name): getattr(options, name) for name in ("max_iter", "tol", "threads", *names)}
    kept = {name: getattr(options, name, None) for name in ("checkpoint", "checkpoint_every")}
    if kept["checkpoint"] is None and kept["checkpoint_every"] is not None:
        raise ValueError("--checkpoint-every needs --checkpoint, the file")
    return given | {"progress": shows(options)} | {name: each for name, each in kept.items() if each is not None}


def shows(options):
    """Whether to show how far the work is: on a terminal, unless told otherwise."""
    return sys.stderr.isatty() and not options.quiet


def site_options(options):
    """Return the options of a `fit` by expectation propagation."""
    return fit_options(options, "method", "schedule", "damping", "power")


def ascent_options(options):
    """Return the options of a `fit` by coordinate ascent."""
    if options.starts > 1 and options.seed is None:
        raise ValueError(f"--starts {options.starts} needs --seed, for the random ones")
    return fit_options(options, "starts", "seed")


# ------------------------------------------------------------------------------------------ what is printed


def timed(function, *arguments, **options):
    """Return what a function returns, and the seconds it took."""
    started = time.perf_counter()
    return function(*arguments, **options), time.perf_counter() - started


def elapsed(seconds):
    """Return a time as it is printed, in milliseconds or seconds."""
    if seconds < 0.9995:
        return f"{1e3 * seconds:.3g} ms"
    return f"{seconds:.3g} s" if seconds < 999.5 else f"{seconds:.0f} s"


def ascent_lines(best, tried, seconds):
    """Yield the last lines of a printed result: how the best of the fits that were tried, or failed (None), ended."""
    passes = sum(posterior.n_iter for posterior in tried if posterior is not None)
    reached = f"  ELBO             {best.elbo:.6f} nats, predicted gap {best.predicted_gap:.2g}"
    yield from end_lines("mean field", best, seconds, reached, more=f" ({passes} in all)")


def end_lines(method, posterior, seconds, *reached, more=""):
    """Yield the lines that say how a fit ended: what was `reached`, and after how many passes."""
    done = "converged" if posterior.converged else f"NOT CONVERGED: {posterior.status}"
    yield from ("fit", *reached)
    yield f"  {method:<16} {done}, {counted(posterior.n_iter, 'pass')}{more}, {elapsed(seconds)}"


def summary_lines(posterior):
    """Yield the table of what was found, below a line that says what it is."""
    yield "coefficients, per unit of the column"
    yield from repr(posterior.summary()).splitlines()[1:]


def shown(value):
    """Return words for a number or several."""
    return ", ".join(f"{each:.6g}" for each in np.ravel(value))


def prior_lines(posterior):
    """Yield the lines of a posterior about its priors."""
    shown = False
    for line in repr(posterior).splitlines()[1:]:
        shown = line.split()[0] in ("prior", "intercept") if line[:3].count(" ") == 2 else shown
        if shown:
            yield line


def output(command, drawn):
    """Add the files to write; `drawn` is what a picture shows."""
    group = command.add_argument_group("output")
    words = "save the posterior as .npz (read it with cavity.load)"
    group.add_argument("--output", "--save", metavar="FILE", help=words)
    group.add_argument("--plot", metavar="FILE", help=f"draw {drawn} (plot extra)")
    job(group)


def job(group):
    """Add what every command that works on a table has."""
    group.add_argument("--json", action="store_true", help="print one JSON object in place of text")
    words = "a TOML file with options, like components = 3; those that are typed win"
    group.add_argument("--config", metavar="FILE", help=words)
    group.add_argument("--quiet", action="store_true", help="do not show on a terminal how far the work is")


def check_paths(options):
    """Raise an error, before any work, if a file cannot be written, is among the data, or is to be written twice."""
    typed = {option: getattr(options, option, None) for option in ("output", "plot", "checkpoint")}
    targets = {option: Path(os.path.realpath(path)) for option, path in typed.items() if path is not None}
    for option, target in targets.items():
        path = typed[option]
        for source, what in ((options.data, "data"), (getattr(options, "posterior", None), "posterior's")):
            if source not in (None, "-") and _is_among(target, source):
                raise ValueError(f"--{option}: {path} is the {what} file; it would be overwritten")
        for other, another in targets.items():
            if other != option and another == target:
                raise ValueError(f"--{option} and --{other}: {path} would be written twice; give two files")
        check_output(path, f"--{option}: ", archive=options.command == "fit" and option != "plot")


def _is_among(path, source):
    """Whether a file is one of those that a path, a folder or a pattern stands for."""
    places = [Path(os.path.realpath(each)) for each in (source, *glob(source, recursive=True))]
    around = [place for place in places if place in path.parents]
    return path in places or (path.is_file() and any(is_store(place) or is_file_name(path.name) for place in around))


def fit_and_deliver(fit, options):
    """Run a command of `cavity fit`; return the exit status.

    `fit` takes the options and returns the posterior, the lines to print, and a function that draws the figure with
    cavity.plot.pictures. That a file cannot be written or the plot extra is missing is found out before any work.
    """
    check_paths(options)
    picture = getattr(options, "plot", None)
    if picture is not None:
        from cavity.plot import pictures as plot  # ImportError if matplotlib is missing

        plot.format_of(picture)
    (posterior, lines, draw), seconds = timed(fit, options)
    files = {}
    if options.output is not None:
        posterior.save(options.output)  # before anything else can fail
        files["saved"] = options.output
    lines = list(lines)
    if picture is not None:
        plot.save(draw(plot), picture)
        files["plot"] = picture
    lines += [f"  {what:<16} {file}" for what, file in files.items()]
    known = {"command": "fit", "model": options.model, "data": options.data, "seconds": seconds, **files}
    say(options, lines, lambda: known | described(posterior))  # at the end: a closed pipe must not cost the files
    return 0 if posterior.converged else 1


def say(options, lines, known):
    """Print lines, or with --json the object that known() returns."""
    write_out(f"{json.dumps(known(), allow_nan=False)}\n" if options.json else "\n".join([*lines, ""]))


@contextmanager
def progress(options):
    """Give a function show(fraction, words) that tells how far the work is, if somebody looks at standard error."""
    if not shows(options):
        yield lambda fraction, words: None
        return
    try:
        from tqdm import tqdm
    except ImportError:
        yield show_line
        print(file=sys.stderr)
        return
    with tqdm(total=1.0, bar_format="{percentage:3.0f}%|{bar}| {elapsed}<{remaining} {postfix}") as bar:

        def show(fraction, words):
            bar.n = fraction
            bar.set_postfix_str(words)

        yield show


def show_line(fraction, words):
    """Write over the last line."""
    width = shutil.get_terminal_size().columns - 1
    print(f"\r{f'{100 * fraction:3.0f} % {words}':<{width}.{width}}", end="", file=sys.stderr, flush=True)
