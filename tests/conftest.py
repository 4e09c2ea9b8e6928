"""Shared fixtures and the hypothesis profile: reproducible runs, no time limits on shared machines."""

import pytest
from hypothesis import HealthCheck, settings

settings.register_profile(
    "cavity", derandomize=True, deadline=None, suppress_health_check=[HealthCheck.too_slow], print_blob=True
)
settings.load_profile("cavity")


@pytest.fixture
def one_blas_thread():
    """One thread of BLAS, for tests of what public functions call under that limit."""
    from cavity._executors import single_blas

    with single_blas():
        yield
