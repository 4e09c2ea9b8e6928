"""Rows without a value: found in columns of every kind, named, left out."""

import numpy as np
import pytest

from cavity.base.missing_values import complete_rows, missing_mask, take_rows

pd = pytest.importorskip("pandas")
pl = pytest.importorskip("polars")
pa = pytest.importorskip("pyarrow")

COLUMNS = [
    np.array([1.0, np.nan, 3.0]),
    [1.0, None, 3.0],
    ["a", None, "c"],
    np.array(["a", None, "c"], dtype=object),
    np.array(["2001-01-01", "NaT", "2001-01-03"], dtype="datetime64[D]"),
    pd.Series([1.0, np.nan, 3.0], index=[5, 6, 7]),
    pd.Series([1, None, 3], dtype="Int64"),
    pd.Series(["a", None, "c"], dtype="category"),
    pl.Series([1.0, None, 3.0]),
    pl.Series([1.0, float("nan"), 3.0]),
    pl.Series(["a", None, "c"]),
    pa.chunked_array([[1.0, None], [3.0]]),
    pa.chunked_array([["a", None], ["c"]]),
    np.array([[1.0, 2.0], [np.nan, 2.0], [3.0, 4.0]]),
]


@pytest.mark.parametrize("column", COLUMNS, ids=lambda column: type(column).__name__)
def test_missing_values_of_every_kind(column):
    assert missing_mask(column).tolist() == [False, True, False]
    assert not missing_mask(take_rows(column, np.array([0, 2]))).any()
    assert len(take_rows(column, np.array([0, 2]))) == 2


@pytest.mark.parametrize("column", [np.arange(3), [1, 2, 3], ["a", "b", "c"], np.array([True, False, True])])
def test_columns_that_miss_nothing(column):
    assert not missing_mask(column).any()


def test_rows_are_left_out_or_named():
    columns = {"age": np.array([1.0, np.nan, 3.0, np.nan]), "name": ["a", "b", None, "d"], "sex": [0, 1, 0, 1]}
    index, dropped = complete_rows(columns, "drop")
    assert index.tolist() == [0]
    assert (dropped.n_rows, dropped.columns) == (3, {"age": 2, "name": 1})
    assert str(dropped) == "3 rows with missing values left out (age 2, name 1)"
    message = "'age' in 2 of 4 rows, the first is row 1; 'name' in 1 of 4 rows, the first is row 2; missing='drop'"
    with pytest.raises(ValueError, match=message):
        complete_rows(columns, "raise")
    assert complete_rows({"sex": [0, 1]}, "raise") == (None, None)
    with pytest.raises(ValueError, match="missing must be one of 'raise', 'drop', got 'omit'"):
        complete_rows(columns, "omit")
    with pytest.raises(
        ValueError, match="must have rows without missing values, got none: each has no value in one of 'a'"
    ):
        complete_rows({"a": [None, None]}, "drop")
