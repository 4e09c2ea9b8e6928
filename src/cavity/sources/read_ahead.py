"""Rows of data in the order of a pass: those that are not in memory are read ahead while others are worked on."""

import numpy as np

from cavity.runs.executors import Threads
from cavity.runs.merge import split_rows
from cavity.runs.passes import ReadAhead
from cavity.sources.sources import Source


def read_rows(data, index):
    """Return data[index] as an aligned C-contiguous float64 array; a view where the data are that already."""
    return np.require(data[index], dtype=np.float64, requirements="CA")


def iterate_spans(data, spans):
    """Yield (slice, rows) for (start, stop) pairs of an array or a Source, in order: float64, C-contiguous.

    Rows of a Source are read ahead by one thread; they are valid until the next ones are read.
    """
    if not isinstance(data, Source) or not spans:
        yield from ((slice(*span), read_rows(data, slice(*span))) for span in spans)
        return
    with Threads(1) as inline, ReadAhead([data], spans, inline) as reader:
        for start, stop, slot in reader:
            yield slice(start, stop), slot.arrays(stop - start)[0]
            slot.free()


def iterate_blocks(data, size):
    """Yield (slice, rows) for all rows of an array or a Source, `size` at a time, see `iterate_spans`."""
    return iterate_spans(data, split_rows(data.shape[0], size))
