"""The trapezoidal rule for moments of many densities that are nearly Gaussian, with a test of its exactness.

The rule integrates smooth functions that fall as fast as a Gaussian to all digits at some 40 nodes. EP's passes match
sites with it where a likelihood defines `log_p` only.
"""

import numpy as np

from cavity.base.constants import HALF_LOG_2PI

RULE_HALF_WIDTH_SD = 7.6  # half-width of the rules of few nodes, in sd
MAX_END_MASS = 1e-11  # share of the mass at an end of the range up to which a rule is exact
MAX_UNRESOLVED_SHARE = 1e-9  # share of the highest frequencies up to which a rule is exact, ...
# ... or MAX_DECAYING_SHARE if it is at most this part of that at a frequency a sixth lower
MAX_DECAYING_SHARE, MAX_DECAY_RATIO = 1e-6, 0.2
# of a function between the nodes, over MAX_UNRESOLVED_SHARE and the share of the highest frequencies
MAX_MISFIT_RATIO = 10.0
MAX_LOG_RATIO = 10.0  # of a function between the nodes over its maximum at the nodes: larger values are clipped


class TrapezoidalRule:
    """The trapezoidal rule over RULE_HALF_WIDTH_SD sd of a Gaussian, with a test of exactness.

    With spacing h its error is the spectrum of the integrand at frequency 2 pi/h and above; the nodes resolve it up to
    pi/h. Where it has fallen to MAX_UNRESOLVED_SHARE there, the rest is smaller. Where it falls by factors, as those of
    smooth functions do, a share of MAX_DECAYING_SHARE leaves an error of about its square. The spectra of kinks and
    jumps fall by powers only; they are seen wherever these lie between the nodes, as sine and cosine do not vanish
    together. What oscillates more than once a step is aliased to lower frequencies: it is detected at a few points
    `between`, where the sinc series through the nodes must fit.
    """

    def __init__(self, count, fallen, between):
        nodes, self.step = np.linspace(-RULE_HALF_WIDTH_SD, RULE_HALF_WIDTH_SD, count, retstep=True)
        self.points, self.count = np.append(nodes, between), count
        self.series = np.sinc((between - nodes[:, None]) / self.step)
        waves = np.pi / self.step * np.array([0.75, 0.9, 1.0]) * (nodes[:, None] - nodes[0])
        self.nodes, self.fallen, self.bound = nodes, fallen, 1.0 + nodes**2
        shown = self.bound[:, None] * np.column_stack([np.cos(waves), np.sin(waves[:, :2])])  # of all moments at once
        self.columns = np.column_stack([np.ones(count), nodes, nodes**2 - 1.0, shown])

    def __call__(self, log_h):
        """Return (log of the integral, mean, variance - 1), which of them are good, and h over the sum of its values.

        All in sd, of functions exp(log_h)/sqrt(2 pi), given at the points (n, count + between).
        """
        top = np.max(log_h[:, : self.count], axis=1)
        h = np.exp(np.minimum(log_h - top[:, None], MAX_LOG_RATIO))
        h, between = h[:, : self.count], h[:, self.count :]
        total, first, second, *shown = (h @ self.columns).T
        cos_low, cos_high, highest, sin_low, sin_high = np.array(shown) / total
        low, high = np.hypot(cos_low, sin_low), np.maximum(np.hypot(cos_high, sin_high), np.abs(highest))
        good = (high <= MAX_UNRESOLVED_SHARE) | ((high <= self.fallen) & (high <= MAX_DECAY_RATIO * low))
        good &= np.maximum(h[:, 0], h[:, -1]) * self.bound[0] <= MAX_END_MASS * total
        good &= np.max(np.abs(between - h @ self.series), axis=1) <= MAX_MISFIT_RATIO * (MAX_UNRESOLVED_SHARE + high)
        mean = first / total
        moments = np.log(self.step * total) + (top - HALF_LOG_2PI), mean, second / total - mean * mean
        return moments, good, h / total[:, None]


# to the middle, where narrow maxima may hide
NEAR_CENTRE_POINTS = np.outer([1.0, -1.0], 8.0 ** np.arange(-3, 0)).ravel()
# nodes enough where a cavity hardly changes, and where it does
COARSE_RULE = TrapezoidalRule(43, 0.0, np.append(NEAR_CENTRE_POINTS, [-1.9, 1.9]))
FINE_RULE = TrapezoidalRule(63, MAX_DECAYING_SHARE, np.array([-1.33, -0.4, 0.31, 1.04]))
