"""What the tests of Gaussian mixtures share: data, models, and the words of the reference for them."""

import itertools

import numpy as np
import pytest
from reference import gaussian_mixture as ref

import cavity

COVARIANCES = ("full", "tied", "diag", "spherical")
WEIGHTS = ("dirichlet", "stick_breaking")
every_covariance = pytest.mark.parametrize("covariance", COVARIANCES)
every_kind = pytest.mark.parametrize(("covariance", "weights"), list(itertools.product(COVARIANCES, WEIGHTS)))


def draws(seed, n, means, noise=1.0):
    """Rows (n, D) around means (K, D)."""
    rng = np.random.default_rng(seed)
    means = np.array(means, dtype=float)
    return means[rng.integers(len(means), size=n)] + noise * rng.normal(size=(n, means.shape[1]))


def with_gaps(X, seed=0, share=0.2):
    """The same, of which some entries are missing."""
    return np.where(np.random.default_rng(seed).random(X.shape) < share, np.nan, X)


def groups(n=300, seed=0):
    """Rows of three groups in four columns."""
    rng = np.random.default_rng(seed)
    centres = np.array([[0.0, 0.0, 0.0, 0.0], [8.0, 0.0, 0.0, 1.0], [0.0, 9.0, -3.0, 0.0]])
    return centres[rng.integers(0, 3, n)] + rng.normal(size=(n, 4))


def faithful(standard=False):
    """Old Faithful (272, 2), standardised with ddof=0 on request."""
    columns, _ = cavity.data.table("faithful")
    X = np.column_stack([columns["eruptions"], columns["waiting"]])
    return (X - X.mean(axis=0)) / X.std(axis=0) if standard else X


def model_of(covariance, k, dim, weights="dirichlet", **priors):
    """A model of which every prior is given, so that it does not depend on the data."""
    root = np.tril(np.random.default_rng(dim).normal(size=(dim, dim)), -1) + 1.5 * np.eye(dim)
    scatter = {"diag": np.linspace(0.7, 1.9, dim), "spherical": 1.3}.get(covariance, root @ root.T)
    settings = {
        "weight_concentration_prior": 0.7,
        "mean_prior": np.linspace(-0.5, 0.5, dim),
        "mean_precision_prior": 0.6,
        "degrees_of_freedom_prior": dim + 1.5,
        "covariance_prior": scatter,
    }
    return cavity.GaussianMixture(k, covariance, weights, **settings | priors)


def prior_of(model):
    """The prior as the reference knows it."""
    return {
        "covariance": model.covariance,
        "weights": model.weights,
        "alpha": model.weight_concentration_prior,
        "m0": np.array(model.mean_prior),
        "beta0": model.mean_precision_prior,
        "nu0": model.degrees_of_freedom_prior,
        "V0": np.array(model.covariance_prior),
    }


def factors_of(post):
    """The factors of a posterior as the reference knows them."""
    beta = post.mean_precision
    if post.model.covariance in ("diag", "spherical"):
        beta = np.broadcast_to(beta[:, None] if beta.ndim == 1 else beta, post.mean.shape)
    weights = "alpha" if post.model.weights == "dirichlet" else "sticks"
    return {
        weights: post.weight_concentration,
        "mean": post.mean,
        "beta": beta,
        "nu": post.degrees_of_freedom,
        "V": post.inverse_scale,
    }


def reference_elbo(X, w, post):
    """The ELBO of the factors of a posterior and the q(z) that is best for them, term by term."""
    prior, q = prior_of(post.model), factors_of(post)
    return ref.elbo(X, w, prior, q, ref.e_step(X, prior, q))


def assert_same_factors(one, other, **tolerance):
    """Compare all that q is made of."""
    a, b = factors_of(one), factors_of(other)
    for name in a:
        np.testing.assert_allclose(a[name], b[name], **tolerance, err_msg=name)


def assert_same_bits(one, other):
    """Compare the ELBO, the counts and all factors."""
    assert one.elbo == other.elbo
    np.testing.assert_array_equal(one.counts, other.counts)
    for a, b in zip(factors_of(one).values(), factors_of(other).values(), strict=True):
        np.testing.assert_array_equal(a, b)
