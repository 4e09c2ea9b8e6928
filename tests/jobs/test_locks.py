"""Locks between processes, with and without those of the file system."""

import os
import subprocess
import sys

import pytest

from cavity.base.persistence import get_host_name
from cavity.jobs import locks
from cavity.jobs.locks import FileLock

pytestmark = pytest.mark.skipif(os.name != "posix", reason="numbers of processes are looked up")


@pytest.fixture(params=["locks of the file system", "none"])
def path(request, tmp_path, monkeypatch):
    if request.param == "none":
        monkeypatch.setattr(locks, "_granted", lambda handle: None)
    return tmp_path / "fit.npz"


def ended():
    """The number of a process that has ended."""
    child = subprocess.Popen([sys.executable, "-c", ""])
    child.wait()
    return child.pid


def test_a_lock_is_held_by_one_and_leaves_nothing(path):
    one, other = FileLock(path), FileLock(path)
    assert one.take() is None
    assert other.take() == f"process {os.getpid()}"
    other.drop()
    assert one.path.exists()
    one.drop()
    assert other.take() is None
    other.drop()
    assert os.listdir(path.parent) == []


def test_a_process_that_has_ended_holds_nothing(path):
    lock = FileLock(path)
    for left in (f"{ended()} {get_host_name()}", "", "half a wor"):
        lock.path.write_text(left)
        assert lock.take() is None
        assert lock.path.read_text() == f"{os.getpid()} {get_host_name()}"
        lock.drop()


def test_a_process_of_another_host_is_believed(tmp_path, monkeypatch):
    monkeypatch.setattr(locks, "_granted", lambda handle: None)
    lock = FileLock(tmp_path / "fit.npz")
    lock.path.write_text("17 elsewhere")
    assert lock.take() == f"process 17 on elsewhere (if that has ended, remove {lock.path})"
    assert lock.path.read_text() == "17 elsewhere"


def test_a_file_that_its_holder_removes_meanwhile_is_no_lock(tmp_path, monkeypatch):
    """Between opening and locking, the last holder may give its lock back: the name then belongs to another file."""
    path, granted, calls = tmp_path / "fit.npz", locks._granted, []

    def late(handle):
        if not calls:
            os.unlink(f"{path}.lock")
        calls.append(handle)
        return granted(handle)

    monkeypatch.setattr(locks, "_granted", late)
    lock = FileLock(path)
    assert lock.take() is None
    assert len(calls) == 2
    assert lock.path.exists()
    lock.drop()


def test_a_folder_that_cannot_be_written_is_named(tmp_path):
    with pytest.raises(FileNotFoundError, match=r"missing/fit.npz.lock"):
        FileLock(tmp_path / "missing" / "fit.npz").take()


@pytest.mark.skipif(not hasattr(os, "O_NOFOLLOW"), reason="needs links that are not followed")
def test_a_lock_writes_to_no_other_file(tmp_path):
    (tmp_path / "precious").write_text("precious")
    (tmp_path / "fit.npz.lock").symlink_to(tmp_path / "precious")
    with pytest.raises(OSError, match="fit.npz.lock"):
        FileLock(tmp_path / "fit.npz").take()
    assert (tmp_path / "precious").read_text() == "precious"
