"""`cavity predict`: responsibilities and log densities of the rows of a table under a saved mixture."""

from pathlib import Path

import numpy as np
from numpy.lib import format as npy

from .. import _blocks
from .._executors import Threads
from ..persistence import load, whole_file
from . import options as shared
from . import tables


def add(commands):
    """Add the command to the parser."""
    command = commands.add_parser(
        "predict",
        help="write what a saved mixture says of the rows of a table",
        description="Write the responsibilities r1 ... rK and the log density of each row, under a posterior that "
        "`cavity fit mixture` or `cavity fit unit-mixture` saved. A .npy file is read, and the output written, block "
        "by block: memory does not grow with their length.",
    )
    command.add_argument("posterior", help="the .npz file that --output of `cavity fit` wrote")
    command.add_argument("data", help="a shipped data set, a .csv or a .npy file, with the columns of the fit")
    command.add_argument("--columns", metavar="A,B,C", help="names or numbers (default all numeric columns)")
    command.add_argument("--output", metavar="FILE", required=True, help="the .npy or .csv file to write")
    shared.threads(command)
    command.set_defaults(run=run)


def run(options):
    """Predict block by block; the file appears whole or not at all."""
    tables.check_paths(options)
    suffix = Path(options.output).suffix
    if suffix not in FORMATS:
        raise ValueError(f"--output: {options.output} must be a {' or '.join(FORMATS)} file")
    posterior = load(options.posterior)
    if not hasattr(posterior, "responsibilities"):
        raise ValueError(f"{options.posterior} holds a {type(posterior).__name__}; predict is for mixtures")
    names = [*(f"r{k + 1}" for k in range(len(posterior.weights))), "log_density"]
    begin, block = FORMATS[suffix]
    total = 0.0
    with Threads(options.threads) as threads:
        rows = open_rows(posterior, options, threads)
        with whole_file(options.output) as file:
            begin(file, rows.n_rows, names)
            for found in _blocks.map_blocks(rows, lambda points: predicted(posterior, points), threads):
                block(file, found)
                total += float(np.sum(found[:, -1]))
    shown = names if len(names) < 4 else [names[0], "...", *names[-2:]]
    print(f"{options.output}: {rows.n_rows} rows, columns {', '.join(shown)}")
    print(f"  log density      {total / rows.n_rows:.6f} nats per row")
    return 0


def open_rows(posterior, options, threads):
    """Return the rows, all numbers checked, in blocks that suit what is written about them."""
    dim = posterior.mean.shape[1] if posterior.mean.ndim > 1 else 1
    gaps = getattr(posterior.model, "covariance", None) in ("diag", "spherical")
    X, names, *_ = tables.matrix(options.data, options.columns, "--columns", gaps)
    if len(names) != dim:
        raise ValueError(
            f"{options.data}: the posterior is of {dim} column(s), got {len(names)} ({tables.some(names)}); "
            "choose with --columns"
        )
    size = _blocks.rows_per_block(max(dim, len(posterior.weights) + 1))
    rows = _blocks.open_source(X, options.data, ndim=(2,), block_rows=size)
    rows.summary(threads, missing=gaps)
    return rows


def predicted(posterior, points):
    """Return the responsibilities and the log density of points, side by side."""
    points = points if posterior.mean.ndim > 1 else points[:, 0]
    return np.column_stack([posterior.responsibilities(points), posterior.log_density(points)])


def begin_npy(file, n_rows, names):
    """Write the header of a .npy file."""
    npy.write_array_header_1_0(file, {"descr": "<f8", "fortran_order": False, "shape": (n_rows, len(names))})


def npy_block(file, found):
    """Append rows to a .npy file."""
    file.write(np.ascontiguousarray(found, dtype="<f8"))


def begin_csv(file, n_rows, names):
    """Write the names of the columns."""
    file.write(f"{','.join(names)}\n".encode())


def csv_block(file, found):
    """Append rows to a .csv file, numbers with all their digits."""
    file.writelines(f"{','.join(map(repr, row))}\n".encode() for row in found.tolist())


FORMATS = {".npy": (begin_npy, npy_block), ".csv": (begin_csv, csv_block)}
