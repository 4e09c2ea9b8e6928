"""The order of all effects: the fixed effects first, then for each term those of its levels in order."""

from dataclasses import dataclass

import numpy as np

from cavity.base.lazy import sparse
from cavity.base.triangles import full
from cavity.ep.sparse import Precision


@dataclass(frozen=True, slots=True)
class EffectLayout:
    """Numbers of fixed effects, and of the levels and effects a level of each term."""

    n_fixed: int
    shapes: tuple[tuple[int, int], ...]

    @property
    def starts(self):
        """The first effect of each term, and the number of all."""
        return np.cumsum([self.n_fixed, *(levels * k for levels, k in self.shapes)]).tolist()

    @property
    def size(self):
        """The number of all effects, n."""
        return self.starts[-1]

    def part(self, term):
        """The effects of a term, a slice."""
        starts = self.starts
        return slice(starts[term], starts[term + 1])

    def order(self):
        """An order of elimination: the term of most levels first, and the fixed effects last.

        Of nested groups the inner ones come first, which fills nothing; of two crossed ones the larger.
        """
        terms = sorted(range(len(self.shapes)), key=lambda term: -self.shapes[term][0])
        parts = [np.arange(self.size)[self.part(term)] for term in terms]
        return np.concatenate([*parts, np.arange(self.n_fixed)])

    def rows(self, X, values):
        """Rows as a CSR array (N, n), from X (N, D) and for each term (codes (N,), Z (N, k)); no zeros.

        A row of a level that is none, of a negative number, has no effects of that term.
        """
        blocks, indices = [X], [np.broadcast_to(np.arange(self.n_fixed), X.shape)]
        for start, (codes, Z) in zip(self.starts, values, strict=False):
            k = Z.shape[1]
            blocks.append(np.where(codes[:, None] < 0, 0.0, Z))
            indices.append(start + np.maximum(codes, 0)[:, None] * k + np.arange(k))
        data, indices = np.concatenate(blocks, axis=1), np.concatenate(indices, axis=1)
        nonzero = data != 0.0
        ends = np.concatenate([[0], np.cumsum(nonzero.sum(axis=1))])
        return sparse.csr_array((data[nonzero], indices[nonzero], ends), (len(X), self.size))

    def entries(self):
        """Rows and columns of the lower triangle of the prior's precision: a block of fixed effects, one a level."""
        rows, columns = map(list, zip(np.tril_indices(self.n_fixed), strict=True))
        for start, (levels, k) in zip(self.starts, self.shapes, strict=False):
            first = start + k * np.arange(levels)[:, None]
            for ends, within in zip((rows, columns), np.tril_indices(k), strict=True):
                ends.append((first + within).ravel())
        return np.concatenate(rows), np.concatenate(columns)

    def precision(self, variance, covariances):
        """The prior's precision: the inverse of the variance of the fixed effects, a number, (D,) or (D, D), and of
        (k, k) of each term.
        """
        variance = np.asarray(variance)
        if variance.ndim == 2:
            fixed = invert_covariance(variance)
        else:
            fixed = np.diag(1.0 / np.broadcast_to(variance, (self.n_fixed,)))
        log_determinant = np.linalg.slogdet(fixed)[1]
        entries = [fixed[np.tril_indices(self.n_fixed)]]
        for (levels, k), covariance in zip(self.shapes, covariances, strict=True):
            log_determinant -= levels * np.linalg.slogdet(covariance)[1]
            entries.append(np.tile(invert_covariance(covariance)[np.tril_indices(k)], levels))
        return Precision(np.concatenate(entries), float(log_determinant))

    def second_moments(self, entries):
        """The sums over levels of second moments (k, k) of each term, from those of the entries of the prior."""
        moments, first = [], self.n_fixed * (self.n_fixed + 1) // 2
        for levels, k in self.shapes:
            size = k * (k + 1) // 2
            sums = np.sum(entries[first : first + levels * size].reshape(levels, size), axis=0)
            triangle = np.zeros((k, k))
            triangle[np.tril_indices(k)] = sums
            moments.append(full(triangle))
            first += levels * size
        return moments


def invert_covariance(covariance):
    """The inverse of a symmetric positive definite matrix, whatever the scales of its rows."""
    scale = 1.0 / np.sqrt(np.diagonal(covariance))
    return scale[:, None] * np.linalg.inv(scale[:, None] * covariance * scale) * scale
