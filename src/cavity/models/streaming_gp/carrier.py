"""What an old factor says about new inducing variables, as a function of the covariance, and its gradient.

With a the old variables, b the new ones and K_.. of the covariance to be judged, nuggets included, L L' = K_bb,

    T = K_ab L^-T,    D = K_aa - T T',    V = L_a^-1 T,    P = L_a^-1 D L_a^-T.

An old variable that is also a new one is known from it: its row of T is that of L, and it has no part in D. So only the
others are in what follows, and where all are kept the old factor costs no covariance of its own and loses no digits.

References
----------
.. [B] T. D. Bui, C. V. Nguyen and R. E. Turner, "Streaming sparse Gaussian process approximations", NIPS 2017, eq. 8.
.. [BYT] T. D. Bui, J. Yan and R. E. Turner, "A unifying framework for Gaussian process pseudo-point approximations
   using power expectation propagation", JMLR 18, 2017.
"""

from dataclasses import dataclass

import numpy as np
from scipy.linalg import blas, lapack

from cavity.base.errors import NotPositiveDefiniteError
from cavity.base.triangles import fill_symmetric, solve_rows
from cavity.models.streaming_gp.basis import gram_with_nugget, same_rows
from cavity.models.streaming_gp.information import Information


class Carrier:
    """What an old factor says about new inducing variables under any covariance, and how that depends on it.

    With Y the columns of L_a^-1 of the variables that are not kept, P = X X' with X = Y R, R R' = D among them, and
    everything that alpha > 0 needs follows from the triangle of I + alpha X' A_a X, which is as small.
    """

    def __init__(self, old, Z, alpha):
        basis, information = old
        self.basis, self.alpha, self.A, self.r = basis, alpha, fill_symmetric(information.A), information.r
        self.information = information
        self.own, self.kept = same_rows(Z, basis.Z)
        self.rest = np.setdiff1d(np.arange(basis.n), self.kept)
        self.rows = np.ascontiguousarray(basis.Z[self.rest])
        columns = np.zeros((basis.n, len(self.rest)), order="F")
        columns[self.rest, np.arange(len(self.rest))] = 1.0
        self.columns = _solve(basis.factor, columns)

    def at(self, basis, threads, log_t=0.0):
        """What it says about the variables of a basis, if the noise of all its rows were exp(log_t) times as large."""
        old, shrink = self.basis, float(np.exp(-log_t))
        constant = self.information.constant - scaling_cost(self.information, 0.0, log_t)
        T = np.empty((old.n, basis.n), order="F")
        T[self.kept] = basis.factor[self.own]
        T[self.rest] = across = solve_rows(basis.factor, basis.cross(self.rows, threads))
        out = Carried(T, across, _solve(old.factor, T), self.A * shrink, self.r * shrink, constant, shrink)
        if len(self.rest):
            self._lose(out, self._spread(basis, across, threads))
        return out

    def _spread(self, basis, across, threads):
        """X of P = X X'."""
        left, _ = gram_with_nugget(basis.program, self.rows, basis.jitter, threads)
        left -= across @ across.T
        triangle, failed = lapack.dpotrf(np.asfortranarray(left), lower=1, clean=1)  # D = R R', (n, n)
        if failed:  # something of them is known from the new ones, to the last digit
            values, vectors = np.linalg.eigh(left)
            return self.columns @ (vectors * np.sqrt(np.maximum(values, 0.0)))
        return blas.dtrmm(1.0, triangle, self.columns, side=1, lower=1)  # X = Y R, (M_a, n)

    def _lose(self, out, X):
        """Take away what the variables that are not kept had to say beyond the new ones."""
        known = X.T @ out.A @ X
        if self.alpha == 0.0:
            out.loss = 0.5 * float(np.trace(known))
            out.constant -= out.loss
            return
        system = self.alpha * known
        system[np.diag_indices_from(system)] += 1.0
        # I + alpha X'A X = triangle triangle', (n, n)
        triangle, failed = lapack.dpotrf(np.asfortranarray(system), lower=1, overwrite_a=1, clean=1)
        if failed:
            raise NotPositiveDefiniteError("what the old rows say cannot be carried over to the new inducing points")
        reached = _solve(triangle, np.asfortranarray(X.T @ out.A))
        shift = _solve(triangle, (X.T @ out.r)[:, None])[:, 0]
        out.loss = float(np.sum(np.log(np.diagonal(triangle)))) / self.alpha
        out.constant += 0.5 * self.alpha * float(shift @ shift) - out.loss
        out.A = out.A - self.alpha * (reached.T @ reached)
        out.r = out.r - self.alpha * (reached.T @ shift)

    def weights(self, carried, solution):
        """Gradients of the bound in K_ab (M_a, M), and in D among the variables that are not kept."""
        inverse, mu = solution.inverse, solution.mean
        apart = carried.r - carried.A @ (carried.V @ mu)
        pulled = carried.A @ carried.V @ inverse
        across = _solve(self.basis.factor, np.asfortranarray(np.outer(apart, mu) - pulled), trans=1)
        seen = carried.A @ self.columns
        left = -0.5 * (self.columns.T @ seen)
        if self.alpha > 0.0:
            spread, apart = seen.T @ carried.V, self.columns.T @ apart
            left += 0.5 * self.alpha * (spread @ inverse @ spread.T + np.outer(apart, apart))
        across[self.rest] -= 2.0 * left @ carried.across
        return across, left

    def noise_slope(self, carried, solution):
        """Derivative in log_t, where alpha is 0."""
        known = carried.V @ solution.mean
        pulled = carried.A @ carried.V
        spread = float(known @ carried.A @ known + np.sum(pulled @ solution.inverse * carried.V))
        rows = (self.information.squares + self.information.gap) * carried.shrink - self.information.n
        return 0.5 * (spread + rows) - float(carried.r @ known) + carried.loss


@dataclass(slots=True, eq=False)
class Carried:
    """The old factor on the new variables, before V: A is V' A V there, with V transposed like all rows."""

    T: np.ndarray  # (M_a, M): K_ab L^-T
    across: np.ndarray  # (n, M): its rows of variables that are not kept
    V: np.ndarray  # (M_a, M): L_a^-1 T
    A: np.ndarray  # (M_a, M_a): A_e
    r: np.ndarray  # (M_a,): r_e
    constant: float
    shrink: float  # what the precisions of its rows are multiplied with
    loss: float = 0.0  # nats

    def information(self, known):
        """The factor of the new variables; `known` is that of the old ones. B is not factorised."""
        return Information.of(
            np.asfortranarray(np.tril(self.V.T @ (self.A @ self.V))),
            self.V.T @ self.r,
            self.constant,
            known.n,
            known.squares * self.shrink,
            known.gap * self.shrink + 2.0 * self.loss,
        )


def moved(information, old, new, alpha, threads, log_t=0.0):
    """Carry a factor of old inducing variables a over to new ones b, whose covariance may differ [B]_ (section 3.1).

    With alpha = 0 it is replaced by exp E log of it under p(a|b), with alpha = 1 by its expectation, in between by the
    expectation of its power alpha to the power 1/alpha [BYT]_. The noise of all rows grows by exp(log_t).

    Returns
    -------
    Information, float
        B not factorised, and the nats that the factor loses.
    """
    carried = Carrier((old, information), new.Z, alpha).at(new, threads, log_t)
    return carried.information(information), carried.loss


def scaling_cost(information, log_s, log_t):
    """Nats that the constant of a factor loses at exp(log_s) times the covariance and exp(log_t) times the noise."""
    known, change = information, np.expm1(-log_t)
    return 0.5 * float(known.n * log_t + known.squares * change + known.gap * np.expm1(log_s - log_t))


def _solve(factor, matrix, trans=0):
    """L^-1 or L^-T applied to a matrix in Fortran order."""
    # L (m, m), matrix (m, k)
    return blas.dtrsm(1.0, factor, matrix, lower=1, trans_a=trans) if matrix.size else matrix
