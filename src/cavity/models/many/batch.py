"""EP for a batch of responses of one design, and what each of them learns, in one iteration.

A sweep renews all sites of a response from one belief and finds the belief of the new sites; where the last sweep moved
the belief far less than the last step moved the free numbers, it takes a step in these, too. At a fixed point of EP the
sites count as constants in the slopes of the log evidence [M]_, which is stationary where sites and free numbers rest.
In a free number t of the likelihood the slope is that of

    Q(t) = sum_i log Z_i(t)/f_i,     Z_i the normalisers at constant cavities, f_i the fractions of the sites,      (1)

by differences. In the log t of a factor on the prior variances v of some weights w with the posterior N(m, V),

    dQ/dt = (sum_j (m_j^2 + V_jj)/v_j - n)/2,     d2Q/dt2 = m~' V~ m~ + |V~|^2/2 - dQ/dt - n/2,                     (2)

m~ and V~ those of the weights in units of the prior sd: the derivatives of the evidence of a Gaussian model whose
observations are the sites. Steps are Newton's, with the curvature of the last step where that is about the one of (1)
or (2), which leaves out that sites move with t. Responses leave the iteration one by one; what it cannot solve is left
to a fit alone.

References
----------
.. [M] Thomas Minka, "A family of algorithms for approximate Bayesian inference", PhD thesis, MIT, 2001.
"""

from dataclasses import dataclass, fields, replace

import numpy as np

from cavity.base.scales import LOGIT_SCALE
from cavity.ep.damping import PARALLEL_PATIENCE, BatchDamping
from cavity.ep.evidence import evaluate_sites
from cavity.ep.site_updates import find_cavities
from cavity.likelihoods.parameters import PARAMETER_RANGE, SHORT_DIFFERENCE_STEP
from cavity.models.many.beliefs import BatchBelief, find_beliefs
from cavity.models.many.site_batch import SiteBatch
from cavity.priors.densities import LogNormal, evaluate_log_density

MAX_NEWTON_STEP = 2.0  # of a log or a logit: farther away the curvature is another one
NEAR_STEP = 0.3  # of a log or a logit, over which curvatures hold
MAX_CURVATURE_RATIO = 4.0  # of the curvature along the last step to that at constant sites, or the other way round
CHANGE_PER_STEP = 0.2  # of the belief in a sweep, in sd, per unit of the last step: then the slope is worth a step
TOLERANCE_SHARE, MIN_TOLERANCE = 0.05, 1e-13  # of the stopping rule: what is kept is the belief before the last sweep
CONVERGED_SLOPE, SLOPE_ROUNDING = 1e-9, 3e-12  # nats per unit of a free number: at rest, and for each row


@dataclass(slots=True, eq=False)
class BatchState:
    """The responses that still move, A of them along the first axis of all arrays."""

    number: np.ndarray  # (A,): in the batch
    base: np.ndarray  # (A, N)
    scale: np.ndarray  # (A, M): prior sd in whitened coordinates
    tau: np.ndarray  # (A, N)
    rho: np.ndarray  # (A, N)
    free: np.ndarray  # (A, k): free numbers of the likelihood, then logs of factors on variances
    free_before: np.ndarray  # (A, k): before the last step
    tau_before: np.ndarray  # (A, N): the sites there
    rho_before: np.ndarray  # (A, N)
    slope: np.ndarray  # (A, k): there
    curvature: np.ndarray  # (A, k, k): see `_update_curvature`
    step: np.ndarray  # (A,): the length of the last step
    change: np.ndarray  # (A,): of the belief in the last sweep
    damping: BatchDamping
    encoded: tuple  # what kernels read of the sites
    belief: BatchBelief

    def take(self, index):
        """Return the state of some responses, by a mask or numbers."""
        if index.dtype == bool and index.all():
            return self
        return replace(self, **{f.name: _take(getattr(self, f.name), index) for f in fields(self)})


def find_converged_slope(features):
    """Return the slope of the log evidence that counts as none: that of sums over many rows is not exact."""
    return max(CONVERGED_SLOPE, SLOPE_ROUNDING * len(features))


def find_held(free, slope, low, high):
    """Return which free numbers are at an end of their range beyond which the log evidence rises, (A, k)."""
    return ((free <= low) & (slope < 0)) | ((free >= high) & (slope > 0))


def _take(value, index):
    if isinstance(value, np.ndarray):
        return value[index]
    if isinstance(value, tuple):
        return tuple(part[index] for part in value)
    if isinstance(value, BatchBelief):
        return BatchBelief(*(getattr(value, f.name)[index] for f in fields(value)))
    part = BatchDamping(value.largest, value.patience, 0)
    part.restore({name: array[index] for name, array in value.checkpoint_state().items()})
    return part


def _update_curvature(state, slope, at_constant_sites):
    """Return curvatures (A, k, k), negative definite, from slopes here and before the last step.

    They are those of the last step, or at constant sites after a long one, made to give the change of the slope along
    the step (BFGS) where that is about what the latter give, and these alone elsewhere. After very short steps they
    stay: changes of slopes are of sites that have not come to rest.
    """
    moved, fall = state.free - state.free_before, state.slope - slope
    length = np.max(np.abs(moved), axis=1)
    fresh = np.where(at_constant_sites < 0, -at_constant_sites, np.maximum(np.abs(slope), np.finfo(float).tiny))
    start = fresh[:, :, None] * np.eye(moved.shape[1])
    is_near = (length <= NEAR_STEP)[:, None, None]
    bends = np.where(is_near, -state.curvature, start)
    along = np.matmul(bends, moved[:, :, None])[:, :, 0]
    with np.errstate(divide="ignore", invalid="ignore"):
        inner = np.sum(moved * fall, axis=1)
        ratio = inner / np.sum(moved * moved * fresh, axis=1)
        gain = fall[:, :, None] * fall[:, None, :] / inner[:, None, None]
        loss = along[:, :, None] * along[:, None, :] / np.sum(moved * along, axis=1)[:, None, None]
        updated = bends + gain - loss
    is_close = (ratio > 1.0 / MAX_CURVATURE_RATIO) & (ratio < MAX_CURVATURE_RATIO)
    is_rounding = (length < SHORT_DIFFERENCE_STEP) & np.all(np.diagonal(state.curvature, axis1=1, axis2=2) < 0, axis=1)
    return -np.where(is_rounding[:, None, None], bends, np.where(is_close[:, None, None], updated, start))


def _extrapolate(state, free):
    """Return the sites at other free numbers, linear in these along the last step."""
    last, step = state.free - state.free_before, free - state.free
    length = np.sum(last * last, axis=1)
    share = np.clip(np.sum(last * step, axis=1) / np.where(length > 0, length, 1.0), -1.0, 1.0)[:, None]
    return (now + share * (now - old) for now, old in ((state.tau, state.tau_before), (state.rho, state.rho_before)))


@dataclass(frozen=True, slots=True, eq=False)
class FreePrior:
    """A prior of `cavity.priors` of a parameter, as one of the free number that stands for it."""

    number: int  # of the free number
    prior: object
    scale: str  # whose logit or log is the free number
    power: float  # or that log divided by this

    def evaluate(self, free):
        """Return the log density of free numbers (A,) but for constants, and its slope."""
        if self.scale == LOGIT_SCALE:
            value = 1.0 / (1.0 + np.exp(-free))
            density, slope = evaluate_log_density(self.prior, value)
            return density + np.log(value) + np.log1p(-value), slope + 1.0 - 2.0 * value
        density, slope = evaluate_log_density(self.prior, np.exp(self.power * free))
        return density + self.power * free, self.power * (slope + 1.0)

    def differentiate(self, free):
        """Return first and second derivatives of the log density, (A,) both."""
        ends = (self.evaluate(free + step)[1] for step in (-SHORT_DIFFERENCE_STEP, SHORT_DIFFERENCE_STEP))
        low, high = ends
        return self.evaluate(free)[1], (high - low) / (2.0 * SHORT_DIFFERENCE_STEP)


@dataclass(frozen=True, slots=True, eq=False)
class LogNormalPriors:
    """Priors N(mean, sd^2) of the free numbers of B responses, flat where sd is infinite, and `FreePrior` of some."""

    mean: np.ndarray  # (B, k)
    sd: np.ndarray  # (k,)
    others: tuple = ()

    @classmethod
    def flat(cls, count, n_free, others=()):
        """Return flat priors of so many responses, but for others."""
        return cls(np.zeros((count, n_free)), np.full(n_free, np.inf), others)

    def add_to(self, number, free, slope, curvature):
        """Return the derivatives of the log evidence of some responses with those of the log priors."""
        slope, curvature = slope - (free - self.mean[number]) / self.sd**2, curvature - np.ones(free.shape) / self.sd**2
        for prior in self.others:
            first, second = prior.differentiate(free[:, prior.number])
            slope[:, prior.number] += first
            curvature[:, prior.number] += second
        return slope, curvature

    def evaluate(self, number, free):
        """Return log priors of some responses but for constants, (A,)."""
        total = -0.5 * np.sum(((free - self.mean[number]) / self.sd) ** 2, axis=1)
        return total + sum(prior.evaluate(free[:, prior.number])[0] for prior in self.others)

    def by_name(self, names):
        """Return the priors of the first response as models have them, by their names, where they are not flat."""
        triples = zip(names, self.mean[0], self.sd, strict=False)
        return {name: LogNormal(np.exp(m), sd) for name, m, sd in triples if np.isfinite(sd)}


@dataclass(frozen=True, slots=True, eq=False)
class BatchSolution:
    """The outcome of B responses; those that are not `solved` have zeros."""

    solved: np.ndarray  # (B,)
    n_iter: np.ndarray  # (B,)
    u: np.ndarray  # (B, M)
    covariance: np.ndarray  # (B, M, M): of u
    log_evidence: np.ndarray  # (B,)
    free: np.ndarray  # (B, k)
    curvature: np.ndarray  # (B, k): of (1) and (2), with the priors
    flat_noise: np.ndarray  # (B,) of bool: the evidence has no maximum in the noise of a Gaussian


class BatchSolver:
    """The iteration of a batch.

    Parameters
    ----------
    features : ndarray (N, M)
        The whitened design.
    sites : SiteBatch
        Of B responses.
    base, scale : ndarray (B, N), (B, M)
        Prior means of f, and prior sds of the whitened weights where the logs of the factors are 0.
    groups : list of slice
        The columns of each factor on prior variances that is learnt.
    priors : LogNormalPriors
        Of the free numbers.
    run : Options
        Those of EP.
    """

    def __init__(self, features, sites: SiteBatch, base, scale, groups, priors, run):
        self.features, self.sites, self.base, self.scale = features, sites, base, scale
        self.groups, self.priors, self.run = groups, priors, run
        self.n_parameters = sites.free.size
        self.least_slope = find_converged_slope(features)
        self.tol = max(TOLERANCE_SHARE * run.tol, min(run.tol, MIN_TOLERANCE))

    def solve(self, free):
        """Iterate from free numbers (B, k); return the `BatchSolution`."""
        count, (m, k) = len(free), (self.features.shape[1], free.shape[1])
        self.bounds = free + np.log(PARAMETER_RANGE) * np.array([-1.0, 1.0])[:, None, None]
        self.solution = BatchSolution(
            np.zeros(count, dtype=bool), np.zeros(count, dtype=np.intp), np.zeros((count, m)), np.zeros((count, m, m)),
            np.zeros(count), free.copy(), np.zeros((count, k)), np.zeros(count, dtype=bool),
        )  # fmt: skip
        state = self._start(free)
        for sweep in range(1, self.run.max_iter + 1):
            state = self._sweep(state, sweep)
            if not len(state.number):
                break
        return self.solution

    def _scales(self, number, free):
        """Return prior sds with the factors of free numbers."""
        scale = self.scale[number]
        for j, group in enumerate(self.groups, self.n_parameters):
            scale[:, group] *= np.exp(0.5 * free[:, j, None])
        return scale

    def _start(self, free):
        number, n_responses = np.arange(len(free)), len(free)
        encoded = self.sites.encode(number, free[:, : self.n_parameters])
        scale = self._scales(number, free)
        tau, rho = self.sites.visit(encoded, self.features, self.base, scale)
        belief = find_beliefs(self.features, self.base, scale, tau, rho)
        damping = BatchDamping(self.run.damping, PARALLEL_PATIENCE, n_responses)
        flat = np.zeros(free.shape)
        bends = np.zeros((*free.shape, free.shape[1]))
        before = free, tau, rho, flat, bends, np.ones(n_responses), np.full(n_responses, np.inf)
        state = BatchState(number, self.base, scale, tau, rho, free, *before, damping, encoded, belief)
        return state.take(belief.proper)

    def _sweep(self, state, sweep):
        """Return the state after a sweep, without responses that have come to rest or cannot be solved."""
        belief, fraction = state.belief, self.sites.fraction
        m, v, proper = find_cavities(belief.mean, belief.variance, state.tau, state.rho, fraction)
        log_z, tau, rho = self.sites.match(state.encoded, m, v)
        share = state.damping.step[:, None]
        tau = state.tau + share * (tau / fraction - state.tau)
        rho = state.rho + share * (rho / fraction - state.rho)
        new = replace(state, tau=tau, rho=rho)
        slope = self._step(new, np.maximum(self.run.tol, CHANGE_PER_STEP * state.step), m, v, log_z)
        new.belief = find_beliefs(self.features, new.base, new.scale, new.tau, new.rho)
        new.change = new.belief.change_from(belief) / state.damping.step
        moved, steps = np.any(new.free != state.free, axis=1), state.damping.step
        state.damping.adapt(new.change)
        state.damping.step = np.where(moved, steps, state.damping.step)
        new.change[moved] = state.damping.best[moved] = np.inf  # changes begin anew under other free numbers
        is_possible = proper.all(axis=1) & new.belief.proper & np.isfinite(tau + rho + log_z).all(axis=1)
        done = is_possible & (new.change <= self.tol) & np.all(self._is_at_rest(state, slope), axis=1)
        if done.any():
            values = evaluate_sites(log_z, belief.mean, belief.variance, m, v)[done] / fraction
            total = np.sum(values, axis=1) - belief.prior_gap()[done]
            total += self.sites.constants(state.number[done], state.free[done, : self.n_parameters])
            self._keep(replace(state, curvature=new.curvature).take(done), sweep, total)
        return new.take(is_possible & ~done)

    def _step(self, new, limit, m, v, log_z):
        """Take steps in the free numbers where the last change is below a limit; return slopes, infinite elsewhere."""
        slope = np.full(new.free.shape, np.inf)
        index = np.flatnonzero(new.change <= limit)
        if not (slope.size and index.size):
            return slope
        part = new.take(index)
        derivatives = self._differentiate(part, m[index], v[index], log_z[index])
        slope[index], at_constant_sites = self.priors.add_to(part.number, part.free, *derivatives)
        moved, curvature = self._climb(part, slope[index], at_constant_sites)
        tau, rho = _extrapolate(part, moved)
        changed = {"free": moved, "free_before": part.free, "tau_before": part.tau, "rho_before": part.rho, "tau": tau}
        changed |= {"rho": rho, "slope": slope[index], "curvature": curvature}
        for name, values in (changed | {"step": np.max(np.abs(moved - part.free), axis=1)}).items():
            setattr(new, name, getattr(new, name).copy())
            getattr(new, name)[index] = values
        new.encoded, new.scale = tuple(array.copy() for array in new.encoded), new.scale.copy()
        for old, renewed in zip(
            new.encoded, self.sites.encode(part.number, moved[:, : self.n_parameters]), strict=True
        ):
            old[index] = renewed
        new.scale[index] = self._scales(part.number, moved)
        return slope

    def _climb(self, state, slope, curvature):
        """Return the free numbers after a step uphill, and the curvatures (A, k, k); at rest in all they stay."""
        low, high = self.bounds[0][state.number], self.bounds[1][state.number]
        held = find_held(state.free, slope, low, high)
        bends = _update_curvature(state, slope, curvature)
        free_bends = np.where(held[:, :, None] | held[:, None, :], 0.0, bends)
        free_bends[:, *np.diag_indices(slope.shape[1])] -= held
        step = -np.linalg.solve(free_bends, np.where(held, 0.0, slope)[:, :, None])[:, :, 0]
        is_done = np.all(self._is_at_rest(state, slope), axis=1)[:, None]
        step = np.where(is_done, 0.0, np.clip(step, -MAX_NEWTON_STEP, MAX_NEWTON_STEP))
        return np.clip(state.free + step, low, high), bends

    def _is_at_rest(self, state, slope):
        """Return which free numbers have no slope, or are at the end of their range, (A, k)."""
        low, high = self.bounds[0][state.number], self.bounds[1][state.number]
        return (np.abs(slope) <= self.least_slope) | (find_held(state.free, slope, low, high) & (slope < np.inf))

    def _differentiate(self, state, m, v, log_z):
        """Return first and second derivatives of (1) and (2) in the free numbers, (A, k) each."""
        slope, curvature = np.zeros(state.free.shape), np.zeros(state.free.shape)
        n_parameters = self.n_parameters
        total = np.sum(log_z / self.sites.fraction, axis=1)
        total += self.sites.constants(state.number, state.free[:, :n_parameters])
        for j in range(n_parameters):
            ends = []
            for step in (-SHORT_DIFFERENCE_STEP, SHORT_DIFFERENCE_STEP):
                moved = state.free[:, :n_parameters].copy()
                moved[:, j] += step
                moved_log_z = self.sites.match(self.sites.encode(state.number, moved), m, v)[0]
                constants = self.sites.constants(state.number, moved)
                ends.append(np.sum(moved_log_z / self.sites.fraction, axis=1) + constants)
            slope[:, j] = (ends[1] - ends[0]) / (2.0 * SHORT_DIFFERENCE_STEP)
            curvature[:, j] = (ends[1] - 2.0 * total + ends[0]) / SHORT_DIFFERENCE_STEP**2
        covariance = state.belief.covariance if self.groups else None
        for j, group in enumerate(self.groups, n_parameters):
            u, part = (np.ascontiguousarray(a) for a in (state.belief.u[:, group], covariance[:, group, group]))
            squares = np.sum(u * u, axis=1) + np.sum(np.diagonal(part, axis1=1, axis2=2), axis=1)
            pulled = np.matmul(part, u[:, :, None])[:, :, 0]
            slope[:, j] = 0.5 * (squares - u.shape[1])
            curvature[:, j] = np.sum(u * pulled, axis=1) + 0.5 * np.sum(part**2, axis=(1, 2)) - 0.5 * squares
        return slope, curvature

    def _keep(self, state, sweep, log_evidence):
        """Put the outcome of responses that have come to rest into the solution."""
        solution, number = self.solution, state.number
        solution.solved[number], solution.n_iter[number] = True, sweep
        solution.u[number], solution.covariance[number] = state.belief.u, state.belief.covariance
        solution.log_evidence[number], solution.free[number] = log_evidence, state.free
        solution.curvature[number] = np.diagonal(state.curvature, axis1=1, axis2=2)
