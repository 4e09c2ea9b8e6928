"""Scratch files, and vectors of N doubles that live in them: read and written by slices, as arrays are.

Plain reads and writes, no memory map: what is mapped counts as resident memory.
"""

import os
import tempfile
import weakref
from threading import Lock

import numpy as np

from cavity.base.errors import name_file_in_errors

MOST_IN_MEMORY = 1 << 24  # rows of a file up to which what is kept for each of them stays in memory: 128 MB a vector
NUMBERS_PER_STEP = 1 << 17  # numbers that are changed at a time


def is_beyond(source, n):
    """Whether vectors of the n rows of a source go to scratch files: only where the rows are in files themselves."""
    return n > MOST_IN_MEMORY and not getattr(source, "in_memory", True)


def allocate_vector(n, scratch=False, folder=None):
    """Return n zeros: an array, or a `ScratchVector` in that folder."""
    return ScratchVector(n, folder=folder) if scratch else np.zeros(n)


def update_in_steps(function, out, *others):
    """Set out to function(out, *others) of vectors of one length, some numbers at a time."""
    for start in range(0, len(out), NUMBERS_PER_STEP):
        part = slice(start, min(start + NUMBERS_PER_STEP, len(out)))
        out[part] = function(*(vector[part] for vector in (out, *others)))


class ScratchFile:
    """A file without a name: gone with the last reference to it, and when the process is killed.

    Threads and forked processes may read and write at a time. Errors, as of a full disk, name the folder.

    Parameters
    ----------
    size : int
        Bytes, zeros at first. Writing beyond them makes the file longer.
    folder : path-like, optional
        Where there is space for the file; by default the temporary folder.
    """

    def __init__(self, size=0, folder=None):
        self._file = tempfile.TemporaryFile(prefix="cavity-", dir=folder, buffering=0)  # noqa: SIM115  lives as long
        self._lock = Lock()
        weakref.finalize(self, self._file.close)
        chosen = f"{tempfile.gettempdir()} (the environment variable TMPDIR chooses another folder)"
        self._label = f"a scratch file in {chosen if folder is None else folder}"
        with name_file_in_errors(self._label):
            self._file.truncate(size)

    def read(self, out, offset):
        """Fill a contiguous array with the bytes from `offset` on."""
        self._all(out, offset, "preadv", lambda rest: self._file.readinto(rest))

    def write(self, values, offset):
        """Write the bytes of a contiguous array from `offset` on."""
        self._all(values, offset, "pwritev", lambda rest: self._file.write(rest))

    def _all(self, values, offset, at_place, at_position):
        """Read or write all bytes, by a function of the system that leaves the file's position alone if it has one."""
        rest, at_place = memoryview(values).cast("B"), getattr(os, at_place, None)
        with name_file_in_errors(self._label):
            while rest:
                if at_place is not None:
                    done = at_place(self._file.fileno(), [rest], offset)
                else:
                    with self._lock:
                        self._file.seek(offset)
                        done = at_position(rest)
                if not done:
                    raise OSError("another process has shortened it")
                rest, offset = rest[done:], offset + done


class ScratchVector:
    """N doubles in a scratch file, zeros at first. Slices of step 1 are read as arrays of their own, and written.

    Parameters
    ----------
    n : int
        N.
    folder : path-like, optional
        Where there is space for the file; by default the temporary folder.
    """

    dtype = np.dtype(np.float64)

    def __init__(self, n, folder=None):
        self.shape, self._folder, self._file = (n,), folder, ScratchFile(8 * n, folder)

    def __len__(self):
        return self.shape[0]

    def __getitem__(self, part):
        if isinstance(part, np.ndarray):  # ascending numbers
            return self[slice(part[0], part[-1] + 1)][part - part[0]]
        start, stop, _ = part.indices(len(self))
        out = np.empty(max(stop - start, 0))
        self._file.read(out, 8 * start)
        return out

    def __setitem__(self, part, values):
        if isinstance(part, np.ndarray):
            span = slice(part[0], part[-1] + 1)
            changed = self[span]
            changed[part - part[0]] = values
            part, values = span, changed
        start, stop, _ = part.indices(len(self))
        values = np.ascontiguousarray(np.broadcast_to(values, (stop - start,)), dtype=np.float64)
        self._file.write(values, 8 * start)

    def copy(self):
        """Return another one with the same numbers."""
        other = ScratchVector(len(self), self._folder)
        update_in_steps(lambda _, mine: mine, other, self)
        return other

    def __array__(self, dtype=None, copy=None):
        return self[:].astype(np.float64 if dtype is None else dtype, copy=False)
