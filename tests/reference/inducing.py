"""Choosing inducing points, slowly: every step from an explicit inverse in many digits, no factor is kept."""

import math

import mpmath as mp
import numpy as np

DIGITS = 30


def _exact(K):
    return mp.matrix(np.asarray(K, dtype=float).tolist())


def _weights(K, points, jitter):
    """Inverse of the covariance of the inducing variables at some rows, nuggets included."""
    if not points:
        return mp.matrix(0, 0)
    return mp.inverse(mp.matrix([[K[a, b] + (jitter * K[a, a] if a == b else 0) for b in points] for a in points]))


def conditional(K, points, jitter, i, j):
    """Covariance of rows i and j of K given the inducing variables at other rows."""
    with mp.workdps(DIGITS):
        K, jitter = _exact(K), mp.mpf(jitter)
        inverse = _weights(K, points, jitter)
        return float(_conditional(K, inverse, points, i, j))


def _conditional(K, inverse, points, i, j):
    n = range(len(points))
    return K[i, j] - sum(K[i, points[a]] * inverse[a, b] * K[points[b], j] for a in n for b in n)


def residuals(K, points, jitter):
    """Variances of all rows of K given the inducing variables at some of them."""
    with mp.workdps(DIGITS):
        K, jitter = _exact(K), mp.mpf(jitter)
        inverse = _weights(K, points, jitter)
        return np.array([float(_conditional(K, inverse, points, i, i)) for i in range(K.rows)])


def gains(K, weight, points, jitter, tried):
    """Nats that each of some rows would save as a further inducing point: the loss before less that after."""
    before = weight @ residuals(K, points, jitter)
    return np.array([before - weight @ residuals(K, [*points, p], jitter) for p in tried])


def tried(loss, draws, per_step):
    """Rows that are tried: the largest loss, and quantiles of all losses at multiples of the golden ratio."""
    rows, total = {int(np.argmax(loss))}, math.fsum(loss)
    for k in range(draws + 1, draws + per_step):
        level, below = (k * (math.sqrt(5) - 1) / 2) % 1.0 * total, 0.0
        for i, one in enumerate(loss):
            below += one
            if one > 0 and below > level:
                rows.add(i)
                break
    return sorted(rows)


def greedy(K, stored, weight, budget, tolerance, jitter, per_step, nuggets=10.0):
    """Rows chosen beside the kept ones, of all rows of K that have a weight."""
    chosen, weight = [], np.asarray(weight, dtype=float)
    while len(stored) + len(chosen) < budget:
        points = [*stored, *chosen]
        left = residuals(K, points, jitter)
        if weight @ left <= tolerance * np.count_nonzero(weight):
            break
        loss = np.where(left > nuggets * jitter * np.diag(K), weight * left, 0.0)
        if not loss.any():
            break
        rows = tried(loss, per_step * len(chosen), per_step)
        chosen.append(rows[int(np.argmax(gains(K, weight, points, jitter, rows)))])
    return chosen


def loss(K, old, precision, rows, weight, points, jitter):
    """What inducing variables at `points` lose: tr(precision cov(u_old|points))/2 + sum weight var(f_rows|points).

    All are indices of rows of K; variables at the same index are the same variable, nugget included.
    """
    with mp.workdps(DIGITS):
        K, jitter = _exact(K), mp.mpf(jitter)
        inverse, n = _weights(K, points, jitter), range(len(points))

        def between(i, j):
            return K[i, j] + (jitter * K[i, i] if i == j else 0)

        def left(i, j):
            explained = sum(between(i, points[a]) * inverse[a, b] * between(points[b], j) for a in n for b in n)
            return between(i, j) - explained

        size = range(len(old))
        total = sum(mp.mpf(float(precision[i, j])) * left(old[i], old[j]) for i in size for j in size) / 2
        return float(
            total
            + sum(mp.mpf(float(w)) * _conditional(K, inverse, points, i, i) for w, i in zip(weight, rows, strict=True))
        )


def pruned(K, points, precision, count, jitter):
    """Take out, one after the other, the inducing variable without which least is lost: those left, and the loss."""
    stored = list(points)
    for _ in range(count):
        options = [loss(K, points, precision, [], [], [q for q in stored if q != p], jitter) for p in stored]
        del stored[int(np.argmin(options))]
    return stored, loss(K, points, precision, [], [], stored, jitter)
