"""The numbers that formulas share are right to the last bit."""

from mpmath import mp

from cavity.base import constants


def test_logs():
    with mp.workdps(40):
        assert float(mp.log(2)) == constants.LOG_2
        assert float(mp.log(mp.pi)) == constants.LOG_PI
        assert float(mp.log(2 * mp.pi)) == constants.LOG_2PI
