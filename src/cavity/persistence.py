"""Files: named arrays plus a small JSON header in one .npz, without pickle, written atomically."""

import json
import os
import platform
import re
import secrets
import zipfile
from contextlib import contextmanager, suppress
from functools import cache
from hashlib import blake2b
from importlib import import_module
from pathlib import Path

import numpy as np

from . import __version__
from .errors import naming

FORMAT = 1
HEADER = "header"
LONGEST_PREFIX = 200  # bytes of the name of a temporary file before process and ending; file systems take 255
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


@contextmanager
def whole_file(path):
    """Open a binary file that appears under `path` whole or not at all: a temporary file beside it, fsync, rename.

    On any failure the temporary file is removed and an existing file at `path` is as it was. What a process of this
    host left behind that was killed while it wrote a file of this name is removed.
    """
    path = Path(path)
    if not path.parent.is_dir():
        raise FileNotFoundError(f"{path}: the folder {path.parent} does not exist")
    if path.is_dir():
        raise IsADirectoryError(f"{path} is a folder, not a file")
    prefix = _temporary_prefix(path.name)
    _remove_abandoned(path.parent, prefix)
    temporary = path.with_name(f"{prefix}{os.getpid()}.{secrets.token_hex(4)}.part")
    handle = _create(temporary, path)
    try:
        with naming(path), os.fdopen(handle, "wb") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, path)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise
    _sync_directory(path.parent)


def _create(temporary, path):
    """Return the descriptor of a new file, whose rights the system takes from the umask; errors are about `path`."""
    try:
        return os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | getattr(os, "O_BINARY", 0), 0o666)
    except OSError as error:
        error.filename = str(path)
        raise


def _temporary_prefix(name):
    """Return what the names of temporary files for a file begin with on this host; then comes the process."""
    prefix = f".{name}.{_host()}."
    if len(os.fsencode(prefix)) > LONGEST_PREFIX:
        return f".{blake2b(os.fsencode(prefix), digest_size=16).hexdigest()}."
    return prefix


@cache
def _host():
    """Return a word for where numbers of processes have one meaning: this machine, or a container on it."""
    name = re.sub(r"[^\w-]", "-", platform.node())
    try:
        return f"{name}-{os.stat('/proc/self/ns/pid').st_ino}"
    except OSError:  # a system without such containers
        return name


def _remove_abandoned(folder, prefix):
    """Remove temporary files with that prefix of processes that have ended."""
    if os.name != "posix":  # to ask for a process there is to end it
        return
    ours = re.compile(rf"{re.escape(prefix)}([0-9]+)\.[0-9a-f]{{8}}\.part")
    with suppress(OSError):  # what cannot be seen or removed is no reason not to save
        with os.scandir(folder) as entries:
            found = [match for entry in entries if (match := ours.fullmatch(entry.name))]
        for match in found:
            if _has_ended(int(match[1])):
                os.unlink(folder / match[0])


def _has_ended(process):
    """Whether there is no process of that number."""
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return True
    except (OSError, OverflowError):  # somebody else's, or no such number
        return False
    return False


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
        If the file is not one of ours, damaged, or from a newer format; the message names it.
    """
    try:
        with open(path, "rb") as stream, np.load(stream, allow_pickle=False) as file:
            arrays = {name: file[name] for name in file.files}
        header = json.loads(bytes(arrays.pop(HEADER)).decode())
        kind, settings, version = header["kind"], header["settings"], header["format"]
    except (ValueError, KeyError, TypeError, EOFError, AttributeError, zipfile.BadZipFile) as error:
        raise ValueError(f"{path} is not a file written by cavity, or it is damaged ({error})") from error
    if version > FORMAT or kind not in KINDS:
        raise ValueError(f"{path} holds a {kind!r} in format {version}; this version reads up to format {FORMAT}")
    module, name = KINDS[kind]
    return getattr(import_module(f".{module}", __package__), name).from_arrays(arrays, settings)


def _sync_directory(path):
    """Make the rename durable, where directories can be opened."""
    if os.name == "posix":
        handle = os.open(path, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)
