"""The levels of groups: the different labels of columns, or their combinations, and rows as numbers of them."""

from __future__ import annotations

import math
from dataclasses import dataclass
from itertools import repeat

import numpy as np

from cavity.base.frames import join_names
from cavity.base.labels import plain_label, read_labels
from cavity.base.public_objects import IntArray
from cavity.linalg.row_pairs import find_distinct

NEW_LEVEL = -1  # the number of a level without rows in the fit


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
        joint = np.ravel_multi_index([codes for _, codes in coded], sizes)
        joint, codes = find_distinct(joint, math.prod(sizes))
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
        existing = self.labels[0] if len(self.columns) == 1 else self.names  # labels that are numbers have no quotes
        raise ValueError(f"no level {level!r} of {self.group!r}; there is {join_names(existing)}")


def _code_labels(values, name):
    """The labels of a column in order, and the number of each row's."""
    column = read_labels(values, f"groups[{name!r}]")
    if column.kinds is None:
        values, low, high = column.values, 0, np.inf
        if isinstance(values, np.ndarray) and values.dtype.kind == "i" and len(values):
            low, high = int(np.min(values)), int(np.max(values))
        if high - low < len(values):  # a table of them takes less time than to sort
            labels, codes = find_distinct(values - low, high - low + 1)
            labels = labels + low
        else:
            labels, codes = np.unique(values, return_inverse=True)
        return tuple(map(plain_label, labels.tolist())), codes
    return tuple(column.kinds), _look_up_labels(column, column.kinds)


def _look_up_labels(column, labels):
    """The number of each row's label in `labels`, NEW_LEVEL if it is none of them."""
    values = column.values if isinstance(column.values, list) else column.values.tolist()
    number = {label: k for k, label in enumerate(labels)}
    return np.fromiter(map(number.get, values, repeat(NEW_LEVEL)), dtype=np.intp, count=len(values))
