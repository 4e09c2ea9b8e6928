"""The scheduler of dask: what it computes, its lost workers, and errors that name the chunk.

dask is imported where it is used: a collection of dask comes from a process that has loaded it.
"""

import uuid
from concurrent.futures import wait
from functools import partial

from cavity.base.errors import warn
from cavity.runs.executors import call_with_fallback

# fetches of results per pass, of at most 32 tasks and of more: progress is reported after each
MAX_FEW_TASKS, FETCH_COUNTS = 32, (2, 8)
MAX_COPIED_BYTES = 1 << 22  # bytes that are sent to tasks in copies
WORKER_POLL_SECONDS = 5.0  # from one look at the workers to the next, while a result is waited for
WITHOUT_WORKER = (
    "no worker is connected to the dask scheduler: the computation goes on when one is. Ctrl-C stops it; a checkpoint, "
    "if there is one, is whole, and the same call goes on from it"
)


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
    """The scheduler in force for dask: its client, or a local one; threads if there is none."""

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

    def sent(self, inputs, n, token):
        """Return a graph, and what stands in it for what all of n tasks need.

        That is itself, unless it is large: then it is sent once, and workers have it from each other, which takes time.
        """
        if self.client is None or n * _size(inputs) <= MAX_COPIED_BYTES:
            return {}, inputs
        key = f"cavity-given-{token}"
        return {key: inputs}, key

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

    def fetch_some(self, graph, keys, fetched_keys, spans, parts):
        """Return handles of what is at the keys, and what is at the fetched keys, the last tasks of the graph."""
        if self.client is None:
            values = list(self.values(graph, [*keys, *fetched_keys], spans * 2, parts))
            return values[: len(keys)], values[len(keys) :]
        results = self.held(graph, [*keys, *fetched_keys])
        return results[: len(keys)], list(self.values(graph, fetched_keys, spans, parts, results[len(keys) :]))

    def values(self, graph, keys, spans, parts, futures=None):
        """Yield what is at the keys, in order; errors name the chunk, or the rows that could not be done."""
        try:
            if self.client is None:
                yield from self.held(graph, keys)
                return
            futures = self.held(graph, keys) if futures is None else futures
            step = -(-len(futures) // FETCH_COUNTS[len(futures) > MAX_FEW_TASKS])
            for low in range(0, len(futures), step):
                yield from self.gathered(futures[low : low + step])
            futures = None
        except GeneratorExit:
            raise
        except Exception as error:
            explained = self._explain(error, graph, futures, spans, parts)
            if explained is None:
                raise
            raise explained from error
        finally:
            if futures is not None and self.client.status == "running":
                self.client.cancel(futures)

    def explain_loss(self, error, message):
        """Return what to raise for an error of dask where it is not known which chunk it is of."""
        if self.client is not None and self.client.status != "running":
            return _closed()
        return RuntimeError(f"{message}: {type(error).__name__}: {error}")

    def _explain(self, error, graph, futures, spans, parts):
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
                except Exception as error_there:
                    low, high = part.chunks.span(number)
                    message = f"{part.name}: chunk {number} (rows {low} to {high}) cannot be computed"
                    return RuntimeError(f"{message}: {type(error_there).__name__}: {error_there}")
        return None
