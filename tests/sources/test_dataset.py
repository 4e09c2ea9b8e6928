"""Columns by name, taken out of sources as out of tables in memory."""

import tracemalloc

import numpy as np
import pytest

import cavity
from cavity.models.observations import Observations
from cavity.sources.dataset import IN_FILES, IN_MEMORY, ON_WORKERS, Dataset
from cavity.sources.features import open_features
from cavity.sources.sources import Source

pd = pytest.importorskip("pandas")

RNG = np.random.default_rng(0)
FRAME = pd.DataFrame(
    {"a": RNG.normal(size=40), "kind": ["u", "v"] * 20, "b": RNG.integers(0, 5, 40), "w": RNG.random(40)}
)
ROWS = np.arange(12.0).reshape(6, 2)
WEIGHTS = np.arange(6.0)


def test_columns_of_a_source():
    source = cavity.source(FRAME)
    assert (source.shape, source.names, len(source), source.in_memory) == ((40, 4), tuple(FRAME), 40, True)
    np.testing.assert_array_equal(source.column("b").rows(), FRAME["b"])
    assert source.values("kind").tolist() == FRAME["kind"].tolist()
    numbers = source.without(["kind"])
    assert numbers.names == ("a", "b", "w")
    np.testing.assert_array_equal(numbers.rows(3, 9), FRAME[["a", "b", "w"]][3:9])
    assert cavity.source(FRAME, columns="w").shape == (40,)
    assert cavity.source(FRAME, columns=["w", "a"]).names == ("w", "a")
    np.testing.assert_array_equal(
        cavity.source(FRAME.to_numpy()[:, [0, 3]].astype(float), columns=1).rows(), FRAME["w"]
    )
    with pytest.raises(ValueError, match="data has no column 'c'; it has 'a', 'kind', 'b', 'w'"):
        cavity.source(FRAME, columns=["a", "c"])
    with pytest.raises(ValueError, match="no column 'c'; it has 2 columns without names"):
        cavity.source(np.ones((3, 2)), columns="c")
    with pytest.raises(TypeError, match="X must hold real numbers, got text in column 'kind'"):
        cavity.GaussianMixture(1).fit(source)


def test_a_source_is_opened_as_its_table():
    for X, kind in ((FRAME, IN_MEMORY), (cavity.source(FRAME), IN_FILES)):
        dataset = Dataset.open(X, {"y": "kind", "sample_weight": "w"})
        assert list(dataset.column("y")) == list(FRAME["kind"])
        assert list(dataset.column("sample_weight")) == list(FRAME["w"])
        assert (dataset.roles, dataset.kind) == ({"y": "kind", "sample_weight": "w"}, kind)
        assert (dataset.names, dataset.shape, dataset.n_rows) == (("a", "b"), (40, 2), 40)
        np.testing.assert_array_equal(dataset.blocks().rows(), FRAME[["a", "b"]])
    assert type(dataset.in_memory().X) is np.ndarray
    later = Dataset.open(cavity.source(FRAME), {"y": "kind"}, names=("w", "b"), roles={"sample_weight": "a"})
    assert later.names == ("w", "b")
    with pytest.raises(ValueError, match="y='c': X has no column 'c'; it has 'a'"):
        Dataset.open(cavity.source(FRAME), {"y": "c"})
    with pytest.raises(TypeError, match="X must hold real numbers, got text in column 'kind'"):
        Dataset.open(cavity.source(FRAME), {"y": "a"})


def test_files_without_names(tmp_path):
    np.save(tmp_path / "x.npy", FRAME[["a", "b"]].to_numpy())
    np.save(tmp_path / "y.npy", FRAME["w"].to_numpy())
    dataset = Dataset.open(tmp_path / "x.npy", {"y": str(tmp_path / "y.npy"), "offset": None})
    assert (dataset.shape, dataset.roles, dataset.column("offset")) == ((40, 2), None, None)
    np.testing.assert_array_equal(dataset.column("y"), FRAME["w"])
    dataset = Dataset.open(FRAME[["a"]], {"y": [tmp_path / "y.npy", tmp_path / "y.npy"]})
    assert (type(dataset.X), dataset.column("y").shape) == (pd.DataFrame, (80,))
    with pytest.raises(ValueError, match=r"y='w' is the name of a column, but X \(Source\) has none"):
        Dataset.open(tmp_path / "x.npy", {"y": "w"})
    assert Dataset.open(np.ones((2, 2)), {"y": ["a", "b"]}).column("y") == ["a", "b"]


def test_arrays_in_memory_are_not_copied():
    X, y, weights = np.ones((400_000, 5)), np.arange(400_000.0), np.ones(400_000)
    tracemalloc.start()
    try:
        dataset = Dataset.open(X, {"y": y, "sample_weight": weights, "offset": None})
        observations = Observations.of(cavity.likelihoods.Gaussian(), dataset)
        rows = observations.rows(open_features(dataset, "full"))
        most = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert dataset.X is X
    assert all(np.shares_memory(*pair) for pair in ((rows.X, X), (rows.y, y), (rows.weights, weights)))
    assert most < 0.2 * X.nbytes  # a mask of what is finite


@pytest.mark.parametrize(
    ("X", "error", "message"),
    [
        (iter([1.0, 2.0]), TypeError, "one-shot iterator"),
        (3.0, ValueError, "X must have 2 dimension"),
        (None, TypeError, "X must be an array or data frame of numbers, got NoneType"),
        ({"a": [1.0]}, TypeError, "X must be an array or a data frame, got a dict of columns"),
        (b"x.csv", TypeError, r"X must hold real numbers, got dtype \|S5"),
        ("nowhere.csv", FileNotFoundError, "nowhere.csv"),
    ],
)
def test_what_cannot_be_opened_is_named(X, error, message):
    with pytest.raises(error, match=message):
        Dataset.open(X, {"y": [1.0]}).n_rows  # noqa: B018


def test_remote_collections_stay_where_they_are():
    da = pytest.importorskip("dask.array")
    rows = np.random.default_rng(0).normal(size=(40_000, 3))
    X = da.from_array(rows, chunks=(20_000, 3))
    with pytest.raises(TypeError, match="X is a collection of dask"):
        Dataset.open(X)
    dataset = Dataset.open(X, {"y": X[:, 0]}, remote=True)
    assert (dataset.kind, dataset.shape) == (ON_WORKERS, (40_000, 3))
    np.testing.assert_array_equal(dataset.column("y"), rows[:, 0])


@pytest.mark.parametrize("suffix", [".npy", ".csv"])
def test_streamed_columns_stay_in_their_files(tmp_path, suffix):
    path = tmp_path / f"weights{suffix}"
    if suffix == ".npy":
        np.save(path, WEIGHTS)
    else:
        np.savetxt(path, WEIGHTS, header="w", comments="")
    read = Dataset.open(ROWS, {"sample_weight": path}, remote=True).sources()
    dataset = Dataset.open(ROWS, {"sample_weight": path}, remote=True, streamed=("sample_weight",))
    assert isinstance(dataset.columns["sample_weight"], Source)
    for sources in (read, dataset.sources()):
        assert list(sources) == ["X", "sample_weight"]
        np.testing.assert_array_equal(sources["sample_weight"].rows(), WEIGHTS)
        np.testing.assert_array_equal(sources["X"].rows(), ROWS)


def test_columns_that_were_not_given_are_no_sources():
    dataset = Dataset.open(ROWS, {"sample_weight": None}, streamed=("sample_weight",))
    assert dataset.sources()["sample_weight"] is None


def test_names_of_columns_are_taken_from_tables_though_they_are_streamed():
    table = pd.DataFrame({"a": ROWS[:, 0], "b": ROWS[:, 1], "w": WEIGHTS})
    dataset = Dataset.open(table, {"sample_weight": "w"}, streamed=("sample_weight",))
    assert (dataset.names, dataset.roles) == (("a", "b"), {"sample_weight": "w"})
    np.testing.assert_array_equal(dataset.sources()["sample_weight"].rows(), WEIGHTS)


def test_vectors_in_memory_and_in_files(tmp_path):
    path = tmp_path / "y.npy"
    np.save(path, WEIGHTS)
    for y in (WEIGHTS, WEIGHTS.tolist(), path):
        np.testing.assert_array_equal(Dataset.open(y, name="y").vector(), WEIGHTS)
    np.save(path, [0.0, np.nan])
    for y in ([0.0, np.nan], path):
        with pytest.raises(ValueError, match="y must be finite, got .*nan"):
            Dataset.open(y, name="y").vector()
    with pytest.raises(ValueError, match="y must have 1 dimension"):
        Dataset.open(ROWS, name="y").vector()
