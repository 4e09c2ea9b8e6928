"""What batches add to the log bound of a sparse Gaussian process, by integrals in 40 digits, row after row.

Everything is done for the inducing variables themselves, b ~ N(0, K_bb), with explicit inverses. What is known so far
is exp(constant - b'J b/2 + h'b), and a row, or all older inducing variables, is a Gaussian factor on values a with
a | b ~ N(R b, D): its expectation under that, or that of a power of it, is again such a factor.
"""

import mpmath as mp
import numpy as np
from scipy.stats import multivariate_normal

DIGITS = 40


def matrix(values):
    """An mpmath matrix of floats."""
    return mp.matrix(np.atleast_2d(values).tolist())


def rbf(variance, lengthscales):
    """k(A, B) in 40 digits; the parameters may be mpmath numbers."""

    def k(A, B):
        out = mp.matrix(len(A), len(B))
        for i, a in enumerate(A.tolist()):
            for j, b in enumerate(B.tolist()):
                apart = sum(
                    ((mp.mpf(s) - mp.mpf(t)) / scale) ** 2 for s, t, scale in zip(a, b, lengthscales, strict=True)
                )
                out[i, j] = variance * mp.exp(-apart / 2)
        return out

    return k


def precise(kernel):
    """A kernel of `gaussian_process` as one that returns mpmath matrices."""
    return lambda A, B: matrix(kernel(A, B))


def covariance(k, Z, other, jitter):
    """Of inducing variables: nuggets where the rows are the same ones."""
    out = k(Z, other)
    for i, a in enumerate(Z):
        for j, b in enumerate(other):
            if np.array_equal(a, b):
                out[i, j] += jitter * k(Z[i : i + 1], Z[i : i + 1])[0, 0]
    return out


def project(R, D, J, h, power):
    """(J, h, constant) on b of exp(-a'J a/2 + h'a) with a | b ~ N(R b, D)."""
    if power == 0:
        return R.T * J * R, R.T * h, -sum((J * D)[i, i] for i in range(D.rows)) / 2
    system = mp.eye(D.rows) + power * (J * D)
    inverse = mp.inverse(system)
    constant = power * (h.T * D * inverse * h)[0, 0] / 2 - mp.log(mp.det(system)) / (2 * power)
    return R.T * inverse * J * R, R.T * inverse * h, constant


def batch(k, old, Z, X, sites, weights, alpha, jitter):
    """The state (Z, J, h, constant, log bound) after a batch of sites (tau, rho) on f, from an old one or None."""
    K = covariance(k, Z, Z, jitter)
    inverse = mp.inverse(K)
    J, h, constant = mp.zeros(len(Z)), mp.zeros(len(Z), 1), mp.mpf(0)
    pieces = []
    if old is not None:
        across, among = covariance(k, old[0], Z, jitter), covariance(k, old[0], old[0], jitter)
        R = across * inverse
        J_e, h_e, more = project(R, among - R * across.T, old[1], old[2], mp.mpf(alpha))
        pieces.append((J_e, h_e, more + old[3]))
    for x, tau, rho, weight in zip(X, *sites, weights, strict=True):
        across = k(x[None], Z)
        R = across * inverse
        left = k(x[None], x[None]) - R * across.T
        power = mp.mpf(alpha) * min(mp.mpf(1), 1 / mp.mpf(weight))
        pieces.append(project(R, left, mp.matrix([[rho]]), mp.matrix([[tau]]), power))
    for J_n, h_n, more in pieces:
        J, h, constant = J + J_n, h + h_n, constant + more
    mean = mp.lu_solve(inverse + J, h)
    value = constant + (h.T * mean)[0, 0] / 2 - mp.log(mp.det(mp.eye(len(Z)) + K * J)) / 2
    return Z, J, h, constant, value


def gaussian(y, noise, weights):
    """Sites (tau, rho) of rows with Gaussian noise, and the constants that they leave out."""
    rho = [mp.mpf(w) / n for w, n in zip(weights, noise, strict=True)]
    tau = [r * mp.mpf(v) for r, v in zip(rho, y, strict=True)]
    constants = [
        -(mp.mpf(w) * mp.log(2 * mp.pi * n) + r * mp.mpf(v) ** 2) / 2
        for w, n, r, v in zip(weights, noise, rho, y, strict=True)
    ]
    return (tau, rho), sum(constants)


def titsias(k, Z, X, y, noise, jitter):
    """The bound of Titsias (2009), eq. 9, in floats; the inducing variables have nuggets."""
    K = k(Z, Z) + jitter * np.diag([k(z[None], z[None])[0, 0] for z in Z])
    across = k(X, Z)
    Q = across @ np.linalg.solve(K, across.T)
    left = sum(k(x[None], x[None])[0, 0] for x in X) - np.trace(Q)
    return multivariate_normal.logpdf(y, np.zeros(len(y)), Q + noise * np.eye(len(y))) - left / (2 * noise)
