"""Fits that are killed for real, by signals at random moments, or whose disk is full: they go on to the same bits."""

import os
import signal
import time

import numpy as np
import pytest
from support.jobs import FITS, REFUSED, STOPPED, WARNED, Server, bits

pytestmark = pytest.mark.skipif(os.name != "posix", reason="forks and signals")

SIGNALS = {"kill": signal.SIGKILL, "term": signal.SIGTERM, "ctrl-c": signal.SIGINT}


@pytest.fixture(scope="module")
def server():
    server = Server()
    yield server
    server.close()


@pytest.fixture(scope="module")
def whole(server, tmp_path_factory):
    """Of each fit that nobody interrupts the bits, how many events it tells, the seconds it takes."""
    found = {}

    def of(name):
        if name not in found:
            folder = tmp_path_factory.mktemp(name)
            out, heard = folder / "out.npz", folder / "heard"
            process, begun = (
                server.start(name, folder / "fit.npz", every=1e9, out=out, heard=heard),
                time.perf_counter(),
            )
            assert server.ended(process) == 0
            found[name] = bits(out), heard.stat().st_size, time.perf_counter() - begun
        return found[name]

    return of


@pytest.mark.parametrize(("name", "by"), [("mixture", "kill"), ("glm", "term"), ("unit", "ctrl-c")])
def test_what_was_killed_goes_on_to_the_same_bits(name, by, server, whole, tmp_path):
    _killed(name, by, 1, server, whole, tmp_path)


@pytest.mark.long
@pytest.mark.parametrize("by", SIGNALS)
@pytest.mark.parametrize("name", FITS)
def test_what_was_killed_often_goes_on_to_the_same_bits(name, by, server, whole, tmp_path):
    _killed(name, by, 9, server, whole, tmp_path)


def _killed(name, by, kills, server, whole, folder):
    """Kill a fit so many times at random moments; killed by what can be heard, it must write what it has."""
    (wanted, events, seconds), rng = whole(name), np.random.default_rng(kills)
    every = 0.02 if by == "kill" else 1e9
    done, path, out, heard = 0, folder / "fit.npz", folder / "out.npz", folder / "heard"
    while True:
        process = server.start(name, path, every=every, out=out, heard=heard)
        if done < kills:
            time.sleep(rng.uniform(0.0, seconds / 2))
            os.kill(process, SIGNALS[by])
        if server.ended(process) == 0:
            assert bits(out) == wanted
            if done >= kills:
                break
            for file in (path, out, heard):
                file.unlink()
            continue
        done += 1
    again = 2 * events  # starting points, evaluations of searches and moves are told again
    assert heard.stat().st_size <= events + kills * again
    assert {each.name for each in folder.iterdir()} <= {"fit.npz", "out.npz", "heard", "fit.npz.lock"}


@pytest.mark.parametrize("by", ["term", pytest.param("ctrl-c", marks=pytest.mark.long)])
def test_what_hears_the_signal_loses_nothing(by, server, whole, tmp_path):
    """Far from the time for the next writing, the state of the last pass is written all the same."""
    (wanted, events, _), out, heard = whole("unit"), tmp_path / "out.npz", tmp_path / "heard"
    process = server.start("unit", tmp_path / "fit.npz", every=1e9, out=out, heard=heard, seconds=0.01)
    while not heard.exists() or heard.stat().st_size < events // 3:
        time.sleep(0.005)
    os.kill(process, SIGNALS[by])
    server.ended(process)
    before = heard.stat().st_size
    assert before < events
    assert server.ended(server.start("unit", tmp_path / "fit.npz", every=1e9, out=out, heard=heard)) == 0
    assert bits(out) == wanted
    assert heard.stat().st_size <= events + 1


def test_a_full_disk_leaves_the_last_one_whole(server, whole, tmp_path):
    """Files may have no more bytes than so many: writing fails for real as the checkpoint grows."""
    wanted, path, out, heard = whole("unit")[0], tmp_path / "fit.npz", tmp_path / "out.npz", tmp_path / "heard"
    assert server.ended(server.start("unit", path, every=0.0, out=out, seconds=0.0, heard=heard, most=10)) == STOPPED
    size = path.stat().st_size
    assert server.ended(server.start("unit", path, every=0.0, out=out, limit=size + 100, seconds=0.0)) == WARNED
    assert bits(out) == wanted
    assert 0 < path.stat().st_size <= size + 100
    assert {each.name for each in tmp_path.iterdir()} == {"fit.npz", "out.npz", "heard"}
    out.unlink()
    assert server.ended(server.start("unit", path, every=0.0, out=out, seconds=0.0)) == 0
    assert bits(out) == wanted


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
