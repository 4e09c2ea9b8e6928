"""Models of one's own in plain Python, against the shipped models and exact posteriors."""

import numpy as np
import pytest
from scipy import stats
from scipy.special import gammaln
from support.tolerances import INTEGRAL, OPTIMUM, SLOPES, SOLVES, SUMS

import cavity
from cavity import mean_field
from cavity.distributions import Categorical, Gamma, MultivariateGaussian

LOG_2PI = np.log(2 * np.pi)


def gamma_log_prior(prior, q):
    """E_q[log prior], summed over a batch."""
    log_x, x = np.split(q.statistics, 2)
    constant = prior.shape * np.log(prior.rate) - gammaln(prior.shape)
    return np.sum(constant + (prior.shape - 1) * log_x - prior.rate * x)


class Ard(mean_field.Model):
    """y ~ N(Xw, 1/tau), w_i ~ N(0, 1/alpha_i), as in `cavity.LinearRegression`; rows count `scale` times."""

    alpha, tau = Gamma(0.1, 0.2), Gamma(0.3, 0.4)

    def __init__(self, X, y, scale=1.0):
        self.X, self.y, self.scale, self.n_samples = X, y, scale, len(y)

    def initial(self):
        d = self.X.shape[1]
        return {
            "w": MultivariateGaussian(np.zeros(d), np.eye(d)),
            "alpha": Gamma(np.ones(d), np.ones(d)),
            "tau": Gamma(1.0, 1.0),
        }

    def misfit(self, q):
        residual = self.y - self.X @ q["w"].mean
        return self.scale * (residual @ residual + np.sum((self.X @ q["w"].covariance) * self.X))

    @staticmethod
    def second(q):
        return q["w"].mean ** 2 + np.diag(q["w"].covariance)

    def update(self, name, q):
        if name == "w":
            tau = q["tau"].mean * self.scale
            precision = np.diag(q["alpha"].mean) + tau * self.X.T @ self.X
            return MultivariateGaussian.from_natural(tau * self.X.T @ self.y, precision)
        if name == "alpha":
            return Gamma(self.alpha.shape + 0.5 * np.ones(self.X.shape[1]), self.alpha.rate + 0.5 * self.second(q))
        return Gamma(self.tau.shape + 0.5 * self.scale * len(self.y), self.tau.rate + 0.5 * self.misfit(q))

    def expected_log_joint(self, q):
        log_alpha, alpha = np.split(q["alpha"].statistics, 2)
        log_tau, tau = q["tau"].statistics
        likelihood = 0.5 * (self.scale * len(self.y) * (log_tau - LOG_2PI) - tau * self.misfit(q))
        weights = 0.5 * np.sum(log_alpha - LOG_2PI - alpha * self.second(q))
        return likelihood + weights + gamma_log_prior(self.alpha, q["alpha"]) + gamma_log_prior(self.tau, q["tau"])

    def minibatch(self, rows):
        return Ard(self.X[rows], self.y[rows], self.n_samples / len(rows))


class Counts(mean_field.Model):
    """Poisson counts of one rate: conjugate, so one factor is exact."""

    def __init__(self, counts, scale=1.0):
        self.counts, self.scale, self.n_samples = counts, scale, len(counts)

    def initial(self):
        return {"rate": Gamma(1.0, 1.0)}

    def update(self, name, q):
        return Gamma(2.0 + self.scale * self.counts.sum(), 3.0 + self.scale * len(self.counts))

    def expected_log_joint(self, q):
        log_rate, rate = q["rate"].statistics
        likelihood = np.sum(self.counts * log_rate - rate - gammaln(self.counts + 1))
        return likelihood + gamma_log_prior(Gamma(2.0, 3.0), q["rate"])

    def minibatch(self, rows):
        return Counts(self.counts[rows], self.n_samples / len(rows))


COUNTS = np.random.default_rng(0).poisson(3.0, 30)


def regression(seed, n, d):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, d))
    return X, X @ np.where(np.arange(d) % 2, 0.0, 1.5) + rng.normal(0, 0.7, n)


@pytest.mark.parametrize("accelerate", [False, "anderson", "squarem"])
def test_a_regression_of_ones_own_is_the_shipped_one(accelerate):
    X, y = regression(0, 60, 5)
    own = mean_field.fit(Ard(X, y), accelerate=accelerate, tol=1e-13)
    model = cavity.LinearRegression(
        intercept=False, ard=True, prior_shape=0.1, prior_rate=0.2, noise_shape=0.3, noise_rate=0.4
    )
    shipped = model.fit(X, y, tol=1e-13)
    assert own.converged
    assert own.elbo == pytest.approx(shipped.elbo, abs=INTEGRAL)
    np.testing.assert_allclose(own["w"].mean, shipped.mean, rtol=SLOPES)
    np.testing.assert_allclose(own["alpha"].rate, shipped.alpha.rate, rtol=SLOPES)
    assert own["tau"].rate == pytest.approx(shipped.noise_precision.rate, rel=OPTIMUM)
    trace = own.trace["elbo"]
    assert np.all(np.diff(trace) >= -1e-13 * np.abs(trace).max())


def test_log_evidence_is_elbo_plus_kl_on_a_conjugate_model():
    model = Counts(COUNTS)
    exact = mean_field.fit(model)
    shape, rate = 2.0, 3.0
    evidence = 0.0
    for count in COUNTS:  # one after the other, each negative binomial given those before
        evidence += stats.nbinom(shape, rate / (rate + 1)).logpmf(count)
        shape, rate = shape + count, rate + 1
    assert exact.elbo == pytest.approx(evidence, rel=SUMS)
    for q in (Gamma(1.0, 1.0), Gamma(50.0, 20.0), Gamma(300.0, 80.0)):
        elbo = model.expected_log_joint({"rate": q}) + q.entropy()
        assert elbo + cavity.kl(q, exact["rate"]) == pytest.approx(evidence, rel=SOLVES)


def test_initial_factors_and_callbacks():
    X, y = regression(2, 40, 3)
    model, seen = Ard(X, y), []
    first = mean_field.fit(model)
    second = mean_field.fit(model, initial=first.factors)
    assert second.n_iter < first.n_iter
    assert second.elbo >= first.elbo - 1e-12
    with pytest.warns(cavity.ConvergenceWarning, match="stopped by callback"):
        post = mean_field.fit(model, callback=lambda event: seen.append(event.objective) or event.n_iter == 3)
    assert post.n_iter == len(seen) == 3
    with pytest.warns(cavity.ConvergenceWarning, match="max_iter reached"):
        assert not mean_field.fit(model, max_iter=2).converged


def test_posteriors_keep_their_factors_in_files(tmp_path):
    X, y = regression(3, 30, 3)
    post = mean_field.fit(Ard(X, y))
    post.save(tmp_path / "post.npz")
    back = cavity.load(tmp_path / "post.npz")
    assert repr(back) == repr(post)
    assert list(back.factors) == ["w", "alpha", "tau"]
    np.testing.assert_array_equal(back["w"].covariance, post["w"].covariance)
    np.testing.assert_array_equal(back["alpha"].rate, post["alpha"].rate)
    assert (back["tau"].shape, back["tau"].rate) == (post["tau"].shape, post["tau"].rate)
    np.testing.assert_array_equal(back.trace["elbo"], post.trace["elbo"])
    with pytest.raises(KeyError):
        post["sigma"]


# ---- wrong models


class Wrong(Counts):
    """`Counts` with one method replaced."""

    def __init__(self, **methods):
        super().__init__(COUNTS)
        self.__dict__ |= methods


@pytest.mark.parametrize(
    ("model", "error", "message"),
    [
        (object(), TypeError, "model must be a cavity.mean_field.Model, got object"),
        (mean_field.Model(), NotImplementedError, r"Model must define initial\(\)"),
        (Wrong(initial=dict), TypeError, "the initial factors must be a dict of distributions by name"),
        (Wrong(initial=lambda: [Gamma(1, 1)]), TypeError, "the initial factors must be a dict"),
        (Wrong(initial=lambda: {"rate": 3.0}), TypeError, "factor 'rate' must be a distribution"),
        (Wrong(initial=lambda: {0: Gamma(1, 1)}), TypeError, "the names of factors must be strings, got 0"),
        (Wrong(n_samples=0), ValueError, "model.n_samples must be at least 1"),
        (
            Wrong(update=lambda name, q: Categorical([0.5, 0.5])),
            ValueError,
            r"update\('rate', q\) must return a factor",
        ),
        (Wrong(update=lambda name, q: Gamma([1, 2], 1)), ValueError, r"update\('rate', q\) must return a factor like"),
        (Wrong(update=lambda name, q: None), ValueError, r"update\('rate', q\) must return a factor like"),
        (Wrong(expected_log_joint=lambda q: np.nan), ArithmeticError, "the ELBO of pass 1 is nan"),
    ],
)
def test_models_that_are_none_are_refused(model, error, message):
    with pytest.raises(error, match=message):
        mean_field.fit(model)


def test_wrong_updates_are_warned_of():
    wrong = Wrong(update=lambda name, q: Gamma(q["rate"].shape + 1.0, 1.0))
    with (
        pytest.warns(cavity.NumericalWarning, match="an update is not the optimum of its factor") as caught,
        pytest.warns(cavity.ConvergenceWarning),
    ):
        mean_field.fit(wrong, max_iter=200, accelerate=False)
    assert caught[0].filename == __file__


# ---- stochastic fits


def test_averaging_steps_are_exact_on_a_conjugate_model():
    exact = mean_field.fit(Counts(COUNTS))["rate"]
    for size in (1, 5, 30, 99):  # divisors of 30, or all rows
        post = mean_field.fit_stochastic(Counts(COUNTS), batch_size=size, delay=0, forgetting=1)
        assert post["rate"].shape == pytest.approx(exact.shape, rel=SUMS)
        assert post["rate"].rate == pytest.approx(exact.rate, rel=SUMS)
        assert (post.n_iter, post.converged, post.status) == (1, False, "passes done")
        assert post.elbo == pytest.approx(mean_field.fit(Counts(COUNTS)).elbo, rel=SOLVES)


def test_shuffled_steps_are_reproducible_and_counted():
    options = dict(batch_size=7, n_epochs=3)
    one, two, other, sorted_ = (
        mean_field.fit_stochastic(Counts(COUNTS), rng=rng, **options) for rng in (3, np.random.default_rng(3), 4, None)
    )
    assert one["rate"].shape == two["rate"].shape != other["rate"].shape
    assert sorted_["rate"].shape not in (one["rate"].shape, other["rate"].shape)
    assert one.n_iter == 3
    np.testing.assert_allclose(one.trace["step"], (np.arange(15) + 2.0) ** -0.7)
    stopped = mean_field.fit_stochastic(Counts(COUNTS), callback=lambda event: event.n_iter == 6, **options)
    assert (len(stopped.trace["step"]), stopped.n_iter) == (6, 2)


@pytest.mark.long
def test_stochastic_steps_come_near_the_optimum():
    X, y = regression(4, 20_000, 6)
    model = Ard(X, y)
    best = mean_field.fit(model)
    post = mean_field.fit_stochastic(model, batch_size=200, n_epochs=10, forgetting=0.9, rng=0)
    sd = np.sqrt(np.diag(best["w"].covariance))
    assert np.all(np.abs(post["w"].mean - best["w"].mean) < 2 * sd)
    assert post["tau"].mean == pytest.approx(best["tau"].mean, rel=0.02)
    assert best.elbo - 5 < post.elbo < best.elbo


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({"batch_size": 0}, ValueError, "batch_size must be at least 1"),
        ({"n_epochs": 0}, ValueError, "n_epochs must be at least 1"),
        ({"forgetting": 0.5}, ValueError, "forgetting must be in"),
        ({"delay": -1}, ValueError, "delay must be in"),
        ({"rng": "seed"}, TypeError, "rng must be a seed"),
    ],
)
def test_options_of_stochastic_fits(options, error, message):
    with pytest.raises(error, match=message):
        mean_field.fit_stochastic(Counts(COUNTS), **{"batch_size": 5} | options)


def test_minibatches_have_to_be_models():
    with pytest.raises(TypeError, match=r"minibatch\(rows\) must return a cavity.mean_field.Model, got ndarray"):
        mean_field.fit_stochastic(Wrong(minibatch=lambda rows: COUNTS[rows]), batch_size=5)

    class Whole(mean_field.Model):
        def initial(self):
            return {"rate": Gamma(1, 1)}

    with pytest.raises(NotImplementedError, match=r"Whole must define minibatch\(rows\)"):
        mean_field.fit_stochastic(Whole(), batch_size=5)
