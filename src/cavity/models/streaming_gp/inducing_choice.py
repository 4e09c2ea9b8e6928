"""The choice of inducing points: rows that say most about the others, as many as it takes.

The residual of a row, its variance given the inducing variables, costs weight residual nats: half of rho residual is
what the bound of Titsias loses there [T]_ (eq. 9). `choose_greedily` adds row after row, which is a Cholesky
factorisation with pivots [FS]_ [BRW]_ (section 4.2.2). An inducing variable has a nugget, so that a pivot's divisor is
the square root of residual plus nugget, and the columns are those of W = L^-1 k(Z, X) of `InducingBasis`.

The row with the largest loss itself, the usual pivot, is an outlier as often as not, and informs about nothing but
itself. So a few rows are tried in every step, that one and others drawn in proportion to their losses as in [CETW]_,
and the one that lowers the losses of all rows most is taken. The draws are quantiles at multiples of the golden ratio:
nothing is random. What 100 points leave of the variance of 4000 rows (unit RBF; lengthscale in brackets): of normal
rows in 2 dimensions (0.3) 0.12 instead of 0.35, in 8 dimensions (2) 0.24 instead of 0.54, of Student t rows with 3
degrees of freedom in 3 (1) 0.15 instead of 0.75, of uniform rows in [0, 10]^2 (1) the same 0.017.

A row whose residual is within a few nuggets is not chosen, however much it weighs: it would say no more than the
jitter. What is chosen therefore has a Cholesky triangle: its pivots are squares of at least the nuggets.

With the budget used up, points may be exchanged. What any set b of inducing variables loses of the rows so far, whose
factor on the old variables a has the precision D_a^-1 = L^-T A L^-1, and of the new rows f is

    J(b) = tr(D_a^-1 cov(a|b))/2 + sum_n weight_n var(f_n|b),

the first term being `map_old_factor`'s with alpha = 0. So a few points too many are chosen among the new
rows, and those that cost least are taken out again, be they old or new. Without u_i covariances grow by h h'/Q_ii,
where Q = K_bb^-1 and h has the coefficients of u_i in the regression of a and f on b, so that the cost is
T_ii/(2 Q_ii), with T = H'D H the precision of all that old and new rows say about b; it is exact for the next one too
when T and Q are updated.

Starting anew from old points and rows, as conditional variances have it, lost 1.3 to 2 times as much on streams that
drift, jump or come back (D = 1, 2, 8; batches of 100). Rows since the last exchange that lost more than is tolerated
wait: they are remembered and count once, which lets many small batches exchange points as one large batch does. What
each part of this gains on two streams of real data, `benchmarks/stories/exchange.py` shows. What rows lose before an
exchange is lost for good, so that any batch that loses more than is tolerated leads to a try. A try costs as much as
some M rows: after one that failed the next comes when rows have lost twice as much since the last exchange as by then.

References
----------
.. [T] M. K. Titsias, "Variational learning of inducing variables in sparse Gaussian processes", AISTATS 2009.
.. [FS] S. Fine and K. Scheinberg, "Efficient SVM training using low-rank kernel representations", JMLR 2, 2001.
.. [BRW] D. R. Burt, C. E. Rasmussen and M. van der Wilk, "Convergence of sparse variational inference in Gaussian
   processes regression", JMLR 21, 2020.
.. [CETW] Y. Chen, E. N. Epperly, J. A. Tropp and R. J. Webber, "Randomly pivoted Cholesky: practical approximation of
   a kernel matrix with few entry evaluations", Communications on Pure and Applied Mathematics 78, 2025.
"""

from dataclasses import dataclass, replace

import numpy as np
from scipy.linalg import blas

from cavity.base.triangles import fill_symmetric, invert_lower
from cavity.models.streaming_gp.inducing_basis import InducingBasis, Information
from cavity.models.streaming_gp.old_data_factor import map_old_factor
from cavity.runs import merge

CANDIDATE_NUMBERS = 1 << 22  # in the columns of the candidates: 32 MB, which most caches hold
FEATURE_NUMBERS = 1 << 20  # of W in a block of rows
ROWS_TRIED_PER_STEP = 6  # rows in every step
GOLDEN_RATIO = (5.0**0.5 - 1.0) / 2.0
MIN_RESIDUAL_NUGGETS = 10.0  # a residual of that many nuggets is worth a point
MIN_RESIDUAL_SHARE = 1e-12  # of the prior variance: residuals below that are rounding, for any jitter
SPARE_BUDGET_SHARE = 0.25  # of the budget: so many points too many are chosen before some are taken out
MAX_WAITING_ROWS = 128  # rows at most
MAX_COUNTED_LOSS = 1e300  # nats that are counted, so that twice as many are a number
FULL_PRECISION = 1e-270  # prior variances below that do not have residuals of full precision


def choose_greedily(basis, X, weight, budget, tolerance, threads):
    """Choose rows to be inducing points beside those already there.

    Parameters
    ----------
    basis : Basis
        Inducing variables that stay; there may be none.
    X : ndarray (N, D)
        Rows to choose from. Where all of them would need too much memory, those at equal distances come first, and
        then those with the largest losses.
    weight : ndarray (N,)
        Nats lost per unit of residual: rho/2.
    budget : int
        Most inducing points, those that stay included.
    tolerance : float
        Nats a row of positive weight that may be lost.
    threads : Threads
        For blocks of covariances; the caller has BLAS on one thread.

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
    if not len(X):
        return np.zeros(0, dtype=np.intp), np.zeros(0)
    unit = float(np.max(weight))  # their sums stay in range
    weight, tolerance = (weight / unit, tolerance / unit) if unit > 0 else (weight, tolerance)
    goal = tolerance * np.count_nonzero(weight)
    limit = max(1, CANDIDATE_NUMBERS // max(budget, 1))
    chosen, first, n_free = np.zeros(0, dtype=np.intp), True, budget - basis.n
    residual = (
        compute_residuals(basis, X, threads) if len(X) > limit or budget <= basis.n else None
    )  # else they come along
    while residual is None or (len(chosen) < n_free and weight @ residual > goal):
        pool = _choose_pool(weight, residual, limit, first)
        rest = goal if residual is None else goal - (weight @ residual - weight[pool] @ residual[pool])
        more, left = _add_pivots(basis, X[pool], weight[pool], budget, rest, threads)
        chosen, first = np.append(chosen, pool[more]), False
        if len(pool) == len(X):
            return chosen, left
        if len(more) == 0:
            break
        basis = basis.extend(X[pool[more]], threads)
        residual = compute_residuals(basis, X, threads)
    return chosen, residual


@dataclass(frozen=True, slots=True, eq=False)
class WaitingRows:
    """Rows since the last exchange of points that lost more than is tolerated."""

    debt: float  # nats that they lost, those that were thinned out included
    patience: float  # nats that they have to lose before the next try
    X: np.ndarray  # (n, D): some of them
    weight: np.ndarray  # (n,): theirs, each with those of the rows it stands for

    @classmethod
    def none(cls, n_features):
        """Return what has no rows."""
        return cls(0.0, 0.0, np.zeros((0, n_features)), np.zeros(0))

    def scale_weights(self, factor):
        """Return the rows with so much less weight."""
        if factor == 0.0:
            return self.none(self.X.shape[1])
        return replace(self, debt=factor * self.debt, patience=factor * self.patience, weight=factor * self.weight)

    def add_rows(self, X, weight, loss):
        """Return all with further rows; of too many every other one goes, and those that stay count twice."""
        chosen = loss > 0.0
        X, weight = np.concatenate([self.X, X[chosen]]), np.append(self.weight, weight[chosen])
        while len(X) > MAX_WAITING_ROWS:
            X, weight = X[::2], 2.0 * weight[::2]
        debt = min(self.debt + float(np.sum(loss)), MAX_COUNTED_LOSS)
        return replace(self, debt=debt, X=X, weight=weight)

    def record_failure(self):
        """Return all after a try that changed nothing: the next one comes when twice as much has been lost."""
        return replace(self, patience=min(2.0 * self.debt, MAX_COUNTED_LOSS))

    def add_unless_needed(self, X, weight, loss, goal, n_inducing, budget):
        """Return all with rows that lose `loss`, `goal` nats of it tolerated; None if points are to be chosen."""
        lost = float(np.sum(loss))
        if lost <= goal:
            return self
        if n_inducing < budget or self.debt + lost > self.patience:
            return None
        return self.add_rows(X, weight, loss)


@dataclass(frozen=True, slots=True, eq=False)
class Choice:
    """Inducing points for further rows; those from before that stay come first, in their order."""

    basis: InducingBasis
    information: Information  # of the rows so far, factorised
    loss: float  # nats that the factor of the rows so far lost
    waiting: WaitingRows


def choose(basis, information, X, weight, budget, tolerance, alpha, threads, *, waiting, residual=None):
    """Choose the inducing points to take in further rows with: more, or others where that pays.

    Parameters
    ----------
    basis, information : Basis, Information
        The inducing variables, and the factor of the rows so far.
    X, weight, budget, tolerance, threads
        As for `choose_greedily`.
    alpha : float
        Of power EP.
    waiting : Waiting
        That of the last choice.
    residual : ndarray (N,), optional
        Variances of the rows given the inducing variables, if they are known.

    Returns
    -------
    Choice
        The very same basis and information where nothing is to be changed.

    Notes
    -----
    Nothing is done for rows that lose no more than the tolerance where another point would help, and points are added
    up to the budget. An exchange costs O((N + M) M^2). It is made if old rows lose less than the new ones and those
    that wait gain; after a try that changed nothing it is tried again when rows have lost twice as much.
    """
    if not len(X):
        return Choice(basis, information, 0.0, waiting)
    residual = compute_residuals(basis, X, threads) if residual is None else residual
    loss = compute_avoidable_loss(basis, basis.program.diagonal(X), weight, residual)
    goal = tolerance * np.count_nonzero(weight)
    left = waiting.add_unless_needed(X, weight, loss, goal, basis.n, budget)
    if left is not None:
        return Choice(basis, information, 0.0, left)
    everyone = np.concatenate([waiting.X, X]), np.append(waiting.weight, weight)
    most = max(budget, basis.n + 1 + int(SPARE_BUDGET_SHARE * budget)) if basis.n else budget
    more, _ = choose_greedily(basis, *everyone, most, tolerance, threads)
    rows = everyone[0][more] + 0.0  # -0.0 is 0.0
    n_free = max(0, budget - basis.n)
    larger = basis.extend(rows[:n_free], threads)
    if len(rows) > n_free:
        exchanged = _exchange(basis, information, larger, rows, *everyone, budget, alpha, threads)
        if exchanged is not None:
            return exchanged
        waiting = waiting.add_rows(X, weight, loss).record_failure()
    return Choice(larger, information.extend(larger.n) if larger.n > basis.n else information, 0.0, waiting)


def compute_avoidable_loss(basis, prior, weight, residual):
    """Nats that rows lose, but 0 where a residual is within a few nuggets: another inducing point would not help."""
    floor = max(MIN_RESIDUAL_NUGGETS * basis.jitter, MIN_RESIDUAL_SHARE)
    return np.where((residual > floor * prior) & (prior > FULL_PRECISION), weight * residual, 0.0)


def _exchange(basis, information, larger, rows, X, weight, budget, alpha, threads):
    """Return the choice with some points for others, of a basis and new rows; None if `larger` loses no more."""
    union = basis.extend(rows, threads)
    W, residual = union.features(X, threads)
    scaled = W * np.sqrt(2.0 * weight)[:, None]
    # (M, M): what all rows say of the variables of both
    precision = fill_symmetric(information.extend(union.n).A) + scaled.T @ scaled
    remaining, lost = prune(*compute_precisions(union, precision), union.n - budget)
    if remaining[-1] < larger.n or not lost + weight @ residual < weight @ compute_residuals(larger, X, threads):
        return None
    return Choice(*_reduce(union, remaining, basis, information, alpha, threads), WaitingRows.none(X.shape[1]))


def reduce_to_budget(basis, information, budget, alpha, threads):
    """Give up the cheapest inducing variables beyond a budget: basis, factor and nats lost."""
    if basis.n <= budget:
        return basis, information, 0.0
    remaining, _ = prune(*compute_precisions(basis, fill_symmetric(information.A)), basis.n - budget)
    return _reduce(basis, remaining, basis, information, alpha, threads)


def _reduce(basis, remaining, old, information, alpha, threads):
    """Return some points of a basis, the factor of an old basis on them, and the nats it loses."""
    new = InducingBasis.of(basis.covariance, basis.Z[remaining], basis.jitter, threads)
    mapped, loss = map_old_factor(information, old, new, alpha, threads)
    return new, mapped.factorise(), loss


def compute_precisions(basis, A):
    """T = L^-T A L^-1 and Q = L^-T L^-1, in Fortran order: precisions of what is known of u, and of its prior."""
    inverse = np.tril(invert_lower(basis.factor))
    return np.asfortranarray(inverse.T @ A @ inverse), np.asfortranarray(inverse.T @ inverse)


def prune(T, Q, count):
    """Take out the cheapest inducing variable, `count` times; T and Q are overwritten.

    Returns
    -------
    remaining : ndarray of int
        Those that are left, in their order.
    lost : float
        Nats lost.
    """
    remaining, lost = np.arange(len(T)), 0.0
    for _ in range(count):
        cost = 0.5 * T[remaining, remaining] / Q[remaining, remaining]
        cheapest = int(np.argmin(cost))
        i, lost = remaining[cheapest], lost + float(cost[cheapest])
        q = Q[:, i] / Q[i, i]
        t = T[:, i] - 0.5 * T[i, i] * q
        # T -= q t' + t q', Q -= Q_i Q_i'/Q_ii: rank-1 terms (M, M) of vectors (M,)
        T = blas.dger(-1.0, q, t, a=blas.dger(-1.0, t, q, a=T, overwrite_a=1), overwrite_a=1)
        Q = blas.dger(-1.0, Q[:, i].copy(), q, a=Q, overwrite_a=1)
        remaining = np.delete(remaining, cheapest)
    return remaining, lost


def compute_residuals(basis, X, threads):
    """Variances (N,) of rows given the inducing variables, in blocks of rows."""
    size = max(256, FEATURE_NUMBERS // max(basis.n, 1))
    parts = [basis.features(X[low:high], threads)[1] for low, high in merge.split_rows(len(X), size)]
    return np.concatenate([np.zeros(0), *parts])


def _choose_pool(weight, residual, limit, first):
    """Indices of at most `limit` rows to choose from: all, some at equal distances, or those that lose most."""
    n = len(weight)
    if n <= limit:
        return np.arange(n)
    if first:
        return np.arange(0, n, -(-n // limit))
    return np.sort(np.argpartition(weight * residual, n - limit)[n - limit :])


def _add_pivots(basis, X, weight, budget, goal, threads):
    """Rows that `choose_greedily` adds until all lose no more than `goal` nats, and the residuals of all rows."""
    program, m, chosen = basis.program, basis.n, []
    W, residual = basis.features(X, threads)
    covariances, prior = program.columns_of(X), program.diagonal(X)
    nugget = basis.jitter * prior
    columns = np.empty((max(budget, m), len(X)))
    columns[:m] = W.T
    while m < budget and weight @ residual > goal:
        tried = _draw_rows(compute_avoidable_loss(basis, prior, weight, residual), ROWS_TRIED_PER_STEP * len(chosen))
        if not len(tried):
            break
        spread = _compute_columns(covariances, tried, columns[:m])
        spread /= np.sqrt(residual[tried] + nugget[tried])[:, None]
        best = int(np.argmax(spread**2 @ weight))
        p = int(tried[best])
        columns[m] = spread[best]
        left = residual[p] * (nugget[p] / (residual[p] + nugget[p]))  # the difference below, without cancellation
        residual -= columns[m] ** 2
        residual[p] = left
        np.maximum(residual, 0.0, out=residual)  # below that it is rounding
        chosen.append(p)
        m += 1
    return np.array(chosen, dtype=np.intp), residual


def _draw_rows(loss, count):
    """Sorted indices of the largest loss and of quantiles of all losses, after `count` draws; none if all are 0."""
    total = np.cumsum(loss)
    if not total[-1] > 0.0:
        return np.zeros(0, dtype=np.intp)
    fractions = (GOLDEN_RATIO * np.arange(count + 1, count + ROWS_TRIED_PER_STEP)) % 1.0
    drawn = np.searchsorted(total, fractions * total[-1], side="right")
    return np.unique(np.append(drawn, np.argmax(loss)))


def _compute_columns(covariances, rows, columns):
    """Covariances (n, N) of n rows with all rows, given the inducing variables of the columns (m, N)."""
    out = covariances(rows)
    if len(columns):
        # out' (N, n) = k(X, rows) - columns' (N, m) columns_rows (m, n)
        blas.dgemm(-1.0, columns.T, columns[:, rows], beta=1.0, c=out.T, overwrite_c=1)
    return out
