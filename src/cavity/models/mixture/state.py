"""What the fit of a Gaussian mixture is made of: all factors of q, and the sums over rows that renew them."""

from dataclasses import dataclass, replace
from functools import lru_cache

import numpy as np

from cavity.models.mixture.factors import GammaFactors, WeightFactors, WishartFactors

PRIOR_TOLERANCE = 1e-9  # relative difference of natural parameters that pass for the same prior


@dataclass(frozen=True, slots=True)
class MixtureState:
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

    def coordinates(self):
        """Natural parameters and expected statistics, flat and in one order."""
        pairs = zip((self.weights.natural(), self.weights.statistics()), self.factors.coordinates(), strict=True)
        return tuple([np.concatenate(pair) for pair in pairs])

    def natural(self):
        """Natural parameters, flat."""
        return self.coordinates()[0]

    def at(self, natural):
        """Return the state with these natural parameters, or None outside the domain."""
        size = self.weights.concentration.size
        weights, factors = self.weights.at(natural[:size]), self.factors.at(natural[size:])
        return None if weights is None or factors is None else MixtureState(weights, factors, self.counts)

    def widen_like(self, other):
        """Return this state, with a beta for each column if `other` has that, as data with missing values need it."""
        return replace(self, factors=self.factors.widen_like(other.factors))

    @staticmethod
    def combine(terms):
        """Return the affine combination of [(share, state), ...], whose shares add up to 1."""
        return MixtureState(
            WeightFactors.combine([(share, s.weights) for share, s in terms]),
            type(terms[0][1].factors).combine([(share, s.factors) for share, s in terms]),
            sum(share * s.counts for share, s in terms),
        )

    def rescale(self, old, new):
        """Return this state, which is in coordinates of the scaling `old`, in those of `new`."""
        if np.array_equal(old.origin, new.origin) and np.array_equal(old.scale, new.scale):
            return self
        shift = (new.origin - old.origin) * old.scale
        return replace(self, factors=self.factors.rescale(shift, new.scale / old.scale))

    def is_exchangeable(self):
        """Whether all components have the same factors, as a prior may have."""
        factors = self.factors
        parts = factors.mean, factors.beta, factors.nu, factors.scatter, self.weights.concentration
        return all(np.array_equal(np.broadcast_to(part[:1], part.shape), part) for part in parts)

    def match(self, target, prior):
        """Return the state with its components in the order in which they resemble those of `target` most."""
        from scipy.optimize import linear_sum_assignment  # loads much, and few need it

        _, order = linear_sum_assignment(target.factors.contrasts(self.factors))
        weights = prior.weights.update(prior.weights, self.weights.counts(prior.weights)[order])
        return MixtureState(weights, self.factors.take(order), self.counts[order])

    def update(self, prior, sums):
        """Return the optimal state given `RowSums` about the means of `self`."""
        counts, first, second, observed = sums.parts()
        return MixtureState(
            self.weights.update(prior.weights, counts),
            self.factors.update(prior.factors, observed, first, second),
            counts,
        )


def merge_states(state, prior, other, other_prior):
    """Return the state of the data of two, fitted from one prior each, in the coordinates of all four."""
    prior, other_prior = prior.widen_like(other_prior), other_prior.widen_like(prior)
    a, b = prior.natural(), other_prior.natural()
    if not (a.shape == b.shape and np.allclose(a, b, rtol=PRIOR_TOLERANCE, atol=PRIOR_TOLERANCE * np.max(np.abs(a)))):
        raise ValueError("other must have the same priors; those that are None come from the data: use with_defaults")
    if prior.is_exchangeable():
        other = other.match(state, prior)
    return MixtureState.combine([(1.0, state), (1.0, other), (-1.0, prior)])


@lru_cache(maxsize=8)
def _get_triangle_indices(dim):
    """Return the rows and columns of a lower triangle, row by row."""
    return np.tril_indices(dim)


@dataclass(frozen=True, slots=True)
class RowSums:
    """What responsibilities r make of the data, about the component means m: sums over n, weights included."""

    counts: np.ndarray  # (K,): r
    first: np.ndarray  # (K, D): r (z - m)
    second: np.ndarray  # (K, D, D): r (z - m)(z - m)', or (K, D): r (z - m)^2
    seen: np.ndarray  # (K, 1), or (K, D) where values may be missing: r over the rows in which a column was seen

    @classmethod
    def of(cls, sums, dim, full):
        """Return the sums that a kernel wrote as (K, numbers)."""
        counts, first, second = sums[:, 0].copy(), sums[:, 1 : 1 + dim], sums[:, 1 + dim :]
        if full:
            square = np.empty((len(counts), dim, dim))
            rows, columns = _get_triangle_indices(dim)
            square[:, rows, columns] = second
            square[:, columns, rows] = second
            return cls(counts, first, square, counts[:, None])
        weights = second[:, dim:] if second.shape[1] > dim else counts[:, None]
        return cls(counts, first, second[:, :dim], weights)

    def parts(self):
        """Return the four arrays."""
        return self.counts, self.first, self.second, self.seen

    def scale(self, factor):
        """Return the sums with every row counted `factor` times."""
        return RowSums(*(factor * part for part in self.parts()))

    def take(self, order):
        """Return the sums with the components in another order."""
        return RowSums(*(part[order] for part in self.parts()))

    def shift(self, step):
        """Return the sums about m - step, step (K, D), in place of m."""
        if self.second.ndim == 3:
            cross = self.first[:, :, None] * step[:, None, :]
            square = self.seen[:, :, None] * (step[:, :, None] * step[:, None, :])
            second = self.second + (cross + np.swapaxes(cross, 1, 2)) + square
        else:
            second = self.second + step * (2.0 * self.first + self.seen * step)
        return RowSums(self.counts, self.first + self.seen * step, second, self.seen)
