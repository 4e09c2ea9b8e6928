"""`cavity predict`: predictions of a saved posterior for the rows of a table."""

import csv
import io
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.lib import format as npy

from cavity.base.errors import missing_extra_error
from cavity.base.frames import ROLES_NEEDED_AGAIN
from cavity.base.persistence import open_whole_file
from cavity.base.results import format_count
from cavity.cli import input_tables
from cavity.cli.data_table import list_first
from cavity.cli.fit_commands import check_paths
from cavity.cli.options import COMMON_OPTIONS, DATA_HELP, THREADS_OPTION, Option, command, format_option
from cavity.cli.standard_output import print_error, print_result, write_output
from cavity.models.clutter.posterior import ClutterPosterior
from cavity.models.latent_posterior import Predictions
from cavity.models.mixed.posterior import MixedGLMPosterior
from cavity.models.predictive_densities import predict_class_probabilities
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
    "clutter. Columns are those of the fit, found by their names among others; so are its offset and its exposure, "
    "while weights have no part in predictions. Text that the fit coded as categories is coded alike. Tables are read, "
    "and the output written, block by block: memory does not grow with their length."
)
OUTPUT_ENDINGS = (".npy", ".csv", ".parquet")


@command(
    PREDICT_HELP,
    Option("posterior", None, "the .npz file that --output of `cavity fit` wrote"),
    Option("data", None, DATA_HELP.format("faithful") + "; with the columns of the fit"),
    Option("--columns", "A,B,C", "names or numbers (default those of the fit)"),
    Option("--offset", "COLUMN", "known part of the function (default that of the fit)"),
    Option("--exposure", "COLUMN", "for counts: what their mean is proportional to (default that of the fit)"),
    Option("--output", "FILE", f"the {' or '.join(OUTPUT_ENDINGS)} file to write (default -, standard output as .csv)"),
    Option("--id", "COLUMN", "copy this column to the output, a .csv (posteriors by formula)"),
    input_tables.MISSING_OR_KEEP_OPTION,
    input_tables.TEXT_FILE_OPTIONS,
    THREADS_OPTION,
    *COMMON_OPTIONS,
)
def run(options):
    """Predict block by block; the file appears whole or not at all."""
    options.output = None if options.output == "-" else options.output
    check_paths(options)
    suffix = ".csv" if options.output is None else Path(options.output).suffix
    if options.output is None and options.json:
        raise ValueError("--json needs --output, a file, as the predictions themselves go to standard output")
    if suffix not in OUTPUT_ENDINGS:
        raise ValueError(f"--output: {options.output} must be a {' or '.join(OUTPUT_ENDINGS)} file")
    posterior = load(options.posterior)
    if coding_of(posterior) is not None:
        return predict_by_formula(posterior, options, suffix)
    if options.id is not None:
        raise ValueError("--id is for posteriors by formula; leave it out")
    predictor = predictor_of(posterior, options.posterior)
    names, total = predictor.names, 0.0
    with Threads(resolve_n_threads(options.threads)) as threads:
        rows, offset_names, dropped = open_rows(predictor, options, threads)
        with open_output(options) as file, OUTPUT_WRITERS[suffix](file, rows.n_rows, names) as write:
            for values in map_runs(predict_run, (predictor, offset_names), [rows], threads, grain=1):
                write(values)
                total += float(np.sum(values[:, -1]))
    return report_output(options, names, rows.n_rows, dropped, total)


def report_output(options, names, n_rows, dropped, total=0.0):
    """Print what was written to a file, and how many rows were left out; `total` is the sum of the last column."""
    if options.output is None:
        for note in dropped:
            print_error(f"left out: {note}")
        return 0
    shown = names if len(names) < 4 else [names[0], "...", *names[-2:]]
    lines = [f"{options.output}: {format_count(n_rows, 'row')}, columns {', '.join(shown)}"]
    lines += [f"  left out         {note}" for note in dropped]
    summary = {"command": "predict", "output": options.output, "rows": n_rows, "columns": names}
    summary["left_out"] = dropped
    if names[-1] == LOG_DENSITY:
        summary["mean_log_density"] = total / n_rows
        lines.append(f"  log density      {total / n_rows:.6f} nats per row")
    return print_result(options, lines, lambda: summary)


def coding_of(posterior):
    """Return the coding of the formula of a fit, None if there was no formula."""
    return posterior._coding if isinstance(posterior, MixedGLMPosterior) else getattr(posterior, "coding", None)


def predict_by_formula(posterior, options, suffix):
    """Write the predictions of a posterior by formula, all rows at once; return the exit status."""
    from cavity.cli.formulas import read_new_columns

    if options.columns is not None or options.missing == "keep":
        raise ValueError("--columns and --missing keep have no meaning for a posterior by formula; leave them out")
    if options.id is not None and suffix != ".csv":
        raise ValueError(f"--id: a {suffix} file holds numbers only; write a .csv file")
    columns, arguments, ids, dropped = read_new_columns(posterior, coding_of(posterior), options)
    likelihood = posterior.model.likelihood
    moments = posterior.predict(columns, **arguments)
    names = ["mean", "variance", *list_target_columns(posterior, likelihood, bool(likelihood.n_classes))]
    values = [*moments]
    if likelihood.n_classes:
        values.append(predict_class_probabilities(likelihood, lambda: moments))
    elif len(names) > len(values):
        values.append(posterior.expected(columns, **arguments))
    values = np.column_stack(values)
    typed = {} if ids is None else {"ids": ids, "id_name": options.id}
    with open_output(options) as file, OUTPUT_WRITERS[suffix](file, len(values), names, **typed) as write:
        write(values)
    return report_output(options, names, len(values), dropped)


class StandardOutput:
    """Standard output as a binary file."""

    def write(self, data):
        """Write bytes of UTF-8."""
        write_output(data.decode())

    def writelines(self, lines):
        """Write lines of bytes."""
        self.write(b"".join(lines))


def open_output(options):
    """Return the context of the binary file to write, standard output where none was given."""
    return nullcontext(StandardOutput()) if options.output is None else open_whole_file(options.output)


def predict_run(run, work):
    """Return the predictions of the rows of a run; a task of `map_runs`."""
    predictor, offset_names = work
    return predictor.of(*run.arrays, offset_names)


@dataclass(frozen=True, slots=True)
class Predictor:
    """The predictions of a posterior: names of the output columns, and the function of rows that computes them."""

    names: list
    width: int
    of: object
    gaps: bool = False
    way_out: str = ""  # advice on missing values
    columns: tuple | None = None  # of the fit, if they have names
    roles: dict | None = None  # of columns of the fit
    has_offset: bool = False  # whether the rows of the fit had an offset or an exposure


def predictor_of(posterior, source):
    """Return the Predictor of a posterior; ValueError for one that does not predict."""
    if hasattr(posterior, "responsibilities"):
        return mixture_predictor(posterior)
    if isinstance(posterior, MixedGLMPosterior):
        raise ValueError(f"{source} holds a mixed model without a formula: predict in Python, with its method")
    if isinstance(posterior, Predictions):
        return latent_predictor(posterior)
    if isinstance(posterior, ClutterPosterior):
        width = np.size(posterior.mean)
        probability = posterior.clutter_probability
        return Predictor(["p:clutter"], width, lambda x, names: probability(x if width > 1 else x[:, 0])[:, None])
    raise ValueError(f"{source} holds a {type(posterior).__name__}, which does not predict new rows")


def mixture_predictor(posterior):
    """Return the Predictor of a mixture: responsibilities and log densities."""
    width = posterior.mean.shape[1] if posterior.mean.ndim > 1 else 1
    names = [*(f"r{k + 1}" for k in range(len(posterior.weights))), LOG_DENSITY]
    gaps = getattr(posterior.model, "covariance", None) in ("diag", "spherical")

    def of(rows, offset_names):
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
    further = list_target_columns(posterior, likelihood, classes)

    def of(rows, offset_names):
        X, offset_arguments = rows[:, :width], dict(zip(offset_names, rows[:, width:].T, strict=True))
        moments = posterior.predict(X, **offset_arguments)
        if classes and likelihood is None:
            return np.column_stack([*moments, posterior.predict_proba(X)])
        if classes:
            return np.column_stack([*moments, predict_class_probabilities(likelihood, lambda: moments)])
        return np.column_stack([*moments, posterior.expected(X, **offset_arguments)] if further else moments)

    offset_settings = {"roles": posterior.roles, "has_offset": posterior.has_offset}
    return Predictor(["mean", "variance", *further], width, of, columns=posterior.columns, **offset_settings)


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


def known_columns(predictor, options):
    """Return the columns of offset and exposure by these words: those of the options, or of the fit where none is."""
    typed = {name: getattr(options, name) for name in ROLES_NEEDED_AGAIN if getattr(options, name) is not None}
    if not predictor.has_offset:
        for name in typed:
            raise ValueError(f"{format_option(name)}: {options.posterior} was fitted without")
        return {}
    fitted = {name: value for name, value in (predictor.roles or {}).items() if name in ROLES_NEEDED_AGAIN}
    if not (typed or fitted):
        raise ValueError(f"{options.posterior} was fitted with offsets: give their column with --offset")
    return fitted | typed


def open_rows(predictor, options, threads):
    """Return the checked rows, in blocks of the size of the output, their last columns, and notes on dropped rows."""
    offset_columns = known_columns(predictor, options)
    if options.missing == "keep" and not predictor.gaps:
        raise ValueError("--missing keep is for mixtures of diag or spherical covariances")
    gaps = predictor.gaps and options.missing != "raise"
    choice = dict(fitted=predictor.columns, roles=predictor.roles, also=[*offset_columns.values()])
    X, names, _, notes = input_tables.read_columns(options, gaps, predictor.way_out, **choice)
    if len(names) != predictor.width:
        raise ValueError(
            f"{options.data}: the posterior has {format_count(predictor.width, 'column')}, got {len(names)} "
            f"({list_first(names)}); choose with --columns"
        )
    size = sources.rows_per_block(max(X.n_features, len(predictor.names)))
    rows = sources.open_source(X, options.data, ndim=(2,), block_rows=size)
    rows.summary(threads, missing=gaps)
    return rows, [*offset_columns], [note for note in notes if "missing values" in note]


@contextmanager
def write_npy(file, n_rows, names):
    """Yield a function that appends rows to a .npy file."""
    npy.write_array_header_1_0(file, {"descr": "<f8", "fortran_order": False, "shape": (n_rows, len(names))})
    yield lambda values: file.write(np.ascontiguousarray(values, dtype="<f8"))


@contextmanager
def write_csv(file, n_rows, names, ids=None, id_name=None):
    """Yield a function that appends rows to a .csv file, numbers with all their digits, behind the ids if given."""
    file.write(format_csv_row(names if ids is None else [id_name, *names]))
    if ids is None:
        yield lambda values: file.writelines(f"{','.join(map(repr, row))}\n".encode() for row in values.tolist())
    else:
        yield lambda values: file.writelines(
            format_csv_row([label, *map(repr, row)]) for label, row in zip(ids, values.tolist(), strict=True)
        )


def format_csv_row(cells):
    """Return a line of a .csv file, cells in quotes where they need them."""
    line = io.StringIO()
    csv.writer(line, lineterminator="\n").writerow(cells)
    return line.getvalue().encode()


@contextmanager
def write_parquet(file, n_rows, names):
    """Yield a function that appends rows to a .parquet file."""
    try:
        from pyarrow import Table, parquet, schema
    except ImportError as error:
        raise missing_extra_error("pyarrow", "arrow") from error
    form = schema([(name, "float64") for name in names])
    with parquet.ParquetWriter(file, form) as writer:
        yield lambda values: writer.write_table(Table.from_arrays(list(np.ascontiguousarray(values.T)), schema=form))


OUTPUT_WRITERS = dict(zip(OUTPUT_ENDINGS, (write_npy, write_csv, write_parquet), strict=True))
