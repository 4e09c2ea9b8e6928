"""EP for probit regression in pure NumPy/SciPy: what people write, and as fast as it gets."""

import numpy as np
from scipy.linalg import cho_solve, cholesky, solve_triangular
from scipy.special import log_ndtr


def probit_sites(y, m, v, noise=1.0):
    """log_z, tau, rho of probit sites, vectorised; probit is a step with standard normal noise."""
    s = np.sqrt(noise + v)
    z = y * m / s
    log_z = log_ndtr(z)
    hazard = np.exp(-0.5 * z * z - log_z) / np.sqrt(2 * np.pi)
    d1, d2 = y * hazard / s, -hazard * (hazard + z) / (noise + v)
    shrink = 1.0 + v * d2
    return log_z, (d1 - m * d2) / shrink, -d2 / shrink


def root_and_mean(precision, pull):
    """Return a root of the covariance and the mean."""
    factor = cholesky(precision, lower=True)
    return solve_triangular(factor, np.eye(len(pull)), lower=True).T, cho_solve((factor, True), pull)


def parallel_pass(X, y, tau, rho, precision, pull):
    """One undamped parallel pass for a prior N(0, I); updates tau, rho and returns the new precision and pull."""
    root, mean = root_and_mean(precision, pull)
    spread = X @ root
    v = np.einsum("ij,ij->i", spread, spread)
    m = X @ mean
    cavity = 1.0 / v - rho
    _, tau[:], rho[:] = probit_sites(y, (m / v - tau) / cavity, 1.0 / cavity)
    return np.eye(X.shape[1]) + X.T @ (rho[:, None] * X), X.T @ tau


def sequential_fit(X, y, tol):
    """Sequential EP with a rank-1 update of the covariance a site, for a prior N(0, I): mean, covariance, sweeps."""
    n, d = X.shape
    tau, rho = np.zeros(n), np.zeros(n)
    covariance, mean = np.eye(d), np.zeros(d)
    for sweep in range(200):
        before = mean.copy(), np.diag(covariance).copy()
        for i in range(n):
            u = covariance @ X[i]
            v, m = X[i] @ u, X[i] @ mean
            cavity = 1.0 / v - rho[i]
            _, new_tau, new_rho = probit_sites(y[i], (m / v - tau[i]) / cavity, 1.0 / cavity)
            d_tau, d_rho = new_tau - tau[i], new_rho - rho[i]
            tau[i], rho[i] = new_tau, new_rho
            covariance = covariance - (d_rho / (1.0 + d_rho * v)) * np.outer(u, u)
            mean = mean + ((d_tau - d_rho * m) / (1.0 + d_rho * v)) * u
        covariance = np.linalg.inv(np.eye(d) + X.T @ (rho[:, None] * X))
        mean = covariance @ (X.T @ tau)
        sd = np.sqrt(np.diag(covariance))
        if max(np.max(np.abs(mean - before[0]) / sd), np.max(np.abs(before[1] / sd**2 - 1))) < tol:
            return mean, covariance, sweep + 1
    raise ArithmeticError("not converged")
