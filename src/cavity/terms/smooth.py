"""Smooth functions of one variable: cubic B-splines with a prior on the integrated squared second derivative.

References
----------
.. [W] S. N. Wood, "P-splines with derivative based penalties and tensor product smoothing of unevenly distributed
   data", Statistics and Computing 27, 2017.
.. [Wa] G. Wahba, "Improper priors, spline smoothing and the problem of guarding against model errors in regression",
   Journal of the Royal Statistical Society B 40, 1978.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from cavity.base import arrays
from cavity.base.arrays import error_of
from cavity.base.labels import read_labels
from cavity.base.lazy_scipy import sparse
from cavity.base.public_objects import ArrayLike, FloatArray, set_fields
from cavity.terms import splines
from cavity.terms.base import StructuredTerm, check_column
from cavity.terms.blocks import (
    build_levels,
    find_pattern,
    place_rows,
    read_codes,
    read_numbers,
    read_numbers_that_vary,
    repeat_constraints,
    repeat_pattern,
    scale_rows,
)
from cavity.terms.contract import BuiltTerm, Parameter, ScaledStructures, list_variables
from cavity.terms.levels import Levels

DEFAULT_BASIS, DEFAULT_GROUP_BASIS = 40, 10  # most B-splines where k is not given
MIN_BASIS = 4  # cubic B-splines on one interval
# of an interval between knots at quantiles, in equal ones: penalties grow with its third power, and from .001 on
# searches of columns such as exp(2.5 z), z normal, lose their digits
MIN_INTERVAL_SHARE = 0.05
MAX_LEVELS_OF_OWN_SD = 4  # of a factor: with more levels their curves share one sd
VARIANCE_OF_UNIT = 1.0 / 420.0  # of f on average over [0, 1], for f'' white noise of variance 1 and f without its line
VARIANCE_OF_UNIT_CYCLE = 1.0 / 720.0  # the same of a cycle of length 1, for f without its mean


@dataclass(frozen=True, slots=True, eq=False)
class Smooth(StructuredTerm):
    """A smooth function of a variable: ``s(x)`` in formulas.

    The function is a cubic spline whose second derivative is white noise under the prior [W]_: the posterior mean is a
    cubic smoothing spline. Its line, which the prior does not limit, is a fixed effect, "s(x) slope", of the variable
    centred at the middle of its range and divided by the range; the intercept is that of the model.

    The parameter of the prior, sd, is the root mean square departure of the function from its line over the range of
    the variable, in units of the link: v R^3/420 = sd^2, v the variance of the noise and R the range; v P^3/720 = sd^2
    for a cycle of length P. It does not depend on units, and as soon as the knots resolve the function not on how many
    they are and where.

    By group, ``s(x | g)``, each level has a function, whose intercept and line are random effects; the parameters are
    then sd, sd(intercept) and sd(slope), the last that of the line over the range.

    Parameters
    ----------
    column : str or int
        The variable: the name of a column of numbers, or the number of one of X.
    k : int, optional
        Number of B-splines, at least 4 and at most that of distinct values. By default 40, or 10 by group, or as many
        as there are distinct values. More of them change nothing once the function is resolved.
    by : str or int, optional
        Of labels: a function for each level, which has an sd of its own up to four levels, else all share one; the
        levels themselves should be fixed effects, and formulas add them. Of numbers z: the function is multiplied by z.
    group : str or int, optional
        Column of the levels that have effects of their own, or the number of one of X.
    period : float, optional
        Length of the cycle of a periodic function, in units of the variable. There is no line then, and sd is that of
        the function from its mean.
    knots : array_like, optional
        Boundaries of the intervals, increasing, from the lowest value or below to the highest or above: the range is
        theirs. By default at equal distances, or at quantiles of the distinct values where more than half of the
        intervals had no rows.
    extrapolate : bool, optional
        Whether new rows may be beyond the range, where the function goes on as a line, with a variance that grows like
        that of the integral of the noise [Wa]_, v h^3/3 at a distance h. By default True without `by` and `group`.

    Raises
    ------
    ValueError, TypeError
        For settings outside their domain; when a model is fitted, for columns that have no such function.

    Examples
    --------
    >>> import cavity, numpy as np
    >>> x = np.linspace(0.0, 1.0, 200)
    >>> y = np.sin(6.0 * x) + 0.3 * np.random.default_rng(0).normal(size=200)
    >>> model = cavity.MixedGLM([cavity.terms.Smooth("x")], "gaussian")
    >>> posterior = model.fit(np.ones((200, 1)), y, groups={"x": x})
    >>> posterior.hyperparameters.names
    ('sd(s(x))', 'noise_variance')
    """

    column: str | int
    k: int | None = None
    by: str | int | None = None
    group: str | int | None = None
    period: float | None = None
    knots: ArrayLike | None = None
    extrapolate: bool | None = None

    def __post_init__(self) -> None:
        for name in ("column", "by", "group"):
            check_column(getattr(self, name), name, optional=name != "column")
        if self.k is not None:
            set_fields(self, k=arrays.check_integer(self.k, "k", low=MIN_BASIS))
        if self.period is not None:
            set_fields(self, period=arrays.check_number(self.period, "period", low=0.0))
        if self.knots is not None:
            knots = arrays.check_finite_array(self.knots, "knots", ndim=(1,))
            if len(knots) < 2 or np.any(np.diff(knots) <= 0):
                raise error_of("knots", "must be at least two numbers that increase")
            set_fields(self, knots=arrays.copy_read_only(knots))
        if self.extrapolate is not None:
            set_fields(self, extrapolate=arrays.check_flag(self.extrapolate, "extrapolate"))
        clashes = [("by", "group"), ("period", "knots"), ("period", "group"), ("k", "knots")]
        for one, other in clashes:
            if getattr(self, one) is not None and getattr(self, other) is not None:
                raise error_of(other, f"must be None where there is {one}, got {getattr(self, other)!r}")

    @property
    def name(self) -> str:
        """The term as formulas have it."""
        if self.group is not None:
            return f"s({self.column} | {self.group})"
        return f"s({self.column})" if self.by is None else f"s({self.column}, by={self.by})"

    @property
    def long_name(self) -> str:
        """The name with the period."""
        return self.name if self.period is None else f"{self.name[:-1]}, period={self.period:g})"

    variables = property(list_variables)

    @property
    def binned_variables(self) -> tuple[str | int, ...]:
        """The covariate."""
        return (self.column,)

    def build(self, table: Mapping[Any, Any]) -> BuiltTerm:
        """Return the term with its knots and levels."""
        x = read_numbers_that_vary(table, self.column, self.name)
        factor, levels, size = self.group, None, 1.0
        if self.by is not None and read_labels(table[self.by], f"column {self.by!r}").kinds is not None:
            factor = self.by
        elif self.by is not None:
            z = read_numbers(table, self.by)
            size = float(np.sqrt(np.mean(z * z)))
            if size == 0:
                raise error_of(f"column {self.by!r}", f"must not be 0 in every row, as {self.name} is multiplied by it")
        if factor is not None:
            levels = build_levels(table, factor)[0]
        extrapolate = self.by is None and self.group is None if self.extrapolate is None else self.extrapolate
        low, high, breaks = self._choose_range(x)
        columns = self.column, self.by, self.group
        periodic = self.period is not None
        n_values = len(np.unique(x % self.period if periodic else x))
        is_full = self.knots is None and n_values <= len(breaks) + (-1 if periodic else 2)
        return BuiltSmooth(self.name, *columns, low, high, breaks, periodic, levels, size, extrapolate, is_full)

    def _choose_range(self, x):
        """Return the lowest and highest value, and breaks (intervals + 1,) between 0 and 1; of a cycle their number."""
        distinct = np.unique(x if self.period is None else np.mod(x, self.period))
        if self.knots is not None:
            low, high = float(self.knots[0]), float(self.knots[-1])
            if x.min() < low or x.max() > high:
                raise error_of("knots", f"must span {x.min():g} to {x.max():g}, got {low:g} to {high:g}")
            return low, high, (self.knots - low) / (high - low)
        most = DEFAULT_BASIS if self.group is None else DEFAULT_GROUP_BASIS
        k = choose_size(self.k, distinct, most, self.column, self.name, self.period)
        if self.period is not None:
            return 0.0, self.period, np.linspace(0.0, 1.0, k + 1)
        return place_breaks(distinct, k)


def choose_size(k, distinct, most, column, term, period):
    """Return the checked number of B-splines for the different values of a column; None is `most`, or as many."""
    modulo, n = "" if period is None else f" modulo {period:g}", len(distinct)
    if n < MIN_BASIS:
        message = f"must have {MIN_BASIS} different values{modulo} for {term}, got {n}: use it as it is, or as a factor"
        raise error_of(f"column {column!r}", message)
    k = min(n, most) if k is None else k
    if k > n or k < MIN_BASIS:
        values = f"the number of different values of column {column!r}{modulo}"
        raise error_of("k", f"of {term} must be from {MIN_BASIS} to {n}, {values}, got {k}")
    return k


def place_breaks(distinct, k):
    """Return the range of different values in order, and the breaks (k - 2,) between 0 and 1 for k B-splines."""
    low, high = float(distinct[0]), float(distinct[-1])
    breaks = np.linspace(0.0, 1.0, k - 2)
    filled = np.unique(np.searchsorted(breaks, (distinct - low) / (high - low), side="left"))
    if len(filled) < 0.5 * (k - 3):
        shares = np.diff(np.quantile(distinct, breaks)) / (high - low)
        shares = np.maximum(shares, MIN_INTERVAL_SHARE / (k - 3))
        breaks = np.append(0.0, np.cumsum(shares / np.sum(shares)))
        breaks[-1] = 1.0
    return low, high, breaks


@dataclass(frozen=True, eq=False)
class BuiltSmooth(BuiltTerm):
    """A `Smooth` with its knots.

    Attributes
    ----------
    name, column, by, group, extrapolate
        As those of `Smooth`.
    low, high : float
        The range of the variable, which becomes [0, 1].
    breaks : ndarray
        Boundaries of the intervals in [0, 1].
    periodic : bool
        Whether the function is periodic.
    levels : Levels or None
        Of the factor or group.
    by_size : float
        Root mean square of the numbers that multiply the function, 1 without them.
    is_full : bool
        Whether there is a B-spline for each value of the variable.
    """

    name: str
    column: str | int
    by: str | int | None
    group: str | int | None
    low: float
    high: float
    breaks: FloatArray
    periodic: bool
    levels: Levels | None
    by_size: float
    extrapolate: bool
    is_full: bool = False
    has_knots = True

    variables = property(list_variables)

    @property
    def k(self):
        """The number of B-splines."""
        return len(self.breaks) - 1 if self.periodic else len(self.breaks) + splines.SPLINE_DEGREE - 1

    @property
    def n_blocks(self):
        """The number of functions."""
        return 1 if self.levels is None else len(self.levels)

    @property
    def size(self):
        """The number of effects."""
        return self.k * self.n_blocks

    @cached_property
    def knots(self):
        """The knots of the B-splines."""
        return splines.extend_knots(self.breaks)

    # ------------------------------------------------------------------------------------------ the prior

    @cached_property
    def prior(self):
        """That of the effects."""
        if self.periodic:
            S, N, A = splines.integrate_periodic(self.k, 2), np.ones((self.k, 1)), np.full((1, self.k), 1.0 / self.k)
        else:
            S, N, A = splines.roughness(self.knots), splines.lines(self.knots), splines.moments(self.knots)
        inner, constant = splines.log_determinants(S, N, A)
        if self.group is not None:
            return self._grouped_prior(S, N, A, inner)
        scale = VARIANCE_OF_UNIT_CYCLE if self.periodic else VARIANCE_OF_UNIT
        rows, columns = find_pattern(S)
        block, count, rank = S[rows, columns], self.n_blocks, self.k - N.shape[1]
        own = 1 < count <= MAX_LEVELS_OF_OWN_SD
        names = [f"sd({level})" for level in self.levels.names] if own else ["sd"]
        structures = np.kron(np.eye(count), block) if own else np.tile(block, (1, count))
        which = tuple(range(count)) if own else (0,)
        return ScaledStructures(
            tuple(Parameter(name, unit=1.0 / self.by_size) for name in names),
            *repeat_pattern(rows, columns, self.k, count),
            structures,
            repeat_constraints(A, count),
            which,
            (scale,) * len(which),
            (rank if own else rank * count,) * len(which),
            count * constant,
        )

    def _grouped_prior(self, S, N, A, inner):
        """That of functions by group, S/v + G'V^-1 G for each: G = (A N)^-1 A takes out its line, of the variances V.

        It is that of a function with A b = 0 and of the line N a, a ~ N(0, V), b and a of each group together; its log
        determinant is log|S|* - log|N'N| + log|V^-1| where v is 1.
        """
        G = np.linalg.solve(A @ N, A)
        rows, columns = np.tril_indices(self.k)
        matrices = [S, *(np.outer(g, g) for g in G)]
        count = self.n_blocks
        parameters = Parameter("sd"), Parameter("sd(intercept)"), Parameter("sd(slope)", unit=np.sqrt(12.0))
        pattern = repeat_pattern(rows, columns, self.k, count)
        structures = np.stack([np.tile(matrix[rows, columns], count) for matrix in matrices])
        scales, ranks = (VARIANCE_OF_UNIT, 1.0, 1.0), ((self.k - 2) * count, count, count)
        return ScaledStructures(parameters, *pattern, structures, None, (0, 1, 2), scales, ranks, count * inner)

    # ------------------------------------------------------------------------------------------ rows

    def design(self, table, levels="known"):
        """Return the rows Z of a table of columns."""
        return self._place(self._evaluate(table)[0], table, levels)

    @property
    def derivative_variables(self):
        """The variable."""
        return (self.column,)

    def derivative_design(self, table, column, levels="known"):
        """Return the rows of the derivative in the variable, and the derivatives of fixed columns by their names."""
        t = self._scaled(table)
        if self.periodic:
            rows = splines.evaluate_periodic(t, self.k, 1)
        else:
            rows = splines.evaluate(np.clip(t, 0.0, 1.0), self.knots, 1)
        length = self.high - self.low
        before = self.fixed_columns(table)
        after = self.fixed_columns({**table, self.column: read_numbers(table, self.column) + length})
        fixed = {name: (after[name] - values) / length for name, values in before.items()}  # these are lines
        return self._place(rows / length, table, levels), fixed

    def _scaled(self, table):
        """The variable in units of its range."""
        return (read_numbers(table, self.column) - self.low) / (self.high - self.low)

    def _evaluate(self, table):
        """Rows of the B-splines, and how far each is beyond the range; ValueError where it may not be."""
        t = self._scaled(table)
        if self.periodic:
            return splines.evaluate_periodic(t, self.k), np.zeros(len(t))
        rows, beyond = splines.evaluate_beyond(t, self.knots)
        if beyond.any() and not self.extrapolate:
            row = int(np.argmax(beyond > 0))
            value, extent = self.low + t[row] * (self.high - self.low), f"{self.low:g} to {self.high:g}"
            message = f"must be within the range of the fit, {extent}, got {value:g} in row {row}"
            raise error_of(f"column {self.column!r}", f"{message}; extrapolate=True of the term continues lines")
        return rows, beyond

    def _place(self, rows, table, levels):
        """Rows of the effects from rows of the B-splines."""
        if self.levels is not None:
            return place_rows(sparse.csr_array(rows), read_codes(self.levels, table, levels), self.n_blocks)
        return sparse.csr_array(rows) if self.by is None else scale_rows(rows, read_numbers(table, self.by))

    def fixed_columns(self, table):
        """Return the columns of the null space: lines, but not of cycles and groups."""
        if self.group is not None:
            return {}
        line, slope = self._scaled(table) - 0.5, f"{self.name} slope"
        if self.levels is not None:
            codes = self.levels.codes(table)
            pairs = enumerate(self.levels.names)
            return {} if self.periodic else {f"{slope}[{level}]": line * (codes == j) for j, level in pairs}
        if self.by is None:
            return {} if self.periodic else {slope: line}
        z = read_numbers(table, self.by)
        return {f"{self.name} intercept": z} | ({} if self.periodic else {slope: z * line})

    def extra_variance(self, table, free, levels="known"):
        """Return the variance of f beyond the range, and of levels of groups that the fit had not."""
        rows, beyond = self._evaluate(table)
        codes = np.zeros(len(beyond), dtype=np.intp)
        if self.levels is not None:
            codes = read_codes(self.levels, table, levels)
        if not beyond.any() and np.all(codes >= 0):
            return None
        out = self._noise_variance(free, codes) * beyond**3 / 3.0  # v h^3/3 [Wa]_
        if self.group is not None and levels == "new" and np.any(codes < 0):
            new = codes < 0
            value, k = self.prior.evaluate(free), self.k
            precision = np.zeros((k, k))
            precision[np.tril_indices(k)] = (value.coefficients @ self.prior.structures)[: k * (k + 1) // 2]
            precision += np.tril(precision, -1).T
            chosen = rows[new].toarray()
            out[new] += np.sum(chosen * np.linalg.solve(precision, chosen.T).T, axis=1)
        return out if self.by is None or self.levels is not None else out * read_numbers(table, self.by) ** 2

    def _noise_variance(self, free, codes):
        """The variance v of the noise, in units of the range, of each row."""
        sd = np.exp(np.asarray(free))
        return (sd[codes] if len(sd) == self.n_blocks > 1 and self.group is None else sd[0]) ** 2 / VARIANCE_OF_UNIT

    def derivative_variance(self, table, free):
        """Return the variance v h of the derivative beyond the range."""
        beyond = self._evaluate(table)[1] / (self.high - self.low) ** 2
        if self.levels is not None:
            return self._noise_variance(free, read_codes(self.levels, table)) * beyond
        by = 1.0 if self.by is None else read_numbers(table, self.by)
        return self._noise_variance(free, np.zeros(len(beyond), dtype=np.intp)) * beyond * by**2

    def extra_covariance(self, table, origin, free, derivative=False):
        """Return v (h h'^2/2 - h'^3/6) for distances h' <= h beyond the same end, v h' of derivatives."""
        beyond, other = self._evaluate(table)[1], self._evaluate(origin)[1][0]
        shorter, longer = np.minimum(beyond, other), np.maximum(beyond, other)
        is_same = (self._scaled(table) > 0.5) == (self._scaled(origin)[0] > 0.5)
        codes = np.zeros(len(beyond), dtype=np.intp)
        if self.levels is not None:
            codes = read_codes(self.levels, table)
            is_same &= codes == read_codes(self.levels, origin)[0]
        elif self.by is not None:
            is_same = is_same * read_numbers(table, self.by) * read_numbers(origin, self.by)[0]
        unit = shorter / (self.high - self.low) ** 2 if derivative else shorter**2 * (longer / 2.0 - shorter / 6.0)
        return self._noise_variance(free, codes) * unit * is_same

    def grid(self, n):
        """Return a table of n points over the range, for each level, and of the number 1 in place of others."""
        x = np.linspace(self.low, self.high, n)
        if self.levels is None:
            return {self.column: x} | ({} if self.by is None else {self.by: np.ones(n)})
        labels = np.repeat(np.array(self.levels.labels[0], dtype=object), n)
        return {self.column: np.tile(x, self.n_blocks), self.by or self.group: labels}
