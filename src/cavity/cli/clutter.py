"""`cavity fit clutter`: a robust mean with its uncertainty, and which points look like clutter."""

from pathlib import Path

import numpy as np

from cavity.cli import options as shared
from cavity.cli import tables
from cavity.cli.options import FINITE, INDEX, INSIDE, POSITIVE, number
from cavity.models.clutter.model import Clutter
from cavity.models.clutter.settings import WEIGHT

POINTS_LISTED = 20  # most clutter points listed
SETTINGS = "noise_variance", "clutter_variance", "clutter_mean", "prior_mean", "prior_variance"


def add(models):
    """Add the subcommand to the parser."""
    command = models.add_parser(
        "clutter",
        help="the mean of a signal when some points are background clutter",
        description="Fit a mean to data of which some are clutter, by expectation propagation. Variances and means "
        "default to values scaled to the data (robustly, by median and MAD); all are printed.",
    )
    command.add_argument("data", help="a shipped data set (newcomb), a .csv, .npy or .parquet file")
    command.add_argument(
        "--column",
        action="append",
        metavar="NAME",
        help="column name or number; repeat for points in several dimensions",
    )
    model = command.add_argument_group("model")
    words = f"prior probability that a point is clutter (default {WEIGHT})"
    number(model, "--clutter-weight", INSIDE, "W", words, default=WEIGHT)
    number(model, "--noise-variance", POSITIVE, "V", "variance of the signal around the mean (default (1.4826 MAD)^2)")
    words = "variance of the clutter (default 100 noise, or the farthest point's squared distance)"
    number(model, "--clutter-variance", POSITIVE, "V", words)
    number(model, "--clutter-mean", FINITE, "M", "centre of the clutter (default the median)")
    number(model, "--prior-mean", FINITE, "M", "prior mean (default the median)")
    number(model, "--prior-variance", POSITIVE, "V", "prior variance (default 100 noise)")
    fit = shared.iteration(command, max_iter=100, tol=1e-10)
    shared.damping(fit, "(0, 1]")
    fit.add_argument("--schedule", choices=("sequential", "parallel"), default="sequential")
    number(fit, "--random-order", INDEX, "SEED", "visit the points in random order")
    shared.output(command, "data, posterior and clutter probabilities")
    command.set_defaults(run=run)


def run(options):
    """Fit, print, save, plot."""
    values, names, about = tables.read(options.data, options.column)
    shared.check_output(options)
    x = values[:, 0] if values.shape[1] == 1 else values
    model = settled(x, options)
    settings = {name: getattr(model, name) for name in ("clutter_weight", *SETTINGS)}
    given = shared.fit_options(options, "method", "schedule", "damping", "power")
    if options.random_order is not None:
        given |= {"order": "random", "rng": options.random_order}
    posterior, seconds = shared.timed(model.fit, x, **given)
    probability = posterior.clutter_probability(x, fitted=options.method == "ep")

    def draw(plot):
        return plot.clutter_figure(posterior, values, probability, Path(options.data).name, names, about["unit"])

    lines = report(values, names, about, settings, posterior, probability, seconds)
    return shared.deliver(options, posterior, lines, draw)


def settled(x, options):
    """Return the model: what was asked for, the rest scaled to the data."""
    given = {name: getattr(options, name) for name in SETTINGS if getattr(options, name) is not None}
    return Clutter(clutter_weight=options.clutter_weight, **given).settle(x, keep=("clutter_weight", *given))


def report(values, names, about, settings, posterior, probability, seconds):
    """Yield the lines of the printed result."""
    unit = about["unit"]
    mean, sd = np.atleast_1d(posterior.mean), np.sqrt(posterior.variance)
    yield f"{about['title']}: {len(values)} points, columns {', '.join(names)}"
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
    for i in suspects[:POINTS_LISTED]:
        yield f"  row {i + 1:<6} {_numbers(values[i], 12):>14}   probability {probability[i]:.6f}"
    if len(suspects) > POINTS_LISTED:
        yield f"  ... and {len(suspects) - POINTS_LISTED} more"
    yield "fit"
    yield shared.end_line(posterior.method.upper(), posterior, "", seconds)


def _numbers(value, digits=6):
    return ", ".join(f"{each:.{digits}g}" for each in np.atleast_1d(value))
