"""Rows in the order of a pass: those of files are the same, read ahead, and errors come where rows would."""

import threading
import time

import numpy as np
import pytest

from cavity.blocks import reading
from cavity.blocks.merge import starts
from cavity.blocks.reading import each_block, in_turn, is_stored
from cavity.blocks.sources import open_source

ROWS = np.random.default_rng(0).normal(size=(1000, 3))


@pytest.fixture
def path(tmp_path):
    np.save(tmp_path / "rows.npy", ROWS)
    return tmp_path / "rows.npy"


def test_files_give_the_rows_of_arrays(path):
    source = open_source(path, "X", ndim=(2,))
    assert is_stored(source)
    assert not is_stored(ROWS)
    for spans in (starts(1000, 64), [(5, 17), (900, 1000)], []):
        pairs = zip(in_turn(ROWS, spans), in_turn(source, spans), strict=True)
        for (part, x), (other, y) in pairs:
            assert part == other
            np.testing.assert_array_equal(x, y)
    np.testing.assert_array_equal(np.concatenate([x for _, x in each_block(source, 300)]), ROWS)


def test_few_bytes_are_read_ahead(path, monkeypatch):
    monkeypatch.setattr(reading, "BYTES_AHEAD", 4 * 10 * 24)
    source, read = open_source(path, "X", ndim=(2,)), []
    rows = source.rows
    monkeypatch.setattr(source, "rows", lambda *span: read.append(span) or rows(*span))
    blocks = each_block(source, 10)
    next(blocks)
    time.sleep(0.05)
    assert len(read) == 4
    blocks.close()
    assert threading.active_count() == 1


def test_errors_come_where_the_rows_would(path, monkeypatch):
    source = open_source(path, "X", ndim=(2,))
    rows = source.rows

    def bad(start, stop):
        if start >= 500:
            raise ValueError("row 500")
        return rows(start, stop)

    monkeypatch.setattr(source, "rows", bad)
    seen = []
    with pytest.raises(ValueError, match="row 500"):
        seen.extend(part for part, _ in each_block(source, 100))
    assert len(seen) == 5
