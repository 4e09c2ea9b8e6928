"""Designs of integrals: normal densities exactly, skew ones by stretched axes, grids against quadrature."""

import numpy as np
import pytest
from scipy import integrate as quadrature
from scipy import stats
from support.tolerances import EXPANSION, PRINTED, SUMS

from cavity.models.integration_designs import integrate, make_two_level_factorial


@pytest.mark.parametrize("m", range(2, 9))
def test_designs_have_the_mass_and_moments_of_normal_densities(m):
    A = np.random.default_rng(m).normal(size=(m, m))
    H, centre = A @ A.T + np.eye(m), np.arange(m) / 3.0
    result = integrate(lambda x, before: (0.5 - 0.5 * (x - centre) @ H @ (x - centre), None), centre, H, "ccd")
    truth = 0.5 + 0.5 * m * np.log(2.0 * np.pi) - 0.5 * np.linalg.slogdet(H)[1]
    assert result.log_integral == pytest.approx(truth, abs=SUMS)
    mean = result.weights @ result.x
    np.testing.assert_allclose(mean, centre, atol=SUMS)
    spread = (result.x - mean).T @ (result.weights[:, None] * (result.x - mean))
    np.testing.assert_allclose(spread, np.linalg.inv(H), atol=SUMS)


@pytest.mark.parametrize(("m", "corners"), [(3, 8), (4, 16), (5, 16), (6, 32), (7, 64), (8, 64)])
def test_fractions_tell_pairs_of_factors_apart(m, corners):
    """Resolution V: columns and products of two of them are orthogonal."""
    design = make_two_level_factorial(m)
    assert design.shape == (corners, m)
    pairs = [design[:, i] * design[:, j] for i in range(m) for j in range(i)]
    every = np.column_stack([np.ones(corners), design, *pairs])
    np.testing.assert_array_equal(every.T @ every, corners * np.eye(every.shape[1]))


def skew_log_density(x):
    """Of the log of a gamma variable of shape 3 in each entry, independent."""
    return float(np.sum(3.0 * x - np.exp(x)))


@pytest.mark.parametrize("m", [1, 2, 3])
def test_grids_of_skew_densities(m):
    """Against the gamma function and moments of its logarithm."""
    result = integrate(
        lambda x, before: (skew_log_density(x), x.copy()), np.full(m, np.log(3.0)), 3.0 * np.eye(m), "grid"
    )
    lost = {3: 0.003}.get(m, EXPANSION)  # beyond a fall of six nats
    assert result.log_integral == pytest.approx(m * np.log(2.0), abs=lost)
    law = stats.loggamma(3.0)
    np.testing.assert_allclose(result.weights @ result.x, law.mean(), atol=0.002)
    np.testing.assert_allclose(result.weights @ (result.x - law.mean()) ** 2, law.var(), rtol=0.02)
    np.testing.assert_array_equal(np.stack(result.values), result.x)
    assert result.weights.sum() == pytest.approx(1.0, abs=SUMS)


def test_stretched_axes_of_skew_densities():
    """The error of a normal approximation is 0.111 nats in four dimensions."""
    x0 = np.full(4, np.log(3.0))
    result = integrate(lambda x, before: (skew_log_density(x), None), x0, 3.0 * np.eye(4), "ccd")
    assert abs(result.log_integral - 4.0 * np.log(2.0)) < 0.04


def test_corrections_are_weights_and_not_part_of_the_plain_integral():
    def correct(z, values):
        return 0.1 * z[:, 0]

    def density(x, before):
        return -0.5 * float(x[0]) ** 2, None

    result = integrate(density, np.zeros(1), np.eye(1), "grid", correct)
    plain = integrate(density, np.zeros(1), np.eye(1), "grid")
    assert result.plain_log_integral == plain.log_integral
    truth = np.log(quadrature.quad(lambda x: np.exp(-0.5 * x * x + 0.1 * x), -10, 10)[0])
    assert result.log_integral == pytest.approx(truth, abs=PRINTED)
    assert result.weights @ result.x[:, 0] == pytest.approx(0.1, abs=EXPANSION)


@pytest.mark.parametrize(("bound", "end"), [(-6.5, -6.4), (-7.5, -6.9)])
def test_lengthened_steps_end_at_a_bound(bound, end):
    """A density that falls slowly below 0, by six nats at -6.9, and is cut off: the grid has its mass up to there."""

    def density(x):
        return None if x < bound else float(-0.5 * x**2 if x > 0.0 else 1.0 - np.sqrt(1.0 + x**2))

    result = integrate(lambda x, before: (density(x[0]), None), np.zeros(1), np.eye(1), "grid")
    assert bound <= np.min(result.x) < end
    mass = quadrature.quad(lambda x: np.exp(density(x)), bound, 30.0, points=[0.0])[0]
    assert result.log_integral == pytest.approx(np.log(mass), abs=EXPANSION)


def test_points_without_a_density_have_no_weight():
    result = integrate(
        lambda x, before: (None, None) if x[0] > 1.0 else (-0.5 * float(x[0]) ** 2, None),
        np.zeros(1),
        np.eye(1),
        "grid",
    )
    assert np.max(result.x) <= 1.0
    with pytest.raises(ArithmeticError, match="no posterior at the maximum"):
        integrate(lambda x, before: (None, None), np.zeros(1), np.eye(1), "grid")
