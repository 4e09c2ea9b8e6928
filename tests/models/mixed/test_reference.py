"""The dense twin of mixed models, against what is known: golden numbers, closed forms, GLMs with the same prior."""

import numpy as np
import pytest
from reference import mixed as reference
from support import mixed
from support.tolerances import AT_REST, EARLY, OPTIMUM, PRINTED, ROOT_EPS, SOLVES

import cavity
from cavity import likelihoods

RNG = np.random.default_rng(1)
N = 30
X = np.column_stack([np.ones(N), RNG.normal(size=N)])
GROUPS = {"g": RNG.integers(0, 4, N), "h": [f"h{i % 3}" for i in range(N)]}
PAIRS = list(zip(*GROUPS.values(), strict=True))
TERMS = [reference.make_term(GROUPS["g"], X), reference.make_term(GROUPS["h"]), reference.make_term(PAIRS)]
COVARIANCES = [np.array([[0.8, 0.3], [0.3, 0.5]]), 0.6, 0.2]
COUNTS = RNG.integers(0, 4, N)


def prior(fixed=(4.0, 1.0)):
    return reference.prior_covariance(np.array(fixed), TERMS, COVARIANCES)


def test_rows_and_prior_are_those_of_the_sum_of_effects():
    """f of a row is the sum over columns and terms; effects of different levels and terms are independent."""
    A, C = reference.rows(X, TERMS), prior()
    assert A.shape == (N, 2 + sum(np.prod(term.shape) for term in TERMS)) == (N, len(C))
    effects = RNG.normal(size=len(C))
    fixed, slopes = effects[:2], effects[2:10].reshape(4, 2)
    f = X @ fixed + np.sum(X * slopes[GROUPS["g"]], axis=1)
    h = effects[10:13][[int(group[1]) for group in GROUPS["h"]]]
    pairs = sorted(set(zip(GROUPS["g"].tolist(), GROUPS["h"], strict=True)))
    both = effects[13:][[pairs.index(item) for item in zip(GROUPS["g"].tolist(), GROUPS["h"], strict=True)]]
    np.testing.assert_allclose(A @ effects, f + h + both, rtol=SOLVES)
    np.testing.assert_array_equal(C[:2, :2], np.diag([4.0, 1.0]))
    np.testing.assert_array_equal(C[4:6, 4:6], COVARIANCES[0])
    assert np.count_nonzero(C) == 2 + 4 * 4 + 3 + len(pairs)


@pytest.mark.parametrize(
    ("likelihood", "log_p", "y"),
    [
        (likelihoods.Probit(), mixed.probit, RNG.integers(0, 2, N)),
        (likelihoods.Logit(), mixed.logit, RNG.integers(0, 2, N)),
        (likelihoods.Poisson(), mixed.poisson, COUNTS),
        (likelihoods.Binomial(), mixed.binomial, np.column_stack([COUNTS, COUNTS + RNG.integers(1, 9, N)])),
    ],
    ids=lambda each: type(each).__name__,
)
def test_ep_is_that_of_a_glm_with_the_same_prior(likelihood, log_p, y):
    A, C = reference.rows(X, TERMS), prior()
    offset = RNG.normal(size=N) / 3
    mean, covariance, evidence, (_, rho), _ = reference.ep(log_p(y), A, C, offset=offset)
    posterior = cavity.GLM(likelihood, prior_variance=C, intercept=False).fit(A, y, offset=offset, tol=1e-11)
    assert evidence == pytest.approx(posterior.log_evidence, abs=ROOT_EPS)
    np.testing.assert_allclose(mean, posterior.mean, atol=EARLY)
    np.testing.assert_allclose(covariance, posterior.covariance, atol=EARLY)
    assert np.all(rho > 0)


def test_ep_is_exact_for_gaussian_observations():
    A, C, y = reference.rows(X, TERMS), prior(), X @ [1.0, -1.0] + RNG.normal(size=N)
    mean, _, evidence, _, _ = reference.ep(mixed.gaussian(y, 0.7), A, C, damping=1.0)
    assert evidence == pytest.approx(reference.log_evidence(y, A, C, 0.7), abs=AT_REST)
    gain = C @ A.T @ np.linalg.inv(A @ C @ A.T + 0.7 * np.eye(N))
    np.testing.assert_allclose(mean, gain @ y, atol=AT_REST)


def cbpp_ep(case, variance):
    A = reference.rows(case.X, case.terms)
    C = reference.prior_covariance(case.known["fixed_variance"], case.terms, [variance])
    return A, C, reference.ep(mixed.binomial(case.y), A, C)


@pytest.mark.long
def test_golden_numbers_of_cbpp():
    case = mixed.cbpp()
    fixed = case.known
    A, C, (mean, S, evidence, _, _) = cbpp_ep(case, fixed["variance"])
    assert evidence == pytest.approx(fixed["log_evidence"], abs=AT_REST)
    np.testing.assert_allclose(mean[:4], fixed["fixed"], atol=ROOT_EPS)
    np.testing.assert_allclose(np.sqrt(np.diag(S))[:4], fixed["fixed_sd"], atol=ROOT_EPS)
    assert cbpp_ep(case, fixed["best_variance"])[2][2] == pytest.approx(fixed["best_log_evidence"], abs=AT_REST)
    slope = reference.gradient(lambda x: cbpp_ep(case, np.exp(x[0]))[2][2], [np.log(fixed["best_variance"])], 1e-2)
    np.testing.assert_allclose(slope, 0, atol=ROOT_EPS)
    truth, error, size, *_ = reference.importance_sampling(
        mixed.binomial(case.y), A, C, mean, S, 4000, np.random.default_rng(0)
    )
    assert size > 2000
    assert truth == pytest.approx(fixed["truth"][0], abs=4 * np.hypot(error, fixed["truth"][1]))


@pytest.mark.long
@pytest.mark.parametrize("kind", ["reml", "ml"])
def test_golden_numbers_of_sleepstudy(kind):
    """Value and slope of the likelihood where the closed form has its optimum."""
    case, reml = mixed.sleepstudy(), kind == "reml"
    truth, prefix = case.known, "" if reml else "ml_"
    C, noise_variance, fixed = reference.balanced(case.X[:10], case.y.reshape(18, 10), reml)
    sd, correlation = np.array(truth[f"{prefix}sd"]), truth[f"{prefix}correlation"]
    np.testing.assert_allclose(C, mixed.covariance_of(sd, correlation), rtol=EARLY)
    np.testing.assert_allclose(fixed, truth["fixed"], rtol=AT_REST)
    assert np.sqrt(noise_variance) == pytest.approx(truth["residual_sd"], rel=SOLVES)

    def value(x):
        root = np.array([[np.exp(x[0]), 0.0], [x[2], np.exp(x[1])]])
        return reference.log_likelihood(case.X, case.y, case.terms, [root @ root.T], np.exp(2 * x[3]), reml)[0]

    L = np.linalg.cholesky(C)
    best = [np.log(L[0, 0]), np.log(L[1, 1]), L[1, 0], 0.5 * np.log(noise_variance)]
    top = value(best)
    assert top == pytest.approx(truth[kind], abs=AT_REST)
    for step in 1e-3 * np.eye(4):  # as steep to both sides, but for the third derivative
        down = top - value(best - step), top - value(best + step)
        assert min(down) > 0
        assert down[0] == pytest.approx(down[1], rel=0.01)


def test_the_evidence_is_reml_where_the_prior_of_fixed_effects_is_wide():
    """And the posterior of the fixed effects has the moments that lme4 prints."""
    case, s2 = mixed.sleepstudy(), 1e9
    truth = case.known
    A = reference.rows(case.X, case.terms)
    covariance = mixed.covariance_of(truth["sd"], truth["correlation"])
    C = reference.prior_covariance(np.full(2, s2), case.terms, [covariance])
    evidence = reference.log_evidence(case.y, A, C, truth["residual_sd"] ** 2)
    assert evidence + np.log(2 * np.pi * s2) == pytest.approx(truth["reml"], abs=PRINTED)
    S = np.linalg.inv(np.linalg.inv(C) + A.T @ A / truth["residual_sd"] ** 2)
    np.testing.assert_allclose(np.sqrt(np.diag(S))[:2], truth["fixed_sd"], rtol=OPTIMUM)
    np.testing.assert_allclose((S @ A.T @ case.y)[:2] / truth["residual_sd"] ** 2, truth["fixed"], rtol=OPTIMUM)
