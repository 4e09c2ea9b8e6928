"""Fits whose matrices are worked on in tiles have the same bits for any number of threads."""

import numpy as np
import pytest

import cavity
from cavity import covariances, likelihoods
from cavity.sklearn import GaussianProcessRegressor


@pytest.fixture(autouse=True)
def tiles_at_once(set_sizes):
    """All that has tiles takes them, shared by threads."""
    set_sizes(MIN_TILED_ROWS=1, FEW_FLOPS=0.0, MIN_WIDE_COLUMNS=1)


def numbers(n, d):
    """Rows (n, d) and targets."""
    rng = np.random.default_rng(n)
    X = rng.normal(size=(n, d))
    return X, np.sin(X[:, 0]) + X[:, 1] + 0.3 * rng.normal(size=n)


def signs(y):
    return np.where(y > 0, 1.0, -1.0)


def linear_regression(n_threads):
    X, y = numbers(400, 140)
    done = cavity.LinearRegression(intercept=False, ard=True).fit(X, y, max_iter=3, tol=1.0, n_threads=n_threads)
    return done.elbo, done.mean, *done.predict(X[:5])


def logistic_regression(n_threads):
    X, y = numbers(400, 140)
    done = cavity.LogisticRegression(intercept=False).fit(X, signs(y), max_iter=3, n_threads=n_threads)
    return done.elbo, done.mean, *done.predict(X[:5])


def process(likelihood, schedule):
    def fit(n_threads):
        X, y = numbers(300, 2)
        model = cavity.GaussianProcess(covariances.RBF(1.0, 1.0), likelihood)
        targets = y if isinstance(likelihood, likelihoods.Gaussian) else signs(y)
        done = model.fit(X, targets, learn=False, schedule=schedule, max_iter=3, n_threads=n_threads)
        predicted = done.predict(X[:280] + 0.1, n_threads=n_threads)
        gradient = [] if schedule == "sequential" else done.log_evidence_gradient
        return done.log_evidence, done.mean, done.variance, gradient, *predicted

    return fit


def streaming(likelihood):
    def fit(n_threads):
        X, y = numbers(400, 2)
        model = cavity.StreamingGP(covariances.RBF(1.0, 0.3), likelihood, inducing=X[:210], jitter=1e-4)
        targets = y if isinstance(likelihood, likelihoods.Gaussian) else signs(y)
        done = model.fit(X, targets, learn=False, n_threads=n_threads)
        return done.log_bound, done.mean, *done.predict(X[:280] + 0.1, n_threads=n_threads)

    return fit


def wide_glm(schedule, n, d):
    def fit(n_threads):
        X, y = numbers(n, d)
        model = cavity.GLM("probit", prior_variance=1.0 / d, standardize=False, intercept=False)
        done = model.fit(X, signs(y), schedule=schedule, max_iter=2, n_threads=n_threads)
        return done.log_evidence, done.mean, done.variance, *done.predict(X[:5])

    return fit


def factorized(_):
    X, _ = numbers(300, 270)
    model = cavity.FactorizedGaussian(np.zeros(270), X.T @ X + np.eye(270))
    return model.kl_minimum, model.marginals.variance


def scikit_learn(_):
    X, y = numbers(270, 2)
    done = GaussianProcessRegressor(alpha=0.1).fit(X, y)
    return done.log_marginal_likelihood_value_, *done.predict(X[:300] + 0.1, return_std=True)


FITS = {
    "linear regression": linear_regression,
    "logistic regression": logistic_regression,
    "exact process": process(likelihoods.Gaussian(0.1), "auto"),
    "process, parallel EP": process(likelihoods.Probit(), "parallel"),
    "process, sequential EP": process(likelihoods.Probit(), "sequential"),
    "streaming process": streaming(likelihoods.Gaussian(0.1)),
    "streaming process, EP": streaming(likelihoods.Probit()),
    "wide GLM, parallel": wide_glm("parallel", 300, 270),
    "wide GLM, sequential": wide_glm("sequential", 300, 270),
    "GLM of few rows": wide_glm("parallel", 140, 150),
    "factorised Gaussian": factorized,
    "scikit-learn's process": scikit_learn,
}


@pytest.mark.filterwarnings("ignore::cavity.ConvergenceWarning")
@pytest.mark.parametrize("name", FITS)
def test_threads_change_no_bit(name, monkeypatch):
    results = []
    for n_threads in (1, 2, 3):
        monkeypatch.setenv("CAVITY_NUM_THREADS", str(n_threads))
        results.append(np.concatenate([np.ravel(item) for item in FITS[name](n_threads)]))
    np.testing.assert_array_equal(results[1], results[0])
    np.testing.assert_array_equal(results[2], results[0])
