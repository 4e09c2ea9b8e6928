"""The scikit-learn Gaussian processes: their own checks, scikit-learn's numbers, exact integrals, refits, real data."""

import pickle
import warnings

import numpy as np
import pandas as pd
import pytest
from scipy.special import expit, logsumexp, ndtr
from scipy.stats import multivariate_normal, norm
from sklearn import gaussian_process as theirs
from sklearn.base import clone
from sklearn.datasets import load_breast_cancer, load_iris
from sklearn.exceptions import ConvergenceWarning
from sklearn.gaussian_process.kernels import (
    RBF,
    ConstantKernel,
    DotProduct,
    ExpSineSquared,
    Matern,
    PairwiseKernel,
    RationalQuadratic,
    WhiteKernel,
)
from sklearn.metrics import log_loss
from sklearn.model_selection import GridSearchCV, cross_val_predict
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from support import tolerances

import cavity
from cavity import covariances
from cavity.sklearn import GaussianProcessClassifier, GaussianProcessRegressor

BOTH = pytest.mark.parametrize("kind", [GaussianProcessClassifier, GaussianProcessRegressor])
LINKS = pytest.mark.parametrize(("likelihood", "link"), [("logit", expit), ("probit", ndtr)])
QUIET = pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")  # of parameters at their bounds
KERNELS = pytest.mark.parametrize(
    "kernel",
    [
        ConstantKernel(2.0) * RBF([0.7, 1.9, 1.1]) + WhiteKernel(0.3),
        Matern(1.3, nu=2.5) + DotProduct(0.8) + WhiteKernel(0.1),
        (RBF(2.0) + DotProduct()) ** 2 + 0.5 * RationalQuadratic(0.8, 1.4),
    ],
)


def draw(n=40, d=3, seed=0, noise=0.3):
    """Rows, and a smooth function of them with noise."""
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, d))
    return X, np.sin(2.0 * X[:, 0]) + X[:, 1] * X[:, -1] + noise * rng.normal(size=n)


def labels(n=40, d=3, seed=0, n_classes=2):
    """Rows, and classes 0, 1, ... of about the same number of rows."""
    X, f = draw(n, d, seed)
    return X, np.searchsorted(np.quantile(f, np.arange(1, n_classes) / n_classes), f)


def slopes(function, theta, step=1e-4):
    """Derivatives by differences of fourth order."""
    steps = step * np.eye(len(theta))
    near = np.array([function(theta + s) - function(theta - s) for s in steps])
    far = np.array([function(theta + 2 * s) - function(theta - 2 * s) for s in steps])
    return (8 * near - far) / (12 * step)


# ---------------------------------------------------------------------------------------------- the contract


@BOTH
def test_settings_are_those_of_scikit_learn(kind):
    truth = getattr(theirs, kind.__name__)().get_params()
    ours = kind().get_params()
    assert {name: ours[name] for name in truth} == truth
    assert set(ours) - set(truth) == {"verbose"} | ({"likelihood"} if kind is GaussianProcessClassifier else set())


# ---------------------------------------------------------------------------------------------- regression


@KERNELS
@pytest.mark.parametrize("normalize_y", [False, True])
def test_regression_at_fixed_parameters_has_the_numbers_of_scikit_learn(kernel, normalize_y):
    X, y = draw()
    Y, new = np.column_stack([y, 3.0 - 5.0 * y**2]), draw(seed=1)[0]
    for target in (y, Y):
        alpha = np.linspace(0.01, 0.3, len(y))
        settings = {"alpha": alpha, "optimizer": None, "normalize_y": normalize_y}
        ours = GaussianProcessRegressor(kernel, **settings).fit(X, target)
        truth = theirs.GaussianProcessRegressor(kernel, **settings).fit(X, target)
        for options in ({}, {"return_std": True}, {"return_cov": True}):
            for mine, other in zip(ours.predict(new, **options), truth.predict(new, **options), strict=True):
                np.testing.assert_allclose(mine, other, rtol=tolerances.ROOT_EPS, atol=tolerances.AT_REST)
        for name in ("L_", "alpha_", "X_train_", "y_train_", "log_marginal_likelihood_value_"):
            np.testing.assert_allclose(
                getattr(ours, name),
                getattr(truth, name),
                rtol=tolerances.ROOT_EPS,
                atol=tolerances.AT_REST,
                err_msg=name,
            )
        theta = kernel.theta + 0.2
        mine, other = (item.log_marginal_likelihood(theta, eval_gradient=True) for item in (ours, truth))
        assert mine[0] == pytest.approx(other[0], rel=tolerances.INTEGRAL)
        np.testing.assert_allclose(mine[1], other[1], rtol=tolerances.ROOT_EPS, atol=tolerances.ROOT_EPS)
        np.testing.assert_allclose(
            ours.sample_y(new, 3, random_state=7),
            truth.sample_y(new, 3, random_state=7),
            rtol=tolerances.PRINTED,
            atol=tolerances.OPTIMUM,
        )


def test_periodic_regression_has_the_numbers_of_scikit_learn():
    X = np.sort(np.random.default_rng(0).uniform(0, 5, size=(40, 1)), axis=0)
    y = np.sin(4.0 * X[:, 0]) + 0.1 * X[:, 0] ** 2
    kernel = ConstantKernel(4.0, "fixed") * RBF(5.0) * ExpSineSquared(1.2, 1.6) + WhiteKernel(0.01, "fixed")
    ours, truth = (module(kernel).fit(X, y) for module in (GaussianProcessRegressor, theirs.GaussianProcessRegressor))
    assert ours.log_marginal_likelihood_value_ == pytest.approx(
        truth.log_marginal_likelihood_value_, abs=tolerances.PRINTED
    )
    np.testing.assert_allclose(ours.predict(X + 0.01), truth.predict(X + 0.01), atol=tolerances.EXPANSION)


@pytest.mark.long_cases("kernel1", "kernel2")
@QUIET
@KERNELS
def test_learning_finds_what_scikit_learn_finds(kernel):
    X, y = draw(60)
    ours, truth = (item(kernel, alpha=0.01) for item in (GaussianProcessRegressor, theirs.GaussianProcessRegressor))
    ours.fit(X, y), truth.fit(X, y)
    assert ours.log_marginal_likelihood_value_ > truth.log_marginal_likelihood_value_ - 1e-3
    value, gradient = ours.log_marginal_likelihood(ours.kernel_.theta, eval_gradient=True)
    assert value == pytest.approx(ours.log_marginal_likelihood_value_, rel=tolerances.SOLVES)
    inside = np.min(np.abs(ours.kernel_.bounds - ours.kernel_.theta[:, None]), axis=1) > 1e-6
    assert np.all(np.abs(gradient[inside]) < 1e-2)
    assert kernel.theta.tolist() != ours.kernel_.theta.tolist()


@pytest.mark.parametrize("normalize_y", [False, True])
def test_regression_leaves_one_out_as_refits_do(normalize_y):
    X, y = draw(15)
    Y = np.column_stack([y, 2.0 + 10.0 * y**2])
    kernel, settings = 1.5 * RBF(1.3) + WhiteKernel(0.2), {"alpha": 0.05, "optimizer": None}
    model = GaussianProcessRegressor(kernel, normalize_y=normalize_y, **settings).fit(X, Y)
    expected = np.empty(Y.shape)
    for i in range(len(Y)):
        rest = np.arange(len(Y)) != i
        refit = GaussianProcessRegressor(kernel, **settings).fit(X[rest], model.y_train_[rest])
        mean, sd = refit.predict(X[[i]], return_std=True)
        scale = model._y_train_std
        expected[i] = norm.logpdf(model.y_train_[i], mean[0], np.sqrt(sd[0] ** 2 + 0.05)) - np.log(scale)
    np.testing.assert_allclose(model.loo_log_density_, expected, rtol=tolerances.AT_REST, atol=tolerances.AT_REST)
    one = GaussianProcessRegressor(kernel, normalize_y=normalize_y, **settings).fit(X, Y[:, 0])
    np.testing.assert_allclose(one.loo_log_density_, expected[:, 0], rtol=tolerances.AT_REST, atol=tolerances.AT_REST)


def test_regression_is_cavity_gaussian_process():
    X, y = draw()
    covariance = 2.0 * covariances.RBF(lengthscale=[1.0, 2.0, 3.0])
    model = GaussianProcessRegressor(covariance, alpha=0.1, optimizer=None).fit(X, y)
    truth = cavity.GaussianProcess(covariance, cavity.likelihoods.Gaussian(0.1)).fit(X, y, learn=False)
    new = draw(seed=1)[0]
    mean, variance = truth.predict(new)
    np.testing.assert_allclose(
        model.predict(new, return_std=True), [mean, np.sqrt(variance)], rtol=tolerances.AT_REST, atol=tolerances.SOLVES
    )
    assert model.log_evidence_ == pytest.approx(truth.log_evidence, rel=tolerances.SOLVES)
    np.testing.assert_allclose(model.loo_log_density_, truth.loo_log_density, rtol=tolerances.AT_REST)
    assert model.kernel_ == covariance


def test_evidence_is_that_of_the_targets_as_given():
    X, y = draw(12)
    kernel = 1.5 * RBF(1.3) + WhiteKernel(0.2)
    model = GaussianProcessRegressor(kernel, optimizer=None, normalize_y=True, alpha=0.0).fit(X, y)
    prior = multivariate_normal(np.full(12, y.mean()), np.var(y) * kernel(X))
    assert model.log_evidence_ == pytest.approx(prior.logpdf(y), rel=tolerances.INTEGRAL)
    plain = GaussianProcessRegressor(kernel, optimizer=None, alpha=0.0).fit(X, y)
    assert plain.log_evidence_ == plain.log_marginal_likelihood_value_


def test_covariances_with_priors_are_learnt_to_the_mode():
    X, y = draw(60)
    prior = covariances.LogNormal(0.05, 0.1)
    covariance = covariances.RBF(priors={"lengthscale": prior}) + covariances.White(0.1)
    model = GaussianProcessRegressor(covariance).fit(X, y)
    assert isinstance(model.kernel_, covariances.Sum)

    def height(theta):
        return model.log_marginal_likelihood(theta) + covariance.with_log_parameters(theta).log_prior()[0]

    theta = model.kernel_.log_parameters
    assert model.log_marginal_likelihood_value_ == pytest.approx(
        model.log_marginal_likelihood(theta), rel=tolerances.SOLVES
    )
    np.testing.assert_allclose(slopes(height, theta), 0.0, atol=2e-3)
    free = GaussianProcessRegressor(covariances.RBF() + covariances.White(0.1)).fit(X, y)
    assert model.kernel_.parameters["rbf.lengthscale"] < 0.5 * free.kernel_.parameters["rbf.lengthscale"]


def test_at_a_bound_a_covariance_warns_too():
    X, y = draw()
    covariance = covariances.RBF(bounds={"lengthscale": (5.0, 10.0)}, lengthscale=7.0) + covariances.White(0.1)
    with pytest.warns(ConvergenceWarning, match=r"parameter rbf.lengthscale is close to the specified lower bound 5"):
        GaussianProcessRegressor(covariance).fit(X, y)


def test_without_enough_noise_there_is_an_error():
    X = np.linspace(0, 1e-6, 30)[:, None]
    model = GaussianProcessRegressor(RBF(), alpha=0.0, optimizer=None)
    with pytest.raises(cavity.NotPositiveDefiniteError, match="not returning a positive definite matrix.*'alpha'"):
        model.fit(X, X[:, 0])
    model.set_params(alpha=1e-6).fit(X, X[:, 0])
    model._noise = 0.0
    assert model.log_marginal_likelihood(np.zeros(1)) == -np.inf
    assert model.log_marginal_likelihood(np.zeros(1), eval_gradient=True)[1].tolist() == [0.0]


def test_variances_below_rounding_are_announced():
    X = np.linspace(0, 1, 30)[:, None]
    model = GaussianProcessRegressor(1e8 * RBF(10.0), alpha=1e-7, optimizer=None).fit(X, X[:, 0])
    with warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("always")
        _, sd = model.predict(X + 0.001, return_std=True)
    assert np.all(sd >= 0)
    assert any(issubclass(item.category, cavity.NumericalWarning) for item in seen) == bool(np.any(sd == 0))


# ---------------------------------------------------------------------------------------------- classification


@LINKS
@KERNELS
def test_classifier_is_cavity_gaussian_process(kernel, likelihood, link):
    X, y = labels()
    model = GaussianProcessClassifier(kernel, likelihood=likelihood, optimizer=None).fit(X, y)
    covariance = model.posteriors_[0].model.covariance
    np.testing.assert_allclose(covariance.gram(X), kernel(X), rtol=tolerances.LOSSES)
    family = {"logit": cavity.likelihoods.Logit(), "probit": cavity.likelihoods.Probit()}[likelihood]
    truth = cavity.GaussianProcess(covariance, family).fit(X, y, learn=False)
    new = draw(seed=1)[0]
    np.testing.assert_allclose(model.predict_proba(new), truth.predict_proba(new), rtol=tolerances.OPTIMUM)
    np.testing.assert_allclose(model.latent_mean_and_variance(new), truth.predict(new), rtol=tolerances.OPTIMUM)
    np.testing.assert_allclose(model.loo_log_density_, truth.loo_log_density, rtol=tolerances.OPTIMUM)
    assert (
        model.log_evidence_
        == model.log_marginal_likelihood_value_
        == pytest.approx(truth.log_evidence, abs=tolerances.ROOT_EPS)
    )
    assert model.converged_


@pytest.mark.long_cases("logit-expit")
@LINKS
def test_probabilities_and_evidence_of_two_rows_are_close_to_the_integrals(likelihood, link):
    X, y, new = np.array([[0.0], [1.0]]), np.array([1, 0]), np.array([[0.4], [-1.0]])
    model = GaussianProcessClassifier(4.0 * RBF(1.5), likelihood=likelihood, optimizer=None).fit(X, y)
    grid = np.linspace(-14, 14, 281)  # steps by which sums of smooth densities are exact
    f = np.stack(np.meshgrid(grid, grid, indexing="ij"), axis=-1)
    K = 4.0 * RBF(1.5)(np.vstack([X, new]))
    density = multivariate_normal(np.zeros(2), K[:2, :2]).pdf(f) * link(f[..., 0]) * link(-f[..., 1])
    evidence = density.sum() * (grid[1] - grid[0]) ** 2
    assert model.log_evidence_ == pytest.approx(np.log(evidence), abs=0.003)
    weights = density / density.sum()
    nodes, masses = np.polynomial.hermite_e.hermegauss(40)
    for i in range(2):
        gain = np.linalg.solve(K[:2, :2], K[:2, 2 + i])
        sd = np.sqrt(K[2 + i, 2 + i] - K[:2, 2 + i] @ gain)
        inside = link((f @ gain)[..., None] + sd * nodes) @ masses / masses.sum()
        assert model.predict_proba(new)[i, 1] == pytest.approx(np.sum(weights * inside), abs=0.003)


@LINKS
@KERNELS
def test_gradient_is_that_of_differences(kernel, likelihood, link):
    X, y = labels(25)
    model = GaussianProcessClassifier(kernel, likelihood=likelihood, optimizer=None).fit(X, y)
    theta = kernel.theta + 0.3
    value, gradient = model.log_marginal_likelihood(theta, eval_gradient=True)
    assert value == model.log_marginal_likelihood(theta)
    np.testing.assert_allclose(
        gradient, slopes(model.log_marginal_likelihood, theta, 1e-3), rtol=tolerances.SLOPES, atol=tolerances.OPTIMUM
    )
    np.testing.assert_array_equal(model.kernel_.theta, kernel.theta)


@QUIET
@LINKS
def test_classifier_learns_to_a_maximum(likelihood, link):
    X, y = labels(60)
    kernel = 1.0 * RBF([1.0, 1.0, 1.0])
    model = GaussianProcessClassifier(kernel, likelihood=likelihood).fit(X, y)
    theta = model.kernel_.theta
    value, gradient = model.log_marginal_likelihood(theta, eval_gradient=True)
    assert value == pytest.approx(model.log_marginal_likelihood_value_, abs=tolerances.EARLY)
    inside = np.min(np.abs(model.kernel_.bounds - theta[:, None]), axis=1) > 1e-6
    assert np.all(np.abs(gradient[inside]) < 5e-3)
    assert value > model.log_marginal_likelihood(kernel.theta)


@pytest.mark.long
def test_loo_is_close_to_refits():
    X, y = labels(30, n_classes=3)
    kernel = 2.0 * RBF(1.5)
    model = GaussianProcessClassifier(kernel, optimizer=None).fit(X, y)
    refits = []
    for i in range(len(y)):
        rest = np.arange(len(y)) != i
        refit = GaussianProcessClassifier(kernel, optimizer=None).fit(X[rest], y[rest])
        refits.append(refit.predict_log_proba(X[[i]])[0, y[i]])
    # EP's cavity keeps the sites of the others as they were with the row; the difference is of second order
    np.testing.assert_allclose(model.loo_log_density_, refits, atol=0.02)


def test_more_classes_are_one_against_the_rest_normalised():
    X, y = labels(n_classes=3)
    kernel, new = 2.0 * RBF(1.5), draw(seed=1)[0]
    model = GaussianProcessClassifier(kernel, optimizer=None).fit(X, y)
    item = [GaussianProcessClassifier(kernel, optimizer=None).fit(X, y == k) for k in range(3)]
    inside = np.column_stack([one.predict_log_proba(new)[:, 1] for one in item])
    expected = inside - logsumexp(inside, axis=1, keepdims=True)
    np.testing.assert_allclose(model.predict_log_proba(new), expected, rtol=tolerances.SOLVES)
    np.testing.assert_allclose(model.predict_proba(new).sum(axis=1), 1.0, rtol=tolerances.ROUNDING)
    np.testing.assert_array_equal(model.predict(new), np.argmax(expected, axis=1))
    values = [one.log_evidence_ for one in item]
    assert model.log_evidence_ == pytest.approx(np.sum(values), rel=tolerances.SOLVES)
    assert model.log_marginal_likelihood_value_ == pytest.approx(np.mean(values), rel=tolerances.SOLVES)
    theta = np.concatenate([kernel.theta, kernel.theta + 0.3, kernel.theta - 0.3])
    parts = [one.log_marginal_likelihood(part) for one, part in zip(item, theta.reshape(3, -1), strict=True)]
    assert model.log_marginal_likelihood(theta) == pytest.approx(np.mean(parts), rel=tolerances.SOLVES)
    with pytest.raises(ValueError, match="Shape of theta must be either 2 or 6. Obtained theta with shape 5"):
        model.log_marginal_likelihood(theta[:5])
    with pytest.raises(NotImplementedError, match="not implemented for multi-class"):
        model.log_marginal_likelihood(theta, eval_gradient=True)


def test_pairs_of_classes():
    X, y = labels(60, n_classes=3)
    model = GaussianProcessClassifier(2.0 * RBF(1.5), optimizer=None, multi_class="one_vs_one").fit(X, y)
    assert len(model.posteriors_) == 3
    assert [posterior.n_samples for posterior in model.posteriors_] == [40, 40, 40]
    assert model.score(X, y) > 0.7
    assert not any(hasattr(model, name) for name in ("predict_proba", "predict_log_proba", "loo_log_density_"))
    two = GaussianProcessClassifier(multi_class="one_vs_one").fit(X, y > 0)
    assert two.predict_proba(X).shape == (60, 2)
    assert two.loo_log_density_.shape == (60,)


@QUIET
@pytest.mark.long
def test_processes_change_no_bit():
    X, y = labels(n_classes=3)
    settings = {"kernel": 1.0 * RBF(1.0, (0.1, 10.0))}
    one, two = (GaussianProcessClassifier(n_jobs=n, **settings).fit(X, y) for n in (None, 2))
    np.testing.assert_array_equal(one.kernel_.theta, two.kernel_.theta)
    np.testing.assert_array_equal(one.predict(X), two.predict(X))
    assert one.log_evidence_ == two.log_evidence_


def test_covariances_of_several_classes():
    X, y = labels(n_classes=3)
    covariance = covariances.RBF(lengthscale=2.0, fixed=("lengthscale",))
    model = GaussianProcessClassifier(covariance).fit(X, y)
    assert len(model.kernel_) == 3
    assert all(item.parameters["rbf.lengthscale"] == 2.0 for item in model.kernel_)
    theta = model.kernel_[0].log_parameters
    assert model.log_marginal_likelihood(theta) < model.log_marginal_likelihood_value_ + 1e-9


def test_rows_whose_function_value_is_known():
    """Where the kernel is zero the classes are even, whatever the rest of the rows say."""
    X = np.array([[0.0], [1.0], [-1.0], [2.0], [0.0]])
    y = np.array([1, 1, 0, 1, 0])
    kernel = 1.0 * DotProduct(0.0, "fixed")
    model = GaussianProcessClassifier(kernel, optimizer=None).fit(X, y)
    rest = GaussianProcessClassifier(kernel, optimizer=None).fit(X[1:4], y[1:4])
    expected = rest.log_evidence_ - 2.0 * np.log(2.0)
    assert model.log_evidence_ == pytest.approx(expected, rel=tolerances.AT_REST)
    assert model.log_marginal_likelihood(kernel.theta) == pytest.approx(expected, rel=tolerances.AT_REST)
    np.testing.assert_allclose(model.predict_proba([[0.0]]), [[0.5, 0.5]])


@pytest.mark.long
@pytest.mark.parametrize("load", [load_breast_cancer, load_iris])
def test_better_probabilities_than_by_laplace(load):
    """Out of sample, with the same kernel: log loss and error not worse than those of scikit-learn's classifier."""
    X, y = load(return_X_y=True)
    keep = slice(None, None, 3)  # the whole is in the docs
    kernel = 10.0 * RBF(np.sqrt(X.shape[1]))
    predicted = [
        cross_val_predict(
            make_pipeline(StandardScaler(), classifier(kernel, optimizer=None)),
            X[keep],
            y[keep],
            method="predict_proba",
        )
        for classifier in (GaussianProcessClassifier, theirs.GaussianProcessClassifier)
    ]
    losses = [log_loss(y[keep], p) for p in predicted]
    errors = [np.mean(np.argmax(p, axis=1) != y[keep]) for p in predicted]
    assert losses[0] < losses[1]
    assert errors[0] <= errors[1] + 1.1 / len(y[keep])  # one row may fall on the other side


# ---------------------------------------------------------------------------------------------- learning


@BOTH
def test_restarts_and_optimizers_of_your_own(kind):
    X, y = labels()
    kernel = ConstantKernel(1.0, "fixed") * RBF(0.05, (0.04, 20.0)) + WhiteKernel(0.1, "fixed")
    seen = []

    def optimizer(loss, theta, bounds):
        value, gradient = loss(theta)
        assert loss(theta, eval_gradient=False) == pytest.approx(value, rel=tolerances.AT_REST)
        assert gradient.shape == theta.shape == (1,)
        np.testing.assert_allclose(bounds, np.log([[0.04, 20.0]]))
        seen.append(theta)
        return theta, value

    model = kind(kernel, optimizer=optimizer, n_restarts_optimizer=3, random_state=0).fit(X, y)
    starts = np.exp(np.ravel(seen))
    assert starts[0] == pytest.approx(0.05)
    np.testing.assert_allclose(
        starts[1:], np.exp(np.random.RandomState(0).uniform(*np.log([0.04, 20.0]), size=3)), rtol=tolerances.SOLVES
    )
    values = [model.log_marginal_likelihood(np.log([start])) for start in starts]
    assert model.kernel_.theta[0] == np.log(starts[np.argmax(values)])
    assert model.log_marginal_likelihood_value_ == pytest.approx(max(values), rel=tolerances.AT_REST)
    second = kind(kernel, optimizer=optimizer, n_restarts_optimizer=3, random_state=0).fit(X, y)
    np.testing.assert_array_equal(second.kernel_.theta, model.kernel_.theta)


@BOTH
def test_theta_is_set_on_request(kind):
    X, y = labels()
    model = kind(2.0 * RBF(1.5) + WhiteKernel(), optimizer=None).fit(X, y)
    model.log_marginal_likelihood(np.zeros(3), clone_kernel=False)
    np.testing.assert_array_equal(model.kernel_.theta, np.zeros(3))
    with pytest.raises(ValueError, match="Gradient can only be evaluated for theta!=None"):
        model.log_marginal_likelihood(eval_gradient=True)


def test_warm_starts_change_rounding_only():
    X, y = labels()
    cold, warm = (GaussianProcessClassifier(1.0 * RBF(), warm_start=w).fit(X, y) for w in (False, True))
    for theta in (np.zeros(2), np.ones(2), np.array([3.0, -1.0])):
        ours, truth = (item.log_marginal_likelihood(theta, eval_gradient=True) for item in (warm, cold))
        assert ours[0] == pytest.approx(truth[0], abs=tolerances.AT_REST)
        np.testing.assert_allclose(ours[1], truth[1], atol=tolerances.SLOPES)


def test_too_few_sweeps_are_announced():
    X, y = labels()
    model = GaussianProcessClassifier(100.0 * RBF(1.0), optimizer=None, max_iter_predict=1)
    with pytest.warns(ConvergenceWarning, match="EP did not converge"):
        model.fit(X, y)
    assert not model.converged_
    with pytest.warns(cavity.ConvergenceWarning, match="EP did not converge"):
        model.fit(X, y)


# ---------------------------------------------------------------------------------------------- around


@BOTH
def test_bad_settings_and_kernels(kind):
    X, y = labels(10)
    for settings, error, message in [
        ({"kernel": "rbf"}, TypeError, "kernel must be one of .* got 'rbf'"),
        ({"kernel": RBF() + PairwiseKernel()}, ValueError, "PairwiseKernel.* has no counterpart"),
        ({"kernel": Matern(nu=3.2)}, ValueError, "use nu = 0.5, 1.5, 2.5, ..., 10.5 or inf"),
        ({"kernel": covariances.RBF(lengthscale=[1.0, 2.0])}, ValueError, "lengthscale must be a number or one for"),
        ({"kernel": ExpSineSquared()}, ValueError, "of 3 columns has no counterpart"),
        ({"optimizer": "adam"}, ValueError, "optimizer must be one of 'fmin_l_bfgs_b', got 'adam'"),
        ({"n_restarts_optimizer": -1}, ValueError, "n_restarts_optimizer must be at least 0"),
        ({"copy_X_train": "yes"}, TypeError, "copy_X_train must be True or False"),
    ]:
        with pytest.raises(error, match=message):
            kind(**settings).fit(X, y)


@pytest.mark.parametrize(
    ("kind", "settings", "message"),
    [
        (GaussianProcessClassifier, {"likelihood": "cauchit"}, "likelihood must be one of 'logit', 'probit'"),
        (GaussianProcessClassifier, {"multi_class": "all"}, "multi_class must be one of 'one_vs_rest', 'one_vs_one'"),
        (GaussianProcessClassifier, {"max_iter_predict": 0}, "max_iter_predict must be at least 1"),
        (GaussianProcessRegressor, {"alpha": -1.0}, "alpha must not be negative, got -1.0"),
        (GaussianProcessRegressor, {"alpha": np.ones(3)}, "alpha must be a scalar or an array .*3 != 10"),
        (GaussianProcessRegressor, {"alpha": np.nan}, "alpha must be finite"),
        (GaussianProcessRegressor, {"n_targets": 2}, "number of targets seen in `y`.*1 != 2"),
    ],
)
def test_bad_settings_of_one(kind, settings, message):
    with pytest.raises(ValueError, match=message):
        kind(**settings).fit(*labels(10))


def test_kernels_of_strings_have_no_counterpart():
    from sklearn.gaussian_process.tests._mini_sequence_kernel import MiniSeqKernel

    for kind in (GaussianProcessClassifier, GaussianProcessRegressor):
        with pytest.raises(ValueError, match="MiniSeqKernel.* has no counterpart"):
            kind(MiniSeqKernel()).fit(["A", "AB", "B"], [0, 1, 0])


@QUIET
@BOTH
@pytest.mark.parametrize("kernel", [1.0 * RBF() + WhiteKernel(0.1), covariances.RBF() + covariances.White(0.1)])
def test_clone_and_pickle(kind, kernel):
    X, y = labels(n_classes=3)
    model = kind(kernel).fit(X, y)
    fresh = clone(model)
    assert fresh.kernel == kernel
    assert not hasattr(fresh, "X_train_")
    back = pickle.loads(pickle.dumps(model))
    np.testing.assert_array_equal(back.predict(X), model.predict(X))
    np.testing.assert_array_equal(back.loo_log_density_, model.loo_log_density_)


@BOTH
def test_the_callers_rows_stay_as_they_are(kind):
    X, y = labels()
    for copy in (True, False):
        model = kind(copy_X_train=copy).fit(X, y)
        assert X.flags.writeable
        assert y.flags.writeable
        stored = model.X_train_ if kind is GaussianProcessRegressor else model.base_estimator_.X_train_
        assert np.shares_memory(stored, X) == (not copy)


def test_targets_out_of_range():
    with pytest.raises(OverflowError, match="log evidence leaves the range of float64; rescale y"):
        GaussianProcessRegressor(RBF()).fit([[0.0], [1.0]], [0.0, 1e300])
    model = GaussianProcessRegressor(RBF(1.0, "fixed"), normalize_y=True).fit([[0.0], [1.0]], [0.0, 1e150])
    np.testing.assert_allclose(model.predict([[1.0]]), [1e150])


@BOTH
def test_pandas_and_tools_of_scikit_learn(kind):
    X, y = labels(60)
    frame = pd.DataFrame(X, columns=list("abc"))
    pipeline = make_pipeline(StandardScaler(), kind()).set_output(transform="pandas")
    name = f"{kind.__name__.lower()}__kernel"
    grid = {name: [RBF(1e-3, "fixed"), RBF(2.0, "fixed") + WhiteKernel(0.1, "fixed"), covariances.RBF(2e-3).fix()]}
    scoring = "neg_log_loss" if kind is GaussianProcessClassifier else "r2"
    search = GridSearchCV(pipeline, grid, cv=3, scoring=scoring).fit(frame, pd.Series(y))
    assert search.best_params_[name] == grid[name][1]
    assert search.best_estimator_[-1].feature_names_in_.tolist() == list("abc")
    with pytest.raises(ValueError, match="feature names"):
        search.predict(frame[["b", "a", "c"]])


def test_labels_of_any_kind():
    X, y = labels(n_classes=3)
    for names in (["no", "yes"], [False, True], [-7, 3], ["b", "a", "c"]):
        k = np.minimum(y, len(names) - 1)
        named = GaussianProcessClassifier().fit(X, np.array(names)[k])
        plain = GaussianProcessClassifier().fit(X, np.argsort(np.argsort(names))[k])
        np.testing.assert_array_equal(named.classes_, np.sort(names))
        np.testing.assert_array_equal(named.predict(X), np.sort(names)[plain.predict(X)])
        np.testing.assert_array_equal(named.predict_proba(X), plain.predict_proba(X))


@pytest.mark.parametrize("multi_class", ["one_vs_rest", "one_vs_one"])
@pytest.mark.parametrize("n_classes", [2, 3])
def test_weights_are_copies(multi_class, n_classes):
    rng = np.random.default_rng(0)
    X = rng.normal(size=(50, 2))
    y = np.digitize(X[:, 0] + 0.3 * rng.normal(size=50), [-0.5, 0.5][: n_classes - 1])
    weight = rng.integers(0, 3, 50)
    second = np.repeat(np.arange(50), weight)
    values = GaussianProcessClassifier(multi_class=multi_class).fit(X, y, sample_weight=weight)
    copies = GaussianProcessClassifier(multi_class=multi_class).fit(X[second], y[second])
    for one, other in zip(values.posteriors_, copies.posteriors_, strict=True):
        assert one.log_evidence == pytest.approx(other.log_evidence, abs=tolerances.AT_REST)
        np.testing.assert_allclose(one.predict(X), other.predict(X), atol=tolerances.ROOT_EPS)
