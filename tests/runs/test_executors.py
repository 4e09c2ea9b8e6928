"""Threads: order, bounds, errors, interruption, nesting, forking; one thread of BLAS at a time."""

import gc
import itertools
import math
import os
import subprocess
import sys
import textwrap
import threading
import time

import numpy as np
import pytest
from support.interrupts import check_script_is_interrupted

import cavity
from cavity.runs import executors
from cavity.runs.executors import TASKS_AHEAD_PER_THREAD, Threads, resolve_n_threads, split_range

pytestmark = pytest.mark.usefixtures("no_thread_is_left")

THREADS = [1, 2, 3]


def script(text, **options):
    """Run Python in a process of its own, so that a deadlock is a failure and not the end of the tests.

    Without the numbers of threads that clusters of dask leave in the environment.
    """
    clean = {name: value for name, value in os.environ.items() if not name.endswith("_NUM_THREADS")}
    options = {"env": clean} | options
    done = subprocess.run([sys.executable, "-c", text], capture_output=True, text=True, timeout=60, **options)
    assert done.returncode == 0, done.stderr
    return done.stdout


CORES = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()


@pytest.mark.parametrize(
    ("values", "variable", "count"),
    [(3, "2", 3), (np.int64(2), None, 2), (-1, "2", CORES), (None, "2", 2), (None, "-1", CORES)],
)
def test_how_many_threads(values, variable, count, monkeypatch):
    monkeypatch.delenv("CAVITY_NUM_THREADS", raising=False)
    if variable is not None:
        monkeypatch.setenv("CAVITY_NUM_THREADS", variable)
    assert resolve_n_threads(values) == count


@pytest.mark.parametrize(
    ("quota", "variable", "count"),
    [
        (math.inf, None, 8),
        (3, None, 3),
        (math.inf, "2", 2),
        (3, "5,2", 3),
        (1, "16", 1),
        (math.inf, "0", 1),
        (8, "many", 8),
    ],
)
def test_default_threads_are_the_cores_that_may_be_used(quota, variable, count, monkeypatch):
    monkeypatch.setattr(executors, "_count_cores", lambda: 8)
    monkeypatch.setattr(executors, "_read_quota", lambda: quota)
    for name in ("CAVITY_NUM_THREADS", "OMP_NUM_THREADS"):
        monkeypatch.delenv(name, raising=False)
    if variable is not None:
        monkeypatch.setenv("OMP_NUM_THREADS", variable)
    chosen = resolve_n_threads(None)
    assert chosen == count
    assert resolve_n_threads(chosen) is chosen  # still a default where it is handed on
    monkeypatch.setenv("CAVITY_NUM_THREADS", "6")
    assert (resolve_n_threads(None), type(resolve_n_threads(None))) == (6, int)


@pytest.mark.parametrize(("text", "count"), [("max 100000", math.inf), ("150000 100000\n", 2), ("50000 100000", 1)])
def test_quota_of_a_control_group(text, count, monkeypatch):
    monkeypatch.setattr(executors.Path, "read_text", lambda path: text if path.name == "cpu.max" else 1 / 0)
    executors._read_quota.cache_clear()
    assert executors._read_quota() == count
    executors._read_quota.cache_clear()


@pytest.mark.parametrize("backends", [(), pytest.param(("loky", "threading"), marks=pytest.mark.long)])
def test_workers_have_one_thread_by_default(backends):
    """In threads, forked children, processes of multiprocessing and of joblib."""
    check_output = f"""
        import os, threading, multiprocessing
        from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
        from cavity.runs import executors
        executors._count_cores = lambda: 8
        count = executors.resolve_n_threads
        assert count(None) == executors.count_usable_cores()
        with ThreadPoolExecutor(1) as pool:
            assert pool.submit(count, None).result() == 1
        if hasattr(os, "fork"):
            child = os.fork()
            if child == 0:
                os._exit(count(None))
            assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 1
            with ProcessPoolExecutor(1, multiprocessing.get_context("fork")) as pool:
                assert pool.submit(count, None).result() == 1
        for backend in {backends}:
            import joblib
            assert joblib.Parallel(2, backend=backend)(joblib.delayed(count)(None) for _ in range(2)) == [1, 1]
        """
    script(textwrap.dedent(check_output))


def test_default_threads_share_what_took_long_before(monkeypatch):
    """The first call begins inline; a short one stays there, and results are in order."""
    monkeypatch.setattr(executors, "MIN_SHARED_SECONDS", 0.1)  # six empty tasks take less, busy or not
    main, seen = threading.get_ident(), []

    def task(i, seconds):
        time.sleep(seconds)
        seen.append(threading.get_ident())
        return i

    with Threads(executors.DefaultCount(2)) as threads:
        for seconds, is_shared in ((0.0, False), (0.04, True), (0.04, True)):
            seen.clear()
            assert threads.run(task, [(i, seconds) for i in range(6)]) == list(range(6))
            assert (set(seen) != {main}) == is_shared
        seen.clear()
        threads.run(lambda: seen.append(threading.get_ident()), [()] * 2)
        assert seen == [main] * 2


def test_how_many_threads_there_cannot_be(monkeypatch):
    for wrong, kind, message in (
        (0, ValueError, "at least 1, or -1"),
        (-2, ValueError, "got -2"),
        ("2", TypeError, "'2'"),
    ):
        with pytest.raises(kind, match=f"n_threads must be .*{message}"):
            resolve_n_threads(wrong)
    for wrong in ("two", "0", "1.5", "-2"):
        monkeypatch.setenv("CAVITY_NUM_THREADS", wrong)
        assert resolve_n_threads(1) == 1
        with pytest.raises(ValueError, match=f"the environment variable CAVITY_NUM_THREADS must be .*{wrong}"):
            resolve_n_threads(None)
        with pytest.raises(ValueError, match="CAVITY_NUM_THREADS"):
            cavity.GaussianMixture(1).fit([[0.0], [1.0]])


@pytest.mark.parametrize("n_threads", THREADS)
@pytest.mark.parametrize("method", ["run", "imap"])
def test_results_come_in_the_order_of_the_tasks(n_threads, method):
    delays = np.random.default_rng(0).permutation(30) * 2e-4

    def task(i, delay):
        time.sleep(delay)
        return i

    with Threads(n_threads) as threads:
        assert list(getattr(threads, method)(task, enumerate(delays))) == list(range(30))
        assert list(getattr(threads, method)(task, [])) == []
        assert list(getattr(threads, method)(task, [(7, 0.0)])) == [7]


def test_tasks_run_at_the_same_time():
    both = threading.Barrier(2)
    with Threads(2) as threads:
        assert sorted(threads.imap(both.wait, [(10,), (10,)])) == [0, 1]  # would break after 10 s if they did not
        assert sorted(threads.run(both.wait, [(10,), (10,)])) == [0, 1]


@pytest.mark.parametrize("n_threads", THREADS)
def test_few_tasks_are_under_way(n_threads):
    started = itertools.count()
    last, fetched, most = 0, 0, 0

    def task(i):
        nonlocal last
        last = next(started) + 1

    with Threads(n_threads) as threads:
        for _ in threads.imap(task, zip(range(300))):
            fetched += 1
            most = max(most, last - fetched)
    assert fetched == 300
    assert most <= TASKS_AHEAD_PER_THREAD * n_threads


@pytest.mark.parametrize("n_threads", THREADS)
def test_arguments_without_end_and_a_consumer_who_leaves(n_threads):
    with Threads(n_threads) as threads:
        results = threads.imap(lambda i: i * i, zip(itertools.count()))
        assert list(itertools.islice(results, 5)) == [0, 1, 4, 9, 16]
        results.close()
        with pytest.raises(ZeroDivisionError):
            next(1 // result for result in threads.imap(lambda i: i, zip(itertools.count())))
        assert threads.run(lambda i: -i, [(1,), (2,)]) == [-1, -2]  # and it is still of use


@pytest.mark.parametrize("n_threads", THREADS)
@pytest.mark.parametrize("method", ["run", "imap"])
def test_the_first_error_in_order_is_raised_and_the_rest_is_dropped(n_threads, method):
    begun, ended = [], []

    def task(i):
        begun.append(i)
        time.sleep(0.02 if i == 3 else 0.001)
        ended.append(i)
        if i in (3, 4):  # the fourth is reached first on two threads
            raise ValueError(f"task {i}")

    with Threads(n_threads) as threads:
        with pytest.raises(ValueError, match="task 3"):
            list(getattr(threads, method)(task, zip(range(2000))))
        assert sorted(begun) == sorted(ended)  # whoever had begun is done: nothing is written from here on
        assert len(begun) < 500
        count = len(begun)
        time.sleep(0.02)
        assert len(begun) == count


def test_an_error_of_a_thread_shows_where_it_came_from():
    def culprit():
        raise KeyError("x")

    with Threads(2) as threads, pytest.raises(KeyError) as caught:
        threads.run(culprit, [(), ()])
    assert caught.traceback[-1].name == "culprit"


def test_tasks_see_the_error_state_of_the_caller():
    with Threads(2) as threads:
        for state in ("raise", "ignore"):
            with np.errstate(divide=state, over="ignore"):
                expected = [np.geterr()] * 4
                assert threads.run(np.geterr, 4 * [()]) == expected


def test_lasting_threads_are_those_of_the_number():
    executors._keep_threads.cache_clear()
    threads = executors.get_lasting_threads(2)
    assert threads is executors.get_lasting_threads(2) is not executors.get_lasting_threads(3)
    assert threads is not executors.get_lasting_threads(executors.DefaultCount(2))
    assert threads.run(lambda a: a + 1, [(1,), (2,)]) == [2, 3]
    assert threads.run(lambda a: a + 1, [(3,), (4,)]) == [4, 5]
    threads.__exit__()  # for the tests that follow
    executors._keep_threads.cache_clear()


def test_tasks_may_use_threads_themselves():
    out = script("""
from cavity.runs.executors import Threads
with Threads(2) as threads:
    def inner(i, j):
        return 10 * i + j
    def middle(i):
        with Threads(3) as others:
            return threads.run(inner, [(i, j) for j in range(3)]) + list(others.imap(inner, [(i, j) for j in range(3)]))
    print(threads.run(middle, [(i,) for i in range(8)]) == [2 * [10 * i + j for j in range(3)] for i in range(8)])
    outer = threads.imap(inner, [(1, j) for j in range(50)])  # two iterations of one caller, one inside the other
    print([sum(threads.imap(inner, [(value, 0)] * 3)) for value in outer] == [30 * (10 + j) for j in range(50)])
""")
    assert out.split() == ["True", "True"]


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs os.fork")
def test_a_forked_child_goes_on_alone():
    out = script("""
import os, time, warnings
from cavity.runs.executors import Threads
warnings.simplefilter("ignore", DeprecationWarning)  # of forking with threads, from Python 3.12 on
def square(i):
    time.sleep(0.01)
    return i * i
with Threads(2) as threads:
    under_way = threads.imap(square, [(i,) for i in range(8)])
    next(under_way)
    child = os.fork()
    if child == 0:
        under_way.close()
        code = 0 if threads.run(square, [(i,) for i in range(5)]) == [0, 1, 4, 9, 16] else 1
        threads.__exit__()
        os._exit(code)
    print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), list(under_way))
""")
    assert out.strip() == "0 [1, 4, 9, 16, 25, 36, 49]"


PASSES = """
import signal, sys, threading, time
import numpy as np
from cavity.sources import sources
from cavity.runs.executors import Threads
from cavity.runs.merge import BlockTask
from cavity.runs.passes import reduce_runs
signal.signal(signal.SIGINT, signal.default_int_handler)
source = sources.open_source(sys.argv[1], "y", block_rows=1 << 12)
def kernel(block, start, broadcast):
    time.sleep(0.02)
    return np.exp(block).sum()
try:
    with Threads(int(sys.argv[2])) as threads:
        print("ready", flush=True)
        for _ in range(1000):
            reduce_runs(BlockTask(kernel), None, [source], threads, grain=1)
except KeyboardInterrupt:
    print("interrupted", threading.active_count(), flush=True)
"""


@pytest.mark.skipif(os.name == "nt", reason="needs SIGINT")
@pytest.mark.parametrize("n_threads", [pytest.param(1, marks=pytest.mark.long), 2])
def test_interruption_in_the_middle_of_a_pass(tmp_path, n_threads):
    check_script_is_interrupted(PASSES, tmp_path / "y.npy", n_threads)


@pytest.mark.skipif(os.name == "nt", reason="needs SIGINT")
@pytest.mark.parametrize("method", ["run", "imap"])
def test_after_an_interruption_no_task_is_under_way(method):
    """But the interrupted one: the one whose result was waited for is done, although the context has not been left."""
    out = script(f"""
import signal, threading, time
from cavity.runs.executors import Threads
signal.signal(signal.SIGINT, signal.default_int_handler)
begun, ended = [], []
def task(i):
    if threading.current_thread() is not threading.main_thread():
        begun.append(i)
    if i == 1:
        time.sleep(0.05)
        signal.pthread_kill(threading.main_thread().ident, signal.SIGINT)
    time.sleep(0.4 if i == 0 else 0.01)
    if threading.current_thread() is not threading.main_thread():
        ended.append(i)
with Threads(2) as threads:
    try:
        list(threads.{method}(task, zip(range(1000))))
    except KeyboardInterrupt:
        print(0 in ended, sorted(begun) == sorted(ended), len(begun) < 100)
    print(threads.run(abs, [(-1,), (-2,)]))
""")
    assert out.splitlines() == ["True True True", "[1, 2]"]


def test_results_are_not_kept():
    class Result:
        alive = 0

        def __init__(self):
            Result.alive += 1

        def __del__(self):
            Result.alive -= 1

    most = 0
    with Threads(2) as threads:
        for _ in threads.imap(Result, 200 * [()]):
            gc.collect(0)
            most = max(most, Result.alive)
    assert most <= 2 * TASKS_AHEAD_PER_THREAD + 1


def test_spans_cover_the_range():
    for size, parts, multiple in itertools.product([0, 1, 7, 64, 1000], [1, 2, 3, 16], [1, 8]):
        result = split_range(size, parts, multiple)
        assert [i for start, stop in result for i in range(start, stop)] == list(range(size))
        assert len(result) <= parts
        assert all(start % multiple == 0 for start, _ in result)


def test_one_blas_thread_inside_tasks_too():
    out = script("""
import numpy, scipy.linalg
from threadpoolctl import threadpool_info, threadpool_limits
from cavity.runs.executors import Threads, single_blas
def counts():
    return [each["num_threads"] for each in threadpool_info() if each["user_api"] == "blas"]
def task():
    with single_blas():
        return counts()
with threadpool_limits(2, user_api="blas"):
    with Threads(2) as threads, single_blas():
        print({1} == {n for each in threads.run(task, [(), (), ()]) for n in each})
        with single_blas():
            pass
        print(set(counts()) == {1})
    print(set(counts()) == {2})
""")
    assert out.split() == ["True", "True", "True"]


BLAS = """
import os, threading, warnings
import scipy.linalg
from threadpoolctl import threadpool_info, threadpool_limits
from cavity.runs.executors import single_blas
warnings.simplefilter("ignore", DeprecationWarning)  # of forking with threads, from Python 3.12 on
threadpool_limits(2, user_api="blas")
def counts():
    return {each["num_threads"] for each in threadpool_info() if each["user_api"] == "blas"}
"""


@pytest.mark.long
def test_callers_on_several_threads_share_the_limit():
    """The first sets it and the last lifts it, whatever ends them."""
    out = script(
        BLAS
        + """
both, entered, left = threading.Barrier(2), threading.Event(), threading.Event()
def first():
    try:
        with single_blas():
            both.wait(10)  # two are inside
            raise KeyError
    except KeyError:
        left.set()
def second():
    with single_blas():
        both.wait(10)
        left.wait(10)
        print(counts() == {1})  # the other one has gone
callers = [threading.Thread(target=each) for each in (first, second)]
for each in callers: each.start()
for each in callers: each.join()
print(counts() == {2})
"""
    )
    assert out.split() == ["True", "True"]


def test_fits_inside_fits_and_limits_of_the_user():
    """A callback that fits, an error out of it, a limit around both: what was there before comes back."""
    out = script(
        BLAS
        + """
import cavity
X, y = [[1.0, 2.0], [1.0, 1.0], [1.0, 0.0], [1.0, 3.0]], [0, 1, 1, 0]
def fit(callback=None):
    return cavity.GLM("probit").fit(X, y, callback=callback)
def inner(event):
    if event.n_iter == 1:
        fit()
        print(counts() == {1})  # the outer fit goes on under its limit
def wrong(event):
    fit()
    raise KeyError
fit(inner)
print(counts() == {2})
try:
    fit(wrong)
except KeyError:
    print(counts() == {2})
with threadpool_limits(3, user_api="blas"):
    before = counts()
    fit()
    print(counts() == before != {1})
print(counts() == {2})
"""
    )
    assert out.split() == ["True"] * 5


def test_a_blas_that_nobody_can_limit(monkeypatch):
    """As one that threadpoolctl does not know."""
    monkeypatch.setattr(executors, "_libraries", lambda: ([], []))
    with executors.Threads(2) as threads, executors.single_blas():
        assert threads.run(pow, [(2, 3), (3, 2)]) == [8, 9]
        with executors.single_blas():
            pass
    with pytest.raises(KeyError), executors.single_blas():
        raise KeyError


def test_the_limit_is_lifted_after_an_interruption_at_any_line():
    out = script(
        BLAS
        + """
import sys
import textwrap
from contextlib import suppress
from cavity.runs import executors
for line in range(1000):
    passed = 0
    def at_line(frame, event, _):  # Ctrl-C at one of the lines on the way in, and in the block
        global passed
        if frame.f_code.co_filename != executors.__file__ or frame.f_code.co_name not in ("single_blas", "take"):
            return None
        passed += event == "line"
        if passed > line and event == "line":
            sys.settrace(None)
            raise KeyboardInterrupt
        return at_line
    interrupted = True
    with suppress(KeyboardInterrupt):
        sys.settrace(at_line)
        with single_blas():
            sys.settrace(None)
            interrupted = False
    sys.settrace(None)
    assert counts() == {2}, line
    with single_blas():
        assert counts() == {1}, line
    if not interrupted:
        break
print(line > 5)
"""
    )
    assert out.strip() == "True"


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs os.fork")
def test_a_forked_child_has_the_limits_of_its_own_thread_only():
    out = script(
        BLAS
        + """
inside, done = threading.Event(), threading.Event()
def other():
    with single_blas():
        inside.set()
        done.wait(10)
thread = threading.Thread(target=other)
thread.start()
inside.wait(10)
def in_child(task):
    child = os.fork()
    if child == 0:
        os._exit(0 if task() else 1)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
print(in_child(lambda: counts() == {2}))
with single_blas():
    print(in_child(lambda: counts() == {1}))
done.set()
thread.join()
print(counts() == {2})
"""
    )
    assert out.split() == ["0", "0", "True"]


@pytest.mark.long
def test_the_limit_holds_for_libraries_that_are_loaded_under_it():
    """SciPy's comes with the first call that needs it."""
    out = script(
        BLAS.replace("import scipy.linalg\n", "import sys\n").replace("2, user", "3, user")
        + """
from cavity.base.lazy_scipy import lapack
with single_blas():
    print("scipy" in sys.modules, counts())
    lapack.dpotrf
    print(len([each for each in threadpool_info() if each["user_api"] == "blas"]) > 0, counts())
    with single_blas():
        pass
    print(counts())
print("scipy" in sys.modules, 1 in counts())
"""
    )
    single = resolve_n_threads(-1) == 1  # on one core that is what it has by itself
    assert out.splitlines() == ["False {1}", "True {1}", "{1}", f"True {single}"]


def test_libraries_with_a_number_for_each_thread(monkeypatch):
    """As OpenBLAS on OpenMP: every thread that works for us sets its own, and callers get theirs back."""

    class Library:
        def __init__(self):
            self.numbers = threading.local()

        def get_num_threads(self):
            return getattr(self.numbers, "value", 8)

        def set_num_threads(self, number):
            self.numbers.value = number

    library = Library()
    monkeypatch.setattr(executors, "_libraries", lambda: ([], [library]))
    with executors.Threads(3) as threads, executors.single_blas():
        assert threads.run(library.get_num_threads, [()] * 20) == [1] * 20
        with executors.single_blas():
            assert library.get_num_threads() == 1
        assert library.get_num_threads() == 1
    assert library.get_num_threads() == 8
    with executors.Threads(3) as threads:
        assert threads.run(library.get_num_threads, [()] * 20) == [8] * 20


@pytest.mark.long
def test_the_limit_holds_where_another_thread_has_set_numbers():
    """Newer versions of threadpoolctl do nothing for threads other than the one that set numbers first."""
    out = script(
        BLAS
        + """
def fit():
    with single_blas():
        print(counts() == {1})
thread = threading.Thread(target=fit)
thread.start()
thread.join()
print(counts() == {2})
with threadpool_limits(1, user_api="blas"):
    print(counts() == {1})
print(counts() == {2})
"""
    )
    assert out.split() == ["True"] * 4


def test_several_calls_a_task_change_neither_order_nor_errors():
    def square(i):
        if i == 11:
            raise ValueError("eleven")
        return i * i

    for n_threads in (1, 2, 3):
        with Threads(n_threads) as threads:
            for n, grain in [(0, 3), (1, 3), (7, 2), (11, 4), (11, 100)]:
                result = list(threads.imap(square, zip(range(n)), grain=grain))
                assert result == [i * i for i in range(n)]
            several = threads.imap(square, zip(range(20)), grain=3)
            assert [next(several) for _ in range(9)] == [i * i for i in range(9)]
            with pytest.raises(ValueError, match="eleven"):
                list(several)


def test_several_calls_a_task_run_on_one_thread():
    with Threads(2) as threads:
        names = list(threads.imap(threading.get_ident, [()] * 12, grain=4))
    assert all(len(set(names[i : i + 4])) == 1 for i in range(0, 12, 4))


@pytest.mark.parametrize("single", [[()], ((),)])
def test_one_task_is_done_by_the_caller(single):
    """Whatever the last one took: to hand it to a thread is work without gain."""
    with Threads(2) as threads:
        assert list(threads.imap(threading.current_thread, single)) == [threading.main_thread()]
        assert list(threads.imap(threading.current_thread, [])) == []
