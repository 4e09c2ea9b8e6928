"""Posteriors of GLMs and Gaussian processes integrated over hyperparameters, against integrals by brute force."""

from dataclasses import replace

import numpy as np
import pytest
from scipy import integrate, special, stats
from support.tolerances import AT_REST, EARLY, EXPANSION, INTEGRAL, LAST_BIT, OPTIMUM, ROOT_EPS, SUMS

import cavity
from cavity import likelihoods
from cavity.covariances import RBF
from cavity.priors import LogNormal

RNG = np.random.default_rng(23)
TIMES = RNG.gamma(2.0, 0.5, size=12)
X = np.sort(RNG.uniform(0.0, 6.0, 25))[:, None]
WAVE = np.sin(X[:, 0]) + 0.3 * RNG.normal(size=25)


def fit_times(setting, **options):
    """An intercept N(0, 4), and the shape of gamma distributions."""
    model = cavity.GLM("gamma", prior_variance=4.0, priors={"shape": LogNormal(2.0, 1.0)}, integrate=setting)
    return model.fit(np.ones((12, 1)), TIMES, **options)


@pytest.fixture(scope="module")
def times():
    return fit_times("grid")


def test_the_shape_of_gamma_distributions_by_quadrature(times):
    """Evidence, shape and intercept, against a two-dimensional integral."""
    logs, f = np.linspace(-2.5, 4.0, 261), np.linspace(-2.5, 2.5, 401)
    shapes = np.exp(logs)[:, None]
    log_joint = stats.norm(0.0, 2.0).logpdf(f) + stats.norm(np.log(2.0), 1.0).logpdf(logs)[:, None]
    for y in TIMES:
        log_joint = log_joint + shapes * (np.log(shapes) - f + np.log(y) - y * np.exp(-f)) - np.log(y)
    log_joint -= 12 * special.gammaln(shapes)
    joint = np.exp(log_joint)
    by_shape = integrate.simpson(joint, x=f, axis=1)
    total = integrate.simpson(by_shape, x=logs)
    assert times.log_evidence + times.evidence_correction == pytest.approx(np.log(total), abs=EXPANSION)
    mean = integrate.simpson(np.exp(logs) * by_shape, x=logs) / total
    table = times.integration.table()
    assert table.columns["mean"][0] == pytest.approx(mean, rel=0.005)
    below = (np.cumsum(by_shape) - 0.5 * by_shape) / np.sum(by_shape)
    marginal = times.marginal("shape")
    spread = table.columns["sd"][0]
    for p in (0.025, 0.5, 0.975):
        assert marginal.quantile(p) == pytest.approx(np.exp(np.interp(p, below, logs)), abs=0.05 * spread)
    by_f = integrate.simpson(joint, x=logs, axis=0) / total
    mean = integrate.simpson(f * by_f, x=f)
    sd = np.sqrt(integrate.simpson((f - mean) ** 2 * by_f, x=f))
    assert times.mean[0] == pytest.approx(mean, abs=0.01 * sd)
    assert times.marginal("x1").sd == pytest.approx(sd, rel=0.01)
    ends = np.interp([0.025, 0.975], (np.cumsum(by_f) - 0.5 * by_f) / np.sum(by_f), f)
    np.testing.assert_allclose(times.interval()[0], ends, atol=0.03 * sd)
    for factor in (1.0, -0.5):  # f of new rows, without and with skewness
        wanted, settings = np.sort(factor * ends) + 0.2, {"new_rows": [[9.0], [factor]]}
        np.testing.assert_allclose(times.marginal(1, offset=0.2, **settings).interval(), wanted, atol=0.2 * sd)
        corrected = times.marginal(1, np.ones((12, 1)), y=TIMES, **settings).interval() + 0.2
        np.testing.assert_allclose(corrected, wanted, atol=0.05 * sd)
    # the density of a new observation averages over both
    y = 1.3
    new = shapes * (np.log(shapes) - f + np.log(y) - y * np.exp(-f)) - np.log(y) - special.gammaln(shapes)
    expected = integrate.simpson(integrate.simpson(np.exp(new) * joint, x=f, axis=1), x=logs) / total
    assert times.log_density(np.ones((1, 1)), [y])[0] == pytest.approx(np.log(expected), abs=0.005)


def test_power_ep_has_no_corrections():
    X, y = np.column_stack([np.ones(6), np.arange(6.0)]), [0, 1, 0, 1, 1, 1]
    message = "integrate must be False or 'auto' with power=0.5"
    for model in (cavity.GLM("logit"), cavity.GaussianProcess("rbf", "logit"), cavity.MixedGLM("g", "logit")):
        arguments = {"groups": {"g": [0, 0, 1, 1, 2, 2]}} if isinstance(model, cavity.MixedGLM) else {}
        with pytest.raises(ValueError, match=message):
            replace(model, integrate="grid").fit(X, y, power=0.5, **arguments)
        assert replace(model, integrate="auto").fit(X, y, power=0.5, **arguments).integration is None


def test_a_marginal_of_a_hyperparameter_is_a_distribution(times):
    marginal = times.marginal("shape")
    logs = np.linspace(np.log(1e-3), np.log(60.0), 4001)
    x, density = np.exp(logs), marginal.density(np.exp(logs))
    below = integrate.cumulative_simpson(density * x, x=logs, initial=0.0)
    assert below[-1] == pytest.approx(1.0, abs=EXPANSION)
    np.testing.assert_allclose(marginal.cdf(x), below, atol=EXPANSION)
    p = np.array([0.03, 0.5, 0.9])
    np.testing.assert_allclose(marginal.cdf(marginal.quantile(p)), p, atol=ROOT_EPS)
    assert marginal.mean == pytest.approx(integrate.simpson(x * x * density, x=logs), rel=0.005)
    assert marginal.cdf([-1.0, 1e9]).tolist() == [0.0, 1.0]
    assert marginal.density(-1.0) == 0.0
    with pytest.raises(ValueError, match="name must be"):
        times.integration.marginal("scale")


def list_laws(posterior, rows):
    """Weights, and means and standard deviations of observations with Gaussian noise, at the points of an integral."""
    points = posterior._latent(rows, None, None).points
    weights, means = np.array([point[0] for point in points]), np.stack([point[2] for point in points])
    return weights, means, np.sqrt(np.stack([point[3] + point[1].noise_variance for point in points]))


def fit_wave(setting="grid", likelihood=None, y=WAVE, **options):
    """A Gaussian process whose variance is known."""
    likelihood = likelihoods.Gaussian(0.1) if likelihood is None else likelihood
    model = cavity.GaussianProcess(RBF(fixed=("variance",)), likelihood, mean=0.0, integrate=setting)
    return model.fit(X, y, **options)


@pytest.fixture(scope="module")
def wave():
    return fit_wave()


def test_a_gaussian_process_by_its_evidence(wave):
    """A lengthscale and the noise, whose posterior is known but for a constant: the dense Gaussian evidence."""
    assert wave.integration.names == ("rbf.lengthscale", "noise_variance")
    spread = np.std(X[:, 0])
    logs = np.linspace(-2.0, 2.5, 46), np.linspace(-5.0, 1.0, 46)
    new = np.array([[2.0], [7.5]])
    log_joint, means, seconds = np.empty((46, 46)), np.empty((46, 46, 2)), np.empty((46, 46, 2))
    for i, a in enumerate(logs[0]):
        K = np.exp(-0.5 * (X - X.T) ** 2 / np.exp(2.0 * a))
        cross = np.exp(-0.5 * (new - X.T) ** 2 / np.exp(2.0 * a))
        for j, b in enumerate(logs[1]):
            solved = np.linalg.solve(K + np.exp(b) * np.eye(25), np.column_stack([WAVE, cross.T]))
            log_det = np.linalg.slogdet(K + np.exp(b) * np.eye(25))[1]
            log_joint[i, j] = -0.5 * (log_det + WAVE @ solved[:, 0] + 25.0 * np.log(2.0 * np.pi))
            means[i, j] = cross @ solved[:, 0]
            seconds[i, j] = 1.0 - np.sum(cross * solved[:, 1:].T, axis=1) + means[i, j] ** 2
    log_joint += stats.norm(np.log(spread), 1.0).logpdf(logs[0])[:, None]
    log_joint += stats.norm(np.log(0.1), 2.0).logpdf(logs[1])
    weights = np.exp(log_joint - log_joint.max())
    area = (logs[0][1] - logs[0][0]) * (logs[1][1] - logs[1][0])
    assert wave.log_evidence == pytest.approx(np.log(weights.sum() * area) + log_joint.max(), abs=0.03)
    assert wave.evidence_correction == 0.0
    weights /= weights.sum()
    mean = np.tensordot(weights, means, 2)
    variance = np.tensordot(weights, seconds, 2) - mean**2
    prediction = wave.predict(new)
    np.testing.assert_allclose(prediction[0], mean, atol=0.02)
    np.testing.assert_allclose(prediction[1], variance, rtol=0.03)
    lengthscale = wave.marginal("rbf.lengthscale")
    assert lengthscale.mean == pytest.approx(np.exp(logs[0]) @ weights.sum(axis=1), rel=0.01)
    plug_in = fit_wave(False)
    assert np.all(plug_in.predict(new)[1] < prediction[1])
    for row in (0, 1):
        sd = np.sqrt(variance[row])
        marginal, x = wave.marginal(row, new_rows=new), mean[row] + sd * np.linspace(-4.0, 4.0, 81)
        own = np.sqrt(seconds[..., row] - means[..., row] ** 2)[..., None]
        below = np.tensordot(weights, stats.norm.cdf((x - means[..., row, None]) / own), 2)
        np.testing.assert_allclose(marginal.cdf(x), below, atol=0.01)
        np.testing.assert_allclose(marginal.interval(), np.interp([0.025, 0.975], below, x), atol=0.05 * sd)
        one = plug_in.marginal(row, new_rows=new)
        moments = [float(part[row]) for part in plug_in.predict(new)]
        assert [one.mean, one.sd**2] == pytest.approx(moments, rel=SUMS)


def test_predictions_of_observations_are_mixtures(wave):
    """Quantiles, moments, densities and draws, from the laws at the points."""
    rows = np.array([[2.0], [7.5]])
    weights, means, sds = list_laws(wave, rows)
    q = wave.quantile(rows, [0.05, 0.5, 0.9])
    for k, p in enumerate((0.05, 0.5, 0.9)):
        np.testing.assert_allclose(weights @ stats.norm.cdf(q[:, k], means, sds), p, atol=EARLY)
    mean, variance = wave.predict(rows, noise=True)
    np.testing.assert_allclose(mean, weights @ means, rtol=ROOT_EPS)
    np.testing.assert_allclose(variance, weights @ (sds**2 + means**2) - mean**2, rtol=ROOT_EPS)
    density = weights @ stats.norm.pdf([0.5, 0.1], means, sds)
    np.testing.assert_allclose(wave.log_density(rows, [0.5, 0.1]), np.log(density), rtol=ROOT_EPS)
    draws = wave.sample_y(rows, 4000, rng=1)
    np.testing.assert_allclose(draws.mean(axis=0), mean, atol=4.0 * np.sqrt(variance.max() / 4000.0))
    np.testing.assert_allclose(draws.var(axis=0), variance, rtol=0.2)
    f = wave.sample(rows, 4000, rng=1)
    _, covariance = wave.predict_covariance(rows)
    np.testing.assert_allclose(np.diagonal(covariance), wave.predict(rows)[1], rtol=ROOT_EPS)
    np.testing.assert_allclose(np.cov(f.T), covariance, atol=0.1 * covariance.max())
    assert wave.sample_y(rows, 0, rng=1).shape == (0, 2)


def test_new_levels_have_quantiles_of_mixtures():
    """Of effects whose standard deviation is uncertain: tails are longer than those of a normal distribution."""
    groups = np.repeat(np.arange(5), 4)
    y = np.array([0.0, 1.0, -1.0, 2.0, -2.0])[groups] + RNG.normal(size=20)
    posterior = cavity.MixedGLM("g", "gaussian", prior_variance=4.0, integrate="grid").fit(
        np.ones((20, 1)), y, groups={"g": groups}
    )
    rows = posterior.rows(np.ones((1, 1)), {"g": [9]}, "new")
    points = posterior._latent(rows, None, None).points
    q = posterior.quantile(rows, 0.999)
    below = sum(w * stats.norm.cdf(q, m, np.sqrt(v + item.noise_variance)) for w, item, m, v in points)
    assert below[0] == pytest.approx(0.999, abs=EARLY)
    mean, variance = posterior.predict(rows, noise=True)
    assert q[0] > 1.02 * (mean + stats.norm.ppf(0.999) * np.sqrt(variance))[0]


def test_leave_one_out_of_a_process_is_integrated(wave):
    densities = []
    for lengthscale, noise in wave.integration.values:
        model = cavity.GaussianProcess(RBF(1.0, lengthscale), likelihoods.Gaussian(noise), mean=0.0)
        densities.append(model.fit(X, WAVE, learn=False).loo_log_density)
    expected = -special.logsumexp(np.log(wave.integration.weights)[:, None] - np.array(densities), axis=0)
    np.testing.assert_allclose(wave.loo_log_density, expected, atol=EARLY)


def test_a_mean_that_is_found_has_coefficients_at_each_point():
    model = cavity.GaussianProcess("rbf", "gaussian", mean="linear", integrate="grid")
    posterior = model.fit(X, WAVE + 3.0 + X[:, 0], learn=("noise_variance",))
    number = 3
    point = posterior._make_point(number)
    second = cavity.GaussianProcess(point.model.covariance, point.model.likelihood, mean="linear")
    truth = second.fit(X, WAVE + 3.0 + X[:, 0], learn=False)
    np.testing.assert_allclose(point.model.mean, truth.model.mean, rtol=OPTIMUM)
    for one, other in zip(point.predict([[2.5]]), truth.predict([[2.5]]), strict=True):
        np.testing.assert_allclose(one, other, rtol=OPTIMUM)


def test_classes_and_rows_of_a_process():
    """Probabilities average those at the points; marginals of rows are skew."""
    y = np.where(WAVE > 0, "up", "down")
    posterior = fit_wave("auto", "probit", y)
    weights = posterior.integration.weights
    expected = weights @ np.stack([point.predict_proba([[2.0]])[:, 1] for point in posterior._points])
    assert posterior.predict_proba([[2.0]])[0, 1] == pytest.approx(expected[0], rel=ROOT_EPS)
    assert posterior.evidence_correction > 0.0
    marginal = posterior.marginal(0)
    assert marginal.mean == pytest.approx(posterior.mean[0], rel=ROOT_EPS)
    assert abs(marginal.skewness) > 0.01
    with pytest.raises(ValueError, match="effect must be a row"):
        posterior.marginal(25)
    with pytest.raises(ValueError, match="effect must be"):
        posterior.marginal("rbf.variance")


def test_rows_of_weight_zero_are_predicted():
    weight = np.ones(25)
    weight[4] = 0.0
    posterior = fit_wave(sample_weight=weight)
    mean, variance = posterior.predict(X[[4]])
    assert posterior.mean[4] == pytest.approx(mean[0], rel=ROOT_EPS)
    assert posterior.variance[4] == pytest.approx(variance[0], rel=ROOT_EPS)
    keep = weight > 0
    model = posterior.model
    other = cavity.GaussianProcess(model.covariance, model.likelihood, mean=0.0)
    np.testing.assert_allclose(posterior.mean[keep], other.fit(X[keep], WAVE[keep], learn=False).mean, atol=0.1)


def test_the_mode_alone_is_the_plain_fit():
    for plain, mode in ((fit_times(False), fit_times("mode")), (fit_wave(False), fit_wave("mode"))):
        assert mode.integration.names == ()
        assert mode.evidence_correction is not None
        assert mode.log_evidence == pytest.approx(plain.log_evidence, abs=EARLY)
        np.testing.assert_allclose(mode.mean, plain.mean, rtol=OPTIMUM)
        np.testing.assert_allclose(mode.loo_log_density, plain.loo_log_density, atol=OPTIMUM)
    assert plain.evidence_correction is None


def test_auto_integrates_where_rows_are_few():
    assert fit_times("auto").integration.method == "grid"
    many = np.concatenate([TIMES, TIMES, TIMES])
    assert cavity.GLM("gamma", prior_variance=4.0, integrate="auto").fit(np.ones((36, 1)), many).integration is None
    assert fit_wave("auto").integration.method == "grid"


@pytest.mark.parametrize("n", [1, 9])
def test_integrals_of_weak_data_end_at_bounds(n):
    """Counts without a trend: the posterior of the variance of f reaches beyond what a covariance may have."""
    rng = np.random.default_rng(0)
    rows, y = np.sort(rng.uniform(0, 6, n))[:, None], rng.poisson(2, n)
    posterior = cavity.GaussianProcess("rbf", "poisson", integrate="auto").fit(rows, y)
    low, high = np.exp(posterior.model.covariance.log_bounds).T
    values = posterior.integration.values
    assert np.all((values >= low) & (values <= high))
    assert values.min(axis=0)[0] < 4.0 * low[0]
    assert np.isfinite(posterior.log_evidence)
    assert np.isfinite(posterior.marginal("rbf.variance").interval()).all()


def test_the_mass_of_an_integral_is_inside_bounds():
    """Against the evidence over lengthscales between bounds, one of which is close to the maximum."""
    bounds = {"lengthscale": (1.0, 50.0)}
    covariance = RBF(1.0, 2.0, bounds=bounds, fixed=("variance",), priors={"lengthscale": LogNormal(1.5, 0.5)})
    model = cavity.GaussianProcess(covariance, likelihoods.Gaussian(0.1), mean=0.0, integrate="grid")
    posterior = model.fit(X, WAVE, learn="covariance")
    logs = np.linspace(0.0, 3.0, 301)
    values = [
        stats.multivariate_normal(cov=np.exp(-0.5 * (X - X.T) ** 2 / np.exp(2.0 * a)) + 0.1 * np.eye(25)).logpdf(WAVE)
        for a in logs
    ]
    density = np.exp(np.array(values) + stats.norm(np.log(1.5), 0.5).logpdf(logs))
    assert np.all(posterior.integration.values >= 1.0)
    total = np.log(integrate.simpson(density, x=logs))
    assert posterior.log_evidence == pytest.approx(total, abs=0.1)  # the end of a grid is half a step from the bound


def test_a_maximum_at_a_bound_is_not_integrated():
    covariance = RBF(1.0, 4.0, bounds={"lengthscale": (3.0, 5.0)})
    model = cavity.GaussianProcess(covariance, "gaussian", mean=0.0, integrate="grid")
    with pytest.warns(cavity.NumericalWarning, match=r"at a bound of rbf\.lengthscale"):
        posterior = model.fit(X, np.sin(3.0 * X[:, 0]))
    assert posterior.integration.names == ()


def test_auto_leaves_chains_to_many_rows():
    rows = np.linspace(0.0, 9.0, 2001)[:, None]
    model = cavity.GaussianProcess("matern32", "gaussian", integrate="auto")
    posterior = model.fit(rows, np.sin(rows[:, 0]) + 0.1 * RNG.normal(size=2001), learn=False)
    assert isinstance(posterior, cavity.GaussianProcessChainPosterior)
    weight = (np.arange(2001) % 100 == 0).astype(float)  # 21 rows are in use
    few = model.fit(rows, np.sin(rows[:, 0]), sample_weight=weight, learn="covariance")
    assert few.integration is not None


def test_a_weight_counts_copies_in_default_priors():
    x, w = np.linspace(-1.0, 1.0, 20), np.arange(20) % 3
    design, y = np.column_stack([np.ones(20), x]), np.sin(9.0 * x) + x
    cases = [
        (cavity.GLM("gaussian", prior_variance=4.0, integrate="grid"), design, y),
        (cavity.GLM("negative-binomial", prior_variance=4.0, integrate="grid"), design, np.round(3.0 * np.exp(y))),
        (cavity.GaussianProcess("rbf", "gaussian", integrate="ccd"), x[:, None], y),
    ]
    for model, rows, z in cases:
        weighted = model.fit(rows, z, sample_weight=w)
        repeated = model.fit(np.repeat(rows, w, axis=0), np.repeat(z, w))
        assert weighted.log_evidence == pytest.approx(repeated.log_evidence, abs=AT_REST)


def test_many_quantiles_of_a_process_are_found_together(wave):
    """Each to 1e-10 of its probability, whatever the number of rows, against the distribution function."""
    rows, p = np.linspace(0.0, 9.0, 30)[:, None], [1e-6, 0.025, 0.5]
    weights, means, sds = list_laws(wave, rows)
    q = wave.quantile(rows, p)
    below = np.tensordot(weights, stats.norm.cdf(q, means[..., None], sds[..., None]), 1)
    np.testing.assert_allclose(below, np.broadcast_to(p, below.shape), rtol=INTEGRAL)
    np.testing.assert_allclose(wave.quantile(rows[4:5], 0.025), q[4:5, 1], rtol=INTEGRAL)


def test_prior_variances_are_integrated():
    design = RNG.normal(size=(20, 6))
    y = design[:, 0] + RNG.normal(size=20)
    model = cavity.GLM(likelihoods.Gaussian(1.0), prior_variance=1.0, integrate="grid", intercept=False)
    posterior = model.fit(design, y, learn="prior_variance")
    assert posterior.integration.names == ("prior_variance",)
    logs = np.linspace(-9.0, 7.0, 321)
    values = [stats.multivariate_normal(cov=np.exp(a) * design @ design.T + np.eye(20)).logpdf(y) for a in logs]
    log_joint = np.array(values) + stats.norm(0.0, 2.0).logpdf(logs)
    total = np.log(integrate.simpson(np.exp(log_joint), x=logs))
    assert posterior.log_evidence == pytest.approx(total, abs=EXPANSION)


def test_scaled_columns_have_marginals_of_their_coefficients():
    design = 10.0 + 3.0 * RNG.normal(size=(30, 1))
    y = RNG.poisson(np.exp(0.1 * design[:, 0])).astype(float) + 0.5
    model = cavity.GLM("gamma", intercept=True, standardize=True, integrate="grid")
    posterior = model.fit(design, y)
    weights = posterior._weights
    slopes = np.stack([point.mean for point in weights.points])[:, 1] / posterior.spread[0]
    assert posterior.marginal("x1").mean == pytest.approx(weights.weights @ slopes, rel=ROOT_EPS)
    summary = posterior.summary()
    assert summary.columns["mean"][1] == pytest.approx(posterior.marginal("x1").mean, rel=ROOT_EPS)
    at_zero = posterior.predict(np.zeros((1, 1)))
    assert summary.columns["mean"][0] == pytest.approx(at_zero[0][0], rel=ROOT_EPS)
    assert summary.columns["sd"][0] == pytest.approx(np.sqrt(at_zero[1][0]), rel=ROOT_EPS)


@pytest.mark.parametrize("fit", [fit_times, fit_wave])
def test_files_and_threads(fit, tmp_path):
    posterior = fit("grid")
    posterior.save(tmp_path / "posterior.npz")
    restored = cavity.load(tmp_path / "posterior.npz")
    rows = np.ones((2, 1))
    for one, other in zip(restored.predict(rows, noise=True), posterior.predict(rows, noise=True), strict=True):
        np.testing.assert_allclose(one, other, rtol=100 * LAST_BIT)
    assert repr(restored.integration) == repr(posterior.integration)
    assert restored.model.integrate == "grid"
    other = fit("grid", n_threads=2)
    assert other.log_evidence == posterior.log_evidence
    assert other.mean.tobytes() == posterior.mean.tobytes()
    assert other.integration.weights.tobytes() == posterior.integration.weights.tobytes()


def test_a_callback_stops_the_integral():
    for fit in (fit_times, fit_wave):
        stages = []
        before = fit("grid", callback=lambda event, seen=stages: seen.append(event.stage) or event.stage == "curvature")
        assert stages[-1] == "curvature"
        assert stages.count("curvature") == 1
        assert (before.integration, before.status) == (None, "stopped by callback")
        stopped = fit("grid", callback=lambda event: event.stage == "integral")
        assert stopped.integration is None
        assert stopped.status == "stopped by callback"


REFUSED = [
    (lambda: cavity.GLM("gamma", integrate="laplace"), ValueError, "must be one of False, 'auto'"),
    (
        lambda: cavity.GaussianProcess(integrate=True),
        ValueError,
        "one of False, 'auto', 'grid', 'ccd', 'mode', got True",
    ),
    (
        lambda: cavity.GaussianProcess("rbf", "gaussian", integrate="grid").fit(np.hstack([X, X**2]), WAVE),
        ValueError,
        "at most 3 hyperparameters with 'grid', got 4: 'ccd' has up to 8",
    ),
    (
        lambda: cavity.GLM("probit", integrate="grid").fit(X, WAVE > 0, method="adf"),
        ValueError,
        "must be False without",
    ),
    (
        lambda: cavity.GLM("probit", integrate="grid", approximation="diagonal").fit(X, WAVE > 0),
        ValueError,
        "must be False without",
    ),
    (lambda: cavity.StreamingGP(integrate="grid"), TypeError, "only GLM, MixedGLM and GaussianProcess integrate"),
    (
        lambda: cavity.GaussianMixture(2, integrate="grid"),
        TypeError,
        "only GLM, MixedGLM and GaussianProcess integrate",
    ),
    (lambda: fit_times("grid").update(np.ones((1, 1)), [1.0]), ValueError, "cannot be updated"),
    (lambda: fit_wave().update(X, WAVE), ValueError, "cannot be updated"),
    (lambda: fit_wave().standard_errors(), ValueError, "hyperparameters are integrated"),
    (lambda: fit_wave().log_evidence_gradient, ValueError, "it has no gradient"),
    (lambda: fit_times("grid").marginal("x2"), ValueError, "effect must be one of 'x1', 'shape', got 'x2'"),
]


@pytest.mark.parametrize(("call", "error", "message"), REFUSED)
def test_what_is_refused(call, error, message):
    with pytest.raises(error, match=message):
        call()
