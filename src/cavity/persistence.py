"""Files: named arrays plus a small JSON header in one .npz, without pickle, written atomically."""

import json
import os
import tempfile
import zipfile
from contextlib import contextmanager
from importlib import import_module
from pathlib import Path

import numpy as np

from . import __version__

FORMAT = 1
HEADER = "header"
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
