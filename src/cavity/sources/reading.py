"""Rows of data in the order of a pass: those that are not in memory are read ahead while others are worked on."""

from cavity.runs.executors import Threads
from cavity.runs.merge import starts
from cavity.runs.runs import Reader
from cavity.sources.sources import Source, rows


def is_stored(data):
    """Whether rows have to be read in every pass, from files or what is like them."""
    return isinstance(data, Source)


def is_elsewhere(data):
    """Whether rows are worked on where they are, as those of collections of dask."""
    return is_stored(data) and data.elsewhere is not None


def in_turn(data, spans):
    """Yield (slice, rows) for (start, stop) pairs of an array or a Source, in order: float64, C-contiguous.

    Rows of a Source are read ahead by one thread; they are valid until the next ones are asked for.
    """
    if not is_stored(data) or not spans:
        yield from ((slice(*span), rows(data, slice(*span))) for span in spans)
        return
    with Threads(1) as inline, Reader([data], spans, inline) as reader:
        for start, stop, slot in reader:
            yield slice(start, stop), slot.arrays(stop - start)[0]
            slot.free()


def each_block(data, size):
    """Yield (slice, rows) for all rows of an array or a Source, `size` at a time, see `in_turn`."""
    return in_turn(data, starts(data.shape[0], size))
