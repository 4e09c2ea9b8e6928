"""Gaussian processes by the book: kernels element by element, explicit inverses, EP one site after the other.

Kernels, exact regression and EP follow Rasmussen and Williams, "Gaussian Processes for Machine Learning" (2006): table
4.1, section 2.2 and 3.6; EP is generalised to sites of either sign, fractional sites and any mean of the prior.
"""

import itertools

import mpmath as mp
import numpy as np
from scipy.special import logsumexp

from .glm import log_tilted

# ------------------------------------------------------------------------------------------------ kernels
# Each is k(A, B): A is (n, D), B is (m, D). Two values are the same point of WHITE noise only where A is B.


def _distances(A, B, lengthscale):
    return np.sum(((A[:, None, :] - B[None, :, :]) / lengthscale) ** 2, axis=2)


def constant(variance):
    """The same value everywhere."""
    return lambda A, B: np.full((len(A), len(B)), float(variance))


def white(variance):
    """Independent noise of every row."""
    return lambda A, B: variance * np.eye(len(A)) if A is B else np.zeros((len(A), len(B)))


def linear(variance):
    """Sum of v_d a_d b_d."""
    return lambda A, B: (A * variance) @ B.T


def rbf(variance, lengthscale):
    """Squared exponential."""
    return lambda A, B: variance * np.exp(-_distances(A, B, lengthscale) / 2)


def matern(half, variance, lengthscale):
    """Matern of smoothness half/2, half = 1, 3 or 5."""

    def k(A, B):
        s = np.sqrt(half * _distances(A, B, lengthscale))
        return variance * {1: 1, 3: 1 + s, 5: 1 + s + s**2 / 3}[half] * np.exp(-s)

    return k


def rational_quadratic(variance, lengthscale, shape):
    """A scale mixture of squared exponentials."""
    return lambda A, B: variance * (1 + _distances(A, B, lengthscale) / (2 * shape)) ** -shape


def periodic(variance, lengthscale, period):
    """Repeats itself in every column."""

    def k(A, B):
        phase = np.pi * (A[:, None, :] - B[None, :, :]) / period
        return variance * np.exp(-2 * np.sum((np.sin(phase) / lengthscale) ** 2, axis=2))

    return k


def total(*kernels):
    """Sum of kernels."""
    return lambda A, B: sum(k(A, B) for k in kernels)


def product(*kernels):
    """Product of kernels."""
    return lambda A, B: np.prod([k(A, B) for k in kernels], axis=0)


# ------------------------------------------------------------------------------------------------ exact regression


def regression(K, y, noise, mean=0.0):
    """y = f + noise, f ~ N(mean, K): posterior mean and covariance of f, and log p(y). noise: number or (N,)."""
    apart = y - mean
    S = K + np.diag(np.broadcast_to(noise, len(y)))
    inverse = np.linalg.inv(S)
    evidence = -0.5 * (apart @ inverse @ apart + np.linalg.slogdet(S)[1] + len(y) * np.log(2 * np.pi))
    return mean + K @ inverse @ apart, K - K @ inverse @ K, evidence


def regression_many_digits(K, y, noise, digits=60):
    """The same with mean 0 in many digits, from the entries of K as they are: mean, covariance, log p(y).

    K is a nested list of numbers or mpf, noise a list.
    """
    with mp.workdps(digits):
        n = len(y)
        K, y = mp.matrix(K), mp.matrix(y)
        S = K + mp.diag(noise)
        L = mp.cholesky(S)
        inverse = mp.inverse(L)
        alpha = inverse.T * (inverse * y)
        half = inverse * K
        evidence = -(y.T * alpha)[0] / 2 - sum(mp.log(L[i, i]) for i in range(n)) - n * mp.log(2 * mp.pi) / 2
        mean, covariance = K * alpha, K - half.T * half
        return (
            np.array([float(v) for v in mean]),
            np.array([[float(covariance[i, j]) for j in range(n)] for i in range(n)]),
            float(evidence),
        )


def predict(K, cross, diagonal, tau, rho, mean=0.0, new_mean=0.0):
    """Mean and variance of new values from sites exp(tau f - rho f^2/2) of the old ones; cross is (N, n)."""
    inverse = np.linalg.inv(np.eye(len(K)) + rho[:, None] * K)  # (I + R K)^-1
    shift = inverse @ (tau - rho * mean)
    return new_mean + cross.T @ shift, diagonal - np.einsum("ij,ij->j", cross, inverse @ (rho[:, None] * cross))


# ------------------------------------------------------------------------------------------------ EP


def ep(K, log_ps, mean=0.0, fraction=1.0, passes=200, tol=1e-13):
    """Sequential EP by rank-1 updates of the N x N covariance; log_ps[i](f) is the log of the factor that is matched.

    With weights or powers that is p^e, of which `fraction` times the site is left out (see cavity.ep.sites).
    Returns mean, covariance, log_evidence, log_z of every cavity at the end, (tau, rho), and the change of each pass.
    """
    n = len(K)
    prior = np.broadcast_to(np.asarray(mean, dtype=float), (n,))
    fraction = np.broadcast_to(fraction, (n,))
    tau, rho, changes = np.zeros(n), np.zeros(n), []
    m, S = prior.copy(), K.copy()
    for _ in range(passes):
        before = m, np.diag(S)
        for i in range(n):
            _, tilted_mean, tilted_variance, (cavity_mean, cavity_variance) = tilt(
                log_ps[i], m, S, tau, rho, fraction, i
            )
            new_rho = (1 / tilted_variance - 1 / cavity_variance) / fraction[i]
            new_tau = (tilted_mean / tilted_variance - cavity_mean / cavity_variance) / fraction[i]
            d_tau, d_rho = new_tau - tau[i], new_rho - rho[i]
            column = S[:, i].copy()
            gain = 1 + d_rho * column[i]
            m = m + column * (d_tau - d_rho * m[i]) / gain
            S = S - np.outer(column, column) * d_rho / gain
            tau[i], rho[i] = new_tau, new_rho
        m, S = belief_of(K, prior, tau, rho)  # afresh: rounding does not add up
        sd = np.sqrt(np.diag(S))
        changes.append(max(np.max(np.abs(m - before[0]) / sd), np.max(np.abs(before[1] / sd**2 - 1))))
        if changes[-1] < tol:
            break
    log_z = np.array([tilt(log_ps[i], m, S, tau, rho, fraction, i)[0] for i in range(n)])
    return m, S, evidence(K, prior, tau, rho, log_z, m, S, fraction), log_z, (tau, rho), changes


def residual(K, log_ps, tau, rho, mean=0.0, fraction=1.0):
    """How far sites are from a fixed point: the largest change of a marginal by one renewal, means in sd."""
    n = len(K)
    prior, fraction = np.broadcast_to(np.asarray(mean, dtype=float), (n,)), np.broadcast_to(fraction, (n,))
    m, S = belief_of(K, prior, tau, rho)
    worst = 0.0
    for i in range(n):
        _, tilted_mean, tilted_variance, _ = tilt(log_ps[i], m, S, tau, rho, fraction, i)
        worst = max(worst, abs(tilted_mean - m[i]) / np.sqrt(S[i, i]), abs(tilted_variance / S[i, i] - 1))
    return worst


def evidence(K, prior, tau, rho, log_z, m, S, fraction):
    """sum_i [log Z_i - (A(q_i) - A(cavity_i))]/f_i + log of the integral of prior times exp(tau f - rho f^2/2)."""
    result = log_integral(K, prior, tau, rho)
    for i in range(len(K)):
        cavity_mean, cavity_variance = _cavity(m, S, tau, rho, fraction, i)
        a_cavity, a_q = partition(cavity_mean, cavity_variance), partition(m[i], S[i, i])
        result += (log_z[i] - (a_q - a_cavity)) / fraction[i]
    return result


def partition(mean, variance):
    """A of a Gaussian, as in section 3 of the mathematics: log of the integral of its exponential family form."""
    return 0.5 * mean**2 / variance + 0.5 * np.log(variance)


def log_integral(K, prior, tau, rho):
    """log of the integral of N(f; prior, K) exp(tau f - rho f^2/2); K may be singular."""
    B = np.eye(len(K)) + K * rho  # I + K R
    shift = tau - rho * prior
    constant_part = tau @ prior - 0.5 * prior @ (rho * prior)
    return constant_part + 0.5 * shift @ np.linalg.solve(B, K @ shift) - 0.5 * np.linalg.slogdet(B)[1]


def belief_of(K, prior, tau, rho):
    B = np.eye(len(K)) + K * rho
    S = np.linalg.solve(B, K)
    return prior + S @ (tau - rho * prior), 0.5 * (S + S.T)


def _cavity(m, S, tau, rho, fraction, i):
    precision = 1 / S[i, i] - fraction[i] * rho[i]
    return (m[i] / S[i, i] - fraction[i] * tau[i]) / precision, 1 / precision


def tilt(log_p, m, S, tau, rho, fraction, i):
    cavity = _cavity(m, S, tau, rho, fraction, i)
    return *log_tilted(log_p, *cavity), cavity


# ------------------------------------------------------------------------------------------------ exact, by integration


def exact(K, log_ps, mean=0.0, step=0.15, reach=9.0):
    """log p(y) and the marginal means and variances of f, N <= 3: the trapezoidal rule over whitened f = mean + L z.

    The rule converges exponentially for analytic integrands that fall off at both ends.
    """
    n = len(K)
    L = np.linalg.cholesky(K)
    z = np.arange(-reach, reach + step / 2, step)
    grid = np.stack(np.meshgrid(*[z] * n, indexing="ij")).reshape(n, -1)
    f = np.broadcast_to(mean, (n,))[:, None] + L @ grid
    log_g = -0.5 * np.sum(grid**2, axis=0) + n * np.log(step / np.sqrt(2 * np.pi))
    for log_p, values in zip(log_ps, f, strict=True):
        log_g = log_g + log_p(values)
    log_evidence = logsumexp(log_g)
    g = np.exp(log_g - log_evidence)
    means = f @ g
    return log_evidence, means, ((f - means[:, None]) ** 2) @ g


# ------------------------------------------------------------------------------------------------ sampling


def slice_step(f, L, log_likelihood, rng):
    """One step of elliptical slice sampling (Murray, Adams and MacKay, 2010) of many chains, f (chains, N)."""
    nu = rng.standard_normal(f.shape) @ L.T
    level = log_likelihood(f) + np.log(rng.random(len(f)))
    angle = rng.random(len(f)) * 2 * np.pi
    low, high = angle - 2 * np.pi, angle.copy()
    moved, todo = f.copy(), np.arange(len(f))
    while todo.size:
        a = angle[todo, None]
        trial = f[todo] * np.cos(a) + nu[todo] * np.sin(a)
        accept = log_likelihood(trial) > level[todo]
        moved[todo[accept]] = trial[accept]
        todo = todo[~accept]
        back = angle[todo] < 0
        low[todo[back]], high[todo[~back]] = angle[todo[back]], angle[todo[~back]]
        angle[todo] = low[todo] + rng.random(todo.size) * (high[todo] - low[todo])
    return moved


def annealed(K, log_likelihood, chains, temperatures, steps, rng):
    """Annealed importance sampling (Neal, 2001) from N(0, K), then `steps` more of every chain.

    Returns log p(y) with its standard error, and the mean and variance of every f with standard errors from the
    chains, which are independent. The first quarter of the further steps is left out.
    """
    L = np.linalg.cholesky(K)
    f = rng.standard_normal((chains, len(K))) @ L.T
    log_w = np.zeros(chains)
    for low, high in itertools.pairwise(temperatures):
        log_w += (high - low) * log_likelihood(f)
        f = slice_step(f, L, lambda values, b=high: b * log_likelihood(values), rng)
    w = np.exp(log_w - log_w.max())
    log_evidence = log_w.max() + np.log(w.mean())
    error = w.std(ddof=1) / w.mean() / np.sqrt(chains)
    first, second, stored = np.zeros(f.shape), np.zeros(f.shape), 0
    for k in range(steps):
        f = slice_step(f, L, log_likelihood, rng)
        if k >= steps // 4:
            first, second, stored = first + f, second + f * f, stored + 1
    mean = first.mean(axis=0) / stored
    per_chain = second / stored - 2 * mean * first / stored + mean**2  # mean of (f - mean)^2 of every chain
    root = np.sqrt(chains)
    return {
        "log_evidence": log_evidence,
        "log_evidence_error": error,
        "mean": mean,
        "mean_error": (first / stored).std(axis=0, ddof=1) / root,
        "variance": per_chain.mean(axis=0),
        "variance_error": per_chain.std(axis=0, ddof=1) / root,
    }


def weighted_regression(K, cross, new, y, weights, noise, mean=0.0, new_mean=0.0):
    """`regression` of rows that count `weights` times: means and covariance of values `new`, and log p(y).

    K is the covariance of the rows, cross (M, N) that of the new values with them, new (M, M) that of the new values.
    """
    rows = weights > 0
    noise, mean = (np.broadcast_to(item, len(rows))[rows] for item in (noise, mean))
    y, weights, K, cross = y[rows], weights[rows], K[np.ix_(rows, rows)], cross[:, rows]
    S = K + np.diag(noise / weights)
    half, apart = cross @ np.linalg.inv(S), y - mean
    together = -0.5 * (apart @ np.linalg.solve(S, apart) + np.linalg.slogdet(2 * np.pi * S)[1])
    copies = 0.5 * np.sum(np.log(2 * np.pi * noise / weights) - weights * np.log(2 * np.pi * noise))
    return new_mean + half @ apart, new - half @ cross.T, together + copies
