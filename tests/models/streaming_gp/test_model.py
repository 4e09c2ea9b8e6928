"""Streaming Gaussian processes: other likelihoods against EP by the book, hard streams, the same bits, bad input."""

import copy
import json
import pickle
import re
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from reference import streaming_gp as reference
from support import GOLDEN
from support.events import writing
from support.examples import examples
from support.gaussian_processes import factors
from support.streaming_gps import assert_same_bits, assert_state, bits, problem
from support.tolerances import AT_REST, EARLY, EXPANSION, LAST_BIT, OPTIMUM, ROOT_EPS, ROUNDING, SLOPES, SOLVES, SUMS

import cavity
from cavity import likelihoods
from cavity.covariances import RBF, Constant, Linear, Matern12, Matern52, Periodic, White

TABLE = GOLDEN / "banana.json"
NEW = np.linspace(-4, 4, 9)[:, None]
OTHERS = {
    "Probit": (likelihoods.Probit(), lambda f, rng: np.where(f + rng.normal(size=len(f)) > 0, 1, -1)),
    "Logit": (likelihoods.Logit(), lambda f, rng: np.where(f + rng.logistic(size=len(f)) > 0, 1, -1)),
    "Poisson": (likelihoods.Poisson(), lambda f, rng: rng.poisson(np.exp(f))),
    "StudentT": (likelihoods.StudentT(4.0, 0.3), lambda f, rng: f + 0.3 * rng.standard_t(4, size=len(f))),
}


def other(name, seed=0, n=12, **settings):
    """(problem, model, y) for a likelihood that is taken in by EP."""
    p = problem(seed, n=n, **settings)
    likelihood, draw = OTHERS[name]
    return p, p.model(likelihood=likelihood), draw(np.sin(2 * p.X[:, 0]), p.rng)


def stream(state, X, y, size, **options):
    """Take in rows in batches."""
    for start in range(0, len(y), size):
        part = slice(start, start + size)
        state.update(X[part], y[part], **options)
    return state


def assert_whole(state, variance, X=NEW):
    """Predictions are finite, variances between zero and the prior's."""
    mean, spread = state.predict(X)
    assert np.all(np.isfinite(mean))
    assert np.all(spread >= 0)
    assert np.all(spread <= variance * (1 + 1e-9))
    assert np.isfinite(state.log_bound)


# ------------------------------------------------------------------------------------------ other likelihoods


@pytest.mark.parametrize("alpha", [1.0, 0.5])
@pytest.mark.parametrize("name", OTHERS)
def test_batches_are_taken_in_by_ep_by_the_book(name, alpha):
    p, model, y = other(name)
    model = p.model(likelihood=model.likelihood, alpha=alpha)
    state = model.fit(p.X[:7], y[:7], learn=False, tol=1e-11)
    q, evidence, _ = reference.ep_batch(
        p.k, p.Z, None, p.X[:7], factors(model.likelihood, y[:7]), jitter=p.jitter, alpha=alpha
    )
    assert_state(state, q, evidence, 1e-8)
    state.update(p.X[7:], y[7:])
    q, more, _ = reference.ep_batch(
        p.k, p.Z, q, p.X[7:], factors(model.likelihood, y[7:]), jitter=p.jitter, alpha=alpha
    )
    assert state.last_increment == pytest.approx(more, abs=ROOT_EPS)
    assert_state(state, q, evidence + more, 1e-8)
    assert state.converged


@pytest.mark.parametrize("name", OTHERS)
def test_inducing_points_at_the_rows_give_the_dense_process(name):
    likelihood, draw = OTHERS[name]
    rng = np.random.default_rng(4)
    X = np.linspace(-3, 3, 14)[:, None]
    y, covariance = draw(np.sin(2 * X[:, 0]), rng), RBF(1.3, lengthscale=0.6)
    state = cavity.StreamingGP(covariance, likelihood, inducing=X, jitter=0.0).fit(X, y, learn=False, tol=1e-11)
    dense = cavity.GaussianProcess(covariance, likelihood).fit(X, y, learn=False, tol=1e-11)
    assert state.log_bound == pytest.approx(dense.log_evidence, abs=EARLY)
    for a, b in zip(state.predict(NEW), dense.predict(NEW), strict=True):
        np.testing.assert_allclose(a, b, rtol=0, atol=EARLY)
    if name in ("Probit", "Logit"):
        np.testing.assert_allclose(state.predict_proba(NEW), dense.predict_proba(NEW), atol=EARLY)
    else:
        np.testing.assert_allclose(state.expected(NEW), dense.expected(NEW), atol=OPTIMUM)
    np.testing.assert_allclose(state.log_density(X, y), dense.log_density(X, y), atol=OPTIMUM)


@pytest.mark.long
def test_banana_has_the_log_evidence_of_gpy():
    golden = json.loads(TABLE.read_text())
    table = np.loadtxt(
        Path(cavity.data.__file__).with_name("banana.csv"), delimiter=",", skiprows=1, max_rows=golden["rows"]
    )
    X, y = table[:, :2], table[:, 2]
    covariance = RBF(golden["variance"], lengthscale=golden["lengthscale"])
    model = cavity.StreamingGP(covariance, likelihoods.Probit(), inducing=X, jitter=1e-9)
    state = model.fit(X, y, learn=False)
    assert state.log_bound == pytest.approx(golden["log_evidence"], abs=SLOPES)
    mean, variance = state.predict(X[:20])
    np.testing.assert_allclose(mean, golden["mean"], atol=SLOPES)
    np.testing.assert_allclose(variance, golden["variances"], atol=SLOPES)
    sparse = cavity.StreamingGP(covariance, likelihoods.Probit(), n_inducing=60).fit(X, y, learn=False)
    assert sparse.log_bound == pytest.approx(golden["log_evidence"], abs=1.0)


@pytest.mark.parametrize("name", OTHERS)
def test_weights_are_copies_for_every_likelihood(name):
    p, model, y = other(name, seed=3, n=8)
    weights = np.array([1, 0, 2, 1, 3, 1, 1, 2])
    state = model.fit(p.X, y, sample_weight=weights, learn=False, tol=1e-11)
    copies = model.fit(np.repeat(p.X, weights, axis=0), np.repeat(y, weights), learn=False, tol=1e-11)
    assert_state(state, (copies.mean, copies.covariance), copies.log_bound, 1e-7)


def test_outliers_have_sites_of_negative_precision():
    rng = np.random.default_rng(0)
    X = np.sort(rng.uniform(-3, 3, (60, 1)), axis=0)
    y = np.sin(2 * X[:, 0]) + 0.05 * rng.standard_t(4, size=60)
    y[10::15] += 8.0
    likelihood, covariance = likelihoods.StudentT(3.0, 0.1), RBF(1.0, lengthscale=0.7)
    model = cavity.StreamingGP(covariance, likelihood, inducing=np.linspace(-3, 3, 25)[:, None])
    state = model.fit(X, y, learn=False)
    dense = cavity.GaussianProcess(covariance, likelihood).fit(X, y, learn=False)
    assert dense.sites.rho.min() < 0
    assert state.converged
    assert state.log_bound == pytest.approx(dense.log_evidence, abs=EXPANSION)
    np.testing.assert_allclose(state.predict(X)[0], dense.mean, atol=EXPANSION)
    shuffled = rng.permutation(60)
    batches = stream(model.fit(X[:0], y[:0], learn=False), X[shuffled], y[shuffled], 20)
    assert np.max(np.abs(batches.predict(X)[0] - np.sin(2 * X[:, 0]))) < 0.5
    # an outlier on its own, far from what is known
    state.update([[0.0]], [50.0])
    assert_whole(state, 1.0)


@pytest.mark.parametrize("learn", [False, True])
@pytest.mark.parametrize(
    "likelihood", [likelihoods.StudentT(4.0, 1e-9), likelihoods.Laplace(1e-9)], ids=["t", "Laplace"]
)
def test_likelihoods_much_narrower_than_what_inducing_points_leave_open(likelihood, learn):
    # sites on f are some 1e17 times as precise as those on f given the inducing points
    X, Z = np.linspace(0, 10, 8)[:, None], [[0.1], [5.0]]
    y = np.sin(X[:, 0])
    state = cavity.StreamingGP(RBF(lengthscale=0.5), likelihood, inducing=Z).fit(X, y, learn=learn)
    assert state.converged
    assert_whole(state, state.model.covariance.variance)
    if not learn:  # what a likelihood without noise says
        same = cavity.StreamingGP(RBF(lengthscale=0.5), likelihoods.Gaussian(1e-14), inducing=Z, alpha=1.0)
        assert state.log_bound == pytest.approx(same.fit(X, y, learn=False).log_bound, abs=OPTIMUM)


def test_offsets_of_other_likelihoods():
    p, _, y = other("Poisson", seed=2)
    offset = p.rng.normal(size=12)
    flat = p.model(likelihood=likelihoods.Poisson(), mean=0.7).fit(p.X, y, offset=offset - 0.7, learn=False, tol=1e-11)
    same = p.model(likelihood=likelihoods.Poisson()).fit(p.X, y, offset=offset, learn=False, tol=1e-11)
    assert_state(flat, (same.mean, same.covariance), same.log_bound, 1e-8)


# ------------------------------------------------------------------------------------------ hard streams


@pytest.mark.long_cases("False-1.0")
@pytest.mark.sample(3)
@pytest.mark.parametrize("alpha", [0.0, 1.0])
@pytest.mark.parametrize("given_points", [True, False])
def test_small_noise_and_long_lengthscale_for_two_hundred_batches(given_points, alpha):
    rng = np.random.default_rng(0)
    X = rng.uniform(0, 10, (4000, 1))
    y = np.sin(X[:, 0]) + 1e-3 * rng.normal(size=4000)
    covariance, noise = RBF(1.0, lengthscale=2.0), likelihoods.Gaussian(1e-6)
    Z = np.linspace(0, 10, 25)[:, None] if given_points else None
    model = cavity.StreamingGP(covariance, noise, n_inducing=40, inducing=Z, alpha=alpha)
    state = stream(model.fit(X[:20], y[:20], learn=False), X[20:], y[20:], 20)
    assert state.n_samples == 4000
    new = np.linspace(0, 10, 50)[:, None]
    mean, variance = state.predict(new)
    assert np.max(np.abs(mean - np.sin(new[:, 0]))) < 1e-3
    assert np.all(variance >= 0)
    batch = cavity.StreamingGP(covariance, noise, inducing=state.inducing, alpha=alpha).fit(X, y, learn=False)
    sd = np.sqrt(batch.predict(new)[1])
    # points that came late know of earlier rows what the points before them knew
    tolerance = 1e-6 if given_points else 0.2
    assert np.max(np.abs(mean - batch.predict(new)[0]) / sd) < tolerance
    assert np.max(np.abs(variance / sd**2 - 1)) < tolerance


def test_duplicates_of_inducing_points():
    p = problem(1)
    Z = np.vstack([p.Z, p.Z[2:4], p.Z[:1] * -0.0 if p.Z[0, 0] == 0 else p.Z[:1]])
    with pytest.warns(cavity.NumericalWarning, match="3 row.s. that are there already"):
        state = p.fit(inducing=Z)
    assert_same_bits(state, p.fit())
    with pytest.warns(cavity.NumericalWarning, match="1 row"):
        zeros = p.model(inducing=[[0.0], [-0.0]])
    assert len(zeros.inducing) == 1
    # rows seen before are never chosen twice
    X = np.repeat(p.X[:4], 10, axis=0)
    state = p.model(inducing=None, tolerance=0.0).fit(X, np.repeat(p.y[:4], 10), learn=False)
    state.update(X, np.repeat(p.y[:4], 10))
    assert state.n_inducing <= 4
    assert len(np.unique(state.inducing, axis=0)) == state.n_inducing


@pytest.mark.parametrize("alpha", [0.0, 0.5, 1.0])
def test_far_away_batches(alpha):
    p = problem(2)
    near = p.fit(alpha=alpha)
    state = near.copy().update(p.X + 1e8 * p.lengthscale, p.y)
    for a, b in zip(state.predict(NEW), near.predict(NEW), strict=True):
        np.testing.assert_allclose(a, b, rtol=0, atol=ROUNDING)
    s = p.variance + p.noise
    far = {
        0.0: np.sum(-0.5 * np.log(2 * np.pi * p.noise) - 0.5 * p.y**2 / p.noise - 0.5 * p.variance / p.noise),
        1.0: np.sum(-0.5 * np.log(2 * np.pi * s) - 0.5 * p.y**2 / s),
    }
    if alpha in far:
        assert state.last_increment == pytest.approx(far[alpha], rel=SOLVES)
    free = p.model(inducing=None, n_inducing=30, tolerance=1e-3, alpha=alpha).fit(p.X, p.y, learn=False)
    settings = free.predict(NEW)
    free.update(p.X + 1e8 * p.lengthscale, p.y)
    for a, b in zip(free.predict(NEW), settings, strict=True):
        np.testing.assert_allclose(a, b, rtol=0, atol=OPTIMUM)


def test_far_away_rows_of_other_likelihoods():
    p, model, y = other("Probit")
    near = model.fit(p.X, y, learn=False)
    settings = near.predict(NEW)
    near.update(p.X + 1e8 * p.lengthscale, y)
    assert near.last_increment == pytest.approx(12 * np.log(0.5), rel=SOLVES)
    for a, b in zip(near.predict(NEW), settings, strict=True):
        np.testing.assert_allclose(a, b, rtol=0, atol=ROUNDING)


@pytest.mark.parametrize("alpha", [0.0, 0.5, 1.0])
def test_rows_that_need_no_inducing_point(alpha):
    p = problem(4, n=6)
    noise = np.linspace(1.0, 2.0, 6)
    model = p.model(inducing=None, tolerance=1e6, alpha=alpha)
    state = model.fit(p.X, p.y, noise_variance=noise, learn=False).update(p.X[:1], p.y[:1])
    assert state.n_inducing == 0
    variance, constant = reference.effective(np.full(6, p.variance), noise, np.ones(6), alpha)
    first = np.sum(constant - 0.5 * np.log(2 * np.pi * variance) - 0.5 * p.y**2 / variance)
    assert state.log_bound - state.last_increment == pytest.approx(first, rel=SOLVES)
    np.testing.assert_array_equal(state.predict(NEW)[1], p.variance)
    probit = p.model(inducing=None, tolerance=1e6, likelihood=likelihoods.Probit())
    assert probit.fit(p.X, np.sign(p.y), learn=False).log_bound == pytest.approx(6 * np.log(0.5), rel=SOLVES)


def test_constant_targets():
    p = problem(3)
    for value in (0.0, 1.0, -1e6):
        state = stream(p.model(mean=value).fit(p.X[:0], p.y[:0], learn=False), p.X, np.full(30, value), 7)
        np.testing.assert_allclose(state.predict(NEW)[0], value, rtol=SOLVES)
        zero = p.model().fit(p.X, np.zeros(30), learn=False)
        assert state.log_bound == pytest.approx(zero.log_bound, abs=AT_REST)
    learnt = cavity.StreamingGP(RBF(), likelihoods.Gaussian(0.1)).fit(p.X, np.zeros(30), learn=False)
    assert_whole(learnt, 1.0)


def test_a_distribution_shift_is_followed():
    rng = np.random.default_rng(1)
    model = cavity.StreamingGP(RBF(1.0, lengthscale=0.5), likelihoods.Gaussian(0.01), n_inducing=60)
    state = None
    for centre in (0.0, 5.0, 10.0, 0.0):
        X = rng.normal(centre, 1.0, (150, 1))
        y = np.sin(3 * X[:, 0]) + 0.1 * rng.normal(size=150)
        state = model.fit(X, y, learn=False) if state is None else state.update(X, y)
    new = np.concatenate([np.linspace(c - 1, c + 1, 20) for c in (0.0, 5.0, 10.0)])[:, None]
    mean, variance = state.predict(new)
    assert np.sqrt(np.mean((mean - np.sin(3 * new[:, 0])) ** 2)) < 0.06
    assert np.mean((mean - np.sin(3 * new[:, 0])) ** 2 / variance) < 3
    assert state.n_inducing <= 60


@pytest.mark.filterwarnings("ignore:the last:cavity.SettingsWarning")  # settings that are not those of the rows
@pytest.mark.parametrize(
    "covariance",
    [
        RBF(2.0, lengthscale=[0.7, 1.5]) + Linear(0.5),
        Constant(3.0) + Matern12(1.0, lengthscale=2.0),
        Matern52(1.0, lengthscale=1.0) * RBF(1.0, lengthscale=3.0),
        Periodic(1.0, lengthscale=1.0, period=2.0),
        Linear(1.0),
    ],
    ids=["rbf+linear", "constant+matern12", "product", "periodic", "linear"],
)
def test_every_covariance_streams_to_the_batch_answer(covariance):
    rng = np.random.default_rng(0)
    X = rng.normal(size=(80, 2))
    y = X[:, 0] - X[:, 1] + np.sin(X[:, 0]) + 0.2 * rng.normal(size=80)
    model = cavity.StreamingGP(covariance, likelihoods.Gaussian(0.1), n_inducing=90, tolerance=0.0, jitter=1e-7)
    state = stream(model.fit(X[:10], y[:10], learn=False), X[10:], y[10:], 10)
    dense = cavity.GaussianProcess(covariance, likelihoods.Gaussian(0.1)).fit(X, y, learn=False)
    new = rng.normal(size=(20, 2))
    for a, b in zip(state.predict(new), dense.predict(new), strict=True):
        np.testing.assert_allclose(a, b, rtol=0, atol=EXPANSION)
    assert abs(state.log_bound - dense.log_evidence) < 0.1


# ------------------------------------------------------------------------------------------ the same bits


def chosen_model(likelihood=None):
    """A model that chooses its inducing points."""
    return cavity.StreamingGP(RBF(lengthscale=0.7), likelihood or likelihoods.Gaussian(0.1), n_inducing=25)


def rows(n=120, labels=False, seed=0):
    """Rows of a wave."""
    rng = np.random.default_rng(seed)
    X = rng.uniform(-3, 3, (n, 1))
    y = np.sin(2 * X[:, 0]) + 0.3 * rng.normal(size=n)
    return X, (np.where(y > 0, 1, -1) if labels else y)


@pytest.mark.parametrize("likelihood", [None, likelihoods.Probit()], ids=["Gaussian", "Probit"])
def test_copies_and_files_continue_in_the_same_bits(likelihood, tmp_path):
    X, y = rows(labels=likelihood is not None)
    state = chosen_model(likelihood).fit(X[:40], y[:40], learn=False)
    state.update(X[40:41], y[40:41])
    path = tmp_path / "state.npz"
    state.save(path)
    copy, loaded = state.copy(), cavity.load(path)
    assert_same_bits(loaded, state)
    assert_same_bits(copy, state)
    before = bits(state)
    for item in (copy, loaded):
        item.update(X[41:42], y[41:42]).update(X[42:], y[42:])
    assert bits(state) == before
    state.update(X[41:42], y[41:42]).update(X[42:], y[42:])
    for item in (copy, loaded):
        assert_same_bits(item, state)
        for a, b in zip(item.predict(NEW), state.predict(NEW), strict=True):
            np.testing.assert_array_equal(a, b)


@pytest.mark.parametrize("learn", [False, pytest.param(True, marks=pytest.mark.long)])
def test_streams_that_give_points_up_continue_in_the_same_bits(learn, tmp_path):
    rng = np.random.default_rng(5)
    X = rng.normal(size=(180, 1)) + np.repeat(np.arange(6.0), 30)[:, None]
    y = np.sin(2 * X[:, 0]) + 0.2 * rng.normal(size=180)
    model = cavity.StreamingGP(RBF(lengthscale=0.7), likelihoods.Gaussian(0.05), n_inducing=8)
    state = stream(model.fit(X[:30], y[:30], learn=learn), X[30:90], y[30:90], 30, learn=learn)
    state.save(tmp_path / "state.npz")
    before = bits(state)
    others = [state.copy(), cavity.load(tmp_path / "state.npz"), state.copy()]
    stream(state, X[90:], y[90:], 15, learn=learn)
    assert bits(others[0]) == before
    assert state.information_lost > others[0].information_lost
    for n, item in enumerate(others):
        assert_same_bits(stream(item, X[90:], y[90:], 15, learn=learn, n_threads=1 + n), state)
        np.testing.assert_array_equal(item.predict(X)[1], state.predict(X)[1])


@pytest.mark.parametrize("likelihood", [None, likelihoods.Logit()], ids=["Gaussian", "Logit"])
def test_threads_do_not_change_a_bit(likelihood):
    X, y = rows(3000 if likelihood is None else 300, labels=likelihood is not None)
    states = []
    for n in (1, 2, 5):
        state = chosen_model(likelihood).fit(X[:200], y[:200], learn=False, n_threads=n)
        states.append(state.update(X[200:], y[200:], n_threads=n))
    for state in states[1:]:
        assert_same_bits(state, states[0])
        np.testing.assert_array_equal(state.predict(X, n_threads=3)[1], states[0].predict(X)[1])


def test_data_of_any_kind_give_the_same_bits(tmp_path):
    X, y = rows()
    X = np.hstack([X, X**2])
    model = cavity.StreamingGP(RBF(), likelihoods.Gaussian(0.1), n_inducing=20)
    truth = model.fit(X[:50], y[:50], learn=False).update(X[50:], y[50:])
    before = X.copy(), y.copy()

    def fit(convert):
        return model.fit(convert(X[:50]), convert(y[:50]), learn=False).update(convert(X[50:]), convert(y[50:]))

    def freeze(a):
        return np.broadcast_to(a, a.shape)

    for convert in (freeze, np.asfortranarray, lambda a: np.repeat(a, 2, axis=0)[::2], np.ndarray.tolist):
        assert_same_bits(fit(convert), truth)
    np.testing.assert_array_equal(before[0], X)
    np.testing.assert_array_equal(before[1], y)
    single = X.astype(np.float32), y.astype(np.float32)
    double = [a.astype(np.float64) for a in single]
    assert_same_bits(model.fit(*single, learn=False), model.fit(*double, learn=False))
    paths = []
    for i, part in enumerate((slice(0, 60), slice(60, None))):
        paths.append(tmp_path / f"x{i}.npy")
        np.save(paths[-1], X[part])
    np.save(tmp_path / "x.npy", X)
    np.save(tmp_path / "y.npy", y)
    full = model.fit(X, y, learn=False)
    assert_same_bits(model.fit(tmp_path / "x.npy", tmp_path / "y.npy", learn=False), full)
    assert_same_bits(model.fit(paths, y, learn=False), full)
    assert_same_bits(model.fit(np.load(tmp_path / "x.npy", mmap_mode="r"), y, learn=False), full)


def test_empty_batches_change_nothing():
    X, y = rows()
    state = chosen_model().fit(X, y, learn=False)
    before = bits(state)
    assert state.update(X[:0], y[:0]) is state
    assert state.update(np.zeros((0, 1)), []) is state
    assert state.update([], []) is state
    assert bits(state) == before


def test_before_any_data_the_prior_is_predicted():
    state = cavity.StreamingGP(RBF(2.0), mean=[1.0, 3.0]).fit(np.zeros((0, 1)), [], learn=False)
    mean, variance = state.predict(NEW)
    np.testing.assert_array_equal(mean, 1.0 + 3.0 * NEW[:, 0])
    np.testing.assert_array_equal(variance, 2.0)
    assert (state.log_bound, state.n_samples, state.n_inducing) == (0.0, 0, 0)
    assert (state.inducing.shape, state.mean.shape, state.covariance.shape) == ((0, 1), (0,), (0, 0))
    np.testing.assert_allclose(state.predict_covariance(NEW)[1], RBF(2.0).gram(NEW), atol=ROUNDING)
    assert state.predict(NEW, noise=True)[1][0] == 2.0 + cavity.likelihoods.Gaussian().noise_variance
    probit = cavity.StreamingGP(RBF(), likelihoods.Probit()).fit(np.zeros((0, 1)), [], learn=False)
    np.testing.assert_allclose(probit.predict_proba(NEW), 0.5, rtol=LAST_BIT)


def test_samples_have_the_predicted_moments():
    X, y = rows(30)
    state = cavity.StreamingGP(RBF(), likelihoods.Gaussian(0.1), mean=2.0, n_inducing=5).fit(X, y, learn=False)
    mean, covariance = state.predict_covariance(NEW)
    draws = state.sample(NEW, 20_000, 0)
    sd = np.sqrt(np.diag(covariance))
    assert np.max(np.abs(draws.mean(axis=0) - mean) / sd) < 5 / np.sqrt(20_000)
    assert np.max(np.abs(np.cov(draws.T) - covariance) / np.outer(sd, sd)) < 8 / np.sqrt(20_000)
    np.testing.assert_allclose(state.predict(NEW)[1], np.diag(covariance), atol=SUMS)
    np.testing.assert_array_equal(state.sample(NEW, 3, 7), state.sample(NEW, 3, 7))


@pytest.mark.parametrize("likelihood", [likelihoods.StudentT(4.0, 0.1), likelihoods.Laplace(0.1)])
def test_rows_of_heavy_tails_lose_no_more_than_the_tolerance(likelihood):
    X, y = rows()
    state = cavity.StreamingGP(RBF(2.0, 0.7), likelihood, tolerance=1e-3).fit(X, y, learn=False)
    K = [2.0 * np.exp(-0.5 * ((a - b.T) / 0.7) ** 2) for a, b in ((X, state.inducing), (state.inducing,) * 2)]
    residual = 2.0 - np.sum(K[0] * np.linalg.solve(K[1] + 2e-8 * np.eye(len(K[1])), K[0].T).T, axis=1)
    assert 0.0 < residual.mean() / (2 * 0.1**2) < 1e-3


@pytest.mark.long_cases("1")
@pytest.mark.parametrize("size", [1, 10])
def test_points_are_exchanged_while_old_rows_are_forgotten(size):
    """A column of time: with 15 points for a range that takes 120 the last rows are known, not the first."""
    X = np.arange(800)[:, None] * 0.1
    y = np.sin(X[:, 0]) + 0.1 * np.random.default_rng(0).normal(size=800)
    model = cavity.StreamingGP(RBF(), likelihoods.Gaussian(0.01), n_inducing=15)
    state = model.fit(X[:50], y[:50], learn=False)
    for k in range(50, 800, size):
        state.forget(0.95**size).update(X[k : k + size], y[k : k + size])
    assert np.all(np.abs(state.predict(X[-30:])[0] - np.sin(X[-30:, 0])) < 0.2)
    assert np.all(state.inducing > 60.0)


@pytest.mark.parametrize("n", [1, 10])
@pytest.mark.parametrize("likelihood", [None, likelihoods.Probit()])
def test_a_state_remembers_that_there_were_offsets(likelihood, n, tmp_path):
    X, y = rows(labels=likelihood is not None)
    plain = chosen_model(likelihood).fit(X, y, learn=False)
    state = plain.copy().update(X[:n], y[:n], offset=np.ones(n)).update(X[:5], y[:5])
    assert not plain.has_offset
    assert state.has_offset
    state.save(tmp_path / "state.npz")
    for other in (cavity.load(tmp_path / "state.npz"), state.copy().forget(0.5), plain.copy().merge(state)):
        assert other.has_offset


@pytest.mark.filterwarnings("ignore:the last:cavity.SettingsWarning")  # settings that are not those of the rows
def test_inducing_points_keep_their_ids():
    X, y = rows()
    state = chosen_model().fit(X[:30], y[:30], learn=False)
    settings = dict(zip(state.inducing_ids.tolist(), state.inducing.tolist(), strict=True))
    assert len(settings) == state.n_inducing
    state.update(X[30:] + 2, y[30:])
    after = dict(zip(state.inducing_ids.tolist(), state.inducing.tolist(), strict=True))
    assert len(after) == state.n_inducing
    assert all(after[i] == settings[i] for i in set(settings) & set(after))


# ------------------------------------------------------------------------------------------ bad input

BAD = {
    "X of another width": (dict(X=np.zeros((3, 2))), ValueError, "X must have 1 column"),
    "X not a matrix": (dict(X=np.zeros(3)), ValueError, "X must have 2 dimension"),
    "nan in X": (dict(X=[[0.0], [np.nan], [1.0]]), ValueError, "X must be finite, got X[1, 0] = nan"),
    "infinity in X": (dict(X=[[0.0], [1.0], [np.inf]]), ValueError, "X must be finite, got X[2, 0] = inf"),
    "nan in y": (dict(y=[0.0, 1.0, np.nan]), ValueError, "y must be finite, got y[2] = nan"),
    "fewer y": (dict(y=[0.0, 1.0]), ValueError, "y must have one entry per row of X, that is 3, got"),
    "text": (dict(y=np.array(["a", "b", "c"])), TypeError, "y must hold real numbers"),
    "masked": (dict(y=np.ma.masked_array([0.0, 1.0, 2.0], [0, 1, 0])), TypeError, "y must not be a masked array"),
    "no noise": (dict(noise_variance=[0.1, 0.0, 0.1]), ValueError, "noise_variance must be positive, got 0.0 in row 1"),
    "negative noise": (dict(noise_variance=[0.1, -1.0, 0.1]), ValueError, "must be positive, got -1.0 in row 1"),
    "noise of one row": (dict(noise_variance=[0.1]), ValueError, "noise_variance must have one entry per row of X"),
    "nan offset": (dict(offset=[0.0, np.nan, 0.0]), ValueError, "offset must be finite, got offset[1] = nan"),
    "negative weight": (
        dict(sample_weight=[1.0, -1.0, 1.0]),
        ValueError,
        "sample_weight must not be negative, got -1.0 in",
    ),
    "threads": (dict(n_threads=0), ValueError, "n_threads must be at least 1, or -1 for all cores, got 0"),
    "learn": (dict(learn="everything"), ValueError, "learn must be one of 'covariance', 'noise_variance', got 'every"),
    "y too large": (dict(y=[0.0, 1e200, 0.0]), OverflowError, "leave the range of float64"),
    "noise too small": (dict(noise_variance=[0.1, 1e-320, 0.1]), OverflowError, "leave the range of float64"),
}


def test_copies_of_any_kind_share_nothing():
    X, y = np.linspace(0, 5, 40)[:, None], np.sin(np.linspace(0, 5, 40))
    state = cavity.StreamingGP(RBF(), likelihoods.Gaussian(0.1)).fit(X, y, learn=False).update(X[:1], y[:1])
    before = state.log_bound, state.predict(X)
    for copied in (copy.copy, copy.deepcopy, lambda state: pickle.loads(pickle.dumps(state))):
        other = copied(state).update(X[:1], y[:1])
        assert other.log_bound == pytest.approx(before[0] + other.last_increment, rel=SOLVES)
        assert state.log_bound == before[0]
        np.testing.assert_array_equal(state.predict(X), before[1])
    assert not state.inducing_ids.flags.writeable
    learnt = cavity.StreamingGP(RBF(), likelihoods.Probit()).fit(X, (y > 0).astype(float))
    for trace in (state.trace, learnt.trace):
        assert not any(values.flags.writeable for values in trace.values())


def test_all_is_forgotten_of_noise_that_rows_had():
    X, y = np.linspace(0, 5, 40)[:, None], np.sin(np.linspace(0, 5, 40))
    model = cavity.StreamingGP(RBF(), likelihoods.Gaussian(0.1))
    state = model.fit(X, y, noise_variance=np.full(40, 0.2), learn=False)
    with pytest.raises(ValueError, match="one noise variance"):
        state.copy().forget(0.5).learn()
    assert state.forget(0).update(X, y).learn().model.likelihood.noise_variance < 0.1


def test_joint_predictions_have_the_variances_of_single_ones():
    X = np.linspace(0, 5, 40)[:, None]
    state = cavity.StreamingGP(RBF(), likelihoods.Gaussian(1e-20)).fit(X, np.sin(X[:, 0]), learn=False)
    for rows in (X, X + 0.05):
        mean, covariance = state.predict_covariance(rows)
        np.testing.assert_allclose(np.diagonal(covariance), state.predict(rows)[1], rtol=AT_REST, atol=1e-25)
        np.testing.assert_allclose(mean, state.predict(rows)[0], rtol=0, atol=ROUNDING)


def bad_batches():
    """(X, y, options, error, message) for every case, and for its bad row alone, which is taken in another way."""
    for case, (changes, error, message) in BAD.items():
        arguments = dict(X=[[0.1], [0.2], [0.3]], y=[0.0, 1.0, 0.5]) | changes
        yield pytest.param(arguments, error, message, id=case)
        long = {key: value for key, value in arguments.items() if np.ndim(value) and len(value) == 3}
        if long.keys() & changes.keys() and np.ndim(arguments["X"]) == 2:
            row = {"infinity in X": 2, "nan in y": 2}.get(case, 1)
            single = arguments | {key: value[row : row + 1] for key, value in long.items()}
            message = re.sub(r"(\[|in row )\d", r"\g<1>0", message).replace("that is 3", "that is 1")
            yield pytest.param(single, error, message, id=f"{case}, one row")


@pytest.mark.parametrize(("arguments", "error", "message"), list(bad_batches()))
def test_bad_rows_leave_the_state_as_it_was(arguments, error, message):
    X, y = rows()
    state = chosen_model().fit(X, y, learn=False)
    before = bits(state)
    with pytest.raises(error, match=re.escape(message)):
        state.update(**arguments)
    assert bits(state) == before
    assert state.update(X, y).n_samples == 240


@pytest.mark.parametrize("n", [1, 3])
def test_rows_of_weight_zero_change_nothing(n):
    X, y = rows()
    state = chosen_model().fit(X, y, learn=False)
    before = bits(state)
    assert state.update(X[:n], y[:n] + 5, sample_weight=np.zeros(n)) is state
    assert bits(state) == before
    nothing = chosen_model().fit(X[:n], y[:n], sample_weight=np.zeros(n))
    assert nothing.n_samples == 0
    assert nothing.log_bound == 0.0


def test_one_row_without_brackets_is_told_how_to_be_one():
    state = cavity.StreamingGP(RBF()).fit([[0.0, 1.0], [1.0, 0.0]], [0.0, 1.0], learn=False)
    with pytest.raises(ValueError, match=re.escape("X[None, :] makes it one row")):
        state.update([0.5, 0.5], [0.5])


def test_a_batch_that_fails_late_leaves_the_state_as_it_was():
    X, y = rows(3000)
    state = chosen_model().fit(X[:100], y[:100], learn=False)
    before = bits(state)
    y = y.copy()
    y[-1] = 1e200
    with pytest.raises(OverflowError):
        state.update(X, y)
    assert bits(state) == before
    with pytest.raises(OverflowError):
        state.update(X[-1:], y[-1:])
    assert bits(state) == before


@pytest.mark.parametrize("alpha", [0.0, 0.5, 1.0])
@pytest.mark.parametrize("n", [1, 3])
def test_variances_beyond_the_range_of_numbers_in_units_of_the_noise(n, alpha):
    # far from the inducing point the residual is the prior variance: 1e400 times the noise
    model = cavity.StreamingGP(RBF(1e200), likelihoods.Gaussian(1e-200), inducing=[[0.0]], alpha=alpha)
    state = model.fit(np.zeros((0, 1)), [], learn=False)
    before = bits(state)
    with pytest.raises(OverflowError):
        state.update(np.full((n, 1), 50.0), np.zeros(n))
    assert bits(state) == before


def test_files_with_bad_rows_name_them(tmp_path):
    X, y = rows(3000)
    X[2222, 0] = np.nan
    np.save(tmp_path / "x.npy", X)
    state = chosen_model().fit(X[:10], y[:10], learn=False)
    before = bits(state)
    with pytest.raises(ValueError, match=r"X must be finite, got nan in .*2222"):
        state.update(tmp_path / "x.npy", y)
    assert bits(state) == before


@pytest.mark.parametrize(
    ("settings", "error", "message"),
    [
        (dict(covariance=RBF() + White(0.1)), ValueError, "covariance must not have a White part"),
        (dict(covariance=RBF), TypeError, "covariance must be an instance of"),
        (dict(mean="constant"), ValueError, "mean must be a number, coefficients or a formula"),
        (dict(mean=np.nan), ValueError, "mean must be finite"),
        (dict(n_inducing=0), ValueError, "n_inducing must be at least 1, got 0"),
        (dict(n_inducing=2.5), TypeError, "n_inducing must be an integer"),
        (dict(tolerance=-1.0), ValueError, "tolerance must be in"),
        (dict(jitter=-1e-8), ValueError, "jitter must be in"),
        (dict(alpha=1.5), ValueError, "alpha must be in"),
        (dict(likelihood=likelihoods.Probit(), alpha=0.0), ValueError, "alpha must be at least 1e-6"),
        (dict(inducing=np.zeros((0, 1))), ValueError, "inducing must not be empty"),
        (dict(inducing=[[np.nan]]), ValueError, "inducing must be finite"),
        (dict(inducing=[0.0]), ValueError, "inducing must have 2 dimension"),
    ],
)
def test_bad_settings_are_named(settings, error, message):
    with pytest.raises(error, match=re.escape(message)):
        cavity.StreamingGP(**dict(covariance=RBF()) | settings)


def test_bad_labels_and_counts():
    state = cavity.StreamingGP(RBF(), likelihoods.Probit()).fit([[0.0]], [1], learn=False)
    before = bits(state)
    with pytest.raises(ValueError, match="y must"):
        state.update([[0.0], [1.0]], [1, 3])
    with pytest.raises(ValueError, match="noise_variance needs the likelihood Gaussian"):
        state.update([[0.0]], [1], noise_variance=[0.1])
    with pytest.raises(ValueError, match="noise=True needs observations that are numbers, Probit has classes"):
        state.predict([[0.0]], noise=True)
    assert bits(state) == before


def test_more_inducing_points_than_memory_holds():
    with pytest.raises(MemoryError, match="bytes"):
        cavity.StreamingGP(RBF(), n_inducing=10**7).fit([[0.0]], [0.0])


def test_merge_and_forget_refuse_what_does_not_fit():
    X, y = rows()
    state = chosen_model().fit(X, y, learn=False)
    before = bits(state)
    wide = chosen_model().fit(np.hstack([X, X]), y, learn=False)
    for other_state, error, message in (
        (3, TypeError, "other must be a StreamingGPState"),
        (wide, ValueError, "other must have 1 column"),
        (cavity.StreamingGP(RBF(2.0), likelihoods.Gaussian(0.1)).fit(X, y, learn=False), ValueError, "same covariance"),
        (cavity.StreamingGP(RBF(lengthscale=0.7)).fit(X, y, learn=False), ValueError, "same likelihood"),
    ):
        with pytest.raises(error, match=message):
            state.merge(other_state)
    with pytest.raises(ValueError, match="factor must be in"):
        state.forget(1.5)
    with pytest.raises(ValueError, match="X must have 1 column"):
        state.predict(np.zeros((2, 3)))
    with pytest.raises(ValueError, match="X must be finite"):
        state.predict([[np.nan]])
    assert bits(state) == before


# ------------------------------------------------------------------------------------------ extreme scales


@examples(60)
@given(
    st.integers(0, 1000),
    st.floats(-60, 60),
    st.floats(-60, 60),
    st.floats(-100, 100),
    st.floats(-60, 100),
    st.sampled_from([0.0, 0.5, 1.0]),
)
def test_no_nan_from_finite_input(seed, variance, noise, lengthscale, size, alpha):
    p = problem(seed, n=12, m=3)
    p.variance, p.noise, p.lengthscale = 10.0**variance, 10.0**noise, 10.0**lengthscale
    try:
        state = p.model(alpha=alpha, inducing=p.X[:1]).fit(p.X, p.y * 10.0**size, learn=False)
        state.update(p.X[:1], p.y[:1])
    except (OverflowError, cavity.NotPositiveDefiniteError):
        return
    mean, spread = state.predict(NEW)
    assert np.all(np.isfinite(mean))
    assert np.all(spread >= 0)
    assert np.all(spread <= p.variance * (1 + 1e-9))
    assert np.isfinite(state.log_bound)


def test_sweeps_and_searches_are_traced_and_can_be_stopped():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(60, 1))
    model, y, seen = cavity.StreamingGP(RBF(), likelihoods.Probit()), X[:, 0] > 0, []
    state = model.fit(X, y, learn=False, callback=writing(seen, "change"))
    assert [change for _, change in seen] == state.trace["change"].tolist()
    assert len(seen) == state.n_iter > 1
    assert state.trace["learning"].size == 0
    with pytest.warns(cavity.ConvergenceWarning, match="stopped by callback"):
        stopped = model.fit(X, y, learn=False, callback=lambda event: True)
    assert stopped.n_iter == 1
    assert not stopped.converged
    learnt = cavity.StreamingGP(RBF()).fit(X, np.sin(X[:, 0]) + 0.1 * rng.normal(size=60))
    assert learnt.trace["learning"].max() == pytest.approx(learnt.log_bound, abs=0.1)
    assert learnt.update(X[:1], [0.0]).trace["learning"].size == 0
    with pytest.raises(TypeError, match="callback must be callable, got 3"):
        model.fit(X, y, callback=3)
