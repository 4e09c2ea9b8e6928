"""Mixed models with every matrix written out: dense prior, dense EP, exact Gaussian likelihoods, importance sampling.

Effects stand in one order throughout: the fixed ones, then those of each term, level by level, in a level column by
column. A term is anything with `shape` (levels, columns), `codes` (N,) and `Z` (N, columns). A likelihood is a function
log_p(f, i) of values f (n, any) of the rows i, a slice that is all of them if left out.
"""

from functools import partial
from types import SimpleNamespace

import numpy as np
from scipy import linalg, special

NODES, WEIGHTS = np.polynomial.legendre.leggauss(10)
EDGES = 0.5 * np.sinh(np.linspace(-5.5, 5.5, 61))  # panels, in sd of what is integrated: 0.09 inside, out to 60


# ------------------------------------------------------------------------------------------ the model


def make_term(labels, Z=None):
    """A term of the sorted labels, with the columns Z or an intercept."""
    levels, Z = sorted(set(labels)), np.ones((len(labels), 1)) if Z is None else Z
    return SimpleNamespace(shape=(len(levels), Z.shape[1]), codes=[levels.index(label) for label in labels], Z=Z)


def rows(X, terms):
    """The matrix of all effects, (N, D + q): f = rows @ effects."""
    n = len(X)
    blocks = [np.asarray(X, dtype=float)]
    for term in terms:
        block = np.zeros((n, *term.shape))
        for i in range(n):
            if term.codes[i] >= 0:
                block[i, term.codes[i]] = term.Z[i]
        blocks.append(block.reshape(n, -1))
    return np.hstack(blocks)


def prior_covariance(fixed, terms, covariances):
    """The dense prior covariance of all effects: `fixed` (D,) variances or (D, D), `covariances` one matrix a term."""
    fixed = np.asarray(fixed, dtype=float)
    blocks = [np.diag(fixed) if fixed.ndim == 1 else fixed]
    for term, covariance in zip(terms, covariances, strict=True):
        levels, k = term.shape
        blocks.append(np.kron(np.eye(levels), np.broadcast_to(covariance, (k, k)) if k == 1 else covariance))
    return linalg.block_diag(*blocks)


# ------------------------------------------------------------------------------------------ EP


def tilted(log_p, m, v):
    """log Z, mean and variance of p(y|f) N(f; m, v) for all rows at once.

    Panels lie around mean and sd of the product itself, found by zooming in from those of the cavity.
    """
    half = 0.5 * np.diff(EDGES)[:, None]
    z = (EDGES[:-1, None] + half * (1 + NODES)).ravel()
    width = (half * WEIGHTS).ravel()
    centre, scale = m, np.sqrt(v)
    for _ in range(20):
        f = centre[:, None] + scale[:, None] * z
        with np.errstate(over="ignore"):
            h = log_p(f) - 0.5 * (f - m[:, None]) ** 2 / v[:, None] - 0.5 * np.log(2 * np.pi * v[:, None])
        top = h.max(axis=1, keepdims=True)
        g = scale[:, None] * width * np.exp(h - top)
        total = g.sum(axis=1)
        mean = (g * f).sum(axis=1) / total
        variance = (g * (f - mean[:, None]) ** 2).sum(axis=1) / total
        sd = np.maximum(np.sqrt(variance), scale / 8)
        if np.all((np.abs(mean - centre) < scale) & (sd > 0.4 * scale) & (sd < 2 * scale)):
            break
        centre, scale = mean, sd
    return top[:, 0] + np.log(total), mean, variance


def ep(log_p, A, covariance, mean=0.0, offset=0.0, damping=0.8, passes=400, tol=1e-13):
    """Parallel EP for effects a ~ N(mean, covariance), f = A a + offset; it starts where ADF ends.

    Returns
    -------
    mean, covariance
        Of all effects.
    log_evidence : float
        With all constants.
    sites : tau, rho, (N,) each
        Natural parameters of the sites, of f without the offset.
    cavities : mean, variance, log Z, (N,) each
        Log Z is the density of the row given the others.
    """
    n, d = A.shape
    prior_mean = np.broadcast_to(np.asarray(mean, dtype=float), d)
    P = np.linalg.inv(covariance)
    offset = np.broadcast_to(offset, n)

    def shifted(f, i=slice(None)):
        return log_p(f + offset[i, None], i)

    tau, rho = _adf(shifted, A, np.array(prior_mean), np.array(covariance))

    def posterior():
        S = np.linalg.inv(P + A.T @ (rho[:, None] * A))
        return S @ (P @ prior_mean + A.T @ tau), S

    def cavities():
        q, S = posterior()
        m, v = A @ q, np.einsum("ij,jk,ik->i", A, S, A)
        c = 1 / (1 / v - rho)
        return m, v, c * (m / v - tau), c

    for _ in range(passes):
        m, v, cavity_m, cavity_v = cavities()
        _, t_mean, t_variance = tilted(shifted, cavity_m, cavity_v)
        change = max(np.max(np.abs(t_mean - m) / np.sqrt(v)), np.max(np.abs(t_variance / v - 1)))
        tau = tau + damping * (t_mean / t_variance - cavity_m / cavity_v - tau)
        rho = rho + damping * (1 / t_variance - 1 / cavity_v - rho)
        if change < tol:
            break
    m, v, cavity_m, cavity_v = cavities()
    log_z, _, _ = tilted(shifted, cavity_m, cavity_v)
    q, S = posterior()
    evidence = _partition(q, np.linalg.inv(S)) - _partition(prior_mean, P)
    evidence += np.sum(log_z + 0.5 * (cavity_m**2 / cavity_v + np.log(cavity_v) - m**2 / v - np.log(v)))
    return q, S, evidence, (tau, rho), (cavity_m, cavity_v, log_z)


def merge(log_p, A):
    """Equal rows as one: the different rows of A, the log likelihood of all that equal them, and the number of each."""
    sites, index = np.unique(A, axis=0, return_inverse=True)
    order, firsts = np.argsort(index, kind="stable"), np.searchsorted(np.sort(index), np.arange(len(sites) + 1))

    def total(f, i=slice(None)):
        start, stop, _ = i.indices(len(sites))
        members = order[firsts[start] : firsts[stop]]
        return np.add.reduceat(log_p(f[index[members] - start], members), firsts[start:stop] - firsts[start], axis=0)

    return sites, total, index


def leave_out_of_merged(log_p, merged_log_p, index, cavity_mean, cavity_variance):
    """log p(y_i | the other rows) of every row, from the cavities of sites of equal rows."""
    full = tilted(merged_log_p, cavity_mean, cavity_variance)[0]

    def others(f):
        values = np.stack([merged_log_p(f[i : i + 1], slice(j, j + 1))[0] for i, j in enumerate(index)])
        return values - log_p(f)

    return full[index] - tilted(others, cavity_mean[index], cavity_variance[index])[0]


def _adf(log_p, A, q, S):
    """Sites of one sweep, each for the posterior of the rows before it."""
    n = len(A)
    tau, rho = np.zeros(n), np.zeros(n)
    for i, x in enumerate(A):
        m, v = x @ q, x @ S @ x
        one = partial(log_p, i=slice(i, i + 1))
        _, t_mean, t_variance = (item[0] for item in tilted(one, np.array([m]), np.array([v])))
        tau[i], rho[i] = t_mean / t_variance - m / v, 1 / t_variance - 1 / v
        gain = S @ x / v
        q, S = q + gain * (t_mean - m), S - np.outer(gain, gain) * (v - t_variance)
    return tau, rho


def _partition(mean, precision):
    """The log integral of exp(-a'P a/2 + mean'P a), but for its powers of 2 pi."""
    return 0.5 * mean @ precision @ mean - 0.5 * np.linalg.slogdet(precision)[1]


def gradient(function, x, step=1e-4):
    """Central differences of a function of a vector, extrapolated once to step 0."""
    x = np.asarray(x, dtype=float)

    def central(h):
        return np.array([(function(x + h * e) - function(x - h * e)) / (2 * h) for e in np.eye(len(x))])

    return (4 * central(step) - central(2 * step)) / 3


# ------------------------------------------------------------------------------------------ Gaussian observations


def marginal_covariance(terms, covariances, noise_variance, n):
    """The covariance of y given the fixed effects, (n, n)."""
    V = noise_variance * np.eye(n)
    for term, covariance in zip(terms, covariances, strict=True):
        Z = rows(np.zeros((n, 0)), [term])
        V += Z @ prior_covariance(np.zeros(0), [term], [covariance]) @ Z.T
    return V


def log_likelihood(X, y, terms, covariances, noise_variance, reml=False):
    """The log likelihood with the fixed effects at their estimates, or with them integrated out (REML); and these.

    That of REML is the log of the integral of p(y | fixed effects) over all their values.
    """
    n, d = X.shape
    V = marginal_covariance(terms, covariances, noise_variance, n)
    XV = np.linalg.solve(V, X)
    H = X.T @ XV
    fixed = np.linalg.solve(H, XV.T @ y)
    residual = y - X @ fixed
    value = -0.5 * (residual @ np.linalg.solve(V, residual) + np.linalg.slogdet(V)[1] + n * np.log(2 * np.pi))
    if reml:
        value += 0.5 * d * np.log(2 * np.pi) - 0.5 * np.linalg.slogdet(H)[1]
    return value, fixed


def balanced(Z, Y, reml=False):
    """The largest likelihood of y_i = Z (fixed + a_i) + noise, the same Z (n, k) for all levels i, Y (levels, n).

    Least squares of each level are N(fixed, C + noise (Z'Z)^-1), and what they leave is noise, so the estimates are
    averages, where C comes out positive definite. Returns C, the noise variance and the fixed effects.
    """
    levels, n = Y.shape
    k = Z.shape[1]
    item = np.linalg.lstsq(Z, Y.T)[0].T
    noise_variance = np.sum((Y - item @ Z.T) ** 2) / (levels * (n - k))
    apart = item - item.mean(axis=0)
    C = apart.T @ apart / (levels - reml) - noise_variance * np.linalg.inv(Z.T @ Z)
    return C, noise_variance, item.mean(axis=0)


def log_evidence(y, A, covariance, noise_variance, mean=0.0):
    """The exact log p(y) for effects a ~ N(mean, covariance), y ~ N(A a, noise_variance)."""
    residual = y - A @ np.broadcast_to(mean, A.shape[1])
    V = A @ covariance @ A.T + noise_variance * np.eye(len(y))
    return -0.5 * (residual @ np.linalg.solve(V, residual) + np.linalg.slogdet(2 * np.pi * V)[1])


# ------------------------------------------------------------------------------------------ truth by sampling


def importance_sampling(log_p, A, covariance, q, S, n, rng, mean=0.0, offset=0.0, freedom=30.0, batch=500):
    """Evidence and moments by importance sampling from a t distribution of that location and covariance.

    Returns
    -------
    log_evidence, error
        And its standard error.
    size : float
        The effective size of the sample, (sum w)^2 / sum w^2.
    mean, sd
        Of each effect.
    """
    d = len(q)
    root = np.linalg.cholesky(S * (freedom - 2) / freedom)
    prior_root = np.linalg.cholesky(covariance)
    constant = special.gammaln(0.5 * (freedom + d)) - special.gammaln(0.5 * freedom)
    constant -= 0.5 * d * np.log(freedom * np.pi) + np.log(np.diag(root)).sum()
    draws, log_w = np.empty((n, d)), np.empty(n)
    for start in range(0, n, batch):
        size = min(batch, n - start)
        z = rng.standard_normal((size, d)) / np.sqrt(rng.chisquare(freedom, size) / freedom)[:, None]
        a = q + z @ root.T
        proposal = constant - 0.5 * (freedom + d) * np.log1p((z**2).sum(axis=1) / freedom)
        whitened = linalg.solve_triangular(prior_root, (a - mean).T, lower=True)
        prior = -0.5 * (whitened**2).sum(axis=0) - np.log(np.diag(prior_root)).sum() - 0.5 * d * np.log(2 * np.pi)
        f = A @ a.T + np.broadcast_to(offset, len(A))[:, None]
        draws[start : start + size], log_w[start : start + size] = a, log_p(f).sum(axis=0) + prior - proposal
    top = log_w.max()
    w = np.exp(log_w - top)
    size = w.sum() ** 2 / (w @ w)
    average = w @ draws / w.sum()
    sd = np.sqrt(w @ (draws - average) ** 2 / w.sum())
    return top + np.log(w.mean()), np.std(w) / np.mean(w) / np.sqrt(n), size, average, sd
