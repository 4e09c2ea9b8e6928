"""Passes over a table: tasks that work on runs of blocks, wherever these come from and whoever works on them.

    sources --runs--> task(run, broadcast) --results, in order--> merge

A task is a function, what all its calls need is in the broadcast. Those of mixtures can be sent to another process,
those of EP and of streams are closures. Runs are 2^k blocks that begin at a multiple of 2^k, so what a task adds up
along the tree over its blocks is a node of the tree over all of them: where runs end changes no bit of a sum.
"""

import os
import threading
from contextlib import closing
from contextvars import copy_context
from functools import partial
from math import isnan
from queue import SimpleQueue

import numpy as np

from cavity.runs import remote
from cavity.runs.executors import MIN_SHARED_SECONDS, call_with_fallback
from cavity.runs.merge import call_on_run, merge_runs

MAX_RUN_BLOCKS = 16  # of a run, where the caller does not say: an interruption waits for those under way
MAX_CONVERTED_BYTES = 1 << 20  # most bytes of a run that a task converts for itself: they should stay in its cache
MIN_SHARED_BYTES = 1 << 21  # of the rows of a first pass, below which threads share it only if their number is given
MAX_READ_BYTES = 1 << 22  # most bytes of a run that is read ahead
MAX_AHEAD_BYTES = 1 << 26  # most bytes that are read ahead, unless these are too few runs to keep all threads at work


def map_runs(task, broadcast, sources, threads, *, grain=None):
    """Yield task(run, broadcast) for runs of blocks that cover all rows, in order.

    Parameters
    ----------
    task : callable
        A function of a module. What it returns may share memory with the arrays of the run: it is then copied.
    broadcast : object
        What every call needs.
    sources : sequence of Source or None
        As many rows in each; the blocks are those of the first.
    threads : Threads
        That call.
    grain : int, optional
        Most blocks of a run, 1 for block by block. As many as some 20 ms of work are enough to make nothing of what it
        costs to hand a run to a thread, and few enough to be interrupted between them.
    """
    layout = _layout_of(sources)
    if _is_single_block(layout, sources):
        yield _only_run(task, broadcast, sources, layout, threads.job, None)
    else:
        yield from (result for _, result in _reported(task, broadcast, sources, threads, grain))


def reduce_runs(task, broadcast, sources, threads, *, grain=None, add=None, stage=None):
    """Return the sum of task(run, broadcast) over runs that cover all rows, along the tree of `merge` over all blocks.

    For the same bits whatever the runs, a task has to add up its blocks along that tree too, see `BlockTask`. A pass
    that is a `stage` of its own reports under that name.
    """
    layout = _layout_of(sources)
    if _is_single_block(layout, sources):
        return _only_run(task, broadcast, sources, layout, threads.job, stage)
    with closing(_reported(task, broadcast, sources, threads, grain, stage, {"add": add, "merging": True})) as results:
        return merge_runs(results, add)


def split_blocks(block_count, n_threads, most, gradual=False):
    """Return the (first, last) blocks of runs: 2^k of them, at most `most`, from a multiple of 2^k on.

    Where it is not known how long they take they begin with one block, and are `gradual`: at most as many as before.

    For several threads they get shorter towards the end, at most the share of a thread in what is left, so that all are
    done at about the same time.
    """
    spans, first = [], 0
    while first < block_count:
        share = most if n_threads == 1 else (block_count - first) // n_threads
        if gradual:
            share = min(share, max(1, first & -first))
        size = 1 << (max(1, min(most, share)).bit_length() - 1)
        spans.append((first, min(first + size, block_count)))
        first += size
    return spans


def _layout_of(sources):
    """Return the source whose blocks count, the first that is not None."""
    return next(source for source in sources if source is not None)


def _is_single_block(layout, sources):
    """Whether all rows are one block in memory."""
    return layout.block_count == 1 and all(source is None or source.in_memory for source in sources)


def read_single_block(*sources):
    """Return the rows of sources, None for None, where all are one block in memory; else None."""
    layout = _layout_of(sources)
    if not _is_single_block(layout, sources):
        return None
    local = threading.local()
    return [_in_memory(source, 0, layout.n_rows, local, i) for i, source in enumerate(sources)]


def _only_run(task, broadcast, sources, layout, job, stage):
    """Return what a task makes of the only block that there is, in memory, without the setup of several blocks."""
    result = call_on_run(task, broadcast, 0, layout.n_rows, layout.block_rows, read_single_block(*sources))
    if job is not None:
        job = job if stage is None else job.stage(stage)
        job.report_share(1, 1, layout.n_rows, is_total=stage is not None)
    return result


def _reported(task, broadcast, sources, threads, grain, stage=None, merged=None):
    """Yield what `_results` does, and report to the job of the threads how far the pass is, which may be a stage.

    What is `merged` anyway, and how, may be merged already where the rows are.
    """
    done, layout, job = 0, _layout_of(sources), threads.job
    job = job if job is None or stage is None else job.stage(stage)
    if layout.is_remote:
        results = remote.results(task, broadcast, sources, grain, **(merged or {}))
    else:
        results = _results(task, broadcast, sources, threads, grain)
    with closing(results):
        for result in results:
            yield result
            done += result[0]
            if job is not None:
                job.report_share(done, layout.block_count, layout.n_rows, is_total=stage is not None)


def _results(task, broadcast, sources, threads, grain):
    """Yield (number of blocks, result) of each run in order."""
    layout = _layout_of(sources)
    tables = [source if source is not None and source.in_memory else None for source in sources]
    read = [source if source is not None and not source.in_memory else None for source in sources]
    converted = [source if source is not None and source.view(0, 1) is None else None for source in tables]
    most = MAX_RUN_BLOCKS if grain is None else grain
    for limited, limit in ((converted, MAX_CONVERTED_BYTES), (read, MAX_READ_BYTES)):
        most = min(most, limit // max(1, layout.block_rows * _row_bytes(limited)))
    function = getattr(task, "function", task)
    key = "pass", getattr(function, "__code__", function)
    seconds = threads.estimate_seconds(key)
    if isnan(seconds) and layout.n_rows * _row_bytes(sources) < MIN_SHARED_BYTES:
        seconds = 0.0
    count = 1 if seconds < MIN_SHARED_SECONDS else threads.count
    runs = [
        (first * layout.block_rows, min(last * layout.block_rows, layout.n_rows))
        for first, last in split_blocks(layout.block_count, count, most, gradual=isnan(seconds))
    ]
    local = threading.local()

    def work(start, stop, slot):
        arrays = [_in_memory(source, start, stop, local, i) for i, source in enumerate(tables)]
        try:
            if slot is not None:
                arrays = [a if b is None else b for a, b in zip(arrays, slot.arrays(stop - start), strict=True)]
            result = call_on_run(task, broadcast, start, stop, layout.block_rows, arrays)
            return -(-(stop - start) // layout.block_rows), result
        finally:
            if slot is not None:
                slot.free()

    if not any(source is not None for source in read):
        if len(runs) == 1:  # not on a thread of the pool: its task may let threads share what it does
            yield work(*runs[0], None)
            return
        yield from threads.imap(work, ((*run, None) for run in runs), key=key)
        return
    with ReadAhead(read, runs, threads) as reader:
        yield from threads.imap(work, reader, key=key)


def _row_bytes(sources):
    """Return the bytes of a row of all sources that are not None."""
    return 8 * sum(source.n_features for source in sources if source is not None)


def _in_memory(source, start, stop, local, number):
    """Return the rows of a source in memory: a view, or converted in memory of this thread; None for None."""
    if source is None:
        return None
    array = source.view(start, stop)
    if array is None:
        buffer = getattr(local, f"array{number}", None)
        if buffer is None or len(buffer) < stop - start:
            buffer = np.empty((stop - start, *source.shape[1:]))
            setattr(local, f"array{number}", buffer)
        array = buffer[: stop - start]
        source.fill(array, start)
    return array


def check_not_remote(source):
    """Raise TypeError for rows that are not read here, as those of collections of dask."""
    if source is not None and source.is_remote:
        raise TypeError(
            f"{source.name} is a collection of dask, and this is done with the rows in one process: give "
            f"{source.name}.compute() if they fit into memory, or files"
        )


class ReadSlot:
    """Memory for a run of those sources that are read ahead, and the error if they could not be read."""

    def __init__(self, sources, rows, slots):
        self._memory = [None if source is None else np.empty((rows, *source.shape[1:])) for source in sources]
        self._slots = slots  # those that are free
        self.error = None

    def fill(self, sources, start, stop):
        """Read the rows [start, stop); an error is raised where they are used, after those before them."""
        try:
            for source, memory in zip(sources, self._memory, strict=True):
                if source is not None:
                    source.fill(memory[: stop - start], start)
        except BaseException as error:
            self.error = error

    def arrays(self, rows):
        """Return views of the rows that were read, None where the source is None; raise the error if there is one."""
        if self.error is not None:
            raise self.error
        return [None if array is None else array[:rows] for array in self._memory]

    def free(self):
        """Give the memory back to be filled again."""
        self._slots.put(self)


class ReadAhead:
    """A thread that reads the runs of sources in order, ahead of other threads, into a few slots of memory.

    Iterating gives (start, stop, slot); a thread frees a slot after its work. When the context is left, or that of the
    threads, the reader stops after the rows it is at.
    """

    def __init__(self, sources, runs, threads):
        for source in sources:
            check_not_remote(source)
        self._sources, self._runs, self._threads = sources, runs, threads
        self._rows = max(stop - start for start, stop in runs)
        self._unused = max(threads.count + 2, MAX_AHEAD_BYTES // (self._rows * _row_bytes(sources)))
        self._free, self._ready = SimpleQueue(), SimpleQueue()
        self._process, self._stopped = os.getpid(), False
        self._thread = threading.Thread(target=copy_context().run, args=(self._read,), daemon=True)

    def __enter__(self):
        self._threads.readers.add(self)
        call_with_fallback(self._thread.start, partial(setattr, self, "_process", None))  # without: see __iter__
        return self

    def __exit__(self, *_):
        self.stop()

    def __iter__(self):
        for start, stop in self._runs:
            if self._process == os.getpid():
                slot = self._ready.get()
            else:  # a forked child has no threads, and after the main thread has ended Python may start none
                slot = ReadSlot(self._sources, stop - start, SimpleQueue())
                slot.fill(self._sources, start, stop)
            last = slot.error is not None  # nothing is read after an error
            yield start, stop, slot
            if last:
                return

    def stop(self):
        """Wait until the thread has ended; it begins no other run."""
        self._threads.readers.discard(self)
        if self._process == os.getpid():
            self._stopped = True
            self._free.put(None)
            is_reader = self._thread is threading.current_thread()  # which may collect what others have left
            if (
                not is_reader and self._thread.is_alive()
            ):  # not if Ctrl-C came before it began: it will see that it is over
                self._thread.join()
            while not self._free.empty():  # slots and their queue refer to each other, so that only this frees them
                self._free.get()

    def _read(self):
        for start, stop in self._runs:
            slot = self._slot()
            if self._stopped:
                return
            slot.fill(self._sources, start, stop)
            last = slot.error is not None
            self._ready.put(slot)
            if last:
                return
        for source in filter(None, self._sources):
            source.hand_over_open_file()

    def _slot(self):
        """Return a free slot, a new one while there may be more; wait for one otherwise."""
        if self._unused and self._free.empty():
            self._unused -= 1
            return ReadSlot(self._sources, self._rows, self._free)
        return self._free.get()
