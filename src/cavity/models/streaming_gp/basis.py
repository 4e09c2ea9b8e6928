"""Inducing variables and what is known of them: the algebra of sparse Gaussian processes.

Inducing variables are u_j = f(z_j) + e_j with nuggets e_j of variance jitter k(z_j, z_j). The nugget belongs to the
inducing variable: it is on the diagonal of K_uu, and in the covariance of two sets of inducing variables where they
share a row z. In whitened coordinates w = L^-1 u ~ N(0, I), L L' = K_uu, all rows so far are one Gaussian factor

    exp(constant - w'A w/2 + r'w),

which is D_a^-1 = S_a^-1 - K_aa^-1 = L^-T A L^-1 and S_a^-1 m_a = L^-T r of [B]_. Nothing is inverted, A may be
singular, and a row adds a rank-1 term. Matrices M x M are in Fortran order, and only their lower triangles are used.

References
----------
.. [B] T. D. Bui, C. V. Nguyen and R. E. Turner, "Streaming sparse Gaussian process approximations", NIPS 2017.
"""

from dataclasses import dataclass, replace

import numpy as np
from scipy.linalg import blas, lapack

from cavity import _core
from cavity.base.errors import NotPositiveDefiniteError, within_range
from cavity.blocks.sources import starts
from cavity.covariances.program import WHITE

_kernel = _core.best("sparse_gp")

BLOCK = 1024  # rows that are worked on together
SUMS = ("A", "r", "constant", "n", "squares", "gap")  # over rows


def same_rows(Z, other):
    """Return the pairs of indices of equal rows of two sets of distinct rows, as two arrays."""
    if Z is other:
        return np.arange(len(Z)), np.arange(len(Z))
    places = {row.tobytes(): j for j, row in enumerate(other)}
    pairs = [(i, places[row.tobytes()]) for i, row in enumerate(Z) if row.tobytes() in places]
    return tuple(np.array(pairs, dtype=np.intp).reshape(-1, 2).T)


class Basis:
    """Inducing variables under a covariance: rows Z (M, D), nuggets (M,), and the triangle L of their covariance."""

    __slots__ = ("Z", "_target", "covariance", "factor", "jitter", "nugget", "program", "variance")

    def __init__(self, covariance, Z, jitter, nugget, factor, program):
        self.covariance, self.Z, self.jitter = covariance, Z, jitter
        self.nugget, self.factor, self.program = nugget, factor, program
        self.variance = program.constant_variance()  # of every row, or None
        self._target = None

    def __reduce__(self):
        return Basis, (self.covariance, self.Z, self.jitter, self.nugget, self.factor, self.program)

    @classmethod
    def of(cls, covariance, Z, jitter, threads):
        """The basis of some rows; NotPositiveDefiniteError names the first that depends on those before it."""
        program = covariance._program(Z.shape[1])
        if len(Z) == 0:
            return cls(covariance, Z, jitter, np.zeros(0), np.zeros((0, 0), order="F"), program)
        nugget = jitter * program.diagonal(Z)
        gram = np.empty((len(Z), len(Z)))
        program.gram(Z, gram, threads)
        gram[np.diag_indices_from(gram)] += nugget
        return cls(covariance, Z, jitter, nugget, _triangle(gram.T, 0), program)

    @property
    def n(self):
        """M."""
        return len(self.Z)

    @property
    def target(self):
        """The inducing points as the kernel compares few rows with them; there must be some."""
        if self._target is None:
            self._target = self.program.against(self.Z)
        return self._target

    def extended(self, rows, threads):
        """The basis with more rows after its own, whose part of the triangle stays as it is."""
        if len(rows) == 0:
            return self
        if self.n == 0:
            return Basis.of(self.covariance, rows, self.jitter, threads)
        nugget = self.jitter * self.program.diagonal(rows)
        gram = np.empty((len(rows), len(rows)))
        self.program.gram(rows, gram, threads)
        gram[np.diag_indices_from(gram)] += nugget
        W = self.features(rows, threads)[0]
        corner = _triangle(np.asfortranarray(gram - W @ W.T), self.n)
        n = self.n + len(rows)
        factor = np.zeros((n, n), order="F")
        factor[: self.n, : self.n] = self.factor
        factor[self.n :, : self.n] = W
        factor[self.n :, self.n :] = corner
        Z = np.concatenate([self.Z, rows])
        return Basis(self.covariance, Z, self.jitter, np.append(self.nugget, nugget), factor, self.program)

    def cross(self, X, threads, out=None):
        """Covariances of rows X (N, D), in C order, with the inducing variables, (N, M)."""
        out = np.empty((len(X), self.n)) if out is None else out

        def task(start, stop):
            if self.target.fill(X[start:stop], out[start:stop]) < stop - start:
                self.program.cross(X[start:stop], self.Z, out[start:stop], threads)  # which checks more

        if out.size:
            threads.run(task, starts(len(X), BLOCK))
        return out

    def features(self, X, threads, out=None):
        """W (N, M) of rows X in C order, and their residuals: the variance of f that the inducing variables leave."""
        W, residual = self.cross(X, threads, out), np.empty(len(X))
        whole = self.n and self.variance is not None
        prior = np.full(len(X), self.variance) if whole else self.program.diagonal(X)
        if self.n == 0:
            return W, prior

        def task(start, stop):
            part = slice(start, stop)
            _kernel.solve_rows(self.factor, W[part], prior[part], residual[part])

        threads.run(task, starts(len(X), BLOCK))
        return W, residual


def _triangle(matrix, first):
    """Cholesky triangle of a matrix in Fortran order, which is overwritten; `first` is the index of its first point."""
    factor, failed = lapack.dpotrf(matrix, lower=1, overwrite_a=1, clean=1)
    if failed:
        raise NotPositiveDefiniteError(
            f"the covariance of the inducing points is not positive definite: point {first + failed - 1} is known from "
            "those before it; leave it out, or raise jitter"
        )
    return factor


def has_white(covariance):
    """Whether a covariance has a White leaf."""
    return any(leaf._op == WHITE for leaf in covariance._leaves())


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


def solved(factor, rows, trans=0):
    """factor^-1, or its transpose if so said, applied to the rows of (N, M), which are overwritten."""
    if rows.size:
        blas.dtrsm(1.0, factor, rows.T, lower=1, trans_a=trans, overwrite_b=1)
    return rows


def full(triangle):
    """The symmetric matrix of a lower triangle."""
    return np.tril(triangle) + np.tril(triangle, -1).T
