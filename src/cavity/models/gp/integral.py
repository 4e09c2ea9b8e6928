"""Integrals over the hyperparameters of a Gaussian process: default priors, and the posteriors at the points.

The posterior at a point is that of f at the U rows in use. An `Integration` has its means, and as entries the
precisions of the sites, alpha, and the variances (U each), and then the coefficients of a mean that was found.
"""

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from cavity.base.column_statistics import column_scales
from cavity.base.lazy_scipy import sparse
from cavity.base.public_objects import replace_unchecked
from cavity.base.scales import LOG_SCALE
from cavity.base.triangles import fill_symmetric
from cavity.covariances.kinds import Stationary
from cavity.covariances.program import get_program
from cavity.covariances.slots import get_values, list_free_slots
from cavity.ep import latent_solver
from cavity.ep.sites import Sites
from cavity.models.defaults import find_location_and_spread
from cavity.models.gp.evidence import Evidence, compute_leave_one_out
from cavity.models.integral import PointPosterior, SiteMoments
from cavity.models.integration import put_values
from cavity.models.process.starts import NOISE_SCALE_KINDS
from cavity.priors import PC, LogNormal
from cavity.runs.executors import Threads, single_blas

LARGE_IN_SPREADS, LARGE_IN_F = 2.5, 3.0  # sd of f: in spreads of y where it has a scale, in units of f elsewhere
LENGTHSCALE_LOG_SD = 1.0  # of the prior of lengthscales, about the spread of their columns
OTHER_LOG_SD = 2.0
MAX_AUTO_ROWS = 200  # up to which integrate="auto" integrates


@dataclass(frozen=True, slots=True)
class PriorOfVariance:
    """The prior of a variance whose square root has another one."""

    of_sd: object

    def log_density(self, value):
        """The log density of the variance."""
        sd = np.sqrt(value)
        return self.of_sd.log_density(sd) - np.log(2.0 * sd)

    def slope(self, value):
        """Its derivative in the log of the variance."""
        return 0.5 * self.of_sd.slope(np.sqrt(value)) - 0.5


def make_default_priors(covariance, likelihood, rows):
    """Return the prior of each free number of a covariance, its own or a default one, and its scale, by names.

    Standard deviations of f have penalised complexity priors, lengthscales log-normal ones about the spread of their
    columns times the root of the number of columns, others wide ones about where the search begins.
    """
    is_scaled, priors = isinstance(likelihood, NOISE_SCALE_KINDS), {}
    upper = LARGE_IN_SPREADS * find_location_and_spread(likelihood, rows)[1] if is_scaled else LARGE_IN_F
    spread = column_scales(rows.X, rows.weights)[1]
    spread = np.where(spread > 0, spread, 1.0)
    for slot in list_free_slots(covariance):
        prior = slot.leaf.priors.get(slot.name)
        if prior is None and slot.role == "lengthscale":
            chosen = np.asarray(slot.leaf._chosen(rows.X.shape[1]))
            spreads = spread[chosen if slot.index is None else chosen[[slot.index]]]
            prior = LogNormal(float(np.exp(np.mean(np.log(spreads))) * len(chosen) ** 0.5), LENGTHSCALE_LOG_SD)
        elif prior is None and slot.role == "variance" and isinstance(slot.leaf, Stationary):
            prior = PriorOfVariance(PC(upper))
        elif prior is None:
            prior = LogNormal(float(slot.value), OTHER_LOG_SD)
        priors[slot.full_name] = prior, LOG_SCALE
    return priors


class LatentValues:
    """The posterior of f at the rows in use of a fit; `find_covariance` returns its covariance."""

    def __init__(self, mean, variance, find_covariance):
        self.mean, self.variance, self._find_covariance = mean, variance, find_covariance

    @cached_property
    def matrix(self):
        """The covariance, (U, U)."""
        return self._find_covariance()

    def cross(self, rows):
        """The covariance of all rows: `rows` are the identity."""
        return self.matrix

    def solve_for(self, index):
        """The covariances of some values with all, (m, U)."""
        return self.matrix[index]

    def sample(self, n, rng):
        """Draws (n, U)."""
        values, vectors = np.linalg.eigh(self.matrix)
        root = vectors * np.sqrt(np.maximum(values, 0.0))
        return self.mean + rng.standard_normal((n, len(root))) @ root.T


class IntegralEvidence(Evidence):
    """The evidence of a fit, of open settings that are a `vector`, with posteriors at the points of an integral."""

    vector = None  # of `search.learn`

    def for_integral(self, start):
        """The same evidence: its matrices are those of one point at a time."""
        self.start = start
        return self

    def make_point_posterior(self, point):
        """Return the `PointPosterior` of an `EvidencePoint`."""
        return make_point_posterior(self, point)

    def find_covariance(self, settings, rho):
        """The posterior covariance (U, U) of f at settings, with sites of these precisions; it takes the matrices."""
        get_program(settings.covariance, self.rows.X.shape[1]).gram(self.rows.X, self.gram, self.threads)
        solver = latent_solver.factorise(self.gram, rho, self.buffer, self.threads)
        return fill_symmetric(latent_solver.find_covariance(self.gram, solver, rho, self.threads)).copy()


def make_point_posterior(evidence, point):
    """Return the `PointPosterior` of an `EvidencePoint` of a Gaussian process."""
    settings, belief, rows, fit = point.settings, point.belief, evidence.rows, point.fit
    mean, rho = point.geometry.base + belief.mean, belief.h.copy()
    if fit is None:
        solver = point.geometry.final_solver(belief)
        arguments = rho, mean, belief.alpha, evidence.threads
        variance, loo = compute_leave_one_out(rows, settings.likelihood, evidence.gram, solver, *arguments)
        tau = rho * rows.y
    else:
        variance, loo, tau, rho = belief.variance.copy(), fit.loo, fit.tau, fit.rho
    coefficients = np.zeros(0) if settings.basis is None else settings.back @ settings.coefficients

    def find_moments():
        sites = Sites(settings.likelihood, rows.y, rows.weights, evidence.options.power)
        return SiteMoments(sites, sparse.eye_array(rows.n, format="csr"), mean, variance, tau, rho)

    values = LatentValues(mean, variance, lambda: evidence.find_covariance(settings, rho))
    entries = np.concatenate([rho, belief.alpha, variance, coefficients])
    return PointPosterior(settings, values, entries, loo, find_moments)


def put_values_in(model, integration, number):
    """Return the model at a point of an integral."""
    own = dict(zip(model.covariance.parameter_names, get_values(model.covariance).tolist(), strict=True))
    own |= dict(zip(integration.names, integration.values[number].tolist(), strict=True))
    names = model.covariance.parameter_names
    log_values = np.clip(np.log([own[name] for name in names]), *np.transpose(model.covariance.log_bounds))
    coefficients = integration.entries[number, 3 * integration.means.shape[1] :]
    mean = model.mean if not len(coefficients) else coefficients if np.ndim(model.mean) else float(coefficients[0])
    return replace_unchecked(
        model,
        covariance=model.covariance.with_log_parameters(log_values),
        likelihood=put_values(model.likelihood, integration, number),
        mean=mean,
    )


def factorise_point(covariance, X, rho):
    """Return the solver of rows X with sites of these precisions, with a triangle of its own."""
    with Threads(1) as threads, single_blas():
        gram = np.empty((len(X), len(X)))
        get_program(covariance, X.shape[1]).gram(X, gram, threads)
        solver = latent_solver.factorise(gram, rho, np.empty_like(gram), threads)
    solver.clear()
    return solver
