"""The beliefs of a batch of responses about their weights, by one product of matrices and one factorisation each.

Weights are prior_mean + C (s * u), u ~ N(0, I), C the root of a covariance that all responses share and s factors of
each response, so that f = base + F (s * u) with F = X C. The precision of u is P = I + s F' R F s = L L', R the site
precisions. Products are of one response at a time and sums over responses do not occur: the bits of a response do not
depend on those beside it.
"""

from dataclasses import dataclass

import numpy as np


@dataclass(slots=True, eq=False)
class BatchBelief:
    """The Gaussians of A responses about their whitened weights u; `proper` says which of them exist."""

    precision: np.ndarray  # (A, M, M): P
    triangle: np.ndarray  # (A, M, M): L^-1
    u: np.ndarray  # (A, M)
    mean: np.ndarray  # (A, N): of f
    variance: np.ndarray  # (A, N)
    proper: np.ndarray  # (A,)

    @property
    def covariance(self):
        """P^-1, (A, M, M)."""
        return np.matmul(np.swapaxes(self.triangle, 1, 2), self.triangle)

    def prior_gap(self):
        """Return logs of the posterior's density over the prior's, at the posterior mean, (A,)."""
        return 0.5 * np.sum(self.u**2, axis=1) - np.sum(np.log(np.diagonal(self.triangle, axis1=1, axis2=2)), axis=1)

    def change_from(self, old):
        """Return bounds of the changes of all linear functionals, (A,): means in sd, variances relative."""
        # |L^-1 P (u - u_old)| = |L'(u - u_old)|, and |L^-1 P_old L^-T - I|_F
        shift = np.matmul(self.triangle, np.matmul(self.precision, (self.u - old.u)[:, :, None]))[:, :, 0]
        ratio = np.matmul(np.matmul(self.triangle, old.precision), np.swapaxes(self.triangle, 1, 2))
        gap = ratio - np.eye(ratio.shape[1])
        change = np.sqrt(np.maximum(np.sum(shift**2, axis=1), np.sum(gap**2, axis=(1, 2))))
        return np.where(np.isfinite(change) & self.proper & old.proper, change, np.inf)


def find_beliefs(features, base, scale, tau, rho):
    """Return the `BatchBelief` of sites.

    Parameters
    ----------
    features : ndarray (N, M)
        F.
    base : ndarray (A, N)
        The prior means of f.
    scale : ndarray (A, M)
        s.
    tau, rho : ndarray (A, N)
        The sites.
    """
    gram = np.matmul(features.T, rho[:, :, None] * features)  # F'RF of each: (M, N) (N, M)
    precision = scale[:, :, None] * gram * scale[:, None, :]
    precision[:, np.arange(scale.shape[1]), np.arange(scale.shape[1])] += 1.0
    pulled = scale * np.matmul(features.T, (tau - rho * base)[:, :, None])[:, :, 0]
    factor, proper = factorise(precision)
    triangle = np.linalg.inv(factor)
    u = np.matmul(np.swapaxes(triangle, 1, 2), np.matmul(triangle, pulled[:, :, None]))[:, :, 0]
    spread = np.matmul(triangle * scale[:, None, :], features.T)  # (M, M) (M, N)
    mean = base + np.matmul(features, (scale * u)[:, :, None])[:, :, 0]
    variance = np.sum(spread**2, axis=1)
    proper &= np.isfinite(mean).all(axis=1) & (variance > 0).all(axis=1)
    return BatchBelief(precision, triangle, u, mean, variance, proper)


def factorise(precision):
    """Return the lower Cholesky factors of matrices (A, M, M), the identity where there is none, and where there is."""
    proper, identity = np.isfinite(precision).all(axis=(1, 2)), np.eye(precision.shape[1])
    if not proper.all():
        precision = np.where(proper[:, None, None], precision, identity)
    try:
        return np.linalg.cholesky(precision), proper
    except np.linalg.LinAlgError:
        factor = np.empty_like(precision)
    for i, matrix in enumerate(precision):
        try:
            factor[i] = np.linalg.cholesky(matrix)
        except np.linalg.LinAlgError:
            factor[i], proper[i] = identity, False
    return factor, proper
