"""`cavity bench`: how many times as fast as NumPy a pass over the data is, on this machine, in about half a minute.

The NumPy versions are what people write: formulas on whole arrays. A pass is what more passes take longer.
"""

import time

import numpy as np
from scipy.special import log_ndtr

from cavity.cli.options import JOB, command
from cavity.cli.standard_output import say
from cavity.runs.executors import THREADS_VARIABLE, single_blas, threads_of

REPEATS = 3  # the fastest counts
PASSES = 2, 12  # of the two fits whose difference is ten passes


@command("compare passes over made-up data with NumPy, and two threads with one; it takes about half a minute", *JOB)
def run(options):
    """Print the table."""
    found = []
    with single_blas():
        for case in (mixture, unit_mixture, glm):
            name, ours, theirs = case()
            known = {"case": name, "cavity_ms": 1e3 * ours(1), "numpy_ms": 1e3 * fastest(theirs)}
            known |= {"ratio": known["numpy_ms"] / known["cavity_ms"]}
            if threads_of(-1) > 1:
                known["two_threads"] = known["cavity_ms"] / (1e3 * ours(2))
            found.append(known)
    width = max(len(each["case"]) for each in found)
    lines = [f"{'a pass':<{width}} {'cavity':>10} {'NumPy':>10} {'times as fast':>14} {'two threads':>12}"]
    for each in found:
        threads = f"{each['two_threads']:.2f} x" if "two_threads" in each else "one core"
        times = f"{each['cavity_ms']:>7.3g} ms {each['numpy_ms']:>7.3g} ms {each['ratio']:>14.1f} {threads:>12}"
        lines.append(f"{each['case']:<{width}} {times}")
    lines.append(f"one thread for both; BLAS on one; {THREADS_VARIABLE} or --threads give a fit more")
    say(options, lines, lambda: {"cases": found})
    return 0


def fastest(function):
    """Return the seconds of the fastest of some calls."""
    seconds = []
    for _ in range(REPEATS):
        started = time.perf_counter()
        function()
        seconds.append(time.perf_counter() - started)
    return min(seconds)


def a_pass(fit):
    """Return what measures a pass of fit(max_iter, threads) with some threads."""

    def seconds(threads):
        few, many = (fastest(lambda n=n: fit(n, threads)) for n in PASSES)
        return max((many - few) / (PASSES[1] - PASSES[0]), 1e-9)

    return seconds


def mixture(n=200_000):
    """A mixture of Gaussians of diagonal covariances: log densities, responsibilities, their sums."""
    from cavity.models.mixture.model import GaussianMixture

    dim, k = 8, 8
    rng = np.random.default_rng(0)
    X, mean = rng.normal(size=(n, dim)), rng.normal(size=(k, dim))
    precision = rng.gamma(5.0, 0.2, size=(k, dim))

    def fit(max_iter, threads):
        GaussianMixture(k, covariance="diag").fit(X, max_iter=max_iter, tol=0.0, n_threads=threads, accelerate=False)

    def theirs():
        log_r = -0.5 * (X**2 @ precision.T - 2.0 * X @ (mean * precision).T + np.sum(mean**2 * precision, axis=1))
        top = log_r.max(axis=1, keepdims=True)
        r = np.exp(log_r - top)
        total = r.sum(axis=1, keepdims=True)
        r = r / total
        return r.sum(axis=0), r.T @ X, r.T @ X**2, np.sum(top + np.log(total))

    return f"mixture, diag, {n} x {dim}, K = {k}", a_pass(fit), theirs


def unit_mixture(n=300_000):
    """A mixture of Gaussians of one variance on a line."""
    from cavity.models.unit_mixture.model import UnitMixture

    k = 8
    rng = np.random.default_rng(0)
    y, mean, variance = rng.normal(size=n), np.linspace(-3.0, 3.0, k), np.full(k, 0.01)

    def fit(max_iter, threads):
        UnitMixture(k).fit(y, max_iter=max_iter, tol=0.0, n_threads=threads, accelerate=False)

    def theirs():
        log_r = y[:, None] * mean - 0.5 * (mean**2 + variance)
        top = log_r.max(axis=1, keepdims=True)
        r = np.exp(log_r - top)
        total = r.sum(axis=1, keepdims=True)
        r = r / total
        return r.sum(axis=0), (r * y[:, None]).sum(axis=0), np.sum(top + np.log(total))

    return f"unit mixture, {n} rows, K = {k}", a_pass(fit), theirs


def glm(n=100_000):
    """Parallel expectation propagation of a probit regression."""
    from cavity.models.glm.model import GLM

    dim = 20
    rng = np.random.default_rng(0)
    X = rng.normal(size=(n, dim))
    y = np.where(X @ rng.normal(size=dim) * 0.3 + rng.normal(size=n) > 0, 1.0, -1.0)
    tau, rho = 0.1 * y, np.full(n, 0.1)
    model = GLM("probit", prior_variance=1.0, intercept=False)

    def fit(max_iter, threads):
        model.fit(X, y, max_iter=max_iter, tol=0.0, n_threads=threads)

    def theirs():
        covariance = np.linalg.inv(np.eye(dim) + X.T @ (rho[:, None] * X))
        m, v = X @ (covariance @ (X.T @ tau)), np.einsum("ij,jk,ik->i", X, covariance, X, optimize=True)
        cavity = 1.0 / v - rho
        m, v = (m / v - tau) / cavity, 1.0 / cavity
        s = np.sqrt(1.0 + v)
        z = y * m / s
        hazard = np.exp(-0.5 * z * z - log_ndtr(z)) / np.sqrt(2.0 * np.pi)
        first, second = y * hazard / s, -hazard * (hazard + z) / (1.0 + v)
        shrink = 1.0 + v * second
        return (first - m * second) / shrink, -second / shrink

    return f"glm, probit, {n} x {dim}", a_pass(fit), theirs
