"""The data of a fit of many responses: rows and terms as of one response, and the matrix of the responses."""

from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from cavity.base import arrays
from cavity.base.errors import DROP_WAY_OUT, SettingsWarning, warn
from cavity.base.frames import join_names
from cavity.base.missing_values import MISSING_CHOICES
from cavity.base.public_objects import replace_unchecked
from cavity.models.defaults import follows_units, is_real
from cavity.models.formula.columns import column_names, get_column
from cavity.models.many.response_blocks import find_first_response
from cavity.sources.dataset import open_table
from cavity.sources.response_matrix import ResponseMatrix, map_blocks, split_annotated

RESPONSE_COLUMN = "response"  # what stands before the ~ of a formula while it is read
ROW_WAY_OUT = "leave such rows out of X and Y: missing='drop' of fit_many is about Y only"
ROW_ARGUMENTS = ("offset", "exposure")  # that may be matrices with a column for each response
MAX_SIZE = 1e100  # of observations from which the defaults of a design are found
MAX_CHECKED_COLUMNS = 256  # of the design, whose rank is found column by column


@dataclass(frozen=True, slots=True, eq=False)
class ManyInputs:
    """What `fit_many` was given, opened.

    Attributes
    ----------
    table : object
        The rows, with a column of a response where there is a formula.
    formula : str or None
        With that column before the ~.
    y : ndarray (N,) or (N, 2)
        The first response that the likelihood takes.
    matrices : dict of str to ResponseMatrix
        "Y", and the arguments that differ by response.
    columns : dict
        The arguments of rows, those that are matrices left out.
    drops_missing : bool
        Whether a response is fitted on the rows in which it has a value.
    """

    table: Any
    formula: str | None
    y: np.ndarray
    matrices: dict
    columns: dict
    drops_missing: bool

    @classmethod
    def open(cls, formula, likelihood, X, Y, names, columns, missing):
        """Open rows and responses; ValueError or TypeError naming what does not fit."""
        if likelihood is None:
            message = "must be given to fit_many, as y of one response would decide for all, got None"
            raise arrays.error_of("likelihood", message)
        if likelihood._y_ndim != 1 and not likelihood.takes_trials:
            message = f"of fit_many must take one number a row, got {type(likelihood).__name__}"
            raise arrays.error_of("likelihood", message)
        columns = dict(columns)
        trials = columns.pop("trials")
        if (trials is not None) != likelihood.takes_trials:
            verb = "are required by" if likelihood.takes_trials else "are of successes, as those of binomial, not of"
            got = "None" if trials is None else type(trials).__name__
            raise arrays.error_of("trials", f"{verb} {type(likelihood).__name__}, got {got}")
        annotated = split_annotated(X) if Y is None else None
        if Y is None and annotated is None:
            raise arrays.error_of("Y", "must be a matrix with a column for each response, got None", TypeError)
        if annotated is not None:
            X, Y, own_names = annotated
            names = own_names if names is None else names
        responses = ResponseMatrix.open(Y, "Y", names)
        others = {name: columns[name] for name in ROW_ARGUMENTS if np.ndim(columns[name]) == 2} | {"trials": trials}
        if "exposure" in others and not likelihood.takes_exposure:
            raise arrays.error_of("exposure", f"is for counts, as those of Poisson, got {type(likelihood).__name__}")
        columns = {name: None if name in others else value for name, value in columns.items()}
        others = {name: value for name, value in others.items() if value is not None}
        matrices = {name: ResponseMatrix.open_beside(value, name, responses) for name, value in others.items()}
        matrices = {"Y": responses} | matrices
        drops_missing = arrays.check_choice(missing, "missing", MISSING_CHOICES) == "drop"
        y = _bring_into_range(find_first_response(likelihood, matrices, drops_missing), likelihood)
        if formula is not None:
            X, formula = _put_response(formula, X, y)
        else:
            check_row_count(getattr(X, "shape", ())[:1], len(y))
        return cls(X, formula, y, matrices, columns, drops_missing)

    @property
    def names(self):
        """Names of the responses."""
        return self.matrices["Y"].names

    @property
    def has_offset(self):
        """Whether known parts of f differ by response."""
        return any(name in self.matrices for name in ROW_ARGUMENTS)

    def map_blocks(self, function, spans, threads):
        """Yield function(names, blocks) of responses from low to high, in order, on threads or on workers of dask."""
        arguments = ((self.names[slice(*span)], *span) for span in spans)
        return map_blocks(function, self.matrices, arguments, threads)


def _bring_into_range(y, likelihood):
    """Return observations of a design: defaults follow each response, and an extreme one is divided by its largest."""
    size = np.max(np.abs(y))
    is_extreme = size > 0 and not 1.0 / MAX_SIZE < size < MAX_SIZE
    return y / size if is_extreme and (is_real(likelihood) or follows_units(likelihood)) else y


@contextmanager
def replace_way_out():
    """Let errors about rows without a value in X say what can be done about them here."""
    try:
        yield
    except ValueError as error:
        if DROP_WAY_OUT not in str(error):
            raise
        raise ValueError(str(error).replace(DROP_WAY_OUT, ROW_WAY_OUT)) from error


def _put_response(formula, X, y):
    """Return a table with a column of a response, and a formula with that column before the ~."""
    if not formula.lstrip().startswith("~"):
        message = f"of fit_many must begin with ~, as Y holds the observations, got {formula!r}"
        raise arrays.error_of("formula", message)
    table = open_table(X, "X")
    names = column_names(table)
    if names is None:
        message = f"must be a data frame or a dictionary of columns, where there is a formula; got {type(X).__name__}"
        raise arrays.error_of("X", message, TypeError)
    columns = {name: get_column(table, name) for name in names}
    check_row_count([len(column) for column in columns.values() if hasattr(column, "__len__")], len(y))
    name = RESPONSE_COLUMN
    while name in columns or f"{name}_trials" in columns:
        name += "_"
    if y.ndim == 1:
        return columns | {name: y}, f"{name} {formula.lstrip()}"
    trials = f"{name}_trials"
    return columns | {name: y[:, 0], trials: y[:, 1]}, f"p({name}, {trials}) {formula.lstrip()}"


def with_formula(model, formula, **values):
    """Return settings with another formula, as they are read with the column of a response."""
    return replace_unchecked(model, **values, **({} if formula is None else {"formula": formula}))


def check_row_count(counts, n):
    """Raise ValueError unless one of the lengths of the columns of X, if any is known, is n, that of Y."""
    if counts and n not in counts:
        raise arrays.error_of("Y", f"must have as many rows as X, {counts[0]}, got {n}")


def take_used_rows(rows):
    """Return rows with a contiguous matrix in memory, those without a known part of f included."""
    return replace(rows, X=np.ascontiguousarray(rows.X, dtype=np.float64))


def warn_of_rank(X, names):
    """Warn of columns that are combinations of those before them: only the prior distinguishes them."""
    if X.shape[1] > MAX_CHECKED_COLUMNS:
        return
    length = np.sqrt(np.sum(X * X, axis=0))
    scaled = X / np.where(length > 0, length, 1.0)
    ranks = [0, *(int(np.linalg.matrix_rank(scaled[:, : j + 1])) for j in range(X.shape[1]))]
    dependent = tuple(name for name, more in zip(names, np.diff(ranks), strict=True) if not more)
    if dependent:
        verb = "follow" if len(dependent) > 1 else "follows"
        warn(
            f"the design has not full rank: {join_names(dependent)} {verb} from the columns before, so that only the "
            "prior distinguishes coefficients in every response; leave such columns out",
            SettingsWarning,
        )
