"""The levels of groups: the different labels of columns, or their combinations, and rows as numbers of them."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from cavity.base import arrays
from cavity.base.arrays import error_of
from cavity.base.frames import join_names
from cavity.base.public_objects import IntArray
from cavity.models.formula.columns import column_names, get_column, plain_label, read_labels

NEW_LEVEL = -1  # the number of a level without rows in the fit
LEVEL_CHOICES = ("known", "new", "zero")  # levels of groups that new rows may have


@dataclass(frozen=True, slots=True, eq=False)
class Levels:
    """The levels of a group in order: combinations of the labels of its columns, those that rows have.

    Attributes
    ----------
    columns : tuple of str
        Names of the columns.
    labels : tuple of tuple
        The labels of each column, sorted, or in the order of its categories.
    combinations : ndarray (L, number of columns)
        For each level the number of the label of each column.
    """

    columns: tuple[str, ...]
    labels: tuple[tuple[object, ...], ...]
    combinations: IntArray

    @classmethod
    def of(cls, columns, table):
        """Return the levels of the rows of some columns of a table of groups, and the number of each row's, (N,)."""
        coded = [_code_labels(table[column], column) for column in columns]
        sizes = tuple(len(labels) for labels, _ in coded)
        joint, codes = np.unique(np.ravel_multi_index([codes for _, codes in coded], sizes), return_inverse=True)
        combinations = np.stack(np.unravel_index(joint, sizes), axis=1)
        return cls(columns, tuple(labels for labels, _ in coded), combinations), codes

    def __len__(self):
        return len(self.combinations)

    @property
    def group(self):
        """The name of the group, as formulas have it: "school:class"."""
        return ":".join(self.columns)

    @property
    def names(self):
        """The names of the levels, as a list of texts."""
        columns = [
            [str(labels[k]) for k in part] for labels, part in zip(self.labels, self.combinations.T, strict=True)
        ]
        return [":".join(parts) for parts in zip(*columns, strict=True)]

    def codes(self, table):
        """Return the number of the level of each row of a table of groups, NEW_LEVEL if it is new."""
        sizes = tuple(map(len, self.labels))
        parts = [
            _look_up_labels(read_labels(table[column], f"groups[{column!r}]"), labels)
            for column, labels in zip(self.columns, self.labels, strict=True)
        ]
        has_level = np.all([part != NEW_LEVEL for part in parts], axis=0)
        joint = np.ravel_multi_index([np.where(has_level, part, 0) for part in parts], sizes)
        levels = np.ravel_multi_index(tuple(self.combinations.T), sizes)
        position = np.minimum(np.searchsorted(levels, joint), len(levels) - 1)
        return np.where(has_level & (levels[position] == joint), position, NEW_LEVEL)

    def number(self, level):
        """Return the number of a level by its label, or a tuple of them; ValueError if there is none."""
        labels = level if isinstance(level, tuple) else (level,)
        if len(labels) == len(self.columns):
            code = int(self.codes({name: [label] for name, label in zip(self.columns, labels, strict=True)})[0])
            if code != NEW_LEVEL:
                return code
        raise ValueError(f"no level {level!r} of {self.group!r}; there is {join_names(self.names)}")


def _code_labels(values, name):
    """The labels of a column in order, and the number of each row's."""
    column = read_labels(values, f"groups[{name!r}]")
    if column.kinds is None:
        labels, codes = np.unique(column.values, return_inverse=True)
        return tuple(map(plain_label, labels.tolist())), codes
    return tuple(column.kinds), _look_up_labels(column, column.kinds)


def _look_up_labels(column, labels):
    """The number of each row's label in `labels`, NEW_LEVEL if it is none of them."""
    values = column.values if isinstance(column.values, list) else column.values.tolist()
    number = {label: k for k, label in enumerate(labels)}
    return np.fromiter((number.get(label, NEW_LEVEL) for label in values), dtype=np.intp, count=len(values))


def take_group_columns(groups, names, n):
    """Return the columns of groups by their names, each of n rows."""
    names = list(dict.fromkeys(names))
    if not names:
        return {}
    available = column_names(groups)
    if available is None:  # one column
        if len(names) != 1:
            message = f"must have columns with the names {join_names(names)}, got {type(groups).__name__}"
            raise error_of("groups", message)
        table = {names[0]: groups}
    else:
        missing = [name for name in names if name not in available]
        if missing:
            message = f"must have the columns of the random effects: {join_names(missing)} missing"
            raise error_of("groups", f"{message}; there is {join_names(available)}")
        table = {name: get_column(groups, name) for name in names}
    for name, column in table.items():
        is_column = hasattr(column, "__len__") and not isinstance(column, str) and getattr(column, "ndim", 1)
        if not is_column or len(column) != n:
            got = f"{len(column)} of them" if is_column else repr(column)
            raise error_of(f"groups[{name!r}]", f"must have one label per row of X, that is {n}, got {got}")
    return table


def select_group_columns(columns, available, levels):
    """Return the columns of groups to be read: those available, None for all, where levels may be others than known."""
    return [name for name in columns if levels == "known" or available is None or name in available]


def find_new_codes(terms, table, n, levels="known"):
    """Return the numbers of the levels of n new rows for each term, NEW_LEVEL where the table lacks a column."""
    arrays.check_choice(levels, "levels", LEVEL_CHOICES)
    codes = {}
    for term in terms:
        if term.group in codes:
            continue
        if levels == "zero" or any(column not in table for column in term.levels.columns):
            codes[term.group] = np.full(n, NEW_LEVEL)
            continue
        codes[term.group] = term.levels.codes(table)
        if levels == "known":
            _check_known(term.levels, codes[term.group], table)
    return [codes[term.group] for term in terms]


def _check_known(levels, codes, table):
    """Raise ValueError naming the first levels that are new."""
    rows = np.flatnonzero(codes == NEW_LEVEL)
    if not rows.size:
        return
    columns = [read_labels(table[each], each).values for each in levels.columns]
    names = list(dict.fromkeys(":".join(str(plain_label(column[i])) for column in columns) for i in rows.tolist()))
    message = f"must have levels of the fit, got {join_names(names)} of {levels.group!r} in row {rows[0]}"
    raise error_of("groups", f"{message}; levels='new' takes unknown ones as new, 'zero' leaves effects of groups out")
