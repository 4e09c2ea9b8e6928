"""Sites of likelihoods in NumPy and SciPy."""

import math

import numpy as np

LOG_2PI = math.log(2 * math.pi)


def probit_derivatives(y, mean, variance):
    """Return log_z, d1 and d2 of p(y|f) = Phi(y f) with a Gaussian cavity."""
    from scipy.special import log_ndtr

    square = 1.0 + variance
    scale = np.sqrt(square)
    z = y * mean / scale
    log_z = log_ndtr(z)
    hazard = np.exp(-0.5 * z * z - log_z - 0.5 * LOG_2PI)
    return log_z, y * hazard / scale, -hazard * (hazard + z) / square


def logit_derivatives(y, mean, variance, n_nodes=64):
    """Return log_z, d1 and d2 of p(y|f) = 1/(1 + exp(-y f)) by Gauss-Hermite quadrature."""
    nodes, weights = np.polynomial.hermite_e.hermegauss(n_nodes)
    scale, total, first, second = np.sqrt(variance), 0.0, 0.0, 0.0
    for node, weight in zip(nodes, weights / weights.sum(), strict=True):
        p = weight / (1.0 + np.exp(-y * (mean + scale * node)))
        total = total + p
        first = first + node * p
        second = second + node * node * p
    average = first / total
    return np.log(total), average / scale, (second / total - average * average - 1.0) / variance
