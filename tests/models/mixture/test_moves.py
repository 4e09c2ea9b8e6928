"""Sums that moves and memoised passes work with, against sums over rows; then what both do to fits."""

import numpy as np
import pytest
from support.mixtures import draws, every_covariance, every_kind, model_of, with_gaps

import cavity
from cavity.blocks.executors import Threads
from cavity.models.mixture import memoised, moves
from cavity.models.mixture.e_step import EStep
from cavity.models.mixture.posterior import factors_of
from cavity.models.mixture.prior import state_of
from cavity.models.mixture.rows import open_rows
from cavity.models.mixture.state import RowSums
from cavity.models.mixture.sweep import MixtureSweeps

THREE = [[0.0, 0.0], [4.0, 1.0], [-2.0, 5.0]]


def sums(z, r, mean, full):
    """RowSums of responsibilities (N, K) about means (K, D), row by row."""
    seen = ~np.isnan(z)
    d = np.where(seen[:, None], z[:, None] - mean, 0.0)
    second = np.einsum("nk,nkd,nke->kde", r, d, d) if full else np.einsum("nk,nkd->kd", r, d**2)
    known = r.sum(axis=0)[:, None] if seen.all() else r.T @ seen
    return RowSums(r.sum(axis=0), np.einsum("nk,nkd->kd", r, d), second, known)


def assert_same(found, expected):
    for got, wanted in zip(found.parts(), expected.parts(), strict=True):
        np.testing.assert_allclose(got, wanted, rtol=1e-10, atol=1e-10)


@every_covariance
def test_statistics_move_and_merge_as_sums_over_rows_do(covariance):
    rng, full = np.random.default_rng(0), covariance in ("full", "tied")
    z, r, mean, step = rng.normal(size=(50, 2)), rng.dirichlet(np.ones(3), 50), *rng.normal(size=(2, 3, 2))
    z = z if full else with_gaps(z)
    assert_same(sums(z, r, mean, full).moved(step), sums(z, r, mean - step, full))
    together = r.copy()
    together[:, 1] += together[:, 2]
    together[:, 2] = 0.0
    merged = moves._merged(sums(z, r, mean, full), mean, 1, 2)
    expected = sums(z, together, mean, full)
    assert_same(merged, expected)
    assert_same(moves._emptied(expected, 1), sums(z, together * [1, 0, 1], mean, full))
    assert_same(sums(z, r, mean, full).taken([2, 0, 1]), sums(z, r[:, [2, 0, 1]], mean[[2, 0, 1]], full))


@every_covariance
def test_energy_is_the_expected_log_density_of_the_rows(covariance):
    full = covariance in ("full", "tied")
    X = draws(1, 60, THREE) if full else with_gaps(draws(1, 60, THREE))
    post = model_of(covariance, 3, 2).fit(X)
    r = np.random.default_rng(2).dirichlet(np.ones(3), 60)
    state, scaling = factors_of(post)
    e_step = EStep.of(state, scaling, missing=not full)
    found = e_step.energy(sums(scaling.rows(X), r, state.factors.mean, full))
    assert found == pytest.approx(np.sum(r * e_step.log_weights(X)), rel=1e-12)


@every_kind
def test_memoised_passes_end_where_plain_ones_do(covariance, weights):
    X, model = draws(3, 900, [[0.0, 0.0], [1.7, 0.0]]), model_of(covariance, 2, 2, weights)
    options = {"initial_means": [[-1.0, 0.0], [2.0, 0.5]], "max_iter": 5000}
    plain = model.fit(X, accelerate=False, **options)
    memoised = model.fit(X, schedule="memoised", n_threads=2, **options)
    assert memoised.converged
    assert memoised.n_iter < 0.8 * plain.n_iter
    assert memoised.elbo == pytest.approx(plain.elbo, abs=1e-5)
    np.testing.assert_allclose(memoised.mean, plain.mean, atol=1e-3)
    assert memoised.trace["elbo"][0] == pytest.approx(plain.trace["elbo"][0], rel=1e-12)
    assert np.all(np.diff(memoised.trace["elbo"]) > -1e-12 * abs(plain.elbo))
    again = model.fit(X, schedule="memoised", **options)
    assert again.elbo == memoised.elbo
    assert np.array_equal(again.mean, memoised.mean)


@every_covariance
def test_the_elbo_of_a_memo_is_that_of_the_responsibilities_it_keeps(covariance):
    """Row by row: entropy of r, expected log densities under the last state, divergence from the prior."""
    full = covariance in ("full", "tied")
    X = draws(4, 600, THREE) if full else with_gaps(draws(4, 600, THREE))
    model = model_of(covariance, 3, 2)
    with Threads(1) as threads:
        data = open_rows(X, None, threads, 3, covariance, grouped=True)
        prior = state_of(model, data)
        sweeps = MixtureSweeps(prior, data, threads)
        start, _ = factors_of(model.fit(X))
        memo, groups = memoised.Memo(start), memoised.MemoisedSweeps(sweeps)
        first, _ = groups.sweep(memo)
        second, _ = groups.sweep(first)
        _, elbo = groups.sweep(second)
        state, logs = first.state, []
        assert data.source.block_count > 2
        for blocks, kept in zip(groups._groups, second.kept, strict=True):
            for index in blocks:
                logs.append(sweeps.e_step(state).log_weights(data.source.read(index)))
            kept = memoised._total(second.kept[: len(logs)] + first.kept[len(logs) :])
            assert kept.counts.sum() > 0
            state = state.renewed(prior, kept.moved(second.origin - state.factors.mean))
        logs = np.concatenate(logs)
        log_r = logs - np.logaddexp.reduce(logs, axis=1, keepdims=True)
        r = np.exp(log_r)
        expected = np.sum(r * (sweeps.e_step(second.state).log_weights(X) - log_r))
        expected += data.log_scale - second.state.divergence(prior)
    np.testing.assert_allclose(state.factors.mean, second.state.factors.mean, rtol=1e-12)
    assert elbo == pytest.approx(expected, rel=1e-11)


@every_covariance
def test_moves_leave_local_optima_of_surplus_components(covariance):
    X = draws(0, 200, [[0.0, 0.0], [3.0, 1.0], [-2.0, 4.0]])
    model = model_of(covariance, 5, 2, weight_concentration_prior=0.01)
    start = np.random.default_rng(0).choice(X, 5, replace=False)
    alone = model.fit(X, initial_means=start, max_iter=3000)
    moved = model.fit(X, initial_means=start, max_iter=3000, moves=True)
    assert alone.converged
    assert moved.converged
    assert moved.elbo > alone.elbo + 1.0
    assert np.sum(moved.counts > 1) < np.sum(alone.counts > 1)
    accepted = moved.trace["moves"]
    assert len(accepted) > 0
    assert np.all(moved.trace["elbo"][accepted - 1] > alone.elbo)
    assert len(moved.trace["elbo"]) == len(moved.trace["change"]) == moved.n_iter
    assert np.all(np.diff(moved.trace["elbo"]) > -1e-12 * abs(alone.elbo))
    assert moved.trace["elbo"][-1] == moved.elbo
    with pytest.warns(cavity.ConvergenceWarning):
        assert model.fit(X, initial_means=start, max_iter=30, moves=True).n_iter == 30


def test_passes_after_which_moves_were_accepted_count_those_that_chose_the_start():
    X, seen = draws(7, 400, [[0.0, 0.0], [3.0, 1.0], [-2.0, 4.0]]), []
    model = cavity.GaussianMixture(8, "tied", "stick_breaking")
    alone = model.fit(X, max_iter=5000)
    moved = model.fit(X, max_iter=5000, moves=True, callback=lambda n_iter, elbo: seen.append((n_iter, elbo)))
    accepted = moved.trace["moves"]
    assert len(accepted) > 0
    assert np.all(accepted > alone.n_iter)
    assert np.all(moved.trace["elbo"][accepted - 1] > alone.elbo)
    assert np.array_equal(moved.trace["elbo"][: alone.n_iter], alone.trace["elbo"])
    assert seen[-1] == (moved.n_iter, moved.elbo)


def test_moves_change_nothing_at_the_best_optimum():
    X = draws(6, 600, [[-4.0], [4.0]])
    model = model_of("full", 2, 1)
    alone, moved = model.fit(X), model.fit(X, moves=True)
    assert moved.elbo == alone.elbo
    assert moved.trace["moves"].size == 0
    assert moved.n_iter > alone.n_iter
    assert np.array_equal(moved.mean, alone.mean)


def test_sticks_are_put_in_order_of_size():
    X = np.concatenate([draws(7, 500, [[-5.0]]), draws(8, 100, [[5.0]])])
    model = model_of("full", 2, 1, "stick_breaking", weight_concentration_prior=0.2)
    wrong = model.fit(X, initial_means=[[5.0], [-5.0]])
    right = model.fit(X, initial_means=[[5.0], [-5.0]], moves=True)
    assert wrong.counts[0] < wrong.counts[1]
    assert right.counts[0] > right.counts[1]
    assert right.elbo > wrong.elbo
    other = model.fit(X, initial_means=[[-5.0], [5.0]])
    assert right.elbo == pytest.approx(other.elbo, rel=1e-12)


def test_callback_counts_the_passes_of_moves_and_can_stop_them():
    X, seen = draws(9, 300, THREE), []
    cavity.GaussianMixture(5).fit(X, init="principal", moves=True, callback=lambda *each: seen.append(each))
    passes, elbos = map(np.array, zip(*seen, strict=True))
    assert np.all(np.diff(passes) >= 0)
    assert np.all(np.diff(elbos) >= -1e-9)
