"""Passes over the points of one clutter problem by compiled kernels: ADF, and the sweeps of EP.

Points that dask has stay where they are, and their sites come back after every sweep all at once.
"""

from copy import deepcopy
from dataclasses import dataclass

import numpy as np

from cavity.base import arrays
from cavity.base.loop import CONVERGED, STOPPED, STUCK
from cavity.ep.damping import PARALLEL_PATIENCE, SEQUENTIAL_PATIENCE, Damping
from cavity.ep.double_loop import STEPS_PER_SWEEP, DoubleLoop
from cavity.jobs.job import SILENT_JOB
from cavity.models.clutter import cavities
from cavity.models.clutter.cavities import kernel
from cavity.models.clutter.geometry import Spherical
from cavity.models.clutter.problem import SUMMED_ROWS, ClutterSites, moment_change
from cavity.runs.merge import merge, merge_runs, split_rows
from cavity.runs.passes import reduce_runs
from cavity.runs.remote import RemoteRuns

MOST_SHRINKINGS = 10  # of all sites of a problem, until all cavities are proper: one does, but for rounding


@dataclass(frozen=True, slots=True)
class Visits:
    """The order in which sites are visited: that of the rows (None), a given one, or a new random one in each pass."""

    order: np.ndarray | str | None = None
    rng: np.random.Generator | None = None

    @classmethod
    def checked(cls, order, rng, n):
        """Return the visits of n rows that a user asked for."""
        if isinstance(order, str):
            arrays.choice(order, "order", ("random",))
            if rng is None:
                raise ValueError("order='random' needs rng, a seed or a numpy.random.Generator")
        elif order is not None:
            order = arrays.permutation(order, "order", n)
        return cls(order, None if rng is None else arrays.generator(rng))

    def of_pass(self, n):
        """Return the order of the next pass, None for that of the rows."""
        return self.rng.permutation(n) if isinstance(self.order, str) else self.order

    def checkpoint_state(self):
        """Return what changes: the state of the generator, None if there is none."""
        return None if self.rng is None else self.rng.bit_generator.state

    def restore(self, state):
        """Continue from a `checkpoint_state`."""
        if self.rng is not None:
            self.rng.bit_generator.state = state

    def of_problems(self, count):
        """Return visits of each problem, with generators of their own: whichever thread is first changes nothing."""
        if count == 1 or self.rng is None:
            return [self] * count
        return [Visits(self.order, rng) for rng in self.rng.spawn(count)]


def assimilate(points, order, job=SILENT_JOB):
    """One ADF pass over the points of one problem; returns the sites."""
    sites = ClutterSites.empty(points)
    sites.site_value, sites.log_evidence = np.empty(len(sites.site_rho)), 0.0
    for start, stop in split_rows(len(sites.site_rho)):
        part = slice(start, stop)
        sites.rho, sites.log_evidence = kernel.assimilate(
            *points.arguments(part if order is None else order[part]),
            *(*sites.part(part), sites.site_value[part]),
            *(sites.tau, sites.rho, sites.log_evidence),
        )
        job.report_share(stop, len(sites.site_rho), len(sites.site_rho))
    mean = sites.moments[0]
    for start, stop in split_rows(len(sites.site_rho)):  # values at the origin become values at the posterior mean
        tau, rho = sites.part(slice(start, stop))
        sites.site_value[start:stop] += tau @ mean - 0.5 * rho * (mean @ mean)
    if order is not None:
        by_row = np.argsort(order)
        (sites.site_tau, sites.site_rho), sites.site_value = sites.part(by_row), sites.site_value[by_row]
    return sites


def _renew_here(run, known):
    """A task: renew the sites of a run of points in place."""
    units, sites, damping = known
    return _renew_rows(units, *run.arrays, *sites.part(slice(run.start, run.stop)), sites.tau, sites.rho, damping)


def _renew_there(run, known, own):
    """A task of dask: renew the sites of a run, which stay with it."""
    units, tau, rho, damping = known
    site_tau, site_rho = (each.copy() for each in own)
    return _renew_rows(units, *run.arrays, site_tau, site_rho, tau, rho, damping), (site_tau, site_rho)


def _renew_rows(units, x, site_tau, site_rho, tau, rho, damping):
    """Renew sites from one posterior; return how many were skipped, and the sum of the sites."""
    sums = np.empty((-(-len(x) // SUMMED_ROWS), x.shape[1] + 1))
    return kernel.sweep_parallel(*units.arguments(x), site_tau, site_rho, tau, rho, damping, sums), merge(sums)


class Sweeper:
    """EP on one problem: its sweeps, and what makes a proper posterior of them."""

    n_problems = 1
    patience = 3  # sweeps without halving the change until the double loop: slower ones would outlast max_iter

    def __init__(self, points, options, visits, threads):
        self.points, self.options, self.visits, self.threads = points, options, visits, threads
        self.power = options.power  # of the sites that cavities lack
        self.sites, self.improper = ClutterSites.empty(points), []
        self.damping = Damping(
            options.damping, SEQUENTIAL_PATIENCE if options.schedule == "sequential" else PARALLEL_PATIENCE
        )

    def checkpoint_state(self):
        """Return what decides how sweeps go on, for `restore`: copies."""
        state = {"sites": deepcopy(self.sites), "improper": np.array(self.improper)}
        return state | {"damping": self.damping.checkpoint_state(), "visits": self.visits.checkpoint_state()}

    def restore(self, state):
        """Continue from a `checkpoint_state`."""
        self.sites, self.improper = deepcopy(state["sites"]), state["improper"].tolist()
        self.damping.restore(state["damping"])
        self.visits.restore(state["visits"])

    def step(self, _):
        """Do one sweep; return the change of the posterior's moments and whether no site was skipped, shapes (1,)."""
        before = [self.sites.moments]
        if self.options.schedule == "sequential":
            skipped = self.one_by_one(self.points.shape[0])
        elif self.improper:
            skipped = self.all_at_once()
        else:  # from the bare prior all sites would see a flat posterior: let the first rows go first
            skipped = self.first_rows()
            before.append(self.sites.moments)  # to and back is a change too
            skipped += self.all_at_once()
        self.improper.append([skipped])  # of each problem
        change = max(moment_change(old, self.sites.moments) for old in before) / self.damping.step
        self.damping.after(change)
        return np.array([change]), np.array([skipped == 0])

    def first_rows(self):
        """Visit the first rows one after the other; return how many were skipped."""
        return self.one_by_one(min(SUMMED_ROWS, self.points.shape[0]))

    def one_by_one(self, n):
        """Visit the first n sites in order; return how many were skipped."""
        sites, total, order = self.sites, 0, self.visits.of_pass(self.points.shape[0])
        for start, stop in split_rows(n):
            index = None if order is None else order[start:stop]
            arguments = self.points.arguments(slice(start, stop) if index is None else index)
            everything = sites.site_tau, sites.site_rho, sites.tau, sites.rho
            sites.rho, skipped = kernel.sweep(*arguments, index, start, *everything, self.damping.step)
            total += skipped
            self.options.job.report_share(stop, n, n)
        self.refresh()
        return self.visit_lost(total)

    def all_at_once(self):
        """Renew all sites from one posterior; return how many were skipped."""
        sites, units, d = self.sites, self.points.units, self.points.shape[1]
        skipped, total = self.renew()
        sites.tau, sites.rho = units.prior_tau + total[:d], units.prior_rho + total[d]
        left = self.visit_lost(skipped)
        return left + self.settle() if cavities.can_lose(sites.rho, units) else left

    def renew(self):
        """Renew all sites from the posterior of now; return how many were skipped, and the sum of the sites."""
        points, known = self.points, (self.points.units, self.sites, self.damping.step)
        return reduce_runs(_renew_here, known, [points.data.source], self.threads, grain=points.most_blocks)

    def visit_lost(self, skipped):
        """Visit the sites that kernels leave alone because their cavities are lost; return how many stay skipped."""
        if not skipped:
            return 0
        moved = cavities.visit_lost(self.points, self.sites, self.damping.step)
        if moved:
            self.refresh()
        return max(skipped - moved, 0)

    def refresh(self):
        """Sum the posterior from prior and sites, so that no rounding is carried on; return the largest precision."""
        sites, part = self.sites, np.empty(self.points.shape[1])
        sites.tau, sites.rho = self.points.units.prior_tau.copy(), self.points.units.prior_rho
        top = -np.inf
        for start, stop in split_rows(len(sites.site_rho), SUMMED_ROWS):
            rho, largest = kernel.total(*sites.part(slice(start, stop)), part)
            sites.tau += part
            sites.rho += rho
            top = max(top, largest)
        return top

    def settle(self):
        """Make all cavities proper if they are not; return whether that changed anything.

        All sites shrink by the largest fraction f that leaves every cavity proper, less a tenth. The tightest cavity
        is that of the site with the largest precision: prior + f (total - top) > 0.
        """
        prior = self.points.units.prior_rho
        for shrinkings in range(MOST_SHRINKINGS + 1):
            tightest = self.tightest()
            if tightest > 0:
                return shrinkings > 0
            fraction = 0.9 * prior / (prior - tightest)
            self.sites.site_tau *= fraction
            self.sites.site_rho *= fraction
        raise OverflowError("the sites leave the range of float64; rescale x or the prior")

    def tightest(self):
        """Sum the posterior; return the least precision of the cavities and of the posterior itself."""
        sites, top = self.sites, max(self.power * self.refresh(), 0.0)
        tightest = sites.rho - top
        if top > 0 and abs(tightest) <= cavities.LOST_SHARE * abs(sites.rho):
            tightest = cavities.sum_cavity(sites, self.points.units, int(np.argmax(sites.site_rho)), self.power)[1]
        return tightest

    # ------------------------------------------------------------------ problems by number, of which this has one

    def problem(self, _):
        """Return this, the sweeper of the only problem."""
        return self

    def replace(self, _, sites):
        """Take the sites of that problem: they are here."""

    def tight(self):
        """Return the problems whose cavities may be improper."""
        return [0]

    def rescue(self, job):
        """Find the fixed point by the double loop where sweeps do not; return the status and its changes.

        It starts from `Spherical.start`, then from where that has led.
        """
        geometry, sites, options = Spherical(self.points), self.sites, self.options
        most = STEPS_PER_SWEEP * options.max_iter
        loop = DoubleLoop(geometry, geometry.free_energy, sites.site_tau, sites.site_rho, most, options.tol)
        status = loop.descend(geometry.start(), job.substage("double loop"))
        if status not in (CONVERGED, STOPPED):
            status = loop.run(job)
        sites.site_tau, sites.site_rho = loop.tau, loop.rho
        self.refresh()
        return status if status in (CONVERGED, STOPPED) else STUCK, loop.changes

    def finished(self):
        """Return the sites, with their values and the log evidence."""
        cavities.set_evidence(self.points, self.sites, self.threads)
        return self.sites


class RemoteSweeper(Sweeper):
    """A sweeper whose points are worked on by dask, and whose sites are here between sweeps, bit by bit the same.

    Sites go out only where something else has changed them.
    """

    def __init__(self, points, options, visits, threads):
        super().__init__(points, options, visits, threads)
        self._runs = RemoteRuns(points.data.source)
        self._held = None  # handles of the sites of each run, while they are those that are here

    def renew(self):
        sites, spans = self.sites, self._runs.spans
        if self._held is None:
            self._held = self._runs.put(sites.cut(spans))
        known = self.points.units, sites.tau, sites.rho, self.damping.step
        found, self._held = self._runs.each(_renew_there, known, self._held)
        for span, new in zip(spans, self._runs.fetch(self._held), strict=True):
            sites.site_tau[slice(*span)], sites.site_rho[slice(*span)] = new
        counts = [-(-(stop - start) // SUMMED_ROWS) for start, stop in spans]
        return merge_runs(zip(counts, found, strict=True))

    def refresh(self):
        self._held = None  # whoever asks for this has changed them
        return super().refresh()
