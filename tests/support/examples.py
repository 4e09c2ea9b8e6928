"""How many examples a slow property is tested on."""

from hypothesis import settings


def examples(n):
    """Return settings with n examples for every 100 of the profile: fewer in the default run, more with `-m long`."""
    return settings(max_examples=max(3, n * settings().max_examples // 100))
