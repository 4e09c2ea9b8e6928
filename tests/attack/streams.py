"""Streams and sparse rows on random problems, against dense twins."""

import mpmath as mp
import numpy as np
from attack.rule import near, sure
from attack.sites import positive
from reference import diagonal as diagonal_reference
from reference import streaming_gp as reference
from scipy import sparse

import cavity
from cavity import covariances, likelihoods


def stream(rng):
    """Batches and single rows with weights, then fewer inducing points, in 40 digits."""
    n, m, d = int(rng.integers(1, 9)), int(rng.integers(1, 5)), int(rng.integers(1, 3))
    X, Z, new = (rng.uniform(-3, 3, (size, d)) for size in (n, m, 3))
    y, weights = rng.normal(size=n), rng.choice([1.0, 1.0, 0.5, 2.0], n)
    variance, length, noise = positive(rng, -1, 1), positive(rng, -0.5, 0.7), positive(rng, -2, 0)
    jitter, alpha = positive(rng, -6, -3), float(rng.choice([0.0, 0.5, 1.0]))
    cuts = np.sort(rng.integers(0, n + 1, rng.integers(0, 3)))
    batches = [part for part in np.split(np.arange(n), cuts) if len(part)]
    settings = {"inducing": Z, "jitter": jitter, "alpha": alpha, "mean": 0.0}
    model = cavity.StreamingGP(covariances.RBF(variance, length), likelihoods.Gaussian(noise), **settings)
    with mp.workdps(40):
        k, twin = (
            reference.rbf(mp.mpf(variance), mp.mpf(length)),
            reference.Stream(alpha=mp.mpf(alpha), jitter=mp.mpf(jitter)),
        )
        points = reference.many_digits(Z)
        state = None
        for rows in batches:
            values = X[rows], y[rows]
            if state is None:
                state = sure(model.fit, *values, sample_weight=weights[rows], learn=False)
            else:
                sure(state.update, *values, sample_weight=weights[rows])
            many = (reference.many_digits(value) for value in values)
            twin.update(k, points, *many, mp.mpf(noise), reference.many_digits(weights[rows]))
        mean, covariance = (reference.plain(item) for item in twin.predict(reference.many_digits(new)))
        bound = float(twin.log_bound)
    error = 1e-13 / jitter + 1e-9  # nearly equal inducing points leave the nugget alone to tell them apart
    prediction = state.predict(new)
    near("predicted mean", prediction[0], mean, error * np.sqrt(variance) * (1 + np.max(np.abs(y)) / np.sqrt(noise)))
    near("predicted variance", prediction[1], np.diag(covariance), error * variance)
    near("log_bound", state.log_bound, bound, error * (1 + abs(bound) + np.sum(y * y) / noise))


def sparse_rows(rng):
    """GLMs with independent weights: sparse rows, the same as arrays, and the twin's sweeps."""
    n, d = int(rng.integers(1, 15)), int(rng.integers(1, 6))
    X = np.where(rng.random((n, d)) < 0.5, rng.normal(size=(n, d)), 0.0)
    X[rng.random(n) < 0.1] = 0.0
    y, offset = rng.choice([-1.0, 1.0], n), rng.normal(size=n)
    weights, power = rng.choice([1.0, 2.0, 0.5], n), float(rng.choice([1.0, 0.6]))
    mean, variance = rng.normal(size=d), 10 ** rng.uniform(-1, 1, d)
    model = cavity.GLM("probit", prior_mean=mean, prior_variance=variance, approximation="diagonal", intercept=False)
    arguments = {"offset": offset, "sample_weight": weights, "power": power, "schedule": "sequential", "tol": 1e-10}
    one = sure(model.fit, sparse.csr_array(X), y, **arguments)
    other = sure(model.fit, X, y, **arguments)
    if one.log_evidence != other.log_evidence or not np.array_equal(one.mean, other.mean):
        near("the bits of sparse rows", one.mean, other.mean, 0.0)
    if one.converged and X.any(axis=1).all():
        expected = diagonal_reference.ep(X, y, mean, variance, 60, offset, weights, power)
        near("mean", one.mean, expected[0], 1e-6 * np.sqrt(expected[1]))
        near("variance", one.variance, expected[1], 1e-6 * expected[1])
        near("log_evidence", one.log_evidence, expected[2], 1e-6 * (1 + abs(expected[2])))


ATTACKS = (stream, sparse_rows)
