"""Columns that separate the observations: the likelihood has no maximum along them.

References
----------
.. [AA] A. Albert and J. A. Anderson, "On the existence of maximum likelihood estimates in logistic regression models",
   Biometrika 71, 1984.
"""

import numpy as np

from cavity.base.errors import NumericalWarning, warn
from cavity.base.frames import coefficient_names
from cavity.base.labels import is_ordered
from cavity.blocks.reading import each_block, is_elsewhere
from cavity.likelihoods import Binomial, Interval, Logit, NegativeBinomial, OrderedProbit, Poisson, Probit
from cavity.likelihoods.base import encoded
from cavity.models.glm.design import constant_columns
from cavity.models.glm.weights import ROWS_TOGETHER

MAX_NAMES_IN_MESSAGE = 5


def warn_of_separation(model, rows, names, added):
    """Warn of columns that separate the observations, if the prior of their weights was left to the data.

    Parameters
    ----------
    model : GLM
        The settings before `resolved`, with a likelihood.
    rows : Rows
        The rows before `resolved`. Sparse X, and X on the workers of dask, is not searched.
    names : tuple of str or None
        Names of the columns of X.
    added : bool
        Whether the fit has added an intercept.

    Warns
    -----
    NumericalWarning
        With the names of the columns.
    """
    if model.prior_variance is not None or hasattr(rows.X, "tocsr") or is_elsewhere(rows.X):
        return
    columns = separating_columns(model.likelihood, rows, added or bool(constant_columns(rows.X, rows.weights).any()))
    if len(columns):
        names = coefficient_names(names, rows.X.shape[1], False)
        shown = ", ".join(repr(names[j]) for j in columns[:MAX_NAMES_IN_MESSAGE])
        shown += ", ..." if len(columns) > MAX_NAMES_IN_MESSAGE else ""
        which, of = (
            ("column", "its coefficient") if len(columns) == 1 else ("each of the columns", "their coefficients")
        )
        warn(
            f"y is separated by {which} {shown}: the data bound {of} on one side only, and the default prior decides "
            "the size; give a prior_variance that says which sizes are plausible, or leave the column out",
            NumericalWarning,
        )


def separating_columns(likelihood, rows, has_intercept):
    """Return the numbers of the columns of X each of which separates the observations, completely or but for ties.

    Along such a column, moved by the intercept, the likelihood of no row falls however large its weight becomes, and
    that of some row grows [AA]_. Directions of several columns together are not searched.

    Parameters
    ----------
    likelihood : Likelihood
        Real numbers, and a likelihood of the user's own, are not searched.
    rows : Rows
        Those of weight 0 do not count.
    has_intercept : bool
        Whether f may be moved by a constant. Open thresholds may be moved one by one.

    Returns
    -------
    ndarray of int
    """
    thresholds_are_open = is_ordered(likelihood) and likelihood.n_classes is None
    kinds_of, below, above = (_classes if thresholds_are_open else _sides)(likelihood, rows.y)
    columns, counted = np.arange(rows.X.shape[1] if len(below) else 0), ~rows.left_out
    low = np.full((below.shape[-1], len(columns)), np.inf)
    high = -low
    for part, x in each_block(rows.X, ROWS_TOGETHER) if len(below) else ():
        x, kinds = x[counted[part]][:, columns], kinds_of(rows.y[part][counted[part]])
        for kind in range(len(low)):
            of_kind = x[kinds == kind]
            low[kind] = np.minimum(low[kind], of_kind.min(axis=0, initial=np.inf))
            high[kind] = np.maximum(high[kind], of_kind.max(axis=0, initial=-np.inf))
        kept = _are_apart(low, high, below, above, has_intercept or thresholds_are_open)
        columns, low, high = columns[kept], low[:, kept], high[:, kept]
        if not len(columns):
            break
    varies = low.min(axis=0) < high.max(axis=0)
    seen = low < np.inf
    if has_intercept:  # which separates rows of one kind without any column
        varies &= np.all([seen[kinds].any(axis=0) for kinds in (*below, *above)], axis=0)
    return columns[varies]


def _classes(likelihood, y):
    """Return a function of y that numbers the kinds of rows, and for each cut which kinds are below it, and above it.

    Here kinds are classes, and cuts the thresholds; masks (cuts, kinds).
    """
    classes = np.arange(int(np.max(y)) + 1)
    below = classes <= classes[:-1, None]
    return (lambda y: y.astype(np.intp)), below, ~below


def _sides(likelihood, y):
    """Return the same for one cut, where f is 0: rows without a maximum in f on either side, above, below, with one.

    Rows with a maximum are both below and above the cut, which is where they have to stay.
    """

    def kinds_of(y):
        if isinstance(likelihood, Logit | Probit):
            rises, falls = y > 0, y <= 0
        elif isinstance(likelihood, Poisson | NegativeBinomial):
            rises, falls = False, y == 0
        else:
            first, second = encoded(likelihood, y)
            counts = isinstance(likelihood, Binomial)  # successes and failures; else bounds
            rises, falls = (second == 0, first == 0) if counts else (second == np.inf, first == -np.inf)
        return 2 * ~np.asarray(rises) + ~falls

    known = isinstance(likelihood, Logit | Probit | Poisson | NegativeBinomial | Binomial | Interval | OrderedProbit)
    below, above = np.array([[False, False, True, True]]), np.array([[False, True, False, True]])
    return kinds_of, below[:known], above[:known]


def _are_apart(low, high, below, above, is_free):
    """Return for which columns every cut leaves all that is below it on one side; a cut is at 0 unless it is free."""

    def is_between(ends, other_ends):
        return ends <= other_ends if is_free else (ends <= 0) & (other_ends >= 0)

    rises = [is_between(high[b].max(axis=0), low[a].min(axis=0)) for b, a in zip(below, above, strict=True)]
    falls = [is_between(high[a].max(axis=0), low[b].min(axis=0)) for b, a in zip(below, above, strict=True)]
    return np.all(rises, axis=0) | np.all(falls, axis=0)
