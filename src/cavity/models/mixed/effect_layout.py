"""The order of all effects: the fixed effects first, then for each term its own, a block with a prior of its own."""

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from cavity.base.lazy_scipy import sparse
from cavity.base.special import quiet
from cavity.base.triangles import fill_symmetric
from cavity.ep.sparse import Constraints, Precision
from cavity.linalg.sparse_cholesky import fill_reducing_order
from cavity.terms.contract import TermPrior

MAX_NATURAL_BANDWIDTH = 128  # of a prior's precision: its factor then is small without another order


@dataclass(frozen=True, slots=True)
class LevelBlock:
    """Random effects: for each level k of them, which have one covariance matrix (k, k)."""

    levels: int
    k: int
    constraints = None

    @property
    def size(self):
        """The number of effects."""
        return self.levels * self.k

    def entries(self):
        """Rows and columns of the lower triangle of the prior's precision: a small one for each level."""
        first = self.k * np.arange(self.levels)[:, None]
        return [(first + within).ravel() for within in np.tril_indices(self.k)]

    def order(self):
        """An order of elimination within the block: one level after the other."""
        return np.arange(self.size)

    @quiet
    def precision(self, covariance):
        """The entries of the precision, and its log determinant; infinite where they leave the range of float64."""
        log_determinant = -self.levels * np.linalg.slogdet(covariance)[1]
        return np.tile(invert_covariance(covariance)[np.tril_indices(self.k)], self.levels), float(log_determinant)

    def second_moments(self, entries):
        """The sum over levels of the second moments (k, k), from those of the entries of the precision."""
        triangle = np.zeros((self.k, self.k))
        triangle[np.tril_indices(self.k)] = np.sum(entries.reshape(self.levels, -1), axis=0)
        return fill_symmetric(triangle)

    @quiet
    def slopes(self, covariance, entries):
        """The derivative of the expected log prior in V, G with d = tr(G dV), from the second moments of the entries.

        With W = V^-1, J levels and S the sum of the second moments, G = (W S W - J W)/2.
        """
        precision, sums = invert_covariance(covariance), self.second_moments(entries)
        return 0.5 * (precision @ sums @ precision - self.levels * precision)


@dataclass(frozen=True, slots=True)
class StructuredBlock:
    """The effects of a structured term; `linked_rows` is its Z where rows link effects that the prior does not."""

    size: int
    prior: TermPrior
    linked_rows: Any = None

    @property
    def constraints(self):
        """The matrix A (r, k) of constraints A b = 0, or None."""
        return self.prior.constraints

    def entries(self):
        """Rows and columns of the lower triangle of the prior's precision."""
        return self.prior.rows, self.prior.columns

    def precision(self, values):
        """The entries of the precision, and the part of its log determinant, by the values of its parameters."""
        value = self.prior.evaluate(self.free(values))
        return value.coefficients @ self.prior.structures, value.log_determinant

    def order(self):
        """An order of elimination: that of the effects; minimum degree where rows link effects or the band is wide."""
        rows, columns = self.entries()
        if self.linked_rows is None and np.max(rows - columns) <= MAX_NATURAL_BANDWIDTH:
            return np.arange(self.size)
        pattern = sparse.csr_array((np.ones(len(rows)), (rows, columns)), (self.size, self.size))
        if self.linked_rows is not None:
            links = abs(self.linked_rows)
            pattern = pattern + links.T @ links
        pattern = sparse.csc_array(sparse.tril(pattern))
        return fill_reducing_order(pattern.indptr, pattern.indices)

    def free(self, values):
        """The free numbers of values of the parameters."""
        return [parameter.free(x) for parameter, x in zip(self.prior.parameters, values, strict=True)]

    def slopes(self, values, entries):
        """Derivatives of the expected log prior in the free numbers, from the second moments of the entries."""
        value = self.prior.evaluate(self.free(values))
        times = np.where(self.prior.rows == self.prior.columns, 1.0, 2.0)
        return 0.5 * (value.log_determinant_slopes - (self.prior.structures @ (times * entries)) @ value.slopes)


@dataclass(frozen=True)
class EffectLayout:
    """The number of fixed effects, and the blocks of the terms: those of random effects first."""

    n_fixed: int
    blocks: tuple[LevelBlock | StructuredBlock, ...]

    @cached_property
    def starts(self):
        """The first effect of each term, and the number of all."""
        return np.cumsum([self.n_fixed, *(block.size for block in self.blocks)]).tolist()

    @property
    def size(self):
        """The number of all effects, n."""
        return self.starts[-1]

    @cached_property
    def _fixed_entries(self):
        """Rows and columns of the lower triangle of the fixed effects."""
        return np.tril_indices(self.n_fixed)

    @cached_property
    def n_constraints(self):
        """The number of all constraints."""
        return sum(len(block.constraints) for block in self.blocks if block.constraints is not None)

    @property
    def n_free(self):
        """The dimension of the subspace that constraints leave."""
        return self.size - self.n_constraints

    def part(self, term):
        """The effects of a term, a slice."""
        return slice(self.starts[term], self.starts[term + 1])

    def order(self):
        """An order of elimination: the term of most effects first, each in its own order, and the fixed effects last.

        Of nested groups the inner ones come first, which fills nothing; of two crossed ones the larger.
        """
        terms = sorted(range(len(self.blocks)), key=lambda term: -count_units(self.blocks[term]))
        parts = [self.starts[term] + self.blocks[term].order() for term in terms]
        return np.concatenate([*parts, np.arange(self.n_fixed)])

    def rows(self, X, values):
        """Rows as a CSR array (N, n), from X (N, D) and for each term (codes (N,), Z (N, k)), or a CSR array; no zeros.

        A row of a level that is none, of a negative number, has no effects of that term.
        """
        kind = np.int32 if self.size < np.iinfo(np.int32).max else np.int64
        blocks, indices, uneven = [X], [np.broadcast_to(np.arange(self.n_fixed, dtype=kind), X.shape)], []
        for start, value in zip(self.starts, values, strict=False):
            if isinstance(value, tuple):
                codes, Z = value
                k = Z.shape[1]
                blocks.append(np.where(codes[:, None] < 0, 0.0, Z))
                indices.append((start + np.maximum(codes, 0)[:, None] * k + np.arange(k)).astype(kind))
            elif not uneven and len(X) and has_even_rows(value):  # as those of splines, of four entries each
                blocks.append(value.data.reshape(len(X), -1))
                indices.append(start + value.indices.reshape(len(X), -1).astype(kind))
            else:
                uneven.append(value)
        size = self.size - sum(Z.shape[1] for Z in uneven)
        data, columns = np.concatenate(blocks, axis=1), np.concatenate(indices, axis=1)
        ends = np.arange(len(X) + 1) * data.shape[1]
        if data.size < np.iinfo(np.int32).max:  # indices of one kind are not converted, and half as long
            ends = ends.astype(kind)
        left = sparse.csr_array((data.ravel(), columns.ravel(), ends), (len(X), size))
        left.eliminate_zeros()
        if not uneven:
            return left
        rows = sparse.csr_array(sparse.hstack([left, *uneven], format="csr"))
        rows.eliminate_zeros()
        return rows

    def entries(self):
        """Rows and columns of the lower triangle of the prior's precision: a block of fixed effects, one a term."""
        rows, columns = map(list, zip(self._fixed_entries, strict=True))
        for start, block in zip(self.starts, self.blocks, strict=False):
            for ends, within in zip((rows, columns), block.entries(), strict=True):
                ends.append(start + within)
        return np.concatenate(rows), np.concatenate(columns)

    def constraints(self, entries):
        """The constraints of all effects, with pins in units of the prior's precision; `entries` are those of terms."""
        if not self.n_constraints:
            return None
        A, pins, places = self._pinned
        return Constraints(A, pins, np.concatenate([entries[number][at] for number, at in places]))

    @cached_property
    def _pinned(self):
        """The constraints A (r, n), the effects (r,) that are pinned, and for each term with some its number and which
        entries of its precision those are.
        """
        A, row, pins, places = np.zeros((self.n_constraints, self.size)), 0, [], []
        for number, block in enumerate(self.blocks):
            if block.constraints is not None:
                start, count = self.starts[number], len(block.constraints)
                A[row : row + count, start : start + block.size] = block.constraints
                pins.append(start + block.prior.pins)
                rows, columns = block.entries()
                diagonal = np.flatnonzero(rows == columns)
                places.append((number, diagonal[np.argsort(rows[diagonal])][block.prior.pins]))
                row += count
        return A, np.concatenate(pins), places

    def precision(self, variance, settings):
        """The prior's precision: the inverse of the variance of the fixed effects, a number, (D,) or (D, D), and of
        each term that of its covariance matrix, or of the values of its parameters.
        """
        variance = np.asarray(variance)
        if variance.ndim == 2:
            fixed = invert_covariance(variance)
        else:
            fixed = np.diag(1.0 / np.broadcast_to(variance, (self.n_fixed,)))
        parts = [block.precision(setting) for block, setting in zip(self.blocks, settings, strict=True)]
        entries = [fixed[self._fixed_entries], *(part for part, _ in parts)]
        log_determinant = sum((value for _, value in parts), np.linalg.slogdet(fixed)[1])
        return Precision(np.concatenate(entries), float(log_determinant), self.constraints(entries[1:]))

    def split_entries(self, entries):
        """The entries of the prior's precision of each term."""
        counts = [len(block.entries()[0]) for block in self.blocks]
        return np.split(entries[self.n_fixed * (self.n_fixed + 1) // 2 :], np.cumsum(counts)[:-1])


def has_even_rows(Z):
    """Whether all rows of a CSR array have equally many entries, at least one."""
    length = Z.nnz // Z.shape[0]
    return length > 0 and np.array_equal(Z.indptr, length * np.arange(Z.shape[0] + 1))


def select_rows(values, rows):
    """Return some rows, a mask, of the values of a term: (codes (N,), Z (N, k)) or a CSR array (N, k)."""
    return tuple(value[rows] for value in values) if isinstance(values, tuple) else values[rows]


def count_units(block):
    """Return what the order of elimination goes by: levels of random effects, effects of others."""
    return block.levels if isinstance(block, LevelBlock) else block.size


def invert_covariance(covariance):
    """The inverse of a symmetric positive definite matrix, whatever the scales of its rows."""
    scale = 1.0 / np.sqrt(np.diagonal(covariance))
    return scale[:, None] * np.linalg.inv(scale[:, None] * covariance * scale) * scale
