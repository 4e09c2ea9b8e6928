"""The rows of a mixed model as a user gives them: from a formula and a data frame, or as X, y and groups."""

from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from cavity.base import arrays
from cavity.base.frames import data_frame, names_of
from cavity.base.rows import Rows, check_n_features, row_vector, with_exposure
from cavity.models.linear.defaults import resolve_defaults
from cavity.models.mixed.formula import design
from cavity.models.mixed.terms import effects_of, new_rows, terms_of
from cavity.runs.runs import check_here
from cavity.sources.dataset import Dataset, taken
from cavity.sources.features import open_features, prepared_rows
from cavity.sources.formats import is_unopened
from cavity.sources.reading import is_stored
from cavity.sources.sources import opened

GROUPS = "groups[{!r}]"  # how an argument is called that is a column of groups


@dataclass(frozen=True, slots=True, eq=False)
class Reader:
    """How rows become columns of fixed effects, levels of terms and values of their columns."""

    terms: tuple  # without rows
    columns: tuple | None  # names of the columns of X, before an intercept is put there
    n_features: int
    roles: dict | None = None
    intercept: bool = False  # whether one is put there
    centre: np.ndarray | None = None
    spread: np.ndarray | None = None

    def read(self, X, groups, levels, others):
        """Return new rows of fixed effects (n, D), (codes, Z) of each term, and other arguments by their names."""
        others, needed = dict(others), dict.fromkeys(each for term in self.terms for each in term.levels.columns)
        asked = {} if groups is not None else dict.fromkeys(map(GROUPS.format, needed))
        X, found, _ = taken(X, others | asked, self.columns, self.roles)
        if groups is None:
            groups = dict(zip(needed, found[len(others) :], strict=True))
            if any(column is None for column in groups.values()):
                raise ValueError(f"groups must have the columns {', '.join(map(repr, needed))}, got none")
        X = _columns(X)
        check_n_features(X.shape[1], self.n_features)
        values = new_rows(self.terms, X, groups, levels)
        return self.prepared(X), values, dict(zip(others, found, strict=False))

    def prepared(self, X):
        """Return columns of X as the fixed effects take them."""
        return prepared_rows(X, self.centre, self.spread, self.intercept)


@dataclass(frozen=True, slots=True, eq=False)
class FormulaReader(Reader):
    """How a formula makes these of the rows of a data frame."""

    coding: Any = None

    def read(self, X, groups, levels, others):
        """Return new rows of fixed effects (n, D), (codes, Z) of each term, and other arguments by their names."""
        if groups is not None:
            raise arrays.wrong("groups", "must be None where there is a formula, which names columns of the data frame")
        asked = {name: value for name, value in others.items() if name != "y"}
        frame, found, _ = taken(columns_in_memory(X), asked, None, self.roles)
        fixed, base, values = self.coding.rows(frame, self.terms, levels, self.n_features)
        found = dict(zip(asked, found, strict=True))
        if base is not None:
            more = found["offset"]
            found["offset"] = base if more is None else base + row_vector(more, "offset", len(base))
        if "y" in others:
            found["y"] = self.coding.observations(frame) if others["y"] is None else others["y"]
        return self.prepared(fixed), values, found


@dataclass(frozen=True, slots=True, eq=False)
class Given:
    """Rows of a fit, and how new ones will be read."""

    rows: Rows
    terms: tuple
    reader: Reader
    chosen: tuple = ()

    def with_fixed_effects(self, glm):
        """Return the rows as the fixed effects take them, and the settings of these in numbers."""
        found = resolve_defaults(glm, self.rows)
        kept = {name: found.kept[name] for name in ("intercept", "centre", "spread")}
        given = replace(self, rows=found.rows, reader=replace(self.reader, **kept), chosen=found.kept["chosen"])
        return given, found.model


def given_by(model, X, y, groups, offset, exposure, sample_weight):
    """Return y, and a function that gives the `Given`.

    Its arguments are the likelihood, coded y, and whether thresholds stand for the intercept of a formula.

    Raises
    ------
    ValueError, TypeError
        For what is not there, or is no column.
    """
    others = {"offset": offset, "exposure": exposure, "sample_weight": sample_weight}
    if model.formula:
        return _by_formula(model, X, y, groups, others)
    return _by_columns(model.effects, X, y, groups, others)


def _by_formula(model, frame, y, groups, others):
    for name, value in (("y", y), ("groups", groups)):
        if value is not None:
            words = f"must be None where there is a formula, which says it; got {type(value).__name__}"
            raise arrays.wrong(name, words)
    frame, (offset, exposure, weight), roles = taken(columns_in_memory(frame), others)
    found = design(model.effects, frame)

    def given(likelihood, y, thresholds_for_intercept):
        own = design(model.effects, frame, thresholds_for_intercept) if thresholds_for_intercept else found
        if not (own.names or (thresholds_for_intercept and own.terms)):
            raise arrays.wrong("effects", f"must have fixed effects, if only an intercept, got {model.effects!r}")
        bare = tuple(term.without_rows() for term in own.terms)
        reader = FormulaReader(bare, own.names, len(own.names), roles, coding=own.coding)
        X, known = own.X, own.offset
        if offset is not None:
            more = row_vector(offset, "offset", len(X))
            known = more if known is None else known + more
        known = with_exposure(likelihood, known, exposure, X)
        return Given(Rows.checked(likelihood, X, y, known, weight), tuple(own.terms), reader)

    return found.y, given


def columns_in_memory(table):
    """Return a table in files as a data frame of its columns, text as it is; anything else unchanged."""
    if not is_unopened(table) and not is_stored(table):
        return table
    table = opened(table, "data")
    check_here(table)
    if table.names is None:
        raise ValueError("data must have names of columns where there is a formula, got a file without names")
    return data_frame({column: table.values(column) for column in table.names})


def _by_columns(effects, X, y, groups, others):
    effects = effects_of(effects)
    wanted = dict.fromkeys(each for one in effects for each in one.group)
    arguments, X = {"y": y} | others, opened(X, "X") if is_unopened(X) else X
    if groups is None:
        if names_of(X) is None:
            words = f"must hold the labels of {', '.join(map(repr, wanted))}, as X is no data frame; got None"
            raise arrays.wrong("groups", words, TypeError)
        arguments |= {GROUPS.format(name): name for name in wanted}
    X, (y, offset, exposure, weight, *columns), roles = taken(X, arguments)
    groups = dict(zip(wanted, columns, strict=True)) if groups is None else groups
    names, X = names_of(X), _columns(X)
    terms = terms_of(effects, X, names, groups)
    reader = Reader(tuple(term.without_rows() for term in terms), names, X.shape[1], roles)

    def given(likelihood, y, _):
        known = with_exposure(likelihood, offset, exposure, X)
        return Given(Rows.checked(likelihood, X, y, known, weight), tuple(terms), reader)

    return y, given


def _columns(X):
    """Return the columns of X checked, those of files in memory: levels and sites of all rows are there as well."""
    return open_features(Dataset.open(X.rows() if is_stored(X) else X), "full")
