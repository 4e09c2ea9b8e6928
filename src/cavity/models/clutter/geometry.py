"""The geometry of a clutter problem for the double loop of EP: its free energy over spherical posteriors.

A posterior is prior times sites; `h` and `g` are the sums of the sites' rho and tau. The free energy is
F = sum_i A_i*(mu) - (N - 1) A_q*(mu) - lambda_prior'mu over the mean parameters mu, see
cython_core/ep/clutter_cavities.pyx.
"""

from dataclasses import dataclass

import numpy as np

from cavity import _core
from cavity.ep.geometry import Geometry
from cavity.models.clutter.problem import find_moment_change
from cavity.runs.merge import split_rows

kernel = _core.load("clutter_cavities", _core.BASELINE_VARIANT)


@dataclass(frozen=True, slots=True)
class SphericalBelief:
    """A posterior of one problem in working units."""

    h: float
    g: np.ndarray  # (d,)
    mean: np.ndarray  # (d,)
    variance: float

    def change_from(self, old):
        """Change of the moments: means in standard deviations, variances relative."""
        return float(find_moment_change((old.mean, old.variance), (self.mean, self.variance)))


class Spherical(Geometry):
    """The geometry of one problem, with the methods that the double loop needs."""

    def __init__(self, points):
        self.points, self.tau, self.rho = points, points.units.prior_tau, points.units.prior_rho

    def belief(self, h, g):
        """The posterior whose sites sum to (h, g), or None if it is not proper."""
        tau, rho = self.tau + g, self.rho + h
        if not (0.0 < rho < np.inf and np.all(np.isfinite(tau))):
            return None
        return SphericalBelief(h, g, tau / rho, 1.0 / rho)

    def prior(self):
        """The prior as a belief."""
        return self.belief(0.0, np.zeros(len(self.tau)))

    def start(self):
        """The prior, but no wider than the distance of the points: a flat prior is far from all fixed points."""
        units, prior = self.points.units, self.prior()
        corners = (self.points.ends - units.origin) * units.scale - prior.mean
        reach = units.noise + np.mean(np.max(np.abs(corners), axis=0) ** 2)
        return self.sharpen(prior, max(1.0, prior.variance / reach))

    def gather(self, tau, rho):
        """(h, g) of given sites."""
        return float(np.sum(rho)), np.sum(tau, axis=0)

    def sharpen(self, belief, factor):
        """The belief with its variance divided by `factor` and the same mean."""
        more = factor - 1.0
        return self.belief(factor * belief.h + more * self.rho, factor * belief.g + more * self.tau)

    def coordinates(self, belief, h, g):
        """A change of natural parameters in coordinates in which the Fisher metric of the belief is the identity."""
        v, d = belief.variance, len(self.tau)
        return np.append(np.sqrt(v) * (g - h * belief.mean), np.sqrt(0.5 * d) * v * h)

    def free_energy(self, belief, start):
        """F at a belief, the sites its moments imply, and the cavities they leave; `start` are cavities nearby."""
        (n, d), mean, v = self.points.shape, belief.mean, belief.variance
        tau, rho = (np.tile(self.tau, (n, 1)), np.full(n, self.rho)) if start is None else map(np.copy, start)
        total, failed = 0.0, 0
        for part in (slice(*span) for span in split_rows(n)):
            conjugates, unsolved = kernel.cavities(*self.points.arguments(part), mean, v, tau[part], rho[part])
            total, failed = total + conjugates, failed + unsolved
        entropy = 0.5 * d * (n - 1) * (1.0 + np.log(2 * np.pi * v))
        prior = self.tau @ mean - 0.5 * self.rho * (mean @ mean + d * v)
        return np.inf if failed else total + entropy - prior, mean / v - tau, 1.0 / v - rho, (tau, rho)
