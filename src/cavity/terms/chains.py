"""Effects of consecutive times: first-order autoregressions and seasonal patterns; rows of chains of states.

References
----------
.. [RH] H. Rue and L. Held, "Gaussian Markov Random Fields", 2005.
.. [SR] S. H. Sorbye and H. Rue, "Scaling intrinsic Gaussian Markov random field priors in spatial modelling", Spatial
   Statistics 8, 2014.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from cavity.base import arrays
from cavity.base.arrays import error_of
from cavity.base.lazy_scipy import sparse
from cavity.base.public_objects import FloatArray, IntArray, set_fields
from cavity.terms import intrinsic
from cavity.terms.base import StructuredTerm, check_column
from cavity.terms.blocks import build_groups, read_codes, read_numbers
from cavity.terms.contract import BuiltTerm, Parameter, PriorValue, ScaledStructures, TermPrior, list_variables
from cavity.terms.levels import Levels

MAX_STATES_PER_ROW = 100  # of chains whose gaps have states: beyond it, times are hardly consecutive


class ChainRows:
    """Base of built terms whose effects are states of chains: `times` (k,), and where those of each level begin."""

    variables = property(list_variables)

    @property
    def size(self):
        """The number of effects."""
        return len(self.times)

    def _find_states(self, table, levels="known"):
        """Return times (M,), for each row the state at or before its time (the first one if there is none), whether it
        is of a level without states, and the last state of its level.
        """
        t = read_numbers(table, self.column)
        codes = np.zeros(len(t), dtype=np.intp)
        if self.group is not None:
            codes = read_codes(self.levels, table, levels)
        new, codes = codes < 0, np.maximum(codes, 0)
        distinct = np.unique(self.times)
        count = len(distinct) + 1
        level = np.repeat(np.arange(len(self.firsts) - 1), np.diff(self.firsts))
        keys = level * count + np.searchsorted(distinct, self.times) + 1
        before = np.searchsorted(keys, codes * count + np.searchsorted(distinct, t, side="right"), side="right") - 1
        return t, np.maximum(before, self.firsts[codes]), new, self.firsts[codes + 1] - 1

    def _find_rows(self, table, levels, relation):
        """Return the rows Z of a table of columns, a state each; ValueError with a `relation` for times without one."""
        t, before, new, _ = self._find_states(table, levels)
        off = (t != self.times[before]) & ~new
        if off.any():
            raise self._refuse_time(int(np.argmax(off)), t, relation)
        return self._make_rows(before[:, None], np.ones((len(t), 1)), ~new)

    def _make_rows(self, states, weights, keep):
        """Return rows (M, k) of weights (M, s) at states (M, s), none where `keep` is false."""
        weights = np.where(keep[:, None], weights, 0.0)
        rows = sparse.csr_array(
            (weights.ravel(), states.ravel(), states.shape[1] * np.arange(len(states) + 1)), (len(states), self.size)
        )
        rows.eliminate_zeros()
        return rows

    def _refuse_time(self, row, t, relation):
        """Return the ValueError for the time of a row that has no state."""
        extent = f"{self.times.min():g} to {self.times.max():g}"
        message = f"must have times of the fit, which are within {extent}, got {t[row]:g} in row {row}; {relation}"
        return error_of(f"column {self.column!r}", message)

    def effect_names(self):
        """Return the times of the states, with their level."""
        times = [f"{t:g}" for t in self.times]
        if self.group is None:
            return times
        names = np.repeat(self.levels.names, np.diff(self.firsts))
        return [f"{name} {t}" for name, t in zip(names.tolist(), times, strict=True)]

    def grid(self, n):
        """Return the table of all states."""
        if self.group is None:
            return {self.column: self.times}
        labels = np.array(self.levels.labels[0], dtype=object)
        return {self.column: self.times, self.group: np.repeat(labels, np.diff(self.firsts))}


def add_structures(parameters, matrices, ranks):
    """Return the prior of a regular sum of sparse structures with a parameter each, whose ranks add up to its size."""
    total = sum(matrices[1:], matrices[0])
    rows, columns, _ = intrinsic.lower_triangle(total)
    structures = np.stack([sparse.csr_array(matrix)[rows, columns] for matrix in matrices])
    which, scales, constant = tuple(range(len(ranks))), (1.0,) * len(ranks), intrinsic.factor_and_invert(total)[0]
    return ScaledStructures(parameters, rows, columns, structures, None, which, scales, tuple(ranks), constant)


# ------------------------------------------------------------------------------------------ consecutive times


def read_consecutive_times(table, column, name):
    """Return a column of whole numbers."""
    t = read_numbers(table, column)
    off = t != np.round(t)
    if off.any():
        row = int(np.argmax(off))
        message = f"must hold whole numbers for {name}, got {t[row]:g} in row {row}"
        raise error_of(f"column {column!r}", f"{message}; number the times, or take rw1 or s")
    return t


def make_chains(t, codes, n_levels, until, name, column):
    """Return the times of all states of chains without gaps, and the first state of each of so many levels."""
    ends = [(t[codes == level].min(), t[codes == level].max()) for level in range(n_levels)]
    total = sum(high - low + 1 for low, high in ends)
    if total > MAX_STATES_PER_ROW * max(len(t), 1):
        message = (
            f"must hold consecutive whole numbers, got {len(t)} rows over {total:.0f} times: {name} fills its gaps"
        )
        raise error_of(f"column {column!r}", f"{message}; number the times, or take rw1 or s")
    if until is not None and any(high > until for _, high in ends):
        raise error_of("until", f"must be at least the last time, {max(high for _, high in ends):g}, got {until}")
    chains = [np.arange(low, (high if until is None else until) + 1) for low, high in ends]
    return np.concatenate(chains), np.cumsum([0, *map(len, chains)])


@dataclass(frozen=True, slots=True, eq=False)
class Autoregressive(StructuredTerm):
    """A stationary autoregression of order 1 over consecutive times: ``ar1(t)`` in formulas.

    States u_t = rho u_(t-1) + noise, with one standard deviation sd at all times; between times of rows there are
    states without rows. The precision is tridiagonal, n log(1/sd^2) - (n - 1) log(1 - rho^2) its log determinant
    ([RH]_, section 1.1).

    Parameters
    ----------
    column : str or int
        The variable: the name of a column of numbers, or the number of one of X.
    group : str or int, optional
        Column of the levels that have effects of their own, or the number of one of X.
    until : int, optional
        Last time of all chains, for forecasts; by default the last one of the rows of each level.

    Raises
    ------
    ValueError, TypeError
        For settings outside their domain; when a model is fitted, for times that are not whole numbers, or far apart.

    Examples
    --------
    >>> import cavity, numpy as np
    >>> t = np.arange(60)
    >>> y = np.random.default_rng(0).poisson(np.exp(1.0 + np.sin(t / 5.0)))
    >>> model = cavity.MixedGLM([cavity.terms.Autoregressive("t")], "poisson")
    >>> model.fit(np.ones((60, 1)), y, groups={"t": t}).hyperparameters.names
    ('sd(ar1(t))', 'rho(ar1(t))')
    """

    column: str | int
    group: str | int | None = None
    until: int | None = None

    def __post_init__(self) -> None:
        check_column(self.column, "column")
        check_column(self.group, "group", optional=True)
        if self.until is not None:
            set_fields(self, until=arrays.check_integer(self.until, "until", low=-(2**62)))

    @property
    def name(self) -> str:
        """The term as formulas have it."""
        return f"ar1({self.column}{'' if self.group is None else f' | {self.group}'})"

    variables = property(list_variables)

    def build(self, table: Mapping[Any, Any]) -> BuiltTerm:
        """Return the term with the times of its states."""
        t = read_consecutive_times(table, self.column, self.name)
        levels, codes = build_groups(table, self.group, len(t))
        count = 1 if levels is None else len(levels)
        times, firsts = make_chains(t, codes, count, self.until, self.name, self.column)
        return BuiltAutoregression(self.name, self.column, self.group, times, firsts, levels)


@dataclass(frozen=True, eq=False)
class AutoregressivePrior(TermPrior):
    """P = [I + rho^2 I_inner - rho (neighbours)]/(sd^2 (1 - rho^2)) of each chain; 1/sd^2 of a chain of one state.

    The structures are I, I_inner, minus the neighbours, and I of chains of one state, which the first leaves out.
    """

    n_states: int
    n_steps: int

    def evaluate(self, free):
        """Return the prior at the log of sd, and log((1 + rho)/(1 - rho))."""
        precision, rho = np.exp(-2.0 * free[0]), np.tanh(0.5 * free[1])
        rest = 1.0 / np.cosh(0.5 * free[1]) ** 2  # 1 - rho^2
        c = precision / rest
        coefficients = np.array([c, rho**2 * c, rho * c, precision])
        by_rho = np.array([rho * c, rho * c, 0.5 * (1.0 + rho**2) * c, 0.0])
        value = -2.0 * self.n_states * free[0] - self.n_steps * np.log(rest)
        slopes = np.stack([-2.0 * coefficients, by_rho], axis=1)
        return PriorValue(coefficients, slopes, float(value), np.array([-2.0 * self.n_states, self.n_steps * rho]))


@dataclass(frozen=True, eq=False)
class BuiltAutoregression(ChainRows, BuiltTerm):
    """An `Autoregressive` with its states."""

    name: str
    column: str | int
    group: str | int | None
    times: FloatArray
    firsts: IntArray
    levels: Levels | None

    @cached_property
    def prior(self):
        """That of the effects."""
        n, counts = self.size, np.diff(self.firsts)
        single = np.zeros(n)
        single[self.firsts[:-1][counts == 1]] = 1.0
        inner = 1.0 - single
        inner[self.firsts[:-1]] = inner[self.firsts[1:] - 1] = 0.0
        within = np.ones(n - 1, dtype=bool)
        within[self.firsts[1:-1] - 1] = False
        at = np.flatnonzero(within)
        rows, columns = np.concatenate([np.arange(n), at + 1]), np.concatenate([np.arange(n), at])
        none, steps = np.zeros(n), np.zeros(len(at))
        structures = [
            np.concatenate(parts)
            for parts in ((1.0 - single, steps), (inner, steps), (none, steps - 1.0), (single, steps))
        ]
        parameters = Parameter("sd"), Parameter("rho", "fisher z")
        return AutoregressivePrior(parameters, rows, columns, np.stack(structures), None, n, len(at))

    def design(self, table, levels="known"):
        """Return the rows Z of a table of columns, a state each."""
        return self._find_rows(table, levels, "until= of the term adds times to come")

    def extra_variance(self, table, free, levels="known"):
        """Return the variance of new levels."""
        new = self._find_states(table, levels)[2]
        return np.where(new, np.exp(2.0 * free[0]), 0.0) if new.any() and levels == "new" else None


@dataclass(frozen=True, slots=True, eq=False)
class Seasonal(StructuredTerm):
    """A seasonal pattern that changes slowly: ``seasonal(t, m)`` in formulas.

    Sums of m consecutive effects are N(0, v) ([RH]_, section 3.4.3). The m - 1 patterns that repeat and sum to zero are
    fixed effects, "seasonal(t, 12)[1]" and so on: differences to the pattern's last season; the effects are departures
    from them. The parameter sd is the geometric mean of their standard deviations [SR]_, in units of the link.

    By group, ``seasonal(t | g, 12)``, each level has a pattern from its first time on, whose first seasons sum to zero
    and are N(0, sd(start)^2) each; sd is then that of the sum of m consecutive effects.

    Parameters
    ----------
    column : str or int
        The variable: the name of a column of numbers, or the number of one of X.
    period : int
        The number of seasons m, at least 2.
    group : str or int, optional
        Column of the levels that have effects of their own, or the number of one of X.

    Raises
    ------
    ValueError, TypeError
        For settings outside their domain; when a model is fitted, for times that are not whole numbers, or too few.

    Notes
    -----
    For a pattern that does not change, ``s(month, period=12)`` has fewer effects.

    Examples
    --------
    >>> import cavity
    >>> cavity.terms.Seasonal("month", 12).name
    'seasonal(month, 12)'
    """

    column: str | int
    period: int
    group: str | int | None = None

    def __post_init__(self) -> None:
        check_column(self.column, "column")
        check_column(self.group, "group", optional=True)
        set_fields(self, period=arrays.check_integer(self.period, "period", low=2))

    @property
    def name(self) -> str:
        """The term as formulas have it."""
        return f"seasonal({self.column}{'' if self.group is None else f' | {self.group}'}, {self.period})"

    variables = property(list_variables)

    def build(self, table: Mapping[Any, Any]) -> BuiltTerm:
        """Return the term with the times of its states."""
        t = read_consecutive_times(table, self.column, self.name)
        levels, codes = build_groups(table, self.group, len(t))
        count = 1 if levels is None else len(levels)
        times, firsts = make_chains(t, codes, count, None, self.name, self.column)
        if np.max(np.diff(firsts)) <= self.period:
            message = f"must have more times than a cycle of {self.period}, got {np.max(np.diff(firsts))} of them"
            raise error_of(f"column {self.column!r}", message)
        return BuiltSeasonal(self.name, self.column, self.period, times, firsts, self.group, levels)


@dataclass(frozen=True, eq=False)
class BuiltSeasonal(ChainRows, BuiltTerm):
    """A `Seasonal` with its states."""

    name: str
    column: str | int
    period: int
    times: FloatArray
    firsts: IntArray
    group: str | int | None = None
    levels: Levels | None = None

    @cached_property
    def prior(self):
        """That of the effects."""
        n, m = self.size, self.period
        ends = np.repeat(self.firsts[1:], np.diff(self.firsts))
        at = np.flatnonzero(np.arange(n) + m <= ends)  # where the sums begin
        C = sparse.csr_array(
            (np.ones(m * len(at)), (at[:, None] + np.arange(m)).ravel(), m * np.arange(len(at) + 1)), (len(at), n)
        )
        if self.group is not None:
            return self._grouped_prior(C)
        N = self._patterns(self.times)
        inner, variances = intrinsic.analyse(C.T @ C, N)
        constant = inner + 2.0 * np.linalg.slogdet(N.T @ N)[1]  # A = N'
        rows, columns, entries = intrinsic.lower_triangle(C.T @ C)
        scale = intrinsic.geometric_mean(variances)
        return ScaledStructures(
            (Parameter("sd"),), rows, columns, entries[None], N.T, (0,), (scale,), (n - m + 1,), constant
        )

    def _grouped_prior(self, C):
        """That of patterns by group: the first r <= m - 1 seasons of each have the precision

        (m - 1)/m (I + 1 1'/(m - r))/sd(start)^2,

        which is that of seasons of variance sd(start)^2 and equal covariances, of which m sum to zero.
        """
        m, counts = self.period, np.diff(self.firsts)
        sizes = np.minimum(counts, m - 1)
        pairs = [
            ((m - 1) / m * (np.eye(r) + 1.0 / (m - r)), sparse.coo_array((k - r, k - r)))
            for r, k in zip(sizes, counts, strict=True)
        ]
        first = sparse.block_diag([block for pair in pairs for block in pair])
        cycles = max(1.0, float(np.max(counts)) / m)
        parameters = Parameter("sd", unit=cycles**-0.5), Parameter("sd(start)")
        return add_structures(parameters, [C.T @ C, first], (C.shape[0], int(np.sum(sizes))))

    def _patterns(self, t):
        """The m - 1 patterns that repeat and sum to zero, (M, m - 1)."""
        season = np.mod(t - self.times[0], self.period)[:, None]
        last = season == self.period - 1
        return (season == np.arange(self.period - 1)).astype(float) - last

    def design(self, table, levels="known"):
        """Return the rows Z of a table of columns, a state each."""
        return self._find_rows(table, levels, "s(t, period=...) is a pattern at all times")

    def fixed_columns(self, table):
        """Return the patterns that repeat."""
        if self.group is not None:
            return {}
        values = self._patterns(read_numbers(table, self.column))
        return {f"{self.name}[{j + 1}]": column for j, column in enumerate(values.T)}

    def extra_variance(self, table, free, levels="known"):
        """Return the variance of the first seasons of new levels."""
        new = self._find_states(table, levels)[2]
        return np.where(new, np.exp(2.0 * free[-1]), 0.0) if new.any() and levels == "new" else None
