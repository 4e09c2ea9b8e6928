"""The engine of EP: damping of single steps, and how it adapts. Fits are tested with the models."""

import warnings

import numpy as np
import pytest
from support.own_likelihoods import OwnGaussian
from support.tolerances import AT_REST

import cavity
from cavity import _core, likelihoods
from cavity.ep import dense, latent
from cavity.ep.engine import Engine
from cavity.ep.options import Options
from cavity.ep.sites import Sites
from cavity.runs.executors import Threads


@pytest.mark.parametrize("way", ["rows", "blocks", "python", "parallel"])
def test_damping_of_steps_up_and_down(way, set_sizes):
    """A step that raises the precision of a site goes `up` of the way, one that lowers it `down`."""
    up, down = 0.5, 0.25  # the square: what parallel sweeps do
    if way == "blocks":
        set_sizes(MAX_RANK_ONE_COLUMNS=0)
    likelihood = OwnGaussian() if way == "python" else likelihoods.Gaussian(0.5)
    X, y = np.ones((1, 1)), np.array([3.0])
    for tau, rho, step in ((1.0, 0.5, up), (20.0, 7.0, down)):
        with Threads(1) as threads:
            geometry = dense.Dense(X, None, np.zeros(1), np.ones(1), threads)
            sites = Sites(likelihood, y)
            start = np.array([tau]), np.array([rho])
            if way == "parallel":
                engine = Engine(geometry, sites, Options(max_iter=1), start)
                engine.damping.step = up
                engine._parallel()
                new = engine.tau, engine.rho
            else:
                new = start[0].copy(), start[1].copy()
                belief = geometry.belief(*geometry.gather(*start))
                geometry.sweep(sites, belief, slice(0, 1), *new, up, down)
        # the site of a Gaussian likelihood is (y, 1)/noise whatever the cavity
        assert new[0][0] == pytest.approx(tau + step * (6.0 - tau), rel=AT_REST)
        assert new[1][0] == pytest.approx(rho + step * (2.0 - rho), rel=AT_REST)


@pytest.mark.parametrize(
    ("n", "d", "likelihood", "settings"),
    [
        (130, 3, likelihoods.Logit(), {}),
        (600, 4, likelihoods.Probit(), {"max_iter": 5}),  # ends before it has converged
        (900, 2, likelihoods.Poisson(), {"tol": 0.0, "max_iter": 30}),  # rounding keeps changes from falling
        (40, 3, likelihoods.StudentT(1.5, 0.01), {"max_iter": 26}),  # steps are shortened
        pytest.param(40, 3, likelihoods.StudentT(1.5, 0.01), {}, marks=pytest.mark.long),  # then the double loop
        (3, 7, likelihoods.Logit(), {"power": 0.5}),  # fewer rows than columns
    ],
)
def test_passes_in_one_call_have_the_bits_of_passes_one_by_one(n, d, likelihood, settings, monkeypatch):
    rng = np.random.default_rng(n)
    X = rng.normal(size=(n, d))
    f = X @ np.linspace(1.0, -1.0, d) + rng.normal(size=n)
    y = np.where(f > 0.0, 1, 0) if likelihood.n_classes == 2 else np.round(np.exp(f))
    weights = rng.uniform(0.5, 2.0, n)
    model = cavity.GLM(likelihood, prior_mean=0.1, prior_variance=2.0, intercept=False)
    reports = []
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", cavity.ConvergenceWarning)
        one_by_one = model.fit(X, y, sample_weight=weights, callback=reports.append, **settings)
        fits = []
        for variant in _core.variants("dense"):
            monkeypatch.setattr(dense, "dense_kernel", _core.load("dense", variant))
            fits.append(model.fit(X, y, sample_weight=weights, **settings))
    assert len(reports) == one_by_one.n_iter
    for fit in fits:
        assert (fit.status, fit.n_iter, fit.log_evidence) == (
            one_by_one.status,
            one_by_one.n_iter,
            one_by_one.log_evidence,
        )
        np.testing.assert_array_equal(fit.mean, one_by_one.mean)
        np.testing.assert_array_equal(fit.sites.tau, one_by_one.sites.tau)
        np.testing.assert_array_equal(fit.trace["change"], one_by_one.trace["change"])
        np.testing.assert_array_equal(fit.trace["improper"], one_by_one.trace["improper"])


@pytest.mark.parametrize("likelihood", [likelihoods.Probit(), likelihoods.StudentT(2.0, 0.1), likelihoods.Poisson()])
@pytest.mark.parametrize("n", [1, 21, 128])
def test_sweeps_of_a_process_in_one_call(likelihood, n, monkeypatch, set_sizes):
    """They have the bits of sweeps one by one, in all variants, and the fixed point of sweeps by blocks."""
    rng = np.random.default_rng(n)
    X = np.sort(rng.uniform(-3.0, 3.0, (n, 1)), axis=0)
    f = np.sin(2.0 * X[:, 0]) + 0.3 * rng.normal(size=n)
    y = np.where(f > 0.0, 1, -1) if likelihood.n_classes == 2 else np.round(np.exp(f))
    arguments = dict(X=X, y=y, offset=0.1 * X[:, 0], schedule="sequential", learn=False)
    model = cavity.GaussianProcess("rbf", likelihood, mean=0.0)
    one_by_one = model.fit(**arguments, callback=lambda event: None)
    for variant in _core.variants("ep"):
        monkeypatch.setattr(latent, "ep_kernel", _core.load("ep", variant))
        fit = model.fit(**arguments)
        assert (fit.n_iter, fit.log_evidence) == (one_by_one.n_iter, one_by_one.log_evidence)
        np.testing.assert_array_equal(fit.sites.tau, one_by_one.sites.tau)
        np.testing.assert_array_equal(fit.trace["change"], one_by_one.trace["change"])
    set_sizes(MAX_COMPILED_ROWS=0)
    by_blocks = model.fit(**arguments)
    assert by_blocks.converged == fit.converged
    assert by_blocks.n_iter == fit.n_iter
    np.testing.assert_allclose(fit.sites.rho, by_blocks.sites.rho, rtol=AT_REST, atol=AT_REST)
    assert fit.log_evidence == pytest.approx(by_blocks.log_evidence, rel=AT_REST)


@pytest.mark.parametrize("most", [300, 4096])
def test_the_first_rows_are_spread_over_all(most):
    """One of each run of rows of equal length, whose place in the run has no period."""
    geometry = dense.Dense(np.ones((9000, 2)), None, np.zeros(2), np.ones(2), Threads(1))
    rows = geometry.choose_first_rows(Sites(likelihoods.Logit(), np.ones(9000)), most)
    runs = np.arange(dense.MIN_FIRST_ROWS) * most // dense.MIN_FIRST_ROWS
    np.testing.assert_array_equal(np.searchsorted(runs, rows, side="right") - 1, np.arange(dense.MIN_FIRST_ROWS))
    for period in range(2, 21):
        assert len(np.unique(rows % period)) == period


def test_wide_priors_visit_all_first_rows():
    """Some hundred rows may be separated: f of others was 4e7 after them, in a golden test of formulas."""
    X = np.ones((9000, 2))
    for sd, rows in ((1.0, 256), (1e3, 4096), (1e6, 4096)):
        geometry = dense.Dense(X, None, np.zeros(2), np.full(2, sd), Threads(1))
        part = geometry.choose_first_rows(Sites(likelihoods.Logit(), np.ones(9000)), 4096)
        assert len(np.arange(9000)[part]) == rows
