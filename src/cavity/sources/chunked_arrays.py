"""Rows of arrays that are no memory: of zarr, HDF5, and whatever has a shape, a dtype and slices of rows."""

import os
import threading
from hashlib import blake2b
from pathlib import Path

import numpy as np

from cavity.base import arrays
from cavity.sources.source_parts import NamedRows

READ_BYTES = 1 << 22  # whole chunks that are read together, unless one takes more


class ChunkedArrayRows(NamedRows):
    """Rows of an array that gives slices of them; where it is cut into chunks, these are read whole and once a pass.

    One thread reads at a time: not every library allows several.
    """

    in_memory = False

    def __init__(self, array, name):
        super().__init__(name, tuple(map(int, array.shape)), None)
        arrays.check_dtype(np.dtype(array.dtype), name)
        self._array, self._state, self._lock = array, _state(array), threading.Lock()
        row_bytes = max(1, np.dtype(array.dtype).itemsize * int(np.prod(self.shape[1:])))
        self._stretch = _stretch(array, row_bytes)

    def __getstate__(self):
        file = _hdf5(self._array)
        array = self._array if file is None else (os.path.abspath(file), self._array.name)
        return self.__dict__ | {"_array": array, "_lock": None}

    def __setstate__(self, state):
        self.__dict__.update(state)
        self._lock = threading.Lock()
        if isinstance(self._array, tuple):
            from h5py import File

            path, name = self._array
            self._array = File(path, "r")[name]

    def fill(self, out, start, state):
        """Read the rows from `start` on into out (n,) or (n, d)."""
        if start == 0 or _hdf5(self._array) is not None:  # the files of a folder are looked at before and after a pass
            self._check()
        done = 0
        while done < len(out):
            low, rows = self._rows(start + done, len(out) - done, state)
            part = rows[start + done - low :][: len(out) - done]
            arrays.copy_real(part, out[done : done + len(part)])
            done += len(part)
        if start + done == self.shape[0] and _hdf5(self._array) is None:
            self._check()

    def _rows(self, row, count, state):
        """Return rows among which this one is, and the number of the first."""
        if state.part is self and state.open[0] <= row < state.open[0] + len(state.open[1]):
            return state.open
        low, stop = row, min(row + count, self.shape[0])
        if self._stretch:
            low = row - row % self._stretch
            stop = min(low + self._stretch, self.shape[0])
        with self._lock:
            rows = np.asarray(self._array[low:stop])
        if rows.shape != (stop - low, *self.shape[1:]):
            raise ValueError(
                f"{self.name} has changed while it was in use: its rows {low} to {stop} have shape {rows.shape}, it "
                f"had {self.shape}"
            )
        if self._stretch:
            state.part, state.open = self, (low, rows)
        return low, rows

    def _check(self):
        """Raise ValueError if the array has changed."""
        if tuple(self._array.shape) != self.shape or _state(self._array) != self._state:
            path = _place(self._array)
            description = self.name if path is None else f"{self.name} ({path})"
            raise ValueError(f"{description} has changed while it was in use; start again with the array as it is now")


def _stretch(array, row_bytes):
    """Return how many rows of whole chunks are read together, None for an array without chunks."""
    chunks = getattr(array, "shards", None) or getattr(array, "chunks", None)
    if not chunks or not isinstance(chunks[0], int):
        return None
    return chunks[0] * max(1, READ_BYTES // (chunks[0] * row_bytes))


def _hdf5(array):
    """Return the path of the file of an HDF5 dataset, None for another array."""
    return getattr(getattr(array, "file", None), "filename", None)


def _place(array):
    """Return the file of an HDF5 dataset, or the folder of a zarr array; None for what has none that is only read."""
    if _hdf5(array) is not None:
        return Path(_hdf5(array)) if array.file.mode == "r" else None
    root = getattr(getattr(array, "store", None), "root", None)
    return None if root is None else Path(root, getattr(array, "path", ""))


def _state(array):
    """Return what differs once the files of an array have changed; None for one without files."""
    place = _place(array)
    if place is None:
        return None
    digest = blake2b(digest_size=16)
    for path in sorted(place.rglob("*")) if place.is_dir() else [place]:
        status = path.stat()
        digest.update(f"{path} {status.st_size} {status.st_mtime_ns}\n".encode())
    return digest.digest()
