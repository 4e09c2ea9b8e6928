"""The points of a clutter problem, checked, in the working units in which kernels take them.

Everything numerical happens in working units, theta' = scale (theta - origin), see cython_core/ep/clutter.pyx.
"""

from dataclasses import dataclass

import numpy as np

from cavity.base import arrays
from cavity.blocks.sources import rows

MEDIAN_POINTS = 64  # points whose median is the working origin: near most of the data will do
FARTHEST_POINT = 1e100  # noise standard deviations, or ratio of two variances: squares of squares stay in range


@dataclass(frozen=True, slots=True)
class WorkingUnits:
    """Origin and scale, and a clutter model in them; origin, centre and prior_tau are (B, d) for a batch."""

    origin: np.ndarray  # (d,)
    scale: float
    model: np.ndarray  # (5,): s, 1/(2 c), log(c)/2, log(1 - w), log(w/(1 - w))
    centre: np.ndarray  # (d,): c0
    prior_tau: np.ndarray  # (d,)
    prior_rho: float  # or (B,) in a batch after update

    @classmethod
    def of(cls, data, model):
        """Choose an origin for data (N, d), or for each problem of (B, N, d), and a scale; put the model into them."""
        n, d = data.shape[-2:]
        sample = np.asarray(data[..., :: max(1, n // MEDIAN_POINTS), :], dtype=np.float64)
        middle = (sample.shape[-2] - 1) // 2  # a point of the data: a mean of two could lie far from all of them
        ordered = np.partition(np.ascontiguousarray(np.swapaxes(sample, -1, -2)), middle, axis=-1)
        origin = np.ascontiguousarray(ordered[..., middle])
        noise, weight = model.noise_variance, model.clutter_weight
        if not 1e-290 < noise < 1e290:
            raise arrays.wrong("noise_variance", f"must be between 1e-290 and 1e290, got {noise!r}; rescale the data")
        scale = float(2.0 ** -np.round(0.5 * np.log2(noise)))
        s, c, v0 = (variance * scale * scale for variance in (noise, model.clutter_variance, model.prior_variance))
        centre, prior = (
            (arrays.vector(getattr(model, name), name, d) - origin) * scale for name in ("clutter_mean", "prior_mean")
        )
        for name, ratio in (("clutter_variance", c), ("prior_variance", v0)):
            if not 1 / FARTHEST_POINT < ratio < FARTHEST_POINT:
                raise arrays.wrong(name, f"must be within a factor {FARTHEST_POINT:g} of noise_variance")
        packed = np.array([s, 0.5 / c, 0.5 * np.log(c), np.log1p(-weight), np.log(weight) - np.log1p(-weight)])
        units = cls(origin, scale, packed, centre, prior / v0, 1.0 / v0)
        units.check_distance(data, "the median of x")
        for name, distance in (("clutter_mean", centre), ("prior_mean", prior)):
            if not np.max(np.abs(distance)) < FARTHEST_POINT:
                raise arrays.wrong(
                    name, f"must be within {FARTHEST_POINT:g} noise standard deviations of the median of x"
                )
        return units

    def check_distance(self, data, where):
        """Raise ValueError for points (N, d) or (B, N, d) so far away that squares of their distance overflow."""
        extremes = np.stack([data.max(axis=-2), data.min(axis=-2)]).astype(np.float64)
        if not np.max(np.abs((extremes - self.origin) * self.scale)) < FARTHEST_POINT:
            raise ValueError(f"x must be within {FARTHEST_POINT:g} noise standard deviations of {where}")

    @property
    def log_jacobian(self):
        """Log of the density of a data point in its own units over that in working units."""
        return self.origin.shape[-1] * np.log(self.scale)

    @property
    def noise(self):
        """The noise variance s."""
        return self.model[0]

    def problem(self, b):
        """Return the units of problem b of a batch."""
        rho = self.prior_rho if np.ndim(self.prior_rho) == 0 else float(self.prior_rho[b])
        return WorkingUnits(self.origin[b], self.scale, self.model, self.centre[b], self.prior_tau[b], rho)


@dataclass(frozen=True, slots=True)
class Points:
    """Checked data (N, d), or (B, N, d) for a batch, of any real dtype and layout, and their working units."""

    data: np.ndarray
    units: WorkingUnits

    @property
    def shape(self):
        """N and d."""
        return self.data.shape[-2:]

    @property
    def problems(self):
        """The points of each problem of a batch; of one problem these alone."""
        return [self] if self.data.ndim == 2 else [self.problem(b) for b in range(len(self.data))]

    def arguments(self, part):
        """What kernels read of a slice of the points of one problem, or of rows in any order."""
        units = self.units
        return units.model, rows(self.data, part), units.origin, units.scale, units.centre

    def problem(self, b):
        """Return the points of problem b of a batch."""
        return Points(self.data[b], self.units.problem(b))
