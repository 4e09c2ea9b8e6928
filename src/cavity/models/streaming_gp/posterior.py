"""What inducing variables say about f at any rows."""

from __future__ import annotations

import numpy as np

from cavity.base import arrays
from cavity.base.errors import check_within_range
from cavity.base.public_objects import FloatArray
from cavity.base.triangles import solve_rows
from cavity.models.process.predictions import ProcessPosterior


class SparsePosterior(ProcessPosterior):
    """Base of posteriors of f by inducing variables: it reads `_now`, a StreamSnapshot, too."""

    __slots__ = ()

    @property
    def log_bound(self) -> float:
        """Sum of all increments, in nats; with Gaussian noise, alpha = 0 and inducing points and settings that never
        changed it is the bound of Titsias, a lower bound of the log evidence of all rows.

        With inducing points that moved it is no bound; with EP it estimates the log evidence.
        """
        return self._now.log_bound

    @property
    def inducing(self) -> FloatArray:
        """Inducing points Z, (M, D)."""
        return arrays.make_read_only(self._now.basis.Z.copy())

    @property
    def n_inducing(self) -> int:
        """M."""
        return self._now.basis.n

    @property
    def mean(self) -> FloatArray:
        """Posterior mean of the inducing variables u, (M,), less the prior mean."""
        with np.errstate(over="ignore", invalid="ignore"):
            return check_within_range(
                np.tril(self._now.basis.factor) @ self._now.information.mean(), "mean: its entries"
            )

    @property
    def covariance(self) -> FloatArray:
        """Posterior covariance of the inducing variables u, (M, M)."""
        half = solve_rows(self._now.information.factor, np.ascontiguousarray(np.tril(self._now.basis.factor)))
        with np.errstate(over="ignore", invalid="ignore"):
            return check_within_range(half @ half.T, "covariance: its entries")

    def _moments(self, X, threads, cache):
        """Return means of f at a few rows, less the prior's, and variances."""
        W, residual = self._now.basis.features(X, threads)
        shift, spread = self._now.information.marginals(W)
        return shift, residual + spread

    def _project(self, variances, columns):
        """Return posterior moments of coefficients of some columns of X, of these prior variances."""
        W = variances[:, None] * self._now.basis.Z[:, columns].T  # (p, M), covariances with u
        W = solve_rows(self._now.basis.factor, np.ascontiguousarray(W))
        shift, spread = self._now.information.marginals(W)
        return shift, variances - np.einsum("ij,ij->i", W, W) + spread

    def _joint(self, X, gram, threads):
        """Return means of f at rows, less the prior's, and in place of prior covariances those of the posterior."""
        W, residual = self._now.basis.features(X, threads)
        T = solve_rows(self._now.information.factor, W.copy())
        gram += T @ T.T - W @ W.T
        gram = 0.5 * (gram + gram.T)
        gram[np.diag_indices_from(gram)] = residual + np.einsum("ij,ij->i", T, T)  # as predicted, and not below zero
        return T @ self._now.information.c, gram
