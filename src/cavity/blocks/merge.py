"""Kernels on blocks, and the ordered merge of what they return: a pairwise tree over the numbers of the blocks."""

import numpy as np

ROWS_PER_CALL = 1 << 17  # rows per kernel call: 16 chunks of partial sums


def starts(n_rows, size=None):
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
    add = _plus if add is None else add
    pending = []  # sums of 2^k parts, for the binary digits of the number of parts so far
    for count, part in enumerate(parts, 1):
        while count % 2 == 0:
            part, count = add(pending.pop(), part), count // 2
        pending.append(part)
    if not pending:
        raise ValueError("there is nothing to merge")
    total = pending.pop()
    while pending:
        total = add(pending.pop(), total)
    return total


def _plus(left, right):
    if isinstance(left, tuple):
        return tuple(a + b for a, b in zip(left, right, strict=True))
    return left + right


def map_blocks(source, kernel, threads):
    """Yield kernel(block) for the blocks of a source, in order, whoever runs them.

    A kernel gets (rows,) or (rows, D) float64, read-only and only its own until it returns.
    """

    def task(index):
        block = source.read(index)
        return _apart(kernel(block), block)

    return threads.imap(task, zip(range(source.block_count)))


def reduce_blocks(source, kernel, threads):
    """Return the sum of kernel(block), an array or a tuple of arrays, over the blocks of a source, see `merge`."""
    return merge(map_blocks(source, kernel, threads))


def _apart(result, block):
    """Copy what shares memory with the block, which is about to be used for the next one."""
    if isinstance(result, tuple):
        return tuple(_apart(each, block) for each in result)
    if isinstance(result, np.ndarray) and np.may_share_memory(result, block):
        return result.copy()
    return result
