"""Hyperparameters of Gaussian processes: L-BFGS on log evidence plus log priors, from deterministic starts."""

from dataclasses import dataclass, replace

import numpy as np

from cavity.base.errors import within_range
from cavity.base.loop import CONVERGED, STOPPED
from cavity.base.scales import column_scales
from cavity.covariances import Periodic, Sum
from cavity.covariances.named import NOISE
from cavity.covariances.slots import free_slots, leaves
from cavity.likelihoods import Gaussian, Laplace, StudentT
from cavity.likelihoods.parameters import FreeParameters, unit_of
from cavity.models.gp.evidence import Settings
from cavity.models.learnt import Learnt
from cavity.models.search import (
    NO_FIXED_POINT,
    NOT_LEARNT,
    STARTS,
    Objective,
    climb,
    curvature,
    ended,
    errors_of,
    leave_plateaus,
    values_of,
    warn_without_start,
)

LENGTHSCALES_TRIED = (1.0, 0.25)  # lengthscales tried, in standard deviations of the columns times sqrt(columns)


class Vector:
    """The free settings as one vector: logs of covariance parameters, mean coefficients, those of the likelihood."""

    def __init__(self, settings, covariance, names, unit=1.0):
        self.settings, self.free = settings, FreeParameters(settings.likelihood, names, unit)
        self.exact = isinstance(settings.likelihood, Gaussian)
        self.n_covariance = len(settings.covariance.log_parameters) if covariance else 0
        # with Gaussian noise the best coefficients of the mean are known at any setting of the others
        self.n_mean = 0 if settings.coefficients is None or self.exact else len(settings.coefficients)

    @property
    def size(self):
        """The number of free settings."""
        return self.n_covariance + self.n_mean + self.free.size

    def pack(self, settings):
        """The vector of some settings."""
        mean = settings.coefficients if self.n_mean else ()
        of_likelihood = self.free.pack(settings.likelihood)
        return np.concatenate([settings.covariance.log_parameters[: self.n_covariance], mean, of_likelihood])

    def unpack(self, vector):
        """The settings of a vector."""
        covariance, mean, rest = np.split(vector, [self.n_covariance, self.n_covariance + self.n_mean])
        known = self.settings.covariance
        return replace(
            self.settings,
            covariance=known.with_log_parameters(covariance) if self.n_covariance else known,
            likelihood=self.free.unpack(rest, self.settings.likelihood),
            coefficients=mean if self.n_mean else self.settings.coefficients,
        )

    def bounds(self, *others):
        """(low, high) of every entry, for a start at the given settings, or at other vectors of the likelihood."""
        return np.array(
            [
                *self.settings.covariance.log_bounds[: self.n_covariance],
                *[(-np.inf, np.inf)] * self.n_mean,
                *self.free.bounds(self.settings.likelihood, *others),
            ]
        ).reshape(-1, 2)

    def gradient(self, evidence, point):
        """One vector of the parts of `Evidence.gradient`."""
        covariance, mean, likelihood = evidence.gradient(point, self.free)
        return np.concatenate([covariance[: self.n_covariance], mean[: self.n_mean], likelihood[: self.free.size]])

    def log_prior(self, settings):
        """The log prior of some settings, and its slopes in those of the covariance, if they are free."""
        value, slopes = settings.covariance.log_prior()
        return value, slopes[: self.n_covariance]

    def learnt(self, settings):
        """The record of what was found of the covariance and the likelihood, or None; a mean is in the model."""
        covariance = settings.covariance
        names = (*covariance.parameter_names[: self.n_covariance], *self.free.labels())
        if not names:
            return None
        logs = covariance.log_parameters[: self.n_covariance]
        values = (*np.exp(logs).tolist(), *self.free.values(settings.likelihood))
        return Learnt(names, values, (None,) * len(names), "standard errors: see the method standard_errors")


def starts(settings, rows, vector):
    """Bounds of the vector, and where to start: at the given settings, and at some of the scale of the rows."""
    real = isinstance(settings.likelihood, Gaussian | StudentT | Laplace)
    variance = _variance(settings, rows) if real else None
    given = vector.pack(settings)
    suggested = given[len(given) - vector.free.size :]
    if real:
        noise = (1.0 if vector.exact else 0.5) * np.log(NOISE * variance)
        suggested = np.where(vector.free.are_scales(), noise, suggested)
    bounds = vector.bounds(suggested)
    found = [np.clip(given, *bounds.T)]
    for factor in LENGTHSCALES_TRIED:
        candidate = given.copy()
        if vector.n_covariance:
            candidate[: vector.n_covariance] = scaled_to(settings.covariance, rows.X, factor, variance)
        candidate[len(given) - vector.free.size :] = suggested
        candidate = np.clip(candidate, *bounds.T)
        if not any(np.array_equal(candidate, other) for other in found):
            found.append(candidate)
    return bounds, found


def _variance(settings, rows):
    """Variance of y about its mean function by least squares."""
    rest = rows.y - rows.offset
    if settings.basis is not None:
        rest = rest - settings.basis @ np.linalg.lstsq(settings.basis, rest)[0]
    with np.errstate(over="ignore"):
        variance = float(np.mean(rest**2))
    within_range(variance, "the squares of y")
    return variance if variance > 0 else 1.0


def scaled_to(covariance, X, factor, variance):
    """Log parameters with lengthscales of `factor` column spreads and, if given, variances that share `variance`."""
    spread = column_scales(X)[1]
    spread = np.where(spread > 0, spread, 1.0)
    out = covariance.log_parameters.copy()
    terms = covariance.parts if isinstance(covariance, Sum) else (covariance,)
    term_of = np.repeat(np.arange(len(terms)), [len(leaves(term)) for term in terms])
    scaled = set()  # a product takes the variance once
    for i, slot in enumerate(free_slots(covariance)):
        columns = spread if getattr(slot.leaf, "columns", None) is None else spread[list(slot.leaf.columns)]
        if slot.role == "lengthscale":
            mean = np.max(columns) * np.sqrt(np.mean((columns / np.max(columns)) ** 2))
            size = mean if slot.index is None else columns[slot.index]
            out[i] = np.log(factor * size * np.sqrt(len(columns)))
        elif slot.role == "variance" and variance is not None and not isinstance(slot.leaf, Periodic):
            term = term_of[slot.place]
            if term not in scaled or slot.index is not None:
                out[i] = np.log(variance / len(terms))
                scaled.add(term)
    return out


@dataclass(frozen=True, slots=True, eq=False)
class Found:
    """What a search ended with."""

    settings: Settings
    trace: dict  # "learning" and "seconds" of every fixed point on the way
    status: str  # of the search
    learnt: Learnt | None = None


def learn(settings, evidence, covariance, names, n_starts, job):
    """Return the settings of the largest evidence found, as `Found`.

    Free are the coefficients of the mean, named parameters of the likelihood and, if said, those of the covariance. Of
    the deterministic starts the `n_starts` with the largest evidence are followed by L-BFGS-B.
    """
    vector = Vector(settings, covariance, names, unit_of(evidence.rows.y))
    if vector.size == 0:
        return Found(settings, {"learning": np.zeros(0)}, CONVERGED)
    objective, (bounds, found) = Objective(evidence, vector), starts(settings, evidence.rows, vector)
    tried = values_of(objective, found, job.stage(STARTS))
    ranked = [found[i] for i in np.argsort(tried, kind="stable") if np.isfinite(tried[i])]
    if not objective.values:
        warn_without_start(len(found))
        return Found(settings, objective.trace, STOPPED if job.stopped else NOT_LEARNT)
    begun = ranked[:n_starts]
    searches = job.through("search", begun, len(begun), "search")
    runs = [climb(objective, x, bounds, job=stage) for x, stage in searches]
    best = min(runs, key=lambda run: run[0])
    value, x, slope = leave_plateaus(objective, best, bounds, job.stage("plateaus"))
    status = ended(objective, value, slope, job)
    settings = vector.unpack(x)
    return Found(settings, objective.trace, status, vector.learnt(settings))


def with_errors(learnt, model, evidence):
    """Return the record of what a fit of a model has learnt with standard errors; a mean counts as known."""
    likelihood, covariance = model.likelihood, model.covariance
    own = [name for name in likelihood.parameters if any(name == label.partition("[")[0] for label in learnt.names)]
    unit = unit_of(evidence.rows.y)
    vector = Vector(Settings(covariance, likelihood), learnt.names[0] in covariance.parameter_names, own, unit)
    x, (low, high) = vector.pack(vector.settings), vector.bounds().T
    jacobian = np.diag(np.append(np.exp(x[: vector.n_covariance]), np.ones(vector.free.size)))
    jacobian[vector.n_covariance :, vector.n_covariance :] = vector.free.jacobian(likelihood)
    free = np.flatnonzero((x > low) & (x < high))
    bent = curvature(evidence, vector, x, free)
    sd, note = ([None] * len(x), NO_FIXED_POINT) if bent is None else errors_of(bent, free, jacobian, learnt.names)
    return replace(learnt, sd=tuple(sd), note=note)
