"""Passes over rows that dask has: one task a run of blocks, in the graph of the chunks; and what comes of lost workers.

dask is imported when it is asked for: who gives a collection has it.
"""

import uuid
from concurrent.futures import wait
from dataclasses import dataclass
from functools import partial
from time import perf_counter

import numpy as np

from cavity.base.builds import build
from cavity.base.errors import NumericalWarning, warn
from cavity.runs.block_runs import call_on_run
from cavity.runs.executors import call_with_fallback, single_blas
from cavity.runs.merge import merge_runs

TASK_SECONDS = 0.2  # of work in a task: dask takes about a millisecond for each
FIRST_BLOCKS = 16  # of a run, as long as it is not known how long a block takes
TASK_BYTES = 1 << 26  # most bytes of a run, which a task may have to convert
TASKS_A_THREAD = 2  # at least, where there are so many blocks
FEW, FETCHED = 32, (2, 8)  # parts in which results are fetched, of few tasks and of more: so often progress is told
MOST_COPIED = 1 << 22  # bytes that are sent to tasks in copies
MERGED, MOST_FETCHED = 8, 64  # tasks whose sums are added up on a worker, where there would be more to fetch
WORKER_POLL_SECONDS = 5.0  # from one look at the workers to the next, while a result is waited for
WITHOUT_WORKER = (
    "no worker is connected to the dask scheduler: the computation goes on when one is. Ctrl-C stops it; a checkpoint, "
    "if there is one, is whole, and the same call goes on from it"
)


@dataclass(frozen=True, slots=True)
class TaskInputs:
    """What all tasks of a pass need: sent once."""

    task: object
    broadcast: object
    block_rows: int
    errors: dict  # numpy's error state of the caller


@dataclass(frozen=True, slots=True)
class Done:
    """What comes of a run: its first block and their number, and what was found, or the error that was met."""

    first: int
    blocks: int
    found: object
    seconds: float
    builds: frozenset


@dataclass(frozen=True, slots=True, eq=False)
class HeldValue:
    """What a task leaves behind for those of later passes over its run, and what it says of itself."""

    value: object
    done: Done | None = None

    def __call__(self):
        """A task of dask that puts a value where the tasks are."""
        return self


def told(held):
    """A task of dask: what another one, which stays where it is, says of itself."""
    return held.done


@dataclass(frozen=True, slots=True)
class RunTask:
    """The task of dask: the rows [start, stop), and for each source what cuts them out of its chunks."""

    start: int
    stop: int
    cuts: tuple

    def __call__(self, given, chunks, held=None):
        """Return what was done; errors are returned as well: what is raised comes from chunks, or from dask.

        With held values, task(run, broadcast, *values) is called, and what it returns in second place is held as well.
        """
        begin, blocks = perf_counter(), -(-(self.stop - self.start) // given.block_rows)
        try:
            with single_blas(), np.errstate(**given.errors):
                arrays = [None if cut is None else cut(some) for cut, some in zip(self.cuts, chunks, strict=True)]
                task = given.task if held is None else partial(_called, given.task, [each.value for each in held])
                found = call_on_run(task, given.broadcast, self.start, self.stop, given.block_rows, arrays)
                found, kept = found if held is not None else (found, None)
        except Exception as error:
            found, kept = error, None
        done = Done(self.start // given.block_rows, blocks, found, perf_counter() - begin, frozenset([build()]))
        return done if held is None else HeldValue(kept, done)


def _called(task, held, run, broadcast):
    return task(run, broadcast, *held)


@dataclass(frozen=True, slots=True)
class Several:
    """A task of dask: work on runs that follow each other in one chunk, merged as far as that gives nodes of the tree.

    `add` is that of `merge`; False where results stay apart.
    """

    works: tuple
    add: object

    def __call__(self, given, chunks):
        """Return what was done in each run, up to an error."""
        done = []
        for work in self.works:
            done.append(work(given, chunks))
            if isinstance(done[-1].found, Exception):
                return done[-1:]
        return done if self.add is False else merged(self.add, done)


def merged(add, *several):
    """A task of dask: what was done in runs that follow each other, merged as far as it is nodes of the tree."""
    stack = []
    with single_blas():
        for done in (each for some in several for each in some):
            if isinstance(done.found, Exception):
                return [done]
            stack.append(done)
            while len(stack) > 1 and stack[-2].blocks == stack[-1].blocks and not stack[-2].first & stack[-1].blocks:
                stack[-2:] = [_both(*stack[-2:], add)]
    return stack


def _both(left, right, add):
    """Return what was done in two runs together."""
    found = merge_runs([(left.blocks, left.found), (right.blocks, right.found)], add)
    return Done(left.first, 2 * left.blocks, found, left.seconds + right.seconds, left.builds | right.builds)


def results(task, broadcast, sources, grain=None, add=None, merging=False):
    """Yield (number of blocks, task(run, broadcast)) of runs that cover all rows, in order.

    Parameters
    ----------
    task, broadcast, sources, add
        As for `runs.reduce_runs`.
    grain : int, optional
        1 for block by block; other limits are those of a thread that Ctrl-C interrupts.
    merging : bool
        Whether sums of runs will do as well.
    """
    layout = next(source for source in sources if source is not None)
    parts = [None if source is None else _part(source, layout) for source in sources]
    chunks = [part.chunks for part in parts if part is not None]
    scheduler, paces, pace = Scheduler(), chunks[0].seconds, (getattr(task, "function", task), layout.block_rows)
    scheduler.goes_on(chunks[0])
    row_bytes = 8 * sum(source.n_features for source in sources if source is not None)
    most = 1 if grain == 1 else _most(layout, row_bytes, paces.get(pace), scheduler.threads)
    spans, token = _spans(chunks, layout, most), uuid.uuid4().hex
    graph, given = scheduler.sent(TaskInputs(task, broadcast, layout.block_rows, np.geterr()), len(spans), token)
    for each in chunks:
        graph |= each.graph
    nothing = [(None, None)] * len(spans)
    pieces = [nothing if part is None else part.moved(graph, spans, scheduler) for part in parts]
    keys, spans = _tasks(graph, given, spans, pieces, most * layout.block_rows, add if merging else False)
    while merging and len(keys) > MOST_FETCHED:
        keys, spans = _merging(graph, keys, spans, add)
    seconds, builds = 0.0, set()
    for done in (each for some in scheduler.values(graph, keys, spans, parts) for each in some):
        if isinstance(done.found, Exception):
            raise done.found
        seconds, builds = seconds + done.seconds, builds | done.builds
        yield done.blocks, done.found
    paces[pace] = seconds / layout.block_count
    _compare(builds, chunks[0].builds)


def _tasks(graph, given, spans, pieces, most, add):
    """Put tasks into the graph, each of runs in one chunk with so many rows at most; return their keys and rows."""
    tasks = []  # [keys of the chunks, works]
    for span, *found in zip(spans, *pieces, strict=True):
        needed, cuts = zip(*found, strict=True)
        one = all(keys is None or len(keys) == 1 for keys in needed)
        if one and tasks and tasks[-1][0] == needed and span[1] - tasks[-1][1][0].start <= most:
            tasks[-1][1].append(RunTask(*span, cuts))
        else:
            tasks.append((needed, [RunTask(*span, cuts)]))
    keys = [(f"cavity-run-{uuid.uuid4().hex}", number) for number in range(len(tasks))]
    for key, (needed, works) in zip(keys, tasks, strict=True):
        graph[key] = Several(tuple(works), add), given, list(needed)
    return keys, [(works[0].start, works[-1].stop) for _, works in tasks]


def _part(source, layout):
    """Return the rows of a source, which must be a collection."""
    if not source.is_remote:
        raise TypeError(
            f"{source.name} must be a dask collection or a column, as {layout.name} is one, got what is in memory: "
            f"dask.array.from_array({source.name}, chunks=100_000).persist() makes it one"
        )
    return source.parts[0]


def _most(layout, row_bytes, seconds, threads):
    """Return the most blocks of a run, 2^k: some time's work, not too large, and a few runs for every thread."""
    most = FIRST_BLOCKS if seconds is None else TASK_SECONDS / max(seconds, 1e-9)
    most = min(most, TASK_BYTES // (layout.block_rows * row_bytes), layout.block_count // (TASKS_A_THREAD * threads))
    return 1 << (max(1, int(most)).bit_length() - 1)


def _spans(chunks, layout, most):
    """Return the rows (start, stop) of runs: 2^k blocks, at most `most`, from a multiple of 2^k on.

    Where chunks hold several blocks, those in one chunk alone; blocks that they share are runs of their own.
    """
    found, size, n = [], layout.block_rows, layout.n_rows
    waiting = [(first, most) for first in range(0, layout.block_count, most)][::-1]
    while waiting:
        first, count = waiting.pop()
        start, stop = first * size, min((first + count) * size, n)
        if start >= n:
            continue
        if count == 1 or not any(each.divides(start, stop, 2 * size) for each in chunks):
            found.append((start, stop))
        else:
            waiting += [(first + count // 2, count // 2), (first, count // 2)]
    return found


def _merging(graph, keys, spans, add):
    """Add tasks that merge what a few others return; return their keys and rows."""
    name = f"cavity-sum-{uuid.uuid4().hex}"
    groups = [(keys[low : low + MERGED], spans[low : low + MERGED]) for low in range(0, len(keys), MERGED)]
    for number, (some, _) in enumerate(groups):
        graph[name, number] = merged, add, *some
    return [(name, number) for number in range(len(groups))], [(some[0][0], some[-1][1]) for _, some in groups]


def _compare(builds, known):
    """Warn, once for a collection, where processes that give other last bits have worked on it."""
    new = builds | {build()}
    if not new <= known:
        known |= new
        if len(known) > 1:
            warn(
                f"the processes that work on the data differ ({'; '.join(sorted(known))}): the result may differ in "
                "rounding from that of one process",
                NumericalWarning,
            )


class RemoteRuns:
    """Runs that stay the same over passes, and values that are held for each of them where it is worked on.

    Handles of values are lists, one entry a run: dask's futures, or with a local scheduler the values themselves.
    """

    def __init__(self, source):
        self.layout, self.part, scheduler = source, _part(source, source), Scheduler()
        most = _most(source, 8 * source.n_features, None, scheduler.threads)
        self.spans = _spans([self.part.chunks], source, most)

    def put(self, values):
        """Return handles of given values, one for each run."""
        keys = [f"cavity-put-{uuid.uuid4().hex}" for _ in self.spans]
        return Scheduler().held({key: (HeldValue(value),) for key, value in zip(keys, values, strict=True)}, keys)

    def fetch(self, handles):
        """Return the values of handles, in order."""
        return [each.value for each in Scheduler().gathered(handles)]

    def each(self, task, broadcast, *handles, rows=True):
        """Call task(run, broadcast, *values), which returns what it found and what it leaves behind, for every run.

        Returns
        -------
        found, handles : list
            Of what was found, in order, and of what was left behind. Without `rows`, runs have no arrays.
        """
        token, scheduler = uuid.uuid4().hex, Scheduler()
        scheduler.goes_on(self.part.chunks)
        given = TaskInputs(task, broadcast, self.layout.block_rows, np.geterr())
        graph, given = scheduler.sent(given, len(self.spans), token)
        keys = [(f"cavity-hold-{token}", number) for number in range(len(self.spans))]
        graph |= self.part.chunks.graph if rows else {}
        pieces = self.part.moved(graph, self.spans, scheduler) if rows else [(None, None)] * len(self.spans)
        for number, (span, (needed, cut)) in enumerate(zip(self.spans, pieces, strict=True)):
            held = [
                scheduler.named(graph, each[number], f"cavity-held-{token}-{i}-{number}")
                for i, each in enumerate(handles)
            ]
            graph[keys[number]] = RunTask(*span, (cut,)), given, [needed], held
        whole, said = self._finished(scheduler, graph, keys)
        _compare(set().union(*(done.builds for done in said)), self.part.chunks.builds)
        return [done.found for done in said], whole

    def in_turn(self, task, state, inputs):
        """Call task(run, state, *inputs of the run) for one run after the other; each gives the next one its state.

        Returns
        -------
        found : list
            What the task returned beside the states.
        """
        token, scheduler = uuid.uuid4().hex, Scheduler()
        graph, keys = dict(self.part.chunks.graph), [f"cavity-state-{token}"]
        graph[keys[0]] = (HeldValue(state),)
        pieces = self.part.moved(graph, self.spans, scheduler)
        for number, (span, values, (needed, cut)) in enumerate(zip(self.spans, inputs, pieces, strict=True)):
            given = f"cavity-given-{token}-{number}"
            graph[given] = TaskInputs(task, values, self.layout.block_rows, np.geterr())
            keys.append((f"cavity-turn-{token}", number))
            graph[keys[-1]] = RunTask(*span, (cut,)), given, [needed], keys[-2:-1]
        return [done.found for done in self._finished(scheduler, graph, keys[1:])[1]]

    def _finished(self, scheduler, graph, keys):
        """Return handles of what the runs at the keys leave behind, and what these say of themselves."""
        tellers = [(f"cavity-told-{name}", number) for name, number in keys]
        graph |= {teller: (told, key) for teller, key in zip(tellers, keys, strict=True)}
        whole, said = scheduler.both(graph, keys, tellers, self.spans, [self.part])
        for done in said:
            if isinstance(done.found, Exception):
                raise done.found
        return whole, said


def _size(value):
    """Return the bytes of a value on its way."""
    from distributed.protocol.pickle import dumps

    return len(dumps(value))


def compute(graph, tasks):
    """Return what dask makes of some tasks over the keys of a graph, in order."""
    keys = [f"cavity-{uuid.uuid4().hex}" for _ in tasks]
    return list(Scheduler().compute(graph | dict(zip(keys, tasks, strict=True)), keys))


def load(data):
    """Load a collection of dask into memory."""
    return data.compute(scheduler=Scheduler().compute)


def load_each(delayed):
    """Load delayed values into memory, and return them in a tuple."""
    from dask import compute

    return compute(*delayed, scheduler=Scheduler().compute)


def _closed():
    """Return the error of a client that is no more."""
    return RuntimeError(
        "the dask client was closed before the fit was done; a checkpoint, if there is one, is whole, and the same "
        "call goes on from it"
    )


class Scheduler:
    """Who is in force for dask: its client, or a local scheduler; threads if there is none."""

    def __init__(self):
        from dask.base import get_scheduler

        self._get = get_scheduler()
        if self._get is None:
            from dask import threaded

            self._get = threaded.get
        client = getattr(self._get, "__self__", None)
        self.client = client if hasattr(client, "gather") and hasattr(client, "nthreads") else None
        if self.client is not None and self.client.status != "running":
            raise _closed()

    def goes_on(self, chunks):
        """Raise RuntimeError if there is no client any more where there was one for these chunks."""
        if self.client is None and chunks.clients:
            raise _closed()
        if self.client is not None:
            chunks.clients.add(self.client.id)

    @property
    def threads(self):
        """How many tasks may run at a time."""
        if self.client is not None:
            return max(1, sum(self.client.nthreads().values()))
        from dask import config
        from dask.system import CPU_COUNT

        return config.get("num_workers", None) or CPU_COUNT

    def sent(self, given, n, token):
        """Return a graph, and what stands in it for what all of n tasks need.

        That is itself, unless it is large: then it is sent once, and workers have it from each other, which takes time.
        """
        if self.client is None or n * _size(given) <= MOST_COPIED:
            return {}, given
        key = f"cavity-given-{token}"
        return {key: given}, key

    def held(self, graph, keys):
        """Return handles of what is at the keys: values, from a local scheduler."""
        if self.client is not None:
            return self._get(graph, list(keys), sync=False)
        from dask.local import get_sync

        return call_with_fallback(partial(self._get, graph, list(keys)), partial(get_sync, graph, list(keys)))

    def gathered(self, handles):
        """Return what is behind handles; warn where this takes long because there is no worker."""
        if self.client is None:
            return handles
        from asyncio import run_coroutine_threadsafe

        gather = self.client.gather(list(handles), asynchronous=True)
        result, polls_without_worker = run_coroutine_threadsafe(gather, self.client.loop.asyncio_loop), 0
        try:
            while not wait([result], timeout=WORKER_POLL_SECONDS).done:
                polls_without_worker = 0 if self.client.nthreads() else polls_without_worker + 1
                if polls_without_worker == 2:
                    warn(WITHOUT_WORKER, RuntimeWarning)
            return result.result()
        finally:
            result.cancel()

    def compute(self, graph, keys):
        """Return what is at the keys."""
        return self.gathered(self.held(graph, keys))

    @staticmethod
    def named(graph, handle, name):
        """Put a handle into a graph; return its key there."""
        key = getattr(handle, "key", name)
        graph[key] = handle
        return key

    def both(self, graph, keys, tellers, spans, parts):
        """Return handles of what is at the keys, and what is at the tellers, the last tasks of the graph."""
        if self.client is None:
            found = list(self.values(graph, [*keys, *tellers], spans * 2, parts))
            return found[: len(keys)], found[len(keys) :]
        whole = self.held(graph, [*keys, *tellers])
        return whole[: len(keys)], list(self.values(graph, tellers, spans, parts, whole[len(keys) :]))

    def values(self, graph, keys, spans, parts, futures=None):
        """Yield what is at the keys, in order; errors name the chunk, or the rows of the keys that nobody could do."""
        try:
            if self.client is None:
                yield from self.held(graph, keys)
                return
            futures = self.held(graph, keys) if futures is None else futures
            step = -(-len(futures) // FETCHED[len(futures) > FEW])
            for low in range(0, len(futures), step):
                yield from self.gathered(futures[low : low + step])
            futures = None
        except GeneratorExit:
            raise
        except Exception as error:
            told = self._told(error, graph, futures, spans, parts)
            if told is None:
                raise
            raise told from error
        finally:
            if futures is not None and self.client.status == "running":
                self.client.cancel(futures)

    def _told(self, error, graph, futures, spans, parts):
        """Return what to raise for an error of dask or of a chunk; None for the error itself."""
        if self.client is not None and self.client.status != "running":
            return _closed()
        kind, name = type(error).__name__, next(part.name for part in parts if part is not None)
        if kind == "KilledWorker":
            states = [future.status for future in futures]
            start, stop = spans[states.index("error")] if "error" in states else (spans[0][0], spans[-1][1])
            return RuntimeError(
                f"{name}: rows {start} to {stop} cannot be worked on: the workers that tried have died, out of memory "
                f"perhaps; smaller chunks, or workers with more memory, may help ({error})"
            )
        if "Cancelled" in kind:
            return RuntimeError(f"{name}: dask has lost chunks that it cannot compute again, or they were cancelled")
        for part in parts:
            for number, key in enumerate(() if part is None else part.chunks.keys):
                try:
                    compute(graph, [(len, key)])
                except Exception as found:
                    low, high = part.chunks.span(number)
                    words = f"{part.name}: chunk {number} (rows {low} to {high}) cannot be computed"
                    return RuntimeError(f"{words}: {type(found).__name__}: {found}")
        return None
