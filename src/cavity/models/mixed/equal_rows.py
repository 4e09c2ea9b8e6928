"""Rows with one predictor as one site: successes of n trials, the sum of n counts.

Where rows have the same effects and the same offset, the product of their likelihoods is a function of one f, and EP
has one site for it. That is exact, while sites of their own count the posterior correlation of these rows, which is 1,
among the errors of EP's evidence. Probabilities and counts whose product has a compiled likelihood are merged:

    prod_i p(y_i|f) = C(k, n)^-1 prod_i C(k_i, n_i) p(k|n, f),   k = sum k_i, n = sum n_i,                          (1)

C the factors of the binomial and Poisson distributions that do not depend on f. A row x with offset o and k of n is
that of -x and -o with n - k of n, where links are symmetric.
"""

from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from cavity.base.lazy_scipy import special
from cavity.base.rows import Rows
from cavity.ep.evidence import measure_influence
from cavity.ep.site_updates import find_cavities
from cavity.ep.sites import Sites
from cavity.likelihoods import Binomial, Likelihood, Logit, Poisson, Probit

HASH_FACTORS = tuple(np.array([0x9E3779B97F4A7C15, 0xC2B2AE3D27D4EB4F, 0x165667B19E3779F9], dtype=np.uint64))


@dataclass(frozen=True, slots=True, eq=False)
class SiteRows:
    """The rows of the sites of a mixed model, and which rows in use each stands for.

    Attributes
    ----------
    likelihood : Likelihood or None
        That of merged rows; None where no two rows are equal, and each has a site with the likelihood of the model.
    rows : Rows
        Observations, offsets and weights, one for each site; X are the columns of the fixed effects.
    matrix : CSR array (M, n)
        All effects.
    firsts : ndarray (M,)
        The number of a row in use.
    index : ndarray (N,)
        The site of each row in use.
    signs : ndarray (N,)
        -1 where the predictor of the site is that of the row times -1.
    counts : ndarray (N, 3)
        k and n of a copy of each row, and the number of copies; 0 copies where the row has a site of its own.
    shifts : ndarray (M,)
        f of each site less that of its rows times their signs: log n of counts.
    """

    likelihood: Likelihood | None
    rows: Rows
    matrix: Any
    firsts: np.ndarray
    index: np.ndarray | None = None
    signs: np.ndarray | None = None
    counts: np.ndarray | None = None
    shifts: np.ndarray | None = None

    def make_sites(self, likelihood, power=1.0):
        """Return the sites under a likelihood of the rows."""
        return Sites(self.likelihood or likelihood, self.rows.y, self.rows.weights, power)

    @property
    def constant(self):
        """The log evidence of the rows less that of the sites, log of the factors of (1)."""
        if self.likelihood is None:
            return 0.0
        k, n, copies = self.counts.T
        merged = np.bincount(self.index, copies) > 0
        of_rows = float(np.sum(copies * _log_factor(self.likelihood, k, n)))
        return of_rows - float(np.sum(_log_factor(self.likelihood, *self._totals())[merged]))

    def _totals(self):
        """k and n of each site."""
        k, n, copies = self.counts.T
        return np.bincount(self.index, copies * k), np.bincount(self.index, copies * n)

    def gather(self, tau, rho):
        """Return the sites of merged rows from those of the rows in use."""
        if self.likelihood is None:
            return tau, rho
        rho = np.bincount(self.index, rho)
        return np.bincount(self.index, self.signs * tau) + self.shifts * rho, rho

    def correct(self, fit):
        """Return a fit with the log evidence of the rows."""
        return fit if self.likelihood is None else replace(fit, log_evidence=fit.log_evidence + self.constant)

    def expand(self, fit):
        """Return a fit with sites, leave-one-out densities and influences for each row in use, from those of sites.

        A row has its share of its site. Without it the site is that of the other rows at the same cavity.
        """
        if self.likelihood is None:
            return fit
        (k, n, copies), (all_k, all_n), at = self.counts.T, self._totals(), self.index
        is_merged = (copies > 0) & (all_n[at] > n)
        share = np.where(is_merged, copies * n / np.maximum(all_n, 1.0)[at], 1.0)
        loo, influence = fit.loo[at], fit.influence[at]
        belief, here = fit.belief, np.flatnonzero(is_merged)
        sites = at[here]
        cavity = find_cavities(belief.mean, belief.variance, fit.tau, fit.rho, 1.0)[:2]
        mean, variance = (each[sites] for each in cavity)
        others = all_k[sites] - k[here], all_n[sites] - n[here]
        mean_of_others = mean + _shift(self.likelihood, others[1]) - _shift(self.likelihood, all_n[sites])
        reduced = Sites(self.likelihood, _observe(self.likelihood, *others))
        log_z, tau, rho = reduced.match(slice(None), mean_of_others, variance)
        without = 1.0 / (1.0 / variance + rho)
        shift = without * (tau - rho * mean_of_others)
        factors = _log_factor(self.likelihood, all_k[sites], all_n[sites]) - _log_factor(self.likelihood, *others)
        loo[here] += _log_factor(self.likelihood, k[here], n[here]) - log_z - factors
        influence[here] = measure_influence(belief.mean[sites], belief.variance[sites], mean + shift, without)
        values = {"loo": loo, "influence": influence, "tau": self.signs * share * (fit.tau - self.shifts * fit.rho)[at]}
        return replace(fit, rho=share * fit.rho[at], **values)


def merge_equal_rows(likelihood, rows, matrix):
    """Return the rows of the sites: of those in use the equal ones once, if their likelihood allows it.

    Parameters
    ----------
    likelihood : Likelihood
        Of the rows.
    rows : Rows
        Those in use.
    matrix : CSR array (N, n)
        Their effects.
    """
    kinds = {Logit: Binomial("logit"), Probit: Binomial("probit"), Binomial: likelihood, Poisson: likelihood}
    of_sites = kinds.get(type(likelihood))
    own = SiteRows(None, rows, matrix, np.arange(rows.n))
    if of_sites is None or rows.n < 2:
        return own
    weights = np.broadcast_to(rows.weight(), (rows.n,))
    k, n = _count(likelihood, rows.y)
    is_whole = (weights == np.floor(weights)) & (n > 0)
    offset = np.zeros(rows.n) if rows.offset is None else rows.offset
    signs = np.ones(rows.n) if type(of_sites) is Poisson else np.sign(matrix.data[matrix.indptr[:-1]])
    first = _find_first_equal(matrix, offset, signs, is_whole)
    firsts, index = np.unique(first, return_inverse=True)
    if len(firsts) == rows.n and not np.any(is_whole & (weights > 1)):
        return own
    k = np.where(signs < 0, n - k, k)
    copies = np.where(is_whole, weights, 0.0)
    counts = np.column_stack([k, n, copies])
    sites = SiteRows(of_sites, rows, matrix, firsts, index, signs, counts)
    all_k, all_n = (
        np.where(is_whole[firsts], total, each[firsts]) for total, each in zip(sites._totals(), (k, n), strict=True)
    )
    shifts = _shift(of_sites, all_n)
    offset = signs[firsts] * offset[firsts] + shifts
    merged = Rows(
        signs[firsts, None] * rows.X[firsts],
        _observe(of_sites, all_k, all_n),
        offset if offset.any() else None,
        None if is_whole.all() else np.where(is_whole, 1.0, weights)[firsts],
    )
    design = matrix[firsts]
    design.data = design.data * np.repeat(signs[firsts], np.diff(design.indptr))
    return replace(sites, rows=merged, matrix=design, shifts=shifts)


def _count(likelihood, y):
    """Return successes and trials of rows, or counts and ones."""
    if isinstance(likelihood, Binomial):
        return y[:, 0], y[:, 1]
    return np.where(y > 0, 1.0, 0.0) if not isinstance(likelihood, Poisson) else y, np.ones(len(y))


def _observe(likelihood, k, n):
    """Return what the likelihood of sites observes: successes and trials, or counts."""
    return np.column_stack([k, n]) if isinstance(likelihood, Binomial) else k


def _shift(likelihood, n):
    """Return what is added to f of n rows: the rate of a sum of counts is n times theirs."""
    return np.log(n) if isinstance(likelihood, Poisson) else np.zeros(len(n))


def _log_factor(likelihood, k, n):
    """Return the log of C of (1): n!/(k! (n - k)!), or n^k/k!."""
    if isinstance(likelihood, Poisson):
        return k * np.log(n) - special.gammaln(k + 1.0)
    return special.gammaln(n + 1.0) - special.gammaln(k + 1.0) - special.gammaln(n - k + 1.0)


def _find_first_equal(matrix, offset, signs, may_merge):
    """Return the number of the first row with the same entries and offset, both times the signs of the rows.

    Rows are compared by hashes and then by all their entries; those that may not be merged are equal to themselves
    alone.
    """
    ends, lengths = matrix.indptr[:-1], np.diff(matrix.indptr)
    data, offset = matrix.data * np.repeat(signs, lengths), signs * offset + 0.0  # no -0.0
    mix = _mix(data.view(np.uint64) ^ (matrix.indices.astype(np.uint64) * HASH_FACTORS[0]))
    keys = _mix(np.add.reduceat(mix, ends) ^ offset.view(np.uint64))
    keys = np.where(may_merge, keys, np.arange(len(keys), dtype=np.uint64))
    _, firsts, inverse = np.unique(keys, return_index=True, return_inverse=True)
    first, own = firsts[inverse], np.arange(len(keys))
    first = np.where((lengths[first] == lengths) & (offset[first] == offset) & may_merge & may_merge[first], first, own)
    there = np.repeat(ends[first] - ends, lengths) + np.arange(len(data))
    is_equal = (matrix.indices[there] == matrix.indices) & (data[there] == data)
    return np.where(np.logical_and.reduceat(is_equal, ends), first, own)


def _mix(bits):
    """Return 64-bit integers whose bits all depend on those of the given ones."""
    bits = (bits ^ (bits >> np.uint64(31))) * HASH_FACTORS[1]
    return (bits ^ (bits >> np.uint64(29))) * HASH_FACTORS[2]
