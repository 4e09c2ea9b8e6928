"""What a Gaussian mixture is fitted in: the frame of the data, q, and the statistics of components."""

from dataclasses import dataclass, replace
from functools import lru_cache

import numpy as np

from cavity.models.mixture.factors import GammaFactors, WeightFactors, WishartFactors

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
