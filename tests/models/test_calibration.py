"""Calibration by simulation of every likelihood, in small; docs/scripts/calibration.py does it in full."""

import numpy as np
import pytest
from scipy.stats import chi2
from support import responses
from support.calibration import LEVELS, calibrate, cover

from cavity import likelihoods

DATASETS, ROWS, COLUMNS = 5, 200, 16
MAX_STANDARD_ERRORS = 4.0
TAIL = 1e-4  # of the sum of squares


def check(z):
    """The scatter is that of standard normal numbers, and intervals hold as many as they should."""
    assert chi2.cdf(np.sum(z**2), z.size) == pytest.approx(0.5, abs=0.5 - TAIL)
    assert abs(np.sum(z)) < MAX_STANDARD_ERRORS * np.sqrt(z.size)
    share, error = cover(z)
    assert np.all(np.abs(share - LEVELS) < MAX_STANDARD_ERRORS * error)


@pytest.mark.parametrize("grouped", [False, True], ids=["GLM", "MixedGLM"])
@pytest.mark.parametrize("name", responses.RESPONSES)
def test_intervals_hold_what_was_drawn(name, grouped):
    values, converged = calibrate(name, DATASETS, 0, grouped, rows=ROWS, columns=COLUMNS)
    assert converged == DATASETS
    check(values[0])
    assert all(np.all(np.abs(z) < 5) for z in values[1:])


def test_every_likelihood_is_calibrated():
    assert {name.partition(",")[0] for name in responses.TABLE} == set(likelihoods.__all__) - {"Likelihood"}


@pytest.mark.parametrize("factor", [0.6, 1.5])
@pytest.mark.parametrize("name", ["Gaussian", "Gamma", "Weibull"])
def test_intervals_of_wrong_width_are_seen(name, factor):
    z = calibrate(name, DATASETS, 0, rows=ROWS, columns=COLUMNS)[0][0]
    with pytest.raises(AssertionError):
        check(z * factor)


def test_a_wrong_likelihood_is_seen(monkeypatch):
    parameters, _ = responses.TABLE["LogNormal"]
    monkeypatch.setitem(
        responses.TABLE, "LogNormal", (parameters, lambda rng, f: np.exp(f + 1.2 * rng.normal(size=f.shape)))
    )
    with pytest.raises(AssertionError):
        check(calibrate("LogNormal", DATASETS, 0, rows=ROWS, columns=COLUMNS)[0][0])
