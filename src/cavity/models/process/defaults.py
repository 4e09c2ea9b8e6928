"""What the settings that a model of a latent process leaves to the data become for some rows."""

from dataclasses import replace

import numpy as np

from cavity.base.labels import has_classes
from cavity.base.rows import row_vector
from cavity.base.scales import column_scales, robust_spread, weighted_median
from cavity.covariances.base import Covariance
from cavity.covariances.strings import make_covariance
from cavity.models.defaults import find_location_and_spread, is_real
from cavity.models.process.periods import find_strongest_periods
from cavity.models.process.settings import Settings

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
    return replace(settings, coefficients=np.linalg.lstsq(settings.basis, f)[0])


def _estimate_latent_values(likelihood, rows):
    """Return values of f beside the offsets where y says so: y itself, or logs of counts; else None."""
    if rows.y.ndim > 1 or not (is_real(likelihood) or likelihood.takes_exposure):
        return None
    f = rows.y if is_real(likelihood) else np.log(rows.y + 0.5)
    return f if rows.offset is None else f - rows.offset


def _choose_first_periods(likelihood, X, rows, spread):
    """Return periods for a search to begin with, (D,): from a periodogram, or the spread of a column without a peak."""
    f = _estimate_latent_values(likelihood, rows)
    f = rows.y if f is None else f
    if f.ndim > 1 or len(X) != rows.n:
        return spread
    used = slice(None) if rows.weights is None else rows.weights > 0
    return find_strongest_periods(X[used], f[used], spread)


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
    if isinstance(model.covariance, Covariance):
        return replace(model, likelihood=likelihood, mean=0.0 if mean is None else mean)
    rows = observations.rows(X)
    rows = replace(rows, offset=None if offset is None else row_vector(offset, "offset", rows.n))
    location, size = find_location_and_spread(likelihood, rows)
    if mean is None:
        mean = 0.0 if has_classes(likelihood) else constant or location
    spread = column_scales(X, rows.weights if len(X) == rows.n else None)[1]
    spread = np.where(spread > 0, spread, 1.0)
    described = model.covariance or "rbf"
    period = _choose_first_periods(likelihood, X, rows, spread) if "periodic" in described else None
    covariance = make_covariance(described, spread, size**2, period=period)
    return replace(model, covariance=covariance, likelihood=likelihood, mean=mean)
