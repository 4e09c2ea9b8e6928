"""What tests of pictures share: rows, and posteriors of them."""

import numpy as np

import cavity
from cavity import covariances, likelihoods

RNG = np.random.default_rng(0)
X = RNG.normal(size=(60, 2))
Y = X @ [1.0, -2.0] + 0.3 * RNG.normal(size=60)
COUNTS = RNG.poisson(np.exp(0.5 * X[:, 0]))
TWO = np.where(Y > 0, "yes", "no")


def glm(likelihood="gaussian", y=Y, columns=2, **options):
    return cavity.GLM(likelihood, prior_variance=9.0, intercept=True).fit(X[:, :columns], y, **options)


def process(columns, likelihood=None, y=Y):
    model = cavity.GaussianProcess(covariances.RBF(4.0), likelihood or likelihoods.Gaussian(0.1))
    return model.fit(X[:, :columns], y, learn=False)
