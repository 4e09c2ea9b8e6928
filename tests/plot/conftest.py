"""Figures are drawn without a window, and closed."""

import pytest


@pytest.fixture(autouse=True)
def closed():
    """Close what a test has left open."""
    pyplot = pytest.importorskip("matplotlib.pyplot")
    pyplot.switch_backend("agg")
    yield
    pyplot.close("all")
