"""Children of the scripts that measure memory: started with one BLAS thread, each with a memory of its own."""

import os
import resource
import subprocess
import sys
from pathlib import Path

ONE_THREAD = dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"), "1")  # of BLAS
STATUS = Path("/proc/self/status")


def resident():
    """Return the largest resident memory of this process so far, in MB.

    getrusage, which is there where Linux's own count is not, starts with that of the process which started this one.
    """
    if STATUS.exists():
        return next(float(line.split()[1]) / 1024 for line in STATUS.open() if line.startswith("VmHWM"))
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def printed(*arguments):
    """Run Python with these arguments in a process of its own; return what it printed."""
    command = [sys.executable, *map(str, arguments)]
    return subprocess.check_output(command, env={**os.environ, **ONE_THREAD}, text=True)
