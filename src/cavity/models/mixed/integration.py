"""Posteriors of mixed models integrated over hyperparameters, and corrections of their evidence and marginals.

The posterior of the free numbers of hyperparameters, EP's evidence times proper priors, is summed over the points of a
grid or a central composite design (`models.integration_designs`); effects are then a mixture of the posteriors at the
points. The evidences at the points are corrected by R of `ep.corrections`, which is found at the maximum and at two
points of each axis, and is a quadratic function between.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from itertools import count
from typing import Any

import numpy as np

from cavity.base import records
from cavity.base.errors import NumericalWarning, warn
from cavity.base.lazy_scipy import interpolate, special
from cavity.base.public_objects import FloatArray, Frozen
from cavity.base.records import FINITE_REAL, Array, declare
from cavity.base.summary import Table, interval_names
from cavity.ep.corrections import (
    MAX_PAIRED_ROWS,
    N_DRAWS,
    SKETCH_SEED,
    EvidenceCorrection,
    correct_evidence,
    correct_marginals,
    find_tilted_cumulants,
    sketch_evidence_correction,
)
from cavity.jobs.job import SILENT_JOB
from cavity.likelihoods import Gaussian
from cavity.models.evaluations import Evaluations
from cavity.models.hyperpriors import find_log_volume
from cavity.models.integration_designs import GRID_STEP, MAX_DESIGN_NUMBERS, MAX_GRID_NUMBERS, choose_method, integrate
from cavity.models.linear.evidence import FactorSettings
from cavity.models.mixed.effect_mixture import EffectMixture
from cavity.models.mixed.effects import Effects
from cavity.models.standard_errors import curvature
from cavity.priors.densities import FISHER_Z_SCALE, LOG_SCALE, LOGIT_SCALE

METHOD_NAMES = ("grid", "ccd", "mode")
MAX_AUTO_LEVELS, MAX_AUTO_NUMBERS = 30, 6  # of a group, and of hyperparameters, where "auto" integrates
AXIS_DISTANCE = 1.5  # standard deviations from the centre to where R is found on an axis
MAX_TRUSTED_CORRECTION = 0.5  # nats of R
MIN_LOG_WEIGHT = -700.0  # of points
N_PARTS = 8  # of the step of a grid, where quantiles are interpolated
MAX_DENSE_NUMBERS = 1 << 25  # of correlations between effects and rows
FREE_NUMBERS = {  # of hyperparameters by their scales, and the way back
    LOG_SCALE: (np.log, np.exp),
    LOGIT_SCALE: (lambda share: np.log(share) - np.log1p(-share), lambda free: 1.0 / (1.0 + np.exp(-free))),
    FISHER_Z_SCALE: (lambda r: 2.0 * np.arctanh(r), lambda free: np.tanh(0.5 * free)),
    "": (np.positive, np.positive),
}


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
        Means of all effects at the points.
    entries : ndarray (P, e)
        Entries of the precisions of all effects at the points.
    skewness : ndarray (n,)
        That of the effects at the maximum.
    sd_factors : ndarray (n,)
        By which standard deviations of effects are corrected.
    pin_precisions : ndarray (P, q) or None
        What constraints add to the precisions at the points.
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

    def __repr__(self) -> str:
        return f"Integration: {self.describe()}\n{self.table()!r}" if self.names else f"Integration: {self.describe()}"

    def describe(self) -> str:
        """Return a sentence on what was done."""
        correction = f"the evidence is corrected by {self.evidence_correction:.4g} nats"
        if self.method == "mode":
            return f"no integral over hyperparameters; {correction}"
        points = f"{len(self.weights)} points of a {'grid' if self.method == 'grid' else 'central composite design'}"
        return f"integrated over {', '.join(self.names)} by {points}; {correction}"

    def table(self, level: float = 0.95) -> Table:
        """Return the posterior of the hyperparameters.

        Parameters
        ----------
        level : float in (0, 1), default 0.95
            Probability of the intervals; as much is left out on either side.

        Returns
        -------
        Table
            Means and standard deviations over the points. Intervals of a grid are those of its distribution function,
            interpolated; of a design they are those of the moments of free numbers with their skewness (Cornish and
            Fisher's expansion).
        """
        low, high = interval_names(level)
        rows = [self._summarise(number, level) for number in range(len(self.names))]
        columns = dict(zip(("mean", "sd", low, "50%", high), np.reshape(rows, (-1, 5)).T, strict=True))
        return Table("Hyperparameters, integrated", self.names, columns, dict.fromkeys(columns, "sd"))

    def _summarise(self, number, level):
        """Mean, sd and quantiles of a hyperparameter."""
        values, scale = self.values[:, number], self.scales[number]
        mean = self.weights @ values
        sd = np.sqrt(self.weights @ (values - mean) ** 2)
        to_free, from_free = FREE_NUMBERS[scale]
        free = to_free(values)
        p = np.array([0.5 - 0.5 * level, 0.5, 0.5 + 0.5 * level])
        if self.method == "grid" and len(self.names) <= MAX_GRID_NUMBERS:
            return [mean, sd, *from_free(self._find_grid_quantiles(free, p))]
        centre = self.weights @ free
        spread = np.sqrt(self.weights @ (free - centre) ** 2)
        skewness = self.weights @ (free - centre) ** 3 / spread**3
        z = special.ndtri(p)
        return [mean, sd, *from_free(centre + spread * (z + skewness * (z**2 - 1.0) / 6.0))]

    def _find_grid_quantiles(self, free, p):
        """Quantiles of free numbers, linear in the coordinates z of the grid: on a grid of an eighth of the step, with
        the log density plus |z|^2/2, which changes little, interpolated between points.
        """
        z = self.coordinates
        origin, *steps = np.linalg.lstsq(np.column_stack([np.ones(len(z)), z]), free)[0]
        with np.errstate(divide="ignore"):
            rest = np.maximum(np.log(self.weights), MIN_LOG_WEIGHT)
        rest += 0.5 * np.sum(z**2, axis=1)
        sides = [
            np.arange(low, high + 0.5 * GRID_STEP / N_PARTS, GRID_STEP / N_PARTS)
            for low, high in zip(z.min(axis=0), z.max(axis=0), strict=True)
        ]
        fine = np.stack(np.meshgrid(*sides, indexing="ij"), axis=-1).reshape(-1, z.shape[1])
        if z.shape[1] == 1:
            order = np.argsort(z[:, 0])
            inside = interpolate.CubicSpline(z[order, 0], rest[order])(fine[:, 0])
        else:
            inside = interpolate.LinearNDInterpolator(z, rest)(fine)
            nearest = set(map(tuple, np.rint(z / GRID_STEP).astype(int).tolist()))
            is_near = [tuple(point) in nearest for point in np.rint(fine / GRID_STEP).astype(int).tolist()]
            inside = np.where(is_near, inside, np.nan)  # the points of a grid are no convex set
        weights = np.exp(np.where(np.isnan(inside), -np.inf, inside) - 0.5 * np.sum(fine**2, axis=1))
        values = origin + fine @ np.array(steps)
        order = np.argsort(values)
        weights = weights[order] / np.sum(weights)
        return np.interp(p, np.cumsum(weights) - 0.5 * weights, values[order])


def mix_effects(integration, mode):
    """Return the mixture of effects at the points of an integral, on the pattern of those at the mode."""
    points = []
    for number in range(len(integration.weights)):
        pins = {} if integration.pin_precisions is None else {"pin_precisions": integration.pin_precisions[number]}
        points.append(replace(mode, mean=integration.means[number], entries=integration.entries[number], **pins))
    return EffectMixture(points, integration.weights)


class StoppedIntegral(Exception):
    """The callback stopped the fit."""


@dataclass(frozen=True, slots=True, eq=False)
class PointPosterior:
    """The posterior at one point of an integral."""

    settings: Any
    effects: Effects
    fit: Any  # with an entry for each row
    site_fit: Any  # with an entry for each site
    sites: Any


def choose_integration(setting, terms, n_free):
    """Return the method of a setting `integrate` of a model with so many open numbers, or None."""
    if setting is False:
        return None
    if setting == "auto":
        levels = [len(term.levels) for term in terms if hasattr(term, "levels")]
        if not (0 < n_free <= MAX_AUTO_NUMBERS and levels and min(levels) <= MAX_AUTO_LEVELS):
            return None
    return choose_method(setting, n_free) if n_free else "mode"


def integrate_posterior(evidence, search, options, method, start):
    """Return the `Integration` of a model about the maximum that a search has found, the posterior there, and its loo.

    Parameters
    ----------
    evidence : MixedEvidence
        Of the problem with open settings.
    search : SearchResult
        Its maximum.
    options : Options
        Of the fits.
    method : str
        One of METHOD_NAMES.
    start : tuple of ndarray
        Sites to start from.
    """
    vector = evidence.vector
    evidence = type(evidence)(evidence.problem, vector, evidence.threads, replace(options, job=SILENT_JOB))
    evidence.is_exact = False  # leave-one-out densities need sites
    problem = search.optimum
    best = FactorSettings(problem.settings, problem.model.likelihood)
    mode = vector.pack(best) if vector.size else np.zeros(0)
    evidence.start = start
    labels = vector.describe(vector.unpack(mode))[0] if vector.size else []
    index = [i for i, name in enumerate(labels) if name in vector.priors] if method != "mode" else []
    hessian = None
    if index:
        hessian = curvature(Evaluations(evidence, vector), mode, np.array(index))
        if hessian is None or not np.linalg.eigvalsh(hessian)[0] > 0:
            warn(
                "there is no integral: the posterior of hyperparameters has no maximum of full curvature",
                NumericalWarning,
            )
            index = []
    evidence.start = start
    scales = {labels[i]: vector.priors[labels[i]][1] for i in index}
    job, counter = options.job.stage("integral"), count(1)

    def evaluate(free):
        x = mode.copy()
        x[index] = free
        value = _evaluate_point(evidence, x, scales)
        if job.report(next(counter)):
            raise StoppedIntegral
        return value

    if not index:
        points = integrate(evaluate, np.zeros(0), np.zeros((0, 0)), "grid")
        method = "mode"
    else:
        _check_numbers(method, len(index))
        points = integrate(evaluate, mode[index], hessian, method, _correct_by_axes)
    return _summarise_points(points, method, [labels[i] for i in index], vector)


def _check_numbers(method, n):
    """Raise ValueError for more hyperparameters than a design has points for."""
    most = MAX_GRID_NUMBERS + 1 if method == "grid" else MAX_DESIGN_NUMBERS
    if n > most:
        way = "'ccd' has up to 8" if method == "grid" else "fix some by effect_covariances"
        raise ValueError(f"integrate={method!r} has at most {most} hyperparameters, got {n}: {way}")


def _evaluate_point(evidence, x, scales):
    """Return the log posterior of free numbers and the `PointPosterior`, or None where EP does not converge.

    `scales` are those of the hyperparameters that are integrated, by their names.
    """
    vector = evidence.vector
    try:
        point = evidence.at(vector.unpack(x))
    except (ArithmeticError, np.linalg.LinAlgError):
        return None, None
    if not point.converged:
        return None, None
    merged, log_prior = evidence.problem.sites, vector.log_prior(point.settings)[0]
    effects = Effects.of(point.geometry, point.belief)
    sites = evidence.sites(point.settings.likelihood)
    value = PointPosterior(
        point.settings, effects, merged.expand(point.fit, point.settings.likelihood), point.fit, (sites, merged.matrix)
    )
    volume = find_log_volume(scales, *vector.describe(point.settings))
    return point.log_evidence + log_prior + volume, value


def find_correction(point):
    """Return the `EvidenceCorrection` at a point, and what the marginals need: cumulants, correlations, sds of rows."""
    (sites, matrix), fit, effects = point.sites, point.site_fit, point.effects
    belief = fit.belief
    if isinstance(sites.likelihood, Gaussian):
        return EvidenceCorrection(0.0, 0.0), None
    cumulants = find_tilted_cumulants(sites, belief.mean, belief.variance, fit.tau, fit.rho)
    sd = np.sqrt(belief.variance)
    correction, correlations = sum_over_pairs(cumulants, effects, matrix, sd)
    return correction, (cumulants, correlations, sd)


def sum_over_pairs(cumulants, effects, matrix, sd):
    """Return the `EvidenceCorrection` of rows of effects, and the correlations of these, None where it is a sketch.

    Parameters
    ----------
    cumulants : TiltedCumulants
        Of the rows.
    effects : Effects
        The posterior.
    matrix : CSR array (N, n)
        The rows.
    sd : ndarray (N,)
        Posterior standard deviations of f.
    """
    if len(sd) <= MAX_PAIRED_ROWS:
        correlations = effects.cross(matrix) / sd / sd[:, None]
        return correct_evidence(cumulants, correlations), correlations
    steps = effects.sample(N_DRAWS, np.random.default_rng(SKETCH_SEED)) - effects.mean
    return sketch_evidence_correction(cumulants, (matrix @ steps.T).T / sd), None


def _correct_by_axes(z, values):
    """Return R at all points: found at the centre and at the nearest points of each axis, quadratic between."""
    centre = find_correction(values[0])[0].value
    out = np.full(len(z), centre)
    for axis in range(z.shape[1]):
        on_axis = np.flatnonzero((z[:, axis] != 0.0) & (np.sum(z != 0.0, axis=1) == 1))
        sides = [on_axis[side * z[on_axis, axis] > 0.0] for side in (-1.0, 1.0)]
        chosen = [here[np.argmin(np.abs(np.abs(z[here, axis]) - AXIS_DISTANCE))] for here in sides if len(here)]
        if chosen:
            at = z[chosen, axis]
            changes = np.array([find_correction(values[number])[0].value - centre for number in chosen])
            powers = np.arange(1, len(at) + 1)  # a line where there is one side only
            out += z[:, axis, None] ** powers @ np.linalg.solve(at[:, None] ** powers, changes)
    return out


def _summarise_points(points, method, names, vector):
    """Return the Integration of evaluated points, the posterior at the mode, and log densities of rows left out."""
    first = points.values[0]
    correction, parts = find_correction(first)
    described = [vector.describe(each.settings) for each in points.values] if names else []
    values = np.array([[dict(zip(label, value, strict=True))[name] for name in names] for label, value, _ in described])
    pins = None
    if first.effects.pins is not None:
        pins = np.stack([each.effects.pin_precisions for each in points.values])
    skewness, factors = _correct_effects(first, parts)
    if abs(correction.value) > MAX_TRUSTED_CORRECTION:
        warn(
            f"the log evidence of EP may miss {correction.value:.2g} nats, more than a correction by cumulants can be "
            "trusted for: see check_approximation",
            NumericalWarning,
        )
    result = Integration(
        method,
        tuple(names),
        tuple(vector.priors[name][1] or "" for name in names),
        values if names else None,
        points.z if names else None,
        points.weights,
        points.log_density,
        float(points.log_integral - points.plain_log_integral) if names else correction.value,
        correction.standard_error,
        np.stack([each.effects.mean for each in points.values]),
        np.stack([each.effects.entries for each in points.values]),
        skewness,
        factors,
        pins,
    )
    loo = -special.logsumexp(np.log(points.weights)[:, None] - np.stack([p.fit.loo for p in points.values]), axis=0)
    log_evidence = points.plain_log_integral if names else None
    return result, log_evidence, loo


def _correct_effects(point, parts):
    """Return the skewness of all effects and the factors of their standard deviations."""
    n = len(point.effects.mean)
    if parts is None:
        return np.zeros(n), np.ones(n)
    cumulants, correlations, sd = parts
    skewness, factors = np.empty(n), np.empty(n)
    matrix = point.sites[1]
    step = max(1, MAX_DENSE_NUMBERS // max(n, len(sd)))
    own = np.sqrt(point.effects.variance)
    for first in range(0, n, step):
        some = np.arange(first, min(first + step, n))
        covariance = point.effects.solve_for(some) @ matrix.T
        here = covariance / own[some, None] / sd
        skewness[some], factors[some] = correct_marginals(cumulants, here, correlations)
    return skewness, factors
