"""Vectors of N doubles that may live in a scratch file: read and written by slices, as arrays are.

Plain reads and writes, no memory map: what is mapped counts as resident memory.
"""

import tempfile
import weakref
from threading import Lock

import numpy as np

from cavity.base.errors import naming

MOST_IN_MEMORY = 1 << 24  # rows of a file up to which what is kept for each of them stays in memory: 128 MB a vector
TOGETHER = 1 << 17  # numbers that are changed at a time


def is_beyond(source, n):
    """Whether vectors of the n rows of a source go to scratch files: only where the rows are in files themselves."""
    return n > MOST_IN_MEMORY and not getattr(source, "in_memory", True)


def vector(n, scratch=False, folder=None):
    """Return n zeros: an array, or a `ScratchVector` in that folder."""
    return ScratchVector(n, folder=folder) if scratch else np.zeros(n)


def change(function, out, *others):
    """Set out to function(out, *others) of vectors of one length, some numbers at a time."""
    for start in range(0, len(out), TOGETHER):
        part = slice(start, min(start + TOGETHER, len(out)))
        out[part] = function(*(each[part] for each in (out, *others)))


class ScratchVector:
    """N doubles in a file, zeros at first. Slices of step 1 are read as arrays of their own, and written.

    Threads may read and write at a time. The file has no name: it is gone with the last reference to the vector, and
    when the process is killed.

    Parameters
    ----------
    n : int
        N.
    folder : path-like, optional
        Where there is space for the file; by default the temporary folder.
    """

    dtype = np.dtype(np.float64)

    def __init__(self, n, folder=None):
        self.shape, self._folder, self._lock = (n,), folder, Lock()
        self._file = tempfile.TemporaryFile(prefix="cavity-", dir=folder, buffering=0)  # noqa: SIM115  lives as long
        weakref.finalize(self, self._file.close)
        self._place = tempfile.gettempdir() if folder is None else folder  # for messages, as of a full disk
        with naming(self._place):
            self._file.truncate(8 * n)

    def __len__(self):
        return self.shape[0]

    def __getitem__(self, part):
        start, stop, _ = part.indices(len(self))
        out = np.empty(max(stop - start, 0))
        left = memoryview(out).cast("B")
        with self._lock:
            self._file.seek(8 * start)
            while left:
                done = self._file.readinto(left)
                if not done:
                    raise OSError("a scratch file has been cut short by somebody else")
                left = left[done:]
        return out

    def __setitem__(self, part, values):
        start, stop, _ = part.indices(len(self))
        values = np.ascontiguousarray(np.broadcast_to(values, (stop - start,)), dtype=np.float64)
        left = memoryview(values).cast("B")
        with self._lock, naming(self._place):
            self._file.seek(8 * start)
            while left:
                left = left[self._file.write(left) :]

    def copy(self):
        """Return another one with the same numbers."""
        other = ScratchVector(len(self), self._folder)
        change(lambda _, mine: mine, other, self)
        return other

    def __array__(self, dtype=None, copy=None):
        return self[:].astype(np.float64 if dtype is None else dtype, copy=False)
