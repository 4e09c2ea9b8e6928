"""What both suites share: one BLAS thread, collection of bench_*.py, and how a timing is filed."""

import os

import pytest

# read by the libraries when numpy is imported, which the suites do after this file
for name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "VECLIB_MAXIMUM_THREADS"):
    os.environ[name] = "1"


def pytest_configure(config):
    """Let `pytest benchmarks` find bench_*.py."""
    config.addinivalue_line("python_files", "bench_*.py")


def pytest_addoption(parser):
    """Add --small, which run.py gives to a smoke test."""
    parser.addoption("--small", action="store_true", help="small problems where the real ones take seconds")


@pytest.fixture
def small(request):
    """Whether problems that take seconds are to be small ones."""
    return request.config.getoption("small")


@pytest.fixture
def measure(benchmark):
    """Return a function that times `call`, one of several implementations of `case`, and returns what it returned.

    `elements` is the number of `unit`s one call works through; run.py divides by it. A call of many seconds is made
    `once`; the others several times, the shortest counts.
    """

    def run(case, implementation, call, elements, unit, once=False):
        benchmark.group = case
        benchmark.extra_info.update(case=case, implementation=implementation, elements=elements, unit=unit)
        return benchmark.pedantic(call) if once else benchmark(call)

    return run
