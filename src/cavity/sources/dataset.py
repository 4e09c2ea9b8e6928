"""The table of a fit or a prediction, opened once: rows of features, columns of arguments, missing values."""

from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from cavity.base import arrays, frames, missing_values
from cavity.base.censoring import make_bounds
from cavity.base.missing_values import MISSING_CHOICES, DroppedRows, complete_rows, join_dropped, take_rows
from cavity.runs.merge import split_rows
from cavity.runs.passes import check_not_remote
from cavity.sources import formats
from cavity.sources.sources import Source, open_source, open_unchecked
from cavity.sources.stored_rows import PickedRows


def take_dataset_rows(dataset, index):
    """Return a dataset with the rows of some numbers; those in files stay there."""
    columns = _read_columns(dataset)
    columns = {name: take_rows(value, index) for name, value in columns.items()}
    return replace(dataset, X=_take_features(dataset.X, index), columns=dataset.columns | columns)


def find_complete_rows(dataset, missing="drop", *, needs_rows=True):
    """Return the numbers of the rows in which X and all columns have a value, and the `DroppedRows`.

    Parameters
    ----------
    dataset : Dataset
        Not remote.
    missing, needs_rows
        As `complete_rows` takes them, which says what is returned.

    Raises
    ------
    ValueError
        For a remote dataset, and for X of more than two dimensions.
    """
    values = dict(_list_features(dataset))
    for argument, column in _read_columns(dataset).items():
        role = (dataset.roles or {}).get(argument, argument)
        name = role if isinstance(role, str) else ", ".join(role)
        values[f"argument {name}" if name in values else name] = column
    return complete_rows(values, missing, dataset.name, needs_rows=needs_rows)


def drop_missing_rows(dataset, *, needs_rows=True):
    """Return a dataset without the rows in which X or a column has no value, which it counts in `dropped`."""
    index, dropped = find_complete_rows(dataset, needs_rows=needs_rows)
    if index is None:
        return dataset
    return replace(take_dataset_rows(dataset, index), dropped=join_dropped(dataset.dropped, dropped))


def _read_columns(dataset):
    """Return the columns of arguments that have a value for each row."""
    columns = {name: dataset.column(name) for name, value in dataset.columns.items() if value is not None}
    return {name: value for name, value in columns.items() if np.ndim(value)}


def _list_features(dataset):
    """Yield the name of a feature, and its values, or a vector that has NaN where they are missing."""
    X = dataset.X
    if isinstance(X, Source):
        if X.is_remote:
            message = f"needs the rows in one process, got {dataset.name} as a collection of dask: use its dropna()"
            raise arrays.error_of("missing", message)
        masks = np.concatenate([np.isnan(X.rows(*span)) for span in split_rows(X.n_rows, X.block_rows)])
    elif frames.is_table(X) and frames.names_of(X) is not None:
        yield from ((name, frames.get_column_at(X, j)) for j, name in enumerate(frames.names_of(X)))
        return
    elif hasattr(X, "tocsr"):
        entries = X.tocoo()
        bad = np.isnan(entries.data)
        masks = np.zeros((X.shape[0], len(columns := np.unique(entries.col[bad]))), dtype=bool)
        masks[entries.row[bad], np.searchsorted(columns, entries.col[bad])] = True
        yield from ((f"{dataset.name}[:, {j}]", np.where(masks[:, k], np.nan, 1.0)) for k, j in enumerate(columns))
        return
    else:
        masks = missing_values.missing_entries(np.asarray(X))
    if masks.ndim not in (1, 2):
        message = f"must have 1 or 2 dimensions to leave out rows with missing values, got shape {masks.shape}"
        raise arrays.error_of(dataset.name, message)
    names = dataset.names or ((dataset.name,) if masks.ndim == 1 else None)
    masks = masks.reshape(len(masks), -1)
    for j in np.flatnonzero(masks.any(axis=0)):
        name = f"{dataset.name}[:, {j}]" if names is None else names[j]
        yield name, np.where(masks[:, j], np.nan, 1.0)


def _take_features(X, index):
    """Return the rows of X by their numbers; those in files stay there."""
    if not isinstance(X, Source):
        return take_rows(X, index)
    if not len(index):
        return np.empty((0, *X.shape[1:]))
    picked = np.zeros(X.n_rows, dtype=bool)
    picked[index] = True
    return Source([PickedRows(X, picked)], X.name)


IN_MEMORY, IN_FILES, ON_WORKERS = "memory", "files", "remote"  # the kinds of datasets


@dataclass(frozen=True, slots=True, eq=False)
class Dataset:
    """Rows of features and columns of arguments: what was a path, a collection or a `Source` is opened, nothing copied.

    Attributes
    ----------
    X : array_like, table, sparse matrix, or Source
        The features, in the order of the fit, without the columns that arguments name; a Source of numbers where they
        are in files or remote.
    columns : dict
        The values of arguments by their names: columns in place of names, None where nothing was given. Those of remote
        collections are Sources; `column` reads them.
    roles : dict of str to str or tuple, or None
        The names of columns by arguments, those of the fit included; None if there are none.
    name : str
        The argument of the user that X is.
    dropped : DroppedRows or None
        Rows that were left out because of missing values.
    """

    X: Any
    columns: dict
    roles: dict | None
    name: str = "X"
    dropped: DroppedRows | None = None

    @classmethod
    def open(
        cls,
        X,
        arguments=None,
        names=None,
        roles=None,
        *,
        remote=False,
        streamed=(),
        check_size=None,
        name="X",
        numbers_only=True,
    ):
        """Open what a user gave.

        Parameters
        ----------
        X : array_like, table, sparse matrix, path or list of paths, dask collection, zarr or HDF5 array, or Source
            The rows.
        arguments : dict, optional
            Values of arguments as the user gave them, by their names: None, columns, paths of files of one column, or
            names of columns of X; "y" may be a list of two names.
        names, roles : optional
            Those of a posterior: X is put in the order of its columns, and what its fit took from a column is taken
            from there again, see `frames.take_columns`.
        remote : bool, default False
            Whether the caller can work on remote collections; TypeError for them if not.
        streamed : tuple of str, default ()
            Arguments whose values stay in their files, as Sources.
        check_size : callable, optional
            Called with the number of rows of X in files, before any is read: it raises MemoryError for too many.
        name : str, default "X"
            What X is called in messages.
        numbers_only : bool, default True
            Whether all columns of X in files must hold numbers.

        Raises
        ------
        ValueError, TypeError
            For iterators, which can be read once only; for columns that are missing, or hold no numbers.
        """
        X = open_table(X, name)
        if check_size is not None and isinstance(X, Source):
            check_size(X.n_rows)
        columns = frames.names_of(X) or ()
        arguments, joins_events = _add_events(arguments or {}, roles or {})
        unread = {key: open_unchecked(arguments[key], key) for key in streamed if _is_stored(arguments[key], columns)}
        arguments = {key: None if key in unread else _read_column(key, arguments[key], columns) for key in arguments}
        X, values, roles = frames.take_columns(X, arguments, names, roles)
        columns = dict(zip(arguments, values, strict=True)) | unread
        if joins_events:
            columns["y"] = make_bounds(columns["y"], columns.pop("event"), allow_missing=True)
        dataset = cls(X, columns, roles, name)
        if not remote:
            for source in (value for value in (X, *dataset.columns.values()) if isinstance(value, Source)):
                check_not_remote(source)
        if isinstance(X, Source) and numbers_only:
            X.check_numbers(name)
        return dataset

    def leave_out(self, missing, *, needs_rows=True):
        """Return the dataset without rows that have missing values, if that is what `missing` says.

        Parameters
        ----------
        missing : {"raise", "drop"}
            With "raise" the dataset is returned as it is: whatever reads its numbers refuses those that are missing.
        needs_rows : bool, default True
            Whether a row must be left.

        Raises
        ------
        ValueError
            For another choice; for a remote dataset and "drop"; if `needs_rows` and no row is left.
        """
        arrays.check_choice(missing, "missing", MISSING_CHOICES)
        return self if missing == "raise" else drop_missing_rows(self, needs_rows=needs_rows)

    @property
    def kind(self):
        """MEMORY, FILES where blocks are read in every pass, or REMOTE where workers of dask have them."""
        if not isinstance(self.X, Source):
            return IN_MEMORY
        return ON_WORKERS if self.X.is_remote else IN_FILES

    @property
    def names(self):
        """Names of the columns of X, a tuple; None if they have none."""
        return frames.names_of(self.X)

    @property
    def shape(self):
        """(N, D), (N,) of a vector, or () of lists, which are not converted; readers of X check its dimensions."""
        return getattr(self.X, "shape", ())

    @property
    def n_rows(self):
        """N; ValueError or TypeError if X is no table."""
        if self.shape:
            return self.shape[0]
        return len(self.X if isinstance(self.X, list | tuple) else arrays.check_data_shape(self.X, self.name, (2,)))

    def is_remote(self, argument):
        """Return whether workers of dask have the value of an argument."""
        return getattr(self.columns[argument], "is_remote", False)

    def column(self, argument):
        """Return the value of an argument in memory, None if there is none; numbers, unless it holds labels."""
        value = self.columns[argument]
        if not isinstance(value, Source):
            return value
        value.check_numbers(value.name)
        return value.rows()

    def in_memory(self):
        """Return the dataset with its features in memory: those of files are read, others stay as they are."""
        return replace(self, X=self.X.rows()) if isinstance(self.X, Source) else self

    def blocks(self, block_rows=None, ndim=(2,)):
        """Return the features as a Source of blocks of float64."""
        return open_source(self.X, self.name, ndim=ndim, block_rows=block_rows)

    def vector(self):
        """Return the only column of X in memory, finite numbers."""
        if not isinstance(self.X, Source):
            return arrays.check_data_array(frames.take_only_column(self.X), self.name, ndim=(1,)).astype(np.float64)
        source = self.blocks(ndim=(1,))
        rows = source.rows()
        source.check_finite(rows, 0)
        return rows

    def sources(self, ndim=(2,)):
        """Return the features and the columns, of numbers, as Sources of blocks by the names of arguments, or None."""
        columns = {name: None if value is None else open_source(value, name) for name, value in self.columns.items()}
        return {self.name: self.blocks(ndim=ndim)} | columns


def open_table(X, name):
    """Return what a user gave, opened if it is in files, remote or sliced; anything else as it is."""
    if type(X) is np.ndarray:  # nearly always
        return X
    return open_unchecked(X, name) if formats.is_unopened(X) or hasattr(X, "__next__") else X


def _add_events(arguments, roles):
    """Return arguments with the column of events of the fit, if y is to be the column of its times.

    Also return whether a method that takes y alone is to join them.
    """
    y = arguments.get("y", np.nan)
    if "event" not in roles or arguments.get("event") is not None or not (y is None or isinstance(y, str)):
        return arguments, False
    if y not in (None, roles.get("y")):
        return arguments, False
    return arguments | {"event": roles["event"]}, "event" not in arguments


def _is_stored(value, names):
    """Whether a value is in files or remote, and not the name of a column."""
    if value is None or type(value) is np.ndarray or (isinstance(value, str) and value in names):
        return False
    unread = isinstance(value, Source) or formats.is_file_name(value) or arrays.is_sliced(value)
    return unread or formats.is_collection(value)


def _read_column(argument, value, names):
    """Return the only column of a file, or an array that is not in memory; what is, or names a column, as it is."""
    if not _is_stored(value, names):
        return value
    source = open_unchecked(value, argument)
    if source.is_remote:
        return source
    return source.values(0) if source.names and source.n_features == 1 else source
