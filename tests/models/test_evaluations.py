"""Evaluations of a search that a checkpoint keeps: a search of any family goes on where it was killed."""

from functools import cache

import numpy as np
import pytest

from cavity import GaussianProcess, covariances, likelihoods
from cavity.base.rows import Rows
from cavity.ep.options import Options
from cavity.jobs.job import Job
from cavity.models.gp.evidence import Evidence
from cavity.models.gp.search import learn
from cavity.models.process.model import add_prior_means
from cavity.models.process.settings import Settings
from cavity.runs.executors import Threads

RNG = np.random.default_rng(4)
X = np.linspace(0.0, 6.0, 16)[:, None]
MODELS = {
    "exact": (likelihoods.Gaussian(), np.sin(X[:, 0]) + 0.2 * RNG.normal(size=16), "constant"),
    "labels": (likelihoods.Probit(), np.where(np.sin(X[:, 0]) + 0.3 * RNG.normal(size=16) > 0, 1.0, -1.0), "linear"),
}


class Killed(BaseException):
    """The process ends."""


@cache
def search_without_interruption(name):
    return search(name, None)


def search(name, path, killed_at=np.inf):
    """Learn a Gaussian process in a fit that has a checkpoint: the result, and how many evaluations were made."""
    likelihood, y, mean = MODELS[name]
    model = GaussianProcess(covariances.RBF(), likelihood, mean)
    made = []

    class Counted(Evidence):
        def at(self, settings, **options):
            if len(made) >= killed_at:
                raise Killed
            made.append(settings)
            return super().at(settings, **options)

    job = Job.checked(checkpoint=path, checkpoint_every=0.0)
    with Threads(1) as threads, job, job.open_checkpoint(model, {"X": X, "y": y}):
        rows = add_prior_means(model, Rows.checked(model.likelihood, X, y))
        evidence = Counted(likelihood, rows, threads, Options.checked(schedule="sequential"))
        result, _ = learn(Settings.of(model, evidence.rows), evidence, True, tuple(likelihood.parameters), 2, job)
    return result, len(made)


@pytest.mark.long_cases(*(f"{n}-{name}" for n in (0, 2, 9, 20) for name in MODELS if (n, name) != (9, "exact")))
@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize("killed_at", [0, 2, 9, 20])
def test_a_gaussian_process_goes_on_where_it_was_killed(name, killed_at, tmp_path):
    full, n_whole = search_without_interruption(name)
    assert n_whole > 20
    with pytest.raises(Killed):
        search(name, tmp_path / "part", killed_at)
    result, n_rest = search(name, tmp_path / "part")
    assert n_rest <= n_whole - killed_at + 1  # the last one is made again, if its gradient was not known
    assert result.hyperparameters == full.hyperparameters
    np.testing.assert_array_equal(result.trace["learning"], full.trace["learning"])
    assert search(name, tmp_path / "part")[1] == 0
