"""Small real data sets with their provenance, for first examples and the command line."""

import csv
import json
from importlib.resources import files
from typing import Any

import numpy as np
import numpy.typing as npt

__all__ = ["load", "names", "table"]


def names() -> list[str]:
    """Return the names of the shipped data sets."""
    return sorted(path.name.removesuffix(".json") for path in files(__name__).iterdir() if path.name.endswith(".json"))


def load(name: str) -> tuple[npt.NDArray[Any], dict[str, Any]]:
    """Return a shipped data set of one column.

    Parameters
    ----------
    name : str
        One of `names`.

    Returns
    -------
    values : ndarray, shape (N,)
        The data.
    about : dict
        "title", "unit", "source", and where there is one a "reference" value with its "reference_source".

    Raises
    ------
    ValueError
        If there is no data set of this name, or it has several columns (use `table`).

    Examples
    --------
    >>> from cavity import data
    >>> values, about = data.load("newcomb")
    >>> len(values), about["unit"]
    (66, 'ns beyond 24800 ns')
    """
    columns, description = table(name)
    if len(columns) > 1:
        raise ValueError(f"data set {name!r} is a table of {len(columns)} columns; read it with cavity.data.table")
    return next(iter(columns.values())), description


def table(name: str, *, as_frame: bool = False) -> tuple[Any, dict[str, Any]]:
    """Return a shipped data set of any number of columns.

    Parameters
    ----------
    name : str
        One of `names`.
    as_frame : bool, default False
        Whether to return a pandas data frame in place of a dictionary.

    Returns
    -------
    columns : dict of ndarray, shape (N,), or pandas.DataFrame
        The columns by name, in the order of the file: float64, or strings where a column holds no numbers, or numbers
        that are categories.
    about : dict
        "title", "source", and for tables "columns" (what each one is) and "target" (the one to predict); where they
        have a meaning "units" (by column), "categories" (columns of numbers that are labels), "left_out" (columns that
        are no features unless they are named, with the reason) and "rows" (how many of the first rows are for
        training).

    Raises
    ------
    ValueError
        If there is no data set of this name.
    ImportError
        If a data frame is requested and pandas is not installed.

    Examples
    --------
    >>> from cavity import data
    >>> columns, about = data.table("pima")
    >>> len(columns), columns["glu"][:3].tolist(), about["target"], columns["type"][:3].tolist()
    (9, [86.0, 195.0, 77.0], 'type', ['No', 'Yes', 'No'])
    """
    if name not in names():
        raise ValueError(f"no data set {name!r}; there is {', '.join(names())}")
    folder = files(__name__)
    description = json.loads((folder / f"{name}.json").read_text(encoding="utf-8"))
    header, *rows = csv.reader((folder / f"{name}.csv").read_text(encoding="utf-8").splitlines())
    labels = description.get("categories", ())
    columns = {
        column: np.array(cells) if column in labels else _array(cells)
        for column, cells in zip(header, zip(*rows, strict=True), strict=True)
    }
    return (_frame(columns) if as_frame else columns), description


def _frame(columns):
    """A pandas data frame."""
    try:
        import pandas
    except ImportError as error:
        raise ImportError("as_frame needs pandas, which is not installed; run: pip install pandas") from error
    return pandas.DataFrame(columns)


def _array(cells):
    """Numbers if all cells are numbers, else strings."""
    try:
        return np.array([float(cell) for cell in cells])
    except ValueError:
        return np.array(cells)


def __dir__() -> list[str]:
    return sorted(__all__)
