"""Random walks over the different times of a column.

References
----------
.. [LR] F. Lindgren and H. Rue, "On the second-order random walk model for irregular locations", Scandinavian Journal of
   Statistics 35, 2008.
.. [SR] S. H. Sorbye and H. Rue, "Scaling intrinsic Gaussian Markov random field priors in spatial modelling", Spatial
   Statistics 8, 2014.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from cavity.base.arrays import error_of
from cavity.base.lazy_scipy import sparse
from cavity.base.public_objects import FloatArray, IntArray
from cavity.terms import intrinsic
from cavity.terms.base import StructuredTerm, check_column
from cavity.terms.blocks import build_groups, read_numbers, read_numbers_that_vary
from cavity.terms.chains import ChainRows, add_structures
from cavity.terms.contract import BuiltTerm, Parameter, ScaledStructures, list_variables
from cavity.terms.levels import Levels

MAX_RANGE = 1e50  # of times in structures, whose cubes and their squares are variances and precisions


@dataclass(frozen=True, slots=True, eq=False)
class RandomWalk(StructuredTerm):
    """A random walk over the different times of a column: ``rw1(t)`` and ``rw2(t)`` in formulas.

    Of order 1, steps are independent with variances v dt. Of order 2, changes of slope are: this is the Galerkin
    approximation of an integrated random walk at times of any distance [LR]_, and its line is a fixed effect,
    "rw2(t) slope", of the times centred at the middle and divided by their range. The effects sum to zero; with order 2
    their line is zero, too.

    The parameter sd is the geometric mean of the standard deviations of the effects under the prior [SR]_, in units of
    the link. By group, ``rw1(t | g)``, each level has a walk over its own times, which begins at N(0, sd(start)^2), of
    order 2 with a slope N(0, sd(slope)^2); sd is then that of a step, or of a change of slope, in a unit of time.

    Parameters
    ----------
    column : str or int
        The variable: the name of a column of numbers, or the number of one of X.
    order : {1, 2}, default 1
        The order.
    group : str or int, optional
        Column of the levels that have effects of their own, or the number of one of X.

    Raises
    ------
    ValueError, TypeError
        For settings outside their domain; when a model is fitted, for times that are too few.

    Notes
    -----
    New rows may have other times if the order is 1: between two times the walk is a bridge, beyond them it goes on.
    Where times are many and close, `Smooth` is the better order 2: the walk loses digits like (n h_max/h_min)^4.

    Examples
    --------
    >>> import cavity, numpy as np
    >>> t = np.arange(50.0)
    >>> y = np.random.default_rng(0).poisson(np.exp(1.0 + np.sin(t / 8.0)))
    >>> model = cavity.MixedGLM([cavity.terms.RandomWalk("t", 2)], "poisson")
    >>> model.fit(np.ones((50, 1)), y, groups={"t": t}).hyperparameters.names
    ('sd(rw2(t))',)
    """

    column: str | int
    order: int = 1
    group: str | int | None = None

    def __post_init__(self) -> None:
        check_column(self.column, "column")
        check_column(self.group, "group", optional=True)
        if self.order not in (1, 2) or isinstance(self.order, bool):
            raise error_of("order", f"must be 1 or 2, got {self.order!r}")

    @property
    def name(self) -> str:
        """The term as formulas have it."""
        return f"rw{self.order}({self.column}{'' if self.group is None else f' | {self.group}'})"

    variables = property(list_variables)

    def build(self, table: Mapping[Any, Any]) -> BuiltTerm:
        """Return the term with the times of its states."""
        t = read_numbers_that_vary(table, self.column, self.name)
        levels, codes = build_groups(table, self.group, len(t))
        states = np.unique(np.stack([codes, t], axis=1), axis=0)
        firsts = np.searchsorted(states[:, 0], np.arange((1 if levels is None else len(levels)) + 1))
        if self.group is None and len(states) <= self.order:
            raise error_of(f"column {self.column!r}", f"must have {self.order + 1} different times, got {len(states)}")
        span = np.ptp(t)
        if self.group is not None and not 1.0 / MAX_RANGE < span < MAX_RANGE:
            message = f"must have a range within 1e-50 and 1e50 for {self.name}, whose sd is that of a unit of time"
            raise error_of(f"column {self.column!r}", f"{message}; got {span:.3g}: change the unit")
        return BuiltWalk(self.name, self.column, self.group, self.order, states[:, 1].copy(), firsts, levels)


@dataclass(frozen=True, eq=False)
class BuiltWalk(ChainRows, BuiltTerm):
    """A `RandomWalk` with its states: `firsts` (levels + 1,) are the first state of each level, and their number."""

    name: str
    column: str | int
    group: str | int | None
    order: int
    times: FloatArray
    firsts: IntArray
    levels: Levels | None

    @cached_property
    def _unit(self):
        """That of times in the structures: 1, or a power of two about their range where its cube may leave float64."""
        span = np.ptp(self.times)
        return 1.0 if self.group is not None or 1.0 / MAX_RANGE < span < MAX_RANGE else 2.0 ** np.floor(np.log2(span))

    @cached_property
    def prior(self):
        """That of the effects."""
        S = self._structure()
        if self.group is not None:
            return self._grouped_prior(S)
        u = self.times / self._unit
        N = np.stack([np.ones(self.size), u - u.mean()][: self.order], axis=1)
        inner, variances = intrinsic.analyse(S, N)
        scale, rank = intrinsic.geometric_mean(variances), self.size - self.order
        constant = inner + 2.0 * np.linalg.slogdet(N.T @ N)[1]  # A = N'
        rows, columns, entries = intrinsic.lower_triangle(S)
        return ScaledStructures(
            (Parameter("sd"),), rows, columns, entries[None], N.T, (0,), (scale,), (rank,), constant
        )

    def _structure(self):
        """S of all walks, block by block."""
        steps, inside = np.diff(self.times) / self._unit, np.ones(self.size - 1, dtype=bool)
        inside[self.firsts[1:-1] - 1] = False  # from the last state of a level to the first of the next
        at = np.flatnonzero(inside)
        if self.order == 1:
            rows, columns = np.repeat(np.arange(len(at)), 2), np.stack([at, at + 1], axis=1).ravel()
            D = sparse.csr_array((np.tile([-1.0, 1.0], len(at)), (rows, columns)), (len(at), self.size))
            return D.T @ sparse.diags_array(1.0 / steps[at]) @ D
        at = np.flatnonzero(inside[1:] & inside[:-1])
        before, after = steps[at], steps[at + 1]
        entries = np.stack([1.0 / before, -1.0 / before - 1.0 / after, 1.0 / after], axis=1).ravel()
        rows, columns = np.repeat(np.arange(len(at)), 3), (at[:, None] + np.arange(3)).ravel()
        D = sparse.csr_array((entries, (rows, columns)), (len(at), self.size))
        return D.T @ sparse.diags_array(2.0 / (before + after)) @ D  # [LR]_

    def _grouped_prior(self, S):
        """That of walks by group, which begin at N(0, sd(start)^2), with slopes N(0, sd(slope)^2)."""
        first, counts = self.firsts[:-1], np.diff(self.firsts)
        start = np.zeros(self.size)
        start[first] = 1.0
        matrices, names = [S, sparse.diags_array(start)], ["sd", "sd(start)"]
        ranks = [int(np.sum(np.maximum(counts - self.order, 0))), len(first)]
        if self.order == 2:
            second = first[counts > 1] + 1
            rows = np.repeat(np.arange(len(second)), 2)
            slopes = np.tile([-1.0, 1.0], len(second)) / np.repeat(self.times[second] - self.times[second - 1], 2)
            columns = np.stack([second - 1, second], axis=1).ravel()
            E = sparse.csr_array((slopes, (rows, columns)), (len(second), self.size))
            matrices.append(E.T @ E)
            names.append("sd(slope)")
            ranks.append(len(second))
        span = float(np.ptp(self.times))
        units = {"sd": span**-0.5 if self.order == 1 else span**-1.5, "sd(start)": 1.0, "sd(slope)": 1.0 / span}
        return add_structures(tuple(Parameter(name, unit=units[name]) for name in names), matrices, ranks)

    def design(self, table, levels="known"):
        """Return the rows Z of a table of columns: a state, or two between which a time is."""
        t, before, new, last = self._find_states(table, levels)
        after = np.minimum(before + 1, last)
        gap = self.times[after] - self.times[before]
        share = np.clip((t - self.times[before]) / np.where(gap > 0, gap, 1.0), 0.0, 1.0)
        off = (t != self.times[before]) & ~new
        if self.order == 2 and off.any():
            raise self._refuse_time(int(np.argmax(off)), t, "s(t) is a curve at all times")
        return self._make_rows(np.stack([before, after], axis=1), np.stack([1.0 - share, share], axis=1), ~new)

    def fixed_columns(self, table):
        """Return the line of order 2, centred at the middle of the times and divided by their range."""
        if self.order == 1 or self.group is not None:
            return {}
        low, high = self.times[0], self.times[-1]
        return {f"{self.name} slope": (read_numbers(table, self.column) - 0.5 * (low + high)) / (high - low)}

    def extra_variance(self, table, free, levels="known"):
        """Return the variance between states, beyond them, and of new levels."""
        t, before, new, last = self._find_states(table, levels)
        value = self.prior.evaluate(free)
        v = 1.0 / value.coefficients[0]
        after, t = np.minimum(before + 1, last), t / self._unit
        times = self.times / self._unit
        low, high = times[before], times[after]
        gap = np.where(high > low, high - low, 1.0)
        out = np.where(t > high, t - high, np.where(t < low, low - t, (t - low) * (high - t) / gap)) * v
        out[new] = np.exp(2.0 * free[1]) if len(free) > 1 and levels == "new" else 0.0
        return out if out.any() else None

    def extra_covariance(self, table, origin, free, derivative=False):
        """Return that of bridges between the same states, and of walks beyond the same end."""
        t, before, _, last = self._find_states(table, "known")
        s, state = (values[0] for values in self._find_states(origin, "known")[:2])
        times, s, t = self.times / self._unit, s / self._unit, t / self._unit
        low, high = times[before], times[np.minimum(before + 1, last)]
        first, second = np.minimum(s, t), np.maximum(s, t)
        inside = (first - low) * (high - second) / np.where(high > low, high - low, 1.0)
        out = np.where(second < low, low - second, np.where(first > high, first - high, np.maximum(inside, 0.0)))
        is_same = (before == state) & ((t < low) == (s < low))
        return out * is_same / self.prior.evaluate(free).coefficients[0]
