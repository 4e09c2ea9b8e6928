"""Curves, their derivatives and differences, degrees of freedom, predictions without terms."""

import numpy as np
import pytest
from support.tolerances import AT_REST, LOSSES, SLOPES

import cavity
from cavity.terms import RandomWalk, Smooth

pd = pytest.importorskip("pandas")


@pytest.fixture(scope="module")
def frame():
    rng = np.random.default_rng(1)
    n = 400
    x, z, g = rng.uniform(0, 10, n), rng.normal(size=n), rng.integers(0, 12, n)
    f, t = rng.choice(list("ab"), n), rng.integers(0, 20, n)
    u = rng.normal(size=12)
    y = np.sin(x) + 0.5 * z + u[g] + 0.6 * np.cos(t / 3.0) + (f == "b") * 0.2 * x + 0.4 * rng.normal(size=n)
    return pd.DataFrame({"x": x, "z": z, "g": [f"g{k:02d}" for k in g], "f": f, "t": t, "y": y})


@pytest.fixture(scope="module")
def posterior(frame):
    return cavity.GLM("y ~ z + s(x, k=12) + rw1(t) + (1 | g)").fit(frame)


def test_terms_add_up_to_predictions(posterior, frame):
    """f is the sum of what each term has: curves, effects of groups and fixed effects."""
    mean, _ = posterior.predict(frame)
    fixed = dict(zip(posterior.coefficient_names, posterior.mean, strict=True))
    groups = posterior.effects("g").to_frame()["mean"]
    total = fixed["intercept"] + fixed["z"] * frame.z + groups.loc[frame.g].to_numpy()
    for name in posterior.structured_terms:
        total = total + posterior.curve(name, frame).columns["mean"]
    np.testing.assert_allclose(mean, total, atol=LOSSES)


def test_predictions_without_terms(posterior, frame):
    result = frame[:20]
    mean, _ = posterior.predict(result)
    without, _ = posterior.predict(result, without="s(x)")
    np.testing.assert_allclose(mean - without, posterior.curve("s(x)", result).columns["mean"], atol=LOSSES)
    both, _ = posterior.predict(result, without=("s(x)", "g"))
    effects = posterior.effects("g").to_frame()["mean"].loc[result.g]
    np.testing.assert_allclose(without - both, effects, atol=LOSSES)
    rows = posterior.rows(result, without="s(x)")
    np.testing.assert_allclose(posterior.expected(rows), without, atol=LOSSES)
    with pytest.raises(ValueError, match=r"without must be one of 'g', 's\(x\)', 'rw1\(t\)', got 'x'"):
        posterior.predict(result, without="x")


def test_differences_have_the_covariance_of_both_points(posterior):
    """Against the joint posterior of two points, and zero at the reference itself."""
    table = posterior.curve("s(x)", {"x": [2.0, 5.0]}, reference={"x": 5.0}).columns
    draws = posterior.sample_curve("s(x)", 20000, 0, {"x": [2.0, 5.0]})
    difference = draws[:, 0] - draws[:, 1]
    assert abs(difference.mean() - table["mean"][0]) < 4 * table["sd"][0] / np.sqrt(len(draws))
    assert difference.std() == pytest.approx(table["sd"][0], rel=0.03)
    np.testing.assert_allclose([table["mean"][1], table["sd"][1]], 0.0, atol=AT_REST)


def test_derivatives_are_limits_of_differences(posterior):
    x, step = np.linspace(1.0, 9.0, 7), 1e-5
    slope = posterior.curve("s(x)", {"x": x}, derivative=True).columns
    up, down = (posterior.curve("s(x)", {"x": x + way * step}).columns["mean"] for way in (1, -1))
    np.testing.assert_allclose(slope["mean"], (up - down) / (2 * step), atol=SLOPES)


def test_what_is_beyond_the_range_is_that_of_a_wider_one():
    """Knots to 1.5 hold the function between 1 and 1.5, with sd(1.5) = 1.5^1.5 sd(1) for the same noise."""
    x = np.linspace(0.0, 1.0, 60)
    table, bands = {"x": x, "y": np.sin(6.0 * x) + 0.1 * np.cos(99.0 * x)}, []
    differences = []
    for end in (1.0, 1.5):
        model = cavity.MixedGLM(
            [Smooth("x", knots=np.linspace(0.0, end, round(200 * end) + 1))],
            cavity.likelihoods.Gaussian(0.01),
            prior_variance=1e6,
            effect_covariances={"s(x)": {"sd": 0.5 * end**1.5}},
        )
        posterior = model.fit(np.ones((60, 1)), table["y"], groups=table)
        bands.append(posterior.curve("s(x)", {"x": [0.5, 1.0, 1.1, 1.3, 1.5]}, derivative=True).columns)
        at = {"x": [0.5, 1.3, 1.1, 1.4]}
        curves = (posterior.curve("s(x)", at, reference={"x": 1.3}, derivative=slope) for slope in (False, True))
        differences.append([table.columns for table in curves])
    for column in ("mean", "sd"):
        np.testing.assert_allclose(bands[0][column], bands[1][column], rtol=0.02)
        for one, other in zip(*differences, strict=True):
            np.testing.assert_allclose(one[column], other[column], rtol=0.02, atol=SLOPES)
    assert bands[0]["sd"][4] > 2.0 * bands[0]["sd"][1]


@pytest.mark.parametrize("group", [None, "g"])
def test_differences_off_the_states_of_a_walk_are_those_of_more_states(group):
    """Rows of nearly no weight add states between and beyond the times of the others."""
    times, extra = np.array([0.0, 1.0, 2.5, 4.0, 7.0]), np.array([-2.0, -0.5, 2.8, 3.5, 8.0, 9.5])
    extra = extra if group is None else np.abs(extra)  # walks of groups begin at the first state
    t, rng = np.tile(times, 8), np.random.default_rng(0)
    y, posteriors = np.sin(t) + 0.3 * rng.normal(size=40), []
    for added in ([], np.tile(extra, 2)):
        n = len(added)
        table = {"t": np.append(t, added), "g": np.append(np.repeat(["u", "v"], 20), np.repeat(["u", "v"], n // 2))}
        walk = RandomWalk("t", group=group)
        prior = walk.build(table).prior
        sds = {p.name: 1.0 for p in prior.parameters}
        sds["sd"] = float(prior.evaluate([0.0] * len(sds)).coefficients[0] ** 0.5)  # steps of variance 1 a unit of time
        settings = {"prior_variance": 1e6, "effect_covariances": {walk.name: sds}}
        model = cavity.MixedGLM([walk], cavity.likelihoods.Gaussian(0.1), **settings)
        weights = np.append(np.ones(40), np.full(n, 1e-12))
        posteriors.append(
            model.fit(np.ones((40 + n, 1)), np.append(y, np.zeros(n)), groups=table, sample_weight=weights)
        )
    level = {} if group is None else {"g": "v"}
    for origin in (extra[1], 3.5, 8.0, 1.0):
        tables = [
            p.curve(walk.name, {"t": np.append(extra, 1.0)} | level, reference={"t": origin} | level)
            for p in posteriors
        ]
        for column in ("mean", "sd"):
            one, other = (table.columns[column] for table in tables)
            np.testing.assert_allclose(one, other, rtol=SLOPES, atol=SLOPES)


def test_degrees_of_freedom_are_those_of_dense_algebra(frame):
    """Of Gaussian noise: the trace of the smoother beside the line and the intercept."""
    arguments = {"s(x)": 0.5}
    model = cavity.MixedGLM(
        "y ~ s(x, k=8)", cavity.likelihoods.Gaussian(0.3), prior_variance=1e8, effect_covariances=arguments
    )
    posterior = model.fit(frame)
    table = posterior.term_summary()
    assert table.columns["of"].tolist() == [6.0]
    assert table.columns["sd"].tolist() == [pytest.approx(np.sqrt(0.5))]
    assert table.columns["edf"][0] == pytest.approx(posterior.effective_parameters - 2.0, abs=SLOPES)


def test_more_knots_are_advised():
    rng = np.random.default_rng(0)
    x = np.linspace(0, 1, 300)
    posterior = cavity.GLM("y ~ s(x, k=6)").fit({"x": x, "y": np.sin(12 * x) + 0.01 * rng.normal(size=300)})
    assert "try a larger k" in posterior.term_summary().notes[0]
    t, noise = np.arange(300), 0.01 * rng.normal(size=300)
    cycle = {"t": t, "day": t % 7, "y": np.sin((t % 12) ** 2) + noise}
    table = cavity.GLM("y ~ s(t, period=12)").fit(cycle).term_summary()
    assert table.columns["edf"][0] > 0.9 * table.columns["of"][0]
    assert table.notes == ()
    cycle["y"] = np.sin((t % 12) ** 2 * (1 + t % 7)) + noise
    for k, is_advised in ((12, False), (11, True)):
        table = cavity.GLM(f"y ~ te(t, day, k=({k}, 7), period=(12, 7))", "gaussian").fit(cycle).term_summary()
        assert table.columns["edf"][0] > 0.8 * table.columns["of"][0]
        assert any("try a larger k" in note for note in table.notes) == is_advised


def test_the_table_of_variances_and_the_text_have_all_terms(posterior, tmp_path):
    names = posterior.variance_components().names
    assert {"sd(intercept | g)", "sd(s(x))", "sd(rw1(t))", "sd(residual)"} <= set(names)
    assert "s(x)" in repr(posterior)
    posterior.save(tmp_path / "fit.npz")
    restored = cavity.load(tmp_path / "fit.npz")
    np.testing.assert_array_equal(restored.curve("s(x)").columns["sd"], posterior.curve("s(x)").columns["sd"])
    assert repr(restored) == repr(posterior)


def test_curves_by_level_and_of_states(frame):
    posterior = cavity.GLM("y ~ s(x, by=f, k=6) + rw1(t)").fit(frame)
    table = posterior.curve("s(x, by=f)", n_points=5)
    assert list(table.columns)[:2] == ["x", "f"]
    assert table.columns["f"].tolist() == ["a"] * 5 + ["b"] * 5
    np.testing.assert_array_equal(posterior.curve("rw1(t)").columns["t"], np.arange(20))
    one = posterior.curve("s(x, by=f)", {"x": [1.0, 2.0], "f": "b"})
    assert one.columns["f"].tolist() == ["b", "b"]


def test_columns_by_their_numbers(frame):
    model = cavity.MixedGLM([cavity.terms.Smooth(0, k=6)], "gaussian", intercept=True)
    posterior = model.fit(frame[["x"]].to_numpy(), frame.y)
    one, other = (posterior.curve("s(0)", {key: [2.0, 3.0]}).columns["mean"] for key in (0, "0"))
    np.testing.assert_array_equal(one, other)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda p: p.curve("s(z)"), r"term must be one of 's\(x\)', 'rw1\(t\)', got 's\(z\)'"),
        (lambda p: p.curve("s(x)", {"z": [1.0]}), r"at must have the columns of s\(x\): 'x' missing"),
        (lambda p: p.curve("s(x)", [1.0]), "at must be a dict or data frame"),
        (lambda p: p.curve("rw1(t)", derivative=True), r"derivative must be False, as rw1\(t\) has no derivative"),
        (lambda p: p.curve("s(x)", n_points=1), "n_points must be at least 2"),
        (lambda p: p.curve("s(x)", level=1.5), "level must be"),
        (lambda p: p.effects("s(z)"), "term must be one of 'g', 's"),
    ],
)
def test_what_is_refused(posterior, call, message):
    with pytest.raises((ValueError, TypeError), match=message):
        call(posterior)


def test_games_rank_players():
    """Effects of several levels a row by the names of levels."""
    rng = np.random.default_rng(0)
    skill = np.array([1.0, 0.0, -1.0, 0.5])
    a = rng.integers(0, 4, 400)
    b = (a + rng.integers(1, 4, 400)) % 4
    won = rng.random(400) < 1 / (1 + np.exp(skill[b] - skill[a]))
    games = {"a": np.array(list("wxyz"))[a], "b": np.array(list("wxyz"))[b], "won": won}
    table = cavity.GLM("won ~ 0 + mm(a, b, weights=(1, -1))", "logit").fit(games).effects("mm(a, b)")
    assert table.names == ("w", "x", "y", "z")
    assert np.argsort(table.columns["mean"]).tolist() == [2, 1, 3, 0]
    posterior = cavity.GLM("won ~ 0 + mm(a, b, weights=(1, -1))", "logit").fit(games)
    np.testing.assert_allclose(posterior.curve("mm(a, b)", {"a": list("wxyz")}).columns["mean"], table.columns["mean"])
    draws = posterior.sample_curve("mm(a, b)", 4000, 0)
    np.testing.assert_allclose(draws.std(axis=0), table.columns["sd"], rtol=0.05)
    with pytest.raises(ValueError, match="effects must act in some row, got mm"):
        cavity.GLM("won ~ 0 + mm(a, a, weights=(1, -1))", "logit").fit(games)


def test_comparisons_warn_of_priors_that_differ():
    """Of the slopes of smooths, on which evidences depend by a constant that no data change."""
    x = np.linspace(0.0, 1.0, 40)
    y = np.sin(5.0 * x) + 0.1 * np.cos(77.0 * x)
    fits = {}
    for name, variance in (("a", 4.0), ("b", 9.0)):
        model = cavity.MixedGLM([Smooth("x")], "gaussian", prior_variance=variance)
        fits[name] = model.fit(np.ones((40, 1)), y, groups={"x": x})
    with pytest.warns(cavity.NumericalWarning, match="has prior variance 4 in 'a' and 9 in 'b'"):
        cavity.compare(fits)
    cavity.compare({"a": fits["a"], "again": fits["a"]})
