"""Rows of a dataset without missing values: those of arrays, tables and files."""

from dataclasses import replace

import numpy as np

from cavity.base import arrays, frames
from cavity.base.missing_values import MISSING_CHOICES, complete_rows, take_rows
from cavity.runs.merge import split_rows
from cavity.sources.dataset import IN_FILES, IN_MEMORY, ON_WORKERS
from cavity.sources.sources import Source
from cavity.sources.stored_rows import PickedRows


def drop_missing_rows(dataset, missing):
    """Return a dataset without the rows in which X or a column has no value, and the `DroppedRows`, None if all have.

    Parameters
    ----------
    dataset : Dataset
        Not remote, unless missing is "raise".
    missing : {"raise", "drop"}
        With "raise" the dataset is returned as it is: whatever reads its numbers refuses those that are missing.
    """
    if arrays.check_choice(missing, "missing", MISSING_CHOICES) == "raise":
        return dataset, None
    columns = {name: value for name, value in dataset.columns.items() if value is not None and np.ndim(value)}
    masks = columns | dict(_feature_masks(dataset))
    index, dropped = complete_rows(masks, missing, dataset.name)
    if index is None:
        return dataset, None
    columns = {name: take_rows(value, index) for name, value in columns.items()}
    return replace(dataset, X=_take_features(dataset.X, index), columns=dataset.columns | columns), dropped


def _feature_masks(dataset):
    """Yield the name of a feature, and its values, or a vector that has NaN where they are missing."""
    X = dataset.X
    if frames.is_table(X) and dataset.kind == IN_MEMORY:
        yield from ((name, frames.get_column_at(X, j)) for j, name in enumerate(frames.names_of(X)))
        return
    if dataset.kind == ON_WORKERS:
        raise ValueError("missing='drop' needs the rows in one process, X is a collection of dask: use its dropna()")
    if dataset.kind == IN_FILES:
        masks = np.concatenate([np.isnan(X.rows(*span)) for span in split_rows(X.n_rows, X.block_rows)])
    else:
        masks = np.isnan(arrays.check_real_array(X.toarray() if hasattr(X, "tocsr") else X, dataset.name))
    masks = masks.reshape(len(masks), -1)
    names = dataset.names or [f"column {j}" for j in range(masks.shape[1])]
    yield from ((names[j], np.where(masks[:, j], np.nan, 1.0)) for j in np.flatnonzero(masks.any(axis=0)))


def _take_features(X, index):
    """Return the rows of X by their numbers; those in files stay there."""
    if not isinstance(X, Source):
        return take_rows(X, index)
    picked = np.zeros(X.n_rows, dtype=bool)
    picked[index] = True
    return Source([PickedRows(X, picked)], X.name)
