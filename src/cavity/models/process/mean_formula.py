"""A mean by formula: its columns beside those of X, and a linear term of the covariance for their coefficients.

The mean h(x)'b with b ~ N(0, B), B diagonal, adds h(x)' B h(x') to the covariance [RW]_ (section 2.7): a `Linear` term.

References
----------
.. [RW] C. E. Rasmussen and C. K. I. Williams, "Gaussian Processes for Machine Learning", MIT Press, 2006.
"""

import numpy as np

from cavity.base.arrays import error_of
from cavity.base.frames import index_of, make_data_frame
from cavity.base.missing_values import complete_rows, take_rows
from cavity.base.summary import make_gaussian_marginals, tabulate_marginals
from cavity.covariances import Linear
from cavity.covariances.leaf import ColumnLeaf
from cavity.covariances.slots import is_compiled, list_leaves, rebuild
from cavity.models.formula.columns import FormulaColumns, column_names
from cavity.models.formula.design import build_design, formula_variables
from cavity.models.formula.notation import FormulaParts
from cavity.sources.dataset import open_table

NAMED_MEANS = ("constant", "linear")  # means whose coefficients are found by maximising the evidence
MEAN_PREFIX = "mean: "  # of the names of columns of a mean among those of X


def is_mean_formula(mean):
    """Return whether the mean of a model is a formula."""
    return isinstance(mean, str) and mean not in NAMED_MEANS


def list_mean_columns(columns):
    """Return the names of the columns of a mean, which are the last ones of X."""
    return tuple(name for name in columns or () if name.startswith(MEAN_PREFIX))


def split_mean(mean):
    """Return the parts of a formula of a mean; ValueError for what is no fixed effect."""
    parts = FormulaParts.of(f"1 ~ {mean}")
    if parts.random or parts.has_all_others:
        raise error_of("mean", f"must have columns of X and functions of them, no groups and no dot, got {mean!r}")
    return parts


def open_mean(mean, X):
    """Return X with the columns of a mean, a data frame, and the `Coding` of these; X and None for another mean.

    Raises
    ------
    ValueError, TypeError
        For X without names, columns that are not there, and offsets; if no row has all values that the formula reads.
    """
    if not is_mean_formula(mean):
        return X, None
    parts, table = split_mean(mean), open_table(X, "X")
    if column_names(table) is None:
        message = f"must be a number, coefficients, 'constant' or 'linear' where X has no names, got {mean!r}"
        raise error_of("mean", message)
    columns = FormulaColumns(table, "X")
    values = {name: columns[name] for name in sorted(formula_variables(parts))}
    index, _ = complete_rows(values, "drop", "X")
    complete = columns if index is None else FormulaColumns(take_rows(values, index), "X")
    design = build_design(parts, complete)
    if design.offset is not None or not design.names:
        raise error_of("mean", f"must have columns, and offsets in the argument offset, got {mean!r}")
    return add_mean_columns(design.coding, [MEAN_PREFIX + name for name in design.names], X), design.coding


def add_mean_columns(coding, names, X):
    """Return X with the columns of a mean, of these names, after its own; NaN in rows without a value that they read.

    Columns of categories of the formula are left out. Arrays, and X that has columns of a mean, are returned as they
    are.
    """
    if coding is None or isinstance(X, np.ndarray):
        return X
    X = open_table(X, "X")
    columns = FormulaColumns(X, "X")
    if list_mean_columns(columns.names):
        return X
    values = {name: columns[name] for name in sorted(coding.variables)}
    index, _ = complete_rows(values, "drop", "X", needs_rows=False)
    if index is None:
        design = coding.fixed_columns(columns)[0].values
    else:
        design = np.zeros((columns.n_rows, len(names)))
        design[:, 0] = np.nan  # in rows without a value: one column is enough for what leaves them out, or names them
        if len(index):
            design[index] = coding.fixed_columns(FormulaColumns(take_rows(values, index), "X"))[0].values
    others = {name: columns[name] for name in columns.names if name not in coding.levels}
    others = {name: getattr(column, "array", column) for name, column in others.items()}  # without an index
    return make_data_frame(others | dict(zip(names, design.T, strict=True)), index_of(X))


def add_mean_term(covariance, n_features, variances):
    """Return a covariance of the first columns of X, plus that of coefficients of these prior variances of the others.

    ValueError for a covariance of the user's own.
    """
    if not is_compiled(covariance):
        raise error_of("covariance", "must be one of cavity.covariances where the mean is a formula")
    columns = tuple(range(n_features))
    leaves = [
        leaf._with(columns=columns) if isinstance(leaf, ColumnLeaf) and leaf.columns is None else leaf
        for leaf in list_leaves(covariance)
    ]
    own = tuple(range(n_features, n_features + len(variances)))
    return rebuild(covariance, iter(leaves)) + Linear(variances, columns=own, fixed="variance")


def tabulate_mean(posterior, level):
    """Return the table of the coefficients of a mean by formula, None for another mean."""
    names = list_mean_columns(posterior.columns)
    if posterior.coding is None or not names:
        return None
    term = list_leaves(posterior.model.covariance)[-1]
    mean, variance = posterior._project(term.variance, list(term.columns))
    names = tuple(name.removeprefix(MEAN_PREFIX) for name in names)
    if "intercept" in names:
        mean[names.index("intercept")] += posterior.model.mean
    return tabulate_marginals(
        "Coefficients of the mean", make_gaussian_marginals(names, mean, np.sqrt(variance)), level
    )
