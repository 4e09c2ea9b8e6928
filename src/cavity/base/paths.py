"""Paths of files: where one is written, symbolic links followed, and how a regular one is opened to be read."""

import os
import stat
from pathlib import Path

# of the tables that are read
PARQUET_SUFFIXES = ".parquet", ".pq"
TABLE_SUFFIXES = ".arrow", ".csv", ".feather", ".gz", ".h5", ".hdf5", ".npy", ".parquet", ".pq", ".tsv", ".txt", ".zarr"


def decode_path(path, name="path"):
    """Return a path that is not empty as a string; TypeError for anything else, as a number that `open` would take.

    Parameters
    ----------
    path : str, bytes or path-like
        The path.
    name : str
        What the argument is called, for the message.

    Returns
    -------
    str
        Bytes decoded as the file system does.
    """
    if not isinstance(path, str | bytes | os.PathLike):
        raise TypeError(f"{name} must be the path of a file, got {type(path).__name__}")
    if not os.fsdecode(path):
        raise ValueError(f"{name} must be the path of a file, got an empty string")
    return os.fsdecode(path)


def check_regular(mode, path, prefix=""):
    """Raise IsADirectoryError for the mode of a folder, ValueError for that of a device, a pipe or a socket.

    Parameters
    ----------
    mode : int
        As `os.stat` returns it.
    path : path-like
        What it is the mode of, for messages, which begin with `prefix`.
    """
    if stat.S_ISDIR(mode):
        raise IsADirectoryError(f"{prefix}{path} is a folder, not a file")
    if not stat.S_ISREG(mode):
        raise ValueError(f"{prefix}{path} is a device, a pipe or a socket, not a regular file; give the path of a file")


def resolve_output(path, prefix=""):
    """Return the file that is written under a path: the target of symbolic links, whether it exists or not.

    Parameters
    ----------
    path : str, bytes or path-like
        What the user gave.
    prefix : str
        What messages begin with.

    Returns
    -------
    Path
        Absolute, without symbolic links.

    Raises
    ------
    TypeError
        For what is no path.
    FileNotFoundError, IsADirectoryError
        If there is no folder to write it to, or it is one.
    OSError
        If symbolic links lead in a circle.
    ValueError
        If it is a device, a pipe or a socket, which a rename would remove.
    """
    text = decode_path(path)
    target = Path(os.path.realpath(text))
    try:
        check_regular(os.stat(text).st_mode, text, prefix)
    except (FileNotFoundError, NotADirectoryError):  # not there yet, or its folder is not
        if not target.parent.is_dir():
            raise FileNotFoundError(f"{prefix}{text}: the folder {target.parent} does not exist") from None
    return target


def check_not_table(path, prefix=""):
    """Raise ValueError for a path whose suffix is that of tables: posteriors and checkpoints are archives.

    Parameters
    ----------
    path : str, bytes or path-like
        Where an archive is to be written.
    prefix : str
        What the message begins with.
    """
    if decode_path(path).lower().endswith(TABLE_SUFFIXES):
        raise ValueError(f"{prefix}{path} has the suffix of a table, and would be an .npz archive; call it .npz")


def open_regular(path):
    """Open a regular file to read bytes.

    Parameters
    ----------
    path : str, bytes or path-like
        The file, or a symbolic link to it.

    Returns
    -------
    binary file
        Open for reading, whole.

    Raises
    ------
    TypeError, ValueError, OSError
        For what is no path; a device, a pipe or a socket; a folder, and what cannot be opened.
    """
    text = decode_path(path)
    check_regular(os.stat(text).st_mode, text)  # before it is opened, which waits for the writer of a pipe
    return open(text, "rb", opener=lambda name, flags: os.open(name, flags | getattr(os, "O_NONBLOCK", 0)))
