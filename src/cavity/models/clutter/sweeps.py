"""Passes over the points of clutter problems by compiled kernels: ADF, and the sweeps of EP.

Remote points stay with dask, and their sites come back after every sweep all at once. `LaneSweeper` sweeps over many
one-dimensional problems side by side, one in each SIMD lane.
"""

from copy import deepcopy
from dataclasses import dataclass

import numpy as np

from cavity import _core
from cavity.base import arrays
from cavity.base.loop import CONVERGED_STATUS, STOPPED_STATUS, STUCK_STATUS
from cavity.ep.damping import PARALLEL_PATIENCE, SEQUENTIAL_PATIENCE, BatchDamping, Damping
from cavity.ep.double_loop import STEPS_PER_SWEEP, DoubleLoop
from cavity.jobs.job import SILENT_JOB
from cavity.models.clutter import cavities
from cavity.models.clutter.cavities import kernel
from cavity.models.clutter.geometry import Spherical
from cavity.models.clutter.problem import SUMMED_ROWS, ClutterSites, find_moment_change
from cavity.runs.executors import split_range
from cavity.runs.merge import merge, merge_runs, split_rows
from cavity.runs.passes import reduce_runs
from cavity.runs.remote import RemoteRuns

lane_kernel = _core.best("clutter_lanes")

MOST_SHRINKINGS = 10  # of all sites of a problem, until all cavities are proper: one does, but for rounding


@dataclass(frozen=True, slots=True)
class Visits:
    """The order in which sites are visited: that of the rows (None), a given one, or a new random one in each pass."""

    order: np.ndarray | str | None = None
    rng: np.random.Generator | None = None

    @classmethod
    def checked(cls, order, rng, n):
        """Return the visits of n rows that a user requested."""
        if isinstance(order, str):
            arrays.check_choice(order, "order", ("random",))
            if rng is None:
                raise ValueError("order='random' needs rng, a seed or a numpy.random.Generator")
        elif order is not None:
            order = arrays.check_permutation(order, "order", n)
        return cls(order, None if rng is None else arrays.make_generator(rng))

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
        """Return the visits of each problem. Each has its own generator, so that the order of threads has no effect."""
        if count == 1 or self.rng is None:
            return [self] * count
        return [Visits(self.order, rng) for rng in self.rng.spawn(count)]


def assimilate_points(points, order, job=SILENT_JOB):
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


def _renew_local_run(run, broadcast):
    """Renew the sites of a run of points in place."""
    units, sites, damping = broadcast
    return _renew_rows(units, *run.arrays, *sites.part(slice(run.start, run.stop)), sites.tau, sites.rho, damping)


def _renew_remote_run(run, broadcast, run_sites):
    """Renew the sites of a remote run, which stay remote."""
    units, tau, rho, damping = broadcast
    site_tau, site_rho = (parameters.copy() for parameters in run_sites)
    return _renew_rows(units, *run.arrays, site_tau, site_rho, tau, rho, damping), (site_tau, site_rho)


def _renew_rows(units, x, site_tau, site_rho, tau, rho, damping):
    """Renew sites from one posterior; return how many were skipped, and the sum of the sites."""
    sums = np.empty((-(-len(x) // SUMMED_ROWS), x.shape[1] + 1))
    return kernel.sweep_parallel(*units.arguments(x), site_tau, site_rho, tau, rho, damping, sums), merge(sums)


class Sweeper:
    """Sweeps of EP over one problem, its double loop, and the projection to proper cavities."""

    n_problems = 1
    patience = 3  # sweeps without halving the change until the double loop: slower ones would outlast max_iter

    def __init__(self, points, options, visits, threads):
        self.points, self.options, self.visits, self.threads = points, options, visits, threads
        self.power = options.power  # the fraction of a site that its cavity leaves out
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
            skipped = self.visit_one_by_one(self.points.shape[0])
        elif self.improper:
            skipped = self.renew_all()
        else:  # the sites of a flat prior overshoot: visit the first rows one by one before
            skipped = self.visit_first_rows()
            before.append(self.sites.moments)  # both halves of the sweep count
            skipped += self.renew_all()
        self.improper.append([skipped])  # of each problem
        change = max(find_moment_change(old, self.sites.moments) for old in before) / self.damping.step
        self.damping.adapt(change)
        return np.array([change]), np.array([skipped == 0])

    def visit_first_rows(self):
        """Visit the first rows one after the other; return how many were skipped."""
        return self.visit_one_by_one(min(SUMMED_ROWS, self.points.shape[0]))

    def visit_one_by_one(self, n):
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
        return self.visit_lost_cavities(total)

    def renew_all(self):
        """Renew all sites from one posterior; return how many were skipped."""
        sites, units, d = self.sites, self.points.units, self.points.shape[1]
        skipped, total = self.renew()
        sites.tau, sites.rho = units.prior_tau + total[:d], units.prior_rho + total[d]
        still_skipped = self.visit_lost_cavities(skipped)
        return still_skipped + self.make_proper() if cavities.can_lose(sites.rho, units) else still_skipped

    def renew(self):
        """Renew all sites from the posterior of now; return how many were skipped, and the sum of the sites."""
        points, broadcast = self.points, (self.points.units, self.sites, self.damping.step)
        return reduce_runs(_renew_local_run, broadcast, [points.data.source], self.threads, grain=points.most_blocks)

    def visit_lost_cavities(self, skipped):
        """Visit the sites that kernels skip because their cavities have lost their digits; return how many remain."""
        if not skipped:
            return 0
        moved = cavities.visit_lost_cavities(self.points, self.sites, self.damping.step)
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

    def make_proper(self):
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

    # ------------------------------------------------------------------ the interface of batches, for one problem

    def problem(self, _):
        """Return the sweeper of problem b."""
        return self

    def replace_sites(self, _, sites):
        """Store the sites of problem b: `problem` shares them."""

    def find_tight(self):
        """Return the problems whose cavities may be improper."""
        return [0]

    def run_double_loop(self, job):
        """Find the fixed point by the double loop where sweeps do not; return the status and its changes.

        It starts from `Spherical.start`, then from where that has led.
        """
        geometry, sites, options = Spherical(self.points), self.sites, self.options
        most = STEPS_PER_SWEEP * options.max_iter
        loop = DoubleLoop(geometry, geometry.free_energy, sites.site_tau, sites.site_rho, most, options.tol)
        status = loop.descend(geometry.start(), job.substage("double loop"))
        if status not in (CONVERGED_STATUS, STOPPED_STATUS):
            status = loop.run(job)
        sites.site_tau, sites.site_rho = loop.tau, loop.rho
        self.refresh()
        return status if status in (CONVERGED_STATUS, STOPPED_STATUS) else STUCK_STATUS, loop.changes

    def finish(self):
        """Return the sites, with their values and the log evidence."""
        cavities.set_evidence(self.points, self.sites, self.threads)
        return self.sites


class RemoteSweeper(Sweeper):
    """A sweeper over remote points, with the bits of a local one.

    The sites are local between sweeps; they are sent again only after a local change.
    """

    def __init__(self, points, options, visits, threads):
        super().__init__(points, options, visits, threads)
        self._runs = RemoteRuns(points.data.source)
        self._remote_sites = None  # handles of the remote copies of each run, None after a local change

    def renew(self):
        sites, run_spans = self.sites, self._runs.spans
        if self._remote_sites is None:
            self._remote_sites = self._runs.put(sites.copy_spans(run_spans))
        broadcast = self.points.units, sites.tau, sites.rho, self.damping.step
        results, self._remote_sites = self._runs.call_for_runs(_renew_remote_run, broadcast, self._remote_sites)
        for span, new in zip(run_spans, self._runs.fetch(self._remote_sites), strict=True):
            sites.site_tau[slice(*span)], sites.site_rho[slice(*span)] = new
        counts = [-(-(stop - start) // SUMMED_ROWS) for start, stop in run_spans]
        return merge_runs(zip(counts, results, strict=True))

    def refresh(self):
        self._remote_sites = None  # the local sites have changed
        return super().refresh()


class LaneSweeper(Sweeper):
    """EP on B one-dimensional problems at once, `lane_kernel.lanes` to a group; padding lanes repeat the last problem.

    Sites are (groups, N, lanes), and their sums (groups, lanes).
    """

    def __init__(self, points, options, visits, threads):
        self.points, self.options, self.visits, self.threads = points, options, visits, threads
        self.n_problems, self.improper = points.data.shape[0], []
        self.damping = BatchDamping(options.damping, SEQUENTIAL_PATIENCE, self.n_problems)
        (n, _), units = points.shape, points.units
        groups = -(-self.n_problems // lane_kernel.lanes)
        self.index = np.minimum(np.arange(groups * lane_kernel.lanes), self.n_problems - 1).reshape(groups, -1)
        self.x = np.empty((groups, n, lane_kernel.lanes))
        for x, problems in zip(self.x, self.index, strict=True):
            x[:] = (points.data.rows(problems)[:, :, 0] - units.origin[problems]).T * units.scale
        self.prior = units.prior_tau[self.index, 0], units.prior_rho
        self.centre = units.centre[self.index, 0]
        shapes = 2 * [self.x.shape] + 2 * [self.index.shape]
        self.sites = ClutterSites(*map(np.zeros, shapes))
        lane_kernel.start_lanes(self.sites.site_tau, self.sites.site_rho, *self.prior, self.sites.tau, self.sites.rho)

    def step(self, active):
        """Do one sweep of the active problems; return each problem's change, and whether it skipped no site."""
        old = self._moments()
        damping, skipped = np.zeros(self.index.shape), np.zeros(self.index.shape)
        damping.ravel()[: self.n_problems] = np.where(active, self.damping.step, 0.0)
        groups = np.flatnonzero(damping.any(axis=1))
        order = self.visits.of_pass(self.x.shape[1])

        def task(start, stop):
            fixed = self.points.units.model, self.x, self.centre, *self.prior, groups[start:stop], order
            lane_kernel.sweep_lanes(*fixed, *self._state, damping, skipped)

        self.threads.run(task, split_range(groups.size, self.threads.count))
        skipped = np.where(active, self._unpack(skipped), 0.0).astype(int)
        for b in np.flatnonzero((skipped > 0) & cavities.can_lose(self._unpack(self.sites.rho), self.points.units)):
            single = self.problem(b)
            skipped[b] = single.visit_lost_cavities(skipped[b])
            self.replace_sites(b, single.sites)
        self.improper.append(skipped)
        change = find_moment_change(old, self._moments()) / self.damping.step
        self.damping.adapt(change)
        return change, skipped == 0

    def problem(self, b):
        """Return a `Sweeper` of problem b with its current sites and damping."""
        single = Sweeper(self.points.problem(b), self.options, self.visits, self.threads)
        single.damping.step = self.damping.step[b]
        single.sites.site_tau[:, 0], single.sites.site_rho[:], *_ = self._lane(b)
        single.refresh()
        return single

    def replace_sites(self, b, sites):
        """Copy the sites of problem b back into its lane."""
        for lane, value in zip(
            self._lane(b), (sites.site_tau[:, 0], sites.site_rho, sites.tau, sites.rho), strict=True
        ):
            lane[...] = value

    def find_tight(self):
        """Return the problems whose cavities may be improper."""
        rho, largest = self.sites.rho, np.maximum(self.sites.site_rho.max(axis=1), 0.0)
        return np.flatnonzero(self._unpack(rho - largest <= cavities.LOST_SHARE * np.abs(rho)))

    def finish(self):
        """Return the sites of all problems, with their values and the log evidences; this frees the lanes."""
        points, lanes, sums = self.points, self.sites, np.empty(self.index.shape)
        lane_kernel.evaluate_lanes(points.units.model, self.centre, *self._state, self.x, sums)
        tau, rho = self._unpack(lanes.tau)[:, None].copy(), self._unpack(lanes.rho).copy()
        rows = [self._rows(holder, name) for holder, name in ((lanes, "site_tau"), (lanes, "site_rho"), (self, "x"))]
        result = ClutterSites(rows[0][..., None], rows[1], tau, rho, rows[2])
        result.log_evidence = result.combine(points.units, self._unpack(sums))
        for b in np.flatnonzero(cavities.can_lose(rho, points.units)):
            sites, problem_points = result.problem(b), points.problem(b)
            if len(cavities.find_lost_cavities(sites, problem_points.units)):
                cavities.set_evidence(problem_points, sites, self.threads)
                result.site_value[b], result.log_evidence[b] = sites.site_value, sites.log_evidence
        return result

    @property
    def _state(self):
        """The arrays that kernels update."""
        sites = self.sites
        return sites.site_tau, sites.site_rho, sites.tau, sites.rho

    def _moments(self):
        rho = self._unpack(self.sites.rho)
        return (self._unpack(self.sites.tau) / rho)[:, None], 1.0 / rho

    def _lane(self, b):
        """Views of the sites of a problem and of their sums."""
        g, lane = divmod(b, lane_kernel.lanes)
        return [lanes[g, ..., lane] for lanes in self._state]

    def _unpack(self, lanes):
        """One number for each problem."""
        return lanes.ravel()[: self.n_problems]

    def _rows(self, holder, name):
        """Return an array of lanes with an axis of problems instead; this frees the lanes."""
        lanes = getattr(holder, name)
        setattr(holder, name, None)
        return np.ascontiguousarray(lanes.transpose(0, 2, 1).reshape(-1, lanes.shape[1])[: self.n_problems])
