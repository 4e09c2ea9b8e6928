"""How the clutter model is fitted: working units, schedules, the double loop, the log evidence.

Everything numerical happens in working units, theta' = scale (theta - origin), see cython_core/ep/clutter.pyx.
"""

from dataclasses import replace

import numpy as np

from cavity import _core
from cavity.base.loop import CONVERGED, STUCK, iterate
from cavity.blocks.executors import Threads
from cavity.blocks.merge import merge, starts
from cavity.blocks.sources import rows
from cavity.models.clutter import cavities
from cavity.models.clutter.double_loop import minimise_free_energy, moment_change
from cavity.models.clutter.units import State, stack

_kernel = _core.best("clutter")
_double_loop = _core.load("double_loop", _core.BASELINE)

CHUNK = _kernel.chunk_rows
PATIENCE = 3  # sweeps without halving the change after which the double loop takes over; slower would outlast max_iter
DOUBLE_LOOP_ITER = 100  # Newton steps it may take; five to fifteen are typical


def visiting_order(order, rng, n):
    """Return the order of one pass over n rows: a permutation, a new random one, or None for that of the rows."""
    return rng.permutation(n) if isinstance(order, str) else order


def assimilate(data, units, order=None):
    """One ADF pass over the rows of data (N, d), in order or in the given one."""
    n, d = data.shape
    state = State(np.empty((n, d)), np.empty(n), units.prior_tau.copy(), units.prior_rho, np.empty(n))
    state.log_evidence = 0.0
    for start, stop in starts(n):
        part = slice(start, stop)
        block = rows(data, part if order is None else order[part])
        state.rho, state.log_evidence = _kernel.assimilate(
            units.model,
            block,
            units.origin,
            units.scale,
            units.centre,
            state.site_tau[part],
            state.site_rho[part],
            state.site_value[part],
            state.tau,
            state.rho,
            state.log_evidence,
        )
    mean = state.tau / state.rho
    for start, stop in starts(n):  # values at the origin become values at the posterior mean
        part = slice(start, stop)
        state.site_value[part] += state.site_tau[part] @ mean - 0.5 * state.site_rho[part] * (mean @ mean)
    if order is not None:
        for name in ("site_tau", "site_rho", "site_value"):
            by_visit = getattr(state, name)
            by_row = np.empty_like(by_visit)
            by_row[order] = by_visit
            setattr(state, name, by_row)
    return state


def assimilate_all(data, units, order, n_threads):
    """ADF on one problem (N, d) or on each of a batch (B, N, d)."""
    if data.ndim == 2:
        return assimilate(data, units, order)
    with Threads(n_threads) as threads:
        return stack(
            threads.run(lambda b: assimilate(data[b], units.problem(b), order), [(b,) for b in range(len(data))])
        )


def update(data, units, state, n_threads):
    """ADF with the posterior as the prior. Returns (state, units), the latter with that prior."""
    if data.ndim == 2:
        after = replace(units, prior_tau=state.tau, prior_rho=state.rho)
        return assimilate(data, after), after
    with Threads(n_threads) as threads:
        afters = [
            replace(units.problem(b), prior_tau=state.tau[b], prior_rho=float(state.rho[b])) for b in range(len(data))
        ]
        states = threads.run(assimilate, [(data[b], afters[b]) for b in range(len(data))])
    return stack(states), replace(units, prior_tau=state.tau, prior_rho=state.rho)


class Sweeper:
    """EP on one problem: the step that the iteration loop calls."""

    patience = PATIENCE
    power = 1.0  # of the sites that cavities lack

    def __init__(self, data, units, schedule, order, rng, damping, threads):
        n, d = data.shape
        self.data, self.units, self.schedule = data, units, schedule
        self.order, self.rng, self.damping, self.threads = order, rng, damping, threads
        self.state = State(np.zeros((n, d)), np.zeros(n), units.prior_tau.copy(), units.prior_rho)
        self.improper = []

    def step(self, active):
        """Do one sweep; return the change of the posterior's moments and whether no site was skipped, shapes (1,)."""
        state, n = self.state, self.data.shape[0]
        before = [(state.tau / state.rho, 1.0 / state.rho)]
        if self.schedule == "sequential":
            skipped = self._sequential(n)
        elif self.improper:
            skipped = self._parallel()
        else:  # from the bare prior all sites would see a flat posterior: let the first rows go first
            skipped = self._start()
            before.append((state.tau / state.rho, 1.0 / state.rho))  # to and back is a change too
            skipped += self._parallel()
        self.improper.append(skipped)
        change = max(moment_change(*old, state.tau / state.rho, 1.0 / state.rho) for old in before)
        return np.array([change / self.damping]), np.array([skipped == 0])

    def _start(self):
        """Visit the first rows, of any number of them."""
        return self._sequential(min(CHUNK, self.data.shape[0]))

    def _sequential(self, n):
        """Visit the first n sites in order; return how many were skipped."""
        state, units, total = self.state, self.units, 0
        order = visiting_order(self.order, self.rng, self.data.shape[0])
        for start, stop in starts(n):
            index = None if order is None else order[start:stop]
            part = rows(self.data, slice(start, stop) if index is None else index)
            state.rho, skipped = _kernel.sweep(
                units.model,
                part,
                units.origin,
                units.scale,
                units.centre,
                index,
                start,
                state.site_tau,
                state.site_rho,
                state.tau,
                state.rho,
                self.damping,
            )
            total += skipped
        self.refresh()
        return self.visit_lost(total)

    def visit_lost(self, skipped):
        """Visit the sites that kernels leave alone because their cavities are small differences (`cavities`).

        Takes and returns the number of sites left alone.
        """
        if not skipped:
            return 0
        state, units = self.state, self.units
        found = cavities.lost(state, units.noise)
        for i in found:
            tau, rho = cavities.exact(units, state, i)
            if rho > 0:
                site = cavities.match(units, rows(self.data, slice(i, i + 1)), tau, rho)
                state.site_tau[i] += self.damping * (site[0] - state.site_tau[i])
                state.site_rho[i] += self.damping * (site[1] - state.site_rho[i])
                skipped -= 1
        if len(found):
            self.refresh()
        return max(skipped, 0)

    def refresh(self):
        """Sum the posterior from prior and sites, so that no rounding is carried from sweep to sweep."""
        state, part = self.state, np.empty(self.data.shape[1])
        state.tau, state.rho, top = self.units.prior_tau.copy(), self.units.prior_rho, -np.inf
        for start in range(0, len(state.site_rho), CHUNK):
            chunk = slice(start, start + CHUNK)
            rho, largest = _kernel.total(state.site_tau[chunk], state.site_rho[chunk], part)
            state.tau += part
            state.rho += rho
            top = max(top, largest)
        return top

    def _parallel(self):
        """Renew all sites from one posterior; return how many were skipped."""
        state, units, d = self.state, self.units, self.data.shape[1]

        def task(start, stop):
            part = slice(start, stop)
            sums = np.empty((-(-(stop - start) // CHUNK), d + 1))
            skipped = _kernel.sweep_parallel(
                units.model,
                rows(self.data, part),
                units.origin,
                units.scale,
                units.centre,
                state.site_tau[part],
                state.site_rho[part],
                state.tau,
                state.rho,
                self.damping,
                sums,
            )
            return skipped, sums

        results = self.threads.run(task, starts(len(state.site_rho)))
        skipped = sum(result[0] for result in results)
        sums = merge(np.concatenate([result[1] for result in results]))
        state.tau, state.rho = units.prior_tau + sums[:d], units.prior_rho + sums[d]
        skipped = self.visit_lost(skipped)
        if cavities.suspects(state.rho, units.noise):
            skipped += self.settle()
        return skipped

    def settle(self):
        """Make all cavities proper if they are not; return whether that changed anything."""
        tightest, changed = self.tightest(), False
        while not tightest > 0:  # once more where rounding leaves it improper
            self.make_proper(tightest)
            tightest, changed = self.tightest(), True
        return changed

    def tightest(self):
        """Sum the posterior; return the least precision of the cavities and of the posterior itself."""
        top = max(self.refresh(), 0.0)
        tightest = self.state.rho - top
        if top > 0 and abs(tightest) <= cavities.LOST * abs(self.state.rho):
            i = int(np.argmax(self.state.site_rho))
            tightest = cavities.exact(self.units, self.state, i, self.power)[1]
        return tightest

    def make_proper(self, tightest):
        """Shrink all sites by the largest fraction f that leaves every cavity proper, less a tenth.

        The tightest cavity is that of the site with the largest precision, prior + f (total - top) > 0.
        """
        state, prior_rho = self.state, self.units.prior_rho
        fraction = 0.9 * prior_rho / (prior_rho - tightest)
        state.site_tau *= fraction
        state.site_rho *= fraction
        self.refresh()

    def rescue(self, tol):
        """Find the fixed point where the sweeps got stuck; return status and changes."""
        return double_loop(self, tol)

    def finish(self):
        """Set the site values and the log evidence."""
        finish(self.data, self.units, self.state, self.threads)


def double_loop(sweeper, tol):
    """Minimise the free energy where sweeps do not settle; returns status and the changes of its Newton steps."""
    data, units, state = sweeper.data, sweeper.units, sweeper.state
    n, d = data.shape
    # The search starts from the prior: where the sweeps have gone to may be far from any solution. The arrays of the
    # sites hold the cavities from here on.
    state.site_tau[:], state.site_rho[:] = units.prior_tau, units.prior_rho

    def moments(mean, variance):
        total, failed, gradient, hessian = 0.0, 0, np.zeros(d + 1), np.zeros((d + 1, d + 1))
        for start, stop in starts(n):
            part = slice(start, stop)
            conjugates, unsolved = _double_loop.moments(
                units.model,
                rows(data, part),
                units.origin,
                units.scale,
                units.centre,
                mean,
                variance,
                state.site_tau[part],
                state.site_rho[part],
                gradient,
                hessian,
            )
            total, failed = total + conjugates, failed + unsolved
        return np.inf if failed else total, gradient, hessian

    mean, variance, changes = minimise_free_energy(
        moments,
        units.prior_tau,
        units.prior_rho,
        n,
        max_iter=DOUBLE_LOOP_ITER,
        tol=tol,
    )
    moments(mean, variance)  # a rejected trial may have been the last to write the cavities
    np.subtract(mean / variance, state.site_tau, out=state.site_tau)
    np.subtract(1.0 / variance, state.site_rho, out=state.site_rho)
    sweeper.refresh()
    return CONVERGED if changes[-1] <= tol else STUCK, changes


def evaluate(data, units, state, threads, *, fitted=True, values_only=False):
    """Return (log_z, log odds of clutter, log site values, their chunk sums) under the cavities (or the posterior).

    With values_only the first two are scratch of the size of a block, so that memory stays that of the sites.
    """
    n, d = data.shape
    log_z, odds, value = (None, None, np.empty(n)) if values_only else (np.empty(n), np.empty(n), np.empty(n))
    sums = np.empty(-(-n // CHUNK))

    def task(start, stop):
        part = slice(start, stop)
        site_tau = state.site_tau[part] if fitted else np.zeros((stop - start, d))
        site_rho = state.site_rho[part] if fitted else np.zeros(stop - start)
        _kernel.evaluate(
            units.model,
            rows(data, part),
            units.origin,
            units.scale,
            units.centre,
            site_tau,
            site_rho,
            state.tau,
            state.rho,
            np.empty(stop - start) if values_only else log_z[part],
            np.empty(stop - start) if values_only else odds[part],
            value[part],
            sums[start // CHUNK : -(-stop // CHUNK)],
        )

    threads.run(task, starts(n))
    for i in cavities.lost(state, units.noise) if fitted else ():
        one = cavities.evaluate(units, state, rows(data, slice(i, i + 1)), i)
        if not values_only:
            log_z[i], odds[i] = one[:2]
        value[i] = one[2]
        chunk = i // CHUNK
        sums[chunk] = np.cumsum(value[chunk * CHUNK : (chunk + 1) * CHUNK])[-1]  # in the order of the rows, as ever
    return log_z, odds, value, sums


def finish(data, units, state, threads):
    """Set the site values and the log evidence of an EP fit."""
    _, _, state.site_value, sums = evaluate(data, units, state, threads, values_only=True)
    state.log_evidence = float(combine_evidence(units, state.tau, np.float64(state.rho), merge(sums)))


def densities(data, units, state, fitted):
    """Return log densities and log odds of clutter of data (N, d) or (B, N, d) in working units."""
    with Threads(1) as threads:
        if data.ndim == 2:
            return evaluate(data, units, state, threads, fitted=fitted)[:2]
        each = [
            evaluate(data[b], units.problem(b), state.problem(b), threads, fitted=fitted)[:2] for b in range(len(data))
        ]
    return tuple(np.stack(part) for part in zip(*each, strict=True))


def combine_evidence(units, tau, rho, sums):
    """log of the integral of prior times sites: their value at the posterior mean times (2 pi/rho)^(d/2).

    tau, rho and the total of the site values may carry a batch axis in front.
    """
    d = tau.shape[-1]
    shift = tau / rho[..., None] - units.prior_tau / units.prior_rho
    distance2 = np.sum(shift * shift, axis=-1)
    return sums + 0.5 * (d * np.log(units.prior_rho / rho) - units.prior_rho * distance2)


def fit_one(data, units, *, schedule, order, rng, damping, max_iter, tol, n_threads, callback, kind=Sweeper):
    """EP on one problem: sweeps, then the double loop if they do not settle. Returns (state, status, trace)."""
    with Threads(n_threads) as threads:
        sweeper = kind(data, units, schedule, order, rng, damping, threads)
        patience = sweeper.patience / damping
        outcome = iterate(sweeper.step, 1, max_iter=max_iter, tol=tol, patience=patience, callback=callback)
        status, changes, improper, newton = outcome.status[0], outcome.changes[:, 0], sweeper.improper, []
        if status == STUCK and schedule == "parallel" and len(changes) < max_iter:
            # where it has gone is no place to continue from
            sweeper = kind(data, units, "sequential", None, None, damping, threads)
            before, patience = len(changes), sweeper.patience / damping
            later = None if callback is None else lambda n_iter, change: callback(before + n_iter, change)
            outcome = iterate(sweeper.step, 1, max_iter=max_iter - before, tol=tol, patience=patience, callback=later)
            status = outcome.status[0]
            changes, improper = np.concatenate([changes, outcome.changes[:, 0]]), improper + sweeper.improper
        if status == STUCK:
            status, newton = sweeper.rescue(tol)
        if sweeper.settle() and status == CONVERGED:
            status = STUCK
        sweeper.finish()
    trace = {
        "change": np.concatenate([changes, newton]),
        "improper": np.concatenate([improper, np.zeros(len(newton), dtype=int)]).astype(int),
        "double_loop": np.array(len(newton)),
    }
    return sweeper.state, status, trace


def fit_each(data, units, *, schedule, n_threads, callback, rng, **options):
    """EP on each problem of a batch (B, N, d), problems spread over threads. Returns as fit_lanes does."""
    # a generator per problem, so that the visits do not depend on which thread is first
    rngs = [None] * len(data) if rng is None else rng.spawn(len(data))

    def task(b):
        return fit_one(
            data[b], units.problem(b), schedule=schedule, n_threads=1, callback=callback, rng=rngs[b], **options
        )

    with Threads(n_threads) as threads:
        results = threads.run(task, [(b,) for b in range(len(data))])
    states, statuses, traces = zip(*results, strict=True)
    n_iter = np.array([len(trace["change"]) for trace in traces])
    trace = {"double_loop": np.array([trace["double_loop"] for trace in traces])}
    for name in ("change", "improper"):
        trace[name] = np.zeros((n_iter.max(), len(data)), dtype=traces[0][name].dtype)
        for b, single in enumerate(traces):
            trace[name][: n_iter[b], b] = single[name]
    return stack(states), np.array(statuses, dtype=object), n_iter, trace
