"""Likelihoods of times, shares, positive numbers, counts with zeros and quantiles: densities, moments, draws."""

import mpmath as mp
import numpy as np
import pytest
from reference import response_densities as reference
from scipy import stats
from scipy.integrate import quad
from support.responses import SPECIAL_RESPONSES, make_likelihood
from support.tolerances import AT_REST, EARLY, INTEGRAL, LAST_BIT, LOSSES, ROOT_EPS, SUMS

from cavity import likelihoods
from cavity.base.special import gamma_probability

COUNTS = {"ZeroInflatedPoisson", "ZeroInflatedNegativeBinomial", "HurdlePoisson"}
NUMBERS = sorted(SPECIAL_RESPONSES.keys() - {"Cloglog", "OrderedLogit"})  # those with moments
TIMES = ["LogNormal", "Exponential", "Weibull", "Weibull, hazard", "LogLogistic"]
NEW = np.array([-0.6, 0.3, 1.1])

BOUNDS = [
    (1e-8, 1e-8),
    (0.7, 0.7),
    (1e9, 1e9),
    (0, 1e-6),
    (0, 5),
    (2, np.inf),
    (1e30, np.inf),
    (1.5, 2),
    (3, 3 + 1e-12),
]
POSITIVE = [1e-8, 0.3, 1.0, 7.5, 1e10]
SHARES = [1e-12, 0.3, 0.5, 0.9, 1 - 1e-12]
TRIALS = [(0, 1), (1, 1), (0, 12), (3, 10), (12, 12), (5, 10**6), (5 * 10**5, 10**6)]
LOG_P = [
    *[("Gamma", {"shape": a}, POSITIVE) for a in (1e-3, 2.0, 1e6)],
    *[("Tweedie", {"power": p, "dispersion": 0.7}, [0, *POSITIVE[:4]]) for p in (1.05, 1.5, 1.95)],
    *[("Weibull", {"shape": a, "effect": e}, BOUNDS) for a in (0.1, 1.3, 20.0) for e in ("time", "hazard")],
    ("Exponential", {"effect": "time"}, BOUNDS),
    *[("LogLogistic", {"shape": a}, BOUNDS) for a in (0.1, 1.3, 20.0)],
    *[("LogNormal", {"sd": s}, BOUNDS) for s in (0.05, 1.0, 10.0)],
    *[("Beta", {"precision": phi}, SHARES) for phi in (1e-3, 4.0, 1e5)],
    *[("BetaBinomial", {"precision": phi}, TRIALS) for phi in (1e-3, 2.0, 1e8)],
    *[("ZeroInflatedPoisson", {"zero_probability": pi}, [0, 1, 50]) for pi in (1e-12, 0.3)],
    ("ZeroInflatedNegativeBinomial", {"zero_probability": 1e-12, "dispersion": 2.0}, [0, 1, 50]),
    *[("HurdlePoisson", {"zero_probability": pi}, [0, 1, 2, 50]) for pi in (1e-12, 0.3)],
    ("Cloglog", {}, [-1, 1]),
    ("OrderedLogit", {"thresholds": (-1.0, -1.0 + 1e-9, 3.0)}, range(4)),
]


@pytest.mark.parametrize(("name", "parameters", "observations"), LOG_P)
def test_log_p_in_both_tails(name, parameters, observations):
    """To 1e-13 of what it is a sum of, and what a rounding of f or of log y moves it by."""
    likelihood = getattr(likelihoods, name)(**parameters)
    density = reference.log_normal if name == "LogNormal" else reference.DENSITIES[name]
    for y in observations:
        checked = np.asarray(likelihood.check(np.array([y], dtype=float)))
        top = 0.0 if name in ("Beta", "BetaBinomial", "OrderedLogit") else float(np.log(max(1.0, np.max(y))))
        for f in (-40.0, -3.0, -1e-9, 0.4, top if np.isfinite(top) else 5.0, 6.0, 40.0):
            with mp.workdps(60):
                exact, slope, _ = map(float, density(mp.mpf(f), y, **parameters))
            if abs(exact) > 1e200:
                continue
            result = float(np.ravel(likelihood.log_p(checked, np.array([f])))[0])
            near = 1e-15 * (5.0 + abs(slope) * (1.0 + abs(f) + abs(np.log(max(np.min(np.abs(y)), 1e-12)))))
            assert abs(result - exact) <= 1e-13 * abs(exact) + near, (y, f, result, exact)


@pytest.mark.parametrize("likelihood", [make_likelihood(name) for name in SPECIAL_RESPONSES])
def test_log_p_far_away_is_a_number(likelihood):
    y = np.array([(1e-300, 1e300), (1.0, 1.0), (1e300, np.inf), (0.0, 1e-300)]) if likelihood.takes_event else None
    y = np.array([(0.0, 1e9), (7.0, 7.0), (0.0, 0.0)]) if likelihood.takes_trials else y
    y = np.array([0.0, 1.0, 2.0]) if (likelihood.discrete and y is None) or likelihood.n_classes == 4 else y
    y = np.array([-1.0, 1.0]) if likelihood.n_classes == 2 else y
    y = np.array([1e-300, 0.5, 1.0 - 1e-16]) if y is None else y
    f = np.array([-1e300, -1e9, -800.0, 0.0, 800.0, 1e9, 1e300])
    values = likelihood.log_p(likelihood.check(y)[:, None], f)
    assert values.shape == (len(y), 7)
    assert np.all(values < np.inf)


def integrate_density(likelihood, f, upper):
    """The integral of the density up to a number, or sum of probabilities, at f."""
    if likelihood.discrete:
        y = np.arange(int(upper) + 1.0)
        return float(np.exp(likelihood.log_p(y, np.full(len(y), f))).sum())

    def density(y):
        return float(np.exp(likelihood.log_p(likelihood.check(np.float64(y)), np.float64(f))))

    if isinstance(likelihood, likelihoods.AsymmetricLaplace):
        return quad(density, -40.0, f, epsabs=1e-13)[0] + quad(density, f, upper, epsabs=1e-13)[0]
    zero = density(0.0) if isinstance(likelihood, likelihoods.Tweedie) else 0.0
    return zero + quad(lambda x: density(np.exp(x)) * np.exp(x), -80.0, np.log(upper), epsabs=1e-13, limit=400)[0]


@pytest.mark.parametrize("name", sorted(set(NUMBERS) - {"BetaBinomial"}))
@pytest.mark.parametrize("f", [-1.0, 0.4])
def test_distribution_functions_are_integrals(name, f):
    likelihood = make_likelihood(name)
    for y in (0.999,) if name == "Beta" else (1.0, 4.0, 150.0):
        total = float(likelihood.cdf(np.array(y), np.array(f)))
        assert total == pytest.approx(integrate_density(likelihood, f, y), abs=ROOT_EPS)
    below = np.array(f - 100.0 if name == "AsymmetricLaplace" else -0.5)
    assert likelihood.cdf(below, np.array(f)) == pytest.approx(0.0, abs=AT_REST)


@pytest.mark.parametrize(("power", "dispersion"), [(1.02, 0.3), (1.3, 0.3), (1.5, 0.01), (1.9, 3.0)])
@pytest.mark.parametrize("f", [-1.0, 2.0])
def test_distribution_function_of_sums(power, dispersion, f):
    """Of Gamma variables, all numbers of them one by one."""
    n, a = np.exp((2 - power) * f) / dispersion / (2 - power), (2 - power) / (power - 1)
    j = np.arange(1, 4000)
    y = np.exp(f) * np.array([0.2, 1.0, 2.0])
    inside = stats.gamma.cdf(y[:, None], j * a, scale=dispersion * (power - 1) * np.exp((power - 1) * f))
    likelihood = likelihoods.Tweedie(power, dispersion)
    np.testing.assert_allclose(
        likelihood.cdf(y, np.full(3, f)), np.exp(-n) + inside @ stats.poisson.pmf(j, n), rtol=0, atol=LOSSES
    )


@pytest.mark.parametrize("precision", [1e-3, 0.5, 3.0, 1e3])
@pytest.mark.parametrize("f", [-6.0, -0.4, 2.0])
def test_distribution_function_of_successes(precision, f):
    """By SciPy's probabilities."""
    likelihood, n = likelihoods.BetaBinomial(precision), 40
    a, b = precision / (1 + np.exp(-f)), precision / (1 + np.exp(f))
    total = np.cumsum(stats.betabinom.pmf(np.arange(n + 1), n, a, b))
    result = likelihood.cdf(np.arange(-1.0, n + 2), np.full(n + 3, f), n)
    np.testing.assert_allclose(result, [0.0, *total, 1.0], rtol=0, atol=LOSSES)
    assert likelihood.cdf(np.zeros(1), np.zeros(1), 0) == 1.0


@pytest.mark.parametrize("name", NUMBERS)
def test_moments_are_those_of_draws_and_of_quadrature(name):
    """Draws within 4 standard errors; closed forms beside the integrals of the base class."""
    likelihood, n = make_likelihood(name), 200_000
    likelihood = likelihoods.LogLogistic(6.0) if name == "LogLogistic" else likelihood
    likelihood = likelihoods.LogNormal(0.4) if name == "LogNormal" else likelihood
    variance = np.full(3, 0.05)
    np.testing.assert_allclose(
        likelihood.expected(NEW, variance), likelihoods.Likelihood.expected(likelihood, NEW, variance)
    )
    for moment, exact in zip(
        likelihood.moments(NEW, variance), likelihoods.Likelihood.moments(likelihood, NEW, variance), strict=True
    ):
        np.testing.assert_allclose(moment, exact, rtol=AT_REST)
    for f in NEW:
        y = likelihood.draw(np.full(n, f), np.random.default_rng(7))
        mean, spread = float(likelihood.conditional_mean(f)), float(likelihood.conditional_variance(np.array(f)))
        assert abs(y.mean() - mean) < 4 * np.sqrt(spread / n)
        assert abs(y.var() - spread) < 4 * np.std((y - mean) ** 2) / np.sqrt(n)
        grid = np.quantile(y, [0.1, 0.5, 0.9])
        share = [np.mean(y <= at) for at in grid]
        np.testing.assert_allclose(likelihood.cdf(grid, np.full(3, f)), share, rtol=0, atol=4 / np.sqrt(n))


@pytest.mark.parametrize("name", NUMBERS)
@pytest.mark.parametrize("spread", [1e-6, 0.5])
def test_quantiles_invert_the_distribution_function(name, spread):
    likelihood, mean, variance = make_likelihood(name), NEW[1:2], np.array([spread])
    nodes, weights = np.polynomial.hermite_e.hermegauss(150)
    f, weights = mean + np.sqrt(variance) * nodes, weights / weights.sum()
    for q in (0.003, 0.4, 0.99):
        y = likelihood.quantile(np.array([q]), mean, variance)

        def cdf(at):
            return likelihood.cdf(np.full(f.shape, at), f) @ weights

        if likelihood.discrete or (y[0] == 0.0 and name == "Tweedie"):
            assert cdf(y[0]) >= q > cdf(y[0] - 1.0)
        else:
            assert cdf(y[0]) == pytest.approx(q, rel=EARLY)


@pytest.mark.parametrize("scale", [1e-6, 1e7])
@pytest.mark.parametrize("name", ["Gamma", "Tweedie", "AsymmetricLaplace", *TIMES[:1], *TIMES[2:]])
def test_starts_follow_the_units_of_y(name, scale):
    """Those of what has units change by the power of these that is theirs, the others do not."""
    rng = np.random.default_rng(3)
    f = 0.3 * rng.normal(size=400)
    y = SPECIAL_RESPONSES[name][1](rng, f)
    kind = getattr(likelihoods, name.partition(",")[0])
    likelihood = kind(effect="hazard") if "hazard" in name else kind()
    one, other = (likelihood.check(y * unit) for unit in (1.0, scale))
    moved = likelihood.start(other) - likelihood.start(one)
    slope = -1.0 if "hazard" in name else 1.0
    if name != "AsymmetricLaplace":
        np.testing.assert_allclose(moved, slope * np.log(scale), rtol=SUMS)
    fitted = np.full(400, np.median(likelihood.start(one)))
    first = likelihood.starting_values(one, fitted)
    second = likelihood.starting_values(other, fitted * scale if name == "AsymmetricLaplace" else fitted + moved)
    units = {"AsymmetricLaplace": scale, "Tweedie": scale**0.5}.get(name, 1.0)
    for parameter, value in first.items():
        change = units if parameter in ("dispersion", "scale") else 1.0
        assert second[parameter] == pytest.approx(value * change, rel=LOSSES)


@pytest.mark.parametrize("name", sorted(name for name in SPECIAL_RESPONSES if name not in ("Cloglog", "Exponential")))
def test_starts_are_near_what_was_drawn(name):
    """Within a factor of six, at f itself; the precisions of shares are below, where EP converges."""
    rng = np.random.default_rng(4)
    f, values = 0.5 * rng.normal(size=3000), SPECIAL_RESPONSES[name][0]
    y = SPECIAL_RESPONSES[name][1](rng, f)
    likelihood = make_likelihood(name)
    for parameter, value in likelihood.starting_values(likelihood.check(y), f).items():
        if parameter == "thresholds":
            np.testing.assert_allclose(value, values[parameter], atol=0.3)
        else:
            assert values[parameter] / 6.0 < value < values[parameter] * (1.0 if parameter == "precision" else 6.0)


def test_exponential_is_weibull_of_shape_one():
    y = np.array([(1.5, 1.5), (1.5, np.inf), (0.0, 1.5), (1.5, 2.0)])
    for effect in ("time", "hazard"):
        for one, other in zip(
            likelihoods.Exponential(effect).log_tilted(y, 0.4, 0.9),
            likelihoods.Weibull(1.0, effect).log_tilted(y, 0.4, 0.9),
            strict=True,
        ):
            np.testing.assert_allclose(one, other, rtol=INTEGRAL)


@pytest.mark.parametrize(
    ("likelihood", "y", "message"),
    [
        (likelihoods.Gamma(), [1.0, 0.0], "positive numbers for Gamma; got 0.0 in row 1; Tweedie has zeros too"),
        (likelihoods.Tweedie(), [0.0, -2.0], "zeros and positive numbers for Tweedie; got -2.0 in row 1"),
        (likelihoods.Weibull(), [1.0, 0.0], "positive, finite times for Weibull; got 0.0 in row 1; .* bounds 0 and t"),
        (likelihoods.Weibull(), [[2.0, 2.0], [np.inf, np.inf]], "finite times for Weibull; got inf and inf in row 1"),
        (likelihoods.LogNormal(), [1.0, np.nan], r"y must be finite, got y\[1\] = nan"),
        (likelihoods.LogLogistic(), [[1.0, 2.0], [3.0, 2.0]], "must not be above .*; got 3.0 and 2.0 in row 1"),
        (likelihoods.Exponential(), [[-1.0, 2.0]], "must not be negative for Exponential; got -1.0 and 2.0 in row 0"),
        (likelihoods.Weibull(), np.ones((2, 3)), r"shape \(N,\), times, or \(N, 2\)"),
        (likelihoods.Beta(), [0.2, 1.0], "in row 1; for shares of counts use BetaBinomial.* move 0 and 1 inside"),
        (likelihoods.Beta(), [20.0, 30.0], "got 20.0 in row 0; divide percentages by 100"),
        (likelihoods.BetaBinomial(), [[1, 2], [3, 2]], "as many successes as trials; got 3.0 and 2.0 in row 1"),
        (
            likelihoods.HurdlePoisson(),
            [1, 0.5],
            "whole numbers, not negative; got 0.5 in row 1; Gamma has positive numbers",
        ),
        (likelihoods.OrderedLogit([0.0]), [1, 2], "at most 1 for 1 thresholds, got 2 in row 1"),
        (likelihoods.Cloglog(), [0, 2], "two classes, .* got 2.0 in row 1"),
    ],
)
def test_bad_observations_are_named(likelihood, y, message):
    with pytest.raises(ValueError, match=message):
        likelihood.check(y)


def test_moments_of_counts_above_zero_far_below_it():
    """The mean is 1 + exp(f)/2 there, which rounding makes a staircase; the variance of f may be wide."""
    likelihood = likelihoods.HurdlePoisson(0.2)
    for m, v in ((-22.0, 14.0), (-40.0, 1.0), (0.5, 1.0), (10.0, 2.0)):
        mean, variance = likelihood.moments(np.array([m]), np.array([v]))
        with mp.workdps(30):

            def mean_of(power, m=m, v=v):
                def integrand(z):
                    rate = mp.exp(m + mp.sqrt(v) * z)
                    return rate / -mp.expm1(-rate) * (1 + rate) ** power * mp.npdf(z)

                return mp.mpf(0.8) * mp.quad(integrand, [-12, -6, -3, 0, 3, 6, 12, 20])

            expected = mean_of(0), mean_of(1) - mean_of(0) ** 2
        assert mean[0] == pytest.approx(float(expected[0]), rel=INTEGRAL)
        assert variance[0] == pytest.approx(float(expected[1]), rel=INTEGRAL)
    assert np.isfinite(likelihood.expected(np.array([-22.0]), np.array([194.0])))


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: likelihoods.Weibull(1.0, "rate"), "effect must be one of 'time', 'hazard', got 'rate'"),
        (lambda: likelihoods.Tweedie(2.0, 1.0), r"power must be in \(1, 2\), got 2.0"),
        (lambda: likelihoods.AsymmetricLaplace(0.0), r"quantile_level must be in \(0, 1\), got 0.0"),
        (lambda: likelihoods.LogLogistic(1.0).conditional_mean(0.0), "shape = 1 have no mean, only with > 1"),
        (lambda: likelihoods.LogLogistic(2.0).moments(0.0, 1.0), "shape = 2 have no finite variance, only with > 2"),
        (lambda: likelihoods.Gamma().log_p(1.0, 0.0), "shape of Gamma is open"),
    ],
)
def test_bad_parameters_are_named(make, message):
    with pytest.raises(ValueError, match=message):
        make()


@pytest.mark.parametrize(("power", "expected_number"), [(1 + 1e-6, 3e3), (1 + 1e-6, 1e8), (1.001, 3e4), (1.02, 1e5)])
def test_tweedie_close_to_a_count_is_the_sum_over_all_numbers_of_terms(power, expected_number):
    b, c = 2.0 - power, power - 1.0
    likelihood = likelihoods.Tweedie(power, 1.0 / (expected_number * b))
    z = np.array([-5.0, -1.5, -0.3, 0.0, 1e-3, 1.1, 4.0])
    y = 1.0 + z / np.sqrt(expected_number)
    reach = 9.0 * np.sqrt(expected_number)
    j = np.arange(np.floor(expected_number - reach), expected_number + reach)
    weights = np.exp(np.cumsum(np.log1p((expected_number - j) / j)))  # but for a factor
    weights /= weights.sum()
    shape = b / c
    truth = [weights @ gamma_probability(j * shape, v * expected_number * shape) for v in y]
    np.testing.assert_allclose(likelihood.cdf(y, np.zeros(7)), truth, rtol=INTEGRAL, atol=LOSSES)


def test_tweedie_of_many_terms_has_quantiles_of_the_count():
    likelihood = likelihoods.Tweedie(1.0 + 1e-10, 1e-8)
    q = np.array([0.01, 0.5, 0.9])
    quantiles = likelihood.quantile(q, np.zeros(3), np.zeros(3))
    np.testing.assert_allclose(quantiles, 1e-8 * stats.poisson.ppf(q, 1e8), rtol=ROOT_EPS)


@pytest.mark.parametrize("power", [1.0 + 1e-10, 1.01, 1.5, 1.99])
def test_distribution_function_of_tweedie_at_the_ends_of_f(power):
    f = np.array([-1e300, -2e5, 2e5, 1e300])
    for y, expected in ((0.0, [1, 1, 0, 0]), (1.0, [1, 1, 0, 0]), (-1.0, [0, 0, 0, 0])):
        np.testing.assert_allclose(likelihoods.Tweedie(power, 1.0).cdf(y, f), expected, rtol=LAST_BIT)


def test_tails_of_large_counts_are_smooth():
    """SciPy's incomplete gamma function jumps by 4e-8 at 4.5 standard deviations."""
    y = np.floor(3e7 + np.sqrt(3e7) * np.array([-6.0, -5.0, 5.0]))
    tails = likelihoods.Poisson().cdf(y, np.full(3, np.log(3e7)))
    edge = stats.norm.cdf((y + 0.5 - 3e7) / np.sqrt(3e7))
    np.testing.assert_allclose(tails, edge, rtol=0.02)
