"""What states say about many updates: settings that changed, updates that did not converge, rows that surprise."""

import json
import warnings
from dataclasses import replace
from types import SimpleNamespace

import mpmath as mp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.examples import examples
from support.saved_files import load_changed
from support.streaming_gps import assert_same_bits, problem
from support.tolerances import AT_REST, OPTIMUM

import cavity
from cavity import StreamingGP, likelihoods
from cavity.base import serialization
from cavity.base.records import Record, check_settings
from cavity.covariances import RBF
from cavity.models.streaming_gp.predictive_checks import MIN_CHECKED_ROWS, PredictiveCheck
from cavity.models.streaming_gp.record import STATE_SETTINGS
from cavity.models.streaming_gp.snapshot import History, Unconverged
from cavity.runs.executors import Threads

seeds = st.integers(0, 10**6)
quiet = pytest.mark.filterwarnings("ignore::cavity.SettingsWarning", "ignore:the search:cavity.ConvergenceWarning")


def wave(n, seed=0, noise=0.2, frequency=3.0):
    """Rows of a sine with noise."""
    rng = np.random.default_rng(seed)
    X = rng.uniform(0, 10, (n, 1))
    return X, np.sin(frequency * X[:, 0]) + noise * rng.normal(size=n)


def stream(state, X, y, by):
    """Take in rows in batches."""
    for start in range(0, len(y), by):
        state.update(X[start : start + by], y[start : start + by])


def again(state, X, y, **more):
    """One fit of all rows at the settings and inducing points that a state has."""
    now = state.model
    model = StreamingGP(
        now.covariance, now.likelihood, now.mean, inducing=state.inducing, jitter=now.jitter, alpha=now.alpha
    )
    return model.fit(X, y, learn=False, **more)


# ------------------------------------------------------------------------------------------ settings that changed


@quiet
def test_a_state_under_changed_settings_says_what_it_may_have_lost():
    X, y = wave(600)
    Z = np.linspace(0, 10, 30)[:, None]
    state = StreamingGP(RBF(1.0, [3.0]), likelihoods.Gaussian(0.1), inducing=Z).fit(X[:300], y[:300], learn=False)
    assert state.information_lost_bound == state.information_lost == 0.0
    state.update(X[300:], y[300:], learn=True)
    below = again(state, X, y).log_bound - state.log_bound
    assert below > 200.0
    assert state.information_lost == 0.0
    assert below <= state.information_lost_bound < below + 600
    assert f"0 nats by changes, {0.5 * state._now.information.gap / 600:.2g} a row" in repr(state)
    assert f"; with changed settings {state.information_lost_bound:.3g} at most" in repr(state)


@quiet
@examples(15)
@given(seeds, st.sampled_from([0.0, 0.5, 1.0]), st.booleans(), st.booleans())
def test_no_fit_at_the_settings_of_now_has_a_larger_bound(seed, alpha, own_noise, merged):
    p = problem(seed, n=30)
    noise = p.rng.uniform(0.05, 1.0, 30) if own_noise else None
    weights, factor = p.rng.uniform(0.5, 2.0, 30), p.rng.uniform(0.5, 1.0)

    def rows(part):
        more = {"sample_weight": weights[part]}
        if own_noise and part.start == 0:
            more["noise_variance"] = noise[part]
        return (p.X[part], p.y[part]), more

    first, second, third = (rows(slice(a, a + 10)) for a in (0, 10, 20))
    state = p.model(alpha=alpha).fit(*first[0], **first[1], learn=False)
    state.update(*second[0], **second[1], learn=True).forget(factor)
    weights[:20] *= factor
    if merged:
        state.merge(state.model.fit(*third[0], **third[1], learn=False))
    else:
        state.update(*third[0], **third[1])
    if own_noise:
        noise[10:] = state.model.likelihood.noise_variance
    best = again(state, p.X, p.y, sample_weight=weights, noise_variance=noise).log_bound
    assert best - state.log_bound <= state.information_lost_bound
    sigma = np.full(30, state.model.likelihood.noise_variance) if noise is None else noise
    with mp.workdps(40):
        ceiling = sum(-mp.mpf(w) * mp.log(2 * mp.pi * mp.mpf(s)) / 2 for w, s in zip(weights, sigma, strict=True))
    assert state.information_lost_bound == pytest.approx(float(ceiling) - state.log_bound, rel=AT_REST)


@quiet
def test_changes_that_are_exact_lose_nothing():
    """Noise and amplitude of all rows, and the noise alone from a batch: the state is that of one fit."""
    X, y = wave(300, noise=0.4)
    Z = np.linspace(0, 10, 25)[:, None]
    model = StreamingGP(RBF(1.0, [0.6]).fix("rbf.lengthscale"), likelihoods.Gaussian(0.5), inducing=Z)
    for learnt in (
        model.fit(X, y, learn=False).learn(),
        StreamingGP(model.covariance.fix(), likelihoods.Gaussian(0.5), inducing=Z)
        .fit(X[:150], y[:150], learn=False)
        .update(X[150:], y[150:], learn=True),
    ):
        assert learnt.model.likelihood.noise_variance != 0.5
        assert learnt.information_lost_bound == learnt.information_lost == 0.0
        assert again(learnt, X, y).log_bound == pytest.approx(learnt.log_bound, rel=AT_REST)
    assert model.fit(X, y, learn=False).update(X, y, learn=True).information_lost_bound > 0.0  # the amplitude changed


@quiet
def test_of_other_noise_nothing_is_known():
    X, y = wave(80)
    model = StreamingGP(RBF(), likelihoods.Probit(), inducing=np.linspace(0, 10, 9)[:, None])
    state = model.fit(X[:40], np.where(y[:40] > 0, 1, -1), learn=False)
    assert state.information_lost_bound == 0.0
    state.update(X[40:], np.where(y[40:] > 0, 1, -1), learn=True)
    assert state.information_lost_bound == np.inf
    assert state.forget(0.0).information_lost_bound == state.information_lost


# ------------------------------------------------------------------------------------------ files


@quiet
@pytest.mark.parametrize("own_noise", [False, True])
def test_files_keep_the_history_and_those_without_it_load(tmp_path, own_noise):
    X, y = wave(80)
    noise = np.full(40, 0.3) if own_noise else None
    state = StreamingGP(RBF(1.0, [3.0]), likelihoods.Gaussian(0.1)).fit(X[:40], y[:40], noise_variance=noise)
    state.update(X[40:], y[40:], learn=True)
    path = tmp_path / "state.npz"
    state.save(path)
    assert_same_bits(cavity.load(path), state)
    assert cavity.load(path).information_lost_bound == state.information_lost_bound

    def remove_history(settings, _):
        del settings["history"], settings["parts"]["n_updates"]

    old = load_changed(state, tmp_path, remove_history)
    assert (old.n_updates, old.converged) == (1, state.converged)
    # whether settings changed is not known, nor what noise the rows had
    assert old.information_lost_bound == (np.inf if own_noise else state.information_lost_bound)
    assert old.update(X, y).n_updates == 2


def test_a_history_that_is_not_finite_survives_json():
    history = History(True, 1.0, np.nan, Unconverged(2, 10, "max_iter reached", np.inf))
    record = Record(settings={"history": STATE_SETTINGS["history?"]})
    _, stored = serialization.serialize(record, SimpleNamespace(history=history))
    stored = json.loads(json.dumps(stored["history"], allow_nan=False))
    back = History.from_settings(check_settings(STATE_SETTINGS["history?"], stored))
    assert np.isnan(back.own_log_noise)
    assert (back.changed, back.own_weight, back.worst) == (True, 1.0, history.worst)


# ------------------------------------------------------------------------------------------ without convergence


def unconverged():
    """Classes, and a state of a first batch with one sweep of EP."""
    X, y = wave(120)
    labels = np.where(y > 0, 1, -1)
    model = StreamingGP(RBF(1.0, [0.5]), likelihoods.Probit(), inducing=np.linspace(0, 10, 21)[:, None])
    with pytest.warns(cavity.ConvergenceWarning, match="max_iter"):
        return X, labels, model.fit(X[:40], labels[:40], learn=False, max_iter=1)


def test_sites_that_did_not_converge_stay_inside(tmp_path):
    X, labels, state = unconverged()
    assert (state.converged, state.worst_update.update, state.worst_update.n_samples) == (False, 1, 40)
    assert state.worst_update.change == state.trace["change"][-1] > 1e-8
    first = state.worst_update
    for i in range(40, 44):  # a single row matches at once
        state.update(X[i : i + 1], labels[i : i + 1])
    assert (state.n_updates, state.status, state.converged, state.worst_update) == (5, "converged", False, first)
    assert "last update   EP, converged" in repr(state)
    assert "worst update  NOT CONVERGED: update 1, to row 40: max_iter reached, last change" in repr(state)
    state._options = replace(state._options, max_iter=200)
    state.update(X[44:80], labels[44:80])
    assert (state.status, state.converged, state.worst_update) == ("converged", False, first)
    state.save(tmp_path / "state.npz")
    assert cavity.load(tmp_path / "state.npz").worst_update == first
    assert not state.copy().forget(0.5).converged
    assert state.copy().forget(0.0).converged


def test_the_worst_of_several_is_kept_and_merges_bring_theirs():
    X, labels, state = unconverged()
    with pytest.warns(cavity.ConvergenceWarning):
        state.update(X[40:], labels[40:])
    changes = state.trace["change"][-1], unconverged()[2].trace["change"][-1]
    assert state.worst_update.change == max(changes)
    healthy = state.model.fit(X[:10], labels[:10], learn=False)
    assert healthy.converged
    healthy.merge(state)
    assert (healthy.n_updates, healthy.converged) == (2, False)
    assert healthy.worst_update == Unconverged(2, 130, "max_iter reached", max(changes))


@quiet
def test_a_search_without_rest_is_an_update_that_did_not_converge():
    X, y = wave(60)
    state = StreamingGP(RBF()).fit(X, y)
    state.update(X[:40] + 100.0, np.linspace(-1e3, 1e3, 40), learn=True)
    assert (state.worst_update.update, state.worst_update.n_samples, state.worst_update.change) == (2, 100, 0.0)
    state.update(X, y)
    assert state.status == "converged"
    assert not state.converged


# ------------------------------------------------------------------------------------------ rows that surprise


@given(seeds)
def test_the_distance_of_rows_is_that_from_what_was_predicted(seed):
    p = problem(seed, n=20)
    state = p.fit(p.X[:8], p.y[:8])
    watch = PredictiveCheck.of(state._now.information)
    mean, covariance = state.predict_covariance(p.X[8:])
    residual = p.variance - np.sum(state._now.basis.features(np.ascontiguousarray(p.X[8:]), Threads(1))[0] ** 2, axis=1)
    # the covariance of the noise and of what the inducing variables know
    k, Z = p.k, p.Z
    S = k(p.X[8:], Z) @ np.linalg.solve(k(Z, Z) + p.jitter * p.variance * np.eye(len(Z)), k(Z, p.X[8:]))
    S = covariance - (k(p.X[8:], p.X[8:]) - S) + p.noise * np.eye(12)
    truth = (p.y[8:] - mean) @ np.linalg.solve(S, p.y[8:] - mean)
    state.update(p.X[8:], p.y[8:])
    now = PredictiveCheck.of(state._now.information)
    assert now.distance - watch.distance == pytest.approx(truth, rel=OPTIMUM)
    assert now.n - watch.n == 12
    assert now.gap - watch.gap == pytest.approx(np.sum(residual) / p.noise, rel=OPTIMUM)


@pytest.mark.parametrize("by", [1, 7, 300])
def test_five_rows_are_too_few_to_learn_from_and_update_says_so(by):
    X, y = wave(305, seed=3, frequency=1.0)
    state = StreamingGP(RBF()).fit(X[:5], y[:5])
    with pytest.warns(cavity.SettingsWarning, match="times as far from what was predicted as the settings say") as text:
        stream(state, X[5:], y[5:], by)
    assert state.n_samples == 305
    assert len(text) == {1: 6, 7: 5, 300: 1}[by]
    assert {item.filename for item in text} == {__file__}


def test_warnings_as_errors_leave_the_rows_inside():
    X, y = wave(105, seed=3, frequency=1.0)
    state = StreamingGP(RBF()).fit(X[:5], y[:5])
    with pytest.raises(cavity.SettingsWarning):
        state.update(X[5:], y[5:])
    assert state.n_samples == 105
    state.update(X[5:6], y[5:6])  # the window began anew


@pytest.mark.long_cases("4")
@pytest.mark.parametrize("n_inducing", [4, 40])
def test_rows_of_the_settings_do_not_surprise(n_inducing):
    """Nor do they where there are far too few inducing points, whose residuals stay."""
    rng = np.random.default_rng(0)
    for _ in range(4):
        X = rng.uniform(-6, 6, (240, 1))
        K = np.exp(-0.5 * (X - X.T) ** 2) + 1e-10 * np.eye(240)
        y = np.linalg.cholesky(K) @ rng.normal(size=240) + 0.1 * rng.normal(size=240)
        state = StreamingGP(RBF(), likelihoods.Gaussian(0.01), n_inducing=n_inducing).fit(X[:30], y[:30], learn=False)
        stream(state, X[30:], y[30:], 30)


def test_rows_that_follow_exchanges_and_forgetting_are_judged_together():
    """Neither begins the count anew: batches of 20 with a factor of 0.9 in between are judged at the third."""
    X, y = wave(300, seed=1, frequency=1.0)
    state = StreamingGP(RBF(1.0, [1.0]), likelihoods.Gaussian(0.04), n_inducing=6).fit(X[:60], y[:60], learn=False)
    seen = []
    for start in range(60, 180, 20):
        with warnings.catch_warnings(record=True) as text:
            warnings.simplefilter("always")
            state.forget(0.9).update(X[start : start + 20], 30.0 * y[start : start + 20])
        seen.append(len(text))
    assert -(-MIN_CHECKED_ROWS // 20) == 3
    assert seen == [0, 0, 1, 0, 0, 1]


@pytest.mark.parametrize(
    ("likelihood", "alpha"),
    [(likelihoods.Probit(), None), (likelihoods.Poisson(), None), (likelihoods.Gaussian(0.01), 1.0)],
    ids=["Probit", "Poisson", "FITC"],
)
def test_batches_of_other_noise_surprise_where_nothing_known_would_be_better(likelihood, alpha):
    rng = np.random.default_rng(0)
    X = rng.uniform(0, 10, (300, 1))
    f = 2.0 * np.sin(X[:, 0])
    y = {"Probit": np.where(f + rng.normal(size=300) > 0, 1, -1), "Poisson": rng.poisson(np.exp(f))}
    y = y.get(type(likelihood).__name__, f + 0.1 * rng.normal(size=300))
    model = StreamingGP(RBF(4.0, [1.5]), likelihood, alpha=alpha, inducing=np.linspace(0, 10, 20)[:, None])
    state = model.fit(X[:100], y[:100], learn=False).update(X[100:200], y[100:200])
    with pytest.warns(cavity.SettingsWarning, match="the 100 new rows bring -.* if nothing were known of f"):
        state.update(X[200:] + np.pi, y[200:])
    assert state.n_samples == 300


def test_histories_of_two_sets_of_rows_add_up():
    one, two = History(own_weight=2.0, own_log_noise=-1.0), History(changed=True, own_weight=3.0, own_log_noise=0.5)
    both = one.plus(two, 1, 10)
    assert (both.changed, both.own_weight, both.own_log_noise) == (True, 5.0, -0.5)
