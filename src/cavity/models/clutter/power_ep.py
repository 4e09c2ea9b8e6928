"""Power EP for the clutter model: sites that match moments with p(x | theta)^alpha.

[P]     T. Minka, Power EP, Microsoft Research, MSR-TR-2004-149, 2004.
[DLMF]  NIST Digital Library of Mathematical Functions, 10.25 and 10.41 (modified Bessel functions).

As a function of theta the likelihood is t = B + A exp(-r^2/(2 s)) with r = |theta - x|. The cavity is N(m, v I) = q
over the site to the power alpha; the tilted distribution cavity x t^alpha has no closed form, but it depends on theta
through r alone. Under the cavity, with delta = |x - m|, nu = d/2 - 1 and z = r delta/v,

    p(r) = (r/v) (r/delta)^nu exp(-(r^2 + delta^2)/(2 v)) I_nu(z),

and given r the mean of theta lies at r a(z) from x towards m, a = I_{nu+1}/I_nu. So one-dimensional integrals over
h = p t^alpha give everything. Let E be the mean under h/Z, Z the integral of h, pi = A exp(-r^2/(2 s))/t the
probability of signal, and k = alpha v/s. Integration by parts turns the moments into sums of positive terms:

    e     = E[r a] = (delta + k E[(1 - pi) r a])/(1 + k),    delta - e = k E[pi r a]       (distance of the tilted mean)
    D     = v_new/v = (1 + k Q)/(1 + k),                     Q = E[(1 - pi) r (r - e a)]/(v d)
    rho_F = 1/v_new - 1/v = (alpha/s) P/D,                   P = E[pi r (r - e a)]/(v d)
    pull  = (alpha/s) E[pi r a]/(delta D),                   tau_F = pull (x - m) + rho_F m

No precisions are subtracted, so that a site of 1e-15 of the posterior's precision keeps its digits. F = q_new/cavity is
the site to the power alpha; the site is F^(1/alpha).
"""

from math import lgamma, log, pi
from typing import NamedTuple

import numpy as np

from cavity.base.constants import LOG_2PI
from cavity.base.loop import STUCK_STATUS
from cavity.ep.site_updates import MIN_CAVITY_SHARE
from cavity.models.clutter.cavities import evaluate, find_cavities
from cavity.models.clutter.problem import SUMMED_ROWS
from cavity.models.clutter.sweeps import Sweeper
from cavity.runs.merge import split_rows

SITES_AT_ONCE = 128  # enough to outweigh the overhead of calls, few enough for the cache
NEGLIGIBLE_NATS = 50.0  # nats below the larger piece at which nothing is left to add: exp(-50) = 2e-22
PANEL_EDGES = np.linspace(-10.0, 10.0, 6)  # panel edges around a piece, in its sd; 10 sd are NEGLIGIBLE_NATS nats
PANEL_GROWTH = 3.0  # growth of the panels away from the kink of t^alpha: their ends see its poles at the same angle
KINK_PANEL_EDGES = 0.75 * PANEL_GROWTH ** np.arange(14)  # and their edges in units of its distance from the real line
GAUSS_NODES, GAUSS_WEIGHTS = np.polynomial.legendre.leggauss(20)  # exact to 1e-15 for a normal density over 6 sd
GAUSS_NODES, GAUSS_WEIGHTS = 0.5 + 0.5 * GAUSS_NODES, 0.5 * GAUSS_WEIGHTS  # on (0, 1)
LARGE_ORDER = 30.0  # sqrt(nu^2 + z^2) from which on the expansion for large orders or arguments holds to 1e-15 ...
DEBYE_TERMS = 12  # ... with this many terms


# ---------------------------------------------------------------------------------------------- Bessel functions


def _make_debye_coefficients():
    """Coefficients c[k][j] of U = sum_k t^k sum_j c[k][j] (nu t)^(2 j), DLMF 10.41.9."""
    table = [np.ones(1)]
    for k in range(DEBYE_TERMS):
        power = k + 2.0 * np.arange(k + 1)
        following = np.zeros(k + 2)
        following[:-1] += table[k] * (0.5 * power + 0.125 / (power + 1.0))
        following[1:] -= table[k] * (0.5 * power + 0.625 / (power + 3.0))
        table.append(following)
    return table


DEBYE_COEFFICIENTS = _make_debye_coefficients()
DEBYE_SLOPES = [
    c * (0.5 + k + 2.0 * np.arange(k + 1)) for k, c in enumerate(DEBYE_COEFFICIENTS)
]  # U - V, DLMF 10.41.11


def _sum_series(table, t, q):
    """Return sum_k t^k sum_j table[k][j] q^j."""
    total = np.zeros_like(t)
    for row in reversed(table):
        inner = np.full_like(t, row[-1])
        for c in row[-2::-1]:
            inner *= q
            inner += c
        total *= t
        total += inner
    return total


def _evaluate_large_bessel(nu, z):
    """As `_evaluate_bessel`, for nu^2 + z^2 >= LARGE_ORDER^2, by Debye's expansion; nothing cancels at any z."""
    root = np.hypot(nu, z)
    t = 1.0 / root
    q = (nu * t) ** 2
    u = _sum_series(DEBYE_COEFFICIENTS, t, q)
    slope = t * t * _sum_series(DEBYE_SLOPES, t, q) / u
    log_scaled = nu * nu / (root + z) - 0.5 * np.log(2 * pi * root) + np.log(u)
    if nu:
        log_scaled -= nu * np.log(0.5 * (nu + root))
    return log_scaled, 1.0 / (root + nu) - slope, 2.0 * nu / (z + nu + root) + z * slope


def _evaluate_small_bessel(nu, z):
    """As `_evaluate_bessel`, by the power series, whose terms are all positive."""
    y, largest = 0.25 * z * z, float(z.max())
    quarter = 0.5 * (np.hypot(nu, 2.0 * largest) - nu)  # from this term on each is less than a quarter of the last
    total, slope = np.ones_like(z), np.zeros_like(z)
    for k in range(int(quarter) + 20, 0, -1):  # Horner's scheme for the series and its derivative
        c = 1.0 / (k * (nu + k))
        slope *= y
        slope += total
        slope *= c
        total *= y
        total *= c
        total += 1.0
    ratio = 0.5 * slope / total
    return np.log(total) - z - lgamma(nu + 1.0), ratio, 1.0 - z * ratio


def _evaluate_bessel(nu, z):
    """Return log(exp(-z) (2/z)^nu I_nu(z)), a/z and 1 - a for a = I_{nu+1}/I_nu; nu >= 0, z an array >= 0."""
    if nu >= LARGE_ORDER:
        return _evaluate_large_bessel(nu, z)
    large = z * z >= LARGE_ORDER * LARGE_ORDER - nu * nu
    if large.all():
        return _evaluate_large_bessel(nu, z)
    if not large.any():
        return _evaluate_small_bessel(nu, z)
    results = tuple(np.empty_like(z) for _ in range(3))
    for part, function in ((large, _evaluate_large_bessel), (~large, _evaluate_small_bessel)):
        for result, values in zip(results, function(nu, z[part]), strict=True):
            result[part] = values
    return results


# ---------------------------------------------------------------------------------------------- integrals over r


class RadialCavities(NamedTuple):
    """What the integrals need, one entry a site. Offsets are r - anchor; the anchor is where most digits count."""

    v: np.ndarray  # variance of the cavity
    delta: np.ndarray  # distance of its mean from the point
    k: np.ndarray  # alpha v/s
    gap: np.ndarray  # log A - log B
    near: np.ndarray  # whether the cavity is the narrower factor: then the anchor is delta, else 0
    anchor: np.ndarray
    from_delta: np.ndarray  # anchor - delta
    inlier: np.ndarray  # log of the signal's part of t at the anchor, less that of the larger part
    clutter: np.ndarray  # and the clutter's

    def take(self, index):
        """Return columns for the sites `index`."""
        return RadialCavities(*(column[index, None] for column in self))


def _make_radial_cavities(s, power, gap, rho, delta):
    """Return the cavities, and the log of the larger part of t at their anchors less log B."""
    v = 1.0 / rho
    k = power * v / s
    near = k < 1.0
    anchor = np.where(near, delta, 0.0)
    odds = gap - 0.5 * anchor * anchor / s
    parts = np.minimum(odds, 0.0), -np.maximum(odds, 0.0)
    return RadialCavities(v, delta, k, gap, near, anchor, anchor - delta, *parts), np.maximum(odds, 0.0)


def _subtract_root(delta, square):
    """Return sqrt(delta^2 + square) - delta."""
    return square / np.maximum(delta + np.sqrt(delta * delta + square), np.finfo(float).tiny)


def _cut_panels(cavities, d, s, power):
    """Cut the range of r into panels for Gauss-Legendre rules: (site, left end as an offset, width), in order of sites.

    t^alpha is B^alpha or A^alpha exp(-alpha r^2/(2 s)), whichever is larger, within a factor 2^alpha. With the cavity
    the first makes a piece of variance v around |theta - x| at m, the second one of variance v/(1 + k) nearer to x.
    Between them t^alpha has a kink, a branch point at r^2 = 2 s (log A - log B + i pi), which needs smaller panels.
    """
    c, narrow = cavities, 1.0 + cavities.k
    variances = c.v, c.v / narrow
    clutter = _subtract_root(c.delta, (d - 1) * c.v) - c.from_delta
    signal = _subtract_root(c.delta / narrow, (d - 1) * variances[1])
    signal += np.where(c.near, -c.delta * (c.k / narrow), c.delta / narrow)
    kink = np.sqrt(2.0 * s * (c.gap + 1j * pi))
    step = kink.imag[:, None] * KINK_PANEL_EDGES
    step = np.where(step < (PANEL_EDGES[1] - PANEL_EDGES[0]) * np.sqrt(variances[1])[:, None], step, np.inf)
    at = (kink.real - c.anchor)[:, None]
    edges = [m[:, None] + np.sqrt(v)[:, None] * PANEL_EDGES for m, v in zip((clutter, signal), variances, strict=True)]
    low = np.maximum(np.minimum(edges[0][:, :1], edges[1][:, :1]), -c.anchor[:, None])
    high = np.maximum(edges[0][:, -1:], edges[1][:, -1:])
    edges = np.sort(np.clip(np.concatenate([*edges, at - step, at + step], axis=1), low, high), axis=1)
    left, right = edges[:, :-1], edges[:, 1:]
    masses = -power * c.gap, -0.5 * d * np.log1p(c.k) - 0.5 * (power / s) * c.delta * c.delta / narrow
    level = -np.inf
    for m, v, mass in zip((clutter, signal), variances, masses, strict=True):
        distance = np.maximum(np.maximum(left - m[:, None], m[:, None] - right), 0.0)
        level = np.maximum(level, (mass - np.maximum(*masses))[:, None] - 0.5 * distance * distance / v[:, None])
    site, panel = np.nonzero((right > left) & (level > -NEGLIGIBLE_NATS))
    return site, left[site, panel], (right - left)[site, panel]


def _evaluate_radial(r, offset, c, d):
    """Return log p(r), r a/delta and 1 - a."""
    z = r * c.delta / c.v
    from_delta = offset + c.from_delta
    exponent = -0.5 * from_delta * from_delta / c.v
    if d == 1:  # nu = -1/2: a hyperbolic cosine
        tail = np.exp(-2.0 * z)
        ratio = np.divide(-np.expm1(-2.0 * z), z * (1.0 + tail), out=np.ones_like(z), where=z > 0)
        return exponent - 0.5 * np.log(2 * pi * c.v) + np.log1p(tail), r * r * ratio / c.v, 2.0 * tail / (1.0 + tail)
    nu = 0.5 * d - 1.0
    log_scaled, ratio, rest = _evaluate_bessel(nu, z)
    chi = r * r / c.v
    log_p = np.log(r / c.v) + nu * np.log(0.5 * chi) + log_scaled + exponent
    return log_p, chi * ratio, rest


def _integrate(c, d, s, power):
    """Return log Z less the factor at the anchors, E[pi r a]/delta, P and D, as in the head of this file."""
    site, left, width = _cut_panels(c, d, s, power)
    at, first = c.take(site), np.searchsorted(site, np.arange(len(c.v)))
    offset = left[:, None] + width[:, None] * GAUSS_NODES
    r = offset + at.anchor
    log_h, pulled, rest = _evaluate_radial(r, offset, at, d)
    log_inlier = at.inlier - offset * (r + at.anchor) / (2.0 * s)
    log_t = np.logaddexp(log_inlier, at.clutter)
    log_h += power * log_t
    top = np.maximum.reduceat(log_h.max(axis=1), first)
    h = np.exp(log_h - top[site, None]) * (width[:, None] * GAUSS_WEIGHTS)
    norm = np.add.reduceat(h.sum(axis=1), first)
    signal, clutter = h * np.exp(log_inlier - log_t), h * np.exp(at.clutter - log_t)

    def mean(values):
        return np.add.reduceat(values.sum(axis=1), first) / norm

    inward, wide = mean(signal * pulled), 1.0 + c.k
    e = c.delta * ((1.0 + c.k * mean(clutter * pulled)) / wide)
    to_mean = offset + np.where(c.near, c.k * c.delta * inward, -e)[site, None] + e[site, None] * rest  # r - e a
    to_mean *= r / (at.v * d)
    return top + np.log(norm), inward, mean(signal * to_mean), (1.0 + c.k * mean(clutter * to_mean)) / wide


def match_sites(model, power, d, base, rho, delta):
    """The power of the sites that matches moments, for arrays of sites in working units.

    Parameters
    ----------
    model : ndarray (5,)
        As in `Units`.
    power : float
        alpha, in (0, 1].
    d : int
        Dimension.
    base : ndarray (n,)
        As in clutter.pxd: log of w N(x; c0, c I) over (1 - w) (2 pi)^(-d/2).
    rho, delta : ndarray (n,)
        Precision of the cavity, positive, and distance of its mean from the point.

    Returns
    -------
    log_z, pull, rho : ndarray (n,)
        F has precision rho and tau = pull (x - m) + rho m; the site is F^(1/alpha).
    """
    s = model[0]
    cavities, log_larger = _make_radial_cavities(s, power, -base - 0.5 * d * log(s), rho, delta)
    log_norm, inward, precision, shrink = _integrate(cavities, d, s, power)
    log_b = model[3] - 0.5 * d * LOG_2PI + base
    scale = power / (s * shrink)
    return power * (log_b + log_larger) + log_norm, scale * inward, scale * precision


# ---------------------------------------------------------------------------------------------- schedules


class PowerSweeper(Sweeper):
    """Power EP on one problem: a Sweeper whose cavities lack the power alpha of a site."""

    def __init__(self, points, options, *arguments):
        super().__init__(points, options, *arguments)
        # there is no double loop for power EP, so that sweeps go on for longer
        self.patience = 20 if options.schedule == "sequential" else 8

    def match(self, part):
        """Return points, means and precisions of cavities, whether these are proper, and `match_sites`, of a slice."""
        model, data, origin, scale, centre = self.points.arguments(part)
        sites, (site_tau, site_rho) = self.sites, self.sites.part(part)
        x = (data - origin) * scale
        cavity_rho = sites.rho - self.power * site_rho
        proper = cavity_rho > MIN_CAVITY_SHARE * sites.rho
        cavity_rho = np.where(proper, cavity_rho, sites.rho)
        mean = (sites.tau - self.power * site_tau) / cavity_rho[:, None]
        d, from_centre, miss = x.shape[1], x - centre, x - mean
        base = model[4] - d * model[2] - np.sum(from_centre * from_centre, axis=1) * model[1]
        distance = np.sqrt(np.sum(miss * miss, axis=1))
        return x, mean, cavity_rho, proper, match_sites(model, self.power, d, base, cavity_rho, distance)

    def changes(self, part):
        """Return the undamped changes of the sites of a slice, zero where a cavity is improper, and how many are."""
        x, mean, _, proper, (_, pull, rho) = self.match(part)
        site_tau, site_rho = self.sites.part(part)
        tau = (pull[:, None] * (x - mean) + rho[:, None] * mean) / self.power - site_tau
        return np.where(proper[:, None], tau, 0.0), np.where(proper, rho / self.power - site_rho, 0.0), np.sum(~proper)

    def visit_one_by_one(self, n):
        """Visit the first n sites in order; return how many were skipped."""
        sites, damping, total = self.sites, self.damping.step, 0
        order = self.visits.of_pass(self.points.shape[0])
        for i in range(n) if order is None else order[:n]:
            tau, rho, skipped = self.changes(slice(i, i + 1))
            # a step of alpha lands on the tilted moments; a longer one may take all of the posterior's precision
            step = damping if damping * rho[0] > -0.5 * sites.rho else min(damping, self.power)
            if not sites.rho + step * rho[0] > 0:  # a point so far out that the tilted variance is all rounding
                total += 1
                continue
            sites.site_tau[i] += step * tau[0]
            sites.site_rho[i] += step * rho[0]
            sites.tau = sites.tau + step * tau[0]
            sites.rho += step * float(rho[0])
            total += skipped
        self.refresh()
        return total

    def visit_first_rows(self):
        """Visit the first rows by ordinary EP, which is compiled; cavities of this power may become improper."""
        return super().visit_one_by_one(min(SUMMED_ROWS, self.points.shape[0])) + self.make_proper()

    def renew_all(self):
        """Renew all sites from one posterior; return how many were skipped."""

        def renew(start, stop):
            tau, rho, skipped = self.changes(slice(start, stop))
            site_tau, site_rho = self.sites.part(slice(start, stop))
            site_tau += self.damping.step * tau
            site_rho += self.damping.step * rho
            return skipped

        return sum(self.threads.run(renew, split_rows(self.points.shape[0], SITES_AT_ONCE))) + self.make_proper()

    def run_double_loop(self, _):
        """Return the status STUCK_STATUS: power EP has no double loop."""
        return STUCK_STATUS, []

    def finish(self):
        """Set the site values, the log evidence, and the log densities under the cavities of ordinary EP."""
        sites, units = self.sites, self.points.units
        sites.loo = evaluate(self.points, sites, self.threads)[0].copy()
        sites.loo[find_cavities(sites, units)[1] <= 0] = np.nan
        sites.site_value = np.empty(len(sites.site_rho))
        mean, d = sites.tau / sites.rho, len(sites.tau)
        for part in (slice(*span) for span in split_rows(len(sites.site_rho), SITES_AT_ONCE)):
            _, cavity_mean, cavity_rho, _, (log_z, _, _) = self.match(part)
            distance2 = np.sum((mean - cavity_mean) ** 2, axis=1)
            scaled = log_z + 0.5 * (d * np.log(sites.rho / cavity_rho) + cavity_rho * distance2)
            sites.site_value[part] = scaled / self.power
        sites.log_evidence = float(sites.combine(units, np.sum(sites.site_value)))
        return sites
