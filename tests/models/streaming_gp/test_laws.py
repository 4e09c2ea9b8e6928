"""Laws of streaming Gaussian processes on random problems: the order of rows is nothing, and nothing is forgotten."""

import mpmath as mp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from reference import streaming_gp as reference
from support.examples import examples
from support.streaming_gps import assert_same_bits, assert_state, pieces, problem
from support.tolerances import AT_REST, EARLY, INTEGRAL, OPTIMUM, ROOT_EPS, ROUNDING, SOLVES

import cavity
from cavity import likelihoods
from cavity.base import triangles
from cavity.covariances import RBF
from cavity.models.streaming_gp import inducing_basis as sparse
from cavity.models.streaming_gp import old_data_factor
from cavity.runs.executors import Threads

seeds = st.integers(0, 10**6)
jitters = st.sampled_from([1e-3, 1e-4, 1e-6])
alphas = st.sampled_from([0.0, 0.4, 1.0])
few = examples(8)
NEW = np.linspace(-4, 4, 9)[:, None]


def assert_predicts(state, mean, variance, atol=1e-9):
    """Compare predictions at NEW."""
    actual = state.predict(NEW)
    np.testing.assert_allclose(actual[0], reference.plain(mean), rtol=0, atol=atol)
    np.testing.assert_allclose(actual[1], reference.plain(variance), rtol=0, atol=atol)


def assert_like(a, b, atol=1e-9):
    """Compare two states with the same inducing points."""
    np.testing.assert_array_equal(a.inducing, b.inducing)
    assert_state(a, (b.mean, b.covariance), b.log_bound, atol)
    assert a.n_samples == b.n_samples


# ------------------------------------------------------------------------------------------ truth


@few
@given(seeds, jitters, alphas)
def test_one_batch_is_titsias_fitc_or_between_in_many_digits(seed, jitter, alpha):
    p = problem(seed, n=10, m=4, jitter=jitter)
    state = p.fit(alpha=alpha)
    with mp.workdps(40):
        X, y, Z, new = *p.many(("X", "y", "Z")), reference.many_digits(NEW)
        k = reference.rbf(mp.mpf(p.variance), mp.mpf(p.lengthscale))
        mean, S, value = reference.batch(k, Z, X, y, mp.mpf(p.noise), alpha=alpha, jitter=mp.mpf(jitter))
        predicted, spread = reference.predict(k, Z, (mean, S), new, mp.mpf(jitter))
    assert_state(state, (mean, S), value)
    assert_predicts(state, predicted, np.diag(spread))


@few
@given(seeds, alphas)
def test_one_batch_with_inducing_points_at_the_rows_is_the_exact_process(seed, alpha):
    p = problem(seed, n=9)
    X = np.linspace(-3, 3, 9)[:, None] + 0.1 * p.rng.normal(size=(9, 1))
    state = p.model(inducing=X, jitter=0.0, alpha=alpha).fit(X, p.y, learn=False)
    with mp.workdps(60):
        x, y, new = (reference.many_digits(a) for a in (X, p.y, NEW))
        k = reference.rbf(mp.mpf(p.variance), mp.mpf(p.lengthscale))
        mean, S, value = reference.exact(k, x, y, mp.mpf(p.noise), new)
    # without jitter the digits are those of the covariance matrix
    condition = np.linalg.cond(p.k(X, X))
    assert state.log_bound == pytest.approx(float(value), abs=ROUNDING * condition + INTEGRAL)
    assert_predicts(state, mean, np.diag(S), atol=ROUNDING * condition + INTEGRAL)


@given(seeds, jitters, alphas)
def test_any_batches_are_one_batch(seed, jitter, alpha):
    p = problem(seed, jitter=jitter)
    state = p.model(alpha=alpha).fit(p.X[:0], p.y[:0], learn=False)
    before = 0.0
    for part in pieces(p.rng, len(p.y)):
        state.update(p.X[part], p.y[part])
        assert state.log_bound == pytest.approx(before + state.last_increment, abs=INTEGRAL) or part.start == part.stop
        before = state.log_bound
    *q, value = reference.batch(p.k, p.Z, p.X, p.y, p.noise, alpha=alpha, jitter=jitter)
    assert_like(state, p.fit(alpha=alpha), 1e-10)
    assert_state(state, q, value, 1e-7)


@few
@given(seeds, alphas)
def test_rows_one_by_one_are_one_batch_in_any_order(seed, alpha):
    p = problem(seed)
    state = p.model(alpha=alpha).fit(p.X[:0], p.y[:0], learn=False)
    for i in p.rng.permutation(len(p.y)):
        state.update(p.X[i : i + 1], p.y[i : i + 1])
    assert_like(state, p.fit(alpha=alpha))
    order = p.rng.permutation(len(p.y))
    assert_like(p.fit(p.X[order], p.y[order], alpha=alpha), p.fit(alpha=alpha), 1e-10)


@given(seeds, alphas)
def test_shards_merge_to_one_batch(seed, alpha):
    p = problem(seed)
    parts = pieces(p.rng, len(p.y))
    states = [p.fit(p.X[part], p.y[part], alpha=alpha) for part in parts]
    merged = states[0].copy()
    for other in states[1:]:
        before = other.copy()
        merged.merge(other)
        assert_same_bits(other, before)
    assert_like(merged, p.fit(alpha=alpha), 1e-10)
    assert merged.information_lost == 0.0


@given(seeds, jitters)
def test_the_bound_is_below_the_log_evidence(seed, jitter):
    p = problem(seed, jitter=jitter)
    truth = reference.exact(p.k, p.X, p.y, p.noise, NEW)[2]
    assert p.fit().log_bound <= truth + 1e-8
    # with the inducing points among the rows, more of them never lower it
    low = -np.inf
    for m in (1, 3, 8, 20):
        value = p.fit(inducing=p.X[:m]).log_bound
        assert low - 1e-8 <= value <= truth + 1e-8
        low = value


@given(seeds, st.integers(-6, 6), st.integers(-6, 6), alphas)
def test_predictive_variances_are_never_negative(seed, noise, lengthscale, alpha):
    p = problem(seed)
    p.lengthscale *= 4.0**lengthscale
    p.noise *= 10.0**noise
    p.jitter = 1e-8
    state = p.model(alpha=alpha, inducing=p.X[:8]).fit(p.X, p.y, learn=False)
    for X in (p.X, p.Z, NEW, 1e3 * NEW):
        mean, variance = state.predict(X)
        assert np.all(np.isfinite(mean))
        assert np.all(variance >= 0)
        assert np.all(variance <= p.variance * (1 + 1e-9))
        mean, covariance = state.predict_covariance(X)
        assert np.linalg.eigvalsh(covariance).min() > -1e-9 * p.variance


@given(seeds, alphas)
def test_weights_are_copies(seed, alpha):
    p = problem(seed, n=12)
    weights = p.rng.integers(0, 4, 12)
    weights[0] = 2
    state = p.model(alpha=alpha).fit(p.X, p.y, sample_weight=weights, learn=False)
    X, y = np.repeat(p.X, weights, axis=0), np.repeat(p.y, weights)
    copies = p.fit(X, y, alpha=alpha)
    assert_state(state, (copies.mean, copies.covariance), copies.log_bound, 1e-10)
    any_weights = p.rng.uniform(0.1, 3, 12)
    state = p.model(alpha=alpha).fit(p.X, p.y, sample_weight=any_weights, learn=False)
    *q, value = reference.batch(p.k, p.Z, p.X, p.y, p.noise, alpha=alpha, jitter=p.jitter, weights=any_weights)
    assert_state(state, q, value, 1e-7)


@pytest.mark.filterwarnings("ignore:the 7 new:cavity.SettingsWarning")  # settings that are not those of the rows
@given(seeds, alphas)
def test_every_row_may_have_noise_and_an_offset_of_its_own(seed, alpha):
    p = problem(seed, n=12, d=2)
    noise, offset = p.rng.uniform(0.01, 2, 12), p.rng.normal(size=12)
    mean = np.array([0.5, -1.0, 2.0])
    state = p.model(alpha=alpha, mean=mean).fit(
        p.X[:5], p.y[:5], noise_variance=noise[:5], offset=offset[:5], learn=False
    )
    state.update(p.X[5:], p.y[5:], noise_variance=noise[5:], offset=offset[5:])
    rest = p.y - offset - mean[0] - p.X @ mean[1:]
    *q, value = reference.batch(p.k, p.Z, p.X, rest, noise, alpha=alpha, jitter=p.jitter)
    assert_state(state, q, value, 1e-7)
    new = p.rng.normal(size=(3, 2))
    predicted, spread = reference.predict(p.k, p.Z, q, new, p.jitter)
    actual = state.predict(new, offset=[1.0, 2.0, 3.0])
    np.testing.assert_allclose(actual[0], predicted + mean[0] + new @ mean[1:] + [1, 2, 3], atol=EARLY)
    np.testing.assert_allclose(actual[1], np.diag(spread), atol=EARLY)
    np.testing.assert_allclose(state.predict_covariance(new, offset=0)[1], spread, atol=EARLY)


# ------------------------------------------------------------------------------------------ other inducing points


def moved(state, covariance, Z, jitter, alpha):
    """Basis, factor and loss of a state under another covariance and other inducing points."""
    with Threads(1) as threads:
        basis = sparse.InducingBasis.of(covariance, np.ascontiguousarray(Z), jitter, threads)
        information, loss = old_data_factor.map_old_factor(
            state._now.information, state._now.basis, basis, alpha, threads
        )
    return basis, information.factorise(), loss


def moments(basis, information):
    """q(u)."""
    L = np.tril(basis.factor)
    half = triangles.solve_rows(information.factor, L.copy(order="C"))
    return L @ information.mean(), half @ half.T


def assert_moments(basis, information, q, value, atol):
    """Compare moments in standard deviations, and the bound."""
    mean, S = (reference.plain(part) for part in q)
    sd = np.sqrt(np.diag(S))
    actual = moments(basis, information)
    np.testing.assert_allclose(actual[0] / sd, mean / sd, rtol=0, atol=atol)
    np.testing.assert_allclose(actual[1] / np.outer(sd, sd), S / np.outer(sd, sd), rtol=0, atol=atol)
    assert information.log_bound == pytest.approx(reference.plain(value), abs=atol)


@examples(6)
@given(seeds, jitters, alphas)
def test_other_inducing_points_and_covariance_are_the_textbook_s(seed, jitter, alpha):
    p = problem(seed, n=8, m=4, jitter=jitter)
    state = p.fit(alpha=alpha)
    Z = np.vstack([p.Z[1:3], p.rng.uniform(-3, 3, (3, 1))])
    variance, lengthscale = p.rng.uniform(0.3, 3), p.rng.uniform(0.5, 2)
    basis, information, loss = moved(state, RBF(variance, lengthscale=lengthscale), Z, jitter, alpha)
    with mp.workdps(50):
        k_old = reference.rbf(mp.mpf(p.variance), mp.mpf(p.lengthscale))
        k = reference.rbf(mp.mpf(variance), mp.mpf(lengthscale))
        X, y, Z_a = p.many(("X", "y", "Z"))
        stream = reference.Stream(alpha=mp.mpf(alpha), jitter=mp.mpf(jitter))
        stream.update(k_old, Z_a, X, y, mp.mpf(p.noise))
        increment = stream.update(k, reference.many_digits(Z), X[:0], y[:0], mp.mpf(p.noise))
    assert_moments(basis, information, stream.q, stream.log_bound, 1e-8)
    assert information.log_bound - state.log_bound == pytest.approx(float(increment), abs=ROOT_EPS)
    assert loss >= 0


@given(seeds, jitters, alphas)
def test_more_inducing_points_change_nothing(seed, jitter, alpha):
    p = problem(seed, jitter=jitter)
    state = p.fit(alpha=alpha)
    Z = np.vstack([p.rng.uniform(-3, 3, (2, 1)), p.Z[::-1], p.rng.uniform(-3, 3, (2, 1))])
    basis, information, loss = moved(state, p.covariance, Z, jitter, alpha)
    assert abs(loss) < 1e-7
    assert information.log_bound == pytest.approx(state.log_bound, abs=EARLY)
    mean, S = moments(basis, information)
    sd = np.sqrt(np.diag(state.covariance))
    np.testing.assert_allclose(mean[2:8][::-1] / sd, state.mean / sd, atol=EARLY)
    np.testing.assert_allclose(
        S[2:8, 2:8][::-1, ::-1] / np.outer(sd, sd), state.covariance / np.outer(sd, sd), atol=EARLY
    )


@pytest.mark.long
def test_three_hundred_moves_forget_nothing():
    p = problem(3, n=300, m=12, jitter=1e-4)
    state = p.fit(p.X[:0], p.y[:0])
    untracked = p.fit(p.X[:0], p.y[:0])
    for i in range(300):
        for item, shift in ((state, 0.0), (untracked, 1e-12 * (-1) ** i)):
            order = p.rng.permutation(12)
            basis, information, loss = moved(item, p.covariance, item._now.basis.Z[order] + shift, p.jitter, 0.0)
            item._now = item._now.after(basis=basis, information=information)
            item.update(p.X[i : i + 1], p.y[i : i + 1])
    truth = p.fit()
    new = np.linspace(-4, 4, 50)[:, None]
    for a, b in zip(state.predict(new), truth.predict(new), strict=True):
        np.testing.assert_allclose(a, b, rtol=0, atol=INTEGRAL)
    assert state.log_bound == pytest.approx(truth.log_bound, abs=ROOT_EPS)
    # inducing points that are not the same any more have other nuggets: each move costs
    assert untracked.log_bound < truth.log_bound - 1.0


@pytest.mark.filterwarnings("ignore:the last:cavity.SettingsWarning")  # settings that are not those of the rows
@examples(3)
@given(seeds)
def test_three_hundred_batches_are_one(seed):
    p = problem(seed, n=300, m=10, jitter=1e-4)
    state = p.fit(p.X[:1], p.y[:1])
    for i in range(1, 300):
        state.update(p.X[i : i + 1], p.y[i : i + 1])
    truth = p.fit()
    for a, b in zip(state.predict(NEW), truth.predict(NEW), strict=True):
        np.testing.assert_allclose(a, b, rtol=0, atol=INTEGRAL)
    assert state.log_bound == pytest.approx(truth.log_bound, abs=ROOT_EPS)


@few
@given(seeds)
def test_merging_states_with_other_inducing_points(seed):
    p = problem(seed, jitter=1e-4)
    a = p.model(inducing=None, n_inducing=6, tolerance=0.0).fit(p.X[:15], p.y[:15], learn=False)
    b = p.model(inducing=None, n_inducing=6, tolerance=0.0).fit(p.X[15:], p.y[15:], learn=False)
    both = a.copy().merge(b)
    parts = []
    for state, rows in ((a, slice(0, 15)), (b, slice(15, None))):
        stream = reference.Stream(jitter=p.jitter)
        stream.update(p.k, state.inducing, p.X[rows], p.y[rows], p.noise)
        stream.update(p.k, both.inducing, p.X[:0], p.y[:0], p.noise)
        parts.append(stream)
    # prior times both factors: q_a q_b/p
    K = reference.prior_of(p.k, both.inducing, p.jitter)
    precision, shift, value = -np.linalg.inv(K), 0.0, np.linalg.slogdet(K)[1] / 2
    for stream in parts:
        mean, inverse = stream.q[0], np.linalg.inv(stream.q[1])
        precision, shift = precision + inverse, shift + inverse @ mean
        value += stream.log_bound + np.linalg.slogdet(inverse)[1] / 2 - mean @ inverse @ mean / 2
    S = np.linalg.inv(precision)
    value += shift @ S @ shift / 2 - np.linalg.slogdet(precision)[1] / 2
    assert_state(both, (S @ shift, S), value, 1e-6)
    assert both.last_information_lost >= 0
    assert both.n_samples == 30


@given(seeds, st.floats(0, 1))
def test_forgetting_is_a_power_of_the_likelihood(seed, factor):
    p = problem(seed)
    state = p.fit().forget(factor)
    if factor > 0:
        weighted = p.model().fit(p.X, p.y, sample_weight=np.full(30, factor), learn=False)
        assert_state(state, (weighted.mean, weighted.covariance), weighted.log_bound, 1e-9)
    else:
        prior = p.fit(p.X[:0], p.y[:0])
        assert_state(state, (prior.mean, prior.covariance), 0.0, 1e-12)


# ------------------------------------------------------------------------------------------ invariances of the model


@given(seeds, alphas, st.floats(-3, 3), st.integers(-20, 20))
def test_units_do_not_matter(seed, alpha, shift, power):
    p = problem(seed)
    state = p.fit(alpha=alpha)
    scale = 2.0**power
    model = cavity.StreamingGP(
        RBF(p.variance * scale**2, lengthscale=p.lengthscale * scale),
        likelihoods.Gaussian(p.noise * scale**2),
        mean=shift,
        inducing=p.Z * scale,
        jitter=p.jitter,
        alpha=alpha,
    )
    other = model.fit(p.X * scale, p.y * scale + shift, learn=False)
    tolerance = 1e-9 + 1e-13 * abs(shift) / scale
    assert other.log_bound == pytest.approx(state.log_bound - 30 * np.log(scale), rel=AT_REST, abs=1e4 * tolerance)
    np.testing.assert_allclose(
        (other.predict(NEW * scale)[0] - shift) / scale, state.predict(NEW)[0], atol=1e4 * tolerance
    )
    np.testing.assert_allclose(
        other.predict(NEW * scale)[1] / scale**2, state.predict(NEW)[1], rtol=OPTIMUM, atol=AT_REST
    )


@pytest.mark.parametrize("alpha", [0.0, 0.5, 1.0])
def test_alpha_runs_from_the_bound_to_fitc(alpha):
    p = problem(5)
    near = p.fit(alpha=min(1.0, alpha + 1e-9))
    assert_like(near, p.fit(alpha=alpha), 1e-6)


# ------------------------------------------------------------------------------------------ what updates decide


def drifting(seed, n_batches, size=10):
    """Batches of a wave whose rows move to the right."""
    rng = np.random.default_rng(seed)
    for i in range(n_batches):
        X = rng.normal(1.5 * i, 1.0, (size, 1))
        yield X, np.sin(2 * X[:, 0]) + 0.2 * rng.normal(size=size)


@pytest.mark.long_cases("1.0")
@pytest.mark.parametrize("alpha", [0.0, 0.5, 1.0])
def test_points_given_up_for_others_are_the_textbook_s(alpha):
    model = cavity.StreamingGP(RBF(1.0), likelihoods.Gaussian(0.05), n_inducing=7, alpha=alpha, jitter=1e-5)
    with mp.workdps(30):
        k, many = reference.rbf(mp.mpf(1), mp.mpf(1)), reference.many_digits
        truth, state, lost = reference.Stream(alpha=mp.mpf(alpha), jitter=mp.mpf(1e-5)), None, 0.0
        for X, y in drifting(1, 5):
            state = model.fit(X, y, learn=False) if state is None else state.update(X, y)
            increment = truth.update(k, many(state.inducing), many(X), many(y), mp.mpf(0.05))
            assert state.last_increment == pytest.approx(float(increment), abs=AT_REST)
            assert_state(state, truth.q, truth.log_bound, 1e-10)
            assert state.last_information_lost >= 0.0
            lost += state.last_information_lost
    assert state.n_inducing == 7
    assert state.inducing_ids.max() > 7
    assert state.information_lost == pytest.approx(lost, rel=SOLVES)
    assert lost > 0.1


@pytest.mark.parametrize("alpha", [0.0, 0.5])
def test_learnt_covariances_are_carried_over_as_in_the_textbook(alpha):
    Z = np.linspace(-2, 6, 9)[:, None]
    model = cavity.StreamingGP(RBF(1.0), likelihoods.Gaussian(0.05), inducing=Z, alpha=alpha, jitter=1e-5)
    truth, state, seen = reference.Stream(alpha=alpha, jitter=1e-5), None, set()
    for X, y in drifting(2, 4):
        state = model.fit(X, y, learn="covariance") if state is None else state.update(X, y, learn="covariance")
        covariance = state.model.covariance
        seen.add(covariance.variance)
        truth.update(reference.rbf(covariance.variance, covariance.lengthscale), Z, X, y, 0.05)
        assert_state(state, truth.q, truth.log_bound, 1e-7)
    assert len(seen) == 4


def test_learnt_noise_is_that_of_all_rows_so_far():
    Z = np.linspace(-2, 6, 9)[:, None]
    model = cavity.StreamingGP(RBF(1.0), likelihoods.Gaussian(0.5), inducing=Z, jitter=1e-5)
    state, history = None, []
    for X, y in drifting(3, 4):
        state = model.fit(X, y) if state is None else state.update(X, y, learn=True)
        covariance, noise = state.model.covariance, state.model.likelihood.noise_variance
        history.append((reference.rbf(covariance.variance, covariance.lengthscale), X, y))
        truth = reference.Stream(jitter=1e-5)
        for k, rows, values in history:
            truth.update(k, Z, rows, values, noise)
        assert_state(state, truth.q, truth.log_bound, 1e-7)
    assert 0.01 < noise < 0.2


def test_learning_noise_and_amplitude_again_is_exact():
    p = problem(6, n=40)
    state = p.fit(p.X[:15], p.y[:15]).update(p.X[15:], p.y[15:])
    before = state.log_bound
    state.learn()
    noise, variance = state.model.likelihood.noise_variance, state.model.covariance.variance
    assert state.log_bound > before + 0.1
    best = reference.batch(reference.rbf(variance, p.lengthscale), p.Z, p.X, p.y, noise, jitter=p.jitter)
    assert_state(state, best[:2], best[2], 1e-7)
    for s, t in ((1.02, 1.0), (0.98, 1.0), (1.0, 1.02), (1.0, 0.98)):
        k = reference.rbf(variance * s, p.lengthscale)
        assert reference.batch(k, p.Z, p.X, p.y, noise * t, jitter=p.jitter)[2] < state.log_bound
