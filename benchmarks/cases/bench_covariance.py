"""Covariances: Gram matrices and gradients beside SciPy's distances and scikit-learn's kernels.

Run by `python benchmarks/run.py`, or `pytest benchmarks/cases/bench_covariance.py`. scikit-learn is skipped where it
is not installed. Every implementation is compared with the textbook before it is timed. Ours and the textbook
multiply by a variance, scikit-learn's kernels have none.
"""

from functools import lru_cache

import numpy as np
import pytest
from rivals import gp as reference

from cavity import covariances

COLUMNS, VARIANCE = 8, 1.7
LENGTHSCALES = np.linspace(1.0, 3.0, COLUMNS)
COVARIANCES = {"rbf": covariances.RBF, "matern52": covariances.Matern52}
TITLES = {"rbf": "RBF", "matern52": "Matern 5/2"}


@lru_cache(maxsize=2)
def problem(rows):
    """Rows, and symmetric weights of their covariances."""
    rng = np.random.default_rng(0)
    weights = rng.normal(size=(rows, rows))
    return rng.normal(size=(rows, COLUMNS)), weights + weights.T


def theirs(kind):
    """scikit-learn's kernel."""
    kernels = pytest.importorskip("sklearn.gaussian_process.kernels")
    return kernels.RBF(LENGTHSCALES) if kind == "rbf" else kernels.Matern(LENGTHSCALES, nu=2.5)


@pytest.mark.parametrize("kind", COVARIANCES)
@pytest.mark.parametrize(
    "name", ["cavity", "cavity, 2 threads", "cavity, into a given array", "expert", "naive", "sklearn"]
)
def test_gram(measure, small, kind, name):
    """The matrix of all covariances, per entry; "expert" writes into a given array too."""
    rows = 200 if small else 2000
    X, _ = problem(rows)
    model, threads = COVARIANCES[kind](variance=VARIANCE, lengthscale=LENGTHSCALES), 1 + name.endswith("2 threads")
    out, arguments = np.empty((rows, rows)), (kind, X, VARIANCE, LENGTHSCALES)
    call = {
        "cavity, into a given array": lambda: model.gram(X, out=out),
        "expert": lambda: reference.blocked_gram(*arguments, out),
        "naive": lambda: reference.gram(*arguments),
    }.get(name, lambda: model.gram(X, n_threads=threads))
    variance = 1.0
    if name == "sklearn":
        kernel, variance = theirs(kind), VARIANCE

        def call():
            return kernel(X)

    np.testing.assert_allclose(variance * call(), reference.gram(*arguments), rtol=1e-12, atol=1e-14)
    measure(f"Gram matrix, {TITLES[kind]}, N={rows}, D={COLUMNS}", name, call, rows**2, "entry")


@pytest.mark.parametrize("kind", COVARIANCES)
@pytest.mark.parametrize("name", ["cavity", "cavity, 2 threads", "expert", "naive", "sklearn"])
def test_gradient(measure, small, kind, name):
    """The derivatives of <weights, K> in the log variance and all log lengthscales, per entry of the matrix.

    "naive" and "sklearn" (without the variance) build a matrix for each parameter; "expert" two in all, and products.
    """
    rows = 200 if small else 1000
    X, weights = problem(rows)
    model, threads = COVARIANCES[kind](variance=VARIANCE, lengthscale=LENGTHSCALES), 1 + name.endswith("2 threads")
    arguments, out = (kind, X, VARIANCE, LENGTHSCALES), np.empty((rows, rows))
    expected = reference.gradient(*arguments, weights)
    call = {
        "expert": lambda: reference.product_gradient(*arguments, weights, out),
        "naive": lambda: reference.gradient(*arguments, weights),
    }.get(name, lambda: model.gradient(X, weights, n_threads=threads))
    if name == "sklearn":
        kernel, expected = theirs(kind), expected[1:] / VARIANCE

        def call():
            return np.einsum("ijg,ij->g", kernel(X, eval_gradient=True)[1], weights)

    np.testing.assert_allclose(call(), expected, rtol=1e-9, atol=1e-9 * np.max(np.abs(expected)))
    measure(f"Gram gradient, {TITLES[kind]}, N={rows}, D={COLUMNS}", name, call, rows**2, "entry")
