"""What a posterior predicts at given rows: the expected target with its band, and intervals of new observations."""

import numpy as np
from scipy.special import ndtri

from cavity import likelihoods
from cavity.base import arrays
from cavity.models.predictive_densities import predict_class_probabilities
from cavity.plot import display
from cavity.plot.number_columns import NumberColumns

CURVE_POINTS = 801  # points along a column
QUANTILE_STRIDE = 8  # the interval of new observations is computed at every eighth of these points


def open_labelled_rows(posterior, X, y, names=None, target=None, classes=None, needs=False):
    """Return rows, their y and Labels; TypeError for a posterior that cannot predict from columns alone."""
    if not hasattr(posterior, "predict") or not hasattr(posterior, "_likelihood"):
        raise display.posterior_error(posterior, "a posterior that predicts observations from columns")
    if hasattr(posterior, "effect_names") and not isinstance(posterior, NumberColumns):
        message = "is of a mixed model, whose predictions take groups: IntervalDisplay draws its effects"
        raise arrays.error_of("posterior", message, TypeError)
    X, y = display.open_rows(posterior, X, y, needs)
    return X, y, display.AxisLabels.of(posterior, X.shape[1], names, target, classes)


def choose_column(column, X, labels, posterior):
    """Return the number of a column of rows, given by its number or name; None stands for the only one."""
    if column is None and X.shape[1] > 1:
        raise arrays.error_of("column", f"must be a name or a number below {X.shape[1]}, got None")
    return display.find_column(0 if column is None else column, labels.names, posterior)


def make_points(others, columns, values):
    """Return rows (n, D) that have `values` in some columns, and the numbers of one row in all others."""
    points = np.tile(others, (len(values), 1))
    points[:, columns] = values
    return points


def differ_in_one_column(posterior, X, y):
    """Whether observations differ in one column only, so that they can be drawn along it."""
    has_others = posterior.has_offset or getattr(posterior, "has_other_columns", False)
    return X.shape[1] == 1 and y is not None and not has_others


def predict_band(posterior, points, level):
    """Return the expected target at points, and its values where f is at the ends of its interval."""
    return compute_band(posterior._likelihood, *posterior.predict(points, offset=0), level)


def compute_band(likelihood, mean, variance, level):
    """Return the expected target and the ends of its band, from moments of f; not a number where these are none."""
    has_mean = ~np.isnan(mean)
    if not has_mean.all():
        band = np.full((3, len(mean)), np.nan)
        band[:, has_mean] = compute_band(likelihood, mean[has_mean], variance[has_mean], level)
        return tuple(band)
    reach = -ndtri(0.5 - 0.5 * level) * np.sqrt(variance)
    expected = likelihood.expected
    if likelihood.n_classes:
        numbers = np.arange(likelihood.n_classes)

        def expected(mean, variance):
            return predict_class_probabilities(likelihood, lambda: (mean, variance)) @ numbers

    try:
        return expected(mean, variance), *(expected(end, np.zeros_like(end)) for end in (mean - reach, mean + reach))
    except (NotImplementedError, ValueError):  # there is no mean of an observation
        return mean, mean - reach, mean + reach


def predict_interval(posterior, points, level):
    """Return the ends of the central interval of new observations at points, or None."""
    likelihood = posterior._likelihood
    if likelihood.n_classes or likelihood.takes_trials:
        return None
    tail = 0.5 - 0.5 * level
    try:
        if isinstance(likelihood, likelihoods.Gaussian):
            mean, variance = posterior.predict(points, offset=0, noise=True)
            return mean + ndtri(tail) * np.sqrt(variance), mean - ndtri(tail) * np.sqrt(variance)
        return tuple(posterior.quantile(points, [tail, 1.0 - tail], offset=0).T)
    except (NotImplementedError, ValueError):  # every row had noise of its own, or a likelihood has no cdf
        return None


def order_columns_by_change(posterior, X):
    """Return the indices of the columns, first those along which the expected target changes most."""
    middle, change = np.median(X, axis=0), []
    for d in range(X.shape[1]):
        ends = np.quantile(X[:, d], (0.01, 0.99))
        points = make_points(middle, d, np.linspace(*ends, CURVE_POINTS // QUANTILE_STRIDE))
        change.append(np.ptp(predict_band(posterior, points, 0.95)[0]))
    return np.argsort(-np.array(change), kind="stable")
