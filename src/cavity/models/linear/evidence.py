"""The log evidence of a GLM at given factors on prior variances and parameters of the likelihood, and its gradient.

References
----------
.. [M] Thomas Minka, "A family of algorithms for approximate Bayesian inference", PhD thesis, MIT, 2001.
.. [RW] C. E. Rasmussen and C. K. I. Williams, "Gaussian Processes for Machine Learning", 2006.
"""

from dataclasses import dataclass, replace

import numpy as np

from cavity.ep.placement import make_engine
from cavity.ep.sites import Sites
from cavity.ep.visits import cavities
from cavity.ep.weights import weights_of
from cavity.jobs.job import QUIET
from cavity.likelihoods.parameters import PARAMETER_RANGE, FreeParameters, slopes

PRIOR = "prior_variance"
SCAN = tuple(float(np.log(10.0)) * k for k in (0, -2, 2, -4, 4, -6, 6, -8, 8))  # log factors to start from


@dataclass(frozen=True, slots=True)
class Settings:
    """What is searched: factors on prior variances, as logs, and the likelihood."""

    log_factors: np.ndarray
    likelihood: object


class FreeSettings:
    """Base of the free settings as one vector: `n_prior` numbers of the prior, then `free` ones of the likelihood."""

    @property
    def size(self):
        """The number of free settings."""
        return self.n_prior + self.free.size

    def gradient(self, evidence, point):
        """That of the log evidence at a point."""
        return evidence.gradient(point, self)


class Vector(FreeSettings):
    """The free settings as one vector: logs of factors on prior variances, then free numbers of the likelihood."""

    scan = SCAN

    def __init__(self, names, groups, likelihood, unit):
        self.groups = groups
        self.labels = () if PRIOR not in names else (None,) if groups is None else np.unique(groups[groups >= 0])
        self.n_prior = len(self.labels)
        self.warns_of_flat = self.n_prior == 1  # that one of several vanishes is what is asked for
        self.free = FreeParameters(likelihood, [name for name in names if name != PRIOR], unit)
        self.likelihood = likelihood

    def pack(self, log_factor, likelihood):
        """The vector of a common factor and a likelihood."""
        return np.append(np.full(self.n_prior, log_factor), self.free.pack(likelihood))

    def unpack(self, x):
        """The settings of a vector."""
        return Settings(x[: self.n_prior], self.free.unpack(x[self.n_prior :], self.likelihood))

    def bounds(self, *others):
        """(low, high) of every entry."""
        far = np.log(PARAMETER_RANGE)
        prior = np.full((self.n_prior, 2), far) * [-1.0, 1.0]
        return np.concatenate([prior, self.free.bounds(self.likelihood, *map(self.free.pack, others))])

    def factors(self, log_factors, n):
        """A factor on each of n prior variances, or one on all."""
        if self.groups is None:
            return float(np.exp(log_factors[0]))
        out = np.ones(n)
        for label, value in zip(self.labels, log_factors, strict=True):
            out[self.groups == label] = np.exp(value)
        return out

    def described(self, settings, problem):
        """Names and values of the free settings, and their derivatives in the free numbers, (n, n)."""
        variance, names, units = problem.prior.variance, [], []
        for label in self.labels:
            own = np.unique(variance if label is None else variance[self.groups == label])
            same = own.size == 1 and variance.ndim < 2
            name = PRIOR if same else f"{PRIOR} factor"
            names.append(name if self.n_prior == 1 else f"{name}[{label}]")
            units.append(float(own[0]) if same else 1.0)
        factors = np.exp(settings.log_factors) * np.array(units)
        slopes_of = np.diag(np.append(factors, np.zeros(self.free.size)))
        slopes_of[self.n_prior :, self.n_prior :] = self.free.jacobian(settings.likelihood)
        values = [*factors.tolist(), *self.free.values(settings.likelihood)]
        return [*names, *self.free.labels()], values, slopes_of

    def flat(self, x, i, _):
        """A prior variance beyond which the evidence does not fall, in words: what, where, and what that means."""
        return "prior variance", f"{np.exp(x[i]):.1g} times the given one", ""

    def log_prior(self, _):
        """No settings are more likely than others."""
        return 0.0, np.zeros(0)


@dataclass(slots=True)
class EvidencePoint:
    """A fit at some settings."""

    settings: Settings
    problem: object
    geometry: object
    fit: object
    log_evidence: float

    @property
    def converged(self):
        """Whether it is a fixed point of EP."""
        return self.fit.converged


@dataclass(frozen=True, slots=True)
class Remembered:
    """What a search goes on with of an evaluation before the process was killed."""

    log_evidence: float = np.nan
    converged: bool = False
    gradient: np.ndarray | None = None
    settings: Settings | None = None


class Memory:
    """The evaluations of a search, in order. A search that goes on asks the same again, up to where it was killed."""

    def __init__(self, evidence, job):
        self._evidence, self._job, self._next = evidence, job, 0
        kept = job.resumed(Remembered)
        self._known, self._sites = ([], None) if kept is None else (kept["points"], kept["sites"])
        self._last = None  # an evaluation of which nobody knows yet whether its gradient will be asked for

    def point(self, settings, found):
        """Return the next evaluation, by found() if it is not remembered."""
        self.keep()
        if self._next < len(self._known):
            point = replace(self._known[self._next], settings=settings)
            self._next += 1
            if self._next == len(self._known):
                self._evidence.start = self._sites
            if np.isnan(point.log_evidence):
                raise ArithmeticError("EP has failed here before")
            return point
        try:
            point = found()
        except (ArithmeticError, np.linalg.LinAlgError):
            self._last = Remembered()
            raise
        self._last = Remembered(point.log_evidence, point.converged)
        return point

    def gradient(self, point, found):
        """Return the gradient at the last evaluation, by found() if it is not remembered."""
        if isinstance(point, Remembered):
            return point.gradient.copy()
        gradient = found()
        self._last = replace(self._last, gradient=gradient.copy())
        self.keep()
        return gradient

    def keep(self):
        """Keep the last evaluation."""
        if self._last is not None and self._job.keeps:
            self._known = [*self._known, self._last]
            self._next, self._last = len(self._known), None
            kept = {"points": self._known, "sites": self._evidence.start}
            self._job.keep(lambda: kept)


class Evidence:
    """The log evidence of a problem at given settings by EP; each fit starts from the sites of the last.

    Where that leads nowhere, as from settings that are far away, it starts without sites.
    """

    def __init__(self, problem, vector, threads, options):
        self.problem, self.vector, self.threads = problem, vector, threads
        self.options, self.start, self.asked = replace(options, job=QUIET), None, options.job
        self._job = options.job.within("search")
        self._memory = Memory(self, self._job)

    def forget(self):
        """Start the next fit without sites."""
        self.start = None

    def problem_at(self, settings):
        """The problem with a prior."""
        prior, problem = self.problem.prior, self.problem
        if not len(settings.log_factors):
            return problem
        return problem.with_prior(
            prior.mean, prior.variance * self.vector.factors(settings.log_factors, len(prior.mean))
        )

    def best(self, settings):
        """The problem of a model with these settings."""
        problem = self.problem_at(settings)
        model = replace(problem.model, prior_variance=problem.prior.variance, likelihood=settings.likelihood)
        return replace(problem, model=model)

    def sites(self, likelihood):
        """The sites of the rows."""
        rows = self.problem.used
        return Sites(likelihood, rows.y, rows.weights, self.options.power)

    def at(self, settings, **options):
        """The `EvidencePoint` of some settings, or what is remembered of it; `options` replace those of EP."""
        return self._memory.point(settings, lambda: self._point(settings, options))

    def remember(self):
        """Keep the last evaluation, now that nobody will ask for its gradient."""
        self._memory.keep()

    def _point(self, settings, options):
        problem = self.problem_at(settings)
        geometry = problem.geometry(self.threads, self._job)
        options = replace(self.options, **options)
        fit = self._fit(geometry, settings.likelihood, options, "fit")
        if self.start is not None and (fit is None or not fit.converged):
            self.start = None
            fit = self._fit(geometry, settings.likelihood, options, "fit without sites")
        if fit.converged and fit.tau is not None:
            self.start = fit.tau, fit.rho
        value = fit.log_evidence + self.problem.rows.log_p_known(settings.likelihood)[1]
        return EvidencePoint(settings, problem, geometry, fit, value)

    def _fit(self, geometry, likelihood, options, name):
        """Run the engine, which keeps what it keeps by that name; None where arithmetic fails."""
        options = replace(options, job=self._job.within(name).unheard())
        try:
            return make_engine(geometry, self.sites(likelihood), options, self.start).run()
        except (ArithmeticError, np.linalg.LinAlgError):
            if self.start is None:
                raise
            return None

    def gradient(self, point, vector):
        """The derivatives at a point in the free settings of a vector."""

        def found():
            by_prior = self.prior_gradient(point, vector) if vector.n_prior else np.zeros(0)
            return np.append(by_prior, self.likelihood_gradient(point, vector.free))

        return self._memory.gradient(point, found)

    def prior_gradient(self, point, vector):
        """Derivatives in the logs of factors: of the expected log prior, as sites are constants at a fixed point
        [M]_, [RW]_ (section 5.5.2).
        """
        if vector.groups is None:
            return np.array([point.fit.belief.prior_slope()])
        prior = point.problem.prior
        mean, covariance = weights_of(prior.moments, point.geometry, point.fit.belief)
        slopes_of = weight_gradient(prior.variance, mean - prior.mean, covariance.variances())
        return np.array([np.sum(slopes_of[vector.groups == label]) for label in vector.labels])

    def likelihood_gradient(self, point, free):
        """Derivatives in the free numbers of the likelihood, at constant cavities."""
        if not free.size:
            return np.zeros(0)
        likelihood, geometry, fit = point.settings.likelihood, point.geometry, point.fit
        sites, m, v = self.sites(likelihood), geometry.vector(), geometry.vector()

        def leave(blocks):
            for part, x in blocks:
                moments = geometry.values(fit.belief, part, x)
                m[part], v[part], _ = cavities(*moments, fit.tau[part], fit.rho[part], sites.part(sites.fraction, part))

        for _ in geometry.each_group(leave):
            pass

        def total(likelihood):
            sites = self.sites(likelihood)
            parts = ((slice(*span),) for span in geometry.groups)
            totals = self.threads.imap(lambda part: sites.total(m[part], v[part], part), parts)
            return sum(totals) + self.problem.rows.log_p_known(likelihood)[1]

        return slopes(free, likelihood, total)


def weight_gradient(prior_variance, apart, variances):
    """The derivatives for each weight, from its posterior mean less that of the prior and its posterior variance."""
    return 0.5 * ((apart**2 + variances) / prior_variance - 1.0)
