"""Settings that a model of a latent process leaves to the data: the mean, the covariance, first periods."""

from dataclasses import replace

import numpy as np

from cavity.base.arrays import error_of
from cavity.base.column_statistics import column_scales, robust_spread, weighted_median
from cavity.base.labels import has_classes
from cavity.base.public_objects import replace_unchecked
from cavity.base.rows import check_row_vector
from cavity.covariances.base import Covariance
from cavity.covariances.strings import make_covariance
from cavity.models.defaults import find_location_and_spread, find_prior_scale, follows_units, is_real
from cavity.models.linear.defaults import ColumnScales, scale_prior_variance
from cavity.models.process.mean_formula import add_mean_term, is_mean_formula, list_mean_columns
from cavity.models.process.settings import Settings
from cavity.models.process.starts import solve_least_squares

FREQUENCIES_PER_CYCLE = 8  # frequencies for each multiple of 1/range: neighbouring ones are in phase over the rows
CELLS_PER_VALUE = 4  # of the grid that the values of a column are rounded to
MIN_CYCLES = 2  # in the range of a column: less cannot be distinguished from a trend


def find_strongest_periods(X, f, otherwise):
    """Return the period of the largest peak of the periodogram of f along each column of X.

    Values of f are taken from a straight line and summed up in cells of a fine grid, whose fast Fourier transform gives
    the powers; so rows need not be at equal distances, and the cost is N log N.

    Parameters
    ----------
    X : ndarray (N, D)
        The rows.
    f : ndarray (N,)
        Rough values of f.
    otherwise : ndarray (D,)
        What to return for columns without a peak.

    Returns
    -------
    ndarray (D,)
        Periods between twice the distance of neighbouring values of a column and half its range.
    """
    return np.array([_find_strongest_period(x, f, value) for x, value in zip(X.T, otherwise, strict=True)])


def _find_strongest_period(x, f, otherwise):
    values = np.unique(x)
    width = values[-1] - values[0]
    if len(values) < 2 * MIN_CYCLES + 1 or not 0.0 < width < np.inf:
        return otherwise
    t = (x - values[0]) / width
    line = np.column_stack([np.ones(len(t)), t])
    rest = f - line @ np.linalg.lstsq(line, f)[0]
    cells = CELLS_PER_VALUE * len(values)
    sums = np.bincount(np.rint(t * cells).astype(np.intp), rest / (np.max(np.abs(rest)) or 1.0), cells + 1)
    power = np.abs(np.fft.rfft(sums, FREQUENCIES_PER_CYCLE * cells)) ** 2
    most_cycles = min(0.5 * width / np.median(np.diff(values)), 0.5 * len(values))
    power = power[: int(FREQUENCIES_PER_CYCLE * most_cycles) + 2]  # of k/FREQUENCIES_PER_CYCLE cycles in the range
    peaks = 1 + np.flatnonzero((power[1:-1] > power[:-2]) & (power[1:-1] >= power[2:]))
    peaks = peaks[peaks >= FREQUENCIES_PER_CYCLE * MIN_CYCLES]
    return FREQUENCIES_PER_CYCLE * width / peaks[np.argmax(power[peaks])] if len(peaks) else otherwise


MAX_SPREADS_FROM_MEDIAN = 5.0  # spreads from the median beyond which y does not say where the search for a mean begins


def choose_first_settings(model, rows, fixed_covariance):
    """Return the `Settings` where a search begins.

    Unless the covariance was given, coefficients of a mean fit y by least squares there, else they are 0.
    """
    settings = Settings.of(model, rows)
    f = None if fixed_covariance or settings.basis is None else _estimate_latent_values(settings.likelihood, rows)
    if f is None:
        return settings
    location, spread = weighted_median(f, rows.weights), robust_spread(f, rows.weights)
    f = np.clip(f, location - MAX_SPREADS_FROM_MEDIAN * spread, location + MAX_SPREADS_FROM_MEDIAN * spread)
    return replace(settings, coefficients=solve_least_squares(settings.basis, f, rows.unequal_weights))


def _estimate_latent_values(likelihood, rows):
    """Return values of f beside the offsets where y determines them: y itself, or logs of counts; else None."""
    is_known = follows_units(likelihood) or likelihood.takes_exposure or (is_real(likelihood) and rows.y.ndim == 1)
    f = likelihood.start(rows.y) if is_known else None
    return f if f is None or rows.offset is None else f - rows.offset


def _choose_first_periods(likelihood, X, rows, spread):
    """Return periods for a search to begin with, (D,): from a periodogram, or the spread of a column without a peak."""
    f = _estimate_latent_values(likelihood, rows)
    f = rows.y if f is None else f
    if f.ndim > 1 or len(X) != rows.n:
        return spread
    in_use = slice(None) if rows.weights is None else rows.weights > 0
    return find_strongest_periods(X[in_use], f[in_use], spread)


def _resolve_mean_formula(model, observations, X, offset):
    """Return a model whose covariance has a term for the mean, the last columns of X, with the prior of a GLM."""
    n_features = X.shape[1] - len(list_mean_columns(observations.names))
    if not n_features:
        raise error_of("X", "must have columns of numbers for the covariance, where the mean is a formula; got none")
    features = np.ascontiguousarray(X[:, :n_features])
    resolved = resolve_defaults(replace(model, mean=0.0), observations, features, offset)
    rows = observations.rows(None)
    rows = replace(rows, offset=None if offset is None else check_row_vector(offset, "offset", rows.n))
    location, spread = find_location_and_spread(resolved.likelihood, rows)
    mean, _, scale = column_scales(X[:, n_features:], rows.weights)
    size, is_constant = find_prior_scale(resolved.likelihood) * spread, scale == 0
    variances = scale_prior_variance(ColumnScales(mean, scale), is_constant, 0.0, size)
    covariance = add_mean_term(resolved.covariance, n_features, variances)
    return replace(resolved, covariance=covariance, mean=location if is_constant.any() else 0.0)


def resolve_defaults(model, observations, X, offset, *, constant="constant"):
    """Return a model with likelihood, covariance and mean.

    Parameters
    ----------
    model : LatentProcess
        Whose settings may be None, or the covariance a string.
    observations : Observations
        Of the rows, with the likelihood.
    X : ndarray (N, D) or None
        Rows, checked, or some of them; not needed where the covariance is given.
    offset : array_like (N,) or None
        The column of this name: what y is looked at beside, without the logs of exposures.
    constant : "constant" or None
        The mean of real numbers and of counts that a fit finds; None where it finds none: it is the median of real
        numbers then, and 0 for counts.

    Returns
    -------
    LatentProcess
        A given covariance means that the scale of f is given: the mean is 0 then, if nothing was said.
    """
    likelihood, mean = observations.likelihood, model.mean
    if is_mean_formula(mean):
        return _resolve_mean_formula(model, observations, X, offset)
    if isinstance(model.covariance, Covariance):
        mean = 0.0 if mean is None else mean
        if likelihood is model.likelihood:
            return replace_unchecked(model, mean=mean)
        return replace(model, likelihood=likelihood, mean=mean)
    rows = observations.rows(X)
    rows = replace(rows, offset=None if offset is None else check_row_vector(offset, "offset", rows.n))
    location, size = find_location_and_spread(likelihood, rows)
    if mean is None:
        mean = 0.0 if has_classes(likelihood) else constant or location
    spread = column_scales(X, rows.weights if len(X) == rows.n else None)[1]
    spread = np.where(spread > 0, spread, 1.0)
    described = model.covariance or "rbf"
    period = _choose_first_periods(likelihood, X, rows, spread) if "periodic" in described else None
    covariance = make_covariance(described, spread, size**2, period=period)
    return replace(model, covariance=covariance, likelihood=likelihood, mean=mean)
