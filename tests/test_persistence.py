"""Saving and loading: every bit comes back, no pickle, whole files or none."""

import json
import os
import stat

import numpy as np
import pytest

import cavity
from cavity import persistence

RNG = np.random.default_rng(1)
POSTERIORS = {
    "one dimension": lambda: cavity.Clutter().fit(RNG.normal(size=30)),
    "points": lambda: cavity.Clutter(prior_mean=[0.1, 0.2], clutter_mean=1.0).fit(RNG.normal(size=(30, 2))),
    "batch": lambda: cavity.Clutter().fit(RNG.normal(size=(20, 10, 1)), damping=0.9),
    "batch of points": lambda: cavity.Clutter().fit(RNG.normal(size=(3, 10, 2))),
    "adf": lambda: cavity.Clutter().fit(RNG.normal(size=30), method="adf"),
    "updated": lambda: cavity.Clutter().fit(RNG.normal(size=30)).update(RNG.normal(size=5)),
    "updated batch": lambda: cavity.Clutter().fit(RNG.normal(size=(3, 10, 1))).update(RNG.normal(size=(3, 5, 1))),
}


@pytest.mark.parametrize("kind", POSTERIORS)
def test_every_bit_comes_back(kind, tmp_path):
    posterior, path = POSTERIORS[kind](), tmp_path / "posterior.npz"
    posterior.save(path)
    again = cavity.load(path)
    for name in ("mean", "variance", "log_evidence", "converged", "n_iter", "status", "n_samples", "method"):
        one, other = getattr(posterior, name), getattr(again, name)
        np.testing.assert_array_equal(one, other)
        assert type(one) is type(other), name
    np.testing.assert_array_equal(posterior.sites.log_scale, again.sites.log_scale)
    assert posterior.trace.keys() == again.trace.keys()
    for name, value in posterior.trace.items():
        np.testing.assert_array_equal(value, again.trace[name])
    np.testing.assert_array_equal(posterior.prior.log_scale, again.prior.log_scale)
    assert repr(posterior) == repr(again)
    new = RNG.normal(size=posterior._state.site_tau.shape)
    new = new[:, 0] if isinstance(posterior.mean, float) else new
    np.testing.assert_array_equal(posterior.update(new).mean, again.update(new).mean)


def test_the_file_is_plain(tmp_path):
    path = tmp_path / "name.without.npz.suffix"
    POSTERIORS["points"]().save(path)
    assert os.listdir(tmp_path) == [path.name]
    with np.load(path, allow_pickle=False) as file:
        header = json.loads(bytes(file["header"]))
        assert all(file[name].dtype.kind in "fiubU" for name in file.files)
    assert header["kind"] == "clutter"
    assert header["format"] == persistence.FORMAT
    assert header["cavity"] == cavity.__version__
    assert header["settings"]["model"]["prior_mean"] == [0.1, 0.2]
    umask = os.umask(0)
    os.umask(umask)
    assert stat.S_IMODE(path.stat().st_mode) == 0o666 & ~umask


def test_a_failed_save_leaves_the_old_file(tmp_path, monkeypatch):
    path = tmp_path / "posterior.npz"
    path.write_bytes(b"precious")

    def full_disk(file, **arrays):
        file.write(b"half")
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(np, "savez", full_disk)
    with pytest.raises(OSError, match="No space left"):
        POSTERIORS["adf"]().save(path)
    assert path.read_bytes() == b"precious"
    assert os.listdir(tmp_path) == ["posterior.npz"]


def test_a_missing_folder_is_named(tmp_path):
    with pytest.raises(FileNotFoundError, match="file.npz: the folder .*nowhere does not exist"):
        POSTERIORS["adf"]().save(tmp_path / "nowhere" / "file.npz")
    with pytest.raises(IsADirectoryError, match="is a folder, not a file"):
        POSTERIORS["adf"]().save(tmp_path)


def test_other_files_are_refused(tmp_path):
    path = tmp_path / "file.npz"
    np.savez(path, a=np.ones(3))
    with pytest.raises(ValueError, match=r"file.npz is not a file written by cavity"):
        cavity.load(path)
    path.write_bytes(b"garbage")
    with pytest.raises(ValueError, match="not a file written by cavity"):
        cavity.load(path)
    POSTERIORS["adf"]().save(path)
    path.write_bytes(path.read_bytes()[:-200])
    with pytest.raises(ValueError, match="not a file written by cavity"):
        cavity.load(path)
    np.savez(path, a=np.array([{}], dtype=object))
    with pytest.raises(ValueError, match="not a file written by cavity"):
        cavity.load(path)
    with pytest.raises(FileNotFoundError):
        cavity.load(tmp_path / "missing.npz")


def test_newer_formats_are_refused(tmp_path, monkeypatch):
    path = tmp_path / "file.npz"
    monkeypatch.setattr(persistence, "FORMAT", persistence.FORMAT + 1)
    POSTERIORS["adf"]().save(path)
    monkeypatch.undo()
    with pytest.raises(ValueError, match="format 3; this version reads up to format 2"):
        cavity.load(path)
