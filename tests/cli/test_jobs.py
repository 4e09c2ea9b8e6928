"""Jobs: files of options, results as JSON, what is said of files, data sets and the machine, and every way to read."""

import errno
import gzip
import io
import json
import os
import re
import subprocess
import sys
from datetime import date

import numpy as np
import pytest
from support.commands import write
from support.tolerances import SOLVES

import cavity
from cavity import data
from cavity.base import persistence
from cavity.cli import doctor


def result(run, *arguments):
    """What a command that went well prints with --json."""
    status, out, err = run(*arguments, "--json")
    assert (status, err) == (0, "")
    assert out.count("\n") == 1
    return json.loads(out)


# ------------------------------------------------------------------------------------------------ --config


def test_options_of_a_file_are_those_that_are_typed(run, tmp_path):
    job = tmp_path / "job.toml"
    job.write_text('data = "pima"\nfeatures = ["glu", "bmi"]\nprior-variance = 2.5\nstandardize = true\nard = false\n')
    assert "has no option 'ard'" in run("fit", "glm", "--config", job)[2]
    job.write_text('data = "pima"\nfeatures = ["glu", "bmi"]\nprior-variance = 2.5\nstandardize = true\n')
    typed = "pima", "--features", "glu,bmi", "--prior-variance", 2.5, "--standardize"
    one, other = (result(run, "fit", "glm", *message) for message in (("--config", job), typed))
    assert {**one, "seconds": 0} == {**other, "seconds": 0}
    assert one["columns"] == ["glu", "bmi"]
    typed = result(run, "fit", "glm", f"--config={job}", "--features", "age", "--prior-variance", 1)  # wins
    assert (typed["columns"], typed["settings"]["prior_variance"][1:]) == (["age"], [1.0])
    job.write_text("mean = [-3, 0.2]\nard = false\nbatch = 100\nlearn = 'never'\nlengthscale = [2]\n")
    status, out, _ = run("fit", "streaming-gp", "co2", "--config", job)
    assert status == 0
    assert "mean             -3, 0.2" in out
    job.write_text('column = ["glu"]\n')
    assert "columns bmi" in run("fit", "clutter", "pima", "--config", job, "--column", "bmi")[1]
    assert "columns glu" in run("fit", "clutter", "pima", "--config", job)[1]
    job.write_text("ard = false\n")
    assert result(run, "fit", "logistic-regression", "pima", "--config", job)["settings"]["ard"] is False
    result(run, "fit", "mixture", "faithful", "--components", 2, "--output", tmp_path / "p.npz")
    job.write_text(f'data = "faithful"\nposterior = "{tmp_path / "p.npz"}"\noutput = "{tmp_path / "r.npy"}"\n')
    assert result(run, "predict", "--config", job)["rows"] == 272


BAD_JOBS = {
    "unknown": ("featurs = 'a'", "has no option 'featurs'; is it 'features'?"),
    "strange": ("zzz = 1", "has no option 'zzz'"),
    "table": (
        "[features]\na = 1",
        "features must be a number, a text, true or false, or a list of these, got {'a': 1}",
    ),
    "no TOML": ("features = ", "not readable as TOML"),
    "itself": ("config = 'x'", "has no option 'config'"),
    "domain": ("prior-variance = -1", "--prior-variance must be positive, got -1"),
    "choice": ("likelihood = 'cauchy'", "invalid choice: 'cauchy'"),
}


@pytest.mark.parametrize("case", BAD_JOBS)
def test_bad_files_of_options(run, tmp_path, case):
    text, message = BAD_JOBS[case]
    (tmp_path / "job.toml").write_text(text)
    status, out, err = run("fit", "glm", "pima", "--config", tmp_path / "job.toml")
    assert (status, out) == (2, "")
    assert message in err
    assert run("fit", "glm", "pima", "--config", tmp_path / "none.toml")[0] == 2
    assert "--config: write this option in full" in run("fit", "glm", "pima", "--conf", tmp_path / "job.toml")[2]


# ------------------------------------------------------------------------------------------------ reading


def test_every_way_to_write_a_table(run, tmp_path, monkeypatch):
    arrow, parquet = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
    columns, _ = data.table("motorcycle")
    expected = result(run, "fit", "linear-regression", "motorcycle", "--target", "acceleration")["mean"]
    plain = write(tmp_path / "x.csv", columns).read_text()
    (tmp_path / "x.tsv").write_text(plain.replace(",", "\t"))
    (tmp_path / "euro.csv").write_text(plain.replace(",", ";").replace(".", ","), encoding="utf-16")
    (tmp_path / "x.csv.gz").write_bytes(gzip.compress(plain.encode()))
    (tmp_path / "x.dat").write_text(plain.replace(",", "  "))
    (tmp_path / "odd.txt").write_text(plain.replace(",", "#"))
    parquet.write_table(arrow.table(columns), tmp_path / "x.parquet")
    np.save(tmp_path / "x.npy", np.column_stack([*columns.values()]))
    for name in ("x.csv", "x.tsv", "euro.csv", "x.csv.gz", "x.dat", "x.parquet", "x.npy", "odd.txt"):
        more = ["--target", "2"] + (["--sep", "#"] if name == "odd.txt" else [])
        assert result(run, "fit", "linear-regression", tmp_path / name, *more)["mean"] == expected
    with open(tmp_path / "x.csv.gz") as file:
        monkeypatch.setattr(sys, "stdin", file)
        assert result(run, "fit", "linear-regression", "-", "--target", "2")["mean"] == expected


BAD_FILES = {
    "x.xlsx": "is an Excel workbook, which is not read; pandas.read_excel",
    "x.json": "is JSON, which is not read",
    "x.npy": "is not a .npy file that can be read",
    "euro.csv": "1,234 may be a number with a decimal comma, or one with commas between thousands; give --decimal ','",
    "latin.csv": "line 2: not readable as utf-8 (unexpected end of data 0xe4); give --encoding 'cp1252'",
    "ragged.csv": "line 3: 3 fields where the first line has 2 (between commas; --sep says otherwise)",
}


def test_files_that_cannot_be_read(run, tmp_path):
    content = {"euro.csv": b"a;b\n1,234;2\n", "latin.csv": b"a,b\n1,\xe4", "ragged.csv": b"a,b\n1,2\n1,2,3\n"}
    for name, message in BAD_FILES.items():
        (tmp_path / name).write_bytes(content.get(name, b"PK\3\4"))
        status, out, err = run("fit", "linear-regression", tmp_path / name, "--target", "b")
        assert (status, out) == (2, "")
        assert message in err
        assert err.count("\n") == 1
    assert "are for text files, got" in run("fit", "glm", tmp_path / "x.npy", "--sep", ";")[2]


@pytest.mark.skipif(os.name != "posix" or os.geteuid() == 0, reason="needs files that may not be read")
def test_files_without_permission(run, tmp_path):
    (tmp_path / "x.csv").write_text("a\n1\n")
    (tmp_path / "x.csv").chmod(0)
    assert "Permission denied" in run("fit", "clutter", tmp_path / "x.csv")[2]


# ------------------------------------------------------------------------------------------------ models and JSON


def test_regressions_have_the_numbers_of_the_library(run, tmp_path):
    columns, _ = data.table("pima")
    X = np.column_stack([columns[name] for name in ("glu", "bmi")])
    saved, out = tmp_path / "p.npz", tmp_path / "r.npy"
    files = "--output", saved, "--plot", tmp_path / "p.png"
    text = result(run, "fit", "logistic-regression", "pima", "--features", "glu,bmi", *files)
    assert pytest.importorskip("matplotlib.image").imread(tmp_path / "p.png").std() > 0.05
    expected = cavity.LogisticRegression(prior_variance=None, ard=True, intercept=True).fit(X, columns["type"] == "Yes")
    assert text["mean"] == expected.mean.tolist()
    assert (text["columns"], text["classes"]) == (["glu", "bmi"], ["No", "Yes"])
    assert result(run, "predict", saved, "pima", "--output", out)["columns"] == ["mean", "variance", "p:No", "p:Yes"]
    np.testing.assert_allclose(np.load(out)[:, 2:], expected.predict_proba(X), rtol=SOLVES)
    options = "--target", "age", "--features", "glu,bmi", "--no-intercept", "--noise-variance", 90
    options += "--prior-variance", 2
    text = result(run, "fit", "linear-regression", "pima", *options, "--output", saved)
    expected = cavity.LinearRegression(intercept=False, noise_variance=90.0, prior_variance=2.0).fit(X, columns["age"])
    assert text["mean"] == expected.mean.tolist()
    assert result(run, "predict", saved, "pima", "--output", out)["columns"] == ["mean", "variance", "expected"]
    np.testing.assert_allclose(np.load(out)[:, 0], expected.predict(X)[0], rtol=SOLVES)


def test_predictions_of_clutter(run, tmp_path):
    saved, out = tmp_path / "p.npz", tmp_path / "r.csv"
    assert run("fit", "clutter", "newcomb", "--output", saved)[0] == 0
    assert result(run, "predict", saved, "newcomb", "--output", out)["columns"] == ["p:clutter"]
    expected = cavity.load(saved).clutter_probability(data.load("newcomb")[0])
    np.testing.assert_array_equal(np.loadtxt(out, skiprows=1), expected)


@pytest.mark.parametrize(
    "message", ["clutter newcomb", "unit-mixture galaxies --components 3", "gp motorcycle --no-learn"]
)
def test_results_as_json(run, message):
    text = result(run, "fit", *message.split())
    assert text["command"] == "fit"
    assert f"{text['model']} {text['data']}" == " ".join(message.split()[:2])
    assert text["converged"] is True
    assert text["status"] == "converged"
    assert text["summary"]["rows"]
    assert {"log_evidence", "elbo"} & text.keys()


# ------------------------------------------------------------------------------------------------ what is there


def test_what_is_in_a_file(run, tmp_path):
    for message in ("glm pima", "mixture faithful --components 2", "streaming-gp co2 --learn never"):
        assert run("fit", *message.split(), "--output", tmp_path / "p.npz")[0] == 0
        status, out, _ = run("info", tmp_path / "p.npz")
        assert status == 0
        posterior = cavity.load(tmp_path / "p.npz")
        assert f"written by cavity {cavity.__version__} with " in out
        assert repr(posterior) in out
        text = result(run, "info", tmp_path / "p.npz")
        assert (text["posterior"], text["cavity"]) == (type(posterior).__name__, cavity.__version__)
        arrays = [name for name, field in text["fields"].items() if field["shape"] is not None]
        assert arrays == {"glm": ["mean", "variance"], "mixture": ["counts"]}.get(message.split()[0], [])
        for name, field in text["fields"].items():
            assert field["shape"] is None or field["shape"] == [*getattr(posterior, name).shape]
            assert re.search(rf"(?m)^  {name} .* {re.escape(field['description'])}$", out), name
    (tmp_path / "p.npz").write_bytes(b"garbage")
    status, out, err = run("info", tmp_path / "p.npz")
    assert (status, out) == (2, "")
    assert "is not a file written by cavity" in err


def test_a_file_that_is_replaced_meanwhile_is_told_as_it_was(run, tmp_path, monkeypatch):
    """Header, settings and what was found are of one posterior."""
    path, other, read = tmp_path / "p.npz", tmp_path / "other.npz", persistence._read
    cavity.Clutter().fit([0.1, 2.3]).save(path)
    cavity.UnitMixture(1).fit([0.1, 2.3]).save(other)
    expected = run("info", path)

    def late(*arguments):
        actual = read(*arguments)
        if other.exists():
            other.replace(path)
        return actual

    monkeypatch.setattr(persistence, "_read", late)
    assert run("info", path) == expected
    assert "unit_mixture" in run("info", path)[1]


def test_shipped_data(run, tmp_path):
    status, out, _ = run("data")
    assert status == 0
    assert [line.split()[0] for line in out.splitlines()] == data.names()
    assert set(result(run, "data")) == set(data.names())
    status, out, _ = run("data", "pima", "--output", tmp_path / "pima.csv")
    assert status == 0
    assert "pima: 532 rows" in out
    assert "npreg,glu,bp,skin,bmi,ped,age,type,set" in out
    message = "--target", "type", "--features", "npreg,glu,bp,skin,bmi,ped,age"
    text = result(run, "fit", "logistic-regression", tmp_path / "pima.csv", *message)
    assert text["mean"] == result(run, "fit", "logistic-regression", "pima")["mean"]
    assert "no data set 'iris'" in run("data", "iris")[2]
    assert "must be a .csv file" in run("data", "pima", "--output", tmp_path / "p.xlsx")[2]


def test_doctor(run, monkeypatch):
    text = result(run, "doctor")
    assert text["ok"] is True
    assert set(text["self_test"].values()) == {"ok"}
    monkeypatch.setattr(doctor, "run_self_test", lambda: [("glm", "log evidence 1, by integration 2")])
    status, out, _ = run("doctor")
    assert status == 1
    for message in ("instructions", "BLAS", "cores", "threads", "numpy", "pyarrow", "self-test"):
        assert message in out


def test_standard_input_is_a_stream(run, monkeypatch):
    rows = "a;b\n" + "".join(f"{i};{i / 8:g}\n".replace(".", ",") for i in range(60))
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(rows.encode())))
    assert (
        result(run, "fit", "streaming-gp", "-", "--target", "b", "--learn", "never", "--batch", 20)["n_samples"] == 60
    )


def test_a_terminal_shows_how_far_a_fit_is(run, monkeypatch):
    """Unless it is told not to."""
    screen = io.StringIO()
    screen.isatty = lambda: True
    monkeypatch.setattr(sys, "stderr", screen)
    for message in ("glm pima", "unit-mixture galaxies --components 3", "mixture faithful --components 2"):
        assert run("fit", *message.split(), "--quiet")[0] == 0
        assert screen.getvalue() == ""
        assert run("fit", *message.split())[0] == 0
        assert screen.getvalue() != ""
        screen.truncate(0)
        screen.seek(0)


KILLED = """
import os, signal, sys
from cavity.jobs.checkpoint import Checkpoint
from cavity.cli import main

write, left = Checkpoint.write, [int(sys.argv[1])]

def counted(self):
    write(self)
    left[0] -= 1
    if left[0] == 0:
        os.kill(os.getpid(), getattr(signal, sys.argv[2]))

Checkpoint.write = counted
sys.exit(main(sys.argv[3:]))
"""
JOBS = {
    "glm": ["glm", "pima", "--likelihood", "logit", "--learn-prior-variance"],
    "unit-mixture": ["unit-mixture", "galaxies"],
    "mixture": ["mixture", "faithful", "--components", "2-5"],
    "logistic-regression": ["logistic-regression", "pima"],
    "clutter": ["clutter", "newcomb"],
}


@pytest.mark.skipif(os.name != "posix", reason="needs signals")
@pytest.mark.parametrize(
    ("job", "kill", "after"),
    [
        ("glm", "SIGKILL", 3),
        pytest.param("unit-mixture", "SIGTERM", 90, marks=pytest.mark.long),
        pytest.param("unit-mixture", "SIGKILL", 40, marks=pytest.mark.long),
        pytest.param("glm", "SIGINT", 9, marks=pytest.mark.long),
        pytest.param("mixture", "SIGKILL", 30, marks=pytest.mark.long),
        pytest.param("mixture", "SIGTERM", 60, marks=pytest.mark.long),
        pytest.param("logistic-regression", "SIGTERM", 4, marks=pytest.mark.long),
        pytest.param("clutter", "SIGKILL", 2, marks=pytest.mark.long),
    ],
)
def test_the_same_command_goes_on_where_it_was_killed(run, tmp_path, job, kill, after):
    message = ["fit", *JOBS[job], "--output", str(tmp_path / "p.npz")]
    stored = ["--checkpoint", str(tmp_path / "job.ckpt"), "--checkpoint-every", "0"]
    assert run(*message)[0] == 0
    expected = cavity.load(tmp_path / "p.npz").to_arrays()
    (tmp_path / "p.npz").unlink()
    command = [sys.executable, "-c", KILLED, str(after), kill, *message, *stored]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == {"SIGKILL": -9, "SIGTERM": 143, "SIGINT": 130}[kill], done.stderr
    assert (tmp_path / "job.ckpt").exists()
    assert not (tmp_path / "p.npz").exists()
    text = result(run, "info", tmp_path / "job.ckpt")
    assert text["kind"] == "checkpoint"
    assert text["stages"]
    assert f"  model            {text['model']['kind']}\n" in run("info", tmp_path / "job.ckpt")[1]
    status, _, errors = run(*message, *stored)
    assert (status, errors) == (0, "")
    actual = cavity.load(tmp_path / "p.npz").to_arrays()
    assert actual[1] == expected[1]
    for name, array in expected[0].items():
        np.testing.assert_array_equal(actual[0][name], array, err_msg=name)
    status, _, errors = run("fit", *JOBS[job], "--tol", "1e-3", *stored)
    assert status == 2
    assert "job.ckpt is of another fit" in errors
    assert "--checkpoint-every needs --checkpoint" in run(*message, "--checkpoint-every", 5)[2]


def test_a_checkpoint_that_cannot_be_written_is_told(run, tmp_path, monkeypatch):
    def full(*_):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(persistence, "write", full)
    stored = "--checkpoint", tmp_path / "job.ckpt", "--checkpoint-every", 0
    status, out, err = run("fit", "glm", "pima", *stored)
    assert status == 0
    assert "converged" in out
    assert err.count("\n") == 1
    assert err.startswith(f"cavity: checkpoint {tmp_path / 'job.ckpt'} could not be written (No space left on device)")


def test_rows_that_are_not_predicted_are_told(run, tmp_path):
    saved, out = tmp_path / "p.npz", tmp_path / "r.npy"
    X = np.random.default_rng(0).normal(size=(50, 2))
    np.save(tmp_path / "x.npy", X)
    X[7, 1] = np.nan
    np.save(tmp_path / "gaps.npy", X)
    for covariance in ("full", "diag"):
        message = "--components", 1, "--covariance", covariance, "--output", saved
        assert run("fit", "mixture", tmp_path / "x.npy", *message)[0] == 0
        predict = "predict", saved, tmp_path / "gaps.npy", "--output", out
        text = result(run, *predict, "--missing", "drop")
        assert (text["rows"], text["left_out"]) == (49, ["1 row with missing values"])
        assert "column '2' in row 8" in run(*predict, "--missing", "error")[2]
        assert run(*predict, "--missing", "keep")[0] == (2 if covariance == "full" else 0)


def test_files_among_the_data_are_never_overwritten(run, tmp_path):
    parts = tmp_path / "parts"
    parts.mkdir()
    for part in range(2):
        (parts / f"{part}.csv").write_text("x,y\n1,2\n2,5\n4,3\n")
    model = tmp_path / "model.npz"
    for files in (str(parts / "*.csv"), parts):
        fit = ("fit", "mixture", files, "--components", "1")
        assert run(*fit, "--output", model)[0] == 0
        for message in (fit, ("predict", model, files)):
            status, _, err = run(*message, "--output", parts / "1.csv")
            assert (status, "is the data file; it would be overwritten" in err) == (2, True)
        assert run("predict", model, files, "--output", tmp_path / "new.csv")[0] == 0
    assert (parts / "1.csv").read_text() == "x,y\n1,2\n2,5\n4,3\n"
    for _ in range(2):  # beside the data, but none of them
        assert run(*fit, "--output", parts / "model.npz", "--checkpoint", parts / "job")[0] == 0
    status, _, err = run(*fit, "--output", model, "--checkpoint", model)
    assert (status, f"--output and --checkpoint: {model} would be written twice" in err) == (2, True)


@pytest.mark.skipif(not hasattr(os, "pwritev"), reason="files are written at their own position here")
def test_no_space_for_a_scratch_file(run, tmp_path, monkeypatch, set_sizes):
    def full(*_):
        raise OSError(errno.ENOSPC, "No space left on device")

    (tmp_path / "x.csv").write_text("a,b\n1,2\n3,4\n")
    set_sizes(MAX_BYTES_IN_MEMORY=8)
    monkeypatch.setattr(os, "pwritev", full)
    status, out, err = run("fit", "linear-regression", tmp_path / "x.csv", "--target", "b")
    assert (status, out) == (2, "")
    assert err.startswith("cavity: error: a scratch file in ")
    assert "No space left on device" in err
    assert "TMPDIR" in err


def test_columns_of_parquet_that_hold_no_numbers(run, tmp_path):
    arrow, parquet = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
    kinds = np.array(["u", "v", "w"])[np.arange(30) % 3]
    columns = {"x": np.arange(30.0) % 7, "kind": arrow.array(kinds).dictionary_encode(), "day": [date(2020, 1, 1)] * 30}
    parquet.write_table(arrow.table(columns | {"two": kinds == "u"}), tmp_path / "x.parquet")
    status, printed, _ = run("fit", "glm", tmp_path / "x.parquet", "--target", "two", "--categorical", "kind")
    assert status == 0
    assert "left out         day (text), kind u (base level)" in printed
    assert "class 1          1, 10 rows" in printed
    message = "--target", "x", "--features", "day"
    assert "holds text (2020-01-01); code it with --categ" in run("fit", "glm", tmp_path / "x.parquet", *message)[2]
    shown = run("fit", "gp", tmp_path / "x.parquet", "--target", "kind", "--features", "x", "--no-learn")[2]
    assert "column 'kind' has 3 classes (u, v, w); if they have an order, say --likelihood ordered-probit" in shown


def test_what_is_no_option_is_told_with_the_nearest_one(run):
    status, out, err = run("fit", "linear-regression", "pima", "--target", "bmi", "--featurse", "age")
    assert (status, out) == (2, "")
    assert err == "cavity: error: fit linear-regression has no option --featurse; is it --features?\n"
    err = run("fit", "mixture", "faithful", "--zzz")[2]
    assert err == "cavity: error: fit mixture has no option --zzz; see cavity fit mixture --help\n"
    assert "is it --columns?" in run("predict", "a.npz", "b.csv", "--output", "c.csv", "--colums=a")[2]


def test_messages_list_the_first_of_many_columns(run, tmp_path):
    path = tmp_path / "wide.csv"
    path.write_text(",".join(f"c{i}" for i in range(3000)) + "\n" + ",".join(["1"] * 3000) + "\n")
    for message in (("fit", "glm", path, "--target", "zz"), ("fit", "mixture", path, "--columns", "zz")):
        status, _, err = run(*message)
        assert status == 2
        assert "no column 'zz'; there is c0, c1, c2" in err
        assert "c39, ...\n" in err
