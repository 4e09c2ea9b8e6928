"""Several classes from models of two: each class against the rest, probabilities normalised."""

import numpy as np
from scipy.special import logsumexp


def one_vs_rest(y, classes):
    """Labels -1.0 and 1.0 of each binary problem; of two classes there is one, the second."""
    return [np.where(y == label, 1.0, -1.0) for label in (classes[1:] if classes.size == 2 else classes)]


def normalised(inside):
    """Log probabilities of K classes from those of each against the rest, (n, K)."""
    return inside - logsumexp(inside, axis=1, keepdims=True)


def loo_log_density(posteriors, labels):
    """Log probability that all other rows give to each row's own class, (N,); labels are the numbers of the classes."""
    loo = np.stack([posterior.loo_log_density for posterior in posteriors], axis=1)  # of "is it" or "is it not"
    if len(posteriors) == 1:
        return loo[:, 0]
    own = np.arange(len(posteriors)) == labels[:, None]
    with np.errstate(divide="ignore"):
        is_it = np.where(own, loo, np.log(-np.expm1(np.minimum(loo, 0.0))))  # rounding may lift a log of 1 above 0
    return normalised(is_it)[own]
