"""ADF and EP for the clutter problem, one point at a time, from the equations of Minka's thesis; no tricks.

Posterior N(m, v I); a site is the quotient of new posterior and cavity, kept as (tau, rho, log of its value at 0).
"""

import numpy as np
from scipy import integrate

LOG_2PI = np.log(2 * np.pi)


def log_normal(x, mean, variance):
    """log N(x; mean, variance I)."""
    x = np.atleast_1d(x)
    return -0.5 * x.size * (LOG_2PI + np.log(variance)) - 0.5 * np.sum((x - mean) ** 2) / variance


def tilted(x, m, v, w, c, s, centre=0.0):
    """Return log Z, the responsibility of the signal, new mean and new variance."""
    d = np.size(x)
    log_signal = np.log1p(-w) + log_normal(x, m, v + s)
    log_clutter = np.log(w) + log_normal(x, centre, c)
    log_z = np.logaddexp(log_signal, log_clutter)
    r = np.exp(log_signal - log_z)
    new_m = m + v * r * (x - m) / (v + s)
    new_v = v - r * v**2 / (v + s) + r * (1 - r) * v**2 * np.sum((x - m) ** 2) / ((v + s) ** 2 * d)
    return log_z, r, new_m, new_v


def adf(x, w=0.5, c=10.0, s=1.0, m0=0.0, v0=100.0, centre=0.0, moments=tilted):
    """Return mean, variance and log evidence after one pass over the rows of x (N, d)."""
    m, v, total = np.full(x.shape[1], m0), v0, 0.0
    for row in x:
        log_z, _, m, v = moments(row, m, v, w, c, s, centre)
        total += log_z
    return m, v, total


def ep(
    x,
    n_sweeps,
    w=0.5,
    c=10.0,
    s=1.0,
    m0=0.0,
    v0=100.0,
    centre=0.0,
    order=None,
    parallel=False,
    damping=1.0,
    moments=tilted,
):
    """Return mean, variance, log evidence, LOO densities and sites (tau, rho) after n_sweeps sweeps over x (N, d)."""
    n, d = x.shape
    tau, rho = np.zeros((n, d)), np.zeros(n)
    post_tau, post_rho = np.full(d, m0) / v0, 1 / v0
    for _ in range(n_sweeps):
        frozen = post_tau.copy(), post_rho
        for i in range(n) if order is None else order:
            base_tau, base_rho = frozen if parallel else (post_tau, post_rho)
            cav_tau, cav_rho = base_tau - tau[i], base_rho - rho[i]
            if cav_rho <= 0:
                continue
            _, _, new_m, new_v = moments(x[i], cav_tau / cav_rho, 1 / cav_rho, w, c, s, centre)
            new_tau = tau[i] + damping * (new_m / new_v - cav_tau - tau[i])
            new_rho = rho[i] + damping * (1 / new_v - cav_rho - rho[i])
            post_tau, post_rho = post_tau + new_tau - tau[i], post_rho + new_rho - rho[i]
            tau[i], rho[i] = new_tau, new_rho
    m, v = post_tau / post_rho, 1 / post_rho
    evidence, loo = log_evidence(x, m, v, tau, rho, w, c, s, m0, v0, centre)
    return m, v, evidence, loo, tau, rho


def log_partition(tau, rho):
    """log of the integral of exp(tau'x - rho |x|^2/2), less d/2 log(2 pi)."""
    return np.sum(tau**2) / (2 * rho) - 0.5 * np.size(tau) * np.log(rho)


def log_evidence(x, m, v, tau, rho, w, c, s, m0, v0, centre):
    """log Z = sum_i [log Z_i - (A(posterior) - A(cavity_i))] + A(posterior) - A(prior), and the log Z_i."""
    post = log_partition(m / v, 1 / v)
    loo, total = np.empty(len(x)), post - log_partition(np.full(x.shape[1], m0) / v0, 1 / v0)
    for i in range(len(x)):
        cav_tau, cav_rho = m / v - tau[i], 1 / v - rho[i]
        loo[i] = tilted(x[i], cav_tau / cav_rho, 1 / cav_rho, w, c, s, centre)[0]
        total += loo[i] - (post - log_partition(cav_tau, cav_rho))
    return total, loo


def likelihood(x, theta, w, c, s, centre):
    """p(x | theta) for one point x (d,) and a grid theta (..., d)."""
    d = x.size
    signal = np.exp(-0.5 * np.sum((x - theta) ** 2, axis=-1) / s) / (2 * np.pi * s) ** (d / 2)
    return (1 - w) * signal + w * np.exp(log_normal(x, centre, c))


def tilted_by_quadrature(x, m, v, w, c, s, centre=0.0):
    """The moments of `tilted` by brute force on a grid over the cavity, d = 1 or 2."""
    d, sd = np.size(x), np.sqrt(v)
    axes = [np.linspace(mi - 9 * sd, mi + 9 * sd, 3001 if d == 1 else 201) for mi in np.atleast_1d(m)]
    log_z, new_m, new_v = moments_on_grid(
        axes, m, v, lambda theta: likelihood(np.atleast_1d(x), theta, w, c, s, centre)
    )
    return log_z, None, new_m, new_v


def moments_on_grid(axes, m, v, factor):
    """Log Z, mean and variance per coordinate of N(theta; m, v I) times a factor, on a grid of d axes."""
    d = len(axes)
    theta = np.stack(np.meshgrid(*axes, indexing="ij"), axis=-1)
    density = factor(theta) * np.exp(-0.5 * np.sum((theta - m) ** 2, axis=-1) / v) / (2 * np.pi * v) ** (d / 2)

    def integral(values):
        for axis in reversed(axes):
            values = integrate.simpson(values, x=axis, axis=-1)
        return values

    z = integral(density)
    mean = np.array([integral(density * theta[..., j]) for j in range(d)]) / z
    return np.log(z), mean, integral(density * np.sum((theta - mean) ** 2, axis=-1)) / z / d


def exact(x, w=0.5, c=10.0, s=1.0, m0=0.0, v0=100.0, centre=0.0, n_grid=200001):
    """Exact mean, variance and log evidence for x (N, 1) on a fine grid."""
    low, high = x.min() - 12 * np.sqrt(s), x.max() + 12 * np.sqrt(s)
    low, high = min(low, m0 - 12 * np.sqrt(v0)), max(high, m0 + 12 * np.sqrt(v0))
    theta = np.linspace(low, high, n_grid)
    log_density = -0.5 * (theta - m0) ** 2 / v0 - 0.5 * (LOG_2PI + np.log(v0))
    for row in x:
        log_density = log_density + np.log(likelihood(row, theta[:, None], w, c, s, centre))
    top = log_density.max()
    density = np.exp(log_density - top)
    z = integrate.simpson(density, x=theta)
    mean = integrate.simpson(density * theta, x=theta) / z
    return mean, integrate.simpson(density * (theta - mean) ** 2, x=theta) / z, top + np.log(z)
