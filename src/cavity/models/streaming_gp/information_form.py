"""The factor of all rows so far on the whitened inducing variables, a Gaussian in information form, and q_opt.

With b = L w, K_bb = L L', p(w) = N(0, I), the factor exp(E_1(b) + E_2(b)) is exp(constant - w'A w/2 + r'w), and ::

    q_opt(b) = p(b) exp(E_1(b) + E_2(b))/C        [J]_ (q_opt)

is N(B^-1 r, B^-1) in w, B = I + A = factor factor', c = factor^-1 r, with the log bound
log C = constant + c'c/2 - sum log diag factor.

References
----------
.. [J] Kalvik Jakkala, "Tutorial on streaming sparse Gaussian processes": E_1, E_2 and q_opt.
"""

from dataclasses import dataclass, replace

import numpy as np
from scipy.linalg import blas, lapack

from cavity import _core
from cavity.base.errors import NotPositiveDefiniteError, within_range

kernel = _core.best("sparse_gp")


@dataclass(frozen=True, slots=True, eq=False)
class Information:
    """The factor of all rows so far, and the Cholesky factor of B = I + A, the precision of q_opt(w)."""

    A: np.ndarray  # (M, M), lower triangle
    r: np.ndarray  # (M,)
    sums: np.ndarray  # (5,): constant, n, squares, gap, and 1 where the first is the log bound and not the constant
    factor: np.ndarray | None = None  # (M, M), lower triangle
    c: np.ndarray | None = None  # (M,)

    @classmethod
    def of(cls, A, r, constant=0.0, n=0.0, squares=0.0, gap=0.0):
        """Return a factor of which B is not factorised."""
        return cls(A, r, np.array([constant, n, squares, gap, 0.0]))

    @classmethod
    def empty(cls, m, *sums):
        """Return the factor 1 on m inducing variables, factorised; sums that are not given are 0."""
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
        """Sum of weight residual/noise variance, plus twice the nats that the factor lost since."""
        return self.sums.item(3)

    @property
    def numbers(self):
        """The sums with the constant for the first, (5,): they add up over sets of rows."""
        return np.array([self.constant, self.n, self.squares, self.gap, 0.0])

    def copy(self, room=None):
        """Return a copy that shares no memory, in the arrays of `room` if that is given."""
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
        within_range(np.diagonal(B), "the precisions of the inducing variables given the rows")
        factor, failed = lapack.dpotrf(B, lower=1, overwrite_a=1, clean=1)  # B = factor factor', (M, M)
        if failed:
            raise NotPositiveDefiniteError(
                f"the posterior of the inducing variables is not proper: pivot {failed - 1} of its precision"
            )
        return replace(self, factor=factor, c=blas.dtrsv(factor, self.r, lower=1))  # c = factor^-1 r, (M,)

    @property
    def log_z(self):
        """log of the integral of N(w; 0, I) exp(-w'A w/2 + r'w): c'c/2 - sum log diag factor."""
        return 0.5 * float(self.c @ self.c) - float(np.sum(np.log(np.diagonal(self.factor))))

    @property
    def log_bound(self):
        """log C, the log of the integral of the prior times the factor: constant + log_z."""
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
        """Return the factor for n inducing variables: its own, then others on which it does not depend."""
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
