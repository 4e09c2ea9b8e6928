"""Acceleration of fixed-point iterations x -> M(x) on natural parameters, and their rate of convergence.

Lengths are measured in nats: a change d of the natural parameters that changes the expected statistics by s has the
squared length <d, s>, twice the Kullback-Leibler divergence between near distributions (the Fisher metric).

References
----------
.. [VR] Ravi Varadhan and Christophe Roland, "Simple and globally convergent methods for accelerating the convergence
   of any EM algorithm", Scandinavian Journal of Statistics 35, 2008: SQUAREM, step length (4).
.. [A] Donald G. Anderson, "Iterative procedures for nonlinear integral equations", Journal of the ACM 12, 1965.
"""

import numpy as np

from cavity import _core

_kernel = _core.best("acceleration")

MAX_DIFFERENCES = 5  # differences kept; a slow unit mixture takes as many passes with 8 as with 5, a few more with 3
MIN_INDEPENDENT_SHARE = 1e-10  # of the longest squared difference: shorter directions are no independent information
SWEEP_ROUNDING = 2e-15  # relative error of a sweep's natural parameters and statistics

ACCELERATOR_NAMES = ("anderson", "squarem")


class SweepHistory:
    """The last visited points x with their images M(x), each as natural parameters and expected statistics."""

    def __init__(self):
        self._pairs = []  # arrays (4, P): x, statistics of x, M(x), statistics of M(x)
        self._in_a_row = 0  # how many of the last points were the image of the one before
        self._products = self._step = None  # of differences of the points; computed on demand

    def checkpoint_state(self):
        """Return the points of the history."""
        return {"pairs": list(self._pairs), "in_a_row": self._in_a_row}

    def restore(self, state):
        """Continue from a `checkpoint_state`."""
        self._pairs, self._in_a_row = list(map(np.array, state["pairs"])), state["in_a_row"]
        self._products = self._step = None

    def add(self, point, image, in_a_row):
        """Add a point and its image, (natural, statistics) each, and whether the point is the last image."""
        self._pairs = [*self._pairs[-MAX_DIFFERENCES:], np.array([*point, *image])]
        self._in_a_row = self._in_a_row + 1 if in_a_row else 1
        self._products = self._step = None

    def restart(self):
        """Drop all but the last point, after an extrapolation that was not accepted."""
        self._pairs, self._products = self._pairs[-1:], None

    def change(self):
        """Return half the squared length of the last step, in nats; by how much KL says that x and M(x) differ."""
        return self._measure_step()[0]

    def noise(self):
        """Return the change that rounding alone can make."""
        return self._measure_step()[1]

    def _measure_step(self):
        if self._step is None:
            self._step = _kernel.lengths_of_step(self._pairs[-1], SWEEP_ROUNDING)
        return self._step

    def contraction(self):
        """Return the largest rate at which errors shrink in a sweep, as far as the history shows it; nan if not at all.

        These are the absolute eigenvalues of M's Jacobian restricted to the differences of the points (Ritz values),
        and the ratio of the last two steps if they came in a row: it sees slow directions next to which those are long.
        """
        if len(self._pairs) < 2:
            return np.nan
        lengths, moved, *_ = self._find_products()
        rate = _kernel.largest_rate(lengths, moved, MIN_INDEPENDENT_SHARE, 1e4 * self.noise())
        if rate < 0.0:
            raise ArithmeticError("rates of the last sweeps are beyond float64")
        return float(np.fmax(rate, self._ratio()))

    def _ratio(self):
        """Return the ratio of the lengths of the last two steps, nan if they did not come in a row or are rounding."""
        if self._in_a_row < 2 or self.change() <= 1e4 * self.noise():
            return np.nan
        x, s, gx, gs = self._pairs[-2]
        before = 0.5 * float((gx - x) @ (gs - s))
        return np.sqrt(self.change() / before) if before > 0.0 else np.nan

    def anderson(self):
        """Return Anderson's [A]_ proposal: the image at which the residuals, taken as linear, are shortest; or None."""
        if len(self._pairs) < 2:
            return None
        *_, products, right = self._find_products()
        weights = np.empty(len(right))
        count = _kernel.shortest_residual(products, right, MIN_INDEPENDENT_SHARE, weights)
        if count < 0:
            raise ArithmeticError("lengths of the last sweeps are beyond float64")
        if count == 0:
            return None
        out = np.empty(self._pairs[-1].shape[1])
        _kernel.combine(self._pairs, weights, out)
        return out

    def squarem(self):
        """Return the squared extrapolation [VR]_ of the last two points if they came in a row, else None."""
        if self._in_a_row < 2 or len(self._pairs) < 2:
            return None
        (x, s, gx, gs), (_, _, ggx, ggs) = self._pairs[-2:]
        r, r_s = gx - x, gs - s
        v, v_s = (ggx - gx) - r, (ggs - gs) - r_s
        bend = v @ v_s
        length = -0.5 * (r @ v_s + v @ r_s) / bend if bend > 0 else 0.0
        if length <= 1.0:  # no longer than the two sweeps themselves
            return None
        self._in_a_row = 0
        return x + 2 * length * r + length**2 * v

    def stretch(self, factor):
        """Return the point so many times as far from the last one as its image is."""
        x, _, gx, _ = self._pairs[-1]
        return x + factor * (gx - x)

    def _find_products(self):
        """Return the products of the differences of consecutive points, see the kernel."""
        if self._products is None:
            m = len(self._pairs) - 1
            self._products = *np.empty((3, m, m)), np.empty(m)
            _kernel.products(self._pairs, *self._products)
        return self._products
