"""EP's double loop: where sweeps do not settle, its free energy is minimised over the moments of q.

The natural gradient of the free energy F (`free_energy`) at a belief points to the belief of the sites its moments
imply: with their sums (h, g) and those of the belief, (h0, g0), the slope of F along (h, g) - (h0, g0) is minus the
square of the length of that step in the Fisher metric of the belief. The fixed-point iteration on that map is
accelerated by Anderson's method; a step that does not lower the free energy is replaced by one along the gradient, as
short as it takes. So every step lowers it, and its stationary points with proper cavities are EP's fixed points [HZ]_
[OW]_.

References
----------
.. [HZ] Tom Heskes and Onno Zoeter, "Expectation propagation for approximate inference in dynamic Bayesian networks",
   2002.
.. [OW] Manfred Opper and Ole Winther, "Expectation consistent approximate inference", JMLR 6, 2005.
"""

from dataclasses import dataclass
from functools import partial

import numpy as np

from cavity.base.loop import CONVERGED, MAX_ITER, STOPPED
from cavity.ep.free_energy import SUFFICIENT_DECREASE

START_PRECISION_FACTORS = (
    1.0,
    10.0,
    100.0,
    1e4,
)  # times the precision reached, from which the double loop starts until one succeeds
STEPS_PER_SWEEP = 3  # steps of the double loop, from all starts together, for each sweep that max_iter allows
MAX_STEPS_WITHOUT_PROGRESS = 60  # steps, F not seen to fall, without halving the change after which a start is given up
MAX_EXTRAPOLATED_STEPS = 8  # steps that the double loop extrapolates from
MIN_SINGULAR_VALUE_RATIO = 1e-10  # singular values, over the largest, of the steps that an extrapolation uses
ROUNDING_SLOPE_RATIO = (
    1e-11  # slopes over F below which the decrease, of second order in the change, drowns in rounding ...
)
MAX_ROUNDING_RISE = 1e-9  # ... of that size at most
MIN_STEP = 1e-8  # steps along the gradient that are tried
NO_FIXED_POINT = "no fixed point with proper cavities found"
NO_PROGRESS = "the double loop makes no progress: data and model contradict each other, or their scales are far apart"
SITES_LOST_DIGITS = (
    "the sites lost their digits to rounding, as the scales of data, likelihood and prior are too far apart; rescale "
    "the columns of X or use a narrower prior"
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
    """A descent of the free energy. It starts from sites, and ends in `belief`, `tau`, `rho` and its `changes`.

    It takes at most `max_iter` steps from all its starts together. `energy(belief, cavities)` gives F, the sites that
    the moments imply, and the cavities they leave; the cavities it gets are nearby ones, or None.
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
        for factor in START_PRECISION_FACTORS:
            status = self.descend(self.geometry.sharpened(start, factor), job.substage(f"double loop {factor:g}"))
            if status not in (NO_FIXED_POINT, NO_PROGRESS):
                return status
            failed = NO_PROGRESS if status == NO_PROGRESS else failed  # which says why
        return failed

    def descend(self, belief, job):
        """Go downhill from a belief, appending to the changes; return the status."""
        here = self._point(belief, None)
        if here is None or not np.isfinite(here.value):
            return NO_FIXED_POINT
        history, length, best, waited = Extrapolation(self.geometry), 1.0, np.inf, 0
        state = job.restore(here)
        if state is not None:
            here, length, best, waited = (state[name] for name in ("here", "length", "best", "waited"))
            self.changes, history.last, history.pairs = state["changes"].tolist(), state["last"], state["pairs"]
        while len(self.changes) < self.max_iter:
            self.belief, self.tau, self.rho = here.belief, here.tau, here.rho
            h, g = self.geometry.gather(here.tau, here.rho)
            target, slope = self._towards(here, h, g)
            change = self.changes[-1]
            if change <= self.tol:
                return self._arrive(target)
            best, waited = (change, 0) if change < 0.5 * best else (best, waited + is_below_rounding(here.value, slope))
            if waited >= MAX_STEPS_WITHOUT_PROGRESS:
                return NO_PROGRESS
            moved = self._extrapolate(here, history, h, g, slope)
            if moved is None:
                moved, length = self._line_search(here, h, g, slope, min(1.0, 2.0 * length))
            if moved is None:
                return SITES_LOST_DIGITS  # F must fall along its gradient: all but rounding
            here = moved
            job.store(partial(self._kept, here, history, {"length": length, "best": best, "waited": waited}))
            if job.report(len(self.changes), change=change, rows=len(here.tau)):
                self.belief, self.tau, self.rho = here.belief, here.tau, here.rho
                return STOPPED
        return MAX_ITER

    def _kept(self, here, history, counters):
        """What the descent goes on with."""
        state = counters | {"here": here, "changes": np.array(self.changes)}
        return state | {"last": history.last, "pairs": list(history.pairs)}

    def _point(self, belief, start):
        """The EnergyPoint of a belief, None if it is not proper; `start` are cavities nearby."""
        return None if belief is None else EnergyPoint(belief, *self.energy(belief, start))

    def _towards(self, here, h, g):
        """The belief of the implied sites (None if it is not proper), and the slope of -F on the way there."""
        target = self.geometry.belief(h, g)
        slope = self.geometry.slope(here.belief, h - here.belief.h, g - here.belief.g)
        self.changes.append(target.change_from(here.belief) if target is not None else np.sqrt(slope))
        return target, slope

    def _arrive(self, target):
        """End in the belief of the implied sites; return the status."""
        if target is None:  # of sites that are those of this belief, which is proper: all but rounding
            return SITES_LOST_DIGITS
        self.belief = target
        return CONVERGED

    def _extrapolate(self, here, history, h, g, slope):
        """The point that the history proposes, if F accepts it."""
        proposal = history.propose(here.belief, h, g)
        moved = None if proposal is None else self._point(self.geometry.belief(*proposal), here.cavities)
        if moved is None or is_accepted(here.value, moved.value, min(slope, 1.0), slope, MAX_ROUNDING_RISE):
            return moved
        history.forget()
        return None

    def _line_search(self, here, h, g, slope, length):
        """The first point on the way to (h, g) that F accepts, in steps halved from `length` on, and its step."""
        start = here.belief
        while length >= MIN_STEP:
            belief = self.geometry.belief(start.h + length * (h - start.h), start.g + length * (g - start.g))
            moved = self._point(belief, here.cavities)
            if moved is not None and is_accepted(here.value, moved.value, length * slope, slope, np.inf):
                return moved, length
            length *= 0.5
        return None, length


def is_accepted(old, new, promised, slope, rise):
    """Whether F falls by enough of what was promised; where the slope drowns in rounding it may rise by `rise`."""
    return new < old - SUFFICIENT_DECREASE * promised or (is_below_rounding(old, slope) and new < old + rise)


def is_below_rounding(value, slope):
    """Whether the decrease of F along a slope drowns in the rounding of its value."""
    return slope < ROUNDING_SLOPE_RATIO * max(1.0, abs(value))


class Extrapolation:
    """Anderson's method for the map from a belief to that of its implied sites, in the Fisher metric of the belief."""

    def __init__(self, geometry):
        self.geometry = geometry
        self.forget()

    def forget(self):
        """Start anew."""
        self.last, self.pairs = None, []

    def propose(self, belief, h, g):
        """Sums (h, g) from which to go on, or None for want of history; h, g are those of the implied sites."""
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
        gamma = np.linalg.lstsq(columns, self.geometry.coordinates(belief, *residual), rcond=MIN_SINGULAR_VALUE_RATIO)[
            0
        ]
        h, g = point[0] + residual[0], point[1] + residual[1]
        for weight, (x, r) in zip(gamma, self.pairs, strict=True):
            h, g = h - weight * (x[0] + r[0]), g - weight * (x[1] + r[1])
        return h, g
