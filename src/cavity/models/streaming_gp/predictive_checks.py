"""Predictive checks: whether new rows agree with the predictions of a streaming state.

With Gaussian noise and alpha = 0 the squared distance of rows from their predictions, in units of their predicted
covariance S, follows from sums that every state has,

    (y - m)' S^-1 (y - m) = change of (squares - c'c),

and these distances add up over batches. If the settings are right, the sum is a chi-squared of n, except for the
variance of f that the inducing variables leave, which is not in S: it adds `gap` at most on average, and at worst has
the tail of gap times a chi-squared of one. Rows of other noise are compared with their evidence under the prior. If the
settings are right, that is exp(t) times as large with probability exp(-t) at most, by Markov's inequality, whatever the
dependence between rows.
"""

from dataclasses import dataclass

import numpy as np

from cavity.base.errors import SettingsWarning, warn
from cavity.ep.sites import Sites
from cavity.likelihoods.base import SHARED_ONE
from cavity.likelihoods.predictive import MIN_VARIANCE
from cavity.models.process.settings import compute_gaussian_log_density
from cavity.models.streaming_gp.rows import CALLING_THREAD, is_exact

MIN_CHECKED_ROWS = 50
SURPRISE_RATIO = 2.0  # of squared distances to their expectation, above which a warning is given
CHI_SQUARED_1_QUANTILE = 15.0  # exceeded with probability 1e-4
SURPRISE_PROBABILITY = 1e-4  # of rows whose evidence under the prior is so much larger


@dataclass(frozen=True, slots=True)
class PredictiveCheck:
    """The sums of a factor at the last row that has been checked."""

    distance: float  # squares - c'c
    n: float
    gap: float

    @classmethod
    def of(cls, information):
        """Return the check of rows that come from now on."""
        return cls(information.squares - float(information.c @ information.c), information.n, information.gap)

    def carry_over(self, before, after):
        """Return the check for a factor that was changed without further rows."""
        if before is after:
            return self
        old, new = self.of(before), self.of(after)
        change = new.distance - old.distance, new.n - old.n, new.gap - old.gap
        return PredictiveCheck(self.distance + change[0], self.n + change[1], self.gap + change[2])

    def compare(self, information):
        """Return a message about the rows since then, or None, and the next check; few rows are left for later."""
        now = self.of(information)
        n, distance, gap = now.n - self.n, now.distance - self.distance, now.gap - self.gap
        if n < MIN_CHECKED_ROWS:
            return None, self
        if not distance > SURPRISE_RATIO * n + CHI_SQUARED_1_QUANTILE * gap:
            return None, now
        ratio = np.sqrt(distance / n)
        return f"the last {n:.6g} rows are {ratio:.3g} times as far from what was predicted as the settings say", now


def find_surprise(rows, model, program, increment):
    """Return a message if the increment of rows is below their evidence under the prior by more than chance."""
    if model.alpha < 1.0:  # what a batch brings is then no log density
        return None
    sites = None if is_exact(model.likelihood) else Sites(model.likelihood, rows.y, rows.weights)
    if sites is not None and not sites.compiled:  # a likelihood of the user's own: integrals would cost too much
        return None

    def sum_log_evidence(X, start):
        part = slice(start, start + len(X))
        mean = np.ascontiguousarray(np.broadcast_to(rows.base(model, X, part), len(X)))
        variance = np.maximum(program.diagonal(X), MIN_VARIANCE)
        if sites is None:
            log_z = compute_gaussian_log_density(
                rows.y[part], mean, variance + rows.noise_variance(model.likelihood, part)
            )
        else:
            log_z = sites.match(part, mean, variance, SHARED_ONE, strict=False)[0]
        return float(np.sum(rows.weight(part) * log_z))

    prior_evidence = sum(rows.map_blocks(sum_log_evidence, CALLING_THREAD), 0.0)
    if not prior_evidence - increment > -np.log(SURPRISE_PROBABILITY):
        return None
    values = f"{increment:.6g} nats, but would be worth {prior_evidence:.6g}"
    return f"the {rows.n} new rows bring {values} if nothing were known of f"


def warn_of_surprise(message):
    """Warn with the message of a check, if there is one."""
    if message is not None:
        way_out = "update(X, y, learn=True) learns them again, forget(factor) makes older rows count less"
        warn(f"{message}: the settings do not fit them; {way_out}", SettingsWarning)
