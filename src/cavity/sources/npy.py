"""Rows of .npy files, read piece by piece into memory that the caller owns.

Plain reads, no memory map: what is mapped counts as resident, and a file that shrinks under a map kills the process.
The format is that of numpy.lib.format.
"""

import ast
import os
import re
from dataclasses import dataclass
from math import prod

import numpy as np
from numpy.lib import format as npy

from cavity.base import arrays
from cavity.base.errors import name_file_in_errors
from cavity.sources.files import FileState
from cavity.sources.source_parts import SourcePart

HEADER_LENGTH_BYTES = {(1, 0): 2, (2, 0): 4, (3, 0): 4}  # bytes of the length of the header, by version of the format
MAX_HEADER_BYTES = 10_000  # bytes of a header: those of arrays of numbers have about a hundred
HEADER_FIELDS = {"descr", "fortran_order", "shape"}
DTYPE_PATTERN = re.compile(r"[<>|=]?[biufcmMOSUV][0-9]*(\[[0-9A-Za-z]+\])?")  # as numpy spells those without fields


@dataclass(frozen=True, slots=True)
class NpyFile(SourcePart):
    """A .npy file of real numbers whose header has been read and checked."""

    path: str  # as the user wrote it
    absolute_path: str  # absolute, so that it is found from another working directory
    dtype: np.dtype
    shape: tuple
    by_columns: bool
    state: FileState

    in_memory = False

    def describe_row(self, row, column=None):
        """Words for a row, or for a row and a column, for messages."""
        return f"row {row} of {self.path}" if column is None else f"row {row}, column {column} of {self.path}"

    def fill(self, out, start, state):
        """Read the rows from `start` on into out (n,) or (n, d)."""
        with name_file_in_errors(self.path), open(self.absolute_path, "rb", buffering=0) as file:
            self.state.check(file)
            if not self.by_columns:
                self._read(file, out, start * prod(self.shape[1:]), state)
                return
            for column in range(prod(self.shape[1:])):
                self._read(file, out[:, column], column * self.shape[0] + start, state)

    def _read(self, file, out, first, state):
        """Read consecutive numbers, the first-th of the file and those after it, into out."""
        file.seek(self.state.offset + first * self.dtype.itemsize)
        if self.dtype == out.dtype and out.flags.c_contiguous:
            self._read_bytes(file, memoryview(out).cast("B"))
            return
        staged = state.scratch(out.size * self.dtype.itemsize)
        self._read_bytes(file, memoryview(staged))
        arrays.copy_real(staged.view(self.dtype).reshape(out.shape), out)

    def _read_bytes(self, file, target):
        """Fill a memoryview of bytes; a read may bring fewer than were requested."""
        done = 0
        while done < len(target):
            count = file.readinto(target[done:])
            if not count:
                raise ValueError(f"{self.path} ends too early: it was cut short while it was in use")
            done += count


def open_npy(path, name):
    """Return a path, checked to be a whole .npy file of real numbers, as an NpyFile; `name` is the argument's."""
    with name_file_in_errors(path), open(path, "rb") as file:
        try:
            shape, by_columns, dtype = _header(file)
        except ValueError as error:
            raise ValueError(f"{name}: {path} is not a .npy file that can be read ({error})") from error
        state = FileState.of(file, path, file.tell())
    arrays.check_dtype(dtype, f"{name} ({path})")
    if not shape:
        raise ValueError(f"{name}: {path} holds a single number, not rows of them")
    available, needed = state.stamp[0] - state.offset, prod(shape) * dtype.itemsize
    if available < needed:
        raise ValueError(f"{name}: {path} is cut short: shape {shape} takes {needed} bytes, the file has {available}")
    by_columns = by_columns and len(shape) > 1
    return NpyFile(path, os.path.abspath(path), dtype, shape, by_columns, state)


def _header(file):
    """Return (shape, whether by columns, dtype) and leave the file at the first number; ValueError if it is damaged.

    numpy's own reader raises errors of many kinds, and suggests unpickling files that it cannot read.
    """
    version = npy.read_magic(file)
    if version not in HEADER_LENGTH_BYTES:
        raise ValueError(f"format version {version} is not known")
    length = int.from_bytes(_exactly(file, HEADER_LENGTH_BYTES[version]), "little")
    if length > MAX_HEADER_BYTES:
        raise ValueError(f"it says that its header has {length} bytes")
    text = _exactly(file, length).decode("utf-8" if version == (3, 0) else "latin1")
    text = re.sub(r"(?<=[0-9])L\b", "", text)  # long integers, as Python 2 wrote them
    try:
        header = ast.literal_eval(text.strip())
    except (ValueError, TypeError, SyntaxError, MemoryError, RecursionError):  # all that it raises
        raise ValueError("its header cannot be read") from None
    if not isinstance(header, dict) or header.keys() != HEADER_FIELDS:
        raise ValueError("its header does not say shape, order and dtype")
    shape, by_columns = header["shape"], header["fortran_order"]
    if not isinstance(shape, tuple) or not all(type(n) is int and n >= 0 for n in shape):
        raise ValueError(f"its header says shape {shape!r}")
    if not isinstance(by_columns, bool):
        raise ValueError(f"its header says fortran_order {by_columns!r}")
    return shape, by_columns, _dtype(header["descr"])


def _exactly(file, count):
    """Return the next `count` bytes of a file."""
    data = file.read(count)
    if len(data) < count:
        raise ValueError("it ends within its header")
    return data


def _dtype(described):
    """Return the dtype that a header describes; ValueError for one with fields or parts."""
    message = f"its header says dtype {described!r}, which is not one of real numbers"
    if not isinstance(described, str) or not DTYPE_PATTERN.fullmatch(described):
        raise ValueError(message)
    try:
        return np.dtype(described)
    except (TypeError, ValueError):  # there is none of that size
        raise ValueError(message) from None
