"""What the models of the command line share: options of the fit and of the output, and the end of every run."""

import re
import shutil
import sys
from contextlib import contextmanager

import numpy as np

from cavity.base.errors import naming
from cavity.cli import tables

PRINTED = "standard output"  # where results go, for messages
DOMAINS = (  # of the options of all commands: names, what is good, and words for it
    (
        "clutter_variance covariance_prior degrees_of_freedom degrees_of_freedom_prior dispersion lengthscale "
        "mean_precision_prior noise_variance period prior_variance scale variance weight_concentration_prior",
        lambda value: 0.0 < value < np.inf,
        "positive",
    ),
    ("batch components first inducing max_iter starts threads", lambda value: value >= 1, "at least 1"),
    ("random_order seed skip tol tolerance", lambda value: 0.0 <= value < np.inf, "at least 0"),
    ("clutter_weight forget", lambda value: 0.0 < value < 1.0, "between 0 and 1"),
    ("damping power", lambda value: 0.0 < value <= 1.0, "above 0 and at most 1"),
    ("alpha", lambda value: 0.0 <= value <= 1.0, "from 0 to 1"),
    ("jitter", lambda value: 0.0 <= value < 1.0, "at least 0 and below 1"),
    ("clutter_mean mean mean_prior prior_mean thresholds", np.isfinite, "finite"),
)
ARGUMENTS = {  # of the library: the options that they are on the command line, where these have other names
    "n_components": "components",
    "n_inducing": "inducing",
    "n_init": "starts",
    "n_starts": "starts",
    "n_threads": "threads",
    "rng": "seed",
    "sample_weight": "weights",
}
APART = r"(?<![-\w'\"./])(?<!learnt )"  # no part of another word, of a path or of what is quoted
NO_OPTIONS = ("command", "data", "model", "posterior", "run")


def check_numbers(options):
    """Raise ValueError for a number outside of its domain, as it was typed, before any work."""
    for names, good, wanted in DOMAINS:
        for name in names.split():
            value = getattr(options, name, None)
            for number in [] if value is None or isinstance(value, str) else np.ravel(value).tolist():
                if not good(number):
                    raise ValueError(f"{typed(name)} must be {wanted}, got {str(number).removesuffix('.0')}")


def typed(name):
    """Return an option as it is typed."""
    return f"--{name.replace('_', '-')}"


def as_typed(message, options):
    """Return a message of the library with its arguments called as the options of the command are."""
    names = {name: name for name in vars(options) if name not in NO_OPTIONS}
    names |= {name: option for name, option in ARGUMENTS.items() if hasattr(options, option)}
    message, *rest = message.partition("; there is ")  # columns, which may have any names
    message = re.sub(
        rf"{APART}({'|'.join(names)})='?([\w.+-]+)'?", lambda found: f"{typed(names[found[1]])} {found[2]}", message
    )
    message = re.sub(
        rf"(^|[:;] )({'|'.join(names)})(?= must\b)", lambda found: f"{found[1]}{typed(names[found[2]])}", message
    )
    several = "|".join(name for name in names if "_" in name)  # words that mean nothing else
    message = re.sub(rf"{APART}({several})(?![\w'\"]|\.\w)", lambda found: typed(names[found[1]]), message)
    return "".join([message, *rest])


def iteration(command, *, max_iter, tol):
    """Add the options of every iterative fit; return their group."""
    fit = command.add_argument_group("fit")
    fit.add_argument("--max-iter", type=int, default=max_iter, help=f"most passes (default {max_iter})")
    fit.add_argument("--tol", type=float, default=tol, help=f"stopping rule (default {tol:g})")
    threads(fit)
    return fit


def threads(group):
    """Add the option of what may run in parallel."""
    group.add_argument("--threads", type=int, default=1, help="same result for any number (default 1)")


def damping(fit, power):
    """Add the options of expectation propagation and of assumed-density filtering."""
    fit.add_argument("--method", choices=("ep", "adf"), default="ep")
    steps(fit, power)


def steps(fit, power):
    """Add the options of the steps of expectation propagation."""
    fit.add_argument("--damping", type=float, default=1.0)
    fit.add_argument("--power", type=float, default=1.0, help=f"power of power EP, in {power}; 1 is EP")


def ascent(fit):
    """Add the options of coordinate ascent."""
    fit.add_argument("--starts", type=int, default=1, metavar="S", help="starts for each K; more need --seed")
    fit.add_argument("--seed", type=int, help="seed of the random starts")
    fit.add_argument("--plain", action="store_true", help="no extrapolation between sweeps")


def fit_options(options):
    """Return the options of a `fit` by coordinate ascent."""
    if options.starts > 1 and options.seed is None:
        raise ValueError(f"--starts {options.starts} needs --seed, for the random ones")
    return {
        "n_init": options.starts,
        "rng": options.seed,
        "accelerate": not options.plain,
        "max_iter": options.max_iter,
        "tol": options.tol,
        "n_threads": options.threads,
    }


def elapsed(seconds):
    """Return a time as it is printed, in milliseconds or seconds."""
    if seconds < 0.9995:
        return f"{1e3 * seconds:.3g} ms"
    return f"{seconds:.3g} s" if seconds < 999.5 else f"{seconds:.0f} s"


def ascent_lines(best, tried, seconds):
    """Yield the last lines of a printed result: how the best of the fits that were tried, or failed (None), ended."""
    done = "converged" if best.converged else f"NOT CONVERGED: {best.status}"
    passes = sum(posterior.n_iter for posterior in tried if posterior is not None)
    yield "fit"
    yield f"  ELBO             {best.elbo:.6f} nats, predicted gap {best.predicted_gap:.2g}"
    yield f"  mean field       {done}, {best.n_iter} pass(es) ({passes} in all), {elapsed(seconds)}"


def output(command, drawn):
    """Add the files to write."""
    group = command.add_argument_group("output")
    group.add_argument(
        "--output", "--save", metavar="FILE", help="save the posterior as .npz (read it with cavity.load)"
    )
    group.add_argument("--plot", metavar="FILE", help=f"draw {drawn} (plot extra)")


def check_output(options):
    """Fail now, before any work, if a file or its format cannot be written or the plot extra is missing."""
    tables.check_paths(options)
    if options.plot is not None:
        from cavity import plot  # ImportError if matplotlib is missing

        plot.format_of(options.plot)


def deliver(options, posterior, lines, draw):
    """Save the posterior, draw the figure that `draw()` makes, and print what was asked for; return the exit status."""
    if options.output is not None:
        posterior.save(options.output)  # before anything else can fail
    lines = list(lines)
    if options.output is not None:
        lines.append(f"  saved            {options.output}")
    if options.plot is not None:
        from cavity import plot

        plot.save(draw(), options.plot)
        lines.append(f"  plot             {options.plot}")
    with naming(PRINTED):
        print("\n".join(lines))  # at the end: a closed pipe must not cost the files
    return 0 if posterior.converged else 1


@contextmanager
def progress():
    """Give a function show(fraction, words) that tells how far the work is, if somebody looks at standard error."""
    if not sys.stderr.isatty():
        yield lambda fraction, words: None
        return
    try:
        from tqdm import tqdm
    except ImportError:
        yield _show_line
        print(file=sys.stderr)
        return
    with tqdm(total=1.0, bar_format="{percentage:3.0f}%|{bar}| {elapsed}<{remaining} {postfix}") as bar:

        def show(fraction, words):
            bar.n = fraction
            bar.set_postfix_str(words)

        yield show


def _show_line(fraction, words):
    """Write over the last line."""
    width = shutil.get_terminal_size().columns - 1
    print(f"\r{f'{100 * fraction:3.0f} % {words}':<{width}.{width}}", end="", file=sys.stderr, flush=True)
