"""The rows of regressions whose passes add up statistics of blocks."""

from dataclasses import dataclass

import numpy as np

from cavity.base import arrays
from cavity.blocks.runs import MOST_BLOCKS, reduce_runs
from cavity.blocks.sources import Source, open_source

PRODUCTS = 1 << 28  # of two numbers that a thread adds up between two looks at whether the fit is interrupted


def opened(X, block_rows=None):
    """Return rows of X (N, D), of any kind, as a Source; those of a sparse matrix are filled in block by block."""
    source = open_source(X, "X", ndim=(2,), block_rows=block_rows)
    if hasattr(X, "tocsr"):
        words, size = "the covariance of the weights, which knows no zeros,", source.n_features
        arrays.matrix((size, size), words, "; GLM(approximation='diagonal') takes many columns")
    return source


@dataclass(frozen=True, slots=True)
class RegressionRows:
    """Rows X (N, D), whose numbers are checked in the first pass, and as many checked observations, in memory."""

    X: Source
    y: Source

    @classmethod
    def of(cls, X, y):
        """Return the rows of a Source and an array."""
        return cls(X, open_source(y, "y", block_rows=X.block_rows))

    @property
    def n(self):
        """N."""
        return self.X.n_rows

    def total(self, task, broadcast, threads, add=None):
        """Return the sum of what a task finds in runs of blocks, arrays; ValueError naming the first number of X that
        is not finite.
        """
        grain = min(MOST_BLOCKS, max(1, PRODUCTS // (self.X.block_rows * self.X.n_features**2)))
        out = reduce_runs(task, broadcast, (self.X, self.y), threads, grain=grain, add=add)
        if not all(np.isfinite(each).all() for each in (out if isinstance(out, tuple) else (out,))):
            self.X.summary(threads)
        return out
