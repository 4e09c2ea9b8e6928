"""Files that commands write: what cannot be written is found out before any work, and nothing is destroyed."""

import os

import numpy as np
import pytest
from support.commands import runner, write
from support.specials import SPECIALS, kinds_in, make_special

import cavity


@pytest.fixture
def run(capsys, monkeypatch):
    """Run a command that must not read its table; returns status, printed text, error text."""

    def read(options):
        raise AssertionError("the table was read before the outputs were checked")

    monkeypatch.setattr("cavity.cli.input_tables.open_table", read)
    return runner(capsys)


@pytest.fixture
def model(tmp_path):
    """A saved mixture of points of two columns."""
    rows = np.random.default_rng(0).normal(size=(50, 2))
    cavity.GaussianMixture(1).fit(rows).save(tmp_path / "model.npz")
    return tmp_path / "model.npz"


def commands(model):
    """The commands by the option that names a file to write."""
    fit = ("fit", "mixture", "faithful", "--components", 1)
    yield from ((*fit, option) for option in ("--output", "--plot", "--checkpoint"))
    yield ("predict", model, "faithful", "--output")


@pytest.mark.parametrize("kind", SPECIALS)
def test_what_is_no_regular_file_stays(run, tmp_path, model, kind):
    folder = tmp_path / "outputs"
    folder.mkdir()
    for command in commands(model):
        name = "special.csv" if command[0] == "predict" else "special.png" if "--plot" in command else "special.npz"
        path = make_special(folder, kind, name)
        before = kinds_in(folder)
        status, out, err = run(*command, path)
        assert (status, out, err.count("\n")) == (2, "", 1)
        assert f"{path}" in err
        assert kinds_in(folder) == before
        for item in folder.iterdir():
            item.rmdir() if kind == "folder" else item.unlink()
    status, _, err = run("data", "faithful", "--output", make_special(folder, kind, "faithful.csv"))
    assert (status, "faithful.csv" in err) == (2, True)


def test_what_cannot_be_created(run, tmp_path, model):
    for command in commands(model):
        status, out, err = run(*command, tmp_path / "missing" / "x.csv" if command[0] == "predict" else "missing/x.png")
        assert (status, out) == (2, "")
        assert "missing does not exist" in err
        if os.path.isdir("/proc/self"):
            status, out, err = run(*command, "/proc/self/x.npz")
            assert (status, out, err) == (2, "", "cavity: error: /proc/self/x.npz: No such file or directory\n")
    assert os.listdir(tmp_path) == ["model.npz"]


def test_posteriors_are_not_called_like_tables(run, tmp_path):
    for option in ("--output", "--checkpoint"):
        status, _, err = run("fit", "mixture", "faithful", "--components", 1, option, tmp_path / "x.parquet")
        assert (status, f"{option}: {tmp_path}/x.parquet has the suffix of a table" in err) == (2, True)
    assert os.listdir(tmp_path) == []


@pytest.mark.skipif(os.name != "posix", reason="needs symbolic links")
def test_links_are_followed(capsys, tmp_path):
    command = runner(capsys, "fit", "mixture", "faithful", "--components", 1)
    (tmp_path / "there").mkdir()
    for name in ("posterior.npz", "picture.svg", "job"):
        (tmp_path / name).symlink_to(tmp_path / "there" / name)
    message = "--output", tmp_path / "posterior.npz", "--checkpoint", tmp_path / "job"
    try:
        import matplotlib  # noqa: F401  the plot extra
    except ImportError:
        names = ["job", "posterior.npz"]
    else:
        message, names = (*message, "--plot", tmp_path / "picture.svg"), ["job", "picture.svg", "posterior.npz"]
    assert command(*message)[0] == 0
    assert sorted(os.listdir(tmp_path / "there")) == names
    assert sorted(os.listdir(tmp_path)) == ["job", "picture.svg", "posterior.npz", "there"]
    for two in (("--output", tmp_path / "posterior.npz", "--checkpoint", tmp_path / "there" / "posterior.npz"),):
        assert "would be written twice" in command(*two)[2]
    table = write(tmp_path / "x.csv", {"a": [1.0, 2.0, 4.0], "b": [1.0, 3.0, 2.0]})
    (tmp_path / "again").symlink_to(table)
    assert "is the data file" in runner(capsys, "fit", "mixture")(table, "--output", tmp_path / "again")[2]


@pytest.mark.skipif(os.name != "posix", reason="needs symbolic links")
def test_data_that_are_no_files(capsys, tmp_path):
    """Links in a circle and to nowhere, devices and pipes that say they are a posterior."""
    run = runner(capsys)
    (tmp_path / "circle.csv").symlink_to(tmp_path / "circle.csv")
    (tmp_path / "nowhere.csv").symlink_to(tmp_path / "missing.csv")
    for name in ("circle.csv", "nowhere.csv"):
        for more in ((), ("--output", tmp_path / "x.npz")):
            status, out, err = run("fit", "clutter", tmp_path / name, *more)
            assert (status, out) == (2, "")
            assert f"a symbolic link leads nowhere or in a circle: '{tmp_path / name}'" in err
        status, _, err = run("info", tmp_path / name)
        assert (status, str(tmp_path / name) in err) == (2, True)
    for kind in ("pipe", "link to a device"):
        path = make_special(tmp_path, kind, f"{kind}.npz")
        assert "not a regular file" in run("info", path)[2]
        assert "not a regular file" in run("predict", path, "faithful", "--output", tmp_path / "x.csv")[2]
        assert "not a regular file" in run("fit", "streaming-gp", "co2", "--resume", path)[2]
