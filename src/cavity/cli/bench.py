"""`cavity bench`: how many times as fast as NumPy a pass over the data is, on this machine, in about half a minute.

The NumPy versions are what people write: formulas on whole arrays. A pass is what more passes take longer.
"""

from functools import partial

import numpy as np
from scipy.special import log_ndtr

from cavity.cli.fits import timed
from cavity.cli.options import JOB, command
from cavity.cli.standard_output import say
from cavity.runs.executors import THREADS_VARIABLE, resolve_n_threads, single_blas

REPEATS = 3  # the fastest counts
PASSES = 2, 12  # of the two fits whose difference is ten passes


@command("compare passes over made-up data with NumPy, and two threads with one; it takes about half a minute", *JOB)
def run(options):
    """Print the table."""
    with single_blas():
        cases = [measure(*case()) for case in (mixture, unit_mixture, glm)]
    width = max(len(case["case"]) for case in cases)
    lines = [f"{'a pass':<{width}} {'cavity':>10} {'NumPy':>10} {'times as fast':>14} {'two threads':>12}"]
    for case in cases:
        threads = f"{case['two_threads']:.2f} x" if "two_threads" in case else "one core"
        times = f"{case['cavity_ms']:>7.3g} ms {case['numpy_ms']:>7.3g} ms {case['ratio']:>14.1f} {threads:>12}"
        lines.append(f"{case['case']:<{width}} {times}")
    lines.append(f"one thread for both; BLAS on one; {THREADS_VARIABLE} or --threads give a fit more")
    return say(options, lines, lambda: {"cases": cases})


def measure(name, fit, numpy_pass):
    """Return the milliseconds of a pass of fit(max_iter=..., n_threads=...) and of one in NumPy."""

    def milliseconds(threads):
        few, many = (fastest(lambda n=n: fit(max_iter=n, tol=0.0, n_threads=threads)) for n in PASSES)
        return 1e3 * max((many - few) / (PASSES[1] - PASSES[0]), 1e-9)

    case = {"case": name, "cavity_ms": milliseconds(1), "numpy_ms": 1e3 * fastest(numpy_pass)}
    case["ratio"] = case["numpy_ms"] / case["cavity_ms"]
    return case | ({"two_threads": case["cavity_ms"] / milliseconds(2)} if resolve_n_threads(-1) > 1 else {})


def fastest(function):
    """Return the seconds of the fastest of some calls."""
    return min(timed(function)[1] for _ in range(REPEATS))


def responsibilities(log_r):
    """Return the responsibilities (N, K) of logs up to a constant of each row, and the sum of the log densities."""
    top = log_r.max(axis=1, keepdims=True)
    r = np.exp(log_r - top)
    total = r.sum(axis=1, keepdims=True)
    return r / total, np.sum(top + np.log(total))


def mixture(n=200_000):
    """A mixture of Gaussians of diagonal covariances: log densities, responsibilities, their sums."""
    from cavity.models.mixture.model import GaussianMixture

    dim, k = 8, 8
    rng = np.random.default_rng(0)
    X, mean = rng.normal(size=(n, dim)), rng.normal(size=(k, dim))
    precision = rng.gamma(5.0, 0.2, size=(k, dim))

    def numpy_pass():
        distance = X**2 @ precision.T - 2.0 * X @ (mean * precision).T + np.sum(mean**2 * precision, axis=1)
        r, log_density = responsibilities(-0.5 * distance)
        return r.sum(axis=0), r.T @ X, r.T @ X**2, log_density

    fit = partial(GaussianMixture(k, covariance="diag").fit, X, accelerate=False)
    return f"mixture, diag, {n} x {dim}, K = {k}", fit, numpy_pass


def unit_mixture(n=300_000):
    """A mixture of Gaussians of one variance on a line."""
    from cavity.models.unit_mixture.model import UnitMixture

    k = 8
    rng = np.random.default_rng(0)
    y, mean, variance = rng.normal(size=n), np.linspace(-3.0, 3.0, k), np.full(k, 0.01)

    def numpy_pass():
        r, log_density = responsibilities(y[:, None] * mean - 0.5 * (mean**2 + variance))
        return r.sum(axis=0), (r * y[:, None]).sum(axis=0), log_density

    return f"unit mixture, {n} rows, K = {k}", partial(UnitMixture(k).fit, y, accelerate=False), numpy_pass


def glm(n=100_000):
    """Parallel expectation propagation of a probit regression."""
    from cavity.models.glm.model import GLM

    dim = 20
    rng = np.random.default_rng(0)
    X = rng.normal(size=(n, dim))
    y = np.where(X @ rng.normal(size=dim) * 0.3 + rng.normal(size=n) > 0, 1.0, -1.0)
    tau, rho = 0.1 * y, np.full(n, 0.1)

    def numpy_pass():
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

    fit = partial(GLM("probit", prior_variance=1.0, intercept=False).fit, X, y)
    return f"glm, probit, {n} x {dim}", fit, numpy_pass
