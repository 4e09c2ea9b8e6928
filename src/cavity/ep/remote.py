"""EP on rows that dask has: sites stay with their runs from pass to pass, and sums of them come back.

The engines are those of rows at hand, bit by bit: `engine.Engine` and `stochastic.Stochastic`. Here is what differs:
sites of the former are handles, see `RemoteRuns`, and what both do with blocks is sent to where these are. Rows
that are visited one by one are visited there, too, one run after the other; the belief travels.

A worker that is lost takes sites with it. dask makes them again from those of the pass before, so every few passes they
are fetched and put anew, unless they are too many: then no more than these passes are made again.
"""

from copy import copy
from functools import partial

import numpy as np

from cavity.base.arrays import add_in_order
from cavity.ep.dense import SWEEP_ROWS, Dense
from cavity.ep.engine import Engine
from cavity.ep.geometry import BlockGroup, Geometry
from cavity.runs.merge import merge, merge_runs, split_rows
from cavity.runs.remote import RemoteRuns
from cavity.sources.scratch import MOST_IN_MEMORY
from cavity.sources.sources import Source

PASSES_PER_FETCH = 8  # after which sites are put anew


class RemoteDense(Dense):
    """The rows of a collection and the prior of a model; `tau` and `rho` are arrays, or handles and None."""

    def __init__(self, X, offset, prior_mean, prior_root, threads, folder=None):
        super().__init__(X, offset, prior_mean, prior_root, threads, folder)
        self._runs = RemoteRuns(Source(X.parts, X.name, self.groups[0][1]))
        self._own = None  # the handles of what the tasks of a run have of its rows

    vector = Geometry.vector  # in memory, or not at all

    def without_rows(self):
        """What tasks need of this."""
        geometry = copy(self)
        geometry.features = geometry.threads = geometry.base = geometry._runs = geometry._own = None
        return geometry

    def put(self, *vectors):
        """Return handles of vectors (N,)."""
        return self._runs.put([tuple(vector[slice(*span)] for vector in vectors) for span in self._runs.spans])

    def fetch(self, handles):
        """Return the vectors (N,) behind handles; None where they are too many."""
        if self.n_rows > MOST_IN_MEMORY:
            return None, None
        return tuple(np.concatenate(parts) for parts in zip(*self._runs.fetch(handles), strict=True))

    def transform(self, function, *handles):
        """Return handles of function(tau, ...) and function(rho, ...)."""
        return self._runs.call_for_runs(_transform_sites, function, *handles, rows=False)[1]

    def in_groups(self, function, sites, at, *arguments, filled=False):
        """Call function(group, *known) for all `Group`s, see `Geometry`; `at` are vectors, or handles and None."""
        results, handles = self._over(function, sites, at, arguments, False)
        results = [result for group in results for result in group]
        return results, self.fetch(handles) if filled else (None, None)

    def sums(self, function, sites, at, *arguments, new=None):
        """Return the sums of function(group, part, x, h, g, *known), see `Geometry`; and handles of `Group.new`."""
        results, handles = self._over(partial(_sum_blocks, function), sites, at, arguments, True)
        size = self._runs.layout.block_rows
        counts = (-(-(stop - start) // size) for start, stop in self._runs.spans)
        return self.complete_sums(*merge_runs(zip(counts, results, strict=True))), (handles, None)

    def _over(self, function, sites, at, arguments, merging):
        """What tasks find in all runs, and handles of what they leave behind; without sites with those there last."""
        if self._own is None or (sites is not None and self._own[0] is not sites):
            spans = [slice(*span) for span in self._runs.spans]
            base = [None if self.base is None else self.base[span] for span in spans]
            cut = [None if sites is None else sites.of_rows(span) for span in spans]
            self._own = sites, self._runs.put(list(zip(cut, base, strict=True)))
        task, (tau, rho) = (function, self.without_rows(), arguments, merging), at
        old = [] if tau is None else [tau if rho is None else self.put(tau, rho)]
        results, handles = self._runs.call_for_runs(_run_groups, task, self._own[1], *old)
        if self.threads.job is not None:
            self.threads.job.report_share(1, 1, self.n_rows)
        return results, handles

    def sweep(self, sites, belief, part, tau, rho, up, down):
        """Visit the sites of some rows one after the other, where they are; tau, rho (N,) change in place."""
        is_choice = isinstance(part, np.ndarray)
        size = SWEEP_ROWS if self._goes_one_by_one(sites) else SWEEP_ROWS // self.joint_rows * self.joint_rows
        first = self.features.parts[0].first(part[-1] + 1 if is_choice else part.stop)
        runs = RemoteRuns(Source([first], self.features.name, size))
        inputs = []
        for low, high in runs.spans:
            rows, base = slice(low, high), None if self.base is None else self.base[low:high]
            visited = part[(part >= low) & (part < high)] - low if is_choice else slice(0, high - low)
            inputs.append((self.without_rows(), sites.of_rows(rows), base, tau[rows], rho[rows], visited, up, down))
        state = belief.mean.copy(), belief.root @ belief.root.T
        results = runs.in_turn(_visit_run, state, inputs)
        skipped, log_z = 0, []
        for span, (own_tau, own_rho, missed, gained) in zip(runs.spans, results, strict=True):
            tau[slice(*span)], rho[slice(*span)] = own_tau, own_rho
            skipped += missed
            log_z += gained
        return self.belief(*self.gather(tau, rho)), skipped, add_in_order(log_z)


def _run_groups(run, task, own, old=(None, None)):
    """A task: what a function finds in the groups of a run, and two vectors that it leaves behind."""
    (function, geometry, arguments, merging), (sites, base) = task, own
    geometry = copy(geometry)
    geometry.base = base
    new = np.zeros((2, run.stop - run.start))
    results = []
    for start, (x,) in run.blocks():
        first = start - run.start
        blocks = [(slice(first + low, first + high), x[low:high]) for low, high in split_rows(len(x), geometry.block)]
        results.append(function(BlockGroup(geometry, sites, blocks, old, new), *arguments))
    return (merge(results) if merging else results), tuple(new)


def _sum_blocks(function, group, *arguments):
    """Return the sums over the blocks of a group."""
    return group.geometry.sum_blocks(lambda *block: function(group, *block, *arguments), group.blocks)


def _transform_sites(run, function, *vectors):
    """A task: a function of the sites of a run."""
    return None, tuple(function(*values) for values in zip(*vectors, strict=True))


def _visit_run(run, inputs, state):
    """A task: visit the sites of a run one after the other; the moments of the coordinates travel."""
    geometry, sites, base, tau, rho, visited, up, down = inputs
    geometry = copy(geometry)
    geometry.base, geometry.features = base, run.arrays[0]
    mean, covariance = (moment.copy() for moment in state)
    tau, rho = tau.copy(), rho.copy()
    *moments, skipped, gained = geometry.visit_from(sites, mean, covariance, visited, tau, rho, up, down)
    return (tau, rho, skipped, gained), tuple(moments)


class RemoteEngine(Engine):
    """One EP fit: between sweeps all at once `tau` is handles and `rho` None, between those one by one both are arrays.

    Where sweeps do not converge there is no double loop, which would need all rows at hand.
    """

    descends = False

    def checkpoint_state(self):
        state = super().checkpoint_state()
        sites = self.geometry.fetch(self.tau) if self.rho is None else state["sites"]
        good = None if self.good is None else self.geometry.fetch(self.good[0])
        return state | {"sites": sites, "good": good}

    def restore(self, state):
        super().restore(state)
        if self.options.schedule == "parallel":
            self.tau, self.rho = self.geometry.put(self.tau, self.rho), None
            self.good = None if self.good is None else (self.geometry.put(*self.good), None)

    def _copy_vector(self, values):
        return np.array(values, dtype=np.float64)

    def _copy_sites(self):
        return (self.tau, None) if self.rho is None else super()._copy_sites()

    def _transform(self, function, sites, *others):
        if sites[1] is not None:
            return super()._transform(function, sites, *others)
        return self.geometry.transform(function, sites[0], *(pair[0] for pair in others)), None

    def _renew_all(self, up, down):
        self.spare = None, None  # new sites are where their rows are
        if self.rho is not None:
            self.tau, self.rho = self.geometry.put(self.tau, self.rho), None
        elif self.sweeps % PASSES_PER_FETCH == 0 and self.geometry.n_rows <= MOST_IN_MEMORY:
            self.tau = self.geometry.put(*self.geometry.fetch(self.tau))
        return super()._renew_all(up, down)

    def _bring_sites(self):
        if self.rho is None:
            self.tau, self.rho = self.geometry.fetch(self.tau)
