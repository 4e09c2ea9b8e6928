"""Rows of a sparse Gaussian process in extended precision: plain loops, B = I + A factorised anew each time.

With w ~ N(0, I) and all rows so far one factor exp(-w'A w/2 + r'w), a row sees g = W'w.
"""

import numpy as np

LONG = np.longdouble


def solved(L, x):
    """L^-1 x for a lower triangle, by forward substitution."""
    out = np.array(x, dtype=LONG)
    for i in range(len(out)):
        out[i] = (out[i] - np.sum(np.asarray(L[i, :i], dtype=LONG) * out[:i])) / LONG(L[i, i])
    return out


def cholesky(B):
    """Lower triangle of a positive definite matrix."""
    L = np.zeros(B.shape, dtype=LONG)
    for j in range(len(B)):
        L[j, j] = np.sqrt(LONG(B[j, j]) - np.sum(L[j, :j] ** 2))
        for i in range(j + 1, len(B)):
            L[i, j] = (LONG(B[i, j]) - np.sum(L[i, :j] * L[j, :j])) / L[j, j]
    return L


def added(A, r, W, tau, rho):
    """A (a full matrix) and r with rows added."""
    A, r = np.array(A, dtype=LONG), np.array(r, dtype=LONG)
    for w, t, p in zip(np.asarray(W, dtype=LONG), tau, rho, strict=True):
        A += LONG(p) * np.outer(w, w)
        r += LONG(t) * w
    return A, r


def marginals(A, r, w):
    """Mean and variance of g = w'w under the posterior."""
    L = cholesky(np.eye(len(r)) + A)
    t = solved(L, w)
    return np.sum(t * solved(L, r)), np.sum(t * t)


def log_z(A, r):
    """log of the integral of N(w; 0, I) exp(-w'A w/2 + r'w)."""
    L = cholesky(np.eye(len(r)) + A)
    return np.sum(solved(L, r) ** 2) / 2 - np.sum(np.log(np.diagonal(L)))


def gain(A, r, w, tau, rho):
    """log of the posterior mean of the site exp(tau g - rho g^2/2), divided by its value at g = tau/rho."""
    m, v = marginals(A, r, w)
    if rho == 0:
        return tau * m + LONG(tau) ** 2 * v / 2
    rho = LONG(rho)
    return -np.log1p(rho * v) / 2 - rho * (tau / rho - m) ** 2 / (1 + rho * v) / 2
