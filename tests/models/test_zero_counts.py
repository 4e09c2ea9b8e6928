"""Counts that are all 0, or nearly all: parameters of which the evidence has no maximum are at a bound, soon."""

import re
import warnings

import numpy as np
import pandas as pd
import pytest
from support.tolerances import EXPANSION, OPTIMUM, ROOT_EPS

import cavity
from cavity import likelihoods
from cavity.models.mixed.variance_search import FreeTerms

X = np.column_stack([np.ones(60), np.linspace(-1.0, 1.0, 60)])
NONE = np.zeros(60)
FRAME = pd.DataFrame({"x": X[:, 1], "g": np.arange(60) % 6, "none": NONE, "one": 1.0 * (np.arange(60) == 7)})
WITH_ZEROS = likelihoods.ZeroInflatedPoisson(), likelihoods.ZeroInflatedNegativeBinomial()
NO_MAXIMUM = "the log evidence has no maximum in the (.*): it does not fall beyond"


def fit_quietly(model, *data):
    """Return a posterior, the names of what has no maximum, and how many settings the search has tried."""
    with warnings.catch_warnings(record=True) as record:
        warnings.simplefilter("always")
        posterior = model.fit(*data)
    assert posterior.converged
    matches = [re.match(NO_MAXIMUM, str(warning.message)) for warning in record]
    names = [match[1] for match in matches if match]
    return posterior, names, len(posterior.trace["learning"])


@pytest.mark.parametrize("likelihood", [*WITH_ZEROS, likelihoods.NegativeBinomial()])
def test_counts_that_are_all_zero_are_certain(likelihood):
    """Their probability tends to one where all zeros are inflation, or the dispersion makes them."""
    for model, data in (
        (cavity.GLM(likelihood), (X, NONE)),
        (cavity.MixedGLM("none ~ x + (1|g) - 1", likelihood), (FRAME,)),
    ):
        posterior, names, tried = fit_quietly(model, *data)
        assert posterior.log_evidence == pytest.approx(0.0, abs=EXPANSION)
        assert set(names) >= set(likelihood.parameters)
        assert tried <= 3
        learnt = posterior.model.likelihood
        assert getattr(learnt, "zero_probability", 1.0) > 1.0 - OPTIMUM
        assert getattr(learnt, "dispersion", 0.0) < OPTIMUM


@pytest.mark.long
def test_effects_of_zero_counts_without_an_intercept_are_at_the_end(monkeypatch):
    """They take the place of the intercept: the evidence grows with their sd. The long way ends at the same place."""
    model = cavity.MixedGLM("none ~ x + (1|g) - 1", "poisson")
    posterior, names, tried = fit_quietly(model, FRAME)
    assert names == ["sd(intercept | g)"]
    assert tried <= 3
    monkeypatch.setattr(FreeTerms, "scan", property(lambda _: (0.0,), lambda *_: None), raising=False)
    other, names, steps = fit_quietly(model, FRAME)
    assert names == ["sd(intercept | g)"]
    assert steps > 10
    assert posterior.log_evidence == pytest.approx(other.log_evidence, abs=EXPANSION)
    assert posterior.log_evidence > other.log_evidence - ROOT_EPS


@pytest.mark.parametrize("likelihood", WITH_ZEROS)
def test_one_count_among_zeros(likelihood):
    """Half of so many zeros are taken for inflation where the search begins: it came from 1 % over slow fits before."""
    posterior, _, tried = fit_quietly(cavity.MixedGLM("one ~ x + (1|g) - 1", likelihood), FRAME)
    assert tried <= 60
    values = posterior.model.likelihood.starting_values(FRAME.one.to_numpy(), np.zeros(60))
    assert values["zero_probability"] == pytest.approx(0.5 * 59.0 / 60.0)
