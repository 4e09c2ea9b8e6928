"""Matern processes in time as chains of states.

A process f of smoothness nu = p - 1/2 and lengthscale l has p - 1 derivatives. With lam = sqrt(2 nu)/l, its states
x = (f, f'/lam, ..., f^(p-1)/lam^(p-1)) are a Markov chain [HS]_: over a time dt, with d = lam dt,

    x(t + dt) = A(d) x(t) + N(0, sd^2 Q(d)),  A(d) = exp(F d) = exp(-d) sum_(k < p) (F + I)^k d^k/k!,                (1)
    Q(d) = q int_0^d a(s) a(s)' ds,                                                                                 (2)

F the companion matrix of (1 + z)^p, whose eigenvalues are -1, so that (F + I)^p = 0, and a the last column of A. In (2)
stand exp(-2 s) times powers of s, whose integrals are incomplete gamma functions: for short times no digits are lost,
as they are in Q = P - A P A', P = Q(inf) the covariance of a state. The precision of a chain is block tridiagonal,

    blocks (k, k): Q_(k-1)^-1 + A_k' Q_k^-1 A_k, the first one P^-1 + A_1' Q_1^-1 A_1;  (k+1, k): -Q_k^-1 A_k,       (3)

and its log determinant the sum of those of P^-1 and all Q_k^-1. Entries of (3) grow like d^(-2 nu) and cancel in its
factor, which loses about 1e-16 sum_k d_k^(-2 nu) of a log evidence.

References
----------
.. [HS] J. Hartikainen and S. Sarkka, "Kalman filtering and smoothing solutions to temporal Gaussian process regression
   models", IEEE International Workshop on Machine Learning for Signal Processing, 2010.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np

from cavity.base.arrays import error_of
from cavity.base.lazy_scipy import sparse, special
from cavity.base.public_objects import FloatArray, IntArray
from cavity.terms.base import StructuredTerm, check_column
from cavity.terms.blocks import build_levels, read_numbers_that_vary
from cavity.terms.chains import ChainRows
from cavity.terms.contract import BuiltTerm, Parameter, PriorValue, TermPrior
from cavity.terms.levels import Levels

SMOOTHNESSES = (0.5, 1.5, 2.5)
MAX_LOST_NATS = 1e-8  # of a log evidence, about which nothing is said
LONGEST_RANGES = 3.0  # of lengthscales in a search, in ranges of the times
SHORTEST_STEPS = 0.1  # of lengthscales in a search, in medians of the steps


class Steps(NamedTuple):
    """What (1) and (2) are for steps d (M,): A, Q^-1 and log|Q|."""

    A: FloatArray  # (M, p, p)
    inverse: FloatArray  # (M, p, p)
    log_determinant: FloatArray  # (M,)


class Transition:
    """The matrices of (1) and (2) for states of p numbers."""

    def __init__(self, p):
        self.p = p
        self.F = np.diag(np.ones(p - 1), 1)
        self.F[-1] = [-math.comb(p, i) for i in range(p)]
        powers = [np.eye(p)]
        for k in range(1, p):
            powers.append(powers[-1] @ (self.F + np.eye(p)) / k)
        self._powers = np.stack(powers)  # (F + I)^k/k!
        last = self._powers[:, :, -1]
        products = np.zeros((2 * p - 1, p, p))
        for k in range(p):
            for m in range(p):
                products[k + m] += np.outer(last[k], last[m])
        self._products = products  # of a a', by powers of s, without exp(-2 s)
        self.q = 1.0 / self._integrate(np.array([np.inf]))[0, 0, 0]
        self.P = self.q * self._integrate(np.array([np.inf]))[0]

    def _integrate(self, d):
        """The integrals in (2)."""
        n = np.arange(2 * self.p - 1)
        integrals = special.gamma(n + 1) / 2.0 ** (n + 1) * special.gammainc(n + 1, 2.0 * d[:, None])
        return np.tensordot(integrals, self._products, 1)

    def step(self, d):
        """Return the `Steps` of positive numbers d (M,); they are infinite where there is no state before."""
        finite = np.where(np.isinf(d), 0.0, d)
        terms = finite[:, None] ** np.arange(self.p) * np.exp(-d)[:, None]
        A = np.tensordot(terms, self._powers, 1)
        Q = self.q * self._integrate(d)
        size = np.sqrt(np.diagonal(Q, axis1=1, axis2=2))
        units = size[:, :, None] * size[:, None, :]
        log_determinant = np.linalg.slogdet(Q / units)[1] + 2.0 * np.sum(np.log(size), axis=1)
        return Steps(A, np.linalg.inv(Q / units) / units, log_determinant)


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

    Raises
    ------
    ValueError, TypeError
        For settings outside their domain; when a model is fitted, for times that are all the same.

    Warns
    -----
    NumericalWarning
        If times are so close beside the lengthscale that the log evidence may be off by more than 1e-8: about
        1e-16 sum (dt/lengthscale)^(-2 smoothness), dt from each time to the next.

    Notes
    -----
    New rows may have any times: f has there its distribution given the states before and after.
    A lengthscale that is learnt is between a tenth of the median step and three times the range of the times.

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

    def __post_init__(self) -> None:
        check_column(self.column, "column")
        check_column(self.group, "group", optional=True)
        if self.smoothness not in SMOOTHNESSES:
            raise error_of("smoothness", f"must be 0.5, 1.5 or 2.5, got {self.smoothness!r}")

    @property
    def name(self) -> str:
        """The term as formulas have it."""
        group = "" if self.group is None else f" | {self.group}"
        return f"matern{2 * self.smoothness:.0f}2({self.column}{group})"

    @property
    def variables(self) -> tuple[str | int, ...]:
        """The columns that it reads."""
        return (self.column,) if self.group is None else (self.column, self.group)

    def build(self, table: Mapping[Any, Any]) -> BuiltTerm:
        """Return the term with the times of its states."""
        t = read_numbers_that_vary(table, self.column, self.name)
        levels, codes = (None, np.zeros(len(t), dtype=np.intp))
        if self.group is not None:
            levels, codes = build_levels(table, self.group)
        states = np.unique(np.stack([codes, t], axis=1), axis=0)
        firsts = np.searchsorted(states[:, 0], np.arange((1 if levels is None else len(levels)) + 1))
        smoothness = float(self.smoothness)
        return BuiltMatern(self.name, self.column, self.group, smoothness, states[:, 1].copy(), firsts, levels)


@dataclass(frozen=True, eq=False)
class MaternPrior(TermPrior):
    """The precision (3) over sd^2 of all chains: its entries themselves are the coefficients of the structures.

    `gaps` (U,) are the different steps in time, `which` (M,) the number of that of each step, `at` (M,) the state from
    which it goes, and `firsts` those without one before.
    """

    p: int
    n_states: int
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
        precision, d = np.exp(-2.0 * free[0]), find_rate(self.p, free[1]) * self.gaps
        steps, start = self.transition.step(d), self.transition.step(np.array([np.inf]))
        A, G, F = steps.A, steps.inverse, self.transition.F
        a = G @ A[:, :, -1:]
        log_slope = self.transition.q * np.sum(A[:, :, -1:] * a, axis=(1, 2))  # of log|Q| in d: tr(Q^-1 q a a')
        dG = -self.transition.q * a @ a.transpose(0, 2, 1)
        to, FA = A.transpose(0, 2, 1), F @ A
        moved = to @ G @ FA
        entries = precision * self._assemble(start.inverse[0], G, to @ G @ A, -G @ A)
        by_d = self._assemble(
            0.0,
            *(  # as d log l = -d log d
                -d[:, None, None] * part
                for part in (dG, to @ dG @ A + moved + moved.transpose(0, 2, 1), -dG @ A - G @ FA)
            ),
        )
        value = -len(self.firsts) * start.log_determinant[0] - np.sum(steps.log_determinant[self.which])
        n = self.p * self.n_states
        slopes = np.stack([-2.0 * entries, precision * by_d], axis=1)
        by_length = np.sum((d * log_slope)[self.which])
        return PriorValue(entries, slopes, float(value - 2.0 * n * free[0]), np.array([-2.0 * n, by_length]))

    def _assemble(self, first, ahead, behind, between):
        """The entries of (3) in the order of the pattern, from those of its parts (p, p) and (U, p, p)."""
        blocks = np.zeros((self.n_states, self.p, self.p))
        blocks[self.firsts] = first
        blocks[self.at + 1] += ahead[self.which]
        blocks[self.at] += behind[self.which]
        i, j = np.tril_indices(self.p)
        return np.concatenate([blocks[:, i, j].ravel(), between[self.which].ravel()])


def find_rate(p, log_length):
    """Return lam of a lengthscale by its log."""
    return np.sqrt(2.0 * p - 1.0) * np.exp(-log_length)


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
        span = np.ptp(self.times)
        shortest = SHORTEST_STEPS * float(np.median(steps[at])) if len(at) else span
        length = Parameter("lengthscale", "log length", 0.1 * span, (min(shortest, 0.01 * span), LONGEST_RANGES * span))
        return MaternPrior(
            (Parameter("sd"), length),
            rows,
            columns,
            sparse.eye_array(len(rows), format="csr"),
            None,
            p,
            n,
            gaps,
            which,
            at,
            self.firsts[:-1],
        )

    def find_problem(self, free):
        """Return the message of states that are too close for the lengthscale."""
        ratios, length = self.prior.gaps * np.exp(-free[1]), np.exp(free[1])
        lost = 0.5 * np.finfo(float).eps * np.sum((ratios ** (-2.0 * self.smoothness))[self.prior.which])
        if not lost > MAX_LOST_NATS:
            return None
        here = f"times of {self.name} are {self.prior.gaps.min():.3g} apart beside a lengthscale of {length:.3g}"
        way = "round times to a coarser grid, or take a lower smoothness or s(t)"
        return f"{here}: the log evidence may be off by {lost:.1g}; {way}"

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
        off = (t != self.times[before]) & ~new
        if off.any() and free is None:
            raise self._refuse_time(int(np.argmax(off)), t, "the rows of other times depend on the parameters")
        states, weights = self.p * before[:, None], np.ones((len(t), 1))
        if off.any():
            states, weights, _ = self._condition(t, before, last, free)
        return self._make_rows(states, weights, ~new)

    def extra_variance(self, table, free, levels="known"):
        """Return the variance given the states before and after, and of new levels."""
        t, before, new, last = self._find_states(table, levels)
        variance = np.exp(2.0 * free[0]) * self._condition(t, before, last, free)[2]
        variance[new] = np.exp(2.0 * free[0]) if levels == "new" else 0.0
        return variance if variance.any() else None

    def _condition(self, t, before, last, free):
        """Return numbers of effects (M, 2 p) and their weights in the mean of f given the states before and after, and
        the variance of f, where sd is 1.

        The precision of the state between two steps is Q_1^-1 + A_2' Q_2^-1 A_2; where there is no state before,
        Q_1 = P, and where there is none after, A_2 = 0: steps of infinite length.
        """
        transition, rate = self.prior.transition, find_rate(self.p, free[1])
        exact, is_after = t == self.times[before], t >= self.times[before]
        after = np.where(is_after, np.minimum(before + 1, last), before)
        to, ahead = t - self.times[before], self.times[after] - t
        one = transition.step(np.where(exact, 1.0, np.where(is_after, rate * to, np.inf)))
        two = transition.step(np.where(~exact & (ahead > 0.0), rate * ahead, np.inf))
        right = two.A.transpose(0, 2, 1) @ two.inverse
        precision = one.inverse + right @ two.A
        size = 1.0 / np.sqrt(np.diagonal(precision, axis1=1, axis2=2))
        units = size[:, :, None] * size[:, None, :]
        row = (np.linalg.inv(precision * units) * units)[:, :1]
        weights = np.concatenate([row @ one.inverse @ one.A, row @ right], axis=2)[:, 0]
        weights[exact] = np.eye(2 * self.p)[0]
        states = self.p * np.stack([before, after], axis=1)[:, :, None] + np.arange(self.p)
        return states.reshape(len(t), -1), weights, np.where(exact, 0.0, row[:, 0, 0])
