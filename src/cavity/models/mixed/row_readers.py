"""Readers of new rows: columns of fixed effects, levels and columns of terms, and values of other arguments."""

from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from cavity.base import arrays
from cavity.base.frames import name_coefficients
from cavity.base.rows import check_n_features
from cavity.models.formula.columns import column_names
from cavity.models.formula.table import complete_new_rows, read_new_rows
from cavity.models.mixed.group_columns import find_new_codes, select_group_columns, take_group_columns
from cavity.models.mixed.structured_rows import (
    append_columns,
    find_null_columns,
    read_numbered_columns,
    read_structured,
)
from cavity.models.mixed.terms import read_new_terms
from cavity.models.row_predictions import complete_dataset
from cavity.sources.dataset import Dataset
from cavity.sources.features import open_features, prepare_rows

GROUP_ARGUMENT = "groups[{!r}]"  # the name of a column of groups in messages


@dataclass(frozen=True, slots=True, eq=False)
class NewRows:
    """Rows with their groups; see `MixedGLMPosterior.rows`."""

    X: Any
    groups: Any = None
    levels: str = "known"
    without: tuple[str, ...] = ()

    @property
    def shape(self) -> Any:
        """Numbers of rows and of columns."""
        return np.shape(self.X)

    def __len__(self) -> int:
        return len(self.X)


@dataclass(frozen=True, slots=True, eq=False)
class RowReader:
    """Reader of new rows of a fit to X, y and groups."""

    terms: tuple  # without rows
    columns: tuple | None  # names of the columns of X, without an added intercept
    n_features: int
    roles: dict | None = None
    intercept: bool = False  # whether one is added
    centre: np.ndarray | None = None
    spread: np.ndarray | None = None
    structured: tuple = ()  # BuiltTerms
    null_names: tuple = ()  # of the fixed effects of their null spaces, which follow the columns

    @property
    def coefficient_columns(self):
        """Names of the columns of the fixed effects without an added intercept, or None."""
        if not self.null_names:
            return self.columns
        return (*(self.columns or name_coefficients(None, self.n_features, False)), *self.null_names)

    def read(self, X, groups, levels, others, settings=None):
        """Return the `Dataset` of new rows, whose X are the fixed effects (n, D); the values of each term, (codes, Z)
        or CSR arrays; and the columns of structured terms, whose rows may depend on their settings.
        """
        needed = self.group_columns
        dataset, names = self._open(X, groups, others, levels)
        if groups is None:
            groups = {column: dataset.column(name) for column, name in names.items()}
            if any(column is None for column in groups.values()):
                raise ValueError(f"groups must have the columns {', '.join(map(repr, needed))}, got none")
        X = open_features(dataset.in_memory(), "full")
        check_n_features(X.shape[1], self.n_features)
        table = take_group_columns(groups, self.structured_columns, dataset.n_rows)
        table |= read_numbered_columns(self.structured, X)
        values = read_new_terms(self.terms, X, groups, levels) if self.terms else []
        return self._with_structured(dataset, X, values, table, levels, settings)

    def _with_structured(self, dataset, X, values, table, levels, settings):
        """Return the results of `read`, with those of structured terms."""
        X = append_columns(X, find_null_columns(self.structured, table, self.null_names))
        values = [*values, *read_structured(self.structured, table, levels, settings)]
        return self.prepare(dataset, X), values, table

    @property
    def structured_columns(self):
        """Names of the columns of structured terms."""
        return list(dict.fromkeys(name for term in self.structured for name in term.variables if isinstance(name, str)))

    @property
    def group_columns(self):
        """Names of the columns of groups."""
        columns = dict.fromkeys(column for term in self.terms for column in term.levels.columns)
        return list(columns | dict.fromkeys(self.structured_columns))

    def _open(self, X, groups, others, levels="known"):
        """Return the `Dataset` of new rows, and the arguments of its columns of groups by their names."""
        available = column_names(X) or ()
        columns = select_group_columns(self.group_columns, available, levels) if groups is None else ()
        names = {column: GROUP_ARGUMENT.format(column) for column in columns}
        return Dataset.open(X, others | dict.fromkeys(names.values()), self.columns, self.roles), names

    def complete(self, X, groups, others, levels):
        """Return the number of rows, which have all values, None for all, and their X, groups and other arguments."""
        dataset, names = self._open(X, groups, others, levels)
        if groups is not None:
            table = take_group_columns(groups, self.group_columns, dataset.n_rows)
            names = {column: GROUP_ARGUMENT.format(column) for column in table}
            dataset = replace(dataset, columns=dataset.columns | {names[column]: table[column] for column in table})
        n, index, features, columns = complete_dataset(dataset)
        if index is None:
            return n, None, X, groups, others
        groups = {column: columns.pop(argument) for column, argument in names.items()}
        return n, index, features, groups, columns

    def prepare(self, dataset, X):
        """Return a dataset with columns of X as the fixed effects take them."""
        return replace(dataset, X=prepare_rows(X, self.centre, self.spread, self.intercept))


@dataclass(frozen=True, slots=True, eq=False)
class FormulaRowReader(RowReader):
    """Reader of new rows of a fit to a formula and a data frame."""

    coding: Any = None

    def read(self, X, groups, levels, others, settings=None):
        """Return the `Dataset` of new rows, whose X are the fixed effects (n, D); the values of each term, (codes, Z)
        or CSR arrays; and the columns of structured terms, whose rows may depend on their settings.
        """
        if groups is not None:
            raise arrays.error_of(
                "groups", "must be None where there is a formula, which names columns of the data frame"
            )
        sizes = {"n_features": self.n_features}
        dataset, frame, columns = read_new_rows(self.coding, X, others, self.roles, **sizes)
        own = [column for term in self.terms for column in term.levels.columns]
        group_names = select_group_columns(own, columns.names, levels)
        codes = find_new_codes(self.terms, {name: columns[name] for name in group_names}, dataset.n_rows, levels)
        values = list(zip(codes, self.coding.random_columns(frame), strict=True))
        table = {name: columns[name] for name in self.structured_columns}
        return self._with_structured(dataset, dataset.X, values, table, levels, settings)

    def complete(self, X, groups, others, levels):
        """Return the number of rows, which have all values, None for all, and their X, groups and other arguments."""
        optional = self.group_columns if levels != "known" else ()
        n, index, table, others = complete_new_rows(self.coding, X, others, self.roles, optional)
        return n, index, table, groups, others
