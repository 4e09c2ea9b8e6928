"""Fits to collections of dask: the bits of the same rows in memory, for every model, by every scheduler."""

import numpy as np
import pandas as pd
import pytest

import cavity
from cavity.base.errors import ConvergenceWarning

dask = pytest.importorskip("dask")
da = pytest.importorskip("dask.array")
dd = pytest.importorskip("dask.dataframe")
distributed = pytest.importorskip("distributed")

N = 40_000
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
    options = {"n_workers": 2, "threads_per_worker": 1, "processes": False, "dashboard_address": None}
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


def same(found, known):
    assert found.elbo == known.elbo
    assert found.n_iter == known.n_iter
    assert np.array_equal(found.mean, known.mean)


MIXTURE = cavity.GaussianMixture(3)


def test_a_mixture_has_the_same_bits(scheduler):
    known, weighted = MIXTURE.fit(X), MIXTURE.fit(X, sample_weight=W)
    same(MIXTURE.fit(array(X)), known)
    same(MIXTURE.fit(array(X), sample_weight=array(W)), weighted)
    found = MIXTURE.fit(frame(copies=W), sample_weight="copies")
    same(found, weighted)
    assert found.columns == ("height", "width")
    assert found.roles == {"sample_weight": "copies"}


def test_other_mixtures_have_the_same_bits():
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
    known = cavity.select_components(model, X, **options)
    for _ in range(2):  # the second one is done already
        found = cavity.select_components(model, array(X), checkpoint=tmp_path / "fit", **options)
        assert np.array_equal(found.elbo, known.elbo)


def test_regressions_have_the_same_bits(scheduler):
    linear, logistic = cavity.LinearRegression(), cavity.LogisticRegression(prior_variance=1.0)
    same(linear.fit(array(X), array(Y)), linear.fit(X, Y))
    same(linear.fit(frame(y=Y), "y"), linear.fit(X, Y))
    known = logistic.fit(X, LABELS)
    for found in (logistic.fit(array(X), array(LABELS)), logistic.fit(frame(kind=LABELS), "kind")):
        same(found, known)
        assert found.classes == (3, 5)
    assert logistic.fit(array(X), array(Y) > 0).classes is None


def test_bad_rows_are_named():
    rows, y = X.copy(), Y.copy()
    rows[30_000, 1], y[9] = np.nan, np.inf
    for model, given in ((cavity.LinearRegression(), array(Y)), (cavity.LogisticRegression(), array(LABELS))):
        with pytest.raises(ValueError, match=r"X must be finite, got X\[30000, 1\] = nan \(row 3998 of chunk 2\)"):
            model.fit(array(rows), given)
    with pytest.raises(ValueError, match=r"y must be finite, got y\[9\] = inf \(row 9 of chunk 0\)"):
        cavity.LinearRegression().fit(array(X), array(y))
    with pytest.raises(ValueError, match=r"y must have one entry per row of X, that is 40000, got 39999"):
        cavity.LinearRegression().fit(array(X), array(Y[1:]))
    with pytest.raises(ValueError, match=r"y must hold two classes, got 16 different values"):
        cavity.LogisticRegression().fit(array(X), array(Y))


def test_a_fit_goes_on_from_its_checkpoint(tmp_path):
    options = {"checkpoint": tmp_path / "fit", "checkpoint_every": 0}
    with pytest.warns(ConvergenceWarning, match="stopped by callback"):
        MIXTURE.fit(array(X), callback=lambda event: event.n_iter == 2 and event.objective, **options)
    same(MIXTURE.fit(array(X), **options), MIXTURE.fit(X))
