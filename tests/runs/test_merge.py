"""The tree of the merge: its shape, and what whole runs of its parts leave of it."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cavity.runs.merge import merge, merge_runs
from cavity.runs.passes import split_blocks


def tree(left, right):
    """Write down who was added to whom."""
    return f"({left} {right})"


def test_the_tree_is_over_neighbours():
    assert merge("abcdefg", tree) == "(((a b) (c d)) ((e f) g))"
    assert merge("abcde", tree) == "(((a b) (c d)) e)"
    assert merge(iter([2, 3])) == 5
    assert merge([(1, 2), (3, 4)]) == (4, 6)
    with pytest.raises(ValueError, match="nothing to merge"):
        merge([])


@given(st.integers(1, 300), st.integers(1, 40), st.integers(1, 5))
def test_runs_are_aligned_and_keep_the_tree(count, most, n_threads):
    runs = split_blocks(count, n_threads, most)
    assert [first for first, _ in runs] + [count] == [0] + [last for _, last in runs]
    for first, last in runs:
        size = 1 << (last - first - 1).bit_length()  # 2^k, and only the last run may have fewer blocks
        assert first % size == 0
        assert size == last - first or last == count
        assert last - first <= most
    result = merge_runs(((last - first, merge(map(str, range(first, last)), tree)) for first, last in runs), tree)
    assert result == merge(map(str, range(count)), tree)


@given(st.integers(1, 300), st.integers(0, 6))
def test_runs_of_one_length_keep_the_tree(count, power):
    size = 2**power
    runs = [range(first, min(first + size, count)) for first in range(0, count, size)]
    assert merge_runs(((len(run), merge(map(str, run), tree)) for run in runs), tree) == merge(
        map(str, range(count)), tree
    )
