"""What the settings that a model of a latent process leaves to the data become for some rows."""

from dataclasses import replace

import numpy as np

from cavity.base.labels import coded, has_classes
from cavity.base.rows import Rows
from cavity.base.scales import column_scales, robust_spread, weighted_median
from cavity.covariances.base import Covariance
from cavity.covariances.named import named
from cavity.likelihoods import Gaussian
from cavity.models.defaults import is_real, likelihood_for, location_and_spread
from cavity.models.process.periods import strongest_periods

DEFAULT = "rbf"  # the covariance of which nothing was said
FAR = 5.0  # spreads from the median beyond which y does not say where the search for a mean begins


def begun_at_data(settings, rows):
    """Return the settings of a search with mean coefficients that fit y by least squares, not those of a mean of 0."""
    f = None if settings.basis is None else _rough_values(settings.likelihood, rows)
    if f is None:
        return settings
    location, spread = weighted_median(f, rows.weights), robust_spread(f, rows.weights)
    f = np.clip(f, location - FAR * spread, location + FAR * spread)
    return replace(settings, coefficients=np.linalg.lstsq(settings.basis, f)[0])


def _rough_values(likelihood, rows):
    """Return values of f beside the offsets where y says so: y itself, or logs of counts; else None."""
    if rows.y.ndim > 1 or not (is_real(likelihood) or likelihood.takes_exposure):
        return None
    f = rows.y if is_real(likelihood) else np.log(rows.y + 0.5)
    return f if rows.offset is None else f - rows.offset


def _first_periods(likelihood, X, rows, spread):
    """Return periods for a search to begin with, (D,): from a periodogram, or the spread of a column without a peak."""
    f = _rough_values(likelihood, rows)
    f = rows.y if f is None else f
    if f.ndim > 1 or len(X) != rows.n:
        return spread
    used = slice(None) if rows.weights is None else rows.weights > 0
    return strongest_periods(X[used], f[used], spread)


def resolved(model, X, y, offset=None, sample_weight=None, *, noise=False, constant="constant"):
    """Return a model with likelihood, covariance and mean.

    Parameters
    ----------
    model : LatentProcess
        Whose settings may be None, or the covariance a string.
    X : ndarray (N, D) or None
        Rows, checked, or some of them; not needed where the covariance is given.
    y, offset, sample_weight : array_like (N,)
        As `fit` takes them.
    noise : bool, default False
        Whether the variance of the noise of each row is known, as is the likelihood then.
    constant : "constant" or None
        The mean of real numbers and of counts that a fit finds; None where it finds none: it is the median of real
        numbers then, and 0 for counts.

    Returns
    -------
    LatentProcess
        A given covariance means that the scale of f is given: the mean is 0 then, if nothing was said.
    """
    given = isinstance(model.covariance, Covariance)
    likelihood, mean = model.likelihood, model.mean
    if likelihood is None:
        likelihood = Gaussian(None) if noise else likelihood_for(y)
        likelihood = Gaussian() if given and isinstance(likelihood, Gaussian) else likelihood
    if given:
        return replace(model, likelihood=likelihood, mean=0.0 if mean is None else mean)
    rows = Rows.checked(likelihood, X if len(X) == len(y) else y, coded(y, likelihood)[0], offset, sample_weight)
    location, size = location_and_spread(likelihood, rows)
    if mean is None:
        mean = 0.0 if has_classes(likelihood) else constant or location
    spread = column_scales(X, rows.weights if len(X) == len(y) else None)[1]
    described = model.covariance or DEFAULT
    spread = np.where(spread > 0, spread, 1.0)
    period = _first_periods(likelihood, X, rows, spread) if "periodic" in described else None
    covariance = named(described, spread, size**2, period=period)
    return replace(model, covariance=covariance, likelihood=likelihood, mean=mean)
