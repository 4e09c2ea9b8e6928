"""Passes over the blocks of one source, by a function of a block."""

from cavity.runs.merge import BlockTask
from cavity.runs.passes import map_runs, reduce_runs


def map_blocks(source, kernel, threads):
    """Yield kernel(block) for each block."""
    return map_runs(lambda run, _: kernel(*run.arrays), None, [source], threads, grain=1)


def reduce_blocks(source, kernel, threads):
    """Return the sum of kernel(block) over the blocks."""
    return reduce_runs(BlockTask(lambda block, start, broadcast: kernel(block)), None, [source], threads)
