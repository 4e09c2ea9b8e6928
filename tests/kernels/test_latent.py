"""The kernel of triangles of B = I + S^(1/2) K S^(1/2): the formulas with whole matrices, for every last row."""

import numpy as np
import pytest
from support.kernels import lower
from support.tolerances import INTEGRAL, SOLVES, SUMS

from cavity import _core

VARIANTS = _core.variants("latent")
SIZES = (*range(1, 18), 33)


def draw(n):
    """(kernel matrix, root, alpha), the last row and column the largest."""
    rng = np.random.default_rng(n)
    factor = rng.normal(size=(n, n))
    factor[-1] *= 3.0
    return factor @ factor.T / n, rng.uniform(0.5, 2.0, n), rng.normal(size=n)


def assert_lower(result, expected):
    """The lower triangle is right, and nothing was written above it."""
    np.testing.assert_allclose(np.tril(result), np.tril(expected), rtol=SOLVES, atol=SUMS * np.max(np.abs(expected)))
    assert np.all(np.isnan(result[np.triu_indices(len(result), 1)]))


@pytest.mark.parametrize("variant", VARIANTS)
def test_scaled(variant):
    for n in SIZES:
        K, root, _ = draw(n)
        out = np.full((n, n), np.nan)
        for start, stop in ((n // 3, n), (0, n // 3)):
            _core.load("latent", variant).scaled(lower(K), root, out, start, stop)
        assert_lower(out, np.eye(n) + np.diag(root) @ K @ np.diag(root))


@pytest.mark.parametrize("variant", VARIANTS)
def test_squares_of_columns(variant):
    for n in SIZES:
        triangle, out = np.tril(draw(n)[0]), np.full(n, np.nan)
        for start, stop in ((n // 3, n), (0, n // 3)):
            _core.load("latent", variant).column_squares(lower(triangle), out, start, stop)
        np.testing.assert_allclose(out, np.diag(triangle.T @ triangle), rtol=SUMS)


@pytest.mark.parametrize("variant", VARIANTS)
def test_weights_and_covariance(variant):
    """Of the evidence in K, and of the function values: K - K root B^-1 root K, or 0 where scale is."""
    for n in SIZES:
        kernel, (K, root, alpha) = _core.load("latent", variant), draw(n)
        K += np.eye(n)
        S = np.diag(root)
        inverse = np.linalg.inv(np.eye(n) + S @ K @ S)
        weights, covariance = lower(inverse), lower(inverse)
        for start, stop in ((n // 3, n), (0, n // 3)):
            kernel.evidence_weights(weights, root, alpha, start, stop)
        assert_lower(weights, 0.5 * (np.outer(alpha, alpha) - S @ inverse @ S))
        for start, stop in ((n // 3, n), (0, n // 3)):
            kernel.covariance(covariance, 1.0 / root, start, stop)
        expected = K - K @ S @ inverse @ S @ K
        np.testing.assert_allclose(np.tril(covariance), np.tril(expected), rtol=0, atol=INTEGRAL)
        assert_lower(covariance, np.tril(covariance))
        for left_out in {0, n - 1}:
            some = lower(inverse)
            kernel.covariance(some, np.where(np.arange(n) == left_out, 0.0, 1.0 / root), 0, n)
            stored = np.where(np.arange(n) == left_out, 0.0, 1.0)
            assert_lower(some, np.tril(covariance) * np.outer(stored, stored))


@pytest.mark.parametrize("variant", VARIANTS)
def test_rows_of_a_symmetric_matrix(variant):
    for n in SIZES:
        K = draw(n)[0]
        for start, stop in {(0, n), (0, 1), (n - 1, n), (n // 3, n - n // 3)}:
            out = np.full((stop - start, n), np.nan)
            _core.load("latent", variant).rows(lower(K), start, stop, out)
            np.testing.assert_array_equal(out, (np.tril(K) + np.tril(K, -1).T)[start:stop])
