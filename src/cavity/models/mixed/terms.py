"""Random effects, as settings of a model and as terms of a fit: levels as numbers, values of columns by row.

A *group* is a column of labels (herds), or the combinations of several; its *levels* are the different ones (herd 1,
herd 2); a *term* is a block of effects of a group, one for each of its columns and each level, in which the effects of
a level have one small covariance matrix.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from cavity.base import arrays
from cavity.base.arrays import error_of
from cavity.base.frames import find_repeated, join_names
from cavity.base.public_objects import FloatArray, Frozen, IntArray, set_fields
from cavity.base.scales import FISHER_Z_SCALE, LOG_SCALE
from cavity.models.formula.columns import column_names
from cavity.models.hyperpriors import PriorTarget
from cavity.models.mixed.effect_layout import LevelBlock
from cavity.models.mixed.free_parameters import FreeCovariance, component_names, find_units
from cavity.models.mixed.group_columns import find_new_codes, select_group_columns, take_group_columns
from cavity.terms.base import StructuredTerm
from cavity.terms.levels import Levels

INTERCEPT_NAME = "intercept"
CONSTANT_COLUMN = -1  # in place of the number of a column of X


@dataclass(frozen=True, slots=True, eq=False)
class RandomEffects(Frozen):
    """Effects that differ by group: an intercept, slopes of columns, or both.

    The effects of a level of the group are drawn from a Gaussian of mean zero, whose covariance matrix is the same for
    all levels, so that the rows of each level inform the others.

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
        group, slopes = _check_names(self.group, "group", str), _check_names(self.slopes, "slopes", str | int)
        set_fields(self, group=group, slopes=slopes)
        set_fields(self, **{name: arrays.check_flag(getattr(self, name), name) for name in ("intercept", "correlated")})
        if not self.group:
            raise error_of("group", "must name a column of groups, got none")
        if any(isinstance(slope, int) and slope < 0 for slope in self.slopes):
            raise error_of("slopes", f"must count columns from 0, got {self.slopes!r}")
        if not (self.slopes or self.intercept):
            raise error_of("slopes", f"must name a column where intercept=False, got {self.slopes!r}")

    @property
    def blocks(self) -> list[tuple[str | int, ...]]:
        """The columns of each of its terms, `CONSTANT_COLUMN` for that of ones."""
        columns = ((CONSTANT_COLUMN,) if self.intercept else ()) + tuple(self.slopes)
        return [columns] if self.correlated else [(column,) for column in columns]


def _check_names(value, name, kinds):
    """Names or numbers of columns as a tuple."""
    values = (value,) if isinstance(value, str | int) else tuple(value) if isinstance(value, Sequence) else None
    if values is None or any(not isinstance(entry, kinds) or isinstance(entry, bool) for entry in values):
        raise error_of(name, f"must be the name of a column or several, got {value!r}", TypeError)
    if find_repeated(values) is not None:
        raise error_of(name, f"must name each column once, got {find_repeated(values)!r} twice")
    return values


def format_term_name(group, columns):
    """The name of a term, as formulas have it: "herd" of an intercept alone, "1 + days | subject" of more."""
    if tuple(columns) == (INTERCEPT_NAME,):
        return group
    return f"{' + '.join('1' if column == INTERCEPT_NAME else column for column in columns)} | {group}"


@dataclass(frozen=True, slots=True, eq=False)
class Term:
    """One block of random effects: for each level of a group one for each column, with one small covariance matrix.

    Attributes
    ----------
    levels : Levels
        Of the group.
    columns : tuple of str, k of them
        What the effects are coefficients of, `INTERCEPT_NAME` for the constant.
    index : tuple of int, or None
        Numbers of these columns in X, `CONSTANT_COLUMN` for the ones; None where a formula makes the columns.
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
        return format_term_name(self.group, self.columns)

    @property
    def shape(self):
        """Number of levels, and of effects of each."""
        return len(self.levels), len(self.columns)

    @property
    def block(self):
        """The block of its effects."""
        return LevelBlock(*self.shape)

    def is_open(self, covariance):
        """Whether its covariance matrix is to be found."""
        return covariance is None

    def free_parameters(self, covariance, spread):
        """The map from free numbers to its covariance matrix, None where that is given."""
        return None if covariance is not None else FreeCovariance(component_names(self), find_units(self, spread))

    @property
    def prior_targets(self):
        """Its standard deviations and correlations, as priors may be of them."""
        names = component_names(self)
        kinds = [("sd", LOG_SCALE)] * len(self.columns) + [("corr", FISHER_Z_SCALE)] * (len(names) - len(self.columns))
        return [PriorTarget(name, *kind, self.name) for name, kind in zip(names, kinds, strict=True)]

    def values(self, rows):
        """Numbers of levels and values of columns of some rows, a mask or a slice."""
        return self.codes[rows], self.Z[rows]

    @property
    def coded_values(self):
        """What `code_effects` takes: numbers of levels and values of columns."""
        return self.codes, self.Z

    def variances(self, covariance, rows):
        """The variance of f that its effects have in some rows under the prior."""
        Z = self.Z[rows]
        return np.einsum("ij,jk,ik->i", Z, covariance, Z)

    def check_setting(self, covariance, name):
        """Return its covariance matrix as one that is given; ValueError for another shape."""
        k = len(self.columns)
        if covariance is not None and np.shape(covariance) != (k, k):
            description = f"got {covariance!r}" if isinstance(covariance, dict) else f"got {np.shape(covariance)}"
            message = f"must have shape ({k}, {k}) for the effects of {', '.join(self.columns)}, {description}"
            raise error_of(name, message)
        return covariance

    def describe_setting(self, covariance):
        """Return its covariance matrix as a posterior's model has it."""
        return arrays.make_read_only(covariance)

    def named(self):
        """What decides the bits of a fit, by the words of messages."""
        return {f"levels of {self.name}": self.codes, f"columns of {self.name}": self.Z}

    def without_rows(self):
        """Return the term without rows, for a posterior."""
        return replace(self, codes=self.codes[:0], Z=self.Z[:0])


def make_terms(effects, X, names, groups):
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
    effects = check_effects(effects)
    table = take_group_columns(groups, [name for effect in effects for name in effect.group], len(X))
    blocks = []
    for effect in effects:
        for block in effect.blocks:
            index = tuple(
                CONSTANT_COLUMN if column == CONSTANT_COLUMN else _find_column(column, X, names) for column in block
            )
            columns = tuple(_name_column(j, names) for j in index)
            blocks.append((effect.group, columns, index, take_columns(X, index)))
    return make_terms_of_blocks(blocks, table)


def make_terms_of_blocks(blocks, table):
    """Return terms (group, columns, index, Z) of a table of groups as `Term`s, checked."""
    coded = {group: Levels.of(group, table) for group in dict.fromkeys(group for group, *_ in blocks)}
    return check_terms([Term(coded[group][0], *block, coded[group][1], Z) for group, *block, Z in blocks])


def check_effects(effects):
    """Return effects as a tuple of RandomEffects and structured terms."""
    kinds = str | RandomEffects | StructuredTerm
    entries = (effects,) if isinstance(effects, kinds) else effects
    if not isinstance(entries, Sequence) or not all(isinstance(entry, kinds) for entry in entries):
        message = (
            f"must be RandomEffects, terms of cavity.terms, names of columns of groups, or several, got {effects!r}"
        )
        raise error_of("effects", message, TypeError)
    return tuple(RandomEffects(entry) if isinstance(entry, str) else entry for entry in entries)


def _find_column(column, X, names):
    """The number of a column of X by its name or number."""
    if isinstance(column, str) and column in (names or ()):
        return names.index(column)
    if isinstance(column, int) and 0 <= column < X.shape[1]:
        return column
    available = join_names(names) if names else f"{X.shape[1]} without names, counted from 0"
    raise error_of("slopes", f"must be columns of X, got {column!r}; there is {available}")


def _name_column(j, names):
    """What a column of X is called."""
    return INTERCEPT_NAME if j == CONSTANT_COLUMN else names[j] if names else f"x{j + 1}"


def take_columns(X, index):
    """Return the values of some columns of X, ones for `CONSTANT_COLUMN`, (N, k)."""
    return np.column_stack([np.ones(len(X)) if j == CONSTANT_COLUMN else X[:, j] for j in index])


def check_terms(terms):
    """Return terms, unless one has a constant column, or two have the same."""
    names = set()
    for term in terms:
        for k, column in enumerate(term.columns):
            if column != INTERCEPT_NAME and np.all(term.Z[:, k] == term.Z[0, k]):
                constant = f"{term.Z[0, k]:g} in every row: its effects are those of an intercept of {term.group!r}"
                raise error_of("slopes", f"must differ between rows, got {column!r}, which is {constant}")
            if (term.group, column) in names:
                description = "an intercept" if column == INTERCEPT_NAME else f"a slope of {column!r}"
                raise error_of("effects", f"must have each effect once, got {description} of {term.group!r} twice")
            names.add((term.group, column))
    return terms


def read_new_terms(terms, X, groups, levels="known"):
    """Return levels and columns of terms for new rows.

    Parameters
    ----------
    terms : list of Term
        Those of a fit.
    X : ndarray (M, D)
        Checked rows, with the columns of the fit.
    groups : dict of columns (M,), data frame, or one column
        As in the fit.
    levels : {"known", "new", "zero"}
        Whether all levels must be those of the fit, or may be others, or do not count.

    Returns
    -------
    list of (codes (M,), Z (M, k))
        For each term the numbers of the levels, NEW_LEVEL for new ones, and the values of the columns.

    Raises
    ------
    ValueError, TypeError
        For levels that are new and must not be, naming them, and as in `make_terms_of_blocks`.
    """
    columns = [column for term in terms for column in term.levels.columns]
    table = take_group_columns(groups, select_group_columns(columns, column_names(groups), levels), len(X))
    return [
        (codes, take_columns(X, term.index))
        for term, codes in zip(terms, find_new_codes(terms, table, len(X), levels), strict=True)
    ]
