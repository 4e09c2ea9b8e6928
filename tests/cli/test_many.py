"""`cavity fit many` as users run it."""

import json
from pathlib import Path

import numpy as np
import pytest

import cavity
from cavity.cli import main, name_many

pytest.importorskip("formulae")
COMMAND = ("fit", "many")
N = 30
RNG = np.random.default_rng(0)
TREATED, DONOR = np.repeat(["no", "yes"], N // 2), np.arange(N) % 6
COUNTS = RNG.poisson(np.exp(2.0 + np.outer(TREATED == "yes", RNG.normal(size=8)))).astype(float)
EXPOSURE = RNG.integers(1, 4, N).astype(float)


@pytest.fixture
def genes(tmp_path):
    """A table of counts of genes in samples."""
    path = tmp_path / "genes.csv"
    names = ",".join(f"gene_{k}" for k in range(8))
    rows = zip(TREATED, DONOR, EXPOSURE, COUNTS, strict=True)
    lines = [f"{t},d{d},{e:g},{','.join(f'{y:g}' for y in counts)}" for t, d, e, counts in rows]
    path.write_text("\n".join([f"treated,donor,size,{names}", *lines]) + "\n")
    return str(path)


def test_a_fit_is_that_of_the_library(run, genes, tmp_path):
    saved, picture = tmp_path / "genes.npz", tmp_path / "genes.png"
    model = "--formula", "~ treated", "--likelihood", "negative-binomial", "--share", "dispersion", "--exposure", "size"
    files = "--output", str(saved), "--plot", str(picture), "--checkpoint", str(tmp_path / "genes.ck")
    status, out, _ = run(genes, "--target", "gene_*", *model, *files)
    assert status == 0
    for line in ("30 rows, 8 responses", "treated[yes] of 8 responses", "s-value", "8 of 8 converged"):
        assert line in out
    assert picture.read_bytes().startswith(b"\x89PNG")
    table = {"treated": TREATED}
    posterior = cavity.GLM("~ treated", "negative-binomial").fit_many(
        table, COUNTS, share="dispersion", exposure=EXPOSURE
    )
    np.testing.assert_array_equal(cavity.load(saved).mean, posterior.mean)


def test_a_formula_is_asked_for_by_the_names_of_columns(run, genes):
    status, _, error = run(genes, "--target", "gene_*", "--likelihood", "poisson")
    assert status
    assert "--formula is needed for several targets" in error
    assert "other columns are 'treated', 'donor', 'size'" in error


def test_groups_and_json(run, genes):
    model = "--formula", "treated + (1 | donor)", "--likelihood", "poisson"
    status, out, _ = run(genes, "--target", "gene_1,gene_2", *model, "--json")
    result = json.loads(out)
    assert status == 0
    assert result["summary"]["rows"] == ["gene_1", "gene_2"]
    assert next(iter(result["summary"]["columns"])) == "sd(intercept | donor)"


def test_successes_in_trials(run, genes, tmp_path):
    lines = Path(genes).read_text().splitlines()
    path, saved = tmp_path / "trials.csv", tmp_path / "trials.npz"
    more = [f"{line},{int(COUNTS[i].max())},{40 + i}" for i, line in enumerate(lines[1:])]
    path.write_text("\n".join([lines[0] + ",n_1,n_2", *more]) + "\n")
    model = "--formula", "~ treated", "--likelihood", "binomial", "--target", "gene_1,gene_2"
    own = np.column_stack([COUNTS.max(axis=1), 40.0 + np.arange(N)])
    for typed, trials in (("n_1", own[:, 0]), ("n_*", own)):
        status, _, error = run(str(path), *model, "--trials", typed, "--output", str(saved))
        assert status == 0, error
        posterior = cavity.GLM("~ treated", "binomial").fit_many({"treated": TREATED}, COUNTS[:, 1:3], trials=trials)
        np.testing.assert_array_equal(cavity.load(saved).mean, posterior.mean)


def test_rows_without_a_value_are_left_out(run, genes, tmp_path):
    """Those of a gene from the fit of this gene, those of a column from all."""
    lines = Path(genes).read_text().splitlines()
    lines[3] = lines[3].replace("no,", ",", 1)
    lines[5] = lines[5].rpartition(",")[0] + ","
    path, saved = tmp_path / "gaps.csv", tmp_path / "gaps.npz"
    path.write_text("\n".join(lines) + "\n")
    model = "--formula", "~ treated", "--likelihood", "poisson", "--exposure", "size"
    status, _, error = run(str(path), "--target", "gene_*", *model)
    assert status == 2
    assert "'treated' in 1 of 30 rows, the first is row 2; leave such rows out of X and Y" in error
    status, out, _ = run(str(path), "--target", "gene_*", *model, "--missing", "drop", "--output", str(saved))
    assert status == 0
    assert "29 rows, 8 responses" in out
    Y, rows = COUNTS.copy(), np.arange(N) != 2
    Y[4, 7] = np.nan
    data = {"treated": TREATED[rows]}
    posterior = cavity.GLM("~ treated", "poisson").fit_many(data, Y[rows], exposure=EXPOSURE[rows], missing="drop")
    np.testing.assert_array_equal(cavity.load(saved).mean, posterior.mean)


def test_what_is_refused(run, genes):
    model = "--formula", "~ treated", "--likelihood", "poisson"
    for text, message in (
        (("--target", "cell_*", *model), "cell_*"),
        (("--target", "gene_*", *model, "--effect", "dose"), "there is no 'dose'"),
    ):
        status, _, error = run(genes, *text)
        assert status == 2
        assert message in error


@pytest.mark.parametrize("model", ["glm", "mixed"])
def test_patterns_of_targets_are_many_responses(model, genes, capsys):
    options = ["--formula", "~ treated" if model == "glm" else "~ treated + (1 | donor)", "--likelihood", "poisson"]
    outputs = []
    for name in (model, "many"):
        assert main(["fit", name, genes, "--target=gene_*", *options, "--quiet", "--json"]) == 0
        outputs.append(json.loads(capsys.readouterr().out)["summary"])
    assert outputs[0] == outputs[1]
    assert len(outputs[0]["rows"]) == 8


@pytest.mark.parametrize("command", ["glm", "mixed"])
@pytest.mark.parametrize(("target", "is_many"), [("gene_*", True), ("ill?", False), ("a,b*", True), ("y[1]", False)])
def test_targets_with_an_asterisk_are_many(command, target, is_many):
    """Names of columns may be questions."""
    for options in (["--target", target], [f"--target={target}"]):
        expected = "many" if is_many else command
        assert name_many(["fit", command, "x.csv", *options]) == ["fit", expected, "x.csv", *options]
