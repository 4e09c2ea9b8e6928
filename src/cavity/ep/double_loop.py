"""EP's double loop: where sweeps do not settle, its free energy is minimised over the moments of q.

The natural gradient of the free energy (`free_energy`) at a belief points to the belief of the sites its moments imply.
The fixed-point iteration on that map is accelerated by Anderson's method; a step that does not lower the free energy is
replaced by one along the gradient, as short as it takes. So every step lowers it, and its stationary points with proper
cavities are EP's fixed points [HZ]_ [OW]_.

References
----------
.. [HZ] Tom Heskes and Onno Zoeter, "Expectation propagation for approximate inference in dynamic Bayesian networks",
   2002.
.. [OW] Manfred Opper and Ole Winther, "Expectation consistent approximate inference", JMLR 6, 2005.
"""

import numpy as np

from cavity.base.loop import CONVERGED, STOPPED

DOUBLE_LOOP_ITER = 500  # natural-gradient steps from each start; five to thirty are typical
STARTS = (1.0, 10.0, 100.0, 1e4)  # times the precision reached, from which the double loop starts until one succeeds
DEPTH = 8  # steps that the double loop extrapolates from
NO_FIXED_POINT = "no fixed point with proper cavities found"
LOST = "the sites lost their digits to rounding; rescale the columns of X or use a narrower prior"


class DoubleLoop:
    """A descent of the free energy. It starts from sites, and ends in `belief`, `tau`, `rho` and its `changes`.

    `energy(belief, cavities)` gives F, the sites that the moments imply, and the cavities they leave; those it gets
    are cavities nearby, or None.
    """

    def __init__(self, geometry, energy, belief, tau, rho, max_iter, tol):
        self.geometry, self.energy = geometry, energy
        self.belief, self.tau, self.rho = belief, tau, rho
        self.max_iter, self.tol = max_iter, tol
        self.changes = []

    def run(self, callback, n_before):
        """Descend from beliefs of growing precision until one start succeeds; return the status.

        `callback`, if there is one, is told the number of this step after `n_before` others and its change.
        """
        start = self.geometry.belief(*self.geometry.gather(self.tau, self.rho)) or self.geometry.prior()
        failed = NO_FIXED_POINT
        for factor in STARTS:
            status = self.descend(self.geometry.sharpened(start, factor), callback, n_before)
            if status not in (NO_FIXED_POINT, LOST):
                return status
            failed = LOST if status == LOST else failed  # which says why
        return failed

    def descend(self, belief, callback, n_before):
        """Go downhill from a belief, appending to the changes; return the status."""
        if belief is None:
            return NO_FIXED_POINT
        self.belief = belief
        value, tau, rho, inner = self.energy(belief, None)
        if not np.isfinite(value):
            return NO_FIXED_POINT
        history, length = Extrapolation(self.geometry), 1.0
        for _ in range(self.max_iter):
            h, g = self.geometry.gather(tau, rho)
            self.tau, self.rho = tau, rho
            target = self.geometry.belief(h, g)
            gradient = self.geometry.coordinates(self.belief, h - self.belief.h, g - self.belief.g)
            slope = float(gradient @ gradient)  # of F along the step to the target
            self.changes.append(target.change_from(self.belief) if target is not None else np.sqrt(slope))
            if self.changes[-1] <= self.tol:
                if target is None:  # of sites that are those of this belief, which is proper: all but rounding
                    return LOST
                self.belief = target
                return CONVERGED
            # the decrease of F is of second order in the change: at the end it drowns in rounding
            drowned = slope < 1e-11 * max(1.0, abs(value))
            moved, proposal = None, history.propose(self.belief, h, g)
            if proposal is not None:
                trial = self.geometry.belief(*proposal)
                if trial is not None:
                    moved = self.energy(trial, inner)
                    if not (moved[0] < value - 1e-4 * min(slope, 1.0) or (drowned and moved[0] < value + 1e-9)):
                        moved = None
                        history.forget()
            length = min(1.0, 2.0 * length)
            while moved is None:
                trial = self.geometry.belief(
                    self.belief.h + length * (h - self.belief.h), self.belief.g + length * (g - self.belief.g)
                )
                if trial is not None:
                    moved = self.energy(trial, inner)
                    if not (moved[0] < value - 1e-4 * length * slope or (drowned and np.isfinite(moved[0]))):
                        moved = None
                if moved is None:
                    length *= 0.5
                if length < 1e-10:
                    return NO_FIXED_POINT
            self.belief = trial
            value, tau, rho, inner = moved
            if callback is not None and callback(n_before + len(self.changes), self.changes[-1]):
                return STOPPED
        return NO_FIXED_POINT


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
            self.pairs = self.pairs[-DEPTH:]
        self.last = point, residual
        if not self.pairs:
            return None
        columns = np.column_stack([self.geometry.coordinates(belief, *r) for _, r in self.pairs])
        gamma = np.linalg.lstsq(columns, self.geometry.coordinates(belief, *residual), rcond=1e-10)[0]
        h, g = point[0] + residual[0], point[1] + residual[1]
        for weight, (x, r) in zip(gamma, self.pairs, strict=True):
            h, g = h - weight * (x[0] + r[0]), g - weight * (x[1] + r[1])
        return h, g
