"""A probit regression on a Parquet file larger than memory: peak memory, and a pass beside computing and reading alone.

`python benchmarks/stories/glm_file.py --rows 100000000`

Writes the rows, 20 columns and a label, to a temporary folder (16 GB for 1e8). One process fits the file by EP with its
sites in scratch files, one reads the file once and does nothing with it, one fits as many of the rows in memory as fit
well (1e7), all with one thread. A pass over the file should take no longer than the larger of the other two.
"""

import argparse
import sys
import tempfile
import time
import warnings
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))  # of the benchmarks
from processes import printed, resident

import cavity
from cavity.sources import scratch
from cavity.sources.read_ahead import iterate_blocks

COLUMNS = 20
GROUP = 1 << 17  # rows written at a time, a row group
PASSES, WARM_UP = 4, 2
IN_MEMORY = 10**7  # most rows of the fit in memory
MODEL = cavity.GLM("probit", prior_variance=1.0, intercept=False)


def write(path, rows):
    """Write draws of a probit regression, a row group at a time."""
    import pyarrow
    from pyarrow import parquet

    rng = np.random.default_rng(0)
    weights = 0.3 * rng.normal(size=COLUMNS)
    schema = pyarrow.schema([*((f"x{j}", pyarrow.float64()) for j in range(COLUMNS)), ("y", pyarrow.int8())])
    with parquet.ParquetWriter(path, schema, use_dictionary=False) as file:
        for start in range(0, rows, GROUP):
            X = rng.normal(size=(min(GROUP, rows - start), COLUMNS))
            X[:, 0] = 1.0
            y = (X @ weights + rng.normal(size=len(X)) > 0).astype(np.int8)
            file.write_table(pyarrow.table([*X.T, y], schema=schema))


def seconds_a_pass(X, y):
    """Fit a few sweeps; return the seconds of the fastest of the last ones."""
    stamps = []

    def callback(event):
        if event.stage == "fit":
            stamps.append(time.perf_counter())
        return len(stamps) >= WARM_UP + PASSES

    with warnings.catch_warnings():
        warnings.simplefilter("ignore", cavity.ConvergenceWarning)
        MODEL.fit(X, y, tol=0.0, callback=callback, n_threads=1)
    return float(np.diff(stamps)[WARM_UP - 1 :].min())


def run(path, label):
    """Print what one process has measured: rows, seconds a pass and peak memory in MB."""
    table = cavity.source(path)
    n = table.n_rows
    if label == "file":
        scratch.MOST_IN_MEMORY = min(scratch.MOST_IN_MEMORY, n - 1)  # a short run shows what a long one does
        seconds = seconds_a_pass(path, "y")
    elif label == "reading":
        X, start = table.without(["y"]), time.perf_counter()
        for _ in iterate_blocks(X, 1 << 15):
            pass
        seconds = time.perf_counter() - start
    else:
        n = min(n, IN_MEMORY)
        seconds = seconds_a_pass(table.without(["y"]).rows(0, n), table.column("y").rows(0, n))
    print(n, seconds, resident())


def main():
    """Write the file, start the processes, print the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rows", type=int, default=10**8)
    parser.add_argument("--folder", help="where to write the file; a temporary folder by default")
    parser.add_argument("--run", nargs=2, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.run:
        run(*options.run)
        return
    with tempfile.TemporaryDirectory(dir=options.folder) as folder:
        path = Path(folder) / "rows.parquet"
        write(path, options.rows)
        size = path.stat().st_size
        result = {
            label: [float(part) for part in printed(__file__, "--run", path, label).split()]
            for label in ("reading", "memory", "file")
        }
    limit = max(result[description][1] / result[description][0] for description in ("reading", "memory"))
    print(f"Measured with cavity {cavity.__version__}.\n")
    print(f"{options.rows} rows of {COLUMNS} columns, Parquet of {size / 1e9:.2f} GB, one thread\n")
    print("| | rows | ns a row and pass | of the larger of the first two | peak memory, MB |")
    print("|---|---|---|---|---|")
    message = {"reading": "reading the file alone", "memory": "a sweep in memory", "file": "a sweep over the file"}
    for subject, (n, seconds, peak) in result.items():
        print(f"| {message[subject]} | {n:.0f} | {1e9 * seconds / n:.0f} | {seconds / n / limit:.2f} | {peak:.0f} |")


if __name__ == "__main__":
    main()
