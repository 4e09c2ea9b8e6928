"""Responses that dask has: its workers fit them, in the bits of threads."""

import numpy as np
import pytest

import cavity
from cavity import likelihoods

da = pytest.importorskip("dask.array")
RNG = np.random.default_rng(5)
N, G = 30, 22
X = RNG.normal(size=(N, 2))
COUNTS = RNG.poisson(RNG.gamma(3.0, 1 / 3.0, size=(N, G)) * np.exp(1.0 + X @ RNG.normal(0.0, 0.5, size=(2, G))))
EXPOSURE = RNG.uniform(0.5, 2.0, size=(N, G))
NOISY = X @ RNG.normal(size=(2, G)) + RNG.standard_t(2.0, size=(N, G))
DONORS = {"groups": {"donor": np.arange(N) % 5}}
MODELS = {
    "counts": (cavity.GLM("negative-binomial", intercept=True), COUNTS, {"exposure": EXPOSURE}),
    "shared": (cavity.GLM("negative-binomial", intercept=True), COUNTS[:, :12], {"share": "dispersion"}),
    "one by one": (cavity.GLM(likelihoods.StudentT(3.0, 0.3), intercept=True), NOISY[:, 10:19], {}),  # the ninth alone
    "donors": (cavity.MixedGLM("donor", "poisson", intercept=True), COUNTS, DONORS),
}


@pytest.fixture(scope="module")
def schedulers():
    """The local schedulers, and a client."""
    distributed = pytest.importorskip("distributed")
    options = {"n_workers": 2, "threads_per_worker": 1, "processes": False, "dashboard_address": ":0"}
    with distributed.LocalCluster(**options) as cluster, distributed.Client(cluster, set_as_default=False) as client:
        yield {"sync": "sync", "threads": "threads", "client": client}


def bits_of(many):
    return {name: value.tobytes() for name, value in many.to_arrays()[0].items()}


@pytest.mark.filterwarnings("ignore::cavity.errors.ConvergenceWarning")
@pytest.mark.long_cases("shared", "one by one", "donors")
@pytest.mark.parametrize("name", MODELS)
def test_workers_give_the_bits_of_threads(name, schedulers, set_sizes, tmp_path):
    dask = pytest.importorskip("dask")
    set_sizes(MAX_BATCH_RESPONSES=4)
    model, Y, options = MODELS[name]
    Y = Y.astype(float)
    Y[3, 5] = np.nan
    here = bits_of(model.fit_many(X, Y, **options))
    remote = {key: da.from_array(v, chunks=(N, 7)) if key == "exposure" else v for key, v in options.items()}
    for scheduler in schedulers.values():
        with dask.config.set(scheduler=scheduler):
            there = model.fit_many(X, da.from_array(Y, chunks=(11, 5)), **remote)
            assert bits_of(there) == here
    path, events = tmp_path / "many.ck", []
    stopped = model.fit_many(
        X, da.from_array(Y, chunks=(11, 5)), **remote, checkpoint=path, callback=lambda e: events.append(e) or True
    )
    assert not stopped.converged.all()
    assert bits_of(model.fit_many(X, da.from_array(Y, chunks=(11, 5)), **remote, checkpoint=path)) == here


def test_data_frames_of_dask_have_their_names():
    pd, dd = pytest.importorskip("pandas"), pytest.importorskip("dask.dataframe")
    frame = pd.DataFrame(COUNTS, columns=[f"gene{k}" for k in range(G)])
    model = cavity.GLM("poisson", intercept=True)
    many = model.fit_many(X, dd.from_pandas(frame, npartitions=3))
    assert many.names.tolist() == [*frame.columns]
    np.testing.assert_array_equal(many.mean, model.fit_many(X, COUNTS).mean)


@pytest.mark.parametrize("scheduler", ["sync", "client"])
def test_what_cannot_be_computed_is_said(scheduler, schedulers, set_sizes):
    dask, model = pytest.importorskip("dask"), cavity.GLM("poisson", intercept=True)
    set_sizes(MAX_BATCH_RESPONSES=4)

    def fail(block, block_info=None):
        if block_info and block_info[0]["chunk-location"][1] > 1:
            raise OSError("disk")
        return block

    Y = da.from_array(COUNTS.astype(float), chunks=(N, 5))
    with dask.config.set(scheduler=schedulers[scheduler]):
        broken = Y.map_blocks(fail, dtype=float, meta=np.empty((0, 0)))
        with pytest.raises(RuntimeError, match="Y: blocks cannot be computed: OSError: disk"):
            model.fit_many(X, broken)
        exposure = np.where(np.arange(G) == 7, np.where(np.arange(N) == 2, -1.0, 1.0)[:, None], 1.0)
        with pytest.raises(ValueError, match="exposure must be positive, got -1.0 in row 2 of response 'y8'"):
            model.fit_many(X, Y, exposure=da.from_array(exposure, chunks=(N, 5)))


def test_rows_that_are_observed_are_counted():
    Y = COUNTS.astype(float)
    Y[:3, 1] = np.nan
    weights = np.where(np.arange(N) == 4, 0.0, 1.0)
    many = cavity.GLM("poisson", intercept=True).fit_many(X, Y, missing="drop", sample_weight=weights)
    assert many.n_observed[:3].tolist() == [N - 1, N - 4, N - 1]
    assert many.table("x1").columns["rows"][1] == many.summary().columns["rows"][1] == N - 4
