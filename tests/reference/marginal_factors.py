"""Marginal densities by the factors of all rows, from dense matrices and a sum over nodes for each row and value."""

import numpy as np

NODES = np.linspace(-12.0, 12.0, 2401)


def find_log_ratio(z, log_p, mean, covariance, correlations, tau, rho, step=False):
    """Return log E_q[prod F_i | z] by the product of means, or by one parallel step of EP.

    Parameters
    ----------
    z : float
        The standardised value that is known.
    log_p : sequence of callable
        Log likelihoods of N rows, of f.
    mean, covariance : ndarray (N,), (N, N)
        Posterior moments of f.
    correlations : ndarray (N,)
        Of the value and f.
    tau, rho : ndarray (N,)
        Sites.
    step : bool
        Whether the means are joined by a step of EP.
    """
    sd = np.sqrt(np.diag(covariance))
    u = mean + sd * correlations * z
    C = covariance - np.outer(sd * correlations, sd * correlations)
    total, d_tau, d_rho = 0.0, np.zeros(len(u)), np.zeros(len(u))
    for i, (centre, v) in enumerate(zip(u, np.diag(C), strict=True)):
        f = centre + np.sqrt(v) * NODES
        weights = np.exp(log_p[i](f) - tau[i] * f + 0.5 * rho[i] * f * f - 0.5 * NODES**2) * (NODES[1] - NODES[0])
        value = np.sum(weights) / np.sqrt(2.0 * np.pi)
        first = np.sum(weights * f) / np.sum(weights)
        second = np.sum(weights * (f - first) ** 2) / np.sum(weights)
        d_tau[i], d_rho[i] = first / second - centre / v, 1.0 / second - 1.0 / v
        total += np.log(value)
        if step:  # less the integral of the Gaussian factor with these natural parameters
            total -= _integrate_factors(np.array([centre]), np.array([[v]]), d_tau[[i]], d_rho[[i]])
    return total + _integrate_factors(u, C, d_tau, d_rho) if step else total


def _integrate_factors(u, C, tau, rho):
    """Return log int N(f; u, C) exp(tau'f - f'diag(rho)f/2) df."""
    own = np.eye(len(u)) + C * rho
    force = tau - rho * u
    return tau @ u - 0.5 * rho @ u**2 - 0.5 * np.linalg.slogdet(own)[1] + 0.5 * force @ np.linalg.solve(own, C @ force)
