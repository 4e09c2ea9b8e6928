"""Small real data sets with their provenance, for first examples and the command line."""

import csv
import json
from importlib.resources import files

import numpy as np


def names():
    """Return the names of the shipped data sets."""
    return sorted(path.name.removesuffix(".json") for path in files(__name__).iterdir() if path.name.endswith(".json"))


def load(name):
    """Return a shipped data set.

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

    Examples
    --------
    >>> from cavity import data
    >>> values, about = data.load("newcomb")
    >>> len(values), about["unit"]
    (66, 'ns beyond 24800 ns')
    """
    if name not in names():
        raise ValueError(f"no data set {name!r}; there is {', '.join(names())}")
    folder = files(__name__)
    about = json.loads((folder / f"{name}.json").read_text(encoding="utf-8"))
    rows = list(csv.reader((folder / f"{name}.csv").read_text(encoding="utf-8").splitlines()))
    return np.array([float(row[0]) for row in rows[1:]]), about
