"""`cavity fit clutter`: a robust mean with its uncertainty, and which points look like clutter."""

from pathlib import Path

import numpy as np

from cavity.cli import fit_commands, input_tables
from cavity.cli.fit_commands import collect_site_options, collect_typed, fit_command, format_numbers
from cavity.cli.options import Number, Option, OptionGroup, make_site_options
from cavity.models.clutter.defaults import DEFAULT_CLUTTER_WEIGHT
from cavity.models.clutter.model import Clutter

MAX_POINTS_LISTED = 20
WEIGHT_HELP = f"prior probability that a point is clutter (default {DEFAULT_CLUTTER_WEIGHT})"
CLUTTER_VARIANCE = "variance of the clutter (default 100 noise, or the farthest point's squared distance)"
MODEL_OPTIONS = (
    Number("--clutter-weight", "between 0 and 1", "W", WEIGHT_HELP, DEFAULT_CLUTTER_WEIGHT),
    Number("--noise-variance", "positive", "V", "variance of the signal around the mean (default (1.4826 MAD)^2)"),
    Number("--clutter-variance", "positive", "V", CLUTTER_VARIANCE),
    Number("--clutter-mean", "finite", "M", "centre of the clutter (default the median)"),
    Number("--prior-mean", "finite", "M", "prior mean (default the median)"),
    Number("--prior-variance", "positive", "V", "prior variance (default 100 noise)"),
)
COLUMN_HELP = "column name or number; repeat for points in several dimensions"
COLUMN_OPTION = Option("--column", "NAME", COLUMN_HELP, action="append")
VISIT_ORDER = Number("--random-order", "a whole number from 0", "SEED", "visit the points in random order")
SITE_OPTIONS = (*make_site_options("(0, 1]", "sequential", "parallel"), VISIT_ORDER)
DATA_OPTIONS = (COLUMN_OPTION, *input_tables.READING_OPTIONS, OptionGroup("model", *MODEL_OPTIONS))
PLOT_CONTENT = "data, posterior and clutter probabilities"


@fit_command("newcomb", PLOT_CONTENT, *DATA_OPTIONS, max_iter=100, tol=1e-10, fit=SITE_OPTIONS)
def fit(options):
    """Fit a mean to data of which some are clutter, by expectation propagation.

    Variances and means default to values scaled to the data (robustly, by median and MAD); all are printed.
    """
    values, names, notes = input_tables.read_points(options)
    x = values[:, 0] if values.shape[1] == 1 else values
    typed = collect_typed(options, MODEL_OPTIONS)
    model = Clutter(**typed).with_defaults(x, keep=typed)  # the rest is scaled to the data
    order = {} if options.random_order is None else {"order": "random", "rng": options.random_order}
    posterior, seconds = fit_commands.time_call(model.fit, x, **collect_site_options(options), **order)
    probability = posterior.clutter_probability(x, fitted=options.method == "ep")
    labels = [f"{name} [{notes['unit']}]" if notes["unit"] else name for name in names]
    plot_arguments = {"X": x, "names": labels, "title": Path(options.data).name}
    return posterior, report(values, names, notes, model, posterior, probability, seconds), plot_arguments


def report(values, names, notes, model, posterior, probability, seconds):
    """Yield the lines of the printed result."""
    unit = notes["unit"]
    mean, sd = np.atleast_1d(posterior.mean), np.sqrt(posterior.variance)
    yield f"{notes['title']}: {len(values)} points, columns {', '.join(names)}"
    yield "model"
    for number in MODEL_OPTIONS:
        yield f"  {number.name:<16} {format_numbers(getattr(model, number.name))}"
    yield "posterior"
    digits = max(0, 2 - int(np.floor(np.log10(sd))))  # decimals to the third figure of the sd
    yield f"  mean             {', '.join(f'{m:.{digits}f}' for m in mean)} {unit}".rstrip()
    yield f"  sd               {sd:.6g} {unit}".rstrip()
    yield f"  log evidence     {posterior.log_evidence:.6f} nats"
    if "reference" in notes:
        gap = (notes["reference"] - mean[0]) / sd
        yield (
            f"  reference        {notes['reference']:g} {unit} ({notes['reference_source']}): "
            f"{abs(gap):.1f} posterior sd {'above' if gap > 0 else 'below'} the mean"
            + (", too far for chance: a systematic error" if abs(gap) > 5 else "")
        )
    suspects = np.flatnonzero(probability > 0.5)
    suspects = suspects[np.argsort(-probability[suspects], kind="stable")]
    yield f"clutter: {len(suspects)} points are clutter with probability above 1/2"
    for i in suspects[:MAX_POINTS_LISTED]:
        yield f"  row {i + 1:<6} {format_numbers(values[i], 12):>14}   probability {probability[i]:.6f}"
    if len(suspects) > MAX_POINTS_LISTED:
        yield f"  ... and {len(suspects) - MAX_POINTS_LISTED} more"
    yield from fit_commands.report_end(posterior.method.upper(), posterior, seconds)
