"""The rows of X of a GLM: an array, a sparse matrix, or rows that stay in files."""

import numpy as np

from cavity.base import arrays, scales
from cavity.base.rows import design_matrix
from cavity.blocks.reading import each_block, is_stored
from cavity.blocks.sources import Source
from cavity.blocks.stored import StoredRows


def design_of(X, approximation):
    """Return X checked, as an array or CSR matrix; rows of files, but for few, stay there, and nobody looked at them.

    Fewer rows than columns are read: they are worked with as a whole.
    """
    if not isinstance(X, Source):
        return design_matrix(X, approximation)
    arrays.check_ndim(X, "X", (2,))
    stored = StoredRows(X.parts, "X")
    if not X.in_memory and X.n_rows >= X.n_features:
        return stored
    view = X.view(0, X.n_rows) if X.in_memory else None
    return (
        np.concatenate([x.copy() for _, x in stored.checked_blocks()])
        if view is None
        else design_matrix(view, approximation)
    )


def look(X, weights):
    """Check the numbers of rows in files, once what else is given is known to be right."""
    if is_stored(X):
        X.look(weights)


def constant_columns(X, weights):
    """Return which columns of X have one value other than 0, a mask (D,)."""
    return (X.low == X.high) & (X.low != 0) if is_stored(X) else scales.constant_columns(X, weights)


def column_scales(X, weights):
    """Return the mean and the standard deviation of each column of X, not of a sparse matrix."""
    return scales.column_scales(X, weights, each_block)
