"""Responses that are columns of one matrix, of which blocks are read: arrays, sparse matrices, frames, files, zarr."""

from dataclasses import dataclass
from functools import partial
from types import SimpleNamespace
from typing import Any

import numpy as np

from cavity.base import arrays, frames
from cavity.base.sparse import check_structure
from cavity.sources.chunkwise import open_array
from cavity.sources.dataset import open_table
from cavity.sources.formats import is_collection

MIN_NAME_WORDS = 5  # of 8 bytes, that a name takes
ANNOTATED_PARTS = ("X", "obs", "var")  # of an object like AnnData: the matrix, tables of its rows and of its columns


def split_annotated(data):
    """Return (rows, matrix, names) of an object like AnnData, which has X, obs and var; None for other data."""
    if not all(hasattr(data, part) for part in ANNOTATED_PARTS):
        return None
    return data.obs, data.X, tuple(map(str, data.var.index))


@dataclass(frozen=True, slots=True, eq=False)
class ResponseMatrix:
    """G columns of N rows. `values` are an array, a CSC matrix, a table, a Source, or what gives slices."""

    values: Any
    shape: tuple
    names: tuple
    argument: str

    @classmethod
    def open(cls, values, argument, names=None):
        """Open what a user gave.

        Raises
        ------
        ValueError, TypeError
            For what has no rows and columns, and for names that are not as many as columns or not all different.
        MemoryError
            If their names do not fit into memory.
        """
        if is_collection(values):
            values, own = open_array(values)
            values = values.compute_chunk_sizes() if np.isnan(values.shape).any() else values
            names = own if names is None else names
        values = values if arrays.is_sliced(values) else open_table(values, argument)
        if hasattr(values, "tocsc"):
            check_structure(values, argument)
            values = values.tocsc()
        own = frames.names_of(values)
        if own is None and not (hasattr(values, "tocsc") or arrays.is_sliced(values) or hasattr(values, "block_rows")):
            values = arrays.check_real(values, argument)
        shape = tuple(values.shape) if own is None else frames.shape_of(values)
        if len(shape) != 2 or 0 in shape:
            raise arrays.error_of(argument, f"must have rows and a column for each response, got shape {shape}")
        arrays.allocate_matrices(1, (shape[1], MIN_NAME_WORDS), f"{argument}: names of all responses")
        if names is None:
            names = frames.name_coefficients(None, shape[1]) if own is None else own
            names = tuple(f"y{name[1:]}" for name in names) if own is None else names
        names = tuple(map(str, names))
        if len(names) != shape[1] or len(set(names)) < len(names):
            message = f"must be {shape[1]} different names, one for each column of {argument}, got {len(names)} names"
            raise arrays.error_of("names", message)
        return cls(values, shape, names, argument)

    @classmethod
    def open_beside(cls, values, argument, responses):
        """Open what each row has, (N,), or each row and response of a `ResponseMatrix`; errors for another shape."""
        shape = np.shape(values) if isinstance(values, list | tuple) else getattr(values, "shape", None)
        if shape is not None and len(shape) == 1:
            values = np.float64(arrays.check_real(values, argument))
            opened = cls(values, (len(values), responses.shape[1]), responses.names, argument)
        else:
            opened = cls.open(values, argument)
        if opened.shape != responses.shape:
            message = f"must be a vector or have the shape of Y, {responses.shape}, got {shape or opened.shape}"
            raise arrays.error_of(argument, message)
        return opened

    @property
    def is_remote(self):
        """Whether dask has the values."""
        return is_collection(self.values)

    @property
    def by_response(self):
        """The matrix as data whose rows are responses, for fingerprints."""
        return SimpleNamespace(shape=self.shape[::-1], names=self.names, rows=self.read)

    def take(self, low, high):
        """Return columns low to high as an array, (N, high - low), or as an array of dask where that has them."""
        if hasattr(self.values, "tocsc"):
            return self.values[:, low:high].toarray()
        if hasattr(self.values, "block_rows"):
            return frames.pick_columns(self.values, range(low, high)).rows()
        if frames.names_of(self.values) is not None:
            return frames.convert_rows(frames.pick_columns(self.values, list(range(low, high))))
        if self.is_remote:
            return self.values[:, low:high]
        values = self.values[:, None] if len(self.values.shape) == 1 else np.asarray(self.values[:, low:high])
        return np.broadcast_to(values, (len(values), high - low))

    def read(self, low, high):
        """Return columns low to high as rows of float64, (high - low, N); missing entries are nan."""
        return convert_block(self.take(low, high), self.argument)


def convert_block(block, argument):
    """Return columns (N, B), which a `ResponseMatrix` has taken, as rows of float64, (B, N)."""
    return np.ascontiguousarray(np.asarray(arrays.check_real(np.asarray(block), argument), dtype=np.float64).T)


def map_blocks(function, matrices, arguments, threads):
    """Yield function(names, blocks) for (names, low, high) in arguments: `blocks` are these columns of all matrices.

    Parameters
    ----------
    function : callable
        Called on `threads`, unless dask has "Y": then on its workers.
    matrices : dict of ResponseMatrix
        "Y", and others of its shape.
    """
    if not matrices["Y"].is_remote:
        return threads.imap(partial(_call_on_columns, function, matrices), arguments)
    from cavity.runs.dask_calls import call_on_blocks  # takes a while to load

    return call_on_blocks(function, (_take_columns(matrices, *block) for block in arguments), "Y")


def _take_columns(matrices, names, low, high):
    return names, {name: matrix.take(low, high) for name, matrix in matrices.items()}


def _call_on_columns(function, matrices, names, low, high):
    return function(*_take_columns(matrices, names, low, high))
