"""Judgements of EP: golden corrections, importance sampling, tails of weights."""

import numpy as np
import pytest
from scipy import stats
from support.tolerances import AT_REST, EARLY, PRINTED, ROOT_EPS

import cavity
from cavity import covariances, likelihoods
from cavity.models.approximation_check import estimate_tail_shape
from cavity.terms import RandomWalk

SUCCESSES = [4, 2, 2] + [1] * 6 + [0] * 16  # of 25 groups of 4 rows
GROUPS = np.repeat(np.arange(25), 4)
BINARY = np.concatenate([np.repeat([1, 0], [k, 4 - k]) for k in SUCCESSES])


def fit_rare(**settings):
    model = cavity.MixedGLM("g", "logit", prior_variance=25.0, effect_covariances={"g": 4.0}, **settings)
    return model.fit(np.ones((100, 1)), BINARY, groups={"g": GROUPS})


def test_rare_successes():
    """The evidence by quadrature is -39.64390; equal rows are one site, so that little is missed."""
    check = fit_rare().check_approximation(np.ones((100, 1)), BINARY, groups={"g": GROUPS})
    assert check.log_evidence == pytest.approx(-39.6444061111, abs=ROOT_EPS)
    assert check.log_evidence + check.correction == pytest.approx(-39.64390369, abs=PRINTED)
    assert abs(check.sampled_log_evidence + 39.64390369) < 3.0 * check.sampling_error < 0.1
    assert check.correction_error == 0.0
    assert check.tail_shape < 0.7
    assert "EP's evidence is good; importance sampling agrees" in repr(check)
    second = fit_rare(integrate="mode")
    assert second.evidence_correction == pytest.approx(check.correction, abs=EARLY)


def test_linear_models_are_exact():
    """Every draw has one weight, with constraints of a random walk as well."""
    rng = np.random.default_rng(2)
    t = np.arange(30)
    model = cavity.MixedGLM(
        [RandomWalk("t"), "g"],
        likelihoods.Gaussian(0.5),
        prior_variance=4.0,
        effect_covariances={"g": 0.3, "rw1(t)": 0.5},
    )
    columns = {"t": t, "g": t % 4}
    y = rng.normal(size=30)
    posterior = model.fit(np.ones((30, 1)), y, groups=columns)
    check = posterior.check_approximation(np.ones((30, 1)), y, groups=columns)
    assert check.sampled_log_evidence == pytest.approx(posterior.log_evidence, abs=AT_REST)
    assert check.sampling_error == pytest.approx(0.0, abs=EARLY)
    assert check.correction == pytest.approx(0.0, abs=AT_REST)


def test_many_rows_are_sketched():
    """Correction and sampling agree where each row has an effect beside that of its group."""
    frame = cavity.data.table("grouseticks", as_frame=True)[0]
    formula = "TICKS ~ YEAR + center(HEIGHT) + (1 | BROOD) + (1 | INDEX) + (1 | LOCATION)"
    posterior = cavity.MixedGLM(formula, "poisson").fit(frame)
    check = posterior.check_approximation(frame, draws=1000)
    assert 0.1 < check.correction < 0.2
    assert abs(check.log_evidence + check.correction - check.sampled_log_evidence) < 4.0 * check.sampling_error


@pytest.mark.parametrize("k", [0.2, 0.5, 0.9])
def test_shapes_of_generalised_pareto_tails(k):
    rng = np.random.default_rng(4)
    results = [estimate_tail_shape(np.log(stats.genpareto(k).rvs(4000, random_state=rng))) for _ in range(20)]
    assert np.mean(results) == pytest.approx(k, abs=0.1)


def test_bad_input():
    posterior = fit_rare()
    with pytest.raises(ValueError, match="X must hold the 100 rows of the fit, got 4"):
        posterior.check_approximation(np.ones((4, 1)), BINARY[:4], groups={"g": GROUPS[:4]})
    with pytest.raises(ValueError, match="draws must be at least 100"):
        posterior.check_approximation(np.ones((100, 1)), BINARY, groups={"g": GROUPS}, draws=3)
    with pytest.raises(ValueError, match="y must hold the observations of the fit in their order"):
        posterior.check_approximation(np.ones((100, 1)), BINARY[::-1], groups={"g": GROUPS})
    updated = posterior.update(np.ones((1, 1)), [1], groups={"g": [0]})
    with pytest.raises(ValueError, match="needs the sites of the rows of one fit"):
        updated.check_approximation(np.ones((100, 1)), BINARY, groups={"g": GROUPS})


@pytest.mark.parametrize("copies", [2, 3, 4])
def test_parts_of_rows(copies):
    """Rows in parts of a weight below 1 are not one site: the correction finds nine tenths of what EP misses."""
    model = cavity.MixedGLM("g", "logit", prior_variance=25.0, effect_covariances={"g": 4.0}, integrate="mode")
    columns, weights = {"g": np.repeat(GROUPS, copies)}, np.full(100 * copies, 1.0 / copies)
    fit = model.fit(np.ones((100 * copies, 1)), np.repeat(BINARY, copies), groups=columns, sample_weight=weights)
    missed = -39.64390369 - fit.log_evidence
    assert missed > 0.3
    assert abs(missed - fit.evidence_correction) < 0.1 * missed


def test_powers_have_no_correction():
    """The correction is of fixed points of EP; sampling is of any posterior."""
    model = cavity.MixedGLM("g", "logit", prior_variance=25.0, effect_covariances={"g": 4.0})
    posterior = model.fit(np.ones((100, 1)), BINARY, groups={"g": GROUPS}, power=0.5)
    with pytest.warns(cavity.NumericalWarning, match=r"holds for fits with power=1 .*: moments of site \d+ are 0\.\d+"):
        check = posterior.check_approximation(np.ones((100, 1)), BINARY, groups={"g": GROUPS})
    assert abs(check.sampled_log_evidence + 39.64390369) < 4.0 * check.sampling_error


def test_models_without_groups():
    """Evidence by sampling, of weights, of f of a process, and of one that is exact."""
    rng = np.random.default_rng(4)
    X = np.column_stack([np.ones(50), rng.normal(size=50), np.zeros(50)])
    X[3] = 0.0  # a row whose f is known
    y = rng.random(50) < 0.3
    weights = 1.0 + (np.arange(50) % 3)
    weights[7] = 0.0
    posterior = cavity.GLM("logit", prior_variance=4.0, intercept=False).fit(X, y, sample_weight=weights)
    check = posterior.check_approximation(X, y)
    assert check.log_evidence == posterior.log_evidence
    assert abs(check.sampled_log_evidence - check.log_evidence - check.correction) < 4.0 * check.sampling_error < 0.1
    x = np.sort(rng.uniform(0.0, 6.0, 30))[:, None]
    counts = rng.poisson(np.exp(np.sin(x[:, 0])))
    for setting in (False, "grid"):
        process = cavity.GaussianProcess(likelihood="poisson", integrate=setting).fit(x, counts)
        check = process.check_approximation(rng=1)
        difference = check.sampled_log_evidence - check.log_evidence - check.correction
        assert abs(difference) < 4.0 * check.sampling_error < 0.1
    exact = cavity.GaussianProcess(covariances.RBF(), likelihoods.Gaussian(0.1)).fit(x, np.sin(x[:, 0]), learn=False)
    check = exact.check_approximation()
    assert check.sampled_log_evidence == pytest.approx(exact.log_evidence, abs=AT_REST)
    assert check.correction == pytest.approx(0.0, abs=AT_REST)
    with pytest.raises(ValueError, match="y must hold the observations of the fit"):
        posterior.check_approximation(X, ~y)
    chain = cavity.GaussianProcess(covariances.Matern12(), likelihoods.Gaussian(0.1), method="chain")
    with pytest.raises(ValueError, match="fit with method='dense'"):
        chain.fit(x, np.sin(x[:, 0]), learn=False).check_approximation()
