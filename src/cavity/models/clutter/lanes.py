"""Sequential EP for many clutter problems side by side, one in each SIMD lane."""

import numpy as np

from cavity import _core
from cavity.ep.damping import SEQUENTIAL_PATIENCE, BatchDamping
from cavity.models.clutter import cavities
from cavity.models.clutter.problem import ClutterSites, moment_change
from cavity.models.clutter.sweeps import Sweeper
from cavity.runs.executors import split_range

kernel = _core.best("clutter_lanes")


class LaneSweeper(Sweeper):
    """EP on B one-dimensional problems at once, `kernel.lanes` to a group; padding lanes repeat the last problem.

    Sites are (groups, N, lanes), and their sums (groups, lanes).
    """

    def __init__(self, points, options, visits, threads):
        self.points, self.options, self.visits, self.threads = points, options, visits, threads
        self.n_problems, self.improper = points.data.shape[0], []
        self.damping = BatchDamping(options.damping, SEQUENTIAL_PATIENCE, self.n_problems)
        (n, _), units = points.shape, points.units
        groups = -(-self.n_problems // kernel.lanes)
        self.index = np.minimum(np.arange(groups * kernel.lanes), self.n_problems - 1).reshape(groups, -1)
        self.x = np.empty((groups, n, kernel.lanes))
        for x, problems in zip(self.x, self.index, strict=True):
            x[:] = (points.data.rows(problems)[:, :, 0] - units.origin[problems]).T * units.scale
        self.prior = units.prior_tau[self.index, 0], units.prior_rho
        self.centre = units.centre[self.index, 0]
        shapes = 2 * [self.x.shape] + 2 * [self.index.shape]
        self.sites = ClutterSites(*map(np.zeros, shapes))
        kernel.start_lanes(self.sites.site_tau, self.sites.site_rho, *self.prior, self.sites.tau, self.sites.rho)

    def step(self, active):
        """Do one sweep of the active problems; return each problem's change, and whether it skipped no site."""
        old = self._moments()
        damping, skipped = np.zeros(self.index.shape), np.zeros(self.index.shape)
        damping.ravel()[: self.n_problems] = np.where(active, self.damping.step, 0.0)
        groups = np.flatnonzero(damping.any(axis=1))
        order = self.visits.of_pass(self.x.shape[1])

        def task(start, stop):
            fixed = self.points.units.model, self.x, self.centre, *self.prior, groups[start:stop], order
            kernel.sweep_lanes(*fixed, *self._state, damping, skipped)

        self.threads.run(task, split_range(groups.size, self.threads.count))
        skipped = np.where(active, self._each(skipped), 0.0).astype(int)
        for b in np.flatnonzero((skipped > 0) & cavities.can_lose(self._each(self.sites.rho), self.points.units)):
            single = self.problem(b)
            skipped[b] = single.visit_lost(skipped[b])
            self.replace(b, single.sites)
        self.improper.append(skipped)
        change = moment_change(old, self._moments()) / self.damping.step
        self.damping.after(change)
        return change, skipped == 0

    def problem(self, b):
        """Return a sweeper of one problem that stands where problem b stands."""
        single = Sweeper(self.points.problem(b), self.options, self.visits, self.threads)
        single.damping.step = self.damping.step[b]
        single.sites.site_tau[:, 0], single.sites.site_rho[:], *_ = self._lane(b)
        single.refresh()
        return single

    def replace(self, b, sites):
        """Put the sites of a single problem back into its lane."""
        for lane, value in zip(
            self._lane(b), (sites.site_tau[:, 0], sites.site_rho, sites.tau, sites.rho), strict=True
        ):
            lane[...] = value

    def tight(self):
        """Return the problems whose cavities may be improper."""
        rho, largest = self.sites.rho, np.maximum(self.sites.site_rho.max(axis=1), 0.0)
        return np.flatnonzero(self._each(rho - largest <= cavities.LOST_SHARE * np.abs(rho)))

    def finished(self):
        """Return the sites of all problems, with their values and the log evidences; the lanes are given up."""
        points, lanes, sums = self.points, self.sites, np.empty(self.index.shape)
        kernel.evaluate_lanes(points.units.model, self.centre, *self._state, self.x, sums)
        tau, rho = self._each(lanes.tau)[:, None].copy(), self._each(lanes.rho).copy()
        rows = [self._rows(holder, name) for holder, name in ((lanes, "site_tau"), (lanes, "site_rho"), (self, "x"))]
        result = ClutterSites(rows[0][..., None], rows[1], tau, rho, rows[2])
        result.log_evidence = result.combine(points.units, self._each(sums))
        for b in np.flatnonzero(cavities.can_lose(rho, points.units)):
            one, its_points = result.problem(b), points.problem(b)
            if len(cavities.find_lost(one, its_points.units)):
                cavities.set_evidence(its_points, one, self.threads)
                result.site_value[b], result.log_evidence[b] = one.site_value, one.log_evidence
        return result

    @property
    def _state(self):
        """What kernels change."""
        sites = self.sites
        return sites.site_tau, sites.site_rho, sites.tau, sites.rho

    def _moments(self):
        rho = self._each(self.sites.rho)
        return (self._each(self.sites.tau) / rho)[:, None], 1.0 / rho

    def _lane(self, b):
        """Views of the sites of a problem and of their sums."""
        g, lane = divmod(b, kernel.lanes)
        return [each[g, ..., lane] for each in self._state]

    def _each(self, lanes):
        """One number for each problem."""
        return lanes.ravel()[: self.n_problems]

    def _rows(self, holder, name):
        """Return lanes by problems, which are given up."""
        lanes = getattr(holder, name)
        setattr(holder, name, None)
        return np.ascontiguousarray(lanes.transpose(0, 2, 1).reshape(-1, lanes.shape[1])[: self.n_problems])
