"""Steps on minibatches, on a mean of which everything is known."""

import numpy as np
import pytest

from cavity import NumericalWarning
from cavity.jobs.job import Job
from cavity.mean_field import stochastic
from cavity.mean_field.options import StochasticOptions
from cavity.sources.sources import open_source

X = np.arange(10.0)


class Mean:
    """The state is an estimate of the mean; its ELBO is minus its squared error."""

    n_samples = 10

    def estimate(self, state, batch):
        return np.mean(batch)

    def blend(self, state, estimate, step):
        return (1.0 - step) * state + step * estimate

    def sweep(self, state):
        return np.mean(X), -((state - np.mean(X)) ** 2)


def averaging(**changes):
    return StochasticOptions(**{"batch_size": 5, "n_epochs": 1, "delay": 0.0, "forgetting": 1.0} | changes)


def check(rows, name):
    return np.asarray(rows, dtype=float)


def test_rows_are_seen_in_minibatches_and_judged_by_a_last_sweep():
    state, image, outcome = stochastic.fit_rows(Mean(), 100.0, open_source(X, "X"), averaging(n_epochs=2))
    assert state == image == 4.5
    np.testing.assert_array_equal(outcome["trace"]["step"], [1.0, 1 / 2, 1 / 3, 1 / 4])
    assert (outcome["elbo"], outcome["n_iter"], outcome["converged"], outcome["status"]) == (
        0.0,
        2,
        False,
        "passes done",
    )


def test_a_stream_leaves_its_state_and_no_elbo():
    stream = stochastic.stream_of(iter([X[:4], X[4:]]), "X", 10, averaging(), check)
    state, image, outcome = stochastic.fit_rows(Mean(), 0.0, stream, averaging())
    assert state == image == pytest.approx(0.5 * (1.5 + 6.5))
    assert (outcome["elbo"], outcome["n_iter"]) == (None, 1)
    longer = stochastic.stream_of(iter([X, X]), "X", 10, averaging(), check)
    with pytest.warns(NumericalWarning, match="the stream held 20 points"):
        stochastic.fit_rows(Mean(), 0.0, longer, averaging())


def test_rows_know_how_many_they_are():
    assert stochastic.stream_of(X, "X", None, averaging(), check) is None
    with pytest.raises(ValueError, match="n_samples is for an iterator and must be left out for rows, got 10"):
        stochastic.stream_of(X, "X", 10, averaging(), check)


def test_a_callback_stops_the_steps_and_begun_passes_count():
    seen = []
    options = averaging(batch_size=3, job=Job.checked(lambda event: seen.append(event.change) or event.n_iter == 2))
    _, _, outcome = stochastic.fit_rows(Mean(), 0.0, open_source(X, "X"), options)
    assert seen == [1.0, 0.5]
    assert outcome["n_iter"] == 1
    assert [stochastic.passes(n, 10, options) for n in (4, 5, 8, 9)] == [1, 2, 2, 3]
