"""A mixture of Gaussian posteriors of all effects, one for each point of an integral over hyperparameters."""

from functools import cached_property

import numpy as np


class EffectMixture:
    """What `Effects` has of moments, predictions and draws, over points with weights.

    Parameters
    ----------
    points : sequence of Effects, P of them
        On one pattern.
    weights : ndarray (P,)
        Which sum to one.
    """

    def __init__(self, points, weights):
        self.points, self.weights = points, weights

    def _mix(self, means, variances):
        """The means and variances of mixtures, from those of the points, (P, m) each."""
        mean = self.weights @ means
        return mean, self.weights @ (variances + (means - mean) ** 2)

    @cached_property
    def _moments(self):
        return self._mix(*(np.stack([getattr(each, name) for each in self.points]) for name in ("mean", "variance")))

    @property
    def mean(self):
        """Means of all effects, (n,)."""
        return self._moments[0]

    @property
    def variance(self):
        """The variance of each effect, (n,)."""
        return self._moments[1]

    @property
    def inverse(self):
        """The mean of the covariances on the pattern, (E,)."""
        return self.weights @ np.stack([each.inverse for each in self.points])

    def covariance(self, index):
        """The joint covariance of some effects, (m, m)."""
        index = np.asarray(index)
        apart = np.stack([each.mean[index] for each in self.points]) - self.mean[index]
        within = sum(weight * each.covariance(index) for weight, each in zip(self.weights, self.points, strict=True))
        return within + apart.T @ (self.weights[:, None] * apart)

    def predict(self, rows, offset=None):
        """Means and variances of rows (N, n), a CSR array, with an offset (N,) if there is one."""
        moments = [each.predict(rows, offset) for each in self.points]
        return self._mix(*(np.stack(part) for part in zip(*moments, strict=True)))

    def trace_with(self, rows, columns, entries):
        """The mean of the traces of the covariances times a symmetric matrix."""
        traces = [each.trace_with(rows, columns, entries) for each in self.points]
        return float(self.weights @ traces)

    def sample(self, n, rng):
        """Draws (n, all effects): each from a point that is drawn by its weight."""
        which = rng.choice(len(self.points), size=n, p=self.weights)
        draws = np.empty((n, len(self.mean)))
        for number in np.unique(which):
            here = which == number
            draws[here] = self.points[number].sample(int(here.sum()), rng)
        return draws
