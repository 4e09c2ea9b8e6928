"""Shipped tables as dictionaries and as data frames."""

import sys

import numpy as np
import pytest

from cavity import data

pd = pytest.importorskip("pandas")


def test_tables_as_frames():
    frame, about = data.table("pima", as_frame=True)
    columns, same = data.table("pima")
    assert isinstance(frame, pd.DataFrame)
    assert (list(frame), about) == (list(columns), same)
    for name, values in columns.items():
        np.testing.assert_array_equal(frame[name], values)


def test_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "pandas", None)
    with pytest.raises(ImportError, match="pip install pandas"):
        data.table("pima", as_frame=True)
