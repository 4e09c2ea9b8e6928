"""Averages over rows of what a regression predicts: predictions, comparisons of two values of a variable, slopes.

References
----------
.. [MFX] V. Arel-Bundock, N. Greifer and A. Heiss, "How to interpret statistical models using marginaleffects for R and
   Python", Journal of Statistical Software 111, 2024.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from cavity.base import arrays, summary
from cavity.base.frames import join_names, make_data_frame
from cavity.base.labels import read_labels
from cavity.base.lazy_scipy import special
from cavity.base.public_objects import Data
from cavity.likelihoods import Logit, Probit
from cavity.models.explained_variance import DEFAULT_DRAWS, ROWS_PER_BLOCK, ExplainedVariance
from cavity.models.formula.columns import FormulaColumns, column_names
from cavity.models.formula.evaluation import shown_level
from cavity.models.predictive_densities import predict_class_probabilities

SLOPE_STEP_SD = 1e-3  # half of the difference by which slopes are found, in standard deviations of the variable


class AverageEffects(ExplainedVariance):
    """Methods of posteriors of linear predictors that average over rows of a table.

    A subclass has ``_linear_rows(X, **options)``, the matrix of all effects of rows, their known part of f or None, and
    the variance that effects without data add to it or None; ``_effect_draws(n, rng)``; and ``_linear_moments(matrix,
    known)``, means and variances of f.
    """

    __slots__ = ()

    _coding = None  # that of the formula of the fit, if any

    def average_predictions(
        self,
        data: Data,
        *,
        by: str | Sequence[str] | None = None,
        level: float = 0.95,
        rng: Any = 0,
        **row_options: Any,
    ) -> summary.Table:
        """Average the mean of a new observation over the rows of a table, as `avg_predictions` of marginaleffects.

        Parameters
        ----------
        data : data frame, dict of columns, or array_like (n, D)
            Rows, as `predict` takes them.
        by : str or sequence of str, optional
            Columns of categories: an average for each combination of them, in place of one.
        level : float in (0, 1), default 0.95
            Probability of the intervals; as much is left out on either side.
        rng : seed or numpy.random.Generator, default 0
            Source of the 1,000 draws of the coefficients, where the link is not the identity.
        **row_options : optional
            offset and exposure, and of mixed models groups and levels, as `predict` takes them: ``exposure=1.0`` gives
            rates, ``levels="zero"`` typical groups, ``levels="new"`` averages over groups that have not been seen.

        Returns
        -------
        Table
            Mean, sd and interval of each average; for several classes an average for each.

        Notes
        -----
        The average is a function of the coefficients: sum over rows of E[y | f = x'w] / n. Its posterior mean is an
        integral of one dimension for each row; its sd and interval are those of draws of w; with the identity as link
        all of them are exact [MFX]_.
        """
        groups = group_rows(data, by)
        return self._average([(groups, None, data, 1.0)], "Average predictions", level, rng, row_options, signed=False)

    def average_comparisons(
        self,
        data: Data,
        variables: str | Sequence[str] | Mapping[str, Any] | None = None,
        *,
        by: str | Sequence[str] | None = None,
        level: float = 0.95,
        rng: Any = 0,
        **row_options: Any,
    ) -> summary.Table:
        """Average over rows what changes when a variable does, as `avg_comparisons` of marginaleffects.

        Parameters
        ----------
        data : data frame, dict of columns, or array_like (n, D)
            Rows, as `predict` takes them.
        variables : str, sequence of str, or dict, optional
            The variables, by default all of the formula, or all columns. Of categories each level is compared with the
            base level; of numbers with two values the larger one with the smaller one; of other numbers x + 1/2 with
            x - 1/2. A dict has another step for numbers, or a pair of values, for each variable.
        by : str or sequence of str, optional
            Columns of categories: averages for each combination of them.
        level : float in (0, 1), default 0.95
            Probability of the intervals; as much is left out on either side.
        rng : seed or numpy.random.Generator, default 0
            Source of the 1,000 draws of the coefficients, where the link is not the identity.
        **row_options : optional
            offset and exposure, and of mixed models groups and levels, as `predict` takes them: ``exposure=1.0`` gives
            rates, ``levels="zero"`` typical groups, ``levels="new"`` averages over groups that have not been seen.

        Returns
        -------
        Table
            Mean, sd, interval and P(>0) of each average, on the scale of the observations; see `average_predictions`.
        """
        groups, table = group_rows(data, by), self._variable_table(data)
        pairs = [pair for variable in choose_variables(table, variables) for pair in variable.pairs()]
        jobs = [(prefixed(groups, name), low, high, 1.0) for name, low, high in pairs]
        return self._average(jobs, "Average comparisons", level, rng, row_options)

    def average_slopes(
        self,
        data: Data,
        variables: str | Sequence[str] | None = None,
        *,
        by: str | Sequence[str] | None = None,
        level: float = 0.95,
        rng: Any = 0,
        **row_options: Any,
    ) -> summary.Table:
        """Average over rows the slope of the mean of an observation in a variable, as `avg_slopes` of marginaleffects.

        Parameters
        ----------
        data : data frame, dict of columns, or array_like (n, D)
            Rows, as `predict` takes them.
        variables : str or sequence of str, optional
            Variables of numbers, by default all of the formula, or all columns.
        by : str or sequence of str, optional
            Columns of categories: averages for each combination of them.
        level : float in (0, 1), default 0.95
            Probability of the intervals; as much is left out on either side.
        rng : seed or numpy.random.Generator, default 0
            Source of the 1,000 draws of the coefficients, where the link is not the identity.
        **row_options : optional
            offset and exposure, and of mixed models groups and levels, as `predict` takes them: ``exposure=1.0`` gives
            rates, ``levels="zero"`` typical groups, ``levels="new"`` averages over groups that have not been seen.

        Returns
        -------
        Table
            Mean, sd, interval and P(>0) of each average, per unit of the variable; see `average_predictions`. Slopes
            are central differences over 0.002 standard deviations of the variable.
        """
        groups, table = group_rows(data, by), self._variable_table(data)
        chosen = choose_variables(table, variables)
        if variables is None:
            chosen = [variable for variable in chosen if variable.levels is None]
        jobs = []
        for variable in chosen:
            step, low, high = variable.around()
            jobs.append((prefixed(groups, variable.name), low, high, 2.0 * step))
        return self._average(jobs, "Average slopes", level, rng, row_options)

    def _average(self, jobs, title, level, rng, row_options, signed=True):
        """Return the table of averages over groups of rows of (high - low) / step, or of high where low is None."""
        level = arrays.check_number(level, "level", low=0, high=1)
        rng, parts, notes = arrays.make_generator(rng), [], ()
        outcomes = list_outcomes(self._likelihood, self.classes)
        weights = None
        for groups, low, high, step in jobs:
            ends = [self._checked_linear_rows(end, row_options) for end in (high, low) if end is not None]
            if is_identity(self._likelihood):
                parts += [self._exact_average(name, rows, ends, step) for name, rows in groups]
                continue
            if weights is None:
                weights = self._effect_draws(DEFAULT_DRAWS, rng)
                notes = (f"sd and intervals of {DEFAULT_DRAWS} draws",)
            moments = [self._moments_of(*end) for end in ends]
            for outcome in outcomes:
                mean = outcome.integrated(*moments[0]) - (outcome.integrated(*moments[1]) if len(ends) == 2 else 0.0)
                draws = average_draws(groups, ends, weights, outcome) / step
                parts += [
                    (outcome.describe_average(name), float(np.mean(mean[rows])) / step, draws[k])
                    for k, (name, rows) in enumerate(groups)
                ]
        return average_table(title, parts, level, notes, signed)

    def _moments_of(self, matrix, offset, extra):
        """Return means and variances of f of rows as `_linear_rows` has them."""
        mean, variance = self._linear_moments(matrix, offset)
        return mean, variance if extra is None else variance + extra

    def _exact_average(self, name, rows, ends, step):
        """Return the name, mean and sd of an average that is linear in the effects."""
        averaged = [(np.asarray(matrix[rows].mean(axis=0)).ravel(), offset) for matrix, offset, _ in ends]
        row = (averaged[0][0] - averaged[1][0]) / step if len(ends) == 2 else averaged[0][0]
        offsets = [0.0 if offset is None else float(np.mean(offset[rows])) for _, offset in averaged]
        shift = (offsets[0] - offsets[1]) / step if len(ends) == 2 else offsets[0]
        mean, variance = self._linear_moments(row[None], None)
        return name or "all rows", float(mean[0]) + shift, float(np.sqrt(variance[0]))

    def _variable_table(self, data):
        """Return the variables of rows by their names, as `VariableTable`."""
        coding = self._coding
        if coding is not None:
            levels = {
                name: order_levels(levels, coding.base_levels.get(name)) for name, levels in coding.levels.items()
            }
            return VariableTable(FormulaColumns(data).to_dict(), sorted(coding.variables), levels)
        names = column_names(data)
        if names is None:
            X = arrays.check_finite_array(data, "data", ndim=(2,))
            columns = {f"x{j + 1}": X[:, j] for j in range(X.shape[1])}
            return VariableTable(columns, tuple(columns), {}, is_array=True)
        return VariableTable(FormulaColumns(data).to_dict(), self.columns or names, {}, is_frame=True)


@dataclass(frozen=True, slots=True, eq=False)
class VariableTable:
    """Columns of rows, of which some are variables."""

    columns: dict[str, Any]
    variables: Sequence[str]
    labels: Mapping[str, Sequence[Any]]  # of variables of categories
    is_array: bool = False  # whether rows are handed on as an array
    is_frame: bool = False  # or as a data frame

    def changed(self, name, values):
        """Return rows in which a variable has other values."""
        columns = self.columns | {name: values}
        if self.is_array:
            return np.column_stack(list(columns.values()))
        return make_data_frame(columns) if self.is_frame else columns


@dataclass(frozen=True, slots=True, eq=False)
class Variable:
    """A variable of a table whose values are changed."""

    table: VariableTable
    name: str
    levels: Sequence[Any] | None  # of categories
    change: Any = None  # a step, or a pair of values

    @property
    def numbers(self):
        """Its values as numbers."""
        column = read_labels(self.table.columns[self.name], f"data[{self.name!r}]")
        if column.kinds is not None or self.levels is not None:
            raise arrays.error_of("variables", f"must be of numbers, got {self.name!r}, which has categories")
        return np.asarray(column.values, dtype=np.float64)

    def pairs(self):
        """Yield the name of each comparison, and the rows before and after the change."""
        n = len(self.table.columns[self.name])
        if self.levels is not None or isinstance(self.change, tuple):
            first, *others = self.change if isinstance(self.change, tuple) else self.levels
            for value in others:
                ends = (self.table.changed(self.name, [end] * n) for end in (first, value))
                yield f"{self.name}: {shown_level(value)} - {shown_level(first)}", *ends
            return
        numbers = self.numbers
        values = np.unique(numbers)
        if self.change is None and len(values) == 2:
            ends = (self.table.changed(self.name, np.full(n, value)) for value in values)
            yield f"{self.name}: {values[1]:g} - {values[0]:g}", *ends
            return
        step = 1.0 if self.change is None else arrays.check_number(self.change, f"variables[{self.name!r}]")
        ends = (self.table.changed(self.name, end) for end in (numbers - step / 2.0, numbers + step / 2.0))
        yield f"{self.name}: +{step:g}", *ends

    def around(self):
        """Return half a small difference, and the rows that much below and above."""
        numbers = self.numbers
        step = SLOPE_STEP_SD * (float(np.std(numbers)) or 1.0)
        return step, self.table.changed(self.name, numbers - step), self.table.changed(self.name, numbers + step)


def order_levels(levels, base_level):
    """Return levels with the base level of the coefficients, if there is one, before the others."""
    return sorted(levels, key=lambda level: shown_level(level) != base_level)


def choose_variables(table, variables):
    """Return the `Variable`s of a table that a user has chosen."""
    changes = dict(variables) if isinstance(variables, Mapping) else {}
    names = table.variables if variables is None else (variables,) if isinstance(variables, str) else tuple(variables)
    for name in names:
        if name not in table.variables:
            available = join_names(list(table.variables))
            raise arrays.error_of("variables", f"must be of the model, got {name!r}; there is {available}")
    return [Variable(table, name, table.labels.get(name), changes.get(name)) for name in names]


def group_rows(data, by):
    """Return the names of groups of rows, and their numbers: one group without a name unless there is `by`."""
    if by is None:
        if column_names(data) is not None and not FormulaColumns(data).n_rows:
            raise arrays.error_of("data", "must have rows, got none")
        return [("", slice(None))]
    columns, names = FormulaColumns(data), [by] if isinstance(by, str) else list(by)
    labels = [read_labels(columns[name], f"data[{name!r}]") for name in names]
    kinds = [np.unique(column.values).tolist() if column.kinds is None else column.kinds for column in labels]
    orders = [{kind: k for k, kind in enumerate(several)} for several in kinds]
    codes = [[order[value] for value in column.values] for order, column in zip(orders, labels, strict=True)]
    sizes = tuple(map(len, kinds))
    joint, group = np.unique(np.ravel_multi_index(codes, sizes), return_inverse=True)
    shown = [[kind if isinstance(kind, str) else f"{kind:g}" for kind in several] for several in kinds]
    keys = zip(*np.unravel_index(joint, sizes), strict=True)
    return [
        (", ".join(texts[k] for texts, k in zip(shown, key, strict=True)), np.flatnonzero(group == number))
        for number, key in enumerate(keys)
    ]


def prefixed(groups, name):
    """Return groups of rows whose names begin with that of a comparison."""
    return [(f"{name} | {group}" if group else name, rows) for group, rows in groups]


@dataclass(frozen=True, slots=True)
class ObservedOutcome:
    """A number that is expected of an observation: its mean, or the probability of a class."""

    label: str
    conditional: Any  # a function of f, whose memory it may use
    integrated: Any  # a function of the mean and the variance of f

    def describe_average(self, name):
        """Return the name of an average with what is averaged: that of one of several classes is "P(class), name"."""
        return ", ".join(filter(None, (self.label and f"P({self.label})", name)))


def list_outcomes(likelihood, classes):
    """Return the outcomes of a likelihood: the mean, the probability of the second of two classes, or those of all."""
    if likelihood.n_classes is None:
        return [ObservedOutcome("", likelihood.conditional_mean, likelihood.expected)]
    exact = {Logit: logistic, Probit: special.ndtr}.get(type(likelihood))
    numbers = [1] if likelihood.n_classes == 2 else range(likelihood.n_classes)
    outcomes = []
    for k in numbers:

        def conditional(f, k=k):
            y = likelihood.check(np.full(f.size, float(k)))
            return np.exp(likelihood.log_p(y, f.ravel())).reshape(f.shape)

        def integrated(mean, variance, k=k):
            return predict_class_probabilities(likelihood, lambda: (mean, variance))[:, k]

        label = "" if len(numbers) == 1 else str(k if classes is None else classes[k])
        outcomes.append(ObservedOutcome(label, conditional if exact is None else exact, integrated))
    return outcomes


def logistic(f):
    """Return 1/(1 + exp(-f)) in the memory of f: scipy.special.expit takes six times as long."""
    np.negative(f, out=f)
    with np.errstate(over="ignore"):
        np.exp(f, out=f)
    f += 1.0
    return np.reciprocal(f, out=f)


def is_identity(likelihood):
    """Return whether the mean of an observation is f."""
    f = np.array([-1.5, 0.0, 2.0])
    return likelihood.n_classes is None and np.array_equal(likelihood.conditional_mean(f), f)


def average_draws(groups, ends, weights, outcome):
    """Return draws (groups, draws) of averages over rows of an `ObservedOutcome`, or of its difference of two ends.

    Effects of groups that have not been seen are integrated out in each draw.
    """
    out = np.zeros((len(groups), len(weights)))
    for k, (_, rows) in enumerate(groups):
        index = np.arange(ends[0][0].shape[0])[rows]
        for start in range(0, len(index), ROWS_PER_BLOCK):
            block = index[start : start + ROWS_PER_BLOCK]
            for sign, (matrix, offset, extra) in zip((1.0, -1.0), ends, strict=False):
                f = matrix[block] @ weights.T  # (rows, effects) (effects, draws)
                f = f if offset is None else f + offset[block][:, None]
                if extra is None or not extra[block].any():
                    values = outcome.conditional(f)
                else:
                    values = outcome.integrated(f.ravel(), np.repeat(extra[block], len(weights))).reshape(f.shape)
                out[k] += sign * values.sum(axis=0)
        out[k] /= len(index)
    return out


def average_table(title, parts, level, notes, signed):
    """Return the table of averages: (name, mean, sd) where they are normal, else (name, mean, draws)."""
    names = tuple(name or "all rows" for name, *_ in parts)
    mean = np.array([value for _, value, _ in parts])
    has_draws = bool(parts) and np.ndim(parts[0][2]) == 1
    if not has_draws:
        marginals = summary.make_gaussian_marginals(names, mean, np.array([sd for *_, sd in parts]))
        table = summary.tabulate_marginals(title, marginals, level)
    else:
        draws = np.array([draw for *_, draw in parts])
        columns = summary.summarise_draws(draws, level) | {"mean": mean}
        formats = dict.fromkeys(columns, "sd")
        columns["P(>0)"], formats["P(>0)"] = np.mean(draws > 0, axis=1), summary.PROBABILITY_FORMAT
        table = summary.Table(title, names, columns, formats, notes)
    if signed:
        return table
    columns = {name: column for name, column in table.columns.items() if name != "P(>0)"}
    return summary.Table(title, table.names, columns, dict.fromkeys(columns, "sd"), table.notes)
