"""GaussianMixture on data of every kind: same bits from any source, hard cases, streams, and what is refused."""

import pickle

import numpy as np
import pytest
from support.events import writing
from support.mixtures import (
    COVARIANCES,
    assert_same_bits,
    assert_same_factors,
    draws,
    every_covariance,
    every_kind,
    factors_of,
    model_of,
    reference_elbo,
    with_gaps,
)
from support.tolerances import AT_REST, EXPANSION, LOSSES, OPTIMUM, ROUNDING, SOLVES, SUMS

import cavity
from cavity import SettingsWarning
from cavity.models.mixture import e_step
from cavity.models.mixture.rows import sum_run
from cavity.models.mixture.scaling import Scaling
from cavity.runs.merge import BlockRun

THREE = [[-3.0, 0.0], [0.5, 2.0], [3.0, -1.0]]


@pytest.fixture
def small_blocks(monkeypatch):
    """Blocks of few rows, so that small data make many."""
    monkeypatch.setattr(e_step, "MAX_BLOCK_ROWS", 1 << 9)
    monkeypatch.setattr(e_step, "MIN_BLOCK_ROWS", 1 << 6)


@pytest.mark.sample(4)
@every_covariance
@pytest.mark.usefixtures("small_blocks")
def test_same_bits_for_any_number_of_threads_and_kind_of_source(covariance, tmp_path):
    X = draws(0, 2500, THREE).astype(np.float32)
    w = np.random.default_rng(0).gamma(1.0, size=len(X))
    np.save(tmp_path / "X.npy", X)
    np.save(tmp_path / "a.npy", X[:1003])
    np.save(tmp_path / "b.npy", np.asfortranarray(X[1003:].astype(float)))
    np.save(tmp_path / "w.npy", w)
    model = model_of(covariance, 3, 2)

    def fit(rows, weight=w, n_threads=1):
        return model.fit(rows, sample_weight=weight, n_threads=n_threads)

    posts = [fit(X, n_threads=n) for n in (1, 2, 3)]
    posts += [fit(X.astype(float)), fit(np.asfortranarray(X)), fit(np.repeat(X, 2, axis=0)[::2]), fit(X.tolist())]
    posts += [fit(np.load(tmp_path / "X.npy", mmap_mode="r")), fit(X, tmp_path / "w.npy", 2)]
    posts += [fit(tmp_path / "X.npy", n_threads=2), fit([tmp_path / "a.npy", tmp_path / "b.npy"])]
    posts += [fit(X.byteswap().view(X.dtype.newbyteorder()))]
    for post in posts[1:]:
        assert_same_bits(post, posts[0])
    np.testing.assert_array_equal(posts[0].responsibilities(tmp_path / "X.npy"), posts[0].responsibilities(X))
    np.testing.assert_array_equal(posts[0].log_density(np.asfortranarray(X)), posts[0].log_density(X))


@every_covariance
def test_values_do_not_depend_on_the_size_of_the_blocks(covariance, monkeypatch):
    X = draws(1, 3000, THREE)
    model = model_of(covariance, 3, 2)

    def fit():
        with pytest.warns(cavity.ConvergenceWarning):
            return model.fit(X, initial_means=np.array(THREE) - 0.5, accelerate=False, max_iter=5, tol=0)

    post = fit()
    for most, least, work in ((64, 64, 1 << 20), (1 << 15, 1, 5000), (1 << 15, 1 << 15, 1)):
        monkeypatch.setattr(e_step, "MAX_BLOCK_ROWS", most)
        monkeypatch.setattr(e_step, "MIN_BLOCK_ROWS", least)
        monkeypatch.setattr(e_step, "BLOCK_WORK", work)
        other = fit()
        assert other.elbo == pytest.approx(post.elbo, rel=SUMS)
        for a, b in zip(factors_of(other).values(), factors_of(post).values(), strict=True):
            np.testing.assert_allclose(a, b, rtol=SOLVES, atol=SOLVES * np.max(np.abs(b)))


@pytest.mark.usefixtures("small_blocks")
def test_wide_rows_have_the_same_bits_for_any_number_of_threads():
    rng = np.random.default_rng(2)
    means = 3.0 * rng.normal(size=(3, 20))
    X = draws(2, 900, means)
    model = model_of("full", 3, 20)
    posts = [model.fit(X, initial_means=means, n_threads=n) for n in (1, 2, 3)]
    for post in posts[1:]:
        assert_same_bits(post, posts[0])
    assert reference_elbo(X, np.ones(900), posts[0]) == pytest.approx(posts[0].elbo, rel=SOLVES)
    far = model_of("full", 3, 20, mean_prior=np.full(20, 2.0**30))
    shifted = far.fit(X + 2.0**30, initial_means=means + 2.0**30)
    assert np.isfinite(shifted.elbo)


@every_kind
def test_more_components_than_rows(covariance, weights):
    X = draws(3, 4, THREE)
    post = cavity.GaussianMixture(9, covariance, weights).fit(X)
    assert post.converged
    np.testing.assert_allclose(post.responsibilities(X).sum(axis=1), 1.0, rtol=ROUNDING)
    assert post.counts.sum() == pytest.approx(4.0)


@pytest.mark.sample(3)
@every_kind
def test_empty_components_are_the_prior(covariance, weights):
    """Of 6 components all but two stay empty under a prior that wants few; what is empty is as before the data."""
    X = draws(4, 300, np.array(THREE[:2]) * 4.0)
    settings = {"weight_concentration_prior": 1e-3, "mean_prior": [0.25, -0.5]}
    post = model_of(covariance, 6, 2, weights, **settings).fit(X)
    full = post.counts > 1.0
    assert 2 <= full.sum() < 6
    empty = post.counts < 1e-9
    assert empty.any()
    np.testing.assert_allclose(post.mean[empty], np.broadcast_to([0.25, -0.5], (empty.sum(), 2)), atol=OPTIMUM)
    np.testing.assert_allclose(post.mean_precision[empty], 0.6, rtol=OPTIMUM)
    assert np.all(np.isfinite(post.log_density(X)))


@every_kind
def test_duplicated_rows(covariance, weights):
    X = np.repeat([[0.0, 1.0], [4.0, -1.0], [1.0, 1.0]], 20, axis=0)
    post = cavity.GaussianMixture(3, covariance, weights).fit(X)
    assert post.converged
    assert np.isfinite(post.elbo)
    r = post.responsibilities(X)
    np.testing.assert_array_equal(r[:20], np.broadcast_to(r[0], (20, 3)))


@every_covariance
def test_constant_columns_are_refused_by_default_and_fine_with_a_prior(covariance):
    X = draws(5, 60, THREE)
    X[:, 1] = 7.0
    if covariance != "spherical":
        with pytest.raises((ValueError, cavity.NotPositiveDefiniteError), match="covariance_prior .*column 1 .*const"):
            cavity.GaussianMixture(2, covariance).fit(X)
    prior = {"diag": [1.0, 0.5], "spherical": 1.0}.get(covariance, np.diag([1.0, 0.5]))
    post = cavity.GaussianMixture(3, covariance, covariance_prior=prior).fit(X)
    assert post.converged
    np.testing.assert_allclose(post.mean[:, 1], 7.0, rtol=SOLVES)
    same = np.full((6, 2), 3.0)
    with pytest.raises(ValueError, match="covariance_prior defaults to .*, but column 0 .*is constant"):
        cavity.GaussianMixture(2, covariance).fit(same)
    assert cavity.GaussianMixture(2, covariance, covariance_prior=prior).fit(same).converged


@pytest.mark.parametrize("rows", [2, 40])
def test_dependent_columns_and_few_rows_are_said(rows):
    x = np.random.default_rng(0).integers(0, 9, size=(rows, 2)).astype(float)
    X = np.column_stack([x, x.sum(axis=1)])
    for covariance in ("full", "tied"):
        with pytest.raises(
            cavity.NotPositiveDefiniteError,
            match="covariance_prior defaults to the covariance of X, which is not positive definite",
        ):
            cavity.GaussianMixture(2, covariance).fit(X)
        assert cavity.GaussianMixture(2, covariance, covariance_prior=np.eye(3)).fit(X).converged


@pytest.mark.parametrize("covariance", ["full", "diag"])
def test_a_small_cluster_far_away_survives_among_64_columns(covariance):
    """60 rows 8 standard deviations away, fewer than columns, beside 2000."""
    rng = np.random.default_rng(6)
    X = rng.normal(size=(2060, 64))
    X[2000:] += 8.0 / 8.0 * np.sign(rng.normal(size=64))
    start = np.stack([X[:2000].mean(axis=0), X[2000:].mean(axis=0)])
    for options in ({}, {"initial_means": start}):
        post = cavity.GaussianMixture(2, covariance).fit(X, **options)
        assert np.min(post.counts) == pytest.approx(60.0, abs=2.0)
        labels = post.predict(X)
        small = np.argmin(post.counts)
        assert np.sum(labels[2000:] != small) + np.sum(labels[:2000] == small) <= 2


@every_covariance
def test_one_column_one_row_and_two_rows(covariance):
    prior = {"full": [[1.0]], "tied": [[1.0]], "diag": [1.0], "spherical": 1.0}[covariance]
    model = cavity.GaussianMixture(2, covariance, covariance_prior=prior, mean_prior=[0.0])
    for X in ([[3.0]], [[3.0], [-1.0]], [[3.0], [3.0]]):
        post = model.fit(X)
        assert post.converged
        assert post.mean.shape == (2, 1)
        assert np.isfinite(post.elbo)
    with pytest.raises(ValueError, match="which needs weights of more than 1 row"):
        cavity.GaussianMixture(2, covariance).fit([[3.0]])
    with pytest.raises(ValueError, match="which needs weights of more than 1 row"):
        cavity.GaussianMixture(2, covariance).fit([[3.0], [1.0]], sample_weight=[0.3, 0.4])


@every_covariance
@pytest.mark.parametrize("scale", [1e-120, 1e140])
def test_extreme_scales(covariance, scale):
    X = draws(12, 150, THREE)
    unit = cavity.GaussianMixture(3, covariance).fit(X)
    other = cavity.GaussianMixture(3, covariance).fit(scale * X)
    assert other.elbo == pytest.approx(unit.elbo - X.size * np.log(scale), rel=AT_REST)
    np.testing.assert_allclose(other.mean / scale, unit.mean, rtol=OPTIMUM)
    np.testing.assert_allclose(other.log_density(scale * X) + 2 * np.log(scale), unit.log_density(X), rtol=OPTIMUM)


@pytest.mark.sample(5)
@every_kind
@pytest.mark.parametrize(
    "prior",
    [
        {"weight_concentration_prior": 1e-300},
        {"weight_concentration_prior": 1e300},
        {"mean_precision_prior": 1e-300},
        {"mean_precision_prior": 1e300},
        {"degrees_of_freedom_prior": 1.0 + 1e-12},
        {"degrees_of_freedom_prior": 1e12},
        {"mean_prior": [1e100, 0.0]},
    ],
    ids=str,
)
def test_extreme_priors(covariance, weights, prior):
    """Also with one row a thousand standard deviations away."""
    X = draws(13, 80, THREE)
    X[7] = 1e3
    post = model_of(covariance, 3, 2, weights, **prior).fit(X)
    assert post.converged
    rounding = 1e-11 * np.max(np.abs(post.trace["elbo"]))
    assert np.all(np.diff(post.trace["elbo"]) >= -rounding)
    assert np.all(np.isfinite(post.log_density(X)))
    assert np.all(np.isfinite(post.sample(5, 0)))
    if prior.get("mean_precision_prior") == 1e300:
        np.testing.assert_array_equal(post.mean, np.broadcast_to(post.model.mean_prior, (3, 2)))


@every_covariance
def test_heavy_outliers(covariance):
    X = draws(14, 200, THREE)
    X[:2] = [[1e6, -1e6], [-3e5, 1e6]]
    prior = {"full": np.eye(2), "tied": np.eye(2), "diag": [1.0, 1.0], "spherical": 1.0}[covariance]
    post = cavity.GaussianMixture(4, covariance, covariance_prior=prior).fit(X)
    assert post.converged
    assert np.all(np.isfinite(post.log_density(X)))


@pytest.mark.parametrize("model", [cavity.GaussianMixture(5), cavity.UnitMixture(5)])
def test_more_components_than_rows_are_warned_of(model):
    X = np.array([[1.0, 2.0], [2.0, -1.0], [4.0, 0.5]])
    with pytest.warns(SettingsWarning, match="n_components should be at most the 3 rows, got 5"):
        model.fit(X if isinstance(model, cavity.GaussianMixture) else X[:, 0], rng=0)


def test_stochastic_fit_ends_near_the_optimum():
    X = draws(7, 40_000, np.array(THREE) * 2.0)
    for covariance in COVARIANCES:
        model = model_of(covariance, 3, 2)
        exact, post = model.fit(X), model.fit_stochastic(X, batch_size=500)
        assert exact.elbo - 300.0 < post.elbo < exact.elbo
        order = np.argsort(post.mean[:, 0])
        np.testing.assert_allclose(post.mean[order], exact.mean[np.argsort(exact.mean[:, 0])], atol=0.15)
        assert (post.converged, post.status, post.n_iter) == (False, "passes done", 1)
        assert post.counts.sum() == pytest.approx(len(X))
        assert len(post.trace["step"]) == 80


def test_stochastic_average_is_exact_where_nothing_is_latent():
    X = draws(8, 1000, THREE)
    for covariance in COVARIANCES:
        model = model_of(covariance, 1, 2)
        exact, post = model.fit(X), model.fit_stochastic(X, batch_size=100, delay=0, forgetting=1)
        assert_same_factors(post, exact, rtol=LOSSES, atol=SOLVES)
        assert post.elbo == pytest.approx(exact.elbo, rel=SUMS)


@pytest.mark.sample(2)
@every_covariance
def test_stochastic_fit_of_an_iterator(covariance, tmp_path):
    X = draws(9, 9000, np.array(THREE) * 2.0)
    if covariance in ("diag", "spherical"):
        X[5000:] = with_gaps(X[5000:])  # not in the first minibatch
    model, start = model_of(covariance, 3, 2), np.array(THREE) * 2.0
    batches = [X[i : i + 500] for i in range(0, len(X), 500)]
    streamed = model.fit_stochastic(iter(batches), n_samples=len(X), initial_means=start)
    rows = model.fit_stochastic(X, batch_size=500, initial_means=start)
    np.testing.assert_allclose(streamed.mean, rows.mean, atol=EXPANSION)  # the start is that of the first minibatch
    np.testing.assert_allclose(streamed.covariance, rows.covariance, atol=EXPANSION)
    assert streamed.elbo is None
    assert "elbo       not known" in repr(streamed)
    assert streamed.n_samples == 9000.0
    np.testing.assert_allclose(streamed.counts, rows.counts, rtol=0.05)
    streamed.save(tmp_path / "post.npz")
    assert_same_bits(cavity.load(tmp_path / "post.npz"), streamed)
    with pytest.warns(cavity.NumericalWarning, match="the stream held 9000 points"):
        model.fit_stochastic(iter(batches), n_samples=600)
    stopped = model.fit_stochastic(X, batch_size=500, callback=writing([], stop=3))
    assert len(stopped.trace["step"]) == 3


def test_inputs_are_left_alone():
    X, w, start = draws(10, 60, THREE), np.linspace(0.1, 1.0, 60), np.array(THREE)
    prior = np.eye(2)
    before = [item.copy() for item in (X, w, start, prior)]
    for value in (X, w, start, prior):
        value.flags.writeable = False
    model = cavity.GaussianMixture(3, covariance_prior=prior)
    post = model.fit(X, sample_weight=w, initial_means=start)
    assert post.update(X).log_density(X).flags.writeable
    bad = X.copy()
    bad[17, 1] = np.inf
    with pytest.raises(ValueError, match=r"X must be finite, got X\[17, 1\] = inf"):
        model.fit(bad, sample_weight=w, initial_means=start)
    for now, then in zip((X, w, start, prior), before, strict=True):
        np.testing.assert_array_equal(now, then)
    free = X.copy()
    model.fit(free)
    assert free.flags.writeable


def test_models_compare_and_can_be_dictionary_keys():
    one = cavity.GaussianMixture(2, covariance_prior=np.eye(2), mean_prior=np.zeros(2))
    other = cavity.GaussianMixture(2, covariance_prior=[[1.0, 0.0], [0.0, 1.0]], mean_prior=[0.0, 0.0])
    assert one == other
    assert len({one, other}) == 1
    assert one != cavity.GaussianMixture(2, covariance_prior=2.0 * np.eye(2), mean_prior=np.zeros(2))


X = [[0.0, 1.0], [2.0, 1.5], [1.0, -3.0]]
MODEL = cavity.GaussianMixture(2)
BAD = {
    "n_components must be at least 1, got 0": lambda: cavity.GaussianMixture(0),
    "n_components must be an integer, got 2.0": lambda: cavity.GaussianMixture(2.0),
    "covariance must be one of 'full', 'tied', 'diag', 'spherical', got 'round'": lambda: cavity.GaussianMixture(
        2, "round"
    ),
    "weights must be one of 'dirichlet', 'stick_breaking', got 'equal'": lambda: cavity.GaussianMixture(
        2, weights="equal"
    ),
    "weight_concentration_prior must be positive, got 0.0": lambda: cavity.GaussianMixture(
        2, weight_concentration_prior=0
    ),
    "weight_concentration_prior must be positive, got -1.0": lambda: cavity.GaussianMixture(
        2, weight_concentration_prior=[1, -1]
    ),
    r"weight_concentration_prior must have shape a number or \(K,\) with K = 2, got shape \(3,\)": (
        lambda: cavity.GaussianMixture(2, weight_concentration_prior=[1, 1, 1])
    ),
    r"weight_concentration_prior must have shape a number or \(K - 1, 2\)": lambda: cavity.GaussianMixture(
        2, weights="stick_breaking", weight_concentration_prior=[1, 1]
    ),
    "weight_concentration_prior must be finite": lambda: cavity.GaussianMixture(2, weight_concentration_prior=np.inf),
    r"weight_concentration_prior must be within 1e-300 and 1e\+300, got 5e-324": lambda: cavity.GaussianMixture(
        2, weight_concentration_prior=5e-324
    ),
    "mean_precision_prior must be positive": lambda: cavity.GaussianMixture(2, mean_precision_prior=-1.0),
    "mean_precision_prior must have shape": lambda: cavity.GaussianMixture(2, mean_precision_prior=[1.0]),
    r"mean_prior must have shape \(D,\) or \(K, D\)": lambda: cavity.GaussianMixture(2, mean_prior=0.0),
    "mean_prior must hold real numbers": lambda: cavity.GaussianMixture(2, mean_prior=["a", "b"]),
    r"mean_prior must have 2 columns as X has, got shape \(3,\)": lambda: cavity.GaussianMixture(
        2, mean_prior=[0, 0, 0]
    ).fit(X),
    r"degrees_of_freedom_prior must be above D - 1 = 1, got 1\b": lambda: cavity.GaussianMixture(
        2, degrees_of_freedom_prior=1
    ).fit(X),
    "degrees_of_freedom_prior must be positive": lambda: cavity.GaussianMixture(2, "diag", degrees_of_freedom_prior=0),
    r"degrees_of_freedom_prior must have shape a number with K = 2, got shape \(2,\)": lambda: cavity.GaussianMixture(
        2, "tied", degrees_of_freedom_prior=[3.0, 3.0]
    ),
    r"covariance_prior must have shape \(D, D\) or \(K, D, D\) with K = 2, got shape \(\)": (
        lambda: cavity.GaussianMixture(2, covariance_prior=1.0)
    ),
    r"covariance_prior must have shape \(n, n\) with n = 2, got \(3, 3\)": lambda: cavity.GaussianMixture(
        2, covariance_prior=np.eye(3)
    ).fit(X),
    "covariance_prior must be symmetric": lambda: cavity.GaussianMixture(2, covariance_prior=[[1, 0.5], [0, 1]]).fit(X),
    r"covariance_prior\[1\] must be symmetric": lambda: cavity.GaussianMixture(
        2, covariance_prior=[np.eye(2), [[1, 0.5], [0, 1]]]
    ).fit(X),
    "covariance_prior must be positive definite": lambda: cavity.GaussianMixture(
        2, covariance_prior=[[1, 2], [2, 1]]
    ).fit(X),
    r"covariance_prior must have shape \(D,\) or \(K, D\)": lambda: cavity.GaussianMixture(
        2, "diag", covariance_prior=1.0
    ),
    "covariance_prior must have 2 columns": lambda: cavity.GaussianMixture(2, "diag", covariance_prior=[1.0]).fit(X),
    r"covariance_prior must be positive, got -1.0": lambda: cavity.GaussianMixture(
        2, "spherical", covariance_prior=-1.0
    ),
    r"X must be finite, got X\[1, 0\] = nan; values may be missing with covariance='diag' or": lambda: MODEL.fit(
        [[1.0, 2.0], [np.nan, 1.0]]
    ),
    r"X must be finite, got X\[1, 0\] = inf": lambda: cavity.GaussianMixture(2, "diag").fit(
        [[1.0, 2.0], [np.inf, 1.0]]
    ),
    "X must have a value in every column, got only nan in column 1": lambda: cavity.GaussianMixture(2, "diag").fit(
        [[1.0, np.nan], [2.0, np.nan]]
    ),
    "X must have a value of positive weight in every column, got none in column 1": lambda: cavity.GaussianMixture(
        2, "diag"
    ).fit([[1.0, np.nan], [2.0, np.nan], [3.0, 1.0]], sample_weight=[1.0, 2.0, 0.0]),
    r"X must have 2 dimension\(s\), got shape \(2,\)": lambda: MODEL.fit([1.0, 2.0]),
    "X must not be empty": lambda: MODEL.fit(np.empty((0, 2))),
    "X must hold real numbers": lambda: MODEL.fit([["a"]]),
    "X must not be a masked array": lambda: MODEL.fit(np.ma.masked_array(X)),
    "X is a one-shot iterator": lambda: MODEL.fit(iter(X)),
    "X must be within 1e.150 of zero": lambda: MODEL.fit([[1e200, 1.0], [0.0, 2.0]]),
    "X must have ranges above 1e-140": lambda: MODEL.fit([[1e-200, 1.0], [0.0, 2.0]]),
    "sample_weight must not be negative": lambda: MODEL.fit(X, sample_weight=[1.0, -1.0, 1.0]),
    "sample_weight must not be negative and not all zero": lambda: MODEL.fit(X, sample_weight=[0.0, 0.0, 0.0]),
    r"sample_weight must add up to between 1e-100 and 1e\+100 rows, got 3e-200": lambda: MODEL.fit(
        X, sample_weight=np.full(3, 1e-200)
    ),
    r"mean_prior must be within 1e\+150 ranges of X from its mean, got 1e\+200": lambda: cavity.GaussianMixture(
        2, mean_prior=[1e200, 0.0]
    ).fit(X),
    r"initial_means must be within 1e\+150 ranges of X": lambda: MODEL.fit(X, initial_means=[[1e300, 0.0], [0.0, 0.0]]),
    "sample_weight must have one weight for each of the 3 rows": lambda: MODEL.fit(X, sample_weight=[1.0, 2.0]),
    r"sample_weight must be finite, got sample_weight\[2\] = nan": lambda: MODEL.fit(X, sample_weight=[1, 1, np.nan]),
    r"sample_weight must have 1 dimension": lambda: MODEL.fit(X, sample_weight=np.ones((3, 1))),
    r"initial_means must have shape \(K, D\) = \(2, 2\), got \(3, 2\)": lambda: MODEL.fit(X, initial_means=X),
    "initial_means must be finite": lambda: MODEL.fit(X, initial_means=[[np.nan, 1.0], [0.0, 0.0]]),
    "init must be one of": lambda: MODEL.fit(X, init="random"),
    "n_init must be at least 1, got 0": lambda: MODEL.fit(X, n_init=0),
    "n_init > 1 draws starting points and needs rng": lambda: MODEL.fit(X, n_init=2),
    "rng must be a seed": lambda: MODEL.fit(X, rng="x"),
    "accelerate must be one of": lambda: MODEL.fit(X, accelerate="fast"),
    "moves must be True or False, got 'merge'": lambda: MODEL.fit(X, moves="merge"),
    "max_iter must be at least 1": lambda: MODEL.fit(X, max_iter=0),
    "tol must be in": lambda: MODEL.fit(X, tol=-1.0),
    "n_threads must be at least 1": lambda: MODEL.fit(X, n_threads=0),
    "unexpected keyword argument 'sample_weights'": lambda: MODEL.fit(X, sample_weights=[1, 1, 1]),
    "batch_size must be at least 1": lambda: MODEL.fit_stochastic(X, batch_size=0),
    "n_epochs must be at least 1": lambda: MODEL.fit_stochastic(X, n_epochs=0),
    "forgetting must be in": lambda: MODEL.fit_stochastic(X, forgetting=0.5),
    "delay must be in": lambda: MODEL.fit_stochastic(X, delay=-1),
    "n_samples is for an iterator": lambda: MODEL.fit_stochastic(X, n_samples=3),
    "give n_samples": lambda: MODEL.fit_stochastic(iter([X])),
    "can be seen once, got n_epochs=2": lambda: MODEL.fit_stochastic(iter([X]), n_samples=3, n_epochs=2),
    "X is an iterator that yields nothing": lambda: MODEL.fit_stochastic(iter([]), n_samples=3),
    r"minibatch 1 of X must be finite, got minibatch 1 of X\[0, 1\] = nan": lambda: MODEL.fit_stochastic(
        iter([X, [[1.0, np.nan]]]), n_samples=4
    ),
    "minibatch 1 of X must have 2 columns": lambda: MODEL.fit_stochastic(iter([X, [[1.0]]]), n_samples=4),
    "n must be at least 0": lambda: MODEL.fit(X).sample(-1, 0),
    "rng must be a seed ": lambda: MODEL.fit(X).sample(1, None),
}


@pytest.mark.parametrize("message", BAD)
def test_bad_input_is_named(message):
    with pytest.raises((ValueError, TypeError), match=message):
        BAD[message]()


def test_bad_rows_of_files_are_named(tmp_path):
    rows = draws(11, 60, THREE)
    rows[41, 1] = np.nan
    np.save(tmp_path / "a.npy", rows[:40])
    np.save(tmp_path / "b.npy", rows[40:])
    with pytest.raises(ValueError, match=r"X must be finite, got nan in row 1, column 1 of .*b\.npy; values may be"):
        MODEL.fit([tmp_path / "a.npy", tmp_path / "b.npy"])
    assert cavity.GaussianMixture(2, "diag").fit([tmp_path / "a.npy", tmp_path / "b.npy"]).converged


def test_parquet_has_the_bits_of_arrays(tmp_path):
    """With weights by name, in the file of the rows and in one of their own; row groups are not blocks."""
    parquet = pytest.importorskip("pyarrow.parquet")
    from pyarrow import table

    rng = np.random.default_rng(4)
    X, w = rng.normal(size=(9000, 2)) + 4.0 * rng.integers(0, 2, (9000, 1)), rng.gamma(1.0, size=9000)
    rows = {"a": X[:, 0], "b": X[:, 1]}
    parquet.write_table(table({"w": w, **rows}), tmp_path / "all.parquet", row_group_size=1700)
    parquet.write_table(table(rows), tmp_path / "rows.parquet", row_group_size=5000)
    np.save(tmp_path / "w.npy", w)
    model = cavity.GaussianMixture(2, covariance="diag")
    first = model.fit(X, sample_weight=w, max_iter=20)
    others = [
        model.fit(tmp_path / "all.parquet", sample_weight="w", n_threads=2, max_iter=20),
        model.fit(str(tmp_path / "rows.parquet"), sample_weight=str(tmp_path / "w.npy"), max_iter=20),
    ]
    for post in others:
        assert post.columns == ("a", "b")
        assert post.elbo == first.elbo
        np.testing.assert_array_equal(post.predict(tmp_path / "rows.parquet"), first.predict(X))
    batched = [model.fit_stochastic(data, batch_size=500) for data in (X, tmp_path / "rows.parquet")]
    assert batched[0].elbo == batched[1].elbo


def test_a_pass_can_be_sent_to_another_process():
    """The task of a pass, what all its calls need, and a run."""
    X = draws(0, 300, THREE)
    with_weights = np.random.default_rng(0).gamma(1.0, size=300)
    step = e_step.EStep.flat(Scaling.around(X.min(0), X.max(0), X.mean(0), False), True)
    sent = sum_run, BlockRun(0, 300, 128, (X, with_weights)), step
    task, *values = pickle.loads(pickle.dumps(sent))
    for result, expected in zip(task(*values), sum_run(*sent[1:]), strict=True):
        np.testing.assert_array_equal(result, expected)
