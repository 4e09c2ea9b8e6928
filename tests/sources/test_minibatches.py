"""Minibatches hold every row once, in order, whatever the blocks of the source and the size asked for."""

from dataclasses import dataclass

import numpy as np
import pytest

from cavity.sources.minibatches import OneShotMinibatches, iterate_minibatches


@dataclass
class Source:
    """Rows in blocks of given lengths."""

    rows: np.ndarray
    lengths: tuple
    in_memory = True

    @property
    def shape(self):
        return self.rows.shape

    @property
    def block_count(self):
        return len(self.lengths)

    def read(self, i):
        start = sum(self.lengths[:i])
        return self.rows[start : start + self.lengths[i]]


@pytest.mark.parametrize("lengths", [(1,), (7,), (8, 8), (8, 8, 1), (5, 1, 1, 9), (3, 0, 4), (16, 3)])
@pytest.mark.parametrize("size", [1, 2, 3, 7, 8, 9, 100])
@pytest.mark.parametrize("columns", [(), (2,)])
def test_every_row_comes_once_and_in_order(lengths, size, columns):
    n = sum(lengths)
    rows = np.arange(n * int(np.prod(columns, dtype=int)), dtype=float).reshape(n, *columns)
    batches = list(iterate_minibatches(Source(rows, lengths), size))
    np.testing.assert_array_equal(np.concatenate(batches), rows)
    assert [len(batch) for batch in batches[:-1]] == [size] * ((n - 1) // size)
    assert 0 < len(batches[-1]) <= size


def test_an_iterator_is_passed_on_whole():
    rows = np.arange(30.0).reshape(15, 2)
    stream = OneShotMinibatches(iter([rows[:4], rows[4:5], rows[5:]]), "X", 15, 1, lambda batch, name: batch)
    np.testing.assert_array_equal(stream.first, rows[:4])
    np.testing.assert_array_equal(np.concatenate(list(stream)), rows)
