"""The scikit-learn mixtures: their contract, scikit-learn's numbers, the model underneath, weights, starts, words."""

import pickle
import tracemalloc
import warnings

import numpy as np
import pandas as pd
import pytest
import sklearn.exceptions
import sklearn.mixture as theirs
from scipy.integrate import quad
from sklearn.base import clone
from sklearn.datasets import load_iris
from sklearn.metrics import adjusted_rand_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from support.tolerances import AT_REST, EARLY, EXPANSION, INTEGRAL, OPTIMUM, PRINTED, ROOT_EPS, ROUNDING, SLOPES, SOLVES
from threadpoolctl import threadpool_limits

import cavity
from cavity.sklearn import BayesianGaussianMixture, GaussianMixture

TYPES = pytest.mark.parametrize("kind", ["full", "tied", "diag", "spherical"])
PRIORS = pytest.mark.parametrize("prior", ["dirichlet_process", "dirichlet_distribution"])
STARTS = pytest.mark.parametrize("init", ["kmeans", "k-means++", "random", "random_from_data"])
ALL = pytest.mark.parametrize("estimator", [BayesianGaussianMixture(), GaussianMixture()], ids=["bayes", "likelihood"])
GAUSSIANS = ("weights_", "means_", "covariances_", "precisions_", "precisions_cholesky_")
FACTORS = ("mean_precision_", "degrees_of_freedom_", "weight_concentration_")


@pytest.fixture(autouse=True, scope="module")
def _one_thread():
    with threadpool_limits(1):  # of scikit-learn's k-means: its threads wait for each other on so few rows
        yield


UNFINISHED = pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")


def draw(n=200, d=3, k=3, seed=0, apart=3.0):
    """Rows of k clusters; multiples of 1/8, so that squares and their sums are exact in scikit-learn, too."""
    rng = np.random.default_rng(seed)
    parts = [rng.normal(size=(n, d)) @ rng.normal(size=(d, d)) + apart * rng.normal(size=d) for _ in range(k)]
    return np.round(8 * np.concatenate(parts)) / 8 + 5


def same(a, b, names, rtol=1e-8):
    """Two fits have the same attributes, relative to the largest entry of each."""
    for name in names:
        u, v = np.asarray(getattr(a, name), dtype=float), np.asarray(getattr(b, name), dtype=float)
        np.testing.assert_allclose(u, v, rtol=rtol, atol=rtol * np.max(np.abs(v)), err_msg=name)


def same_bounds(ours, truth, rtol=1e-8):
    """Two fits had the same bounds; older versions of scikit-learn keep the last one only, in arrays if it is tied."""
    np.testing.assert_allclose(ours.lower_bound_, np.ravel(truth.lower_bound_)[0], rtol=rtol)
    if hasattr(truth, "lower_bounds_"):
        np.testing.assert_allclose(ours.lower_bounds_, np.ravel(truth.lower_bounds_), rtol=rtol)


# ---------------------------------------------------------------------------------------------- the contract


@pytest.mark.parametrize("name", ["BayesianGaussianMixture", "GaussianMixture"])
def test_settings_are_those_of_scikit_learn(name):
    ours, truth = getattr(cavity.sklearn, name)().get_params(), getattr(theirs, name)().get_params()
    assert {key: ours[key] for key in truth} == truth
    assert {key: value for key, value in ours.items() if key not in truth} == {"n_threads": None}


@ALL
def test_attributes_are_those_of_scikit_learn(estimator):
    X = pd.DataFrame(draw(50), columns=["a", "b", "c"])
    ours = clone(estimator).set_params(n_components=2, random_state=0).fit(X)
    settings = {key: value for key, value in ours.get_params().items() if key != "n_threads"}
    truth = getattr(theirs, type(ours).__name__)(**settings).fit(X)
    public = {name for name in vars(truth) if name.endswith("_")}
    more = {name for name in vars(ours) if name.endswith("_")} - public - {"lower_bounds_"}  # which is new there
    assert public <= set(vars(ours))
    assert more == ({"posterior_"} if isinstance(ours, BayesianGaussianMixture) else set())
    for name in public - {"weight_concentration_", "lower_bounds_", "n_iter_", "feature_names_in_"}:
        assert np.shape(getattr(ours, name)) == np.shape(getattr(truth, name)), name
    assert ours.feature_names_in_.tolist() == ["a", "b", "c"]
    assert len(ours.lower_bounds_) == ours.n_iter_
    assert isinstance(ours.lower_bounds_, list)


@ALL
def test_goes_where_estimators_go(estimator):
    X, y = load_iris(return_X_y=True, as_frame=True)
    ours = clone(estimator).set_params(n_components=3, random_state=0)
    pipeline = make_pipeline(StandardScaler(), ours)
    labels = pipeline.fit_predict(X)
    np.testing.assert_array_equal(labels, pipeline.predict(X))
    restored = pickle.loads(pickle.dumps(pipeline))
    np.testing.assert_array_equal(restored.predict_proba(X), pipeline.predict_proba(X))
    assert restored.score(X) == pipeline.score(X)
    assert pipeline.predict_proba(X).sum(axis=1) == pytest.approx(np.ones(len(X)), rel=SOLVES)
    assert clone(ours).get_params() == ours.get_params()
    if not isinstance(estimator, BayesianGaussianMixture):
        assert adjusted_rand_score(y, labels) > 0.85


@ALL
@TYPES
def test_float32_in_float32_out(estimator, kind):
    X = draw(60).astype(np.float32)
    ours = clone(estimator).set_params(n_components=2, covariance_type=kind, random_state=0, tol=1.0)
    wide = clone(ours).fit(X.astype(np.float64))
    ours.fit(X)
    assert {getattr(ours, name).dtype for name in GAUSSIANS} == {np.dtype(np.float32)}
    assert ours.predict_proba(X).dtype == ours.score_samples(X).dtype == np.float32
    same(ours, wide, GAUSSIANS, rtol=SLOPES)


# ---------------------------------------------------------------------------------------------- scikit-learn's numbers


@pytest.mark.sample(3)
@TYPES
@STARTS
@UNFINISHED
def test_maximum_likelihood_has_scikit_learns_numbers(kind, init):
    X = draw(70)
    settings = dict(n_components=3, covariance_type=kind, init_params=init, reg_covar=0.01, random_state=3, tol=1e-6)
    for max_iter in (0, 1, 20):
        a = theirs.GaussianMixture(**settings, max_iter=max_iter).fit(X)
        b = GaussianMixture(**settings, max_iter=max_iter).fit(X)
        same(b, a, GAUSSIANS)
        assert (b.n_iter_, b.converged_) == (a.n_iter_, a.converged_)
        if max_iter:
            same_bounds(b, a)
        np.testing.assert_allclose(b.score_samples(X), a.score_samples(X), rtol=EARLY)
        np.testing.assert_allclose(b.predict_proba(X), a.predict_proba(X), atol=ROOT_EPS)
    assert b.aic(X) == pytest.approx(a.aic(X), rel=AT_REST)
    assert b.bic(X) == pytest.approx(a.bic(X), rel=AT_REST)
    np.testing.assert_allclose(b.sample(20)[0], a.sample(20)[0], rtol=OPTIMUM, atol=OPTIMUM)


@TYPES
@UNFINISHED
def test_maximum_likelihood_from_given_parameters(kind):
    X = draw()
    shapes = {"full": np.eye(3) + np.ones((2, 1, 1)), "tied": np.eye(3) + 0.5, "diag": np.full((2, 3), 0.7)}
    arguments = dict(
        weights_init=[0.3, 0.7],
        means_init=[[1.0, 2.0, 3.0], [6.0, 5.0, 4.0]],
        precisions_init=shapes.get(kind, np.array([0.5, 2.0])),
    )
    for left in (
        arguments,
        {k: v for k, v in arguments.items() if k != "weights_init"},
        {"means_init": arguments["means_init"]},
    ):
        settings = dict(n_components=2, covariance_type=kind, random_state=0, max_iter=3, **left)
        a, b = theirs.GaussianMixture(**settings).fit(X), GaussianMixture(**settings).fit(X)
        same(b, a, GAUSSIANS)
        same_bounds(b, a)
    start = GaussianMixture(2, covariance_type=kind, max_iter=0, **arguments).fit(X)
    np.testing.assert_allclose(start.precisions_, arguments["precisions_init"], rtol=SOLVES, atol=ROUNDING)
    product = (
        start.covariances_ @ start.precisions_ if kind in ("full", "tied") else start.covariances_ * start.precisions_
    )
    expected = np.eye(3) if kind in ("full", "tied") else 1.0
    np.testing.assert_allclose(product, np.broadcast_to(expected, product.shape), atol=SOLVES)


@UNFINISHED
def test_warm_start_has_scikit_learns_numbers():
    X = draw()
    settings = dict(n_components=3, warm_start=True, max_iter=2, random_state=0, tol=1e-4)
    a, b = theirs.GaussianMixture(**settings), GaussianMixture(**settings)
    for part in (X, X, X[:400], X):
        same(b.fit(part), a.fit(part), GAUSSIANS)
        same_bounds(b, a)


@TYPES
@UNFINISHED
def test_maximum_likelihood_far_from_zero(kind):
    X = draw()
    settings = dict(covariance_type=kind, means_init=X[::250], random_state=0, max_iter=10)
    near = GaussianMixture(3, **settings).fit(X)
    settings["means_init"] = X[::250] + 2.0**26
    far = GaussianMixture(3, **settings).fit(X + 2.0**26)
    same(far, near, ("weights_", "covariances_", "precisions_"), rtol=ROOT_EPS)
    np.testing.assert_allclose(far.means_ - 2.0**26, near.means_, atol=EARLY)
    np.testing.assert_allclose(far.score_samples(X + 2.0**26), near.score_samples(X), atol=SLOPES)


# ---------------------------------------------------------------------------------------------- the model underneath


@TYPES
@PRIORS
def test_is_cavity_gaussian_mixture_underneath(kind, prior):
    X = draw(apart=8.0)
    settings = dict(n_components=3, covariance_type=kind, weight_concentration_prior_type=prior, tol=1e-9)
    ours = BayesianGaussianMixture(**settings, random_state=0, weight_concentration_prior=1.5).fit(X)
    weights = {"dirichlet_process": "stick_breaking", "dirichlet_distribution": "dirichlet"}[prior]
    model = cavity.GaussianMixture(3, covariance=kind, weights=weights, weight_concentration_prior=1.5).with_defaults(X)
    ridge = np.eye(3) if kind in ("full", "tied") else 1.0
    raised = np.asarray(model.covariance_prior) + 1e-6 * ridge
    np.testing.assert_allclose(ours.posterior_.model.covariance_prior, raised, rtol=SOLVES)
    np.testing.assert_allclose(ours.covariance_prior_, model.covariance_prior, rtol=SOLVES)
    posterior = cavity.GaussianMixture(
        3, covariance=kind, weights=weights, weight_concentration_prior=1.5, covariance_prior=raised
    ).fit(X, initial_means=ours.means_)
    assert ours.converged_
    assert ours.lower_bound_ == pytest.approx(posterior.elbo, rel=AT_REST)
    np.testing.assert_allclose(ours.means_, posterior.mean, rtol=PRINTED)
    np.testing.assert_allclose(ours.covariances_, posterior.covariance, rtol=EXPANSION, atol=EXPANSION)
    np.testing.assert_allclose(ours.weights_, posterior.weights, rtol=SLOPES)
    freedom = np.asarray(posterior.degrees_of_freedom)
    np.testing.assert_allclose(ours.degrees_of_freedom_, freedom[:, 0] if freedom.ndim == 2 else freedom, rtol=PRINTED)
    np.testing.assert_array_equal(ours.predict(X), ours.posterior_.predict(X))
    np.testing.assert_array_equal(ours.predict_proba(X), ours.posterior_.responsibilities(X))
    np.testing.assert_array_equal(ours.score_samples(X), ours.posterior_.log_density(X))


@TYPES
def test_factors_of_the_precisions(kind):
    ours = BayesianGaussianMixture(n_components=2, covariance_type=kind, random_state=0).fit(draw(50))
    root = ours.precisions_cholesky_
    if kind in ("full", "tied"):
        np.testing.assert_array_equal(root, np.triu(root))
        np.testing.assert_allclose(root @ np.swapaxes(root, -1, -2), np.linalg.inv(ours.covariances_), rtol=AT_REST)
    else:
        np.testing.assert_allclose(root**2, 1.0 / ours.covariances_, rtol=SOLVES)


@pytest.mark.parametrize("k", [1, 4])
def test_sticks_make_the_weights(k):
    ours = BayesianGaussianMixture(n_components=k, random_state=0).fit(draw(50))
    first, second = ours.weight_concentration_
    share = first / (first + second)
    assert share[-1] == 1.0
    np.testing.assert_allclose(share * np.append(1.0, np.cumprod(1.0 - share)[:-1]), ours.weights_, rtol=SOLVES)
    assert np.sum(first - 1.0) == pytest.approx(150, rel=SOLVES)


@pytest.mark.long_cases("full")
@pytest.mark.parametrize("kind", ["full", "spherical"])
def test_scores_are_log_densities(kind):
    x = draw(20, d=1)
    ours = BayesianGaussianMixture(n_components=2, covariance_type=kind, random_state=0).fit(x)
    total = quad(lambda t: np.exp(ours.score_samples([[t]])[0]), -np.inf, np.inf, points=None, limit=400)[0]
    assert total == pytest.approx(1.0, abs=OPTIMUM)
    assert ours.score(x) == pytest.approx(np.mean(ours.score_samples(x)), rel=ROUNDING)


@ALL
@TYPES
def test_samples_have_the_moments_of_the_mixture(estimator, kind):
    X = draw(400, d=2, k=2, apart=6.0)
    ours = clone(estimator).set_params(n_components=2, covariance_type=kind, random_state=1, tol=1e-6).fit(X)
    rows, labels = ours.sample(20000)
    assert rows.shape == (20000, 2)
    assert np.all(np.diff(labels) >= 0)
    for k, weight in enumerate(ours.weights_):
        some = rows[labels == k]
        covariance = ours.covariances_ if kind == "tied" else ours.covariances_[k]
        variances = np.diag(covariance) if np.ndim(covariance) == 2 else np.broadcast_to(covariance, 2)
        assert len(some) / 20000 == pytest.approx(weight, abs=0.02)
        np.testing.assert_allclose(some.mean(axis=0), ours.means_[k], atol=0.05 * np.sqrt(variances.max()))
        np.testing.assert_allclose(some.var(axis=0), variances, rtol=0.08)  # those of Student-t are 1 % larger
    second, _ = ours.sample(20000)
    np.testing.assert_array_equal(second, rows)


def test_a_bound_that_compares_across_components():
    X = draw(150, d=2, k=2, seed=4, apart=8.0)
    settings = dict(weight_concentration_prior_type="dirichlet_distribution", random_state=0, tol=1e-6)
    bounds = [BayesianGaussianMixture(n_components=k, **settings).fit(X).lower_bound_ for k in (1, 2)]
    assert bounds[1] > bounds[0] + 50
    one = cavity.GaussianMixture(1, covariance_prior=np.cov(X.T) + 1e-6 * np.eye(2)).fit(X)  # no approximation
    assert bounds[0] == pytest.approx(one.elbo, rel=INTEGRAL)


def test_constant_columns_are_held_by_reg_covar():
    X = np.column_stack([draw(40, d=1), np.ones(120)])
    ours = BayesianGaussianMixture(n_components=2, random_state=0).fit(X)
    assert np.all(np.isfinite(ours.score_samples(X)))
    with pytest.raises(cavity.NotPositiveDefiniteError, match="covariance_prior must be positive definite"):
        BayesianGaussianMixture(reg_covar=0).fit(X)


# ---------------------------------------------------------------------------------------------- streams


def test_partial_fit_is_update():
    X = draw(apart=8.0)[np.random.default_rng(0).permutation(600)]
    settings = dict(n_components=3, random_state=0, tol=1e-8)
    ours = BayesianGaussianMixture(**settings).partial_fit(X[:300])
    once = BayesianGaussianMixture(**settings).fit(X[:300])
    same(ours, once, (*GAUSSIANS, *FACTORS), rtol=ROUNDING)
    expected = once.posterior_.update(X[300:], tol=1e-8 / 300, max_iter=100)
    assert ours.partial_fit(X[300:]) is ours
    np.testing.assert_array_equal(ours.means_, expected.mean)
    np.testing.assert_array_equal(ours.covariances_, expected.covariance)
    assert ours.lower_bound_ == expected.elbo
    assert ours.posterior_.n_samples == 600
    ours.partial_fit(X[:1], sample_weight=[2.5])
    assert ours.posterior_.n_samples == 602.5


def test_partial_fit_is_there_with_priors_only():
    assert not hasattr(GaussianMixture(), "partial_fit")
    assert hasattr(BayesianGaussianMixture(), "partial_fit")


# ---------------------------------------------------------------------------------------------- weights


@TYPES
@UNFINISHED
def test_weights_are_repetitions_likelihood(kind):
    X = draw(60)
    times = np.random.default_rng(0).integers(0, 4, size=len(X))
    settings = dict(means_init=X[::60], weights_init=[0.2, 0.5, 0.3], covariance_type=kind, max_iter=6, random_state=0)
    identity = {"full": np.tile(np.eye(3), (3, 1, 1)), "tied": np.eye(3), "diag": np.ones((3, 3))}
    settings["precisions_init"] = identity.get(kind, np.ones(3))
    weighted = GaussianMixture(3, **settings).fit(X, sample_weight=times)
    repeated = GaussianMixture(3, **settings).fit(np.repeat(X, times, axis=0))
    same(weighted, repeated, GAUSSIANS, rtol=INTEGRAL)
    np.testing.assert_allclose(weighted.lower_bounds_, repeated.lower_bounds_, rtol=SOLVES)


@TYPES
def test_weights_are_repetitions_bayes(kind):
    X = draw(60, apart=12.0)
    times = np.random.default_rng(0).integers(0, 4, size=len(X))
    settings = dict(n_components=3, covariance_type=kind, tol=1e-9, max_iter=500)
    settings |= {"weight_concentration_prior_type": "dirichlet_distribution", "random_state": 0}
    weighted = BayesianGaussianMixture(**settings).fit(X, sample_weight=times)
    repeated = BayesianGaussianMixture(**settings).fit(np.repeat(X, times, axis=0))
    assert weighted.converged_
    np.testing.assert_allclose(weighted.covariance_prior_, repeated.covariance_prior_, rtol=INTEGRAL)
    np.testing.assert_allclose(weighted.mean_prior_, repeated.mean_prior_, rtol=SOLVES)
    assert weighted.lower_bound_ == pytest.approx(repeated.lower_bound_, rel=AT_REST)
    order, other = np.argsort(weighted.means_[:, 0]), np.argsort(repeated.means_[:, 0])  # k-means may order them anew
    np.testing.assert_allclose(weighted.means_[order], repeated.means_[other], rtol=SLOPES)


def test_weights_of_starts():
    X = draw(60)
    weight = np.zeros(len(X))
    weight[:20] = 0.5
    for init in ("k-means++", "random_from_data"):
        start = GaussianMixture(3, init_params=init, max_iter=0, random_state=0).fit(X, sample_weight=weight)
        assert all((X[:20] == mean).all(axis=1).any() for mean in start.means_)


# ---------------------------------------------------------------------------------------------- the course of a fit


@ALL
def test_memory_layout_does_not_matter(estimator, tmp_path):
    X = draw(60)
    ours = clone(estimator).set_params(n_components=2, random_state=0)
    expected = clone(ours).fit(X)
    mapped = np.lib.format.open_memmap(tmp_path / "x.npy", mode="w+", dtype=np.float64, shape=X.shape)
    mapped[:] = X
    for same_rows in (np.asfortranarray(X), X.tolist(), mapped, np.repeat(X, 2, axis=1)[:, ::2]):
        same(clone(ours).fit(same_rows), expected, GAUSSIANS, rtol=SOLVES)
    np.testing.assert_allclose(expected.score_samples(np.asfortranarray(X)), expected.score_samples(X), rtol=ROUNDING)


@pytest.mark.sample(3)
@ALL
@TYPES
def test_threads_do_not_change_a_bit(estimator, kind):
    X = draw(20000, d=2)
    ours = clone(estimator).set_params(n_components=3, covariance_type=kind, random_state=0, tol=1.0)
    one, two = clone(ours).fit(X), ours.set_params(n_threads=2).fit(X)
    same(two, one, GAUSSIANS, rtol=0)
    assert two.lower_bounds_ == one.lower_bounds_


@pytest.mark.long_cases("likelihood")
@ALL
def test_no_array_of_rows_times_components(estimator):
    n, k = 100_000, 64
    X = np.random.default_rng(0).normal(size=(n, 2))
    settings = dict(n_components=k, init_params="random_from_data", random_state=0, max_iter=2)
    ours = clone(estimator).set_params(**settings)
    tracemalloc.start()
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", sklearn.exceptions.ConvergenceWarning)
            ours.fit(X)
        ours.predict(X)
        ours.score_samples(X)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < 0.6 * 8 * n * k


@pytest.mark.long_cases("bayes")
@ALL
@UNFINISHED
def test_warm_start_goes_on(estimator):
    X = draw()
    settings = dict(n_components=4, random_state=0, tol=1e-6, max_iter=1000)
    through = clone(estimator).set_params(**settings).fit(X)
    steps = clone(estimator).set_params(**settings).set_params(max_iter=3, warm_start=True)
    bounds = [steps.fit(X).lower_bound_]
    for _ in range(500):
        bounds.append(steps.fit(X).lower_bound_)
        if steps.converged_:
            break
    assert steps.converged_
    assert np.all(np.diff(bounds) >= -1e-9)
    assert bounds[-1] == pytest.approx(through.lower_bound_, abs=2e-3 * abs(through.lower_bound_))
    wider = np.column_stack([X, X[:, 0]])
    with pytest.raises(ValueError, match=r"warm_start goes on from the last fit, which had means of shape \(4, 3\)"):
        steps.fit(wider)


def test_warm_start_of_other_weights():
    X = draw(30)
    ours = BayesianGaussianMixture(n_components=2, warm_start=True, random_state=0).fit(X)
    with pytest.raises(ValueError, match="another weight_concentration_prior_type"):
        ours.set_params(weight_concentration_prior_type="dirichlet_distribution").fit(X)


@ALL
def test_stays_where_it_starts_without_iterations(estimator):
    X = draw(50)
    ours = clone(estimator).set_params(n_components=2, max_iter=0, random_state=0).fit(X)
    assert (ours.n_iter_, ours.converged_, ours.lower_bound_, ours.lower_bounds_) == (0, False, -np.inf, [])
    assert ours.predict(X).max() == 1


@ALL
def test_says_that_it_did_not_converge(estimator):
    ours = clone(estimator).set_params(n_components=3, max_iter=1, random_state=0)
    with pytest.warns(sklearn.exceptions.ConvergenceWarning, match="did not converge") as caught:
        ours.fit(draw(50))
    assert issubclass(caught[0].category, cavity.ConvergenceWarning)
    assert caught[0].filename == __file__
    assert len(caught) == 1
    assert not ours.converged_
    assert ours.n_iter_ == 1


@ALL
def test_the_best_of_several_starts_counts(estimator):
    X = draw(seed=2)
    ours = clone(estimator).set_params(
        n_components=5, n_init=4, init_params="random_from_data", random_state=0, tol=1e-2
    )
    ours.set_params(max_iter=500)
    state = np.random.RandomState(0)
    item = [clone(ours).set_params(n_init=1, random_state=state).fit(X).lower_bound_ for _ in range(4)]
    assert ours.fit(X).lower_bound_ == max(item)
    assert max(item) > min(item)


@ALL
def test_prints_its_progress(estimator, capsys):
    ours = clone(estimator).set_params(n_components=3, random_state=0, verbose=1, verbose_interval=1)
    ours.fit(draw(50))
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == "Initialization 0"
    assert lines[1:-1] == [f"  Iteration {i + 1}" for i in range(len(lines) - 2)]
    assert lines[-1] == "Initialization converged."
    assert 1 <= ours.n_iter_ - (len(lines) - 2) + 1 <= 2
    ours.set_params(verbose=2).fit(draw(50))
    assert "change" in capsys.readouterr().out


def test_a_component_that_collapses_ends_the_fit_with_what_there_was():
    X = np.concatenate([np.random.default_rng(0).normal(size=(50, 2)), np.full((2, 2), 30.0)])
    settings = dict(means_init=[[0.0, 0.0], [30.0, 30.0]], weights_init=[0.5, 0.5], reg_covar=0, random_state=0)
    ours = GaussianMixture(2, precisions_init=np.tile(np.eye(2), (2, 1, 1)), **settings)
    with pytest.warns(
        cavity.ConvergenceWarning, match="It stopped before iteration 1: Fitting the mixture model failed"
    ):
        ours.fit(X)
    np.testing.assert_array_equal(ours.means_, settings["means_init"])
    assert not ours.converged_
    with pytest.raises(ValueError, match="ill-defined empirical covariance"):
        GaussianMixture(2, reg_covar=0, random_state=0).fit(X)  # the start itself has no covariance


# ---------------------------------------------------------------------------------------------- words


@pytest.mark.parametrize(
    ("settings", "error", "message"),
    [
        ({"n_components": 0}, ValueError, "n_components must be at least 1, got 0"),
        ({"n_components": 2.0}, TypeError, "n_components must be an integer, got 2.0"),
        (
            {"n_components": 99},
            ValueError,
            "Expected n_samples >= n_components but got n_components = 99, n_samples = 30",
        ),
        (
            {"covariance_type": "round"},
            ValueError,
            "covariance_type must be one of 'full', 'tied', 'diag', 'spherical'",
        ),
        ({"init_params": "best"}, ValueError, "init_params must be one of 'kmeans'"),
        ({"tol": -1.0}, ValueError, r"tol must be in \[0, inf\), got -1.0"),
        ({"reg_covar": -1.0}, ValueError, "reg_covar must be in"),
        ({"max_iter": -1}, ValueError, "max_iter must be at least 0"),
        ({"n_init": 0}, ValueError, "n_init must be at least 1"),
        ({"verbose_interval": 0}, ValueError, "verbose_interval must be at least 1"),
        ({"n_threads": 0}, ValueError, "n_threads must be at least 1"),
    ],
)
@ALL
def test_bad_settings(estimator, settings, error, message):
    with pytest.raises(error, match=message):
        clone(estimator).set_params(**settings).fit(draw(10))


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"weight_concentration_prior_type": "beta"}, "weight_concentration_prior_type must be one of"),
        ({"weight_concentration_prior": 0.0}, "weight_concentration_prior must be in"),
        ({"mean_precision_prior": -1.0}, "mean_precision_prior must be in"),
        ({"mean_prior": [1.0, 2.0]}, r"'means' should have the shape of \(3,\), but got \(2,\)"),
        ({"degrees_of_freedom_prior": 2.0}, "'degrees_of_freedom_prior' should be greater than 2, but got 2.000"),
        ({"covariance_prior": np.eye(2)}, "'full covariance_prior' should have the shape of"),
        ({"covariance_prior": -np.eye(3)}, "'full covariance_prior' should be symmetric, positive-definite"),
        ({"covariance_prior": -1.0, "covariance_type": "spherical"}, "'spherical covariance_prior' should be positive"),
    ],
)
def test_bad_priors(settings, message):
    ours = BayesianGaussianMixture(**settings)
    with pytest.raises(ValueError, match=message):
        ours.fit(draw(10))
    with pytest.raises(sklearn.exceptions.NotFittedError):
        ours.predict(draw(10))


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"weights_init": [1.5, -0.5]}, r"range \[0, 1\], but got min value -0.50000, max value 1.50000"),
        ({"weights_init": [0.5, 0.2]}, r"should be normalized, but got sum\(weights\) = 0.70000"),
        ({"weights_init": [[0.5, 0.5]]}, r"'weights' should have the shape of \(2,\), but got \(1, 2\)"),
        ({"means_init": np.zeros((3, 3))}, r"'means' should have the shape of \(2, 3\)"),
        ({"means_init": np.full((2, 3), np.nan)}, r"means_init must be finite, got means_init\[0, 0\] = nan"),
        ({"precisions_init": np.eye(3)}, "'full precision' should have the shape of"),
    ],
)
def test_bad_starts(settings, message):
    with pytest.raises(ValueError, match=message):
        GaussianMixture(2, **settings).fit(draw(10))


@ALL
def test_bad_data(estimator):
    X = draw(10)
    with pytest.raises(ValueError, match="one weight for each row"):
        clone(estimator).fit(X, sample_weight=[1.0])
    with pytest.raises(ValueError, match="sample_weight must not be negative, got -1.0"):
        clone(estimator).fit(X, sample_weight=-np.ones(30))
    with pytest.raises(ValueError, match="X must be within 1e\\+150 of zero"):
        clone(estimator).fit(1e200 * X)
    fitted = clone(estimator).fit(X)
    with pytest.raises(ValueError, match="Invalid value for 'n_samples'"):
        fitted.sample(0)
    if isinstance(estimator, BayesianGaussianMixture):
        with pytest.raises(ValueError, match="weights that sum to more than one, got 0.3; give covariance_prior"):
            clone(estimator).fit(X, sample_weight=0.01)


@pytest.mark.parametrize("kind", ["diag", "spherical"])
def test_missing_values_are_integrated_over(kind):
    """The ELBO is that of `cavity.GaussianMixture` with the same priors; complete columns alone start the fit."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(600, 3)) + rng.choice([-4.0, 4.0], size=(600, 1))
    X[rng.random(X.shape) < 0.2] = np.nan
    types = dict(covariance_type=kind, weight_concentration_prior_type="dirichlet_distribution")
    mixture = BayesianGaussianMixture(n_components=2, **types, random_state=0, tol=1e-9, max_iter=1000).fit(X)
    settings = dict(mean_prior=mixture.mean_prior_, covariance_prior=mixture.covariance_prior_ + 1e-6)
    settings |= dict(mean_precision_prior=1.0, degrees_of_freedom_prior=3.0, weight_concentration_prior=0.5)
    expected = cavity.GaussianMixture(2, covariance=kind, weights="dirichlet", **settings).fit(X)
    assert mixture.lower_bound_ == pytest.approx(expected.elbo, abs=OPTIMUM)
    np.testing.assert_allclose(np.sort(mixture.means_, axis=0), np.sort(expected.mean, axis=0), atol=PRINTED)
    np.testing.assert_allclose(mixture.predict_proba(X).sum(axis=1), 1.0)
    assert np.all(np.isfinite(mixture.score_samples(X)))
    later = mixture.partial_fit([[np.nan, 4.0, 4.0], [-4.0, np.nan, np.nan]])
    assert np.all(np.isfinite(later.means_))


def test_missing_values_are_refused_where_covariances_need_all():
    with pytest.raises(ValueError, match="NaN"):
        BayesianGaussianMixture(n_components=2).fit([[0.0, np.nan], [1.0, 2.0], [3.0, 4.0]])
