"""GaussianMixture against its term-by-term definition, exact evidence, known values and its own laws."""

import warnings

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from reference import gaussian_mixture as ref
from scipy import special
from support import tolerances
from support.events import writing
from support.examples import examples
from support.mixtures import (
    COVARIANCES,
    WEIGHTS,
    assert_same_factors,
    draws,
    every_covariance,
    every_kind,
    factors_of,
    faithful,
    model_of,
    prior_of,
    reference_elbo,
    with_gaps,
)

import cavity

THREE = [[-3.0, 0.0], [0.5, 2.0], [3.0, -1.0]]


def nearest(X, w, means, covariance):
    """Labels of rows by the nearest mean, in units of the columns' standard deviations but for spherical ones."""
    columns = [(column[~np.isnan(column)], w[~np.isnan(column)]) for column in X.T]
    spread = 1.0 if covariance == "spherical" else [np.sqrt(np.cov(x, aweights=v, ddof=0)) for x, v in columns]
    return np.argmin(np.nansum(((X[:, None] - np.array(means)) / spread) ** 2, axis=2), axis=1)


def data_for(covariance, seed, n=60):
    """Rows around three means, with gaps where the model allows them."""
    X = draws(seed, n, THREE, 1.2)
    return with_gaps(X, seed) if covariance in ("diag", "spherical") else X


@every_kind
@pytest.mark.parametrize("weighted", [False, True])
def test_sweeps_and_elbo_are_those_of_the_definition(covariance, weights, weighted):
    X = data_for(covariance, 1)
    w = np.random.default_rng(2).gamma(1.0, size=len(X)) if weighted else np.ones(len(X))
    model = model_of(covariance, 3, 2, weights)
    start = [[-2.0, 0.0], [0.0, 1.0], [2.0, 0.5]]
    with pytest.warns(cavity.ConvergenceWarning):
        post = model.fit(
            X, sample_weight=w if weighted else None, initial_means=start, accelerate=False, max_iter=6, tol=0
        )
    prior, elbos = prior_of(model), []
    r = np.eye(3)[nearest(X, w, start, covariance)]
    for _ in range(6):
        q = ref.m_step(X, w, prior, r)
        r = ref.e_step(X, prior, q)
        elbos.append(ref.elbo(X, w, prior, q, r))
    np.testing.assert_allclose(post.trace["elbo"], elbos, rtol=tolerances.SOLVES)
    for name, value in factors_of(post).items():
        np.testing.assert_allclose(value, q[name], rtol=tolerances.INTEGRAL, atol=tolerances.SOLVES, err_msg=name)
    np.testing.assert_allclose(post.responsibilities(X), r, rtol=tolerances.INTEGRAL, atol=tolerances.ROUNDING)
    np.testing.assert_allclose(post.counts, w @ r, rtol=tolerances.INTEGRAL)
    np.testing.assert_allclose(post.weights, ref.expected_pi(prior, q), rtol=tolerances.INTEGRAL)
    assert post.elbo == post.trace["elbo"][-1]


@pytest.mark.sample(2)
@every_covariance
def test_default_priors_are_those_said(covariance):
    X = draws(0, 50, THREE)
    post = cavity.GaussianMixture(3, covariance).fit(X)
    square = {"full": np.cov(X.T), "tied": np.cov(X.T), "diag": np.var(X, axis=0, ddof=1)}
    expected = square.get(covariance, np.mean(np.var(X, axis=0, ddof=1)))
    np.testing.assert_allclose(post.model.covariance_prior, expected, rtol=tolerances.SUMS)
    np.testing.assert_allclose(post.model.mean_prior, X.mean(axis=0), rtol=tolerances.SUMS)
    assert post.model.degrees_of_freedom_prior == 2.0
    stated = {name: getattr(post.model, name) for name in ("mean_prior", "covariance_prior")}
    values = cavity.GaussianMixture(
        3,
        covariance,
        weight_concentration_prior=1 / 3,
        mean_precision_prior=1.0,
        degrees_of_freedom_prior=2.0,
        **stated,
    )
    assert values.fit(X).elbo == post.elbo
    settled = cavity.GaussianMixture(3, covariance).with_defaults(X)
    assert settled == post.model


def test_default_priors_of_weighted_rows_and_rows_with_gaps():
    X, w = draws(1, 40, THREE), np.random.default_rng(0).integers(0, 4, size=40)
    rows = np.repeat(X, w, axis=0)
    for covariance in COVARIANCES:
        one = cavity.GaussianMixture(2, covariance).with_defaults(X, sample_weight=w)
        many = cavity.GaussianMixture(2, covariance).with_defaults(rows)
        np.testing.assert_allclose(one.covariance_prior, many.covariance_prior, rtol=tolerances.SUMS)
        np.testing.assert_allclose(one.mean_prior, many.mean_prior, rtol=tolerances.SUMS)
    gaps = with_gaps(X)
    model = cavity.GaussianMixture(2, "diag").with_defaults(gaps)
    np.testing.assert_allclose(model.covariance_prior, np.nanvar(gaps, axis=0, ddof=1), rtol=tolerances.SUMS)
    np.testing.assert_allclose(model.mean_prior, np.nanmean(gaps, axis=0), rtol=tolerances.SUMS)


@pytest.mark.long_cases("tied-stick_breaking")
@pytest.mark.sample(3)
@every_kind
def test_elbo_is_below_the_exact_evidence_and_meets_it_for_one_component(covariance, weights):
    X = data_for(covariance, 3, 5)
    one = model_of(covariance, 1, 2, weights).fit(X)
    assert one.elbo == pytest.approx(ref.log_evidence(X, prior_of(one.model), 1), rel=tolerances.SOLVES)
    assert one.converged
    for k in (2, 3):
        post = model_of(covariance, k, 2, weights).fit(X)
        exact = ref.log_evidence(X, prior_of(post.model), k)
        assert exact - 8.0 < post.elbo < exact


@pytest.mark.parametrize(
    ("alpha", "k", "elbo"),
    [
        (1e-3, 1, -561.674795),
        (1e-3, 2, -442.174563),
        (1e-3, 3, -442.586205),
        (1.0, 2, -436.047327),
        (1.0, 3, -440.909008),
    ],
)
def test_golden_values_of_old_faithful(alpha, k, elbo):
    model = cavity.GaussianMixture(
        k,
        weight_concentration_prior=alpha,
        mean_prior=[0.0, 0.0],
        degrees_of_freedom_prior=2.0,
        covariance_prior=np.eye(2),
    )
    post = model.fit(faithful(standard=True))
    assert post.elbo == pytest.approx(elbo, abs=tolerances.OPTIMUM)
    assert post.converged


def test_elbos_compare_across_components_covariances_and_units():
    """Old Faithful in minutes and in hours: the ELBO moves by log 60 a row and column, the choice of K does not."""
    X = faithful()
    for covariance in COVARIANCES:
        elbos = [cavity.GaussianMixture(k, covariance).fit(X).elbo for k in (1, 2)]
        assert elbos[1] > elbos[0] + 50
        hours = [cavity.GaussianMixture(k, covariance).fit(X / 64.0).elbo for k in (1, 2)]
        np.testing.assert_allclose(hours, np.array(elbos) + X.size * np.log(64.0), rtol=tolerances.SOLVES)


@examples(60)
@given(
    seed=st.integers(0, 2**32 - 1),
    covariance=st.sampled_from(COVARIANCES),
    weights=st.sampled_from(WEIGHTS),
    k=st.integers(1, 5),
    n=st.integers(2, 60),
    dim=st.integers(1, 4),
    spread=st.sampled_from([0.1, 1.0, 5.0, 1e3]),
    accelerate=st.sampled_from([False, "anderson", "squarem"]),
    weighted=st.booleans(),
    missing=st.booleans(),
)
def test_elbo_never_falls(seed, covariance, weights, k, n, dim, spread, accelerate, weighted, missing):
    rng = np.random.default_rng(seed)
    X = spread * rng.normal(size=(n, dim)) * rng.gamma(2.0, size=dim)
    w = rng.gamma(0.5, size=n) if weighted else None
    if missing and covariance in ("diag", "spherical"):
        X[1:] = with_gaps(X[1:], seed)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", cavity.ConvergenceWarning)
        post = model_of(covariance, k, dim, weights).fit(X, sample_weight=w, accelerate=accelerate, max_iter=50)
    elbos = post.trace["elbo"]
    assert np.all(np.isfinite(elbos))
    rounding = 1e-13 * max(np.abs(elbos).max(), n * dim)
    assert np.all(np.diff(elbos) >= -rounding)


@pytest.mark.sample(3)
@every_kind
def test_fixed_point(covariance, weights):
    X = data_for(covariance, 4, 200)
    post = model_of(covariance, 3, 2, weights).fit(X, tol=1e-15)
    assert post.converged
    w, prior, q = np.ones(len(X)), prior_of(post.model), factors_of(post)
    second, _ = ref.cavi_step(X, w, prior, q)
    for name in q:
        np.testing.assert_allclose(second[name], q[name], rtol=tolerances.SLOPES, atol=tolerances.EARLY, err_msg=name)
    assert reference_elbo(X, w, post) == pytest.approx(post.elbo, rel=tolerances.SOLVES)


@pytest.mark.sample(2)
@every_covariance
def test_predicted_gap_is_the_gap(covariance):
    X = draws(5, 300, [[0.0, 0.0], [2.0, 0.5]])
    model = model_of(covariance, 2, 2)
    start = [[-1.0, 0.0], [3.0, 0.0]]
    best = model.fit(X, initial_means=start, tol=1e-15, max_iter=5000)
    for accelerate in (False, True):
        post = model.fit(X, initial_means=start, tol=1e-8, accelerate=accelerate, max_iter=5000)
        assert post.converged
        assert post.predicted_gap <= 1e-8 * len(X)
        assert -1e-9 <= best.elbo - post.elbo < 2e-8 * len(X)


@every_covariance
def test_rows_and_components_can_be_permuted(covariance):
    X = data_for(covariance, 6, 150)
    model, start = model_of(covariance, 3, 2), np.array(THREE)
    post = model.fit(X, initial_means=start, tol=1e-15)
    order = np.random.default_rng(0).permutation(len(X))
    shuffled = model.fit(X[order], initial_means=start, tol=1e-15)
    assert_same_factors(shuffled, post, rtol=tolerances.OPTIMUM, atol=tolerances.EARLY)
    assert shuffled.elbo == pytest.approx(post.elbo, rel=tolerances.SOLVES)
    turned = model.fit(X, initial_means=start[[2, 0, 1]], tol=1e-15)
    np.testing.assert_allclose(turned.mean, post.mean[[2, 0, 1]], atol=tolerances.EARLY)
    np.testing.assert_allclose(turned.counts, post.counts[[2, 0, 1]], atol=tolerances.SLOPES)


@pytest.mark.sample(2)
@every_covariance
def test_default_starts_do_not_depend_on_the_order_of_the_rows(covariance):
    X = data_for(covariance, 6, 150)
    post = model_of(covariance, 3, 2).fit(X)
    other = model_of(covariance, 3, 2).fit(X[::-1])
    assert other.elbo == pytest.approx(post.elbo, abs=tolerances.OPTIMUM)
    np.testing.assert_allclose(other.mean, post.mean, atol=tolerances.EXPANSION)


@every_covariance
def test_translation_changes_nothing(covariance):
    """X + 1e8 is exact for multiples of 2^-20."""
    X = np.round(draws(7, 200, THREE) * 2**20) / 2**20
    shift = np.array([1e8, -1e8])
    base = model_of(covariance, 3, 2, mean_prior=[0.25, -0.5])
    moved = model_of(covariance, 3, 2, mean_prior=[1e8 + 0.25, -1e8 - 0.5])
    start = np.round(np.array(THREE))
    post = base.fit(X, initial_means=start, tol=1e-15)
    far = moved.fit(X + shift, initial_means=start + shift, tol=1e-15)
    assert far.elbo == pytest.approx(post.elbo, rel=tolerances.SOLVES)
    np.testing.assert_allclose(far.mean - shift, post.mean, atol=tolerances.OPTIMUM)
    np.testing.assert_allclose(far.covariance, post.covariance, rtol=tolerances.OPTIMUM, atol=tolerances.EARLY)
    np.testing.assert_allclose(far.log_density(X + shift), post.log_density(X), atol=tolerances.OPTIMUM)
    np.testing.assert_allclose(far.responsibilities(X + shift), post.responsibilities(X), atol=tolerances.OPTIMUM)


@pytest.mark.sample(2)
@every_covariance
def test_units_change_nothing(covariance):
    """Powers of two are exact; all models but the spherical one may have a unit for each column."""
    X = draws(8, 200, THREE)
    unit = np.array([2.0**40, 2.0**40 if covariance == "spherical" else 2.0**-30])
    for n_components in (2, 3):
        post = cavity.GaussianMixture(n_components, covariance).fit(X)
        other = cavity.GaussianMixture(n_components, covariance).fit(X * unit)
        np.testing.assert_allclose(other.mean / unit, post.mean, rtol=tolerances.EARLY)
        np.testing.assert_allclose(other.counts, post.counts, rtol=tolerances.EARLY)
        assert other.elbo + np.sum(np.log(unit)) * len(X) == pytest.approx(post.elbo, rel=tolerances.INTEGRAL)
        densities = other.log_density(X * unit) + np.sum(np.log(unit))
        np.testing.assert_allclose(densities, post.log_density(X), rtol=tolerances.OPTIMUM)


@pytest.mark.parametrize("covariance", ["full", "tied", "spherical"])
def test_rotation_changes_nothing(covariance):
    means = 3.0 * np.array(THREE) @ [[1.0, 0.2, 0.0], [0.0, 1.0, 0.4]]
    X = draws(9, 200, means)
    turn = np.linalg.qr(np.random.default_rng(0).normal(size=(3, 3)))[0]
    start = means
    model = model_of(covariance, 3, 3)
    scatter = np.array(model.covariance_prior)
    turned = model_of(
        covariance,
        3,
        3,
        mean_prior=np.array(model.mean_prior) @ turn,
        covariance_prior=scatter if scatter.ndim == 0 else turn.T @ scatter @ turn,
    )
    post = model.fit(X, initial_means=start, tol=1e-15)
    other = turned.fit(X @ turn, initial_means=start @ turn, tol=1e-15)
    assert other.elbo == pytest.approx(post.elbo, rel=tolerances.LOSSES)
    np.testing.assert_allclose(other.mean @ turn.T, post.mean, atol=tolerances.OPTIMUM)
    if covariance != "spherical":
        np.testing.assert_allclose(turn @ other.covariance @ turn.T, post.covariance, atol=tolerances.OPTIMUM)
    np.testing.assert_allclose(other.responsibilities(X @ turn), post.responsibilities(X), atol=tolerances.OPTIMUM)


@pytest.mark.sample(3)
@every_kind
def test_weights_are_repetitions(covariance, weights):
    X = data_for(covariance, 10, 80)
    w = np.random.default_rng(0).integers(0, 4, size=len(X))
    model = model_of(covariance, 3, 2, weights)
    rows = np.repeat(X, w, axis=0)
    for start in (np.array(THREE), None):
        options = {} if start is None else {"initial_means": start}
        one = model.fit(X, sample_weight=w, tol=1e-14, **options)
        many = model.fit(rows, tol=1e-14, **options)
        assert one.elbo == pytest.approx(many.elbo, abs=tolerances.ROOT_EPS)
        if start is not None:
            assert_same_factors(one, many, rtol=tolerances.SLOPES, atol=tolerances.OPTIMUM)
    assert one.n_samples == w.sum()


def test_rows_of_weight_zero_have_no_influence():
    X = draws(11, 60, THREE)
    w = np.ones(60)
    w[::7] = 0.0
    model = model_of("full", 3, 2)
    one = model.fit(X, sample_weight=w, initial_means=THREE)
    other = model.fit(X[w > 0], initial_means=THREE)
    assert one.elbo == pytest.approx(other.elbo, rel=tolerances.AT_REST)
    np.testing.assert_allclose(one.mean, other.mean, rtol=tolerances.PRINTED)


@pytest.mark.long_cases("full")
@pytest.mark.sample(2)
@every_covariance
def test_acceleration_saves_passes_and_ends_at_the_same_optimum(covariance):
    X = draws(12, 1500, [[-1.2, 0.0], [1.2, 0.3]])
    model = model_of(covariance, 2, 2)
    start = [[-1.0, 0.5], [1.0, -0.5]]
    plain = model.fit(X, initial_means=start, accelerate=False, tol=1e-10, max_iter=5000)
    for method in ("anderson", "squarem"):
        fast = model.fit(X, initial_means=start, accelerate=method, tol=1e-10)
        assert fast.elbo == pytest.approx(plain.elbo, abs=tolerances.AT_REST * len(X))
        assert fast.n_iter < plain.n_iter


@every_covariance
def test_missing_columns_change_nothing_else(covariance):
    """A column that no row but few has seen leaves the other columns' answers as they are, for diagonal models."""
    if covariance not in ("diag", "spherical"):
        with pytest.raises(ValueError, match="X must be finite, got X\\[1, 0\\] = nan; values may be missing"):
            cavity.GaussianMixture(1, covariance).fit([[1.0, 2.0], [np.nan, 1.0]])
        return
    X = data_for(covariance, 13, 120)
    post = model_of(covariance, 2, 2).fit(X)
    assert reference_elbo(X, np.ones(120), post) == pytest.approx(post.elbo, rel=tolerances.SOLVES)
    seen = ~np.isnan(X)
    r = post.responsibilities(X)
    expected = 0.6 + r.T @ seen
    np.testing.assert_allclose(post.mean_precision, expected, rtol=tolerances.OPTIMUM)  # of the state a sweep before
    empty = np.vstack([X, [[np.nan, np.nan]]])
    np.testing.assert_allclose(post.responsibilities(empty)[-1], np.exp(_log_weights(post)), rtol=tolerances.SOLVES)
    assert post.log_density(empty)[-1] == pytest.approx(0.0, abs=tolerances.ROUNDING)


def _log_weights(post):
    logs = ref.expected_log_pi(prior_of(post.model), factors_of(post))
    return logs - special.logsumexp(logs)


@every_kind
def test_every_prior_may_differ_between_components(covariance, weights):
    """Two components far apart, so that each sees its own rows alone: the posterior of each is conjugate."""
    rng = np.random.default_rng(14)
    X = np.vstack([rng.normal(size=(30, 2)), 1e4 + rng.normal(size=(50, 2))])
    scatter = np.array([np.eye(2), [[2.0, 0.5], [0.5, 1.0]]])
    own = {"full": scatter, "tied": scatter[1], "diag": np.array([[1.0, 2.0], [3.0, 4.0]]), "spherical": [1.0, 2.0]}
    priors = {
        "weight_concentration_prior": [2.0, 3.0] if weights == "dirichlet" else [[2.0, 3.0]],
        "mean_prior": [[0.0, 0.0], [1e4, 1e4]],
        "mean_precision_prior": [1.0, 2.0],
        "degrees_of_freedom_prior": 4.0 if covariance == "tied" else [3.0, 4.0],
        "covariance_prior": own[covariance],
    }
    post = cavity.GaussianMixture(2, covariance, weights, **priors).fit(X)
    assert post.weight_concentration.ravel().tolist() == pytest.approx([32.0, 53.0], rel=tolerances.SOLVES)
    np.testing.assert_allclose(post.mean_precision, [31.0, 52.0])
    totals = np.array([X[:30].sum(axis=0), X[30:].sum(axis=0)])
    expected = (totals + np.array([1.0, 2.0])[:, None] * np.array(priors["mean_prior"])) / [[31.0], [52.0]]
    np.testing.assert_allclose(
        post.mean, expected, rtol=tolerances.SOLVES, atol=tolerances.LOSSES
    )  # 1e4 times rounding
    nu = {"tied": 84.0, "diag": [[33.0, 33.0], [54.0, 54.0]], "spherical": [63.0, 104.0]}.get(covariance, [33.0, 54.0])
    np.testing.assert_allclose(post.degrees_of_freedom, nu, rtol=tolerances.SOLVES)


def test_starts_are_compared_by_their_elbo():
    X = draws(15, 200, [[-12.0], [-10.0], [0.0], [9.0], [14.0]], 0.5)
    model = cavity.GaussianMixture(
        5, weight_concentration_prior=1.0, mean_precision_prior=0.01, covariance_prior=[[1.0]]
    )
    bad = [[-11.0], [0.0], [0.1], [0.2], [11.0]]
    one = model.fit(X, initial_means=bad)
    several = model.fit(X, initial_means=bad, n_init=6, rng=0)
    assert several.elbo > one.elbo + 1
    assert model.fit(X, initial_means=bad, n_init=6, rng=np.random.default_rng(0)).elbo == several.elbo
    best = max(model.fit(X, init=init).elbo for init in ("kmeans", "split", "principal"))
    assert model.fit(X).elbo > best - 1e-6


def test_callback_stops_and_one_pass_is_not_convergence():
    X = draws(16, 300, [[0.0], [1.5]])
    with pytest.warns(cavity.ConvergenceWarning, match="stopped by callback") as caught:
        post = cavity.GaussianMixture(2).fit(X, init="principal", callback=lambda event: event.n_iter >= 3)
    assert caught[0].filename == __file__
    assert (post.n_iter, post.converged, post.status) == (3, False, "stopped by callback")
    seen = []
    with pytest.warns(cavity.ConvergenceWarning, match="max_iter reached") as caught:
        post = cavity.GaussianMixture(2).fit(X, max_iter=1, callback=writing(seen))
    assert caught[0].filename == __file__
    assert (post.n_iter, post.converged) == (1, False)
    assert seen == [(1, post.elbo)]
    with pytest.warns(cavity.ConvergenceWarning, match="max_iter reached") as caught:
        second = post.update(X, max_iter=1)
    assert caught[0].filename == __file__
    assert not second.converged


def test_callback_goes_on_from_the_passes_that_chose_the_start_and_stops_moves():
    X, calls = draws(16, 300, [[0.0], [1.5]]), []

    def report(stop):
        calls.clear()
        return writing(calls, stop=stop)

    with pytest.warns(cavity.ConvergenceWarning, match="stopped by callback"):
        post = cavity.GaussianMixture(3).fit(X, moves=True, callback=report(23))
    assert [n for n, _ in calls] == list(range(calls[0][0], 24))
    assert post.n_iter == 23 > 20 >= calls[0][0] - 1 >= 1
    assert len(post.trace["moves"]) == 0
    X, model = faithful(), cavity.GaussianMixture(3)
    first = model.fit(X)
    assert model.fit(X, moves=True).n_iter > first.n_iter + 5  # there are moves to try
    stop = first.n_iter + 2
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", cavity.ConvergenceWarning)  # if the move was a good one
        model.fit(X, moves=True, callback=report(stop))
    assert max(n for n, _ in calls) == calls[-1][0] == stop
    assert np.all(np.diff([elbo for _, elbo in calls]) >= 0)


def test_passes_that_chose_the_start_count_where_the_sample_is_all_data():
    X = draws(16, 300, [[0.0], [1.5]])
    chosen = cavity.GaussianMixture(3).fit(X)
    assert chosen.n_iter == len(chosen.trace["elbo"]) > 20
    assert np.all(np.diff(chosen.trace["elbo"]) >= -1e-12 * abs(chosen.elbo))
    for most in (1, 2, 15, 22):
        with pytest.warns(cavity.ConvergenceWarning, match="max_iter reached"):
            assert cavity.GaussianMixture(3).fit(X, max_iter=most).n_iter == most


@pytest.mark.parametrize("init", ["auto", "kmeans", "split", "principal"])
def test_whole_weights_are_repetitions_from_the_start_on(init):
    """After a single pass, which forgets nothing of where it started: weights count in the choice of starts too."""
    rng = np.random.default_rng(12)
    X = rng.normal(size=(60, 2))  # no clusters: where it is cut depends on the weights
    weight = np.where(X[:, 0] + X[:, 1] > 0.5, 30, 1)
    model, options = cavity.GaussianMixture(3), dict(init=init, max_iter=1, tol=0.0)
    with pytest.warns(cavity.ConvergenceWarning):
        weighted = model.fit(X, sample_weight=weight, **options)
    with pytest.warns(cavity.ConvergenceWarning):
        repeated = model.fit(np.repeat(X, weight, axis=0), **options)
    assert weighted.elbo == pytest.approx(repeated.elbo, rel=tolerances.AT_REST)
    np.testing.assert_allclose(np.sort(weighted.mean, axis=0), np.sort(repeated.mean, axis=0), rtol=tolerances.AT_REST)
