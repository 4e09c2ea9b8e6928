"""The Gaussian posterior of the weights, kept as a root of its covariance so that variances stay positive."""

from dataclasses import dataclass

import numpy as np

from cavity.base.records import Array, declare


@dataclass(frozen=True, slots=True, eq=False)
class WeightRoot:
    """The covariance of w.

    Without basis it is root root'. With it, the prior's root maps whitened weights to w; within the span of the basis
    (orthonormal columns, the directions that fewer rows than weights see) their covariance is factor factor', across it
    the identity.
    """

    root: np.ndarray = declare(Array("D | D D"))  # (D,) for a diagonal one
    basis: np.ndarray | None = declare(Array("D M"), default=None)
    factor: np.ndarray | None = declare(Array("M M"), default=None)

    def __post_init__(self):
        for array in (self.root, self.basis, self.factor):
            if array is not None:
                array.flags.writeable = False

    def apply(self, x):
        """x root, for rows of x."""
        return x * self.root if self.root.ndim == 1 else x @ self.root

    def spread(self, x):
        """Variances of x'w for the rows of x."""
        scaled = self.apply(x)
        total = np.einsum("ij,ij->i", scaled, scaled)
        if self.basis is None:
            return total
        inside = scaled @ self.basis
        scaled_inside = inside @ self.factor
        outside = np.maximum(total - np.einsum("ij,ij->i", inside, inside), 0.0)
        return outside + np.einsum("ij,ij->i", scaled_inside, scaled_inside)

    def variances(self):
        """Variances of the weights."""
        if self.basis is None:
            return self.root**2 if self.root.ndim == 1 else np.einsum("ij,ij->i", self.root, self.root)
        if self.root.ndim == 2:
            return self.spread(np.eye(len(self.root)))
        products = self.basis @ self.factor
        inside = np.einsum("ij,ij->i", self.basis, self.basis)
        return self.root**2 * (np.maximum(1.0 - inside, 0.0) + np.einsum("ij,ij->i", products, products))

    def full_root(self):
        """A root with D rows: (D,) if the covariance is diagonal, else (D, D)."""
        if self.basis is None:
            return self.root
        inner = self.basis @ self.factor @ self.basis.T - self.basis @ self.basis.T
        inner[np.diag_indices_from(inner)] += 1.0
        return self.root[:, None] * inner if self.root.ndim == 1 else self.root @ inner

    def colour(self, z):
        """Turn rows of independent standard normal numbers into deviations of w from its mean."""
        if self.basis is not None:
            inside = z @ self.basis
            z = z + (inside @ self.factor.T - inside) @ self.basis.T
        return z * self.root if self.root.ndim == 1 else z @ self.root.T


def make_weights(prior, geometry, belief):
    """Mean of w and its WeightRoot, from a belief of the dense geometry and the prior's (mean, root)."""
    (prior_mean, root), own = prior, np.ascontiguousarray(belief.root)
    if geometry.basis is None:
        return belief.mean, WeightRoot(own)
    step = geometry.basis @ belief.mean
    return prior_mean + (root * step if root.ndim == 1 else root @ step), WeightRoot(root, geometry.basis, own)
