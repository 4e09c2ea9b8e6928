"""Responses with missing values: the fit of each alone on the rows that it has."""

import numpy as np
import pytest
from models.many.test_fit_many import DONORS, MIXED_COUNTS, RESPONSES, WEIGHTS, F, N, X, arrays_of, assert_alike
from support.tolerances import AT_REST, EARLY, EXPANSION, PRINTED

import cavity
from cavity import likelihoods
from cavity.errors import ConvergenceWarning

RNG = np.random.default_rng(12)
OBSERVED = RNG.random((N, 8)) > 0.3
OBSERVED[:, 1] = True
OBSERVED[:, 3] = OBSERVED[:, 2]  # two responses of one pattern
OBSERVED[:, 5] &= DONORS != 2  # a group without a row
NUMBERS = (0, 1, 3, 5)
MEAN = F[:, :8] + 1.5 * RNG.normal(size=(8, 8))[DONORS]
NOISY = MEAN + RNG.normal(size=(N, 8))
DISPERSED = RNG.poisson(np.exp(MEAN + 1.0) * RNG.gamma(1.5, 1 / 1.5, size=(N, 8))).astype(float)


def with_gaps(Y):
    """Return eight responses with gaps."""
    return np.where(OBSERVED, Y[:, :8], np.nan)


def fit_single(model, Y, number, **options):
    """Fit the rows that a response has."""
    rows = OBSERVED[:, number]
    options |= {name: options[name][rows] for name in ("sample_weight", "offset") if name in options}
    groups = {"groups": {"donor": DONORS[rows]}} if isinstance(model, cavity.MixedGLM) else {}
    return model.fit(X[rows], Y[rows, number], **options, **groups)


@pytest.mark.parametrize("name", RESPONSES)
def test_each_response_is_its_fit_on_the_rows_it_has(name):
    likelihood, Y = RESPONSES[name]
    model = cavity.GLM(likelihood, intercept=True)
    options = {"sample_weight": WEIGHTS, "offset": X[:, 0], "tol": 1e-10 if name == "student" else 1e-12}
    many = model.fit_many(X, with_gaps(Y), missing="drop", **options)
    assert many.converged.all()
    for number in NUMBERS:
        single = fit_single(model, Y, number, **options)
        assert_alike(many, number, single, EARLY if name == "student" else AT_REST)
        np.testing.assert_allclose(many.prior_sd[number] ** 2, single.model.prior_variance, rtol=AT_REST)


@pytest.mark.long_cases("False-True-negative-binomial")
@pytest.mark.parametrize("likelihood", ["gaussian", "negative-binomial"])
@pytest.mark.parametrize("is_mixed", [False, True])
@pytest.mark.parametrize("is_batch", [False, True])
def test_what_is_learnt_is_that_of_the_rows_it_has(likelihood, is_mixed, is_batch, set_sizes):
    Y = NOISY if likelihood == "gaussian" else DISPERSED
    kind, groups = (
        (cavity.MixedGLM("donor", likelihood, intercept=True), {"groups": {"donor": DONORS}})
        if is_mixed
        else (cavity.GLM(likelihood, intercept=True), {})
    )
    if not is_batch:
        set_sizes(MAX_BATCH_COLUMNS=0)
    many = kind.fit_many(X, with_gaps(Y), missing="drop", sample_weight=WEIGHTS, **groups)
    assert many.converged.all()
    for number in NUMBERS:
        single = fit_single(kind, Y, number, sample_weight=WEIGHTS)
        assert many.log_evidence[number] >= single.log_evidence - PRINTED
        assert_alike(many, number, single, EXPANSION)


def test_random_effects_of_given_variance_are_a_fit_alone():
    Y = MIXED_COUNTS
    model = cavity.MixedGLM(
        "donor", likelihoods.NegativeBinomial(3.0), intercept=True, effect_covariances={"donor": 0.3}
    )
    many = model.fit_many(X, with_gaps(Y), groups={"donor": DONORS}, missing="drop", tol=1e-12)
    for number in NUMBERS:
        assert_alike(many, number, fit_single(model, Y, number, tol=1e-12), AT_REST)
    effects = dict(zip(many.effect_names, many.mean[5, 3:], strict=True))
    assert effects["2 | donor"] == 0.0  # the prior's, as no row has this level
    np.testing.assert_allclose(many.of(5).effects("donor").columns["sd"][2], np.sqrt(0.3), rtol=EARLY)


@pytest.mark.parametrize("likelihood", ["gaussian", "poisson"])
def test_bits_do_not_depend_on_gaps_of_neighbours(likelihood, monkeypatch):
    model, groups = cavity.MixedGLM("donor", likelihood, intercept=True), {"groups": {"donor": DONORS}}
    Y = with_gaps(NOISY if likelihood == "gaussian" else MIXED_COUNTS)
    many = arrays_of(model.fit_many(X, Y, missing="drop", **groups))
    for part in ([1], [5, 0], [3]):
        some = arrays_of(model.fit_many(X, Y[:, part], missing="drop", **groups))
        for name in ("mean", "covariance", "log_evidence", "parameters"):
            assert some[name].tobytes() == many[name][part].tobytes(), name
    full = arrays_of(model.fit_many(X, Y[:, [1]], **groups))
    assert full["mean"].tobytes() == many["mean"][[1]].tobytes()


def test_shared_dispersions_see_the_rows_a_response_has():
    """Rows of a response that nobody has seen change nothing."""
    Y, model = with_gaps(MIXED_COUNTS), cavity.GLM("negative-binomial", intercept=False, prior_variance=2.0)
    design = np.column_stack([np.ones(N), X])
    many = model.fit_many(design, Y, missing="drop", share="dispersion")
    more = np.vstack([Y, np.full((5, 8), np.nan)])
    second = model.fit_many(np.vstack([design, design[:5]]), more, missing="drop", share="dispersion")
    np.testing.assert_allclose([*second.shared.values()], [*many.shared.values()], rtol=EXPANSION)
    np.testing.assert_allclose(second.mean, many.mean, rtol=EXPANSION)


def test_responses_without_values_and_what_is_refused():
    Y = with_gaps(RESPONSES["poisson"][1])
    Y[:, 4] = np.nan
    Y[np.argmax(OBSERVED[:, 6]), 6] = -1.0
    model = cavity.GLM("poisson", intercept=True)
    with pytest.warns(ConvergenceWarning, match="2 of 8 responses have no converged fit"):
        many = model.fit_many(X, Y, missing="drop")
    assert many.status[4] == "y has no value in any row"
    assert "got -1.0 in row" in many.status[6]
    with pytest.warns(ConvergenceWarning, match="7 of 8 responses have no converged fit"):
        assert model.fit_many(X, Y).converged.tolist() == [False, True, *[False] * 6]
    with pytest.raises(ValueError, match="missing must be one of 'raise', 'drop', got 'keep'"):
        model.fit_many(X, Y, missing="keep")


@pytest.mark.parametrize("is_mixed", [False, True])
def test_a_random_tenth_of_many_responses_are_fits_alone(is_mixed):
    rng, count, rows = np.random.default_rng(5), 300, 24
    dose, batch = rng.normal(size=rows), np.arange(rows) % 6
    f = rng.normal(1.5, 1.0, count) + np.outer(dose, rng.normal(size=count)) + rng.normal(0, 0.5, (6, count))[batch]
    Y = rng.poisson(np.exp(f) * rng.gamma(4.0, 0.25, size=(rows, count))).astype(float)
    Y[rng.random(Y.shape) < 0.05] = np.nan
    likelihood, groups = likelihoods.NegativeBinomial(4.0), {}
    model = cavity.GLM(likelihood, intercept=True)
    if is_mixed:
        model = cavity.MixedGLM("batch", likelihood, intercept=True, effect_covariances={"batch": 0.25})
        groups = {"batch": batch}
    options = {"groups": groups} if is_mixed else {}
    many = model.fit_many(dose[:, None], Y, missing="drop", tol=1e-12, **options)
    assert many.converged.all()
    for number in rng.choice(count, count // 10, replace=False):
        seen = np.isfinite(Y[:, number])
        options = {"groups": {"batch": batch[seen]}} if is_mixed else {}
        single = model.fit(dose[seen, None], Y[seen, number], tol=1e-12, **options)
        assert_alike(many, number, single, AT_REST)


def test_rows_of_the_design_have_values():
    pytest.importorskip("formulae")
    table = {"x": np.where(np.arange(N) == 4, np.nan, X[:, 0]), "donor": DONORS}
    for model in (cavity.GLM("~ x", "poisson"), cavity.MixedGLM("~ x + (1 | donor)", "poisson")):
        with pytest.raises(ValueError, match="'x' in 1 of 40 rows, the first is row 4; leave such rows out of X and Y"):
            model.fit_many(table, MIXED_COUNTS, missing="drop")


@pytest.mark.parametrize("likelihood", ["gaussian", "poisson", "negative-binomial"])
def test_responses_without_any_value_are_said(likelihood):
    message = "Y must have a value in some row of some response, got missing values only"
    with pytest.raises(ValueError, match=message):
        cavity.GLM(likelihood, intercept=True).fit_many(X, np.full((N, 2), np.nan), missing="drop")
    Y = np.column_stack([np.full(N, np.nan), np.full(N, 0.5)])
    with pytest.raises(ValueError, match="'y2': y must hold whole numbers"):  # the first has no value
        cavity.GLM("poisson", intercept=True).fit_many(X, Y, missing="drop")
