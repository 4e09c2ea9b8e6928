"""EP's double loop: its free energy, minimised where sweeps do not settle."""

import numpy as np

DOUBLE_LOOP_ITER = 500  # natural-gradient steps from each start; five to thirty are typical
STARTS = (1.0, 10.0, 100.0, 1e4)  # times the precision reached, from which the double loop starts until one succeeds
DEPTH = 8  # steps that the double loop extrapolates from


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
