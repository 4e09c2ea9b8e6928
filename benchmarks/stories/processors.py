"""Kernels on every instruction set: `python benchmarks/stories/processors.py` prints one table.

Fits of the library are run once, and of each function of a kernel the call that took longest is recorded. It is
repeated with the same arguments by each variant that this processor has, in turn; the shortest time of each counts.
A vector of AVX-512 holds twice as many numbers as one of AVX2 and four times as many as one of the baseline: the last
column has what a variant loses beyond that. `--quick` is a smoke test, `--only stream` takes fits whose names begin so.
"""

import argparse
import os
import platform
import time
import warnings
from functools import partial
from types import BuiltinFunctionType

os.environ.setdefault("OMP_NUM_THREADS", "1")  # of BLAS

import numpy as np

import cavity
from cavity import _core, covariances, likelihoods

KERNELS = (
    "belief", "clutter", "clutter_lanes", "covariance", "dense", "ep", "gaussian", "gaussian_mixture", "sites",
    "sparse_gp", "unit_mixture", "whitened_rows",
)  # fmt: skip
VECTOR_NUMBERS = {"baseline": 2, "v3": 4, "v4": 8}
MIN_EXCESS = 1.2  # over the ratio of the widths: less is noise of timings
MIN_MICROSECONDS = 5.0  # of a call: of shorter ones the entry from Python is a part


def list_fits(quick):
    """Return names and functions that fit something in which kernels take most of the time."""
    rng, n = np.random.default_rng(0), 200 if quick else 2000
    X, Z = rng.normal(size=(n, 20)), rng.normal(size=(100, 8))
    few, f = np.ascontiguousarray(X[: n // 10, :2]), X[:, 0] - X[:, 1]
    labels = f > rng.normal(size=n)
    observed = {
        likelihoods.Probit(): labels,
        likelihoods.Logit(): f > rng.logistic(size=n),
        likelihoods.Poisson(): rng.poisson(np.exp(0.5 * f)),
        likelihoods.StudentT(4.0, 1.0): f + rng.standard_t(4, size=n),
        likelihoods.Gamma(2.0): np.exp(0.5 * f) * rng.gamma(2.0, size=n),
    }
    fits = {
        f"GLM {type(likelihood).__name__}, {n} x 20": partial(cavity.GLM(likelihood, intercept=False).fit, X, y)
        for likelihood, y in observed.items()
    }
    fits[f"clutter, {n} points"] = partial(cavity.Clutter().fit, X[:, :1])
    fits[f"unit mixture, {n} points"] = partial(cavity.UnitMixture(10).fit, X[:, 0])
    for kind in ("full", "diag"):
        fits[f"mixture {kind}, {n} x 8"] = partial(cavity.GaussianMixture(8, kind).fit, X[:, :8], max_iter=20)
    fits[f"GP labels, {n // 10} rows"] = partial(
        cavity.GaussianProcess(covariances.RBF(), likelihoods.Probit()).fit, few, labels[: n // 10], learn=False
    )
    for kind in ("RBF", "Matern52", "Periodic", "RationalQuadratic"):
        process = cavity.GaussianProcess(getattr(covariances, kind)(), likelihoods.Gaussian(0.5))
        fits[f"GP {kind}, {n // 10} rows"] = partial(process.fit, few, f[: n // 10], max_iter=2)
    settings = dict(covariance=covariances.RBF(2.0, 2.5), inducing=Z)
    stream = cavity.StreamingGP(likelihood=likelihoods.Gaussian(0.5), **settings)
    state = stream.fit(X[:, :8], f, learn=False)
    fits[f"stream, {n} rows, M = 100"] = partial(state.update, X[:, :8], f)
    fits["stream, one row, M = 100"] = partial(state.update, X[:1, :8].copy(), f[:1].copy())
    labelled = cavity.StreamingGP(likelihood=likelihoods.Probit(), **settings)
    fits[f"stream labels, {n} rows, M = 100"] = partial(labelled.fit, X[:, :8], labels, learn=False)
    factors = rng.normal(size=n), rng.uniform(1.0, 2.0, n), np.zeros(n)
    fits[f"multiply, {n} factors"] = partial(cavity.multiply, *factors, *factors)
    fits[f"divide, {n} factors"] = partial(cavity.divide, factors[0], 4.0 * factors[1], factors[2], *factors)
    return fits


class Recorder:
    """The longest call of each function of a kernel, with its arguments as they were before it."""

    def __init__(self):
        self.fit, self.calls = None, {}
        for module in KERNELS:
            kernel = _core.best(module)
            for name, function in list(vars(kernel).items()):
                if isinstance(function, BuiltinFunctionType):
                    setattr(kernel, name, partial(self._call, (module, name), function))

    def _call(self, key, function, *arguments):
        before, start = copy_arrays(arguments), time.perf_counter()
        result = function(*arguments)
        seconds = time.perf_counter() - start
        if seconds > self.calls.get((self.fit, *key), (0.0, None))[0]:
            self.calls[self.fit, *key] = seconds, before
        return result


def copy_arrays(arguments):
    """Return arguments with arrays of their own, in the same order of memory."""
    return tuple(a.copy(order="K") if isinstance(a, np.ndarray) else a for a in arguments)


def measure(module, name, arguments, seconds):
    """Return the shortest time of a call by each variant, in microseconds."""
    functions = {variant: getattr(_core.load(module, variant), name) for variant in _core.variants(module)}
    functions = {variant: getattr(f, "args", (None, f))[1] for variant, f in functions.items()}  # not the recorder's
    best, end = dict.fromkeys(functions, np.inf), time.perf_counter() + seconds
    while time.perf_counter() < end or np.inf in best.values():
        for variant, function in functions.items():
            own = copy_arrays(arguments)
            start = time.perf_counter()
            function(*own)
            best[variant] = min(best[variant], 1e6 * (time.perf_counter() - start))
    return best


def describe_excess(times):
    """Return by how much each variant loses more than the ratio of widths to the one with the widest vectors."""
    widest = max(times, key=VECTOR_NUMBERS.get)
    excess = {
        variant: times[variant] * VECTOR_NUMBERS[variant] / (times[widest] * VECTOR_NUMBERS[widest])
        for variant in times
    }
    return ", ".join(f"{variant} {by:.1f}" for variant, by in excess.items() if by > MIN_EXCESS) or "-"


def main():
    """Record, measure, print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="a smoke test")
    parser.add_argument("--only", default="", metavar="NAME", help="fits whose names begin so")
    options = parser.parse_args()
    fits = {name: fit for name, fit in list_fits(options.quick).items() if name.startswith(options.only)}
    recorder = Recorder()
    for name, fit in fits.items():
        recorder.fit = name
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # few iterations are enough
            fit()
    levels = _core.variants("dense")
    heads = "kernel", "fit", *(f"{level}, us" for level in levels), "beyond the ratio of widths"
    print(f"Measured with cavity {cavity.__version__}.\n")
    print("| " + " | ".join(heads) + " |", "|---" * len(heads) + "|", sep="\n")
    for (fit, module, name), (_, arguments) in sorted(recorder.calls.items(), key=lambda item: item[0][1:]):
        times = measure(module, name, arguments, 0.0 if options.quick else 0.25)
        if min(times.values()) >= MIN_MICROSECONDS or options.quick:
            cells = f"``{module}.{name}``", fit, *(f"{times[level]:.3g}" if level in times else "-" for level in levels)
            print("| " + " | ".join((*cells, describe_excess(times))) + " |", flush=True)
    print(f"\n{platform.processor() or platform.machine()}, cavity {cavity.__version__}, NumPy {np.__version__}")


if __name__ == "__main__":
    main()
