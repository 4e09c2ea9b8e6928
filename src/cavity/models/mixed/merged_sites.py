"""What equal rows are together: trials, a power of the likelihood at a mean, or a list of factors.

`_merges_by` of a likelihood names them. With y_i the observations of rows of one f, w_i their copies and n the sum of
these,

    "trials"      prod_i p(y_i|f) = C(k, n)^-1 prod_i C(k_i, n_i) p(k|n, f),  k = sum k_i, n = sum n_i,             (1)
    "mean"        log p(y|f) = a(f) + b(f) T(y) + c(y):  prod_i p(y_i|f)^w_i = exp(constant) p(y|f)^n,
                  T(y) = sum_i w_i T(y_i)/n, T the number itself or, for "logit mean", its logit,                   (2)
    "factors"     sum_i w_i log p(y_i|f), different y_i once.                                                      (3)

(2) is that of exponential families whose other parameters are numbers: Gaussian, Poisson and negative binomial, Gamma,
Tweedie and Beta. C are the binomial coefficients. Trials of a row x with offset o are those of -x and -o with successes
for failures, where links are symmetric.
"""

from dataclasses import dataclass

import numpy as np

from cavity.base.lazy_scipy import special
from cavity.ep.sites import Sites
from cavity.likelihoods import Binomial, Likelihood, Probit

NODES_PER_BLOCK = 1 << 20  # values of log p at a time
N_PANEL_NODES = 12
PANEL_NODES, PANEL_WEIGHTS = np.polynomial.legendre.leggauss(N_PANEL_NODES)
PANEL_EDGES_SD = np.array([0.0, 1.0, 2.0, 3.0, 4.5, 6.0, 8.0, 11.0, 15.0])  # in units of the belief, further ones ...
EDGE_GROWTH, CAVITY_REACH_SD, MAX_EDGES = 1.4, 12.0, 60  # ... this much farther out, as far as the cavity reaches


@dataclass(frozen=True, slots=True, eq=False)
class MergedRows:
    """The observations of rows, and the site of each.

    Attributes
    ----------
    y : ndarray (..., N) or (..., N, 2)
        Observations, of one response or of several with the same sites.
    copies : ndarray (N,)
        How many each row counts as; 1 where it has a site of its own and a weight that is no whole number.
    index : ndarray (N,)
        Their sites, from 0 to M - 1.
    firsts : ndarray (M,)
        A row of each site.
    """

    y: np.ndarray
    copies: np.ndarray
    index: np.ndarray
    firsts: np.ndarray

    @property
    def totals(self):
        """The copies of each site, (M,)."""
        return np.bincount(self.index, self.copies)

    def sum_by_site(self, values):
        """Sums of numbers (..., N) over the rows of each site, (..., M)."""
        rows, m = values.reshape(-1, values.shape[-1]), len(self.firsts)
        places = self.index + m * np.arange(len(rows))[:, None]
        return np.bincount(places.ravel(), rows.ravel(), m * len(rows)).reshape(*values.shape[:-1], m)

    @property
    def is_merged(self):
        """Whether the site of a row has more than one copy, (N,)."""
        return self.totals[self.index] > 1.0

    @property
    def shares(self):
        """The share that a row has of its site."""
        return np.where(self.is_merged, self.copies / self.totals[self.index], 1.0)


class TrialSites:
    """Successes of trials: (1)."""

    def __init__(self, likelihood, merged, signs):
        self.merged, y = merged, merged.y
        labels = Binomial("probit" if isinstance(likelihood, Probit) else "logit")
        self.likelihood = likelihood if isinstance(likelihood, Binomial) else labels
        k, n = (
            (y[..., 0], y[..., 1]) if isinstance(likelihood, Binomial) else (np.where(y > 0, 1.0, 0.0), np.ones_like(y))
        )
        self.k, self.n = np.where(signs < 0, n - k, k), n
        self.all_k, self.all_n = (merged.sum_by_site(merged.copies * counts) for counts in (self.k, self.n))
        self.y = np.stack([self.all_k, self.all_n], axis=-1)

    def make(self, likelihood, weights, power):
        """Return the sites."""
        return Sites(self.likelihood, self.y, weights, power)

    def constant(self, likelihood):
        """The log evidence of the rows less that of the sites, log of the factors of (1)."""
        of_rows = np.sum(self.merged.copies * _log_coefficient(self.k, self.n), axis=-1)
        return of_rows - np.sum(_log_coefficient(self.all_k, self.all_n), axis=-1)

    @property
    def shares(self):
        """The share that a row has of its site."""
        m = self.merged
        return np.where(m.is_merged, m.copies * self.n / np.maximum(self.all_n, 1.0)[m.index], 1.0)

    def leave_out(self, likelihood, index, cavity, log_z):
        """Return the log densities of some rows given the others, and tau and rho of their sites without them."""
        at = self.merged.index[index]
        others = self.all_k[at] - self.k[index], self.all_n[at] - self.n[index]
        rest, tau, rho = Sites(self.likelihood, np.column_stack(others)).match(slice(None), *cavity)
        factors = _log_coefficient(self.all_k[at], self.all_n[at]) - _log_coefficient(*others)
        return log_z + _log_coefficient(self.k[index], self.n[index]) - rest - factors, tau, rho


class MeanSites:
    """Powers of the likelihood at a mean: (2)."""

    def __init__(self, likelihood, merged, transform, inverse):
        self.merged, self.inverse = merged, inverse
        self.numbers = transform(merged.y)  # T
        self.n = merged.totals
        self.sums = merged.sum_by_site(merged.copies * self.numbers)
        count = np.bincount(merged.index)
        self.y = np.where(count == 1, merged.y[..., merged.firsts], inverse(self.sums / self.n))
        rows = self.y.reshape(-1, len(self.n))  # f near each site: elsewhere log p are large, and rounding is
        self.centre = np.reshape([likelihood.start(y) for y in rows], self.y.shape)
        several = count[merged.index] > 1
        self.factors = merged.index[several], merged.y[..., several], merged.copies[several]
        if merged.y.ndim == 1:  # of one response, which may have many rows
            self.factors = find_different(*self.factors)

    def make(self, likelihood, weights, power):
        """Return the sites."""
        return Sites(likelihood, self.y, weights, power, copies=self.n)

    def constant(self, likelihood, part=...):
        """The log evidence of the rows less that of the sites, of some responses, whose parameters may be (A, 1)."""
        (site, y, count), f = self.factors, self.centre[part]
        of_sites, sites = likelihood.log_p(self.y[part], f), np.unique(site)
        of_rows = np.sum(count * likelihood.log_p(y[part], f[..., site]), axis=-1)
        return of_rows - np.sum((self.n * of_sites)[..., sites], axis=-1)

    @property
    def shares(self):
        """The share that a row has of its site."""
        return self.merged.shares

    def leave_out(self, likelihood, index, cavity, log_z):
        """Return the log densities of some rows given the others, and tau and rho of their sites without them."""
        at, numbers = self.merged.index[index], self.numbers[index]
        n = self.n[at] - 1.0
        low, high = (np.full(len(self.n), end) for end in (np.inf, -np.inf))
        np.minimum.at(low, self.merged.index, self.numbers)
        np.maximum.at(high, self.merged.index, self.numbers)
        mean = np.clip((self.sums[at] - numbers) / n, low[at], high[at])  # rounding may leave what is possible
        others = self.inverse(mean)
        rest, tau, rho = Sites(likelihood, others, copies=n).match(slice(None), *cavity)
        f = self.centre[at]
        constant = likelihood.log_p(self.merged.y[index], f) + n * likelihood.log_p(others, f)
        return log_z + constant - self.n[at] * likelihood.log_p(self.y[at], f) - rest, tau, rho


class FactorSites:
    """Products of likelihoods of several observations: (3)."""

    def __init__(self, merged):
        self.merged = merged
        self.site, self.y_of_factors, self.counts = find_different(merged.index, merged.y, merged.copies)
        self.starts = np.searchsorted(self.site, np.arange(len(merged.firsts) + 1))
        self.y = np.arange(float(len(merged.firsts)))

    def make(self, likelihood, weights, power):
        """Return the sites."""
        return Sites(FactorProduct(likelihood, self), self.y, weights, power)

    def constant(self, likelihood):
        """Nothing: sites are the products of their rows."""
        return 0.0

    @property
    def shares(self):
        """The share that a row has of its site."""
        return self.merged.shares

    def log_factors(self, likelihood, sites, f):
        """Return log p of the factors of some sites at f (m, K), one after the other, and where each site begins."""
        sizes = (self.starts[1:] - self.starts[:-1])[sites]
        ends = np.cumsum(sizes)
        rows = np.arange(ends[-1]) + np.repeat(self.starts[sites] - ends + sizes, sizes)
        y = self.y_of_factors[rows]
        return (
            likelihood.log_p(y[:, None] if y.ndim == 1 else y[:, None, :], np.repeat(f, sizes, axis=0)),
            rows,
            ends - sizes,
        )

    def leave_out(self, likelihood, index, cavity, log_z):
        """Return the log densities of some rows given the others, and tau and rho of their sites without them.

        Moments without a row are integrals of the product over its factor, by panels that are narrow about the belief
        and reach as far as the cavity.
        """
        at = self.merged.index[index]
        sites, firsts = np.unique(at, return_index=True)
        mean, variance = (moment[firsts] for moment in cavity)
        out = np.empty((3, len(self.site)))
        step = max(1, NODES_PER_BLOCK // (2 * N_PANEL_NODES * MAX_EDGES * int(np.max(np.diff(self.starts)))))
        for first in range(0, len(sites), step):
            part = slice(first, min(first + step, len(sites)))
            self._leave_out_of(likelihood, sites[part], mean[part], variance[part], out)
        # which factor is that of a row: its site and observation
        numbers = self._number_rows()[index]
        return tuple(out[:, numbers])

    def _leave_out_of(self, likelihood, sites, mean, variance, out):
        """Fill in log densities, tau and rho of the factors of some sites."""
        product = FactorProduct(likelihood, self)
        _, tau, rho = Sites(product, sites.astype(float)).match(slice(None), mean, variance)
        belief_variance = 1.0 / (1.0 / variance + rho)
        belief_mean = belief_variance * (mean / variance + tau)
        f, w = _place_nodes(belief_mean, belief_variance, mean, variance)
        log_p, rows, starts = self.log_factors(likelihood, sites, f)
        with np.errstate(invalid="ignore", over="ignore"):
            total = np.add.reduceat(self.counts[rows, None] * log_p, starts, axis=0)
            total += np.log(w) - 0.5 * (f - mean[:, None]) ** 2 / variance[:, None]
            sizes = np.diff(np.append(starts, len(rows)))
            rest = np.repeat(total, sizes, axis=0) - log_p
        rest = np.where(np.isnan(rest), -np.inf, rest)
        log_z, log_rest = special.logsumexp(total, axis=1), special.logsumexp(rest, axis=1)
        weights, f = np.exp(rest - log_rest[:, None]), np.repeat(f, sizes, axis=0)
        m = np.sum(weights * f, axis=1)
        v = np.sum(weights * (f - m[:, None]) ** 2, axis=1)
        cavity_rho = 1.0 / np.repeat(variance, sizes)
        out[0, rows] = np.repeat(log_z, sizes) - log_rest
        out[1, rows] = m / v - np.repeat(mean, sizes) * cavity_rho
        out[2, rows] = 1.0 / v - cavity_rho

    def _number_rows(self):
        """The number of the factor of each row."""
        columns = [self.merged.y] if self.merged.y.ndim == 1 else list(self.merged.y.T)
        order = np.lexsort((*columns, self.merged.index))
        numbers = np.empty(len(order), np.intp)
        numbers[order] = np.cumsum(_are_new(self.merged.index[order], [column[order] for column in columns])) - 1
        return numbers


class FactorProduct(Likelihood):
    """The likelihood of the sites of (3), whose observations are their numbers."""

    __slots__ = ("likelihood", "sites")

    def __init__(self, likelihood, sites):
        self.likelihood, self.sites = likelihood, sites

    def log_p(self, y, f):
        """Log density of the rows of each site."""
        out, sites = np.empty(np.shape(f)), np.reshape(y, -1).astype(np.intp)
        most = int(np.max(np.diff(self.sites.starts)))
        step = max(1, NODES_PER_BLOCK // (most * out.shape[1]))
        for first in range(0, len(sites), step):
            part = slice(first, min(first + step, len(sites)))
            log_p, rows, starts = self.sites.log_factors(self.likelihood, sites[part], f[part])
            out[part] = np.add.reduceat(self.sites.counts[rows, None] * log_p, starts, axis=0)
        return out


def find_different(index, y, copies):
    """Return the different observations of each site, site after site: sites, observations and copies."""
    columns = [y] if y.ndim == 1 else list(y.T)
    order = np.lexsort((*columns, index))
    index, y, copies = index[order], y[order], copies[order]
    new = _are_new(index, [y] if y.ndim == 1 else list(y.T))
    starts = np.flatnonzero(new)
    counts = np.add.reduceat(copies, starts) if len(starts) else np.empty(0)
    return index[starts], y[starts], counts


def _are_new(index, columns):
    """Return which rows differ from those before them in some column."""
    new = np.ones(len(index), bool)
    new[1:] = np.logical_or.reduce([a[1:] != a[:-1] for a in (index, *columns)])
    return new


def _place_nodes(mean, variance, cavity_mean, cavity_variance):
    """Return nodes and weights (m, K) of integrals over f, for beliefs and cavities (m,)."""
    sd, reach = np.sqrt(variance), CAVITY_REACH_SD * np.sqrt(cavity_variance) + np.abs(cavity_mean - mean)
    edges = list(PANEL_EDGES_SD)
    while edges[-1] < np.max(reach / sd) and len(edges) < MAX_EDGES:
        edges.append(EDGE_GROWTH * edges[-1])
    edges = np.array(edges)
    edges = np.concatenate([-edges[:0:-1], edges])
    half = 0.5 * np.diff(edges)
    nodes = (0.5 * (edges[1:] + edges[:-1])[:, None] + half[:, None] * PANEL_NODES).ravel()
    return mean[:, None] + sd[:, None] * nodes, sd[:, None] * (half[:, None] * PANEL_WEIGHTS).ravel()


def _log_coefficient(k, n):
    """Return the log of n!/(k! (n - k)!)."""
    return special.gammaln(n + 1.0) - special.gammaln(k + 1.0) - special.gammaln(n - k + 1.0)
