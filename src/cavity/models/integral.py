"""Posteriors integrated over hyperparameters, and corrections of their evidence and marginals.

The posterior of the free numbers of hyperparameters, EP's evidence times proper priors, is summed over the points of a
grid or a central composite design (`models.integration_designs`); effects are then a mixture of the posteriors at the
points. Each family of models says by `make_point_posterior` of its evidence what the posterior at a point is.

The evidences at the points are corrected by R of `ep.corrections`, which is found at the maximum and at two
points of each axis, and is a quadratic function between.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from itertools import count
from typing import Any, NamedTuple

import numpy as np

from cavity.base.arrays import error_of
from cavity.base.errors import NumericalWarning, warn
from cavity.base.lazy_scipy import special
from cavity.base.loop import CONVERGED_STATUS, STOPPED_STATUS
from cavity.ep.corrections import (
    MAX_PAIRED_ROWS,
    N_DRAWS,
    SKETCH_SEED,
    EvidenceCorrection,
    TiltedCumulants,
    correct_evidence,
    correct_marginals,
    find_tilted_cumulants,
    sketch_evidence_correction,
)
from cavity.likelihoods import Gaussian
from cavity.models.evaluations import Evaluations
from cavity.models.hyperpriors import find_log_volume
from cavity.models.integration import Integration
from cavity.models.integration_designs import (
    MAX_DESIGN_NUMBERS,
    MAX_GRID_NUMBERS,
    choose_method,
    integrate,
)
from cavity.models.search import CURVATURE_STEP
from cavity.models.standard_errors import curvature

MAX_AUTO_LEVELS, MAX_AUTO_NUMBERS = 30, 6  # of a group, and of hyperparameters, where "auto" integrates
AXIS_DISTANCE = 1.5  # standard deviations from the centre to where R is found on an axis
MAX_TRUSTED_CORRECTION = 0.5  # nats of R
MAX_CORRECTED_NUMBERS = 1 << 32  # of correlations between effects and rows
ROWS_PER_BLOCK, MAX_BLOCK_NUMBERS = 2048, 1 << 17  # of these correlations at a time
MAX_DOUBLE_LOOP_STEPS = 60  # at points apart from the maximum
MIN_POINT_TOL = 2e-6  # sd by which sweeps still to come change moments, at points apart from the maximum


class SiteMoments(NamedTuple):
    """The sites of a posterior at a point, and where their f are."""

    sites: Any
    matrix: Any  # (M, n): rows of effects, a matrix or a sparse one
    mean: np.ndarray  # (M,) of f
    variance: np.ndarray  # (M,)
    tau: np.ndarray  # (M,)
    rho: np.ndarray  # (M,)


@dataclass(frozen=True, slots=True, eq=False)
class PointPosterior:
    """The posterior at one point of an integral."""

    settings: Any
    effects: Any  # `mean`, `variance`, `cross`, `solve_for` and `sample`, as `Effects` of mixed models have them
    entries: np.ndarray  # (e,): see `Integration`
    loo: np.ndarray  # (N,) of the rows in use
    find_moments: Callable[[], SiteMoments]
    pin_precisions: np.ndarray | None = None
    start: Any = None  # sites from which fits nearby start
    values: dict[str, float] | None = None  # of hyperparameters


class StoppedIntegral(Exception):
    """The callback stopped the fit."""


def choose_integration(setting, n_free, is_small, power):
    """Return the method of a setting `integrate` of a model with so many open numbers, or None.

    With "auto" these are integrated if they are few, and where `is_small`: where few levels or rows determine them.
    ValueError for a power of EP that is not 1, for which there are no corrections.
    """
    if setting is False:
        return None
    if setting == "auto" and not (0 < n_free <= MAX_AUTO_NUMBERS and is_small and power == 1.0):
        return None
    if power != 1.0:
        raise error_of("integrate", f"must be False or 'auto' with power={power:g}: corrections are those of power=1")
    return choose_method(setting, n_free) if n_free else "mode"


def find_integral(evidence, search, job, method, start):
    """Return the `Integration` about a maximum or None, its log evidence, leave-one-out log densities, the effects at
    the points, and the status.

    Parameters
    ----------
    evidence : object
        Of the problem with open settings, with its `vector`, `for_integral(start)` and `make_point_posterior(point)`.
    search : SearchResult
        The maximum.
    job : Job
        Gets an event after each hyperparameter whose curvature is measured, and after each point.
    method : str
        One of METHOD_NAMES.
    start : tuple of ndarray
        Sites to start from.
    """
    if job.stopped:
        return None, None, None, None, search.status
    try:
        if method != "mode" and search.status != CONVERGED_STATUS:
            raise ArithmeticError(f"the search for their maximum ended with: {search.status}")
        return *integrate_posterior(evidence, search, job, method, start), search.status
    except StoppedIntegral:
        return None, None, None, None, STOPPED_STATUS
    except ArithmeticError as error:
        warn(f"there is no integral over hyperparameters: {error}", NumericalWarning)
        return None, None, None, None, search.status


def add_integral(fit, evidence, search, job, method, start):
    """Return a fit at the maximum with its evidence and leave-one-out densities integrated, the `Integration` or None,
    the effects at the points, and the status; see `find_integral`.
    """
    if not fit.converged:
        return fit, None, None, search.status
    integration, log_evidence, loo, effects, status = find_integral(evidence, search, job, method, start)
    if integration is None:
        return fit, None, None, status
    value = fit.log_evidence if log_evidence is None else log_evidence
    return replace(fit, log_evidence=value, loo=loo), integration, effects, status


def integrate_posterior(evidence, search, job, method, start):
    """Return the `Integration` of a model about the maximum, its log evidence, leave-one-out log densities, and the
    effects at the points.
    """
    vector = evidence.vector
    evidence = evidence.for_integral(start)
    mode = search.x if vector.size else np.zeros(0)
    labels = vector.describe(vector.unpack(mode))[0] if vector.size else []
    chosen = [i for i, name in enumerate(labels) if name in vector.priors] if method != "mode" else []
    index, hessian = vector.places[chosen], None
    ends = [labels[i] for i, k in zip(chosen, index, strict=True) if not _has_room(vector, mode, k)]
    if ends:
        warn(f"there is no integral: the maximum of the posterior is at a bound of {', '.join(ends)}", NumericalWarning)
        chosen = []
    if chosen:
        hessian = _find_hessian(evidence, vector, mode, index, job)
        chosen = [] if hessian is None else chosen
    evidence = evidence.for_integral(start)
    scales = {labels[i]: vector.priors[labels[i]][1] for i in chosen}
    job, counter, n_failed = job.stage("integral"), count(1), 0

    def evaluate(free, neighbours):
        nonlocal n_failed
        x = mode.copy()
        x[index] = free
        options = {}
        if neighbours:
            evidence.start = predict_sites([(weight, value.start) for weight, value in neighbours])
            options = {"tol": max(evidence.options.tol, MIN_POINT_TOL), "double_loop": MAX_DOUBLE_LOOP_STEPS}
            evidence.stops_early = True
        log_density, value = _evaluate_point(evidence, x, scales, options)
        n_failed += value is None and vector.is_inside(x)
        if job.report(next(counter)):
            raise StoppedIntegral
        return log_density, value and replace(value, start=evidence.start)

    if not chosen:
        index, method = index[:0], "mode"
        points = integrate(evaluate, np.zeros(0), np.zeros((0, 0)), "grid")
    else:
        _check_numbers(method, len(index))
        points = integrate(evaluate, mode[index], hessian, method, _correct_by_axes)
    if n_failed:
        warn(
            f"EP found no fixed point within {MAX_DOUBLE_LOOP_STEPS} steps of the double loop at {n_failed} of "
            f"{next(counter) - 1} points of the integral over hyperparameters: these have no weight",
            NumericalWarning,
        )
    return _summarise_points(points, method, [labels[i] for i in chosen], vector, n_failed)


def _find_hessian(evidence, vector, mode, index, job):
    """Return minus the second derivatives at a maximum in some numbers; None, with a warning, if not all are there."""
    hessian = curvature(Evaluations(evidence, vector), mode, index, job.stage("curvature"))
    if job.stopped:
        raise StoppedIntegral
    if hessian is not None and np.linalg.eigvalsh(hessian)[0] > 0:
        return hessian
    warn("there is no integral: the posterior of hyperparameters has no maximum of full curvature", NumericalWarning)
    return None


def _has_room(vector, x, k):
    """Whether number k of a vector can be moved as far as the curvature is measured, to both sides."""
    step = CURVATURE_STEP * (np.arange(len(x)) == k)
    return vector.is_inside(x - step) and vector.is_inside(x + step)


def _check_numbers(method, n):
    """Raise ValueError for more hyperparameters than a design has points for."""
    most = MAX_GRID_NUMBERS + 1 if method == "grid" else MAX_DESIGN_NUMBERS
    if n > most:
        way = "'ccd' has up to 8" if method == "grid" else "fix some of them"
        raise error_of("integrate", f"must be for at most {most} hyperparameters with {method!r}, got {n}: {way}")


def predict_sites(neighbours):
    """Return sites to start from, by the weights of those of neighbours, the nearest first."""
    weights, sites = zip(*neighbours, strict=True)
    if not all(isinstance(values, np.ndarray) for pair in sites for values in pair or [None]):
        return sites[0]
    return tuple(np.array(weights) @ np.stack(parts) for parts in zip(*sites, strict=True))


def _evaluate_point(evidence, x, scales, options):
    """Return the log posterior of free numbers and the `PointPosterior`, or None outside bounds or where EP fails.

    `scales` are those of the hyperparameters that are integrated, by their names; `options` replace those of EP.
    """
    vector = evidence.vector
    if not vector.is_inside(x):
        return None, None
    try:
        point = evidence.at(vector.unpack(x), **options)
        if not point.converged:
            return None, None
        value = evidence.make_point_posterior(point)
    except (ArithmeticError, np.linalg.LinAlgError):
        return None, None
    log_prior, description = vector.log_prior(point.settings)[0], vector.describe(point.settings)
    log_density = point.log_evidence + log_prior + find_log_volume(scales, *description)
    return log_density, replace(value, values=dict(zip(*description[:2], strict=True)))


def find_correction(point):
    """Return the `EvidenceCorrection` at a point, and what the marginals need: cumulants, correlations, sds of rows."""
    sites, matrix, mean, variance, tau, rho = point.find_moments()
    if isinstance(sites.likelihood, Gaussian):
        return EvidenceCorrection(0.0, 0.0), None
    cumulants = find_tilted_cumulants(sites, mean, variance, tau, rho)
    sd = np.sqrt(variance)
    correction, correlations = sum_over_pairs(cumulants, point.effects, matrix, sd)
    return correction, (cumulants, correlations, sd, matrix)


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
    if len(sd) <= MAX_PAIRED_ROWS or not hasattr(effects, "sample"):
        correlations = effects.cross(matrix) / sd / sd[:, None]
        return correct_evidence(cumulants, correlations), correlations
    steps = effects.sample(N_DRAWS, np.random.default_rng(SKETCH_SEED)) - effects.mean
    return sketch_evidence_correction(cumulants, (matrix @ steps.T).T / sd), None


def _correct_by_axes(u, values):
    """Return R at all points: found at the centre and at the nearest points of each axis, quadratic between.

    It is that of the centre at all points, with a warning, where it changes by more than half a nat and than itself up
    to a point of an axis; other points are as far from the centre at most.
    """
    centre = find_correction(values[0])[0].value
    out, most = np.full(len(u), centre), max(MAX_TRUSTED_CORRECTION, abs(centre))
    for axis in range(u.shape[1]):
        on_axis = np.flatnonzero((u[:, axis] != 0.0) & (np.sum(u != 0.0, axis=1) == 1))
        sides = [on_axis[side * u[on_axis, axis] > 0.0] for side in (-1.0, 1.0)]
        chosen = [side[np.argmin(np.abs(np.abs(u[side, axis]) - AXIS_DISTANCE))] for side in sides if len(side)]
        if chosen:
            at = u[chosen, axis]
            changes = np.array([find_correction(values[number])[0].value - centre for number in chosen])
            if not np.max(np.abs(changes)) <= most:
                _warn_of_correction(centre + changes[np.argmax(np.abs(changes))], " at a point of the integral")
                return np.full(len(u), centre)
            powers = np.arange(1, len(at) + 1)  # a line where there is one side only
            out += u[:, axis, None] ** powers @ np.linalg.solve(at[:, None] ** powers, changes)
    return np.clip(out, centre - most, centre + most)


def _warn_of_correction(value, place=""):
    """Warn that R is large at a place."""
    warn(
        f"the log evidence of EP may miss {value:.2g} nats{place}, more than a correction by cumulants can be trusted "
        "for: see check_approximation",
        NumericalWarning,
    )


def _summarise_points(points, method, names, vector, n_failed):
    """Return the `Integration` of evaluated points and what `integrate_posterior` returns with it."""
    first = points.values[0]
    correction, parts = find_correction(first)
    values = np.array([[value.values[name] for name in names] for value in points.values])
    pins = None if first.pin_precisions is None else np.stack([value.pin_precisions for value in points.values])
    skewness, factors = _correct_effects(first, parts)
    total = float(points.log_integral - points.plain_log_integral) if names else correction.value
    largest = max(correction.value, total, key=abs)
    if abs(largest) > MAX_TRUSTED_CORRECTION:
        _warn_of_correction(largest)
    result = Integration(
        method,
        tuple(names),
        tuple(vector.priors[name][1] or "" for name in names),
        values if names else None,
        points.z if names else None,
        points.weights,
        points.log_density,
        total,
        correction.standard_error,
        np.stack([value.effects.mean for value in points.values]),
        np.stack([value.entries for value in points.values]),
        skewness,
        factors,
        pins,
        n_failed,
    )
    with np.errstate(divide="ignore"):  # weights of points far away may be 0
        log_weights = np.log(points.weights)
    loo = -special.logsumexp(log_weights[:, None] - np.stack([p.loo for p in points.values]), axis=0)
    log_evidence = points.plain_log_integral if names else None
    return result, log_evidence, loo, [value.effects for value in points.values]


def _correct_effects(point, parts):
    """Return the skewness of all effects and the factors of their standard deviations."""
    n = len(point.effects.mean)
    skewness, factors = np.zeros(n), np.ones(n)
    if parts is None:
        return skewness, factors
    cumulants, correlations, sd, matrix = parts
    own, most = np.sqrt(point.effects.variance), MAX_CORRECTED_NUMBERS // len(sd)
    if n > most:
        warn(f"the marginals of the first {most} of {n} effects have skewness, those of others not", NumericalWarning)
    rows = len(sd) if correlations is not None else ROWS_PER_BLOCK
    blocks = [slice(first, first + rows) for first in range(0, len(sd), rows)]
    matrices = [matrix[block] for block in blocks]
    step = max(1, MAX_BLOCK_NUMBERS // rows)
    for first in range(0, min(n, most), step):
        index = np.arange(first, min(first + step, n, most))
        covariance = point.effects.solve_for(index) / own[index, None]
        skew = 0.0
        for block, block_matrix in zip(blocks, matrices, strict=True):
            scaled = (block_matrix @ covariance.T).T / sd[block]
            of_block = TiltedCumulants(cumulants.third[block], cumulants.fourth[block])
            added, factors[index] = correct_marginals(of_block, scaled, correlations)
            skew = skew + added
        skewness[index] = skew
    return skewness, factors
