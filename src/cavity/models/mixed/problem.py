"""The problem of a mixed model: rows, terms, and the prior of all effects."""

from dataclasses import dataclass
from functools import partial

import numpy as np

from cavity.base.rows import Rows
from cavity.ep.sparse import Pattern, Sparse
from cavity.jobs.job import SILENT_JOB
from cavity.models.linear.prior import Prior
from cavity.models.mixed.effect_layout import EffectLayout
from cavity.models.mixed.first_sites import match_first_sites


@dataclass(frozen=True, slots=True, eq=False)
class MixedProblem:
    """Rows, terms and prior of a fit."""

    model: object  # the MixedGLM
    rows: Rows  # all; X are the columns of the fixed effects
    used: Rows  # those of positive weight
    terms: tuple  # of all rows
    layout: EffectLayout
    pattern: Pattern  # of the rows in use
    prior: Prior  # of the fixed effects
    covariances: tuple  # (k, k) of each term

    @classmethod
    def of(cls, model, rows, terms, covariances):
        """Return the problem of a model whose settings of the fixed effects are numbers."""
        layout = EffectLayout(rows.X.shape[1], tuple(term.shape for term in terms))
        mask, used = rows.in_use, rows.used()
        values = [(term.codes[mask], term.Z[mask]) for term in terms]
        pattern = Pattern(layout.rows(used.X, values), *layout.entries(), layout.order())
        prior = Prior.of(model.prior_mean, model.prior_variance, layout.n_fixed)
        return cls(model, rows, used, tuple(terms), layout, pattern, prior, tuple(covariances))

    @property
    def prior_mean(self):
        """That of all effects, (n,)."""
        mean = np.zeros(self.layout.size)
        mean[: self.layout.n_fixed] = self.prior.mean
        return mean

    def geometry(self, threads, job=SILENT_JOB):
        """Return where the sites of the rows in use act."""
        precision = self.layout.precision(self.prior.variance, self.covariances)
        first = partial(match_first_sites, self, threads)
        return Sparse(self.pattern, self.prior_mean, precision, self.used.offset, threads, first)
