"""Expectation propagation for scalar sites on jointly Gaussian values: schedules, damping, double loop, evidence.

A geometry (`dense.Dense`) gives the means and variances of all f_i under a belief and turns sites into a belief;
`sites.Sites` holds the likelihood and the observations. This module depends on neither.

A sweep renews the sites by equations (1) to (3) of `site_updates`, all at once or one after the other. All schedules
have the same fixed points. Where sweeps do not converge, `double_loop` minimises EP's free energy, whose stationary
points these are. The log evidence is (1) of `evidence`.
"""

from functools import partial

import numpy as np

from cavity.base.loop import CONVERGED_STATUS, MAX_ITER_STATUS, STOPPED_STATUS, STUCK_STATUS, iterate
from cavity.ep.damping import PARALLEL_PATIENCE, SEQUENTIAL_PATIENCE, Damping
from cavity.ep.double_loop import SITES_LOST_DIGITS, STEPS_PER_SWEEP, DoubleLoop
from cavity.ep.evidence import assess
from cavity.ep.fit_result import FitResult
from cavity.ep.free_energy import evaluate_free_energy
from cavity.ep.geometry import step_towards
from cavity.ep.site_updates import find_cavities
from cavity.sources.scratch import ScratchVector, update_in_steps

FIRST_SWEEP_ROWS = 4096  # the rows that the parallel schedule visits one by one before its first sweep are among them
MAX_SWEEPS_WITHOUT_PROGRESS = 10  # without halving the change: then the double loop takes over
MAX_RETREAT_ROWS = 1 << 16  # up to which the sites before the last step stay in memory, to return to
MAX_SHRINKINGS, SHRINKING_FACTOR = 200, 0.7  # of sites that leave cavities improper at the end of a fit
MAX_CONVERGED_RESIDUAL = 1e-3  # of a fit with the status converged, ...
RESIDUAL_PER_TOLERANCE = 30.0  # ... or this times tol if that is more, for rough fits


class Engine:
    """One EP fit: sites, belief and the schedules that move them.

    `tau` and `rho` are arrays or `ScratchVector`s. A fit starts from sites, or from the belief of other rows without
    any.
    """

    def __init__(self, geometry, sites, options, start=None):
        self.geometry, self.sites, self.options = geometry, sites, options
        has_sites = isinstance(start, tuple)
        self.belief = geometry.belief(*geometry.gather(*start)) if has_sites else start
        self.warm = self.belief is not None
        if self.warm:
            self.tau, self.rho = map(self._copy_vector, start) if has_sites else (geometry.vector(), geometry.vector())
        else:
            self.tau, self.rho, self.belief = self._find_start()
        patience = PARALLEL_PATIENCE if options.schedule == "parallel" else SEQUENTIAL_PATIENCE
        self.damping = Damping(options.damping, patience)
        self.good = None  # the sites before the last step, if all their cavities were proper
        self.spare = None  # unused vectors that the next sites are written to
        self.improper = []
        self.sweeps = 0

    def _find_start(self):
        """Return the first sites that a geometry proposes and their belief, or none and the prior: from the prior, all
        sites at once may overshoot.
        """
        geometry = self.geometry
        first = geometry.first(self.sites, self.options) if geometry.parallel_only else None
        belief = None if first is None else geometry.belief(*geometry.gather(*first))
        if belief is not None:
            return *first, belief
        return geometry.vector(), geometry.vector(), geometry.prior()

    @property
    def descends(self):
        """Whether there is a double loop: not where its cavities would not fit into memory."""
        return not isinstance(self.tau, ScratchVector)

    def _copy_vector(self, values):
        """Return a vector of the geometry with these values."""
        copy = self.geometry.vector()
        update_in_steps(lambda _, new: new, copy, values)
        return copy

    def checkpoint_state(self):
        """Return all that decides how sweeps continue; the parallel schedule does not change old sites in place."""
        sites = self.tau, self.rho
        if self.options.schedule != "parallel":
            sites = tuple(site.copy() for site in sites)
        state = {"sites": sites, "belief": self.belief, "damping": self.damping.checkpoint_state(), "good": self.good}
        return state | {"improper": np.array(self.improper, dtype=np.intp), "sweeps": self.sweeps}

    def restore(self, state):
        """Continue from a `checkpoint_state`."""
        self.tau, self.rho = map(self._copy_vector, state["sites"])
        self.damping.restore(state["damping"])
        self.improper, self.sweeps = state["improper"].tolist(), state["sweeps"]
        self.belief, self.good = state["belief"], state["good"]

    def run_pass(self):
        """Do one sweep; return the Fit, whose evidence is nan, as the worth of the sites takes another pass."""
        before, skipped = self.belief, self._sequential() if self.options.schedule == "sequential" else self._parallel()
        self._bring_sites()
        trace = {"change": np.array([self.belief.change_from(before)]), "improper": np.array([skipped])}
        outcome = {"status": MAX_ITER_STATUS, "n_iter": 1, "trace": trace, "log_evidence": np.nan, "residual": np.nan}
        return FitResult(belief=self.belief, tau=self.tau, rho=self.rho, **outcome)

    def run(self):
        """Iterate to a fixed point; return the Fit."""
        status, changes = self._sweep_until_converged()
        self.spare = None
        steps = []
        if status == STUCK_STATUS and self.descends:
            status, steps = self._descend(changes)
        if status == CONVERGED_STATUS:
            self.belief = self.geometry.converged_belief(self.belief)
        if status != CONVERGED_STATUS or self.belief is None:
            self._make_proper()
        assessment = self._evaluate()
        self._bring_sites()
        most = max(MAX_CONVERGED_RESIDUAL, RESIDUAL_PER_TOLERANCE * self.options.tol)
        if status == CONVERGED_STATUS and not assessment["residual"] <= most:
            status = SITES_LOST_DIGITS
        changes = np.concatenate([changes, steps])
        trace = {"change": changes, "improper": np.array(self.improper), "double_loop": np.array(len(steps))}
        site_parameters = {"tau": self.tau, "rho": self.rho}
        outcome = {"status": status, "n_iter": len(changes), "trace": trace}
        return FitResult(belief=self.belief, **site_parameters, **assessment, **outcome)

    def _sweep_until_converged(self):
        """Sweep until the posterior has converged or makes no progress; return status and changes."""
        move, damping = self._parallel if self.options.schedule == "parallel" else self._sequential, self.damping

        def step(_):
            before = self.belief
            begins = self.options.schedule == "parallel" and self._begin()
            changes, skipped = self._run_passes(is_single=begins), 0
            if changes is None:
                skipped = move()
            if changes is None or begins:
                changes = [self.belief.change_from(before) / damping.step if self.belief is not before else np.inf]
            self.sweeps += len(changes)
            self.improper += [skipped] * len(changes)
            for change in changes:
                damping.adapt(change)
            return changes, [skipped == 0] * len(changes)

        outcome = iterate(step, self.options, MAX_SWEEPS_WITHOUT_PROGRESS, n_rows=self.geometry.n_rows, holder=self)
        return outcome.status[0], outcome.changes[:, 0]

    def _run_passes(self, is_single):
        """Do undamped passes in one call of the geometry; return their changes, or None.

        One pass if it is to be a single one, or there are callbacks or checkpoints, which are to see each when it is
        done.
        """
        options, schedule = self.options, self.options.schedule
        if not self.sites.compiled or self.damping.step != 1.0:
            return None
        most = 1 if is_single or options.job.has_receivers else options.max_iter - self.sweeps
        state = self.belief, self.tau, self.rho, self.damping.best
        done = self.geometry.run_passes(schedule, self.sites, *state, most, options.tol)
        if done is None:
            return None
        changes, self.belief, (self.tau, self.rho), before = done
        self.spare, self.good = None, before if schedule == "parallel" else None
        return changes

    def _descend(self, changes):
        """Minimise the free energy; return status and changes. If that fails, the better of the two beliefs stays."""
        options, most = self.options, STEPS_PER_SWEEP * self.options.max_iter
        most = most if options.double_loop is None else min(most, options.double_loop)
        energy = partial(evaluate_free_energy, self.geometry, self.sites)
        loop = DoubleLoop(self.geometry, energy, self.tau, self.rho, most, options.tol)
        status = loop.run(options.job.continued_after(len(changes)))
        if loop.belief is not None and (
            status in (CONVERGED_STATUS, STOPPED_STATUS) or self.improper[-1] or loop.changes[-1] < changes[-1]
        ):
            self.belief, self.tau, self.rho = loop.belief, loop.tau, loop.rho
        return status, loop.changes

    # ------------------------------------------------------------------------------------------ parallel

    def _begin(self):
        """Visit some rows one by one before the first sweep over all of them; return whether the fit began with it."""
        if self.sweeps or self.warm or self.geometry.parallel_only:
            return False
        self._sequential(self.geometry.choose_first_rows(self.sites, FIRST_SWEEP_ROWS))
        self.warm = True
        return True

    def _parallel(self):
        """Renew all sites from one belief; return the number of improper cavities."""
        self._begin()
        (h, g, skipped), new = self._renew_all(self.damping.step, self.damping.downward_step)  # (1) and (2)
        if skipped and self.good is not None:
            self._retreat()
            return int(skipped)
        belief, length = self.geometry.belief(h, g), 1.0
        if belief is None:
            belief, length = step_towards(self.geometry, self.belief, h, g, 0.5)
        if length < 1.0:
            new = self._transform(partial(interpolate, share=length), new, (self.tau, self.rho))
            self.damping.shorten(length)
        # the state to return to; among very many rows a single site matters little, and memory is scarce
        self.good = (self.tau, self.rho) if not skipped and self.geometry.n_rows <= MAX_RETREAT_ROWS else None
        self.spare = (self.tau, self.rho) if self.good is None else None
        (self.tau, self.rho), self.belief = new, belief
        return int(skipped)

    def _renew_all(self, up, down):
        """Return the sums of all sites renewed from the belief with how many were skipped, and the sites."""
        new, at = self.spare or (self.geometry.vector(), self.geometry.vector()), (self.tau, self.rho)
        return self.geometry.sums(renew_block, self.sites, at, self.belief, up, down, new=new)

    def _transform(self, function, sites, *others):
        """Return function(tau, ...) and function(rho, ...) of sites and others, in place of the sites."""
        for vectors in zip(sites, *others, strict=True):
            update_in_steps(function, *vectors)
        return sites

    def _copy_sites(self):
        """Return copies of the sites."""
        return self.tau.copy(), self.rho.copy()

    def _retreat(self):
        """Go half of the way back to the sites before the last step, whose cavities were all proper."""
        self.tau, self.rho = self._transform(average, self._copy_sites(), self.good)
        self.belief = self.geometry.belief(*self.geometry.gather(self.tau, self.rho))
        if self.belief is None:
            self._make_proper()
        self.damping.shorten(0.5)

    # ------------------------------------------------------------------------------------------ sequential

    def _sequential(self, part=None):
        """Renew all sites, or those of some rows, one after the other by (1) to (3); return how many were skipped.

        Geometries apply the changes (3) of a block of sites to the other values at once, which is the same schedule.
        """
        part = slice(0, self.geometry.n_rows) if part is None else part
        steps = self.damping.step, self.damping.downward_step
        self.belief, skipped, _ = self.geometry.sweep(self.sites, self.belief, part, self.tau, self.rho, *steps)
        if self.belief is None:
            self._make_proper()
        return skipped

    # ------------------------------------------------------------------------------------------ the end

    def _bring_sites(self):
        """Bring the sites here, where they are elsewhere."""

    def _make_proper(self):
        """Shrink sites that an unfinished fit left with an improper posterior or cavity until all are proper."""
        for shrinking in range(MAX_SHRINKINGS + 1):
            belief = self.geometry.belief(*self.geometry.gather(self.tau, self.rho))
            if belief is not None and self._count_improper(belief) == 0:
                self.belief = belief
                return
            sites = (self.tau, self.rho) if shrinking else self._copy_sites()
            factor = SHRINKING_FACTOR if shrinking < MAX_SHRINKINGS - 1 else 0.0
            self.tau, self.rho = self._transform(partial(np.multiply, factor), sites)

    def _count_improper(self, belief):
        return sum(self.geometry.in_groups(count_improper_cavities, self.sites, (self.tau, self.rho), belief)[0])

    def _evaluate(self):
        """Return the log evidence, leave-one-out log densities, influences and residual by their names in a FitResult.

        Where the sites are in a scratch file, densities and influences are None.
        """
        at, in_memory = (self.tau, self.rho), not isinstance(self.tau, ScratchVector)
        results, (loo, moved) = self.geometry.in_groups(assess_group, self.sites, at, self.belief, filled=in_memory)
        totals, residuals = zip(*results, strict=True)
        log_evidence = float(np.sum(totals)) - self.belief.prior_gap()  # (1) of `evidence`
        return {"log_evidence": log_evidence, "loo": loo, "influence": moved, "residual": max(residuals)}


def interpolate(new, old, share):
    """Return old + share (new - old)."""
    return old + share * (new - old)


def average(now, good):
    """Return the means of two vectors."""
    return 0.5 * (good + now)


def renew_block(group, part, x, h, g, belief, up, down):
    """Renew the sites of a block of a group from one belief and add them to the sums."""
    own = group.tau[part], group.rho[part]
    tau, rho, skipped, h, g = group.geometry.renew(group.sites, belief, part, x, *own, up, down, h, g)
    group.new[0][part], group.new[1][part] = tau, rho
    return h, g, float(skipped)


def count_improper_cavities(group, belief):
    """Return how many cavities of the blocks of a group are improper."""
    total = 0
    for part, x in group.blocks:
        moments = group.geometry.values(belief, part, x)
        fraction = group.sites.part(group.sites.fraction, part)
        total += int(np.sum(~find_cavities(*moments, group.tau[part], group.rho[part], fraction)[2]))
    return total


def assess_group(group, belief):
    """Return the sum of the terms (1) of the evidence of a group of sites and their residual.

    Leave-one-out densities and influences are written to `group.new`, where there is one.
    """
    total, residual, (loo, moved) = 0.0, 0.0, group.new
    for part, x in group.blocks:
        moments = group.geometry.values(belief, part, x)
        value, far, density, influence = assess(group.sites, part, *moments, group.tau[part], group.rho[part])
        total, residual = total + value, max(residual, far)
        if loo is not None:
            loo[part], moved[part] = density, influence
    return total, residual


def filter_rows(geometry, sites):
    """Assimilate the rows one after the other (ADF): one sequential sweep from the prior, without damping.

    Returns the belief and the sum of log normalisers.
    """
    tau, rho = geometry.vector(), geometry.vector()
    belief, _, log_z = geometry.sweep(sites, geometry.prior(), slice(0, geometry.n_rows), tau, rho, 1.0, 1.0)
    return belief, log_z
