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


@pytest.mark.parametrize("name", data.names())
def test_tables_are_what_they_say(name):
    columns, about = data.table(name)
    assert about["title"]
    assert about["source"].endswith(("Measurements are facts of the public record.", "licence."))
    described = about.get("columns", {about.get("column", name): ""})
    assert list(described) == list(columns)
    assert about.get("target", next(iter(columns))) in columns
    assert {*about.get("units", ()), *about.get("categories", ())} <= columns.keys()
    (n,) = {len(values) for values in columns.values()}
    assert n > about.get("rows", 0)
    for column, values in columns.items():
        assert values.dtype.kind == "U" if column in about.get("categories", ()) else values.dtype.kind in "fU"
        assert values.dtype.kind == "U" or np.isfinite(values).all()


def test_numbers_that_are_categories_are_strings():
    columns, _ = data.table("cbpp")
    assert columns["period"][:5].tolist() == ["1", "2", "3", "4", "1"]
    assert columns["herd"].dtype == np.float64


@pytest.mark.parametrize(
    ("name", "group", "levels", "rows"),
    [
        ("cbpp", "herd", 15, 56),
        ("sleepstudy", "Subject", 18, 180),
        ("grouseticks", "BROOD", 118, 403),
        ("grouseticks", "LOCATION", 63, 403),
        ("contraception", "district", 60, 1934),
    ],
)
def test_groups(name, group, levels, rows):
    values = data.table(name)[0][group]
    assert (len(np.unique(values)), len(values)) == (levels, rows)


def test_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "pandas", None)
    with pytest.raises(ImportError, match="pip install pandas"):
        data.table("pima", as_frame=True)
