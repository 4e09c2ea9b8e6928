"""What several tasks judge fits by."""

import numpy as np
from scipy.special import log_expit, log_ndtr


def mean_log_density(y, mean, variance):
    """Return the mean log density of rows under normal predictions."""
    variance = np.ravel(variance)
    return float(np.mean(-0.5 * (y - np.ravel(mean)) ** 2 / variance - 0.5 * np.log(2.0 * np.pi * variance)))


def mean_log_probability(y, p):
    """Return the mean log probability of labels 0 and 1, where p is that of 1."""
    p = np.ravel(p)
    return float(np.mean(np.log(np.where(y == 1, p, 1.0 - p))))


def log_probability(link, y, f):
    """Return log p(y|f) of labels 0 and 1."""
    return (log_expit if link == "logit" else log_ndtr)((2.0 * y - 1.0) * f)


def sides(rng, n, dim, link):
    """Return rows with a first column of ones, and labels that a linear function makes more or less probable."""
    X = np.column_stack([np.ones(n), rng.normal(size=(n, dim - 1))])
    noise = rng.logistic(size=n) if link == "logit" else rng.normal(size=n)
    return X, (X @ (0.5 * np.sin(np.arange(dim) + 1.0)) + noise > 0).astype(float)
