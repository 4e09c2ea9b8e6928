"""`cavity fit mixture` and `cavity predict` as people use them, and the data they are shown with."""

import numpy as np
import pytest

from cavity import data


def test_faithful_is_that_of_r():
    columns, about = data.table("faithful")
    assert list(columns) == list(about["columns"]) == ["eruptions", "waiting"]
    table = np.column_stack(list(columns.values()))
    assert table.shape == (272, 2)
    # summary(faithful) and cov(faithful) as R prints them
    assert table.min(axis=0).tolist() == [1.6, 43.0]
    assert np.median(table, axis=0).tolist() == [4.0, 76.0]
    assert table.max(axis=0).tolist() == [5.1, 96.0]
    assert table.mean(axis=0) == pytest.approx([3.487783, 70.897059], abs=5e-7)
    assert np.cov(table.T).ravel() == pytest.approx([1.302728, 13.977808, 13.977808, 184.823312], abs=5e-7)
