"""Passes over the points of one clutter problem by compiled kernels: ADF, and the sweeps of EP."""

from dataclasses import dataclass

import numpy as np

from cavity.base import arrays
from cavity.ep.damping import IN_TURN, TOGETHER, Damping
from cavity.jobs.job import QUIET
from cavity.models.clutter import lost
from cavity.models.clutter.double_loop import minimise
from cavity.models.clutter.evidence import set_evidence
from cavity.models.clutter.lost import kernel
from cavity.models.clutter.points import SUMMED_ROWS
from cavity.models.clutter.sites import ClutterSites, moment_change
from cavity.runs.merge import merge, starts
from cavity.runs.runs import reduce_runs

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

    def kept(self):
        """Return what changes: the state of the generator, None if there is none."""
        return None if self.rng is None else self.rng.bit_generator.state

    def resume(self, kept):
        """Go on with what `kept` returned."""
        if self.rng is not None:
            self.rng.bit_generator.state = kept

    def of_problems(self, count):
        """Return visits of each problem, with generators of their own: whichever thread is first changes nothing."""
        if count == 1 or self.rng is None:
            return [self] * count
        return [Visits(self.order, rng) for rng in self.rng.spawn(count)]


def assimilate(points, order, job=QUIET):
    """One ADF pass over the points of one problem; returns the sites."""
    sites = ClutterSites.empty(points)
    sites.site_value, sites.log_evidence = np.empty(len(sites.site_rho)), 0.0
    for start, stop in starts(len(sites.site_rho)):
        part = slice(start, stop)
        sites.rho, sites.log_evidence = kernel.assimilate(
            *points.arguments(part if order is None else order[part]),
            *(*sites.part(part), sites.site_value[part]),
            *(sites.tau, sites.rho, sites.log_evidence),
        )
        job.within_pass(stop, len(sites.site_rho), len(sites.site_rho))
    mean = sites.moments[0]
    for start, stop in starts(len(sites.site_rho)):  # values at the origin become values at the posterior mean
        tau, rho = sites.part(slice(start, stop))
        sites.site_value[start:stop] += tau @ mean - 0.5 * rho * (mean @ mean)
    if order is not None:
        for name in ("site_tau", "site_rho", "site_value"):
            by_row = np.empty_like(getattr(sites, name))
            by_row[order] = getattr(sites, name)
            setattr(sites, name, by_row)
    return sites


def renewed(run, known):
    """Renew the sites of a run of points from one posterior; return how many were skipped, and the sum of the sites."""
    units, sites, damping = known
    (x,), part = run.arrays, slice(run.start, run.stop)
    sums = np.empty((-(-len(x) // SUMMED_ROWS), x.shape[1] + 1))
    arguments = *units.arguments(x), *sites.part(part), sites.tau, sites.rho
    return kernel.sweep_parallel(*arguments, damping, sums), merge(sums)


def copied(named):
    """Return a dictionary with copies of its arrays."""
    return {name: value.copy() if isinstance(value, np.ndarray) else value for name, value in named.items()}


class Sweeper:
    """EP on one problem: its sweeps, and what makes a proper posterior of them."""

    n_problems = 1
    patience = 3  # sweeps without halving the change until the double loop: slower ones would outlast max_iter
    power = 1.0  # of the sites that cavities lack
    remote = False  # whether workers of dask have the points

    def __init__(self, points, options, visits, threads):
        self.points, self.options, self.visits, self.threads = points, options, visits, threads
        self.sites, self.improper = ClutterSites.empty(points), []
        self.damping = Damping(options.damping, IN_TURN if options.schedule == "sequential" else TOGETHER)

    def kept(self):
        """Return what decides how sweeps go on, for `resume`: copies."""
        kept = {"sites": ClutterSites(**copied(self.sites.present())), "improper": np.array(self.improper)}
        return kept | {"damping": self.damping.kept(), "visits": self.visits.kept()}

    def resume(self, kept):
        """Be the sweeper that `kept` was asked of."""
        self.sites, self.improper = ClutterSites(**copied(kept["sites"].present())), kept["improper"].tolist()
        self.damping.resume(kept["damping"])
        self.visits.resume(kept["visits"])

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
        for start, stop in starts(n):
            index = None if order is None else order[start:stop]
            arguments = self.points.arguments(slice(start, stop) if index is None else index)
            everything = sites.site_tau, sites.site_rho, sites.tau, sites.rho
            sites.rho, skipped = kernel.sweep(*arguments, index, start, *everything, self.damping.step)
            total += skipped
            self.options.job.within_pass(stop, n, n)
        self.refresh()
        return self.visit_lost(total)

    def all_at_once(self):
        """Renew all sites from one posterior; return how many were skipped."""
        sites, units, d = self.sites, self.points.units, self.points.shape[1]
        skipped, total = self.renew((units, sites, self.damping.step))
        sites.tau, sites.rho = units.prior_tau + total[:d], units.prior_rho + total[d]
        left = self.visit_lost(skipped)
        return left + self.settle() if lost.possible(sites.rho, units) else left

    def renew(self, known):
        """Renew all sites from the posterior of now; return how many were skipped, and the sum of the sites."""
        return reduce_runs(renewed, known, [self.points.source], self.threads, grain=self.points.most_blocks)

    def visit_lost(self, skipped):
        """Visit the sites that kernels leave alone because their cavities are lost; return how many stay skipped."""
        if not skipped:
            return 0
        moved = lost.visit(self.points, self.sites, self.damping.step)
        if moved:
            self.refresh()
        return max(skipped - moved, 0)

    def refresh(self):
        """Sum the posterior from prior and sites, so that no rounding is carried on; return the largest precision."""
        sites, part = self.sites, np.empty(self.points.shape[1])
        sites.tau, sites.rho = self.points.units.prior_tau.copy(), self.points.units.prior_rho
        top = -np.inf
        for start, stop in starts(len(sites.site_rho), SUMMED_ROWS):
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
        if top > 0 and abs(tightest) <= lost.LOST_SHARE * abs(sites.rho):
            tightest = lost.cavity(sites, self.points.units, int(np.argmax(sites.site_rho)), self.power)[1]
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
        """Find the fixed point by the double loop where sweeps do not; return the status and its changes."""
        status, changes = minimise(self.points, self.sites, self.options, job)
        self.refresh()
        return status, changes

    def finished(self):
        """Return the sites, with their values and the log evidence."""
        set_evidence(self.points, self.sites, self.threads, self.remote)
        return self.sites
