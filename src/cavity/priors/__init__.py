"""Priors of hyperparameters: standard deviations, correlations, shares, and parameters of likelihoods.

Each has ``log_density(value)`` and ``slope(value)``, its derivative in the number that a search moves: the log of a
positive parameter, the logit of a share, log((1 + r)/(1 - r)) of a correlation r. So has a prior of your own.
"""

from cavity.distributions.gamma import Gamma
from cavity.priors.densities import LogNormal
from cavity.priors.deviations import PC, HalfNormal
from cavity.priors.mixing import PCMixing
from cavity.priors.shares import Beta, PCCorrelation, UniformCorrelation

__all__ = ["PC", "Beta", "Gamma", "HalfNormal", "LogNormal", "PCCorrelation", "PCMixing", "UniformCorrelation"]


def __dir__() -> list[str]:
    return sorted(__all__)
