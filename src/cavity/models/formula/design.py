"""A data frame by a formula: observations, and columns of fixed and random effects, for a fit and new rows.

The package formulae makes the columns of a formula (Capretto's formulae, after Wilkinson and Rogers' notation).
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from typing import Any

import numpy as np

from cavity.base import arrays
from cavity.base.censoring import read_real_column
from cavity.base.frames import make_data_frame
from cavity.base.public_objects import FloatArray
from cavity.models.formula import evaluation
from cavity.models.formula.columns import categorical, check_length
from cavity.models.formula.evaluation import coded_numbers, column_variables, evaluate, evaluate_columns
from cavity.models.formula.notation import COLUMN_NAME, FormulaParts, refuse, split
from cavity.models.formula.structured import term_variables
from cavity.models.formula.survival import add_meaning, has_times, make_survival_bounds, split_survival_call

PROBE_ROWS = 100  # by which columns of numbers that functions make categories of are found
COUNT_PAIR = re.compile(r"\s*(p|prop|proportion|cbind)\s*\((.*)\)\s*", re.DOTALL)


@dataclass(frozen=True, slots=True, eq=False)
class Design:
    """What a formula makes of a table of N rows.

    Attributes
    ----------
    y : array_like (N,) or (N, 2)
        The column itself if the formula names one; else numbers, pairs of successes and trials from ``p(k, n)``,
        bounds from ``surv(time, event)``.
    X : ndarray (N, D) or Source
        Columns of the fixed effects.
    names : tuple of str
        Their names: "intercept" for the ones, "period[2]" for a category.
    offset : ndarray (N,) or None
        The known part of f.
    blocks : list of (tuple of str, tuple of str, ndarray (N, k))
        Random effects that share a covariance matrix: names of columns of groups, of the k columns, and their values.
    groups : dict of str to array_like (N,)
        The columns of the groups.
    coding : Coding
        How to make the same of other rows.
    has_intercept : bool
        Whether the formula has an intercept, be it left out of the columns.
    """

    y: Any
    X: FloatArray
    names: tuple[str, ...]
    offset: FloatArray | None
    blocks: list[Any]
    groups: dict[str, Any]
    coding: Coding
    has_intercept: bool


def build_design(parts, columns, *, intercept=True, thresholds_for_intercept=False, in_blocks=False):
    """Return the `Design` of the columns of a table by the parts of a formula.

    Parameters
    ----------
    parts : FormulaParts
        Of a formula without a dot, see `with_all_others`.
    columns : FormulaColumns
        The rows.
    intercept : bool, default True
        Whether the column of ones of a formula is one of the columns; it is left out where a model adds its own.
    thresholds_for_intercept : bool, default False
        Whether thresholds stand for the intercept: columns are then those beside one, whether the formula has one or
        not, without the ones.
    in_blocks : bool, default False
        Whether X is a Source, which evaluates blocks of rows when they are read, where it is large.

    Raises
    ------
    ValueError, TypeError
        Naming the part of the formula that is not understood; the column that is not there, or that has a row without
        a value.
    ImportError
        If formulae is not installed.
    """
    if thresholds_for_intercept:
        parts, intercept = replace(parts, fixed=f"{parts.fixed} + 1"), False
    y = evaluate_observations(parts.y, columns)
    if not len(y):
        raise arrays.error_of("data", "must have rows, got none")
    if has_times(parts.y):
        parts = replace(parts, y=add_meaning(parts.y, partial(_read_times, columns=columns)))
    names = {name for text in column_texts(parts) for name in column_variables(text)}
    table = columns.to_pandas(names, len(y))
    examples = take_every_category(parts, table)
    matrices = evaluate_all(parts, examples)
    fixed = (evaluation.evaluate_in_blocks if in_blocks else evaluate_columns)(matrices[parts.fixed], table, intercept)
    groups = {name: columns[name] for group, _ in random_blocks(parts) for name in group}
    for name, column in groups.items():
        check_length(column, name, len(y))
    blocks = []
    for group, text in random_blocks(parts):
        random = evaluate_columns(matrices[text], table)
        if random.offset is not None or not random.names:
            raise refuse(f"({text} | {':'.join(group)})", "random effects are an intercept, or coefficients of columns")
        blocks.append((group, random.names, random.values))
    coding = Coding.of(parts.to_text(), examples, fixed.base_levels)
    return Design(y, fixed.values, fixed.names, fixed.offset, blocks, groups, coding, fixed.has_intercept)


def evaluate_all(parts, table):
    """Return the matrices of formulae for the parts of a formula, by their texts."""
    return {text: evaluate(text, table) for text in column_texts(parts)}


def take_every_category(parts, table):
    """Return rows of a table that have every category of its columns, by which columns of all rows can be made.

    They are all rows where a function keeps something of all.
    """
    text = parts.to_text()
    if evaluation.has_memory(text):
        return table
    text_columns = {name for name in table if table[name].dtype == "category"}
    first = find_first_rows(table, text_columns)
    # the number that is the base level of a Treatment() may be in any row
    few_values = {name for name in table if "Treatment" in text and table[name].nunique() <= PROBE_ROWS}
    probe = np.union1d(find_first_rows(table, text_columns | few_values), np.arange(min(PROBE_ROWS, len(table))))
    matrices = evaluate_all(parts, table.iloc[probe])
    coded = {name for matrix in matrices.values() for name in coded_numbers(matrix)} - text_columns
    return table.iloc[np.union1d(first, find_first_rows(table, coded))]


def find_first_rows(table, names):
    """Return the numbers of the first row, and of the first with each value of some columns."""
    rows = [np.unique(table[name], return_index=True)[1] for name in names]
    return np.unique(np.concatenate([*rows, [0]]).astype(np.intp))


def with_all_others(parts, names, reserved=()):
    """Return the parts of a formula with the columns of a table that it does not name in place of a dot."""
    if not parts.has_all_others:
        return parts
    bare = parts.expand(())
    variables = {*reserved, *(name for text in column_texts(bare) for name in column_variables(text))}
    variables |= {name for group, _ in random_blocks(bare) for name in group} | observation_variables(parts.y)
    variables |= structured_variables(bare)
    return parts.expand([name for name in names if name not in variables])


def refuse_y_as_effect(parts):
    """Raise ValueError for a formula whose y, a column, is a variable of its effects or one of its groups."""
    name = COLUMN_NAME.fullmatch(parts.y)
    others = formula_variables(replace(parts, y="1"))
    if name and (name[1] or name[2]) in others:
        raise arrays.error_of("formula", f"must have {parts.y!r} on one side of the ~, got {parts.to_text()!r}")


def formula_variables(parts):
    """Return the names of the columns that a formula is about."""
    names = {name for text in column_texts(parts) for name in column_variables(text)}
    names |= {name for group, _ in random_blocks(parts) for name in group} | structured_variables(parts)
    return names | observation_variables(parts.y)


def structured_variables(parts):
    """Return the names of the columns of the structured terms of a formula."""
    return {name for text in parts.structured for name in term_variables(text)}


@dataclass(frozen=True, eq=False)
class Coding:
    """How a formula makes columns of new rows: its text, and some rows of the fit that have every category.

    Where a function keeps something of all rows (the mean of ``scale``, the knots of ``bs``) all rows are here.

    Attributes
    ----------
    formula : str
        The formula, without a dot.
    numbers : dict of str to ndarray (n,)
        Columns of numbers.
    codes : dict of str to ndarray (n,)
        Columns of categories, as their numbers.
    labels : dict of str to tuple
        Their categories.
    base_levels : dict of str to str
        For each column of categories the level that the others are compared with.
    """

    formula: str
    numbers: dict[str, FloatArray]
    codes: dict[str, Any]
    labels: dict[str, tuple[object, ...]]
    base_levels: dict[str, str] = field(default_factory=dict)

    @classmethod
    def of(cls, formula, table, base_levels):
        """Return the coding by rows of a pandas table that have every category."""
        coded = [name for name in table if table[name].dtype == "category"]
        return cls(
            formula,
            {name: table[name].to_numpy(copy=True) for name in table if name not in coded},
            {name: table[name].cat.codes.to_numpy().astype(np.intp) for name in coded},
            {name: tuple(table[name].cat.categories) for name in coded},
            base_levels,
        )

    @cached_property
    def parts(self):
        """The parts of the formula."""
        return FormulaParts.of(self.formula)

    @property
    def variables(self):
        """Names of the columns of fixed and random effects, groups and observations left out."""
        return {*self.numbers, *self.codes}

    @cached_property
    def levels(self):
        """The levels of each column of categories by its name, those of numbers that functions code included."""
        names = {name for matrix in self._matrices.values() for name in coded_numbers(matrix)}
        coded = {name: np.unique(self.numbers[name]).tolist() for name in sorted(names) if name in self.numbers}
        return coded | self.labels

    @cached_property
    def _matrices(self):
        """The matrices of formulae for the parts of the formula, by their texts."""
        columns = {
            name: categorical([self.labels[name][k] for k in codes], self.labels[name])
            for name, codes in self.codes.items()
        }
        n = len(next(iter((self.numbers | self.codes).values()), [0]))
        return evaluate_all(self.parts, make_data_frame(self.numbers | columns, index=range(n)))

    def __getstate__(self):
        """Leave out what can be made again, and cannot be pickled."""
        return {name: getattr(self, name) for name in ("formula", "numbers", "codes", "labels", "base_levels")}

    def fixed_columns(self, columns, intercept=True, in_blocks=False):
        """Return the `Evaluated` fixed effects of new rows, as `build_design` has them, and their pandas table.

        Raises
        ------
        ValueError, TypeError
            Naming categories that the fit has not, and columns that are not there.
        """
        table = columns.to_pandas(self.variables, columns.n_rows, self.labels)
        evaluated = evaluation.evaluate_in_blocks if in_blocks else evaluate_columns
        return evaluated(self._matrices[self.parts.fixed], table, intercept), table

    def random_columns(self, table):
        """Return the values (n, k) of the columns of each block of random effects."""
        return [evaluate_columns(self._matrices[text], table).values for _, text in random_blocks(self.parts)]

    def observations(self, columns):
        """Return the y of new rows."""
        return evaluate_observations(self.parts.y, columns)


def column_texts(parts):
    """Return the parts of a formula that have columns: that of fixed effects, and the blocks of random ones."""
    return list(dict.fromkeys([parts.fixed, *(text for _, text in random_blocks(parts))]))


def random_blocks(parts):
    """Return the random effects of a formula: the columns of a group, and the text of a block, for each."""
    return [(names, text) for group in parts.random for names in group.groups for text in _block_texts(group)]


def _block_texts(group):
    """Return the columns of each block of effects of a group that share a covariance matrix, as parts of a formula."""
    if group.correlated:
        return [group.columns]
    names = [evaluation.quote_term(term) for term in evaluation.describe(group.columns).common_terms]
    return ["1" if name is None else f"0 + {name}" for name in names]


# ------------------------------------------------------------------------------------------ observations


def evaluate_observations(text, columns):
    """Return what stands before the ~ of a formula, for the rows of a table."""
    name, counts = COLUMN_NAME.fullmatch(text), COUNT_PAIR.fullmatch(text)
    if name:
        return columns[name[1] or name[2]]
    if has_times(text):
        return make_survival_bounds(text, partial(_read_times, columns=columns))
    if not counts:
        return _evaluate_number(text, columns)
    successes, trials = (_evaluate_number(part, columns) for part in _count_texts(counts))
    return np.stack([successes, successes + trials if counts[1] == "cbind" else trials], axis=1)


def _count_texts(counts):
    """Return the two expressions in ``p(k, n)``."""
    texts = [text for _, text in split(counts[2], ",")]
    if len(texts) != 2:
        raise refuse(counts[0], f"there are two columns in {counts[1]}, got {len(texts)}")
    return texts


def observation_variables(text):
    """Return the names of the columns before the ~ of a formula."""
    name, counts = COLUMN_NAME.fullmatch(text), COUNT_PAIR.fullmatch(text)
    if name:
        return {name[1] or name[2]}
    texts = _count_texts(counts) if counts else split_survival_call(text)[0] if has_times(text) else [text]
    return {name for part in texts if not part.strip().isdigit() for name in column_variables(f"0 + I({part})")}


def _read_times(text, columns):
    """Return the numbers that an expression in ``surv(...)`` has for the rows of a table; a column may be infinite."""
    name = COLUMN_NAME.fullmatch(text)
    return read_real_column(columns[name[1] or name[2]], text) if name else _evaluate_number(text, columns)


def _evaluate_number(text, columns):
    """Return the numbers that an expression has for the rows of a table."""
    if text.strip().isdigit():
        return np.full(columns.n_rows, float(text))
    one_term = f"0 + I({text})"
    table = columns.to_pandas(column_variables(one_term), columns.n_rows)
    values = evaluate_columns(evaluate(one_term, table), table, is_checked=False).values
    if values.shape[1] != 1:
        message = "observations are one column: write y for a column of labels, y == 'b' for one label against others"
        raise refuse(text, message)
    place = arrays.find_nonfinite(values)
    if place is not None:
        raise arrays.error_of("formula", f"must have finite numbers in {text}, got {values[place]} in row {place[0]}")
    return values[:, 0]
