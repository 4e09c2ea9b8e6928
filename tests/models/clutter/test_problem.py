"""Points in working units: the origin among them, a power of two for the scale, one problem of a batch."""

import numpy as np
import pytest
from support.clutters import draw
from support.tolerances import ROUNDING

from cavity import Clutter
from cavity.models.clutter.problem import DataPoints, Points


def test_working_units():
    x = draw((50, 2), seed=1) + 7.0
    units = Points.of(DataPoints(x), Clutter(noise_variance=20.0, clutter_variance=90.0, prior_mean=[1.0, 2.0])).units
    assert all(any(x[:, j] == units.origin[j]) for j in range(2))
    assert units.scale == 0.25
    assert units.noise == 20.0 / 16
    np.testing.assert_allclose(units.prior_tau / units.prior_rho, ([1.0, 2.0] - units.origin) / 4, rtol=ROUNDING)
    np.testing.assert_allclose(units.model[1:3], [8 / 90, 0.5 * np.log(90 / 16)], rtol=ROUNDING)
    assert units.log_jacobian == 2 * np.log(0.25)


def test_problems():
    x = draw((3, 10, 1), seed=2)
    batch = Points.of(DataPoints(x), Clutter())
    assert batch.shape == (10, 1)
    for one, data in zip(batch.problems, x, strict=True):
        single = Points.of(DataPoints(data), Clutter())
        assert single.problems == [single]
        for a, b in zip(one.arguments(slice(2, 5)), single.arguments(slice(2, 5)), strict=True):
            np.testing.assert_array_equal(a, b)


def test_points_too_far_away_are_refused():
    units = Points.of(DataPoints(np.zeros((3, 1))), Clutter()).units
    with pytest.raises(ValueError, match="x must be within 1e.100 noise standard deviations of what is known"):
        units.check_distance(np.array([[1e101], [1e101]]), "what is known")
