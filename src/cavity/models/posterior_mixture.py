"""A mixture of Gaussian posteriors, one for each point of an integral over hyperparameters."""

from functools import cached_property

import numpy as np


class PosteriorMixture:
    """What `Effects` or `Weights` have of moments, predictions and draws, over points with weights.

    Parameters
    ----------
    points : sequence of Effects or Weights, P of them
        Effects are on one pattern.
    weights : ndarray (P,)
        Which sum to one.
    """

    def __init__(self, points, weights):
        self.points, self.weights = points, weights

    def _mix(self, means, variances):
        """The means and variances of mixtures, from those of the points, (P, m) each."""
        return mix_moments(self.weights, means, variances)

    @cached_property
    def _moments(self):
        return self._mix(*(np.stack([getattr(point, name) for point in self.points]) for name in ("mean", "variance")))

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
        return self.weights @ np.stack([point.inverse for point in self.points])

    def covariance(self, index):
        """The joint covariance of some effects, (m, m)."""
        index = np.asarray(index)
        difference = np.stack([point.mean[index] for point in self.points]) - self.mean[index]
        return self._average_covariances(index) + difference.T @ (self.weights[:, None] * difference)

    def _average_covariances(self, index):
        """The mean of the joint covariances of some effects at the points, (m, m)."""
        return sum(weight * point.covariance(index) for weight, point in zip(self.weights, self.points, strict=True))

    def predict_at_points(self, rows, *arguments):
        """Means and variances (P, N) at the points, of rows (N, n) and what else `predict` of a point takes."""
        moments = [point.predict(rows, *arguments) for point in self.points]
        return tuple(np.stack(part) for part in zip(*moments, strict=True))

    def predict(self, rows, *arguments):
        """Means and variances of rows (N, n), with an offset (N,) if there is one."""
        return self._mix(*self.predict_at_points(rows, *arguments))

    def trace_with(self, rows, columns, entries):
        """The mean of the traces of the covariances times a symmetric matrix."""
        traces = [point.trace_with(rows, columns, entries) for point in self.points]
        return float(self.weights @ traces)

    def sample(self, n, rng):
        """Draws (n, all effects): each from a point that is drawn by its weight."""
        draws = np.empty((n, len(self.mean)))
        for index, number in draw_points(self.weights, n, rng):
            draws[index] = self.points[number].sample(int(index.sum()), rng)
        return draws


def mix_moments(weights, means, variances):
    """Return the means and variances of mixtures, from those of the points, (P, m) each."""
    mean = weights @ means
    return mean, weights @ (variances + (means - mean) ** 2)


def mix_covariances(weights, means, covariances):
    """Return the mean (m,) and the covariance (m, m) of a mixture, from those of the points, (P, m) and (P, m, m)."""
    mean = weights @ means
    difference = means - mean
    return mean, np.tensordot(weights, covariances, 1) + difference.T @ (weights[:, None] * difference)


def draw_points(weights, n, rng):
    """Yield for n draws of a mixture which of them (n,) are from a point, and its number."""
    numbers = rng.choice(len(weights), size=n, p=weights)
    for number in np.unique(numbers):
        yield numbers == number, number
