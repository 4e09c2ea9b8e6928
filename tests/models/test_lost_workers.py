"""Faults made for real: workers that are killed or run out of memory, chunks that raise, clients closed, Ctrl-C."""

import os
import signal
import threading
import time

import numpy as np
import pytest

import cavity

dask = pytest.importorskip("dask")
da = pytest.importorskip("dask.array")
distributed = pytest.importorskip("distributed")
pytestmark = [
    pytest.mark.skipif(os.name != "posix", reason="it sends signals"),
    pytest.mark.filterwarnings("ignore"),  # of dask, while it starts workers anew
    pytest.mark.skipif(
        tuple(map(int, distributed.__version__.split(".")[:2])) < (2026, 8),
        reason="this distributed may wait for ever when a cluster is closed whose workers were killed",
    ),
]

N, CHUNK = 60_000, 6_000


def rows(change=lambda block: block):
    """Return rows that workers make, the same whenever they do; functions within this one are sent as they are."""

    def made(block_info=None):
        (start, stop), _ = block_info[None]["array-location"]
        rng = np.random.default_rng(start)
        return change(rng.normal(size=(stop - start, 2)) + rng.choice([-4.0, 1.0, 5.0], size=(stop - start, 1)))

    return da.map_blocks(made, chunks=((CHUNK,) * (N // CHUNK), (2,)), dtype=float, meta=np.empty((0, 2)))


X = rows().compute(scheduler="sync")
Y = X @ [0.5, -0.3] + np.random.default_rng(0).normal(size=N) > 0
MIXTURE, GLM = cavity.GaussianMixture(3), cavity.GLM("probit", intercept=True)


@pytest.fixture
def cluster():
    options = {"n_workers": 3, "threads_per_worker": 1, "dashboard_address": ":0"}
    with distributed.LocalCluster(**options) as cluster:
        yield cluster


@pytest.fixture
def client(cluster):
    with distributed.Client(cluster, set_as_default=False) as client, dask.config.set(scheduler=client):
        client.wait_for_workers(3, timeout=60)
        yield client


def killer(client, passes, how_many=1):
    """Return a callback that kills workers after so many passes, those that hold most first, once."""
    left = [passes]

    def callback(event):
        if left and event.stage in ("fit", "last") and event.n_iter == left[0]:
            left.clear()
            held = {worker: len(keys) for worker, keys in client.has_what().items()}
            pids = client.run(os.getpid)
            for worker in sorted(pids, key=held.get)[-how_many:]:
                os.kill(pids[worker], signal.SIGKILL)

    return callback


@pytest.mark.long
def test_a_killed_worker_changes_no_bit(client):
    posterior = MIXTURE.fit(client.persist(rows()), callback=killer(client, 2))
    assert posterior.elbo == MIXTURE.fit(X).elbo


@pytest.mark.long
def test_two_of_three_killed_change_no_bit(client):
    posterior = MIXTURE.fit(client.persist(rows()), callback=killer(client, 2, how_many=2))
    assert posterior.elbo == MIXTURE.fit(X).elbo


@pytest.mark.long
@pytest.mark.parametrize("passes", [1, 2, 8])
def test_lost_sites_are_made_again(passes, client, set_sizes):
    set_sizes(PASSES_PER_FETCH=passes)
    y = da.from_array(Y, chunks=CHUNK)
    posterior = GLM.fit(client.persist(rows()), client.persist(y), callback=killer(client, 3))
    truth = GLM.fit(X, Y)
    assert posterior.log_evidence == truth.log_evidence
    assert np.array_equal(posterior.sites.tau, truth.sites.tau)


@pytest.mark.long
def test_workers_that_die_of_a_chunk_are_told():
    """As where the system kills the process that asks for too much memory."""
    options = {"n_workers": 3, "threads_per_worker": 1, "dashboard_address": ":0"}
    first = float(X[0, 0])
    with (
        dask.config.set({"distributed.scheduler.allowed-failures": 1}),
        distributed.LocalCluster(**options) as some,
        distributed.Client(some, set_as_default=False) as client,
        dask.config.set(scheduler=client),
        pytest.raises(RuntimeError, match=r"X: rows 0 to .*the workers that tried have died, out of memory perhaps"),
    ):
        MIXTURE.fit(rows(lambda block: os.kill(os.getpid(), signal.SIGKILL) if block[0, 0] == first else block))


@pytest.mark.long
def test_a_client_closed_in_mid_fit_is_told(cluster, tmp_path):
    options = {"checkpoint": tmp_path / "fit", "checkpoint_every": 0}
    client = distributed.Client(cluster, set_as_default=False)
    with dask.config.set(scheduler=client):
        data = rows()
        with pytest.raises(RuntimeError, match="the dask client was closed before the fit was done"):
            MIXTURE.fit(
                data, callback=lambda event: event.n_iter == 2 and event.stage == "fit" and client.close(), **options
            )
    with distributed.Client(cluster, set_as_default=False) as another, dask.config.set(scheduler=another):
        assert MIXTURE.fit(rows(), **options).elbo == MIXTURE.fit(X).elbo


@pytest.mark.long
def test_ctrl_c_cancels_what_was_under_way(client):
    data = rows(lambda block: (time.sleep(0.3), block)[1])
    threading.Timer(1.5, os.kill, (os.getpid(), signal.SIGINT)).start()
    with pytest.raises(KeyboardInterrupt):
        MIXTURE.fit(data)
    deadline = time.perf_counter() + 20.0
    while any(client.processing().values()) and time.perf_counter() < deadline:
        time.sleep(0.1)
    assert not any(client.processing().values())
    assert client.submit(sum, (1, 2)).result() == 3


@pytest.mark.long
def test_a_worker_that_runs_out_of_memory_changes_no_bit(tmp_path):
    """Its nanny ends it; the second time the chunk takes less."""
    flag = str(tmp_path / "was here")

    def hungry(block):
        if not os.path.exists(flag):
            open(flag, "w").close()
            held = np.ones(1 << 28)  # 2 GB
            time.sleep(20.0)
            return block + 0.0 * held[0]
        return block

    options = {"n_workers": 2, "threads_per_worker": 1, "dashboard_address": ":0", "memory_limit": "1 GB"}
    with (
        distributed.LocalCluster(**options) as cluster,
        distributed.Client(cluster, set_as_default=False) as client,
        dask.config.set(scheduler=client),
    ):
        posterior = MIXTURE.fit(rows(hungry))
    assert os.path.exists(flag)
    assert posterior.elbo == MIXTURE.fit(X).elbo
