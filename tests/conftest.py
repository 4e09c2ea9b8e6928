"""Shared fixtures and hypothesis profiles: reproducible runs, no time limits on shared machines.

`-m long` runs the tests marked long and, on twenty times as many examples, all properties.
"""

import pytest
from hypothesis import HealthCheck, settings

settings.register_profile(
    "cavity", derandomize=True, deadline=None, suppress_health_check=[HealthCheck.too_slow], print_blob=True
)
settings.register_profile("long", settings.get_profile("cavity"), max_examples=2000)
settings.load_profile("cavity")


def pytest_configure(config):
    if config.option.markexpr == "long":
        settings.load_profile("long")


@pytest.hookimpl(tryfirst=True)  # before pytest leaves out what is not marked
def pytest_collection_modifyitems(config, items):
    if config.option.markexpr == "long":
        for item in items:
            if getattr(getattr(item, "obj", None), "is_hypothesis_test", False):
                item.add_marker("long")


@pytest.fixture
def one_blas_thread():
    """One thread of BLAS, for tests of what public functions call under that limit."""
    from cavity.runs.executors import single_blas

    with single_blas():
        yield
