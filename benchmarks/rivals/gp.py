"""Gaussian processes in pure NumPy/SciPy: what people write, and as fast as it gets.

Covariances are variance * g(r) with r^2 = sum_d (x_d - z_d)^2 / lengthscale_d^2: "rbf" and "matern52". Sites are those
of probit labels y in {-1, 1}, tau = precision x mean and rho = precision; a prior is N(0, K).
"""

import numpy as np
from rivals.glm import probit_sites
from scipy.linalg import cho_solve, cholesky, solve_triangular
from scipy.linalg.blas import dgemm, dger, dtrmv
from scipy.linalg.lapack import dpotrf, dpotri, dtrtri
from scipy.spatial.distance import cdist

GRAM_ROWS = 64  # of a block: its covariances stay in the second-level cache
SITE_ROWS = 64  # of a block of sites whose changes are applied to the covariance together
MOST_SWEEPS = 200
LOG_TWO_PI = np.log(2.0 * np.pi)


# Gram matrices and their gradients


def gram(kind, X, variance, lengthscale, other=None):
    """The expressions people write, for the rows of X and those of `other`."""
    left = X / lengthscale
    right = left if other is None else other / lengthscale
    if kind == "rbf":
        return variance * np.exp(-0.5 * cdist(left, right, "sqeuclidean"))
    r = np.sqrt(5.0) * cdist(left, right)
    return variance * (1.0 + r + r**2 / 3.0) * np.exp(-r)


def matern52(block, slope):
    """From -r^2/2 to the Matern 5/2 covariance, or its slope (see `gradient`), in place."""
    block *= -10.0
    r = np.sqrt(block)  # sqrt(5) r
    if slope:
        np.add(r, 1.0, out=block)
        block *= 5.0 / 3.0
    else:
        block /= 3.0
        block += r
        block += 1.0
    np.negative(r, out=r)
    np.exp(r, out=r)
    block *= r


def blocked_gram(kind, X, variance, lengthscale, out):
    """The lower triangle by blocks of rows in the cache, -r^2/2 as one product of matrices, copied to the upper one.

    "slope" is that of "matern52".
    """
    Z = X / lengthscale
    half, ones = -0.5 * np.einsum("nd,nd->n", Z, Z), np.ones(len(Z))
    left, right = np.column_stack([Z, half, ones]), np.column_stack([Z, ones, half])
    for start in range(0, len(Z), GRAM_ROWS):
        rows = slice(start, start + GRAM_ROWS)
        block = left[rows] @ right[: start + GRAM_ROWS].T
        np.minimum(block, 0.0, out=block)
        if kind == "rbf":
            np.exp(block, out=block)
        else:
            matern52(block, kind == "slope")
        block *= variance
        out[rows, : start + GRAM_ROWS] = block
        out[:start, rows] = block[:, :start].T
    return out


def gradient(kind, X, variance, lengthscale, weights):
    """Textbook d<weights, K>/dlog(variance, lengthscales): a matrix of derivatives for each parameter.

    dK/dlog lengthscale_d = S (x_d - z_d)^2 / lengthscale_d^2 with a matrix S, the slope; K itself for "rbf".
    """
    Z = X / lengthscale
    item = np.empty((1 + Z.shape[1], len(Z), len(Z)))
    slope = item[0] = gram(kind, X, variance, lengthscale)
    if kind == "matern52":
        r = np.sqrt(5.0) * cdist(Z, Z)
        slope = 5.0 / 3.0 * variance * (1.0 + r) * np.exp(-r)
    item[1:] = slope * (Z.T[:, :, None] - Z.T[:, None, :]) ** 2
    return np.einsum("gij,ij->g", item, weights)


def product_gradient(kind, X, variance, lengthscale, weights, out):
    """The same without: sum_ij A_ij (x_i - x_j)^2 = 2 (sum_i a_i x_i^2 - x'Ax), a the row sums of the symmetric A."""
    Z, arguments = X / lengthscale, (X, variance, lengthscale, out)
    first = np.vdot(blocked_gram(kind, *arguments), weights)
    A = out if kind == "rbf" else blocked_gram("slope", *arguments)
    A *= weights
    return np.append(first, 2.0 * (A.sum(axis=1) @ Z**2 - np.einsum("nd,nd->d", Z, A @ Z)))


# Exact regression


def regression(K, y, noise_variance):
    """Textbook log evidence with the inverse of K + noise_variance I, and alpha = that inverse times y."""
    factor = cholesky(K + noise_variance * np.eye(len(y)), lower=True)
    alpha = cho_solve((factor, True), y)
    evidence = -0.5 * y @ alpha - np.sum(np.log(np.diag(factor))) - 0.5 * len(y) * LOG_TWO_PI
    return evidence, alpha, cho_solve((factor, True), np.eye(len(y)))


def regression_gradient(X, y, variance, lengthscale, noise_variance):
    """Textbook log evidence of RBF regression and its gradient in log(variance, lengthscales, noise variance)."""
    evidence, alpha, inverse = regression(gram("rbf", X, variance, lengthscale), y, noise_variance)
    weights = 0.5 * (np.outer(alpha, alpha) - inverse)
    result = gradient("rbf", X, variance, lengthscale, weights)
    return evidence, np.append(result, noise_variance * np.trace(weights))


class Regression:
    """The same with as little work and memory as NumPy allows: two matrices, dpotrf, dpotri, products of matrices."""

    def __init__(self, X, y):
        self.X, self.y = X, y
        self.gram, self.matrix = np.empty((len(y), len(y))), np.empty((len(y), len(y)))

    def __call__(self, variance, lengthscale, noise_variance):
        """Log evidence and gradient."""
        n, K = len(self.y), blocked_gram("rbf", self.X, variance, lengthscale, self.gram)
        np.copyto(self.matrix, K)
        self.matrix.flat[:: n + 1] += noise_variance
        factor, info = dpotrf(self.matrix.T, lower=1, clean=1, overwrite_a=1)
        assert info == 0
        alpha = cho_solve((factor, True), self.y, check_finite=False)
        evidence = -0.5 * self.y @ alpha - np.sum(np.log(np.diag(factor))) - 0.5 * n * LOG_TWO_PI
        inverse, _ = dpotri(factor, lower=1, overwrite_c=1)
        noise = 0.5 * noise_variance * (alpha @ alpha - np.trace(inverse))
        inverse.flat[:: n + 1] *= 0.5  # the upper triangle is 0: A + A' is the inverse
        lower, Z = np.multiply(inverse, K, out=inverse), self.X / lengthscale
        rows, fitted, pulled = lower.sum(axis=0) + lower.sum(axis=1), K @ alpha, alpha[:, None] * Z
        lengths = (alpha * fitted - rows) @ Z**2 + np.einsum("nd,nd->d", 2.0 * Z, lower @ Z)
        lengths -= np.einsum("nd,nd->d", pulled, K @ pulled)
        return evidence, np.concatenate([[0.5 * (alpha @ fitted - rows.sum())], lengths, [noise]])


class GrownRegression:
    """Rows added to a regression: the Cholesky factor grows by a block of rows."""

    def __init__(self, K, y, noise_variance):
        self.factor = cholesky(K + noise_variance * np.eye(len(y)), lower=True)
        self.y, self.noise_variance = y, noise_variance

    def __call__(self, cross, K, y):
        """Log evidence and alpha of all rows: cross is the covariance of old rows (first axis) and new ones."""
        n, more = len(self.y), len(y)
        factor = np.zeros((n + more, n + more), order="F")
        factor[:n, :n] = self.factor
        below = solve_triangular(self.factor, cross, lower=True, check_finite=False)
        factor[n:, :n] = below.T
        factor[n:, n:] = cholesky(K + self.noise_variance * np.eye(more) - below.T @ below, lower=True)
        y = np.append(self.y, y)
        alpha = cho_solve((factor, True), y, check_finite=False)
        return -0.5 * y @ alpha - np.sum(np.log(np.diag(factor))) - 0.5 * len(y) * LOG_TWO_PI, alpha


# EP for probit classification


def moments(K, tau, rho):
    """The covariance and mean of all f under non-negative site precisions, GPML eq. (3.53)."""
    root = np.sqrt(rho)
    factor = cholesky(np.eye(len(rho)) + root[:, None] * K * root, lower=True)
    V = solve_triangular(factor, root[:, None] * K, lower=True)
    covariance = K - V.T @ V
    return covariance, covariance @ tau


def change(old, new):
    """Largest change of a marginal: means in standard deviations, variances relative."""
    return max(np.max(np.abs(new[0] - old[0]) / np.sqrt(new[1])), np.max(np.abs(old[1] / new[1] - 1.0)))


def sequential(K, y, tol):
    """GPML algorithm 3.5: a rank-1 update of the covariance a site, a Cholesky factor a sweep: m, v, sweeps."""
    n = len(y)
    tau, rho, covariance, mean = np.zeros(n), np.zeros(n), K.copy(), np.zeros(n)
    for sweep in range(MOST_SWEEPS):
        before = mean.copy(), np.diag(covariance).copy()
        for i in range(n):
            v, m = covariance[i, i], mean[i]
            cavity = 1.0 / v - rho[i]
            _, new_tau, new_rho = probit_sites(y[i], (m / v - tau[i]) / cavity, 1.0 / cavity)
            d_tau, d_rho, u = new_tau - tau[i], new_rho - rho[i], covariance[:, i].copy()
            tau[i], rho[i] = new_tau, new_rho
            mean += ((d_tau - d_rho * m) / (1.0 + d_rho * v)) * u
            dger(-d_rho / (1.0 + d_rho * v), u, u, a=covariance.T, overwrite_a=1)
        covariance, mean = moments(K, tau, rho)
        after = mean, np.diag(covariance).copy()
        if change(before, after) < tol:
            return *after, sweep + 1
    raise ArithmeticError("not converged")


def block_of_sites(y, tau, rho, covariance, mean):
    """Visit the sites of a block one after the other, with a rank-1 update of their own covariance only: new sites.

    The covariance and mean are changed in place.
    """
    for i in range(len(y)):
        v, m = covariance[i, i], mean[i]
        cavity = 1.0 / v - rho[i]
        _, new_tau, new_rho = probit_sites(y[i], (m / v - tau[i]) / cavity, 1.0 / cavity)
        d_tau, d_rho, u = new_tau - tau[i], new_rho - rho[i], covariance[:, i].copy()
        tau[i], rho[i] = new_tau, new_rho
        mean += ((d_tau - d_rho * m) / (1.0 + d_rho * v)) * u
        covariance -= (d_rho / (1.0 + d_rho * v)) * np.outer(u, u)


def apply_changes(covariance, mean, rows, d_tau, d_rho):
    """Absorb changes of the sites of a block into all f at once: both arguments are changed in place.

    With C the old covariance of the block and U its columns, the new covariance is S - U D (I + C D)^-1 U', D the
    changes of the precisions, which may have any sign.
    """
    U = covariance[:, rows].copy()
    middle = np.linalg.solve(np.eye(len(d_rho)) + d_rho[:, None] * U[rows], np.column_stack([np.diag(d_rho), d_tau]))
    pull = middle[:, -1] - middle[:, :-1] @ mean[rows]
    mean += U @ pull
    dgemm(-1.0, U, U @ middle[:, :-1], beta=1.0, c=covariance.T, trans_b=1, overwrite_c=1)


def blocked(K, y, tol):
    """The same sequence of sites as `sequential`, whose changes reach the other blocks once a block: m, v, sweeps."""
    n = len(y)
    tau, rho, covariance, mean = np.zeros(n), np.zeros(n), K.copy(), np.zeros(n)
    for sweep in range(MOST_SWEEPS):
        before = mean.copy(), np.diag(covariance).copy()
        for start in range(0, n, SITE_ROWS):
            rows = slice(start, min(start + SITE_ROWS, n))
            old = tau[rows].copy(), rho[rows].copy()
            block_of_sites(y[rows], tau[rows], rho[rows], covariance[rows, rows].copy(), mean[rows].copy())
            apply_changes(covariance, mean, rows, tau[rows] - old[0], rho[rows] - old[1])
        covariance, mean = moments(K, tau, rho)
        after = mean, np.diag(covariance).copy()
        if change(before, after) < tol:
            return *after, sweep + 1
    raise ArithmeticError("not converged")


def parallel(K, y, tol):
    """All sites from the same posterior, undamped, with the least dense algebra: dpotrf and dtrtri: m, v, sweeps.

    With L L' = B = I + R K R, R = sqrt(rho): R Sigma R = I - B^-1, and mean = K (tau - R B^-1 R K tau).
    """
    n = len(y)
    mean, variance = np.zeros(n), np.diag(K).copy()
    tau, rho, matrix = np.zeros(n), np.zeros(n), np.empty((n, n))
    for sweep in range(MOST_SWEEPS):
        cavity = 1.0 / variance - rho
        _, tau, rho = probit_sites(y, (mean / variance - tau) / cavity, 1.0 / cavity)
        root = np.sqrt(rho)
        np.multiply(K, root, out=matrix)
        matrix *= root[:, None]
        matrix.flat[:: n + 1] += 1.0
        factor, info = dpotrf(matrix.T, lower=1, clean=1, overwrite_a=1)
        assert info == 0
        inverse, _ = dtrtri(factor, lower=1, overwrite_c=1)
        scaled = dtrmv(inverse, dtrmv(inverse, root * (K @ tau), lower=1), lower=1, trans=1)
        before = mean, variance
        mean = K @ (tau - root * scaled)
        variance = (1.0 - np.einsum("ij,ij->j", inverse, inverse)) / rho
        if change(before, (mean, variance)) < tol:
            return mean, variance, sweep + 1
    raise ArithmeticError("not converged")
