"""The curvature by the response of EP's fixed point, beside differences of gradients of whole fits."""

import numpy as np
import pytest
from support.tolerances import EXPANSION

import cavity
from cavity.models.mixed import response
from cavity.models.mixed.response import FixedPointResponse
from cavity.models.mixed.variance_search import MixedEvidence, learn_settings

STEP = 1e-2


def draw_rows(n=1200, per_level=4):
    """A covariate, levels of few rows, counts, waiting times, successes and real numbers with outliers."""
    rng = np.random.default_rng(5)
    x, g = rng.uniform(size=n), rng.integers(n // per_level, size=n)
    f = np.sin(6.0 * x) + 0.8 * rng.normal(size=n // per_level)[g]
    counts = rng.negative_binomial(2.0, 2.0 / (2.0 + np.exp(f)))
    return {
        "x": x, "g": g, "counts": counts, "won": f + rng.logistic(size=n) > 0, "y": f + 0.3 * rng.standard_t(4, size=n),
        "zeros": np.where(rng.uniform(size=n) < 0.2, 0, counts), "many": rng.poisson(np.exp(f)),
    }  # fmt: skip


@pytest.fixture
def learn(monkeypatch):
    """A function of a model and rows that returns the evidence and free numbers of a fit."""
    from cavity.models.mixed import solution

    def run(model, table, **options):
        pairs = []

        def keep(*arguments):
            result = learn_settings(*arguments)
            pairs.append((result[1], result[0].x))
            return result

        with monkeypatch.context() as patch:
            patch.setattr(solution, "learn_settings", keep)
            model.fit(table, **options)
        return pairs[0]

    return run


def find_curvature_by_fits(evidence, x):
    """Minus the second derivatives, by central differences of gradients at fixed points."""

    def gradient(x):
        return evidence.vector.gradient(evidence, evidence.at(evidence.vector.unpack(x), tol=1e-10))

    steps = STEP * np.eye(len(x))
    rows = np.array([(gradient(x - step) - gradient(x + step)) / (2.0 * STEP) for step in steps])
    return 0.5 * (rows + rows.T)


def compare(curvature, expected, tol=EXPANSION):
    """Standard errors and correlations of both."""
    size = np.sqrt(np.diagonal(expected))
    np.testing.assert_allclose(curvature / size / size[:, None], expected / size / size[:, None], rtol=0, atol=tol)


@pytest.mark.parametrize(
    ("formula", "likelihood"),
    [
        ("counts ~ s(x, k=12) + (1 | g)", "negative-binomial"),
        ("won ~ s(x, k=12) + (1 | g)", "logit"),
        ("many ~ x + (1 + x | g)", "poisson"),
        ("y ~ s(x, k=12) + (1 | g)", "student-t"),
        ("zeros ~ x + (1 | g)", "zero-inflated-negative-binomial"),
    ],
)
def test_curvature_is_that_of_gradients_of_fits(formula, likelihood, learn):
    """With one to three terms of the response, and numbers of the prior and of the likelihood, one or two."""
    evidence, x = learn(cavity.MixedGLM(formula, likelihood), draw_rows())
    evidence.last_point = evidence.at(evidence.vector.unpack(x), tol=1e-10)
    start = evidence.start
    curvature = FixedPointResponse(evidence, x).find_curvature(np.arange(len(x)))
    gathered = MixedEvidence(evidence.problem, evidence.vector, evidence.threads, evidence.options)
    gathered.start = start
    compare(FixedPointResponse(gathered, x).find_curvature(np.arange(len(x))), curvature, 1e-9)
    compare(curvature, find_curvature_by_fits(evidence, x))


def test_the_response_of_some_rows_stands_for_all(learn, monkeypatch):
    """Where there are many, to the digits that a sample leaves; where pairs of them matter, all rows are taken."""
    evidence, x = learn(cavity.MixedGLM("counts ~ s(x, k=12) + (1 | g)", "negative-binomial"), draw_rows(6000, 100))
    point = FixedPointResponse(evidence, x)
    exact = point.find_curvature(np.arange(len(x)))
    monkeypatch.setattr(response, "MIN_SAMPLED_ROWS", 0)
    monkeypatch.setattr(response, "MAX_SAMPLED_ROWS", 1500)
    some = point.find_curvature(np.arange(len(x)))
    assert not np.array_equal(some, exact)
    compare(some, exact, 10 * EXPANSION)
    monkeypatch.setattr(response, "MAX_SECOND_SHARE", 0.0)
    np.testing.assert_array_equal(point.find_curvature(np.arange(len(x))), exact)


def test_some_rows_stand_for_all_where_rows_repeat_at_equal_distances(learn, monkeypatch):
    """One of four visits says nothing: rows at that distance would have no response at all."""
    rng = np.random.default_rng(1)
    g, offset = np.repeat(np.arange(1024), 4), np.tile([-12.0, 0.0, 0.0, 0.0], 1024)
    won = 0.2 + offset + rng.normal(size=1024)[g] + rng.normal(size=4096) > 0
    table = {"x": rng.normal(size=4096), "g": g, "won": won}
    evidence, x = learn(cavity.MixedGLM("won ~ x + (1 | g)", "probit"), table, offset=offset)
    exact = evidence.find_curvature(x, [0])
    monkeypatch.setattr(response, "MIN_SAMPLED_ROWS", 0)
    monkeypatch.setattr(response, "MAX_SAMPLED_ROWS", len(g) // 4)
    compare(evidence.find_curvature(x, [0]), exact, 10 * EXPANSION)


def test_there_is_no_curvature_of_weighted_rows_or_of_terms_that_do_not_shrink(learn, monkeypatch):
    table = draw_rows(300)
    model = cavity.MixedGLM("counts ~ x + (1 | g)", "negative-binomial")
    evidence, x = learn(model, table, sample_weight=np.linspace(0.5, 1.5, 300))
    assert FixedPointResponse(evidence, x).find_curvature(np.arange(len(x))) is None
    assert evidence.find_curvature(x, np.arange(len(x))) is None
    evidence, x = learn(model, table)
    assert evidence.find_curvature(x, np.arange(len(x))) is not None
    monkeypatch.setattr(response, "MAX_TERMS", 0)
    assert evidence.find_curvature(x, np.arange(len(x))) is None


def test_no_curvature_is_looked_for_where_no_number_has_one():
    """Among many rows whose smooth is a line: its standard deviation ends at the bound, without a standard error."""
    rng = np.random.default_rng(0)
    table = {"x": rng.uniform(size=17_000), "w": rng.normal(size=17_000), "many": rng.poisson(2.0, size=17_000)}
    with pytest.warns(cavity.NumericalWarning, match=r"no maximum in the sd\(s\(x\)\)"):
        fit = cavity.MixedGLM("many ~ s(x, k=6)", "poisson").fit(table)
    assert fit.hyperparameters.sd == (None,)
