"""Parallel EP on points that dask has: these stay where they are, their sites come back after every sweep.

The sweeps are those of points at hand, bit by bit. Sites go out only where something else has changed them.
"""

import numpy as np

from cavity.models.clutter.lost import kernel
from cavity.models.clutter.points import SUMMED_ROWS
from cavity.models.clutter.sweeps import Sweeper
from cavity.runs.merge import merge, merge_runs
from cavity.runs.remote import Runs


class RemoteSweeper(Sweeper):
    """A sweeper whose points are worked on by dask, and whose sites are here between sweeps."""

    remote = True

    def __init__(self, points, options, visits, threads):
        super().__init__(points, options, visits, threads)
        self._runs = Runs(points.source)
        self._held = None  # handles of the sites of each run, while they are those that are here

    def renew(self, known):
        units, sites, damping = known
        if self._held is None:
            self._held = self._runs.put(sites.cut(self._runs.spans))
        known = units, sites.tau, sites.rho, damping
        found, self._held = self._runs.each(_renewed, known, self._held)
        for span, new in zip(self._runs.spans, self._runs.fetch(self._held), strict=True):
            sites.site_tau[slice(*span)], sites.site_rho[slice(*span)] = new
        return merge_runs(zip(_blocks(self._runs.spans), found, strict=True))

    def refresh(self):
        self._held = None  # whoever asks for this has changed them
        return super().refresh()

    def resume(self, kept):
        super().resume(kept)
        self._held = None


def _blocks(spans):
    """Return the number of blocks of each run."""
    return [-(-(stop - start) // SUMMED_ROWS) for start, stop in spans]


def _renewed(run, known, own):
    """A task: renew the sites of a run; found are how many were skipped, and the sum of the sites."""
    units, tau, rho, damping = known
    (x,), (site_tau, site_rho) = run.arrays, (each.copy() for each in own)
    sums = np.empty((-(-len(x) // SUMMED_ROWS), x.shape[1] + 1))
    skipped = kernel.sweep_parallel(*units.arguments(x), site_tau, site_rho, tau, rho, damping, sums)
    return (skipped, merge(sums)), (site_tau, site_rho)
