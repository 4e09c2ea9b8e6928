"""What the models of the command line share: options of the fit and of the output, and the end of every run."""

import shutil
import sys
from contextlib import contextmanager

from ..errors import naming
from . import tables

PRINTED = "standard output"  # where results go, for messages


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
        from .. import plot  # ImportError if matplotlib is missing

        plot.format_of(options.plot)


def deliver(options, posterior, lines, draw):
    """Save the posterior, draw the figure that `draw()` makes, and print what was asked for; return the exit status."""
    if options.output is not None:
        posterior.save(options.output)  # before anything else can fail
    lines = list(lines)
    if options.output is not None:
        lines.append(f"  saved            {options.output}")
    if options.plot is not None:
        from .. import plot

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
