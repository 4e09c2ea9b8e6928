"""The scikit-learn classifiers: their own checks, the model underneath, other classifiers, the tools around them."""

import copy
import inspect
import pickle
import subprocess
import sys

import numpy as np
import pandas as pd
import pytest
import sklearn
from scipy import sparse
from scipy.special import expit, log_ndtr, logsumexp, ndtr
from scipy.stats import norm
from sklearn.base import clone
from sklearn.calibration import CalibratedClassifierCV
from sklearn.datasets import load_breast_cancer, load_iris
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import log_loss
from sklearn.model_selection import GridSearchCV, cross_val_predict, cross_val_score, cross_validate
from sklearn.multiclass import OneVsRestClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from support.glms import GLM
from support.tolerances import AT_REST, EARLY, INTEGRAL, LAST_BIT, LOSSES, ROOT_EPS, ROUNDING, SOLVES, SUMS
from support.upstream import routed_scores

import cavity
import cavity.sklearn
from cavity.sklearn import LogitClassifier, ProbitClassifier, linear

BOTH = pytest.mark.parametrize("kind", [ProbitClassifier, LogitClassifier])


def draw(n=80, d=4, n_classes=2, seed=0):
    """Rows of unit variance and noisy linear labels 0 ... n_classes - 1."""
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, d))
    scores = X @ rng.normal(size=(d, n_classes)) + rng.gumbel(size=(n, n_classes))
    return X, np.argmax(scores, axis=1)


def with_ones(X):
    return np.column_stack([X, np.ones(len(X))])


def same_fit(a, b, rtol=1e-7, atol=1e-9):
    """Two classifiers hold the same posterior; the default tolerance is that of the stopping rule."""
    for name in ("coef_", "intercept_", "coef_sd_", "log_evidence_"):
        np.testing.assert_allclose(getattr(a, name), getattr(b, name), rtol=rtol, atol=atol, err_msg=name)
    np.testing.assert_array_equal(a.classes_, b.classes_)


# ---------------------------------------------------------------------------------------------- truth


@BOTH
@pytest.mark.parametrize("approximation", ["full", "diagonal"])
def test_is_cavity_glm_underneath(kind, approximation):
    X, y = draw()
    classifier = kind(prior_variance=2.0, intercept_variance=9.0, approximation=approximation).fit(X, y)
    likelihood = {ProbitClassifier: cavity.likelihoods.Probit(), LogitClassifier: cavity.likelihoods.Logit()}[kind]
    model = GLM(likelihood, prior_variance=[2.0] * 4 + [9.0], approximation=approximation)
    posterior = model.fit(with_ones(X), y)
    np.testing.assert_array_equal(classifier.coef_, posterior.mean[None, :4])
    np.testing.assert_array_equal(classifier.intercept_, posterior.mean[4:])
    np.testing.assert_array_equal(classifier.coef_sd_, np.sqrt(posterior.variance[None, :4]))
    assert classifier.log_evidence_ == posterior.log_evidence
    assert (classifier.n_iter_, classifier.converged_) == (posterior.n_iter, True)
    assert classifier.loo_score_ == pytest.approx(np.mean(posterior.loo_log_density), rel=ROUNDING)
    new = draw(seed=1)[0]
    np.testing.assert_allclose(classifier.predict_proba(new), posterior.predict_proba(with_ones(new)), rtol=SOLVES)


@BOTH
def test_default_priors_are_those_of_cavity_glm(kind):
    X, y = draw()
    X = np.column_stack([X * [1.0, 1e3, 1e-3, 1.0] + [0.0, 0.0, 0.0, 7.0], np.arange(80) % 9 == 0])
    core = cavity.GLM("probit" if kind is ProbitClassifier else "logit", intercept=True).fit(X, y)
    expected = np.roll(core.model.prior_variance, -1)  # that of the intercept comes last
    c = 2.5 / 1.7 if kind is ProbitClassifier else 2.5
    np.testing.assert_allclose(expected[:5], (c / np.append(X[:, :4].std(axis=0), 0.5)) ** 2, rtol=SOLVES)
    for rows in (X, sparse.csr_array(X), pd.DataFrame(X)):
        classifier = kind(approximation="full").fit(rows, y)
        np.testing.assert_array_equal(classifier.posteriors_[0].model.prior_variance, expected)
        np.testing.assert_array_equal(classifier.prior_variance_, expected[None, :5])
        assert classifier.log_evidence_ == pytest.approx(core.log_evidence, abs=ROOT_EPS)
    copies = np.arange(80) % 3
    weighted = cavity.GLM(core.model.likelihood, intercept=True).fit(X, y, sample_weight=copies).model.prior_variance
    classifier = kind(intercept_variance=7.0).fit(X, y, sample_weight=copies)
    np.testing.assert_allclose(classifier.posteriors_[0].model.prior_variance, [*weighted[1:], 7.0], rtol=SUMS)
    classifier = kind(prior_variance=2.0).fit(X, y)
    np.testing.assert_array_equal(classifier.posteriors_[0].model.prior_variance, [2.0] * 5 + [expected[5]])
    without = kind(fit_intercept=False).fit(X, y)
    np.testing.assert_array_equal(without.posteriors_[0].model.prior_variance, expected[:5])
    stream = kind().partial_fit(X[:1], y[:1], classes=[0, 1])  # which has no scales yet
    np.testing.assert_allclose(stream.posteriors_[0].model.prior_variance, c**2 * np.array([1, 1, 1, 1, 1, 100.0]))
    diagonal = kind(approximation="diagonal").fit(sparse.csr_array(X[:, [0, 4]]), y)
    np.testing.assert_allclose(diagonal.posteriors_[0].model.prior_variance, [1, 1, 100 * c**2])


def test_probabilities_integrate_over_the_posterior():
    X, y = draw(n=30)
    classifier = ProbitClassifier().fit(X, y)
    posterior, new = classifier.posteriors_[0], with_ones(draw(seed=1)[0])
    variance = np.einsum("ni,ij,nj->n", new, posterior.covariance, new)
    expected = log_ndtr(new @ posterior.mean / np.sqrt(1 + variance))
    np.testing.assert_allclose(classifier.predict_log_proba(new[:, :4])[:, 1], expected, rtol=INTEGRAL)


@pytest.mark.long_cases("LogitClassifier")
@BOTH
def test_log_probabilities_far_in_the_tail(kind):
    X, y = draw(n=20000)  # so many that the posterior is sure
    classifier = kind().fit(X, y)
    direction = classifier.coef_ / classifier.coef_sd_
    far = 1e3 * direction
    mean, variance = classifier.posteriors_[0].predict(with_ones(far))
    log_p = classifier.predict_log_proba(far)[0]
    assert classifier.predict(far)[0] == classifier.classes_[1]
    assert log_p[1] == pytest.approx(0.0, abs=SOLVES)
    sd = np.sqrt(variance[0])
    f, step = np.linspace(min(-mean[0], 0.0) - 40 * sd, mean[0] + 40 * sd, 2_000_001, retstep=True)
    link = log_ndtr(-f) if kind is ProbitClassifier else -np.logaddexp(0.0, f)
    expected = logsumexp(link + norm.logpdf(f, mean[0], sd)) + np.log(step)
    assert expected < -750  # exp of it is 0
    assert log_p[0] == pytest.approx(expected, rel=AT_REST)


@BOTH
def test_more_classes_are_one_against_the_rest_normalised(kind):
    X, y = draw(n_classes=3, seed=2)
    classifier, new = kind().fit(X, y), draw(seed=3)[0]
    item = [kind().fit(X, y == k) for k in range(3)]
    np.testing.assert_array_equal(classifier.coef_, np.concatenate([c.coef_ for c in item]))
    assert classifier.log_evidence_ == pytest.approx(sum(c.log_evidence_ for c in item), rel=ROUNDING)
    p = np.column_stack([c.predict_proba(new)[:, 1] for c in item])
    np.testing.assert_allclose(classifier.predict_proba(new), p / p.sum(axis=1, keepdims=True), rtol=SOLVES)
    np.testing.assert_array_equal(classifier.predict(new), np.argmax(p, axis=1))
    np.testing.assert_array_equal(
        classifier.decision_function(new), np.stack([c.decision_function(new) for c in item], 1)
    )
    assert len(classifier.posteriors_) == 3


@BOTH
def test_decision_function_is_the_latent_value_of_the_probability(kind):
    X, y = draw(n=30)
    classifier, new = kind(prior_variance=10.0).fit(X, y), 3.0 * draw(seed=1)[0]
    link = ndtr if kind is ProbitClassifier else expit
    np.testing.assert_allclose(
        link(classifier.decision_function(new)), classifier.predict_proba(new)[:, 1], rtol=AT_REST
    )
    mean = new @ classifier.coef_[0] + classifier.intercept_
    assert np.all(np.abs(classifier.decision_function(new)) < np.abs(mean))


@pytest.mark.long_cases("LogitClassifier")
@BOTH
def test_loo_score_is_what_refits_without_each_row_give(kind):
    X, y = draw(n=40, seed=4)
    settings = dict(prior_variance=1.0, intercept_variance=100.0)  # the default would be that of other rows each time
    classifier = kind(**settings).fit(X, y)
    refits = []
    for i in range(len(y)):
        rest = np.arange(len(y)) != i
        refits.append(kind(**settings).fit(X[rest], y[rest]).predict_log_proba(X[[i]])[0, y[i]])
    # EP's cavity keeps the sites of the others as they were with the row; the difference is of second order
    assert classifier.loo_score_ == pytest.approx(np.mean(refits), abs=0.005)


def test_loo_score_of_more_classes_is_that_of_the_cavities():
    X, y = draw(n=40, n_classes=3, seed=4)
    weight = np.random.default_rng(0).integers(1, 4, size=40)
    for w in (None, weight):
        classifier = ProbitClassifier().fit(X, y, w)
        p = np.empty((40, 3))
        for k, posterior in enumerate(classifier.posteriors_):
            mean, variance = posterior.predict(with_ones(X))
            copies = 1 if w is None else w
            rho = 1 / variance - posterior.sites.rho / copies  # without one copy of the row
            p[:, k] = ndtr((mean / variance - posterior.sites.tau / copies) / rho / np.sqrt(1 + 1 / rho))
        expected = np.average(np.log((p / p.sum(axis=1, keepdims=True))[np.arange(40), y]), weights=w)
        assert classifier.loo_score_ == pytest.approx(expected, rel=INTEGRAL)


@pytest.mark.long
@pytest.mark.parametrize("load", [load_breast_cancer, load_iris])
def test_as_good_as_logistic_regression(load):
    """Out of sample: log loss at most 0.01 nats above that of the mode, close probabilities with the same link.

    All with the same prior, that of scikit-learn's C=1.
    """
    X, y = load(return_X_y=True)
    prior = dict(prior_variance=1.0, intercept_variance=100.0)

    def predicted(classifier):
        pipeline = make_pipeline(StandardScaler(), classifier)
        return cross_val_predict(pipeline, X, y, method="predict_proba")

    mode = predicted(OneVsRestClassifier(LogisticRegression()))
    logit, probit = predicted(LogitClassifier(**prior)), predicted(ProbitClassifier(**prior))
    for p in (logit, probit):
        assert log_loss(y, p) < log_loss(y, mode) + 0.01
        assert np.mean(np.argmax(p, axis=1) == y) > np.mean(np.argmax(mode, axis=1) == y) - 0.01
    apart = np.abs(logit - mode)
    assert np.mean(apart) < 0.01
    assert np.quantile(apart, 0.95) < 0.05


def test_learned_prior_variance_maximises_the_evidence():
    X, y = draw(n=200, d=8)
    X[:, 4:] *= 0.1
    classifier = LogitClassifier(learn_prior_variance=True, intercept_variance=7.0, prior_variance=1.0).fit(X, y)
    best = classifier.prior_variance_[0, 0]
    np.testing.assert_array_equal(classifier.prior_variance_, np.full((1, 8), best))
    assert best != pytest.approx(1.0, rel=0.1)
    for factor in (1 / 3, 0.9, 1.1, 3):
        other = LogitClassifier(prior_variance=factor * best, intercept_variance=7.0).fit(X, y)
        assert other.log_evidence_ < classifier.log_evidence_
    same = LogitClassifier(prior_variance=best, intercept_variance=7.0).fit(X, y)
    same_fit(classifier, same)
    second = LogitClassifier(learn_prior_variance=True, intercept_variance=7.0, prior_variance=30.0).fit(X, y)
    assert second.prior_variance_[0, 0] == pytest.approx(best, rel=1e-2)
    free = LogitClassifier(learn_prior_variance=True, intercept_variance=7.0).fit(X, y)  # a factor on the default
    factors = free.prior_variance_[0] * X.std(axis=0) ** 2 / 2.5**2
    np.testing.assert_allclose(factors, factors[0], rtol=AT_REST)
    for factor in (1 / 3, 0.9, 1.1, 3):
        variance = np.append(factor * free.prior_variance_[0], 7.0)
        other = GLM(cavity.likelihoods.Logit(), prior_variance=variance).fit(with_ones(X), y)
        assert other.log_evidence < free.log_evidence_


def test_each_class_learns_its_prior_variance():
    X, y = draw(n=150, n_classes=3)
    classifier = ProbitClassifier(learn_prior_variance=True).fit(X, y)
    item = [ProbitClassifier(learn_prior_variance=True).fit(X, y == k).prior_variance_[0] for k in range(3)]
    np.testing.assert_array_equal(classifier.prior_variance_, item)


# ---------------------------------------------------------------------------------------------- streams and weights


@pytest.mark.sample(3)
@BOTH
@pytest.mark.parametrize("approximation", ["full", "diagonal"])
@pytest.mark.parametrize("n_classes", [2, 3])
def test_batches_do_not_matter(kind, approximation, n_classes):
    X, y = draw(n=60, n_classes=n_classes)
    y[:5] = 0  # the first batch lacks classes
    full = kind(approximation=approximation).partial_fit(X, y, classes=range(n_classes))
    for edges in ([5, 6, 59], list(range(1, 60)), [30]):
        parts = kind(approximation=approximation)
        for Xb, yb in zip(np.split(X, edges), np.split(y, edges), strict=True):
            assert parts.partial_fit(Xb, yb, classes=None if hasattr(parts, "classes_") else range(n_classes)) is parts
        same_fit(full, parts, rtol=AT_REST, atol=LOSSES)
        assert parts.converged_
        assert not hasattr(parts, "loo_score_")


def test_first_partial_fit_is_adf_of_the_model():
    X, y = draw()
    classifier = LogitClassifier().partial_fit(X, y, classes=[0, 1])
    model = GLM(cavity.likelihoods.Logit(), prior_variance=[2.5**2] * 4 + [100 * 2.5**2])
    posterior = model.fit(with_ones(X), y, method="adf")
    np.testing.assert_array_equal(classifier.coef_[0], posterior.mean[:4])
    assert classifier.log_evidence_ == posterior.log_evidence


@BOTH
def test_partial_fit_goes_on_after_fit(kind):
    X, y = draw(n=100)
    classifier = kind().fit(X[:60], y[:60])
    posterior = classifier.posteriors_[0].update(with_ones(X[60:]), y[60:])
    classifier.partial_fit(X[60:], y[60:])
    np.testing.assert_array_equal(classifier.coef_[0], posterior.mean[:4])
    assert classifier.posteriors_[0].n_samples == 100
    assert not hasattr(classifier, "loo_score_")
    same_fit(classifier.fit(X, y), kind().fit(X, y), rtol=0, atol=0)  # fit begins anew


@BOTH
@pytest.mark.parametrize("approximation", ["full", "diagonal"])
@pytest.mark.parametrize("n_classes", [2, 3])
def test_weights_are_numbers_of_copies(kind, approximation, n_classes):
    X, y = draw(n=50, n_classes=n_classes, seed=5)
    weight = np.random.default_rng(0).integers(0, 4, size=50)
    copies = np.repeat(np.arange(50), weight)
    weighted = kind(approximation=approximation).fit(X, y, sample_weight=weight)
    repeated = kind(approximation=approximation).fit(X[copies], y[copies])
    same_fit(weighted, repeated)
    assert weighted.loo_score_ == pytest.approx(repeated.loo_score_, rel=EARLY)
    adf = kind(approximation=approximation).partial_fit(X, y, range(n_classes), weight)
    same_fit(adf, kind(approximation=approximation).partial_fit(X[copies], y[copies], range(n_classes)), rtol=INTEGRAL)


def test_a_class_of_weight_zero_is_absent():
    X, y = draw(n_classes=3)
    weighted = ProbitClassifier().fit(X, y, sample_weight=1.0 * (y != 1))
    assert weighted.classes_.tolist() == [0, 2]
    same_fit(weighted, ProbitClassifier().fit(X[y != 1], y[y != 1]), rtol=0, atol=0)


def test_fractions_of_rows():
    """Half of every row moves the posterior less than the row, and more than nothing."""
    X, y = draw()
    sd = [ProbitClassifier().fit(X, y, sample_weight=np.full(80, w)).coef_sd_ for w in (0.25, 0.5, 1.0, 2.0)]
    assert np.all(np.diff(sd, axis=0) < 0)


# ---------------------------------------------------------------------------------------------- kinds of input


@BOTH
@pytest.mark.parametrize("approximation", ["full", "diagonal"])
def test_sparse_equals_dense(kind, approximation):
    X, y = draw(n_classes=3, seed=6)
    X[np.abs(X) < 0.7] = 0.0
    dense = kind(approximation=approximation).fit(X, y)
    for container in (sparse.csr_array, sparse.csr_matrix, sparse.csc_array, sparse.coo_array):
        thin = kind(approximation=approximation).fit(container(X), y)
        same_fit(dense, thin, rtol=SOLVES, atol=ROUNDING)
        np.testing.assert_allclose(thin.predict_proba(container(X)), dense.predict_proba(X), rtol=LOSSES)
        np.testing.assert_allclose(thin.predict_proba(X), dense.predict_proba(X), rtol=LOSSES)
        np.testing.assert_allclose(dense.decision_function(container(X)), dense.decision_function(X), rtol=LOSSES)
    thin.partial_fit(sparse.csr_array(X), y)
    same_fit(thin, dense.partial_fit(X, y), rtol=LOSSES)


def test_auto_chooses_by_columns_and_storage():
    dense, few = linear.FULL_COLUMNS, linear.FULL_COLUMNS_SPARSE
    X, y = draw(n=6, d=dense + 1)

    def chosen(X):
        return ProbitClassifier().partial_fit(X, y, [0, 1]).posteriors_[0].model.approximation

    assert [chosen(X[:, :dense]), chosen(X)] == ["full", "diagonal"]
    thin = sparse.csr_array(X)
    assert [chosen(thin[:, :few]), chosen(thin[:, : few + 1])] == ["full", "diagonal"]


@BOTH
@pytest.mark.parametrize("labels", [["no", "yes"], [False, True], [-7, 3], ["b", "a", "c"]])
def test_labels_of_any_kind(kind, labels):
    X, y = draw(n_classes=len(labels))
    labels = np.array(labels)
    named, plain = kind().fit(X, labels[y]), kind().fit(X, np.argsort(np.argsort(labels))[y])
    np.testing.assert_array_equal(named.classes_, np.sort(labels))
    np.testing.assert_array_equal(named.predict(X), np.sort(labels)[plain.predict(X)])
    np.testing.assert_array_equal(named.predict_proba(X), plain.predict_proba(X))
    assert named.score(X, labels[y]) == plain.score(X, np.argsort(np.argsort(labels))[y]) > 0.6


def test_pandas_in_and_feature_names():
    X, y = draw()
    frame = pd.DataFrame(X, columns=list("abcd"))
    classifier = ProbitClassifier().fit(frame, pd.Series(np.where(y, "up", "down")), pd.Series(np.ones(80)))
    assert classifier.feature_names_in_.tolist() == list("abcd")
    same_fit(ProbitClassifier().fit(X, np.where(y, "up", "down")), classifier, rtol=0, atol=0)
    with pytest.raises(ValueError, match="feature names"):
        classifier.predict(frame[["b", "a", "c", "d"]])
    pipeline = make_pipeline(StandardScaler(), ProbitClassifier()).set_output(transform="pandas").fit(frame, y)
    assert pipeline[-1].feature_names_in_.tolist() == list("abcd")


def test_float32_gives_what_its_float64_copy_gives():
    X, y = draw()
    X = X.astype(np.float32)
    same_fit(LogitClassifier().fit(X, y), LogitClassifier().fit(X.astype(np.float64), y), rtol=SOLVES)


def test_prediction_in_blocks(monkeypatch):
    X, y = draw(n_classes=3)
    classifier = LogitClassifier().fit(X, y)
    full = classifier.predict_log_proba(X)
    monkeypatch.setattr(linear, "BLOCK_ROWS", 7)
    np.testing.assert_allclose(classifier.predict_log_proba(X), full, rtol=SOLVES)


def test_threads_change_no_bit():
    X, y = draw(n=30000, d=3)
    one, two = (ProbitClassifier(schedule="parallel", n_threads=k).fit(X, y) for k in (1, 2))
    same_fit(one, two, rtol=0, atol=0)


def test_without_intercept():
    X, y = draw()
    classifier = ProbitClassifier(fit_intercept=False).fit(X, y)
    assert classifier.intercept_.tolist() == [0.0]
    posterior = GLM(cavity.likelihoods.Probit(), prior_variance=(2.5 / 1.7 / X.std(axis=0)) ** 2).fit(X, y)
    np.testing.assert_allclose(classifier.coef_[0], posterior.mean, rtol=EARLY)
    np.testing.assert_allclose(classifier.predict_proba(np.zeros((1, 4))), [[0.5, 0.5]], rtol=LAST_BIT)


# ---------------------------------------------------------------------------------------------- the tools around


@pytest.mark.parametrize("kind", [ProbitClassifier, pytest.param(LogitClassifier, marks=pytest.mark.long)])
def test_tools_of_scikit_learn(kind):
    X, y = load_iris(return_X_y=True)
    pipeline = make_pipeline(StandardScaler(), kind())
    assert cross_val_score(pipeline, X, y).mean() > 0.9
    grid = {f"{kind.__name__.lower()}__prior_variance": [0.01, 10.0]}
    search = GridSearchCV(pipeline, grid, scoring="neg_log_loss", cv=3).fit(X, y)
    assert list(search.best_params_.values()) == [10.0]
    calibrated = CalibratedClassifierCV(pipeline, cv=3).fit(X, y)
    assert calibrated.score(X, y) > 0.9


@BOTH
def test_clone_and_pickle(kind):
    X, y = draw(n_classes=3)
    classifier = kind(prior_variance=3.0).fit(X, y)
    fresh = clone(classifier)
    assert fresh.get_params() == classifier.get_params()
    assert not hasattr(fresh, "coef_")
    back = pickle.loads(pickle.dumps(classifier))
    same_fit(back, classifier, rtol=0, atol=0)
    np.testing.assert_array_equal(back.predict_proba(X), classifier.predict_proba(X))
    same_fit(back.partial_fit(X, y), classifier.partial_fit(X, y), rtol=0, atol=0)


def routed_weights():
    """Rows, weights, and a pipeline fitted to them whose classifier alone asks for the weights."""
    X, y = draw(n=60)
    weight = np.random.default_rng(1).uniform(size=60)
    classifier = ProbitClassifier().set_fit_request(sample_weight=True).set_score_request(sample_weight=True)
    pipeline = make_pipeline(StandardScaler().set_fit_request(sample_weight=False), classifier)
    return X, y, weight, pipeline.fit(X, y, sample_weight=weight)


def test_sample_weight_is_routed():
    with sklearn.config_context(enable_metadata_routing=True):
        X, y, weight, pipeline = routed_weights()
        routed = pipeline[-1]
        direct = ProbitClassifier().fit(StandardScaler().fit_transform(X), y, sample_weight=weight)
        same_fit(routed, direct, rtol=0, atol=0)
        ProbitClassifier().set_partial_fit_request(sample_weight=True, classes=True)


@routed_scores
def test_sample_weight_is_routed_to_scores():
    with sklearn.config_context(enable_metadata_routing=True):
        X, y, weight, pipeline = routed_weights()
        routed = pipeline[-1]
        result = cross_validate(pipeline, X, y, params={"sample_weight": weight}, return_estimator=True, cv=2)
        assert result["estimator"][0][-1].log_evidence_ != routed.log_evidence_


# ---------------------------------------------------------------------------------------------- errors


@pytest.mark.parametrize(
    ("setting", "message"),
    [
        (dict(approximation="half"), "approximation must be one of 'auto', 'full', 'diagonal', got 'half'"),
        (dict(schedule="chaotic"), "schedule must be one of .* got 'chaotic'"),
        (dict(prior_variance=0.0), r"prior_variance must be in \(0, inf\), got 0.0"),
        (dict(prior_variance=np.inf), r"prior_variance must be in \(0, inf\), got inf"),
        (dict(intercept_variance=-1.0), r"intercept_variance must be in \(0, inf\), got -1.0"),
        (dict(power=2.0), "power must be in .1e-06, 1., got 2.0"),
        (dict(max_iter=0), "max_iter must be at least 1, got 0"),
        (dict(tol=-1.0), "tol must be in"),
        (dict(n_threads=0), "n_threads must be at least 1, or -1 for all cores, got 0"),
        (dict(learn_prior_variance=True, approximation="diagonal"), "learn_prior_variance=True needs the full"),
        (dict(schedule="stochastic", approximation="diagonal"), "diagonal.* no schedule='stochastic'"),
    ],
)
def test_settings_that_make_no_sense(setting, message):
    X, y = draw()
    with pytest.raises(ValueError, match=message):
        ProbitClassifier(**setting).fit(X, y)


def test_data_that_make_no_sense():
    X, y = draw(n=10)
    with pytest.raises(ValueError, match=r"y holds one class \('a'\) in 10 row\(s\); two are needed"):
        ProbitClassifier().fit(X, ["a"] * 10)
    with pytest.raises(ValueError, match="Input X contains NaN"):
        ProbitClassifier().fit(np.where(X > 1, np.nan, X), y)
    with pytest.raises(ValueError, match="Unknown label type"):
        ProbitClassifier().fit(X, X[:, 0])
    with pytest.raises(ValueError, match=r"sample_weight must not be negative, got -1.0"):
        ProbitClassifier().fit(X, y, -np.ones(10))
    with pytest.raises(ValueError, match="sample_weight is zero for every row"):
        ProbitClassifier().fit(X, y, np.zeros(10))
    with pytest.raises(ValueError, match=r"sample_weight must have shape \(10,\), one weight for each row, got \(9,\)"):
        ProbitClassifier().fit(X, y, np.ones(9))


def test_streams_that_make_no_sense():
    X, y = draw(n=10)
    with pytest.raises(ValueError, match="classes must be given in the first call of partial_fit"):
        ProbitClassifier().partial_fit(X, y)
    with pytest.raises(ValueError, match=r"classes holds one class \(0\); two are needed"):
        ProbitClassifier().partial_fit(X, y, classes=[0])
    with pytest.raises(ValueError, match="y holds 1, which is not among the classes"):
        ProbitClassifier().partial_fit(X, y, classes=[0, 2])
    classifier = ProbitClassifier().partial_fit(X, y, classes=[0, 1])
    with pytest.raises(ValueError, match=r"classes must be those of the first call, \[0, 1\], got \[0, 2\]"):
        classifier.partial_fit(X, y, classes=[0, 2])
    with pytest.raises(ValueError, match="y holds 4, which is not among"):
        classifier.partial_fit(X, y + 4)


def test_a_failed_call_leaves_no_half_fit():
    X, y = draw(n=10)
    classifier = ProbitClassifier()
    for _ in range(2):
        with pytest.raises(ValueError, match="classes must be given"):
            classifier.partial_fit(X, y)
    assert not hasattr(classifier, "classes_")


def test_unconverged_says_so():
    X, y = draw()
    with pytest.warns(cavity.ConvergenceWarning, match="max_iter"):
        classifier = ProbitClassifier(max_iter=1).fit(X, y)
    assert classifier.converged_ is False
    assert classifier.n_iter_ == 1


def test_stochastic_schedule_has_no_loo_score():
    X, y = draw()
    classifier = ProbitClassifier(schedule="stochastic").fit(X, y)
    assert not hasattr(classifier, "loo_score_")
    assert classifier.score(X, y) > 0.7


def test_no_loo_score_where_a_cavity_is_improper(monkeypatch):
    """As `GLMPosterior` says it; whether a fit ends so depends on rounding."""

    @property
    def improper(self):
        raise ValueError("row 7 has no leave-one-out density")

    X, y = draw()
    classifier = ProbitClassifier().fit(X, y)
    monkeypatch.setattr(cavity.GLMPosterior, "loo_log_density", improper)
    with pytest.warns(cavity.NumericalWarning, match="no loo_score_: row 7"):
        classifier.fit(X, y)
    assert not hasattr(classifier, "loo_score_")
    assert classifier.converged_


# ---------------------------------------------------------------------------------------------- the module


def run(code):
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)


def test_the_core_does_not_import_scikit_learn():
    code = "import sys, cavity; cavity.GLM, cavity.Clutter; print('sklearn' in sys.modules)"
    assert run(code).stdout.strip() == "False"


def test_without_scikit_learn_the_error_says_what_to_install():
    done = run("import sys; sys.modules['sklearn'] = None; import cavity.sklearn")
    assert "this needs scikit-learn, which is not installed; run: pip install 'cavity[sklearn]'" in done.stderr


def test_unknown_arguments_are_refused_by_the_name_of_the_class():
    import cavity.sklearn as faces

    with pytest.raises(TypeError, match="^LogitClassifier: .* argument 'C'; the argument for that is prior_v"):
        faces.LogitClassifier(C=1.0)
    for name in faces.__all__:
        kind = getattr(faces, name)
        for wrong in (lambda kind=kind: kind(nonsense=1), lambda kind=kind: kind(*range(9))):
            with pytest.raises(TypeError, match=f"^{name}: .*; there are .*max_iter|^{name}: .* are .*kernel"):
                wrong()
        assert "nonsense" not in str(inspect.signature(kind))
        assert list(inspect.signature(kind).parameters) == list(inspect.signature(kind.__init__).parameters)[1:]
        pickle.loads(pickle.dumps(kind()))


@pytest.mark.parametrize("name", cavity.sklearn.__all__)
def test_subclasses_have_arguments_of_their_own(name):
    class Further(getattr(cavity.sklearn, name)):
        def __init__(self, first, **others):
            super().__init__(**others)
            self.first = first

    with pytest.raises(TypeError, match="^Further: too many positional arguments"):
        Further(1, 2)
    other = "tol" if hasattr(Further(1), "tol") else "kernel"
    assert getattr(Further(1, **{other: 1e-3}), other) == 1e-3
    assert copy.copy(Further(1)).first == 1


@pytest.mark.parametrize("kind", [LogitClassifier, ProbitClassifier])
def test_probabilities_of_two_classes_are_those_of_both_labels(kind):
    """One of them is what the other leaves, however close to 1."""
    rng = np.random.default_rng(3)
    X = rng.normal(size=(60, 2))
    fitted = kind(prior_variance=100.0).fit(X, X[:, 0] > 0)
    new = np.array([[s * 10.0**k, 0.1] for k in range(-3, 4) for s in (-1, 1)])
    design = np.column_stack([new, np.ones(len(new))])
    result = np.stack([fitted.posteriors_[0].log_density(design, np.full(len(new), y)) for y in (-1.0, 1.0)], axis=1)
    np.testing.assert_allclose(fitted.predict_log_proba(new), result, rtol=AT_REST, atol=ROUNDING)
    np.testing.assert_allclose(fitted.predict_proba(new).sum(axis=1), 1.0, rtol=LAST_BIT)
    np.testing.assert_array_equal(fitted.predict(new), fitted.predict_proba(new)[:, 1] > 0.5)
    with pytest.raises(OverflowError, match="moments"):
        fitted.predict([[1e308, 1e308]])


# ---------------------------------------------------------------------------------------------- weights of classes


@pytest.mark.long_cases("OrdinalClassifier")
@pytest.mark.parametrize("kind", [ProbitClassifier, cavity.sklearn.OrdinalClassifier])
def test_weights_of_classes_are_weights_of_rows(kind):
    X, y = draw(n=90, n_classes=3, seed=5)
    rows = np.random.default_rng(6).integers(0, 3, len(y))
    arguments = {0: 2.0, 2: 0.5}
    by_class = kind(class_weight=arguments).fit(X, y, rows)
    by_row = kind().fit(X, y, rows * np.array([2.0, 1.0, 0.5])[y])
    np.testing.assert_allclose(by_class.predict_proba(X), by_row.predict_proba(X), atol=AT_REST)
    sums = np.bincount(y, rows)
    balanced = kind(class_weight="balanced").fit(X, y, rows)
    by_row = kind().fit(X, y, rows * (sums.sum() / 3 / sums)[y])
    np.testing.assert_allclose(balanced.predict_proba(X), by_row.predict_proba(X), atol=AT_REST)


@pytest.mark.parametrize(
    ("values", "message"),
    [({9: 1.0}, "class_weight has 9"), ("even", "class_weight must be"), ({0: -1.0}, "class_weight"), (3, "got int")],
)
def test_bad_weights_of_classes(values, message):
    with pytest.raises((ValueError, TypeError), match=message):
        ProbitClassifier(class_weight=values).fit(*draw())


# ---------------------------------------------------------------------------------------------- rows of dask


@pytest.mark.long_cases("LogitClassifier")
@BOTH
def test_collections_are_worked_on_where_they_are(kind):
    da = pytest.importorskip("dask.array")
    dd = pytest.importorskip("dask.dataframe")
    X, y = draw(n=20_000)  # more rows than are read at once
    y, weight = np.array(["no", "yes"])[y], 1.0 + np.arange(len(y)) % 3
    full = kind().fit(X, y, weight)
    chunks = da.from_array(X, chunks=(3_000, 4))
    frame = dd.from_pandas(pd.DataFrame(X, columns=list("abcd")), npartitions=3)
    for rows in (chunks, frame):
        posterior = kind().fit(rows, da.from_array(y, chunks=3_000), weight)
        np.testing.assert_array_equal(posterior.coef_, full.coef_)
        assert posterior.loo_score_ == full.loo_score_
        for name in ("predict", "predict_proba", "predict_log_proba", "decision_function"):
            lazy = getattr(posterior, name)(rows)
            assert type(lazy).__module__.startswith("dask")
            np.testing.assert_array_equal(lazy.compute(), getattr(full, name)(X))
    assert posterior.feature_names_in_.tolist() == list("abcd")


def test_mixtures_judge_collections_chunk_by_chunk():
    da = pytest.importorskip("dask.array")
    X = draw(n=500)[0]
    rows = da.from_array(X, chunks=(200, 4))
    mixture = cavity.sklearn.BayesianGaussianMixture(n_components=2, max_iter=1000).fit(X)
    for name in ("predict", "predict_proba", "score_samples"):
        np.testing.assert_array_equal(getattr(mixture, name)(rows).compute(), getattr(mixture, name)(X))
