"""Distributions in natural parameters: the factors of mean-field models and the arguments of divergences.

Each is frozen and has `natural` (natural parameters, flattened), `statistics` (expected sufficient statistics in the
same order, so that ``natural @ statistics`` is the expectation of the exponent), `with_natural`, moments, `entropy`,
`log_density` and `sample`. `Gaussian` and `SphericalGaussian` are those of the package; their log scale is left aside.
"""

from cavity.distributions.gamma import Gamma
from cavity.distributions.gaussian import Gaussian, SphericalGaussian
from cavity.distributions.multivariate import MultivariateGaussian
from cavity.distributions.simplex import Categorical, Dirichlet
from cavity.distributions.wishart import NormalWishart, Wishart

__all__ = [
    "Categorical",
    "Dirichlet",
    "Gamma",
    "Gaussian",
    "MultivariateGaussian",
    "NormalWishart",
    "SphericalGaussian",
    "Wishart",
]


def __dir__() -> list[str]:
    return sorted(__all__)
