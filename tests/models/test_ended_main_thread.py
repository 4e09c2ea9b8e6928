"""Fits on other threads and at exit have the same bits when the main thread has ended: no thread begins any more."""

import importlib.util
import subprocess
import sys

import pytest

import cavity

SCRIPT = """
import atexit, sys, threading, warnings
import numpy as np
import cavity

warnings.simplefilter("ignore")
folder, kinds = sys.argv[1], sys.argv[2:]
X = np.random.default_rng(0).normal(size=(20_000, 2))
y = X @ [1.0, -1.0] > 0.3
np.save(f"{folder}/x.npy", X)

def glm(n_threads, callback):
    fit = cavity.GLM("probit").fit
    return fit(X, y, schedule="parallel", max_iter=3, n_threads=n_threads, callback=callback).log_evidence

def mixture(n_threads, callback, rows=X):
    return cavity.GaussianMixture(3).fit(rows, max_iter=3, n_threads=n_threads, callback=callback).elbo

def file(n_threads, callback):
    return mixture(n_threads, callback, f"{folder}/x.npy")

def process(n_threads, callback):
    model = cavity.GaussianProcess(likelihood="probit")
    fit = model.fit(X[:200], y[:200], learn=False, schedule="parallel", n_threads=n_threads, callback=callback)
    return fit.log_evidence

def collection(n_threads, callback):
    return mixture(1, callback, X if n_threads == 1 else dask.array.from_array(X, chunks=6_000))

if "collection" in kinds:
    import dask.array
fits = [globals()[kind] for kind in kinds]
plain = [fit(1, None) for fit in fits]

def compare(when, callback=None):
    for fit, value in zip(fits, plain):
        print(when, fit.__name__, fit(2, callback) == value, flush=True)

def wait(event):
    threading.main_thread().join()

threading.Thread(target=compare, args=("thread", wait)).start()  # the main thread ends during the first of the fits
atexit.register(compare, "exit")
"""


def ended(folder, *kinds):
    """Run the script; return its lines, in which each fit must have the bits of one on a single thread."""
    command = [sys.executable, "-c", SCRIPT, str(folder), *kinds]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert done.stderr == ""
    assert done.stdout.splitlines() == [f"{when} {kind} True" for when in ("thread", "exit") for kind in kinds]


def test_fits_with_threads(tmp_path):
    ended(tmp_path, "glm", "mixture", "file", "process")


@pytest.mark.long
@pytest.mark.skipif(importlib.util.find_spec("dask") is None, reason="needs dask")
def test_fits_of_collections(tmp_path):
    ended(tmp_path, "collection")


def test_models_that_are_loaded_late():
    script = """
import threading, cavity
def fit():
    threading.main_thread().join()
    X = [[1.0, 0.3], [1.0, -2.0], [1.0, 0.5]]
    print(cavity.GLM("probit").fit(X, [0, 1, 1], schedule="parallel", n_threads=2).log_evidence)
threading.Thread(target=fit).start()
"""
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=120, check=False)
    assert done.stderr == ""
    plain = cavity.GLM("probit").fit([[1.0, 0.3], [1.0, -2.0], [1.0, 0.5]], [0, 1, 1], schedule="parallel")
    assert float(done.stdout) == plain.log_evidence
