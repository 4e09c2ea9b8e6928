"""Jobs: what listeners hear of a fit, and how they stop it."""

import copy
import itertools
import pickle
import re
import sys

import pytest

import cavity
from cavity.blocks.job import QUIET, Bar, Display, Event, Job, Lines, Watch, bar_or_lines, words


def listening(stop_at=None):
    """A job and the list of the events it hears."""
    seen = []

    def hear(event):
        seen.append(event)
        return len(seen) == stop_at

    return Job.checked(hear), seen


@pytest.mark.parametrize(
    ("given", "message"), [({"callback": 3}, "callback must be callable, got 3"), ({"progress": "yes"}, "progress")]
)
def test_options_are_checked(given, message):
    with pytest.raises(TypeError, match=message):
        Job.checked(**given)


def test_events_say_what_is_known():
    job, seen = listening()
    assert not job.after(3, objective=-2.0, change=0.5, rows=10, left=lambda: 4.0)
    (event,) = seen
    assert (event.stage, event.n_iter, event.objective, event.change, event.passes_left) == ("fit", 3, -2.0, 0.5, 4.0)
    assert event.rows_per_second > 0
    job.after(4)
    assert seen[1].objective is seen[1].change is seen[1].rows_per_second is seen[1].passes_left is None


def test_stages_nest_and_what_follows_counts_on():
    job, seen = listening()
    start = job.stage("K = 4").numbered("start", 2, 3)
    start.after(1)
    start.going_on(5, -1.0).going_on(2, -3.0).after(1, objective=-2.0)
    assert [(event.stage, event.n_iter, event.objective) for event in seen] == [
        ("K = 4, start 2 of 3", 1, None),
        ("K = 4, start 2 of 3", 8, -1.0),
    ]
    assert job.numbered("start", 1, 1) is job
    assert job.numbered("search", 1, 1, "search").name == "search"


def test_a_true_result_stops_all_stages_for_good():
    job, seen = listening(stop_at=2)
    items = iter("abc")
    for _, stage in job.through("start", items, 3):
        assert not stage.after(1)
        assert stage.after(2)
        assert stage.after(3)
    assert list(items) == ["b", "c"]
    assert job.numbered("start", 2, 3).stopped
    assert [(event.stage, event.n_iter) for event in seen] == [("start 1 of 3", 1), ("start 1 of 3", 2)]
    assert job.ending() is QUIET


def test_nobody_listens_to_quiet_jobs_and_copies():
    job, seen = listening()
    assert not job.quiet().after(1, left=lambda: pytest.fail("nobody asked"))
    assert not Job().after(1)
    assert not seen
    assert copy.deepcopy(job) is QUIET
    assert pickle.loads(pickle.dumps(job)) is QUIET


def test_a_stage_is_the_job_of_an_inner_fit():
    stage = listening()[0].stage("K = 4")
    assert Job.checked(stage) is stage


# ---------------------------------------------------------------------------------------------- what is shown


def event(n_iter, **known):
    """An event of which little is known."""
    nothing = dict.fromkeys(("objective", "change", "rows_per_second", "passes_left"))
    return Event(**{"stage": "fit", "n_iter": n_iter} | nothing | known)


def test_lines_are_rare_and_the_last_one_is_shown():
    lines = []
    display = Display(Lines(lines.append))
    for n in range(1, 1000):
        display.tell(event(n, objective=-2.0, passes_left=3.2))
    display.close()
    display.close()
    assert lines[0] == "fit: 1, objective -2, about 3 left"
    assert len(lines) <= 1 + 2  # a second may have passed
    assert lines[-1].startswith("fit: 999,")


def test_shares_of_a_long_pass_are_shown_and_callbacks_hear_of_its_end(monkeypatch):
    lines, seen, now = [], [], itertools.count(0.0, 2.0)  # seconds
    monkeypatch.setattr("cavity.blocks.job.perf_counter", lambda: next(now))
    job = Job(Watch(seen.append, [Display(Lines(lines.append))]))
    job.within_pass(1, 4, 100)
    job.after(1, objective=-2.0)
    job.within_pass(3, 4, 100)
    job.within_pass(4, 4, 100)
    assert lines == [
        "fit: 0, 25% of the next pass",
        "fit: 1, objective -2",
        "fit: 1, objective -2, 75% of the next pass",
    ]
    assert len(seen) == 1
    reading = job.stage("reading")
    for done in (1, 2, 4):
        reading.within_pass(done, 4, 100, whole=True)
    assert [(event.stage, event.n_iter, event.passes_left) for event in seen[1:]] == [
        ("reading", 1, 3.0),
        ("reading", 2, 2.0),
        ("reading", 4, 0.0),
    ]
    assert all(0 < event.rows_per_second <= 50 for event in seen[1:])


def test_a_bar_has_a_length_where_it_is_known_what_is_left(capsys):
    bar = Bar(pytest.importorskip("tqdm").tqdm)
    for each in (event(3, rows_per_second=2e6), event(4, stage="start 1 of 2", change=0.5, passes_left=4.0)):
        bar.show(each, words(each))
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
        again = model.fit(progress=True)
    out, err = capsys.readouterr()
    assert out == ""
    assert err.splitlines() == [record.message for record in caplog.records]
    assert err.splitlines()[-1].startswith(f"fit: {posterior.n_iter}, objective {posterior.elbo:.10g}, ")
    assert again.trace["elbo"].tobytes() == posterior.trace["elbo"].tobytes()


def test_plain_lines_where_there_is_no_tqdm(monkeypatch):
    monkeypatch.setattr("sys.stderr.isatty", lambda: True, raising=False)
    monkeypatch.setitem(sys.modules, "tqdm.auto", None)
    assert isinstance(bar_or_lines(), Lines)
