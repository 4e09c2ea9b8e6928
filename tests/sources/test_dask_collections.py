"""Collections of dask as sources: the rows they hold, however they are cut, and what is said of those that do not."""

import pickle

import numpy as np
import pandas as pd
import pytest
from support.tolerances import SOLVES

import cavity
from cavity.runs.executors import Threads
from cavity.sources import dask_collections
from cavity.sources.dataset import Dataset
from cavity.sources.sources import open_source, open_unchecked

dask = pytest.importorskip("dask")
da = pytest.importorskip("dask.array")
dd = pytest.importorskip("dask.dataframe")

N, BLOCK = 500, 64
X = np.random.default_rng(0).normal(size=(N, 3))
FRAME = pd.DataFrame(X, columns=["a", "b", "c"])


@pytest.fixture(autouse=True)
def nothing_is_small(monkeypatch):
    monkeypatch.setattr(dask_collections, "SMALL_ROWS", 0)


KINDS = {
    "array": lambda: da.from_array(X, chunks=(70, 3)),
    "chunks of columns": lambda: da.from_array(X, chunks=(130, 2)),
    "one chunk": lambda: da.from_array(X, chunks=X.shape),
    "small chunks": lambda: da.from_array(X, chunks=(7, 3)),
    "unknown chunks": lambda: (rows := da.from_array(X, chunks=(90, 3)))[rows[:, 0] > -100.0],
    "empty chunks": lambda: da.concatenate([da.zeros((0, 3)), da.from_array(X, chunks=(90, 3)), da.zeros((0, 3))]),
    "columns first": lambda: da.from_array(np.asfortranarray(X), chunks=(70, 3)),
    "frame": lambda: dd.from_pandas(FRAME, npartitions=4),
    "filtered frame": lambda: (rows := dd.from_pandas(FRAME, npartitions=4))[rows["a"] > -100.0],
    "persisted": lambda: dd.from_pandas(FRAME, npartitions=3).persist(),
}


@pytest.mark.parametrize("kind", KINDS)
def test_rows_are_those_of_the_array(kind):
    source = open_source(KINDS[kind](), "X", ndim=(2,), block_rows=BLOCK)
    assert source.shape == X.shape
    assert source.block_count == 8
    assert np.array_equal(source.rows(), X)
    assert np.array_equal(source.rows(65, 140), X[65:140])
    assert np.array_equal(source.column(1).rows(), X[:, 1])
    assert np.array_equal(source.columns([2, 0]).columns([1]).rows(60, 200), X[60:200, :1])
    assert np.array_equal(source.sample(100), X[::5])
    with Threads(1) as thread:
        truth = open_source(X, "X", ndim=(2,), block_rows=BLOCK).summary(thread)
        assert all(map(np.array_equal, source.summary(thread), truth))


@pytest.mark.parametrize("dtype", [np.float32, np.int16, bool])
def test_numbers_of_any_type_are_converted(dtype):
    rows = (10 * X).astype(dtype)
    assert np.array_equal(open_source(da.from_array(rows, chunks=(90, 2)), "X", ndim=(2,)).rows(), rows)


def test_vectors_and_series():
    for values in (da.from_array(X[:, 0], chunks=90), dd.from_pandas(FRAME["a"], npartitions=3)):
        source = open_source(values, "y", block_rows=BLOCK)
        assert source.shape == (N,)
        assert np.array_equal(source.rows(), X[:, 0])
        assert np.array_equal(source.columns([0]).rows(), X[:, :1])


def test_names_and_labels_of_frames():
    frame = dd.from_pandas(FRAME.assign(kind="x"), npartitions=3)
    source = open_unchecked(frame, "X")
    assert source.names == ("a", "b", "c", "kind")
    with pytest.raises(TypeError, match=r"got text in column 'kind'"):
        open_source(frame, "X", ndim=(2,))
    dataset = Dataset.open(frame[["a", "b", "c"]], {"y": "b"}, remote=True)
    left, y, roles = dataset.X, dataset.columns["y"], dataset.roles
    assert left.names == ("a", "c")
    assert roles == {"y": "b"}
    assert np.array_equal(y.rows(), X[:, 1])  # it was not read until now
    assert y.is_remote


def test_small_collections_are_read_at_once(monkeypatch):
    monkeypatch.setattr(dask_collections, "SMALL_ROWS", N)
    for values in (KINDS["array"](), KINDS["frame"]()):
        source = open_unchecked(values, "X")
        assert source.in_memory
        assert np.array_equal(source.rows(), X)
    assert source.names == ("a", "b", "c")


def test_messages_name_the_chunk():
    rows = X.copy()
    rows[407, 2] = np.inf
    source = open_source(da.from_array(rows, chunks=(100, 3)), "X", ndim=(2,))
    with Threads(1) as thread, pytest.raises(ValueError, match=r"X\[407, 2\] = inf \(row 7 of chunk 4\)"):
        source.summary(thread)
    assert source.describe_row(105) == "X[105] (row 5 of chunk 1)"


def test_a_copy_of_a_source_knows_words_alone():
    source = pickle.loads(pickle.dumps(open_source(KINDS["array"](), "X", ndim=(2,))))
    assert source.describe_row(75) == "X[75] (row 5 of chunk 1)"
    assert source.shape == X.shape


def test_what_is_not_read():
    with pytest.raises(TypeError, match=r"X must be a dask array of numpy arrays, or a dask data frame"):
        open_unchecked(dask.delayed(np.zeros)(3), "X")
    with pytest.raises(TypeError, match=r"X must hold real numbers, got dtype complex128"):
        open_unchecked(da.zeros((20, 2), dtype=complex), "X")
    with pytest.raises(ValueError, match=r"X must have 1 or 2 dimension"):
        open_unchecked(da.zeros((20, 2, 2)), "X")
    with pytest.raises(TypeError, match=r"X is a collection of dask, and this is done with the rows in one process"):
        cavity.GaussianMixture(2).fit_stochastic(da.from_array(X, chunks=(70, 3)))


def test_a_chunk_that_changes_is_told():
    sizes = iter([50] * 10)

    def rows(_):
        return np.zeros((next(sizes, 49), 2))

    lazy = da.map_blocks(rows, da.zeros((10, 1), chunks=(1, 1)), dtype=float, chunks=((np.nan,) * 10, (2,)), meta=X[:0])
    source = open_source(lazy, "X", ndim=(2,))
    with pytest.raises(ValueError, match=r"X: chunk 0 has 49 rows, not the 50 it had at first"):
        source.rows()


def test_cut_rows_are_views_where_they_can_be():
    cut = dask_collections.Cut((20, 3), ((0, N, 10, 30),), None, (), "X")
    assert np.shares_memory(cut([X]), X)
    assert not np.shares_memory(cut([np.asfortranarray(X)]), X)


def test_predictions_are_lazy_and_chunk_by_chunk():
    posterior = cavity.GaussianMixture(2, covariance="diag").fit(X)
    array, frame = da.from_array(X, chunks=(70, 2)), dd.from_pandas(FRAME, npartitions=3)
    for rows in (array, frame, frame[frame["a"] > 100.0]):
        truth = rows.compute()
        for method, tail in (("responsibilities", (2,)), ("predict", ()), ("log_density", ())):
            lazy = getattr(posterior, method)(rows)
            assert isinstance(lazy, da.Array)
            assert lazy.shape[1:] == tail
            result = lazy.compute()
            assert result.dtype == lazy.dtype
            if len(truth):
                assert np.array_equal(result, getattr(posterior, method)(truth))
            else:
                assert result.shape == (0, *tail)


def test_predictions_of_weights_are_lazy():
    y = X @ [1.0, 0.5, -0.3] + np.random.default_rng(1).normal(size=N)
    array = da.from_array(X, chunks=(70, 2))
    linear, logistic = (
        cavity.LinearRegression(intercept=False).fit(X, y),
        cavity.LogisticRegression(intercept=False).fit(FRAME, y > 0),
    )
    glm = cavity.GLM("probit", intercept=False).fit(X, y > 0)
    for posterior, rows in ((linear, array), (glm, array), (logistic, dd.from_pandas(FRAME, npartitions=3))):
        for lazy, truth in zip(posterior.predict(rows), posterior.predict(rows.compute()), strict=True):
            np.testing.assert_allclose(lazy.compute(), truth, rtol=SOLVES)
    np.testing.assert_allclose(glm.predict_proba(array).compute(), glm.predict_proba(X), rtol=SOLVES)
    frame = dd.from_pandas(FRAME.assign(y=(y > 0).astype(float)), npartitions=3)
    fitted = cavity.LogisticRegression(intercept=False).fit(frame.compute(), "y")
    np.testing.assert_allclose(
        fitted.log_density(frame, "y").compute(), fitted.log_density(frame.compute(), "y"), rtol=SOLVES
    )
    with pytest.raises(TypeError, match="offset must be a number or the name of a column"):
        glm.predict(array, offset=np.zeros(N))


def test_wrong_arguments_are_named_with_their_method():
    posterior = cavity.GLM("probit", prior_variance=1.0, intercept=False).fit(X, X[:, 0] > 0)
    calls = (lambda rows: posterior.predict(rows, 0.0), lambda rows: posterior.predict(rows, bias=0.0))
    for call in (*calls, lambda rows: posterior.log_density(rows, bias=0.0)):
        with pytest.raises(TypeError) as at_hand:
            call(X)
        with pytest.raises(TypeError) as remote:
            call(da.from_array(X, chunks=(70, 3)))
        assert str(remote.value) == str(at_hand.value)


@pytest.mark.parametrize("n", [30, 20_000])
def test_chunks_of_another_width_than_dask_knows_are_named(n):
    array = pytest.importorskip("dask.array")
    rows = array.from_array(np.ones((n, 2)), chunks=(n // 3 + 1, 2))
    wider = rows.map_blocks(lambda block: np.ones((len(block), 3)), dtype=float)
    with pytest.raises(
        ValueError, match=r"X: chunk 0 has shape \(\d+, 3\), and dask takes its rows to be of shape \(2,\)"
    ):
        cavity.GaussianMixture(1).fit(wider)
