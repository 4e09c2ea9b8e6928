"""Priors of positive parameters: log densities, and their slopes in the log of the parameter."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from cavity.base.constants import LOG_2PI
from cavity.base.public_objects import FloatOrArray, Public, check_positive
from cavity.distributions.gamma import Gamma


@dataclass(frozen=True, slots=True)
class LogNormal(Public):
    """Prior of a positive parameter whose log is N(log(median), sd^2).

    Parameters
    ----------
    median : float
        Median, in units of the parameter.
    sd : float
        Standard deviation of the natural log: 0.7 is about a factor of 2.

    Raises
    ------
    ValueError, TypeError
        For a median or sd that is not positive and finite.

    Examples
    --------
    >>> from cavity.covariances import LogNormal
    >>> prior = LogNormal(2.0, 0.5)
    >>> round(float(prior.log_density(2.0)), 6), float(prior.slope(2.0))
    (-0.918939, -1.0)
    """

    median: float
    sd: float

    def __post_init__(self) -> None:
        check_positive(self, "median", "sd")

    def log_density(self, value: FloatOrArray) -> FloatOrArray:
        """Log density of the parameter.

        Parameters
        ----------
        value : float or ndarray
            Positive.

        Returns
        -------
        float or ndarray
            Of the shape of `value`.
        """
        z = self._standard(value)
        return -0.5 * (z * z + LOG_2PI) - np.log(self.sd) - np.log(value)

    def slope(self, value: FloatOrArray) -> FloatOrArray:
        """Derivative of `log_density` in the log of the parameter.

        Parameters
        ----------
        value : float or ndarray
            Positive.

        Returns
        -------
        float or ndarray
            Of the shape of `value`.
        """
        return -self._standard(value) / self.sd - 1.0

    def _standard(self, value):
        return (np.log(value) - np.log(self.median)) / self.sd


PRIOR_PARAMETERS = {LogNormal: ("median", "sd"), Gamma: ("shape", "rate")}


def check_prior(prior, name):
    """Return `prior` if it is one: a scalar Gamma, or an object with `log_density` and `slope`."""
    if isinstance(prior, Gamma):
        if prior.event_shape:
            raise ValueError(f"{name} must be one distribution for every entry, got a Gamma batch {prior.event_shape}")
        return prior
    methods = (getattr(prior, name, None) for name in ("log_density", "slope"))
    if isinstance(prior, type) or not all(map(callable, methods)):
        raise TypeError(
            f"{name} must be a LogNormal, a Gamma, or have log_density(value) and slope(value), got {prior!r}"
        )
    return prior


def evaluate_log_density(prior, values):
    """Return the log density of every value and its derivative in the log of the value."""
    if isinstance(prior, Gamma):
        return prior.log_density(values), prior.shape - 1.0 - prior.rate * values
    return prior.log_density(values), prior.slope(values)


def make_key(prior):
    """Return what priors that are equal have in common."""
    return prior if not isinstance(prior, Gamma) else ("Gamma", prior.shape, prior.rate)


def to_settings(prior, name):
    """Return a prior as a JSON-able dictionary."""
    for kind in PRIOR_PARAMETERS:
        if type(prior) is kind:
            return {"kind": kind.__name__} | {field: getattr(prior, field) for field in PRIOR_PARAMETERS[kind]}
    raise TypeError(f"{name} is a prior of your own ({type(prior).__name__}), which cannot be saved")


def from_settings(settings):
    """Return the prior that `to_settings` took apart."""
    rest = dict(settings)
    kinds = {kind.__name__: kind for kind in PRIOR_PARAMETERS}
    return kinds[rest.pop("kind")](**rest)
