"""Calls of one function on many blocks of arrays that dask has, on its workers, a few at a time."""

from collections import deque
from dataclasses import dataclass
from itertools import islice

import numpy as np

from cavity.base.build_description import describe_build
from cavity.runs.dask_scheduler import Scheduler, load_each
from cavity.runs.executors import single_blas
from cavity.runs.remote import TASKS_A_THREAD, compare_builds


@dataclass(frozen=True, slots=True)
class BlockCall:
    """The task of dask: it returns what the function does, or the error that it raises, and what worked on it."""

    function: object
    errors: dict  # numpy's error state of the caller

    def __call__(self, *arguments):
        with single_blas(), np.errstate(**self.errors):
            try:
                return self.function(*arguments), describe_build()
            except Exception as error:
                return error, describe_build()


def call_on_blocks(function, arguments, name):
    """Yield function(*a) for a in arguments, in that order; the first error in that order is raised.

    Parameters
    ----------
    function : callable
        Sent once to the workers.
    arguments : iterable of tuple
        Arrays of dask in them, or in dicts in them, become arrays of NumPy where the function is called. Some are taken
        at a time: as many as make the workers busy while the last results are fetched.
    name : str
        For messages: that of the arrays.
    """
    from dask import delayed

    scheduler, arguments, pending, builds = Scheduler(), iter(arguments), deque(), set()
    call = delayed(BlockCall(function, np.geterr()), pure=False, traverse=False)
    size = TASKS_A_THREAD * scheduler.threads
    try:
        while True:
            tasks = [call(*task_arguments) for task_arguments in islice(arguments, size)]
            if tasks:
                pending.append(tasks if scheduler.client is None else scheduler.client.compute(tasks))
            if len(pending) > bool(tasks):
                for result, build in _fetch(scheduler, pending.popleft(), name):
                    if isinstance(result, Exception):
                        raise result
                    compare_builds({build}, builds)
                    yield result
            elif not tasks:
                return
    finally:
        if scheduler.client is not None and scheduler.client.status == "running":
            scheduler.client.cancel([future for futures in pending for future in futures])


def _fetch(scheduler, tasks, name):
    """Return what some tasks return; RuntimeError where arrays cannot be computed, or workers are lost."""
    try:
        return load_each(tasks) if scheduler.client is None else scheduler.gathered(tasks)
    except Exception as error:
        raise scheduler.explain_loss(error, f"{name}: blocks cannot be computed") from error
