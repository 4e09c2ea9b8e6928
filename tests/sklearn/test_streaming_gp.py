"""The scikit-learn streaming Gaussian processes: their contract, dense Gaussian processes, batches, kernels, tools."""

import copy
import pickle

import numpy as np
import pandas as pd
import pytest
from scipy.special import logsumexp
from scipy.stats import multivariate_normal
from sklearn import gaussian_process as theirs
from sklearn.base import clone
from sklearn.datasets import load_iris
from sklearn.exceptions import ConvergenceWarning, NotFittedError
from sklearn.gaussian_process.kernels import RBF, CompoundKernel, ConstantKernel, DotProduct, Matern, WhiteKernel
from sklearn.model_selection import GridSearchCV, cross_val_predict
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.utils import estimator_checks
from support.tolerances import AT_REST, EARLY, INTEGRAL, OPTIMUM, PRINTED, SLOPES, SOLVES

import cavity
from cavity import covariances
from cavity.sklearn import GaussianProcessClassifier, StreamingGPClassifier, StreamingGPRegressor
from cavity.sklearn.gp.noise import split_noise

BOTH = pytest.mark.parametrize("kind", [StreamingGPClassifier, StreamingGPRegressor])
QUIET = pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")  # of parameters at their bounds
FIXED = 1.5 * RBF(1.3)


def draw(n=30, d=2, seed=0, noise=0.3):
    """Rows, and a smooth function of them with noise."""
    rng = np.random.default_rng(seed)
    X = rng.uniform(-2, 2, size=(n, d))
    return X, np.sin(2.0 * X[:, 0]) + X[:, -1] + noise * rng.normal(size=n)


def labels(n=30, d=2, seed=0, n_classes=2):
    """Rows, and classes 0, 1, ... of about the same number of rows."""
    X, f = draw(n, d, seed, noise=0.8)
    return X, np.searchsorted(np.quantile(f, np.arange(1, n_classes) / n_classes), f)


def in_batches(model, X, y, cuts, weight=None, **options):
    """The model after `partial_fit` of the pieces of the rows."""
    for part in np.split(np.arange(len(y)), cuts):
        model.partial_fit(X[part], y[part], sample_weight=None if weight is None else weight[part], **options)
    return model


def same_predictions(a, b, X, rtol=1e-7, atol=1e-9):
    """Two models predict the same."""
    if hasattr(a, "predict_proba"):
        np.testing.assert_allclose(a.predict_log_proba(X), b.predict_log_proba(X), rtol=rtol, atol=atol)
    else:
        result, expected = (model.predict(X, return_std=True) for model in (a, b))
        np.testing.assert_allclose(result, expected, rtol=rtol, atol=atol)


# ---------------------------------------------------------------------------------------------- the contract


@pytest.mark.long_cases("check_sample_weight_equivalence_on_dense_data-StreamingGPClassifier")
@QUIET
@BOTH
@pytest.mark.parametrize(
    "check",
    [
        estimator_checks.check_fit2d_1sample,
        estimator_checks.check_fit_idempotent,
        estimator_checks.check_methods_subset_invariance,
        estimator_checks.check_n_features_in,
        estimator_checks.check_sample_weight_equivalence_on_dense_data,
    ],
)
def test_contract_of_scikit_learn_as_parameters_are_learnt(kind, check):
    check(kind.__name__, kind())


# ---------------------------------------------------------------------------------------------- regression


@pytest.mark.parametrize("power", [0.0, 0.4, 1.0])
@pytest.mark.parametrize("normalize_y", [False, True])
def test_with_every_row_an_inducing_point_regression_is_scikit_learns(power, normalize_y):
    X, y = draw(25)
    kernel, new = FIXED + WhiteKernel(0.2), draw(9, seed=1)[0]
    settings = {"alpha": 0.05, "normalize_y": normalize_y}
    truth = theirs.GaussianProcessRegressor(kernel, optimizer=None, **settings).fit(X, y)
    model = StreamingGPRegressor(kernel, inducing=X, learn=False, power=power, jitter=1e-10, **settings)
    if normalize_y:  # batches would be measured from the mean of the first
        model.fit(X, y)
    else:
        in_batches(model, X, y, [4, 5, 17])
    for options in ({"return_std": True}, {"return_cov": True}):
        for result, expected in zip(model.predict(new, **options), truth.predict(new, **options), strict=True):
            np.testing.assert_allclose(result, expected, rtol=OPTIMUM, atol=EARLY)
    scale = np.std(y) if normalize_y else 1.0
    assert model.log_bound_ == pytest.approx(truth.log_marginal_likelihood_value_ - 25 * np.log(scale), abs=SLOPES)
    assert model.noise_variance_ == pytest.approx(0.25 * scale**2, rel=SOLVES)
    np.testing.assert_array_equal(model.inducing_points_, X)
    assert (model.n_samples_seen_, model.converged_, model.kernel_) == (25, True, kernel)


def test_bound_and_predictions_are_those_of_the_formula_of_titsias():
    X, y = draw(40)
    Z, new = draw(7, seed=2)[0], draw(5, seed=1)[0]
    model = StreamingGPRegressor(FIXED + WhiteKernel(0.2), inducing=Z, learn=False, jitter=1e-10)
    in_batches(model, X, y, [11, 12, 30])
    K, cross, ahead = FIXED(Z) + 1e-10 * 1.5 * np.eye(7), FIXED(X, Z), FIXED(new, Z)
    low_rank = cross @ np.linalg.solve(K, cross.T)
    bound = multivariate_normal(np.zeros(40), low_rank + (0.2 + 1e-10) * np.eye(40)).logpdf(y)
    assert model.log_bound_ == pytest.approx(bound - np.sum(1.5 - np.diag(low_rank)) / 0.4, rel=EARLY)
    precision = K + cross.T @ cross / (0.2 + 1e-10)
    mean, covariance = model.predict(new, return_cov=True)
    np.testing.assert_allclose(mean, ahead @ np.linalg.solve(precision, cross.T @ y) / 0.2, rtol=OPTIMUM)
    expected = FIXED(new) - ahead @ np.linalg.solve(K, ahead.T) + ahead @ np.linalg.solve(precision, ahead.T)
    np.testing.assert_allclose(covariance, expected + 0.2 * np.eye(5), rtol=OPTIMUM, atol=EARLY)
    np.testing.assert_allclose(model.predict(new, return_std=True)[1] ** 2, np.diag(covariance), rtol=EARLY)


def test_standard_deviations_hold_the_white_noise_and_not_alpha():
    X, y = draw()
    total = {"inducing": X[:9], "learn": False}
    white = StreamingGPRegressor(FIXED + WhiteKernel(0.3, "fixed"), alpha=0.0, **total).fit(X, y)
    plain = StreamingGPRegressor(FIXED, alpha=0.3, **total).fit(X, y)
    split = StreamingGPRegressor(FIXED + WhiteKernel(0.1), alpha=0.2, **total).fit(X, y)
    sd = {name: model.predict(X, return_std=True)[1] for name, model in locals().items() if hasattr(model, "state_")}
    np.testing.assert_allclose(sd["white"] ** 2, sd["plain"] ** 2 + 0.3, rtol=SOLVES)
    np.testing.assert_allclose(sd["split"] ** 2, sd["plain"] ** 2 + 0.1, rtol=AT_REST)
    assert white.log_bound_ == pytest.approx(plain.log_bound_, rel=SOLVES)


@pytest.mark.long_cases("kernel2-1e-10")
@pytest.mark.sample(2)
@pytest.mark.parametrize(
    ("kernel", "alpha"),
    [
        (1.0 * RBF([1.0, 1.0]) + WhiteKernel(0.3), 0.0),
        (WhiteKernel(0.3, (0.01, 10.0)) + 2.0 * Matern(1.5, nu=2.5) + DotProduct(0.7), 0.01),
        (1.0 * RBF(1.0) + WhiteKernel(0.09, "fixed"), 1e-10),
        (1.0 * RBF(1.0), 0.09),
    ],
)
@QUIET
def test_learning_finds_what_scikit_learn_finds(kernel, alpha):
    X, y = draw(60)
    model = StreamingGPRegressor(kernel, alpha=alpha, inducing=X).fit(X, y)
    truth = theirs.GaussianProcessRegressor(kernel, alpha=alpha).fit(X, y)
    assert model.log_bound_ == pytest.approx(truth.log_marginal_likelihood_value_, abs=0.02)
    np.testing.assert_allclose(model.predict(X, return_std=True), truth.predict(X, return_std=True), atol=0.02)
    assert type(model.kernel_) is type(kernel)
    assert model.kernel_.n_dims == kernel.n_dims
    second = StreamingGPRegressor(model.kernel_, alpha=alpha, inducing=X, learn=False).fit(X, y)
    same_predictions(second, model, X, rtol=OPTIMUM)
    assert second.log_bound_ == pytest.approx(model.log_bound_, abs=OPTIMUM)


def test_noise_stays_within_the_bounds_of_its_kernel():
    X, y = draw(60, noise=0.1)
    for kernel in (
        1.0 * RBF(1.0) + WhiteKernel(0.5, (0.2, 1.0)),
        covariances.RBF() + covariances.White(0.5, bounds={"variance": (0.2, 1.0)}),
    ):
        with pytest.warns(ConvergenceWarning, match=r"(?s)(noise_level|white\.variance).* lower bound"):
            model = StreamingGPRegressor(kernel, alpha=0.1, inducing=X[:20]).fit(X, y)
        assert model.noise_variance_ == pytest.approx(0.3, rel=SOLVES)
        parts = split_noise(model.kernel_, 2)
        assert parts.noise_variance == pytest.approx(0.2, rel=SOLVES)
        # the others are at their best for that noise
        for step in (-0.05, 0.05):
            moved = parts.covariance.with_log_parameters(parts.covariance.log_parameters + [0.0, step])
            other = StreamingGPRegressor(moved, alpha=0.3, inducing=X[:20], learn=False).fit(X, y)
            assert other.log_bound_ < model.log_bound_


@QUIET
@pytest.mark.filterwarnings("ignore::cavity.SettingsWarning")
def test_noise_of_later_batches_stays_what_it_was_rather_than_leave_its_bounds():
    loud, quiet = draw(60, noise=0.6), draw(300, seed=1, noise=0.05)
    kernel = 1.0 * RBF(1.0) + WhiteKernel(0.5, (0.25, 1.0))
    model = StreamingGPRegressor(kernel, inducing=loud[0][:30], learn=True).partial_fit(*loud)
    before, length = model.noise_variance_, model.kernel_.k1.k2.length_scale
    assert 0.26 < before < 0.9
    model.partial_fit(*quiet)
    assert model.noise_variance_ == before
    assert model.kernel_.k2.noise_level == pytest.approx(before, rel=AT_REST)
    assert model.kernel_.k1.k2.length_scale != length
    free = StreamingGPRegressor(1.0 * RBF(1.0) + WhiteKernel(0.5), inducing=loud[0][:30], learn=True)
    assert free.partial_fit(*loud).partial_fit(*quiet).noise_variance_ < 0.25


@QUIET
def test_later_batches_learn_if_they_shall():
    X, y = draw(120, noise=0.2)
    kernel = 1.0 * RBF(1.0) + WhiteKernel(1.0)
    first = in_batches(StreamingGPRegressor(kernel, inducing=X[:25]), X, y, [10])
    single = StreamingGPRegressor(kernel, inducing=X[:25]).fit(X[:10], y[:10])
    assert first.kernel_ == single.kernel_
    assert first.kernel_ != kernel
    every = in_batches(StreamingGPRegressor(kernel, inducing=X[:25], learn=True), X, y, [10])
    assert every.kernel_ != single.kernel_
    assert every.noise_variance_ == pytest.approx(0.04, rel=0.5)
    never = in_batches(StreamingGPRegressor(kernel, inducing=X[:25], learn=False), X, y, [10])
    assert never.kernel_ == kernel
    assert every.log_bound_ > never.log_bound_


def test_normalisation_is_that_of_the_first_batch():
    X, y = draw(40)
    kernel, shifted = FIXED + WhiteKernel(0.2), 1e3 + 50.0 * y
    settings = {"inducing": X[:12], "learn": False}
    model = in_batches(StreamingGPRegressor(kernel, normalize_y=True, **settings), X, shifted, [15])
    centre, scale = np.mean(shifted[:15]), np.std(shifted[:15])
    truth = in_batches(StreamingGPRegressor(kernel, **settings), X, (shifted - centre) / scale, [15])
    mean, sd = truth.predict(X, return_std=True)
    np.testing.assert_allclose(model.predict(X, return_std=True), [centre + scale * mean, scale * sd], rtol=INTEGRAL)
    np.testing.assert_allclose(model.predict(X, return_cov=True)[1], scale**2 * truth.predict(X, return_cov=True)[1])
    assert model.log_bound_ == pytest.approx(truth.log_bound_ - 40 * np.log(scale), rel=SOLVES)
    assert model.noise_variance_ == pytest.approx(0.2 * scale**2)
    constant = StreamingGPRegressor(kernel, normalize_y=True, learn=False).fit(X, np.full(40, 7.0))
    np.testing.assert_allclose(constant.predict(X), 7.0)


@pytest.mark.parametrize("power", [-500, 500])
def test_normalised_targets_may_be_of_any_size(power):
    X, y = draw(40)
    settings = {"kernel": FIXED + WhiteKernel(0.2), "inducing": X[:12], "learn": False, "normalize_y": True}
    model = StreamingGPRegressor(**settings).fit(X, np.ldexp(y, power))
    truth = StreamingGPRegressor(**settings).fit(X, y)
    for result, expected in zip(model.predict(X, return_std=True), truth.predict(X, return_std=True), strict=True):
        np.testing.assert_array_equal(result, np.ldexp(expected, power))
    assert model.log_bound_ == pytest.approx(truth.log_bound_ - 40 * power * np.log(2), rel=SOLVES)
    with pytest.raises(OverflowError, match="the squares of y leave the range of float64"):
        model.fit(X, np.ldexp(y, 1000))


def test_samples_have_the_moments_of_predictions():
    X, y = draw()
    model = StreamingGPRegressor(FIXED + WhiteKernel(0.2), inducing=X[:10], learn=False).fit(X, y)
    samples = model.sample_y(X[:4], 20_000, random_state=3)
    mean, covariance = model.predict(X[:4], return_cov=True)
    np.testing.assert_allclose(samples.mean(axis=1), mean, atol=0.03)
    np.testing.assert_allclose(np.cov(samples), covariance, atol=0.03)
    np.testing.assert_array_equal(samples, model.sample_y(X[:4], 20_000, random_state=3))
    with pytest.raises(RuntimeError, match="At most one of return_std or return_cov"):
        model.predict(X, return_std=True, return_cov=True)


# ---------------------------------------------------------------------------------------------- classification


@pytest.mark.parametrize("likelihood", ["logit", "probit"])
@pytest.mark.parametrize("n_classes", [2, 3])
def test_with_every_row_an_inducing_point_classification_is_the_dense_one(likelihood, n_classes):
    X, y = labels(n_classes=n_classes)
    kernel, new = 2.0 * RBF(1.3), draw(9, seed=1)[0]
    truth = GaussianProcessClassifier(kernel, likelihood=likelihood, optimizer=None).fit(X, y)
    model = StreamingGPClassifier(kernel, likelihood=likelihood, inducing=X, jitter=1e-10, learn=False).fit(X, y)
    np.testing.assert_allclose(model.predict_log_proba(new), truth.predict_log_proba(new), rtol=PRINTED, atol=SLOPES)
    np.testing.assert_array_equal(model.predict(new), truth.predict(new))
    assert model.log_bound_ == pytest.approx(truth.log_evidence_, abs=PRINTED)
    assert len(model.states_) == (1 if n_classes == 2 else 3)
    assert model.kernel_ == truth.kernel_


def test_batches_of_classes_are_one_against_the_rest_normalised():
    X, y = labels(60, n_classes=3)
    names, new = np.array(["b", "c", "a"]), draw(20, seed=1)[0]
    settings = {"kernel": FIXED, "inducing": X[:15], "learn": False}
    model = in_batches(StreamingGPClassifier(**settings), X, names[y], [7, 8, 40], classes=names)
    assert model.classes_.tolist() == ["a", "b", "c"]
    inside = []
    for name in model.classes_:
        one = in_batches(StreamingGPClassifier(**settings), X, names[y] == name, [7, 8, 40], classes=[False, True])
        inside.append(one.predict_log_proba(new)[:, 1])
    inside = np.stack(inside, axis=1)
    np.testing.assert_allclose(
        model.predict_log_proba(new), inside - logsumexp(inside, axis=1, keepdims=True), rtol=INTEGRAL
    )
    np.testing.assert_allclose(model.predict_proba(new).sum(axis=1), 1.0, rtol=SOLVES)
    np.testing.assert_array_equal(model.predict(new), model.classes_[np.argmax(inside, axis=1)])


def test_a_stream_of_labels_is_close_to_all_at_once():
    X, y = labels(300)
    settings = {"kernel": FIXED, "inducing": X[:20], "learn": False, "likelihood": "probit"}
    full = StreamingGPClassifier(**settings).fit(X, y)
    stream = in_batches(StreamingGPClassifier(**settings), X, y, [50, 51, 120, 250], classes=[0, 1])
    np.testing.assert_allclose(stream.predict_proba(X), full.predict_proba(X), atol=0.02)
    assert stream.n_samples_seen_ == 300


@QUIET
def test_parameters_are_learnt_once_there_are_rows_of_both_kinds():
    X, y = labels(80)
    order = np.argsort(y, kind="stable")
    X, y = X[order], y[order]
    kernel = 1.0 * RBF(0.5)
    model = StreamingGPClassifier(kernel, inducing=X[::5])
    assert model.partial_fit(X[:20], y[:20], classes=[0, 1]).kernel_ == kernel
    learnt = model.partial_fit(X[20:60], y[20:60]).kernel_
    assert learnt != kernel
    assert model.partial_fit(X[60:], y[60:]).kernel_ == learnt
    more = StreamingGPClassifier(kernel, inducing=X[::5], learn=True)
    assert in_batches(more, X, y, [20, 60], classes=[0, 1]).kernel_ != learnt


@QUIET
def test_iris():
    X, y = load_iris(return_X_y=True)
    X = StandardScaler().fit_transform(X)
    model = StreamingGPClassifier(ConstantKernel(20.0, "fixed") * RBF(1.0), likelihood="probit", n_inducing=30)
    assert model.fit(X, y).score(X, y) > 0.95
    assert isinstance(model.kernel_, CompoundKernel)
    assert max(len(state.inducing) for state in model.states_) <= 30
    assert np.all(np.abs(np.mean(model.predict_proba(X), axis=0) - 1 / 3) < 0.03)


# ---------------------------------------------------------------------------------------------- both


@pytest.mark.parametrize("weighted", [False, True])
def test_batches_give_what_all_rows_at_once_give(weighted):
    X, y = draw(50)
    weight = np.random.default_rng(3).integers(0, 3, size=50) + (np.arange(50) < 4) if weighted else None
    model = StreamingGPRegressor(FIXED + WhiteKernel(0.2), inducing=X[:12], learn=False)
    full = clone(model).fit(X, y, weight)
    for cuts in ([1, 2, 3], [25], list(range(10, 50, 10))):
        stream = in_batches(clone(model), X, y, cuts, weight if weighted else None)
        same_predictions(stream, full, X, rtol=AT_REST)
        assert stream.log_bound_ == pytest.approx(full.log_bound_, rel=INTEGRAL)
        assert stream.n_samples_seen_ == full.n_samples_seen_ == (np.sum(weight > 0) if weighted else 50)


@pytest.mark.long_cases("first-StreamingGPClassifier")
@pytest.mark.sample(2)
@BOTH
@QUIET
@pytest.mark.parametrize("learn", ["first", False])
def test_order_and_copies_of_rows_do_not_count_within_a_batch(kind, learn):
    X, y = labels(40)
    rng = np.random.default_rng(5)
    weight, shuffle = rng.integers(0, 4, size=40), rng.permutation(40)
    copies = rng.permutation(np.repeat(np.arange(40), weight))
    model = kind(n_inducing=15, learn=learn)
    weighted = clone(model).fit(X, y, weight)
    for X_too, y_too, weight_too in ((X[shuffle], y[shuffle], weight[shuffle]), (X[copies], y[copies], None)):
        other = clone(model).fit(X_too, y_too, weight_too)
        same_predictions(other, weighted, X, rtol=0, atol=0)
        assert other.kernel_ == weighted.kernel_
    assert (weighted.n_samples_seen_, other.n_samples_seen_) == (np.sum(weight > 0), np.sum(weight))


@pytest.mark.parametrize("power", [0.0, 1.0])
def test_weights_are_copies_that_come_later(power):
    X, y = draw(40)
    weight = np.random.default_rng(5).integers(1, 4, size=40)
    settings = {"kernel": FIXED + WhiteKernel(0.2), "inducing": X[:12], "learn": False, "power": power}
    weighted = StreamingGPRegressor(**settings).fit(X, y, weight)
    later = StreamingGPRegressor(**settings)
    for times in range(3):
        later.partial_fit(X[weight > times], y[weight > times])
    same_predictions(later, weighted, X, rtol=AT_REST)
    assert later.log_bound_ == pytest.approx(weighted.log_bound_, rel=INTEGRAL)


def test_equal_rows_with_other_targets_are_rows_of_their_own():
    X, y = draw(30)
    model = StreamingGPRegressor(FIXED + WhiteKernel(0.2), inducing=X[:12], learn=False)
    both = clone(model).fit(np.vstack([X, X]), np.append(y, 1.0 - y))
    same_predictions(both, model.fit(X, y).partial_fit(X, 1.0 - y), X)
    assert both.log_bound_ == pytest.approx(model.log_bound_, rel=INTEGRAL)


@BOTH
def test_fit_starts_anew(kind):
    X, y = labels()
    settings = {} if kind is StreamingGPRegressor else {"classes": [0, 1]}
    model = kind(FIXED, inducing=X[:8], learn=False, **({"alpha": 0.1} if not settings else {}))
    fresh = clone(model).fit(X, y)
    second = model.partial_fit(X + 1.0, 1 - y, **settings).fit(X, y)
    same_predictions(second, fresh, X, rtol=0, atol=0)
    assert second.n_samples_seen_ == 30


@BOTH
def test_a_failed_batch_changes_nothing(kind):
    X, y = labels(n_classes=3)
    model = kind(FIXED, learn=False, **({"alpha": 0.1} if kind is StreamingGPRegressor else {})).fit(X, y)
    before, parameters = copy.deepcopy(model), vars(model).keys()
    for bad_X, bad_y, message in (
        (X[:, :1], y, "X has 1 features, but .* is expecting 2"),
        (np.column_stack([X, X]), y, "X has 4 features"),
        (np.where(X > 1.9, np.nan, X), y, "Input X contains NaN"),
        (X, np.where(y == 1, np.nan, y), "Input y contains NaN"),
        (X[:0], y[:0], "Found array with 0 sample"),
        (X, y[:-1], "inconsistent numbers of samples"),
    ):
        with pytest.raises(ValueError, match=message):
            model.partial_fit(bad_X, bad_y)
        same_predictions(model, before, X, rtol=0, atol=0)
    with pytest.raises(ValueError, match="sample_weight must not be negative"):
        model.partial_fit(X, y, sample_weight=np.full(30, -1.0))
    with pytest.raises(ValueError, match="sample_weight is zero for every row"):
        model.partial_fit(X, y, sample_weight=np.zeros(30))
    same_predictions(model, before, X, rtol=0, atol=0)
    assert vars(model).keys() == parameters


def test_a_failure_in_one_of_several_models_changes_none(monkeypatch):
    X, y = labels(n_classes=3)
    model = StreamingGPClassifier(FIXED, inducing=X[:8], learn=False).fit(X, y)
    before, calls = model.predict_proba(X), []
    update = type(model.states_[0]).update

    def third_fails(state, *arguments, **options):
        calls.append(state)
        if len(calls) == 3:
            raise ArithmeticError("out of range")
        return update(state, *arguments, **options)

    monkeypatch.setattr(type(model.states_[0]), "update", third_fails)
    with pytest.raises(ArithmeticError, match="out of range"):
        model.partial_fit(X, y)
    np.testing.assert_array_equal(model.predict_proba(X), before)
    assert model.n_samples_seen_ == 30


def test_the_contract_of_classes():
    X, y = labels()
    with pytest.raises(ValueError, match="classes must be given in the first call of partial_fit"):
        StreamingGPClassifier().partial_fit(X, y)
    with pytest.raises(ValueError, match=r"classes holds one class \(1\); two are needed"):
        StreamingGPClassifier().partial_fit(X, y, classes=[1, 1])
    with pytest.raises(ValueError, match=r"y holds 2, which is not among the classes \[0, 1\]"):
        StreamingGPClassifier().partial_fit(X, y + 1, classes=[0, 1])
    with pytest.raises(ValueError, match="y holds one class"):
        StreamingGPClassifier().fit(X, np.zeros(30))
    model = StreamingGPClassifier(FIXED, learn=False).partial_fit(X[:5], np.ones(5), classes=[0, 1])
    assert model.predict(X[:5]).tolist() == [1] * 5
    model.partial_fit(X, y).partial_fit(X, y, classes=[1, 0])
    with pytest.raises(ValueError, match=r"classes must be those of the first call, \[0, 1\], got \[0, 1, 2\]"):
        model.partial_fit(X, y, classes=[0, 1, 2])
    assert StreamingGPClassifier(FIXED, learn=False).fit(X, y).partial_fit(X[:3], y[:3]).n_samples_seen_ == 33


@BOTH
@pytest.mark.parametrize(
    ("settings", "error", "message"),
    [
        ({"kernel": "rbf"}, TypeError, "kernel must be one of"),
        ({"power": 1.5}, ValueError, r"power must be in .*1\], got 1.5"),
        ({"power": "vfe"}, TypeError, "power must be a number"),
        ({"learn": "last"}, ValueError, "learn, unless it is True or False, must be one of 'first', got 'last'"),
        ({"learn": 1}, ValueError, "learn, .* got 1"),
        ({"n_inducing": 0}, ValueError, "n_inducing must be at least 1"),
        ({"tolerance": -1.0}, ValueError, "tolerance must be in"),
        ({"jitter": -1.0}, ValueError, "jitter must be in"),
        ({"inducing": [[1.0, 2.0, 3.0]]}, ValueError, r"2 columns|3 column"),
        ({"n_threads": 0}, ValueError, "n_threads must be at least 1"),
        ({"kernel": RBF() * WhiteKernel()}, ValueError, "white noise once at most, as a term of a sum"),
        ({"kernel": RBF() + WhiteKernel() + WhiteKernel()}, ValueError, "white noise once at most"),
        ({"kernel": WhiteKernel()}, ValueError, "kernel must hold more than white noise"),
        ({"kernel": RBF() ** 2}, ValueError, "cannot be learnt from a stream: a power repeats its parameters"),
        (
            {"kernel": covariances.RBF() + covariances.White(priors={"variance": covariances.LogNormal(1.0, 1.0)})},
            ValueError,
            "kernel must not (have priors of|hold) white noise",
        ),
        ({"kernel": RBF([1.0, 1.0, 1.0])}, ValueError, "lengthscale must be a number or one for each of 2"),
    ],
)
def test_bad_settings(kind, settings, error, message):
    with pytest.raises(error, match=message):
        kind(**settings).fit(*labels())


@pytest.mark.parametrize(
    ("kind", "settings", "message"),
    [
        (StreamingGPRegressor, {"alpha": -1.0}, r"alpha must be in \[0, inf\), got -1.0"),
        (StreamingGPRegressor, {"kernel": RBF(), "alpha": 0.0}, "alpha must be positive where the kernel has no white"),
        (StreamingGPClassifier, {"likelihood": "poisson"}, "likelihood must be one of 'logit', 'probit'"),
        (StreamingGPClassifier, {"kernel": RBF() + WhiteKernel()}, "kernel must not hold white noise: the likelihood"),
        (StreamingGPClassifier, {"power": 0.0}, r"power must be in \[1e-06, 1\], got 0.0"),
    ],
)
def test_bad_settings_of_one(kind, settings, message):
    with pytest.raises(ValueError, match=message):
        kind(**settings).fit(*labels())


def test_powers_of_kernels_that_are_not_learnt():
    X, y = draw()
    settings = {"alpha": 0.1, "inducing": X, "jitter": 1e-10}
    model = StreamingGPRegressor(RBF(2.0) ** 2, learn=False, **settings).fit(X, y)
    with pytest.raises(ValueError, match="a power repeats its parameters"):
        clone(model).set_params(learn=True).fit(X, y)
    fixed = StreamingGPRegressor(RBF(2.0, "fixed") ** 2, **settings).fit(X, y)
    truth = theirs.GaussianProcessRegressor(RBF(2.0) ** 2, alpha=0.1, optimizer=None).fit(X, y)
    np.testing.assert_allclose(model.predict(X), truth.predict(X), atol=SLOPES)
    same_predictions(model, fixed, X)


@pytest.mark.long_cases("StreamingGPClassifier")
@BOTH
@QUIET
def test_clone_and_pickle(kind):
    X, y = labels(n_classes=3)
    model = kind(inducing=X[:10]).fit(X, y)
    fresh, back = clone(model), pickle.loads(pickle.dumps(model))
    with pytest.raises(NotFittedError):
        fresh.predict(X)
    same_predictions(back, model, X, rtol=0, atol=0)
    for item in (back, model):
        item.partial_fit(X, y)
    same_predictions(back, model, X, rtol=0, atol=0)
    assert back.kernel_ == model.kernel_


@pytest.mark.long_cases("StreamingGPClassifier")
@BOTH
def test_pandas_and_tools_of_scikit_learn(kind):
    X, y = labels(60)
    frame = pd.DataFrame(X, columns=list("ab"))
    options = {"alpha": 0.1} if kind is StreamingGPRegressor else {}
    pipeline = make_pipeline(StandardScaler(), kind(**options, n_inducing=20)).set_output(transform="pandas")
    name = f"{kind.__name__.lower()}__kernel"
    grid = {name: [RBF(1e-3, "fixed"), RBF(2.0, "fixed"), covariances.RBF(lengthscale=0.01).fix()]}
    scoring = "neg_log_loss" if kind is StreamingGPClassifier else "r2"
    search = GridSearchCV(pipeline, grid, cv=3, scoring=scoring).fit(frame, pd.Series(y))
    assert search.best_params_[name] == grid[name][1]
    assert search.best_estimator_[-1].feature_names_in_.tolist() == list("ab")
    with pytest.raises(ValueError, match="feature names"):
        search.predict(frame[["b", "a"]])
    assert cross_val_predict(search.best_estimator_, X, y, cv=3).shape == (60,)


def test_is_cavity_streaming_gp_underneath():
    X, y = draw()
    order = np.lexsort(X.T)  # as the rows of a batch are sorted
    X, y = X[order], y[order]
    covariance = covariances.RBF(1.5, 1.3)
    model = StreamingGPRegressor(covariance + covariances.White(0.2), alpha=0.1, n_inducing=11, learn=False).fit(X, y)
    truth = cavity.StreamingGP(covariance, cavity.likelihoods.Gaussian(0.2 + 0.1), n_inducing=11).fit(X, y, learn=False)
    np.testing.assert_array_equal(model.inducing_points_, truth.inducing)
    np.testing.assert_array_equal(model.predict(X), truth.predict(X)[0])
    assert (model.log_bound_, model.information_lost_) == (truth.log_bound, truth.information_lost)
    assert model.kernel_ == covariance + covariances.White(0.2)
    labelled = y > 0
    classifier = StreamingGPClassifier(covariance, power=0.7, n_inducing=11, learn=False).fit(X, labelled)
    logit = cavity.StreamingGP(covariance, cavity.likelihoods.Logit(), n_inducing=11, alpha=0.7)
    np.testing.assert_array_equal(
        classifier.predict_proba(X)[:, 1], logit.fit(X, labelled, learn=False).predict_proba(X)[:, 1]
    )


# ---------------------------------------------------------------------------------------------- kernels taken apart


def test_kernels_taken_apart_and_put_together():
    X = draw(6)[0]
    kernel = RBF([1.0, 2.0], (0.1, 10.0)) * ConstantKernel(2.0) + WhiteKernel(0.3, (0.2, 0.4)) + DotProduct(0.7)
    parts = split_noise(kernel, 2)
    np.testing.assert_allclose(parts.covariance.gram(X), kernel(X) - 0.3 * np.eye(6), rtol=SOLVES, atol=SOLVES)
    assert parts.noise_variance == 0.3
    assert [parts.noise_in(total) for total in (0.1, 0.25, 1.0)] == pytest.approx([0.2, 0.25, 0.4], rel=SOLVES)
    assert [parts.allow(total) for total in (0.19, 0.2, 0.25, 0.4, 0.41)] == [False, True, True, True, False]
    bounds = np.exp(parts.covariance.log_bounds)
    np.testing.assert_allclose(bounds[:3], [(0.1, 10.0), (0.1, 10.0), (1e-5, 1e5)], rtol=SOLVES)
    np.testing.assert_allclose(bounds[3], (1e-10, 1e10), rtol=SOLVES)  # sigma_0 squared
    moved = parts.covariance.with_log_parameters(parts.covariance.log_parameters + np.linspace(0.1, 0.4, 4))
    back = parts.with_values(moved, 0.25)
    np.testing.assert_allclose(back(X), moved.gram(X) + 0.25 * np.eye(6), rtol=SOLVES, atol=SOLVES)
    assert parts.with_values(parts.covariance, 0.3) == kernel
    fixed = split_noise(1.0 * RBF() + WhiteKernel(0.3, "fixed"), 1)
    assert (fixed.noise_in(5.0), fixed.learns_noise) == (0.3, False)
    assert split_noise(kernel, 2, alpha=0.1).noise_in(0.35) == pytest.approx(0.25, rel=SOLVES)
    assert split_noise(RBF(), 1).noise_variance == 0.0


def test_bounds_of_kernels():
    at_its_bound = ConstantKernel(1e-5, (1e-5, 1.0)) * RBF(0.7, (0.7, 0.9))
    covariance = split_noise(at_its_bound, 1).covariance
    np.testing.assert_allclose(np.exp(covariance.log_bounds), [(1e-5, 1.0), (0.7, 0.9)], rtol=SOLVES)
    with pytest.raises(ValueError, match="bounds of a lengthscale must be the same for all columns"):
        split_noise(RBF([1.0, 1.0], [(0.1, 10.0), (0.1, 20.0)]), 2)
    with pytest.raises(ValueError, match="lengthscale must be within its bounds"):
        split_noise(RBF(1.0, (2.0, 3.0)), 1)
    unbounded = split_noise(RBF(1.0, (0.0, np.inf)), 1).covariance
    assert np.all(np.isfinite(unbounded.log_bounds))
