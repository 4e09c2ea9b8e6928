"""Values of sites and their residual, by Gaussian algebra."""

import numpy as np
import pytest
from support.own_likelihoods import OwnGaussian
from support.tolerances import AT_REST, ROOT_EPS, ROUNDING, SOLVES

from cavity import _core, likelihoods
from cavity.ep.evidence import assess, evaluate_sites, measure_residual
from cavity.ep.site_updates import is_within_float64
from cavity.ep.sites import Sites


def test_site_values_are_those_of_the_scaled_site():
    """Of a Gaussian factor N(y; f, s), which is its own site: its log at the posterior mean."""
    y, s, m, v = 0.7, 0.5, -0.2, 2.0
    variance = 1.0 / (1.0 / v + 1.0 / s)
    mean = variance * (m / v + y / s)
    log_z = -0.5 * ((y - m) ** 2 / (v + s) + np.log(2 * np.pi * (v + s)))
    value = evaluate_sites(log_z, mean, variance, m, v)
    assert value == pytest.approx(-0.5 * ((y - mean) ** 2 / s + np.log(2 * np.pi * s)), rel=SOLVES)


def test_distance_is_zero_at_a_fixed_point_and_counts_means_and_variances():
    m, v, tau, rho = np.array([0.3]), np.array([2.0]), np.array([1.0]), np.array([0.7])
    variance = 1.0 / (1.0 / v + rho)
    mean = variance * (m / v + tau)
    assert measure_residual(mean, variance, m, v, tau, rho) == pytest.approx(0.0, abs=ROUNDING)
    assert measure_residual(mean + 0.1 * np.sqrt(variance), variance, m, v, tau, rho) == pytest.approx(0.1, rel=SOLVES)
    assert measure_residual(mean, 2.0 * variance, m, v, tau, rho) == pytest.approx(0.5, rel=SOLVES)


def test_sites_beyond_float64_are_infinitely_far():
    one, far = np.ones(2), np.array([1.0, np.inf])
    assert is_within_float64(one, far).tolist() == [True, False]
    assert measure_residual(one, one, one, one, one, far) == np.inf


CASES = {"": (None, 1.0, False), "power": (None, 0.5, False), "weights": ([0.3, 1.0, 2.5], 1.0, True)}


def given(case, likelihood):
    """Sites of 150 rows, moments of their f, and site parameters, some of improper cavities."""
    rng = np.random.default_rng(4)
    weights, power, residual = CASES[case]
    weights = None if weights is None else np.tile(weights, 50)
    sites = Sites(likelihood, rng.normal(size=150), weights, power, rng.random(150) if residual else None)
    mean, variance, tau = rng.normal(size=150), rng.uniform(0.1, 2.0, 150), rng.normal(size=150)
    rho = rng.uniform(-0.5, 0.9, 150) / variance
    rho[::40] = 1.2 / (variance[::40] * np.broadcast_to(sites.fraction, 150)[::40])
    return sites, mean, variance, tau, rho


@pytest.mark.parametrize("case", CASES)
def test_sites_of_a_kernel_are_assessed_as_those_in_python(case):
    result, expected = (
        assess(sites, slice(0, 150), *rest)
        for sites, *rest in (given(case, likelihood) for likelihood in (likelihoods.Gaussian(0.5), OwnGaussian()))
    )
    for mine, theirs in zip(result, expected, strict=True):
        np.testing.assert_allclose(mine, theirs, rtol=ROOT_EPS, atol=AT_REST)
    assert np.isnan(result[2]).any() == (case != "")


@pytest.mark.parametrize("case", CASES)
def test_variants_assess_to_the_same_bits(case):
    sites, *rest = given(case, likelihoods.StudentT(4.0, 0.5))
    one = np.zeros(0) if sites.leaves_one else np.broadcast_to(sites.one, 150).copy()
    results = []
    for variant in _core.variants("ep"):
        out = np.empty(150), np.empty(150)
        results.append((_core.load("ep", variant).assess_all(*sites.arguments(slice(None)), one, *rest, *out), *out))
    assert results[0][0][0] == -1
    for other in results[1:]:
        for mine, theirs in zip(results[0], other, strict=True):
            np.testing.assert_array_equal(mine, theirs)
