"""Figures are drawn without a window, and closed."""

import pytest


@pytest.fixture(autouse=True)
def closed():
    """Close what a test, or an example before it, has left open."""
    pyplot = pytest.importorskip("matplotlib.pyplot")
    pyplot.switch_backend("agg")
    pyplot.close("all")
    yield
    pyplot.close("all")
