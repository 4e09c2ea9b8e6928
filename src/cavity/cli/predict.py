"""`cavity predict`: what a saved posterior says of the rows of a table."""

import csv
import io
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import numpy as np
from numpy.lib import format as npy

from cavity.base.persistence import whole_file
from cavity.blocks import merge, sources
from cavity.blocks.executors import Threads, threads_of
from cavity.cli import options as shared
from cavity.cli import table, tables
from cavity.models.latent import LatentPosterior, probabilities
from cavity.models.saved import load

LOG_DENSITY = "log_density"


def add(commands):
    """Add the command to the parser."""
    command = commands.add_parser(
        "predict",
        help="write what a saved mixture, Gaussian process or linear model says of the rows of a table",
        description="Under a mixture that `cavity fit mixture` or `cavity fit unit-mixture` saved, responsibilities "
        "r1 ... rK and the log density of each row. Under a Gaussian process of `cavity fit gp` or `cavity fit "
        "streaming-gp`, or a linear model of `cavity fit glm`, mean and variance of the function, and probabilities of "
        "the classes, p: and the name of each, or the expected target. Columns are those of the fit, found by their "
        "names among others; they are scaled as they were in the fit. A .npy file is read, and the output written, "
        "block by block: memory does not grow with their length.",
    )
    command.add_argument("posterior", help="the .npz file that --output of `cavity fit` wrote")
    command.add_argument("data", help="a shipped data set, a .csv, .npy or .parquet file, with the columns of the fit")
    command.add_argument("--columns", metavar="A,B,C", help="names or numbers (default those of the fit)")
    command.add_argument("--output", metavar="FILE", required=True, help="the .npy or .csv file to write")
    shared.add(command, shared.THREADS)
    command.set_defaults(run=run)


def run(options):
    """Predict block by block; the file appears whole or not at all."""
    shared.check_paths(options)
    suffix = Path(options.output).suffix
    if suffix not in FORMATS:
        raise ValueError(f"--output: {options.output} must be a {' or '.join(FORMATS)} file")
    told = told_by(load(options.posterior), options.posterior)
    names = told.names
    begin, block = FORMATS[suffix]
    total = 0.0
    with Threads(threads_of(options.threads)) as threads:
        rows = open_rows(told, options, threads)
        with whole_file(options.output) as file:
            begin(file, rows.n_rows, names)
            for found in merge.map_blocks(rows, told.of, threads):
                block(file, found)
                total += float(np.sum(found[:, -1]))
    shown = names if len(names) < 4 else [names[0], "...", *names[-2:]]
    print(f"{options.output}: {rows.n_rows} rows, columns {', '.join(shown)}")
    if names[-1] == LOG_DENSITY:
        print(f"  log density      {total / rows.n_rows:.6f} nats per row")
    return 0


@dataclass(frozen=True, slots=True)
class Told:
    """What a posterior tells of rows of some width: names of columns, and a function of rows that returns them."""

    names: list
    width: int
    gaps: bool
    way_out: str  # what else to do about missing values
    of: object
    columns: tuple | None = None  # of the fit, if it kept their names


def told_by(posterior, source):
    """Return what a posterior tells; ValueError for one that does not predict."""
    if hasattr(posterior, "responsibilities"):
        return mixture(posterior)
    if isinstance(posterior, LatentPosterior):
        if posterior.has_offset:
            raise ValueError(
                "the posterior was fitted with offsets, which cavity predict does not know: use its predict"
            )
        return latent(posterior)
    raise ValueError(
        f"{source} holds a {type(posterior).__name__}; predict is for mixtures, Gaussian processes and linear models "
        "of cavity fit glm"
    )


def mixture(posterior):
    """Return what a mixture tells."""
    width = posterior.mean.shape[1] if posterior.mean.ndim > 1 else 1
    names = [*(f"r{k + 1}" for k in range(len(posterior.weights))), LOG_DENSITY]
    gaps = getattr(posterior.model, "covariance", None) in ("diag", "spherical")
    return Told(names, width, gaps, tables.GAPS_POSSIBLE, partial(predicted, posterior), posterior.columns)


def predicted(posterior, points):
    """Return the responsibilities and the log density of points under a mixture, side by side."""
    points = points if posterior.mean.ndim > 1 else points[:, 0]
    return np.column_stack([posterior.responsibilities(points), posterior.log_density(points)])


def latent(posterior):
    """Return what a posterior of a function of the columns tells: its moments, and of the target what follows."""
    likelihood, width = posterior.model.likelihood, posterior.n_features
    if width == 0:
        raise ValueError("the posterior has an intercept only: it says the same of every row")
    further = further_columns(likelihood, posterior.classes)

    def of(points):
        moments = posterior.predict(points)
        if likelihood.n_classes:
            return np.column_stack([*moments, probabilities(likelihood, lambda: moments)])
        return np.column_stack([*moments, likelihood.expected(*moments)] if further else moments)

    return Told(["mean", "variance", *further], width, False, "", of, posterior.columns)


def further_columns(likelihood, classes):
    """Return the names of the columns beside the moments: of the classes, or of the target where it has a mean."""
    if likelihood.n_classes:
        return [f"p{k}" for k in range(likelihood.n_classes)] if classes is None else [f"p:{name}" for name in classes]
    try:
        likelihood.expected(np.zeros(1), np.ones(1))
    except (NotImplementedError, ValueError):  # there is no mean of an observation
        return []
    return ["expected"]


def open_rows(told, options, threads):
    """Return the rows, all numbers checked, in blocks that suit what is written about them."""
    choice = {"columns": options.columns, "fitted": told.columns}
    X, names, *_ = tables.matrix(options.data, "--columns", told.gaps, told.way_out, **choice)
    if len(names) != told.width:
        raise ValueError(
            f"{options.data}: the posterior is of {told.width} column(s), got {len(names)} ({table.some(names)}); "
            "choose with --columns"
        )
    size = sources.rows_per_block(max(told.width, len(told.names)))
    rows = sources.open_source(X, options.data, ndim=(2,), block_rows=size)
    rows.summary(threads, missing=told.gaps)
    return rows


def begin_npy(file, n_rows, names):
    """Write the header of a .npy file."""
    npy.write_array_header_1_0(file, {"descr": "<f8", "fortran_order": False, "shape": (n_rows, len(names))})


def npy_block(file, found):
    """Append rows to a .npy file."""
    file.write(np.ascontiguousarray(found, dtype="<f8"))


def begin_csv(file, n_rows, names):
    """Write the names of the columns, in quotes where they need them."""
    line = io.StringIO()
    csv.writer(line, lineterminator="\n").writerow(names)
    file.write(line.getvalue().encode())


def csv_block(file, found):
    """Append rows to a .csv file, numbers with all their digits."""
    file.writelines(f"{','.join(map(repr, row))}\n".encode() for row in found.tolist())


FORMATS = {".npy": (begin_npy, npy_block), ".csv": (begin_csv, csv_block)}
