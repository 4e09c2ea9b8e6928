"""What the tests of Gaussian processes share: covariances with their naive twins, and problems."""

import functools

import numpy as np
from reference import gaussian_process as reference

from cavity import covariances, likelihoods
from support.glms import factors

__all__ = ["COVARIANCES", "NAMES", "Cauchy", "covariance", "factors", "known", "problem"]


def _pairs():
    """Every covariance of cavity on two columns beside the reference's kernel, by name."""
    ard = np.array([0.7, 1.8])
    rbf, matern = covariances.RBF(1.5, lengthscale=ard), covariances.Matern32(0.8, lengthscale=1.3)
    ref_rbf, ref_matern = reference.rbf(1.5, ard), reference.matern(3, 0.8, 1.3)
    waves = np.array([1.7, 2.9])
    return {
        "Constant": (covariances.Constant(1.4), reference.constant(1.4)),
        "White": (covariances.White(0.9), reference.white(0.9)),
        "Linear": (covariances.Linear(variance=[0.6, 1.1]), reference.linear(np.array([0.6, 1.1]))),
        "RBF": (rbf, ref_rbf),
        "Matern12": (covariances.Matern12(1.5, lengthscale=ard), reference.matern(1, 1.5, ard)),
        "Matern32": (matern, ref_matern),
        "Matern52": (covariances.Matern52(2.0, lengthscale=ard), reference.matern(5, 2.0, ard)),
        "RationalQuadratic": (
            covariances.RationalQuadratic(1.5, lengthscale=ard, shape=0.7),
            reference.rational_quadratic(1.5, ard, 0.7),
        ),
        "Periodic": (
            covariances.Periodic(1.2, lengthscale=[1.1, 0.9], period=waves),
            reference.periodic(1.2, [1.1, 0.9], waves),
        ),
        "sum": (
            rbf + covariances.Linear(0.3) + covariances.White(0.1),
            reference.total(ref_rbf, reference.linear(0.3), reference.white(0.1)),
        ),
        "product": (rbf * matern, reference.product(ref_rbf, ref_matern)),
    }


COVARIANCES = tuple(_pairs())


def covariance(name="RBF"):
    """(cavity's covariance, the reference's kernel)."""
    return _pairs()[name]


class Cauchy(likelihoods.Likelihood):
    """A likelihood of the user's own, by its density alone."""

    def log_p(self, y, f):
        """Log density of y = f + 0.5 Cauchy noise."""
        return -np.log(0.5 * np.pi * (1 + ((y - f) / 0.5) ** 2))


@functools.cache
def inputs(n, d, seed):
    """Rows in no order."""
    X = np.random.default_rng(seed).uniform(-2, 2, (n, d))
    X.flags.writeable = False
    return X


def latent(X):
    """A function to observe."""
    return 1.2 * np.sin(2 * X[:, 0]) + 0.5 * X[:, -1]


def problem(name, n=12, d=2, seed=0):
    """(likelihood, X, y) of a small problem for each likelihood."""
    X, rng = inputs(n, d, seed), np.random.default_rng(seed + 100)
    f = latent(X)
    labels = np.where(f + rng.normal(size=n) > 0, 1, -1)
    thresholds = [-1.0, 0.5]
    return {
        "Probit": lambda: (likelihoods.Probit(), X, labels),
        "Logit": lambda: (likelihoods.Logit(), X, labels),
        "OrderedProbit": lambda: (
            likelihoods.OrderedProbit(thresholds),
            X,
            np.digitize(f + rng.normal(size=n), thresholds),
        ),
        "Poisson": lambda: (likelihoods.Poisson(), X, rng.poisson(np.exp(f))),
        "StudentT": lambda: (likelihoods.StudentT(4.0, 0.4), X, f + 0.4 * rng.standard_t(4, size=n)),
        "Laplace": lambda: (likelihoods.Laplace(0.5), X, f + rng.laplace(scale=0.5, size=n)),
        "Cauchy": lambda: (Cauchy(), X, f + 0.5 * rng.standard_cauchy(size=n).clip(-4, 4)),
        "Gaussian": lambda: (likelihoods.Gaussian(0.3), X, f + np.sqrt(0.3) * rng.normal(size=n)),
    }[name]()


NAMES = ("Probit", "Logit", "OrderedProbit", "Poisson", "StudentT", "Laplace", "Cauchy")


@functools.cache
def known(name, kernel="RBF", n=12, d=2, seed=0):
    """EP of the reference on `problem(name, n, d, seed)`, prior mean 0; computed once."""
    likelihood, X, y = problem(name, n, d, seed)
    K = covariance(kernel)[1](X, X)
    return reference.ep(K, factors(likelihood, y))
