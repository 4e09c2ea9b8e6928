"""Standard streams that are closed, full, or of an encoding that lacks characters: statuses say what the help says."""

import json
import os
import subprocess
import sys

import pytest

import cavity

CAVITY = (sys.executable, "-m", "cavity")
UNCONVERGED = ("fit", "mixture", "faithful", "--components", "2", "--max-iter", "1")
POSIX = pytest.mark.skipif(os.name != "posix", reason="needs a shell that closes streams")


def shell(message, *arguments, **options):
    """Run a line of the shell in which "$@" is a command; return what it did."""
    line = ("/bin/sh", "-c", message, "sh", *CAVITY, *arguments)
    return subprocess.run(line, capture_output=True, text=True, check=False, timeout=120, **options)


LONG = pytest.mark.long


@POSIX
@pytest.mark.parametrize(
    "closed", [*(pytest.param(item, marks=LONG) for item in ("<&-", "2>&-", ">&- 2>&-", ">&-")), "<&- >&- 2>&-"]
)
def test_closed_streams(tmp_path, closed):
    done = shell(f'"$@" {closed}', "fit", "clutter", "newcomb", "--output", str(tmp_path / "x.npz"))
    assert (done.returncode, done.stderr) == (0, "")
    assert ("saved" in done.stdout) == (closed in ("<&-", "2>&-"))
    assert cavity.load(tmp_path / "x.npz").converged
    assert shell(f'"$@" {closed}', *UNCONVERGED).returncode == 1
    failed = shell(f'"$@" {closed}', "fit", "clutter", "no-such-table")
    assert (failed.returncode, failed.stdout) == (2, "")
    assert ("no such file" in failed.stderr) == ("2>" not in closed)
    assert shell(f'"$@" {closed}', "--version").returncode == 0


@POSIX
def test_a_table_from_closed_standard_input():
    for command in (("fit", "clutter", "-"), ("fit", "streaming-gp", "-", "--target", "y")):
        done = shell('"$@" <&-', *command)
        assert (done.returncode, done.stdout) == (2, "")
        assert done.stderr == (
            "cavity: error: standard input is closed; give a file, or what is to be read with < or |\n"
        )


@POSIX
@pytest.mark.sample(2)
@pytest.mark.parametrize(
    ("arguments", "status"), [(UNCONVERGED, 1), (("fit", "clutter", "newcomb"), 0), (("--help",), 0), (("data",), 0)]
)
def test_a_reader_that_has_seen_enough(tmp_path, arguments, status):
    """It changes nothing about the status: of a fit that did not converge it is 1."""
    target = tmp_path / "x.npz"
    read, written = os.pipe()
    os.close(read)
    files = ("--output", str(target)) if "fit" in arguments else ()
    done = subprocess.run([*CAVITY, *arguments, *files], stdout=written, stderr=subprocess.PIPE, check=False)
    os.close(written)
    assert (done.returncode, done.stderr) == (status, b"")
    assert target.exists() == bool(files)


@POSIX
def test_errors_that_cannot_be_told():
    read, written = os.pipe()
    os.close(read)
    done = subprocess.run([*CAVITY, "fit", "clutter", "none"], stdout=subprocess.PIPE, stderr=written, check=False)
    os.close(written)
    assert (done.returncode, done.stdout) == (2, b"")
    if os.path.exists("/dev/full"):
        assert shell('"$@" 2>/dev/full', "fit", "clutter", "none").returncode == 2
        done = shell('"$@" >/dev/full', "--help")
        assert (done.returncode, done.stderr) == (2, "cavity: error: standard output: No space left on device\n")


@pytest.mark.long
@pytest.mark.parametrize(
    "settings",
    [
        {"PYTHONIOENCODING": "ascii"},
        {"PYTHONIOENCODING": "cp1252"},
        {"LC_ALL": "POSIX", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"},
        {"PYTHONIOENCODING": "ascii:replace"},
    ],
)
def test_terminals_that_lack_characters(settings):
    """What an encoding lacks is escaped, unless the user says what to do about it; JSON has the text itself."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("LC_", "PYTHONIO"))}
    command = [*CAVITY, "data", "faithful"]
    done = subprocess.run(command, capture_output=True, check=False, env=environment | settings)
    assert (done.returncode, done.stderr) == (0, b"")
    shown = {"cp1252": b"H\xe4rdle", "ascii:replace": b"H?rdle"}.get(settings.get("PYTHONIOENCODING"), rb"H\xe4rdle")
    assert shown in done.stdout
    done = subprocess.run([*command, "--json"], capture_output=True, check=False, env=environment | settings)
    assert "Härdle" in json.loads(done.stdout)["source"]
    command = [*CAVITY, "fit", "clutter", "Lücke.csv"]
    done = subprocess.run(command, capture_output=True, check=False, env=environment | settings)
    assert (done.returncode, done.stdout, b"no such file" in done.stderr) == (2, b"", True)


CLOSED_ERROR = """
import sys, numpy
sys.stderr = None
import cavity
rows = numpy.random.default_rng(0).normal(size=(100, 2))
print(cavity.GaussianMixture(2).fit(rows, max_iter=5, tol=0.0, progress=True).n_iter)
"""


@pytest.mark.long
def test_progress_without_standard_error():
    """As of programs of Windows without a console."""
    command = [sys.executable, "-W", "ignore", "-c", CLOSED_ERROR]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (0, "5\n")
