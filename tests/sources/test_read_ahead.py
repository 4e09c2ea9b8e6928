"""Rows in the order of a pass: those of files are the same, read ahead, and errors come where rows would."""

import threading

import numpy as np
import pytest

from cavity.runs.merge import split_rows
from cavity.sources.read_ahead import iterate_blocks, iterate_spans
from cavity.sources.sources import open_source

ROWS = np.random.default_rng(0).normal(size=(1000, 3))


@pytest.fixture
def source(tmp_path):
    np.save(tmp_path / "rows.npy", ROWS)
    return open_source(tmp_path / "rows.npy", "X", ndim=(2,))


def test_files_give_the_rows_of_arrays(source):
    for spans in (split_rows(1000, 64), [(5, 17), (900, 1000)], []):
        pairs = zip(iterate_spans(ROWS, spans), iterate_spans(source, spans), strict=True)
        for (part, x), (other, y) in pairs:
            assert part == other
            np.testing.assert_array_equal(x, y)
    np.testing.assert_array_equal(np.concatenate([x.copy() for _, x in iterate_blocks(source, 300)]), ROWS)


def test_a_pass_that_is_left_leaves_no_thread(source):
    before = threading.active_count()
    blocks = iterate_blocks(source, 10)
    next(blocks)
    blocks.close()
    assert threading.active_count() == before


def test_errors_come_where_the_rows_would(source, monkeypatch):
    fill, seen = source.fill, []

    def bad(out, start):
        if start >= 500:
            raise ValueError("row 500")
        fill(out, start)

    monkeypatch.setattr(source, "fill", bad)
    with pytest.raises(ValueError, match="row 500"):
        seen.extend(part for part, _ in iterate_blocks(source, 100))
    assert len(seen) == 5
