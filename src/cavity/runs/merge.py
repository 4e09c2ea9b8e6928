"""Runs of blocks and tasks that work on them, and the ordered merge of results.

Results of blocks are merged along a pairwise tree over the numbers of the blocks, in this process or on the workers of
dask.
"""

from dataclasses import dataclass

import numpy as np


@dataclass(frozen=True, slots=True)
class BlockRun:
    """What a task works on: the rows [start, stop), whole blocks of `block_rows` but for the last row of all.

    `arrays` are these rows of each source, (n,) or (n, D), float64, C-contiguous, read-only, and valid until the task
    returns; None for a source that is None.
    """

    start: int
    stop: int
    block_rows: int
    arrays: tuple

    def blocks(self):
        """Yield (start, arrays) of each block."""
        for start in range(self.start, self.stop, self.block_rows):
            low = start - self.start
            yield start, [None if array is None else array[low : low + self.block_rows] for array in self.arrays]


@dataclass(frozen=True, slots=True)
class BlockTask:
    """The task that merges what function(*arrays, start, broadcast) returns for each block of a run.

    With the `add` that `reduce_runs` gets too, if any, the sum over all runs is that over all blocks, bit by bit.
    """

    function: object
    add: object = None

    def __call__(self, run, broadcast):
        return merge((self.function(*arrays, start, broadcast) for start, arrays in run.blocks()), self.add)


def call_on_run(task, broadcast, start, stop, block_rows, arrays):
    """Return what a task makes of a run, apart from its arrays."""
    for array in arrays:
        if array is not None:
            array.flags.writeable = False
    return _copy_views(task(BlockRun(start, stop, block_rows, tuple(arrays)), broadcast), arrays)


def _copy_views(result, arrays):
    """Copy what shares memory with the arrays of a run, which are about to be used for another one."""
    if isinstance(result, tuple):
        return tuple(_copy_views(part, arrays) for part in result)
    if not isinstance(result, np.ndarray) or (result.base is None and all(result is not a for a in arrays)):
        return result
    return result.copy() if any(np.may_share_memory(result, a) for a in arrays if a is not None) else result


ROWS_PER_CALL = 1 << 17  # rows per kernel call: 16 chunks of partial sums


def split_rows(n_rows, size=None):
    """Return the (start, stop) pairs of blocks of n_rows rows, of ROWS_PER_CALL each unless another size is given."""
    size = ROWS_PER_CALL if size is None else size
    return [(start, min(start + size, n_rows)) for start in range(0, n_rows, size)]


def merge(parts, add=None):
    """Add up an iterable of arrays, numbers or tuples of them: a tree over their indices, two neighbours at a time.

    The shape of the tree depends on the number of parts alone, and at most log2 of them are held.

    Parameters
    ----------
    parts : iterable
        What to add up, in order; at least one.
    add : callable, optional
        add(left, right) returns the sum of two parts, if it is not to be +.
    """
    return merge_runs(((1, part) for part in parts), add)


def merge_runs(runs, add=None):
    """Return `merge` of parts of which whole runs have been merged already.

    Parameters
    ----------
    runs : iterable
        (number of parts, their sum), in order: 2^k parts from a multiple of 2^k on, but for the last run, which may be
        shorter.
    add : callable, optional
        As in `merge`.
    """
    add = _plus if add is None else add
    pending = []  # (number of parts, their sum), of 2^k for the binary digits of the number of parts so far
    for count, part in runs:
        while pending and pending[-1][0] == count:
            part, count = add(pending.pop()[1], part), 2 * count
        pending.append((count, part))
    if not pending:
        raise ValueError("there is nothing to merge")
    total = pending.pop()[1]
    while pending:
        total = add(pending.pop()[1], total)
    return total


def _plus(left, right):
    if isinstance(left, tuple):
        return tuple(a + b for a, b in zip(left, right, strict=True))
    return left + right
