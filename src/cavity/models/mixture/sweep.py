"""The Gaussian mixture as the mean-field engine sees it: one pass over the blocks of the data per sweep.

All is in coordinates z = (x - origin) scale, see `Frame`. q(z_n) is never stored: given the other factors it is the
softmax of E log pi_k + E log N(z_n; mu_k, 1/L_k), and a sweep needs of it N_k and the first and second moments of the
data about the component means. ELBO = sum_n w_n log sum_k exp(.) - KL(q(pi) || p(pi)) - KL(q(mu, L) || p(mu, L)).
"""

from dataclasses import dataclass, replace
from functools import lru_cache

import numpy as np

from cavity import _core
from cavity.models.mixture.factors import GammaFactors, WeightFactors, WishartFactors

_kernel = _core.best("gaussian_mixture")

MOST_ROWS, LEAST_ROWS = 1 << 15, 1 << 10  # of a block
BLOCK_WORK = 1 << 20  # products of responsibilities and features per block, about half a millisecond
NO_WEIGHT = np.empty(0)
NO_GAIN = np.empty((0, 0))


@dataclass(frozen=True, slots=True)
class Frame:
    """Coordinates z = (x - origin) scale near 1; scales are powers of two, so that scaling rounds nothing."""

    origin: np.ndarray
    scale: np.ndarray

    @classmethod
    def around(cls, low, high, mean, shared):
        """Return the frame of data between low and high; one scale for all columns if `shared`."""
        spread = np.max(high - low, keepdims=True) * np.ones(len(low)) if shared else high - low
        exponent = np.where(spread > 0, np.frexp(spread)[1], 0)
        return cls(np.array(mean, dtype=float), np.ldexp(1.0, -exponent))

    def rows(self, x):
        """Return points (n, D) in coordinates."""
        return (x - self.origin) * self.scale

    def squares(self, scatter):
        """Return a scatter matrix (..., D, D), variances (..., D) or one for all columns (..., 1) in coordinates."""
        return scatter * self._units(scatter)

    def user_squares(self, scatter):
        """Return what `squares` took in."""
        return scatter / self._units(scatter)

    def _units(self, scatter):
        dim = len(self.scale)
        if scatter.shape[-2:] == (dim, dim) and scatter.ndim > 2:
            return self.scale[:, None] * self.scale
        return self.scale[: scatter.shape[-1]] ** 2

    def user_rows(self, z):
        """Return points (n, D) in the units of the data."""
        return self.origin + z / self.scale


@dataclass(frozen=True, slots=True)
class State:
    """All factors of q, in coordinates; `counts` are the N_k that led here."""

    weights: WeightFactors
    factors: WishartFactors | GammaFactors
    counts: np.ndarray

    @property
    def full(self):
        """Whether precisions are matrices."""
        return isinstance(self.factors, WishartFactors)

    def divergence(self, prior):
        """KL of the weights, means and precisions from the prior."""
        return self.weights.divergence(prior.weights) + self.factors.divergence(prior.factors)

    def natural(self):
        """Natural parameters, flat."""
        return np.concatenate([self.weights.natural(), self.factors.natural()])

    def statistics(self):
        """Expected statistics in the order of `natural`."""
        return np.concatenate([self.weights.statistics(), self.factors.statistics()])

    def at(self, natural):
        """Return the state with these natural parameters, or None outside the domain."""
        size = self.weights.concentration.size
        weights, factors = self.weights.at(natural[:size]), self.factors.at(natural[size:])
        return None if weights is None or factors is None else replace(self, weights=weights, factors=factors)

    def as_wide_as(self, other):
        """Return the same state with what is kept for each column if `other` has seen data with missing values."""
        return replace(self, factors=self.factors.as_wide_as(other.factors))

    @staticmethod
    def combined(terms):
        """Return the affine combination of [(share, state), ...], whose shares add up to 1."""
        return State(
            WeightFactors.combined([(share, s.weights) for share, s in terms]),
            type(terms[0][1].factors).combined([(share, s.factors) for share, s in terms]),
            sum(share * s.counts for share, s in terms),
        )

    def reframed(self, old, new):
        """Return the same state in coordinates of another frame."""
        if np.array_equal(old.origin, new.origin) and np.array_equal(old.scale, new.scale):
            return self
        shift = (new.origin - old.origin) * old.scale
        return replace(self, factors=self.factors.reframed(shift, new.scale / old.scale))

    def exchangeable(self):
        """Whether all components have the same factors, as a prior may have."""
        alike = all(np.all(part[:1] == part) for part in self.factors.by_component())
        return alike and bool(np.all(self.weights.concentration[:1] == self.weights.concentration))

    def matched(self, target, prior):
        """Return the state with its components in the order in which they resemble those of `target` most."""
        from scipy.optimize import linear_sum_assignment  # loads much, and few need it

        _, order = linear_sum_assignment(target.factors.contrasts(self.factors))
        weights = prior.weights.renewed(prior.weights, self.weights.counts(prior.weights)[order])
        return State(weights, self.factors.take(order), self.counts[order])

    def renewed(self, prior, statistics):
        """Return the optimal state given statistics about the means of `self`."""
        counts, first, second, seen = statistics.parts()
        return State(
            self.weights.renewed(prior.weights, counts),
            self.factors.renewed(prior.factors, seen, first, second),
            counts,
        )


@lru_cache(maxsize=8)
def _lower(dim):
    """Return the rows and columns of a lower triangle, row by row."""
    return np.tril_indices(dim)


@dataclass(frozen=True, slots=True)
class Statistics:
    """What responsibilities r make of the data, about the component means m: sums over n, weights included."""

    counts: np.ndarray  # (K,): r
    first: np.ndarray  # (K, D): r (z - m)
    second: np.ndarray  # (K, D, D): r (z - m)(z - m)', or (K, D): r (z - m)^2
    seen: np.ndarray  # (K, 1), or (K, D) where values may be missing: r over the rows in which a column was seen

    @classmethod
    def of(cls, found, dim, full):
        """Return those of a kernel's output (K, numbers)."""
        counts, first, second = found[:, 0].copy(), found[:, 1 : 1 + dim], found[:, 1 + dim :]
        if full:
            square = np.empty((len(counts), dim, dim))
            rows, columns = _lower(dim)
            square[:, rows, columns] = second
            square[:, columns, rows] = second
            return cls(counts, first, square, counts[:, None])
        seen = second[:, dim:] if second.shape[1] > dim else counts[:, None]
        return cls(counts, first, second[:, :dim], seen)

    def parts(self):
        """Return the four arrays."""
        return self.counts, self.first, self.second, self.seen

    def scaled(self, factor):
        """Return the same with every row counted `factor` times."""
        return Statistics(*(factor * part for part in self.parts()))

    def taken(self, order):
        """Return the same for the components in another order."""
        return Statistics(*(part[order] for part in self.parts()))

    def moved(self, step):
        """Return the same about m - step, step (K, D)."""
        if self.second.ndim == 3:
            cross = self.first[:, :, None] * step[:, None, :]
            square = self.seen[:, :, None] * (step[:, :, None] * step[:, None, :])
            second = self.second + (cross + np.swapaxes(cross, 1, 2)) + square
        else:
            second = self.second + step * (2.0 * self.first + self.seen * step)
        return Statistics(self.counts, self.first + self.seen * step, second, self.seen)


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
