"""The log evidence of a Gaussian process over one column as a chain, and its gradient: linear in the number of rows."""

from dataclasses import dataclass, replace

import numpy as np

from cavity.base.arrays import error_of
from cavity.base.constants import LOG_2PI
from cavity.base.errors import NotPositiveDefiniteError, check_within_range
from cavity.ep.chain import Chain, Times
from cavity.ep.options import EP_SCHEDULES
from cavity.jobs.job import SILENT_JOB
from cavity.models.evaluations import EvidencePoint
from cavity.models.gp.chain_processes import gather_gradient, make_blocks
from cavity.models.gp.evidence import Evidence

PARALLEL_SCHEDULE = EP_SCHEDULES[0]


@dataclass(slots=True, eq=False)
class ExactBelief:
    """The filter of an exact fit; what needs the smoother is there once `complete` was called."""

    h: np.ndarray  # (N,)
    filtered: object  # a ChainFilter
    mean: np.ndarray | None = None
    variance: np.ndarray | None = None
    alpha: np.ndarray | None = None
    curvature: np.ndarray | None = None  # (N,): the diagonal of (I + R K)^-1 R
    gradient: np.ndarray | None = None  # (B, 2)

    def complete(self):
        """Run the smoother, once."""
        if self.mean is None:
            smoother, scatter = self.filtered.smooth(gradient=True), self.filtered.times.put
            self.mean, self.variance, self.alpha = map(scatter, (smoother.mean, smoother.variance, smoother.alpha))
            self.curvature, self.gradient = scatter(smoother.curvature), smoother.gradient
        return self


class ChainEvidence(Evidence):
    """The evidence of some rows of one column; it owns the order of their times."""

    def __init__(self, likelihood, rows, threads, options, start=None):
        if options.schedule not in ("auto", PARALLEL_SCHEDULE):
            raise error_of("schedule", f"must be 'auto' or 'parallel' for a chain, got {options.schedule!r}")
        self.all_rows, self.rows, self.threads, self.start = rows, rows.used(), threads, start
        self.options = replace(options, schedule=PARALLEL_SCHEDULE, job=SILENT_JOB)
        self.times = Times(self.rows.X[:, 0])
        self.blocks = None

    def at(self, settings, **options):
        """Return the EvidencePoint of some settings; options replace those of EP."""
        self.blocks = make_blocks(settings.covariance)
        return super().at(settings, **options)

    def final(self, settings, options):
        """Return the EvidencePoint that a fit ends with."""
        point = self.at(settings, job=options.job)
        if point.fit is None:
            point.belief.complete()
        check_within_range(point.belief.mean, "the moments")
        return point

    def _prepare(self, program):
        """There is no matrix."""

    def _make_geometry(self, base):
        """Return the geometry of the last settings, for prior means of f."""
        return Chain(self.blocks, self.times, base, self.threads)

    def _check(self, point):
        """Raise OverflowError if the log evidence leaves the range of float64; moments come later."""
        check_within_range(point.log_evidence, "the log evidence")

    def _exact(self, settings, _):
        """Gaussian noise; a row of weight w is w rows. The coefficients are the best ones."""
        rows, weight = self.rows, self.rows.weight()
        noise = rows.noise_variance(settings.likelihood)
        with np.errstate(over="ignore"):
            rho = check_within_range(np.broadcast_to(weight / noise, rows.y.shape).copy(), "precisions of the noise")
        geometry = self._make_geometry(rows.offset)
        if settings.basis is not None:
            # generalised least squares of the standardised residuals of the filter, which is linear in y
            columns = [geometry.filter(rho, rho * column, white=True).white for column in settings.basis.T]
            target = geometry.filter(rho, rho * (rows.y - rows.offset), white=True).white
            settings = replace(settings, coefficients=np.linalg.lstsq(np.column_stack(columns), target)[0])
            geometry.base = geometry.base + settings.basis @ settings.coefficients  # offset + H c: (N, p) (p,)
        residual = rows.y - geometry.base
        filtered = geometry.filter(rho, rho * residual)
        if not filtered.proper:
            raise NotPositiveDefiniteError(
                "the covariance of the observations is not positive definite: noise of variance "
                f"{np.min(noise):.3g} is lost in rounding beside a prior variance of "
                f"{geometry.prior_variance:.3g}; raise noise_variance"
            )
        constants = np.sum(np.broadcast_to(weight * (np.log(noise) + LOG_2PI), residual.shape))
        value = -0.5 * (filtered.square + filtered.log_determinant + float(constants))
        return EvidencePoint(settings, value, ExactBelief(rho, filtered), geometry, None)

    def _covariance_gradient(self, point):
        """Return the gradient in the log parameters of the covariance, and the diagonal of that in the matrix."""
        belief = point.belief
        if point.fit is None:
            gradient, alpha, curvature = belief.complete().gradient, belief.alpha, belief.curvature
        else:
            geometry = point.geometry
            smoother = geometry.filter(belief.h, belief.g).smooth(gradient=True)
            gradient, alpha, curvature = smoother.gradient, belief.alpha, geometry.times.put(smoother.curvature)
        return gather_gradient(point.settings.covariance, gradient), 0.5 * (alpha**2 - curvature)
