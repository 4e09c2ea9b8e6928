"""`cavity fit glm` as users run it: the library's numbers, files, and one sentence with status 2 for bad input."""

import csv
import re
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest
from scipy.special import ndtr
from support.commands import write
from support.tolerances import AT_REST, INTEGRAL, PRINTED, ROOT_EPS, SOLVES

import cavity
from cavity import data, likelihoods
from cavity.cli import input_tables, main

COMMAND = ("fit", "glm")


def pima():
    """The matrix of the command line without options, and the labels."""
    columns, _ = data.table("pima")
    features = np.column_stack([columns[c] for c in ("npreg", "glu", "bp", "skin", "bmi", "ped", "age")])
    return features, columns["type"] == "Yes"


def problem(n=120, seed=0):
    """Two columns, an exposure and a weight, with targets of every kind, as a dict of columns."""
    rng = np.random.default_rng(seed)
    a, b, exposure = rng.normal(3.0, 2.0, n), rng.normal(size=n), rng.uniform(1.0, 4.0, n)
    linear = 0.4 * (a - 3.0) / 2.0 - 0.3 * b
    return {
        "a": a,
        "b": b,
        "log_exposure": np.log(exposure),
        "weight": rng.integers(0, 3, n).astype(float),
        "count": rng.poisson(exposure * np.exp(linear)).astype(float),
        "real": 5.0 + linear + 0.2 * rng.standard_t(4, n),
        "label": (rng.normal(size=n) < linear).astype(float),
    }


def table_of(out):
    """The coefficients printed: {name: [mean, sd, lower end, upper end]}."""
    lines = out.splitlines()
    first = next(i for i, line in enumerate(lines) if line.split()[:2] == ["mean", "sd"]) + 1
    last = next(i for i, line in enumerate(lines) if line.startswith(("  larger values", "  log_evidence")))
    return {line.split()[0]: [float(v) for v in line.split()[1:5]] for line in lines[first:last]}


def test_pima_data_are_ripleys():
    columns, about = data.table("pima")
    train, diabetic = columns["set"] == "train", columns["type"] == "Yes"
    # counts, and means of the training rows, of Pima.tr and Pima.te in MASS
    assert [int(train.sum()), int((~train).sum())] == [200, 332]
    assert [int(diabetic[train].sum()), int(diabetic[~train].sum())] == [68, 109]
    assert columns["glu"][train].mean() == pytest.approx(123.97)
    assert columns["bmi"][train].mean() == pytest.approx(32.31)
    assert columns["age"][~train].mean() == pytest.approx(31.3163, abs=PRINTED)
    assert list(columns) == list(about["columns"])
    assert columns["glu"].dtype == np.float64
    with pytest.raises(ValueError, match="'pima' is a table of 9 columns; read it with cavity.data.table"):
        data.load("pima")
    with pytest.raises(ValueError, match="no data set 'iris'; there is banana, .*, sleepstudy"):
        data.table("iris")
    values, _ = data.load("newcomb")
    assert data.table("newcomb")[0]["time"].tolist() == values.tolist()


@pytest.mark.long_cases("logit")
@pytest.mark.parametrize("name", ["probit", "logit"])
def test_pima_has_the_numbers_of_the_library(run, tmp_path, name):
    status, out, err = run("pima", "--likelihood", name, "--output", tmp_path / "o.npz", "--plot", tmp_path / "o.png")
    assert (status, err) == (0, "")
    X, y = pima()
    likelihood = {"probit": cavity.likelihoods.Probit, "logit": cavity.likelihoods.Logit}[name]()
    posterior = cavity.GLM(likelihood, intercept=True).fit(X, y)
    assert f"log evidence     {posterior.log_evidence:.6f} nats" in out
    assert f"log score {posterior.loo_log_density.mean():.6f} nats per row" in out
    right = np.mean(np.exp(posterior.loo_log_density) > 0.5)
    assert f"{100 * right:.1f} % of the rows in the right class (66.7 % by always saying No)" in out
    assert right > 0.75  # and well above the share of the larger class
    share = np.mean(y)
    entropy = -share * np.log2(share) - (1 - share) * np.log2(1 - share)
    assert f"{entropy + posterior.loo_log_density.mean() / np.log(2):.4f} bits per row beyond the shares" in out
    assert "class 1          Yes, 177 rows" in out
    assert "left out         column set (Ripley's split)" in out
    assert "converged" in out
    printed = table_of(out)
    assert list(printed) == ["intercept", "npreg", "glu", "bp", "skin", "bmi", "ped", "age"]
    sd = np.sqrt(posterior.variance)
    for (mean, spread, low, high), m, s in zip(printed.values(), posterior.mean, sd, strict=True):
        assert abs(mean - m) < 6e-3 * s
        assert abs(spread - s) < 6e-3 * s
        assert [low, high] == pytest.approx([m - 1.96 * s, m + 1.96 * s], abs=0.005 * s)
    loaded = cavity.load(tmp_path / "o.npz")
    np.testing.assert_allclose(loaded.mean, posterior.mean, rtol=INTEGRAL)
    np.testing.assert_allclose(loaded.covariance, posterior.covariance, rtol=ROOT_EPS, atol=SOLVES)
    assert (tmp_path / "o.png").read_bytes().startswith(b"\x89PNG")


def test_labels_are_two_values_in_sorted_order(run, tmp_path):
    columns = problem()
    _, out, _ = run(write(tmp_path / "x.csv", columns), "--target", "label", "--features", "a,b")
    expected = table_of(out)
    for low, high in ((1.0, 2.0), (-1.0, 1.0), ("Healthy", "ill"), ("-", "+")):
        columns["label2"] = [high if one else low for one in columns["label"]]
        status, out, _ = run(write(tmp_path / "x.csv", columns), "--target", "label2", "--features", "a,b")
        assert status == 0
        sign = -1 if high == "+" else 1  # "+" sorts before "-"
        assert table_of(out)["a"][0] == pytest.approx(sign * expected["a"][0], abs=2e-3)
        names = (high, low) if sign < 0 else (low, high)
        for k, name in enumerate(names):
            name = name if isinstance(name, str) else f"{name:g}"
            assert f"class {k}          {name}, " in out


def test_counts_with_offset_and_weights(run, tmp_path):
    columns = problem()
    path = write(tmp_path / "x.csv", columns)
    status, out, _ = run(
        *(path, "--target", "count", "--features", "2,a", "--likelihood", "poisson", "--offset", "log_exposure"),
        *("--weights", "weight", "--prior-variance", 4, "--output", tmp_path / "o.npz", "--plot", tmp_path / "o.svg"),
    )
    assert status == 0
    X = np.column_stack([columns["b"], columns["a"]])
    settings = dict(offset=columns["log_exposure"], sample_weight=columns["weight"])
    model = cavity.GLM(cavity.likelihoods.Poisson(), prior_variance=4.0, intercept=True)
    posterior = model.fit(X, columns["count"], **settings)
    loaded = cavity.load(tmp_path / "o.npz")
    np.testing.assert_allclose(loaded.mean, posterior.mean, rtol=INTEGRAL)
    assert loaded.log_evidence == pytest.approx(posterior.log_evidence, abs=AT_REST)
    used = columns["weight"] > 0
    score = np.average(posterior.loo_log_density[used], weights=columns["weight"][used])
    assert f"log score {score:.6f} nats per row" in out
    assert list(table_of(out)) == ["intercept", "b", "a"]
    assert b"<svg" in (tmp_path / "o.svg").read_bytes()
    repeated = {name: np.repeat(values, columns["weight"].astype(int)) for name, values in columns.items()}
    # weights count rows: the table with repeated rows says the same
    options = "--target", "count", "--features", "a,b", "--likelihood", "negative-binomial", "--dispersion", 3
    options = *options, "--offset", "log_exposure"
    _, first, _ = run(path, *options, "--weights", "weight")
    _, second, _ = run(write(tmp_path / "y.csv", repeated), *options)
    for left, right in zip(table_of(first).values(), table_of(second).values(), strict=True):
        assert left == pytest.approx(right, abs=1e-2 * left[1])
    assert re.search(r"likelihood +negative-binomial, dispersion 3\n", first)


def test_settings_of_likelihoods(run, tmp_path):
    columns = problem(100, seed=2)
    columns["positive"] = np.exp(columns["real"] / np.std(columns["real"]))
    path, X = write(tmp_path / "x.csv", columns), np.column_stack([columns["a"], columns["b"]])
    for target, likelihood, options in (
        ("real", likelihoods.AsymmetricLaplace(0.9, 2), ("asymmetric-laplace", "--quantile-level", 0.9, "--scale", 2)),
        ("positive", likelihoods.Gamma(2.0), ("gamma", "--shape", 2)),
        ("positive", likelihoods.LogNormal(0.5), ("lognormal", "--sd", 0.5)),
        ("count", likelihoods.Tweedie(1.5, 2.0), ("tweedie", "--tweedie-power", 1.5, "--dispersion", 2)),
        ("count", likelihoods.HurdlePoisson(0.3), ("hurdle-poisson", "--zero-probability", 0.3)),
    ):
        columns_typed = "--target", target, "--features", "a,b"
        status, out, _ = run(path, *columns_typed, "--likelihood", *options, "--output", tmp_path / "o.npz")
        posterior = cavity.GLM(likelihood, intercept=True).fit(X, columns[target])
        assert (status, cavity.load(tmp_path / "o.npz").model.likelihood) == (0, likelihood)
        assert f"log evidence     {posterior.log_evidence:.6f} nats" in out


@pytest.mark.long_cases("laplace")
@pytest.mark.sample(2)
@pytest.mark.parametrize("name", ["gaussian", "student-t", "laplace"])
def test_real_targets_are_scaled_to_their_residuals(run, tmp_path, name):
    columns = problem(400, seed=1)
    factor = 1e-6 if name == "laplace" else 1e5  # units must not matter
    columns["real"] *= factor
    path = write(tmp_path / "x.csv", columns)
    options = path, "--target", "real", "--likelihood", name, "--features", "a,b"
    status, out, _ = run(*options, "--output", tmp_path / "o.npz", "--plot", tmp_path / "o.png")
    assert status == 0
    posterior = cavity.load(tmp_path / "o.npz")
    sd = np.sqrt(posterior.variance)
    truth = factor * np.array([4.4, 0.2, -0.3])
    assert np.all(np.abs(posterior.mean - truth) < 4 * sd + 0.03 * factor)
    width = {"gaussian": "noise_variance", "student-t": "scale", "laplace": "scale"}[name]
    actual = getattr(posterior.model.likelihood, width)
    X = np.column_stack([np.ones(400), columns["a"], columns["b"]])
    squares = np.linalg.lstsq(X, columns["real"])[1][0] / 397
    # the noise is Student's with 4 degrees of freedom and scale 0.2: its size has the median 0.2 * 0.7407
    expected = {"gaussian": squares, "student-t": 0.2 * factor, "laplace": 0.2 * 0.7407 / np.log(2) * factor}[name]
    assert actual == pytest.approx(expected, rel=0.02 if name == "gaussian" else 0.2)
    assert f"{width} {actual:.6g} (learnt)" in out
    assert "log score" in out


@pytest.mark.parametrize("outlier", [100.0, *(pytest.param(item, marks=pytest.mark.long) for item in (1e3, -1e9))])
def test_a_gross_outlier_does_not_move_a_robust_fit(run, tmp_path, outlier):
    columns = problem(200, seed=2)
    options = "--target", "real", "--likelihood", "student-t", "--features", "a,b"
    clean = table_of(run(write(tmp_path / "x.csv", columns), *options)[1])
    columns["real"][7] = outlier
    status, out, _ = run(write(tmp_path / "x.csv", columns), *options)
    assert status == 0
    for name, (mean, sd, *_) in table_of(out).items():
        assert abs(mean - clean[name][0]) < 0.3 * clean[name][1]
        assert sd == pytest.approx(clean[name][1], rel=0.05)


def test_one_column_is_a_target(run):
    status, out, _ = run("newcomb", "--likelihood", "student-t", "--scale", 5, "--degrees-of-freedom", 3)
    assert status == 0
    values, _ = data.load("newcomb")
    model = cavity.GLM(cavity.likelihoods.StudentT(3.0, 5.0), intercept=False)
    assert f"{model.fit(np.ones((66, 1)), values).log_evidence:.6f}" in out


def test_npy_and_options(run, tmp_path):
    columns = problem()
    np.save(tmp_path / "x.npy", np.column_stack([columns[name] for name in ("a", "label", "b")]))
    options = tmp_path / "x.npy", "--target", 2
    status, out, _ = run(*options)
    assert status == 0
    assert list(table_of(out)) == ["intercept", "1", "3"]
    for more in (
        ["--schedule", "sequential", "--damping", 0.9],
        ["--threads", 2, "--tol", 1e-6],
        ["--power", 0.9, "--features", "3"],
        ["--no-intercept", "--standardize", "--features", "1,3"],
    ):
        assert run(*options, *more)[0] == 0
    status, out, _ = run(*options, "--method", "adf", "--plot", tmp_path / "o.png")
    assert status == 0
    assert "leave-one-out    not available" in out
    assert (tmp_path / "o.png").exists()


def test_learning_the_prior_variance(run, tmp_path):
    rng = np.random.default_rng(5)
    X = rng.normal(size=(150, 6))
    y = X @ [3.0, -2.0, 2.0, 0.5, -3.0, 1.0] + rng.normal(size=150) > 0
    np.save(tmp_path / "x.npy", np.column_stack([X, y]))
    options = tmp_path / "x.npy", "--target", 7, "--output", tmp_path / "o.npz"
    evidence = {}
    for variance in (0.1, 1.0, 10.0):
        run(*options, "--prior-variance", variance)
        evidence[variance] = cavity.load(tmp_path / "o.npz").log_evidence
    status, out, _ = run(*options, "--learn-prior-variance")
    assert status == 0
    learned = cavity.load(tmp_path / "o.npz")
    assert learned.log_evidence > max(evidence.values())
    variance = learned.model.prior_variance
    at_rest = cavity.GLM("probit", intercept=True).fit(X, y)
    np.testing.assert_allclose(
        variance[1:] / variance[1], at_rest.model.prior_variance[1:] / at_rest.model.prior_variance[1]
    )
    assert re.search(r"prior +variance .* \(learnt", out)


def test_constant_and_unnamed_columns(run, tmp_path):
    columns = problem()
    stored = {"": np.arange(120.0), "a": columns["a"], "one": np.ones(120), "label": columns["label"]}
    path = write(tmp_path / "x.csv", stored)
    status, out, _ = run(path, "--target", "label")
    assert status == 0
    assert "left out         column 1 (has no name), one (constant)" in out
    assert list(table_of(out)) == ["intercept", "a"]
    status, _, err = run(path, "--target", "label", "--features", "a,one")
    assert status == 2
    assert "column 'one' is constant, like the intercept; leave it out of --features, or say" in err
    status, out, _ = run(path, "--target", "label", "--features", "a,one", "--no-intercept")
    assert status == 0
    assert "per unit of the column" in out
    assert list(table_of(out)) == ["a", "one"]


def test_not_converged_is_status_1(run):
    status, out, _ = run("pima", "--max-iter", 1)
    assert status == 1
    assert "NOT CONVERGED" in out


BAD_TABLES = {
    "missing file": (None, [], "no such file, and no such data set (there is banana, cbpp, co2, contraception"),
    "empty": ("", [], "the file holds no rows"),
    "header only": ("a,y\n", [], "the file holds a header and no rows"),
    "ragged": ("a,y\n1,0\n3\n", [], "line 3: 1 fields where the first line has 2"),
    "no target": ("a,y\n1,0\n", ["--target", ""], "no column ''; there is a, y"),
    "no such target": ("a,z\n1,0\n", [], "no column 'y'; there is a, z"),
    "no header": ("1.5,0,good\n1.2,1,bad\n", [], "the first line holds both numbers (1.5) and text"),
    "two of a name": ("a,a,y\n1,2,0\n", [], "two columns are called 'a'"),
    "missing cells": (
        "a,b,y\n,1,0\nNA,2,1\n\n3,2,1\n3,nan,\n",
        [],
        "missing values in column 'y' in line 6; in column 'a' in line 2, line 3; in column 'b' in line 6; "
        "fill them in or drop these rows",
    ),
    "many missing": ("a,y\n" + ",1\n" * 9 + "2,0\n", [], "line 2, line 3, line 4, line 5, line 6 and 4 more"),
    "typo": ("a,y\n1,0\n3;5,1\n", [], "line 3: column 'a' is '3;5', not a finite number"),
    "infinite": ("a,y\n1,0\n-inf,1\n", [], "line 3: column 'a' is -inf, not a finite number"),
    "text feature": (
        "a,b,y\n" + "".join(f"{k},b{k},{k % 2}\n" for k in range(51)),
        ["--features", "a,b"],
        "column 'b' holds text (b0, b1, b10, b11, b12, ...); code it with --categorical b, or leave it out",
    ),
    "no such feature": ("a,y\n1,0\n2,1\n", ["--features", "a,c"], "no column 'c'; there is a, y"),
    "no feature": ("a,y\n1,0\n2,1\n", ["--features", ""], "no column ''; there is a, y"),
    "target as feature": ("a,y\n1,0\n2,1\n", ["--features", "a,y"], "column 'y' is already the target"),
    "twice": ("a,y\n1,0\n2,1\n", ["--features", "a,1"], "--features: column 'a' is listed twice"),
    "one value": ("a,y\n1,0\n2,0\n", [], "column 'y' has one value only (0)"),
    "one class": ("a,y\n1,0\n2,0\n", ["--likelihood", "logit"], "column 'y' has 1 (0); for counts and real numbers"),
    "three classes": ("a,y\n1,x\n2,y\n3,z\n", [], "column 'y' has 3 classes (x, y, z); if they have an order, say"),
    "seven values": (
        "a,y\n" + "".join(f"{i},{i}\n" for i in range(7)),
        ["--likelihood", "probit"],
        "has 7 (0, 1, 2, 3, 4, ...)",
    ),
    "no trials": ("a,y\n1,0\n2,1\n", ["--likelihood", "binomial"], "--likelihood binomial needs --trials, the column"),
    "trials": ("a,y\n1,0\n2,1\n", ["--trials", "a"], "--trials has no meaning for --likelihood gaussian"),
    "too many successes": (
        "a,n,y\n1,2,2\n2,2,3\n",
        ["--likelihood", "binomial", "--trials", "n"],
        "line 3: column 'y' is 3, but successes are from 0 to the number of trials",
    ),
    "semicolons": ("a;y,z\n1;2,3\n", [], "separated by commas or semicolons; give --sep ',', for example"),
    "no category": ("a,c,y\n1,x,0\n2,x,1\n", ["--categorical", "c"], "column 'c' has one value only"),
    "target as category": ("a,y\n1,x\n2,z\n", ["--categorical", "y"], "column 'y' is no feature but target, offset"),
    "all missing": ("a,y\n,0\n2,\n", ["--missing", "drop"], "every row has a missing value in one of y, a"),
    "no count": (
        "a,y\n1,0\n2,1.5\n",
        ["--likelihood", "poisson"],
        "line 3: column 'y' is 1.5, but --likelihood poisson needs whole numbers",
    ),
    "negative count": ("a,y\n1,-1\n2,1\n", ["--likelihood", "negative-binomial"], "line 2: column 'y' is -1, but"),
    "text as count": ("a,y\n1,x\n2,y\n", ["--likelihood", "poisson"], "column 'y' is 'x', not a finite number"),
    "negative weight": ("a,w,y\n1,1,0\n2,-2,1\n", ["--weights", "w"], "line 3: column 'w' is -2, but --weights needs"),
    "no weight": ("a,w,y\n1,0,0\n2,0,1\n", ["--weights", "w"], "--weights must be positive in some row"),
    "text offset": ("a,o,y\n1,x,0\n2,z,1\n", ["--offset", "o"], "line 2: column 'o' is 'x', not a finite number"),
    "nothing left": ("y\n0\n1\n", ["--no-intercept"], "no columns to predict 'y' from, and no intercept"),
}


@pytest.mark.parametrize("kind", BAD_TABLES)
def test_bad_tables(run, tmp_path, kind):
    text, options, message = BAD_TABLES[kind]
    path, output = tmp_path / "table.csv", tmp_path / "out.npz"
    output.write_bytes(b"precious")
    if text is not None:
        path.write_text(text)
    options = options if "--target" in options else ["--target", "y", *options]
    status, out, err = run(path, "--output", output, *options)
    assert (status, out) == (2, "")
    assert err.startswith("cavity: error: ")
    assert message in err
    assert len(err.splitlines()) == 1
    assert output.read_bytes() == b"precious"


def test_bad_arrays(run, tmp_path):
    path = tmp_path / "x.npy"
    path.write_bytes(b"not an array")
    assert f"{path} is not a .npy file that can be read" in run(path, "--target", 1)[2]
    np.save(path, np.array([[1.0, 0.0], [np.nan, 1.0]]))
    assert "missing values in column '1' in row 2" in run(path, "--target", 2)[2]
    assert "choose the column to predict with --target; there is 1, 2" in run(path)[2]
    np.save(path, np.array([[1.0, 0.0], [np.inf, 1.0]]))
    assert "row 2: column '1' is inf, not a finite number" in run(path, "--target", 2)[2]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--scale", 1], "--scale has no meaning for --likelihood logit"),
        (["--likelihood", "logit", "--degrees-of-freedom", 4], "--degrees-of-freedom has no meaning for"),
        (["--tweedie-power", 1.5], "--tweedie-power has no meaning for --likelihood logit"),
        (["--target", "age", "--likelihood", "tweedie", "--tweedie-power", 2], "must be between 1 and 2, got 2"),
        (["--scale", 0], "--scale must be positive, got 0"),
        (
            ["--target", "age", "--likelihood", "student-t", "--degrees-of-freedom", -1],
            "--degrees-of-freedom must be positive, got -1",
        ),
        (
            ["--target", "age", "--likelihood", "poisson", "--prior-variance", 0],
            "--prior-variance must be positive, got 0",
        ),
        (["--prior-variance", "nan"], "--prior-variance must be positive, got nan"),
        (["--prior-variance", -1], "--prior-variance must be positive, got -1"),
        (["--threads", 0], "--threads must be at least 1, or -1 for all cores, got 0"),
        (["--method", "adf", "--power", 0.5], "--method adf sees each row once"),
        (["--power", 1e-7], "--power must be in [1e-06, 1], got 1e-07"),
        (["--damping", 0], "--damping must be above 0 and at most 1, got 0"),
        (["--output", "/nonexistent/folder/a.npz"], ": the folder /nonexistent/folder does not exist"),
        (["--plot", "a.xyz"], "cannot draw a 'xyz' file"),
        (["--target", "age", "--likelihood", "logit"], "column 'age' has 46 (21, 22, 23, 24, 25, ...)"),
        (["--likelihood", "cauchy"], "invalid choice: 'cauchy'"),
    ],
)
def test_bad_options(run, options, message):
    status, out, err = run("pima", *options)
    assert (status, out) == (2, "")
    assert message in err


def test_the_data_are_never_overwritten(run, tmp_path):
    path = write(tmp_path / "x.csv", problem())
    before = path.read_bytes()
    for option in ("--output", "--plot"):
        assert "it would be overwritten" in run(path, "--target", "label", option, path)[2]
    assert path.read_bytes() == before


def test_a_file_wins_over_a_data_set_of_its_name(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "pima").write_text("a,b\n1,2\n")
    assert input_tables.open_table(SimpleNamespace(data="pima")).names == ["a", "b"]


def test_clutter_takes_columns_of_a_shipped_table(capsys):
    assert main(["fit", "clutter", "pima", "--column", "bmi"]) == 0
    assert "532 points, columns bmi" in capsys.readouterr().out
    for more, message in (([], "choose one or more columns with --column"), (["--column", "type"], "'type' is 'No'")):
        assert main(["fit", "clutter", "pima", *more]) == 2
        assert message in capsys.readouterr().err


PREDICTED = {
    "two classes": ["--target", "kind", "--likelihood", "probit"],
    "scaled": ["--target", "kind", "--likelihood", "probit", "--standardize", "--prior-variance", "2"],
    "counts": ["--target", "count", "--likelihood", "poisson"],
    "real": ["--target", "real", "--likelihood", "gaussian", "--no-intercept"],
    "independent weights": ["--target", "kind", "--approximation", "diagonal", "--likelihood", "logit"],
}


@pytest.mark.parametrize("case", PREDICTED)
def test_predict_takes_the_file_that_fit_wrote(run, tmp_path, case):
    """The columns of a new file, in any order and among others, are treated as those of the fit were."""
    columns = problem()
    columns["kind"] = ['"yes, ""sure"""' if label else "no" for label in columns.pop("label")]
    saved, out = tmp_path / "fit.npz", tmp_path / "told.csv"
    path = write(tmp_path / "x.csv", columns)
    assert run(path, "--features", "a,b", *PREDICTED[case], "--output", saved)[0] == 0
    posterior = cavity.load(saved)
    assert posterior.columns == ("a", "b")
    new = {name: np.random.default_rng(1).normal(2.0, 3.0, 9) for name in ("extra", "b", "a")}
    new["a"] = new["a"] + 1.0
    status, printed, _ = predict(run, saved, write(tmp_path / "new.csv", new | {"note": ["x"] * 9}), "--output", out)
    assert status == 0
    assert "9 rows" in printed
    X = np.column_stack([new["a"], new["b"]])
    if "--standardize" in PREDICTED[case]:
        truth = np.column_stack([columns["a"], columns["b"]])
        X = (X - truth.mean(axis=0)) / truth.std(axis=0)
    if "--no-intercept" not in PREDICTED[case]:
        X = np.column_stack([np.ones(9), X])
    spread = np.diag(posterior.variance) if case == "independent weights" else posterior.covariance
    mean, variance = X @ posterior.mean, np.einsum("ij,jk,ik->i", X, spread, X)
    with open(out, newline="") as file:
        header, *lines = csv.reader(file)
    text = np.array(lines, dtype=float)
    np.testing.assert_allclose(text[:, :2], np.column_stack([mean, variance]), rtol=AT_REST, atol=SOLVES)
    if case in ("two classes", "scaled"):
        assert header == ["mean", "variance", "p:no", 'p:yes, "sure"']
        yes = ndtr(mean / np.sqrt(1.0 + variance))
        np.testing.assert_allclose(text[:, 2:], np.column_stack([1.0 - yes, yes]), rtol=AT_REST, atol=SOLVES)
    elif case == "counts":
        np.testing.assert_allclose(text[:, 2], np.exp(mean + 0.5 * variance), rtol=AT_REST)
    assert len(header) == text.shape[1]
    # the same by position from an array, and from Python
    np.save(tmp_path / "new.npy", np.column_stack([new["a"], new["b"]]))
    assert predict(run, saved, tmp_path / "new.npy", "--output", tmp_path / "told.npy")[0] == 0
    np.testing.assert_allclose(np.load(tmp_path / "told.npy"), text, rtol=SOLVES)
    np.testing.assert_allclose(np.column_stack(posterior.predict(np.load(tmp_path / "new.npy"))), text[:, :2])
    # wrong columns are not taken in silence
    path = write(tmp_path / "other.csv", {"b": new["b"], "c": new["a"]})
    status, _, error = predict(run, saved, path, "--output", out)
    assert status == 2
    assert "no column 'a', which the fit had; there is b, c; choose with --columns" in error
    for chosen in ("a,b", "b,a", "3,2"):  # by name, whatever the order
        path = tmp_path / "new.csv"
        assert predict(run, saved, path, "--columns", chosen, "--output", tmp_path / "again.csv")[0] == 0
        assert (tmp_path / "again.csv").read_bytes() == out.read_bytes()


def predict(run, *arguments):
    """Run `cavity predict`; `run` is for `cavity fit glm`."""
    return run(*arguments, command=("predict",))


def test_predict_wants_offsets_and_columns(run, tmp_path):
    path, saved = write(tmp_path / "x.csv", problem()), tmp_path / "fit.npz"
    options = "--target", "count", "--likelihood", "poisson", "--features", "a"
    assert run(path, *options, "--offset", "log_exposure", "--output", saved)[0] == 0
    assert predict(run, saved, path, "--output", tmp_path / "o.npy")[0] == 0  # by the name that the fit had
    columns, posterior = problem(), cavity.load(saved)
    expected = posterior.expected(columns["a"][:, None], offset=columns["log_exposure"])
    np.testing.assert_allclose(np.load(tmp_path / "o.npy")[:, 2], expected, rtol=SOLVES)
    assert predict(run, saved, path, "--offset", "b", "--output", tmp_path / "p.parquet")[0] == 0
    moments = posterior.predict(columns["a"][:, None], offset=columns["b"])
    text = pytest.importorskip("pyarrow.parquet").read_table(tmp_path / "p.parquet")
    assert text.column_names == ["mean", "variance", "expected"]
    np.testing.assert_allclose(text["mean"].to_numpy(), moments[0], rtol=SOLVES)
    replace(posterior, roles=None).save(saved)
    assert "give their column with --offset" in predict(run, saved, path, "--output", tmp_path / "o.csv")[2]
    write(path, {"one": np.ones(9), "y": np.arange(9.0)})
    assert run(path, "--target", "y", "--likelihood", "poisson", "--output", saved)[0] == 0
    assert "an intercept only" in predict(run, saved, path, "--output", tmp_path / "o.csv")[2]
    model = cavity.GLM(
        cavity.likelihoods.Step(), prior_variance=1.0, intercept=False
    )  # which has no mean, and no classes of its own
    model.fit(np.array([[1.0, 0.5], [0.5, 1.0]]), [1, -1]).save(saved)
    np.save(tmp_path / "x.npy", np.ones((3, 2)))
    assert predict(run, saved, tmp_path / "x.npy", "--output", tmp_path / "o.npy")[0] == 0
    assert np.load(tmp_path / "o.npy").shape[0] == 3


def test_names_that_are_numbers_are_names(tmp_path):
    """Columns of a fit without names may be found by position; years, as names of a Parquet file, may not."""
    path = write(tmp_path / "x.csv", {"a": np.ones(3), "b": np.zeros(3)})
    values = SimpleNamespace(data=str(path), columns=None, missing="error")
    for fitted in (("1", "2"), ("2", "4")):
        assert input_tables.read_columns(values, False, fitted=fitted)[1] == ["a", "b"]
    for fitted in (("2019", "2020"), ("0", "1"), ("a", "2"), ("²", "³")):
        with pytest.raises(ValueError, match="no column .* which the fit had; there is a, b"):
            input_tables.read_columns(values, False, fitted=fitted)


def test_rows_with_missing_values_are_dropped_or_told(run, tmp_path):
    columns, saved = problem(), tmp_path / "fit.npz"
    columns["a"][5] = columns["real"][7] = np.nan
    path, options = write(tmp_path / "x.csv", columns), ("--target", "real", "--features", "a,b", "--output", saved)
    assert "missing values in column 'real' in line 9; in column 'a' in line 7" in run(path, *options)[2]
    status, printed, _ = run(path, *options, "--missing", "drop")
    assert status == 0
    assert "left out         2 rows with missing values" in printed
    good = np.isfinite(columns["a"] + columns["real"])
    X = np.column_stack([columns["a"], columns["b"]])[good]
    expected = cavity.GLM("gaussian", intercept=True).fit(X, columns["real"][good])
    np.testing.assert_array_equal(cavity.load(saved).mean, expected.mean)


def test_shares_and_levels(run, tmp_path):
    columns, saved = problem(), tmp_path / "fit.npz"
    columns["trials"] = columns["count"] + np.arange(120) % 3
    columns["level"] = np.array(["a low", "b mid", "c top"])[np.digitize(columns["real"], [4.8, 5.2])]
    path, X = write(tmp_path / "x.csv", columns), columns["a"][:, None]
    options = "--features", "a", "--output", saved
    shares = "--likelihood", "binomial", "--target", "count", "--trials", "trials"
    assert run(path, *options, *shares)[0] == 0
    y = np.column_stack([columns["count"], columns["trials"]])
    expected = cavity.GLM("binomial", intercept=True).fit(X, y)
    np.testing.assert_array_equal(cavity.load(saved).mean, expected.mean)
    assert run(path, *options, "--likelihood", "ordered-probit", "--target", "level")[0] == 0
    expected = cavity.GLM("ordered-probit").fit(X, np.digitize(columns["real"], [4.8, 5.2]))
    np.testing.assert_array_equal(cavity.load(saved).mean, expected.mean)
    assert cavity.load(saved).classes == ("a low", "b mid", "c top")


@pytest.mark.parametrize("message", [("gp", "motorcycle", "--rows", "40"), ("glm", "faithful", "--target", "waiting")])
def test_integrals_over_hyperparameters(message, capsys):
    assert main(["fit", *message, "--integrate", "ccd"]) == 0
    out = capsys.readouterr().out
    assert "of a central composite design; the evidence is corrected by" in out
    assert "Hyperparameters, integrated" in out
