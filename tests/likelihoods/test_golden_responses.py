"""The densities behind tests/golden/new_likelihoods.json: against values found by two other rules, and differences."""

import json
import math

import mpmath as mp
import numpy as np
import pytest
from reference import response_densities as reference
from reference.sites import entry
from support import GOLDEN
from support.sites import assert_golden, kernel
from support.tolerances import AT_REST, INTEGRAL, OPTIMUM

from cavity import likelihoods
from cavity.likelihoods.base import has_kernel_for

GOLDEN_SITES = json.loads((GOLDEN / "new_likelihoods.json").read_text())

HAZARD = {"shape": 1.3, "effect": "hazard"}
# of N(0.4, 0.9): log of the integral, tilted mean and variance, by Gauss-Hermite and by adaptive quadrature
INTEGRALS = [
    ("Gamma", {"shape": 2}, 1.7, -1.6782456404, 0.5839185142, 0.3204416826),
    ("Beta", {"precision": 4}, 0.8, 0.1717672134, 0.7651021481, 0.4523559360),
    ("Beta", {"precision": 30}, 0.999, -2.3474345796, 3.3663853465, 0.1843254937),
    ("BetaBinomial", {"precision": 2}, (3, 10), -2.7119010817, 0.0644481044, 0.5944343233),
    ("Weibull", HAZARD, (1.5, 1.5), -1.8245152860, -0.1970337702, 0.3817670022),
    ("Weibull", HAZARD, (1.5, math.inf), -1.8069826370, -0.6204132364, 0.4679779887),
    ("Weibull", HAZARD, (0, 1.5), -0.1793045364, 0.6003938855, 0.7402003737),
    ("Weibull", HAZARD, (1.5, 2), -2.8005506210, -0.3014693240, 0.3710702202),
    ("Weibull", HAZARD, (0, 1e-6), -17.1101637710, 1.2999999590, 0.8999999631),
    ("Cloglog", {}, 1, -0.3257063854, 0.7019149444, 0.7160498123),
    ("Cloglog", {}, -1, -1.2801958618, -0.3841770414, 0.5260935601),
    ("ZeroInflatedPoisson", {"zero_probability": 0.3}, 0, -0.7040301979, 0.0914776756, 0.8996423951),
    ("ZeroInflatedPoisson", {"zero_probability": 0.3}, 4, -3.0745069848, 1.0665310527, 0.2428750368),
    (
        "ZeroInflatedNegativeBinomial",
        {"zero_probability": 0.3, "dispersion": 2},
        0,
        -0.6015702949,
        0.1401520311,
        0.8777843287,
    ),
    ("HurdlePoisson", {"zero_probability": 0.3}, 1, -1.2137300422, -0.1985369968, 0.5592582256),
]
CASES = [
    *(row[:3] for row in INTEGRALS),
    ("Tweedie", {"power": 1.3, "dispersion": 0.7}, 2.0),
    ("Tweedie", {"power": 1.3, "dispersion": 0.7}, 0.0),
    ("Weibull", {"shape": 1.3, "effect": "time"}, (1.5, 1.5)),
    ("Weibull", {"shape": 1.3, "effect": "time"}, (0.5, 1.5)),
    ("LogLogistic", {"shape": 1.3}, (1.5, 1.5)),
    ("LogLogistic", {"shape": 1.3}, (0.5, 1.5)),
    ("LogLogistic", {"shape": 1.3}, (0, 1.5)),
    ("LogLogistic", {"shape": 1.3}, (1.5, math.inf)),
    ("OrderedLogit", {"thresholds": (-1, 1)}, 1),
    ("HurdlePoisson", {"zero_probability": 0.3}, 0),
    ("BetaBinomial", {"precision": 2}, (60, 130)),
]


def integrate(log_p, mean=0.4, variance=0.9, points=400):
    """Log integral, mean and variance of p times N(mean, variance), by the trapezoidal rule."""
    f = mean + np.sqrt(variance) * np.linspace(-10, 10, points)
    g = np.exp([float(log_p(x)) for x in f]) * np.exp(-((f - mean) ** 2) / (2 * variance))
    first = g @ f / g.sum()
    return math.log(g.sum() * (f[1] - f[0]) / math.sqrt(2 * math.pi * variance)), first, g @ (f - first) ** 2 / g.sum()


@pytest.mark.parametrize(("name", "parameters", "y", "log_z", "mean", "variance"), INTEGRALS)
def test_moments_beside_those_of_other_rules(name, parameters, y, log_z, mean, variance):
    moments = integrate(lambda f: reference.DENSITIES[name](mp.mpf(f), y, **parameters)[0])
    np.testing.assert_allclose(moments, [log_z, mean, variance], rtol=INTEGRAL, atol=INTEGRAL)


def test_tweedie_without_its_constant():
    def log_p(f):
        constant = reference.tweedie_constant(mp.mpf(2), mp.mpf("1.5"), mp.mpf(1))
        return reference.tweedie(mp.mpf(f), 2, 1.5, 1)[0] - constant

    expected = -6.1014467807, 0.5676197097, 0.3851182132
    np.testing.assert_allclose(integrate(log_p), expected, rtol=INTEGRAL, atol=INTEGRAL)


def test_asymmetric_laplace_in_closed_form():
    m, v = mp.mpf("0.4"), mp.mpf("0.9")

    def log_z(m):
        return mp.log(reference.asymmetric_laplace_z(m, v, 2, 1, mp.mpf("0.9"), mp.mpf("0.3")))

    with mp.workdps(40):
        moments = log_z(m), m + v * mp.diff(log_z, m), v * (1 + v * mp.diff(log_z, m, 2))
    expected = -3.5200384858, 1.8684963980, 0.3023929043
    np.testing.assert_allclose([float(x) for x in moments], expected, rtol=INTEGRAL, atol=INTEGRAL)


@pytest.mark.parametrize(("name", "parameters", "y"), CASES)
@pytest.mark.parametrize("f", ["-2.5", "0.3", "3.1"])
def test_derivatives_beside_differences(name, parameters, y, f):
    with mp.workdps(40):
        density = reference.DENSITIES[name]
        _, first, second = density(mp.mpf(f), y, **parameters)
        differences = [mp.diff(lambda x: density(x, y, **parameters)[0], mp.mpf(f), n) for n in (1, 2)]
        assert abs(first - differences[0]) <= mp.mpf("1e-12") * (1 + abs(first))
        assert abs(second - differences[1]) <= mp.mpf("1e-9") * (1 + abs(second))


@pytest.mark.parametrize(
    ("name", "parameters"),
    [
        ("Gamma", {"shape": 2}),
        ("Beta", {"precision": 3}),
        ("Weibull", HAZARD),
        ("Weibull", {"shape": 1.3}),
        ("LogLogistic", {"shape": 2.5}),
    ],
)
def test_densities_have_mass_one(name, parameters):
    """In x = log y or logit y, by the trapezoidal rule."""
    x, times = np.linspace(-40, 40, 401), name in ("Weibull", "LogLogistic")
    y = 1 / (1 + np.exp(-x)) if name == "Beta" else np.exp(x)
    slope = y * (1 - y) if name == "Beta" else y
    some = (slope > 0) & (y < 1 if name == "Beta" else y > 0)
    density = reference.DENSITIES[name]
    p = [float(density(mp.mpf("0.3"), (t, t) if times else t, **parameters)[0]) for t in y[some]]
    assert np.exp(p) @ slope[some] * (x[1] - x[0]) == pytest.approx(1, abs=OPTIMUM)
    if times:  # and censored times, by sums of it
        total = [float(density(mp.mpf("0.3"), y, **parameters)[0]) for y in ((0, 0.5), (0.5, 2), (2, math.inf))]
        assert np.exp(total).sum() == pytest.approx(1, abs=OPTIMUM)


def test_tweedie_has_mass_one_and_its_mean():
    """Zero, and the density of y > 0 in log y."""
    x = np.linspace(-25, 6, 156)
    p = np.exp([float(reference.tweedie(mp.mpf("0.3"), t, 1.6, 0.8)[0]) for t in np.exp(x)]) * np.exp(x)
    zero = math.exp(reference.tweedie(mp.mpf("0.3"), 0, 1.6, 0.8)[0])
    assert zero + p.sum() * 0.2 == pytest.approx(1, abs=OPTIMUM)
    assert p @ np.exp(x) * 0.2 == pytest.approx(math.exp(0.3), abs=OPTIMUM)


@pytest.mark.parametrize(
    ("name", "parameters", "values"),
    [
        ("BetaBinomial", {"precision": 2}, [(k, 7) for k in range(8)]),
        ("OrderedLogit", {"thresholds": (-1, 0, 2)}, range(4)),
        ("Cloglog", {}, (-1, 1)),
        ("ZeroInflatedPoisson", {"zero_probability": 0.2}, range(60)),
        ("ZeroInflatedNegativeBinomial", {"zero_probability": 0.2, "dispersion": 3}, range(200)),
        ("HurdlePoisson", {"zero_probability": 0.2}, range(60)),
    ],
)
def test_probabilities_have_sum_one(name, parameters, values):
    density = reference.DENSITIES[name]
    total = math.fsum(math.exp(density(mp.mpf("0.7"), y, **parameters)[0]) for y in values)
    assert total == pytest.approx(1, abs=OPTIMUM)


@pytest.mark.parametrize("name", [*reference.DENSITIES, *reference.CLOSED_FORMS])
def test_golden_sites(name):
    """By the kernel where there is one, else by the quadrature of likelihoods that a density alone defines."""
    entries = [row for row in GOLDEN_SITES if row["likelihood"] == name]
    assert len(entries) >= 15
    for row in entries:
        likelihood, m, v = getattr(likelihoods, name)(**row["parameters"]), row["mean"], row["variance"]
        y = np.atleast_1d(likelihood.check(np.array([row["y"]], dtype=float)))
        if has_kernel_for(likelihood, row["power"]):
            moments = kernel(likelihood, y, row["power"], np.array([m]), np.array([v]))
            assert_golden(row, [float(moment[0]) for moment in moments], smallest=1e-3)
        elif row["power"] == 1:
            log_z, d1, d2 = (float(np.ravel(a)[0]) for a in likelihood.log_tilted(y, np.array([m]), np.array([v])))
            expected = [float(x) for x in row["values"][:3]]
            assert log_z == pytest.approx(expected[0], rel=AT_REST, abs=AT_REST)
            assert d1 == pytest.approx(expected[1], rel=AT_REST, abs=AT_REST / v**0.5)
            assert d2 == pytest.approx(expected[2], rel=AT_REST, abs=AT_REST / v)


def test_a_share_at_one_in_a_wide_cavity():
    """log p falls like -|f| on either side: from there a step by Newton is as long as the variance."""
    likelihood = likelihoods.Beta(17.26974112523869)
    values = "1.9667517820917544264 -0.035164650860068451895 -0.0012863817726524176979 2.9640365724716562201"
    expected = {
        "likelihood": "Beta",
        "mean": 32.40691757467599,
        "variance": 775.663415261661,
        "values": [*values.split(), "0.58452745012559729895", "0.0022007208940760833352"],
    }
    y = likelihood.check(np.array([0.9997601330842962]))
    moments = kernel(likelihood, y, 1.0, np.array([expected["mean"]]), np.array([expected["variance"]]))
    assert_golden(expected, [float(moment[0]) for moment in moments], smallest=1e-3)


@pytest.mark.parametrize(
    ("y", "m", "sd", "log_z", "d1", "d2"),  # sums over 800 nodes of 40 digits
    [
        (0.11750894579387672, -7.168232108547057, 0.3, -117.42398356535061, 8.002225500207796, 18.012977508601555),
        (0.9050372000398698, 6.781071266663524, 0.3, -88.34557122118898, -18.955821816168907, 99.71684066573197),
        (0.41018456992035085, 4.501718084356783, 0.1, -791.1007343390816, -210.02711255344977, 1543.6564624318662),
        (0.41018456992035085, 4.501718084356783, 0.3, -124.14559351237136, -51.74063137276142, -10.641971357110183),
    ],
)
def test_shares_that_are_far_likelier_beside_the_cavity(y, m, sd, log_z, d1, d2):
    """Of precision 1,000: two modes, the one at y with little of the cavity, or one far from both."""
    likelihood = likelihoods.Beta(1000.0)
    moments = kernel(likelihood, likelihood.check(np.array([y])), 1.0, np.array([m]), np.array([sd**2]))
    np.testing.assert_allclose([float(moment[0]) for moment in moments[:3]], [log_z, d1, d2], rtol=AT_REST)


@pytest.mark.parametrize(
    ("power", "dispersion", "y", "m", "sd"),
    [(1.8250161206945896, 0.6878769336093277, 1.369897397213368, -10710.0, 881.1), (1.09, 0.61, 0.456, 8827.0, 788.0)],
)
def test_amounts_thousands_of_units_from_the_cavity(power, dispersion, y, m, sd):
    """A mode where the exponentials of log p are beyond float64 at the mean of the cavity."""
    parameters = {"power": power, "dispersion": dispersion}
    likelihood = likelihoods.Tweedie(**parameters)
    moments = kernel(likelihood, likelihood.check(np.array([y])), 1.0, np.array([m]), np.array([sd**2]))
    expected = entry("Tweedie", parameters, y, 1.0, m, sd**2)
    assert_golden(expected, [float(moment[0]) for moment in moments], smallest=1e-3)
