"""Passes over runs of blocks: the same bits whatever the runs, source and threads; reading ahead, and its ends."""

import itertools
import os
import pickle
import subprocess
import sys
import threading
import time

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.examples import examples
from support.interrupts import check_script_is_interrupted

from cavity.runs.executors import Threads
from cavity.runs.merge import BlockRun, BlockTask, merge, split_rows
from cavity.runs.passes import map_runs, reduce_runs
from cavity.sources.sources import open_source

pytestmark = pytest.mark.usefixtures("no_thread_is_left")

BLOCK = 64


def moments(X, y, start, power):
    """Return sums whose last bits depend on the order of additions, and the number of the first row."""
    return np.sum(X, axis=0) ** power, float(np.sum(y * X[:, 0])), start


MOMENTS = BlockTask(moments)


def describe(run, broadcast):
    """Return what a task is given."""
    return run.start, run.stop, run.block_rows, broadcast, [None if a is None else a.copy() for a in run.arrays]


def fail_at(run, row):
    """Fail where a row is met."""
    if run.start <= row < run.stop:
        raise ArithmeticError(f"row {row}")
    time.sleep(0.001)
    return run.start


def sources_of(arrays, kind, folder, n_files=1):
    """Return sources of the same rows from memory or from files."""
    results = []
    for i, array in enumerate(arrays):
        data = array
        if kind == "strided":
            data = np.repeat(array, 2, axis=0)[::2]
        if kind == "files":
            data = [str(folder / f"{i}-{j}.npy") for j in range(n_files)]
            for path, part in zip(data, np.array_split(array, n_files), strict=True):
                np.save(path, part)
        results.append(open_source(data, f"a{i}", ndim=(1, 2), block_rows=BLOCK))
    return results


@examples(25)
@given(
    n_rows=st.integers(1, 20 * BLOCK),
    grain=st.integers(1, 20),
    n_threads=st.integers(1, 3),
    kind=st.sampled_from(["views", "strided", "files"]),
)
def test_the_same_bits_as_block_by_block(n_rows, grain, n_threads, kind, tmp_path_factory):
    rng = np.random.default_rng(n_rows)
    X, y = rng.normal(size=(n_rows, 3)), rng.normal(size=n_rows)
    expected = merge(moments(X[a:b], y[a:b], a, 2.0) for a, b in split_rows(n_rows, BLOCK))
    values = sources_of((X, y), kind, tmp_path_factory.mktemp("rows"), min(n_rows, 3))
    with Threads(n_threads) as threads:
        result = reduce_runs(MOMENTS, 2.0, values, threads, grain=grain)
        parts = list(map_runs(describe, "all", values, threads, grain=grain))
    assert result[0].tobytes() == expected[0].tobytes()
    assert result[1:] == expected[1:]
    assert [part[0] for part in parts] + [n_rows] == [0] + [part[1] for part in parts]
    assert all(part[2:4] == (BLOCK, "all") and part[1] - part[0] <= grain * BLOCK for part in parts)
    for i, full in enumerate((X, y)):
        np.testing.assert_array_equal(np.concatenate([part[4][i] for part in parts]), full)


def test_a_sum_of_ones_own():
    source = open_source(np.arange(1000.0), "y", block_rows=BLOCK)
    task = BlockTask(lambda y, start, broadcast: y.max(), add=max)
    with Threads(2) as threads:
        assert reduce_runs(task, None, [source], threads, add=max) == 999.0


@pytest.mark.parametrize("kind", ["views", "strided", "files"])
def test_arrays_belong_to_the_run(kind, tmp_path):
    """What a task keeps of them is a copy, what it must not write to is read-only, and None stands for None."""
    y = np.arange(10.0 * BLOCK)
    values = sources_of((y,), kind, tmp_path)

    def task(run, _):
        with pytest.raises(ValueError, match="read-only"):
            run.arrays[0][0] = 1.0
        assert run.arrays[1] is None
        return run.arrays[0], (run.arrays[0][:2], run.start)

    with Threads(1) as threads:
        parts = list(map_runs(task, None, [*values, None], threads, grain=2))
    np.testing.assert_array_equal(np.concatenate([part for part, _ in parts]), y)
    assert [part[0] for _, (part, _) in parts] == [start for _, (_, start) in parts]


def test_tasks_and_runs_can_be_sent():
    task = pickle.loads(pickle.dumps(MOMENTS))
    run = pickle.loads(pickle.dumps(BlockRun(64, 128, 64, (np.ones((64, 3)), np.ones(64)))))
    assert task(run, 1.0)[1:] == (64.0, 64)


@pytest.mark.parametrize("n_threads", [1, 2])
def test_errors_come_in_the_order_of_rows(n_threads, tmp_path):
    """Of the second file, which cannot be read, those of rows in the first one come first."""
    (source,) = sources_of((np.arange(100.0 * BLOCK),), "files", tmp_path, 2)
    path = tmp_path / "0-1.npy"
    path.write_bytes(path.read_bytes()[:-8])
    with Threads(n_threads) as threads:
        with pytest.raises(ValueError, match=r"0-1\.npy has changed"):
            list(map_runs(fail_at, -1, [source], threads, grain=2))
        with pytest.raises(ArithmeticError, match="row 3000"):
            list(map_runs(fail_at, 3000, [source], threads, grain=2))
        with pytest.raises(ValueError, match=r"0-1\.npy has changed"):
            list(map_runs(fail_at, 3300, [source], threads, grain=2))
        done = list(itertools.islice(map_runs(fail_at, -1, [source], threads, grain=1), 40))
        assert done == [BLOCK * i for i in range(40)]


@pytest.mark.parametrize("n_threads", [1, 2])
def test_who_reads_ahead_ends_with_whoever_asked(n_threads, tmp_path):
    (source,) = sources_of((np.arange(100.0 * BLOCK),), "files", tmp_path)
    with Threads(n_threads) as threads:
        before = threading.active_count()
        results = map_runs(fail_at, -1, [source], threads, grain=1)
        assert [next(results), next(results)] == [0, BLOCK]
        results.close()
        assert not threads.readers
        assert threading.active_count() <= before + n_threads
        stored = map_runs(fail_at, -1, [source], threads, grain=1)
        next(stored)
        assert len(threads.readers) == 1
    assert not threads.readers
    del stored


@pytest.mark.parametrize("begun", [False, True])
def test_interruption_while_the_reader_begins(monkeypatch, tmp_path, begun):
    np.save(tmp_path / "y.npy", np.arange(100.0))
    source = open_source(tmp_path / "y.npy", "y", block_rows=4)
    start = threading.Thread.start

    def interrupted(thread):
        if begun:
            start(thread)
        raise KeyboardInterrupt

    monkeypatch.setattr(threading.Thread, "start", interrupted)
    with pytest.raises(KeyboardInterrupt), Threads(1) as threads:
        list(map_runs(describe, 0, [source], threads))


def test_rows_are_read_where_no_thread_begins_any_more(monkeypatch, tmp_path):
    """As from the end of the main thread on, which some versions of Python do not wait with until the others end."""
    (source,) = sources_of((np.arange(40.0 * BLOCK),), "files", tmp_path)

    def refused(thread):
        raise RuntimeError("can't create new thread at interpreter shutdown")

    monkeypatch.setattr(threading.Thread, "start", refused)
    with Threads(2) as threads:
        assert list(map_runs(fail_at, -1, [source], threads, grain=1)) == [BLOCK * i for i in range(40)]
        monkeypatch.setattr(threading.Thread, "start", lambda thread: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            list(map_runs(fail_at, -1, [source], threads, grain=1))


def test_bytes_ahead_are_bounded(monkeypatch, set_sizes, tmp_path):
    (source,) = sources_of((np.arange(500.0 * BLOCK),), "files", tmp_path)
    set_sizes(MAX_AHEAD_BYTES=10 * 8 * BLOCK)
    filled, fill, deadline = [], source.fill, time.monotonic() + 20

    def watched(out, start):
        filled.append(start)
        fill(out, start)

    monkeypatch.setattr(type(source), "fill", lambda self, out, start: watched(out, start))
    with Threads(1) as threads:
        for done, _ in enumerate(map_runs(describe, None, [source], threads, grain=1), 1):
            while done == 1 and len(filled) < done + 10 and time.monotonic() < deadline:
                time.sleep(1e-3)
            assert len(filled) <= done + 10
            if done == 1:  # a slot is free again, and no more than there are get filled
                time.sleep(0.02)
                assert len(filled) == done + 10
    assert filled == list(range(0, source.n_rows, BLOCK))


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs os.fork")
def test_a_forked_child_reads_for_itself(tmp_path):
    np.save(tmp_path / "y.npy", np.arange(100.0 * BLOCK))
    text = f"""
import os, warnings
from cavity.runs.executors import Threads
from cavity.runs.passes import map_runs
from cavity.sources.sources import open_source
warnings.simplefilter("ignore", DeprecationWarning)  # of forking with threads, from Python 3.12 on
source = open_source({str(tmp_path / "y.npy")!r}, "y", block_rows={BLOCK})
def task(run, _):
    return run.arrays[0][0] == run.start
for n_threads in (1, 2):
    with Threads(n_threads) as threads:
        under_way = map_runs(task, None, [source], threads, grain=1)
        next(under_way)
        child = os.fork()
        if child == 0:
            again = list(map_runs(task, None, [source], threads, grain=1))
            rest = list(under_way) if n_threads == 1 else [True] * 99
            under_way.close()
            os._exit(0 if all(again) and len(again) == 100 and all(rest) and len(rest) == 99 else 1)
        print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), all(under_way))
"""
    done = subprocess.run([sys.executable, "-c", text], capture_output=True, text=True, timeout=60)
    assert done.stdout.split() == ["0", "True", "0", "True"], done.stderr


INTERRUPTED = """
import signal, sys, threading, time
from cavity.runs.executors import Threads
from cavity.runs.merge import BlockRun, BlockTask
from cavity.runs.passes import reduce_runs
from cavity.sources.sources import open_source
signal.signal(signal.SIGINT, signal.default_int_handler)
source = open_source(sys.argv[1], "y", block_rows=1 << 12)
def work(y, start, broadcast):
    time.sleep(0.002)
    return y.sum()
try:
    with Threads(int(sys.argv[2])) as threads:
        print("ready", flush=True)
        while True:
            reduce_runs(BlockTask(work), None, [source], threads)
except KeyboardInterrupt:
    for thread in set(threading.enumerate()) - {threading.current_thread()}:
        thread.join(5)  # of one that was about to begin: it sees that it is over
    print("interrupted", threading.active_count(), flush=True)
"""


@pytest.mark.skipif(os.name == "nt", reason="needs SIGINT")
@pytest.mark.parametrize("n_threads", [pytest.param(1, marks=pytest.mark.long), 2])
def test_interruption_while_rows_are_read_ahead(tmp_path, n_threads):
    check_script_is_interrupted(INTERRUPTED, tmp_path / "y.npy", n_threads)
