"""Rows with one predictor as one site.

Where rows have the same effects and the same offset, the product of their likelihoods is a function of one f, and EP
has one site for it (`merged_sites`). That is exact, while sites of their own count the posterior correlation of these
rows, which is 1, among the errors of EP's evidence.
"""

from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from cavity.base.lazy_scipy import special
from cavity.base.rows import Rows
from cavity.ep.evidence import measure_influence
from cavity.ep.site_updates import find_cavities
from cavity.ep.sites import Sites
from cavity.linalg.coded_rows import CodedRows
from cavity.models.mixed.merged_sites import FactorSites, MeanSites, MergedRows, TrialSites

HASH_FACTORS = tuple(np.array([0x9E3779B97F4A7C15, 0xC2B2AE3D27D4EB4F, 0x165667B19E3779F9], dtype=np.uint64))
ROWS_PER_PART = 1 << 14  # whose entries are compared at a time
MAX_FACTOR_SITES = 0.5  # of the rows: lists of factors take Python, which pays for far fewer sites


@dataclass(frozen=True, slots=True, eq=False)
class SiteRows:
    """The rows of the sites of a mixed model, and which rows in use each stands for.

    Attributes
    ----------
    merged : TrialSites, MeanSites, FactorSites or None
        What equal rows are together; None where each row has a site with the likelihood of the model.
    rows : Rows
        Observations, offsets and weights, one for each site; X are the columns of the fixed effects.
    matrix : CSR array (M, n) or CodedRows
        All effects.
    firsts : ndarray (M,)
        The number of a row in use.
    signs : ndarray (N,) or None
        -1 where the predictor of the site is that of the row times -1.
    """

    merged: Any
    rows: Rows
    matrix: Any
    firsts: np.ndarray
    signs: np.ndarray | None = None

    def part(self, index):
        """Return some of the sites, where none are of merged rows."""
        return SiteRows(None, self.rows.part(index), self.matrix[index], self.firsts[index])

    def make_sites(self, likelihood, power=1.0):
        """Return the sites under a likelihood of the rows."""
        if self.merged is None:
            return Sites(likelihood, self.rows.y, self.rows.weights, power)
        return self.merged.make(likelihood, self.rows.weights, power)

    def constant(self, likelihood):
        """The log evidence of the rows less that of the sites."""
        return 0.0 if self.merged is None else float(self.merged.constant(likelihood))

    @property
    def weights(self):
        """How many rows each site counts as, (M,), where its observation is their mean."""
        weights = np.broadcast_to(self.rows.weight(), (self.rows.n,))
        return weights if self.merged is None else weights * self.merged.n

    def gather(self, tau, rho):
        """Return the sites of merged rows from those of the rows in use."""
        if self.merged is None:
            return tau, rho
        index = self.merged.merged.index
        return np.bincount(index, self.signs * tau), np.bincount(index, rho)

    def correct(self, fit, likelihood):
        """Return a fit with the log evidence of the rows."""
        if self.merged is None:
            return fit
        return replace(fit, log_evidence=fit.log_evidence + self.constant(likelihood))

    def expand(self, fit, likelihood):
        """Return a fit with sites, leave-one-out densities and influences for each row in use, from those of sites.

        A row has its share of its site. Without it the site is that of the other rows at the same cavity.
        """
        if self.merged is None:
            return fit
        merged, belief = self.merged.merged, fit.belief
        at, shared_rows = merged.index, np.flatnonzero(merged.is_merged)
        loo, influence, sites = fit.loo[at], fit.influence[at], merged.index[shared_rows]
        moments = np.array(find_cavities(belief.mean, belief.variance, fit.tau, fit.rho, 1.0)[:2])[:, at]
        mean, variance = moments[0, shared_rows], moments[1, shared_rows]
        density, tau, rho = self.merged.leave_out(likelihood, shared_rows, (mean, variance), loo[shared_rows])
        without = 1.0 / (1.0 / variance + rho)
        shift = without * (tau - rho * mean)
        loo[shared_rows] = density
        influence[shared_rows] = measure_influence(belief.mean[sites], belief.variance[sites], mean + shift, without)
        moments[:, shared_rows] = mean + shift, without
        moments[0] *= self.signs
        share = self.merged.shares
        tau, rho = self.signs * share * fit.tau[at], share * fit.rho[at]
        return replace(fit, loo=loo, influence=influence, loo_moments=moments, tau=tau, rho=rho)


def merge_equal_rows(likelihood, rows, matrix):
    """Return the rows of the sites: of those in use the equal ones once, if their likelihood allows it.

    Parameters
    ----------
    likelihood : Likelihood
        Of the rows.
    rows : Rows
        Those in use.
    matrix : CSR array (N, n) or CodedRows
        Their effects. Of `CodedRows` those of x and -x are not merged.
    """
    own, kind = SiteRows(None, rows, matrix, np.arange(rows.n)), likelihood._merges_by
    if kind is None or rows.n < 2:
        return own
    weights = np.broadcast_to(rows.weight(), (rows.n,))
    is_whole = weights == np.floor(weights)
    if rows.y.ndim == 2 and kind == "trials":
        is_whole &= rows.y[:, 1] > 0  # without trials there is no site
    offset = np.zeros(rows.n) if rows.offset is None else rows.offset
    is_coded = isinstance(matrix, CodedRows)
    signs = np.sign(matrix.data[matrix.indptr[:-1]]) if kind == "trials" and not is_coded else np.ones(rows.n)
    first = find_first_equal(matrix.keys() if is_coded else matrix, offset, signs, is_whole)
    firsts, index = np.unique(first, return_inverse=True)
    most = MAX_FACTOR_SITES * rows.n if kind == "factors" else rows.n - 1
    if len(firsts) > most and (kind == "factors" or not np.any(is_whole & (weights > 1))):
        return own
    merged = MergedRows(rows.y, np.where(is_whole, weights, 1.0), index, firsts)
    sites = join_rows(likelihood, merged, signs)
    offset = signs[firsts] * offset[firsts]
    own_weights = None if is_whole.all() else np.where(is_whole, 1.0, weights)[firsts]
    merged_rows = Rows(signs[firsts, None] * rows.X[firsts], sites.y, offset if offset.any() else None, own_weights)
    design = matrix[firsts]
    if not is_coded:
        design.data = design.data * np.repeat(signs[firsts], np.diff(design.indptr))
    return SiteRows(sites, merged_rows, design, firsts, signs)


def join_rows(likelihood, merged, signs):
    """Return what `MergedRows` are together."""
    match likelihood._merges_by:
        case "trials":
            return TrialSites(likelihood, merged, signs)
        case "factors":
            return FactorSites(merged)
        case "logit mean":
            return MeanSites(likelihood, merged, special.logit, special.expit)
    return MeanSites(likelihood, merged, _keep, _keep)


def _keep(y):
    return y


def find_first_equal(matrix, offset, signs, may_merge):
    """Return the number of the first row with the same entries and offset, both times the signs of the rows.

    Rows are compared by hashes and then by all their entries; those that may not be merged are equal to themselves
    alone.
    """
    ends, lengths, own = matrix.indptr[:-1], np.diff(matrix.indptr), np.arange(len(offset))
    offset, keys = signs * offset + 0.0, np.arange(len(offset), dtype=np.uint64)  # no -0.0
    for part in _split_rows(own):
        entries = slice(matrix.indptr[part[0]], matrix.indptr[part[-1] + 1])
        data = matrix.data[entries] * np.repeat(signs[part], lengths[part])
        mix = _mix(data.view(np.uint64) ^ (matrix.indices[entries].astype(np.uint64) * HASH_FACTORS[0]))
        hashes = _mix(np.add.reduceat(mix, ends[part] - entries.start) ^ offset[part].view(np.uint64))
        keys[part] = np.where(may_merge[part], hashes, keys[part])
    ordered = np.sort(keys)
    if np.all(ordered[1:] != ordered[:-1]):  # no two rows are equal
        return own
    _, firsts, inverse = np.unique(keys, return_index=True, return_inverse=True)
    first = firsts[inverse]
    first = np.where((lengths[first] == lengths) & (offset[first] == offset) & may_merge & may_merge[first], first, own)
    for part in _split_rows(np.flatnonzero(first != own)):
        count = lengths[part]
        starts = np.cumsum(count) - count
        within = np.arange(count.sum()) - np.repeat(starts, count)
        (data, columns), (other_data, other_columns) = (
            (matrix.data[at] * np.repeat(signs[rows], count), matrix.indices[at])
            for rows in (part, first[part])
            for at in [np.repeat(ends[rows], count) + within]
        )
        is_equal = np.logical_and.reduceat((columns == other_columns) & (data == other_data), starts)
        first[part[~is_equal]] = part[~is_equal]
    return first


def _split_rows(rows):
    """Return the numbers of some rows in parts, whose entries stay in the cache."""
    return np.split(rows, range(ROWS_PER_PART, len(rows), ROWS_PER_PART)) if len(rows) else []


def _mix(bits):
    """Return 64-bit integers whose bits all depend on those of the given ones."""
    bits = (bits ^ (bits >> np.uint64(31))) * HASH_FACTORS[1]
    return (bits ^ (bits >> np.uint64(29))) * HASH_FACTORS[2]
