"""Columns by name, taken out of sources as out of tables in memory."""

import numpy as np
import pytest

import cavity
from cavity.sources.dataset import taken
from cavity.sources.sources import Source

pd = pytest.importorskip("pandas")

RNG = np.random.default_rng(0)
FRAME = pd.DataFrame(
    {"a": RNG.normal(size=40), "kind": ["u", "v"] * 20, "b": RNG.integers(0, 5, 40), "w": RNG.random(40)}
)


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


def test_a_source_is_taken_as_its_table():
    for X in (FRAME, cavity.source(FRAME)):
        rows, (y, weights), roles = taken(X, {"y": "kind", "sample_weight": "w"})
        assert (list(y), list(weights)) == (list(FRAME["kind"]), list(FRAME["w"]))
        assert roles == {"y": "kind", "sample_weight": "w"}
    assert isinstance(rows, Source)
    assert rows.names == ("a", "b")
    rows, (y,), _ = taken(cavity.source(FRAME), {"y": "kind"}, columns=("w", "b"), roles={"sample_weight": "a"})
    assert rows.names == ("w", "b")
    with pytest.raises(ValueError, match="y='c': X has no column 'c'; it has 'a'"):
        taken(cavity.source(FRAME), {"y": "c"})
    with pytest.raises(TypeError, match="X must hold real numbers, got text in column 'kind'"):
        taken(cavity.source(FRAME), {"y": "a"})


def test_files_without_names(tmp_path):
    np.save(tmp_path / "x.npy", FRAME[["a", "b"]].to_numpy())
    np.save(tmp_path / "y.npy", FRAME["w"].to_numpy())
    rows, (y, offset), roles = taken(tmp_path / "x.npy", {"y": str(tmp_path / "y.npy"), "offset": None})
    assert (rows.shape, roles, offset) == ((40, 2), None, None)
    np.testing.assert_array_equal(y, FRAME["w"])
    rows, (y,), _ = taken(FRAME[["a"]], {"y": [tmp_path / "y.npy", tmp_path / "y.npy"]})
    assert (type(rows), y.shape) == (pd.DataFrame, (80,))
    with pytest.raises(ValueError, match=r"y='w' is the name of a column, but X \(Source\) has none"):
        taken(tmp_path / "x.npy", {"y": "w"})
    assert taken(np.ones((2, 2)), {"y": ["a", "b"]})[1] == (["a", "b"],)
