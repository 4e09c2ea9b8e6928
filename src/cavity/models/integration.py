"""The points of an integral over hyperparameters, as posteriors and files have them, and their marginals."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from cavity.base import records
from cavity.base.arrays import check_choice
from cavity.base.lazy_scipy import interpolate
from cavity.base.public_objects import FloatArray, Frozen
from cavity.base.records import FINITE_REAL, Array, declare
from cavity.base.scales import SCALES_BY_NAME
from cavity.base.summary import Table, interval_names
from cavity.models.integration_designs import (
    MAX_GRID_NUMBERS,
    METHOD_NAMES,
    find_grid_step,
)
from cavity.models.marginal import TabulatedMarginal, tabulate_cells, tabulate_skew_normal

MIN_LOG_WEIGHT = -700.0  # of points
MIN_HALF_WIDTH = 1e-9  # of cells, where all points have one value
N_PARTS = 8  # of the step of a grid, where quantiles are interpolated
INTEGRATION_ARRAYS = ("weights", "log_density", "means", "entries", "skewness", "sd_factors")  # of files, together


@dataclass(frozen=True, eq=False, repr=False)
class Integration(Frozen):
    """Points of the integral over hyperparameters, and what corrects EP's evidence and marginals.

    Parameters
    ----------
    method : str
        "grid" or "ccd"; "mode" where there is the maximum only, with corrections.
    names : tuple of str
        Hyperparameters that are integrated, H of them.
    scales : tuple of str
        What their free numbers are: "log", "logit", "fisher z".
    values : ndarray (P, H) or None
        Their values at the points.
    coordinates : ndarray (P, H) or None
        The points in standard deviations of the normal approximation at the maximum, along its axes.
    weights : ndarray (P,)
        Posterior probabilities of the points.
    log_density : ndarray (P,)
        EP's log evidence plus the log prior of the free numbers, without corrections.
    evidence_correction : float
        R: what the third and fourth cumulants of tilted distributions add to the log evidence.
    correction_error : float
        Standard error of R, where it is found by draws of a fixed seed.
    means : ndarray (P, n)
        Means of all effects or weights at the points; of Gaussian processes of f at the rows in use.
    entries : ndarray (P, e)
        What the covariances at the points are made from: entries of precisions of effects (`MixedGLM`), roots of
        covariances of weights (`GLM`); of Gaussian processes the precisions of sites, the weights of rows in means of
        f, and variances of f, one after another.
    skewness : ndarray (n,)
        That of the effects, or weights, or f, at the maximum.
    sd_factors : ndarray (n,)
        By which their standard deviations are corrected.
    pin_precisions : ndarray (P, q) or None
        What constraints add to the precisions at the points.
    n_failed : int
        Further points at which EP found no fixed point; they have no weight.
    """

    method: str = declare(records.one_of(*METHOD_NAMES), name="method?")
    names: tuple[str, ...] = declare(records.names(), name="names?")
    scales: tuple[str, ...] = declare(records.names(), name="scales?")
    values: FloatArray | None = declare(Array("P H"), name="values?")
    coordinates: FloatArray | None = declare(Array("P H"), name="coordinates?")
    weights: FloatArray = declare(Array("P", "nonnegative"), name="weights?")
    log_density: FloatArray = declare(Array("P"), name="log_density?")
    evidence_correction: float = declare(FINITE_REAL, name="evidence_correction?")
    correction_error: float = declare(FINITE_REAL, name="correction_error?")
    means: FloatArray = declare(Array("P n"), name="means?")
    entries: FloatArray = declare(Array("P e"), name="entries?")
    skewness: FloatArray = declare(Array("n"), name="skewness?")
    sd_factors: FloatArray = declare(Array("n", "nonnegative"), name="sd_factors?")
    pin_precisions: FloatArray | None = declare(Array("P q", "positive"), default=None, name="pin_precisions?")
    n_failed: int = declare(records.integer(), default=0, name="n_failed?")

    def __repr__(self) -> str:
        return f"Integration: {self.describe()}\n{self.table()!r}" if self.names else f"Integration: {self.describe()}"

    def describe(self) -> str:
        """Return a sentence on what was done."""
        correction = f"the evidence is corrected by {self.evidence_correction:.4g} nats"
        if self.method == "mode":
            return f"no integral over hyperparameters; {correction}"
        points = f"{len(self.weights)} points of a {'grid' if self.method == 'grid' else 'central composite design'}"
        failed = f", without {self.n_failed} at which EP found no fixed point" if self.n_failed else ""
        return f"integrated over {', '.join(self.names)} by {points}{failed}; {correction}"

    def table(self, level: float = 0.95) -> Table:
        """Return the posterior of the hyperparameters.

        Parameters
        ----------
        level : float in (0, 1), default 0.95
            Probability of the intervals; as much is left out on either side.

        Returns
        -------
        Table
            Means and standard deviations over the points, and quantiles of `marginal`.
        """
        low, high = interval_names(level)
        p = [0.5 - 0.5 * level, 0.5, 0.5 + 0.5 * level]
        marginals = [self.marginal(name) for name in self.names]
        rows = [[marginal.mean, marginal.sd, *marginal.quantile(p)] for marginal in marginals]
        columns = dict(zip(("mean", "sd", low, "50%", high), np.reshape(rows, (-1, 5)).T, strict=True))
        return Table("Hyperparameters, integrated", self.names, columns, dict.fromkeys(columns, "sd"))

    def marginal(self, name: str) -> TabulatedMarginal:
        """Return the posterior of a hyperparameter.

        Parameters
        ----------
        name : str
            One of `names`.

        Returns
        -------
        TabulatedMarginal
            Its mean and sd are those over the points. The distribution function is interpolated on a grid of one or
            two hyperparameters; otherwise it is that of the skew-normal density with the moments of the free number.

        Raises
        ------
        ValueError
            For a hyperparameter that is not integrated.
        """
        number = self.names.index(check_choice(name, "name", self.names))
        values, scale = self.values[:, number], self.scales[number]
        mean = self.weights @ values
        moments = float(mean), float(np.sqrt(self.weights @ (values - mean) ** 2))
        free = SCALES_BY_NAME[scale].free(values)
        if self.method == "grid" and len(self.names) <= MAX_GRID_NUMBERS:
            return tabulate_cells(name, scale, moments, *self._refine_grid(free))
        centre = self.weights @ free
        spread = np.sqrt(self.weights @ (free - centre) ** 2)
        skewness = self.weights @ (free - centre) ** 3 / spread**3
        return tabulate_skew_normal(name, scale, moments, centre, spread, skewness)

    def _refine_grid(self, free):
        """Free numbers, linear in the coordinates z of the grid, on a grid of an eighth of the steps, the weights there
        and half the widths of cells: with the log weight plus u^2/2, which changes little, interpolated in u.
        """
        z = self.coordinates
        origin, *slopes = np.linalg.lstsq(np.column_stack([np.ones(len(z)), z]), free)[0]
        levels, at = zip(*(np.unique(column, return_inverse=True) for column in z.T), strict=True)
        at = np.column_stack(at)
        with np.errstate(divide="ignore"):
            rest = np.maximum(np.log(self.weights), MIN_LOG_WEIGHT)
        step = find_grid_step(z.shape[1])
        rest += 0.5 * np.sum((step * (at - at[0])) ** 2, axis=1)  # the first point is the centre
        sides = [np.arange(N_PARTS * (len(level) - 1) + 1) / N_PARTS for level in levels]
        fine = np.stack(np.meshgrid(*sides, indexing="ij"), axis=-1).reshape(-1, z.shape[1])
        varying = [axis for axis, level in enumerate(levels) if len(level) > 1]
        if not varying:
            inside = rest
        elif len(varying) == 1:
            order = np.argsort(at[:, varying[0]])
            inside = interpolate.CubicSpline(at[order, varying[0]], rest[order])(fine[:, varying[0]])
        else:
            inside = interpolate.CloughTocher2DInterpolator(at, rest)(fine)
            is_point = np.zeros(np.max(at, axis=0) + 1, dtype=bool)
            is_point[tuple(at.T)] = True  # the points of a grid are no convex set
            inside = np.where(is_point[tuple(np.rint(fine).astype(int).T)], inside, np.nan)
        weights = np.exp(
            np.where(np.isnan(inside), -np.inf, inside) - 0.5 * np.sum((step * (fine - at[0])) ** 2, axis=1)
        )
        curves = [_interpolate_levels(level, step) for level in levels]
        places, widths = (
            np.column_stack([curve(column, order) for curve, column in zip(curves, fine.T, strict=True)])
            for order in (0, 1)
        )
        places = origin + places @ np.array(slopes)
        half = np.maximum(0.5 / N_PARTS * widths @ np.abs(slopes), MIN_HALF_WIDTH * (1.0 + np.abs(places)))
        return places, weights / np.sum(weights), half


def _interpolate_levels(level, step):
    """Return the coordinates of a grid along an axis as a function of their number."""
    if len(level) > 1:
        return interpolate.CubicSpline(np.arange(len(level)), level)
    return interpolate.PPoly([[step], level], [0.0, 1.0])  # the points beside have no density


def put_values(likelihood, integration, number):
    """Return a likelihood with its parameters at a point of an integral; those not integrated stay as they are."""
    changes = {}
    values = integration.values[number] if integration.names else ()
    for name, value in zip(integration.names, values, strict=True):
        own, bracket, entry = name.partition("[")
        if own not in likelihood.parameters:
            continue
        if bracket:
            changes.setdefault(own, np.array(getattr(likelihood, own), dtype=np.float64))[int(entry[:-1])] = value
        else:
            changes[own] = float(value)
    return replace(likelihood, **changes) if changes else likelihood


INTEGRATE_SETTING = records.Setting("false or a method", lambda value: value in (False, "auto", *METHOD_NAMES))


INTEGRATION_PART = records.Part(Integration, "integration_")  # the field `integration` of posteriors
INTEGRATION_DESCRIPTION = "The points of an integral over hyperparameters, and corrections."
