"""What watches over a fit: who is told how far it is, and may stop it; and what it goes on with after a kill.

One `Job` goes through a fit, in its options. Whoever does passes says so by `Job.after`; parts of a fit that have a
number or a name are stages of it. Where nobody listens, that costs the call and nothing more.
"""

from __future__ import annotations

import logging
import sys
from collections.abc import Callable
from contextlib import contextmanager
from dataclasses import dataclass
from math import isfinite
from threading import RLock
from time import perf_counter
from typing import Any

from cavity.base import arrays
from cavity.base.names import Public
from cavity.blocks.checkpoint import Checkpoint, checked_path

LOGGER = logging.getLogger("cavity")
LOGGER.addHandler(logging.NullHandler())
WHOLE = "fit"  # the stage of a fit that has no others
BAR_SECONDS, LINE_SECONDS = 0.1, 1.0  # between what is shown: as fast as one sees, as fast as one reads
LINE_SHARE = 0.01  # of the time so far: lines of a long job become rare


@dataclass(frozen=True, slots=True)
class Event(Public):
    """What a callback hears after each pass, sweep, step or evaluation of a fit.

    Parameters
    ----------
    stage : str
        What the fit is doing: "fit", or for example "start 2 of 5", "search 1 of 3", "K = 4, trial 1 of 2".
    n_iter : int
        Passes, sweeps, steps of this stage so far; of a search, evaluations.
    objective : float or None
        The ELBO (coordinate ascent), or the log evidence or bound (searches), if it is known.
    change : float or None
        What the stopping rule looks at, as in ``trace["change"]``; the step size of stochastic fits.
    rows_per_second : float or None
        Rows seen in this pass over the seconds it took.
    passes_left : float or None
        How many more passes the errors, shrinking as they do, take to the stopping rule, but no more than `max_iter`
        allows: log(gap/tol)/-log(rate). For coordinate ascent with the predicted gap of the ELBO and its contraction;
        for EP with the change and its mean rate over the last five sweeps. None where errors do not shrink, and for
        searches.

    Examples
    --------
    >>> import cavity, warnings
    >>> def report(event):
    ...     print(event.stage, event.n_iter, round(event.objective, 3))
    ...     return event.n_iter == 3  # enough
    >>> model = cavity.FactorizedGaussian(0.0, [[1.0, 0.9], [0.9, 1.0]])
    >>> with warnings.catch_warnings(action="ignore"):
    ...     model.fit(callback=report).status
    fit 1 -2.73
    fit 2 -0.907
    fit 3 -0.881
    'stopped by callback'
    """

    stage: str
    n_iter: int
    objective: float | None
    change: float | None
    rows_per_second: float | None
    passes_left: float | None


NOTHING_YET = Event(WHOLE, 0, None, None, None, None)


class Job:
    """Who listens to a fit, or to one stage of it; `Job()` is one that nobody listens to."""

    __slots__ = ("_before", "_floor", "_outermost", "_place", "_since", "_told", "_watch", "name")

    def __init__(self, watch=None, name="", before=0, floor=-float("inf"), outermost=True, place=()):
        self._watch, self.name, self._before, self._floor, self._outermost = watch, name, before, floor, outermost
        self._place = place  # in the checkpoint: the names of the stages on the way; None keeps nothing
        self._since, self._told = perf_counter(), 0

    @classmethod
    def checked(cls, callback=None, progress=False, checkpoint=None, checkpoint_every=60.0):
        """Return the job of a fit, for options as a user gave them.

        Parameters
        ----------
        callback : callable, Job or None
            Called as callback(event) with an `Event`; a true result stops the fit. A stage of an outer fit is the job
            of an inner one.
        progress : bool
            Whether to show a bar or lines on stderr.
        checkpoint : path-like or None
            The file of a fit that goes on where it was killed, see `blocks.checkpoint`.
        checkpoint_every : float
            Seconds from one writing to the next.

        Raises
        ------
        ValueError, TypeError, OSError
            Naming what is none of these.
        """
        path, every = checked_path(checkpoint, checkpoint_every)
        if isinstance(callback, Job):
            return callback
        if callback is not None and not callable(callback):
            raise TypeError(f"callback must be callable, got {callback!r}")
        displays = [Display(bar_or_lines())] if arrays.flag(progress, "progress") else []
        if LOGGER.isEnabledFor(logging.INFO):
            displays.append(Display(Lines(LOGGER.info)))
        kept = None if path is None else Checkpoint(path, every)
        heard = displays or callback is not None or kept is not None
        return cls(Watch(callback, displays, kept) if heard else None)

    def __reduce__(self):
        """Nobody listens to copies in files and other processes."""
        return _quiet, ()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        if self._outermost and self._watch is not None:
            self._watch.close()

    @property
    def stopped(self):
        """Whether the callback has asked to stop: no stage that has not begun shall begin."""
        return self._watch is not None and self._watch.stopped

    def stage(self, name):
        """Return the job of a part of the fit."""
        whole = f"{self.name}, {name}" if self.name else name
        return Job(self._watch, whole, self._before, self._floor, False, self._inside(name))

    def numbered(self, name, number, n, single=None):
        """Return the job of part "name 2 of 5"; of the only part one by the name `single`, or this one."""
        if n > 1:
            return self.stage(f"{name} {number} of {n}")
        return self if single is None else self.stage(single)

    def through(self, name, items, n, single=None):
        """Yield n items, each with its `numbered` job, up to where the callback stops."""
        for number, item in enumerate(items, 1):
            yield item, self.numbered(name, number, n, single)
            if self.stopped:
                return

    def within_pass(self, done, n, rows, whole=False):
        """Tell that of a pass over n blocks, together of so many rows, these are done.

        Displays show it as a share; callbacks hear of passes that are over, and of one that is a stage of its own,
        `whole`, a few times a second.
        """
        if self._watch is None:
            return
        if not whole:
            self._watch.show_share(done / n)
        elif perf_counter() - self._since >= BAR_SECONDS:
            self.after(done, rows=(done - self._told) * rows / n, left=n - done)
            self._told = done

    def going_on(self, n_iter, objective=-float("inf")):
        """Return the job of what follows so many passes, with which this objective was reached."""
        floor = max(self._floor, objective)
        return Job(self._watch, self.name, self._before + n_iter, floor, False, self._place)

    def within(self, name):
        """Return the same job for all who listen, which keeps what it keeps under a name of its own."""
        return Job(self._watch, self.name, self._before, self._floor, False, self._inside(name))

    def unkept(self):
        """Return the same job for all who listen, which keeps nothing: for what is done again after a kill."""
        return Job(self._watch, self.name, self._before, self._floor, False, None)

    def _inside(self, name):
        return None if self._place is None else (*self._place, name)

    def quiet(self):
        """Return the job of inner fits that nobody wants to hear of."""
        return QUIET

    def ending(self):
        """Return the job of what is done even after a stop, so that there is a result: nobody stops it again."""
        return QUIET if self.stopped else self

    def after(self, n_iter, *, objective=None, change=None, rows=None, left=None):
        """Tell all who listen that a pass is done; return whether to stop and keep what is known.

        Parameters
        ----------
        n_iter : int
            Passes of this stage so far, or of what goes on.
        objective : float, optional
            See `Event`.
        change, left : float, or callable without arguments that returns it, optional
            The change and the passes that are left, see `Event`; functions are called where somebody listens.
        rows : int, optional
            Rows seen in the pass.
        """
        if self._watch is None:
            return False
        seconds = perf_counter() - self._since
        event = Event(
            stage=self.name or WHOLE,
            n_iter=self._before + n_iter,
            objective=None if objective is None or not isfinite(objective) else max(self._floor, float(objective)),
            change=_number(change),
            rows_per_second=None if rows is None else rows / max(seconds, 1e-9),
            passes_left=_number(left),
        )
        stop = self._watch.tell(event)
        self._since = perf_counter()
        return stop

    # ------------------------------------------------------------------------------------------ going on after a kill

    @property
    def _checkpoint(self):
        return None if self._watch is None or self._place is None else self._watch.checkpoint

    @contextmanager
    def opened(self, model, data, **settings):
        """A context in which the checkpoint, if there is one, belongs to this fit; see `Checkpoint.opened`."""
        if self._checkpoint is None or not self._outermost:
            yield
            return
        with self._checkpoint.opened(model, data, **settings):
            yield

    @property
    def keeps(self):
        """Whether there is a checkpoint."""
        return self._checkpoint is not None

    @property
    def folder(self):
        """The folder of the checkpoint; None without one."""
        return None if self._checkpoint is None else self._checkpoint.path.parent

    def resumed(self, *like):
        """Return what this stage kept last, before the fit was killed, or None; see `Checkpoint.found`."""
        return None if self._checkpoint is None else self._checkpoint.found(self._place, *like)

    def keep(self, make):
        """Keep what decides how this stage goes on.

        Parameters
        ----------
        make : callable
            Without arguments; returns that. Nothing in it may change later.
        """
        if self._checkpoint is not None:
            self._checkpoint.keep(self._place, make())


def _number(value):
    """Return a number as float, that of a function which is asked only now, or None."""
    value = value() if callable(value) else value
    return None if value is None else float(value)


def _quiet():
    return QUIET


QUIET = Job()


class Watch:
    """What all stages of a job share: the callback, displays, and whether to stop."""

    def __init__(self, callback: Callable[[Event], Any] | None, displays: list[Display], checkpoint=None):
        self.callback, self.displays, self.checkpoint = callback, displays, checkpoint
        self.stopped, self._lock = False, RLock()

    def tell(self, event):
        """Tell all; return whether to stop. Threads are heard one after the other."""
        with self._lock:
            if not self.stopped:
                for display in self.displays:
                    display.tell(event)
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


class Display:
    """Shows events by a writer, not more often than one can follow, and the last one in any case."""

    def __init__(self, writer):
        self._writer, self._begun = writer, perf_counter()
        self._shown, self._last, self._waiting = 0.0, NOTHING_YET, False

    def _is_time(self):
        now = perf_counter() - self._begun
        if now - self._shown < max(self._writer.seconds, self._writer.share * now):
            return False
        self._shown = now
        return True

    def tell(self, event):
        """Show an event, or keep it."""
        is_first, self._last = self._last is NOTHING_YET, event
        self._waiting = not (self._is_time() or is_first)
        if not self._waiting:
            self._writer.show(event, words(event))

    def show_share(self, share):
        """Show the last event again, and which share of the rows the next one has seen so far."""
        if share < 1.0 and self._is_time():
            self._waiting = False
            self._writer.show(self._last, [*words(self._last), f"{share:.0%} of the next pass"])

    def close(self):
        """Show what was kept last."""
        if self._waiting:
            self._writer.show(self._last, words(self._last))
            self._waiting = False
        self._writer.close()


class Lines:
    """Events as lines of text, for a function that writes one."""

    seconds, share = LINE_SECONDS, LINE_SHARE

    def __init__(self, write):
        self._write = write

    def show(self, event, words):
        """Write the line of an event."""
        self._write(f"{event.stage}: {', '.join([str(event.n_iter), *words])}")

    def close(self):
        """Nothing is open."""


class Bar:
    """Events as a bar of tqdm, whose length is what is left; a line that changes where that is not known."""

    seconds, share = BAR_SECONDS, 0.0

    def __init__(self, tqdm):
        self._tqdm, self._bar = tqdm, None

    def show(self, event, words):
        """Draw an event."""
        left = event.passes_left
        total = None if left is None else max(1, round(event.n_iter + left))
        form = f"{{desc}}: {{n_fmt}}{'' if total is None else ' |{bar:20}|'} [{{elapsed}}{{postfix}}]"
        if self._bar is None:
            self._bar = self._tqdm(desc=event.stage, bar_format=form, file=sys.stderr)
        bar = self._bar
        bar.n, bar.total, bar.bar_format = event.n_iter, total, form
        bar.set_description_str(event.stage, refresh=False)
        bar.set_postfix_str(", ".join(words), refresh=False)
        bar.refresh()

    def close(self):
        """Leave the bar as it is."""
        if self._bar is not None:
            self._bar.close()


def words(event):
    """Return what is known of an event beside its stage and number, as a list of words."""
    found = []
    if event.objective is not None:
        found.append(f"objective {event.objective:.10g}")
    if event.change is not None:
        found.append(f"change {event.change:.2g}")
    if event.rows_per_second is not None:
        found.append(f"{event.rows_per_second:.2g} rows/s")
    if event.passes_left is not None:
        found.append(f"about {event.passes_left:.0f} left")
    return found


def bar_or_lines():
    """Return the writer for progress: a bar where there is tqdm and somebody to see it move, else lines on stderr."""
    if sys.stderr.isatty() or "ipykernel" in sys.modules:
        try:
            from tqdm.auto import tqdm
        except ImportError:
            pass
        else:
            return Bar(tqdm)
    return Lines(lambda line: sys.stderr.write(f"{line}\n"))
