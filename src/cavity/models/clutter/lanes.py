"""Sequential EP for many clutter problems side by side, one in each SIMD lane."""

import numpy as np

from cavity import _core
from cavity.base.loop import CONVERGED, STUCK, iterate
from cavity.blocks.executors import Threads, spans
from cavity.blocks.sources import rows
from cavity.models.clutter import cavities
from cavity.models.clutter.double_loop import moment_change
from cavity.models.clutter.sweeps import PATIENCE, Sweeper, combine_evidence, double_loop, finish, visiting_order
from cavity.models.clutter.units import State

_lane_kernel = _core.best("clutter_lanes")
LANES = _lane_kernel.lanes


class LaneSweeper:
    """Sequential EP on B one-dimensional problems at once, LANES to a group; padding lanes repeat the last problem."""

    def __init__(self, data, units, order, rng, damping, threads):
        size, n = data.shape[:2]
        groups = -(-size // LANES)
        self.data, self.size, self.units, self.order, self.rng = data, size, units, order, rng
        self.damping, self.threads = damping, threads
        self.index = np.minimum(np.arange(groups * LANES), size - 1)
        self.x = np.empty((groups, n, LANES))
        for g in range(groups):
            problems = self.index[g * LANES : (g + 1) * LANES]
            self.x[g] = (rows(data, problems)[:, :, 0] - units.origin[problems]).T * units.scale
        self.centre = np.ascontiguousarray(units.centre[self.index, 0].reshape(groups, LANES))
        self.prior_tau = np.ascontiguousarray(units.prior_tau[self.index, 0].reshape(groups, LANES))
        self.site_tau, self.site_rho = np.zeros_like(self.x), np.zeros_like(self.x)
        self.tau, self.rho = np.empty((groups, LANES)), np.empty((groups, LANES))
        _lane_kernel.start_lanes(self.site_tau, self.site_rho, self.prior_tau, units.prior_rho, self.tau, self.rho)
        self.improper = []

    def step(self, active):
        """Do one sweep of the active problems; return each problem's change, and whether it skipped no site."""
        n, old_tau, old_rho = self.x.shape[1], self.tau.copy(), self.rho.copy()
        padded = np.zeros(self.index.size, dtype=bool)
        padded[: self.size] = active
        padded = padded.reshape(self.tau.shape)
        damping, skipped = np.where(padded, self.damping, 0.0), np.zeros(self.tau.shape)
        groups = np.flatnonzero(padded.any(axis=1))
        order = visiting_order(self.order, self.rng, n)

        def task(start, stop):
            _lane_kernel.sweep_lanes(
                self.units.model,
                self.x,
                self.centre,
                self.prior_tau,
                self.units.prior_rho,
                groups[start:stop],
                order,
                self.site_tau,
                self.site_rho,
                self.tau,
                self.rho,
                damping,
                skipped,
            )

        self.threads.run(task, spans(groups.size, self.threads.count))
        skipped = np.where(padded, skipped, 0.0).ravel()[: self.size].astype(int)
        for b in np.flatnonzero((skipped > 0) & cavities.suspects(self._each("rho"), self.units.noise)):
            single = self.problem(b)
            skipped[b] = single.visit_lost(skipped[b])
            self.replace(b, single.state)
        self.improper.append(skipped)
        change = moment_change(
            (old_tau / old_rho)[..., None], 1.0 / old_rho, (self.tau / self.rho)[..., None], 1.0 / self.rho
        )
        return change.ravel()[: self.size] / self.damping, skipped == 0

    def problem(self, b):
        """Return a single-problem sweeper that stands where problem b stands."""
        units = self.units.problem(b)
        single = Sweeper(self.data[b], units, "sequential", None, None, self.damping, self.threads)
        g, lane = divmod(b, LANES)
        single.state.site_tau[:, 0], single.state.site_rho[:] = self.site_tau[g, :, lane], self.site_rho[g, :, lane]
        single.refresh()
        return single

    def replace(self, b, state):
        """Put the state of a single problem back into its lane."""
        g, lane = divmod(b, LANES)
        self.site_tau[g, :, lane], self.site_rho[g, :, lane] = state.site_tau[:, 0], state.site_rho
        self.tau[g, lane], self.rho[g, lane] = state.tau[0], state.rho

    def state(self):
        """Return the final state of all problems, with a batch axis; the lanes are given up."""
        sums = np.empty(self.tau.shape)
        _lane_kernel.evaluate_lanes(
            self.units.model, self.centre, self.site_tau, self.site_rho, self.tau, self.rho, self.x, sums
        )
        tau, rho = self._each("tau")[:, None].copy(), self._each("rho").copy()
        result = State(self._rows("site_tau")[..., None], self._rows("site_rho"), tau, rho, self._rows("x"))
        result.log_evidence = combine_evidence(self.units, tau, rho, sums.ravel()[: self.size])
        for b in np.flatnonzero(cavities.suspects(rho, self.units.noise)):
            one = result.problem(b)
            if len(cavities.lost(one, self.units.noise)):
                finish(self.data[b], self.units.problem(b), one, self.threads)
                result.site_value[b], result.log_evidence[b] = one.site_value, one.log_evidence
        return result

    def _each(self, name):
        """One number for each problem."""
        return getattr(self, name).ravel()[: self.size]

    def _rows(self, name):
        lanes = self.__dict__.pop(name)
        return np.ascontiguousarray(lanes.transpose(0, 2, 1).reshape(-1, lanes.shape[1])[: self.size])


def fit_lanes(data, units, *, order, rng, damping, max_iter, tol, n_threads, callback):
    """Sequential EP on a batch (B, N, 1). Returns (state, status (B,), n_iter (B,), trace)."""
    with Threads(n_threads) as threads:
        sweeper = LaneSweeper(data, units, order, rng, damping, threads)
        outcome = iterate(
            sweeper.step, sweeper.size, max_iter=max_iter, tol=tol, patience=PATIENCE / damping, callback=callback
        )
        status, newton = outcome.status, {}
        for b in np.flatnonzero(status == STUCK):
            single = sweeper.problem(b)
            status[b], newton[b] = double_loop(single, tol)
            sweeper.replace(b, single.state)
        largest = np.maximum(sweeper.site_rho.max(axis=1), 0.0)
        tight = sweeper.rho - largest <= cavities.LOST * np.abs(sweeper.rho)
        for b in np.flatnonzero(tight.ravel()[: sweeper.size]):
            single = sweeper.problem(b)
            if single.settle() and status[b] == CONVERGED:
                status[b] = STUCK
            sweeper.replace(b, single.state)
        state = sweeper.state()
    improper = np.array(sweeper.improper).reshape(-1, sweeper.size)
    return state, status, *_trace_of_batch(outcome.n_iter, outcome.changes, improper, newton)


def _trace_of_batch(n_sweeps, changes, improper, newton):
    """Return n_iter (B,) and the trace, whose columns hold each problem's sweeps and then its Newton steps."""
    steps = np.array([len(newton.get(b, ())) for b in range(n_sweeps.size)])
    n_iter = n_sweeps + steps
    trace = {
        name: np.zeros((n_iter.max(), n_iter.size), dtype=old.dtype)
        for name, old in (("change", changes), ("improper", improper))
    }
    trace["change"][: len(changes)], trace["improper"][: len(improper)] = changes, improper
    for b, column in newton.items():
        trace["change"][n_sweeps[b] : n_iter[b], b] = column
    return n_iter, trace | {"double_loop": steps}
