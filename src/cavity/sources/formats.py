"""What is in files and other places that are no memory: which reader it needs, and what to do about other formats."""

import glob
import os
from itertools import islice
from pathlib import Path

from cavity.base import arrays, frames
from cavity.sources import arrow
from cavity.sources.chunked_arrays import ChunkedArrayRows
from cavity.sources.npy import open_npy
from cavity.sources.source_parts import SparseRows
from cavity.sources.text_rows import open_text


def open_store(path, name):
    """Return the one array of an HDF5 file or a zarr store as a part."""
    part = ChunkedArrayRows(open_only_array(path, name), name)
    part.path = path
    return part


OPENER_OF_SUFFIX = {
    ".npy": open_npy,
    ".parquet": arrow.open_parquet,
    ".pq": arrow.open_parquet,
    ".arrow": arrow.open_ipc,
    ".feather": arrow.open_ipc,
    **dict.fromkeys((".h5", ".hdf5", ".zarr"), open_store),
    **{f"{suffix}{packed}": open_text for suffix in (".csv", ".tsv", ".txt") for packed in ("", ".gz")},
}
OPENER_OF_FIRST_BYTES = {b"\x93NUMPY": open_npy, b"PAR1": arrow.open_parquet, b"ARROW1": arrow.open_ipc}
MOST_IN_FOLDER = 100_000  # files and folders, whose names take a second to list; file systems have millions
READABLE_SUFFIXES = ".npy, .parquet, .arrow, .feather, .csv, .tsv, .txt, .h5, .zarr"
PANDAS_ADVICE = "pandas.{}({!r}).to_parquet('data.parquet') makes a Parquet file of it"
UNREAD_FORMATS = {  # formats that are not read: what they are called, and what makes something of them that is
    **dict.fromkeys((".xlsx", ".xls"), ("an Excel workbook", PANDAS_ADVICE.format("read_excel", "{}"))),
    ".ods": ("a spreadsheet", PANDAS_ADVICE.format("read_excel", "{}")),
    ".json": ("JSON", PANDAS_ADVICE.format("read_json", "{}")),
    ".jsonl": ("lines of JSON", "pandas.read_json({!r}, lines=True).to_parquet('data.parquet') makes Parquet of it"),
    ".orc": ("an ORC file", "give pyarrow.dataset.dataset({!r}, format='orc')"),
    **dict.fromkeys((".sas7bdat", ".xpt"), ("a table of SAS", PANDAS_ADVICE.format("read_sas", "{}"))),
    ".dta": ("a table of Stata", PANDAS_ADVICE.format("read_stata", "{}")),
    ".sav": ("a table of SPSS", PANDAS_ADVICE.format("read_spss", "{}")),
    ".rds": ("an object of R", "arrow::write_parquet(readRDS({!r}), 'data.parquet') in R makes a Parquet file of it"),
    ".rdata": ("a workspace of R", "load it in R and write a data frame with arrow::write_parquet"),
    ".mat": ("a file of Matlab", "save one of the arrays of scipy.io.loadmat({!r}) with numpy.save"),
    ".npz": ("an archive of arrays", "save one of the arrays of numpy.load({!r}) with numpy.save"),
    **dict.fromkeys((".pkl", ".pickle"), ("a pickle", "load it, and give the array or the data frame")),
    ".db": ("a database", "pandas.read_sql of a query, and its to_parquet, make a Parquet file of it"),
    ".sqlite": ("a database", "pandas.read_sql of a query, and its to_parquet, make a Parquet file of it"),
    ".zip": ("an archive", "unpack it"),
    ".gz": ("a compressed file", "unpack it"),
}
UNREAD_FOLDERS = {  # what is in folders that are no heap of files
    "_delta_log": ("a Delta table", "give deltalake.DeltaTable({!r}).to_pyarrow_dataset()"),
}
ZARR_STORE_FILES = "zarr.json", ".zarray", ".zgroup"  # one of them is in the folder of a zarr store


def is_unopened(data):
    """Whether data are to be opened: a path or several, a dataset of pyarrow, what dask has, arrays not in memory."""
    return _has_paths(data) or hasattr(data, "get_fragments") or is_collection(data) or arrays.is_sliced(data)


def is_collection(data):
    """Whether data are a collection of dask, of any kind."""
    return type(data).__module__.partition(".")[0] == "dask" and hasattr(data, "__dask_graph__")


def is_file_name(value):
    """Whether a value is a path, or a string that ends like one of a file that can be read, or a list of these."""
    first = value[0] if isinstance(value, list | tuple) and value else value
    return isinstance(first, os.PathLike) or (
        isinstance(first, str) and first.lower().endswith(tuple(OPENER_OF_SUFFIX))
    )


def open_stored(data, name):
    """Return what is in files, sparse, or sliced as parts of a source that fit together; None for other data."""
    if is_collection(data):
        from cavity.sources.dask_collections import open_collection

        return [open_collection(data, name)]
    if hasattr(data, "get_fragments"):
        return arrow.open_dataset(data, name)
    if hasattr(data, "keys") and hasattr(data, "attrs") and not hasattr(data, "iloc"):
        members = frames.join_names(sorted(data.keys()))
        message = f"must be an array, got a {type(data).__name__} that holds {members}; give one"
        raise arrays.error_of(name, message, TypeError)
    if type(data).__name__ in ("Dataset", "Empty") and getattr(data, "shape", ()) is None:
        raise arrays.error_of(name, "must not be empty, got an HDF5 dataset without a shape (h5py.Empty)")
    if hasattr(data, "tocsr") or arrays.is_sliced(data):
        arrays.check_not_empty(data.shape, name)
        return [SparseRows(data, name) if hasattr(data, "tocsr") else ChunkedArrayRows(data, name)]
    paths = _paths(data, name)
    if paths is None:
        return None
    parts = [open_file(file, name) for path in paths for file in _files(os.fsdecode(path), name)]
    return _fitting(parts, name)


def open_texts(data, name, **settings):
    """Return text files as parts of a source that fit together, read as the settings of `open_text` say."""
    paths = _paths(data, name)
    files = [file for path in paths or () for file in _files(os.fsdecode(path), name)]
    other = next((file for file in files if _opener(file) not in (None, open_text)), None)
    if paths is None or other is not None:
        kind = type(data).__name__ if paths is None else other
        raise ValueError(f"{name}: separator, decimal and encoding are for text files, got {kind}")
    return _fitting([open_text(file, name, **settings) for file in files], name)


def open_file(path, name):
    """Return a file as a part, read as the end of its name says, or else its first bytes."""
    if is_store(path):
        return open_store(path, name)
    if not Path(path).is_file():
        raise ValueError(f"{name}: {path} is not a file")
    opener = _opener(path)
    if opener is None:
        check_known(path, name)
        with open(path, "rb") as file:
            first = file.read(8)
        opener = next((OPENER_OF_FIRST_BYTES[head] for head in OPENER_OF_FIRST_BYTES if first.startswith(head)), None)
    if opener is None:
        ending = Path(path).suffix or "a name without an ending"
        raise ValueError(f"{name}: {path} ({ending}) is not of a format that is read; these are: {READABLE_SUFFIXES}")
    return opener(path, name)


def is_store(path):
    """Whether a path is the folder of a zarr store."""
    return any(Path(path, file).exists() for file in ZARR_STORE_FILES)


def open_only_array(path, name):
    """Return the array of an HDF5 file or a zarr store, which must hold one only, opened to be read.

    Raises
    ------
    ValueError
        If it cannot be read, or naming what it holds if that is not one array.
    ImportError
        If h5py or zarr is not installed.
    """
    library = "h5py" if Path(path).is_file() else "zarr"
    try:
        if library == "h5py":
            from h5py import File as open_store
        else:
            from zarr import open as open_store
    except ImportError as error:
        raise ImportError(f"{name}: {path} needs {library}, which is not installed; pip install {library}") from error
    try:
        store = open_store(path, mode="r")
    except (OSError, ValueError, LookupError, TypeError) as error:  # of damaged files, whatever the library meets first
        raise ValueError(f"{name}: {path} cannot be read by {library} ({error})") from error
    members = {member: store[member] for member in sorted(store)} if hasattr(store, "keys") else {"": store}
    if len(members) != 1 or not arrays.is_sliced(only := next(iter(members.values()))):
        expression = "h5py.File({!r})['name']" if library == "h5py" else "zarr.open({!r}, mode='r')['name']"
        raise ValueError(
            f"{name}: {path} holds {frames.join_names([*members])}, not one array; give {expression.format(path)}"
        )
    return only


def _opener(path):
    """Return what opens a file whose name ends like this, None for another one."""
    return next((opener for suffix, opener in OPENER_OF_SUFFIX.items() if str(path).lower().endswith(suffix)), None)


def check_known(path, name):
    """Raise ValueError for a path of a format that is not read, with what it is and what to do."""
    inside = next((UNREAD_FOLDERS[folder] for folder in UNREAD_FOLDERS if Path(path, folder).exists()), (None, ""))
    content, cure = UNREAD_FORMATS.get(Path(path).suffix.lower(), inside)
    if content is not None:
        raise ValueError(f"{name}: {path} is {content}, which is not read; {cure.format(str(path))}")


def _has_paths(data):
    """Whether data are a path, or a list that begins with one."""
    first = data[0] if isinstance(data, list | tuple) and data else data
    return isinstance(first, str | os.PathLike)


def _paths(data, name):
    """Return the paths in a path or a list of paths, None for data of another kind."""
    if not _has_paths(data):
        return None
    if isinstance(data, str | os.PathLike):
        return [data]
    other = next((item for item in data if not isinstance(item, str | os.PathLike)), None)
    if other is not None:
        raise TypeError(f"{name} must hold paths of files only if it holds one, got {type(other).__name__} too")
    return list(data)


def _files(path, name):
    """Return the files that a path stands for: itself, those of a folder, or those that match a pattern, by name."""
    if Path(path).is_dir() and not is_store(path):
        return _in_folder(path, name)
    if Path(path).exists():
        return [path]
    paths = sorted(glob.glob(path, recursive=True)) if glob.has_magic(path) else []
    if not paths:
        hint = f"; for other places give pyarrow.dataset.dataset({path!r})" if "://" in path else ""
        problem = "no file is called like" if glob.has_magic(path) else "there is no file"
        problem = "a symbolic link leads nowhere or in a circle:" if os.path.islink(path) else problem
        raise FileNotFoundError(
            f"{name} must be real numbers or the path of a .csv, .npy, Parquet or other file; {problem} {path!r}{hint}"
        )
    return paths


def _in_folder(folder, name):
    """Return the files of a folder and of those in it, by name, but hidden ones, whose names begin with . or _."""
    check_known(folder, name)
    entries = [*islice(_visible(folder), MOST_IN_FOLDER + 1)]
    if len(entries) > MOST_IN_FOLDER:
        fault = f"{name}: {folder} has more than {MOST_IN_FOLDER} files and folders in it"
        raise ValueError(f"{fault}; give the folder of the files, a pattern as 'folder/*.parquet', or a list of paths")
    split = next((entry for entry in entries if "=" in entry.name and entry.is_dir()), None)
    if split is not None:
        raise ValueError(
            f"{name}: {folder} has a column in the names of folders ({split.name!r}); give "
            f"pyarrow.dataset.dataset({folder!r}, partitioning='hive')"
        )
    files = sorted(str(entry) for entry in entries if _opener(entry) and entry.is_file())
    kinds = {_opener(file) for file in files}
    if len(kinds) != 1:
        content = "files of several formats" if kinds else f"no file that can be read ({READABLE_SUFFIXES})"
        raise ValueError(f"{name}: {folder} is not a file, and has {content} in it")
    return files


def _visible(folder):
    """Yield what is in a folder and in those in it, but hidden ones, folder by folder; links to folders end there."""
    for parent, folders, files in os.walk(folder):
        folders[:] = [folder_name for folder_name in folders if not folder_name.startswith((".", "_"))]
        yield from (Path(parent, entry) for entry in (*folders, *files) if not entry.startswith((".", "_")))


def _fitting(files, name):
    """Return files that follow each other to one array or table that is not empty, their columns in one order."""
    first = files[0]
    bare = next((file for file in files if file.columns is None), None)
    with_columns = next((file for file in files if file.columns is not None), None)
    if bare and with_columns:
        raise ValueError(f"{name}: {bare.path} has no names of columns, and {with_columns.path} has")
    if with_columns:
        files = [_in_order(file, first, name) for file in files]
    for file in files:
        if file.shape[1:] != first.shape[1:]:
            raise ValueError(
                f"{name} must have rows of one width, got shape {first.shape} in {first.path} "
                f"and {file.shape} in {file.path}"
            )
    total = (sum(file.shape[0] for file in files), *first.shape[1:])
    arrays.check_not_empty(total, f"{name} ({first.path})")
    return files


def _in_order(file, first, name):
    """Return a file with its columns in the order of the first one; ValueError if there are others."""
    if file.columns == first.columns:
        return file
    positions, first_columns = {column: j for j, column in enumerate(file.columns)}, set(first.columns)
    missing = [column for column in first.columns if column not in positions]
    more = [column for column in file.columns if column not in first_columns]
    if missing or more:
        names = frames.join_names(missing or more)
        message = f"has no column {names}" if missing else f"has the column {names} too"
        first_columns = frames.join_names(first.columns)
        raise ValueError(f"{name}: {file.path} {message}; the columns of {first.path} are {first_columns}")
    return file.select_columns([positions[column] for column in first.columns])
