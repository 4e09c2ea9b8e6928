"""Sums of Matern processes in time by the book: matrix exponentials, a Kalman filter with Joseph's form, and the
smoother of Rauch, Tung and Striebel, row by row (Sarkka, "Bayesian Filtering and Smoothing", 2013, chapters 4 and 8).
"""

from math import comb

import numpy as np
from scipy.linalg import block_diag, expm, solve_continuous_lyapunov


def state_space(processes):
    """Return F, P and h of a sum of processes (states, lengthscale, variance): x' = F x + noise, f = h'x, cov x = P."""
    feedbacks, stationary, first = [], [], []
    for p, lengthscale, variance in processes:
        rate = np.sqrt(2 * p - 1) / lengthscale
        F = np.diag(np.ones(p - 1), 1)
        F[-1] = [-comb(p, i) * rate ** (p - i) for i in range(p)]
        noise = np.zeros((p, p))
        noise[-1, -1] = 1.0
        P = solve_continuous_lyapunov(F, -noise)
        feedbacks.append(F)
        stationary.append(P * (variance / P[0, 0]))
        first.append(np.eye(p)[0])
    return block_diag(*feedbacks), block_diag(*stationary), np.concatenate(first)


def smooth(processes, t, y, noise):
    """Return log p(y), and means and variances of f at sorted times t, for y = f + N(0, noise)."""
    F, P, h = state_space(processes)
    m, S, log_p, steps = np.zeros(len(h)), P, 0.0, []
    for i in range(len(t)):
        A = expm(F * (t[i] - t[i - 1])) if i else np.eye(len(h))
        before = m, S
        m, S = A @ m, A @ S @ A.T + (P - A @ P @ A.T if i else 0.0)
        predicted = m, S
        s = h @ S @ h + noise[i]
        log_p -= 0.5 * (np.log(2 * np.pi * s) + (y[i] - h @ m) ** 2 / s)
        K = S @ h / s
        m = m + K * (y[i] - h @ m)
        C = np.eye(len(h)) - np.outer(K, h)
        S = C @ S @ C.T + noise[i] * np.outer(K, K)
        steps.append((A, before, predicted, (m, S)))
    means, variances = np.empty(len(t)), np.empty(len(t))
    for i in range(len(t) - 1, -1, -1):
        if i < len(t) - 1:
            A, (m_filtered, S_filtered), (m_predicted, S_predicted), _ = steps[i + 1]
            G = np.linalg.solve(S_predicted, A @ S_filtered).T
            m = m_filtered + G @ (m - m_predicted)
            S = S_filtered + G @ (S - S_predicted) @ G.T
        means[i], variances[i] = h @ m, h @ S @ h
    return log_p, means, variances
