"""How many examples a slow property is tested on."""

from hypothesis import settings


def examples(n):
    """Settings with n examples, and as many times more as a run with `-m long` has (see conftest)."""
    return settings(max_examples=n * settings().max_examples // 100)
