"""The options of EP are checked in one place."""

import numpy as np
import pytest

from cavity.ep.options import Options

BAD = [
    (dict(schedule="both"), ValueError, "schedule must be one of 'parallel', 'sequential', got 'both'"),
    (dict(damping=0.0), ValueError, "damping"),
    (dict(damping=1.5), ValueError, "damping"),
    (dict(power=1e-7), ValueError, "power"),
    (dict(max_iter=0), ValueError, "max_iter"),
    (dict(max_iter=1.5), TypeError, "max_iter"),
    (dict(tol=-1.0), ValueError, "tol"),
    (dict(tol=np.nan), ValueError, "tol"),
    (dict(damping=0.005, lowest_damping=0.01), ValueError, "damping"),
]


@pytest.mark.parametrize(("values", "error", "message"), BAD)
def test_bad_options(values, error, message):
    with pytest.raises(error, match=message):
        Options.checked(**values)


def test_checked_options_are_plain():
    options = Options.checked(damping=np.float32(0.5), max_iter=np.int64(3), power=1e-9, lowest_power=0.0)
    assert options == Options(damping=0.5, max_iter=3, power=1e-9)
    assert options.record("max_iter", "damping") == {"max_iter": 3, "damping": 0.5}
    assert Options.checked(damping=0.01, lowest_damping=0.01).damping == 0.01
