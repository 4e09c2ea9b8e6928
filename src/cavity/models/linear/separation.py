"""Columns that separate the observations: the likelihood has no maximum along them.

References
----------
.. [AA] A. Albert and J. A. Anderson, "On the existence of maximum likelihood estimates in logistic regression models",
   Biometrika 71, 1984.
"""

import numpy as np

from cavity.base.errors import NumericalWarning, warn
from cavity.base.frames import name_coefficients
from cavity.base.labels import has_classes, is_ordered
from cavity.likelihoods import HurdlePoisson, Step
from cavity.likelihoods.parameters import is_built_in
from cavity.models.defaults import is_real
from cavity.sources.dataset import ON_WORKERS
from cavity.sources.features import ROWS_PER_BLOCK, SPARSE_KIND, find_constant_columns, kind_of
from cavity.sources.read_ahead import iterate_blocks

MAX_NAMES_IN_MESSAGE = 5
WITH_MAXIMUM = 3  # kind of rows whose likelihood falls as f moves either way, see `_sides`


def warn_of_separation(model, rows, names, added):
    """Warn of a single class, and of columns that separate the observations, if the prior was left to the data.

    Parameters
    ----------
    model : GLM
        The settings before `resolve_defaults`, with a likelihood.
    rows : Rows
        The rows before `resolve_defaults`. Sparse X, and X on the workers of dask, is not searched.
    names : tuple of str or None
        Names of the columns of X.
    added : bool
        Whether the fit has added an intercept.

    Warns
    -----
    NumericalWarning
        With the names of the columns.
    """
    likelihood = model.likelihood
    if not _can_search(model, rows):
        return
    has_two_classes = likelihood.n_classes == 2 and rows.X.shape[1] > 0
    if lacks_variation(model, rows, added) or (has_two_classes and are_all_on_one_side(likelihood, rows)):
        held = "one class" if has_classes(likelihood) else f"no value above {np.max(rows.y):g}"
        held = "one outcome" if likelihood.takes_trials else "no event" if likelihood.takes_event else held
        others = "both classes" if likelihood.n_classes == 2 else "other kinds"
        message = f"y holds {held} in all {rows.n} rows, whose weights are bounded by the default prior alone"
        warn(f"{message}; give rows of {others}, or a prior_variance", NumericalWarning)
        return
    columns = separating_columns(likelihood, rows, _has_intercept(rows, added))
    if len(columns):
        names = name_coefficients(names, rows.X.shape[1], False)
        labels = " and by column ".join(repr(names[j]) for j in columns[:MAX_NAMES_IN_MESSAGE])
        labels += " and by others" * (len(columns) > MAX_NAMES_IN_MESSAGE)
        warn(
            f"y is separated by column {labels}: the data bound such a coefficient on one side only, the default prior "
            "decides its size; give a prior_variance that says which sizes are plausible, or leave the column out",
            NumericalWarning,
        )


def _can_search(model, rows):
    """Whether the default prior alone bounds coefficients that the data do not, and X is where it can be searched."""
    return model.prior_variance is None and kind_of(rows.X) not in (SPARSE_KIND, ON_WORKERS)


def _has_intercept(rows, added):
    return added or bool(find_constant_columns(rows.X, rows.weights).any())


def lacks_variation(model, rows, added):
    """Whether y holds one class, or no count above 0: the default prior alone bounds the intercept then.

    Arguments are those of `warn_of_separation`.
    """
    return _can_search(model, rows) and are_all_on_one_side(model.likelihood, rows) and _has_intercept(rows, added)


def can_separate(likelihood):
    """Whether observations of a likelihood of the package may have no maximum in f."""
    if not is_built_in(likelihood) or isinstance(likelihood, Step):
        return False
    return likelihood.takes_event or likelihood.link == "log" or not is_real(likelihood)


def find_sides(likelihood, y):
    """Return which rows stay likely as f rises, and which as it falls: masks (n,)."""
    if has_classes(likelihood):
        last = 1.0 if not is_ordered(likelihood) else likelihood.n_classes - 1.0
        return y == last, y <= 0
    if likelihood.takes_trials:
        return y[:, 0] == y[:, 1], y[:, 0] == 0
    if likelihood.takes_event:
        return y[:, 1] == np.inf, y[:, 0] == (0.0 if likelihood.link == "log" else -np.inf)
    has_hurdle = isinstance(likelihood, HurdlePoisson)  # zeros do not depend on f, ones are likeliest at f = -inf
    return (y == 0) & has_hurdle, y <= has_hurdle


def are_all_on_one_side(likelihood, rows):
    """Whether the likelihood of all rows, of several, grows with f, or falls: it has no maximum in the intercept."""
    thresholds_are_open = is_ordered(likelihood) and likelihood.n_classes is None
    if rows.n < 2 or thresholds_are_open or not can_separate(likelihood):
        return False
    return any(np.all(side | rows.left_out) for side in find_sides(likelihood, rows.y))


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
    if not can_separate(likelihood):
        return np.arange(0)
    thresholds_are_open = is_ordered(likelihood) and likelihood.n_classes is None
    kinds_of, below, above = _separate_classes(rows.y) if thresholds_are_open else _separate_sides(likelihood)
    columns, counted = np.arange(rows.X.shape[1]), ~rows.left_out
    reach = np.full((2, below.shape[1], len(columns)), -np.inf)  # largest values of each kind, of x and of -x
    if not (has_intercept or thresholds_are_open):
        reach[:, WITH_MAXIMUM] = 0.0  # as a row of zeros fixes the cut
    for part, x in iterate_blocks(rows.X, ROWS_PER_BLOCK):
        x, kinds = x[counted[part]][:, columns], kinds_of(rows.y[part][counted[part]])
        for kind, mask in enumerate(kinds == np.arange(below.shape[1])[:, None]):
            ends = x[mask].max(axis=0, initial=-np.inf), -x[mask].min(axis=0, initial=np.inf)
            reach[:, kind] = np.maximum(reach[:, kind], ends)
        rises, falls = (  # the largest x below each cut is at most the smallest above it, or this is so of -x
            np.all([up[b].max(axis=0) + down[a].max(axis=0) <= 0.0 for b, a in zip(below, above, strict=True)], axis=0)
            for up, down in (reach, reach[::-1])
        )
        columns, reach = columns[rises | falls], reach[..., rises | falls]
        if not len(columns):
            break
    informative = np.any(below | above, axis=0)  # kinds whose likelihood changes with f
    varies = np.sum(reach[:, informative].max(axis=1, initial=-np.inf), axis=0) > 0.0
    on_both_sides = [np.any(reach[0, kinds] > -np.inf, axis=0) for kinds in (*below, *above)]  # or no column is needed
    return columns[varies & np.all(on_both_sides, axis=0)]


def _separate_classes(y):
    """Return a function of y that numbers the kinds of rows, and for each cut which kinds are below it, and above it.

    Here kinds are classes, and cuts the open thresholds; masks (cuts, kinds).
    """
    classes = np.arange(int(np.max(y)) + 1)
    below = classes <= classes[:-1, None]
    return (lambda y: y.astype(np.intp)), below, ~below


def _separate_sides(likelihood):
    """Return the same for one cut, at f = 0: rows likely for any f (0), for high f (1), for low f (2), with a maximum.

    The last are both below and above the cut.
    """

    def kinds_of(y):
        rises, falls = find_sides(likelihood, y)
        return 2 * ~rises + ~falls

    return kinds_of, np.array([[False, False, True, True]]), np.array([[False, True, False, True]])
