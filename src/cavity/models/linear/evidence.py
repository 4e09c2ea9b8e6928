"""The log evidence of a GLM at given factors on prior variances and parameters of the likelihood, and its gradient.

References
----------
.. [M] Thomas Minka, "A family of algorithms for approximate Bayesian inference", PhD thesis, MIT, 2001.
.. [RW] C. E. Rasmussen and C. K. I. Williams, "Gaussian Processes for Machine Learning", 2006.
"""

from dataclasses import dataclass, replace

import numpy as np

from cavity.base.scales import LOG_SCALE
from cavity.ep.factories import make_engine
from cavity.ep.site_updates import find_cavities
from cavity.ep.sites import Sites
from cavity.ep.weights import make_weights
from cavity.jobs.job import SILENT_JOB
from cavity.likelihoods.parameters import PARAMETER_RANGE, differentiate, find_unit
from cavity.models.evaluations import WIDE_LOG_SD, EvidencePoint, FreeSettings
from cavity.models.hyperpriors import PriorTarget
from cavity.priors import LogNormal

PRIOR_VARIANCE = "prior_variance"
PRIOR_VARIANCE_TARGET = PriorTarget(PRIOR_VARIANCE, PRIOR_VARIANCE, LOG_SCALE)
MIN_REMAINING_SHARE = 1e-2  # of the change of a sweep: first ones, from far away, may shrink faster than later ones
LOG_FACTORS_TO_SCAN = tuple(float(np.log(10.0)) * k for k in (0, -2, 2, -4, 4, -6, 6, -8, 8))


@dataclass(frozen=True, slots=True)
class FactorSettings:
    """Settings of a search."""

    prior: object  # logs of factors on prior variances, (n,); of mixed models the covariances of all terms, a tuple
    likelihood: object


class FreeFactors(FreeSettings):
    """Logs of factors on prior variances, then free numbers of the likelihood."""

    scan = LOG_FACTORS_TO_SCAN

    def __init__(self, names, groups, likelihood, problem):
        self.groups, self.variance = groups, problem.prior.variance
        if PRIOR_VARIANCE not in names:
            self.labels = ()
        else:
            self.labels = (None,) if groups is None else np.unique(groups[groups >= 0])
        self.warns_of_flat = len(self.labels) == 1  # ARD: that one of several vanishes is no surprise
        names = [name for name in names if name != PRIOR_VARIANCE]
        unit, priors = find_unit(problem.used.y), problem.model.priors
        super().__init__(len(self.labels), likelihood, names, unit, priors, [PRIOR_VARIANCE_TARGET])

    def start(self, log_factor, likelihood):
        """The vector of a common factor and a likelihood."""
        return np.append(np.full(self.n_prior, log_factor), self.free.pack(likelihood))

    def unpack(self, x):
        """The settings of a vector."""
        return FactorSettings(x[: self.n_prior], self.likelihood_at(x))

    def add_default_priors(self):
        """Give a wide prior about where the search begins to what has none."""
        super().add_default_priors()
        start = FactorSettings(np.zeros(self.n_prior), self.likelihood)
        for name, value in zip(*self.describe_prior(start)[:2], strict=True):
            self.priors.setdefault(name, (LogNormal(value, WIDE_LOG_SD), LOG_SCALE))

    def prior_bounds(self):
        """(low, high) of every log factor."""
        return np.full((self.n_prior, 2), np.log(PARAMETER_RANGE)) * [-1.0, 1.0]

    def factors(self, log_factors, n):
        """A factor on each of n prior variances, or one on all."""
        if self.groups is None:
            return float(np.exp(log_factors[0]))
        out = np.ones(n)
        for label, value in zip(self.labels, log_factors, strict=True):
            out[self.groups == label] = np.exp(value)
        return out

    def describe_prior(self, settings):
        """Names and values of prior variances, or of factors on them, and their derivatives in the logs."""
        variance, names, units = self.variance, [], []
        for label in self.labels:
            variances = np.unique(variance if label is None else variance[self.groups == label])
            same = variances.size == 1 and variance.ndim < 2
            name = PRIOR_VARIANCE if same else f"{PRIOR_VARIANCE} factor"
            names.append(name if self.n_prior == 1 else f"{name}[{label}]")
            units.append(float(variances[0]) if same else 1.0)
        values = np.exp(settings.prior) * np.array(units)
        return names, values.tolist(), np.diag(values)

    def flat(self, x, i, *_):
        """A prior variance beyond which the evidence does not fall, in words: what, where, and what that means."""
        return "prior variance", f"{np.exp(x[i]):.1g} times the given one", ""


class LinearEvidence:
    """The log evidence of a problem at given settings by EP; each fit starts from the sites of the last one.

    If that fails, as from settings far away, the fit is repeated without first sites. Where it `stops_early`, a fit
    ends where the tolerance exceeds `share_left` times the change of a sweep: how much of the change the next sweep
    would make, by the last fit of several sweeps.
    """

    def __init__(self, problem, vector, threads, options):
        self.problem, self.vector, self.threads = problem, vector, threads
        self.options, self.start, self.job = replace(options, job=SILENT_JOB), None, options.job.substage("search")
        self.share_left, self.stops_early, self._sites = 1.0, False, None

    def for_integral(self, start, **arguments):
        """The same evidence for an integral, which reports nothing; the first fit starts from some sites."""
        other = type(self)(self.problem, self.vector, self.threads, self.options, **arguments)
        other.start = start
        return other

    def problem_at(self, settings):
        """The problem with the prior of some settings."""
        prior, problem = self.problem.prior, self.problem
        if not len(settings.prior):
            return problem
        factors = self.vector.factors(settings.prior, len(prior.mean))
        return problem.with_prior(prior.mean, prior.variance * factors)

    def best(self, settings):
        """The problem of a model with these settings."""
        problem = self.problem_at(settings)
        model = replace(problem.model, prior_variance=problem.prior.variance, likelihood=settings.likelihood)
        return replace(problem, model=model)

    def sites(self, likelihood):
        """The sites of the rows."""
        if self._sites is None:
            rows = self.problem.used
            self._sites = Sites(likelihood, rows.y, rows.weights, self.options.power)
        return self._sites.with_likelihood(likelihood)

    def constant(self, likelihood):
        """The part of the log evidence that no site has."""
        return 0.0

    def at(self, settings, **options):
        """Return the `EvidencePoint` of some settings; `options` replace those of EP."""
        problem = self.problem_at(settings)
        geometry = problem.geometry(self.threads, self.job)
        options = replace(self.options, **options)
        early = options
        if self.stops_early and self.start is not None:
            early = replace(options, tol=options.tol / self.share_left)
        fit = self._fit(geometry, settings.likelihood, early, "fit")
        if self.start is not None and (fit is None or not fit.converged):
            self.start = None
            if fit is not None and options.double_loop and fit.trace["double_loop"] >= options.double_loop:
                options = replace(options, double_loop=0)  # so many steps would not do from further away, either
            fit = self._fit(geometry, settings.likelihood, options, "fit without sites")
        if fit.converged and fit.tau is not None:
            self.start = fit.tau, fit.rho
            self.share_left = estimate_remaining_share(fit.trace, self.share_left)
        value = fit.log_evidence + self.problem.rows.log_p_known(settings.likelihood)[1]
        return EvidencePoint(settings, value, fit.belief, geometry, fit, problem)

    def gives_information(self, n_rows):
        """Whether points of `pass_at` may have information, with which a search moves from afar."""
        return False

    def pass_at(self, settings, informs=False):
        """Return the `EvidencePoint` of some settings after one pass from the first sites, which are its own then.

        Its log evidence is nan; None where arithmetic fails or cavities are improper. Evidences of mixed models give
        the information where `informs` says so.
        """
        problem, likelihood = self.problem_at(settings), settings.likelihood
        geometry = problem.geometry(self.threads, self.job)
        try:
            fit = make_engine(geometry, self.sites(likelihood), self.options, self.start).run_pass()
        except (ArithmeticError, np.linalg.LinAlgError):
            return None
        if fit.trace["improper"].any() or fit.tau is None or not np.isfinite(fit.trace["change"]).all():
            return None
        self.start = fit.tau, fit.rho
        return EvidencePoint(settings, fit.log_evidence, fit.belief, geometry, fit, problem)

    def find_converged_gradient(self, x, tol):
        """Return the gradient of log evidence and log prior at a vector by passes; None where fits have to do it."""
        settings = self.vector.unpack(x)
        for _ in range(self.options.max_iter):
            point = self.pass_at(settings)
            if point is None:
                break
            if point.fit.trace["change"][0] <= tol / self.share_left:
                return find_slopes(self, point)
        raise ArithmeticError("passes do not converge near the maximum")

    def estimate_change(self, settings, to_settings):
        """Return about how the log evidence changes between settings; nan unless the last point is at the first."""
        return np.nan

    def find_curvature(self, x, free):
        """Return minus the second derivatives of the log evidence and log prior near a maximum, (k, k), in some free
        numbers; None where gradients have to show them.
        """
        return None

    def find_start(self, settings):
        """Return the sites that the last fit starts from."""
        return self.start

    def posterior_of_sites(self, settings):
        """Return the belief of the first sites under the prior of some settings, None if it is not proper."""
        geometry = self.problem_at(settings).geometry(self.threads)
        return geometry.belief(*geometry.gather(*self.start))

    def _fit(self, geometry, likelihood, options, name):
        """Run the engine with a checkpoint of that name; None where arithmetic fails."""
        options = replace(options, job=self.job.substage(name).without_listeners())
        try:
            return make_engine(geometry, self.sites(likelihood), options, self.start).run()
        except (ArithmeticError, np.linalg.LinAlgError):
            if self.start is None:
                raise
            return None

    def gradient(self, point, vector):
        """The derivatives at a point in the free settings of a vector."""
        by_prior = self.prior_gradient(point, vector) if vector.n_prior else np.zeros(0)
        return np.append(by_prior, self.likelihood_gradient(point, vector.free))

    def prior_gradient(self, point, vector):
        """Derivatives in the logs of factors: of the expected log prior, as sites are constants at a fixed point
        [M]_, [RW]_ (section 5.5.2).
        """
        if vector.groups is None:
            return np.array([point.fit.belief.prior_slope()])
        prior = point.problem.prior
        mean, covariance = make_weights(prior.moments, point.geometry, point.fit.belief)
        slopes_of = find_weight_gradient(prior.variance, mean - prior.mean, covariance.variances())
        return np.array([np.sum(slopes_of[vector.groups == label]) for label in vector.labels])

    def likelihood_gradient(self, point, free):
        """Derivatives in the free numbers of the likelihood, at constant cavities."""
        if not free.size:
            return np.zeros(0)
        total, slopes = self._make_total(point, free)
        return differentiate(free, point.settings.likelihood, total, slopes)

    def _make_total(self, point, free, every=1):
        """Return total(likelihood), the part of the log evidence at the cavities of a point that depends on that, and
        its derivatives in free numbers that follow from the sites, by name.

        With `every` about that, from the first ones of each group of sites, one of so many.
        """
        likelihood, geometry, fit = point.settings.likelihood, point.geometry, point.fit
        sites, m, v = self.sites(likelihood), geometry.vector(), geometry.vector()
        # sites whose fit has no status yet are those of other settings
        scales = getattr(likelihood, "_log_scales", {}) if sites.compiled and fit.status else {}

        def leave(blocks):
            slope = 0.0
            for part, x in blocks:
                moments, at = geometry.values(fit.belief, part, x), (fit.tau[part], fit.rho[part])
                m[part], v[part], _ = find_cavities(*moments, *at, sites.part(sites.fraction, part))
                of_block = sites.slope_in_log_scale(part, m[part], v[part], *at) if scales else None
                slope = np.nan if of_block is None else slope + of_block
            return slope

        slope = sum(geometry.each_group(leave))

        def rest(likelihood):
            return self.problem.rows.log_p_known(likelihood)[1] + self.constant(likelihood)

        def total(likelihood):
            sites = self.sites(likelihood)
            parts = ((slice(start, start - (start - stop) // every),) for start, stop in geometry.groups)
            totals = self.threads.imap(lambda part: sites.total(m[part], v[part], part), parts)
            return every * sum(totals) + rest(likelihood)

        if np.isnan(slope):
            return total, {}
        others = zip(free.labels(), differentiate(free, likelihood, rest), strict=True)
        return total, {name: scales[name] * slope + other for name, other in others if name in scales}


def estimate_remaining_share(trace, last):
    """Return the share of the change of a sweep that sweeps after it would add, from the trace of a fit.

    Sweeps near a fixed point contract: changes that shrink by a rate r leave r/(1 - r) of the last one. Of one sweep
    alone that is not known, and the `last` share stays; steps of the double loop do not count.
    """
    changes = trace["change"]
    if trace["double_loop"]:
        return 1.0
    if len(changes) < 2:
        return last
    rate = float(np.max(changes[1:] / changes[:-1]))
    return float(np.clip(rate / (1.0 - rate), MIN_REMAINING_SHARE, 1.0)) if rate < 1.0 else 1.0


def find_slopes(evidence, point):
    """Return the gradient of the log evidence and the log prior at the sites of a point."""
    slopes = evidence.vector.gradient(evidence, point)
    of_prior = evidence.vector.log_prior(point.settings)[1]
    slopes[: len(of_prior)] += of_prior
    return slopes


def find_weight_gradient(prior_variance, difference, variances):
    """The derivatives for each weight, from its posterior mean less that of the prior and its posterior variance."""
    return 0.5 * ((difference**2 + variances) / prior_variance - 1.0)
