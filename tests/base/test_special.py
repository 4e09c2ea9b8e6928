"""Parts of divergences."""

import mpmath as mp
import numpy as np
import pytest
from support.tolerances import SUMS

from cavity.base.special import log_gamma_ratio, shape_divergence


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
