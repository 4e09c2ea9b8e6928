"""How many examples a slow property, how many draws a slow test is tested on."""

from hypothesis import settings


def examples(n):
    """Return settings with n examples for every 100 of the profile: fewer in the default run, more with `-m long`."""
    return settings(max_examples=max(3, n * settings().max_examples // 100))


def count_draws(n):
    """Return n with `-m long`, a fifth in the default run, for tests marked more_draws, which both take."""
    return n if settings().max_examples > 100 else max(2, n // 5)
