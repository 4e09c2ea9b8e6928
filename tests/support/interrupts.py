"""Ctrl-C in the middle of a call, wherever Python may answer it: between two calls of functions."""

import sys
from inspect import CO_GENERATOR
from pathlib import Path

import cavity

LIBRARY = str(Path(cavity.__file__).parent)
GUARDED = ("runs", "executors.py"), ("jobs", "job.py")
GUARDS = tuple(str(Path(*parts)) for parts in GUARDED)  # what they end must end


def interrupted(call, after):
    """Call, and raise KeyboardInterrupt within the library once that many functions were called; return whether it was.

    Functions count that the library calls, its own and others, before they begin and after they end. Compiled ones of
    the library have no such places. In `GUARDS` nothing is raised: a context that is interrupted while it ends stays
    open, whoever wrote it. Nor is it where generators go on, or are closed.
    """
    left = after

    def watch(frame, event, _):
        nonlocal left
        name, resumed = frame.f_code.co_filename, event == "call" and frame.f_code.co_flags & CO_GENERATOR
        if event == "return" or resumed or not name.startswith(LIBRARY) or name.endswith(GUARDS):
            return
        left -= 1
        if left < 0:
            sys.setprofile(None)
            raise KeyboardInterrupt

    before = sys.getprofile()
    sys.setprofile(watch)
    try:
        call()
    except KeyboardInterrupt:
        return True
    finally:
        sys.setprofile(before)
    return False
