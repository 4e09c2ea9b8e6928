"""`cavity fit mixed` as users run it, and its picture."""

import json

import numpy as np
import pytest
from support.commands import runner

import cavity
from cavity import data

pytest.importorskip("formulae")
FORMULA = "p(incidence, size) ~ period + (1 | herd)"


COMMAND = ("fit", "mixed")


def test_a_fit_is_that_of_the_library(run, tmp_path):
    saved, picture = tmp_path / "cbpp.npz", tmp_path / "cbpp.png"
    message = "cbpp", "--formula", FORMULA, "--prior-variance", "100", "--output", str(saved), "--plot", str(picture)
    status, out, _ = run(*message)
    assert status == 0
    for line in ("cbpp: 56 rows", "  log evidence     -106.032422 nats", "  sd(intercept | herd)"):
        assert line in out
    assert picture.read_bytes().startswith(b"\x89PNG")
    frame = data.table("cbpp", as_frame=True)[0]
    posterior = cavity.MixedGLM(FORMULA, prior_variance=100.0).fit(frame)
    restored = cavity.load(saved)
    np.testing.assert_array_equal(restored.mean, posterior.mean)
    np.testing.assert_array_equal(restored.predict(frame), posterior.predict(frame))


def test_json(run):
    status, out, _ = run("sleepstudy", "--formula", "Reaction ~ Days + (1 | Subject)", "--json")
    result = json.loads(out)
    assert status == 0
    assert result["summary"]["rows"] == ["intercept", "Days"]
    below = result["summary"]["below"]
    assert below["rows"] == ["sd(intercept | Subject)", "sd(residual)"]
    assert list(below["columns"]) == ["value", "standard error", "2.5%", "97.5%"]


def test_priors_are_those_of_the_library(run, tmp_path):
    saved, frame = tmp_path / "cbpp.npz", data.table("cbpp", as_frame=True)[0]
    message = "--prior", "sd(intercept | herd)=PC(0.5, probability=0.1)", "--output", str(saved)
    status, out, _ = run("cbpp", "--formula", FORMULA, *message)
    assert status == 0
    posterior = cavity.MixedGLM(FORMULA, priors={"herd": cavity.priors.PC(0.5, 0.1)}).fit(frame)
    assert cavity.load(saved).hyperparameters.values == posterior.hyperparameters.values
    assert f"{posterior.log_evidence:.6f} nats" in out
    away = cavity.MixedGLM(FORMULA, priors="avoid-zero").fit(frame)
    assert f"{away.log_evidence:.6f} nats" in run("cbpp", "--formula", FORMULA, "--prior", "avoid-zero")[1]


def test_integration_over_hyperparameters(run):
    status, out, _ = run("cbpp", "--formula", FORMULA, "--integrate", "auto")
    assert status == 0
    assert "integrated over sd(intercept | herd) by" in out


@pytest.mark.parametrize("text", ["sd", "sd=PC", "sd=PC(x)", "sd=Cauchy(1)", "sd=PC(-1)", "sd=PC(1, 2, 3)"])
def test_bad_priors(run, text):
    status, out, errors = run("cbpp", "--formula", FORMULA, "--prior", text)
    assert status == 2
    assert not out
    is_called = text in ("sd=PC(-1)", "sd=PC(1, 2, 3)")
    assert ("--prior must be like 'sd=PC(1, 0.05)', one of PC(upper, probability)" in errors) != is_called
    assert repr(text) in errors


@pytest.mark.parametrize(
    ("formula", "message"),
    [
        ("Reaction ~ Days + (1 | Person)", "'Person' missing; there is 'Reaction', 'Days', 'Subject'"),
        ("Reaction ~ Days + (1 | Subject", "is not understood"),
        ("Reaction ~ Days + (Days - 1 | Days * 2)", "is not understood"),
    ],
)
def test_bad_formulas(run, formula, message):
    status, out, errors = run("sleepstudy", "--formula", formula)
    assert status == 2
    assert not out
    assert message in errors


def test_predictions_without_a_formula_need_python(tmp_path, capsys):
    saved, frame = tmp_path / "s.npz", data.table("sleepstudy", as_frame=True)[0]
    cavity.MixedGLM("Subject", intercept=True).fit(frame[["Days", "Subject"]], frame["Reaction"]).save(saved)
    status, _, errors = runner(capsys, "predict")(str(saved), "sleepstudy", "--output", str(tmp_path / "p.csv"))
    assert status == 2
    assert "holds a mixed model" in errors


def test_the_picture_shows_every_term():
    frame = data.table("sleepstudy", as_frame=True)[0]
    posterior = cavity.MixedGLM("Reaction ~ Days + (Days | Subject)").fit(frame)
    figure = posterior.plot(title="Sleep").flat[0].figure
    titles = [axes.get_title() for axes in figure.axes]
    assert figure.axes[0].get_yticklabels()[-1].get_text().startswith("intercept: 251.4")
    assert titles[1:] == ["Variance components", "intercept of Subject", "Days of Subject"]
    assert [text.get_text() for text in figure.axes[3].get_yticklabels()][-1] == "308"
    assert figure.get_suptitle() == "Sleep"
