"""Rows of data in the order of a pass: what is in files is read on a thread of its own while others compute."""

from collections import deque
from concurrent.futures import ThreadPoolExecutor
from itertools import islice

from cavity.blocks.merge import starts
from cavity.blocks.sources import Source, rows

BYTES_AHEAD = 1 << 26  # of rows that have been read, and are not in use yet


def is_stored(data):
    """Whether rows have to be read in every pass, from files or what is like them."""
    return isinstance(data, Source)


def in_turn(data, spans):
    """Yield (slice, rows) for (start, stop) pairs of an array or a Source, in order: float64, C-contiguous.

    Rows of a Source are arrays of their own, read ahead by one thread.
    """
    parts = [slice(*span) for span in spans]
    if not is_stored(data) or not parts:
        yield from ((part, rows(data, part)) for part in parts)
        return
    most = max(2, BYTES_AHEAD // (8 * data.n_features * (parts[0].stop - parts[0].start)))
    waiting, left = deque(), iter(parts)
    with ThreadPoolExecutor(1) as reader:
        try:
            while True:
                for part in islice(left, most - len(waiting)):
                    waiting.append((part, reader.submit(data.rows, part.start, part.stop)))
                if not waiting:
                    return
                part, found = waiting[0]
                found = found.result()
                waiting.popleft()
                yield part, found
        finally:
            reader.shutdown(cancel_futures=True)


def each_block(data, size):
    """Yield (slice, rows) for all rows of an array or a Source, `size` at a time."""
    return in_turn(data, starts(data.shape[0], size))
