"""Inducing variables and what is known of them: the algebra of sparse Gaussian processes.

Inducing variables are u_j = f(z_j) + e_j with nuggets e_j of variance jitter k(z_j, z_j). The nugget belongs to the
inducing variable: it is on the diagonal of K_uu, and in the covariance of two sets of inducing variables where they
share a row z. In whitened coordinates w = L^-1 u ~ N(0, I), L L' = K_uu, all rows so far are one Gaussian factor

    exp(constant - w'A w/2 + r'w),

which is D_a^-1 = S_a^-1 - K_aa^-1 = L^-T A L^-1 and S_a^-1 m_a = L^-T r of [B]_. Nothing is inverted, A may be
singular, and a row adds a rank-1 term. Matrices M x M are in Fortran order, and only their lower triangles are used.

That factor is exp(E_1(b) + E_2(b)) with b = L w, p(w) = N(0, I), and ::

    q_opt(b) = p(b) exp(E_1(b) + E_2(b))/C                                     [J]_ (q_opt)                         (1)

is N(B^-1 r, B^-1) in w, B = I + A = factor factor', c = factor^-1 r, with the log bound
log C = constant + c'c/2 - sum log diag factor.

References
----------
.. [B] T. D. Bui, C. V. Nguyen and R. E. Turner, "Streaming sparse Gaussian process approximations", NIPS 2017.
.. [J] Kalvik Jakkala, "Tutorial on streaming sparse Gaussian processes": E_1, E_2 and q_opt.
"""

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from scipy.linalg import blas, lapack

from cavity import _core
from cavity.base.errors import NotPositiveDefiniteError, check_within_range
from cavity.covariances import White
from cavity.covariances.program import get_program
from cavity.covariances.slots import list_leaves
from cavity.runs.merge import merge, split_rows

kernel, rows_kernel = _core.best("sparse_gp"), _core.best("whitened_rows")

ROWS_PER_BLOCK = 1024  # rows that are worked on together
ROWS_PER_TASK = 256  # of those, where several threads have only one block of them
ROWS_PER_SUM = 512  # of those, whose sums are added up by themselves
NO_NUMBERS, NO_ROWS = np.zeros(0), np.zeros((0, 0))


def match_equal_rows(Z, other):
    """Return the pairs of indices of equal rows of two sets of distinct rows, as two arrays."""
    if Z is other:
        return np.arange(len(Z)), np.arange(len(Z))
    indices = {row.tobytes(): j for j, row in enumerate(other)}
    pairs = [(i, indices[row.tobytes()]) for i, row in enumerate(Z) if row.tobytes() in indices]
    return tuple(np.array(pairs, dtype=np.intp).reshape(-1, 2).T)


class InducingBasis:
    """Inducing variables under a covariance: rows Z (M, D), nuggets (M,), and the triangle L of their covariance."""

    __slots__ = ("Z", "_target", "covariance", "factor", "jitter", "nugget", "program", "variance")

    def __init__(self, covariance, Z, jitter, nugget, factor, program):
        self.covariance, self.Z, self.jitter = covariance, Z, jitter
        self.nugget, self.factor, self.program = nugget, factor, program
        self.variance = program.constant_variance()  # of every row, or None
        self._target = None

    def __reduce__(self) -> Any:
        return InducingBasis, (self.covariance, self.Z, self.jitter, self.nugget, self.factor, self.program)

    @classmethod
    def of(cls, covariance, Z, jitter, threads):
        """The basis of some rows; NotPositiveDefiniteError names the first that depends on those before it."""
        program = get_program(covariance, Z.shape[1])
        if len(Z) == 0:
            return cls(covariance, Z, jitter, np.zeros(0), np.zeros((0, 0), order="F"), program)
        gram, nugget = compute_gram_with_nugget(program, Z, jitter, threads)
        return cls(covariance, Z, jitter, nugget, _factorise(gram.T, 0), program)

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

    def extend(self, rows, threads):
        """The basis with more rows after its own, whose part of the triangle stays as it is."""
        if len(rows) == 0:
            return self
        if self.n == 0:
            return InducingBasis.of(self.covariance, rows, self.jitter, threads)
        gram, nugget = compute_gram_with_nugget(self.program, rows, self.jitter, threads)
        W = self.features(rows, threads)[0]
        corner = _factorise(np.asfortranarray(gram - W @ W.T), self.n)
        n = self.n + len(rows)
        factor = np.zeros((n, n), order="F")
        factor[: self.n, : self.n] = self.factor
        factor[self.n :, : self.n] = W
        factor[self.n :, self.n :] = corner
        Z = np.concatenate([self.Z, rows])
        return InducingBasis(self.covariance, Z, self.jitter, np.append(self.nugget, nugget), factor, self.program)

    def cross(self, X, threads, out=None):
        """Covariances of rows X (N, D), in C order, with the inducing variables, (N, M)."""
        out = np.empty((len(X), self.n)) if out is None else out

        def task(start, stop):
            if self.target.fill(X[start:stop], out[start:stop]) < stop - start:
                self.program.cross(X[start:stop], self.Z, out[start:stop], threads)  # which checks more

        if out.size:
            threads.run(task, split_rows(len(X), ROWS_PER_TASK))
        return out

    def features(self, X, threads, out=None):
        """W (N, M) of rows X in C order, and their residuals: the variance of f that the inducing variables leave."""
        W, residual = self.cross(X, threads, out), np.empty(len(X))
        has_variance = self.n and self.variance is not None
        prior = np.full(len(X), self.variance) if has_variance else self.program.diagonal(X)
        if self.n == 0:
            return W, prior

        def task(start, stop):
            part = slice(start, stop)
            kernel.solve_rows(self.factor, W[part], prior[part], residual[part])

        threads.run(task, split_rows(len(X), ROWS_PER_TASK))
        return W, residual

    def add_rows(self, X, sites, threads, W=None, residual=None):
        """Add up the sites on f of rows X in C order.

        Covariances and W of a few rows are in the cache until they have been added; W (N, M) keeps the latter if it is
        given. If `residual` (N,) is given both are known, and X is not read.

        Returns
        -------
        A, r : ndarray (M, M), lower triangle, and (M,)
        numbers : ndarray (5,)
            Of the kernel, for `RowSites.constant_of`.
        residual : ndarray (N,)
        """
        target = self.target if self.n and self.target.points is not None else None
        whitened, prior = residual is not None, residual
        if not whitened:
            prior = self.program.diagonal(X) if self.variance is None else np.full(len(X), self.variance)
            residual = np.empty(len(X)) if self.n else prior

        def task(start, stop):
            part = slice(start, stop)
            A, r, numbers, own = np.zeros((self.n, self.n), order="F"), np.zeros(self.n), np.zeros(5), sites.part(part)
            rest = prior[part], residual[part], own.tau, own.rho, own.fraction, NO_NUMBERS if own.y is None else own.y
            rows = np.empty((0, self.n)) if W is None else W[part]
            done, has_rows = 0, whitened or not self.n
            if target is not None and not has_rows:
                done = rows_kernel.add_rows(target, X[part], self.factor, rows, False, *rest, A, r, numbers)
            if done < stop - start:
                rows = rows if has_rows else self.cross(X[part], threads, None if W is None else rows)
                rows_kernel.add_rows(None, NO_ROWS, self.factor, rows, has_rows, *rest, A, r, numbers)
            return A, r, numbers

        return *merge(threads.run(task, split_rows(len(sites.rho), ROWS_PER_SUM)), _add_in_place), residual


def _add_in_place(left, right):
    """Add arrays to others."""
    for total, array in zip(left, right, strict=True):
        total += array
    return left


def compute_gram_with_nugget(program, Z, jitter, threads):
    """Return the covariance of rows (n, n) with the share `jitter` of prior variances added, and that share (n,)."""
    gram, nugget = np.empty((len(Z), len(Z))), jitter * program.diagonal(Z)
    program.gram(Z, gram, threads)
    diagonal = np.einsum("ii->i", gram)
    diagonal += nugget
    return gram, nugget


def _factorise(matrix, first):
    """Cholesky triangle of a matrix in Fortran order, which is overwritten; `first` is the index of its first point."""
    factor, failed = lapack.dpotrf(matrix, lower=1, overwrite_a=1, clean=1)  # matrix = factor factor', (m, m)
    if failed:
        raise NotPositiveDefiniteError(
            f"the covariance of the inducing points is not positive definite: point {first + failed - 1} is known from "
            "those before it; leave it out, or raise jitter"
        )
    return factor


def has_white(covariance):
    """Whether a covariance has a White leaf."""
    return any(isinstance(leaf, White) for leaf in list_leaves(covariance))


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

    def copy(self, buffer=None):
        """Return a copy that shares no memory, in the arrays of `buffer` if that is given."""
        names = ("A", "r", "sums", "factor", "c")
        if buffer is None:
            return Information(*(getattr(self, name).copy(order="F") for name in names))
        for name in names:
            np.copyto(getattr(buffer, name), getattr(self, name))
        return buffer

    def factorise(self):
        """Return the factor with B factorised; NotPositiveDefiniteError if that has no Cholesky triangle."""
        B = self.A.copy(order="F")
        diagonal = np.einsum("ii->i", B)
        diagonal += 1.0
        if len(B) == 0:
            return Information(self.A, self.r, self.sums, B, self.r.copy())
        check_within_range(diagonal, "the precisions of the inducing variables given the rows")
        factor, failed = lapack.dpotrf(B, lower=1, overwrite_a=1, clean=1)  # B = factor factor', (M, M)
        if failed:
            raise NotPositiveDefiniteError(
                f"the posterior of the inducing variables is not proper: pivot {failed - 1} of its precision"
            )
        c = blas.dtrsv(factor, self.r, lower=1)  # c = factor^-1 r, (M,)
        return Information(self.A, self.r, self.sums, factor, c)

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

    def plus(self, other, *, in_place=False):
        """Return the factors of two sets of rows as one, B not yet factorised; in place in the arrays of `other`."""
        A, r = (other.A, other.r) if in_place else (None, None)
        return Information(np.add(self.A, other.A, out=A), np.add(self.r, other.r, out=r), self.numbers + other.numbers)

    def raise_to(self, power):
        """Return the factor to a power in [0, 1]."""
        return Information(power * self.A, power * self.r, power * self.numbers).factorise()
