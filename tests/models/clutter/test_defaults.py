"""Settings of the clutter model from data, and data that contradict settings."""

import numpy as np
import pytest
from support.clutters import draw
from support.tolerances import LAST_BIT

import cavity
from cavity import Clutter, SettingsWarning


def test_with_defaults_is_what_the_command_does():
    x, _ = cavity.data.load("newcomb")
    settled = Clutter().with_defaults(x)
    assert settled == Clutter(clutter_weight=0.3, prior_mean=5.0).with_defaults(x)
    assert Clutter(clutter_weight=0.3).with_defaults(x, keep=["clutter_weight"]).clutter_weight == 0.3
    spread = 1.4826 * np.median(np.abs(x - np.median(x)))
    assert settled.noise_variance == pytest.approx(spread**2, rel=LAST_BIT)
    assert (settled.prior_mean, settled.clutter_mean, settled.clutter_weight) == (27.0, 27.0, 0.1)
    assert settled.clutter_variance == max(100 * settled.noise_variance, 71.0**2)
    posterior = settled.fit(x)
    assert (round(posterior.mean, 2), round(posterior.variance**0.5, 2)) == (27.73, 0.59)
    stored = Clutter(noise_variance=2.0, prior_mean=1.0).with_defaults(x, keep=["noise_variance", "prior_mean"])
    assert (stored.noise_variance, stored.prior_mean, stored.prior_variance) == (2.0, 1.0, 200.0)
    plane = Clutter().with_defaults(np.stack([x, 1e3 + 2 * x], axis=1))
    assert plane.prior_mean == (27.0, 1054.0)
    assert plane.fit(np.stack([x, 1e3 + 2 * x], axis=1)).converged
    assert Clutter().with_defaults([3.0, 3.0, 3.0]).noise_variance == 1.0
    for scale in (1e-200, 1e200):
        with pytest.raises(OverflowError, match="x: squares of distances from the median leave the range of float64"):
            Clutter().with_defaults(scale * x)
    with pytest.raises(ValueError, match="keep must be one of"):
        Clutter().with_defaults(x, keep=["mean"])
    with pytest.raises(ValueError, match=r"x must have 1 or 2 dimension"):
        Clutter().with_defaults(np.ones((2, 3, 1)))


def test_settings_of_other_data_are_said():
    x, _ = cavity.data.load("newcomb")
    message = r"points lie more than 6 standard deviations from both the signal .* Clutter.with_defaults"
    with pytest.warns(SettingsWarning, match="14 of 66 " + message):
        posterior = Clutter().fit(x)
    assert posterior.mean == pytest.approx(28.68, abs=0.01)
    with pytest.warns(SettingsWarning, match=message):
        Clutter().fit(x, method="adf")
    batch = np.stack([x, draw((66,)), 1e3 + x])[..., None]
    with pytest.warns(SettingsWarning, match="points in 2 of 3 problems lie") as caught:
        Clutter().fit(batch)
    assert [item.filename for item in caught] == [__file__]
