"""Checkpoints: a fit that was killed goes on where it was, and ends in the same bits.

A fit is made of stages within stages: starts, searches, moves, passes. Its file holds, for each of them, what it kept
last: whatever decides how it goes on. What a stage keeps supersedes what those within it kept. The same fit, started
again, does the same work again, but each stage first takes what it had kept.

The file is one of `persistence`: written beside it and then renamed, so that a whole one is there at any time. It has
a digest of its content: the arrays that stages go on with are of any shape and value, so nothing else could show that
one of them was altered.
"""

import json
import os
import signal
import threading
import time
from contextlib import contextmanager
from pathlib import Path

import numpy as np

from cavity.base import persistence
from cavity.base.checkpoint_encoding import EncodedValue, collect_classes, decode, encode
from cavity.base.errors import NumericalWarning, warn
from cavity.base.paths import decode_path
from cavity.jobs.fingerprint import compute_digest, compute_fingerprint, describe_differences
from cavity.jobs.locks import FileLock

FILE_KIND, FILE_FORMAT_VERSION = "checkpoint", 2
NEW_CHECKPOINT_ADVICE = "Give another path, or remove the file to start anew"


class TerminationSignal(BaseException):
    """SIGTERM was received."""


def check_path(checkpoint):
    """Return the absolute path of a checkpoint.

    Raises
    ------
    ValueError, TypeError
        For what is no path, a device or a pipe, and the suffix of a table.
    OSError
        If its folder does not exist or cannot be written to, or it is a folder itself.
    """
    path = decode_path(checkpoint, "checkpoint")
    persistence.check_output(path, "checkpoint ", archive=True)
    return Path(path).absolute()


class Checkpoint:
    """The file of one fit, while this process has its lock.

    Parameters
    ----------
    path : Path
        The file.
    every : float
        Seconds from one writing to the next; 0 writes whenever a stage keeps something.
    """

    def __init__(self, path, every):
        self.path, self._every = path, every
        self._stages, self._about = {}, {}  # by the names on the way to them; what the file holds about the fit
        self._changed, self._warned = False, False
        self._guard = threading.RLock()
        self._last = time.monotonic()

    @contextmanager
    def open(self, model, data, **settings):
        """A context in which stages are kept; arguments are those of `compute_fingerprint`.

        However it is left, what was kept last is written; after SIGTERM the process then ends by it.

        Raises
        ------
        ValueError
            If another process has the checkpoint, or it is damaged, of another version or of another fit.
        """
        lock = FileLock(os.path.realpath(self.path))  # of the file itself, whatever links lead to it
        with raise_on_sigterm():
            try:  # whatever ends the fit from here on, the lock does not stay with this process
                holder = lock.take()
                if holder is not None:
                    raise ValueError(f"checkpoint {self.path} is in use by {holder}: wait for it, or give another path")
                self._about = {"format": FILE_FORMAT_VERSION, "cavity": persistence.__version__}
                self._about["fit"] = compute_fingerprint(model, data, **settings)
                if self.path.exists():
                    self._stages = self._read()
                try:
                    yield self
                finally:
                    self.write()
            finally:
                lock.drop()

    def restore(self, stage, *like):
        """Return what a stage kept last, None if it kept nothing.

        Parameters
        ----------
        stage : tuple of str
            The names on the way to it.
        *like : object
            Records of the classes of those in what it kept, or these classes.
        """
        if stage not in self._stages:
            return None
        value = self._stages[stage]
        if isinstance(value, EncodedValue):
            value = self._stages[stage] = decode(value.encoded, value.arrays, collect_classes(*like))
        return value

    def store(self, stage, value):
        """Keep what decides how a stage goes on, and write the file if it is time.

        Parameters
        ----------
        stage : tuple of str
            The names on the way to it.
        value : object
            As `checkpoint_encoding.encode` takes it; nothing in it may change later.
        """
        with self._guard:
            stages = {name: content for name, content in self._stages.items() if name[: len(stage)] != stage}
            stages[stage] = value
            self._stages, self._changed = stages, True  # at once: signals come between statements
            if time.monotonic() - self._last >= self._every:
                self.write()

    def write(self):
        """Write what was kept, if it was not yet; where that fails, warn once, and leave the file as it is."""
        with self._guard:
            if not self._changed:
                return
            numbered, array_names = {}, {}
            stages = [[list(stage), encode(value, numbered, array_names)] for stage, value in self._stages.items()]
            content = self._about | {"stages": stages}
            try:
                persistence.write(self.path, FILE_KIND, numbered, content | {"digest": _digest(content, numbered)})
                self._changed = False
            except OSError as error:
                self._warn(error)
            self._last = time.monotonic()

    def _warn(self, error):
        if not self._warned:
            self._warned = True
            state = "the last one is whole" if self.path.exists() else "there is none yet"
            text = f"checkpoint {self.path} could not be written ({error.strerror or error}): {state}, the fit goes on"
            warn(text, NumericalWarning)

    def _read(self):
        """Return the stages of the file, which must be of this fit."""
        try:
            _, numbered, file = persistence.read(self.path, (FILE_KIND,))
        except ValueError as error:
            raise ValueError(f"checkpoint {error}. {NEW_CHECKPOINT_ADVICE}") from error
        ours = {name: self._about[name] for name in ("format", "cavity")}
        if file | ours != file:
            raise ValueError(
                f"checkpoint {self.path} was written by cavity {file.get('cavity')}, and this is {ours['cavity']}: it "
                "may take other steps. Go on with that version, or remove the file to start anew"
            )
        if file.pop("digest", None) != _digest(file, numbered):
            raise ValueError(
                f"checkpoint {self.path} is damaged: its content is not what was written. {NEW_CHECKPOINT_ADVICE}"
            )
        changes = describe_differences(file["fit"], self._about["fit"])
        if changes:
            raise ValueError(f"checkpoint {self.path} is of another fit: {'; '.join(changes)}. {NEW_CHECKPOINT_ADVICE}")
        return {tuple(stage): EncodedValue(stored, numbered) for stage, stored in file["stages"]}


def _digest(settings, numbered):
    """Return the digest of settings, and of the names, types, shapes, layouts and bytes of arrays."""

    def parts():
        yield json.dumps(settings)
        for name in sorted(numbered):
            array = np.asarray(numbered[name])
            yield json.dumps([name, array.dtype.str, array.flags.fnc])
            yield array

    return compute_digest(parts())


@contextmanager
def raise_on_sigterm():
    """Let SIGTERM end a block as Ctrl-C does, so that it can write what it has; then it ends the process all the same.

    Where another handler is set, or in another thread than the main one, nothing changes.
    """
    is_main_thread = threading.current_thread() is threading.main_thread()
    if not is_main_thread or signal.getsignal(signal.SIGTERM) is not signal.SIG_DFL:
        yield
        return

    def end(*_):
        signal.signal(signal.SIGTERM, signal.SIG_IGN)  # those that follow must not disturb what is written now
        raise TerminationSignal

    signal.signal(signal.SIGTERM, end)
    try:
        yield
    except TerminationSignal:
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        os.kill(os.getpid(), signal.SIGTERM)
        raise
    finally:
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
