"""Passes over rows on the workers of dask: one task per run of blocks, in the graph of the chunks."""

import uuid
from dataclasses import dataclass
from functools import partial
from time import perf_counter

import numpy as np

from cavity.base.build_description import describe_build
from cavity.base.errors import NumericalWarning, warn
from cavity.runs.dask_scheduler import Scheduler
from cavity.runs.executors import single_blas
from cavity.runs.merge import call_on_run, merge_runs

TASK_SECONDS = 0.2  # of work in a task: dask takes about a millisecond for each
FIRST_BLOCKS = 16  # of a run, as long as it is not known how long a block takes
TASK_BYTES = 1 << 26  # most bytes of a run, which a task may have to convert
TASKS_A_THREAD = 2  # at least, where there are so many blocks
# sums that are added up on a worker, where there would be more results to fetch
TASKS_PER_MERGE, MAX_FETCHED_PARTS = 8, 64


@dataclass(frozen=True, slots=True)
class TaskInputs:
    """What all tasks of a pass need: sent once."""

    task: object
    broadcast: object
    block_rows: int
    errors: dict  # numpy's error state of the caller


@dataclass(frozen=True, slots=True)
class Done:
    """The outcome of a run: its first block and the number of blocks, and the result, or the error that was raised."""

    first: int
    blocks: int
    result: object
    seconds: float
    builds: frozenset


@dataclass(frozen=True, slots=True, eq=False)
class HeldValue:
    """A value that a task holds for the tasks of later passes over its run, and the outcome of the task."""

    value: object
    done: Done | None = None

    def __call__(self):
        """A task of dask that puts a value where the tasks are."""
        return self


def get_outcome(held):
    """A task of dask: the outcome of another one, whose held value stays where it is."""
    return held.done


@dataclass(frozen=True, slots=True)
class RunTask:
    """The task of dask: the rows [start, stop), and for each source what cuts them out of its chunks."""

    start: int
    stop: int
    cuts: tuple

    def __call__(self, inputs, chunks, held=None):
        """Return what was done; errors are returned as well: what is raised comes from chunks, or from dask.

        With held values, task(run, broadcast, *values) is called, and what it returns in second place is held as well.
        """
        begin, blocks = perf_counter(), -(-(self.stop - self.start) // inputs.block_rows)
        try:
            with single_blas(), np.errstate(**inputs.errors):
                arrays = [None if cut is None else cut(group) for cut, group in zip(self.cuts, chunks, strict=True)]
                task = inputs.task if held is None else partial(_called, inputs.task, [handle.value for handle in held])
                result = call_on_run(task, inputs.broadcast, self.start, self.stop, inputs.block_rows, arrays)
                result, held_result = result if held is not None else (result, None)
        except Exception as error:
            result, held_result = error, None
        done = Done(
            self.start // inputs.block_rows, blocks, result, perf_counter() - begin, frozenset([describe_build()])
        )
        return done if held is None else HeldValue(held_result, done)


def _called(task, held, run, broadcast):
    return task(run, broadcast, *held)


@dataclass(frozen=True, slots=True)
class Several:
    """A task of dask: work on runs that follow each other in one chunk, merged as far as that gives nodes of the tree.

    `add` is that of `merge`; False where results stay apart.
    """

    works: tuple
    add: object

    def __call__(self, inputs, chunks):
        """Return what was done in each run, up to an error."""
        done = []
        for work in self.works:
            done.append(work(inputs, chunks))
            if isinstance(done[-1].result, Exception):
                return done[-1:]
        return done if self.add is False else merged(self.add, done)


def merged(add, *several):
    """A task of dask: what was done in runs that follow each other, merged as far as it is nodes of the tree."""
    stack = []
    with single_blas():
        for done in (run_result for group in several for run_result in group):
            if isinstance(done.result, Exception):
                return [done]
            stack.append(done)
            while len(stack) > 1 and stack[-2].blocks == stack[-1].blocks and not stack[-2].first & stack[-1].blocks:
                stack[-2:] = [_join_done(*stack[-2:], add)]
    return stack


def _join_done(left, right, add):
    """Return what was done in two runs together."""
    total = merge_runs([(left.blocks, left.result), (right.blocks, right.result)], add)
    return Done(left.first, 2 * left.blocks, total, left.seconds + right.seconds, left.builds | right.builds)


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
    graph, inputs = scheduler.sent(TaskInputs(task, broadcast, layout.block_rows, np.geterr()), len(spans), token)
    for chunk in chunks:
        graph |= chunk.graph
    nothing = [(None, None)] * len(spans)
    pieces = [nothing if part is None else part.moved(graph, spans, scheduler) for part in parts]
    keys, spans = _tasks(graph, inputs, spans, pieces, most * layout.block_rows, add if merging else False)
    while merging and len(keys) > MAX_FETCHED_PARTS:
        keys, spans = _merging(graph, keys, spans, add)
    seconds, builds = 0.0, set()
    for done in (run_result for group in scheduler.values(graph, keys, spans, parts) for run_result in group):
        if isinstance(done.result, Exception):
            raise done.result
        seconds, builds = seconds + done.seconds, builds | done.builds
        yield done.blocks, done.result
    paces[pace] = seconds / layout.block_count
    compare_builds(builds, chunks[0].builds)


def _tasks(graph, inputs, spans, pieces, most, add):
    """Put tasks into the graph, each of runs in one chunk with so many rows at most; return their keys and rows."""
    tasks = []  # [keys of the chunks, works]
    for span, *located in zip(spans, *pieces, strict=True):
        needed, cuts = zip(*located, strict=True)
        one = all(keys is None or len(keys) == 1 for keys in needed)
        if one and tasks and tasks[-1][0] == needed and span[1] - tasks[-1][1][0].start <= most:
            tasks[-1][1].append(RunTask(*span, cuts))
        else:
            tasks.append((needed, [RunTask(*span, cuts)]))
    keys = [(f"cavity-run-{uuid.uuid4().hex}", number) for number in range(len(tasks))]
    for key, (needed, works) in zip(keys, tasks, strict=True):
        graph[key] = Several(tuple(works), add), inputs, list(needed)
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
    spans, size, n = [], layout.block_rows, layout.n_rows
    waiting = [(first, most) for first in range(0, layout.block_count, most)][::-1]
    while waiting:
        first, count = waiting.pop()
        start, stop = first * size, min((first + count) * size, n)
        if start >= n:
            continue
        if count == 1 or not any(chunk.divides(start, stop, 2 * size) for chunk in chunks):
            spans.append((start, stop))
        else:
            waiting += [(first + count // 2, count // 2), (first, count // 2)]
    return spans


def _merging(graph, keys, spans, add):
    """Add tasks that merge what a few others return; return their keys and rows."""
    name = f"cavity-sum-{uuid.uuid4().hex}"
    groups = [
        (keys[low : low + TASKS_PER_MERGE], spans[low : low + TASKS_PER_MERGE])
        for low in range(0, len(keys), TASKS_PER_MERGE)
    ]
    for number, (group, _) in enumerate(groups):
        graph[name, number] = merged, add, *group
    return [(name, number) for number in range(len(groups))], [(group[0][0], group[-1][1]) for _, group in groups]


def compare_builds(builds, earlier):
    """Warn, once for a collection, where processes that give other last bits have worked on it."""
    new = builds | {describe_build()}
    if not new <= earlier:
        earlier |= new
        if len(earlier) > 1:
            warn(
                f"the processes that work on the data differ ({'; '.join(sorted(earlier))}): the result may differ in "
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
        return [handle.value for handle in Scheduler().gathered(handles)]

    def call_for_runs(self, task, broadcast, *handles, rows=True):
        """Call task(run, broadcast, *values) for every run: it returns a result and the values to hold for the run.

        Returns
        -------
        results, handles : list
            The results in order, and the handles of the held values. Without `rows`, runs have no arrays.
        """
        token, scheduler = uuid.uuid4().hex, Scheduler()
        scheduler.goes_on(self.part.chunks)
        inputs = TaskInputs(task, broadcast, self.layout.block_rows, np.geterr())
        graph, inputs = scheduler.sent(inputs, len(self.spans), token)
        keys = [(f"cavity-hold-{token}", number) for number in range(len(self.spans))]
        graph |= self.part.chunks.graph if rows else {}
        pieces = self.part.moved(graph, self.spans, scheduler) if rows else [(None, None)] * len(self.spans)
        for number, (span, (needed, cut)) in enumerate(zip(self.spans, pieces, strict=True)):
            held = [
                scheduler.named(graph, handle_list[number], f"cavity-held-{token}-{i}-{number}")
                for i, handle_list in enumerate(handles)
            ]
            graph[keys[number]] = RunTask(*span, (cut,)), inputs, [needed], held
        whole, outcomes = self._finished(scheduler, graph, keys)
        compare_builds(set().union(*(done.builds for done in outcomes)), self.part.chunks.builds)
        return [done.result for done in outcomes], whole

    def in_turn(self, task, state, inputs):
        """Call task(run, state, *inputs of the run) for one run after the other; each gives the next one its state.

        Returns
        -------
        list
            What the task returned beside the states.
        """
        token, scheduler = uuid.uuid4().hex, Scheduler()
        graph, keys = dict(self.part.chunks.graph), [f"cavity-state-{token}"]
        graph[keys[0]] = (HeldValue(state),)
        pieces = self.part.moved(graph, self.spans, scheduler)
        for number, (span, values, (needed, cut)) in enumerate(zip(self.spans, inputs, pieces, strict=True)):
            input_key = f"cavity-given-{token}-{number}"
            graph[input_key] = TaskInputs(task, values, self.layout.block_rows, np.geterr())
            keys.append((f"cavity-turn-{token}", number))
            graph[keys[-1]] = RunTask(*span, (cut,)), input_key, [needed], keys[-2:-1]
        return [done.result for done in self._finished(scheduler, graph, keys[1:])[1]]

    def _finished(self, scheduler, graph, keys):
        """Return handles of the values that the runs at the keys hold, and the outcomes of the runs."""
        outcome_keys = [(f"cavity-outcome-{name}", number) for name, number in keys]
        graph |= {outcome_key: (get_outcome, key) for outcome_key, key in zip(outcome_keys, keys, strict=True)}
        whole, outcomes = scheduler.fetch_some(graph, keys, outcome_keys, self.spans, [self.part])
        for done in outcomes:
            if isinstance(done.result, Exception):
                raise done.result
        return whole, outcomes
