"""Ctrl-C in the middle of a call, wherever Python may answer it: between two calls of functions."""

import signal
import subprocess
import sys
import time
from inspect import CO_GENERATOR
from pathlib import Path

import numpy as np

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


def check_script_is_interrupted(script, path, n_threads):
    """Interrupt a script that reads a file of zeros, and assert that it ends soon and leaves no thread."""
    np.save(path, np.zeros(1 << 20))
    command = [sys.executable, "-c", script, str(path), str(n_threads)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout.readline() == "ready\n"
        time.sleep(0.1)
        sent = time.perf_counter()
        process.send_signal(signal.SIGINT)
        assert process.stdout.readline() == "interrupted 1\n"
        assert process.wait(10) == 0
    assert time.perf_counter() - sent < 2.0
