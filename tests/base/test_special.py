"""Parts of divergences."""

import mpmath as mp
import numpy as np
import pytest
from support.tolerances import INTEGRAL, SUMS

from cavity.base.special import beta_cdf, log_gamma_ratio, shape_divergence


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
