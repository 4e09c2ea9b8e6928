"""Fits in processes of their own, which tests kill: each is a fork of a server that has imported everything.

As a script, the server: it reads what to fit, or for which process to wait, from lines of its input.
"""

import json
import os
import signal
import subprocess
import sys
import time
import traceback
import warnings
from contextlib import nullcontext
from pathlib import Path

import numpy as np

import cavity
from support.plugs import plug

SECONDS_A_PASS = 0.002  # that callbacks wait, so that there is something to kill
WARNED, REFUSED, INTERRUPTED, STOPPED = 7, 8, 9, 10  # how processes end, beside 0 and signals


def rows(n=2000):
    """Points around four centres."""
    rng = np.random.default_rng(0)
    return rng.normal(size=(n, 2)) + rng.choice([-4.0, 0.0, 1.0, 5.0], size=(n, 1))


def mixture(**options):
    """Two starts, with moves: stages within stages."""
    model = cavity.GaussianMixture(5, covariance="diag", weights="stick_breaking", weight_concentration_prior=0.1)
    return model.fit(rows(), n_init=2, rng=1, moves=True, **{"max_iter": 30} | options)


def unit(**options):
    """A unit mixture that learns all it can."""
    model = cavity.UnitMixture(4, learn=("prior_variance", "weights", "noise_variance"))
    return model.fit(rows()[:, 0], **{"max_iter": 60} | options)


def glm(**options):
    """A search by the evidence, and then sweeps until the double loop takes over."""
    rng = np.random.default_rng(2)
    X = rng.normal(size=(40, 3))
    y = 10.0 * X @ [1.0, 2.0, 0.0] + 10.0 * rng.standard_t(2, size=40)
    return cavity.GLM(cavity.likelihoods.StudentT(3.0, 1.0)).fit(X, y, learn="prior_variance", **options)


FITS = {fit.__name__: fit for fit in (mixture, unit, glm)}


def bits(path):
    """What a saved posterior holds, in bytes."""
    with np.load(path) as file:
        return {name: file[name].tobytes() for name in file.files}


class Enough(Exception):
    """A callback has failed."""


def run(name, checkpoint, every, out, reports=None, limit=None, most=np.inf, seconds=SECONDS_A_PASS, fatal=None):
    """Do a fit, save its posterior, and return how the process is to end.

    `limit` is that of the size of files; after `most` passes the callback fails; `fatal` is the place, and which time
    there, at which the process is killed (see plugs).
    """

    def slowly(event):
        if event.stage == "fit" and event.n_iter > most:
            raise Enough
        time.sleep(seconds)
        if reports is not None and "trial" not in event.stage:  # those choose where to start
            with open(reports, "ab") as file:
                file.write(b".")

    if limit is not None:
        import resource

        usual = resource.getrlimit(resource.RLIMIT_FSIZE)
        resource.setrlimit(resource.RLIMIT_FSIZE, (limit, usual[1]))
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        try:
            with nullcontext() if fatal is None else plug(*fatal, lambda: os.kill(os.getpid(), signal.SIGKILL)):
                posterior = FITS[name](checkpoint=checkpoint, checkpoint_every=every, callback=slowly)
        except KeyboardInterrupt:
            return INTERRUPTED
        except Enough:
            return STOPPED
        except ValueError as error:
            Path(out).write_text(str(error))
            return REFUSED
    if limit is not None:
        resource.setrlimit(resource.RLIMIT_FSIZE, usual)
    posterior.save(out)
    return WARNED if [item for item in caught if "checkpoint" in str(item.message)] else 0


class Server:
    """The server, as tests see it."""

    def __init__(self):
        folders = [str(Path(__file__).parents[1]), str(Path(cavity.__file__).parents[1])]
        environment = os.environ | {"PYTHONPATH": os.pathsep.join(folders), "PYTHONUNBUFFERED": "1"}
        pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True, "env": environment}
        self._process = subprocess.Popen([sys.executable, __file__], **pipes)

    def start(self, name, checkpoint, **options):
        """Begin a fit; return its process."""
        return self._asked({"name": name, "checkpoint": checkpoint} | options)

    def ended(self, process):
        """Wait for a process; return how it ended, minus the signal if by one."""
        return self._asked(process)

    def _asked(self, values):
        self._process.stdin.write(json.dumps(values, default=str) + "\n")
        self._process.stdin.flush()
        return int(self._process.stdout.readline())

    def close(self):
        """End the server."""
        self._process.stdin.close()
        self._process.wait()
        self._process.stdout.close()


def serve():
    """Fork a process for each line, or wait for one, of a process that has loaded all that fits need."""
    with warnings.catch_warnings(action="ignore"):
        for fit in FITS.values():
            fit(max_iter=2)
    for line in sys.stdin:
        values = json.loads(line)
        if isinstance(values, int):
            print(os.waitstatus_to_exitcode(os.waitpid(values, 0)[1]), flush=True)
            continue
        process = os.fork()
        if process == 0:
            code = 1
            try:
                signal.signal(signal.SIGINT, signal.default_int_handler)
                code = run(**values)
            except Exception:
                traceback.print_exc()
            finally:
                os._exit(code)
        print(process, flush=True)


if __name__ == "__main__":
    serve()
