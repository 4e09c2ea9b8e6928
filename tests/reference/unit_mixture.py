"""Responsibilities of a mixture on a line with one noise variance, as they are written down, in extended precision."""

import numpy as np


def log_weights(y, mean, log_weight, h):
    """c_k - h (y_i - m_k)^2, (N, K)."""
    y, mean, log_weight = (np.asarray(x, dtype=np.longdouble) for x in (y, mean, log_weight))
    return log_weight - np.longdouble(h) * (y[:, None] - mean) ** 2


def responsibilities(y, mean, log_weight, h):
    """Return r (N, K) and the log normaliser of each row (N,)."""
    a = log_weights(y, mean, log_weight, h)
    top = a.max(axis=1, keepdims=True)
    weight = np.exp(a - top)
    total = weight.sum(axis=1, keepdims=True)
    return weight / total, (top + np.log(total))[:, 0]


def statistics(y, mean, log_weight, h):
    """Return N (K,), D (K,), L and Q."""
    r, log_normaliser = responsibilities(y, mean, log_weight, h)
    d = np.asarray(y, dtype=np.longdouble)[:, None] - mean
    return r.sum(axis=0), (r * d).sum(axis=0), log_normaliser.sum(), (r * d**2).sum()


def rounding(y, mean, log_weight, h):
    """Bounds on what double precision may do to N (K,), D (K,), L and Q.

    A log weight is known to 4 eps of |c_k - max c| + h d^2, hence r_ik to that and the mean of it under r, relatively;
    all else is a few eps of sums of absolute values. L has an error of a few eps a point: logarithms near 0 are
    absolute. Weights below 2^-1022 may be 0 where the sum of them is 2^-400: r is known to 1e-187 absolutely.
    """
    eps = np.finfo(float).eps
    r, log_normaliser = responsibilities(y, mean, log_weight, h)
    highest = np.max(log_weight)
    d = np.abs(np.asarray(y, dtype=np.longdouble)[:, None] - mean)
    with np.errstate(invalid="ignore"):  # 0 times infinity where a component has no weight
        error = np.where(r > 0, highest - np.asarray(log_weight) + h * d**2, 0)
    shared = (r * error).sum(axis=1, keepdims=True)
    relative = eps * (30 + 8 * (error + shared))
    of_total = np.sum(4 + 8 * shared[:, 0] + np.abs(log_normaliser - highest)) + len(y) * abs(highest)
    tiny = len(y) * 1e-180
    return (
        (r * relative).sum(axis=0) + tiny,
        (r * relative * d).sum(axis=0) + tiny * d.max(),
        4 * eps * of_total,
        (r * relative * d**2).sum() + tiny * (d**2).max(),
    )
