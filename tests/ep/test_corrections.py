"""Corrections by tilted cumulants: golden values, exact integrals, sketches."""

import numpy as np
import pytest
from scipy import integrate, special
from support.tolerances import AT_REST, EARLY, EXPANSION, OPTIMUM, ROOT_EPS

import cavity
from cavity import likelihoods
from cavity.ep.corrections import (
    TiltedCumulants,
    correct_evidence,
    correct_marginals,
    find_tilted_cumulants,
    sketch_evidence_correction,
)
from cavity.ep.sites import Sites

SUCCESSES = [4, 2, 2] + [1] * 6 + [0] * 16  # of 25 groups of 4 rows
GROUPS = np.repeat(np.arange(25), 4)


def fit_rare_rows():
    """Bernoulli rows with sites of their own, an intercept N(0, 25) and effects of groups N(0, 4)."""
    y = np.concatenate([np.repeat([1.0, -1.0], [k, 4 - k]) for k in SUCCESSES])
    X = np.column_stack([np.ones(100), GROUPS[:, None] == np.arange(25)]).astype(float)
    posterior = cavity.GLM("logit", prior_variance=np.r_[25.0, np.full(25, 4.0)]).fit(X, y, tol=1e-11)
    covariance = X @ posterior.covariance @ X.T
    variance = np.diag(covariance).copy()
    sites = Sites(likelihoods.Logit(), y)
    cumulants = find_tilted_cumulants(sites, X @ posterior.mean, variance, posterior._tau, posterior._rho)
    sd = np.sqrt(variance)
    latent = posterior.covariance @ X.T / np.sqrt(posterior.variance)[:, None] / sd
    return posterior, cumulants, covariance / sd / sd[:, None], latent


def test_golden_values_of_rare_rows():
    posterior, cumulants, correlations, _ = fit_rare_rows()
    assert posterior.log_evidence == pytest.approx(-39.9152822648, abs=AT_REST)
    third = TiltedCumulants(cumulants.third, np.zeros(100))
    assert correct_evidence(third, correlations).value == pytest.approx(0.2554906067, abs=AT_REST)
    assert correct_evidence(cumulants, correlations).value == pytest.approx(0.2678967213, abs=AT_REST)


def test_marginals_of_rare_rows():
    """The sd of the intercept, by importance sampling .002 of itself from the corrected one, and 2.8 % above EP's."""
    posterior, cumulants, correlations, latent = fit_rare_rows()
    skewness, factors = correct_marginals(cumulants, latent, correlations)
    assert skewness[0] == pytest.approx(-0.073, abs=0.002)
    assert factors[0] == pytest.approx(1.0306, abs=EXPANSION)
    without, ones = correct_marginals(cumulants, latent)
    np.testing.assert_array_equal(without, skewness)
    np.testing.assert_array_equal(ones, 1.0)
    assert posterior.sd[0] == pytest.approx(0.55599805, abs=ROOT_EPS)


def test_a_sketch_is_within_its_error():
    _, cumulants, correlations, _ = fit_rare_rows()
    root = np.linalg.cholesky(correlations + 1e-10 * np.eye(100))
    draws = np.random.default_rng(1).normal(size=(64, 100)) @ root.T
    sketch = sketch_evidence_correction(cumulants, draws)
    assert 0.0 < sketch.standard_error < 0.06
    assert abs(sketch.value - 0.2554906067) < 3.0 * sketch.standard_error
    assert sketch_evidence_correction(cumulants, draws) == sketch


@pytest.mark.parametrize(
    ("likelihood", "y"),
    [
        (likelihoods.Poisson(), 3.0),
        (likelihoods.StudentT(3.0, 0.5), 2.0),
        (likelihoods.NegativeBinomial(2.0), 0.0),
        (likelihoods.Probit(), -1.0),
        (likelihoods.Gaussian(0.5), 0.7),
    ],
    ids=lambda value: type(value).__name__ if hasattr(value, "log_p") else str(value),
)
def test_cumulants_are_those_of_quadrature(likelihood, y):
    """Of N(f; .4, .9) p(y|f), at the site that matches its moments."""

    def moment(power, centre=0.0):
        def density(f):
            log_p = float(likelihood.log_p(np.array([y]), np.array([f]))[0])
            return (f - centre) ** power * np.exp(log_p - 0.5 * (f - 0.4) ** 2 / 0.9)

        return integrate.quad(density, -12.0, 12.0, epsabs=1e-13, epsrel=1e-11, limit=400)[0]

    total = moment(0)
    mean = moment(1) / total
    second, third, fourth = (moment(power, mean) / total for power in (2, 3, 4))
    rho = 1.0 / second - 1.0 / 0.9
    tau = mean / second - 0.4 / 0.9
    result = find_tilted_cumulants(
        Sites(likelihood, np.array([y])), np.array([mean]), np.array([second]), np.array([tau]), np.array([rho])
    )
    assert result.third[0] == pytest.approx(third / second**1.5, abs=OPTIMUM)
    assert result.fourth[0] == pytest.approx(fourth / second**2 - 3.0, abs=OPTIMUM)


def test_two_rows_of_one_value():
    """Equal rows, whose R approaches the error of EP as their likelihoods become flat."""
    y = np.array([1.0, 1.0])
    errors = []
    for prior_sd in (0.5, 0.25):
        posterior = cavity.GLM("logit", prior_variance=prior_sd**2).fit(np.ones((2, 1)), y, tol=1e-12)
        variance = np.full(2, posterior.variance[0])
        mean = np.full(2, posterior.mean[0])
        cumulants = find_tilted_cumulants(Sites(likelihoods.Logit(), y), mean, variance, posterior._tau, posterior._rho)
        correction = correct_evidence(cumulants, np.ones((2, 2))).value
        truth = np.log(
            integrate.quad(
                lambda f, sd=prior_sd: (
                    np.exp(2.0 * special.log_expit(f) - 0.5 * f * f / sd**2) / np.sqrt(2.0 * np.pi) / sd
                ),
                -10.0,
                10.0,
                epsabs=1e-15,
            )[0]
        )
        errors.append(abs(posterior.log_evidence + correction - truth) / abs(posterior.log_evidence - truth))
    assert errors[0] < 0.2
    assert errors[1] < errors[0]


@pytest.mark.parametrize("law", [likelihoods.Laplace(0.3), likelihoods.Logit(), likelihoods.Poisson()])
def test_cumulants_of_few_and_many_nodes(law):
    """Kinks take many nodes; smooth densities have the digits of quadrature by few."""
    m, v, y = np.array([0.2, -0.3, 0.5]), np.array([0.01, 0.1, 0.3]), np.ones(3)
    x = m[:, None] + np.sqrt(v)[:, None] * np.linspace(-12, 12, 200001)
    t = np.exp(law.log_p(y[:, None], x) - 0.5 * (x - m[:, None]) ** 2 / v[:, None])
    t /= t.sum(axis=1, keepdims=True)
    mean = np.sum(t * x, axis=1)
    second, third, fourth = (np.sum(t * (x - mean[:, None]) ** k, axis=1) for k in (2, 3, 4))
    cumulants = find_tilted_cumulants(Sites(law, y), mean, second, mean / second - m / v, 1.0 / second - 1.0 / v)
    tolerance = EXPANSION if isinstance(law, likelihoods.Laplace) else EARLY
    np.testing.assert_allclose(cumulants.third, third / second**1.5, atol=tolerance)
    np.testing.assert_allclose(cumulants.fourth, fourth / second**2 - 3.0, atol=tolerance)
