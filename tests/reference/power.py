"""Power EP for the clutter problem, one point at a time, every integral on a grid; no tricks."""

import numpy as np
from scipy import integrate, special

from . import clutter


def tilted(x, m, v, alpha, w=0.5, c=10.0, s=1.0, centre=0.0):
    """Return log Z, mean and variance per coordinate of N(theta; m, v I) p(x | theta)^alpha, d = 1 or 2."""
    x, m, sd = np.atleast_1d(x), np.atleast_1d(m), np.sqrt(v)
    axes = [np.linspace(mi - 10 * sd, mi + 10 * sd, 4001 if x.size == 1 else 501) for mi in m]
    return clutter.moments_on_grid(axes, m, v, lambda theta: clutter.likelihood(x, theta, w, c, s, centre) ** alpha)


def tilted_radially(d, distance, v, alpha, log_a, log_b, s=1.0):
    """Return log Z, the distance of the tilted mean from x, and the variance; t = B + A exp(-r^2/(2 s)), d > 1."""
    nu, sd = d / 2 - 1, np.sqrt(v)
    centre = np.sqrt(distance**2 + d * v)
    r = np.linspace(1e-6 * centre, centre + 12 * sd, 40001)
    z = r * distance / v
    bessel = np.maximum(special.ive(nu, z), 1e-300)
    log_p = np.log(r / v) + nu * np.log(r / distance) - 0.5 * (r - distance) ** 2 / v + np.log(bessel)
    h = np.exp(log_p + alpha * np.logaddexp(log_b, log_a - 0.5 * r * r / s))
    total = integrate.simpson(h, x=r)
    mean = integrate.simpson(h * r * special.ive(nu + 1, z) / bessel, x=r) / total
    return np.log(total), mean, (integrate.simpson(h * r * r, x=r) / total - mean**2) / d


def ep(x, n_sweeps, alpha, w=0.5, c=10.0, s=1.0, m0=0.0, v0=100.0, centre=0.0, damping=1.0):
    """Return mean, variance, log evidence, LOO densities and sites (tau, rho) after n_sweeps sweeps over x (N, d)."""
    n, d = x.shape
    tau, rho = np.zeros((n, d)), np.zeros(n)
    post_tau, post_rho = np.full(d, m0) / v0, 1 / v0
    for _ in range(n_sweeps):
        for i in range(n):
            cav_tau, cav_rho = post_tau - alpha * tau[i], post_rho - alpha * rho[i]
            if cav_rho <= 0:
                continue
            _, new_m, new_v = tilted(x[i], cav_tau / cav_rho, 1 / cav_rho, alpha, w, c, s, centre)
            step_tau = damping * ((new_m / new_v - cav_tau) / alpha - tau[i])
            step_rho = damping * ((1 / new_v - cav_rho) / alpha - rho[i])
            tau[i], rho[i] = tau[i] + step_tau, rho[i] + step_rho
            post_tau, post_rho = post_tau + step_tau, post_rho + step_rho
    m, v = post_tau / post_rho, 1 / post_rho
    post = clutter.log_partition(post_tau, post_rho)
    total, loo = post - clutter.log_partition(np.full(d, m0) / v0, 1 / v0), np.empty(n)
    for i in range(n):
        cav_tau, cav_rho = post_tau - alpha * tau[i], post_rho - alpha * rho[i]
        log_z = tilted(x[i], cav_tau / cav_rho, 1 / cav_rho, alpha, w, c, s, centre)[0]
        total += (log_z - (post - clutter.log_partition(cav_tau, cav_rho))) / alpha
        rest_tau, rest_rho = post_tau - tau[i], post_rho - rho[i]
        loo[i] = clutter.tilted(x[i], rest_tau / rest_rho, 1 / rest_rho, w, c, s, centre)[0]
    return m, v, total, loo, tau, rho
