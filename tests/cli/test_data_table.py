"""Columns of tables on the command line: an index is left out, text is coded as categories, rows without a value go."""

import re
import warnings
from dataclasses import replace

import numpy as np
import pytest
from support.commands import write
from support.tolerances import SOLVES

import cavity
from cavity.base.frames import LEVELS_ROLE
from cavity.cli import data_table
from cavity.sources import text_reader

COLOURS = ("blue", "green", "red")
LEAVE_OUT = "and is left out; name it in --{} to keep it"


def table(n=120, seed=0):
    """Numbers, colours, and targets that depend on both, as a dict of columns."""
    rng = np.random.default_rng(seed)
    a, codes = rng.normal(size=n), rng.integers(0, 3, n)
    f = a + np.array([0.0, 1.0, -1.0])[codes]
    columns = {"a": a, "colour": [COLOURS[k] for k in codes], "real": f + rng.normal(size=n)}
    label = rng.random(n) < 1.0 / (1.0 + np.exp(-f))
    return columns | {"label": label.astype(float), "answer": np.where(label, "yes", "no").tolist()}


def indicators(columns, levels=COLOURS[1:]):
    """The matrix of a and of the levels of colour."""
    colours = np.array(columns["colour"])
    return np.column_stack([columns["a"], *(colours == level for level in levels)])


# ------------------------------------------------------------------------------------------ an index


@pytest.mark.parametrize("name", ["", "rownames", "ID", "Unnamed: 0"])
@pytest.mark.parametrize("command", ["glm", "linear-regression", "gp", "streaming-gp", "mixture"])
def test_an_index_is_left_out_with_a_sentence(run, tmp_path, name, command):
    columns, saved = table(40), tmp_path / "a.npz"
    path = write(tmp_path / "x.csv", {name: np.arange(40.0), "a": columns["a"], "real": columns["real"]})
    option = "columns" if command == "mixture" else "features"
    message = ("--components", "1") if command == "mixture" else ("--target", "real")
    message += ("--no-learn",) if command == "gp" else ("--learn", "never") if command == "streaming-gp" else ()
    status, out, errors = run("fit", command, path, *message, "--output", saved)
    assert status == 0
    reason = "looks like an index" if name else "has no name"
    assert errors == f"cavity: column '{name or 1}' {reason} {LEAVE_OUT.format(option)}\n"
    assert f"left out         column {name or 1} ({reason})" in out
    first = ("a", "real") if command == "mixture" else ("a",)
    assert cavity.load(saved).columns == first
    status, _, errors = run("fit", command, path, *message, f"--{option}", f"a,{name or 1}", "--output", saved)
    assert (status, errors) == (0, "")
    assert cavity.load(saved).columns == ("a", name or "1")
    assert run("predict", saved, path, "--output", tmp_path / "p.npy")[0] == 0


@pytest.mark.parametrize(("formula", "names"), [("real ~ .", ("a",)), ("real ~ . + id", ("a", "id"))])
def test_a_dot_of_a_formula_stands_for_no_index(run, tmp_path, formula, names):
    pytest.importorskip("formulae")
    columns, saved = table(40), tmp_path / "a.npz"
    path = write(tmp_path / "x.csv", {"id": np.arange(40.0) % 7, "a": columns["a"], "real": columns["real"]})
    status, _, errors = run("fit", "glm", path, "--formula", formula, "--output", saved)
    assert status == 0
    assert errors == (
        "" if "id" in names else f"cavity: column 'id' looks like an index {LEAVE_OUT.format('formula')}\n"
    )
    assert cavity.load(saved).columns[-len(names) :] == names
    grouped = "fit", "mixed", path, "--formula", "real ~ . + (1 | id)", "--output", saved
    assert run(*grouped)[::2] == (0, "")


# ------------------------------------------------------------------------------------------ text


@pytest.mark.parametrize("message", [(), ("--features", "a,colour"), ("--categorical", "colour")])
def test_text_is_coded_as_categories(run, tmp_path, message):
    columns, saved, out = table(), tmp_path / "a.npz", tmp_path / "p.npy"
    del columns["label"], columns["answer"]
    path = write(tmp_path / "x.csv", columns)
    status, printed, errors = run("fit", "glm", path, "--target", "real", *message, "--output", saved)
    assert (status, errors) == (0, "")
    for line in ("  left out         colour blue (base level)", "  base levels: colour blue"):
        assert line in printed
    X, posterior = indicators(columns), cavity.load(saved)
    expected = cavity.GLM("gaussian", intercept=True).fit(X, columns["real"])
    np.testing.assert_array_equal(posterior.mean, expected.mean)
    assert posterior.columns == ("a", "colour[green]", "colour[red]")
    pairs = posterior.contrasts(pairs="colour")
    assert pairs.names == ("colour: green - blue", "colour: red - blue", "colour: red - green")
    np.testing.assert_allclose(pairs.columns["mean"][1], expected.mean[-1], rtol=SOLVES)
    # new rows in another order, the base level alone among them
    for colours in (columns["colour"], ["blue"] * 120):
        new = {"colour": colours, "other": ["x"] * 120, "a": columns["a"]}
        assert run("predict", saved, write(tmp_path / "y.csv", new), "--output", out)[0] == 0
        np.testing.assert_array_equal(np.load(out)[:, 0], expected.predict(indicators(new))[0])
    path = write(tmp_path / "y.csv", {"colour": ["red", "pink"], "a": np.ones(2)})
    errors = run("predict", saved, path, "--output", out)[2]
    assert "line 3: column 'colour' is 'pink', which the fit did not have; it had blue, green, red" in errors
    path = write(tmp_path / "y.csv", {"a": np.ones(2)})
    assert "no column 'colour'; there is a" in run("predict", saved, path, "--output", out)[2]


def test_long_numbers_are_categories_of_their_own(run, tmp_path):
    columns = table()
    columns["a"] = 1234567 + np.arange(120) % 3
    path, saved = write(tmp_path / "x.csv", columns), tmp_path / "a.npz"
    assert (
        run("fit", "glm", path, "--target", "real", "--categorical", "a", "--features", "a", "--output", saved)[0] == 0
    )
    assert cavity.load(saved).columns == ("a[1234568]", "a[1234569]")
    assert run("predict", saved, path, "--output", tmp_path / "p.npy")[0] == 0


def test_text_is_coded_as_by_a_formula(run, tmp_path):
    pytest.importorskip("formulae")
    posteriors = []
    path = write(tmp_path / "x.csv", table())
    for message in (("--target", "real", "--features", "a,colour"), ("--formula", "real ~ a + colour")):
        assert run("fit", "glm", path, *message, "--output", tmp_path / "a.npz")[0] == 0
        posteriors.append(cavity.load(tmp_path / "a.npz"))
    by_columns, by_formula = posteriors
    assert by_columns.coefficient_names == by_formula.coefficient_names
    np.testing.assert_allclose(by_columns.mean, by_formula.mean, rtol=SOLVES)


@pytest.mark.parametrize("command", ["gp", "linear-regression", "logistic-regression"])
def test_other_models_code_text_alike(run, tmp_path, command):
    saved, columns, out = tmp_path / "a.npz", table(40), tmp_path / "p.npy"
    target = "label" if command == "logistic-regression" else "real"
    path = write(tmp_path / "x.csv", {name: columns[name] for name in ("a", "colour", target)})
    message = ("--no-learn",) if command == "gp" else ()
    assert run("fit", command, path, "--target", target, *message, "--output", saved)[0] == 0
    posterior = cavity.load(saved)
    assert posterior.columns == ("a", "colour[green]", "colour[red]")
    assert run("predict", saved, path, "--output", out)[0] == 0
    np.testing.assert_allclose(np.load(out)[:, 0], posterior.predict(indicators(columns))[0], rtol=SOLVES)


def test_levels_of_numbers_are_in_their_order(run, tmp_path):
    columns = table(40) | {"ward": np.array([10.0, 9.0, 100.0])[np.arange(40) % 3]}
    message = "--target", "real", "--features", "ward", "--categorical", "ward", "--output", tmp_path / "a.npz"
    assert run("fit", "glm", write(tmp_path / "x.csv", columns), *message)[0] == 0
    assert cavity.load(tmp_path / "a.npz").columns == ("ward[10]", "ward[100]")


@pytest.mark.parametrize("n_levels", [50, 51])
def test_text_of_many_levels_is_left_out_with_a_sentence(run, tmp_path, n_levels):
    columns = {"a": np.arange(120.0) % 7, "name": [f"n{k % n_levels}" for k in range(120)], "real": table()["real"]}
    path, saved = write(tmp_path / "x.csv", columns), tmp_path / "a.npz"
    message = "fit", "glm", path, "--target", "real", "--output", saved
    status, printed, errors = run(*message)
    assert status == 0
    if n_levels == 50:
        assert errors == ""
        assert len(cavity.load(saved).columns) == 50
        return
    sentence = "column 'name' (text of more than 50 values) is left out; --categorical name codes it as categories"
    assert errors == f"cavity: {sentence}\n"
    assert "left out         name (text)" in printed
    assert cavity.load(saved).columns == ("a",)
    assert run(*message, "--categorical", "name")[0] == 0
    assert len(cavity.load(saved).columns) == 51


def test_text_of_long_tables_is_left_out_with_a_sentence(run, tmp_path, monkeypatch):
    columns = table()
    path = write(tmp_path / "x.csv", {name: columns[name] for name in ("a", "colour", "real")})
    for module, name, value, reason in (
        (data_table, "MAX_ROWS_UNASKED", 119, "text in a long table"),
        (text_reader, "MAX_TEXT_VALUES", 2, "text of more than 50 values"),
    ):
        monkeypatch.setattr(module, name, value)
        status, printed, errors = run("fit", "glm", path, "--target", "real")
        assert status == 0
        assert "left out         colour (text)" in printed
        assert f"column 'colour' ({reason}) is left out; --categorical colour codes it" in errors
        monkeypatch.undo()


def test_columns_without_a_part_in_the_fit_are_not_coded_again(run, tmp_path):
    """A column that --features leaves out, and one of a single level in the rows without missing values."""
    columns, saved = table(), tmp_path / "a.npz"
    message = "--target", "real", "--output", saved, "--missing", "drop"
    path = write(tmp_path / "x.csv", {name: columns[name] for name in ("a", "colour", "real")})
    assert run("fit", "glm", path, *message, "--features", "a", "--categorical", "colour")[0] == 0
    assert "colour" not in str(cavity.load(saved).roles)
    columns["a"] = np.where(np.array(columns["colour"]) == "blue", columns["a"], np.nan)
    path = write(tmp_path / "x.csv", {name: columns[name] for name in ("a", "colour", "real")})
    assert run("fit", "glm", path, *message, "--features", "a,colour")[0] == 0
    assert cavity.load(saved).columns == ("a",)
    assert run("predict", saved, write(tmp_path / "y.csv", {"a": [1.0]}))[0] == 0


def test_columns_that_are_called_like_levels(run, tmp_path):
    columns, saved, out = table(), tmp_path / "a.npz", tmp_path / "p.npy"
    columns = {"colour[cm]": columns["a"], "colour": columns["colour"], "real": columns["real"]}
    message = "fit", "glm", tmp_path / "x.csv", "--target", "real", "--output", saved
    path = write(tmp_path / "x.csv", columns)
    assert run(*message)[0] == 0
    assert run("predict", saved, path, "--output", out)[0] == 0
    X = indicators({"a": columns["colour[cm]"], "colour": columns["colour"]})
    np.testing.assert_array_equal(np.load(out)[:, 0], cavity.load(saved).predict(X)[0])
    write(path, {"colour[red]": columns["colour[cm]"], "colour": columns["colour"], "real": columns["real"]})
    assert "a column is called 'colour[red]', as that of a level of 'colour'; rename one" in run(*message)[2]


def test_a_file_of_the_last_version_is_read(run, tmp_path):
    """There, names of columns had both levels, and roles had no base levels."""
    columns, saved, out = table(), tmp_path / "a.npz", tmp_path / "p.npy"
    path = write(tmp_path / "x.csv", columns)
    posterior = cavity.GLM("gaussian", intercept=True).fit(indicators(columns), columns["real"])
    names = "a", "colour: green vs blue", "colour: red vs blue"
    replace(posterior, columns=names, roles={"y": "real"}).save(saved)
    assert run("predict", saved, path, "--output", out)[0] == 0
    np.testing.assert_array_equal(np.load(out)[:, 0], posterior.predict(indicators(columns))[0])
    path = write(tmp_path / "y.csv", {"colour": ["pink"], "a": np.ones(1)})
    assert "is 'pink', which the fit did not have; it had blue, green, red" in run("predict", saved, path)[2]


def test_streams_code_text_that_is_named(run, tmp_path):
    columns, saved = table(), tmp_path / "a.npz"
    path = write(tmp_path / "x.csv", {name: columns[name] for name in ("a", "colour", "real")})
    message = "fit", "streaming-gp", path, "--target", "real", "--learn", "never", "--batch", "40", "--output", saved
    status, printed, errors = run(*message)
    assert status == 0
    sentence = "column 'colour' (text) is left out; --categorical colour codes it as categories"
    assert errors == f"cavity: {sentence}\n"
    assert run(*message, "--features", "a,colour")[0] == 0
    state = cavity.load(saved)
    assert state.columns == ("a", "colour[green]", "colour[red]")
    assert state.roles[LEVELS_ROLE + "colour"] == ("colour[blue]", "colour[green]", "colour[red]")
    assert run(*message, "--resume", saved)[0] == 0
    assert cavity.load(saved).n_samples == 240
    path = write(tmp_path / "y.csv", {"a": np.ones(2), "colour": ["red", "pink"], "real": np.ones(2)})
    errors = run("fit", "streaming-gp", path, "--target", "real", "--resume", saved)[2]
    assert "is 'pink', which the fit did not have" in errors


# ------------------------------------------------------------------------------------------ targets and rows


@pytest.mark.parametrize("target", ["label", "answer"])
def test_two_labels_are_fitted_by_logit(run, tmp_path, target):
    columns, saved = table(), tmp_path / "a.npz"
    path = write(tmp_path / "x.csv", columns)
    status, printed, _ = run("fit", "glm", path, "--target", target, "--features", "a", "--output", saved)
    assert status == 0
    assert "likelihood    logit (default for a target of two values)\n" in printed
    expected = cavity.GLM("logit", intercept=True).fit(columns["a"][:, None], columns["label"])
    np.testing.assert_array_equal(cavity.load(saved).mean, expected.mean)
    for command, formula in (("glm", "a"), ("mixed", "a + (1 | colour)")):
        pytest.importorskip("formulae")
        printed = run("fit", command, path, "--formula", f"{target} ~ {formula}")[1]
        assert re.search(r"likelihood +logit \(default for a target of two values\)\n", printed)
    message = "--target", target, "--features", "a"
    assert "likelihood    logit\n" in run("fit", "glm", path, *message, "--likelihood", "logit")[1]
    assert "likelihood       probit\n" in run("fit", "gp", path, *message, "--no-learn")[1]
    assert "likelihood       probit\n" in run("fit", "streaming-gp", path, *message, "--learn", "never")[1]


MISSING = {
    "clutter": ("--column", "a"),
    "glm": ("--target", "real", "--features", "a"),
    "gp": ("--target", "real", "--features", "a", "--no-learn"),
    "linear-regression": ("--target", "real", "--features", "a"),
    "logistic-regression": ("--target", "label", "--features", "a"),
    "mixed": ("--formula", "real ~ a + (1 | colour)"),
    "mixture": ("--columns", "a,real", "--components", "1"),
    "streaming-gp": ("--target", "real", "--features", "a", "--learn", "never"),
    "unit-mixture": ("--column", "a", "--components", "1"),
}


@pytest.mark.parametrize("command", MISSING)
def test_every_fit_drops_rows_without_a_value_or_refuses_them(run, tmp_path, command):
    if command == "mixed":
        pytest.importorskip("formulae")
    columns, means = table(60), []
    for gaps in (True, False):
        cells = {name: np.array(column, dtype=object) for name, column in columns.items()}
        cells["a"][7] = np.nan
        rows = slice(None) if gaps else np.arange(60) != 7
        path = write(tmp_path / "x.csv", {name: column[rows].tolist() for name, column in cells.items()})
        message = "fit", command, path, *MISSING[command], "--output", tmp_path / "a.npz"
        assert run(*message, "--missing", "drop")[0] == 0
        posterior = cavity.load(tmp_path / "a.npz")
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            means.append(posterior.predict(np.ones((1, 1)))[0] if "gp" in command else posterior.mean)
        for choice in ((), ("--missing", "raise"), ("--missing", "error")) if gaps else ():
            status, out, errors = run(*message, *choice)
            assert (status, out) == (2, "")
            assert "--missing drop" in errors
    np.testing.assert_array_equal(*means)


def test_exposures_of_new_rows(run, tmp_path):
    rng, saved = np.random.default_rng(0), tmp_path / "a.npz"
    columns = {"a": rng.normal(size=60), "years": rng.uniform(1.0, 4.0, 60), "copies": rng.integers(1, 3, 60)}
    columns["claims"] = rng.poisson(columns["years"] * np.exp(0.3 * columns["a"])).astype(float)
    path, fit = write(tmp_path / "x.csv", columns), ("fit", "glm", tmp_path / "x.csv", "--output", saved)
    message = "--likelihood", "poisson", "--exposure", "years", "--weights", "copies"
    by_columns, by_formula = ("--target", "claims", *message), ("--formula", "claims ~ a", *message)
    for choice in (by_columns, by_formula):
        if choice is by_formula:
            pytest.importorskip("formulae")
        assert run(*fit, *choice)[0] == 0
        posterior, new = cavity.load(saved), {"a": [0.5, -1.0], "time": [2.0, 3.0], "years": [1.0, 1.0]}
        X = np.array(new["a"])[:, None] if choice is by_columns else {name: np.array(v) for name, v in new.items()}
        for typed, name in (((), "years"), (("--exposure", "time"), "time")):
            path = write(tmp_path / "new.csv", new)
            assert run("predict", saved, path, *typed, "--output", tmp_path / "p.npy")[0] == 0
            expected = posterior.expected(X, exposure=np.array(new[name]))
            np.testing.assert_allclose(np.load(tmp_path / "p.npy")[:, 2], expected, rtol=SOLVES)
        path = write(tmp_path / "new.csv", {"a": [0.5]})
        assert "'years'" in run("predict", saved, path)[2]
    assert run(*fit, "--target", "claims", "--features", "a")[0] == 0
    errors = run("predict", saved, path, "--exposure", "a")[2]
    assert f"--exposure: {saved} was fitted without" in errors


def test_commas_between_thousands_are_numbers(run, tmp_path):
    (tmp_path / "x.csv").write_text('a,b\n"1,234",1\n"2,345",2\n"12,000",4\n')
    (tmp_path / "y.csv").write_text("a,b\n1234,1\n2345,2\n12000,4\n")
    out = [
        run("fit", "linear-regression", tmp_path / name, "--target", "b", "--json")[1] for name in ("x.csv", "y.csv")
    ]
    assert out[0].split('"posterior"')[1] == out[1].split('"posterior"')[1]
    (tmp_path / "x.csv").write_text('a,b\n"1,234",1\n"2,345",2\n"0,5",4\n')
    errors = run("fit", "linear-regression", tmp_path / "x.csv", "--target", "b")[2]
    assert "x.csv, line 4: column 'a' is '0,5', not a finite number" in errors
