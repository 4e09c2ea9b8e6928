"""Rows in files indexed as an array is: slices, masks, repeated rows, changed rows, the ends of columns."""

import numpy as np
import pytest

from cavity.sources import stored_rows
from cavity.sources.sources import open_source
from cavity.sources.stored_rows import StoredRows

RNG = np.random.default_rng(0)
ROWS = RNG.normal(size=(1000, 3))


@pytest.fixture
def rows(tmp_path, monkeypatch):
    """The rows in two files, counted 64 at a time."""
    monkeypatch.setattr(stored_rows, "COUNTED_ROWS", 64)
    paths = [tmp_path / "a.npy", tmp_path / "b.npy"]
    for path, part in zip(paths, (ROWS[:400], ROWS[400:]), strict=True):
        np.save(path, part)
    return StoredRows(open_source(paths, "X", ndim=(2,)).parts, "X")


@pytest.mark.parametrize(
    "index",
    [
        slice(None),
        slice(390, 410),
        RNG.random(1000) < 0.3,
        np.arange(1000) % 500 == 7,
        np.repeat(np.arange(1000), RNG.integers(0, 3, 1000)),
        np.array([999]),
    ],
    ids=["all", "slice", "mask", "few", "repeated", "last"],
)
def test_indices_are_those_of_an_array(rows, index):
    result, expected = rows[index], ROWS[index]
    assert result.shape == expected.shape
    np.testing.assert_array_equal(np.asarray(result), expected)
    if not isinstance(index, slice):
        low, high = sorted(RNG.integers(0, len(expected) + 1, 2).tolist())
        np.testing.assert_array_equal(result[low:high], expected[low:high])
        inner = np.arange(len(expected)) % 2 == 0
        np.testing.assert_array_equal(np.asarray(result[inner]), expected[inner])


def test_changed_rows_and_ends(rows):
    weights = np.where(np.arange(1000) < 500, 0.0, 2.0)
    rows.scan_columns(weights)
    np.testing.assert_array_equal(rows.low, ROWS[500:].min(axis=0))
    np.testing.assert_array_equal(rows.high, ROWS[500:].max(axis=0))
    assert rows.least == np.abs(ROWS).max(axis=1).min()
    changed = rows.map_rows(lambda x: np.column_stack([np.ones(len(x)), x - 1.0]), 4, 1.0)
    expected = np.column_stack([np.ones(1000), ROWS - 1.0])
    np.testing.assert_array_equal(changed[:], expected)
    np.testing.assert_array_equal(changed.min(axis=0), expected[500:].min(axis=0))
    np.testing.assert_array_equal(changed[weights > 0][10:20], expected[510:520])


def test_a_bad_number_has_its_place(tmp_path):
    bad = ROWS.copy()
    bad[700, 2] = np.inf
    np.save(tmp_path / "a.npy", ROWS)
    np.save(tmp_path / "b.npy", bad)
    rows = StoredRows(open_source([tmp_path / "a.npy", tmp_path / "b.npy"], "X", ndim=(2,)).parts, "X")
    with pytest.raises(ValueError, match=r"X must be finite, got inf in row 700, column 2 of .*b\.npy"):
        rows.scan_columns()
    assert rows[np.arange(2000) >= 1500].describe_row(3).startswith("row 503 of")
    assert "row 503, column 1 of" in rows[np.arange(2000) >= 1500].describe_value(0.5, 3, 1)
