"""Sparse structure matrices with null spaces: log determinants and generalised inverses without eigenvalues.

References
----------
.. [RH] H. Rue and L. Held, "Gaussian Markov Random Fields", 2005.
.. [SR] S. H. Sorbye and H. Rue, "Scaling intrinsic Gaussian Markov random field priors in spatial modelling", Spatial
   Statistics 8, 2014.
"""

from __future__ import annotations

import numpy as np

from cavity.base.lazy_scipy import linalg, sparse
from cavity.linalg.sparse_cholesky import SparseCholesky
from cavity.runs.executors import Threads, single_blas


def lower_triangle(matrix):
    """Return the rows, columns and values (e,) of the lower triangle of a sparse matrix, with all of its diagonal."""
    lower, n = sparse.coo_array(sparse.tril(matrix, -1)), matrix.shape[0]
    lower.eliminate_zeros()
    rows, columns = (np.concatenate([part, np.arange(n)]).astype(np.intp) for part in lower.coords)
    order = np.lexsort((rows, columns))
    return rows[order], columns[order], np.concatenate([lower.data, matrix.diagonal()])[order]


class PatternFactor:
    """Log determinants and entries of inverses of sparse matrices (n, n) of one pattern, which is analysed once."""

    def __init__(self, rows, columns):
        """`rows` and `columns` (e,) are those of the lower triangle, column by column, with all of the diagonal."""
        self.n = int(columns[-1]) + 1
        self._cholesky = SparseCholesky(np.searchsorted(columns, np.arange(self.n + 1)), rows)
        self._positions = self._cholesky.positions(rows, columns)

    def invert(self, entries, right_sides=None):
        """Return the log determinant of a matrix, the entries (e,) of its inverse, and solutions (n, r) if there are.

        Raises
        ------
        ArithmeticError
            If the matrix is not positive definite.
        """
        cholesky = self._cholesky
        values = np.zeros(cholesky.n_entries)
        values[self._positions] = entries
        with Threads(1) as threads, single_blas():
            if cholesky.factor(values, threads):
                raise ArithmeticError("the matrix is not positive definite")
            log_determinant = cholesky.log_determinant(values)
            solved = None if right_sides is None else cholesky.solve(values, right_sides.T, threads).T
            cholesky.invert(values, threads)
        inverse = values[self._positions]
        return (log_determinant, inverse) if right_sides is None else (log_determinant, inverse, solved)


def factor_and_invert(matrix, right_sides=None):
    """Return the log determinant of a sparse matrix, the diagonal of its inverse, and solutions (n, r) or None.

    Raises
    ------
    ArithmeticError
        If the matrix is not positive definite.
    """
    rows, columns, entries = lower_triangle(matrix)
    log_determinant, inverse, *solved = PatternFactor(rows, columns).invert(entries, right_sides)
    return log_determinant, inverse[rows == columns], solved[0] if solved else None


def analyse(S, N):
    """Return log|S|* - log|N'N| of a sparse matrix S with the null space N (n, r), and the diagonal of S^-.

    By the generalised matrix-tree theorem the first is log|S_(-J,-J)| - 2 log|det N_J| for any r rows J of N that are
    independent. With G the inverse of S_(-J,-J), 0 elsewhere, S G S = S, so that S^- = R G R, R = I - N (N'N)^-1 N'.

    Raises
    ------
    ArithmeticError
        If S is not positive definite but for its null space.
    """
    n, r = N.shape
    basis = np.linalg.qr(N)[0]
    J = np.sort(linalg.qr(basis.T, mode="r", pivoting=True)[1][:r])
    rest = np.setdiff1d(np.arange(n), J)
    log_determinant, inner, solved = factor_and_invert(sparse.csc_array(S)[rest][:, rest], basis[rest])
    diagonal, G = np.zeros(n), np.zeros((n, r))
    diagonal[rest], G[rest] = inner, solved
    diagonal += np.sum((basis @ (basis.T @ G)) * basis, axis=1) - 2.0 * np.sum(basis * G, axis=1)
    return log_determinant - 2.0 * np.linalg.slogdet(N[J])[1], diagonal


def geometric_mean(variances):
    """Return the geometric mean of positive numbers, the scale of [SR]_."""
    return float(np.exp(np.mean(np.log(variances))))
