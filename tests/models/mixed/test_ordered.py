"""Ordered classes in mixed models and GLMs: thresholds that are open stand for the intercept, and say where f is."""

import numpy as np
import pandas
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import optimize, special
from support.examples import examples
from support.saved_files import load_changed
from support.tolerances import AT_REST, EARLY, OPTIMUM, SLOPES

import cavity
from cavity import SettingsWarning

RNG = np.random.default_rng(1)
N, N_GROUPS = 240, 8
G = RNG.integers(N_GROUPS, size=N)
X = RNG.normal(size=(N, 2)) * [1.0, 30.0] + [7.0, -200.0]
KIND = np.array(["p", "q", "r"])[RNG.integers(3, size=N)]
F = X @ [0.8, -0.02] + 0.7 * (KIND == "q") + 0.6 * RNG.normal(size=N_GROUPS)[G]
Y = np.digitize(F + RNG.normal(size=N), np.quantile(F, [0.3, 0.6, 0.8]))
FRAME = pandas.DataFrame({"y": Y, "a": X[:, 0], "b": X[:, 1], "kind": KIND, "g": G})
ORDERED = "ordered-probit"


@pytest.mark.parametrize("first", [1, -2])
@pytest.mark.parametrize("formula", ["y ~ a + b", "y ~ a + b + (1 | g)"])
def test_classes_may_begin_at_any_number(formula, first):
    """The fit is that of classes from 0, and thresholds are called by the classes beside them."""
    model = cavity.GLM(formula, ORDERED)
    posterior, expected = model.fit(FRAME.assign(y=Y + first)), model.fit(FRAME)
    np.testing.assert_array_equal(posterior.mean, expected.mean)
    assert posterior.classes == tuple(range(first, first + 4))
    assert posterior.hyperparameters.names == expected.hyperparameters.names
    for between in (f"{first}|{first + 1}", f"{first + 2}|{first + 3}"):
        assert between in repr(posterior.summary())
    with pytest.raises(ValueError, match="number the classes that are there without gaps"):
        model.fit(FRAME.assign(y=np.where(Y == 1, 0, Y)))


def glm(likelihood=ORDERED, y=Y, **options):
    return cavity.GLM(likelihood, **options).fit(X, y), lambda other: other.fit(X, y)


def by_columns():
    return cavity.MixedGLM("g", ORDERED).fit(X, Y, groups=G), lambda other: other.fit(X, Y, groups=G)


def by_formula(formula="y ~ a + b + kind + (1 | g)", likelihood=ORDERED):
    pytest.importorskip("formulae")
    return cavity.MixedGLM(formula, likelihood).fit(FRAME), lambda other: other.fit(FRAME)


FITS = {
    "glm": glm,
    "glm, standardized": lambda: glm(standardize=True),
    "glm, from a centre": lambda: glm(centre=[5.0, 0.0], prior_variance=3.0),
    "probit, standardized": lambda: glm(likelihood="probit", y=Y > 1, intercept=False, standardize=True),
    "by columns": by_columns,
    "by formula": by_formula,
    "given thresholds": lambda: by_formula(likelihood=cavity.likelihoods.OrderedProbit([0.0, 1.0, 2.0])),
    "a label with an intercept": lambda: by_formula("y > 1 ~ a + kind + (1 | g)", "probit"),
}


@pytest.mark.sample(2)
@pytest.mark.parametrize("name", FITS)
def test_the_model_of_a_posterior_reproduces_the_fit_from_the_same_rows(name, tmp_path):
    posterior, fit = FITS[name]()
    posterior.save(tmp_path / "p.npz")
    for model in (posterior.model, cavity.load(tmp_path / "p.npz").model):
        assert model == posterior.model
        second = fit(model)
        np.testing.assert_allclose(second.mean, posterior.mean, atol=OPTIMUM * posterior.sd.min(), rtol=0)
        size = np.outer(posterior.sd, posterior.sd)
        np.testing.assert_allclose(second.covariance / size, posterior.covariance / size, atol=OPTIMUM)
        assert second.log_evidence == pytest.approx(posterior.log_evidence, abs=OPTIMUM)


@pytest.mark.long
@pytest.mark.filterwarnings("ignore:the log evidence has no maximum")
@examples(5)
@given(st.floats(-1e3, 1e3), st.floats(-1e3, 1e3))
def test_predictions_do_not_depend_on_where_columns_begin(first, second):
    moved = X + [first, second]
    for model, groups in ((cavity.GLM(ORDERED), {}), (cavity.MixedGLM("g", ORDERED), {"groups": G})):
        result, other = model.fit(X, Y, **groups), model.fit(moved, Y, **groups)
        assert other.log_evidence == pytest.approx(result.log_evidence, abs=OPTIMUM)
        for posterior, rows in ((result, X[:9]), (other, moved[:9])):
            rows = posterior.rows(rows, G[:9]) if groups else rows
            np.testing.assert_allclose(posterior.predict_proba(rows), _expected(model, groups), atol=SLOPES)


def _expected(model, groups, truth={}):  # noqa: B006 - found once
    name = type(model).__name__
    if name not in truth:
        posterior = model.fit(X, Y, **groups)
        truth[name] = posterior.predict_proba(posterior.rows(X[:9], G[:9]) if groups else X[:9])
    return truth[name]


def test_thresholds_stand_for_the_intercept_of_a_formula():
    fits = [
        by_formula(f"y ~ {fixed} + (1 | g)")[0] for fixed in ("a + kind", "1 + a + kind", "0 + a + kind", "a+kind-1")
    ]
    dummies = np.column_stack([X[:, 0], KIND == "q", KIND == "r"]).astype(float)
    columns = cavity.MixedGLM("g", ORDERED).fit(dummies, Y, groups=G)
    for posterior in fits:
        assert posterior.columns == ("a", "kind[q]", "kind[r]")
        assert posterior.log_evidence == pytest.approx(columns.log_evidence, abs=EARLY)
        np.testing.assert_allclose(posterior.mean, columns.mean, atol=OPTIMUM)
        np.testing.assert_allclose(posterior.centre, dummies.mean(axis=0))
        assert max(posterior.hyperparameters.sd) < 1.0
        new = posterior.predict_proba(FRAME[:5].assign(kind=["r", "p", "p", "q", "r"]))
        rows = dummies[:5].copy()
        rows[:, 1:] = [[0, 1], [0, 0], [0, 0], [1, 0], [0, 1]]
        np.testing.assert_allclose(new, columns.predict_proba(columns.rows(rows, G[:5])), atol=OPTIMUM)
    assert "columns are measured from `centre`, as a rule their means" in fits[0].summary().notes


def test_slopes_and_thresholds_are_those_of_maximum_likelihood():
    """As polr finds them: with hardly any prior and hardly any random effects, to a part of their standard errors."""
    dummies = np.column_stack([X[:, 0], X[:, 1], KIND == "q", KIND == "r"]).astype(float)
    units = dummies.std(axis=0)
    centred = (dummies - dummies.mean(axis=0)) / units

    def loss(x):
        edges = np.concatenate([[-np.inf], np.cumsum(np.append(x[4], np.exp(x[5:]))), [np.inf]])
        f = centred @ x[:4]
        return -np.sum(np.log(special.ndtr(edges[Y + 1] - f) - special.ndtr(edges[Y] - f)))

    x = optimize.minimize(loss, np.array([0.0, 0.0, 0.0, 0.0, -0.5, -0.5, -0.5]), options={"gtol": 1e-6}).x
    pytest.importorskip("formulae")
    model = cavity.MixedGLM("y ~ a + b + kind + (1 | g)", ORDERED, prior_variance=1e4, effect_covariances={"g": 1e-8})
    posterior = model.fit(FRAME)
    np.testing.assert_allclose(posterior.mean / posterior.sd, x[:4] / units / posterior.sd, atol=0.1)
    thresholds = np.cumsum(np.append(x[4], np.exp(x[5:])))
    np.testing.assert_allclose(
        posterior.hyperparameters.values, thresholds, atol=0.1 * min(posterior.hyperparameters.sd)
    )


def test_thresholds_alone(tmp_path):
    """No fixed effects are left: a model of its random effects, saved, updated and fitted again."""
    posterior, fit = by_formula("y ~ 1 + (1 | g)")
    assert (posterior.mean.shape, posterior.columns, posterior.summary().names) == ((0,), (), ())
    posterior.save(tmp_path / "p.npz")
    restored = cavity.load(tmp_path / "p.npz")
    assert restored.model == posterior.model
    np.testing.assert_array_equal(restored.predict_proba(FRAME), posterior.predict_proba(FRAME))
    assert fit(restored.model).log_evidence == pytest.approx(posterior.log_evidence, abs=EARLY)
    assert np.isfinite(restored.update(FRAME[:3]).log_evidence)
    with pytest.raises(ValueError, match="must have fixed effects"):
        by_formula("y ~ 1")


def test_intercept_false_of_a_formula():
    pytest.importorskip("formulae")
    likelihood = cavity.likelihoods.OrderedProbit([0.0, 1.0, 2.0])
    without = cavity.MixedGLM("y ~ a + kind + (1 | g)", likelihood, intercept=False).fit(FRAME)
    assert without.columns == ("a", "kind[q]", "kind[r]")
    assert cavity.MixedGLM("y ~ a + kind + (1 | g)", likelihood).fit(FRAME).columns[0] == "intercept"
    with pytest.raises(ValueError, match=r"intercept must be None where there is a formula: write '0 \+' in it"):
        cavity.MixedGLM("y ~ a + (1 | g)", "gaussian", intercept=False).fit(FRAME)
    with pytest.raises(ValueError, match="intercept must be None where there is a formula"):
        cavity.MixedGLM("y ~ a + (1 | g)", ORDERED, intercept=True)


def test_a_constant_column_beside_open_thresholds_is_warned_of():
    ones = np.column_stack([np.ones(N), X])
    for fit in (lambda: cavity.GLM(ORDERED).fit(ones, Y), lambda: cavity.MixedGLM("g", ORDERED).fit(ones, Y, groups=G)):
        with pytest.warns(SettingsWarning, match="X is constant and open thresholds stand for the intercept"):
            fit()


def test_files_of_earlier_versions_have_no_intercept_of_the_model(tmp_path):
    for likelihood, formula in ((ORDERED, "y ~ 0 + a + (1 | g)"), ("gaussian", "a ~ b + (1 | g)")):
        posterior = by_formula(formula, likelihood)[0]
        old = load_changed(posterior, tmp_path, lambda settings, _: settings.pop("intercept", None))
        np.testing.assert_array_equal(old.predict(FRAME), posterior.predict(FRAME))
        assert old.model.fit(FRAME).log_evidence == pytest.approx(posterior.log_evidence, abs=EARLY)


@pytest.mark.parametrize(
    ("options", "kind", "message"),
    [
        (dict(centre=[1.0]), ValueError, "centre must be a number or have shape"),
        (dict(centre=2.0), ValueError, "centre must"),
        (dict(centre="mean"), TypeError, "centre must"),
    ],
)
def test_bad_scaling(options, kind, message):
    with pytest.raises(kind, match=message):
        cavity.GLM(ORDERED, **options).fit(X, Y)


def test_centre_is_what_columns_are_measured_from():
    result = cavity.GLM("probit", prior_variance=1.0, intercept=9.0, centre=[7.0, -200.0]).fit(X, Y > 1)
    other = cavity.GLM("probit", prior_variance=1.0, intercept=9.0).fit(X - [7.0, -200.0], Y > 1)
    np.testing.assert_allclose(result.mean, other.mean, rtol=AT_REST)
    np.testing.assert_allclose(result.predict(X), other.predict(X - [7.0, -200.0]), rtol=AT_REST)
    at_zero = result.summary().columns["mean"][0]
    assert at_zero == pytest.approx(result.predict(np.zeros((1, 2)))[0][0])


@pytest.mark.parametrize("seed", [0, 3, 5])
def test_a_correlation_without_a_maximum_is_said_after_few_evaluations(seed):
    """Slopes of 13 rows are multiples of the intercepts: other numbers have standard errors, and no fit is better."""
    rng = np.random.default_rng(seed)
    table = pandas.DataFrame({"x": rng.normal(size=13), "g": rng.integers(0, 4, 13).astype(str)})
    table["y"] = np.clip(np.round(rng.normal(size=13) + 1.0), 0, 2).astype(int)
    model = cavity.MixedGLM("y ~ x + (x | g)", ORDERED)
    with pytest.warns(
        cavity.NumericalWarning, match=r"no maximum in the corr\(intercept, x \| g\): .* beyond -?(1|0\.9999)"
    ):
        posterior = model.fit(table)
    assert len(posterior.trace["learning"]) <= 50
    first, second, correlation, *_ = posterior.hyperparameters.values
    assert abs(correlation) > 0.999
    assert [sd is None for sd in posterior.hyperparameters.sd] == [False, False, True, False, False]
    for r in (-0.999, -0.5, 0.0, 0.5, 0.999):
        covariance = [[first**2, r * first * second], [r * first * second, second**2]]
        other = cavity.MixedGLM(model.effects, ORDERED, effect_covariances={"1 + x | g": covariance}).fit(table)
        assert other.log_evidence < posterior.log_evidence + EARLY
