"""Predictions of rows with missing values: NaN there, in all others the bits of the complete rows alone."""

import numpy as np
import pytest
from scipy import sparse

import cavity

pd = pytest.importorskip("pandas")
pytest.importorskip("formulae")

RNG = np.random.default_rng(0)
N = 40
FRAME = pd.DataFrame({"a": RNG.normal(size=N), "b": RNG.normal(size=N)}, index=range(100, 100 + N))
FRAME["site"], FRAME["g"] = RNG.choice(["u", "v", "w"], N), RNG.choice(["p", "q"], N)
FRAME["off"], FRAME["not read"] = RNG.normal(size=N), np.nan
FRAME["y"] = FRAME["a"] + FRAME["off"] + 0.1 * RNG.normal(size=N)
FRAME["k"], FRAME["m"], FRAME["label"] = (
    RNG.poisson(2.0, N),
    5,
    np.where(FRAME["a"] + RNG.normal(size=N) > 0, "yes", "no"),
)
GAPS = FRAME.copy()
for row, name in ((3, "a"), (5, "site"), (7, "off"), (9, "g"), (11, "y")):
    GAPS[name] = GAPS[name].astype(object) if name in ("site", "g") else GAPS[name]
    GAPS.iloc[row, GAPS.columns.get_loc(name)] = None
COVARIANCE = cavity.covariances.RBF()
SITES = "y ~ a + site + (1 | g)"
POSTERIORS = {  # names of the columns of a fit, the rows that have gaps in them, and a fit
    "glm": (["a", "b", "k"], [3], lambda t: cavity.GLM("poisson", intercept=True).fit(t, "k")),
    "labels": (["a", "b", "label"], [3], lambda t: cavity.GLM("logit", intercept=True).fit(t, "label")),
    "gp": (
        ["a", "b", "off", "y"],
        [3, 7],
        lambda t: cavity.GaussianProcess(COVARIANCE).fit(t, "y", offset="off", learn=False),
    ),
    "stream": (["a", "b", "y"], [3], lambda t: cavity.StreamingGP(COVARIANCE).fit(t, "y", learn=False)),
    "linear": (["a", "b", "y"], [3], lambda t: cavity.LinearRegression(intercept=True).fit(t, "y")),
    "logistic": (["a", "b", "label"], [3], lambda t: cavity.LogisticRegression(intercept=True).fit(t, "label")),
    "formula": (list(FRAME), [3, 5, 7], lambda t: cavity.GLM("y ~ a + site", "gaussian").fit(t, offset="off")),
    "mixed": (
        list(FRAME),
        [3, 5, 7, 9],
        lambda t: cavity.MixedGLM(SITES, "gaussian", effect_covariances={"g": 0.5}).fit(t, offset="off"),
    ),
    "mixed by columns": (
        ["a", "b", "g", "y"],
        [3, 9],
        lambda t: cavity.MixedGLM(["g"], "gaussian", effect_covariances={"g": 0.5}, intercept=True).fit(t, "y"),
    ),
}


def fit(name):
    """Return a posterior, rows with gaps in the columns of its fit, and the numbers of those that have none."""
    columns, gaps, make = POSTERIORS[name]
    return make(FRAME[columns]), GAPS[columns], np.setdiff1d(np.arange(N), gaps)


def assert_filled(result, of_complete, complete):
    """Check one array, or moments, of all rows against those of the complete ones."""
    results, references = (item if isinstance(item, tuple) else (item,) for item in (result, of_complete))
    for values, reference in zip(results, references, strict=True):
        assert len(values) == N
        np.testing.assert_array_equal(values[complete], reference)
        assert np.isnan(np.delete(values, complete, axis=0)).all()


@pytest.mark.parametrize("name", POSTERIORS)
def test_predictions_keep_one_row_per_row(name):
    posterior, rows, complete = fit(name)
    part = rows.iloc[complete]
    assert_filled(posterior.predict(rows, missing="nan"), posterior.predict(part), complete)
    seen = np.setdiff1d(complete, [11]) if "y" in rows and name not in ("glm", "labels", "logistic") else complete
    density = posterior.log_density(rows, missing="nan")
    assert_filled(density, posterior.log_density(rows.iloc[seen]), seen)
    if posterior.classes:
        assert_filled(posterior.predict_proba(rows, missing="nan"), posterior.predict_proba(part), complete)
    else:
        assert_filled(posterior.expected(rows, missing="nan"), posterior.expected(part), complete)
        for q in (0.1, [0.1, 0.9]):
            assert_filled(posterior.quantile(rows, q, missing="nan"), posterior.quantile(part, q), complete)
    with pytest.raises(ValueError, match="; missing='nan' gives NaN in such rows$"):
        posterior.predict(rows)
    with pytest.raises(ValueError, match="missing must be one of 'raise', 'nan', got 'drop'"):
        posterior.predict(rows, missing="drop")


@pytest.mark.parametrize("name", POSTERIORS)
def test_no_row_is_complete(name):
    posterior, rows, _ = fit(name)
    rows = rows.iloc[:3].assign(a=np.nan)
    for moment in posterior.predict(rows, missing="nan"):
        np.testing.assert_array_equal(moment, np.full(3, np.nan))
    result = posterior.predict_proba(rows, missing="nan") if posterior.classes else None
    result = posterior.quantile(rows, [0.1, 0.9], missing="nan") if result is None else result
    np.testing.assert_array_equal(result, np.full((3, 2), np.nan))


@pytest.mark.parametrize("name", POSTERIORS)
def test_moments_as_a_frame(name):
    posterior, rows, _ = fit(name)
    mean, variance = posterior.predict(rows, missing="nan")
    frame = posterior.predict(rows, missing="nan", as_frame=True)
    pd.testing.assert_frame_equal(frame, pd.DataFrame({"mean": mean, "sd": np.sqrt(variance)}, index=rows.index))
    array = posterior.predict(rows.reset_index(drop=True), missing="nan", as_frame=True)
    assert array.index.tolist() == list(range(N))
    if posterior.classes:
        shares = posterior.predict_proba(rows, missing="nan", as_frame=True)
        assert (shares.columns.tolist(), shares.index.tolist()) == (["no", "yes"], rows.index.tolist())
    with pytest.raises(TypeError, match="as_frame must be True or False, got 1"):
        posterior.predict(rows, as_frame=1)


def test_arguments_have_their_rows():
    counts = cavity.GLM("p(k, m) ~ a", "binomial").fit(FRAME.assign(k=FRAME["k"].clip(0, 5)))
    complete = np.setdiff1d(np.arange(N), [3, 4])
    trials = np.arange(1.0, N + 1.0)
    trials[4] = np.nan
    part = counts.expected(GAPS.iloc[complete], trials=trials[complete].astype(int))
    assert_filled(counts.expected(GAPS, trials=trials, missing="nan"), part, complete)
    posterior, rows, complete = fit("gp")
    offset = np.where(np.arange(N) == 5, np.nan, 1.0)
    complete = np.setdiff1d(np.arange(N), [3, 5])
    part = posterior.predict(FRAME[["a", "b"]].iloc[complete], offset=1.0)
    assert_filled(posterior.predict(rows[["a", "b"]], offset=offset, missing="nan"), part, complete)


def test_files_collections_and_sparse_rows(tmp_path):
    dd = pytest.importorskip("dask.dataframe")
    X = GAPS[["a", "b"]]
    X.to_csv(tmp_path / "rows.csv", index=False)
    complete = np.setdiff1d(np.arange(N), [3])
    posterior = cavity.LinearRegression(intercept=True).fit(FRAME[["a", "b"]], FRAME["y"])
    assert_filled(
        posterior.predict(tmp_path / "rows.csv", missing="nan"), posterior.predict(X.iloc[complete]), complete
    )
    lazy = posterior.predict(dd.from_pandas(X, npartitions=3), missing="nan")
    assert [np.flatnonzero(np.isnan(moment.compute())).tolist() for moment in lazy] == [[3], [3]]
    formula = cavity.GLM("y ~ a", "gaussian").fit(FRAME)
    assert_filled(formula.predict(tmp_path / "rows.csv", missing="nan"), formula.predict(X.iloc[complete]), complete)
    model = cavity.GLM("poisson", approximation="diagonal", intercept=True)
    diagonal = model.fit(sparse.csr_array(FRAME[["a", "b"]].to_numpy()), FRAME["k"])
    rows = sparse.csr_array(X.to_numpy())
    assert_filled(diagonal.predict(rows, missing="nan"), diagonal.predict(rows[complete]), complete)


def test_groups_beside_the_rows():
    posterior, rows, complete = fit("mixed by columns")
    part = posterior.predict(rows.iloc[complete])
    X, groups = rows[["a", "b"]].to_numpy(), rows["g"].tolist()
    assert_filled(posterior.predict(X, groups=groups, missing="nan"), part, complete)
    assert_filled(posterior.predict(posterior.rows(X, groups), missing="nan"), part, complete)
    expected = posterior.expected(rows.iloc[complete], levels="new")
    assert_filled(posterior.expected(X, groups={"g": groups}, levels="new", missing="nan"), expected, complete)


def test_points_of_mixtures_and_clutter():
    points, complete = GAPS["a"].to_numpy(), np.setdiff1d(np.arange(N), [3])
    mixture = cavity.UnitMixture(2).fit(points, missing="drop")
    clutter = cavity.Clutter().fit(points, missing="drop")
    for method in (mixture.responsibilities, mixture.log_density, clutter.log_density, clutter.clutter_probability):
        assert_filled(method(points, missing="nan"), method(points[complete]), complete)
        with pytest.raises(ValueError, match="; missing='nan' gives NaN in such rows"):
            method(points)
    np.testing.assert_array_equal(mixture.responsibilities([np.nan], missing="nan"), [[np.nan, np.nan]])
    assert clutter.log_density(x=points[complete]).shape == (N - 1,)
