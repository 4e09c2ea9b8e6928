"""Links: priors, starts and fits follow the units of y, for likelihoods of the package and of one's own."""

from dataclasses import replace

import numpy as np
import pytest
from scipy import integrate, optimize, special, stats
from support.own_likelihoods import OwnGamma
from support.tolerances import EXPANSION, OPTIMUM

import cavity
from cavity import likelihoods

RNG = np.random.default_rng(0)
N = 60
x = RNG.normal(size=N)
MEAN = np.exp(8.0 + 0.5 * x)
Y = RNG.gamma(3.0, MEAN / 3.0)
FACTOR = 1000.0


MODELS = {
    "glm": lambda likelihood, y: cavity.GLM(likelihood, intercept=True).fit(x[:, None], y),
    "gp": lambda likelihood, y: cavity.GaussianProcess("rbf", likelihood).fit(x[:, None], y),
    "streaming": lambda likelihood, y: cavity.StreamingGP("rbf", likelihood, n_inducing=9).fit(x[:, None], y),
}


@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize("kind", [OwnGamma, likelihoods.Gamma])
def test_the_unit_of_y_shifts_f_only(name, kind):
    likelihood = kind(3.0 if name == "streaming" else None)
    one, other = (MODELS[name](likelihood, factor * Y) for factor in (1.0, FACTOR))
    mean, variance = (np.array(moment) for moment in one.predict(x[:, None]))
    assert other.predict(x[:, None])[0] == pytest.approx(mean + np.log(FACTOR), abs=OPTIMUM)
    assert other.predict(x[:, None])[1] == pytest.approx(variance, rel=EXPANSION)
    assert np.abs(mean - np.log(MEAN)).max() < 1.0
    assert other.model.likelihood.shape == pytest.approx(one.model.likelihood.shape, rel=OPTIMUM)


TIMES = np.exp(1.0 + 0.5 * x) * RNG.weibull(1.5, N)
EVENT = RNG.random(N) < 0.7
AMOUNTS = np.where(RNG.random(N) < 0.3, 0.0, Y)


@pytest.mark.parametrize("name", ["weibull", "lognormal", "loglogistic", "exponential", "tweedie"])
def test_times_and_amounts_in_other_units(name):
    model = cavity.GLM(name, intercept=True)
    y, event = (AMOUNTS, None) if name == "tweedie" else (TIMES, EVENT)
    one, other = (model.fit(x[:, None], factor * y, event=event) for factor in (1.0, FACTOR))
    assert other.mean - one.mean == pytest.approx([np.log(FACTOR), 0.0], abs=OPTIMUM)
    assert other.sd == pytest.approx(one.sd, rel=EXPANSION)


def test_a_mixed_model_in_other_units():
    pytest.importorskip("formulae")
    effect = np.repeat(RNG.normal(size=6), 10)
    frame = {"x": x, "g": np.repeat(np.arange(6), 10), "e": EVENT}
    fits = [
        cavity.MixedGLM("surv(t, e) ~ x + (1 | g)").fit(frame | {"t": k * TIMES * np.exp(effect)}) for k in (1.0, 60.0)
    ]
    assert fits[0].model.likelihood.effect == "time"
    assert fits[1].mean - fits[0].mean == pytest.approx([np.log(60.0), 0.0], abs=10 * EXPANSION)
    assert "time ratios" in repr(cavity.GLM("surv(t, e) ~ x").fit(frame | {"t": TIMES}).summary(exponentiate=True))


def test_evidence_and_shape_of_weibull_are_those_of_quadrature():
    """One coefficient: for each shape the evidence is an integral, whose maximum in the shape is what is learnt."""
    t, event = TIMES[:30], EVENT[:30]

    f = np.linspace(-6.0, 8.0, 1401)[:, None]

    def log_evidence(shape):
        law = stats.weibull_min(shape, scale=np.exp(f))
        log_p = np.where(event, law.logpdf(t), law.logsf(t)).sum(axis=1)
        return np.log(integrate.trapezoid(np.exp(log_p + stats.norm.logpdf(f[:, 0], 0.0, 3.0)), f[:, 0]))

    best = optimize.minimize_scalar(lambda shape: -log_evidence(shape), bounds=(0.5, 4.0), method="bounded")
    posterior = cavity.GLM("weibull", prior_variance=9.0).fit(np.ones((30, 1)), t, event=event)
    assert posterior.log_evidence == pytest.approx(-best.fun, abs=10 * EXPANSION)  # EP leaves 0.1/N here
    assert posterior.model.likelihood.shape == pytest.approx(best.x, rel=10 * EXPANSION)
    assert posterior.hyperparameters.sd[0] > 0


def test_starts_follow_the_link():
    y = np.array([0.0, 2.0, 8.0])
    likelihood = OwnGamma()
    assert likelihood.start(y) == pytest.approx(np.log([1.0, 2.0, 8.0]))
    assert likelihoods.Likelihood().start(y) is y
    assert likelihoods.Likelihood().start(np.zeros((3, 2))) is None
    shares = np.array([0.0, 0.5, 1.0])
    assert type("Own", (OwnGamma,), {"link": "logit"})().start(shares) == pytest.approx(
        special.logit([0.01, 0.5, 0.99])
    )
    assert likelihood.starting_values(y, likelihood.start(y)) == {"shape": 1.0}
    own = type("Own", (OwnGamma,), {"link": "identity", "start": lambda self, y: np.log(y)})(3.0)
    assert cavity.GLM(own, intercept=True).fit(x[:, None], Y).model.prior_mean[0] == np.median(np.log(Y))


def test_a_link_that_is_none():
    with pytest.raises(ValueError, match="link of Own must be one of 'identity', 'log', 'logit', got 'inverse'"):
        cavity.GLM(type("Own", (OwnGamma,), {"link": "inverse"})())


def test_own_likelihoods_are_saved_by_a_detour(tmp_path):
    """The message of the refusal, followed to the letter."""
    posterior = MODELS["glm"](OwnGamma(), Y)
    with pytest.raises(TypeError, match=r"not OwnGamma: save dataclasses.replace\(posterior, model=.*Gaussian\(\)"):
        posterior.save(tmp_path / "own.npz")
    stand_in = replace(posterior, model=replace(posterior.model, likelihood=likelihoods.Gaussian()))
    stand_in.save(tmp_path / "own.npz")
    loaded = cavity.load(tmp_path / "own.npz")
    restored = replace(loaded, model=replace(loaded.model, likelihood=posterior.model.likelihood))
    assert np.array_equal(restored.log_density(x[:, None], Y), posterior.log_density(x[:, None], Y))


SEPARATED = {  # along a dummy: zeros and whatever has a maximum; ones behind a hurdle; times censored on one side
    "cloglog": (likelihoods.Cloglog(), np.where(x > 0, 1, np.arange(N) % 2)),
    "zeros": (likelihoods.ZeroInflatedPoisson(0.1), np.where(x > 0, 0, 1 + np.arange(N) % 3)),
    "hurdle": (likelihoods.HurdlePoisson(0.1), np.where(x > 0, np.arange(N) % 2, 2 + np.arange(N) % 3)),
    "tweedie": (likelihoods.Tweedie(1.5, 1.0), np.where(x > 0, 0.0, TIMES)),
    "times": (likelihoods.Weibull(1.5), np.column_stack([TIMES, np.where(x > 0, np.inf, TIMES)])),
    "hazard": (likelihoods.Weibull(1.5, "hazard"), np.column_stack([TIMES, np.where(x > 0, np.inf, TIMES)])),
    "successes": (
        likelihoods.BetaBinomial(9.0),
        np.column_stack([np.where(x > 0, 5, np.arange(N) % 4), np.full(N, 5)]),
    ),
    "ordered": (likelihoods.OrderedLogit(), np.where(x > 0, 2, np.arange(N) % 3)),
}


@pytest.mark.parametrize("name", SEPARATED)
def test_separation(name):
    likelihood, y = SEPARATED[name]
    dummy, intercept = (x > 0).astype(float)[:, None], None if name == "ordered" else True
    with pytest.warns(cavity.NumericalWarning, match="separated by column 'x1'"):
        cavity.GLM(likelihood, intercept=intercept).fit(dummy, y)
    cavity.GLM(likelihood, intercept=intercept).fit(RNG.normal(size=(N, 1)), y)  # no warning


def test_residuals_of_new_likelihoods_are_normal():
    rng = np.random.default_rng(5)
    z = rng.normal(size=1500)
    f = 0.5 + 0.4 * z
    for likelihood in (likelihoods.Weibull(1.5), likelihoods.Gamma(2.0), likelihoods.HurdlePoisson(0.3)):
        posterior = cavity.GLM(likelihood, intercept=True).fit(z[:, None], likelihood.draw(f, rng))
        residuals = posterior.residuals(z[:, None], likelihood.draw(f, rng))
        assert stats.kstest(residuals, "norm").pvalue > EXPANSION
