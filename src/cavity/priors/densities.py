"""Priors of parameters: log densities, and their slopes in the numbers that a search moves."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from cavity.base.constants import LOG_2PI
from cavity.base.public_objects import FloatOrArray, Public, check_positive
from cavity.base.scales import LOG_SCALE
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
    >>> from cavity.priors import LogNormal
    >>> prior = LogNormal(2.0, 0.5)
    >>> round(float(prior.log_density(2.0)), 6), float(prior.slope(2.0))
    (-0.918939, -1.0)
    """

    median: float
    sd: float
    scale: ClassVar[str] = LOG_SCALE

    def __post_init__(self) -> None:
        check_positive(self, "median", "sd")

    def log_density(self, value: FloatOrArray) -> FloatOrArray:
        """Log density of the parameter.

        Parameters
        ----------
        value : float or ndarray
            Values of the parameter.

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
            Values of the parameter.

        Returns
        -------
        float or ndarray
            Of the shape of `value`.
        """
        return -self._standard(value) / self.sd - 1.0

    def _standard(self, value):
        return (np.log(value) - np.log(self.median)) / self.sd


def check_prior(prior, name):
    """Return `prior` if it is one: a scalar Gamma, or an object with `log_density` and `slope`."""
    if isinstance(prior, Gamma):
        if prior.event_shape:
            raise ValueError(f"{name} must be one distribution for every entry, got a Gamma batch {prior.event_shape}")
        return prior
    methods = (getattr(prior, name, None) for name in ("log_density", "slope"))
    if isinstance(prior, type) or not all(map(callable, methods)):
        raise TypeError(
            f"{name} must be a prior of cavity.priors, or have log_density(value) and slope(value), got {prior!r}"
        )
    return prior


def evaluate_log_density(prior, values):
    """Return the log density of every value and its slope in the free number of the value."""
    if isinstance(prior, Gamma):
        return prior.log_density(values), prior.shape - 1.0 - prior.rate * values
    return prior.log_density(values), prior.slope(values)


def find_scale(prior):
    """Return the scale of the parameters that a prior is for; None for one of a user's own."""
    return LOG_SCALE if isinstance(prior, Gamma) else getattr(prior, "scale", None)


def make_key(prior):
    """Return what priors that are equal have in common."""
    return prior if not isinstance(prior, Gamma) else ("Gamma", prior.shape, prior.rate)
