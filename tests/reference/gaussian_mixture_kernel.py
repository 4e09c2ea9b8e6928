"""Responsibilities and moments of a Gaussian mixture, as they are written down, in extended precision, with bounds.

The bounds say what double precision may do to each result: rounding errors of the steps of the kernel, in the order of
their appearance, carried through to first order with absolute values everywhere and a factor of two on top.
"""

from typing import NamedTuple

import numpy as np

EPS = np.finfo(float).eps
LOWEST = 1e-300  # weights below 2^-1022 may be 0


class Weights(NamedTuple):
    """log rho (N, K) and d = z - m (N, K, D), with bounds on their errors; max c; seen (N, D)."""

    log_rho: np.ndarray
    log_rho_error: np.ndarray
    highest: float
    d: np.ndarray
    d_error: np.ndarray
    seen: np.ndarray


def differences(rows, origin, scale, mean):
    """Return d (N, K, D), 0 where rows are nan, its error, and what is seen (N, D)."""
    rows, origin, scale, mean = (np.asarray(x, dtype=np.longdouble) for x in (rows, origin, scale, mean))
    seen = ~np.isnan(rows)
    z = (np.where(seen, rows, 0) - origin) * scale
    d = np.where(seen[:, None], z[:, None] - mean, 0)
    return d, EPS * (np.abs(z)[:, None] + np.abs(d)), seen


def squares(d, d_error, factor):
    """Return |F d|^2 (N, K) and its error."""
    size = d.shape[2]
    lower = np.tril(np.asarray(factor, dtype=np.longdouble))
    y = np.stack([item @ f.T for item, f in zip(np.moveaxis(d, 1, 0), lower, strict=True)], axis=1)
    wrong = d_error + size * EPS * np.abs(d)
    y_error = np.stack([e @ abs(f).T for e, f in zip(np.moveaxis(wrong, 1, 0), lower, strict=True)], axis=1)
    return np.sum(y**2, axis=2), np.sum((2 * np.abs(y) + y_error) * y_error + (size + 2) * EPS * y**2, axis=2)


def weights_of(height, gains, gains_error, q, q_error, differences):
    """Collect c + gains - q/2 and its error."""
    height = np.asarray(height, dtype=np.longdouble)
    below = np.where(height > -np.inf, height.max() - height, 0)
    error = q_error / 2 + gains_error + 4 * EPS * (below + q / 2 + np.abs(gains))
    return Weights(height + gains - q / 2, error, float(height.max()), *differences)


def full_weights(rows, origin, scale, mean, factor, height):
    """Return c_k - |F_k d|^2/2 and company."""
    result = differences(rows, origin, scale, mean)
    return weights_of(height, 0.0, 0.0, *squares(*result[:2], factor), result)


def diagonal_weights(rows, origin, scale, mean, precision, height, gain=None):
    """Return c_k + sum over what is seen of gain - precision d^2/2, and company."""
    result = differences(rows, origin, scale, mean)
    d, d_error, seen = result
    size = d.shape[2]
    q = np.sum(precision * d**2, axis=2)
    q_error = np.sum(precision * (2 * np.abs(d) + d_error) * d_error, axis=2) + (size + 3) * EPS * q
    if gain is None:
        return weights_of(height, 0.0, 0.0, q, q_error, result)
    gains = seen @ np.asarray(gain, dtype=np.longdouble).T
    return weights_of(height, gains, 2 * (size + 1) * EPS * (seen @ np.abs(gain).T), q, q_error, result)


def responsibilities(weights):
    """Return r (N, K), log sum_k rho_nk (N,), and bounds on the relative error of r and on the error of the latter."""
    top = weights.log_rho.max(axis=1, keepdims=True)
    below = top - weights.log_rho
    weight = np.exp(-below)
    total = weight.sum(axis=1, keepdims=True)
    r = weight / total
    error = np.where(r > 0, weights.log_rho_error + 4 * EPS * np.where(r > 0, below, 0), 0)
    shared = np.sum(r * error, axis=1, keepdims=True)
    log_total = (top + np.log(total))[:, 0]
    n_components = r.shape[1]
    log_error = shared[:, 0] + EPS * (8 + n_components + 2 * np.abs(top[:, 0]))
    return r, log_total, error + shared + EPS * (20 + n_components), log_error


def moments(weights, sample_weight, diagonal, counts):
    """Return (N, s, S, N of what is seen if `counts`, L) and their bounds in the same shape.

    N (K, 1), s (K, D), S (K, D (D + 1)/2), or (K, D) if diagonal, N of what is seen (K, D).
    """
    r, log_total, relative, log_error = responsibilities(weights)
    sample_weight = np.asarray(sample_weight, dtype=np.longdouble)
    d, d_error = np.abs(weights.d), weights.d_error
    n_rows = len(r)
    weighted = r * sample_weight[:, None]
    # in sums: 16 terms in a lane, then groups of 64 or more, one after the other
    wrong = weighted * (relative + EPS * (30 + n_rows / 64)) + LOWEST * sample_weight[:, None]
    left, right = (np.arange(d.shape[2]),) * 2 if diagonal else np.tril_indices(d.shape[2])
    d_left, d_right = d[..., left], d[..., right]
    pairs_error = d_left * d_error[..., right] + d_error[..., left] * (d_right + d_error[..., right])
    values = [weighted.sum(axis=0)[:, None], total(weighted, weights.d)]
    values.append(total(weighted, weights.d[..., left] * weights.d[..., right]))
    bounds = [wrong.sum(axis=0)[:, None], total(wrong, d) + total(weighted, d_error)]
    bounds.append(total(wrong, d_left * d_right) + total(weighted, pairs_error))
    if counts:
        values.append(weighted.T @ weights.seen)
        bounds.append(wrong.T @ weights.seen)
    values.append(np.sum(sample_weight * log_total))
    largest = np.max(np.abs(log_total)) + abs(weights.highest)
    bounds.append(np.sum(sample_weight * (log_error + EPS * (30 + n_rows / 8) * (1 + largest))))
    return tuple(values), tuple(2 * bound for bound in bounds)


def total(weight, values):
    """sum_n weight_nk values_nki, (K, i)."""
    return np.stack([w @ v for w, v in zip(weight.T, np.moveaxis(values, 1, 0), strict=True)])
