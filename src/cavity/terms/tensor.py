"""Smooth functions of two variables: products of B-splines whose prior has a variance for each variable.

With t and u the variables in units of their ranges, the precision of the effects is that of

    tau_x int int f_tt^2 dt du + tau_z int int f_uu^2 dt du,                                                       (1)

tau_x S_x (x) M_z + tau_z M_x (x) S_z, S the roughness of splines and M their integrated products ([W]_, section 3). Let
d and e be the eigenvalues of S_x and S_z in units of M_x and M_z: the eigenfunctions are orthonormal over the ranges,
those of d_i = 0 are 1 and the line, and f has independent coefficients of variance 1/(tau_x d_i + tau_z e_j). With A
the integrals of f times 1, t - 1/2, u - 1/2 and their product, and N the effects of these, A = N'(M_x (x) M_z) and

    log|P|* + 2 log|det(A N)| - log|N'N|
        = sum' log(tau_x d_i + tau_z e_j) + k_z log|M_x| + k_x log|M_z| + log|A N|,                                (2)

sum' without the pairs of d_i = e_j = 0. The part of f that is constant or straight in u has the prior of a smooth of t:
its variance averages to 1/(420 tau_x), which is the square of sd(x); to 1/(720 tau_x) where x is a cycle, of which the
only d_i = 0 is that of 1.

References
----------
.. [W] S. N. Wood, "P-splines with derivative based penalties and tensor product smoothing of unevenly distributed
   data", Statistics and Computing 27, 2017.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from cavity.base import arrays
from cavity.base.arrays import error_of
from cavity.base.lazy_scipy import linalg, sparse
from cavity.base.public_objects import FloatArray, set_fields
from cavity.terms import splines
from cavity.terms.base import StructuredTerm, check_column
from cavity.terms.blocks import find_pattern, read_numbers, read_numbers_that_vary
from cavity.terms.contract import BuiltTerm, Parameter, PriorValue, TermPrior
from cavity.terms.smooth import MIN_BASIS, VARIANCE_OF_UNIT, VARIANCE_OF_UNIT_CYCLE, choose_size, place_breaks

DEFAULT_MARGIN_BASIS = 10  # most B-splines of each variable where k is not given


@dataclass(frozen=True, slots=True, eq=False)
class TensorSmooth(StructuredTerm):
    """A smooth function of two variables: ``te(x, z)`` and ``ti(x, z)`` in formulas.

    The function is a sum of products of cubic B-splines of either variable. Its prior limits the integrals over the
    rectangle of the squared second derivatives in x and in z, with a variance for each [W]_, so that units of the
    variables do not matter. What it does not limit are fixed effects: "te(x, z) slope[x]", "te(x, z) slope[z]" and
    "te(x, z) slope[x:z]", of the variables centred at the middles of their ranges and divided by the ranges, and of
    their product. The effects are orthogonal to these and to the constant, integrated over the rectangle.

    The parameters are sd(x) and sd(z), in units of the link. The mean of the function over z is a smooth of x, whose
    root mean square departure from its line is sd(x), as it is that of ``s(x)``; and reverse. Where both are equal,
    that of the function from its fixed effects is 2.2 times as large. Neither depends on units or on k.

    With `interaction` the function is without main effects: its mean over x is zero for every z, and reverse. It stands
    beside ``s(x) + s(z)``; its fixed effect is "ti(x, z) slope[x:z]", and sd(x) is the root mean square of its part
    that is curved in x and straight in z.

    Parameters
    ----------
    columns : pair of str or int
        The variables: names of columns of numbers, or numbers of some of X.
    k : int or pair of int, optional
        Number of B-splines of each variable, at least 4 and at most that of distinct values. By default 10, or as many
        as there are distinct values. The function has their product as effects.
    interaction : bool, default False
        Whether the function is without main effects.
    ranges : pair of pairs of float, optional
        Lowest and highest value of each variable, at least those of the data: the rectangle of the prior. New rows
        must be within it, as the prior says nothing about the function beyond. By default, and where one is None, the
        ranges of the data.
    period : pair of float, optional
        Length of the cycle of a periodic function, in units of the variable. There is no line then, and sd is that of
        the function from its mean.

    Raises
    ------
    ValueError, TypeError
        For settings outside their domain; when a model is fitted, for columns that have no such function.

    Examples
    --------
    >>> import cavity, numpy as np
    >>> x, z = np.random.default_rng(0).uniform(size=(2, 300))
    >>> y = np.sin(4.0 * x * z) + 0.1 * np.random.default_rng(1).normal(size=300)
    >>> model = cavity.MixedGLM([cavity.terms.TensorSmooth(("x", "z"))], "gaussian")
    >>> posterior = model.fit(np.ones((300, 1)), y, groups={"x": x, "z": z})
    >>> posterior.hyperparameters.names
    ('sd(te(x, z), x)', 'sd(te(x, z), z)', 'noise_variance')
    """

    columns: Sequence[str | int]
    k: int | Sequence[int] | None = None
    interaction: bool = False
    ranges: Sequence[Sequence[float] | None] | None = None
    period: Sequence[float | None] | None = None

    def __post_init__(self) -> None:
        columns = _check_pair(self.columns, "columns")
        for column in columns:
            check_column(column, "columns")
        if columns[0] == columns[1]:
            raise error_of("columns", f"must be two different columns, got {columns[0]!r} twice")
        k = _check_pair((self.k, self.k) if np.ndim(self.k) == 0 else self.k, "k")
        k = tuple(None if size is None else arrays.check_integer(size, "k", low=MIN_BASIS) for size in k)
        period = _check_pair((None, None) if self.period is None else self.period, "period")
        period = tuple(None if p is None else arrays.check_number(p, "period", low=0.0) for p in period)
        ranges = (None, None) if self.ranges is None else tuple(map(_check_ends, _check_pair(self.ranges, "ranges")))
        for column, ends, length in zip(columns, ranges, period, strict=True):
            if ends is not None and length is not None:
                raise error_of("ranges", f"must be None for {column}, which has a period, got {ends!r}")
        interaction = arrays.check_flag(self.interaction, "interaction")
        set_fields(self, columns=columns, k=k, interaction=interaction, ranges=ranges, period=period)

    @property
    def name(self) -> str:
        """The term as formulas have it."""
        return f"{'ti' if self.interaction else 'te'}({self.columns[0]}, {self.columns[1]})"

    @property
    def variables(self) -> tuple[str | int, ...]:
        """The columns that it reads."""
        return tuple(self.columns)

    @property
    def binned_variables(self) -> tuple[str | int, ...]:
        """Both covariates."""
        return tuple(self.columns)

    def build(self, table: Mapping[Any, Any]) -> BuiltTerm:
        """Return the term with its ranges and knots."""
        margins = [self._choose_margin(table, d) for d in range(2)]
        ranges, breaks = tuple(m[1:3] for m in margins), tuple(m[3] for m in margins)
        cycles, is_full = tuple(length is not None for length in self.period), all(m[0] for m in margins)
        return BuiltTensorSmooth(self.name, self.columns, ranges, breaks, self.interaction, cycles, is_full)

    def _choose_margin(self, table, d):
        """Return whether there are splines for all values of a variable, its lowest and highest one, and breaks."""
        x, period = read_numbers_that_vary(table, self.columns[d], self.name), self.period[d]
        x = np.unique(x if period is None else np.mod(x, period))
        k = choose_size(self.k[d], x, DEFAULT_MARGIN_BASIS, self.columns[d], self.name, period)
        if period is not None:
            return k == len(x), 0.0, period, np.linspace(0.0, 1.0, k + 1)
        if self.ranges[d] is None:
            return k == len(x), *place_breaks(x, k)
        low, high = self.ranges[d]
        if x[0] < low or x[-1] > high:
            message = f"must span {x[0]:g} to {x[-1]:g} for {self.columns[d]}, got {low:g} to {high:g}"
            raise error_of("ranges", message)
        return k == len(x), low, high, np.linspace(0.0, 1.0, k - 2)


def _check_pair(value, name):
    """Return a setting of two variables as a tuple."""
    if isinstance(value, str | dict | set) or not np.iterable(value) or len(value) != 2:
        raise error_of(name, f"must be a pair, one for each of two variables, got {value!r}", TypeError)
    return tuple(value)


def _check_ends(value):
    """Return the lowest and the highest value of a variable, None for those of the data."""
    if value is None:
        return None
    ends = arrays.check_finite_array(value, "ranges", ndim=(0, 1))
    if ends.shape != (2,) or ends[0] >= ends[1]:
        raise error_of("ranges", f"must be two pairs, each a lower and a higher number, got {value!r}")
    return tuple(ends.tolist())


@dataclass(frozen=True, eq=False)
class TensorPrior(TermPrior):
    """The prior (1) in two structures, with the eigenvalues d and e of (2); `constant` is what (2) has beside sum'.

    `units` are the variances of both main effects where both coefficients are 1.
    """

    eigenvalues: tuple[FloatArray, FloatArray]
    constant: float
    units: FloatArray

    def evaluate(self, free):
        """Return the prior at the logs of both standard deviations."""
        c = self.units * np.exp(-2.0 * np.asarray(free, dtype=np.float64))
        d, e = c[0] * self.eigenvalues[0][:, None], c[1] * self.eigenvalues[1]
        inside = d + e > 0.0
        total = (d + e)[inside]
        shares = [float(np.sum(np.broadcast_to(part, inside.shape)[inside] / total)) for part in (d, e)]
        value = self.constant + float(np.sum(np.log(total)))
        return PriorValue(c, np.diag(-2.0 * c), value, -2.0 * np.array(shares))


class Margin:
    """The splines of one variable: S, M, the integrals A (r, k) and null space N (k, r), and contrasts of them.

    The contrasts, the columns of `contrasts` (k, k - 1), have the integral zero: B-splines divided by their integrals,
    less the next one. Of a cycle, A and N are of the constant alone.
    """

    def __init__(self, breaks, interaction, is_cycle):
        self.knots = None if is_cycle else splines.extend_knots(breaks)
        self.n_splines, self.contrasts = len(breaks) + (-1 if is_cycle else splines.SPLINE_DEGREE - 1), None
        if is_cycle:
            self.S, self.M = (splines.integrate_periodic(self.n_splines, order) for order in (2, 0))
            self.A, self.N = np.full((1, self.n_splines), 1.0 / self.n_splines), np.ones((self.n_splines, 1))
        else:
            self.S, self.M = splines.roughness(self.knots), splines.gram(self.knots)
            self.A, self.N = splines.moments(self.knots), splines.lines(self.knots)
        if interaction:
            scaled = 1.0 / (len(self.S) * self.A[0])
            C = np.diag(scaled)[:, :-1] - np.diag(scaled[1:], -1)[:, :-1]
            self.S, self.M, self.A = C.T @ self.S @ C, C.T @ self.M @ C, self.A[1:] @ C
            self.contrasts = sparse.csr_array(C)
            self.N = np.cumsum(self.N[:-1, 1:] / scaled[:-1, None], axis=0)  # C N is the line
        self.k, self.r = self.N.shape
        self.eigenvalues = linalg.eigh(self.S, self.M, eigvals_only=True)
        self.eigenvalues[: self.r] = 0.0

    def evaluate(self, t, derivative=0):
        """Return the rows of the effects of this variable at points of [0, 1], or of their derivatives of an order."""
        if self.knots is None:
            rows = splines.evaluate_periodic(t, self.n_splines, derivative)
        else:
            rows = splines.evaluate(t, self.knots, derivative)
        return rows if self.contrasts is None else sparse.csr_array(rows @ self.contrasts)


@dataclass(frozen=True, eq=False)
class BuiltTensorSmooth(BuiltTerm):
    """A `TensorSmooth` with its ranges, which become [0, 1], and the boundaries of the intervals there, `breaks`.

    `is_full` says that both variables have no values for more knots.
    """

    name: str
    columns: tuple[str | int, ...]
    ranges: tuple[tuple[float, float], ...]
    breaks: tuple[FloatArray, ...]
    interaction: bool
    cycles: tuple[bool, ...] = (False, False)
    is_full: bool = False
    has_knots = True

    @property
    def variables(self):
        """The columns that it reads."""
        return self.columns

    @cached_property
    def margins(self):
        """The splines of each variable."""
        pairs = zip(self.breaks, self.cycles, strict=True)
        return tuple(Margin(breaks, self.interaction, is_cycle) for breaks, is_cycle in pairs)

    @property
    def size(self):
        """The number of effects."""
        x, z = self.margins
        return x.k * z.k

    @cached_property
    def prior(self):
        """That of the effects."""
        x, z = self.margins
        matrices = [np.kron(x.S, z.M), np.kron(x.M, z.S)]
        rows, columns = find_pattern(*matrices)
        log_sizes = [np.linalg.slogdet(matrix)[1] for matrix in (x.M, z.M, x.A @ x.N, z.A @ z.N)]
        return TensorPrior(
            tuple(Parameter(f"sd({column})") for column in self.columns),
            rows,
            columns,
            np.stack([matrix[rows, columns] for matrix in matrices]),
            np.kron(x.A, z.A) if x.r and z.r else None,
            (x.eigenvalues, z.eigenvalues),
            float(np.array([z.k, x.k, z.r, x.r]) @ log_sizes),
            np.where(self.cycles, VARIANCE_OF_UNIT_CYCLE, VARIANCE_OF_UNIT),
        )

    def design(self, table, levels="known"):
        """Return the rows Z of a table of columns: products of those of the variables."""
        return self._multiply(table, (0, 0))

    @property
    def derivative_variables(self):
        """Both of them."""
        return self.columns

    def derivative_design(self, table, column, levels="known"):
        """Return the rows of the derivative in a variable, and the derivatives of fixed columns by their names."""
        d = self.columns.index(column)
        length = self.ranges[d][1] - self.ranges[d][0]
        fixed = {name: values / length for name, values in self.fixed_columns(table, d).items()}
        return self._multiply(table, (int(d == 0), int(d == 1))) / length, fixed

    def _multiply(self, table, orders):
        """Products of the rows of the variables, which are of derivatives of some orders."""
        x, z = (m.evaluate(self._scale(table, d), orders[d]) for d, m in enumerate(self.margins))
        x.sort_indices()
        z.sort_indices()
        counts = np.diff(x.indptr) * np.diff(z.indptr)
        ends = np.concatenate([[0], np.cumsum(counts)])
        row = np.repeat(np.arange(len(counts)), counts)
        first, second = np.divmod(np.arange(ends[-1]) - ends[row], np.diff(z.indptr)[row])
        first, second = x.indptr[row] + first, z.indptr[row] + second
        indices = x.indices[first].astype(np.int64) * z.shape[1] + z.indices[second]
        return sparse.csr_array((x.data[first] * z.data[second], indices, ends), (len(counts), self.size))

    def _scale(self, table, d):
        """A variable in units of its range; ValueError for what is outside."""
        low, high = self.ranges[d]
        x = read_numbers(table, self.columns[d])
        outside = (x < low) | (x > high)
        if outside.any() and not self.cycles[d]:
            row = int(np.argmax(outside))
            message = f"must be within the range of {self.name}, {low:g} to {high:g}, got {x[row]:g} in row {row}"
            hint = "its prior ends there: ranges= of the term makes it wider"
            raise error_of(f"column {self.columns[d]!r}", f"{message}; {hint}")
        return (x - low) / (high - low)

    def fixed_columns(self, table, slope=None):
        """Return the columns of the null space: lines, none of cycles, and their product, of interactions this only.

        With the number `slope` of a variable, their derivatives in it, per unit of its range.
        """
        t, u = (self._scale(table, d) - 0.5 for d in range(2))
        one, zero = np.ones_like(t), np.zeros_like(t)
        values = {None: (t, u, t * u), 0: (one, zero, u), 1: (zero, one, t)}[slope]
        x, z = self.columns
        has_lines = [not (self.interaction or is_cycle) for is_cycle in self.cycles]
        present = zip((x, z, f"{x}:{z}"), values, (*has_lines, not any(self.cycles)), strict=True)
        return {f"{self.name} slope[{name}]": column for name, column, is_present in present if is_present}

    def grid(self, n):
        """Return a table of about n points, on a grid over the rectangle."""
        side = max(2, round(np.sqrt(n)))
        points = np.meshgrid(*(np.linspace(low, high, side) for low, high in self.ranges), indexing="ij")
        return {column: values.ravel() for column, values in zip(self.columns, points, strict=True)}
