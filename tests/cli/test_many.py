"""`cavity fit many` as users run it."""

import json

import numpy as np
import pytest

import cavity

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


def test_groups_and_json(run, genes):
    model = "--formula", "treated + (1 | donor)", "--likelihood", "poisson"
    status, out, _ = run(genes, "--target", "gene_1,gene_2", *model, "--json")
    found = json.loads(out)
    assert status == 0
    assert found["summary"]["rows"] == ["gene_1", "gene_2"]
    assert next(iter(found["summary"]["columns"])) == "sd(intercept | donor)"


def test_what_is_refused(run, genes):
    model = "--formula", "~ treated", "--likelihood", "poisson"
    for words, message in (
        (("--target", "cell_*", *model), "cell_*"),
        (("--target", "gene_*", *model, "--missing", "drop"), "--missing drop has no meaning for fit many"),
        (("--target", "gene_*", *model, "--effect", "dose"), "there is no 'dose'"),
    ):
        status, _, error = run(genes, *words)
        assert status == 2
        assert message in error
