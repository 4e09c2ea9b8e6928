"""Saving and loading: every bit comes back, no pickle, whole files or none."""

import contextlib
import copy
import json
import os
import pickle
import signal
import stat
import subprocess
import sys
import zipfile

import numpy as np
import pytest
from support.glms import GLM

import cavity
from cavity import covariances, distributions, likelihoods
from cavity.base import persistence
from cavity.base.public_objects import _arrays_in
from cavity.models import saved

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
    restored = cavity.load(path)
    for name in ("mean", "variance", "log_evidence", "converged", "n_iter", "status", "n_samples", "method"):
        one, other = getattr(posterior, name), getattr(restored, name)
        np.testing.assert_array_equal(one, other)
        assert type(one) is type(other), name
    np.testing.assert_array_equal(posterior.sites.log_scale, restored.sites.log_scale)
    assert posterior.trace.keys() == restored.trace.keys()
    for name, value in posterior.trace.items():
        np.testing.assert_array_equal(value, restored.trace[name])
    np.testing.assert_array_equal(posterior.prior.log_scale, restored.prior.log_scale)
    assert repr(posterior) == repr(restored)
    new = RNG.normal(size=posterior._sites.site_tau.shape)
    new = new[:, 0] if isinstance(posterior.mean, float) else new
    np.testing.assert_array_equal(posterior.update(new).mean, restored.update(new).mean)


def test_the_file_is_plain(tmp_path):
    path = tmp_path / "name.without.npz.suffix"
    POSTERIORS["points"]().save(path)
    assert os.listdir(tmp_path) == [path.name]
    with np.load(path, allow_pickle=False) as file:
        header = json.loads(bytes(file["header"]))
        assert all(file[name].dtype.kind in "fiubU" for name in file.files)
    assert header["kind"] == "clutter"
    assert header["format"] == persistence.FILE_FORMAT_VERSION
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


def test_a_full_disk_names_the_file(tmp_path, monkeypatch):
    def full_disk(file, **arrays):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(np, "savez", full_disk)
    with pytest.raises(OSError, match=r"No space left on device: '.*posterior.npz'"):
        POSTERIORS["adf"]().save(tmp_path / "posterior.npz")


@pytest.mark.skipif(os.name != "posix" or os.geteuid() == 0, reason="needs rights that can be missing")
def test_a_folder_that_cannot_be_written_names_the_file(tmp_path):
    tmp_path.chmod(0o500)
    with pytest.raises(PermissionError, match=r"'.*/posterior.npz'"):
        POSTERIORS["adf"]().save(tmp_path / "posterior.npz")


def test_the_umask_is_obeyed_and_not_touched(tmp_path, monkeypatch):
    """It belongs to the whole process: another thread would create a file that everybody can write."""
    before = os.umask(0o027)
    try:
        with monkeypatch.context() as patch:
            patch.setattr(os, "umask", None)
            POSTERIORS["adf"]().save(tmp_path / "posterior.npz")
    finally:
        os.umask(before)
    assert stat.S_IMODE((tmp_path / "posterior.npz").stat().st_mode) == 0o640


def test_long_names(tmp_path):
    path = tmp_path / ("n" * 240 + ".npz")
    POSTERIORS["adf"]().save(path)
    assert os.listdir(tmp_path) == [path.name]


KILLED = """
import os, signal, sys
from cavity.base.persistence import open_whole_file
with open_whole_file(sys.argv[1]) as file:
    file.write(b"half")
    file.flush()
    os.kill(os.getpid(), signal.SIGKILL)
"""


@pytest.mark.long_cases("name1")
@pytest.mark.skipif(os.name != "posix", reason="needs SIGKILL")
@pytest.mark.parametrize("name", ["posterior.npz", "n" * 240])
def test_what_a_killed_process_left_is_removed(tmp_path, name):
    path = tmp_path / name
    for _ in range(2):  # the second removes what the first left
        assert subprocess.run([sys.executable, "-c", KILLED, path], check=False).returncode == -signal.SIGKILL
    (abandoned,) = tmp_path.iterdir()
    assert abandoned.name.endswith(".part")
    *begin, process, token, _ = abandoned.name.split(".")
    keep = {
        ".".join([*begin, str(os.getppid()), token, "part"]),  # of a process that runs
        ".".join([*begin, str(os.getpid()), token, "part"]),  # of another thread
        ".".join([*begin[:-1], "elsewhere", process, token, "part"]),  # of another host
        ".".join([*begin, "9" * 30, token, "part"]),  # of no process
        f".other{abandoned.name}",
        f"{abandoned.name}.old",
    }
    for item in keep:
        (tmp_path / item).write_bytes(b"half")
    POSTERIORS["adf"]().save(path)
    assert set(os.listdir(tmp_path)) == {*keep, name}


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


@pytest.mark.parametrize("kind", [*saved.REFUSED_KINDS])
def test_kinds_that_are_not_read_say_what_to_do(kind, tmp_path):
    persistence.write(tmp_path / "file.npz", kind, {"a": np.zeros(1)}, {"n_samples": 1})
    with pytest.raises(ValueError, match=f"holds a '{kind}'; {saved.REFUSED_KINDS[kind]}"):
        cavity.load(tmp_path / "file.npz")


def test_newer_formats_are_refused(tmp_path, monkeypatch):
    path = tmp_path / "file.npz"
    monkeypatch.setattr(persistence, "FILE_FORMAT_VERSION", persistence.FILE_FORMAT_VERSION + 1)
    POSTERIORS["adf"]().save(path)
    monkeypatch.undo()
    with pytest.raises(ValueError, match="format 3; this version reads up to format 2"):
        cavity.load(path)


# ---------------------------------------------------------------------------------------------- copies and pickles

X, Y = RNG.normal(size=(30, 2)), RNG.normal(size=30)
RBF, PRECISION = covariances.RBF(1.0, [1.0, 1.0]), np.array([[2.0, 0.5], [0.5, 1.0]])
FROZEN = POSTERIORS | {
    "mixture": lambda: cavity.GaussianMixture(2).fit(X),
    "selection": lambda: cavity.select_components(cavity.GaussianMixture(1), X, (1, 2)),
    "unit mixture": lambda: cavity.UnitMixture(2).fit(Y),
    "glm": lambda: GLM(likelihoods.Probit(), prior_mean=[0.0, 0.1]).fit(X, Y > 0),
    "diagonal": lambda: GLM(likelihoods.Logit(), approximation="diagonal").fit(X, Y > 0),
    "process": lambda: cavity.GaussianProcess(RBF, likelihoods.Probit()).fit(X, Y > 0, learn=False),
    "exact": lambda: cavity.GaussianProcess(RBF, likelihoods.Gaussian(0.1), [0.0, 1.0, 2.0]).fit(X, Y, learn=False),
    "stream": lambda: cavity.StreamingGP(RBF, likelihoods.Gaussian(0.1)).fit(X, Y, learn=False),
    "linear regression": lambda: cavity.LinearRegression(intercept=False).fit(X, Y),
    "logistic regression": lambda: cavity.LogisticRegression(intercept=False).fit(X, Y > 0),
    "factorized": lambda: cavity.FactorizedGaussian(np.zeros(2), PRECISION).fit(),
    "marginals": lambda: cavity.FactorizedGaussian(np.zeros(2), PRECISION).marginals,
    "gaussian": lambda: cavity.Gaussian([1.0, 2.0], [1.0, 2.0]),
    "multivariate": lambda: distributions.MultivariateGaussian(np.zeros(2), PRECISION),
    "wishart": lambda: distributions.Wishart(3.0, PRECISION),
    "dirichlet": lambda: distributions.Dirichlet([1.0, 2.0]),
    "categorical": lambda: distributions.Categorical([0.5, 0.5]),
    "gamma": lambda: distributions.Gamma([1.0, 2.0], [1.0, 2.0]),
}


def public_arrays(record):
    """Return what a record shows that is an array, or a dictionary of them, by name."""
    results = {}
    for name in {*dir(type(record)), *getattr(record, "__dict__", {})}:
        if not name.startswith("_"):
            with contextlib.suppress(AttributeError, ValueError):  # it has no such thing
                results[name] = getattr(record, name)
    return {".".join(map(str, place)): array for place, array in _arrays_in(results)}


@pytest.mark.parametrize("kind", FROZEN)
def test_copies_and_pickles_are_as_frozen(kind):
    """numpy makes writeable arrays of both."""
    record = FROZEN[kind]()
    first = public_arrays(record)
    inside = dict(_arrays_in([record]))
    assert first
    for make in (copy.copy, copy.deepcopy, lambda record: pickle.loads(pickle.dumps(record))):
        repeated = make(record)
        assert type(repeated) is type(record)
        assert repr(repeated) == repr(record)
        second = public_arrays(repeated)
        assert first.keys() == second.keys()
        for name, array in first.items():
            assert second[name].flags.writeable == array.flags.writeable, name
            np.testing.assert_array_equal(second[name], array)
        for place, array in _arrays_in([repeated]):
            assert array.flags.writeable == inside[place].flags.writeable, place


def test_archives_of_too_many_members_are_refused_before_they_are_read(tmp_path):
    path = tmp_path / "many.npz"
    with zipfile.ZipFile(path, "w") as archive:
        for number in range(5_000):
            archive.writestr(f"{number:0200}.npy", b"")
    with pytest.raises(
        ValueError, match="many.npz is not a file written by cavity.*its directory has more than 1048576 bytes"
    ):
        cavity.load(path)


def test_archives_of_other_members_than_the_header_says_name_a_few(tmp_path):
    path = tmp_path / "other.npz"
    header = {
        "kind": "glm",
        "format": persistence.FILE_FORMAT_VERSION,
        "cavity": "0",
        "arrays": [f"a{i}" for i in range(3000)],
        "settings": {},
    }
    np.savez(path, header=np.frombuffer(json.dumps(header).encode(), dtype=np.uint8), **{"line\nbreak": np.zeros(1)})
    with pytest.raises(ValueError, match="do not have the same arrays: 'a0', 'a1', .* and 2993 more") as caught:
        cavity.load(path)
    assert len(str(caught.value)) < 400
