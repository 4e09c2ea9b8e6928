"""The Gaussian mixture as the mean-field engine sees it: one pass over the blocks of the data per sweep.

All is in coordinates z = (x - origin) scale, see `Frame`. q(z_n) is never stored: given the other factors it is the
softmax of E log pi_k + E log N(z_n; mu_k, 1/L_k), and a sweep needs of it N_k and the first and second moments of the
data about the component means. ELBO = sum_n w_n log sum_k exp(.) - KL(q(pi) || p(pi)) - KL(q(mu, L) || p(mu, L)).
"""

from dataclasses import dataclass

import numpy as np

from cavity import _core
from cavity.models.mixture.factors import WishartFactors
from cavity.models.mixture.state import NO_GAIN, NO_WEIGHT, Frame, State, Statistics

_kernel = _core.best("gaussian_mixture")

MOST_ROWS, LEAST_ROWS = 1 << 15, 1 << 10  # of a block
BLOCK_WORK = 1 << 20  # products of responsibilities and features per block, about half a millisecond


def block_rows(n_components, n_features, full):
    """Return the number of rows in a block, by the work they are."""
    features = 1 + n_features + (n_features * (n_features + 1) // 2 if full else n_features)
    size = MOST_ROWS
    while size > LEAST_ROWS and size * n_components * (features + 4) > BLOCK_WORK * 2:
        size //= 2
    return size


@dataclass(frozen=True, slots=True)
class Expectation:
    """What the kernels need of a state to visit rows: log weights are height - |precision (z - mean)|^2/2.

    `precision` holds triangular factors (K, D, D), or precisions (K, D); with missing values `gain` (K, D) is what
    each value that was seen adds to the log weight.
    """

    frame: Frame
    mean: np.ndarray
    precision: np.ndarray
    height: np.ndarray
    gain: np.ndarray | None = None

    @classmethod
    def of(cls, state, frame, *, missing=False):
        """Return that of a state."""
        factors, height = state.factors, state.weights.expected_logs()
        mean = np.ascontiguousarray(factors.mean)
        if isinstance(factors, WishartFactors):
            constants, precision = factors.constants()
            return cls(frame, mean, precision, height + constants)
        gain, precision = factors.constants()
        if missing:
            return cls(frame, mean, precision, height, gain)
        return cls(frame, mean, precision, height + np.sum(gain, axis=1))

    @classmethod
    def flat(cls, frame, full, missing=False):
        """Return that of one component, at the origin and of equal weight everywhere: it finds the moments."""
        dim = len(frame.scale)
        precision = np.zeros((1, dim, dim) if full else (1, dim))
        gain = np.zeros((1, dim)) if missing else None
        return cls(frame, np.zeros((1, dim)), precision, np.zeros(1), gain)

    @property
    def full(self):
        """Whether precisions are matrices."""
        return self.precision.ndim == 3

    @property
    def shape(self):
        """The shape (K, numbers) of a block's statistics."""
        k, dim = self.mean.shape
        return k, 1 + dim + dim * (dim + 1) // 2 if self.full else 1 + (2 if self.gain is None else 3) * dim

    @property
    def size(self):
        """How many numbers these are."""
        return self.shape[0] * self.shape[1]

    def statistics(self, rows, weight=NO_WEIGHT):
        """Return the statistics (K, numbers) and the sum of the log densities (1,) of a block, and a bad row or -1."""
        out, totals = np.empty(self.shape), np.zeros(1)
        place = rows, weight, self.frame.origin, self.frame.scale, self.mean, self.precision, self.height
        if self.full:
            bad = _kernel.full(*place, out, totals)
        else:
            bad = _kernel.diagonal(*place, NO_GAIN if self.gain is None else self.gain, out, totals)
        return out, totals, bad

    def energy(self, statistics):
        """Return the sum of E log pi_k + E log N(z; mu_k, 1/L_k) over rows with these statistics, about `mean`."""
        if self.full:
            spread = np.sum(np.swapaxes(self.precision, 1, 2) @ self.precision * statistics.second)
        else:
            spread = np.sum(self.precision * statistics.second)
        gained = 0.0 if self.gain is None else float(np.sum(self.gain * statistics.seen))
        return float(statistics.counts @ self.height) + gained - 0.5 * float(spread)

    def log_weights(self, rows):
        """Return E log pi_k + E log N(x_n; mu_k, 1/L_k) (n, K) of rows in the units of the data."""
        out = self.distances(rows)
        np.multiply(out, -0.5, out=out)
        out += self.height
        if self.gain is not None:
            out += (~np.isnan(rows)).astype(float) @ self.gain.T
        return out

    def distances(self, rows):
        """Return the expected squared distances (n, K), without what the uncertainty of the means adds."""
        out = np.empty((len(rows), len(self.mean)))
        call = _kernel.distances if self.full else _kernel.distances_diagonal
        call(rows, self.frame.origin, self.frame.scale, self.mean, self.precision, out)
        return out


class Sweeps:
    """What the engine needs: whole sweeps over the data, and steps on minibatches."""

    def __init__(self, prior, frame, n_samples, data=None, threads=None):
        self.prior, self.frame = prior, frame
        self.n_samples = n_samples  # the sum of their weights
        self.data, self._threads = data, threads  # not needed for minibatches

    def sweep(self, state):
        """Return the state after one sweep, and the ELBO of the given one."""
        statistics, total = self.statistics(self.expectation(state))
        elbo = total + self.data.log_scale - state.divergence(self.prior)
        return state.renewed(self.prior, statistics), elbo

    def statistics(self, expectation, blocks=None):
        """Return the statistics that a state leads to and the sum of log densities, of all blocks or some."""
        found, total = self.data.statistics(expectation, self._threads, blocks)
        return Statistics.of(found, self.data.source.n_features, expectation.full), total

    def expectation(self, state):
        """Return what the kernels need of a state."""
        return Expectation.of(state, self.frame, missing=self.data.missing)

    def estimate(self, state, rows):
        """Return the state that all data would lead to if they were like `rows`."""
        expectation = Expectation.of(state, self.frame, missing=bool(np.isnan(rows).any()))
        found, _, bad = expectation.statistics(rows)
        check_reached(bad, lambda row: f"row {row} of the minibatch")
        statistics = Statistics.of(found, rows.shape[1], state.full)
        return state.renewed(self.prior, statistics.scaled(self.n_samples / len(rows)))

    @staticmethod
    def blend(state, estimate, step):
        """Return the state part of the way to an estimate."""
        return State.combined([(1.0 - step, state), (step, estimate)])

    @staticmethod
    def coordinates(state):
        """Return natural parameters and expected statistics, flat."""
        return state.natural(), state.statistics()

    @staticmethod
    def at(natural, state):
        """Return the state with the given natural parameters, or None where one is out of its domain."""
        return state.at(natural)


def check_reached(bad, where):
    """Raise OverflowError if a kernel has found a row without weight in any component."""
    if bad >= 0:
        raise OverflowError(f"{where(bad)} is so far from every component that its density leaves float64; rescale it")
