"""Fits to collections of dask: the bits of the same rows in memory, for every model, by every scheduler."""

import time

import numpy as np
import pandas as pd
import pytest
from support.tolerances import AT_REST, INTEGRAL, OPTIMUM

import cavity
from cavity import ConvergenceWarning
from cavity.runs import dask_scheduler, remote

dask = pytest.importorskip("dask")
da = pytest.importorskip("dask.array")
dd = pytest.importorskip("dask.dataframe")
distributed = pytest.importorskip("distributed")

N = 40_000  # more than are read at once
RNG = np.random.default_rng(0)
X = RNG.normal(size=(N, 2)) + RNG.choice([-4.0, 1.0, 5.0], size=(N, 1))
W = RNG.uniform(0.5, 2.0, size=N)
Y = X @ [1.0, -0.5] + RNG.normal(size=N)
LABELS = np.where(Y > 0, 5, 3)
FRAME = pd.DataFrame(X, columns=["height", "width"])


def array(values):
    return da.from_array(values, chunks=(13_001, *values.shape[1:]))


def frame(**columns):
    return dd.from_pandas(FRAME.assign(**columns), npartitions=3)


@pytest.fixture(scope="module")
def client():
    options = {"n_workers": 2, "threads_per_worker": 1, "processes": False, "dashboard_address": ":0"}
    with distributed.LocalCluster(**options) as cluster, distributed.Client(cluster) as client:
        yield client


@pytest.fixture(params=["threads", "sync", "client"])
def scheduler(request):
    if request.param == "client":
        client = request.getfixturevalue("client")
        with client.as_current(), dask.config.set(scheduler=client):
            yield
    else:
        with dask.config.set(scheduler=request.param):
            yield


def same(result, truth):
    assert result.elbo == truth.elbo
    assert result.n_iter == truth.n_iter
    assert np.array_equal(result.mean, truth.mean)


MIXTURE = cavity.GaussianMixture(3)


@pytest.mark.long_cases("client")
def test_a_mixture_has_the_same_bits(scheduler):
    truth, weighted = MIXTURE.fit(X), MIXTURE.fit(X, sample_weight=W)
    same(MIXTURE.fit(array(X).persist()), truth)
    posterior = MIXTURE.fit(frame(copies=W), sample_weight="copies")
    same(posterior, weighted)
    assert posterior.columns == ("height", "width")
    assert posterior.roles == {"sample_weight": "copies"}


@pytest.mark.long
def test_other_mixtures_have_the_same_bits():
    same(MIXTURE.fit(array(X), sample_weight=array(W)), MIXTURE.fit(X, sample_weight=W))
    rows = X.copy()
    rows[::7, 1] = np.nan
    options = {"n_init": 2, "rng": 1, "tol": 1e-3}
    model = cavity.GaussianMixture(2, covariance="diag")
    same(model.fit(array(rows), **options), model.fit(rows, **options))
    same(model.fit(array(X)).update(array(X), tol=1e-3), model.fit(X).update(X, tol=1e-3))
    unit = cavity.UnitMixture(3, learn=("weights",))
    same(unit.fit(array(X[:, 0])), unit.fit(X[:, 0]))
    same(unit.fit(frame()["height"]), unit.fit(X[:, 0]))


def test_selection_reads_where_the_rows_are(tmp_path):
    model, options = cavity.GaussianMixture(1, covariance="spherical"), {"n_components": [2, 3], "tol": 1e-3}
    truth = cavity.select_components(model, X, **options)
    for _ in range(2):  # the second one is done already
        result = cavity.select_components(model, array(X), checkpoint=tmp_path / "fit", **options)
        assert np.array_equal(result.elbo, truth.elbo)


@pytest.mark.long_cases("client")
def test_regressions_have_the_same_bits(scheduler):
    linear, logistic = (
        cavity.LinearRegression(intercept=False),
        cavity.LogisticRegression(intercept=False, prior_variance=1.0),
    )
    same(linear.fit(frame(y=Y), "y"), linear.fit(X, Y))
    truth = logistic.fit(X, LABELS)
    posterior = logistic.fit(array(X).persist(), array(LABELS).persist())
    same(posterior, truth)
    assert posterior.classes == (3, 5)


def test_arrays_and_truth_values():
    linear, logistic = (
        cavity.LinearRegression(intercept=False),
        cavity.LogisticRegression(intercept=False, prior_variance=1.0),
    )
    same(linear.fit(array(X), array(Y)), linear.fit(X, Y))
    posterior = logistic.fit(frame(up=Y > 0), "up")
    same(posterior, logistic.fit(X, Y > 0))
    assert posterior.classes is None


def test_bad_rows_are_named():
    rows, y = X.copy(), Y.copy()
    rows[30_000, 1], y[9] = np.nan, np.inf
    for model, values in (
        (cavity.LinearRegression(intercept=False), array(Y)),
        (cavity.LogisticRegression(intercept=False), array(LABELS)),
    ):
        with pytest.raises(ValueError, match=r"X must be finite, got X\[30000, 1\] = nan \(row 3998 of chunk 2\)"):
            model.fit(array(rows), values)
    with pytest.raises(ValueError, match=r"y must be finite, got y\[9\] = inf \(row 9 of chunk 0\)"):
        cavity.LinearRegression(intercept=False).fit(array(X), array(y))
    with pytest.raises(ValueError, match=r"y must have one entry per row of X, that is 40000, got 39999"):
        cavity.LinearRegression(intercept=False).fit(array(X), array(Y[1:]))
    with pytest.raises(ValueError, match=r"y must hold two classes, got 16 different values"):
        cavity.LogisticRegression(intercept=False).fit(array(X), array(Y))


def test_a_fit_goes_on_from_its_checkpoint(tmp_path):
    options = {"checkpoint": tmp_path / "fit", "checkpoint_every": 0}
    with pytest.warns(ConvergenceWarning, match="stopped by callback"):
        MIXTURE.fit(array(X), callback=lambda event: event.n_iter == 2 and event.objective, **options)
    same(MIXTURE.fit(array(X), **options), MIXTURE.fit(X))


PROBIT = cavity.GLM("probit", intercept=True, standardize=True)
GLMS = {
    "all at once": (PROBIT, {}),
    "one by one": (PROBIT, {"schedule": "sequential"}),
    "stochastic": (PROBIT, {"schedule": "stochastic"}),
    "adf": (PROBIT, {"method": "adf"}),
    "weights": (PROBIT, {"sample_weight": W}),
    "offset": (cavity.GLM("poisson", intercept=False, prior_variance=1.0), {"offset": 0.1 * W, "power": 0.5}),
    "outliers": (cavity.GLM(cavity.likelihoods.StudentT(3.0, 0.5), intercept=True), {"damping": 0.8}),
}


@pytest.mark.long_cases("outliers", "weights")
@pytest.mark.sample(2)
@pytest.mark.parametrize("case", GLMS)
def test_glms_have_the_same_bits(case):
    model, options = GLMS[case]
    y = {"offset": np.round(np.abs(Y)), "outliers": Y}.get(case, LABELS)
    values = {name: array(value) if isinstance(value, np.ndarray) else value for name, value in options.items()}
    truth, result = model.fit(X, y, **options), model.fit(array(X), array(y), **values)
    assert result.log_evidence == truth.log_evidence
    assert result.n_iter == truth.n_iter
    assert result.classes == truth.classes
    for name in ("mean", "covariance"):
        assert np.array_equal(getattr(result, name), getattr(truth, name))
    if case not in ("stochastic", "adf"):
        assert np.array_equal(result.loo_log_density, truth.loo_log_density)
        assert np.array_equal(result.sites.tau, truth.sites.tau)


def test_a_glm_has_the_same_bits_by_a_client(client):
    with dask.config.set(scheduler=client):
        posterior = PROBIT.fit(frame(kind=LABELS).persist(), "kind")
    truth = PROBIT.fit(X, LABELS)
    assert posterior.log_evidence == truth.log_evidence
    assert posterior.columns == ("height", "width")


def test_sites_that_go_back_have_the_same_bits(set_sizes, tmp_path):
    """Contradictory rows: cavities become improper, steps are taken back, and sites shrink at the end."""
    rows, y = X[:17_000], Y[:17_000].copy()
    y[::50] += 1e3
    model = cavity.GLM(cavity.likelihoods.StudentT(1.0, 0.01), intercept=False, prior_variance=1e4)
    options = {"max_iter": 6, "tol": 1e-14}
    with pytest.warns(ConvergenceWarning):
        truth = model.fit(rows, y, **options)
    set_sizes(PASSES_PER_FETCH=2)
    with pytest.warns(ConvergenceWarning):
        posterior = model.fit(array(rows), array(y), checkpoint=tmp_path / "fit", checkpoint_every=0, **options)
    assert np.any(truth.trace["improper"])
    assert posterior.log_evidence == truth.log_evidence
    assert np.array_equal(posterior.trace["change"], truth.trace["change"])


@pytest.mark.long
def test_a_glm_goes_on_from_its_checkpoint(tmp_path):
    options = {"checkpoint": tmp_path / "fit", "checkpoint_every": 0}
    with pytest.warns(ConvergenceWarning, match="stopped by callback"):
        PROBIT.fit(array(X), array(LABELS), callback=lambda event: event.n_iter == 2 and event.change, **options)
    assert PROBIT.fit(array(X), array(LABELS), **options).log_evidence == PROBIT.fit(X, LABELS).log_evidence


def test_what_needs_the_rows_in_one_process_is_refused():
    rows, labels = array(X), array(LABELS)
    with pytest.raises(ValueError, match="X is a collection of dask, and prior_variance would be learnt"):
        PROBIT.fit(rows, labels, learn="prior_variance")
    with pytest.raises(ValueError, match="X is a collection of dask: approximation='diagonal' needs the rows"):
        cavity.GLM("probit", approximation="diagonal", intercept=True).fit(rows, labels)
    with pytest.raises(ValueError, match="X is a collection of dask, of which all rows count, once in ADF: leave out"):
        PROBIT.fit(rows, labels, sample_weight=array(np.where(Y > 0, 1.0, 0.0)))
    with pytest.raises(ValueError, match=r"X must be finite, got X\[30000, 0\] = nan \(row 3998 of chunk 2\)"):
        PROBIT.fit(array(np.where(np.arange(N)[:, None] == 30_000, np.nan, X)), labels)


@pytest.mark.parametrize("columns", [1, pytest.param(2, marks=pytest.mark.long)])
def test_clutter_has_the_bits_of_points_at_hand(columns):
    model = cavity.Clutter(clutter_variance=60.0, noise_variance=4.0)
    points = X[:, :columns]
    result = model.fit(points, schedule="parallel", damping=0.8)
    other = model.fit(array(points), schedule="parallel", damping=0.8)
    assert result.n_iter == other.n_iter > 2
    for name, truth in result.to_arrays()[0].items():
        np.testing.assert_array_equal(other.to_arrays()[0][name], truth, err_msg=name)
    np.testing.assert_array_equal(result.loo_log_density, other.loo_log_density)
    with pytest.raises(ValueError, match="power must be 1"):
        model.fit(array(points), schedule="parallel", power=0.5)


def test_models_of_one_process_say_so():
    message = "is a collection of dask, and this is done with the rows in one process"
    covariance = cavity.covariances.RBF(1.0, [1.0, 1.0])
    for fit in (
        lambda: cavity.Clutter().fit(array(X), schedule="sequential"),
        lambda: cavity.Clutter().fit(array(X), method="adf"),
        lambda: (
            cavity.GaussianProcess(covariance, cavity.likelihoods.Gaussian(1.0)).fit(X[:9], Y[:9]).predict(array(X))
        ),
        lambda: cavity.StreamingGP(covariance, cavity.likelihoods.Gaussian(1.0)).fit(frame(y=Y), "y"),
    ):
        with pytest.raises(TypeError, match=message):
            fit()


def test_a_glm_takes_in_more_rows():
    fitted = PROBIT.fit(X[:100], LABELS[:100])
    posterior = fitted.update(array(X), array(LABELS))
    assert posterior.log_evidence == fitted.update(X, LABELS).log_evidence


def test_states_of_shards_merge_to_that_of_all_rows():
    rows, y = X[:3000, :1], np.sin(X[:3000, 0])
    model = cavity.StreamingGP(
        cavity.covariances.RBF(1.0, 1.0), cavity.likelihoods.Gaussian(0.1), inducing=np.linspace(-6.0, 8.0, 15)[:, None]
    )
    parts = [slice(start, start + 1000) for start in range(0, 3000, 1000)]
    first, *others = dask.compute(*(dask.delayed(model.fit)(rows[part], y[part], learn=False) for part in parts))
    for other in others:
        first = first.merge(other)
    full = model.fit(rows, y, learn=False)
    np.testing.assert_allclose(first.log_bound, full.log_bound, rtol=INTEGRAL)
    for result, truth in zip(first.predict(rows[:50]), full.predict(rows[:50]), strict=True):
        np.testing.assert_allclose(result, truth, rtol=OPTIMUM, atol=AT_REST)


def test_estimators_of_scikit_learn_do_not_load_collections():
    from cavity.sklearn import BayesianGaussianMixture, GaussianProcessRegressor

    for estimator, values in ((BayesianGaussianMixture(), ()), (GaussianProcessRegressor(), (Y,))):
        with pytest.raises(TypeError, match="collections of dask would be read whole"):
            estimator.fit(array(X), *values)


@pytest.mark.parametrize("n_rows", [N, 1000])  # those of few rows are read at once
def test_a_fit_without_workers_says_what_it_waits_for(n_rows, monkeypatch, set_sizes):
    options = {"n_workers": 0, "threads_per_worker": 1, "processes": False, "dashboard_address": ":0"}
    warnings, warn = [], remote.warn
    set_sizes(WORKER_POLL_SECONDS=0.05)
    with distributed.LocalCluster(**options) as cluster, distributed.Client(cluster) as client:

        def warn_and_scale(message, category):
            warnings.append(message)
            cluster.scale(1)
            warn(message, category)

        monkeypatch.setattr(dask_scheduler, "warn", warn_and_scale)
        with dask.config.set(scheduler=client), pytest.warns(RuntimeWarning, match="no worker is connected") as caught:
            posterior = cavity.LinearRegression(intercept=False).fit(array(X[:n_rows]), array(Y[:n_rows]))
    same(posterior, cavity.LinearRegression(intercept=False).fit(X[:n_rows], Y[:n_rows]))
    assert "Ctrl-C stops it" in warnings[0]
    assert {item.filename for item in caught} == {__file__}


def test_a_fit_whose_workers_leave_says_so_again(monkeypatch, set_sizes):
    """And goes on with the sites and sums that are computed anew."""
    options = {"n_workers": 1, "threads_per_worker": 1, "processes": False, "dashboard_address": ":0"}
    warnings = []
    set_sizes(WORKER_POLL_SECONDS=0.05)
    with distributed.LocalCluster(**options) as cluster, distributed.Client(cluster) as client:

        def scale(message, category):
            warnings.append((message, category))
            cluster.scale(1)

        def leave(event):
            if event.stage in ("fit", "last") and event.n_iter in (1, 3):
                cluster.scale(0)
                while client.nthreads():
                    time.sleep(0.01)

        monkeypatch.setattr(dask_scheduler, "warn", scale)
        with dask.config.set(scheduler=client):
            posterior = PROBIT.fit(array(X), array(LABELS), callback=leave)
    truth = PROBIT.fit(X, LABELS)
    assert posterior.log_evidence == truth.log_evidence
    assert np.array_equal(posterior.sites.tau, truth.sites.tau)
    assert warnings == [(dask_scheduler.WITHOUT_WORKER, RuntimeWarning)] * 2
