"""Predictions of observations: moments, distribution functions and quantiles against quadrature and enumeration."""

import numpy as np
import pytest
from scipy import integrate, special, stats
from support.glms import GLM
from support.tolerances import AT_REST, EARLY, EXPANSION, INTEGRAL, LAST_BIT, OPTIMUM, ROOT_EPS, ROUNDING, SOLVES, SUMS

from cavity.likelihoods import (
    Binomial,
    Clutter,
    Gaussian,
    Interval,
    Laplace,
    Likelihood,
    Logit,
    NegativeBinomial,
    OrderedProbit,
    Poisson,
    Probit,
    Step,
    StudentT,
    predictive,
)
from cavity.likelihoods.predictive import find_normal_mixture_quantiles

BELIEFS = [(0.3, 0.5), (-1.0, 2.0), (2.0, 1e-4), (1.5, 0.0), (-0.5, 1e-320)]
MEANS, VARIANCES = (np.array(values) for values in zip(*BELIEFS, strict=True))
NUMBERS = [Gaussian(0.3), Laplace(0.7), StudentT(3.5, 0.5), Clutter(0.2, 9.0, 0.5, 1.0)]
COUNTS = [Poisson(), NegativeBinomial(2.5), Binomial(), Binomial("probit")]
TRIALS = 12.0


class Own(Likelihood):
    """Of one's own: logistic noise, whose scale depends on f, around a mean of either sign."""

    def __repr__(self):
        return "Own()"

    def _scaled(self, y, f):
        return (y - np.sinh(f)) * np.exp(-0.3 * f)

    def log_p(self, y, f):
        t = self._scaled(y, f)
        return -np.logaddexp(0.0, t) - np.logaddexp(0.0, -t) - 0.3 * f

    def conditional_mean(self, f):
        return np.sinh(f)

    def conditional_variance(self, f):
        return np.pi**2 / 3.0 * np.exp(0.6 * f)

    def cdf(self, y, f):
        return special.expit(self._scaled(y, f))


def known(likelihood):
    """What is known of new observations beside f."""
    return {"trials": TRIALS} if isinstance(likelihood, Binomial) else {}


def rows_of(likelihood, y):
    """Observations as the likelihood takes them."""
    return np.stack([y, np.full(np.shape(y), TRIALS)], axis=-1) if isinstance(likelihood, Binomial) else y


def averaged(g, mean, variance):
    """E g(f), by adaptive quadrature that knows nothing of the library."""

    def weighted(z):
        return float(g(mean + np.sqrt(variance) * z)) * np.exp(-0.5 * z * z) / np.sqrt(2.0 * np.pi)

    return integrate.quad(weighted, -14.0, 14.0, limit=500, epsabs=1e-14, epsrel=1e-12)[0]


def numbered(likelihood, f, power):
    """E y^power given each f: by summing, or by quadrature over y."""
    if likelihood in COUNTS:
        y = np.arange(4000.0 if not isinstance(likelihood, Binomial) else TRIALS + 1)
        p = np.exp(likelihood.log_p(rows_of(likelihood, y)[:, None], f[None, :]))
        return y**power @ p
    return np.array(
        [
            integrate.quad(lambda y, a=a: y**power * np.exp(likelihood.log_p(y, a)), -np.inf, np.inf, limit=400)[0]
            for a in f
        ]
    )


@pytest.mark.parametrize("likelihood", [*NUMBERS, *COUNTS, Own()], ids=repr)
def test_what_is_said_of_y_given_f_is_that_of_p(likelihood):
    """Mean, variance and distribution function by sums or integrals over y of p(y|f); draws have them, too."""
    f, more = np.array([-0.7, 0.4, 1.6]), known(likelihood)
    mean, variance = likelihood.conditional_mean(f, **more), likelihood.conditional_variance(f, **more)
    first = numbered(likelihood, f, 1)
    np.testing.assert_allclose(mean, first, rtol=EARLY)
    if not isinstance(likelihood, StudentT):  # whose tails are too heavy for the rule
        np.testing.assert_allclose(variance, numbered(likelihood, f, 2) - first**2, rtol=OPTIMUM)
    for y in (-3.0, -1.0, 0.0, 0.5, 1.0, 4.0, 12.0):
        if likelihood in COUNTS:
            below = np.arange(np.floor(y) + 1.0) if y >= 0 else np.zeros(0)
            total = np.exp(likelihood.log_p(rows_of(likelihood, below)[:, None], f)).sum(axis=0)
        else:
            density = lambda x, a: np.exp(likelihood.log_p(x, a))  # noqa: E731
            total = [integrate.quad(density, -np.inf, y, args=(a,), limit=400)[0] for a in f]
        np.testing.assert_allclose(likelihood.cdf(np.float64(y), f, **more), total, rtol=EARLY, atol=SOLVES)
    if not isinstance(likelihood, Own):
        draws = likelihood.draw(np.broadcast_to(f, (40_000, 3)), np.random.default_rng(0), **more)
        assert np.all(np.abs(draws.mean(axis=0) - mean) < 5 * np.sqrt(variance / 40_000))
        share, y = np.mean(draws <= 1.0, axis=0), likelihood.cdf(np.float64(1.0), f, **more)
        assert np.all(np.abs(share - y) < 5 * np.sqrt(y * (1 - y) / 40_000))


@pytest.mark.parametrize("likelihood", [*NUMBERS, *COUNTS, Own(), Interval(0.4)], ids=repr)
def test_moments_integrate_over_f(likelihood):
    """By the laws of total mean and variance and a rule of Gauss; the mean alone as `expected`."""
    more = known(likelihood)
    mean, variance = likelihood.moments(MEANS, VARIANCES, **more)
    np.testing.assert_array_equal(likelihood.expected(MEANS, VARIANCES, **more), mean)
    for i, (m, v) in enumerate(BELIEFS):
        exact = averaged(lambda f: likelihood.conditional_mean(f, **more), m, v)
        spread = averaged(lambda f: likelihood.conditional_variance(f, **more), m, v)
        spread += averaged(lambda f, e=exact: (likelihood.conditional_mean(f, **more) - e) ** 2, m, v)
        assert mean[i] == pytest.approx(exact, rel=AT_REST, abs=INTEGRAL)
        assert variance[i] == pytest.approx(spread, rel=AT_REST)


def test_moments_of_far_and_narrow_beliefs_keep_their_digits():
    class Plain(Own):
        def conditional_mean(self, f):
            return f

        def conditional_variance(self, f):
            return np.zeros_like(f)

    m, v = np.array([1e8, -3e5, 0.0, 7.0]), np.array([1.0, 1e-6, 1e-30, 1e12])
    mean, variance = Plain().moments(m, v)
    np.testing.assert_allclose(mean, m, rtol=SUMS, atol=EXPANSION)
    np.testing.assert_allclose(variance, v, rtol=OPTIMUM)
    rate, spread = Poisson().moments(np.array([3.0]), np.array([1e-14]))
    assert spread - rate == pytest.approx(np.exp(6.0) * 1e-14, rel=1e-1)


@pytest.mark.sample(2)
@pytest.mark.parametrize("likelihood", [*NUMBERS, *COUNTS, Own(), Interval(0.4)], ids=repr)
def test_quantiles_are_where_the_distribution_function_is_q(likelihood):
    """Of counts the first number at which the integrated distribution function is at least q."""
    more, q = known(likelihood), np.array([1e-4, 0.05, 0.5, 0.9, 1 - 1e-6])
    result = likelihood.quantile(
        q, MEANS[:, None], VARIANCES[:, None], **{k: np.full((5, 1), v) for k, v in more.items()}
    )
    for (m, v), row in zip(BELIEFS, result, strict=True):
        for p, y in zip(q, row, strict=True):
            at = averaged(lambda f, y=y: likelihood.cdf(y, f, **more), m, v)
            if likelihood in COUNTS:
                before = averaged(lambda f, y=y: likelihood.cdf(y - 1, f, **more), m, v)
                assert y == np.floor(y) >= 0
                assert before < p + 1e-9
                assert at >= p - 1e-9
            else:
                assert at == pytest.approx(p, rel=OPTIMUM, abs=AT_REST)


@pytest.mark.long
@pytest.mark.parametrize("mean", [100.0, 300.0, 600.0])
@pytest.mark.parametrize("r", [2.0, 0.01])
def test_counts_of_any_size_have_quantiles(r, mean):
    q, tail = np.array([1e-9, 0.3, 0.5, 1 - 1e-9]), 1 - np.array([1e-9, 0.3, 0.5, 1 - 1e-9])
    result, truth = np.full(4, mean), np.zeros(4)
    assert np.allclose(np.log(Poisson().quantile(q, result, truth)), mean, rtol=0, atol=SOLVES)
    assert np.allclose(np.log(Poisson().quantile(q, result, truth + 0.25)), mean + 0.5 * special.ndtri(q), atol=OPTIMUM)
    zero = np.exp(-r * (mean - np.log(r)))  # all but the chance of no count
    expected = np.where(q > zero, special.gammaincinv(r, q) / r * np.exp(mean), 0.0)
    expected = np.where(tail < 0.5, special.gammainccinv(r, tail) / r * np.exp(mean), expected)
    assert np.allclose(NegativeBinomial(r).quantile(q, result, truth), expected, rtol=EARLY, atol=0)


@pytest.mark.long
@pytest.mark.parametrize("likelihood", [Poisson(), NegativeBinomial(2.0)])
def test_quantiles_beyond_float64_say_so(likelihood):
    with pytest.raises(OverflowError, match="quantiles of new observations leave the range"):
        likelihood.quantile(np.array([0.5]), np.array([800.0]), np.array([1.0]))
    high = likelihood.quantile(np.array([1 - 1e-12]), np.zeros(1), np.array([1e4]))
    assert np.allclose(np.log(high), 100.0 * special.ndtri(1 - 1e-12), rtol=2e-3)


def test_tails_of_few_degrees_of_freedom_are_powers():
    one, truth = np.ones(2), np.zeros(2)
    likelihood = StudentT(0.01, 2.0)
    low, high = likelihood.quantile(np.array([0.01, 0.99]), truth, truth)
    assert np.isclose(high, -low, rtol=AT_REST)
    assert np.allclose(
        likelihood.cdf(np.array([low, 1e200]), truth), [0.01, 1 - likelihood.cdf(-1e200, 0.0)], rtol=AT_REST
    )
    ratio = likelihood.cdf(-1e250, 0.0) / likelihood.cdf(-1e60, 0.0)
    assert np.isclose(ratio, 10.0 ** (-1.9), rtol=SOLVES)
    with pytest.raises(OverflowError, match="quantiles"):
        StudentT(1e-6, 1.0).quantile(0.1 * one, truth, one)


def test_what_is_below_float64_is_zero():
    for link in ("logit", "probit"):
        mean, variance = Binomial(link).moments(np.array([-1e3]), np.ones(1), trials=np.array([9.0]))
        assert (mean[0], variance[0]) == (0.0, 0.0)


def test_what_cannot_be_drawn_is_said():
    rng = np.random.default_rng(0)
    for likelihood in (Poisson(), NegativeBinomial(1e-3)):
        posterior = GLM(likelihood, prior_variance=1.0).fit([[1.0]], [1])
        with pytest.raises(OverflowError, match="a count of mean .* cannot be drawn"):
            posterior.sample_y([[1e6]], 20, rng)
    with pytest.raises(OverflowError, match="trials must be below"):
        Binomial().draw(np.zeros(2), rng, trials=np.array([1e19, 1.0]))


def test_quantiles_of_known_distributions():
    q = np.array([0.01, 0.3, 0.999])
    for m, v in ((1e6, 1.0), (-3.0, 1e-12), (0.2, 40.0)):
        np.testing.assert_allclose(
            Gaussian(0.3).quantile(q, m, v), stats.norm.ppf(q, m, np.sqrt(v + 0.3)), rtol=ROUNDING
        )
        exact = Gaussian(0.3).quantile(q, np.full(3, m), np.full(3, v))
        general = predictive.find_quantiles(Gaussian(0.3), q, np.full(3, m), np.full(3, v))
        np.testing.assert_allclose((general - exact) / np.sqrt(v + 0.3), 0.0, atol=AT_REST)
    no_f = np.zeros(3), np.zeros(3)
    np.testing.assert_allclose(StudentT(1.0, 2.0).quantile(q, *no_f), stats.cauchy.ppf(q, 0.0, 2.0), rtol=AT_REST)
    np.testing.assert_array_equal(Poisson().quantile(q, np.full(3, np.log(50.0)), no_f[1]), stats.poisson.ppf(q, 50.0))
    odds = np.full(3, special.logit(0.3))
    n = np.array([0.0, 7.0, 1e5])
    np.testing.assert_array_equal(Binomial().quantile(q, odds, no_f[1], trials=n), stats.binom.ppf(q, n, 0.3).clip(0))
    assert Poisson().quantile(0.5, np.array([20.0]), np.array([50.0])) == pytest.approx(np.exp(20.0), rel=EXPANSION)


@pytest.mark.parametrize("likelihood", [Probit(), Logit(), Step(), OrderedProbit([-0.5, 1.0])], ids=repr)
def test_classes_are_drawn_by_their_numbers(likelihood):
    f = np.broadcast_to([-0.7, 0.4, 1.6], (30_000, 3))
    draws = likelihood.draw(f, np.random.default_rng(1))
    assert set(np.unique(draws)) <= set(range(likelihood.n_classes))
    for k in range(likelihood.n_classes):
        p = np.exp(likelihood.log_p(likelihood.check(np.full(3, float(k))), f[0]))
        assert np.all(np.abs(np.mean(draws == k, axis=0) - p) <= 5 * np.sqrt(p * (1 - p) / 30_000))


def test_what_does_not_exist_is_said():
    for nu, method in ((1.0, "expected"), (0.5, "moments"), (2.0, "moments"), (1.5, "moments")):
        word = "mean" if nu <= 1 else "finite variance"
        with pytest.raises(ValueError, match=f"StudentT with degrees_of_freedom = {nu:g} have no {word}"):
            getattr(StudentT(nu), method)(MEANS, VARIANCES)
    np.testing.assert_array_equal(StudentT(1.5).expected(MEANS, VARIANCES), MEANS)

    class Bare(Likelihood):
        def log_p(self, y, f):
            return -np.abs(y - f)

    calls = {
        "conditional_mean": lambda: Bare().expected(MEANS, VARIANCES),
        "cdf": lambda: Bare().quantile(0.5, MEANS, VARIANCES),
        "draw": lambda: Bare().draw(MEANS, np.random.default_rng(0)),
    }
    for name, call in calls.items():
        with pytest.raises(NotImplementedError, match=rf"Bare must define {name}\("):
            call()

    class Wrong(Own):
        def conditional_mean(self, f):
            return np.full(3, np.nan) if np.ndim(f) == 1 else f

    with pytest.raises(ValueError, match="conditional_mean of Wrong must return numbers of the shape"):
        Wrong().expected(np.zeros(4), np.ones(4))

    class Explosive(Own):
        def conditional_mean(self, f):
            return np.exp(f**2)  # has no mean for variances from 1/2 on

    with pytest.raises((OverflowError, ValueError)):
        Explosive().expected(np.zeros(1), np.ones(1))
    with pytest.raises(OverflowError, match="of mean 1.97e\\+43 cannot be drawn"):
        Poisson().draw(np.array([100.0, 1.0]) * 0 + [99.69, 1.0], np.random.default_rng(0))


@pytest.mark.parametrize("nu", [2.5, 5.0, 40.0])
def test_noise_of_student_t_has_its_variance(nu):
    assert StudentT(nu, 0.7).conditional_variance(0.0) == pytest.approx(stats.t(nu, scale=0.7).var(), rel=SOLVES)


@pytest.mark.parametrize("likelihood", [Poisson(), NegativeBinomial(2.5), StudentT(3.5, 0.5)], ids=repr)
@pytest.mark.parametrize("y", [0.0, 3.0, 40.0])
def test_probabilities_by_fixed_rules_have_the_digits_of_quadrature_in_both_tails(likelihood, y):
    mean, sd = (v.ravel() for v in np.meshgrid([-6.0, 0.0, 2.0, 4.5], [0.0, 1e-4, 0.03, 0.3, 1.0, 4.0]))

    def cdf(f, rows=None):
        return likelihood.cdf(y, f)

    probabilities = predictive.integrate_probability(cdf, mean, sd**2)
    z, step = np.linspace(-14.0, 14.0, 4001, retstep=True)
    weights = stats.norm.pdf(z) * step
    for value, m, s in zip(probabilities, mean, sd, strict=True):
        np.testing.assert_allclose(value, weights @ cdf(m + s * z), rtol=ROOT_EPS)
        np.testing.assert_allclose(1.0 - value, weights @ (1.0 - cdf(m + s * z)), rtol=ROOT_EPS, atol=INTEGRAL)


def test_quantiles_of_mixtures_with_known_parts():
    """A law without variance has a step; equal laws without variance have one quantile."""
    weights, q = np.array([0.25, 0.75]), np.array([0.1, 0.25 + 0.75 * 0.5])
    means, variances = np.array([[3.0, 3.0], [1e3, 1e3]]), np.array([[0.0, 0.0], [4.0, 4.0]])
    q = find_normal_mixture_quantiles(weights, q, means, variances)
    np.testing.assert_allclose(q, [3.0, 1e3], rtol=INTEGRAL)
    equal = find_normal_mixture_quantiles(weights, np.array([0.3]), np.full((2, 1), 5.0), np.zeros((2, 1)))
    np.testing.assert_allclose(equal, 5.0, rtol=LAST_BIT)
