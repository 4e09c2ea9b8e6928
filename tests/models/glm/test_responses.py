"""GLMs of times, shares, amounts and counts with zeros: the evidence, what is learnt, and problems without rest."""

import time
import warnings
from dataclasses import replace

import numpy as np
import pytest
from scipy.special import gammaln, ndtri
from scipy.stats import norm, qmc
from support.glms import GLM
from support.responses import SPECIAL_RESPONSES, draw, make_likelihood
from support.tolerances import EARLY, ROUNDING

from cavity import likelihoods

SECONDS = 20.0  # of computing; most take one
EVIDENCE_NATS, MOMENTS_SD = 0.02, 0.05  # errors of EP itself, in one dimension with 30 rows
OPEN_PARAMETERS = {  # open parameters and their values in the draws
    name: {key: value for key, value in parameters.items() if key not in ("effect", "quantile_level", "thresholds")}
    for name, (parameters, _) in SPECIAL_RESPONSES.items()
    if name != "AsymmetricLaplace"
}


def log_joint(likelihood, X, y, w, variance):
    """log p(y, w) of draws w (n, D)."""
    f = w @ X.T
    prior = -0.5 * np.sum(w**2 / variance + np.log(2 * np.pi * variance), axis=1)
    return prior + np.sum(likelihood.log_p(likelihood.check(y), f), axis=1)


@pytest.mark.parametrize("name", SPECIAL_RESPONSES)
def test_evidence_beside_quadrature(name):
    """One coefficient: by the trapezoidal rule."""
    rng = np.random.default_rng(3)
    x = rng.normal(size=30)
    y, likelihood = draw(name, rng, 0.8 * x), make_likelihood(name)
    posterior = GLM(likelihood).fit(x[:, None], y)
    assert posterior.converged
    w = posterior.mean + np.sqrt(posterior.variance) * np.linspace(-15, 15, 6001)
    value = log_joint(likelihood, x[:, None], y, w[:, None], 1.0)
    p = np.exp(value - value.max())
    mean = p @ w / p.sum()
    sd = np.sqrt(p @ (w - mean) ** 2 / p.sum())
    log_z = np.log(p.sum() * (w[1] - w[0])) + value.max()
    assert posterior.log_evidence == pytest.approx(log_z, abs=EVIDENCE_NATS)
    assert posterior.mean[0] == pytest.approx(mean, abs=MOMENTS_SD * sd)
    assert np.sqrt(posterior.variance[0]) == pytest.approx(sd, abs=MOMENTS_SD * sd)


@pytest.mark.parametrize("name", SPECIAL_RESPONSES)
def test_evidence_beside_importance_sampling(name):
    """Ten coefficients: draws from a Student's t around EP's posterior, at scrambled Sobol points."""
    rng, d, freedom = np.random.default_rng(4), 10, 15.0
    X = np.column_stack([np.ones(80), rng.normal(size=(80, d - 1))])
    y, likelihood = draw(name, rng, X @ rng.normal(size=d) * 0.4), make_likelihood(name)
    posterior = GLM(likelihood, prior_variance=0.25).fit(X, y)
    root = 1.1 * np.linalg.cholesky(posterior.covariance)
    estimates = []
    for seed in range(4):
        u = qmc.Sobol(d, rng=np.random.default_rng(seed)).random(2**10)
        z = ndtri(u) * np.sqrt(freedom / np.random.default_rng([seed, 1]).chisquare(freedom, len(u)))[:, None]
        log_q = gammaln(0.5 * (freedom + d)) - gammaln(0.5 * freedom) - 0.5 * d * np.log(np.pi * freedom)
        log_q -= np.sum(np.log(np.diag(root))) + 0.5 * (freedom + d) * np.log1p(np.sum(z**2, axis=1) / freedom)
        weight = log_joint(likelihood, X, y, posterior.mean + z @ root.T, 0.25) - log_q
        estimates.append(np.mean(np.exp(weight - posterior.log_evidence)))
    error = np.std(estimates, ddof=1) / 2 / np.mean(estimates)
    assert error < 0.02
    assert abs(np.log(np.mean(estimates))) < 0.03 + 4 * error


@pytest.mark.parametrize("name", [name for name in OPEN_PARAMETERS if OPEN_PARAMETERS[name]])
def test_learnt_parameters_have_the_largest_evidence(name):
    """Of a grid about what was learnt, and of the values of the draw, near which they are."""
    rng = np.random.default_rng(5)
    X = np.column_stack([np.ones(300), rng.normal(size=300)])
    y, truth = draw(name, rng, X @ [0.5, 0.4]), make_likelihood(name)
    model = GLM(replace(truth, **dict.fromkeys(OPEN_PARAMETERS[name])))
    posterior = model.fit(X, y)
    assert posterior.converged
    assert posterior.log_evidence > GLM(truth).fit(X, y).log_evidence - ROUNDING
    for key, drawn in OPEN_PARAMETERS[name].items():
        best = getattr(posterior.model.likelihood, key)
        for factor in (0.7, 0.9, 0.99, 1.01, 1.1, 1.3):
            other = replace(posterior.model.likelihood, **{key: move(key, best, factor)})
            assert GLM(other).fit(X, y).log_evidence < posterior.log_evidence + 1e-6 * (factor not in (0.7, 1.3))
        assert best == pytest.approx(drawn, rel=0.5)


def move(key, value, factor):
    """Multiply a positive parameter by the factor, the odds of a share or of a power above one."""
    if key in ("zero_probability", "power"):
        odds = (value - (key == "power")) / (1 - value + (key == "power")) * factor
        return odds / (1 + odds) + (key == "power")
    return value * factor


def restless():
    """Yield problems that undamped EP may not settle: scales far below the scatter, wrong precisions, heavy tails."""
    rng = np.random.default_rng(6)
    X = np.column_stack([np.ones(100), rng.normal(size=(100, 2))])
    f = X @ [0.5, 1.0, -1.0]
    outliers = f + np.where(rng.random(100) < 0.1, 30.0, 1.0) * rng.normal(size=100)
    yield "asymmetric Laplace of scale .1", likelihoods.AsymmetricLaplace(0.9, 0.1), X, outliers
    yield "asymmetric Laplace of scale .01", likelihoods.AsymmetricLaplace(0.1, 0.01), X, outliers
    yield "Student's t of 3 degrees", likelihoods.StudentT(3.0, 0.2), X, outliers
    yield "Student's t of 1.5 degrees", likelihoods.StudentT(1.5, 0.05), X, outliers
    yield "beta of precision 20 for .5", likelihoods.Beta(20.0), X, np.clip(rng.beta(0.25, 0.25, 100), 1e-9, 1 - 1e-9)
    zeros = rng.random(100) < 0.9
    yield "nearly all zeros", likelihoods.ZeroInflatedPoisson(0.5), X, np.where(zeros, 0, rng.poisson(50.0, 100))
    counts = np.where(zeros, 0, rng.negative_binomial(0.1, 0.001, 100))
    yield "few and large counts", likelihoods.ZeroInflatedNegativeBinomial(0.2, 0.01), X, counts
    yield "Tweedie of power 1.01", likelihoods.Tweedie(1.01, 0.05), X, np.where(zeros, 0.0, rng.gamma(0.5, 50.0, 100))


RESTLESS = list(restless())


@pytest.mark.parametrize("options", [{}, {"damping": 0.5}, {"power": 0.5, "damping": 0.7}], ids=str)
@pytest.mark.parametrize("case", RESTLESS, ids=[case[0] for case in RESTLESS])
def test_problems_without_rest_end_soon_and_say_so(case, options):
    _, likelihood, X, y = case
    start = time.process_time()
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        posterior = GLM(likelihood, prior_variance=100.0).fit(X, y, max_iter=20, **options)
    assert time.process_time() - start < SECONDS
    assert np.all(np.isfinite(posterior.mean))
    assert np.all(posterior.variance > 0)
    assert np.isfinite(posterior.log_evidence)
    assert bool(caught) != posterior.converged
    assert posterior.converged == (posterior.status == "converged")


@pytest.mark.parametrize(
    ("y", "message"), [(np.full(20, 0.3), "give precision"), ([0.3], "no maximum in the precision")]
)
def test_shares_that_do_not_bound_their_precision_say_so_soon(y, message):
    """Sites of such precisions keep their digits, so that their integrals take no longer than others."""
    model = GLM(likelihoods.Beta(), prior_variance=6.25)
    begin = time.process_time()
    with pytest.warns((UserWarning, RuntimeWarning), match=message):
        fit = model.fit(np.ones((len(y), 1)), y)
    assert time.process_time() - begin < SECONDS  # minutes before
    assert fit.expected(np.ones((1, 1))) == pytest.approx(0.3, abs=0.2)


def test_sites_of_shares_keep_their_digits_at_high_precisions():
    """log Z of a narrow p beside a wide cavity is the density of a point that y tells."""
    y, n = 0.3, np.logspace(9, 14, 6)
    log_z = [float(likelihoods.Beta(k).log_tilted(y, 0.0, 4.0)[0]) for k in n]
    odds = np.log(y / (1 - y))
    limit = norm.logpdf(odds, 0.0, 2.0) - np.log(y * (1 - y))  # the density of y where p is a point
    np.testing.assert_allclose(log_z, limit, rtol=EARLY)
