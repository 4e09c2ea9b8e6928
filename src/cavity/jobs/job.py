"""The job of a fit: callback, progress and checkpoint; and `Run`, the base of the options of fits.

One `Job` goes through a fit, in its options. Passes call `Job.report`; parts of a fit that have a number or a name are
stages of it. A job without callback, progress and checkpoint costs the call and nothing more.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from math import isfinite
from threading import RLock
from time import perf_counter
from typing import Any

from cavity.base import arrays
from cavity.base.public_objects import set_fields
from cavity.jobs.checkpoint import Checkpoint, check_path
from cavity.jobs.progress import (
    BAR_SECONDS,
    WHOLE_FIT_STAGE,
    Event,
    ProgressDisplay,
    ProgressLines,
    open_progress_writer,
)
from cavity.runs.executors import Threads, resolve_n_threads, single_blas

LOGGER = logging.getLogger("cavity")
LOGGER.addHandler(logging.NullHandler())


class Job:
    """Receiver of the reports of a fit, or of one stage of it; `Job()` discards them."""

    __slots__ = ("_before", "_floor", "_outermost", "_path", "_reported", "_since", "_watch", "name")

    def __init__(self, watch=None, name="", before=0, floor=-float("inf"), outermost=True, path=()):
        self._watch, self.name, self._before, self._floor, self._outermost = watch, name, before, floor, outermost
        self._path = path  # in the checkpoint: the names of the stages on the way; None keeps nothing
        self._since, self._reported = perf_counter(), 0

    @classmethod
    def checked(cls, callback=None, progress=False, checkpoint=None, checkpoint_every=60.0):
        """Return the job of a fit from its options; a stage of an outer fit is the callback, a job, of an inner one.

        ValueError, TypeError or OSError name what is not an option.
        """
        every = arrays.check_number(checkpoint_every, "checkpoint_every", low=0, closed_low=True)
        path = None if checkpoint is None else check_path(checkpoint)
        if isinstance(callback, Job):
            return callback
        if callback is not None and not callable(callback):
            raise TypeError(f"callback must be callable, got {callback!r}")
        displays = [ProgressDisplay(open_progress_writer())] if arrays.check_flag(progress, "progress") else []
        if LOGGER.isEnabledFor(logging.INFO):
            displays.append(ProgressDisplay(ProgressLines(LOGGER.info)))
        checkpoint_file = None if path is None else Checkpoint(path, every)
        is_reported = displays or callback is not None or checkpoint_file is not None
        return cls(JobState(callback, displays, checkpoint_file) if is_reported else None)

    def __reduce__(self):
        """Copies in files and other processes discard reports."""
        return _silent_job, ()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        if self._outermost and self._watch is not None:
            self._watch.close()

    @property
    def stopped(self):
        """Whether the callback stopped the fit: no stage that has not begun shall begin."""
        return self._watch is not None and self._watch.stopped

    @property
    def has_receivers(self):
        """Whether there are receivers of reports, or a checkpoint."""
        return self._watch is not None

    def stage(self, name):
        """Return the job of a part of the fit."""
        full_name = f"{self.name}, {name}" if self.name else name
        return Job(self._watch, full_name, self._before, self._floor, False, self._inside(name))

    def numbered_stage(self, name, number, n, single=None):
        """Return the job of part "name 2 of 5"; of the only part one by the name `single`, or this one."""
        if n > 1:
            return self.stage(f"{name} {number} of {n}")
        return self if single is None else self.stage(single)

    def iterate_stages(self, name, items, n, single=None):
        """Yield n items, each with its `numbered_stage`, up to where the callback stops."""
        for number, item in enumerate(items, 1):
            yield item, self.numbered_stage(name, number, n, single)
            if self.stopped:
                return

    def report_share(self, done, n, rows, is_total=False):
        """Report that of a pass over n blocks, together of so many rows, these are done.

        Displays show it as a share; callbacks are called after passes, and within one that is a stage of its own,
        `is_total`, a few times a second.
        """
        if self._watch is None:
            return
        if not is_total:
            self._watch.show_share(done / n)
        elif perf_counter() - self._since >= BAR_SECONDS:
            self.report(done, rows=(done - self._reported) * rows / n, left=n - done)
            self._reported = done

    def continued_after(self, n_iter, objective=-float("inf")):
        """Return the job of what follows so many passes, with which this objective was reached."""
        floor = max(self._floor, objective)
        return Job(self._watch, self.name, self._before + n_iter, floor, False, self._path)

    def substage(self, name):
        """Return a job with the same receivers, which keeps what it keeps under a name of its own."""
        return Job(self._watch, self.name, self._before, self._floor, False, self._inside(name))

    def without_checkpoint(self):
        """Return a job with the same receivers, which keeps nothing: for what is done again after a kill."""
        return Job(self._watch, self.name, self._before, self._floor, False, None)

    def _inside(self, name):
        return None if self._path is None else (*self._path, name)

    def final_job(self):
        """Return the job of what is done even after a stop, so that there is a result: it is not stopped again."""
        return SILENT_JOB if self.stopped else self

    def report(self, n_iter, *, objective=None, change=None, rows=None, left=None):
        """Report that a pass is done to all receivers; return whether to stop and keep what is known.

        Parameters
        ----------
        n_iter : int
            Passes of this stage so far, or of what goes on.
        objective : float, optional
            See `Event`.
        change, left : float, or callable without arguments that returns it, optional
            The change and the passes that are left, see `Event`; functions are called where there is a receiver.
        rows : int, optional
            Rows seen in the pass.
        """
        if self._watch is None:
            return False
        seconds = perf_counter() - self._since
        event = Event(
            stage=self.name or WHOLE_FIT_STAGE,
            n_iter=self._before + n_iter,
            objective=None if objective is None or not isfinite(objective) else max(self._floor, float(objective)),
            change=_number(change),
            rows_per_second=None if rows is None else rows / max(seconds, 1e-9),
            passes_left=_number(left),
        )
        stop = self._watch.send(event)
        self._since = perf_counter()
        return stop

    # ------------------------------------------------------------------------------------------ going on after a kill

    @property
    def _checkpoint(self):
        return None if self._watch is None or self._path is None else self._watch.checkpoint

    def open_checkpoint(self, model, data, **settings):
        """Return a context in which the checkpoint, if there is one, belongs to this fit; see `Checkpoint.open`."""
        if self._checkpoint is None or not self._outermost:
            return nullcontext()
        return self._checkpoint.open(model, data, **settings)

    @property
    def has_checkpoint(self):
        """Whether there is a checkpoint."""
        return self._checkpoint is not None

    @property
    def folder(self):
        """The folder of the checkpoint; None without one."""
        return None if self._checkpoint is None else self._checkpoint.path.parent

    def without_listeners(self):
        """Return the job of inner fits that are not reported, which go on after a kill all the same."""
        if not self.has_checkpoint or self.stopped:
            return SILENT_JOB
        return Job(JobState(None, [], self._checkpoint), outermost=False, path=self._path)

    def restore(self, *like):
        """Return what this stage kept last, before the fit was killed, or None; see `Checkpoint.found`."""
        return None if self._checkpoint is None else self._checkpoint.restore(self._path, *like)

    def store(self, make):
        """Keep what decides how this stage goes on.

        After a stop nothing is: what is cut short would not be what the fit, when it goes on, comes to.

        Parameters
        ----------
        make : callable
            Without arguments; returns that. Nothing in it may change later.
        """
        if self._checkpoint is not None and not self.stopped:
            self._checkpoint.store(self._path, make())


def _number(value):
    """Return a number as float, what it returns if it is a function, or None."""
    value = value() if callable(value) else value
    return None if value is None else float(value)


def _silent_job():
    return SILENT_JOB


SILENT_JOB = Job()


class JobState:
    """What all stages of a job share: the callback, displays, and whether to stop."""

    def __init__(self, callback: Callable[[Event], Any] | None, displays: list[ProgressDisplay], checkpoint=None):
        self.callback, self.displays, self.checkpoint = callback, displays, checkpoint
        self.stopped, self._lock = False, RLock()

    def send(self, event):
        """Pass an event to all receivers, one thread after the other; return whether to stop."""
        with self._lock:
            if not self.stopped:
                for display in self.displays:
                    display.receive(event)
                self.stopped = self.callback is not None and bool(self.callback(event))
            return self.stopped

    def show_share(self, share):
        """Show which share of the rows the next event has seen so far."""
        if self.displays:
            with self._lock:
                for display in self.displays:
                    display.show_share(share)

    def close(self):
        """End the displays."""
        for display in self.displays:
            display.close()


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """Base of the options of fits.

    Attributes
    ----------
    n_threads : int
        Threads; the result has the same bits for any number. -1 is all cores; by default as many as the process may
        use and the work is worth, at most CAVITY_NUM_THREADS.
    job : Job
        Callback, progress and checkpoint.
    """

    n_threads: int | None = None
    job: Job = SILENT_JOB

    def __post_init__(self):
        set_fields(self, n_threads=resolve_n_threads(self.n_threads))

    @contextmanager
    def open(self, model, data, *, uses_blas=True, **decisive):
        """A context of the work, with its `Threads`; displays end with it.

        Parameters
        ----------
        model, data, **decisive
            What decides the bits of the result beside these options; see `Checkpoint.opened`.
        uses_blas : bool, default True
            Whether BLAS is called: it has one thread then, which takes some microseconds.
        """
        checkpoint = self.job.open_checkpoint(model, data, options=self, **decisive)
        del data  # which the fit may free
        limit = single_blas() if uses_blas else nullcontext()
        with self.job, checkpoint, Threads(self.n_threads, self.job) as threads, limit:
            yield threads
