"""The choice of inducing points: against inverses in many digits, its stopping rules, hard inputs, and streams."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from reference import gaussian_process as kernels
from reference import inducing as reference
from support.examples import examples
from support.tolerances import AT_REST, EARLY, LAST_BIT, LOSSES, OPTIMUM, ROUNDING, SOLVES, SUMS

import cavity
from cavity import covariances, likelihoods
from cavity.models.streaming_gp import inducing_choice
from cavity.models.streaming_gp.inducing_basis import InducingBasis, Information
from cavity.runs.executors import Threads, single_blas

JITTER = 1e-8
HARD = ("spread", "copies", "clusters", "columns", "zeros", "line")
COVARIANCES = {
    "rbf": covariances.RBF(1.3, lengthscale=1.0),
    "flat": covariances.RBF(1.3, lengthscale=1e6),
    "rough": covariances.RBF(1.3, lengthscale=1e-6),
    "matern12": covariances.Matern12(0.7, lengthscale=0.5),
    "linear": covariances.Linear(0.8),
    "constant": covariances.Constant(2.0),
    "periodic": covariances.Periodic(1.0, lengthscale=0.7, period=1.1),
    "tiny": covariances.RBF(1e-150, lengthscale=1.0),
    "huge": covariances.RBF(1e150, lengthscale=1.0),
    "mixed": covariances.RBF(1e-3, lengthscale=1e-3) + covariances.Linear(1e3),
}


@pytest.fixture(autouse=True)
def one_thread():
    """BLAS as in every fit."""
    with single_blas():
        yield


def greedy(covariance, X, weight=None, stored=None, budget=20, tolerance=1e-3, jitter=JITTER, n_threads=1):
    weight = np.full(len(X), 50.0) if weight is None else weight
    stored = X[:0] if stored is None else stored
    with Threads(n_threads) as threads:
        of = InducingBasis.of(covariance, np.ascontiguousarray(stored), jitter, threads)
        return inducing_choice.choose_greedily(of, X, weight, budget, tolerance, threads)


def basis(covariance, Z, jitter=JITTER):
    with Threads(1) as threads:
        return InducingBasis.of(covariance, np.ascontiguousarray(Z), jitter, threads)


def residuals(of, X):
    with Threads(1) as threads:
        return of.features(X, threads)[1]


def hard(kind, n, d, seed):
    """Rows (n, d) of a kind that choices of inducing points have failed on."""
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((n, d))
    if kind == "copies":
        X = X[rng.integers(0, max(1, n // 4), n)]
    elif kind == "clusters":
        X = X[rng.integers(0, max(1, n // 8), n)] + 1e-9 * rng.standard_normal((n, d))
    elif kind == "columns":
        X[:, 1:] = 1e5
    elif kind == "zeros":
        X[rng.random(n) < 0.5] = 0.0
    elif kind == "line":
        X = np.linspace(-1, 1, n)[:, None] * np.ones(d)
    return X


# ------------------------------------------------------------------------------------------ truth


@pytest.mark.sample(3)
@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("m", [0, 3])
def test_equals_the_naive_choice(m, seed):
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((14, 2))
    weight = rng.gamma(2.0, size=14) * 30
    weight[rng.integers(0, 14, 3)] = 0.0
    K = kernels.rbf(1.3, 0.9)(X, X)
    weight[:m] = 0.0  # rows that are inducing points already
    chosen, left = greedy(covariances.RBF(1.3, lengthscale=0.9), X, weight, X[:m], budget=7)
    naive = reference.greedy(K, list(range(m)), weight, 7, 1e-3, JITTER, inducing_choice.ROWS_TRIED_PER_STEP)
    assert chosen.tolist() == naive
    np.testing.assert_allclose(left, reference.residuals(K, [*range(m), *naive], JITTER), rtol=EARLY, atol=ROUNDING)


@pytest.mark.parametrize("jitter", [1e-10, 1e-8, 1e-4])
def test_what_is_left_of_close_rows(jitter):
    X = np.linspace(0, 1, 25)[:, None]
    chosen, left = greedy(covariances.RBF(1.3, lengthscale=1.5), X, budget=25, tolerance=0.0, jitter=jitter)
    K = kernels.rbf(1.3, 1.5)(X, X)
    np.testing.assert_allclose(left, reference.residuals(K, chosen.tolist(), jitter), rtol=0, atol=2e-15 / jitter**0.5)
    np.testing.assert_allclose(
        left, residuals(basis(covariances.RBF(1.3, lengthscale=1.5), X[chosen], jitter), X), atol=ROUNDING
    )
    assert np.all(left <= 10 * jitter * 1.3 * (1 + 1e-6))


def test_a_step_saves_at_least_what_the_usual_pivot_would():
    X = np.random.default_rng(3).standard_t(3, (12, 2))
    weight = np.linspace(1, 5, 12)
    K, points = kernels.rbf(1.0, 1.0)(X, X), []
    for p in greedy(covariances.RBF(1.0, lengthscale=1.0), X, weight, budget=6)[0]:
        usual = int(np.argmax(weight * reference.residuals(K, points, JITTER)))
        gain = reference.gains(K, weight, points, JITTER, [p, usual])
        assert gain[0] >= gain[1] * (1 - 1e-12)
        points.append(int(p))


def test_fewer_points_than_outliers_take():
    X = np.random.default_rng(1).standard_t(3, (1000, 3))
    K = kernels.rbf(1.0, 1.0)(X, X)
    left, columns = np.ones(len(X)), []
    for _ in range(50):  # the usual pivots
        p = int(np.argmax(left))
        columns.append((K[p] - sum(v[p] * v for v in columns)) / np.sqrt(left[p] + JITTER))
        left = left - columns[-1] ** 2
    chosen, ours = greedy(covariances.RBF(1.0, lengthscale=1.0), X, np.ones(len(X)), budget=50)
    assert len(chosen) == 50
    assert ours.sum() < 0.5 * left.sum()


# ------------------------------------------------------------------------------------------ stopping


@given(st.integers(0, 10**6), st.sampled_from([1, 2, 8]), st.sampled_from([1e-6, 1e-3, 0.1, 1.0]), st.integers(1, 40))
@examples(40)
def test_ends_at_the_tolerance_or_the_budget(seed, d, tolerance, budget):
    rng = np.random.default_rng(seed)
    X, weight = rng.uniform(-1, 1, (60, d)), rng.gamma(1.0, size=60) * 10.0 ** rng.integers(-2, 4)
    covariance = covariances.RBF(1.0, lengthscale=0.6)
    chosen, left = greedy(covariance, X, weight, budget=budget, tolerance=tolerance)
    assert len(set(chosen.tolist())) == len(chosen) <= budget
    np.testing.assert_allclose(left, residuals(basis(covariance, X[chosen]), X), rtol=0, atol=SUMS)
    if weight @ left > tolerance * 60:
        assert len(chosen) == budget or np.all(left <= 10 * JITTER * (1 + 1e-6))
    if len(chosen):
        assert weight @ residuals(basis(covariance, X[chosen[:-1]]), X) > tolerance * 60 * (1 - 1e-9)


def test_nothing_to_choose():
    X = np.random.default_rng(0).standard_normal((5, 2))
    covariance = covariances.RBF(1.0, lengthscale=1.0)
    for rows, weight, options in (
        (X[:0], np.zeros(0), {}),
        (X, np.zeros(5), {}),
        (X, np.ones(5), {"budget": 0}),
        (X, np.ones(5), {"stored": X[:3], "budget": 3}),
        (X, np.ones(5), {"stored": X[:3], "budget": 2}),
        (X, np.ones(5), {"stored": X}),
        (X, np.ones(5), {"tolerance": 1.0}),
    ):
        chosen, left = greedy(covariance, rows, weight, **options)
        assert len(chosen) == 0
        truth = residuals(basis(covariance, options.get("stored", X[:0])), rows) if len(rows) else np.zeros(0)
        np.testing.assert_allclose(left, truth, atol=LAST_BIT)


def test_of_copies_one():
    X = np.repeat(np.array([[0.0], [1.0], [2.5]]), 4, axis=0)
    chosen, left = greedy(covariances.RBF(1.0, lengthscale=1.0), X, tolerance=0.0)
    assert sorted((chosen // 4).tolist()) == [0, 1, 2]
    assert np.all(left <= JITTER)


def test_rows_of_no_weight_are_not_chosen():
    X = np.random.default_rng(0).standard_normal((40, 2))
    weight = np.where(np.arange(40) % 4, 0.0, 50.0)
    chosen, left = greedy(covariances.RBF(1.0, lengthscale=0.5), X, weight, budget=40, tolerance=1e-12)
    assert sorted(chosen.tolist()) == list(range(0, 40, 4))
    assert left[weight == 0].max() > 0.1


# ------------------------------------------------------------------------------------------ many rows


@pytest.mark.parametrize("d", [1, 3])
def test_rows_that_do_not_fit_at_once(monkeypatch, d):
    rng = np.random.default_rng(5)
    X = rng.uniform(0, 10, (3000, d))
    weight, covariance = np.full(3000, 5.0), covariances.RBF(1.0, lengthscale=2.0)
    X[1501], weight[1501] = 40.0, 1e4  # far away, and not among the 200 rows that come first
    monkeypatch.setattr(inducing_choice, "CANDIDATE_NUMBERS", 200 * 200)
    monkeypatch.setattr(inducing_choice, "FEATURE_NUMBERS", 10_000)
    chosen, left = greedy(covariance, X, weight, budget=200, tolerance=1e-2)
    np.testing.assert_allclose(left, residuals(basis(covariance, X[chosen]), X), rtol=0, atol=SOLVES)
    assert len(set(chosen.tolist())) == len(chosen)
    assert len(chosen) == 200 or weight @ left <= 1e-2 * 3000
    assert 1501 in chosen if d == 1 else len(chosen) == 200


def test_the_same_bits_on_several_threads():
    X = np.random.default_rng(2).standard_normal((2000, 3))
    one, two = (greedy(covariances.Matern32(1.0, lengthscale=1.0), X, budget=40, n_threads=n) for n in (1, 2))
    np.testing.assert_array_equal(one[0], two[0])
    np.testing.assert_array_equal(one[1], two[1])


# ------------------------------------------------------------------------------------------ exchanges


def features(of, X):
    with Threads(1) as threads:
        return of.features(X, threads)[0]


def taken_in(of, information, X, weight, y=0.5):
    """The factor with Gaussian rows of precision 2 weight."""
    W = features(of, X)
    A, r = information.A + np.tril((W * (2 * weight)[:, None]).T @ W), information.r + W.T @ (2 * weight * y)
    return Information.of(np.asfortranarray(A), r, information.constant).factorise()


def choose(of, information, X, weight, budget, waiting=None, residual=None):
    waiting = inducing_choice.WaitingRows.none(X.shape[1]) if waiting is None else waiting
    with Threads(1) as threads:
        return inducing_choice.choose(
            of, information, X, weight, budget, 1e-3, 0.0, threads, waiting=waiting, residual=residual
        )


def origin(of, done):
    """Where the points of a choice were among those before, -1 for new ones."""
    places = {z.tobytes(): j for j, z in enumerate(of.Z)}
    return np.array([places.get(z.tobytes(), -1) for z in done.basis.Z], dtype=int)


def stream(covariance, batches, rate, budget, exchange=True):
    """Nats lost by the rows and by the factors on the way, and which batches exchanged points."""
    of, information, waiting, lost, exchanged = basis(covariance, batches[0][:0]), Information.empty(0), None, 0.0, []
    for t, X in enumerate(batches):
        weight = np.full(len(X), rate)
        if exchange or of.n == 0:
            done = choose(of, information, X, weight, budget, waiting)
            if done.loss != 0:
                exchanged.append(t)
            of, information, waiting, lost = done.basis, done.information, done.waiting, lost + done.loss
        lost += weight @ residuals(of, X)
        information = taken_in(of, information, X, weight)
    return lost, exchanged


def known_points(seed, n=8, d=2):
    """Points with their basis, a factor that knows some of them better, and the precision of that in u."""
    rng = np.random.default_rng(seed)
    Z = rng.uniform(-2, 2, (n, d))
    of = basis(covariances.RBF(1.3, lengthscale=0.9), Z)
    X = rng.uniform(-2, 1, (30, d))
    information = taken_in(of, Information.empty(n), X, rng.gamma(1.0, size=30) * 5)
    inverse = np.linalg.inv(of.factor)
    A = np.tril(information.A) + np.tril(information.A, -1).T
    return Z, of, information, inverse.T @ A @ inverse


@pytest.mark.long_cases("1")
@pytest.mark.parametrize("seed", range(2))
def test_the_cheapest_points_go(seed):
    Z, of, information, precision = known_points(seed)
    T, Q = inducing_choice.compute_precisions(of, np.tril(information.A) + np.tril(information.A, -1).T)
    np.testing.assert_allclose(T, precision, rtol=AT_REST, atol=AT_REST * np.abs(precision).max())
    K = kernels.rbf(1.3, 0.9)(Z, Z)
    stored, lost = inducing_choice.prune(T, Q, 4)
    naive, naive_lost = reference.pruned(K, list(range(8)), precision, 4, JITTER)
    assert stored.tolist() == naive
    assert lost == pytest.approx(naive_lost, rel=EARLY)


@pytest.mark.parametrize("seed", range(4))
def test_an_exchange_pays_what_it_says(seed):
    Z, of, information, precision = known_points(seed)
    rng = np.random.default_rng(seed)
    X = rng.uniform(1, 4, (20, 2))
    weight = rng.gamma(1.0, size=20) * 20
    done = choose(of, information, X, weight, 8)
    assert done.basis.n == 8
    places = origin(of, done)
    assert np.any(places < 0)
    assert np.all(np.diff(places[places >= 0]) > 0)
    fresh = done.basis.Z[places < 0]
    rows = [8 + int(np.flatnonzero((z == X).all(axis=1))[0]) for z in fresh]
    K = kernels.rbf(1.3, 0.9)(*2 * [np.concatenate([Z, X])])
    points = [*places[places >= 0].tolist(), *rows]
    old = reference.loss(K, range(8), precision, [], [], points, JITTER)
    assert done.loss == pytest.approx(old, rel=OPTIMUM)
    gained = weight @ (residuals(of, X) - residuals(done.basis, X))
    assert gained > old
    assert len(done.waiting.X) == 0
    start, end = (information.constant, done.information.constant)
    assert start - end == pytest.approx(done.loss, rel=AT_REST)


def test_points_are_added_while_there_is_room():
    Z, of, information, _ = known_points(0)
    far = np.random.default_rng(0).uniform(50, 60, (10, 2))
    done = choose(of, information, far, np.full(10, 50.0), 40)
    assert origin(of, done).tolist() == [*range(8), *[-1] * (done.basis.n - 8)]
    assert done.basis.n == 8 + 10
    assert done.loss == 0
    np.testing.assert_array_equal(done.information.r, np.append(information.r, np.zeros(10)))
    assert done.information.log_bound == pytest.approx(information.log_bound, rel=ROUNDING)


def test_a_single_row_far_away_takes_the_place_of_the_cheapest_point():
    Z = np.array([[0.0], [0.05], [3.0], [6.0]])  # the first two say the same
    of = basis(covariances.RBF(1.0, lengthscale=1.0), Z)
    X = np.repeat(Z[[0, 2, 3]], 20, axis=0)
    information = taken_in(of, Information.empty(4), X, np.full(60, 50.0))
    waiting = inducing_choice.WaitingRows.none(Z.shape[1])
    done = choose(of, information, np.array([[20.0]]), np.array([50.0]), 4, waiting)
    assert origin(of, done).tolist() in ([0, 2, 3, -1], [1, 2, 3, -1])
    assert done.basis.Z[-1] == 20.0
    assert 0 <= done.loss < 20
    second = taken_in(done.basis, done.information, np.repeat(done.basis.Z, 20, axis=0), np.full(80, 50.0))
    stored = choose(done.basis, second, np.array([[40.0]]), np.array([50.0]), 4, waiting)
    assert stored.basis is done.basis  # all four are worth more than that row, which is remembered
    assert stored.waiting.X.tolist() == [[40.0]]
    assert stored.waiting.patience == 2 * stored.waiting.debt > 0


def test_nothing_is_done_without_need():
    Z, of, information, _ = known_points(1)
    waiting = inducing_choice.WaitingRows.none(Z.shape[1])
    for X in (Z, Z[:0]):
        done = choose(of, information, X, np.full(len(X), 50.0), 8, waiting)
        assert done.basis is of
        assert done.information is information
        assert done.waiting is waiting
        assert done.loss == 0.0
    X = np.random.default_rng(1).uniform(1, 4, (20, 2))
    truth = residuals(of, X)
    one, two = (choose(of, information, X, np.full(20, 5.0), 8, None, truth if i else None) for i in range(2))
    np.testing.assert_array_equal(one.basis.Z, two.basis.Z)


def test_rows_that_wait_are_thinned_out():
    waiting, rng, lost = inducing_choice.WaitingRows.none(2), np.random.default_rng(0), 0.0
    for n in (1, 1, 40, 300, 3, 120, 1, 700):
        weight, loss = np.full(n, 2.0), np.where(rng.random(n) < 0.7, rng.random(n), 0.0)
        waiting, lost = waiting.add_rows(rng.standard_normal((n, 2)), weight, loss), lost + loss.sum()
        assert len(waiting.X) == len(waiting.weight) <= 128
    assert waiting.debt == pytest.approx(lost, rel=ROUNDING)
    assert waiting.weight.sum() == pytest.approx(2 * 0.7 * 1166, rel=0.1)


def test_rows_one_by_one_take_a_place_in_the_end():
    near, far = np.linspace(0, 5, 6)[:, None], np.linspace(20, 21, 40)[:, None]
    of = basis(covariances.RBF(1.0, lengthscale=1.0), near)
    information = taken_in(of, Information.empty(6), np.repeat(near, 40, axis=0), np.full(240, 50.0))
    assert choose(of, information, far[:1], np.full(1, 50.0), 6).basis is of  # one such row is worth none of the points
    waiting = None
    for x in far:
        done = choose(of, information, x[None], np.full(1, 50.0), 6, waiting)
        of, information, waiting = done.basis, done.information, done.waiting
        information = taken_in(of, information, x[None], np.full(1, 50.0))
    assert np.sum(of.Z > 10) >= 1
    assert np.sum(of.Z < 10) >= 4


def test_single_rows_do_not_try_again_and_again():
    X = np.random.default_rng(2).standard_normal((240, 8))
    covariance, waiting = covariances.RBF(1.0, lengthscale=2.0), inducing_choice.WaitingRows.none(8)
    failures = exchanges = 0
    of = basis(covariance, X[:40])
    information = taken_in(of, Information.empty(40), X[:40], np.full(40, 5.0))
    for x in X[40:]:
        done = choose(of, information, x[None], np.full(1, 5.0), 40, waiting)
        exchanges += done.loss != 0
        if done.loss == 0 and done.waiting.patience != waiting.patience:
            assert done.waiting.debt > waiting.patience
            assert done.waiting.patience == 2 * done.waiting.debt
            failures += 1
        of, information, waiting = done.basis, done.information, done.waiting
        information = taken_in(of, information, x[None], np.full(1, 5.0))
    assert exchanges > 0
    assert 0 < failures < 100  # of 200 rows, each of which loses something


def test_after_a_failure_rows_have_to_lose_twice_as_much():
    X, weight = np.arange(12.0)[:, None], np.ones(12)
    waiting = inducing_choice.WaitingRows.none(1).add_rows(X, weight, np.full(12, 0.5)).record_failure()
    assert (waiting.debt, waiting.patience) == (6.0, 12.0)
    assert waiting.add_unless_needed(X, weight, np.full(12, 0.5), 0.1, 12, 12).debt == 12.0
    assert waiting.add_unless_needed(X, weight, np.full(12, 0.6), 0.1, 12, 12) is None
    assert waiting.scale_weights(0.5).add_unless_needed(X, weight, np.full(12, 0.3), 0.1, 12, 12) is None
    assert waiting.add_unless_needed(X, weight, np.full(12, 0.5), 0.1, 11, 12) is None  # there is room


def test_what_nuggets_hide_is_no_reason():
    Z, of, information, _ = known_points(1)
    X = Z + 1e-5  # known but for a nugget or so
    assert 0 < residuals(of, X).max() < 10 * JITTER * 1.3
    done = choose(of, information, X, np.full(8, 1e12), 20)
    assert done.basis is of
    assert done.information is information


def drifting(kind, n_batches=30, size=40):
    rng = np.random.default_rng(4)
    t = np.linspace(0, 1, n_batches)[:, None, None]
    if kind == "drift":
        return 30 * t + 0.5 * rng.standard_normal((n_batches, size, 1)), 20
    if kind == "return":
        angle = 4 * np.pi * t
        way = np.concatenate([np.cos(angle), np.sin(angle)], axis=2)
        return 4 * way + 0.5 * rng.standard_normal((n_batches, size, 2)), 40
    return 3 * t + rng.standard_normal((n_batches, size, 8)) / 2, 30


@pytest.mark.parametrize("kind", ["drift", "return", "wide"])
def test_exchanges_follow_a_stream(kind):
    batches, budget = drifting(kind)
    covariance = covariances.RBF(1.0, lengthscale=2.0 if kind == "wide" else 1.0)
    fixed, _ = stream(covariance, batches, 5.0, budget, exchange=False)
    moving, _ = stream(covariance, batches, 5.0, budget)
    assert moving < 0.5 * fixed


def test_most_batches_exchange_nothing():
    batches, covariance = np.random.default_rng(6).uniform(0, 8, (100, 40, 2)), covariances.RBF(1.0, lengthscale=1.0)
    lost, when = stream(covariance, batches, 5.0, 30)  # too few for these rows, which stay the same
    assert len([t for t in when if t >= 20]) <= 20
    assert lost < stream(covariance, batches, 5.0, 30, exchange=False)[0]


@given(
    st.sampled_from(sorted(COVARIANCES)),
    st.sampled_from(HARD),
    st.sampled_from(HARD),
    st.integers(1, 3),
    st.integers(0, 10**6),
    st.sampled_from([1e-12, 1e-8, 1e-3]),
    st.integers(1, 12),
)
@examples(80)
def test_hard_rows_after_hard_rows(name, kind, other, d, seed, jitter, budget):
    covariance = COVARIANCES[name]
    first, then = hard(kind, 40, d, seed), hard(other, 40, d, seed + 1)
    weight = np.full(40, 10.0 ** (seed % 7)) / max(covariance.diagonal(first).max(), 1e-300)
    done = choose(basis(covariance, first[:0], jitter), Information.empty(0), first, weight, budget)
    of, information = done.basis, taken_in(done.basis, done.information, first, weight, y=0.0)
    done = choose(of, information, then, weight, budget)
    assert of.n <= done.basis.n <= budget
    assert len({row.tobytes() for row in done.basis.Z}) == done.basis.n
    assert np.isfinite(done.information.log_bound)
    # rounding of the covariances, relative to the nuggets, of all that is known
    assert done.loss >= -1e-13 / jitter * np.trace(information.A)


# ------------------------------------------------------------------------------------------ states


def drift(n, seed=0):
    """Rows that move on, and their noisy values."""
    rng = np.random.default_rng(seed)
    X = np.linspace(0, 30, n)[:, None] + 0.5 * rng.standard_normal((n, 1))
    return X, np.sin(X[:, 0]) + 0.1 * rng.standard_normal(n)


def model(n_inducing, **options):
    return cavity.StreamingGP(
        covariances.RBF(1.0, lengthscale=1.0), cavity.likelihoods.Gaussian(0.01), n_inducing=n_inducing, **options
    )


def streamed(X, y, size, factor=1.0):
    """A state of 15 points, too few for all rows, that took them in by so many and forgot some before each batch."""
    state = model(15).fit(X[:size], y[:size], learn=False)
    for low in range(size, len(X), size):
        if factor < 1.0:
            state.forget(factor)
        state.update(X[low : low + size], y[low : low + size])
    return state


def last_rows(state, X, n=50):
    """Root mean square error of the last rows, and the share of them within three standard deviations."""
    mean, variance = state.predict(X[-n:])
    error = mean - np.sin(X[-n:, 0])
    return np.sqrt(np.mean(error**2)), np.mean(np.abs(error) < 3 * np.sqrt(variance))


@pytest.mark.long_cases("1")
@pytest.mark.parametrize("size", [1, 4, 12])
def test_a_series_in_time_loses_little_more_than_one_fit_of_all_rows(size):
    columns, _ = cavity.data.table("co2")
    X, y = columns["year"][:120, None], columns["co2"][:120]  # 120 rows, half as many points
    covariance = covariances.RBF(4.0, lengthscale=3.0) + covariances.Matern32(0.2, lengthscale=0.6)
    covariance += covariances.RBF(10.0, lengthscale=100.0) * covariances.Periodic(1.0, lengthscale=1.0, period=1.0)
    season = kernels.product(kernels.rbf(10.0, 100.0), kernels.periodic(1.0, 1.0, 1.0))
    K = kernels.total(kernels.rbf(4.0, 3.0), kernels.matern(3, 0.2, 0.6), season)(X, X)
    line = [315.0 - 1.3 * 1959, 1.3]
    evidence = kernels.regression(K, y, 0.04, line[0] + line[1] * X[:, 0])[2]
    settings = cavity.StreamingGP(covariance, likelihoods.Gaussian(0.04), mean=line, n_inducing=60)
    state = settings.fit(X[:size], y[:size], learn=False)
    for low in range(size, 120, size):
        state.update(X[low : low + size], y[low : low + size])
    at_once = settings.fit(X, y, learn=False)
    assert at_once.n_inducing == state.n_inducing == 60
    assert 0 < evidence - state.log_bound < 1.5 * (evidence - at_once.log_bound) < 6


@pytest.mark.long_cases("1")
@pytest.mark.parametrize("size", [1, 50])
def test_ids_and_losses_follow_the_points(size):
    X, y = drift(600)
    state, lost = model(15).fit(X[:size], y[:size], learn=False), 0.0
    for low in range(size, 600, size):
        before, batch = dict(zip(state.inducing_ids.tolist(), state.inducing, strict=True)), slice(low, low + size)
        state.update(X[batch], y[batch])
        lost += state.last_information_lost
        after = dict(zip(state.inducing_ids.tolist(), state.inducing, strict=True))
        assert state.n_inducing <= 15
        for key in before.keys() & after.keys():
            np.testing.assert_array_equal(before[key], after[key])
        assert min(after.keys() - before.keys(), default=1 << 30) > max(before)  # no number is given twice
    assert state.information_lost == pytest.approx(lost, rel=SOLVES)


@pytest.mark.long_cases("1")
@pytest.mark.parametrize("size", [1, 50])
def test_a_state_that_forgets_follows_its_rows(size):
    streams = [drift(600, seed) for seed in range(2)]
    error, covered = np.transpose([last_rows(streamed(*rows, size, 0.99**size), rows[0]) for rows in streams])
    assert np.all(error < 0.15)  # standard deviation of the noise 0.1, of the function 0.7
    assert np.mean(covered) > 0.8


@pytest.mark.long
@pytest.mark.parametrize("size", [1, 50])
def test_a_state_that_keeps_all_knows_the_last_rows_as_one_fit_does(size):
    streams = [drift(600, seed) for seed in range(16)]  # of one stream luck decides: where the points happen to be
    error, covered = np.transpose([last_rows(streamed(*rows, size), rows[0]) for rows in streams])
    at_once = [last_rows(model(15).fit(*rows, learn=False), rows[0])[0] for rows in streams]
    assert np.mean(error) < 1.5 * np.mean(at_once)
    assert np.mean(covered) > 0.8


@pytest.mark.long_cases("1")
@pytest.mark.parametrize("size", [1, 30])
def test_a_saved_state_goes_on_in_the_same_bits(tmp_path, size):
    X, y = drift(180)
    state = model(12).fit(X[:60], y[:60], learn=False)
    for low in range(60, 120, size):
        state.update(X[low : low + size], y[low : low + size])
    state.save(tmp_path / "state.npz")
    other, copy = cavity.load(tmp_path / "state.npz"), state.copy()
    for low in range(120, 180, size):
        for item in (state, other, copy):
            item.update(X[low : low + size], y[low : low + size])
    for item in (other, copy):
        np.testing.assert_array_equal(state.inducing, item.inducing)
        np.testing.assert_array_equal(state.inducing_ids, item.inducing_ids)
        np.testing.assert_array_equal(state.predict(X), item.predict(X))
        assert state.log_bound == item.log_bound


def test_given_points_stay():
    X, y = drift(200)
    Z = np.linspace(0, 5, 8)[:, None]
    state = model(5, inducing=Z).fit(X[:100], y[:100], learn=False).update(X[100:], y[100:])
    np.testing.assert_array_equal(state.inducing, Z)
    assert state.information_lost == 0


def test_labels_move_points_too():
    X, y = drift(400)
    classes = cavity.StreamingGP(covariances.RBF(4.0, lengthscale=1.0), cavity.likelihoods.Probit(), n_inducing=12)
    state = classes.fit(X[:50], y[:50] > 0, learn=False)
    for low in range(50, 400, 50):
        state.update(X[low : low + 50], y[low : low + 50] > 0)
    right = (state.predict_proba(X[-50:])[:, 1] > 0.5) == (y[-50:] > 0)
    assert state.n_inducing <= 12
    assert np.mean(right) > 0.85
    assert state.information_lost > 0


# ------------------------------------------------------------------------------------------ hard rows


@given(
    st.sampled_from(sorted(COVARIANCES)),
    st.sampled_from(HARD),
    st.integers(1, 3),
    st.integers(0, 10**6),
    st.sampled_from([0.0, 1e-12, 1e-8, 1e-3]),
    st.integers(0, 5),
)
@examples(150)
def test_what_is_chosen_has_a_cholesky_triangle(name, kind, d, seed, jitter, stored):
    covariance, X = COVARIANCES[name], hard(kind, 64, d, seed)
    scale = covariance.diagonal(X)
    weight = np.full(64, 1e12) / max(scale.max(), 1e-300)
    first, _ = greedy(covariance, X[::-1].copy(), weight, budget=stored, tolerance=0.0, jitter=jitter)
    Z = X[::-1][first]
    chosen, left = greedy(covariance, X, weight, stored=Z, budget=64, tolerance=0.0, jitter=jitter)
    done = basis(covariance, np.concatenate([Z, X[chosen]]), jitter)  # raises if there is none
    assert np.all(np.diagonal(done.factor) > 0)
    assert np.all(np.isfinite(left))
    assert np.all(left >= 0)
    assert np.all(left <= scale)
    assert len({row.tobytes() for row in done.Z}) == done.n
    if name in ("constant", "flat"):
        assert done.n <= 2 + 2 * d
    if name == "linear":
        assert done.n <= d


@given(st.integers(0, 10**6), st.sampled_from(["rbf", "matern12", "linear", "mixed"]), st.sampled_from([1, 2, 8]))
@examples(30)
def test_more_points_leave_less_of_every_row(seed, name, d):
    covariance, X = COVARIANCES[name], hard("spread", 50, d, seed)
    few, before = greedy(covariance, X, budget=6)
    more, after = greedy(covariance, X, stored=X[few], budget=18)
    assert np.all(after <= before + 1e-12 * covariance.diagonal(X))
    np.testing.assert_allclose(
        after, residuals(basis(covariance, X[[*few, *more]]), X), rtol=0, atol=LOSSES * covariance.diagonal(X).max()
    )


def test_shards_of_different_regions_share_a_budget():
    rng = np.random.default_rng(0)
    regions = [rng.uniform(low, low + 15, (1000, 1)) for low in (0, 15)]
    settings = cavity.StreamingGP(covariances.RBF(lengthscale=0.5), likelihoods.Gaussian(0.01), n_inducing=75)
    shards = [settings.fit(X, np.sin(X[:, 0]) + 0.1 * rng.normal(size=1000), learn=False) for X in regions]
    assert sum(item.n_inducing for item in shards) > 75
    both = shards[0].copy().merge(shards[1])
    assert both.n_inducing == 75
    assert both.information_lost == both.last_information_lost > 0.0
    for shard, X in zip(shards, regions, strict=True):  # neither half pays for the other
        result = np.linspace(X.min(), X.max(), 200)[:, None]
        assert np.std(both.predict(result)[0] - np.sin(result[:, 0])) < 2 * np.std(
            shard.predict(result)[0] - np.sin(result[:, 0])
        )
