"""Likelihoods p(y|f) of a scalar latent value f: what models with EP are built from.

Every likelihood has one contract, `log_tilted(y, mean, variance)`: the log of the integral of p(y|f) N(f; mean,
variance) and its first and second derivative in `mean`. Those of this module are compiled. A likelihood of your own
derives from `Likelihood` and needs `log_p` only.

References
----------
.. [RW] C. E. Rasmussen and C. K. I. Williams, "Gaussian Processes for Machine Learning", MIT Press, 2006.
.. [M] Thomas Minka, "A family of algorithms for approximate Bayesian inference", PhD thesis, MIT, 2001.
.. [L] Catherine Loader, "Fast and accurate computation of binomial probabilities", 2000.
"""

from cavity.likelihoods.base import Likelihood
from cavity.likelihoods.counts import Binomial, NegativeBinomial, Poisson
from cavity.likelihoods.inflated import HurdlePoisson, ZeroInflatedNegativeBinomial, ZeroInflatedPoisson
from cavity.likelihoods.labels import Cloglog, Interval, Logit, OrderedLogit, OrderedProbit, Probit, Step
from cavity.likelihoods.noise import AsymmetricLaplace, Clutter, Gaussian, Laplace, StudentT
from cavity.likelihoods.positive import Gamma, Tweedie
from cavity.likelihoods.shares import Beta, BetaBinomial
from cavity.likelihoods.survival import Exponential, LogLogistic, LogNormal, Weibull

__all__ = [
    "AsymmetricLaplace",
    "Beta",
    "BetaBinomial",
    "Binomial",
    "Cloglog",
    "Clutter",
    "Exponential",
    "Gamma",
    "Gaussian",
    "HurdlePoisson",
    "Interval",
    "Laplace",
    "Likelihood",
    "LogLogistic",
    "LogNormal",
    "Logit",
    "NegativeBinomial",
    "OrderedLogit",
    "OrderedProbit",
    "Poisson",
    "Probit",
    "Step",
    "StudentT",
    "Tweedie",
    "Weibull",
    "ZeroInflatedNegativeBinomial",
    "ZeroInflatedPoisson",
]


def __dir__() -> list[str]:
    return sorted(__all__)
