"""Passes by dask: the bits of one process, whoever is in force, however runs are cut; and what tasks leave behind."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cavity import NumericalWarning
from cavity.runs import remote
from cavity.runs.executors import Threads
from cavity.runs.merge import BlockTask
from cavity.runs.passes import map_runs, reduce_runs
from cavity.sources import dask_collections
from cavity.sources.source_parts import find_piece
from cavity.sources.sources import Source, open_source

dask = pytest.importorskip("dask")
da = pytest.importorskip("dask.array")

N, BLOCK = 1000, 16
X = np.random.default_rng(0).normal(size=(N, 2)) * 10.0 ** np.random.default_rng(1).integers(-8, 8, size=(N, 1))


@pytest.fixture(autouse=True)
def nothing_is_small(set_sizes):
    set_sizes(SMALL_ROWS=0)


def total(x, start, broadcast):
    return np.sum(x * broadcast, axis=0)


def sums(rows, broadcast=1.5):
    with Threads(1) as thread:
        return reduce_runs(BlockTask(total), broadcast, [open_source(rows, "X", ndim=(2,), block_rows=BLOCK)], thread)


@pytest.mark.sample(3)
@pytest.mark.parametrize("chunk", [1, 5, 16, 48, 61, 1000])
@pytest.mark.parametrize("fetched", [1, 64])
def test_sums_have_the_bits_of_one_process(chunk, fetched, set_sizes):
    set_sizes(MAX_FETCHED_PARTS=fetched)
    rows = da.from_array(X, chunks=(chunk, 2))
    for scheduler in ("threads", "sync"):
        with dask.config.set(scheduler=scheduler):
            assert np.array_equal(sums(rows), sums(X))


def test_results_come_in_order():
    with Threads(1) as thread:
        source = open_source(da.from_array(X, chunks=(61, 2)), "X", ndim=(2,), block_rows=BLOCK)
        result = list(map_runs(first_row, None, [source], thread, grain=1))
    assert result == list(range(0, N, BLOCK))


def first_row(run, _):
    return run.start


@given(
    sizes=st.lists(st.integers(0, 40), min_size=1, max_size=12).filter(any),
    block=st.integers(1, 9),
    power=st.integers(0, 4),
)
def test_runs_are_aligned_and_cover_all_rows_once(sizes, block, power):
    ends = np.cumsum(sizes).tolist()
    chunks = dask_collections.Chunks({}, [], ends)
    layout = Source([dask_collections.ChunkRows(chunks, "X", (ends[-1],), None)], "X", block)
    spans = remote._spans([chunks], layout, 1 << power)
    assert [start for start, _ in spans] == [0, *(stop for _, stop in spans[:-1])]
    assert spans[-1][1] == ends[-1]
    for start, stop in spans:
        first, count = start // block, -(-(stop - start) // block)
        assert start % block == 0
        assert count <= 1 << power
        assert stop == ends[-1] or (count & (count - 1) == 0 and first % count == 0)


def test_runs_lie_in_one_chunk_where_chunks_hold_several_blocks():
    chunks = dask_collections.Chunks({}, [], [500, 1000])
    layout = Source([dask_collections.ChunkRows(chunks, "X", (1000,), None)], "X", 10)
    spans = remote._spans([chunks], layout, 64)
    assert all(find_piece([500, 1000], start)[0] == find_piece([500, 1000], stop - 1)[0] for start, stop in spans)
    assert len(spans) < 12


def test_runs_grow_to_the_time_of_a_task(monkeypatch):
    layout = open_source(np.zeros((1 << 14, 2)), "X", ndim=(2,), block_rows=4)
    assert remote._most(layout, 16, None, 4) == remote.FIRST_BLOCKS
    assert remote._most(layout, 16, remote.TASK_SECONDS / 100, 4) == 64
    assert remote._most(layout, 16, 1e-9, 4) == 512  # a few runs for each thread
    assert remote._most(layout, 1 << 20, 1e-9, 4) == 16  # few bytes
    assert remote._most(layout, 16, 10.0, 4) == 1


def test_the_pace_of_a_task_is_measured():
    source = open_source(da.from_array(X, chunks=(100, 2)), "X", ndim=(2,), block_rows=BLOCK)
    with Threads(1) as thread:
        reduce_runs(BlockTask(total), 1.0, [source], thread)
    ((task, rows), seconds), *rest = source.parts[0].chunks.seconds.items()
    assert (task, rows) == (total, BLOCK)
    assert 0 < seconds < 1
    assert not rest


def test_numpys_error_state_is_that_of_the_caller():
    with np.errstate(over="raise"), pytest.raises(FloatingPointError):
        sums(da.from_array(X, chunks=(100, 2)), 1e308)
    with np.errstate(over="ignore", invalid="ignore"):
        assert not np.isfinite(sums(da.from_array(X, chunks=(100, 2)), 1e308)).all()


def broken(block, block_info=None):
    if block_info[0]["chunk-location"][0] == 3:
        raise OSError("no such part of the disk")
    return block


def test_a_chunk_that_raises_is_named():
    rows = da.from_array(X, chunks=(100, 2)).map_blocks(broken, dtype=float)
    with pytest.raises(RuntimeError, match=r"X: chunk 3 \(rows 300 to 400\) cannot be computed: OSError: no such part"):
        sums(rows)


def test_what_is_in_memory_does_not_go_with_a_collection():
    rows = da.from_array(X, chunks=(100, 2))
    sources = [open_source(rows, "X", ndim=(2,)), open_source(X[:, 0], "y")]
    with Threads(1) as thread, pytest.raises(TypeError, match="y must be a dask collection or a column, as X is one"):
        reduce_runs(BlockTask(total), 1.0, sources, thread)


def test_processes_that_differ_are_told_once():
    known = set()
    remote.compare_builds({remote.describe_build()}, known)
    with pytest.warns(NumericalWarning, match=r"the processes that work on the data differ \(another.*; cavity"):
        remote.compare_builds({"another"}, known)
    remote.compare_builds({"another"}, known)
    assert "kernels" in remote.describe_build()
