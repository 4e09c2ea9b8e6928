"""The part of a fit of many responses that depends on the design alone."""

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from cavity.base import arrays
from cavity.base.rows import Rows
from cavity.base.scales import LOG_SCALE, LOGIT_SCALE
from cavity.jobs.job import SILENT_JOB
from cavity.likelihoods import Gaussian
from cavity.likelihoods.base import has_kernel_for
from cavity.likelihoods.parameters import PARAMETER_DOMAINS, FreeParameters, list_open_parameters
from cavity.models.hyperpriors import match_priors
from cavity.models.many.batch import FreePrior
from cavity.models.many.priors import PriorChoice

MAX_BATCH_RESPONSES = 512  # worked on together: calls of NumPy cost a tenth of the work then, and arrays stay in cache
MAX_BATCH_NUMBERS = 1 << 20  # of one array of a batch: 8 MB
SCALAR_DOMAINS = {*PARAMETER_DOMAINS} - {"increasing"}
MAX_BATCH_COLUMNS = 256  # of the design: above, a fit alone is as fast


@dataclass(frozen=True, slots=True, eq=False)
class ManyProblem:
    """The design, priors and options that all responses share.

    Attributes
    ----------
    likelihood : Likelihood
        Parameters that are None are learnt by response.
    rows : Rows
        Rows with prepared X, weights and the offset of all responses; y is that of one response.
    choice : PriorChoice
        Of the priors of the weights.
    effects : ndarray (N, L)
        Columns of random effects, behind those of X.
    groups : list of slice
        Columns of [X, effects] by random effects whose variance is learnt.
    effect_scale : ndarray (L,)
        Prior standard deviations of random effects that are given; 1 for those that are learnt.
    solve_single : callable
        solve_single(rows, settings, run) returns a `SingleSolution` of one response under settings of its prior.
    run : Options
        Those of EP.
    merger : RowMerger or None
        The rule by which rows of a response are one site, if any.
    drops_missing : bool
        Whether a response is fitted on the rows in which it has a value.
    priors_by_name : dict
        Priors of parameters and variances that the model has.
    priors : tuple of FreePrior
        The same, of the free numbers.
    """

    likelihood: Any
    rows: Rows
    choice: PriorChoice
    effects: np.ndarray
    groups: list
    effect_scale: np.ndarray
    solve_single: Callable
    run: Any
    merger: Any = None
    drops_missing: bool = False
    priors_by_name: dict = field(default_factory=dict)
    priors: tuple = ()

    @property
    def names(self):
        """Names of the parameters of the likelihood that are learnt."""
        return list_open_parameters(self.likelihood)

    @property
    def n_free(self):
        """Number of free numbers of each response."""
        return len(self.names) + len(self.groups)

    @property
    def prior(self):
        """That of the first response."""
        return self.choice.first

    @property
    def batch_size(self):
        """Number of responses that are worked on together."""
        n, columns = self.rows.n, self.rows.X.shape[1] + self.effects.shape[1]
        return int(np.clip(MAX_BATCH_NUMBERS // max(n * columns, 1), 1, MAX_BATCH_RESPONSES))

    @property
    def is_batchable(self):
        """Whether responses are fitted in batches: not by a likelihood in Python or with several thresholds."""
        scalars = all(self.likelihood.parameters[name] in SCALAR_DOMAINS for name in self.names)
        exponent = self.run.power * np.minimum(1.0, self.rows.weight())
        few = self.rows.X.shape[1] + self.effects.shape[1] <= MAX_BATCH_COLUMNS
        return few and scalars and self.rows.in_use.all() and has_kernel_for(self.likelihood, exponent)

    @property
    def is_gaussian(self):
        """Whether the evidence has a closed form."""
        return type(self.likelihood) is Gaussian and self.likelihood.noise_variance != 0

    def features(self):
        """Return the whitened design (N, M), and the root of the prior covariance that is in it, None for none."""
        X = self.rows.X
        if self.prior.variance.ndim == 2:
            X = X @ self.prior.root
        return np.ascontiguousarray(np.hstack([X, self.effects]))

    def priors_of(self, y, offset, observed):
        """Return prior means (B, D) and standard deviations of whitened columns (B, M) of responses (B, N)."""
        mean, sd = self.choice.of_responses(y, offset, observed)
        return mean, np.hstack([sd, np.tile(self.effect_scale, (len(y), 1))])

    def split_rows(self, y, offset, observed):
        """Return pairs (numbers, `MergedResponses` or None) of responses whose sites stand for the same rows."""
        return [(np.arange(len(y)), None)] if self.merger is None else self.merger.split(y, offset, observed)

    def fit_single(self, rows, observed, scale_factors, priors):
        """Return the `SingleFit` of the observed rows of a response, with factors on its prior sds or None."""
        if observed.all():
            mean, variance = self.choice.of_response(rows.y, rows.offset)
        else:
            mean, variance = self.choice.of_rows(observed).of_response(rows.y[observed], rows.offset[observed])
            rows = replace(rows, weights=np.where(observed, rows.weight(), 0.0))
        settings = {"prior_mean": mean, "priors": self.priors_by_name | priors.by_name(self.names) or None}
        settings["prior_variance"] = variance if scale_factors is None else variance * scale_factors**2
        return SingleFit.of(self.solve_single(rows, settings, replace(self.run, n_threads=1, job=SILENT_JOB)), self)

    def with_priors(self, priors, targets, variance_names=()):
        """Return the problem with the priors of a model, which may be of targets and of the likelihood; see `fit`."""
        if isinstance(priors, str):
            raise arrays.error_of("priors", f"of fit_many must be a dict of priors by names, got {priors!r}")
        assigned, free = match_priors(priors, self.likelihood, targets), []
        for number, name in enumerate((*self.names, *variance_names)):
            if name in assigned:
                prior, scale = assigned[name]
                if scale not in (LOG_SCALE, LOGIT_SCALE):
                    raise arrays.error_of("priors", f"of fit_many cannot be of {name}, whose log is not searched")
                free.append(FreePrior(number, prior, scale, 1.0 if number < len(self.names) else 0.5))
        return replace(self, priors_by_name=dict(priors or {}), priors=tuple(free))


@dataclass(frozen=True, slots=True, eq=False)
class SingleSolution:
    """A solution of `fit`, and what its family has of the effects."""

    solution: Any
    covariance: np.ndarray  # (M, M): of weights and random effects
    effect_variances: np.ndarray  # (L,): of their priors
    learnt_variances: list  # one for each that was learnt


@dataclass(frozen=True, slots=True, eq=False)
class SingleFit:
    """The outcome of one response that was fitted alone."""

    mean: np.ndarray  # (M,): of the weights and random effects
    covariance: np.ndarray  # (M, M)
    prior_sd: np.ndarray  # (M,)
    log_evidence: float
    n_iter: int
    status: str
    free: np.ndarray  # (k,): free numbers of what was learnt

    @classmethod
    def of(cls, single, many):
        """Return the outcome of a `SingleSolution` of a `ManyProblem`."""
        solution = single.solution
        problem, fit, likelihood = solution.problem, solution.fit, solution.problem.model.likelihood
        return cls(
            mean=solution.weights.mean,
            covariance=single.covariance,
            prior_sd=np.append(problem.prior.find_scales(many.prior), np.sqrt(single.effect_variances)),
            log_evidence=fit.log_evidence + problem.rows.log_p_known(likelihood)[1],
            n_iter=fit.n_iter,
            status=fit.outcome(solution.searched)["status"],
            free=np.append(FreeParameters(likelihood, many.names).pack(likelihood), np.log(single.learnt_variances)),
        )
