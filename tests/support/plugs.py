"""Where a fit with a checkpoint can be cut short: at a byte of the file, before and after each step of writing it."""

import io
import os
from contextlib import contextmanager

import pytest

from cavity.jobs.locks import FileLock

PLACES = ("byte", "sync", "replace", "replaced", "locked", "drop")


@contextmanager
def plug(place, number, act):
    """Call act(), which does not return, when a place is reached that often, or so many bytes are written."""
    reached, real = [0], (os.fdopen, os.fsync, os.replace, FileLock.take, FileLock.drop)

    def at(result, n=1):
        if result == place:
            before, reached[0] = reached[0], reached[0] + n
            if before < number <= reached[0]:
                act()

    class Counted(io.FileIO):
        def write(self, content):
            left = number - reached[0]
            if place == "byte" and 0 < left <= len(content):
                super().write(content[:left])  # what comes before the plug is in the file
            at("byte", len(content))
            return super().write(content)

    def fdopen(handle, mode):
        return io.BufferedWriter(Counted(handle, mode))

    def fsync(handle):  # what is killed is a process, not the machine
        at("sync")

    def replace(*paths):
        at("replace")
        real[2](*paths)
        at("replaced")

    def take(lock):
        holder = real[3](lock)
        at("locked")
        return holder

    def drop(lock):
        at("drop")
        real[4](lock)

    with pytest.MonkeyPatch.context() as patch:
        for owner, name, fake in (
            (os, "fdopen", fdopen),
            (os, "fsync", fsync),
            (os, "replace", replace),
            (FileLock, "take", take),
            (FileLock, "drop", drop),
        ):
            patch.setattr(owner, name, fake)
        yield
