"""Columns of data frames, dictionaries and files by their names, and columns of labels."""

from __future__ import annotations

from collections.abc import Mapping
from difflib import get_close_matches

import numpy as np

from cavity.base import arrays
from cavity.base.arrays import error_of
from cavity.base.frames import get_column_at, join_names, make_data_frame, names_of, to_numbers
from cavity.base.labels import read_labels
from cavity.sources.dataset import Dataset


def column_names(table):
    """Return the names of the columns of a data frame, a dictionary of columns or a Source, None for anything else."""
    return tuple(map(str, table)) if isinstance(table, Mapping) else names_of(table)


def get_column(table, name):
    """Return a column, which must be there, of a data frame, a dictionary of columns or a Source."""
    return table[name] if isinstance(table, Mapping) else get_column_at(table, names_of(table).index(name))


class FormulaColumns:
    """The columns that a formula may name.

    Parameters
    ----------
    table : data frame, dict of columns, or Source
        The rows.
    argument : str, default "data"
        The argument of the user that the table is.
    """

    def __init__(self, table, argument="data"):
        names = column_names(table)
        if names is None:
            to_numbers(table, argument)  # TypeError for a lazy frame
            kind = type(table).__name__
            message = f"must be a data frame or a dictionary of columns, where there is a formula; got {kind}"
            raise error_of(argument, message, TypeError)
        self.names = names
        self._table, self._argument = table, argument

    def __getitem__(self, name):
        """Return a column; ValueError if it is not there."""
        if name not in self.names:
            close = get_close_matches(name, self.names, 1)
            hint = f"; did you mean {close[0]!r}?" if close else ""
            message = f"must have the columns of the formula: {name!r} missing; there is {join_names(self.names)}{hint}"
            raise error_of(self._argument, message)
        if self.names.count(name) > 1:
            raise error_of(self._argument, f"must have one column of each name, got two called {name!r}")
        return get_column(self._table, name)

    @property
    def n_rows(self):
        """The length of the first column."""
        return len(self[self.names[0]]) if self.names else 0

    def to_dict(self):
        """Return all columns by their names."""
        return {name: self[name] for name in self.names}

    def open_dataset(self, arguments, roles=None):
        """Return the `Dataset` of the columns that arguments name; `roles` are those of a fit."""
        if isinstance(self._table, Mapping):
            fitted = {k: v for k, v in (roles or {}).items() if arguments.get(k, v) is None and v in self.names}
            by_argument = {name: fitted.get(name, value) for name, value in arguments.items()}
            values = {name: self[value] if isinstance(value, str) else value for name, value in by_argument.items()}
            roles = (roles or {}) | {name: value for name, value in by_argument.items() if isinstance(value, str)}
            return Dataset.open(np.empty((self.n_rows, 0)), values, None, roles or None, name=self._argument)
        return Dataset.open(self._table, arguments, None, roles, name=self._argument, numbers_only=False)

    def to_pandas(self, names, n, labels=None):
        """Return columns of n rows as a pandas frame of float64 and ordered categories, those of the fit if given."""
        columns = {}
        for name in sorted(names):
            argument = f"{self._argument}[{name!r}]"
            column = read_labels(self[name], argument)
            check_length(column.values, repr(name), n, self._argument)
            fit_labels = None if labels is None else labels.get(name)
            if fit_labels is not None:
                columns[name] = _recode(column, name, fit_labels, self._argument)
            elif column.kinds is not None and labels is None:
                columns[name] = categorical(column.values, column.kinds)
            else:
                columns[name] = arrays.check_real_array(column.values, argument)
        return make_data_frame(columns, index=range(n))


def check_length(column, name, n, argument="data"):
    """Raise ValueError unless a column has n rows."""
    if len(column) != n:
        raise error_of(argument, f"must have columns of one length, got {n} rows of y and {len(column)} of {name}")


def _recode(column, name, labels, argument):
    """Return a column with the categories of the fit; ValueError for others."""
    values, fit_labels = list(column.values), set(labels)
    for row, value in enumerate(values):
        if value not in fit_labels:
            available = f"there is {join_names(labels)}"
            message = f"must have categories of the fit, got {value!r} in row {row} of {name!r}; {available}"
            raise error_of(argument, message)
    return categorical(values, labels)


def categorical(values, categories):
    """Return a pandas column of ordered categories."""
    import pandas

    return pandas.Categorical(values, categories=list(categories), ordered=True)
