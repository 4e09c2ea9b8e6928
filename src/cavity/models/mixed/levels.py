"""The levels of groups: the different labels of columns, or their combinations, and rows as numbers of them."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from cavity.base import arrays
from cavity.base.arrays import wrong
from cavity.base.frames import some
from cavity.base.types import IntArray
from cavity.models.formula.columns import column_names, get_column, plain_label, read_labels

NEW = -1  # the number of a level that no row of the fit has


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
        coded = [_coded(table[each], each) for each in columns]
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
        """Return the number of the level of each row of a table of groups, NEW where the fit had none of it."""
        sizes = tuple(map(len, self.labels))
        parts = [
            _looked_up(read_labels(table[each], f"groups[{each!r}]"), labels)
            for each, labels in zip(self.columns, self.labels, strict=True)
        ]
        known = np.all([part != NEW for part in parts], axis=0)
        joint = np.ravel_multi_index([np.where(known, part, 0) for part in parts], sizes)
        there = np.ravel_multi_index(tuple(self.combinations.T), sizes)
        place = np.minimum(np.searchsorted(there, joint), len(there) - 1)
        return np.where(known & (there[place] == joint), place, NEW)

    def number(self, level):
        """Return the number of a level by its label, or a tuple of them; ValueError if there is none."""
        labels = level if isinstance(level, tuple) else (level,)
        if len(labels) == len(self.columns):
            code = int(self.codes({name: [each] for name, each in zip(self.columns, labels, strict=True)})[0])
            if code != NEW:
                return code
        raise ValueError(f"no level {level!r} of {self.group!r}; there is {some(self.names)}")


def _coded(values, name):
    """The labels of a column in order, and the number of each row's."""
    column = read_labels(values, f"groups[{name!r}]")
    if column.kinds is None:
        labels, codes = np.unique(column.values, return_inverse=True)
        return tuple(map(plain_label, labels.tolist())), codes
    return tuple(column.kinds), _looked_up(column, column.kinds)


def _looked_up(column, labels):
    """The number of each row's label among given ones, NEW if it is none of them."""
    values = column.values if isinstance(column.values, list) else column.values.tolist()
    number = {each: k for k, each in enumerate(labels)}
    return np.fromiter((number.get(each, NEW) for each in values), dtype=np.intp, count=len(values))


def group_columns(groups, wanted, n):
    """Return the columns of groups by their names, each of n rows."""
    wanted = list(dict.fromkeys(wanted))
    if not wanted:
        return {}
    there = column_names(groups)
    if there is None:  # one column
        if len(wanted) != 1:
            raise wrong("groups", f"must have columns with the names {some(wanted)}, got {type(groups).__name__}")
        table = {wanted[0]: groups}
    else:
        missing = [each for each in wanted if each not in there]
        if missing:
            words = f"must have the columns of the random effects: {some(missing)} missing; there is {some(there)}"
            raise wrong("groups", words)
        table = {name: get_column(groups, name) for name in wanted}
    for name, column in table.items():
        is_column = hasattr(column, "__len__") and not isinstance(column, str) and getattr(column, "ndim", 1)
        if not is_column or len(column) != n:
            got = f"{len(column)} of them" if is_column else repr(column)
            raise wrong(f"groups[{name!r}]", f"must have one label per row of X, that is {n}, got {got}")
    return table


def new_codes(terms, table, levels="known"):
    """Return the numbers of the levels of new rows for each term; see `new_rows`."""
    arrays.choice(levels, "levels", ("known", "new"))
    found = {}
    for term in terms:
        if term.group not in found:
            found[term.group] = term.levels.codes(table)
            if levels == "known":
                _check_known(term.levels, found[term.group], table)
    return [found[term.group] for term in terms]


def _check_known(levels, codes, table):
    """Raise ValueError naming the first levels that are new."""
    rows = np.flatnonzero(codes == NEW)
    if not rows.size:
        return
    columns = [read_labels(table[each], each).values for each in levels.columns]
    names = list(dict.fromkeys(":".join(str(plain_label(column[i])) for column in columns) for i in rows.tolist()))
    words = f"must have levels of the fit, got {some(names)} of {levels.group!r} in row {rows[0]}"
    raise wrong("groups", f"{words}; levels='new' takes unknown ones as new")
