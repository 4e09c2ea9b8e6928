"""Sequential EP for many clutter problems side by side, one in each SIMD lane."""

import numpy as np

from cavity import _core
from cavity.ep.damping import IN_TURN, DampingOfEach
from cavity.models.clutter import lost
from cavity.models.clutter.evidence import set_evidence
from cavity.models.clutter.sites import ClutterSites, moment_change
from cavity.models.clutter.sweeps import Sweeper, copied
from cavity.runs.executors import spans

kernel = _core.best("clutter_lanes")


class LaneSweeper:
    """EP on B one-dimensional problems at once, `kernel.lanes` to a group; padding lanes repeat the last problem."""

    patience = Sweeper.patience

    def __init__(self, points, options, visits, threads):
        self.points, self.options, self.visits, self.threads = points, options, visits, threads
        self.n_problems, self.improper = points.data.shape[0], []
        self.damping = DampingOfEach(options.damping, IN_TURN, self.n_problems)
        (n, _), units = points.shape, points.units
        groups = -(-self.n_problems // kernel.lanes)
        self.index = np.minimum(np.arange(groups * kernel.lanes), self.n_problems - 1).reshape(groups, -1)
        self.x = np.empty((groups, n, kernel.lanes))
        for x, problems in zip(self.x, self.index, strict=True):
            x[:] = (points.data.rows(problems)[:, :, 0] - units.origin[problems]).T * units.scale
        self.prior = units.prior_tau[self.index, 0], units.prior_rho
        self.centre = units.centre[self.index, 0]
        self.site_tau, self.site_rho = np.zeros_like(self.x), np.zeros_like(self.x)
        self.tau, self.rho = np.empty(self.index.shape), np.empty(self.index.shape)
        kernel.start_lanes(self.site_tau, self.site_rho, *self.prior, self.tau, self.rho)

    def kept(self):
        """Return what decides how sweeps go on, for `resume`: copies."""
        lanes = copied({name: getattr(self, name) for name in ("site_tau", "site_rho", "tau", "rho")})
        kept = {"lanes": lanes, "improper": np.array(self.improper), "visits": self.visits.kept()}
        return kept | {"damping": copied(self.damping.kept())}

    def resume(self, kept):
        """Be the sweeper that `kept` was asked of."""
        for name, value in copied(kept["lanes"]).items():
            setattr(self, name, value)
        self.improper = [*kept["improper"]]
        self.damping.resume(kept["damping"])
        self.visits.resume(kept["visits"])

    def step(self, active):
        """Do one sweep of the active problems; return each problem's change, and whether it skipped no site."""
        old = self._moments()
        damping, skipped = np.zeros(self.index.shape), np.zeros(self.index.shape)
        damping.ravel()[: self.n_problems] = np.where(active, self.damping.step, 0.0)
        groups = np.flatnonzero(damping.any(axis=1))
        order = self.visits.of_pass(self.x.shape[1])
        model, posterior = self.points.units.model, (self.site_tau, self.site_rho, self.tau, self.rho)

        def task(start, stop):
            fixed = model, self.x, self.centre, *self.prior, groups[start:stop], order
            kernel.sweep_lanes(*fixed, *posterior, damping, skipped)

        self.threads.run(task, spans(groups.size, self.threads.count))
        skipped = np.where(active, self._each(skipped), 0.0).astype(int)
        for b in np.flatnonzero((skipped > 0) & lost.possible(self._each(self.rho), self.points.units)):
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
        g, lane = divmod(b, kernel.lanes)
        single.sites.site_tau[:, 0], single.sites.site_rho[:] = self.site_tau[g, :, lane], self.site_rho[g, :, lane]
        single.refresh()
        return single

    def replace(self, b, sites):
        """Put the sites of a single problem back into its lane."""
        g, lane = divmod(b, kernel.lanes)
        self.site_tau[g, :, lane], self.site_rho[g, :, lane] = sites.site_tau[:, 0], sites.site_rho
        self.tau[g, lane], self.rho[g, lane] = sites.tau[0], sites.rho

    def tight(self):
        """Return the problems whose cavities may be improper."""
        largest = np.maximum(self.site_rho.max(axis=1), 0.0)
        return np.flatnonzero(self._each(self.rho - largest <= lost.LOST_SHARE * np.abs(self.rho)))

    def finished(self):
        """Return the sites of all problems, with their values and the log evidences; the lanes are given up."""
        points, sums = self.points, np.empty(self.index.shape)
        kernel.evaluate_lanes(
            points.units.model, self.centre, self.site_tau, self.site_rho, self.tau, self.rho, self.x, sums
        )
        site_tau, site_rho, site_value = (self._rows(name) for name in ("site_tau", "site_rho", "x"))
        tau, rho = self._each(self.tau)[:, None].copy(), self._each(self.rho).copy()
        result = ClutterSites(site_tau[..., None], site_rho, tau, rho, site_value)
        result.log_evidence = result.combine(points.units, self._each(sums))
        for b in np.flatnonzero(lost.possible(rho, points.units)):
            one, its_points = result.problem(b), points.problem(b)
            if len(lost.found(one, its_points.units)):
                set_evidence(its_points, one, self.threads)
                result.site_value[b], result.log_evidence[b] = one.site_value, one.log_evidence
        return result

    def _moments(self):
        rho = self._each(self.rho)
        return (self._each(self.tau) / rho)[:, None], 1.0 / rho

    def _each(self, lanes):
        """One number for each problem."""
        return lanes.ravel()[: self.n_problems]

    def _rows(self, name):
        lanes = self.__dict__.pop(name)
        return np.ascontiguousarray(lanes.transpose(0, 2, 1).reshape(-1, lanes.shape[1])[: self.n_problems])
