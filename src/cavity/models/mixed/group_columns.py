"""Columns of groups of new rows, and the numbers of their levels."""

from __future__ import annotations

import numpy as np

from cavity.base import arrays
from cavity.base.arrays import error_of
from cavity.base.frames import join_names
from cavity.base.labels import plain_label, read_labels
from cavity.models.formula.columns import column_names, get_column
from cavity.terms.levels import NEW_LEVEL

LEVEL_CHOICES = ("known", "new", "zero")  # levels of groups that new rows may have


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
            description = f"{len(column)} of them" if is_column else repr(column)
            raise error_of(f"groups[{name!r}]", f"must have one label per row of X, that is {n}, got {description}")
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
    columns = [read_labels(table[name], name).values for name in levels.columns]
    names = list(dict.fromkeys(":".join(str(plain_label(column[i])) for column in columns) for i in rows.tolist()))
    message = f"must have levels of the fit, got {join_names(names)} of {levels.group!r} in row {rows[0]}"
    raise error_of("groups", f"{message}; levels='new' takes unknown ones as new, 'zero' leaves effects of groups out")
