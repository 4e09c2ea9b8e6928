"""The Gaussian posterior of the weights, and what it says about the latent values of rows."""

from dataclasses import dataclass

import numpy as np

from cavity.base.rows import check_moments
from cavity.blocks.sources import rows
from cavity.ep.weights import WeightRoot

ROWS_TOGETHER = 8192  # rows that are converted, and worked on, at a time


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

        `prepared` turns rows of X into those that the weights belong to, if it is given.
        """
        if self.covariance is None and prepared is None:
            from cavity.models.glm import diagonal  # scipy.sparse takes a while to load

            mean, variance = diagonal.predict(X, self.mean, self.variance, offset)
        else:
            mean, variance = np.empty(X.shape[0]), np.empty(X.shape[0])
            with np.errstate(over="ignore", invalid="ignore"):
                for low in range(0, X.shape[0], ROWS_TOGETHER):
                    part = slice(low, low + ROWS_TOGETHER)
                    x = rows(X, part) if prepared is None else prepared(X[part])
                    mean[part] = x @ self.mean
                    variance[part] = (x * x) @ self.variance if self.covariance is None else self.covariance.spread(x)
                mean += offset
        check_moments(mean, variance)
        return mean, variance

    def deviations(self, z):
        """Return rows of independent standard normal numbers as deviations of the weights from their mean."""
        return z * np.sqrt(self.variance) if self.covariance is None else self.covariance.colour(z)


def unscaled(weights, centre, spread, intercept):
    """Return the weights of columns as they were before `centre` was taken from them and they were divided by `spread`.

    Parameters
    ----------
    weights : Weights
        Those of the prepared columns.
    centre, spread : ndarray (D,) or None
        What was done to the columns; None where nothing was.
    intercept : bool
        Whether the first weight is that of a column of ones, which then takes over what the centres leave. Without one
        that constant part of f is in no weight.

    Returns
    -------
    Weights
        b = w/spread, and b_0 = w_0 - sum_j centre_j b_j; independent weights do not stay independent, so of these the
        variances only.
    """
    if centre is None:
        return weights
    scale = np.append(1.0, 1.0 / spread) if intercept else 1.0 / spread
    mean, variance, covariance = weights.mean * scale, weights.variance * scale**2, None
    if weights.covariance is not None:
        root = (weights.covariance.full_root().T * scale).T
        if intercept:
            root = np.diagflat(root) if root.ndim == 1 else root
            root[0] -= centre @ root[1:]  # (D,) (D, 1 + D)
        covariance = WeightRoot(root)
        variance = covariance.variances()
    elif intercept:
        variance[0] += centre**2 @ variance[1:]
    if intercept:
        mean[0] -= centre @ mean[1:]
    return Weights(mean, variance, covariance)
