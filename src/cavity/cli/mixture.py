"""`cavity fit mixture`: groups in a table of numbers, with their shapes, and how many there seem to be."""

import argparse
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from cavity.cli import input_tables
from cavity.cli.data_table import format_digits, list_first
from cavity.cli.fit_commands import collect_ascent_options, collect_typed, fit_command, report_ascent, time_call
from cavity.cli.options import ASCENT_OPTIONS, CHECKPOINT_OPTIONS, Number, Option, OptionGroup, format_option, make_flag
from cavity.models.mixture.component_moves import OCCUPIED_ROWS
from cavity.models.mixture.factors import is_full
from cavity.models.mixture.model import COVARIANCE_KINDS, WEIGHT_KINDS, GaussianMixture
from cavity.models.mixture.selection import COMPONENTS_TRIED, select_components
from cavity.runs.executors import Threads, resolve_n_threads
from cavity.sources import sources

MAX_RANGE_LENGTH = 1000  # numbers of components in a range
MAX_COLUMNS_LISTED = 12  # columns printed with their correlations, and components
SCALE_HELP = "inverse scale, its diagonal: one number, or one for each column (default the data's covariance)"
PRIOR_OPTIONS = (
    Number("--weight-concentration-prior", "positive", "A", "of the weights (default 1/K)"),
    Number("--mean-prior", "finite", "M1,M2", "for each column (default the data's mean)", several=True),
    Number("--mean-precision-prior", "positive", "B", "in points (default 1)", 1.0),
    Number("--degrees-of-freedom-prior", "positive", "NU", "in points (default D)"),
    Number("--covariance-prior", "positive", "V1,V2", SCALE_HELP, several=True),
)


def parse_components(text):
    """Return the numbers of components in "3" or "2-8"."""
    low, dash, high = text.partition("-")
    try:
        counts = range(int(low), int(high if dash else low) + 1)
    except ValueError:
        counts = range(0)
    if not counts or counts[0] < 1:
        raise argparse.ArgumentTypeError(f"expected a number from 1 or a range like 2-8, got {text!r}")
    if counts[-1] - counts[0] >= MAX_RANGE_LENGTH:
        raise argparse.ArgumentTypeError(f"expected a range of at most {MAX_RANGE_LENGTH} numbers, got {text!r}")
    return tuple(counts)


@dataclass(frozen=True, slots=True)
class PointTable:
    """The data as `fit` takes them, with names, title, unit and notes."""

    X: object
    names: list
    title: str
    unit: str
    notes: list

    def labels(self):
        """Return labels of the columns, with their unit."""
        names = [f"column {name}" if name.isdigit() else name for name in self.names]
        return [f"{name} [{self.unit}]" if self.unit else name for name in names]


COMPONENTS_HELP = f"a number, or a range to choose from (default {COMPONENTS_TRIED[0]}-{COMPONENTS_TRIED[-1]})"
MODEL_OPTIONS = OptionGroup(
    "model",
    Option("--components", "K", COMPONENTS_HELP, type=parse_components, default=COMPONENTS_TRIED),
    Option("--covariance", COVARIANCE_KINDS, "missing values need diag or spherical", "full"),
    Option("--weights", WEIGHT_KINDS, default="dirichlet"),
    *PRIOR_OPTIONS,
)
MOVES_OPTION = make_flag("--moves", "merge and empty components where that raises the ELBO")
COLUMNS_OPTION = Option("--columns", "A,B,C", "names or numbers (default all numeric columns)")
DATA_OPTIONS = (COLUMNS_OPTION, CHECKPOINT_OPTIONS, input_tables.MISSING_OR_KEEP_OPTION, input_tables.TEXT_FILE_OPTIONS)
PLOT_CONTENT = "points, components, responsibilities and ELBO"


@fit_command(
    "faithful",
    PLOT_CONTENT,
    *DATA_OPTIONS,
    MODEL_OPTIONS,
    max_iter=1000,
    tol=1e-10,
    fit=[*ASCENT_OPTIONS, MOVES_OPTION],
)
def fit(options):
    """Fit a mixture of Gaussians by mean field.

    Of several numbers of components the one with the largest ELBO wins. Priors that are not given scale with the data,
    which need no scaling themselves.
    """
    settings = collect_ascent_options(options) | {"moves": options.moves}
    problem = read(options)
    model = model_of(options, len(problem.names))
    selection, seconds = time_call(select_components, model, problem.X, options.components, **settings)
    posterior = replace(selection.best, columns=tuple(problem.names))
    plot_arguments = {"X": problem.X, "names": problem.labels(), "title": problem.title, "trace": True}
    return posterior, report(problem, selection, seconds), plot_arguments


def read(options):
    """Return the data; those of a .npy file are not read into memory."""
    gaps = not is_full(options.covariance)
    if options.missing == "keep" and not gaps:
        raise ValueError(f"--missing keep needs --covariance diag or spherical, got {options.covariance}")
    X, names, description, notes = input_tables.read_columns(options, gaps and options.missing != "raise")
    rows = sources.open_source(X, "the data", ndim=(2,))
    with Threads(resolve_n_threads(options.threads)) as threads:
        low, high, *_ = rows.summary(threads, missing=True)  # `fit` reports missing values
    varied = np.flatnonzero(low < high)  # both are nan for columns without a value
    if len(varied) < len(names):
        constant = [name for d, name in enumerate(names) if d not in varied]
        if options.columns is not None and options.covariance_prior is None and options.covariance != "spherical":
            raise ValueError(
                f"{options.data}: column {constant[0]!r} has one value only; leave it out of --columns, or give "
                "--covariance-prior"
            )
        if options.columns is None and len(varied):
            X, names = rows.columns(varied), [names[d] for d in varied]
            notes = notes + [f"{name} (one value)" for name in constant]
    return PointTable(X, names, description.get("title", Path(options.data).name), description.get("unit", ""), notes)


def model_of(options, n_features):
    """Return the model that the options describe."""
    priors = collect_typed(options, PRIOR_OPTIONS)
    for name in ("mean_prior", "covariance_prior"):
        values = priors.get(name, [0.0])
        if len(values) not in (1, n_features):
            expected = f"one number, or one for each of the {n_features} columns"
            raise ValueError(f"{format_option(name)} takes {expected}, got {len(values)}")
        if name in priors:
            priors[name] = np.broadcast_to(values, n_features)
    if "covariance_prior" in priors:
        scale = priors["covariance_prior"]
        priors["covariance_prior"] = {"diag": scale, "spherical": scale[0]}.get(options.covariance, np.diag(scale))
    if options.covariance == "spherical" and len(options.covariance_prior or [0]) > 1:
        raise ValueError("--covariance-prior of spherical covariances is one number for all columns")
    return GaussianMixture(options.components[0], covariance=options.covariance, weights=options.weights, **priors)


def report(problem, selection, seconds):
    """Yield the lines of the printed result."""
    best = selection.best
    yield f"{problem.title}: {best.n_samples:.15g} points, columns {', '.join(problem.names)}"
    if problem.notes:
        yield f"  left out         {', '.join(problem.notes)}"
    if len(selection.posteriors) > 1:
        yield "number of components"
        yield from selection.rows()
    yield from report_model(best.model)
    yield from report_components(problem, best)
    yield from report_ascent(best, selection.posteriors, seconds)


def report_model(model):
    """Yield the lines of the model."""
    concentration = model.weight_concentration_prior
    shown = list_first([f"{mean:.6g}" for mean in model.mean_prior], MAX_COLUMNS_LISTED)
    yield "model"
    yield f"  covariance       {model.covariance}, prior worth {format_points(model.degrees_of_freedom_prior)}"
    yield f"  mean             prior {shown}, worth {format_points(model.mean_precision_prior)}"
    yield f"  weights          {model.weights}, concentration {concentration or 1.0 / model.n_components:.6g}"


def format_points(count):
    """Format a number of points."""
    return f"{count:g} point{'s' if count != 1 else ''}"


def report_components(problem, posterior):
    """Yield the lines of the components with points, by decreasing weight."""
    occupied = np.flatnonzero(posterior.counts > OCCUPIED_ROWS)
    occupied = occupied[np.argsort(-posterior.weights[occupied], kind="stable")]
    width = max(10, *(len(name) for name in problem.names[:MAX_COLUMNS_LISTED]))
    correlated = len(problem.names) > 1 and is_full(posterior.model.covariance)
    yield f"components (mean, sd{', correlations' if correlated else ''}{f'; {problem.unit}' if problem.unit else ''})"
    for k in occupied[:MAX_COLUMNS_LISTED]:
        yield f"  {k + 1:<4} weight {posterior.weights[k]:.4f}, {posterior.counts[k]:.2f} points"
        covariance = posterior.component_covariances()[k]
        sd = np.sqrt(np.diag(covariance))
        correlation = covariance / np.outer(sd, sd)
        for d, name in enumerate(problem.names[:MAX_COLUMNS_LISTED]):
            mean = format_digits(posterior.mean[k, d], sd[d] / np.sqrt(posterior.counts[k]))
            row = "".join(f" {value:6.2f}" for value in correlation[d, :d]) if correlated else ""
            yield f"       {name:<{width}} {mean:>12} {sd[d]:>10.4g} {row}".rstrip()
        if len(problem.names) > MAX_COLUMNS_LISTED:
            yield f"       ... and {len(problem.names) - MAX_COLUMNS_LISTED} more columns"
    if len(occupied) > MAX_COLUMNS_LISTED:
        yield f"  ... and {len(occupied) - MAX_COLUMNS_LISTED} more"
    empty = len(posterior.counts) - len(occupied)
    if empty:
        yield f"  {empty} without points"
