"""Shared fixtures and hypothesis profiles: reproducible runs, no time limits on shared machines.

`-m long` runs the tests marked long and, on many more examples, all properties.
"""

import os
import sys
from collections import Counter
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

settings.register_profile(
    "cavity",
    max_examples=30,
    derandomize=True,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow],
    print_blob=True,
)
settings.register_profile("long", settings.get_profile("cavity"), max_examples=2000)
settings.load_profile("cavity")


def pytest_configure(config):
    if sys.dont_write_bytecode:  # processes of tests, and later runs, share what they compile, away from the sources
        sys.pycache_prefix = str(Path(__file__).parent.parent / "build" / "bytecode")
        os.environ |= {"PYTHONDONTWRITEBYTECODE": "", "PYTHONPYCACHEPREFIX": sys.pycache_prefix}
        sys.dont_write_bytecode = False
    if config.option.markexpr == "long":
        settings.load_profile("long")


@pytest.hookimpl(tryfirst=True)  # before pytest leaves out what is not marked
def pytest_collection_modifyitems(config, items):
    mark_cases_outside_samples(items)
    if config.option.markexpr == "long":
        for item in items:
            if getattr(getattr(item, "obj", None), "is_hypothesis_test", False):
                item.add_marker("long")


def mark_cases_outside_samples(items):
    """Mark as long all but every n-th case of the tests marked `sample(n)`."""
    counts = Counter()
    for item in items:
        sample = item.get_closest_marker("sample")
        if sample is not None and item.get_closest_marker("long") is None:
            test = item.nodeid.partition("[")[0]
            if counts[test] % sample.args[0]:
                item.add_marker("long")
            counts[test] += 1


@pytest.fixture
def one_blas_thread():
    """One thread of BLAS, for tests of what public functions call under that limit."""
    from cavity.runs.executors import single_blas

    with single_blas():
        yield
