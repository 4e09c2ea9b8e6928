"""Predictions of observations by posteriors of latent values: GLM, Gaussian process, stream."""

import numpy as np
import pytest
from scipy import stats
from support.tolerances import OPTIMUM, SOLVES, SUMS

import cavity
from cavity import likelihoods
from cavity.covariances import RBF

RNG = np.random.default_rng(4)
X = np.column_stack([np.ones(40), RNG.normal(size=40)])
NEW = np.column_stack([np.ones(5), np.linspace(-1.0, 1.5, 5)])
F = X @ [0.4, 0.8]
EXPOSURE = np.exp(RNG.uniform(-1.0, 1.0, 40))
TRIALS = RNG.integers(0, 9, 40)
Y = {
    "Gaussian": (likelihoods.Gaussian(0.3), F + 0.5 * RNG.normal(size=40)),
    "StudentT": (likelihoods.StudentT(5.0, 0.5), F + 0.5 * RNG.standard_t(5, 40)),
    "Poisson": (likelihoods.Poisson(), RNG.poisson(np.exp(F) * EXPOSURE)),
    "NegativeBinomial": (likelihoods.NegativeBinomial(3.0), RNG.poisson(np.exp(F) * EXPOSURE)),
    "Binomial": (likelihoods.Binomial(), np.column_stack([RNG.binomial(TRIALS, stats.logistic.cdf(F)), TRIALS])),
    "Probit": (likelihoods.Probit(), F + RNG.normal(size=40) > 0),
}
MODELS = {
    "glm": lambda likelihood: cavity.GLM(likelihood, prior_variance=4.0),
    "diagonal": lambda likelihood: cavity.GLM(likelihood, prior_variance=4.0, approximation="diagonal"),
    "gp": lambda likelihood: cavity.GaussianProcess(RBF(), likelihood),
    "stream": lambda likelihood: cavity.StreamingGP(RBF(), likelihood, inducing=X[::5]),
}


def fitted(model, name, **values):
    likelihood, y = Y[name]
    values |= {} if model in ("glm", "diagonal") else {"learn": False}
    return MODELS[model](likelihood).fit(X, y, **values)


@pytest.mark.sample(3)
@pytest.mark.parametrize("name", [name for name in Y if name != "Probit"])
@pytest.mark.parametrize("model", MODELS)
def test_observations_are_predicted_from_the_moments_of_f(model, name):
    """By the likelihood's own words, which tests/likelihoods/test_predictive.py holds to brute force."""
    posterior, likelihood = fitted(model, name), Y[name][0]
    more = {"trials": [1, 3, 0, 7, 2]} if name == "Binomial" else {}
    f = posterior.predict(NEW)
    settings = {key: np.array(value, dtype=float) for key, value in more.items()}
    mean, variance = posterior.predict(NEW, noise=True, **more)
    np.testing.assert_array_equal((mean, variance), likelihood.moments(*f, **settings))
    np.testing.assert_array_equal(posterior.expected(NEW, **more), mean)
    one, several = posterior.quantile(NEW, 0.8, **more), posterior.quantile(NEW, [0.1, 0.8], **more)
    np.testing.assert_allclose(several[:, 1], one, rtol=SUMS)
    np.testing.assert_array_equal(one, likelihood.quantile(0.8, *f, **settings))
    draws = posterior.sample_y(NEW, 4000, 0, **more)
    assert draws.shape == (4000, 5)
    np.testing.assert_array_equal(draws[:3], posterior.sample_y(NEW, 4000, 0, **more)[:3])
    assert np.all(np.abs(draws.mean(axis=0) - mean) <= 5 * np.sqrt(variance / 4000))
    share = np.mean(draws <= several[:, :1].T, axis=0)
    assert np.all(share > 0.1 - 5 * np.sqrt(0.09 / 4000))


@pytest.mark.parametrize("model", ["glm", "gp"])
def test_draws_of_several_rows_know_of_each_other(model):
    """y of equal rows has the covariance of f beside its own noise."""
    posterior = fitted(model, "Gaussian")
    draws = posterior.sample_y(np.vstack([NEW[:1], NEW[:1]]), 20_000, 1)
    variance = posterior.predict(NEW[:1])[1][0]
    error = 5 * (0.3 + variance) / np.sqrt(20_000)
    np.testing.assert_allclose(np.cov(draws.T), [[0.3 + variance, variance], [variance, 0.3 + variance]], atol=error)


@pytest.mark.parametrize("model", MODELS)
def test_classes_are_refused_where_numbers_are_meant(model):
    posterior = fitted(model, "Probit")
    calls = {
        "noise=True": lambda: posterior.predict(NEW, noise=True),
        "expected": lambda: posterior.expected(NEW),
        "quantile": lambda: posterior.quantile(NEW, 0.5),
    }
    for label, call in calls.items():
        with pytest.raises(ValueError, match=f"{label} needs observations that are numbers, Probit has classes: see"):
            call()
    assert set(np.unique(posterior.sample_y(NEW, 50, 0))) == {0, 1}
    named = MODELS[model](likelihoods.Probit()).fit(X, np.where(Y["Probit"][1], "yes", "no"))
    assert set(np.unique(named.sample_y(NEW, 50, 0))) == {"no", "yes"}


@pytest.mark.parametrize("model", MODELS)
@pytest.mark.parametrize("name", ["Poisson", "NegativeBinomial"])
def test_an_exposure_is_an_offset_by_its_log(model, name):
    """In fits, in updates and in predictions, of every row or of all alike."""
    posterior, same = fitted(model, name, exposure=EXPOSURE), fitted(model, name, offset=np.log(EXPOSURE))
    both = fitted(model, name, exposure=EXPOSURE / 2.0, offset=np.full(40, np.log(2.0)))
    assert posterior.has_offset
    np.testing.assert_array_equal(posterior.predict(NEW, offset=0), same.predict(NEW, offset=0))
    np.testing.assert_allclose(both.predict(NEW, offset=0), same.predict(NEW, offset=0), rtol=OPTIMUM)
    np.testing.assert_array_equal(posterior.predict(NEW, exposure=2.0), same.predict(NEW, offset=np.log(2.0)))
    rate = posterior.expected(NEW, exposure=1.0)
    np.testing.assert_allclose(posterior.expected(NEW, exposure=np.arange(1.0, 6.0)), np.arange(1.0, 6.0) * rate)
    few, y = EXPOSURE[:5], Y[name][1][:5]
    later, other = posterior.update(X[:5], y, exposure=few), same.update(X[:5], y, offset=np.log(few))
    np.testing.assert_array_equal(later.predict(NEW, offset=0), other.predict(NEW, offset=0))


@pytest.mark.parametrize("model", MODELS)
def test_offsets_are_wanted_again(model):
    posterior = fitted(model, "Poisson", offset=np.log(EXPOSURE))
    y = Y["Poisson"][1][:5]
    calls = [
        lambda **given: posterior.predict(NEW, **given),
        lambda **given: posterior.predict(NEW, noise=True, **given),
        lambda **given: posterior.expected(NEW, **given),
        lambda **given: posterior.log_density(NEW, y, **given),
        lambda **given: posterior.quantile(NEW, 0.5, **given),
        lambda **given: posterior.sample_y(NEW, 2, 0, **given),
    ]
    for call in calls:
        with pytest.raises(ValueError, match="offset: the fit had offsets or exposures.*give offset=0 for none"):
            call()
        np.testing.assert_array_equal(call(offset=0), call(offset=np.zeros(5)))
    second = fitted(model, "Poisson", offset=np.zeros(40))
    assert not second.has_offset
    np.testing.assert_array_equal(second.predict(NEW), second.predict(NEW, offset=0))


def test_bad_arguments_are_named():
    posterior, labels = fitted("glm", "Poisson"), fitted("glm", "Probit")
    trials = fitted("glm", "Binomial")
    for call, message in (
        (lambda: posterior.predict(NEW, exposure=0.0), "exposure must be positive, got 0.0 in row 0"),
        (lambda: posterior.predict(NEW, exposure=[1.0, 2.0]), "exposure must have one entry per row of X, that is 5"),
        (lambda: posterior.predict(NEW, trials=3), "trials is for the likelihood Binomial, got Poisson"),
        (lambda: posterior.quantile(NEW, 1.0), r"q must be in \(0, 1\), got 1.0"),
        (lambda: posterior.quantile(NEW, [0.5, 0.0]), r"q must be in \(0, 1\)"),
        (lambda: labels.predict(NEW, exposure=1.0), "exposure is for counts.*got Probit"),
        (lambda: trials.predict(NEW, exposure=1.0), "got Binomial; the numbers of trials are the second column of y"),
        (lambda: trials.expected(NEW, trials=[1, 2]), "trials"),
        (lambda: trials.expected(NEW, trials=0.5), "trials must hold whole numbers"),
        (lambda: fitted("glm", "Poisson", exposure=-EXPOSURE), "exposure must be positive"),
        (lambda: fitted("gp", "Poisson", exposure=EXPOSURE[:3]), "exposure must have one entry per row of X"),
        (lambda: fitted("stream", "Gaussian", exposure=EXPOSURE), "exposure is for counts"),
    ):
        with pytest.raises(ValueError, match=message):
            call()
    with pytest.raises(OverflowError, match="of a new observation of row 1 leave"):
        posterior.predict([[1.0, 0.0], [1.0, 900.0]], noise=True)
    tails = cavity.GLM(likelihoods.StudentT(1.0), prior_variance=1.0).fit(X, Y["StudentT"][1])
    with pytest.raises(ValueError, match="StudentT with degrees_of_freedom = 1 have no mean"):
        tails.predict(NEW, noise=True)
    assert np.all(np.diff(tails.quantile(NEW, [0.1, 0.5, 0.9])) > 0)


def test_trials_and_exposures_may_be_columns():
    pd = pytest.importorskip("pandas")
    frame = pd.DataFrame({"one": 1.0, "dose": X[:, 1], "k": Y["Binomial"][1][:, 0], "n": TRIALS, "time": EXPOSURE})
    posterior = MODELS["glm"](likelihoods.Binomial()).fit(frame.drop(columns="time"), ["k", "n"])
    same = fitted("glm", "Binomial")
    new = frame.drop(columns="time")[:5]
    for noise in (False, True):
        prediction = posterior.predict(new, noise=noise, trials="n")
        np.testing.assert_array_equal(prediction, same.predict(X[:5], noise=noise, trials=TRIALS[:5]))
    np.testing.assert_array_equal(posterior.sample_y(new, 3, 0, trials="n") <= TRIALS[:5], True)
    frame["count"] = Y["Poisson"][1]
    rate = MODELS["glm"](likelihoods.Poisson()).fit(frame[["one", "dose", "time", "count"]], "count", exposure="time")
    truth = fitted("glm", "Poisson", exposure=EXPOSURE)
    prediction = rate.expected(frame[["dose", "time", "one"]])
    np.testing.assert_allclose(prediction, truth.expected(X, exposure=EXPOSURE), rtol=SOLVES)


def test_rows_of_their_own_noise_predict_no_observations():
    posterior = fitted("gp", "Gaussian", noise_variance=np.full(40, 0.2))
    for call in (lambda: posterior.quantile(NEW, 0.5), lambda: posterior.sample_y(NEW, 1, 0)):
        with pytest.raises(ValueError, match="has no meaning where every row had a noise_variance of its own"):
            call()


@pytest.mark.parametrize("model", MODELS)
def test_trials_are_as_many_labels(model, tmp_path):
    """k of n at a row is the row repeated, with labels; rows without trials are none. Files keep the link."""
    y = Y["Binomial"][1]
    labels = np.concatenate([np.repeat([1, 0], [k, n - k]) for k, n in y])
    rows = np.repeat(X, TRIALS, axis=0)
    if model in ("glm", "gp"):
        values = {"learn": False} if model == "gp" else {}
        once = MODELS[model](likelihoods.Logit()).fit(rows, labels, **values)
        for mine, other in zip(fitted(model, "Binomial").predict(NEW), once.predict(NEW), strict=True):
            np.testing.assert_allclose(mine, other, atol=2e-3)  # one site for all trials is closer to p
    posterior = MODELS[model](likelihoods.Binomial("probit")).fit(X, y)
    posterior.save(tmp_path / "trials.npz")
    back = cavity.load(tmp_path / "trials.npz")
    assert back.model.likelihood == likelihoods.Binomial("probit")
    np.testing.assert_array_equal(back.predict(NEW, noise=True, trials=4), posterior.predict(NEW, noise=True, trials=4))
