"""A parallel pass of EP over rows f = x'a + base, one row at a time, with sums that do not round."""

import math

import numpy as np

from reference.glm import log_tilted

SMALLEST_SHARE = 1e-13  # of a posterior precision that a cavity keeps


def moments(X, base, mean, covariance):
    """Means and variances of f for a ~ N(mean, covariance)."""
    m = [math.fsum([*(x * mean), b]) for x, b in zip(X, base, strict=True)]
    v = [math.fsum((np.outer(x, x) * covariance).ravel()) for x in X]
    return np.array(m), np.array(v)


def sums(X, base, prior_mean, tau, rho):
    """h = X'RX and g = X'(tau - R c), c = X prior_mean + base."""
    d = X.shape[1]
    c = X @ prior_mean + base
    h = [[math.fsum(rho * X[:, i] * X[:, j]) for j in range(d)] for i in range(d)]
    return np.array(h), np.array([math.fsum((tau - rho * c) * X[:, i]) for i in range(d)])


def renew(log_p, m, v, tau, rho, fraction, residual, up, down):
    """The new site on one f with moments (m, v), where p^e is exp(log_p), and whether it was left alone."""
    if not 1.0 - fraction * rho * v > SMALLEST_SHARE:
        return tau, rho, True
    cavity_v = 1.0 / (1.0 / v - fraction * rho)
    cavity_m = (m / v - fraction * tau) * cavity_v
    wide = cavity_v + residual
    _, tilted_m, tilted_v = log_tilted(log_p, cavity_m, wide)
    match_tau, match_rho = tilted_m / tilted_v - cavity_m / wide, 1.0 / tilted_v - 1.0 / wide
    spread = 1.0 + match_rho * residual  # of what it says of f, to what it acts on
    d_tau, d_rho = match_tau / spread / fraction - tau, match_rho / spread / fraction - rho
    damping = up if d_rho >= 0 else down
    return tau + damping * d_tau, rho + damping * d_rho, False
