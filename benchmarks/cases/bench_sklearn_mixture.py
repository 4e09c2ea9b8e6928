"""The scikit-learn mixtures beside scikit-learn's: fits of a few passes over the rows from the same start.

`pytest benchmarks/cases/bench_sklearn_mixture.py`: takes minutes and is no part of `run.py`; skipped without
scikit-learn.
"""

import warnings

import numpy as np
import pytest

theirs = pytest.importorskip("sklearn.mixture")
ours = pytest.importorskip("cavity.sklearn")

ROWS, ITERATIONS = 200_000, 5
CASES = [("full", 2, 8), ("full", 8, 8), ("tied", 8, 8), ("diag", 8, 8), ("spherical", 8, 8)]


@pytest.mark.parametrize(("covariance", "dim", "k"), CASES)
@pytest.mark.parametrize("kind", ["GaussianMixture", "BayesianGaussianMixture"])
@pytest.mark.parametrize("name", ["cavity", "cavity, 2 threads", "sklearn"])
def test_iterations(measure, name, kind, covariance, dim, k):
    """A fit that starts from k rows and stops after a few iterations."""
    rng = np.random.default_rng(0)
    X = 3.0 * rng.normal(size=(k, dim))[rng.integers(0, k, ROWS)] + rng.normal(size=(ROWS, dim))
    settings = dict(n_components=k, covariance_type=covariance, max_iter=ITERATIONS, tol=0.0, random_state=0)
    settings["init_params"] = "random_from_data"
    truth = getattr(theirs, kind)(**settings)
    mixture = truth
    if name != "sklearn":
        mixture = getattr(ours, kind)(**settings, n_threads=2 if name.endswith("2 threads") else 1)

    def call():
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # a few iterations do not converge
            return mixture.fit(X)

    if name == "cavity" and kind == "GaussianMixture":  # the other has a model and an acceleration of its own
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            np.testing.assert_allclose(mixture.fit(X).means_, truth.fit(X).means_, rtol=1e-6, atol=1e-6)
    title = f"{kind} for scikit-learn, {covariance}, N=2e5, D={dim}, K={k}, {ITERATIONS} iterations"
    measure(title, name, call, ROWS * ITERATIONS, "row and iteration")
