"""`cavity doctor`: instruction set, BLAS, threads and packages of this installation, and a self-test."""

import importlib.metadata
import os
import platform
import sys
import time

import numpy as np

from cavity import __version__, data
from cavity._core import cpu, variants
from cavity.cli.options import COMMON_OPTIONS, command
from cavity.cli.standard_output import print_result
from cavity.runs.executors import THREADS_VARIABLE, resolve_n_threads

EXTRA_PACKAGES = {  # by the extra that installs them
    "needed": ("numpy", "scipy", "threadpoolctl"),
    "plot": ("matplotlib",),
    "sklearn": ("scikit-learn",),
    "arrow": ("pyarrow",),
    "arviz": ("arviz",),
    "progress": ("tqdm",),
    "formula": ("formulae",),
    "of your own": ("pandas", "polars", "zarr", "h5py"),
}
INSTRUCTION_SETS = {"baseline": "any CPU", "v3": "x86-64-v3 (AVX2)", "v4": "x86-64-v4 (AVX-512)"}


@command(
    "show the instruction set, BLAS, threads and packages in use, and compare a few results with known values",
    *COMMON_OPTIONS,
)
def examine(options):
    """Print the installation and the self-test; return 1 if a test failed."""
    machine, tests = describe_machine(), dict(run_self_test())
    failed = [name for name, result in tests.items() if result != "ok"]
    lines = [f"cavity {__version__}", *(f"  {name:<16} {value}" for name, value in machine.items())]
    lines += ["packages", *(f"  {name:<16} {version}" for name, version in list_packages().items())]
    lines += ["self-test", *(f"  {name:<16} {result}" for name, result in tests.items())]
    summary = {"cavity": __version__} | machine | {"packages": list_packages(), "self_test": tests, "ok": not failed}
    print_result(options, lines, lambda: summary)
    return 1 if failed else 0


def describe_machine():
    """Return the parts of this machine that are in use."""
    level = variants("gaussian_mixture")[-1]
    default = os.environ.get(THREADS_VARIABLE)
    import scipy.linalg  # noqa: F401  loads its BLAS, which is listed below
    from threadpoolctl import threadpool_info

    blas = [library for library in threadpool_info() if library["user_api"] == "blas"]
    blas = ", ".join("{internal_api} {version} ({num_threads} threads)".format_map(library) for library in blas)
    return {
        "python": f"{sys.version.split()[0]}, {platform.system()} {platform.machine()}",
        "instructions": f"{INSTRUCTION_SETS[level]}; the CPU has {', '.join(cpu.levels()) or 'no more'}",
        "BLAS": blas or "none found",
        "cores": resolve_n_threads(-1),
        "threads": f"{resolve_n_threads(None)} by default ({THREADS_VARIABLE} is {default or 'not set'})",
    }


def list_packages():
    """Return the versions of the packages, or the command that installs them."""
    versions = {}
    for name, extra in ((name, extra) for extra, names in EXTRA_PACKAGES.items() for name in names):
        try:
            versions[name] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            installed = name if extra in ("needed", "of your own") else f"'cavity[{extra}]'"
            versions[name] = f"not installed: pip install {installed}"
    return versions


def run_self_test():
    """Yield (name, "ok" or the difference) for a few fits with known results."""
    from cavity.models.clutter.model import Clutter
    from cavity.models.glm.model import GLM
    from cavity.models.mixture.model import GaussianMixture

    started = time.perf_counter()
    x, _ = data.load("newcomb")
    mean = Clutter().with_defaults(x).fit(x).mean
    yield "clutter", "ok" if abs(mean - 27.7) < 0.5 else f"the mean of newcomb is {mean}, not 27.7"
    columns, _ = data.table("pima")
    X, y = columns["glu"][:, None], columns["type"]
    evidence = GLM("probit", prior_variance=1e-3, intercept=1.0).fit(X, y).log_evidence
    integral = integrate_evidence(X[:, 0], y == "Yes")
    yield "glm", "ok" if abs(evidence - integral) < 0.05 else f"log evidence {evidence}, by integration {integral}"
    rows = np.random.default_rng(0).normal(size=(150_000, 4))
    one, two = (GaussianMixture(3).fit(rows, max_iter=3, tol=0.0, n_threads=n).elbo for n in (1, 2))
    yield "threads", "ok" if one == two else f"one thread gives {one}, two give {two}"
    yield "seconds", "ok" if time.perf_counter() - started < 20 else "it took more than 20 s"


def integrate_evidence(x, label):
    """Return the log evidence of a probit regression with an intercept, summed over a grid of its two weights."""
    from scipy.special import log_ndtr, logsumexp

    a, b = np.meshgrid(np.linspace(-6.0, 2.0, 81), np.linspace(0.0, 0.05, 81), indexing="ij")
    sign = np.where(label, 1.0, -1.0)
    total = sum(log_ndtr(s * (a + b * value)) for s, value in zip(sign, x, strict=True))
    total = total - 0.5 * a**2 - 0.5 * b**2 / 1e-3 - np.log(2 * np.pi) - 0.5 * np.log(1e-3)
    return float(logsumexp(total) + np.log((a[1, 0] - a[0, 0]) * (b[0, 1] - b[0, 0])))
