"""Moments of many distributions whose densities are near those of Gaussians, at few nodes, and whether they are exact.

The trapezoidal rule integrates smooth functions that fall as fast as a Gaussian to all digits at some 40 nodes. EP's
passes match sites with it where log p is all that is known of a likelihood.
"""

import numpy as np

SPAN = 7.6  # half-width of the rules of few nodes, in sd
TAIL = 1e-11  # share of the mass about an end of their range up to which they hold
UNRESOLVED = 1e-9  # share of the highest frequencies up to which they hold
FALLEN, FALL = 1e-6, 0.2  # that share where it has fallen to this part of that at a frequency a sixth lower
HALF_LOG_TAU = 0.5 * np.log(2.0 * np.pi)


class Rule:
    """The trapezoidal rule over SPAN sd of a Gaussian, which tells from the spectrum of the integrand if it is exact.

    With spacing h its error is the spectrum at frequency 2 pi/h and above; the nodes show it up to pi/h. Where that has
    come down to UNRESOLVED, the rest is below that. Where it falls as those of smooth functions do, by factors, a share
    of FALLEN leaves an error of about its square. Kinks and jumps fall by powers only, and show wherever they lie
    between the nodes, as sine and cosine do not vanish together.
    """

    def __init__(self, count, fallen):
        nodes, self.step = np.linspace(-SPAN, SPAN, count, retstep=True)
        waves = np.pi / self.step * np.array([0.75, 0.9, 1.0]) * (nodes[:, None] - nodes[0])
        self.nodes, self.fallen, self.bound = nodes, fallen, 1.0 + nodes**2
        shown = self.bound[:, None] * np.column_stack([np.cos(waves), np.sin(waves[:, :2])])  # of all moments at once
        self.columns = np.column_stack([np.ones(count), nodes, nodes**2 - 1.0, shown])

    def __call__(self, log_h):
        """Return (log of the integral, mean, variance - 1), which of them are good, and h over the sum of its values.

        All in sd, of functions (n, count) exp(log_h)/sqrt(2 pi).
        """
        top = np.max(log_h, axis=1)
        h = np.exp(log_h - top[:, None])
        total, first, second, *shown = (h @ self.columns).T
        cos_low, cos_high, highest, sin_low, sin_high = np.array(shown) / total
        low, high = np.hypot(cos_low, sin_low), np.maximum(np.hypot(cos_high, sin_high), np.abs(highest))
        good = (high <= UNRESOLVED) | ((high <= self.fallen) & (high <= FALL * low))
        good &= np.maximum(h[:, 0], h[:, -1]) * self.bound[0] <= TAIL * total
        mean = first / total
        moments = np.log(self.step * total) + (top - HALF_LOG_TAU), mean, second / total - mean * mean
        return moments, good, h / total[:, None]


COARSE, FINE = Rule(43, 0.0), Rule(63, FALLEN)  # nodes enough where a cavity hardly changes, and where it does
