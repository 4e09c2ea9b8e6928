"""`cavity predict`: predictions of a saved posterior for the rows of a table."""

import csv
import io
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.lib import format as npy

from cavity.base.errors import missing_extra
from cavity.base.persistence import whole_file
from cavity.base.results import counted
from cavity.cli import input_tables
from cavity.cli.data_table import list_first
from cavity.cli.fit_commands import check_paths
from cavity.cli.options import COMMON_OPTIONS, DATA_HELP, THREADS_OPTION, Option, command
from cavity.cli.standard_output import print_result
from cavity.models.clutter.posterior import ClutterPosterior
from cavity.models.latent_posterior import Predictions, predict_class_probabilities
from cavity.models.mixed.posterior import MixedGLMPosterior
from cavity.models.regression.logistic import LogisticRegressionPosterior
from cavity.models.saved import load
from cavity.runs.executors import Threads, threads_of
from cavity.runs.runs import map_runs
from cavity.sources import sources

LOG_DENSITY = "log_density"


PREDICT_HELP = (
    "Under a mixture: responsibilities r1 ... rK and the log density of each row. Under a Gaussian "
    "process, a linear model or a regression: mean and variance of the function, and probabilities of the classes, "
    "p: and the name of each, or the expected target. Under `cavity fit clutter`: the probability that the row is "
    "clutter. Columns are those of the fit, found by their names among others; so are its offsets. Tables are "
    "read, and the output written, block by block: memory does not grow with their length."
)
OUTPUT_ENDINGS = (".npy", ".csv", ".parquet")


@command(
    PREDICT_HELP,
    Option("posterior", None, "the .npz file that --output of `cavity fit` wrote"),
    Option("data", None, DATA_HELP.format("faithful") + "; with the columns of the fit"),
    Option("--columns", "A,B,C", "names or numbers (default those of the fit)"),
    Option("--offset", "COLUMN", "known part of the function (default that of the fit)"),
    Option("--output", "FILE", f"the {' or '.join(OUTPUT_ENDINGS)} file to write", required=True),
    input_tables.MISSING_OR_KEEP_OPTION,
    input_tables.TEXT_FILE_OPTIONS,
    THREADS_OPTION,
    *COMMON_OPTIONS,
)
def run(options):
    """Predict block by block; the file appears whole or not at all."""
    check_paths(options)
    suffix = Path(options.output).suffix
    if suffix not in OUTPUT_ENDINGS:
        raise ValueError(f"--output: {options.output} must be a {' or '.join(OUTPUT_ENDINGS)} file")
    predictor = predictor_of(load(options.posterior), options.posterior)
    names, total = predictor.names, 0.0
    with Threads(threads_of(options.threads)) as threads:
        rows, dropped = open_rows(predictor, options, threads)
        with whole_file(options.output) as file, OUTPUT_WRITERS[suffix](file, rows.n_rows, names) as write:
            for values in map_runs(predict_run, predictor, [rows], threads, grain=1):
                write(values)
                total += float(np.sum(values[:, -1]))
    shown = names if len(names) < 4 else [names[0], "...", *names[-2:]]
    lines = [f"{options.output}: {counted(rows.n_rows, 'row')}, columns {', '.join(shown)}"]
    lines += [f"  left out         {note}" for note in dropped]
    summary = {"command": "predict", "output": options.output, "rows": rows.n_rows, "columns": names}
    summary["left_out"] = dropped
    if names[-1] == LOG_DENSITY:
        summary["mean_log_density"] = total / rows.n_rows
        lines.append(f"  log density      {total / rows.n_rows:.6f} nats per row")
    return print_result(options, lines, lambda: summary)


def predict_run(run, predictor):
    """Return the predictions of the rows of a run; a task of `map_runs`."""
    return predictor.of(*run.arrays)


@dataclass(frozen=True, slots=True)
class Predictor:
    """The predictions of a posterior: names of the output columns, and the function of rows that computes them."""

    names: list
    width: int
    of: object
    gaps: bool = False
    way_out: str = ""  # advice on missing values
    columns: tuple | None = None  # of the fit, if they have names
    offset: str | bool = False  # whether rows have one as last column, or its name in the fit


def predictor_of(posterior, source):
    """Return the Predictor of a posterior; ValueError for one that does not predict."""
    if hasattr(posterior, "responsibilities"):
        return mixture_predictor(posterior)
    if isinstance(posterior, MixedGLMPosterior):
        raise ValueError(f"{source} holds a mixed model, whose rows have groups: predict in Python, with its method")
    if isinstance(posterior, Predictions):
        return latent_predictor(posterior)
    if isinstance(posterior, ClutterPosterior):
        width = np.size(posterior.mean)
        probability = posterior.clutter_probability
        return Predictor(["p:clutter"], width, lambda x: probability(x if width > 1 else x[:, 0])[:, None])
    raise ValueError(f"{source} holds a {type(posterior).__name__}, which does not predict new rows")


def mixture_predictor(posterior):
    """Return the Predictor of a mixture: responsibilities and log densities."""
    width = posterior.mean.shape[1] if posterior.mean.ndim > 1 else 1
    names = [*(f"r{k + 1}" for k in range(len(posterior.weights))), LOG_DENSITY]
    gaps = getattr(posterior.model, "covariance", None) in ("diag", "spherical")

    def of(rows):
        points = rows if posterior.mean.ndim > 1 else rows[:, 0]
        return np.column_stack([posterior.responsibilities(points), posterior.log_density(points)])

    return Predictor(names, width, of, gaps, input_tables.MISSING_VALUES_HINT, posterior.columns)


def latent_predictor(posterior):
    """Return the Predictor of a latent function: its moments, and the class probabilities or the expected target."""
    likelihood = getattr(posterior.model, "likelihood", None)
    width = posterior.n_features
    if width == 0:
        raise ValueError("the posterior has an intercept only: its prediction is the same for every row")
    logistic = isinstance(posterior, LogisticRegressionPosterior)
    classes = logistic if likelihood is None else bool(likelihood.n_classes)
    offset = (posterior.roles or {}).get("offset", True) if posterior.has_offset else False
    further = list_target_columns(posterior, likelihood, classes)

    def of(rows):
        X, offset_arguments = rows[:, :width], {"offset": rows[:, width]} if rows.shape[1] > width else {}
        moments = posterior.predict(X, **offset_arguments)
        if classes and likelihood is None:
            return np.column_stack([*moments, posterior.predict_proba(X)])
        if classes:
            return np.column_stack([*moments, predict_class_probabilities(likelihood, lambda: moments)])
        return np.column_stack([*moments, posterior.expected(X, **offset_arguments)] if further else moments)

    return Predictor(["mean", "variance", *further], width, of, columns=posterior.columns, offset=offset)


def list_target_columns(posterior, likelihood, classes):
    """Return the names of the output columns after the moments: classes, or the expected target if it exists."""
    if classes:
        classes = posterior.classes
        count = 2 if likelihood is None else likelihood.n_classes
        return [f"p{k}" for k in range(count)] if classes is None else [f"p:{name}" for name in classes]
    if likelihood is None:
        return ["expected"]
    try:
        likelihood.expected(np.zeros(1), np.ones(1))
    except (NotImplementedError, ValueError):  # there is no mean of an observation
        return []
    return ["expected"]


def open_rows(predictor, options, threads):
    """Return the checked rows, in blocks of the size of the output, and notes on dropped rows."""
    offset = options.offset or (predictor.offset if isinstance(predictor.offset, str) else None)
    if predictor.offset and offset is None:
        raise ValueError(f"{options.posterior} was fitted with offsets: give their column with --offset")
    if offset is not None and not predictor.offset:
        raise ValueError(f"--offset: {options.posterior} was fitted without")
    also = [] if offset is None else [offset]
    if options.missing == "keep" and not predictor.gaps:
        raise ValueError("--missing keep is for mixtures of diag or spherical covariances")
    gaps = predictor.gaps and options.missing != "raise"
    choice = dict(fitted=predictor.columns, also=also)
    X, names, _, notes = input_tables.read_columns(options, gaps, predictor.way_out, **choice)
    if len(names) != predictor.width:
        raise ValueError(
            f"{options.data}: the posterior has {counted(predictor.width, 'column')}, got {len(names)} "
            f"({list_first(names)}); choose with --columns"
        )
    size = sources.rows_per_block(max(X.n_features, len(predictor.names)))
    rows = sources.open_source(X, options.data, ndim=(2,), block_rows=size)
    rows.summary(threads, missing=gaps)
    return rows, [note for note in notes if "missing values" in note]


@contextmanager
def write_npy(file, n_rows, names):
    """Yield a function that appends rows to a .npy file."""
    npy.write_array_header_1_0(file, {"descr": "<f8", "fortran_order": False, "shape": (n_rows, len(names))})
    yield lambda values: file.write(np.ascontiguousarray(values, dtype="<f8"))


@contextmanager
def write_csv(file, n_rows, names):
    """Yield a function that appends rows to a .csv file, numbers with all their digits."""
    line = io.StringIO()
    csv.writer(line, lineterminator="\n").writerow(names)
    file.write(line.getvalue().encode())
    yield lambda values: file.writelines(f"{','.join(map(repr, row))}\n".encode() for row in values.tolist())


@contextmanager
def write_parquet(file, n_rows, names):
    """Yield a function that appends rows to a .parquet file."""
    try:
        from pyarrow import Table, parquet, schema
    except ImportError as error:
        raise missing_extra("pyarrow", "arrow") from error
    form = schema([(name, "float64") for name in names])
    with parquet.ParquetWriter(file, form) as writer:
        yield lambda values: writer.write_table(Table.from_arrays(list(np.ascontiguousarray(values.T)), schema=form))


OUTPUT_WRITERS = dict(zip(OUTPUT_ENDINGS, (write_npy, write_csv, write_parquet), strict=True))
