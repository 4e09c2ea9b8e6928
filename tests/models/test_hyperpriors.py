"""Priors of hyperparameters of models: the maximum by brute force, keys, files."""

import numpy as np
import pytest
from scipy import optimize, stats
from support.tolerances import EARLY, OPTIMUM, PRINTED

import cavity
from cavity import likelihoods
from cavity.priors import PC, Beta, Gamma, HalfNormal, LogNormal, PCCorrelation
from cavity.terms import Autoregressive

RNG = np.random.default_rng(3)
GROUPS = np.repeat(np.arange(6), 5)
Y = 1.0 + 0.4 * RNG.normal(size=6)[GROUPS] + RNG.normal(size=30)
COUNTS = RNG.negative_binomial(2.0, 0.4, size=60)


def fit_one_way(priors, noise_variance=None):
    """Effects of six groups in Gaussian rows with an intercept N(0, 4)."""
    model = cavity.MixedGLM("g", likelihoods.Gaussian(noise_variance), prior_variance=4.0, priors=priors)
    return model.fit(np.ones((30, 1)), Y, groups={"g": GROUPS}, tol=1e-12)


def test_the_sum_of_log_evidence_and_log_prior_is_maximised():
    """Against the dense Gaussian evidence, with densities of scipy in the logs of both standard deviations."""
    same = GROUPS[:, None] == GROUPS

    def negative(logs, with_prior=True):
        sd, scale = np.exp(logs)
        covariance = 4.0 + sd**2 * same + scale**2 * np.eye(30)
        value = stats.multivariate_normal(np.zeros(30), covariance).logpdf(Y)
        if with_prior:
            value += stats.expon(scale=0.5 / -np.log(0.1)).logpdf(sd) + logs[0]
            value += stats.norm(np.log(0.8), 0.2).logpdf(logs[1])
        return -value

    best = optimize.minimize(negative, [-0.5, 0.0], method="Nelder-Mead", options={"xatol": 1e-10, "fatol": 1e-13})
    posterior = fit_one_way({"sd": PC(0.5, 0.1), "noise_variance": LogNormal(0.8**2, 0.4)})
    names, values = posterior.hyperparameters.names, posterior.hyperparameters.values
    result = dict(zip(names, values, strict=True))
    np.testing.assert_allclose(result["sd(intercept | g)"], np.exp(best.x[0]), rtol=OPTIMUM)
    np.testing.assert_allclose(result["noise_variance"], np.exp(2.0 * best.x[1]), rtol=OPTIMUM)
    assert posterior.log_evidence == pytest.approx(-negative(best.x, with_prior=False), abs=OPTIMUM)
    assert posterior.hyperparameters.sd[0] is not None


def test_dispersion_of_counts():
    """Against the best of fits at given dispersions."""
    prior = HalfNormal(0.2)

    def negative(log_dispersion):
        likelihood = likelihoods.NegativeBinomial(float(np.exp(log_dispersion)))
        fitted = cavity.GLM(likelihood, prior_variance=9.0).fit(np.ones((60, 1)), COUNTS)
        density = stats.halfnorm(scale=0.2).logpdf(np.exp(log_dispersion)) + log_dispersion
        return -fitted.log_evidence - density

    best = optimize.minimize_scalar(negative, bounds=(-6.0, 1.0), method="bounded", options={"xatol": 1e-9})
    model = cavity.GLM(likelihoods.NegativeBinomial(), prior_variance=9.0, priors={"dispersion": prior})
    posterior = model.fit(np.ones((60, 1)), COUNTS)
    assert posterior.hyperparameters.values[0] == pytest.approx(np.exp(best.x), rel=OPTIMUM)
    density = stats.halfnorm(scale=0.2).logpdf(posterior.hyperparameters.values[0])
    log_prior = density + np.log(posterior.hyperparameters.values[0])
    assert posterior.hyperparameters.log_prior == pytest.approx(log_prior, abs=EARLY)
    flat = cavity.GLM(likelihoods.NegativeBinomial(), prior_variance=9.0).fit(np.ones((60, 1)), COUNTS)
    assert flat.hyperparameters.values[0] > posterior.hyperparameters.values[0]
    assert flat.hyperparameters.log_prior == 0.0


def test_a_proper_prior_keeps_a_standard_deviation_away_from_zero():
    """Where the data say nothing, the maximum in the log of the sd is at 1/rate."""
    y = np.tile([-1.0, 1.0], 15)
    model = cavity.MixedGLM("g", likelihoods.Gaussian(1.0), prior_variance=1.0, priors={"sd": PC(3e-3)})
    posterior = model.fit(np.ones((30, 1)), y, groups={"g": GROUPS})
    assert posterior.hyperparameters.values[0] == pytest.approx(1.0 / PC(3e-3).rate, rel=PRINTED)


def test_the_key_of_the_name_counts_before_that_of_the_term_and_of_the_kind():
    narrow, wide = PC(1e-3), PC(1e3)
    expected = fit_one_way({"sd": narrow}, noise_variance=1.0).hyperparameters.values
    for priors in (
        {"sd": wide, "g": narrow},
        {"sd": wide, "g": {"sd": narrow}},
        {"g": wide, "sd(intercept | g)": narrow, "sd": wide},
    ):
        assert fit_one_way(priors, noise_variance=1.0).hyperparameters.values == expected


def test_priors_of_an_autoregression_in_a_file(tmp_path):
    t = np.arange(40)
    y = np.sin(t / 5.0) + 0.1 * RNG.normal(size=40)
    priors = {"ar1(t)": {"sd": PC(2.0), "rho": PCCorrelation(0.9, 0.7)}, "noise_variance": Gamma(2.0, 10.0)}
    model = cavity.MixedGLM([Autoregressive("t")], "gaussian", prior_variance=4.0, priors=priors)
    posterior = model.fit(np.ones((40, 1)), y, groups={"t": t})
    result = dict(zip(posterior.hyperparameters.names, posterior.hyperparameters.values, strict=True))
    sd, rho, variance = result["sd(ar1(t))"], result["rho(ar1(t))"], result["noise_variance"]
    parts = [PC(2.0).log_density(sd) + np.log(sd), stats.gamma(2.0, scale=0.1).logpdf(variance) + np.log(variance)]
    parts.append(PCCorrelation(0.9, 0.7).log_density(rho) + np.log((1.0 - rho**2) / 2.0))
    assert posterior.hyperparameters.log_prior == pytest.approx(sum(parts), abs=EARLY)
    posterior.save(tmp_path / "chain.npz")
    restored = cavity.load(tmp_path / "chain.npz")
    assert repr(restored.model.priors) == repr(posterior.model.priors)
    assert restored.hyperparameters.log_prior == posterior.hyperparameters.log_prior


BAD = [
    (3, TypeError, "priors must be a dict of priors"),
    ({"sd": 1.0}, TypeError, r"priors\['sd'\] must be a prior of cavity.priors"),
    ({"h": PC(1.0)}, ValueError, "priors must be of hyperparameters or terms, which are 'g', .*, got 'h'"),
    (
        {"sd": Beta(1.0, 1.0)},
        ValueError,
        r"must have for sd\(intercept \| g\) a prior of a positive parameter, got one",
    ),
    ({"g": {"rho": PC(1.0)}}, ValueError, r"priors\['g'\] must be of the parameters 'sd', got 'rho'"),
]


@pytest.mark.parametrize(("priors", "kind", "message"), BAD)
def test_bad_priors(priors, kind, message):
    with pytest.raises(kind, match=message):
        fit_one_way(priors)


def test_words_for_groups_have_no_meaning_without_them():
    with pytest.raises(ValueError, match="priors must be a dict where there are no groups"):
        cavity.GLM("gaussian", priors="avoid-zero").fit(np.ones((30, 1)), Y)
    with pytest.raises(ValueError, match="got 'dispersion'"):
        cavity.GLM("gaussian", priors={"dispersion": PC(1.0)}).fit(np.ones((30, 1)), Y)
