"""Choosing the number of components: the same priors for all, failures are reported, the table and the figure."""

import re

import numpy as np
import pytest
from scipy.special import multigammaln
from support.tolerances import OPTIMUM, ROOT_EPS, SOLVES

import cavity


@pytest.fixture(scope="module")
def faithful():
    columns, _ = cavity.data.table("faithful")
    return np.column_stack(list(columns.values()))


def test_each_fit_is_the_one_a_user_would_make(faithful):
    X = faithful[::3]
    chosen = cavity.select_components(cavity.GaussianMixture(1), X, [3, 1, 2])
    mean, covariance = X.mean(axis=0), np.cov(X.T)
    for i, k in enumerate([3, 1, 2]):
        single = cavity.GaussianMixture(k, mean_prior=mean, covariance_prior=covariance, degrees_of_freedom_prior=2)
        assert chosen.elbo[i] == pytest.approx(single.fit(X).elbo, abs=OPTIMUM)
        assert chosen.posteriors[i].model.n_components == k == chosen.n_components[i]
        assert chosen.posteriors[i].weights.shape == (k,)
    assert chosen.best is chosen.posteriors[2]


def test_one_component_has_the_exact_evidence(faithful):
    """Of one component q is the posterior, normal-Wishart with the covariance of the data as inverse scale."""
    chosen = cavity.select_components(cavity.GaussianMixture(5), faithful, [1])
    n, covariance = 272, np.cov(faithful.T)
    nu, beta, scatter = 2 + n, 1 + n, covariance + (n - 1) * covariance  # the prior mean is that of the data

    def log_normaliser(beta, nu, V):
        return multigammaln(nu / 2, 2) - nu / 2 * np.linalg.slogdet(V / 2)[1] - np.log(beta)

    evidence = log_normaliser(beta, nu, scatter) - log_normaliser(1, 2, covariance) - n * np.log(2 * np.pi)
    assert chosen.elbo[0] == pytest.approx(evidence, abs=ROOT_EPS)


@pytest.mark.parametrize(
    ("concentration", "elbos"),
    [(1e-3, [-561.674795, -442.174563, -442.586205]), (1.0, [-561.674795, -436.047327, -440.909008])],
)
def test_golden_elbos(faithful, concentration, elbos):
    """Best ELBOs of the standardised data, found twice by other programs from many random starts."""
    X = (faithful - faithful.mean(axis=0)) / faithful.std(axis=0)
    prior = dict(mean_prior=np.zeros(2), covariance_prior=np.eye(2), degrees_of_freedom_prior=2.0)
    model = cavity.GaussianMixture(1, weight_concentration_prior=concentration, **prior)
    chosen = cavity.select_components(model, X, [1, 2, 3], moves=True)
    assert chosen.elbo == pytest.approx(elbos, abs=OPTIMUM)
    assert len(chosen.best.weights) == 2


def test_priors_are_settled_once_but_the_concentration_follows_k(faithful):
    chosen = cavity.select_components(cavity.GaussianMixture(7), faithful, [2, 4])
    models = [posterior.model for posterior in chosen.posteriors]
    assert models[0].covariance_prior == models[1].covariance_prior is not None
    assert models[0].mean_prior == models[1].mean_prior is not None
    concentration = [posterior.weight_concentration.sum() - 272 for posterior in chosen.posteriors]
    assert concentration == pytest.approx([1.0, 1.0])  # 1/K for each of K
    values = cavity.GaussianMixture(1, weight_concentration_prior=3.0)
    concentration = [
        posterior.weight_concentration.sum() - 272
        for posterior in cavity.select_components(values, faithful, [2, 4]).posteriors
    ]
    assert concentration == pytest.approx([6.0, 12.0])


def test_weights_and_threads_reach_the_priors(faithful):
    weight = np.arange(272) % 3.0
    repeated = np.repeat(faithful, weight.astype(int), axis=0)
    options = dict(sample_weight=weight, n_threads=2)
    weighted = cavity.select_components(cavity.GaussianMixture(1, covariance="diag"), faithful, [1, 2], **options)
    plain = cavity.select_components(cavity.GaussianMixture(1, covariance="diag"), repeated, [1, 2])
    assert weighted.elbo == pytest.approx(plain.elbo, abs=OPTIMUM)
    assert weighted.posteriors[0].model.mean_prior == pytest.approx(plain.posteriors[0].model.mean_prior, rel=SOLVES)


def failing(monkeypatch, numbers, error):
    """Let fits of some numbers of components fail."""
    fit = cavity.GaussianMixture.fit

    def sometimes(self, X, **options):
        if self.n_components in numbers:
            raise error
        return fit(self, X, **options)

    monkeypatch.setattr(cavity.GaussianMixture, "fit", sometimes)


@pytest.mark.parametrize("error", [OverflowError("row 3 is far"), cavity.NotPositiveDefiniteError("no spread")])
def test_a_fit_that_fails_is_reported(monkeypatch, faithful, error):
    failing(monkeypatch, [2], error)
    chosen = cavity.select_components(cavity.GaussianMixture(1), faithful, [1, 2, 3])
    assert np.isnan(chosen.elbo).tolist() == [False, True, False]
    assert chosen.posteriors[1] is None
    assert chosen.failures == ("", str(error), "")
    assert chosen.best.model.n_components == 3
    assert f"2 failed: {error}" in repr(chosen)
    failing(monkeypatch, [1, 3], error)
    with pytest.raises(type(error), match=str(error)):
        cavity.select_components(cavity.GaussianMixture(1), faithful, [1, 2, 3])


def test_fits_that_do_not_converge_take_part(faithful):
    with pytest.warns(cavity.ConvergenceWarning):
        chosen = cavity.select_components(cavity.GaussianMixture(1), faithful, [5], max_iter=1, init="kmeans")
    assert not chosen.best.converged
    assert f"({chosen.best.status})" in repr(chosen)


def test_occupied_components_are_counted(faithful):
    chosen = cavity.select_components(cavity.GaussianMixture(1, weight_concentration_prior=1e-3), faithful, [1, 2, 8])
    assert chosen.occupied.tolist() == [1, 2, np.sum(chosen.posteriors[2].counts > 0.5)]
    assert chosen.occupied[2] < 8
    lines = repr(chosen).splitlines()
    assert lines[0] == "Selection: 272 points"
    assert [line.split()[0] for line in lines[1:]] == ["K", "1", "2", "8"]
    assert [line.endswith("<- largest ELBO") for line in lines[2:]].count(True) == 1
    with pytest.raises(ValueError, match="read-only"):
        chosen.elbo[0] = 0.0


@pytest.mark.parametrize(
    ("numbers", "options", "error", "message"),
    [
        (3, {}, TypeError, "n_components must be several numbers, for example range(1, 11), got 3"),
        ([], {}, ValueError, "at least one number"),
        ([2, 2], {}, ValueError, "each once, got [2, 2]"),
        ([0, 1], {}, ValueError, "n_components must be at least 1, got 0"),
        ([1.5], {}, TypeError, "n_components must be an integer"),
        ([1, 2], {"initial_means": [[0.0, 0.0]]}, ValueError, "initial_means would fit one number"),
        ([1, 2], {"n_init": 3}, ValueError, "needs rng"),
    ],
)
def test_bad_arguments(faithful, numbers, options, error, message):
    with pytest.raises(error, match=re.escape(message)):
        cavity.select_components(cavity.GaussianMixture(1), faithful, numbers, **options)
    with pytest.raises(TypeError, match="model must be a GaussianMixture, got UnitMixture"):
        cavity.select_components(cavity.UnitMixture(1), faithful)


def test_the_figure_shows_every_number(monkeypatch, faithful):
    pytest.importorskip("matplotlib")
    failing(monkeypatch, [3], ArithmeticError("no"))
    chosen = cavity.select_components(cavity.GaussianMixture(1), faithful, range(1, 6))
    (axes,) = chosen.figure().axes
    texts = [text.get_text() for text in axes.texts]
    best = chosen.elbo[np.nanargmax(chosen.elbo)]
    assert f"{best:.2f}" in texts
    assert texts.count("failed") == 1
    assert sum(text.startswith("-") and float(text) > -200 for text in texts) == 3  # differences to the best
    np.testing.assert_array_equal(axes.lines[0].get_xydata()[:, 0], [1, 2, 4, 5])
    np.testing.assert_array_equal(axes.lines[1].get_xydata()[:, 0], [1, 2])  # without empty components


def test_a_callback_hears_of_every_number_of_components_and_keeps_those_that_were_fitted(faithful):
    events, model, numbers = [], cavity.GaussianMixture(1), range(1, 4)
    full = cavity.select_components(model, faithful[::3], numbers, callback=events.append)
    stages = list(dict.fromkeys(event.stage for event in events))
    assert [stage for stage in stages if "," not in stage] == ["K = 1", "K = 2", "K = 3"]
    assert "K = 3, trial 1 of 3" in stages
    last = [event for event in events if event.stage == "K = 3"][-1]
    assert (last.n_iter, last.objective) == (full.posteriors[2].n_iter, full.posteriors[2].elbo)
    assert last.passes_left == 0.0
    with pytest.warns(cavity.ConvergenceWarning, match="stopped by callback"):
        stopped = cavity.select_components(model, faithful, numbers, callback=lambda event: "K = 2" in event.stage)
    assert stopped.n_components.tolist() == [1, 2]
    assert [posterior.status for posterior in stopped.posteriors] == ["converged", "stopped by callback"]
