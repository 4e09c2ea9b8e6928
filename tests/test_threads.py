"""Fits whose matrices are worked on in tiles have the same bits for any number of threads."""

import numpy as np
import pytest

import cavity
from cavity.blocks import tiled
from cavity.models.regression import linear


@pytest.fixture(autouse=True)
def tiles_at_once(monkeypatch):
    """All that has tiles takes them, shared by threads."""
    monkeypatch.setattr(tiled, "MANY", 1)
    monkeypatch.setattr(tiled, "FEW_FLOPS", 0.0)
    monkeypatch.setattr(linear, "WIDE", 1)


def numbers(n, d):
    """Rows (n, d) and targets."""
    rng = np.random.default_rng(n)
    X = rng.normal(size=(n, d))
    return X, np.sin(X[:, 0]) + X[:, 1] + 0.3 * rng.normal(size=n)


def signs(y):
    return np.where(y > 0, 1.0, -1.0)


def linear_regression(n_threads):
    X, y = numbers(400, 140)
    done = cavity.LinearRegression(ard=True).fit(X, y, max_iter=3, tol=1.0, n_threads=n_threads)
    return done.elbo, done.mean, *done.predict(X[:5])


def wide_glm(schedule, n, d):
    def fit(n_threads):
        X, y = numbers(n, d)
        model = cavity.GLM("probit", prior_variance=1.0 / d, standardize=False, intercept=False)
        done = model.fit(X, signs(y), schedule=schedule, max_iter=2, n_threads=n_threads)
        return done.log_evidence, done.mean, done.variance, *done.predict(X[:5])

    return fit


FITS = {
    "linear regression": linear_regression,
    "wide GLM, parallel": wide_glm("parallel", 300, 270),
    "wide GLM, sequential": wide_glm("sequential", 300, 270),
    "GLM of few rows": wide_glm("parallel", 140, 150),
}


@pytest.mark.filterwarnings("ignore::cavity.ConvergenceWarning")
@pytest.mark.parametrize("name", FITS)
def test_threads_change_no_bit(name):
    found = [np.concatenate([np.ravel(each) for each in FITS[name](n_threads)]) for n_threads in (1, 2, 3)]
    np.testing.assert_array_equal(found[1], found[0])
    np.testing.assert_array_equal(found[2], found[0])
