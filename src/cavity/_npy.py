"""Rows of .npy files, read piece by piece into memory that the caller owns.

Plain reads, no memory map: what is mapped counts as resident, and a file that shrinks under a map kills the process.
The format is that of numpy.lib.format.
"""

import os
from dataclasses import dataclass
from math import prod
from pathlib import Path
from tokenize import TokenError

import numpy as np
from numpy.lib import format as npy

from . import _arrays

VERSIONS = ((1, 0), (2, 0), (3, 0))  # 3 differs from 2 in how names of fields are spelled; such arrays are refused


@dataclass(frozen=True, slots=True)
class NpyFile:
    """A .npy file of real numbers whose header has been read and checked."""

    path: str  # as the user wrote it
    place: str  # absolute, so that it is found from another working directory
    dtype: np.dtype
    shape: tuple
    by_columns: bool
    offset: int  # of the first number, in bytes
    stamp: tuple  # size and time of the last change, when the header was read

    @property
    def ndim(self):
        """Number of dimensions."""
        return len(self.shape)

    def where(self, row, column=None):
        """Words for a row, or for a row and a column, for messages."""
        return f"row {row} of {self.path}" if column is None else f"row {row}, column {column} of {self.path}"

    def found(self, value, *place):
        """Words for a value that should not be there."""
        return f"{value} in {self.where(*place)}"

    def view(self, start, stop):
        """None: the rows have to be read."""
        return None

    def fill(self, out, start, scratch):
        """Read the rows from `start` on into out (n,) or (n, d); scratch(size) returns that many bytes to work in."""
        with open(self.place, "rb", buffering=0) as file:
            if _stamp(file) != self.stamp:
                raise ValueError(f"{self.path} has changed while it was in use; start again with the file as it is now")
            if not self.by_columns:
                self._read(file, out, start * prod(self.shape[1:]), scratch)
                return
            for column in range(prod(self.shape[1:])):
                self._read(file, out[:, column], column * self.shape[0] + start, scratch)

    def _read(self, file, out, first, scratch):
        """Read consecutive numbers, the first-th of the file and those after it, into out."""
        file.seek(self.offset + first * self.dtype.itemsize)
        if self.dtype == out.dtype and out.flags.c_contiguous:
            self._read_bytes(file, memoryview(out).cast("B"))
            return
        staged = scratch(out.size * self.dtype.itemsize)
        self._read_bytes(file, memoryview(staged))
        _arrays.copy_real(staged.view(self.dtype).reshape(out.shape), out)

    def _read_bytes(self, file, target):
        """Fill a memoryview of bytes; a read may bring fewer than were asked for."""
        done = 0
        while done < len(target):
            count = file.readinto(target[done:])
            if not count:
                raise ValueError(f"{self.path} ends too early: it was cut short while it was in use")
            done += count


def _stamp(file):
    """Return what tells whether an open file has changed."""
    status = os.fstat(file.fileno())
    return status.st_size, status.st_mtime_ns


def open_npy(path, name):
    """Return a path, checked to be a whole .npy file of real numbers, as an NpyFile; `name` is the argument's."""
    path = os.fsdecode(path)
    if not Path(path).exists():
        raise FileNotFoundError(f"{name} must be real numbers or the path of a .npy file; there is no file {path!r}")
    if not Path(path).is_file():
        raise ValueError(f"{name}: {path} is not a file")
    with open(path, "rb") as file:
        try:
            shape, by_columns, dtype = _header(file)
        except (ValueError, SyntaxError, TokenError) as error:  # a damaged header can raise any of them
            raise ValueError(f"{name}: {path} is not a .npy file that can be read ({error})") from error
        offset, stamp = file.tell(), _stamp(file)
    _arrays.check_dtype(dtype, f"{name} ({path})")
    found, needed = stamp[0] - offset, prod(shape) * dtype.itemsize
    if found < needed:
        raise ValueError(f"{name}: {path} is cut short: shape {shape} takes {needed} bytes, the file has {found}")
    return NpyFile(path, os.path.abspath(path), dtype, shape, by_columns and len(shape) > 1, offset, stamp)


def _header(file):
    """Return (shape, whether by columns, dtype) and leave the file at the first number."""
    version = npy.read_magic(file)
    if version not in VERSIONS:
        raise ValueError(f"format version {version} is not known")
    shape, by_columns, dtype = (npy.read_array_header_1_0 if version == (1, 0) else npy.read_array_header_2_0)(file)
    if min(shape, default=0) < 0:
        raise ValueError(f"its header says shape {shape}")
    return shape, by_columns, dtype
