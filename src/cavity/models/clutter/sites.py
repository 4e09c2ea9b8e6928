"""The sites of a clutter problem with their posterior, in working units."""

from dataclasses import dataclass

import numpy as np


@dataclass(slots=True)
class ClutterSites:
    """Sites and posterior of one problem in working units; all with a leading axis for a batch."""

    site_tau: np.ndarray  # (N, d)
    site_rho: np.ndarray  # (N,)
    tau: np.ndarray  # (d,): of the posterior
    rho: float
    site_value: np.ndarray | None = None  # (N,): log of each scaled site at the posterior mean
    log_evidence: float = np.nan  # of the data, in working units
    loo: np.ndarray | None = None  # (N,): after power EP, log densities under the posterior of the others

    @classmethod
    def empty(cls, points):
        """Return sites that say nothing of the points of one problem, under the prior."""
        units = points.units
        return cls(np.zeros(points.shape), np.zeros(points.shape[0]), units.prior_tau.copy(), units.prior_rho)

    @classmethod
    def together(cls, points, several):
        """Return the sites of each problem of a batch with a batch axis; of one problem, these."""
        if not points.is_batch:
            return several[0]
        return cls(**{name: np.stack([getattr(sites, name) for sites in several]) for name in several[0].present()})

    def present(self):
        """Return what there is, by name."""
        return {name: getattr(self, name) for name in self.__slots__ if getattr(self, name) is not None}

    def problem(self, b):
        """Return the sites of problem b of a batch."""
        return ClutterSites(**{name: value[b] for name, value in self.present().items()})

    @property
    def problems(self):
        """The sites of each problem of a batch; of one problem these alone."""
        return [self] if self.site_rho.ndim == 1 else [self.problem(b) for b in range(len(self.site_rho))]

    def part(self, rows):
        """The natural parameters of a slice of the sites of one problem."""
        return self.site_tau[rows], self.site_rho[rows]

    def cut(self, spans):
        """Copies of the natural parameters of the sites of one problem in each of some spans of rows."""
        return [tuple(each.copy() for each in self.part(slice(*span))) for span in spans]

    @property
    def moments(self):
        """Mean and variance of the posterior."""
        return self.tau / (self.rho if self.tau.ndim == 1 else self.rho[:, None]), 1.0 / self.rho

    def combine(self, units, total):
        """log of the integral of prior times sites, from the total of `site_value`.

        It is their value at the posterior mean times (2 pi/rho)^(d/2).
        """
        shift = self.moments[0] - units.prior_tau / units.prior_rho
        distance2 = np.sum(shift * shift, axis=-1)
        d = self.tau.shape[-1]
        return total + 0.5 * (d * np.log(units.prior_rho / self.rho) - units.prior_rho * distance2)


def moment_change(old, new):
    """Largest change of spherical posteriors given as (mean, variance): means in standard deviations, variances."""
    shift = np.max(np.abs(new[0] - old[0]), axis=-1) / np.sqrt(new[1])
    return np.maximum(shift, np.abs(new[1] / old[1] - 1.0))
