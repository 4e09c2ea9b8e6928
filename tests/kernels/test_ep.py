"""Visits of rows one after the other: by explicit rank-1 updates, and the same bits in every variant."""

import numpy as np
import pytest
from support.tolerances import AT_REST, LOSSES, SOLVES

from cavity import _core, likelihoods
from cavity.ep.sites import Sites

VARIANTS = _core.variants("ep")


def by_the_book(x, base, y, noise, mean, covariance):
    """Posterior of a after rows of Gaussian noise, one by one, and the sum of their log predictive densities."""
    total = 0.0
    for row, offset, value in zip(x, base, y, strict=True):
        spread = covariance @ row
        gain, apart = 1.0 / (noise + row @ spread), value - offset - row @ mean
        mean, covariance = mean + gain * apart * spread, covariance - gain * np.outer(spread, spread)
        total += 0.5 * (np.log(gain / (2.0 * np.pi)) - gain * apart**2)
    return mean, covariance, total


def swept(variant, sites, x, base, mean, covariance):
    """State and sites after a sweep of a kernel, with its results."""
    state = mean.copy(), covariance.copy(), np.zeros(len(x)), np.zeros(len(x))
    result = _core.load("ep", variant).sweep_rows(*sites.arguments(slice(None)), x, base, *state, 1.0, 1.0)
    return *state, *result


@pytest.mark.parametrize(("n", "d"), [(1, 1), (20, 3), (130, 7), (40, 8), (40, 9), (300, 21)])
def test_rows_in_turn(n, d):
    rng = np.random.default_rng(d)
    x, base, y, root = rng.normal(size=(n, d)), rng.normal(size=n), rng.normal(size=n), rng.normal(size=(d, d))
    mean, covariance = rng.normal(size=d), root @ root.T + np.eye(d)
    sites = Sites(likelihoods.Gaussian(0.5), y)
    results = [swept(variant, sites, x, base, mean, covariance) for variant in VARIANTS]
    expected = by_the_book(x, base, y, 0.5, mean, covariance)
    np.testing.assert_allclose(results[0][0], expected[0], rtol=AT_REST, atol=LOSSES)
    np.testing.assert_allclose(results[0][1], expected[1], rtol=AT_REST, atol=LOSSES)
    assert results[0][4] == 0
    assert results[0][5] == pytest.approx(expected[2], rel=SOLVES)
    for other in results[1:]:
        for mine, theirs in zip(results[0], other, strict=True):
            np.testing.assert_array_equal(mine, theirs)


def test_variants_have_the_same_bits_for_sites_of_any_kind():
    rng = np.random.default_rng(0)
    x, y = rng.normal(size=(150, 5)), np.where(rng.random(150) < 0.5, -1.0, 1.0)
    for likelihood in (likelihoods.Probit(), likelihoods.Logit()):
        sites = Sites(likelihood, y, rng.uniform(0.5, 2.0, 150))
        results = [swept(variant, sites, x, np.array([0.2]), np.zeros(5), np.eye(5)) for variant in VARIANTS]
        for other in results[1:]:
            for mine, theirs in zip(results[0], other, strict=True):
                np.testing.assert_array_equal(mine, theirs)
