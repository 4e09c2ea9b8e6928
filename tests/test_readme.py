"""README's blocks of Python, each alone in a new namespace and folder, as somebody pastes it."""

import re
from pathlib import Path

import pytest

TEXT = (Path(__file__).parents[1] / "README.md").read_text(encoding="utf-8")
BLOCKS = re.findall(r"```python\n(.*?)```", TEXT, re.DOTALL)


@pytest.mark.parametrize("number", range(len(BLOCKS)))
def test_block_runs_alone(number, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    pyplot = pytest.importorskip("matplotlib.pyplot")
    pyplot.switch_backend("agg")
    exec(compile(BLOCKS[number], f"block {number} of README.md", "exec"), {"__name__": "__main__"})
    pyplot.close("all")
    assert "print(" not in BLOCKS[number] or capsys.readouterr().out


def test_readme_is_short():
    assert len(TEXT.splitlines()) <= 180


def test_links_of_readme_lead_to_files():
    links = re.findall(r"\]\(([^)#:]+)\)", TEXT)
    assert len(links) > 15
    missing = [link for link in links if not (Path(__file__).parents[1] / link).exists()]
    assert not missing
