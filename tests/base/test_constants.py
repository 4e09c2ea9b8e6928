"""The numbers that formulas share are right to a unit in the last place."""

import math

import pytest
from mpmath import mp

from cavity.base import constants


@pytest.mark.parametrize("name", ["2", "PI", "2PI"])
def test_logs(name):
    with mp.workdps(40):
        truth = mp.log({"2": mp.mpf(2), "PI": mp.pi, "2PI": 2 * mp.pi}[name])
        value = getattr(constants, f"LOG_{name}")
        assert abs(value - truth) < math.ulp(value)


def test_the_spread_of_a_normal_from_its_median_absolute_deviation():
    with mp.workdps(40):
        assert abs(1 / (mp.sqrt(2) * mp.erfinv(0.5)) - constants.MAD_TO_SD) < 1e-5
