"""Methods of posteriors and estimators on collections of dask: lazy arrays, computed chunk by chunk."""

from dataclasses import dataclass
from functools import partial, wraps
from inspect import signature
from typing import Any, TypeVar

import numpy as np

from cavity.sources import formats

Method = TypeVar("Method", bound=Any)


def map_chunks(tail=lambda self, **settings: (), dtype=lambda self: np.float64, *, pair=False):
    """Return a decorator: a method (self, X, ...) returns a lazy dask array where X is a collection of dask.

    Parameters
    ----------
    tail, dtype : callable
        Return the shape of what comes of a row, for the object and its arguments beside X, and the type of its numbers;
        the method is called as it is where the shape is None.
    pair : bool, default False
        Whether the method returns a tuple of arrays (n,), as many as `tail` says.
    """

    def decorate(method: Method) -> Method:
        @wraps(method)
        def call(self, X, *values, **settings):
            if not formats.is_collection(X):
                return method(self, X, *values, **settings)
            try:
                bound = signature(method).bind(self, X, *values, **settings)
            except TypeError:
                return method(self, X, *values, **settings)  # whose message has its name
            settings = dict([*bound.arguments.items()][2:])
            shape = tail(self, **settings)
            if shape is None:
                return method(self, X, **settings)
            result = _compute_lazily(partial(method, self), X, shape, dtype(self), settings)
            return tuple(result.T) if pair else result

        return call

    return decorate


def _compute_lazily(method, X, tail, dtype, settings):
    """Return method(rows, **settings) of all rows of a collection as a lazy dask array (N, *tail), chunk by chunk.

    Parameters
    ----------
    method : callable
        Takes rows as NumPy or pandas has them and returns an array (n, *tail), or a tuple of arrays (n,) that become
        its columns.
    X : dask array or data frame
        The rows.
    tail : tuple of int
        The shape of what comes of a row.
    dtype : dtype
        Of the result.
    settings : dict
        The same for all rows.

    Raises
    ------
    TypeError
        For settings that are one number a row.
    """
    for name, value in settings.items():
        if not (value is None or isinstance(value, str) or np.ndim(value) == 0):
            raise TypeError(f"{name} must be a number or the name of a column where X is a collection of dask")
    call, meta = Chunkwise(method, settings, tail, dtype), np.empty((0,) * (1 + len(tail)), dtype=dtype)
    if hasattr(X, "npartitions") and not hasattr(X, "numblocks"):
        result = X.map_partitions(call, meta=meta)
        result._chunks = (result.chunks[0], *((size,) for size in tail))
        return result
    X = X.rechunk({1: -1}) if X.ndim == 2 and X.numblocks[1] > 1 else X
    axes = {"drop_axis": list(range(1, X.ndim)), "new_axis": list(range(1, 1 + len(tail))) or None}
    return X.map_blocks(call, dtype=dtype, meta=meta, chunks=(X.chunks[0], *((size,) for size in tail)), **axes)


@dataclass(frozen=True, slots=True)
class Chunkwise:
    """A method of a posterior for a chunk, which may be empty."""

    method: object
    settings: dict
    tail: tuple
    dtype: object

    def __call__(self, rows):
        if not len(rows):
            return np.empty((0, *self.tail), dtype=self.dtype)
        result = self.method(rows, **self.settings)
        return np.stack(result, axis=1) if isinstance(result, tuple) else result


def refuse_collections(*data, message):
    """Raise TypeError, with these words, if there is a collection of dask among data."""
    if any(formats.is_collection(item) for item in data):
        raise TypeError(message)


def load(data):
    """Return a collection of dask in memory; anything else as it is."""
    if not formats.is_collection(data):
        return data
    from cavity.runs import dask_scheduler  # takes a while to load

    return dask_scheduler.load(data)


def open_array(data):
    """Return a collection of dask as a dask array, and the names of its columns or None; None for anything else."""
    if not formats.is_collection(data):
        return None
    names = getattr(data, "columns", None)
    return (data, None) if names is None else (data.to_dask_array(), names)
