"""Parts of divergences."""

import mpmath as mp
import numpy as np
import pytest
from support.tolerances import AT_REST, INTEGRAL, LOSSES, SUMS

from cavity.base.special import beta_cdf, gamma_probability, log_gamma_ratio, shape_divergence


def test_shapes_that_are_all_equal_diverge_as_each_alone():
    shapes = np.array([0.3, 5.0, 40.0])
    item = [shape_divergence(np.array([a, 2.0 * a]), 7.0)[0] for a in shapes]
    np.testing.assert_array_equal([shape_divergence(float(a), 7.0) for a in shapes], item)
    np.testing.assert_array_equal(shape_divergence(np.full((2, 3), 5.0), 7.0), np.full((2, 3), item[1]))


@pytest.mark.parametrize("shape", [1e-3, 2.0, 30.0, 1e6, 1e12])
@pytest.mark.parametrize("rate", [1e-290, 1.0, 1e12])
def test_log_evidence_keeps_its_digits(shape, rate):
    """The closed form as `log_gamma_ratio` makes it stable, against 50 digits."""
    squares, half = 5.375, 2.0  # of [0.5, -1.25, 2, 0.75], whose mean is the prior's
    with mp.workdps(50):
        a, b = mp.mpf(shape), mp.mpf(rate)
        expected = mp.loggamma(a + 2) - mp.loggamma(a) + a * mp.log(b) - (a + 2) * mp.log(b + mp.mpf(squares) / 2)
        expected += mp.log(mp.mpf(2) / 6) / 2 - 4 * mp.log(2 * mp.pi) / 2
    rise = 0.5 * squares
    growth = np.log1p(rise / rate) if rise < rate else np.log(rate + rise) - np.log(rate)
    result = log_gamma_ratio(shape, half) - shape * growth - half * np.log(2 * np.pi * (rate + rise))
    assert result + 0.5 * np.log(2 / 6) == pytest.approx(float(expected), rel=SUMS, abs=SUMS)


@pytest.mark.parametrize("n", [2e6, 1e8, 1e12])
@pytest.mark.parametrize("mean", [0.5, 0.9])
def test_beta_distribution_of_large_shapes(n, mean):
    """By quadrature; SciPy's is off by 2e-9 at shapes of 1e7, by 1e-5 at 1e12, and takes milliseconds at 1e14."""
    a, b = n * mean, n * (1 - mean)
    x = mean + np.sqrt(mean * (1 - mean) / n) * np.array([-6.0, -1.0, -1e-3, 0.0, 0.3, 3.0])
    with mp.workdps(40):
        constant = mp.loggamma(mp.mpf(a) + b) - mp.loggamma(a) - mp.loggamma(b)
        sd, expected = mp.sqrt(mean * (1 - mean) / n), []

        def density(t):
            return mp.exp(constant + (a - 1) * mp.log(t) + (b - 1) * mp.log1p(-t))

        for end in x:
            low = min(mp.mpf(end), mp.mpf(mean)) - 14 * sd
            points = [low + (mp.mpf(end) - low) * k / 6 for k in range(7)]
            expected.append(float(mp.quad(density, points)))
    rounding = n**0.5 * 1e-15  # of x and of the shapes
    np.testing.assert_allclose(beta_cdf(a, b, x), expected, rtol=INTEGRAL + rounding)
    assert beta_cdf(a, b, [0.0, 1.0]).tolist() == [0.0, 1.0]


@pytest.mark.parametrize("a", [1e4, 3e5, 3e7, 1e10])
def test_gamma_probabilities_of_large_shapes(a):
    """By quadrature; SciPy's lower one is off by 4e-8 at 3e7 and -5 standard deviations."""
    z = np.array([-7.0, -5.0, -1.0, 1e-3, 2.0, 4.6, 6.0])
    x = a + np.sqrt(a) * z
    with mp.workdps(40):
        constant = a * mp.log(a) - a - mp.loggamma(a)
        sd = mp.sqrt(a)

        def density(t):
            return mp.exp(constant - a * (t / sd - mp.log1p(t / sd))) / (sd + t)

        for sign in (-1, 1):  # the tail that z is in
            inside = sign * z > 0
            ends = [[mp.mpf(b - a) / sd + sign * k for k in (0, 1, 3, 6, 10)] for b in x[inside]]
            tail = [float(mp.quad(density, sorted(points))) for points in ends]
            rtol = LOSSES if a < 1e9 else AT_REST
            np.testing.assert_allclose(gamma_probability(a, x[inside], above=sign > 0), tail, rtol=rtol)
            rest = gamma_probability(a, x[inside], above=sign < 0)
            np.testing.assert_allclose(rest, 1.0 - np.array(tail), rtol=LOSSES)
    assert gamma_probability(a, np.array([0.0, 1e300])).tolist() == [0.0, 1.0]
    assert gamma_probability(a, np.array([0.0, 1e300]), above=True).tolist() == [1.0, 0.0]
