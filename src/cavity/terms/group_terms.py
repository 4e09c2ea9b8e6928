"""Effects of groups beyond independent ones: those of a given precision, and several levels in a row."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np

from cavity.base import arrays
from cavity.base.arrays import error_of
from cavity.base.frames import find_repeated
from cavity.base.labels import read_labels
from cavity.base.lazy_scipy import sparse
from cavity.base.public_objects import ArrayLike, FloatArray, set_fields
from cavity.terms import intrinsic
from cavity.terms.base import StructuredTerm, check_column
from cavity.terms.blocks import read_codes, read_numbers, scale_rows
from cavity.terms.contract import BuiltTerm, Parameter, ScaledStructures, list_variables
from cavity.terms.levels import Levels

MAX_ASYMMETRY = 1e-10  # of an entry of Q beside the largest
MAX_NULL_SHARE = 1e-8  # of what Q leaves of its null space


@dataclass(frozen=True, slots=True, eq=False)
class GivenPrecision(StructuredTerm):
    """Effects of a group whose precision matrix is given up to a factor: ``precision(g, Q)`` in formulas.

    The effects are N(0, sd^2 Q^-1): of animals with the inverse of a relationship matrix, of species with that of a
    phylogeny, of a Markov field of one's own. Levels of Q without rows take part all the same.

    Parameters
    ----------
    group : str or int
        Column of the levels that have effects of their own, or the number of one of X.
    Q : scipy sparse matrix or array_like (n, n)
        The precision, symmetric and positive definite; with `null` positive definite but for that space.
    levels : sequence (n,)
        Labels of its rows; all levels of the group must be among them.
    null : array_like (n, r), optional
        Null space N of Q. The effects are then those with N'b = 0; a constant stands for the intercept of the model,
        and other columns of N are not added to the fixed effects.
    scale : bool, default False
        Whether Q is divided by a number by which the geometric mean of the variances is 1, so that sd is that of a
        typical level (Sorbye and Rue, 2014).
    name_of_matrix : str, default "Q"
        What the matrix is called in the name of the term.

    Raises
    ------
    ValueError, TypeError
        For a matrix that is not symmetric, naming the pair; that is not positive definite; when a model is fitted, for
        levels that it has not.

    Examples
    --------
    >>> import cavity, numpy as np
    >>> Q = np.array([[2.0, -1.0, 0.0], [-1.0, 2.0, -1.0], [0.0, -1.0, 2.0]])
    >>> cavity.terms.GivenPrecision("area", Q, ["a", "b", "c"]).name
    'precision(area, Q)'
    """

    group: str | int
    Q: Any
    levels: Sequence[Any]
    null: ArrayLike | None = None
    scale: bool = False
    name_of_matrix: str = "Q"

    def __post_init__(self) -> None:
        check_column(self.group, "group")
        Q = sparse.csc_array(self.Q, dtype=np.float64)
        if Q.shape[0] != Q.shape[1] or not np.isfinite(Q.data).all():
            raise error_of("Q", f"must be a square matrix of finite numbers, got shape {Q.shape}")
        gap = sparse.coo_array(abs(Q - Q.T))
        largest = float(abs(Q).max()) if Q.nnz else 0.0
        if gap.nnz and gap.data.max() > MAX_ASYMMETRY * largest:
            at = int(np.argmax(gap.data))
            i, j = int(gap.coords[0][at]), int(gap.coords[1][at])
            raise error_of(
                "Q", f"must be symmetric, got {Q[i, j]:g} in row {i}, column {j}, and {Q[j, i]:g} in row {j}"
            )
        levels = tuple(np.asarray(self.levels, dtype=object).tolist())
        if len(levels) != Q.shape[0] or find_repeated(levels) is not None:
            raise error_of("levels", f"must be {Q.shape[0]} different labels, one a row of Q, got {len(levels)}")
        set_fields(self, Q=Q, levels=levels, scale=arrays.check_flag(self.scale, "scale"))
        if self.null is not None:
            null = arrays.check_finite_array(self.null, "null", ndim=(1, 2)).reshape(len(levels), -1)
            if np.max(np.abs(Q @ null)) > MAX_NULL_SHARE * largest * np.max(np.abs(null)):
                raise error_of("null", "must be a null space of Q, got columns that Q does not take to 0")
            set_fields(self, null=arrays.copy_read_only(null))

    @property
    def name(self) -> str:
        """The term as formulas have it."""
        return f"precision({self.group}, {self.name_of_matrix})"

    variables = property(list_variables)

    def build(self, table: Mapping[Any, Any]) -> BuiltTerm:
        """Return the term with its levels in order."""
        order = sorted(range(len(self.levels)), key=lambda i: self.levels[i])
        labels = tuple(self.levels[i] for i in order)
        levels = Levels((self.group,), (labels,), np.arange(len(labels))[:, None])
        null = None if self.null is None else self.null[order]
        built = BuiltPrecision(self.name, self.group, levels, self.Q[order][:, order], null, self.scale)
        try:
            _ = built.prior
        except ArithmeticError:
            hint = "" if self.null is not None else "; null= takes the null space of one that is not"
            raise error_of("Q", f"must be positive definite, which it is not{hint}") from None
        return built


@dataclass(frozen=True, eq=False)
class BuiltPrecision(BuiltTerm):
    """A `GivenPrecision` whose levels are in order."""

    name: str
    group: str | int
    levels: Levels
    Q: Any
    null: FloatArray | None
    scale: bool

    variables = property(list_variables)

    @property
    def size(self):
        """The number of effects."""
        return len(self.levels)

    def effect_names(self):
        """Return the names of the levels."""
        return self.levels.names

    @cached_property
    def prior(self):
        """That of the effects."""
        return self._prior_and_variances[0]

    @cached_property
    def _prior_and_variances(self):
        """The prior, and the diagonal of the covariance where sd is 1."""
        n, A = self.size, None
        if self.null is None:
            constant, variances, _ = intrinsic.factor_and_invert(self.Q)
        else:
            constant, variances = intrinsic.analyse(self.Q, self.null)
            A = self.null.T
            constant += 2.0 * np.linalg.slogdet(A @ self.null)[1]
        factor = intrinsic.geometric_mean(variances) if self.scale else 1.0
        rows, columns, entries = intrinsic.lower_triangle(self.Q)
        rank = n - (0 if A is None else len(A))
        prior = ScaledStructures(
            (Parameter("sd", unit=1.0 if self.scale else intrinsic.geometric_mean(variances) ** -0.5),),
            rows,
            columns,
            entries[None],
            A,
            (0,),
            (factor,),
            (rank,),
            constant,
        )
        return prior, variances / factor

    def grid(self, n):
        """Return the table of all levels."""
        return {self.group: np.array(self.levels.labels[0], dtype=object)}

    def design(self, table, levels="known"):
        """Return the rows Z of a table of columns, the effect of a level each."""
        codes = read_codes(self.levels, table, levels, "levels of Q")
        ends = np.concatenate([[0], np.cumsum(codes >= 0)])
        return sparse.csr_array((np.ones(ends[-1]), codes[codes >= 0], ends), (len(codes), self.size))

    def extra_variance(self, table, free, levels="known"):
        """Return the variance of new levels, for which that of a typical one is taken."""
        new = read_codes(self.levels, table, levels) < 0
        if not new.any() or levels == "zero":
            return None
        return np.where(new, np.exp(2.0 * free[0]) * intrinsic.geometric_mean(self._prior_and_variances[1]), 0.0)


@dataclass(frozen=True, slots=True, eq=False)
class MultiMembership(StructuredTerm):
    """Effects of one factor, several levels of which act in a row: ``mm(home, away)`` in formulas.

    f of a row has the sum of the effects of its levels times their weights: of two players of a game with the weights
    1 and -1, of the teachers of a pupil with shares. The effects are independent, or each level has a term of its own:
    ``rw1(t | mm(white, black, weights=(1, -1)))`` has a random walk for every player.

    Parameters
    ----------
    groups : sequence of str or int
        Columns of the levels, or numbers of those of X; all have the same levels.
    weights : sequence of float, str or int, optional
        A weight for each column: numbers, or columns of numbers. By default 1.
    effects : StructuredTerm, optional
        What each level has in place of one effect: a walk, an autoregression or a smooth, given without its group.
        In `curve <cavity.MixedGLMPosterior.curve>` the first column alone stands for a single level.

    Raises
    ------
    ValueError, TypeError
        For settings outside their domain; in predictions, for levels that the fit had not, naming them.

    Examples
    --------
    >>> import cavity
    >>> games = {"white": ["ann", "bob", "ann"], "black": ["bob", "cyd", "cyd"]}
    >>> term = cavity.terms.MultiMembership(("white", "black"), weights=(1, -1))
    >>> term.build(games).design(games).toarray()
    array([[ 1., -1.,  0.],
           [ 0.,  1., -1.],
           [ 1.,  0., -1.]])
    """

    groups: Sequence[str | int]
    weights: Sequence[float | str] | None = None
    effects: StructuredTerm | None = None

    def __post_init__(self) -> None:
        if isinstance(self.groups, str) or not isinstance(self.groups, Sequence) or len(self.groups) < 2:
            raise error_of("groups", f"must be two columns or more, got {self.groups!r}", TypeError)
        for group in self.groups:
            check_column(group, "groups")
        weights = (1.0,) * len(self.groups) if self.weights is None else self.weights
        if isinstance(weights, str) or len(weights) != len(self.groups):
            raise error_of("weights", f"must be one for each of {len(self.groups)} columns, got {self.weights!r}")
        weights = [weight if isinstance(weight, str) else arrays.check_number(weight, "weights") for weight in weights]
        set_fields(self, groups=tuple(self.groups), weights=tuple(weights))
        if self.effects is not None:
            if getattr(self.effects, "group", self) not in (None, self.groups[0]):
                raise error_of(
                    "effects", f"must be a term that has effects by group, without one; got {self.effects!r}"
                )
            set_fields(self, effects=replace(self.effects, group=self.groups[0]))

    @property
    def name(self) -> str:
        """The term as formulas have it."""
        own = f"mm({', '.join(map(str, self.groups))})"
        return own if self.effects is None else self.effects.name.replace(f"| {self.groups[0]}", f"| {own}")

    @property
    def variables(self) -> tuple[str | int, ...]:
        """The columns that it reads."""
        return list_member_columns(self.groups, self.weights, self.effects)

    def build(self, table: Mapping[Any, Any]) -> BuiltTerm:
        """Return the term with the levels of all columns."""
        if self.effects is not None:
            count = len(self.groups)
            stacked = {name: np.tile(np.asarray(table[name]), count) for name in self.effects.variables}
            columns = [list(read_labels(table[group], f"column {group!r}").values) for group in self.groups]
            stacked[self.groups[0]] = [label for column in columns for label in column]
            return BuiltMembers(self.name, self.groups, self.weights, self.effects.build(stacked))
        label_columns = [read_labels(table[group], f"column {group!r}") for group in self.groups]
        labels = sorted(
            {label for column in label_columns for label in (column.kinds or np.unique(column.values).tolist())}
        )
        levels = Levels((self.groups[0],), (tuple(labels),), np.arange(len(labels))[:, None])
        independent = BuiltPrecision(self.name, self.groups[0], levels, sparse.eye_array(len(labels)), None, False)
        return BuiltMembers(self.name, self.groups, self.weights, independent)


def list_member_columns(groups, weights, effects=None):
    """Return the columns that several levels a row read: their labels, weights, and those of their effects."""
    own = () if effects is None else effects.variables
    return tuple(dict.fromkeys((*groups, *(weight for weight in weights if isinstance(weight, str)), *own)))


def read_weights(weights, table, n):
    """Return the weights of the columns of levels, (n, columns)."""
    columns = [read_numbers(table, weight) if isinstance(weight, str) else np.full(n, weight) for weight in weights]
    return np.stack(columns, axis=1)


@dataclass(frozen=True, eq=False)
class BuiltMembers(BuiltTerm):
    """A `MultiMembership` with the term that its levels have by the first of the columns, `inner`."""

    name: str
    groups: tuple[Any, ...]
    weights: tuple[Any, ...]
    inner: BuiltTerm
    has_linked_rows = True

    @property
    def variables(self):
        """The columns that it reads."""
        return list_member_columns(self.groups, self.weights, self.inner)

    @property
    def point_variables(self):
        """The columns of a single level."""
        return self.inner.variables

    @property
    def size(self):
        """The number of effects."""
        return self.inner.size

    @property
    def has_knots(self):
        """Whether more effects may show more of the same function."""
        return self.inner.has_knots

    @property
    def prior(self):
        """That of the effects."""
        return self.inner.prior

    def effect_names(self):
        """Return the names of the effects."""
        return self.inner.effect_names()

    def grid(self, n):
        """Return the table of the term by single levels."""
        return self.inner.grid(n)

    def _list_levels(self, table):
        """For each column of levels its weights (M,), and the table of the term; one of weight 1 of single levels."""
        if any(group not in table for group in self.groups):
            return [(np.ones(len(table[self.groups[0]])), table)]
        weights = read_weights(self.weights, table, len(table[self.groups[0]]))
        tables = [table | {self.groups[0]: table[group]} for group in self.groups]
        return list(zip(weights.T, tables, strict=True))

    def design(self, table, levels="known"):
        """Return the rows Z of a table of columns: those of the levels, times weights, added."""
        first, *others = (
            scale_rows(self.inner.design(level_table, levels), w) for w, level_table in self._list_levels(table)
        )
        for rows in others:
            first = first + rows
        return sparse.csr_array(first)

    def extra_variance(self, table, free, levels="known"):
        """Return the variance that the effects do not have, that of each column on its own."""
        total = None
        for w, level_table in self._list_levels(table):
            variance = self.inner.extra_variance(level_table, free, levels)
            if variance is not None:
                total = w**2 * variance + (0.0 if total is None else total)
        return total

    def extra_covariance(self, table, origin, free, derivative=False):
        """Return that of all pairs of columns, times their weights; None where the term has none."""
        total = 0.0
        for w, level_table in self._list_levels(table):
            for w_origin, level_origin in self._list_levels(origin):
                shared = self.inner.extra_covariance(level_table, level_origin, free, derivative)
                if shared is None:
                    return None
                total = total + w * w_origin[0] * shared
        return total
