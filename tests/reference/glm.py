"""EP for generalised linear models by the book: one site after the other, explicit inverses, no shortcuts."""

import numpy as np

NODES, WEIGHTS = np.polynomial.legendre.leggauss(20)


def log_tilted(log_p, m, v):
    """log Z, tilted mean and variance of p(y|f) N(f; m, v): 200 Gauss-Legendre panels, cut where log_p has a kink.

    Around the highest node there are 24 more, of half the width each, for likelihoods much narrower than the cavity.
    """
    kinks = [k for k in getattr(log_p, "kinks", ()) if abs(k - m) < 40 * np.sqrt(v)]
    edges = np.append(m + np.sqrt(v) * np.linspace(-40, 40, 201), kinks)

    def nodes(edges):
        half = 0.5 * np.diff(edges)[:, None]
        f = (edges[:-1, None] + half * (1 + NODES)).ravel()
        return f, (half * WEIGHTS).ravel(), log_p(f) - 0.5 * (f - m) ** 2 / v - 0.5 * np.log(2 * np.pi * v)

    f, _, h = nodes(np.sort(edges))
    steps = 0.4 * np.sqrt(v) * 0.5 ** np.arange(12)
    f, width, h = nodes(np.sort(np.concatenate([edges, f[h.argmax()] + steps, f[h.argmax()] - steps])))
    top = h.max()
    g = width * np.exp(h - top)
    total = g.sum()
    mean = (g * f).sum() / total
    return top + np.log(total), mean, (g * (f - mean) ** 2).sum() / total


def ep(X, log_ps, prior_mean, prior_covariance, fraction=1.0, parallel=False, passes=100, tol=1e-12):
    """Sequential (or undamped parallel) EP; log_ps[i](f) is the log of the factor that is matched, p^e.

    Returns mean, covariance, log_evidence, log_z of each site's cavity, (tau, rho), and the changes of each pass.
    """
    n = len(X)
    fraction = np.broadcast_to(fraction, n)
    prior_precision = np.linalg.inv(prior_covariance)
    tau, rho, log_z, changes = np.zeros(n), np.zeros(n), np.zeros(n), []

    def posterior():
        covariance = np.linalg.inv(prior_precision + X.T @ (rho[:, None] * X))
        return covariance @ (prior_precision @ prior_mean + X.T @ tau), covariance

    def cavity(i, mean, covariance):
        m, v = X[i] @ mean, X[i] @ covariance @ X[i]
        cavity_rho = 1 / v - fraction[i] * rho[i]
        return (m / v - fraction[i] * tau[i]) / cavity_rho, 1 / cavity_rho

    for _ in range(passes):
        before = posterior()
        mean, covariance = before
        new = []
        for i in range(n):
            m, v = cavity(i, mean, covariance)
            log_z[i], tilted_mean, tilted_variance = log_tilted(log_ps[i], m, v)
            site = ((tilted_mean / tilted_variance - m / v) / fraction[i], (1 / tilted_variance - 1 / v) / fraction[i])
            if parallel:
                new.append(site)
            else:
                tau[i], rho[i] = site
                mean, covariance = posterior()
        if parallel:
            tau, rho = np.array(new).T
        after = posterior()
        sd = np.sqrt(np.diag(after[1]))
        changes.append(max(np.max(np.abs(after[0] - before[0]) / sd), np.max(np.abs(np.diag(before[1]) / sd**2 - 1))))
        if changes[-1] < tol:
            break
    mean, covariance = posterior()

    def partition(m, precision):
        return 0.5 * m @ precision @ m - 0.5 * np.linalg.slogdet(precision)[1]

    evidence = partition(mean, np.linalg.inv(covariance)) - partition(prior_mean, prior_precision)
    for i in range(n):
        m, v = cavity(i, mean, covariance)
        log_z[i] = log_tilted(log_ps[i], m, v)[0]
        q_m, q_v = X[i] @ mean, X[i] @ covariance @ X[i]
        a_cavity, a_q = 0.5 * m * m / v + 0.5 * np.log(v), 0.5 * q_m * q_m / q_v + 0.5 * np.log(q_v)
        evidence += (log_z[i] - (a_q - a_cavity)) / fraction[i]
    return mean, covariance, evidence, log_z, (tau, rho), changes


def adf(X, log_ps, mean, covariance):
    """One row after the other; returns mean, covariance and the sum of log normalisers."""
    total = 0.0
    for x, log_p in zip(X, log_ps, strict=True):
        m, v = x @ mean, x @ covariance @ x
        log_z, tilted_mean, tilted_variance = log_tilted(log_p, m, v)
        gain = covariance @ x / v
        mean = mean + gain * (tilted_mean - m)
        covariance = covariance - np.outer(gain, gain) * (v - tilted_variance)
        total += log_z
    return mean, covariance, total
