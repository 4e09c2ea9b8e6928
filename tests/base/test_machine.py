"""Posteriors of one name that several write: who reads it sees one of them, whole, and nothing else stays behind."""

import os
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
from contextlib import ExitStack, suppress
from pathlib import Path

import numpy as np
import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, consumes, invariant, precondition, rule
from support.examples import examples

import cavity
from cavity.base import persistence

RNG = np.random.default_rng(0)
POSTERIORS = (  # of other kinds and sizes, so that a mixture of two could not be read, or would be seen
    cavity.Clutter().fit(RNG.normal(size=20)),
    cavity.GaussianMixture(2).fit(RNG.normal(size=(4000, 2))),
    cavity.LinearRegression(intercept=False).fit(RNG.normal(size=(9, 3)), RNG.normal(size=9)),
)
NUMBER = st.integers(0, len(POSTERIORS) - 1)
ENDED = 2**31 - 1  # a process that cannot be: its number is above all that systems give


def bytes_of(posterior, folder):
    """The file of a posterior."""
    posterior.save(folder / "alone.npz")
    return (folder / "alone.npz").read_bytes()


def contents(posterior):
    """What is in a posterior, to its last bit."""
    arrays, text = posterior.to_arrays()
    return type(posterior), {name: np.asarray(item).tobytes() for name, item in arrays.items()}, repr(text)


with tempfile.TemporaryDirectory() as once:
    FILES = [bytes_of(posterior, Path(once)) for posterior in POSTERIORS]


def failed(stack, error):
    """End open contexts by an error."""
    with pytest.raises(type(error)), stack:
        raise error


class Writers(RuleBasedStateMachine):
    """Writers that take turns between any two of their steps; the name has what the last one finished."""

    writers = Bundle("writers")

    def __init__(self):
        super().__init__()
        self.path = Path(tempfile.mkdtemp()) / "posterior.npz"
        self.last, self.open, self.abandoned = None, set(), 0

    def teardown(self):
        for stack in self.open:
            failed(stack, ValueError())
        shutil.rmtree(self.path.parent)

    @rule(target=writers, number=NUMBER)
    def begin(self, number):
        """A writer opens its file."""
        stack = ExitStack()
        file = stack.enter_context(persistence.open_whole_file(self.path))
        self.open.add(stack)
        self.abandoned = 0
        return stack, file, number

    @rule(writer=writers, share=st.floats(0, 1))
    def write(self, writer, share):
        """A part of what it has to write."""
        _, file, number = writer
        other = file.tell()
        file.write(FILES[number][other : other + int(share * len(FILES[number]))])

    @rule(writer=consumes(writers))
    def finish(self, writer):
        """The rest, and the file has its name."""
        stack, file, number = writer
        file.write(FILES[number][file.tell() :])
        stack.close()
        self.open.remove(stack)
        self.last = number

    @rule(writer=consumes(writers), error=st.sampled_from([OSError(28, "full"), KeyboardInterrupt(), ValueError()]))
    def fail(self, writer, error):
        """The writer meets an error, or Ctrl-C."""
        stack, *_ = writer
        failed(stack, error)
        self.open.remove(stack)

    @rule(number=NUMBER)
    def save(self, number):
        """All steps at once."""
        POSTERIORS[number].save(self.path)
        self.last, self.abandoned = number, 0

    @precondition(lambda self: os.name == "posix")  # elsewhere nobody can tell who has ended
    @rule(share=st.floats(0, 1))
    def kill(self, share):
        """What a killed process leaves, until somebody writes."""
        prefix = persistence._temporary_prefix(self.path.name)
        self.abandoned += 1
        left = self.path.with_name(f"{prefix}{ENDED}.{self.abandoned:08x}.part")
        left.write_bytes(FILES[0][: int(share * len(FILES[0]))])

    @precondition(lambda self: self.last is not None)
    @rule()
    def load(self):
        """The reader."""
        assert contents(cavity.load(self.path)) == contents(POSTERIORS[self.last])

    @precondition(lambda self: self.last is not None)
    @rule(number=NUMBER)
    def load_while_replaced(self, number):
        """The reader has opened the file when it is replaced."""
        read = persistence._read

        def late(*arguments):
            POSTERIORS[number].save(self.path)
            return read(*arguments)

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(persistence, "_read", late)
            result = cavity.load(self.path)
        assert contents(result) == contents(POSTERIORS[self.last])
        self.last, self.abandoned = number, 0

    @invariant()
    def one_whole_file_and_those_of_writers(self):
        other = sorted(self.path.parent.iterdir())
        parts = [item for item in other if item.suffix == ".part"]
        assert len(parts) == len(self.open) + self.abandoned
        assert [value for value in other if value not in parts] == [self.path] * (self.last is not None)
        if self.last is not None:
            assert self.path.read_bytes() == FILES[self.last]


TestWriters = pytest.mark.long(Writers.TestCase)
TestWriters.settings = settings(examples(15), stateful_step_count=20)


# ------------------------------------------------------------------------------------------ at the same time

WRITER = """
import sys
import cavity

one = cavity.load(sys.argv[1])
print("ready", flush=True)
while True:
    one.save(sys.argv[2])
"""


def read_until(path, enough, expected):
    """Load again and again, until it was each of the wanted ones so often."""
    seen = [0] * len(expected)
    while min(seen) < enough:
        with suppress(FileNotFoundError):  # nobody has finished
            seen[expected.index(contents(cavity.load(path)))] += 1


@pytest.mark.parametrize("enough", [5, pytest.param(500, marks=pytest.mark.long)])
def test_threads_write_and_one_reads(enough, tmp_path):
    path, done = tmp_path / "posterior.npz", threading.Event()

    def save(posterior):
        while not done.is_set():
            posterior.save(path)

    threads = [threading.Thread(target=save, args=[posterior]) for posterior in POSTERIORS]
    for thread in threads:
        thread.start()
    try:
        read_until(path, enough, [contents(posterior) for posterior in POSTERIORS])
    finally:
        done.set()
        for thread in threads:
            thread.join()
    assert os.listdir(tmp_path) == ["posterior.npz"]


@pytest.mark.skipif(os.name != "posix", reason="needs SIGKILL")
@pytest.mark.parametrize("enough", [5, pytest.param(500, marks=pytest.mark.long)])
def test_processes_write_until_they_are_killed_and_one_reads(enough, tmp_path):
    path, writers = tmp_path / "posterior.npz", []
    for number, posterior in enumerate(POSTERIORS[:2]):
        posterior.save(tmp_path / f"{number}.npz")
        command = [sys.executable, "-c", WRITER, tmp_path / f"{number}.npz", path]
        writers.append(subprocess.Popen(command, stdout=subprocess.PIPE))
    try:
        assert all(writer.stdout.readline() == b"ready\n" for writer in writers)
        read_until(path, enough, [contents(posterior) for posterior in POSTERIORS[:2]])
    finally:
        for writer in writers:
            writer.kill()
            assert writer.wait() == -signal.SIGKILL
            writer.stdout.close()
    assert contents(cavity.load(path)) in [contents(posterior) for posterior in POSTERIORS[:2]]
    POSTERIORS[2].save(path)  # which removes what the killed ones left
    assert sorted(os.listdir(tmp_path)) == ["0.npz", "1.npz", "posterior.npz"]
