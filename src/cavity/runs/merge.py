"""The ordered merge of what kernels return for blocks: a pairwise tree over the numbers of the blocks."""

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
