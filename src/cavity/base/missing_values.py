"""Rows without a value in some column: which they are, the messages about them, and columns without them."""

from dataclasses import dataclass

import numpy as np

from cavity.base import arrays
from cavity.base.arrays import error_of
from cavity.base.errors import DROP_WAY_OUT
from cavity.base.frames import join_names
from cavity.base.records import JSON_OBJECT, Made, integer

MISSING_CHOICES = ("raise", "drop")  # what fits do about rows without a value


@dataclass(frozen=True, slots=True)
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

    def __add__(self, later):
        """Return those of two fits; `later` may be None."""
        if later is None:
            return self
        names = dict.fromkeys([*self.columns, *later.columns])
        columns = {name: self.columns.get(name, 0) + later.columns.get(name, 0) for name in names}
        return DroppedRows(self.n_rows + later.n_rows, columns)

    def __str__(self):
        columns = ", ".join(f"{name} {count}" for name, count in self.columns.items())
        rows = "1 row" if self.n_rows == 1 else f"{self.n_rows} rows"
        return f"{rows} with missing values left out ({columns})"


DROPPED_ROWS_SETTING = Made(
    lambda settings: DroppedRows(settings["n_rows"], settings["columns"]),
    {"n_rows": integer(1), "columns": JSON_OBJECT},
    lambda dropped: {"n_rows": dropped.n_rows, "columns": dropped.columns},
)


def join_dropped(first, later):
    """Return the `DroppedRows` of two fits, each of which may be None."""
    return later if first is None else first + later


def missing_entries(array):
    """Return which entries of an array have no value: NaN, NaT, or None, an array of its shape."""
    if array.dtype.kind in "fc":
        return np.isnan(array)
    if array.dtype.kind in "mM":
        return np.isnat(array)
    if array.dtype.kind == "O":
        return (np.equal(array, None) | np.not_equal(array, array)).astype(bool)
    return np.zeros(array.shape, dtype=bool)


def missing_mask(column):
    """Return which rows of a column have no value, (N,): NaN, None, NaT or the null of a data frame."""
    if hasattr(column, "isna"):  # pandas
        return np.asarray(column.isna(), dtype=bool)
    if hasattr(column, "is_null"):  # polars, and Arrow, whose nulls are not its NaN
        null = np.asarray(column.is_null(), dtype=bool)
        kind = str(getattr(column, "dtype", getattr(column, "type", ""))).lower()
        return null | np.isnan(np.asarray(column, dtype=np.float64)) if "float" in kind or kind == "double" else null
    is_text = isinstance(column, list) and bool(column) and isinstance(column[0], str)  # slow to become fixed in width
    mask = missing_entries(np.asarray(column, dtype=object if is_text else None))
    return mask if mask.ndim < 2 else mask.reshape(len(mask), -1).any(axis=1)


def take_rows(column, index):
    """Return the rows of a column, a matrix or a dictionary of columns by their numbers."""
    if isinstance(column, dict):
        return {name: take_rows(values, index) for name, values in column.items()}
    if hasattr(column, "iloc"):
        return column.iloc[index]
    if hasattr(column, "take") and hasattr(column, "to_pylist"):  # Arrow
        return column.take(index)
    if isinstance(column, list | tuple):
        return [column[i] for i in index]
    return column[index]


def complete_rows(columns, missing, argument="data", *, needs_rows=True):
    """Return the numbers of the rows in which every column has a value, and the `DroppedRows`.

    Parameters
    ----------
    columns : dict of str to array_like (N,) or (N, d)
        Columns by the names that they have for users; those that are None are left out.
    missing : {"raise", "drop"}
        What is done about rows without a value.
    argument : str, default "data"
        What the table is called in messages.
    needs_rows : bool, default True
        Whether a row must be left.

    Returns
    -------
    index : ndarray or None
        None where all rows are complete.
    dropped : DroppedRows or None
        The same.

    Raises
    ------
    ValueError
        If a row is without a value, and missing is "raise"; if `needs_rows` and none is left.
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
        raise error_of(argument, f"{message}; {DROP_WAY_OUT}")
    index = np.flatnonzero(~np.any(list(masks.values()), axis=0))
    if needs_rows and not len(index):
        names = join_names(list(counts))
        raise error_of(
            argument, f"must have rows without missing values, got none: each has no value in one of {names}"
        )
    return index, DroppedRows(n - len(index), counts)
