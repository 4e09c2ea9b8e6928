"""Bayesian regressions by the book: explicit inverses, every expectation of the ELBO written down."""

import numpy as np
from scipy import special, stats


def gamma_entropy(shape, rate):
    return stats.gamma(shape, scale=1 / rate).entropy()


def gamma_log_prior(shape, rate, q_shape, q_rate):
    """E_q[log Gamma(x; shape, rate)] under q = Gamma(q_shape, q_rate)."""
    log_x, x = special.digamma(q_shape) - np.log(q_rate), q_shape / q_rate
    return shape * np.log(rate) - special.gammaln(shape) + (shape - 1) * log_x - rate * x


def linear_q_w(X, y, alpha, tau):
    """Eqs. (10.100), (10.101) of Bishop (2006) with one alpha a column."""
    S = np.linalg.inv(np.diag(alpha) + tau * X.T @ X)
    return tau * S @ X.T @ y, S


def linear_elbo(X, y, m, S, alpha, noise, prior, noise_prior):
    """alpha: list of (shape, rate), one a column; noise: (shape, rate) of tau; priors (shape, rate)."""
    n, d = X.shape
    a, b = np.array(alpha).T
    log_alpha, mean_alpha = special.digamma(a) - np.log(b), a / b
    log_tau, tau = special.digamma(noise[0]) - np.log(noise[1]), noise[0] / noise[1]
    second = m**2 + np.diag(S)
    misfit = y @ y - 2 * y @ X @ m + np.trace(X.T @ X @ (S + np.outer(m, m)))
    total = 0.5 * n * (log_tau - np.log(2 * np.pi)) - 0.5 * tau * misfit
    total += 0.5 * np.sum(log_alpha - np.log(2 * np.pi) - mean_alpha * second)
    total += 0.5 * (d * (1 + np.log(2 * np.pi)) + np.linalg.slogdet(S)[1])
    for shape, rate in alpha:
        total += gamma_log_prior(*prior, shape, rate) + gamma_entropy(shape, rate)
    return total + gamma_log_prior(*noise_prior, *noise) + gamma_entropy(*noise)


def linear_elbo_with_intercept(X, y, m, S, alpha, noise, prior, noise_prior, variance):
    """As `linear_elbo`, with one alpha for all columns or one for each, but for the first: it is N(0, variance)."""
    n, d = X.shape
    of = [alpha[j % len(alpha)] for j in range(d - 1)]  # of each column
    log_tau, tau = special.digamma(noise[0]) - np.log(noise[1]), noise[0] / noise[1]
    total = 0.0
    for x, target in zip(X, y, strict=True):
        total += 0.5 * (log_tau - np.log(2 * np.pi) - tau * ((target - x @ m) ** 2 + x @ S @ x))
    total += stats.norm(0, np.sqrt(variance)).logpdf(m[0]) - 0.5 * S[0, 0] / variance
    for (shape, rate), mean, spread in zip(of, m[1:], np.diag(S)[1:], strict=True):
        log_alpha = special.digamma(shape) - np.log(rate)
        total += 0.5 * (log_alpha - np.log(2 * np.pi) - shape / rate * (mean**2 + spread))
    for shape, rate in alpha:
        total += gamma_log_prior(*prior, shape, rate) + gamma_entropy(shape, rate)
    total += gamma_log_prior(*noise_prior, *noise) + gamma_entropy(*noise)
    return total + stats.multivariate_normal(m, S).entropy()


def polya_gamma_sweep(X, y, m, S, prior_precision):
    """q(omega_n) = PG(1, c_n) with c_n^2 = E[(x_n'w)^2], then q(w); y in {-1, +1}."""
    omega = np.zeros(len(y))
    for n, x in enumerate(X):
        c = np.sqrt(x @ (S + np.outer(m, m)) @ x)
        omega[n] = np.tanh(c / 2) / (2 * c) if c > 0 else 0.25
    S = np.linalg.inv(X.T @ np.diag(omega) @ X + np.diag(prior_precision))
    return S @ (X.T @ y / 2), S


def polya_gamma_elbo(X, y, m, S, prior_precision):
    """E[log p(y, omega, w)] - E[log q], with q(omega_n) = PG(1, c_n) the best one for q(w).

    With log p(y, omega | w) = -log 2 + y x'w/2 - omega (x'w)^2/2 + log PG(omega; 1, 0), PG(omega; 1, c) proportional to
    exp(-c^2 omega/2) PG(omega; 1, 0) and normaliser 1/cosh(c/2), the terms in omega leave -log cosh(c/2).
    """
    total = 0.0
    for x, label in zip(X, y, strict=True):
        c = np.sqrt(x @ (S + np.outer(m, m)) @ x)
        total += -np.log(2) + 0.5 * label * (x @ m) - np.log(np.cosh(c / 2))
    d = len(m)
    prior = np.diag(prior_precision)
    kl = np.trace(prior @ S) + m @ prior @ m - d - np.linalg.slogdet(prior)[1] - np.linalg.slogdet(S)[1]
    return total - 0.5 * kl
