"""The attack in small: some trials of each, and that the rule sees what breaks it."""

import dataclasses
import warnings

import numpy as np
import pytest
from attack.rule import Wrong, near, refusing, sure
from attack.sites import CLOSED_FORM_NAMES, QUADRATURE_NAMES
from attack.trials import ATTACKS, trial
from support.responses import SPECIAL_RESPONSES, make_likelihood

import cavity
from cavity import likelihoods

SLOW = ("quadrature", "responses", "formulas", "mixed", "sparse_rows", "generalised_linear")


def some_trials(name):
    for k in range(20):
        trial(name, 0, k)


@pytest.mark.sample(2)
@pytest.mark.long_cases("defaults", "responses")
@pytest.mark.parametrize("name", ATTACKS)
def test_some_trials(name):
    for k in range(1 if name in SLOW else 4):
        trial(name, 0, k)


@pytest.mark.parametrize("name", ["generalised_linear", "gaussian_process", "mixed", "clutter"])
def test_a_wrong_evidence_is_seen(name, monkeypatch):
    models = (cavity.GLM, cavity.GaussianProcess, cavity.MixedGLM, cavity.Clutter)
    for model in models:

        def fit(self, *arguments, _fit=model.fit, **options):
            posterior = _fit(self, *arguments, **options)
            return dataclasses.replace(posterior, log_evidence=posterior.log_evidence * (1 + 1e-5) + 1e-5)

        monkeypatch.setattr(model, "fit", fit)
    with pytest.raises(Wrong, match="log_evidence"):
        some_trials(name)


def test_a_false_convergence_is_seen(monkeypatch):
    def fit(self, *arguments, _fit=cavity.GLM.fit, **options):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            posterior = _fit(self, *arguments, **options | {"max_iter": 1})
        return dataclasses.replace(posterior, converged=True, status="converged")

    monkeypatch.setattr(cavity.GLM, "fit", fit)
    with pytest.raises(Wrong, match="the twin moves"):
        some_trials("generalised_linear")


def test_every_likelihood_of_the_package_is_attacked():
    responses = {type(make_likelihood(row)).__name__ for row in SPECIAL_RESPONSES}
    attacked = responses.union(CLOSED_FORM_NAMES, QUADRATURE_NAMES)
    assert attacked == set(likelihoods.__all__) - {"Likelihood"}


def test_what_the_rule_allows():
    def numpy_warns():
        return np.log(np.zeros(1))

    def refuses():
        raise ValueError("X must have rows, got none")

    def grunts():
        raise ValueError("bad")

    assert refusing(refuses) is None
    for call in (numpy_warns, grunts):
        with pytest.raises(Wrong):
            refusing(call)
    with pytest.raises(ValueError, match="rows"):
        sure(refuses)
    with pytest.raises(Wrong, match="nan"):
        near("x", [1.0, np.nan], [1.0, 1.0], 1.0)
    with pytest.raises(Wrong, match="times the error"):
        near("x", 1.0, 1.1, 0.05)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        near("x", [], [], 1.0)
