"""Vectors in scratch files: the same as arrays, and gone when they are no longer needed."""

import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

from cavity.sources import scratch
from cavity.sources.scratch import ScratchVector, allocate_vector, update_in_steps


def test_slices_are_those_of_an_array():
    rng = np.random.default_rng(0)
    mine, plain = ScratchVector(1000), np.zeros(1000)
    for _ in range(50):
        start, stop = sorted(rng.integers(0, 1001, 2).tolist())
        mine[start:stop] = plain[start:stop] = rng.normal(size=stop - start)
    np.testing.assert_array_equal(mine[:], plain)
    mine[10:20] = 3.0
    np.testing.assert_array_equal(mine[5:12], [*plain[5:10], 3.0, 3.0])
    assert (len(mine), mine.shape, mine[7:7].shape) == (1000, (1000,), (0,))


@pytest.mark.parametrize("kind", [False, True])
def test_changes_of_whole_vectors(kind, monkeypatch):
    monkeypatch.setattr(scratch, "NUMBERS_PER_STEP", 7)
    a, b = allocate_vector(50, kind), allocate_vector(50, kind)
    a[:], b[:] = np.arange(50.0), np.ones(50)
    other = a.copy()
    update_in_steps(lambda a, b: 2.0 * a + b, a, b)
    np.testing.assert_array_equal(a[:], 2.0 * np.arange(50.0) + 1.0)
    np.testing.assert_array_equal(other[:], np.arange(50.0))


def test_threads_read_and_write_at_a_time():
    mine = ScratchVector(64 * 100)

    def task(i):
        part = slice(100 * i, 100 * (i + 1))
        for _ in range(20):
            mine[part] = i + mine[part]
        return mine[part]

    with ThreadPoolExecutor(4) as threads:
        for i, result in enumerate(threads.map(task, range(64))):
            np.testing.assert_array_equal(result, 20.0 * i)


def test_a_folder_of_ones_own(tmp_path):
    """Where there is space for the file, of which nothing is seen."""
    with pytest.raises(FileNotFoundError):
        ScratchVector(100, tmp_path / "none")
    mine = ScratchVector(100, tmp_path)
    mine[:] = np.arange(100.0)
    np.testing.assert_array_equal(np.asarray(mine.copy()), np.arange(100.0))
    assert list(tmp_path.iterdir()) == [] or os.name != "posix"


@pytest.mark.skipif(os.name != "posix", reason="files of Windows go when they are closed")
def test_nothing_is_left_of_a_process_that_is_killed(tmp_path):
    code = (
        "import os, signal; from cavity.sources.scratch import ScratchVector; v = ScratchVector(1000); v[:] = 1.0; "
        "os.kill(os.getpid(), signal.SIGKILL)"
    )
    done = subprocess.run([sys.executable, "-c", code], env={**os.environ, "TMPDIR": str(tmp_path)}, check=False)
    assert done.returncode < 0
    assert list(tmp_path.iterdir()) == []


@pytest.mark.skipif(os.name != "posix", reason="limits of files are those of POSIX")
def test_a_full_disk_is_named(tmp_path):
    code = (
        "import resource; from cavity.sources.scratch import ScratchVector; "
        f"resource.setrlimit(resource.RLIMIT_FSIZE, (4000, 4000)); ScratchVector(1000, {str(tmp_path)!r})"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert f"File too large: 'a scratch file in {tmp_path}'" in done.stderr


def test_only_rows_in_files_have_scratch_files(monkeypatch):
    monkeypatch.setattr(scratch, "MOST_IN_MEMORY", 10)

    class Stored:
        in_memory = False

    assert scratch.is_beyond(Stored(), 11)
    assert not scratch.is_beyond(Stored(), 10)
    assert not scratch.is_beyond(np.zeros(20), 20)
    assert isinstance(allocate_vector(3), np.ndarray)
