"""The joint Gaussian posterior of all effects, and predictions of rows."""

from dataclasses import dataclass
from functools import cached_property, partial

import numpy as np

from cavity.base.lazy_scipy import sparse
from cavity.base.records import Array, declare
from cavity.base.rows import check_moments
from cavity.ep.sparse import Constraints, Kriging
from cavity.linalg.row_pairs import RowPairs
from cavity.linalg.sparse_cholesky import SparseCholesky
from cavity.models.posterior_mixture import PosteriorMixture
from cavity.runs.executors import Threads, single_blas

MAX_DENSE_NUMBERS = 1 << 20  # of the dense rows in one solve


@dataclass(frozen=True, eq=False)
class Effects:
    """N(mean, Q^-1), Q by the columns of its lower triangle."""

    mean: np.ndarray = declare(Array("n"))
    indptr: np.ndarray = declare(Array("m", "nonnegative", "i"))
    indices: np.ndarray = declare(Array("e", "nonnegative", "i"))
    entries: np.ndarray = declare(Array("e"))  # of Q
    order: np.ndarray = declare(Array("n", "nonnegative", "i"))  # of elimination
    constraints: np.ndarray | None = declare(Array("q n"), default=None)  # A of A a = 0
    pins: np.ndarray | None = declare(Array("q", "nonnegative", "i"), default=None)  # see `ep.sparse`
    pin_precisions: np.ndarray | None = declare(Array("q", "positive"), default=None)

    @classmethod
    def of(cls, geometry, belief):
        """Return the effects of a belief of `ep.sparse`."""
        pattern = geometry.pattern
        mean, entries = geometry.prior_mean + belief.step, geometry.prior_entries + belief.h
        constraints = geometry.precision.constraints
        parts = () if constraints is None else (constraints.A, constraints.pins, constraints.pin_precisions)
        result = cls(mean, pattern.indptr, pattern.rows, entries, pattern.order.astype(np.intp), *parts)
        vars(result).update(cholesky=pattern.cholesky, inverse=belief.inverse)  # cached properties
        return result

    @cached_property
    def cholesky(self):
        """The analysis of the pattern."""
        return SparseCholesky(self.indptr, self.indices, self.order)

    @cached_property
    def columns(self):
        """The column of each entry."""
        return np.repeat(np.arange(len(self.mean)), np.diff(self.indptr))

    @property
    def keys(self):
        """The number of each entry in the whole matrix, in order."""
        return self.columns * len(self.mean) + self.indices

    @cached_property
    def factor(self):
        """The Cholesky factor of Q, with the pins, in the storage of the analysis."""
        values = np.zeros(self.cholesky.n_entries)
        values[self.cholesky.positions(self.indices, self.columns)] = self.entries
        if self.pins is not None:
            values[self.cholesky.positions(self.pins, self.pins)] += self.pin_precisions
        with Threads(1) as threads, single_blas():
            if self.cholesky.factor(values, threads):
                raise ArithmeticError("the posterior precision of the effects has lost its digits to rounding")
        return values

    @cached_property
    def inverse(self):
        """Q^-1 on the pattern of Q, (E,)."""
        values = self.factor.copy()
        with Threads(1) as threads, single_blas():
            self.cholesky.invert(values, threads)
            inverse = values[self.cholesky.positions(self.indices, self.columns)]
            if self.kriging is not None:
                self.kriging.take_out(self.indptr, self.indices, inverse, threads)
        return inverse

    @cached_property
    def kriging(self):
        """The conditioning on the constraints, or None."""
        with Threads(1) as threads, single_blas():
            return Kriging.of(self.bounds, partial(self.cholesky.solve, self.factor, threads=threads))

    @property
    def bounds(self):
        """The `Constraints`, or None."""
        return None if self.pins is None else Constraints(self.constraints, self.pins, self.pin_precisions)

    @property
    def log_determinant(self):
        """That of Q, with constraints (2) of `ep.sparse`."""
        value = self.cholesky.log_determinant(self.factor)
        return value if self.kriging is None else value + self.kriging.log_determinant

    @cached_property
    def variance(self):
        """The variance of each effect, (n,)."""
        return self.inverse[self.indptr[:-1]]  # the diagonal is the first entry of each column

    def trace_with(self, rows, columns, entries):
        """The trace of Q^-1 times a symmetric matrix, of which the lower triangle, on the pattern of Q, is given."""
        positions = np.searchsorted(self.keys, columns * len(self.mean) + rows)
        return float(np.sum(np.where(rows == columns, 1.0, 2.0) * entries * self.inverse[positions]))

    def covariance(self, index):
        """The joint covariance of some effects, (m, m)."""
        index, m = np.asarray(index), len(index)
        return self.cross(sparse.csr_array((np.ones(m), (np.arange(m), index)), (m, len(self.mean))))

    def cross(self, rows):
        """The joint covariance of a few linear combinations, rows (m, n), a CSR array."""
        half = self._half(rows.toarray())
        if self.kriging is None:
            return half @ half.T
        removed, restored = rows @ self.kriging.removed.T, rows @ self.kriging.restored.T
        return half @ half.T - removed @ removed.T + restored @ restored.T

    def solve_for(self, index):
        """The covariances of some effects with all, (m, n)."""
        unit = np.zeros((len(index), len(self.mean)))
        unit[np.arange(len(index)), index] = 1.0
        with Threads(1) as threads, single_blas():
            covariance = self.cholesky.solve(self.factor, unit, threads)
        if self.kriging is None:
            return covariance
        removed, restored = self.kriging.removed, self.kriging.restored
        return covariance - removed[:, index].T @ removed + restored[:, index].T @ restored

    def predict(self, rows, offset=None):
        """Means and variances of rows (N, n), a CSR array, with an offset (N,) if there is one.

        Covariances of pairs of effects on the pattern are entries of the inverse; rows with other pairs take a solve.
        """
        mean = rows @ self.mean
        if offset is not None:
            mean += offset
        pairs = RowPairs(rows.indptr, rows.indices, rows.data, len(self.mean), has_sums=False)
        pairs.place_in(self.indptr, self.indices)
        with Threads(1) as threads:
            variance = pairs.variances(self.inverse, threads)
        rest = np.flatnonzero(pairs.is_missing)
        step = max(1, MAX_DENSE_NUMBERS // len(self.mean))
        for low in range(0, len(rest), step):
            part = rest[low : low + step]
            variance[part] = np.sum(self._half(rows[part].toarray()) ** 2, axis=1)
            if self.kriging is not None:
                variance[part] -= np.sum((rows[part] @ self.kriging.removed.T) ** 2, axis=1)
                variance[part] += np.sum((rows[part] @ self.kriging.restored.T) ** 2, axis=1)
        check_moments(mean, variance)
        return mean, variance

    def _half(self, dense, sense="forward"):
        """L^-1 P x of rows x: their squares sum to x' Q^-1 x; or P' L^-T x."""
        with Threads(1) as threads, single_blas():
            return self.cholesky.solve(self.factor, dense, threads, half=sense)

    def sample(self, n, rng):
        """Draws (n, all effects)."""
        steps = self._half(rng.standard_normal((n, len(self.mean))), "backward")
        if self.kriging is None:
            return self.mean + steps
        more = rng.standard_normal((n, len(self.pins))) @ self.kriging.restored
        return self.mean + self.kriging.condition(steps) + more


class EffectsMixture(PosteriorMixture):
    """A mixture of `Effects` on one pattern."""

    def _average_covariances(self, index):
        """The mean of the joint covariances at the points, (m, m), which is read where the pattern has all pairs."""
        mode = self.points[0]
        keys = np.minimum(index, index[:, None]) * len(mode.mean) + np.maximum(index, index[:, None])
        places = np.minimum(np.searchsorted(mode.keys, keys), len(mode.entries) - 1)
        if not np.array_equal(mode.keys[places], keys):
            return super()._average_covariances(index)
        return self.inverse[places]
