"""Kernels of the factors of mixtures and of accelerated iterations, beside the same formulas in NumPy."""

import numpy as np
import pytest
from scipy import special
from support.tolerances import SOLVES, SUMS

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


@pytest.mark.parametrize("shared", [False, True])
def test_coordinates_of_wishart_factors_as_in_numpy(shared, set_sizes):
    """There and back; outside the domain there are no factors."""
    own = draw_factors(np.random.default_rng(4), shared)
    natural, statistics = own.coordinates()
    factors = own.at(natural)
    outside = [natural * np.nan, *(np.where(np.arange(len(natural)) == i, 1.0, natural) for i in (12, 15))]
    assert all(own.at(other) is None for other in outside)
    set_sizes(MAX_COMPILED_COLUMNS=0)
    for value, expected in zip((natural, statistics), own.coordinates(), strict=True):
        np.testing.assert_allclose(value, expected, rtol=SUMS, atol=SUMS)
    for name in WishartFactors.__slots__:
        np.testing.assert_allclose(getattr(factors, name), getattr(own.at(natural), name), rtol=SUMS, atol=SUMS)
        np.testing.assert_allclose(getattr(factors, name), getattr(own, name), rtol=SUMS, atol=SUMS)
    assert all(own.at(other) is None for other in outside)


@pytest.mark.parametrize("widths", [(1, 1), (3, 3), (1, 3), (3, 1)])
def test_coordinates_and_updates_of_gamma_factors(widths):
    rng = np.random.default_rng(5)

    def draw():
        return GammaFactors(rng.normal(size=(2, 3)), *(rng.uniform(0.5, 9.0, (2, w)) for w in (*widths, widths[1])))

    own, prior = draw(), draw()
    shared = (lambda terms: terms) if widths[1] == 3 else (lambda terms: terms.sum(axis=1, keepdims=True))
    natural, statistics = own.coordinates()
    weighted = own.scatter + shared(own.beta * own.mean**2)
    parts = own.beta * own.mean, -0.5 * own.beta, -0.5 * weighted, 0.5 * own.nu
    np.testing.assert_allclose(natural, np.concatenate([part.ravel() for part in parts]), rtol=SUMS)
    square = 1.0 / own.beta + own.nu / own.scatter * own.mean**2
    square = square if widths[0] == 3 else square.sum(axis=1)
    logs = special.digamma(0.5 * own.nu) - np.log(0.5 * own.scatter)
    parts = own.nu / own.scatter * own.mean, square, own.nu / own.scatter + np.zeros(own.scatter.shape), logs
    np.testing.assert_allclose(statistics, np.concatenate([part.ravel() for part in parts]), rtol=SUMS)
    for name in GammaFactors.__slots__:
        np.testing.assert_allclose(getattr(own.at(natural), name), getattr(own, name), rtol=SUMS, atol=SUMS)
    for i in (6, len(natural) - 1):
        assert own.at(np.where(np.arange(len(natural)) == i, -natural, natural)) is None
    counts, first, second = (
        rng.uniform(0.0, 9.0, (2, widths[0])),
        rng.normal(size=(2, 3)),
        rng.uniform(9.0, 10.0, (2, 3)),
    )
    new, beta = own.update(prior, counts, first, second), prior.beta + counts
    mean = (prior.beta * prior.mean + counts * own.mean + first) / beta
    np.testing.assert_allclose(new.mean, mean, rtol=SUMS, atol=SUMS)
    np.testing.assert_allclose(new.nu, prior.nu + shared(counts + np.zeros((2, 3))), rtol=SUMS)
    step = mean - own.mean
    scatter = second - 2.0 * step * first + counts * step**2 + prior.beta * (mean - prior.mean) ** 2
    np.testing.assert_allclose(new.scatter, prior.scatter + shared(scatter), rtol=SUMS)


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


def test_rates_and_weights_of_differences():
    """The largest Ritz value in the axes that are long enough, and the shortest residual."""
    rng = np.random.default_rng(6)
    root, moved, right = rng.normal(size=(4, 4)), rng.normal(size=(4, 4)), rng.normal(size=4)
    lengths, weights = root @ root.T, np.empty(4)
    values, axes = np.linalg.eigh(lengths)
    for least in (0.0, values[1]):
        basis = axes[:, values > least] / np.sqrt(values[values > least])
        expected = np.max(np.abs(np.linalg.eigvals(basis.T @ moved @ basis)))
        assert acceleration.largest_rate(lengths, moved, 0.0, least) == pytest.approx(expected, rel=SOLVES)
    assert np.isnan(acceleration.largest_rate(lengths, moved, 0.0, 2.0 * values[-1]))
    assert acceleration.shortest_residual(lengths, right, 0.0, weights) == 4
    np.testing.assert_allclose(weights, np.linalg.solve(lengths, right), rtol=SOLVES)
    assert acceleration.shortest_residual(-lengths, right, 0.0, weights) == 0
    point = rng.normal(size=(4, 29))
    change = max(0.5 * (point[2] - point[0]) @ (point[3] - point[1]), 0.0)
    noise = 0.5 * 1e-6 * np.abs(point[2]) @ np.abs(point[3])
    assert acceleration.lengths_of_step(point, 1e-3) == pytest.approx((change, noise), rel=SUMS)
