"""The clutter problem in NumPy: naive, expert, and in Python floats.

Data are in their own units, prior and clutter centred at 0. Formulas: cython_core/ep/clutter.pxd; odds: log t.
"""

import math
from dataclasses import dataclass

import numpy as np

LOG_2PI = math.log(2 * math.pi)


@dataclass(frozen=True)
class Setting:
    """The clutter model."""

    weight: float = 0.5
    clutter_variance: float = 10.0
    noise_variance: float = 1.0
    prior_variance: float = 100.0

    def base_odds(self, x):
        """Log of w N(x; 0, c I) over (1 - w) (2 pi)^(-d/2), which no sweep changes; x is (..., d)."""
        c, d, norm2 = self.clutter_variance, x.shape[-1], np.einsum("...j,...j->...", x, x)
        return math.log(self.weight / (1 - self.weight)) - 0.5 * (d * math.log(c) + norm2 / c)


def clutter_probability(odds):
    """1/(1 + exp(-odds)) without overflow, in Python floats."""
    if odds > 0:
        return 1.0 / (1.0 + math.exp(-odds))
    t = math.exp(odds)
    return t / (1.0 + t)


def log_normaliser(base, odds, d, log_inlier):
    """Log Z from base and log odds by log-sum-exp, in Python floats."""
    log_clutter = base + log_inlier - 0.5 * d * LOG_2PI
    return (log_clutter if odds > 0 else log_clutter - odds) + math.log1p(math.exp(-abs(odds)))


def sweep_floats(x, base, site_tau, site_rho, setting, tau, rho):
    """One sequential EP sweep, d = 1, over lists of Python floats; returns the posterior's (tau, rho)."""
    s, log, exp = setting.noise_variance, math.log, math.exp
    for i in range(len(x)):
        cavity_tau, cavity_rho = tau - site_tau[i], rho - site_rho[i]
        if cavity_rho <= 0.0:
            continue
        q = 1.0 / (1.0 + s * cavity_rho)
        g = cavity_rho * q
        mean = cavity_tau / cavity_rho
        delta = x[i] - mean
        f = delta * delta * g
        odds = base[i] + 0.5 * (f - log(g))
        t = exp(odds) if odds < 300.0 else math.inf
        if t == math.inf:
            site_tau[i] = site_rho[i] = 0.0
        else:
            scale = g / ((1.0 + t) * (t + s * g) + t * q * f)
            site_rho[i] = scale * (1.0 + t - t * f)
            site_tau[i] = scale * (1.0 + t) * delta + site_rho[i] * mean
        tau, rho = cavity_tau + site_tau[i], cavity_rho + site_rho[i]
    return sum(site_tau), 1.0 / setting.prior_variance + sum(site_rho)


def adf_floats(x, base, setting):
    """ADF, d = 1, over lists of Python floats; returns (tau, rho, log evidence, site_tau, site_rho)."""
    s, tau, rho, log_evidence = setting.noise_variance, 0.0, 1.0 / setting.prior_variance, 0.0
    site_tau, site_rho, log_inlier = [0.0] * len(x), [0.0] * len(x), math.log1p(-setting.weight)
    for i in range(len(x)):
        q = 1.0 / (1.0 + s * rho)
        g = rho * q
        mean = tau / rho
        delta = x[i] - mean
        f = delta * delta * g
        odds = base[i] + 0.5 * (f - math.log(g))
        log_evidence += log_normaliser(base[i], odds, 1, log_inlier)
        w = clutter_probability(odds)
        r = 1.0 - w
        scale = r * g / (w + r * s * g + r * w * q * f)
        site_rho[i] = scale * (1.0 - w * f)
        site_tau[i] = scale * delta + site_rho[i] * mean
        tau, rho = tau + site_tau[i], rho + site_rho[i]
    return tau, rho, log_evidence, site_tau, site_rho


def sweep_vectors(x, base, site_tau, site_rho, setting, tau, rho, work):
    """One sequential EP sweep, any d: vectors of coordinates in NumPy with out=, numbers in Python floats.

    x and site_tau are (N, d), base and site_rho lists, tau (d,) is overwritten, work is (3, d). Returns rho.
    """
    s, d = setting.noise_variance, x.shape[1]
    cavity, mean, delta = work
    for i in range(len(x)):
        cavity_rho = rho - site_rho[i]
        if cavity_rho <= 0.0:
            continue
        mine = site_tau[i]
        np.subtract(tau, mine, out=cavity)
        np.multiply(cavity, 1.0 / cavity_rho, out=mean)
        np.subtract(x[i], mean, out=delta)
        q = 1.0 / (1.0 + s * cavity_rho)
        g = cavity_rho * q
        f = float(delta.dot(delta)) * g / d
        w = clutter_probability(base[i] + 0.5 * d * (f - math.log(g)))
        r = 1.0 - w
        scale = r * g / (w + r * s * g + r * w * q * f)
        site_rho[i] = scale * (1.0 - w * f)
        np.multiply(delta, scale, out=delta)
        np.multiply(mean, site_rho[i], out=mean)
        np.add(delta, mean, out=mine)
        np.add(cavity, mine, out=tau)
        rho = cavity_rho + site_rho[i]
    site_tau.sum(axis=0, out=tau)
    return 1.0 / setting.prior_variance + sum(site_rho)


def adf_vectors(x, base, setting):
    """ADF, any d, as `sweep_vectors`; returns (tau, rho, log evidence, site_tau, site_rho)."""
    (n, d), s, log_inlier = x.shape, setting.noise_variance, math.log1p(-setting.weight)
    site_tau, site_rho, log_evidence = np.empty((n, d)), [0.0] * n, 0.0
    tau, rho, mean, delta = np.zeros(d), 1.0 / setting.prior_variance, np.empty(d), np.empty(d)
    for i in range(n):
        np.multiply(tau, 1.0 / rho, out=mean)
        np.subtract(x[i], mean, out=delta)
        q = 1.0 / (1.0 + s * rho)
        g = rho * q
        f = float(delta.dot(delta)) * g / d
        odds = base[i] + 0.5 * d * (f - math.log(g))
        log_evidence += log_normaliser(base[i], odds, d, log_inlier)
        w = clutter_probability(odds)
        r = 1.0 - w
        scale = r * g / (w + r * s * g + r * w * q * f)
        site_rho[i] = scale * (1.0 - w * f)
        np.multiply(delta, scale, out=delta)
        np.multiply(mean, site_rho[i], out=mean)
        np.add(delta, mean, out=site_tau[i])
        np.add(tau, site_tau[i], out=tau)
        rho += site_rho[i]
    return tau, rho, log_evidence, site_tau, np.array(site_rho)


def match_naive(distance2, norm2, variance, d, setting):
    """Minka's update from |x - mean|^2, |x|^2 and the cavity's variance, any shapes.

    Returns log Z, the step of the mean in units of variance (x - mean), and the new variance.
    """
    total = variance + setting.noise_variance
    log_signal = np.log(1 - setting.weight) - 0.5 * (d * np.log(2 * np.pi * total) + distance2 / total)
    log_clutter = np.log(setting.weight) - 0.5 * (
        d * np.log(2 * np.pi * setting.clutter_variance) + norm2 / setting.clutter_variance
    )
    log_z = np.logaddexp(log_signal, log_clutter)
    r = np.exp(log_signal - log_z)
    shrunk = variance - r * variance**2 / total + r * (1 - r) * variance**2 * distance2 / (d * total**2)
    return log_z, r / total, shrunk


def sweep_naive(x, site_tau, site_rho, setting, tau, rho):
    """One sequential EP sweep, any d, in textbook formulas: x and site_tau (N, d), site_rho (N,).

    From zero sites this is ADF. Returns tau, rho and the sum of log Z.
    """
    log_evidence, d = 0.0, x.shape[1]
    for i in range(len(x)):
        cavity_tau, cavity_rho = tau - site_tau[i], rho - site_rho[i]
        if cavity_rho <= 0:
            continue
        mean, variance = cavity_tau / cavity_rho, 1 / cavity_rho
        distance2, norm2 = np.sum((x[i] - mean) ** 2), np.sum(x[i] ** 2)
        log_z, step, new_variance = match_naive(distance2, norm2, variance, d, setting)
        new_mean = mean + variance * step * (x[i] - mean)
        log_evidence += log_z
        site_tau[i] = new_mean / new_variance - cavity_tau
        site_rho[i] = 1 / new_variance - cavity_rho
        tau, rho = cavity_tau + site_tau[i], cavity_rho + site_rho[i]
    return site_tau.sum(axis=0), 1 / setting.prior_variance + site_rho.sum(), log_evidence


def renew_naive(x, tau, rho, site_tau, site_rho, setting):
    """New sites for arrays of cavities, d = 1, in textbook formulas; returns the cavities' (tau, rho).

    tau and rho are arrays like the others, or numbers. Sites with an improper cavity stay.
    """
    cavity_tau, cavity_rho = tau - site_tau, rho - site_rho
    mean, variance = cavity_tau / cavity_rho, 1 / cavity_rho
    _, step, new_variance = match_naive((x - mean) ** 2, x**2, variance, 1, setting)
    new_mean = mean + variance * step * (x - mean)
    proper = cavity_rho > 0
    site_tau[:] = np.where(proper, new_mean / new_variance - cavity_tau, site_tau)
    site_rho[:] = np.where(proper, 1 / new_variance - cavity_rho, site_rho)
    return cavity_tau, cavity_rho


@np.errstate(all="ignore")  # improper cavities
def sweep_parallel_naive(x, site_tau, site_rho, setting, tau, rho):
    """All sites from one posterior, d = 1; returns new (tau, rho)."""
    renew_naive(x, tau, rho, site_tau, site_rho, setting)
    return site_tau.sum(), 1 / setting.prior_variance + site_rho.sum()


def renew_expert(x, base, tau, rho, site_tau, site_rho, s, work):
    """New sites for arrays of cavities, d = 1, written over the old ones; returns the cavities' (tau, rho).

    tau and rho are arrays like the others, or numbers. Sites with an improper cavity stay.
    """
    cavity_tau, cavity_rho, mean, delta, g, q, t, f = work
    np.subtract(rho, site_rho, out=cavity_rho)
    np.subtract(tau, site_tau, out=cavity_tau)
    np.divide(cavity_tau, cavity_rho, out=mean)
    np.subtract(x, mean, out=delta)
    np.multiply(cavity_rho, s, out=q)
    np.add(q, 1.0, out=q)
    np.divide(1.0, q, out=q)
    np.multiply(cavity_rho, q, out=g)
    np.multiply(delta, delta, out=f)
    np.multiply(f, g, out=f)
    np.multiply(f, 0.5, out=t)
    np.add(t, base, out=t)
    np.exp(t, out=t)  # data that overflow here need another formula; those of the benchmarks do not
    proper = cavity_rho.min() > 0.0
    keep = None if proper else ~(cavity_rho > 0.0)
    old = None if proper else (site_tau[keep], site_rho[keep])
    np.sqrt(g, out=site_tau)  # from here on the site arrays are work space
    np.divide(t, site_tau, out=t)
    np.multiply(f, t, out=f)  # t f
    np.multiply(q, f, out=q)
    np.multiply(g, s, out=site_tau)
    np.add(site_tau, t, out=site_tau)
    np.add(t, 1.0, out=t)
    np.multiply(site_tau, t, out=site_tau)
    np.add(site_tau, q, out=site_tau)
    np.divide(g, site_tau, out=g)
    np.subtract(t, f, out=site_rho)
    np.multiply(site_rho, g, out=site_rho)
    np.multiply(g, t, out=g)
    np.multiply(delta, g, out=site_tau)
    np.multiply(mean, site_rho, out=mean)
    np.add(site_tau, mean, out=site_tau)
    if old is not None:
        site_tau[keep], site_rho[keep] = old
    return cavity_tau, cavity_rho


@np.errstate(all="ignore")
def sweep_parallel_expert(x, base, site_tau, site_rho, setting, tau, rho, work):
    """All sites from one posterior, d = 1, in blocks as long as work (8, n); returns new (tau, rho)."""
    size, new_tau, new_rho = work.shape[1], 0.0, 1.0 / setting.prior_variance
    for start in range(0, len(x), size):
        part = slice(start, start + size)
        sites = site_tau[part], site_rho[part]
        renew_expert(x[part], base[part], tau, rho, *sites, setting.noise_variance, work[:, : len(sites[0])])
        new_tau += sites[0].sum()
        new_rho += sites[1].sum()
    return new_tau, new_rho


class NaiveBatch:
    """Sequential EP on B problems at once, d = 1: arrays (N, B), one visit a vectorised textbook update."""

    def __init__(self, x, setting):
        """Start at the prior; x is (B, N)."""
        self.setting, self.x = setting, np.ascontiguousarray(x.T)
        self.site_tau, self.site_rho = np.zeros_like(self.x), np.zeros_like(self.x)
        self.tau, self.rho = np.zeros(len(x)), np.full(len(x), 1 / setting.prior_variance)

    @np.errstate(all="ignore")  # improper cavities
    def sweep(self):
        """Visit all points in order."""
        for i, x in enumerate(self.x):
            sites = self.site_tau[i], self.site_rho[i]
            cavity_tau, cavity_rho = renew_naive(x, self.tau, self.rho, *sites, self.setting)
            self.tau, self.rho = cavity_tau + sites[0], cavity_rho + sites[1]
        self.tau = self.site_tau.sum(axis=0)
        self.rho = 1 / self.setting.prior_variance + self.site_rho.sum(axis=0)

    def log_evidence(self):
        """Return the log evidence of each problem."""
        value = evaluate_naive(self.x, self.site_tau, self.site_rho, self.tau, self.rho, self.setting)[2]
        return value.sum(axis=0) + evidence_constant(self.tau, self.rho, self.setting)

    def keep(self, expected):
        """Go on with the problems in the boolean array `wanted` only."""
        for name in ("x", "site_tau", "site_rho"):
            setattr(self, name, np.ascontiguousarray(getattr(self, name)[:, expected]))
        self.tau, self.rho = self.tau[expected], self.rho[expected]


class ExpertBatch(NaiveBatch):
    """The same, with the base odds computed once and no temporaries."""

    def __init__(self, x, setting):
        """Start at the prior; x is (B, N)."""
        super().__init__(x, setting)
        self.base, self.work = setting.base_odds(self.x[..., None]), np.empty((8, len(x)))

    @np.errstate(all="ignore")
    def sweep(self):
        """Visit all points in order."""
        tau, rho, s, work = self.tau, self.rho, self.setting.noise_variance, self.work
        for x, base, site_tau, site_rho in zip(self.x, self.base, self.site_tau, self.site_rho, strict=True):
            cavity_tau, cavity_rho = renew_expert(x, base, tau, rho, site_tau, site_rho, s, work)
            np.add(cavity_tau, site_tau, out=tau)
            np.add(cavity_rho, site_rho, out=rho)
        self.site_tau.sum(axis=0, out=tau)
        self.site_rho.sum(axis=0, out=rho)
        rho += 1.0 / self.setting.prior_variance

    def log_evidence(self):
        """Return the log evidence of each problem."""
        sites, posterior = (self.site_tau, self.site_rho), (self.tau, self.rho)
        work = np.empty((6, *self.x.shape))
        value = evaluate_expert(self.x, self.base, *sites, *posterior, self.setting, work)[2]
        return value.sum(axis=0) + evidence_constant(self.tau, self.rho, self.setting)

    def keep(self, expected):
        """Go on with the problems in the boolean array `wanted` only."""
        super().keep(expected)
        self.base = np.ascontiguousarray(self.base[:, expected])
        self.work = np.empty((8, len(self.tau)))


def fit_batch(batch, tol=1e-10, max_iter=100):
    """Sweep until every problem's posterior moves by at most tol; returns means, variances and log evidences.

    Problems that are done leave the batch whenever they are half of it. Problems that never settle get nan.
    """
    index, size = np.arange(len(batch.tau)), len(batch.tau)
    results = np.full((3, size), np.nan)
    finished = np.zeros(size, dtype=bool)
    for _ in range(max_iter):
        old_mean, old_variance = batch.tau / batch.rho, 1 / batch.rho
        batch.sweep()
        mean, variance = batch.tau / batch.rho, 1 / batch.rho
        change = np.maximum(np.abs(mean - old_mean) / np.sqrt(variance), np.abs(variance / old_variance - 1))
        finished |= change <= tol
        if 2 * finished.sum() >= len(index):
            results[:, index] = mean, variance, batch.log_evidence()
            if finished.all():
                return results
            batch.keep(~finished)
            index, finished = index[~finished], np.zeros(len(batch.tau), dtype=bool)
    results[:, index] = np.nan
    return results


def evidence_constant(tau, rho, setting):
    """Log evidence less the sum of the log site values at the posterior mean."""
    return -0.5 * (np.log(setting.prior_variance * rho) + (tau / rho) ** 2 / setting.prior_variance)


def evaluate_naive(x, site_tau, site_rho, tau, rho, setting):
    """Return log Z, the log odds of clutter and the log site value of each point under its cavity, d = 1."""
    variance = 1 / (rho - site_rho)
    mean = (tau - site_tau) * variance
    total = variance + setting.noise_variance
    log_signal = np.log(1 - setting.weight) - 0.5 * (np.log(2 * np.pi * total) + (x - mean) ** 2 / total)
    log_clutter = np.log(setting.weight) - 0.5 * (
        np.log(2 * np.pi * setting.clutter_variance) + x**2 / setting.clutter_variance
    )
    log_z = np.logaddexp(log_signal, log_clutter)
    value = log_z + 0.5 * (np.log(rho * variance) + (tau / rho - mean) ** 2 / variance)
    return log_z, log_clutter - log_signal, value


def evaluate_expert(x, base, site_tau, site_rho, tau, rho, setting, work):
    """The same in six arrays `work`, the first three of which are the results."""
    log_z, odds, value, cavity_rho, mean, scratch = work
    np.subtract(rho, site_rho, out=cavity_rho)
    np.subtract(tau, site_tau, out=mean)
    np.divide(mean, cavity_rho, out=mean)
    np.subtract(tau / rho, mean, out=value)
    np.multiply(value, value, out=value)
    np.multiply(value, cavity_rho, out=value)  # cavity_rho shift^2
    np.divide(rho, cavity_rho, out=scratch)
    np.log(scratch, out=scratch)
    np.add(value, scratch, out=value)
    np.multiply(value, 0.5, out=value)
    np.divide(1.0, cavity_rho, out=cavity_rho)
    np.add(cavity_rho, setting.noise_variance, out=cavity_rho)  # S
    np.subtract(x, mean, out=odds)
    np.multiply(odds, odds, out=odds)
    np.divide(odds, cavity_rho, out=odds)
    np.log(cavity_rho, out=scratch)
    np.add(odds, scratch, out=odds)
    np.multiply(odds, 0.5, out=odds)
    np.add(odds, base, out=odds)
    np.copysign(odds, -1.0, out=scratch)
    np.exp(scratch, out=scratch)
    np.log1p(scratch, out=scratch)
    np.minimum(odds, 0.0, out=log_z)
    np.subtract(scratch, log_z, out=log_z)
    np.add(log_z, base, out=log_z)
    np.add(log_z, math.log1p(-setting.weight) - 0.5 * LOG_2PI, out=log_z)
    np.add(value, log_z, out=value)
    return log_z, odds, value


def evaluate_in_blocks(x, base, site_tau, site_rho, tau, rho, setting, out, work):
    """`evaluate_expert` over blocks as long as the work arrays (3, n), into the three arrays `out`."""
    size = work.shape[1]
    for start in range(0, len(x), size):
        part = slice(start, start + size)
        results = tuple(a[part] for a in out)
        arrays = (*results, *work[:, : len(results[0])])
        evaluate_expert(x[part], base[part], site_tau[part], site_rho[part], tau, rho, setting, arrays)
