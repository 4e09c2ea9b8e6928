"""Location and spread of columns and of observations; a row of weight w counts as w copies of itself."""

from functools import partial

import numpy as np

from cavity.base.constants import MAD_TO_SD

NUMBERS_PER_BLOCK = 1 << 20  # that are converted at a time
MAX_NARROW_COLUMNS = 16  # up to which least and largest values are found column by column


def _iterate_blocks(X, step):
    """Yield (slice, rows) of an array, float64, so many rows at a time."""
    for start in range(0, len(X), step):
        part = slice(start, start + step)
        yield part, np.asarray(X[part], dtype=np.float64, order="C")


def sum_block(x, unit, middle, ends, weights=None):
    """Return the weighted sum of x/unit over rows; about a middle, that of squares, and 1.0 where `_has_inner_values`.

    Parameters
    ----------
    x : ndarray (n, D)
        Rows.
    unit : ndarray (D,)
        What columns are divided by.
    middle : ndarray (D,) or None
        In these units.
    ends : ndarray (2, D)
        Least and largest value of each column over all rows.
    weights : ndarray (n,), optional
        Of the rows.

    Returns
    -------
    ndarray (D,), or (2, D) about a middle
    """
    values = x if np.all(unit == 1.0) else x / unit  # dummies, as often as not
    if middle is not None:
        values = np.subtract(values, middle, out=None if values is x else values)
        values *= values
    total = np.sum(values, axis=0) if weights is None else weights @ values
    return total if middle is None else np.stack([total, _has_inner_values(x, *ends)])


def _has_inner_values(x, low, high):
    """Return which columns of x have a value between the ends, a mask (D,); a few rows are enough for most columns."""
    few = x[:: max(1, len(x) // 8)]
    mask = np.any((few > low) & (few < high), axis=0)
    for j in np.flatnonzero(~mask):
        mask[j] = np.any((x[:, j] > low[j]) & (x[:, j] < high[j]))
    return mask


def _sum_blocks(X, step, *extra, weights, each_block):
    """Yield the sums of blocks of so many rows in order."""
    for part, x in each_block(X, step):
        yield sum_block(x, *extra, None if weights is None else weights[part])


def _find_ends(X):
    """Return the least and the largest values (D,) of columns, a pair; NumPy takes longer for all of a few at once."""
    if isinstance(X, np.ndarray) and 0 < X.shape[1] <= MAX_NARROW_COLUMNS:
        return tuple(zip(*((x.min(), x.max()) for x in X.T), strict=True))
    return X.min(axis=0), X.max(axis=0)


def column_scales(X, weights=None, each_block=_iterate_blocks, sums=None):
    """Return the mean, the standard deviation and the scale of each column of an array.

    The scale is the standard deviation, but (b - a)/2 for a column of two values a < b, however rare one of them is:
    the two agree where both are equally frequent. Of a column of one value both are exactly 0.

    Parameters
    ----------
    X : ndarray (N, D)
        Finite real numbers of any dtype.
    weights : ndarray (N,), optional
        Not negative, not all zero.
    each_block : callable, optional
        each_block(X, step) yields (slice, rows) as float64 for rows that are no array.
    sums : callable, optional
        sums(X, step, unit, middle, ends, weights) yields `sum_block` of the same blocks, for rows that are worked on
        elsewhere.

    Returns
    -------
    mean, sd, scale : ndarray (D,)
        sd about the mean, over N: neither the squares of large numbers overflow nor those of small ones vanish.
    """
    if weights is not None and not np.all(weights > 0):
        X, weights = X[weights > 0], weights[weights > 0]
    weights = None if weights is None or np.all(weights == 1) else weights  # the same bits
    ends = np.array(_find_ends(X), dtype=np.float64)
    unit = np.max(np.abs(ends), axis=0)
    unit[unit == 0] = 1.0
    total = len(X) if weights is None else np.sum(weights)

    sums = partial(_sum_blocks, each_block=each_block) if sums is None else sums

    def average(middle=None):
        added = 0.0
        for one in sums(X, max(1, NUMBERS_PER_BLOCK // max(1, X.shape[1])), unit, middle, ends, weights=weights):
            added = added + one
        return added / total

    middle = average()
    squares, inside = average(middle)
    constant = ends[0] == ends[1]
    sd = np.where(constant, 0.0, np.sqrt(squares) * unit)
    return np.where(constant, ends[0], middle * unit), sd, np.where(inside > 0, sd, 0.5 * ends[1] - 0.5 * ends[0])


def weighted_median(values, weights=None):
    """Return the median of numbers (N,), the mean of the two in the middle where there are two."""
    if weights is None:
        middle = len(values) // 2
        if len(values) % 2:
            return float(np.partition(values, middle)[middle])
        part = np.partition(values, (middle - 1, middle))
        return float(part[middle - 1] + part[middle]) / 2.0
    order = np.argsort(values)
    below = np.cumsum(weights[order])
    half = 0.5 * below[-1]
    at = (np.searchsorted(below, half, side) for side in ("left", "right"))
    low, high = (float(values[order[min(i, len(order) - 1)]]) for i in at)
    return low + 0.5 * (high - low)


def robust_spread(values, weights=None):
    """Return 1.4826 times the median absolute deviation of numbers (N,), or their sd if that is 0, or else 1."""
    deviation = np.abs(values - weighted_median(values, weights))
    robust = MAD_TO_SD * weighted_median(deviation, weights)
    return float(robust or column_scales(values[:, None], weights)[1][0] or 1.0)


def constant_columns(X, weights=None):
    """Return which columns of an array (N, D), or of a CSR matrix, have one value other than 0, a mask (D,)."""
    if weights is not None and not np.all(weights > 0):
        X = X[weights > 0]
    if hasattr(X, "tocsr"):
        first, counts = np.zeros(X.shape[1]), np.zeros(X.shape[1], dtype=np.int64)
        first[X.indices[: X.indptr[1]]] = X.data[: X.indptr[1]]
        for start in range(0, X.nnz, NUMBERS_PER_BLOCK):
            part = slice(start, start + NUMBERS_PER_BLOCK)
            counts += np.bincount(X.indices[part][X.data[part] == first[X.indices[part]]], minlength=X.shape[1])
        return (counts == X.shape[0]) & (first != 0)
    first = np.asarray(X[0])
    mask = (first != 0) & (X[len(X) // 2] == first) & (X[-1] == first)  # most columns are known to vary by now
    for j in np.flatnonzero(mask):
        mask[j] = bool(np.all(X[:, j] == first[j]))
    return mask
