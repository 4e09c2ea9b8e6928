"""What rows say of the whitened inducing variables: a Gaussian factor in information form."""

from dataclasses import dataclass, replace

import numpy as np
from scipy.linalg import blas, lapack

from cavity import _core
from cavity.base.errors import NotPositiveDefiniteError, within_range

kernel = _core.best("sparse_gp")

SUMS = ("constant", "n", "squares", "gap")


@dataclass(frozen=True, slots=True, eq=False)
class Information:
    """The factor of all rows so far, and what follows from it: B = I + A = factor factor', c = factor^-1 r."""

    A: np.ndarray  # (M, M), lower triangle
    r: np.ndarray  # (M,)
    sums: np.ndarray  # (5,): SUMS, and whether the first of them is the log bound in place of the constant
    factor: np.ndarray | None = None  # (M, M), lower triangle
    c: np.ndarray | None = None  # (M,)

    @classmethod
    def of(cls, A, r, constant=0.0, n=0.0, squares=0.0, gap=0.0):
        """Return a factor of which B is not factorised."""
        return cls(A, r, np.array([constant, n, squares, gap, 0.0]))

    @classmethod
    def empty(cls, m, *sums):
        """Return what is known of m inducing variables without data, factorised; sums that are not given are 0."""
        out = cls.of(np.zeros((m, m), order="F"), np.zeros(m), *sums)
        return replace(out, factor=np.eye(m, order="F"), c=np.zeros(m))

    @property
    def constant(self):
        """The log of the factor at w = 0."""
        return self.sums.item(0) - (self.log_z if self.sums.item(4) else 0.0)

    @property
    def n(self):
        """Sum of the weights of the rows."""
        return self.sums.item(1)

    @property
    def squares(self):
        """Sum of weight (y - mean)^2/noise variance."""
        return self.sums.item(2)

    @property
    def gap(self):
        """Sum of weight residual/noise variance, and twice what the factor lost since."""
        return self.sums.item(3)

    @property
    def numbers(self):
        """The sums with the constant for the first, (5,): they add up over sets of rows."""
        return np.array([self.constant, self.n, self.squares, self.gap, 0.0])

    def copy(self, room=None):
        """Return a copy that shares nothing, in the arrays of another one if that is given."""
        names = ("A", "r", "sums", "factor", "c")
        if room is None:
            return Information(*(getattr(self, name).copy(order="F") for name in names))
        for name in names:
            np.copyto(getattr(room, name), getattr(self, name))
        return room

    def factorise(self):
        """Return the factor with B factorised; NotPositiveDefiniteError if that has no Cholesky triangle."""
        B = self.A.copy(order="F")
        B[np.diag_indices_from(B)] += 1.0
        if len(B) == 0:
            return replace(self, factor=B, c=self.r.copy())
        within_range(np.diagonal(B), "what the rows say about the inducing variables")
        factor, failed = lapack.dpotrf(B, lower=1, overwrite_a=1, clean=1)  # B = factor factor', (M, M)
        if failed:
            raise NotPositiveDefiniteError(
                f"the posterior of the inducing variables is not proper: pivot {failed - 1} of its precision"
            )
        return replace(self, factor=factor, c=blas.dtrsv(factor, self.r, lower=1))  # c = factor^-1 r, (M,)

    @property
    def log_z(self):
        """log of the integral of N(w; 0, I) exp(-w'A w/2 + r'w)."""
        return 0.5 * float(self.c @ self.c) - float(np.sum(np.log(np.diagonal(self.factor))))

    @property
    def log_bound(self):
        """log of the integral of the prior times the factor."""
        log_z = self.log_z
        return self.sums.item(0) - (log_z if self.sums.item(4) else 0.0) + log_z

    def mean(self):
        """Return the posterior mean of w."""
        # B^-1 r = factor^-T c, (M,)
        return blas.dtrsv(self.factor, self.c, lower=1, trans=1) if len(self.c) else self.c.copy()

    def marginals(self, W):
        """Return posterior means and variances of the values W w of rows (N, M)."""
        mean, variance = np.empty(len(W)), np.empty(len(W))
        kernel.marginals(self.factor, self.c, W, mean, variance)
        return mean, variance

    def extend(self, n):
        """Return the factor for n inducing variables: first its own, then others of which nothing is known."""
        m, out = len(self.r), Information.empty(n, *self.numbers[:4])
        out.A[:m, :m], out.factor[:m, :m] = self.A, self.factor
        out.r[:m], out.c[:m] = self.r, self.c
        return out

    def plus(self, other):
        """Return the factors of two sets of rows as one, B not yet factorised."""
        return Information(self.A + other.A, self.r + other.r, self.numbers + other.numbers)

    def raise_to(self, power):
        """Return the factor to a power in [0, 1]."""
        return Information(power * self.A, power * self.r, power * self.numbers).factorise()
