"""Tables as a whole and in batches: the same columns, read when they are wanted."""

import os
import threading
from types import SimpleNamespace

import numpy as np
import pytest

from cavity.cli import input_tables


def test_batches_of_an_array(tmp_path):
    """A batch is read when it is wanted."""
    values = np.arange(60.0).reshape(20, 3)
    np.save(tmp_path / "x.npy", values.astype("f4"))
    batches = input_tables.read_batches(SimpleNamespace(data=str(tmp_path / "x.npy")), 7, skip=2, first=5)
    read = [(t.matrix(list("123")), t.describe_row(0)) for t, _ in batches]
    np.testing.assert_array_equal(np.concatenate([rows for rows, _ in read]), values[2:])
    assert [len(rows) for rows, _ in read] == [5, 7, 6]
    assert [place for _, place in read] == ["row 3", "row 8", "row 15"]


def test_a_table_is_read_as_it_is_used(tmp_path):
    path = tmp_path / "x.csv"
    path.write_text("\n".join(["a,y", *(f"{i}.0,0.0" for i in range(40_000))]))
    parts = input_tables.read_batches(SimpleNamespace(data=str(path)), 100)
    first, share = next(parts)
    assert first.numbers("a").tolist() == list(range(100))
    assert share < 0.2
    *_, (last, share) = parts
    assert last.numbers("a")[-1] == 39999.0
    assert share == 1.0


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="needs named pipes")
def test_a_pipe_is_a_table(tmp_path):
    """It has no size, and cannot be read twice."""
    path = tmp_path / "pipe.csv"
    os.mkfifo(path)
    values = SimpleNamespace(data=str(path))
    for read in (lambda: [(input_tables.open_table(values), 1.0)], lambda: list(input_tables.read_batches(values, 2))):
        writer = threading.Thread(target=path.write_text, args=("a,b\n1,x\n2,y\n3,z\n",), daemon=True)
        writer.start()
        parts = read()
        writer.join()
        assert [cell for part, _ in parts for cell in part.text("b")] == ["x", "y", "z"]
        assert {share for _, share in parts} == {1.0}
