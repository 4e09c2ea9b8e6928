"""Fully factorised approximations of Gaussians, see `cavity.models.factorized`."""

from cavity.models.factorized.model import FactorizedGaussian
from cavity.models.factorized.posterior import FactorizedGaussianPosterior, Marginals

__all__ = ["FactorizedGaussian", "FactorizedGaussianPosterior", "Marginals"]


def __dir__() -> list[str]:
    return sorted(__all__)
