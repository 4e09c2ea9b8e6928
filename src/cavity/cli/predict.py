"""`cavity predict`: what a saved posterior says of the rows of a table."""

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
from cavity.runs.executors import Threads, resolve_n_threads
from cavity.runs.passes import map_runs
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
    told = predictor_of(load(options.posterior), options.posterior)
    names, total = told.names, 0.0
    with Threads(resolve_n_threads(options.threads)) as threads:
        rows, dropped = open_rows(told, options, threads)
        with whole_file(options.output) as file, OUTPUT_WRITERS[suffix](file, rows.n_rows, names) as write:
            for found in map_runs(predict_run, told, [rows], threads, grain=1):
                write(found)
                total += float(np.sum(found[:, -1]))
    shown = names if len(names) < 4 else [names[0], "...", *names[-2:]]
    lines = [f"{options.output}: {counted(rows.n_rows, 'row')}, columns {', '.join(shown)}"]
    lines += [f"  left out         {each}" for each in dropped]
    known = {"command": "predict", "output": options.output, "rows": rows.n_rows, "columns": names, "left_out": dropped}
    if names[-1] == LOG_DENSITY:
        known["mean_log_density"] = total / rows.n_rows
        lines.append(f"  log density      {total / rows.n_rows:.6f} nats per row")
    return print_result(options, lines, lambda: known)


def predict_run(run, told):
    """A task: what a posterior tells of the rows of a run."""
    return told.of(*run.arrays)


@dataclass(frozen=True, slots=True)
class Predictor:
    """What a posterior tells of rows of some width: names of columns, and a function of rows that returns them."""

    names: list
    width: int
    of: object
    gaps: bool = False
    way_out: str = ""  # what else to do about missing values
    columns: tuple | None = None  # of the fit, if it kept their names
    offset: str | bool = False  # whether rows have one behind their columns; its name in the fit, if that is known


def predictor_of(posterior, source):
    """Return what a posterior tells; ValueError for one that does not predict."""
    if hasattr(posterior, "responsibilities"):
        return mixture_predictor(posterior)
    if isinstance(posterior, MixedGLMPosterior):
        raise ValueError(f"{source} holds a mixed model, whose rows have groups: predict in Python, with its method")
    if isinstance(posterior, Predictions):
        return latent_predictor(posterior)
    if isinstance(posterior, ClutterPosterior):
        width = np.size(posterior.mean)
        return Predictor(
            ["p:clutter"], width, lambda x: posterior.clutter_probability(x if width > 1 else x[:, 0])[:, None]
        )
    raise ValueError(f"{source} holds a {type(posterior).__name__}, which says nothing about new rows")


def mixture_predictor(posterior):
    """Return what a mixture tells."""
    width = posterior.mean.shape[1] if posterior.mean.ndim > 1 else 1
    names = [*(f"r{k + 1}" for k in range(len(posterior.weights))), LOG_DENSITY]
    gaps = getattr(posterior.model, "covariance", None) in ("diag", "spherical")

    def of(rows):
        points = rows if posterior.mean.ndim > 1 else rows[:, 0]
        return np.column_stack([posterior.responsibilities(points), posterior.log_density(points)])

    return Predictor(names, width, of, gaps, input_tables.MISSING_VALUES_HINT, posterior.columns)


def latent_predictor(posterior):
    """Return what a posterior of a function of the columns tells: its moments, and of the target what follows."""
    likelihood = getattr(posterior.model, "likelihood", None)
    width = posterior.n_features
    if width == 0:
        raise ValueError("the posterior has an intercept only: it says the same of every row")
    logistic = isinstance(posterior, LogisticRegressionPosterior)
    classes = logistic if likelihood is None else bool(likelihood.n_classes)
    offset = (posterior.roles or {}).get("offset", True) if posterior.has_offset else False
    further = list_target_columns(posterior, likelihood, classes)

    def of(rows):
        X, known = rows[:, :width], {"offset": rows[:, width]} if rows.shape[1] > width else {}
        moments = posterior.predict(X, **known)
        if classes and likelihood is None:
            return np.column_stack([*moments, posterior.predict_proba(X)])
        if classes:
            return np.column_stack([*moments, predict_class_probabilities(likelihood, lambda: moments)])
        return np.column_stack([*moments, posterior.expected(X, **known)] if further else moments)

    return Predictor(["mean", "variance", *further], width, of, columns=posterior.columns, offset=offset)


def list_target_columns(posterior, likelihood, classes):
    """Return the names of the columns beside the moments: of the classes, or of the target where it has a mean."""
    if classes:
        known = posterior.classes
        count = 2 if likelihood is None else likelihood.n_classes
        return [f"p{k}" for k in range(count)] if known is None else [f"p:{name}" for name in known]
    if likelihood is None:
        return ["expected"]
    try:
        likelihood.expected(np.zeros(1), np.ones(1))
    except (NotImplementedError, ValueError):  # there is no mean of an observation
        return []
    return ["expected"]


def open_rows(told, options, threads):
    """Return the rows, all numbers checked, in blocks that suit what is written about them; and which were dropped."""
    offset = options.offset or (told.offset if isinstance(told.offset, str) else None)
    if told.offset and offset is None:
        raise ValueError(f"{options.posterior} was fitted with offsets: say --offset, the column that holds them")
    if offset is not None and not told.offset:
        raise ValueError(f"--offset: {options.posterior} was fitted without")
    also = [] if offset is None else [offset]
    if options.missing == "keep" and not told.gaps:
        raise ValueError("--missing keep is for mixtures of diag or spherical covariances")
    gaps = told.gaps and options.missing != "error"
    X, names, _, notes = input_tables.read_columns(options, gaps, told.way_out, fitted=told.columns, also=also)
    if len(names) != told.width:
        raise ValueError(
            f"{options.data}: the posterior has {counted(told.width, 'column')}, got {len(names)} "
            f"({list_first(names)}); choose with --columns"
        )
    size = sources.rows_per_block(max(X.n_features, len(told.names)))
    rows = sources.open_source(X, options.data, ndim=(2,), block_rows=size)
    rows.summary(threads, missing=gaps)
    return rows, [note for note in notes if "missing values" in note]


@contextmanager
def write_npy(file, n_rows, names):
    """Give what appends rows to a .npy file."""
    npy.write_array_header_1_0(file, {"descr": "<f8", "fortran_order": False, "shape": (n_rows, len(names))})
    yield lambda found: file.write(np.ascontiguousarray(found, dtype="<f8"))


@contextmanager
def write_csv(file, n_rows, names):
    """Give what appends rows to a .csv file, names in quotes where they need them, numbers with all their digits."""
    line = io.StringIO()
    csv.writer(line, lineterminator="\n").writerow(names)
    file.write(line.getvalue().encode())
    yield lambda found: file.writelines(f"{','.join(map(repr, row))}\n".encode() for row in found.tolist())


@contextmanager
def write_parquet(file, n_rows, names):
    """Give what appends rows to a .parquet file."""
    try:
        from pyarrow import Table, parquet, schema
    except ImportError as error:
        raise missing_extra("pyarrow", "arrow") from error
    form = schema([(name, "float64") for name in names])
    with parquet.ParquetWriter(file, form) as writer:
        yield lambda found: writer.write_table(Table.from_arrays(list(np.ascontiguousarray(found.T)), schema=form))


OUTPUT_WRITERS = dict(zip(OUTPUT_ENDINGS, (write_npy, write_csv, write_parquet), strict=True))
