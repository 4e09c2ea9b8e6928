"""Jobs: what listeners hear of a fit, and how they stop it."""

import copy
import pickle

import pytest

from cavity.jobs.job import SILENT_JOB, Job


def listening(stop_at=None):
    """A job and the list of the events it hears."""
    seen = []

    def hear(event):
        seen.append(event)
        return len(seen) == stop_at

    return Job.checked(hear), seen


@pytest.mark.parametrize(
    ("values", "message"), [({"callback": 3}, "callback must be callable, got 3"), ({"progress": "yes"}, "progress")]
)
def test_options_are_checked(values, message):
    with pytest.raises(TypeError, match=message):
        Job.checked(**values)


def test_events_say_what_is_known():
    job, seen = listening()
    assert not job.report(3, objective=-2.0, change=0.5, rows=10, left=lambda: 4.0)
    (event,) = seen
    assert (event.stage, event.n_iter, event.objective, event.change, event.passes_left) == ("fit", 3, -2.0, 0.5, 4.0)
    assert event.rows_per_second > 0
    job.report(4)
    assert seen[1].objective is seen[1].change is seen[1].rows_per_second is seen[1].passes_left is None


def test_stages_nest_and_what_follows_counts_on():
    job, seen = listening()
    start = job.stage("K = 4").numbered_stage("start", 2, 3)
    start.report(1)
    start.continued_after(5, -1.0).continued_after(2, -3.0).report(1, objective=-2.0)
    assert [(event.stage, event.n_iter, event.objective) for event in seen] == [
        ("K = 4, start 2 of 3", 1, None),
        ("K = 4, start 2 of 3", 8, -1.0),
    ]
    assert job.numbered_stage("start", 1, 1) is job
    assert job.numbered_stage("search", 1, 1, "search").name == "search"


def test_a_true_result_stops_all_stages_for_good():
    job, seen = listening(stop_at=2)
    items = iter("abc")
    for _, stage in job.iterate_stages("start", items, 3):
        assert not stage.report(1)
        assert stage.report(2)
        assert stage.report(3)
    assert list(items) == ["b", "c"]
    assert job.numbered_stage("start", 2, 3).stopped
    assert [(event.stage, event.n_iter) for event in seen] == [("start 1 of 3", 1), ("start 1 of 3", 2)]
    assert job.final_job() is SILENT_JOB


def test_nobody_listens_to_quiet_jobs_and_copies():
    job, seen = listening()
    assert not Job().report(1, left=lambda: pytest.fail("nobody asked"))
    assert not seen
    assert copy.deepcopy(job) is SILENT_JOB
    assert pickle.loads(pickle.dumps(job)) is SILENT_JOB


def test_a_stage_is_the_job_of_an_inner_fit():
    stage = listening()[0].stage("K = 4")
    assert Job.checked(stage) is stage
