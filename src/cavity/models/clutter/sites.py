"""The sites of a clutter problem with their posterior, in working units."""

from dataclasses import dataclass, field

import numpy as np

from cavity.base.records import Array, saved


@dataclass(slots=True)
class ClutterSites:
    """Sites and posterior of one problem in working units; all with a leading axis for a batch."""

    site_tau: np.ndarray = field(metadata=saved(Array("B? N D")))
    site_rho: np.ndarray = field(metadata=saved(Array("B? N")))
    tau: np.ndarray = field(metadata=saved(Array("B? D")))  # of the posterior
    rho: float = field(metadata=saved(Array("B?", "positive")))
    # log of each scaled site at the posterior mean
    site_value: np.ndarray | None = field(default=None, metadata=saved(Array("B? N"), "site_value"))
    # of the data, in working units
    log_evidence: float = field(default=np.nan, metadata=saved(Array("B?"), "log_evidence"))
    # after power EP, log densities under the posterior of the others
    loo: np.ndarray | None = field(default=None, metadata=saved(Array("B? N", "any")))

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
