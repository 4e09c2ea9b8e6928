"""Tables in place of arrays: read block by block, the same bits as the array of the same numbers."""

import pickle

import numpy as np
import pytest

import cavity
from cavity.base import frames
from cavity.runs.executors import Threads
from cavity.sources import sources
from cavity.sources.source_parts import FrameRows

pd = pytest.importorskip("pandas")
pl = pytest.importorskip("polars")
pytest.importorskip("pyarrow")

RNG = np.random.default_rng(0)
N, BLOCK = 500, 64
FRAME = pd.DataFrame(
    {
        "size": RNG.normal(size=N),
        "count": RNG.integers(0, 9, N),
        "flag": RNG.random(N) < 0.3,
        "small": RNG.normal(size=N).astype(np.float32),
        "maybe": pd.array(np.where(RNG.random(N) < 0.5, 1, 2), dtype="Int64"),
    },
    index=RNG.permutation(N),
)
X = FRAME.astype(float).to_numpy()
TABLES = {
    "pandas": FRAME,
    "pandas arrow": FRAME.convert_dtypes(dtype_backend="pyarrow"),
    "several arrays": pd.DataFrame(index=FRAME.index).assign(**{name: FRAME[name].astype(float) for name in FRAME}),
    "polars": pl.from_pandas(FRAME),
    "arrow": pl.from_pandas(FRAME).to_arrow(),
    "arrow batch": pl.from_pandas(FRAME).to_arrow().combine_chunks().to_batches()[0],
}


@pytest.fixture(autouse=True)
def _small_blocks(monkeypatch):
    monkeypatch.setattr("cavity.sources.blocks.ROWS_PER_CALL", BLOCK)


@pytest.mark.parametrize("kind", TABLES)
def test_the_same_bits_as_an_array(kind):
    source, array = sources.open_source(TABLES[kind], "X", ndim=(2,)), sources.open_source(X, "X", ndim=(2,))
    assert type(source.parts[0]) is FrameRows
    assert (source.shape, source.block_count) == (array.shape, array.block_count)
    for i in range(array.block_count):
        np.testing.assert_array_equal(source.read(i), array.read(i))
    np.testing.assert_array_equal(source.rows(100, 303), X[100:303])
    np.testing.assert_array_equal(source.columns([3, 1]).rows(), X[:, [3, 1]])
    with Threads(2) as threads:
        np.testing.assert_array_equal(source.summary(threads), array.summary(threads))
    restored = pickle.loads(pickle.dumps(source.parts[0]))
    np.testing.assert_array_equal(sources.Source([restored], "X").rows(), X)
    assert restored.columns == tuple(FRAME)


def test_frames_that_are_one_array_are_not_converted():
    full = np.ones((N, 3))
    assert sources.open_source(pd.DataFrame(full, copy=False), "X", ndim=(2,)).parts[0].array is not None
    assert np.shares_memory(sources.open_source(pd.DataFrame(full, copy=False), "X", ndim=(2,)).read(1), full)
    assert type(sources.open_source(FRAME[:BLOCK], "X", ndim=(2,)).parts[0]) is sources.ArrayRows  # one block


@pytest.mark.parametrize("kind", TABLES)
def test_columns_and_tables_of_one_column_are_vectors(kind):
    table = TABLES[kind]
    column = table.column("maybe") if kind.startswith("arrow") else table["maybe"]
    for data in (column, table.select(["maybe"]) if hasattr(table, "select") else table[["maybe"]]):
        source = sources.open_source(data, "y")
        assert source.shape == (N,)
        np.testing.assert_array_equal(source.rows(), X[:, 4])
    with pytest.raises(ValueError, match=r"y must have 1 dimension\(s\), got shape \(500, 5\)"):
        sources.open_source(table, "y")
    with pytest.raises(ValueError, match=r"X must have 2 dimension\(s\), got shape \(500,\); X"):
        sources.open_source(column, "X", ndim=(2,))


@pytest.mark.parametrize("kind", TABLES)
def test_mixtures_read_tables_block_by_block(kind):
    table = TABLES[kind]
    model = cavity.GaussianMixture(2, covariance="diag")
    result, expected = model.fit(table, max_iter=5, tol=1e9), model.fit(X, max_iter=5, tol=1e9)
    np.testing.assert_array_equal(result.mean, expected.mean)
    assert result.columns == tuple(FRAME)
    np.testing.assert_array_equal(result.log_density(table), expected.log_density(X))
    column = table.column("size") if kind.startswith("arrow") else table["size"]
    result, expected = (cavity.UnitMixture(2).fit(data, max_iter=5, tol=1e9) for data in (column, X[:, 0]))
    np.testing.assert_array_equal(result.mean, expected.mean)


def test_bad_entries_are_named_in_any_block():
    bad = FRAME.assign(maybe=FRAME["maybe"].where(np.arange(N) != 401))
    with pytest.raises(ValueError, match="X must be finite, got nan in row 401, column 'maybe' of X"):
        cavity.GaussianMixture(1).fit(bad)
    with pytest.raises(TypeError, match="got text in column 'word'"):
        cavity.GaussianMixture(1).fit(FRAME.assign(word="a"))


def test_weights_of_mixtures_by_name(tmp_path):
    frame = FRAME[["size", "small", "count"]]
    model = cavity.GaussianMixture(1)
    posterior = model.fit(frame, sample_weight="count")
    expected = model.fit(frame[["size", "small"]], sample_weight=frame["count"])
    np.testing.assert_array_equal(posterior.mean, expected.mean)
    np.testing.assert_array_equal(posterior.log_density(frame), expected.log_density(frame[["small", "size"]]))
    posterior.save(tmp_path / "p.npz")
    restored = cavity.load(tmp_path / "p.npz")
    assert (restored.columns, restored.roles) == (("size", "small"), {"sample_weight": "count"})
    more, expected = (
        restored.update(frame[:9]),
        expected.update(frame[["size", "small"]][:9], sample_weight=frame["count"][:9]),
    )
    np.testing.assert_array_equal(more.mean, expected.mean)
    np.save(tmp_path / "w.npy", frame["count"].to_numpy())
    paths = model.fit(frame[["size", "small"]], sample_weight=str(tmp_path / "w.npy"))
    np.testing.assert_array_equal(paths.mean, posterior.mean)
    chosen = cavity.select_components(cavity.GaussianMixture(1), frame, [1, 2], sample_weight="count").best
    assert chosen.roles == {"sample_weight": "count"}


def test_unit_mixtures_know_the_name_of_their_column(tmp_path):
    model = cavity.UnitMixture(2)
    for y in (FRAME["size"], FRAME[["size"]], TABLES["polars"]["size"]):
        posterior = model.fit(y)
        assert posterior.columns == ("size",)
        posterior.save(tmp_path / "p.npz")
        restored = cavity.load(tmp_path / "p.npz")
        np.testing.assert_array_equal(restored.log_density(FRAME[["size"]]), posterior.log_density(X[:, 0]))
        assert restored.update(X[:9, 0]).columns == ("size",)
    assert model.fit(X[:, 0]).columns is None
    with pytest.raises(ValueError, match="y must have the columns of the fit: 'size' missing; there is 'count'"):
        posterior.log_density(FRAME[["count"]])


@pytest.mark.long_cases("pandas")
@pytest.mark.parametrize("kind", ["pandas", "polars"])
def test_streams_read_tables_block_by_block(kind, monkeypatch):
    for module in ("inducing_basis", "rows", "new_data_factor", "bound_increment"):
        monkeypatch.setattr(f"cavity.models.streaming_gp.{module}.ROWS_PER_BLOCK", BLOCK)
    y, table = np.sin(X[:, 0]), TABLES[kind]
    weights = 1.0 + np.arange(N) % 2
    for likelihood, target in ((cavity.likelihoods.Gaussian(0.1), y), (cavity.likelihoods.Probit(), y > 0)):
        model = cavity.StreamingGP(cavity.covariances.RBF(1.0, 3.0), likelihood, n_inducing=20)
        states = [model.fit(rows, target, sample_weight=weights, learn=False) for rows in (X, table)]
        assert states[0].log_bound == states[1].log_bound
        np.testing.assert_array_equal(states[0].predict(X), states[1].predict(table))
        assert states[1].columns == tuple(FRAME)
        half, turned = table[:250], table[250:][list(FRAME)[::-1]]
        more = model.fit(half, target[:250], learn=False).update(turned, target[250:])
        plain = model.fit(X[:250], target[:250], learn=False).update(X[250:], target[250:])
        assert more.log_bound == plain.log_bound
    with pytest.raises(ValueError, match="X must be finite, got nan in row 401, column 'maybe' of X"):
        model.fit(FRAME.assign(maybe=FRAME["maybe"].where(np.arange(N) != 401)), y > 0, learn=False)


@pytest.mark.parametrize("kind", TABLES)
def test_large_tables_are_converted_in_pieces(kind, set_sizes):
    set_sizes(MAX_NUMBERS_CONVERTED_AT_ONCE=37)
    np.testing.assert_array_equal(frames.convert_rows(TABLES[kind], 3, 401), X[3:401])
    column = TABLES[kind].column("maybe") if kind.startswith("arrow") else TABLES[kind]["maybe"]
    np.testing.assert_array_equal(frames.convert_rows(column), X[:, 4])
