"""Memory of a million rows, one by one and in batches: `python benchmarks/stories/streaming_gp_memory.py`.

A process for each line draws the rows as it goes, takes them in at fixed inducing points and settings, and tells its
largest resident memory on the way; one line is one fit of all rows, from .npy files. The second table says how far
from that the others, and NumPy, end: means of f at the inducing points in standard deviations, variances and the log
bound relative.
"""

import argparse
import sys
import tempfile
import time
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))  # of the benchmarks
from processes import printed, resident
from rivals import streaming_gp as reference

import cavity
from cavity import covariances, likelihoods

COLUMNS, BATCH = 8, 1000
VARIANCE, LENGTHSCALE, NOISE = 4.0, 2.5, 0.5
SHARES = 0.1, 0.5, 1.0  # of the rows, where memory is read


def batch(k):
    """Rows and values of batch k of the stream."""
    rng = np.random.default_rng((1, k))
    X = rng.normal(size=(BATCH, COLUMNS))
    return X, 2.0 * np.sin(X[:, 0]) + X[:, 1] * X[:, 2] + rng.normal(0.0, np.sqrt(NOISE), size=BATCH)


def points(inducing):
    """Inducing points."""
    return np.random.default_rng(0).normal(size=(inducing, COLUMNS))


def model(inducing):
    """Our process."""
    covariance = covariances.RBF(variance=VARIANCE, lengthscale=np.full(COLUMNS, LENGTHSCALE))
    return cavity.StreamingGP(covariance, likelihoods.Gaussian(NOISE), inducing=points(inducing))


def streamed(task, rows, inducing, folder):
    """Take in the rows of the stream; print the memory on the way."""
    state = model(inducing).fit(np.empty((0, COLUMNS)), np.empty(0), learn=False)
    stops = [round(share * rows) for share in SHARES]
    for k in range(rows // BATCH):
        X, y = batch(k)
        if task == "one by one":
            for i in range(BATCH):
                state.update(X[i : i + 1], y[i : i + 1])
        else:
            state.update(X, y)
        if (k + 1) * BATCH in stops:
            print(resident())
    return state


def fitted(task, rows, inducing, folder):
    """Fit the rows in the files."""
    state = model(inducing).fit(folder / "X.npy", folder / "y.npy", learn=False)
    print(resident())
    return state


def in_numpy(task, rows, inducing, folder):
    """The stream in NumPy."""
    state = reference.Batches(reference.Settings(points(inducing), VARIANCE, LENGTHSCALE, NOISE))
    for k in range(rows // BATCH):
        state.update(*batch(k))
    print(resident())
    return state


TASKS = {"one by one": streamed, f"batches of {BATCH}": streamed, "one fit, files": fitted, "NumPy": in_numpy}


def answer(state, inducing):
    """Moments of f at the inducing points, and the log bound."""
    X = points(inducing)
    if not isinstance(state, reference.Batches):
        return (*state.predict(X), state.log_bound)
    W, residual = state.settings.features(X)
    spread = np.linalg.solve(np.tril(state.factor), W.T)
    return W @ state.mean(), residual + np.einsum("mn,mn->n", spread, spread), state.log_bound()


def run(task, rows, inducing, folder):
    """Print the largest resident memory at the stops and at the end the seconds; save the answer."""
    start = time.perf_counter()
    state = TASKS[task](task, rows, inducing, folder)
    print(time.perf_counter() - start)
    mean, variance, log_bound = answer(state, inducing)
    np.savez(folder / f"{task}.npz", mean=mean, variance=variance, log_bound=log_bound)


def write_files(rows, folder):
    """Write the stream to two files."""
    X = np.lib.format.open_memmap(folder / "X.npy", "w+", float, (rows, COLUMNS))
    y = np.lib.format.open_memmap(folder / "y.npy", "w+", float, (rows,))
    for k in range(rows // BATCH):
        X[k * BATCH : (k + 1) * BATCH], y[k * BATCH : (k + 1) * BATCH] = batch(k)
    X.flush()
    y.flush()


def differences(folder):
    """Yield the rows of the second table."""
    expected = np.load(folder / "one fit, files.npz")
    for task in TASKS:
        result = np.load(folder / f"{task}.npz")
        mean = np.max(np.abs(result["mean"] - expected["mean"]) / np.sqrt(expected["variance"]))
        variance = np.max(np.abs(result["variance"] / expected["variance"] - 1.0))
        yield task, mean, variance, abs(result["log_bound"] / expected["log_bound"] - 1.0)


def child(options, task, folder):
    """Run a task in a process of its own; return what it printed."""
    settings = "--rows", options.rows, "--inducing", options.inducing
    return printed(__file__, *settings, "--run", task, folder)


def main():
    """Print the tables."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--inducing", type=int, default=100)
    parser.add_argument("--run", nargs=2, help=argparse.SUPPRESS)
    options = parser.parse_args()
    rows, inducing = options.rows, options.inducing
    if options.run and options.run[0] == "write":
        write_files(rows, Path(options.run[1]))
        return
    if options.run:
        run(options.run[0], rows, inducing, Path(options.run[1]))
        return
    print(f"Measured with cavity {cavity.__version__}.\n")
    print(f"{rows} rows of {COLUMNS} columns, {inducing} inducing points, one thread\n")
    print("| | " + " | ".join(f"peak memory, MB, after {share * rows:.0f}" for share in SHARES) + " | seconds |")
    print("|---" * (len(SHARES) + 2) + "|")
    with tempfile.TemporaryDirectory() as folder:
        child(options, "write", folder)
        for task in TASKS:
            *memory, seconds = map(float, child(options, task, folder).split())
            cells = ["-"] * (len(SHARES) - len(memory)) + [f"{peak:.1f}" for peak in memory]
            print(f"| {task} | " + " | ".join(cells) + f" | {seconds:.1f} |", flush=True)
        print("\n| | mean | variance | log bound |\n|---|---|---|---|")
        for task, *numbers in differences(Path(folder)):
            print(f"| {task} | " + " | ".join(f"{number:.1e}" for number in numbers) + " |")


if __name__ == "__main__":
    main()
