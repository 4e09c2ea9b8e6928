"""What kinds of terms have in common: columns of numbers and levels, and one small block for each level."""

from __future__ import annotations

import numpy as np

from cavity.base.arrays import check_finite_array, error_of
from cavity.base.frames import join_names
from cavity.base.labels import plain_label, read_labels
from cavity.base.lazy_scipy import sparse
from cavity.terms.levels import NEW_LEVEL, Levels


def read_numbers(table, name):
    """Return a column of finite numbers (N,) of a table."""
    return check_finite_array(table[name], f"column {name!r}", ndim=(1,))


def read_numbers_that_vary(table, name, term):
    """Return a column of finite numbers of which two are different."""
    x = read_numbers(table, name)
    if not len(x) or np.all(x == x[0]):
        got = f"{x[0]:g} in every row" if len(x) else "no rows"
        raise error_of(f"column {name!r}", f"must have different values for {term}, got {got}")
    return x


def build_levels(table, name):
    """Return the `Levels` of a column, and the number of each row's (N,)."""
    return Levels.of((name,), table)


def build_groups(table, name, n):
    """Return the `Levels` of a column of groups, and the number of each of n rows (n,); None and zeros without one."""
    return (None, np.zeros(n, dtype=np.intp)) if name is None else build_levels(table, name)


def read_codes(levels, table, choice="known", what="levels of the fit"):
    """Return the number of the level of each row; ValueError for one that is new, unless others may be."""
    codes = levels.codes(table)
    new = np.flatnonzero(codes == NEW_LEVEL)
    if len(new) and choice == "known":
        name = levels.columns[0]
        labels = dict.fromkeys(str(plain_label(read_labels(table[name], name).values[i])) for i in new.tolist())
        names = join_names(levels.names)
        message = f"must have {what}, got {join_names(list(labels))} in row {new[0]}; there is {names}"
        raise error_of(f"column {name!r}", message)
    return codes


def place_rows(rows, codes, count):
    """Return rows (N, k) as those of `count` blocks of k effects, at the block of each row's code; negative: none."""
    k, entries = rows.shape[1], np.diff(rows.indptr)
    where, keep = np.repeat(codes, entries), np.repeat(codes >= 0, entries)
    ends = np.concatenate([[0], np.cumsum(entries * (codes >= 0))])
    indices = (rows.indices + where.astype(np.int64) * k)[keep]
    return sparse.csr_array((rows.data[keep], indices, ends), (rows.shape[0], count * k))


def scale_rows(rows, factors):
    """Return rows times a factor each."""
    return sparse.csr_array(
        (rows.data * np.repeat(factors, np.diff(rows.indptr)), rows.indices, rows.indptr), rows.shape
    )


def find_pattern(*matrices):
    """Return rows and columns (e,) of the lower triangle where symmetric matrices have entries, with the diagonal."""
    filled = np.eye(len(matrices[0]), dtype=bool)
    for matrix in matrices:
        filled |= matrix != 0.0
    return np.nonzero(np.tril(filled))


def repeat_pattern(rows, columns, k, count):
    """Return a pattern of (k, k) once for each of `count` blocks."""
    first = k * np.arange(count)[:, None]
    return (first + rows).ravel(), (first + columns).ravel()


def repeat_constraints(A, count):
    """Return constraints (r, k) for each of `count` blocks, (count r, count k)."""
    return np.kron(np.eye(count), A)
