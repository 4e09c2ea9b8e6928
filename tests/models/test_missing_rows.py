"""Rows with missing values in fits: left out and counted, or refused with the way out."""

import numpy as np
import pytest

import cavity

pd = pytest.importorskip("pandas")

RNG = np.random.default_rng(0)
N = 30
X = RNG.normal(size=(N, 2))
Y = X[:, 0] + 0.1 * RNG.normal(size=N)
GAPS, Y_GAPS = X.copy(), Y.copy()
GAPS[3, 1], Y_GAPS[[3, 5]] = np.nan, np.nan
COMPLETE = np.setdiff1d(np.arange(N), [3, 5])
LABELS = np.where(Y_GAPS != Y_GAPS, None, np.where(Y > 0, "yes", "no"))
COVARIANCE = cavity.covariances.RBF()
REGRESSIONS = {
    "gp": (cavity.GaussianProcess(COVARIANCE), Y_GAPS, {"learn": False}),
    "classes": (cavity.GaussianProcess(COVARIANCE, "logit"), LABELS, {"learn": False}),
    "stream": (cavity.StreamingGP(COVARIANCE), Y_GAPS, {"learn": False}),
    "linear": (cavity.LinearRegression(intercept=True), Y_GAPS, {}),
    "logistic": (cavity.LogisticRegression(intercept=True), LABELS, {}),
    "glm": (cavity.GLM("gaussian", intercept=True), Y_GAPS, {}),
}
WAY_OUT = "; missing='drop' leaves such rows out"
NOTE = "2 rows with missing values left out (X[:, 1] 1, y 2)"


def moments_of(posterior):
    """Return the arrays by which posteriors of the same rows agree."""
    return [np.asarray(posterior.mean), np.asarray(getattr(posterior, "variance", posterior.mean))]


def assert_same(posterior, other):
    for values, expected in zip(moments_of(posterior), moments_of(other), strict=True):
        np.testing.assert_array_equal(values, expected)


@pytest.mark.parametrize("name", REGRESSIONS)
def test_regressions_leave_rows_out(name, tmp_path):
    model, y, options = REGRESSIONS[name]
    posterior = model.fit(GAPS, y, missing="drop", **options)
    assert_same(posterior, model.fit(X[COMPLETE], y[COMPLETE], **options))
    assert str(posterior.dropped) == NOTE
    assert NOTE in repr(posterior)
    assert NOTE in str(posterior.summary())
    posterior.save(tmp_path / "posterior.npz")
    assert cavity.load(tmp_path / "posterior.npz").dropped == posterior.dropped
    full = model.fit(X[COMPLETE], y[COMPLETE], missing="drop", **options)
    assert full.dropped is None
    assert "dropped" not in full.to_arrays()[1]


@pytest.mark.parametrize("name", REGRESSIONS)
def test_the_way_out_is_named(name):
    model, y, options = REGRESSIONS[name]
    y_complete = Y if y is Y_GAPS else np.where(Y > 0, "yes", "no")
    with pytest.raises(ValueError, match=rf"X must be finite, got X\[3, 1\] = nan{WAY_OUT}$"):
        model.fit(GAPS, y_complete, **options)
    with pytest.raises(ValueError, match=rf"^y must .*{WAY_OUT}$"):
        model.fit(X, y, **options)
    infinite = np.where(np.isnan(GAPS), np.inf, GAPS)
    with pytest.raises(ValueError, match=r"X must be finite, got X\[3, 1\] = inf$"):
        model.fit(infinite, y_complete, missing="drop", **options)


@pytest.mark.parametrize("name", ["gp", "stream", "linear", "glm"])
@pytest.mark.parametrize("kind", ["frame", "csv"])
def test_tables_and_files(name, kind, tmp_path):
    model, y, options = REGRESSIONS[name]
    table = pd.DataFrame({"a": GAPS[:, 0], "b": GAPS[:, 1], "y": y})
    table.to_csv(tmp_path / "rows.csv", index=False)
    rows = table if kind == "frame" else tmp_path / "rows.csv"
    posterior = model.fit(rows, "y", missing="drop", **options)
    assert_same(posterior, model.fit(table.dropna(), "y", **options))
    assert posterior.dropped.columns == {"b": 1, "y": 2}
    with pytest.raises(ValueError, match=WAY_OUT):
        model.fit(rows, "y", **options)


def test_columns_of_arguments():
    weights, offset, noise = np.ones(N), np.zeros(N), np.full(N, 0.1)
    weights[0], offset[1], noise[2] = np.nan, np.nan, np.nan
    model = cavity.GaussianProcess(COVARIANCE)
    columns = {"offset": offset, "sample_weight": weights, "noise_variance": noise}
    posterior = model.fit(X, Y, missing="drop", learn=False, **columns)
    assert posterior.dropped.columns == dict.fromkeys(columns, 1)
    rest = {name: column[3:] for name, column in columns.items()}
    assert_same(posterior, model.fit(X[3:], Y[3:], learn=False, **rest))
    with pytest.raises(ValueError, match=rf"noise_variance must be finite, got noise_variance\[2\] = nan{WAY_OUT}"):
        model.fit(X, Y, learn=False, noise_variance=noise)


def test_points_of_mixtures_and_clutter(tmp_path):
    for model in (cavity.UnitMixture(2), cavity.Clutter()):
        posterior = model.fit(Y_GAPS, missing="drop")
        assert_same(posterior, model.fit(Y_GAPS[~np.isnan(Y_GAPS)]))
        assert "2 rows with missing values left out" in repr(posterior)
        posterior.save(tmp_path / "posterior.npz")
        assert cavity.load(tmp_path / "posterior.npz").dropped.n_rows == 2
        np.save(tmp_path / "points.npy", Y_GAPS)
        assert model.fit(tmp_path / "points.npy", missing="drop").dropped == posterior.dropped
        with pytest.raises(ValueError, match=WAY_OUT):
            model.fit(Y_GAPS)
    rows = cavity.Clutter().fit(GAPS, missing="drop")
    assert_same(rows, cavity.Clutter().fit(np.delete(X, 3, axis=0)))
    with pytest.raises(ValueError, match="x must have 1 or 2 dimensions to leave out rows"):
        cavity.Clutter().fit(GAPS.reshape(2, -1, 2), missing="drop")


def test_updates_add_up():
    mixture = cavity.UnitMixture(2).fit(Y_GAPS, missing="drop")
    assert mixture.update(Y_GAPS, missing="drop").dropped.columns == {"y": 4}
    assert mixture.update(Y).dropped.columns == {"y": 2}
    process = cavity.GaussianProcess(COVARIANCE).fit(GAPS, Y_GAPS, missing="drop", learn=False)
    assert process.update(X[:2], Y[:2]).dropped == process.dropped
    clutter = cavity.Clutter().fit(Y_GAPS, missing="drop")
    assert clutter.update(Y[:2]).dropped == clutter.dropped


def test_streams_count_rows_left_out():
    model = cavity.StreamingGP(COVARIANCE)
    state = model.fit(GAPS[:10], Y_GAPS[:10], missing="drop", learn=False)
    reference = model.fit(X[:10][[0, 1, 2, 4, 6, 7, 8, 9]], Y[:10][[0, 1, 2, 4, 6, 7, 8, 9]], learn=False)
    for start in range(10, N):  # one row at a time, in place, and some that leave nothing
        state.update(X[start : start + 1], Y[start : start + 1], missing="drop")
        state.update(GAPS[3:4], Y[3:4], missing="drop")
        reference.update(X[start : start + 1], Y[start : start + 1])
    assert_same(state, reference)
    assert state.log_bound == reference.log_bound
    assert state.dropped.columns == {"X[:, 1]": 1 + N - 10, "y": 2}
    assert state.n_samples == N - 2
    state.update(GAPS[2:5], Y[2:5], missing="drop")
    assert state.dropped.n_rows == 2 + N - 10 + 1
    before = state.n_samples
    with pytest.raises(ValueError, match=rf"X\[0, 1\] = nan{WAY_OUT}"):
        state.update(GAPS[3:4], Y[3:4])
    with pytest.raises(ValueError, match="missing must be one of 'raise', 'drop', got 'omit'"):
        state.update(X[:1], Y[:1], missing="omit")
    assert state.n_samples == before
    merged = state.copy().merge(model.fit(GAPS, Y_GAPS, missing="drop", learn=False))
    assert merged.dropped.n_rows == state.dropped.n_rows + 2


def test_none_among_numbers_is_missing():
    with pytest.raises(TypeError, match=f"y must hold real numbers, got dtype object with None in row 1{WAY_OUT}"):
        cavity.LinearRegression(intercept=True).fit([[1.0], [2.0], [4.0]], [1.0, None, 2.0])
    posterior = cavity.LinearRegression(intercept=True).fit([[1.0], [2.0], [4.0]], [1.0, None, 2.0], missing="drop")
    assert posterior.n_samples == 2
