"""Where fits of mixed models begin: wide priors and separable data settle, and the end is that of the dense model."""

import numpy as np
import pytest
from reference import mixed as reference
from support.glms import GLM
from support.tolerances import AT_REST, EARLY, SLOPES

import cavity
from cavity import likelihoods
from cavity.linalg.row_pairs import RowPairs

RNG = np.random.default_rng(3)
N = 120
X = np.column_stack([np.ones(N), 100.0 * RNG.normal(size=N), RNG.normal(50.0, 5.0, N)])
GROUPS = {"g": RNG.integers(2, size=N), "h": RNG.integers(9, size=N)}
F = X @ [0.5, 0.01, 0.02] - 1.5 + np.array([-2.0, 2.0])[GROUPS["g"]] + RNG.normal(size=9)[GROUPS["h"]]
CASES = {
    "separable": (likelihoods.Logit(), (F > 0).astype(float), 1e3, {"g": 50.0**2, "h": 0.3}),
    "noisy": (likelihoods.Probit(), (F + RNG.normal(size=N) > 0).astype(float), 1e4, {"g": 4.0, "h": 1.0}),
    "counts": (likelihoods.Poisson(), RNG.poisson(np.exp(F)), 1e4, {"g": 9.0, "h": 1.0}),
}


@pytest.mark.parametrize("name", CASES)
def test_wide_priors_settle_where_the_dense_model_does(name):
    likelihood, y, variance, covariances = CASES[name]
    settings = {"prior_variance": variance, "effect_covariances": covariances}
    posterior = cavity.MixedGLM(["g", "h"], likelihood, **settings).fit(X, y, groups=GROUPS)
    terms = [reference.make_term(labels) for labels in GROUPS.values()]
    prior = reference.prior_covariance(np.full(3, variance), terms, list(covariances.values()))
    dense = GLM(likelihood, prior_variance=prior).fit(reference.rows(X, terms), y)
    assert posterior.converged
    assert posterior.log_evidence == pytest.approx(dense.log_evidence, abs=EARLY)
    np.testing.assert_allclose(posterior.mean, dense.mean[:3], atol=SLOPES * np.sqrt(dense.variance[:3]).max())


def test_rows_without_fixed_effects_start_from_the_prior():
    days = np.arange(12.0)[:, None] % 4
    y = np.array([0, 1, 1, 1, 0, 0, 0, 1, 0, 1, 0, 1])
    model = cavity.MixedGLM("g", "probit", prior_variance=1.0, effect_covariances={"g": 1.0}, intercept=False)
    posterior = model.fit(days, y, groups=np.repeat(["a", "b", "c"], 4))
    terms = [reference.make_term(np.repeat(["a", "b", "c"], 4))]
    prior = reference.prior_covariance(np.ones(1), terms, [1.0])
    dense = GLM(likelihoods.Probit(), prior_variance=prior).fit(reference.rows(days, terms), y)
    assert posterior.log_evidence == pytest.approx(dense.log_evidence, abs=AT_REST)


def test_the_search_with_gaussian_noise_leaves_sites_that_a_sweep_does_not_move(monkeypatch):
    """So that their sums and the posterior are found once after it, with the bits of a second time."""
    sums = []
    monkeypatch.setattr(
        RowPairs, "transposed", lambda self, *args, do=RowPairs.transposed: sums.append(1) or do(self, *args)
    )
    y = F + RNG.normal(size=N)
    weights = np.where(np.arange(N) < 20, 0.3, 1.0)
    posterior = cavity.MixedGLM(["g", "h"], "gaussian").fit(X, y, groups=GROUPS, sample_weight=weights)
    assert posterior.trace["change"].tolist() == [0.0]
    assert len(sums) == 2  # before the search and after it


@pytest.mark.parametrize("step", [1, -1])
def test_rows_in_the_order_of_y_begin_like_others(step):
    """The first ones are separated, and the others of a logit likelihood were far away: fits did not end, or wrong."""
    rng = np.random.default_rng(0)
    g, x = rng.integers(5, size=1000), rng.normal(size=1000)
    won = 0.2 + 0.3 * x + 0.6 * rng.normal(size=5)[g] + rng.logistic(size=1000) > 0
    for model in (cavity.GLM("won ~ x", "logit"), cavity.MixedGLM("won ~ x + (1 | g)", "logit")):
        orders = np.arange(1000), np.argsort(won, kind="stable")[::step]
        ends = [model.fit({"x": x[i], "g": g[i], "won": won[i]}) for i in orders]
        assert ends[1].converged
        np.testing.assert_allclose(ends[1].log_evidence, ends[0].log_evidence, rtol=AT_REST)
        assert ends[1].n_iter <= 2 * ends[0].n_iter
