"""EP's double loop: where sweeps do not converge, its free energy is minimised over the moments of q.

The inner loop finds the cavities of given moments (`free_energy`, equations (2) and (3)), and with them F and the sites
that the moments imply. The outer loop moves the belief. With the sums x = (h, g) of the sites of the belief and M(x) of
the implied ones, the residual r = M(x) - x is the natural gradient of F up to its sign:

    dF(x + s r)/ds = -|r|^2  at s = 0, in the Fisher metric of the belief.                                          (1)

The fixed-point iteration x <- M(x) is accelerated by Anderson's method, with the differences dx_k and dr_k of the last
points and residuals:

    x <- x + r - sum_k gamma_k (dx_k + dr_k),    gamma = argmin |r - sum_k gamma_k dr_k|^2.                         (2)

A step is accepted if it lowers F enough,

    F(new) < F(x) - c s |r|^2,    c = SUFFICIENT_DECREASE, s the length of the step;                                (3)

else it is replaced by one along r, halved until it is accepted. So F falls in every step, and its stationary points
with proper cavities are EP's fixed points [HZ]_ [OW]_.

References
----------
.. [HZ] Tom Heskes and Onno Zoeter, "Expectation propagation for approximate inference in dynamic Bayesian networks",
   2002.
.. [OW] Manfred Opper and Ole Winther, "Expectation consistent approximate inference", JMLR 6, 2005.
"""

from dataclasses import dataclass
from functools import partial

import numpy as np

from cavity.base.loop import CONVERGED_STATUS, MAX_ITER_STATUS, STOPPED_STATUS
from cavity.ep.free_energy import SUFFICIENT_DECREASE

# times the precision reached, from which the double loop starts until one succeeds
START_PRECISION_FACTORS = 1.0, 10.0, 100.0, 1e4
STEPS_PER_SWEEP = 3  # steps of the double loop, from all starts together, for each sweep that max_iter allows
MAX_STEPS_WITHOUT_PROGRESS = 60  # with a fall of F below its rounding and without halving the change
MAX_EXTRAPOLATED_STEPS = 8  # differences in (2)
MIN_SINGULAR_VALUE_RATIO = 1e-10  # of the differences in (2): smaller singular values count as zero
# slopes over F below which the decrease, of second order in the change, drowns in rounding ...
ROUNDING_SLOPE_RATIO = 1e-11
MAX_ROUNDING_RISE = 1e-9  # ... which is at most that large
MIN_STEP = 1e-8  # along the gradient
NO_FIXED_POINT = "no fixed point with proper cavities found"
NO_PROGRESS = "the double loop makes no progress: data and model contradict each other, or their scales are far apart"
SITES_LOST_DIGITS = (
    "the sites lost their digits to rounding, as the scales of data, likelihood and prior are too far apart; centre "
    "and rescale the columns of X, or use a narrower prior"
)


@dataclass(frozen=True, slots=True)
class EnergyPoint:
    """A belief, F there, and the sites and cavities that its moments imply."""

    belief: object
    value: float
    tau: np.ndarray  # (N,)
    rho: np.ndarray  # (N,)
    cavities: object


class DoubleLoop:
    """A descent of the free energy from given sites; `belief`, `tau`, `rho` and `changes` hold its result.

    It takes at most `max_iter` steps from all its starts together. `energy(belief, cavities)` returns F, the implied
    sites and their cavities; its second argument are nearby cavities, nearby sites, or None.
    """

    def __init__(self, geometry, energy, tau, rho, max_iter, tol):
        self.geometry, self.energy = geometry, energy
        self.belief, self.tau, self.rho = None, tau, rho
        self.max_iter, self.tol = max_iter, tol
        self.changes = []

    def run(self, job):
        """Descend from beliefs of growing precision until one start succeeds; return the status."""
        start = self.geometry.belief(*self.geometry.gather(self.tau, self.rho)) or self.geometry.prior()
        failed = NO_FIXED_POINT
        sites = self.tau, self.rho
        for factor in START_PRECISION_FACTORS:
            stage = job.substage(f"double loop {factor:g}")
            status = self.descend(self.geometry.sharpen(start, factor), stage, sites)
            if status not in (NO_FIXED_POINT, NO_PROGRESS):
                return status
            failed = NO_PROGRESS if status == NO_PROGRESS else failed  # the more informative status
        return failed

    def descend(self, belief, job, sites=None):
        """Go downhill from a belief, with nearby sites or None, appending to the changes; return the status."""
        point = self._evaluate(belief, sites)
        if point is None or not np.isfinite(point.value):
            return NO_FIXED_POINT
        history, length, best, waited = Extrapolation(self.geometry), 1.0, np.inf, 0
        state = job.restore(point)
        if state is not None:
            point, length, best, waited = (state[name] for name in ("here", "length", "best", "waited"))
            self.changes, history.last, history.pairs = state["changes"].tolist(), state["last"], state["pairs"]
        while len(self.changes) < self.max_iter:
            self.belief, self.tau, self.rho = point.belief, point.tau, point.rho
            h, g = self.geometry.gather(point.tau, point.rho)
            target, slope = self._find_target(point, h, g)  # (1)
            change = self.changes[-1]
            if change <= self.tol:
                return self._finish(target)
            best, waited = (
                (change, 0) if change < 0.5 * best else (best, waited + is_below_rounding(point.value, slope))
            )
            if waited >= MAX_STEPS_WITHOUT_PROGRESS:
                return NO_PROGRESS
            moved = self._extrapolate(point, history, h, g, slope)  # (2)
            if moved is None:
                moved, length = self._line_search(point, h, g, slope, min(1.0, 2.0 * length))
            if moved is None:
                return SITES_LOST_DIGITS  # without rounding F falls along its gradient
            point = moved
            counters = {"length": length, "best": best, "waited": waited}
            job.store(partial(self._checkpoint_state, point, history, counters))
            if job.report(len(self.changes), change=change, rows=len(point.tau)):
                self.belief, self.tau, self.rho = point.belief, point.tau, point.rho
                return STOPPED_STATUS
        return MAX_ITER_STATUS

    def _checkpoint_state(self, point, history, counters):
        """Return all that decides how the descent continues."""
        state = counters | {"here": point, "changes": np.array(self.changes)}
        return state | {"last": history.last, "pairs": list(history.pairs)}

    def _evaluate(self, belief, start):
        """Return the EnergyPoint of a belief, None if it is not proper; `start` are nearby cavities or sites."""
        return None if belief is None else EnergyPoint(belief, *self.energy(belief, start))

    def _find_target(self, point, h, g):
        """Return the belief of the implied sites (None if it is not proper), and the slope (1) of -F towards it."""
        target = self.geometry.belief(h, g)
        slope = self.geometry.slope(point.belief, h - point.belief.h, g - point.belief.g)
        self.changes.append(target.change_from(point.belief) if target is not None else np.sqrt(slope))
        return target, slope

    def _finish(self, target):
        """Take the belief of the implied sites as the result; return the status."""
        if target is None:  # by rounding only: the sites are those of the current belief, which is proper
            return SITES_LOST_DIGITS
        self.belief = target
        return CONVERGED_STATUS

    def _extrapolate(self, point, history, h, g, slope):
        """Return the point that the history proposes if it is accepted, else None."""
        proposal = history.propose(point.belief, h, g)
        moved = None if proposal is None else self._evaluate(self.geometry.belief(*proposal), point.cavities)
        if moved is None or is_accepted(point.value, moved.value, min(slope, 1.0), slope, MAX_ROUNDING_RISE):
            return moved
        history.forget()
        return None

    def _line_search(self, point, h, g, slope, length):
        """Return the first accepted point on the way to (h, g), halving the step from `length`, and its step."""
        start = point.belief
        while length >= MIN_STEP:
            belief = self.geometry.belief(start.h + length * (h - start.h), start.g + length * (g - start.g))
            moved = self._evaluate(belief, point.cavities)
            if moved is not None and is_accepted(point.value, moved.value, length * slope, slope, np.inf):
                return moved, length
            length *= 0.5
        return None, length


def is_accepted(old, new, promised, slope, rise):
    """Return whether F falls as (3) demands, `promised` being s |r|^2; below its rounding it may rise by `rise`."""
    return new < old - SUFFICIENT_DECREASE * promised or (is_below_rounding(old, slope) and new < old + rise)


def is_below_rounding(value, slope):
    """Return whether the decrease of F along a slope is below the rounding of its value."""
    return slope < ROUNDING_SLOPE_RATIO * max(1.0, abs(value))


class Extrapolation:
    """Anderson's method (2) for the map M, in the Fisher metric of the belief."""

    def __init__(self, geometry):
        self.geometry = geometry
        self.forget()

    def forget(self):
        """Drop all points."""
        self.last, self.pairs = None, []

    def propose(self, belief, h, g):
        """Return the next sums (h, g) by (2), or None without history; h, g are those of the implied sites."""
        point, residual = (belief.h, belief.g), (h - belief.h, g - belief.g)
        if self.last is not None:
            old_point, old_residual = self.last
            self.pairs.append(
                tuple((new[0] - old[0], new[1] - old[1]) for new, old in ((point, old_point), (residual, old_residual)))
            )
            self.pairs = self.pairs[-MAX_EXTRAPOLATED_STEPS:]
        self.last = point, residual
        if not self.pairs:
            return None
        columns = np.column_stack([self.geometry.coordinates(belief, *r) for _, r in self.pairs])
        target = self.geometry.coordinates(belief, *residual)
        gamma = np.linalg.lstsq(columns, target, rcond=MIN_SINGULAR_VALUE_RATIO)[0]
        h, g = point[0] + residual[0], point[1] + residual[1]
        for weight, (x, r) in zip(gamma, self.pairs, strict=True):
            h, g = h - weight * (x[0] + r[0]), g - weight * (x[1] + r[1])
        return h, g
