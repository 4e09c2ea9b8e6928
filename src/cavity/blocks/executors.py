"""Who runs the blocks: this thread, or a few Python threads over `nogil` kernels.

Results come back in the order of the tasks, whoever finished first, so callers can merge them in a fixed order.
"""

import math
import numbers
import os
from collections import deque
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextlib import contextmanager
from contextvars import ContextVar, copy_context
from functools import cache, partial
from itertools import chain, islice, pairwise
from threading import RLock

from cavity.base import arrays

THREADS_VARIABLE = "CAVITY_NUM_THREADS"  # of the environment: how many threads where n_threads is not given
AHEAD = 3  # tasks under way per thread: one that runs, and two against waiting for one slow task to be fetched

_inside = ContextVar("cavity_inside_a_task", default=False)


def threads_of(n_threads):
    """Return how many threads n_threads stands for: itself, all cores for -1, the environment's or 1 for None.

    Raises
    ------
    ValueError, TypeError
        For anything else, naming n_threads or the environment variable.
    """
    name = "n_threads"
    if n_threads is None:
        name, n_threads = f"the environment variable {THREADS_VARIABLE}", os.environ.get(THREADS_VARIABLE) or 1
        if isinstance(n_threads, str):
            try:
                n_threads = int(n_threads)
            except ValueError:
                raise ValueError(f"{name} must be an integer, at least 1 or -1, got {n_threads!r}") from None
    if isinstance(n_threads, numbers.Integral) and n_threads == -1:
        return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    if isinstance(n_threads, numbers.Integral) and n_threads < 1:
        raise arrays.wrong(name, f"must be at least 1, or -1 for all cores, got {n_threads}")
    return arrays.integer(n_threads, name, low=1)


def _task(function, arguments):
    """Call the function on a thread of a pool, knowing that it is one."""
    _inside.set(True)
    return function(*arguments)


def _run(function, several):
    """Call the function several times, one after the other."""
    return [function(*arguments) for arguments in several]


def _here(call):
    """Call on this thread; return a Future of what came of it. Ctrl-C is raised at once."""
    done = Future()
    try:
        done.set_result(call())
    except Exception as error:
        done.set_exception(error)
    return done


def _fetch(pending):
    """Return the result of the first task; until it is done, work on those that no thread has begun.

    It is pending until then: Ctrl-C comes while it is waited for.
    """
    for i, (future, call) in enumerate(pending):
        if pending[0][0].done():
            break
        if future.cancel():
            pending[i] = _here(call), call
    result = pending[0][0].result()
    pending.popleft()
    return result


class Threads:
    """A context in which `run` and `imap` call functions on up to n_threads threads, the one that waits among them.

    With one thread everything runs inline, and so does whatever a task itself would run on threads: a task that waited
    for others of its own pool could wait for ever. Tasks see the context variables of the caller, numpy's error state
    among them. When the context is left, or an error or Ctrl-C ends a call, tasks that have not begun are dropped and
    those that have are waited for: none still writes after the call.
    """

    def __init__(self, n_threads, job=None):
        self.count = n_threads
        self.job = job  # the `Job` that hears how far a pass is
        self._process = os.getpid()
        self._pool = ThreadPoolExecutor(max_workers=n_threads - 1) if n_threads > 1 else None
        self.readers = set()  # who reads ahead for a pass: each has a method `stop`

    def __enter__(self):
        return self

    def __exit__(self, *_):
        for reader in list(self.readers):
            reader.stop()
        if self._pool is not None and self._process == os.getpid():
            self._pool.shutdown(cancel_futures=True)

    def run(self, function, arguments):
        """Return [function(*a) for a in arguments]; the first error in that order is raised."""
        arguments = list(arguments)
        if len(arguments) < 2:
            return [function(*each) for each in arguments]
        return list(self.imap(function, arguments, ahead=math.inf))

    def imap(self, function, arguments, *, ahead=AHEAD, grain=1):
        """Yield function(*a) for a in arguments, in that order; the first error in that order is raised.

        At most `ahead` tasks per thread are under way or wait to be fetched, so memory does not grow with their number.
        A task is `grain` calls: handing one to a thread costs some 50 microseconds.
        """
        if self._pool is None or self._process != os.getpid() or _inside.get():  # a forked child has no threads
            yield from (function(*each) for each in arguments)
            return
        if grain > 1:
            rest = iter(arguments)
            tasks = ((function, several) for several in iter(lambda: list(islice(rest, grain)), []))
            yield from chain.from_iterable(self.imap(_run, tasks, ahead=ahead))
            return
        pending = deque()
        try:
            for each in arguments:
                call = partial(copy_context().run, _task, function, each)
                pending.append((self._pool.submit(call), call))
                if len(pending) >= ahead * self.count:
                    yield _fetch(pending)
            while pending:
                yield _fetch(pending)
        finally:
            if self._process == os.getpid():
                wait([future for future, _ in pending if not future.cancel()])


def spans(size, n_parts, multiple=1):
    """Return at most n_parts (start, stop) pairs that cover range(size), each start a multiple of `multiple`."""
    units = -(-size // multiple)
    edges = [units * part // n_parts * multiple for part in range(n_parts)] + [size]
    return [(start, stop) for start, stop in pairwise(edges) if stop > start]


@cache
def _controller():
    """The BLAS libraries of this process, looked up once (that costs half a millisecond)."""
    import scipy.linalg  # noqa: F401  its BLAS has to be loaded to be found
    from threadpoolctl import ThreadpoolController

    return ThreadpoolController()


_turn = RLock()  # the number of BLAS threads belongs to the whole process


def _new_lock():
    global _turn
    _turn = RLock()


if hasattr(os, "register_at_fork"):  # a child must not wait for a thread that only its parent has
    os.register_at_fork(after_in_child=_new_lock)


_limited = ContextVar("cavity_single_blas", default=False)


@contextmanager
def single_blas():
    """Run BLAS on one thread: several give other bits, and they fight with ours.

    Callers on other Python threads wait for their turn. Overlapping limits would be lifted too early, and the last one
    to go would leave the process with one BLAS thread for good. Tasks of a caller who has his turn need not wait.
    """
    if _limited.get():
        yield
        return
    with _turn, _controller().limit(limits=1, user_api="blas"):
        token = _limited.set(True)
        try:
            yield
        finally:
            _limited.reset(token)
