"""Kernels of the factors of mixtures and of accelerated iterations, beside the same formulas in NumPy."""

import numpy as np
import pytest
from support.tolerances import SUMS

from cavity import _core
from cavity.base.errors import NotPositiveDefiniteError
from cavity.distributions import Dirichlet, Gamma, Wishart
from cavity.distributions.divergence import kl
from cavity.models.mixture.factors import GammaFactors, WeightFactors, WishartFactors

acceleration = _core.best("acceleration")


def draw_factors(rng, shared, k=3, dim=4):
    """Return WishartFactors with one precision for all components, or one each."""
    t = 1 if shared else k
    roots = rng.normal(size=(t, dim, dim))
    scatter = roots @ roots.swapaxes(1, 2) + np.eye(dim)
    nu, beta = rng.uniform(dim, 30.0, t), rng.uniform(0.5, 20.0, (k, 1))
    return WishartFactors.of(rng.normal(size=(k, dim)), beta, nu, scatter)


@pytest.mark.parametrize("shared", [False, True])
def test_wishart_factors_as_in_numpy(shared, set_sizes):
    rng = np.random.default_rng(0)
    own, prior = draw_factors(rng, shared), draw_factors(rng, shared)
    squares = rng.normal(size=(3, 4, 9))
    sums = rng.uniform(0.0, 9.0, (3, 1)), rng.normal(size=(3, 4)), squares @ squares.swapaxes(1, 2)
    new, value, determinants = own.update(prior, *sums), own.divergence(prior), own.expected_log_determinants()
    set_sizes(MAX_COMPILED_COLUMNS=0)
    other = own.update(prior, *sums)
    for name in WishartFactors.__slots__:
        np.testing.assert_allclose(getattr(new, name), getattr(other, name), rtol=SUMS, atol=SUMS, err_msg=name)
    assert value == pytest.approx(own.divergence(prior), rel=SUMS)
    wisharts = [[Wishart(*pair) for pair in zip(item.nu, item.scatter, strict=True)] for item in (own, prior)]
    precisions = own.nu[:, None, None] * np.linalg.inv(own.scatter)
    step, ratio = own.mean - prior.mean, (prior.beta / own.beta)[:, 0]
    means = 4.0 * (ratio - 1.0 - np.log(ratio)) + prior.beta[:, 0] * np.einsum(
        "ki,kij,kj->k", step, precisions + np.zeros((3, 4, 4)), step
    )
    assert value == pytest.approx(
        0.5 * np.sum(means) + sum(kl(*pair) for pair in zip(*wisharts, strict=True)), rel=SUMS
    )
    expected = [item.statistics[0] for item in wisharts[0]]
    np.testing.assert_allclose(determinants, expected, rtol=SUMS)


def test_scatters_that_are_not_positive_definite_are_named():
    rng = np.random.default_rng(1)
    own, prior = draw_factors(rng, False), draw_factors(rng, False)
    second = np.zeros((3, 4, 4))
    second[1] = -1e3 * np.eye(4)
    with pytest.raises(NotPositiveDefiniteError, match="component 1"):
        own.update(prior, np.ones((3, 1)), np.zeros((3, 4)), second)


@pytest.mark.parametrize("widths", [(1, 1), (3, 3), (1, 3), (3, 1)])
def test_divergences_of_gammas_and_weights(widths):
    """Of betas and precisions for all columns together or one each."""
    rng = np.random.default_rng(2)
    own, prior = (
        GammaFactors(rng.normal(size=(2, 3)), *(rng.uniform(0.5, 9.0, (2, w)) for w in (*widths, widths[1])))
        for _ in range(2)
    )
    halves = [Gamma(0.5 * item.nu, 0.5 * item.scatter) for item in (own, prior)]
    ratio, precision = prior.beta / own.beta, own.nu / own.scatter
    means = ratio - 1.0 - np.log(ratio) + prior.beta * precision * (own.mean - prior.mean) ** 2
    assert own.divergence(prior) == pytest.approx(0.5 * np.sum(means) + np.sum(kl(*halves)), rel=SUMS)
    for shape in ((4,), (3, 2)):
        a, b = rng.uniform(0.01, 50.0, (2, *shape))
        expected = np.sum(kl(Dirichlet(a), Dirichlet(b)))
        assert WeightFactors(a).divergence(WeightFactors(b)) == pytest.approx(expected, rel=SUMS)


def test_products_of_differences():
    rng = np.random.default_rng(3)
    points = [rng.normal(size=(4, 29)) for _ in range(5)]
    lengths, moved, residual, right = *np.empty((3, 4, 4)), np.empty(4)
    acceleration.products(points, lengths, moved, residual, right)
    x, s, gx, gs = np.diff(np.stack(points, axis=1), axis=1)
    last = points[-1]
    for value, (a, b) in ((lengths, (x, s)), (residual, (gx - x, gs - s))):
        np.testing.assert_allclose(value, 0.5 * (a @ b.T + b @ a.T), rtol=SUMS, atol=SUMS)
    np.testing.assert_allclose(moved, 0.5 * (x @ gs.T + s @ gx.T), rtol=SUMS, atol=SUMS)
    expected = 0.5 * ((gx - x) @ (last[3] - last[1]) + (gs - s) @ (last[2] - last[0]))
    np.testing.assert_allclose(right, expected, rtol=SUMS, atol=SUMS)
    with pytest.raises(ValueError, match="at most"):
        acceleration.products(points * 4, lengths, moved, residual, right)
