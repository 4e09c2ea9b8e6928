"""Working units of the clutter model, theta' = scale (theta - origin), and its state in them."""

from dataclasses import dataclass

import numpy as np

SAMPLE = 64  # points whose median is the working origin: near most of the data will do
LARGEST = 1e100  # of ratios between scales: squares of squares stay in range


@dataclass(frozen=True, slots=True)
class Units:
    """A clutter model and its data in working units; origin, centre and prior_tau are (B, d) for a batch."""

    origin: np.ndarray  # (d,)
    scale: float
    model: np.ndarray  # (5,): s, 1/(2 c), log(c)/2, log(1 - w), log(w/(1 - w))
    centre: np.ndarray  # (d,): c0
    prior_tau: np.ndarray  # (d,)
    prior_rho: float  # or (B,) in a batch after update

    @property
    def log_jacobian(self):
        """Log of the density of a data point in its own units over that in working units."""
        return self.origin.shape[-1] * np.log(self.scale)

    @property
    def noise(self):
        """The noise variance s."""
        return self.model[0]

    def problem(self, b):
        """Return the units of problem b of a batch, whose origin, centre and prior_tau are (B, d)."""
        rho = self.prior_rho if np.ndim(self.prior_rho) == 0 else float(self.prior_rho[b])
        return Units(self.origin[b], self.scale, self.model, self.centre[b], self.prior_tau[b], rho)


@dataclass(slots=True)
class State:
    """Sites and posterior of one problem in working units."""

    site_tau: np.ndarray  # (N, d)
    site_rho: np.ndarray  # (N,)
    tau: np.ndarray  # (d,)
    rho: float
    site_value: np.ndarray | None = None  # (N,): log of each scaled site at the posterior mean
    log_evidence: float = np.nan  # of the data, in working units
    loo: np.ndarray | None = None  # (N,): after power EP, log densities under the posterior of the others

    def problem(self, b):
        """Return the state of problem b of a batch."""
        return State(**{name: value[b] for name, value in present(self).items()})


def working_units(data, weight, clutter_variance, noise_variance, centre, prior_mean, prior_variance):
    """Choose origin and scale for data (N, d), or an origin per problem for (B, N, d), and return the model in them."""
    n = data.shape[-2]
    sample = np.asarray(data[..., :: max(1, n // SAMPLE), :], dtype=np.float64)
    middle = (sample.shape[-2] - 1) // 2  # a point of the data: a mean of two could lie far from all of them
    ordered = np.partition(np.ascontiguousarray(np.swapaxes(sample, -1, -2)), middle, axis=-1)
    origin = np.ascontiguousarray(ordered[..., middle])
    if not 1e-290 < noise_variance < 1e290:
        raise ValueError(f"noise_variance must be between 1e-290 and 1e290, got {noise_variance!r}; rescale the data")
    scale = 2.0 ** -np.round(0.5 * np.log2(noise_variance))
    s, c, v0 = (variance * scale * scale for variance in (noise_variance, clutter_variance, prior_variance))
    centre, prior = (centre - origin) * scale, (prior_mean - origin) * scale
    for name, ratio in (("clutter_variance", c), ("prior_variance", v0)):
        if not 1 / LARGEST < ratio < LARGEST:
            raise ValueError(f"{name} must be within a factor {LARGEST:g} of noise_variance")
    for name, distance in (("x", reach(data, origin, scale)), ("clutter_mean", centre), ("prior_mean", prior)):
        if not np.max(np.abs(distance)) < LARGEST:
            raise ValueError(f"{name} must be within {LARGEST:g} noise standard deviations of the median of x")
    model = np.array([s, 0.5 / c, 0.5 * np.log(c), np.log1p(-weight), np.log(weight) - np.log1p(-weight)])
    return Units(origin, float(scale), model, centre, prior / v0, 1.0 / v0)


def reach(data, origin, scale):
    """Return the extremes of each coordinate of data (N, d) or (B, N, d) in working units."""
    return (np.stack([data.max(axis=-2), data.min(axis=-2)]).astype(np.float64) - origin) * scale


def present(state):
    """Return what a state holds, by name."""
    return {name: getattr(state, name) for name in State.__slots__ if getattr(state, name) is not None}


def check_reach(data, units):
    """Raise ValueError for points so far away that squares of their distance overflow."""
    if not np.max(np.abs(reach(data, units.origin, units.scale))) < LARGEST:
        raise ValueError(f"x must be within {LARGEST:g} noise standard deviations of the fitted data")


def stack(states):
    """Put the states of B problems into one with a batch axis."""
    return State(**{name: np.stack([getattr(state, name) for state in states]) for name in present(states[0])})
