"""Covariances k(x, z) of functions of a row: what Gaussian processes are built from.

Leaves with positive, named parameters compose by + and *. Gram matrices and contractions with their derivatives are
compiled, and no matrix is ever stored for a parameter. A covariance of your own is a dataclass in plain Python.

References
----------
.. [RW] C. E. Rasmussen and C. K. I. Williams, "Gaussian Processes for Machine Learning", MIT Press, 2006.
"""

from cavity.covariances.base import Covariance
from cavity.covariances.composed import Product, Sum
from cavity.covariances.kinds import (
    RBF,
    Constant,
    Linear,
    Matern,
    Matern12,
    Matern32,
    Matern52,
    Periodic,
    RationalQuadratic,
    White,
    from_settings,
)
from cavity.distributions.gamma import Gamma
from cavity.priors.densities import LogNormal

__all__ = [
    "RBF",
    "Constant",
    "Covariance",
    "Gamma",
    "Linear",
    "LogNormal",
    "Matern",
    "Matern12",
    "Matern32",
    "Matern52",
    "Periodic",
    "Product",
    "RationalQuadratic",
    "Sum",
    "White",
    "from_settings",
]


def __dir__() -> list[str]:
    return sorted(__all__)
