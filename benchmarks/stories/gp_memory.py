"""Memory of Gaussian processes: `python benchmarks/stories/gp_memory.py`.

A process for each line prints the seconds of its call, the largest resident memory, and how much of it the call added
to what was resident after the same call on few rows, which loads what is loaded once. The last line is scikit-learn's
and is left out where it is not installed.
"""

import argparse
import importlib.util
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))  # of the benchmarks
import numpy as np
from cases import bench_gaussian_process as bench
from processes import printed, resident

import cavity
from cavity import likelihoods
from cavity.runs.executors import Threads, single_blas

FEW = 50  # rows
LARGE = ("sequential", "parallel")
EVIDENCE = ("cavity", "scikit-learn")


def rows_and_labels(rows):
    """Rows of two columns and labels that follow a smooth function of them; no matrix is needed to draw them."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(rows, 2))
    f = 3.0 * np.sin(2.0 * X[:, 0]) * np.cos(2.0 * X[:, 1])
    return X, np.where(f + rng.normal(size=rows) > 0, 1.0, -1.0)


def classification(rows, schedule):
    """Fit with given hyperparameters."""
    X, y = rows_and_labels(rows)
    bench.model(2, likelihoods.Probit()).fit(X, y, learn=False, schedule=schedule, tol=bench.TOLERANCE)


def evidence(rows, name):
    """Evidence and gradient of a regression with eight lengthscales, at given hyperparameters."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(rows, 8))
    y = np.sin(X[:, 0]) + rng.normal(size=rows)
    with Threads(1) as threads, single_blas():
        call = bench.sklearn_regression(X, y) if name == "scikit-learn" else bench.our_evidence(X, y, threads)
        call()


def run(task, rows, name):
    """Print seconds, the largest resident memory and what the call added to it."""
    function = {"classification": classification, "evidence": evidence}[task]
    function(FEW, name)
    before, start = resident(), time.perf_counter()
    function(rows, name)
    print(time.perf_counter() - start, resident(), resident() - before)


def table(title, task, rows, names):
    """Start the processes of a table and print it."""
    print(f"{title}, N = {rows}\n")
    print("| | seconds | peak memory, MB | of it by the call |")
    print("|---|---|---|---|")
    for name in names:
        seconds, peak, added = map(float, printed(__file__, "--run", task, rows, name).split())
        print(f"| {name} | {seconds:.2f} | {peak:.0f} | {added:.0f} |", flush=True)
    print()


def main():
    """Print the tables."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rows", type=int, default=4000, help="of the classification")
    parser.add_argument("--run", nargs=3, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.run:
        task, rows, name = options.run
        run(task, int(rows), name)
        return
    print(f"Measured with cavity {cavity.__version__}.\n")
    table("probit classification to 1e-8, one thread", "classification", options.rows, LARGE)
    truth = EVIDENCE if importlib.util.find_spec("sklearn") else EVIDENCE[:1]
    table("evidence and gradient of a regression with eight lengthscales", "evidence", 1000, truth)


if __name__ == "__main__":
    main()
