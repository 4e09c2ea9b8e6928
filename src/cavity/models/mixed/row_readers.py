"""Readers of new rows: columns of fixed effects, levels and columns of terms, and values of other arguments."""

from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from cavity.base import arrays
from cavity.base.rows import check_n_features
from cavity.models.formula.table import read_new_rows
from cavity.models.mixed.levels import find_new_codes
from cavity.models.mixed.terms import read_new_terms
from cavity.sources.dataset import Dataset
from cavity.sources.features import open_features, prepare_rows

GROUP_ARGUMENT = "groups[{!r}]"  # the name of a column of groups in messages


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

    def read(self, X, groups, levels, others):
        """Return the `Dataset` of new rows, whose X are the fixed effects (n, D), and (codes, Z) of each term."""
        needed = dict.fromkeys(column for term in self.terms for column in term.levels.columns)
        names = {column: GROUP_ARGUMENT.format(column) for column in needed} if groups is None else {}
        dataset = Dataset.open(X, others | dict.fromkeys(names.values()), self.columns, self.roles)
        if groups is None:
            groups = {column: dataset.column(name) for column, name in names.items()}
            if any(column is None for column in groups.values()):
                raise ValueError(f"groups must have the columns {', '.join(map(repr, needed))}, got none")
        X = open_features(dataset.in_memory(), "full")
        check_n_features(X.shape[1], self.n_features)
        values = read_new_terms(self.terms, X, groups, levels)
        return self.prepare(dataset, X), values

    def prepare(self, dataset, X):
        """Return a dataset with columns of X as the fixed effects take them."""
        return replace(dataset, X=prepare_rows(X, self.centre, self.spread, self.intercept))


@dataclass(frozen=True, slots=True, eq=False)
class FormulaRowReader(RowReader):
    """Reader of new rows of a fit to a formula and a data frame."""

    coding: Any = None

    def read(self, X, groups, levels, others):
        """Return the `Dataset` of new rows, whose X are the fixed effects (n, D), and (codes, Z) of each term."""
        if groups is not None:
            raise arrays.error_of(
                "groups", "must be None where there is a formula, which names columns of the data frame"
            )
        known = {"n_features": self.n_features}
        dataset, frame, columns = read_new_rows(self.coding, X, others, self.roles, **known)
        groups = {name: columns[name] for term in self.terms for name in term.levels.columns}
        codes = find_new_codes(self.terms, groups, levels)
        values = list(zip(codes, self.coding.random_columns(frame), strict=True))
        return self.prepare(dataset, dataset.X), values
