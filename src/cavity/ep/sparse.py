"""The geometry of sparse latent Gaussian models: sites on f = X a + base, a ~ N(a0, P^-1), where X and P are sparse.

The precision of a belief is Q = P + X' R X, R the precisions of the sites: its pattern is that of P + X'X for the whole
fit, so the order of elimination is found once. The means and variances of all f need Q^-1 on that pattern alone, which
is the selected inverse [T]_, so that a belief costs about three factorisations of Q [CH]_.

Constraints A a = A a0, r of them, stay outside of Q, which they would fill in ("conditioning by kriging", equations
2.28 to 2.30 of [RH]_). P, and Q where two terms share a null vector, may be singular without them. So the factor is
that of Q + e L e', L > 0 a diagonal (r, r) and e the r unit vectors of the pins, which make P regular. With its inverse
S,

    C = S - U'U, U'U = S A' (A S A')^-1 A S,        Cov a = C + C e (L^-1 - e'C e)^-1 e'C,                         (1)

first the constraints, and then the pins are taken away: the pins do not change the result. On the pattern of Q that is
all that is needed, and in place of log |Q| there is

    log |Q + e L e'| + log |A S A'| + log |L| + log |L^-1 - e'C e|,                                                (2)

the log determinant on the subspace up to log |A A'|, which the prior has, too.

The sums (h, g) of the engine are X' R X on the pattern, (E,), and X'(tau - rho X a0 - rho base), (n,).

References
----------
.. [CH] B. Cseke and T. Heskes, "Approximate marginals in latent Gaussian models", JMLR 12, 2011.
.. [RH] H. Rue and L. Held, "Gaussian Markov Random Fields", 2005.
.. [T] K. Takahashi, J. Fagan and M.-S. Chin, "Formation of a sparse bus impedance matrix and its application to short
   circuit study", PICA Conference Proceedings, 1973.
"""

import math
from dataclasses import dataclass, replace
from functools import cached_property, partial

import numpy as np

from cavity.base.lazy_scipy import linalg, sparse
from cavity.ep.geometry import ROW_GROUPS, DifferenceGeometry, MarginalBelief
from cavity.linalg.coded_rows import CodedRows
from cavity.linalg.row_pairs import RowPairs, subtract_products
from cavity.linalg.sparse_cholesky import SparseCholesky
from cavity.runs.executors import split_range

MATCHED_ROWS = 8192  # rows whose sites are matched together
SMALLEST_NUMBER = float(np.finfo(float).tiny)  # that has all digits


class Pattern:
    """Where P + X'X has entries, and the order in which its factor eliminates them: found once for a fit.

    Parameters
    ----------
    X : scipy.sparse CSR (N, n) or CodedRows
        The rows.
    rows, columns : ndarray (e,) of int
        The entries of the lower triangle of P, row >= column, with all of the diagonal.
    order : ndarray (n,) of int, optional
        The order of elimination; by default minimum degree.
    """

    def __init__(self, X, rows, columns, order=None):
        n = X.shape[1]
        self.pairs = X.pairs() if isinstance(X, CodedRows) else RowPairs(X.indptr, X.indices, X.data, n)
        prior = sparse.csc_array((np.ones(len(rows), np.float32), (rows, columns)), (n, n))
        both = sparse.csc_array(self.pairs.products + prior)
        both.sort_indices()
        self.n, self.X = n, X
        self.cholesky = SparseCholesky(both.indptr, both.indices, order)
        self.order = self.cholesky.order if order is None else order
        self.pairs.place_in(both.indptr, both.indices)
        self.indptr, self.rows, self.columns = both.indptr, both.indices, np.repeat(np.arange(n), np.diff(both.indptr))
        self.places = self.cholesky.positions(self.rows, self.columns)
        self.diagonal = np.flatnonzero(self.rows == self.columns)  # which entries are on it, column by column
        self.times = np.where(self.rows == self.columns, 1.0, 2.0)  # how often an entry stands in the whole matrix
        self.spare_values = []  # arrays of the factor: one that is taken out is of one belief
        self.prior = np.searchsorted(self.columns * n + self.rows, columns * n + rows)
        self._prior, self.in_prior = prior, np.sort(self.prior)

    @cached_property
    def of_prior(self):
        """The Cholesky factor of P alone, and where the entries of its pattern stand there."""
        cholesky = SparseCholesky(self._prior.indptr, self._prior.indices)
        return cholesky, cholesky.positions(self.rows[self.prior], self.columns[self.prior])

    def product(self, entries, b, index=slice(None)):
        """The product with b (n,) of the symmetric matrix of entries (E,), or of some, with all of the diagonal."""
        rows, columns, values = self.rows[index], self.columns[index], entries[index]
        lower = np.bincount(rows, values * b[columns], self.n)
        upper = np.bincount(columns, values * b[rows], self.n)
        return lower + upper - entries[self.diagonal] * b


@dataclass(frozen=True, slots=True, eq=False)
class Constraints:
    """A a = A a0, and the pins that make the precision regular."""

    A: np.ndarray  # (r, n)
    pins: np.ndarray  # (r,) of int
    pin_precisions: np.ndarray  # (r,): the diagonal of L


@dataclass(frozen=True, slots=True, eq=False)
class Precision:
    """P of a prior, or of what takes its place in an update."""

    entries: np.ndarray  # (e,), of the lower triangle, in the order of the arguments of `Pattern`
    log_determinant: float  # with constraints (2)
    constraints: Constraints | None = None


@dataclass(frozen=True, eq=False)
class Kriging:
    """Constraints and pins of a Gaussian N(m, S): see (1)."""

    constraints: Constraints
    root: np.ndarray  # (r, r): T with T'T = (A S A')^-1
    removed: np.ndarray  # (r, n): U = T A S
    pin_root: np.ndarray  # (r, r): T with T'T = (L^-1 - e'C e)^-1
    restored: np.ndarray  # (r, n): T e'C
    log_determinant: float  # what (2) adds to that of the factor

    @classmethod
    def of(cls, constraints, solve):
        """Return those of a factor, None without constraints; `solve(rows)` returns the products of rows with S.

        Raises
        ------
        ArithmeticError
            If the constraints depend on each other, or do not identify what the pins do.
        """
        if constraints is None:
            return None
        A, pins, size = constraints.A, constraints.pins, np.sqrt(constraints.pin_precisions)
        units = np.zeros((len(pins), A.shape[1]))
        units[np.arange(len(pins)), pins] = 1.0
        solved = solve(np.concatenate([A, units]))
        root, log_removed = _invert_root(A @ solved[: len(A)].T)
        removed = root @ solved[: len(A)]
        conditioned = solved[len(A) :] - removed[:, pins].T @ removed  # e'C
        pin_root, log_restored = _invert_root(np.eye(len(pins)) - size[:, None] * conditioned[:, pins] * size)
        pin_root = pin_root * size
        return cls(constraints, root, removed, pin_root, pin_root @ conditioned, log_removed + log_restored)

    def apply(self, a):
        """Return the products of Cov a with vectors from those with S, (..., n)."""
        a = self.condition(a)
        return a + (a[..., self.constraints.pins] @ self.pin_root.T) @ self.restored

    def condition(self, a):
        """Return the products of C with vectors from those with S, or draws of covariance C from such of S."""
        return a - ((a @ self.constraints.A.T) @ self.root.T) @ self.removed

    def take_out(self, indptr, rows, entries, threads):
        """Turn entries (m,) of S into those of Cov a, of the lower triangle by columns."""
        vectors, signs = np.concatenate([self.removed, self.restored]), [1.0, -1.0]
        subtract_products(indptr, rows, vectors, np.repeat(signs, len(self.removed)), entries, threads)


def _invert_root(matrix):
    """Return L^-1 for the Cholesky factor L of a matrix, and its log determinant; ArithmeticError if it has none."""
    if matrix.shape == (1, 1) and 0.0 < matrix[0, 0] < np.inf:  # calls of LAPACK, or for arrays, would take longer
        unit = 1.0 / math.sqrt(max(matrix[0, 0], SMALLEST_NUMBER))
        root = math.sqrt(matrix[0, 0] * unit * unit)
        return np.full((1, 1), unit / root), float(2.0 * np.log(root / unit))
    unit = 1.0 / np.sqrt(np.maximum(np.diagonal(matrix), SMALLEST_NUMBER))
    try:
        root = np.linalg.cholesky(0.5 * (matrix + matrix.T) * unit * unit[:, None])
    except np.linalg.LinAlgError:
        raise ArithmeticError("the constraints of terms depend on each other, or leave a null space open") from None
    inverse = linalg.solve_triangular(root, np.eye(len(root)), lower=True, check_finite=False)
    return inverse * unit, float(2.0 * np.sum(np.log(np.diagonal(root) / unit)))


def _solve(cholesky, factor, kriging, rows, threads):
    """Return the products of vectors (k, n) with the covariance of a factor and its constraints."""
    solved = cholesky.solve(factor, rows, threads)
    return solved if kriging is None else kriging.apply(solved)


@dataclass(frozen=True, slots=True, eq=False)
class SparseBelief(MarginalBelief):
    """A Gaussian over a: its mean, its covariance on the pattern, and the marginals of all f."""

    h: np.ndarray  # (E,)
    g: np.ndarray  # (n,)
    step: np.ndarray  # (n,): the mean of a less a0
    inverse: np.ndarray  # (E,): Q^-1 on the pattern
    mean: np.ndarray  # (N,): of f
    variance: np.ndarray  # (N,): of f
    square: float  # step' P step
    log_ratio: float  # log |Q|/|P|, with constraints of (2)
    trace: float  # of h Q^-1
    solved: np.ndarray | None = None  # (k, n): the products of Cov a with the directions of `Sparse.belief`

    def log_integral(self):
        """log of the integral of the prior times sites exp(g'a - a'h a/2) of a less a0."""
        return 0.5 * (float(self.g @ self.step) - self.log_ratio)

    def prior_gap(self):
        """log of the posterior's density over the prior's, at the posterior mean."""
        return 0.5 * (self.square + self.log_ratio)

    def divergence(self):
        """KL(q || prior)."""
        return self.prior_gap() - 0.5 * self.trace


class Sparse(DifferenceGeometry):
    """Rows on a `Pattern`, a prior and offsets; see the head of the file.

    `first(sites, options)` returns the sites to start from, tau and rho (N,), or None.
    """

    parallel_only = True

    def __init__(self, pattern, prior_mean, precision, offset, threads, first=None):
        self.first = (lambda sites, options: None) if first is None else first
        self.pattern, self.threads, self.n_rows = pattern, threads, pattern.X.shape[0]
        self.prior_mean, self.precision = prior_mean, precision
        self.base = pattern.pairs.matvec(prior_mean) if np.any(prior_mean) else np.zeros(self.n_rows)
        if offset is not None:
            self.base += offset
        self.prior_entries = np.zeros(len(pattern.places))
        self.prior_entries[pattern.prior] = precision.entries
        self.pin_entries = 0.0
        if precision.constraints is not None:
            self.pin_entries = np.zeros(len(pattern.places))
            self.pin_entries[pattern.diagonal[precision.constraints.pins]] = precision.constraints.pin_precisions
        self.block, self.groups = MATCHED_ROWS, split_range(self.n_rows, ROW_GROUPS, MATCHED_ROWS)
        self._last_sums, self._last_belief = None, None  # sites of Gaussian noise do not change

    # ------------------------------------------------------------------------------------------ beliefs

    def factorise(self, h):
        """L of P + h and pins in an array that may become spare afterwards; None if there is none."""
        entries = self.prior_entries + h + self.pin_entries
        if not np.isfinite(entries).all():
            return None
        spare = self.pattern.spare_values
        values = spare.pop() if spare else np.empty(self.pattern.cholesky.n_entries)
        values.fill(0.0)
        values[self.pattern.places] = entries
        return None if self.pattern.cholesky.factor(values, self.threads) else values

    def belief(self, h, g, has_marginals=True, find_directions=None):
        """The posterior whose sites sum to (h, g), or None if it is not proper; with or without marginals of f.

        `find_directions(step)` returns vectors (k, n), of which the belief has the products with Cov a.
        """
        pattern, cholesky, last = self.pattern, self.pattern.cholesky, self._last_belief
        if last is not None and has_marginals and find_directions is None and h is last.h and g is last.g:
            return replace(last)
        factor = self.factorise(h)
        if factor is None or not np.isfinite(g).all():
            return None
        step, log_determinant = cholesky.solve(factor, g, self.threads), cholesky.log_determinant(factor)
        kriging = Kriging.of(self.precision.constraints, partial(cholesky.solve, factor, threads=self.threads))
        if kriging is not None:
            step, log_determinant = kriging.apply(step), log_determinant + kriging.log_determinant
        solved = (
            None if find_directions is None else _solve(cholesky, factor, kriging, find_directions(step), self.threads)
        )
        cholesky.invert(factor, self.threads)  # in its place
        inverse = factor[pattern.places]
        pattern.spare_values.append(factor)
        if kriging is not None:
            kriging.take_out(pattern.indptr, pattern.rows, inverse, self.threads)
        f_mean, f_variance = np.zeros(0), np.ones(0)
        if has_marginals:
            f_mean = self.base + pattern.pairs.matvec(step)
            f_variance = pattern.pairs.variances(inverse, self.threads)
        with np.errstate(over="ignore", invalid="ignore"):  # the belief is None if a number leaves the range of float64
            square = float(step @ pattern.product(self.prior_entries, step, pattern.in_prior))
            trace = float(np.sum(pattern.times * h * inverse))
        if not (math.isfinite(square + trace) and np.isfinite(f_mean).all() and (f_variance > 0.0).all()):
            return None
        log_ratio = log_determinant - self.precision.log_determinant
        belief = SparseBelief(h, g, step, inverse, f_mean, f_variance, square, log_ratio, trace, solved)
        self._last_belief = belief if has_marginals else None
        return belief

    def multiply_prior_covariance(self, rows):
        """The products of vectors (k, n) with the covariance of the prior."""
        cholesky, places = self.pattern.of_prior
        values = np.zeros(cholesky.n_entries)
        values[places] = (self.prior_entries + self.pin_entries)[self.pattern.prior]
        cholesky.factor(values, self.threads)
        kriging = Kriging.of(self.precision.constraints, partial(cholesky.solve, values, threads=self.threads))
        return _solve(cholesky, values, kriging, rows, self.threads)

    def prior(self):
        """Return the prior as a SparseBelief; OverflowError if its moments leave the range of float64."""
        belief = self.belief(np.zeros(len(self.prior_entries)), np.zeros(self.pattern.n))
        if belief is None:
            raise OverflowError("variances of rows under the prior leave the range of float64; rescale the columns")
        return belief

    def sharpen(self, belief, factor):
        """The belief with its covariance divided by `factor` and the same mean."""
        with np.errstate(over="ignore", invalid="ignore"):
            return self.belief(factor * belief.h + (factor - 1.0) * self.prior_entries, factor * belief.g)

    def coordinates(self, belief, h, g):
        """A change of sums in units of the marginals of a: the Fisher metric if these were independent.

        That of all of a would need every entry of Q^-1; `slope` has what must be exact.
        """
        pattern = self.pattern
        sd = np.sqrt(belief.inverse[pattern.diagonal])
        scaled = h * sd[pattern.rows] * sd[pattern.columns] * np.sqrt(0.5 * pattern.times)
        return np.append(scaled, (g - pattern.product(h, belief.step)) * sd)

    def pair_moments(self, up, down, step, h, g):
        """Natural parameters (g, -h/2) times the derivative of the moments (E a, E a a') less a0."""
        pattern, middle = self.pattern, 0.5 * (up.step + down.step)
        by_mean = (up.step - down.step) / (2.0 * step) @ (g - pattern.product(h, middle))
        return by_mean + 0.5 * np.sum(pattern.times * h * ((down.inverse - up.inverse) / (2.0 * step)))

    # ------------------------------------------------------------------------------------------ blocks of rows

    def values(self, belief, part, _):
        """The means and variances of f of a block."""
        return belief.mean[part], belief.variance[part]

    def sum_rows(self, h, g):
        """X' diag(h) X on the pattern, and X' g: the same arrays as those before where h and g are equal to these."""
        pairs, last = self.pattern.pairs, self._last_sums
        if last is None or not (np.array_equal(h, last[0]) and np.array_equal(g, last[1])):
            self._last_sums = h, g, (pairs.sum(h, self.threads), pairs.transposed(g, self.threads))
        return self._last_sums[2]
