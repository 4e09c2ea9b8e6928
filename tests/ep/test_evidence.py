"""Values of sites and their residual, by Gaussian algebra."""

import numpy as np
import pytest

from cavity.ep.evidence import distance, site_values, within_float64


def test_site_values_are_those_of_the_scaled_site():
    """Of a Gaussian factor N(y; f, s), which is its own site: its log at the posterior mean."""
    y, s, m, v = 0.7, 0.5, -0.2, 2.0
    variance = 1.0 / (1.0 / v + 1.0 / s)
    mean = variance * (m / v + y / s)
    log_z = -0.5 * ((y - m) ** 2 / (v + s) + np.log(2 * np.pi * (v + s)))
    value = site_values(log_z, mean, variance, m, v)
    assert value == pytest.approx(-0.5 * ((y - mean) ** 2 / s + np.log(2 * np.pi * s)), rel=1e-12)


def test_distance_is_zero_at_a_fixed_point_and_counts_means_and_variances():
    m, v, tau, rho = np.array([0.3]), np.array([2.0]), np.array([1.0]), np.array([0.7])
    variance = 1.0 / (1.0 / v + rho)
    mean = variance * (m / v + tau)
    assert distance(mean, variance, m, v, tau, rho) == pytest.approx(0.0, abs=1e-14)
    assert distance(mean + 0.1 * np.sqrt(variance), variance, m, v, tau, rho) == pytest.approx(0.1, rel=1e-12)
    assert distance(mean, 2.0 * variance, m, v, tau, rho) == pytest.approx(0.5, rel=1e-12)


def test_sites_beyond_float64_are_infinitely_far():
    one, far = np.ones(2), np.array([1.0, np.inf])
    assert within_float64(one, far).tolist() == [True, False]
    assert distance(one, one, one, one, one, far) == np.inf
