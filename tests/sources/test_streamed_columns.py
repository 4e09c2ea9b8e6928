"""Datasets: columns that stay in their files, features and columns as blocks, a vector in memory."""

import numpy as np
import pytest

from cavity.sources.dataset import Dataset
from cavity.sources.sources import Source

X = np.arange(12.0).reshape(6, 2)
WEIGHTS = np.arange(6.0)


@pytest.mark.parametrize("suffix", [".npy", ".csv"])
def test_streamed_columns_stay_in_their_files(tmp_path, suffix):
    path = tmp_path / f"weights{suffix}"
    if suffix == ".npy":
        np.save(path, WEIGHTS)
    else:
        np.savetxt(path, WEIGHTS, header="w", comments="")
    read = Dataset.open(X, {"sample_weight": path}, remote=True).sources()
    dataset = Dataset.open(X, {"sample_weight": path}, remote=True, streamed=("sample_weight",))
    assert isinstance(dataset.columns["sample_weight"], Source)
    for sources in (read, dataset.sources()):
        assert list(sources) == ["X", "sample_weight"]
        np.testing.assert_array_equal(sources["sample_weight"].rows(), WEIGHTS)
        np.testing.assert_array_equal(sources["X"].rows(), X)


def test_columns_that_were_not_given_are_no_sources():
    dataset = Dataset.open(X, {"sample_weight": None}, streamed=("sample_weight",))
    assert dataset.sources()["sample_weight"] is None


def test_names_of_columns_are_taken_from_tables_though_they_are_streamed():
    pandas = pytest.importorskip("pandas")
    table = pandas.DataFrame({"a": X[:, 0], "b": X[:, 1], "w": WEIGHTS})
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
        Dataset.open(X, name="y").vector()
