"""Tables of coefficients: names, units, covariances."""

import sys
from dataclasses import replace

import numpy as np
import pytest
from scipy import stats
from support.glms import GLM
from support.tolerances import AT_REST, OPTIMUM, SOLVES

import cavity
from cavity import likelihoods

RNG = np.random.default_rng(3)
X = RNG.normal(size=(60, 3)) * [1.0, 50.0, 0.01] + [0.0, 200.0, 1.0]
F = 1.0 + X @ [0.5, 0.02, -40.0]
Y = F + RNG.normal(size=60)
FITS = {
    "glm": lambda: GLM(likelihoods.Gaussian(1.0), prior_variance=100.0).fit(X, Y),
    "diagonal": lambda: GLM(likelihoods.Gaussian(1.0), approximation="diagonal").fit(X - X.mean(0), Y),
    "linear": lambda: cavity.LinearRegression(intercept=False).fit(X, Y),
    "logistic": lambda: cavity.LogisticRegression(intercept=False).fit(X, F + 1.0 < Y),
}


@pytest.mark.parametrize("kind", FITS)
def test_the_table_is_that_of_the_marginals(kind):
    posterior = FITS[kind]()
    frame = posterior.summary(level=0.8).to_frame()
    truth = stats.norm(posterior.mean, np.sqrt(posterior.variance))
    np.testing.assert_array_equal(frame["mean"], posterior.mean)
    np.testing.assert_array_equal(frame["sd"], posterior.sd)
    np.testing.assert_allclose(frame[["10%", "90%"]], np.transpose(truth.interval(0.8)), rtol=AT_REST, atol=SOLVES)
    np.testing.assert_allclose(frame["P(>0)"], truth.sf(0), rtol=AT_REST)
    np.testing.assert_array_equal(posterior.interval(0.8), frame[["10%", "90%"]])
    assert list(frame.index) == ["x1", "x2", "x3"] == list(posterior.coefficient_names)


@pytest.mark.parametrize("intercept", [True, False])
@pytest.mark.parametrize("approximation", ["full", "diagonal"])
def test_scaled_columns_are_told_in_their_own_units(intercept, approximation):
    """The line through the coefficients of the table is the mean of f, its variance that of f.

    Without an intercept, which would take up what centring does, columns count from where they are centred.
    """
    centre, spread = X.mean(0), X.std(0)
    scaled = np.column_stack([np.ones(60), (X - centre) / spread])[:, 0 if intercept else 1 :]
    fit = GLM(likelihoods.Gaussian(1.0), approximation=approximation).fit(scaled, Y)
    posterior = replace(fit, centre=centre, spread=spread, intercept=intercept, columns=("a", "b", "c"))
    table = posterior.summary()
    assert table.names == ("intercept", "a", "b", "c")[0 if intercept else 1 :]
    assert ("columns are measured from `centre`, as a rule their means" in table.notes) != intercept
    rows = np.column_stack([np.ones(5), X[:5]]) if intercept else X[:5] - centre
    mean, variance = posterior.predict(X[:5])
    np.testing.assert_allclose(rows @ table.columns["mean"], mean, rtol=AT_REST)
    if intercept:
        np.testing.assert_allclose(table.columns["sd"][0] ** 2, posterior.predict(np.zeros((1, 3)))[1], rtol=AT_REST)
    np.testing.assert_allclose(table.columns["sd"][-3:], posterior.sd[-3:] / spread, rtol=SOLVES)
    if approximation == "full":
        covariance = posterior.covariance_table().to_frame().to_numpy()
        np.testing.assert_allclose(np.sqrt(np.diag(covariance)), table.columns["sd"], rtol=AT_REST)
        np.testing.assert_allclose(np.einsum("ij,jk,ik->i", rows, covariance, rows), variance, rtol=OPTIMUM)


def test_covariances_by_names():
    posterior = FITS["glm"]()
    frame = posterior.covariance_table().to_frame()
    np.testing.assert_array_equal(frame, posterior.covariance)
    assert list(frame.index) == list(frame.columns) == ["x1", "x2", "x3"]
    correlation = posterior.covariance_table(correlation=True).to_frame().to_numpy()
    np.testing.assert_allclose(correlation * np.outer(posterior.sd, posterior.sd), posterior.covariance, rtol=SOLVES)


@pytest.mark.parametrize("kind", FITS)
def test_distributions_of_scipy(kind):
    posterior = FITS[kind]()
    law = posterior.to_scipy()
    if kind == "diagonal":
        np.testing.assert_allclose((law.mean(), law.std()), (posterior.mean, posterior.sd), rtol=SOLVES)
    else:
        np.testing.assert_allclose(law.mean, posterior.mean, rtol=SOLVES)
        np.testing.assert_allclose(law.cov, posterior.covariance, rtol=SOLVES)
    one = cavity.GLM(likelihoods.Gaussian(1.0), intercept=False).fit(X[:, :1], Y)
    assert one.to_scipy().cdf(0.0) == pytest.approx(stats.norm(one.mean, one.sd).cdf(0.0))


def test_draws_are_of_the_coefficients_of_the_table():
    posterior = cavity.GLM(likelihoods.Gaussian(1.0), intercept=True, standardize=True).fit(X, Y)
    weights = posterior.sample(5, rng=0)
    draws = posterior._drawn_per_column(weights)
    prepared = np.column_stack([np.ones(60), (X - posterior.centre) / posterior.spread])
    np.testing.assert_allclose(np.column_stack([np.ones(60), X]) @ draws.T, prepared @ weights.T, rtol=AT_REST)


@pytest.mark.filterwarnings("ignore")
def test_draws_for_arviz():
    arviz = pytest.importorskip("arviz")
    posterior = replace(FITS["glm"](), columns=("a", "b", "c"))
    result = posterior.to_arviz(50, rng=0).posterior["coefficients"]
    assert result.dims == ("chain", "draw", "coefficient")
    assert result["coefficient"].values.tolist() == ["a", "b", "c"]
    np.testing.assert_array_equal(result.values[0], posterior.sample(50, rng=0))
    assert len(arviz.summary(posterior.to_arviz(200, rng=1))) == 3


def test_arviz_is_an_extra(monkeypatch):
    monkeypatch.setitem(sys.modules, "arviz", None)
    with pytest.raises(ImportError, match=r"pip install 'cavity\[arviz\]'"):
        FITS["glm"]().to_arviz(rng=0)


@pytest.mark.parametrize(
    ("likelihood", "word"),
    [
        ("logit", "odds ratios"),
        ("binomial", "odds ratios"),
        ("poisson", "rate ratios"),
        (likelihoods.NegativeBinomial(0.5), "rate ratios"),
        (None, "odds ratios"),
    ],
)
def test_ratios_are_exp_of_the_marginals(likelihood, word):
    y = F > 0 if word == "odds ratios" else np.round(np.exp(0.1 * F))
    y = np.column_stack([2 * y, 2 - 2 * y]) if likelihood == "binomial" else y
    model = cavity.LogisticRegression(intercept=False)
    if likelihood is not None:
        model = cavity.GLM(likelihood, prior_variance=1.0, intercept=True)
    posterior = model.fit((X - X.mean(0)) / X.std(0), y)
    table = posterior.summary(0.8, exponentiate=True)
    assert table.title.endswith(f", {word} per unit")
    assert (f"the {word.split()[0].removesuffix('s')}" in "".join(table.notes)) == posterior.intercept
    frame, logs = table.to_frame(), posterior.summary(0.8).to_frame()
    np.testing.assert_allclose(frame["median"], np.exp(logs["mean"]), rtol=AT_REST)
    np.testing.assert_allclose(frame[["10%", "90%"]], np.exp(logs[["10%", "90%"]]), rtol=AT_REST)
    np.testing.assert_array_equal(frame["P(>1)"], logs["P(>0)"])
    assert list(frame.columns) == ["median", "10%", "90%", "P(>1)"]


@pytest.mark.parametrize(
    ("fit", "message"),
    [
        (lambda: GLM("probit", prior_variance=1.0).fit(X, F > 0), "got Probit: a fit with likelihood='logit'"),
        (
            lambda: GLM("binomial-probit", prior_variance=1.0).fit(X, np.column_stack([F > 0, F <= 0]).astype(float)),
            "got Binomial: a fit with likelihood='binomial'",
        ),
        (FITS["glm"], "got Gaussian: without it the summary is in units of f"),
        (FITS["linear"], "got Gaussian"),
    ],
)
def test_ratios_need_a_link_that_has_them(fit, message):
    with pytest.raises(ValueError, match=f"exponentiate needs a logit or log link, {message}"):
        fit().summary(exponentiate=True)
    with pytest.raises(TypeError, match="exponentiate must be True or False"):
        fit().summary(exponentiate=1)


def test_ratios_are_shown_with_four_figures():
    columns = {"median": np.array([1.1, 123.456, 0.00012347, np.inf, 0.0])}
    table = cavity.Table("ratios", ("a", "b", "c", "d", "e"), columns, {"median": "four figures"})
    assert [line.split()[1] for line in repr(table).split("\n")[2:]] == ["1.100", "123.5", "0.0001235", "inf", "0"]


def test_notes_of_formulas():
    frame = {"x": X[:, 0], "sex": np.array(["male", "female"])[np.arange(60) % 2], "y": Y}
    frame["district"], frame["x"] = np.arange(60) % 3, np.where(np.arange(60) == 4, np.nan, frame["x"])
    model = cavity.GLM("y ~ x + sex + C(district)", likelihoods.Gaussian(1.0), prior_variance=9.0)
    notes = model.fit(frame, missing="drop").summary().notes
    assert notes[0] == "base levels: sex female, district 0"
    assert notes[-1] == "1 row with missing values left out (x 1)"
    frame = {name: column[5:] for name, column in frame.items()}
    mixed = cavity.MixedGLM("y ~ sex + (1 | district)", likelihoods.Gaussian(1.0), prior_variance=9.0)
    assert "base levels: sex female" in mixed.fit(frame).summary().notes


@pytest.mark.parametrize("formula", ["Reaction ~ Days", "Reaction ~ Days + (1 | Subject)"])
def test_one_contrast_has_the_moments_of_the_table(formula):
    posterior = cavity.GLM(formula, "gaussian").fit(cavity.data.table("sleepstudy", as_frame=True)[0])
    weights = {"intercept": 1.0, "Days": 9.0}
    table, one = posterior.contrasts(weights).columns, posterior.contrast(weights)
    np.testing.assert_allclose([one.mean, one.variance], [table["mean"][0], table["sd"][0] ** 2], rtol=AT_REST)
    with pytest.raises(TypeError, match="weights must be a dict of weights by effects"):
        posterior.contrast("Days")
    with pytest.raises(ValueError, match="'Nights'"):
        posterior.contrast({"Nights": 1.0})
