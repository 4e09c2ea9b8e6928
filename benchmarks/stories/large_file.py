"""Mixtures over files larger than memory: memory and speed beside the same rows in memory; a fit to its end.

`python benchmarks/stories/large_file.py [--size GB] [--points N]`

Writes rows of 16 columns, of 16 components, as .npy and as Parquet (`--size` in all, 1 GB by default) to a temporary
folder. A process for each way of reading them fits a GaussianMixture with diagonal covariances and prints seconds a
pass, the largest resident memory and how much of it the fit added, and the ELBO, whose bits must agree. Rows in memory
are as many as fit (`--held` GB at most): the rate is per row. Then a UnitMixture is fitted to N points (1e7 by default)
in a .npy file until it converges, without a checkpoint and with one after every pass.
"""

import argparse
import subprocess
import sys
import tempfile
import time
import warnings
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))  # of the benchmarks
from processes import resident

import cavity

PASSES = 3
WARM_UP = 2
BLOCK = 1 << 20  # rows written at a time, and those of a row group, as Parquet has them by default
LINE = np.linspace(-9.0, 9.0, 10)[:, None]
SPACE = 3.0 * np.random.default_rng(1).normal(size=(16, 16))


def draws(centres, rows):
    """Yield draws of a mixture block by block, the same every time."""
    rng = np.random.default_rng(0)
    for start in range(0, rows, BLOCK):
        chosen = centres[rng.integers(0, len(centres), min(BLOCK, rows - start))]
        yield rng.normal(chosen, 1.0)


def write_npy(path, centres, rows):
    """Write draws as a .npy file."""
    dim = centres.shape[1]
    header = {"descr": "<f8", "fortran_order": False, "shape": (rows, dim) if dim > 1 else (rows,)}
    with open(path, "wb") as file:  # a memory map would count as memory of this process, and of its children
        np.lib.format.write_array_header_1_0(file, header)
        for block in draws(centres, rows):
            block.tofile(file)


def write_parquet(path, centres, rows):
    """Write draws as a Parquet file, a row group for each block."""
    import pyarrow
    from pyarrow.parquet import ParquetWriter

    schema = pyarrow.schema([(f"x{j}", pyarrow.float64()) for j in range(centres.shape[1])])
    with ParquetWriter(path, schema) as writer:
        for block in draws(centres, rows):
            writer.write_table(pyarrow.table(list(np.ascontiguousarray(block.T)), schema=schema))


def warm(model, means):
    """Fit a few rows: what is imported is no memory of a fit."""
    few = np.random.default_rng(0).normal(size=(100, *means.shape[1:]))
    model.fit(few, initial_means=means, max_iter=1)
    return resident()


def run_passes(path, held, threads):
    """Fit a few passes and print what they took: the time of the last ones, after the first have warmed the cache."""
    model, means, data = cavity.GaussianMixture(len(SPACE), covariance="diag"), SPACE + 0.5, path
    if held:
        with open(path, "rb") as file:
            np.lib.format.read_magic(file)
            shape, *_ = np.lib.format.read_array_header_1_0(file)
            data = np.fromfile(file, count=min(held, shape[0]) * shape[1]).reshape(-1, shape[1])
    stamps = []

    def callback(event):
        if event.stage == "fit":
            stamps.append(time.perf_counter())
        return len(stamps) >= WARM_UP + PASSES

    before = warm(model, means)
    post = model.fit(data, initial_means=means, accelerate=False, callback=callback, n_threads=threads)
    nanoseconds = 1e9 * min(np.diff(stamps)[WARM_UP - 1 :]) / post.n_samples
    print(f"{nanoseconds} {resident()} {resident() - before} {post.n_samples:.0f} {post.elbo.hex()}")


def run_to_the_end(path, checkpoint, threads):
    """Fit a mixture on the line until it converges, and print what that took."""
    model, means = cavity.UnitMixture(len(LINE)), LINE[:, 0] + 0.5
    options = {"checkpoint": f"{path}.{threads}", "checkpoint_every": 0.0} if checkpoint else {}
    before, start = warm(model, means), time.perf_counter()
    post = model.fit(path, initial_means=means, n_threads=threads, **options)
    seconds = time.perf_counter() - start
    print(f"{seconds} {post.n_iter} {post.converged} {resident()} {resident() - before} {post.elbo.hex()}")


def child(*arguments):
    """Run a part of this file in a process of its own; return the words that it prints."""
    command = [sys.executable, __file__, *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout.split()


def table_of_passes(rows, held):
    """Write the files, start the processes, print the table."""
    with tempfile.TemporaryDirectory() as folder:
        paths = {"memory": Path(folder) / "rows.npy", ".npy": Path(folder) / "rows.npy"}
        paths["Parquet"] = Path(folder) / "rows.parquet"
        write_npy(paths[".npy"], SPACE, rows)
        write_parquet(paths["Parquet"], SPACE, rows)
        sizes = {name: path.stat().st_size / 2**30 for name, path in paths.items()}
        result = {
            (name, threads): child("--passes", path, held if name == "memory" else 0, threads)
            for threads in (1, 2)
            for name, path in paths.items()
        }
    print(f"Measured with cavity {cavity.__version__}.\n")
    print(f"GaussianMixture, diagonal: {rows} rows of 16 columns, K = 16, best of {PASSES} passes\n")
    print("| from | GB | threads | ns a row | rate, of the one in memory | peak memory, MB | of it by the fit |")
    print("|---|---|---|---|---|---|---|")
    for (name, threads), (nanoseconds, peak, added, count, _) in result.items():
        memory = float(result["memory", threads][0])
        cells = f"{float(nanoseconds):.1f}", f"{memory / float(nanoseconds):.2f}", f"{float(peak):.0f}"
        gigabytes = sizes[name] * int(count) / rows
        print(f"| {name} | {gigabytes:.1f} | {threads} | {' | '.join(cells)} | {float(added):.0f} |")
    agree({item[-1] for item in result.values() if int(item[-2]) == rows})


def table_of_fits(points):
    """Write the points, start the processes, print the table."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "points.npy"
        write_npy(path, LINE, points)
        result = {(c, t): child("--to-the-end", path, c, t) for c, t in ((0, 1), (1, 1), (0, 2), (1, 2))}
    print(f"\nUnitMixture: {points} points in a .npy file, K = {len(LINE)}, until it converges\n")
    print("| checkpoint | threads | seconds | passes | converged | peak memory, MB | of it by the fit |")
    print("|---|---|---|---|---|---|---|")
    for (checkpoint, threads), (seconds, passes, converged, peak, added, _) in result.items():
        often = "every pass" if checkpoint else "none"
        cells = f"{float(seconds):.2f}", passes, converged, f"{float(peak):.0f}", f"{float(added):.0f}"
        print(f"| {often} | {threads} | {' | '.join(cells)} |")
    agree({item[-1] for item in result.values()})


def agree(bits):
    """Print whether all fits have the same bits; end with status 1 if not."""
    if len(bits) != 1:
        sys.exit("THE BITS DIFFER")
    print("same bits")


def main():
    """Print the tables."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--size", type=float, default=1.0, help="GB of rows")
    parser.add_argument("--held", type=float, default=4.0, help="most GB of them to hold in memory for comparison")
    parser.add_argument("--points", type=float, default=1e7, help="points on the line; 0 for none")
    parser.add_argument("--passes", nargs=3, help=argparse.SUPPRESS)
    parser.add_argument("--to-the-end", nargs=3, help=argparse.SUPPRESS)
    options = parser.parse_args()
    warnings.simplefilter("ignore", cavity.ConvergenceWarning)
    for values, run in ((options.passes, run_passes), (options.to_the_end, run_to_the_end)):
        if values:
            run(values[0], int(values[1]), int(values[2]))
            return
    row = 8 * SPACE.shape[1]
    if options.size:
        table_of_passes(int(options.size * 2**30 / row), int(options.held * 2**30 / row))
    if options.points:
        table_of_fits(int(options.points))


if __name__ == "__main__":
    main()
