"""Minimum, maximum and sum of the columns of blocks, by which a source is checked and summed up."""

import numpy as np

from cavity.base.errors import mark_missing
from cavity.base.observation_digest import ObservationDigest

FOLDED_ROWS = 128  # rows side by side in reductions over rows, for long inner loops and short sums
MIN_HUGE_VALUE = 2.0**900  # sums of any number of smaller values are finite
SHRINK_EXPONENT = 200  # 2^-200 times even the largest values can be summed


def summarize_block(block, start, broadcast):
    """Return the minima and maxima of a block, sums for `compute_means`, and how many were seen, each (D,).

    The broadcast is the source, whether nan stands for a number that was not seen, and whether the digest of the rows
    comes last. ValueError names the first number, by rows, that is not finite.
    """
    source, missing, digested = broadcast
    digest = (ObservationDigest.of(block),) if digested else ()
    low, high = _reduce_rows(np.minimum, block), _reduce_rows(np.maximum, block)
    gaps = np.isnan(low).any()
    if gaps:
        low, high = _reduce_rows(np.fmin, block), _reduce_rows(np.fmax, block)
    if np.isinf(low).any() or np.isinf(high).any() or (gaps and not missing):
        bad = np.isinf(block) if missing else ~np.isfinite(block)
        row, *column = at = tuple(map(int, np.argwhere(bad)[0]))
        message = f"{source.name} must be finite, got {source.describe_value(block[at], start + row, *column)}"
        raise mark_missing(ValueError(message), block[at])
    counts = np.full(len(low), float(len(block)))
    if gaps:
        counts -= np.sum(np.isnan(block), axis=0)
        block = np.nan_to_num(block)  # there are no infinities
    return low, high, *_sums(block, np.fmax(-low, high) > MIN_HUGE_VALUE), counts, *digest


def merge_summaries(left, right):
    """Merge the extents of two runs of rows."""
    sums = (a + b for a, b in zip(left[2:], right[2:], strict=True))
    return np.fmin(left[0], right[0]), np.fmax(left[1], right[1]), *sums


def compute_means(low, high, total, huge, counts):
    """Return the means of the columns with these extents, which are between minimum and maximum but for rounding."""
    counts = np.maximum(counts, 1.0)
    with np.errstate(over="ignore"):
        means = total / counts + np.ldexp(huge / counts, SHRINK_EXPONENT)
    return np.clip(means, low, high)


def _sums(block, huge):
    """Return the sums of the columns of a block, and those of huge numbers apart, times 2^-SHRINK_EXPONENT."""
    if not huge.any():
        return _reduce_rows(np.add, block), np.zeros(len(huge))
    with np.errstate(over="ignore", invalid="ignore"):  # in the sums that are not used
        total, shrunk = _reduce_rows(np.add, block), _reduce_rows(np.add, np.ldexp(block, -SHRINK_EXPONENT))
    return np.where(huge, 0.0, total), np.where(huge, shrunk, 0.0)


def _reduce_rows(ufunc, block):
    """Return ufunc.reduce over the rows of a block (rows,) or (rows, D), shape (1,) or (D,)."""
    block = block.reshape(len(block), -1)
    n_rows, width = block.shape
    n_folded = n_rows - n_rows % FOLDED_ROWS
    if n_folded:
        folded = ufunc.reduce(block[:n_folded].reshape(-1, FOLDED_ROWS * width), axis=0).reshape(FOLDED_ROWS, width)
        block = np.concatenate([folded, block[n_folded:]])
    return ufunc.reduce(block, axis=0)
