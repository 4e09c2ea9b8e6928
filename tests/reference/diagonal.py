"""Independent weights under a probit likelihood: dense, one number at a time, from the definitions; no tricks."""

import numpy as np
from scipy import integrate
from scipy.special import log_ndtr


def tilted(y, m, v, e=1.0):
    """Return log Z, mean and variance of N(f; m, v) Phi(y f)^e; the closed form for e = 1, else a grid."""
    if e == 1:
        s = np.sqrt(1 + v)
        z = y * m / s
        log_z = log_ndtr(z)
        hazard = np.exp(-0.5 * z * z - log_z) / np.sqrt(2 * np.pi)
        return log_z, m + y * v * hazard / s, v - v * v * hazard * (z + hazard) / (1 + v)
    f = np.linspace(m - 12 * np.sqrt(v), m + 12 * np.sqrt(v), 20001)
    h = np.exp(e * log_ndtr(y * f) - 0.5 * (f - m) ** 2 / v) / np.sqrt(2 * np.pi * v)
    z = integrate.simpson(h, x=f)
    mean = integrate.simpson(h * f, x=f) / z
    return np.log(z), mean, integrate.simpson(h * (f - mean) ** 2, x=f) / z


def adf(x, y, mean, variance, offset=None, weights=None):
    """Return means, variances and the log density of each row given those before it."""
    n, d = x.shape
    mean, variance, log_z = np.array(mean, dtype=float), np.array(variance, dtype=float), np.zeros(n)
    for i in range(n):
        left = 1.0 if weights is None else weights[i]
        while left > 1e-12:
            m = (0.0 if offset is None else offset[i]) + sum(x[i, j] * mean[j] for j in range(d))
            v = sum(x[i, j] ** 2 * variance[j] for j in range(d))
            log_zi, f_mean, f_variance = tilted(y[i], m, v, min(left, 1.0))
            for j in range(d):  # w_j given f is a linear regression on f
                slope = variance[j] * x[i, j] / v
                mean[j] += slope * (f_mean - m)
                variance[j] += slope**2 * (f_variance - v)
            log_z[i] += log_zi
            left -= 1.0
    return mean, variance, log_z


def log_partition(tau, rho):
    """Log of the integral of exp(tau w - rho w^2/2), without log(2 pi)/2."""
    return 0.5 * tau * tau / rho - 0.5 * np.log(rho)


def ep(x, y, mean, variance, n_passes, offset=None, weights=None, power=1.0):
    """Return means, variances, log evidence and leave-one-out log densities after passes of undamped EP."""
    n, d = x.shape
    offset = np.zeros(n) if offset is None else offset
    weights = np.ones(n) if weights is None else weights
    prior_tau, prior_rho = mean / variance, 1 / variance
    tau, rho = np.zeros((n, d)), np.zeros((n, d))
    post_tau, post_rho = prior_tau.copy(), prior_rho.copy()

    def cavity(i, fraction):
        cav_tau, cav_rho = post_tau - fraction * tau[i], post_rho - fraction * rho[i]
        assert (cav_rho > 0).all()
        m = offset[i] + sum(x[i, j] * cav_tau[j] / cav_rho[j] for j in range(d))
        return cav_tau, cav_rho, m, sum(x[i, j] ** 2 / cav_rho[j] for j in range(d))

    for _ in range(n_passes):
        for i in range(n):
            e = power * min(1.0, weights[i])
            fraction = e / weights[i]
            cav_tau, cav_rho, m, v = cavity(i, fraction)
            _, f_mean, f_variance = tilted(y[i], m, v, e)
            for j in range(d):
                slope = x[i, j] / cav_rho[j] / v
                new_v = 1 / cav_rho[j] + slope**2 * (f_variance - v)
                new_m = cav_tau[j] / cav_rho[j] + slope * (f_mean - m)
                new_tau, new_rho = (new_m / new_v - cav_tau[j]) / fraction, (1 / new_v - cav_rho[j]) / fraction
                post_tau[j] += new_tau - tau[i, j]
                post_rho[j] += new_rho - rho[i, j]
                tau[i, j], rho[i, j] = new_tau, new_rho
    posterior = log_partition(post_tau, post_rho)
    total, loo = np.sum(posterior - log_partition(prior_tau, prior_rho)), np.zeros(n)
    for i in range(n):
        e = power * min(1.0, weights[i])
        fraction = e / weights[i]
        cav_tau, cav_rho, m, v = cavity(i, fraction)
        total += (tilted(y[i], m, v, e)[0] + np.sum(log_partition(cav_tau, cav_rho) - posterior)) / fraction
        *_, m, v = cavity(i, min(1.0, 1.0 / weights[i]))
        loo[i] = tilted(y[i], m, v)[0]
    return post_tau / post_rho, 1 / post_rho, total, loo
