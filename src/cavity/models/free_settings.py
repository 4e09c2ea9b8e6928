"""Free settings of a search by the log evidence as one vector without units."""

import numpy as np

from cavity.base.lazy import linalg
from cavity.likelihoods.parameters import FreeParameters


class FreeSettings:
    """Base of free settings as one vector: `n_prior` numbers of the prior, then those of the likelihood, `free`.

    Subclasses have `unpack(x)`, `pack(settings)`, `prior_bounds()` and `describe_prior(settings, problem)`.
    """

    def __init__(self, n_prior, likelihood, names, unit):
        """`names` are those of free parameters of the likelihood, `unit` that of real ones."""
        self.n_prior, self.likelihood = n_prior, likelihood
        self.free = FreeParameters(likelihood, names, unit)

    @property
    def size(self):
        """The number of free settings."""
        return self.n_prior + self.free.size

    def likelihood_at(self, x):
        """The likelihood of a vector."""
        return self.free.unpack(x[self.n_prior :], self.likelihood)

    def bounds(self, *other_likelihoods):
        """(low, high) of every entry; a search may also start at other vectors of the likelihood."""
        prior = np.reshape(self.prior_bounds(), (-1, 2))
        return np.concatenate([prior, self.free.bounds(self.likelihood, *other_likelihoods)])

    def log_prior(self, settings):
        """The log prior of some settings, and its slopes in the first entries: flat."""
        return 0.0, np.zeros(0)

    def gradient(self, evidence, point):
        """The gradient of the log evidence at a point."""
        return evidence.gradient(point, self)

    def describe(self, settings, problem=None):
        """Names and values of the free settings, and their derivatives in the free numbers, (n, n)."""
        names, values, by_prior = self.describe_prior(settings, problem)
        jacobian = linalg.block_diag(by_prior, self.free.jacobian(settings.likelihood))
        return [*names, *self.free.labels()], [*values, *self.free.values(settings.likelihood)], jacobian
