"""Likelihoods of real numbers: f with noise."""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from cavity.base.constants import LOG_2PI
from cavity.base.special import binet, gap
from cavity.likelihoods.base import CLUTTER, GAUSSIAN, LAPLACE, STUDENT_T, _Compiled
from cavity.likelihoods.parameters import check_closed, check_fields


@dataclass(frozen=True, slots=True)
class Gaussian(_Compiled):
    """Real observations with Gaussian noise: p(y|f) = N(y; f, noise_variance); EP is exact.

    Parameters
    ----------
    noise_variance : float or None, default 1.0
        Variance of the noise, in squared units of y; None for the fit to find it.
    """

    noise_variance: float | None = 1.0

    _kind = GAUSSIAN
    parameters: ClassVar = {"noise_variance": "scale"}

    def __post_init__(self):
        check_fields(self)

    def log_p(self, y, f):
        """Log density; see `Likelihood.log_p`."""
        check_closed(self)
        return -0.5 * ((y - f) ** 2 / self.noise_variance + LOG_2PI + np.log(self.noise_variance))

    def expected(self, mean, variance):
        """Mean of a new observation, which is that of f; see `Likelihood.expected`."""
        return mean


@dataclass(frozen=True, slots=True)
class Laplace(_Compiled):
    """Real observations with double-exponential noise: p(y|f) = exp(-|y - f|/scale)/(2 scale), the median's.

    Parameters
    ----------
    scale : float or None, default 1.0
        Mean absolute deviation of the noise, in units of y; None for the fit to find it.
    """

    scale: float | None = 1.0

    _kind = LAPLACE
    parameters: ClassVar = {"scale": "scale"}

    def __post_init__(self):
        check_fields(self)

    def log_p(self, y, f):
        """Log density; see `Likelihood.log_p`."""
        check_closed(self)
        return -np.abs(y - f) / self.scale - np.log(2 * self.scale)

    def expected(self, mean, variance):
        """Mean of a new observation, which is that of f; see `Likelihood.expected`."""
        return mean


@dataclass(frozen=True, slots=True)
class StudentT(_Compiled):
    """Real observations with heavy-tailed noise: outliers lose their influence (and get sites of negative precision).

    Parameters
    ----------
    degrees_of_freedom : float or None, default 4.0
        nu > 0; the smaller, the heavier the tails. None for the fit to find it.
    scale : float or None, default 1.0
        Scale of the noise, in units of y; its variance is scale^2 nu/(nu - 2) for nu > 2. None for the fit to find it.
    """

    degrees_of_freedom: float | None = 4.0
    scale: float | None = 1.0

    _kind = STUDENT_T
    parameters: ClassVar = {"degrees_of_freedom": "positive", "scale": "scale"}

    def __post_init__(self):
        check_fields(self)

    def _parameters(self):
        return self.degrees_of_freedom, self.degrees_of_freedom * self.scale**2

    def _constant(self):
        """log of the density at its top, from Gamma(a + 1/2)/Gamma(a), a = nu/2, by the remainders of log Gamma."""
        a = 0.5 * self.degrees_of_freedom
        ratio = binet(a + 0.5) - binet(a) - a * gap(0.5 / a, np.log1p(0.5 / a))
        return float(ratio - 0.5 * LOG_2PI - np.log(self.scale))

    def _encode(self, y):
        return y, np.array([self._constant()])

    def log_p(self, y, f):
        """Log density; see `Likelihood.log_p`."""
        check_closed(self)
        nu, scale = self.degrees_of_freedom, self.scale
        return self._constant() - 0.5 * (nu + 1) * np.log1p(((y - f) / scale) ** 2 / nu)

    def expected(self, mean, variance):
        """Mean of a new observation, which is that of f (for nu > 1); see `Likelihood.expected`."""
        return mean


@dataclass(frozen=True, slots=True)
class Clutter(_Compiled):
    """Real observations of which some are clutter [M]_.

    p(y|f) = (1 - w) N(y; f, noise_variance) + w N(y; clutter_mean, clutter_variance).

    Parameters
    ----------
    clutter_weight : float or None, default 0.5
        w, in (0, 1). This and the others may be None for the fit to find them.
    clutter_variance, noise_variance : float or None, default 10.0 and 1.0
        Variances of clutter and noise, in squared units of y.
    clutter_mean : float or None, default 0.0
        Mean of the clutter.
    """

    clutter_weight: float | None = 0.5
    clutter_variance: float | None = 10.0
    noise_variance: float | None = 1.0
    clutter_mean: float | None = 0.0

    _kind = CLUTTER
    any_power = False
    parameters: ClassVar = {
        "clutter_weight": "share",
        "clutter_variance": "positive",
        "noise_variance": "positive",
        "clutter_mean": "real",
    }

    def __post_init__(self):
        check_fields(self)

    def _parameters(self):
        w, c = self.clutter_weight, self.clutter_variance
        return self.noise_variance, 1 / c, np.log(c), np.log(w) - np.log1p(-w), np.log1p(-w), self.clutter_mean

    def log_p(self, y, f):
        """Log density; see `Likelihood.log_p`."""
        check_closed(self)
        w, c, s = self.clutter_weight, self.clutter_variance, self.noise_variance
        signal = np.log1p(-w) - 0.5 * ((y - f) ** 2 / s + LOG_2PI + np.log(s))
        return np.logaddexp(signal, np.log(w) - 0.5 * ((y - self.clutter_mean) ** 2 / c + LOG_2PI + np.log(c)))
