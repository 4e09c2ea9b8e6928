"""Who runs the blocks: this thread, or a few Python threads over `nogil` kernels.

Results come back in the order of the tasks, whoever finished first, so callers can merge them in a fixed order.
"""

import os
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import cache
from itertools import pairwise
from threading import RLock


class Threads:
    """A context in which `run` calls functions on up to n_threads threads."""

    def __init__(self, n_threads):
        self.count = n_threads
        self._pool = ThreadPoolExecutor(max_workers=n_threads) if n_threads > 1 else None

    def __enter__(self):
        return self

    def __exit__(self, *_):
        if self._pool is not None:
            self._pool.shutdown(cancel_futures=True)

    def run(self, function, arguments):
        """Return [function(*a) for a in arguments]; the first error in that order is raised."""
        arguments = list(arguments)
        if self._pool is None or len(arguments) < 2:
            return [function(*each) for each in arguments]
        futures = [self._pool.submit(function, *each) for each in arguments]
        try:
            return [future.result() for future in futures]
        finally:
            for future in futures:
                future.cancel()


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


@contextmanager
def single_blas():
    """Run BLAS on one thread: several give other bits, and they fight with ours.

    Callers on other Python threads wait for their turn. Overlapping limits would be lifted too early, and the last one
    to go would leave the process with one BLAS thread for good.
    """
    with _turn, _controller().limit(limits=1, user_api="blas"):
        yield
