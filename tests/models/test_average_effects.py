"""Averages over rows, contrasts and Bayes factors of terms: exact, by brute force, and beside another library."""

import numpy as np
import pytest
from scipy import special, stats
from support.tolerances import AT_REST, ROOT_EPS, SLOPES, SOLVES

import cavity

pytest.importorskip("formulae")
pd = pytest.importorskip("pandas")

RNG = np.random.default_rng(0)
N = 200
FRAME = pd.DataFrame(
    {"x": RNG.normal(size=N), "z": RNG.normal(size=N), "f": RNG.choice(["a", "b", "c"], N), "b": RNG.integers(0, 2, N)}
)
EFFECTS = 0.7 * FRAME["x"] - 0.4 * FRAME["b"] + FRAME["f"].map({"a": 0.0, "b": 0.5, "c": -1.0})
FRAME["real"] = EFFECTS + RNG.normal(size=N)
FRAME["label"] = RNG.random(N) < special.expit(EFFECTS)
FRAME["count"] = RNG.poisson(np.exp(0.5 * EFFECTS))
LINEAR = cavity.GLM("real ~ x * f + b", cavity.likelihoods.Gaussian(1.0)).fit(FRAME)
LOGIT = cavity.GLM("label ~ x * f + b", "logit").fit(FRAME)
COUNTS = cavity.GLM("count ~ x + f", "poisson").fit(FRAME)


def predict_mean(posterior, frame, n=20_000):
    """Draws (n,) of the average of the mean of observations, by draws of the coefficients and the slow way."""
    weights = posterior.sample(n, 1)
    mean = {"Logit": special.expit, "Poisson": np.exp, "Gaussian": lambda f: f}[
        type(posterior.model.likelihood).__name__
    ]
    X = np.column_stack([np.ones(len(frame)), *make_columns(posterior, frame)])
    return mean(X @ weights.T).mean(axis=0)


def make_columns(posterior, frame):
    for name in posterior.columns:
        column = np.ones(len(frame))
        for part in name.split(":"):
            variable, _, level = part.rstrip("]").partition("[")
            column = column * (frame[variable] == level if level else frame[variable])
        yield column


@pytest.mark.long_cases("logit")
@pytest.mark.parametrize("posterior", [LINEAR, LOGIT, COUNTS], ids=["linear", "logit", "counts"])
def test_average_predictions_are_those_of_draws(posterior):
    table = posterior.average_predictions(FRAME)
    draws = predict_mean(posterior, FRAME)
    sd = draws.std()
    assert abs(table.columns["mean"][0] - draws.mean()) < 4 * sd / np.sqrt(len(draws))
    assert table.columns["sd"][0] == pytest.approx(sd, rel=0.08)
    assert "P(>0)" not in table.columns
    by = posterior.average_predictions(FRAME, by=["f", "b"])
    assert by.names == ("a, 0", "a, 1", "b, 0", "b, 1", "c, 0", "c, 1")
    part = FRAME[(FRAME["f"] == "b") & (FRAME["b"] == 1)]
    draws = predict_mean(posterior, part)
    assert abs(by.columns["mean"][3] - draws.mean()) < 4 * draws.std() / np.sqrt(len(draws))


@pytest.mark.long_cases("logistic")
@pytest.mark.parametrize(
    ("model", "y", "inverse_link"),
    [
        (cavity.LinearRegression(intercept=True), "real", lambda f: f),
        (cavity.LogisticRegression(intercept=True), "label", special.expit),
    ],
    ids=["linear", "logistic"],
)
def test_regressions_by_mean_field_have_the_averages_of_their_draws(model, y, inverse_link):
    features = FRAME[["x", "b"]]
    posterior = model.fit(features, FRAME[y])
    weights = posterior.sample(20_000, 1).T

    def average(x, b):
        return inverse_link(np.column_stack(np.broadcast_arrays(1.0, x, b)) @ weights).mean(axis=0)

    x, b = FRAME["x"].to_numpy(), FRAME["b"].to_numpy()
    expected = [average(x, b), average(x, 1) - average(x, 0), average(x + 0.5, b) - average(x - 0.5, b)]
    tables = [posterior.average_predictions(features), posterior.average_comparisons(features, ["b", "x"])]
    means, sds = ([*tables[0].columns[name], *tables[1].columns[name]] for name in ("mean", "sd"))
    for mean, sd, draws in zip(means, sds, expected, strict=True):
        assert abs(mean - draws.mean()) < 4 * draws.std() / np.sqrt(len(draws))
        assert sd == pytest.approx(draws.std(), rel=0.08)
    slope = posterior.average_slopes(features, "x").columns["mean"][0]
    step = (average(x + 1e-4, b) - average(x - 1e-4, b)) / 2e-4
    assert abs(slope - step.mean()) < 4 * step.std() / np.sqrt(step.size)


@pytest.mark.long_cases("logit")
@pytest.mark.parametrize("posterior", [LINEAR, LOGIT], ids=["linear", "logit"])
def test_comparisons_are_differences_of_predictions(posterior):
    table = posterior.average_comparisons(FRAME)
    assert table.names == ("b: 1 - 0", "f: b - a", "f: c - a", "x: +1")
    changes = [
        ({"b": 1}, {"b": 0}),
        ({"f": "b"}, {"f": "a"}),
        ({"f": "c"}, {"f": "a"}),
        ({"x": FRAME["x"] + 0.5}, {"x": FRAME["x"] - 0.5}),
    ]
    for k, (high, low) in enumerate(changes):
        draws = predict_mean(posterior, FRAME.assign(**high)) - predict_mean(posterior, FRAME.assign(**low))
        assert abs(table.columns["mean"][k] - draws.mean()) < 4 * draws.std() / np.sqrt(len(draws))
        assert table.columns["sd"][k] == pytest.approx(draws.std(), rel=0.08)
    pairs = posterior.average_comparisons(FRAME, {"x": (-1, 1)})
    assert pairs.names == ("x: 1 - -1",)
    step = posterior.average_comparisons(FRAME, {"x": 0.5}, by="f")
    assert step.names == ("x: +0.5 | a", "x: +0.5 | b", "x: +0.5 | c")


def test_slopes_are_derivatives():
    table = LOGIT.average_slopes(FRAME, "x")
    p = LOGIT.predict_proba(FRAME)[:, 1]
    step = 0.0001
    ends = [LOGIT.predict_proba(FRAME.assign(x=FRAME["x"] + sign * step))[:, 1] for sign in (1, -1)]
    assert table.columns["mean"][0] == pytest.approx(np.mean(ends[0] - ends[1]) / (2 * step), rel=SLOPES)
    assert 0 < np.mean(p * (1 - p)) < 1
    slopes = LINEAR.average_slopes(FRAME, by="f")
    index = [slopes.names.index(f"x | {level}") for level in "abc"]
    expected = LINEAR.contrasts(["x", "x + x:f[b]", "x + x:f[c]"])
    for name in ("mean", "sd", "2.5%", "97.5%", "P(>0)"):
        np.testing.assert_allclose(slopes.columns[name][index], expected.columns[name], rtol=AT_REST)


def test_probabilities_of_ordered_classes_add_up():
    frame = FRAME.assign(grade=pd.cut(FRAME["real"], [-9, -1, 1, 9], labels=["low", "mid", "high"], ordered=True))
    posterior = cavity.GLM("grade ~ x + f").fit(frame)
    table = posterior.average_predictions(frame)
    assert table.names == ("P(low)", "P(mid)", "P(high)")
    assert posterior.average_predictions(frame, by="f").names[:2] == ("P(low), a", "P(low), b")
    assert table.columns["mean"].sum() == pytest.approx(1.0)
    assert posterior.average_comparisons(frame, "x").columns["mean"].sum() == pytest.approx(0.0, abs=SOLVES)


def test_mixed_models_average_over_their_groups():
    frame, shift = FRAME.assign(g=np.arange(N) % 10), np.linspace(-1, 1, 10)[np.arange(N) % 10]
    frame = frame.assign(real=frame["real"] + 2 * shift + shift**2 * frame["x"], label=frame["label"] ^ (shift > 0.5))
    posterior = cavity.GLM("real ~ x + f + (x | g)", "gaussian").fit(frame)
    table = posterior.average_slopes(frame, "x")
    effects = {"x": 1.0} | {("1 + x | g", level, "x"): 0.1 for level in range(10)}
    contrast = posterior.contrast(effects)
    assert table.columns["mean"][0] == pytest.approx(float(contrast.mean))
    assert table.columns["sd"][0] == pytest.approx(float(np.sqrt(contrast.variance)))
    assert posterior.average_predictions(frame, by="g").names == tuple(map(str, range(10)))
    labels = cavity.GLM("label ~ x + (1 | g)", "logit").fit(frame)
    mean = labels.average_predictions(frame).columns["mean"][0]
    assert mean == pytest.approx(labels.predict_proba(frame)[:, 1].mean(), rel=SOLVES)


def test_averages_for_exposures_and_levels_of_groups():
    """Means of counts of new groups are those of groups with effects at 0 times exp(v/2), v the variance of groups."""
    frame = FRAME.assign(g=np.arange(N) % 10, t=RNG.uniform(1.0, 2.0, N))
    rates = cavity.GLM("count ~ x + f", "poisson").fit(frame, exposure="t")
    doubled = rates.average_predictions(frame, exposure=2.0).columns["mean"][0]
    assert doubled == pytest.approx(rates.expected(frame, exposure=2.0).mean(), rel=SOLVES)
    groups = cavity.GLM("count ~ x + (1 | g)", "poisson").fit(frame)
    tables = {levels: groups.average_predictions(frame[["x"]], levels=levels) for levels in ("zero", "new")}
    for levels, table in tables.items():
        expected = groups.expected(frame[["x"]], levels=levels).mean()
        assert table.columns["mean"][0] == pytest.approx(expected, rel=SOLVES)
    factor = np.exp(0.5 * groups.model.effect_covariances["g"][0, 0])
    draws = [table.columns["sd"][0] for table in tables.values()]
    assert draws[1] == pytest.approx(factor * draws[0], rel=SOLVES)


def test_the_base_level_is_that_of_the_coefficients():
    posterior = cavity.GLM('label ~ x + C(f, Treatment("b"))', "logit").fit(FRAME)
    assert posterior.average_comparisons(FRAME).names == ("f: a - b", "f: c - b", "x: +1")
    assert posterior.average_comparisons(FRAME).columns["mean"][0] == pytest.approx(
        np.subtract(*(posterior.predict_proba(FRAME.assign(f=f))[:, 1] for f in "ab")).mean()
    )


def test_a_column_of_fixed_effects_may_be_part_of_a_group():
    frame = FRAME.assign(g=np.arange(N) % 10)
    frame["real"] += RNG.normal(size=(3, 10))[frame["f"].map({"a": 0, "b": 1, "c": 2}), frame["g"]]
    posterior = cavity.GLM("real ~ f + (1 | g:f)", "gaussian").fit(frame)
    assert posterior.average_comparisons(frame, levels="zero").names == ("f: b - a", "f: c - a")


def test_arrays_and_frames_without_a_formula():
    X = FRAME[["x", "z"]]
    by_frame = cavity.GLM("logit", intercept=True).fit(X, FRAME["label"])
    by_array = cavity.GLM("logit", intercept=True).fit(X.to_numpy(), FRAME["label"])
    tables = by_frame.average_slopes(X), by_array.average_slopes(X.to_numpy())
    assert [table.names for table in tables] == [("x", "z"), ("x1", "x2")]
    np.testing.assert_array_equal(*(table.columns["mean"] for table in tables))


def test_contrasts():
    names = LINEAR.coefficient_names
    table = LINEAR.contrasts(["2 * x - `x:f[b]` / 4", {"f[b]": 1, "f[c]": -1}, "-(b + x) * 3"])
    assert table.names == ("2 * x - `x:f[b]` / 4", "f[b] - f[c]", "-(b + x) * 3")
    weights = np.zeros((3, len(names)))
    for row, parts in enumerate(({"x": 2.0, "x:f[b]": -0.25}, {"f[b]": 1, "f[c]": -1}, {"b": -3, "x": -3})):
        for name, value in parts.items():
            weights[row, names.index(name)] = value
    np.testing.assert_allclose(table.columns["mean"], weights @ LINEAR.mean)
    np.testing.assert_allclose(table.columns["sd"], np.sqrt(np.diag(weights @ LINEAR.covariance @ weights.T)))
    pairs = LINEAR.contrasts(pairs="f", level=0.9)
    assert pairs.names == ("f: b - a", "f: c - a", "f: c - b")
    expected = LINEAR.contrasts(["f[b]", "f[c]", "f[c] - f[b]"], level=0.9)
    for name, column in expected.columns.items():
        np.testing.assert_allclose(pairs.columns[name], column)


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        ({"combinations": "x * b"}, ValueError, "must be linear in the coefficients, got 'x \\* b'"),
        ({"combinations": "x + 1"}, ValueError, "must have no constant that is added, got 1 in 'x \\+ 1'"),
        ({"combinations": "age"}, ValueError, "there is no 'age', but 'intercept', 'x'"),
        ({"combinations": {"f[d]": 1}}, ValueError, "there is no 'f\\[d\\]', .*did you mean 'f\\["),
        ({"combinations": "low|mid"}, ValueError, "must be a sum of numbers times coefficients: there is"),
        ({"combinations": "x +"}, ValueError, "must be a sum of coefficients"),
        ({"combinations": [3]}, TypeError, "must be expressions like 'a - b', or dicts"),
        ({"combinations": []}, TypeError, r"must be expressions like 'a - b', or dicts .* got \[\]"),
        ({"pairs": "x"}, ValueError, "must be a column of categories, got 'x'; there is 'f'"),
        ({}, ValueError, "must be given, or pairs"),
    ],
)
def test_contrasts_that_are_none(arguments, error, message):
    with pytest.raises(error, match=message):
        LINEAR.contrasts(**arguments)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: LOGIT.average_slopes(FRAME, "f"), "variables must be of numbers, got 'f', which has categories"),
        (lambda: LOGIT.average_slopes(FRAME, "z"), "variables must be of the model, got 'z'; there is 'b', 'f', 'x'"),
        (lambda: LOGIT.average_predictions(FRAME, by="g"), "'g' missing"),
        (lambda: LOGIT.average_predictions(FRAME.drop(columns="x")), "'x' missing"),
        (lambda: LOGIT.average_predictions(FRAME, levels="new"), "row_options must be of 'offset', 'exposure', got"),
        (lambda: LOGIT.average_predictions(FRAME[:0]), "must have rows, got none"),
        (lambda: LOGIT.bayes_factors("z"), "terms must be of the model, got 'z'"),
    ],
)
def test_averages_that_are_none(call, message):
    with pytest.raises(ValueError, match=message):
        call()


def test_bayes_factors_are_differences_of_evidences():
    """With Gaussian noise exactly, where the prior of the other coefficients is the same."""
    prior = np.full(7, 2.0)
    full = cavity.GLM("real ~ 0 + x * f + b", cavity.likelihoods.Gaussian(1.0), prior_variance=prior).fit(FRAME)
    smaller = [(["x:f"], "x + f + b", 5), (["b"], "x * f", 6)]
    for (term,), formula, size in smaller:
        part = cavity.GLM(f"real ~ 0 + {formula}", cavity.likelihoods.Gaussian(1.0), prior_variance=prior[:size])
        factor = full.bayes_factors(term).columns["log Bayes factor"][0]
        assert factor == pytest.approx(full.log_evidence - part.fit(FRAME).log_evidence, abs=ROOT_EPS)
    table = full.bayes_factors()
    assert table.names == ("x", "f", "x:f", "b")
    assert list(table.columns["coefficients"]) == [1, 3, 2, 1]


def test_a_term_by_hand():
    posterior = cavity.GLM("real ~ x", cavity.likelihoods.Gaussian(1.0), prior_variance=3.0).fit(FRAME)
    k = posterior.coefficient_names.index("x")
    after = stats.norm.logpdf(0.0, posterior.mean[k], np.sqrt(posterior.variance[k]))
    before = stats.norm.logpdf(0.0, 0.0, np.sqrt(3.0))
    assert posterior.bayes_factors("x").columns["log Bayes factor"][0] == pytest.approx(before - after)


def test_numbers_as_categories():
    frame = FRAME.assign(c=RNG.integers(1, 4, N))
    posterior = cavity.GLM("label ~ x * C(c)", "logit").fit(frame)
    table = posterior.average_comparisons(frame)
    assert table.names == ("c: 2 - 1", "c: 3 - 1", "x: +1")
    difference = np.subtract(*(posterior.predict_proba(frame.assign(c=c))[:, 1] for c in (2, 1))).mean()
    assert table.columns["mean"][0] == pytest.approx(difference)
    assert posterior.average_slopes(frame).names == ("x",)
    with pytest.raises(ValueError, match="variables must be of numbers, got 'c'"):
        posterior.average_slopes(frame, "c")


def test_numbers_of_another_library():
    """avg_slopes and avg_comparisons of marginaleffects on a fit of statsmodels, of the rows below, to its digits."""
    table, _ = cavity.data.table("pima", as_frame=True)
    table = table.assign(older=np.where(table["age"] > 40, "older", "younger"))
    posterior = cavity.GLM("type ~ glu + bmi + older * ped", "logit", prior_variance=1e6).fit(table)
    tables = {
        posterior.average_slopes(table): {"bmi": (0.0116, 0.00241), "glu": (0.00517, 0.000433), "ped": (0.186, 0.05)},
        posterior.average_comparisons(table): {
            "bmi: +1": (0.0116, 0.00241),
            "glu: +1": (0.00517, 0.000433),
            "older: younger - older": (-0.186, 0.0453),
            "ped: +1": (0.185, 0.049),
        },
        posterior.average_predictions(table, by="older"): {"older": (0.578, 0.0397), "younger": (0.27, 0.018)},
    }
    for ours, theirs in tables.items():
        columns = zip(ours.names, ours.columns["mean"], ours.columns["sd"], strict=True)
        for name, mean, sd in columns:
            expected, error = theirs[name]
            assert abs(mean - expected) < 0.05 * error
            assert abs(sd / error - 1.0) < 0.06
