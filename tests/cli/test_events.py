"""`--event` of `cavity fit glm`, `mixed` and `gp`, as users run them."""

import numpy as np
import pytest
from support.commands import runner, write
from support.tolerances import AT_REST

import cavity
from cavity.likelihoods import Interval

pytest.importorskip("formulae")
RNG = np.random.default_rng(3)
x = RNG.normal(size=50).round(3)
TIME = (2.0 + np.sin(2.0 * x) + RNG.normal(size=50) * 0.3).round(4)
DIED = RNG.random(50) < 0.6
BOUNDS = np.column_stack([TIME, np.where(DIED, TIME, np.inf)])


@pytest.fixture
def run(capsys):
    return runner(capsys, "fit")


@pytest.fixture
def table(tmp_path):
    columns = {"x": x, "t": TIME, "died": np.where(DIED, "True", "False").tolist(), "status": DIED + 1.0}
    return write(tmp_path / "t.csv", columns | {"g": np.digitize(TIME, [1.4, 2.2])})


@pytest.mark.parametrize(
    "message", [("--target", "t", "--features", "x"), ("--formula", "t ~ x")], ids=["columns", "formula"]
)
def test_glm(run, table, tmp_path, message):
    saved = tmp_path / "saved.npz"
    status, out, _ = run("glm", table, *message, "--event", "died", "--likelihood", "gaussian", "--output", saved)
    expected = cavity.GLM(Interval(None), intercept=True).fit(x[:, None], BOUNDS)
    assert status == 0
    assert f"log evidence     {expected.log_evidence:.6f} nats" in out
    assert cavity.load(saved).mean == pytest.approx(expected.mean, abs=AT_REST)


def test_mixed(run, table):
    status, out, _ = run("mixed", table, "--formula", "t ~ x + (1 | g)", "--event", "died", "--likelihood", "gaussian")
    frame = {"x": x, "t": TIME, "d": DIED, "g": np.digitize(TIME, [1.4, 2.2])}
    expected = cavity.MixedGLM("surv(t, d) ~ x + (1 | g)", "gaussian").fit(frame)
    assert status == 0
    assert f"log evidence     {expected.log_evidence:.6f} nats" in out


@pytest.mark.parametrize("message", [("--target", "t"), ("--formula", "t ~ 1")], ids=["columns", "formula"])
def test_gp(run, table, message):
    """The rows that are not fitted are predicted as bounds, too."""
    rows = ("--rows", 40) if "--target" in message else ()
    names = "--features", "x", "--event", "died", "--likelihood", "gaussian"
    status, out, error = run("gp", table, *message, *names, *rows)
    assert (status, error) == (0, "")
    if rows:
        assert "10 rows that were not fitted" in out
    else:
        expected = cavity.GaussianProcess("rbf", "gaussian", "1").fit({"x": x, "t": TIME, "d": DIED}, "t", event="d")
        assert f"log evidence     {expected.log_evidence:.6f} nats" in out


def test_codes_of_r_are_refused(run, table):
    status, _, error = run("glm", table, "--target", "t", "--features", "x", "--event", "status")
    assert status != 0
    assert "column 'status' is 2, but --event needs 1 (observed) and 0 (censored)" in error
    assert "surv(time, status == 2)" in error
