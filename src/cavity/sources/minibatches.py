"""Minibatches for stochastic fits: runs of the rows of a source, or what a one-shot iterator yields."""

from itertools import chain

import numpy as np

from cavity.base import arrays
from cavity.base.errors import NumericalWarning, warn
from cavity.base.frames import names_of, order_columns
from cavity.sources.read_ahead import iterate_blocks


def iterate_minibatches(source, size):
    """Yield the rows of a source in runs of `size`, whatever its blocks are."""
    remainder = np.empty((0, *source.shape[1:]))
    for block in _blocks(source):
        block = np.concatenate([remainder, block])
        stop = len(block) // size * size
        yield from block[:stop].reshape(-1, size, *source.shape[1:])
        remainder = block[stop:]
    if len(remainder):
        yield remainder


def _blocks(source):
    """Yield the blocks of a source, read ahead of their use where they are not in memory."""
    if source.in_memory:
        yield from (source.read(i) for i in range(source.block_count))
        return
    yield from (block for _, block in iterate_blocks(source, source.block_rows))


class OneShotMinibatches:
    """The minibatches of an iterator that can be seen once, each checked when it comes.

    Parameters
    ----------
    data : iterator
        Of arrays.
    name : str
        What the argument is called, for messages.
    n_samples : int or None
        The number of rows that the caller says it holds.
    n_epochs : int
        How often it is yielded.
    check : callable
        check(array, name) returns a minibatch as float64 or raises; the name says which one it is.

    Attributes
    ----------
    columns : tuple of str or None
        Names of the columns, of the first minibatch that has any; those of later ones are put in their order.
    """

    def __init__(self, data, name, n_samples, n_epochs, check):
        if n_samples is None:
            raise ValueError(f"{name} is a one-shot iterator: give n_samples, the number of points it will yield")
        if n_epochs != 1:
            raise ValueError(f"{name} is a one-shot iterator and can be seen once, got n_epochs={n_epochs}")
        self.n_samples = arrays.check_integer(n_samples, "n_samples", low=1)
        self.columns = None
        self._batches = self._read(data, name, check)
        self.first = next(self._batches, None)
        if self.first is None:
            raise ValueError(f"{name} is an iterator that yields nothing")
        self._count = 0

    def _read(self, data, name, check):
        width = None
        for i, batch in enumerate(data):
            self.columns = names_of(batch) if self.columns is None else self.columns
            rows = check(order_columns(batch, self.columns, f"minibatch {i} of {name}"), f"minibatch {i} of {name}")
            width = rows.shape[1:] if width is None else width
            if rows.shape[1:] != width:
                raise ValueError(
                    f"minibatch {i} of {name} must have {width[0]} columns as the first one has, got shape {rows.shape}"
                )
            yield rows

    def __iter__(self):
        for batch in chain([self.first], self._batches):
            self._count += len(batch)
            yield batch

    def warn_surplus(self):
        """Warn if there were more rows than promised."""
        if self._count > self.n_samples:
            warn(
                f"n_samples is {self.n_samples}, but the stream held {self._count} points: the posterior is as sure as "
                f"{self.n_samples} points make it",
                NumericalWarning,
            )
