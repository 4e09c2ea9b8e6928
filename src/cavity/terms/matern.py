"""Matern processes in time as terms: states at times or knots, their prior, and rows at other times.

The algebra of states is in `matern_steps`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from cavity.base.arrays import check_integer, error_of
from cavity.base.lazy_scipy import sparse
from cavity.base.public_objects import FloatArray, IntArray, set_fields
from cavity.terms.base import StructuredTerm, check_column
from cavity.terms.blocks import build_groups, read_numbers_that_vary
from cavity.terms.chains import ChainRows
from cavity.terms.contract import BuiltTerm, Parameter, PriorValue, TermPrior, list_variables
from cavity.terms.levels import Levels
from cavity.terms.matern_steps import Transition, find_knots, find_rate, weigh_hermite

DEFAULT_MAX_STATES = {0.5: np.inf, 1.5: 300, 2.5: 60}  # which loses some 1e-6 nats at a lengthscale of the range
MIN_STATE_DISTANCE = 0.5  # of states at all times, in distances of knots
MAX_LOST_NATS = 1e-6  # of a log evidence, about which nothing is said
MAX_SEARCH_LOSS = 1e-5  # of a log evidence at the end of a search
MAX_INTERPOLATION_SD = 0.03  # of f in the middle between knots, where its sd is 1
MAX_LENGTH_IN_RANGES = 3.0  # in a search
MIN_LENGTH_IN_STEPS = 0.1  # in a search, of the median step where there are no knots


@dataclass(frozen=True, slots=True, eq=False)
class MaternChain(StructuredTerm):
    """A Matern process over times of any distance: ``matern12(t)``, ``matern32(t)``, ``matern52(t)`` in formulas.

    f is stationary with the covariance of `cavity.covariances.Matern`, sd^2 k(r) with r = dt/lengthscale: k = exp(-r)
    of the smoothness 1/2; (1 + s) exp(-s), s = sqrt(3) r, of 3/2; and (1 + s + s^2/3) exp(-s), s = sqrt(5) r, of 5/2.
    Effects are the values and scaled derivatives at the different times of the rows. A fit is linear in their number.

    Parameters
    ----------
    column : str or int
        The variable: the name of a column of numbers, or the number of one of X.
    smoothness : {0.5, 1.5, 2.5}, default 1.5
        How smooth f is: with no, one or two derivatives.
    group : str or int, optional
        Column of the levels that have effects of their own, or the number of one of X.
    max_states : int, optional
        Most different times that have a state each; by default 300 of smoothness 1.5, 60 of 2.5, and any number of 0.5.

    Raises
    ------
    ValueError, TypeError
        For settings outside their domain; when a model is fitted, for times that are all the same.

    Warns
    -----
    NumericalWarning
        If states are so close beside the lengthscale that the log evidence may be off by more than 1e-6: about
        1e-16 sum (dt/lengthscale)^(-2 smoothness), dt from each state to the next; means and sds of f lose less, below
        1e-8 where nothing is said. If knots are so far apart that f between them is too smooth.

    Notes
    -----
    A state, f and its derivatives, stands at each different time, and the prior is exact. Where there are more than
    `max_states` of them, or closer ones than half of a step h = range/(max_states - 1), states stand at knots around
    the times, in a grid of steps h: between two of these f is the polynomial with the values and derivatives there. Its
    variance then lacks at most 0.11 (h/lengthscale)^3 of itself if the smoothness is 1.5, 0.015 (h/lengthscale)^5 if it
    is 2.5.

    New rows may have any times: beyond those of states, or where these are far apart, f has its distribution given the
    states before and after. A lengthscale that is learnt is between h, or a tenth of the median step, and three times
    the range of the times, or what loses 1e-5 of the log evidence.

    Examples
    --------
    >>> import cavity, numpy as np
    >>> t = np.linspace(0.0, 20.0, 80)
    >>> y = np.random.default_rng(0).poisson(np.exp(1.0 + np.sin(t)))
    >>> model = cavity.MixedGLM([cavity.terms.MaternChain("t", 1.5)], "poisson")
    >>> posterior = model.fit(np.ones((80, 1)), y, groups={"t": t})
    >>> posterior.hyperparameters.names
    ('sd(matern32(t))', 'lengthscale(matern32(t))')
    >>> mean, variance = posterior.predict(np.ones((2, 1)), groups={"t": [4.75, 21.0]})
    """

    column: str | int
    smoothness: float = 1.5
    group: str | int | None = None
    max_states: int | None = None

    def __post_init__(self) -> None:
        check_column(self.column, "column")
        check_column(self.group, "group", optional=True)
        if self.smoothness not in DEFAULT_MAX_STATES:
            raise error_of("smoothness", f"must be 0.5, 1.5 or 2.5, got {self.smoothness!r}")
        if self.max_states is not None:
            set_fields(self, max_states=check_integer(self.max_states, "max_states", low=2))

    @property
    def name(self) -> str:
        """The term as formulas have it."""
        group = "" if self.group is None else f" | {self.group}"
        return f"matern{2 * self.smoothness:.0f}2({self.column}{group})"

    variables = property(list_variables)

    def build(self, table: Mapping[Any, Any]) -> BuiltTerm:
        """Return the term with the times of its states: those of the rows, or knots around them."""
        t = read_numbers_that_vary(table, self.column, self.name)
        levels, codes = build_groups(table, self.group, len(t))
        states, origin, span = np.unique(np.stack([codes, t], axis=1), axis=0), t.min(), np.ptp(t)
        most = DEFAULT_MAX_STATES[self.smoothness] if self.max_states is None else self.max_states
        level, times = states.T
        steps, largest = np.diff(times)[np.diff(level) == 0], int(np.bincount(level.astype(np.intp)).max())
        h = span / (most - 1.0) if np.isfinite(most) else 0.0
        has_knots = largest > most or bool(np.any(steps < MIN_STATE_DISTANCE * h))
        if has_knots:
            states = find_knots(level, times, origin, h)
        firsts = np.searchsorted(states[:, 0], np.arange((1 if levels is None else len(levels)) + 1))
        return BuiltMatern(
            self.name,
            self.column,
            self.group,
            float(self.smoothness),
            states[:, 1].copy(),
            firsts,
            levels,
            h if has_knots else float(np.median(steps)) if len(steps) else float(span),
            has_knots,
        )


@dataclass(frozen=True, eq=False)
class MaternPrior(TermPrior):
    """The precision (3) over sd^2 of all chains: its entries themselves are the coefficients of the structures.

    The effects are (f, unit f', unit^2 f''). `gaps` (U,) are the different steps in time, `which` (M,) the number of
    that of each step, `at` (M,) the state from which it goes, and `firsts` those without one before.
    """

    p: int
    n_states: int
    unit: float
    gaps: FloatArray
    which: IntArray
    at: IntArray
    firsts: IntArray

    @cached_property
    def transition(self):
        """The matrices of steps."""
        return Transition(self.p)

    def evaluate(self, free):
        """Return the prior at the logs of sd and of the lengthscale."""
        precision, rate = np.exp(-2.0 * free[0]), find_rate(self.p, free[1])
        d, order = rate * self.gaps, self.p * (self.p - 1.0)
        steps, start = self.transition.step(d), self.transition.step(np.array([np.inf]))
        A, G, F = steps.A, steps.inverse, self.transition.F
        a = G @ A[:, :, -1:]
        log_slope = self.transition.q * np.sum(A[:, :, -1:] * a, axis=(1, 2))  # of log|Q| in d: tr(Q^-1 q a a')
        dG = -self.transition.q * a @ a.transpose(0, 2, 1)
        to, FA = A.transpose(0, 2, 1), F @ A
        moved = to @ G @ FA
        units, powers = self._scale_entries(rate * self.unit)
        entries = precision * units * self._assemble(start.inverse[0], G, to @ G @ A, -G @ A)
        by_d = self._assemble(
            0.0,
            *(  # as d log l = -d log d
                -d[:, None, None] * part
                for part in (dG, to @ dG @ A + moved + moved.transpose(0, 2, 1), -dG @ A - G @ FA)
            ),
        )
        value = -len(self.firsts) * start.log_determinant[0] - np.sum(steps.log_determinant[self.which])
        n = self.p * self.n_states
        value -= 2.0 * n * free[0] + self.n_states * order * np.log(rate * self.unit)
        slopes = np.stack([-2.0 * entries, precision * units * by_d + powers * entries], axis=1)
        by_length = np.sum((d * log_slope)[self.which]) + self.n_states * order
        return PriorValue(entries, slopes, float(value), np.array([-2.0 * n, by_length]))

    def _scale_entries(self, rate):
        """Factors of entries of numbers in units of 1/lam, for those in units of the term, and minus their powers."""
        powers = self.rows % self.p + self.columns % self.p
        return rate ** -powers.astype(float), powers

    def _assemble(self, first, ahead, behind, between):
        """The entries of (3) in the order of the pattern, from those of its parts (p, p) and (U, p, p)."""
        blocks = np.zeros((self.n_states, self.p, self.p))
        blocks[self.firsts] = first
        blocks[self.at + 1] += ahead[self.which]
        blocks[self.at] += behind[self.which]
        i, j = np.tril_indices(self.p)
        return np.concatenate([blocks[:, i, j].ravel(), between[self.which].ravel()])


@dataclass(frozen=True, eq=False)
class BuiltMatern(ChainRows, BuiltTerm):
    """A `MaternChain` with its states: `firsts` (levels + 1,) are the first state of each level, and their number."""

    name: str
    column: str | int
    group: str | int | None
    smoothness: float
    times: FloatArray
    firsts: IntArray
    levels: Levels | None
    unit: float
    has_interpolation: bool
    has_rows_by_parameters = True

    @property
    def p(self):
        """How many numbers a state has."""
        return round(self.smoothness + 0.5)

    @property
    def size(self):
        """The number of effects."""
        return self.p * len(self.times)

    def effect_names(self):
        """Return the times of the states, with their level; and of their derivatives."""
        names = super().effect_names()
        return [f"{name}{mark}" for name in names for mark in ("", " slope", " curvature")[: self.p]]

    @cached_property
    def prior(self):
        """That of the effects."""
        n, p, steps = len(self.times), self.p, np.diff(self.times)
        within = np.ones(n - 1, dtype=bool)
        within[self.firsts[1:-1] - 1] = False
        at = np.flatnonzero(within)
        gaps, which = np.unique(steps[at], return_inverse=True)
        (i, j), (k, m) = np.tril_indices(p), np.indices((p, p)).reshape(2, -1)
        own, before = p * np.arange(n)[:, None], p * at[:, None]
        rows = np.concatenate([(own + i).ravel(), (before + p + k).ravel()])
        columns = np.concatenate([(own + j).ravel(), (before + m).ravel()])
        length = Parameter("lengthscale", "log", *self._find_lengths(gaps, which))
        structures = sparse.eye_array(len(rows), format="csr")
        return MaternPrior(
            (Parameter("sd"), length),
            rows,
            columns,
            structures,
            None,
            p,
            n,
            self.unit,
            gaps,
            which,
            at,
            self.firsts[:-1],
        )

    def _find_lengths(self, gaps, which):
        """A lengthscale to begin with, and the range of a search."""
        span, power = float(np.ptp(self.times)) or self.unit, 2.0 * self.smoothness
        low = min(self.unit * (1.0 if self.has_interpolation else MIN_LENGTH_IN_STEPS), 0.1 * span)
        lost = 0.5 * np.finfo(float).eps * np.sum(((gaps / span) ** -power)[which])  # at the lengthscale span
        high = np.clip(
            span * (MAX_SEARCH_LOSS / lost) ** (1.0 / power) if lost else np.inf, 2.0 * low, MAX_LENGTH_IN_RANGES * span
        )
        return float(np.clip(0.1 * span, low, high)), (low, float(high))

    def find_problem(self, free):
        """Return the message of states that are too close for the lengthscale, or too far apart."""
        ratios, length = self.prior.gaps * np.exp(-free[1]), np.exp(free[1])
        lost = 0.5 * np.finfo(float).eps * np.sum((ratios ** (-2.0 * self.smoothness))[self.prior.which])
        comparison = f"beside a lengthscale of {length:.3g}"
        if lost > MAX_LOST_NATS:
            closest = f"states of {self.name} are {self.prior.gaps.min():.3g} apart {comparison}"
            way = "fewer of them, max_states= of the term, or a lower smoothness loses less"
            return f"{closest}: the log evidence may be off by {lost:.1g}; {way}"
        middle = np.array([0.5 * find_rate(self.p, free[1]) * self.unit])
        variance = self.prior.transition.interpolate(middle, middle)[1][0]
        if self.has_interpolation and variance > MAX_INTERPOLATION_SD**2:
            way = f"max_states={np.ceil(5.0 * np.ptp(self.times) / length):.0f} of the term has more of them"
            return f"knots of {self.name} are {self.unit:.3g} apart {comparison}: between them it is too smooth; {way}"
        return None

    def grid(self, n):
        """Return the table of n times of each level."""
        count = len(self.firsts) - 1
        t = np.tile(np.linspace(self.times.min(), self.times.max(), n), count)
        if self.group is None:
            return {self.column: t}
        return {self.column: t, self.group: np.repeat(np.array(self.levels.labels[0], dtype=object), n)}

    def design(self, table, levels="known", free=None):
        """Return the rows Z of a table of columns: a state, or the mean given those before and after its time."""
        t, before, new, last = self._find_states(table, levels)
        states, weights, off = self._place_times(t, before, last)
        off &= ~new
        if off.any():
            if free is None:
                raise self._refuse_time(int(np.argmax(off)), t, "rows between states depend on the parameters")
            weights[off] = self._condition(t[off], before[off], last[off], free)[0]
        return self._make_rows(states, weights, ~new)

    def extra_variance(self, table, free, levels="known"):
        """Return the variance given the states before and after, and of new levels."""
        t, before, new, last = self._find_states(table, levels)
        off, variance = self._place_times(t, before, last)[2], np.zeros(len(t))
        variance[off] = np.exp(2.0 * free[0]) * self._condition(t[off], before[off], last[off], free)[1]
        variance[new] = np.exp(2.0 * free[0]) if levels == "new" else 0.0
        return variance if variance.any() else None

    def _find_after(self, t, before, last):
        """Return the state after each time, that before it where there is none, and the first where it is earlier."""
        return np.where(t >= self.times[before], np.minimum(before + 1, last), before)

    def _place_times(self, t, before, last):
        """Return numbers of effects (M, 2 p) before and after times, weights of f where these do not depend on
        parameters, and where they do: off states, and between two that are not neighbouring knots.
        """
        after = self._find_after(t, before, last)
        states = self.p * np.stack([before, after], axis=1)[:, :, None] + np.arange(self.p)
        gap, share = self.times[after] - self.times[before], t - self.times[before]
        inside = (gap > 0.0) & (gap < 1.5 * self.unit) & self.has_interpolation & (share > 0.0)
        weights = np.zeros((len(t), 2 * self.p))
        weights[inside] = weigh_hermite(share[inside] / gap[inside], self.p)
        weights[share == 0.0, 0] = 1.0
        return states.reshape(weights.shape), weights, (share != 0.0) & ~inside

    def _condition(self, t, before, last, free):
        """Return the weights (M, 2 p) of the states before and after in the mean of f, and its variance where sd is 1.

        Where there is no state before or after, it stands at infinity.
        """
        rate, after = find_rate(self.p, free[1]), self._find_after(t, before, last)
        to, ahead = t - self.times[before], self.times[after] - t
        to, ahead = (np.where(step > 0.0, rate * step, np.inf) for step in (to, ahead))
        weights, variance = self.prior.transition.interpolate(to, ahead)
        return weights * np.tile((rate * self.unit) ** -np.arange(self.p, dtype=float), 2), variance
