"""Log predictive densities of observations, and probabilities of classes, from the moments of f."""

import numpy as np

from cavity import likelihoods
from cavity.ep.sites import find_tilted_moments
from cavity.likelihoods.base import SHARED_ONE
from cavity.likelihoods.predictive import MIN_VARIANCE

SYMMETRIC_LIKELIHOODS = likelihoods.Probit, likelihoods.Logit, likelihoods.Step  # p(-y|f) = p(y|-f)


def integrate_log_density(likelihood, y, mean, variance):
    """log of the integral of p(y|f) N(f; mean, variance) for checked vectors; a variance may be zero."""
    out = np.empty(len(mean))
    sure = variance < MIN_VARIANCE
    if sure.any():
        out[sure] = likelihood.log_p(y[sure], mean[sure])
    if not sure.all():
        out[~sure] = find_tilted_moments(likelihood, y[~sure], SHARED_ONE, mean[~sure], variance[~sure])[0]
    return out


def predict_class_probabilities(likelihood, predict):
    """Probabilities (n, n_classes) of the classes of a likelihood; predict() gives the means and variances of f."""
    classes = likelihood.n_classes
    if classes is None:
        name = type(likelihood).__name__
        raise ValueError(f"predict_proba needs a likelihood of classes, got {name}; see log_density and expected")
    mean, variance = predict()
    if isinstance(likelihood, SYMMETRIC_LIKELIHOODS):
        return np.exp(integrate_both_log_densities(likelihood, mean, variance))
    labels = (likelihood.check(np.full(len(mean), float(k))) for k in range(classes))
    return np.exp(np.column_stack([integrate_log_density(likelihood, y, mean, variance) for y in labels]))


def integrate_both_log_densities(likelihood, mean, variance):
    """Log probabilities of -1 and 1, (n, 2), under a likelihood in SYMMETRIC, for f of these moments.

    The label less probable is the one that the mean of f is against; the other one has what is left.
    """
    positive = mean > 0
    log_negative = integrate_log_density(likelihood, np.where(positive, -1.0, 1.0), mean, variance)
    more = np.log1p(-np.exp(log_negative))
    return np.stack([np.where(positive, log_negative, more), np.where(positive, more, log_negative)], axis=1)
