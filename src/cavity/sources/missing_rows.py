"""Rows of a dataset with and without missing values: those of arrays, tables and files."""

from dataclasses import replace

import numpy as np

from cavity.base import arrays, frames
from cavity.base.missing_values import complete_rows, join_dropped, missing_entries, take_rows
from cavity.runs.merge import split_rows
from cavity.sources.sources import Source
from cavity.sources.stored_rows import PickedRows


def take_dataset_rows(dataset, index):
    """Return a dataset with the rows of some numbers; those in files stay there."""
    columns = _read_columns(dataset)
    columns = {name: take_rows(value, index) for name, value in columns.items()}
    return replace(dataset, X=_take_features(dataset.X, index), columns=dataset.columns | columns)


def find_complete_rows(dataset, missing="drop", *, some=True):
    """Return the numbers of the rows in which X and all columns have a value, and the `DroppedRows`.

    Parameters
    ----------
    dataset : Dataset
        Not remote.
    missing, some
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
    return complete_rows(values, missing, dataset.name, some=some)


def drop_missing_rows(dataset, *, some=True):
    """Return a dataset without the rows in which X or a column has no value, which it counts in `dropped`."""
    index, dropped = find_complete_rows(dataset, some=some)
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
        masks = missing_entries(np.asarray(X))
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
