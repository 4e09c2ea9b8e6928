"""Linear regressors and the ordinal classifier: what they are underneath, and scikit-learn's contract."""

import numpy as np
import pytest
from scipy.special import ndtr
from sklearn import linear_model
from sklearn.metrics import d2_tweedie_score
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from support.tolerances import AT_REST, EARLY, EXPANSION, INTEGRAL, OPTIMUM, ROOT_EPS
from support.upstream import routed_scores

import cavity
import cavity.sklearn
from cavity.sklearn import (
    ARDRegression,
    GammaRegressor,
    NegativeBinomialRegressor,
    OrdinalClassifier,
    PoissonRegressor,
    QuantileRegressor,
    RobustRegressor,
    TweedieRegressor,
)

KINDS = [ARDRegression, NegativeBinomialRegressor, OrdinalClassifier, PoissonRegressor, RobustRegressor]
pytestmark = pytest.mark.filterwarnings("ignore::cavity.SettingsWarning")


def draw(n=80, d=3, seed=0):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, d))
    return X, 0.5 + X @ np.array([1.0, -0.5, 0.0])[:d], rng


@pytest.mark.parametrize(
    ("estimator", "likelihood"),
    [
        (RobustRegressor(), cavity.likelihoods.StudentT(4.0, None)),
        (RobustRegressor("laplace", prior_variance=2.0), cavity.likelihoods.Laplace(None)),
        (QuantileRegressor(quantile=0.75), cavity.likelihoods.AsymmetricLaplace(0.75, None)),
        (PoissonRegressor(prior_variance=2.0), cavity.likelihoods.Poisson()),
        (NegativeBinomialRegressor(), cavity.likelihoods.NegativeBinomial(None)),
    ],
    ids=lambda each: type(each).__name__,
)
def test_is_cavity_glm_underneath(estimator, likelihood):
    X, f, rng = draw()
    counts = not isinstance(estimator, QuantileRegressor | RobustRegressor)
    y = rng.poisson(np.exp(f) * rng.gamma(2.0, 0.5, len(f))).astype(float) if counts else f + rng.standard_t(3, len(f))
    result = estimator.fit(X, y)
    model = cavity.GLM(likelihood, prior_variance=estimator.prior_variance, intercept=True)
    posterior = model.fit(X, y)
    np.testing.assert_allclose(np.append(result.intercept_, result.coef_), posterior.mean, rtol=OPTIMUM)
    np.testing.assert_allclose(result.coef_sd_, np.sqrt(posterior.variance[1:]), rtol=OPTIMUM)
    assert result.converged_
    assert result.log_evidence_ == pytest.approx(posterior.log_evidence, rel=INTEGRAL)
    assert result.loo_score_ == pytest.approx(np.mean(posterior.loo_log_density), rel=OPTIMUM)
    expected, spread = posterior.predict(X, noise=counts)
    mean, sd = result.predict(X, return_std=True)
    np.testing.assert_allclose(mean, expected, rtol=OPTIMUM)
    np.testing.assert_allclose(sd, np.sqrt(spread), rtol=OPTIMUM)


@pytest.mark.long
def test_outliers_have_no_say():
    X, f, rng = draw(200)
    y = f + 0.1 * rng.normal(size=200)
    clean = RobustRegressor().fit(X, y).coef_
    y[:10] += 1e4
    np.testing.assert_allclose(RobustRegressor().fit(X, y).coef_, clean, atol=0.02)
    assert abs(linear_model.LinearRegression().fit(X, y).coef_ - clean).max() > 10.0


def test_counts_have_an_exposure_and_the_deviance_for_score():
    X, f, rng = draw(400)
    exposure = rng.uniform(1.0, 5.0, 400)
    y = rng.poisson(exposure * np.exp(f))
    model = PoissonRegressor().fit(X, y, offset=np.log(exposure))
    np.testing.assert_allclose(model.coef_, [1.0, -0.5, 0.0], atol=0.1)
    mean = model.predict(X, offset=np.log(exposure))
    np.testing.assert_allclose(mean, exposure * model.predict(X))
    assert model.score(X, y, offset=np.log(exposure)) == d2_tweedie_score(y, mean, power=1)
    truth = linear_model.PoissonRegressor(alpha=0.0).fit(X, y / exposure, sample_weight=exposure)
    np.testing.assert_allclose(model.coef_, truth.coef_, atol=0.01)
    with pytest.raises(ValueError, match=r"offset must have shape \(400,\)"):
        model.fit(X, y, offset=np.zeros(3))
    with pytest.raises(ValueError, match="y must not be negative"):
        model.fit(X, y - 5.0)


def test_weights_are_copies_and_zeros_leave_rows_out():
    X, f, rng = draw(60)
    y, weight, offset = rng.poisson(np.exp(f)), np.arange(60) % 3, rng.normal(size=60)
    second = np.repeat(np.arange(60), weight)
    values = PoissonRegressor(prior_variance=4.0).fit(X, y, weight, offset)
    copies = PoissonRegressor(prior_variance=4.0).fit(X[second], y[second], offset=offset[second])
    np.testing.assert_allclose(values.coef_, copies.coef_, atol=EARLY)


def test_ordered_classes():
    X, f, rng = draw(600)
    X = X + [50.0, -20.0, 3.0]  # thresholds are those of X @ coef_ wherever the columns are
    y = np.array([3, 5, 9])[np.digitize(2.0 * f + rng.normal(size=600), [0.0, 2.0])]
    model = OrdinalClassifier().fit(X, y)
    assert model.classes_.tolist() == [3, 5, 9]
    np.testing.assert_allclose(model.coef_, [2.0, -1.0, 0.0], atol=0.3)
    variance = model.posterior_.predict(X)[1]
    below = ndtr((model.thresholds_ - (X @ model.coef_)[:, None]) / np.sqrt(1.0 + variance)[:, None])
    expected = np.diff(np.column_stack([np.zeros(600), below, np.ones(600)]))
    np.testing.assert_allclose(model.predict_proba(X), expected, atol=AT_REST)
    np.testing.assert_array_equal(model.predict(X), model.classes_[expected.argmax(axis=1)])
    with pytest.raises(ValueError, match="one class"):
        model.fit(X, np.ones(600))


def test_relevance_determination():
    X, f, rng = draw(300)
    y = 100.0 + f + 0.3 * rng.normal(size=300)
    model = ARDRegression().fit(X + 50.0, y)
    posterior = cavity.LinearRegression(intercept=False, ard=True).fit(
        X + 50.0 - np.mean(X + 50.0, axis=0), y - np.mean(y)
    )
    np.testing.assert_allclose(model.coef_, posterior.mean, atol=INTEGRAL)
    assert abs(model.coef_[2]) < 0.01
    assert model.relevance_[2] < 0.5
    truth = linear_model.ARDRegression().fit(X + 50.0, y)
    np.testing.assert_allclose(model.predict(X), truth.predict(X), atol=0.5)
    mean, sd = model.predict(X + 50.0, return_std=True)
    assert np.mean(np.abs(y - mean) < 1.96 * sd) == pytest.approx(0.95, abs=0.03)
    assert model.noise_variance_ == pytest.approx(0.09, rel=0.3)
    flat = ARDRegression(fit_intercept=False).fit(X, y)
    assert flat.intercept_ == 0.0


@routed_scores
def test_offsets_and_weights_find_their_way_through_pipelines():
    import sklearn

    X, f, rng = draw(120)
    exposure = rng.uniform(1.0, 5.0, 120)
    y = rng.poisson(exposure * np.exp(f))
    with sklearn.config_context(enable_metadata_routing=True):
        model = PoissonRegressor().set_fit_request(offset=True, sample_weight=True)
        model.set_score_request(offset=True, sample_weight=True)
        pipe = make_pipeline(StandardScaler().set_fit_request(sample_weight=False), model)
        search = GridSearchCV(pipe, {"poissonregressor__prior_variance": [1e-4, 10.0]}, cv=3)
        search.fit(X, y, offset=np.log(exposure), sample_weight=np.ones(120))
        direct = make_pipeline(StandardScaler(), PoissonRegressor(**{"prior_variance": 10.0}))
    direct.fit(X, y, poissonregressor__offset=np.log(exposure))
    assert search.best_params_ == {"poissonregressor__prior_variance": 10.0}
    np.testing.assert_allclose(search.best_estimator_[-1].coef_, direct[-1].coef_, atol=ROOT_EPS)


@pytest.mark.parametrize(
    ("model", "other"),
    [
        (GammaRegressor(), linear_model.GammaRegressor(alpha=0.0)),
        (TweedieRegressor(power=1.5), linear_model.TweedieRegressor(power=1.5, alpha=0.0)),
    ],
    ids=["gamma", "tweedie"],
)
def test_positive_numbers_are_those_of_scikit_learn(model, other):
    """Maximum likelihood estimates, from which posterior means are less than a tenth of an sd; in any unit."""
    rng = np.random.default_rng(2)
    X = rng.normal(size=(300, 2))
    y = rng.gamma(3.0, np.exp(2.0 + X @ [0.5, -0.3]) / 3.0) * (
        rng.random(300) < (1.0 if "Gamma" in repr(model) else 0.7)
    )
    model, other = model.fit(X, y), other.fit(X, y)
    assert np.all(np.abs(model.coef_ - other.coef_) < 0.1 * model.coef_sd_)
    assert model.score(X, y) == pytest.approx(other.score(X, y), abs=EXPANSION)
    cents = type(model)(**model.get_params()).fit(X, 100.0 * y)
    assert cents.coef_ == pytest.approx(model.coef_, abs=OPTIMUM)
