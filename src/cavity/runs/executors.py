"""Blocks are run by this thread, or by a few Python threads over `nogil` kernels.

Results come back in the order of the tasks, not of their ends, so callers can merge them in a fixed order.
"""

import math
import numbers
import os
import sys
from collections import deque
from concurrent.futures import Future, wait
from contextlib import contextmanager
from contextvars import ContextVar, copy_context
from functools import cache, lru_cache, partial
from itertools import chain, islice, pairwise
from pathlib import Path
from threading import RLock, current_thread, get_ident, main_thread
from time import perf_counter

from cavity.base import arrays
from cavity.base.lazy_scipy import AFTER_LOADING

THREADS_VARIABLE = "CAVITY_NUM_THREADS"  # of the environment: how many threads where n_threads is not given
TASKS_AHEAD_PER_THREAD = (
    3  # tasks under way per thread: one that runs, and two against waiting for one slow task to be fetched
)

MIN_SHARED_SECONDS = 2e-3  # of calls that threads share by default: handing tasks over costs some 50 microseconds
MIN_OPENING_SECONDS = 5e-3  # of calls on one thread before a pool is opened, which takes some 0.3 milliseconds
_FIRST_PROCESS = os.getpid()

_inside = ContextVar("cavity_inside_a_task", default=False)
_limited = ContextVar("cavity_single_blas", default=False)


class DefaultCount(int):
    """A number of threads that nothing but the machine has set: they get what work is worth it."""


def resolve_n_threads(n_threads):
    """Return how many threads n_threads stands for: itself, all cores for -1, and for None what the environment says.

    That is CAVITY_NUM_THREADS if it is set. Else it is a `DefaultCount`: as many cores as the process may use, by its
    affinity, the quota of its control group and OMP_NUM_THREADS; one where other workers are at work beside this one,
    that is in forked or started processes (of multiprocessing, joblib, dask) and on threads other than the main one.

    Raises
    ------
    ValueError, TypeError
        For anything else, naming n_threads or the environment variable.
    """
    if isinstance(n_threads, DefaultCount):
        return n_threads
    name = "n_threads"
    if n_threads is None:
        name, n_threads = f"the environment variable {THREADS_VARIABLE}", os.environ.get(THREADS_VARIABLE)
        if not n_threads:
            return DefaultCount(1 if _is_worker() else count_usable_cores())
        try:
            n_threads = int(n_threads)
        except ValueError:
            raise ValueError(f"{name} must be an integer, at least 1 or -1, got {n_threads!r}") from None
    if isinstance(n_threads, numbers.Integral) and n_threads == -1:
        return _count_cores()
    if isinstance(n_threads, numbers.Integral) and n_threads < 1:
        raise arrays.error_of(name, f"must be at least 1, or -1 for all cores, got {n_threads}")
    return arrays.check_integer(n_threads, name, low=1)


def _count_cores():
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def count_usable_cores():
    """Return the number of cores by affinity, quota of the control group and OMP_NUM_THREADS, whichever is least."""
    count = min(_count_cores(), _read_quota())
    limit = os.environ.get("OMP_NUM_THREADS", "").partition(",")[0].strip()
    return max(1, min(count, int(limit)) if limit.isdecimal() else count)


@cache
def _read_quota():
    """Return the cores that the control group of the process may use, rounded up; infinity without a quota."""
    try:
        quota, period = Path("/sys/fs/cgroup/cpu.max").read_text().split()
    except (OSError, ValueError):
        try:
            folder = Path("/sys/fs/cgroup/cpu")
            quota, period = ((folder / f"cpu.cfs_{name}_us").read_text() for name in ("quota", "period"))
        except OSError:
            return math.inf
    return math.ceil(int(quota) / int(period)) if quota.strip().isdecimal() else math.inf


def _is_worker():
    """Whether the process was started or forked by another one of Python, or the thread is not the main one."""
    processes = sys.modules.get("multiprocessing.process")
    is_child = processes is not None and processes.current_process().name != "MainProcess"
    return is_child or os.getpid() != _FIRST_PROCESS or current_thread() is not main_thread()


def _task(function, arguments):
    """Call the function on a thread of a pool, knowing that it is one."""
    _inside.set(True)
    if _limited.get():
        _limit_this_thread()
    return function(*arguments)


def _run(function, several):
    """Call the function several times, one after the other."""
    return [function(*arguments) for arguments in several]


def _call_now(call):
    """Call on this thread; return a Future of what came of it. Ctrl-C is raised at once."""
    done = Future()
    try:
        done.set_result(call())
    except Exception as error:
        done.set_exception(error)
    return done


def call_with_fallback(call, instead):
    """Return call(), or instead() where Python begins no more threads, as the main one has ended."""
    try:
        return call()
    except RuntimeError as error:
        if not any(phrase in str(error) for phrase in ("after shutdown", "interpreter shutdown")):
            raise
    return instead()


def _open_pool(n_threads):
    from concurrent.futures import ThreadPoolExecutor  # which cannot be loaded either when the main thread has ended

    return ThreadPoolExecutor(max_workers=n_threads)


def _fetch(pending):
    """Return the result of the first task; until it is done, work on those that no thread has begun.

    It is pending until then: Ctrl-C comes while it is waited for.
    """
    for i, (future, call) in enumerate(pending):
        if pending[0][0].done():
            break
        if future.cancel():
            pending[i] = _call_now(call), call
    result = pending[0][0].result()
    pending.popleft()
    return result


class Threads:
    """A context in which `run` and `imap` call functions on up to n_threads threads, the one that waits among them.

    With one thread everything runs inline, and so does whatever a task itself would run on threads: a task that waited
    for others of its own pool could wait for ever. Once the main thread has ended, Python begins no more threads, and
    what is left runs inline too. Tasks see the context variables of the caller, numpy's error state among them. When
    the context is left, or an error or Ctrl-C ends a call, tasks that have not begun are dropped and those that have
    are waited for: none still writes after the call.

    With a `DefaultCount` a call runs inline where the last one of the same function took less than MIN_SHARED_SECONDS;
    the first one begins inline, as do all others until there were MIN_OPENING_SECONDS of them.
    """

    def __init__(self, n_threads, job=None):
        self.count = n_threads
        self.job = job  # the `Job` that hears how far a pass is
        self._process = os.getpid()
        self.is_adaptive = n_threads > 1 and isinstance(n_threads, DefaultCount)
        self._seconds = {}  # of the last call of each function, if it is adaptive
        self._spent = 0.0  # seconds of calls inline, if it is adaptive
        self._opened = n_threads < 2 or not self.is_adaptive
        self._pool = self._open() if n_threads > 1 and not self.is_adaptive else None
        self.readers = set()  # of passes that read ahead: each has a method `stop`

    def _open(self):
        """Return a pool, None where Python begins no more threads."""
        return call_with_fallback(partial(_open_pool, self.count - 1), lambda: None)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        for reader in list(self.readers):
            reader.stop()
        if self._pool is not None and self._process == os.getpid():
            self._pool.shutdown(cancel_futures=True)

    def estimate_seconds(self, key):
        """Return how long the last call of a function took on one thread; infinity if that does not matter, or nan."""
        return self._seconds.get(key, math.nan) if self.is_adaptive else math.inf

    def run(self, function, arguments, *, shared=False):
        """Return [function(*a) for a in arguments]; the first error in that order is raised.

        Calls that are `shared` take what there is to do from one queue: one alone would do all of it.
        """
        arguments = list(arguments)
        if len(arguments) < 2:
            return [function(*items) for items in arguments]
        return list((self._submit if shared else self.imap)(function, arguments, ahead=math.inf))

    def imap(self, function, arguments, *, ahead=TASKS_AHEAD_PER_THREAD, grain=1, key=None):
        """Yield function(*a) for a in arguments, in that order; the first error in that order is raised.

        At most `ahead` tasks per thread are under way or wait to be fetched, so memory does not grow with their number.
        A task is `grain` calls: handing one to a thread costs some 50 microseconds. Calls with one `key` take about the
        same time; it is the code of the function by default.
        """
        is_single = isinstance(arguments, list | tuple) and len(arguments) < 2
        # a forked child has no threads
        if is_single or self.count < 2 or self._process != os.getpid() or _inside.get():
            yield from (function(*call_arguments) for call_arguments in arguments)
            return
        if not self.is_adaptive:
            yield from self._submit(function, arguments, ahead=ahead, grain=grain)
            return
        key = getattr(function, "__code__", function) if key is None else key
        last, spent, arguments = self._seconds.get(key), 0.0, iter(arguments)
        most = MIN_SHARED_SECONDS if self._opened else max(MIN_SHARED_SECONDS, MIN_OPENING_SECONDS - self._spent)
        if last is None or last < most:
            for call_arguments in arguments:
                begun = perf_counter()
                result = function(*call_arguments)
                spent += perf_counter() - begun
                yield result
                if spent > most:
                    break
            else:
                self._seconds[key] = spent
                self._spent += spent
                return
        begun = perf_counter()
        yield from self._submit(function, arguments, ahead=ahead, grain=grain)
        self._seconds[key] = spent + self.count * (perf_counter() - begun)

    def _submit(self, function, arguments, *, ahead, grain=1):
        """Yield function(*a) for a in arguments, from the threads of the pool."""
        if not self._opened:
            self._opened, self._pool = True, self._open()
        if self._pool is None or self._process != os.getpid() or _inside.get():
            yield from (function(*call_arguments) for call_arguments in arguments)
            return
        if grain > 1:
            rest = iter(arguments)
            tasks = ((function, several) for several in iter(lambda: list(islice(rest, grain)), []))
            yield from chain.from_iterable(self._submit(_run, tasks, ahead=ahead))
            return
        pending = deque()
        try:
            for call_arguments in arguments:
                call = partial(copy_context().run, _task, function, call_arguments)
                pending.append((call_with_fallback(partial(self._pool.submit, call), partial(_call_now, call)), call))
                if len(pending) >= ahead * self.count:
                    yield _fetch(pending)
            while pending:
                yield _fetch(pending)
        finally:
            if self._process == os.getpid():
                wait([future for future, _ in pending if not future.cancel()])


def get_lasting_threads(n_threads):
    """Return Threads whose pool stays open in this process, for calls of milliseconds, as opening one takes 0.2 ms."""
    return _keep_threads(n_threads, os.getpid())


@lru_cache(maxsize=8, typed=True)
def _keep_threads(n_threads, _):
    return Threads(n_threads)


def split_range(size, n_parts, multiple=1):
    """Return at most n_parts (start, stop) pairs that cover range(size), each start a multiple of `multiple`."""
    units = -(-size // multiple)
    edges = [units * part // n_parts * multiple for part in range(n_parts)] + [size]
    return [(start, stop) for start, stop in pairwise(edges) if stop > start]


def _libraries():
    """The BLAS libraries of this process, that of SciPy among them once it is loaded.

    Returns
    -------
    shared, own : list
        Those whose number of threads belongs to the process, and those where each thread that calls has its own.
    """
    with_scipy = "scipy.linalg" in sys.modules
    if with_scipy:
        import scipy.linalg  # noqa: F401  waits for another thread that has just begun to load it
    return _looked_up(with_scipy)


_controllers = {}  # by the files of libraries: one for each


@cache
def _looked_up(_):
    """Look for libraries, which costs half a millisecond."""
    from threadpoolctl import ThreadpoolController

    controllers = ThreadpoolController().select(user_api="blas").lib_controllers
    controllers = [_controllers.setdefault(library.filepath, library) for library in controllers]
    own = [
        library for library in controllers if (library.internal_api, library.threading_layer) == ("openblas", "openmp")
    ]
    return [library for library in controllers if library not in own], own


def _set(numbers, hold=False):
    """Set the numbers of threads of libraries, whichever thread set them last; `hold` keeps others from setting them.

    Newer versions of threadpoolctl let one thread at a time set them.
    """
    for library, number in numbers:
        free = getattr(library, "clear_controlling_thread", lambda force: None)
        free(force=True)
        library.set_num_threads(number)
        if not hold:
            free(force=True)


def _unknown(libraries, loaded):
    """Return the libraries that are not among `loaded`, with their numbers of threads."""
    return [(library, library.get_num_threads()) for library in libraries if library not in [one for one, _ in loaded]]


class _Limit:
    """One BLAS thread for the whole process while there is a holder of the limit.

    The first holder sets it, and the last to be dropped puts back what was there. A forked child drops the holders of
    threads that only its parent has.
    """

    def __init__(self):
        self._guard = RLock()
        self._holders = {}  # the thread of each, and what that thread had for itself
        self._before = []  # how many threads each shared library had; empty without holders

    def take(self, holder):
        with self._guard:
            self._holders[holder] = get_ident(), []
            self._limit_all()

    def renew(self):
        """Limit libraries, too, that were loaded since there are holders."""
        with self._guard:
            if self._holders:
                self._limit_all()

    def _limit_all(self):
        """Limit what is not limited yet, for the process and for this thread."""
        shared, own = _libraries()
        self._before += (new := _unknown(shared, self._before))
        _set([(library, 1) for library, _ in new], hold=True)
        for thread, mine in self._holders.values():
            if thread == get_ident():
                mine += _unknown(own, mine)
        if _limited.get() or any(thread == get_ident() for thread, _ in self._holders.values()):
            _limit_this_thread()

    def drop(self, holder):
        """Drop a holder, or one that was interrupted on the way."""
        with self._guard:
            _, own = self._holders.pop(holder, (None, []))
            _set(own)
            if not self._holders:
                _set(self._before)
                self._before = []

    def guard_forks(self):
        """Fork while the limit does not change."""
        os.register_at_fork(
            before=self._guard.acquire, after_in_parent=self._guard.release, after_in_child=self._in_child
        )

    def _in_child(self):
        others = [holder for holder, (thread, _) in self._holders.items() if thread != get_ident()]
        for holder in others:
            self._holders[holder] = None, []  # that thread is not here
            self.drop(holder)
        self._guard.release()


def _limit_this_thread():
    """One BLAS thread where each thread has a number of its own."""
    _set([(library, 1) for library in _libraries()[1]])


_limit = _Limit()
AFTER_LOADING.append(_limit.renew)
if hasattr(os, "register_at_fork"):
    _limit.guard_forks()


@contextmanager
def single_blas():
    """Run BLAS on one thread: several give other bits, and they fight with ours.

    Callers on several Python threads share the limit. Tasks of a caller that has it need not take it.
    """
    if _limited.get():
        yield
        return
    holder = object()
    try:
        _limit.take(holder)
        _limited.set(True)
        yield
    finally:
        _limited.set(False)
        _limit.drop(holder)
