"""Files: named arrays plus a small JSON header in one .npz, without pickle, written atomically."""

import errno
import json
import os
import platform
import re
import secrets
import struct
import sys
import zipfile
from contextlib import contextmanager, suppress
from functools import cache
from hashlib import blake2b
from math import prod

import numpy as np

from cavity import __version__
from cavity.base import records
from cavity.base.build_description import describe_build
from cavity.base.errors import name_file_in_errors
from cavity.base.paths import check_not_table, open_regular, resolve_output

FILE_FORMAT_VERSION = 2  # 2 may have names of columns, and what a GLM needs of them
HEADER_NAME = "header"
MAX_PREFIX_BYTES = 200  # bytes of the name of a temporary file before process and ending; file systems take 255
HEADER_FORM = {
    "kind": records.ANY_TEXT,
    "format": records.integer(1),
    "cavity": records.ANY_TEXT,
    "build?": records.ANY_TEXT,  # the process that wrote it: what decides the last bits
    "arrays?": records.names(),  # a damaged directory can leave some out; format 1 did not list them
    "settings": records.JSON_OBJECT,
}
NPY_MAGIC_BYTES = b"\x93NUMPY\x01\x00"  # of arrays whose headers are short, as ours are
NPY_HEADER = re.compile(
    rb"\{'descr': '([<>|](?:[fiub][1248]|U[1-9]\d{0,9}))', 'fortran_order': (True|False), "
    rb"'shape': \(((?:\d{1,19}(?:, \d{1,19})*,?)?)\), \} *\n"
)
MAX_ARCHIVE_END_BYTES = 22 + (1 << 16)  # of the end of an archive, with the longest comment
ENCRYPTED_FLAG_BIT = 0x1  # bit of a flag in the archive
BYTES_PER_READ = 1 << 20  # bytes read at a time
MAX_DIRECTORY_BYTES = 1 << 20  # of the directory of an archive: some ten thousand arrays
MAX_HEADER_BYTES = 1 << 26  # of the header, which has the names of columns and levels
MAX_NAMES_SHOWN = 8  # of arrays, in a message
MAX_EMPTY_AXIS_LENGTH = (
    1 << 20
)  # length of an axis of an array without entries, which a small file could set to anything
DAMAGED_FILE_ERRORS = (  # what reading and decoding raise where the bytes are not as they were written
    *(ValueError, TypeError, LookupError, ArithmeticError, EOFError, RuntimeError),
    *(struct.error, zipfile.BadZipFile),
)


@contextmanager
def open_whole_file(path):
    """Open a binary file that appears under `path` whole or not at all: a temporary file beside it, fsync, rename.

    Symbolic links are followed: the file that they lead to is replaced, and they stay. On any failure the temporary
    file is removed and an existing file at `path` is as it was. What a process of this host left behind that was killed
    while it wrote a file of this name is removed. Errors are those of `resolve_output`.
    """
    target = resolve_output(path)
    _remove_abandoned(target.parent, _temporary_prefix(target.name))
    temporary, handle = _create_beside(target, path)
    try:
        with name_file_in_errors(path), os.fdopen(handle, "wb") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, target)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise
    _sync_directory(target.parent)


def check_output(path, prefix="", *, archive=False):
    """Check, before any work, that `open_whole_file` can write a path: a temporary file is made beside it and removed.

    Parameters
    ----------
    path : str, bytes or path-like
        The file, which need not exist.
    prefix : str
        What messages begin with.
    archive : bool, default False
        Whether a posterior or a checkpoint is written, which must not be called as tables are.

    Raises
    ------
    TypeError, ValueError, OSError
        As `resolve_output` and `check_not_table`, and if the folder cannot be written to.
    """
    if archive:
        check_not_table(path, prefix)
    target = resolve_output(path, prefix)
    temporary, handle = _create_beside(target, path)
    os.close(handle)
    temporary.unlink()


def _create_beside(target, path):
    """Return a new file beside another and its descriptor; rights are those of the umask, errors are about `path`."""
    temporary = target.with_name(f"{_temporary_prefix(target.name)}{os.getpid()}.{secrets.token_hex(4)}.part")
    try:
        return temporary, os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | getattr(os, "O_BINARY", 0), 0o666)
    except OSError as error:
        error.filename = str(path)
        raise


def _temporary_prefix(name):
    """Return what the names of temporary files for a file begin with on this host; then comes the process."""
    prefix = f".{name}.{get_host_name()}."
    if len(os.fsencode(prefix)) > MAX_PREFIX_BYTES:
        return f".{blake2b(os.fsencode(prefix), digest_size=16).hexdigest()}."
    return prefix


@cache
def get_host_name():
    """Return a word for where numbers of processes have one meaning: this machine, or a container on it.

    Returns
    -------
    str
        Of letters, digits, underscores and hyphens.
    """
    name = re.sub(r"[^\w-]", "-", platform.node())
    try:
        return f"{name}-{os.stat('/proc/self/ns/pid').st_ino}"
    except OSError:  # a system without such containers
        return name


def _remove_abandoned(folder, prefix):
    """Remove temporary files with that prefix of processes that have ended."""
    ours = re.compile(rf"{re.escape(prefix)}([0-9]+)\.[0-9a-f]{{8}}\.part")
    with suppress(OSError):  # what cannot be seen or removed is no reason not to save
        with os.scandir(folder) as entries:
            matches = [match for entry in entries if (match := ours.fullmatch(entry.name))]
        for match in matches:
            if has_ended(int(match[1])):
                os.unlink(folder / match[0])


def has_ended(process):
    """Return whether there is no process of that number on this host; False where that cannot be found out.

    Parameters
    ----------
    process : int
        Its number.

    Returns
    -------
    bool
        True if it is certain.
    """
    if os.name != "posix":  # os.kill would end the process there
        return False
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return True
    except (OSError, OverflowError):  # a process of another user, or no such number
        return False
    return False


def write(path, kind, arrays, settings):
    """Write arrays and settings to `path`, whole or not at all; ValueError where its suffix is that of tables."""
    check_not_table(path)
    header_fields = {"kind": kind, "format": FILE_FORMAT_VERSION, "cavity": __version__, "build": describe_build()}
    header_fields |= {"arrays": [*arrays], "settings": settings}
    header = json.dumps(header_fields)
    with open_whole_file(path) as file:
        np.savez(file, **{HEADER_NAME: np.frombuffer(header.encode(), dtype=np.uint8)}, **arrays)


def read(path, kinds, left=()):
    """Return (kind, arrays, settings) of a file that `write` wrote, their contents not yet checked.

    Parameters
    ----------
    path : path-like
        The file.
    kinds : collection of str
        The kinds that are read.
    left : dict of str
        Kinds that are not read, and what to do about each, in words.

    Raises
    ------
    TypeError
        For what is no path.
    ValueError
        If it is no regular file, not one of ours, damaged, of none of the kinds, or of a newer format; the message
        names it.
    """
    header, arrays = read_with_header(path, kinds, left)
    return header["kind"], arrays, header["settings"]


def read_with_header(path, kinds, left=()):
    """Return (header, arrays) of a file as `read` does; the header has the kind, what wrote the file, and settings."""
    with open_regular(path) as file:
        try:
            header, arrays = _read(file, kinds)
        except DAMAGED_FILE_ERRORS as error:
            raise ValueError(f"{path} is not a file written by cavity, or it is damaged ({error})") from error
    kind, version = header.get("kind"), header["format"]
    if arrays is None and kind in [*left]:  # of a newer format it may be anything
        raise ValueError(f"{path} holds a {kind!r}; {left[kind]}")
    if arrays is None and version <= FILE_FORMAT_VERSION:
        raise ValueError(f"{path} holds a {kind!r}, not one of: {', '.join(kinds)}")
    if arrays is None:
        raise ValueError(
            f"{path} holds a {kind!r} in format {version}; this version reads up to format {FILE_FORMAT_VERSION}"
        )
    return header, arrays


def _read(file, kinds):
    """Return the header and the arrays of an open .npz as `write` writes it; no arrays of an unknown kind or format.

    Nothing larger than the file is made.
    """
    size = os.fstat(file.fileno()).st_size
    _check_directory(file, size)
    try:
        with zipfile.ZipFile(file) as archive:
            parts = _list_parts(archive, size)
            if HEADER_NAME not in parts:
                raise ValueError("it has no header")
            header = _read_header(_read_array(archive, HEADER_NAME, parts.pop(HEADER_NAME), size), parts)
            if header["format"] > FILE_FORMAT_VERSION or header["kind"] not in kinds:
                return header, None
            return header, {name: _read_array(archive, name, part, size) for name, part in parts.items()}
    except OSError as error:
        if error.errno not in (None, errno.EINVAL):  # of a place that no file has
            raise
        raise ValueError(f"{error}") from error


def _check_directory(file, size):
    """Raise ValueError for an archive whose directory is larger than that of any file of ours, before it is read."""
    file.seek(max(0, size - MAX_ARCHIVE_END_BYTES))
    end = file.read(MAX_ARCHIVE_END_BYTES)
    for mark, low, high in ((b"PK\5\6", 12, 16), (b"PK\6\6", 40, 48)):  # of ZIP, and of ZIP64, which counts if there
        at = end.rfind(mark)
        if at >= 0 and int.from_bytes(end[at + low : at + high], "little") > MAX_DIRECTORY_BYTES:
            raise ValueError(f"its directory has more than {MAX_DIRECTORY_BYTES} bytes")
    file.seek(0)


def _list_parts(archive, size):
    """Return what an archive of that many bytes holds, by names of arrays."""
    parts = {}
    for part in archive.infolist():
        name = part.filename.removesuffix(".npy")
        if name in parts:
            raise ValueError(f"array {name!r} is there twice")
        parts[name] = part
    if sum(part.file_size for part in parts.values()) > size:
        raise ValueError("its arrays are larger than it is")
    return parts


def _read_header(raw, parts):
    """Return the header, as it is if it is of a newer format, which may have changed all."""
    if raw.nbytes > MAX_HEADER_BYTES:
        raise ValueError(f"its header has {raw.nbytes} bytes, more than {MAX_HEADER_BYTES}")
    header = json.loads(raw.tobytes().decode()) if raw.dtype == np.uint8 else None
    if not isinstance(header, dict):
        raise ValueError("its header is not an object")
    version = header.get("format")
    if isinstance(version, int) and version > FILE_FORMAT_VERSION:
        return header
    header = records.check_settings(HEADER_FORM, header)
    missing = sorted({*header.get("arrays", parts)} ^ {*parts})
    if missing:
        more = f" and {len(missing) - MAX_NAMES_SHOWN} more" * (len(missing) > MAX_NAMES_SHOWN)
        missing_names = f"{', '.join(map(repr, missing[:MAX_NAMES_SHOWN]))}{more}"
        raise ValueError(f"its header and its directory do not have the same arrays: {missing_names}")
    return header


def _read_array(archive, name, part, size):
    """Return an array of an archive of so many bytes, whose header must be as numpy writes it, and true of the data."""
    try:
        plain = part.compress_type == zipfile.ZIP_STORED and part.file_size == part.compress_size
        if not plain or part.flag_bits & ENCRYPTED_FLAG_BIT:
            raise ValueError("it is compressed or encrypted, which files written by cavity are not")
        with archive.open(part) as stream:
            start = stream.read(len(NPY_MAGIC_BYTES) + 2)
            header = stream.read(int.from_bytes(start[len(NPY_MAGIC_BYTES) :], "little"))
            described = NPY_HEADER.fullmatch(header) if start.startswith(NPY_MAGIC_BYTES) else None
            if described is None:
                raise ValueError("its header is not that of an array of numbers")
            code, shape = described[1].decode(), tuple(int(n) for n in described[3].split(b",") if n.strip())
            n_bytes = part.file_size - len(start) - len(header)
            width = int(code[2:]) * (4 if code[1] == "U" else 1)
            if prod(shape) * width != n_bytes or max(shape, default=0) > max(size, MAX_EMPTY_AXIS_LENGTH):
                raise ValueError(f"its header says shape {shape} of {code}, which is not what there is")
            content = _read_bytes(stream, n_bytes)
        if code[1] == "b" and np.any(content > 1):
            raise ValueError("a boolean must be 0 or 1")
        if code[1] == "U" and np.any(content.view(f"{code[0]}u4") > sys.maxunicode):
            raise ValueError("a character must be one")
        return content.view(code).reshape(shape, order="F" if described[2] == b"True" else "C")
    except DAMAGED_FILE_ERRORS as error:
        raise ValueError(f"array {name!r}: {error}") from error


def _read_bytes(stream, n_bytes):
    """Return all bytes that a stream has left, of which there must be so many."""
    content = np.empty(n_bytes, dtype=np.uint8)
    for low in range(0, n_bytes, BYTES_PER_READ):
        part = content[low : low + BYTES_PER_READ]
        piece = stream.read(len(part))
        if len(piece) < len(part):
            raise EOFError("it ends too early")
        part[:] = np.frombuffer(piece, dtype=np.uint8)
    if stream.read(1):  # at the end the checksum is compared
        raise ValueError("it is longer than it should be")
    return content


def _sync_directory(path):
    """Make the rename durable, where directories can be opened."""
    if os.name == "posix":
        handle = os.open(path, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)
