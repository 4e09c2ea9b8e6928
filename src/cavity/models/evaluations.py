"""Evaluations of a log evidence and its gradient at free settings, which a checkpoint keeps."""

from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np

from cavity.base.lazy_scipy import linalg
from cavity.base.scales import LOG_SCALE
from cavity.jobs.job import SILENT_JOB
from cavity.likelihoods.parameters import FreeParameters
from cavity.models.hyperpriors import FLAT_SHARE_PRIOR, evaluate_log_prior, find_likelihood_scale, match_priors
from cavity.priors import LogNormal

WIDE_LOG_SD = 2.0  # of the log of a positive parameter: a factor of 7


class FreeSettings:
    """Base of free settings as one vector: `n_prior` numbers of the prior, then those of the likelihood, `free`.

    Subclasses have `unpack(x)`, `pack(settings)`, `prior_bounds()` and `describe_prior(settings)`.
    """

    chosen_ends: ClassVar[frozenset[int]] = frozenset()  # entries whose bounds are those of a search alone

    def __init__(self, n_prior, likelihood, names, unit, priors=None, targets=()):
        """`names` are those of free parameters of the likelihood, `unit` that of real ones; `targets` are what else
        the `priors` may be of.
        """
        self.n_prior, self.likelihood, self._described = n_prior, likelihood, (None, None)  # the last settings
        self.free = FreeParameters(likelihood, names, unit)
        self.priors = match_priors(priors, likelihood, targets, self.free.labels())

    @property
    def size(self):
        """The number of free settings."""
        return self.n_prior + self.free.size

    @property
    def places(self):
        """The numbers of the entries of a vector that `describe` has values of."""
        return np.arange(self.size)

    def add_default_priors(self):
        """Give parameters of the likelihood without a prior a proper one, which is wide about where they start."""
        for label, value in zip(self.free.labels(), self.free.values(self.likelihood), strict=True):
            scale = find_likelihood_scale(label, self.likelihood)
            if scale is not None:
                prior = LogNormal(value, WIDE_LOG_SD) if scale == LOG_SCALE else FLAT_SHARE_PRIOR
                self.priors.setdefault(label, (prior, scale))

    @property
    def least_value(self):
        """A bound of minus the log evidence and log prior: probabilities of discrete observations are below one."""
        return 0.0 if self.likelihood.discrete and not self.priors else -np.inf

    def is_inside(self, x):
        """Whether a vector has settings; an integral ends where it has none."""
        return True

    def likelihood_at(self, x):
        """The likelihood of a vector."""
        return self.free.unpack(x[self.n_prior :], self.likelihood)

    def bounds(self, *other_likelihoods):
        """(low, high) of every entry; a search may also start at other vectors of the likelihood."""
        prior = np.reshape(self.prior_bounds(), (-1, 2))
        return np.concatenate([prior, self.free.bounds(self.likelihood, *other_likelihoods)])

    def log_prior(self, settings):
        """The log density of the free numbers of some settings, and its slopes in the first of them, or in all."""
        return evaluate_log_prior(self.priors, *self.describe(settings)) if self.priors else (0.0, np.zeros(0))

    def gradient(self, evidence, point):
        """The gradient of the log evidence at a point."""
        return evidence.gradient(point, self)

    def describe(self, settings):
        """Names and values of the free settings, and their derivatives in the free numbers, (n, n)."""
        last, description = self._described
        if last is settings:
            return description
        names, values, jacobian = self.describe_prior(settings)
        if self.free.size:
            jacobian = linalg.block_diag(jacobian, self.free.jacobian(settings.likelihood))
        description = [*names, *self.free.labels()], [*values, *self.free.values(settings.likelihood)], jacobian
        self._described = settings, description
        return description


@dataclass(slots=True, eq=False)
class EvidencePoint:
    """The posterior at some settings; its `geometry` may be valid only until the next evaluation."""

    settings: object
    log_evidence: float
    belief: object
    geometry: object
    fit: object  # the Fit of EP; None if exact
    problem: object = None  # with these settings, for GLM and mixed models
    information: np.ndarray | None = None  # about minus the second derivatives of the log evidence

    @property
    def converged(self):
        """Whether it is the posterior, or a fixed point of EP."""
        return self.fit is None or self.fit.converged


@dataclass(frozen=True, slots=True)
class SavedEvaluation:
    """The part of an evaluation that a checkpoint keeps."""

    log_evidence: float = np.nan
    converged: bool = False
    gradient: np.ndarray | None = None
    settings: object | None = None


class Evaluations:
    """The evaluations of a search, in order. A restored search repeats them without work, up to the checkpoint.

    Parameters
    ----------
    evidence : object
        `at(settings, **options)` returns an `EvidencePoint`; `start` are the sites that the next fit starts from, and
        `share_left`, if it has one, decides when that fit ends.
    vector : FreeSettings
        The free settings.
    job : Job, optional
        Its checkpoint keeps the evaluations.
    """

    def __init__(self, evidence, vector, job=SILENT_JOB):
        self.evidence, self.vector, self._job, self._next = evidence, vector, job, 0
        state = job.restore(SavedEvaluation)
        self._points = [] if state is None else state["points"]
        self._memory = {} if state is None else state["memory"]
        self._last = None  # the last evaluation, not yet saved: its gradient may follow
        self.sites_at_maximum = None  # from where fits for the curvature there start

    def at(self, x, **options):
        """Return the point of a vector, or its `SavedEvaluation`; `options` replace those of EP."""
        settings = self.vector.unpack(x)
        self.keep()
        if self._next < len(self._points):
            point = replace(self._points[self._next], settings=settings)
            self._next += 1
            if self._next == len(self._points):
                self.sites_at_maximum = self._memory.pop("sites_at_maximum")
                for name, value in self._memory.items():
                    setattr(self.evidence, name, value)
            if np.isnan(point.log_evidence):
                raise ArithmeticError("EP failed at this point before the checkpoint")
            return point
        try:
            point = self.evidence.at(settings, **options)
        except (ArithmeticError, np.linalg.LinAlgError):
            self._last = SavedEvaluation()
            raise
        self._last = SavedEvaluation(point.log_evidence, point.converged)
        return point

    def gradient(self, point):
        """Return the gradient of the log evidence and the log prior at the last point, (n,)."""
        if isinstance(point, SavedEvaluation):
            gradient = point.gradient.copy()
        else:
            gradient = self.vector.gradient(self.evidence, point)
            self._last = replace(self._last, gradient=gradient.copy())
            self.keep()
        slopes = self.vector.log_prior(point.settings)[1]
        gradient[: len(slopes)] += slopes
        return gradient

    def keep(self):
        """Save the last evaluation in the checkpoint."""
        if self._last is not None and self._job.has_checkpoint:
            self._points = [*self._points, self._last]
            self._next, self._last = len(self._points), None
            memory = {name: getattr(self.evidence, name, None) for name in ("start", "share_left")}
            memory["sites_at_maximum"] = self.sites_at_maximum
            self._job.store(lambda: {"points": self._points, "memory": memory})
