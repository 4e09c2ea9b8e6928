"""The command line, run as a user runs it: results, files, and one sentence with status 2 for bad input."""

import os
import signal
import subprocess
import sys
import threading

import numpy as np
import pytest
from support.tolerances import SLOPES

import cavity
from cavity import data
from cavity.base.errors import name_arguments
from cavity.cli import options as shared

SHIPPED = (
    "banana, cbpp, co2, contraception, electricity, faithful, galaxies, grouseticks, insurance, "
    "motorcycle, newcomb, nile, pima, scotland, sleepstudy"
)


def test_newcomb_as_a_command(tmp_path):
    """The main job in its own process: what is true about Newcomb's data."""
    done = subprocess.run(
        [sys.executable, "-m", "cavity", "fit", "clutter", "newcomb"],
        capture_output=True,
        text=True,
        cwd=tmp_path,
        check=False,
    )
    assert done.returncode == 0
    assert done.stderr == ""
    values, _ = data.load("newcomb")
    clean = values[values > 0]
    line = next(line for line in done.stdout.splitlines() if line.strip().startswith("mean"))
    assert "ns beyond 24800 ns" in line
    assert abs(float(line.split()[1]) - clean.mean()) < 0.1
    assert "2 points are clutter" in done.stdout
    assert "-44" in done.stdout
    assert "systematic error" in done.stdout
    assert "converged" in done.stdout
    assert "clutter_variance 5041" in done.stdout


def test_newcomb_data_are_stiglers():
    values, about = data.load("newcomb")
    assert len(values) == 66
    assert values.mean() == pytest.approx(26.21212, abs=SLOPES)  # Stigler 1977, Table 5: mean 26.21 of all 66
    assert np.median(values) == 27
    assert sorted(values)[:3] == [-44, -2, 16]
    assert about["reference"] == 33.02
    with pytest.raises(ValueError, match=f"no data set 'michelson'; there is {SHIPPED}"):
        data.load("michelson")


def test_galaxy_velocities_are_roeders():
    values, about = data.load("galaxies")
    assert values.shape == (82,)
    assert np.round(1000 * values).sum() == 1707910  # galaxies of MASS, in km/s
    assert (values.min(), values.max()) == (9.172, 34.279)
    assert np.all(np.diff(values) > 0)
    assert values[77] == 26.690  # the 78th, as it stands in MASS; the survey has 26.960, and the file says so
    assert "26.960" in about["source"]
    assert (about["unit"], about["column"]) == ("1000 km/s", "velocity")


def test_output_and_plot(run, tmp_path):
    status, out, _ = run("fit", "clutter", "newcomb", "--output", tmp_path / "a.npz", "--plot", tmp_path / "a.png")
    assert status == 0
    posterior = cavity.load(tmp_path / "a.npz")
    assert f"mean             {posterior.mean:.3f} ns" in out
    assert f"{posterior.log_evidence:.6f}" in out
    assert (tmp_path / "a.png").read_bytes().startswith(b"\x89PNG")


def test_plot_formats_and_planes(run, tmp_path):
    rng = np.random.default_rng(0)
    np.save(tmp_path / "x.npy", rng.normal(size=(50, 2)))
    status, *_ = run("fit", "clutter", tmp_path / "x.npy", "--column", 1, "--column", 2, "--plot", tmp_path / "a.svg")
    assert status == 0
    assert b"<svg" in (tmp_path / "a.svg").read_bytes()
    status, _, err = run("fit", "clutter", "newcomb", "--plot", tmp_path / "a.xyz")
    assert status == 2
    assert "cannot draw a 'xyz' file" in err


def test_the_same_numbers_as_the_library(run, tmp_path):
    rng = np.random.default_rng(3)
    x = np.where(rng.random(200) < 0.2, rng.normal(0, 30, 200), rng.normal(5, 1, 200))
    table = tmp_path / "x.csv"
    table.write_text(
        "\ufeffid, value\n" + "".join(f"{i},{v!r}\n\n" for i, v in enumerate(x.tolist())), encoding="utf-8"
    )
    settings = dict(
        clutter_weight=0.2,
        noise_variance=1.0,
        clutter_variance=900.0,
        clutter_mean=0.0,
        prior_mean=0.0,
        prior_variance=100.0,
    )
    options = [f"--{name.replace('_', '-')}={value}" for name, value in settings.items()]
    status, _, _ = run("fit", "clutter", table, "--column", "value", *options, "--output", tmp_path / "o.npz")
    assert status == 0
    expected, actual = cavity.Clutter(**settings).fit(x), cavity.load(tmp_path / "o.npz")
    assert (actual.mean, actual.variance, actual.log_evidence) == (
        expected.mean,
        expected.variance,
        expected.log_evidence,
    )
    for more in (
        ["--method", "adf"],
        ["--schedule", "parallel", "--threads", 2],
        ["--random-order", 3, "--damping", 0.8],
        ["--power", 0.5],
    ):
        assert run("fit", "clutter", table, "--column", 2, *more)[0] == 0


def test_not_converged_is_status_1(run):
    status, out, _ = run("fit", "clutter", "newcomb", "--max-iter", 2)
    assert status == 1
    assert "NOT CONVERGED: max_iter reached" in out


@pytest.mark.sample(3)
@pytest.mark.parametrize("values", [[3.0], [3.0] * 9, [1.0, 1.0, 1.0, 1.0, 50.0]])
def test_degenerate_data(run, tmp_path, values):
    np.save(tmp_path / "x.npy", np.array(values))
    status, out, err = run("fit", "clutter", tmp_path / "x.npy", "--plot", tmp_path / "x.png")
    assert status == 0, err
    assert "nan" not in out


BAD_TABLES = {
    "missing": (None, f"no such file, and no such data set (there is {SHIPPED})"),
    "empty": ("", "the file holds no rows"),
    "header only": ("a\n", "the file holds a header and no rows"),
    "ragged": ("a,b\n1,2\n3\n", "line 3: 1 fields where the first line has 2"),
    "text": ("a,b\n1,2\n3,x\n", "line 3: column 'b' is 'x', not a finite number"),
    "nan": ("a,b\n1,2\n3,nan\n", "line 3: column 'b' has no value; fill it in, or leave such rows out with"),
    "infinite": ("a,b\n1,2\n\n3,-inf\n", "line 4: column 'b' is -inf, not a finite number"),
    "blank": ("a,b\n1,2\n3,\n", "line 3: column 'b' has no value"),
    "no such column": ("a,c\n1,2\n", "no column 'b'; there is a, c"),
}


@pytest.mark.parametrize("kind", BAD_TABLES)
def test_bad_tables(run, tmp_path, kind):
    text, message = BAD_TABLES[kind]
    path, output = tmp_path / "table.csv", tmp_path / "out.npz"
    output.write_bytes(b"precious")
    if text is not None:
        path.write_text(text)
    status, out, err = run("fit", "clutter", path, "--column", "b", "--output", output)
    assert (status, out) == (2, "")
    assert err.startswith("cavity: error: ")
    assert message in err
    assert str(path) in err
    assert len(err.splitlines()) == 1
    assert output.read_bytes() == b"precious"


def test_bad_arrays_and_bytes(run, tmp_path):
    path = tmp_path / "x.npy"
    path.write_bytes(b"not an array")
    assert f"{path} is not a .npy file that can be read" in run("fit", "clutter", path)[2]
    np.save(path, np.array(["a"]))
    assert f"the data ({path}) must hold real numbers, got dtype <U1" in run("fit", "clutter", path)[2]
    np.save(path, np.ones((2, 3, 4)))
    assert f"the data ({path}) must have 1 or 2 dimension(s), got shape (2, 3, 4)" in run("fit", "clutter", path)[2]
    np.save(path, np.array([1.0, np.nan]))
    assert "row 2: column '1' has no value" in run("fit", "clutter", path)[2]
    np.save(path, np.ones((3, 2)))
    assert "choose one or more columns with --column; there is 1, 2" in run("fit", "clutter", path)[2]
    table = tmp_path / "x.csv"
    table.write_bytes(b"a\n1\n\xff\xfe\n")
    assert "not readable as utf-8" in run("fit", "clutter", table)[2]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--clutter-weight", 1.5], "--clutter-weight must be between 0 and 1, got 1.5"),
        (["--noise-variance", -1], "--noise-variance must be positive, got -1"),
        (["--damping", 0], "--damping must be above 0 and at most 1, got 0"),
        (["--damping", "1e-3"], "--damping must be in [0.01, 1], got 0.001"),
        (["--output", "/nonexistent/folder/a.npz"], ": the folder /nonexistent/folder does not exist"),
        (["--column", "a"], "--column has no meaning for the shipped data set 'newcomb'"),
        (["--random-order", -1], "--random-order must be a whole number from 0, got -1"),
    ],
)
def test_bad_options(run, options, message):
    status, out, err = run("fit", "clutter", "newcomb", *options)
    assert (status, out) == (2, "")
    assert message in err
    assert len(err.splitlines()) == 1


def test_a_missing_extra_is_named(run, monkeypatch):
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    for name in [name for name in sys.modules if name.startswith("cavity.plot")]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.delattr(cavity, "plot", raising=False)
    status, _, err = run("fit", "clutter", "newcomb", "--plot", "a.png")
    assert status == 2
    assert "pip install 'cavity[plot]'" in err


def test_usage(run):
    assert run("--version")[1] == f"cavity {cavity.__version__}\n"
    assert run("-V")[1] == run("--version")[1]
    status, out, _ = run()
    assert status == 0
    assert "exit status:" in out
    assert run("fit", "nonsense")[0] == 2
    assert "--clutter-weight" in run("fit", "clutter", "--help")[1]


@pytest.mark.parametrize("place", [0, 1, 10])
@pytest.mark.parametrize("outlier", [100.0, 2000.0, -9999.0, 1e9])
def test_a_gross_outlier_anywhere_is_clutter(run, tmp_path, outlier, place):
    values = [3.1, 2.9, 3.3, 2.4, 3.8, 3.0, 2.2, 3.6, 2.7, 3.2]
    clean = np.mean(values)
    values.insert(place, outlier)
    (tmp_path / "x.csv").write_text("x\n" + "\n".join(map(str, values)) + "\n")
    for options in ([], ["--schedule", "parallel"]):
        status, out, _ = run("fit", "clutter", tmp_path / "x.csv", "--output", tmp_path / "o.npz", *options)
        assert status == 0
        assert "1 points are clutter" in out
        posterior = cavity.load(tmp_path / "o.npz")
        assert abs(posterior.mean - clean) < 0.3 * np.sqrt(posterior.variance) + 0.02


def test_the_data_are_never_overwritten(run, tmp_path):
    path = tmp_path / "b.csv"
    path.write_text("x\n1\n2\n3\n")
    assert "it would be overwritten" in run("fit", "clutter", path, "--output", path)[2]
    assert path.read_text() == "x\n1\n2\n3\n"


def test_the_mean_is_printed_to_the_digits_of_its_sd(run, tmp_path):
    np.save(tmp_path / "x.npy", 1e9 + np.array([0.001, 0.002, 0.003, 0.004, 0.005, 0.006, 0.050]))
    out = run("fit", "clutter", tmp_path / "x.npy")[1]
    assert "mean             1000000000.003" in out
    assert "1000000000.05" in out


WAITING = """
import sys, time
import numpy as np
from cavity.cli import main
from cavity.cli.streaming_gp import Stream

def wait(*_, **__):
    print("ready", flush=True)
    time.sleep(60)

if sys.argv[1] == "predict":
    np.column_stack = wait
else:
    Stream.save_sometimes = wait
sys.exit(main(sys.argv[1:]))
"""


def terminated(folder, *arguments):
    """Run a command that waits in the midst of its work, end it by SIGTERM, return what it said."""
    command = [sys.executable, "-c", WAITING, *map(str, arguments)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=folder) as process:
        assert process.stdout.readline() == "ready\n"
        process.send_signal(signal.SIGTERM)
        message = process.stderr.read()
        assert process.wait(30) == 143, message
    return message


@pytest.mark.skipif(os.name != "posix", reason="needs SIGTERM")
def test_sigterm_leaves_no_half_written_file(tmp_path):
    X = np.random.default_rng(0).normal(size=(30, 2))
    np.save(tmp_path / "x.npy", X)
    cavity.GaussianMixture(1).fit(X).save(tmp_path / "p.npz")
    assert terminated(tmp_path, "predict", "p.npz", "x.npy", "--output", "out.npy") == "cavity: terminated\n"
    assert sorted(os.listdir(tmp_path)) == ["p.npz", "x.npy"]


@pytest.mark.skipif(os.name != "posix", reason="needs SIGTERM")
def test_sigterm_saves_a_stream(tmp_path):
    options = ["--learn", "never", "--batch", "50", "--output", "state.npz"]
    message = terminated(tmp_path, "fit", "streaming-gp", "banana", *options)
    text = "cavity: the state before is saved in state.npz; resume with --resume state.npz --skip 50"
    assert message.splitlines() == [text, "cavity: terminated"]
    assert cavity.load(tmp_path / "state.npz").n_samples == 50
    assert os.listdir(tmp_path) == ["state.npz"]


def test_sigterm_is_heard_by_the_command_only(run, monkeypatch):
    before = signal.getsignal(signal.SIGTERM)
    assert run("fit", "clutter", "newcomb")[0] == 0
    assert signal.getsignal(signal.SIGTERM) == before
    thread = threading.Thread(target=run, args=("fit", "clutter", "newcomb"))  # where none can be set
    thread.start()
    thread.join()


def numeric_options():
    """The options of all commands that take numbers, as (command, what makes the number)."""
    commands = cavity.cli.build_parser()._subparsers._group_actions[0].choices
    models = commands["fit"]._subparsers._group_actions[0].choices
    for command, parser in ({"predict": commands["predict"]} | models).items():
        for action in parser._actions:
            if action.type is not None and not action.choices:
                yield command, action.type


def test_every_number_has_a_domain(run):
    """Out of it, the option is named as it was typed, with the number that was typed, before any work."""
    seen = [(command, kind) for command, kind in numeric_options() if isinstance(kind, shared.Number)]
    assert len(seen) > 50
    for command, kind in seen:
        text = "nan" if kind.domain == "finite" else "-7"
        start = ("predict", "a.npz", "b.csv", "--output", "c.npy") if command == "predict" else ("fit", command, "none")
        status, printed, errors = run(*start, f"{kind.option}={text}")
        assert (status, printed) == (2, "")
        assert errors == f"cavity: error: {kind.option} must be {kind.domain}, got {text}\n"


def test_only_two_numbers_say_themselves_what_they_may_be():
    others = [(command, kind) for command, kind in numeric_options() if not isinstance(kind, shared.Number)]
    assert sorted(command for command, _ in others) == ["gp", "mixture"]  # --rows and --components


def test_messages_speak_of_options():
    values = cavity.cli.build_parser().parse_args(["fit", "unit-mixture", "galaxies", "--threads", "1"])
    for text, arguments, shown in (
        ("n_threads must be at least 1, got 0", ["n_threads"], "--threads must be at least 1, got 0"),
        ("n_init=3 is too much", ["n_init"], "--starts 3 is too much"),
        ("starts='some' is one word", ["starts"], "--starts some is one word"),
        ("column 'max_iter'", [], "column 'max_iter'"),
        ("tol must be small: n_init too", ["tol", "n_init"], "--tol must be small: --starts too"),
        ("seed must be given", ["seed"], "seed must be given"),  # it was not
        ("schedule must be known", ["schedule"], "schedule must be known"),
        ("model must be known", ["model"], "model must be known"),
    ):
        assert shared.name_arguments_as_typed(name_arguments(ValueError(text), *arguments), values) == shown
    assert shared.name_arguments_as_typed(ValueError("n_threads"), values) == "n_threads"
