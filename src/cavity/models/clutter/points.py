"""The points of a clutter problem, checked, in the working units in which kernels take them.

Everything numerical happens in working units, theta' = scale (theta - origin), see cython_core/ep/clutter.pyx.
"""

from dataclasses import dataclass, field
from typing import ClassVar

import numpy as np

from cavity import _core
from cavity.base import arrays
from cavity.base.errors import about
from cavity.base.frames import in_order, names_of
from cavity.base.observation_digest import ObservationDigest
from cavity.base.records import Array, saved
from cavity.runs.executors import Threads
from cavity.runs.merge import starts
from cavity.sources.dataset import MEMORY, REMOTE, Dataset
from cavity.sources.features import kind_of
from cavity.sources.parts import ArrayRows
from cavity.sources.reading import rows
from cavity.sources.sources import Source, open_source

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
        """Choose an origin for points, or for each problem of a batch, and a scale; put the model into them.

        `ends` are their `extremes`, if they are known.
        """
        d, sample = data.shape[-1], data.sample()
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
        units.check_distance(data.extremes() if ends is None else ends, "the median of x")
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


@dataclass(frozen=True, slots=True)
class ArrayPoints:
    """Points in memory: an array (N, d), or (B, N, d) for a batch, of any real dtype and layout."""

    values: np.ndarray
    is_remote: ClassVar[bool] = False

    @property
    def shape(self):
        """That of the array."""
        return self.values.shape

    @property
    def source(self):
        """The points of one problem in blocks of SUMMED_ROWS."""
        return Source([ArrayRows(self.values, "x")], "x", SUMMED_ROWS)

    def check_options(self, options, order):
        """Points in memory are visited in any order, with any power."""

    def digest(self):
        """Return the `extremes` of the points and their ObservationDigest, None for a batch."""
        return self.extremes(), ObservationDigest.of(self.values)

    def extremes(self):
        """Return the largest and the least coordinates, shape (2, d) or (2, B, d)."""
        parts = [self.values[..., low:high, :] for low, high in starts(self.shape[-2], EXTREME_ROWS)]
        limits = [np.stack([part.max(axis=-2), part.min(axis=-2)]) for part in parts]  # Ctrl-C comes between them
        return np.stack([np.max(limits, axis=0)[0], np.min(limits, axis=0)[1]]).astype(np.float64)

    def sample(self):
        """Return some points at equal distances, (n, d) or (B, n, d)."""
        return np.asarray(self.values[..., :: _step(self.shape), :], dtype=np.float64)

    def dense(self):
        """Return the points as float64."""
        return np.asarray(self.values, dtype=np.float64)

    def rows(self, index):
        """Return some points of one problem, or the points of some problems, as float64 in C order."""
        return rows(self.values, index)

    def within(self, limit, centre):
        """Whether all points of one dimension are known to be within a distance of a centre."""
        return (
            self.shape[-1] == 1 and max(float(self.values.max()) - centre, centre - float(self.values.min())) <= limit
        )


@dataclass(frozen=True, slots=True)
class StoredPoints:
    """Points (N, d) of one problem in files, or remote: a Source, whose numbers `digest` checks."""

    values: Source

    @property
    def is_remote(self):
        """Whether workers of dask have the points."""
        return kind_of(self.values) == REMOTE

    @property
    def shape(self):
        """(N, d)."""
        return self.values.shape

    @property
    def source(self):
        """The points in blocks of SUMMED_ROWS."""
        return Source(self.values.parts, "x", SUMMED_ROWS)

    def check_options(self, options, order):
        """Raise ValueError for what needs all points in memory."""
        if order is not None:
            words = (
                "order needs all points in memory, as an array: those of files are visited in the order of their rows"
            )
            raise about(ValueError(words), "order")
        if options.power != 1:
            words = f"power must be 1 for points in files, got {options.power!r}; others need an array"
            raise about(ValueError(words), "power")

    def digest(self):
        """Return the `extremes` of the points, which are checked, and their ObservationDigest, from one pass."""
        with Threads(1) as thread:
            low, high, _, digest = self.values.summary(thread, digested=True)
        return np.stack([high, low]), digest

    def extremes(self):
        """Return the largest and the least coordinates, shape (2, d)."""
        return self.digest()[0]

    def sample(self):
        """Return some points at equal distances, (n, d)."""
        picked = range(0, self.shape[0], _step(self.shape))
        return np.concatenate([self.values.rows(row, row + 1) for row in picked])

    def dense(self):
        """Return the points in memory."""
        return self.values.rows()

    def rows(self, index):
        """Return the points of a slice."""
        return self.values.rows(index.start, index.stop)

    def within(self, limit, centre):
        """Nothing is known without a pass."""
        return False


def _step(shape):
    """Return the distance of the rows of a sample."""
    return max(1, shape[-2] // MEDIAN_POINTS)


def open_points(x, ndim, columns=None, remote=False):
    """Return points checked, in the order of columns that were named before; remote ones only with `remote`.

    Returns
    -------
    data : ArrayPoints or StoredPoints
        (N, d) or (B, N, d); numbers (N,) are points of one column.
    numbers : bool
        Whether they were (N,).
    columns : tuple of str or None
        Names of the columns.
    """
    dataset = Dataset.open(x, remote=remote, name="x")
    X = in_order(dataset.X, columns, "x")
    if dataset.kind == MEMORY:
        data = arrays.data_array(X, "x", ndim=ndim)
        return ArrayPoints(data[:, None] if data.ndim == 1 else data), data.ndim == 1, names_of(X)
    data = open_source(X, "x", ndim=tuple(n for n in ndim if n < 3))
    return StoredPoints(data.columns([0]) if data.ndim == 1 else data), data.ndim == 1, data.names


@dataclass(frozen=True, slots=True)
class Points:
    """Checked data and their working units."""

    data: ArrayPoints | StoredPoints
    units: WorkingUnits

    @property
    def is_batch(self):
        """Whether there are several problems, each with an equal number of points."""
        return len(self.data.shape) == 3

    @property
    def shape(self):
        """N and d."""
        return self.data.shape[-2:]

    @property
    def problems(self):
        """The points of each problem of a batch; of one problem these alone."""
        return [self.problem(b) for b in range(self.data.shape[0])] if self.is_batch else [self]

    @property
    def source(self):
        """The points of one problem in blocks of SUMMED_ROWS."""
        return self.data.source

    @property
    def most_blocks(self):
        """How many blocks of a source are worked on between two looks at whether the fit is interrupted."""
        return max(1, NUMBERS_AT_ONCE // (self.shape[1] + 1))

    def arguments(self, part):
        """What kernels read of a slice of the points of one problem, or of those in memory in any order."""
        return self.units.arguments(self.data.rows(part))

    def problem(self, b):
        """Return the points of problem b of a batch."""
        return Points(ArrayPoints(self.data.values[b]), self.units.problem(b))
