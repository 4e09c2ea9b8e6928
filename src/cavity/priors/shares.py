"""Priors of parameters in an interval: shares in (0, 1) and correlations in (-1, 1).

References
----------
.. [SR17] S. H. Sorbye and H. Rue, "Penalised complexity priors for stationary autoregressive processes", Journal of
   Time Series Analysis 38, 2017.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property
from typing import ClassVar

import numpy as np

from cavity.base.arrays import check_number, error_of
from cavity.base.lazy_scipy import optimize, special
from cavity.base.public_objects import FloatOrArray, Public, check_positive, set_fields
from cavity.base.scales import FISHER_Z_SCALE, LOGIT_SCALE

SQRT_2 = math.sqrt(2.0)


@dataclass(frozen=True, slots=True)
class Beta(Public):
    """Beta prior of a parameter between 0 and 1.

    Parameters
    ----------
    a, b : float
        Positive shape parameters: the density is in proportion to x^(a - 1) (1 - x)^(b - 1).

    Raises
    ------
    ValueError, TypeError
        For shapes that are not positive and finite.

    Examples
    --------
    >>> import cavity
    >>> round(float(cavity.priors.Beta(2.0, 2.0).log_density(0.5)), 6)
    0.405465
    """

    a: float
    b: float
    scale: ClassVar[str] = LOGIT_SCALE

    def __post_init__(self) -> None:
        check_positive(self, "a", "b")

    def log_density(self, value: FloatOrArray) -> FloatOrArray:
        """Return the log density (a - 1) log x + (b - 1) log(1 - x) - log B(a, b).

        Parameters
        ----------
        value : float or ndarray
            Values of the parameter.

        Returns
        -------
        float or ndarray
            Of the shape of `value`.
        """
        return (self.a - 1.0) * np.log(value) + (self.b - 1.0) * np.log1p(-value) - special.betaln(self.a, self.b)

    def slope(self, value: FloatOrArray) -> FloatOrArray:
        """Return the derivative of the log density in the logit, (a - 1)(1 - x) - (b - 1) x.

        Parameters
        ----------
        value : float or ndarray
            Values of the parameter.

        Returns
        -------
        float or ndarray
            Of the shape of `value`.
        """
        return (self.a - 1.0) * (1.0 - value) - (self.b - 1.0) * value


@dataclass(frozen=True)
class PCCorrelation(Public):
    """Penalised complexity prior of the correlation of an autoregression, whose simplest model is no change, 1 [SR17]_.

    With d = sqrt(1 - rho) the density of rho is r exp(-r d)/(2 d (1 - exp(-sqrt(2) r))).

    Parameters
    ----------
    lower : float in (-1, 1)
        A value that the correlation is above with a given probability.
    probability : float in (0, 1)
        That one. It must be above sqrt((1 - lower)/2), as it is for r = 0.

    Raises
    ------
    ValueError, TypeError
        For a correlation or a probability outside these ranges.

    Examples
    --------
    >>> import cavity
    >>> prior = cavity.priors.PCCorrelation(lower=0.9, probability=0.7)
    >>> round(prior.rate, 6), round(float(prior.log_density(0.5)), 6)
    (3.771905, -1.681298)
    """

    lower: float
    probability: float
    scale: ClassVar[str] = FISHER_Z_SCALE

    def __post_init__(self) -> None:
        set_fields(
            self,
            lower=check_number(self.lower, "lower", low=-1, high=1),
            probability=check_number(self.probability, "probability", low=0, high=1),
        )
        least = math.sqrt((1.0 - self.lower) / 2.0)
        if not self.probability > least:
            text = f"must be above sqrt((1 - lower)/2) = {least:.4g} for lower={self.lower:g}, got {self.probability}"
            raise error_of("probability", text)

    @cached_property
    def rate(self) -> float:
        """Return the rate r, at which correlations are above `lower` with the probability."""
        distance = math.sqrt(1.0 - self.lower)

        def exceed(log_rate):
            rate = math.exp(log_rate)
            return math.expm1(-rate * distance) / math.expm1(-SQRT_2 * rate) - self.probability

        highest = math.log(-2.0 * math.log1p(-self.probability) / distance + 1.0)
        return math.exp(optimize.brentq(exceed, -50.0, highest + 1.0, xtol=1e-14))

    def log_density(self, value: FloatOrArray) -> FloatOrArray:
        """Return the log density of correlations.

        Parameters
        ----------
        value : float or ndarray
            Values of the parameter.

        Returns
        -------
        float or ndarray
            Of the shape of `value`.
        """
        constant = math.log(self.rate) - math.log(-2.0 * math.expm1(-SQRT_2 * self.rate))
        return constant - self.rate * np.sqrt(1.0 - value) - 0.5 * np.log1p(-value)

    def slope(self, value: FloatOrArray) -> FloatOrArray:
        """Return the derivative of the log density in log((1 + rho)/(1 - rho)).

        Parameters
        ----------
        value : float or ndarray
            Values of the parameter.

        Returns
        -------
        float or ndarray
            Of the shape of `value`.
        """
        return 0.25 * (1.0 + value) * (1.0 + self.rate * np.sqrt(1.0 - value))


@dataclass(frozen=True, slots=True)
class UniformCorrelation(Public):
    """Uniform prior of a correlation, between -1 and 1.

    Examples
    --------
    >>> import cavity
    >>> round(float(cavity.priors.UniformCorrelation().log_density(0.3)), 6)
    -0.693147
    """

    scale: ClassVar[str] = FISHER_Z_SCALE

    def log_density(self, value: FloatOrArray) -> FloatOrArray:
        """Return the log density, -log 2.

        Parameters
        ----------
        value : float or ndarray
            Values of the parameter.

        Returns
        -------
        float or ndarray
            Of the shape of `value`.
        """
        return np.full(np.shape(value), -math.log(2.0))[()]

    def slope(self, value: FloatOrArray) -> FloatOrArray:
        """Return the derivative of the log density, 0.

        Parameters
        ----------
        value : float or ndarray
            Values of the parameter.

        Returns
        -------
        float or ndarray
            Of the shape of `value`.
        """
        return np.zeros(np.shape(value))[()]
