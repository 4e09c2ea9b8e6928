"""The runner of benchmarks/rivals: its table, its reasons, and tasks that import nothing before it is needed."""

import importlib.util
import json
import subprocess
import sys
from pathlib import Path

import pytest

FOLDER = Path(__file__).parents[2] / "benchmarks" / "rivals"


@pytest.fixture
def runner(monkeypatch):
    monkeypatch.syspath_prepend(FOLDER)
    spec = importlib.util.spec_from_file_location("rivals_run", FOLDER / "run.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    yield module
    for name in [name for name in sys.modules if name.partition(".")[0] == "tasks"]:
        del sys.modules[name]


def test_tasks_name_libraries_cases_and_columns(runner):
    assert {path.stem for path in (FOLDER / "tasks").glob("*.py")} == {*runner.TASKS, "scores"}
    for task in runner.TASKS:
        module = runner.importlib.import_module(f"tasks.{task}")
        assert next(iter(module.LIBRARIES)) == "cavity"
        assert set(module.LIBRARIES) <= set(runner.PACKAGES)
        assert module.CASES
        assert module.COLUMNS


@pytest.mark.long
def test_a_small_run_ends_in_a_table_and_a_file(tmp_path):
    command = [sys.executable, FOLDER / "run.py", "binary_regression", "--cases", "logit", "--libraries", "cavity"]
    target = tmp_path / "found.json"
    printed = subprocess.check_output([*command, "--threads", "1", "--small", "--json", target], text=True)
    version, _, title, _, heads, rule, row, *_ = printed.splitlines()
    assert version.startswith("Measured with cavity ")
    assert title == "Logistic regression, N = 1e5, D = 20"
    assert heads.count("|") == rule.count("|") == row.count("|") == 8
    assert row.startswith("| cavity | ")
    result = json.loads(target.read_text())["binary_regression logit"]["cavity"]["1"]
    assert 2 <= len(result["seconds"]) <= 4
    assert -0.7 < result["scores"]["held-out log probability"] < -0.6
    assert result["scores"]["error of means"] < 0.02


def test_what_fails_is_named_with_its_reason(runner):
    good = {"seconds": [2.0, 1.25, 1.5], "megabytes": 100.4, "scores": {"log evidence": -12.3456789}}
    rows = {"one": {1: good, 2: {"reason": "not done after 3 s"}}, "two": {1: {"reason": "no | such module"}}}
    lines = runner.table(rows, [1, 2], ("log evidence", "error")).splitlines()
    assert lines[2] == "| one | 2 | 1.25 | failed | - | 100 | -12.346 | - |"
    assert lines[3] == "| two | no / such module |"
