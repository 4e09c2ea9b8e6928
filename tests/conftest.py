"""Shared fixtures and hypothesis profiles: reproducible runs, no time limits on shared machines.

`-m long` runs the tests marked long, the cases that the default run leaves out (of products of parameters, outside
samples, named by `long_cases`), and, on many more examples, all properties.
"""

import gc
import os
import sys
from collections import defaultdict
from functools import partial
from itertools import combinations
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings
from support import sizes

settings.register_profile(
    "cavity",
    max_examples=15,
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
    else:  # threads of BLAS of several processes wait for each other, which takes a third of the time
        os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")


def pytest_collectstart():
    gc.disable()  # a sixth of the time of imports


def pytest_collection_finish():
    gc.freeze()  # what was imported stays: a fifth of the time of the tests goes into looking at it again
    gc.set_threshold(10_000, 10, 10)
    gc.enable()


@pytest.hookimpl(tryfirst=True)  # before pytest leaves out what is not marked
def pytest_collection_modifyitems(config, items):
    cases = defaultdict(list)
    for item in items:
        if hasattr(item, "callspec") and item.get_closest_marker("long") is None:
            cases[item.nodeid.partition("[")[0]].append(item)
    has_all = not any("[" in argument for argument in config.args)
    for test, group in cases.items():
        default = choose_default_cases(group)
        assert default or not has_all, f"{test}: the default run takes no case"
        for item in group:
            if item not in default and len(group) > 1:
                item.add_marker("long")
    if config.option.markexpr == "long":
        for item in items:
            if getattr(getattr(item, "obj", None), "is_hypothesis_test", False):
                item.add_marker("long")


def choose_default_cases(items):
    """Return those of the cases of a parametrised test that the default run takes."""
    sample, named = (items[0].get_closest_marker(name) for name in ("sample", "long_cases"))
    ids = {item.callspec.id for item in items}
    left_out = set() if named is None or len(ids) == 1 else set(named.args)
    assert left_out <= ids, f"{items[0].nodeid}: no cases {left_out - ids}"
    if sample is None:
        return choose_from_product([item for item in items if item.callspec.id not in left_out])
    return [item for item in items[:: sample.args[0]] if item.callspec.id not in left_out]


def choose_from_product(items):
    """Return cases in which each value of two parameters occurs, each pair of values of three and more.

    The variants of compiled kernels count their rests of vectors differently, so that these products stay whole.
    """
    parameters = [marker.args[0] for marker in items[0].iter_markers("parametrize")]
    parameters = [names.replace(" ", "").split(",") if isinstance(names, str) else names for names in parameters]
    if len(parameters) < 2 or "variant" in items[0].callspec.params:
        return items
    values = [[tuple(id(item.callspec.params[name]) for name in names) for names in parameters] for item in items]
    size = 1 if len(parameters) == 2 else 2
    subsets = [set(combinations(enumerate(case), size)) for case in values]
    left, chosen = set().union(*subsets), []
    while left:
        best = max(range(len(items)), key=lambda i: len(subsets[i] & left))
        chosen.append(items[best])
        left -= subsets[best]
    return chosen


@pytest.fixture
def set_sizes(monkeypatch):
    """Set sizes at which code changes its way, by the names of their constants, until the test ends."""
    return partial(sizes.set_sizes, monkeypatch)


@pytest.fixture
def one_blas_thread():
    """One thread of BLAS, for tests of what public functions call under that limit."""
    from cavity.runs.executors import single_blas

    with single_blas():
        yield
