"""The factor of earlier rows, exp(E_1(b)), on new inducing variables b: a function of the covariance, and its gradient.

With a the old variables, b the new ones and K_.. of the new covariance, nuggets included, L L' = K_bb, L_a L_a' the old
kernel's K'_aa, and D_a^-1 = S_a^-1 - K'_aa^-1 = L_a^-T A_a L_a^-1, S_a^-1 m_a = L_a^-T r_a, ::

    T = K_ab L^-T,    Q_a = K_aa - T T',    V = L_a^-1 T,    P = L_a^-1 Q_a L_a^-T,
    E_1(b) = constant - w'V'A_a V w/2 + r_a'V w - tr(A_a P)/2,    b = L w        [J]_ (E_1)

An old variable that is also a new one has in T the row that it has in L, and no part in Q_a. So only the rows of the
others are computed, and where all are kept the old factor costs no covariance of its own and loses no digits.

References
----------
.. [J] Kalvik Jakkala, "Tutorial on streaming sparse Gaussian processes": E_1, E_2 and q_opt.
.. [B] T. D. Bui, C. V. Nguyen and R. E. Turner, "Streaming sparse Gaussian process approximations", NIPS 2017.
.. [BYT] T. D. Bui, J. Yan and R. E. Turner, "A unifying framework for Gaussian process pseudo-point approximations
   using power expectation propagation", JMLR 18, 2017.
"""

from dataclasses import dataclass

import numpy as np
from scipy.linalg import blas, lapack

from cavity.base.errors import NotPositiveDefiniteError
from cavity.base.triangles import fill_symmetric, solve_rows
from cavity.models.streaming_gp.inducing_basis import Information, compute_gram_with_nugget, match_equal_rows


class OldFactorMap:
    """The old factor on new inducing variables, as a function of the covariance.

    Only the n old variables that are not new ones lose information. With Y their columns of L_a^-1 and R R' = Q_a among
    them, P = X X' with X = Y R, (M_a, n), and what alpha > 0 needs follows from the Cholesky factor of I + alpha X'A X.
    """

    def __init__(self, old, Z, alpha):
        basis, information = old
        self.basis, self.alpha, self.A, self.r = basis, alpha, fill_symmetric(information.A), information.r
        self.information = information
        self.new_index, self.kept_index = match_equal_rows(Z, basis.Z)
        self.lost_index = np.setdiff1d(np.arange(basis.n), self.kept_index)
        self.rows = np.ascontiguousarray(basis.Z[self.lost_index])
        columns = np.zeros((basis.n, len(self.lost_index)), order="F")
        columns[self.lost_index, np.arange(len(self.lost_index))] = 1.0
        self.columns = _solve_triangle(basis.factor, columns)  # Y

    def at(self, basis, threads, log_t=0.0):
        """Return the MappedFactor for the variables of a basis, with the noise of all old rows exp(log_t) times as
        large."""
        old, shrink = self.basis, float(np.exp(-log_t))
        constant = self.information.constant - compute_scaling_cost(self.information, 0.0, log_t)
        T = np.empty((old.n, basis.n), order="F")
        T[self.kept_index] = basis.factor[self.new_index]
        T[self.lost_index] = across = solve_rows(basis.factor, basis.cross(self.rows, threads))  # K_ab L^-T
        V = _solve_triangle(old.factor, T)  # L_a^-1 T
        out = MappedFactor(T, across, V, self.A * shrink, self.r * shrink, constant, shrink)
        if len(self.lost_index):
            self._subtract_loss(out, self._compute_root(basis, across, threads))
        return out

    def _compute_root(self, basis, across, threads):
        """Return X, with P = X X'."""
        residual, _ = compute_gram_with_nugget(basis.program, self.rows, basis.jitter, threads)
        residual -= across @ across.T  # Q_a = K_aa - T T'
        triangle, failed = lapack.dpotrf(np.asfortranarray(residual), lower=1, clean=1)  # Q_a = R R', (n, n)
        if failed:  # the new variables determine some of them to the last digit
            values, vectors = np.linalg.eigh(residual)
            return self.columns @ (vectors * np.sqrt(np.maximum(values, 0.0)))
        return blas.dtrmm(1.0, triangle, self.columns, side=1, lower=1)  # X = Y R, (M_a, n)

    def _subtract_loss(self, out, X):
        """Subtract what the new variables cannot represent: tr(A P)/2 for alpha = 0, [J]_ (last terms of E_1)."""
        information = X.T @ out.A @ X
        if self.alpha == 0.0:
            out.loss = 0.5 * float(np.trace(information))  # tr(D_a^-1 Q_a)/2 = tr(A P)/2
            out.constant -= out.loss
            return
        # power EP [BYT]_: A_e = A - alpha A X (I + alpha X'A X)^-1 X'A, and r_e alike
        system = self.alpha * information
        system[np.diag_indices_from(system)] += 1.0
        # I + alpha X'A X = triangle triangle', (n, n)
        triangle, failed = lapack.dpotrf(np.asfortranarray(system), lower=1, overwrite_a=1, clean=1)
        if failed:
            raise NotPositiveDefiniteError("the factor of the old rows has no power mean at the new inducing points")
        reached = _solve_triangle(triangle, np.asfortranarray(X.T @ out.A))
        shift = _solve_triangle(triangle, (X.T @ out.r)[:, None])[:, 0]
        out.loss = float(np.sum(np.log(np.diagonal(triangle)))) / self.alpha  # log|I + alpha X'A X|/(2 alpha)
        out.constant += 0.5 * self.alpha * float(shift @ shift) - out.loss
        out.A = out.A - self.alpha * (reached.T @ reached)
        out.r = out.r - self.alpha * (reached.T @ shift)

    def compute_gradients(self, mapped, solution):
        """Return gradients of the bound in K_ab (M_a, M), and in Q_a among the variables that are not kept."""
        inverse, mu = solution.inverse, solution.mean
        gradient = mapped.r - mapped.A @ (mapped.V @ mu)
        pulled = mapped.A @ mapped.V @ inverse
        # dF/dK_ab L' = L_a^-T [(r - A V mu) mu' - A V B^-1]
        across = _solve_triangle(self.basis.factor, np.asfortranarray(np.outer(gradient, mu) - pulled), trans=1)
        products = mapped.A @ self.columns
        by_residual = -0.5 * (self.columns.T @ products)  # dF/dQ_a = -Y'A Y/2 for alpha = 0
        if self.alpha > 0.0:
            spread, gradient = products.T @ mapped.V, self.columns.T @ gradient
            by_residual += 0.5 * self.alpha * (spread @ inverse @ spread.T + np.outer(gradient, gradient))
        across[self.lost_index] -= 2.0 * by_residual @ mapped.across  # Q_a depends on K_ab as well
        return across, by_residual

    def differentiate_by_noise(self, mapped, solution):
        """Return the derivative of the bound in log_t, where alpha is 0."""
        mean = mapped.V @ solution.mean
        pulled = mapped.A @ mapped.V
        spread = float(mean @ mapped.A @ mean + np.sum(pulled @ solution.inverse * mapped.V))
        rows = (self.information.squares + self.information.gap) * mapped.shrink - self.information.n
        return 0.5 * (spread + rows) - float(mapped.r @ mean) + mapped.loss


@dataclass(slots=True, eq=False)
class MappedFactor:
    """The old factor on the new variables: A is V'A V there, r is V'r."""

    T: np.ndarray  # (M_a, M): K_ab L^-T
    across: np.ndarray  # (n, M): its rows of variables that are not kept
    V: np.ndarray  # (M_a, M): L_a^-1 T
    A: np.ndarray  # (M_a, M_a): A_a, or A_e for alpha > 0
    r: np.ndarray  # (M_a,): r_a, or r_e
    constant: float
    shrink: float  # factor of the precisions of its rows
    loss: float = 0.0  # nats

    def to_information(self, old):
        """Return the factor of the new variables, B not factorised; `old` is the Information of the old ones."""
        return Information.of(
            np.asfortranarray(np.tril(self.V.T @ (self.A @ self.V))),  # V'A V
            self.V.T @ self.r,  # V'r
            self.constant,
            old.n,
            old.squares * self.shrink,
            old.gap * self.shrink + 2.0 * self.loss,
        )


def map_old_factor(information, old, new, alpha, threads, log_t=0.0):
    """Replace a factor on old inducing variables a by one on new ones b, whose covariance may differ: exp(E_1(b)).

    With alpha = 0 it is exp of the expectation of its log under p(a|b) [J]_, with alpha = 1 its expectation, in between
    the expectation of its power alpha to the power 1/alpha [BYT]_. The noise of all rows grows by exp(log_t).

    Returns
    -------
    Information, float
        B not factorised, and the nats that the factor loses.
    """
    mapped = OldFactorMap((old, information), new.Z, alpha).at(new, threads, log_t)
    return mapped.to_information(information), mapped.loss


def compute_scaling_cost(information, log_s, log_t):
    """Nats that the constant of a factor loses at exp(log_s) times the covariance and exp(log_t) times the noise."""
    change = np.expm1(-log_t)
    rows = information.n * log_t + information.squares * change
    return 0.5 * float(rows + information.gap * np.expm1(log_s - log_t))


def _solve_triangle(factor, matrix, trans=0):
    """L^-1 or L^-T applied to a matrix in Fortran order."""
    # L (m, m), matrix (m, k)
    return blas.dtrsm(1.0, factor, matrix, lower=1, trans_a=trans) if matrix.size else matrix
