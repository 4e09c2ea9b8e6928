"""The geometry of chains in time: sites on f = base + g, g a sum of Matern processes over one column, linear in N.

The rows may come in any order; equal times are rows with no step between them. The states, the filter and the smoother
are in the kernel `chain`, whose states of a sum have g in place of the value of the first process. Beliefs are those of
function values (`latent.LatentBelief`), and so are the sums (h, g) of the engine: rho and tau - rho base, (N,) each.
"""

from functools import cached_property

import numpy as np

from cavity import _core
from cavity.ep.geometry import ROW_GROUPS, DifferenceGeometry
from cavity.ep.latent import LatentBelief
from cavity.runs.executors import split_range

_kernel = _core.best("chain")

MAX_STATES = _kernel.max_states  # of all processes of a sum together
MATCHED_ROWS = 8192  # rows whose sites are matched together
FAR_STEP = 750.0  # lam dt from which exp(-2 lam dt) is zero


def find_transitions(blocks, gaps):
    """Return the transitions A (n, S, S) of all states over gaps (n,)."""
    out, first = np.zeros((len(gaps), *[int(np.sum(blocks[:, 0]))] * 2)), 0
    for states, rate, _ in blocks:
        d, zero = np.minimum(rate * gaps, FAR_STEP), np.zeros(len(gaps))
        one = zero + 1.0
        entries = {
            1: [[one]],
            2: [[one + d, d], [-d, one - d]],
            3: [
                [one + d + d**2 / 2, d + d**2, d**2 / 2],
                [-(d**2) / 2, one + d - d**2, d - d**2 / 2],
                [d**2 / 2 - d, d**2 - 3 * d, one - 2 * d + d**2 / 2],
            ],
        }[int(states)]
        block = slice(first, first + int(states))
        out[:, block, block] = np.moveaxis(np.array(entries), 2, 0) * np.exp(-d)[:, None, None]
        first += int(states)
    return out


def find_firsts(blocks):
    """Return the places of the values of the processes among all states, (B,)."""
    sizes = blocks[:, 0].astype(np.intp)
    return np.cumsum(sizes) - sizes


def find_sum(blocks):
    """Return T (S, S), which puts the sum of the processes in place of the value of the first, and its inverse."""
    out = np.eye(int(np.sum(blocks[:, 0])))
    inverse, others = out.copy(), find_firsts(blocks)[1:]
    out[0, others], inverse[0, others] = 1.0, -1.0
    return out, inverse


def unpack(packed, p):
    """Return symmetric matrices (n, p, p) of moments (n, p + p (p + 1)/2), a mean and a lower triangle each."""
    out = np.empty((len(packed), p, p))
    i, j = np.tril_indices(p)
    out[:, i, j] = out[:, j, i] = packed[:, p:]
    return out


class Times:
    """Times in order: `order` (N,) are the rows in it, None if they are, and `gaps` (N,) the steps before each."""

    def __init__(self, times):
        order = np.argsort(times, kind="stable")
        self.order = None if np.array_equal(order, np.arange(len(times))) else order
        self.sorted = self.take(times)
        with np.errstate(over="ignore"):
            self.gaps = np.minimum(np.diff(self.sorted, prepend=self.sorted[0]), np.finfo(float).max)
        self.gaps[0] = np.inf

    def take(self, values):
        """Return values of the rows in the order of time."""
        return np.ascontiguousarray(values) if self.order is None else values[self.order]

    def put(self, values):
        """Return values in the order of time in the order of the rows."""
        if self.order is None:
            return values
        out = np.empty_like(values)
        out[self.order] = values
        return out


class ChainFilter:
    """Moments of the states given the sites up to each time; `proper` says whether the posterior of all is.

    Parameters
    ----------
    blocks : ndarray (B, 3)
        Of each process the number of states, smoothness + 1/2; lam = sqrt(2 smoothness)/lengthscale; and the variance.
    times : Times
        Of the rows.
    h, g : ndarray (N,)
        Sites in the order of time: rho, and tau - rho base.
    white : bool, default False
        Whether to keep the standardised residuals of the filter, `white` (N,).
    """

    def __init__(self, blocks, times, h, g, *, white=False):
        self.blocks, self.times, self.h, self.g = blocks, times, h, g
        p = int(np.sum(blocks[:, 0]))
        self.moments = np.empty((len(h), p + p * (p + 1) // 2))
        self.white = np.empty(len(h)) if white else None
        self.log_determinant, self.square, self.proper = _kernel.filter_rows(*self._sites, self.moments, self.white)

    @property
    def _sites(self):
        return self.blocks, self.times.gaps, self.h, self.g

    def smooth(self, *, slopes=False, gradient=False):
        """Return the `ChainSmoother`, with what the arguments name."""
        n = len(self.h)
        values = [np.empty(n) for _ in range(4)]
        slopes = np.empty(self.moments.shape) if slopes else None
        gradient = np.empty((len(self.blocks), 2)) if gradient else None
        _kernel.smooth_rows(*self._sites, self.moments, *values, slopes, gradient)
        return ChainSmoother(self, *values, slopes, gradient)

    def predict(self, times, slopes=None):
        """Return the means and variances (n,) of g at times (n,): given the sites up to each, or with slopes all."""
        sorted_times, after = self.times.sorted, self.count_until(times)
        before, ahead = np.full(len(times), np.inf), np.full(len(times), np.inf)
        has_before, has_after = after > 0, after < len(sorted_times)
        with np.errstate(over="ignore"):
            before[has_before] = times[has_before] - sorted_times[after[has_before] - 1]
            ahead[has_after] = sorted_times[after[has_after]] - times[has_after]
        moments = np.empty(len(times)), np.empty(len(times))
        _kernel.interpolate(self.blocks, self.times.gaps, self.moments, slopes, after, before, ahead, *moments)
        return moments

    def count_until(self, times):
        """Return how many rows have a time up to each of some, (n,)."""
        return np.searchsorted(self.times.sorted, times, side="right")

    def carry(self, start, stop):
        """Return the product of (I - k h')A of rows start to stop, later ones on the left, k = rho P h."""
        to_sum, from_sum = find_sum(self.blocks)
        out, p = np.eye(len(to_sum)), len(to_sum)
        for first in range(start, stop, MATCHED_ROWS):
            part = slice(first, min(first + MATCHED_ROWS, stop))
            A = to_sum @ find_transitions(self.blocks, self.times.gaps[part]) @ from_sum
            gains = self.h[part, None] * unpack(self.moments[part], p)[:, :, 0]
            steps = A - gains[:, :, None] * A[:, None, 0]
            while len(steps) > 1:
                even = len(steps) // 2 * 2
                steps = np.concatenate([steps[1:even:2] @ steps[:even:2], steps[even:]])
            out = steps[0] @ out
        return out

    @cached_property
    def proper_until(self):
        """Whether the posterior given the first 0, 1, ..., N sites is proper, (N + 1,).

        That is where R^-1 + K of these rows has as many negative pivots as R, see the kernel.
        """
        gaps, mean, variance = self.times.gaps, np.empty(len(self.h)), np.empty(len(self.h))  # of g given rows before
        _kernel.interpolate(self.blocks, gaps, self.moments, None, np.arange(len(gaps)), gaps, gaps, mean, variance)
        misfits = np.where(1.0 + self.h * variance < 0.0, np.sign(self.h), 0.0)
        return np.append(True, np.cumsum(misfits) == 0.0)


class ChainSmoother:
    """Moments of f given all sites: `mean`, `variance`, `alpha`, `curvature` (N,) in the order of time.

    `curvature` is the diagonal of (I + R K)^-1 R; `slopes` are what `predict` needs; `gradient` (B, 2) has derivatives
    of the log evidence in the log variance and the log lengthscale of each process.
    """

    def __init__(self, filtered, mean, variance, alpha, curvature, slopes, gradient):
        self.filtered, self.mean, self.variance, self.alpha = filtered, mean, variance, alpha
        self.curvature, self.slopes, self.gradient = curvature, slopes, gradient

    def predict(self, times):
        """Return the means and variances (n,) of g at times (n,)."""
        return self.filtered.predict(times, self.slopes)

    def find_covariance(self, rows):
        """Return the covariance (n, n) of g at rows (n,) without sites, numbers in the order of time.

        That of the states at i and a later j is P_i L'(I - G_j P_j), with P of the filter, L from `carry` of the rows
        after i up to j, and G of the smoother: P. de Jong, The diffuse Kalman filter, Annals of Statistics 19, 1991.
        """
        p = int(np.sum(self.filtered.blocks[:, 0]))
        spreads = unpack(self.filtered.moments[rows], p)[:, :, 0]  # P h
        ends = -np.einsum("nij,nj->ni", unpack(self.slopes[rows], p), spreads)
        ends[:, 0] += 1.0
        out, carried = np.empty((len(rows), len(rows))), spreads.T.copy()
        for j in range(len(rows)):
            if j:
                carried[:, :j] = self.filtered.carry(rows[j - 1] + 1, rows[j] + 1) @ carried[:, :j]
            out[j, : j + 1] = out[: j + 1, j] = ends[j] @ carried[:, : j + 1]
        return out


class Chain(DifferenceGeometry):
    """Function values of a sum of Matern processes over one column; see the head of the file."""

    parallel_only = True

    def __init__(self, blocks, times, base, threads):
        self.blocks, self.times, self.base, self.threads = blocks, times, base, threads
        self.n_rows, self.block = len(base), MATCHED_ROWS
        self.groups = split_range(self.n_rows, ROW_GROUPS, MATCHED_ROWS)
        self.prior_variance = float(np.sum(blocks[:, 2]))

    def first(self, sites, options):
        """No sites: the first ones are found from the prior."""
        return None

    def prior(self):
        """The prior as a LatentBelief."""
        zero = np.zeros(self.n_rows)
        return LatentBelief(zero, zero, zero, np.full(self.n_rows, self.prior_variance), zero, 0.0)

    def filter(self, h, g, **options):
        """Return the `ChainFilter` of sites (h, g) of the rows."""
        return ChainFilter(self.blocks, self.times, self.times.take(h), self.times.take(g), **options)

    def belief(self, h, g):
        """The posterior whose sites are (h, g), or None if it is not proper."""
        if not (np.all(np.isfinite(h)) and np.all(np.isfinite(g))):
            return None
        filtered = self.filter(h, g)
        if not filtered.proper:
            return None
        smoother = filtered.smooth()
        if not (np.all(np.isfinite(smoother.mean)) and np.all(smoother.variance > 0)):
            return None
        values = map(self.times.put, (smoother.mean, smoother.variance, smoother.alpha))
        return LatentBelief(h, g, *values, filtered.log_determinant)

    def sharpen(self, belief, factor):
        """A belief of the same mean with `factor` times the precision of its sites, and some for sites without."""
        h = factor * belief.h + (factor - 1.0) / self.prior_variance
        return self.belief(h, belief.alpha + h * belief.mean)

    def coordinates(self, belief, h, g):
        """A change of sums in units of the marginals of f: the Fisher metric if these were independent.

        `slope` has what must be exact.
        """
        scaled = np.sqrt(0.5) * h * belief.variance
        return np.append(scaled, (g - h * belief.mean) * np.sqrt(belief.variance))

    def pair_moments(self, up, down, step, h, g):
        """Natural parameters (g, -h/2) times the derivative of the moments (E f, E f^2)."""
        by_mean = (up.mean - down.mean) @ (g - h * 0.5 * (up.mean + down.mean))
        by_variance = 0.5 * h @ (down.variance - up.variance)
        return (by_mean + by_variance) / (2.0 * step)

    # ------------------------------------------------------------------------------------------ blocks of rows

    def values(self, belief, part, _):
        """The means and variances of f of a block."""
        return self.base[part] + belief.mean[part], belief.variance[part]

    def sum_rows(self, h, g):
        """The sums of the engine, which are (h, g) of the rows as they are."""
        return h, g
