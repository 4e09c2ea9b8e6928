"""The choice of inducing points: rows that say most about the others, as many as it takes.

The residual of a row, its variance given the inducing variables, costs weight residual nats: half of rho residual is
what the bound of Titsias loses there [T]_ (eq. 9). `greedy` adds row after row, which is a Cholesky factorisation with
pivots [FS]_ [BRW]_ (section 4.2.2). An inducing variable has a nugget, so that a pivot's divisor is the square root of
residual plus nugget, and the columns are those of W = L^-1 k(Z, X) of `Basis`.

The row with the largest loss itself, the usual pivot, is an outlier as often as not, and tells about nothing but
itself. So a few rows are tried in every step, that one and others drawn in proportion to their losses as in [CETW]_,
and the one that lowers the losses of all rows most is taken. The draws are quantiles at multiples of the golden ratio:
nothing is random. What 100 points leave of the variance of 4000 rows (unit RBF; lengthscale in brackets): of normal
rows in 2 dimensions (0.3) 0.12 instead of 0.35, in 8 dimensions (2) 0.24 instead of 0.54, of Student t rows with 3
degrees of freedom in 3 (1) 0.15 instead of 0.75, of uniform rows in [0, 10]^2 (1) the same 0.017.

A row whose residual is within a few nuggets is not chosen, however much it weighs: it would say no more than the
jitter. What is chosen therefore has a Cholesky triangle: its pivots are squares of at least the nuggets.

References
----------
.. [T] M. K. Titsias, "Variational learning of inducing variables in sparse Gaussian processes", AISTATS 2009.
.. [FS] S. Fine and K. Scheinberg, "Efficient SVM training using low-rank kernel representations", JMLR 2, 2001.
.. [BRW] D. R. Burt, C. E. Rasmussen and M. van der Wilk, "Convergence of sparse variational inference in Gaussian
   processes regression", JMLR 21, 2020.
.. [CETW] Y. Chen, E. N. Epperly, J. A. Tropp and R. J. Webber, "Randomly pivoted Cholesky: practical approximation of
   a kernel matrix with few entry evaluations", Communications on Pure and Applied Mathematics 78, 2025.
"""

import numpy as np
from scipy.linalg import blas

from . import _blocks, _core
from ._sparse import Basis

_covariances = _core.best("covariance")

NUMBERS = 1 << 22  # in the columns of the candidates: 32 MB, which most caches hold
BLOCK_NUMBERS = 1 << 20  # of W in a block of rows
TRIED = 6  # rows in every step
GOLDEN = (5.0**0.5 - 1.0) / 2.0
NUGGETS = 10.0  # a residual of that many nuggets is worth a point
ROUNDING = 1e-12  # of the prior variance: residuals below that are rounding, for any jitter
SMALLEST = 1e-270  # prior variances below that do not have residuals of full precision


def greedy(covariance, Z, X, weight, budget, tolerance, jitter, threads, *, basis=None):
    """Choose rows to be inducing points beside those already there.

    Parameters
    ----------
    covariance : Covariance
        Without `White`.
    Z : ndarray (m, D)
        Inducing points that stay; m may be 0.
    X : ndarray (N, D)
        Rows to choose from. Where all of them would need too much memory, those at equal distances come first, and
        then those with the largest losses.
    weight : ndarray (N,)
        Nats lost per unit of residual: rho/2.
    budget : int
        Most inducing points, those that stay included.
    tolerance : float
        Nats a row of positive weight that may be lost.
    jitter : float
        Nuggets, relative to the prior variance.
    threads : Threads
        For blocks of covariances; the caller has BLAS on one thread.
    basis : Basis, optional
        That of Z, if it is known.

    Returns
    -------
    chosen : ndarray of int
        Indices of rows of X in the order of choice; of those tried that save the same, the lowest.
    residual : ndarray (N,)
        Variances of all rows given all inducing variables.

    Notes
    -----
    Ends at the first of: the rows lose no more than the tolerance, the budget is used up, no row of positive weight has
    a residual of more than ten nuggets. With N candidates and M points: O(N M^2).
    """
    basis = Basis.of(covariance, Z, jitter, threads) if basis is None else basis
    if not len(X):
        return np.zeros(0, dtype=np.intp), np.zeros(0)
    goal = tolerance * np.count_nonzero(weight)
    limit = max(1, NUMBERS // max(budget, 1))
    chosen, first = np.zeros(0, dtype=np.intp), True
    residual = residuals(basis, X, threads) if len(X) > limit or budget <= basis.n else None
    while residual is None or (len(chosen) + len(Z) < budget and weight @ residual > goal):
        pool = _pool(weight, residual, limit, first)
        rest = goal if residual is None else goal - (weight @ residual - weight[pool] @ residual[pool])
        more, left = _pivots(basis, X[pool], weight[pool], budget, rest, threads)
        chosen, first = np.append(chosen, pool[more]), False
        if len(pool) == len(X):
            return chosen, left
        if len(more) == 0:
            break
        basis = basis.extended(X[pool[more]], threads)
        residual = residuals(basis, X, threads)
    return chosen, residual


def residuals(basis, X, threads):
    """Variances (N,) of rows given the inducing variables, in blocks of rows."""
    size = max(256, BLOCK_NUMBERS // max(basis.n, 1))
    parts = [basis.features(X[low:high], threads)[1] for low, high in _blocks.starts(len(X), size)]
    return np.concatenate(parts)


def _pool(weight, residual, limit, first):
    """Indices of at most `limit` rows to choose from: all, some at equal distances, or those that lose most."""
    n = len(weight)
    if n <= limit:
        return np.arange(n)
    if first:
        return np.arange(0, n, -(-n // limit))
    return np.sort(np.argpartition(weight * residual, n - limit)[n - limit :])


def _pivots(basis, X, weight, budget, goal, threads):
    """Rows that `greedy` adds to a basis until they lose no more than `goal` nats, and the residuals of all rows."""
    program, m, chosen = basis.program, basis.n, []
    W, residual = basis.features(X, threads)
    scaled, prior = program._alone(X), program.diagonal(X)
    nugget = basis.jitter * prior
    floor = np.where(prior > SMALLEST, max(NUGGETS * basis.jitter, ROUNDING) * prior, np.inf)
    columns = np.empty((max(budget, m), len(X)))
    columns[:m] = W.T
    while m < budget and weight @ residual > goal:
        tried = _tried(np.where(residual > floor, weight * residual, 0.0), TRIED * len(chosen))
        if not len(tried):
            break
        spread = _columns(program, scaled, tried, columns[:m])
        gain = (spread**2 @ weight) / (residual[tried] + nugget[tried])
        best = int(np.argmax(gain))
        p = int(tried[best])
        np.divide(spread[best], np.sqrt(residual[p] + nugget[p]), out=columns[m])
        left = residual[p] * nugget[p] / (residual[p] + nugget[p])  # the difference below, without cancellation
        residual -= columns[m] ** 2
        residual[p] = left
        np.maximum(residual, 0.0, out=residual)  # below that it is rounding
        chosen.append(p)
        m += 1
    return np.array(chosen, dtype=np.intp), residual


def _tried(loss, count):
    """Sorted indices of the largest loss and of quantiles of all losses, after `count` draws; none if all are 0."""
    total = np.cumsum(loss)
    if not total[-1] > 0.0:
        return np.zeros(0, dtype=np.intp)
    fractions = (GOLDEN * np.arange(count + 1, count + TRIED)) % 1.0
    drawn = np.searchsorted(total, fractions * total[-1], side="right")
    return np.unique(np.append(drawn, np.argmax(loss)))


def _columns(program, scaled, rows, columns):
    """Covariances (n, N) of n rows with all rows, given the inducing variables of the columns (m, N)."""
    out = np.empty((len(rows), scaled.shape[1]))
    own = np.ascontiguousarray(scaled[:, rows])
    _covariances.fill(program.code, program.parameters, own, scaled, False, 0, len(rows), out)
    if len(columns):
        blas.dgemm(-1.0, columns.T, columns[:, rows], beta=1.0, c=out.T, overwrite_c=1)
    return out
