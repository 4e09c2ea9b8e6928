"""Successes in trials of many responses: the fit of each alone, with trials by row, or by row and response."""

import numpy as np
import pytest
from models.many.test_fit_many import DONORS, WEIGHTS, F, N, X, arrays_of, assert_alike
from support.tolerances import AT_REST, EXPANSION, PRINTED

import cavity
from cavity import likelihoods
from cavity.errors import ConvergenceWarning

RNG = np.random.default_rng(21)
TRIALS = RNG.integers(1, 12, size=(N, 6)).astype(float)
TRIALS[3, 2] = 0.0  # a row that tells nothing
F_OF_GROUPS = F[:, :6] - 1.0 + RNG.normal(size=(8, 6))[DONORS]
SUCCESSES = RNG.binomial(TRIALS.astype(int), RNG.beta(*(2.0 / (1.0 + np.exp(s * F_OF_GROUPS)) for s in (-1, 1))))


@pytest.mark.parametrize("likelihood", [likelihoods.Binomial(), likelihoods.Binomial("probit")])
@pytest.mark.parametrize("is_mixed", [False, True])
def test_each_response_is_its_fit_alone(likelihood, is_mixed):
    model, groups = cavity.GLM(likelihood, intercept=True), {}
    if is_mixed:
        model = cavity.MixedGLM("donor", likelihood, intercept=True, effect_covariances={"donor": 0.5})
        groups = {"groups": {"donor": DONORS}}
    options = groups | {"sample_weight": WEIGHTS, "tol": 1e-12}
    many = model.fit_many(X, SUCCESSES, trials=TRIALS, **options)
    same = model.fit_many(X, SUCCESSES.clip(max=5), trials=np.full(N, 5), **options)
    for number in (0, 2, 5):
        pairs = np.column_stack([SUCCESSES[:, number], TRIALS[:, number]])
        assert_alike(many, number, model.fit(X, pairs, **options), AT_REST)
        pairs = np.column_stack([SUCCESSES[:, number].clip(max=5), np.full(N, 5)])
        assert_alike(same, number, model.fit(X, pairs, **options), AT_REST)


@pytest.mark.parametrize("is_batch", [True, False])
def test_dispersions_are_learnt_and_missing_pairs_left_out(is_batch, set_sizes):
    if not is_batch:
        set_sizes(MAX_BATCH_COLUMNS=0)
    successes, trials = SUCCESSES.astype(float), TRIALS.copy()
    successes[[1, 7], 0], trials[9, 0] = np.nan, np.nan
    model = cavity.GLM("beta-binomial", intercept=True)
    many = model.fit_many(X, successes, trials=trials, missing="drop")
    assert many.converged.all()
    for number in (0, 4):
        rows = np.isfinite(successes[:, number] + trials[:, number])
        single = model.fit(X[rows], np.column_stack([successes[rows, number], trials[rows, number]]))
        assert many.log_evidence[number] >= single.log_evidence - PRINTED
        assert_alike(many, number, single, EXPANSION)


def test_formulas_and_wrong_pairs():
    pytest.importorskip("formulae")
    table, successes = {"x": X[:, 0], "donor": DONORS}, SUCCESSES.copy()
    successes[4, 1] = 100
    for effects, kind in (("~ x", cavity.GLM), ("~ x + (1 | donor)", cavity.MixedGLM)):
        with pytest.warns(ConvergenceWarning, match="1 of 6 responses have no converged fit, the first is 'y2'"):
            many = kind(effects, "binomial").fit_many(table, successes, trials=TRIALS)
        assert "at most as many successes as trials" in many.status[1]
        data = table | {"k": SUCCESSES[:, 0], "n": TRIALS[:, 0]}
        assert_alike(many, 0, kind(f"p(k, n) {effects}", "binomial").fit(data), EXPANSION)
        expected = many.of(0).predict({"x": [0.5], "donor": [1]}, noise=True, trials=4)[0]
        assert 0.0 < expected[0] < 4.0


def test_bits_are_those_of_any_neighbours(set_sizes):
    model = cavity.GLM("binomial", intercept=True)
    many = arrays_of(model.fit_many(X, SUCCESSES, trials=TRIALS))
    set_sizes(MAX_BATCH_RESPONSES=2)
    for name, value in arrays_of(model.fit_many(X, SUCCESSES, trials=TRIALS, n_threads=2)).items():
        assert value.tobytes() == many[name].tobytes(), name
