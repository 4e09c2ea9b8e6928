"""Examples of the pages run in a folder of their own, where they may save files."""

import pytest


@pytest.fixture(autouse=True)
def elsewhere(tmp_path, monkeypatch):
    """Enter a new folder."""
    monkeypatch.chdir(tmp_path)
