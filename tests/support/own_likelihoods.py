"""Likelihoods as users write them: the logistic one, in Python."""

import numpy as np

from cavity import likelihoods


class PlainLogit(likelihoods.Likelihood):
    """log_p alone."""

    def log_p(self, y, f):
        return -np.logaddexp(0.0, -y * f)


class FastLogit(PlainLogit):
    """With moments of its own."""

    def log_tilted(self, y, mean, variance):
        return likelihoods.Logit().log_tilted(y, mean, variance)
