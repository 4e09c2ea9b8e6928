"""What rows say of the whitened inducing variables: a Gaussian factor in information form."""

from dataclasses import dataclass, replace

import numpy as np
from scipy.linalg import blas, lapack

from cavity.base.errors import NotPositiveDefiniteError, within_range
from cavity.models.streaming_gp.basis import _kernel

SUMS = ("A", "r", "constant", "n", "squares", "gap")  # over rows


@dataclass(slots=True, eq=False)
class Information:
    """The factor of all rows so far, and what follows from it: B = I + A = factor factor', c = factor^-1 r."""

    A: np.ndarray  # (M, M), lower triangle
    r: np.ndarray  # (M,)
    constant: float
    n: float = 0.0  # sum of weights
    squares: float = 0.0  # sum of weight (y - mean)^2/noise variance
    gap: float = 0.0  # sum of weight residual/noise variance, and twice what the factor lost since
    factor: np.ndarray | None = None  # (M, M), lower triangle
    c: np.ndarray | None = None  # (M,)

    @classmethod
    def empty(cls, n):
        """Of n inducing variables without data."""
        return cls(np.zeros((n, n), order="F"), np.zeros(n), 0.0, factor=np.eye(n, order="F"), c=np.zeros(n))

    def copy(self):
        """A copy that shares nothing."""
        arrays = {name: getattr(self, name).copy(order="F") for name in ("A", "r", "factor", "c")}
        return replace(self, **arrays)

    def factorised(self):
        """The same with B factorised; NotPositiveDefiniteError if that has no Cholesky triangle."""
        B = self.A.copy(order="F")
        B[np.diag_indices_from(B)] += 1.0
        if len(B) == 0:
            return replace(self, factor=B, c=self.r.copy())
        within_range(np.diagonal(B), "what the rows say about the inducing variables")
        factor, failed = lapack.dpotrf(B, lower=1, overwrite_a=1, clean=1)
        if failed:
            raise NotPositiveDefiniteError(
                f"the posterior of the inducing variables is not proper: pivot {failed - 1} of its precision"
            )
        return replace(self, factor=factor, c=blas.dtrsv(factor, self.r, lower=1))

    @property
    def log_z(self):
        """log of the integral of N(w; 0, I) exp(-w'A w/2 + r'w)."""
        return 0.5 * float(self.c @ self.c) - float(np.sum(np.log(np.diagonal(self.factor))))

    @property
    def log_bound(self):
        """log of the integral of the prior times the factor."""
        return self.constant + self.log_z

    def mean(self):
        """Posterior mean of w."""
        return blas.dtrsv(self.factor, self.c, lower=1, trans=1) if len(self.c) else self.c.copy()

    def marginals(self, W):
        """Posterior means and variances of the values W w of rows (N, M)."""
        mean, variance = np.empty(len(W)), np.empty(len(W))
        _kernel.marginals(self.factor, self.c, W, mean, variance)
        return mean, variance

    def add(self, W, tau, rho, gain=None):
        """Add rows with sites (tau, rho) on g in place; False, and nothing added, if the first cannot be.

        `gain` (N,) is filled with the logs of the means of the sites, taken to be one at their modes, when they come.
        """
        return _kernel.add_rows(W, tau, rho, self.A, self.r, self.factor, self.c, gain) == len(W)

    def extended(self, n):
        """For n inducing variables, of which the first are those it has: nothing is known about the others."""
        m = len(self.r)
        out = replace(Information.empty(n), constant=self.constant, n=self.n, squares=self.squares, gap=self.gap)
        out.A[:m, :m], out.factor[:m, :m] = self.A, self.factor
        out.r[:m], out.c[:m] = self.r, self.c
        return out

    def plus(self, other):
        """The factors of two sets of rows as one, B not yet factorised."""
        return Information(**{name: getattr(self, name) + getattr(other, name) for name in SUMS})

    def to_the(self, power):
        """The factor to a power in [0, 1]."""
        return Information(**{name: power * getattr(self, name) for name in SUMS}).factorised()
