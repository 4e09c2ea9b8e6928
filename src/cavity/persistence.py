"""Files: named arrays plus a small JSON header in one .npz, without pickle, written atomically."""

import errno
import json
import os
import re
import struct
import tempfile
import zipfile
from contextlib import contextmanager
from importlib import import_module
from math import prod
from pathlib import Path

import numpy as np

from . import __version__, _records

FORMAT = 2  # 2 may have names of columns, and what a GLM needs to know of them
HEADER = "header"
HEADERS = {"kind": _records.TEXT, "format": _records.integer(1), "cavity": _records.TEXT, "settings": _records.TABLE}
KINDS = {
    "clutter": ("clutter", "ClutterPosterior"),
    "factorized": ("factorized", "FactorizedGaussianPosterior"),
    "gaussian_mixture": ("_mixture_posterior", "GaussianMixturePosterior"),
    "gaussian_process": ("_gp_posterior", "GaussianProcessPosterior"),
    "glm": ("glm", "GLMPosterior"),
    "linear_regression": ("linear_regression", "LinearRegressionPosterior"),
    "logistic_regression": ("logistic_regression", "LogisticRegressionPosterior"),
    "streaming_gp": ("_streaming_state", "StreamingGPState"),
    "univariate_gaussian": ("univariate_gaussian", "UnivariateGaussianPosterior"),
    "mean_field": ("mean_field", "MeanFieldPosterior"),
    "unit_mixture": ("unit_mixture", "UnitMixturePosterior"),
}
MAGIC = b"\x93NUMPY\x01\x00"  # of arrays whose headers are short, as ours are
NPY_HEADER = re.compile(
    rb"\{'descr': '([<>|](?:[fiub][1248]|U[1-9]\d{0,9}))', 'fortran_order': (True|False), "
    rb"'shape': \(((?:\d{1,19}(?:, \d{1,19})*,?)?)\), \} *\n"
)
ENCRYPTED = 0x1  # bit of a flag in the archive
PIECE = 1 << 20  # bytes read at a time
MOST_EMPTY = 1 << 20  # length of an axis of an array without entries, of which a small file could say anything
DAMAGES = (  # what reading and decoding raise where the bytes are not as they were written
    *(ValueError, TypeError, LookupError, ArithmeticError, EOFError, RuntimeError),
    *(struct.error, zipfile.BadZipFile),
)


@contextmanager
def whole_file(path):
    """Open a binary file that appears under `path` whole or not at all: a temporary file beside it, fsync, rename.

    On any failure the temporary file is removed and an existing file at `path` is as it was.
    """
    path = Path(path)
    if not path.parent.is_dir():
        raise FileNotFoundError(f"{path}: the folder {path.parent} does not exist")
    if path.is_dir():
        raise IsADirectoryError(f"{path} is a folder, not a file")
    handle, temporary = tempfile.mkstemp(prefix=f".{path.name}.", suffix=".part", dir=path.parent)
    try:
        with os.fdopen(handle, "wb") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        os.chmod(temporary, 0o666 & ~_umask())
        os.replace(temporary, path)
    except BaseException:
        Path(temporary).unlink(missing_ok=True)
        raise
    _sync_directory(path.parent)


def write(path, kind, arrays, settings):
    """Write arrays and settings to `path`, whole or not at all."""
    header = json.dumps({"kind": kind, "format": FORMAT, "cavity": __version__, "settings": settings})
    with whole_file(path) as file:
        np.savez(file, **{HEADER: np.frombuffer(header.encode(), dtype=np.uint8)}, **arrays)


def load(path):
    """Read a posterior that `save` wrote.

    Parameters
    ----------
    path : str or path-like
        The file.

    Returns
    -------
    posterior
        Of the kind that was saved, equal to it in every bit.

    Raises
    ------
    ValueError
        If the file is not one of ours, damaged, or from a newer format; the message names it, and the part of it.
    """
    try:
        with open(path, "rb") as file:
            arrays = _read(file)
        kind, settings, version = _header(arrays)
    except DAMAGES as error:
        raise ValueError(f"{path} is not a file written by cavity, or it is damaged ({error})") from error
    if version > FORMAT or kind not in KINDS:
        raise ValueError(f"{path} holds a {kind!r} in format {version}; this version reads up to format {FORMAT}")
    module, name = KINDS[kind]
    try:
        return getattr(import_module(f".{module}", __package__), name).from_arrays(arrays, settings)
    except ValueError as error:
        raise ValueError(f"{path} is damaged, or was not written by cavity: {error}") from error


def _read(file):
    """Return the arrays of an open .npz as `np.savez` writes it; nothing larger than the file is made."""
    size, arrays = os.fstat(file.fileno()).st_size, {}
    try:
        with zipfile.ZipFile(file) as archive:
            parts = archive.infolist()
            if sum(part.file_size for part in parts) > size:
                raise ValueError("its parts are larger than it is")
            for part in parts:
                name = part.filename.removesuffix(".npy")
                if name in arrays:
                    raise ValueError(f"array {name!r} is there twice")
                try:
                    arrays[name] = _array(archive, part, max(size, MOST_EMPTY))
                except DAMAGES as error:
                    raise ValueError(f"array {name!r}: {error}") from error
    except OSError as error:
        if error.errno not in (None, errno.EINVAL):  # of a place that no file has
            raise
        raise ValueError(f"{error}") from error
    return arrays


def _array(archive, part, longest):
    """Return one array of an archive, whose header must be as numpy writes it and say what there is."""
    plain = part.compress_type == zipfile.ZIP_STORED and part.file_size == part.compress_size
    if not plain or part.flag_bits & ENCRYPTED:
        raise ValueError("it is compressed or encrypted, which files written by cavity are not")
    with archive.open(part) as stream:
        start = stream.read(len(MAGIC) + 2)
        header = stream.read(int.from_bytes(start[len(MAGIC) :], "little"))
        found = NPY_HEADER.fullmatch(header) if start.startswith(MAGIC) else None
        if found is None:
            raise ValueError("its header is not that of an array of numbers")
        code, columns, axes = found[1].decode(), found[2] == b"True", found[3].decode()
        shape = tuple(int(size) for size in axes.split(",") if size.strip())
        n_bytes = part.file_size - len(start) - len(header)
        width = int(code[2:]) * (4 if code[1] == "U" else 1)
        if prod(shape) * width != n_bytes or max(shape, default=0) > longest:
            raise ValueError(f"its header says shape {shape} of {code}, which is not what there is")
        room = np.empty(n_bytes, dtype=np.uint8)
        for low in range(0, n_bytes, PIECE):
            part_of_it = room[low : low + PIECE]
            piece = stream.read(len(part_of_it))
            if len(piece) < len(part_of_it):
                raise EOFError("it ends too early")
            part_of_it[:] = np.frombuffer(piece, dtype=np.uint8)
        if len(stream.read(1)):  # at the end the checksum is compared
            raise ValueError("it is longer than it should be")
    dtype = np.dtype(code)
    if dtype.kind == "b" and np.any(room > 1):
        raise ValueError("a boolean must be 0 or 1")
    array = room.view(dtype).reshape(shape, order="F" if columns else "C")
    if dtype.kind == "U":
        array.tolist()  # ValueError for what is no character
    return array


def _header(arrays):
    """Return kind, settings and format from the header, which is taken out of the arrays."""
    if HEADER not in arrays:
        raise ValueError("it has no header")
    raw = arrays.pop(HEADER)
    header = json.loads(raw.tobytes().decode())
    if not isinstance(header, dict) or raw.dtype != np.uint8:
        raise ValueError("its header is not an object")
    version = header.get("format")
    if isinstance(version, int) and version > FORMAT:  # which may have changed all but this
        return header.get("kind"), None, version
    header = _records.check_settings(HEADERS, header)
    return header["kind"], header["settings"], header["format"]


def _umask():
    mask = os.umask(0)
    os.umask(mask)
    return mask


def _sync_directory(path):
    """Make the rename durable, where directories can be opened."""
    if os.name == "posix":
        handle = os.open(path, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)
