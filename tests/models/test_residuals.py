"""Residuals by the definitions, quantile residuals of right models, and what `check` says of right and wrong ones."""

import re

import numpy as np
import pytest
from scipy import special, stats
from support.tolerances import EXPANSION, INTEGRAL, ROOT_EPS, SLOPES

import cavity
from cavity.models.model_check import check_counts, compare_rows
from cavity.models.predicted_rows import PredictedRows

pytest.importorskip("formulae")
pd = pytest.importorskip("pandas")

RNG = np.random.default_rng(0)
N = 400
LEVELS = list("abcdefgh")
FRAME = pd.DataFrame({"x": RNG.normal(size=N), "z": RNG.uniform(size=N), "g": RNG.choice(LEVELS, N)})
F = 1.0 + 0.5 * FRAME["x"].to_numpy()
GROUP = FRAME["g"].map(dict(zip(LEVELS, RNG.normal(size=8), strict=True))).to_numpy()
NODES, WEIGHTS = np.polynomial.hermite_e.hermegauss(200)


def draw(kind, f=F, rng=RNG):
    """Observations of a likelihood with the parameters of the fits."""
    noise = rng.normal(size=len(f))
    return {
        "gaussian": f + noise,
        "poisson": rng.poisson(np.exp(f)),
        "negative-binomial": rng.poisson(np.exp(f) * rng.gamma(2.0, 0.5, len(f))),
        "logit": (rng.random(len(f)) < special.expit(f)).astype(int),
        "ordered-probit": np.digitize(f + noise, [0.0, 1.0, 2.0]),
    }[kind]


@pytest.mark.long_cases("negative-binomial")
@pytest.mark.parametrize("kind", ["gaussian", "poisson", "negative-binomial", "logit", "ordered-probit"])
def test_a_right_model_has_normal_quantile_residuals_and_no_findings(kind):
    frame = FRAME.assign(y=draw(kind))
    posterior = cavity.GLM("y ~ x", kind).fit(frame)
    check = posterior.check(frame)
    assert check.findings == ()
    assert "nothing unexpected" in repr(check)
    assert "each row predicted from all others" in repr(check)
    residuals = posterior.residuals(frame)
    np.testing.assert_array_equal(residuals, check.residuals)
    assert stats.kstest(residuals, "norm").pvalue > 1e-3
    assert np.all(np.abs(posterior.residuals(frame, kind="pearson")) < 9.0)


WRONG_MODELS = [
    (
        "poisson",
        lambda: draw("poisson", F + np.log(np.random.default_rng(1).gamma(1.0, 1.0, N))),
        "counts vary .* times ",
    ),
    ("poisson", lambda: draw("poisson", F + 2.0) * (np.random.default_rng(1).random(N) < 0.6), "counts are 0 where"),
    ("gaussian", lambda: F + np.random.default_rng(1).standard_t(2, N), "heavy tails .*: try 'student-t'"),
    ("gaussian", lambda: draw("gaussian") + 0.5 * FRAME["x"] ** 2, r"bend along x: try I\(x\*\*2\)"),
    ("gaussian", lambda: draw("gaussian") + GROUP, r"differ between the levels of g: .* \(1 \| g\)"),
    ("gaussian", lambda: draw("gaussian") + 2.0 * FRAME["z"], "have a trend in z: add it"),
    ("gaussian", lambda: F + np.exp(0.5 * F) * np.random.default_rng(1).normal(size=N), "vary more where fitted"),
    ("logit", lambda: draw("logit", FRAME["x"].to_numpy() ** 2 - 1.0), "bend along x"),
]


@pytest.mark.parametrize(("kind", "make", "sentence"), WRONG_MODELS)
def test_what_is_wrong_with_a_model_is_its_first_finding(kind, make, sentence):
    frame = FRAME.assign(y=np.asarray(make(), dtype=float))
    posterior = cavity.GLM("y ~ x", kind).fit(frame)
    check = posterior.check(frame)
    assert any(re.search(sentence, finding) for finding in check.findings[:2]), check
    if kind == "poisson":
        assert stats.kstest(check.residuals, "norm").pvalue < 1e-4


def test_mixed_models_without_a_group_have_it_named():
    frame = FRAME.assign(y=draw("poisson", F + GROUP), h=np.arange(N) % 20)
    posterior = cavity.GLM("y ~ x + (1 | h)", "poisson").fit(frame)
    check = posterior.check(frame)
    assert any("levels of g" in finding for finding in check.findings)
    right = cavity.GLM("y ~ x + (1 | g)", "poisson").fit(frame)
    assert right.check(frame).findings == ()


@pytest.mark.long_cases("response")
@pytest.mark.parametrize("kind", ["response", "pearson", "quantile"])
def test_residuals_of_a_gaussian_are_those_of_refits(kind):
    """Leave-one-out residuals of a few rows by fits without them."""
    frame = FRAME[:12].assign(y=draw("gaussian")[:12])
    model = cavity.GLM("y ~ 0 + x + z", cavity.likelihoods.Gaussian(0.7), prior_variance=2.0)
    residuals = model.fit(frame).residuals(frame, kind=kind)
    for row in range(12):
        one = frame.iloc[[row]]
        mean, variance = model.fit(frame.drop(index=row)).predict(one, noise=True)
        expected = (one["y"].to_numpy() - mean) / (1.0 if kind == "response" else np.sqrt(variance))
        assert residuals[row] == pytest.approx(expected[0], rel=ROOT_EPS)


def integrate(function, mean, variance):
    """E function(f) of f ~ N(mean, variance) by a rule of 200 nodes, (n,)."""
    f = mean[:, None] + np.sqrt(variance)[:, None] * NODES
    return function(f) @ WEIGHTS / WEIGHTS.sum()


MEAN, VARIANCE = np.array([-0.5, 0.3, 1.2, 0.8]), np.array([0.2, 0.5, 0.1, 0.4])
COUNTS, TRIALS = np.array([0.0, 2.0, 5.0, 1.0]), np.array([1.0, 4.0, 7.0, 3.0])
BOUNDS = np.array([[-np.inf, 0.2], [0.1, 0.9], [0.5, np.inf], [-1.0, 1.5]])


def cut(f, k):
    """P(class <= k | f) of ordered probit with thresholds 0 and 1."""
    return np.where(k < 0, 0.0, np.where(k > 1, 1.0, special.ndtr(np.clip(k, 0, 1) - f)))


@pytest.mark.parametrize(
    ("likelihood", "y", "cdf"),
    [
        (cavity.likelihoods.Poisson(), COUNTS, lambda k, f: stats.poisson.cdf(k, np.exp(f))),
        (
            cavity.likelihoods.Binomial(),
            np.column_stack([COUNTS.clip(0, TRIALS), TRIALS]),
            lambda k, f: stats.binom.cdf(k, TRIALS[:, None], special.expit(f)),
        ),
        (
            cavity.likelihoods.Logit(),
            np.array([-1.0, 1.0, 1.0, -1.0]),
            lambda k, f: np.where(k < 0, 0.0, np.where(k < 1, special.expit(-f), 1.0)),
        ),
        (cavity.likelihoods.OrderedProbit([0.0, 1.0]), np.array([0.0, 1.0, 2.0, 1.0]), lambda k, f: cut(f, k)),
    ],
)
def test_probabilities_below_are_integrals_of_distribution_functions(likelihood, y, cdf):
    rows = PredictedRows(likelihood, y, MEAN, VARIANCE, False)
    below, upto = rows.probabilities_below()
    number = y[:, 0] if y.ndim == 2 else (y > 0).astype(float) if likelihood.n_classes == 2 else y
    np.testing.assert_allclose(
        below, integrate(lambda f: cdf(number[:, None] - 1, f), MEAN, VARIANCE), rtol=INTEGRAL, atol=INTEGRAL
    )
    np.testing.assert_allclose(
        upto, integrate(lambda f: cdf(number[:, None], f), MEAN, VARIANCE), rtol=INTEGRAL, atol=INTEGRAL
    )
    value, mean, variance = rows.moments()
    np.testing.assert_array_equal(value, number)
    top = 60
    tails = np.array([1.0 - integrate(lambda f, k=k: cdf(np.full((4, 1), k), f), MEAN, VARIANCE) for k in range(top)])
    np.testing.assert_allclose(mean, tails.sum(axis=0), rtol=SLOPES)
    second = ((2 * np.arange(top) + 1)[:, None] * tails).sum(axis=0)
    np.testing.assert_allclose(variance, second - tails.sum(axis=0) ** 2, rtol=EXPANSION)


def test_bounds_of_observations():
    rows = PredictedRows(cavity.likelihoods.Interval(0.3), BOUNDS, MEAN, VARIANCE, False)
    below, upto = rows.probabilities_below()
    expected = special.ndtr((BOUNDS - MEAN[:, None]) / np.sqrt(VARIANCE + 0.3)[:, None])
    np.testing.assert_allclose(np.column_stack([below, upto]), expected, rtol=INTEGRAL)
    with pytest.raises(ValueError, match="kind must be 'quantile' for bounds"):
        rows.moments()


def test_rows_with_weights_and_other_rows_are_predicted_by_the_posterior():
    frame = FRAME.assign(y=draw("poisson"))
    weighted = cavity.GLM("y ~ x", "poisson").fit(frame, sample_weight=np.full(N, 2.0))
    assert "rows predicted by the posterior" in repr(weighted.check(frame))
    posterior = cavity.GLM("y ~ x", "poisson").fit(frame)
    assert "rows predicted by the posterior" in repr(posterior.check(frame[:50]))
    expected = frame["y"][:50] - posterior.expected(frame[:50])
    np.testing.assert_allclose(posterior.residuals(frame[:50], kind="response"), expected, rtol=INTEGRAL)
    with pytest.raises(ValueError, match="kind must be one of 'quantile', 'response', 'pearson', got 'deviance'"):
        posterior.residuals(frame, kind="deviance")


def test_fitted_values():
    frame = FRAME.assign(y=draw("poisson"), yes=draw("logit"), grade=draw("ordered-probit"))
    posterior = cavity.GLM("y ~ x", "poisson").fit(frame)
    np.testing.assert_array_equal(posterior.fitted(frame), posterior.expected(frame))
    posterior = cavity.GLM("yes ~ x", "logit").fit(frame)
    np.testing.assert_array_equal(posterior.fitted(frame), posterior.predict_proba(frame)[:, 1])
    assert cavity.GLM("grade ~ x", "ordered-probit").fit(frame).fitted(frame).shape == (N, 4)


def test_regressions_and_processes_have_residuals_too():
    X, y = FRAME[["x", "z"]], draw("gaussian")
    for model in (cavity.LinearRegression(intercept=True), cavity.GaussianProcess()):
        posterior = model.fit(X[:80], y[:80])
        residuals = posterior.residuals(X[:80], y[:80])
        assert stats.kstest(residuals, "norm").pvalue > 1e-3
        assert posterior.check(X[:80], y[:80]).findings == ()


def test_r2_is_that_of_its_draws():
    frame = FRAME.assign(y=draw("gaussian"), n=draw("poisson"), yes=draw("logit"))
    X = np.column_stack([np.ones(N), FRAME["x"]])
    for formula, kind, moments in (
        ("y ~ x", cavity.likelihoods.Gaussian(0.8), lambda f: (f, 0.8 + 0.0 * f)),
        ("n ~ x", "poisson", lambda f: (np.exp(f), np.exp(f))),
        ("yes ~ x", "logit", lambda f: (special.expit(f), special.expit(f) * special.expit(-f))),
    ):
        posterior = cavity.GLM(formula, kind).fit(frame)
        mean, variance = moments(X @ posterior.sample(1000, 0).T)
        shares = mean.var(axis=0) / (mean.var(axis=0) + variance.mean(axis=0))
        table = posterior.r2(frame)
        assert table.columns["mean"][0] == pytest.approx(shares.mean(), rel=ROOT_EPS)
        assert table.columns["2.5%"][0] == pytest.approx(np.quantile(shares, 0.025), rel=ROOT_EPS)
    posterior = cavity.GLM("poisson").fit(X, frame["n"], offset=FRAME["z"])
    mean = np.exp(X @ posterior.sample(1000, 0).T + FRAME[["z"]].to_numpy())
    shares = mean.var(axis=0) / (mean.var(axis=0) + mean.mean(axis=0))
    assert posterior.r2(X, offset=FRAME["z"]).columns["mean"][0] == pytest.approx(shares.mean(), rel=ROOT_EPS)
    with pytest.raises(ValueError, match="row_options must be of 'offset', 'exposure', got 'groups'"):
        posterior.r2(X, groups=FRAME["g"])
    model = cavity.MixedGLM("g", cavity.likelihoods.Gaussian(0.1), effect_covariances={"g": 0.3})
    share = model.fit(X[:, :1], GROUP, groups=FRAME["g"]).r2(X[:, :1], groups=np.full(N, "new"), levels="new")
    assert share.columns["mean"][0] == pytest.approx(0.75, abs=share.columns["sd"][0])
    with pytest.raises(ValueError, match="must be of numbers or two classes, got 4 classes"):
        cavity.GLM("grade ~ x").fit(frame.assign(grade=pd.Categorical(draw("ordered-probit"), ordered=True))).r2(frame)


def test_intraclass_correlations():
    table, _ = cavity.data.table("sleepstudy", as_frame=True)
    posterior = cavity.GLM("Reaction ~ Days + (1 | Subject)").fit(table)
    assert posterior.term_summary().names == ()
    variance = posterior.model.effect_covariances["Subject"][0, 0]
    expected = variance / (variance + posterior.model.likelihood.noise_variance)
    assert posterior.icc().columns["share"] == pytest.approx([expected])
    assert expected == pytest.approx(0.589, abs=0.01)  # 1378.2 / (1378.2 + 960.5) of lme4
    logit = cavity.GLM("yes ~ x + (1 | g)", "logit").fit(FRAME.assign(yes=draw("logit", F + GROUP)))
    variance = logit.model.effect_covariances["g"][0, 0]
    assert logit.icc().columns["share"] == pytest.approx([variance / (variance + np.pi**2 / 3)])
    with pytest.raises(ValueError, match=r"icc needs effects \(1 \| g\)"):
        cavity.GLM("Reaction ~ Days + (Days | Subject)").fit(table).icc()


def test_other_columns_of_a_table():
    """Missing values, dates, constants and flags of columns that are not in the model are no errors."""
    frame = FRAME.assign(y=draw("gaussian"), one=1.0, day=pd.date_range("2020", periods=N), flag=FRAME["x"] > 0)
    frame["gap"] = [np.nan, *FRAME["x"][1:]]
    frame["text"] = [None, *FRAME["g"][1:]]
    check = cavity.GLM("y ~ x", "gaussian").fit(frame).check(frame)
    assert check.findings == ()
    assert list(check.covariates)
    assert not {"one", "gap", "text"} & {*check.covariates}


def test_rows_of_a_process_with_a_wide_prior_are_those_of_its_fit():
    """Leave-one-out densities by sites lose digits there, and rows predicted by their own posterior vary too little."""
    month = np.arange(120) / 12.0 + 1949.0
    y = 5.0 + 0.1 * (month - 1955.0) + 0.1 * np.sin(2.0 * np.pi * month)
    y += 0.01 * np.random.default_rng(4).normal(size=120)
    frame = {"time": month, "y": y}
    noise = cavity.likelihoods.Gaussian(1e-4)
    model = cavity.GaussianProcess(cavity.covariances.RBF(0.1, 0.3), noise, mean="time")
    check = model.fit(frame, "y", learn=False).check(frame)
    assert check.table.notes == ("each row predicted from all others",)
    assert not any("residuals vary" in finding for finding in check.findings)


def test_small_variation_of_rows_that_their_own_posterior_predicts_is_no_finding():
    rng = np.random.default_rng(3)
    x = np.linspace(0.0, 1.0, 60)
    y = np.sin(20.0 * x) + 0.1 * rng.normal(size=60)
    posterior = cavity.GaussianProcess(cavity.covariances.RBF(1.0, 0.02), cavity.likelihoods.Gaussian(0.01))
    posterior = posterior.fit(x[:, None], y, learn=False)
    own = PredictedRows(cavity.likelihoods.Gaussian(0.01), y, *posterior.predict(x[:, None]), False)
    check = compare_rows(posterior, x[:, None], own, rng)
    assert check.table.columns["deviations"][check.table.names.index("variance")] < -3.5
    assert check.findings == ()


def test_labels_of_groups_that_are_numbers_have_no_trend():
    frame = FRAME.assign(
        y=draw("poisson", F + GROUP), worker=FRAME["g"].map(dict(zip(LEVELS, range(8), strict=True)))
    ).drop(columns="g")
    check = cavity.GLM("y ~ x + (1 | worker)", "poisson").fit(frame).check(frame)
    assert "trend in worker" not in check.table.names
    assert "levels of worker" in check.table.names


@pytest.mark.parametrize("likelihood", ["poisson", "negative-binomial"])
@pytest.mark.filterwarnings(
    "ignore:the log evidence:cavity.NumericalWarning", "ignore:leave-one-out:cavity.NumericalWarning"
)
def test_check_says_what_cannot_be_predicted(likelihood):
    """One count, left out, is predicted by the prior, whose means leave the range of float64 or of the integers."""
    frame = pd.DataFrame({"y": [3.0]})
    check = cavity.GLM("y ~ 1", likelihood).fit(frame).check(frame)
    assert "without dispersion, as " in repr(check)
    assert "predicted means are those of f: the moments of a new observation of row 0 leave" in repr(check)
    assert "dispersion" not in check.table.names
    assert "zeros" in check.table.names
    assert np.isfinite(check.residuals).all()


def test_check_says_that_counts_cannot_be_drawn():
    likelihood = cavity.likelihoods.Poisson()
    rows = PredictedRows(likelihood, np.zeros(4), np.full(4, 40.0), np.full(4, 25.0), False)
    notes = []
    names = [statistic.name for statistic in check_counts(rows, np.random.default_rng(0), notes)]
    assert names == ["zeros"]
    assert re.search("without dispersion, as a count of mean .* cannot be drawn", notes[0])


def test_check_without_chance_in_simulated_counts_has_no_dispersion():
    for mean in (-200.0, 5.0):
        variance = 150.0 if mean > 0 else 1.0
        rows = PredictedRows(cavity.likelihoods.Poisson(), np.zeros(4), np.full(4, mean), np.full(4, variance), False)
        notes = []
        names = [statistic.name for statistic in check_counts(rows, np.random.default_rng(0), notes)]
        assert (names, notes) == (
            ["zeros"],
            ["without dispersion, as simulated counts are all equally far from their means"],
        )
