"""Observations of rows under the distributions that are predicted of them: moments, probabilities, residuals.

References
----------
.. [DS] P. K. Dunn and G. K. Smyth, "Randomized quantile residuals", Journal of Computational and Graphical Statistics
   5, 1996.
"""

from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from cavity.base import arrays
from cavity.base.lazy_scipy import special
from cavity.base.public_objects import FloatArray
from cavity.likelihoods import Gaussian, Interval, predictive
from cavity.models.predictive_densities import integrate_log_density, predict_class_probabilities

LOO_TOLERANCE = 1e-3  # nats by which a leave-one-out log density found from a site may differ from that of the fit
SHARED_SITE_TOLERANCE = 0.5  # the same of rows of one site: f given the others of a site is not normal
MIN_DIFFERENCE_SHARE = 0.1  # of the probability of no more than a count, below which that of less is not a difference
SMALLEST_PROBABILITY, LARGEST_PROBABILITY = np.finfo(float).tiny, 1.0 - np.finfo(float).epsneg


@dataclass(frozen=True, slots=True, eq=False)
class PredictedRows:
    """Observations of rows, and the moments of f by which they are predicted.

    Attributes
    ----------
    likelihood : Likelihood
        Of the observations.
    y : ndarray (n,) or (n, 2)
        As the likelihood takes them.
    mean, variance : ndarray (n,)
        Of f.
    are_left_out : bool
        Whether each row is predicted from all others.
    """

    likelihood: Any
    y: FloatArray
    mean: FloatArray
    variance: FloatArray
    are_left_out: bool

    def without_censored(self):
        """Return the rows whose observations are numbers, all but for times."""
        if not self.likelihood.takes_event:
            return self
        exact = self.y[:, 0] == self.y[:, 1]
        return replace(self, y=self.y[exact], mean=self.mean[exact], variance=self.variance[exact])

    @property
    def class_numbers(self):
        """The numbers 0, 1, ... of the classes of the rows."""
        return (self.y > 0).astype(np.intp) if self.likelihood.n_classes == 2 else self.y.astype(np.intp)

    @property
    def trials(self):
        """The trials of each row, as an argument of a likelihood that takes some."""
        return {"trials": self.y[:, 1]} if self.likelihood.takes_trials else {}

    def class_probabilities(self):
        """Return the probabilities (n, n_classes) of the classes."""
        return predict_class_probabilities(self.likelihood, lambda: (self.mean, self.variance))

    def moments(self):
        """Return observations as numbers, and their predicted means and variances, (n,) each."""
        if self.likelihood.n_classes is not None:
            probabilities = self.class_probabilities()
            numbers = np.arange(probabilities.shape[1])
            mean = probabilities @ numbers
            return self.class_numbers.astype(float), mean, probabilities @ numbers**2.0 - mean**2
        if self.likelihood.takes_event and not np.array_equal(self.y[:, 0], self.y[:, 1]):
            raise arrays.error_of("kind", "must be 'quantile' for bounds of observations, which have no value")
        with np.errstate(over="ignore", invalid="ignore"):
            mean, variance = self.likelihood.moments(self.mean, self.variance, **self.trials)
        check_observed(mean, variance)
        return (self.y if self.y.ndim == 1 else self.y[:, 0]), mean, variance

    def probabilities_below(self):
        """Return the predicted probabilities of values below, and of values up to, each observation."""
        if self.likelihood.n_classes is not None:
            probabilities, rows = self.class_probabilities(), np.arange(len(self.y))
            upto = np.cumsum(probabilities, axis=1)[rows, self.class_numbers]
            return upto - probabilities[rows, self.class_numbers], upto
        if isinstance(self.likelihood, Interval):
            sd = np.sqrt(self.variance + self.likelihood.noise_variance)
            return tuple(special.ndtr((self.y[:, k] - self.mean) / sd) for k in (0, 1))
        y, *trials = (self.y[:, 0], self.y[:, 1]) if self.trials else (self.y,)
        if self.likelihood.takes_event:
            y = self.y[:, 1]

        def integrate(y, rows):
            def conditional(f, index):
                return self.likelihood.cdf(y[index, None], f, *(column[rows][index, None] for column in trials))

            return predictive.integrate_probability(conditional, self.mean[rows], self.variance[rows])

        upto = integrate(y, slice(None))
        if self.likelihood.takes_event:
            return np.where(self.y[:, 0] == y, upto, integrate(self.y[:, 0], slice(None))), upto
        if not self.likelihood.discrete:
            return upto, upto
        below = upto - np.exp(integrate_log_density(self.likelihood, self.y, self.mean, self.variance))
        small = np.flatnonzero(below < MIN_DIFFERENCE_SHARE * upto)
        below[small] = 0.0
        small = small[y[small] > 0.0]
        below[small] = integrate(y[small] - 1.0, small)
        return below, upto

    def quantile_residuals(self, rng):
        """Return randomised quantile residuals [DS]_."""
        if isinstance(self.likelihood, Gaussian):
            return (self.y - self.mean) / np.sqrt(self.variance + self.likelihood.noise_variance)
        below, upto = self.probabilities_below()
        if self.likelihood.discrete or self.likelihood.n_classes is not None or self.likelihood.takes_event:
            upto = below + (upto - below) * rng.random(len(upto))
        return special.ndtri(np.clip(upto, SMALLEST_PROBABILITY, LARGEST_PROBABILITY))


def find_loo_moments(posterior, y, mean, variance):
    """Return the moments of f of rows of a fit without their own sites: the marginals divided by these.

    None where there are no sites, and where densities are not the leave-one-out densities of the fit: with weights, and
    for other rows.
    """
    try:
        sites, density = posterior.sites, posterior.loo_log_density
    except (AttributeError, ValueError):  # a fit without sites: by ADF, stochastic, by mean field, updated
        return None
    if np.shape(density) != np.shape(mean):
        return None
    shared = posterior._shared_loo_moments()
    tolerance = LOO_TOLERANCE if shared is None else SHARED_SITE_TOLERANCE
    with np.errstate(divide="ignore", invalid="ignore"):
        if shared is None:
            rho = 1.0 / variance - sites.rho
            mean, variance = (mean / variance - sites.tau) / rho, 1.0 / rho
        else:
            mean, variance = shared
        if not np.all(variance > 0):
            return None
        loo_density = integrate_log_density(posterior._likelihood, y, mean, variance)
    agree = np.allclose(loo_density, density, rtol=LOO_TOLERANCE, atol=tolerance)
    return (mean, variance) if agree else None


def check_observed(mean, variance):
    """Raise OverflowError naming the first row of X whose observation has moments that are not finite."""
    good = np.isfinite(mean) & np.isfinite(variance)
    if not good.all():
        raise OverflowError(
            f"the moments of a new observation of row {int(np.argmin(good))} leave the range of float64"
        )
