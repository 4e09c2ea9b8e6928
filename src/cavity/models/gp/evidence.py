"""The log evidence of a Gaussian process at given settings, and its gradient: exact for Gaussian noise, else by EP.

References
----------
.. [RW] C. E. Rasmussen and C. K. I. Williams, "Gaussian Processes for Machine Learning", 2006.
"""

from dataclasses import dataclass, replace

import numpy as np

from cavity.base import arrays
from cavity.base.constants import LOG_2PI
from cavity.base.errors import NotPositiveDefiniteError, check_within_range
from cavity.base.loop import STOPPED_STATUS
from cavity.base.public_objects import replace_unchecked
from cavity.covariances.program import get_program
from cavity.covariances.slots import gather_free_gradient
from cavity.ep import latent_solver
from cavity.ep.engine import Engine
from cavity.ep.fit_result import FitResult
from cavity.ep.latent import Latent, LatentBelief
from cavity.ep.options import EP_SCHEDULES
from cavity.ep.site_updates import find_cavities
from cavity.ep.sites import Sites
from cavity.jobs.job import SILENT_JOB
from cavity.likelihoods import Gaussian
from cavity.likelihoods.parameters import FreeParameters, differentiate
from cavity.models.evaluations import EvidencePoint
from cavity.models.latent_posterior import AUTO_SCHEDULE, choose_schedule
from cavity.models.process.settings import compute_gaussian_log_density

MANY_ROWS_ADVICE = (  # what to say where the matrices of all rows do not fit into memory
    "; for so many rows there is cavity.StreamingGP, in cavity.sklearn StreamingGPRegressor and StreamingGPClassifier, "
    "on the command line cavity fit streaming-gp"
)


def allocate_matrices(n, count=2):
    """Return matrices for a fit of n rows; MemoryError, which names other methods, if they do not fit into memory."""
    return arrays.allocate_matrices(count, (n, n), "the fit: the covariance and a work matrix, each", MANY_ROWS_ADVICE)


@dataclass(slots=True, eq=False)
class ExtendedGeometry:
    """What is left of a geometry whose first rows were known: the prior means of f, and the solver of all rows."""

    base: np.ndarray
    solver: latent_solver.Solver

    def final_solver(self, belief):
        """The solver, whatever the belief."""
        return self.solver


class Evidence:
    """The evidence of some rows; it owns two N x N matrices, and the sites that the next fit starts from.

    With `first_solver`, that of the first rows for Gaussian noise, there is one matrix unless another one is needed.
    """

    program = None, None  # of the covariance of the last point
    sites = None  # those of the last point: its likelihood with the observations

    def __init__(self, likelihood, rows, threads, options, start=None, first_solver=None):
        self.all_rows, self.rows, self.threads, self.start = rows, rows.used(), threads, start
        exponent = options.power * np.minimum(1.0, self.rows.weight())
        self.options = replace(choose_schedule(options, likelihood, exponent), job=SILENT_JOB)
        self.first_solver = first_solver
        self.gram, self.buffer = (
            allocate_matrices(self.rows.n) if first_solver is None else (None, *allocate_matrices(self.rows.n, 1))
        )

    def at(self, settings, **options):
        """Return the EvidencePoint of some settings; options replace those of EP."""
        program = get_program(settings.covariance, self.rows.X.shape[1])
        self.program = settings.covariance, program
        with np.errstate(over="ignore", invalid="ignore"):  # what overflows is refused at the end
            self._prepare(program)
            is_exact = isinstance(settings.likelihood, Gaussian)
            point = self._exact(settings, program) if is_exact else self._ep(settings, options)
        self._check(point)
        return point

    def _check(self, point):
        """Raise OverflowError if the moments or the log evidence leave the range of float64."""
        check_within_range(np.append(point.belief.mean, point.log_evidence), "the moments and the log evidence")

    def _prepare(self, program):
        """Compute the covariance matrix of a program."""
        if self.first_solver is None:
            program.gram(self.rows.X, self.gram, self.threads)

    def _make_geometry(self, base):
        """Return the geometry of the last program, for prior means of f."""
        return Latent(self.gram, base, self.threads, self.buffer)

    def final(self, settings, options):
        """Return the EvidencePoint that a fit ends with, for options as the user gave them.

        The schedule "auto" tries the other one where the first finds no fixed point.
        """
        point = self.at(settings, job=options.job)
        if options.schedule != AUTO_SCHEDULE or point.converged or point.fit.status == STOPPED_STATUS:
            return point
        self.start = None
        (schedule,) = set(EP_SCHEDULES) - {self.options.schedule}
        other = self.at(settings, job=options.job, schedule=schedule)
        if other.converged:
            return other
        geometry = self._make_geometry(point.geometry.base)  # its work matrix was taken
        return replace(point, geometry=geometry)

    def _ep(self, settings, options):
        """Return the EvidencePoint of settings whose likelihood is not Gaussian, by EP."""
        rows = self.rows
        base = rows.offset
        if settings.basis is not None:
            base = base + settings.basis @ settings.coefficients  # offset + H c: (N, p) (p,)
        geometry = self._make_geometry(base)
        if self.sites is None or self.sites.likelihood is not settings.likelihood:
            self.sites = Sites(settings.likelihood, rows.y, rows.weights, self.options.power)
        sites = self.sites
        options = replace_unchecked(self.options, **options)
        fit = Engine(geometry, sites, options, self.start).run()
        if self.start is not None and not fit.converged and fit.status != STOPPED_STATUS:  # sites of settings far away
            self.start, geometry = None, self._make_geometry(base)
            fit = Engine(geometry, sites, options, self.start).run()
        if fit.converged:
            self.start = fit.tau, fit.rho
        value = fit.log_evidence + self.all_rows.log_p_known(settings.likelihood)[1]
        return EvidencePoint(settings, value, fit.belief, geometry, fit)

    def _exact(self, settings, program):
        """Gaussian noise [RW]_ (eq. 2.30); a row of weight w is w rows. The coefficients are the best ones."""
        rows, weight = self.rows, self.rows.weight()
        noise = rows.noise_variance(settings.likelihood)
        with np.errstate(over="ignore"):
            rho = check_within_range(np.broadcast_to(weight / noise, rows.y.shape).copy(), "precisions of the noise")
        if self.first_solver is None:
            diagonal = np.diagonal(self.gram)
            solver = latent_solver.factorise(self.gram, rho, self.buffer, self.threads)
        else:
            diagonal, solver = self._extended(program, rho)
        if solver is None:
            raise NotPositiveDefiniteError(
                "the covariance of the observations is not positive definite: noise of variance "
                f"{np.min(noise):.3g} is lost in rounding beside a prior variance of "
                f"{np.max(diagonal):.3g}; raise noise_variance"
            )
        base = rows.offset
        if settings.basis is not None:
            # generalised least squares: L^-1 S H c = L^-1 S (y - offset), S = R^(1/2), L L' = I + S K S
            columns = solver.forward(solver.root * settings.basis.T).T  # (N, p)
            target = solver.forward((solver.root * (rows.y - rows.offset))[None])[0]  # (N,)
            settings = replace(settings, coefficients=np.linalg.lstsq(columns, target)[0])
            base = base + settings.basis @ settings.coefficients  # offset + H c: (N, p) (p,)
        residual = rows.y - base
        g = rho * residual
        alpha, mean = latent_solver.solve(self.gram, solver, rho, g)  # (K + R^-1)^-1 (y - base), and K times it
        constants = np.sum(np.broadcast_to(weight * (np.log(noise) + LOG_2PI), residual.shape))
        value = -0.5 * (float(residual @ alpha) + solver.log_determinant + float(constants))
        belief = LatentBelief(rho, g, mean, None, alpha, solver.log_determinant)
        if self.first_solver is not None:
            return EvidencePoint(settings, value, belief, ExtendedGeometry(base, solver), None)
        geometry = self._make_geometry(base)
        geometry.hold(belief, solver)
        return EvidencePoint(settings, value, belief, geometry, None)

    def _extended(self, program, rho):
        """The prior variances and the solver of all rows; the covariance of all is made only if `solve` needs it."""
        X, n, variances = self.rows.X, len(self.first_solver.root), program.diagonal(self.rows.X)
        if not latent_solver.is_prior_weaker(variances, rho):
            (self.gram,) = allocate_matrices(len(X), 1)
            program.gram(X, self.gram, self.threads)
        cross, own = np.empty((len(X) - n, n)), np.empty((len(X) - n, len(X) - n))
        program.cross(X[n:], X[:n], cross, self.threads)
        program.gram(X[n:], own, self.threads)
        return variances, latent_solver.extend_solver(self.first_solver, cross, own, rho, self.buffer)

    def gradient(self, point, free=None):
        """Return the gradient in the log parameters of the covariance, in the coefficients and in the likelihood's.

        Those of the likelihood are the `FreeParameters` given, or else its log scales. At EP's fixed point the sites
        count as constants [RW]_ (eq. 5.23 and section 5.5.2).
        """
        settings, by_mean = point.settings, np.zeros(0)
        by_covariance, weights = self._covariance_gradient(point)
        if settings.coefficients is not None and point.fit is not None:
            by_mean = settings.basis.T @ point.belief.alpha  # H' alpha, (p,)
        return by_covariance, by_mean, self._likelihood_gradient(point, free, weights)

    def _covariance_gradient(self, point):
        """Return the gradient in the log parameters of the covariance, and the diagonal of that in the matrix."""
        weights = point.geometry.evidence_weights(point.belief)
        (covariance, program), X = self.program, self.rows.X
        if covariance is not point.settings.covariance:
            program = get_program(covariance := point.settings.covariance, X.shape[1])
        gradient = gather_free_gradient(covariance, program.contract(X, weights, None, self.threads), X.shape[1])
        return gradient, np.diagonal(weights)

    def _likelihood_gradient(self, point, free, weights):
        """Derivatives in the free numbers of the likelihood."""
        rows, likelihood = self.rows, point.settings.likelihood
        if point.fit is None:
            if rows.noise is not None:
                return np.zeros(0)
            rest = np.sum(1.0 - np.broadcast_to(rows.weight(), weights.shape))
            return np.array([float(np.sum(weights / point.belief.h)) + 0.5 * float(rest)])
        free = FreeParameters.scales(likelihood) if free is None else free
        if not free.size:
            return np.zeros(0)
        belief, fit = point.belief, point.fit
        fraction = Sites(likelihood, rows.y, rows.weights, self.options.power).fraction
        m, v, _ = find_cavities(point.geometry.base + belief.mean, belief.variance, fit.tau, fit.rho, fraction)

        def total(likelihood):
            sites = Sites(likelihood, rows.y, rows.weights, self.options.power)
            return sites.total(m, v) + self.all_rows.log_p_known(likelihood)[1]

        return differentiate(free, likelihood, total)


def make_fit(rows, point):
    """Return the `FitResult` of a point; of an exact one without leave-one-out densities."""
    if point.fit is not None:
        return point.fit
    trace = {"change": np.zeros(1), "improper": np.zeros(1, dtype=int), "double_loop": np.array(0)}
    h = point.belief.h
    values = dict(belief=point.belief, tau=h * rows.y, rho=h, log_evidence=point.log_evidence, loo=None, trace=trace)
    return FitResult.of_one_pass(**values)


def compute_leave_one_out(rows, likelihood, gram, solver, h, mean, alpha, threads):
    """Return variances and leave-one-out log densities of an exact fit [RW]_ (eq. 5.10 to 5.12).

    Without digits lost where the noise is small: one minus rho_i times the variance is an entry of B^-1. It takes the
    triangle of the solver.
    """
    variance, left = latent_solver.find_variances(gram, solver, h, threads), solver.find_inverse_diagonal(threads)
    return variance, leave_one_out_exactly(rows, likelihood, mean, variance, alpha, left)


def leave_one_out_exactly(rows, likelihood, mean, variance, alpha, left):
    """Return leave-one-out log densities of an exact fit; `left` (N,) is the diagonal of B^-1 [RW]_ (eq. 5.10)."""
    share = np.minimum(1.0, 1.0 / rows.weight())
    v = variance / (1.0 - share + share * left)
    return compute_gaussian_log_density(rows.y, mean - v * share * alpha, v + rows.noise_variance(likelihood))
