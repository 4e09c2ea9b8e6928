"""Events of a fit, and the bars and lines that show them."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from time import perf_counter

from cavity.base.public_objects import Public

WHOLE_FIT_STAGE = "fit"  # the stage of a fit that has no others
BAR_SECONDS, LINE_SECONDS = 0.1, 1.0  # between what is shown: as fast as one sees, as fast as one reads
LINE_SHARE = 0.01  # of the time so far: lines of a long job become rare


@dataclass(frozen=True, slots=True)
class Event(Public):
    """The argument of a callback after each pass, sweep, step or evaluation of a fit.

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
        How many more passes the errors, shrinking as they do, take to the stopping rule: log(gap/tol)/-log(rate). For
        coordinate ascent with the predicted gap of the ELBO and its contraction; for EP with the change and its mean
        rate over the last five sweeps. None where errors do not shrink, where it is more than `max_iter` leaves, and
        for searches.

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


EVENT_FORMATS = {
    "objective": "objective {:.10g}",
    "change": "change {:.2g}",
    "rows_per_second": "{:.2g} rows/s",
    "passes_left": "about {:.0f} left",
}
NOTHING_YET = Event(WHOLE_FIT_STAGE, 0, None, None, None, None)


class ProgressDisplay:
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

    def receive(self, event):
        """Show an event, or hold it back until it is time."""
        self._last, self._waiting = event, not self._is_time()
        if not self._waiting:
            self._writer.show(event, describe_event(event))

    def show_share(self, share):
        """Show the last event again, and which share of the rows the next one has seen so far."""
        if share < 1.0 and self._is_time():
            self._waiting = False
            self._writer.show(self._last, [*describe_event(self._last), f"{share:.0%} of the next pass"])

    def close(self):
        """Show the last event if it was held back."""
        if self._waiting:
            self._writer.show(self._last, describe_event(self._last))
            self._waiting = False
        self._writer.close()


class ProgressLines:
    """Events as lines of text, for a function that writes one."""

    seconds, share = LINE_SECONDS, LINE_SHARE

    def __init__(self, write):
        self._write = write

    def show(self, event, parts):
        """Write the line of an event."""
        self._write(f"{event.stage}: {', '.join([str(event.n_iter), *parts])}")

    def close(self):
        """Nothing is open."""


class ProgressBar:
    """Events as a bar of tqdm, whose length is what is left; a line that changes where that is not known."""

    seconds, share = BAR_SECONDS, 0.0

    def __init__(self, tqdm):
        self._tqdm, self._bar = tqdm, None

    def show(self, event, parts):
        """Draw an event."""
        left = event.passes_left
        total = None if left is None else max(1, round(event.n_iter + left))
        form = f"{{desc}}: {{n_fmt}}{'' if total is None else ' |{bar:20}|'} [{{elapsed}}{{postfix}}]"
        if self._bar is None:
            self._bar = self._tqdm(desc=event.stage, bar_format=form, file=sys.stderr)
        bar = self._bar
        bar.n, bar.total, bar.bar_format = event.n_iter, total, form
        bar.set_description_str(event.stage, refresh=False)
        bar.set_postfix_str(", ".join(parts), refresh=False)
        bar.refresh()

    def close(self):
        """Leave the bar as it is."""
        if self._bar is not None:
            self._bar.close()


def describe_event(event):
    """Return what is known of an event beside its stage and number, as a list of texts."""
    event_values = {name: getattr(event, name) for name in EVENT_FORMATS}
    return [EVENT_FORMATS[name].format(value) for name, value in event_values.items() if value is not None]


def open_progress_writer():
    """Return the writer for progress: a bar of tqdm on a terminal, else lines on stderr, unless it is closed."""
    if (sys.stderr is not None and sys.stderr.isatty()) or "ipykernel" in sys.modules:
        try:
            from tqdm.auto import tqdm
        except ImportError:
            pass
        else:
            return ProgressBar(tqdm)
    return ProgressLines(lambda line: None if sys.stderr is None else sys.stderr.write(f"{line}\n"))
