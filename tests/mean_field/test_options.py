"""AscentOptions of mean-field fits: what they refuse, what they become, and what is left of them after a fit."""

from types import SimpleNamespace

import numpy as np
import pytest
from support.events import writing

from cavity.jobs.job import Job
from cavity.mean_field.options import AscentOptions, StochasticOptions


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({"accelerate": "newton"}, ValueError, "accelerate must be one of 'anderson', 'squarem'"),
        ({"max_iter": 0}, ValueError, "max_iter must be at least 1"),
        ({"max_iter": 2.0}, TypeError, "max_iter must be an integer"),
        ({"tol": -1.0}, ValueError, "tol must be in"),
        ({"tol": np.nan}, ValueError, "tol must be in"),
        ({"n_threads": 0}, ValueError, "n_threads must be at least 1"),
    ],
)
def test_options(options, error, message):
    with pytest.raises(error, match=message):
        AscentOptions(**{"accelerate": True, "max_iter": 10, "tol": 1e-8} | options)


def test_option_accelerate_may_be_a_bool():
    def name(value):
        return AscentOptions(accelerate=value, max_iter=1, tol=0).accelerate

    assert (name(True), name(np.False_), name("squarem")) == ("anderson", False, "squarem")


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({"batch_size": 0}, ValueError, "batch_size must be at least 1"),
        ({"n_epochs": 1.5}, TypeError, "n_epochs must be an integer"),
        ({"delay": -1.0}, ValueError, "delay must be in"),
        ({"forgetting": 0.5}, ValueError, "forgetting must be in"),
        ({"n_threads": 0}, ValueError, "n_threads must be at least 1"),
    ],
)
def test_stochastic_options(options, error, message):
    with pytest.raises(error, match=message):
        StochasticOptions(**{"batch_size": 1, "n_epochs": 1, "delay": 0, "forgetting": 1.0} | options)


def test_what_follows_a_fit_has_the_passes_that_are_left_and_counts_on():
    seen = []
    job = Job.checked(writing(seen))
    options = AscentOptions(accelerate=False, max_iter=10, tol=0.0, job=job)
    rest = options.after(SimpleNamespace(n_iter=3, elbo=-1.0), SimpleNamespace(n_iter=2, elbo=-5.0))
    rest.job.report(1, objective=-2.0)
    rest.job.report(2, objective=0.5)
    assert rest.max_iter == 5
    assert seen == [(6, -1.0), (7, 0.5)]


def test_random_starts_need_a_source_of_randomness():
    options = {"accelerate": True, "max_iter": 10, "tol": 1e-8}
    assert (AscentOptions(**options).n_init, AscentOptions(**options).rng) == (1, None)
    assert isinstance(AscentOptions(**options, n_init=2, rng=0).rng, np.random.Generator)
    with pytest.raises(ValueError, match="n_init > 1 draws starting points and needs rng"):
        AscentOptions(**options, n_init=2)
