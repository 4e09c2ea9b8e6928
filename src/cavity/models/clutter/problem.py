"""A clutter problem: its points, checked, the working units in which kernels take them, and its sites.

Everything numerical happens in working units, theta' = scale (theta - origin), see cython_core/ep/clutter.pyx.
"""

from dataclasses import dataclass

import numpy as np

from cavity import _core
from cavity.base import arrays
from cavity.base.frames import names_of, order_columns
from cavity.base.missing_values import DroppedRows
from cavity.base.observation_digest import ObservationDigest
from cavity.base.records import Array, declare
from cavity.runs.executors import Threads
from cavity.runs.merge import split_rows
from cavity.sources.dataset import IN_MEMORY, Dataset
from cavity.sources.read_ahead import read_rows
from cavity.sources.source_parts import ArrayRows
from cavity.sources.sources import Source, open_source

BLOCK_NUMBERS_PER_CHECK = 32  # blocks of SUMMED_ROWS times d + 1 between checks for interrupts: some 20 ms of work
SUMMED_ROWS = _core.best("clutter").chunk_rows  # rows of a partial sum

EXTREME_ROWS = 1 << 18  # rows whose extremes are found in one call
MEDIAN_POINTS = 64  # points whose median is the working origin: near most of the data will do
FARTHEST_POINT = 1e100  # noise standard deviations, or ratio of two variances: squares of squares stay in range


@dataclass(frozen=True, slots=True)
class DataPoints:
    """Points (N, d) of one problem, or (B, N, d) of a batch, in their own units.

    Attributes
    ----------
    values : ndarray or Source
        In memory an array of any real dtype and layout; else a Source, whose numbers `summarize` checks.
    kind : str
        That of the `Dataset`.
    is_scalar : bool
        Whether they were numbers (N,).
    columns : tuple of str or None
        Names of the columns.
    dropped : DroppedRows or None
        Points that were left out because of missing values.
    """

    values: np.ndarray | Source
    kind: str = IN_MEMORY
    is_scalar: bool = False
    columns: tuple[str, ...] | None = None
    dropped: DroppedRows | None = None

    @classmethod
    def open(cls, x, ndim, columns=None, remote=False, missing="raise"):
        """Check points and put them in the order of named columns; remote points need ``remote=True``."""
        dataset = Dataset.open(x, remote=remote, name="x").leave_out(missing)
        X = order_columns(dataset.X, columns, "x")
        if dataset.kind == IN_MEMORY:
            values = arrays.check_data_array(X, "x", ndim=ndim)
            points = values[:, None] if values.ndim == 1 else values
        else:
            values = open_source(X, "x", ndim=tuple(n for n in ndim if n < 3))
            points = values.columns([0]) if values.ndim == 1 else values
        return cls(points, dataset.kind, values.ndim == 1, names_of(X), dataset.dropped)

    @property
    def shape(self):
        """(N, d) or (B, N, d)."""
        return self.values.shape

    @property
    def source(self):
        """The points of one problem in blocks of SUMMED_ROWS."""
        parts = [ArrayRows(self.values, "x")] if self.kind == IN_MEMORY else self.values.parts
        return Source(parts, "x", SUMMED_ROWS)

    def rows(self, index):
        """Return some points of one problem, or the points of some problems, as float64 in C order.

        If points are not in memory, `index` is a slice.
        """
        return read_rows(self.values, index) if self.kind == IN_MEMORY else self.values.rows(index.start, index.stop)

    def summarize(self):
        """Return the largest and least coordinates, (2, d) or (2, B, d), and the digest, None for a batch."""
        if self.kind == IN_MEMORY:
            parts = [self.values[..., low:high, :] for low, high in split_rows(self.shape[-2], EXTREME_ROWS)]
            limits = [np.stack([part.max(axis=-2), part.min(axis=-2)]) for part in parts]  # interruptible in between
            ends = np.stack([np.max(limits, axis=0)[0], np.min(limits, axis=0)[1]]).astype(np.float64)
            return ends, ObservationDigest.of(self.values)
        with Threads(1) as thread:
            low, high, _, digest = self.values.summary(thread, digested=True)
        return np.stack([high, low]), digest

    def sample(self):
        """Return some points at equal distances, (n, d) or (B, n, d)."""
        step = max(1, self.shape[-2] // MEDIAN_POINTS)
        if self.kind == IN_MEMORY:
            return np.asarray(self.values[..., ::step, :], dtype=np.float64)
        return np.concatenate([self.values.rows(row, row + 1) for row in range(0, self.shape[0], step)])


@dataclass(frozen=True, slots=True)
class WorkingUnits:
    """Origin and scale, and a clutter model in them; origin, centre and prior_tau are (B, d) for a batch."""

    origin: np.ndarray = declare(Array("B? D"))
    scale: float = declare(Array("()", "positive"))
    model: np.ndarray = declare(Array("5"))  # s, 1/(2 c), log(c)/2, log(1 - w), log(w/(1 - w))
    centre: np.ndarray = declare(Array("B? D"))  # c0
    prior_tau: np.ndarray = declare(Array("B? D"))
    prior_rho: float = declare(Array("() | B?", "positive"))  # (B,) in a batch after update

    @classmethod
    def of(cls, data, model, ends):
        """Choose an origin for points, or for each problem of a batch, and a scale; put the model into them.

        `ends` are the largest and the least coordinates of the points.
        """
        d, sample = data.shape[-1], data.sample()
        middle = (sample.shape[-2] - 1) // 2  # a point of the data: a mean of two could lie far from all of them
        ordered = np.partition(np.ascontiguousarray(np.swapaxes(sample, -1, -2)), middle, axis=-1)
        origin = np.ascontiguousarray(ordered[..., middle])
        noise, weight = model.noise_variance, model.clutter_weight
        if not 1e-290 < noise < 1e290:
            raise arrays.error_of(
                "noise_variance", f"must be between 1e-290 and 1e290, got {noise!r}; rescale the data"
            )
        scale = float(2.0 ** -np.round(0.5 * np.log2(noise)))
        s, c, v0 = (variance * scale * scale for variance in (noise, model.clutter_variance, model.prior_variance))
        centre, prior = (
            (arrays.check_vector(getattr(model, name), name, d) - origin) * scale
            for name in ("clutter_mean", "prior_mean")
        )
        for name, ratio in (("clutter_variance", c), ("prior_variance", v0)):
            if not 1 / FARTHEST_POINT < ratio < FARTHEST_POINT:
                raise arrays.error_of(name, f"must be within a factor {FARTHEST_POINT:g} of noise_variance")
        packed = np.array([s, 0.5 / c, 0.5 * np.log(c), np.log1p(-weight), np.log(weight) - np.log1p(-weight)])
        units = cls(origin, scale, packed, centre, prior / v0, 1.0 / v0)
        units.check_distance(ends, "the median of x")
        for name, distance in (("clutter_mean", centre), ("prior_mean", prior)):
            if not np.max(np.abs(distance)) < FARTHEST_POINT:
                message = f"must be within {FARTHEST_POINT:g} noise standard deviations of the median of x"
                raise arrays.error_of(name, message)
        return units

    def check_distance(self, ends, location):
        """Raise ValueError for extreme coordinates so far away that squares of their distance overflow."""
        if not np.max(np.abs((ends - self.origin) * self.scale)) < FARTHEST_POINT:
            raise ValueError(f"x must be within {FARTHEST_POINT:g} noise standard deviations of {location}")

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
class Points:
    """Points with their working units, extreme coordinates and digest.

    Attributes
    ----------
    data : DataPoints
        In units of the data.
    units : WorkingUnits
        The units that kernels work in.
    ends : ndarray (2, d) or (2, B, d)
        The largest and the least coordinates.
    digest : ObservationDigest or None
        Of all points.
    """

    data: DataPoints
    units: WorkingUnits
    ends: np.ndarray
    digest: ObservationDigest | None = None

    @classmethod
    def of(cls, data, model):
        """Summarize points and choose working units for them and a model."""
        ends, digest = data.summarize()
        return cls(data, WorkingUnits.of(data, model, ends), ends, digest)

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
    def most_blocks(self):
        """Most blocks of a source between two checks for an interrupt."""
        return max(1, BLOCK_NUMBERS_PER_CHECK // (self.shape[1] + 1))

    def arguments(self, part):
        """What kernels read of a slice of the points of one problem, or of those in memory in any order."""
        return self.units.arguments(self.data.rows(part))

    def problem(self, b):
        """Return the points of problem b of a batch."""
        return Points(DataPoints(self.data.values[b]), self.units.problem(b), self.ends[:, b])


@dataclass(slots=True)
class ClutterSites:
    """Sites and posterior of one problem in working units; all with a leading axis for a batch."""

    site_tau: np.ndarray = declare(Array("B? N D"))
    site_rho: np.ndarray = declare(Array("B? N"))
    tau: np.ndarray = declare(Array("B? D"))  # of the posterior
    rho: float = declare(Array("B?", "positive"))
    # log of each scaled site at the posterior mean
    site_value: np.ndarray | None = declare(Array("B? N"), name="site_value", default=None)
    # of the data, in working units
    log_evidence: float = declare(Array("B?"), default=np.nan, name="log_evidence")
    # after power EP, log densities under the posterior of the others
    loo: np.ndarray | None = declare(Array("B? N", "any"), default=None)

    @classmethod
    def empty(cls, points):
        """Return sites of precision 0 for the points of one problem."""
        units = points.units
        return cls(np.zeros(points.shape), np.zeros(points.shape[0]), units.prior_tau.copy(), units.prior_rho)

    @classmethod
    def stack(cls, points, sites_of_problems):
        """Return the sites of each problem of a batch with a batch axis; of one problem, these."""
        if not points.is_batch:
            return sites_of_problems[0]
        names = sites_of_problems[0].stored()
        return cls(**{name: np.stack([getattr(sites, name) for sites in sites_of_problems]) for name in names})

    def stored(self):
        """Return the fields that are not None, by name."""
        return {name: getattr(self, name) for name in self.__slots__ if getattr(self, name) is not None}

    def problem(self, b):
        """Return the sites of problem b of a batch."""
        return ClutterSites(**{name: value[b] for name, value in self.stored().items()})

    @property
    def problems(self):
        """The sites of each problem of a batch; of one problem these alone."""
        return [self] if self.site_rho.ndim == 1 else [self.problem(b) for b in range(len(self.site_rho))]

    def part(self, rows):
        """The natural parameters of a slice of the sites of one problem."""
        return self.site_tau[rows], self.site_rho[rows]

    def copy_spans(self, spans):
        """Copies of the natural parameters of the sites of one problem in each of some spans of rows."""
        return [tuple(parameters.copy() for parameters in self.part(slice(*span))) for span in spans]

    @property
    def moments(self):
        """Mean and variance of the posterior."""
        return self.tau / (self.rho if self.tau.ndim == 1 else self.rho[:, None]), 1.0 / self.rho

    def combine(self, units, total):
        """log of the integral of prior times sites, from the total of `site_value`.

        It is their value at the posterior mean times (2 pi/rho)^(d/2).
        """
        shift = self.moments[0] - units.prior_tau / units.prior_rho
        distance2 = np.sum(shift * shift, axis=-1)
        d = self.tau.shape[-1]
        return total + 0.5 * (d * np.log(units.prior_rho / self.rho) - units.prior_rho * distance2)


def find_moment_change(old, new):
    """Largest change of spherical posteriors given as (mean, variance): means in standard deviations, variances."""
    shift = np.max(np.abs(new[0] - old[0]), axis=-1) / np.sqrt(new[1])
    return np.maximum(shift, np.abs(new[1] / old[1] - 1.0))
