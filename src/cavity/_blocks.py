"""Sources of blocks: fixed-size runs of rows, as contiguous float64, whatever the data are."""

import numpy as np

ROWS = 1 << 17  # rows per kernel call: 16 chunks of partial sums


def starts(n_rows):
    """Return the (start, stop) pairs of the blocks of n_rows rows."""
    return [(start, min(start + ROWS, n_rows)) for start in range(0, n_rows, ROWS)]


def rows(data, index):
    """Return data[index] as a C-contiguous float64 array; a view where the data are that already."""
    return np.ascontiguousarray(data[index], dtype=np.float64)
