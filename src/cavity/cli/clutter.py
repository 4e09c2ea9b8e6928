"""`cavity fit clutter`: a robust mean with its uncertainty, and which points look like clutter."""

import time

import numpy as np

from cavity.cli import options as shared
from cavity.cli import tables
from cavity.models.clutter.model import Clutter
from cavity.models.clutter.settings import WEIGHT

SHOWN = 20  # most clutter points listed
SETTINGS = {  # that are scaled to the data where they are not given
    "noise_variance": "variance of the signal around the mean (default (1.4826 MAD)^2)",
    "clutter_variance": "variance of the clutter (default 100 noise, or the farthest point's squared distance)",
    "clutter_mean": "centre of the clutter (default the median)",
    "prior_mean": "prior mean (default the median)",
    "prior_variance": "prior variance (default 100 noise)",
}
FIT_OPTIONS = "method", "schedule", "damping", "power", "max_iter", "tol"


def add(models):
    """Add the subcommand to the parser."""
    command = models.add_parser(
        "clutter",
        help="the mean of a signal when some points are background clutter",
        description="Fit a mean to data of which some are clutter, by expectation propagation. Variances and means "
        "default to values scaled to the data (robustly, by median and MAD); all are printed.",
    )
    command.add_argument("data", help="a shipped data set (newcomb), a .csv, .npy or .parquet file")
    text = "column name or number; repeat for points in several dimensions"
    command.add_argument("--column", action="append", metavar="NAME", help=text)
    model = command.add_argument_group("model")
    text = f"prior probability that a point is clutter (default {WEIGHT})"
    model.add_argument("--clutter-weight", type=float, default=WEIGHT, metavar="W", help=text)
    for name, text in SETTINGS.items():
        model.add_argument(shared.typed(name), type=float, metavar=name.split("_")[1][0].upper(), help=text)
    fit = shared.iteration(command, max_iter=100, tol=1e-10)
    shared.damping(fit, "(0, 1]")
    fit.add_argument("--schedule", choices=("sequential", "parallel"), default="sequential")
    fit.add_argument("--random-order", type=int, metavar="SEED", help="visit the points in random order")
    shared.output(command, "data, posterior and clutter probabilities")
    command.set_defaults(run=run)


def run(options):
    """Fit, print, save, plot."""
    table = tables.read(options.data, options.column)
    shared.check_output(options)
    x = table.values[:, 0] if table.values.shape[1] == 1 else table.values
    model = settled(x, options)
    settings = {name: getattr(model, name) for name in ("clutter_weight", *SETTINGS)}
    asked = {name: getattr(options, name) for name in FIT_OPTIONS} | {"n_threads": options.threads}
    if options.random_order is not None:
        asked |= {"order": "random", "rng": options.random_order}
    started = time.perf_counter()
    posterior = model.fit(x, **asked)
    seconds = time.perf_counter() - started
    probability = posterior.clutter_probability(x, fitted=options.method == "ep")

    def draw():
        from cavity.plot import clutter_figure

        return clutter_figure(posterior, table.values, probability, table.name, table.columns, table.about.get("unit"))

    return shared.deliver(options, posterior, report(table, settings, posterior, probability, seconds), draw)


def settled(x, options):
    """Return the model: what was asked for, the rest scaled to the data."""
    given = {name: getattr(options, name) for name in SETTINGS if getattr(options, name) is not None}
    return Clutter(clutter_weight=options.clutter_weight, **given).settle(x, keep=("clutter_weight", *given))


def report(table, settings, posterior, probability, seconds):
    """Yield the lines of the printed result."""
    about, unit = table.about, table.about.get("unit", "")
    mean, sd = np.atleast_1d(posterior.mean), np.sqrt(posterior.variance)
    yield f"{about.get('title', table.name)}: {len(table.values)} points, columns {', '.join(table.columns)}"
    yield "model"
    for name, value in settings.items():
        yield f"  {name:<16} {_numbers(value)}"
    yield "posterior"
    digits = max(0, 2 - int(np.floor(np.log10(sd))))  # decimals to the third figure of the sd
    yield f"  mean             {', '.join(f'{m:.{digits}f}' for m in mean)} {unit}".rstrip()
    yield f"  sd               {sd:.6g} {unit}".rstrip()
    yield f"  log evidence     {posterior.log_evidence:.6f} nats"
    if "reference" in about:
        gap = (about["reference"] - mean[0]) / sd
        yield (
            f"  reference        {about['reference']:g} {unit} ({about['reference_source']}): "
            f"{abs(gap):.1f} posterior sd {'above' if gap > 0 else 'below'} the mean"
            + (", too far for chance: a systematic error" if abs(gap) > 5 else "")
        )
    suspects = np.flatnonzero(probability > 0.5)
    suspects = suspects[np.argsort(-probability[suspects], kind="stable")]
    yield f"clutter: {len(suspects)} points are clutter with probability above 1/2"
    for i in suspects[:SHOWN]:
        yield f"  row {i + 1:<6} {_numbers(table.values[i], 12):>14}   probability {probability[i]:.6f}"
    if len(suspects) > SHOWN:
        yield f"  ... and {len(suspects) - SHOWN} more"
    yield "fit"
    done = "converged" if posterior.converged else f"NOT CONVERGED: {posterior.status}"
    yield f"  {posterior.method.upper():<16} {done}, {posterior.n_iter} pass(es), {shared.elapsed(seconds)}"


def _numbers(value, digits=6):
    return ", ".join(f"{number:.{digits}g}" for number in np.atleast_1d(value))
