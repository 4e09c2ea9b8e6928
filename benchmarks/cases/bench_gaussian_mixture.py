"""GaussianMixture: one pass of coordinate ascent beside NumPy and scikit-learn's BayesianGaussianMixture.

Run by `python benchmarks/run.py`, or `pytest benchmarks/cases/bench_gaussian_mixture.py`. scikit-learn is skipped
where it is not installed. A pass of ours is a whole sweep: sums of all rows, new factors, ELBO. NumPy leaves
the factors out.
"""

import warnings
from functools import lru_cache

import numpy as np
import pytest
from rivals import gaussian_mixture as reference

import cavity
from cavity.models.mixture.e_step import EStep
from cavity.models.mixture.prior import build_prior_state, fill_priors
from cavity.models.mixture.rows import open_rows
from cavity.models.mixture.start import generate_states
from cavity.models.mixture.sweep import MixtureSweeps
from cavity.runs.executors import Threads

ROWS = 200_000
CASES = [("full", 2, 8), ("full", 8, 8), ("full", 8, 32), ("full", 32, 32), ("diag", 8, 8), ("diag", 32, 32)]


@lru_cache(maxsize=1)
def problem(dim, k):
    """Rows of k overlapping Gaussians."""
    rng = np.random.default_rng(0)
    centres = 3.0 * rng.normal(size=(k, dim))
    return centres[rng.integers(0, k, ROWS)] + rng.normal(size=(ROWS, dim))


def begun(covariance, dim, k, threads):
    """Return the sweeps of a fit and a state after the first of them."""
    model, X = cavity.GaussianMixture(k, covariance), problem(dim, k)
    data = open_rows(X, None, threads, k, covariance)
    sweeps = MixtureSweeps(build_prior_state(fill_priors(model, data, threads), data), data, threads)
    start, _ = next(generate_states(sweeps, init="principal"))
    return sweeps, sweeps.sweep(start)[0]


def sums(sweeps, state):
    """Return N_k, sums of r x and the sum of log densities, in the units of the data, from our kernel."""
    result, total = sweeps.sums(state)
    mean = sweeps.data.scaling.to_user_rows(state.factors.mean)
    first = result.first / sweeps.data.scaling.scale + result.counts[:, None] * mean
    return result.counts, first, total + sweeps.data.log_scale


def numpy_arguments(sweeps, state):
    """Return c, m and P for the implementations in NumPy, in the units of the data."""
    e_step = EStep.of(state, sweeps.data.scaling)
    precision, scale = e_step.precision, sweeps.data.scaling.scale
    if e_step.full:
        precision = np.swapaxes(precision, 1, 2) @ precision * scale[:, None]
    precision = precision * scale if e_step.full else precision * scale**2
    return e_step.height + np.sum(np.log(scale)), sweeps.data.scaling.to_user_rows(state.factors.mean), precision


@pytest.mark.parametrize(("covariance", "dim", "k"), CASES)
@pytest.mark.parametrize("name", ["cavity", "cavity, 2 threads", "expert", "naive", "sklearn"])
def test_pass(measure, name, covariance, dim, k):
    """One pass over the rows."""
    if name == "naive" and dim * k > 64:
        pytest.skip("an array of N x K x D does not fit")
    X = problem(dim, k)
    with Threads(2 if name.endswith("2 threads") else 1) as threads:
        sweeps, state = begun(covariance, dim, k, threads)
        if name == "sklearn":
            call = sklearn_iteration(X, covariance, k)
        elif name.startswith("cavity"):

            def call():
                return sweeps.sweep(state)
        else:
            arguments = numpy_arguments(sweeps, state)
            rival = reference.textbook if name == "naive" else reference.Blocked(dim, covariance == "full")
            counts, first, _, bound = rival(X, *arguments)
            for actual, expected in zip((counts, first, bound), sums(sweeps, state), strict=True):
                np.testing.assert_allclose(actual, expected, rtol=1e-8, atol=1e-6 * np.max(np.abs(expected)))

            def call():
                return rival(X, *arguments)

        measure(f"{covariance} mixture pass, N=2e5, D={dim}, K={k}", name, call, ROWS, "row")


def sklearn_iteration(X, covariance, k):
    """Return a function that does what scikit-learn does in every iteration."""
    mixture = pytest.importorskip("sklearn.mixture")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # one iteration does not converge
        model = mixture.BayesianGaussianMixture(
            n_components=k, covariance_type=covariance, max_iter=1, init_params="random_from_data", random_state=0
        ).fit(X)

    def iteration():
        log_norm, log_r = model._e_step(X)
        model._m_step(X, log_r)
        return model._compute_lower_bound(log_r, log_norm)

    return iteration
