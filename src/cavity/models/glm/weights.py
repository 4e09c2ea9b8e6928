"""The Gaussian posterior of the weights, and predictions of the latent values of rows."""

from dataclasses import dataclass

import numpy as np

from cavity.base.rows import check_moments
from cavity.ep.weights import WeightRoot
from cavity.sources.features import SPARSE_KIND, iterate_checked_blocks, kind_of


@dataclass(frozen=True, slots=True, eq=False)
class Weights:
    """Moments of the weights; `covariance` is None where they are independent."""

    mean: np.ndarray  # (D,)
    variance: np.ndarray  # (D,)
    covariance: WeightRoot | None

    @classmethod
    def of(cls, mean, covariance):
        """Return weights that may depend on each other."""
        return cls(mean, covariance.variances(), covariance)

    def predict(self, X, offset, prepared=None):
        """Return means and variances of f = x'w + offset at checked rows X; OverflowError where they are not finite.

        `prepared`, if given, scales rows of X as the weights expect them.
        """
        if self.covariance is None and (prepared is None or kind_of(X) == SPARSE_KIND):
            from cavity.models.glm import diagonal  # scipy.sparse takes a while to load

            X = X if prepared is None else prepared(X)
            mean, variance = diagonal.predict(X, self.mean, self.variance, offset)
        else:
            mean, variance = np.empty(X.shape[0]), np.empty(X.shape[0])
            with np.errstate(over="ignore", invalid="ignore"):
                for part, x in iterate_checked_blocks(X):
                    x = x if prepared is None else prepared(x)
                    mean[part] = x @ self.mean
                    variance[part] = (x * x) @ self.variance if self.covariance is None else self.covariance.spread(x)
                mean += offset
        check_moments(mean, variance)
        return mean, variance

    def deviations(self, z):
        """Return rows of independent standard normal numbers as deviations of the weights from their mean."""
        return z * np.sqrt(self.variance) if self.covariance is None else self.covariance.colour(z)
