"""Single rows: covariances with fixed points, and updates of a streaming Gaussian process one row at a time."""

import pickle

import numpy as np
import pytest
from support.gaussian_processes import COVARIANCES, covariance
from support.tolerances import AT_REST, INTEGRAL, LAST_BIT, LOSSES, OPTIMUM, ROUNDING, SUMS

import cavity
from cavity import StreamingGP, covariances, likelihoods
from cavity.covariances.program import get_program
from cavity.models.streaming_gp import single_rows, state
from cavity.models.streaming_gp.inducing_basis import InducingBasis
from cavity.models.streaming_gp.snapshot import StreamSnapshot
from cavity.runs.executors import Threads

ARRAYS = ("A", "r", "factor", "c")
NUMBERS = ("constant", "n", "squares", "gap")


def points(n, seed=0, d=2):
    """Rows in no order."""
    return np.random.default_rng(seed).normal(size=(n, d))


# ------------------------------------------------------------------------------------------------ covariances


@pytest.mark.parametrize("name", COVARIANCES)
def test_rows_against_points_are_rows_of_the_matrix(name):
    k, reference = covariance(name)
    X, Z = points(5), points(70, 1)
    target = get_program(k, 2).against(Z)
    for some in (X, X[:1], X[:0]):
        out = np.empty((len(some), 70))
        some.flags.writeable = False
        assert target.fill(some, out) == len(some)
        if len(some):
            np.testing.assert_array_equal(out, k.cross(Z, some).T)
            np.testing.assert_allclose(out, reference(some, Z), rtol=SUMS, atol=LAST_BIT)


def test_differences_keep_their_digits_far_from_the_origin():
    k, shift = covariances.RBF(lengthscale=[0.5, 2.0]), 2.0**40
    X, Z = np.round(points(1) * 1024) / 1024, np.round(points(20, 1) * 1024) / 1024
    near, far = np.empty((1, 20)), np.empty((1, 20))
    get_program(k, 2).against(Z).fill(X, near)
    get_program(k, 2).against(Z + shift).fill(X + shift, far)
    np.testing.assert_allclose(far, near, rtol=ROUNDING)


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf, 1e305])
def test_rows_out_of_reach_are_refused_before_anything_is_written(bad):
    X, Z = points(4), points(9, 1)
    X[2, 1] = bad
    out = np.full((4, 9), 7.0)
    assert get_program(covariances.RBF(lengthscale=1e-5), 2).against(Z).fill(X, out) == 2
    assert np.all(out == 7.0)


def test_columns_without_influence_must_be_finite_too():
    k, X, out = covariances.RBF(columns=[0]), points(1), np.empty((1, 9))
    assert get_program(k, 2).against(points(9, 1)).fill(X, out) == 1
    X[0, 1] = np.nan
    assert get_program(k, 2).against(points(9, 1)).fill(X, out) == 0


def test_products_that_may_overflow_take_the_checked_path():
    k, Z = covariances.Linear() + covariances.RBF(), 100 * points(6, 1)
    X = np.array([[1e150, -1e150]])
    assert get_program(k, 2).against(Z).fill(X, np.empty((1, 6))) == 0
    with Threads(1) as threads:
        basis = InducingBasis.of(k, Z, 1e-6, threads)
        np.testing.assert_array_equal(basis.cross(X, threads), k.cross(X, Z))
        with pytest.raises(OverflowError, match="leaves the range"):
            InducingBasis.of(k, 1e160 * np.eye(2), 1e-6, threads)


@pytest.mark.parametrize("name", COVARIANCES)
def test_variance_of_every_row(name):
    k, X = covariance(name)[0], points(3)
    value = get_program(k, 2).constant_variance()
    if value is None:
        assert len(set(k.diagonal(X))) == 3
    else:
        np.testing.assert_array_equal(k.diagonal(X), value)


# ------------------------------------------------------------------------------------------------ updates


def stream(n=60, d=2, seed=3):
    """Rows and observations."""
    X = points(n, seed, d)
    return X, np.sin(2 * X[:, 0]) + 0.3 * X[:, -1] + 0.2 * np.random.default_rng(seed).normal(size=n)


def model(alpha=0.0, mean=0.0, k=None, **options):
    """A model with ten points."""
    k = covariances.RBF(1.3, lengthscale=1.1) if k is None else k
    return StreamingGP(k, likelihoods.Gaussian(0.05), mean=mean, alpha=alpha, **({"inducing": points(10)} | options))


def start(settings, d=2):
    """The prior."""
    return settings.fit(np.empty((0, d)), np.empty(0), learn=False)


def bits(state):
    """All that a state knows."""
    information = state._now.information
    return [getattr(information, name) for name in (*ARRAYS, *NUMBERS)] + [state.last_increment, state.n_samples]


def assert_same_bits(a, b):
    for x, y in zip(bits(a), bits(b), strict=True):
        np.testing.assert_array_equal(x, y)


@pytest.mark.parametrize("alpha", [0.0, 0.5, 1.0])
def test_single_rows_equal_the_dense_formula(alpha):
    X, y = stream()
    state = start(model(alpha, mean=0.2))
    increments = [state.update(X[i : i + 1], y[i : i + 1]).last_increment for i in range(len(y))]
    Z, noise = points(10), 0.05

    def kernel(A, B):
        return 1.3 * np.exp(-0.5 * np.sum((A[:, None] - B) ** 2, axis=2) / 1.21)

    cross = kernel(X, Z)
    Q = cross @ np.linalg.solve(kernel(Z, Z) + 1.3e-8 * np.eye(10), cross.T)
    residual = 1.3 - np.diagonal(Q)
    S = Q + np.diag(noise + alpha * residual)
    apart = y - 0.2
    bound = -0.5 * (apart @ np.linalg.solve(S, apart) + np.linalg.slogdet(2 * np.pi * S)[1])
    if alpha == 0:
        bound -= np.sum(residual) / (2 * noise)
    else:
        bound -= (1 - alpha) / (2 * alpha) * np.sum(np.log1p(alpha * residual / noise))
    assert state.log_bound == pytest.approx(bound, abs=OPTIMUM)  # the dense formula loses digits to jitter
    assert np.sum(increments) == pytest.approx(state.log_bound, abs=INTEGRAL)
    assert (state.n_samples, state.n_iter, state.status) == (60, 1, "converged")


@pytest.mark.parametrize("alpha", [0.0, 0.7])
@pytest.mark.parametrize(
    "k", [None, covariances.Matern52(lengthscale=2.0) + covariances.Linear(0.2)], ids=["constant", "with Linear"]
)
@pytest.mark.parametrize("mean", [0.0, np.array([0.3, -0.1, 0.2])], ids=["number", "slopes"])
def test_single_rows_equal_one_batch(mean, k, alpha):
    X, y = stream()
    settings = model(alpha, mean, k)
    one = start(settings)
    for i in range(len(y)):
        one.update(X[i : i + 1], y[i : i + 1])
    many = settings.fit(X, y, learn=False)
    assert one.log_bound == pytest.approx(many.log_bound, abs=AT_REST)
    for a, b in zip(one.predict(X), many.predict(X), strict=True):
        np.testing.assert_allclose(a, b, rtol=0, atol=LOSSES)


@pytest.mark.parametrize("alpha", [0.0, 0.5, 1.0])
def test_the_short_way_gives_the_bits_of_the_long_one(alpha):
    X, y = stream()
    short, long, unaligned = (start(model(alpha, mean=0.3)) for _ in range(3))
    for i in range(20):
        short.update(X[i : i + 1], y[i : i + 1])
        long.update(X[i : i + 1].tolist(), y[i : i + 1].tolist())
        assert_same_bits(short, long)
        unaligned.update(shifted(X[i : i + 1]), shifted(y[i : i + 1]))
        assert_same_bits(short, unaligned)


def shifted(array):
    """Return a copy that begins at an odd address, which kernels must not be given."""
    moved = np.empty(array.nbytes + 1, np.uint8)[1:].view(array.dtype).reshape(array.shape)
    moved[...] = array
    assert not moved.flags.aligned
    return moved


def test_bad_rows_are_named_and_leave_no_trace():
    X, y = stream()
    state = model().fit(X[:5], y[:5], learn=False)
    before = state.copy()
    bad = np.array([[0.3, np.nan]])
    for rows, values, match in (
        (bad, y[:1], "X must be finite"),
        (X[:1], bad[0, 1:], "y must be finite"),
        (points(1, d=3), y[:1], "X must have 2 columns"),
        (X[:1], y[:2], "one entry per row"),
    ):
        with pytest.raises(ValueError, match=match):
            state.update(rows, values)
        assert_same_bits(state, before)
    with pytest.raises((ValueError, OverflowError)):
        state.update(X[:1], np.array([1e200]))
    assert_same_bits(state, before)
    for options in ({"n_threads": 0}, {"learn": "all"}):
        with pytest.raises(ValueError):
            state.update(X[:1], y[:1], **options)


def test_far_rows_bring_inducing_points():
    X, y = stream()
    state = model(inducing=None, n_inducing=30).fit(X[:20], y[:20], learn=False)
    before = state.n_inducing
    state.update(X[:1] + 1e-9, y[:1])
    assert state.n_inducing == before
    far = np.array([[40.0, -40.0]])
    state.update(far, y[:1])
    assert state.n_inducing == before + 1
    np.testing.assert_array_equal(state.inducing[-1:], far)
    state.update(far, y[1:2])
    assert state.n_inducing == before + 1


def test_copies_and_pickles_go_on_alone():
    X, y = stream()
    state = start(model())
    state.update(X[:1], y[:1])
    other, third = state.copy(), pickle.loads(pickle.dumps(state))
    before = other.log_bound
    state.update(X[1:2], y[1:2])
    assert other.log_bound == third.log_bound == before
    assert_same_bits(state, other.update(X[1:2], y[1:2]))
    assert_same_bits(state, third.update(X[1:2], y[1:2]))


def test_a_saved_state_goes_on_with_the_same_bits(tmp_path):
    X, y = stream()
    state = start(model())
    for i in range(5):
        state.update(X[i : i + 1], y[i : i + 1])
    state.save(tmp_path / "state.npz")
    loaded = cavity.load(tmp_path / "state.npz")
    for i in range(5, 9):
        state.update(X[i : i + 1], y[i : i + 1])
        loaded.update(X[i : i + 1], y[i : i + 1])
        assert_same_bits(state, loaded)


def test_features_of_a_row_have_the_same_bits_in_any_company():
    X = points(2500)
    with Threads(1) as one, Threads(3) as three:
        basis = InducingBasis.of(covariances.RBF(lengthscale=2.0), points(30, 1), 1e-6, one)
        W, residual = basis.features(X, one)
        for part, threads in ((slice(None), three), (slice(1020, 1060), one), (slice(2499, 2500), one)):
            for a, b in zip(basis.features(X[part], threads), (W[part], residual[part]), strict=True):
                np.testing.assert_array_equal(a, b)


# ------------------------------------------------------------------------------------------------ Ctrl-C


@pytest.mark.parametrize("through", [False, True])
@pytest.mark.parametrize("likelihood", [likelihoods.Gaussian(0.05), likelihoods.Probit()])
@pytest.mark.parametrize("before", [0, 2], ids=["copy", "in place"])
def test_an_interrupted_row_is_taken_in_whole_or_not_at_all(monkeypatch, through, likelihood, before):
    X, y = stream()
    y = y if isinstance(likelihood, likelihoods.Gaussian) else y > 0
    state = StreamingGP(covariances.RBF(), likelihood, inducing=points(10)).fit(X[:30], y[:30], learn=False)
    expected, row = state.copy(), slice(30 + before, 31 + before)
    for item in (state, expected):
        for i in range(30, 30 + before):
            item.update(X[i : i + 1], y[i : i + 1])
    if through and before:  # the kernel adds in place, and is through
        expected.update(X[row], y[row])

    truth = single_rows.kernel

    class Kernel:
        solve_rows = staticmethod(truth.solve_rows)

        @staticmethod
        def add_observation(*arguments):
            if through:
                truth.add_observation(*arguments)
            raise KeyboardInterrupt

    def observe(*arguments):
        if through:
            add(*arguments)
        raise KeyboardInterrupt

    add = getattr(state._singles, "observe", None)
    if add is not None:  # rows in arrays are one call
        monkeypatch.setattr(state._singles, "observe", observe)
    monkeypatch.setattr(single_rows, "kernel", Kernel)
    with pytest.raises(KeyboardInterrupt):
        state.update(X[row], y[row])
    monkeypatch.undo()
    for item in (state, expected):
        item.update(X[40:41], y[40:41])
    assert_same_bits(state, expected)


def test_an_interrupted_batch_changes_nothing(monkeypatch):
    X, y = stream()
    state = start(model())
    expected, after = state.copy(), StreamSnapshot.after

    def interrupted(*arguments, **changes):
        after(*arguments, **changes)
        raise KeyboardInterrupt

    monkeypatch.setattr(StreamSnapshot, "after", interrupted)
    for change in (lambda: state.update(X, y), lambda: state.forget(0.5), lambda: state.merge(expected)):
        with pytest.raises(KeyboardInterrupt):
            change()
        assert_same_bits(state, expected)


def test_rows_of_noise_of_their_own_are_noted_one_by_one_too():
    X, y = stream()
    state = start(model())
    state.update(X[:1], y[:1], noise_variance=[0.1])
    with pytest.raises(ValueError, match="rows of one noise variance"):
        state.learn()
    state.update(X[1:2], y[1:2], offset=[0.5])
    assert state.has_offset


def test_precisions_that_vanish_add_nothing():
    X, y = stream()
    state = StreamingGP(covariances.RBF(), likelihoods.Gaussian(1e300), inducing=points(10)).fit(X, y, learn=False)
    before = state.predict(X)
    for n in (1, 2):
        state.update(X[:n], y[:n], sample_weight=np.full(n, 1e-30))
        assert state.last_increment == pytest.approx(0.0, abs=1e-25)
    np.testing.assert_array_equal(state.predict(X), before)


@pytest.mark.parametrize("values", [{}, {"n_threads": 1}, {"n_threads": None}])
def test_a_plain_row_goes_the_short_way(monkeypatch, values):
    """With nothing said of threads, too: the long way takes ten times as long."""
    now = StreamingGP(covariances.RBF(), inducing=points(5)).fit(points(6), np.zeros(6), learn=False)

    def refused(*_, **__):
        raise AssertionError("the long way")

    monkeypatch.setattr(state, "take_rows_in", refused)
    assert now.update(points(1, 2), np.full(1, 0.1), **values).n_samples == 7
