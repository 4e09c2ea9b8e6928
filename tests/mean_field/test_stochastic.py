"""Steps on minibatches, on a mean of which everything is known."""

import numpy as np
import pytest

from cavity import NumericalWarning
from cavity.jobs.job import Job
from cavity.mean_field import stochastic
from cavity.mean_field.options import StochasticOptions

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


def fit(state, data, options, n_samples=None):
    rows = stochastic.StochasticRows.open(data, "X", n_samples, options, check)
    return rows.fit(Mean(), state, rows.dataset.blocks(ndim=(1,)), options)


def test_rows_are_seen_in_minibatches_and_judged_by_a_last_sweep():
    done = fit(100.0, X, averaging(n_epochs=2))
    assert done.state == done.image == 4.5
    np.testing.assert_array_equal(done.trace["step"], [1.0, 1 / 2, 1 / 3, 1 / 4])
    assert (done.elbo, done.n_iter, done.converged, done.status) == (0.0, 2, False, "passes done")
    assert (done.contraction, done.predicted_gap) == (None, np.inf)


def test_a_stream_leaves_its_state_and_no_elbo():
    done = fit(0.0, iter([X[:4], X[4:]]), averaging(), 10)
    assert done.state == done.image == pytest.approx(0.5 * (1.5 + 6.5))
    assert (done.elbo, done.n_iter) == (None, 1)
    with pytest.warns(NumericalWarning, match="the stream held 20 points"):
        fit(0.0, iter([X, X]), averaging(), 10)


def test_rows_know_how_many_they_are():
    assert stochastic.StochasticRows.open(X, "X", None, averaging(), check).stream is None
    with pytest.raises(ValueError, match="n_samples is for an iterator and must be left out for rows, got 10"):
        stochastic.StochasticRows.open(X, "X", 10, averaging(), check)


def test_a_callback_stops_the_steps_and_begun_passes_count():
    seen = []
    options = averaging(batch_size=3, job=Job.checked(lambda event: seen.append(event.change) or event.n_iter == 2))
    done = fit(0.0, X, options)
    assert seen == [1.0, 0.5]
    assert done.n_iter == 1
    assert [stochastic.count_passes(n, 10, options) for n in (4, 5, 8, 9)] == [1, 2, 2, 3]
