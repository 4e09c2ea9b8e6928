"""Runs of blocks, and the tasks that work on them, in this process or on the workers of dask."""

from dataclasses import dataclass

import numpy as np

from cavity.runs.merge import merge


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
            yield start, [None if each is None else each[low : low + self.block_rows] for each in self.arrays]


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
    return _apart(task(BlockRun(start, stop, block_rows, tuple(arrays)), broadcast), arrays)


def _apart(result, arrays):
    """Copy what shares memory with the arrays of a run, which are about to be used for another one."""
    if isinstance(result, tuple):
        return tuple(_apart(each, arrays) for each in result)
    if isinstance(result, np.ndarray) and any(np.may_share_memory(result, a) for a in arrays if a is not None):
        return result.copy()
    return result
