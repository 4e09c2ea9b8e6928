"""The coordinates in which a Gaussian mixture is fitted, and the way back to the units of the data."""

from dataclasses import dataclass

import numpy as np

from cavity.base.records import Array, declare


@dataclass(frozen=True, slots=True)
class Scaling:
    """Coordinates z = (x - origin) scale near 1; scales are powers of two, so that scaling rounds nothing."""

    origin: np.ndarray = declare(Array("D"))
    scale: np.ndarray = declare(Array("D", "positive"))

    @classmethod
    def around(cls, low, high, mean, shared):
        """Return the scaling of data between low and high; one scale for all columns if `shared`."""
        spread = np.max(high - low, keepdims=True) * np.ones(len(low)) if shared else high - low
        exponent = np.where(spread > 0, np.frexp(spread)[1], 0)
        return cls(np.array(mean, dtype=float), np.ldexp(1.0, -exponent))

    def rows(self, x):
        """Return points (n, D) in coordinates."""
        return (x - self.origin) * self.scale

    def squares(self, scatter):
        """Return a scatter matrix (..., D, D), variances (..., D) or one for all columns (..., 1) in coordinates."""
        return scatter * self._units(scatter)

    def to_user_squares(self, scatter):
        """Return what `squares` took in."""
        return scatter / self._units(scatter)

    def _units(self, scatter):
        dim = len(self.scale)
        if scatter.shape[-2:] == (dim, dim) and scatter.ndim > 2:
            return self.scale[:, None] * self.scale
        return self.scale[: scatter.shape[-1]] ** 2

    def to_user_rows(self, z):
        """Return points (n, D) in the units of the data."""
        return self.origin + z / self.scale
