"""Online probit regression with a million sparse features: cavity beside scikit-learn's SGD and a NumPy loop.

Run by `python benchmarks/run.py`, or `pytest benchmarks/cases/bench_diagonal.py`. SGDClassifier is skipped where
scikit-learn is not installed; it sees the same matrix once, in order, as ADF does, but learns no variances.
"""

from functools import lru_cache

import numpy as np
import pytest
from scipy import sparse
from scipy.special import log_ndtr

from cavity import likelihoods
from cavity.base.rows import Rows
from cavity.ep.options import Options
from cavity.models.glm import diagonal
from cavity.models.linear.prior import Prior

ROWS, ACTIVE, COLUMNS = 1_000_000, 20, 1_000_000
EP_ROWS = 250_000
LOOP = 2_000  # rows of the NumPy loop, which takes 20 microseconds each
PROBIT = likelihoods.Probit()
PRIOR = Prior.of(0.0, 1.0, COLUMNS)


@lru_cache(maxsize=1)
def problem(features):
    """Return a CSR matrix of ones with int32 indices, sorted and unique in each row, and labels."""
    rng = np.random.default_rng(1)
    if features == "uniform":
        indices = rng.integers(0, COLUMNS, (ROWS, ACTIVE), dtype=np.int32)
    else:  # P(feature > k) = 1 - log k/log COLUMNS: Zipf's law with exponent 1
        indices = np.minimum(COLUMNS ** rng.random((ROWS, ACTIVE)), COLUMNS - 1).astype(np.int32)
    rows = sparse.csr_matrix(
        (np.ones(ROWS * ACTIVE), indices.reshape(-1), np.arange(ROWS + 1, dtype=np.int32) * ACTIVE),
        shape=(ROWS, COLUMNS),
    )
    rows.sum_duplicates()
    rows.data[:] = 1.0
    return rows, np.where(rng.random(ROWS) < 0.3, 1.0, -1.0)


def fit(rows, y, method="ep", **options):
    """Fit with a standard normal prior."""
    return diagonal.fit(PROBIT, Rows(rows, y), PRIOR, method, Options(**options))


def numpy_loop(rows, y):
    """Return means and variances after ADF, with the features of a row as arrays."""
    mean, variance = np.zeros(rows.shape[1]), np.ones(rows.shape[1])
    for i in range(rows.shape[0]):
        part = slice(rows.indptr[i], rows.indptr[i + 1])
        j, x = rows.indices[part], rows.data[part]
        m, share = x @ mean[j], x * x * variance[j]
        s2 = 1.0 + share.sum()
        z = y[i] * m / np.sqrt(s2)
        hazard = np.exp(-0.5 * z * z - log_ndtr(z)) / np.sqrt(2 * np.pi)
        mean[j] += variance[j] * x * (y[i] * hazard / np.sqrt(s2))
        variance[j] *= 1.0 - share * (hazard * (hazard + z) / s2)
    return mean, variance


@pytest.mark.parametrize("features", ["uniform", "zipf"])
@pytest.mark.parametrize("name", ["cavity", "sgd", "naive"])
def test_one_pass(measure, features, name):
    """ADF, all checks included, and what others do in one pass."""
    rows, y = problem(features)
    few = rows[:LOOP]
    if name == "naive":
        result = fit(few, y[:LOOP], method="adf")
        mean, variance = numpy_loop(few, y[:LOOP])
        np.testing.assert_allclose(result.belief.mean, mean, rtol=1e-9, atol=1e-12)
        np.testing.assert_allclose(result.belief.variance, variance, rtol=1e-9)
        count, call = LOOP, lambda: numpy_loop(few, y[:LOOP])
    elif name == "sgd":
        linear_model = pytest.importorskip("sklearn.linear_model")
        classifier = linear_model.SGDClassifier(loss="log_loss", shuffle=False)
        classifier.partial_fit(rows, y, classes=[-1.0, 1.0])
        assert np.isfinite(classifier.coef_).all()
        count, call = ROWS, lambda: classifier.partial_fit(rows, y)
    else:
        count, call = ROWS, lambda: fit(rows, y, method="adf")
    measure(f"ADF, 20 of 1e6 {features} features", name, call, count, "row")


@pytest.mark.parametrize("features", ["uniform", "zipf"])
def test_three_passes_of_ep(measure, features):
    """Start, three passes, evidence and leave-one-out densities; per row and pass."""
    rows, y = (full[:EP_ROWS] for full in problem(features))
    result = fit(rows, y, max_iter=3)
    assert np.isfinite(result.log_evidence)
    measure(f"EP, 20 of 1e6 {features} features", "cavity", lambda: fit(rows, y, max_iter=3), 3 * EP_ROWS, "row")
