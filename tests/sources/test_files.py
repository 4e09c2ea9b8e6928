"""Whether a file is still the one that was opened."""

import os

import pytest

from cavity.sources.files import FileState

CONTENT = bytes(range(256)) * 100


def state_of(path, offset=0):
    with open(path, "rb") as file:
        return FileState.of(file, str(path), offset)


def check(state, path):
    with open(path, "rb", buffering=0) as file:
        state.check(file)


def longer(path):
    path.write_bytes(CONTENT + b"x")


def rewritten(path):
    status = path.stat()
    path.write_bytes(CONTENT[::-1])
    os.utime(path, ns=(status.st_atime_ns, status.st_mtime_ns))


def replaced(path):
    path.rename(path.with_suffix(".old"))
    path.write_bytes(CONTENT)


@pytest.mark.skipif(os.name != "posix", reason="needs inodes and times of status changes")
@pytest.mark.parametrize("change", [longer, rewritten, replaced, lambda path: os.utime(path, ns=(0, 0))])
def test_a_change_is_told_by_name(tmp_path, change):
    path = tmp_path / "data.bin"
    path.write_bytes(CONTENT)
    state = state_of(path, 100)
    check(state, path)
    change(path)
    with pytest.raises(ValueError, match=r"data.bin has changed while it was in use; start again"):
        check(state, path)


def test_rights_and_empty_files_are_no_change(tmp_path):
    path = tmp_path / "data.bin"
    for content in (CONTENT, b""):
        path.write_bytes(content)
        state = state_of(path)
        path.chmod(0o600)
        path.chmod(0o644)
        check(state, path)
