"""Data frames and their columns, of three libraries: numbers of any type side by side, names kept, the rest refused."""

from decimal import Decimal

import numpy as np
import pytest
from support.glms import GLM

import cavity
from cavity import likelihoods
from cavity.base import frames
from cavity.base.arrays import check_finite_array
from cavity.runs.executors import Threads
from cavity.sources.sources import open_source

pd = pytest.importorskip("pandas")

TRUTH = np.array([[True, False, True], [1.5, -2.0, 0.25], [3, 4, 5]], dtype=np.float64).T
LIBRARIES = ("pandas", "pandas nullable", "pandas arrow", "polars", "arrow", "arrow batch")
Y = np.array([1.0, 0.0, 1.0])


def made(library, columns):
    """A table of named columns (lists, None for what is missing), as a library has it."""
    if library == "polars":
        return pytest.importorskip("polars").DataFrame(columns)
    if library.startswith("arrow"):
        arrow = pytest.importorskip("pyarrow")
        return (arrow.RecordBatch if library == "arrow batch" else arrow.Table).from_pydict(columns)
    frame = pd.DataFrame(columns)
    if library == "pandas nullable":
        return frame.convert_dtypes()
    if library == "pandas arrow":
        pytest.importorskip("pyarrow")
        return frame.convert_dtypes(dtype_backend="pyarrow")
    return frame


def mixed(library):
    """Truth values, numbers and integers side by side."""
    return made(library, {"flag": [True, False, True], "size": [1.5, -2.0, 0.25], "count": [3, 4, 5]})


def column(frame, name):
    """A column as its library has it."""
    return frame.column(name) if hasattr(frame, "column_names") else frame[name]


@pytest.mark.parametrize("library", LIBRARIES)
def test_numbers_of_several_types_side_by_side(library):
    frame = mixed(library)
    np.testing.assert_array_equal(check_finite_array(frame, "X"), TRUTH)
    assert frames.names_of(frame) == ("flag", "size", "count")
    for j, name in enumerate(("flag", "size", "count")):
        np.testing.assert_array_equal(check_finite_array(column(frame, name), "y"), TRUTH[:, j])
    with Threads(1) as threads:
        assert open_source(frame, "X", ndim=(2,)).summary(threads)[1].tolist() == [1.0, 1.5, 5.0]


MODELS = {
    "glm": lambda X, y: GLM(likelihoods.Probit()).fit(X, y, offset=y, sample_weight=y),
    "diagonal glm": lambda X, y: GLM(likelihoods.Probit(), approximation="diagonal").fit(X, y),
    "linear": lambda X, y: cavity.LinearRegression(intercept=False, prior_variance=1.0, noise_variance=1.0).fit(X, y),
    "logistic": lambda X, y: cavity.LogisticRegression(intercept=False).fit(X, y),
    "gp": lambda X, y: cavity.GaussianProcess(cavity.covariances.RBF()).fit(X, y, offset=y, learn=False),
    "streaming": lambda X, y: cavity.StreamingGP(cavity.covariances.RBF()).fit(X, y, sample_weight=y, learn=False),
    "clutter": lambda X, y: cavity.Clutter().fit(X),
}


@pytest.mark.parametrize("library", LIBRARIES)
@pytest.mark.parametrize("model", MODELS)
def test_models_take_tables(model, library):
    frame = mixed(library)
    result, expected = MODELS[model](frame, column(frame, "flag")), MODELS[model](TRUTH, Y)
    np.testing.assert_array_equal(result.mean, expected.mean)


@pytest.mark.parametrize("library", LIBRARIES)
def test_mixtures_take_tables(library):
    rng = np.random.default_rng(0)
    columns = {"a": rng.normal(size=60), "b": rng.integers(0, 9, 60), "c": rng.random(60) < 0.5}
    frame = made(library, {name: values.tolist() for name, values in columns.items()})
    X = np.column_stack(list(columns.values())).astype(float)
    posterior = cavity.GaussianMixture(1).fit(frame, sample_weight=column(frame, "b"))
    np.testing.assert_array_equal(posterior.mean, cavity.GaussianMixture(1).fit(X, sample_weight=X[:, 1]).mean)
    np.testing.assert_array_equal(posterior.log_density(frame), posterior.log_density(X))
    stream = cavity.GaussianMixture(1).fit_stochastic(iter([frame, frame]), n_samples=120)
    assert np.isfinite(stream.mean).all()
    posterior = cavity.UnitMixture(1).fit(column(frame, "b"))
    np.testing.assert_array_equal(posterior.mean, cavity.UnitMixture(1).fit(X[:, 1]).mean)


@pytest.mark.parametrize("library", LIBRARIES[1:])
def test_missing_values_are_named_by_row_and_column(library):
    frame = made(library, {"a": [1.0, 2.0, 3.0], "weight": [1, 2, None], "ok": [True, None, False]})
    with pytest.raises(ValueError, match=r"X must be finite, got nan in row 1, column 'ok' of X"):
        GLM(likelihoods.Probit()).fit(frame, Y)
    with pytest.raises(ValueError, match=r"X must be finite, got nan in row 1, column 'ok' of X"):
        cavity.GaussianMixture(1).fit(frame)
    with pytest.raises(ValueError, match=r"sample_weight must be finite, got sample_weight\[2\] = nan"):
        GLM(likelihoods.Probit()).fit(TRUTH, Y, sample_weight=column(frame, "weight"))
    with pytest.raises(ValueError, match=r"y must be finite, got y\[2\] = nan"):
        cavity.UnitMixture(1).fit(column(frame, "weight"))
    seen = cavity.GaussianMixture(1, covariance="diag").fit(frame)  # for which nan is a value not seen
    assert seen.mean[0] == pytest.approx([2.0, 1.5, 0.5])


def test_names_of_coefficients():
    assert frames.name_coefficients(("a", "b"), 3, True) == ("intercept", "a", "b")
    assert frames.name_coefficients(None, 2) == ("x1", "x2")
    assert MODELS["glm"](mixed("pandas"), Y).coefficient_names == ("flag", "size", "count")
    assert MODELS["linear"](TRUTH, Y).coefficient_names == ("x1", "x2", "x3")


TEXT = {
    "text": (["x", "y", "x"], "got text in column 'city' .*make one column of 0 and 1"),
    "dates": ([np.datetime64("2020-01-01").astype("O")] * 3, "got dates or times in column 'city' "),
}


@pytest.mark.parametrize("library", LIBRARIES)
@pytest.mark.parametrize("kind", TEXT)
def test_what_is_no_number_is_refused_by_name(library, kind):
    values, message = TEXT[kind]
    frame = made(library, {"a": [1.0, 2.0, 3.0], "city": values})
    with pytest.raises(TypeError, match=f"X must hold real numbers, {message}"):
        GLM(likelihoods.Probit()).fit(frame, Y)
    with pytest.raises(TypeError, match="y must hold real numbers, got dtype"):
        cavity.UnitMixture(1).fit(column(frame, "city"))


def test_categories_are_refused_by_name():
    polars, arrow = pytest.importorskip("polars"), pytest.importorskip("pyarrow")
    text = ["x", "y", "x"]
    for frame in (
        pd.DataFrame({"a": [1, 2, 3], "city": pd.Categorical(text)}),
        pd.DataFrame({"a": [1, 2, 3], "city": pd.Categorical([1, 2, 1])}),
        polars.DataFrame({"a": [1, 2, 3], "city": polars.Series(text, dtype=polars.Categorical)}),
        polars.DataFrame({"a": [1, 2, 3], "city": polars.Series(text, dtype=polars.Enum(["x", "y"]))}),
        arrow.table({"a": [1, 2, 3], "city": arrow.array(text).dictionary_encode()}),
    ):
        with pytest.raises(TypeError, match="got categories in column 'city' .*their codes if the order counts"):
            check_finite_array(frame, "X")
    for values, label in (
        (pd.to_datetime(["2020-01-01"] * 3), "dates"),
        (pd.to_timedelta([1, 2, 3]), "dates"),
        (pd.interval_range(0, 3), "other values"),
        ([1j, 2j, 3j], "other values"),
        ([1.0, [], 2.0], "other values"),
    ):
        with pytest.raises(TypeError, match=f"got {label}.* in column 'b'"):
            check_finite_array(pd.DataFrame({"a": [1, 2, 3], "b": values}), "X")
    with pytest.raises(TypeError, match="got other values in column 'b'"):
        check_finite_array(arrow.table({"a": [1, 2], "b": [{"c": 1.0}, {"c": 2.0}]}), "X")
    with pytest.raises(TypeError, match="X must be an array or a data frame, got a dict of columns; .*formula"):
        check_finite_array({"a": [1.0]}, "X")
    with pytest.raises(TypeError, match="X must be data, got a lazy frame .*collect"):
        check_finite_array(polars.DataFrame({"a": [1.0]}).lazy(), "X")


def test_decimals_sparse_columns_and_layouts():
    polars, arrow = pytest.importorskip("polars"), pytest.importorskip("pyarrow")
    prices = [Decimal("1.25"), None, Decimal("3.50")]
    for frame in (
        polars.DataFrame({"p": prices, "q": [1, 2, 3]}),
        arrow.table({"p": prices, "q": [1, 2, 3]}),
        pd.DataFrame({"p": pd.array(prices, dtype=pd.ArrowDtype(arrow.decimal128(5, 2))), "q": [1, 2, 3]}),
    ):
        np.testing.assert_array_equal(frames.to_numbers(frame, "X"), [[1.25, 1.0], [np.nan, 2.0], [3.5, 3.0]])
    sparse = pd.DataFrame({"a": pd.arrays.SparseArray([0.0, 0.0, 2.0]), "b": [1, 2, 3]})
    np.testing.assert_array_equal(check_finite_array(sparse, "X"), [[0, 1], [0, 2], [2, 3]])
    chunks = arrow.chunked_array([[1.0, 2.0], [3.0]])
    np.testing.assert_array_equal(check_finite_array(chunks, "y"), [1.0, 2.0, 3.0])
    single = pd.DataFrame(np.ones((4, 2), dtype=np.float32))
    assert open_source(single, "X", ndim=(2,)).parts[0].array.dtype == np.float32  # converted block by block
    full = np.ones((4, 2))
    assert np.shares_memory(frames.to_numbers(pd.DataFrame(full, copy=False), "X"), full)


def test_vectors_in_place_of_rows_are_told_what_to_do():
    y = np.arange(5.0)
    for fit in (
        lambda: cavity.GaussianMixture(1).fit(y),
        lambda: GLM(likelihoods.Gaussian()).fit(y, y),
        lambda: cavity.LinearRegression(intercept=False).fit(y, y),
        lambda: cavity.LogisticRegression(intercept=False).fit(y, y > 2),
        lambda: cavity.GaussianProcess(cavity.covariances.RBF()).fit(y, y),
        lambda: cavity.StreamingGP(cavity.covariances.RBF()).fit(y, y),
    ):
        with pytest.raises(ValueError, match=r"X must have 2 dimension\(s\), got shape \(5,\); X\[:, None\]"):
            fit()


def test_columns_of_frames_in_place_of_rows_are_told_what_to_do():
    y = pd.Series(np.arange(5.0))
    for fit in (
        lambda: cavity.GaussianMixture(1).fit(y),
        lambda: cavity.LinearRegression(intercept=False).fit(y, y),
        lambda: cavity.GaussianProcess(cavity.covariances.RBF()).fit(y, y),
        lambda: cavity.StreamingGP(cavity.covariances.RBF()).fit(y, y),
    ):
        with pytest.raises(ValueError, match=r"X must have 2 dimension\(s\), got shape \(5,\); X.to_frame\(\) makes"):
            fit()


def test_rows_in_another_order_are_refused():
    frame = pd.DataFrame({"a": [1.0, 2.0, 3.0], "b": [0.0, 1.0, 0.0]}, index=[7, 8, 9])
    y = pd.Series([1, 0, 1], index=[9, 8, 7])
    with pytest.raises(ValueError, match="y has the index of X in another order.*y.loc\\[X.index\\]"):
        frames.take_columns(frame, {"y": y})
    for good in (y.loc[frame.index], y.to_numpy(), y.reset_index(drop=True)):
        assert frames.take_columns(frame, {"y": good})[1][0] is good


@pytest.mark.parametrize("kind", ["pandas", "arrow"])
def test_columns_of_one_name_are_refused(kind):
    if kind == "pandas":
        frame = pytest.importorskip("pandas").DataFrame(np.random.default_rng(0).normal(size=(9, 3)), columns=[*"aba"])
    else:
        pa = pytest.importorskip("pyarrow")
        frame = pa.table([pa.array([1.0, 2.0, 4.0])] * 3, names=["a", "b", "a"])
    for fit in (
        cavity.GaussianMixture(1).fit,
        lambda X: cavity.GLM("gaussian", intercept=True).fit(X, np.arange(len(X))),
    ):
        with pytest.raises(ValueError, match="^X must have columns of different names, got two of the name 'a'"):
            fit(frame)


def test_integers_that_numpy_has_not_are_named():
    polars = pytest.importorskip("polars")
    frame = polars.DataFrame({"a": polars.Series([1, 2, 3], dtype=polars.Int128)})
    with pytest.raises(TypeError, match=r"X must hold real numbers, got other values in column 'a' \(dtype Int128\)"):
        cavity.GaussianMixture(1).fit(frame)
