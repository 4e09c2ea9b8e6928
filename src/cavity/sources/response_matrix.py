"""Responses that are columns of one matrix, of which blocks are read: arrays, sparse matrices, frames, files, zarr."""

from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

import numpy as np

from cavity.base import arrays, frames
from cavity.base.sparse import check_structure
from cavity.sources.dataset import open_table

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
        """
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
        if names is None:
            names = frames.name_coefficients(None, shape[1]) if own is None else own
            names = tuple(f"y{name[1:]}" for name in names) if own is None else names
        names = tuple(map(str, names))
        if len(names) != shape[1] or len(set(names)) < len(names):
            message = f"must be {shape[1]} different names, one for each column of {argument}, got {len(names)} names"
            raise arrays.error_of("names", message)
        return cls(values, shape, names, argument)

    @property
    def by_response(self):
        """The matrix as data whose rows are responses, for fingerprints."""
        return SimpleNamespace(shape=self.shape[::-1], names=self.names, rows=self.read)

    def read(self, low, high):
        """Return columns low to high as rows of float64, (high - low, N); missing entries are nan."""
        if hasattr(self.values, "tocsc"):
            block = self.values[:, low:high].toarray()
        elif hasattr(self.values, "block_rows"):
            block = frames.pick_columns(self.values, range(low, high)).rows()
        elif frames.names_of(self.values) is not None:
            block = frames.convert_rows(frames.pick_columns(self.values, list(range(low, high))))
        else:
            block = arrays.check_real(np.asarray(self.values[:, low:high]), self.argument)
        return np.ascontiguousarray(np.asarray(block, dtype=np.float64).T)


@dataclass(frozen=True, slots=True, eq=False)
class TrialsMatrix:
    """Successes of G responses, with trials of each row, (N,), or of each row and response."""

    successes: ResponseMatrix
    trials: Any

    @classmethod
    def open(cls, successes, trials):
        """Open the trials that belong to successes; ValueError or TypeError for those of another shape."""
        shape = np.shape(trials) if isinstance(trials, list | tuple) else getattr(trials, "shape", None)
        if shape is not None and len(shape) == 1:
            values = arrays.check_real(trials, "trials").astype(np.float64)
            shape = (len(values), successes.shape[1])
        else:
            values = ResponseMatrix.open(trials, "trials")
            shape = values.shape
        if shape != successes.shape:
            message = (
                f"must have an entry for each row of Y, or the shape of Y, {successes.shape}, got {np.shape(trials)}"
            )
            raise arrays.error_of("trials", message)
        return cls(successes, values)

    @property
    def shape(self):
        """(N, G)."""
        return self.successes.shape

    @property
    def names(self):
        """Those of the responses."""
        return self.successes.names

    @property
    def by_response(self):
        """The matrix as data whose rows are responses, for fingerprints."""
        (n, g), rows = self.shape, lambda low, high: self.read(low, high).reshape(high - low, -1)
        return SimpleNamespace(shape=(g, 2 * n), names=self.names, rows=rows)

    def read(self, low, high):
        """Return successes and trials of columns low to high, (high - low, N, 2); missing entries are nan."""
        successes = self.successes.read(low, high)
        trials = self.trials if isinstance(self.trials, np.ndarray) else self.trials.read(low, high)
        return np.stack([successes, np.broadcast_to(trials, successes.shape)], axis=2)
