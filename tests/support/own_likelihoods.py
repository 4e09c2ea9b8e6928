"""Likelihoods as users write them, in Python: the logistic one, Gaussian noise, and Gamma with a log link."""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from scipy import special

from cavity import likelihoods


class PlainLogit(likelihoods.Likelihood):
    """log_p alone."""

    def log_p(self, y, f):
        return -np.logaddexp(0.0, -y * f)


class FastLogit(PlainLogit):
    """With moments of its own."""

    def log_tilted(self, y, mean, variance):
        return likelihoods.Logit().log_tilted(y, mean, variance)


class OwnGaussian(likelihoods.Likelihood):
    """Gaussian noise of variance 0.5, whose powers have closed moments, without a kernel."""

    def log_p(self, y, f):
        return -((y - f) ** 2) - 0.5 * np.log(np.pi)


@dataclass(frozen=True)
class OwnGamma(likelihoods.Likelihood):
    """A Gamma density of mean exp(f), written down as a user would."""

    shape: float | None = None
    link = "log"
    parameters: ClassVar = {"shape": "positive"}

    def log_p(self, y, f):
        a = self.shape
        return a * (np.log(a * y) - f) - special.gammaln(a) - np.log(y) - a * y * np.exp(-f)

    def conditional_mean(self, f):
        return np.exp(f)
