"""Moments of f that are mixtures over the points of an integral over hyperparameters, and averages over the points."""

import numpy as np

from cavity.base.lazy_scipy import special
from cavity.models.posterior_mixture import mix_moments
from cavity.models.predictive_densities import integrate_log_density


class PointMoments(tuple):
    """The means and variances (n,) of f of a mixture, a pair, with those at the points and the likelihoods there."""

    def __new__(cls, weights, likelihoods, means, variances):
        """Return the pair; `means` and `variances` are (P, n)."""
        pair = super().__new__(cls, mix_moments(weights, means, variances))
        pair.points = list(zip(weights.tolist(), likelihoods, means, variances, strict=True))
        return pair


def list_points(likelihood, moments):
    """Return weights, likelihoods, means and variances (n,) of f at the points; of other moments of the one."""
    return moments.points if isinstance(moments, PointMoments) else [(1.0, likelihood, *moments)]


def average_over_points(function, likelihood, moments):
    """Return the mean of function(likelihood, mean, variance) over the points."""
    points = list_points(likelihood, moments)
    if len(points) == 1:
        return function(*points[0][1:])
    return sum(weight * function(*point) for weight, *point in points)


def average_log_density(likelihood, y, moments):
    """Return the log of the mean over the points of the predictive density of observations, (n,)."""
    points = list_points(likelihood, moments)
    if len(points) == 1:
        return integrate_log_density(points[0][1], y, *points[0][2:])
    densities = [integrate_log_density(law, y, mean, variance) for _, law, mean, variance in points]
    with np.errstate(divide="ignore"):
        return special.logsumexp(np.stack(densities), axis=0, b=np.array([weight for weight, *_ in points])[:, None])


def average_moments(function, likelihood, moments):
    """Return the mean and the variance of the mixture of function(likelihood, mean, variance) over the points."""
    points = list_points(likelihood, moments)
    if len(points) == 1:
        return function(*points[0][1:])
    weights = np.array([weight for weight, *_ in points])
    moments = [function(*point) for _, *point in points]
    return mix_moments(weights, *(np.stack(part) for part in zip(*moments, strict=True)))
