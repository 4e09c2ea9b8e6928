"""Shared fixtures and hypothesis profiles: reproducible runs, no time limits on shared machines.

`-m long` runs the tests marked long, the cases that the default run leaves out (of products of parameters, outside
samples, named by `long_cases`), and, on many more examples, all properties and the tests marked more_draws. The
default run has cases without fixtures together in one test.
"""

import gc
import os
import sys
from collections import defaultdict
from functools import partial
from itertools import combinations
from pathlib import Path

import pytest


def pytest_configure(config):
    if sys.dont_write_bytecode:  # processes of tests, and later runs, share what they compile, away from the sources
        sys.pycache_prefix = str(Path(__file__).parent.parent / "build" / "bytecode")
        os.environ |= {"PYTHONDONTWRITEBYTECODE": "", "PYTHONPYCACHEPREFIX": sys.pycache_prefix}
        sys.dont_write_bytecode = False
    is_long = config.option.markexpr == "long"
    if not is_long:  # threads of BLAS of several processes wait for each other, which takes a third of the time
        os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    from hypothesis import HealthCheck, settings

    settings.register_profile(
        "cavity",
        max_examples=2000 if is_long else 15,
        derandomize=True,
        deadline=None,
        suppress_health_check=[HealthCheck.too_slow],
        print_blob=True,
    )
    settings.load_profile("cavity")


def pytest_collectstart():
    gc.disable()  # a sixth of the time of imports


def pytest_collection_finish():
    use_hypothesis()
    gc.freeze()  # what was imported stays: a fifth of the time of the tests goes into looking at it again
    gc.set_threshold(10_000, 10, 10)
    gc.enable()


def use_hypothesis():
    """Test a property: at its first one hypothesis asks the collector what refers to NumPy's random numbers."""
    from hypothesis import given, strategies

    @given(strategies.booleans())
    def accept(value):
        assert value in {False, True}

    accept()


@pytest.hookimpl(tryfirst=True)
def pytest_unconfigure(config):
    if config.pluginmanager.hasplugin("dsession"):  # which has all reports, and looks through them at the end
        gc.freeze()


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
            is_property = getattr(getattr(item, "obj", None), "is_hypothesis_test", False)
            if is_property or item.get_closest_marker("more_draws"):
                item.add_marker("long")
    elif has_all and not config.option.keyword:  # where cases are chosen by their names, each is a test
        items[:] = merge_cases(items)


def has_plain_cases(item):
    """Whether a case needs nothing but its values."""
    return (
        isinstance(item.parent, pytest.Module)
        and set(item.fixturenames) == set(item.callspec.params if hasattr(item, "callspec") else {"none"})
        and not item.callspec.marks
        and not getattr(item.obj, "is_hypothesis_test", False)
        and not {marker.name for marker in item.iter_markers()} & {"long", "more_draws", "skip", "skipif", "xfail"}
    )


def merge_cases(items):
    """Return tests with all cases of one that has no fixtures as one test: each test takes two milliseconds."""
    groups, merged = {}, []
    for item in items:
        name = item.nodeid.partition("[")[0]
        if not has_plain_cases(item):
            merged.append(item)
        elif name in groups:
            groups[name].append(item)
        else:
            groups[name] = [item]
            run = partial(run_cases, groups[name])
            run.pytestmark = [marker for marker in item.own_markers if marker.name != "parametrize"]
            merged.append(pytest.Function.from_parent(item.parent, name=item.originalname, callobj=run))
    return merged


def run_cases(items):
    """Run cases one after the other; a failure names its case, which can be run by itself under that name."""
    skips = []
    for item in items:
        try:
            item.obj(**item.callspec.params)
        except pytest.skip.Exception as skip:
            skips.append(skip)
        except BaseException as error:
            error.add_note(f"in the case {item.nodeid}")
            raise
    if len(skips) == len(items):
        raise skips[0]


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
    from support import sizes

    return partial(sizes.set_sizes, monkeypatch)


@pytest.fixture
def one_blas_thread():
    """One thread of BLAS, for tests of what public functions call under that limit."""
    from cavity.runs.executors import single_blas

    with single_blas():
        yield
