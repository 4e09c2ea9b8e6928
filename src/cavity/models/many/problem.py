"""The part of a fit of many responses that depends on the design alone."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from cavity.base.rows import Rows
from cavity.likelihoods.base import has_kernel_for
from cavity.likelihoods.parameters import PARAMETER_DOMAINS, list_open_parameters
from cavity.models.defaults import follows_units, is_real
from cavity.models.linear.prior import Prior

MAX_BATCH_RESPONSES = 256  # worked on together: calls of NumPy cost a tenth of the work then, and arrays stay in cache
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
    prior : Prior
        Of the weights for that y.
    choose_prior : callable
        choose_prior(rows) returns mean and variance of the prior for other y.
    effects : ndarray (N, L)
        Columns of random effects, behind those of X.
    groups : list of slice
        Columns of [X, effects] by random effects whose variance is learnt.
    effect_scale : ndarray (L,)
        Prior standard deviations of random effects that are given; 1 for those that are learnt.
    fit_alone : callable
        fit_alone(rows, scale_factors, priors) returns the `LoneFit` of one response; both may be None.
    run : Options
        Those of EP.
    """

    likelihood: Any
    rows: Rows
    prior: Prior
    choose_prior: Callable
    effects: np.ndarray
    groups: list
    effect_scale: np.ndarray
    fit_alone: Callable
    run: Any

    @property
    def names(self):
        """Names of the parameters of the likelihood that are learnt."""
        return list_open_parameters(self.likelihood)

    @property
    def n_free(self):
        """Number of free numbers of each response."""
        return len(self.names) + len(self.groups)

    @property
    def has_own_priors(self):
        """Whether the default prior depends on the observations."""
        return is_real(self.likelihood) or follows_units(self.likelihood)

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
        independent = self.prior.variance.ndim < 2 or not self.has_own_priors
        return few and scalars and independent and self.rows.in_use.all() and has_kernel_for(self.likelihood, exponent)

    def features(self):
        """Return the whitened design (N, M), and the root of the prior covariance that is in it, None for none."""
        X = self.rows.X
        if self.prior.variance.ndim == 2:
            X = X @ self.prior.root
        return np.ascontiguousarray(np.hstack([X, self.effects]))

    def priors_of(self, y, offset):
        """Return prior means (B, D) and standard deviations of whitened columns (B, M) of responses (B, N)."""
        count, priors = len(y), [self.prior]
        if self.has_own_priors:
            d = self.rows.X.shape[1]
            rows = (Rows(self.rows.X, *pair, self.rows.weights) for pair in zip(y, offset, strict=True))
            priors = [Prior.of(*self.choose_prior(each), d) for each in rows]
        mean = np.array([prior.mean for prior in priors])
        roots = [np.ones(len(prior.mean)) if prior.variance.ndim == 2 else prior.root for prior in priors]
        scale = np.hstack([np.array(roots), np.broadcast_to(self.effect_scale, (len(priors), len(self.effect_scale)))])
        return np.array(np.broadcast_to(mean, (count, mean.shape[1]))), np.array(
            np.broadcast_to(scale, (count, scale.shape[1]))
        )


@dataclass(frozen=True, slots=True, eq=False)
class LoneFit:
    """The outcome of one response that was fitted alone."""

    mean: np.ndarray  # (M,): of the weights and random effects
    covariance: np.ndarray  # (M, M)
    prior_sd: np.ndarray  # (M,)
    log_evidence: float
    n_iter: int
    status: str
    free: np.ndarray  # (k,): free numbers of what was learnt
