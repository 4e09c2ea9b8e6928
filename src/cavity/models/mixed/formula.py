"""A data frame by a formula: observations, columns of fixed effects, and terms of random ones, for a fit and new rows.

The package formulae makes columns of what a formula says (Capretto's formulae, after Wilkinson and Rogers' notation).
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from cavity.base import arrays
from cavity.base.arrays import error_of
from cavity.base.errors import missing_extra_error
from cavity.base.frames import join_names, make_data_frame, to_numbers
from cavity.base.types import FloatArray
from cavity.models.mixed.levels import column_in, labels_of, names_in, new_codes
from cavity.models.mixed.notation import NAME, Parts, refused, split
from cavity.models.mixed.terms import INTERCEPT, Term, terms_of_blocks

FUNCTIONS = {name: getattr(np, name) for name in ("log", "log2", "log10", "log1p", "exp", "sqrt", "abs")} | {"np": np}
COUNTS = re.compile(r"\s*(p|prop|proportion|cbind)\s*\((.*)\)\s*", re.DOTALL)
NO_COLUMNS = {"Treatment", "Sum", ""}  # names in formulas: codings, and what numbers are to formulae


@dataclass(frozen=True, slots=True, eq=False)
class Design:
    """What a formula makes of a data frame of N rows.

    Attributes
    ----------
    y : array_like (N,) or (N, 2)
        The column itself if the formula names one; else numbers, pairs of successes and trials from ``p(k, n)``.
    X : ndarray (N, D)
        Columns of the fixed effects.
    names : tuple of str
        What they are called: `INTERCEPT` for the ones, "period[2]" for a category.
    offset : ndarray (N,) or None
        The known part of f.
    terms : list of Term
        The random effects.
    coding : Coding
        How to make the same of other rows.
    """

    y: Any
    X: FloatArray
    names: tuple[str, ...]
    offset: FloatArray | None
    terms: list[Term]
    coding: Coding


def design(formula, frame, thresholds_for_intercept=False):
    """Return the `Design` of a data frame, or a dictionary of columns, by a formula in the notation of lme4.

    Where thresholds stand for the intercept, columns are those beside one, whether the formula has one or not, without
    the ones.

    Raises
    ------
    ValueError, TypeError
        Naming the part of the formula that is not understood, with what is; the column that is not there, or that has a
        row without a value; a slope of a constant.
    ImportError
        If formulae is not installed.
    """
    formula = f"{formula} + 1" if thresholds_for_intercept else formula  # after a 0, too, it brings the intercept back
    parts = Parts.of(formula)
    y = _observations(parts.y, frame)
    wanted = {name for text in _texts(parts) for name in _variables(text)}
    table = _pandas(frame, wanted, len(y))
    matrices = _matrices(parts, table)
    X, names, offset = _columns(matrices[parts.fixed], table, not thresholds_for_intercept)
    random = _random(parts)
    groups = {name: _taken(frame, name) for group, _ in random for name in group}
    blocks = []
    for group, text in random:
        Z, columns, base = _columns(matrices[text], table)
        if base is not None or not columns:
            raise refused(
                f"({text} | {':'.join(group)})", "random effects are an intercept, or coefficients of columns"
            )
        blocks.append((group, columns, None, Z))
    terms = terms_of_blocks(blocks, groups)
    for term in terms:
        _check_length(term.codes, term.levels.columns, len(y))
    return Design(y, X, names, offset, terms, Coding.of(formula, table, matrices.values()))


@dataclass(frozen=True, eq=False)
class Coding:
    """How a formula makes columns of new rows: with what it was, and some rows of the fit that have every category.

    Where a function remembers all rows (the mean of ``scale``, the knots of ``bs``) they are all kept.

    Attributes
    ----------
    formula : str
        As it was given.
    numbers : dict of str to ndarray (n,)
        Columns of numbers.
    codes : dict of str to ndarray (n,)
        Columns of categories, as their numbers.
    labels : dict of str to tuple
        Their categories.
    """

    formula: str
    numbers: dict[str, FloatArray]
    codes: dict[str, Any]
    labels: dict[str, tuple[object, ...]]

    @classmethod
    def of(cls, formula, table, matrices):
        """Return the coding of the matrices that formulae has made of a table."""
        if not _remembers(formula):
            coded = {name for name in table if table[name].dtype == "category"}
            coded |= {name for matrix in matrices for name in _coded_numbers(matrix)}
            first = [np.unique(table[name], return_index=True)[1] for name in sorted(coded)]
            table = table.iloc[np.unique(np.concatenate([*first, [0]]).astype(np.intp))]
        coded = [name for name in table if table[name].dtype == "category"]
        return cls(
            formula,
            {name: table[name].to_numpy(copy=True) for name in table if name not in coded},
            {name: table[name].cat.codes.to_numpy().astype(np.intp) for name in coded},
            {name: tuple(table[name].cat.categories) for name in coded},
        )

    @cached_property
    def _parts(self):
        return Parts.of(self.formula)

    @cached_property
    def _matrices(self):
        """What formulae knows of each part of the formula, by its text."""
        table = {
            name: _categorical([self.labels[name][k] for k in codes], self.labels[name])
            for name, codes in self.codes.items()
        }
        n = len(next(iter((self.numbers | self.codes).values()), [0]))
        table = make_data_frame(self.numbers | table, index=range(n))
        return _matrices(self._parts, table)

    def rows(self, frame, terms, levels="known", n_features=np.inf):
        """Return X (M, D), offset (M,) or None, and (codes (M,), Z (M, k)) for each term, of new rows; see `new_rows`.

        The column of ones is left out where there are `n_features` columns without it.

        Raises
        ------
        ValueError, TypeError
            Naming categories of fixed effects that the fit has not, levels that are new and must not be, columns that
            are not there.
        """
        columns = {*self.numbers, *self.codes}
        groups = {name: _taken(frame, name) for term in terms for name in term.levels.columns}
        n = len(next(iter(groups.values()), _first(frame)))
        table = _pandas(frame, columns, n, self.labels)
        X, names, offset = _columns(self._matrices[self._parts.fixed], table)
        if len(names) > n_features:
            X, _, offset = _columns(self._matrices[self._parts.fixed], table, intercept=False)
        codes = new_codes(terms, groups, levels)
        values = [_columns(self._matrices[text], table)[0] for _, text in _random(self._parts)]
        return X, offset, list(zip(codes, values, strict=True))

    def observations(self, frame):
        """Return the y of new rows."""
        return _observations(self._parts.y, frame)


# ------------------------------------------------------------------------------------------ columns of a frame


def _names(frame):
    """The names of the columns of a data frame or a dictionary of columns."""
    names = names_in(frame)
    if names is None:
        to_numbers(frame, "data")  # TypeError for a lazy frame
        kind = type(frame).__name__
        raise error_of(
            "data", f"must be a data frame or a dictionary of columns, where there is a formula; got {kind}", TypeError
        )
    return names


def _taken(frame, name):
    """A column of a frame by its name; ValueError if it is not there."""
    names = _names(frame)
    if name not in names:
        raise error_of("data", f"must have the columns of the formula: {name!r} missing; there is {join_names(names)}")
    return column_in(frame, name)


def _first(frame):
    return _taken(frame, _names(frame)[0])


def _check_length(column, name, n):
    if len(column) != n:
        raise error_of("data", f"must have columns of one length, got {n} rows of y and {len(column)} of {name}")


def _pandas(frame, wanted, n, labels=None):
    """Return columns as a pandas frame of float64 and ordered categories, those of the fit if given."""
    columns = {}
    for name in sorted(wanted):
        column = labels_of(_taken(frame, name), f"data[{name!r}]")
        _check_length(column.values, repr(name), n)
        known = None if labels is None else labels.get(name)
        if known is not None:
            columns[name] = _known(column, name, known)
        elif column.kinds is not None and labels is None:
            columns[name] = _categorical(column.values, column.kinds)
        else:
            columns[name] = arrays.check_real_array(column.values, f"data[{name!r}]")
    return make_data_frame(columns, index=range(n))


def _known(column, name, labels):
    """A column of categories of the fit; ValueError for others."""
    values, known = list(column.values), set(labels)
    for row, value in enumerate(values):
        if value not in known:
            there = f"there is {join_names(labels)}"
            raise error_of("data", f"must have categories of the fit, got {value!r} in row {row} of {name!r}; {there}")
    return _categorical(values, labels)


def _categorical(values, kinds):
    import pandas

    return pandas.Categorical(values, categories=list(kinds), ordered=True)


# ------------------------------------------------------------------------------------------ evaluation by formulae


def _formulae():
    """The modules of formulae; ImportError says how to install it."""
    try:
        from formulae import environment, matrices, parser, resolver, scanner, terms, transforms
    except ImportError as error:
        raise missing_extra_error("formulae", "formula") from error
    return environment, matrices, parser, resolver, scanner, terms, transforms


def _described(text):
    """What formulae understands by a part of a formula, an intercept added unless there is a 0."""
    _, _, parsing, resolving, scanning, terms, _ = _formulae()
    try:
        parser = parsing.Parser(scanning.Scanner(text).scan())
        model = resolving.Resolver(parser.parse()).resolve()
        model = model if isinstance(model, terms.terms.Model) else terms.terms.Model(model)
    except Exception as error:  # formulae has many kinds of errors and no common one
        raise refused(text, f"formulae refuses it ({type(error).__name__}: {error})") from error
    if not parser.at_end():
        raise refused(text, f"it goes on after its end, at {parser.peek().lexeme!r}")
    odd = [name for name in model.var_names if not isinstance(name, str)]
    if odd:
        raise refused(text, f"numbers other than 0 and 1 are no effects, got {odd[0]!r}")
    return model


def _variables(text):
    """The names of the columns that a part of a formula is about."""
    return _described(text).var_names - NO_COLUMNS


def _blocks(group):
    """The columns of each block of effects of a group that share a covariance matrix, as parts of a formula."""
    if group.correlated:
        return [group.columns]
    names = [_quoted(term) for term in _described(group.columns).common_terms]
    return ["1" if name is None else f"0 + {name}" for name in names]


def _texts(parts):
    """The parts of a formula that have columns: that of fixed effects, and the blocks of random ones."""
    return [parts.fixed, *(text for group in parts.random for text in _blocks(group))]


def _random(parts):
    """The random effects of a formula: the columns of a group, and the text of a block, for each term."""
    return [(names, text) for group in parts.random for names in group.groups for text in _blocks(group)]


def _matrices(parts, table):
    """The matrices of formulae for the parts of a formula, by their texts."""
    return {text: _evaluated(text, table) for text in _texts(parts)}


def _quoted(term):
    """The name of a term of formulae, as a formula has it; None for the intercept."""
    if term.kind == "intercept":
        return None
    return ":".join(each.name if hasattr(each, "call") else f"`{each.name}`" for each in term.components)


def _evaluated(text, table):
    """The matrix of formulae for a part of a formula, None if it has no columns."""
    environment, matrices, *_ = _formulae()
    model = _described(text)
    try:
        return matrices.DesignMatrices(model, table, environment.Environment([FUNCTIONS])).common
    except KeyError as error:
        words = f"there is no function {error.args[0]!r}, but {join_names(list(FUNCTIONS))}, and those of formulae"
        raise refused(text, words) from error
    except (TypeError, ValueError, AttributeError) as error:
        raise refused(text, f"formulae cannot evaluate it ({type(error).__name__}: {error})") from error


def _columns(matrix, table, intercept=True):
    """The columns that a matrix of formulae has for a table: values (n, D), names, and the sum of offsets, if any.

    Without the ones unless there is to be an intercept.
    """
    if matrix is None:
        return np.zeros((len(table), 0)), (), None
    try:
        values = matrix.evaluate_new_data(table).design_matrix
    except ValueError as error:
        raise error_of("data", f"does not fit the formula: {error}") from error
    values = np.asarray(values, dtype=np.float64)
    names, kinds = [], []
    for term in matrix.terms.values():
        labels = [INTERCEPT] if term.kind == "intercept" else term.labels
        names += labels
        kinds += [term.kind] * len(labels)
    kinds = np.array(kinds)
    known, wanted = kinds == "offset", (kinds != "offset") & (intercept | (kinds != "intercept"))
    arrays.check_finite(values, "X", tuple(names))
    left = tuple(name for name, one in zip(names, wanted, strict=True) if one)
    return np.ascontiguousarray(values[:, wanted]), left, values[:, known].sum(axis=1) if known.any() else None


def _remembers(formula):
    """Whether a formula has a function of formulae that remembers all rows."""
    transforms = _formulae()[-1].TRANSFORMS
    names = [name for name, each in transforms.items() if getattr(each, "__stateful_transform__", False)]
    return re.search(rf"\b({'|'.join(names)})\s*\(", formula) is not None


def _coded_numbers(matrix):
    """The names of columns that functions make categories of."""
    terms = () if matrix is None else matrix.terms.values()
    parts = [each for term in terms for each in getattr(term, "components", ())]
    return {
        name
        for each in parts
        if hasattr(each, "call") and each.kind == "categoric"
        for name in each.var_names - NO_COLUMNS
    }


def _observations(text, frame):
    """What stands before the ~ of a formula, for the rows of a frame."""
    name, counts = NAME.fullmatch(text), COUNTS.fullmatch(text)
    if name:
        return _taken(frame, name[1] or name[2])
    if not counts:
        return _number(text, frame)
    both = [_number(each, frame) for _, each in split(counts[2], ",")]
    if len(both) != 2:
        raise refused(text, f"there are two columns in {counts[1]}, got {len(both)}")
    k, n = both
    return np.stack([k, k + n if counts[1] == "cbind" else n], axis=1)


def _number(text, frame):
    """The numbers that an expression has for the rows of a frame."""
    n = len(_first(frame))
    if text.strip().isdigit():
        return np.full(n, float(text))
    text = f"0 + I({text})"
    table = _pandas(frame, _variables(text), n)
    return _columns(_evaluated(text, table), table)[0][:, 0]
