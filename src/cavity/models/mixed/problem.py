"""The problem of a mixed model: rows, terms, the prior of all effects, and first sites.

Sites that are all renewed from one belief overshoot where it is far wider than the likelihood of a row, as the prior of
the fixed effects may be. So the fixed effects are fitted first, to some of the rows if there are many, by dense EP, in
which random effects are independent noise of f in each row: f = x'w + N(0, r), r = sum over terms of z'V z. The first
sites match moments under that fit.
"""

from dataclasses import dataclass, replace
from functools import partial

import numpy as np

from cavity.base.arrays import error_of
from cavity.base.rows import Rows
from cavity.ep.dense import Dense
from cavity.ep.engine import Engine
from cavity.ep.site_updates import find_cavities, is_within_float64
from cavity.ep.sparse import Pattern, Sparse
from cavity.jobs.job import SILENT_JOB
from cavity.linalg.coded_rows import CodedRows
from cavity.models.linear.prior import Prior
from cavity.models.mixed.coded_effects import code_effects
from cavity.models.mixed.effect_layout import EffectLayout
from cavity.models.mixed.equal_rows import SiteRows, merge_equal_rows
from cavity.models.mixed.structured_rows import StructuredRows

FIRST_ROWS = 1 << 16  # most rows of the dense fit, whose belief all rows then match
FIRST_FIT_OPTIONS = {"max_iter": 10, "tol": 0.1, "double_loop": 0}  # of the dense fit: its sites change anyway


def match_first_sites(problem, threads, sites, options):
    """Return tau and rho of the sites to begin with, (N,), or None where rows have no fixed effects."""
    rows, mask = problem.sites.rows, problem.rows.in_use
    if not np.all(np.any(rows.X != 0.0, axis=1)):
        return None
    spread = np.zeros(rows.n)
    for term, setting in zip(problem.terms, problem.settings, strict=True):
        spread += term.variances(setting, mask)[problem.sites.firsts]
    noisy, sample = sites.with_residual(spread), slice(0, None, -(-rows.n // FIRST_ROWS))
    first = rows.part(np.arange(rows.n)[sample])
    few = Dense(first.X, first.offset, *problem.prior.moments, threads)
    fit = Engine(few, noisy.of_rows(sample), replace(options, job=SILENT_JOB, **FIRST_FIT_OPTIONS)).run()
    tau, rho = np.zeros((2, rows.n))
    tau[sample], rho[sample] = fit.tau, fit.rho
    geometry = Dense(rows.X, rows.offset, *problem.prior.moments, threads)
    return geometry.in_groups(_match_group, noisy, (tau, rho), fit.belief, sites, filled=True)[1]


def _match_group(group, belief, sites):
    """Fill in the sites of f with random effects that match the rows of a group, from the sites of x'w."""
    for part, x in group.blocks:
        fraction, spread = sites.part(sites.fraction, part), group.sites.residual[part]
        m, v, _ = find_cavities(*group.geometry.values(belief, part, x), group.tau[part], group.rho[part], fraction)
        _, tau, rho = sites.match(part, m, v + spread)
        good = is_within_float64(tau, rho)
        group.new[0][part] = np.where(good, tau / fraction, 0.0)
        group.new[1][part] = np.where(good, rho / fraction, 0.0)


def check_effects(matrix, in_use):
    """Raise ValueError for a row of effects without entries; they are those of the rows in use, a mask."""
    empty = (matrix.count_entries() if isinstance(matrix, CodedRows) else np.diff(matrix.indptr)) == 0
    if empty.any():
        row = int(np.flatnonzero(in_use)[np.argmax(empty)])
        raise error_of("X", f"must have an effect in every row, got 0 in all columns and terms of row {row}")


@dataclass(frozen=True, slots=True, eq=False)
class MixedProblem:
    """Rows, terms and prior of a fit."""

    model: object  # the MixedGLM
    rows: Rows  # all; X are the columns of the fixed effects
    used: Rows  # those of positive weight
    terms: tuple  # of all rows
    layout: EffectLayout
    sites: SiteRows  # of the rows in use, equal ones once
    pattern: Pattern  # of the sites
    prior: Prior  # of the fixed effects
    settings: tuple  # of each term: its covariance matrix (k, k), or the values of its parameters

    @classmethod
    def of(cls, model, rows, terms, settings):
        """Return the problem of a model whose settings of the fixed effects are numbers."""
        layout = EffectLayout(rows.X.shape[1], tuple(term.block for term in terms))
        mask, rows_in_use = rows.in_use, rows.used()
        has_codes = mask.all() and any(isinstance(term, StructuredRows) and term.codes is not None for term in terms)
        matrix = code_effects(layout, rows_in_use.X, [term.coded_values for term in terms]) if has_codes else None
        if matrix is None:
            matrix = layout.rows(rows_in_use.X, [term.values(mask) for term in terms])
        check_effects(matrix, mask)
        sites = merge_equal_rows(model.likelihood, rows_in_use, matrix)
        pattern = Pattern(sites.matrix, *layout.entries(), layout.order())
        prior = Prior.of(model.prior_mean, model.prior_variance, layout.n_fixed)
        if mask.all():  # entries of rows are those of the matrix
            terms = [term.without_rows() if isinstance(term, StructuredRows) else term for term in terms]
        return cls(model, rows, rows_in_use, tuple(terms), layout, sites, pattern, prior, tuple(settings))

    def with_sites(self, index):
        """Return the problem with some of its sites alone."""
        sites = self.sites.part(index)
        pattern = Pattern(sites.matrix, *self.layout.entries(), self.layout.order())
        return replace(self, used=self.used.part(index), sites=sites, pattern=pattern)

    @property
    def prior_mean(self):
        """That of all effects, (n,)."""
        mean = np.zeros(self.layout.size)
        mean[: self.layout.n_fixed] = self.prior.mean
        return mean

    def geometry(self, threads, job=SILENT_JOB):
        """Return where the sites of the rows in use act."""
        precision = self.layout.precision(self.prior.variance, self.settings)
        first = partial(match_first_sites, self, threads)
        return Sparse(self.pattern, self.prior_mean, precision, self.sites.rows.offset, threads, first)
