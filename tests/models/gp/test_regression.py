"""Exact Gaussian process regression: dense formulas, closed forms, many digits; its laws and extremes."""

import pickle

import mpmath
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from reference import gaussian_process as reference
from scipy.stats import multivariate_normal, norm
from support.examples import examples
from support.gaussian_processes import COVARIANCES, covariance, problem
from support.tolerances import AT_REST, EXPANSION, INTEGRAL, LOSSES, PRINTED, ROOT_EPS, ROUNDING, SLOPES, SOLVES, SUMS

import cavity
from cavity import GaussianProcess, covariances, likelihoods

LOG_2PI = np.log(2 * np.pi)
NEW = np.random.default_rng(99).uniform(-3, 3, (20, 2))


def fit(X, y, kernel="RBF", noise=0.3, mean=0.0, **options):
    """A fit without learning; `kernel` is a name or a covariance."""
    kernel = covariance(kernel)[0] if isinstance(kernel, str) else kernel
    model = GaussianProcess(kernel, likelihoods.Gaussian(noise), mean=mean)
    return model.fit(X, y, **dict(learn=False) | options)


def rbf(variance):
    """The covariance "RBF" with another variance, of any size."""
    return covariances.RBF(variance, lengthscale=[0.7, 1.8], fixed=("variance",))


def data(n=20, seed=0):
    """Rows and observations."""
    _, X, y = problem("Gaussian", n, seed=seed)
    return X, y


def assert_is(posterior, mean, S, evidence, atol=1e-10):
    """Compare with numbers of the reference."""
    np.testing.assert_allclose(posterior.mean, mean, rtol=0, atol=atol)
    np.testing.assert_allclose(posterior.covariance, S, rtol=0, atol=atol)
    np.testing.assert_allclose(posterior.variance, np.diag(S), rtol=0, atol=atol)
    assert posterior.log_evidence == pytest.approx(evidence, abs=10 * atol)


# ------------------------------------------------------------------------------------------ formulas


@pytest.mark.parametrize("kernel", COVARIANCES)
def test_equals_the_dense_formulas(kernel):
    X, y = data()
    k = covariance(kernel)[1]
    posterior = fit(X, y, kernel)
    assert posterior.converged
    assert posterior.n_samples == 20
    assert_is(posterior, *reference.regression(k(X, X), y, 0.3))
    inverse = np.linalg.inv(k(X, X) + 0.3 * np.eye(20))
    f, v = posterior.predict(NEW)
    cross = k(X, NEW)
    np.testing.assert_allclose(f, cross.T @ inverse @ y, rtol=0, atol=INTEGRAL)
    np.testing.assert_allclose(v, np.diag(k(NEW, NEW) - cross.T @ inverse @ cross), rtol=0, atol=INTEGRAL)
    with_noise = posterior.predict(NEW, noise=True)
    np.testing.assert_array_equal(with_noise[0], f)
    np.testing.assert_allclose(with_noise[1], v + 0.3, rtol=ROUNDING)
    _, joint = posterior.predict_covariance(NEW)
    np.testing.assert_allclose(joint, k(NEW, NEW) - cross.T @ inverse @ cross, rtol=0, atol=INTEGRAL)
    t = np.linspace(-2, 2, 20)
    np.testing.assert_allclose(
        posterior.log_density(NEW, t), norm(f, np.sqrt(with_noise[1])).logpdf(t), rtol=0, atol=INTEGRAL
    )
    np.testing.assert_array_equal(posterior.expected(NEW), f)


def test_closed_form_of_one_row():
    for k, s, y, mean in ((2.0, 0.5, 1.3, 0.0), (1e8, 1e-10, -3.0, 1.0), (1e-8, 1e8, 1.0, 0.0)):
        posterior = fit([[0.7]], [y], covariances.RBF(k, fixed=("variance",)), s, mean)
        assert posterior.mean[0] == pytest.approx(mean + k / (k + s) * (y - mean), rel=ROUNDING)
        assert posterior.variance[0] == pytest.approx(k * s / (k + s), rel=SOLVES)
        assert posterior.log_evidence == pytest.approx(norm(mean, np.sqrt(k + s)).logpdf(y), rel=SUMS)
        assert posterior.loo_log_density[0] == pytest.approx(posterior.log_evidence, rel=SOLVES)


def test_closed_form_of_two_rows():
    """Sum and difference of two exchangeable values are independent."""
    X, y, s = np.array([[0.0], [0.9]]), np.array([1.0, -0.4]), 0.2
    k, r = 1.7, 1.7 * np.exp(-(0.9**2) / 2)
    plus, minus = k + r, k - r
    shrunk = np.array([plus / (plus + s), minus / (minus + s)])
    u, w = shrunk * np.array([y.sum(), y[0] - y[1]])
    posterior = fit(X, y, covariances.RBF(k), s)
    np.testing.assert_allclose(posterior.mean, [(u + w) / 2, (u - w) / 2], rtol=SUMS)
    np.testing.assert_allclose(posterior.variance, s * shrunk.mean(), rtol=SUMS)
    both = norm(0, np.sqrt(plus + s)).logpdf(y.sum() / np.sqrt(2)) + norm(0, np.sqrt(minus + s)).logpdf(
        (y[0] - y[1]) / np.sqrt(2)
    )
    assert posterior.log_evidence == pytest.approx(both, rel=SUMS)


@pytest.mark.parametrize("n", [1, 2, 3])
@pytest.mark.parametrize(
    ("variance", "noise", "tolerance"), [(1.0, 0.1, 1e-13), (100.0, 1e-3, 1e-10), (1e4, 1e-6, 1e-5)]
)
def test_many_digits(n, variance, noise, tolerance):
    """The error is that of rounding K, which the condition number variance/noise multiplies."""
    x, y = np.array([0.3, 0.5, 1.7])[:n], np.array([0.4, -1.1, 0.9])[:n]
    with reference.mp.workdps(60):
        points = [reference.mp.mpf(float(v)) for v in x]
        K = [[variance * reference.mp.exp(-((a - b) ** 2) / 2) for b in points] for a in points]
    mean, S, evidence = reference.regression_many_digits(K, y.tolist(), [reference.mp.mpf(noise)] * n)
    posterior = fit(x[:, None], y, covariances.RBF(variance), noise)
    sd = np.sqrt(np.diag(S))
    assert np.max(np.abs(posterior.mean - mean) / (1 + np.abs(mean))) < tolerance
    assert np.max(np.abs(posterior.covariance - S) / np.outer(sd, sd)) < tolerance
    assert posterior.log_evidence == pytest.approx(evidence, rel=tolerance)


@pytest.mark.parametrize("mean", [0.7, [0.7, -0.2, 0.5]], ids=["number", "linear"])
def test_known_means(mean):
    X, y = data()
    prior = 0.7 + (X @ [-0.2, 0.5] if np.ndim(mean) else np.zeros(20))
    assert_is(fit(X, y, mean=mean), *reference.regression(covariance()[1](X, X), y, 0.3, prior))
    assert np.shape(fit(X, y, mean=mean).model.mean) == np.shape(mean)


def test_unknown_means_are_those_of_generalised_least_squares():
    X, y = data(30)
    kernel = covariance()[0].fix()
    assert kernel.parameter_names == ()
    S = covariance()[1](X, X) + 0.3 * np.eye(30)
    for mean, H in (("constant", np.ones((30, 1))), ("linear", np.column_stack([np.ones(30), X]))):
        model = GaussianProcess(kernel, likelihoods.Gaussian(0.3), mean=mean)
        learnt = model.fit(X, y, learn="covariance", tol=1e-10)
        b = np.linalg.solve(H.T @ np.linalg.solve(S, H), H.T @ np.linalg.solve(S, y))
        np.testing.assert_allclose(learnt.model.mean, b if mean == "linear" else b[0], rtol=0, atol=SLOPES)
        assert learnt.model.likelihood.noise_variance == 0.3
        assert_is(learnt, *reference.regression(S - 0.3 * np.eye(30), y, 0.3, H @ b), atol=PRINTED)
        far = np.array([[300.0, 400.0]])
        value = (np.append(1.0, far) @ b) if mean == "linear" else b[0]
        assert learnt.predict(far)[0][0] == pytest.approx(value, rel=SLOPES)


def test_known_noise_of_every_row():
    X, y = data()
    noise = np.random.default_rng(4).uniform(0.01, 2.0, 20)
    K = covariance()[1](X, X)
    model = GaussianProcess(covariance()[0])
    posterior = model.fit(X, y, noise_variance=noise, learn=False)
    assert_is(posterior, *reference.regression(K, y, noise))
    same = fit(X, y, noise_variance=np.full(20, 0.3), noise=55.0)  # in place of the likelihood's
    assert_is(same, *reference.regression(K, y, 0.3))
    for i in range(0, 20, 7):
        rest = np.arange(20) != i
        m, _, _ = reference.regression(K[np.ix_(rest, rest)], y[rest], noise[rest])
        cross = K[rest, i]
        S = K[np.ix_(rest, rest)] + np.diag(noise[rest])
        m, v = cross @ np.linalg.solve(S, y[rest]), K[i, i] - cross @ np.linalg.solve(S, cross)
        assert posterior.loo_log_density[i] == pytest.approx(norm(m, np.sqrt(v + noise[i])).logpdf(y[i]), abs=INTEGRAL)


@pytest.mark.parametrize("kernel", ["RBF", "Matern12", "sum"])
def test_leave_one_out_is_refitting_without_the_row(kernel):
    X, y = data(25)
    posterior = fit(X, y, kernel, mean=0.4)
    for i in range(25):
        rest = np.arange(25) != i
        refit = fit(X[rest], y[rest], kernel, mean=0.4)
        f, v = refit.predict(X[i : i + 1])
        expected = norm(f[0], np.sqrt(v[0] + 0.3)).logpdf(y[i])
        assert posterior.loo_log_density[i] == pytest.approx(expected, abs=INTEGRAL)
        assert posterior.log_evidence == pytest.approx(refit.log_evidence + expected, abs=INTEGRAL)  # chain rule


@pytest.mark.parametrize("weights", ["integer", "fractional"])
def test_weights_are_powers_of_the_likelihood(weights):
    X, y = data()
    rng = np.random.default_rng(5)
    w = rng.integers(1, 4, 20).astype(float) if weights == "integer" else rng.uniform(0.1, 2.5, 20)
    posterior = fit(X, y, sample_weight=w)
    mean, S, evidence = reference.regression(covariance()[1](X, X), y, 0.3 / w)
    # N(y; f, s)^w is N(y; f, s/w) times a constant
    constant = 0.5 * np.sum(np.log(2 * np.pi * 0.3 / w) - w * np.log(2 * np.pi * 0.3))
    assert_is(posterior, mean, S, evidence + constant)
    if weights == "integer":
        times = w.astype(int)
        repeated = fit(np.repeat(X, times, axis=0), np.repeat(y, times))
        first = np.cumsum(times) - times
        assert posterior.log_evidence == pytest.approx(repeated.log_evidence, abs=AT_REST)
        np.testing.assert_allclose(posterior.mean, repeated.mean[first], rtol=0, atol=INTEGRAL)
        np.testing.assert_allclose(posterior.loo_log_density, repeated.loo_log_density[first], rtol=0, atol=INTEGRAL)
    else:  # one observation is left out of a row, or all there is of it
        i = int(np.argmin(w))
        rest = np.arange(20) != i
        left = fit(X[rest], y[rest], sample_weight=w[rest]).log_density(X[i : i + 1], y[i : i + 1])
        assert w[i] < 1.0
        assert posterior.loo_log_density[i] == pytest.approx(left[0], abs=INTEGRAL)
    noise = np.linspace(0.1, 1.0, 20)
    truth = GaussianProcess(covariance()[0]).fit(X, y, noise_variance=noise, sample_weight=w, learn=False)
    np.testing.assert_allclose(
        truth.mean, reference.regression(covariance()[1](X, X), y, noise / w)[0], rtol=0, atol=INTEGRAL
    )


def test_rows_of_weight_zero_are_left_out_and_predicted():
    X, y = data()
    used = np.arange(20) % 3 > 0
    posterior, rest = fit(X, y, sample_weight=used.astype(float)), fit(X[used], y[used])
    assert posterior.log_evidence == pytest.approx(rest.log_evidence, abs=SOLVES)
    np.testing.assert_allclose(posterior.predict(NEW), rest.predict(NEW), rtol=0, atol=SOLVES)
    np.testing.assert_allclose(posterior.loo_log_density[used], rest.loo_log_density, rtol=0, atol=SOLVES)
    np.testing.assert_allclose(
        posterior.loo_log_density[~used], rest.log_density(X[~used], y[~used]), rtol=0, atol=SOLVES
    )


def test_offsets_shift_the_observations():
    X, y = data()
    offset = np.random.default_rng(3).normal(size=20)
    a, b = fit(X, y, offset=offset), fit(X, y - offset)
    np.testing.assert_allclose(a.mean, b.mean + offset, rtol=0, atol=SOLVES)
    np.testing.assert_allclose(a.covariance, b.covariance, rtol=0, atol=SOLVES)
    assert a.log_evidence == pytest.approx(b.log_evidence, abs=LOSSES)
    np.testing.assert_allclose(a.predict(NEW, offset=0), b.predict(NEW), rtol=0, atol=SOLVES)
    np.testing.assert_allclose(a.predict(NEW, offset=np.ones(20))[0], b.predict(NEW)[0] + 1, rtol=0, atol=SOLVES)


# ------------------------------------------------------------------------------------------ laws


@given(st.permutations(range(20)), st.floats(-5, 5), st.floats(0.01, 100))
@examples(10)
def test_order_shift_and_scale(order, shift, scale):
    """y -> scale y + shift with the prior scaled and shifted alike: the evidence changes by the Jacobian."""
    X, y = data()
    a = fit(X, y)
    b = fit(X[order], scale * y[order] + shift, rbf(1.5 * scale**2), 0.3 * scale**2, shift)
    np.testing.assert_allclose(b.mean, scale * a.mean[order] + shift, rtol=0, atol=AT_REST * max(1, scale))
    np.testing.assert_allclose(b.variance, scale**2 * a.variance[order], rtol=AT_REST)
    assert b.log_evidence == pytest.approx(a.log_evidence - 20 * np.log(scale), abs=AT_REST)


@given(st.integers(1, 19), st.integers(0, 3), st.sampled_from(["RBF", "Matern32", "sum"]))
@examples(15)
def test_update_is_refitting_with_all_rows(first, seed, kernel):
    X, y = data(20, seed)
    full, parts = fit(X, y, kernel), fit(X[:first], y[:first], kernel)
    middle = (first + 20) // 2
    if middle > first:
        parts = parts.update(X[first:middle], y[first:middle])
    parts = parts.update(X[middle:], y[middle:])
    assert parts.n_samples == 20
    assert_is(parts, full.mean, full.covariance, full.log_evidence)
    np.testing.assert_allclose(parts.loo_log_density, full.loo_log_density, rtol=0, atol=INTEGRAL)
    np.testing.assert_allclose(parts.predict(NEW), full.predict(NEW), rtol=0, atol=INTEGRAL)
    np.testing.assert_allclose(parts.log_evidence_gradient, full.log_evidence_gradient, rtol=ROOT_EPS, atol=ROOT_EPS)


def test_samples_have_the_moments():
    X, y = data()
    posterior = fit(X, y)
    rows = np.vstack([X[:2], NEW[:3]])
    draws = posterior.sample(rows, 20_000, 3)
    mean, joint = posterior.predict_covariance(rows)
    assert np.all(np.abs(draws.mean(axis=0) - mean) < 5 * np.sqrt(np.diag(joint) / 20_000))
    spread = np.sqrt((np.outer(np.diag(joint), np.diag(joint)) + joint**2) / 20_000)
    assert np.all(np.abs(np.cov(draws.T) - joint) < 5 * spread)


# ------------------------------------------------------------------------------------------ extremes


@pytest.mark.parametrize("noise", [1e-10, 1e-12])
def test_noise_near_zero_interpolates(noise):
    x = np.linspace(-2, 2, 9)[:, None]
    y = np.sin(2 * x[:, 0])
    posterior = fit(x, y, covariances.Matern32(1.0, 1.0), noise)
    np.testing.assert_allclose(posterior.mean, y, rtol=0, atol=ROOT_EPS)
    np.testing.assert_allclose(posterior.variance, noise, rtol=EXPANSION)
    K = reference.matern(3, 1.0, 1.0)(x, x)
    exact = multivariate_normal(np.zeros(9), K + noise * np.eye(9)).logpdf(y)
    assert posterior.log_evidence == pytest.approx(exact, rel=ROOT_EPS)


def test_fifty_copies_of_one_row_under_a_wide_prior():
    """The closed form: the mean of the copies is all that matters. B has the condition 5e11: four digits are left."""
    X, y, k, noise = np.full((50, 1), 0.3), np.random.default_rng(0).normal(2.0, 1.0, 50), 1e8, 1e-2
    posterior = fit(X, y, covariances.RBF(k, fixed=("variance",)), noise)
    v = 1 / (1 / k + 50 / noise)
    np.testing.assert_allclose(posterior.mean, v * y.sum() / noise, rtol=0, atol=1e-2 * np.sqrt(v))
    np.testing.assert_allclose(posterior.variance, v, rtol=EXPANSION)
    np.testing.assert_allclose(posterior.covariance, v, rtol=EXPANSION)
    exact = -0.5 * (
        50 * LOG_2PI + 49 * np.log(noise) + np.log(noise + 50 * k) + (y @ y - v / noise * y.sum() ** 2) / noise
    )
    assert posterior.log_evidence == pytest.approx(exact, rel=SLOPES)
    left = y.mean() * 50 / 49 - y / 49  # mean of the others, whose variance is noise/49
    loo = norm(left, np.sqrt(noise + noise / 49)).logpdf(y)
    np.testing.assert_allclose(posterior.loo_log_density, loo, rtol=EXPANSION)


def test_noise_that_is_lost_in_rounding_is_refused():
    X, y = np.full((50, 1), 0.3), np.random.default_rng(0).normal(2.0, 1.0, 50)
    with pytest.raises(
        cavity.NotPositiveDefiniteError, match="noise of variance 1e-10 .* prior variance of 1e.08; raise"
    ):
        fit(X, y, covariances.RBF(1e8, fixed=("variance",)), 1e-10)


@pytest.mark.parametrize("lengthscale", [1e-300, 1e-6])
def test_tiny_lengthscales_are_independent_rows(lengthscale):
    X, y = data()
    posterior = fit(X, y, covariances.RBF(1.5, lengthscale, fixed=("lengthscale",)))
    assert_is(posterior, y * 1.5 / 1.8, 0.45 / 1.8 * np.eye(20), norm(0, np.sqrt(1.8)).logpdf(y).sum(), atol=SOLVES)
    np.testing.assert_array_equal(posterior.predict(NEW), [np.zeros(20), np.full(20, 1.5)])


@pytest.mark.parametrize("lengthscale", [1e6, 1e300])
def test_huge_lengthscales_are_one_value(lengthscale):
    X, y = data()
    posterior = fit(X, y, covariances.RBF(1.5, lengthscale, fixed=("lengthscale",)))
    v = 1 / (1 / 1.5 + 20 / 0.3)
    np.testing.assert_allclose(posterior.mean, v * y.sum() / 0.3, rtol=0, atol=SLOPES)
    np.testing.assert_allclose(posterior.covariance, v, rtol=SLOPES)


@pytest.mark.parametrize("scale", [1e-150, 1e-30, 1e30, 1e140])
def test_units_of_y_do_not_matter(scale):
    """Powers of ten of the range of float64: variances are squares."""
    X, y = data()
    a, b = fit(X, y), fit(X, scale * y, rbf(1.5 * scale**2), 0.3 * scale**2)
    np.testing.assert_allclose(b.mean / scale, a.mean, rtol=AT_REST, atol=SOLVES)
    np.testing.assert_allclose(b.variance / scale**2, a.variance, rtol=AT_REST)
    assert b.log_evidence == pytest.approx(a.log_evidence - 20 * np.log(scale), rel=INTEGRAL)


def test_huge_observations_end_in_numbers_or_a_sentence():
    X, y = data()
    posterior = fit(X, 1e150 * y)
    np.testing.assert_allclose(posterior.mean / 1e150, fit(X, y).mean, rtol=AT_REST, atol=SOLVES)
    assert posterior.log_evidence == pytest.approx(
        1e300 * (-0.5 * y @ np.linalg.solve(covariance()[1](X, X) + 0.3 * np.eye(20), y)), rel=AT_REST
    )
    with pytest.raises(OverflowError, match="range of float64"):
        fit(X, 1e200 * y)


@pytest.mark.long_cases("0.0001")
@pytest.mark.sample(2)
@pytest.mark.parametrize("noise", [1e-4, 1e-8, 1e-10])
def test_predictions_keep_their_digits_where_the_noise_is_small(noise):
    X, new = np.linspace(0, 6, 25)[:, None], np.linspace(0.1, 5.9, 9)[:, None]
    posterior = GaussianProcess(covariances.RBF(25.0, 2.0), likelihoods.Gaussian(noise)).fit(
        X, np.sin(X[:, 0]), learn=False
    )
    with mpmath.workdps(60):

        def k(a, b):
            return 25 * mpmath.exp(-((mpmath.mpf(float(a)) - mpmath.mpf(float(b))) ** 2) / 8)

        gram = mpmath.matrix(25, 25)
        for i, a in enumerate(X[:, 0]):
            for j, b in enumerate(X[:, 0]):
                gram[i, j] = k(a, b) + (mpmath.mpf(noise) if i == j else 0)
        cross = [mpmath.matrix([k(z, x) for x in X[:, 0]]) for z in new[:, 0]]
        exact = np.array([float(25 - (column.T * mpmath.lu_solve(gram, column))[0]) for column in cross])
    # of the prior variance, as promised; through the inverse of the triangle it would be up to 1e-10
    assert np.max(np.abs(posterior.predict(new)[1] - exact)) < 25 * 5e-15


def test_variances_and_leave_one_out_come_when_they_are_asked_for():
    X, y = np.linspace(0, 5, 40)[:, None], np.sin(np.linspace(0, 5, 40))
    for noise in (0.01, 30.0):  # sites that know their values better than the prior does, and worse
        model = GaussianProcess(covariances.RBF(2.0), likelihoods.Gaussian(noise))
        full, grown = model.fit(X, y, learn=False), model.fit(X[:25], y[:25], learn=False).update(X[25:], y[25:])
        copied = pickle.loads(pickle.dumps(grown))
        for posterior in (grown, copied):
            for name in ("mean", "variance", "loo_log_density"):
                result = getattr(posterior, name)
                np.testing.assert_allclose(result, getattr(full, name), rtol=AT_REST, atol=SOLVES)
                assert not result.flags.writeable
        np.testing.assert_array_equal(grown.variance, copied.variance)
        np.testing.assert_allclose(full.variance, full.predict(X)[1], rtol=AT_REST)
