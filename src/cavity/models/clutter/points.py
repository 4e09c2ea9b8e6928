"""The points of a clutter problem, checked, in the working units in which kernels take them.

Everything numerical happens in working units, theta' = scale (theta - origin), see cython_core/ep/clutter.pyx.
"""

from dataclasses import dataclass, field

import numpy as np

from cavity import _core
from cavity.base import arrays
from cavity.base.frames import in_order, names_of
from cavity.base.observation_digest import ObservationDigest
from cavity.base.records import Array, saved
from cavity.runs.executors import Threads
from cavity.runs.merge import starts
from cavity.runs.runs import check_here
from cavity.sources.formats import is_unopened
from cavity.sources.parts import ArrayRows
from cavity.sources.sources import Source, open_source, rows

NUMBERS_AT_ONCE = 32  # of blocks of SUMMED_ROWS, d + 1 for a point: some 20 ms of work
SUMMED_ROWS = _core.best("clutter").chunk_rows  # rows of a partial sum

EXTREME_ROWS = 1 << 18  # whose extremes are found in one call
MEDIAN_POINTS = 64  # points whose median is the working origin: near most of the data will do
FARTHEST_POINT = 1e100  # noise standard deviations, or ratio of two variances: squares of squares stay in range


@dataclass(frozen=True, slots=True)
class WorkingUnits:
    """Origin and scale, and a clutter model in them; origin, centre and prior_tau are (B, d) for a batch."""

    origin: np.ndarray = field(metadata=saved(Array("B? D")))
    scale: float = field(metadata=saved(Array("()", "positive")))
    model: np.ndarray = field(metadata=saved(Array("5")))  # s, 1/(2 c), log(c)/2, log(1 - w), log(w/(1 - w))
    centre: np.ndarray = field(metadata=saved(Array("B? D")))  # c0
    prior_tau: np.ndarray = field(metadata=saved(Array("B? D")))
    prior_rho: float = field(metadata=saved(Array("() | B?", "positive")))  # (B,) in a batch after update

    @classmethod
    def of(cls, data, model, ends=None):
        """Choose an origin for data (N, d), or for each problem of (B, N, d), and a scale; put the model into them.

        `ends` are the `extremes` of the data, if they are known.
        """
        d, sample = data.shape[-1], _sample(data)
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
        units.check_distance(extremes(data) if ends is None else ends, "the median of x")
        for name, distance in (("clutter_mean", centre), ("prior_mean", prior)):
            if not np.max(np.abs(distance)) < FARTHEST_POINT:
                raise arrays.wrong(
                    name, f"must be within {FARTHEST_POINT:g} noise standard deviations of the median of x"
                )
        return units

    def check_distance(self, ends, where):
        """Raise ValueError for `extremes` of points so far away that squares of their distance overflow."""
        if not np.max(np.abs((ends - self.origin) * self.scale)) < FARTHEST_POINT:
            raise ValueError(f"x must be within {FARTHEST_POINT:g} noise standard deviations of {where}")

    @property
    def log_jacobian(self):
        """Log of the density of a data point in its own units over that in working units."""
        return self.origin.shape[-1] * np.log(self.scale)

    @property
    def noise(self):
        """The noise variance s."""
        return self.model[0]

    def arguments(self, x):
        """What kernels read of points x (n, d) of one problem."""
        return self.model, x, self.origin, self.scale, self.centre

    def problem(self, b):
        """Return the units of problem b of a batch."""
        rho = self.prior_rho if np.ndim(self.prior_rho) == 0 else float(self.prior_rho[b])
        return WorkingUnits(self.origin[b], self.scale, self.model, self.centre[b], self.prior_tau[b], rho)


def opened(x, ndim, columns=None, elsewhere=False):
    """Return points checked, in the order of columns that were named before; those of dask only with `elsewhere`.

    Returns
    -------
    data : ndarray or Source
        (N, d) or (B, N, d); numbers (N,) are points of one column. Those of a Source are checked by `extremes`.
    numbers : bool
        Whether they were (N,).
    columns : tuple of str or None
        Names of the columns.
    """
    if isinstance(x, Source) or is_unopened(x) or hasattr(x, "__next__"):
        data = in_order(open_source(x, "x", ndim=tuple(n for n in ndim if n < 3)), columns, "x")
        if not elsewhere:
            check_here(data)
        return (data.columns([0]) if data.ndim == 1 else data), data.ndim == 1, data.names
    data = arrays.data_array(in_order(x, columns, "x"), "x", ndim=ndim)
    return (data[:, None] if data.ndim == 1 else data), data.ndim == 1, names_of(x)


def digest_points(data):
    """Return the `extremes` of points and their ObservationDigest, None for a batch; a Source is read once."""
    if not isinstance(data, Source):
        return extremes(data), ObservationDigest.of(data)
    with Threads(1) as thread:
        low, high, _, digest = data.summary(thread, digested=True)
    return np.stack([high, low]), digest


def extremes(data):
    """Return the largest and the least coordinates of an array (N, d) or (B, N, d), or of a Source, which is checked.

    Shape (2, d) or (2, B, d).
    """
    if isinstance(data, Source):
        return digest_points(data)[0]
    parts = [data[..., low:high, :] for low, high in starts(data.shape[-2], EXTREME_ROWS)]
    found = [np.stack([part.max(axis=-2), part.min(axis=-2)]) for part in parts]  # Ctrl-C comes between them
    return np.stack([np.max(found, axis=0)[0], np.min(found, axis=0)[1]]).astype(np.float64)


def _sample(data):
    """Return some points at equal distances, (n, d) or (B, n, d)."""
    step = max(1, data.shape[-2] // MEDIAN_POINTS)
    if isinstance(data, Source):
        return np.concatenate([data.rows(row, row + 1) for row in range(0, data.n_rows, step)])
    return np.asarray(data[..., ::step, :], dtype=np.float64)


@dataclass(frozen=True, slots=True)
class Points:
    """Checked data and their working units: an array (N, d), or (B, N, d) for a batch, of any real dtype and layout.

    Points (N, d) that are not in memory are a Source.
    """

    data: np.ndarray | Source
    units: WorkingUnits

    @property
    def shape(self):
        """N and d."""
        return self.data.shape[-2:]

    @property
    def problems(self):
        """The points of each problem of a batch; of one problem these alone."""
        return [self] if self.data.ndim == 2 else [self.problem(b) for b in range(len(self.data))]

    @property
    def source(self):
        """The points of one problem in blocks of SUMMED_ROWS."""
        parts = self.data.parts if isinstance(self.data, Source) else [ArrayRows(self.data, "x")]
        return Source(parts, "x", SUMMED_ROWS)

    @property
    def most_blocks(self):
        """How many blocks of a source are worked on between two looks at whether the fit is interrupted."""
        return max(1, NUMBERS_AT_ONCE // (self.shape[1] + 1))

    def arguments(self, part):
        """What kernels read of a slice of the points of one problem, or of those in memory in any order."""
        in_files = isinstance(self.data, Source)
        return self.units.arguments(self.data.rows(part.start, part.stop) if in_files else rows(self.data, part))

    def problem(self, b):
        """Return the points of problem b of a batch."""
        return Points(self.data[b], self.units.problem(b))
