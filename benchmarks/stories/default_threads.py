"""Fits with the default number of threads: `python benchmarks/stories/default_threads.py` prints one table.

Fits with one thread, with n_threads=None and with n_threads=-1 alternate; the shortest wall time of each counts. All
three have the same bits. It takes as many free cores as the process may use. `--quick` is a smoke test, `--only NAME`
takes rows whose names begin so, `--seconds` sets how long each row alternates.
"""

import argparse
import os
import time
import warnings
from functools import partial

import numpy as np

import cavity
from cavity import covariances, likelihoods

NUMBERS = {"one thread": 1, "default": None, "all cores": -1}


def list_fits(quick):
    """Return names and functions of n_threads."""
    rng, scale = np.random.default_rng(0), 10 if quick else 1
    fits = {}

    def draw(n, dim):
        X = rng.normal(size=(n // scale, dim))
        return X, X[:, 0] - X[:, 1]

    for n, dim in ((100, 5), (2000, 20), (20_000, 20), (2000, 200)):
        X, f = draw(n, dim)
        y = f > rng.logistic(size=len(f))
        fits[f"GLM logit, {n} x {dim}"] = partial(cavity.GLM("logit", intercept=True).fit, X, y)
    for n, dim in ((100, 5), (5000, 50), (2000, 300)):
        X, f = draw(n, dim)
        y = f + rng.normal(size=len(f))
        fits[f"linear regression, {n} x {dim}"] = partial(cavity.LinearRegression(intercept=True).fit, X, y)
    for n in (100, 500, 2000):
        X, f = draw(n, 2)
        process = cavity.GaussianProcess(covariances.RBF(), likelihoods.Gaussian(0.5))
        y = np.sin(f) + rng.normal(size=len(f))
        fits[f"GP regression, {n} rows"] = partial(process.fit, X, y, learn=False)
        process = cavity.GaussianProcess(covariances.RBF(), "logit")
        fits[f"GP labels, {n} rows"] = partial(process.fit, X, f > 0.0, learn=False, tol=1e-6)
    for n in (300, 200_000):
        X, _ = draw(n, 8)
        fits[f"mixture, {n} x 8"] = partial(cavity.GaussianMixture(8).fit, X, max_iter=5)
        fits[f"unit mixture, {n} points"] = partial(cavity.UnitMixture(10).fit, X[:, 0].copy())
    X, f = draw(1000, 8)
    for size in (100, 300):
        process = cavity.StreamingGP(covariances.RBF(2.0, 2.5), likelihoods.Gaussian(0.5), inducing=X[:size] + 0.1)
        state = process.fit(X, f, learn=False)
        fits[f"stream, 1000 rows, M = {size}"] = partial(state.update, X, f)
    X, f = draw(2000, 2)
    table = {"x": X[:, 0], "g": np.arange(len(f)) // 10, "y": X[:, 0] + rng.normal(size=len(f))}
    fits["mixed model, 2000 rows"] = partial(cavity.GLM("y ~ x + (1 | g)", "gaussian").fit, table)
    return fits


def find_shortest(fit, seconds):
    """Return the shortest wall time of a fit with each of NUMBERS."""
    best, end = dict.fromkeys(NUMBERS, np.inf), time.perf_counter() + seconds
    while time.perf_counter() < end or np.inf in best.values():
        for name, number in NUMBERS.items():
            start = time.perf_counter()
            fit(n_threads=number)
            best[name] = min(best[name], time.perf_counter() - start)
    return best


def main():
    """Measure, print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="a smoke test")
    parser.add_argument("--only", default="", metavar="NAME", help="fits whose names begin so")
    parser.add_argument("--seconds", type=float, default=1.0, help="for each row")
    options = parser.parse_args()
    print(f"Measured with cavity {cavity.__version__}, {len(os.sched_getaffinity(0))} cores.\n")
    print("| fit | one thread, ms | default | all cores |\n|---|---|---|---|")
    for name, fit in list_fits(options.quick).items():
        if name.startswith(options.only):
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # few iterations are enough
                best = find_shortest(fit, 0.0 if options.quick else options.seconds)
            one = best["one thread"]
            print(
                f"| {name} | {1e3 * one:.3g} | {one / best['default']:.2f} | {one / best['all cores']:.2f} |",
                flush=True,
            )


if __name__ == "__main__":
    main()
