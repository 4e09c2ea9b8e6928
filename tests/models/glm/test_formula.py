"""GLMs by formula: the fits of the same columns, from frames and files, mixed models, and what is refused."""

import pickle

import numpy as np
import pytest
from support.tolerances import EXPANSION, ROUNDING

import cavity
from cavity.models.formula import evaluation

pytest.importorskip("formulae")
pd = pytest.importorskip("pandas")
pl = pytest.importorskip("polars")

RNG = np.random.default_rng(1)
N = 120
FRAME = pd.DataFrame(
    {
        "age": RNG.normal(40, 10, N).round(1),
        "district": RNG.integers(1, 4, N),
        "sex": RNG.choice(["F", "M"], N),
        "holders": RNG.integers(50, 500, N),
        "site": np.arange(N) % 8,
        "w": RNG.integers(1, 4, N).astype(float),
    }
)
RATE = np.exp(0.03 * (FRAME["age"] - 40) + 0.4 * (FRAME["sex"] == "M") - 3.0)
FRAME["claims"] = RNG.poisson(FRAME["holders"] * RATE)
FRAME["k"] = RNG.binomial(10, 0.3, N)
FRAME["n"] = 10
FRAME["grade"] = pd.cut(FRAME["age"], [0, 35, 45, 99], labels=["low", "mid", "high"], ordered=True)


def make_columns():
    """The columns of ``C(district) + age * sex`` beside an intercept, in the order of formulae."""
    male = (FRAME["sex"] == "M").astype(float)
    columns = [FRAME["district"] == 2, FRAME["district"] == 3, FRAME["age"], male, FRAME["age"] * male]
    names = ("district[2]", "district[3]", "age", "sex[M]", "age:sex[M]")
    return names, np.column_stack(columns).astype(float)


def test_a_formula_is_a_fit_of_its_columns():
    names, X = make_columns()
    formula = "claims ~ C(district) + age * sex + offset(log(holders))"
    posterior = cavity.GLM(formula, "poisson").fit(FRAME)
    expected = cavity.GLM("poisson", intercept=True).fit(X, FRAME["claims"], offset=np.log(FRAME["holders"]))
    assert isinstance(posterior, cavity.GLMPosterior)
    assert posterior.coefficient_names == ("intercept", *names)
    np.testing.assert_array_equal(posterior.mean, expected.mean)
    assert posterior.log_evidence == expected.log_evidence
    new = FRAME.iloc[[3, 7, 3]]
    offset = np.log(new["holders"]).to_numpy()
    for ours, theirs in zip(posterior.predict(new), expected.predict(X[[3, 7, 3]], offset=offset), strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=ROUNDING)
    assert posterior.coding.base_levels == {"district": "1", "sex": "F"}
    np.testing.assert_array_equal(posterior.log_density(FRAME), posterior.log_density(FRAME, "claims"))
    assert posterior.update(FRAME[:5]).n_samples == N + 5


@pytest.mark.parametrize("likelihood", ["gaussian", cavity.likelihoods.StudentT(4.0, 5.0)])
def test_settings_and_arguments_of_a_glm_go_with_a_formula(likelihood):
    model = cavity.GLM("age ~ sex + claims", likelihood, standardize=True, prior_variance=2.0, intercept=50.0)
    posterior = model.fit(FRAME, sample_weight="w", learn="prior_variance")
    X = np.column_stack([FRAME["sex"] == "M", FRAME["claims"]]).astype(float)
    model = cavity.GLM(likelihood, standardize=True, prior_variance=2.0, intercept=50.0)
    expected = model.fit(X, FRAME["age"], sample_weight=FRAME["w"], learn="prior_variance")
    np.testing.assert_array_equal(posterior.mean, expected.mean)
    assert posterior.hyperparameters.names == expected.hyperparameters.names


@pytest.mark.parametrize("kind", ["csv", "parquet", "polars", "dict", "source"])
def test_tables_of_every_kind_give_the_bits_of_the_frame(kind, tmp_path):
    table = FRAME.drop(columns="grade")
    if kind in ("csv", "source"):
        table.to_csv(tmp_path / "rows.csv", index=False)
        data = tmp_path / "rows.csv" if kind == "csv" else cavity.source(str(tmp_path / "rows.csv"))
    elif kind == "parquet":
        pytest.importorskip("pyarrow")
        table.to_parquet(tmp_path / "rows.parquet")
        data = tmp_path / "rows.parquet"
    else:
        data = pl.DataFrame(table) if kind == "polars" else table.to_dict("list")
    model = cavity.GLM("p(k, n) ~ age + C(district) * sex")
    posterior, expected = model.fit(data), model.fit(FRAME)
    np.testing.assert_array_equal(posterior.mean, expected.mean)
    assert type(posterior.model.likelihood) is cavity.likelihoods.Binomial
    np.testing.assert_array_equal(posterior.predict(data)[0], expected.predict(FRAME)[0])


def test_design_matrices_of_long_files_are_evaluated_in_blocks(tmp_path, monkeypatch, set_sizes):
    """Coefficients and predictions have the bits of the frame; the matrix is a Source; what is not finite is named."""
    path, formula = tmp_path / "rows.csv", "claims ~ C(district) + log(age) * sex + offset(log(holders))"
    FRAME.to_csv(path, index=False)
    model = cavity.GLM(formula, "poisson")
    expected = model.fit(FRAME)
    predicted = expected.predict(FRAME)
    set_sizes(LARGEST_DESIGN=N, EVALUATED_ROWS=50)
    sizes = []
    fill = evaluation.DesignRows.fill
    monkeypatch.setattr(
        evaluation.DesignRows, "fill", lambda rows, out, *where: (sizes.append(len(out)), fill(rows, out, *where))
    )
    posterior = model.fit(str(path), n_threads=2)
    np.testing.assert_array_equal(posterior.mean, expected.mean)
    assert posterior.columns == expected.columns
    assert sizes
    for result, target in zip(posterior.predict(str(path)), predicted, strict=True):
        np.testing.assert_array_equal(result, target)
    with_zero = FRAME.assign(age=np.where(np.arange(N) == 70, 0.0, FRAME["age"]))
    with_zero.to_csv(path, index=False)
    for source in (with_zero, str(path)):
        with pytest.raises(ValueError, match=r"got -inf in row 70, column 'log.age.' of X"):
            model.fit(source)


@pytest.mark.parametrize("missing", ["raise", "drop"])
def test_functions_without_a_number_are_named_with_no_way_out_that_is_none(missing):
    table = {"x": np.linspace(-1.0, 2.0, 30), "y": np.linspace(-2.0, 3.0, 30) ** 3}
    for formula, message in (
        ("log(y) ~ x", "^formula must have finite numbers in log.y., got nan in row 0$"),
        ("y ~ log(x)", "^X must be finite, got nan in row 0, column 'log.x.' of X$"),
    ):
        with pytest.raises(ValueError, match=message):
            cavity.GLM(formula).fit(table, missing=missing)
    posterior = cavity.GLM("y ~ x").fit(table)
    with pytest.raises(ValueError, match=r"^data\['x'\] must be finite, got inf in row 1$"):
        posterior.predict({"x": [1.0, np.inf]})


def test_a_dot_is_all_other_columns():
    table = FRAME[["claims", "age", "sex", "w"]].rename(columns={"age": "age in years"})
    posterior = cavity.GLM("claims ~ . + offset(log(w))", "poisson").fit(table)
    assert posterior.columns == ("age in years", "sex[M]")
    assert cavity.GLM("claims ~ .", "poisson").fit(table, sample_weight="w").columns == ("age in years", "sex[M]")
    assert posterior.coding.formula == "claims ~ `age in years` + sex + offset(log(w))"


def test_formulas_with_an_intercept_alone_without_one_and_with_thresholds():
    single = cavity.GLM("age ~ 1").fit(FRAME)
    assert single.coefficient_names == ("intercept",)
    assert single.predict(FRAME[:2])[0] == pytest.approx(FRAME["age"].mean(), abs=0.1)
    without = cavity.GLM("age ~ 0 + sex").fit(FRAME)
    assert without.coefficient_names == ("sex[F]", "sex[M]")
    assert not without.intercept
    ordered = cavity.GLM("grade ~ sex").fit(FRAME)
    assert ordered.coefficient_names == ("sex[M]",)
    assert ordered.classes == ("low", "mid", "high")


def test_random_effects_make_it_a_mixed_model():
    table = FRAME.assign(age=FRAME["age"] + 5.0 * (FRAME["site"] - 3.5))
    posterior = cavity.GLM("age ~ sex + (1 | site)", "gaussian").fit(table, sample_weight="w")
    expected = cavity.MixedGLM("age ~ sex + (1 | site)", "gaussian").fit(table, sample_weight="w")
    assert isinstance(posterior, cavity.MixedGLMPosterior)
    np.testing.assert_array_equal(posterior.mean, expected.mean)
    for settings, options, name in [
        ({"approximation": "diagonal"}, {}, "approximation"),
        ({"standardize": True}, {}, "standardize"),
        ({"intercept": 3.0}, {}, "intercept"),
        ({}, {"method": "adf"}, "method"),
        ({}, {"schedule": "sequential"}, "schedule"),
        ({}, {"learn": True}, "learn"),
        ({}, {"prior_groups": [0]}, "prior_groups"),
    ]:
        with pytest.raises(ValueError, match=f"{name} has no meaning for a formula with random effects"):
            cavity.GLM("age ~ sex + (1 | site)", "gaussian", **settings).fit(FRAME, **options)


@pytest.mark.parametrize(
    "formula", ["age ~ C(district) + sex", "age ~ scale(claims) + sex", "age ~ sex + (1 | district)"]
)
def test_posteriors_of_formulas_are_saved_and_pickled(formula, tmp_path):
    table = FRAME.assign(age=FRAME["age"] + 7.0 * FRAME["district"], claims=[np.nan, *FRAME["claims"][1:]])
    posterior = cavity.GLM(formula, "gaussian").fit(table, missing="drop")
    posterior.predict(FRAME)
    posterior.save(tmp_path / "posterior.npz")
    for other in (cavity.load(tmp_path / "posterior.npz"), pickle.loads(pickle.dumps(posterior))):
        np.testing.assert_array_equal(other.predict(FRAME)[0], posterior.predict(FRAME)[0])
        assert (other.dropped is None) == (posterior.dropped is None)
        assert str(other.dropped) == str(posterior.dropped)


def test_rows_with_missing_values():
    table = FRAME.astype({"age": float})
    table.loc[[3, 5], "age"] = np.nan
    table.loc[7, "sex"] = None
    table.loc[9, "k"] = 4
    model = cavity.GLM("claims ~ age + sex", "poisson")
    message = "'age' in 2 of 120 rows, the first is row 3; 'sex' in 1 of 120 rows, the first is row 7; missing='drop'"
    with pytest.raises(ValueError, match=message):
        model.fit(table)
    posterior = model.fit(table, missing="drop", sample_weight=FRAME["w"])
    complete = table.drop(index=[3, 5, 7])
    expected = model.fit(complete, sample_weight=complete["w"])
    np.testing.assert_array_equal(posterior.mean, expected.mean)
    assert (posterior.dropped.n_rows, posterior.dropped.columns) == (3, {"age": 2, "sex": 1})
    assert expected.dropped is None
    by_columns = cavity.GLM("gaussian", intercept=True).fit(table[["age", "k"]], "k", missing="drop")
    assert by_columns.dropped.columns == {"age": 2}
    mixed = cavity.MixedGLM("site", "gaussian")
    sites = {"site": [None, *FRAME["site"][1:]]}
    rows = mixed.fit(np.ones((N, 1)), FRAME["age"] + 5.0 * FRAME["site"], groups=sites, missing="drop")
    assert rows.dropped.columns == {"groups['site']": 1}


@pytest.mark.parametrize(
    ("formula", "message"),
    [
        ("claims ~ age^2", "a power is written \\*\\*"),
        ("claims ~ factor(district)", "there is no function 'factor': C\\(x\\) makes categories"),
        ("claims ~ ns(age, 3)", "there is no function 'ns': bs\\(x, df=5\\)"),
        ("claims ~ age > 40", "a comparison is written I\\(x > 3\\)"),
        ("claims ~ agee", "'agee' missing; .*did you mean 'age'"),
        ("claims ~ age + claims", "formula must have 'claims' on one side of the ~"),
        ("claims ~ age + (1 | claims)", "formula must have 'claims' on one side of the ~"),
        ("claims ~ 0", "formula must have effects, if only an intercept"),
    ],
)
def test_formulas_that_are_refused(formula, message):
    with pytest.raises(ValueError, match=message):
        cavity.GLM(formula, "poisson").fit(FRAME)


@pytest.mark.parametrize("coding", ["C(sex, Treatment('M'))", 'C(sex, Treatment("M"))'])
def test_another_base_level(coding):
    """The coefficient of the other level has the other sign; rows are predicted alike."""
    model, other = (cavity.GLM(f"age ~ {term} + holders", "gaussian") for term in (coding, "sex"))
    posterior, expected = model.fit(FRAME), other.fit(FRAME)
    assert posterior.coefficient_names == ("intercept", "sex[F]", "holders")
    assert posterior.coding.base_levels == {"sex": "M"}
    assert posterior.mean[1] == pytest.approx(-expected.mean[1], rel=0.02)  # the intercepts have other priors
    assert posterior.predict(FRAME[:3])[0] == pytest.approx(expected.predict(FRAME[:3])[0], rel=EXPANSION)


@pytest.mark.parametrize("make", [cavity.GLM, cavity.MixedGLM])
@pytest.mark.parametrize("likelihood", ["binomial", "logit"])
def test_a_proportion_is_refused_with_its_notation(make, likelihood):
    formula = "claims / k ~ age" + (" + (1 | site)" if make is cavity.MixedGLM else "")
    with pytest.raises(ValueError, match=r"must have successes and trials as p\(claims, k\), with the likelihood 'bin"):
        make(formula, likelihood).fit(FRAME)


@pytest.mark.parametrize("formula", ["yes ~ age", "yes ~ age + (1 | site)"])
def test_two_classes_have_log_odds_by_default(formula):
    f = FRAME["age"] + 20.0 * np.sin(np.arange(N)) + 15.0 * np.cos(FRAME["site"])
    frame = FRAME.assign(yes=np.where(f > f.median(), "yes", "no"))
    posterior = cavity.GLM(formula).fit(frame)
    assert type(posterior.model.likelihood) is cavity.likelihoods.Logit
    assert posterior.classes == ("no", "yes")


@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        (lambda: cavity.GLM("probit", "logit"), ValueError, "must be a formula like 'y ~ x' before a likelihood"),
        (lambda: cavity.GLM(3, "logit"), TypeError, "must be a formula"),
        (
            lambda: cavity.GLM("age ~ sex").fit(FRAME, FRAME["age"]),
            ValueError,
            "y must be None where there is a formula",
        ),
        (lambda: cavity.GLM("age ~ sex").fit(np.ones((3, 2))), TypeError, "must be a data frame or a dictionary"),
        (lambda: cavity.GLM("age ~ sex").fit(FRAME[:0]), ValueError, "data must have rows, got none"),
        (
            lambda: cavity.GLM("age ~ sex").fit(pd.concat([FRAME, FRAME[["sex"]]], axis=1)),
            ValueError,
            "must have one column of each name, got two called 'sex'",
        ),
        (lambda: cavity.GLM("age ~ sex").fit(FRAME, missing="omit"), ValueError, "missing must be one of"),
        (lambda: cavity.GLM("age ~ sex").fit(FRAME).predict(FRAME[["claims"]]), ValueError, "'sex' missing"),
        (
            lambda: cavity.GLM("age ~ sex").fit(FRAME).predict(FRAME[:1].assign(sex="X")),
            ValueError,
            "must have categories of the fit, got 'X' in row 0 of 'sex'; there is 'F', 'M'",
        ),
    ],
)
def test_arguments_that_are_refused(call, error, message):
    with pytest.raises(error, match=message):
        call()


def test_new_rows_need_not_have_every_category():
    rng = np.random.default_rng(0)
    table = pd.DataFrame({"x": rng.normal(size=60), "site": rng.choice(["u", "v", "w"], 60)})
    table["y"] = table["x"] + rng.normal(size=60)
    for formula in ("y ~ x + C(site)", "y ~ x + site", "y ~ x * T(site, 'v')"):
        posterior = cavity.GLM(formula, "gaussian").fit(table)
        mean = posterior.predict(table)[0]
        for site in "uvw":
            rows = (table["site"] == site).to_numpy()
            np.testing.assert_allclose(posterior.predict(table[rows])[0], mean[rows], rtol=ROUNDING)
