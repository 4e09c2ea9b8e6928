"""Priors of hyperparameters: densities by quadrature, slopes by differences, golden values."""

import numpy as np
import pytest
from scipy import integrate
from support.tolerances import EARLY, INTEGRAL, ROOT_EPS

import cavity
from cavity.priors import PC, Beta, Gamma, HalfNormal, LogNormal, PCCorrelation, PCMixing
from cavity.priors.densities import evaluate_log_density
from cavity.priors.saved import from_settings, to_settings
from cavity.terms import MarkovField

FREE_NUMBERS = {  # by what the values are: their range, and the inverse of the free number
    "positive": ((0.0, np.inf), np.exp),
    "share": ((0.0, 1.0), lambda u: 1.0 / (1.0 + np.exp(-u))),
    "correlation": ((-1.0, 1.0), lambda u: np.tanh(0.5 * u)),
}
PRIORS = [
    (PC(0.7, 0.1), "positive"),
    (HalfNormal(1.3), "positive"),
    (LogNormal(2.0, 0.5), "positive"),
    (Gamma(2.5, 1.5), "positive"),
    (Beta(1.7, 0.8), "share"),
    (PCCorrelation(0.9, 0.7), "correlation"),
    (PCCorrelation(-0.3, 0.95), "correlation"),
]
FIELD = MarkovField("r", [("a", "b"), ("b", "c"), ("c", "d"), ("e", "f")], regions=list("abcdefg"))
MIXING = PCMixing.of(FIELD, share=0.4, probability_below=0.6)
CASES = [pytest.param(*pair, id=repr(pair[0])) for pair in PRIORS]


@pytest.mark.parametrize(("prior", "kind"), CASES)
def test_densities_integrate_to_one(prior, kind):
    (low, high), _ = FREE_NUMBERS[kind]
    total = integrate.quad(lambda x: np.exp(prior.log_density(x)), low, high, epsabs=1e-12, limit=500)[0]
    assert total == pytest.approx(1.0, abs=EARLY)


@pytest.mark.parametrize(("prior", "kind"), [*CASES, pytest.param(MIXING, "share", id="mixing")])
def test_slopes_are_derivatives_in_the_free_number(prior, kind):
    value = FREE_NUMBERS[kind][1]
    for u in (-1.1, 0.2, 0.9):
        difference = (prior.log_density(value(u + 1e-4)) - prior.log_density(value(u - 1e-4))) / 2e-4
        assert evaluate_log_density(prior, value(u))[1] == pytest.approx(difference, abs=EARLY)


def test_probabilities_are_those_of_the_tail():
    prior = PC(upper=2.0, probability=0.03)
    tail = integrate.quad(lambda x: np.exp(prior.log_density(x)), 2.0, np.inf)[0]
    assert tail == pytest.approx(0.03, abs=INTEGRAL)
    for lower, probability in ((0.9, 0.7), (-0.3, 0.95), (0.5, 0.51)):
        prior = PCCorrelation(lower, probability)

        def density(distance, prior=prior):
            return 2.0 * distance * np.exp(prior.log_density(1.0 - distance**2))

        above = integrate.quad(density, 0.0, np.sqrt(1.0 - lower))[0]
        assert above == pytest.approx(probability, abs=INTEGRAL)

    below = integrate.quad(lambda x: np.exp(MIXING.log_density(x)), 0.0, 0.4)[0]
    assert below == pytest.approx(0.6, abs=INTEGRAL)


def test_golden_values_of_the_mixing_parameter():
    """The graph of Scotland, by other code (Riebler and others, 2016)."""
    counties, _ = cavity.data.table("scotland")
    W = {one: others.split() for one, others in zip(counties["county"], counties["neighbours"], strict=True)}
    prior = PCMixing.of(MarkovField("county", W))
    values = [prior.rate, prior.log_density(0.2), prior.log_density(0.5), prior.log_density(0.9)]
    np.testing.assert_allclose(values, [0.2855422201, 0.1750960979, -0.6126090350, -1.134699118], rtol=ROOT_EPS)


def test_golden_values_of_the_correlation():
    prior = PCCorrelation(lower=0.9, probability=0.7)
    values = [prior.rate, prior.log_density(0.5), prior.log_density(0.95)]
    np.testing.assert_allclose(values, [3.771905026, -1.681297981, 1.293710593], rtol=ROOT_EPS)


@pytest.mark.parametrize("prior", [*(pair[0] for pair in PRIORS), MIXING], ids=repr)
def test_settings_of_files(prior):
    second = from_settings(to_settings(prior, "prior"))
    assert type(second) is type(prior)
    assert second.log_density(0.4) == prior.log_density(0.4)


BAD = [
    (lambda: PC(0.0), "upper must be in"),
    (lambda: PC(1.0, 1.0), "probability must be in"),
    (lambda: HalfNormal(np.nan), "sd must be in"),
    (lambda: Beta(1.0, -1.0), "b must be in"),
    (lambda: PCCorrelation(1.0, 0.5), "lower must be in"),
    (lambda: PCCorrelation(0.0, 0.6), r"probability must be above sqrt\(\(1 - lower\)/2\) = 0.7071"),
    (lambda: PCMixing([1.0, 2.0]), "eigenvalues must have at least one 0"),
    (lambda: PCMixing([0.0, 2.0], share=1.0), "share must be in"),
    (lambda: from_settings({"kind": "Cauchy"}), "a prior must be one of PC, Beta"),
]


@pytest.mark.parametrize(("make", "message"), BAD)
def test_bad_parameters(make, message):
    with pytest.raises(ValueError, match=message):
        make()


def test_the_module_is_public():
    names = ["PC", "Beta", "Gamma", "HalfNormal", "LogNormal", "PCCorrelation", "PCMixing", "UniformCorrelation"]
    assert dir(cavity.priors) == sorted(names)
