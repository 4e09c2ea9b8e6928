"""Random effects: what a user asks for, and what of it a fit works with: levels as numbers, values of columns by row.

Some words: a *group* is a column of labels (herds), or the combinations of several; its *levels* are the different ones
(herd 1, herd 2); a *term* is a block of effects of a group, one for each of its columns and each level, in which the
effects of a level have one small covariance matrix.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from cavity.base import arrays
from cavity.base.arrays import error_of
from cavity.base.frames import find_repeated, join_names
from cavity.base.frozen_dataclasses import Frozen, set_fields
from cavity.base.types import FloatArray, IntArray
from cavity.models.mixed.levels import Levels, group_columns, new_codes

INTERCEPT = "intercept"
CONSTANT = -1  # in place of the number of a column of X


@dataclass(frozen=True, slots=True, eq=False)
class RandomEffects(Frozen):
    """Effects that differ by group: an intercept, slopes of columns, or both.

    The effects of a level of the group are drawn from a Gaussian of mean zero, whose covariance matrix is the same for
    all levels: what the rows of one level say about it they say about the others, too.

    Parameters
    ----------
    group : str or sequence of str
        Name of the column of groups. Several stand for their combinations: ``("school", "class")`` are classes within
        schools, where each school counts its classes anew.
    slopes : str, int, or sequence of these, default ()
        Names of columns of X, or their numbers from 0 on, whose coefficients differ by group. Those of a column of X
        are deviations from its coefficient for all rows.
    intercept : bool, default True
        Whether there is an effect of a constant as well.
    correlated : bool, default True
        Whether intercept and slopes of a level may depend on each other; else each has a variance of its own, and all
        covariances are zero.

    Raises
    ------
    ValueError, TypeError
        For names that are none or are there twice, or if there is no effect at all.

    Notes
    -----
    In the notation of formulas ``RandomEffects("g", "x")`` is ``(1 + x | g)``, ``RandomEffects("g", "x",
    correlated=False)`` is ``(1 + x || g)``, ``RandomEffects("g", "x", intercept=False)`` is ``(0 + x | g)``, and
    ``RandomEffects(("g", "h"))`` is ``(1 | g:h)``.

    A group with a single level, or with one row a level, is allowed: the model is a proper one, though such data say
    little about the variance of its effects.

    Examples
    --------
    >>> import cavity
    >>> effects = cavity.RandomEffects("subject", slopes="days")
    >>> effects.group, effects.slopes, effects.correlated
    (('subject',), ('days',), True)
    """

    group: str | Sequence[str]
    slopes: str | int | Sequence[str | int] = ()
    intercept: bool = True
    correlated: bool = True

    def __post_init__(self) -> None:
        set_fields(self, group=_names(self.group, "group", str), slopes=_names(self.slopes, "slopes", str | int))
        set_fields(self, **{name: arrays.check_flag(getattr(self, name), name) for name in ("intercept", "correlated")})
        if not self.group:
            raise error_of("group", "must name a column of groups, got none")
        if any(isinstance(each, int) and each < 0 for each in self.slopes):
            raise error_of("slopes", f"must count columns from 0, got {self.slopes!r}")
        if not (self.slopes or self.intercept):
            raise error_of("slopes", f"must name a column where intercept=False, got {self.slopes!r}")

    @property
    def blocks(self) -> list[tuple[str | int, ...]]:
        """The columns of each of its terms, `CONSTANT` for that of ones."""
        columns = ((CONSTANT,) if self.intercept else ()) + tuple(self.slopes)
        return [columns] if self.correlated else [(each,) for each in columns]


def _names(value, name, kinds):
    """Names or numbers of columns as a tuple."""
    values = (value,) if isinstance(value, str | int) else tuple(value) if isinstance(value, Sequence) else None
    if values is None or any(not isinstance(each, kinds) or isinstance(each, bool) for each in values):
        raise error_of(name, f"must be the name of a column or several, got {value!r}", TypeError)
    if find_repeated(values) is not None:
        raise error_of(name, f"must name each column once, got {find_repeated(values)!r} twice")
    return values


def term_name(group, columns):
    """The name of a term, as formulas have it: "herd" of an intercept alone, "1 + days | subject" of more."""
    if tuple(columns) == (INTERCEPT,):
        return group
    return f"{' + '.join('1' if each == INTERCEPT else each for each in columns)} | {group}"


@dataclass(frozen=True, slots=True, eq=False)
class Term:
    """One block of random effects: for each level of a group one for each column, with one small covariance matrix.

    Attributes
    ----------
    levels : Levels
        Of the group.
    columns : tuple of str, k of them
        What the effects are coefficients of, `INTERCEPT` for the constant.
    index : tuple of int, or None
        Numbers of these columns in X, `CONSTANT` for the ones; None where a formula makes the columns.
    codes : ndarray (N,)
        The number of the level of each row.
    Z : ndarray (N, k)
        The values of the columns.
    """

    levels: Levels
    columns: tuple[str, ...]
    index: tuple[int, ...] | None
    codes: IntArray
    Z: FloatArray

    @property
    def group(self):
        """The name of the group."""
        return self.levels.group

    @property
    def name(self):
        """The name of the term, as formulas have it: "herd" of an intercept alone, "1 + days | subject" of more."""
        return term_name(self.group, self.columns)

    @property
    def shape(self):
        """Number of levels, and of effects of each."""
        return len(self.levels), len(self.columns)

    def without_rows(self):
        """The same with no rows, as a posterior keeps it."""
        return replace(self, codes=self.codes[:0], Z=self.Z[:0])


def terms_of(effects, X, names, groups):
    """Return the terms of the rows of a fit.

    Parameters
    ----------
    effects : RandomEffects, str, or sequence of these
        A string is the group of an intercept.
    X : ndarray (N, D)
        Checked rows.
    names : tuple of str or None
        The names of the columns of X, if they have any.
    groups : dict of columns (N,), data frame, or one column
        Groups by their names; one column alone where the effects are those of one.

    Returns
    -------
    list of Term
        In the order of the effects; those that are not correlated have a term for each column.

    Raises
    ------
    ValueError, TypeError
        For columns that are not there, a group without a label, slopes of a constant, and an effect that is there
        twice.
    """
    effects = effects_of(effects)
    table = group_columns(groups, [each for one in effects for each in one.group], len(X))
    blocks = []
    for one in effects:
        for block in one.blocks:
            index = tuple(CONSTANT if each == CONSTANT else _column_of(each, X, names) for each in block)
            columns = tuple(_column_name(j, names) for j in index)
            blocks.append((one.group, columns, index, values_of(X, index)))
    return terms_of_blocks(blocks, table)


def terms_of_blocks(blocks, table):
    """Return terms (group, columns, index, Z) of a table of groups as `Term`s, checked."""
    coded = {group: Levels.of(group, table) for group in dict.fromkeys(group for group, *_ in blocks)}
    return checked_terms([Term(coded[group][0], *own, coded[group][1], Z) for group, *own, Z in blocks])


def effects_of(effects):
    """Return random effects as a tuple of RandomEffects."""
    several = (effects,) if isinstance(effects, str | RandomEffects) else effects
    if not isinstance(several, Sequence) or not all(isinstance(each, str | RandomEffects) for each in several):
        words = f"must be RandomEffects, the name of a column of groups, or several of these, got {effects!r}"
        raise error_of("effects", words, TypeError)
    return tuple(RandomEffects(each) if isinstance(each, str) else each for each in several)


def _column_of(column, X, names):
    """The number of a column of X by its name or number."""
    if isinstance(column, str) and column in (names or ()):
        return names.index(column)
    if isinstance(column, int) and 0 <= column < X.shape[1]:
        return column
    there = join_names(names) if names else f"{X.shape[1]} without names, counted from 0"
    raise error_of("slopes", f"must be columns of X, got {column!r}; there is {there}")


def _column_name(j, names):
    """What a column of X is called."""
    return INTERCEPT if j == CONSTANT else names[j] if names else f"x{j + 1}"


def values_of(X, index):
    """Return the values of some columns of X, ones for `CONSTANT`, (N, k)."""
    return np.column_stack([np.ones(len(X)) if j == CONSTANT else X[:, j] for j in index])


def checked_terms(terms):
    """Return terms, unless one has a constant column, or two have the same."""
    seen = set()
    for term in terms:
        for k, column in enumerate(term.columns):
            if column != INTERCEPT and np.all(term.Z[:, k] == term.Z[0, k]):
                constant = f"{term.Z[0, k]:g} in every row: its effects are those of an intercept of {term.group!r}"
                raise error_of("slopes", f"must differ between rows, got {column!r}, which is {constant}")
            if (term.group, column) in seen:
                what = "an intercept" if column == INTERCEPT else f"a slope of {column!r}"
                raise error_of("effects", f"must have each effect once, got {what} of {term.group!r} twice")
            seen.add((term.group, column))
    return terms


def new_rows(terms, X, groups, levels="known"):
    """Return what terms are for new rows.

    Parameters
    ----------
    terms : list of Term
        Those of a fit.
    X : ndarray (M, D)
        Checked rows, with the columns of the fit.
    groups : dict of columns (M,), data frame, or one column
        As in the fit.
    levels : {"known", "new"}
        Whether all levels must be those of the fit, or may be others, whose effects nothing is known about.

    Returns
    -------
    list of (codes (M,), Z (M, k))
        For each term the numbers of the levels, NEW for new ones, and the values of the columns.

    Raises
    ------
    ValueError, TypeError
        For levels that are new and must not be, naming them, and as in `terms_of`.
    """
    table = group_columns(groups, [each for term in terms for each in term.levels.columns], len(X))
    return [
        (codes, values_of(X, term.index)) for term, codes in zip(terms, new_codes(terms, table, levels), strict=True)
    ]
