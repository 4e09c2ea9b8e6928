"""GaussianMixturePosterior: the predictive density, sampling, and going on with more data."""

import mpmath as mp
import numpy as np
import pytest
from reference import gaussian_mixture as ref
from scipy import integrate, special, stats
from support import mixtures
from support.tolerances import AT_REST, EXPANSION, INTEGRAL, LAST_BIT, LOSSES, OPTIMUM, ROOT_EPS, ROUNDING, SOLVES, SUMS

import cavity
from cavity.distributions import Dirichlet, Gamma, NormalWishart, Wishart
from cavity.models.mixture import predictive

TWO = [[-2.0, 0.0], [2.0, 1.0]]


def data_for(covariance, seed, n):
    X = mixtures.draws(seed, n, TWO)
    return mixtures.with_gaps(X, seed) if covariance in ("diag", "spherical") else X


@pytest.mark.sample(3)
@mixtures.every_kind
def test_log_density_is_the_mixture_of_student_t_densities(covariance, weights):
    post = mixtures.model_of(covariance, 3, 2, weights).fit(
        mixtures.draws(0, 60, TWO), sample_weight=np.linspace(0.2, 2.0, 60)
    )
    X = np.array([[0.0, 0.0], [-2.0, 0.5], [40.0, -3.0], [1e9, 1e9]])
    if covariance in ("diag", "spherical"):
        X = np.vstack([X, [[np.nan, 1.0], [1.0, np.nan], [np.nan, np.nan]]])
    prior, q = mixtures.prior_of(post.model), mixtures.factors_of(post)
    expected = [ref.log_predictive(x, prior, q) for x in X]
    np.testing.assert_allclose(post.log_density(X), expected, rtol=LOSSES, atol=SUMS)


@pytest.mark.parametrize("nu", [30.0, 1e6, 1e9, 1e12, 1e15])
@mixtures.every_covariance
def test_log_density_keeps_its_digits_at_any_degrees_of_freedom(covariance, nu):
    prior = {"diag": [nu, 2.0 * nu], "spherical": nu}.get(covariance, [[nu, 0.5 * nu], [0.5 * nu, nu]])
    model = cavity.GaussianMixture(1, covariance, degrees_of_freedom_prior=nu, covariance_prior=prior)
    post = model.fit(mixtures.draws(0, 20, TWO))
    x = np.array([0.5, -1.0])
    mp.mp.dps = 50
    beta, nu = mp.mpf(float(np.ravel(post.mean_precision)[0])), mp.mpf(float(np.ravel(post.degrees_of_freedom)[0]))
    apart = [mp.mpf(item) - mp.mpf(float(m)) for item, m in zip(x, post.mean[0], strict=True)]
    scale = np.ravel(post.inverse_scale)
    if covariance in ("full", "tied"):  # one t of nu - 1 degrees of freedom; else each column, or both, of nu
        scale = mp.matrix(scale.reshape(2, 2).tolist()) * (1 + 1 / beta)
        parts = [(2, nu - 1, mp.det(scale), (mp.matrix([apart]) * mp.inverse(scale) * mp.matrix(apart))[0])]
    elif covariance == "diag":
        parts = [(1, nu, s * (1 + 1 / beta), d**2 / (s * (1 + 1 / beta))) for s, d in zip(scale, apart, strict=True)]
    else:
        wide = mp.mpf(float(scale[0])) * (1 + 1 / beta)
        parts = [(2, nu, wide**2, (apart[0] ** 2 + apart[1] ** 2) / wide)]
    expected = sum(
        mp.loggamma((n + d) / 2)
        - mp.loggamma(n / 2)
        - (d * mp.log(mp.pi) + mp.log(determinant)) / 2
        - (n + d) / 2 * mp.log1p(square)
        for d, n, determinant, square in parts
    )
    assert post.log_density([x])[0] == pytest.approx(float(expected), abs=SUMS)


@pytest.mark.long_cases("full")
@pytest.mark.sample(2)
@mixtures.every_covariance
def test_predictive_density_integrates_to_one(covariance):
    one = cavity.GaussianMixture(2, covariance).fit([[-1.0], [-1.2], [0.9], [1.1], [3.0]])
    total = integrate.quad(lambda t: np.exp(one.log_density([[np.sinh(t)]])[0]) * np.cosh(t), -20, 20, limit=400)[0]
    assert total == pytest.approx(1.0, abs=ROOT_EPS)
    two = mixtures.model_of(covariance, 2, 2, degrees_of_freedom_prior=4.0).fit(mixtures.draws(1, 50, TWO))
    t = np.linspace(-6.0, 6.0, 401)
    grid = np.stack(np.meshgrid(np.sinh(t), np.sinh(t)), axis=-1).reshape(-1, 2)
    values = np.exp(two.log_density(grid)).reshape(401, 401) * np.cosh(t) * np.cosh(t)[:, None]
    total = integrate.trapezoid(integrate.trapezoid(values, t), t)
    assert total == pytest.approx(1.0, abs=EXPANSION)  # what lies beyond 200


@mixtures.every_kind
def test_samples_follow_the_density(covariance, weights):
    few = np.full(80, 0.05)  # so that the means are known from a few rows only, which widens the density
    post = mixtures.model_of(covariance, 2, 2, weights, degrees_of_freedom_prior=8.0).fit(
        mixtures.draws(2, 80, TWO), sample_weight=few
    )
    sample = post.sample(20_000, 0)
    prior, q = mixtures.prior_of(post.model), mixtures.factors_of(post)
    pi = ref.expected_pi(prior, q)
    mean = pi @ post.mean
    second = np.zeros((2, 2))
    for k in range(2):
        nu, spread = post.degrees_of_freedom, 1 + 1 / post.mean_precision[k]
        nu = nu if covariance == "tied" else np.atleast_1d(nu[k])
        scatter = post.inverse_scale if covariance == "tied" else post.inverse_scale[k]
        less = 3 if covariance in ("full", "tied") else 2  # a t variable with nu degrees has variance scale/(nu - 2)
        matrix = scatter / (nu - less) if np.ndim(scatter) == 2 else np.diag(scatter / (nu - less) * np.ones(2))
        away = post.mean[k] - mean
        second += pi[k] * (spread * matrix + np.outer(away, away))
    np.testing.assert_allclose(sample.mean(axis=0), mean, atol=0.08)
    np.testing.assert_allclose(np.cov(sample.T), second, rtol=0.06, atol=0.1)
    inside = np.sum((sample[:, :, None] < [[0.5]]).all(axis=1)) / len(sample)
    grid = stats.qmc.Sobol(2, seed=0).random(2**12)
    box = np.exp(post.log_density(grid * [12.0, 12.0] - [11.5, 11.5])).mean() * 144.0
    assert inside == pytest.approx(box, abs=0.02)
    np.testing.assert_array_equal(post.sample(5, 3), post.sample(5, np.random.default_rng(3)))
    assert post.sample(0, 0).shape == (0, 2)


def test_draws_beyond_float64_are_refused():
    """A Student-t variable with 1e-6 degrees of freedom is typically exp(1e6)."""
    post = mixtures.model_of("full", 2, 2, degrees_of_freedom_prior=1.0 + 1e-6).fit([[0.0, 1.0]], sample_weight=[1e-6])
    with pytest.raises(OverflowError, match="sample: with so few degrees of freedom the draws leave the range"):
        post.sample(20, 0)


def test_predict_and_responsibilities():
    X = mixtures.faithful()
    post = cavity.GaussianMixture(2).fit(X)
    r = post.responsibilities(X)
    np.testing.assert_allclose(r.sum(axis=1), 1.0, rtol=ROUNDING)
    np.testing.assert_allclose(r.sum(axis=0), post.counts, rtol=INTEGRAL)
    np.testing.assert_array_equal(post.predict(X), np.argmax(r, axis=1))
    np.testing.assert_array_equal(post.responsibilities([[-1e9, 1e9], [1e9, 1e9]]).sum(axis=1), 1.0)
    with pytest.raises(OverflowError, match="so far from every component"):
        post.responsibilities([[2.0, 50.0], [1e300, 0.0]])


@mixtures.every_covariance
def test_one_component_is_conjugate(covariance):
    """Posteriors of K = 1 against the factors of cavity.distributions with their natural parameters added up."""
    X = mixtures.draws(3, 30, TWO)
    model = mixtures.model_of(covariance, 1, 2)
    post = model.fit(X)
    assert post.n_iter <= 2
    sums, squares = X.sum(axis=0), X.T @ X
    m0, beta, nu = np.array(model.mean_prior), model.mean_precision_prior, model.degrees_of_freedom_prior
    if covariance in ("full", "tied"):
        prior = NormalWishart(m0, beta, nu, np.array(model.covariance_prior))
        q = prior.with_natural(prior.natural + np.concatenate([sums, [-15.0, 15.0], -0.5 * squares.ravel()]))
        np.testing.assert_allclose(post.mean[0], q.mean, rtol=SOLVES)
        np.testing.assert_allclose(np.reshape(post.inverse_scale, (2, 2)), q.inverse_scale, rtol=LOSSES)
        assert np.ravel(post.degrees_of_freedom) == pytest.approx(q.degrees_of_freedom)
    else:
        scatter = squares.diagonal() + beta * m0**2 - (beta * m0 + sums) ** 2 / (beta + 30)
        shape, rate = np.full(2, 15.0), 0.5 * scatter
        if covariance == "spherical":
            shape, rate = shape.sum(), rate.sum()
        prior = Gamma(0.5 * nu, 0.5 * np.array(model.covariance_prior))
        q = Gamma(prior.shape + shape, prior.rate + rate)
        np.testing.assert_allclose(0.5 * np.squeeze(post.degrees_of_freedom), q.shape, rtol=SOLVES)
        np.testing.assert_allclose(0.5 * np.squeeze(post.inverse_scale), q.rate, rtol=SOLVES)
    np.testing.assert_allclose(post.mean_precision, [beta + 30])
    np.testing.assert_allclose(post.weight_concentration, [0.7 + 30])


@mixtures.every_covariance
def test_update_is_exact_for_one_component(covariance):
    X = data_for(covariance, 4, 60)
    model = mixtures.model_of(covariance, 1, 2)
    both, all_at_once = model.fit(X[:20]).update(X[20:]), model.fit(X)
    mixtures.assert_same_factors(both, all_at_once, rtol=SOLVES, atol=SOLVES)
    assert both.n_samples == 60.0
    np.testing.assert_allclose(both.counts, [60.0])
    # p(A, B) = p(A) p(B | A)
    assert model.fit(X[:20]).elbo + both.elbo == pytest.approx(all_at_once.elbo, rel=SOLVES)


@mixtures.every_kind
def test_update_is_close_for_clear_components_and_takes_gaps(covariance, weights):
    X = mixtures.draws(5, 600, np.array(TWO) * 4.0)
    model = mixtures.model_of(covariance, 2, 2, weights)
    start = np.array(TWO) * 4.0
    first = model.fit(X[:300], initial_means=start)
    rest = mixtures.with_gaps(X[300:]) if covariance in ("diag", "spherical") else X[300:]
    both = first.update(rest, n_threads=2)
    full = model.fit(np.vstack([X[:300], rest]), initial_means=start)
    np.testing.assert_allclose(both.mean, full.mean, atol=0.02)
    np.testing.assert_allclose(both.covariance, full.covariance, rtol=0.02, atol=0.02)
    np.testing.assert_allclose(both.counts, full.counts, rtol=OPTIMUM)
    weighted = first.update(X[300:], sample_weight=np.full(300, 2.0))
    assert weighted.n_samples == 900.0


@mixtures.every_kind
def test_merge_counts_the_data_of_both_and_the_prior_once(covariance, weights):
    X = data_for(covariance, 6, 90)
    one = mixtures.model_of(covariance, 1, 2, weights)
    merged = one.fit(X[:50]).merge(one.fit(X[50:]))
    mixtures.assert_same_factors(merged, one.fit(X), rtol=LOSSES, atol=LOSSES)
    assert (merged.n_samples, merged.converged, merged.elbo) == (90.0, False, None)
    clear = mixtures.draws(7, 400, np.array(TWO) * 5.0)
    model, start = mixtures.model_of(covariance, 2, 2, weights), np.array(TWO) * 5.0
    full = model.fit(clear, initial_means=start)
    a, b = model.fit(clear[:150], initial_means=start), model.fit(clear[150:], initial_means=start[::-1])
    merged = a.merge(b)  # whose components come in the other order
    mixtures.assert_same_factors(merged, full, rtol=OPTIMUM, atol=OPTIMUM)
    np.testing.assert_allclose(merged.counts, full.counts, rtol=OPTIMUM)


@pytest.mark.sample(3)
@mixtures.every_kind
def test_merge_is_addition_of_natural_parameters(covariance, weights):
    X = mixtures.draws(8, 80, TWO)
    own = np.array([[-1.0, 0.0], [1.0, 0.0]])  # priors that tell the components apart: none is swapped
    model = mixtures.model_of(covariance, 2, 2, weights, mean_prior=own)
    a, b = model.fit(X[:40]), model.fit(X[40:])
    merged = a.merge(b)
    concentration = a.weight_concentration + b.weight_concentration
    prior = 0.7 if weights == "dirichlet" else np.array([1.0, 0.7])
    np.testing.assert_allclose(merged.weight_concentration, concentration - prior, rtol=SOLVES)
    beta = a.mean_precision + b.mean_precision - 0.6
    np.testing.assert_allclose(merged.mean_precision, beta, rtol=SOLVES)
    pull = a.mean_precision[:, None] * a.mean + b.mean_precision[:, None] * b.mean - 0.6 * own
    np.testing.assert_allclose(merged.mean, pull / beta[:, None], rtol=INTEGRAL, atol=SOLVES)
    np.testing.assert_allclose(natural(merged), natural(a) + natural(b) - prior_natural(model, own), rtol=AT_REST)


def natural(post):
    """The natural parameters of the precisions: inverse scale plus precision-weighted squares of the means."""
    kind, beta = post.model.covariance, post.mean_precision
    if kind in ("full", "tied"):
        outer = beta[:, None, None] * post.mean[:, :, None] * post.mean[:, None, :]
        return post.inverse_scale + (outer.sum(axis=0) if kind == "tied" else outer)
    square = beta[:, None] * post.mean**2
    return post.inverse_scale + (square.sum(axis=1) if kind == "spherical" else square)


def prior_natural(model, means):
    scatter, beta = np.array(model.covariance_prior), model.mean_precision_prior
    if model.covariance in ("full", "tied"):
        outer = beta * means[:, :, None] * means[:, None, :]
        return scatter + (outer.sum(axis=0) if model.covariance == "tied" else outer)
    square = beta * means**2
    return scatter + (square.sum(axis=1) if model.covariance == "spherical" else square)


@mixtures.every_kind
def test_forget_is_a_step_back_to_the_prior(covariance, weights):
    X = mixtures.draws(9, 80, TWO)
    own = np.array([[-1.0, 0.0], [1.0, 0.0]])
    model = mixtures.model_of(covariance, 2, 2, weights, mean_prior=own)
    post = model.fit(X)
    half = post.forget(0.5)
    prior = 0.7 if weights == "dirichlet" else np.array([1.0, 0.7])
    np.testing.assert_allclose(half.weight_concentration, 0.5 * (post.weight_concentration + prior), rtol=SOLVES)
    np.testing.assert_allclose(half.mean_precision, 0.5 * (post.mean_precision + 0.6), rtol=SOLVES)
    np.testing.assert_allclose(natural(half), 0.5 * (natural(post) + prior_natural(model, own)), rtol=INTEGRAL)
    np.testing.assert_allclose(half.degrees_of_freedom, 0.5 * (post.degrees_of_freedom + 3.5), rtol=SOLVES)
    assert (half.n_samples, half.converged) == (40.0, False)
    mixtures.assert_same_factors(post.forget(1.0), post, rtol=SUMS)
    assert half.update(X).converged


def test_one_component_forgets_as_the_distributions_do():
    """K = 1, full: NormalWishart and Dirichlet of cavity.distributions, natural parameters mixed by hand."""
    X = mixtures.draws(10, 40, TWO)
    model = mixtures.model_of("full", 1, 2)
    post = model.fit(X)
    prior = NormalWishart(np.array(model.mean_prior), 0.6, 3.5, np.array(model.covariance_prior))
    q = NormalWishart(post.mean[0], post.mean_precision[0], post.degrees_of_freedom[0], post.inverse_scale[0])
    mixed = prior.with_natural(0.3 * q.natural + 0.7 * prior.natural)
    less = post.forget(0.3)
    np.testing.assert_allclose(less.mean[0], mixed.mean, rtol=LOSSES)
    np.testing.assert_allclose(less.inverse_scale[0], mixed.inverse_scale, rtol=LOSSES)
    expected = Wishart(mixed.degrees_of_freedom, mixed.inverse_scale).mean
    np.testing.assert_allclose(np.linalg.inv(less.covariance[0]), expected, rtol=LOSSES)
    three = mixtures.model_of("full", 3, 2).fit(X)
    np.testing.assert_allclose(three.weights, Dirichlet(three.weight_concentration).mean, rtol=ROUNDING)


def test_merge_refuses_what_does_not_fit():
    X = mixtures.draws(11, 60, TWO)
    post = mixtures.model_of("full", 2, 2).fit(X)
    others = {
        "same n_components, got 3 instead of 2": mixtures.model_of("full", 3, 2).fit(X),
        "same covariance, got 'diag'": mixtures.model_of("diag", 2, 2).fit(X),
        "same weights, got 'stick_breaking'": mixtures.model_of("full", 2, 2, "stick_breaking").fit(X),
        "data with 2 columns, got 1": mixtures.model_of("full", 2, 1).fit(X[:, :1]),
        "same priors": mixtures.model_of("full", 2, 2, mean_precision_prior=0.7).fit(X),
    }
    for message, other in others.items():
        with pytest.raises(ValueError, match=message):
            post.merge(other)
    with pytest.raises(TypeError, match="other must be a GaussianMixturePosterior, got int"):
        post.merge(3)
    with pytest.raises(ValueError, match="factor must be in"):
        post.forget(0.0)
    with pytest.raises(ValueError, match="X must have 2 columns"):
        post.update(X[:, :1])
    with pytest.raises(TypeError, match="unexpected keyword argument 'initial_means'"):
        post.update(X, initial_means=TWO)
    with pytest.raises(ValueError, match="X must have 2 columns"):
        post.predict([[1.0]])
    with pytest.raises(ValueError, match=r"X must be finite, got X\[1, 1\] = nan"):
        post.log_density([[1.0, 2.0], [1.0, np.nan]])


@pytest.mark.long_cases("stick_breaking")
@pytest.mark.parametrize("weights", mixtures.WEIGHTS)
def test_save_keeps_every_bit(tmp_path, weights):
    for covariance in mixtures.COVARIANCES:
        X = data_for(covariance, 12, 50)
        post = mixtures.model_of(covariance, 3, 2, weights, mean_precision_prior=[0.5, 0.6, 0.7]).fit(X)
        for item in (post, post.update(X), post.forget(0.5), post.merge(post)):
            item.save(tmp_path / "post.npz")
            back = cavity.load(tmp_path / "post.npz")
            assert repr(back) == repr(item)
            assert back.model == item.model
            assert (back.status, back.converged, back.n_iter) == (item.status, item.converged, item.n_iter)
            mixtures.assert_same_bits(back, item)
            np.testing.assert_array_equal(back.log_density(X), item.log_density(X))
            np.testing.assert_array_equal(back.responsibilities(X), item.responsibilities(X))
            mixtures.assert_same_bits(back.update(X), item.update(X))
            for name, values in item.trace.items():
                np.testing.assert_array_equal(back.trace[name], values)


def test_posteriors_are_frozen():
    post = cavity.GaussianMixture(2).fit(mixtures.faithful())
    with pytest.raises(AttributeError):
        post.elbo = 0.0
    for array in (post.counts, post.weight_concentration, post.mean_precision, post.degrees_of_freedom):
        with pytest.raises(ValueError, match="read-only"):
            array[0] = 1.0
    assert len(repr(post).splitlines()) <= 6


@pytest.mark.parametrize("covariance", ["diag", "spherical"])
def test_data_with_and_without_gaps_go_together(covariance, tmp_path):
    """One component, so that everything is exact: update, merge and forget of posteriors of both kinds."""
    X = mixtures.draws(13, 60, TWO)
    X[20:] = mixtures.with_gaps(X[20:])
    model = mixtures.model_of(covariance, 1, 2)
    full = model.fit(X)
    plain, gaps = model.fit(X[:20]), model.fit(X[20:])
    for post in (plain.update(X[20:]), gaps.update(X[:20]), plain.merge(gaps), gaps.merge(plain)):
        mixtures.assert_same_factors(post, full, rtol=LOSSES, atol=SOLVES)
        mixtures.assert_same_factors(post.forget(0.4), full.forget(0.4), rtol=LOSSES, atol=SOLVES)
        post.save(tmp_path / "post.npz")
        mixtures.assert_same_factors(
            cavity.load(tmp_path / "post.npz").merge(plain), full.merge(plain), rtol=LOSSES, atol=SOLVES
        )
    only = np.column_stack([X[:20, 0], np.full(20, np.nan)])  # more of the first column alone
    more = full.update(only)
    mixtures.assert_same_factors(more, model.fit(np.vstack([X, only])), rtol=LOSSES, atol=SOLVES)


@pytest.mark.parametrize("covariance", ["full", "diag"])
def test_rows_out_of_reach_are_named(covariance):
    post = cavity.GaussianMixture(2, covariance).fit(mixtures.draws(2, 80, TWO))
    rows = np.zeros((70_000, 2))
    rows[69_999, 1] = 1e200
    for method in (post.responsibilities, post.predict, post.log_density):
        with pytest.raises(OverflowError, match=r"X\[69999\] is so far from every component"):
            method(rows)
        assert np.all(np.isfinite(method(rows[:3] + 1e140)))


@pytest.mark.parametrize("k", [1, 3, 20])
def test_sums_and_shares_of_logs(k):
    logs = 30.0 * np.random.default_rng(k).normal(size=(50, k))
    logs[:3] = logs[:3, :1]
    logs[3, 1:] = -np.inf
    np.testing.assert_allclose(predictive.compute_log_sum(logs), special.logsumexp(logs, axis=1), rtol=LAST_BIT)
    np.testing.assert_allclose(predictive.compute_shares(logs), special.softmax(logs, axis=1), rtol=ROUNDING)
    assert predictive.compute_log_sum(np.full((1, k), -np.inf)) == [-np.inf]
    assert predictive.compute_log_sum(np.array([[0.0, -60.0]])) == [np.exp(-60.0)]
