"""The file of a fit that goes on: what it keeps, when it writes, what it refuses."""

import os
import time
import warnings
from contextlib import suppress

import numpy as np
import pytest
from support.examples import count_draws

import cavity
from cavity import NumericalWarning
from cavity.base import persistence
from cavity.jobs import checkpoint as checkpoints
from cavity.jobs.checkpoint import Checkpoint
from cavity.jobs.job import Job

MODEL, X = cavity.UnitMixture(2), np.arange(10.0)
ROOT = ()


def opened(path, every=0.0, **settings):
    return Checkpoint(path, every).open(MODEL, {"y": X}, **settings)


def test_what_a_stage_keeps_comes_back(tmp_path):
    path = tmp_path / "fit.npz"
    with opened(path) as fit:
        assert fit.restore(ROOT) is None
        fit.store(("start 1",), {"pass": 3, "at": np.arange(3.0)})
        fit.store(("start 1", "move"), MODEL)
    with opened(path) as fit:
        result = fit.restore(("start 1",))
        assert result["pass"] == 3
        np.testing.assert_array_equal(result["at"], np.arange(3.0))
        assert fit.restore(("start 1", "move"), cavity.UnitMixture) == MODEL
    assert os.listdir(tmp_path) == ["fit.npz"]


def test_a_stage_supersedes_those_within_it_and_no_others(tmp_path):
    path = tmp_path / "fit.npz"
    with opened(path) as fit:
        for stage in (("a",), ("a", "b"), ("a", "b", "c"), ("ab",), ("d", "a")):
            fit.store(stage, list(stage))
        fit.store(("a", "b"), "new")
    with opened(path) as fit:  # and what nobody asked for is written again
        fit.store(("d",), "last")
    with opened(path) as fit:
        for stage, value in {
            ("a",): ["a"],
            ("a", "b"): "new",
            ("a", "b", "c"): None,
            ("ab",): ["ab"],
            ("d", "a"): None,
            ("d",): "last",
        }.items():
            assert fit.restore(stage) == value


def test_it_is_written_every_so_often_and_at_the_end(tmp_path, monkeypatch):
    path, now = tmp_path / "fit.npz", [0.0]
    monkeypatch.setattr(time, "monotonic", lambda: now[0])
    written = []
    monkeypatch.setattr(persistence, "write", lambda *arguments: written.append(now[0]))
    with opened(path, every=10.0) as fit:
        for now[0] in (1.0, 9.9, 10.0, 12.0, 19.0, 21.0, 22.0):
            fit.store(ROOT, now[0])
    assert written == [10.0, 21.0, 22.0]
    with suppress(KeyboardInterrupt), opened(path, every=10.0) as fit:
        fit.store(ROOT, 1)
        raise KeyboardInterrupt
    assert len(written) == 4
    with opened(path):
        pass
    assert len(written) == 4


def test_a_disk_that_is_full_for_a_while(tmp_path, monkeypatch):
    path, write = tmp_path / "fit.npz", persistence.write
    with opened(path) as fit:
        fit.store(ROOT, 1)
    before = path.read_bytes()

    def full(*_):
        raise OSError(28, "No space left on device")

    with opened(path) as fit:
        monkeypatch.setattr(persistence, "write", full)
        with pytest.warns(NumericalWarning, match="No space left on device.: the last one is whole"):
            fit.store(ROOT, 2)
        with warnings.catch_warnings(action="error"):
            fit.store(ROOT, 3)
        assert path.read_bytes() == before
        monkeypatch.setattr(persistence, "write", write)
    with opened(path) as fit:
        assert fit.restore(ROOT) == 3


@pytest.mark.more_draws
def test_each_single_byte_matters_or_does_not(tmp_path):
    """A flipped byte is refused, or changes nothing."""
    path = tmp_path / "fit.npz"
    with opened(path) as fit:
        fit.store(("start 1",), {"pass": 3, "at": np.array([1.0, 2.0])})
    full = path.read_bytes()
    assert len(full) < 3000
    refused = 0
    places = np.linspace(0, len(full) - 1, count_draws(len(full))).astype(int)
    for i in places:
        path.write_bytes(full[:i] + bytes([full[i] ^ (1 << i % 8)]) + full[i + 1 :])
        try:
            _, arrays, text = persistence.read(path, (checkpoints.FILE_KIND,))
        except ValueError:
            refused += 1
            continue
        path.write_bytes(full)
        _, good, good_told = persistence.read(path, (checkpoints.FILE_KIND,))
        assert text == good_told
        assert all(np.array_equal(arrays[name], good[name]) for name in good)
    assert refused > 0.8 * len(places)
    for length in range(0, len(full), 7):
        path.write_bytes(full[:length])
        with pytest.raises(ValueError, match="not a file written by cavity, or it is damaged"), opened(path):
            pass


def test_another_fit_is_refused_by_what_differs(tmp_path):
    path = tmp_path / "fit.npz"
    with opened(path, tol=1e-10) as fit:
        fit.store(ROOT, 1)
    before = path.read_bytes()
    with pytest.raises(ValueError, match=r"is of another fit: tol was 1e-10, is 1e-08\. Give"), opened(path, tol=1e-8):
        pass
    other = Checkpoint(path, 0.0).open(MODEL, {"y": np.arange(11.0)}, tol=1e-10)
    with pytest.raises(ValueError, match=r"y had 10 rows, has 11\. Give another path, or remove the file"), other:
        pass
    assert path.read_bytes() == before
    assert os.listdir(tmp_path) == ["fit.npz"]


def test_another_version_says_so(tmp_path, monkeypatch):
    path = tmp_path / "fit.npz"
    monkeypatch.setattr(persistence, "__version__", "0.2.9")
    with opened(path) as fit:
        fit.store(ROOT, 1)
    monkeypatch.undo()
    with pytest.raises(ValueError, match=rf"was written by cavity 0\.2\.9, and this is {cavity.__version__}"):
        opened(path).__enter__()


def test_other_files_are_refused_and_stay(tmp_path):
    path = tmp_path / "posterior.npz"
    cavity.Clutter().fit(X).save(path)
    np.save(tmp_path / "data.npy", X)
    for file, message in ((path, "holds a 'clutter', not one of: checkpoint"), (tmp_path / "data.npy", "not a file")):
        before = file.read_bytes()
        with pytest.raises(ValueError, match=message), opened(file):
            pass
        assert file.read_bytes() == before
    with opened(tmp_path / "fit.npz") as fit:
        fit.store(ROOT, 1)
    with pytest.raises(ValueError, match="holds a 'checkpoint'; give its path as checkpoint to the fit that wrote it"):
        cavity.load(tmp_path / "fit.npz")


def test_two_at_a_time_are_refused(tmp_path):
    path = tmp_path / "fit.npz"
    message = rf"fit.npz is in use by process {os.getpid()}: wait for it, or give another path"
    with opened(path), pytest.raises(ValueError, match=message), opened(path):
        pass
    with opened(path):
        pass


@pytest.mark.parametrize(
    ("values", "error", "message"),
    [
        ((3, 60.0), TypeError, "checkpoint must be the path of a file, got int"),
        ((os.curdir, 60.0), IsADirectoryError, "is a folder"),
        (("missing/fit.npz", 60.0), FileNotFoundError, "the folder .*missing does not exist"),
        (("fit.npz", -1.0), ValueError, "checkpoint_every must be"),
        ((None, "often"), TypeError, "checkpoint_every must be"),
    ],
)
def test_what_is_no_path_or_no_time(values, error, message):
    with pytest.raises(error, match=message):
        Job.checked(checkpoint=values[0], checkpoint_every=values[1])
