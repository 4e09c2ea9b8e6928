"""Damaged tables: every command says in one sentence which file it cannot read, or has a result; nothing else."""

import os
import random
import subprocess
import sys

import numpy as np
import pytest

import cavity
from cavity.base import arrays
from cavity.cli import main

ROWS = 24
COMMANDS = {
    "clutter": ("fit", "clutter", "DATA", "--column", "2", "--max-iter", "9"),
    "glm": ("fit", "glm", "DATA", "--target", "3", "--max-iter", "9"),
    "gp": ("fit", "gp", "DATA", "--target", "2", "--no-learn"),
    "mixture": ("fit", "mixture", "DATA", "--columns", "1,2", "--components", "2", "--max-iter", "9"),
    "streaming-gp": ("fit", "streaming-gp", "DATA", "--target", "2", "--learn", "never", "--batch", "10"),
    "unit-mixture": ("fit", "unit-mixture", "DATA", "--column", "2", "--components", "2", "--max-iter", "9"),
    "all columns": ("fit", "mixture", "DATA", "--covariance", "diag", "--components", "1", "--max-iter", "9"),
    "one column": ("fit", "unit-mixture", "DATA", "--components", "1", "--max-iter", "9"),
    "predict": ("predict", "POSTERIOR", "DATA", "--columns", "1,2", "--output", "OUT"),
}


@pytest.fixture(scope="module")
def healthy(tmp_path_factory):
    """Return the bytes of a table in each format, and a posterior of its first two columns."""
    from pyarrow import parquet, table

    folder = tmp_path_factory.mktemp("healthy")
    rng = np.random.default_rng(0)
    rows = np.column_stack([rng.normal(size=(ROWS, 2)), np.arange(ROWS) % 2])
    np.save(folder / "rows.npy", rows)
    np.save(folder / "columns.npy", np.asfortranarray(rows.astype("f4")))
    np.save(folder / "vector.npy", rows[:, 0].astype(">f8"))
    lines = [f"{a:.4f},{b:.4f},{c:g}" for a, b, c in rows.tolist()]
    (folder / "table.csv").write_text("\n".join(["1,2,3", *lines, ""]))
    parquet.write_table(table({name: rows[:, j] for j, name in enumerate("123")}), folder / "table.parquet")
    cavity.GaussianMixture(2).fit(rows[:, :2]).save(folder / "posterior.npz")
    return {path.name: path.read_bytes() for path in folder.iterdir()}


def damaged(content, chance):
    """Return bytes of which some are cut off, flipped, overwritten, doubled or lost."""
    content = bytearray(content)
    place = chance.randrange(len(content))
    if chance.random() < 0.5:  # headers and footers hold what can go wrong
        place = chance.choice([chance.randrange(min(128, len(content))), -1 - chance.randrange(min(400, len(content)))])
    kind = chance.randrange(5)
    if kind == 0:
        del content[place:]
    elif kind == 1:
        content[place] ^= 1 << chance.randrange(8)
    elif kind == 2:
        for _ in range(chance.randrange(1, 6)):
            content[chance.randrange(len(content))] = chance.randrange(256)
    elif kind == 3:
        content[place:place] = content[: chance.randrange(200)]
    else:
        del content[place : place + chance.randrange(1, 20) or None]
    return bytes(content)


def attack(healthy, name, command, folder, capsys, seed):
    """Run a command on a damaged copy of a table, and check how it ends."""
    path, out = folder / name, folder / "out.npy"
    path.write_bytes(damaged(healthy[name], random.Random(f"{name} {command} {seed}")))
    (folder / "posterior.npz").write_bytes(healthy["posterior.npz"])
    places = {"DATA": path, "POSTERIOR": folder / "posterior.npz", "OUT": out}
    status = main([str(places.get(word, word)) for word in COMMANDS[command]])
    text = capsys.readouterr().err
    label = f"{name}, {command}, seed {seed}: {text}"
    assert status in (0, 1, 2), label
    if status == 2:
        assert text.startswith("cavity: error: "), label
        assert text.count("\n") == 1, label
        assert str(path) in text, label
        assert "pickle" not in text, label
        assert not out.exists(), label
    out.unlink(missing_ok=True)
    assert not list(folder.glob(".*")), label


TABLES = ("rows.npy", "columns.npy", "vector.npy", "table.csv", "table.parquet")


@pytest.mark.filterwarnings("default")  # of the fits of what is left of the numbers
@pytest.mark.parametrize("name", TABLES)
@pytest.mark.parametrize("command", COMMANDS)
def test_damaged_tables(healthy, tmp_path, capsys, name, command):
    for seed in range(4):
        attack(healthy, name, command, tmp_path, capsys, seed)


@pytest.mark.long
@pytest.mark.filterwarnings("default")
@pytest.mark.parametrize("name", TABLES)
@pytest.mark.parametrize("command", COMMANDS)
def test_many_damaged_tables(healthy, tmp_path, capsys, name, command):
    for seed in range(4, 1000):
        attack(healthy, name, command, tmp_path, capsys, seed)


@pytest.mark.parametrize("command", COMMANDS)
@pytest.mark.parametrize("array", [np.array([{}, None]), np.zeros(3, complex), np.zeros(2, "f8,i4")])
def test_arrays_of_other_things(tmp_path, capsys, command, array):
    """numpy would advise to load some of them unsafely."""
    np.save(tmp_path / "x.npy", array, allow_pickle=True)
    cavity.GaussianMixture(1).fit(np.eye(3)[:, :2]).save(tmp_path / "p.npz")
    places = {"DATA": tmp_path / "x.npy", "POSTERIOR": tmp_path / "p.npz", "OUT": tmp_path / "out.npy"}
    assert main([str(places.get(word, word)) for word in COMMANDS[command]]) == 2
    text = capsys.readouterr().err
    assert "real numbers" in text
    assert str(places["DATA"]) in text
    assert "pickle" not in text


def test_an_array_cut_short_while_it_is_read(tmp_path, capsys, monkeypatch):
    """A map of the file would end the process."""
    path = tmp_path / "x.npy"
    matrix = arrays.allocate_matrix

    def cut(*arguments):
        os.truncate(path, 200)
        return matrix(*arguments)

    monkeypatch.setattr(arrays, "allocate_matrix", cut)
    for command in ("clutter", "glm", "gp", "streaming-gp"):
        np.save(path, np.zeros((50_000, 3)))
        assert main([str(path) if word == "DATA" else word for word in COMMANDS[command]]) == 2
        assert f"{path} has changed while it was in use" in capsys.readouterr().err


def test_parquet_files_with_two_columns_of_a_name(tmp_path, capsys):
    from pyarrow import parquet as files
    from pyarrow import table

    path = tmp_path / "x.parquet"
    files.write_table(table([[1, 2], [3, 4]], names=["a", "a"]), path)
    assert main(["fit", "glm", str(path), "--target", "a"]) == 2
    text = capsys.readouterr().err
    assert "two columns" in text
    assert "'a'" in text


@pytest.mark.skipif(not os.path.exists("/proc/self/mem"), reason="needs a file that cannot be read")
def test_errors_of_the_file_system_name_the_file(capsys):
    assert main(["fit", "glm", "/proc/self/mem"]) == 2
    assert capsys.readouterr().err == "cavity: error: /proc/self/mem: Input/output error\n"


@pytest.mark.parametrize("message", [("mixture", "faithful"), ("unit-mixture", "galaxies")])
def test_more_components_than_memory_holds(capsys, message):
    assert main(["fit", *message, "--components", f"{10**15}"]) == 2
    text = capsys.readouterr().err
    assert f"--components {10**15}: 16 arrays of the components, each" in text
    assert "bytes, more than there are" in text
    with pytest.raises(SystemExit):
        main(["fit", "mixture", "faithful", "--components", "1-1000000000"])
    assert "expected a range of at most 1000 numbers" in capsys.readouterr().err


def test_what_is_wrong_is_named(tmp_path, capsys):
    """The data, where they make no sense together; not if it is an option, or another file."""
    np.savetxt(tmp_path / "x.csv", [[1.0, 2.0], [2.0, 4.0], [3.0, 6.0]], delimiter=",")
    (tmp_path / "p.npz").write_bytes(b"garbage")
    data, posterior, out = (str(tmp_path / name) for name in ("x.csv", "p.npz", "out.npy"))
    assert main(["fit", "mixture", data, "--components", "1"]) == 2
    text = capsys.readouterr().err
    assert "not positive definite: columns depend on each other" in text
    assert text.endswith(f" (data: {data})\n")
    assert main(["predict", posterior, data, "--output", out]) == 2
    text = capsys.readouterr().err
    assert posterior in text
    assert data not in text
    assert main(["fit", "mixture", data, "--starts", "2"]) == 2
    assert data not in capsys.readouterr().err


@pytest.mark.long
@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="needs a full device")
@pytest.mark.parametrize("unbuffered", ["", "1"])
def test_a_full_device_for_what_is_printed(unbuffered):
    command = [sys.executable, "-m", "cavity", "fit", "clutter", "newcomb"]
    environment = os.environ | {"PYTHONUNBUFFERED": unbuffered}
    with open("/dev/full", "w") as full:
        done = subprocess.run(command, stdout=full, stderr=subprocess.PIPE, text=True, check=False, env=environment)
    assert done.stderr == "cavity: error: standard output: No space left on device\n"
    assert done.returncode == 2
