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


FITS = [linear_regression]


@pytest.mark.filterwarnings("ignore::cavity.ConvergenceWarning")
@pytest.mark.parametrize("fit", FITS)
def test_threads_change_no_bit(fit):
    found = [np.concatenate([np.ravel(each) for each in fit(n_threads)]) for n_threads in (1, 2, 3)]
    np.testing.assert_array_equal(found[1], found[0])
    np.testing.assert_array_equal(found[2], found[0])
