"""Which reader a file needs: by the end of its name, or else by its first bytes."""

import os
from pathlib import Path

from cavity.base import arrays
from cavity.blocks.npy import open_npy

OPENERS = {".npy": open_npy}


def is_stored(data):
    """Whether data are a path or a list of paths."""
    return _paths(data, "") is not None


def is_file_name(value):
    """Whether a value is a path, or a string that ends like one of a file that can be read, or a list of these."""
    first = value[0] if isinstance(value, list | tuple) and value else value
    return isinstance(first, os.PathLike) or (isinstance(first, str) and first.lower().endswith(tuple(OPENERS)))


def open_stored(data, name):
    """Return what is in files as parts of a source that fit together; None for data of another kind."""
    paths = _paths(data, name)
    if paths is None:
        return None
    parts = [OPENERS.get(Path(path).suffix.lower(), open_npy)(path, name) for path in paths]
    _check_files(parts, name)
    return parts


def _paths(data, name):
    """Return the paths in a path or a list of paths, None for data of another kind."""
    if isinstance(data, str | os.PathLike):
        return [data]
    if not (isinstance(data, list | tuple) and data and isinstance(data[0], str | os.PathLike)):
        return None
    other = next((each for each in data if not isinstance(each, str | os.PathLike)), None)
    if other is not None:
        raise TypeError(f"{name} must hold paths of files only if it holds one, got {type(other).__name__} too")
    return list(data)


def _check_files(files, name):
    """Raise ValueError unless files follow each other to one array that is not empty."""
    first = files[0]
    for file in files:
        if file.shape[1:] != first.shape[1:]:
            raise ValueError(
                f"{name} must have rows of one width, got shape {first.shape} in {first.path} "
                f"and {file.shape} in {file.path}"
            )
    total = (sum(file.shape[0] for file in files), *first.shape[1:])
    arrays.check_not_empty(total, f"{name} ({first.path})")
