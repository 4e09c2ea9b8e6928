"""Draws of observations by their definition, from random numbers of NumPy alone, for every likelihood."""

import numpy as np
from scipy.special import expit, ndtr

from cavity import likelihoods

INSPECTIONS = np.array([0.3, 1.0, 3.0])  # of times that are looked after now and then
THRESHOLDS = [-1.0, 0.5, 2.0]
UNDER_ONE = 1 - 2.0**-53


def censor(rng, times):
    """Bounds of times: observed, right-censored by another time, or seen at inspections only, a third each."""
    bounds = np.column_stack([times, times])
    kind = np.arange(len(times)) % 3
    ends = rng.exponential(2.0, len(times))
    right = (kind == 1) & (ends < times)
    bounds[right] = np.column_stack([ends, np.full(len(times), np.inf)])[right]
    cell = np.searchsorted(INSPECTIONS, times)
    edges = np.concatenate([[0.0], INSPECTIONS, [np.inf]])
    bounds[kind == 2] = np.column_stack([edges[cell], edges[cell + 1]])[kind == 2]
    return bounds


def draw_tweedie(rng, mean, power, dispersion):
    """Sums of a Poisson number of gamma amounts."""
    numbers = rng.poisson(mean ** (2 - power) / (dispersion * (2 - power)))
    shape, scale = (2 - power) / (power - 1), dispersion * (power - 1) * mean ** (power - 1)
    return np.where(numbers > 0, rng.gamma(np.maximum(numbers, 1) * shape, scale), 0.0)


def draw_positive_poisson(rng, mean):
    """Poisson counts above zero: the first event of a unit of time falls inside, the others after it."""
    first = -np.log1p(rng.random(mean.shape) * np.expm1(-mean))
    return 1 + rng.poisson(mean - np.minimum(first, mean))


def draw_negative_binomial(rng, mean, dispersion):
    """Poisson counts of gamma means."""
    return rng.poisson(rng.gamma(dispersion, mean / dispersion))


def draw_counts_of_trials(rng, share):
    """(successes, trials) of 1 to 12 trials."""
    trials = rng.integers(1, 13, len(share))
    return np.column_stack([rng.binomial(trials, share), trials])


def draw_clutter(rng, f, weight, variance, noise_variance):
    """An observation of f, or clutter."""
    seen = f + np.sqrt(noise_variance) * rng.normal(size=f.shape)
    return np.where(rng.random(f.shape) < weight, np.sqrt(variance) * rng.normal(size=f.shape), seen)


def draw_asymmetric_laplace(rng, f, quantile, scale):
    """A difference of two exponential numbers."""
    up, down = rng.exponential(size=(2, *f.shape))
    return f + scale * (up / quantile - down / (1 - quantile))


def draw_beta(rng, f, precision):
    """Shares, of which the nearest to 0 and 1 are taken for those that round to them."""
    return np.clip(rng.beta(precision * expit(f), precision * expit(-f)), 1e-300, UNDER_ONE)


def label(rng, p):
    """Labels -1 and 1."""
    return np.where(rng.random(p.shape) < p, 1.0, -1.0)


def count_inside(rng, noise):
    """The number of thresholds below."""
    return np.digitize(noise, THRESHOLDS).astype(float)


COMMON_RESPONSES = {
    "Gaussian": ({"noise_variance": 0.5}, lambda rng, f: f + np.sqrt(0.5) * rng.normal(size=f.shape)),
    "Laplace": ({"scale": 0.7}, lambda rng, f: f + rng.laplace(0, 0.7, f.shape)),
    "StudentT": ({"degrees_of_freedom": 4.0, "scale": 0.5}, lambda rng, f: f + 0.5 * rng.standard_t(4.0, f.shape)),
    "Clutter": (
        {"clutter_weight": 0.2, "clutter_variance": 20.0, "noise_variance": 0.5},
        lambda rng, f: draw_clutter(rng, f, 0.2, 20.0, 0.5),
    ),
    "Interval": (
        {"noise_variance": 0.5},
        lambda rng, f: np.floor(f + np.sqrt(0.5) * rng.normal(size=f.shape))[:, None] + [0.0, 1.0],
    ),
    "Probit": ({}, lambda rng, f: np.where(f + rng.normal(size=f.shape) > 0, 1.0, -1.0)),
    "Logit": ({}, lambda rng, f: label(rng, expit(f))),
    "OrderedProbit": ({"thresholds": THRESHOLDS}, lambda rng, f: count_inside(rng, f + rng.normal(size=f.shape))),
    "Binomial": ({}, lambda rng, f: draw_counts_of_trials(rng, expit(f))),
    "Binomial, probit": ({"link": "probit"}, lambda rng, f: draw_counts_of_trials(rng, ndtr(f))),
    "Poisson": ({}, lambda rng, f: rng.poisson(np.exp(f))),
    "NegativeBinomial": ({"dispersion": 2.0}, lambda rng, f: draw_negative_binomial(rng, np.exp(f), 2.0)),
}
SPECIAL_RESPONSES = {
    "Gamma": ({"shape": 2.0}, lambda rng, f: rng.gamma(2.0, np.exp(f) / 2.0)),
    "LogNormal": ({"sd": 0.7}, lambda rng, f: censor(rng, np.exp(f + 0.7 * rng.normal(size=f.shape)))),
    "Exponential": ({}, lambda rng, f: censor(rng, np.exp(f) * rng.exponential(size=f.shape))),
    "Weibull": ({"shape": 1.5}, lambda rng, f: censor(rng, np.exp(f) * rng.weibull(1.5, f.shape))),
    "Weibull, hazard": (
        {"shape": 1.5, "effect": "hazard"},
        lambda rng, f: censor(rng, (rng.exponential(size=f.shape) * np.exp(-f)) ** (1 / 1.5)),
    ),
    "LogLogistic": ({"shape": 1.5}, lambda rng, f: censor(rng, np.exp(f + rng.logistic(size=f.shape) / 1.5))),
    "Tweedie": ({"power": 1.5, "dispersion": 1.0}, lambda rng, f: draw_tweedie(rng, np.exp(f), 1.5, 1.0)),
    "Beta": ({"precision": 8.0}, lambda rng, f: draw_beta(rng, f, 8.0)),
    "BetaBinomial": ({"precision": 4.0}, lambda rng, f: draw_counts_of_trials(rng, draw_beta(rng, f, 4.0))),
    "ZeroInflatedPoisson": (
        {"zero_probability": 0.3},
        lambda rng, f: rng.poisson(np.exp(f)) * (rng.random(f.shape) >= 0.3),
    ),
    "ZeroInflatedNegativeBinomial": (
        {"dispersion": 2.0, "zero_probability": 0.3},
        lambda rng, f: draw_negative_binomial(rng, np.exp(f), 2.0) * (rng.random(f.shape) >= 0.3),
    ),
    "HurdlePoisson": (
        {"zero_probability": 0.3},
        lambda rng, f: draw_positive_poisson(rng, np.exp(f)) * (rng.random(f.shape) >= 0.3),
    ),
    "Cloglog": ({}, lambda rng, f: label(rng, -np.expm1(-np.exp(f)))),
    "OrderedLogit": ({"thresholds": THRESHOLDS}, lambda rng, f: count_inside(rng, f + rng.logistic(size=f.shape))),
    "AsymmetricLaplace": (
        {"quantile_level": 0.75, "scale": 0.3},
        lambda rng, f: draw_asymmetric_laplace(rng, f, 0.75, 0.3),
    ),
}
RESPONSES = COMMON_RESPONSES | SPECIAL_RESPONSES
# without noise the posterior ends at a plane of each row, which EP's is too narrow for
NOISELESS = {"Step": ({}, lambda rng, f: np.where(f > 0, 1.0, -1.0))}
# of noise that it is not: N(0, 1), less its quantile; the scale is the mean loss, where it has most likelihood
MISSPECIFIED = {
    "AsymmetricLaplace, normal noise": (
        {"quantile_level": 0.75, "scale": 0.3177765},
        lambda rng, f: f + rng.normal(size=f.shape) - 0.6744898,
    )
}
TABLE = RESPONSES | NOISELESS | MISSPECIFIED


def make_likelihood(name):
    """Return the likelihood of a row of the table."""
    return getattr(likelihoods, name.partition(",")[0])(**TABLE[name][0])


def draw(name, rng, f):
    """Draw observations with latent values f."""
    return TABLE[name][1](rng, f)
