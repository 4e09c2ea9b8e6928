"""Fits have the same bits whatever their rows come from, and whoever works on them."""

import numpy as np
import pytest

import cavity
from cavity import covariances, likelihoods


def numbers(n, d):
    """Return rows X (n, d), real y, and labels."""
    rng = np.random.default_rng(n)
    X = rng.normal(size=(n, d)) + 0.5
    f = X @ np.linspace(1.0, -0.5, d)
    return X, f + rng.normal(0.0, 0.3, n), f + rng.normal(0.0, 0.3, n) > 0


X, Y, LABELS = numbers(40_000, 3)
FEW = slice(3000)
RBF = covariances.RBF(1.0, [2.0, 2.0, 2.0])


def linear(x, **options):
    return cavity.LinearRegression().fit(x, Y, **options)


def logistic(x, **options):
    return cavity.LogisticRegression().fit(x, LABELS, max_iter=4, tol=1.0, **options)


def clutter(x, **options):
    return cavity.Clutter(prior_variance=50.0).fit(x, schedule="parallel", **options)


def clutter_in_turn(x, **options):
    return cavity.Clutter(prior_variance=50.0).fit(x, **options)


def clutter_adf(x, **options):
    return cavity.Clutter(prior_variance=50.0).fit(x, method="adf", **options)


def stream(x, **options):
    model = cavity.StreamingGP(RBF, likelihoods.Gaussian(0.1), n_inducing=20)
    return model.fit(x, Y[FEW], learn=False, **options)


def stream_of_labels(x, **options):
    model = cavity.StreamingGP(RBF, likelihoods.Probit(), n_inducing=10)
    return model.fit(x, LABELS[FEW], learn=False, **options)


FITS = {
    "linear regression": (linear, X),
    "logistic regression": (logistic, X),
    "clutter": (clutter, X),
    "clutter of numbers": (clutter, X[:, 0]),
    "clutter in turn": (clutter_in_turn, X[:20_000]),
    "clutter adf": (clutter_adf, X),
    "stream": (stream, X[FEW]),
    "stream of labels": (stream_of_labels, X[FEW]),
}


def bits(posterior):
    """Return what a posterior would save, as bytes and settings."""
    arrays, settings = posterior.to_arrays()
    settings.pop("columns", None)
    return {name: array.tobytes() for name, array in arrays.items()} | {"settings": str(settings)}


def mapped(array, folder):
    np.save(folder / "all.npy", array)
    return np.load(folder / "all.npy", mmap_mode="r")


def files(array, folder):
    """Files that end within blocks, of two dtypes and orders that lose nothing."""
    third = len(array) // 3
    np.save(folder / "a.npy", array[:third])
    np.save(folder / "b.npy", np.asfortranarray(array[third : third + 1]))
    np.save(folder / "c.npy", np.asfortranarray(array[third + 1 :].astype(">f8")))
    return [folder / "a.npy", str(folder / "b.npy"), folder / "c.npy"]


def opened(array, folder):
    return cavity.source(files(array, folder))


def by_columns(array, folder):
    return np.asfortranarray(array)


@pytest.mark.parametrize("name", FITS)
def test_sources_and_threads_change_no_bit(name, tmp_path):
    fit, array = FITS[name]
    wanted = bits(fit(array))
    for kind in (mapped, by_columns, files, opened):
        assert bits(fit(kind(array, tmp_path))) == wanted, kind.__name__
    for data in (array, files(array, tmp_path)):
        assert bits(fit(data, n_threads=2)) == wanted
