"""What is shown of fits: lines, bars, the log; never on stdout."""

import itertools
import re
import sys

import pytest

import cavity
from cavity.jobs.job import Job, JobState
from cavity.jobs.progress import (
    Event,
    ProgressBar,
    ProgressDisplay,
    ProgressLines,
    describe_event,
    open_progress_writer,
)


def event(n_iter, **truth):
    """An event of which little is known."""
    nothing = dict.fromkeys(("objective", "change", "rows_per_second", "passes_left"))
    return Event(**{"stage": "fit", "n_iter": n_iter} | nothing | truth)


def test_lines_are_rare_and_the_last_one_is_shown():
    lines = []
    display = ProgressDisplay(ProgressLines(lines.append))
    for n in range(1, 1000):
        display.receive(event(n, objective=-2.0, passes_left=3.2))
    display.close()
    display.close()
    assert len(lines) <= 1 + 1  # a second may have passed
    assert lines[-1] == "fit: 999, objective -2, about 3 left"


def test_shares_of_a_long_pass_are_shown_and_callbacks_hear_of_its_end(monkeypatch):
    lines, seen, now = [], [], itertools.count(0.0, 2.0)  # seconds
    for module in ("job", "progress"):
        monkeypatch.setattr(f"cavity.jobs.{module}.perf_counter", lambda: next(now))
    job = Job(JobState(seen.append, [ProgressDisplay(ProgressLines(lines.append))]))
    job.report_share(1, 4, 100)
    job.report(1, objective=-2.0)
    job.report_share(3, 4, 100)
    job.report_share(4, 4, 100)
    assert lines == [
        "fit: 0, 25% of the next pass",
        "fit: 1, objective -2",
        "fit: 1, objective -2, 75% of the next pass",
    ]
    assert len(seen) == 1
    reading = job.stage("reading")
    for done in (1, 2, 4):
        reading.report_share(done, 4, 100, is_total=True)
    assert [(event.stage, event.n_iter, event.passes_left) for event in seen[1:]] == [
        ("reading", 1, 3.0),
        ("reading", 2, 2.0),
        ("reading", 4, 0.0),
    ]
    assert all(0 < event.rows_per_second <= 50 for event in seen[1:])


def test_a_bar_has_a_length_where_it_is_known_what_is_left(capsys):
    bar = ProgressBar(pytest.importorskip("tqdm").tqdm)
    for item in (event(3, rows_per_second=2e6), event(4, stage="start 1 of 2", change=0.5, passes_left=4.0)):
        bar.show(item, describe_event(item))
    bar.close()
    out, err = capsys.readouterr()
    assert out == ""
    first, *_, last = [line.strip() for line in err.split("\r") if ", " in line]
    assert re.fullmatch(r"fit: 3 \[00:00, 2e\+06 rows/s\]", first)
    assert re.fullmatch(r"start 1 of 2: 4 \|[█#]{10} {10}\| \[00:00, change 0\.5, about 4 left\]", last)


def test_progress_goes_to_stderr_and_the_log_says_the_same(capsys, caplog):
    model = cavity.FactorizedGaussian(0.0, [[1.0, 0.9], [0.9, 1.0]])
    posterior = model.fit()
    assert capsys.readouterr() == ("", "")
    with caplog.at_level("INFO", logger="cavity"):
        second = model.fit(progress=True)
    out, err = capsys.readouterr()
    assert out == ""
    assert err.splitlines() == [record.message for record in caplog.records]
    assert err.splitlines()[-1].startswith(f"fit: {posterior.n_iter}, objective {posterior.elbo:.10g}, ")
    assert second.trace["elbo"].tobytes() == posterior.trace["elbo"].tobytes()


def test_plain_lines_where_there_is_no_tqdm(monkeypatch):
    monkeypatch.setattr("sys.stderr.isatty", lambda: True, raising=False)
    monkeypatch.setitem(sys.modules, "tqdm.auto", None)
    assert isinstance(open_progress_writer(), ProgressLines)
