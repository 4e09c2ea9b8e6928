"""Shared fixtures and the hypothesis profile: reproducible runs, no time limits on shared machines."""

from hypothesis import HealthCheck, settings

settings.register_profile(
    "cavity", derandomize=True, deadline=None, suppress_health_check=[HealthCheck.too_slow], print_blob=True
)
settings.load_profile("cavity")
