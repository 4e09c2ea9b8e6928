"""Runs: options are checked once, and opened by one context."""

import numpy as np
import pytest

import cavity
from cavity.ep.options import Options
from cavity.jobs.job import SILENT_JOB, Job, Run
from cavity.mean_field.options import AscentOptions
from cavity.runs.executors import count_usable_cores


def test_a_run_without_arguments_is_quiet(monkeypatch):
    monkeypatch.delenv("CAVITY_NUM_THREADS", raising=False)
    run = Run()
    assert (run.n_threads, run.job) == (count_usable_cores(), SILENT_JOB)
    monkeypatch.setenv("CAVITY_NUM_THREADS", "3")
    assert Run().n_threads == 3


@pytest.mark.parametrize("make", [Run, Options.checked])
def test_threads_are_checked(make):
    with pytest.raises(ValueError, match="n_threads must be at least 1"):
        make(n_threads=0)


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        ({"callback": 3}, TypeError, "callback must be callable"),
        ({"progress": "yes"}, TypeError, "progress"),
        ({"checkpoint_every": -1.0}, ValueError, "checkpoint_every"),
    ],
)
def test_arguments_of_jobs_are_checked(arguments, error, message):
    with pytest.raises(error, match=message):
        Job.checked(**arguments)


def test_a_run_is_open_with_threads_and_its_checkpoint(tmp_path):
    path, events = tmp_path / "fit.checkpoint", []
    job = Job.checked(events.append, checkpoint=path)
    run = AscentOptions(accelerate=False, max_iter=3, tol=0.0, n_threads=2, job=job)
    with run.open(cavity.Clutter(), {"X": np.zeros(3)}, order=1) as threads:
        assert threads.count == 2
        run.job.stage("passes").store(lambda: {"done": 1})
        run.job.report(1, objective=2.0)
    assert path.exists()
    assert [event.objective for event in events] == [2.0]
    with run.open(cavity.Clutter(), {"X": np.zeros(3)}, order=1):
        assert run.job.stage("passes").restore() == {"done": 1}
    with pytest.raises(ValueError, match="order was 1, is 2"), run.open(cavity.Clutter(), {"X": np.zeros(3)}, order=2):
        pass
