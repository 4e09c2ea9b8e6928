"""What inducing variables say about f at any rows."""

import numpy as np

from cavity.base import arrays
from cavity.base.errors import within_range
from cavity.base.rows import check_moments
from cavity.base.triangles import solved
from cavity.blocks.executors import Threads, single_blas
from cavity.blocks.merge import starts
from cavity.models.gp.process import ProcessPosterior
from cavity.models.streaming_gp.rows import INLINE, is_exact

PREDICT_ROWS = 512


class SparsePosterior(ProcessPosterior):
    """Base of posteriors of f by inducing variables: it reads `_now`, a Snapshot, too."""

    __slots__ = ()

    @property
    def log_bound(self):
        """Sum of all increments, in nats; with Gaussian noise, alpha = 0 and inducing points and settings that never
        changed it is the bound of Titsias, a lower bound of the log evidence of all rows.

        With inducing points that moved it is no bound; with EP it estimates the log evidence.
        """
        return self._now.log_bound

    @property
    def inducing(self):
        """Inducing points Z, (M, D)."""
        return arrays.read_only(self._now.basis.Z.copy())

    @property
    def n_inducing(self):
        """M."""
        return self._now.basis.n

    @property
    def mean(self):
        """Posterior mean of the inducing variables u, (M,), less the prior mean."""
        with np.errstate(over="ignore", invalid="ignore"):
            return within_range(np.tril(self._now.basis.factor) @ self._now.information.mean(), "mean: its entries")

    @property
    def covariance(self):
        """Posterior covariance of the inducing variables u, (M, M)."""
        half = solved(self._now.information.factor, np.ascontiguousarray(np.tril(self._now.basis.factor)))
        with np.errstate(over="ignore", invalid="ignore"):
            return within_range(half @ half.T, "covariance: its entries")

    def predict(self, X, *, offset=None, noise=False, n_threads=1):
        """Predict the latent value f at new rows: its moments. Before any data they are the prior's.

        Parameters
        ----------
        X : array_like (n, D)
            Rows.
        offset : array_like (n,), optional
            Known part of f.
        noise : bool, default False
            Whether to add the noise of the Gaussian likelihood: moments of y instead of f.
        n_threads : int, default 1
            Threads that work on blocks of rows; the result has the same bits for any number.

        Returns
        -------
        mean, variance : ndarray (n,)
            Of f (or y) under the posterior.

        Raises
        ------
        ValueError, TypeError
            For bad rows, and for noise=True with another likelihood.
        OverflowError
            If moments leave the range of float64, naming the row.
        """
        X, base = self._new_rows(X, offset)
        extra = self._noise() if arrays.flag(noise, "noise") else 0.0
        n_threads = arrays.integer(n_threads, "n_threads", low=1)

        now = self._now

        def task(start, stop):
            with np.errstate(over="ignore", invalid="ignore"):
                W, residual = now.basis.features(X[start:stop], INLINE)
                shift, spread = now.information.marginals(W)
                return shift, residual + spread

        with Threads(n_threads) as threads, single_blas():
            parts = threads.run(task, starts(len(X), PREDICT_ROWS))
        mean, variance = (np.concatenate(part) for part in zip(*parts, strict=True))
        check_moments(mean, variance)
        return base + mean, variance + extra

    def predict_covariance(self, X, *, offset=None):
        """Predict the latent values at new rows together.

        Parameters
        ----------
        X : array_like (n, D)
            Rows.
        offset : array_like (n,), optional
            Known part of f.

        Returns
        -------
        mean : ndarray (n,)
            Of f under the posterior.
        covariance : ndarray (n, n)
            Of f under the posterior.

        Raises
        ------
        ValueError, TypeError, OverflowError
            As in `predict`.
        """
        X, base = self._new_rows(X, offset)
        out = arrays.matrix((len(X), len(X)), "the covariance of X")
        with Threads(1) as threads, single_blas(), np.errstate(over="ignore", invalid="ignore"):
            self._now.basis.program.gram(X, out, threads)
            W, residual = self._now.basis.features(X, threads)
            T = solved(self._now.information.factor, W.copy())
            out += T @ T.T - W @ W.T
            out = 0.5 * (out + out.T)
            out[np.diag_indices_from(out)] = residual + np.einsum("ij,ij->i", T, T)  # as predicted, and not below zero
            mean = base + T @ self._now.information.c
        check_moments(mean, out)
        return mean, out

    def _noise(self):
        if not is_exact(self.model.likelihood):
            raise ValueError(f"noise=True needs the likelihood Gaussian, got {type(self.model.likelihood).__name__}")
        return self.model.likelihood.noise_variance
