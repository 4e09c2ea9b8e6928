"""Coordinate ascent for a factorised Gaussian with loops, divergences by explicit inverses; no tricks."""

import numpy as np


def sweep(mean, precision, m, blocks):
    """One pass of eqs. (10.13) and (10.15) of Bishop's book over the blocks; returns the new means."""
    m = np.array(m, dtype=float)
    for block in blocks:
        pull = np.zeros(len(block))
        for a, i in enumerate(block):
            for j in range(len(m)):
                if j not in block:
                    pull[a] += precision[i, j] * (m[j] - mean[j])
        step = np.linalg.inv(precision[np.ix_(block, block)]) @ pull
        for a, i in enumerate(block):
            m[i] = mean[i] - step[a]
    return m


def covariance_of_q(precision, blocks):
    """The covariance of q: the inverses of the diagonal blocks of the precision."""
    covariance = np.zeros_like(precision)
    for block in blocks:
        covariance[np.ix_(block, block)] = np.linalg.inv(precision[np.ix_(block, block)])
    return covariance


def true_marginals(precision, blocks):
    """The block-diagonal part of the covariance of p."""
    full, covariance = np.linalg.inv(precision), np.zeros_like(precision)
    for block in blocks:
        covariance[np.ix_(block, block)] = full[np.ix_(block, block)]
    return covariance


def kl(mean0, covariance0, mean1, covariance1):
    """KL(N(mean0, covariance0) || N(mean1, covariance1))."""
    inverse = np.linalg.inv(covariance1)
    shift = mean1 - mean0
    logs = np.linalg.slogdet(covariance1)[1] - np.linalg.slogdet(covariance0)[1]
    return 0.5 * (np.trace(inverse @ covariance0) + shift @ inverse @ shift - len(shift) + logs)


def contraction(mean, precision, blocks):
    """Largest eigenvalue of the map of errors, whose columns are swept unit vectors."""
    size = len(mean)
    columns = [sweep(np.zeros(size), precision, unit, blocks) for unit in np.eye(size)]
    return np.abs(np.linalg.eigvals(np.array(columns).T)).max()
