"""Rows without missing values of datasets of every kind, against masks made by hand."""

import numpy as np
import pytest
from scipy import sparse

from cavity.base.missing_values import DroppedRows, join_dropped
from cavity.sources.dataset import Dataset

pd = pytest.importorskip("pandas")
pl = pytest.importorskip("polars")
pa = pytest.importorskip("pyarrow")

X = np.arange(12.0).reshape(6, 2)
X[1, 1] = X[4, 0] = np.nan
OFFSET = np.array([0.0, 1.0, 2.0, np.nan, 4.0, 5.0])
COMPLETE = [0, 2, 5]
FRAME = pd.DataFrame({"a": X[:, 0], "b": X[:, 1], "off": OFFSET})
KINDS = {
    "array": lambda path: X,
    "list": lambda path: X.tolist(),
    "None in a list": lambda path: [[None if np.isnan(value) else value for value in row] for row in X],
    "pandas": lambda path: FRAME,
    "polars": lambda path: pl.DataFrame(FRAME.to_dict("list")),
    "arrow": lambda path: pa.table(FRAME.to_dict("list")),
    "CSR": lambda path: sparse.csr_array(X),
    "npy": lambda path: np.save(path / "X.npy", X) or path / "X.npy",
    "CSV": lambda path: FRAME.to_csv(path / "X.csv", index=False) or path / "X.csv",
}


@pytest.mark.parametrize("kind", KINDS)
def test_rows_without_missing_values(kind, tmp_path):
    table = KINDS[kind](tmp_path)
    named = kind in ("pandas", "polars", "arrow", "CSV")
    dataset = Dataset.open(table, {"offset": "off" if named else OFFSET})
    complete = dataset.leave_out("drop")
    assert dataset.dropped is None
    columns = {"a": 1, "b": 1, "off": 1} if named else {"X[:, 0]": 1, "X[:, 1]": 1, "offset": 1}
    assert complete.dropped == DroppedRows(3, columns)
    np.testing.assert_array_equal(np.asarray(complete.column("offset")), OFFSET[COMPLETE])
    values = complete.X.toarray() if kind == "CSR" else complete.X
    values = complete.blocks().rows() if kind in ("npy", "CSV") else np.asarray(values, dtype=float)
    np.testing.assert_array_equal(values, X[COMPLETE])
    assert dataset.leave_out("raise") is dataset


def test_columns_of_arguments_in_files(tmp_path):
    np.save(tmp_path / "offset.npy", OFFSET)
    complete = Dataset.open(X, {"offset": tmp_path / "offset.npy", "y": np.arange(6)}).leave_out("drop")
    assert complete.dropped.n_rows == 3
    np.testing.assert_array_equal(complete.column("offset"), OFFSET[COMPLETE])
    np.testing.assert_array_equal(complete.column("y"), COMPLETE)


def test_a_feature_and_an_argument_of_one_name_count_apart():
    table = pd.DataFrame({"offset": [1.0, np.nan, 2.0], "b": [1.0, 2.0, 3.0]})
    complete = Dataset.open(table, {"offset": [0.0, 0.0, np.nan]}).leave_out("drop")
    assert complete.dropped == DroppedRows(2, {"offset": 1, "argument offset": 1})
    assert complete.n_rows == 1


def test_dates_and_vectors():
    dates = np.array(["2020-01-01", "NaT", "2020-01-03"], dtype="M8[D]")
    assert Dataset.open(dates[:, None]).leave_out("drop").dropped == DroppedRows(1, {"X[:, 0]": 1})
    assert Dataset.open(np.array([1.0, np.nan]), name="y").leave_out("drop").dropped == DroppedRows(1, {"y": 1})


def test_no_row_is_left(tmp_path):
    np.save(tmp_path / "X.npy", np.full((3, 2), np.nan))
    for table in (np.full((3, 2), np.nan), tmp_path / "X.npy"):
        with pytest.raises(ValueError, match="X must have rows without missing values, got none"):
            Dataset.open(table).leave_out("drop")
        none = Dataset.open(table).leave_out("drop", needs_rows=False)
        assert none.dropped.n_rows == 3
        assert none.X.shape == (0, 2)


def test_what_cannot_be_left_out_is_refused():
    with pytest.raises(ValueError, match="X must have 1 or 2 dimensions to leave out rows"):
        Dataset.open(np.ones((2, 2, 2))).leave_out("drop")
    with pytest.raises(ValueError, match="missing must be one of 'raise', 'drop', got 'nan'"):
        Dataset.open(X).leave_out("nan")


def test_rows_left_out_of_several_fits_add_up():
    first, later = DroppedRows(3, {"a": 2, "b": 1}), DroppedRows(2, {"b": 1, "c": 1})
    assert join_dropped(first, later) == DroppedRows(5, {"a": 2, "b": 2, "c": 1})
    assert join_dropped(None, later) is later
    assert join_dropped(first, None) is first
    assert join_dropped(None, None) is None
