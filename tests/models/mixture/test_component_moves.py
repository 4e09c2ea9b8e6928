"""Sums that moves work with, against sums over rows; then what moves do to fits."""

import numpy as np
import pytest
from support.events import writing
from support.mixtures import draws, every_covariance, model_of, with_gaps
from support.tolerances import INTEGRAL, SOLVES

import cavity
from cavity.models.mixture import component_moves
from cavity.models.mixture.state import RowSums

THREE = [[0.0, 0.0], [4.0, 1.0], [-2.0, 5.0]]


def sums(z, r, mean, full):
    """RowSums of responsibilities (N, K) about means (K, D), row by row."""
    seen = ~np.isnan(z)
    d = np.where(seen[:, None], z[:, None] - mean, 0.0)
    second = np.einsum("nk,nkd,nke->kde", r, d, d) if full else np.einsum("nk,nkd->kd", r, d**2)
    truth = r.sum(axis=0)[:, None] if seen.all() else r.T @ seen
    return RowSums(r.sum(axis=0), np.einsum("nk,nkd->kd", r, d), second, truth)


def assert_same(result, expected):
    for actual, target in zip(result.parts(), expected.parts(), strict=True):
        np.testing.assert_allclose(actual, target, rtol=INTEGRAL, atol=INTEGRAL)


@every_covariance
def test_statistics_move_and_merge_as_sums_over_rows_do(covariance):
    rng, full = np.random.default_rng(0), covariance in ("full", "tied")
    z, r, mean, step = rng.normal(size=(50, 2)), rng.dirichlet(np.ones(3), 50), *rng.normal(size=(2, 3, 2))
    z = z if full else with_gaps(z)
    assert_same(sums(z, r, mean, full).shift(step), sums(z, r, mean - step, full))
    together = r.copy()
    together[:, 1] += together[:, 2]
    together[:, 2] = 0.0
    merged = component_moves._merge_components(sums(z, r, mean, full), mean, 1, 2)
    expected = sums(z, together, mean, full)
    assert_same(merged, expected)
    assert_same(component_moves._empty_component(expected, 1), sums(z, together * [1, 0, 1], mean, full))
    assert_same(sums(z, r, mean, full).take([2, 0, 1]), sums(z, r[:, [2, 0, 1]], mean[[2, 0, 1]], full))


@pytest.mark.sample(2)
@every_covariance
def test_moves_leave_local_optima_of_surplus_components(covariance):
    X = draws(0, 200, [[0.0, 0.0], [3.0, 1.0], [-2.0, 4.0]])
    model = model_of(covariance, 5, 2, weight_concentration_prior=0.01)
    start = np.random.default_rng(0).choice(X, 5, replace=False)
    single = model.fit(X, initial_means=start, max_iter=3000)
    moved = model.fit(X, initial_means=start, max_iter=3000, moves=True)
    assert single.converged
    assert moved.converged
    assert moved.elbo > single.elbo + 1.0
    assert np.sum(moved.counts > 1) < np.sum(single.counts > 1)
    accepted = moved.trace["moves"]
    assert len(accepted) > 0
    assert np.all(moved.trace["elbo"][accepted - 1] > single.elbo)
    assert len(moved.trace["elbo"]) == len(moved.trace["change"]) == moved.n_iter
    assert np.all(np.diff(moved.trace["elbo"]) > -1e-12 * abs(single.elbo))
    assert moved.trace["elbo"][-1] == moved.elbo
    with pytest.warns(cavity.ConvergenceWarning):
        assert model.fit(X, initial_means=start, max_iter=30, moves=True).n_iter == 30


def test_passes_after_which_moves_were_accepted_count_those_that_chose_the_start():
    X, seen = draws(7, 400, [[0.0, 0.0], [3.0, 1.0], [-2.0, 4.0]]), []
    model = cavity.GaussianMixture(8, "tied", "stick_breaking")
    single = model.fit(X, max_iter=5000)
    moved = model.fit(X, max_iter=5000, moves=True, callback=writing(seen))
    accepted = moved.trace["moves"]
    assert len(accepted) > 0
    assert np.all(accepted > single.n_iter)
    assert np.all(moved.trace["elbo"][accepted - 1] > single.elbo)
    assert np.array_equal(moved.trace["elbo"][: single.n_iter], single.trace["elbo"])
    assert seen[-1] == (moved.n_iter, moved.elbo)


def test_moves_change_nothing_at_the_best_optimum():
    X = draws(6, 600, [[-4.0], [4.0]])
    model = model_of("full", 2, 1)
    single, moved = model.fit(X), model.fit(X, moves=True)
    assert moved.elbo == single.elbo
    assert moved.trace["moves"].size == 0
    assert moved.n_iter > single.n_iter
    assert np.array_equal(moved.mean, single.mean)


def test_sticks_are_put_in_order_of_size():
    X = np.concatenate([draws(7, 500, [[-5.0]]), draws(8, 100, [[5.0]])])
    model = model_of("full", 2, 1, "stick_breaking", weight_concentration_prior=0.2)
    wrong = model.fit(X, initial_means=[[5.0], [-5.0]])
    right = model.fit(X, initial_means=[[5.0], [-5.0]], moves=True)
    assert wrong.counts[0] < wrong.counts[1]
    assert right.counts[0] > right.counts[1]
    assert right.elbo > wrong.elbo
    other = model.fit(X, initial_means=[[-5.0], [5.0]])
    assert right.elbo == pytest.approx(other.elbo, rel=SOLVES)


def test_callback_counts_the_passes_of_moves_and_can_stop_them():
    X, seen = draws(9, 300, THREE), []
    cavity.GaussianMixture(5).fit(X, init="principal", moves=True, callback=writing(seen))
    passes, elbos = map(np.array, zip(*seen, strict=True))
    assert np.all(np.diff(passes) >= 0)
    assert np.all(np.diff(elbos) >= -1e-9)
