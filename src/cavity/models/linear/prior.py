"""The Gaussian prior of weights."""

from dataclasses import dataclass

import numpy as np

from cavity.base import arrays


@dataclass(frozen=True, slots=True, eq=False)
class Prior:
    """N(mean, root root') of the weights: the prior, or in an update the posterior before."""

    mean: np.ndarray  # (D,)
    variance: np.ndarray  # (), (D,) or (D, D), as it was given
    root: np.ndarray  # (D,) where the weights are independent, else (D, D)

    @classmethod
    def of(cls, mean, variance, n_features):
        """Return the prior of D weights, its variance factorised; ValueError if numbers are not for so many."""
        mean, variance = np.array(arrays.check_vector(mean, "prior_mean", n_features)), np.asarray(variance)
        d = n_features
        if variance.shape not in ((), (d,), (d, d)):
            raise ValueError(
                f"prior_variance must be a number or have shape ({d},) or ({d}, {d}) for {d} columns, "
                f"got {variance.shape}"
            )
        if variance.ndim == 2:
            return cls(mean, variance, arrays.cholesky(variance, "prior_variance"))
        return cls(mean, variance, np.sqrt(np.broadcast_to(variance, (d,))))

    @property
    def moments(self):
        """Mean and root, as geometries take them."""
        return self.mean, self.root

    def find_scales(self, other):
        """Return standard deviations (D,); of a root (D, D) its columns in units of those of another prior."""
        return self.root if self.root.ndim < 2 else np.diag(self.root) / np.diag(other.root)
