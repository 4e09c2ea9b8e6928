"""Distributions in natural parameters: the factors of mean-field models and the arguments of divergences.

Each is frozen and has `natural` (natural parameters, flattened), `statistics` (expected sufficient statistics in the
same order, so that ``natural @ statistics`` is the expectation of the exponent), `with_natural`, moments, `entropy`,
`log_density` and `sample`. `Gaussian` and `SphericalGaussian` are those of the package; their log scale is left aside.
"""

from ._multivariate import MultivariateGaussian
from ._simplex import Categorical, Dirichlet
from ._wishart import Gamma, NormalWishart, Wishart
from .gaussian import Gaussian, SphericalGaussian

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
