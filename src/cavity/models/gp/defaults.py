"""What the settings that a model of a latent process leaves to the data become for some rows."""

from dataclasses import replace

import numpy as np

from cavity.base.labels import coded
from cavity.base.rows import Rows
from cavity.base.scales import column_scales
from cavity.covariances.base import Covariance
from cavity.covariances.named import named
from cavity.likelihoods import Gaussian
from cavity.models.defaults import is_real, likelihood_for, location_and_spread

DEFAULT = "rbf"  # the covariance of which nothing was said
FAR = 5.0  # spreads from the median beyond which y does not say where the search for a mean begins


def begun_at_data(settings, rows):
    """Return the settings of a search with mean coefficients that fit y by least squares, not those of a mean of 0."""
    if settings.basis is None or rows.y.ndim > 1 or not is_real(settings.likelihood):
        return settings
    location, spread = location_and_spread(settings.likelihood, rows)
    y = np.clip(rows.y - rows.offset, location - FAR * spread, location + FAR * spread)
    return replace(settings, coefficients=np.linalg.lstsq(settings.basis, y)[0])


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
        The mean of real numbers that a fit finds; None where it finds none, and has the median of y.

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
        mean = (constant or location) if is_real(likelihood) else 0.0
    spread = column_scales(X, rows.weights if len(X) == len(y) else None)[1]
    described = model.covariance or DEFAULT
    covariance = named(described, np.where(spread > 0, spread, 1.0), size**2)
    return replace(model, covariance=covariance, likelihood=likelihood, mean=mean)
