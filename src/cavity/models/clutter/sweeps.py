"""How the clutter model is fitted: working units, schedules, the double loop, the log evidence.

Everything numerical happens in working units, theta' = scale (theta - origin), see cython_core/ep/clutter.pyx.
"""

from dataclasses import dataclass, replace

import numpy as np

from cavity import _core
from cavity.base.loop import CONVERGED, STUCK, iterate
from cavity.blocks.executors import Threads, spans
from cavity.blocks.sources import merge, rows, starts
from cavity.models.clutter import cavities
from cavity.models.clutter.double_loop import minimise_free_energy, moment_change

_kernel = _core.best("clutter")
_lane_kernel = _core.best("clutter_lanes")
_double_loop = _core.load("double_loop", _core.BASELINE)

CHUNK = _kernel.chunk_rows
LANES = _lane_kernel.lanes
PATIENCE = 3  # sweeps without halving the change after which the double loop takes over; slower would outlast max_iter
DOUBLE_LOOP_ITER = 100  # Newton steps it may take; five to fifteen are typical
SAMPLE = 64  # points whose median is the working origin: near most of the data will do
LARGEST = 1e100  # of ratios between scales: squares of squares stay in range


@dataclass(frozen=True, slots=True)
class Units:
    """A clutter model and its data in working units; origin, centre and prior_tau are (B, d) for a batch."""

    origin: np.ndarray  # (d,)
    scale: float
    model: np.ndarray  # (5,): s, 1/(2 c), log(c)/2, log(1 - w), log(w/(1 - w))
    centre: np.ndarray  # (d,): c0
    prior_tau: np.ndarray  # (d,)
    prior_rho: float  # or (B,) in a batch after update

    @property
    def log_jacobian(self):
        """Log of the density of a data point in its own units over that in working units."""
        return self.origin.shape[-1] * np.log(self.scale)

    @property
    def noise(self):
        """The noise variance s."""
        return self.model[0]

    def problem(self, b):
        """Return the units of problem b of a batch, whose origin, centre and prior_tau are (B, d)."""
        rho = self.prior_rho if np.ndim(self.prior_rho) == 0 else float(self.prior_rho[b])
        return Units(self.origin[b], self.scale, self.model, self.centre[b], self.prior_tau[b], rho)


@dataclass(slots=True)
class State:
    """Sites and posterior of one problem in working units."""

    site_tau: np.ndarray  # (N, d)
    site_rho: np.ndarray  # (N,)
    tau: np.ndarray  # (d,)
    rho: float
    site_value: np.ndarray | None = None  # (N,): log of each scaled site at the posterior mean
    log_evidence: float = np.nan  # of the data, in working units
    loo: np.ndarray | None = None  # (N,): after power EP, log densities under the posterior of the others

    def problem(self, b):
        """Return the state of problem b of a batch."""
        return State(**{name: value[b] for name, value in present(self).items()})


def working_units(data, weight, clutter_variance, noise_variance, centre, prior_mean, prior_variance):
    """Choose origin and scale for data (N, d), or an origin per problem for (B, N, d), and return the model in them."""
    n = data.shape[-2]
    sample = np.asarray(data[..., :: max(1, n // SAMPLE), :], dtype=np.float64)
    middle = (sample.shape[-2] - 1) // 2  # a point of the data: a mean of two could lie far from all of them
    ordered = np.partition(np.ascontiguousarray(np.swapaxes(sample, -1, -2)), middle, axis=-1)
    origin = np.ascontiguousarray(ordered[..., middle])
    if not 1e-290 < noise_variance < 1e290:
        raise ValueError(f"noise_variance must be between 1e-290 and 1e290, got {noise_variance!r}; rescale the data")
    scale = 2.0 ** -np.round(0.5 * np.log2(noise_variance))
    s, c, v0 = (variance * scale * scale for variance in (noise_variance, clutter_variance, prior_variance))
    centre, prior = (centre - origin) * scale, (prior_mean - origin) * scale
    for name, ratio in (("clutter_variance", c), ("prior_variance", v0)):
        if not 1 / LARGEST < ratio < LARGEST:
            raise ValueError(f"{name} must be within a factor {LARGEST:g} of noise_variance")
    for name, distance in (("x", reach(data, origin, scale)), ("clutter_mean", centre), ("prior_mean", prior)):
        if not np.max(np.abs(distance)) < LARGEST:
            raise ValueError(f"{name} must be within {LARGEST:g} noise standard deviations of the median of x")
    model = np.array([s, 0.5 / c, 0.5 * np.log(c), np.log1p(-weight), np.log(weight) - np.log1p(-weight)])
    return Units(origin, float(scale), model, centre, prior / v0, 1.0 / v0)


def reach(data, origin, scale):
    """Return the extremes of each coordinate of data (N, d) or (B, N, d) in working units."""
    return (np.stack([data.max(axis=-2), data.min(axis=-2)]).astype(np.float64) - origin) * scale


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


def present(state):
    """Return what a state holds, by name."""
    return {name: getattr(state, name) for name in State.__slots__ if getattr(state, name) is not None}


def check_reach(data, units):
    """Raise ValueError for points so far away that squares of their distance overflow."""
    if not np.max(np.abs(reach(data, units.origin, units.scale))) < LARGEST:
        raise ValueError(f"x must be within {LARGEST:g} noise standard deviations of the fitted data")


def stack(states):
    """Put the states of B problems into one with a batch axis."""
    return State(**{name: np.stack([getattr(state, name) for state in states]) for name in present(states[0])})


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
