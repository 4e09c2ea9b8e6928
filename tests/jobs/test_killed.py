"""Fits that are killed for real, by signals at random moments, or whose disk is full: they go on to the same bits."""

import os
import signal
import subprocess
import sys
import time
from contextlib import nullcontext

import numpy as np
import pytest
from support import jobs
from support.jobs import FITS, REFUSED, STOPPED, WARNED, bits

import cavity

SIGNALS = {"kill": getattr(signal, "SIGKILL", None), "term": signal.SIGTERM, "ctrl-c": signal.SIGINT}


@pytest.fixture(scope="module")
def whole(server, tmp_path_factory):
    """Of each fit that nobody interrupts the bits, how many events it tells, the seconds it takes."""
    results = {}

    def of(name):
        if name not in results:
            folder = tmp_path_factory.mktemp(name)
            out, reports = folder / "out.npz", folder / "heard"
            process, begun = (
                server.start(name, folder / "fit.npz", every=1e9, out=out, reports=reports),
                time.perf_counter(),
            )
            assert server.ended(process) == 0
            results[name] = bits(out), reports.stat().st_size, time.perf_counter() - begun
        return results[name]

    return of


def test_what_was_killed_goes_on_to_the_same_bits(server, whole, tmp_path):
    _killed("mixture", "kill", 1, server, whole, tmp_path)


@pytest.mark.long
@pytest.mark.parametrize("by", SIGNALS)
@pytest.mark.parametrize("name", FITS)
def test_what_was_killed_often_goes_on_to_the_same_bits(name, by, server, whole, tmp_path):
    _killed(name, by, 9, server, whole, tmp_path)


def _killed(name, by, kills, server, whole, folder):
    """Kill a fit so many times at random moments; killed by what can be heard, it must write what it has."""
    (expected, events, seconds), rng = whole(name), np.random.default_rng(kills)
    every = 0.02 if by == "kill" else 1e9
    done, path, out, reports = 0, folder / "fit.npz", folder / "out.npz", folder / "heard"
    while True:
        process = server.start(name, path, every=every, out=out, reports=reports)
        if done < kills:
            time.sleep(rng.uniform(0.0, seconds / 2))
            os.kill(process, SIGNALS[by])
        if server.ended(process) == 0:
            assert bits(out) == expected
            if done >= kills:
                break
            for file in (path, out, reports):
                file.unlink()
            continue
        done += 1
    second = 2 * events  # starting points, evaluations of searches and moves are told again
    assert reports.stat().st_size <= events + kills * second
    assert {item.name for item in folder.iterdir()} <= {"fit.npz", "out.npz", "heard", "fit.npz.lock"}


@pytest.mark.parametrize("by", ["term", pytest.param("ctrl-c", marks=pytest.mark.long)])
def test_what_hears_the_signal_loses_nothing(by, server, whole, tmp_path):
    """Far from the time for the next writing, the state of the last pass is written all the same."""
    (expected, events, _), out, reports = whole("unit"), tmp_path / "out.npz", tmp_path / "heard"
    process = server.start("unit", tmp_path / "fit.npz", every=1e9, out=out, reports=reports, seconds=0.01)
    while not reports.exists() or reports.stat().st_size < events // 3:
        time.sleep(0.005)
    os.kill(process, SIGNALS[by])
    server.ended(process)
    before = reports.stat().st_size
    assert before < events
    assert server.ended(server.start("unit", tmp_path / "fit.npz", every=1e9, out=out, reports=reports)) == 0
    assert bits(out) == expected
    assert reports.stat().st_size <= events + 1


def test_a_full_disk_leaves_the_last_one_whole(server, whole, tmp_path):
    """Files may have no more bytes than so many: writing fails for real as the checkpoint grows."""
    expected, path, out, reports = whole("unit")[0], tmp_path / "fit.npz", tmp_path / "out.npz", tmp_path / "heard"
    process = server.start("unit", path, every=0.0, out=out, seconds=0.0, reports=reports, most=10)
    assert server.ended(process) == STOPPED
    size = path.stat().st_size
    assert server.ended(server.start("unit", path, every=0.0, out=out, limit=size + 100, seconds=0.0)) == WARNED
    assert bits(out) == expected
    assert 0 < path.stat().st_size <= size + 100
    assert {item.name for item in tmp_path.iterdir()} == {"fit.npz", "out.npz", "heard"}
    out.unlink()
    assert server.ended(server.start("unit", path, every=0.0, out=out, seconds=0.0)) == 0
    assert bits(out) == expected


def test_a_second_process_waits_until_the_first_is_gone(server, whole, tmp_path):
    path, out = tmp_path / "fit.npz", tmp_path / "out.npz"
    first = server.start("unit", path, every=0.0, out=out, seconds=0.02)
    while not path.exists():
        time.sleep(0.01)
    assert server.ended(server.start("unit", path, every=0.0, out=out)) == REFUSED
    assert out.read_text().endswith(f"is in use by process {first}: wait for it, or give another path")
    os.kill(first, signal.SIGKILL)
    assert server.ended(first) == -signal.SIGKILL
    assert server.ended(server.start("unit", path, every=0.0, out=out, seconds=0.0)) == 0
    assert bits(out) == whole("unit")[0]


@pytest.mark.long
def test_another_fit_is_refused_by_what_differs(tmp_path, server):
    path, out = tmp_path / "fit.npz", tmp_path / "out.npz"
    assert server.ended(server.start("unit", path, every=0.0, out=out, seconds=0.0)) == 0
    before = path.read_bytes()
    assert server.ended(server.start("mixture", path, every=0.0, out=out, seconds=0.0)) == REFUSED
    assert "is of another fit: model was UnitMixture, is GaussianMixture" in out.read_text()
    assert path.read_bytes() == before


# ------------------------------------------------------------------------------------------ every fit, from any pass


class Stop(Exception):
    """A callback has failed."""


RNG = np.random.default_rng(0)
X, BATCH = jobs.rows(600), 4.0 * RNG.normal(size=(5, 20, 1))
Y = X[:, 0] + RNG.normal(size=len(X)) > 0
COPIES, GAPS = np.arange(600.0), np.where(np.arange(2 * len(X)).reshape(-1, 2) % 13 == 0, np.nan, X)
FAR, OPEN = cavity.likelihoods.StudentT(3.0, 0.1), cavity.likelihoods.StudentT(None, None)
EVERY = {  # of fits; those that stand first are tested by default
    "diag with gaps": lambda **k: cavity.GaussianMixture(3, "diag").fit(GAPS, sample_weight=COPIES, max_iter=40, **k),
    "clutter": lambda **k: cavity.Clutter().fit(X[:60, 0], order="random", rng=3, damping=0.5, **k),
    "probit": lambda **k: cavity.GLM("probit").fit(X, Y, schedule="sequential", **k),
    "double loop": lambda **k: cavity.GLM(FAR, prior_mean=1.0).fit(X[:40], 10.0 * X[:40, 1], max_iter=15, **k),
    "diagonal": lambda **k: cavity.GLM("probit", prior_mean=1.0, approximation="diagonal").fit(X, Y, **k),
    "logistic": lambda **k: cavity.LogisticRegression(intercept=False, prior_variance=None, ard=True).fit(X, Y, **k),
    "minibatches": lambda **k: cavity.UnitMixture(3).fit_stochastic(X[:, 0], batch_size=70, n_epochs=2, **k),
    "selection": lambda **k: cavity.select_components(cavity.GaussianMixture(1), X, (1, 3), max_iter=9, **k).best,
    "full": lambda **k: cavity.GaussianMixture(4).fit(X, n_init=2, rng=1, accelerate="squarem", max_iter=40, **k),
    "tied": lambda **k: cavity.GaussianMixture(4, "tied").fit(X, moves=True, max_iter=60, **k),
    "spherical": lambda **k: cavity.GaussianMixture(4, "spherical").fit(X, **k),
    "clutter at once": lambda **k: cavity.Clutter().fit(X[:60, 0], schedule="parallel", **k),
    "clutter lost": lambda **k: cavity.Clutter(prior_variance=1e4).fit(8.0 * X[:12, 0], schedule="parallel", **k),
    "clutter lanes": lambda **k: cavity.Clutter().fit(BATCH, **k),
    "clutter batch": lambda **k: cavity.Clutter().fit(BATCH, schedule="parallel", **k),
    "clutter power": lambda **k: cavity.Clutter().fit(X[:20, 0], power=0.5, **k),
    "parallel": lambda **k: cavity.GLM("probit").fit(X, Y, **k),
    "dual": lambda **k: cavity.GLM("probit", prior_mean=1.0).fit(X[:2].T, [0, 1], **k),
    "averaged": lambda **k: cavity.GLM("probit", prior_mean=1.0).fit(X, Y, schedule="stochastic", **k),
    "learnt": lambda **k: cavity.GLM(OPEN).fit(X[:80], X[:80, 1] ** 3, learn=True, **k),
    "linear": lambda **k: cavity.LinearRegression(intercept=False, prior_variance=None, ard=True).fit(
        X, X[:, 0] + Y, **k
    ),
    "minibatches of rows": lambda **k: cavity.GaussianMixture(3, "diag").fit_stochastic(X, batch_size=70, **k),
}
CASES = [pytest.param(name, marks=[] if i < 8 else [pytest.mark.long]) for i, name in enumerate(EVERY)]


def saved(posterior, folder):
    """The bits of a posterior."""
    posterior.save(folder / "posterior.npz")
    return bits(folder / "posterior.npz")


@pytest.mark.filterwarnings("ignore")  # that some do not converge in so few passes
@pytest.mark.parametrize("n_stops", [1, pytest.param(6, marks=pytest.mark.long)])
@pytest.mark.parametrize("is_killed", [True, False])  # or stopped by the callback
@pytest.mark.parametrize("name", CASES)
def test_every_fit_goes_on_from_any_pass(name, is_killed, n_stops, tmp_path):
    fit, events = EVERY[name], []
    expected = saved(fit(callback=lambda event: events.append(event)), tmp_path)
    for number in np.unique(np.linspace(0, len(events), n_stops + 2)[1:-1].astype(int).clip(1)):
        path, heard = tmp_path / f"{number}.npz", []

        def plug(_, reports=heard, number=number):
            reports.append(1)
            if len(reports) == number and is_killed:
                raise Stop
            return len(reports) == number

        with pytest.raises(Stop) if is_killed else nullcontext():
            fit(callback=plug, checkpoint=path)
        assert saved(fit(checkpoint=path), tmp_path) == expected
        assert saved(fit(checkpoint=path), tmp_path) == expected  # when it is done, too


def test_threads_and_files_may_change(tmp_path):
    """What does not decide the bits may differ when a fit goes on."""
    model, path = cavity.UnitMixture(3), tmp_path / "fit.npz"
    expected = saved(model.fit(X[:, 0]), tmp_path)
    np.save(tmp_path / "y.npy", X[:, 0])

    def plug(event):
        if event.stage == "fit" and event.n_iter == 4:
            raise Stop

    with pytest.raises(Stop):
        model.fit(X[:, 0], checkpoint=path, callback=plug)
    assert saved(model.fit(tmp_path / "y.npy", checkpoint=path, n_threads=2, checkpoint_every=1), tmp_path) == expected


MEMORY = """
import resource, sys
import cavity

path, limit = sys.argv[1], int(sys.argv[2])
model = cavity.UnitMixture(3)
model.fit(path, max_iter=2, checkpoint=f"{path}.first", checkpoint_every=0)  # what is loaded is no memory of a row
now = int(open("/proc/self/statm").read().split()[0]) * resource.getpagesize()
resource.setrlimit(resource.RLIMIT_AS, (now + limit, resource.RLIM_INFINITY))
print(model.fit(path, max_iter=4, checkpoint=f"{path}.second", checkpoint_every=0).n_iter)
"""


@pytest.mark.long
@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="limits of the address space are those of Linux")
def test_memory_does_not_grow_with_the_rows(tmp_path):
    """The rows are 160 MB; the fit with its checkpoint has a tenth of that."""
    np.save(tmp_path / "y.npy", RNG.normal(np.repeat([-3.0, 0.0, 4.0, 5.0], 5_000_000)))
    code = [sys.executable, "-W", "ignore", "-c", MEMORY, str(tmp_path / "y.npy"), str(16 << 20)]
    done = subprocess.run(code, capture_output=True, text=True, check=False)
    assert done.stdout == "4\n", done.stderr
