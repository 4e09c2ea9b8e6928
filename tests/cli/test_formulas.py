"""Fits and predictions by a formula on the command line: the numbers of the library."""

import numpy as np
import pytest
from support.commands import write
from support.tolerances import SOLVES

import cavity

pytest.importorskip("formulae")
FORMULA = "claims ~ age + C(district)"


@pytest.fixture
def frame():
    """Counts with an exposure and weights, in districts, one age missing."""
    pandas, rng = pytest.importorskip("pandas"), np.random.default_rng(0)
    district, age, years = rng.integers(0, 3, 60), rng.normal(size=60), rng.uniform(1.0, 4.0, 60)
    claims = rng.poisson(years * np.exp(0.3 * age + 0.2 * district)).astype(float)
    columns = {"district": np.array(["north", "south", "west"])[district], "age": age, "years": years}
    columns |= {"claims": claims, "copies": rng.integers(1, 3, 60).astype(float)}
    columns["age"][7] = np.nan
    return pandas.DataFrame(columns)


def table_file(tmp_path, frame):
    """Return the .csv file of a frame."""
    return write(tmp_path / "claims.csv", {name: frame[name].tolist() for name in frame})


@pytest.mark.parametrize("model", ["glm", "mixed"])
def test_a_formula_with_exposure_weights_and_missing_values(run, tmp_path, frame, model):
    formula = FORMULA if model == "glm" else "claims ~ age + (1 | district)"
    typed = "--formula", formula, "--likelihood", "poisson", "--exposure", "years", "--weights", "copies"
    settings = dict(exposure="years", sample_weight="copies", missing="drop")
    expected = cavity.GLM(formula, "poisson").fit(frame, **settings)
    saved = []
    for command in dict.fromkeys(("glm", model)):  # where it has random effects it is the same by both commands
        saved.append(tmp_path / f"{command}.npz")
        message = "fit", command, table_file(tmp_path, frame), *typed, "--missing", "drop", "--output", saved[-1]
        status, out, errors = run(*message)
        assert (status, errors) == (0, "")
        assert "claims.csv: 59 rows" in out
        assert "left out         1 row with missing values (age 1)" in out
        posterior = cavity.load(saved[-1])
        np.testing.assert_array_equal(posterior.mean, expected.mean)
        assert posterior.roles == expected.roles == {"exposure": "years", "sample_weight": "copies"}


def test_settings_of_the_likelihood_and_of_the_model(run, tmp_path, frame):
    message = "--formula", "claims ~ age", "--likelihood", "student-t", "--scale", "2", "--missing", "drop"
    path = table_file(tmp_path, frame)
    status, out, _ = run("fit", "glm", path, *message, "--standardize", "--learn-prior-variance")
    assert status == 0
    assert "scale 2" in out
    assert "formula          claims ~ age" in out


@pytest.mark.parametrize("choice", [(), ("--missing", "raise"), ("--missing", "error")])
def test_missing_values_are_refused(run, tmp_path, frame, choice):
    status, out, errors = run("fit", "glm", table_file(tmp_path, frame), "--formula", FORMULA, *choice)
    assert (status, out) == (2, "")
    assert "missing values of 'age' in 1 of 60 rows, the first is row 7; --missing drop leaves" in errors


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (("--target", "claims"), "--target has no meaning with --formula"),
        (("--no-intercept",), "--no-intercept has no meaning with --formula"),
        (("--scale", "2"), "need --likelihood"),
        (("--exposure", "time"), "no column 'time'"),
    ],
)
def test_options_that_do_not_go_with_a_formula(run, tmp_path, frame, text, message):
    status, _, errors = run("fit", "glm", table_file(tmp_path, frame), "--formula", FORMULA, *text)
    assert status == 2
    assert message in errors


def test_exposure_without_a_formula(run, tmp_path, frame):
    message = "--target", "claims", "--features", "age", "--likelihood", "poisson", "--exposure", "years"
    path = table_file(tmp_path, frame)
    status, out, _ = run(
        "fit", "glm", path, *message, "--missing=drop", "--output", tmp_path / "a.npz", "--plot", tmp_path / "a.png"
    )
    assert status == 0
    assert "exposure         years" in out
    frame = frame.dropna()
    expected = cavity.GLM("poisson", intercept=True).fit(frame[["age"]], frame["claims"], exposure=frame["years"])
    np.testing.assert_allclose(cavity.load(tmp_path / "a.npz").mean, expected.mean, rtol=SOLVES)


@pytest.mark.parametrize("formula", [FORMULA, "claims ~ age + (1 | district)"])
def test_predictions_by_formula(run, tmp_path, frame, formula):
    saved, path = tmp_path / "a.npz", table_file(tmp_path, frame.assign(policy=[f'"p,{k}"' for k in range(60)]))
    posterior = cavity.GLM(formula, "poisson").fit(frame, exposure="years", missing="drop")
    posterior.save(saved)
    rest = frame.dropna()
    expected = np.column_stack([*posterior.predict(rest), posterior.expected(rest)])
    status, out, errors = run("predict", saved, path, "--missing", "drop", "--id", "policy")
    assert status == 0
    assert "left out: 1 row with missing values" in errors
    lines = out.splitlines()
    assert lines[:1] == ["policy,mean,variance,expected"]
    assert [line.rsplit(",", 3)[0] for line in lines[1:]] == [f'"p,{k}"' for k in range(60) if k != 7]
    np.testing.assert_array_equal([[float(cell) for cell in line.split(",")[-3:]] for line in lines[1:]], expected)
    out = tmp_path / "out.npy"
    assert run("predict", saved, path, "--missing", "drop", "--output", out)[0] == 0
    np.testing.assert_array_equal(np.load(out), expected)
    refused = (("--missing", "raise"), "'age'"), (("--id", "x"), "no column 'x'"), (("--columns", "1"), "no meaning")
    for text, message in refused:
        status, _, errors = run("predict", saved, path, *text)
        assert status == 2
        assert message in errors


@pytest.fixture
def curve():
    """A smooth function of time and levels of three sites, one number missing."""
    pandas, rng = pytest.importorskip("pandas"), np.random.default_rng(0)
    time, site = rng.uniform(0.0, 10.0, 60), rng.integers(0, 3, 60)
    y = np.sin(time) + np.array([0.0, 2.0, -1.0])[site] + 0.1 * rng.normal(size=60)
    y[5] = np.nan
    return pandas.DataFrame({"id": np.arange(60.0), "time": time, "site": np.array(["n", "s", "w"])[site], "y": y})


def test_a_mean_function_by_formula(run, tmp_path, curve):
    saved, out, path = tmp_path / "a.npz", tmp_path / "p.npy", table_file(tmp_path, curve)
    message = "fit", "gp", path, "--formula", "y ~ site", "--features", "time", "--missing", "drop", "--output", saved
    status, printed, errors = run(*message)
    assert (status, errors) == (0, "")
    assert "left out         1 row with missing values (y 1)" in printed
    assert "formula          y ~ site" in printed
    posterior = cavity.load(saved)
    rows = curve.drop(columns="id").dropna()
    expected = cavity.GaussianProcess("rbf", mean="site").fit(rows, "y")
    assert posterior.log_evidence == expected.log_evidence
    effects = posterior.summary().below.columns["mean"]
    assert np.all(np.abs(effects[1:] - [2.0, -1.0]) < 4.0 * posterior.summary().below.columns["sd"][1:])
    assert run("predict", saved, path, "--output", out)[0] == 0
    np.testing.assert_allclose(np.load(out)[:, 0], expected.predict(curve[["time", "site"]])[0], rtol=SOLVES)
    write(path, {"site": ["pink"], "time": [1.0]})
    assert "got 'pink' in row 0 of 'site'" in run("predict", saved, path)[2]
    write(path, {"site": ["n"]})
    assert "no column 'time'; there is site" in run("predict", saved, path)[2]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (("--mean", "linear"), "--mean has no meaning with --formula"),
        (("--no-ard",), "--no-ard has no meaning with --formula"),
        (("--scale", "2"), "need --likelihood"),
        (("--features", "time,zone"), "no column 'zone'; there is id, time, site, y"),
        (("--formula", "log(y) ~ site"), "no column 'log(y)'"),
        (("--formula", "y ~ (1 | site)"), "no groups"),
        (("--missing", "error"), "--missing drop leaves such rows out"),
    ],
)
def test_mean_functions_that_are_refused(run, tmp_path, curve, text, message):
    path = table_file(tmp_path, curve)
    status, out, errors = run("fit", "gp", path, "--missing", "drop", "--formula", "y ~ site", *text)
    assert (status, out) == (2, "")
    assert message in errors


def test_predictions_to_standard_output(run, tmp_path):
    saved, out = tmp_path / "a.npz", tmp_path / "p.csv"
    assert run("fit", "mixture", "faithful", "--components", "2", "--output", saved)[0] == 0
    assert run("predict", saved, "faithful", "--output", out)[0] == 0
    for message in ((), ("--output", "-")):
        status, printed, errors = run("predict", saved, "faithful", *message)
        assert (status, printed, errors) == (0, out.read_text(), "")


def test_comparison(run, tmp_path, frame):
    rest, files = frame.dropna(), {}
    for name, formula in (("a", "claims ~ age"), ("b", FORMULA)):
        files[str(tmp_path / name) + ".npz"] = posterior = cavity.GLM(formula, "poisson").fit(rest)
        posterior.save(tmp_path / f"{name}.npz")
    status, out, errors = run("compare", *files)
    assert status == 0
    assert "b.npz' is doubtful in 2 rows" in errors
    with pytest.warns(cavity.NumericalWarning, match="is doubtful in 2 rows"):
        assert out == f"{cavity.compare(files)!r}\n"
    assert run("compare", *files, "--json")[0] == 0
    assert run("compare", tmp_path / "none.npz")[0] == 2
