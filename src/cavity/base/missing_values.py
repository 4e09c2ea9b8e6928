"""Rows without a value in some column: which they are, what is said of them, and columns without them."""

from dataclasses import dataclass

import numpy as np

from cavity.base import arrays
from cavity.base.arrays import error_of
from cavity.base.frames import join_names
from cavity.base.records import JSON_OBJECT, Made, integer

MISSING_CHOICES = ("raise", "drop")  # what fits do about rows without a value


@dataclass(frozen=True, slots=True, eq=False)
class DroppedRows:
    """The rows of a fit that were left out, because a column had no value there.

    Attributes
    ----------
    n_rows : int
        How many.
    columns : dict of str to int
        How many rows have no value, for each column that has such rows.
    """

    n_rows: int
    columns: dict[str, int]

    def __str__(self):
        columns = ", ".join(f"{name} {count}" for name, count in self.columns.items())
        rows = "1 row" if self.n_rows == 1 else f"{self.n_rows} rows"
        return f"{rows} with missing values left out ({columns})"


DROPPED_ROWS_SETTING = Made(
    lambda settings: DroppedRows(settings["n_rows"], settings["columns"]),
    {"n_rows": integer(1), "columns": JSON_OBJECT},
    lambda dropped: {"n_rows": dropped.n_rows, "columns": dropped.columns},
)


def missing_mask(column):
    """Return which rows of a column have no value, (N,): NaN, None, NaT or the null of a data frame."""
    if hasattr(column, "isna"):  # pandas
        return np.asarray(column.isna(), dtype=bool)
    if hasattr(column, "is_null"):  # polars, and Arrow, whose nulls are not its NaN
        null = np.asarray(column.is_null(), dtype=bool)
        kind = str(getattr(column, "dtype", getattr(column, "type", ""))).lower()
        return null | np.isnan(np.asarray(column, dtype=np.float64)) if "float" in kind or kind == "double" else null
    values = np.asarray(column)
    if values.dtype.kind in "fc":
        mask = np.isnan(values)
    elif values.dtype.kind in "mM":
        mask = np.isnat(values)
    elif values.dtype.kind == "O":
        mask = np.array([value is None or value != value for value in values.ravel()], dtype=bool).reshape(values.shape)
    else:
        return np.zeros(len(values), dtype=bool)
    return mask if mask.ndim < 2 else mask.reshape(len(mask), -1).any(axis=1)


def take_rows(column, index):
    """Return the rows of a column or a matrix by their numbers."""
    if hasattr(column, "iloc"):
        return column.iloc[index]
    if hasattr(column, "take") and hasattr(column, "to_pylist"):  # Arrow
        return column.take(index)
    if isinstance(column, list | tuple):
        return [column[i] for i in index]
    return column[index]


def complete_rows(columns, missing, argument="data"):
    """Return the numbers of the rows in which every column has a value, and the `DroppedRows`.

    Parameters
    ----------
    columns : dict of str to array_like (N,) or (N, d)
        Columns by the names that they have for users; those that are None are left out.
    missing : {"raise", "drop"}
        What is done about rows without a value.
    argument : str, default "data"
        What the table is called in messages.

    Returns
    -------
    index : ndarray or None
        None where all rows are complete.
    dropped : DroppedRows or None
        The same.

    Raises
    ------
    ValueError
        If a row is without a value, and missing is "raise"; if none is left.
    """
    arrays.check_choice(missing, "missing", MISSING_CHOICES)
    masks = {
        name: missing_mask(column) for name, column in columns.items() if np.ndim(column) or hasattr(column, "__len__")
    }
    n = max(map(len, masks.values()), default=0)
    masks = {name: mask for name, mask in masks.items() if mask.any() and len(mask) == n}
    if not masks:
        return None, None
    counts = {name: int(mask.sum()) for name, mask in masks.items()}
    if missing == "raise":
        gaps = [(name, counts[name], int(np.argmax(mask))) for name, mask in list(masks.items())[:3]]
        described = "; ".join(f"{name!r} in {count} of {n} rows, the first is row {row}" for name, count, row in gaps)
        message = f"must have a value in every row, got missing values of {described}"
        raise error_of(argument, f"{message}; missing='drop' leaves such rows out")
    index = np.flatnonzero(~np.any(list(masks.values()), axis=0))
    if not len(index):
        names = join_names(list(counts))
        raise error_of(
            argument, f"must have rows without missing values, got none: each has no value in one of {names}"
        )
    return index, DroppedRows(n - len(index), counts)
