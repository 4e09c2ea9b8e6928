"""Simulation-based calibration: how often intervals hold what the data were drawn from.

Coefficients are drawn from the prior, observations from the likelihood at fixed parameters. Under the exact
posterior an interval of 90 % holds the drawn value 90 times of 100, and where it is a Gaussian, z = (drawn - mean)/sd
is standard normal; an approximation may miss [1]_.

.. [1] S. Talts, M. Betancourt, D. Simpson, A. Vehtari and A. Gelman, Validating Bayesian inference algorithms with
   simulation-based calibration, arXiv:1804.06788.
"""

import numpy as np
from scipy.special import ndtri

import cavity
from support.responses import draw, make_likelihood

LEVELS = np.array([0.5, 0.9, 0.95])
ROWS, COLUMNS = 60, 4
GROUPS = 8
NEW_ROWS = 4
LATENT_VARIANCE, GROUP_VARIANCE = 2.0, 0.5  # of x'w, and of the levels of the group


def simulate(name, rng, grouped, rows=ROWS, columns=COLUMNS):
    """Draw one dataset and fit it: z of the coefficients, of the linear predictor at new rows, of levels of a group.

    Returns (columns,), (NEW_ROWS,), (GROUPS,) or an empty array, and whether the fit converged.
    """
    n = rows + NEW_ROWS
    X = np.column_stack([np.ones(n), rng.normal(size=(n, columns - 1))])
    variance = LATENT_VARIANCE / columns
    weights = rng.normal(size=columns) * np.sqrt(variance)
    f, settings = X @ weights, {"prior_mean": 0.0, "prior_variance": variance, "intercept": False}
    if not grouped:
        posterior = cavity.GLM(make_likelihood(name), **settings).fit(X[:rows], draw(name, rng, f[:rows]))
        levels, others = np.empty(0), {}
    else:
        groups = np.arange(n) % GROUPS
        effects = rng.normal(size=GROUPS) * np.sqrt(GROUP_VARIANCE)
        f = f + effects[groups]
        model = cavity.MixedGLM("g", make_likelihood(name), effect_covariances={"g": GROUP_VARIANCE}, **settings)
        posterior = model.fit(X[:rows], draw(name, rng, f[:rows]), groups={"g": groups[:rows]})
        mean, variance = posterior.effect_moments("g")
        levels = (effects - mean.ravel()) / np.sqrt(variance.ravel())
        others = {"groups": {"g": groups[rows:]}}
    mean, variance = posterior.predict(X[rows:], **others)
    coefficients = (weights - posterior.mean) / np.sqrt(posterior.variance)
    return coefficients, (f[rows:] - mean) / np.sqrt(variance), levels, posterior.converged


def calibrate(name, n, seed, grouped=False, **sizes):
    """Return z of n datasets, by coefficients, predictor and levels, (n, k) each, and the number that converged."""
    rng = np.random.default_rng([seed, len(name), grouped, *map(ord, name)])
    *values, converged = zip(*(simulate(name, rng, grouped, **sizes) for _ in range(n)), strict=True)
    return tuple(np.array(value) for value in values), sum(converged)


def cover(z):
    """Return the share of z inside central intervals of LEVELS, and its standard error: datasets are independent."""
    inside = np.abs(z[:, :, None]) <= ndtri(0.5 + LEVELS / 2)
    share = inside.mean(axis=1)
    independent = np.sqrt(LEVELS * (1 - LEVELS) / z.size)  # the least it can be, where few draws are outside
    return share.mean(axis=0), np.maximum(share.std(axis=0, ddof=1) / np.sqrt(len(z)), independent)
