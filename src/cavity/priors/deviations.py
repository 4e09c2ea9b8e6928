"""Priors of standard deviations, which have a density at 0.

References
----------
.. [PC] D. Simpson, H. Rue, A. Riebler, T. G. Martins and S. H. Sorbye, "Penalising model component complexity: a
   principled, practical approach to constructing priors", Statistical Science 32, 2017.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from cavity.base.arrays import check_number
from cavity.base.public_objects import FloatOrArray, Public, check_positive, set_fields
from cavity.base.scales import LOG_SCALE


@dataclass(frozen=True, slots=True)
class PC(Public):
    """Penalised complexity prior of a standard deviation: exponential, by its upper tail ([PC]_, section 3.3).

    Parameters
    ----------
    upper : float
        A value that is large, in units of the standard deviation.
    probability : float in (0, 1), default 0.05
        That of larger ones: the density is r exp(-r sd) with r = -log(probability)/upper.

    Raises
    ------
    ValueError, TypeError
        For an upper value that is not positive and finite, or a probability outside (0, 1).

    Examples
    --------
    >>> import cavity
    >>> prior = cavity.priors.PC(upper=1.0, probability=0.05)
    >>> round(float(prior.log_density(0.5)), 6)
    -0.400677
    """

    upper: float
    probability: float = 0.05
    scale: ClassVar[str] = LOG_SCALE

    def __post_init__(self) -> None:
        check_positive(self, "upper")
        set_fields(self, probability=check_number(self.probability, "probability", low=0, high=1))

    @property
    def rate(self) -> float:
        """Return the rate r of the exponential density."""
        return -math.log(self.probability) / self.upper

    def log_density(self, value: FloatOrArray) -> FloatOrArray:
        """Return the log density, log r - r sd.

        Parameters
        ----------
        value : float or ndarray
            Values of the parameter.

        Returns
        -------
        float or ndarray
            Of the shape of `value`.
        """
        return math.log(self.rate) - self.rate * value

    def slope(self, value: FloatOrArray) -> FloatOrArray:
        """Return the derivative of the log density in the log of the standard deviation, -r sd.

        Parameters
        ----------
        value : float or ndarray
            Values of the parameter.

        Returns
        -------
        float or ndarray
            Of the shape of `value`.
        """
        return -self.rate * value


@dataclass(frozen=True, slots=True)
class HalfNormal(Public):
    """Half-normal prior of a standard deviation: the absolute value of a N(0, sd^2) variable.

    Parameters
    ----------
    sd : float
        The standard deviation s of the normal distribution, in units of the parameter.

    Raises
    ------
    ValueError, TypeError
        For an sd that is not positive and finite.

    Examples
    --------
    >>> import cavity
    >>> round(float(cavity.priors.HalfNormal(1.0).log_density(0.0)), 6)
    -0.225791
    """

    sd: float
    scale: ClassVar[str] = LOG_SCALE

    def __post_init__(self) -> None:
        check_positive(self, "sd")

    def log_density(self, value: FloatOrArray) -> FloatOrArray:
        """Return the log density, log(2/pi)/2 - log s - (value/s)^2/2 with s the sd of the normal distribution.

        Parameters
        ----------
        value : float or ndarray
            Values of the parameter.

        Returns
        -------
        float or ndarray
            Of the shape of `value`.
        """
        return 0.5 * math.log(2.0 / math.pi) - math.log(self.sd) - 0.5 * np.square(value / self.sd)

    def slope(self, value: FloatOrArray) -> FloatOrArray:
        """Return the derivative of the log density in the log of the value, -(value/s)^2.

        Parameters
        ----------
        value : float or ndarray
            Values of the parameter.

        Returns
        -------
        float or ndarray
            Of the shape of `value`.
        """
        return -np.square(value / self.sd)
