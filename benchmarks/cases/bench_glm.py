"""GLM: parallel EP passes beside the sum of their parts and beside NumPy, and a whole fit of a small table.

Run by `python benchmarks/run.py`, or `pytest benchmarks/cases/bench_glm.py`. Every implementation is compared with
another one before it is timed.
"""

from functools import lru_cache

import numpy as np
import pytest
from rivals import glm as reference
from scipy.linalg.blas import dsyrk, dtrmm

import cavity
from cavity import data, likelihoods
from cavity.ep import dense
from cavity.ep import engine as ep_engine
from cavity.ep import sites as ep_sites
from cavity.ep.options import Options
from cavity.runs.executors import Threads, single_blas

SHAPES = {5: 10**6, 20: 10**6, 100: 10**5}  # rows by columns


@lru_cache(maxsize=1)
def large(columns):
    """Rows of so many columns with probit labels."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(SHAPES[columns], columns))
    y = np.where(X @ rng.normal(size=columns) / np.sqrt(columns) + rng.normal(size=len(X)) > 0, 1.0, -1.0)
    return X, y


def engine(X, y, threads):
    """EP at its second pass, so that sites are not all zero."""
    geometry = dense.Dense(X, None, np.zeros(X.shape[1]), np.ones(X.shape[1]), threads)
    sites = ep_sites.Sites(likelihoods.Probit(), y)
    fit = ep_engine.Engine(geometry, sites, Options(max_iter=10, tol=0.0))
    for fit.sweeps in range(2):
        fit._parallel()
    return fit


def parts(X, y):
    """The three pieces of a pass, each alone on the whole array: a function that runs them all."""
    rng = np.random.default_rng(1)
    rows, columns = X.shape
    mean, variance, out = rng.normal(size=rows), 0.1 + rng.random(rows), [np.empty(rows) for _ in range(3)]
    sites = ep_sites.Sites(likelihoods.Probit(), y)
    root, transposed = np.triu(rng.normal(size=(columns, columns))) / 10, np.asfortranarray(X.T)

    def run():
        dsyrk(1.0, X.T)
        dtrmm(1.0, root, transposed, overwrite_b=1)
        ep_sites.site_kernel.evaluate(
            sites.kind, sites.parameters, sites.exponent, y, sites.extra, mean, variance, True, *out
        )

    return run


@pytest.mark.parametrize("name", ["cavity", "cavity, 2 threads", "expert", "parts"])
@pytest.mark.parametrize("columns", SHAPES)
def test_pass(measure, columns, name):
    """One parallel pass over many rows; "parts" is X'WX by dsyrk, row variances by dtrmm, and the sites."""
    X, y = large(columns)
    with Threads(2 if name.endswith("2 threads") else 1) as threads, single_blas():
        fit = engine(X, y, threads)
        tau, rho = fit.tau.copy(), fit.rho.copy()
        precision, pull = np.eye(columns) + fit.belief.h, fit.belief.g
        precision, pull = reference.parallel_pass(X, y, tau, rho, precision, pull)
        fit.good = None
        assert fit._parallel() == 0
        np.testing.assert_allclose(fit.tau, tau, rtol=1e-9, atol=1e-9)
        np.testing.assert_allclose(fit.rho, rho, rtol=1e-9, atol=1e-9)

        def expert():
            reference.parallel_pass(X, y, tau, rho, precision, pull)

        call = {"expert": expert, "parts": parts(X, y)}.get(name, fit._parallel)
        case = f"probit EP pass, N={np.format_float_scientific(len(X), trim='-', exp_digits=1)}, D={columns}"
        measure(case.replace("e+", "e"), name, call, len(X), "row")


@pytest.mark.parametrize("name", ["cavity", "naive"])
def test_small_fit(measure, name):
    """The whole fit of Pima (532 rows, 8 columns) to 1e-8, evidence and leave-one-out densities included in ours."""
    table, _ = data.table("pima")
    values = np.column_stack([table[column] for column in list(table)[:7]])
    X = np.column_stack([np.ones(len(values)), (values - values.mean(axis=0)) / values.std(axis=0)])
    y = np.where(table["type"] == "Yes", 1.0, -1.0)
    model = cavity.GLM(likelihoods.Probit(), prior_variance=1.0, intercept=False)
    posterior = model.fit(X, y)
    mean, covariance, _ = reference.sequential_fit(X, y, 1e-8)
    np.testing.assert_allclose(posterior.mean, mean, rtol=1e-6)
    np.testing.assert_allclose(posterior.covariance, covariance, rtol=1e-5, atol=1e-9)
    call = (lambda: model.fit(X, y)) if name == "cavity" else (lambda: reference.sequential_fit(X, y, 1e-8))
    measure("probit fit, Pima, 532 x 8", name, call, 1, "problem")
