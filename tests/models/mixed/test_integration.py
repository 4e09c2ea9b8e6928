"""Posteriors integrated over hyperparameters, against integrals by brute force."""

import copy
import pickle
from dataclasses import replace

import numpy as np
import pytest
from scipy import integrate, linalg, optimize, special, stats
from support.tolerances import EARLY, EXPANSION, LAST_BIT, OPTIMUM, PRINTED, ROOT_EPS, SUMS

import cavity
from cavity import likelihoods
from cavity.priors import PC, HalfNormal, LogNormal, PCCorrelation, UniformCorrelation
from cavity.terms import Autoregressive, Smooth

SUCCESSES = [4, 2, 2] + [1] * 6 + [0] * 16  # of 25 groups of 4 rows
GROUPS = np.repeat(np.arange(25), 4)
BINARY = np.concatenate([np.repeat([1, 0], [k, 4 - k]) for k in SUCCESSES])
RNG = np.random.default_rng(17)


def fit_rare(integrate_, **options):
    """Rare successes in groups, an intercept N(0, 25), sd ~ N+(0, 9)."""
    model = cavity.MixedGLM("g", "logit", prior_variance=25.0, priors={"sd": HalfNormal(3.0)}, integrate=integrate_)
    return model.fit(np.ones((100, 1)), BINARY, groups={"g": GROUPS}, **options)


@pytest.fixture(scope="module")
def rare():
    return fit_rare("grid")


def test_rare_successes_by_quadrature(rare):
    """Evidence and sd, against a three-dimensional integral of which that over effects is one-dimensional."""
    z = np.linspace(-8.0, 8.0, 401)
    w = stats.norm.pdf(z) * (z[1] - z[0])
    k, counts = np.unique(SUCCESSES, return_counts=True)
    intercepts = np.linspace(-9.0, 3.0, 121)
    sds = np.linspace(1e-3, 9.0, 121)
    log_joint = np.empty((len(sds), len(intercepts)))
    for i, sd in enumerate(sds):
        f = intercepts[:, None] + sd * z
        item = k[:, None, None] * special.log_expit(f) + (4 - k)[:, None, None] * special.log_expit(-f)
        log_joint[i] = counts @ np.log(np.exp(item) @ w)
    log_joint += stats.norm(0.0, 5.0).logpdf(intercepts) + stats.halfnorm(scale=3.0).logpdf(sds)[:, None]
    total = integrate.simpson(integrate.simpson(np.exp(log_joint), x=intercepts), x=sds)
    assert np.log(total) == pytest.approx(-40.487, abs=EXPANSION)
    corrected = rare.log_evidence + rare.evidence_correction
    assert corrected == pytest.approx(np.log(total), abs=0.002)  # a grid ends where the density has fallen by six nats
    by_sd = integrate.simpson(np.exp(log_joint), x=intercepts) / total
    mean = integrate.simpson(sds * by_sd, x=sds)
    table = rare.integration.table()
    assert table.columns["mean"][0] == pytest.approx(mean, rel=0.002)
    spread = np.sqrt(integrate.simpson((sds - mean) ** 2 * by_sd, x=sds))
    assert table.columns["sd"][0] == pytest.approx(spread, rel=0.01)
    cumulative = np.cumsum(by_sd) * (sds[1] - sds[0])
    for name, p in (("2.5%", 0.025), ("50%", 0.5), ("97.5%", 0.975)):
        assert table.columns[name][0] == pytest.approx(np.interp(p, cumulative, sds), abs=0.08 * spread)
    by_intercept = integrate.simpson(np.exp(log_joint), x=sds, axis=0) / total
    mean = integrate.simpson(intercepts * by_intercept, x=intercepts)
    spread = np.sqrt(integrate.simpson((intercepts - mean) ** 2 * by_intercept, x=intercepts))
    marginal = rare.marginal("x1")
    assert marginal.mean == pytest.approx(mean, abs=0.02 * spread)
    assert marginal.sd == pytest.approx(spread, rel=0.02)
    cumulative = np.cumsum(by_intercept) * (intercepts[1] - intercepts[0])
    ends = [np.interp(p, cumulative, intercepts) for p in (0.025, 0.975)]
    np.testing.assert_allclose(marginal.interval(), ends, atol=0.08 * spread)
    plug_in = fit_rare(False)
    assert np.max(np.abs(plug_in.interval()[0] - ends)) > 3.0 * np.max(np.abs(marginal.interval() - ends))


def test_moments_are_those_of_the_mixture(rare):
    points, weights = rare._effects.points, rare.integration.weights
    assert weights.sum() == pytest.approx(1.0, abs=100 * LAST_BIT)
    means = np.stack([item.mean for item in points])
    np.testing.assert_allclose(rare.mean, weights @ means[:, :1], rtol=ROOT_EPS)
    second = weights @ (np.stack([value.variance for value in points]) + means**2)
    np.testing.assert_allclose(rare._effects.variance, second - (weights @ means) ** 2, rtol=ROOT_EPS)
    rows = rare.rows(np.ones((2, 1)), {"g": [0, 99]}, "new")
    mean, variance = rare.predict(rows)
    settings = [
        point.predict(rare._layout.rows(np.ones((1, 1)), [(np.zeros(1, dtype=int), np.ones((1, 1)))]))
        for point in points
    ]
    assert mean[0] == pytest.approx(weights @ [m[0] for m, _ in settings], rel=ROOT_EPS)
    second = weights @ [v[0] + m[0] ** 2 for m, v in settings]
    assert variance[0] == pytest.approx(second - mean[0] ** 2, rel=ROOT_EPS)
    sds = rare.integration.values[:, 0]
    assert variance[1] == pytest.approx(rare.variance[0] + weights @ sds**2, rel=ROOT_EPS)
    draws = rare._effects.sample(4000, np.random.default_rng(0))[:, 0]
    assert draws.mean() == pytest.approx(rare.mean[0], abs=4.0 * rare.sd[0] / 4000**0.5)


def test_a_linear_model_by_its_evidence():
    """Two standard deviations, whose posterior is known but for a constant: the dense Gaussian evidence."""
    groups = np.repeat(np.arange(8), 4)
    y = 0.8 * RNG.normal(size=8)[groups] + RNG.normal(size=32)
    priors = {"sd": PC(2.0), "noise_variance": LogNormal(1.0, 1.0)}
    model = cavity.MixedGLM("g", "gaussian", prior_variance=4.0, priors=priors, integrate="grid")
    posterior = model.fit(np.ones((32, 1)), y, groups={"g": groups})
    same = groups[:, None] == groups
    logs = np.linspace(-6.0, 2.0, 81), np.linspace(-1.5, 1.8, 57)
    log_joint = np.empty((81, 57))
    for i, a in enumerate(logs[0]):
        covariance = 4.0 + np.exp(2.0 * a) * same + np.exp(logs[1])[:, None, None] * np.eye(32)
        quadratic = np.linalg.solve(covariance, np.broadcast_to(y[:, None], (57, 32, 1)))[..., 0] @ y
        log_joint[i] = -0.5 * (np.linalg.slogdet(covariance)[1] + quadratic + 32.0 * np.log(2.0 * np.pi))
        log_joint[i] += stats.expon(scale=1.0 / PC(2.0).rate).logpdf(np.exp(a)) + a + stats.norm().logpdf(logs[1])
    joint = np.exp(log_joint)
    total = integrate.simpson(integrate.simpson(joint, x=logs[1]), x=logs[0])
    assert posterior.log_evidence == pytest.approx(np.log(total), abs=0.03)
    assert posterior.evidence_correction == 0.0
    by_sd = integrate.simpson(joint, x=logs[1]) / total
    mean = integrate.simpson(np.exp(logs[0]) * by_sd, x=logs[0])
    table = posterior.integration.table()
    result = dict(zip(table.names, table.columns["mean"], strict=True))
    assert result["sd(intercept | g)"] == pytest.approx(mean, rel=0.03)
    by_noise = integrate.simpson(joint, x=logs[0], axis=0) / total
    mean = integrate.simpson(np.exp(logs[1]) * by_noise, x=logs[1])
    assert result["noise_variance"] == pytest.approx(mean, rel=0.01)


@pytest.mark.long
def test_a_design_over_three_hyperparameters():
    """An autoregression with noise: the design beside a grid over the same free numbers."""
    t = np.arange(60)
    y = np.sin(t / 6.0) + 0.3 * RNG.normal(size=60)
    priors = {"ar1(t)": {"sd": PC(2.0), "rho": PCCorrelation(0.5, 0.8)}, "noise_variance": LogNormal(0.1, 1.0)}
    fits = {}
    for method in ("ccd", "grid"):
        model = cavity.MixedGLM([Autoregressive("t")], "gaussian", prior_variance=4.0, priors=priors, integrate=method)
        fits[method] = model.fit(np.ones((60, 1)), y, groups={"t": t})
    assert len(fits["ccd"].integration.weights) == 15
    assert fits["ccd"].log_evidence == pytest.approx(fits["grid"].log_evidence, abs=0.15)
    assert fits["ccd"].sd[0] == pytest.approx(fits["grid"].sd[0], rel=0.1)
    assert "central composite design" in repr(fits["ccd"])


def test_leave_one_out_is_integrated(rare):
    """The harmonic mean of the densities at the points, as each has the row."""
    fits = []
    for sd in rare.integration.values[:, 0]:
        model = cavity.MixedGLM("g", "logit", prior_variance=25.0, effect_covariances={"g": sd**2})
        fits.append(model.fit(np.ones((100, 1)), BINARY, groups={"g": GROUPS}).loo_log_density)
    expected = -special.logsumexp(np.log(rare.integration.weights)[:, None] - np.array(fits), axis=0)
    np.testing.assert_allclose(rare.loo_log_density, expected, atol=EARLY)


def test_the_mode_alone_is_the_plain_fit_with_corrections():
    plain, mode = fit_rare(False), fit_rare("mode")
    assert mode.log_evidence == plain.log_evidence
    np.testing.assert_allclose(mode.loo_log_density, plain.loo_log_density, atol=EARLY)
    np.testing.assert_allclose(mode.mean, plain.mean, rtol=ROOT_EPS)
    assert plain.evidence_correction is None
    assert 0.0 < mode.evidence_correction < EXPANSION
    assert mode.integration.names == ()
    values = cavity.MixedGLM("g", "logit", prior_variance=25.0, effect_covariances={"g": 4.0}, integrate="mode")
    truth = values.fit(np.ones((100, 1)), BINARY, groups={"g": GROUPS})
    assert truth.log_evidence == pytest.approx(-39.6444061111, abs=ROOT_EPS)


def test_auto_integrates_where_there_are_few_levels():
    assert fit_rare("auto").integration.method == "grid"
    groups = {"g": np.arange(100) // 3}
    many = cavity.MixedGLM("g", "logit", prior_variance=25.0, integrate="auto")
    assert many.fit(np.ones((100, 1)), BINARY, groups=groups).integration is None
    default = cavity.MixedGLM("g", "logit", prior_variance=25.0, integrate="auto")
    posterior = default.fit(np.ones((100, 1)), BINARY, groups={"g": GROUPS})
    assert posterior.hyperparameters.log_prior != 0.0  # of a default prior, which is proper


def test_correlated_effects_by_quadrature():
    """Two standard deviations and a correlation, whose search moves other numbers than the prior has."""
    rng = np.random.default_rng(7)
    groups, x = rng.integers(0, 8, 120), rng.normal(size=120)
    effects = rng.normal(size=(8, 2)) @ [[0.8, 0.4], [0.0, 0.5]]
    y = effects[groups, 0] + effects[groups, 1] * x + 0.7 * rng.normal(size=120)
    X, noise = np.column_stack([np.ones(120), x]), 0.49
    model = cavity.MixedGLM(
        [cavity.RandomEffects("g", 1)],
        likelihoods.Gaussian(noise),
        prior_variance=4.0,
        priors={"sd": PC(1.0), "corr": UniformCorrelation()},
        integrate="grid",
    )
    posterior = model.fit(X, y, groups={"g": groups})
    W = np.column_stack([X, *(X * (groups == level)[:, None] for level in range(8))])
    A, b = W.T @ W / noise, W.T @ y / noise
    logs, correlations = np.linspace(-3.0, 1.2, 15), np.tanh(np.linspace(-2.0, 2.5, 13))
    log_joint = np.empty((15, 15, 13))
    for i, j, k in np.ndindex(15, 15, 13):
        sd, r = np.exp(logs[[i, j]]), correlations[k]
        V = np.outer(sd, sd) * [[1.0, r], [r, 1.0]]
        prior = linalg.block_diag(4.0 * np.eye(2), *[V] * 8)  # of the coefficients of W, which are integrated out
        inner = np.eye(18) + prior @ A
        value = b @ np.linalg.solve(inner, prior @ b) - np.linalg.slogdet(inner)[1] - y @ y / noise
        value -= 120 * np.log(2.0 * np.pi * noise)
        density = 2.0 * np.log(PC(1.0).rate) - PC(1.0).rate * sd.sum() + logs[i] + logs[j] + np.log(0.5 * (1.0 - r * r))
        log_joint[i, j, k] = 0.5 * value + density  # in the logs of sds and the inverse hyperbolic tangent of r
    u = np.arctanh(correlations)

    def total(values):
        return integrate.simpson(integrate.simpson(integrate.simpson(values, x=u), x=logs), x=logs)

    joint = np.exp(log_joint - log_joint.max())
    assert posterior.log_evidence == pytest.approx(np.log(total(joint)) + log_joint.max(), abs=0.05)
    result = dict(zip(posterior.integration.names, posterior.integration.table().columns["mean"], strict=True))
    truth = total(joint * correlations) / total(joint)
    assert result["corr(intercept, x2 | g)"] == pytest.approx(truth, abs=0.02)


def test_copies_and_checkpoints(rare, tmp_path):
    """Priors are part of what decides a fit; models with them can be copied and hashed."""
    model = cavity.MixedGLM("g", "logit", priors={"sd": PC(1.0)})
    assert copy.deepcopy(model) == model == pickle.loads(pickle.dumps(model))
    assert hash(model) == hash(copy.deepcopy(model))
    fit_rare("mode", checkpoint=tmp_path / "rare.ck")
    other = cavity.MixedGLM("g", "logit", prior_variance=25.0, priors={"sd": HalfNormal(1.0)}, integrate="mode")
    with pytest.raises(ValueError, match="priors"):
        other.fit(np.ones((100, 1)), BINARY, groups={"g": GROUPS}, checkpoint=tmp_path / "rare.ck")


@pytest.mark.parametrize("stage", ["curvature", "integral"])
def test_a_callback_stops_the_integral(stage):
    """What is known then is the posterior at the maximum."""
    stages = []
    stopped = fit_rare("grid", callback=lambda event: stages.append(event.stage) or event.stage == stage)
    assert stages.count(stage) == 1
    assert stopped.integration is None
    assert not stopped.converged
    assert stopped.status == "stopped by callback"


def test_degrees_of_freedom_are_those_at_the_maximum():
    x = np.linspace(0.0, 1.0, 48)
    y = np.sin(6.0 * x) + 0.3 * RNG.normal(size=48)
    model = cavity.MixedGLM([Smooth("x")], "gaussian", prior_variance=4.0, integrate="grid")
    posterior = model.fit(np.ones((48, 1)), y, groups={"x": x})
    assert 2.0 < posterior.term_summary().columns["edf"][0] < 10.0


def test_effects_are_tables_of_marginals(rare):
    table = rare.effects("g")
    low, high = rare.marginal(("g", 3)).interval()
    assert (table.columns["2.5%"][3], table.columns["97.5%"][3]) == pytest.approx((low, high), rel=ROOT_EPS)


def test_files(rare, tmp_path):
    rare.save(tmp_path / "rare.npz")
    restored = cavity.load(tmp_path / "rare.npz")
    np.testing.assert_array_equal(restored.interval(), rare.interval())
    np.testing.assert_array_equal(restored.integration.weights, rare.integration.weights)
    assert restored.summary().names == rare.summary().names
    assert restored.marginal(("g", 3)).interval().tolist() == rare.marginal(("g", 3)).interval().tolist()
    plain = fit_rare(False)
    plain.save(tmp_path / "plain.npz")
    assert cavity.load(tmp_path / "plain.npz").integration is None
    fit_rare("mode").save(tmp_path / "mode.npz")
    assert cavity.load(tmp_path / "mode.npz").evidence_correction == fit_rare("mode").evidence_correction


def test_the_same_bits_for_any_number_of_threads(rare):
    other = fit_rare("grid", n_threads=2)
    assert other.log_evidence == rare.log_evidence
    assert other.mean.tobytes() == rare.mean.tobytes()
    assert other.integration.weights.tobytes() == rare.integration.weights.tobytes()


def test_evidences_of_two_kinds_are_not_compared(rare):
    with pytest.raises(ValueError, match="'a' is, and 'b' has the evidence at the maximum"):
        cavity.compare({"a": rare, "b": fit_rare(False)})
    with pytest.warns(cavity.NumericalWarning, match="doubtful"):
        table = cavity.compare({"a": rare, "b": rare})
    assert table.columns["correction"][0] == rare.evidence_correction


def test_formulas_of_a_glm():
    herds = cavity.data.table("cbpp", as_frame=True)[0]
    formula = "p(incidence, size) ~ period + (1 | herd)"
    one = cavity.GLM(formula, integrate="grid").fit(herds)
    other = cavity.MixedGLM(formula, integrate="grid").fit(herds)
    assert one.log_evidence == other.log_evidence
    assert one.integration.names == ("sd(intercept | herd)",)


@pytest.mark.filterwarnings("ignore")
def test_draws_for_arviz(rare):
    """Effects, hyperparameters of the points, and log likelihoods of rows, from one set of draws."""
    pytest.importorskip("arviz")
    columns = {"X": np.ones((100, 1)), "y": BINARY, "groups": {"g": GROUPS}}
    data = rare.to_arviz(200, rng=0, **columns)
    effects, intercept = data.posterior["g"].values[0], data.posterior["coefficients"].values[0]
    assert effects.shape == (200, 25)
    assert data.posterior["g"].dims == ("chain", "draw", "g level")
    sds = data.posterior["sd(intercept | g)"].values[0]
    assert set(sds.tolist()) <= set(rare.integration.values[:, 0].tolist())
    f = intercept + effects[:, GROUPS]
    expected = np.where(BINARY, special.log_expit(f), special.log_expit(-f))
    np.testing.assert_allclose(data.log_likelihood["y"].values[0], expected, rtol=ROOT_EPS)
    frame = cavity.data.table("sleepstudy", as_frame=True)[0]
    slopes = cavity.MixedGLM("Reaction ~ Days + (Days | Subject) + rw1(Days)").fit(frame).to_arviz(10, rng=0)
    assert slopes.posterior["1 + Days | Subject"].shape == (1, 10, 18, 2)
    assert slopes.posterior["rw1(Days)"].shape == (1, 10, 10)


def test_messages_name_levels_and_groups(rare):
    with pytest.raises(ValueError, match=r"no level '3' of 'g'; there is 0, 1, 2"):
        rare.marginal(("g", "3"))
    with pytest.raises(TypeError, match="group must be the name of a group, the rows come after it; got DataFrame"):
        rare.leave_group_out(cavity.data.table("cbpp", as_frame=True)[0], "g")


def test_axes_of_a_grid_may_have_one_level():
    """A normal density in the log of one number, the points beside in the other without a density."""
    z = 0.8 * np.arange(-5.0, 6.0)
    order = np.argsort(np.abs(z), kind="stable")
    weights, places = stats.norm.pdf(z[order]) / np.sum(stats.norm.pdf(z)), np.column_stack([z[order], 0.0 * z])
    values = np.column_stack([np.exp(0.3 * z[order]), np.full(11, 0.7)])
    integration = cavity.Integration(
        "grid", ("a", "b"), ("log", "logit"), values, places, weights, np.log(weights), 0.0, 0.0,
        np.zeros((11, 1)), np.zeros((11, 1)), np.zeros(1), np.ones(1),
    )  # fmt: skip
    p = [0.025, 0.5, 0.975]
    np.testing.assert_allclose(integration.marginal("a").quantile(p), np.exp(0.3 * stats.norm.ppf(p)), rtol=EXPANSION)
    np.testing.assert_allclose(integration.marginal("b").quantile(p), 0.7, rtol=EARLY)
    one = replace(integration, values=values[:1], coordinates=places[:1], weights=np.ones(1), log_density=np.zeros(1))
    np.testing.assert_allclose(one.marginal("a").quantile(p), 1.0, rtol=EARLY)


BAD = [
    (dict(integrate="laplace"), "integrate must be"),
    (dict(integrate="grid", priors="avoid-zero"), "priors must be proper"),
]


@pytest.mark.parametrize(("settings", "message"), BAD)
def test_bad_settings(settings, message):
    with pytest.raises(ValueError, match=message):
        cavity.MixedGLM("g", "logit", **settings)


def test_what_an_integrated_posterior_has_not(rare):
    with pytest.raises(ValueError, match="integrated or corrected cannot be updated"):
        rare.update(np.ones((1, 1)), [1], groups={"g": [0]})
    with pytest.raises(ValueError, match="effect must be"):
        rare.marginal("age")


def test_marginals_of_a_mixture():
    """Density, distribution function and quantiles of skew-normal components, against SciPy's."""
    marginal = cavity.Marginal("x", np.array([0.3, 0.7]), np.array([-1.0, 2.0]), np.array([0.5, 1.5]), 0.6)
    laws = []
    for mean, sd in ((-1.0, 0.5), (2.0, 1.5)):
        slant = optimize.brentq(lambda a: float(stats.skewnorm.stats(a, moments="s")) - 0.6, 0.0, 50.0)
        m, v = stats.skewnorm.stats(slant)
        scale = sd / np.sqrt(v)
        laws.append(stats.skewnorm(slant, mean - scale * m, scale))
    x = np.linspace(-4.0, 8.0, 7)
    np.testing.assert_allclose(marginal.density(x), 0.3 * laws[0].pdf(x) + 0.7 * laws[1].pdf(x), rtol=OPTIMUM)
    np.testing.assert_allclose(marginal.cdf(x), 0.3 * laws[0].cdf(x) + 0.7 * laws[1].cdf(x), atol=EARLY)
    p = np.array([0.01, 0.3, 0.99])
    np.testing.assert_allclose(marginal.cdf(marginal.quantile(p)), p, atol=ROOT_EPS)
    mean = integrate.quad(lambda x: x * marginal.density(x), -20.0, 30.0)[0]
    assert marginal.mean == pytest.approx(mean, abs=PRINTED)
    with pytest.raises(ValueError, match=r"p must be in \(0, 1\)"):
        marginal.quantile(1.0)


def test_skewness_is_the_same_in_blocks_of_rows(monkeypatch, set_sizes):
    """Where pairs of rows are too many, and the evidence is corrected by a sketch."""
    set_sizes(MAX_PAIRED_ROWS=10)
    monkeypatch.setattr("cavity.models.integral.ROWS_PER_BLOCK", 7)
    model = cavity.MixedGLM("g", "logit", prior_variance=25.0, integrate="mode", priors={"sd": HalfNormal(3.0)})
    posteriors = [model.fit(np.ones((100, 1)), BINARY, groups=GROUPS)]
    monkeypatch.undo()
    posteriors.append(model.fit(np.ones((100, 1)), BINARY, groups=GROUPS))
    blocks, whole = (posterior.integration for posterior in posteriors)
    np.testing.assert_allclose(blocks.skewness, whole.skewness, atol=SUMS)
    assert abs(blocks.evidence_correction - whole.evidence_correction) < 4.0 * blocks.correction_error
    np.testing.assert_array_equal(blocks.sd_factors, 1.0)
    assert np.all(whole.sd_factors[0] > 1.0)
